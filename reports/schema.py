"""The schema of a report, version 2: what a run writes and what compare, gate and render read.

A report of schema 1 is converted where it is read, once (`of_schema_1`): it has no regions, and keeps none of its
names. Reading and writing files is in `verify.reports.store`. This module imports pydantic, so import it only where a
report is read or written: `verify list` and `verify show` must not pay for it.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Strict,
    field_validator,
    model_validator,
)

from verify.judge.regions import REGIONS
from verify.judge.status import REASONS, STATUSES, worst
from verify.numbers.ulp import CLASSES
from verify.reports.text import ScalarsKey, scalars_key

SCHEMA = 2
#: What a report that is read may say it is.
READ = (1, 2)

#: Statuses that a cell may have regardless of its regions: they concern its launches, not its elements.
WHOLE = ("oracle-violation", "error", "unsteady")
#: Reasons for which a cell may be worse than all of its regions, because they do not concern single elements.
WHOLE_REASONS = ("property", "resolution", "bias", "calls")
#: Tolerance for figures computed in floating point.
_SLACK = 1 + 2.0**-40
#: Statuses that no region has.
NOT_OF_REGIONS = ("oracle-violation", "error", "not-run")
#: In a cell of schema 1, the words before the ledger's reason, and the figures in parentheses after it.
KNOWN = "known deviation: "

#: A number of elements, or of steps between two of 64 bits: what is larger is no figure of a report.
NonNegativeInt = Annotated[int, Field(ge=0, lt=1 << 64)]
Metric = Literal["ulp", "int_ulp", "scaled_ulp", "share"]
Truth = Literal["exact", "rounded"]


def _sorted(value: dict[str, Any]) -> dict[str, Any]:
    """Keys in order, so that equal reports have equal bytes."""
    return dict(sorted(value.items()))


def _cumulative(value: dict[str, int]) -> dict[str, int]:
    """Histogram keys '<=0.5', '<=1', ... in numeric order, with counts that only grow; else refused."""
    ordered = {key: value[key] for key in sorted(value, key=_edge)}
    counts = list(ordered.values())
    if any(map(operator.gt, counts, counts[1:])):
        raise ValueError(f"{ordered}; expected cumulative counts")
    return ordered


@functools.lru_cache(256)  # the same dozen keys in every cell
def _edge(key: str) -> float:
    edge = float(key.removeprefix("<=")) if key.startswith("<=") else math.nan
    if not math.isfinite(edge):
        raise ValueError(f"histogram key {key!r}; expected '<=X' with X in ULP")
    return edge


def _one_of(what: str, known: tuple[str, ...]) -> Callable[[str], str]:
    """A validator that accepts the names of one table."""
    names = frozenset(known)

    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"{what} {value!r}; expected one of {', '.join(filter(None, known))}")
        return value

    return check


def _in_order(value: dict[str, Any]) -> dict[str, Any]:
    """Regions in the order of `verify.judge.regions`."""
    return {name: value[name] for name in REGIONS if name in value}


def _canonical(value: Any, path: str = "") -> Any:
    """Free-form JSON with sorted keys. pydantic's JsonValue would let NaN, Infinity and surrogates through."""
    if isinstance(value, dict):
        return {_canonical(key, path): _canonical(value[key], f"{path}.{key}") for key in sorted(value)}
    if isinstance(value, list):
        return [_canonical(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} at {path or 'the top'}; expected a finite number")
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError(f"a surrogate at {path or 'the top'}: {value!r}; expected Unicode text")
    return value


# A producer may hand over tuples; JSON has arrays only. The items stay strict.
AnySequence = Strict(False)
ErrorClass = Annotated[str, AfterValidator(_one_of("error class", CLASSES))]
Status = Annotated[str, AfterValidator(_one_of("status", STATUSES))]
RegionName = Annotated[str, AfterValidator(_one_of("region", REGIONS))]
ReasonKind = Annotated[str, AfterValidator(_one_of("kind of reason", REASONS))]
Strings = Annotated[list[str], AnySequence]
Free = Annotated[dict[str, JsonValue], AfterValidator(_canonical)]
Counts = Annotated[dict[str, NonNegativeInt], AfterValidator(_sorted)]


class Record(BaseModel):
    """Strict and immutable: finite numbers only, no coercion, unknown fields refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Domain(Record):
    """The inputs: `digest` is the hash of their bits in domain order."""

    kind: str
    size: NonNegativeInt
    seed: int
    digest: str


class Binade(Record):
    """The `measured` elements whose first input has `exponent` = floor(log2 |x|)."""

    exponent: int
    measured: NonNegativeInt
    misrounded: NonNegativeInt
    max_ulp: NonNegativeFloat
    mean_ulp: NonNegativeFloat
    bias_ulp: float


class Error(Record):
    """Errors in ULP of the output's format against one truth, and the classes (see `verify.numbers.ulp`).

    Classes count all inputs, and so do maxima and means; `range` of these are in region intermediate.
    `max_scaled_ulp` is null where the kernel has no scale. `max_share` is the largest |y - t| / what the element may
    be; null without a bound. `misrounded` = inputs - correct. `clamped` counts the errors that enter mean and bias as
    2^10 ULP. The histogram is cumulative: '<=2' counts the errors of at most 2 ULP.

    Of schema 1 alone: there elements with an intermediate outside the normal range are in no maximum and no mean but
    `range_max_ulp`, and `range_excess_*` are what underflow does not explain of it.
    """

    max_ulp: NonNegativeFloat
    max_scaled_ulp: NonNegativeFloat | None
    max_share: NonNegativeFloat | None = None
    max_int_ulp: NonNegativeInt
    mean_ulp: NonNegativeFloat
    bias_ulp: float
    correct: NonNegativeInt
    misrounded: NonNegativeInt = 0
    faithful: NonNegativeInt = 0
    worse: NonNegativeInt = 0
    flushed: NonNegativeInt = 0
    nan_mismatch: NonNegativeInt = 0
    inf_mismatch: NonNegativeInt = 0
    zero_sign: NonNegativeInt = 0
    range: NonNegativeInt = 0
    range_max_ulp: NonNegativeFloat = 0.0
    range_excess_ulp: NonNegativeFloat = 0.0
    range_excess_scaled_ulp: NonNegativeFloat = 0.0
    undecided: NonNegativeInt = 0
    histogram: Annotated[dict[str, NonNegativeInt], AfterValidator(_cumulative)] = Field(default_factory=dict)
    clamped: NonNegativeInt = 0
    binades: Annotated[list[Binade], AnySequence] = Field(default_factory=list)

    @property
    def inputs(self) -> int:
        classes: list[int] = [getattr(self, name) for name in CLASSES]
        return sum(classes) + self.undecided

    @model_validator(mode="after")
    def _misrounded(self) -> Error:
        if self.misrounded != self.inputs - self.correct:
            raise ValueError(
                f"misrounded is {self.misrounded}; expected inputs - correct = {self.inputs - self.correct}"
            )
        return self


class Worst(Record):
    """One bad element. `inputs` (tensors, in the kernel's order) and `output` are hex floats.

    `exact` is the truth to 20 digits, `rounded` its correct rounding; `truth` says whether the Python scalars of that
    truth are the exact ones. `ulp` is null where the error is not a number (a NaN where a number is due), `scaled_ulp`
    where the kernel has no scale. The first of a cell is the element that has the cell's error.
    """

    index: NonNegativeInt
    inputs: Strings
    output: str
    exact: str
    ulp: NonNegativeFloat | None
    scaled_ulp: NonNegativeFloat | None = None
    share: NonNegativeFloat | None = None
    int_ulp: NonNegativeInt | None = None
    rounded: str = ""
    error_class: ErrorClass | None = None
    truth: Truth = "exact"


class AgainstEager(Record):
    """Elements whose bits differ from eager's on the same device, and who is nearer to the truth."""

    different: NonNegativeInt
    closer: NonNegativeInt
    farther: NonNegativeInt
    tied: NonNegativeInt

    @model_validator(mode="after")
    def _partition(self) -> AgainstEager:
        total = self.closer + self.farther + self.tied
        if total != self.different:
            raise ValueError(f"closer + farther + tied is {total}; expected different = {self.different}")
        return self


class Formula(Record):
    """`identified` is the candidate that reproduces every output bit; null if none does, or several that differ on
    other inputs: these are `ambiguous`.

    `survivors` are all candidates that reproduce them, `mismatches` the elements on which each other one fails,
    `witnesses` one input (hex floats) against each of those, and for ambiguous ones an input that would tell them from
    the first.
    """

    identified: str | None
    mismatches: Counts
    survivors: Strings = Field(default_factory=list)
    ambiguous: Strings = Field(default_factory=list)
    witnesses: Annotated[dict[str, Strings], AfterValidator(_sorted)] = Field(default_factory=dict)


class Bound(Record):
    """The limit that was applied. `measured` is the maximum in `metric`, against `truth`, over the
    elements that the bound covers; null: the maximum over all elements. A region's source is the cell's where it is
    empty."""

    value: PositiveFloat
    metric: Metric
    source: str = ""
    truth: Truth = "exact"
    measured: NonNegativeFloat | None = None


class Trust(Record):
    """A library function taken as exact to `bound_ulp` after agreeing with mp on `admitted_on` inputs.

    `seen_ulp` is the largest error among these.
    """

    library: str
    bound_ulp: NonNegativeFloat
    admitted_on: NonNegativeInt
    seen_ulp: NonNegativeFloat | None = None


class Property(Record):
    """A law that the kernel states: `violations` among `inputs` elements, with one `witness` (hex floats)."""

    name: str
    inputs: NonNegativeInt
    violations: NonNegativeInt
    witness: Strings = Field(default_factory=list)


class Reason(Record):
    """Why a region has its status. `kind` is one of `verify.judge.status.REASONS`, `text` is for people and never
    parsed, `ledger` are the ids of the entries that cover what exceeds."""

    kind: ReasonKind = ""
    text: str = ""
    ledger: Strings = Field(default_factory=list)


class Resolution(Record):
    """The least relative change of the truth that would be seen (docs/definitions.md): half and nine tenths of the
    elements have at most this; null where no change would be."""

    median: NonNegativeFloat | None
    p90: NonNegativeFloat | None


class Region(Record):
    """The elements of a cell that lie in one region, judged against the truth that the bound names.

    status      what the elements of this region alone give the cell
    unjudged    elements of which nothing is stated
    resolution  null where it was not asked for
    worst       the worst first, in the bound's metric; at most 5, one in a recorded report
    """

    inputs: PositiveInt
    error: Error
    bound: Bound | None = None
    status: Status
    reason: Reason = Field(default_factory=Reason)
    unjudged: NonNegativeInt = 0
    resolution: Resolution | None = None
    worst: Annotated[list[Worst], AnySequence] = Field(default_factory=list)

    @model_validator(mode="after")
    def _consistent(self) -> Region:
        if self.status in NOT_OF_REGIONS:
            raise ValueError(f"status {self.status} of a region; expected that of its elements")
        if self.error.inputs != self.inputs:
            raise ValueError(f"the classes sum to {self.error.inputs}; expected inputs = {self.inputs}")
        if self.status in ("passed", "deviates") and self.error.undecided:
            raise ValueError(f"status {self.status} with {self.error.undecided} undecided elements")
        if self.unjudged > self.inputs:
            raise ValueError(f"{self.unjudged} unjudged of {self.inputs} inputs")
        if self.status == "passed" and self.reason.ledger:
            raise ValueError("status passed with entries of the ledger; expected deviates")
        if self.status == "deviates" and not self.reason.ledger:
            raise ValueError("status deviates without the id of a ledger entry")
        if self.status != "passed" and not self.reason.kind:
            raise ValueError(f"status {self.status} without a kind of reason")
        if self.status == "passed" and not self.reason.text:  # no formula excuses anything
            for name in ("nan_mismatch", "zero_sign"):
                if count := getattr(self.error, name):
                    raise ValueError(f"status passed with {count} {name}, and no reason")
            if (self.error.max_share or 0.0) > _SLACK:
                raise ValueError(f"status passed with {self.error.max_share} of what an element may be, and no reason")
        return self


class Calls(Record):
    """Other calls of a lowering with elements of the walk, whose bits must be the walk's.

    made       how many calls gave a result
    status     that they give the cell, by themselves; '' where they say nothing against it
    different  names of those whose bits are others (`verify.walk.arrangements.CALLS`); `note`: why that is no fault
    bits       digests of what those of an elementwise function gave
    errors     the largest error of each that has a problem of its own and passes, in ULP of the truth or of its scale
    untried    those for which there was no time
    refused    those that the lowering refused, with its exception
    script     lines of Python that show the smallest that is different
    """

    made: NonNegativeInt
    status: Literal[""] | Status = ""
    different: Strings = Field(default_factory=list)
    bits: Annotated[dict[str, str], AfterValidator(_sorted)] = Field(default_factory=dict)
    errors: Annotated[dict[str, NonNegativeFloat], AfterValidator(_sorted)] = Field(default_factory=dict)
    note: str = ""
    untried: Strings = Field(default_factory=list)
    refused: Annotated[dict[str, str], AfterValidator(_sorted)] = Field(default_factory=dict)
    script: Strings = Field(default_factory=list)


class Timing(Record):
    """Seconds, and how many elements went to multiprecision. Never part of a digest.

    kernel_s   the lowering, launched on every portion of the inputs
    compile_s  building it and launching it for the first time, which compiles what is compiled
    check_s    all else
    """

    kernel_s: NonNegativeFloat = 0.0
    check_s: NonNegativeFloat = 0.0
    compile_s: NonNegativeFloat = 0.0
    mp_elements: NonNegativeInt = 0

    @model_validator(mode="before")
    @classmethod
    def _earlier(cls, given: Any) -> Any:
        """Without `sweep_s`, the sum of kernel_s and check_s, which reports had until November 2026."""
        return {k: v for k, v in given.items() if k != "sweep_s"} if isinstance(given, dict) else given


class Place(Record):
    """What identifies a cell, except for its output."""

    kernel: str
    lowering: str
    spelling: str
    backend: str
    dtype: str
    scalars: Annotated[dict[str, float], AfterValidator(_sorted)]


class Cell(Place):
    """One lowering of one kernel, on one backend, dtype, spelling and set of scalars.

    output                which of several outputs (exp_avg_sq, logsumexp, dq); empty where there is one
    status                the worst of the regions', unless launches gave it another
    reason, reason_kind   for people, one line; and one of `verify.judge.status.REASONS`
    ledger                ids of the entries that cover what exceeds a bound
    allowance             id of the entry that lets a status of `verify.judge.status.ALLOWABLE` end with exit code 0
    regions               by name of `verify.judge.regions`; none where nothing was measured, and of schema 1
    error                 of all regions, against the truth with the Python scalars as given
    error_rounded_scalar  against the truth with the scalars rounded to the operands' dtype
    against_eager         null for eager itself, and where eager did not run
    paths                 elements whose bits differ from the vector body's, by path (tail, strided...)
    flags, ftz            of the lowering; ftz is declared, not measured
    digest, chunks        of the outputs, as a whole and for each 2^20 of them
    source                digest of the kernel's files: facts, oracle, own lowerings, and what these use
    repeats, distinct     of a lowering that is not deterministic: launches of each chunk, and the most different
                          results of one; an elementwise cell counts the elements of all launches
    calls                 other calls than the walk's; null where none were made
    predicted             of a virtual device: how each instruction was modelled that no standard defines; null where
                          the cell was measured
    """

    output: str = ""
    domain: Domain
    status: Status
    reason: str = ""
    reason_kind: ReasonKind = ""
    ledger: Strings = Field(default_factory=list)
    allowance: str = ""
    inputs: NonNegativeInt = 0
    regions: Annotated[dict[RegionName, Region], AfterValidator(_in_order)] = Field(default_factory=dict)
    error: Error | None = None
    error_rounded_scalar: Error | None = None
    worst: Annotated[list[Worst], AnySequence] = Field(default_factory=list)
    against_eager: AgainstEager | None = None
    formula: Formula | None = None
    bound: Bound | None = None
    trust: Annotated[list[Trust], AnySequence] = Field(default_factory=list)
    properties: Annotated[list[Property], AnySequence] = Field(
        default_factory=list,
        validation_alias=AliasChoices("properties", "checks"),  # their name in schema 1
    )
    paths: Counts = Field(default_factory=dict)
    flags: Free = Field(default_factory=dict)
    ftz: bool = False
    digest: str = ""
    chunks: Strings = Field(default_factory=list)
    source: str = ""
    repeats: PositiveInt = 1
    distinct: PositiveInt = 1
    calls: Calls | None = None
    predicted: dict[str, str] | None = None
    timing: Timing = Field(default_factory=Timing)

    @property
    def key(self) -> tuple[str, str, str, str, str, ScalarsKey, str]:
        """What a cell is aligned by, in this report and across reports."""
        scalars = scalars_key(self.scalars)
        return (self.kernel, self.lowering, self.spelling, self.backend, self.dtype, scalars, self.output)

    @property
    def judged(self) -> Error:
        """The error record against the truth that the cell's bound means."""
        assert self.error is not None
        rounded = self.error_rounded_scalar if self.bound and self.bound.truth == "rounded" else None
        return rounded or self.error

    @model_validator(mode="after")
    def _consistent(self) -> Cell:
        unread = self.status == "oracle-violation" and self.error is None  # the oracle cannot be evaluated at all
        if self.status in ("not-run", "error") or unread:
            if not self.reason:
                raise ValueError(f"status {self.status} without a reason")
        elif self.error is None:
            raise ValueError(f"status {self.status} without an error record")
        unsaid = self.calls and self.calls.different and not (self.calls.note or self.calls.status)
        if self.calls and unsaid and self.status == "passed":
            raise ValueError(
                f"calls of other bits ({', '.join(self.calls.different[:3])}) with neither note nor status"
            )
        for name in ("error", "error_rounded_scalar"):
            error: Error | None = getattr(self, name)
            if error is not None and error.inputs != self.inputs:
                raise ValueError(f"the classes of {name} sum to {error.inputs}; expected inputs = {self.inputs}")
            if error is not None and error.range > self.inputs:
                raise ValueError(f"{name}.range is {error.range} of {self.inputs} inputs")
        if self.against_eager is not None and self.against_eager.different > self.inputs:
            raise ValueError(f"{self.against_eager.different} elements differ from eager, of {self.inputs} inputs")
        if self.distinct > self.repeats:
            raise ValueError(f"{self.distinct} distinct results of {self.repeats} launches")
        if self.status in ("passed", "deviates") and self.error is not None and self.error.undecided:
            raise ValueError(f"status {self.status} with {self.error.undecided} undecided elements")
        if self.bound is not None and not self.bound.source:
            raise ValueError("a bound without a source")
        if self.regions:
            self._check_regions()
        return self

    def _check_regions(self) -> None:
        """Raise ValueError unless the regions partition the inputs and give the cell its status."""
        if self.error is None:
            raise ValueError("regions without an error record")
        inputs = sum(region.inputs for region in self.regions.values())
        if inputs != self.inputs:
            raise ValueError(f"the regions hold {inputs} inputs; expected inputs = {self.inputs}")
        judged = self.judged
        for name in (*CLASSES, "undecided"):
            total, expected = (sum(getattr(r.error, name) for r in self.regions.values()), getattr(judged, name))
            if total != expected:
                raise ValueError(f"the regions hold {total} {name}; expected {expected}, as the judged error")
        for name in ("max_ulp", "max_int_ulp", "max_scaled_ulp", "max_share"):
            values = [value for r in self.regions.values() if (value := getattr(r.error, name)) is not None]
            if getattr(judged, name) != max(values, default=None):
                raise ValueError(
                    f"{name} is {getattr(judged, name)}; expected {max(values, default=None)}, the regions'"
                )
        if self.status == "not-run":
            raise ValueError("status not-run with regions")
        for one in self.properties:
            if self.status == "passed" and one.violations:
                raise ValueError(f"status passed, and {one.violations} elements break the property {one.name}")
        normal = self.regions.get("normal")
        if normal is not None and normal.status == "passed" and normal.bound is None:
            raise ValueError("region normal passed without a bound; expected unbounded")
        # nothing widens the bound there: no underflow, no overflow, no flushing
        if normal is not None and normal.status == "passed" and normal.bound is not None:
            most = normal.bound.measured
            most = getattr(normal.error, f"max_{normal.bound.metric}") if most is None else most
            if most is None:
                raise ValueError(f"region normal passed by a bound in {normal.bound.metric} without that maximum")
            if most > normal.bound.value * _SLACK:
                raise ValueError(f"region normal passed with {most} {normal.bound.metric}, bound {normal.bound.value}")
            if (share := normal.error.max_share or 0.0) > _SLACK:
                raise ValueError(f"region normal passed with {share} of what an element may be")
            # where each element has its own bound, nothing may be stated of a NaN; early reports do not count those
            if normal.bound.metric != "share" and normal.error.nan_mismatch > normal.unjudged:
                raise ValueError(f"region normal passed with {normal.error.nan_mismatch} NaNs that should be none")
        if normal is not None and normal.status == "passed" and 100 * normal.unjudged > normal.inputs:
            raise ValueError(f"region normal passed with {normal.unjudged} of {normal.inputs} elements unjudged")
        found = worst(region.status for region in self.regions.values())
        if self.status != found:
            further = self.status in WHOLE or self.reason_kind in WHOLE_REASONS
            if not further or worst((self.status, found)) != self.status:
                raise ValueError(f"status {self.status}; expected {found}, the worst of the regions")
        beside = ["unsteady"] if self.distinct > 1 else []
        beside += [self.calls.status] if self.calls and self.calls.status else []
        if worst((self.status, *beside)) != self.status:
            raise ValueError(f"status {self.status}, where launches or other calls make it {worst(beside)}")
        if self.status != "passed" and not self.reason_kind:
            raise ValueError(f"status {self.status} without a kind of reason")
        named = {name for region in self.regions.values() for name in region.reason.ledger}
        if not named <= set(self.ledger):
            raise ValueError(f"the regions name the ledger's {sorted(named)}; expected those in ledger: {self.ledger}")


class Part(Place):
    """A cell that is not fully judged yet: what is known so far, from `inputs` of its `size` elements.

    job     its number, as in `Shard.numbers`
    status  what it would be if the other elements were like these; reason: for people
    found   see `verify.walk.sweep`
    """

    job: NonNegativeInt
    size: PositiveInt
    inputs: NonNegativeInt
    source: str
    status: str
    reason: str
    found: Free


class Shard(Record):
    """Part `index` of `of`, from 1, of a run of so many `jobs`: `numbers` has the job of each cell, in order.

    source: digest of all files that decide cells, a user's own among them. whole: the run is one of everything,
    so ledger entries that nothing needs can be found. parts: of sweeps that shards divide. others: further shards
    whose reports were merged to this one.
    """

    index: PositiveInt
    others: list[PositiveInt] = []
    of: PositiveInt
    jobs: PositiveInt
    numbers: Annotated[list[NonNegativeInt], AnySequence]
    source: str = ""
    whole: bool
    parts: list[Part] = []

    @model_validator(mode="after")
    def _within(self) -> Shard:
        if any(index > self.of for index in (self.index, *self.others)):
            raise ValueError(f"shard {self.index} and others {self.others} of {self.of}")
        if any(number >= self.jobs for number in self.numbers):
            raise ValueError(f"cells of job {max(self.numbers)}; the run has {self.jobs}, from 0")
        return self


class Report(Record):
    """The record of a run. `interrupted` says that cells are missing because the user stopped it.

    converted_from: the schema of the file that was read, where it was an earlier one: such cells have no regions.
    """

    schema_version: Literal[1, 2] = Field(alias="schema")
    converted_from: Literal[1] | None = None
    environment: Free
    profile: str
    seed: int
    command: str
    interrupted: bool = False
    shard: Shard | None = None
    cells: Annotated[list[Cell], AnySequence]

    @field_validator("schema_version", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        if isinstance(value, bool):  # which Literal takes for 0 or 1
            raise ValueError(f"{value}; expected 1 or 2")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Report:
        seen = set()
        for index, cell in enumerate(self.cells):
            if cell.key in seen:
                raise ValueError(f"cells[{index}] repeats {' '.join(cell.key[:5])} {cell.scalars}")
            seen.add(cell.key)
            if self.schema_version == SCHEMA and self.converted_from is None and (why := lacks_regions(cell)):
                raise ValueError(f"cells[{index}]: {why}")
        if self.schema_version == SCHEMA:
            return self
        cells = [of_schema_1(cell) for cell in self.cells]
        return self.model_copy(update={"schema_version": SCHEMA, "converted_from": 1, "cells": cells})


def lacks_regions(cell: Cell) -> str:
    """What is wrong with a cell of schema 2 that measured something or passed without regions; '' if nothing is."""
    if cell.regions or cell.status in NOT_OF_REGIONS or not (cell.inputs or cell.status in ("passed", "deviates")):
        return ""
    return f"status {cell.status} of {cell.inputs} inputs without regions"


def of_schema_1(cell: Cell) -> Cell:
    """A cell of schema 1 as schema 2 has it: what the ledger excused deviates, for the reason that the entry gave; the
    figures that followed it in parentheses are the cell's own. Everything else keeps its name."""
    if cell.status != "passed" or KNOWN not in cell.reason:
        return cell
    before, _, told = cell.reason.partition(KNOWN)
    return cell.model_copy(update={"status": "deviates", "reason": before + (told.rpartition(" (")[0] or told)})
