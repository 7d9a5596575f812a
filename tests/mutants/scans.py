"""Planted defects of sums, scans and softmax, each as someone has written it, wrong in one place.

A mutant takes (x, dim) as torch's function does. `DEFECTS` says on which problem it must exceed its bound, or miss a
class, and as what it is judged: as a lowering of one's own, in any order with float32 accumulators, or as the
reference, whose algorithm is known and whose bound is the tighter one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from verify import backends
from verify.facts import kernel
from verify.facts.kernel import Composite, Setting, is_file
from verify.families import rows_settings
from verify.lower.lowering import Lowering, Target
from verify.walk.cells import fill
from verify.walk.plan import Job, Selection

Tensor = torch.Tensor
Mutant = Callable[[Tensor, int], Tensor]


def wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


# Honest ones, beside which the mutants stand.


def softmax(x: Tensor, dim: int) -> Tensor:
    e = torch.exp(wide(x) - wide(x).amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def log_add_exp(a: Tensor, b: Tensor) -> Tensor:
    high, low = torch.maximum(a, b), torch.minimum(a, b)
    d = torch.where(low == high, 0.0, low - high)
    return high + torch.log1p(torch.exp(d))


def left_to_right(x: Tensor, dim: int, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    found: list[Tensor] = []
    for part in x.unbind(dim):
        found.append(combine(found[-1], part) if found else part)
    return torch.stack(found, dim)


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return left_to_right(wide(x), dim, log_add_exp).to(x.dtype)


def cumsum(x: Tensor, dim: int) -> Tensor:
    return left_to_right(wide(x), dim, torch.add).to(x.dtype)


def cumprod(x: Tensor, dim: int) -> Tensor:
    return left_to_right(wide(x), dim, torch.mul).to(x.dtype)


def total(x: Tensor, dim: int) -> Tensor:
    return cumsum(x, dim).select(dim, -1)


def cummax(x: Tensor, dim: int) -> Tensor:
    return left_to_right(x, dim, torch.maximum)


def cummin(x: Tensor, dim: int) -> Tensor:
    return left_to_right(x, dim, torch.minimum)


HONEST: dict[str, Mutant] = {
    "softmax": softmax, "logcumsumexp": logcumsumexp, "cumsum": cumsum, "cumprod": cumprod, "sum": total,
    "cummax": cummax, "cummin": cummin,
}  # fmt: skip


# Defects.


def softmax_without_maximum(x: Tensor, dim: int) -> Tensor:
    """exp of the numbers themselves: inf / inf above 88."""
    e = torch.exp(wide(x))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def softmax_of_another_maximum(x: Tensor, dim: int) -> Tensor:
    """The maximum of all rows instead of each: rows that lie far below it lose everything."""
    e = torch.exp(wide(x) - wide(x).nan_to_num(nan=-torch.inf, posinf=-torch.inf).max())
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def softmax_rounded_on_the_way(x: Tensor, dim: int) -> Tensor:
    """Exponentials in the storage dtype, sum too."""
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True).to(x.dtype)


def logcumsumexp_without_maximum(x: Tensor, dim: int) -> Tensor:
    return torch.log(torch.cumsum(torch.exp(wide(x)), dim)).to(x.dtype)


def logcumsumexp_by_log(x: Tensor, dim: int) -> Tensor:
    """log(1 + e) for log1p(e)."""

    def combine(a: Tensor, b: Tensor) -> Tensor:
        high, low = torch.maximum(a, b), torch.minimum(a, b)
        return high + torch.log(1 + torch.exp(torch.where(low == high, 0.0, low - high)))

    return left_to_right(wide(x), dim, combine).to(x.dtype)


def narrow_cumsum(x: Tensor, dim: int) -> Tensor:
    """The accumulator has the dtype of the tensor."""
    return left_to_right(x, dim, torch.add)


def narrow_sum(x: Tensor, dim: int) -> Tensor:
    return narrow_cumsum(x, dim).select(dim, -1)


def narrow_cumprod(x: Tensor, dim: int) -> Tensor:
    return left_to_right(x, dim, torch.mul)


def narrow_logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return left_to_right(x, dim, lambda a, b: log_add_exp(a.float(), b.float()).to(x.dtype))


def exclusive_cumsum(x: Tensor, dim: int) -> Tensor:
    y = cumsum(x, dim)
    return torch.cat([torch.zeros_like(y.narrow(dim, 0, 1)), y.narrow(dim, 0, y.shape[dim] - 1)], dim)


def exclusive_cumprod(x: Tensor, dim: int) -> Tensor:
    y = cumprod(x, dim)
    return torch.cat([torch.ones_like(y.narrow(dim, 0, 1)), y.narrow(dim, 0, y.shape[dim] - 1)], dim)


def exclusive_logcumsumexp(x: Tensor, dim: int) -> Tensor:
    y = logcumsumexp(x, dim)
    return torch.cat([torch.full_like(y.narrow(dim, 0, 1), -torch.inf), y.narrow(dim, 0, y.shape[dim] - 1)], dim)


def lost_carry(honest: Mutant, block: int) -> Mutant:
    """Each block begins anew."""
    return lambda x, dim: torch.cat([honest(part, dim) for part in x.split(block, dim)], dim)


def carry_of_the_first_element(x: Tensor, dim: int) -> Tensor:
    """The carry into the second block is what its predecessor began with, not what it ended with."""
    first, second = x.split([16, x.shape[dim] - 16], dim)
    carry = cumsum(first, dim).select(dim, 0).unsqueeze(dim)
    return torch.cat([cumsum(first, dim), (wide(carry) + cumsum(wide(second), dim)).to(x.dtype)], dim)


def sum_without_tail(x: Tensor, dim: int) -> Tensor:
    """Vectors of eight; what is left over is forgotten."""
    return total(x.narrow(dim, 0, x.shape[dim] // 8 * 8), dim)


def product_by_logarithms(x: Tensor, dim: int) -> Tensor:
    """exp of the sum of logarithms, the sign apart."""
    sign = torch.cumprod(torch.sign(wide(x)), dim)
    return (sign * torch.exp(torch.cumsum(torch.log(wide(x).abs()), dim))).to(x.dtype)


def maximum_without_nans(x: Tensor, dim: int) -> Tensor:
    return left_to_right(x, dim, torch.fmax)


def maximum_of_zeros(x: Tensor, dim: int) -> Tensor:
    """Starts from 0 instead of -inf."""
    return cummax(x, dim).clamp(min=0)


def one_wrong_element(x: Tensor, dim: int) -> Tensor:
    """One step of the last place, at one place of 2^20."""
    y = torch.cumsum(x, dim)
    flat = y.reshape(-1)
    place = 2 * flat.numel() // 3
    flat.view(torch.int32)[place] += 1
    return y


def single_accumulator(x: Tensor, dim: int) -> Tensor:
    """float32 where the reference accumulates in float64."""
    return left_to_right(x, dim, torch.add)


def single_logarithms(x: Tensor, dim: int) -> Tensor:
    return left_to_right(x, dim, log_add_exp)


@dataclass(frozen=True)
class Defect:
    """A mutant of `kernel` on rows of `recipe`. reference: judged as the lowering `eager` of the CPU."""

    kernel: str
    mutant: Mutant
    recipe: str
    dtype: str = "float32"
    shape: tuple[int, ...] = (4, 70)
    reference: bool = False


DEFECTS: dict[str, Defect] = {
    "softmax without the maximum": Defect("softmax", softmax_without_maximum, "wide"),
    "softmax with the maximum of all rows": Defect("softmax", softmax_of_another_maximum, "mixed", shape=(60, 5)),
    "softmax rounded on the way": Defect("softmax", softmax_rounded_on_the_way, "random", "bfloat16"),
    "logcumsumexp without the maximum": Defect("logcumsumexp", logcumsumexp_without_maximum, "wide"),
    "log(1 + x) for log1p": Defect("logcumsumexp", logcumsumexp_by_log, "dominated"),
    "cumsum in float16": Defect("cumsum", narrow_cumsum, "random", "float16"),
    "cumsum in bfloat16": Defect("cumsum", narrow_cumsum, "equal", "bfloat16"),
    "sum in float16": Defect("sum", narrow_sum, "ascending", "float16"),
    "cumprod in float16": Defect("cumprod", narrow_cumprod, "random", "float16"),
    "logcumsumexp in bfloat16": Defect("logcumsumexp", narrow_logcumsumexp, "equal", "bfloat16"),
    "exclusive cumsum": Defect("cumsum", exclusive_cumsum, "random"),
    "exclusive cumprod": Defect("cumprod", exclusive_cumprod, "random"),
    "exclusive logcumsumexp": Defect("logcumsumexp", exclusive_logcumsumexp, "random"),
    "carry lost at a border": Defect("cumsum", lost_carry(cumsum, 32), "random"),
    "carry lost at a border, logcumsumexp": Defect("logcumsumexp", lost_carry(logcumsumexp, 32), "descending"),
    "carry lost at a border, cummax": Defect("cummax", lost_carry(cummax, 32), "descending"),
    "carry lost at a border, cummin": Defect("cummin", lost_carry(cummin, 32), "ascending"),
    "carry of the first element": Defect("cumsum", carry_of_the_first_element, "random"),
    "sum without its tail": Defect("sum", sum_without_tail, "random"),
    "product by logarithms": Defect("cumprod", product_by_logarithms, "wide", shape=(40, 12)),
    "maximum that passes over NaNs": Defect("cummax", maximum_without_nans, "nans"),
    "maximum that starts from 0": Defect("cummax", maximum_of_zeros, "equal"),
    "one wrong element in 2^20": Defect("cumsum", one_wrong_element, "random", shape=(1 << 20,), reference=True),
    "cumsum in float32": Defect("cumsum", single_accumulator, "random", reference=True),
    "logcumsumexp in float32": Defect("logcumsumexp", single_logarithms, "random", reference=True),
}


def cell(defect: Defect, mutant: Mutant | None = None) -> dict[str, Any]:
    """The cell of the mutant, or of another function in its place."""
    facts = kernel.load(defect.kernel)
    assert isinstance(facts, kernel.Composite)
    setting: Setting = rows_settings.setting("planted", defect.shape, recipe=defect.recipe)
    function = defect.mutant if mutant is None else mutant
    name = "eager" if defect.reference else "mutants.py:planted"
    lowering = Lowering(
        name,
        lambda target: lambda problem: {"": function(problem.tensors["x"], problem.parameters["dim"])},
        lambda target: None,
    )
    return filled(facts, setting, defect.dtype, lowering)


def filled(
    facts: Composite, setting: Setting, dtype: str, lowering: Lowering, backend: Any = None,
    scalars: Mapping[str, float] | None = None, held: list[Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The cell of a lowering on a setting. held: keeps the case for the next one."""
    backend = backend or backends.load("cpu")
    target = Target(facts, dict(facts.cases[0] if scalars is None else scalars), setting.name, dtype, backend)
    job = Job(target, lowering, lowering.reason(target), is_file(lowering.name), setting)
    (found,) = fill(job, [] if held is None else held, Selection(kernels=(facts.name,)))
    return found
