"""Backends: where kernels run. One file each, found by file name; only they contain device literals."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

from verify.kernel import UsageError, suggest


class Backend(Protocol):
    """What a module in `verify/backends/` defines. Importing it imports no torch.

    name     as in reports and on the command line
    device   torch's device string
    """

    name: str
    device: str

    def unavailable(self) -> str | None:
        """Why nothing can run here, or None."""

    def fingerprint(self) -> dict[str, Any]:
        """Chip, driver, toolkit and software: everything that may change bits."""

    def synchronize(self) -> None:
        """Wait for all launched work."""

    def poisoned(self, size: int, pattern: int) -> AbstractContextManager[None]:
        """Inside, fresh memory for about `size` bytes holds the byte `pattern` rather than what was there."""

    def inductor_unavailable(self) -> str | None:
        """Why Inductor cannot generate code here, or None."""

    def triton_options(self, variant: str) -> Mapping[str, Any] | str:
        """Triton's compile options for `variant`, or the reason why it does not exist here.

        'own': hand-written kernels, nothing contracted, nothing flushed; 'default'; 'nofuse'; 'noftz';
        'toolkit': the toolkit's libdevice instead of the bundled one; 'interpreter': not compiled at all.
        """

    def flushes(self, variant: str) -> bool:
        """Whether float32 library functions flush subnormals under `variant`."""


def names() -> list[str]:
    """All backends, by file name."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def load(name: str) -> Backend:
    """The backend `name`. Raises UsageError with near names when there is none."""
    if name not in names():
        raise UsageError(suggest("backend", name, names()))
    return cast(Backend, importlib.import_module(f"{__name__}.{name}"))


def software() -> dict[str, Any]:
    """The part of a fingerprint that every backend shares."""
    return {
        "torch": _version("torch"),
        "triton": _version("triton"),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
