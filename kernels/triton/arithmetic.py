"""Device functions that several Triton kernels share: constants, IEEE division and square root,
exp as an unevaluated sum, a compensated quotient.

Kernels built on these are compiled with `enable_fp_fusion=False`: the error terms below vanish
if the compiler contracts a product that they account for. `tl.fma` stays fused.
"""

from __future__ import annotations

import triton.language as tl

from verify.kernels.triton.elementwise import Device

LOG2_E = tl.constexpr(1.4426950408889634)
#: ln 2 = LN2 + LN2_TAIL, LN2 = fl32(ln 2): k * LN2 is exact inside an fma, and so is the reduced argument.
LN2 = tl.constexpr(0.693147182464599609375)
LN2_TAIL = tl.constexpr(-1.904654299957768e-09)
SIGN_BIT = tl.constexpr(-(2**31))


@Device
def constant(VALUE: tl.constexpr, like):
    """VALUE rounded once to the dtype of `like`; a bare float literal in `tl.fma` would be float32."""
    return tl.full(like.shape, VALUE, like.dtype)


@Device
def divide(a, b):
    """a / b, correctly rounded (div.rn); `/` on float32 is div.full, 2 ULP (PTX ISA 9.7.3.8)."""
    return tl.div_rn(a, b) if a.dtype == tl.float32 else a / b


@Device
def square_root(x):
    """sqrt(x), correctly rounded (sqrt.rn)."""
    return tl.sqrt_rn(x) if x.dtype == tl.float32 else tl.sqrt(x)


@Device
def fast_two_sum(a, b):
    """s + t = a + b exactly, s = RN(a + b), where |a| >= |b| (Dekker 1971)."""
    s = a + b
    t = b - (s - a)
    return s, t


@Device
def power_of_two(k):
    """2^k as float32, k an int32 in [-126, 127]."""
    return ((k + 127) << 23).to(tl.float32, bitcast=True)


@Device
def scale(x, k):
    """x * 2^k for float32 x near 1 and -252 <= k <= 254: two exact factors, one rounding."""
    half = k >> 1
    return x * power_of_two(half) * power_of_two(k - half)


@Device
def exp_parts(x):
    """k, high, low with exp(x) = 2^k (high + low)(1 + d), |d| < 2^-29.3, for float32 x in [-105, 89].

    Cody-Waite: x = k ln 2 + r + r_low, |r| < 0.3467, the reduced argument good to 2^-47. Then
    exp(r) = 1 + r + r^2/2 + r^3 p(r), p minimax of degree 4 (error 2^-33.2). 1 + r + r^2/2 is exact as a sum of pairs,
    so that what is rounded is r^3 p < 0.0076: its four operations leave 2^-30.4, the sum of the low parts 2^-32. The
    sum of all is below 2^-29.9, of a value above 0.7.
    """
    k = tl.floor(tl.fma(x, LOG2_E, 0.5))
    leading = tl.fma(k, -LN2, x)  # exact: both terms are multiples of 2^-25 and |r| < 1/2
    tail = k * -LN2_TAIL
    r, r_low = fast_two_sum(leading, tail)
    high, low = exp_small(r, r_low)
    return k.to(tl.int32), high, low


@Device
def exp_small(r, r_low):
    """high, low with exp(r + r_low) = (high + low)(1 + d), |d| < 2^-29.9, for |r| < 0.3467."""
    square = r * r
    square_low = tl.fma(r, r, -square)
    p = tl.fma(r, 0.0001991326, 0.0013935448)
    p = tl.fma(p, r, 0.008333275)
    p = tl.fma(p, r, 0.04166646)
    p = tl.fma(p, r, 0.16666667)
    high, low = fast_two_sum(1.0, r)
    high, carry = fast_two_sum(high, 0.5 * square)
    low += carry + tl.fma(0.5, square_low, r_low * high)
    return fast_two_sum(high, tl.fma(square * r, p, low))


@Device
def quotient(a, a_low, b, b_low):
    """(a + a_low) / (b + b_low) as high + low, to about 2^-45; one division, one residual."""
    inverse = tl.div_rn(1.0, b)
    high = a * inverse
    residual = tl.fma(-high, b, a) + (a_low - high * b_low)
    return high, residual * inverse
