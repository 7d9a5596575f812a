"""Admission: which of a device's operations may serve in a ball or a formula, and library functions with which bound.

Nothing in torch is trusted unchecked, on any device and in any form (eager, or compiled as it is used):

  arithmetic, TwoSum, TwoProd, casts   exact or correctly rounded: see `verify.numbers.arithmetic` and `casts`
  library functions                    SAFETY times the largest error seen is within its bound

A function is compared with its enclosure on the arguments that its entry in `verify.numbers.functions` names: hashed
ones with full significands (ordinary, tiny, huge and subnormal ones, and where results are), the neighbours of its
thresholds and exact points, of overflow and underflow, and C23's Annex F on special values. That is a sample: what goes
wrong in a box of arguments that holds none of them is not seen. So a function's bound is trusted, and reports name it
with the largest error seen.

What is not admitted is not used: arithmetic and casts raise NotAdmitted where a number system is made, and a function
that is refused leaves every element that needs it to multiprecision.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from mpmath.libmp import from_float, mpf_add, mpf_ge, mpf_neg, mpf_shift, mpf_sub, to_float

from verify.numbers import NotAdmitted, primitives
from verify.numbers.arithmetic import LARGEST
from verify.numbers.ball import TINY, Span, U
from verify.numbers.casts import Floats, hashed, unit
from verify.numbers.functions import FUNCTIONS, Function, Tried, around
from verify.numbers.primitives import Wrap

POINTS = 1536  # hashed arguments of each function, in equal parts on its strata
SAFETY = 2.0  # a function is admitted where the largest error seen, times this, is within its bound
PREC = 128  # bits of the enclosures with which functions are compared


@dataclass(frozen=True)
class Admitted:
    """A library function with its bound in units of 2^-53 |f|, the largest error seen, and on how many arguments."""

    name: str
    form: str
    bound: float
    seen: float
    points: int


def library(device: Any, wrap: Wrap | None = None, names: Iterable[str] = tuple(FUNCTIONS)) -> tuple[Admitted, ...]:
    """The admitted functions of the device's float64 library, of those named. Cached for each device and form.

    wrap: how a pure function of tensors of one shape is transformed before use (torch.compile, say); None: eager.
    Raises NotAdmitted, which names the operation, where arithmetic, TwoSum, TwoProd or a cast is wrong in that form.
    """
    arithmetic(device, wrap)
    found = (_judged(str(device), wrap, name) for name in names)
    return tuple(one for one in found if isinstance(one, Admitted))


def refused(device: Any, wrap: Wrap | None = None) -> Mapping[str, str]:
    """The functions that are not admitted, each with the argument that shows why. As `library`."""
    arithmetic(device, wrap)
    found = {name: _judged(str(device), wrap, name) for name in FUNCTIONS}
    return {name: one for name, one in found.items() if isinstance(one, str)}


class Bounds(Mapping[str, float]):
    """The bound of each function of `library` by name. One is admitted, in a tenth of a second, when it is asked for:
    most kernels need none. asked: the names, whether they are admitted or not."""

    def __init__(self, device: Any, wrap: Wrap | None = None) -> None:
        self.device, self.wrap = device, wrap
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> float:
        if name not in FUNCTIONS:
            raise KeyError(name)
        self.asked.add(name)
        return {a.name: a.bound for a in library(self.device, self.wrap, (name,))}[name]

    def __iter__(self) -> Iterator[str]:
        return (a.name for a in library(self.device, self.wrap))

    def __len__(self) -> int:
        return len(library(self.device, self.wrap))


@functools.cache
def _judged(device: str, wrap: Wrap | None, name: str) -> Admitted | str:
    """A function, or why it is refused."""
    entry, form = FUNCTIONS[name], "eager" if wrap is None else "compiled"
    truths = _truths(entry, POINTS)
    columns = [torch.tensor(column, dtype=torch.float64, device=device) for column in truths.arguments]
    given = (wrap(entry.tensor) if wrap else entry.tensor)(*columns).tolist()
    errors = truths.errors(entry, np.array(given))
    k = int(errors.argmax())
    seen = float(errors[k])
    if seen * SAFETY <= entry.bound:
        return Admitted(name, form, entry.bound, seen, len(given))
    of = ", ".join(float(column[k]).hex() for column in truths.arguments)
    return (
        f"{name} is not admitted on {device} ({form}): of {of} it gives {given[k]!r}, {seen:.3g} units of 2^-53 off; "
        f"expected at most {entry.bound / SAFETY:g}"
    )


def arithmetic(device: Any, wrap: Wrap | None = None) -> None:
    """Raise NotAdmitted unless arithmetic, TwoSum, TwoProd and casts are admitted."""
    for complaint in primitives.complaints(str(device), wrap).values():
        raise NotAdmitted(complaint)


# ---------------------------------------------------------------- library functions


@dataclass(frozen=True)
class Truths:
    """The values that a function must give at some arguments (columns).

    high, low  f = high + low within 2^-100 |f|; infinite where f is beyond float64
    exactly    the bits are given (Annex F): those of `high`, any NaN for a NaN
    """

    arguments: tuple[tuple[float, ...], ...]
    high: Floats
    low: Floats
    exactly: npt.NDArray[np.bool_]

    def errors(self, entry: Function, given: Floats) -> Floats:
        """|given - f| in units of 2^-53 |f|, one for each argument; none where f underflows and the error is within
        the absolute term of balls; inf where more than a radius would be wrong: a special value, the sign (of a zero
        too, unless balls set it), or an infinity instead of a number."""
        size, same_sign = np.abs(self.high), np.signbit(given) == np.signbit(self.high)
        with np.errstate(all="ignore"):
            off = np.abs((given - self.high) - self.low)
            small = off <= (0.0 if entry.span and Span(*entry.span).normal else TINY / 2)
            found = np.where(small, 0.0, off / size / U)
            found = np.where(np.isinf(self.high), np.where(np.abs(given) >= LARGEST / 2, 0.0, math.inf), found)
        unsigned = (entry.sign == "odd") & (given == 0) & (size <= TINY / 2)
        found = np.where((same_sign | unsigned) & (np.isfinite(given) | np.isinf(self.high)), found, math.inf)
        bits = (given == self.high) & same_sign | np.isnan(given) & np.isnan(self.high)
        return np.asarray(np.where(self.exactly, np.where(bits, 0.0, math.inf), found))


@functools.cache
def _truths(entry: Function, points: int) -> Truths:
    """Of `points` hashed arguments, the others that its entry names and the special values."""
    drawn = (one for columns in _drawn(entry.tried, points) for one in zip(*(c.tolist() for c in columns), strict=True))
    arguments = [one for one in dict.fromkeys(drawn) if _in_domain(entry, one)]
    values = [_value(entry, one) for one in arguments]
    columns = tuple(zip(*arguments, *(one for one, _ in entry.special), strict=True))
    high = np.array([h for h, _ in values] + [due for _, due in entry.special])
    low = np.array([t for _, t in values] + [0.0] * len(entry.special))
    return Truths(columns, high, low, np.arange(len(high)) >= len(values))


def _value(entry: Function, arguments: tuple[float, ...]) -> tuple[float, float]:
    """The function's value as two float64, from an enclosure."""
    lo, hi = entry.enclose(*map(from_float, arguments), PREC)
    for end, sign in ((lo, 1.0), (mpf_neg(hi), -1.0)):
        if mpf_ge(end, from_float(LARGEST)):
            return sign * math.inf, 0.0
    middle = mpf_shift(mpf_add(lo, hi), -1)
    high = to_float(middle, rnd="n")
    return high, to_float(mpf_sub(middle, from_float(high)))


def _in_domain(entry: Function, arguments: tuple[float, ...]) -> bool:
    """Whether the function has a real value other than 0 there."""
    if not all(map(math.isfinite, arguments)) or 0 in arguments:
        return False
    if entry.arity == 2:
        return arguments[0] > 0 or arguments[1] == math.floor(arguments[1])
    return (entry.lower is None or arguments[0] > entry.lower) and entry.at(Fraction(arguments[0])) != 0


def _drawn(tried: Tried, count: int) -> Iterator[tuple[Floats, ...]]:
    """Columns of arguments, `count` of them in equal parts on the hashed strata."""
    each = count // max(len(tried.exponents) + len(tried.intervals), 1)
    for k, (low, high) in enumerate(tried.exponents):
        yield (hashed(k, each, low, high),)
    for k, (start, end) in enumerate(tried.intervals):
        yield (start + (end - start) * unit(k, each),)
    if tried.points:
        yield (around(*tried.points, *(-point for point in tried.points)),)
    for zero in tried.near:
        yield (zero + hashed(9, 104, 0, 0) * 2.0 ** -np.arange(104),)
    yield from tried.more(count)
