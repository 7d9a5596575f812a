"""Adam steps with one planted error each, written in plain torch, and whether the proven bound catches them.

The honest step is the same code without an error; it must pass where every mutant fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from verify import backends, kernel
from verify.assess import Instance
from verify.composite import Problem
from verify.kernel import Composite
from verify.lowerings import Lowering, Target

Tensor = torch.Tensor


@dataclass(frozen=True)
class Step:
    """An Adam step over a problem; each field but the default is an error."""

    shift: int = 0  # of the step count in both bias corrections
    swapped: bool = False  # the betas
    eps_inside: bool = False  # sqrt(v + eps)
    other_decay: bool = False  # L2 where it is decoupled, and the reverse
    uncorrected: bool = False  # sqrt(v) without its bias correction
    rest: Callable[[float], float] = lambda x: x  # how 1 - beta is kept
    averages: torch.dtype | None = None  # in which the averages are kept
    forgetful: bool = False  # amsgrad divides by v
    uphill: bool = False  # maximize is ignored
    through_parameter: bool = False  # the step starts at the rounded parameter, not at its master copy

    def __call__(self, problem: Problem) -> dict[str, Tensor]:
        t, s, given = problem.tensors, problem.scalars, problem.parameters
        master = "master" in t
        p = t["master" if master else "param"].clone()
        m, v = t["exp_avg"].clone(), t["exp_avg_sq"].clone()
        x = t["max_exp_avg_sq"].clone() if given["amsgrad"] else None
        beta1, beta2 = (s["beta2"], s["beta1"]) if self.swapped else (s["beta1"], s["beta2"])
        decoupled = problem.extra["decoupled"] != self.other_decay
        for k, row in enumerate(t["grads"], given["start"] + 1):
            g = row.to(p.dtype)
            g = -g if given["maximize"] and not self.uphill else g
            if self.through_parameter:
                p = p.to(t["param"].dtype).to(p.dtype)
            if decoupled:
                p = p * (1 - s["lr"] * s["weight_decay"])
            else:
                g = g + s["weight_decay"] * p
            m = m * beta1 + g * self.rest(1 - beta1)
            v = v * beta2 + g * g * self.rest(1 - beta2)
            if self.averages is not None:
                m, v = m.to(self.averages).to(p.dtype), v.to(self.averages).to(p.dtype)
            x = None if x is None else torch.maximum(x, v)
            top = v if x is None or self.forgetful else x
            step = s["lr"] / (1 - beta1 ** (k + self.shift))
            root2 = 1.0 if self.uncorrected else math.sqrt(1 - beta2 ** (k + self.shift))
            root = (top + s["eps"]).sqrt() / root2 if self.eps_inside else top.sqrt() / root2 + s["eps"]
            p = p - step * m / root
        found = {"param": p.to(t["param"].dtype), "exp_avg": m, "exp_avg_sq": v}
        return found | ({} if x is None else {"max_exp_avg_sq": x}) | ({"master": p} if master else {})


@dataclass(frozen=True)
class Mutant:
    name: str
    step: Step
    kernel: str = "adamw_step"
    setting: str = "10 steps"
    dtype: str = "float32"
    scalars: dict[str, float] = field(default_factory=dict)


def float16(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float16))


MUTANTS = (
    Mutant("bias correction of the next step", Step(shift=1)),
    Mutant("bias correction of the next step, late", Step(shift=1), setting="1 step, resumed"),
    Mutant("betas swapped", Step(swapped=True)),
    Mutant("eps inside the root", Step(eps_inside=True)),
    Mutant("L2 instead of decoupled decay", Step(other_decay=True)),
    Mutant("decoupled instead of L2 decay", Step(other_decay=True), "adam_step", scalars={"weight_decay": 0.01}),
    Mutant("second average not corrected", Step(uncorrected=True)),
    Mutant("1 - beta in float16", Step(rest=float16)),
    Mutant("1 - beta in float16, one step", Step(rest=float16), setting="1 step, resumed"),
    Mutant("averages in bfloat16", Step(averages=torch.bfloat16)),
    Mutant("amsgrad without the maximum", Step(forgetful=True), setting="amsgrad, maximize"),
    Mutant("maximize ignored", Step(uphill=True), setting="amsgrad, maximize"),
    Mutant("master copy not used", Step(through_parameter=True), setting="master", dtype="bfloat16"),
)


def shares(step: Step, mutant: Mutant) -> dict[str, float]:
    """The largest |y - t| / bound of each output of `step` where the mutant lives, by the loosest known algorithm."""
    facts = kernel.load(mutant.kernel)
    assert isinstance(facts, Composite)
    scalars = {**facts.cases[0], **mutant.scalars}
    backend = backends.load("cpu")
    instance = Instance(facts, facts.spellings[mutant.setting], scalars, mutant.dtype, backend, 0)
    target = Target(facts, scalars, mutant.setting, mutant.dtype, backend)
    lowering = Lowering("mutant", lambda target: step, lambda target: None)
    found: dict[str, float] = {}
    for output, y in step(instance.problem).items():
        limit: Any = facts.limit(instance.problem, target, lowering, output)
        found[output] = instance.judge(output, y).judge(y, None, limit).share
    return found
