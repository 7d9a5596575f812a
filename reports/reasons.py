"""Why a cell, or a region of it, did not pass, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from verify.numbers.ulp import FAILING
from verify.reports.figures import maximum
from verify.reports.text import count_text, upward

if TYPE_CHECKING:
    from verify.reports.schema import Bound, Calls, Cell, Error, Part, Region, Report

NAMED = 3  # calls of those that fail


def why_failed(cell: Cell) -> str:
    """The reason of a cell that failed: the run's own, else what was undecided, else the excess over the bound."""
    undecided = cell.error.undecided if cell.error else 0
    return cell.reason or (f"{count_text(undecided, 'element')} undecided" if undecided else excess(cell))


def beside_regions(cell: Cell) -> list[tuple[str, str]]:
    """What is wrong with a cell and shows in no region, as status and text: results that differ, broken properties,
    and a status that no region has."""
    if not cell.regions:
        return []
    found = []
    if cell.distinct > 1 and cell.status != "unsteady":
        found.append(("unsteady", f"{cell.distinct} different results in {cell.repeats} launches, all judged"))
    if cell.calls and cell.calls.different and (status := _of_calls(cell.calls)) and cell.reason_kind != "calls":
        how, names = "give other bits" if status == "unsteady" else "fail", cell.calls.different
        which = ", ".join((*names[:NAMED], *([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])))
        found.append((status, f"{len(names)} of {cell.calls.made} other calls {how}: {which}"))
    for one in cell.properties:
        if one.violations:
            at = f", such as {','.join(one.witness)}" if one.witness else ""
            found.append(
                ("exceeds-bound", f"the property {one.name} is broken by {one.violations} of {one.inputs}{at}")
            )
    own = cell.status not in ("passed", *(region.status for region in cell.regions.values()))
    if own and (cell.reason_kind != "property" or not found):
        found.insert(0, (cell.status, cell.reason or cell.reason_kind))
    return found


def statuses_beside(cell: Cell) -> tuple[str, ...]:
    """Statuses that a cell has by its launches and by other calls than the walk's, whatever its elements are."""
    by_calls = _of_calls(cell.calls) if cell.calls else ""
    return tuple(dict.fromkeys(filter(None, ("unsteady" if cell.distinct > 1 else "", by_calls))))


def _of_calls(calls: Calls) -> str:
    """'' where the calls say nothing against the cell. Reports of earlier versions name no status of them."""
    return calls.status or ("unsteady" if calls.different and not calls.note else "")


def calls_text(cell: Cell) -> str:
    """What other calls than the walk's gave; '' where none were made."""
    if cell.calls is None:
        return ""
    told = {"other bits": cell.calls.different, "refused": cell.calls.refused, "not made": cell.calls.untried}
    listed = (f"{what} {len(names)}: {', '.join(names)}" for what, names in told.items() if names)
    return "; ".join([f"{cell.calls.made} made", *listed])


def region_reason(name: str, region: Region) -> str:
    """'in normal: 89.2 ulp against the bound 2 (CUDA C++ ...) [ids of the ledger]'."""
    text = region.reason.text or against(region.error, region.bound)
    return f"in {name}: {text}{ledger_text(region.reason.ledger)}"


def ledger_text(ids: Sequence[str]) -> str:
    return f" [ledger: {', '.join(ids)}]" if ids else ""


def excess(cell: Cell) -> str:
    """'89.2 ulp against the bound 2 (its source); 3 flushed', of all elements."""
    if cell.error is None:
        return ""
    counts = {name: getattr(cell.judged, name) for name in FAILING if not (name == "flushed" and cell.ftz)}
    classes = (f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
    return "; ".join([against(cell.judged, cell.bound), *classes])


def against(error: Error, bound: Bound | None) -> str:
    value, metric = maximum(error, bound)
    source = f" ({bound.source})" if bound is not None and bound.source else ""
    limit = "no bound" if bound is None else f"the bound {bound.value:.6g}{source}"
    return f"{upward(value)} {metric} against {limit}"


def lacking(report: Report) -> list[str]:
    """What a report lacks of the whole run, where it was interrupted or is of shards."""
    told = ["interrupted: it lacks cells"] if report.interrupted else []
    if report.shard is not None:
        there = sorted({report.shard.index, *report.shard.others})
        shards = "shards" if len(there) > 1 else "shard"
        told.append(f"{shards} {', '.join(map(str, there))} of {report.shard.of}: the others have the rest of the run")
    return told


def part_text(part: Part) -> str:
    """How far a sweep that is divided among shards has come, and what it would be if the rest were like it."""
    scalars = "".join(f" {name}={value!r}" for name, value in part.scalars.items())
    name = f"{part.kernel}{scalars} {part.backend} {part.dtype} {part.lowering} {part.spelling}"
    first = int(part.found["start"])  # type: ignore[arg-type]
    told = f"{100 * part.inputs / part.size:.4g}% of its {part.size} inputs are judged, from element {first}"
    return f"{name}: {told}; {part.status} so far"


def parts_of(report: Report) -> list[tuple[str, Part]]:
    return [(part_text(part), part) for part in (report.shard.parts if report.shard else ())]
