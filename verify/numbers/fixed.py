"""Matrices in multiprecision: fixed-point intervals of integers, and exact rationals for what no interval decides.

`FixedMatrices` raises its precision without limit; `RationalMatrices` evaluates the same expressions exactly, as far as
they are rational. Both take 2-D numpy object arrays and offer what `verify.numbers.matmul` says of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from mpmath.libmp import from_man_exp, mpf_exp, mpf_log, mpf_shift, to_int

from verify.facts.truth import ZERO, Truth
from verify.numbers import Undecidable
from verify.numbers import enclosure as en
from verify.numbers.operators import Arithmetic, Binary, Enclosing

Array: TypeAlias = Any  # a 2-D numpy array of Python objects, or of booleans


class Inexact(Exception):
    """A rational evaluation met a number that may be irrational."""


@dataclass(frozen=True, eq=False)
class Fixed(Enclosing):
    """|true 2^places - mid| <= rad elementwise, arrays of Python integers; rad None says that all are exact."""

    n: FixedMatrices
    mid: Array
    rad: Array | None = None

    def __neg__(self) -> Fixed:
        return Fixed(self.n, -self.mid, self.rad)

    def __abs__(self) -> Fixed:
        return Fixed(self.n, abs(self.mid), self.rad)

    def truth(self, row: int, column: int) -> Truth:
        """The element as a Truth: an exact zero may have either sign."""
        mid, rad = int(self.mid[row, column]), 0 if self.rad is None else int(self.rad[row, column])
        if not mid and not rad:
            return Truth("either-zero")
        unit = 1 << self.n.places
        return Truth.real(Fraction(mid - rad, unit), Fraction(mid + rad, unit))


class FixedMatrices:
    """Intervals with `places` binary places, which must hold every exact input.

    Library functions are mpmath's at a working precision as `verify.numbers.enclosure` trusts them.
    """

    def __init__(self, places: int) -> None:
        self.places = places

    def input(self, values: Array) -> Fixed:
        """Exact values of a float64 array."""
        significand, exponent = np.frexp(values)
        whole = (significand * 2.0**53).astype(np.int64).astype(object)
        shift = exponent.astype(np.int64) - 53 + self.places
        low = int(shift.min(initial=0))
        if low < 0:  # trailing zeros may still make them whole
            scaled = whole << (shift - low).astype(object)
            if (scaled & ((1 << -low) - 1)).any():
                raise ValueError(f"{self.places} binary places do not hold the inputs")
            return Fixed(self, scaled >> -low)
        return Fixed(self, whole << shift.astype(object))

    def index(self, values: Array) -> Fixed:
        """Exact integers."""
        return Fixed(self, np.asarray(values, dtype=np.int64).astype(object) << self.places)

    def const(self, value: Any) -> Fixed:
        if isinstance(value, Fixed):
            return value
        exact = Fraction(value) * (1 << self.places)
        near = np.array([[exact.numerator // exact.denominator]], dtype=object)
        return Fixed(self, near, None if exact.denominator == 1 else _ones(near))

    def add(self, a: Fixed, b: Fixed) -> Fixed:
        rad = a.rad if b.rad is None else b.rad if a.rad is None else a.rad + b.rad
        mid = a.mid + b.mid
        return Fixed(self, mid, None if rad is None else rad + 0 * mid)

    def mul(self, a: Fixed, b: Fixed) -> Fixed:
        rad = None
        for left, right in ((a.rad, abs(b.mid)), (abs(a.mid), b.rad), (a.rad, b.rad)):
            if left is not None and right is not None:
                rad = left * right if rad is None else rad + left * right
        return self._shifted(a.mid * b.mid, rad)

    def div(self, a: Fixed, b: Fixed) -> Fixed:
        """Quotients; a divisor that may be 0 raises ZeroDivisionError."""
        rad_a, rad_b = (0 if t is None else t for t in (a.rad, b.rad))
        room = abs(b.mid) - rad_b
        if (room <= 0).any():
            raise ZeroDivisionError("a divisor that may be zero")
        dividend = a.mid << self.places
        mid = dividend // b.mid
        exact = a.rad is None and b.rad is None and not (dividend - mid * b.mid).any()
        if exact:
            return Fixed(self, mid)
        # |a/b - mid| <= (|rad a| + (|mid| + 1) rad b) / room + 1, in units
        return Fixed(self, mid, ((rad_a << self.places) + (abs(mid) + 1) * rad_b) // room + 2)

    def exp(self, a: Fixed) -> Fixed:
        """Exactly 1 at an exact 0. An argument known to within d <= 1 gives a relative radius of d + d^2."""
        mid = np.empty_like(a.mid)
        rad = np.zeros_like(a.mid)
        spread = np.zeros_like(a.mid) if a.rad is None else a.rad
        for at, x in np.ndenumerate(a.mid):
            mid[at], rad[at] = self._exp(x, spread[at])
        return Fixed(self, mid, rad if rad.any() else None)

    def _exp(self, x: int, spread: int) -> tuple[int, int]:
        one = 1 << self.places
        if not x and not spread:
            return one, 0
        if spread > one:
            raise Inexact("an exponent known to less than 1: raise the precision")
        if x < -(self.places << self.places):
            return 0, 3  # exp(-places + 1) < 3 2^-places
        work = self.places + en.GUARD + max(0, 2 * (x >> self.places)) + 4
        value = int(to_int(mpf_shift(mpf_exp(from_man_exp(x, -self.places), work), self.places)))
        own = 2 + (value >> (self.places + 2))
        return value, own + (((value + own) * (spread + (spread * spread >> self.places) + 1)) >> self.places) + (
            1 if spread else 0
        )

    def log(self, a: Fixed) -> Fixed:
        mid, rad = np.empty_like(a.mid), np.empty_like(a.mid)
        spread = np.zeros_like(a.mid) if a.rad is None else a.rad
        for at, x in np.ndenumerate(a.mid):
            room = x - spread[at]
            if room <= 0:
                raise ZeroDivisionError("the logarithm of a number that may be zero")
            if x == 1 << self.places and not spread[at]:
                mid[at], rad[at] = 0, 0
                continue
            value = mpf_log(from_man_exp(x, -self.places), self.places + en.GUARD + 16)
            mid[at] = int(to_int(mpf_shift(value, self.places)))
            rad[at] = (spread[at] << self.places) // room + 3 + (abs(mid[at]) >> self.places)
        return Fixed(self, mid, rad if rad.any() else None)

    def tanh(self, a: Fixed) -> Fixed:
        mid, rad = np.empty_like(a.mid), np.empty_like(a.mid)
        spread = np.zeros_like(a.mid) if a.rad is None else a.rad
        for at, x in np.ndenumerate(a.mid):
            if not x and not spread[at]:
                mid[at], rad[at] = 0, 0
                continue
            low, high = en.tanh(from_man_exp(x, -self.places), self.places + 8)
            ends = [int(to_int(mpf_shift(end, self.places))) for end in (low, high)]
            mid[at], rad[at] = ends[0], ends[1] - ends[0] + 2 + spread[at]
        return Fixed(self, mid, rad if rad.any() else None)

    def sqrt(self, a: Fixed) -> Fixed:
        mid, rad = np.empty_like(a.mid), np.empty_like(a.mid)
        spread = np.zeros_like(a.mid) if a.rad is None else a.rad
        for at, x in np.ndenumerate(a.mid):
            low, high = (math.isqrt(max(end, 0) << self.places) for end in (x - spread[at], x + spread[at]))
            if x < spread[at]:
                raise ZeroDivisionError("the square root of a number that may be negative")
            mid[at], rad[at] = low, 0 if low == high and low * low == x << self.places else high - low + 1
        return Fixed(self, mid, rad if rad.any() else None)

    def where(self, predicate: Array, a: Any, b: Any) -> Fixed:
        x, y = self.const(a), self.const(b)
        mid = np.where(predicate, x.mid, y.mid)
        if x.rad is None and y.rad is None:
            return Fixed(self, mid)
        return Fixed(self, mid, np.where(predicate, _radius(x), _radius(y)))

    def masked(self, mask: Array | None, a: Fixed) -> Fixed:
        return a if mask is None else self.where(mask, a, 0)

    def shift(self, a: Fixed, mask: Array | None) -> Fixed:
        """The largest midpoint of each row under the mask, exact; 0 where nothing is left."""
        mask = np.ones(a.mid.shape, dtype=bool) if mask is None else np.broadcast_to(mask, a.mid.shape)
        tops = [
            max((x for x, kept in zip(*pair, strict=True) if kept), default=0) for pair in zip(a.mid, mask, strict=True)
        ]
        return Fixed(self, np.array(tops, dtype=object)[:, None])

    def transpose(self, a: Fixed) -> Fixed:
        return Fixed(self, a.mid.T, None if a.rad is None else a.rad.T)

    def sum(self, a: Fixed) -> Fixed:
        rad = None if a.rad is None else a.rad.sum(-1, keepdims=True)
        return Fixed(self, a.mid.sum(-1, keepdims=True), rad)

    def matmul(self, a: Fixed, b: Fixed) -> Fixed:
        """Exact integer products and sums, rounded to `places` once."""
        rad = None
        for left, right in ((a.rad, None if a.rad is None else abs(b.mid)), (abs(a.mid), b.rad), (a.rad, b.rad)):
            if left is not None and right is not None:
                rad = left @ right if rad is None else rad + left @ right
        return self._shifted(a.mid @ b.mid, rad)

    def matmul_sizes(self, a: Fixed, b: Fixed) -> tuple[Fixed, Callable[[], Fixed]]:
        return self.matmul(a, b), lambda: self.matmul(abs(a), abs(b))

    def _shifted(self, mid: Array, rad: Array | None) -> Fixed:
        """From 2 * places binary places to `places`."""
        lost = mid & ((1 << self.places) - 1)
        if rad is None:
            return Fixed(self, mid >> self.places, (lost != 0).astype(int).astype(object) if lost.any() else None)
        return Fixed(self, mid >> self.places, (rad >> self.places) + 2)


@dataclass(frozen=True)
class Opaque:
    """A number known by its expression only: two equal expressions are the same number."""

    expression: tuple[Any, ...]

    def __add__(self, other: Any) -> Any:
        return _rational_add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return ZERO if other == self else _rational_add(self, -other)

    def __rsub__(self, other: Any) -> Any:
        return _rational_add(-self, other)

    def __mul__(self, other: Any) -> Any:
        return ZERO if other == 0 else self if other == 1 else Opaque(("*", *sorted((repr(self), repr(other)))))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return Opaque(("/", self, other))

    def __rtruediv__(self, other: Any) -> Any:
        return ZERO if other == 0 else Opaque(("/", other, self))

    def __neg__(self) -> Any:
        return self * Fraction(-1)

    def __abs__(self) -> Any:
        return Opaque(("abs", self))


def _rational_add(a: Any, b: Any) -> Any:
    return a if b == 0 else Opaque(("+", *sorted((repr(a), repr(b)))))


@dataclass(frozen=True, eq=False)
class Rational(Arithmetic):
    """A matrix of Fractions, and of `Opaque` where a number may be irrational."""

    n: RationalMatrices
    values: Array

    def _operate(self, op: Binary, left: Any, right: Any) -> Rational:
        return Rational(self.n, op(self.n.const(left).values, self.n.const(right).values))

    def __neg__(self) -> Rational:
        return Rational(self.n, -self.values)

    def __abs__(self) -> Rational:
        return Rational(self.n, abs(self.values))

    def __bool__(self) -> bool:
        raise Undecidable("an oracle used a matrix as a truth value; use n.where")

    def truth(self, row: int, column: int) -> Truth | None:
        """The element as a Truth, or None where it may be irrational."""
        value = self.values[row, column]
        if isinstance(value, Opaque):
            return None
        return Truth.real(value, value) if value else Truth("either-zero")


class RationalMatrices:
    """Exact evaluation. It answers where irrational numbers cancel or meet a factor 0: in rows of equal scores, whose
    weights are equal.
    """

    def input(self, values: Array) -> Rational:
        different, where = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True)  # few of a half type
        return Rational(self, self._each(Fraction, different).values[where].reshape(np.shape(values)))

    def index(self, values: Array) -> Rational:
        return self._each(lambda v: Fraction(int(v)), np.asarray(values))

    def const(self, value: Any) -> Rational:
        if isinstance(value, Rational):
            return value
        return self._each(Fraction, np.array([[Fraction(value)]], dtype=object))

    def exp(self, a: Rational) -> Rational:
        return self._each(lambda x: Fraction(1) if x == 0 else Opaque(("exp", x)), a.values)

    def log(self, a: Rational) -> Rational:
        return self._each(lambda x: ZERO if x == 1 else Opaque(("log", x)), a.values)

    def tanh(self, a: Rational) -> Rational:
        return self._each(lambda x: ZERO if x == 0 else Opaque(("tanh", x)), a.values)

    def sqrt(self, a: Rational) -> Rational:
        return self._each(lambda x: x if x in (0, 1) else Opaque(("sqrt", x)), a.values)

    def where(self, predicate: Array, a: Any, b: Any) -> Rational:
        return Rational(self, np.where(predicate, self.const(a).values, self.const(b).values))

    def masked(self, mask: Array | None, a: Rational) -> Rational:
        return a if mask is None else self.where(mask, a, 0)

    def shift(self, a: Rational, mask: Array | None) -> Rational:
        """Any number of the row serves where all under the mask are equal: the first; 0 where nothing is left."""
        seen = np.broadcast_to(True if mask is None else mask, a.values.shape)
        column = np.empty((len(seen), 1), dtype=object)
        for at, kept in enumerate(seen):
            column[at, 0] = next(iter(a.values[at][kept]), ZERO)
        return Rational(self, column)

    def transpose(self, a: Rational) -> Rational:
        return Rational(self, a.values.T)

    def sum(self, a: Rational) -> Rational:
        return Rational(self, a.values.sum(-1, keepdims=True))

    def matmul(self, a: Rational, b: Rational) -> Rational:
        if any(isinstance(x, Opaque) for part in (a, b) for x in part.values.flat):
            return Rational(self, a.values @ b.values)
        (rows, under), (columns, others) = _numerators(a.values), _numerators(b.values.T)
        found = rows @ columns.T
        for at, x in np.ndenumerate(found):
            found[at] = Fraction(x, under[at[0]] * others[at[1]])
        return Rational(self, found)

    def matmul_sizes(self, a: Rational, b: Rational) -> tuple[Rational, Callable[[], Rational]]:
        return self.matmul(a, b), lambda: self.matmul(abs(a), abs(b))

    def _each(self, function: Any, values: Array) -> Rational:
        found = np.empty(values.shape, dtype=object)
        for at, x in np.ndenumerate(values):
            found[at] = function(x)
        return Rational(self, found)


def _numerators(rows: Array) -> tuple[Array, list[int]]:
    """Rows of rationals as integers over a denominator of each row: sums of products then need no gcd."""
    under = [math.lcm(*(x.denominator for x in row)) for row in rows]
    found = np.empty(rows.shape, dtype=object)
    for (i, j), x in np.ndenumerate(rows):
        found[i, j] = x.numerator * (under[i] // x.denominator)
    return found, under


def places_for(*arrays: Array) -> int:
    """Binary places that hold every finite value of these float64 arrays."""
    return max((_places(a) for a in arrays), default=0)


def _places(values: Array) -> int:
    significand, exponent = np.frexp(values[values != 0])
    if not len(significand):
        return 0
    whole = (significand * 2.0**53).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return max(0, int((53 - exponent - trailing).max()))


def _ones(like: Array) -> Array:
    return like * 0 + 1


def _radius(a: Fixed) -> Array:
    return a.mid * 0 if a.rad is None else a.rad
