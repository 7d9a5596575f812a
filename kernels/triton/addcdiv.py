"""addcdiv(a, b, c, value) = a + value * b / c: a correctly rounded quotient, then one FMA."""

from __future__ import annotations

import triton.language as tl

from verify.kernels.triton.arithmetic import constant, divide
from verify.kernels.triton.elementwise import Device


@Device
def addcdiv(a, b, c):
    return a + divide(b, c)


@Device
def addcdiv_value(a, b, c, VALUE: tl.constexpr):
    return tl.fma(constant(VALUE, a), divide(b, c), a)


OPERATIONS = {("triton", "ttt"): addcdiv, ("triton", "ttts"): addcdiv_value}
