"""log2(x).

float32 (and half types through it): x = 2^e m and log(m) as in `log`, here as a pair, times log2 e as a pair, plus e,
which is exact. log(m) is good to 2^-30 of the result of `log`, the pairs to 2^-45: below 0.1 ULP before the last
rounding, so below 0.6 ULP, and exact for powers of two. float64: libdevice (CUDA) or ocml (ROCm).
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice

from verify.kernels.triton.arithmetic import fast_two_sum
from verify.kernels.triton.elementwise import Device
from verify.kernels.triton.log import log_parts, log_special

#: log2 e in two parts.
LOG2_E_HIGH = tl.constexpr(1.44269502162933349609375)
LOG2_E_LOW = tl.constexpr(1.9259629911266175e-08)


@Device
def log2_single(x):
    exponent, main, cube, rest = log_parts(x)
    high, low = fast_two_sum(main, cube)
    low += rest
    product = high * LOG2_E_HIGH
    product_low = tl.fma(high, LOG2_E_HIGH, -product) + tl.fma(high, LOG2_E_LOW, low * LOG2_E_HIGH)
    result, carry = fast_two_sum(exponent, product)  # the exponent is 0, or the larger one
    return log_special(x, result + (carry + product_low))


@Device
def log2(x):
    return libdevice.log2(x) if x.dtype == tl.float64 else log2_single(x)


OPERATIONS = {("triton", "t"): log2}
