"""The figures of a cell and of its regions, and their text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from verify.facts.kernel import is_file
from verify.judge.regions import REGIONS
from verify.judge.status import EXIT_CODES, STATUSES, exit_code
from verify.reports.looks import LOOKS
from verify.reports.text import percent, upward

if TYPE_CHECKING:
    from verify.reports.schema import Bound, Cell, Error, Region, Worst


#: A maximum may include the radius of the enclosure that judged it, and so change with this project's arithmetic. Where
#: two results have the same bits, a relative difference below this is attributed to that.
ENCLOSURE = 2.0**-30


def code_of(cell: Cell) -> int:
    """The exit code that the cell causes."""
    own = is_file(cell.lowering)
    may = not own or as_eager(cell) or unresolved(cell)
    return exit_code(cell.status, user=own, allowed=bool(cell.allowance) and may)


def as_eager(cell: Cell) -> bool:
    """Whether all of its bits are eager's, whose allowances a user's own has then."""
    return cell.against_eager is not None and cell.against_eager.different == 0


def unresolved(cell: Cell) -> bool:
    """Whether all that is found is that no fault would be noticed: a user's own has then allowances that are for every
    lowering."""
    return cell.status == "unjudged" and cell.reason_kind == "resolution"


def fails(cell: Cell) -> bool:
    """Whether the cell ends a run with another exit code than 0."""
    return code_of(cell) != 0


def counted(cell: Cell) -> str:
    """Which of `verify.reports.looks.COUNTED` the cell is."""
    status = cell.status
    return "allowed" if EXIT_CODES[status] and not fails(cell) else LOOKS[status].counted


def maximum(error: Error, bound: Bound | None) -> tuple[float, str]:
    """The maximum error and its metric: the bound's where there is a bound, ulp otherwise."""
    if bound is None:
        return error.max_ulp, "ulp"
    if bound.measured is not None:
        return bound.measured, bound.metric
    return float(getattr(error, f"max_{bound.metric}") or 0), bound.metric


def measured(cell: Cell) -> tuple[float, str]:
    """The maximum of all regions and its metric, against the truth that the bound means; see `maximum`."""
    return maximum(cell.judged, cell.bound)


def real(error: Error, bound: Bound | None) -> tuple[float, str]:
    """The real-valued error, in scaled_ulp where the bound is, or would be, set on it; in ulp otherwise. A vendor's
    distance in steps hides errors (2 int_ulp may be 1.001 ulp or 4.499), and a share has no unit."""
    scaled = bound is not None and bound.metric in ("scaled_ulp", "share") and error.max_scaled_ulp is not None
    metric = "scaled_ulp" if scaled else "ulp"
    if bound is not None and bound.metric == metric and bound.measured is not None:
        return bound.measured, metric
    return float(getattr(error, f"max_{metric}") or 0), metric


def part_of(error: Error, bound: Bound | None) -> float | None:
    """The largest error over what it may be: above 1 the bound is exceeded. None without a bound."""
    if bound is None:
        return None
    # what an element may be is the bound and, where an intermediate underflows, more
    return maximum(error, bound)[0] / bound.value if error.max_share is None else error.max_share


def region_part(region: Region) -> float | None:
    """As `part_of`; None where the region passed by a formula that the kernel admits, and not by its bound."""
    part = part_of(region.error, region.bound)
    return None if part is not None and part > 1 and region.status == "passed" else part


def headline(cell: Cell) -> tuple[Error, Bound | None]:
    """The part of a cell that represents it: region `normal`; where that is empty, the largest region; without regions,
    all of it."""
    if not cell.regions:
        return cell.judged, cell.bound
    region = cell.regions.get("normal") or max(cell.regions.values(), key=lambda one: one.inputs)
    return region.error, region.bound


def share(cell: Cell) -> float | None:
    """The largest error over what it may be, of all regions: see `part_of`. None where nothing has both."""
    if cell.error is None:
        return None
    parts = [region_part(one) for one in cell.regions.values()] or [part_of(cell.judged, cell.bound)]
    return max((part for part in parts if part is not None), default=None)


def excess_of(cell: Cell, region: Region | None) -> float:
    """The share of a region, or of a cell without regions; 0 where there is none."""
    return (share(cell) if region is None else region_part(region)) or 0.0


def figures(cell: Cell) -> dict[str, str]:
    """The printed figures of a cell that ran, by column title: the one place where figures become text. Error,
    bound, share and max ulp are of its `headline`."""
    against = cell.against_eager
    assert cell.error is not None
    closer, farther, tied = ("-",) * 3 if against is None else map(str, (against.closer, against.farther, against.tied))
    return {
        **region_figures(*headline(cell)),
        "misrounded": percent(cell.error.misrounded, cell.inputs),
        "closer": closer,
        "farther": farther,
        "tied": tied,
    }


def region_figures(error: Error, bound: Bound | None) -> dict[str, str]:
    """As `figures`, of some elements of a cell. A bound in another metric than the error's has its maximum with it."""
    value, metric = real(error, bound)
    part = part_of(error, bound)
    return {
        "error": upward(value),
        "metric": metric,
        "bound": limit_text(error, bound),
        "share": "-" if part is None else f"{upward(100 * part, 3)}%",
        "misrounded": percent(error.misrounded, error.inputs),
        "max ulp": upward(error.max_ulp),
    }


def figures_of(region: Region) -> dict[str, str]:
    """As `region_figures`; a region that passed by a formula has no share."""
    told = region_figures(region.error, region.bound)
    return told if region_part(region) is not None or region.bound is None else {**told, "share": "formula"}


def limit_text(error: Error, bound: Bound | None) -> str:
    if bound is None:
        return "none"
    value, metric = maximum(error, bound)
    if metric == real(error, bound)[1]:
        return f"{bound.value:.6g}"
    return f"{upward(value)} of {bound.value:.6g} {metric}"


def telling(cell: Cell) -> dict[str, Region]:
    """The regions listed beside the headline: those that did not pass, and those with a larger error. Worst
    first, `normal` before others of its status."""
    normal = cell.regions.get("normal")
    least = None if normal is None else real(normal.error, normal.bound)

    def larger(region: Region) -> bool:
        value, metric = real(region.error, region.bound)
        return least is not None and metric == least[1] and value > least[0] and upward(value) != upward(least[0])

    chosen = {name: one for name, one in cell.regions.items() if one.status != "passed" or larger(one)}
    order = sorted(
        chosen, key=lambda name: (STATUSES.index(chosen[name].status), name != "normal", REGIONS.index(name))
    )
    return {name: chosen[name] for name in order}


def worst_of(cell: Cell) -> Sequence[Worst]:
    """The worst elements of what stands for the cell: see `headline`."""
    normal = cell.regions.get("normal")
    return (normal.worst if normal is not None else []) or cell.worst
