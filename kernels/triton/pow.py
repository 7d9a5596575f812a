"""pow(x, y).

float32 and half types: 2^(y log2|x|) in float64, rounded once to float32. log2 is e + z p(z^2) with
z = (m - 1)/(m + 1), relative error below 2^-50; y log2|x| stays below 150 where the result is finite, so its
absolute error is below 2^-42 and the result's 2^-18 of a float32 ULP: expected below 0.5001 ULP, subnormal
results included. A scalar base or exponent enters as its exact double. Specials as in C23 F.10.4.4.
float64: libdevice (CUDA) or ocml (ROCm).
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice

from verify.kernels.triton.arithmetic import constant
from verify.kernels.triton.elementwise import Device

SQRT_HALF_BITS = tl.constexpr(0x3FE6A09E667F3BCD)
ONE_BITS = tl.constexpr(0x3FF0000000000000)


@Device
def horner(p, t, COEFFICIENT: tl.constexpr):
    return tl.fma(p, t, constant(COEFFICIENT, t))


@Device
def log2_magnitude(a):
    """log2(a) of positive finite normal float64 a."""
    bits = a.to(tl.int64, bitcast=True) + (ONE_BITS - SQRT_HALF_BITS)
    e = ((bits >> 52) - 1023).to(tl.float64)
    m = ((bits & 0xFFFFFFFFFFFFF) + SQRT_HALF_BITS).to(tl.float64, bitcast=True)
    z = (m - 1.0) / (m + 1.0)
    t = z * z
    p = horner(constant(0.2429512006463568, t), t, 0.2614413108693227)
    p = horner(p, t, 0.32061648005211124)
    p = horner(p, t, 0.412198400727708)
    p = horner(p, t, 0.5770780172548694)
    p = horner(p, t, 0.9617966939243144)
    p = horner(p, t, 2.885390081777927)
    return tl.fma(z, p, e)


@Device
def exp2_double(p):
    """2^p in float64 for |p| <= 300, relative error below 2^-51."""
    k = tl.floor(p + 0.5)
    r = p - k
    v = horner(constant(7.037278476744431e-09, r), r, 1.020853789089708e-07)
    v = horner(v, r, 1.3215662838949978e-06)
    v = horner(v, r, 1.5252658116637374e-05)
    v = horner(v, r, 0.00015403529961119085)
    v = horner(v, r, 0.0013333558228561327)
    v = horner(v, r, 0.009618129108034605)
    v = horner(v, r, 0.05550410866445883)
    v = horner(v, r, 0.24022650695908768)
    v = horner(v, r, 0.6931471805599497)
    v = horner(v, r, 1.0)
    return v * ((k.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)


@Device
def pow_double(x, y):
    """x^y of float64 blocks, accurate and rounded to float32."""
    inf = float("inf")
    a = tl.abs(x)
    power = y * log2_magnitude(a)
    power = tl.where(power > -300.0, tl.where(power < 300.0, power, 300.0), -300.0)  # NaN goes to -300
    result = exp2_double(power)
    result = tl.where(a == 0.0, tl.where(y < 0.0, inf, 0.0), result)
    result = tl.where(a == inf, tl.where(y < 0.0, 0.0, inf), result)

    halved = 0.5 * y
    integer = tl.floor(y) == y
    odd = integer & (tl.floor(halved) != halved)
    result = tl.where((x < 0.0) & (a < inf) & (integer == 0), float("nan"), result)
    # Triton's -x is 0 - x, which keeps +0.
    result = tl.where(odd & (x.to(tl.int64, bitcast=True) < 0), result * -1.0, result)
    result = tl.where((a == 1.0) & (tl.abs(y) == inf), 1.0, result)
    result = tl.where((x == x) & (y == y), result, float("nan"))
    return tl.where((y == 0.0) | (x == 1.0), 1.0, result).to(tl.float32)


@Device
def pow_widened(x, y, like):
    return libdevice.pow(x, y) if like.dtype == tl.float64 else pow_double(x, y)


@Device
def pow(x, y):
    return pow_widened(x.to(tl.float64), y.to(tl.float64), x)


@Device
def pow_scalar_exponent(x, EXPONENT: tl.constexpr):
    base = x.to(tl.float64)
    return pow_widened(base, constant(EXPONENT, base), x)


@Device
def pow_scalar_base(y, BASE: tl.constexpr):
    exponent = y.to(tl.float64)
    return pow_widened(constant(BASE, exponent), exponent, y)


@Device
def pow_libdevice(x, y):
    return libdevice.pow(x, y)


@Device
def pow_libdevice_scalar_exponent(x, EXPONENT: tl.constexpr):
    return libdevice.pow(x, constant(EXPONENT, x))


@Device
def pow_libdevice_scalar_base(y, BASE: tl.constexpr):
    return libdevice.pow(constant(BASE, y), y)


OPERATIONS = {
    ("triton", "tt"): pow,
    ("triton", "ts"): pow_scalar_exponent,
    ("triton", "st"): pow_scalar_base,
    ("triton-libdevice", "tt"): pow_libdevice,
    ("triton-libdevice", "ts"): pow_libdevice_scalar_exponent,
    ("triton-libdevice", "st"): pow_libdevice_scalar_base,
}
