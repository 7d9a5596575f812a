"""Known deviations of lowerings, one TOML file a backend in `kernels/ledger/`, with reason and source."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.metadata
import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from verify import backends
from verify.kernel import is_file, means

STATUSES = ("not-run", "exceeds-bound")


@dataclass(frozen=True)
class Deviation:
    """One entry: the cells it covers (shell patterns), the status they get instead of a pass, and why.

    failures: which kinds it excuses, of 'bound', 'range', 'nan_mismatch', 'inf_mismatch', 'zero_sign',
    'flushed' (shell patterns); any other kind still fails the cell. capability: of the device that it is
    limited to, a shell pattern.
    """

    lowering: str
    kernel: tuple[str, ...]
    dtype: tuple[str, ...]
    status: str
    reason: str
    source: str
    triton_before: str = ""
    failures: tuple[str, ...] = ("*",)
    spelling: tuple[str, ...] = ("*",)
    capability: str = "*"

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"ledger status {self.status!r}; expected one of {STATUSES}")
        if not (self.reason and self.source):
            raise ValueError("a ledger entry needs a reason and a source")

    def excuses(self, kinds: tuple[str, ...]) -> bool:
        """Whether every kind of failure found is one that this entry expects."""
        return self.status == "exceeds-bound" and all(
            any(fnmatch.fnmatchcase(kind, pattern) for pattern in self.failures) for kind in kinds
        )

    def suits(self, *, lowering: str, kernel: str, dtype: str, spelling: str | None = None) -> bool:
        """Whether the cell is covered; `spelling` None: some spelling of it."""
        return (
            means(self.lowering, lowering)
            and any(fnmatch.fnmatchcase(kernel, pattern) for pattern in self.kernel)
            and any(fnmatch.fnmatchcase(dtype, pattern) for pattern in self.dtype)
            and (spelling is None or any(fnmatch.fnmatchcase(spelling, pattern) for pattern in self.spelling))
            and (not self.triton_before or _triton_version() < _version(self.triton_before))
        )


@lru_cache
def deviations(backend: str) -> tuple[Deviation, ...]:
    """All entries for the backend `backend` that its device may need; none where it has no file."""
    package = importlib.import_module("verify.kernels")
    path = Path(package.__path__[0]) / "ledger" / f"{backend}.toml"
    if not path.exists():
        return ()
    entries = [_deviation(entry) for entry in tomllib.loads(path.read_text())["deviation"]]
    return tuple(one for one in entries if one.capability == "*" or _has(backend, one.capability))


def _has(backend: str, capability: str) -> bool:
    return fnmatch.fnmatchcase(backends.load(backend).capability(), capability)


def _deviation(entry: dict[str, Any]) -> Deviation:
    """An entry of the file, its lists as tuples."""
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
    return Deviation(**values)


def deviation(backend: str, *, lowering: str, kernel: str, dtype: str) -> Deviation | None:
    """The first entry that covers this cell, or None."""
    for entry in deviations(backend):
        if entry.suits(lowering=lowering, kernel=kernel, dtype=dtype):
            return entry
    return None


def excuse(backend: str, kinds: tuple[str, ...], explained: bool = False, **cell: str) -> str | None:
    """Why every one of these kinds of failure is expected of this cell, or None where one is not.

    cell: its lowering, kernel, dtype and spelling. explained: its bits are eager's, or those of one of the kernel's
    formulas. A user's own lowering is excused on that condition: an entry knows kinds of failure, not the elements.
    """
    if is_file(cell["lowering"]) and not explained:
        return None
    entries = [entry for entry in deviations(backend) if entry.suits(**cell)]
    found = [next((e.reason for e in entries if e.excuses((kind,))), None) for kind in kinds]
    reasons = [reason for reason in dict.fromkeys(found) if reason is not None]
    return None if None in found else "; ".join(reasons)


def _triton_version() -> tuple[int, ...]:
    return _version(importlib.metadata.version("triton"))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
