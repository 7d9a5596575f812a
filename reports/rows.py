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

from verify.judge.regions import REGIONS
from verify.judge.status import STATUSES, exit_code
from verify.kernel import DTYPES, Composite, facts_of, is_file
from verify.reports import invariance
from verify.reports.looks import COUNTED, LOOKS, PREDICTED, counted_text, tally, tally_text, tone
from verify.ulp import FAILING

if TYPE_CHECKING:
    from verify.kernel import Kernel
    from verify.reports.compare import Aligned, Comparison, Facts, Inputs, Pair, Place, Within
    from verify.reports.exchange import Exchanged
    from verify.reports.history import Failing, History, Recorded
    from verify.reports.schema import Bound, Cell, Error, Region, Report, Worst

#: A maximum may hold the radius of the enclosure that judged it, and so change with this project's arithmetic: where
#: two results have the same bits, a difference below this part of it is taken for that.
ENCLOSURE = 2.0**-30

#: How many failing cells, and how many worst elements, are spelled out; the report holds all.
FAILURES_SHOWN = 4
#: Cases (backend, dtype, scalars, output) up to which each is listed beside a user's own lowering.
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
    """A sentence; `label` sets off its beginning. `kind` is plain, command (to be copied whole) or a tone of
    `verify.reports.looks`."""

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
    if text.isprintable():
        return text
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


# Figures of cells and regions


def code_of(cell: Cell) -> int:
    """The exit code that the cell causes. No allowance is for a user's own file."""
    user = is_file(cell.lowering)
    return exit_code(cell.status, user=user, allowed=bool(cell.allowance) and not user)


def fails(cell: Cell) -> bool:
    """Whether the cell ends a run with another exit code than 0."""
    return code_of(cell) != 0


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
    """What stands for a cell: region `normal`; where it is empty the largest region; without regions all of it."""
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


def figures(cell: Cell) -> dict[str, str]:
    """What is printed of a cell that ran, by the title of its column: the one place where figures become text. Error,
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
    """The regions that are listed beside the headline: those that did not pass, and those of a larger error. Worst
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


def why_failed(cell: Cell) -> str:
    """The reason of a cell that failed: the run's own, else what was undecided, else the excess over the bound."""
    undecided = cell.error.undecided if cell.error else 0
    return cell.reason or (f"{_count(undecided, 'element')} undecided" if undecided else excess(cell))


def beside_regions(cell: Cell) -> list[tuple[str, str]]:
    """What is wrong with a cell that no region tells of, as status and text: results that differ, broken properties,
    and a status that no region has."""
    if not cell.regions:
        return []
    found = []
    if cell.distinct > 1 and cell.status != "unsteady":
        found.append(("unsteady", f"{cell.distinct} different results in {cell.repeats} launches, all judged"))
    if cell.calls and cell.calls.different and not cell.calls.note and cell.reason_kind != "calls":
        found.append(("unsteady", f"{len(cell.calls.different)} of {cell.calls.made} other calls give other bits"))
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


def calls_text(cell: Cell) -> str:
    """What other calls than the walk's gave; '' where none were made."""
    if cell.calls is None:
        return ""
    told = {"other bits": cell.calls.different, "refused": cell.calls.refused, "not made": cell.calls.untried}
    listed = (f"{what} {len(names)}: {', '.join(names)}" for what, names in told.items() if names)
    return "; ".join([f"{cell.calls.made} made", *listed])


def region_reason(name: str, region: Region) -> str:
    """'in normal: 89.2 ulp against the bound 2 (CUDA C++ ...) [ids of the ledger]'."""
    text = region.reason.text or _against(region.error, region.bound)
    return f"in {name}: {text}{ledger_text(region.reason.ledger)}"


def ledger_text(ids: Sequence[str]) -> str:
    return f" [ledger: {', '.join(ids)}]" if ids else ""


def scalars_text(scalars: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in scalars.items())


# Pages


def kernel_page(report: Report, name: str) -> Page:
    """`verify kernel NAME`: every cell of one kernel. Where a user's own lowering fails or is among many, the answer is
    kept to a screen: one row a dtype and lowering, of the user's what fails first, and remarks on it alone."""
    cells = [cell for cell in report.cells if cell.kernel == name]
    compared = [cell for cell in cells if cell.error is not None]
    own = [cell for cell in cells if is_file(cell.lowering)]
    blocks: list[Table | Line] = []
    title = f"{name}: errors against the real number, profile {report.profile}, seed {report.seed}"
    if any(map(fails, own)) or (own and len({_section(cell) for cell in compared}) > SECTIONS_SHOWN):
        formulas = dict.fromkeys((cell.lowering, text) for cell in own for text in _obeyed(cell))
        passed = (cell for cell in own if cell.error is not None and not fails(cell))
        return Page(
            title,
            (
                _overview(compared),
                *(Line(text, label=f"formula of {lowering}:") for lowering, text in formulas),
                *_worst(passed, report.environment),
                *_first(own, report.environment),
                *_deviations(own, report.environment, FAILURES_SHOWN // 2),
                *_remarks(own),
                _totals(cells),
                Line("every case apart: name a --dtype, or write them with --json FILE"),
            ),
        )
    if compared:
        legend = _Legend()
        spellings = ", ".join(dict.fromkeys(cell.spelling for cell in compared))
        blocks += [
            _accuracy(compared, legend, report.environment),
            Line(f"{spellings}; where all give the same bits, one row stands for them", label="spellings:"),
            *legend.lines(),
            *_worst((cell for cell in compared if not fails(cell)), report.environment),
        ]
    blocks += [*_failures(cells, report.environment), *_deviations(cells, report.environment), *_remarks(cells)]
    blocks.append(_totals(cells))
    return Page(title, tuple(blocks))


def run_page(report: Report) -> Page:
    """`verify run`: one row a kernel and backend."""
    counts = tally(cell.status for cell in report.cells)
    counted = [name for name in COUNTED if counts[name] or name in ("passed", "failed", "not run")]
    columns = (
        Column("kernel"),
        Column("backend"),
        *(Column(name, right=True, joined=index > 0) for index, name in enumerate(counted)),
        Column("max ulp", right=True),
        Column("share", right=True),
        Column("misrounded", right=True),
    )
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in report.cells:
        groups.setdefault((cell.kernel, _backend(cell)), []).append(cell)
    rows = tuple(Row(_summary(*key, cells, counted)) for key, cells in groups.items())
    blocks: list[Table | Line] = [
        Table(columns, rows),
        *_failures(report.cells, report.environment),
        *_deviations(report.cells, report.environment),
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


def show_page(kernel: Kernel | Composite, lowerings: Sequence[str], own: Sequence[tuple[str, str]]) -> Page:
    """`verify show NAME`: inputs, cases, spellings, formulas, bounds, specials and properties of one kernel.

    own: what concerns a user's own lowering, as (label, text).
    """
    if isinstance(kernel, Composite):
        return _composite_page(kernel, lowerings, own)
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
    blocks += [*_bounds(kernel), *_own(kernel.name, own)]
    return Page(f"{kernel.name}: {kernel.summary}", tuple(blocks))


def _own(name: str, own: Sequence[tuple[str, str]]) -> list[Line]:
    """A lowering of the user's own, and the commands for it."""
    return [
        Line("FILE.py:FUNCTION", label="a lowering of your own:"),
        *(Line(text, label=label) for label, text in own),
        Line(f"verify show {name} --stub > mine.py", kind="command"),
        Line(f"verify kernel {name} --lowering mine.py:{name}", kind="command"),
    ]


def _composite_page(kernel: Composite, lowerings: Sequence[str], own: Sequence[tuple[str, str]]) -> Page:
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
        *_own(kernel.name, own),
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
    blocks += _verdicts([entry for entry in told["lowerings"] if not entry["reason"]])
    for item in sorted(told["formulas"], key=lambda item: not item["matches"]):
        same = f"  ({', '.join(item['matches'])})" if item["matches"] else ""
        blocks.append(Line(f"{item['text']} = {item['output']}{same}", label="formula:"))
    blocks += [Line(reason, label=f"not run: {', '.join(group)}:") for reason, group in reasons.items()]
    return Page(f"{told['kernel']} {told['dtype']} on {told['backend']}{_predicted(told)}", tuple(blocks))


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
        blocks.append(Line(f"{text}: {since}", label=f"{one.facts.status}:", kind=LOOKS[one.facts.status].tone))
    if limit is not None and len(found.failing) > limit:
        blocks.append(Line(f"and {_count(len(found.failing) - limit, 'failing cell')} more: --limit 0", kind="bad"))
    changed = sum(len(step.changes) for step in found.steps)
    text = f"{_count(changed, 'change')} in {_count(found.series, 'cell')} that two reports or more have in common"
    kind = "bad" if found.failing else "deviates" if found.deviating else "good"
    text += f"; {len(found.failing)} failing"
    text += f", {counted_text('deviate', found.deviating)}" if found.deviating else ""
    blocks += [*legend.lines(), Line(text, kind=kind)]
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


def invariance_page(found: Sequence[Mapping[str, Any]]) -> Page:
    """`verify kernel NAME --invariance`: the rows of `verify.invariance.walk`."""
    columns = (
        Column("lowering"), Column("dtype"), Column("length", right=True), Column("invariant"),
        Column("sizes that differ", right=True), Column("from size", right=True), Column("row", right=True),
        Column("steps", right=True), Column("place"), Column("other rows"),
    )  # fmt: skip
    rows: list[Row] = []
    notes: list[Line] = []
    for kernel, backend in dict.fromkeys((one["kernel"], one["backend"]) for one in found):
        rows.append(Row((f"{kernel} on {backend}", *[""] * (len(columns) - 1)), heading=True))
        for one in found:
            if (one["kernel"], one["backend"]) != (kernel, backend):
                continue
            name = one["lowering"], one["dtype"], str(one["length"])
            if one["reason"]:
                notes.append(Line(f"{kernel} {' '.join(name)}: {one['reason']}", label="not run:"))
                continue
            differing = one["differing"]
            where = (str(differing[0]), str(one["row"]), str(one["steps"])) if differing else ("-",) * 3
            told = ("other bits" if one["place"] else "same", "other bits" if one["contents"] else "same")
            answer = "yes" if one["invariant"] else "no"
            rows.append(Row((*name, answer, f"{len(differing)} of {one['sizes']}", *where, *told)))
    return Page("batch invariance: bits of a row beside those that it has alone", (Table(columns, tuple(rows)), *notes))


def audit_page(
    rows: Sequence[Any], told: Mapping[tuple[str, str, str], Sequence[str]], changed: Sequence[str] | None = None
) -> Page:
    """`verify audit`: the rows of `verify.audit.audit`, in words what differs (`verify.audit.differences`), and what is
    not as accepted; None: nothing was accepted."""
    kinds = ("fma", "mad", "mul", "add", "div", "approx", "cvt", "matrix", "ftz")
    blocks: list[Table | Line] = []
    absent: dict[str, dict[str, dict[str, None]]] = {}
    targets = {row.asked.target for row in rows}
    for key in dict.fromkeys((row.asked.kernel, row.asked.lowering, row.asked.dtype) for row in rows):
        mine = [row for row in rows if (row.asked.kernel, row.asked.lowering, row.asked.dtype) == key]
        for row in mine:
            if row.census is None:
                absent.setdefault(row.reason, {}).setdefault(" ".join(key), {})[row.asked.target] = None
        counted = [(row.asked, row.census, row.census.kinds()) for row in mine if row.census]
        shown = [kind for kind in kinds if any(found[kind] for _, _, found in counted)]
        columns = (Column("target"), Column("fp fusion"), *(Column(kind, right=True) for kind in shown))
        smaller: dict[str, dict[str, None]] = {}
        for row in mine:
            if row.blocks:
                smaller.setdefault(row.blocks, {})[row.asked.target] = None
        if counted:
            blocks.append(Line("", label=" ".join(key)))
            table = [
                Row((asked.target, "on" if asked.fusion else "off", *(str(found[kind]) for kind in shown)))
                for asked, _, found in counted
            ]
            blocks.append(Table(columns, tuple(table)))
        named: dict[str, dict[str, None]] = {}
        for asked, census, _ in counted:
            text = ", ".join(f"{count} {name}" for name, count in census.listed())
            named.setdefault(text, {})[asked.target] = None
        blocks += [Line(text, label=f"{', '.join(on)}:") for text, on in named.items() if text]
        blocks += [
            Line(f"compiled in blocks of {size}, smaller than those that run: fewer of the same instructions",
                 label=f"{', '.join(on)}:")
            for size, on in smaller.items()
        ]  # fmt: skip
        blocks += [Line(sentence) for sentence in told.get(key, ())]
    for why, which in absent.items():
        some = [f"{name} for {', '.join(on)}" if set(on) != targets else name for name, on in which.items()]
        blocks.append(Line(f"{why}: {'; '.join(some)}", label="not compiled:"))
    blocks += [Line(text, label="changed:", kind="bad") for text in changed or ()]
    if changed is not None and not changed:
        blocks.append(Line("every instruction is as accepted", kind="good"))
    return Page("audit: floating-point instructions of the compiled code; nothing was executed", tuple(blocks))


def replay_page(found: Sequence[Any]) -> Page:
    """`verify replay`: the launches of `verify.virtual.replay.replay`."""
    ran = [one for one in found if not one.reason]
    columns = (
        Column("launch", fold=True), Column("kernel"), Column("target"), Column("triton"), Column("bits"),
    )  # fmt: skip
    rows = [Row((one.label, one.name, one.target, one.triton, "differ" if one.differing else "equal")) for one in ran]
    blocks: list[Table | Line] = [Table(columns, tuple(rows))] if rows else []
    blocks += [Line(one.told, label=f"differs: {one.label}", kind="bad") for one in ran if one.differing]
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.reason:
            reasons.setdefault(one.reason, []).append(one.label)
    blocks += [Line(f"{why}: {'; '.join(on)}", label="not replayed:") for why, on in reasons.items()]
    models = dict.fromkeys(text for one in ran for text in one.modelled)
    blocks += [Line(", ".join(models), label="modelled:")] if models else []
    equal = sum(not one.differing for one in ran)
    text = f"{equal} of {len(ran)} {'launch' if len(ran) == 1 else 'launches'} gave the bits that were kept"
    blocks.append(Line(text, kind="good" if ran and equal == len(ran) else "bad"))
    return Page("replay: kept launches executed on the CPU", tuple(blocks))


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
    blocks += _verdicts(ran)
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
    return Page(f"{told['kernel']} {told['dtype']} on {told['backend']}{_predicted(told)}", tuple(blocks))


def _verdicts(entries: Sequence[Mapping[str, Any]]) -> list[Table | Line]:
    """What the judge says of an element: where it lies, what it may be, and what fails or accounts for it."""
    found = [Line(", ".join(dict.fromkeys(entry["region"] for entry in entries)), label="region:")] if entries else []
    often = Counter(entry["lowering"] for entry in entries)
    names = [
        entry["lowering"] + (f" ({entry['spelling']})" if often[entry["lowering"]] > 1 else "") for entry in entries
    ]
    bounds: dict[str, list[str]] = {}
    verdicts: dict[tuple[str, str], list[str]] = {}
    for name, entry in zip(names, entries, strict=True):
        share = "" if entry["share"] is None else f"; {upward(100 * entry['share'], 3)}% of it"
        bounds.setdefault(entry["may_be"], []).append(f"{name}{share}")
        told = "; ".join(filter(None, (entry["why"], *entry["ledger"].values())))
        if told:
            verdicts.setdefault((entry["status"], told), []).append(name)
    found += [Line(f"{may_be} ({', '.join(group)})", label="may be:") for may_be, group in bounds.items()]
    found += [Line(told, label=f"{status}, {', '.join(group)}:") for (status, told), group in verdicts.items()]
    return [*found]


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
        for group in list(groups.values())[:limit]:
            rows += _compared(group, spellings, legend)
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
    """What rows that are printed as one have in common: all but the spelling, or a lowering that one side has alone."""
    place = row.place._replace(spelling="")
    if row.kind == "one side only":
        ran = tuple(cell is not None and cell.ran for cell in row.cells)
        reasons = (cell.reason if cell and not cell.ran else "" for cell in row.cells)
        return (place.lowering, place.backend, ran, *reasons)
    bits = [cell.digest for cell in row.cells if cell]
    alone = "" if all(bits) else row.place.spelling  # without a digest, a cell stands alone
    facts = (cell and (cell.status, cell.mismatches, cell.rounded, cell.formula, cell.inputs) for cell in row.cells)
    return (place, alone, *bits, *row.values, *row.pairs, *row.regions, *facts)


def _compared(rows: Sequence[Aligned], spellings: Mapping[Place, int], legend: _Legend) -> list[Row]:
    """One row of the table for rows that are alike; below it the regions that differ."""
    row, place = rows[0], rows[0].place
    cases = dict.fromkeys(other.place._replace(spelling="") for other in rows)
    if len(cases) > ALONE_SHOWN:
        kernels = ", ".join(dict.fromkeys(case.kernel for case in cases))
        text = " ".join(filter(None, (place.lowering, place.backend, "of", kernels)))
        counts = [_count(len(rows), "cell") if cell and cell.ran else _absent(cell) for cell in row.cells]
        return [Row((text, "-", counts[0], *(text for count in counts[1:] for text in (count, "-"))))]
    told = []
    for case in cases:
        same = [other.place.spelling for other in rows if other.place._replace(spelling="") == case]
        told.append(_case(case) + ("" if len(same) == spellings[case] else f" ({', '.join(same)})"))
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
    """How many digits tell the numbers apart, four at least."""
    return next((n for n in range(4, 17) if len({upward(v, n) for v in numbers}) == len(set(numbers))), 17)


def _heading(text: str, columns: Sequence[Column]) -> Row:
    return Row((text, *[""] * (len(columns) - 1)), heading=True)


def _case(place: Place) -> str:
    words = (place.kernel, place.output, place.lowering, place.backend, place.dtype)
    return " ".join(filter(None, (*words, scalars_text(dict(place.scalars)))))


def _sides(row: Aligned, legend: _Legend, measured: bool) -> tuple[str, ...]:
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
    Column("passed", right=True, fold=True),
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
            most = max(group, key=lambda cell: (-STATUSES.index(cell.status), share(cell) or 0.0))
            told = figures(most)
            against = [cell.against_eager for cell in group if cell.against_eager is not None]
            sums = (sum(one.closer for one in against), sum(one.farther for one in against))
            sides = map(str, sums if against else ("-", "-"))
            counts = tally(cell.status for cell in group)
            passed = f"{counts['passed']} of {len(group)}"
            others = (name for name in COUNTED if counts[name] and name not in ("passed", "not run"))
            passed = ", ".join([passed, *(counted_text(name, counts[name]) for name in others)])
            case = " ".join(filter(None, (scalars_text(most.scalars), most.spelling)))
            named = (told[name] for name in ("error", "metric", "bound", "share"))
            rows.append(Row((lowering, passed, *named, case, *sides)))
    return Table(_OVERVIEW, tuple(rows))


def _section(cell: Cell) -> tuple[str, str, str, str]:
    return _backend(cell), cell.dtype, scalars_text(cell.scalars), cell.output


def _predicted(told: Mapping[str, Any]) -> str:
    return "" if facts_of(told["backend"]) == told["backend"] else f" {PREDICTED} predicted, not measured"


def _backend(cell: Cell) -> str:
    return cell.backend if cell.predicted is None else f"{cell.backend} (predicted)"


def _status(cell: Cell, status: str = "") -> str:
    """The cell's status, or a region's, marked where it is no measurement."""
    return (status or cell.status) if cell.predicted is None else f"{PREDICTED} {status or cell.status}"


def _obeyed(cell: Cell) -> list[str]:
    """The formulas whose bits the cell has."""
    if cell.formula is None:
        return []
    return cell.formula.survivors if cell.formula.identified is None else [cell.formula.identified]


def _accuracy(cells: Sequence[Cell], legend: _Legend, environment: Mapping[str, Any]) -> Table:
    """A heading for each backend, dtype, scalars and output; spellings that agree in everything share a row. Below it
    stand the regions that are listed: see `telling`. Whether rows are batch invariant stands where it was measured."""
    batch = {
        (cell.backend, cell.lowering, cell.dtype): invariance.told(
            cell.kernel, cell.lowering, cell.dtype, environment.get(cell.backend)
        )
        for cell in cells
    }
    columns = (*_ACCURACY, *([Column("batch invariant", fold=True)] if any(batch.values()) else []))
    rows: list[Row] = []
    sections: dict[tuple[str, str, str, str], dict[tuple[Any, ...], list[str]]] = {}
    for cell in cells:
        section = sections.setdefault(_section(cell), {})
        told = figures(cell) | {"status": _status(cell), "formula": legend.text(cell)}
        told["batch invariant"] = batch[cell.backend, cell.lowering, cell.dtype] or "-"
        # Equal digests are equal bits; without one, a cell stands alone.
        bits = cell.digest or cell.spelling
        facts = tuple(told[column.title] for column in columns[1:])
        section.setdefault((bits, cell.lowering, facts, _regions(cell, columns)), []).append(cell.spelling)
    for title, section in sections.items():
        rows.append(Row((" ".join(filter(None, title)), *[""] * (len(columns) - 1)), heading=True))
        split = Counter(lowering for _, lowering, *_ in section)
        for (_, lowering, facts, regions), spellings in section.items():
            named = lowering if split[lowering] == 1 else f"{lowering} ({', '.join(spellings)})"
            rows.append(Row((named, *facts)))
            rows += map(Row, regions)
    return Table(columns, tuple(rows))


def _regions(cell: Cell, columns: Sequence[Column]) -> tuple[tuple[str, ...], ...]:
    """The rows of a cell's regions."""
    regions = []
    for name, region in telling(cell).items():
        facts = {"lowering": f"  in {name}", "status": _status(cell, region.status), **figures_of(region)}
        regions.append(tuple(facts.get(column.title, "-") for column in columns))
    return tuple(regions)


def _worst(cells: Iterable[Cell], environment: Mapping[str, Any]) -> list[Line]:
    """The worst element of each lowering: the user's own first, then by share of the bound, then by ULP."""

    def badness(cell: Cell) -> tuple[bool, float, float]:
        return is_file(cell.lowering), share(cell) or 0.0, headline(cell)[0].max_ulp if cell.error else 0.0

    best: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        if worst_of(cell):
            key = (cell.backend, cell.lowering)
            best[key] = max(best.get(key, cell), cell, key=badness)
    ranked = sorted(best.values(), key=badness, reverse=True)[:WORST_SHOWN]
    lines = [Line(_element(worst_of(cell)[0]), label=f"worst {_place(cell)}:") for cell in ranked]
    if ranked:
        command = replay(ranked[0], worst_of(ranked[0])[0])
        lines.append(Line(assignments(environment.get(ranked[0].backend)) + command, kind="command"))
    return lines


def worst_of(cell: Cell) -> Sequence[Worst]:
    """The worst elements of what stands for the cell: see `headline`."""
    normal = cell.regions.get("normal")
    return (normal.worst if normal is not None else []) or cell.worst


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
    """Each failing cell with its reason; where regions fail, one line for each of them, with its worst element."""
    failed = sorted(filter(fails, cells), key=lambda cell: STATUSES.index(cell.status))
    lines = [line for cell in failed[:shown] for line in _failure(cell, environment)]
    if len(failed) > shown:
        lines.append(Line(f"and {len(failed) - shown} more failing cells, all in the report", kind="bad"))
    return lines


def _failure(cell: Cell, environment: Mapping[str, Any], shown: int | None = None) -> list[Line]:
    """What is wrong with a cell. shown: how many of its regions are told, the rest is counted."""
    before, named = assignments(environment.get(cell.backend)), f"{cell.kernel} {_place(cell)}"
    regions = {name: one for name, one in telling(cell).items() if one.status not in ("passed", "deviates")}
    lines = [_status_line(status, f"{named}: {text}") for status, text in beside_regions(cell)]
    lines += [Line(text, kind="command") for text in (cell.calls.script if cell.calls else ())]
    if not cell.regions:
        lines.append(_status_line(cell.status, f"{named}: {why_failed(cell)}"))
        if cell.worst:
            telling_one = _telling(cell)
            lines.append(Line(_element(telling_one), label="    "))
            lines.append(Line(before + replay(cell, telling_one), kind="command"))
    for name, region in list(regions.items())[:shown]:
        lines.append(_status_line(region.status, f"{named}: {region_reason(name, region)}"))
        lines += [Line(_element(one), label="    ") for one in region.worst[:1]]
        lines += [Line(before + replay(cell, one), kind="command") for one in region.worst[:1]]
    if rest := list(regions)[shown:] if shown else ():
        lines.append(Line(f"and in {', '.join(rest)}", kind="bad"))
    return lines


def _first(cells: Sequence[Cell], environment: Mapping[str, Any]) -> list[Line]:
    """Of each of the user's lowerings the failing cell that a script shows, else the first in the worst status; the
    others are counted."""
    failed: dict[str, list[Cell]] = {}
    for cell in filter(fails, cells):
        failed.setdefault(cell.lowering, []).append(cell)
    lines: list[Line] = []
    for place, group in enumerate(failed.values()):
        first = None
        if place < FAILURES_SHOWN // 2:
            first = min(group, key=lambda one: (not (one.calls and one.calls.script), STATUSES.index(one.status)))
            lines += _failure(first, environment, shown=1)
        others: dict[str, list[Cell]] = {}
        for one in group:
            if one is not first:
                others.setdefault(one.status, []).append(one)
        for status, rest in others.items():
            lines.append(_status_line(status, f"{_count(len(rest), 'more cell')} of {_named(rest)}"))
    return lines


def _status_line(status: str, text: str) -> Line:
    return Line(text, label=f"{status}:", kind=LOOKS[status].tone)


def _deviations(cells: Iterable[Cell], environment: Mapping[str, Any], shown: int = FAILURES_SHOWN) -> list[Line]:
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
        cell, most = max(members, key=lambda one: _part(*one))
        place = f"{_named(one for one, _ in members)}: "
        reason = f"{cell.reason} ({excess(cell)})" if most is None else region_reason(name, most)
        at = f"; the largest, {cell.kernel} {_place(cell)}" if len(members) > 1 else ""
        lines.append(Line(f"{place}{reason}{at}", label=f"deviates, {_count(len(members), 'cell')}:", kind="deviates"))
        for one in (cell.worst if most is None else most.worst)[:1]:
            lines.append(Line(_element(one), label="    "))
            lines.append(Line(assignments(environment.get(cell.backend)) + replay(cell, one), kind="command"))
    rest = list(groups.values())[shown:]
    if rest:
        more = len({id(cell) for members in rest for cell, _ in members})
        lines.append(Line(f"and {_count(more, 'cell')} more for other reasons, all in the report", kind="deviates"))
    return lines


def _part(cell: Cell, region: Region | None) -> float:
    return (share(cell) if region is None else region_part(region)) or 0.0


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


def excess(cell: Cell) -> str:
    """'89.2 ulp against the bound 2 (its source); 3 flushed', of all elements."""
    if cell.error is None:
        return ""
    counts = {name: getattr(cell.judged, name) for name in FAILING if not (name == "flushed" and cell.ftz)}
    classes = (f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
    return "; ".join([_against(cell.judged, cell.bound), *classes])


def _against(error: Error, bound: Bound | None) -> str:
    value, metric = maximum(error, bound)
    source = f" ({bound.source})" if bound is not None and bound.source else ""
    limit = "no bound" if bound is None else f"the bound {bound.value:.6g}{source}"
    return f"{upward(value)} {metric} against {limit}"


def _remarks(cells: Iterable[Cell]) -> list[Line]:
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
        label = f"{status}{allowed}, {_count(len(group), 'cell')}:"
        lines.append(Line(f"{_named(group)}: {why}", label=label, kind="open" if allowance else "plain"))
    if unjudged:
        _, cell, name = max(unjudged, key=lambda one: one[0])
        region = cell.regions[name]
        text = f"nothing is stated of {percent(region.unjudged, region.inputs)} of region {name}"
        most = "" if len(unjudged) == 1 else " at most"
        count = _count(len({id(one) for _, one, _ in unjudged}), "cell")
        lines.append(
            Line(f"{text}{most}: {cell.kernel} {_place(cell)}", label=f"unjudged elements, {count}:", kind="open")
        )
    return lines


def _models(cells: Iterable[Cell]) -> list[Line]:
    """How predicted cells modelled what no standard defines: one line a model, with its instructions and lowerings."""
    models: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for cell in cells:
        for instruction, how in (cell.predicted or {}).items():
            models.setdefault((cell.backend, how), {}).setdefault(instruction, {})[cell.lowering] = None
    return [
        Line("; ".join(f"{one} ({', '.join(on)})" for one, on in each.items()), label=f"predicted, {backend}, {how}:")
        for (backend, how), each in models.items()
    ]


def _totals(cells: Iterable[Cell]) -> Line:
    cells = list(cells)
    errors = [cell.error for cell in cells if cell.error is not None]
    inputs, undecided = sum(e.inputs for e in errors), sum(e.undecided for e in errors)
    counts = tally(cell.status for cell in cells if cell.predicted is None)
    predicted = tally(cell.status for cell in cells if cell.predicted is not None)
    mp = sum(cell.timing.mp_elements for cell in cells)
    named = {"kernels": "kernel_s", "compiling": "compile_s", "check": "check_s"}
    times = {word: sum(getattr(cell.timing, name) for cell in cells) for word, name in named.items()}
    shown = ", ".join(f"{word} {seconds:.3g} s" for word, seconds in times.items() if seconds or word != "compiling")
    tallies = [tally_text(counts)] if any(counts.values()) or not cells else []
    tallies += [f"predicted, not measured: {tally_text(predicted)}"] if any(predicted.values()) else []
    text = f"{'; '.join(tallies)}; undecided {undecided} of {inputs} elements; {mp} in multiprecision; {shown}"
    predicts = tone(predicted).replace("good", "plain")  # no prediction is green
    return Line(text, kind="bad" if undecided else tone(counts) if any(counts.values()) or not cells else predicts)


def _summary(kernel: str, backend: str, cells: Sequence[Cell], counted: Sequence[str]) -> tuple[str, ...]:
    errors = [cell.error for cell in cells if cell.error is not None]
    shares = [part for part in map(share, cells) if part is not None]
    inputs = sum(error.inputs for error in errors)
    counts = tally(cell.status for cell in cells)
    return (
        kernel,
        backend,
        *(str(counts[name]) for name in counted),
        upward(max(headline(cell)[0].max_ulp for cell in cells if cell.error is not None)) if errors else "-",
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
