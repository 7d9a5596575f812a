"""The CPU. `ATEN_CPU_CAPABILITY` (default, avx2, avx512) selects code with different roundings."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from verify import native
from verify.backends import CK_TEMPLATES, CUTLASS_TEMPLATES, NO_METAL, TRITON_CODE, cores, software, threads
from verify.facts import environment

name = "cpu"
library = "glibc"
device = "cpu"
check_device = device
elements = 1 << 22
portion = 1 << 20
launches: int | None = None
inert_options = {
    "eager_numerics.division_rounding": TRITON_CODE,
    "eager_numerics.disable_ftz": TRITON_CODE,
    "eager_numerics.use_pytorch_libdevice": TRITON_CODE,
    "use_fast_math": TRITON_CODE,
    "cutlass.use_fast_math": CUTLASS_TEMPLATES,
    "rocm.use_fast_math": CK_TEMPLATES,
    "rocm.flush_denormals": CK_TEMPLATES,
}
usual_options: Mapping[str, Any] = {}

#: glibc's mallopt(3): malloc fills what it hands out with the complement of this byte.
M_PERTURB = -6

#: Bytes that malloc always maps by themselves, and does not keep (DEFAULT_MMAP_THRESHOLD_MAX is 2^25).
SORTING = 1 << 26


def unavailable() -> str | None:
    return None


def dtype_unavailable(dtype: str) -> str | None:
    return None


def capability() -> str:
    """Which of ATen's kernels run, and for which instruction set Inductor generates code: ATEN_CPU_CAPABILITY."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def fingerprint() -> dict[str, Any]:
    import torch

    built = torch.__config__.show()
    return {
        "backend": name,
        "chip": _model(),
        "capability": capability(),
        "threads": threads(),
        "flush_denormal": bool(torch.tensor(2.0**-149) * 1 == 0),
        **software((*environment.OF_CPU, *(environment.OF_OPENBLAS if "BLAS_INFO=open" in built else ()))),
    }


def processes() -> list[dict[str, str]]:
    return [{} for _ in range(cores())]


def resources() -> dict[str, float]:
    return {"CPU": 1.0}


def synchronize() -> None:
    pass


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return libc


@contextmanager
def poisoned(size: int, pattern: int) -> Iterator[None]:
    """By mallopt where the C library is glibc; elsewhere by freeing a filled block of that size."""
    import torch

    libc = _libc()
    if not hasattr(libc, "mallopt"):
        torch.full((size,), pattern, dtype=torch.uint8)
        yield
        return
    # mallopt leaves the chunks of its fast bins unsorted, and a small one that malloc meets there is not filled: an
    # allocation that none of them fits sorts them first.
    libc.mallopt(M_PERTURB, 0)
    libc.free(libc.malloc(SORTING))
    libc.mallopt(M_PERTURB, pattern ^ 0xFF)
    try:
        yield
    finally:
        libc.mallopt(M_PERTURB, 0)


def inductor_unavailable() -> str | None:
    """A process that only plans has no other use for Inductor's import: that there is a compiler is kept."""
    import torch

    why = ""

    def found() -> bool:
        nonlocal why
        from torch._inductor import cpp_builder, exc

        try:
            cpp_builder.get_cpp_compiler()
        except exc.InvalidCxxCompiler as error:
            why = f"Inductor finds no C++ compiler: {str(error).splitlines()[0]}"
        return not why

    given = " ".join(f"{name}={os.environ.get(name)}" for name in ("CXX", "PATH"))
    known = native.confirmed(f"torch {torch.__version__} {torch.__file__}: Inductor's compiler of {given}", found)
    return None if known else why


def triton_options(variant: str) -> Mapping[str, Any] | str:
    if variant == "interpreter":
        return {}
    return "Triton compiles for GPUs only; on the CPU see triton-interpreter"


def metal_compiler() -> Callable[[str], Any] | str:
    return NO_METAL


def flushes(variant: str) -> bool:
    return False


def _model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
