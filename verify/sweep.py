"""Exhaustive sweeps: every pattern of a float32 input, as fast as the memory allows.

On the host a chunk takes the native decision, without special rows where none applies. On a GPU
one compiled reduction judges hundreds of chunks a launch, and the chunks that it leaves open, or
that may hold a worst case, go through `verify.check` like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from verify.check import Checked, Checker, digests
from verify.domains import CHUNK, Domain
from verify.formats import Format
from verify.identify import Identification, count
from verify.launch import launch, launch_checked
from verify.tally import WORST, Tally

if TYPE_CHECKING:
    from verify.run import Case, Job

Tensor = torch.Tensor
SAMPLED = 64  # every 64th chunk is sampled in multiprecision


def suits(domain: Domain, fmt: Format) -> bool:
    """Whether a domain is large enough for this module."""
    return domain.kind == "exhaustive" and fmt.bits == 32


def sweep(
    case: Case, job: Job, reference: Callable[..., Tensor] | None
) -> tuple[dict[str, Checked], Identification, float]:
    """As `verify.run.walk`."""
    call = job.lowering.build(job.target)
    applies = anything_special(case.checkers["exact"])
    found, formula, seconds = {truth: [Checked()] for truth in case.checkers}, Identification(), 0.0
    floors = dict.fromkeys(case.checkers, 0.0)
    for number in case.domain.chunks():
        inputs = case.chunk(number)
        launched = (launch if number else launch_checked)(call, inputs, case.backend, job.lowering.name)
        seconds += launched.seconds
        eager = None if reference is None else case.eager(number, job.target.spelling, reference)
        plain = not bool(applies(inputs[0]))
        for truth, checker in case.checkers.items():
            part = checker.check(
                number * CHUNK, inputs, launched.output, eager, plain, floors[truth], number % SAMPLED == 0
            )
            _push(found[truth], part)
            worst = _worst(found[truth])
            floors[truth] = worst[-1].ulp if len(worst) == WORST else 0.0
        _push(found["exact"], Checked(digests(number, inputs, launched.output, case.fmt)))
        if case.formulas:
            count(formula, case.predictions(number), case.fmt, inputs, launched.output)
    return {truth: sum(parts, Checked()) for truth, parts in found.items()}, formula, seconds


def anything_special(checker: Checker) -> Callable[[Tensor], Tensor]:
    """Whether a chunk of one input holds a NaN, an infinity, a subnormal, or an element of a special row."""
    names, oracle, fmt = checker.names, checker.oracle, checker.fmt
    small = float(fmt.smallest_normal)

    def anything(x: Tensor) -> Tensor:
        hit = ~torch.isfinite(x) | (x.abs() < small)
        values = {name: checker.ball.input(x) for name in names}
        values |= {name: checker.ball.const(v) for name, v in checker.scalars.items()}
        for row in oracle.rows:
            hit = hit | row.when(checker.ball, **values)
        return hit.any()

    compiled: Callable[[Tensor], Tensor] = torch.compile(anything, fullgraph=True, dynamic=False)
    return compiled


def _push(parts: list[Checked], part: Checked) -> None:
    """Merge like a binary counter: tuples of digests are then copied log n times, not n times."""
    parts.append(part)
    size = sum(_weight(p) for p in parts[-1:])
    while len(parts) > 1 and _weight(parts[-2]) <= max(_weight(parts[-1]), size):
        last = parts.pop()
        parts[-1] = parts[-1] + last


def _weight(part: Checked) -> int:
    return part.main.inputs + part.range.inputs + CHUNK * len(part.main.digests)


def _worst(parts: list[Checked]) -> tuple[Any, ...]:
    merged = Tally()
    for part in parts:
        merged = merged.merge(Tally(worst=part.main.worst))
    return merged.worst
