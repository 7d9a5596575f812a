"""The library functions: one entry each, from which number systems, admission and tests follow.

An entry says what a function is in multiprecision (`mp`), as a tensor function with an error bound (`ball`, `ieee`,
`roundoff`), where it is defined and exact, and with what a device's library is tried (`verify.numbers.admit`). To add
one, write its enclosure in `verify.numbers.enclosure` and its entry here. The number systems offer it under its name:
`n.log2(x)`. What has no entry is a `NoFunction`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from verify.facts.oracle import OracleError
from verify.numbers import enclosure as en
from verify.numbers.casts import Floats, hashed, unit

Tensor = torch.Tensor
Change = Callable[[Tensor, Tensor, Tensor], Tensor]
Span = tuple[int, int, int]

INF, NAN = math.inf, math.nan
#: Numerator and denominator bits beyond which a rational becomes an interval.
EXACT_BITS = 16384


class NoFunction(OracleError, AttributeError):
    """An oracle or a formula asks a number system for what it does not have."""


@dataclass(frozen=True)
class Tried:
    """The arguments with which a device's library is compared, besides the special values.

    exponents  of hashed arguments of either sign, with full significands, in strata [low, high]
    intervals  of uniform ones
    points     each with its neighbours, of either sign: thresholds of implementations, exact points, ends of the range
    near       where the function is 0: at distances of all binades, as there each bit counts
    more       others, whole columns of one array an argument, from how many are wanted
    """

    exponents: Sequence[tuple[int, int]] = ()
    intervals: Sequence[tuple[float, float]] = ()
    points: Sequence[float] = ()
    near: Sequence[float] = ()
    more: Callable[[int], Iterator[tuple[Floats, ...]]] = lambda count: iter(())


@dataclass(frozen=True)
class Function:
    """A real function of one argument, or (`arity`) two.

    enclose   its enclosure at a point, in `verify.numbers.enclosure`
    tensor    of float64 tensors on any device
    bound     its relative error there in units of 2^-53 |f|, which admission judges: twice the largest seen is within
    change    change(x, f, r) >= |f(x + d) - f(x)| for |d| <= r, with f >= |f(x)|; infinite or NaN where it does not
              know. For `roundoff` x is the least argument. Arithmetic and square roots alone: it holds in any form
    special   what C23's Annex F.10 or IEEE 754-2019, 9.2 fix: arguments and result
    tried     with what a device's library is compared
    over      from values at points to values on an interval: monotone pieces, see `verify.numbers.enclosure`
    exact     its value where that is rational, None at every other argument; of `point` alone unless given
    point     an argument at which it is exact, and its value
    lower     the open end of its domain (None: all reals)
    sign      "positive", "odd" (the sign of its argument, also where it underflows) or "" (neither)
    limits    at +-inf it is what it tends to; otherwise an infinite argument says nothing
    span      width and exponents of its results in float64 (None: any), see `verify.numbers.ball.Span`
    """

    name: str
    enclose: Callable[..., en.Interval]
    tensor: Callable[..., Tensor]
    bound: float
    special: Sequence[tuple[tuple[float, ...], float]]
    tried: Tried
    change: Change = lambda x, f, r: r + math.nan
    over: Callable[..., en.Interval] = en.increasing
    exact: Callable[[Fraction], Fraction | None] = lambda x: None
    point: tuple[int, int] | None = None
    lower: int | None = None
    sign: str = ""
    limits: bool = False
    span: Span | None = None
    arity: int = field(default=1)

    def at(self, x: Fraction, undefined: bool = False) -> Fraction | None:
        """Its value at a rational where that is rational and known to be; of `undefined` ones at `point` alone."""
        if self.point and x == self.point[0]:
            return Fraction(self.point[1])
        return None if undefined else self.exact(x)


def function(name: str) -> Function:
    """The entry of that name. Raises NoFunction, which says where one is added."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name.startswith("_"):  # what copy, pickle and numpy look for
        raise AttributeError(name)
    raise NoFunction(f"number systems have no function {name!r}: add an entry to verify/numbers/functions.py")


def exact_power(x: Fraction, y: Fraction) -> Fraction | None:
    """x^y of a rational x > 0 where it is rational and of at most about EXACT_BITS bits, else None."""
    root = rational_root(x, y.denominator)
    if root is None:
        return None
    if root == 1:
        return root
    length = root.numerator.bit_length() + root.denominator.bit_length() - 2  # exact for powers of two
    return root**y.numerator if length * abs(y.numerator) <= EXACT_BITS else None


def rational_root(x: Fraction, degree: int) -> Fraction | None:
    """The degree-th root of a rational x > 0 where it is rational, else None."""
    if degree == 1:
        return x
    above = integer_root(x.numerator, degree)
    below = integer_root(x.denominator, degree) if above else 0
    return Fraction(above, below) if above and below else None


def integer_root(n: int, degree: int) -> int:
    """The degree-th root of n >= 1 where it is an integer, else 0."""
    if n == 1:
        return 1
    if degree >= n.bit_length():
        return 0
    if degree == 2:
        root = math.isqrt(n)
    else:
        root, step = 0, 1 << -(-n.bit_length() // degree)
        while step != root:  # Newton from above falls until it reaches the floor of the root
            root, step = step, min(step, ((degree - 1) * step + n // step ** (degree - 1)) // degree)
    return root if root**degree == n else 0


def exact_log2(x: Fraction) -> Fraction | None:
    """log2 of a power of two, else None."""
    p, q = x.numerator, x.denominator
    return None if p & (p - 1) or q & (q - 1) else Fraction(p.bit_length() - q.bit_length())


def rose(r: Tensor) -> Tensor:
    """exp(r) - 1 from above, but for roundings of 2^-47; infinite from 16 on.

    exp(t) - 1 <= t/(1 - t/2) for t = r/16, of which (1 + s)^2 - 1 = s (s + 2) is taken four times.
    """
    t = r * 0.0625
    grown = t / (1.0 - 0.5 * t)
    for _ in range(4):
        grown = grown * (grown + 2.0)
    return torch.where(r < 16.0, grown, INF)


def fell(x: Tensor, r: Tensor) -> Tensor:
    """-log(1 - r/x), by which log x changes where x falls by r, from above; infinite for r >= x.

    Of the fourth root p of 1 - r/x: -4 log(1 - q) <= 4 q (1 - q/2)/(1 - q), q = 1 - p without its cancellation.
    """
    left = (x - r) / x
    half = left.sqrt()
    p = half.sqrt()
    q = r / x / (1.0 + half) / (1.0 + p)
    return torch.where(r < x, 4.0 * q * (1.0 - 0.5 * q) / p, INF)


def _bell(x: Tensor) -> Tensor:
    """2/sqrt(pi) exp(-x^2) for x >= 0, from above."""
    square = x * x
    return 1.1283791670955131 / (1.0 + square + 0.5 * square * square)


def _inverse_root(x: Tensor) -> Tensor:
    return 1.0 / torch.sqrt(x)


def _below(x: Tensor) -> Tensor:
    """1 + x, rounded down."""
    return (1.0 + x) * (1.0 - 2.0**-52)


def _squares(count: int) -> Iterator[tuple[Floats, ...]]:
    yield (np.round(hashed(9, 64, 25, 25)) ** 2,)


def _pairs(count: int) -> Iterator[tuple[Floats, ...]]:
    """Bases and exponents: their powers cover float64's range, or lie near 1, the ends of the range, or exact ones."""
    each = count // 9
    goal = 1100 * (2 * unit(1, each) - 1)  # binary logarithms of powers

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
    base, exponent = around(1.0, 2.0, 0.5), around(1.0, 2.0, 0.5, -1.0, 1023.0, 1024.0, -1074.0)
    yield np.repeat(base, len(exponent)), np.tile(exponent, len(base))


def around(*points: float) -> Floats:
    """Each point and its two neighbours on either side."""
    at = np.array(points)
    below, above = np.nextafter(at, -INF), np.nextafter(at, INF)
    return np.concatenate([at, below, above, np.nextafter(below, -INF), np.nextafter(above, INF)])


_ALL = ((-1074, -1023), (-1074, -60), (-60, -1))
_POSITIVE = ((-1074, -1023), (-1022, 1023))
_LN2 = math.log(2)
#: At zeros of either sign.
_ODD = (((0.0,), 0.0), ((-0.0,), -0.0), ((NAN,), NAN))
_LOG = (
    ((0.0,), -INF), ((-0.0,), -INF), ((1.0,), 0.0), ((-1.0,), NAN), ((-(2.0**-1074),), NAN), ((-INF,), NAN),
    ((INF,), INF), ((NAN,), NAN),
)  # fmt: skip
_EXP = (((0.0,), 1.0), ((-0.0,), 1.0), ((-INF,), 0.0), ((INF,), INF), ((NAN,), NAN))

_ENTRIES = (
    Function(
        "exp", en.exp, torch.exp, bound=4.0, special=_EXP, point=(0, 1), sign="positive", limits=True,
        change=lambda x, f, r: f * rose(r),
        tried=Tried(
            (*_ALL, (-1, 3), (3, 9), (9, 1023)),
            ((-746.0, -700.0), (700.0, 710.0)),
            (709.782712893384, -708.3964185322641, -745.1332191019411, 1.0, *(k * _LN2 / 2 for k in range(-12, 13))),
        ),
    ),
    Function(
        "expm1", en.expm1, torch.expm1, bound=4.0, point=(0, 0), sign="odd", limits=True,
        change=lambda x, f, r: (f + 1.0) * rose(r),
        special=(*_ODD, ((-INF,), -1.0), ((INF,), INF)),
        tried=Tried(
            (*_ALL, (-1, 3), (3, 9), (9, 1023)),
            ((-60.0, -30.0), (-1.0, 1.0), (700.0, 710.0)),
            (709.782712893384, 1.0, 2.0**-54, 36.04, 37.43, *(k * _LN2 / 2 for k in range(-12, 13))),
        ),
    ),
    Function(
        "exp2", en.exp2, torch.exp2, bound=4.0, special=_EXP, point=(0, 1), sign="positive", limits=True,
        # far below, where f is 0 and r huge, f(x + r)
        change=lambda x, f, r: torch.fmin(
            f * rose(r * 0.6931471805599454), torch.exp2(x + r + (x.abs() + r) * 2.0**-51) * (1 + 2.0**-48)
        ),
        exact=lambda x: exact_power(Fraction(2), x),
        tried=Tried(
            (*_ALL, (-1, 3), (3, 10), (10, 1023)),
            ((-1075.0, -1020.0), (1000.0, 1024.0), (-1.0, 1.0)),
            (1024.0, -1022.0, -1074.0, -1075.0, *(k / 2 for k in range(1, 13))),
        ),
    ),
    Function(
        "log", en.log, torch.log, bound=4.0, special=_LOG, point=(1, 0), lower=0,
        change=lambda x, f, r: fell(x, r),
        tried=Tried(
            (*_POSITIVE, (-20, 20)),
            ((0.5, 2.0), (0.99, 1.01)),
            (1.0, 0.5**0.5, 2.0**0.5, 2 / 3, 4 / 3, 2.0, 0.5, 10.0, 2.0**-1022, 2.0**-1074, 2.0**1023),
            near=(1.0,),
        ),
    ),
    Function(
        "log2", en.log2, torch.log2, bound=4.0, special=_LOG, point=(1, 0), lower=0,
        change=lambda x, f, r: fell(x, r) * 1.4426950408889636,
        exact=exact_log2,
        tried=Tried(
            (*_POSITIVE, (-20, 20)),
            ((0.5, 2.0), (0.99, 1.01)),
            (1.0, 0.5**0.5, 2.0**0.5, 2 / 3, 4 / 3, 2.0, 0.5, 8.0, 10.0, 2.0**-1022, 2.0**-1074, 2.0**1023),
            near=(1.0,),
        ),
    ),
    Function(
        "log1p", en.log1p, torch.log1p, bound=8.0, point=(0, 0), lower=-1, sign="odd",
        change=lambda x, f, r: fell(_below(x), r),
        special=(*_ODD, ((-1.0,), -INF), ((-2.0,), NAN), ((-INF,), NAN), ((INF,), INF)),
        tried=Tried(
            (*_ALL, (-1, 60), (60, 1023)),
            ((-1.0, -0.5), (-0.5, 0.5)),
            (-1.0, 1.0, 2.0**0.5 - 1, 0.5**0.5 - 1, -0.5, 0.5, 2.0**-29, 2.0**-54, 2.0**53, 2.0**1023),
            near=(0.0,),
        ),
    ),
    Function(
        "tanh", en.tanh, torch.tanh, bound=8.0, point=(0, 0), sign="odd", limits=True,
        change=lambda x, f, r: r,
        special=(*_ODD, ((INF,), 1.0), ((-INF,), -1.0)),
        tried=Tried(
            (*_ALL, (-1, 6), (6, 1023)),
            ((-1.0, 1.0), (15.0, 25.0)),
            (0.549306, 0.625, 1.0, 9.0, 18.36840028483855, 19.06154746539849, 22.0, 2.0**-28, 2.0**-54),
        ),
    ),
    Function(
        "erf", en.erf, torch.erf, bound=8.0, point=(0, 0), sign="odd", limits=True,
        change=lambda x, f, r: r * _bell(torch.clamp(x - r, min=0.0)),
        special=(*_ODD, ((INF,), 1.0), ((-INF,), -1.0)),
        tried=Tried(
            (*_ALL, (-1, 4), (4, 1023)),
            ((-1.0, 1.0), (1.0, 3.0), (3.0, 6.5)),
            (0.84375, 1.25, 1.0, 2.0, 2.5, 1 / 0.35, 3.0, 4.0, 5.921587195794507, 6.0, 2.0**-28, 2.0**-54),
        ),
    ),
    Function(
        "atan", en.atan, torch.atan, bound=8.0, point=(0, 0), sign="odd", limits=True,
        change=lambda x, f, r: r / torch.clamp(x - r, min=1.0) / torch.clamp(x - r, min=1.0),
        special=(*_ODD, ((INF,), math.pi / 2), ((-INF,), -math.pi / 2)),
        tried=Tried(
            (*_ALL, (-1, 6), (6, 60), (60, 1023)),
            ((-1.0, 1.0), (1.0, 3.0)),
            (0.4375, 0.6875, 1.0, 1.1875, 2.0**0.5 - 1, 2.0**0.5 + 1, 2.4375, 2.0**-28, 2.0**-54, 2.0**54, 2.0**66),
        ),
    ),
    Function(
        "sin", en.sin, torch.sin, bound=4.0, point=(0, 0), over=en.wave,
        change=lambda x, f, r: r,
        special=(*_ODD, ((INF,), NAN), ((-INF,), NAN)),
        tried=Tried(
            (*_ALL, (-1, 3), (3, 20), (20, 60), (60, 1023), (1000, 1023)),
            ((-3.2, 3.2), (3.0, 30.0)),
            (
                *(k * math.pi / 4 for k in range(1, 41)), *(k * math.pi for k in (125, 710, 3550, 33102, 10**6, 10**9)),
                15.0, 39000.0, 94247779.0, 1e14, 2.0**53, 2.0**1023,
                6381956970095103 * 2.0**797,  # of all numbers the nearest to a multiple of pi/2, Muller et al., 11.3.2
            ),
        ),
    ),
    Function(
        "sqrt", en.sqrt, torch.sqrt, bound=4.0, point=(0, 0), lower=0, sign="positive", span=(53, -600, 600),
        exact=lambda x: exact_power(x, Fraction(1, 2)),
        change=lambda x, f, r: torch.where(r < x, r / f, NAN),
        special=(*_ODD, ((-1.0,), NAN), ((-(2.0**-1074),), NAN), ((-INF,), NAN), ((INF,), INF)),
        tried=Tried(
            (*_POSITIVE, (-2, 2)),
            ((1.0, 4.0),),
            (1.0, 2.0, 4.0, 0.25, 2.0**-1022, 2.0**-1074, 2.0**1022, *((94906245.0 + k) ** 2 for k in range(21))),
            more=_squares,
        ),
    ),
    Function(
        "rsqrt", en.rsqrt, _inverse_root, bound=8.0, point=(1, 1), lower=0, sign="positive", span=(53, -600, 600),
        over=en.decreasing,
        exact=lambda x: exact_power(x, Fraction(-1, 2)),
        change=lambda x, f, r: f * rose(0.5 * fell(x, r)),
        special=(((0.0,), INF), ((-0.0,), -INF), ((-1.0,), NAN), ((-INF,), NAN), ((INF,), 0.0), ((NAN,), NAN)),
        tried=Tried((*_POSITIVE, (-2, 2)), ((1.0, 4.0),), (1.0, 2.0, 4.0, 0.25, 2.0**-1022, 2.0**-1074), more=_squares),
    ),
    Function(
        "pow", en.pow, torch.pow, bound=8.0, arity=2,
        special=(
            *(((s * 0.0, -3.0), s * INF) for s in (1.0, -1.0)),
            *(((s * 0.0, y), INF) for s in (1.0, -1.0) for y in (-2.0, -0.5, -INF)),
            *(((s * 0.0, 3.0), s * 0.0) for s in (1.0, -1.0)),
            *(((s * 0.0, y), 0.0) for s in (1.0, -1.0) for y in (2.0, 0.5, INF)),
            *(((-1.0, s * INF), 1.0) for s in (1.0, -1.0)),
            *(((1.0, y), 1.0) for y in (NAN, INF, -INF, 0.3)),
            *(((x, s * 0.0), 1.0) for x in (NAN, INF, -INF, 0.0, -0.0, -3.0) for s in (1.0, -1.0)),
            *(((x, y), NAN) for x in (-2.0, -0.3) for y in (0.5, -1.5)),
            *(((x, -INF), INF) for x in (0.5, -0.5)), *(((x, -INF), 0.0) for x in (1.5, -1.5)),
            *(((x, INF), 0.0) for x in (0.5, -0.5)), *(((x, INF), INF) for x in (1.5, -1.5)),
            ((-INF, -3.0), -0.0), ((-INF, -2.0), 0.0), ((-INF, -0.5), 0.0), ((-INF, 3.0), -INF), ((-INF, 2.0), INF),
            ((-INF, 0.5), INF), ((INF, -0.5), 0.0), ((INF, 0.5), INF), ((NAN, 1.0), NAN), ((2.0, NAN), NAN),
            ((-2.0, NAN), NAN),
        ),
        tried=Tried(more=_pairs),
    ),
)  # fmt: skip

FUNCTIONS: Mapping[str, Function] = {entry.name: entry for entry in _ENTRIES}
#: Their bounds, in units of 2^-53 |f|, by name.
LIBRARY: Mapping[str, float] = {entry.name: entry.bound for entry in _ENTRIES}


def offer(name: str, apply: Callable[..., Any]) -> Callable[..., Any]:
    """`apply(entry, ...)` with the entry of that name, for a number system's `__getattr__`."""
    entry = function(name)
    return lambda *operands: apply(entry, *operands)
