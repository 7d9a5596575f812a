"""How the Adam kernels are lowered: torch.optim in its implementations, eager and compiled, and hand-written Triton.

Each lowering takes the steps of a problem one by one on copies of its tensors, split into the setting's parameters.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.adam import adam

from verify.families.composite import Problem
from verify.kernels._adam import kept_format
from verify.lower.lowering import Lowering, NotLowered, Target, describe, device_flushes
from verify.lower.pytorch import (
    compile_apart,
    compile_disabled,
    default_flags,
    first_call,
    strict_flags,
    strict_options,
)
from verify.lower.triton import no_triton, triton_options

Tensor = torch.Tensor
Outputs = dict[str, Tensor]
#: Of a target, a callable of a problem that returns its outputs.
Build = Callable[[Target], Any]
Flags = Callable[[Target], dict[str, Any]]
#: Steps that the Triton interpreter takes in reasonable time: it runs a step as some hundred numpy calls.
INTERPRETED_STEPS = 10


@dataclass
class State:
    """The tensors of an optimizer, a list for each, changed by its steps."""

    params: list[Tensor]
    grads: list[Tensor]
    exp_avgs: list[Tensor]
    exp_avg_sqs: list[Tensor]
    max_exp_avg_sqs: list[Tensor]
    counts: list[Tensor] = field(default_factory=list)


Step = Callable[[State], None]


def _copies(t: Tensor | None, sizes: list[int]) -> list[Tensor]:
    """A separate tensor for each size."""
    return [] if t is None else [part.clone() for part in torch.split(t, sizes)]


def _begin(problem: Problem, counts_on: Any) -> State:
    t, sizes = problem.tensors, problem.parameters["sizes"]
    parameter = t.get("master", t.get("param", t["exp_avg"]))
    start = float(problem.parameters["start"])
    return State(
        _copies(parameter, sizes),
        [],
        _copies(t["exp_avg"], sizes),
        _copies(t["exp_avg_sq"], sizes),
        _copies(t.get("max_exp_avg_sq"), sizes),
        [torch.full((), start, dtype=torch.float32, device=counts_on) for _ in sizes],
    )


def _outputs(problem: Problem, state: State) -> Outputs:
    found = {"exp_avg": torch.cat(state.exp_avgs), "exp_avg_sq": torch.cat(state.exp_avg_sqs)}
    if state.max_exp_avg_sqs:
        found["max_exp_avg_sq"] = torch.cat(state.max_exp_avg_sqs)
    if "master" in problem.tensors:
        master = torch.cat(state.params)
        return found | {"master": master, "param": master.to(problem.tensors["param"].dtype)}
    return found | ({"param": torch.cat(state.params)} if "param" in problem.tensors else {})


def _walked(problem: Problem, state: State, step: Step) -> Outputs:
    """The outputs after all steps. With a master copy, gradients are widened to float32, which is exact."""
    sizes = problem.parameters["sizes"]
    dtype = problem.tensors["exp_avg"].dtype
    for row in problem.tensors["grads"]:
        state.grads = list(row.to(dtype).split(sizes))
        step(state)
    return _outputs(problem, state)


# ---------------------------------------------------------------- torch.optim

#: What torch.optim.adam.adam takes, by the variant's name.
VARIANTS: Mapping[str, Mapping[str, bool]] = {
    "single": {"foreach": False, "fused": False, "capturable": False},
    "foreach": {"foreach": True, "fused": False, "capturable": False},
    "fused": {"foreach": False, "fused": True, "capturable": False},
    "capturable": {"foreach": False, "fused": False, "capturable": True},
    "capturable-foreach": {"foreach": True, "fused": False, "capturable": True},
}


def _optimizer(variant: str, problem: Problem) -> Step:
    """One step of torch.optim's functional form, in place."""
    if problem.extra["kernel"] == "adam_ema":
        return _averages(variant, problem)
    options: dict[str, Any] = {**VARIANTS[variant], **problem.scalars}
    decoupled = problem.extra["decoupled"]
    parameters = problem.parameters
    amsgrad, maximize = bool(parameters["amsgrad"]), bool(parameters["maximize"])

    def step(s: State) -> None:
        adam(
            s.params, s.grads, s.exp_avgs, s.exp_avg_sqs, s.max_exp_avg_sqs, s.counts, amsgrad=amsgrad,
            maximize=maximize, decoupled_weight_decay=decoupled, **options,
        )  # fmt: skip

    return step


def _averages(variant: str, problem: Problem) -> Step:
    """The lines of `_single_tensor_adam` and `_multi_tensor_adam` (torch.optim.adam) that update the averages."""
    beta1, beta2 = problem.scalars["beta1"], problem.scalars["beta2"]
    maximize = bool(problem.parameters["maximize"])

    def single(s: State) -> None:
        for m, v, g in zip(s.exp_avgs, s.exp_avg_sqs, s.grads, strict=True):
            grad = -g if maximize else g
            m.lerp_(grad, 1 - beta1)
            v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)

    def foreach(s: State) -> None:
        grads = torch._foreach_neg(s.grads) if maximize else s.grads
        torch._foreach_lerp_(s.exp_avgs, grads, 1 - beta1)
        torch._foreach_mul_(s.exp_avg_sqs, beta2)
        torch._foreach_addcmul_(s.exp_avg_sqs, grads, grads, 1 - beta2)

    return foreach if variant == "foreach" else single


def _counts_on(variant: str, problem: Problem) -> Any:
    """Step counts lie on the host unless the kernel reads them."""
    on_device = variant == "fused" or variant.startswith("capturable")
    return problem.tensors["exp_avg"].device if on_device else torch.empty(0).device


def _eager(variant: str) -> Build:
    def build(target: Target) -> Callable[[Problem], Outputs]:
        def run(problem: Problem) -> Outputs:
            state = _begin(problem, _counts_on(variant, problem))
            try:
                return _walked(problem, state, _optimizer(variant, problem))
            except AssertionError as error:  # torch's own checks of what it supports
                raise NotLowered(f"torch.optim refuses: {' '.join(str(error).split())}") from error

        return run

    return build


def _reason(variant: str) -> Callable[[Target], str | None]:
    def reason(target: Target) -> str | None:
        absent = target.backend.dtype_unavailable(target.dtype)
        if absent or target.kernel.name != "adam_ema":
            return absent
        if variant == "fused":
            return "torch has no operation for the averages alone; see exp_avg and exp_avg_sq of adam_step"
        if variant.startswith("capturable"):
            return "capturable changes the bias corrections only, which adam_ema has not"
        return None

    return reason


# ---------------------------------------------------------------- torch.compile

#: Compiled steps, by everything that is a constant of their code: other problems and launches share them.
_COMPILED: dict[Any, Callable[..., None]] = {}


def _compiled(variant: str, options: Flags) -> Build:
    """The functional form of a step under torch.compile: one graph, the step count a tensor."""

    def build(target: Target) -> Callable[[Problem], Outputs]:
        def run(problem: Problem) -> Outputs:
            state = _begin(problem, _counts_on(variant, problem))
            return _walked(problem, state, _compiled_step(variant, target, problem, options(target)))

        return run

    return build


def _compiled_step(variant: str, target: Target, problem: Problem, options: dict[str, Any]) -> Step:
    parameters = problem.parameters
    key = (
        variant, target.backend.name, target.kernel.name, kept_format(problem), repr(sorted(options.items())),
        tuple(parameters["sizes"]), parameters["amsgrad"], parameters["maximize"],
        tuple(sorted(problem.scalars.items())),
    )  # fmt: skip
    if key not in _COMPILED:
        plain = _optimizer(variant, problem)

        def flat(*lists: list[Tensor]) -> None:
            plain(State(*lists))

        _COMPILED[key] = compile_apart(flat, f"{target.kernel.name}_{len(_COMPILED)}", options)
    compiled = _COMPILED[key]

    def step(s: State) -> None:
        lists = (s.params, s.grads, s.exp_avgs, s.exp_avg_sqs, s.max_exp_avg_sqs, s.counts)
        if key in _SEEN:
            compiled(*lists)
            return
        with first_call(_short):
            compiled(*lists)
        _SEEN.add(key)

    return step


_SEEN: set[Any] = set()


def _short(error: BaseException) -> str:
    """The exception in one line: its cause where Dynamo names one, without its hints."""
    text = " ".join(str(error).split()).partition(" Hint: ")[0]
    cause = re.search(r"got \w+\(['\"](.+?)['\"],?\)", text)
    return f"{type(error).__name__}: {cause[1] if cause else text[:160]}" if text else describe(error)


def _compile_reason(variant: str, combo: bool = False) -> Callable[[Target], str | None]:
    def reason(target: Target) -> str | None:
        absent = _reason(variant)(target) or compile_disabled() or target.backend.inductor_unavailable()
        if absent:
            return absent
        if variant == "fused":
            return "torch.compile does not trace the fused optimizer (torch/optim/adam.py: _disable_dynamo)"
        if combo and (absent := no_triton(target, "default")):
            return f"combo kernels are made of Inductor's Triton kernels: {absent}"
        return None

    return reason


def _combo_flags(target: Target) -> dict[str, Any]:
    return {**default_flags(target), "combo_kernels": True}


def _inductor(
    name: str, variant: str, options: Flags = default_flags, flags: Flags | None = None, combo: bool = False
) -> Lowering:
    """`flags`: what the report says of `options`, where that is more."""
    reason = _compile_reason(variant, combo)
    steps_on_host = not variant.startswith("capturable")
    return Lowering(
        name, _compiled(variant, options), reason, ftz=device_flushes, flags=flags or options,
        compiles_here=steps_on_host,
    )  # fmt: skip


# ---------------------------------------------------------------- Triton


def _triton(interpreted: bool) -> Build:
    def build(target: Target) -> Callable[[Problem], Outputs]:
        kernels = importlib.import_module("verify.kernels.triton.adam")
        options = triton_options(target, "interpreter" if interpreted else "own")

        def run(problem: Problem) -> Outputs:
            steps = problem.parameters["steps"]
            if interpreted and steps > INTERPRETED_STEPS:
                raise NotLowered(
                    f"{steps} steps take the Triton interpreter minutes; it runs up to {INTERPRETED_STEPS}"
                )
            state = _begin(problem, torch.empty(0).device)
            step = kernels.stepper(problem.extra["kernel"], problem.scalars, problem.parameters, options, interpreted)
            return _walked(
                problem, state, lambda s: step(s.params, s.grads, s.exp_avgs, s.exp_avg_sqs, s.max_exp_avg_sqs)
            )

        return run

    return build


def _triton_reason(interpreted: bool) -> Callable[[Target], str | None]:
    def reason(target: Target) -> str | None:
        absent = no_triton(target, "interpreter" if interpreted else "own")
        return absent or target.backend.dtype_unavailable(target.dtype)

    return reason


EAGER = Lowering("eager", _eager("single"), _reason("single"), ftz=device_flushes)

LOWERINGS = (
    EAGER,
    *(Lowering(name, _eager(name), _reason(name), ftz=device_flushes) for name in VARIANTS if name != "single"),
    _inductor("inductor", "single"),
    _inductor("inductor-strict", "single", strict_options, strict_flags),
    _inductor("inductor-combo", "single", _combo_flags, combo=True),
    _inductor("inductor-foreach", "foreach"),
    _inductor("inductor-foreach-combo", "foreach", _combo_flags, combo=True),
    _inductor("inductor-fused", "fused"),
    _inductor("inductor-capturable", "capturable"),
    _inductor("inductor-capturable-foreach", "capturable-foreach"),
    Lowering("triton", _triton(False), _triton_reason(False), flags=triton_options),
    Lowering("triton-interpreter", _triton(True), _triton_reason(True)),
)


def lowerings() -> tuple[Lowering, ...]:
    return LOWERINGS
