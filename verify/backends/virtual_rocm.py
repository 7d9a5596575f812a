"""An MI300X (gfx942) that is not here: Triton compiles for it, and `verify.virtual.amdgcn` executes the code.

What is executed is exact but for a few instructions that AMD documents by an error alone; they are models. The device
`virtual-rocm` takes each as correctly rounded, -low and -high as the least and the greatest number within that error.
Where a kernel executes one of them for an element, the real device gives one of the three results.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from verify.backends import rocm, software
from verify.backends._virtual import Device


@dataclass(frozen=True)
class Model(Device):
    """One model of the device. approximation: one of `verify.virtual.instructions.MODELS`; how: the same in words."""

    approximation: str
    how: str

    def unavailable(self) -> str | None:
        missing = [name for name in ("triton", "llvmlite") if importlib.util.find_spec(name) is None]
        return f"it needs {' and '.join(missing)}: pip install 'ulproof[torch,virtual]'" if missing else None

    def capability(self) -> str:
        from verify.virtual.amdgcn import TARGET

        return TARGET

    def fingerprint(self) -> dict[str, Any]:
        from verify.virtual.ir import host

        return {
            "backend": self.name,
            "chip": f"{self.capability()}, virtual",
            "capability": self.capability(),
            "host": host(),
            "triton_ocml": rocm.triton_ocml(),
            **software(),
        }

    def triton_options(self, variant: str) -> Mapping[str, Any] | str:
        return rocm.triton_options(variant)

    def flushes(self, variant: str) -> bool:
        return rocm.flushes(variant)

    @contextmanager
    def launching(self) -> Iterator[Callable[[], int]]:
        from verify.virtual import amdgcn
        from verify.virtual.compile import Launch, described, unwatched
        from verify.virtual.moves import KeptHere, MovesOnly

        count = 0

        def launched(launch: Launch) -> None:
            nonlocal count
            count += 1
            amdgcn.execute(launch, self.approximation)
            self._used.update(dict.fromkeys(amdgcn.parse(launch.code, launch.name).modelled, self.how))

        with described(amdgcn.TARGET, unwatched(launched)), MovesOnly(), KeptHere():  # type: ignore[no-untyped-call]
            yield lambda: count


DEVICES = {
    device.name: device
    for device in (
        Model("virtual-rocm", "nearest", "correctly rounded"),
        Model("virtual-rocm-low", "down", "the least result that the ISA's error allows"),
        Model("virtual-rocm-high", "up", "the greatest result that the ISA's error allows"),
    )
}
