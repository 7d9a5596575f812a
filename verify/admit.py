"""Admission: which of a device's operations may serve in a ball or a formula, and library functions with which bound.

Nothing of torch is trusted unseen, on any device and in any form (eager, or compiled in the way in which it is used):

  arithmetic, TwoSum, TwoProd, casts   exact or correctly rounded: see `verify.numbers.arithmetic` and `casts`
  library functions                    SAFETY times the largest error seen is within the bound of `ball.LIBRARY`

A function is compared with `verify.numbers.enclosure` on hashed arguments with full significands (STRATA: ordinary,
tiny, huge and subnormal ones, and where results are), on the neighbours of its thresholds and exact points, of overflow
and underflow, and with C23's Annex F on special values. That is a sample: what goes wrong in a box of arguments that
holds none of them is not seen. So a function's bound is trusted, and reports name it with the largest error seen.

What is not admitted is not used: arithmetic and casts raise NotAdmitted where a number system is made, and a function
that is refused leaves every element that needs it to multiprecision.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from mpmath.libmp import from_float, mpf_add, mpf_ge, mpf_shift, mpf_sub, to_float

from verify.numbers import NotAdmitted, casts, primitives
from verify.numbers import enclosure as en
from verify.numbers.arithmetic import LARGEST, hashed
from verify.numbers.ball import LIBRARY, SURE, TINY, U
from verify.numbers.primitives import Wrap

__all__ = ["LIBRARY", "POINTS", "SAFETY", "Admitted", "NotAdmitted", "arithmetic", "error", "library", "refused"]

Floats = npt.NDArray[np.float64]

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


def library(device: Any, wrap: Wrap | None = None) -> tuple[Admitted, ...]:
    """The admitted functions of the device's float64 library. Cached for each device and form.

    wrap: how a pure function of tensors of one shape is transformed before use (torch.compile, say); None: eager.
    Raises NotAdmitted, which names the operation, where arithmetic, TwoSum, TwoProd or a cast is wrong in that form.
    """
    return _judged(str(device), wrap)[0]


def refused(device: Any, wrap: Wrap | None = None) -> Mapping[str, str]:
    """The functions that are not admitted, each with the argument that shows why. As `library`."""
    return _judged(str(device), wrap)[1]


class Bounds(Mapping[str, float]):
    """The bound of each function of `library` by name. They are admitted, in seconds, when the first one is asked for:
    multiprecision alone needs none."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def __getitem__(self, name: str) -> float:
        return {a.name: a.bound for a in library(self.device)}[name]

    def __iter__(self) -> Iterator[str]:
        return (a.name for a in library(self.device))

    def __len__(self) -> int:
        return len(library(self.device))


@functools.cache
def _judged(device: str, wrap: Wrap | None) -> tuple[tuple[Admitted, ...], Mapping[str, str]]:
    arithmetic(device, wrap)
    form = "eager" if wrap is None else "compiled"
    found, complaints = [], {}
    for name, bound in LIBRARY.items():
        function = getattr(torch, name)
        truths = _truths(name, POINTS)
        columns = [torch.tensor(column, dtype=torch.float64, device=device) for column in truths.arguments]
        given = (wrap(function) if wrap else function)(*columns).tolist()
        errors = truths.errors(name, np.array(given))
        k = int(errors.argmax())
        seen = float(errors[k])
        if seen * SAFETY <= bound:
            found.append(Admitted(name, form, bound, seen, len(given)))
            continue
        of = ", ".join(float(column[k]).hex() for column in truths.arguments)
        complaints[name] = (
            f"{name} is not admitted on {device} ({form}): of {of} it gives {given[k]!r}, {seen:.3g} units of 2^-53 "
            f"off; expected at most {bound / SAFETY:g}"
        )
    return tuple(found), complaints


def arithmetic(device: Any, wrap: Wrap | None = None) -> None:
    """Raise NotAdmitted unless arithmetic, TwoSum, TwoProd and casts are admitted."""
    for complaint in primitives.complaints(str(device), wrap).values():
        raise NotAdmitted(complaint)


# ---------------------------------------------------------------- library functions


@dataclass(frozen=True)
class Truths:
    """What a function is to give at some arguments (columns).

    high, low  f = high + low within 2^-100 |f|; infinite where f is beyond float64
    exactly    the bits are given (Annex F): those of `high`, any NaN for a NaN
    """

    arguments: tuple[tuple[float, ...], ...]
    high: Floats
    low: Floats
    exactly: npt.NDArray[np.bool_]

    def errors(self, name: str, given: Floats) -> Floats:
        """|given - f| in units of 2^-53 |f|, one for each argument; none where f underflows and the error is within
        the absolute term of balls; inf where more than a radius would be wrong: a special value, the sign (of a zero
        too, unless balls set it), or an infinity instead of a number."""
        size, same_sign = np.abs(self.high), np.signbit(given) == np.signbit(self.high)
        with np.errstate(all="ignore"):
            off = np.abs((given - self.high) - self.low)
            small = off <= (0.0 if name == "sqrt" else TINY / 2)
            found = np.where(small, 0.0, off / size / U)
            found = np.where(np.isinf(self.high), np.where(np.abs(given) >= LARGEST / 2, 0.0, math.inf), found)
        unsigned = (name in SURE) & (given == 0) & (size <= TINY / 2)
        found = np.where((same_sign | unsigned) & (np.isfinite(given) | np.isinf(self.high)), found, math.inf)
        bits = (given == self.high) & same_sign | np.isnan(given) & np.isnan(self.high)
        return np.asarray(np.where(self.exactly, np.where(bits, 0.0, math.inf), found))


def error(name: str, arguments: tuple[float, ...], given: float) -> float:
    """|given - f| in units of 2^-53 |f| at finite arguments where f is real and not 0; see `Truths.errors`."""
    high, low = _value(name, arguments)
    one = Truths(tuple((x,) for x in arguments), np.array([high]), np.array([low]), np.array([False]))
    return float(one.errors(name, np.array([given]))[0])


@functools.cache
def _truths(name: str, points: int) -> Truths:
    """Of `points` hashed arguments, the neighbours of the thresholds and the special values."""
    strata = _pairs(points) if name == "pow" else ((one,) for one in _points(name, points))
    drawn = (one for columns in strata for one in zip(*(column.tolist() for column in columns), strict=True))
    arguments = [one for one in dict.fromkeys(drawn) if _in_domain(name, one)]
    values = [_value(name, one) for one in arguments]
    fixed = SPECIAL[name]
    columns = tuple(zip(*arguments, *(one for one, _ in fixed), strict=True))
    high = np.array([h for h, _ in values] + [due for _, due in fixed])
    low = np.array([t for _, t in values] + [0.0] * len(fixed))
    return Truths(columns, high, low, np.arange(len(high)) >= len(values))


def _value(name: str, arguments: tuple[float, ...]) -> tuple[float, float]:
    """The function's value as two float64, from an enclosure."""
    x = from_float(arguments[0])
    sign = 1.0
    if name == "pow":
        y = arguments[1]
        sign = -1.0 if arguments[0] < 0 and y % 2 == 1 else 1.0
        power = en.multiply(en.log((0, *x[1:]), PREC), (from_float(y), from_float(y)), PREC)
        lo, hi = en.exp(power[0], PREC)[0], en.exp(power[1], PREC)[1]
    else:
        lo, hi = getattr(en, name)(x, PREC)
    if mpf_ge(lo, from_float(LARGEST)):
        return sign * math.inf, 0.0
    middle = mpf_shift(mpf_add(lo, hi), -1)
    high = to_float(middle, rnd="n")
    return sign * high, sign * to_float(mpf_sub(middle, from_float(high)))


def _in_domain(name: str, arguments: tuple[float, ...]) -> bool:
    """Whether the function has a real value other than 0 there."""
    x = arguments[0]
    if not all(map(math.isfinite, arguments)) or 0 in arguments:
        return False
    match name:
        case "log":
            return x > 0 and x != 1
        case "sqrt":
            return x > 0
        case "log1p":
            return x > -1
        case "pow":
            return x > 0 or arguments[1] == math.floor(arguments[1])
    return True


#: Strata of each function: exponents of arguments of either sign; intervals; and points, taken with their neighbours.
STRATA: Mapping[str, tuple[Sequence[tuple[int, int]], Sequence[tuple[float, float]], Sequence[float]]] = {
    "exp": (
        ((-1074, -1023), (-1074, -60), (-60, -1), (-1, 3), (3, 9), (9, 1023)),
        ((-746.0, -700.0), (700.0, 710.0)),
        (709.782712893384, -708.3964185322641, -745.1332191019411, 1.0, *(k * math.log(2) / 2 for k in range(-12, 13))),
    ),
    "expm1": (
        ((-1074, -1023), (-1074, -60), (-60, -1), (-1, 3), (3, 9), (9, 1023)),
        ((-60.0, -30.0), (-1.0, 1.0), (700.0, 710.0)),
        (709.782712893384, 1.0, 2.0**-54, 36.04, 37.43, *(k * math.log(2) / 2 for k in range(-12, 13))),
    ),
    "log": (
        ((-1074, -1023), (-1022, 1023), (-20, 20)),
        ((0.5, 2.0), (0.99, 1.01)),
        (1.0, 0.5**0.5, 2.0**0.5, 2 / 3, 4 / 3, 2.0, 0.5, 10.0, 2.0**-1022, 2.0**-1074, 2.0**1023),
    ),
    "log1p": (
        ((-1074, -1023), (-1074, -60), (-60, -1), (-1, 60), (60, 1023)),
        ((-1.0, -0.5), (-0.5, 0.5)),
        (-1.0, 1.0, 2.0**0.5 - 1, 0.5**0.5 - 1, -0.5, 0.5, 2.0**-29, 2.0**-54, 2.0**53, 2.0**1023),
    ),
    "sqrt": (
        ((-1074, -1023), (-1022, 1023), (-2, 2)),
        ((1.0, 4.0),),
        (1.0, 2.0, 4.0, 0.25, 2.0**-1022, 2.0**-1074, 2.0**1022, *(float(k * k) for k in range(94906245, 94906266))),
    ),
    "tanh": (
        ((-1074, -1023), (-1074, -60), (-60, -1), (-1, 6), (6, 1023)),
        ((-1.0, 1.0), (15.0, 25.0)),
        (0.549306, 0.625, 1.0, 9.0, 18.36840028483855, 19.06154746539849, 22.0, 2.0**-28, 2.0**-54),
    ),
}  # fmt: skip


def _points(name: str, count: int) -> Iterator[Floats]:
    exponents, intervals, thresholds = STRATA[name]
    each = count // (len(exponents) + len(intervals))
    for k, (low, high) in enumerate(exponents):
        yield hashed(k, each, low, high)
    for k, (start, end) in enumerate(intervals):
        yield start + (end - start) * _unit(k, each)
    for threshold in thresholds:
        yield _around(np.array([threshold, -threshold]))
    if name in ("log", "log1p"):  # near an exact point each bit counts
        near = hashed(9, 104, 0, 0) * 2.0 ** -np.arange(104)
        yield near if name == "log1p" else 1 + near
    if name == "sqrt":
        yield np.round(hashed(9, 64, 25, 25)) ** 2  # exact squares


def _pairs(count: int) -> Iterator[tuple[Floats, Floats]]:
    """Bases and exponents: their powers cover float64's range, or lie near 1, the ends of the range, or exact ones."""
    each = count // 9
    goal = 1100 * (2 * _unit(1, each) - 1)  # binary logarithms of powers

    def powers(x: Floats, goal: Floats) -> tuple[Floats, Floats]:
        return x, goal / np.log2(x)

    single = np.abs(hashed(1, each, -149, 127)).astype(np.float32).astype(np.float64)
    x, y = powers(single, goal)
    yield x, y.astype(np.float32).astype(np.float64)
    yield powers(np.abs(hashed(2, each, -1074, 1023)), goal)
    yield powers(np.abs(hashed(12, each, -1074, -1023)), goal)
    yield powers(1 + hashed(3, each, 0, 0) * 2.0 ** -(1.0 + np.arange(each) % 52), goal)
    ends = np.resize(np.array([1024.0, -1022.0, -1074.0, 128.0, -126.0, -149.0]), each)
    yield powers(np.abs(hashed(4, each, -20, 20)), ends + hashed(5, each, -30, 0))
    x = hashed(6, each, -3, 3)
    yield -np.abs(x), np.round(goal / np.log2(np.abs(x))) + np.arange(each) % 2
    yield np.abs(hashed(7, each, -1074, 1023)), hashed(8, each, -1074, -40)
    yield np.abs(hashed(9, each, -1074, 1023)), hashed(10, each, -2, 2)
    whole = np.abs(hashed(11, each, 0, 9)).round()
    yield whole, np.resize(np.array([1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 1.5]), each)
    base, exponent = (
        _around(np.array([1.0, 2.0, 0.5])),
        _around(np.array([1.0, 2.0, 0.5, -1.0, 1023.0, 1024.0, -1074.0])),
    )
    yield np.repeat(base, len(exponent)), np.tile(exponent, len(base))


def _around(points: Floats) -> Floats:
    """Each point and its two neighbours on either side."""
    below, above = np.nextafter(points, -math.inf), np.nextafter(points, math.inf)
    further = np.nextafter(below, -math.inf), np.nextafter(above, math.inf)
    return np.concatenate([points, below, above, *further])


def _unit(seed: int, count: int) -> Floats:
    """Numbers in [0, 1) with 53 hashed bits."""
    return np.asarray((casts.words(seed << 30, count) >> 11 & (1 << 53) - 1) * 2.0**-53)


_INF, _NAN = math.inf, math.nan
#: What C23 fixes, Annex F.10: arguments and result.
SPECIAL: Mapping[str, Sequence[tuple[tuple[float, ...], float]]] = {
    "exp": [((0.0,), 1.0), ((-0.0,), 1.0), ((-_INF,), 0.0), ((_INF,), _INF), ((_NAN,), _NAN)],
    "expm1": [((0.0,), 0.0), ((-0.0,), -0.0), ((-_INF,), -1.0), ((_INF,), _INF), ((_NAN,), _NAN)],
    "log": [
        ((0.0,), -_INF), ((-0.0,), -_INF), ((1.0,), 0.0), ((-1.0,), _NAN), ((-(2.0**-1074),), _NAN), ((-_INF,), _NAN),
        ((_INF,), _INF), ((_NAN,), _NAN),
    ],
    "log1p": [
        ((0.0,), 0.0), ((-0.0,), -0.0), ((-1.0,), -_INF), ((-2.0,), _NAN), ((-_INF,), _NAN), ((_INF,), _INF),
        ((_NAN,), _NAN),
    ],
    "sqrt": [
        ((0.0,), 0.0), ((-0.0,), -0.0), ((-1.0,), _NAN), ((-(2.0**-1074),), _NAN), ((-_INF,), _NAN), ((_INF,), _INF),
        ((_NAN,), _NAN),
    ],
    "tanh": [((0.0,), 0.0), ((-0.0,), -0.0), ((_INF,), 1.0), ((-_INF,), -1.0), ((_NAN,), _NAN)],
    "pow": [
        *(((s * 0.0, -3.0), s * _INF) for s in (1.0, -1.0)),
        *(((s * 0.0, y), _INF) for s in (1.0, -1.0) for y in (-2.0, -0.5, -_INF)),
        *(((s * 0.0, 3.0), s * 0.0) for s in (1.0, -1.0)),
        *(((s * 0.0, y), 0.0) for s in (1.0, -1.0) for y in (2.0, 0.5, _INF)),
        *(((-1.0, s * _INF), 1.0) for s in (1.0, -1.0)),
        *(((1.0, y), 1.0) for y in (_NAN, _INF, -_INF, 0.3)),
        *(((x, s * 0.0), 1.0) for x in (_NAN, _INF, -_INF, 0.0, -0.0, -3.0) for s in (1.0, -1.0)),
        *(((x, y), _NAN) for x in (-2.0, -0.3) for y in (0.5, -1.5)),
        *(((x, -_INF), _INF) for x in (0.5, -0.5)), *(((x, -_INF), 0.0) for x in (1.5, -1.5)),
        *(((x, _INF), 0.0) for x in (0.5, -0.5)), *(((x, _INF), _INF) for x in (1.5, -1.5)),
        ((-_INF, -3.0), -0.0), ((-_INF, -2.0), 0.0), ((-_INF, -0.5), 0.0), ((-_INF, 3.0), -_INF), ((-_INF, 2.0), _INF),
        ((-_INF, 0.5), _INF), ((_INF, -0.5), 0.0), ((_INF, 0.5), _INF), ((_NAN, 1.0), _NAN), ((2.0, _NAN), _NAN),
        ((-2.0, _NAN), _NAN),
    ],
}  # fmt: skip
