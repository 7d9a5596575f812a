"""exp(x).

float32 (and half types through it): Cody-Waite reduction and a polynomial, summed as an unevaluated pair
(`arithmetic.exp_parts`: 2^-29.3 before the last rounding): below 1/2 + 2^-5 ULP in normal range. Subnormal results are
rounded twice, below 1 ULP, and never flushed.
float64: libdevice (CUDA) or ocml (ROCm).
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice

from verify.kernels.triton.arithmetic import exp_parts, scale
from verify.kernels.triton.elementwise import Device


@Device
def exp_single(x):
    # Beyond these the result is 0 or inf; the comparisons send NaN to the lower limit.
    bounded = tl.where(x > -105.0, tl.where(x < 89.0, x, 89.0), -105.0)
    k, high, low = exp_parts(bounded)
    return tl.where(x == x, scale(high + low, k), x)


@Device
def exp(x):
    return libdevice.exp(x) if x.dtype == tl.float64 else exp_single(x)


@Device
def exp_libdevice(x):
    return libdevice.exp(x)


@Device
def exp_tlmath(x):
    return tl.math.exp(x)


OPERATIONS = {
    ("triton", "t"): exp,
    ("triton-libdevice", "t"): exp_libdevice,
    ("triton-tlmath", "t"): exp_tlmath,
}
