"""What instructions of AMD GPUs compute beyond IEEE 754's basic operations, as models on the host.

Sources: "AMD Instinct MI300" (CDNA3) and RDNA3 Instruction Set Architecture reference guides, whose pseudocode is
cited as ISA. It documents approximate instructions by an error alone; `MODELS` are the result nearest to the real one,
and both ends of that error. Where a kernel executes one approximate instruction an element, the three are all there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verify.virtual.ir import BIAS, BITS, F32, F64, FRACTION, I32, INFINITY, Value, constant

#: How an approximate instruction errs: not at all but for rounding to nearest; downwards; upwards.
MODELS = ("nearest", "down", "up")


def flushed(x: Value) -> Value:
    """Subnormal numbers as zeros of their sign."""
    least = 2.0 ** (1 - BIAS[x.type])
    return (abs(x) < least).where(x.like(0.0).call("copysign", x), x)


def stepped(x: Value, steps: int) -> Value:
    """So many numbers further up the number line; zero, infinities and NaN stay."""
    bits = x.bits()
    away = bits.compare("<", 0, signed=True).where(bits.like(-steps), bits.like(steps))
    moves = (abs(x) < INFINITY) & (abs(x) > 0.0)
    return moves.where((bits + away).bitcast(x.type), x)


def approximated(exact: Value, model: str, kind: Any = F32) -> Value:
    """A number of `kind` within 1 ULP of a real number, given in float64: nearest, or the least or greatest one."""
    near = exact.to(kind)
    if model == "nearest":
        return near
    back = near.to(F64)
    moves = back >= exact if model == "down" else back <= exact
    return moves.where(stepped(near, -1 if model == "down" else 1), near)


def coarse(near: Value, model: str) -> Value:
    """float64's approximations: "(2**29)ULP accuracy" (ISA)."""
    return stepped(near, {"nearest": 0, "down": -(1 << 29), "up": 1 << 29}[model])


def rcp(x: Value, model: str) -> Value:
    if x.type == F64:
        return coarse(x.like(1.0) / x, model)
    wide = (flushed(x) if x.type == F32 else x).to(F64)
    result = approximated(wide.like(1.0) / wide, model, x.type)
    return flushed(result) if x.type == F32 else result


def rsq(x: Value, model: str) -> Value:
    """1/sqrt in float64 has two roundings; that float32's is still the nearest, a test tries on all significands."""
    if x.type == F64:
        return coarse(x.like(1.0) / x.call("sqrt"), model)
    wide = flushed(x).to(F64)
    return approximated(wide.like(1.0) / wide.call("sqrt"), model)


def sqrt(x: Value, model: str) -> Value:
    if x.type == F64:
        return coarse(x.call("sqrt"), model)
    return approximated(flushed(x).to(F64).call("sqrt"), model)


#: The arguments whose 2^x is so near to the middle of two numbers that float64's function, rounded, is not the nearest
#: (`bench/devicelib.py` tried all), with what is.
HARD = {"0x1.853a6ep-9": "0x1.00870ap+0", "-0x1.e7526ep-6": "0x1.f58d62p-1"}


def exp2(x: Value, model: str) -> Value:
    """float32. "1ULP accuracy, denormals are flushed" (ISA)."""
    result = approximated(flushed(x).to(F64).call("exp2"), model)
    for argument, nearest in HARD.items() if model == "nearest" else ():
        result = x.equals(float.fromhex(argument)).where(float.fromhex(nearest), result)
    return flushed(result)


def log2(x: Value, model: str) -> Value:
    """float32. "1ULP accuracy, denormals are flushed" (ISA)."""
    return approximated(flushed(x).to(F64).call("log2"), model)


APPROXIMATE: dict[str, Callable[[Value, str], Value]] = {
    "v_exp_f32": exp2, "v_log_f32": log2, "v_rcp_f16": rcp,
    "v_rcp_f32": rcp, "v_rsq_f32": rsq, "v_sqrt_f32": sqrt, "v_rcp_f64": rcp, "v_rsq_f64": rsq, "v_sqrt_f64": sqrt,
}  # fmt: skip


def ldexp(x: Value, exponent: Value) -> Value:
    """x 2^exponent, rounded once. float16 and float32 by an exact product in float64."""
    assert exponent.type == I32
    if x.type == F64:
        return x.call("ldexp", exponent, overloads=".i32")
    limited = clamped(exponent, -400, 400)
    power = ((limited + 1023).to(BITS[F64]) << 52).bitcast(F64)
    return (x.to(F64) * power).to(x.type)


def clamped(x: Value, least: int, most: int) -> Value:
    """A signed integer kept between two."""
    low = x.compare("<", least, signed=True).where(x.like(least), x)
    return low.compare(">", most, signed=True).where(x.like(most), low)


def biased_exponent(x: Value) -> Value:
    """The field of x, as int32: 0 of zero and subnormal numbers."""
    bits = (x.bits() >> FRACTION[x.type]) & (2 * BIAS[x.type] + 1)
    return bits.to(I32)


def frexp(x: Value) -> tuple[Value, Value]:
    """Fraction in [1/2, 1) with the sign of x, and exponent: of zero x and 0, of infinities and NaN x and 0."""
    wide = x.to(F64)
    tiny = abs(wide) < 2.0**-1022
    normal = tiny.where(wide * 2.0**54, wide)
    bits = normal.bits()
    exponent = ((bits >> 52) & 0x7FF).to(I32) - tiny.where(constant(x.builder, I32, 1022 + 54), 1022)
    fraction = ((bits & ~(0x7FF << 52)) | (1022 << 52)).bitcast(F64).to(x.type)
    ordinary = (abs(x) > 0.0) & (abs(x) < INFINITY)
    return ordinary.where(fraction, x), ordinary.where(exponent, 0)


# Division: a / b is the refinement of an estimate, on operands scaled so that nothing in between over- or underflows.
# (difference of exponents from which a quotient may overflow, exponent of its scale, tiny numerators' field,
# difference below which a quotient rounds to zero), from the ISA guides. With float32 numerators in [2^-103, 2^-102),
# field 24, the last remainder may fall below 2^-149 and the quotient be misrounded; float64's 53 has no such gap.
DIVISION = {F32: (96, 64, 23, -150), F64: (768, 128, 53, -1075)}


def div_scale(scaled: Value, denominator: Value, numerator: Value) -> tuple[Value, Value]:
    """The operand `scaled`, which is one of the two, prepared; and whether the quotient must be scaled back.

    The guides' text scales a denominator whose inverse is subnormal up where the quotient is subnormal too, which
    overflows; what is consistent with v_div_fmas, and taken here, is down. That inverse counts as subnormal by the
    denominator's exponent: from 2^126.
    """
    kind = scaled.type
    far, scale, tiny, _ = DIVISION[kind]
    limit = 2.0 ** (BIAS[kind] - 1)
    d, n = abs(denominator), abs(numerator)
    is_denominator, is_numerator = scaled.equals(denominator), scaled.equals(numerator)
    up, down = scaled * 2.0**scale, scaled * 2.0**-scale
    difference = biased_exponent(numerator) - biased_exponent(denominator)
    overflows = difference.compare(">=", far, signed=True)
    small_quotient = (n * limit) < d
    small_inverse = d >= limit

    result = biased_exponent(numerator).compare("<=", tiny, signed=True).where(up, scaled)
    result = small_quotient.where(is_numerator.where(up, scaled), result)
    result = small_inverse.where(down, result)
    result = (small_inverse & small_quotient).where(is_denominator.where(down, scaled), result)
    result = (d < 2.0 ** (1 - BIAS[kind])).where(up, result)
    result = overflows.where(is_denominator.where(up, scaled), result)
    zero = denominator.equals(0.0) | numerator.equals(0.0)
    back = overflows | ((d >= 2.0 ** (1 - BIAS[kind])) & small_quotient)
    return zero.where(scaled.like(float("nan")), result), back & ~zero


def div_fmas(a: Value, b: Value, c: Value, back: Value) -> Value:
    """fma(a, b, c), times 2^scale where c is 2 or more, else 2^-scale, if `back`. Rounded once: a subnormal result that
    the fma's rounding left halfway goes where the error of that rounding points."""
    kind = a.type
    scale = DIVISION[kind][1]
    rounded = a.fma(b, c)
    large = biased_exponent(c).compare(">", BIAS[kind], signed=True)
    low = rounded * 2.0**-scale
    missed = rounded - low * 2.0**scale
    product = a * b
    high = product + c
    bb = high - product
    rest = (product - (high - bb)) + (c - bb) + a.fma(b, -product)
    error = (high - rounded) + rest
    half = 2.0 ** (scale - BIAS[kind] - FRACTION[kind])
    least = 2.0 ** (1 - BIAS[kind] - FRACTION[kind])
    small = (missed.equals(half) & (error > 0.0)).where(low + least, low)
    small = (missed.equals(-half) & (error < 0.0)).where(low - least, small)
    return back.where(large.where(rounded * 2.0**scale, small), rounded)


def div_fixup(quotient: Value, denominator: Value, numerator: Value) -> Value:
    """The quotient with the sign of its operands, and special values by them. An estimate that became NaN on the way,
    as infinity minus infinity, stands for overflow."""
    kind = quotient.type
    sign = (denominator.bits() ^ numerator.bits()).bitcast(kind)
    n, d = abs(numerator), abs(denominator)
    size = quotient.isnan().where(quotient.like(INFINITY), abs(quotient))
    if kind in DIVISION:
        difference = biased_exponent(numerator) - biased_exponent(denominator)
        size = difference.compare("<", DIVISION[kind][3], signed=True).where(size.like(0.0), size)
    size = (d.equals(INFINITY) | n.equals(0.0)).where(size.like(0.0), size)
    size = (d.equals(0.0) | n.equals(INFINITY)).where(size.like(INFINITY), size)
    result = size.call("copysign", sign)
    invalid = (d.equals(0.0) & n.equals(0.0)) | (d.equals(INFINITY) & n.equals(INFINITY))
    result = invalid.where(result.like(float("nan")), result)
    result = denominator.isnan().where(denominator + denominator, result)
    return numerator.isnan().where(numerator + numerator, result)


def fract(x: Value) -> Value:
    """x - floor(x), below 1."""
    most = 1 - 2.0 ** -(FRACTION[x.type] + 1)
    difference = x - x.call("floor")
    return (difference > most).where(difference.like(most), difference)


def extremum(a: Value, b: Value, largest: bool) -> Value:
    """v_min, v_max in IEEE mode: the number where one is NaN, NaN where one signals; -0 is below +0."""
    first = a > b if largest else a < b
    bits = (a.bits() & b.bits()) if largest else (a.bits() | b.bits())
    result = first.where(a, b)
    result = (a.equals(0.0) & b.equals(0.0)).where(bits.bitcast(a.type), result)
    result = b.isnan().where(a + a.like(-0.0), result)
    result = a.isnan().where(b + b.like(-0.0), result)
    return (signals(a) | signals(b)).where(result.like(float("nan")), result)


def signals(x: Value) -> Value:
    return x.isnan() & (x.bits() & (1 << (FRACTION[x.type] - 1))).equals(0)


def is_class(x: Value, mask: Value) -> Value:
    """v_cmp_class: bit i of `mask` (int32) asks for class i: signalling and quiet NaN, -inf, negative normal, subnormal
    and zero, then positive zero, subnormal, normal and infinity."""
    least = 2.0 ** (1 - BIAS[x.type])
    size, minus = abs(x), x.bits().compare("<", 0, signed=True)
    kinds = {
        0: signals(x), 1: x.isnan() & ~signals(x), 2: minus & size.equals(INFINITY),
        3: minus & (size >= least) & (size < INFINITY), 4: minus & (size < least) & (size > 0.0),
        5: minus & size.equals(0.0), 6: ~minus & size.equals(0.0), 7: ~minus & (size < least) & (size > 0.0),
        8: ~minus & (size >= least) & (size < INFINITY), 9: ~minus & size.equals(INFINITY),
    }  # fmt: skip
    found = mask.like(0)
    for bit, holds in kinds.items():
        found = found | holds.where(mask & (1 << bit), 0)
    return found.differs(0)
