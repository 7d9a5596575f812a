"""Triton's lowerings: hand-written kernels, library functions, the interpreter. `verify.kernels` is imported by name: a
kernel's facts build on lowerings, not lowerings on them.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from verify.facts.kernel import Kernel, UsageError
from verify.lower.lowering import Call, Lowering, Target, flushes, imported, scalar

if TYPE_CHECKING:
    pass


def catalogue() -> Any:
    """The names of the Triton lowerings, in `kernels/triton/__init__.py`."""
    return imported("verify.kernels.triton")


def _loops() -> Any:
    return imported("verify.kernels.triton.elementwise")


def elementwise(kernel: Kernel) -> tuple[Lowering, ...]:
    if kernel.triton is None:
        return ()
    names = [
        (implementation, variant, f"{implementation}{suffix}")
        for implementation in catalogue().LIBRARIES.get(kernel.name, ())
        for suffix, variant in catalogue().VARIANTS.items()
    ]
    return (
        _triton_lowering(kernel, "triton", "own", "triton"),
        *(_triton_lowering(kernel, *name) for name in names),
        Lowering(
            "triton-interpreter", _build_interpreted, _interpreter_reason, max_elements=1 << 22, one_spelling=True
        ),
    )


def triton_options(target: Target, variant: str = "own") -> dict[str, Any]:
    """Triton's compile options for `variant` (`Backend.triton_options`). Raises UsageError where it does not exist."""
    given = target.backend.triton_options(variant)
    if isinstance(given, str):
        raise UsageError(given)
    return dict(given)


def no_triton(target: Target, variant: str = "own") -> str | None:
    """Why `variant` of Triton's code does not exist on the target's backend, or None."""
    given = target.backend.triton_options(variant)
    if isinstance(given, str):
        return given
    return None if importlib.util.find_spec("triton") else "triton is not installed"


def _triton_lowering(kernel: Kernel, implementation: str, variant: str, name: str) -> Lowering:
    def build(target: Target) -> Call:
        operation, options = _operation(target, implementation), triton_options(target, variant)
        call: Call = _loops().compiled(operation, scalar(target), options)
        return call

    def reason(target: Target) -> str | None:
        absent = catalogue().ABSENT.get((kernel.name, implementation))
        return absent or no_triton(target, variant) or _triton_reason(target, implementation)

    def ftz(target: Target) -> bool:
        return (kernel.name, implementation) in catalogue().REFLECTS_FTZ and flushes(target, variant)

    return Lowering(name, build, reason, ftz=ftz, flags=partial(triton_options, variant=variant), one_spelling=True)


def _build_interpreted(target: Target) -> Call:
    call: Call = _loops().interpreted(_operation(target, "triton"), scalar(target))
    return call


def _interpreter_reason(target: Target) -> str | None:
    return no_triton(target, "interpreter") or _triton_reason(target, "triton")


def _triton_reason(target: Target, implementation: str) -> str | None:
    """Why the hand-written kernels do not serve this target, whatever the backend."""
    if target.spelling != target.default_spelling:
        return f"a Triton kernel has one calling convention; it is listed under {target.default_spelling!r}"
    if (implementation, target.pattern) not in _operations(target):
        scalars = ", ".join(target.scalars) or "none"
        return f"{target.kernel.triton} has no {implementation} kernel with these scalars: {scalars}"
    return None


def _operations(target: Target) -> Mapping[tuple[str, str], Any]:
    operations: Mapping[tuple[str, str], Any] = imported(str(target.kernel.triton)).OPERATIONS
    return operations


def _operation(target: Target, implementation: str) -> Any:
    return _operations(target)[implementation, target.pattern]
