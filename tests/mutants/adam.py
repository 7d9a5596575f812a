"""Adam steps with one planted error each, written in plain torch; the same code without an error is correct."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from verify.families.composite import Problem

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
    skipped: bool = False  # the last step is left out
    square: Change = same  # of g
    lerped: bool = False  # no error: m + (1 - beta1) (g - m)
    folded: bool = False  # no error: m / (sqrt(v) + eps c) by lr c / (1 - beta1^t), c the second correction's root
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
            if self.skipped and k == given["start"] + given["steps"]:
                continue
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
            m = m + (g - m) * (1 - first) if self.lerped else m * first + g * self.rest(1 - first)
            v = v * beta2 + (g.abs() if self.unsquared else self.square(g * g)) * self.rest(1 - beta2)
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
            if self.folded:
                p = p - step * c * (m / (top.sqrt() + s["eps"] * c))
            else:
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
#: (fault, step, kernels, dtypes)
FAULTS: tuple[tuple[str, Step, tuple[str, ...], tuple[str, ...]], ...] = (
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
    ("one step left out", Step(skipped=True), ALL, EVERY),
    ("1 - beta in float16", Step(rest=lambda x: float(torch.tensor(x).half())), ALL, SINGLE),
    ("1 - beta in bfloat16", Step(rest=lambda x: float(torch.tensor(x).bfloat16())), ALL, SINGLE),
    ("averages in bfloat16", Step(averages=torch.bfloat16), ALL, SINGLE),
    ("averages in float16", Step(averages=torch.float16), ALL, EVERY),
    ("gradients in bfloat16", Step(gradient=brain), ALL, SINGLE),
    ("gradients in float16", Step(gradient=half), ALL, EVERY),
    ("gradients cut to tf32", Step(gradient=coarse), ALL, SINGLE),
    ("squares in bfloat16", Step(square=brain), ALL, SINGLE),
    ("squares cut to tf32", Step(square=coarse), ALL, SINGLE),
    ("squares 8 units too large", Step(square=larger), ALL, SINGLE),
    ("the root in bfloat16", Step(root=brain), STEPS, SINGLE),
    ("the root in float16", Step(root=half), STEPS, SINGLE),
    ("the update in bfloat16", Step(update=brain), STEPS, SINGLE),
    ("the update cut to tf32", Step(update=coarse), STEPS, SINGLE),
    ("the parameter in bfloat16", Step(parameter=brain), STEPS, SINGLE),
    ("an update 8 units too large", Step(update=larger), STEPS, SINGLE),
    ("master copy not used", Step(through_parameter=True), STEPS, ("bfloat16",)),
)  # fmt: skip
#: (variant, step, kernels) that are correct.
VARIANTS: tuple[tuple[str, Step, tuple[str, ...]], ...] = (
    ("averages of two products", Step(), ALL),
    ("averages by their difference", Step(lerped=True), ALL),
    ("bias correction in the step size", Step(folded=True), STEPS),
)
