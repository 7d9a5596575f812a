"""Adam steps with one planted error each, written in plain torch, and whether the proven bound catches them.

The honest step is the same code without an error; it must pass where every mutant fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from verify import backends, kernel
from verify.cases import cases_of, settings_of
from verify.composite import Problem
from verify.kernel import Composite, Scalars, Setting
from verify.lowerings import Lowering, Target
from verify.numbers.functions import LIBRARY

Tensor = torch.Tensor


Change = Callable[[Any], Any]


def same(x: Any) -> Any:
    return x


@dataclass(frozen=True)
class Step:
    """An Adam step over a problem, in float32 between what is stored; each field but the default is an error."""

    shift: int = 0  # of the step count in both bias corrections
    shift_first: int = 0  # ... in the first alone
    shift_second: int = 0
    swapped: bool = False  # the betas
    same_beta: bool = False  # beta2 for both averages
    eps_inside: bool = False  # sqrt(v + eps)
    eps_before: bool = False  # (sqrt(v) + eps) / c: added before the correction
    no_eps: bool = False
    other_decay: bool = False  # L2 where it is decoupled, and the reverse
    no_decay: bool = False
    late_decay: bool = False  # decoupled, but after the update
    growth: bool = False  # decay with the wrong sign
    plain_decay: bool = False  # decoupled decay without lr
    uncorrected: bool = False  # sqrt(v) without its bias correction
    uncorrected_first: bool = False
    stale: bool = False  # the update takes the averages from before the step
    no_root: bool = False  # v / c^2 + eps instead of its root
    unsquared: bool = False  # v of |g|
    rest: Callable[[float], float] = same  # how 1 - beta is kept
    averages: torch.dtype | None = None  # in which the averages are kept
    update: Change = same  # of m / d
    root: Change = same  # of sqrt(v)
    gradient: Change = same
    parameter: Change = same  # before it is stored
    forgetful: bool = False  # amsgrad divides by v
    stale_maximum: bool = False  # amsgrad divides by the maximum from before the step
    uphill: bool = False  # maximize is ignored
    through_parameter: bool = False  # the step starts at the rounded parameter, not at its master copy
    missed: Callable[[int], slice] | None = None  # elements that the last step leaves as they were

    def __call__(self, problem: Problem) -> dict[str, Tensor]:
        t, s, given = (
            problem.tensors,
            {"lr": 0.0, "eps": 1.0, "weight_decay": 0.0, **problem.scalars},
            problem.parameters,
        )
        kept = t["exp_avg"].dtype
        master = "master" in t
        p = t["master" if master else "param"] if "param" in t else torch.zeros_like(t["exp_avg"])
        p, m, v = (part.float() for part in (p, t["exp_avg"], t["exp_avg_sq"]))
        x = t["max_exp_avg_sq"].float() if given["amsgrad"] else None
        beta1, beta2 = (s["beta2"], s["beta1"]) if self.swapped else (s["beta1"], s["beta2"])
        first = beta2 if self.same_beta else beta1
        decay = 0.0 if self.no_decay else -s["weight_decay"] if self.growth else s["weight_decay"]
        decoupled = problem.extra["decoupled"] != self.other_decay
        factor = 1 - (decay if self.plain_decay else s["lr"] * decay)
        for k, row in enumerate(t["grads"], given["start"] + 1):
            before = p, m, v, x
            g = self.gradient(row.float())
            g = -g if given["maximize"] and not self.uphill else g
            if self.through_parameter:
                p = p.to(t["param"].dtype).float()
            if decoupled:
                p = p if self.late_decay else p * factor
            else:
                g = g + decay * p
            old = m, v, x
            m = m * first + g * self.rest(1 - first)
            v = v * beta2 + (g.abs() if self.unsquared else g * g) * self.rest(1 - beta2)
            if self.averages is not None:
                m, v = m.to(self.averages).float(), v.to(self.averages).float()
            x = None if x is None else torch.maximum(x, v)
            over, top = (old[0], old[1]) if self.stale else (m, v)
            if x is not None and not self.forgetful:
                top = old[2] if self.stale_maximum else x  # type: ignore[assignment]
            step = s["lr"] / (1.0 if self.uncorrected_first else 1 - beta1 ** (k + self.shift + self.shift_first))
            c = 1.0 if self.uncorrected else math.sqrt(1 - beta2 ** (k + self.shift + self.shift_second))
            eps = 0.0 if self.no_eps else s["eps"]
            root = self.root(top if self.no_root else (top + eps).sqrt() if self.eps_inside else top.sqrt())
            root = root / c if self.eps_inside else (root + eps) / c if self.eps_before else root / c + eps
            p = p - step * self.update(over / root)
            p = p * factor if decoupled and self.late_decay else p
            p, m, v = (part.to(kept).float() for part in (self.parameter(p), m, v))
            x = None if x is None else x.to(kept).float()
            if self.missed is not None and k == given["start"] + given["steps"]:
                gone = self.missed(len(p))
                for part, old_part in zip((p, m, v), before, strict=False):
                    part[gone] = old_part[gone]  # type: ignore[index]
        found = {"exp_avg": m.to(kept), "exp_avg_sq": v.to(kept)}
        if "param" in t:
            found["param"] = p.to(t["param"].dtype)
        return found | ({} if x is None else {"max_exp_avg_sq": x.to(kept)}) | ({"master": p} if master else {})


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


#: torch's own, with which 1 - beta2^1000 is not 1 yet.
TORCH = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
MUTANTS = (
    Mutant("bias correction of the next step", Step(shift=1)),
    Mutant("bias correction of the next step, late", Step(shift=1), setting="1 step, resumed", scalars=TORCH),
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


def half(x: Tensor) -> Tensor:
    return x.half().float()


def brain(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def coarse(x: Tensor) -> Tensor:
    """Cut to 11 significant bits, as tf32 has them."""
    return (x.contiguous().view(torch.int32) & -(1 << 13)).view(torch.float32)


def larger(x: Tensor) -> Tensor:
    """Eight units in float32's last place too large."""
    return x * (1 + 2.0**-20)


ALL = ("adam_ema", "adam_step", "adamw_step")
STEPS = ("adam_step", "adamw_step")
EVERY = ("float32", "bfloat16")
SINGLE = ("float32",)
#: (fault, step, kernels, dtypes) of which some quick cell must tell.
QUICK: tuple[tuple[str, Step, tuple[str, ...], tuple[str, ...]], ...] = (
    ("no weight decay", Step(no_decay=True), STEPS, EVERY),
    ("decay after the update", Step(late_decay=True), ("adamw_step",), EVERY),
    ("decay with the wrong sign", Step(growth=True), STEPS, EVERY),
    ("decay without lr", Step(plain_decay=True), ("adamw_step",), EVERY),
    ("the other decay", Step(other_decay=True), STEPS, EVERY),
    ("bias corrections of the next step", Step(shift=1), STEPS, EVERY),
    ("first bias correction of the next step", Step(shift_first=1), STEPS, EVERY),
    ("second bias correction of the next step", Step(shift_second=1), STEPS, EVERY),
    ("first average not corrected", Step(uncorrected_first=True), STEPS, EVERY),
    ("second average not corrected", Step(uncorrected=True), STEPS, EVERY),
    ("eps inside the root", Step(eps_inside=True), STEPS, EVERY),
    ("eps before the correction", Step(eps_before=True), STEPS, EVERY),
    ("no eps", Step(no_eps=True), STEPS, EVERY),
    ("betas swapped", Step(swapped=True), ALL, EVERY),
    ("beta2 used for beta1", Step(same_beta=True), ALL, EVERY),
    ("no root", Step(no_root=True), STEPS, EVERY),
    ("gradients not squared", Step(unsquared=True), ALL, EVERY),
    ("update by the old averages", Step(stale=True), STEPS, EVERY),
    ("amsgrad without the maximum", Step(forgetful=True), STEPS, EVERY),
    ("amsgrad with the old maximum", Step(stale_maximum=True), STEPS, EVERY),
    ("maximize ignored", Step(uphill=True), STEPS, EVERY),
    ("one lane not updated", Step(missed=lambda n: slice(n // 2, n // 2 + 1)), ALL, EVERY),
    ("the last element not updated", Step(missed=lambda n: slice(n - 1, n)), ALL, EVERY),
    ("one block not updated", Step(missed=lambda n: slice(1024, 2048)), ALL, EVERY),
    ("1 - beta in float16", Step(rest=lambda x: float(torch.tensor(x).half())), ALL, SINGLE),
    ("1 - beta in bfloat16", Step(rest=lambda x: float(torch.tensor(x).bfloat16())), ALL, SINGLE),
    ("averages in bfloat16", Step(averages=torch.bfloat16), ALL, SINGLE),
    ("averages in float16", Step(averages=torch.float16), ALL, EVERY),
    ("gradients in bfloat16", Step(gradient=brain), ALL, SINGLE),
    ("gradients in float16", Step(gradient=half), ALL, EVERY),
    ("gradients cut to tf32", Step(gradient=coarse), ALL, SINGLE),
    ("the root in bfloat16", Step(root=brain), STEPS, SINGLE),
    ("the root in float16", Step(root=half), STEPS, SINGLE),
    ("the update in bfloat16", Step(update=brain), STEPS, SINGLE),
    ("the update cut to tf32", Step(update=coarse), STEPS, SINGLE),
    ("the parameter in bfloat16", Step(parameter=brain), STEPS, SINGLE),
    ("an update 8 units too large", Step(update=larger), STEPS, SINGLE),
)  # fmt: skip


def killed(step: Callable[[Problem], dict[str, Tensor]], name: str, dtype: str) -> str:
    """The first quick cell of the kernel in which `step` exceeds a bound; '' where it passes everywhere."""
    facts = kernel.load(name)
    assert isinstance(facts, Composite)
    for one in settings_of(facts, None, (), "quick", dtype):
        for scalars in one.cases or cases_of(facts, None, "quick"):
            for output, worst in shares_of(step, facts, one, scalars, dtype).items():
                if worst > 1:
                    return f"{one.name}, {output}: {worst:.3g} of the bound"
    return ""


def shares(step: Callable[[Problem], dict[str, Tensor]], mutant: Mutant) -> dict[str, float]:
    """The largest |y - t| / bound of each output of `step` where the mutant lives, by the loosest known algorithm."""
    facts = kernel.load(mutant.kernel)
    assert isinstance(facts, Composite)
    scalars = {**facts.cases[0], **mutant.scalars}
    return shares_of(step, facts, facts.spellings[mutant.setting], scalars, mutant.dtype)


def shares_of(
    step: Callable[[Problem], dict[str, Tensor]], facts: Composite, setting: Setting, scalars: Scalars, dtype: str
) -> dict[str, float]:
    """The same in one cell."""
    problem, known = _known(facts.name, setting.name, tuple(sorted(scalars.items())), dtype)
    return {output: share(y, *known[output]) for output, y in step(problem).items() if output in known}


@cache
def _known(
    name: str, spelling: str, scalars: tuple[tuple[str, float], ...], dtype: str
) -> tuple[Problem, dict[str, tuple[Tensor, Tensor, Tensor]]]:
    """A problem, and of each output midpoint and radius of the truth and the bound of a user's own lowering."""
    facts = kernel.load(name)
    assert isinstance(facts, Composite)
    setting = facts.spellings[spelling]
    problem: Problem = facts.problem(dtype, setting, dict(scalars), 0)
    target = Target(facts, dict(scalars), spelling, dtype, backends.load("cpu"))
    lowering = Lowering("mutant", lambda target: honest, lambda target: None)
    truth = facts.truth(problem, "cpu", LIBRARY)
    known = {}
    for output in facts.outputs_of(setting):
        limit: Any = facts.limit(problem, target, lowering, output)
        enclosure, _ = truth.enclose(output)
        known[output] = enclosure.mid[0], enclosure.rad[0], limit.bound
    return problem, known


def honest(problem: Problem) -> dict[str, Tensor]:
    return Step()(problem)


def share(y: Tensor, mid: Tensor, rad: Tensor, bound: Tensor) -> float:
    """The largest |y - t| / bound, rounded down: what is beyond 1 is wrong. NaN where there is a number, or the other
    way round, is infinitely far."""
    distance = torch.where(y.isnan() == mid.isnan(), (y.double() - mid).abs() - rad, math.inf)
    distance = torch.where(y.isnan() & mid.isnan(), 0.0, distance)
    return float(torch.where(distance <= 0, 0.0, distance / bound).nan_to_num(nan=0.0, posinf=math.inf).max())
