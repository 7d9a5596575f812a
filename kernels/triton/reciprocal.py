"""reciprocal(x) = 1 / x, correctly rounded in float32 and float64; half types round float32 once more."""

from __future__ import annotations

from verify.kernels.triton.arithmetic import constant, divide
from verify.kernels.triton.elementwise import Device


@Device
def reciprocal(x):
    return divide(constant(1.0, x), x)


OPERATIONS = {("triton", "t"): reciprocal}
