"""The registered lowerings of a kernel.

Importing this module imports neither torch nor triton.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from verify import backends
from verify.facts.kernel import Composite, Kernel, UsageError, suggest
from verify.judge.ledger import not_run
from verify.lower import metal, triton
from verify.lower.lowering import Lowering, Target, here, imported
from verify.lower.pytorch import EAGER, INDUCTOR, INDUCTOR_STRICT


def lowerings(kernel: Kernel | Composite) -> tuple[Lowering, ...]:
    """All registered lowerings of `kernel`, the reference (`eager`) first."""
    found: tuple[Lowering, ...]
    if isinstance(kernel, Composite):
        found = (*imported(kernel.implementations).lowerings(), *metal.composite(kernel))
    else:
        found = (EAGER, INDUCTOR, INDUCTOR_STRICT, *triton.elementwise(kernel), *metal.elementwise(kernel))
    return tuple(map(_by_the_ledger, found))


def _by_the_ledger(one: Lowering) -> Lowering:
    """The lowering, absent too where the ledger says that its cells cannot run or a virtual device cannot execute
    it."""

    def reason(target: Target) -> str | None:
        virtual = backends.virtual(target.backend)
        if virtual is not None and (absent := virtual.lowering_unavailable(one.name)):
            return absent
        if absent := one.reason(target):
            return absent
        known = not_run(target.backend.name, lowering=one.name, kernel=target.kernel.name, dtype=target.dtype)
        return f"{known.reason} ({known.source})" if known else None

    return replace(one, reason=reason, build=lambda target: here(target, one.name, one.build(target)))


def lowering_names(kernel: Kernel | Composite) -> tuple[str, ...]:
    if isinstance(kernel, Composite):
        return kernel.lowerings
    return tuple(lowering.name for lowering in lowerings(kernel))


def unknown(pattern: str, known: list[str] | tuple[str, ...]) -> UsageError:
    """The mistake of naming a lowering that is none."""
    if ":" not in pattern and "/" not in pattern:
        return UsageError(suggest("lowering", pattern, known))
    file, _, function = pattern.partition(":")
    meant = f", such as {file}.py:{function}" if Path(f"{file}.py").is_file() else ""
    return UsageError(f"unknown lowering {pattern!r}; a function of your own is FILE.py:FUNCTION{meant}")
