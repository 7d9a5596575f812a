"""An NVIDIA GPU that is not there: Triton's lowerings are compiled for it and their PTX is executed on the CPU.

IEEE instructions are bit for bit those of the standard. Approximate ones answer as recorded on a GPU of the same
architecture (`verify/virtual/tables/`), else as if they rounded correctly; a cell names each that it used. What ptxas
contracts after PTX is not seen: where contraction is permitted, a cell names the sums that it may concern.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from verify.backends import NO_METAL, TRITON_CODE, cores, cuda, software
from verify.backends.cpu import poisoned, resources, synchronize

__all__ = ["poisoned", "resources", "synchronize"]

name = "virtual-cuda"
device = "cpu"
check_device = device
elements = 1 << 20
portion = 1 << 20
inert_options = dict.fromkeys(cuda.inert_options, TRITON_CODE)

triton_options = cuda.triton_options
flushes = cuda.flushes

#: Which architecture; `verify.virtual.compile.TARGETS` has the names.
VARIABLE = "VERIFY_VIRTUAL_CUDA"

_used: dict[str, str] = {}


def unavailable() -> str | None:
    from verify.virtual import lanes
    from verify.virtual.compile import TARGETS, Unsupported

    if importlib.util.find_spec("triton") is None:
        return "triton, which compiles for GPUs that are not there, is not installed"
    if TARGETS.get(capability(), ("", "", 0))[0] != "cuda":
        known = ", ".join(target for target, (vendor, *_) in TARGETS.items() if vendor == "cuda")
        return f"{VARIABLE}={capability()}; expected one of {known}"
    try:
        lanes.library()
    except Unsupported as why:
        return str(why)
    return None


def dtype_unavailable(dtype: str) -> str | None:
    return None


def capability() -> str:
    return os.environ.get(VARIABLE, "sm_90")


def fingerprint() -> dict[str, Any]:
    from verify.virtual import approx

    toolkit = cuda.toolkit_libdevice()
    return {
        "backend": name,
        "chip": f"virtual {capability()}",
        "capability": capability(),
        "recorded": approx.recorded_names(capability()),
        "toolkit_libdevice": str(toolkit) if toolkit else None,
        **software(),
    }


def processes() -> list[dict[str, str]]:
    return [{} for _ in range(cores())]


def inductor_unavailable() -> str | None:
    return "Inductor compiles for GPUs that are there; its kernels can be kept by --keep-code and replayed"


def metal_compiler() -> Callable[[str], Any] | str:
    return NO_METAL


def lowering_unavailable(lowering: str) -> str | None:
    if lowering.startswith("inductor"):
        return inductor_unavailable()
    if not lowering.startswith("triton") and ".py:" not in lowering:
        return "a virtual device executes Triton kernels; aten's and others' are not compiled here"
    return None


@contextmanager
def launching() -> Iterator[None]:
    from verify.virtual import approx, ptx
    from verify.virtual.compile import Launch, described

    chip = capability()

    def execute(one: Launch) -> None:
        program = ptx.program_of(one.code, int(one.metadata.shared))
        for instruction in program.approximate:
            _used[instruction] = approx.how(chip, instruction)
        if program.open:
            _used["mul, add"] = f"as in PTX: ptxas may contract {program.open} sums"
        ptx.launch(one, approx.of_chip(chip))

    with described(chip, execute):
        yield


def modelled() -> dict[str, str]:
    told = dict(sorted(_used.items()))
    _used.clear()
    return told


def learn(modelled: Mapping[str, str]) -> None:
    _used.update(modelled)
