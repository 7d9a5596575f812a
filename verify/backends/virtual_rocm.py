"""An MI300X (gfx942) that is not here: Triton compiles for it, and `verify.virtual.amdgcn` executes the code.

What is executed is exact but for a few instructions that AMD documents by an error alone; they are models. The device
`virtual-rocm` takes each as correctly rounded, -low and -high as the least and the greatest number within that error.
Where a kernel executes one of them for an element, the real device gives one of the three results.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from verify.backends import NO_METAL, cores, cpu, rocm, software


@dataclass(frozen=True)
class Device:
    """One model of the device. approximation: of `verify.virtual.instructions.MODELS`; how: the same in words."""

    name: str
    approximation: str
    how: str
    device: str = "cpu"
    check_device: str = "cpu"
    elements: int = 1 << 22
    portion: int = 1 << 20
    inert_options: Mapping[str, str] = field(default_factory=dict)
    _used: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def unavailable(self) -> str | None:
        missing = [name for name in ("triton", "llvmlite") if importlib.util.find_spec(name) is None]
        return f"it needs {' and '.join(missing)}: pip install 'ulproof[torch,virtual]'" if missing else None

    def dtype_unavailable(self, dtype: str) -> str | None:
        return None

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

    def processes(self) -> list[dict[str, str]]:
        return [{} for _ in range(cores())]

    def resources(self) -> dict[str, float]:
        return cpu.resources()

    def synchronize(self) -> None:
        pass

    @contextmanager
    def poisoned(self, size: int, pattern: int) -> Iterator[None]:
        with cpu.poisoned(size, pattern):
            yield

    def inductor_unavailable(self) -> str | None:
        return self.lowering_unavailable("inductor")

    def triton_options(self, variant: str) -> Mapping[str, Any] | str:
        return rocm.triton_options(variant)

    def metal_compiler(self) -> Callable[[str], Any] | str:
        return NO_METAL

    def flushes(self, variant: str) -> bool:
        return rocm.flushes(variant)

    def lowering_unavailable(self, name: str) -> str | None:
        if name.startswith("triton") or ".py:" in name:
            return None
        return "a virtual device executes Triton kernels; aten's and others' are not compiled here"

    @contextmanager
    def launching(self) -> Iterator[None]:
        from verify.virtual import amdgcn
        from verify.virtual.compile import Launch, described
        from verify.virtual.moves import MovesOnly

        def launched(launch: Launch) -> None:
            amdgcn.execute(launch, self.approximation)
            self._used.update(dict.fromkeys(amdgcn.parse(launch.code, launch.name).modelled, self.how))

        with described(amdgcn.TARGET, launched), MovesOnly():  # type: ignore[no-untyped-call]
            yield

    def modelled(self) -> dict[str, str]:
        told = dict(sorted(self._used.items()))
        self._used.clear()
        return told

    def learn(self, modelled: Mapping[str, str]) -> None:
        self._used.update(modelled)


DEVICES = {
    device.name: device
    for device in (
        Device("virtual-rocm", "nearest", "correctly rounded"),
        Device("virtual-rocm-low", "down", "the least result that the ISA's error allows"),
        Device("virtual-rocm-high", "up", "the greatest result that the ISA's error allows"),
    )
}
