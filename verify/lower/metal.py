"""Metal's lowerings: hand-written kernels, under safe and under fast math."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING

from verify.facts.kernel import Composite, Kernel, UsageError
from verify.lower.lowering import Call, Lowering, Target, device_flushes, imported, inapplicable, scalar

if TYPE_CHECKING:
    pass


def elementwise(kernel: Kernel) -> tuple[Lowering, ...]:
    module = f"verify.kernels.metal.{kernel.name}"
    if importlib.util.find_spec(module) is None:
        return ()
    modes: Mapping[str, str] = imported("verify.kernels.metal").MODES
    return tuple(_metal_lowering(module, name, mode) for name, mode in modes.items())


def composite(kernel: Composite) -> tuple[Lowering, ...]:
    module = f"verify.kernels.metal.{kernel.name}"
    if importlib.util.find_spec(module) is None:
        return ()
    found: tuple[Lowering, ...] = imported(module).lowerings()
    return found


def _metal_lowering(module: str, name: str, mode: str) -> Lowering:
    def build(target: Target) -> Call:
        compiler = target.backend.metal_compiler()
        if isinstance(compiler, str):
            raise UsageError(compiler)
        operation = imported(module).OPERATIONS[target.pattern](scalar(target))
        launched = imported("verify.kernels.metal.elementwise")
        call: Call = launched.compiled(operation, target.pattern.count("t"), target.dtype, mode, compiler)
        return call

    def reason(target: Target) -> str | None:
        compiler = target.backend.metal_compiler()
        if absent := (compiler if isinstance(compiler, str) else None) or inapplicable(target):
            return absent
        if target.spelling != target.default_spelling:
            return f"a Metal kernel has one calling convention; it is listed under {target.default_spelling!r}"
        if target.pattern not in imported(module).OPERATIONS:
            return f"{module} has no kernel with these scalars: {', '.join(target.scalars) or 'none'}"
        return None

    return Lowering(
        name, build, reason, ftz=device_flushes, flags=lambda target: {"math_mode": mode}, one_spelling=True
    )
