"""Lines about single cells below a table: worst elements, failures, deviations and remarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from verify.facts.kernel import is_file
from verify.judge.status import STATUSES
from verify.numbers.ulp import FAILING
from verify.reports.blocks import Line
from verify.reports.figures import excess_of, fails, headline, share, telling, worst_of
from verify.reports.looks import LOOKS
from verify.reports.reasons import beside_regions, excess, region_reason, why_failed
from verify.reports.replays import Replays
from verify.reports.text import count_text, percent, scalars_text, upward

if TYPE_CHECKING:
    from verify.reports.schema import Cell, Region, Worst


#: How many failing cells, and how many worst elements, are spelled out; the report holds all.
FAILURES_SHOWN = WORST_SHOWN = 4


def worst_lines(cells: Iterable[Cell], replays: Replays, told: Sequence[Cell] = ()) -> list[Line]:
    """The worst element of each lowering: the user's own first, then by share of the bound, then by ULP. told: cells
    whose failing elements are told elsewhere."""

    def badness(cell: Cell) -> tuple[bool, float, float]:
        return is_file(cell.lowering), share(cell) or 0.0, headline(cell)[0].max_ulp if cell.error else 0.0

    best: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        if worst_of(cell):
            key = (cell.backend, cell.lowering)
            best[key] = max(best.get(key, cell), cell, key=badness)
    elsewhere = [id(cell) for cell in told if any(one.status == "exceeds-bound" for one in cell.regions.values())]
    others = (cell for cell in best.values() if id(cell) not in elsewhere)
    ranked = sorted(others, key=badness, reverse=True)[:WORST_SHOWN]
    lines = [Line(_element(worst_of(cell)[0]), label=f"worst {_place(cell)}:") for cell in ranked]
    if ranked:
        lines += _command(replays, ranked[0], worst_of(ranked[0]))
    return lines


def _command(replays: Replays, cell: Cell, worst: Sequence[Worst]) -> list[Line]:
    """The line with the command for the first of these elements, where there is one."""
    return [Line(text, kind="command") for text in (replays(cell, one) for one in worst[:1]) if text]


def _element(worst: Worst) -> str:
    error = "" if worst.ulp is None else f", {upward(worst.ulp)} ulp"
    kind = f", {worst.error_class.replace('_', '-')}" if worst.error_class else ""
    scaled = ""
    if worst.scaled_ulp is not None and worst.scaled_ulp != worst.ulp:
        scaled = f", {upward(worst.scaled_ulp)} scaled_ulp"
    truth = "exact" if worst.truth == "exact" else "exact by rounded scalars"
    part = f", {upward(100 * worst.share, 3)}% of its bound" if worst.share else ""  # 0 also where nothing is stated
    element = f"{','.join(worst.inputs)} -> " if worst.inputs else f"element {worst.index}: "
    return f"{element}{worst.output}, {truth} {worst.exact}{error}{scaled}{part}{kind}"


def _place(cell: Cell) -> str:
    words = (cell.lowering, cell.spelling, cell.backend, cell.dtype, scalars_text(cell.scalars), cell.output)
    return " ".join(filter(None, words))


def failure_lines(cells: Iterable[Cell], replays: Replays) -> list[Line]:
    """Each failing cell with its reason; where regions fail, one line for each of them, with its worst element."""
    failed = sorted(filter(fails, cells), key=lambda cell: STATUSES.index(cell.status))
    lines = [line for cell in failed[:FAILURES_SHOWN] for line in _failure(cell, replays)]
    if len(failed) > FAILURES_SHOWN:
        lines.append(Line(f"and {len(failed) - FAILURES_SHOWN} more failing cells, all in the report", kind="bad"))
    return lines


def _failure(cell: Cell, replays: Replays, shown: int | None = None) -> list[Line]:
    """What is wrong with a cell, its numbers before its other calls. shown: how many of its regions are listed; the
    rest are counted."""
    named = f"{cell.kernel} {_place(cell)}"
    regions = {name: one for name, one in telling(cell).items() if one.status not in ("passed", "deviates")}
    lines: list[Line] = []
    if not cell.regions:
        lines.append(_status_line(cell.status, f"{named}: {why_failed(cell)}"))
        if cell.worst:
            telling_one = _telling(cell)
            lines.append(Line(_element(telling_one), label="    "))
            lines += _command(replays, cell, [telling_one])
    for name, region in list(regions.items())[:shown]:
        lines.append(_status_line(region.status, f"{named}: {region_reason(name, region)}"))
        # the largest error tells nothing of a NaN or an infinity in place of a number
        those = [*region.worst[:1], *(one for one in region.worst[1:] if one.error_class in FAILING)][:2]
        lines += [Line(_element(one), label="    ") for one in those]
        lines += _command(replays, cell, region.worst)
    if rest := list(regions)[shown:] if shown else ():
        lines.append(Line(f"and in {', '.join(rest)}", kind="bad"))
    lines += [_status_line(status, f"{named}: {text}") for status, text in beside_regions(cell)]
    return lines + [Line(text, kind="command") for text in (cell.calls.script if cell.calls else ())]


def shown_failures(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of `first_failures` that are told in full."""
    return [first for first, _ in _failed(cells)][: FAILURES_SHOWN // 2]


def _failed(cells: Sequence[Cell]) -> list[tuple[Cell, list[Cell]]]:
    """The failing cells of each lowering, and which of them is told first."""
    failed: dict[str, list[Cell]] = {}
    for cell in filter(fails, cells):
        failed.setdefault(cell.lowering, []).append(cell)
    return [
        (min(group, key=lambda one: (not (one.calls and one.calls.script), STATUSES.index(one.status))), group)
        for group in failed.values()
    ]


def first_failures(cells: Sequence[Cell], replays: Replays) -> list[Line]:
    """Of each of the user's lowerings the failing cell that a script shows, else the first in the worst status, after
    some lowerings with one reason alone; the others are counted."""
    lines: list[Line] = []
    for place, (first, group) in enumerate(_failed(cells)):
        told = _failure(first, replays, shown=1)
        lines += told if place < FAILURES_SHOWN // 2 else told[:1]
        others: dict[str, list[Cell]] = {}
        for one in group:
            if one is not first:
                others.setdefault(one.status, []).append(one)
        for status, (other, *rest) in others.items():
            if status != first.status:  # another reason than the one that is told
                lines += _failure(other, replays)[:1]
            else:
                rest.append(other)
            if rest:
                lines.append(_status_line(status, f"{count_text(len(rest), 'more cell')} of {_named(rest)}"))
    return lines


def _status_line(status: str, text: str) -> Line:
    return Line(text, label=f"{status}:", kind=LOOKS[status].tone)


def deviation_lines(cells: Iterable[Cell], replays: Replays, shown: int = FAILURES_SHOWN) -> list[Line]:
    """What the ledger covers, one line for each region and set of entries: the cells, the reason, the worst element."""
    groups: dict[tuple[str, ...], list[tuple[Cell, Region | None]]] = {}
    for cell in cells:
        for name, region in cell.regions.items():
            if region.status == "deviates":
                groups.setdefault((name, *region.reason.ledger), []).append((cell, region))
        if cell.status == "deviates" and not cell.regions:  # of schema 1
            groups.setdefault(("", cell.reason), []).append((cell, None))
    lines: list[Line] = []
    for (name, *_), members in list(groups.items())[:shown]:
        cell, most = max(members, key=lambda one: excess_of(*one))
        place = f"{_named(one for one, _ in members)}: "
        reason = f"{cell.reason} ({excess(cell)})" if most is None else region_reason(name, most)
        at = f"; the largest, {cell.kernel} {_place(cell)}" if len(members) > 1 else ""
        lines.append(
            Line(f"{place}{reason}{at}", label=f"deviates, {count_text(len(members), 'cell')}:", kind="deviates")
        )
        worst = cell.worst if most is None else most.worst
        lines += [Line(_element(one), label="    ") for one in worst[:1]]
        lines += _command(replays, cell, worst)
    rest = list(groups.values())[shown:]
    if rest:
        more = len({id(cell) for members in rest for cell, _ in members})
        lines.append(Line(f"and {count_text(more, 'cell')} more for other reasons, all in the report", kind="deviates"))
    return lines


def _named(cells: Iterable[Cell]) -> str:
    """Lowerings, backends and dtypes of a group."""
    group = list(cells)
    return ", ".join(
        " ".join(dict.fromkeys(getattr(cell, name) for cell in group)) for name in ("lowering", "backend", "dtype")
    )


def _telling(cell: Cell) -> Worst:
    """The element that shows why a cell failed: of the largest error where the bound is exceeded, else of a class."""
    if (share(cell) or 0.0) <= 1:
        return next((one for one in cell.worst if one.error_class in FAILING), cell.worst[0])
    return cell.worst[0]


def remark_lines(cells: Iterable[Cell]) -> list[Line]:
    """One line a reason, with the lowerings, backends and dtypes: what was not run, what an allowance lets stand, what
    passed with a remark."""
    cells = list(cells)
    reasons: dict[tuple[str, str, str], list[Cell]] = {}
    unjudged: list[tuple[float, Cell, str]] = []
    for cell in cells:
        if cell.reason and not fails(cell) and cell.status != "deviates":
            reasons.setdefault((cell.status.replace("-", " "), cell.reason, cell.allowance), []).append(cell)
        unjudged += ((one.unjudged / one.inputs, cell, name) for name, one in cell.regions.items() if one.unjudged)
    lines = _models(cells)
    for (status, why, allowance), group in reasons.items():
        allowed = f", allowed by {allowance}" if allowance else ""
        label = f"{status}{allowed}, {count_text(len(group), 'cell')}:"
        lines.append(Line(f"{_named(group)}: {why}", label=label, kind="open" if allowance else "plain"))
    if unjudged:
        _, cell, name = max(unjudged, key=lambda one: one[0])
        region = cell.regions[name]
        text = f"nothing is stated of {percent(region.unjudged, region.inputs)} of region {name}"
        most = "" if len(unjudged) == 1 else " at most"
        count = count_text(len({id(one) for _, one, _ in unjudged}), "cell")
        lines.append(
            Line(f"{text}{most}: {cell.kernel} {_place(cell)}", label=f"unjudged elements, {count}:", kind="open")
        )
    return lines


def _models(cells: Iterable[Cell]) -> list[Line]:
    """How predicted cells were modelled where no standard applies: one line a model, with its instructions and
    lowerings."""
    models: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for cell in cells:
        for instruction, how in (cell.predicted or {}).items():
            models.setdefault((cell.backend, how), {}).setdefault(instruction, {})[cell.lowering] = None
    return [
        Line("; ".join(f"{one} ({', '.join(on)})" for one, on in each.items()), label=f"predicted, {backend}, {how}:")
        for (backend, how), each in models.items()
    ]
