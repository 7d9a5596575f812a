"""Reports side by side: cells aligned, each difference given the one kind that matters most.

What is printed of it is in `verify.reports.compare_page`; whether a difference is acceptable is the gate's business.
Elements are named by `verify.walk.recompute`, which computes again; nothing here does.
"""

from __future__ import annotations

import fnmatch
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple

from verify.facts.kernel import NothingToCompare, UsageError, suggest
from verify.judge.regions import REGIONS
from verify.reports import store
from verify.reports.figures import ENCLOSURE, measured
from verify.reports.figures import maximum as largest
from verify.reports.looks import severity
from verify.reports.reasons import lacking
from verify.reports.text import ScalarsKey, count_text, scalars_key, scalars_of

if TYPE_CHECKING:
    from verify.reports.schema import Cell, Error, Region

#: What a row of a comparison is, in the order in which rows are listed: what got better stands after all that may
#: be worse.
KINDS = (
    "new failure",
    "more mismatches",
    "larger maximum",
    "new deviation",
    "other formula",
    "other bits",
    "failure resolved",
    "fewer mismatches",
    "smaller maximum",
    "deviation resolved",
    "not compared",
    "one side only",
    "equal",
    "not run",
)
#: Which one names a cell of several kinds: anything worse, then anything better, so that neither hides the other.
KINDS_BY_WEIGHT = (*KINDS[:4], *KINDS[6:10], *KINDS[4:6], *KINDS[10:])
#: Kinds of cells that ran on both sides with equal inputs.
COMPARED = (*KINDS[: KINDS.index("not compared")], "equal")

#: Classes of elements that are wrong whatever their error, `flushed` where it is not declared: the mismatches.
MISMATCHES = ("nan_mismatch", "inf_mismatch", "zero_sign", "flushed", "undecided")

#: Outputs that a digest of a report covers: `verify.inputs.domains.CHUNK`, which needs torch; a test holds them equal.
CHUNK = 1 << 20

#: Facts of a fingerprint that tell columns of equal chip and torch version apart, before any other fact.
TELLING = ("capability", "triton", "driver")


class Place(NamedTuple):
    """What cells of different reports are aligned by; `backend` is empty where the reports' backends differ."""

    kernel: str
    lowering: str
    spelling: str
    dtype: str
    scalars: ScalarsKey
    output: str
    backend: str


class Inputs(NamedTuple):
    kind: str
    size: int
    seed: int
    digest: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.size}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Part:
    """What comparing needs of one region of a cell; names as in `Facts`."""

    name: str
    status: str
    value: float
    metric: str
    truth: str
    basis: str
    max_ulp: float
    misrounded: int
    mismatches: tuple[tuple[str, int], ...]

    def counts(self, truth: str) -> dict[str, int]:
        """The mismatches by class; regions are judged against one truth."""
        return dict(self.mismatches)


@dataclass(frozen=True, slots=True)
class Facts:
    """What comparing needs of a cell, in a small part of its memory.

    value       maximum error in `metric` against the truth `truth`, as the bound measures it; `max_ulp` without one
    basis       what a share is a share of: the source of the elements' bounds; empty for other metrics
    max_ulp     in ULP, against the truth with exact scalars. Both are None where nothing was measured
    mismatches  elements by class of MISMATCHES, none of them 0; those outside the normal range, which fail no
                cell, are among them. `rounded`: the same against the truth with rounded scalars, if there is one
    formula     the identified one, or all survivors; None: the kernel has no formulas
    parts       by region; none in a report of schema 1
    """

    place: Place
    inputs: Inputs
    status: str
    reason: str
    value: float | None
    metric: str
    truth: str
    basis: str
    max_ulp: float | None
    misrounded: int
    mismatches: tuple[tuple[str, int], ...]
    rounded: tuple[tuple[str, int], ...]
    formula: tuple[str, ...] | None
    digest: str
    chunks: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    ledger: tuple[str, ...] = ()

    @property
    def ran(self) -> bool:
        return self.status != "not-run"

    @property
    def severity(self) -> int:
        """Of the status: 0 where the cell passed or did not run."""
        return severity(self.status)

    def counts(self, truth: str) -> dict[str, int]:
        """The mismatches against `truth`, as the maximum that stands beside them."""
        return dict(self.rounded if truth == "rounded" else self.mismatches)

    def mismatched(self, truth: str) -> int:
        return sum(self.counts(truth).values())


@dataclass(frozen=True, slots=True)
class Bits:
    """How the outputs of two cells differ: `differing` of `chunks` chunks of 2^20, the first of them `first`.

    All are None where the digests differ and a report has no chunks' digests.
    """

    differing: int | None = None
    chunks: int | None = None
    first: int | None = None

    @property
    def equal(self) -> bool:
        return self.differing == 0


@dataclass(frozen=True, slots=True)
class Pair:
    """A cell against its reference: all kinds of differences between them, or 'equal' or 'not compared' alone.

    bits: None where a digest is missing. reason: why it was not compared. regions: the kinds of each that differs.
    """

    kinds: tuple[str, ...]
    bits: Bits | None = None
    reason: str = ""
    regions: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def kind(self) -> str:
        """The one that matters most."""
        return min(self.kinds, key=KINDS_BY_WEIGHT.index)


@dataclass(frozen=True, slots=True)
class Within:
    """One region of a row: a part of every column, None where the report has none; the rest as in `Aligned`."""

    name: str
    parts: tuple[Part | None, ...]
    metric: str
    truth: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Aligned:
    """One row: a cell of every column, None where the report has none.

    metric, truth  what `values` are in, the same for every column: the bound's where all columns have it, else ulp
    reference      the first column that ran; `pairs` are the others against it, None for itself and what did not run
    regions        those in which some pair differs, `normal` first
    """

    place: Place
    cells: tuple[Facts | None, ...]
    kind: str
    metric: str
    truth: str
    values: tuple[float | None, ...]
    reference: int
    pairs: tuple[Pair | None, ...]
    regions: tuple[Within, ...] = ()

    @property
    def telling(self) -> bool:
        """Whether something differs."""
        return self.kind not in ("equal", "not run")

    @property
    def reason(self) -> str:
        return next((pair.reason for pair in self.pairs if pair and pair.reason), "")


@dataclass(frozen=True)
class Source:
    """A report as far as comparing needs it; `cells` are those that the options select, `names` all there are,
    `lacking` what there is not of the run."""

    file: str
    environment: Mapping[str, Any]
    profile: str
    seed: int
    cells: tuple[Facts, ...]
    names: Mapping[str, frozenset[str]]
    lacking: tuple[str, ...] = ()

    @property
    def backends(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.place.backend for cell in self.cells))

    def fingerprint(self, backend: str) -> Mapping[str, Any]:
        facts = self.environment.get(backend)
        return facts if isinstance(facts, dict) else {}


@dataclass(frozen=True)
class Column:
    """A report, or one backend of a report: `label` is unique among the columns."""

    label: str
    source: int
    backends: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    sources: tuple[Source, ...]
    columns: tuple[Column, ...]
    rows: tuple[Aligned, ...]

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter(row.kind for row in self.rows)
        return {kind: counted[kind] for kind in KINDS if counted[kind]}

    @property
    def compared(self) -> int:
        """Rows in which two cells at least were compared."""
        return sum(any(pair and pair.kind in COMPARED for pair in row.pairs) for row in self.rows)


# Reading


def load(
    paths: Sequence[str | Path],
    only: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    lowerings: Sequence[str] = (),
) -> list[Source]:
    """The reports, with the cells of the kernels and lowerings (shell patterns) and dtypes asked for.

    Raises UsageError for a file that is no report, and for a pattern that fits no cell of any.
    """
    sources = [_source(path, only, dtypes, lowerings) for path in paths]
    for what, patterns in (("kernel", only), ("lowering", lowerings), ("dtype", dtypes)):
        known = sorted({name for source in sources for name in source.names[what]})
        for pattern in patterns:
            if not fnmatch.filter(known, pattern):
                raise UsageError(suggest(f"{what} in these reports", pattern, known))
    return sources


def _source(path: str | Path, only: Sequence[str], dtypes: Sequence[str], lowerings: Sequence[str]) -> Source:
    names: dict[str, set[str]] = {"kernel": set(), "lowering": set(), "dtype": set()}
    chosen = _memory(lambda kernel, lowering, dtype: _fits(kernel, only) and _fits(lowering, lowerings)
                     and (not dtypes or dtype in dtypes))  # fmt: skip

    def take(cell: Cell) -> Facts | None:
        for what, seen in names.items():
            seen.add(getattr(cell, what))
        return facts_of(cell) if chosen(cell.kernel, cell.lowering, cell.dtype) else None

    report, taken = store.scan(path, take)
    return Source(
        str(path),
        report.environment,
        report.profile,
        report.seed,
        tuple(facts for facts in taken if facts is not None),
        {what: frozenset(seen) for what, seen in names.items()},
        tuple(lacking(report)),
    )


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _memory(function: Callable[..., bool]) -> Callable[..., bool]:
    kept: dict[tuple[str, ...], bool] = {}

    def remembered(*arguments: str) -> bool:
        if arguments not in kept:
            kept[arguments] = function(*arguments)
        return kept[arguments]

    return remembered


def facts_of(cell: Cell) -> Facts:
    """The facts of a cell. An oracle violation, or a cell without inputs, has measured nothing."""
    error = cell.error if cell.inputs else None
    value, metric = measured(cell) if error else (None, "ulp")
    formula, mismatches = cell.formula, _mismatches(error, cell.ftz)
    return Facts(
        place=Place(
            intern(cell.kernel),
            intern(cell.lowering),
            intern(cell.spelling),
            intern(cell.dtype),
            tuple((intern(name), number, negative) for name, number, negative in scalars_key(cell.scalars)),
            intern(cell.output),
            intern(cell.backend),
        ),
        inputs=Inputs(intern(cell.domain.kind), cell.domain.size, cell.domain.seed, cell.domain.digest),
        status=cell.status,
        reason=intern(cell.reason),
        value=value,
        metric=metric,
        truth=cell.bound.truth if cell.bound else "exact",
        basis=intern(cell.bound.source) if cell.bound and metric == "share" else "",
        max_ulp=None if error is None else error.max_ulp,
        misrounded=0 if error is None else error.misrounded,
        mismatches=mismatches,
        rounded=_mismatches(cell.error_rounded_scalar, cell.ftz) if error and cell.error_rounded_scalar else mismatches,
        formula=None if formula is None else tuple(
            map(intern, formula.survivors if formula.identified is None else [formula.identified])
        ),
        digest=cell.digest,
        chunks=tuple(cell.chunks),
        parts=tuple(_part(name, cell.regions[name], cell) for name in sorted(cell.regions, key=_normal_first)),
        ledger=tuple(map(intern, cell.ledger)),
    )  # fmt: skip


def _normal_first(name: str) -> tuple[bool, int]:
    return name != "normal", REGIONS.index(name)


def _part(name: str, region: Region, cell: Cell) -> Part:
    value, metric = largest(region.error, region.bound)
    source = (region.bound and region.bound.source) or (cell.bound and cell.bound.source) or ""
    return Part(
        name=name,
        status=intern(region.status),
        value=value,
        metric=metric,
        truth=cell.bound.truth if cell.bound else "exact",
        basis=intern(source) if metric == "share" else "",
        max_ulp=region.error.max_ulp,
        misrounded=region.error.misrounded,
        mismatches=_mismatches(region.error, cell.ftz),
    )


def _mismatches(error: Error | None, ftz: bool) -> tuple[tuple[str, int], ...]:
    return () if error is None else tuple(
        (name, count) for name in MISMATCHES if (count := getattr(error, name)) and not (name == "flushed" and ftz)
    )  # fmt: skip


# Comparing


def compare(sources: Sequence[Source]) -> Comparison:
    """Align the cells of the reports and sort the rows: what matters first, then in the first report's order.

    Cells are aligned by kernel, lowering, spelling, dtype, scalars and output; by backend too where all reports
    have the same ones. Otherwise each backend of each report is a column. Each cell is compared with the first
    column's, or with the first that ran.

    Raises UsageError for a single report of one backend, NothingToCompare where the reports have no cell in
    common that ran with equal inputs.
    """
    empty = [source.file for source in sources if not source.cells]
    if empty:
        raise NothingToCompare(f"nothing to compare: {empty[0]!r} holds no cell that agrees with the options")
    columns, tables = _columns(sources)
    if len(columns) < 2:
        raise UsageError(f"{sources[0].file!r} alone holds one backend, {columns[0].backends[0]}; give two reports")
    places = dict.fromkeys(place for table in tables for place in table)
    rows = [aligned(place, tuple(table.get(place) for table in tables)) for place in places]
    rows.sort(key=order)  # stable: equal ones stay in the order of the reports
    found = Comparison(tuple(sources), columns, tuple(rows))
    if not found.compared:
        raise NothingToCompare(_nothing(found))
    return found


def pair(a: Facts, b: Facts, metric: str, truth: str) -> Pair:
    """Cell `b` against cell `a`, both of which ran; maxima in `metric`, they and mismatches against `truth`."""
    reason = refusal(a, b)
    if reason:
        return Pair(("not compared",), reason=reason)
    bits = bits_of(a, b)
    same = bits is not None and bits.equal
    kinds = _kinds(a, b, metric, truth, same)
    regions = []
    theirs = {part.name: part for part in b.parts}
    for part in a.parts:
        if part.name in theirs and (found := _kinds(part, theirs[part.name], *_common_metric((part, theirs[part.name])),
                                                    same)):  # fmt: skip
            regions.append((part.name, tuple(found)))
            kinds += found
    if a.formula is not None and b.formula is not None and a.formula != b.formula:
        kinds.append("other formula")
    if bits and not bits.equal:
        kinds.append("other bits")
    return Pair(tuple(dict.fromkeys(kinds)) or ("equal",), bits, regions=tuple(regions))


def _kinds(a: Facts | Part, b: Facts | Part, metric: str, truth: str, same: bool) -> list[str]:
    """What differs in status, mismatches and maximum, of cells or of one region; same: their bits are equal."""
    kinds = []
    before, after = severity(a.status), severity(b.status)
    known = severity("deviates")
    if before != after:
        failure = max(before, after) > known
        better, worse = ("failure resolved", "new failure") if failure else ("deviation resolved", "new deviation")
        kinds.append(worse if after > before else better)
    then, now = a.counts(truth), b.counts(truth)  # by class: none makes up for another
    kinds += ["more mismatches"] if any(now[name] > then.get(name, 0) for name in now) else []
    kinds += ["fewer mismatches"] if any(then[name] > now.get(name, 0) for name in then) else []
    low, high = maximum(a, metric, truth), maximum(b, metric, truth)
    close = low is not None and high is not None and math.isclose(low, high, rel_tol=ENCLOSURE)
    if low is not None and high is not None and low != high and not (close and same):
        kinds.append("larger maximum" if high > low else "smaller maximum")
    return kinds


def refusal(a: Facts, b: Facts) -> str:
    """Why two cells cannot be compared: other inputs, or a report that contradicts itself. Empty where they can.

    A cell that failed before it had inputs (size 0) is compared by its status.
    """
    if a.inputs.size != b.inputs.size and a.inputs.size and b.inputs.size:
        return f"the inputs differ: {a.inputs} against {b.inputs}"
    numbers = a.max_ulp is not None and b.max_ulp is not None
    if numbers and not (a.inputs.digest and b.inputs.digest):
        return "the inputs may differ: a report has no digest of them"
    if a.inputs.digest and b.inputs.digest and a.inputs.digest != b.inputs.digest:
        told = f"{a.inputs} against {b.inputs}" if a.inputs[:3] != b.inputs[:3] else f"{a.inputs} on both sides"
        return f"the inputs differ: {told}, digest {a.inputs.digest} against {b.inputs.digest}"
    bits = bits_of(a, b)
    if bits and bits.chunks and bits.equal != (a.digest == b.digest):
        return "a report contradicts itself: the digest of all outputs and those of its chunks do not agree"
    return ""


def bits_of(a: Facts, b: Facts) -> Bits | None:
    """How the outputs differ; None where a side has no digest."""
    if not (a.digest and b.digest):
        return None
    if a.chunks and len(a.chunks) == len(b.chunks):
        unequal = differing_chunks(a, b)
        return Bits(len(unequal), len(a.chunks), unequal[0] if unequal else None)
    if a.digest == b.digest:
        return Bits(0)
    return Bits(1, 1, 0) if differing_chunks(a, b) else Bits()


def differing_chunks(a: Facts, b: Facts) -> list[int]:
    """Numbers of the chunks known to differ; none where a report does not have its chunks' digests.

    A domain of one chunk needs none. Only of those is it known that they have as many outputs as inputs.
    """
    if a.chunks and len(a.chunks) == len(b.chunks):
        if a.chunks == b.chunks:
            return []
        return [number for number, (x, y) in enumerate(zip(a.chunks, b.chunks, strict=True)) if x != y]
    small = a.inputs.kind in ("strata", "exhaustive", "list") and max(a.inputs.size, b.inputs.size) <= CHUNK
    return [0] if small and a.digest and b.digest and a.digest != b.digest else []


def _common_metric(cells: Iterable[Facts | Part | None]) -> tuple[str, str]:
    """Metric and truth in which the maxima of cells, or of one region, can be compared: the bound's where it is the
    same for all.

    Metrics are never converted into one another, and shares of different bounds say nothing of each other; ulp
    against the exact scalars is what every cell has.
    """
    meant = {(one.metric, one.truth, one.basis) for one in cells if one is not None and one.value is not None}
    return next(iter(meant))[:2] if len(meant) == 1 else ("ulp", "exact")


def maximum(cell: Facts | Part, metric: str, truth: str) -> float | None:
    """The maximum error of a cell or region in `metric` against `truth`, or None where it was not measured."""
    return cell.value if (metric, truth) == (cell.metric, cell.truth) else cell.max_ulp


def aligned(place: Place, cells: tuple[Facts | None, ...]) -> Aligned:
    """The row of a cell in every column: each that ran against the first that did."""
    metric, truth = _common_metric(cells)
    values = tuple(None if cell is None or cell.value is None else maximum(cell, metric, truth) for cell in cells)
    ran = [index for index, cell in enumerate(cells) if cell is not None and cell.ran]
    reference = ran[0] if ran else 0
    first = cells[reference]
    pairs: list[Pair | None] = [None] * len(cells)
    for index in ran[1:]:
        cell = cells[index]
        assert first is not None and cell is not None
        pairs[index] = pair(first, cell, metric, truth)
    kinds = {one.kind for one in pairs if one} or {"not run"}
    if len(ran) < len(cells) and ran and kinds <= {"equal", "not run"}:
        kinds = {"one side only"}
    kind = min(kinds, key=KINDS.index)
    names = dict.fromkeys(name for one in pairs if one for name, _ in one.regions)
    regions = tuple(_within(name, cells) for name in sorted(names, key=_normal_first))
    return Aligned(place, cells, kind, metric, truth, values, reference, tuple(pairs), regions)


def _within(name: str, cells: Sequence[Facts | None]) -> Within:
    parts = tuple(next((part for part in cell.parts if part.name == name), None) if cell else None for cell in cells)
    metric, truth = _common_metric(parts)
    values = tuple(None if part is None else maximum(part, metric, truth) for part in parts)
    return Within(name, parts, metric, truth, values)


def order(row: Aligned) -> tuple[float, ...]:
    """By kind, then the worst of its pairs first: severity, mismatches, ratio of maxima, share of chunks."""
    weights: list[tuple[float, float]] = [(0.0, 0.0)]
    first = row.cells[row.reference]
    for index, one in enumerate(row.pairs):
        cell = row.cells[index]
        if one is None or one.kind != row.kind or first is None or cell is None:
            continue
        wrong = abs(cell.mismatched(row.truth) - first.mismatched(row.truth))
        if row.kind in ("new failure", "failure resolved", "new deviation", "deviation resolved"):
            weights.append((abs(cell.severity - first.severity), wrong))
        elif row.kind in ("more mismatches", "fewer mismatches"):
            weights.append((wrong, 0.0))
        elif row.kind in ("larger maximum", "smaller maximum"):
            for values in (row.values, *(region.values for region in row.regions)):
                then, now = values[row.reference], values[index]
                if then is not None and now is not None and then != now:
                    low, high = sorted((then, now))
                    weights.append((high / low if low else math.inf, high))
        elif one.bits:
            weights.append(((one.bits.differing or 0) / (one.bits.chunks or 1), 0.0))
    one_, two = max(weights)
    return (KINDS.index(row.kind), -one_, -two)


def _columns(sources: Sequence[Source]) -> tuple[tuple[Column, ...], list[dict[Place, Facts]]]:
    """The columns, and the cells of each by place."""
    together = len(sources) > 1 and len({frozenset(source.backends) for source in sources}) == 1
    groups: list[tuple[int, tuple[str, ...]]] = []
    tables: list[dict[Place, Facts]] = []
    for number, source in enumerate(sources):
        for backends in [source.backends] if together else [(name,) for name in source.backends]:
            alone = len(backends) == 1
            groups.append((number, backends))
            tables.append(
                {
                    cell.place._replace(backend="") if alone else cell.place: cell
                    for cell in source.cells
                    if cell.place.backend in backends
                }
            )
    labels = labels_of(sources, groups)
    return tuple(Column(label, *group) for label, group in zip(labels, groups, strict=True)), tables


def labels_of(sources: Sequence[Source], groups: Sequence[tuple[int, tuple[str, ...]]]) -> list[str]:
    """A name for each column: chip and torch version; where these are equal a fact that differs, else the file."""
    prints = [[sources[number].fingerprint(name) for name in backends] for number, backends in groups]
    chips = [", ".join(str(f.get("chip") or name) for f, name in zip(p, g[1], strict=True))
             for p, g in zip(prints, groups, strict=True)]  # fmt: skip
    labels = [", ".join([chip, *_told(p, "torch")]) for chip, p in zip(chips, prints, strict=True)]
    files = [sources[number].file for number, _ in groups]
    names = [Path(file).name for file in files]
    facts = dict.fromkeys([*TELLING, *sorted({fact for p in prints for one in p for fact in one})])
    further: list[list[str]] = [[", ".join(_told(p, fact)) for p in prints] for fact in facts]
    for texts in (*further, names, files, [f"number {index}" for index in range(1, len(groups) + 1)]):
        again = Counter(labels)
        same = [label for label, times in again.items() if times > 1]
        if not same:
            break
        for label in same:
            members = [index for index, other in enumerate(labels) if other == label]
            if len({texts[index] for index in members}) == len(members):
                for index in members:
                    labels[index] = ", ".join(filter(None, (label, texts[index])))
    return labels


def _told(prints: Iterable[Mapping[str, Any]], fact: str) -> list[str]:
    values = dict.fromkeys(str(facts[fact]) for facts in prints if facts.get(fact))
    return [value if fact == "capability" else f"{fact} {value}" for value in values]


def _nothing(found: Comparison) -> str:
    """Why no cell could be compared: by how many rows each reason holds."""
    reasons = Counter(row.reason or row.kind for row in found.rows)
    told = "; ".join(f"{count_text(count, 'cell')}: {reason}" for reason, count in reasons.most_common(3))
    more = f"; and {len(reasons) - 3} more reasons" if len(reasons) > 3 else ""
    return f"nothing to compare: {told}{more}"


# As JSON


def json_lines(found: Comparison, every: bool, **further: Any) -> Iterator[str]:
    """The comparison as JSON: a head with `further`, then one line a row; unequal ones only unless `every`."""
    head = {
        "schema": 1,
        "columns": [
            {
                "label": column.label,
                "file": found.sources[column.source].file,
                "backends": list(column.backends),
                "profile": found.sources[column.source].profile,
                "seed": found.sources[column.source].seed,
            }
            for column in found.columns
        ],
        "counts": found.counts,
        **further,
    }
    yield json.dumps(head, allow_nan=False).removesuffix("}") + ', "cells": [\n'
    comma = ""
    for row in found.rows:
        if every or row.telling:
            yield comma + json.dumps(row_json(row), allow_nan=False)
            comma = ",\n"
    yield "\n]}\n"


def place_json(place: Place) -> dict[str, Any]:
    return place._asdict() | {"scalars": scalars_of(place.scalars)}


def row_json(row: Aligned) -> dict[str, Any]:
    sides = zip(row.cells, row.values, row.pairs, strict=True)
    return {
        **place_json(row.place),
        "kind": row.kind,
        "metric": row.metric,
        "truth": row.truth,
        "reference": row.reference,
        "sides": [None if cell is None else _side(cell, row.truth, value, one) for cell, value, one in sides],
        "regions": [
            {
                "region": one.name,
                "metric": one.metric,
                "truth": one.truth,
                "sides": [
                    part and {"status": part.status, "error": value, "max_ulp": part.max_ulp,
                              "misrounded": part.misrounded, "mismatches": dict(part.mismatches)}
                    for part, value in zip(one.parts, one.values, strict=True)
                ],
            }
            for one in row.regions
        ],
    }  # fmt: skip


def _side(cell: Facts, truth: str, value: float | None, one: Pair | None) -> dict[str, Any]:
    side: dict[str, Any] = {
        "backend": cell.place.backend,
        "status": cell.status,
        "reason": cell.reason,
        "ledger": list(cell.ledger),
        "error": value,
        "max_ulp": cell.max_ulp,
        "misrounded": cell.misrounded,
        "mismatches": cell.counts(truth),
        "formula": None if cell.formula is None else list(cell.formula),
        "digest": cell.digest,
        "domain": cell.inputs._asdict(),
    }
    if one is not None:
        regions = {name: list(kinds) for name, kinds in one.regions}
        side["against_reference"] = {"kinds": list(one.kinds), "reason": one.reason, "regions": regions}
        if one.bits is not None:
            side["against_reference"] |= {
                "bits_equal": one.bits.equal,
                "chunks": one.bits.chunks,
                "chunks_differing": one.bits.differing,
                "first_chunk": one.bits.first,
            }
    return side
