"""The tables of docs/results/, made from recorded reports and measurements so that no figure is typed by hand.

    python docs/tables.py                     rewrite the tables of README.md and docs/results/*.md
    python docs/tables.py --check             exit 1 where that would change anything
    python docs/tables.py REPORT.json...      print the tables of these reports

A place for a table is a pair of comments, `<!-- table: KIND FILE... [kernel=NAME,...] [dtype=NAME,...]
[lowering=PATTERN,...] -->` and `<!-- /table -->`; KIND is one of KINDS, files are named from the repository's root,
and one that does not exist is said to be missing. What figures mean is in docs/definitions.md. Maxima are rounded up.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from verify.facts.kernel import UsageError, facts_of, suggest
from verify.reports import store
from verify.reports.compare import Aligned, compare, load
from verify.reports.figures import (
    excess_of,
    figures_of,
    headline,
    limit_text,
    measured,
    real,
    share,
    telling,
)
from verify.reports.looks import PREDICTED
from verify.reports.reasons import excess
from verify.reports.run_page import kernel_page
from verify.reports.schema import Cell, Region, Report
from verify.reports.terminal import print_page
from verify.reports.text import percent, scalars_of, scalars_text, upward

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
SCREEN = 112  # columns of a terminal's page
PLACE = re.compile(r"(<!-- table: (?P<what>[^>]+?) -->\n).*?(<!-- /table -->)", re.DOTALL)


@dataclass(frozen=True)
class Filter:
    """Which cells a table shows, by shell patterns of their names."""

    kernel: tuple[str, ...] = ("*",)
    dtype: tuple[str, ...] = ("*",)
    lowering: tuple[str, ...] = ("*",)

    def keeps(self, cell: Cell) -> bool:
        return all(
            any(fnmatch.fnmatchcase(getattr(cell, field.name), pattern) for pattern in getattr(self, field.name))
            for field in fields(self)
        )

    @staticmethod
    def parse(words: Iterable[str]) -> Filter:
        """From 'kernel=NAME,...' and the like. Raises UsageError for another option."""
        options = dict(word.split("=", 1) for word in words)
        known = [field.name for field in fields(Filter)]
        if unknown := sorted(options.keys() - set(known)):
            raise UsageError(suggest("option of a table", unknown[0], known))
        return Filter(**{name: tuple(value.split(",")) for name, value in options.items()})


# Markdown


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of GitHub's Markdown; a title that ends in ':' is of a column aligned to the right."""
    rule = ["---:" if title.endswith(":") else "---" for title in head]
    lines = [[title.removesuffix(":") for title in head], rule, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def escaped(text: str) -> str:
    """Text as itself: `|` would end a cell, the others be read as markup, an underscore only at a word's end."""
    return re.sub(r"([\\`*<\[|]|\b_(?!\w)|(?<!\w)_)", r"\\\1", text)


def code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


# Reports


def machine(report: Report) -> str:
    """The chip, and the versions that decide bits, of each backend that has cells."""
    parts = []
    for name in dict.fromkeys(cell.backend for cell in report.cells):
        facts = report.environment.get(name)
        facts = facts if isinstance(facts, dict) else {}
        words = [facts.get("chip") or name, facts.get("capability")]
        words += [f"{what} {facts[what]}" for what in ("driver", "cuda", "torch", "triton") if facts.get(what)]
        parts.append(", ".join(str(word) for word in words if word))
    return "; ".join(parts)


def provenance(report: Report) -> str:
    """Machine, command, and how much was compared."""
    errors = [cell.error for cell in report.cells if cell.error is not None]
    inputs, undecided = sum(error.inputs for error in errors), sum(error.undecided for error in errors)
    told = "Predicted, not measured: " if any(cell.predicted is not None for cell in report.cells) else ""
    return (
        f"{told}{escaped(machine(report))}: {code(report.command)}. "
        f"{len(errors)} cells, {inputs} elements, {undecided} of them undecided.\n"
    )


def groups(report: Report, keep: Filter) -> dict[tuple[str, str, str], list[Cell]]:
    """The compared cells by (backend, kernel with its scalars, dtype), in the report's order."""
    found: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in report.cells:
        if cell.error is not None and keep.keeps(cell) and not is_composite(cell):
            name = " ".join(filter(None, (cell.kernel, scalars_text(cell.scalars))))
            found.setdefault((cell.backend, name, cell.dtype), []).append(cell)
    return found


def labelled(cells: Sequence[Cell]) -> list[tuple[str, Cell]]:
    """The cells with something of their own to say, with their names.

    A lowering's other spellings are left out where they give the bits of its default spelling or, on other
    inputs, obey the same formula with no larger error.
    """
    default: dict[str, Cell] = {}
    for cell in cells:
        default.setdefault(cell.lowering, cell)
    found = []
    for cell in cells:
        first = default[cell.lowering]
        if cell is first:
            found.append((cell.lowering, cell))
        elif not repeats(cell, first):
            found.append((f"{cell.lowering} ({cell.spelling})", cell))
    return found


def repeats(cell: Cell, first: Cell) -> bool:
    if cell.status != first.status or cell.bound != first.bound:
        return cell.digest == first.digest != "" and cell.status == first.status
    if cell.domain.digest == first.domain.digest:
        return cell.digest == first.digest
    return formula(cell) == formula(first) and measured(cell)[0] <= measured(first)[0]


def formula(cell: Cell) -> str:
    """The identified formula, the candidates that could not be told apart, or that none fits."""
    if cell.formula is None:
        return ""
    texts = [cell.formula.identified] if cell.formula.identified else cell.formula.survivors
    return " or ".join(map(code, texts)) or "none"


def errors_table(reports: Sequence[Report], keep: Filter) -> str:
    """Each kernel's lowerings, those with equal bits and bounds in one row."""
    return "\n".join(provenance(report) + "\n" + _errors(report, keep) for report in reports)


def _errors(report: Report, keep: Filter) -> str:
    several = len({dtype for _, _, dtype in groups(report, keep)}) > 1
    rows = []
    for (_, name, dtype), cells in groups(report, keep).items():
        same: dict[tuple[object, ...], list[tuple[str, Cell]]] = {}
        for label, cell in labelled(cells):
            bits = (cell.digest or label, cell.domain.digest)
            same.setdefault((*bits, cell.status, _limit(cell), measured(cell), formula(cell)), []).append((label, cell))
        title = f"{name} {dtype}" if several else name
        for members in same.values():
            rows.append((escaped(title), escaped(", ".join(label for label, _ in members)), *_figures(members)))
            rows += _regions(members[0][1])
            title = ""
    return table(_ERRORS, rows)


_ERRORS = (
    *("kernel", "lowering", "max error:", "metric", "bound:", "share:", "misrounded:"),
    *("closer / farther than eager:", "formula"),
)


def _figures(members: Sequence[tuple[str, Cell]]) -> tuple[str, ...]:
    _, cell = members[0]
    assert cell.error is not None
    error, metric = real(*headline(cell))
    return (
        upward(error),
        escaped(metric),
        escaped(_limit(cell)),
        _share(cell),
        percent(cell.error.misrounded, cell.error.inputs),
        "" if any(each.against_eager is None for _, each in members) else _sides(cell),
        formula(cell),
    )


def _regions(cell: Cell) -> Iterator[tuple[str, ...]]:
    """A row for each region that is listed beside the cell's headline."""
    for name, region in telling(cell).items():
        told = figures_of(region)
        mark = "" if region.status == "passed" else f" **{region.status}**"
        ledger = f" ({', '.join(region.reason.ledger)})" if region.reason.ledger else ""
        figures = (escaped(told[name]) for name in ("error", "metric", "bound"))
        share_ = f"{told['share']}{mark}{escaped(ledger)}"
        yield ("", escaped(f"in {name}"), *figures, share_, told["misrounded"], "", "")


def _limit(cell: Cell) -> str:
    return "none" if cell.bound is None else limit_text(*headline(cell))


def _share(cell: Cell) -> str:
    part = share(cell)
    percentage = "" if part is None else f"{upward(100 * part, 3)}%"
    if cell.status == "deviates":
        return f"{percentage} ({KNOWN})".strip()
    return percentage if cell.status == "passed" else f"{percentage} **{cell.status}**".strip()


def _sides(cell: Cell) -> str:
    against = cell.against_eager
    assert against is not None
    if not against.different:
        return "same bits"
    return f"{percent(against.closer, cell.inputs)} / {percent(against.farther, cell.inputs)}"


def differences_table(reports: Sequence[Report], keep: Filter) -> str:
    """Where a lowering's bits differ from eager's on the same device, and which of the two is nearer to the truth."""
    return "\n".join(_differences(report, keep) for report in reports)


def _differences(report: Report, keep: Filter) -> str:
    rows = []
    compared = equal = 0
    for (_, name, dtype), cells in groups(report, replace(keep, lowering=("*",))).items():
        eager = next((cell for cell in cells if cell.against_eager is None), None)
        same: dict[tuple[object, ...], list[tuple[str, Cell]]] = {}
        for label, cell in labelled(cells):
            if cell.against_eager is None or label != cell.lowering or not keep.keeps(cell):
                continue
            compared += 1
            equal += not cell.against_eager.different
            if cell.against_eager.different:
                same.setdefault((cell.digest or label, measured(cell)), []).append((label, cell))
        for members in same.values():
            names = ", ".join(label for label, _ in members)
            rows.append((escaped(name), dtype, escaped(names), *_differing(members[0][1], eager)))
    told = f"{escaped(machine(report))}: eager's bits on every input in {equal} of {compared} cells. The others:\n\n"
    return told + table(_DIFFERENCES, rows)


_DIFFERENCES = (
    *("kernel", "dtype", "lowering", "differ:", "closer:", "farther:", "tied:"),
    *("eager's max error:", "its own:", "metric", "nearer to the truth"),
)


def _differing(cell: Cell, eager: Cell | None) -> tuple[str, ...]:
    against = cell.against_eager
    assert against is not None
    error, metric = real(*headline(cell))
    theirs = None if eager is None or eager.error is None else _in_metric(eager, metric)
    return (
        percent(against.different, cell.inputs),
        *(percent(part, against.different) for part in (against.closer, against.farther, against.tied)),
        "" if theirs is None else upward(theirs),
        upward(error),
        escaped(metric),
        nearer(against.closer, against.farther, against.different),
    )


def _in_metric(cell: Cell, metric: str) -> float | None:
    """The real-valued error of the cell in a metric that need not be its own."""
    if real(*headline(cell))[1] == metric:
        return real(*headline(cell))[0]
    value = getattr(headline(cell)[0], f"max_{metric}")
    return None if value is None else float(value)


def nearer(closer: int, farther: int, different: int) -> str:
    """Who is right, by counts of elements."""
    if closer == farther:
        return "neither"
    winner, count = ("the lowering", closer) if closer > farther else ("eager", farther)
    return f"{winner}, always" if count == different else winner


def deviations_table(reports: Sequence[Report], keep: Filter) -> str:
    """What exceeds its bound for a reason that the ledger states: one row a kernel, region and entries."""
    return "\n".join(_deviations(report, keep) for report in reports)


def _deviations(report: Report, keep: Filter) -> str:
    found: dict[tuple[str, ...], list[tuple[Cell, Region | None]]] = {}
    for cell in filter(keep.keeps, report.cells):
        for name, region in cell.regions.items():
            if region.status == "deviates":
                found.setdefault((cell.kernel, name, ", ".join(region.reason.ledger)), []).append((cell, region))
        if cell.status == "deviates" and not cell.regions:  # of schema 1
            found.setdefault((cell.kernel, "", cell.reason), []).append((cell, None))
    rows = []
    for (kernel, name, ledger), members in found.items():
        cells = [cell for cell, _ in members]
        most, where = max(members, key=lambda one: excess_of(*one))
        at = " ".join(filter(None, (most.lowering, most.dtype, scalars_text(most.scalars))))
        why = excess(most) if where is None else where.reason.text
        rows.append((escaped(kernel), _listed(cells, "lowering"), _listed(cells, "dtype"), escaped(name),
                     escaped(ledger), escaped(f"{at}: {why}")))  # fmt: skip
    return f"{escaped(machine(report))}\n\n" + table(_DEVIATIONS, rows)


_DEVIATIONS = ("kernel", "lowerings", "dtypes", "region", "why", "the largest")

#: What stands beside the share of a cell that deviates.
KNOWN = "known deviation"


def _listed(cells: Sequence[Cell], name: str) -> str:
    return escaped(", ".join(dict.fromkeys(getattr(cell, name) for cell in cells)))


def screen(reports: Sequence[Report], keep: Filter) -> str:
    """What `verify kernel` prints for the cells that are kept."""
    file = io.StringIO()
    for report in reports:
        cells = list(filter(keep.keeps, report.cells))
        for kernel in dict.fromkeys(cell.kernel for cell in cells):
            print_page(kernel_page(report.model_copy(update={"cells": cells}), kernel), file, SCREEN)
    return "".join(f"    {line}".rstrip() + "\n" for line in file.getvalue().rstrip().split("\n"))


# Measurements


def composites_table(reports: Sequence[Report], keep: Filter) -> str:
    """Composite kernels: each output's lowerings over all their settings, those with the same bits in one row."""
    return "\n".join(provenance(report) + "\n" + _composites(report, keep) for report in reports)


def _composites(report: Report, keep: Filter) -> str:
    found: dict[tuple[str, str, str], dict[str, list[Cell]]] = {}
    for cell in report.cells:
        if cell.error is not None and is_composite(cell) and keep.keeps(cell):
            group = found.setdefault((cell.kernel, cell.dtype, cell.output), {})
            group.setdefault(cell.lowering, []).append(cell)
    rows = []
    title = ("", "", "")
    for key, lowerings in found.items():
        same: dict[tuple[str, ...], list[str]] = {}
        for name, cells in lowerings.items():
            same.setdefault(tuple(f"{c.spelling} {scalars_text(c.scalars)} {c.digest}" for c in cells), []).append(name)
        for names in same.values():
            shown = [escaped(new) if new != old else "" for new, old in zip(key, title, strict=True)]
            shown = [escaped(part) for part in key] if any(shown[:1]) else shown
            rows.append((*shown, escaped(", ".join(names)), *_sums(lowerings[names[0]])))
            title = key
    return table(_COMPOSITES, rows)


def products_table(reports: Sequence[Report], keep: Filter) -> str:
    """Matrix products: the formula that each lowering's bits obey, with the shapes where they do."""
    return "\n".join(provenance(report) + "\n" + _products(report, keep) for report in reports)


def _products(report: Report, keep: Filter) -> str:
    kernels: dict[str, list[Cell]] = {}
    for cell in report.cells:
        if cell.error is not None and is_composite(cell) and keep.keeps(cell):
            kernels.setdefault(cell.kernel, []).append(cell)
    titles = [f"{code(name)}\n\n" if len(kernels) > 1 else "" for name in kernels]
    return "\n".join(title + _product(cells) for title, cells in zip(titles, kernels.values(), strict=True))


def _product(kernel: Sequence[Cell]) -> str:
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in kernel:
        found.setdefault((cell.dtype, cell.lowering), []).append(cell)
    same: dict[tuple[str, ...], list[str]] = {}
    for (dtype, lowering), cells in found.items():
        formulas: dict[str, set[str]] = {}  # of each spelling, whatever the scalars
        settings: dict[str, dict[str, None]] = {}
        for cell in cells:
            formulas.setdefault(cell.spelling, set()).add(_named(cell))
        for cell in cells:
            scalars = f" {scalars_text(cell.scalars)}" if len(formulas[cell.spelling]) > 1 else ""
            settings.setdefault(_named(cell), {})[cell.spelling + scalars] = None
        told = [f"{formula}: {', '.join(names)}" for formula, names in settings.items() if formula]
        left = ", ".join(settings.get("", ()))
        _, _, misrounded, sides = _sums(cells)
        same.setdefault((dtype, "; ".join(told), left, misrounded, sides), []).append(lowering)
    rows = [(key[0], ", ".join(names), *key[1:]) for key, names in same.items()]
    return table(("dtype", "lowering", "formula: shapes", "none named", "misrounded:", "closer / farther than eager:"),
                 [tuple(map(escaped, row[:4])) + row[4:] for row in rows])  # fmt: skip


def _named(cell: Cell) -> str:
    return "" if cell.formula is None else cell.formula.identified or " / ".join(cell.formula.survivors)


_COMPOSITES = (
    *("kernel", "dtype", "output", "lowering", "settings:", "largest share of the bound:", "misrounded:"),
    "closer / farther than eager:",
)


def is_composite(cell: Cell) -> bool:
    """Whether the cell's bound is one of each element, see docs/definitions.md."""
    return cell.bound is not None and cell.bound.metric == "share"


def _sums(cells: Sequence[Cell]) -> tuple[str, ...]:
    errors = [cell.error for cell in cells if cell.error is not None]
    shares = [part for part in map(share, cells) if part is not None]
    inputs = sum(error.inputs for error in errors)
    against = [cell.against_eager for cell in cells if cell.against_eager is not None]
    failed = sorted({cell.status for cell in cells} - {"passed", "deviates"})
    known = f" ({KNOWN})" if any(cell.status == "deviates" for cell in cells) else ""
    sides = ""
    if against:
        counts = (sum(side.closer for side in against), sum(side.farther for side in against))
        sides = " / ".join(percent(count, inputs) for count in counts)
        sides = sides if any(side.different for side in against) else "same bits"
    return (
        str(len(cells)),
        " ".join([f"{upward(100 * max(shares), 3)}%{known}", *(f"**{status}**" for status in failed)]),
        percent(sum(error.misrounded for error in errors), inputs),
        sides,
    )


def best_table(reports: Sequence[Report], keep: Filter) -> str:
    """The most accurate lowering of each output of the composite kernels: the largest surplus of elements on which it
    is closer to the truth than eager over those on which it is farther, in all settings that both run."""
    return "\n".join(_best(report, keep) for report in reports)


def _best(report: Report, keep: Filter) -> str:
    found: dict[tuple[str, str, str], dict[str, list[Cell]]] = {}
    for cell in report.cells:
        if cell.error is not None and is_composite(cell) and keep.keeps(cell):
            found.setdefault((cell.kernel, cell.dtype, cell.output), {}).setdefault(cell.lowering, []).append(cell)
    rows = []
    for (kernel, dtype, output), lowerings in found.items():
        surplus = {name: _surplus(cells) for name, cells in lowerings.items()}
        known = {name: value for name, value in surplus.items() if value is not None}
        if not known:
            continue
        eager = next((name for name, value in surplus.items() if value is None), "eager")
        most = max(0.0, *known.values())
        best = [name for name, value in known.items() if value == most] if most else [eager]
        best = best if any(known.values()) else ["all alike"]
        ahead = [name for name, value in known.items() if value > 0]
        behind = [name for name, value in known.items() if value < 0]
        rows.append((*map(escaped, (kernel, dtype, output, ", ".join(best))), "" if not most else f"{100 * most:.3g}%",
                     *(escaped(", ".join(names)) for names in (ahead, behind))))  # fmt: skip
    return f"{escaped(machine(report))}\n\n" + table(_BEST, rows)


def _surplus(cells: Sequence[Cell]) -> float | None:
    """Closer minus farther, over the elements of the cells; None for eager itself."""
    sides = [cell.against_eager for cell in cells if cell.against_eager is not None]
    inputs = sum(cell.inputs for cell in cells if cell.against_eager is not None)
    return sum(side.closer - side.farther for side in sides) / inputs if sides and inputs else None


_BEST = ("kernel", "dtype", "output", "most accurate", "surplus over eager:", "better than eager", "worse than eager")


def devices_table(paths: Sequence[Path], keep: Filter) -> str:
    """One row a cell, one column a report: its maximum error, and whether its bits are those of the first column.

    A column of a report that is not recorded says so, with the command that records it.
    """
    present = [path for path in paths if path.exists()]
    found = compare(load(present, keep.kernel, keep.dtype, keep.lowering))
    absent = [path.stem for path in paths if not path.exists()]
    first: dict[tuple[object, ...], str] = {}
    rows = []
    for row in found.rows:
        spelling = first.setdefault(
            (row.place.kernel, row.place.lowering, row.place.dtype, row.place.scalars), row.place.spelling
        )
        if row.place.spelling != spelling or all(value is None for value in row.values):
            continue
        name = " ".join(filter(None, (row.place.kernel, scalars_text(scalars_of(row.place.scalars)), row.place.output)))
        rows.append(
            (
                escaped(name),
                escaped(row.place.lowering),
                escaped(row.metric),
                *_columns(row),
                *("not-run" for _ in absent),
            )
        )
    head = ("kernel", "lowering", "metric", *(f"{escaped(_labelled(column))}:" for column in found.columns))
    fill = "verify run --backend {0} --profile quick --json {0}.json"
    told = "".join(f"{escaped(name)}: not-run; {code(fill.format(name))} fills the column.\n" for name in absent)
    body = sorted(rows, key=lambda row: row[:2])
    return f"{told}\n" + table((*head, *(f"{escaped(name)}:" for name in absent)), body)


def _labelled(column: Any) -> str:
    predicted = any(facts_of(name) != name for name in column.backends)
    return f"{PREDICTED} {column.label}, predicted" if predicted else str(column.label)


def _columns(row: Aligned) -> tuple[str, ...]:
    shown = []
    for number, (cell, value, pair) in enumerate(zip(row.cells, row.values, row.pairs, strict=True)):
        if cell is None or value is None:
            shown.append("not-run" if cell is None or not cell.ran else cell.status)
            continue
        same = pair is not None and pair.bits is not None and pair.bits.equal
        mark = " =" if same and number != row.reference else ""
        shown.append(f"{upward(value)}{mark}")
    return tuple(shown)


def instructions_table(files: Sequence[Mapping[str, Any]]) -> str:
    """Of `bench/instructions.py`: how many of all inputs a model of an instruction gives other bits for."""
    parts = []
    for document in files:
        chip = document["chip"]
        rows = [
            (code(name), f"{one['inputs']:,}", f"{one['differing']:,}")
            for name, one in document["instructions"].items()
        ]
        units = ", ".join(f"{name} {one['bytes'] / 1024:.0f} KiB" for name, one in document["units"].items())
        parts.append(
            f"{escaped(chip['name'])}, torch {chip['torch']}, triton {chip['triton']}; tables: {units}.\n\n"
            + table(("instruction", "inputs:", "other bits than the GPU:"), rows)
        )
    return "\n".join(parts)


# Vendors


@dataclass(frozen=True)
class Vendor:
    """A column: a backend's own cells, and of a virtual device those of its models at the ends of documented errors.

    own, library  names of the lowerings: the project's kernel, and the library's function or fast math
    contracted    (lowering, backend) where products are fused into sums, as the compiler does by default
    """

    title: str
    backend: str
    own: str
    library: str
    contracted: tuple[str, str]

    def cell_of(self, code: str) -> tuple[str, str]:
        """(lowering, backend) of a row's kind of code."""
        return {
            OWN: (self.own, self.backend), FUSED: self.contracted, UNFUSED: (self.library, self.backend),
        }[code]  # fmt: skip


OWN, FUSED, UNFUSED = "own kernel", "library or fast math, contracted", "library or fast math, not contracted"
#: Where contraction changes no bits.
EITHER = "library or fast math, contracted or not"
LIBDEVICE = "triton-libdevice"
VENDORS = (
    Vendor("CUDA: H200, measured", "cuda", "triton", f"{LIBDEVICE}-nofuse", (LIBDEVICE, "cuda")),
    Vendor("CUDA: sm_90, predicted", "virtual-cuda", "triton", f"{LIBDEVICE}-nofuse", (LIBDEVICE, "virtual-cuda")),
    Vendor("ROCm: gfx942, predicted", "virtual-rocm", "triton", f"{LIBDEVICE}-nofuse", (LIBDEVICE, "virtual-rocm")),
    Vendor("MPS: source, predicted", "virtual-mps", "metal", "metal-fast", ("metal-fast", "virtual-mps-contracted")),
)
#: How a figure is marked that is over all regions, where a report does not tell them apart.
EVERYWHERE = "†"
ENDS = ("-low", "-high")


def vendors_table(reports: Sequence[Report], keep: Filter) -> str:
    """A row a kernel and kind of code, a column a vendor: the largest error in normal range; predicted ones marked, and
    with the ends of what documented errors of instructions or functions allow. Below it regions of another error. Where
    two reports have a cell, the first is shown."""
    return "\n".join([*map(provenance, reports), _vendors(reports, keep, True)])


def vendors_brief(reports: Sequence[Report], keep: Filter) -> str:
    """Of `vendors` the first case of each kernel, in normal range alone."""
    return "\n" + _vendors(reports, keep, False)


def columns(reports: Sequence[Report]) -> list[Vendor]:
    """The vendors; a device that was measured in the place of its prediction, but for CUDA, which has both."""
    present = {cell.backend for report in reports for cell in report.cells if cell.error is not None}
    found = []
    for vendor in VENDORS:
        real = vendor.backend.removeprefix("virtual-")
        if real != vendor.backend and real != "cuda" and real in present:
            title = f"{vendor.title.partition(':')[0]}: measured"
            vendor = replace(vendor, title=title, backend=real, contracted=(vendor.contracted[0], real))
        found.append(vendor)
    return found


def _vendors(reports: Sequence[Report], keep: Filter, full: bool) -> str:
    cells: dict[tuple[str, ...], list[Cell]] = {}
    kernels: dict[str, list[str]] = {}
    for report in reports:
        for cell in report.cells:
            if cell.error is None or not keep.keeps(cell) or (is_composite(cell) and cell.output != "param"):
                continue
            scalars = scalars_text(cell.scalars)
            known = kernels.setdefault(cell.kernel, [])
            if is_composite(cell):
                scalars = ""
            if scalars not in known:
                known.append(scalars)
            cells.setdefault((cell.kernel, scalars, cell.lowering, cell.backend), []).append(cell)
    rows: list[tuple[str, ...]] = []
    own: list[Models] = []
    vendors = columns(reports)
    asked = {name: place for place, name in enumerate(keep.kernel)}
    for kernel, cases in sorted(kernels.items(), key=lambda one: asked.get(one[0], len(asked))):
        for scalars in cases if full else cases[:1]:
            title = " ".join(filter(None, (kernel, scalars)))
            codes = {
                what: [_of_vendor(cells, kernel, scalars, vendor, what) for vendor in vendors]
                for what in (OWN, FUSED, UNFUSED)
            }
            if list(map(_bits, codes[FUSED])) == list(map(_bits, codes[UNFUSED])):
                codes = {OWN: codes[OWN], EITHER: codes[FUSED]}
            for what, found in codes.items():
                own = found if what == OWN else own
                again = all(not one or _bits(one) == _bits(two) for one, two in zip(found, own, strict=True))
                if not any(found) or (again and what != OWN):
                    continue  # nothing, or nothing but the bits of the own kernel
                rows.append((escaped(title), what, *(_figure(one) for one in found), _formulas(found, vendors)))
                title = ""
                if full:
                    rows += _by_region(found)
    return table(("kernel", "code", *(f"{vendor.title}:" for vendor in vendors), "formula"), rows)


Models = dict[str, list[Cell]]


def _of_vendor(
    cells: Mapping[tuple[str, ...], list[Cell]], kernel: str, scalars: str, vendor: Vendor, what: str
) -> Models:  # fmt: skip
    """The cells of a place by model: '' the plain one, '-low' and '-high'."""
    lowering, backend = vendor.cell_of(what)
    found = {end: cells.get((kernel, scalars, lowering, f"{backend}{end}"), []) for end in ("", *ENDS)}
    return {end: _plain(some) for end, some in found.items() if some} if found[""] else {}


def _bits(models: Models) -> list[str]:
    return [cell.digest for cells in models.values() for cell in cells]


def _plain(cells: Sequence[Cell]) -> list[Cell]:
    """The default spelling; of a composite kernel all settings."""
    return list(cells) if is_composite(cells[0]) else list(cells[:1])


def _figure(models: Models, region: str = "") -> str:
    """Error and metric, with the least and largest maximum over the models where they differ."""
    values = {end: value for end, cells in models.items() if (value := _largest(cells, region)) is not None}
    if "" not in values:
        return "-" if not region else ""
    number, metric = values[""]
    unit = {"share": "% of its bound", "ulp": ""}.get(metric, f" {escaped(metric)}")
    text = f"{upward(number)}{unit}"
    spread = [value for value, _ in values.values()]
    if min(spread) != max(spread):
        text += f" [{upward(min(spread))}, {upward(max(spread))}]"
    text += "" if region or models[""][0].regions else f" {EVERYWHERE}"
    return f"{PREDICTED} {text}" if models[""][0].predicted is not None else text


def _largest(cells: Sequence[Cell], region: str) -> tuple[float, str] | None:
    if is_composite(cells[0]):
        parts = [part for part in map(share, cells) if part is not None]
        return (100 * max(parts), "share") if parts and not region else None
    if not region:
        return real(*headline(cells[0]))
    found = cells[0].regions.get(region)
    return real(found.error, found.bound) if found else None


def _by_region(found: Sequence[Models]) -> Iterator[tuple[str, ...]]:
    """Regions in which some vendor's error is larger than in normal range, or did not pass."""
    told = dict.fromkeys(name for models in found if models and not is_composite(models[""][0])
                         for name in telling(models[""][0]) if name != "normal")  # fmt: skip
    for name in told:
        yield ("", f"in {name}", *(_figure(models, name) if models else "" for models in found), "")


def _formulas(found: Sequence[Models], vendors: Sequence[Vendor]) -> str:
    """What was identified: once where all agree, else by vendor."""
    texts: dict[str, list[str]] = {}
    for vendor, models in zip(vendors, found, strict=True):
        if models and not is_composite(models[""][0]) and (text := formula(models[""][0])) not in ("", "none"):
            texts.setdefault(text, []).append(vendor.title.partition(":")[0])
    if len(texts) < 2:
        return next(iter(texts), "")
    return "; ".join(f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in texts.items())


def bench_table(files: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(_bench(document) for document in files)


def _bench(document: Mapping[str, Any]) -> str:
    if document["scale"] != 1:
        raise UsageError(f"measured at scale {document['scale']}; a table takes whole measurements: --scale 1")
    environment = document["environment"]
    present = {item["backend"] for item in document["items"] if "measured" in item}
    facts = [environment[name] for name in sorted(present)]
    machines = "; ".join(f"{each['chip']}, torch {each['torch']}, triton {each['triton']}" for each in facts)
    told = f"{escaped(machines)}, {environment['cores']} cores: {code(document['command'])}.\n\n"
    rows: list[tuple[str, ...]] = []
    for item in document["items"]:
        if "measured" in item:
            values = item["measured"]
            mp_share = "" if "mp_share" not in values else _fraction(values["mp_share"])
            figures = (_seconds(values["seconds"]), str(item["repetitions"]), f"{values['peak_mib']:.0f} MiB", mp_share)
            limits = ", ".join(_TARGETS[name](limit) for name, limit in item["targets"].items())
            told_ratio = f" ({values['ratio']:.3g} times)" if "ratio" in values else ""
            rows.append((escaped(item["what"]), figures[0] + told_ratio, *figures[1:], limits, item["status"]))
        elif "absent" not in environment.get(item["backend"], {}):
            rows.append((escaped(item["what"]), *[""] * 5, f"{item['status']}: {escaped(item['reason'])}"))
    return told + table(_BENCH, rows)


_BENCH = ("measured", "best:", "of:", "peak memory:", "in multiprecision:", "at most", "")


def _seconds(value: float) -> str:
    return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


def _fraction(value: float) -> str:
    return f"{value:.2g}"


#: How a limit on what `bench/measure.py` measures is written.
_TARGETS: Mapping[str, Callable[[float], str]] = {
    "seconds": _seconds,
    "start_s": lambda limit: f"{_seconds(limit)} with start and compilation",
    "peak_mib": lambda limit: f"{limit:.0f} MiB",
    "mp_share": lambda limit: f"a share of {_fraction(limit)}",
    "ratio": lambda limit: f"{limit:g} times the kernel alone",
    "added_share": lambda limit: f"{limit:g} of it for the processes",
    "share_of_kernel": lambda limit: f"{limit:g} times the kernel's time",
    "memory_share": lambda limit: "4 times inputs and outputs + 1 GiB",
}


def mutants_table(files: Sequence[Mapping[str, Any]]) -> str:
    """How many kernels that are wrong only in a random box of inputs a domain finds; see bench/boxes.py."""
    parts = []
    for document in files:
        profiles = list(dict.fromkeys(rate["profile"] for rate in document["rates"]))
        rows: dict[str, dict[str, str]] = {}
        for rate in document["rates"]:
            name = " ".join(filter(None, (rate["kernel"], scalars_text(rate["scalars"]), rate["dtype"])))
            killed = f"{percent(rate['killed'], rate['boxes'])} ({rate['killed']} of {rate['boxes']})"
            rows.setdefault(name, {})[rate["profile"]] = killed
        head = ("kernel", *(f"found by {profile}:" for profile in profiles))
        body = [(escaped(name), *(found.get(profile, "") for profile in profiles)) for name, found in rows.items()]
        parts.append(f"{code(document['command'])}.\n\n" + table(head, body))
    return "\n".join(parts)


def kills_table(files: Sequence[Mapping[str, Any]]) -> str:
    """What of the planted faults is killed, at each length of rows where it changes a bit; see tests/mutants."""

    def share(verdicts: Sequence[Mapping[str, Any]]) -> str:
        held = sum(v["holds"] for v in verdicts)
        return f"{held} of {len(verdicts)}" if verdicts else ""

    parts = []
    for document in files:
        body = []
        for name in dict.fromkeys(v["kernel"] for v in document["verdicts"]):
            mine = [v for v in document["verdicts"] if v["kernel"] == name]
            faults = [v for v in mine if v["wrong"]]
            quick = [v | {"holds": v["holds"] and v["profile"] == "quick"} for v in faults if v["quick"]]
            body.append((escaped(name), share(quick), share(faults), share([v for v in mine if not v["wrong"]])))
        head = ("kernel", "killed by quick:", "killed by default:", "correct variants that pass:")
        parts.append(f"{code(document['command'])}.\n\n" + table(head, body))
    return "\n".join(parts)


# Places


def _of_reports(render: Callable[[Sequence[Report], Filter], str]) -> Callable[[Sequence[Path], Filter], str]:
    return lambda paths, keep: render([store.read(path) for path in paths], keep)


def _of_documents(render: Callable[[Sequence[Mapping[str, Any]]], str]) -> Callable[[Sequence[Path], Filter], str]:
    return lambda paths, keep: render([json.loads(path.read_text()) for path in paths])


def invariance_table(files: Sequence[Mapping[str, Any]]) -> str:
    """Whether the bits of a row depend on its batch (verify/walk/invariance.py). Dtypes of one answer share a row."""
    head = ("kernel", "device", "lowering", "length", "dtype", "batch invariant", "sizes that differ", "first", "steps")
    body: dict[tuple[str, ...], list[str]] = {}
    for document in files:
        devices = {name: facts["chip"] for name, facts in document["environment"].items() if isinstance(facts, dict)}
        for one in document["rows"]:
            if one["reason"]:
                continue
            differing = one["differing"]
            also = [what for what, told in (("place", one["place"]), ("other rows", one["contents"])) if told]
            answer = "yes" if one["invariant"] else ", ".join(["no", *also])
            first = f"row {one['row']} of {differing[0]}" if differing else ""
            key = (
                f"`{one['kernel']}`", f"{one['backend']}, {devices[one['backend']]}", f"`{one['lowering']}`",
                str(one["length"]), answer, f"{len(differing)} of {one['sizes']}", first,
                str(one["steps"]) if differing else "",
            )  # fmt: skip
            body.setdefault(key, []).append(one["dtype"])
    return table(head, [(*key[:4], " ".join(dtypes), *key[4:]) for key, dtypes in body.items()])


def units_table(files: Sequence[Mapping[str, Any]]) -> str:
    """Dot products by a matrix unit, beside what verify/numbers/units.py gives; see bench/units_gpu.py."""
    head = ("unit", "device", "by", "dot products each", "recipes without a difference", "with differences")
    body: dict[tuple[str, ...], tuple[list[str], list[str]]] = {}
    for document in files:
        for one in document["cells"]:
            key = one["unit"], document["device"], f"`{one['path']}`", f"{document['size'] ** 2:,}"
            same, different = body.setdefault(key, ([], []))
            if one["different"]:
                none = [text for text, count in one.get("rivals", {}).items() if not count]
                instead = f" (none of an eighth by {' or '.join(none[-1:])})" if none else ""
                different.append(f"{one['recipe']}: {one['different']:,}{instead}")
            else:
                same.append(one["recipe"])
    return table(head, [(*key, ", ".join(same), ", ".join(other)) for key, (same, other) in body.items()])


def libraries_table(files: Sequence[Mapping[str, Any]]) -> str:
    """The largest errors of device libraries executed on the CPU; see bench/devicelib.py."""
    parts = []
    for document in files:
        body = [
            (
                f"`{one['library']}`", f"`{one['function']}`", upward(one["max_ulp"]), code(one["at"]),
                upward(one["max_ulp_subnormal"]), f"{one['arguments'] / one['seconds'] / 1e6:.0f} M/s",
            )
            for one in document["functions"]
        ]  # fmt: skip
        head = ("library", "function", "max ulp:", "at", "below normal range:", "a core:")
        models = [
            f"{code(one['instruction'])}: {len(one['misrounded'])} of {one['arguments']} results are not the nearest "
            f"number; {one['in_multiprecision']} decided in multiprecision.\n"
            for one in document["models"]
        ]  # fmt: skip
        told = f"{escaped(document['host'])}, {escaped(document['libc'])}: {code(document['command'])}.\n"
        parts.append(f"{told}\n{table(head, body)}\n{''.join(models)}")
    return "\n".join(parts)


KINDS: Mapping[str, Callable[[Sequence[Path], Filter], str]] = {
    "errors": _of_reports(errors_table),
    "differences": _of_reports(differences_table),
    "deviations": _of_reports(deviations_table),
    "composites": _of_reports(composites_table),
    "products": _of_reports(products_table),
    "best": _of_reports(best_table),
    "devices": devices_table,
    "instructions": _of_documents(instructions_table),
    "vendors": _of_reports(vendors_table),
    "vendors-brief": _of_reports(vendors_brief),
    "screen": _of_reports(screen),
    "bench": _of_documents(bench_table),
    "mutants": _of_documents(mutants_table),
    "kills": _of_documents(kills_table),
    "invariance": _of_documents(invariance_table),
    "units": _of_documents(units_table),
    "libraries": _of_documents(libraries_table),
}


def pages() -> list[Path]:
    """The files that hold tables."""
    return [ROOT / "README.md", *sorted(RESULTS.glob("*.md"))]


def filled(text: str, root: Path = ROOT) -> str:
    """`text` with every table made anew. Raises UsageError for a place that names no kind or no file."""
    return PLACE.sub(lambda place: f"{place[1]}\n{rendered(place['what'], root)}\n{place[3]}", text)


def rendered(what: str, root: Path) -> str:
    """One table, from what its place says."""
    kind, *words = what.split()
    if kind not in KINDS:
        raise UsageError(suggest("kind of table", kind, tuple(KINDS)))
    keep = Filter.parse(word for word in words if "=" in word)
    names = [word for word in words if "=" not in word]
    if not names:
        raise UsageError(f"the place 'table: {what}' names no file; expected the report or measurement to show")
    if kind == "devices":
        return KINDS[kind]([root / name for name in names], keep)
    missing = [name for name in names if not (root / name).exists()]
    told = "".join(f"Not recorded: {code(name)}.\n" for name in missing)
    present = [root / name for name in names if name not in missing]
    return told + (KINDS[kind](present, keep) if present else "")


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", nargs="*", type=Path, help="print the tables of these reports instead")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where a table is out of date")
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        if options.report:
            for kind in ("errors", "differences"):
                print(KINDS[kind](options.report, Filter()))
            return 0
        changed = 0
        for page in pages():
            old = page.read_text()
            new = filled(old)
            changed += old != new
            if options.check:
                lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), page.name, "made")
                sys.stdout.writelines(lines)
            elif old != new:
                store.write_text([new], page)
        return int(options.check and changed > 0)
    except UsageError as error:
        print(f"tables: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
