"""lerp(a, b, w) = a + w (b - a), from the nearer end point.

|w| < 1/2: fma(w, b - a, a), else fma(w - 1, b - a, b): w = 0 gives a and w = 1 gives b exactly
(for finite b - a), and w - 1 is exact for w in [1/2, 2] (Sterbenz). A scalar weight is
shifted in double and rounded once, so that 0.9999 does not lose 11 bits of 1 - w.
"""

from __future__ import annotations

import triton.language as tl

from verify.kernels.triton.arithmetic import constant
from verify.kernels.triton.elementwise import Device


@Device
def lerp(a, b, w):
    difference = b - a
    near = tl.abs(w) < 0.5
    return tl.fma(tl.where(near, w, w - 1.0), difference, tl.where(near, a, b))


@Device
def lerp_scalar(a, b, WEIGHT: tl.constexpr):
    if WEIGHT < 0.5 and WEIGHT > -0.5:
        return tl.fma(constant(WEIGHT, a), b - a, a)
    return tl.fma(constant(WEIGHT - 1.0, a), b - a, b)


OPERATIONS = {("triton", "ttt"): lerp, ("triton", "tts"): lerp_scalar}
