"""tanh(x).

float32 (and half types through it): |x| < 1/4: x + x^3 p(x^2), p minimax of degree 3 (error 2^-35.7); x^3 p takes
three roundings and is below x^2/3 of the result, so below x^2 <= 2^-4 ULP before the last rounding. Else
1 - 2t/(1 + t), t = exp(-2|x|), with t and the quotient as unevaluated pairs: t is good to 2^-29.3, the result to
2^-30.4, which is 2^-4 ULP at 1/4 and less beyond. So below 0.57 ULP. float64: libdevice (CUDA) or ocml (ROCm).
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice

from verify.kernels.triton.arithmetic import SIGN_BIT, exp_parts, fast_two_sum, power_of_two, quotient
from verify.kernels.triton.elementwise import Device


@Device
def tanh_single(x):
    a = tl.abs(x)
    square = a * a
    p = tl.fma(square, 0.02057371, -0.053901184)
    p = tl.fma(p, square, 0.13333195)
    p = tl.fma(p, square, -0.3333333)
    small = tl.fma(a * square, p, a)

    # tanh(10) rounds to 1; the comparison sends NaN to the limit.
    k, high, low = exp_parts(tl.where(a < 10.0, -2.0 * a, -20.0))
    factor = power_of_two(k)
    t = high * factor
    t_low = low * factor
    denominator, denominator_low = fast_two_sum(1.0, t)
    q, q_low = quotient(2.0 * t, 2.0 * t_low, denominator, denominator_low + t_low)
    result, result_low = fast_two_sum(1.0, -q)
    large = result + (result_low - q_low)

    magnitude = tl.where(a < 0.25, small, large)
    sign = x.to(tl.int32, bitcast=True) & SIGN_BIT
    signed = (magnitude.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
    return tl.where(x == x, signed, x)


@Device
def tanh(x):
    return libdevice.tanh(x) if x.dtype == tl.float64 else tanh_single(x)


OPERATIONS = {("triton", "t"): tanh}
