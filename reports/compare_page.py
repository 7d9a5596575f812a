"""What `verify compare` prints of several reports, with or without exchanged outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from verify.reports.blocks import Column, Legend, Line, Page, Row, Table, heading
from verify.reports.replays import assignments
from verify.reports.text import count_text, percent, scalars_of, scalars_text, upward

if TYPE_CHECKING:
    from verify.reports.compare import Aligned, Comparison, Facts, Inputs, Pair, Place, Within
    from verify.reports.exchange import Exchanged


#: How many cells of a lowering that only one report holds are listed individually.
ALONE_SHOWN = 3


def compare_page(found: Comparison, every: bool = False, limit: int | None = None) -> Page:
    """`verify compare`: one column a report, rows by what matters; equal ones only if `every`, `limit` rows a kind."""
    legend, rows = Legend(), found.rows if every else [row for row in found.rows if row.telling]
    table = differences(rows, [column.label for column in found.columns], spellings_of(found.rows), legend, limit)
    equal = found.counts.get("equal", 0)
    text = f"{equal} of {count_text(found.compared, 'compared cell')} equal in maxima, mismatches, formula and bits"
    rest = [f"{kind} {count}" for kind, count in found.counts.items() if kind != "equal"]
    blocks: list[Table | Line] = [
        *([table] if rows else []),
        *legend.lines(),
        *_columns_told(found),
        Line("; ".join([text, *rest]), kind="good" if equal == len(found.rows) else "plain"),
        *([OTHER_BITS] if rows else []),
    ]
    return Page(f"{len(found.columns)} columns, {count_text(found.compared, 'cell')} compared", tuple(blocks))


def exchange_page(found: Comparison, told: Exchanged, path: str) -> Page:
    """`verify compare --exchange` and `--exchange-from`: what was written, or which elements differ."""
    blocks: list[Table | Line] = []
    for one in told.findings:
        own, other = (found.columns[index].label for index in (one.own, one.other))
        count = f"{one.differing} of {one.elements} outputs differ in chunk {one.chunk}"
        count += "; exact with the scalars rounded to the dtype" if one.truth == "rounded" else ""
        blocks.append(Line(count, label=f"{case_text(one.row.place)} ({one.row.place.spelling}):"))
        columns = (
            Column("element", right=True),
            *([Column("inputs", fold=True)] if any(element.inputs for element in one.first) else []),
            Column(own, fold=True),
            Column(other, fold=True),
            Column("exact"),
            Column("closer"),
        )
        closer = {"own": "this machine", "other": "the other"}
        rows = tuple(
            Row(
                (
                    str(element.index),
                    *([", ".join(element.inputs)] if element.inputs else []),
                    *map(_judged, (element.own, element.other), element.ulps, element.classes),
                    element.exact,
                    closer.get(element.closer, element.closer),
                )
            )
            for element in one.first
        )
        blocks.append(Table(columns, rows))
        if one.command:
            cell = one.row.cells[one.own]
            prints = found.sources[found.columns[one.own].source].environment
            before = assignments(prints.get(cell.place.backend)) if cell else ""
            blocks.append(Line(before + one.command, kind="command"))
    blocks += [Line(reason, label=f"left out, {count_text(count, 'time')}:") for reason, count in told.left_out]
    what = f"{count_text(told.chunks, 'chunk')} of {count_text(told.cells, 'cell')}"
    return Page(f"exchange: {what} {'from' if told.findings else 'written to'} {path}", tuple(blocks))


def _judged(output: str, ulp: float | None, kind: str) -> str:
    return " ".join([output, *([] if ulp is None else [f"{upward(ulp)} ulp"]), kind.replace("_", "-")])


OTHER_BITS = Line("share of the chunks of 2^20 outputs that differ, and the first", label="other bits:")


def differences(
    found: Iterable[Aligned], titles: Sequence[str], spellings: Mapping[Place, int], legend: Legend, limit: int | None
) -> Table:
    """Rows under a heading for each kind; `titles` are those of the columns of cells."""
    first, *others = (Column(title, right=True, fold=True) for title in titles)
    bits = Column("other bits", right=True, fold=True, joined=True)
    columns = (Column("cell", fold=True), Column("metric"), first, *(c for other in others for c in (other, bits)))
    sections: dict[str, dict[tuple[Any, ...], list[Aligned]]] = {}
    for row in found:
        sections.setdefault(row.kind, {}).setdefault(_alike(row), []).append(row)
    rows: list[Row] = []
    for kind, groups in sections.items():
        rows.append(heading(f"{kind}: {sum(map(len, groups.values()))}", columns))
        for group in list(groups.values())[:limit]:
            rows += _compared(group, spellings, legend)
        if limit is not None and len(groups) > limit:
            rows.append(heading(f"and {count_text(len(groups) - limit, 'row')} more: --limit 0", columns))
    return Table(columns, tuple(rows))


def spellings_of(rows: Iterable[Aligned]) -> Counter[Place]:
    """How many spellings each case has."""
    return Counter(row.place._replace(spelling="") for row in rows)


def _alike(row: Aligned) -> tuple[Any, ...]:
    """What rows printed as one have in common: everything but the spelling, or a lowering that only one side has."""
    place = row.place._replace(spelling="")
    if row.kind == "one side only":
        ran = tuple(cell is not None and cell.ran for cell in row.cells)
        reasons = (cell.reason if cell and not cell.ran else "" for cell in row.cells)
        return (place.lowering, place.backend, ran, *reasons)
    bits = [cell.digest for cell in row.cells if cell]
    alone = "" if all(bits) else row.place.spelling  # without a digest, a cell stands alone
    facts = (cell and (cell.status, cell.mismatches, cell.rounded, cell.formula, cell.inputs) for cell in row.cells)
    return (place, alone, *bits, *row.values, *row.pairs, *row.regions, *facts)


def _compared(rows: Sequence[Aligned], spellings: Mapping[Place, int], legend: Legend) -> list[Row]:
    """One row of the table for rows that are alike; below it the regions that differ."""
    row, place = rows[0], rows[0].place
    cases = dict.fromkeys(other.place._replace(spelling="") for other in rows)
    if len(cases) > ALONE_SHOWN:
        kernels = ", ".join(dict.fromkeys(case.kernel for case in cases))
        text = " ".join(filter(None, (place.lowering, place.backend, "of", kernels)))
        counts = [count_text(len(rows), "cell") if cell and cell.ran else _absent(cell) for cell in row.cells]
        return [Row((text, "-", counts[0], *(text for count in counts[1:] for text in (count, "-"))))]
    told = []
    for case in cases:
        same = [other.place.spelling for other in rows if other.place._replace(spelling="") == case]
        told.append(case_text(case) + ("" if len(same) == spellings[case] else f" ({', '.join(same)})"))
    return [Row(("; ".join(told), *_sides(row, legend, len(cases) == 1))), *map(_region_row, row.regions)]


def _region_row(one: Within) -> Row:
    """One region in every column: its status where it did not pass, its maximum, the mismatches that differ."""
    digits = _digits_apart([value for value in one.values if value is not None])
    counts = [dict(part.mismatches) for part in one.parts if part]
    telling = [name for name in dict.fromkeys(n for c in counts for n in c) if len({c.get(name) for c in counts}) > 1]
    texts = []
    for part, value in zip(one.parts, one.values, strict=True):
        if part is None or value is None:
            texts.append("-")
            continue
        words = " ".join([*([] if part.status == "passed" else [part.status]), upward(value, digits)])
        mismatches = dict(part.mismatches)
        texts.append(", ".join([words, *(f"{mismatches.get(name, 0)} {name.replace('_', '-')}" for name in telling)]))
    return Row((f"  in {one.name}", one.metric, texts[0], *(text for other in texts[1:] for text in (other, "-"))))


def _digits_apart(numbers: Sequence[float]) -> int:
    """How many digits distinguish the numbers, at least four."""
    return next((n for n in range(4, 17) if len({upward(v, n) for v in numbers}) == len(set(numbers))), 17)


def case_text(place: Place) -> str:
    words = (place.kernel, place.output, place.lowering, place.backend, place.dtype)
    return " ".join(filter(None, (*words, scalars_text(scalars_of(place.scalars)))))


def _sides(row: Aligned, legend: Legend, measured: bool) -> tuple[str, ...]:
    """Metric, and for each column what the cell measured and, but for the first column, how its bits differ."""
    numbers = [value for value in row.values if value is not None and measured]
    digits = _digits_apart(numbers)
    ran = [cell for cell in row.cells if cell and cell.ran]
    counts = [cell.counts(row.truth) for cell in ran]
    telling = [name for name in dict.fromkeys(n for c in counts for n in c) if len({c.get(name) for c in counts}) > 1]
    facts = [row.metric if numbers else "-"]
    for index, (cell, value, one) in enumerate(zip(row.cells, row.values, row.pairs, strict=True)):
        if cell is None or not cell.ran:
            words = [_absent(cell)]
        elif not measured:
            words = ["1 cell each"]
        else:
            words = [] if cell.status == "passed" else [cell.status]
            words += [] if value is None else [upward(value, digits)]
            words += [legend.text(cell.formula)] if cell.formula is not None else []
            words = [" ".join(words)]
            words += (f"{cell.counts(row.truth).get(name, 0)} {name.replace('_', '-')}" for name in telling)
            if row.reason:
                words.append(_inputs_told(cell.inputs, [other.inputs for other in ran]))
        facts += [", ".join(words), _bits(one)] if index else [", ".join(words)]
    return tuple(facts)


def _absent(cell: Facts | None) -> str:
    return "-" if cell is None else "not run"


def _inputs_told(inputs: Inputs, among: Sequence[Inputs]) -> str:
    """What distinguishes the inputs of the sides: their number, else their digest."""
    sizes = {one.size for one in among}
    return f"{inputs.size} inputs" if len(sizes) > 1 else f"inputs {inputs.digest[:8] or 'unknown'}"


def _bits(one: Pair | None) -> str:
    if one is None or one.bits is None:
        return "-"
    if one.bits.equal:
        return "equal"
    if one.bits.differing is None or one.bits.chunks is None:
        return "differ"
    return f"{percent(one.bits.differing, one.bits.chunks)} from {one.bits.first}"


def _columns_told(found: Comparison) -> list[Line]:
    """What each column is: file, versions, profile and seed, and what a recorded report leaves out."""
    lines = []
    for index, column in enumerate(found.columns):
        source = found.sources[column.source]
        prints = [source.fingerprint(name) for name in column.backends]
        facts = [
            f"{name} {value}"
            for name in ("torch", "triton", "capability", "driver")
            for value in dict.fromkeys(str(one[name]) for one in prints if one.get(name))
        ]
        words = (source.file, *column.backends, *facts, f"profile {source.profile}", f"seed {source.seed}")
        recorded = source.environment.get("recorded")
        left_out = recorded.get("left out") if isinstance(recorded, dict) else None
        count = left_out.get("other spellings with the same bits") if isinstance(left_out, dict) else None
        note = [f"recorded without {count} spellings that repeat a lowering's bits"] if count else []
        role = "" if index else " (the reference)"
        lines.append(Line(", ".join([*words, *note, *source.lacking]), label=f"{column.label}{role}:"))
    return lines
