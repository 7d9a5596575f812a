"""Number systems on arrays: those of `ball` and `mp` with sums, products and scans along the last axis.

Only what needs a whole row lives here; elementwise operations are the systems' own, apart from the
double-double exponential and logarithms, which long sums of exponentials cannot do without. Matrix
products are in `verify.numbers.matmul`.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any

import numpy as np
import torch
from mpmath.libmp import from_man_exp, mpf_exp, to_fixed

from verify.facts.formats import FORMATS, Format
from verify.facts.truth import LIMIT, ZERO
from verify.numbers import enclosure as en
from verify.numbers.ball import GROW, LOOSE, TINY, Ball, Ball64, BallDD, Span, U, filled, known
from verify.numbers.cpp import on_host
from verify.numbers.functions import EXACT_BITS, FUNCTIONS, offer
from verify.numbers.mp import EXACT, MpSystem, MpValue
from verify.numbers.operators import Arithmetic, Binary, Comparing
from verify.numbers.transforms import power_of_two, two_prod, two_sum

Tensor = torch.Tensor
#: What a scan carries for each element: balls, or tensors of exact values.
State = tuple[Any, ...]
Combine = Callable[[State, State], State]


def gamma(n: int) -> float:
    """n u / (1 - n u) for u = 2^-53, rounded up: the relative error of n roundings (Higham 2002, lemma 3.1)."""
    if n * U >= 0.5:
        raise ValueError(f"{n} roundings of {U:g}; expected n u below 1/2")
    return n * U / (1 - n * U) * GROW


class _LastAxis:
    """Sums, products and scans of balls along the last axis, in float64 or double-double.

    A ball that is exact before any tensor is seen (an input) is added by trees whose residuals TwoSum
    gives, so that an exact sum has radius 0. Computed balls are added by torch: any order of the n - 1
    additions errs by at most gamma(n - 1) sum|x| (Higham 2002, (4.4)). Rows with an infinity or a NaN
    have a NaN radius: special values are the oracle's business.
    """

    def sum(self: Any, a: Ball) -> Ball:
        """The sum, with length 1 on the last axis; 0 of nothing."""
        n = a.mid.shape[-1]
        if n == 0:
            return Ball(self, a.mid.new_zeros((*a.mid.shape[:-1], 1)), 0.0, Span(1, 0, 0), sure=True)
        if self.double or isinstance(a.rad, float):
            return _tree(self.add, a)
        return _any_order(a)

    def dot(self: Any, a: Ball, b: Ball) -> Ball:
        """The inner product along the last axis, which keeps length 1."""
        return self.sum(a * b)  # type: ignore[no-any-return]

    def shift(self: Any, a: Ball) -> Ball:
        """The largest finite midpoint along the last axis (0 without one), as an exact constant."""
        if not a.mid.shape[-1]:
            return self._exactly(a.mid.new_zeros((*a.mid.shape[:-1], 1)), Span(1, 0, 0))  # type: ignore[no-any-return]
        finite = torch.where(torch.isfinite(a.mid), a.mid, -torch.inf)
        top = finite.amax(-1, keepdim=True)
        span = a.span if a.source else LOOSE
        return self._exactly(torch.where(torch.isfinite(top), top, 0.0), span)  # type: ignore[no-any-return]

    def anywhere(self, predicate: Tensor) -> Tensor:
        """Whether a predicate holds anywhere on the last axis, which keeps length 1."""
        return predicate.any(-1, keepdim=True)

    def seen(self, predicate: Tensor) -> Tensor:
        """Whether a predicate holds at a position or before it."""
        return predicate.to(torch.int32).cumsum(-1) > 0

    def odd(self, predicate: Tensor) -> Tensor:
        """Whether a predicate holds an odd number of times up to each position."""
        return predicate.to(torch.int32).cumsum(-1) % 2 == 1

    def cummax(self: Any, a: Ball) -> Ball:
        """Running maxima of exact inputs, none of them a NaN."""
        if not a.source:
            raise TypeError("cummax of computed values; expected an exact input")
        (top,) = scan(lambda x, y: (torch.where(x[0] >= y[0], x[0], y[0]),), (a.mid,))
        return self._exactly(top, a.span)  # type: ignore[no-any-return]

    def cumsum(self: Any, a: Ball) -> Ball:
        """Inclusive prefix sums."""
        return scan(lambda x, y: (self.add(x[0], y[0]),), (a,))[0]  # type: ignore[no-any-return]

    def cumprod(self: Any, a: Ball) -> Ball:
        """Inclusive prefix products of exact inputs.

        Significands in [1/2, 1) and exponents apart, so that no partial product leaves the range. Zeros,
        infinities and NaNs count as 1: what a prefix that holds one is, special rows say.
        """
        if not a.source:
            raise TypeError("cumprod of computed values; expected an exact input")
        usable = torch.isfinite(a.mid) & (a.mid != 0)
        significand, exponent = torch.frexp(torch.where(usable, a.mid, 1.0))
        width = a.span.width
        start = Ball(self, significand, 0.0, Span(width, -width, 0), tail=self._tail(significand))

        def times(x: State, y: State) -> State:
            (f, e), (g, h) = x, y
            product = self._product(f, g)
            small = product.mid.abs() < 0.5
            factor = torch.where(small, 2.0, 1.0)
            return _scaled(product, factor), e + h - small.to(torch.int64)

        product, exponent = scan(times, (start, exponent.to(torch.int64)))
        return self._raised(product, exponent)  # type: ignore[no-any-return]

    def cumsumexp(self: Any, a: Ball) -> tuple[Ball, Ball]:
        """(m, r) with sum_{j<=i} exp(a_j) = exp(m_i) (1 + r_i): m the running maximum of exact inputs, r >= 0.

        r loses nothing where one term outweighs the others by more than the working precision. -inf
        adds nothing; m is -inf where nothing else was seen. Prefixes with +inf or NaN mean nothing.
        """
        if not a.source:
            raise TypeError("cumsumexp of computed values; expected an exact input")
        # an oracle asks for them, and its scale again, and then an algorithm's bound
        asked = type(self), self.bounds.get("exp")
        held = (found for key, mid, found in _SUMMED if key == asked and (mid is a.mid or _same(mid, a.mid)))
        m, rest = next(held, None) or self._cumsumexp(a)
        if a.mid.numel() > FEW:  # of long rows one is held
            _SUMMED.clear()
        _SUMMED.append((asked, a.mid, (m, rest)))
        return replace(m, n=self, span=a.span), replace(rest, n=self)

    def _cumsumexp(self: Any, a: Ball) -> tuple[Ball, Ball]:
        def add(x: State, y: State) -> State:
            (m, r), (k, s) = x, y
            first = m >= k
            top, low = torch.where(first, m, k), torch.where(first, k, m)
            distance = self.add(self._exactly(low, a.span), -self._exactly(top, a.span))
            smaller = (self.where(first, s, r) + 1) * self.exp(distance)
            larger = self.where(first, r, s)
            return top, self.where(low == -torch.inf, larger, larger + smaller)

        rest = Ball(self, torch.zeros_like(a.mid), 0.0, Span(1, 0, 0), tail=self._tail(a.mid), sure=True)
        top, rest = scan(add, (a.mid, rest))
        return self._exactly(top, a.span), rest

    def sumexp(self: Any, a: Ball) -> tuple[Ball, Ball]:
        """(m, s) with sum exp(a_j) = exp(m) s over the row, of length 1: m the largest of exact inputs, s >= 1.

        -inf adds nothing. Rows of nothing else, and rows with +inf or NaN, mean nothing.
        """
        m = self.shift(a)
        return m, self.sum(self.where(a == -torch.inf, 0, self.exp(a - m)))

    def own(self, a: Ball) -> Ball:
        """The elements whose results are wanted: all (one in multiprecision)."""
        return a

    def count(self, a: Ball) -> int:
        """The length of the last axis."""
        return int(a.mid.shape[-1])

    def _exactly(self: Any, mid: Tensor, span: Span) -> Ball:
        return Ball(self, mid, 0.0, span, source=True, tail=self._tail(mid), sure=True)

    def _tail(self: Any, like: Tensor) -> Tensor | float:
        return torch.zeros_like(like) if self.double else 0.0

    def _raised(self: Any, a: Ball, exponent: Tensor) -> Ball:
        """a 2^exponent for |a| in [1/2, 1): +-inf with radius 0 beyond float64, see `verify.numbers.ball`."""
        beyond = exponent > 1024
        bounded = exponent.clamp(-2200, 1024)
        half = bounded.div(2, rounding_mode="floor")
        factors = power_of_two(half.clamp(min=-1022)), power_of_two((bounded - half).clamp(min=-1022))
        scaled = _scaled(_scaled(a, factors[0]), factors[1])
        under = (exponent < -900).to(torch.float64) * TINY  # parts may have become subnormal
        mid = torch.where(beyond, torch.copysign(torch.full_like(a.mid, torch.inf), a.mid), scaled.mid)
        rad = torch.where(beyond, 0.0, filled(scaled.radius, mid) + under)
        tail = torch.where(beyond, 0.0, scaled.tail) if self.double else 0.0
        return Ball(self, mid, rad, LOOSE, tail=tail, sure=True)


LEAST = 2.0**-1074  # the smallest number above 0; half of it is the most that a rounding beside it errs by


class BallArrays(_LastAxis, Ball64):
    """`Ball64` on rows: the last axis is the one that sums and scans run along."""

    carries = False  # sums take parts of balls

    def exp(self, a: Ball) -> Ball:
        """As elementwise; exactly 1 at an exact 0, and below 2^-1074 from -746 down, however wide the ball."""
        f = self.apply(FUNCTIONS["exp"], a)
        _, rad = known(a)
        mid, rad = _ends(a.mid, rad, f.mid, filled(f.radius, f.mid))
        return replace(f, mid=mid, rad=rad)

    def _cumsumexp(self, a: Ball) -> tuple[Ball, Ball]:
        def add(x: State, y: State) -> State:
            top, low, distance, moved, *parts = _apart(*x, *y)
            e = self.exp(Ball(self, distance, moved))
            return top, *_rejoined(low, *parts, e.mid, e.radius, n=self)  # type: ignore[call-arg, misc, arg-type]

        zero = torch.zeros_like(a.mid)
        top, rest, rad = scan(add, (a.mid, zero, zero))
        return self._exactly(top, a.span), Ball(self, rest, rad, LOOSE)

    def div(self, a: Ball, b: Ball) -> Ball:
        """As elementwise; a midpoint of 0 is divided exactly: of the radius alone two roundings are to be covered."""
        q = super().div(a, b)
        room = b.mid.abs() - b.radius
        rad = torch.where((a.mid == 0) & (room > 0), a.radius / room * GROW + LEAST, filled(q.radius, q.mid))
        return replace(q, rad=rad)

    def log1p(self, a: Ball) -> Ball:
        """As elementwise, and exactly 0 at an exact 0."""
        f = self.apply(FUNCTIONS["log1p"], a)
        none = (a.mid == 0) & (filled(a.radius, a.mid) == 0)
        return replace(f, rad=torch.where(none, 0.0, filled(f.radius, f.mid)))

    def _product(self, a: Ball, b: Ball) -> Ball:
        """Of significands, where TwoProd is exact: an exact product keeps radius 0."""
        mid, error = two_prod(a.mid, b.mid)
        x, y = filled(a.radius, mid), filled(b.radius, mid)
        return Ball(self, mid, (error.abs() + a.mid.abs() * y + b.mid.abs() * x + x * y) * GROW, LOOSE)


@on_host
def _ends(x: Tensor, x_rad: Tensor | None, mid: Tensor, rad: Tensor) -> tuple[Tensor, Tensor]:
    """The exponential of x, as the library's has mid and rad, but for where it is known: at 0, and far below."""
    spread = filled(0.0 if x_rad is None else x_rad, x)
    one, none = (x == 0) & (spread == 0), x + spread <= -746
    rad = torch.where(none, LEAST, torch.where(one, 0.0, filled(rad, mid)))
    return torch.where(none, 0.0, torch.where(one, 1.0, mid)), rad


@on_host
def _apart(m: Tensor, r: Tensor, r_rad: Tensor, k: Tensor, s: Tensor, s_rad: Tensor) -> tuple[Tensor, ...]:
    """Of `_cumsumexp` of two parts: the larger of two exponents and the smaller one, what is between them and its
    radius, and what belongs to the one and to the other, each with its radius."""
    first = m >= k
    top, low = torch.where(first, m, k), torch.where(first, k, m)
    distance, error = two_sum(low, -top)
    larger, spread = torch.where(first, r, s), torch.where(first, r_rad, s_rad)
    smaller, width = torch.where(first, s, r), torch.where(first, s_rad, r_rad)
    return top, low, distance, error.abs() * GROW, larger, spread, smaller, width


@on_host
def _rejoined(
    low: Tensor, larger: Tensor, spread: Tensor, smaller: Tensor, width: Tensor, e: Tensor, e_rad: Tensor, *,
    n: BallArrays,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum of both parts relative to the larger one: larger + (smaller + 1) e."""
    one = n.const(1)
    total = n.add(Ball(n, larger, spread), n.mul(n.add(Ball(n, smaller, width), one), Ball(n, e, e_rad)))
    alone = low == -torch.inf
    return torch.where(alone, larger, total.mid), torch.where(alone, spread, filled(total.radius, total.mid))


TOGETHER = 1 << 13  # elements of a row
FEW = 1 << 13  # elements of all rows that are scanned together
_SUMMED = deque[Any](maxlen=4)  # the last arguments of `cumsumexp`, and what they gave
KEPT = 400.0  # how far below 0 an exponential, and its products with low parts, are far from the subnormal numbers


class BallDDArrays(_LastAxis, BallDD):
    """`BallDD` on rows, with exp, expm1, log and log1p.

    These are computed from additions and multiplications that track their own residuals; the truncation
    of each series is added to the radius, so nothing of a library is trusted. About 2^-98 relative.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._constants: dict[tuple[Fraction, float], Ball] = {}
        self._exponential: tuple[Ball, Ball] | None = None  # the last argument of `exp`, and what it gave

    def const(self, value: Any) -> Ball:
        """An exact constant where two float64 hold it, else their distance as radius. Made once: it waits for the
        device."""
        if isinstance(value, Ball):
            return value
        exact = Fraction(value)
        key = exact, math.copysign(1.0, value) if exact == 0 else 0.0
        if key not in self._constants:
            found = super().const(value)
            rest = exact - Fraction(found.mid.item())
            tail = float(rest)
            left = abs(rest - Fraction(tail))
            rad = float(left) * GROW if left else 0.0
            tail_, rad_ = (torch.tensor(v, dtype=torch.float64, device=self.device) for v in (tail, rad))
            self._constants[key] = replace(found, tail=tail_, rad=rad_ if left else 0.0, relative=0.0)
        return self._constants[key]

    def _product(self, a: Ball, b: Ball) -> Ball:
        return self.mul(a, b)

    def exp(self, a: Ball) -> Ball:
        """2^k (1 + expm1(r)), a = k log 2 + r. Undecided above 700; from -700 down only below 2^-1009."""
        if self._exponential is None or not _identical(self._exponential[0], a):  # of a row's sum, and of its elements
            self._exponential = a, self._exp(a)
        return self._exponential[1]

    def _exp(self, a: Ball) -> Ball:
        # hundreds of operations each: on the host in parts that a cache holds
        if a.mid.is_cpu and a.mid.dim() and (n := a.mid.shape[-1]) > TOGETHER:
            parts = [self._exp(_at(a, slice(start, start + TOGETHER))) for start in range(0, n, TOGETHER)]
            mid, rad, tail = (torch.cat([getattr(p, name) for p in parts], -1) for name in ("mid", "rad", "tail"))
            return Ball(self, mid, rad, LOOSE, tail=tail, sure=True)
        mid, tail, rad = _exponential(a.mid, *known(a), n=self)
        return Ball(self, mid, rad, LOOSE, tail=tail, sure=True)

    def expm1(self, a: Ball) -> Ball:
        k, e = self._reduced(a)
        plain = (k == 0) & (filled(e.radius, e.mid) >= 0)
        return self.where(plain, e, self.exp(a) - 1)

    def log(self, a: Ball) -> Ball:
        """y + log1p(z) with y near log(a) and z = a exp(-y) - 1; whatever y is, z tells."""
        y = torch.log(a.mid)
        z = self.mul(a, self.exp(self._exactly(-y, LOOSE))) - 1
        return self.add(self._exactly(y, LOOSE), self._near_one(z))

    def log1p(self, a: Ball) -> Ball:
        """As `log`, z = a + e + a e with e = expm1(-y), so that a small a keeps its relative precision."""
        y = torch.log1p(a.mid)
        e = self.expm1(self._exactly(-y, LOOSE))
        z = self.add(self.add(a, e), self.mul(a, e))
        return self.add(self._exactly(y, LOOSE), self._near_one(z))

    def _cumsumexp(self, a: Ball) -> tuple[Ball, Ball]:
        """One exponential for each element instead of one for each sum of two, where those relative to the row's
        largest one keep all of their bits."""
        finite = torch.isfinite(a.mid)
        whole = self.shift(a)
        distance = self.add(a, -whole)
        if not a.mid.shape[-1] or bool((finite & (distance.mid < -KEPT)).any()):
            return super()._cumsumexp(a)
        terms = self.where(a == -torch.inf, 0, self.exp(distance))

        def add(x: State, y: State) -> State:
            return _gathered(*x, *y, n=self)

        zero = torch.zeros_like(a.mid)
        parts = terms.mid, filled(terms.tail, a.mid), filled(terms.radius, a.mid)
        top, *found = scan(add, (a.mid, *parts, zero, zero, zero))
        largest, rest = (Ball(self, mid, rad, LOOSE, tail=tail) for mid, tail, rad in (found[:3], found[3:]))
        nothing = (rest.mid == 0) & (filled(rest.radius, rest.mid) == 0)
        return self._exactly(top, a.span), self.where(nothing, 0, self.div(rest, largest))

    def _near_one(self, z: Ball) -> Ball:
        """log1p of a small z: z - z^2/2, off by at most |z|^3/3/(1 - |z|) <= |z|^3 for |z| <= 1/2."""
        series = self.add(z, self.mul(self.mul(z, z), self.const(Fraction(-1, 2))))
        size = (z.mid.abs() + filled(z.radius, z.mid)) * GROW
        cube = size * size * size * GROW
        rad = filled(series.radius, z.mid) + torch.where((size > 0) & (cube < TINY), TINY, cube)
        return replace(series, rad=torch.where(size <= 0.5, rad * GROW, torch.nan))

    def _reduced(self, a: Ball) -> tuple[Tensor, Ball]:
        """k (int64) and expm1(a - k log 2); an undecided ball where a is too large, wide or no number."""
        k, mid, tail, rad = _reduced(a.mid, *known(a), n=self)
        return k, Ball(self, mid, rad, LOOSE, tail=tail)


@on_host
def _gathered(
    m: Tensor, one: Tensor, one_tail: Tensor, one_rad: Tensor, rest: Tensor, rest_tail: Tensor, rest_rad: Tensor,
    k: Tensor, other: Tensor, other_tail: Tensor, other_rad: Tensor, more: Tensor, more_tail: Tensor, more_rad: Tensor,
    *, n: BallDDArrays,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Of two parts of a row, in each the largest element, its exponential and the sum of the others': that of both."""
    first = m >= k
    mine, theirs = (one, one_tail, one_rad), (other, other_tail, other_rad)
    larger = [torch.where(first, x, y) for x, y in zip(mine, theirs, strict=True)]
    low, tail, rad = (torch.where(first, y, x) for x, y in zip(mine, theirs, strict=True))
    both = n.add(Ball(n, rest, rest_rad, tail=rest_tail), Ball(n, more, more_rad, tail=more_tail))
    total = n.add(both, Ball(n, low, rad, tail=tail))
    return torch.where(first, m, k), *larger, total.mid, filled(total.tail, low), filled(total.radius, low)


@on_host
def _exponential(
    x: Tensor, tail: Tensor | None, rad: Tensor | None, *, n: BallDDArrays
) -> tuple[Tensor, Tensor, Tensor]:
    """`BallDDArrays.exp` of a midpoint, tail and radius: the same of the result."""
    k, mid, low, spread = _reduced(x, tail, rad, n=n)
    e = Ball(n, mid, spread, LOOSE, tail=low)
    f = _scaled(n.add(n._exactly(torch.ones_like(mid), Span(1, 0, 0)), e), power_of_two(k))
    # Low parts may have become subnormal.
    found = filled(f.radius, x) + (k < -900).to(torch.float64) * TINY
    none = x + filled(0.0 if rad is None else rad, x) <= -700
    found = torch.where(none, 2.0**-1009, torch.where(x.abs() > 700, torch.nan, found))
    return torch.where(none, 0.0, f.mid), torch.where(none, 0.0, filled(f.tail, x)), found


@on_host
def _reduced(
    x: Tensor, tail: Tensor | None, rad: Tensor | None, *, n: BallDDArrays
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`BallDDArrays._reduced` of a midpoint, tail and radius: k, midpoint, tail and radius."""
    spread = filled(0.0 if rad is None else rad, x)
    fine = torch.isfinite(x) & (x.abs() <= 720) & (spread <= 2.0**-12)
    k = torch.where(fine, x * 1.4426950408889634, 0.0).round()
    r = Ball(n, torch.where(fine, x, 0.0), 0.0 if rad is None else rad, LOOSE, tail=0.0 if tail is None else tail)
    for part in _LN2:  # k has 11 bits, each part 40: exact products
        r = n.add(r, n._exactly(-k * part, LOOSE))
    steps = 6
    t = replace(r, rad=filled(r.radius, x) + k.abs() * _LN2_LEFT)
    t = _scaled(t, torch.full_like(x, 2.0**-steps))
    shrunk = (t.mid != 0) & (t.mid.abs() < 2.0**-900)
    t = replace(t, rad=torch.where(shrunk, filled(t.radius, x) + TINY, t.radius))
    size = (t.mid.abs() + filled(t.radius, x)) * GROW
    e = n.const(_INVERSE_FACTORIALS[-1])
    for coefficient in reversed(_INVERSE_FACTORIALS[:-1]):
        e = n.add(n.mul(e, t), n.const(coefficient))
    e = n.mul(e, t)
    # |t| < 2^-7: the terms left out are below twice the first of them.
    fourth = size * size * size * size
    left = fourth * fourth * fourth * size * (_LEFT * GROW)
    left = torch.where((size > 0) & (left < TINY), TINY, left)
    e = replace(e, rad=(filled(e.radius, x) + left) * GROW)
    for _ in range(steps):  # expm1(2 t) = e (e + 2)
        e = n.mul(e, n.add(e, n.const(2)))
    bad = ~fine | ~(size < 2.0**-7)
    return k.to(torch.int64), e.mid, filled(e.tail, x), torch.where(bad, torch.nan, filled(e.radius, x))


#: Coefficients of expm1(t)/t for |t| < 2^-7: the first omitted term of expm1 is t^13/13!, below 2^-123.
_INVERSE_FACTORIALS = tuple(Fraction(1, math.factorial(k)) for k in range(1, 13))
_LEFT = 2.0 / math.factorial(13)
#: log 2 (OEIS A002162) in parts of 40 bits each, and a bound of what they leave.
_LN2_EXACT = Fraction("0.693147180559945309417232121458176568075500134360255254120680009493393621969694715605863")
_LN2: tuple[float, ...] = ()
for _scale in (40, 80, 120):
    _part = (_LN2_EXACT - sum(map(Fraction, _LN2))) * 2**_scale
    _LN2 += (math.floor(_part) * 2.0**-_scale,)
_LN2_LEFT = 2.0**-120


def scan(combine: Combine, value: State) -> State:
    """Inclusive prefixes of an associative operation along the last axis, 2 n operations in 2 log2(n) levels.

    combine takes and returns tuples of balls or tensors; earlier elements come first. FEW elements, of which a call
    costs more than its arithmetic, take n log2(n) operations in log2(n) levels (Hillis and Steele 1986).
    """
    n = _length(value)
    if n < 2:
        return value
    if _mid(value[0]).numel() <= FEW:
        return _doubling(combine, value, n)
    odd = scan(combine, combine(_every(value, slice(0, n - 1, 2)), _every(value, slice(1, n, 2))))
    first = _every(value, slice(0, 1))
    if n == 2:
        return tuple(_interleaved(*parts) for parts in zip(first, odd, strict=True))
    later = combine(_every(odd, slice(0, (n - 1) // 2)), _every(value, slice(2, n, 2)))
    even = (_joined(a, b) for a, b in zip(first, later, strict=True))
    return tuple(_interleaved(a, b) for a, b in zip(even, odd, strict=True))


def _doubling(combine: Combine, value: State, n: int) -> State:
    """`scan`: each level joins to an element the `reach` before it."""
    reach = 1
    while reach < n:
        earlier, later = (_every(value, part, packed=False) for part in (slice(0, n - reach), slice(reach, n)))
        first = _every(value, slice(0, reach), packed=False)
        value = tuple(_joined(a, b) for a, b in zip(first, combine(earlier, later), strict=True))
        reach *= 2
    return value


def _mid(part: Any) -> Tensor:
    return part.mid if isinstance(part, Ball) else part


def _length(value: State) -> int:
    return int(_mid(value[0]).shape[-1])


def _every(value: State, index: slice, *, packed: bool = True) -> State:
    return tuple(_at(part, index, packed=packed) for part in value)


def _at(part: Any, index: slice, *, packed: bool = True) -> Any:
    """Some places of a row; packed: in memory of their own."""

    def taken(t: Tensor) -> Tensor:
        return t[..., index].contiguous() if packed else t[..., index]

    return _mapped(taken, part) if isinstance(part, Ball) else taken(part)


def _identical(a: Ball, b: Ball) -> bool:
    """Whether two balls have the same bits, so that a function of one is that of the other."""
    if a is b:
        return True
    if a.mid.shape != b.mid.shape or a.span != b.span:
        return False
    pairs = ((a.mid, b.mid), (a.tail, b.tail), (a.radius, b.radius))
    return all(_same(filled(x, a.mid), filled(y, b.mid)) for x, y in pairs)


def _same(x: Tensor, y: Tensor) -> bool:
    """Whether float64 have the same bits."""
    here = x.shape == y.shape and x.device == y.device
    return here and torch.equal(x.contiguous().view(torch.int64), y.contiguous().view(torch.int64))


def _mapped(function: Callable[[Tensor], Tensor], a: Ball) -> Ball:
    """A ball with each of its tensors (given the midpoint's shape) transformed."""
    rad = function(filled(a.rad, a.mid)) if isinstance(a.rad, Tensor) else a.rad
    tail = function(filled(a.tail, a.mid)) if isinstance(a.tail, Tensor) else a.tail
    return replace(a, mid=function(a.mid), rad=rad, tail=tail)


def _merged(function: Callable[[Tensor, Tensor], Tensor], a: Any, b: Any) -> Any:
    """Two balls or tensors as one, their tensors put together by `function`."""
    if not isinstance(a, Ball):
        return function(a, b)
    rad: Tensor | float = 0.0
    if not (isinstance(a.rad, float) and isinstance(b.rad, float)):
        rad = function(filled(a.radius, a.mid), filled(b.radius, b.mid))
    tail: Tensor | float = 0.0
    if isinstance(a.tail, Tensor) or isinstance(b.tail, Tensor):
        tail = function(filled(a.tail, a.mid), filled(b.tail, b.mid))
    wide = Span(max(a.span.width, b.span.width), min(a.span.low, b.span.low), max(a.span.high, b.span.high))
    return Ball(a.n, function(a.mid, b.mid), rad, wide, tail=tail, sure=a.sure and b.sure)


def _joined(a: Any, b: Any) -> Any:
    return _merged(lambda x, y: torch.cat([x, y], -1), a, b)


def _interleaved(a: Any, b: Any) -> Any:
    """a_0, b_0, a_1, b_1, ...; a may be one longer."""

    def weave(x: Tensor, y: Tensor) -> Tensor:
        out = x.new_empty((*x.shape[:-1], x.shape[-1] + y.shape[-1]))
        out[..., 0::2], out[..., 1::2] = x, y
        return out

    return _merged(weave, a, b)


def _tree(add: Callable[[Ball, Ball], Ball], a: Ball) -> Ball:
    """The sum by halves, the residuals of every addition in its radius."""
    while (n := a.mid.shape[-1]) > 1:
        half = n // 2
        total = add(_at(a, slice(0, half)), _at(a, slice(half, 2 * half)))
        a = _joined(total, _at(a, slice(2 * half, n))) if n % 2 else total
    return replace(a, source=False)


def _any_order(a: Ball) -> Ball:
    """The sum by torch's float64, in two levels of about sqrt(n) terms."""
    n = a.mid.shape[-1]
    width = 1 << (n.bit_length() + 1) // 2
    roundings = min(n, width - 1 + -(-n // width) - 1) if n > 64 else n - 1
    bound = gamma(roundings)
    mid = _two_levels(a.mid, width)
    size = _two_levels(a.mid.abs(), width) * (1 + 2 * bound)
    spread = _two_levels(filled(a.radius, a.mid), width) * (1 + 2 * bound)
    rad = (size * bound + spread) * GROW
    span = Span(53, a.span.low, a.span.high + n.bit_length())
    return Ball(a.n, mid, torch.where(torch.isfinite(mid), rad, torch.nan), span, sure=a.sure)


def _two_levels(t: Tensor, width: int) -> Tensor:
    n = t.shape[-1]
    if n <= 64:
        return t.sum(-1, keepdim=True)
    whole = n // width * width
    parts = t[..., :whole].reshape(*t.shape[:-1], -1, width).sum(-1)
    if whole < n:
        parts = torch.cat([parts, t[..., whole:].sum(-1, keepdim=True)], -1)
    return parts.sum(-1, keepdim=True)


def _scaled(a: Ball, factor: Tensor) -> Ball:
    """a times powers of two, exact in the normal range."""
    rad = a.rad if isinstance(a.rad, float) else filled(a.radius, a.mid) * factor
    tail = a.tail * factor if isinstance(a.tail, Tensor) else a.tail
    return replace(a, mid=a.mid * factor, rad=rad, tail=tail, span=LOOSE, source=False)


# ---------------------------------------------------------------- multiprecision


class ExactRow(Arithmetic, Comparing):
    """The exact values of a 1-D tensor, as integers with one exponent each; MpValues when first asked for.

    Long sums, products and sums of exponentials are taken from the integers. What was computed for one
    prefix is kept for the others.
    """

    def __init__(self, tensor: Tensor) -> None:
        fmt = FORMATS[str(tensor.dtype).removeprefix("torch.")]
        host = self.tensor = tensor.detach().reshape(-1).cpu()
        self.fmt: Format = fmt
        self.floats: np.ndarray = host.to(torch.float64).numpy()
        words = host.contiguous().view(getattr(torch, f"int{fmt.bits}"))
        self.bits: np.ndarray = words.numpy().astype(np.int64) & ((1 << fmt.bits) - 1 if fmt.bits < 64 else -1)
        significand, exponent = np.frexp(np.where(np.isfinite(self.floats), self.floats, 0.0))
        self.mantissas: np.ndarray = (significand * 2.0**53).astype(np.int64)
        self.exponents: np.ndarray = exponent.astype(np.int64) - 53
        self.kept: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.floats)

    @cached_property
    def values(self) -> np.ndarray:
        n = MpSystem(96)
        mask = (1 << self.fmt.bits) - 1
        return objects(n.input(int(bits) & mask, self.fmt) for bits in self.bits)

    def sum(self, stop: int) -> Fraction:
        """The exact sum of the first `stop` values, all finite."""
        return integer_sum(self.mantissas[:stop], self.exponents[:stop])

    def dot(self, other: ExactRow) -> Fraction:
        """The exact inner product with a row of the same length, both finite: products of halves of 27 bits."""
        known = self.kept.get("dot")
        if known is not None and known[0] is other:
            found: Fraction = known[1]
            return found
        exponents = self.exponents + other.exponents
        (low, high), (other_low, other_high) = (
            (m & ((1 << 27) - 1), m >> 27) for m in (self.mantissas, other.mantissas)
        )
        found = (
            integer_sum(low * other_low, exponents)
            + integer_sum(low * other_high, exponents + 27)
            + integer_sum(high * other_low, exponents + 27)
            + integer_sum(high * other_high, exponents + 54)
        )
        self.kept["dot"] = other, found
        return found

    def _operate(self, op: Binary, left: Any, right: Any) -> Any:
        return op(_values(left), _values(right))

    def _compare(self, op: Binary, other: Any) -> Any:
        return op(_compared(self, other), _bare(other))

    def __neg__(self) -> ExactRow:
        return ExactRow(-self.tensor)

    def __abs__(self) -> ExactRow:
        return ExactRow(self.tensor.abs())

    # numpy would otherwise take a row for one object
    __array_ufunc__ = None


def objects(values: Iterable[Any]) -> np.ndarray:
    """A 1-D object array, whatever the values are."""
    listed = list(values)
    found = np.empty(len(listed), dtype=object)
    found[:] = listed
    return found


def integer_sum(mantissas: np.ndarray, exponents: np.ndarray) -> Fraction:
    """sum m_i 2^e_i for int64 m_i of at most 54 bits: one integer for each exponent, then one shift each."""
    if not len(mantissas):
        return Fraction(0)
    low = int(exponents.min())
    slots = exponents - low
    total = 0
    for half, shift in ((mantissas & ((1 << 27) - 1), 0), (mantissas >> 27, 27)):  # 2^36 halves fit int64
        sums = np.zeros(int(slots.max()) + 1, dtype=np.int64)
        np.add.at(sums, slots, half)
        total += sum(s << (slot + shift) for slot, s in enumerate(sums.tolist()) if s)
    return Fraction(total << low) if low >= 0 else Fraction(total, 1 << -low)


Row = ExactRow | np.ndarray


class MpArrays:
    """`MpSystem` on rows: values are 1-D object arrays of `MpValue`, or an `ExactRow`.

    position: scans give this position alone, as an array of length 1, from the exact prefix up to it;
    None: all positions.
    """

    def __init__(self, precision: int, position: int | None = None) -> None:
        self.system = MpSystem(precision)
        self.precision = precision
        self.position = position

    # Values

    def input(self, tensor: Tensor) -> ExactRow:
        """The exact values of a tensor, flattened."""
        return ExactRow(tensor)

    def const(self, number: Any) -> np.ndarray:
        """A constant as an array of length 1, which numpy broadcasts."""
        if isinstance(number, np.ndarray | ExactRow):
            return _values(number)
        return objects([number if isinstance(number, MpValue) else self.system.const(number)])

    # Elementwise

    def __getattr__(self, name: str) -> Callable[..., np.ndarray]:
        return offer(name, lambda entry, a: self._each(lambda x: self.system.apply(entry, x), a))

    def pow(self, a: Any, b: Any) -> np.ndarray:
        x, y = np.broadcast_arrays(self.const(a), self.const(b))
        return objects(map(self.system.pow, x, y))

    def max(self, a: Any, b: Any) -> np.ndarray:
        x, y = np.broadcast_arrays(self.const(a), self.const(b))
        return objects(map(self.system.max, x, y))

    def min(self, a: Any, b: Any) -> np.ndarray:
        x, y = np.broadcast_arrays(self.const(a), self.const(b))
        return objects(map(self.system.min, x, y))

    def where(self, predicate: Any, a: Any, b: Any) -> np.ndarray:
        """a where the predicate holds, else b; the other one may be undefined."""
        hits, x, y = np.broadcast_arrays(np.asarray(predicate, dtype=bool), self.const(a), self.const(b))
        return objects(self.system.where(np.bool_(hit), u, v) for hit, u, v in zip(hits, x, y, strict=True))

    def is_nan(self, a: Any) -> np.ndarray:
        return np.isnan(a.floats) if isinstance(a, ExactRow) else self._predicate(self.system.is_nan, a)

    def is_inf(self, a: Any) -> np.ndarray:
        return np.isinf(a.floats) if isinstance(a, ExactRow) else self._predicate(self.system.is_inf, a)

    def is_zero(self, a: Any) -> np.ndarray:
        return a.floats == 0 if isinstance(a, ExactRow) else self._predicate(self.system.is_zero, a)

    def signbit(self, a: Any) -> np.ndarray:
        return np.signbit(a.floats) if isinstance(a, ExactRow) else self._predicate(self.system.signbit, a)

    def _each(self, function: Callable[[Any], MpValue], a: Any) -> np.ndarray:
        return objects(map(function, self.const(a)))

    def _predicate(self, function: Callable[[Any], np.bool_], a: Any) -> np.ndarray:
        return np.array([bool(function(x)) for x in self.const(a)], dtype=bool)

    # Along the row

    def sum(self, a: Row) -> np.ndarray:
        """The sum, an array of length 1: exact where all terms are."""
        if isinstance(a, ExactRow):
            return objects([self._sum_of_row(a, len(a))])
        if all(x.kind == EXACT for x in a):
            return objects([self.system.rational(_exact_sum([x.exact for x in a]), _all_negative(a))])
        return objects([self.system.sum(list(a))])

    def dot(self, a: Any, b: Any) -> np.ndarray:
        """The inner product, an array of length 1."""
        exact = isinstance(a, ExactRow) and isinstance(b, ExactRow) and len(a) == len(b)
        if exact and np.isfinite(a.floats).all() and np.isfinite(b.floats).all():
            return objects([self.system.rational(a.dot(b))])
        return self.sum(self.const(a) * self.const(b))

    def count(self, a: Row) -> int:
        """The length of the row."""
        return len(a)

    def shift(self, a: Row) -> np.ndarray:
        """An exact number near the largest finite value (0 without one): the largest itself among exact ones."""
        if isinstance(a, ExactRow):
            finite = a.floats[np.isfinite(a.floats)]
            return self.const(float(finite.max()) if len(finite) else 0)
        tops = [x.exact if x.kind == EXACT else _upper(x) for x in a if x.kind in (EXACT, "interval")]
        return self.const(max(tops, default=Fraction(0)))

    def anywhere(self, predicate: np.ndarray) -> np.ndarray:
        """Whether a predicate holds anywhere, an array of length 1."""
        return np.array([bool(predicate.any())])

    def seen(self, predicate: np.ndarray) -> np.ndarray:
        """Whether a predicate holds at a position or before it."""
        if self.position is not None:
            return np.array([bool(predicate[: self.position + 1].any())])
        return np.logical_or.accumulate(predicate)

    def odd(self, predicate: np.ndarray) -> np.ndarray:
        """Whether a predicate holds an odd number of times up to each position."""
        if self.position is not None:
            return np.array([bool(np.count_nonzero(predicate[: self.position + 1]) % 2)])
        return np.logical_xor.accumulate(predicate)

    def cummax(self, a: ExactRow) -> np.ndarray:
        """Running maxima, without NaNs."""
        tops = (float(a.floats[: i + 1].max()) for i in self._positions(a))
        return objects(map(self.system.const, tops))

    def cumsum(self, a: Row) -> np.ndarray:
        """Prefix sums."""
        if isinstance(a, ExactRow):
            return objects(self._sum_of_row(a, i + 1) for i in self._positions(a))
        found = objects(self.system.cumsum(list(a)))
        return found if self.position is None else found[self.position : self.position + 1]

    def cumprod(self, a: Row) -> np.ndarray:
        """Prefix products."""
        if isinstance(a, ExactRow):
            return objects(self._product_of_row(a, i + 1) for i in self._positions(a))
        found, product = [], self.system.const(1)
        for x in a:
            product = self.system.multiply(product, x)
            found.append(product)
        return objects(found if self.position is None else found[self.position : self.position + 1])

    def cumsumexp(self, a: ExactRow) -> tuple[np.ndarray, np.ndarray]:
        """(m, r) with sum_{j<=i} exp(a_j) = exp(m_i) (1 + r_i), see `BallArrays.cumsumexp`."""
        pairs = [self._exponentials(a, i + 1) for i in self._positions(a)]
        return objects(m for m, _ in pairs), objects(r for _, r in pairs)

    def sumexp(self, a: ExactRow) -> tuple[np.ndarray, np.ndarray]:
        """(m, s) of the whole row, see `BallArrays.sumexp`."""
        m, r = self._exponentials(a, len(a))
        return objects([m]), objects([self.system.add(r, self.system.const(1))])

    def own(self, a: ExactRow) -> np.ndarray:
        """The element at `position` as an array of length 1; all where there is none."""
        if self.position is None:
            return a.values
        mask = (1 << a.fmt.bits) - 1
        return objects([self.system.input(int(a.bits[self.position]) & mask, a.fmt)])

    def _positions(self, a: ExactRow) -> Sequence[int]:
        return range(len(a)) if self.position is None else (self.position,)

    def _sum_of_row(self, a: ExactRow, stop: int) -> MpValue:
        special = a.floats[:stop][~np.isfinite(a.floats[:stop])]
        if len(special):  # finite terms do not matter beside them (IEEE 754-2019, 6.1)
            return self.system.sum([self.system.const(t) for t in np.unique(special).tolist()])
        return self.system.rational(a.sum(stop), stop > 0 and bool(np.signbit(a.floats[:stop]).all()))

    def _product_of_row(self, a: ExactRow, stop: int) -> MpValue:
        prefix = a.floats[:stop]
        special = prefix[~np.isfinite(prefix) | (prefix == 0)]
        if len(special):  # of the other factors only the signs matter (IEEE 754-2019, 6.1 to 6.3)
            sign = self.system.const(-1 if np.count_nonzero(np.signbit(prefix)) % 2 else 1)
            return reduce(self.system.multiply, map(self.system.const, np.unique(np.abs(special)).tolist()), sign)
        # Odd parts as one integer, cut to `width` bits once it is too long to be kept exact.
        width = self.precision + 2 * len(a).bit_length() + 64
        product, exponent, cuts = 1, 0, 0
        state = a.kept.setdefault(("product", width), {0: (1, 0, 0)})
        start = max(at for at in state if at <= stop)
        product, exponent, cuts = state[start]
        for k in range(start, stop):
            product *= int(a.mantissas[k])
            exponent += int(a.exponents[k])
            if not cuts:
                low = (product & -product).bit_length() - 1
                product, exponent = product >> low, exponent + low
            if (extra := abs(product).bit_length() - (width if cuts else EXACT_BITS)) > 0:
                extra = abs(product).bit_length() - width
                product = -(-product >> extra) if product < 0 else product >> extra
                exponent, cuts = exponent + extra, cuts + 1
            if k % 4096 == 4095:
                state[k + 1] = (product, exponent, cuts)
        size = abs(product)
        if not cuts:
            exact = Fraction(size << exponent) if exponent >= 0 else Fraction(size, 1 << -exponent)
            return self.system.rational(-exact if product < 0 else exact)
        # Each cut took less than 2^(1-width) of the value away, the first one something (the product was odd).
        lo, hi = from_man_exp(size, exponent), from_man_exp(size + 2 * cuts, exponent)
        return self.system.interval(en.negate((lo, hi)) if product < 0 else (lo, hi))

    def _exponentials(self, a: ExactRow, stop: int) -> tuple[MpValue, MpValue]:
        """m and r of one prefix: fixed-point sums relative to a multiple of 32 above m, kept for later prefixes."""
        prefix = a.floats[:stop]
        if np.isnan(prefix).any() or (prefix == np.inf).any():
            raise ValueError("cumsumexp of a prefix with +inf or NaN; special rows decide it")
        top = float(prefix.max()) if stop else -math.inf
        m = self.system.const(top)
        if top == -math.inf:
            return m, self.system.rational(Fraction(0))
        terms = int((prefix > -math.inf).sum())
        if terms == int((prefix == top).sum()):
            return m, self.system.rational(Fraction(terms - 1))
        whole = math.ceil(Fraction(top) / 32) * 32
        places = self.precision + 64 + len(a).bit_length()
        sums: list[int] = a.kept.setdefault(("exp", whole, places), [])
        total = sums[-1] if sums else 0
        seen: dict[float, int] = {-math.inf: 0}  # half formats have few values
        rest = slice(len(sums), stop)
        columns = (a.floats[rest].tolist(), a.mantissas[rest].tolist(), a.exponents[rest].tolist())
        for x, mantissa, exponent in zip(*columns, strict=True):
            if x not in seen:
                seen[x] = _exp_fixed(mantissa, exponent, whole, places)
            total += seen[x]
            sums.append(total)
        highest = int(prefix.argmax())
        own = _exp_fixed(int(a.mantissas[highest]), int(a.exponents[highest]), whole, places)
        lo = sums[stop - 1] - own  # every other term lies between its entry and its entry + 3
        bounds = from_man_exp(lo, -places), from_man_exp(lo + 3 * (terms - 1), -places)
        distance = self.system.const(whole - Fraction(top))
        return m, self.system.multiply(self.system.interval(bounds), self.system.exp(distance))


#: Of the distance from the reference: bits of a digit whose exponentials are tabled, how many such digits, and bits
#: beyond `places`, for the roundings.
DIGIT, DIGITS, ROOM = 8, 5, 16
TABLED = 2048  # bits up to which tables pay: beyond, few elements are left, and a table takes a second


def _exp_fixed(mantissa: int, exponent: int, whole: int, places: int) -> int:
    """f >= 0 with f < 2^places exp(a - whole) < f + 3, for a = mantissa 2^exponent <= whole.

    exp(-d) is the product of the tabled exponentials of the whole part of d and of its first digits, and of Taylor's
    polynomial of the rest, r < 2^-(DIGIT DIGITS). Every factor is at most 1 and within 4 units of 2^-width, where a
    product is cut too: together they are off by less than 40 of 2^ROOM units.
    """
    width = places + ROOM
    shift = exponent + width
    d = (whole << width) - (mantissa << shift if shift >= 0 else mantissa >> -shift)
    if width > TABLED:
        if d >> width > width:
            return 0
        exact = mpf_exp(from_man_exp(-d, -width), width + en.GUARD)
        return max(0, (int(to_fixed(exact, width)) >> ROOM) - 1)
    wholes, *digits = _tabled_exponentials(width)
    if d >> width >= len(wholes):
        return 0  # exp(-d) < 2^-width
    product, place = wholes[d >> width], width
    for table in digits:
        place -= DIGIT
        product = product * table[d >> place & ((1 << DIGIT) - 1)] >> width
    r, one = d & ((1 << place) - 1), 1 << width
    series = one
    for k in range(width // (DIGIT * DIGITS), 0, -1):
        series = one - (r * series >> width) // k
    return max(0, (product * series >> width + ROOM) - 1)


@functools.lru_cache(8)
def _tabled_exponentials(width: int) -> tuple[list[int], ...]:
    """exp(-k) for each k up to width ln 2, and exp(-j 2^-(DIGIT i)) for the i-th digit j, in units of 2^-width."""

    def fixed(j: int, scale: int) -> int:
        return int(to_fixed(mpf_exp(from_man_exp(-j, -scale), width + en.GUARD), width)) if j else 1 << width

    wholes = [fixed(k, 0) for k in range(math.ceil(width * math.log(2)) + 1)]
    return wholes, *([fixed(j, DIGIT * i) for j in range(1 << DIGIT)] for i in range(1, DIGITS + 1))


def _exact_sum(values: list[Fraction]) -> Fraction:
    """Dyadic rationals over one denominator; any others as they come."""
    if any(v.denominator & (v.denominator - 1) for v in values):
        return sum(values, Fraction(0))
    bits = max((v.denominator.bit_length() for v in values), default=1) - 1
    total = sum(v.numerator << (bits - v.denominator.bit_length() + 1) for v in values)
    return Fraction(total, 1 << bits)


def _all_negative(values: np.ndarray) -> bool:
    """Whether an exact zero sum of these is -0: only of -0 alone (IEEE 754-2019, 6.3)."""
    return len(values) > 0 and all(x.negative for x in values)


def _upper(x: MpValue) -> Fraction:
    """A short number near the upper end of an interval."""
    end = x.bounds[1]
    known = end[1] and abs(en.magnitude(end)) < LIMIT
    return en.to_fraction(en.inflate(end, 53)[0]) if known else ZERO


def _compared(a: ExactRow, other: Any) -> np.ndarray:
    """What to compare with `other`: float64 holds every value, so a Python number needs no MpValue."""
    return a.floats if isinstance(other, int | float | ExactRow) else a.values


def _bare(other: Any) -> Any:
    return other.floats if isinstance(other, ExactRow) else other


def _values(a: Row) -> np.ndarray:
    return a.values if isinstance(a, ExactRow) else a
