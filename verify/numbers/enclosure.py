"""Interval arithmetic on raw mpf numbers, and enclosures of the library functions at one point.

An interval is a pair (lo, hi) of mpf tuples, +-inf allowed as ends; it means the *open* interval:
the value lies strictly between. Every operation rounds outward at `prec` bits (IEEE 1788-2015,
clause 4, containment). Special values and exact cases are the business of `verify.numbers.mp`.

Trusted from mpmath: directed rounding in mpf_add, mpf_mul and mpf_div; and that mpf_exp, mpf_log, mpf_sin,
mpf_atan and mpf_pi called with working precision w err by less than 2^(GUARD - w) relative to the result. mpmath
claims about 2^-w; the tests compare every function with Arb, whose error bounds are proved.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

from mpmath.libmp import (
    finf,
    fninf,
    fnone,
    fone,
    from_man_exp,
    from_rational,
    ftwo,
    fzero,
    mpf_add,
    mpf_atan,
    mpf_div,
    mpf_exp,
    mpf_gt,
    mpf_log,
    mpf_lt,
    mpf_mul,
    mpf_neg,
    mpf_pi,
    mpf_shift,
    mpf_sign,
    mpf_sin,
    mpf_sqrt,
    mpf_sub,
    to_fixed,
    to_int,
)

Mpf = tuple[int, int, int, int]  # sign, mantissa, exponent, bit count of the mantissa
Interval = tuple[Mpf, Mpf]

GUARD = 20
WHOLE: Interval = (fninf, finf)

# exp of |x| < 2^WIDE is computed with WIDE extra bits (float64 squared needs 2048). Beyond, only the
# exponent of the result is enclosed, in integers of about VAST bits; beyond 2^VAST not even that.
WIDE = 2200
VAST = 4096


def magnitude(x: Mpf) -> int:
    """e with 2^(e-1) <= |x| < 2^e, for finite non-zero x."""
    return x[2] + x[3]


def from_fraction(value: Fraction, prec: int) -> Interval:
    """Closed bounds of a rational: equal where it is dyadic, else neighbours at `prec` bits."""
    p, q = value.numerator, value.denominator
    if q & (q - 1) == 0:
        exact = from_man_exp(p, 1 - q.bit_length())
        return exact, exact
    return from_rational(p, q, prec, "f"), from_rational(p, q, prec, "c")


def to_fraction(x: Mpf) -> Fraction:
    """The exact value of a finite mpf, whose exponent must be of reasonable size."""
    sign, man, exp, _ = x
    man = -int(man) if sign else int(man)
    return Fraction(man << exp) if exp >= 0 else Fraction(man, 1 << -exp)


def sign(a: Interval) -> int:
    """+1 or -1 where every value of the open interval has that sign, else 0."""
    return 1 if mpf_sign(a[0]) >= 0 else -1 if mpf_sign(a[1]) <= 0 else 0


def negate(a: Interval) -> Interval:
    return mpf_neg(a[1]), mpf_neg(a[0])


def inflate(x: Mpf, prec: int) -> Interval:
    """Numbers of about prec + 2 bits strictly around every t with |t - x| < 2^-prec |t|."""
    negative, man, exp, bits = x
    shift = bits - prec - 2
    man = man >> shift if shift > 0 else man << -shift
    # x lies in [man, man + 1) units and man + 1 <= 2^(prec+2), so the error is below 5 units.
    lo, hi = from_man_exp(man - 5, exp + shift), from_man_exp(man + 6, exp + shift)
    return (mpf_neg(hi), mpf_neg(lo)) if negative else (lo, hi)


def add(a: Interval, b: Interval, prec: int) -> Interval:
    return mpf_add(a[0], b[0], prec, "f"), mpf_add(a[1], b[1], prec, "c")


def _times(x: Mpf, y: Mpf, prec: int, rounding: str) -> Mpf:
    """x y with 0 * inf = 0, the right convention for ends: the other corners hold the supremum."""
    product: Mpf = fzero if x == fzero or y == fzero else mpf_mul(x, y, prec, rounding)
    return product


def multiply(a: Interval, b: Interval, prec: int) -> Interval:
    s, t = sign(a), sign(b)
    if s and t:
        if s < 0:
            a = negate(a)
        if t < 0:
            b = negate(b)
        product = _times(a[0], b[0], prec, "f"), _times(a[1], b[1], prec, "c")
        return product if s == t else negate(product)
    corners = [(x, y) for x in a for y in b]
    lo, *lows = (_times(x, y, prec, "f") for x, y in corners)
    hi, *highs = (_times(x, y, prec, "c") for x, y in corners)
    for low, high in zip(lows, highs, strict=True):
        lo = low if mpf_lt(low, lo) else lo
        hi = high if mpf_gt(high, hi) else hi
    return lo, hi


def reciprocal(a: Interval, prec: int) -> Interval:
    """1 / a for an interval of one sign."""
    if sign(a) < 0:
        return negate(reciprocal(negate(a), prec))
    hi = finf if a[0] == fzero else mpf_div(fone, a[0], prec, "c")
    return mpf_div(fone, a[1], prec, "f"), hi


def larger(a: Interval, b: Interval) -> Interval:
    """max(a, b): each end is the larger one."""
    return b[0] if mpf_lt(a[0], b[0]) else a[0], b[1] if mpf_lt(a[1], b[1]) else a[1]


# Each function below encloses f(x) for one mpf x in its domain, ends and infinities included: with
# equal ends where the value is an exact or limiting one, strictly around f(x) otherwise.


def exp(x: Mpf, prec: int) -> Interval:
    if x == fzero:
        return fone, fone
    if not x[1]:
        return (finf, finf) if x == finf else (fzero, fzero)
    size = magnitude(x)
    if size < -prec:
        return _exp_tiny(x, prec)
    if size > WIDE:
        return _exp_huge(x)
    return inflate(mpf_exp(x, prec + GUARD), prec)


def _exp_tiny(x: Mpf, prec: int) -> Interval:
    """1 + x < exp(x) < 1 + x + x^2 for 0 < |x| <= 1, so that the side of 1 is decided at once."""
    if magnitude(x) < -VAST:
        beyond = from_man_exp(-1 if x[0] else 1, -prec)
        return (mpf_add(fone, beyond), fone) if x[0] else (fone, mpf_add(fone, beyond))
    lo = mpf_add(fone, x)
    return lo, mpf_add(lo, mpf_mul(x, x))


def _exp_huge(x: Mpf) -> Interval:
    """Powers of two around exp(x) for |x| >= 1, from 1.4426 < log2(e) < 1.4427."""
    negative = x[0]
    if magnitude(x) > VAST:
        lo, hi = from_man_exp(1, 1 << VAST), finf
    else:
        whole = int(to_int(mpf_neg(x) if negative else x))
        lo, hi = from_man_exp(1, whole * 14426 // 10000), from_man_exp(1, (whole + 1) * 14427 // 10000 + 1)
    return reciprocal((lo, hi), 10) if negative else (lo, hi)


def expm1(x: Mpf, prec: int) -> Interval:
    if not x[1]:
        return {fzero: (fzero, fzero), finf: (finf, finf), fninf: (fnone, fnone)}[x]
    size = magnitude(x)
    if size < -prec:  # x < expm1(x) < x + x^2 for 0 < |x| <= 1
        return x, mpf_add(x, mpf_mul(x, x), prec, "c")
    lo, hi = exp(x, prec + 4 - min(size, 0))  # the difference cancels -size bits
    return mpf_sub(lo, fone, prec + 4, "f"), mpf_sub(hi, fone, prec + 4, "c")


def log(x: Mpf, prec: int) -> Interval:
    if not x[1]:
        return (finf, finf) if x == finf else (fninf, fninf)
    if x == fone:
        return fzero, fzero
    return inflate(mpf_log(x, prec + GUARD), prec)


def log1p(x: Mpf, prec: int) -> Interval:
    if not x[1]:
        return (x, x)
    size = magnitude(x)
    if size < -prec:  # x - x^2 < log1p(x) < x for 0 < |x| <= 1/2
        return mpf_sub(x, mpf_mul(x, x), prec, "f"), x
    if size > WIDE:  # log(x) < log1p(x) < log(x) + 1/x, and 1/x <= 2^(1-size)
        lo, hi = log(x, prec)
        return lo, mpf_add(hi, from_man_exp(1, 1 - size), prec, "c")
    return log(mpf_add(fone, x), prec)


def log2(x: Mpf, prec: int) -> Interval:
    return multiply(log(x, prec + 4), reciprocal(log(ftwo, prec + 4), prec + 4), prec + 4)


def exp2(x: Mpf, prec: int) -> Interval:
    """exp(x log 2); an error of the argument is a relative error of the result."""
    if not x[1]:
        return exp(x, prec)
    work = prec + 4 + max(0, min(magnitude(x), WIDE))
    lo, hi = multiply((x, x), log(ftwo, work), work)
    return exp(lo, prec + 4)[0], exp(hi, prec + 4)[1]


def tanh(x: Mpf, prec: int) -> Interval:
    """t / (t + 2) with t = expm1(2x), which increases with t."""
    if x[0]:
        return negate(tanh(mpf_neg(x), prec))
    if not x[1]:
        return (fone, fone) if x == finf else (fzero, fzero)
    if 2 * magnitude(x) < -prec:  # x - x^3 < tanh(x) < x for x > 0
        return mpf_sub(x, mpf_mul(x, mpf_mul(x, x)), prec, "f"), x
    lo, hi = expm1(mpf_shift(x, 1), prec + 4)
    hi = fone if hi == finf else mpf_div(hi, mpf_add(hi, ftwo, prec + 8, "f"), prec + 4, "c")
    return mpf_div(lo, mpf_add(lo, ftwo, prec + 8, "c"), prec + 4, "f"), hi


def sqrt(x: Mpf, prec: int) -> Interval:
    """From the integer square root: s <= sqrt(m) < s + 1, also where m lost its lowest bits."""
    if not x[1]:
        return x, x
    _, man, exponent, bits = x
    shift = 2 * (prec + 2) - bits
    shift += (exponent - shift) & 1
    root = isqrt(man << shift if shift >= 0 else man >> -shift)
    half = (exponent - shift) // 2
    return from_man_exp(root, half), from_man_exp(root + 1, half)


def rsqrt(x: Mpf, prec: int) -> Interval:
    if not x[1]:
        return (fzero, fzero) if x == finf else (finf, finf)
    _, man, exponent, bits = x
    shift = 2 * (prec + 2) + bits
    shift += (exponent + shift) & 1
    root = isqrt((1 << shift) // man)
    half = -(exponent + shift) // 2
    return from_man_exp(root, half), from_man_exp(root + 1, half)


def pow(x: Mpf, y: Mpf, prec: int) -> Interval:
    """x^y of finite x other than 0, and y, an integer where x is negative."""
    if x[0]:
        power = pow(mpf_neg(x), y, prec)
        return negate(power) if y[1] and y[2] == 0 else power
    size = magnitude(y) if y[1] else 0
    lo, hi = multiply(log(x, prec + 12 + max(size, 0)), (y, y), prec + 12 + max(size, 0))
    return exp(lo, prec)[0], exp(hi, prec)[1]


def erf(x: Mpf, prec: int) -> Interval:
    """2/sqrt(pi) x exp(-x^2) s with s = sum (2 x^2)^n / (2n + 1)!!, of positive terms (DLMF 7.6.2).

    mpmath's own takes an alternating series in fixed point, whose terms cancel.
    """
    if x[0]:
        return negate(erf(mpf_neg(x), prec))
    if not x[1]:
        return (fone, fone) if x == finf else (fzero, fzero)
    square = mpf_mul(x, x)
    if mpf_gt(square, from_man_exp(prec, 0)):  # erfc(x) < exp(-x^2) (DLMF 7.8.2)
        return mpf_sub(fone, exp(mpf_neg(square), 8)[1], prec, "f"), fone
    root = mpf_sqrt(mpf_pi(prec + 4 + GUARD), prec + 4 + GUARD)
    factor = multiply((x, x), reciprocal(inflate(mpf_shift(root, -1), prec + 4), prec + 4), prec + 4)
    if magnitude(square) < -prec:  # 1 - x^2 < exp(-x^2) s < 1
        return mpf_mul(factor[0], mpf_sub(fone, square, prec + 4, "f"), prec + 4, "f"), factor[1]
    work = prec + 2 * GUARD
    twice, term_lo, term_hi = to_fixed(square, work + 1), 1 << work, 1 << work  # 2 x^2 lies in [twice, twice + 1]
    lo = hi = n = 0
    while term_hi > 1 or (2 * (twice + 1) >> work) > 2 * n + 1:
        lo, hi, n = lo + term_lo, hi + term_hi, n + 1
        term_lo = term_lo * twice // ((2 * n + 1) << work)
        term_hi = term_hi * (twice + 1) // ((2 * n + 1) << work) + 1
    # From here on the terms at least halve: what is left is below twice the next one.
    series = from_man_exp(lo, -work), from_man_exp(hi + 2 * term_hi, -work)
    decay = exp(mpf_neg(square), prec + 4)
    return multiply(factor, multiply(decay, series, prec + 4), prec + 4)


def sin(x: Mpf, prec: int) -> Interval:
    """mpmath subtracts as many bits of pi as x has, and more until the difference keeps its precision."""
    if x == fzero:
        return x, x
    if not x[1] or magnitude(x) > 16 * VAST:
        return WAVE
    if 2 * magnitude(x) < -prec:  # |x| - |x|^3 < |sin(x)| < |x|
        if x[0]:
            return negate(sin(mpf_neg(x), prec))
        return mpf_sub(x, mpf_mul(x, mpf_mul(x, x)), prec, "f"), x
    return inflate(mpf_sin(x, prec + GUARD), prec)


def atan(x: Mpf, prec: int) -> Interval:
    if x == fzero:
        return x, x
    if x[1] and 2 * magnitude(x) < -prec:  # |x| - |x|^3 < |atan(x)| < |x|
        if x[0]:
            return negate(atan(mpf_neg(x), prec))
        return mpf_sub(x, mpf_mul(x, mpf_mul(x, x)), prec, "f"), x
    return inflate(mpf_atan(x, prec + GUARD), prec)  # +-pi/2 at the infinities


# Each of these encloses what a function, given by its enclosure at points, is on an interval.


def increasing(f: Callable[[Mpf, int], Interval], a: Interval, prec: int) -> Interval:
    if a[0] == a[1]:
        return f(a[0], prec)
    return f(a[0], prec)[0], f(a[1], prec)[1]


def decreasing(f: Callable[[Mpf, int], Interval], a: Interval, prec: int) -> Interval:
    return increasing(f, (a[1], a[0]), prec)


def wave(f: Callable[[Mpf, int], Interval], a: Interval, prec: int) -> Interval:
    """Of sin: monotone between neighbouring odd multiples of pi/2, at which it is 1 and -1 in turn.

    1 and -1 are taken to be strictly inside only: the interval is widened beyond them.
    """
    if a[0] == a[1]:
        return f(a[0], prec)
    if fninf in a or finf in a:
        return WAVE
    first, last = _half_turns(a[0]), _half_turns(a[1])
    if first[0] == first[1] == last[0] == last[1]:
        return decreasing(f, a, prec) if first[0] % 2 else increasing(f, a, prec)
    if last[1] - first[0] > 1:
        return WAVE
    ends = f(a[0], prec), f(a[1], prec)
    if first[0] % 2:  # falls to -1, then rises
        return WAVE[0], ends[0][1] if mpf_gt(ends[0][1], ends[1][1]) else ends[1][1]
    return ends[0][0] if mpf_lt(ends[0][0], ends[1][0]) else ends[1][0], WAVE[1]


#: Around [-1, 1]: an open interval.
WAVE: Interval = (mpf_sub(fnone, from_man_exp(1, -60)), mpf_add(fone, from_man_exp(1, -60)))


def _half_turns(x: Mpf) -> tuple[int, int]:
    """Integers n <= m with floor(x/pi + 1/2) among n..m: the pieces between odd multiples of pi/2 that x may be in."""
    prec = max(magnitude(x) if x[1] else 0, 0) + 64
    turns = multiply((x, x), reciprocal(inflate(mpf_pi(prec + GUARD), prec), prec), prec) if x[1] else (fzero, fzero)
    half = from_man_exp(1, -1)
    return int(to_int(mpf_add(turns[0], half), "f")), int(to_int(mpf_add(turns[1], half), "f"))
