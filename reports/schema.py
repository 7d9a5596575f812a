"""The schema of a report, version 1: what a run writes and what compare, gate and render read.

Reading and writing files is in `verify.reports.store`. This module imports pydantic, so import it
only where a report is read or written: `verify list` and `verify show` must not pay for it.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Strict,
    model_validator,
)

from verify.ulp import CLASSES

SCHEMA = 1

Status = Literal[
    "passed",
    "exceeds-bound",
    "regressed",
    "improved",
    "changed",
    "stale",
    "not-run",
    "error",
    "oracle-violation",
]
Metric = Literal["ulp", "int_ulp", "scaled_ulp", "share"]
Truth = Literal["exact", "rounded"]


def _sorted(value: dict[str, Any]) -> dict[str, Any]:
    """Keys in order, so that equal reports have equal bytes however they were put together."""
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


def _error_class(value: str) -> str:
    if value not in CLASSES:
        raise ValueError(f"error class {value!r}; expected one of {', '.join(CLASSES)}")
    return value


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
ErrorClass = Annotated[str, AfterValidator(_error_class)]
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
    """Errors in ULP of the output's format against one truth, and the classes (see `verify.ulp`).

    Classes count all inputs. `range` of these have an intermediate outside the normal range; their
    maximum is `range_max_ulp`, and `range_excess_*` what underflow does not explain of it (see
    docs/definitions.md); everything else is over the others. `max_scaled_ulp` is null where
    the kernel has no scale. `max_share` is the largest |y - t| / B where each element has a proven
    bound B of its own (composite kernels). `misrounded` = inputs - correct. `clamped` counts the errors
    that enter mean and bias as 2^10 ULP. The histogram is cumulative: '<=2' counts the errors of at most 2 ULP.
    """

    max_ulp: NonNegativeFloat
    max_scaled_ulp: NonNegativeFloat | None
    max_share: NonNegativeFloat | None = None
    max_int_ulp: NonNegativeInt
    mean_ulp: NonNegativeFloat
    bias_ulp: float
    correct: NonNegativeInt
    misrounded: NonNegativeInt
    faithful: NonNegativeInt
    worse: NonNegativeInt
    flushed: NonNegativeInt
    nan_mismatch: NonNegativeInt
    inf_mismatch: NonNegativeInt
    zero_sign: NonNegativeInt
    range: NonNegativeInt
    range_max_ulp: NonNegativeFloat = 0.0
    range_excess_ulp: NonNegativeFloat = 0.0
    range_excess_scaled_ulp: NonNegativeFloat = 0.0
    undecided: NonNegativeInt
    histogram: Annotated[dict[str, NonNegativeInt], AfterValidator(_cumulative)]
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
    truth are the exact ones. `ulp` is null where the error is no number (a NaN where a number is due), `scaled_ulp`
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
    """`identified` is the one candidate that reproduces every output bit; null if none or several do.

    `survivors` are all candidates that do, `mismatches` the elements on which each other one fails,
    `witnesses` one input (hex floats) against each of those.
    """

    identified: str | None
    mismatches: Counts
    survivors: Strings = Field(default_factory=list)
    witnesses: Annotated[dict[str, Strings], AfterValidator(_sorted)] = Field(default_factory=dict)


class Bound(Record):
    """The limit that was applied. `measured` is the maximum in `metric`, against `truth`, over the
    elements that the bound covers; null: the maximum over all elements."""

    value: PositiveFloat
    metric: Metric
    source: str
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


class Check(Record):
    """A property test: `violations` among `inputs` elements, with one `witness` (hex floats)."""

    name: str
    inputs: NonNegativeInt
    violations: NonNegativeInt
    witness: Strings = Field(default_factory=list)


class Timing(Record):
    """Seconds, and how many elements went to multiprecision. Never part of a digest.

    `sweep_s` is an exhaustive sweep as a whole, kernel included, once everything is compiled.
    """

    kernel_s: NonNegativeFloat = 0.0
    check_s: NonNegativeFloat = 0.0
    compile_s: NonNegativeFloat = 0.0
    sweep_s: NonNegativeFloat = 0.0
    mp_elements: NonNegativeInt = 0


class Cell(Record):
    """One lowering of one kernel, on one backend, dtype, spelling and set of scalars.

    output                which of several outputs (exp_avg_sq, logsumexp, dq); empty where there is one
    error                 against the truth with the Python scalars as given
    error_rounded_scalar  against the truth with the scalars rounded to the operands' dtype
    against_eager         null for eager itself, and where eager did not run
    paths                 elements whose bits differ from the vector body's, by path (tail, strided...)
    flags, ftz            of the lowering; ftz is declared, not measured
    digest, chunks        of the outputs, as a whole and for each 2^20 of them
    source                digest of the kernel's files: facts, oracle, own lowerings, and what these use
    repeats, distinct     of a lowering that is not deterministic: launches of each chunk, and the most different
                          results of one; an elementwise cell counts the elements of all launches
    """

    kernel: str
    lowering: str
    spelling: str
    backend: str
    dtype: str
    scalars: Annotated[dict[str, float], AfterValidator(_sorted)]
    output: str = ""
    domain: Domain
    status: Status
    reason: str = ""
    inputs: NonNegativeInt = 0
    error: Error | None = None
    error_rounded_scalar: Error | None = None
    worst: Annotated[list[Worst], AnySequence] = Field(default_factory=list)
    against_eager: AgainstEager | None = None
    formula: Formula | None = None
    bound: Bound | None = None
    trust: Annotated[list[Trust], AnySequence] = Field(default_factory=list)
    checks: Annotated[list[Check], AnySequence] = Field(default_factory=list)
    paths: Counts = Field(default_factory=dict)
    flags: Free = Field(default_factory=dict)
    ftz: bool = False
    digest: str = ""
    chunks: Strings = Field(default_factory=list)
    source: str = ""
    repeats: PositiveInt = 1
    distinct: PositiveInt = 1
    timing: Timing = Field(default_factory=Timing)

    @property
    def key(self) -> tuple[str, str, str, str, str, tuple[tuple[str, float], ...], str]:
        """What a cell is aligned by, in this report and across reports."""
        scalars = tuple(self.scalars.items())
        return (self.kernel, self.lowering, self.spelling, self.backend, self.dtype, scalars, self.output)

    @model_validator(mode="after")
    def _consistent(self) -> Cell:
        if self.status in ("not-run", "error"):
            if not self.reason:
                raise ValueError(f"status {self.status} without a reason")
        elif self.error is None:
            raise ValueError(f"status {self.status} without an error record")
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
        if self.status in ("passed", "improved") and self.error is not None and self.error.undecided:
            raise ValueError(f"status {self.status} with {self.error.undecided} undecided elements")
        return self


class Report(Record):
    """The record of a run. `interrupted` says that cells are missing because the user stopped it."""

    schema_version: Literal[1] = Field(alias="schema")
    environment: Free
    profile: str
    seed: int
    command: str
    interrupted: bool = False
    cells: Annotated[list[Cell], AnySequence]

    @model_validator(mode="after")
    def _distinct(self) -> Report:
        seen = set()
        for index, cell in enumerate(self.cells):
            if cell.key in seen:
                raise ValueError(f"cells[{index}] repeats {' '.join(cell.key[:5])} {cell.scalars}")
            seen.add(cell.key)
        return self
