"""div(a, b) = a / b, correctly rounded, also by a scalar: no multiplication by a reciprocal.

A scalar divisor or dividend is rounded once to the compute dtype.
"""

from __future__ import annotations

import triton.language as tl

from verify.kernels.triton.arithmetic import constant, divide
from verify.kernels.triton.elementwise import Device


@Device
def div(a, b):
    return divide(a, b)


@Device
def div_by_scalar(a, DIVISOR: tl.constexpr):
    return divide(a, constant(DIVISOR, a))


@Device
def div_of_scalar(b, DIVIDEND: tl.constexpr):
    return divide(constant(DIVIDEND, b), b)


OPERATIONS = {("triton", "tt"): div, ("triton", "ts"): div_by_scalar, ("triton", "st"): div_of_scalar}
