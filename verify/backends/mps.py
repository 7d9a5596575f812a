"""Apple GPUs through Metal: torch's own kernels, Inductor's, and those of `kernels/metal/`.

Metal has no float64, so inputs are made and outputs judged on the host. No Apple GPU was at hand: what is said of torch
and of Metal here is read in torch's sources and in Apple's Metal Shading Language Specification (MSL), version 4.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from verify.backends import (
    CK_TEMPLATES,
    CPP_CODE,
    CUTLASS_TEMPLATES,
    TRITON_CODE,
    answer,
    poisoned_pool,
    software,
    subnormals,
)
from verify.facts import environment

name = "mps"
library = "Apple"
device = "mps"
check_device = "cpu"
elements = 1 << 22
portion = 1 << 20
launches: int | None = None
inert_options = {
    "eager_numerics.division_rounding": TRITON_CODE,
    "eager_numerics.disable_ftz": TRITON_CODE,
    "eager_numerics.use_pytorch_libdevice": TRITON_CODE,
    "use_fast_math": TRITON_CODE,
    "cpp.enable_floating_point_contract_flag": CPP_CODE,
    "cpp.enable_unsafe_math_opt_flag": CPP_CODE,
    "cutlass.use_fast_math": CUTLASS_TEMPLATES,
    "rocm.use_fast_math": CK_TEMPLATES,
    "rocm.flush_denormals": CK_TEMPLATES,
}
usual_options: Mapping[str, Any] = {}

DTYPES = ("float16", "bfloat16", "float32")
#: Since when Metal's compiler knows `#pragma METAL fp math_mode` (MSL 1.6.3: Xcode 16, the SDK of macOS 15).
PRAGMAS_SINCE = (15, 0)

_VERSION = "kernel void version(device int* out, uint i [[thread_position_in_grid]]) { out[i] = __METAL_VERSION__; }"


def unavailable() -> str | None:
    import torch

    if not torch.backends.mps.is_built():
        return f"torch {torch.__version__} is built without MPS"
    if not torch.backends.mps.is_available():
        return "torch finds no Metal device"
    return None


def dtype_unavailable(dtype: str) -> str | None:
    return None if dtype in DTYPES else f"Metal has no {dtype} (MSL 2.1)"


def capability() -> str:
    import torch

    return f"{torch.backends.mps.get_core_count()} GPU cores"


def fingerprint() -> dict[str, Any]:
    """`denormals` and `rounding` are measured on torch's own kernels: MSL 8.1 and 8.2 leave both to the device."""
    import torch

    return {
        "backend": name,
        "chip": torch.backends.mps.get_name(),
        "capability": capability(),
        "processor": answer("sysctl", "-n", "machdep.cpu.brand_string"),  # the GPU is a part of it
        "macos": platform.mac_ver()[0],
        "metal": _metal_version(),
        "denormals": subnormals(device, DTYPES),
        "rounding": _rounding(),
        **software(environment.OF_MPS),
    }


def processes() -> list[dict[str, str]]:
    return [{}]


def resources() -> dict[str, float]:
    return {"mps": 1.0}


def synchronize() -> None:
    import torch

    torch.mps.synchronize()


def poisoned(size: int, pattern: int) -> AbstractContextManager[None]:
    return poisoned_pool(device, size, pattern, synchronize)


def inductor_unavailable() -> str | None:
    from torch._inductor.codegen.common import get_scheduling_for_device, init_backend_registration

    init_backend_registration()
    return None if get_scheduling_for_device(device) else "this torch's Inductor generates no Metal code"


def triton_options(variant: str) -> Mapping[str, Any] | str:
    return "Triton has no Metal backend; see the lowering metal"


def metal_compiler() -> Callable[[str], Any] | str:
    """`torch.mps.compile_shader` takes no math mode: the source chooses its own, by pragma."""
    import torch

    if not torch.backends.mps.is_macos_or_newer(*PRAGMAS_SINCE):
        return f"the math mode of Metal source is set by pragma, which needs macOS {PRAGMAS_SINCE[0]}"
    compiler: Callable[[str], Any] = torch.mps.compile_shader
    return compiler


def flushes(variant: str) -> bool:
    """Subnormal operands and results may be flushed to zero, under safe math too (MSL 8.1)."""
    return variant == "arithmetic"


def _metal_version() -> str:
    """The language version that torch compiles for, as 'major.minor'."""
    import torch

    out = torch.zeros(1, dtype=torch.int32, device=device)
    torch.mps.compile_shader(_VERSION).version(out)
    number = int(out.cpu())
    return f"{number // 100}.{number % 100 // 10}"


def _rounding() -> str:
    """The direction in which float32 sums are rounded: 1 + 2^-24, a tie; 1 + 3 2^-25, above it; 1 + 3 2^-24, a tie."""
    import torch

    addends = torch.tensor([2.0**-24, 3 * 2.0**-25, 3 * 2.0**-24])
    steps = ((addends.to(device) + 1).cpu().double() - 1) * 2**23
    match steps.tolist():
        case [0.0, 1.0, 2.0]:
            return "to nearest, ties to even"
        case [0.0, 0.0, 1.0]:
            return "toward zero"
        case other:
            return f"unknown: {other} steps"
