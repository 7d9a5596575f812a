"""What `verify kernel` and `verify run` print of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from verify.facts.kernel import is_file
from verify.judge.status import STATUSES
from verify.reports import invariance
from verify.reports.blocks import Column, Legend, Line, Page, Row, Table, heading
from verify.reports.figures import counted, fails, figures, figures_of, headline, share, telling
from verify.reports.looks import COUNTED, LOOKS, PREDICTED, counted_text, tally, tally_text, tone
from verify.reports.reasons import lacking, parts_of, statuses_beside
from verify.reports.replays import Replays
from verify.reports.text import count_text, percent, scalars_text, upward
from verify.reports.witnesses import (
    FAILURES_SHOWN,
    deviation_lines,
    failure_lines,
    first_failures,
    remark_lines,
    shown_failures,
    worst_lines,
)

if TYPE_CHECKING:
    from verify.reports.schema import Cell, Report


#: Cases (backend, dtype, scalars, output) up to which each is listed beside a user's own lowering.
SECTIONS_SHOWN = 6


def kernel_page(report: Report, name: str) -> Page:
    """`verify kernel NAME`: every cell of one kernel. Where a user's own lowering fails or is among many, the answer is
    kept to a screen: one row a dtype and lowering, of the user's what fails first, and remarks on it alone."""
    cells = [cell for cell in report.cells if cell.kernel == name]
    compared = [cell for cell in cells if cell.error is not None]
    own = [cell for cell in cells if is_file(cell.lowering)]
    replays = Replays.of(report)
    blocks: list[Table | Line] = [*_verdicts(own)]
    title = f"{name}: errors against the real number, profile {report.profile}, seed {report.seed}"
    if any(map(fails, own)) or (own and len({_section(cell) for cell in compared}) > SECTIONS_SHOWN):
        formulas = dict.fromkeys((cell.lowering, text) for cell in own for text in _obeyed(cell))
        measured = (cell for cell in own if cell.error is not None)
        many = len({cell.dtype for cell in cells}) > 1
        return Page(
            title,
            (
                *blocks,
                _overview(compared),
                *(Line(text, label=f"formula of {lowering}:") for lowering, text in formulas),
                *worst_lines(measured, replays, shown_failures(own)),
                *first_failures(own, replays),
                *deviation_lines(own, replays, FAILURES_SHOWN // 2),
                *remark_lines(own),
                _totals(cells),
                *([_apart(many)] if report.command else []),
            ),
        )
    if compared:
        legend = Legend()
        spellings = ", ".join(dict.fromkeys(cell.spelling for cell in compared))
        blocks += [
            _accuracy(compared, legend, report.environment),
            Line(f"{spellings}; where all give the same bits, one row stands for them", label="spellings:"),
            *legend.lines(),
            *worst_lines((cell for cell in compared if not fails(cell)), replays),
        ]
    return Page(title, (*blocks, *_told_of(cells, replays)))


def _apart(many: bool) -> Line:
    return Line(f"every case apart: {'name a --dtype, or ' * many}write them with --json FILE")


def _verdicts(own: Sequence[Cell]) -> Iterator[Line]:
    """A line for each lowering of the user's own: how its cells ended, and how it compares with eager."""
    for lowering in dict.fromkeys(cell.lowering for cell in own):
        cells = [cell for cell in own if cell.lowering == lowering]
        counts = tally(counted(cell) for cell in cells)
        told = tally_text(counts)
        against = [cell.against_eager for cell in cells if cell.against_eager is not None]
        if against:
            told += f"; the bits of eager in {sum(not one.different for one in against)} of {len(against)}"
        same = [cell for cell in cells if cell.against_eager is not None and not cell.against_eager.different]
        if beyond := sum(cell.status == "exceeds-bound" and not statuses_beside(cell) for cell in same):
            told += f", also in {beyond} that fail: torch's own is beyond what is asked of yours there"
        if any(one.different for one in against):
            closer, farther = sum(one.closer for one in against), sum(one.farther for one in against)
            told += f", in the others {closer} elements closer to the truth than eager's and {farther} farther"
        calls = [cell.calls for cell in cells if cell.calls]
        refused = {name for one in calls for name in one.refused}
        ended = {name for one in calls for name in one.untried if one.status == "error"}
        untried = {name for one in calls for name in one.untried} - ended
        for names, what in (
            (refused, "refused"), (untried, "not made for want of time"), (ended, "not made after one that failed"),
        ):  # fmt: skip
            told += f"; {count_text(len(names), 'other call')} {what}" if names else ""
        predicted = any(cell.predicted is not None for cell in cells)  # no prediction is green
        kind = tone(counts).replace("good", "plain") if predicted else tone(counts)
        yield Line(f"{PREDICTED} {told}" if predicted else told, label=f"{lowering}:", kind=kind)


def run_page(report: Report) -> Page:
    """`verify run`: one row a kernel and backend."""
    counts = tally(map(counted, report.cells))
    names = [name for name in COUNTED if counts[name] or name in ("passed", "failed", "not run")]
    columns = (
        Column("kernel"),
        Column("backend"),
        *(Column(name, right=True, joined=index > 0) for index, name in enumerate(names)),
        Column("max ulp", right=True),
        Column("share", right=True),
        Column("misrounded", right=True),
    )
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in report.cells:
        groups.setdefault((cell.kernel, _backend(cell)), []).append(cell)
    rows = tuple(Row(_summary(*key, cells, names)) for key, cells in groups.items())
    title = f"errors against the real number, profile {report.profile}, seed {report.seed}"
    return Page(title, (Table(columns, rows), *_told_of(report.cells, Replays.of(report))))


def report_page(report: Report) -> Page:
    """`verify report --markdown`: as `run_page`, with what the report lacks and with parts of sweeps."""
    page = run_page(report)
    lines = [Line(text, kind="open") for text in lacking(report)]
    for text, part in parts_of(report):
        one = LOOKS[part.status].tone if part.status in LOOKS else "open"
        kind = one.replace("good", "plain")  # the rest may fail
        lines.append(Line("; ".join(filter(None, (text, part.reason))), kind=kind))
    return Page(page.title, (*lines, *page.blocks))


def _told_of(cells: Sequence[Cell], replays: Replays) -> list[Line]:
    """The lines below the tables of all cells."""
    return [
        *failure_lines(cells, replays),
        *deviation_lines(cells, replays),
        *remark_lines(cells),
        _totals(cells),
    ]


_ACCURACY = (
    Column("lowering", fold=True),
    Column("status"),
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
        rows.append(heading(" ".join(filter(None, title)), _OVERVIEW))
        for lowering, group in lowerings.items():
            most = max(group, key=lambda cell: (-STATUSES.index(cell.status), share(cell) or 0.0))
            told = figures(most)
            against = [cell.against_eager for cell in group if cell.against_eager is not None]
            sums = (sum(one.closer for one in against), sum(one.farther for one in against))
            sides = map(str, sums if against else ("-", "-"))
            counts = tally(map(counted, group))
            passed = f"{counts['passed']} of {len(group)}"
            others = (name for name in COUNTED if counts[name] and name not in ("passed", "not run"))
            passed = ", ".join([passed, *(counted_text(name, counts[name]) for name in others)])
            case = " ".join(filter(None, (scalars_text(most.scalars), most.spelling)))
            named = (told[name] for name in ("error", "metric", "bound", "share"))
            rows.append(Row((lowering, passed, *named, case, *sides)))
    return Table(_OVERVIEW, tuple(rows))


def _section(cell: Cell) -> tuple[str, str, str, str]:
    return _backend(cell), cell.dtype, scalars_text(cell.scalars), cell.output


def _backend(cell: Cell) -> str:
    return cell.backend if cell.predicted is None else f"{cell.backend} (predicted)"


def _status(cell: Cell, status: str = "") -> str:
    """The cell's status, or a region's, marked where it is not a measurement."""
    return (status or cell.status) if cell.predicted is None else f"{PREDICTED} {status or cell.status}"


def _obeyed(cell: Cell) -> list[str]:
    """The formulas whose bits the cell has."""
    if cell.formula is None:
        return []
    return cell.formula.survivors if cell.formula.identified is None else [cell.formula.identified]


def _accuracy(cells: Sequence[Cell], legend: Legend, environment: Mapping[str, Any]) -> Table:
    """A heading for each backend, dtype, scalars and output; spellings that agree in everything share a row. Below it
    stand the regions that are listed: see `telling`. Batch invariance is shown where it was measured."""
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
        told = figures(cell) | {
            "status": _status(cell),
            "formula": "-" if cell.formula is None else legend.text(_obeyed(cell)),
        }
        told["batch invariant"] = batch[cell.backend, cell.lowering, cell.dtype] or "-"
        # Equal digests are equal bits; without one, a cell stands alone.
        bits = cell.digest or cell.spelling
        facts = tuple(told[column.title] for column in columns[1:])
        section.setdefault((bits, cell.lowering, facts, _regions(cell, columns)), []).append(cell.spelling)
    for title, section in sections.items():
        rows.append(heading(" ".join(filter(None, title)), columns))
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


def _totals(cells: Iterable[Cell]) -> Line:
    cells = list(cells)
    errors = [cell.error for cell in cells if cell.error is not None]
    inputs, undecided = sum(e.inputs for e in errors), sum(e.undecided for e in errors)
    counts = tally(counted(cell) for cell in cells if cell.predicted is None)
    predicted = tally(counted(cell) for cell in cells if cell.predicted is not None)
    mp = sum(cell.timing.mp_elements for cell in cells)
    named = {"kernels": "kernel_s", "compiling": "compile_s", "check": "check_s"}
    times = {word: sum(getattr(cell.timing, name) for cell in cells) for word, name in named.items()}
    shown = ", ".join(f"{word} {seconds:.3g} s" for word, seconds in times.items() if seconds or word != "compiling")
    tallies = [tally_text(counts)] if any(counts.values()) or not cells else []
    tallies += [f"predicted, not measured: {tally_text(predicted)}"] if any(predicted.values()) else []
    text = f"{'; '.join(tallies)}; undecided {undecided} of {inputs} elements; {mp} in multiprecision; {shown}"
    predicts = tone(predicted).replace("good", "plain")  # no prediction is green
    return Line(text, kind="bad" if undecided else tone(counts) if any(counts.values()) or not cells else predicts)


def _summary(kernel: str, backend: str, cells: Sequence[Cell], names: Sequence[str]) -> tuple[str, ...]:
    errors = [cell.error for cell in cells if cell.error is not None]
    shares = [part for part in map(share, cells) if part is not None]
    inputs = sum(error.inputs for error in errors)
    counts = tally(map(counted, cells))
    return (
        kernel,
        backend,
        *(str(counts[name]) for name in names),
        upward(max(headline(cell)[0].max_ulp for cell in cells if cell.error is not None)) if errors else "-",
        f"{upward(100 * max(shares), 3)}%" if shares else "-",
        percent(sum(error.misrounded for error in errors), inputs) if errors else "-",
    )
