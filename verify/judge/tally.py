"""Mergeable statistics of a sweep: a commutative monoid whose bytes do not depend on order or grouping.

Counts and sums are integers, maxima and worst elements are ordered by (error, lowest index), and digests are kept per
chunk. `verify.judge.chunk` makes tallies of chunks; `verify.judge.cell` says what a cell's tally means.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from verify.judge.reduce import COUNTED, LEADERS, METRICS
from verify.judge.regions import REGIONS
from verify.judge.status import KINDS
from verify.numbers.decide import BINS, QUANTUM
from verify.numbers.ulp import CLASSES

WORST = 5
#: The mean distance from a formula's results, in steps, beyond which outputs lie to one side of them, and what chance
#: adds to it, in standard errors: by Hoeffding's inequality below 10^-10.
LEANING, ERRORS = 1 / 8, 7.0
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Element:
    """One element: its index in the domain, the key by which multiprecision knows it, its output's pattern."""

    index: int
    key: tuple[int, ...] = ()
    output: int = 0


#: The largest values of one metric: (upper bound, element), the largest first, equal ones by index.
Leaders = tuple[tuple[float, Element], ...]


@dataclass(frozen=True)
class InRegion:
    """What is known of the elements of one region.

    counts      by name in `verify.judge.reduce.COUNTED`; the classes and `undecided` partition the elements
    mp          elements that multiprecision judged
    steps       the largest int_ulp
    leaders     for each of METRICS those elements that may have the largest value
    fails       by kind in KINDS: wrong elements that nothing accounts for
    lost        by kind: wrong elements with an overflowing intermediate (an admissible formula may account for them)
    deviates    (ledger id, kind) -> elements that the entry accounts for
    witnesses   by what they witness (a kind, or a ledger id): the element of the lowest index
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    undecided: int = 0
    mp: int = 0
    histogram: tuple[int, ...] = (0,) * len(BINS)
    steps: int = 0
    leaders: tuple[Leaders, ...] = ((),) * len(METRICS)
    fails: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    deviates: Mapping[tuple[str, str], int] = field(default_factory=dict)
    witnesses: Mapping[str, Element] = field(default_factory=dict)

    def __add__(self, other: InRegion) -> InRegion:
        return InRegion(
            counts=_added(self.counts, other.counts),
            undecided=self.undecided + other.undecided,
            mp=self.mp + other.mp,
            histogram=tuple(map(sum, zip(self.histogram, other.histogram, strict=True))),
            steps=max(self.steps, other.steps),
            leaders=tuple(leading((*a, *b)) for a, b in zip(self.leaders, other.leaders, strict=True)),
            fails=_added(self.fails, other.fails),
            lost=_added(self.lost, other.lost),
            deviates=_added(self.deviates, other.deviates),
            witnesses=_first(self.witnesses, other.witnesses),
        )

    def __getattr__(self, name: str) -> int:
        if name in COUNTED:
            return self.counts.get(name, 0)
        raise AttributeError(name)

    @property
    def inputs(self) -> int:
        return sum(self.counts.get(name, 0) for name in CLASSES) + self.undecided

    @property
    def misrounded(self) -> int:
        return self.inputs - self.counts.get("correct", 0)

    @property
    def mean_ulp(self) -> float:
        measured = self.counts.get("measured", 0)
        return self.counts["sum"] / QUANTUM / measured if measured else 0.0

    @property
    def bias_ulp(self) -> float:
        """Mean of the signed errors y - t; 0 for a symmetric rounding."""
        measured = self.counts.get("measured", 0)
        return self.counts["sum_signed"] / QUANTUM / measured if measured else 0.0


@dataclass(frozen=True)
class Binade:
    """Errors of the elements of region normal whose first input has one exponent: maximum and sums in units of
    2^-16 ULP, each error at most 2^10, and how many are misrounded."""

    measured: int = 0
    misrounded: int = 0
    maximum: int = 0
    sum: int = 0
    sum_signed: int = 0

    def __add__(self, other: Binade) -> Binade:
        return Binade(
            self.measured + other.measured,
            self.misrounded + other.misrounded,
            max(self.maximum, other.maximum),
            self.sum + other.sum,
            self.sum_signed + other.sum_signed,
        )


@dataclass(frozen=True)
class Lean:
    """On which side of a formula's results f the outputs y lie, where f is normal: how many there are, and the sums of
    y - f, of |y| - |f| and of (y - f)^2, in representable steps, each difference at most 4."""

    count: int = 0
    along: int = 0
    outward: int = 0
    squares: int = 0

    def __add__(self, other: Lean) -> Lean:
        return Lean(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def mean(self) -> float:
        """The mean of the differences along the number line or away from zero, whichever is larger."""
        return max(self.along, self.outward, key=abs) / self.count if self.count else 0.0

    @property
    def aside(self) -> bool:
        """Whether that is more than chance explains."""
        return bool(self.count) and abs(self.mean) > LEANING + ERRORS * math.sqrt(self.squares) / self.count


@dataclass(frozen=True)
class Fit:
    """How one formula's predictions compare with the outputs: mismatches over all elements, and the first of them.

    admissible: it may account for `lost` elements; lost: how many of these it does not reproduce. lean: where it is
    asked for.
    """

    mismatches: int = 0
    witness: Element | None = None
    lost: int = 0
    admissible: bool = False
    lean: Lean = Lean()

    def __add__(self, other: Fit) -> Fit:
        witnesses = [w for w in (self.witness, other.witness) if w is not None]
        first = min(witnesses, key=lambda w: w.index, default=None)
        either = self.admissible or other.admissible
        lean = self.lean + other.lean
        return Fit(self.mismatches + other.mismatches, first, self.lost + other.lost, either, lean)


@dataclass(frozen=True)
class Tally:
    """Statistics of some elements. The identity is `Tally()`.

    digests, input_digests  (chunk, digest), in order; sums: of chunks that are judged in parts, by chunk, the digest of
    what was judged of each
    """

    regions: Mapping[str, InRegion] = field(default_factory=dict)
    binades: Mapping[int, Binade] = field(default_factory=dict)
    formulas: Mapping[str, Fit] = field(default_factory=dict)
    digests: tuple[tuple[int, int], ...] = ()
    input_digests: tuple[tuple[int, int], ...] = ()
    sums: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        """The tally of both. Raises ValueError when both cover the same chunk."""
        return Tally(
            _added(self.regions, other.regions),
            _added(self.binades, other.binades),
            _added(self.formulas, other.formulas),
            _joined(self.digests, other.digests),
            _joined(self.input_digests, other.input_digests),
            {chunk: value & _WORD for chunk, value in _added(self.sums, other.sums).items()},
        )

    @property
    def whole(self) -> InRegion:
        """All regions together."""
        return reduce(InRegion.__add__, self.regions.values(), InRegion())

    def __getitem__(self, region: str) -> InRegion:
        return self.regions.get(region, InRegion())

    def record(self) -> dict[str, Any]:
        """The tally as JSON, for `restored`."""
        lists = {name: [list(one) for one in getattr(self, name)] for name in ("digests", "input_digests")}
        return {name: lists.get(name) or _plain(getattr(self, name)) for name in self.__dataclass_fields__}

    def to_bytes(self) -> bytes:
        """Canonical bytes: equal for every order and grouping of the same parts."""
        return json.dumps(self.record(), sort_keys=True, separators=(",", ":")).encode()


def restored(record: Mapping[str, Any]) -> Tally:
    """The tally of a `Tally.record`."""

    def element(one: Mapping[str, Any]) -> Element:
        return Element(one["index"], tuple(one["key"]), one["output"])

    def region(one: Mapping[str, Any]) -> InRegion:
        lists = {
            "histogram": tuple(one["histogram"]),
            "leaders": tuple(tuple((float(v), element(e)) for v, e in leaders) for leaders in one["leaders"]),
            "deviates": {tuple(key.rsplit(" ", 1)): count for key, count in one["deviates"].items()},
            "witnesses": {key: element(e) for key, e in one["witnesses"].items()},
        }
        return InRegion(**{**one, **lists})

    def fit(one: Mapping[str, Any]) -> Fit:
        witness = None if one["witness"] is None else element(one["witness"])
        return Fit(**{**one, "witness": witness, "lean": Lean(**one["lean"])})

    return (
        Tally(
            {name: region(one) for name, one in record["regions"].items()},
            {int(exponent): Binade(**one) for exponent, one in record["binades"].items()},
            {text: fit(one) for text, one in record["formulas"].items()},
            tuple((chunk, value) for chunk, value in record["digests"]),
            tuple((chunk, value) for chunk, value in record["input_digests"]),
            {int(chunk): value for chunk, value in record["sums"].items()},
        )
        + Tally()
    )


def total(parts: Iterable[Tally]) -> Tally:
    """The tally of all parts, merged like a binary counter: digests are copied log n times each."""
    held: list[tuple[int, Tally]] = []
    for tally in parts:
        part, weight = tally, 1
        while held and held[-1][0] <= weight:
            size, last = held.pop()
            part, weight = last + part, weight + size
        held.append((weight, part))
    return reduce(Tally.__add__, (part for _, part in reversed(held)), Tally())


def leading(found: Iterable[tuple[float, Element]]) -> Leaders:
    """The largest values, equal ones by index."""
    return tuple(sorted(found, key=lambda one: (-one[0], one[1].index))[:LEADERS])


def root(digests: Iterable[tuple[int, int]]) -> str:
    """One hash over chunk digests in domain order: SHA-256 of index and digest, 16 hex digits."""
    hasher = hashlib.sha256()
    for index, value in digests:
        hasher.update(index.to_bytes(8, "big") + value.to_bytes(8, "big"))
    return hasher.hexdigest()[:16]


def _added(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> dict[Any, Any]:
    """Both, values of equal keys added; keys in canonical order."""
    found = dict(a)
    for key, value in b.items():
        found[key] = found[key] + value if key in found else value
    return dict(sorted(found.items(), key=lambda item: _rank(item[0])))


def _rank(key: Any) -> Any:
    for order in (REGIONS, KINDS, COUNTED):
        if key in order:
            return (0, order.index(key), "")
    return (1, key, "") if isinstance(key, int) else (2, 0, str(key))


def _first(a: Mapping[str, Element], b: Mapping[str, Element]) -> dict[str, Element]:
    found = dict(a)
    for key, one in b.items():
        found[key] = min(one, found.get(key, one), key=lambda e: e.index)
    return dict(sorted(found.items()))


def _joined(a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if not (a and b):
        return a or b
    both = dict(a) | dict(b)
    if len(both) != len(a) + len(b):
        raise ValueError("two tallies of the same chunk cannot be merged")
    return tuple(sorted(both.items()))


def _plain(value: Any) -> Any:
    if isinstance(value, (int, str)) or value is None:
        return value
    if isinstance(value, float):
        return str(value) if math.isinf(value) else value
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {" ".join(k) if isinstance(k, tuple) else str(k): _plain(one) for k, one in value.items()}
    return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
