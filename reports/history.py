"""A folder of reports over time, in DuckDB: which cells changed, by which versions, and the first bad report.

Kinds of changes are those of `verify.reports.compare`; `verify.reports.history_page` prints them. The view `cells`
that queries see is described in docs/history.md. DuckDB is optional, and imported on use.
"""

from __future__ import annotations

import contextlib
import datetime
import fnmatch
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from verify.facts.kernel import NothingToCompare, UsageError, suggest
from verify.reports import reasons, store
from verify.reports.baseline import Device, device_of
from verify.reports.compare import Aligned, Facts, aligned, facts_of, order, place_json, row_json
from verify.reports.figures import fails, maximum
from verify.reports.text import scalars_text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from verify.reports.schema import Cell, Region, Report

#: The most rows that a query may return, and the memory that it may take.
MAX_ROWS = 100_000
MEMORY = "1GB"
#: The largest values of the database's integer types; a report's may be larger. Steps between float64 numbers reach
#: 2^64.
INTEGERS = {"BIGINT": ("int64", (1 << 63) - 1), "UBIGINT": ("uint64", (1 << 64) - 1)}


@dataclass(frozen=True)
class Recorded:
    """One report of the folder. `created`: UTC seconds, None where it does not say. `lacking`: what there is not of the
    run."""

    file: str
    created: int | None
    environment: Mapping[str, Any]
    lacking: tuple[str, ...] = ()

    @property
    def date(self) -> str:
        """The day, or an empty string."""
        return "" if self.created is None else f"{_utc(self.created):%Y-%m-%d}"

    def fingerprint(self, backend: str) -> Mapping[str, Any]:
        facts = self.environment.get(backend)
        return facts if isinstance(facts, dict) else {}

    def device(self, backend: str) -> Device:
        return device_of(self.fingerprint(backend), backend) or Device(backend, "", "")


@dataclass(frozen=True)
class Archive:
    """The reports of a folder by date, and why its other files were left out.

    facts, owners  by row of the database: a cell, and which of `reports` it is from
    """

    connection: DuckDBPyConnection
    reports: tuple[Recorded, ...]
    facts: tuple[Facts, ...]
    owners: tuple[int, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """All changes between two reports on one device; `environment` holds the facts that differ: name, before, after.

    Each change is a row of two cells: of the report `after`, and of `before`, the last that ran it.
    """

    device: Device
    before: Recorded
    after: Recorded
    environment: tuple[tuple[str, str, str], ...]
    changes: tuple[Aligned, ...]


@dataclass(frozen=True)
class Failing:
    """A cell that fails in the last report that ran it, and the first report since which it fails."""

    device: Device
    facts: Facts
    first_bad: Recorded
    last_good: Recorded | None


@dataclass(frozen=True)
class History:
    """`series`: cells followed through at least two of `reports` reports. deviating: cells that deviate in the last
    report that ran them. lacking: reports that are not of a whole run, and what they lack."""

    reports: int
    series: int
    steps: tuple[Step, ...]
    failing: tuple[Failing, ...]
    deviating: int = 0
    lacking: tuple[tuple[str, str], ...] = ()


# The database


class _Field(NamedTuple):
    """A column of the database: its type, and its value in a cell."""

    type: str
    of: Callable[[Cell, Facts], Any]


def _from_cell(name: str) -> _Field:
    return _Field("VARCHAR", lambda cell, facts: getattr(cell, name))


def _from_error(type_: str, name: str) -> _Field:
    return _Field(type_, lambda cell, facts: None if cell.error is None else getattr(cell.error, name))


def _judged(facts: Facts) -> str:
    """What makes a change of regions: status, maxima and mismatches of each."""
    return json.dumps(
        [[one.name, one.status, one.value, one.metric, one.max_ulp, one.mismatches] for one in facts.parts]
    )


def _formula(cell: Cell, facts: Facts) -> str:
    return "" if facts.formula is None else " / ".join(facts.formula) or "none"


#: What the database keeps of a cell. Strings are never null here; the view makes nulls of empty ones.
_FIELDS: dict[str, _Field] = {
    **{name: _from_cell(name) for name in ("kernel", "output", "lowering", "spelling", "dtype", "backend")},
    "scalars": _Field("VARCHAR", lambda cell, facts: scalars_text(cell.scalars)),
    "domain": _Field("VARCHAR", lambda cell, facts: cell.domain.kind),
    "size": _Field("BIGINT", lambda cell, facts: cell.domain.size),
    "seed": _Field("VARCHAR", lambda cell, facts: str(cell.domain.seed)),
    "inputs_digest": _Field("VARCHAR", lambda cell, facts: cell.domain.digest),
    "inputs": _Field("BIGINT", lambda cell, facts: cell.inputs),
    "status": _from_cell("status"),
    "reason": _from_cell("reason"),
    "reason_kind": _from_cell("reason_kind"),
    "ledger": _Field("VARCHAR", lambda cell, facts: " ".join(cell.ledger)),
    "allowance": _from_cell("allowance"),
    "failed": _Field("BOOLEAN", lambda cell, facts: fails(cell)),
    "regions": _Field("VARCHAR", lambda cell, facts: _judged(facts)),
    "error": _Field("DOUBLE", lambda cell, facts: facts.value),
    "metric": _Field("VARCHAR", lambda cell, facts: "" if facts.value is None else facts.metric),
    "truth": _Field("VARCHAR", lambda cell, facts: "" if facts.value is None else facts.truth),
    "bound": _Field("DOUBLE", lambda cell, facts: cell.bound and cell.bound.value),
    "bound_source": _Field("VARCHAR", lambda cell, facts: cell.bound.source if cell.bound else ""),
    **{name: _from_error("DOUBLE", name) for name in ("max_ulp", "max_scaled_ulp", "max_share")},
    "max_int_ulp": _from_error("UBIGINT", "max_int_ulp"),
    **{name: _from_error("DOUBLE", name) for name in ("mean_ulp", "bias_ulp")},
    **{
        name: _from_error("BIGINT", name)
        for name in ("misrounded", "flushed", "nan_mismatch", "inf_mismatch", "zero_sign", "undecided")
    },
    "formula": _Field("VARCHAR", _formula),
    "digest": _from_cell("digest"),
    "kernel_s": _Field("DOUBLE", lambda cell, facts: cell.timing.kernel_s),
    "check_s": _Field("DOUBLE", lambda cell, facts: cell.timing.check_s),
}

#: What the database keeps of a region of a cell.
_REGION_FIELDS: dict[str, tuple[str, Callable[[str, Region], Any]]] = {
    "region": ("VARCHAR", lambda name, one: name),
    "inputs": ("BIGINT", lambda name, one: one.inputs),
    "status": ("VARCHAR", lambda name, one: one.status),
    "reason": ("VARCHAR", lambda name, one: one.reason.text),
    "reason_kind": ("VARCHAR", lambda name, one: one.reason.kind),
    "ledger": ("VARCHAR", lambda name, one: " ".join(one.reason.ledger)),
    "error": ("DOUBLE", lambda name, one: maximum(one.error, one.bound)[0]),
    "metric": ("VARCHAR", lambda name, one: maximum(one.error, one.bound)[1]),
    "bound": ("DOUBLE", lambda name, one: one.bound and one.bound.value),
    **{
        name: ("DOUBLE", lambda _, one, name=name: getattr(one.error, name))  # type: ignore[misc]
        for name in ("max_ulp", "max_scaled_ulp", "max_share", "mean_ulp", "bias_ulp")
    },
    "max_int_ulp": ("UBIGINT", lambda name, one: one.error.max_int_ulp),
    **{
        name: ("BIGINT", lambda _, one, name=name: getattr(one.error, name))  # type: ignore[misc]
        for name in ("misrounded", "worse", "flushed", "nan_mismatch", "inf_mismatch", "zero_sign", "undecided")
    },
    "unjudged": ("BIGINT", lambda name, one: one.unjudged),
}

_REPORT = {"report": "VARCHAR", "created": "BIGINT", "profile": "VARCHAR", "command": "VARCHAR"}
#: Facts of a backend's fingerprint that are columns; `environment` holds all of them as JSON.
_FINGERPRINT = ("chip", "capability", "torch", "triton", "driver", "python", "os")

#: The one view; described in docs/history.md, column by column.
VIEW = """
CREATE VIEW cells AS
SELECT
    r.run, r.report, make_timestamp(r.created * 1000000) AS created, r.profile, r.command,
    c.backend, nullif(f.chip, '') AS chip, nullif(f.capability, '') AS capability, nullif(f.torch, '') AS torch,
    nullif(f.triton, '') AS triton, nullif(f.driver, '') AS driver, nullif(f.python, '') AS python,
    nullif(f.os, '') AS os, f.environment,
    c.kernel, c.output, c.lowering, c.spelling, c.dtype, c.scalars,
    c.domain, c.size, c.seed, nullif(c.inputs_digest, '') AS inputs_digest, c.inputs,
    c.status, c.reason, nullif(c.reason_kind, '') AS reason_kind, nullif(c.ledger, '') AS ledger,
    nullif(c.allowance, '') AS allowance, c.failed, c.status = 'deviates' AS deviates,
    c.error, nullif(c.metric, '') AS metric,
    nullif(c.truth, '') AS truth, c.bound, nullif(c.bound_source, '') AS bound_source, c.error / c.bound AS share,
    c.max_ulp, c.max_scaled_ulp, c.max_share, c.max_int_ulp, c.mean_ulp, c.bias_ulp, c.misrounded,
    c.flushed, c.nan_mismatch, c.inf_mismatch, c.zero_sign, c.undecided,
    nullif(c.formula, '') AS formula, nullif(c.digest, '') AS digest, c.kernel_s, c.check_s,
    c.row, f.device, c.regions
FROM measured c JOIN reports r USING (id) JOIN fingerprints f USING (id, backend)
"""

#: One row a region of each cell, with what names the cell: described in docs/history.md too.
REGION_VIEW = f"""
CREATE VIEW regions AS
SELECT
    c.run, c.report, c.created, c.profile, c.backend, c.chip, c.capability, c.torch, c.triton,
    c.kernel, c.output, c.lowering, c.spelling, c.dtype, c.scalars,
    {
    ", ".join(
        f"nullif(g.{name}, '') AS {name}" if name in ("reason", "reason_kind", "ledger") else f"g.{name}"
        for name in _REGION_FIELDS
    )
},
    coalesce(g.max_share, g.error / g.bound) AS share, g.row, c.device
FROM parts g JOIN cells c USING (row)
"""

#: A series: one cell on one device, profile and seed, by time. Cells that did not run are not part of it.
_KEY = "device, kernel, output, lowering, spelling, dtype, scalars, profile, seed"
_NOW = """(status, error, metric, truth, max_ulp, formula, digest, inputs_digest,
    nan_mismatch, inf_mismatch, zero_sign, flushed, undecided, regions)"""
_SERIES = f"""
WITH series AS (
    SELECT *, lag(row) OVER one AS previous, lag({_NOW}) OVER one AS was, {_NOW} AS now, row_number() OVER one AS place
    FROM cells WHERE status <> 'not-run' AND device IN (SELECT unnest(?)) AND kernel IN (SELECT unnest(?))
    WINDOW one AS (PARTITION BY {_KEY} ORDER BY run)
)
"""
_FOLLOWED = f"{_SERIES} SELECT count(*) FROM series WHERE place = 2"
_DEVIATING = f"""{_SERIES}
SELECT count(*) FROM (SELECT arg_max(status, place) AS last FROM series GROUP BY {_KEY}) WHERE last = 'deviates'
"""
_CHANGED = f"""{_SERIES}
SELECT previous, row FROM series WHERE previous IS NOT NULL AND was IS DISTINCT FROM now ORDER BY run, row
"""
#: The last row of each series that ends in failures, the first of these and the last good one before them.
_FAILING = f"""{_SERIES},
ends AS (SELECT *, coalesce(max(CASE WHEN NOT failed THEN place END) OVER (PARTITION BY {_KEY}), 0) AS good FROM series)
SELECT arg_max(row, place), arg_min(row, place), any_value(before) FROM (
    SELECT *, max(CASE WHEN place = good THEN row END) OVER (PARTITION BY {_KEY}) AS before FROM ends
) WHERE place > good GROUP BY {_KEY} ORDER BY 1
"""


def read(folder: str | Path) -> Archive:
    """Every report of `folder` and of the folders in it (*.json, *.json.xz), in a database in memory that sees no file.

    A file that is not a report is skipped, as is a link that leads out of the folder; `skipped` says why. Raises
    UsageError where DuckDB is missing, where there is no such folder or every file of it is skipped,
    NothingToCompare where it holds none.
    """
    connection = _connect()
    root = Path(folder)
    if not root.is_dir():
        raise UsageError(f"{str(root)!r} is not a folder; expected a folder of reports written by `verify run`")
    read_: list[Recorded] = []
    facts: list[Facts] = []
    owners: list[int] = []
    skipped: list[str] = []
    for path, why in _files(root):
        try:
            if why:
                raise UsageError(f"{str(path)!r}: {why}")
            head, taken = store.scan(path, _take)
            name = path.relative_to(root).as_posix().encode(errors="backslashreplace").decode()
            one = _insert(connection, len(read_), name, head, taken, len(facts))
        except UsageError as error:
            skipped.append(str(error))
        else:
            facts += (cell for cell, *_ in taken)
            owners += [len(read_)] * len(taken)
            read_.append(one)
    if not read_ and skipped:
        more = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
        raise UsageError(f"no file in {str(root)!r} can be read: {skipped[0]}{more}")
    if not read_:
        raise NothingToCompare(f"no *.json or *.json.xz file in {str(root)!r}")
    # a report without a date stands before all that have one
    ids = sorted(range(len(read_)), key=lambda k: (-1 if (at := read_[k].created) is None else at, read_[k].file))
    place = {id_: index for index, id_ in enumerate(ids)}
    connection.executemany(
        "UPDATE reports SET run = ? WHERE id = ?", [(index + 1, id_) for id_, index in place.items()]
    )
    connection.execute("SET lock_configuration = true")
    return Archive(
        connection,
        tuple(read_[id_] for id_ in ids),
        tuple(facts),
        tuple(place[id_] for id_ in owners),
        tuple(skipped),
    )


def _connect() -> DuckDBPyConnection:
    try:
        import duckdb
    except ImportError:
        raise UsageError("verify history needs DuckDB; install it with: pip install 'ulproof[history]'") from None
    config: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",  # or a query could read Python's variables
        "temp_directory": "",
        "memory_limit": MEMORY,
    }
    connection = duckdb.connect(":memory:", config=config)
    connection.execute(f"CREATE TABLE reports (id BIGINT, run BIGINT, {_declared(_REPORT)})")
    prints = dict.fromkeys((*_FINGERPRINT, "environment", "device"), "VARCHAR")
    connection.execute(f"CREATE TABLE fingerprints (id BIGINT, backend VARCHAR, {_declared(prints)})")
    fields = {name: one.type for name, one in _FIELDS.items()}
    connection.execute(f"CREATE TABLE measured (id BIGINT, row BIGINT, {_declared(fields)})")
    parts = {name: declared for name, (declared, _) in _REGION_FIELDS.items()}
    connection.execute(f"CREATE TABLE parts (row BIGINT, {_declared(parts)})")
    connection.execute(VIEW)
    connection.execute(REGION_VIEW)
    return connection


def _declared(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in columns.items())


def _files(root: Path) -> Iterator[tuple[Path, str]]:
    """The *.json and *.json.xz files under `root`, each once, and why one must not be read."""
    inside, seen = root.resolve(), set()
    for parent, folders, names in os.walk(root, followlinks=False):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if not name.lower().endswith((".json", ".json.xz")):
                continue
            try:
                target = path.resolve()
            except (OSError, RuntimeError):
                yield path, "it is a link that leads nowhere"
                continue
            if not target.is_relative_to(inside):
                yield path, "it is a link that leads out of the folder"
            elif not target.is_file():
                yield path, "it is no file"
            elif target not in seen:
                seen.add(target)
                yield path, ""


class _Taken(NamedTuple):
    """A cell as the database takes it: facts, the values of _FIELDS, and for each region those of _REGION_FIELDS."""

    facts: Facts
    values: tuple[Any, ...]
    regions: tuple[tuple[Any, ...], ...]


def _take(cell: Cell) -> _Taken:
    facts = facts_of(cell)
    regions = (tuple(of(name, region) for _, of in _REGION_FIELDS.values()) for name, region in cell.regions.items())
    return _Taken(facts, tuple(one.of(cell, facts) for one in _FIELDS.values()), tuple(regions))


def _insert(
    connection: DuckDBPyConnection,
    id_: int,
    name: str,
    head: Report,
    taken: Sequence[_Taken],
    first: int,
) -> Recorded:
    """Put one report into the database, its cells as rows from `first`. Raises UsageError for a huge count."""
    import numpy as np

    types = {field: one.type for field, one in _FIELDS.items()}
    columns = _columns(name, types, [one.values for one in taken])
    region_types = {field: declared for field, (declared, _) in _REGION_FIELDS.items()}
    rows = [(first + index, values) for index, one in enumerate(taken) for values in one.regions]
    regions = _columns(name, region_types, [values for _, values in rows])
    created = head.environment.get("created")
    dated = isinstance(created, int) and not isinstance(created, bool) and 0 <= created < 1 << 36
    recorded = Recorded(name, int(str(created)) if dated else None, head.environment, tuple(reasons.lacking(head)))
    connection.execute(
        "INSERT INTO reports VALUES (?, 0, ?, ?, ?, ?)", [id_, name, recorded.created, head.profile, head.command]
    )
    for backend in dict.fromkeys(one.facts.place.backend for one in taken):
        facts = recorded.fingerprint(backend)
        texts = [str(facts.get(fact) or "") for fact in _FINGERPRINT]
        texts += [json.dumps(facts, sort_keys=True), str(recorded.device(backend))]
        connection.execute(
            f"INSERT INTO fingerprints VALUES ({', '.join('?' * (len(texts) + 2))})", [id_, backend, *texts]
        )
    if columns:
        connection.register("incoming", {"row": np.arange(first, first + len(taken)), **columns})
        connection.execute(f"INSERT INTO measured SELECT {id_}, row, {', '.join(_FIELDS)} FROM incoming")
        connection.unregister("incoming")
    if regions:
        connection.register("incoming", {"row": np.array([row for row, _ in rows], dtype="int64"), **regions})
        connection.execute(f"INSERT INTO parts SELECT row, {', '.join(_REGION_FIELDS)} FROM incoming")
        connection.unregister("incoming")
    return recorded


def _columns(name: str, types: Mapping[str, str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Arrays of the rows' values by field; none without rows. Raises UsageError for a count too large for its type."""
    import numpy as np

    columns: dict[str, Any] = {}
    for (field, declared), values in zip(types.items(), zip(*rows, strict=True), strict=False):
        if declared == "VARCHAR":
            columns[field] = np.array(values, dtype=object)
            continue
        dtype, largest = INTEGERS.get(declared, ("bool" if declared == "BOOLEAN" else "float64", math.inf))
        if any(value is not None and abs(value) > largest for value in values):
            raise UsageError(f"{name!r} holds a count above {largest} in {field!r}")
        missing = [value is None for value in values]
        numbers = [0 if value is None else value for value in values]
        columns[field] = np.ma.masked_array(np.array(numbers, dtype=dtype), missing)
    return columns


# What changed


def changes(archive: Archive, kernels: Sequence[str] = (), devices: Sequence[str] = ()) -> History:
    """Every change between a report and the one before it that ran the same cell on the same device and inputs.

    kernels  shell patterns; empty: all
    devices  parts of a backend's, chip's or capability's name, in any case; empty: all

    Raises UsageError for a pattern that fits nothing in the folder.
    """
    chosen = [_chosen(archive, "device", devices), _chosen(archive, "kernel", kernels)]
    run = archive.connection.execute
    found: dict[tuple[int, int, str], list[Aligned]] = {}
    for earlier, later in run(_CHANGED, chosen).fetchall():
        cells = archive.facts[earlier], archive.facts[later]
        place = cells[1].place
        row = aligned(place._replace(backend=""), cells)
        if row.kind != "equal":
            key = (archive.owners[later], archive.owners[earlier], place.backend)
            found.setdefault(key, []).append(row)
    steps = []
    for (later, earlier, backend), rows in sorted(found.items()):
        old, new = archive.reports[earlier], archive.reports[later]
        differing = _differing(old, new, backend)
        steps.append(Step(new.device(backend), old, new, differing, tuple(sorted(rows, key=order))))
    failing = []
    for last, bad, good in run(_FAILING, chosen).fetchall():
        facts, first = archive.facts[last], archive.reports[archive.owners[bad]]
        before_it = None if good is None else archive.reports[archive.owners[good]]
        failing.append(Failing(first.device(facts.place.backend), facts, first, before_it))
    failing.sort(key=lambda one: -one.facts.severity)
    [(series,)] = run(_FOLLOWED, chosen).fetchall()
    [(deviating,)] = run(_DEVIATING, chosen).fetchall()
    lacking = tuple((one.file, text) for one in archive.reports for text in one.lacking)
    return History(len(archive.reports), series, tuple(steps), tuple(failing), deviating, lacking)


def _chosen(archive: Archive, what: str, patterns: Sequence[str]) -> list[str]:
    known = [name for (name,) in archive.connection.execute(f"SELECT DISTINCT {what} FROM cells ORDER BY 1").fetchall()]
    if not patterns:
        return known
    found: dict[str, None] = {}
    for pattern in patterns:
        fits = (
            [name for name in known if pattern.lower() in name.lower()]
            if what == "device"
            else fnmatch.filter(known, pattern)
        )
        if not fits:
            raise UsageError(suggest(f"{what} in these reports", pattern, known))
        found |= dict.fromkeys(fits)
    return list(found)


def sources(archive: Archive, shown: int = 4) -> list[str]:
    """The devices, profiles and seeds of the folder's cells."""
    found = archive.connection.execute("SELECT DISTINCT device, profile, seed FROM cells ORDER BY ALL").fetchall()
    told = [f"{device}, profile {profile}, seed {seed}" for device, profile, seed in found]
    return told if len(told) <= shown else [*told[:shown], f"{len(told) - shown} more"]


def _differing(old: Recorded, new: Recorded, backend: str) -> tuple[tuple[str, str, str], ...]:
    a, b = old.fingerprint(backend), new.fingerprint(backend)
    return tuple(
        (name, _text(a.get(name)), _text(b.get(name))) for name in sorted({*a, *b}) if a.get(name) != b.get(name)
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# Queries


def query(archive: Archive, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one SELECT over the views `cells` and `regions`. Raises UsageError for anything else,
    for DuckDB's errors, and for more than MAX_ROWS rows."""
    import duckdb

    run = archive.connection
    try:
        statements = run.extract_statements(sql)
        if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
            raise UsageError(
                "--sql takes one SELECT over the views `cells` and `regions`, such as: "
                "SELECT kernel, max(error) FROM cells GROUP BY 1"
            )
        run.execute("BEGIN TRANSACTION READ ONLY")  # a SELECT may begin with WITH x AS (INSERT ...)
        rows = run.execute(statements[0]).fetchmany(MAX_ROWS + 1)
        names = [name for name, *_ in run.description or ()]
    except duckdb.Error as error:
        raise UsageError(f"--sql: {str(error).splitlines()[0]}") from None
    finally:
        with contextlib.suppress(duckdb.Error):  # none was begun
            run.execute("ROLLBACK")
    if len(rows) > MAX_ROWS:
        raise UsageError(f"--sql: more than {MAX_ROWS} rows; add a LIMIT")
    return names, rows


def _utc(seconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


# As JSON


def as_json(archive: Archive, found: History) -> dict[str, Any]:
    """The history as plain data."""
    return {
        "schema": 1,
        "reports": [{"file": one.file, "created": one.created} for one in archive.reports],
        "series": found.series,
        "steps": [
            {
                "device": str(step.device),
                "before": step.before.file,
                "after": step.after.file,
                "environment": {name: [before, after] for name, before, after in step.environment},
                "cells": [row_json(row) for row in step.changes],
            }
            for step in found.steps
        ],
        "failing": [
            {
                **place_json(one.facts.place),
                "device": str(one.device),
                "status": one.facts.status,
                "first_bad": one.first_bad.file,
                "last_good": None if one.last_good is None else one.last_good.file,
            }
            for one in found.failing
        ],
        "deviating": found.deviating,
        "skipped": list(archive.skipped),
    }


def answer_json(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """A query's answer; what JSON has no type for is its text."""
    return {"columns": list(names), "rows": [[_plain(value) for value in row] for row in rows]}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
