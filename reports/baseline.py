"""Baselines: what was accepted of a device's reports, one cell a line; budgets: errors allowed beyond a bound.

    DIR/<device>/<profile>.json     the accepted results of one profile (quick, default, exhaustive)
    DIR/<device>/budget.toml        allowances with their reasons, written by `verify accept --allow` or by hand

What a difference means is decided in `verify.reports.gate`. This module imports pydantic.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import json
import os
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic import ConfigDict, Field, NonNegativeFloat, TypeAdapter, model_validator

from verify.facts.kernel import PROFILES, UsageError
from verify.judge.status import ALLOWABLE
from verify.numbers.ulp import FAILING
from verify.reports import store
from verify.reports.figures import maximum, measured
from verify.reports.schema import (
    Cell,
    Error,
    Free,
    Metric,
    NonNegativeInt,
    Record,
    Region,
    RegionName,
    Status,
    Strings,
    Truth,
    Worst,
)
from verify.reports.text import ScalarsKey, scalars_key, scalars_text

SCHEMA = 2
#: Versions that are read. Of version 1 every cell is stale: it has no regions.
READ = (1, 2)

#: Metrics in the order in which they are printed.
MAXIMA = ("ulp", "int_ulp", "scaled_ulp", "share")
#: Of schema 1, where intermediates leave the normal range: what underflow does not explain, in the bound's metric.
RANGE = {"ulp": "range_excess_ulp", "int_ulp": "range_excess_ulp", "scaled_ulp": "range_excess_scaled_ulp"}
#: Counts of bad elements, of which more is worse. `faithful` results are among the `misrounded`.
COUNTS = ("nan_mismatch", "inf_mismatch", "zero_sign", "flushed", "worse", "misrounded")
#: Inputs of a worst case longer than this are not kept: composite kernels depend on whole rows.
LONGEST_INPUTS = 400
MAX_SLUG = 100

Key = tuple[str, str, str, str, ScalarsKey, str]


# Devices


@dataclass(frozen=True)
class Device:
    """What a baseline is for: the parts of a fingerprint that name the hardware and the code chosen for it."""

    backend: str
    chip: str
    capability: str

    @property
    def slug(self) -> str:
        """A folder's name: lower case letters, digits, '-' and '_' only, whatever the fingerprint holds."""
        text = re.sub(r"\((r|tm|c)\)", " ", f"{self.backend} {self.chip} {self.capability}".lower())
        if any(letter.isalpha() and not letter.isascii() for letter in text):  # what is left tells no chips apart
            text = f"{text[: MAX_SLUG // 2]} {hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"
        return re.sub(r"[^a-z0-9_]+", "-", text).strip("-")[:MAX_SLUG]

    def __str__(self) -> str:
        return " ".join(filter(None, (self.backend, self.chip, self.capability)))


def device_of(fingerprint: object, backend: str) -> Device | None:
    """The device that a report's `environment[backend]` describes; None where it names no chip."""
    if not isinstance(fingerprint, dict) or not isinstance(fingerprint.get("chip"), str):
        return None
    return Device(backend, fingerprint["chip"], str(fingerprint.get("capability") or ""))


def fingerprint_id(fingerprint: Mapping[str, Any]) -> str:
    """What a line of a baseline calls its environment: 8 hex digits of SHA-256 over its canonical JSON."""
    text = json.dumps(fingerprint, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def same_version(one: object, other: object) -> bool:
    """Whether two versions of a package may be one build: '2.13.0+cu130' is what PyPI's metadata call '2.13.0'."""
    (release, _, build), (other_release, _, other_build) = str(one).partition("+"), str(other).partition("+")
    return release == other_release and (build == other_build or not build or not other_build)


# Accepted results


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRegion:
    """What is kept of a region of a cell: as `Accepted` has it of the whole. The worst element is the first of it.

    unjudged: elements of which nothing is stated; resolution: the median relative change that would be seen. Both None
    in files of versions that did not record them, and resolution where it is not asked for.
    """

    inputs: NonNegativeInt
    status: Status = "passed"
    error: NonNegativeFloat
    metric: Metric = "ulp"
    bound: NonNegativeFloat | None = None
    ulp: NonNegativeFloat
    int_ulp: NonNegativeInt = 0
    scaled_ulp: NonNegativeFloat | None = None
    share: NonNegativeFloat | None = None
    mean_ulp: NonNegativeFloat = 0.0
    bias_ulp: float = 0.0
    nan_mismatch: NonNegativeInt = 0
    inf_mismatch: NonNegativeInt = 0
    zero_sign: NonNegativeInt = 0
    flushed: NonNegativeInt = 0
    worse: NonNegativeInt = 0
    misrounded: NonNegativeInt = 0
    unjudged: NonNegativeInt | None = None
    resolution: NonNegativeFloat | None = None
    worst_index: NonNegativeInt | None = None
    worst_inputs: list[str] = field(default_factory=list)
    worst_output: str = ""

    __pydantic_config__: ClassVar[ConfigDict] = Record.model_config

    @property
    def exceeds(self) -> bool:
        """Whether an allowance has to name the maximum: an element is beyond what it may be, or no class says why the
        region fails. A share knows of underflow terms, the bound alone does not."""
        if self.bound is not None and (self.error > self.bound if self.share is None else self.share > 1):
            return True
        return self.status == "exceeds-bound" and not any(getattr(self, name) for name in FAILING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What is kept of a cell. A field that has its default is left out of the file.

    status, ledger                      of the report, and the entries that cover what exceeds
    domain, size, seed, inputs_digest   the inputs: results for others are not compared
    regions                             what is compared, by region; none where the report was of schema 1
    error, metric, truth, bound         the maximum on which the kernel sets its bound, and that bound
    ulp, int_ulp, scaled_ulp, share     the maxima in every metric
    range_ulp, range_excess_*           of schema 1: the maximum outside the normal range, and what underflow does not
                                        explain
    nan_mismatch ... misrounded         counts of bad elements among `inputs`
    violations                          elements that break a property, by its name, where there are any
    properties                          names of those that were judged; null in files of versions that kept none
    calls, refused, different           how many other calls were made or refused, null as above; names of the latter,
                                        and of those whose bits are others, null in files of versions that kept none
    bits                                digests of what those of an elementwise function gave
    errors                              the largest error of each that has a problem of its own
    binade_mean_ulp                     the mean of the worst binade; null where the report has none
    exact                               where the judged maxima are against rounded scalars: those against exact ones
    formula                             the candidates that reproduce every bit; null where there is no candidate
    digest                              of all output bits
    worst_index, _inputs, _output       the worst element: where it is in the domain, and hex floats
    ftz                                 whether the lowering is expected to flush; null in files that kept none
    environment                         key of a fingerprint in the file's head; empty: the one most cells have
    source                              digest of the files that define the kernel
    repeats, distinct                   launches of a lowering that is not deterministic, and different results seen
    """

    kernel: str
    lowering: str
    spelling: str
    dtype: str
    scalars: dict[str, float] = field(default_factory=dict)
    output: str = ""
    domain: str
    size: NonNegativeInt
    seed: int
    inputs_digest: str
    inputs: NonNegativeInt
    status: Status = "passed"
    ledger: Strings = field(default_factory=list)
    regions: dict[RegionName, AcceptedRegion] = field(default_factory=dict)
    error: NonNegativeFloat
    metric: Metric = "ulp"
    truth: Truth = "exact"
    bound: NonNegativeFloat | None = None
    ulp: NonNegativeFloat
    int_ulp: NonNegativeInt
    scaled_ulp: NonNegativeFloat | None = None
    share: NonNegativeFloat | None = None
    range_ulp: NonNegativeFloat = 0.0
    range_excess_ulp: NonNegativeFloat = 0.0
    range_excess_scaled_ulp: NonNegativeFloat = 0.0
    mean_ulp: NonNegativeFloat
    bias_ulp: float
    nan_mismatch: NonNegativeInt = 0
    inf_mismatch: NonNegativeInt = 0
    zero_sign: NonNegativeInt = 0
    flushed: NonNegativeInt = 0
    worse: NonNegativeInt = 0
    misrounded: NonNegativeInt = 0
    violations: dict[str, NonNegativeInt] = field(default_factory=dict)
    properties: list[str] | None = None
    calls: NonNegativeInt | None = None
    refused: list[str] = field(default_factory=list)
    different: list[str] | None = None
    bits: dict[str, str] = field(default_factory=dict)
    errors: dict[str, NonNegativeFloat] = field(default_factory=dict)
    binade_mean_ulp: NonNegativeFloat | None = None
    exact: dict[str, NonNegativeFloat] = field(default_factory=dict)
    formula: list[str] | None = None
    digest: str = ""
    worst_index: NonNegativeInt | None = None
    worst_inputs: list[str] = field(default_factory=list)
    worst_output: str = ""
    flags: Free = field(default_factory=dict)
    ftz: bool | None = None
    environment: str = ""
    source: str = ""
    repeats: NonNegativeInt = 1
    distinct: NonNegativeInt = 1

    __pydantic_config__: ClassVar[ConfigDict] = Record.model_config  # checked where a file is read

    @property
    def key(self) -> Key:
        """As `Cell.key`, without the backend: a baseline is for one device."""
        return (self.kernel, self.lowering, self.spelling, self.dtype, scalars_key(self.scalars), self.output)

    def name(self, backend: str) -> str:
        words = (self.kernel, self.lowering, self.spelling, backend, self.dtype, scalars_text(self.scalars))
        return " ".join(filter(None, (*words, self.output)))


def cell_name(cell: Cell) -> str:
    """'kernel lowering spelling backend dtype name=value... output': what patterns match and messages print."""
    words = (cell.kernel, cell.lowering, cell.spelling, cell.backend, cell.dtype, scalars_text(cell.scalars))
    return " ".join(filter(None, (*words, cell.output)))


def key_of(cell: Cell) -> Key:
    kernel, lowering, spelling, _, dtype, scalars, output = cell.key
    return (kernel, lowering, spelling, dtype, scalars, output)


def accepted(cell: Cell, environment: str = "") -> Accepted:
    """The record of a cell that has an error."""
    judged = cell.judged
    error, metric = measured(cell)
    bound, formula = cell.bound, cell.formula
    return Accepted(
        kernel=cell.kernel,
        lowering=cell.lowering,
        spelling=cell.spelling,
        dtype=cell.dtype,
        scalars=cell.scalars,
        output=cell.output,
        domain=cell.domain.kind,
        size=cell.domain.size,
        seed=cell.domain.seed,
        inputs_digest=cell.domain.digest,
        inputs=cell.inputs,
        status=cell.status,
        ledger=cell.ledger,
        regions={name: _accepted_region(region) for name, region in cell.regions.items()},
        error=error,
        metric=metric,  # type: ignore[arg-type]
        truth=bound.truth if bound else "exact",
        bound=bound.value if bound else None,
        **_of_error(judged),
        range_ulp=judged.range_max_ulp,
        range_excess_ulp=judged.range_excess_ulp,
        range_excess_scaled_ulp=judged.range_excess_scaled_ulp,
        violations={check.name: check.violations for check in cell.properties if check.violations},
        properties=sorted(check.name for check in cell.properties),
        calls=0 if cell.calls is None else cell.calls.made + len(cell.calls.refused),
        refused=sorted(cell.calls.refused) if cell.calls else [],
        different=sorted(cell.calls.different) if cell.calls else [],
        bits=cell.calls.bits if cell.calls else {},
        errors=cell.calls.errors if cell.calls else {},
        binade_mean_ulp=max((one.mean_ulp for one in judged.binades), default=None),
        exact={} if cell.error is None or judged is cell.error else _against_exact(cell.error),
        formula=None if formula is None else [formula.identified] if formula.identified else sorted(formula.survivors),
        digest=cell.digest,
        **_kept(cell.worst),
        flags=cell.flags,
        ftz=cell.ftz,
        environment=environment,
        source=cell.source,
        repeats=cell.repeats,
        distinct=cell.distinct,
    )


def _accepted_region(region: Region) -> AcceptedRegion:
    error, metric = maximum(region.error, region.bound)
    return AcceptedRegion(
        inputs=region.inputs,
        status=region.status,
        error=error,
        metric=metric,  # type: ignore[arg-type]
        bound=region.bound.value if region.bound else None,
        unjudged=region.unjudged,
        resolution=region.resolution.median if region.resolution else None,
        **_of_error(region.error),
        **_kept(region.worst),
    )


def _against_exact(error: Error) -> dict[str, float]:
    """Figures against the truth with exact scalars, where those that are judged are against another one."""
    found = {name: getattr(error, f"max_{name}") for name in MAXIMA}
    found |= {"mean_ulp": error.mean_ulp, "misrounded": float(error.misrounded)}
    return {name: value for name, value in found.items() if value is not None}


def _of_error(error: Error) -> dict[str, Any]:
    """Maxima, means and counts."""
    maxima = {name: getattr(error, f"max_{name}") for name in MAXIMA}
    return {**maxima, **{name: getattr(error, name) for name in ("mean_ulp", "bias_ulp", *COUNTS)}}


def _kept(worst: Sequence[Worst]) -> dict[str, Any]:
    """The first of the worst elements, if any, without inputs that are too long."""
    if not worst:
        return {}
    first = worst[0]
    if length(first) > LONGEST_INPUTS:
        return {"worst_index": first.index}
    return {"worst_index": first.index, "worst_inputs": first.inputs, "worst_output": first.output}


def beyond_range(cell: Accepted) -> bool:
    """Whether the bound fails outside the normal range, underflow taken into account; see `verify.judge.element`."""
    if cell.bound is None or cell.metric not in RANGE:
        return False
    limit = 2 * cell.bound + 0.5 if cell.metric == "int_ulp" else cell.bound
    return bool(getattr(cell, RANGE[cell.metric]) > limit)


def length(worst: Worst) -> int:
    return sum(map(len, worst.inputs))


class Named(Record):
    """The device in a baseline's head."""

    backend: str
    chip: str
    capability: str


class File(Record):
    """A baseline file: version, device, profile, fingerprints by key, the key of the most common one, the cells."""

    baseline: Literal[1, 2]
    device: Named
    profile: str
    environment: str
    environments: dict[str, Free]
    cells: list[Accepted]


@dataclass(frozen=True)
class Baseline:
    """The accepted results of one device under one profile, by cell. environments: fingerprints by the keys that
    `Accepted.environment` holds, the empty one among them. version: of the file that was read."""

    device: Device
    profile: str
    environments: Mapping[str, Mapping[str, Any]]
    cells: Mapping[Key, Accepted]
    version: int = SCHEMA


_ACCEPTED: TypeAdapter[Accepted] = TypeAdapter(Accepted)


def folder_of(root: Path, device: Device) -> Path:
    """The device's folder in `root`. Raises UsageError where it lies elsewhere, through a link."""
    folder = root / device.slug
    if not device.slug or folder.resolve().parent != root.resolve():
        raise UsageError(f"{str(folder)!r} does not lie in {str(root)!r}; expected a plain folder of that name")
    return folder


def path_of(root: Path, device: Device, profile: str) -> Path:
    """Raises UsageError for a profile that is none: it would be part of a path."""
    if profile not in PROFILES:
        raise UsageError(f"a report of profile {profile!r}; expected one of {', '.join(PROFILES)}")
    path = folder_of(root, device) / f"{profile}.json"
    if path.resolve().parent.parent != root.resolve():
        raise UsageError(f"{str(path)!r} is a link out of {str(root)!r}; expected a plain file")
    return path


def folder(name: str | Path) -> Path:
    """The folder of baselines of that name. Raises UsageError for no name, which is not the current folder."""
    if not str(name):
        raise UsageError("the baseline's folder has no name: '' was given; '.' is this folder")
    return Path(name)


def ensure_folder(root: Path) -> None:
    """Raise UsageError unless `root` is a readable folder."""
    try:
        with os.scandir(root) as entries:
            next(entries, None)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the folder of baselines {str(root)!r}: {store.why(error)}; "
            "`verify accept REPORT --baseline DIR` makes one"
        ) from None


def read(root: Path, device: Device, profile: str) -> Baseline | None:
    """The baseline of `device` under `profile` in the folder `root`; None where there is none.

    Raises UsageError for one that is broken, of a newer version, or of another device with the same folder name.
    """
    path = path_of(root, device, profile)
    data = _bytes(path)
    if data is None:
        return None
    try:
        with store.no_collection():
            file = File.model_validate_json(data)
    except pydantic.ValidationError as error:
        raise UsageError(_explain(error, data, path)) from None
    there = Device(file.device.backend, file.device.chip, file.device.capability)
    if there != device:
        raise UsageError(
            f"{str(path)!r} is the baseline of {there}; the report is of {device}: keep them in two folders"
        )
    if file.profile != profile:
        raise UsageError(f"{str(path)!r} holds the profile {file.profile!r}; its name says {profile!r}")
    environments = {key: fingerprint for key, fingerprint in file.environments.items() if key != file.environment}
    if file.environment in file.environments:
        environments[""] = file.environments[file.environment]
    cells: dict[Key, Accepted] = {}
    for index, cell in enumerate(file.cells):
        if cells.setdefault(cell.key, cell) is not cell:
            name = cell.name(device.backend)
            raise UsageError(f"{str(path)!r}: cells[{index}] repeats {name!r}; delete one of the lines")
        if cell.environment not in environments:
            named = cell.environment or file.environment
            raise UsageError(f"{str(path)!r}: cells[{index}] names no environment of the file: {named!r}")
    return Baseline(device, profile, environments, cells, file.baseline)


def write(root: Path, baseline: Baseline) -> Path:
    """Replace the baseline's file as a whole; the cells in the order of their names. Raises UsageError."""
    path = path_of(root, baseline.device, baseline.profile)
    _make_folder(path.parent)
    store.write_text(_lines(baseline), path)
    return path


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {str(folder)!r}: {store.why(error)}") from None


def _lines(baseline: Baseline) -> Iterator[str]:
    """A line each for the device, every fingerprint and every cell, so that a diff names what changed."""
    used = Counter(cell.environment for cell in baseline.cells.values())
    keys = {key: fingerprint_id(baseline.environments[key]) for key in used}
    common = max(sorted(used), key=lambda key: used[key], default="")
    head = {
        "baseline": SCHEMA,
        "device": {name: getattr(baseline.device, name) for name in ("backend", "chip", "capability")},
        "profile": baseline.profile,
        "environment": keys.get(common, ""),
    }
    yield "{" + ",\n".join(f"{_json(name)}:{_json(value)}" for name, value in head.items())
    yield ',\n"environments":{'
    fingerprints = sorted((identity, key) for key, identity in keys.items())
    yield ",".join(f"\n{_json(identity)}:{_json(baseline.environments[key])}" for identity, key in fingerprints)
    yield '},\n"cells":['
    separator = "\n"
    for _, cell in sorted(baseline.cells.items()):
        environment = "" if cell.environment == common else keys[cell.environment]
        if environment != cell.environment:
            cell = replace(cell, environment=environment)
        yield separator + _ACCEPTED.dump_json(cell, exclude_defaults=True).decode()
        separator = ",\n"
    yield "\n]}\n"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def _explain(error: pydantic.ValidationError, data: bytes, path: Path) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        what = first["msg"].removeprefix("Invalid JSON: ")
        told = "restore it, or delete it and accept anew"
        return f"the baseline {str(path)!r} is not a complete JSON file: {what}; {told}"
    raw: Any = json.loads(data)
    version = raw.get("baseline") if isinstance(raw, dict) else None
    known = " or ".join(map(str, READ))
    if not isinstance(version, int) or isinstance(version, bool):
        return f'{str(path)!r} is not a baseline: its "baseline" is {version!r}; expected the number {known}'
    if version not in READ:
        newer = "; upgrade ulproof to read it" if version > SCHEMA else ""
        return f"{str(path)!r} is a baseline of version {version}; this version reads {known}{newer}"
    return f"{str(path)!r} is not a valid baseline: {store.json_path(first['loc'])}: {first['msg']}"


def _bytes(path: Path) -> bytes | None:
    """What the file holds; None where there is none. Raises UsageError."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode) and not path.is_dir():  # of which another one would never end
            raise UsageError(f"{str(path)!r} is no regular file; expected a file of `verify accept`")
        if about.st_size > store.MAX_BYTES:
            most = store.MAX_BYTES >> 20
            raise UsageError(f"{str(path)!r} is larger than {most} MiB; expected a file of `verify accept`")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {store.why(error)}") from None


# Budgets


class Allowance(Record):
    """Errors allowed beyond the bound, for the cells that a pattern covers: see `covers`.

    region                            the one whose elements it is for; every one, each by itself, where it is not given
    status                            unsteady, suspect, unbounded or unjudged: the status that is allowed instead
    ulp, int_ulp, scaled_ulp, share   the largest error, in the metric of the bound
    range_excess_*                    of schema 1: the same outside the normal range, beyond what underflow explains
    nan_mismatch ... flushed          how many elements of each class; none where it is not given
    violations                        how many elements may break properties of the kernel
    exactly                           the pattern is of a cell's whole name, not of its first words
    """

    cells: Annotated[str, Field(min_length=1)]
    reason: Annotated[str, Field(min_length=1)]
    exactly: bool = False
    region: RegionName | Literal[""] = ""
    status: Literal["", "unsteady", "suspect", "unbounded", "unjudged"] = ""
    ulp: NonNegativeFloat | None = None
    int_ulp: NonNegativeFloat | None = None
    scaled_ulp: NonNegativeFloat | None = None
    share: NonNegativeFloat | None = None
    range_excess_ulp: NonNegativeFloat | None = None
    range_excess_scaled_ulp: NonNegativeFloat | None = None
    nan_mismatch: NonNegativeInt = 0
    inf_mismatch: NonNegativeInt = 0
    zero_sign: NonNegativeInt = 0
    flushed: NonNegativeInt = 0
    violations: NonNegativeInt = 0

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        """A status and a count of violations are allowed by themselves, which is all that is compared then."""
        limits = self.model_fields_set - {"cells", "reason", "exactly", "region", "status", "violations"}
        beside = [*(["region"] if self.region else []), *sorted(limits)]
        if self.status and (beside or self.violations):
            others = ", ".join([*beside, *(["violations"] if self.violations else [])])
            raise ValueError(f"an entry with a status has no limits besides; put {others} into another entry")
        if self.violations and self.region:
            raise ValueError("violations are of no region; put them into another entry")
        return self

    def covers(self, name: str) -> bool:
        return fnmatch.fnmatchcase(name, self.cells) if self.exactly else covers(self.cells, name)

    def excuses(self, cell: Accepted, region: str = "") -> bool:
        """Whether the error beyond the bound, and every class that fails a cell, is within what is allowed: of one of
        its regions, or of a cell that has none."""
        if region:
            part = cell.regions[region]
            if self.region not in ("", region) or self.status:
                return False
            if part.exceeds and not _within(part.error, getattr(self, part.metric)):
                return False
            return all(getattr(part, name) <= getattr(self, name) for name in FAILING)
        if self.region or self.status:
            return False
        if cell.bound is not None and cell.error > cell.bound and not _within(cell.error, getattr(self, cell.metric)):
            return False
        if beyond_range(cell):
            name = RANGE[cell.metric]
            if not _within(getattr(cell, name), getattr(self, name)):
                return False
        return all(getattr(cell, name) <= getattr(self, name) for name in FAILING)


def _within(value: float, limit: float | None) -> bool:
    return limit is not None and value <= limit


class _Budget(Record):
    allowance: list[Allowance] = Field(default_factory=list)


def covers(pattern: str, name: str) -> bool:
    """Whether the shell pattern matches a cell's name, or its first words: 'pow' covers all cells of pow."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern} *")


def budget_path(root: Path, device: Device) -> Path:
    return folder_of(root, device) / "budget.toml"


def read_budget(root: Path, device: Device) -> tuple[Allowance, ...]:
    """The device's allowances; none without a file. Raises UsageError for a file that is broken."""
    path = budget_path(root, device)
    data = _bytes(path)
    return () if data is None else parse_budget(data, path)


def parse_budget(data: bytes, path: Path) -> tuple[Allowance, ...]:
    try:
        return tuple(_Budget.model_validate(tomllib.loads(data.decode())).allowance)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        problem = f"{store.json_path(first['loc'])}: {first['msg']}"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = str(error)
    raise UsageError(f"{str(path)!r} is not a valid budget: {problem}; see docs/ci.md")


def excused(entries: Iterable[Allowance], cell: Accepted, beside: Sequence[str] = ()) -> list[Allowance]:
    """The entries that allow all that the cell shows beyond its bounds; none where something is left. The entries are
    those that cover the cell's name. beside: statuses that launches and other calls give it."""
    entries = list(entries)
    if not cell.regions and cell.status not in ALLOWABLE:
        return [entry for entry in entries if entry.excuses(cell)][:1]
    found: list[Allowance | None] = []
    for status in _allowable(cell, beside):
        found.append(next((entry for entry in entries if entry.status == status), None))
    for name, region in cell.regions.items():
        if region.status == "exceeds-bound":
            found.append(next((entry for entry in entries if entry.excuses(cell, name)), None))
    if broken := sum(cell.violations.values()):
        found.append(next((entry for entry in entries if entry.violations >= broken), None))
    used = [entry for entry in found if entry is not None]
    return used if len(used) == len(found) else []


def _allowable(cell: Accepted, beside: Sequence[str]) -> list[str]:
    """The statuses of the cell and its regions, and of its calls, that an allowance is for."""
    shown = {cell.status, *beside, *(region.status for region in cell.regions.values())}
    return [status for status in ALLOWABLE if status in shown]


def unexplained(cell: Accepted, beside: Sequence[str] = ()) -> bool:
    """Whether a cell with regions exceeds what it may be by what neither a region nor a property tells."""
    told = cell.violations or any(region.status == "exceeds-bound" for region in cell.regions.values())
    return bool(cell.regions) and ("exceeds-bound" in beside or (cell.status == "exceeds-bound" and not told))


def allowance_texts(cell: Accepted, name: str, reason: str, beside: Sequence[str] = ()) -> list[str]:
    """The entries that allow exactly what this cell shows."""
    entries = [[f"status = {_toml(status)}"] for status in _allowable(cell, beside)]
    if not cell.regions and not entries:
        entries.append(_figures_allowed(cell))
        if beyond_range(cell):
            entries[-1].insert(0, f"{RANGE[cell.metric]} = {float(getattr(cell, RANGE[cell.metric]))!r}")
    for region, part in cell.regions.items():
        if part.status == "exceeds-bound":
            entries.append([f"region = {_toml(region)}", *_figures_allowed(part)])
    if cell.regions and (broken := sum(cell.violations.values())):
        entries.append([f"violations = {broken}"])
    head = ["[[allowance]]", f"cells = {_toml(glob.escape(name))}", "exactly = true", f"reason = {_toml(reason)}"]
    return ["\n".join([*head, *lines, ""]) for lines in entries]


def _figures_allowed(part: Accepted | AcceptedRegion) -> list[str]:
    exceeds = part.exceeds if isinstance(part, AcceptedRegion) else part.bound is not None and part.error > part.bound
    lines = [f"{part.metric} = {float(part.error)!r}"] if exceeds else []
    return lines + [f"{count} = {getattr(part, count)}" for count in FAILING if getattr(part, count)]


def append_allowances(root: Path, device: Device, entries: Iterable[str]) -> None:
    """Add entries to the budget's file, whose text, comments included, stays. Raises UsageError."""
    path = budget_path(root, device)
    head = f"# Errors allowed beyond the bounds on {_comment(device)}: docs/ci.md\n"
    old = _bytes(path)
    text = "\n".join([(head if old is None else old.decode()).rstrip("\n") + "\n", *entries])
    parse_budget(text.encode(), path)
    _make_folder(path.parent)
    store.write_text([text], path)


def _comment(device: Device) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in str(device)).split())


def _toml(text: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's, but DEL has to be one."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
