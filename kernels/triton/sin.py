"""sin(x): libdevice (CUDA) or ocml (ROCm), in float32 for half types."""

from __future__ import annotations

from triton.language.extra import libdevice

from verify.kernels.triton.elementwise import Device


@Device
def sin(x):
    return libdevice.sin(x)


OPERATIONS = {("triton", "t"): sin}
