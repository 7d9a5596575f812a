"""rsqrt(x) = 1 / sqrt(x): two correctly rounded operations, then one Newton step on the exact residual.

y = 1/sqrt(x) is off by up to 1.5 ULP; y + y/2 (1 - x y^2), with x y^2 from FMAs, leaves the last
rounding and about 2^-22 of an ULP.
"""

from __future__ import annotations

import triton.language as tl

from verify.kernels.triton.arithmetic import constant, divide, square_root
from verify.kernels.triton.elementwise import Device


@Device
def rsqrt(x):
    one = constant(1.0, x)
    y = divide(one, square_root(x))
    product = x * y
    product_low = tl.fma(x, y, -product)
    residual = tl.fma(-product, y, one) - product_low * y
    refined = tl.fma(0.5 * y, residual, y)
    return tl.where((x > 0) & (y > 0), refined, y)  # x = inf gives y = 0, x = 0 gives y = inf


OPERATIONS = {("triton", "t"): rsqrt}
