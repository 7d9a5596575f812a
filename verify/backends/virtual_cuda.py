"""An NVIDIA GPU that is not there: Triton's lowerings are compiled for it and their PTX is executed on the CPU.

IEEE instructions are bit for bit those of the standard. Approximate ones answer as recorded on a GPU of the same
architecture (`verify/virtual/tables/`). What was not recorded is correctly rounded in `virtual-cuda`, and in -low and
-high at an end of its documented error. A cell names each that it used. What ptxas contracts after PTX is not seen:
where contraction is permitted, a cell names the sums that it may concern.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from verify.backends import TRITON_CODE, cuda, software
from verify.backends._virtual import Device

#: Names the architecture; `verify.virtual.compile.TARGETS` has the names.
VARIABLE = "VERIFY_VIRTUAL_CUDA"


@dataclass(frozen=True)
class Model(Device):
    """One model. end: of the documented error of what was not recorded: 0 (none), -1 or 1."""

    end: int
    elements: int = field(default=1 << 20, kw_only=True)
    inert_options: Mapping[str, str] = field(
        default_factory=lambda: dict.fromkeys(cuda.inert_options, TRITON_CODE), kw_only=True
    )

    def unavailable(self) -> str | None:
        from verify.virtual import lanes
        from verify.virtual.compile import TARGETS, Unsupported

        if importlib.util.find_spec("triton") is None:
            return "triton, which compiles for GPUs that are not there, is not installed"
        if TARGETS.get(self.capability(), ("", "", 0))[0] != "cuda":
            known = ", ".join(target for target, (vendor, *_) in TARGETS.items() if vendor == "cuda")
            return f"{VARIABLE}={self.capability()}; expected one of {known}"
        try:
            lanes.library()
        except Unsupported as why:
            return str(why)
        return None

    def dtype_unavailable(self, dtype: str) -> str | None:
        if dtype == "float8_e4m3fn" and self.capability() == "sm_80":
            return "Triton has no float8_e4m3fn for sm_80"
        return None

    def capability(self) -> str:
        return os.environ.get(VARIABLE, "sm_90")

    def fingerprint(self) -> dict[str, Any]:
        from verify.virtual import approx

        toolkit = cuda.toolkit_libdevice()
        return {
            "backend": self.name,
            "chip": f"virtual {self.capability()}",
            "capability": self.capability(),
            "recorded": approx.recorded_names(self.capability()),
            "toolkit_libdevice": str(toolkit) if toolkit else None,
            **software(),
        }

    def lowering_unavailable(self, name: str) -> str | None:
        return None if name.startswith("inductor") else super().lowering_unavailable(name)

    def inductor_unavailable(self) -> str | None:
        return (
            "Inductor's code is executed for elementwise kernels alone; others can be kept by --keep-code and replayed"
        )

    def inductor(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any] | str:
        from verify.virtual import inductor

        return inductor.compiled(function, options, self.capability(), cuda.toolkit_libdevice())

    def triton_options(self, variant: str) -> Mapping[str, Any] | str:
        return cuda.triton_options(variant)

    def flushes(self, variant: str) -> bool:
        return cuda.flushes(variant)

    @contextmanager
    def launching(self) -> Iterator[Callable[[], int]]:
        from verify.virtual import approx, ptx
        from verify.virtual.compile import Launch, described, unwatched
        from verify.virtual.moves import KeptHere, MovesOnly

        chip, count = self.capability(), 0

        def execute(one: Launch) -> None:
            nonlocal count
            count += 1
            program = ptx.program_of(one.code, int(one.metadata.shared))
            for instruction in program.approximate:
                self._used[instruction] = approx.how(chip, instruction, self.end)
            self._used.update(program.products)
            if program.open:
                self._used["mul, add"] = "as in PTX, where ptxas may contract"
            ptx.launch(one, approx.of_chip(chip, self.end))

        with described(chip, unwatched(execute)), MovesOnly(), KeptHere():  # type: ignore[no-untyped-call]
            yield lambda: count


DEVICES = {
    device.name: device
    for device in (Model("virtual-cuda", 0), Model("virtual-cuda-low", -1), Model("virtual-cuda-high", 1))
}
