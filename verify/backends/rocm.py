"""AMD GPUs through ROCm: torch built with HIP, which answers to `torch.cuda` and to the device string 'cuda'.

No AMD GPU was at hand: what is said of torch, Inductor and Triton here is read in their sources and in the code that
they compile for gfx942 and gfx90a (`tests/test_backends.py`, `tests/test_triton.py`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from verify.backends import (
    CK_TEMPLATES,
    CPP_CODE,
    CUTLASS_TEMPLATES,
    NO_METAL,
    NVIDIA_CODE,
    UNTUNED,
    installed,
    on_gpus,
    poisoned_pool,
    share_gpu,
    software,
    subnormals,
)

name = "rocm"
library = "AMD"
device = "cuda"
check_device = device
elements = 1 << 24
portion = 1 << 24
launches: int | None = None
inert_options = {
    "eager_numerics.disable_ftz": f"{NVIDIA_CODE}; Triton's code for AMD GPUs keeps subnormals by default",
    "cpp.enable_floating_point_contract_flag": CPP_CODE,
    "cpp.enable_unsafe_math_opt_flag": CPP_CODE,
    "cutlass.use_fast_math": CUTLASS_TEMPLATES,
    "rocm.use_fast_math": f"{CK_TEMPLATES}, of which no kernel here makes use",
    "rocm.flush_denormals": f"{CK_TEMPLATES}, of which no kernel here makes use",
}
usual_options = UNTUNED

DTYPES = ("float16", "bfloat16", "float32", "float64")
#: The device libraries that exp, log and pow come from, under a ROCm installation.
OCML = "amdgcn/bitcode/ocml.bc"
DRIVER = Path("/sys/module/amdgpu/version")


def unavailable() -> str | None:
    import torch

    if torch.version.hip is None:
        kind = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for the CPU alone"
        return f"torch {torch.__version__} is built {kind}, not for ROCm"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} is built for ROCm, but finds no AMD GPU"
    return None


def dtype_unavailable(dtype: str) -> str | None:
    return None


def capability() -> str:
    """The architecture with the features that code is compiled for, such as gfx942:sramecc+:xnack-."""
    import torch

    architecture: str = torch.cuda.get_device_properties().gcnArchName
    return architecture


def fingerprint() -> dict[str, Any]:
    """`denormals` is measured on torch's own product; Triton's kernels state their mode in their own code."""
    import torch

    installed = installed_ocml()
    return {
        "backend": name,
        "chip": torch.cuda.get_device_name(),
        "capability": capability(),
        "wave_size": torch.cuda.get_device_properties().warp_size,
        "denormals": subnormals(device, DTYPES),
        "driver": DRIVER.read_text().strip() if DRIVER.exists() else None,
        "hip": torch.version.hip,
        "rocm": getattr(torch.version, "rocm", None),  # torch 2.13
        "triton_ocml": triton_ocml(),
        "rocm_ocml": str(installed) if installed else None,
        "rocm_ocml_digest": _digest(installed),
        **software(),
    }


def processes() -> list[dict[str, str]]:
    return on_gpus("HIP_VISIBLE_DEVICES")


def resources() -> dict[str, float]:
    return {"CPU": 1.0, "rocm": 1 / share_gpu()}


def synchronize() -> None:
    import torch

    torch.cuda.synchronize()


def poisoned(size: int, pattern: int) -> AbstractContextManager[None]:
    return poisoned_pool(device, size, pattern)


def inductor_unavailable() -> str | None:
    return None if importlib.util.find_spec("triton") else "Inductor needs triton, which is not installed"


def triton_options(variant: str) -> Mapping[str, Any] | str:
    """Of HIPOptions (triton 3.6, 3.7: backends/amd/compiler.py). `libdevice` is OCML there, always the bundled one."""
    default = {"enable_fp_fusion": True, "allow_flush_denorm": False}
    match variant:
        case "default":
            return default
        case "own" | "nofuse":
            return default | {"enable_fp_fusion": False}
        case "noftz":
            return "Triton keeps subnormals on AMD GPUs anyway: allow_flush_denorm is off by default"
        case "toolkit":
            return "Triton links its bundled ocml.bc on AMD GPUs, whatever extern_libs names"
        case _:
            return "the Triton interpreter runs on the CPU; kernels are compiled here"


def metal_compiler() -> Callable[[str], Any] | str:
    return NO_METAL


def flushes(variant: str) -> bool:
    """Nothing is declared to flush: the kernels' float_denorm_mode is 3, tl.math.exp scales around v_exp_f32, and
    hipcc flushes only under -fgpu-flush-denormals-to-zero."""
    return False


@functools.cache
def installed_ocml() -> Path | None:
    """ocml.bc of the ROCm installation, which eager kernels were built with or like; None where there is none."""
    return installed(OCML, ("ROCM_HOME", "ROCM_PATH"), "hipcc", "/opt/rocm")


def triton_ocml() -> str | None:
    """What tells the ocml.bc of Triton's wheel from others."""
    return _digest(_bundled_ocml())


def _bundled_ocml() -> Path | None:
    if importlib.util.find_spec("triton") is None:
        return None
    import triton.backends.amd

    path = Path(triton.backends.amd.__path__[0]) / "lib" / "ocml.bc"
    return path if path.is_file() else None


def _digest(path: Path | None) -> str | None:
    """The library's version where its file has none: the first 64 bits of its SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path else None
