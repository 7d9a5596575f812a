"""Recurrences of many steps on many elements, an optimizer's: how far an algorithm may be from the real recurrence.

One step of what is computed is y' = F(y), y the numbers that are stored, with |F(y) - T(y)| <= d, T the real step: the
step's own roundings, from running the declared formula in `roundoff` on y, whatever y is within its error of the truth.
Then |y' - T(s)| <= d + |T(y) - T(s)|, s the truth, where the second term comes from running the real step itself in
`roundoff` on s with the errors so far (a running error bound, Higham 2002, 3.3). So an average's errors fade as the
average forgets, although its formula, m + w (g - m), takes m twice. What a kernel's steps are is its oracle's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

import torch

from verify.facts.formats import FORMATS, Format
from verify.numbers.ball import U
from verify.numbers.roundoff import UP, Rough, Roundoff

Tensor = torch.Tensor
#: The parts of a state; None for what a kernel has not.
Parts: TypeAlias = "Sequence[Rough | None]"
DOUBLE = FORMATS["float64"]
#: Radii of the truth that a bound allows beside the error: the judge's own, twice, with room.
OF_TRUTH = 4.0


@dataclass(frozen=True)
class Step:
    """One step: `rounded`, what is computed of stored numbers, stored again; `real`, the exact recurrence."""

    rounded: Callable[[Parts], Parts]
    real: Callable[[Parts], Parts]


def real_system(n: Roundoff) -> Roundoff:
    """The system for `Step.real`: float64, whose own roundings are counted too."""
    return replace(n, compute=DOUBLE, flush=0.0)


def running(
    n: Roundoff, start: Sequence[Tensor | None], positive: Sequence[bool], steps: Iterable[Step], period: int = 0
) -> Parts:
    """The state after all steps: `error` bounds how far what is computed in n is from the exact value within `rad` of
    `mid`. start: exact, of n's storage dtype, of one shape. positive: what is never negative. period: the steps repeat
    themselves after so many (0: they do not), so that nothing changes any more once a period has changed nothing.
    """
    real = real_system(n)
    state: Parts = [None if t is None else real.given(t.to(torch.float64)) for t in start]
    before: Parts = []
    walk = iter(steps)
    for done, step in enumerate(walk, 1):
        state = _after(n, state, positive, step)
        if period and done % period == 0:
            if before and _same(before, state):
                rest = [*islice(walk, period)]
                left = len(rest) + sum(1 for _ in walk)
                for step in rest[: left % period]:
                    state = _after(n, state, positive, step)
                break
            before = state
    return state


def _after(n: Roundoff, state: Parts, positive: Sequence[bool], step: Step) -> Parts:
    own = step.rounded([_stored(n, part, sign) for part, sign in zip(state, positive, strict=True)])
    found = step.real([_signed(part, sign) for part, sign in zip(state, positive, strict=True)])
    return [_with(part, rounding) for part, rounding in zip(found, own, strict=True)]


def _same(one: Parts, other: Parts) -> bool:
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    return all(
        torch.equal(getattr(a, name).expand_as(a.mid), getattr(b, name).expand_as(b.mid))
        for a, b in pairs
        for name in ("mid", "rad", "error")
    )


def _stored(n: Roundoff, part: Rough | None, positive: bool) -> Rough | None:
    """Any number of the storage format within the error of the truth; a subnormal one may be flushed."""
    if part is None:
        return None
    given = n.given(part.mid, (part.rad + part.error) * UP)
    if n.flush:
        most = (part.mid.abs() + given.rad).clamp(max=n.flush)
        given = replace(given, error=torch.where(part.mid.abs() - given.rad <= n.flush, most, 0.0))
    return replace(given, positive=positive, held=n.storage)


def _signed(part: Rough | None, positive: bool) -> Rough | None:
    return None if part is None else replace(part, positive=positive)


def _with(part: Rough | None, rounding: Rough | None) -> Rough | None:
    if part is None or rounding is None:
        return None
    error = part.error + rounding.error
    return replace(part, error=torch.where(error > 0, error * UP, error).expand_as(part.mid))


def bound_of(part: Rough, mid: Tensor, rad: Tensor, compute: Format) -> Tensor:
    """What |computed - truth| is at most, for a judge who knows the truth to within `rad` of `mid`.

    0 where the truth is NaN, which nothing but NaN is near; infinite where it is infinite or may leave the range of
    `compute`: an infinity of the recurrence is a NaN of algorithms that subtract.
    """
    bound = (part.error + part.rad + OF_TRUTH * rad) * UP
    bound = torch.where(mid.abs() + bound <= float(compute.max_finite), bound, math.inf)
    return torch.where(mid.isnan(), 0.0, bound)


def rounded_once(bound: Tensor, mid: Tensor, rad: Tensor, fmt: Format) -> Tensor:
    """`bound` of a number that is rounded once more, to `fmt`."""
    size = mid.abs() + rad + bound
    found = bound + size * float(fmt.unit_roundoff) + float(fmt.smallest_subnormal)
    return found * (UP + 4 * U)


def widest(bounds: Sequence[Tensor], stated: bool = False) -> Tensor:
    """Element by element the largest; stated: of those that are finite, where any is."""
    found = bounds[0]
    for other in bounds[1:]:
        largest = torch.maximum(found, other)
        found = torch.where(largest.isinf(), torch.minimum(found, other), largest) if stated else largest
    return found
