"""Metal kernels without an Apple GPU: their source compiled for this machine by `verify.virtual.metal`.

It checks the source's arithmetic, not Apple's library or compiler: every operation as written and rounded to nearest,
subnormals kept (MSL 8.1 lets a GPU flush them), and Apple's functions as models within their documented errors.
`virtual-mps` contracts nothing and takes functions as correctly rounded; -contracted fuses products into sums
where the source leaves it open; -low and -high, of both, take the ends of the documented errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from verify.backends import mps, software
from verify.backends._virtual import Device

if TYPE_CHECKING:
    from verify.virtual.metal import Mode


@dataclass(frozen=True)
class Model(Device):
    """One model of the device: whether it contracts, and which end of documented errors it takes (-1, 0, 1)."""

    executes: ClassVar[str] = "the project's Metal kernels"
    lowerings: ClassVar[str] = "metal"
    users: ClassVar[bool] = False

    how: str
    contract: bool = False
    end: int = 0

    def unavailable(self) -> str | None:
        from verify.virtual.metal import clang

        return None if clang() else "it needs clang++, which contracts within a statement as Metal does"

    def dtype_unavailable(self, dtype: str) -> str | None:
        return mps.dtype_unavailable(dtype)

    def capability(self) -> str:
        return "MSL"

    def mode(self) -> Mode:
        from verify.virtual.metal import Mode

        return Mode(self.contract, self.end)

    def fingerprint(self) -> dict[str, Any]:
        from verify.virtual.metal import clang, version

        return {
            "backend": self.name,
            "chip": "MSL source, virtual",
            "capability": self.capability(),
            "contract": self.contract,
            "host": version(str(clang())).partition("\n")[0],
            **software(),
        }

    def triton_options(self, variant: str) -> Mapping[str, Any] | str:
        return mps.triton_options(variant)

    def metal_compiler(self) -> Callable[[str], Any] | str:
        from verify.virtual.metal import Library, approximate_divisions, clang

        compiler = clang()
        if compiler is None:
            return str(self.unavailable())

        def launched(models: set[str]) -> None:
            self._used.update(dict.fromkeys(models, self.how))

        return lambda source: Library(approximate_divisions(source), (compiler,), self.mode(), launched=launched)

    def flushes(self, variant: str) -> bool:
        """Nothing flushes here, whatever a GPU may do."""
        return False

    @contextmanager
    def launching(self) -> Iterator[Callable[[], int]]:
        """Compiled libraries execute by themselves, and are not counted."""
        yield lambda: 1


DEVICES = {
    device.name: device
    for device in (
        Model(f"virtual-mps{'-contracted' * contract}{suffix}", how, contract, end)
        for contract in (False, True)
        for suffix, how, end in (
            ("", "correctly rounded", 0),
            ("-low", "the least result that MSL table 8.2 allows", -1),
            ("-high", "the greatest result that MSL table 8.2 allows", 1),
        )
    )
}
