"""add(a, b, alpha) = a + alpha * b: one FMA, so one rounding.

`alpha` is rounded once to the compute dtype (float32 for half types), as CUDA eager does.
"""

from __future__ import annotations

import triton.language as tl

from verify.kernels.triton.arithmetic import constant
from verify.kernels.triton.elementwise import Device


@Device
def add(a, b):
    return a + b


@Device
def add_scaled(a, b, ALPHA: tl.constexpr):
    return tl.fma(constant(ALPHA, b), b, a)


OPERATIONS = {("triton", "tt"): add, ("triton", "tts"): add_scaled}
