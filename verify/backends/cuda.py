"""NVIDIA GPUs through CUDA. torch built for ROCm answers to `torch.cuda` too, but is not this backend."""

from __future__ import annotations

import functools
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
    UNTUNED,
    answer,
    installed,
    on_gpus,
    poisoned_pool,
    share_gpu,
    software,
)

name = "cuda"
library = "NVIDIA"
device = "cuda"
check_device = device
elements = 1 << 24
portion = 1 << 24
launches: int | None = None
inert_options = {
    "cpp.enable_floating_point_contract_flag": CPP_CODE,
    "cpp.enable_unsafe_math_opt_flag": CPP_CODE,
    "cutlass.use_fast_math": f"{CUTLASS_TEMPLATES}, of which no kernel here makes use",
    "rocm.use_fast_math": CK_TEMPLATES,
    "rocm.flush_denormals": CK_TEMPLATES,
}
usual_options = UNTUNED

LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"
DRIVER = Path("/sys/module/nvidia/version")


def unavailable() -> str | None:
    import torch

    if torch.version.hip is not None:
        return "this torch is built for ROCm, not CUDA"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    return None


def dtype_unavailable(dtype: str) -> str | None:
    return None


def capability() -> str:
    import torch

    return "sm_{}{}".format(*torch.cuda.get_device_capability())


def fingerprint() -> dict[str, Any]:
    import torch

    toolkit = toolkit_libdevice()
    return {
        "backend": name,
        "chip": torch.cuda.get_device_name(),
        "capability": capability(),
        "driver": driver(),
        "cuda": torch.version.cuda,
        "toolkit_libdevice": str(toolkit) if toolkit else None,
        **software(),
    }


def driver() -> str | None:
    """The version of the kernel's module, which nvidia-smi takes 25 ms to say."""
    try:
        return DRIVER.read_text().strip()
    except OSError:
        return answer("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0")


def processes() -> list[dict[str, str]]:
    return on_gpus("CUDA_VISIBLE_DEVICES")


def resources() -> dict[str, float]:
    return {"CPU": 1.0, "GPU": 1 / share_gpu()}


def synchronize() -> None:
    import torch

    torch.cuda.synchronize()


def poisoned(size: int, pattern: int) -> AbstractContextManager[None]:
    return poisoned_pool(device, size, pattern)


def inductor_unavailable() -> str | None:
    return None if importlib.util.find_spec("triton") else "Inductor needs triton, which is not installed"


def triton_options(variant: str) -> Mapping[str, Any] | str:
    """libdevice's path is always given: TRITON_LIBDEVICE_PATH, which Inductor may set, changes nothing here."""
    default = {"enable_fp_fusion": True, "enable_reflect_ftz": True, "extern_libs": {"libdevice": _bundled_libdevice()}}
    match variant:
        case "default":
            return default
        case "own":
            return default | {"enable_fp_fusion": False, "enable_reflect_ftz": False}
        case "nofuse":
            return default | {"enable_fp_fusion": False}
        case "noftz":
            return default | {"enable_reflect_ftz": False}
        case "toolkit":
            path = toolkit_libdevice()
            if path is None:
                return "no CUDA toolkit with libdevice.10.bc: looked at CUDA_HOME, CUDA_PATH, nvcc and /usr/local/cuda"
            return default | {"extern_libs": {"libdevice": str(path)}}
        case _:
            return "the Triton interpreter runs on the CPU; kernels are compiled here"


def metal_compiler() -> Callable[[str], Any] | str:
    return NO_METAL


def flushes(variant: str) -> bool:
    """Triton sets NVVM's reflect flag for ftz unless told otherwise (CUDAOptions.enable_reflect_ftz, triton 3.6)."""
    return variant in ("default", "nofuse", "toolkit")


@functools.cache
def toolkit_libdevice() -> Path | None:
    """libdevice.10.bc of the installed CUDA toolkit, if there is one."""
    return installed(LIBDEVICE, ("CUDA_HOME", "CUDA_PATH"), "nvcc", "/usr/local/cuda")


def _bundled_libdevice() -> str:
    import triton.backends.nvidia

    return str(Path(triton.backends.nvidia.__path__[0]) / "lib" / "libdevice.10.bc")
