"""Elementwise kernels: what is known of elements from an oracle and the inputs alone, on tensors.

An element is known by its inputs. `Elementwise.facts` encloses the truth in a number system (`verify.numbers.ball`),
finds what decides the region, and how far underflow may move the result; `verify.judge` does the rest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch

from verify.facts.formats import FORMATS, Format
from verify.facts.oracle import NEARER, Oracle
from verify.facts.truth import Truth
from verify.judge.chunk import COARSE, patterns
from verify.judge.element import UNMOVED, Facts, Judged, Limits, Plain, decide, plainly
from verify.judge.exact import Circumstances, Exact, Key
from verify.numbers import mp
from verify.numbers.ball import Ball, Ball64, BallDD, nowhere
from verify.numbers.decide import Enclosure, Line, enclosure, ends
from verify.numbers.grid import Extent
from verify.numbers.scaled import FAR, BallScaled

Tensor = torch.Tensor

_POINTS = {"nan": math.nan, "+inf": math.inf, "-inf": -math.inf, "+0": 0.0, "-0": -0.0}
#: Outcomes that are real numbers beyond every format, not special values.
_BEYOND = {"+huge": 2.0**1000, "-huge": -(2.0**1000), "+tiny": 2.0**-1000, "-tiny": -(2.0**-1000)}
_POINTS |= _BEYOND
CAP = 12288  # bits of precision
_LOOSE = 1 + 2.0**-30  # covers the rounding of a few operations on bounds
_SECOND_ORDER = 1 + 2.0**-16  # covers the products of underflow and rounding errors


class Elementwise:
    """An oracle with its Python scalars (doubles, meant exactly) in one format, on one device.

    bounds: relative error of each admitted float64 library function (`verify.numbers.admit`). functions:
    replacements of torch's, by name.
    """

    def __init__(
        self,
        oracle: Oracle,
        fmt: Format,
        names: tuple[str, ...],
        scalars: Mapping[str, float],
        device: Any,
        bounds: Mapping[str, float],
        functions: Mapping[str, Callable[..., Tensor]] | None = None,
    ) -> None:
        self.oracle, self.fmt, self.names, self.scalars, self.device = oracle, fmt, names, dict(scalars), device
        self.ball = Ball64(device, bounds, functions)
        self.double = BallScaled(device) if fmt.bits == 64 else BallDD(device, bounds)

    def facts(self, inputs: tuple[Tensor, ...], like: Tensor, *, double: bool = False, zeroed: bool = False) -> Facts:
        """Facts of the elements with these inputs, each of shape (n,); like: their outputs, which a row of
        outcome 'either-zero' follows.

        double: in double-double. zeroed: also the truth at operands whose subnormals are taken as zero.
        """
        n = self.double if double else self.ball
        values = self._values(n, inputs)
        truth, tabled, unit, ball = self._enclose(n, values, inputs, like)
        false = torch.zeros(like.shape, dtype=torch.bool, device=like.device)
        special, subnormal, finite = tabled, false, ~false
        for t in inputs:
            size = t.abs()
            finite = finite & torch.isfinite(t)
            subnormal = subnormal | ((size > 0) & (size < float(self.fmt.smallest_normal)))
        special = special | ~finite
        if self.oracle.arithmetic:  # such as x / 0, or 0 / 0
            special = special | ((torch.isnan(truth.mid) | torch.isinf(truth.mid)) & (truth.radius == 0))
        under, over, unsure = self._intermediates(n, values, inputs, finite)
        # with a special operand, underflow does not move a result slightly: 0 inf is a NaN
        over, under = over | (under & special), under & ~special
        if isinstance(n, BallScaled) and unit is not None:
            slack, low = torch.zeros(like.shape, dtype=torch.float64, device=like.device), under.nonzero()[:, 0]
            if len(low):
                own = self._values(n, tuple(t[low] for t in inputs))
                size = n.unit(ball, *n.ALL).expand_as(unit)[low]
                slack[low] = self._slack(n, own, under[low], like[low], unit[low], size)
        else:
            slack = self._slack(n, values, under, like)
        slack = self._brought_back(slack, truth, Line(self.fmt, unit))
        at_zero = None
        if zeroed:
            index = None if unit is None else subnormal.nonzero()[:, 0]  # the others' truth is the same
            some = inputs if index is None else tuple(t[index] for t in inputs)
            flat = tuple(torch.where(_tiny(t, self.fmt), torch.copysign(torch.zeros_like(t), t), t) for t in some)
            if nowhere(subnormal):
                at_zero = truth
            elif unit is None or index is None:
                at_zero, *_ = self._enclose(n, self._values(n, flat), flat, like)
            elif len(index):
                part, *_ = self._enclose(n, self._values(n, flat), flat, like[index], unit[index])
                at_zero = truth.put(index, part)
            else:
                at_zero = truth
        return Facts(
            truth, special, subnormal, under, over, unsure, slack,
            scale=self._scale(n, values, like, unit), zeroed=at_zero, flush=slack * 2.0**self.fmt.precision, unit=unit,
        )  # fmt: skip

    def likely(self, inputs: tuple[Tensor, ...], like: Tensor) -> Facts:
        """Facts for `verify.judge.element.plainly`, by fewer operations than those of `facts`.

        special: the element is special; where a NaN is due the midpoint is one, and otherwise 0. over: an intermediate
        may leave the normal range; under: it is certainly below it. The truth is that of other elements.
        """
        n = self.ball
        values = self._values(n, inputs)
        found = enclosure(self.oracle.function(n, **values), like)
        false = torch.zeros(like.shape, dtype=torch.bool, device=like.device)
        special, subnormal, under, over, beyond, nan = (false,) * 6
        for row in self.oracle.rows:
            hit = torch.as_tensor(row.when(n, **values), device=like.device)
            if row.gives in _BEYOND:
                found = _override(found, hit & ~beyond, point_of(row.gives), beyond=True)
                beyond = beyond | hit
                continue
            if row.gives == "nan":
                nan = nan | (hit & ~(special | beyond))
            special = special | hit
        least = float(self.fmt.smallest_normal)
        for t in inputs:
            wide = t.to(torch.float64)
            size = wide.abs()
            special, subnormal = special | ~(size < math.inf), subnormal | ((size > 0) & (size < least))
            if self.oracle.arithmetic and not self.oracle.rows:  # IEEE 754-2019, 6.2: a NaN operand gives a NaN
                nan = nan | torch.isnan(wide)
        if self.oracle.arithmetic:  # such as x / 0
            special = special | ~(found.mid.abs() < math.inf)
        found = replace(found, mid=torch.where(special, torch.where(nan, math.nan, 0.0), found.mid))
        low, high = range_of(self.fmt)
        for part in self._watched(n, values):
            mid, off = part.mid.abs().expand_as(false), _off(part, false)
            off = off + mid * 2.0**-51  # the ends are rounded themselves
            none = (mid == 0) & (off == 0)
            under = under | ((mid + off < float(low)) & ~none)
            over = over | ~(((mid - off >= float(low)) | none) & (mid + off <= float(high)))
        scale = None
        if self.oracle.scale is not None:
            ball = self.oracle.scale(n, **values)
            scale = (ball.mid - ball.radius) * (1 - 2.0**-45), (ball.mid + ball.radius) * (1 + 2.0**-45)
        zero = torch.zeros(like.shape, dtype=torch.float64, device=like.device)
        return Facts(found, special, subnormal, under, over, false, zero, scale)

    def _values(self, n: Ball64, inputs: tuple[Tensor, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {name: n.input(t) for name, t in zip(self.names, inputs, strict=True)}
        return values | {name: n.const(v) for name, v in self.scalars.items()}

    def _enclose(
        self, n: Ball64, values: dict[str, Any], inputs: tuple[Tensor, ...], like: Tensor, unit: Tensor | None = None
    ) -> tuple[Enclosure, Tensor, Tensor | None, Ball]:
        """The truth with the special rows applied, where one decides it, the units (see `Line`), those of the truth
        unless given, and the truth as a ball."""
        ball = self.oracle.function(n, **values)
        if not isinstance(n, BallScaled):
            found = enclosure(ball, like)
            if self.oracle.arithmetic:
                found = _extended(found, ball.span.finite)
                if n.double and found.tail is not None:  # double-double knows no infinity
                    plain = self.oracle.function(self.ball, **self._values(self.ball, inputs))
                    known = _extended(enclosure(plain, like), plain.span.finite)
                    special = functools.reduce(torch.logical_or, (~torch.isfinite(t) for t in inputs))
                    mid, rad = torch.where(special, known.mid, found.mid), known.radius.where(special, found.radius)
                    found = Enclosure(mid, rad, torch.where(special, 0.0, found.tail))
        tabled = torch.zeros(like.shape, dtype=torch.bool, device=like.device)
        taken = tabled
        for row in self.oracle.rows:
            hit = torch.as_tensor(row.when(n, **values), device=like.device) & ~taken
            taken = taken | hit
            if row.gives == "either-zero":
                value: Any = torch.copysign(torch.zeros(like.shape, dtype=torch.float64, device=like.device), like)
            else:
                value = point_of(row.gives)
            if isinstance(n, BallScaled):
                point = n.given(value)
                if row.gives in _BEYOND:
                    point = n.scaled(point, 4 * FAR if row.gives in ("+huge", "-huge") else -4 * FAR)
                ball = n.where(hit, point, ball)
            else:
                found = _override(found, hit, value, beyond=row.gives in _BEYOND)
            if row.gives not in _BEYOND:
                tabled = tabled | hit
        if n.double and not isinstance(n, BallScaled):
            for one in self.oracle.saturations:
                hit = torch.as_tensor(one.when(n, **values), device=like.device) & ~taken
                found = _override(found, hit, one.at, beyond=False)
                assert found.tail is not None
                found = replace(found, tail=torch.where(hit, math.copysign(NEARER, -one.at), found.tail))
        if isinstance(n, BallScaled):
            given, unit = unit, n.unit(ball, self.fmt.emin, self.fmt.emax).expand(like.shape) if unit is None else unit
            found = enclosure(n.within(ball, unit), like)
            if given is not None:  # it may be outside what the line covers in these units
                size = found.mid.abs()
                far = (size >= 2.0**FAR) & (unit < self.fmt.emax)
                near = (size <= 2.0**-FAR) & (size > 0) & (unit > self.fmt.emin)
                found = replace(found, rad=torch.where(far | near, torch.nan, found.radius))
        return found, tabled, unit, ball

    def _scale(
        self, n: Ball64, values: dict[str, Any], like: Tensor, unit: Tensor | None
    ) -> tuple[Tensor, Tensor] | None:
        """Lower and upper bounds of the oracle's scale, or None where it has none."""
        if self.oracle.scale is None:
            return None
        ball = self.oracle.scale(n, **values)
        if n.double:  # rounded to odd, which changes no binade
            found = enclosure(ball if unit is None else n.within(ball, unit), like)
            low, high = ends(found.mid, found.radius, found.tail, sure=False)
            if unit is not None:
                high = torch.where(found.mid >= 2.0**FAR, torch.inf, high)
        else:
            low, high = (ball.mid - ball.radius) * (1 - 2.0**-45), (ball.mid + ball.radius) * (1 + 2.0**-45)
        return tuple(  # type: ignore[return-value]
            torch.nan_to_num(end, nan=other, posinf=2.0**1000).clamp(min=0.0).expand_as(like)
            for end, other in ((low, 0.0), (high, 2.0**1000))
        )

    def _intermediates(
        self, n: Ball64, values: dict[str, Any], inputs: tuple[Tensor, ...], finite: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Where a finite intermediate is below the normal range of the working format, where it is above, and where
        that is not known. finite: elements whose operands are.

        An exact zero is below nothing; nor is the infinity above anything that division by a zero operand gives, or an
        infinite operand, beside which another intermediate may overflow.
        """
        none = torch.zeros_like(finite)
        under = over = unsure = none
        if self._in_range:
            return under, over, unsure
        zero = none
        for name in self.names:
            zero = zero | (values[name].mid == 0)
        low, high = range_of(self.fmt)
        watched = self._watched(n, values)
        plain: tuple[Any, ...] = (None,) * len(watched)
        if n.double and not isinstance(n, BallScaled):  # double-double knows no infinity
            plain = self._watched(self.ball, self._values(self.ball, inputs))
        for part, other in zip(watched, plain, strict=True):
            mid = part.mid.expand_as(finite)
            if isinstance(n, BallScaled):
                (below, aside), (within, above) = (
                    _beside(n.within(part, e), float(bound / Fraction(2) ** e), finite)
                    for bound, e in ((low, self.fmt.emin), (high, self.fmt.emax))
                )
                inside, off = aside & within, part.radius
            else:
                off = _off(part, finite)
                if other is not None:
                    mid, off = torch.where(finite, mid, other.mid), torch.where(finite, off, _off(other, finite))
                size = mid.abs()
                off = torch.where(off > 0, off + size * 2.0**-51, off)  # the ends below are rounded themselves
                below, above = size + off < float(low), size - off > float(high)
                inside = (size - off >= float(low)) & (size + off <= float(high))
            counts = ~((mid == 0) & ((off == 0) | zero)) & (torch.isfinite(mid) | (finite & ~zero))
            under, over = under | (counts & below), over | (counts & above)
            unsure = unsure | (counts & ~below & ~above & ~inside)
        return under, over, unsure

    def _watched(self, n: Ball64, values: dict[str, Any]) -> tuple[Any, ...]:
        """The intermediates that an operand may take out of the normal range of the working format."""
        if self._in_range or self.oracle.intermediates is None:
            return ()
        return self.oracle.intermediates(n, **values)

    @functools.cached_property
    def _in_range(self) -> bool:
        """Whether finite operands let no intermediate leave the normal range of the working format."""
        if self.oracle.intermediates is None:
            return True
        try:
            values = {name: Extent.every(self.fmt) for name in self.names}
            values |= {name: Extent.of(Fraction(v)) for name, v in self.scalars.items()}
            return all(part.within(*range_of(self.fmt)) for part in self.oracle.intermediates(None, **values))
        except (ArithmeticError, AttributeError, TypeError, ValueError):  # of which nothing is certain
            return False

    def _slack(
        self, n: Ball64, values: dict[str, Any], under: Tensor, like: Tensor, unit: Tensor | None = None,
        size: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """How far underflow may move the result: A smallest subnormals where an intermediate underflows. size: the
        exponent of the result's unit, in a system that scales."""
        nothing = torch.zeros(like.shape, dtype=torch.float64, device=like.device)
        if self.oracle.intermediates is None or nowhere(under):
            return nothing
        if self.oracle.underflow is None:
            return torch.where(under, torch.inf, nothing)
        ball: Ball = self.oracle.underflow(n, **values)
        one = float(self.fmt.smallest_subnormal)
        least = torch.zeros_like(under)
        if unit is not None and size is not None and isinstance(n, BallScaled):
            # a result beyond the format allows more: see `_brought_back`
            least = (size > self.fmt.emax) & (n.unit(ball, *n.ALL) + self.fmt.emin - self.fmt.precision > size + 1)
            ball, one = n.within(ball, unit - (self.fmt.emin - self.fmt.precision + 1)), 1.0
        units = (ball.mid.abs() + ball.radius + torch.as_tensor(ball.tail, device=like.device).abs()) * _SECOND_ORDER
        # a sum of infinite parts says nothing; neither does an infinite one, which is finite in multiprecision
        units = torch.where(torch.isinf(units) | (units >= 2.0**FAR if unit is not None else False), torch.nan, units)
        return torch.where(under & ~least, units.expand_as(like) * one, nothing)

    def _brought_back(self, slack: Tensor, truth: Enclosure, line: Line) -> Tensor:
        """What is left of the slack of a result beyond 2^(emax + 1), where infinity is measured: what underflow brings
        back from there.

        Only a quotient by an intermediate moves such a result by as much as its own size, where the intermediate
        vanishes: the quotient is infinite, as is due. Beyond UNMOVED nothing is taken to be brought back, which is the
        stricter reading, and units may overflow float64 there. NaN: not known.
        """
        size, rad = truth.mid.abs(), truth.radius
        moved = (slack > 0) & (slack < torch.inf) & (size > line.top)
        none = (slack * _LOOSE < size - rad - line.top) | (slack > (size + rad) * _LOOSE)
        slack = torch.where(moved, torch.where(none, 0.0, torch.nan), slack)
        return torch.where(size > UNMOVED, 0.0, slack) if self.fmt.bits < 64 else slack


def judgement(
    about: Elementwise, *, double: bool = False
) -> Callable[[tuple[Tensor, ...], Tensor, Tensor | None, tuple[Any, ...]], Judged]:
    """The pure function (inputs, y, eager, parameters) -> Judged that a fused pass compiles; the parameters are those
    of `Limits`. double: in double-double, with operands taken as zero."""

    def element(inputs: tuple[Tensor, ...], y: Tensor, eager: Tensor | None, parameters: tuple[Any, ...]) -> Judged:
        facts = about.facts(inputs, y, double=double, zeroed=double)
        return decide(y, facts, about.fmt, Limits(*parameters), eager, COARSE)

    return element


def plain_judgement(
    about: Elementwise,
) -> Callable[[tuple[Tensor, ...], Tensor, Tensor | None, tuple[Any, ...]], Plain]:
    """As `judgement`, for the elements that are as nearly all are."""

    def element(inputs: tuple[Tensor, ...], y: Tensor, eager: Tensor | None, parameters: tuple[Any, ...]) -> Plain:
        return plainly(y, about.likely(inputs, y), about.fmt, Limits(*parameters), eager, COARSE)

    return element


def range_of(fmt: Format) -> tuple[Fraction, Fraction]:
    """The normal range of intermediates: that of the working format (float32 for half formats), less a few units at
    either end, so that an error of a few ULP cannot carry a computed value out of it."""
    working = FORMATS["float32"] if fmt.bits < 32 else fmt
    margin = Fraction(8, 2**working.precision)
    return working.smallest_normal * (1 + margin), working.max_finite * (1 - margin)


def point_of(gives: str | Fraction) -> float:
    """What a special row gives, as a midpoint of radius 0 (2^+-1000 for huge and tiny)."""
    return _POINTS[gives] if isinstance(gives, str) else float(gives)


def _tiny(t: Tensor, fmt: Format) -> Tensor:
    return (t != 0) & (t.abs() < float(fmt.smallest_normal))


def _extended(found: Enclosure, finite: bool) -> Enclosure:
    """Infinities and NaNs as IEEE arithmetic on float64 gives them, where no overflow on the way disturbs them: where
    the operands are of a narrower format (finite)."""
    special = ~torch.isfinite(found.mid)
    rad = torch.where(special, 0.0 if finite else torch.nan, found.radius)
    return Enclosure(found.mid, rad, None if found.tail is None else torch.where(special, 0.0, found.tail), found.sure)


def _override(found: Enclosure, hit: Tensor, value: Any, *, beyond: bool) -> Enclosure:
    """With another value where it is hit: exactly that one, or one that stands for all beyond every format."""
    mid = torch.where(hit, value, found.mid)
    if beyond and found.rad is None:
        return replace(found, mid=mid)
    own = abs(value) * found.relative + found.absolute if beyond else 0.0
    tail = None if found.tail is None else torch.where(hit, 0.0, found.tail)
    return replace(found, mid=mid, rad=torch.where(hit, own, found.radius), tail=tail)


def _off(ball: Ball, like: Tensor) -> Tensor:
    """How far the number may be from the midpoint."""
    rad, tail = (torch.as_tensor(v, dtype=torch.float64, device=like.device) for v in (ball.radius, ball.tail))
    return (rad + tail.abs()) * (1 + 2.0**-45)


def _beside(ball: Ball, bound: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Where the size of a ball is certainly below a bound, and where it is certainly not."""
    found = enclosure(abs(ball), like)
    assert found.tail is not None and found.rad is not None
    gap = found.mid - bound  # exact where it is small
    blur = found.rad + (gap.abs() + found.tail.abs()) * 2.0**-50
    exact = (found.rad == 0) & (found.tail == 0)
    return torch.where(exact, gap < 0, gap + found.tail + blur < 0), torch.where(
        exact, gap >= 0, gap + found.tail - blur > 0
    )


@dataclass(frozen=True)
class Patterns:
    """Elements of an oracle with its Python scalars, known by the patterns of their inputs (`verify.judge.exact`)."""

    oracle: Oracle
    fmt: Format
    names: tuple[str, ...]
    scalars: Mapping[str, float]

    def enclosures(self, key: Key) -> Iterator[Truth]:
        return mp.enclosures(self.oracle, dict(zip(self.names, key, strict=True)), dict(self.scalars), self.fmt)

    def scale(self, key: Key) -> Truth | None:
        if self.oracle.scale is None:
            return None
        truth: Truth = mp.evaluate_expression(self.oracle.scale, self._values(mp.MpSystem(96), key), 96).truth()
        return truth if truth.kind == "real" else None

    def zeroed(self, key: Key) -> Key | None:
        if not any(self.fmt.is_subnormal(p) for p in key):
            return None
        return tuple(p & self.fmt.sign_bit if self.fmt.is_subnormal(p) else p for p in key)

    def circumstances(self, key: Key) -> Circumstances | None:
        fmt = self.fmt
        special = any(fmt.is_nan(p) or fmt.is_inf(p) for p in key) or self._tabled(key)
        subnormal = not special and any(fmt.is_subnormal(p) for p in key)
        if self.oracle.intermediates is None:
            return Circumstances(special, subnormal)
        precision = 64
        while precision <= CAP:
            found = self._range(key, mp.MpSystem(precision))
            if found is not None:
                under, over = found
                if under and self.oracle.arithmetic:  # such as x / 0, or 0 / 0
                    special = special or next(iter(self.enclosures(key))).kind in ("nan", "+inf", "-inf")
                slack = self._slack(key) if under and not special else Fraction(0)
                over = over or (under and special)
                return Circumstances(
                    special, subnormal, under and not special, over, slack, (slack or Fraction(0)) * 2**fmt.precision
                )
            precision *= 2
        return None

    def place(self, key: Key) -> str:
        """One element, for messages."""
        shown = ", ".join(f"{name}={bits}" for name, bits in zip(self.names, self.inputs_of(key), strict=True))
        return f"{self.oracle.name}({shown})"

    def inputs_of(self, key: Key) -> list[str]:
        """Its inputs as hex floats."""
        return [self.fmt.hex(bits) for bits in key]

    def _tabled(self, key: Key) -> bool:
        n = mp.MpSystem(64)
        values = self._values(n, key)
        for row in self.oracle.rows:
            if bool(row.when(n, **values)):
                return row.gives not in _BEYOND
        return False

    def _range(self, key: Key, n: mp.MpSystem) -> tuple[bool, bool] | None:
        """Whether an intermediate is below, above the normal range; None where more precision is needed."""
        low, high = range_of(self.fmt)
        under = over = False
        assert self.oracle.intermediates is not None
        for part in self.oracle.intermediates(n, **self._values(n, key)):
            value = n.value(part)
            if value.kind == mp.FAILED:
                if value.why is None:
                    return None
                continue
            truth = value.truth()
            if truth.kind != "real":
                continue
            small, large = sorted((abs(truth.lo), abs(truth.hi)))
            if truth.lo < 0 < truth.hi or small < low <= large or small <= high < large:
                return None
            under, over = under or large < low, over or small > high
        return under, over

    def _slack(self, key: Key) -> Fraction | None:
        if self.oracle.underflow is None:
            return None
        n = mp.MpSystem(96)
        units = n.value(self.oracle.underflow(n, **self._values(n, key))).truth()
        if units.kind != "real":
            return Fraction(0) if units.kind in ("+0", "-0", "either-zero") else None
        slack = max(abs(units.lo), abs(units.hi)) * Fraction(_SECOND_ORDER) * self.fmt.smallest_subnormal
        return self._brought_back(slack, key) if slack else slack

    def _brought_back(self, slack: Fraction, key: Key) -> Fraction:
        """As `Elementwise._brought_back`."""
        top = Fraction(2) ** (self.fmt.emax + 1)
        for truth in self.enclosures(key):
            small, large = sorted((abs(truth.lo), abs(truth.hi)))
            if truth.kind != "real" or large <= top:
                return slack
            if slack > large:
                return Fraction(0)
            if small > top and slack <= small:
                return max(slack - (small - top), Fraction(0))
        return slack

    def _values(self, n: mp.MpSystem, key: Key) -> dict[str, Any]:
        values: dict[str, Any] = {name: n.input(bits, self.fmt) for name, bits in zip(self.names, key, strict=True)}
        return values | {name: n.const(v) for name, v in self.scalars.items()}


@dataclass(frozen=True)
class Chunk:
    """The elements of one chunk of a domain, as `verify.judge.chunk.Source`."""

    about: Elementwise
    exact: Exact
    inputs: tuple[Tensor, ...]
    start: int = 0
    places: Tensor | None = None  # what each element is numbered, where they do not follow one another
    coarse: float = COARSE

    def facts(self, index: Tensor | None, y: Tensor, *, double: bool, zeroed: bool) -> Facts:
        return self.about.facts(self._inputs(index), y, double=double, zeroed=zeroed)

    def numbers(self, index: Tensor) -> list[int]:
        found: list[int] = (index + self.start if self.places is None else self.places[index]).tolist()
        return found

    def first(self, index: Tensor | None) -> Tensor:
        return self.inputs[0] if index is None else self.inputs[0][index]

    def keys(self, index: Tensor) -> list[Key]:
        return list(zip(*(patterns(t[index], self.about.fmt) for t in self.inputs), strict=True))

    def allowed(self, key: Key) -> None:
        return None

    def picked(self, y: Tensor) -> Tensor:
        return torch.arange(len(y), device=y.device)

    doubted = picked

    def far(self, y: Tensor) -> Tensor:
        return torch.empty(0, dtype=torch.int64, device=y.device)

    @property
    def stages(self) -> tuple[bool, ...]:
        return (True,) if self.about.fmt.bits == 64 else (False, True)

    def place(self, key: Key) -> str:
        return self.patterns.place(key)

    def inputs_of(self, key: Key) -> list[str]:
        return self.patterns.inputs_of(key)

    @property
    def patterns(self) -> Patterns:
        return Patterns(self.about.oracle, self.about.fmt, self.about.names, self.about.scalars)

    @property
    def scaled(self) -> bool:
        return self.about.oracle.scale is not None

    def _inputs(self, index: Tensor | None) -> tuple[Tensor, ...]:
        return self.inputs if index is None else tuple(t[index] for t in self.inputs)
