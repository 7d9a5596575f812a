"""Which Triton lowerings each kernel has, by name, without importing triton.

A file `<kernel>.py` beside this one holds `OPERATIONS`: (implementation, pattern) -> device function. The pattern
has one letter an input, `t` for a tensor and `s` for a scalar; a device function takes its tensors first.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Compile options to vary for library functions: suffix of the lowering's name -> the backend's variant.
VARIANTS: Mapping[str, str] = {"": "default", "-nofuse": "nofuse", "-noftz": "noftz", "-toolkit": "toolkit"}

#: Implementations beside the hand-written `triton`, for kernels that Triton's libraries offer as a function.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "exp": ("triton-libdevice", "triton-tlmath"),
    "log": ("triton-libdevice", "triton-tlmath"),
    "pow": ("triton-libdevice", "triton-tlmath"),
}

#: Those that a reader would look for in vain.
ABSENT: Mapping[tuple[str, str], str] = {
    ("pow", "triton-tlmath"): "triton.language.math has no pow; libdevice alone does",
}

#: (kernel, implementation) whose float32 code obeys NVVM's reflected ftz flag; tl.math.exp is plain ex2.approx.f32.
REFLECTS_FTZ = frozenset(
    {("exp", "triton-libdevice"), ("log", "triton-libdevice"), ("log", "triton-tlmath"), ("pow", "triton-libdevice")}
)

#: Kernels that Inductor's Triton code computes by such a function (torch 2.11 to 2.13, _inductor/codegen/triton.py).
INDUCTOR_REFLECTS_FTZ = frozenset({"atan", "erf", "exp", "exp2", "log", "log2", "pow", "rsqrt", "sin", "tanh"})
