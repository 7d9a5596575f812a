"""Certified enclosures on tensors: a float64 (or double-double) midpoint and a radius.

Every operation encloses the real result: the radius is the propagated radius plus the operation's
own error, which TwoSum and TwoProd give exactly (Knuth; Dekker 1971), a residual gives for
division and square root, and admission gives for library functions (`verify.numbers.admit`). A radius of
zero means that midpoint + tail is exact. A NaN radius means undecided.

`Ball64` is one float64 and suits a compiled or native pass over billions of elements; `BallDD`
carries a second float64 and is run eagerly on the few elements that `Ball64` leaves open.
Conventions that `verify.numbers.decide` relies on: a midpoint of +-inf with radius 0 is either an infinity
of extended-real arithmetic or a library result beyond float64; both exceed every narrower format.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch

from verify.facts.formats import FORMATS, Format, floor_log2
from verify.numbers import Undecidable, primitives
from verify.numbers.cpp import on_host
from verify.numbers.functions import FUNCTIONS, LIBRARY, Function, offer
from verify.numbers.operators import Binary, Comparing, Enclosing, Predicates
from verify.numbers.transforms import two_prod, two_sum

Tensor = torch.Tensor
Rest = Callable[[], tuple[Tensor, Tensor | float]]
U = 2.0**-53
TINY = 2.0**-1022  # absolute term of any operation that may underflow in float64
GROW = 1.0 + 2.0**-45  # covers the roundings of the radius arithmetic itself
LEAST = -800  # numbers of at least 2^LEAST leave products, rests and slacks that are far from underflow


@dataclass(frozen=True)
class Span:
    """What is known about a value's bits before any tensor is seen: at most `width` significant bits,
    all of them between 2^low and 2^high. It decides which operations are exact in float64."""

    width: int
    low: int
    high: int

    @property
    def exact(self) -> bool:
        return min(self.width, self.high - self.low + 1) <= 53 and self.low >= -1074 and self.high <= 1022

    @property
    def finite(self) -> bool:
        return self.high <= 1022

    @property
    def normal(self) -> bool:
        return self.low >= -1022 and self.high <= 1022


LOOSE = Span(53, -1074, 1100)


def span_of(fmt: Format) -> Span:
    return Span(fmt.precision, fmt.emin - fmt.precision + 1, fmt.emax)


def filled(value: Tensor | float | None, like: Tensor) -> Tensor:
    """A tensor of the shape of `like` from one that broadcasts to it, or from a number."""
    return torch.as_tensor(value, dtype=torch.float64, device=like.device).expand_as(like)


@dataclass(frozen=True, eq=False)
class Ball(Enclosing, Comparing):
    """|true - (mid + tail)| <= radius elementwise: a float64 tensor, or the float 0.0.

    `rad` None stands for relative |mid| + absolute, computed when asked for. `source` marks an
    exact input (or its negation or absolute value), which alone compares. `sure`: the true value
    has the sign of mid even where the ball touches zero (and a zero mid carries it). `rest` gives what float64
    rounds away of a sum, product or quotient, as (left, slack): |true - (mid + left)| <= slack; the radius covers both.
    `apart`: the operands are so short that the radius alone tells on which side of the numbers and midpoints of formats
    of at most 24 bits the true value lies.
    """

    n: Ball64
    mid: Tensor
    rad: Tensor | float | None
    span: Span = LOOSE
    source: bool = False
    tail: Tensor | float = 0.0
    relative: float = 0.0
    absolute: float = 0.0
    sure: bool = False
    rest: Rest | None = None
    apart: bool = False

    @property
    def radius(self) -> Tensor | float:
        if self.rad is not None:
            return self.rad
        return _relative(self.mid, self.relative, self.absolute)

    def __neg__(self) -> Ball:
        return replace(self, mid=-self.mid, tail=-self.tail, rest=None if self.rest is None else _negated(self.rest))

    def __abs__(self) -> Ball:
        if isinstance(self.tail, float):
            return replace(self, mid=self.mid.abs(), rest=None)
        return replace(self, mid=self.mid.abs(), tail=torch.where(self.mid < 0, -self.tail, self.tail))

    def _exact(self) -> Tensor:
        if not self.source:
            raise Undecidable("an oracle compared a computed value; predicates take exact inputs only")
        return self.mid

    def _compare(self, op: Binary, other: Any) -> Tensor:
        return op(self._exact(), other)  # type: ignore[no-any-return]


class Ball64(Predicates):
    """The float64 ball system on one device.

    bounds: relative error of each admitted library function in units of 2^-53 |f|; one that is
    missing gives NaN radii (undecided). functions: replacements of torch's, by name.
    Raises NotAdmitted where the device's arithmetic or casts are not what enclosures rest on.
    """

    double = False
    carries = True  #: whether balls have a `rest`

    def __init__(
        self,
        device: Any,
        bounds: Mapping[str, float] = LIBRARY,
        functions: Mapping[str, Callable[..., Tensor]] | None = None,
    ) -> None:
        primitives.require(device)
        self.device = device
        self.bounds = bounds
        self.functions = dict(functions or {})

    def input(self, tensor: Tensor) -> Ball:
        """An exact input from a tensor of any supported format."""
        fmt = FORMATS[str(tensor.dtype).removeprefix("torch.")]
        return Ball(self, tensor.to(torch.float64), 0.0, span_of(fmt), source=True, sure=True)

    def const(self, value: Any) -> Ball:
        """An exact constant; a rational that float64 does not hold gets a radius of one unit roundoff."""
        if isinstance(value, Ball):
            return value
        exact = Fraction(value)
        near = float(exact) or math.copysign(0.0, float(value))  # a zero keeps its sign
        mid = torch.tensor(near, dtype=torch.float64, device=self.device)
        if Fraction(near) != exact:
            return Ball(self, mid, None, LOOSE, relative=U, sure=True)
        if near == 0:
            return Ball(self, mid, 0.0, Span(1, 0, 0), source=True, sure=True)
        magnitude = abs(exact)
        odd = magnitude.numerator // (magnitude.numerator & -magnitude.numerator)
        low = (magnitude.numerator & -magnitude.numerator).bit_length() - magnitude.denominator.bit_length()
        span = Span(odd.bit_length(), low, floor_log2(magnitude))
        return Ball(self, mid, 0.0, span, source=True, sure=True)

    def add(self, a: Ball, b: Ball) -> Ball:
        span = Span(53, min(a.span.low, b.span.low), max(a.span.high, b.span.high) + 1)
        exact = span.low >= -1074 and span.high - span.low < 53 and span.high <= 1022
        if not span.finite or not self._know(a, b):
            found = _summed(a.mid, _rad(a), b.mid, _rad(b), exact=exact)
            return Ball(self, found[0], found[1] if len(found) > 1 else 0.0, span)
        mid, error = two_sum(a.mid, b.mid)
        if exact and _point(a) and _point(b):
            return Ball(self, mid, 0.0, span)
        return self._sum(mid, error, (a, b), span)

    def _know(self, *operands: Ball) -> bool:
        """Whether each operand is exact, or what float64 rounds away of it is known."""
        return self.carries and all(_point(a) or a.rest is not None for a in operands)

    def _sum(self, head: Tensor, left: Tensor, terms: tuple[Ball, ...], span: Span, sure: bool = False) -> Ball:
        """head, left and the rests of the terms, as a ball."""
        slack: Tensor | float = 0.0
        if all(term.rest is None for term in terms):
            return Ball(self, head, left.abs(), span, sure=sure, rest=lambda: (left, 0.0))
        for part, lost in (_rest(term) for term in terms if term.rest is not None):
            left, own = two_sum(left, full(part, left))
            slack = _total(slack, lost, own.abs())
        off = (left > 0) | (left < 0)  # neither where an operand is infinite, of which TwoSum makes a NaN
        mid, tail = two_sum(head, left)
        mid, tail = torch.where(off, mid, head), torch.where(off, tail, left)  # a zero keeps its sign
        return Ball(self, mid, _total(tail.abs(), slack), span, sure=sure, rest=lambda: (tail, slack))

    def mul(self, a: Ball, b: Ball) -> Ball:
        span = Span(a.span.width + b.span.width, a.span.low + b.span.low, a.span.high + b.span.high + 1)
        sure = a.sure and b.sure
        if span.exact and _point(a) and _point(b):
            return Ball(self, a.mid * b.mid, 0.0, span, sure=sure)
        if self._know(a, b) and (_point(a) or _point(b)) and _splits(a, b) and span.low >= LEAST:
            return self._multiplied(a, b, replace(span, width=53), sure)
        relative, absolute = 0.0, 0.0
        if not span.exact:
            relative, absolute = U * GROW, 0.0 if span.normal else TINY
            span = replace(span, width=53)
        if _point(a) and _point(b):
            return Ball(self, a.mid * b.mid, None, span, relative=relative, absolute=absolute, sure=sure)
        given = a.mid, _rad(a), b.mid, _rad(b), relative, absolute
        mid, rad = _factors(*given, finite=a.span.finite, other=b.span.finite)
        return Ball(self, mid, rad, span, sure=sure)

    def _multiplied(self, a: Ball, b: Ball, span: Span, sure: bool) -> Ball:
        """The product of two numbers of which one at least is exact, and all that TwoProd makes of them a float64."""
        mid, left = two_prod(a.mid, b.mid)
        if _point(a) and _point(b):
            return Ball(self, mid, None, span, relative=U * GROW, sure=sure, rest=lambda: (left, 0.0))
        factor, other = (a, b) if _point(a) else (b, a)

        def times() -> tuple[Tensor, Tensor | float]:
            part, slack = _rest(other)
            more = factor.mid * part
            return more, _total(more.abs() * U, _times(factor.mid.abs(), slack))

        return self._sum(mid, left, (replace(other, rest=times),), span, sure)

    def div(self, a: Ball, b: Ball) -> Ball:
        span = Span(53, a.span.low - b.span.high - 55, a.span.high - b.span.low + 1)
        if not (a.span.finite and b.span.finite):
            span = LOOSE
        mid = a.mid / b.mid
        if self._know(a) and _point(b) and _splits(a, b) and _divides(a.span, b.span):
            return self._divided(mid, a, b, span)
        relative, absolute = U * GROW, 0.0 if span.normal else TINY
        if _point(a) and _point(b):
            return Ball(self, mid, None, span, relative=relative, absolute=absolute, sure=a.sure)
        room = b.mid.abs() - b.radius
        spread = _total(a.radius, _times(mid.abs(), b.radius)) / room * GROW
        rad = torch.where(room > 0, mid.abs() * relative + absolute + spread, torch.nan)
        return Ball(self, mid, _guard(rad, a, b), span, sure=a.sure)

    def _divided(self, mid: Tensor, a: Ball, b: Ball, span: Span) -> Ball:
        """a / b of an exact b: what is left of the quotient is over b what is left of a, and a - mid b, a float64."""

        def rest() -> tuple[Tensor, Tensor | float]:
            part, slack = _rest(a)
            product, error = two_prod(mid, b.mid)
            over = torch.where(torch.isfinite(b.mid), (a.mid - product) - error, 0.0) + part
            left = over / b.mid
            return left, _total(left.abs() * (3 * U), slack / b.mid.abs() if isinstance(slack, Tensor) else 0.0)

        found = Ball(self, mid, None, span, relative=U * GROW, sure=a.sure, rest=rest)
        if _point(a):
            return replace(found, apart=a.span.width <= 48 and b.span.width <= 24)
        return self._sum(mid, torch.zeros_like(mid), (found,), span, a.sure)

    def __getattr__(self, name: str) -> Callable[..., Ball]:
        return offer(name, self.apply)

    def pow(self, x: Ball, y: Ball) -> Ball:
        """x ** y of exact inputs (an inexact base or exponent is left undecided)."""
        mid = self.functions.get("pow", torch.pow)(x.mid, y.mid)
        if "pow" not in self.bounds:
            return self._undecided(mid)
        relative = self.bounds["pow"] * U
        if _point(x) and _point(y):
            return Ball(self, mid, None, LOOSE, relative=relative, absolute=TINY, sure=True)
        exact = (full(x.radius, mid) == 0) & (full(y.radius, mid) == 0)
        rad = torch.where(exact, mid.abs() * relative + TINY, torch.nan)
        return Ball(self, mid, _saturate(rad, mid), LOOSE, sure=True)

    def apply(self, entry: Function, argument: Any) -> Ball:
        """A function of the device's library."""
        a = self.const(argument)
        mid = self.functions.get(entry.name, entry.tensor)(a.mid)
        if entry.name not in self.bounds:
            return self._undecided(mid)
        span = Span(*entry.span) if entry.span else LOOSE
        relative, absolute = self.bounds[entry.name] * U, 0.0 if span.normal else TINY
        sure = entry.sign == "positive" or (entry.sign == "odd" and a.sure)
        if entry.sign == "odd" and sure:  # zeros may have lost the sign: torch's vectorised log1p(-2^-1074) is +0
            mid = torch.copysign(mid, a.mid)
        if _point(a):
            return Ball(self, mid, None, span, relative=relative, absolute=absolute, sure=sure)
        rad = _moved(a.mid, full(a.radius, mid), mid, relative, absolute, name=entry.name)
        return Ball(self, mid, rad if entry.limits else _guard(rad, a, a), span, sure=sure)

    def _undecided(self, mid: Tensor) -> Ball:
        return Ball(
            self, mid, torch.full_like(mid, torch.nan), LOOSE, tail=torch.zeros_like(mid) if self.double else 0.0
        )

    def where(self, predicate: Any, a: Any, b: Any) -> Ball:
        x, y = self.const(a), self.const(b)
        mid = torch.where(predicate, x.mid, y.mid)
        rad: Tensor | float = 0.0
        if not (_point(x) and _point(y)):
            rad = torch.where(predicate, x.radius, y.radius)
        if isinstance(x.tail, float) and isinstance(y.tail, float):
            tail: Tensor | float = 0.0
        else:
            tail = torch.where(predicate, x.tail, y.tail)
        span = Span(max(x.span.width, y.span.width), min(x.span.low, y.span.low), max(x.span.high, y.span.high))
        return Ball(self, mid, rad, span, source=x.source and y.source, tail=tail, sure=x.sure and y.sure)

    def max(self, a: Any, b: Any) -> Ball:
        x, y = self.const(a), self.const(b)
        if not (x.source and y.source):
            raise Undecidable("max of computed values in a ball")
        return self.where(x.mid >= y.mid, x, y)

    def min(self, a: Any, b: Any) -> Ball:
        return -self.max(-self.const(a), -self.const(b))

    def _asked(self, a: Ball) -> Tensor:
        return a._exact()


class BallDD(Ball64):
    """Double-double: the tail holds what float64 rounds away, the radius what even that loses.

    Run eagerly only: compilers may contract the error-free transformations. Each operation tracks
    its exact residuals, so no error theorem is needed and exact results have radius 0. Library
    functions are left undecided (mp takes them), except where arithmetic gives more than float64 holds.
    Products that leave the range in which TwoProd is exact get a TINY-based term or NaN.
    """

    double = True

    def add(self, a: Ball, b: Ball) -> Ball:
        mid, tail, rad = _added(a.mid, *known(a), b.mid, *known(b))
        return Ball(self, mid, rad, LOOSE, tail=tail)

    def mul(self, a: Ball, b: Ball) -> Ball:
        mid, tail, rad = _multiplied(a.mid, *known(a), b.mid, *known(b))
        return Ball(self, mid, rad, LOOSE, tail=tail)

    def div(self, a: Ball, b: Ball) -> Ball:
        point_a, point_b = replace(a, rad=0.0), replace(b, rad=0.0)
        q0 = a.mid / b.mid
        rest = self.add(point_a, -self.mul(point_b, self._point(q0)))
        q1 = rest.mid / b.mid
        rest = self.add(rest, -self.mul(point_b, self._point(q1)))
        mid, tail = two_sum(q0, q1)
        mid = _signed_zero(mid, q0)
        room = b.mid.abs() * (1 - 2.0**-50) - b.radius
        numerator = _total(rest.mid.abs() * GROW, rest.radius, a.radius, _times(mid.abs() * GROW, b.radius))
        rad = torch.where(room > 0, numerator / room * GROW, torch.nan)
        return Ball(self, mid, torch.where(full(numerator, mid) == 0, rad, rad + TINY), LOOSE, tail=tail)

    def sqrt(self, a: Ball) -> Ball:
        s0 = a.mid.sqrt()
        rest = self.add(replace(a, rad=0.0), -self.mul(self._point(s0), self._point(s0)))
        s1 = rest.mid / (2 * s0)
        mid, tail = two_sum(s0, s1)
        square = self._point(mid, tail)
        rest = self.add(replace(a, rad=0.0), -self.mul(square, square))
        numerator = _total(rest.mid.abs() * GROW, rest.radius, a.radius)
        zero = (a.mid == 0) & (numerator == 0)
        rad = torch.where(zero, 0.0, torch.where(a.mid > 0, numerator / mid * GROW, torch.nan))
        mid, tail = torch.where(zero, s0, mid), torch.where(zero, 0.0, tail)
        return Ball(self, mid, rad, LOOSE, tail=tail)

    def apply(self, entry: Function, argument: Any) -> Ball:
        return self._undecided(self.const(argument).mid)

    def exp(self, a: Ball) -> Ball:
        """Of an exact float64 1 + expm1(a) up to 1: beside 1 its radius is that of expm1 (results near midpoints). Of
        others, from -690, what the library gives: added to 1 it is known well, however small."""
        if not {"exp", "expm1"} <= self.bounds.keys() or not _point(a) or not isinstance(a.tail, float):
            return self._undecided(a.mid)
        small, large = torch.expm1(a.mid), torch.exp(a.mid)
        mid, tail = two_sum(torch.ones_like(small), small)
        near, known = a.mid.abs() <= 1, (a.mid >= -690) & (large < torch.inf)
        rad = torch.where(known, large * (self.bounds["exp"] * U * GROW), torch.nan)
        rad = torch.where(near, small.abs() * (self.bounds["expm1"] * U * GROW) + TINY, rad)
        rad, tail = torch.where(a.mid == 0, 0.0, rad), torch.where(near, tail, 0.0)
        return Ball(self, torch.where(near, mid, large), rad, LOOSE, tail=tail, sure=True)

    def tanh(self, a: Ball) -> Ball:
        """(1 - e)/(1 + e), e = exp(-2|a|), of an exact |a| >= 1: what is left to 1 is known, however little."""
        e, one = self.exp(self._point(-2.0 * a.mid.abs())), self.const(1)
        size = self.div(self.add(one, -e), self.add(one, e))
        known = (a.mid.abs() >= 1) & torch.as_tensor(_point(a))
        return self.where(known, self.where(a.mid < 0, -size, size), self._undecided(a.mid))

    def erf(self, a: Ball) -> Ball:
        """1 - erfc(a) of an exact |a| >= 4: erfc lies between the first two sums of its asymptotic expansion (DLMF
        7.12.1, and 7.12(i) on their errors)."""
        size = a.mid.abs()
        e = self.exp(self._point(-(size * size)))
        scale = 1 / (math.sqrt(math.pi) * size)
        most, least = (e.mid + e.radius) * scale, (e.mid - e.radius) * scale * (1 - 0.5 / (size * size))
        rad, left = (most - least) * 0.5 + most * 2.0**-40, torch.copysign((most + least) * 0.5, -a.mid)
        known = (size >= 4) & torch.as_tensor(_point(a) and a.span.width <= 26)  # its square is exact
        one = torch.copysign(torch.ones_like(size), a.mid)
        return self.where(known, Ball(self, one, rad, LOOSE, tail=left, sure=True), self._undecided(a.mid))

    def pow(self, x: Ball, y: Ball) -> Ball:
        """Powers of exact x > 0 and y by arithmetic: those that may lie at or beside midpoints, and all powers of two:
        one is half the smallest subnormal."""
        found = self._undecided(x.mid * y.mid)
        if not (_point(x) and _point(y)):
            return found
        moderate = (x.mid > 2.0**-100) & (x.mid < 2.0**100)  # eighth powers overflow beyond
        for exponent, power in self.powers(x).items():
            here = (y.mid == exponent) & (moderate | (abs(exponent) < 5))
            if not nowhere(here):
                found = self.where(here, power(), found)
        bits = x.mid.view(torch.int64)
        place = y.mid * ((bits >> 52) - 1023).to(torch.float64)
        two = (x.mid > 0) & (bits & (1 << 52) - 1 == 0) & (place.abs() <= 1022) & (place == place.round())
        if nowhere(two):
            return found
        exact = (torch.where(two, place, 0.0).to(torch.int64) + 1023 << 52).view(torch.float64)
        return self.where(two, self._point(exact, torch.zeros_like(exact)), found)

    def powers(self, x: Ball) -> dict[float, Callable[[], Ball]]:
        """Powers of x > 0 by arithmetic, by exponent; integer ones are exact where two float64 hold them."""
        square = functools.cache(lambda: self.mul(x, x))
        cube = functools.cache(lambda: self.mul(square(), x))
        fourth = functools.cache(lambda: self.mul(square(), square()))
        root = functools.cache(lambda: self.sqrt(x))
        return {
            2.0: square, 3.0: cube, 4.0: fourth, 5.0: lambda: self.mul(fourth(), x),
            6.0: lambda: self.mul(fourth(), square()), 7.0: lambda: self.mul(fourth(), cube()),
            8.0: lambda: self.mul(fourth(), fourth()), -1.0: lambda: self.div(self.const(1), x),
            0.5: root, -0.5: lambda: self.div(self.const(1), root()), 1.5: lambda: self.mul(x, root()),
            2.5: lambda: self.mul(square(), root()), 3.5: lambda: self.mul(cube(), root()),
        }  # fmt: skip

    def _point(self, mid: Tensor, tail: Tensor | float = 0.0) -> Ball:
        return Ball(self, mid, 0.0, tail=tail)


def known(a: Ball) -> tuple[Tensor | None, Tensor | None]:
    """Tail and radius of a ball, None where they are 0 whatever its tensors hold."""
    return a.tail if isinstance(a.tail, Tensor) else None, _rad(a)


def _rad(a: Ball) -> Tensor | None:
    rad = a.radius
    return rad if isinstance(rad, Tensor) else None


@on_host
def _relative(mid: Tensor, relative: float, absolute: float) -> Tensor:
    """The radius that a ball states by its midpoint."""
    rad: Tensor = _saturate(mid.abs() * relative + absolute, mid)
    return rad


@on_host
def _moved(x: Tensor, rad: Tensor, mid: Tensor, relative: float, absolute: float, *, name: str) -> Tensor:
    """The same of a function's result, whose argument has a radius."""
    spread = FUNCTIONS[name].change(x, mid.abs(), rad) * GROW
    found: Tensor = _saturate(mid.abs() * relative + absolute + spread, mid)
    return found


@on_host
def _summed(a: Tensor, a_rad: Tensor | None, b: Tensor, b_rad: Tensor | None, *, exact: bool) -> tuple[Tensor, ...]:
    """Midpoint and radius of a sum; no radius of one that is exact. exact: nothing is rounded away."""
    mid, error = two_sum(a, b)
    rad = _total(0.0 if exact else error.abs() * GROW, _given(a_rad), _given(b_rad))
    return (mid, rad) if isinstance(rad, Tensor) else (mid,)


@on_host
def _factors(
    a: Tensor, a_rad: Tensor | None, b: Tensor, b_rad: Tensor | None, relative: float, absolute: float, *,
    finite: bool, other: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Midpoint and radius of a product of which one factor has a radius; finite, other: whether they are numbers."""
    mid, x, y = a * b, _given(a_rad), _given(b_rad)
    spread = _total(_times(a.abs(), y), _times(b.abs(), x), _times(x, y))
    rad = full(_total(mid.abs() * relative + absolute, spread), mid)
    for factor, known in ((a, finite), (b, other)):  # see `_guard`
        rad = rad if known else torch.where(torch.isinf(factor), torch.nan, rad)
    return mid, rad


@on_host
def _added(
    a: Tensor, a_tail: Tensor | None, a_rad: Tensor | None, b: Tensor, b_tail: Tensor | None, b_rad: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Midpoint, tail and radius of a sum."""
    s0, s1 = two_sum(a, b)
    t0, t1 = two_sum(full(_given(a_tail), s0), full(_given(b_tail), s0))
    c0, c1 = two_sum(s1, t0)
    d0, d1 = two_sum(s0, c0)
    e0, e1 = two_sum(d1, t1)
    f0, f1 = two_sum(e0, c1)
    mid, tail = two_sum(d0, f0)
    rad = _total((e1.abs() + f1.abs()) * GROW, _given(a_rad), _given(b_rad))
    return _signed_zero(mid, s0), tail, full(rad, mid)


@on_host
def _multiplied(
    a: Tensor, a_tail: Tensor | None, a_rad: Tensor | None, b: Tensor, b_tail: Tensor | None, b_rad: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Midpoint, tail and radius of a product."""
    p0, p1 = two_prod(a, b)
    at, bt = full(_given(a_tail), a), full(_given(b_tail), b)
    q0, q1 = two_prod(a, bt)
    r0, r1 = two_prod(at, b)
    c0, c1 = two_sum(q0, r0)
    d0, d1 = two_sum(p1, c0)
    mid, tail = two_sum(p0, d0)
    left = q1.abs() + r1.abs() + c1.abs() + d1.abs() + (at * bt).abs()
    # TwoProd is exact for |ab| >= 2^-900 (or a zero factor) and factors below 2^990.
    lost = ~((a == 0) | (b == 0) | (p0.abs() >= 2.0**-900))
    own = left * GROW + lost.to(torch.float64) * TINY
    x, y = _given(a_rad), _given(b_rad)
    spread = _total(_times(a.abs() * GROW, y), _times(b.abs() * GROW, x), _times(x, y))
    return _signed_zero(mid, p0), tail, full(_total(own, spread), mid)


def _given(value: Tensor | None) -> Tensor | float:
    return 0.0 if value is None else value


def full(value: Tensor | float, like: Tensor) -> Tensor:
    """A number as a tensor of the shape of `like`; a tensor as it is."""
    return value if isinstance(value, Tensor) else torch.full_like(like, value)


def nowhere(mask: Tensor) -> bool:
    """Whether a mask holds nowhere, which is not known while a function is traced."""
    return type(mask) is torch.Tensor and not bool(mask.any())


def _signed_zero(mid: Tensor, head: Tensor) -> Tensor:
    """A zero with the sign that float64 gives it: TwoSum makes +0 of -0."""
    return torch.where((mid == 0) & (head == 0), head, mid)


def _times(a: Tensor | float, b: Tensor | float) -> Tensor | float:
    """a * b of non-negative radii, where a float is a static zero (even against infinity)."""
    return 0.0 if isinstance(a, float) or isinstance(b, float) else a * b


def _total(*parts: Tensor | float) -> Tensor | float:
    kept = [p for p in parts if not (isinstance(p, float) and p == 0)]
    if not kept:
        return 0.0
    total = kept[0]
    for part in kept[1:]:
        total = (total + part) * GROW
    return total


def _saturate(rad: Tensor, mid: Tensor) -> Tensor:
    """A library result beyond float64 counts as +-inf exactly: every narrower format overflows."""
    return torch.where(torch.isinf(mid), 0.0, rad)


def _point(a: Ball) -> bool:
    """Whether the ball is known to be exact before any tensor is seen."""
    return isinstance(a.rad, float)


def _rest(a: Ball) -> tuple[Tensor | float, Tensor | float]:
    return (0.0, 0.0) if a.rest is None else a.rest()


def _splits(a: Ball, b: Ball) -> bool:
    """Whether the halves by which TwoProd multiplies these, or their quotient and b, are below the end of float64."""
    return max(a.span.high, b.span.high, a.span.high - b.span.low) <= 990


def _divides(a: Span, b: Span) -> bool:
    """Whether all that TwoProd makes of a quotient and its divisor are float64, and what is left of it over it too."""
    return a.low - b.high + min(b.low, 0) >= LEAST


def _negated(rest: Rest) -> Rest:
    def negative() -> tuple[Tensor, Tensor | float]:
        left, slack = rest()
        return -left, slack

    return negative


def _guard(rad: Tensor | float, a: Ball, b: Ball) -> Tensor | float:
    """Undecided where a saturated operand of an inexact operation would lose its meaning."""
    for part in (a, b):
        if not part.span.finite:
            rad = torch.where(torch.isinf(part.mid), torch.nan, rad)
    return rad
