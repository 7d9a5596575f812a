"""sqrt(x), correctly rounded in float32 and float64; half types round float32 once more."""

from __future__ import annotations

from verify.kernels.triton.arithmetic import square_root
from verify.kernels.triton.elementwise import Device


@Device
def sqrt(x):
    return square_root(x)


OPERATIONS = {("triton", "t"): sqrt}
