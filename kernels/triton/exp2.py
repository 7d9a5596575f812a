"""2^x.

float32 (and half types through it): x = k + f with a whole k, f exact, and exp(f ln 2) summed as an unevaluated pair
(`arithmetic.exp_small`: 2^-29.9 before the last rounding, f ln 2 as a pair adds 2^-47): below 1/2 + 2^-5 ULP in normal
range, and exact at whole numbers. Subnormal results are rounded twice, below 1 ULP, and never flushed.
float64: libdevice (CUDA) or ocml (ROCm).
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice

from verify.kernels.triton.arithmetic import LN2, LN2_TAIL, exp_small, scale
from verify.kernels.triton.elementwise import Device


@Device
def exp2_single(x):
    # Beyond these the result is 0 or inf; the comparisons send NaN to the lower limit.
    bounded = tl.where(x > -151.0, tl.where(x < 129.0, x, 129.0), -151.0)
    k = tl.floor(bounded + 0.5)
    f = bounded - k
    r = f * LN2
    high, low = exp_small(r, tl.fma(f, LN2, -r) + f * LN2_TAIL)
    return tl.where(x == x, scale(high + low, k.to(tl.int32)), x)


@Device
def exp2(x):
    return libdevice.exp2(x) if x.dtype == tl.float64 else exp2_single(x)


OPERATIONS = {("triton", "t"): exp2}
