"""sigmoid(x) = 1 / (1 + exp(-x)), as t / (1 + t) with t = exp(x) for x < 0: neither overflow nor cancellation.

float32 (and half types through it): t, 1 + t and the quotient are unevaluated pairs, t good to 2^-29.3 and with it
the quotient; the power of two is applied last: below 1/2 + 2^-5 ULP in normal range. Subnormal results are rounded
twice: below 1 ULP.
float64: the same with libdevice's exp (ocml's on ROCm), an IEEE division and no pairs: below 3 ULP.
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice

from verify.kernels.triton.arithmetic import exp_parts, fast_two_sum, power_of_two, quotient, scale
from verify.kernels.triton.elementwise import Device


@Device
def sigmoid_double(x):
    t = libdevice.exp(-tl.abs(x))
    return tl.where(x < 0, t, 1.0) / (1.0 + t)


@Device
def sigmoid_single(x):
    a = tl.abs(x)
    k, high, low = exp_parts(tl.where(a < 105.0, -a, -105.0))
    factor = power_of_two(tl.maximum(k, -100))  # below 2^-100, t does not reach 1 + t
    t = high * factor
    denominator, denominator_low = fast_two_sum(1.0, t)
    denominator_low += low * factor
    negative = x < 0
    q, q_low = quotient(tl.where(negative, high, 1.0), tl.where(negative, low, 0.0), denominator, denominator_low)
    result = scale(q + q_low, tl.where(negative, k, 0))
    return tl.where(x == x, result, x)


@Device
def sigmoid(x):
    return sigmoid_double(x) if x.dtype == tl.float64 else sigmoid_single(x)


OPERATIONS = {("triton", "t"): sigmoid}
