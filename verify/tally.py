"""Mergeable statistics of a sweep: a commutative monoid whose bytes do not depend on order.

Counts and sums are integers, maxima and worst elements are ordered by (error, lowest index), and
digests are kept per chunk, so that any grouping of the same chunks merges to the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from verify.decide import BINS, QUANTUM
from verify.ulp import CLASSES

WORST = 5
_ADDED = (
    "inputs", *CLASSES, "undecided", "measured", "clamped", "sum", "sum_signed",
    "different", "closer", "farther", "tied", "mp_elements", "infinite",
)  # fmt: skip


@dataclass(frozen=True)
class Worst:
    """One element: error in ULPs, domain index, input patterns, output pattern, truth to 20 digits, and the error in
    scaled ULPs where the kernel has a scale."""

    ulp: float
    index: int
    inputs: tuple[int, ...] = ()
    output: int = 0
    exact: str = ""
    scaled: float | None = None

    @property
    def order(self) -> tuple[float, int]:
        return (-self.ulp, self.index)

    @property
    def order_scaled(self) -> tuple[float, int]:
        return (-(self.scaled or 0.0), self.index)


@dataclass(frozen=True)
class Binade:
    """Errors of the elements whose first input has one exponent: clamped maximum and sums in units
    of 2^-16 ULP, and how many are misrounded."""

    measured: int = 0
    misrounded: int = 0
    maximum: int = 0
    sum: int = 0
    sum_signed: int = 0

    def merge(self, other: Binade) -> Binade:
        return Binade(
            self.measured + other.measured,
            self.misrounded + other.misrounded,
            max(self.maximum, other.maximum),
            self.sum + other.sum,
            self.sum_signed + other.sum_signed,
        )


@dataclass(frozen=True)
class Tally:
    """What is known of `inputs` elements. The identity is `Tally()`.

    The classes of `verify.ulp.CLASSES` partition inputs - undecided. `sum` and `sum_signed` are in
    units of 2^-16 ULP over `measured` elements, each error clamped to 2^10 ULP (`clamped` counts).
    `infinite` counts those of inf_mismatch whose truth is infinite, so that no number measures their error.
    `worst` are the WORST largest errors in ULPs, `worst_scaled` is the largest in scaled ULPs, where there is a scale.
    `witnesses` holds the first element of each class that fails whatever the bound.
    `histogram` counts measured elements up to each edge of `verify.decide.BINS`.
    """

    inputs: int = 0
    nan_mismatch: int = 0
    correct: int = 0
    zero_sign: int = 0
    faithful: int = 0
    inf_mismatch: int = 0
    flushed: int = 0
    worse: int = 0
    undecided: int = 0
    measured: int = 0
    clamped: int = 0
    sum: int = 0
    sum_signed: int = 0
    different: int = 0
    closer: int = 0
    farther: int = 0
    tied: int = 0
    mp_elements: int = 0
    infinite: int = 0
    histogram: tuple[int, ...] = (0,) * len(BINS)
    max_ulp: float = 0.0
    max_scaled: float = 0.0
    max_int: int = 0
    worst: tuple[Worst, ...] = ()
    worst_scaled: tuple[Worst, ...] = ()
    witnesses: tuple[tuple[str, Worst], ...] = ()
    binades: tuple[tuple[int, Binade], ...] = ()
    digests: tuple[tuple[int, int], ...] = ()
    input_digests: tuple[tuple[int, int], ...] = ()

    def merge(self, other: Tally) -> Tally:
        """The tally of both. Raises ValueError when both cover the same chunk."""
        added = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        witnesses = dict(self.witnesses)
        for name, one in other.witnesses:
            witnesses[name] = min(one, witnesses.get(name, one), key=lambda w: w.index)
        binades = dict(self.binades)
        for exponent, binade in other.binades:
            binades[exponent] = binades.get(exponent, Binade()).merge(binade)
        return Tally(
            **added,
            histogram=tuple(a + b for a, b in zip(self.histogram, other.histogram, strict=True)),
            max_ulp=max(self.max_ulp, other.max_ulp),
            max_scaled=max(self.max_scaled, other.max_scaled),
            max_int=max(self.max_int, other.max_int),
            worst=tuple(sorted((*self.worst, *other.worst), key=lambda w: w.order)[:WORST]),
            worst_scaled=tuple(sorted((*self.worst_scaled, *other.worst_scaled), key=lambda w: w.order_scaled)[:1]),
            witnesses=tuple(sorted(witnesses.items())),
            binades=tuple(sorted(binades.items())),
            digests=_joined(self.digests, other.digests),
            input_digests=_joined(self.input_digests, other.input_digests),
        )

    def __add__(self, other: Tally) -> Tally:
        return self.merge(other)

    def to_bytes(self) -> bytes:
        """Canonical bytes: equal for every order and grouping of the same parts."""
        return json.dumps(self, default=_plain, sort_keys=True, separators=(",", ":")).encode()

    @property
    def misrounded(self) -> int:
        return self.inputs - self.correct

    @property
    def mean_ulp(self) -> float:
        return self.sum / QUANTUM / self.measured if self.measured else 0.0

    @property
    def bias_ulp(self) -> float:
        """Mean of the signed errors y - t; 0 for a symmetric rounding."""
        return self.sum_signed / QUANTUM / self.measured if self.measured else 0.0

    def check(self) -> Tally:
        """Self, after proving that the classes partition the inputs. Raises AssertionError."""
        total = sum(getattr(self, name) for name in CLASSES) + self.undecided
        if total != self.inputs:
            raise AssertionError(f"classes add up to {total} of {self.inputs} inputs")
        return self


def total(parts: Iterable[Tally]) -> Tally:
    result = Tally()
    for part in parts:
        result = result.merge(part)
    return result


def root(digests: tuple[tuple[int, int], ...]) -> str:
    """One hash over chunk digests in domain order: SHA-256 of index and digest, 16 hex digits."""
    hasher = hashlib.sha256()
    for index, value in digests:
        hasher.update(index.to_bytes(8, "big") + value.to_bytes(8, "big"))
    return hasher.hexdigest()[:16]


def _joined(a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    both = dict(a) | dict(b)
    if len(both) != len(a) + len(b):
        raise ValueError("two tallies of the same chunk cannot be merged")
    return tuple(sorted(both.items()))


def _plain(value: Any) -> Any:
    if isinstance(value, (Tally, Worst, Binade)):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    raise TypeError(type(value).__name__)
