"""addcmul(a, b, c, value) = a + value * b * c.

fma(b, c, a) where value is 1: one rounding. Otherwise fma(value, rn(b * c), a): for half types
the product is exact in float32 (2 * 11 bits), so one float32 rounding there too.
"""

from __future__ import annotations

import triton.language as tl

from verify.kernels.triton.arithmetic import constant
from verify.kernels.triton.elementwise import Device


@Device
def addcmul(a, b, c):
    return tl.fma(b, c, a)


@Device
def addcmul_value(a, b, c, VALUE: tl.constexpr):
    if VALUE == 1.0:
        return tl.fma(b, c, a)
    return tl.fma(constant(VALUE, a), b * c, a)


OPERATIONS = {("triton", "ttt"): addcmul, ("triton", "ttts"): addcmul_value}
