"""sub(a, b, alpha) = a - alpha * b: one FMA, so one rounding."""

from __future__ import annotations

import triton.language as tl

from verify.kernels.triton.arithmetic import constant
from verify.kernels.triton.elementwise import Device


@Device
def sub(a, b):
    return a - b


@Device
def sub_scaled(a, b, ALPHA: tl.constexpr):
    return tl.fma(constant(-ALPHA, b), b, a)


OPERATIONS = {("triton", "tt"): sub, ("triton", "tts"): sub_scaled}
