"""Predicates on a whole run of one input's patterns at once, in Kleene's three-valued logic.

The rows of an oracle ask only for predicates of its exact inputs. On a run of equal sign they are answered
by its ends: `Answer(some, every)` never denies an element that satisfies the predicate and never claims all
of them wrongly, but may know neither. Results of arithmetic have no place here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from verify.formats import Format


@dataclass(frozen=True)
class Answer:
    """some: perhaps at least one element satisfies it (False: certainly none). every: certainly all do."""

    some: bool
    every: bool

    def __and__(self, other: Answer) -> Answer:
        return Answer(self.some and other.some, self.every and other.every)

    def __or__(self, other: Answer) -> Answer:
        return Answer(self.some or other.some, self.every or other.every)

    def __invert__(self) -> Answer:
        return Answer(not self.every, not self.some)


UNKNOWN = Answer(True, False)


@dataclass(frozen=True, eq=False)
class Run:
    """Values low..high of one sign, as float64, infinities included; `nan`: whether they are NaNs."""

    low: float
    high: float
    negative: bool
    nan: Answer = Answer(False, False)

    def __abs__(self) -> Run:
        return -self if self.negative else self

    def __neg__(self) -> Run:
        return Run(-self.high, -self.low, not self.negative, self.nan)

    def _holds(self, some: bool, every: bool) -> Answer:
        """Of a comparison, which no NaN satisfies."""
        return Answer(some, every) & ~self.nan

    def __lt__(self, number: float) -> Answer:
        return self._holds(self.low < number, self.high < number)

    def __le__(self, number: float) -> Answer:
        return self._holds(self.low <= number, self.high <= number)

    def __gt__(self, number: float) -> Answer:
        return self._holds(self.high > number, self.low > number)

    def __ge__(self, number: float) -> Answer:
        return self._holds(self.high >= number, self.low >= number)

    def __eq__(self, number: object) -> Answer:  # type: ignore[override]
        assert isinstance(number, (int, float)), number
        return self._holds(self.low <= number <= self.high, self.low == number == self.high)

    __hash__ = None  # type: ignore[assignment]


class Predicates:
    """The number system of runs: inputs, constants and predicates."""

    def input(self, first: int, last: int, fmt: Format) -> Run:
        """The patterns first..last. Raises ValueError where they are not of one sign."""
        if first > last or (first ^ last) & fmt.sign_bit:
            raise ValueError(f"{first:#x}..{last:#x} is no run of {fmt.name} patterns of one sign")
        negative = bool(first & fmt.sign_bit)
        numbers = min(last & ~fmt.sign_bit, fmt.inf_bits), min(first & ~fmt.sign_bit, fmt.inf_bits)
        large, small = (fmt.to_float(bits) for bits in numbers)
        low, high = (-large, -small) if negative else (small, large)
        return Run(low, high, negative, Answer(fmt.is_nan(last), fmt.is_nan(first)))

    def const(self, value: float) -> Run:
        return Run(value, value, math.copysign(1.0, value) < 0, Answer(value != value, value != value))

    def is_nan(self, a: Run) -> Answer:
        return a.nan

    def is_inf(self, a: Run) -> Answer:
        return abs(a) == math.inf

    def is_zero(self, a: Run) -> Answer:
        return a == 0

    def signbit(self, a: Run) -> Answer:
        return Answer(a.negative, a.negative)

    def is_integer(self, a: Run) -> Answer:
        return self._of_point(a, float.is_integer)

    def is_odd(self, a: Run) -> Answer:
        return self._of_point(a, lambda x: x.is_integer() and x % 2 == 1)

    def _of_point(self, a: Run, predicate: Any) -> Answer:
        """Decided for a single value only; infinities and NaNs are no integers."""
        if a.low != a.high or a.nan.some != a.nan.every:
            return UNKNOWN
        holds = bool(not a.nan.every and math.isfinite(a.low) and predicate(a.low))
        return Answer(holds, holds)
