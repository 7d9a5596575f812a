"""Double-double balls whose elements have exponents of their own: the truth of float64 on tensors.

A value is (mid + tail) 2^shift within rad 2^shift, with |mid| in [1, 2) or zero where an operation begins: nothing
over- or underflows, so that infinities and NaNs come from infinite operands and division by zero alone. Library
functions are series of these balls' own operations, which prove their radii; nothing is assumed of a library.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import mpmath
import torch
from mpmath import libmp

from verify.numbers.ball import GROW, Ball, BallDD, Span, full
from verify.numbers.transforms import two_prod, two_sum

Tensor = torch.Tensor

FAR = 900  # binades at which a distance in exponents is as good as infinite
LOST = 2.0**-1000  # covers what may underflow beside numbers of size 1
SPAN = Span(53, -1022, 1022)  # no number is beyond it
MOST = 8192.0  # exp and exp2 of larger arguments are beyond 2^+-(2 FAR + 1024)
SMALL = 2.0**-450  # products of two such tails do not underflow


def power(k: Tensor) -> Tensor:
    """2^k of integers, k limited to +-FAR."""
    return ((k.clamp(-FAR, FAR) + 1023) << 52).view(torch.float64)


def times_power(v: Tensor, k: Tensor) -> Tensor:
    """v 2^k for |k| <= 2 FAR, rounded once at most."""
    half = k >> 1
    return v * power(half) * power(k - half)


def exponent(v: Tensor) -> Tensor:
    """floor(log2 |v|) of normal numbers; -1023 for smaller ones, 1024 where v is not finite."""
    return ((v.view(torch.int64) >> 52) & 0x7FF) - 1023


@dataclass(frozen=True, eq=False)  # == is that of exact inputs
class ScaledBall(Ball):
    """A ball times 2^shift (an int64 tensor, or 0 for all elements)."""

    shift: Tensor | int = 0


class BallScaled(BallDD):
    """The system of `ScaledBall`s on one device. Run eagerly only. Inputs and constants keep their float64 values,
    which predicates of oracles compare."""

    ALL = (-(1 << 40), 1 << 40)  # more than any exponent

    def __init__(self, device: Any) -> None:
        super().__init__(device, {})
        self.plain = BallDD(device, {})

    def input(self, tensor: Tensor) -> Ball:
        return ScaledBall(self, tensor.to(torch.float64), 0.0, SPAN, source=True)

    def const(self, value: Any) -> Ball:
        """A rational to 2^-105 of itself, exact where two float64 hold it."""
        if isinstance(value, Ball):
            return value
        exact = Fraction(value)
        head = float(exact) or math.copysign(0.0, float(value))  # a zero keeps its sign
        tail = float(exact - Fraction(head))
        rest = abs(exact - Fraction(head) - Fraction(tail))
        rad = float(rest) * GROW + LOST if rest else 0.0
        mid = torch.tensor(head, dtype=torch.float64, device=self.device)
        found = ScaledBall(self, mid, torch.full_like(mid, rad) if rest else 0.0, SPAN, source=not tail and not rest)
        return replace(found, tail=torch.full_like(mid, tail)) if tail else found

    def normal(self, a: Ball) -> tuple[Ball, Tensor]:
        """Mantissa, |mid| in [1, 2) or 0, and exponent."""
        assert isinstance(a, ScaledBall)
        mid, shift = a.mid, torch.as_tensor(a.shift, device=self.device)
        if a.source:  # may be subnormal
            small = mid.abs() < 2.0**-1000
            mid, shift = torch.where(small, mid * 2.0**200, mid), shift - 200 * small.to(torch.int64)
        e = exponent(mid)
        e = torch.where((e == -1023) | (e == 1024), 0, e)
        by = ((1023 - e) << 52).view(torch.float64) if not a.source else power(-(e >> 1))
        tail, rad = a.tail, a.rad
        if a.source:
            mid = mid * by * power((e >> 1) - e)
        else:
            mid = mid * by
        if isinstance(tail, Tensor):
            tail = tail * by
        if isinstance(rad, Tensor):
            rad = rad * by
            rad = torch.where(rad > 0, rad * GROW + LOST, rad)
        return Ball(self.plain, mid, rad, SPAN, tail=tail), shift + e

    def _made(self, found: Ball, shift: Tensor, head: Tensor, *operands: Ball, known: Tensor | None = None) -> Ball:
        """A result on mantissas; head: as IEEE arithmetic gives it; known: that an infinite or NaN one is so of all
        numbers of the operands' balls."""
        mid = found.mid
        tail, rad = full(found.tail, mid), full(found.radius, mid)
        tiny, beyond = (tail != 0) & (tail.abs() < SMALL), ~torch.isfinite(head)
        for one in operands:
            beyond = beyond | ~torch.isfinite(one.mid)  # such as x / inf
            if isinstance(one.tail, Tensor):
                tiny = tiny | ((one.tail != 0) & (one.tail.abs() < SMALL))
        rad = torch.where(tiny, rad + LOST, rad)
        sure = torch.zeros_like(rad) if known is None else torch.where(known, 0.0, torch.nan)
        return ScaledBall(
            self, torch.where(beyond, head, mid), torch.where(beyond, sure, rad), SPAN,
            tail=torch.where(beyond, 0.0, tail), shift=torch.where(beyond, 0, shift),
        )  # fmt: skip

    def add(self, a: Ball, b: Ball) -> Ball:
        (x, i), (y, j) = self.normal(a), self.normal(b)
        i, j = torch.where(_nothing(x), j, i), torch.where(_nothing(y), i, j)
        top = torch.maximum(i, j)
        found = self.plain.add(_lower(x, i - top), _lower(y, j - top))
        known = ~(torch.isnan(full(x.radius, x.mid)) | torch.isnan(full(y.radius, y.mid)))
        return self._made(found, top, x.mid + y.mid, known=known)

    def mul(self, a: Ball, b: Ball) -> Ball:
        (x, i), (y, j) = self.normal(a), self.normal(b)
        head = x.mid * y.mid
        if (
            isinstance(x.tail, float)
            and isinstance(y.tail, float)
            and isinstance(x.rad, float)
            and isinstance(y.rad, float)
        ):
            mid, tail = two_prod(x.mid, y.mid)
            mid, tail = torch.where(mid == 0, head, mid), torch.where(mid == 0, 0.0, tail)
            return self._made(
                Ball(self.plain, mid, 0.0, SPAN, tail=tail), i + j, head, known=torch.ones_like(head, dtype=torch.bool)
            )
        found = self._made(self.plain.mul(x, y), i + j, head, x, y, known=_signed(x) & _signed(y))
        nothing = (_nothing(x) | _nothing(y)) & torch.isfinite(head)
        rad = full(found.radius, found.mid)
        return replace(found, rad=torch.where(nothing & ~torch.isnan(rad), 0.0, rad))

    def div(self, a: Ball, b: Ball) -> Ball:
        """Three quotients of what is left each time: there are quotients within 2^-106 of a midpoint."""
        (x, i), (y, j) = self.normal(a), self.normal(b)
        n, head, rest, parts = self.plain, x.mid / y.mid, replace(x, rad=0.0), []
        for _ in range(3):
            parts.append(rest.mid / y.mid)
            rest = n.add(rest, -n.mul(replace(y, rad=0.0), Ball(n, parts[-1], 0.0)))
        mid, tail, lost = _three(parts[0], parts[1], parts[2], head)
        off = rest.mid.abs() + rest.radius + x.radius + mid.abs() * full(y.radius, mid)
        room = y.mid.abs() * (1 - 2.0**-50) - y.radius
        rad = (lost + torch.where(room > 0, off / room, torch.nan)) * GROW
        rad = torch.where(rad == 0, rad, rad + LOST)
        return self._made(Ball(n, mid, rad, SPAN, tail=tail), i - j, head, x, y, known=_signed(x) & _signed(y))

    def sqrt(self, a: Ball) -> Ball:
        """s0 + s1 + s2 by Newton. Of r = x - (s0 + s1)^2 the last one, about r / 2 s0, leaves
        (r - 2 s0 s2 - 2 s1 s2 - s2^2) / (2 s0 + 2 s1 + 2 s2 + e) = e."""
        x, i = self.normal(a)
        odd = i & 1
        x = _times(x, 1.0 + odd.to(torch.float64))
        n, s0 = self.plain, x.mid.sqrt()
        point = replace(x, rad=0.0)

        def less(rest: Ball, u: Tensor, v: Tensor) -> Ball:
            return n.add(rest, -n.mul(Ball(n, u, 0.0), Ball(n, v, 0.0)))

        high, low = two_sum(s0, less(point, s0, s0).mid / (2 * s0))
        rest = less(less(less(point, high, high), 2 * high, low), low, low)
        s2 = rest.mid / (2 * s0)
        left = less(rest, 2 * s0, s2)
        mid, tail, lost = _three(high, low, s2, s0)
        off = left.mid.abs() + left.radius + x.radius + 4 * (high - s0 + low).abs() * s2.abs() + 2 * s2 * s2
        rad = (lost + off / s0) * GROW
        rad = torch.where((off == 0) & (lost == 0), 0.0, rad + LOST)
        zero = x.mid == 0
        mid, tail, rad = torch.where(zero, s0, mid), torch.where(zero, 0.0, tail), torch.where(zero, 0.0, rad)
        return self._made(Ball(n, mid, rad, SPAN, tail=tail), i >> 1, s0, x, known=_signed(x))

    def where(self, predicate: Any, a: Any, b: Any) -> Ball:
        x, y = self.const(a), self.const(b)
        assert isinstance(x, ScaledBall) and isinstance(y, ScaledBall)
        if not (x.source and y.source):
            x, y = self.scaled(x, 0), self.scaled(y, 0)
        found = super().where(predicate, x, y)
        shift: Tensor | int = 0 if found.source else torch.where(predicate, x.shift, y.shift)
        return ScaledBall(self, found.mid, found.rad, SPAN, found.source, found.tail, shift=shift)

    # ------------------------------------------------------------ for those who ask for numbers

    def unit(self, a: Ball, low: int, high: int) -> Tensor:
        """The exponents of a ball, within low and high; of zeros low, of infinities and NaNs high."""
        x, i = self.normal(a)
        return torch.where(torch.isfinite(x.mid), torch.where(x.mid == 0, low, i), high).clamp(low, high)

    def within(self, a: Ball, unit: Tensor | int) -> Ball:
        """The ball as a plain one, in units of 2^unit. What is more than 2^FAR of them is 2^FAR, and what is less than
        2^-FAR is that."""
        x, i = self.normal(a)
        k = i - unit
        by = power(k)
        tail, rad = full(x.tail, x.mid), full(x.radius, x.mid)
        mid, low, off = x.mid * by, tail * by, rad * by
        off = torch.where((rad > 0) | (low / by != tail), off * GROW + LOST * 2.0**-50, off)
        real = torch.isfinite(x.mid) & (x.mid != 0)
        far, gone = real & (k > FAR), real & (k < -FAR)
        mid = torch.where(far | gone, torch.copysign(power(k), x.mid), torch.where(real, mid, x.mid))
        # all of it is of one sign and size, or nothing is said
        off = torch.where(far | gone, torch.where(rad <= 0.5, 0.0, torch.nan), off)
        off = torch.where(torch.isfinite(x.mid), off, rad)
        return Ball(self.plain, mid, off, SPAN, tail=torch.where(far | gone, 0.0, low))

    # ------------------------------------------------------------ functions

    def _undecided(self, mid: Tensor) -> Ball:
        nan = torch.full_like(mid, torch.nan)
        return ScaledBall(
            self, nan, nan, SPAN, tail=torch.zeros_like(mid), shift=torch.zeros_like(mid, dtype=torch.int64)
        )

    def given(self, value: Tensor | float) -> Ball:
        """An exact number, infinity or NaN."""
        mid = torch.as_tensor(value, dtype=torch.float64, device=self.device)
        return ScaledBall(self, mid, 0.0, SPAN, source=True)

    def scaled(self, a: Ball, by: Tensor | int) -> ScaledBall:
        """a 2^by."""
        x, i = self.normal(a)
        return ScaledBall(self, x.mid, x.rad, SPAN, tail=x.tail, shift=i + by)

    def _series(self, a: Ball, coefficients: Sequence[Any], rest: float) -> Ball:
        """The sum of coefficients[k] a^k of a ball |a| < 1, within `rest` of it. Of
        |a| < 2^-200 the constant term within 2^-195."""
        x, i = self.normal(a)
        none = (i < -200) | (x.mid == 0)
        by = torch.where(none, 0.0, power(i))
        n = self.plain
        x = Ball(n, x.mid * by, None if x.rad is None else full(x.rad, x.mid) * by, SPAN, tail=full(x.tail, x.mid) * by)
        total = self._point_of(coefficients[-1])
        for one in reversed(coefficients[:-1]):
            total = n.add(n.mul(total, x), self._point_of(one))
        rad = torch.where(none, full(total.radius, x.mid) + 2.0**-195, full(total.radius, x.mid))
        rad = (rad + rest) * GROW
        return ScaledBall(self, total.mid, rad, SPAN, tail=full(total.tail, x.mid), shift=torch.zeros_like(i))

    def _point_of(self, value: Any) -> Ball:
        found = self.const(value)
        return Ball(self.plain, found.mid, found.rad, SPAN, tail=found.tail)

    def _approximate(self, a: Ball, most: float) -> Tensor:
        """The ball's number as one float64, within about 2^-50 of it, limited to +-most; NaN stays."""
        x, i = self.normal(a)
        v = x.mid * power(i)
        v = torch.where((i > FAR) & (x.mid != 0), torch.copysign(power(i), x.mid), v)
        return v.clamp(-most, most)

    def _reduced(self, r: Ball) -> Ball:
        """e^r - 1 for |r| <= 0.36, relative to itself: r p of r 2^-6, doubled by E(2r) = E (E + 2).

        p = (e^z - 1) / z is a series in z = r 2^-6, |z| < 2^-7.4, whose terms from z^11/12! on are below 2^-110.
        """
        z = self.scaled(r, -6)
        found = self.mul(z, self._series(z, [Fraction(1, math.factorial(k + 1)) for k in range(11)], 2.0**-109))
        two = self.const(2)
        for _ in range(6):
            found = self.mul(found, self.add(found, two))
        return found

    def _split(self, a: Ball, most: float, per: float) -> tuple[Tensor, Ball]:
        """The nearest integer k to a / per, limited, as int64, and as a constant's ball."""
        k = torch.round(self._approximate(a, most) * (1 / per))
        k = torch.where(torch.isnan(k), 0.0, k)
        return k.to(torch.int64), ScaledBall(self, k, 0.0, SPAN, source=True)

    def _limited(self, a: Ball, found: Ball) -> Ball:
        """What e^a or 2^a makes of it: where the argument is beyond MOST, a number beyond 2^+-(2 FAR + 1024) of which
        only that is known, and undecided where it is not a number."""
        x, _ = self.normal(a)
        at = self._approximate(a, 2 * MOST)
        beyond = at.abs() > MOST
        known = torch.where(beyond, _signed(x), at.abs() <= MOST)
        far = self.scaled(self.const(1), torch.where(at > 0, 1, -1) * 8 * FAR)
        found = self.where(beyond, far, found)
        found = self.where(torch.isinf(x.mid), self.given(torch.where(at > 0, torch.inf, torch.zeros_like(at))), found)
        return replace(found, rad=torch.where(known, found.radius, torch.nan))

    def exp(self, a: Any) -> Ball:
        a = self.const(a)
        k, whole = self._split(a, MOST, math.log(2))
        small = self._reduced(self.add(a, -self.mul(whole, self._constant("ln2"))))
        return self._limited(a, self.scaled(self.add(small, self.const(1)), k))

    def exp2(self, a: Any) -> Ball:
        a = self.const(a)
        k, whole = self._split(a, MOST, 1.0)
        small = self._reduced(self.mul(self.add(a, -whole), self._constant("ln2")))
        return self._limited(a, self.scaled(self.add(small, self.const(1)), k))

    def expm1(self, a: Any) -> Ball:
        a = self.const(a)
        k, whole = self._split(a, 512.0, math.log(2))
        small = self._reduced(self.add(a, -self.mul(whole, self._constant("ln2"))))
        ones = ScaledBall(self, power(k) - 1.0, 0.0, SPAN, source=True)  # exact for k < 53 ...
        found = self.where(
            k < 53, self.add(self.scaled(small, k), ones), self.scaled(self.add(small, self.const(1)), k)
        )
        found = self.where(k < 53, found, self.add(found, self.const(-1)))  # ... and not needed beyond
        known = self._approximate(a, 1024.0).abs() <= 512
        return replace(found, rad=torch.where(known, found.radius, torch.nan))

    def tanh(self, a: Any) -> Ball:
        """E / (E + 2) = 1 - 2 / (E + 2), E = e^(2|a|) - 1; the second keeps what is left of 1."""
        a = self.const(a)
        size = abs(a)
        at = self._approximate(size, 200.0)
        capped = self.where(at < 200, size, self.const(200))
        grown = self.expm1(self.scaled(capped, 1))
        more = self.add(grown, self.const(2))
        found = self.where(at < 1, self.div(grown, more), self.add(self.const(1), -self.div(self.const(2), more)))
        # from 200 on up to 1, nearer than this to it
        found = replace(found, rad=torch.where(at < 200, found.radius, full(found.radius, at) + 2.0**-500))
        return self.where(a.mid < 0, -found, found)

    def _log(self, a: Ball) -> tuple[Tensor, Ball]:
        """e and log m of a = m 2^e, m in [0.7, 1.42]: 2 atanh s of s = (m - 1) / (m + 1), |s| < 0.1717.

        s^2 < 2^-5.08: from (s^2)^22/45 on the terms of atanh(s)/s sum up to less than 2^-115.
        """
        x, i = self.normal(a)
        upper = (x.mid > math.sqrt(2)).to(torch.int64)
        m = ScaledBall(self, x.mid, x.rad, SPAN, tail=x.tail, shift=-upper)
        s = self.div(self.add(m, self.const(-1)), self.add(m, self.const(1)))
        found = self._series(self.mul(s, s), [Fraction(2, 2 * k + 1) for k in range(22)], 2.0**-114)
        found = self.mul(s, found)
        positive = torch.isfinite(x.mid) & (x.mid > 0)
        return i + upper, replace(found, rad=torch.where(positive, found.radius, torch.nan))

    def log(self, a: Any) -> Ball:
        e, small = self._log(self.const(a))
        whole = ScaledBall(self, e.to(torch.float64), 0.0, SPAN, source=True)
        return self.add(self.mul(whole, self._constant("ln2")), small)

    def log2(self, a: Any) -> Ball:
        e, small = self._log(self.const(a))
        whole = ScaledBall(self, e.to(torch.float64), 0.0, SPAN, source=True)
        return self.add(whole, self.mul(small, self._constant("1/ln2")))

    def rsqrt(self, a: Any) -> Ball:
        return self.div(self.const(1), self.sqrt(self.const(a)))

    def pow(self, x: Ball, y: Ball) -> Ball:
        """2^(y log2 x) for x > 0; what may lie at or beside midpoints by arithmetic."""
        powers = self.powers(x)
        if y.source and not y.mid.dim() and float(y.mid) in powers:
            return powers[float(y.mid)]()
        found = self.exp2(self.mul(y, self.log2(x)))
        return self.where(y.mid == 2, powers[2.0](), found) if y.source else found

    def sin(self, a: Any) -> Ball:
        """sin or cos of f pi/2, a 2/pi = k + f. a = M 2^(i - 52), whose M is an integer, so that M times
        2^(i - 52) 2/pi modulo 4 serves: `_turns` as four numbers, whose products are added up from the largest.

        |f pi/2| < 0.8: the terms from (f pi/2)^30/30! on are below 2^-116.
        """
        x, i = self.normal(self.const(a))
        i = i + torch.zeros_like(x.mid, dtype=torch.int64)
        table = torch.tensor(_turns(), dtype=torch.float64, device=self.device)
        rows = table[(i + _TURNS).clamp(0, len(table) - 1)]
        whole = torch.where(torch.isfinite(x.mid), x.mid, 0.0) * 2.0**52
        parts = [part for j in range(4) for part in two_prod(whole, rows[..., j])]
        parts[0] = torch.fmod(parts[0], 4.0)  # exact
        k = torch.round(parts[0] + (parts[1] + parts[2]))
        s, left = two_sum(parts[0] - k, parts[1])
        s, more = two_sum(s, parts[2])
        n = self.plain
        found = Ball(n, s, 0.0)
        for part in (left, more, parts[3], parts[4], parts[5], parts[6]):
            found = n.add(found, Ball(n, part, 0.0))
        f = ScaledBall(self, found.mid, found.radius + 2.0**-154, SPAN, tail=found.tail, shift=torch.zeros_like(i))
        small = i < -_TURNS
        k = torch.where(small, 0.0, k)
        r = self.where(small, a, self.mul(f, self._constant("pi/2")))
        square = self.mul(r, r)
        signs = [Fraction((-1) ** j) for j in range(15)]
        odd = self._series(square, [v / math.factorial(2 * j + 1) for j, v in enumerate(signs)], 2.0**-115)
        even = self._series(square, [v / math.factorial(2 * j) for j, v in enumerate(signs)], 2.0**-115)
        found = self.where(torch.remainder(k, 2) == 1, even, self.mul(r, odd))
        return self.where(torch.remainder(k, 4) >= 2, -found, found)

    def erf(self, a: Any) -> Ball:
        """Taylor's series about c = j/16, |h| <= 1/32: erf(c + h) = erf(c) + h S. With |H_n(x)| < 1.09 2^(n/2) n!^(1/2)
        e^(x^2/2) (Cramer; DLMF 18.14.9) what is left of S is below 2^-124. From 7 on 1 - erf is below 2^-75."""
        a = self.const(a)
        size = abs(a)
        at = torch.nan_to_num(self._approximate(size, 8.0), nan=0.0)
        j = torch.round(at.clamp(max=7.0) * 16).to(torch.int64)
        c = ScaledBall(self, j.to(torch.float64) * 0.0625, 0.0, SPAN, source=True)
        h = self.add(self.where(at < 7, size, self.const(7)), -c)
        table = torch.tensor(_hermite(), dtype=torch.float64, device=self.device)[j]
        columns = [ScaledBall(self, t[..., 0], t[..., 2], SPAN, tail=t[..., 1]) for t in table.unbind(-2)]
        found = self.mul(h, self._series(h, columns[1:], 2.0**-118))
        found = self.add(self.scaled(columns[0], 0), found)
        found = replace(found, rad=torch.where(at < 7, found.radius, 2.0**-74))
        return self.where(a.mid < 0, -found, found)

    def atan(self, a: Any) -> Ball:
        """Of u = |a|, or 1/|a| where |a| > 1: atan c + atan z of z = (u - c)/(1 + u c), c = j/16, |z| <= 1/32.

        The terms of atan(z)/z from (z^2)^12/25 on are below 2^-124.
        """
        a = self.const(a)
        size = abs(a)
        large = self._approximate(size, 2.0) > 1
        u = self.where(large, self.div(self.const(1), size), size)
        j = torch.round(torch.nan_to_num(self._approximate(u, 1.0), nan=0.0) * 16)
        c = ScaledBall(self, j * 0.0625, 0.0, SPAN, source=True)
        z = self.div(self.add(u, -c), self.add(self.const(1), self.mul(u, c)))
        series = self._series(self.mul(z, z), [Fraction((-1) ** k, 2 * k + 1) for k in range(12)], 2.0**-115)
        t = torch.tensor(_arctangents(), dtype=torch.float64, device=self.device)[j.to(torch.int64)]
        at_c = self.scaled(ScaledBall(self, t[..., 0], t[..., 2], SPAN, tail=t[..., 1]), 0)
        found = self.add(at_c, self.mul(z, series))
        found = self.where(large, self.add(self._constant("pi/2"), -found), found)
        return self.where(a.mid < 0, -found, found)

    def _constant(self, name: str) -> Ball:
        low, high = _constants()[name]
        found = self.scaled(self.const(low), 0)
        return replace(found, rad=full(found.radius, found.mid) + float(high - low) * 2)


@functools.cache
def _constants() -> dict[str, tuple[Fraction, Fraction]]:
    """Enclosures of constants."""

    def of(make: Callable[[int], Any]) -> tuple[Fraction, Fraction]:
        _, man, exp, _ = make(300)
        value, step = Fraction(man) * Fraction(2) ** exp, Fraction(2) ** -290
        return value - step, value + step

    low, high = of(libmp.mpf_ln2)
    least, most = of(libmp.mpf_pi)
    return {"ln2": (low, high), "1/ln2": (1 / high, 1 / low), "pi/2": (least / 2, most / 2)}


_TURNS = 3  # sin reduces arguments from 2^-3 on


@functools.cache
def _turns() -> list[list[float]]:
    """2^(i - 52) 2/pi modulo 4 for i from -_TURNS to 1023, each as the sum of four float64, within 2^-207."""
    inverse = mpmath.mp.clone()
    inverse.prec = 1400
    _, man, exp, _ = (2 / inverse.pi)._mpf_
    return [_pieces(Fraction(man) * Fraction(2) ** (exp + i - 52) % 4, 4) for i in range(-_TURNS, 1024)]


@functools.cache
def _hermite() -> list[list[list[float]]]:
    """Of erf's series about j/16 each coefficient: two float64, and how far their sum may be from it."""
    n = mpmath.mp.clone()
    n.prec = 300
    found = []
    for j in range(113):
        c = n.mpf(j) / 16
        weight = 2 / n.sqrt(n.pi) * n.exp(-c * c)
        values, before, now = [n.erf(c)], n.mpf(0), n.mpf(1)  # H_-1, H_0
        for k in range(20):
            values.append((-1) ** k * weight * now / n.factorial(k + 1))
            before, now = now, 2 * c * now - 2 * k * before
        found.append([_enclosed(v) for v in values])
    return found


@functools.cache
def _arctangents() -> list[list[float]]:
    """Of each j/16 up to 1: two float64, and how far their sum may be from its arctangent."""
    n = mpmath.mp.clone()
    n.prec = 300
    return [_enclosed(n.atan(n.mpf(j) / 16)) for j in range(17)]


def _enclosed(value: Any) -> list[float]:
    """A number of mpmath as two float64, and how far their sum may be from it."""
    negative, man, exp, _ = value._mpf_
    exact = Fraction(-man if negative else man) * Fraction(2) ** exp
    return [*_pieces(exact, 2), float(abs(exact)) * 2.0**-105]


def _pieces(value: Fraction, count: int) -> list[float]:
    """The value as a sum of float64, each the nearest to what is left."""
    found = []
    for _ in range(count):
        found.append(float(value))
        value -= Fraction(found[-1])
    return found


def _three(a: Tensor, b: Tensor, c: Tensor, head: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of three numbers, each far below the one before, as two, and what these lose.

    Where the second would be half an ULP of the first, its neighbour serves: so a number beside a midpoint, which is
    within 2^-107 of its square roots and quotients, keeps its side.
    """
    mid, low = two_sum(a, b)
    mid = torch.where((mid == 0) & (head == 0), head, mid)
    tail, lost = two_sum(low, c)
    beside = (tail != 0) & (lost != 0) & ((mid + 2 * tail) - mid == 2 * tail)
    other = torch.nextafter(tail, torch.copysign(torch.full_like(tail, torch.inf), lost))
    return mid, torch.where(beside, other, tail), torch.where(beside, (tail - other) + lost, lost).abs()


def _nothing(x: Ball) -> Tensor:
    """Where it is exactly zero."""
    found = x.mid == 0
    for part in (x.tail, x.rad):
        if isinstance(part, Tensor):
            found = found & (part == 0)
    return found


def _signed(x: Ball) -> Tensor:
    """Where all of it has one sign, or it is exact."""
    rad = full(x.radius, x.mid)
    return (rad == 0) | (rad < x.mid.abs() * 0.5)


def _times(x: Ball, by: Tensor) -> Ball:
    """Times a power of two from 1 on."""
    tail = x.tail * by if isinstance(x.tail, Tensor) else x.tail
    return replace(x, mid=x.mid * by, tail=tail, rad=x.rad * by if isinstance(x.rad, Tensor) else x.rad)


def _lower(x: Ball, k: Tensor) -> Ball:
    """Times 2^k, k <= 0, with what that loses in the radius."""
    by = power(k)
    tail, rad = full(x.tail, x.mid), full(x.radius, x.mid)
    low, off = tail * by, rad * by
    off = torch.where((rad > 0) | (low / by != tail), off + LOST, off)
    off = torch.where((k < -FAR) & (x.mid != 0) & torch.isfinite(x.mid), off + 2.0 ** (2 - FAR), off)
    return Ball(x.n, x.mid * by, off, SPAN, tail=low)
