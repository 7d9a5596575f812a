"""atan(x).

float32 and half types: in float64, rounded once to float32. |x| is taken to z, |z| <= tan(pi/8): |x| itself,
(|x| - 1)/(|x| + 1) with pi/4 added, or -1/|x| with pi/2 added. atan(z) = z p(z^2), p near minimax of degree 8 (relative
error 2^-45.0); the roundings of float64 leave the sum good to 2^-44, at most 2^-20 of a float32 ULP: below 0.5001 ULP.
float64: libdevice (CUDA) or ocml (ROCm).
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice

from verify.kernels.triton.arithmetic import constant
from verify.kernels.triton.elementwise import Device

TAN_1 = tl.constexpr(0.41421356237309503)  # of pi/8
TAN_3 = tl.constexpr(2.414213562373095)  # of 3 pi/8
QUARTER_PI = tl.constexpr(0.7853981633974483)
HALF_PI = tl.constexpr(1.5707963267948966)


@Device
def atan_widened(x):
    a = tl.abs(x)
    large, middle = a > TAN_3, a > TAN_1
    above = tl.where(large, -1.0, tl.where(middle, a - 1.0, a))
    below = tl.where(large, a, tl.where(middle, a + 1.0, 1.0))
    z = above / below
    offset = tl.where(large, constant(HALF_PI, z), tl.where(middle, constant(QUARTER_PI, z), 0.0))
    t = z * z
    p = constant(0.030662440370424447, t)
    p = p * t + constant(-0.05874505621307831, t)
    p = p * t + constant(0.07563703551915192, t)
    p = p * t + constant(-0.09078392072943424, t)
    p = p * t + constant(0.11110385046148014, t)
    p = p * t + constant(-0.14285690423839287, t)
    p = p * t + constant(0.19999999604891977, t)
    p = p * t + constant(-0.33333333330803444, t)
    p = p * t + constant(0.9999999999999732, t)
    result = offset + z * p
    return tl.where(x == 0.0, x, tl.where(x < 0.0, -result, result))


@Device
def atan(x):
    return libdevice.atan(x) if x.dtype == tl.float64 else atan_widened(x.to(tl.float64)).to(tl.float32)


OPERATIONS = {("triton", "t"): atan}
