"""The facts of a report as plain rows and lines, stated once; `verify.reports.terminal` and `markdown` render them.

Strings in rows are raw: a renderer escapes what its medium would interpret. Maxima and shares are
rounded up, so that a printed number never understates an error.
"""

from __future__ import annotations

import functools
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, Any

from verify.kernel import DTYPES, Composite, is_file
from verify.ulp import FAILING

if TYPE_CHECKING:
    from verify.kernel import Kernel
    from verify.reports.compare import Aligned, Comparison, Facts, Inputs, Pair, Place
    from verify.reports.exchange import Exchanged
    from verify.reports.history import Failing, History, Recorded
    from verify.reports.schema import Cell, Report, Worst

#: Statuses by what they mean for the reader.
GOOD = ("passed", "improved")
#: A maximum may hold the radius of the enclosure that judged it, and so change with this project's arithmetic: where
#: two results have the same bits, a difference below this part of it is taken for that.
ENCLOSURE = 2.0**-30
FAILED = ("oracle-violation", "error", "exceeds-bound", "regressed", "changed", "stale")

#: How many failing cells, and how many worst elements, are spelled out; the report holds all.
FAILURES_SHOWN = 4
#: Cases (backend, dtype, scalars, output) up to which each is told apart beside a user's own lowering.
SECTIONS_SHOWN = 6
WORST_SHOWN = 4

#: Variables that choose what code runs (`verify.backends`), which a replay needs as the run had them. No other is taken
#: from a report into a command.
VARIABLES = ("ATEN_CPU_CAPABILITY", "PYTORCH_MPS_FAST_MATH", "PYTORCH_ENABLE_MPS_FALLBACK", "PYTORCH_MPS_PREFER_METAL")

#: How many cells of one lowering that one report alone holds are listed one by one.
ALONE_SHOWN = 3


@dataclass(frozen=True)
class Column:
    """`fold` columns hold text that may wrap; the others are never broken.

    A `joined` column stays with the one before it where a wide table is split.
    """

    title: str
    right: bool = False
    fold: bool = False
    joined: bool = False


@dataclass(frozen=True)
class Row:
    """One string a column. A `heading` fills only the first and introduces the rows below it."""

    cells: tuple[str, ...]
    heading: bool = False


@dataclass(frozen=True)
class Table:
    """The first column is the key: a renderer that must split a wide table repeats it."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Line:
    """A sentence; `label` sets off its beginning. `kind` is plain, good, bad or command (to be copied whole)."""

    text: str
    label: str = ""
    kind: str = "plain"


@dataclass(frozen=True)
class Page:
    title: str
    blocks: tuple[Table | Line, ...]


# Text and numbers


def printable(text: str) -> str:
    """Control, format (bidirectional overrides) and unassigned characters as escapes such as \\x1b."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def upward(value: float, digits: int = 4) -> str:
    """`value` to `digits` significant digits, rounded towards +infinity; exact values stay short."""
    rounded = _ceiling(digits).create_decimal_from_float(value).normalize()
    plain = f"{rounded:f}"
    return plain if len(plain) <= digits + 4 else f"{rounded:.{digits - 1}e}"


@functools.cache  # a page of 100,000 cells rounds a million numbers
def _ceiling(digits: int) -> Context:
    return Context(prec=digits, rounding=ROUND_CEILING)


def percent(part: int, whole: int) -> str:
    """The share to 3 digits: '0%' and '100%' only where they are exact."""
    if part in (0, whole):
        return "100%" if part else "0%"
    share = 100 * part / whole
    return ">99.9%" if share > 99.9 else f"{share:.3g}%"


def measured(cell: Cell) -> tuple[float, str]:
    """The cell's maximum error and its metric: the bound's where there is a bound, ulp otherwise."""
    assert cell.error is not None
    if cell.bound is None:
        return cell.error.max_ulp, "ulp"
    if cell.bound.measured is not None:
        return cell.bound.measured, cell.bound.metric
    rounded = cell.bound.truth == "rounded" and cell.error_rounded_scalar
    value = getattr(rounded or cell.error, f"max_{cell.bound.metric}")
    return float(value or 0), cell.bound.metric


def share(cell: Cell) -> float | None:
    """Maximum error over bound; above 1 the bound is exceeded. None without a bound or a measurement."""
    return measured(cell)[0] / cell.bound.value if cell.bound and cell.error else None


def figures(cell: Cell) -> dict[str, str]:
    """What is printed of a cell that ran, by the title of its column: the one place where figures become text."""
    error, against = cell.error, cell.against_eager
    assert error is not None
    value, metric = measured(cell)
    part = None if cell.bound is None else value / cell.bound.value
    closer, farther, tied = ("-",) * 3 if against is None else map(str, (against.closer, against.farther, against.tied))
    return {
        "error": upward(value),
        "metric": metric,
        "bound": "none" if cell.bound is None else f"{cell.bound.value:.6g}",
        "share": "-" if part is None else f"{upward(100 * part, 3)}%",
        "misrounded": percent(error.misrounded, cell.inputs),
        "max ulp": upward(error.max_ulp),
        "closer": closer,
        "farther": farther,
        "tied": tied,
    }


def why_failed(cell: Cell) -> str:
    """The reason of a cell that failed: the run's own, else what was undecided, else the excess over the bound."""
    undecided = cell.error.undecided if cell.error else 0
    return cell.reason or (f"{_count(undecided, 'element')} undecided" if undecided else _excess(cell))


def scalars_text(scalars: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in scalars.items())


# Pages


def kernel_page(report: Report, name: str) -> Page:
    """`verify kernel NAME`: every cell of one kernel. Where a user's own lowering is among many, the answer is kept to
    a screen: one row a dtype and lowering, and remarks on the user's alone."""
    cells = [cell for cell in report.cells if cell.kernel == name]
    compared = [cell for cell in cells if cell.error is not None]
    own = [cell for cell in cells if is_file(cell.lowering)]
    blocks: list[Table | Line] = []
    title = f"{name}: errors against the real number, profile {report.profile}, seed {report.seed}"
    if own and len({_section(cell) for cell in compared}) > SECTIONS_SHOWN:
        formulas = dict.fromkeys((cell.lowering, text) for cell in own for text in _obeyed(cell))
        passed = (cell for cell in own if cell.error is not None and not _failed(cell))
        return Page(
            title,
            (
                _overview(compared),
                *(Line(text, label=f"formula of {lowering}:") for lowering, text in formulas),
                *_worst(passed, report.environment),
                *_failures(own, report.environment, FAILURES_SHOWN // 2),
                *_remarks(own),
                _totals(cells),
                Line("every case apart: name a --dtype, or write them with --json FILE"),
            ),
        )
    if compared:
        legend = _Legend()
        spellings = ", ".join(dict.fromkeys(cell.spelling for cell in compared))
        blocks += [
            _accuracy(compared, legend),
            Line(f"{spellings}; where all give the same bits, one row stands for them", label="spellings:"),
            *legend.lines(),
            *_worst((cell for cell in compared if not _failed(cell)), report.environment),
        ]
    blocks += [*_failures(cells, report.environment), *_remarks(cells), _totals(cells)]
    return Page(title, tuple(blocks))


def run_page(report: Report) -> Page:
    """`verify run`: one row a kernel and backend."""
    columns = (
        Column("kernel"),
        Column("backend"),
        Column("passed", right=True),
        Column("failed", right=True),
        Column("not run", right=True),
        Column("max ulp", right=True),
        Column("share", right=True),
        Column("misrounded", right=True),
    )
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in report.cells:
        groups.setdefault((cell.kernel, cell.backend), []).append(cell)
    rows = tuple(Row(_summary(*key, cells)) for key, cells in groups.items())
    blocks: list[Table | Line] = [
        Table(columns, rows),
        *_failures(report.cells, report.environment),
        *_remarks(report.cells),
        _totals(report.cells),
    ]
    return Page(f"errors against the real number, profile {report.profile}, seed {report.seed}", tuple(blocks))


def list_page(kernels: Sequence[Kernel | Composite], lowerings: dict[str, Sequence[str]]) -> Page:
    """`verify list`: the registry. `lowerings` by kernel name. What all kernels have is said once."""
    dtypes = [name for name in DTYPES if all(name in kernel.dtypes for kernel in kernels)]
    common = [name for name in next(iter(lowerings.values()), ()) if all(name in each for each in lowerings.values())]
    columns = (Column("kernel"), Column("computes", fold=True), Column("further dtypes and lowerings", fold=True))
    rows = []
    for kernel in kernels:
        further = [name for name in (*kernel.dtypes, *lowerings[kernel.name]) if name not in (*dtypes, *common)]
        rows.append(Row((kernel.name, kernel.summary, " ".join(further))))
    blocks = (
        Table(columns, tuple(rows)),
        Line(" ".join(dtypes), label="dtypes of all:"),
        Line(" ".join(common), label="lowerings of all:"),
        Line("verify show NAME", label="more:"),
    )
    return Page(f"{len(rows)} kernels", blocks)


def show_page(kernel: Kernel | Composite, lowerings: Sequence[str]) -> Page:
    """`verify show NAME`: inputs, cases, spellings, formulas, bounds, specials and properties of one kernel."""
    if isinstance(kernel, Composite):
        return _composite_page(kernel, lowerings)
    oracle = kernel.oracle
    cases = [scalars_text(case) or "all tensors" for case in kernel.cases]
    blocks: list[Table | Line] = [
        Line(" ".join(oracle.doc.split()), label="oracle:"),
        Line(", ".join(kernel.inputs), label="inputs:"),
        Line("; ".join(cases), label="cases:"),
        Line(" ".join(kernel.dtypes), label="dtypes:"),
        Line(", ".join(kernel.spellings), label="spellings:"),
        Line(", ".join(lowerings), label="lowerings:"),
        *(Line(note, label="note:") for note in kernel.notes),
    ]
    blocks += [Line(f.text, label="formula:") for f in oracle.formulas]
    if oracle.arithmetic:
        blocks.append(Line("infinities, NaNs and zero signs by IEEE 754-2019, 6.1 to 6.3", label="specials:"))
    sources = list(dict.fromkeys(row.source for row in oracle.rows))
    if sources:
        blocks.append(Line(f"{len(oracle.rows)} rows, from {'; '.join(sources)}", label="specials:"))
    for law in kernel.properties:
        promised = "" if law.lowerings == ("*",) else f" (promised by {', '.join(law.lowerings)})"
        blocks.append(Line(law.name + promised, label="property:"))
    blocks += _bounds(kernel)
    blocks.append(Line(f"verify kernel {kernel.name}", kind="command"))
    return Page(f"{kernel.name}: {kernel.summary}", tuple(blocks))


def _composite_page(kernel: Composite, lowerings: Sequence[str]) -> Page:
    cases = [scalars_text(case) for case in kernel.cases if case]
    blocks: list[Table | Line] = [
        Line(", ".join(kernel.inputs), label="inputs:"),
        Line(", ".join(name for name in kernel.outputs if name) or "one", label="outputs:"),
        *([Line("; ".join(cases), label="cases:")] if cases else []),
        Line(" ".join(kernel.dtypes), label="dtypes:"),
        Line("; ".join(kernel.spellings), label="settings:"),
        Line(", ".join(lowerings), label="lowerings:"),
        *(Line(text, label=f"--set {name}=:") for name, text in kernel.parameters.items()),
        Line("|y - t| / B, B a proven bound of each element for the lowering's algorithm", label="bound:"),
        *(Line(note, label="note:") for note in kernel.notes),
        Line(f"verify kernel {kernel.name}", kind="command"),
    ]
    return Page(f"{kernel.name}: {kernel.summary}", tuple(blocks))


def explain_place_page(told: dict[str, Any]) -> Page:
    """`verify explain` of a composite kernel: the dict of `verify.explain.explain_place`."""
    blocks: list[Table | Line] = [
        Line(f"{told['place']} {scalars_text(told['scalars'])}".strip(), label="element:"),
        *(Line(value, label=f"{name}:") for name, value in told["terms"]),
        *_value(told, ""),
    ]
    if told["scale"]:
        blocks.append(Line(told["scale"], label="scale:"))
    names = ("lowering", "output", "ulp", "scaled", "share", "class")
    columns = tuple(Column(name, fold=name == "lowering", right=name in ("ulp", "scaled", "share")) for name in names)
    rows: list[Row] = []
    reasons: dict[str, list[str]] = {}
    for entry in told["lowerings"]:
        if entry["reason"]:
            reasons.setdefault(entry["reason"], []).append(entry["lowering"])
            continue
        shown = ("-" if entry[key] is None else upward(entry[key]) for key in ("ulp", "scaled_ulp", "share"))
        rows.append(Row((entry["lowering"], entry["output"], *shown, entry["error_class"].replace("_", "-"))))
    blocks.append(Table(columns, tuple(rows)))
    for item in sorted(told["formulas"], key=lambda item: not item["matches"]):
        same = f"  ({', '.join(item['matches'])})" if item["matches"] else ""
        blocks.append(Line(f"{item['text']} = {item['output']}{same}", label="formula:"))
    blocks += [Line(reason, label=f"not run: {', '.join(group)}:") for reason, group in reasons.items()]
    return Page(f"{told['kernel']} {told['dtype']} on {told['backend']}", tuple(blocks))


def compare_page(found: Comparison, every: bool = False, limit: int | None = None) -> Page:
    """`verify compare`: one column a report, rows by what matters; equal ones only if `every`, `limit` rows a kind."""
    legend, rows = _Legend(), found.rows if every else [row for row in found.rows if row.telling]
    table = _differences(rows, [column.label for column in found.columns], _spellings(found.rows), legend, limit)
    equal = found.counts.get("equal", 0)
    text = f"{equal} of {_count(found.compared, 'compared cell')} equal in errors, formula and bits"
    rest = [f"{kind} {count}" for kind, count in found.counts.items() if kind != "equal"]
    blocks: list[Table | Line] = [
        *([table] if rows else []),
        *legend.lines(),
        *_columns_told(found),
        Line("; ".join([text, *rest]), kind="good" if equal == len(found.rows) else "plain"),
        *([_OTHER_BITS] if rows else []),
    ]
    return Page(f"{len(found.columns)} columns, {_count(found.compared, 'cell')} compared", tuple(blocks))


def history_page(found: History, limit: int | None = None) -> Page:
    """`verify history`: what changed from report to report, and since when a cell fails; `limit` rows a kind."""
    legend = _Legend()
    blocks: list[Table | Line] = []
    for step in found.steps:
        facts = ", ".join(f"{name} {before} -> {after}" for name, before, after in step.environment)
        told = f"after {_dated(step.before)}, {step.device}: {facts or 'the fingerprint is the same'}"
        blocks.append(Line(told, label=f"{_dated(step.after)}:"))
        blocks.append(_differences(step.changes, ["before", "after"], _spellings(step.changes), legend, limit))
    for one in found.failing[:limit]:
        good = f"last good {_versioned(one.last_good, one)}" if one.last_good else "never good in these reports"
        place = one.facts.place
        text = f"{_case(place._replace(backend=''))} {place.spelling} on {one.device}"
        since = f"first bad {_versioned(one.first_bad, one)}, {good}"
        blocks.append(Line(f"{text}: {since}", label=f"{one.facts.status}:", kind="bad"))
    if limit is not None and len(found.failing) > limit:
        blocks.append(Line(f"and {_count(len(found.failing) - limit, 'failing cell')} more: --limit 0", kind="bad"))
    changed = sum(len(step.changes) for step in found.steps)
    text = f"{_count(changed, 'change')} in {_count(found.series, 'cell')} that two reports or more have in common"
    blocks += [*legend.lines(), Line(f"{text}; {len(found.failing)} failing", kind="bad" if found.failing else "good")]
    return Page(f"{_count(found.reports, 'report')}", (*blocks, *([_OTHER_BITS] if changed else [])))


def exchange_page(found: Comparison, told: Exchanged, path: str) -> Page:
    """`verify compare --exchange` and `--exchange-from`: what was written, or which elements differ."""
    blocks: list[Table | Line] = []
    for one in told.findings:
        own, other = (found.columns[index].label for index in (one.own, one.other))
        count = f"{one.differing} of {one.elements} outputs differ in chunk {one.chunk}"
        count += "; exact with the scalars rounded to the dtype" if one.truth == "rounded" else ""
        blocks.append(Line(count, label=f"{_case(one.row.place)} ({one.row.place.spelling}):"))
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
    blocks += [Line(reason, label=f"left out, {_count(count, 'time')}:") for reason, count in told.left_out]
    what = f"{_count(told.chunks, 'chunk')} of {_count(told.cells, 'cell')}"
    return Page(f"exchange: {what} {'from' if told.findings else 'written to'} {path}", tuple(blocks))


def _judged(output: str, ulp: float | None, kind: str) -> str:
    return " ".join([output, *([] if ulp is None else [f"{upward(ulp)} ulp"]), kind.replace("_", "-")])


def query_page(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Page:
    """`verify history --sql`: the answer as it is; the first column stays where a wide table is split."""
    right = [all(row[i] is None or isinstance(row[i], int | float) for row in rows) for i in range(len(names))]
    columns = tuple(Column(name, right=number, fold=not number) for name, number in zip(names, right, strict=True))
    texts = (Row(tuple("" if value is None else str(value) for value in row)) for row in rows)
    return Page(_count(len(rows), "row"), (Table(columns, tuple(texts)),))


def explain_page(told: dict[str, Any]) -> Page:
    """`verify explain`: the dict of `verify.explain.explain`, one element taken apart."""
    inputs = " ".join(f"{name}={value}" for name, value in told["inputs"].items())
    blocks: list[Table | Line] = [Line(f"{inputs} {scalars_text(told['scalars'])}".strip(), label="inputs:")]
    blocks += _value(told, "")
    rounded = told.get("rounded_scalars")
    if rounded:
        blocks += _value(rounded, f", {scalars_text(rounded['scalars'])} in {told['dtype']}")
    if told.get("special"):
        blocks.append(Line(told["special"], label="special value:"))
    columns = [
        Column("lowering", fold=True),
        Column("output"),
        Column("int_ulp", right=True),
        Column("class"),
        Column("spelling", fold=True),
    ]
    ran = [entry for entry in told["lowerings"] if not entry["reason"]]
    scaled = any(entry["scaled_ulp"] is not None for entry in ran)
    metrics = {"ulp": "ulp"} | ({"scaled_ulp": "scaled_ulp"} if scaled else {})
    if rounded:
        metrics |= {f"{name}_rounded_scalars": f"{name} rounded" for name in tuple(metrics)}
    columns[2:2] = [Column(title, right=True, joined=title not in metrics) for title in metrics.values()]
    rows = []
    for entry in ran:
        errors = [entry[name] for name in metrics]
        steps = "-" if entry.get("int_ulp") is None else str(entry["int_ulp"])
        shown = ("-" if ulp is None else upward(ulp) for ulp in errors)
        kind = entry["error_class"].replace("_", "-")
        rows.append(Row((entry["lowering"], entry["output"], *shown, steps, kind, entry["spelling"])))
    blocks.append(Table(tuple(columns), tuple(rows)))
    everywhere = {entry["lowering"] for entry in ran}
    # those that some lowering follows come first
    for item in sorted(told["formulas"], key=lambda item: not item["matches"]):
        names = "all" if len(everywhere) > 1 and set(item["matches"]) == everywhere else ", ".join(item["matches"])
        same = f"  ({names})" if names else ""
        blocks.append(Line(f"{item['text']} = {item['output']}{same}", label="formula:"))
        steps = "; ".join(f"{step['expression']} = {step['value']}" for step in item["steps"])
        if steps:
            blocks.append(Line(steps, label="    "))
    reasons: dict[str, list[str]] = {}
    for entry in told["lowerings"]:
        if entry["reason"]:
            reasons.setdefault(entry["reason"], []).append(entry["lowering"])
    blocks += [Line(reason, label=f"not run: {', '.join(dict.fromkeys(group))}:") for reason, group in reasons.items()]
    return Page(f"{told['kernel']} {told['dtype']} on {told['backend']}", tuple(blocks))


def _value(told: dict[str, Any], note: str) -> list[Table | Line]:
    return [Line(told["exact"], label=f"exact{note}:"), Line(told["rounded"], label=f"correctly rounded{note}:")]


def assignments(fingerprint: object) -> str:
    """What stands before a replay on the machine with this fingerprint, so that the same code runs."""
    found = fingerprint.get("variables") if isinstance(fingerprint, dict) else None
    if not isinstance(found, dict):
        return ""
    return "".join(f"{name}={shlex.quote(str(found[name]))} " for name in VARIABLES if name in found)


def replay(cell: Cell, worst: Worst) -> str:
    """The command that computes one element of a cell again."""
    place = (cell.dtype, cell.backend, cell.lowering, cell.spelling)
    spot = (cell.output, worst.index, cell.domain.seed)
    return replay_place(cell.kernel, place, cell.scalars, worst.inputs, spot)


def replay_place(
    kernel: str,
    place: tuple[str, str, str, str],
    scalars: Mapping[str, float],
    inputs: Sequence[str],
    spot: tuple[str, int, int],
) -> str:
    """As `replay_command`; without inputs, of an element known by its `spot`: output, index and seed."""
    if inputs:
        return replay_command(kernel, place, scalars, inputs)
    words = replay_command(kernel, place, scalars, ()).split(" --input=")[0]
    output, index, seed = spot
    named = f" --output {shlex.quote(output)}" if output else ""
    return f"{words}{named} --index {index}{f' --seed {seed}' if seed else ''}"


def replay_command(
    kernel: str, place: tuple[str, str, str, str], scalars: Mapping[str, float], inputs: Sequence[str]
) -> str:
    """`verify explain` of one element. place: dtype, backend, lowering and spelling."""
    words = ["verify", "explain", kernel]
    for option, value in zip(("--dtype", "--backend", "--lowering", "--spelling"), place, strict=True):
        words += [option, value]
    for name, number in scalars.items():
        words += ["--scalar", f"{name}={number!r}"]
    # '=' since a first input may begin with a minus sign
    return shlex.join([*words, f"--input={','.join(inputs)}"])


# Comparisons


_OTHER_BITS = Line("share of the chunks of 2^20 outputs that differ, and the first", label="other bits:")


def _differences(
    found: Iterable[Aligned], titles: Sequence[str], spellings: Mapping[Place, int], legend: _Legend, limit: int | None
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
        rows.append(_heading(f"{kind}: {sum(map(len, groups.values()))}", columns))
        rows += (_compared(group, spellings, legend) for group in list(groups.values())[:limit])
        if limit is not None and len(groups) > limit:
            rows.append(_heading(f"and {_count(len(groups) - limit, 'row')} more: --limit 0", columns))
    return Table(columns, tuple(rows))


def _spellings(rows: Iterable[Aligned]) -> Counter[Place]:
    """How many spellings each case has."""
    return Counter(row.place._replace(spelling="") for row in rows)


def _dated(report: Recorded) -> str:
    return f"{report.file} ({report.date})" if report.date else report.file


def _versioned(report: Recorded, failing: Failing) -> str:
    """A report with its date and the versions of torch and triton."""
    facts = report.fingerprint(failing.device.backend)
    versions = [f"{name} {facts[name]}" for name in ("torch", "triton") if facts.get(name)]
    return f"{report.file} ({', '.join(filter(None, (report.date, *versions)))})"


def _alike(row: Aligned) -> tuple[Any, ...]:
    """What rows that are told as one have in common: all but the spelling, or a lowering that one side has alone."""
    place = row.place._replace(spelling="")
    if row.kind == "one side only":
        ran = tuple(cell is not None and cell.ran for cell in row.cells)
        reasons = (cell.reason if cell and not cell.ran else "" for cell in row.cells)
        return (place.lowering, place.backend, ran, *reasons)
    bits = [cell.digest for cell in row.cells if cell]
    alone = "" if all(bits) else row.place.spelling  # without a digest, a cell stands alone
    facts = (cell and (cell.status, cell.mismatches, cell.rounded, cell.formula, cell.inputs) for cell in row.cells)
    return (place, alone, *bits, *row.values, *row.pairs, *facts)


def _compared(rows: Sequence[Aligned], spellings: Mapping[Place, int], legend: _Legend) -> Row:
    """One row of the table for rows that are alike."""
    row, place = rows[0], rows[0].place
    cases = dict.fromkeys(other.place._replace(spelling="") for other in rows)
    if len(cases) > ALONE_SHOWN:
        kernels = ", ".join(dict.fromkeys(case.kernel for case in cases))
        text = " ".join(filter(None, (place.lowering, place.backend, "of", kernels)))
        counts = [_count(len(rows), "cell") if cell and cell.ran else _absent(cell) for cell in row.cells]
        return Row((text, "-", counts[0], *(text for count in counts[1:] for text in (count, "-"))))
    told = []
    for case in cases:
        same = [other.place.spelling for other in rows if other.place._replace(spelling="") == case]
        told.append(_case(case) + ("" if len(same) == spellings[case] else f" ({', '.join(same)})"))
    return Row(("; ".join(told), *_sides(row, legend, len(cases) == 1)))


def _heading(text: str, columns: Sequence[Column]) -> Row:
    return Row((text, *[""] * (len(columns) - 1)), heading=True)


def _case(place: Place) -> str:
    words = (place.kernel, place.output, place.lowering, place.backend, place.dtype)
    return " ".join(filter(None, (*words, scalars_text(dict(place.scalars)))))


def _sides(row: Aligned, legend: _Legend, measured: bool) -> tuple[str, ...]:
    """Metric, and for each column what the cell measured and, but for the first column, how its bits differ."""
    numbers = [value for value in row.values if value is not None and measured]
    digits = next((n for n in range(4, 17) if len({upward(v, n) for v in numbers}) == len(set(numbers))), 17)
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
            words = [cell.status] if cell.status in FAILED else []
            words += [] if value is None else [upward(value, digits)]
            words += ["/".join(map(legend.letter, cell.formula)) or "none"] if cell.formula is not None else []
            words = [" ".join(words)]
            words += (f"{cell.counts(row.truth).get(name, 0)} {name.replace('_', '-')}" for name in telling)
            if row.reason:
                words.append(_inputs_told(cell.inputs, [other.inputs for other in ran]))
        facts += [", ".join(words), _bits(one)] if index else [", ".join(words)]
    return tuple(facts)


def _absent(cell: Facts | None) -> str:
    return "-" if cell is None else "not run"


def _inputs_told(inputs: Inputs, among: Sequence[Inputs]) -> str:
    """What tells the inputs of the sides apart: their number, else their digest."""
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
        lines.append(Line(", ".join([*words, *note]), label=f"{column.label}{role}:"))
    return lines


# Blocks


class _Legend:
    """Letters for formulas: a formula is long, and the same one returns in many rows."""

    def __init__(self) -> None:
        self.letters: dict[str, str] = {}

    def letter(self, formula: str) -> str:
        index = len(self.letters)
        name = chr(65 + index) if index < 26 else f"{chr(64 + index // 26)}{chr(65 + index % 26)}"
        return self.letters.setdefault(formula, name)

    def text(self, cell: Cell) -> str:
        if cell.formula is None:
            return "-"
        if cell.formula.identified is not None:
            return self.letter(cell.formula.identified)
        return "/".join(map(self.letter, cell.formula.survivors)) or "none"

    def lines(self) -> list[Line]:
        return [Line(formula, label=f"formula {letter}:") for formula, letter in self.letters.items()]


_ACCURACY = (
    Column("lowering", fold=True),
    Column("status", fold=True),
    Column("error", right=True),
    Column("metric"),
    Column("bound", right=True),
    Column("share", right=True),
    Column("misrounded", right=True),
    Column("formula", fold=True),
    Column("max ulp", right=True),
    Column("closer", right=True),
    Column("farther", right=True, joined=True),
    Column("tied", right=True, joined=True),
)


_OVERVIEW = (
    Column("lowering", fold=True),
    Column("passed", right=True),
    Column("error", right=True),
    Column("metric"),
    Column("bound", right=True),
    Column("share", right=True),
    Column("of case", fold=True),
    Column("closer", right=True),
    Column("farther", right=True, joined=True),
)


def _overview(cells: Sequence[Cell]) -> Table:
    """A heading for each backend, dtype and output; of each lowering the case of the largest share, and sums of all."""
    sections: dict[tuple[str, str, str], dict[str, list[Cell]]] = {}
    for cell in cells:
        section = sections.setdefault((cell.backend, cell.dtype, cell.output), {})
        section.setdefault(cell.lowering, []).append(cell)
    rows = []
    for title, lowerings in sections.items():
        rows.append(Row((" ".join(filter(None, title)), *[""] * (len(_OVERVIEW) - 1)), heading=True))
        for lowering, group in lowerings.items():
            most = max(group, key=lambda cell: (_failed(cell), share(cell) or 0.0))
            told = figures(most)
            against = [cell.against_eager for cell in group if cell.against_eager is not None]
            sums = (sum(one.closer for one in against), sum(one.farther for one in against))
            sides = map(str, sums if against else ("-", "-"))
            passed = f"{sum(cell.status in GOOD for cell in group)} of {len(group)}"
            case = " ".join(filter(None, (scalars_text(most.scalars), most.spelling)))
            named = (told[name] for name in ("error", "metric", "bound", "share"))
            rows.append(Row((lowering, passed, *named, case, *sides)))
    return Table(_OVERVIEW, tuple(rows))


def _section(cell: Cell) -> tuple[str, str, str, str]:
    return cell.backend, cell.dtype, scalars_text(cell.scalars), cell.output


def _obeyed(cell: Cell) -> list[str]:
    """The formulas whose bits the cell has."""
    if cell.formula is None:
        return []
    return cell.formula.survivors if cell.formula.identified is None else [cell.formula.identified]


def _accuracy(cells: Sequence[Cell], legend: _Legend) -> Table:
    """A heading for each backend, dtype, scalars and output; spellings that agree in everything share a row."""
    rows: list[Row] = []
    sections: dict[tuple[str, str, str, str], dict[tuple[str, ...], list[str]]] = {}
    for cell in cells:
        section = sections.setdefault(_section(cell), {})
        # Equal digests are equal bits; without one, a cell stands alone.
        bits = cell.digest or cell.spelling
        section.setdefault((bits, cell.lowering, *_facts(cell, legend)), []).append(cell.spelling)
    for title, section in sections.items():
        rows.append(Row((" ".join(filter(None, title)), *[""] * (len(_ACCURACY) - 1)), heading=True))
        split = Counter(lowering for _, lowering, *_ in section)
        for (_, lowering, *facts), spellings in section.items():
            named = lowering if split[lowering] == 1 else f"{lowering} ({', '.join(spellings)})"
            rows.append(Row((named, *facts)))
    return Table(_ACCURACY, tuple(rows))


def _facts(cell: Cell, legend: _Legend) -> tuple[str, ...]:
    told = {**figures(cell), "status": cell.status, "formula": legend.text(cell)}
    return tuple(told[column.title] for column in _ACCURACY[1:])


def _worst(cells: Iterable[Cell], environment: Mapping[str, Any]) -> list[Line]:
    """The worst element of each lowering: the user's own first, then by share of the bound, then by ULP."""

    def badness(cell: Cell) -> tuple[bool, float, float]:
        return is_file(cell.lowering), share(cell) or 0.0, cell.error.max_ulp if cell.error else 0.0

    best: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        if cell.worst:
            key = (cell.backend, cell.lowering)
            best[key] = max(best.get(key, cell), cell, key=badness)
    ranked = sorted(best.values(), key=badness, reverse=True)[:WORST_SHOWN]
    lines = [Line(_element(cell.worst[0]), label=f"worst {_place(cell)}:") for cell in ranked]
    if ranked:
        command = replay(ranked[0], ranked[0].worst[0])
        lines.append(Line(assignments(environment.get(ranked[0].backend)) + command, kind="command"))
    return lines


def _element(worst: Worst) -> str:
    error = "" if worst.ulp is None else f", {upward(worst.ulp)} ulp"
    kind = f", {worst.error_class.replace('_', '-')}" if worst.error_class else ""
    scaled = ""
    if worst.scaled_ulp is not None and worst.scaled_ulp != worst.ulp:
        scaled = f", {upward(worst.scaled_ulp)} scaled_ulp"
    truth = "exact" if worst.truth == "exact" else "exact by rounded scalars"
    part = "" if worst.share is None else f", {upward(100 * worst.share, 3)}% of its bound"
    element = f"{','.join(worst.inputs)} -> " if worst.inputs else f"element {worst.index}: "
    return f"{element}{worst.output}, {truth} {worst.exact}{error}{scaled}{part}{kind}"


def _place(cell: Cell) -> str:
    words = (cell.lowering, cell.spelling, cell.backend, cell.dtype, scalars_text(cell.scalars), cell.output)
    return " ".join(filter(None, words))


def _failures(cells: Iterable[Cell], environment: Mapping[str, Any], shown: int = FAILURES_SHOWN) -> list[Line]:
    failed = sorted(filter(_failed, cells), key=lambda cell: FAILED.index(cell.status))
    lines: list[Line] = []
    for cell in failed[:shown]:
        lines.append(Line(f"{cell.kernel} {_place(cell)}: {why_failed(cell)}", label=f"{cell.status}:", kind="bad"))
        if cell.worst:
            telling = _telling(cell)
            lines.append(Line(_element(telling), label="    "))
            lines.append(Line(assignments(environment.get(cell.backend)) + replay(cell, telling), kind="command"))
    if len(failed) > shown:
        lines.append(Line(f"and {len(failed) - shown} more failing cells, all in the report", kind="bad"))
    return lines


def _telling(cell: Cell) -> Worst:
    """The element that shows why a cell failed: of the largest error where the bound is exceeded, else of a class."""
    if (share(cell) or 0.0) <= 1:
        return next((one for one in cell.worst if one.error_class in FAILING), cell.worst[0])
    return cell.worst[0]


def _failed(cell: Cell) -> bool:
    return cell.status in FAILED


def _excess(cell: Cell) -> str:
    value, metric = measured(cell)
    limit = "no bound" if cell.bound is None else f"the bound {cell.bound.value:.6g} ({cell.bound.source})"
    return f"{upward(value)} {metric} against {limit}"


def _remarks(cells: Iterable[Cell]) -> list[Line]:
    """One line a reason, with the lowerings, backends and dtypes: what was not run, what passed with a remark. What
    was measured of a known deviation is told where it is the same of all."""
    reasons: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.reason and not _failed(cell):
            known = cell.reason.startswith("known deviation: ")
            why = (known and cell.reason.rpartition(" (")[0]) or cell.reason
            reasons.setdefault((cell.status.replace("-", " "), why), []).append(cell)
    lines = []
    for (status, why), group in reasons.items():
        reason = group[0].reason if len({cell.reason for cell in group}) == 1 else why
        what = (
            " ".join(dict.fromkeys(getattr(cell, name) for cell in group)) for name in ("lowering", "backend", "dtype")
        )
        lines.append(Line(f"{', '.join(what)}: {reason}", label=f"{status}, {_count(len(group), 'cell')}:"))
    return lines


def _totals(cells: Iterable[Cell]) -> Line:
    cells = list(cells)
    errors = [cell.error for cell in cells if cell.error is not None]
    inputs, undecided = sum(e.inputs for e in errors), sum(e.undecided for e in errors)
    passed = sum(cell.status in GOOD for cell in cells)
    mp = sum(cell.timing.mp_elements for cell in cells)
    kernel, check = (sum(getattr(cell.timing, name) for cell in cells) for name in ("kernel_s", "check_s"))
    text = (
        f"{passed} of {_count(len(errors), 'cell')} passed; undecided {undecided} of {inputs} elements; "
        f"{mp} in multiprecision; kernels {kernel:.3g} s, check {check:.3g} s"
    )
    good = undecided == 0 and passed == len(errors) > 0
    return Line(text, kind="good" if good else "bad")


def _summary(kernel: str, backend: str, cells: Sequence[Cell]) -> tuple[str, ...]:
    errors = [cell.error for cell in cells if cell.error is not None]
    shares = [part for part in map(share, cells) if part is not None]
    inputs = sum(error.inputs for error in errors)
    return (
        kernel,
        backend,
        str(sum(cell.status in GOOD for cell in cells)),
        str(sum(map(_failed, cells))),
        str(sum(cell.status == "not-run" for cell in cells)),
        upward(max(error.max_ulp for error in errors)) if errors else "-",
        f"{upward(100 * max(shares), 3)}%" if shares else "-",
        percent(sum(error.misrounded for error in errors), inputs) if errors else "-",
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_BOUNDS = (
    Column("#", right=True),
    Column("bound", right=True),
    Column("metric"),
    Column("dtypes", fold=True),
    Column("lowering", fold=True),
    Column("backend"),
    Column("spelling", fold=True),
    Column("cases", fold=True),
    Column("scalars"),
    Column("source", right=True),
)


def _bounds(kernel: Kernel) -> list[Table | Line]:
    """The bounds, where each first appears in the order in which they are tried.

    Those that differ only in cases or dtypes share a row. Sources are long and return: they follow, numbered.
    """
    sources = list(dict.fromkeys(bound.source for bound in kernel.bounds))
    cases: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for bound in kernel.bounds:
        what = (f"{bound.value:.6g}", bound.metric, bound.lowering, bound.backend, bound.spelling, bound.truth)
        key = ((*what, f"[{sources.index(bound.source) + 1}]"), bound.dtypes)
        cases.setdefault(key, []).extend(
            scalars_text(case) or "all tensors" for case in kernel.cases if bound.applies(case)
        )
    dtypes: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (facts, covered), applying in cases.items():
        which = "*" if len(set(applying)) == len(kernel.cases) else ", ".join(applying)
        dtypes.setdefault((facts, which), []).extend(covered)
    rows = []
    for number, ((facts, which), names) in enumerate(dtypes.items(), 1):
        value, metric, lowering, backend, spelling, truth, source = facts
        named = "*" if set(names) >= set(kernel.dtypes) else " ".join(names)
        rows.append(Row((str(number), value, metric, named, lowering, backend, spelling, which, truth, source)))
    return [Table(_BOUNDS, tuple(rows)), *(Line(text, label=f"[{n}]") for n, text in enumerate(sources, 1))]
