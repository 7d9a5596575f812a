"""From judgements of elements to the numbers of a chunk: the reduction that every engine of the judge performs.

`reduce` is its definition, on tensors; the fused pass gives the same `Reduced` (`verify.judge.fused`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verify.facts.formats import Format
from verify.judge.element import CLASSES, Judged
from verify.judge.regions import REGIONS
from verify.numbers.decide import BINS, CLAMP_ULP, QUANTUM

Tensor = torch.Tensor

#: Counts summed for each region, in the order of `InRegion.counts`.
COUNTED = (*CLASSES, "measured", "clamped", "sum", "sum_signed", "different", "closer", "farther", "tied", "unjudged")
#: The metrics whose largest values are kept, in the order of `InRegion.leaders`.
METRICS = ("ulp", "scaled", "share")
LEADERS = 16  # of each metric and region that a chunk keeps
NORMAL = REGIONS.index("normal")
SLOTS = 2048  # of binades, by the biased exponent of the first input as a double


@dataclass(frozen=True)
class InRegion:
    """What a chunk holds in one region, of elements that are not open.

    counts     integers in the order of COUNTED; sum and sum_signed of errors in units of 2^-16 ULP, each at most 2^10
    histogram  how many measured errors are at most each edge of BINS
    steps      the largest int_ulp
    leaders    for each of METRICS the LEADERS largest values above 0 as (value, index), equal ones by index
    """

    counts: tuple[int, ...]
    histogram: tuple[int, ...]
    steps: int
    leaders: tuple[tuple[tuple[float, int], ...], ...]


@dataclass(frozen=True)
class Reduced:
    """One chunk, as judged so far.

    regions   by index in REGIONS
    binades   (exponent, measured, misrounded, max, sum, signed sum) in units of 2^-16 ULP of the elements of region
              normal whose first input x has exponent = floor(log2 |x|), in ascending order
    formulas  (mismatches, index of the first one or -1) of each formula, over all elements, open or not
    open      int64, ascending: the elements that are left to a later stage
    """

    regions: tuple[InRegion, ...]
    binades: tuple[tuple[int, int, int, int, int, int], ...]
    formulas: tuple[tuple[int, int], ...]
    open: Tensor


def joined(parts: Sequence[tuple[int, Reduced]]) -> Reduced:
    """Reductions of parts of a chunk, each with the index of its first element, as one."""
    starts = [start for start, _ in parts]
    binades: dict[int, tuple[int, int, int, int, int]] = {}
    for _, part in parts:
        for e, count, wrong, top, total, signed in part.binades:
            n, w, t, s, d = binades.get(e, (0, 0, 0, 0, 0))
            binades[e] = (n + count, w + wrong, max(t, top), s + total, d + signed)
    fits = []
    for several in zip(*(one.formulas for _, one in parts), strict=True):
        first = min((f + start for start, (w, f) in zip(starts, several, strict=True) if w), default=-1)
        fits.append((sum(w for w, _ in several), first))
    return Reduced(
        regions=tuple(_joined(starts, same) for same in zip(*(one.regions for _, one in parts), strict=True)),
        binades=tuple((e, *binades[e]) for e in sorted(binades)),
        formulas=tuple(fits),
        open=torch.cat([one.open + start for start, one in parts]),
    )


def _joined(starts: Sequence[int], same: Sequence[InRegion]) -> InRegion:
    """One region of all parts."""
    leaders = []
    for m in range(len(METRICS)):
        some = [(v, k + start) for start, one in zip(starts, same, strict=True) for v, k in one.leaders[m]]
        leaders.append(tuple(sorted(some, key=lambda found: (-found[0], found[1]))[:LEADERS]))
    return InRegion(
        counts=tuple(map(sum, zip(*(one.counts for one in same), strict=True))),
        histogram=tuple(map(sum, zip(*(one.histogram for one in same), strict=True))),
        steps=max(one.steps for one in same),
        leaders=tuple(leaders),
    )


def quanta(error: Tensor) -> Tensor:
    """Errors in ULP as integers, in units of 2^-16 ULP, each at most 2^10 ULP."""
    return (error.clamp(max=CLAMP_ULP) * QUANTUM + 0.5).to(torch.int64)


def reduce(judged: Judged, x: Tensor | None, fmt: Format, mismatches: tuple[Tensor, ...] = ()) -> Reduced:
    """The numbers of elements of shape (n,). x: their first input, or None where binades mean nothing."""
    return Reduced(
        regions=tuple(_in_region(judged, (judged.region == k) & ~judged.open) for k in range(len(REGIONS))),
        binades=() if x is None else _binades(judged, x, fmt),
        formulas=tuple((int(wrong.sum()), first_of(wrong)) for wrong in mismatches),
        open=judged.open.nonzero()[:, 0],
    )


def first_of(which: Tensor) -> int:
    """The lowest index where it holds, or -1."""
    return int(which.to(torch.uint8).argmax()) if bool(which.any()) else -1


def _in_region(judged: Judged, here: Tensor) -> InRegion:
    index = here.nonzero()[:, 0]
    if not len(index):
        none: tuple[tuple[float, int], ...] = ()
        return InRegion((0,) * len(COUNTED), (0,) * len(BINS), 0, (none,) * 3)
    cls, error, measured = judged.cls[index], judged.error[index], judged.measured[index]
    q = torch.where(measured, quanta(error), 0)
    different, closer, farther = (t[index] for t in (judged.different, judged.closer, judged.farther))
    masks = [cls == k for k in range(len(CLASSES))]
    added = [m.sum() for m in (*masks, measured, measured & (error > CLAMP_ULP))]
    added += [q.sum(), torch.where(judged.negative[index], -q, q).sum()]
    added += [m.sum() for m in (different, closer, farther, different & ~closer & ~farther, judged.unjudged[index])]
    edges = torch.tensor(BINS, dtype=torch.float64, device=error.device)[:, None]
    return InRegion(
        counts=tuple(torch.stack(added).tolist()),
        histogram=tuple((measured & (error <= edges)).sum(1).tolist()),
        steps=int(judged.steps[index].max()),
        leaders=tuple(_leaders(t[index], index) for t in (judged.upper, judged.scaled, judged.share)),
    )


def _leaders(value: Tensor, index: Tensor) -> tuple[tuple[float, int], ...]:
    """The largest values above 0 with their indices; of equal ones those of the lowest index."""
    count = min(LEADERS, len(value))
    floor = value.topk(count).values[-1]
    some = ((value >= floor) & (value > 0)).nonzero()[:, 0]
    order = value[some].sort(descending=True, stable=True).indices[:LEADERS]
    chosen = some[order]
    return tuple(zip(value[chosen].tolist(), index[chosen].tolist(), strict=True))


def _binades(judged: Judged, x: Tensor, fmt: Format) -> tuple[tuple[int, int, int, int, int, int], ...]:
    size = x.to(torch.float64).abs()
    keep = judged.measured & ~judged.open & (judged.region == NORMAL) & torch.isfinite(size) & (size > 0)
    size, cls, q = size[keep], judged.cls[keep], quanta(judged.error[keep])
    exponent = torch.frexp(size).exponent.to(torch.int64) - 1
    low = fmt.emin - fmt.precision + 1
    slot, width = exponent - low, fmt.emax - low + 1
    zeros = torch.zeros(width, dtype=torch.int64, device=x.device)
    columns = [
        zeros.index_add(0, slot, torch.ones_like(slot)),
        zeros.index_add(0, slot, (cls != CLASSES.index("correct")).to(torch.int64)),
        zeros.scatter_reduce(0, slot, q, "amax"),
        zeros.index_add(0, slot, q),
        zeros.index_add(0, slot, torch.where(judged.negative[keep], -q, q)),
    ]
    rows = zip(*(c.tolist() for c in columns), strict=True)
    return tuple((k + low, *row) for k, row in enumerate(rows) if row[0])
