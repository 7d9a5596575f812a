"""What `verify history` prints of the reports of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from verify.reports.blocks import Column, Legend, Line, Page, Row, Table
from verify.reports.compare_page import OTHER_BITS, case_text, differences, spellings_of
from verify.reports.looks import LOOKS, counted_text
from verify.reports.text import count_text

if TYPE_CHECKING:
    from verify.reports.history import Failing, History, Recorded


def history_page(found: History, limit: int | None = None) -> Page:
    """`verify history`: what changed from report to report, and since when a cell fails; `limit` rows a kind."""
    legend = Legend()
    blocks: list[Table | Line] = []
    for step in found.steps:
        facts = ", ".join(f"{name} {before} -> {after}" for name, before, after in step.environment)
        told = f"after {_dated(step.before)}, {step.device}: {facts or 'the fingerprint is the same'}"
        blocks.append(Line(told, label=f"{_dated(step.after)}:"))
        blocks.append(differences(step.changes, ["before", "after"], spellings_of(step.changes), legend, limit))
    for one in found.failing[:limit]:
        good = f"last good {_versioned(one.last_good, one)}" if one.last_good else "never good in these reports"
        place = one.facts.place
        text = f"{case_text(place._replace(backend=''))} {place.spelling} on {one.device}"
        since = f"first bad {_versioned(one.first_bad, one)}, {good}"
        blocks.append(Line(f"{text}: {since}", label=f"{one.facts.status}:", kind=LOOKS[one.facts.status].tone))
    if limit is not None and len(found.failing) > limit:
        blocks.append(Line(f"and {count_text(len(found.failing) - limit, 'failing cell')} more: --limit 0", kind="bad"))
    changed = sum(len(step.changes) for step in found.steps)
    text = (
        f"{count_text(changed, 'change')} in {count_text(found.series, 'cell')} that two reports or more have in common"
    )
    kind = "bad" if found.failing else "deviates" if found.deviating else "good"
    text += f"; {len(found.failing)} failing"
    text += f", {counted_text('deviate', found.deviating)}" if found.deviating else ""
    blocks += [Line(what, label=f"{file}:", kind="open") for file, what in found.lacking]
    blocks += [*legend.lines(), Line(text, kind=kind)]
    return Page(f"{count_text(found.reports, 'report')}", (*blocks, *([OTHER_BITS] if changed else [])))


def query_page(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Page:
    """`verify history --sql`: the answer as a table; where a wide one is split, each part keeps the first column."""
    right = [all(row[i] is None or isinstance(row[i], int | float) for row in rows) for i in range(len(names))]
    columns = tuple(Column(name, right=number, fold=not number) for name, number in zip(names, right, strict=True))
    texts = (Row(tuple("" if value is None else str(value) for value in row)) for row in rows)
    return Page(count_text(len(rows), "row"), (Table(columns, tuple(texts)),))


def _dated(report: Recorded) -> str:
    return f"{report.file} ({report.date})" if report.date else report.file


def _versioned(report: Recorded, failing: Failing) -> str:
    """A report with its date and the versions of torch and triton."""
    facts = report.fingerprint(failing.device.backend)
    versions = [f"{name} {facts[name]}" for name in ("torch", "triton") if facts.get(name)]
    return f"{report.file} ({', '.join(filter(None, (report.date, *versions)))})"
