"""erf(x): libdevice (CUDA) or ocml (ROCm), in float32 for half types."""

from __future__ import annotations

from triton.language.extra import libdevice

from verify.kernels.triton.elementwise import Device


@Device
def erf(x):
    return libdevice.erf(x)


OPERATIONS = {("triton", "t"): erf}
