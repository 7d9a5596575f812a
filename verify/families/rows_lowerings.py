"""Lowerings of row kernels: torch's own, compiled by Inductor, and a hand-written Triton kernel.

Each takes a problem and gives its one output. A Triton kernel's module has `run(name, *tensors, dim, options,
interpreted, held, **scalars)`, `block_of(name, n, interpreted)`, the elements that it holds of a row, and
`not_interpreted(name, dtype)`, why the interpreter cannot run it. held: elements of a program.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from verify import native
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.lower.pytorch import compile_disabled, compiled_for_problem, default_flags, strict_flags, strict_options
from verify.lower.triton import no_triton, triton_options

if TYPE_CHECKING:
    import torch

    from verify.families.composite import Problem

Call = Callable[["Problem"], Any]  # {'': the output}
#: The most elements that the interpreter is given.
INTERPRETED = 1 << 17
#: The most blocks of a row: the interpreter takes 26 ms for one of logcumsumexp.
BLOCKS = 64
#: Elements of a program of four warps that each thread has two of: enough for every step of a scan.
LEAST = 256


def lowerings() -> tuple[Lowering, ...]:
    """The reference first."""
    return (
        Lowering("eager", _eager, lambda target: None),
        Lowering("inductor", partial(_inductor, default_flags), _no_inductor, flags=default_flags),
        Lowering("inductor-strict", partial(_inductor, strict_options), _no_strict, flags=strict_flags),
        Lowering("triton", _triton("own"), _no_triton("own"), flags=_triton_flags),
        Lowering("triton-interpreter", _triton("interpreter"), _no_triton("interpreter")),
    )


def operation(target: Target, problem: Problem) -> Callable[..., torch.Tensor]:
    """torch's own function of the problem's tensors, along its dimension."""
    import torch

    call, dim, scalars = target.kernel.family.call, problem.parameters["dim"], dict(problem.scalars)

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        return call(torch, *tensors, dim=dim, **scalars)  # type: ignore[no-any-return]

    return run


def _eager(target: Target) -> Call:
    return lambda problem: {"": operation(target, problem)(*problem.tensors.values())}


# Inductor


def _inductor(options: Callable[[Target], dict[str, Any]], target: Target) -> Call:
    return compiled_for_problem(target, operation, options)


def _no_inductor(target: Target) -> str | None:
    if (reason := compile_disabled() or target.backend.inductor_unavailable()) is not None:
        return reason
    if not target.kernel.family.prefixes:
        return None
    if _scans(target.backend.device):
        return None
    return "Inductor generates no scans for this backend (BackendFeature.SCAN): it calls aten, which is eager"


@functools.cache
def _scans(device: str) -> bool:
    """Whether Inductor generates scans for a device. A process that only plans has no other use for its import."""
    import torch

    def ask() -> bool:
        from torch._inductor.codegen.common import BackendFeature, has_backend_feature, init_backend_registration

        init_backend_registration()
        return bool(has_backend_feature(torch.device(device), BackendFeature.SCAN))

    return bool(native.answered(f"torch {torch.__version__} {torch.__file__}: scans for {device}", ask))


def _no_strict(target: Target) -> str | None:
    first = target.kernel.settings[0].name
    if target.spelling in target.kernel.spellings and target.spelling != first:
        return f"its flags choose roundings, not orders: listed under {first!r}"
    return _no_inductor(target)


# Triton


def _module(target: Target) -> Any:
    return importlib.import_module(target.kernel.family.triton)


def _triton(variant: str) -> Callable[[Target], Call]:
    def build(target: Target) -> Call:
        options = triton_options(target, variant)
        name, interpreted = target.kernel.name, variant == "interpreter"

        def run(problem: Problem) -> dict[str, torch.Tensor]:
            x, *others = problem.tensors.values()
            dim = problem.parameters["dim"]
            if interpreted and x.numel() > INTERPRETED:
                raise NotLowered(f"{x.numel():,} elements; the interpreter is given {INTERPRETED:,} at most")
            block = _module(target).block_of(name, x.shape[dim], interpreted)
            if interpreted and (blocks := -(-x.shape[dim] // block)) > BLOCKS:
                raise NotLowered(f"{blocks:,} blocks a row; the interpreter is given {BLOCKS:,} at most")
            given = {"dim": dim, "options": options, "interpreted": interpreted, **problem.scalars}
            given |= {"held": LEAST} if target.small == 2 else {}
            return {"": _module(target).run(name, x, *others, **given)}

        return run

    return build


def _triton_flags(target: Target) -> dict[str, Any]:
    blocks = {"blocks": str(LEAST)} if target.small == 2 else {}
    return {**blocks, **triton_options(target)}


def _no_triton(variant: str) -> Callable[[Target], str | None]:
    def reason(target: Target) -> str | None:
        if target.kernel.family.triton is None:
            return f"{target.kernel.name} has no Triton kernel"
        if absent := no_triton(target, variant):
            return absent
        if variant == "interpreter":
            return _module(target).not_interpreted(target.kernel.name, target.dtype)  # type: ignore[no-any-return]
        return None

    return reason
