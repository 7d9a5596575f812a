"""What the page of `verify report --html` embeds: reports as compact JSON, each value once.

Cells are columns of indices into a pool of values. Regions, elements, statistics and candidates are tables of their
own, column by column, which packs to a third less; statistics by binade, which are only drawn, are shortened. Figures
become text in `verify.reports.figures`; the page itself is in `verify.reports.html`.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from verify.facts.kernel import NothingToCompare, facts_of
from verify.judge.regions import REGIONS
from verify.numbers.ulp import FAILING
from verify.reports import invariance, store
from verify.reports.figures import fails, figures, figures_of
from verify.reports.looks import COUNTED, LOOKS, PRECEDENCE, PREDICTED
from verify.reports.reasons import beside_regions, calls_text, lacking, parts_of, why_failed
from verify.reports.replays import Replays, assignments, replay_command, replay_place
from verify.reports.text import printable, scalars_text, upward

if TYPE_CHECKING:
    from verify.reports.baseline import Accepted
    from verify.reports.gate import Verdict
    from verify.reports.schema import Binade, Cell, Error, Formula, Region, Report, Trust, Worst

#: Figures of `verify.reports.figures.figures`.
FIGURES = ("error", "metric", "bound", "share", "misrounded", "max ulp", "closer", "farther", "tied")
#: Those of `region_figures`.
REGION_FIGURES = FIGURES[:6]
#: Columns of cells as indices of values. `numbers`, `rounded`, `candidates`, `worst` and `regions` hold rows of TABLES.
COLUMNS = (
    "kernel", "lowering", "spelling", "dtype", "scalars", "output", "domain", "inputs", "status", "reason", *FIGURES,
    "formula", "candidates", "limit", "numbers", "rounded", "replay", "worst", "more", "regions",
)  # fmt: skip
#: Columns of cells with values that two cells rarely share.
OWN = ("digest", "kernel_s", "check_s", "mp_elements")
#: Tables of what occurs in many cells, or many times in one; each row once.
TABLES = ("region", "element", "error", "candidate")

#: Counts of a cell's elements and its maxima and means, as the page lists them.
COUNTS = (
    "correct", "misrounded", "faithful", "worse", "flushed", "nan_mismatch", "inf_mismatch", "zero_sign", "undecided",
    "range", "clamped",
)  # fmt: skip
NUMBERS = ("max_ulp", "max_int_ulp", "max_scaled_ulp", "max_share", "range_max_ulp", "mean_ulp", "bias_ulp")

_MAXIMA, _COUNTS = attrgetter(*NUMBERS), attrgetter(*COUNTS)

#: What shlex.quote leaves as it is.
_PLAIN = re.compile(r"[a-zA-Z0-9_@%+=:,./-]*", re.ASCII)


@dataclass(frozen=True)
class Embedded:
    """The JSON text and the statistics by binade, both as gzip in base64, and what they hold."""

    data: str
    binades: str
    cells: int
    kernels: tuple[str, ...]
    devices: tuple[str, ...]


@dataclass
class _Pool:
    """Values and rows of tables by their JSON text, and columns: what all cells of all reports share."""

    values: dict[str, int] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)
    tables: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in TABLES})
    binades: dict[str, int] = field(default_factory=dict)
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def index(self, value: Any) -> int:
        """Of a value."""
        if value.__class__ is not str:
            return self.values.setdefault(_encode(value), len(self.values))
        found = self.strings.get(value)
        if found is None:
            found = self.strings[value] = self.values.setdefault(_encode(value), len(self.values))
        return found

    def row(self, table: str, values: Sequence[Any]) -> int:
        """Of a row of a table."""
        rows = self.tables[table]
        return rows.setdefault(_encode(values), len(rows))

    def add(self, cell: Cell, replays: Replays) -> None:
        if not self.columns:
            self.columns.update((name, []) for name in (*COLUMNS, *OWN, "binades"))
        timing = cell.timing
        own = (cell.digest, f"{timing.kernel_s:.2g}", f"{timing.check_s:.2g}", timing.mp_elements)
        statistics = cell.error.binades if cell.error else []
        number = self.binades.setdefault(_encode(_binades(statistics)), len(self.binades)) if statistics else -1
        values = (*map(self.index, _facts(cell, self, replays)), *own, number)
        for column, value in zip(self.columns.values(), values, strict=False):
            column.append(value)


@dataclass
class _Source:
    """One report while it is read.

    backends  of each cell
    names     of each cell, where a baseline needs them
    places    what tells its cells apart, by backend
    """

    path: str
    backends: list[str] = field(default_factory=list)
    places: dict[str, set[int]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    head: Report | None = None

    @property
    def report(self) -> Report:
        assert self.head is not None
        return self.head

    def fingerprint(self, backend: str) -> Mapping[str, Any]:
        facts = self.report.environment.get(backend)
        return facts if isinstance(facts, dict) else {}


def embed(paths: Sequence[str | Path], baseline: str | Path | None = None) -> Embedded:
    """The data of the page. `baseline`: a folder of `verify accept`, or another report.

    Raises UsageError for files that are not reports, NothingToCompare where they hold no cell.
    """
    pool = _Pool()
    sources = []
    for path in paths:
        source = _Source(str(path))
        take = _taker(source, pool, alone=len(paths) == 1, judged=baseline is not None)
        source.head, _ = store.scan_under(path, take)
        sources.append(source)
    if not pool.columns:
        raise NothingToCompare(f"nothing to show: no cell in {', '.join(str(path) for path in paths)}")
    named = set(pool.columns["kernel"])
    kernels = [json.loads(text) for text, index in pool.values.items() if index in named]
    pool.columns["batch"] = _invariance(sources, pool)
    pool.columns["device"], devices = _devices(sources)
    against: dict[str, Any] = {}
    if baseline is not None:
        from verify.reports.baseline import folder

        pool.columns["verdict"], against = _verdicts(sources, folder(baseline), pool)
    head = {
        "reports": [_report(source) for source in sources],
        "devices": devices,
        "baseline": against,
        "looks": {name: [look.tone, look.glyph, look.counted] for name, look in LOOKS.items()},
        "counted": COUNTED,
        "severity": list(PRECEDENCE),
        "failing_classes": FAILING,
        "counts": COUNTS,
        "numbers": NUMBERS,
    }
    labels = tuple(device["label"] for device in devices)
    return Embedded(
        packed(_pieces(head, pool)),
        packed([f"[{','.join(pool.binades)}]"]),
        len(pool.columns["device"]),
        tuple(kernels),
        labels,
    )


def packed(pieces: Iterable[str]) -> str:
    """Text as gzip in base64: the same bytes for the same text, and nothing that HTML would interpret."""
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    parts = [packer.compress(piece.encode()) for piece in pieces]
    return base64.b64encode(b"".join([*parts, packer.flush()])).decode()


def _pieces(head: Mapping[str, Any], pool: _Pool) -> Iterator[str]:
    yield _encode(_shown(head)).removesuffix("}") + ',"tables":{\n'
    yield ",\n".join(f'"{name}":{_transposed(rows)}' for name, rows in pool.tables.items())
    yield '\n},"values":[\n'
    values = list(pool.values)
    for start in range(0, len(values), 4096):
        yield (",\n" if start else "") + ",\n".join(values[start : start + 4096])
    yield '\n],"columns":{\n'
    yield ",\n".join(f'"{name}":{_encode(column)}' for name, column in pool.columns.items())
    yield "\n}}"


def _transposed(rows: Iterable[str]) -> str:
    return f"[{','.join(to_json(column).decode() for column in zip(*map(json.loads, rows), strict=True))}]"


def _encode(value: Any) -> str:
    text = to_json(value).decode()
    if "\\" in text or not text.isprintable():  # a backslash in JSON escapes, perhaps, what cannot be printed
        text = to_json(_shown(value)).decode()
    return text


def _shown(value: Any) -> Any:
    """Every string as it is printed: without control characters and bidirectional overrides."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_shown(key): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, (list, tuple)) else value


# Cells


def _taker(source: _Source, pool: _Pool, alone: bool, judged: bool) -> Callable[[Cell, Report], None]:
    """The function that takes each cell of a report. alone: no other report can hold the same cell."""
    from verify.reports.baseline import cell_name

    def take(cell: Cell, head: Report) -> None:
        source.backends.append(cell.backend)
        places = source.places.setdefault(cell.backend, set())
        if not alone:
            places.add(hash((cell.key, cell.domain.kind, cell.domain.size, cell.domain.seed)))
        if judged:
            source.names.append(cell_name(cell))
        pool.add(cell, Replays.of(head))

    return take


def _facts(cell: Cell, pool: _Pool, replays: Replays) -> tuple[Any, ...]:
    """A cell's values in the order of COLUMNS."""
    error, formula, bound, rounded = cell.error, cell.formula, cell.bound, cell.error_rounded_scalar
    domain = cell.domain
    told = figures(cell) if error is not None else dict.fromkeys(FIGURES, "-")
    return (
        cell.kernel,
        cell.lowering,
        cell.spelling,
        cell.dtype,
        scalars_text(cell.scalars),
        cell.output,
        [domain.kind, domain.size, domain.seed, domain.digest, cell.source],
        cell.inputs,
        cell.status,
        why_failed(cell) if fails(cell) and error is not None else cell.reason,
        *(told[name] for name in FIGURES),
        "-" if formula is None else formula.identified or " / ".join(formula.survivors) or "none",
        None if formula is None else [pool.row("candidate", one) for one in _candidates(formula)],
        None if bound is None else [bound.value, bound.metric, bound.truth, bound.source],
        None if error is None else _numbers(error, pool),
        None if rounded is None else _numbers(rounded, pool),
        _replay(cell, replays),
        _elements(cell.worst, cell, pool, replays),
        [
            list(map(_trust, cell.trust)),
            {name: value if isinstance(value, str) else json.dumps(value) for name, value in cell.flags.items()},
            [[one.name, one.violations, one.inputs, ", ".join(one.witness)] for one in cell.properties],
            cell.paths,
            cell.ftz,
            len(cell.chunks),
            cell.repeats,
            cell.distinct,
            [fails(cell), cell.allowance, cell.reason_kind, cell.ledger, beside_regions(cell)],
            calls_text(cell),
        ],
        [
            pool.row("region", _region(name, cell.regions[name], cell, pool, replays))
            for name in REGIONS
            if name in cell.regions
        ],
    )


def _region(name: str, region: Region, cell: Cell, pool: _Pool, replays: Replays) -> list[Any]:
    """A region for the page, which sorts and colours by the figures as shown."""
    error, why, told = region.error, region.reason, figures_of(region)
    kept = region.resolution
    return [
        name,
        region.inputs,
        region.status,
        pool.index([why.kind, why.text, why.ledger]),
        *(told[figure] for figure in REGION_FIGURES),
        error.misrounded,
        [getattr(error, name) for name in FAILING],
        region.unjudged,
        None if kept is None else ["-" if one is None else upward(one, 3) for one in (kept.median, kept.p90)],
        _elements(region.worst, cell, pool, replays),
        pool.index(None if region.bound is None else region.bound.source or (cell.bound.source if cell.bound else "")),
    ]


def _numbers(error: Error, pool: _Pool) -> int:
    histogram = pool.index("|".join(error.histogram))
    return pool.row("error", [*_MAXIMA(error), *_COUNTS(error), histogram, list(error.histogram.values())])


def _trust(one: Trust) -> str:
    seen = "" if one.seen_ulp is None else f", at most {upward(one.seen_ulp)} ulp seen"
    return f"{one.library}: within {one.bound_ulp:g} ulp, admitted on {one.admitted_on} arguments{seen}"


def _candidates(formula: Formula) -> list[list[Any]]:
    """Each formula that was tried, with the elements on which it fails and a witness."""
    names = dict.fromkeys((*([formula.identified] if formula.identified else []), *formula.survivors))
    tried = {**dict.fromkeys(names, 0), **formula.mismatches}
    ranked = sorted(tried.items(), key=lambda item: (item[0] not in names, item[1]))
    return [[name, count, ",".join(formula.witnesses.get(name, ()))] for name, count in ranked]


def _binades(binades: Sequence[Binade]) -> list[list[float]]:
    """Exponents, elements, misrounded ones, maximum (4 digits, rounded up) and bias (3 digits)."""
    ordered = sorted(binades, key=lambda one: one.exponent)
    return [
        [one.exponent for one in ordered],
        [one.measured for one in ordered],
        [one.misrounded for one in ordered],
        [float(upward(one.max_ulp)) for one in ordered],
        [float(f"{one.bias_ulp:.3g}") for one in ordered],
    ]


def _replay(cell: Cell, replays: Replays) -> tuple[str, str, str]:
    """What the replay commands of a cell's elements have in common: the beginning; of an element without inputs, what
    stands before its index and after it."""
    place = replays.place(cell)
    start = replay_command(cell.kernel, place, cell.scalars, ()).removesuffix("--input=")
    command = replay_place(cell.kernel, place, cell.scalars, (), (cell.output, 0, cell.domain.seed))
    before, _, after = command.removeprefix(start).rpartition("--index 0")
    return start, f"{before}--index ", after


def _elements(worst: Sequence[Worst], cell: Cell, pool: _Pool, replays: Replays) -> list[int]:
    inputs = "".join(text for one in worst for text in one.inputs)
    plain = _PLAIN.fullmatch(inputs) is not None and all(all(one.inputs) for one in worst)
    return [pool.row("element", _element(one, None if plain else replays.element(cell, one))) for one in worst]


def _errors(worst: Worst) -> str:
    assert worst.ulp is not None
    if worst.scaled_ulp is None or worst.scaled_ulp == worst.ulp:
        return upward(worst.ulp)
    return f"{upward(worst.ulp)} ({upward(worst.scaled_ulp)} scaled)"


def _element(worst: Worst, command: str | None) -> list[Any]:
    """command: null where it is what `_replay` says, with '--input=' and the inputs or with the index."""
    return [
        worst.inputs,
        worst.output,
        worst.exact,
        worst.rounded,
        "-" if worst.ulp is None else _errors(worst),
        "-" if worst.share is None else f"{upward(100 * worst.share, 3)}%",
        "" if worst.error_class is None else worst.error_class.replace("_", "-"),
        worst.index,
        command,
    ]


# Reports and devices


def _invariance(sources: Sequence[_Source], pool: _Pool) -> list[int]:
    """Whether each cell's rows are batch invariant, where that was measured."""
    backends = ((source, backend) for source in sources for backend in source.backends)
    named = zip(*(pool.columns[name] for name in ("kernel", "lowering", "dtype")), strict=True)
    texts = list(pool.values)
    known: dict[tuple[Any, ...], int] = {}
    found = []
    for (source, backend), cell in zip(backends, named, strict=True):
        key = (id(source), backend, *cell)
        if key not in known:
            name, lowering, dtype = (json.loads(texts[one]) for one in cell)
            told = invariance.told(name, lowering, dtype, source.fingerprint(backend))
            known[key] = pool.index(told or "-")
        found.append(known[key])
    return found


def _report(source: _Source) -> dict[str, Any]:
    report = source.report
    recorded = report.environment.get("recorded")
    left_out = recorded.get("left out") if isinstance(recorded, dict) else None
    notes = [
        f"{name.removesuffix(' absent')}: {why}" for name, why in report.environment.items() if name.endswith(" absent")
    ]
    missing = 0
    if isinstance(left_out, dict):
        not_run = left_out.get("not run")
        reasons: dict[str, list[tuple[str, int]]] = {}
        for what, count in not_run.items() if isinstance(not_run, dict) else ():
            place, _, why = what.partition(": ")
            reasons.setdefault(why or place, []).append((place, count if isinstance(count, int) else 0))
        for why, places in reasons.items():
            number = sum(count for _, count in places)
            missing += number
            told = ", ".join(place for place, _ in places)
            notes.append(f"{why}: {told}; {number} cells, left out of the recorded file")
        repeated = left_out.get("other spellings with the same bits")
        if repeated:
            notes.append(f"recorded without {repeated} spellings that repeat a lowering's bits")
    parts = ("; ".join(filter(None, (text, part.reason))) for text, part in parts_of(report))
    return {
        "file": Path(source.path).name,
        "profile": report.profile,
        "seed": report.seed,
        "command": report.command,
        "lacking": [*lacking(report), *parts],
        "cells": len(source.backends),
        "missing": missing,
        "notes": notes,
    }


def _devices(sources: Sequence[_Source]) -> tuple[list[int], list[dict[str, Any]]]:
    """The device of each cell, and the devices: a backend of a report, joined with equal ones of other reports.

    Reports of one device that hold the same cells stay apart, so that each cell of the page is one of a file.
    """
    from verify.reports.baseline import device_of, fingerprint_id
    from verify.reports.compare import Source, labels_of

    groups: list[tuple[int, str, str, set[int]]] = []  # first report, backend, fingerprint, places
    numbers: list[dict[str, int]] = []
    for number, source in enumerate(sources):
        mine: dict[str, int] = {}
        for backend, places in source.places.items():
            key = fingerprint_id(source.fingerprint(backend))
            for at, (_, name, other, taken) in enumerate(groups):
                if (name, other) == (backend, key) and not taken & places:
                    taken |= places
                    mine[backend] = at
                    break
            else:
                mine[backend] = len(groups)
                groups.append((number, backend, key, set(places)))
        numbers.append(mine)
    heads = [Source(s.path, s.report.environment, s.report.profile, s.report.seed, (), {}) for s in sources]
    names = labels_of(heads, [(number, (backend,)) for number, backend, _, _ in groups])
    devices: list[dict[str, Any]] = []
    for label, (number, backend, key, _) in zip(names, groups, strict=True):
        facts = sources[number].fingerprint(backend)
        alone = sum(name == backend for _, name, _, _ in groups) == 1
        named = backend if facts_of(backend) == backend else f"{PREDICTED} {backend} (predicted)"
        # the shortest name that distinguishes the page's devices, so that a cell's address survives a new driver
        slug = getattr(device_of(facts, backend), "slug", "") or backend
        taken = {device["id"] for device in devices}
        tries = (slug, f"{slug}-{key}", *(f"{slug}-{key}-{again}" for again in range(2, len(groups) + 1)))
        devices.append(
            {
                "id": next(one for one in tries if one not in taken),
                "label": label if named == backend else f"{label} (predicted)",
                "short": named if alone else f"{named}, {label}",
                "backend": backend,
                "predicted": named != backend,
                "assignments": assignments(facts),
                "facts": [f"{name}: {value}" for name, value in facts.items()],
                "files": [
                    Path(s.path).name
                    for s, mine in zip(sources, numbers, strict=True)
                    if mine.get(backend) == len(devices)
                ],
            }
        )
    column = [mine[backend] for source, mine in zip(sources, numbers, strict=True) for backend in source.backends]
    return column, devices


# Differences from a baseline

#: The verdicts by report and name of the cell, those on cells that only the baseline has, a line that sums up, notices.
_Found = tuple[dict[tuple[int, str], "Verdict"], list["Verdict"], str, Sequence[str]]


def _verdicts(sources: Sequence[_Source], path: Path, pool: _Pool) -> tuple[list[int], dict[str, Any]]:
    """What the gate says of each cell, as a column; and in sum, with the cells that only the baseline has.

    None is said of a cell that did not run and was never accepted.
    """
    verdicts, missing, line, notices = (_against_report if path.is_file() else _against_folder)(sources, path)
    column = []
    for number, source in enumerate(sources):
        for name in source.names:
            one = verdicts.get((number, name))
            column.append(pool.index(None if one is None else [one.status, one.reason, one.replay]))
    told = [[one.status, one.cell, one.device, one.reason, one.replay] for one in missing]
    return column, {"path": str(path), "line": line, "notices": notices, "missing": told}


def _against_folder(sources: Sequence[_Source], path: Path) -> _Found:
    """The verdicts of `verify gate`; for a cell in several reports of a device, the worst."""
    from verify.reports import baseline, gate
    from verify.reports.gate_page import verdict_line

    outcome = gate.gate([source.path for source in sources], path)
    told = {(one.cell, one.device, one.profile): one for one in outcome.verdicts}
    verdicts: dict[tuple[int, str], Verdict] = {}
    here = set()
    for number, source in enumerate(sources):
        for name, backend in zip(source.names, source.backends, strict=True):
            device = baseline.device_of(source.fingerprint(backend), backend)
            place = (name, str(device or backend), source.report.profile)
            here.add(place)
            if place in told:
                verdicts[number, name] = told[place]
    missing = [one for place, one in told.items() if place not in here]
    return verdicts, missing, verdict_line(outcome), outcome.notices


def _against_report(sources: Sequence[_Source], path: Path) -> _Found:
    """The same differences from another report, cells aligned by backend; no budget applies."""
    from verify.reports import baseline, gate

    old: dict[str, dict[Any, Accepted]] = {}

    def take(cell: Cell) -> None:
        if cell.error is not None and cell.status not in (*gate.ALWAYS_FAIL, "not-run"):
            old.setdefault(cell.backend, {})[baseline.key_of(cell)] = baseline.accepted(cell, cell.backend)

    head, _ = store.scan(path, take)
    prints = {name: facts for name, facts in head.environment.items() if isinstance(facts, dict)}
    environments = {name: prints.get(name, {}) for name in old}
    verdicts: dict[tuple[int, str], Verdict] = {}
    missing: dict[tuple[str, Any], Verdict] = {}
    runs = [gate.read(source.path) for source in sources]
    here = {place for run in runs for place in run.cells}
    for number, run in enumerate(runs):
        for backend in dict.fromkeys(backend for backend, _ in run.cells):
            device, accepted = run.device(backend), old.get(backend, {})
            named = device or baseline.Device(backend, "", "")
            base = baseline.Baseline(named, run.profile, environments, accepted)
            context = gate.Context(device, backend, run.profile, base, (), f"no result in {path.name}")
            for (where, key), cell in run.cells.items():
                if where == backend and (cell.status != "not-run" or key in accepted):
                    verdicts[number, cell.name] = context.verdict(cell, run)
            for key, one in accepted.items():
                if (backend, key) not in here:
                    missing[backend, key] = context.missing(one, runs)
    counts = gate.Outcome((*verdicts.values(), *missing.values()), ()).counts
    line = ", ".join(f"{count} {status}" for status, count in counts.items())
    return verdicts, list(missing.values()), line, ()
