"""log(x).

float32 (and half types through it): x = 2^e m with m in [2/3, 4/3), f = m - 1 exact, and
log(m) = f - f^2/2 + (f^3/2) p(f), p minimax of degree 9 (relative error 2^-32.9). f - f^2/2 and e ln 2 are exact as
pairs; what is rounded is (f^3/2) p < 0.0168: the cube 2^-29.9, p 2^-30.5 and their product 2^-30, at the worst place, f
near -1/3, and less at 1/3, where the result is smallest. In all below 0.1 ULP before the last rounding, so below 0.6
ULP. Subnormal arguments are scaled, never flushed.
float64: libdevice (CUDA) or ocml (ROCm).
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice

from verify.kernels.triton.arithmetic import fast_two_sum
from verify.kernels.triton.elementwise import Device

#: ln 2 in two parts, the first of 16 bits: e * LN2_HIGH is exact for |e| < 2^8.
LN2_HIGH = tl.constexpr(0.693145751953125)
LN2_LOW = tl.constexpr(1.428606765330187e-06)
TWO_THIRDS_BITS = tl.constexpr(0x3F2AAAAB)
ONE_BITS = tl.constexpr(0x3F800000)


@Device
def log_parts(x):
    """e, main, cube and rest with log(x) = e ln 2 + main + cube + rest for positive finite x, main nearly m - 1."""
    subnormal = x < 1.1754943508222875e-38
    bits = tl.where(subnormal, x * 8388608.0, x).to(tl.int32, bitcast=True) + (ONE_BITS - TWO_THIRDS_BITS)
    e = (bits >> 23) - 127 - tl.where(subnormal, 23, 0)
    f = ((bits & 0x7FFFFF) + TWO_THIRDS_BITS).to(tl.float32, bitcast=True) - 1.0

    half_f = 0.5 * f
    square = f * half_f
    square_low = tl.fma(f, half_f, -square)
    p = tl.fma(f, -0.23359618, 0.24220163)
    p = tl.fma(p, f, -0.18969145)
    p = tl.fma(p, f, 0.21450849)
    p = tl.fma(p, f, -0.25072306)
    p = tl.fma(p, f, 0.2861454)
    p = tl.fma(p, f, -0.3333102)
    p = tl.fma(p, f, 0.39998975)
    p = tl.fma(p, f, -0.50000024)
    p = tl.fma(p, f, 0.66666675)

    main, main_low = fast_two_sum(f, -square)
    # The square's own error enters the cube as well: -square_low (1 - f p).
    return e.to(tl.float32), main, square * f * p, tl.fma(square_low, tl.fma(f, p, -1.0), main_low)


@Device
def log_special(x, result):
    """`result`, but of inf and NaN themselves, of 0 -inf, and NaN below."""
    result = tl.where(x < float("inf"), result, x)
    result = tl.where(x < 0, float("nan"), result)
    return tl.where(x == 0, float("-inf"), result)


@Device
def log_single(x):
    exponent, main, cube, rest = log_parts(x)
    high, carry = fast_two_sum(exponent * LN2_HIGH, main)
    high, low = fast_two_sum(high, cube)
    low += carry + rest
    return log_special(x, high + tl.fma(exponent, LN2_LOW, low))


@Device
def log(x):
    return libdevice.log(x) if x.dtype == tl.float64 else log_single(x)


@Device
def log_libdevice(x):
    return libdevice.log(x)


@Device
def log_tlmath(x):
    return tl.math.log(x)


OPERATIONS = {
    ("triton", "t"): log,
    ("triton-libdevice", "t"): log_libdevice,
    ("triton-tlmath", "t"): log_tlmath,
}
