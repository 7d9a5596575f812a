"""Outputs against the truth: from float64 balls over double-double to multiprecision, to a tally.

Whatever a ball cannot prove goes to the next stage; what multiprecision cannot decide at its cap is
counted as undecided. Worst cases and a sample are always re-evaluated in multiprecision; a truth
outside its ball raises `OracleViolation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import torch

from verify.decide import (
    CLAMP_ULP,
    COUNTS,
    QUANTUM,
    Decision,
    Enclosure,
    binade,
    decide,
    decide_tensors,
    digest,
    enclosure,
    error_bounds,
)
from verify.exact import Elementwise, Exact, decimal, finite, largest
from verify.formats import FORMATS, Format
from verify.numbers.ball import Ball64, BallDD
from verify.numbers.mp import MpSystem
from verify.oracle import Oracle
from verify.tally import WORST, Binade, Tally
from verify.truth import Truth
from verify.ulp import FAILING, FLUSH_ULP, ulp

Tensor = torch.Tensor
_NO_NUMBER = 2.0**1000  # the error where no number measures one
_COARSE = 0.5 / QUANTUM  # ULP: errors known no better than this would spoil sums and histogram
_SECOND_ORDER = 1 + 2.0**-16  # covers the products of underflow and rounding errors
BLOCK = 1 << 16  # elements ranked at a time on the host
SAMPLE = 32  # elements of every chunk's first pass that are re-evaluated in multiprecision
_WORDS = {16: torch.int16, 32: torch.int32, 64: torch.int64}
_POINTS = {"nan": math.nan, "+inf": math.inf, "-inf": -math.inf, "+0": 0.0, "-0": -0.0}
_POINTS |= {"+huge": 2.0**1000, "-huge": -(2.0**1000), "+tiny": 2.0**-1000, "-tiny": -(2.0**-1000)}
_ROUNDING = COUNTS.index("correct"), COUNTS.index("faithful")


class OracleViolation(Exception):
    """Multiprecision contradicts a ball: the checker, a library or the machine is wrong."""


@dataclass(frozen=True)
class Checked:
    """`main`: elements whose intermediates stay in the normal range; `range`: the others. `upper`:
    bound of the errors that were not ranked, see `Checker.check`. `excess`: the largest error of the
    others, in ULP and in scaled ULP, beyond what underflow explains (see `verify.oracle.Oracle`)."""

    main: Tally = field(default_factory=Tally)
    range: Tally = field(default_factory=Tally)
    upper: float = 0.0
    excess: tuple[float, float] = (0.0, 0.0)

    def __add__(self, other: Checked) -> Checked:
        excess = (max(self.excess[0], other.excess[0]), max(self.excess[1], other.excess[1]))
        return Checked(self.main + other.main, self.range + other.range, max(self.upper, other.upper), excess)

    @property
    def all(self) -> Tally:
        return self.main.merge(replace(self.range, digests=(), input_digests=()))


class Checker:
    """Judges outputs of one case: an oracle with its Python scalars, on one format and device.

    scalars: doubles meant exactly. bounds, functions: the admitted float64 library (`verify.admit`). flushing: all
    arithmetic may take subnormal operands and results as zero, so that these leave the normal range as
    intermediates do: a flushed operand may be wrong by any number of ULPs.
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
        flushing: bool = False,
    ) -> None:
        self.flushing = flushing
        self.oracle, self.fmt, self.names, self.scalars = oracle, fmt, names, dict(scalars)
        self.device = device
        self.ball = Ball64(device, bounds, functions)
        self.double = BallDD(device, bounds)
        # half formats are computed in float32, whose range is what intermediates may leave
        self.working = FORMATS["float32"] if fmt.bits < 32 else fmt
        self.about = Elementwise(oracle, fmt, names, self.scalars)
        self.exact = Exact(self.about, fmt)
        self._kept: Any = None
        self._outer: Any = None

    # ------------------------------------------------------------ enclosures

    def enclose(self, inputs: tuple[Tensor, ...], like: Tensor, double: bool = False, plain: bool = False) -> Enclosure:
        """The ball of every element, special rows applied. plain: no row applies and no NaN occurs."""
        n = self.double if double else self.ball
        values = {name: n.input(t) for name, t in zip(self.names, inputs, strict=True)}
        values |= {name: n.const(v) for name, v in self.scalars.items()}
        ball = self.oracle.function(n, **values)
        found = enclosure(ball, like)
        if plain:
            return found
        if self.oracle.arithmetic:
            found = self._extended(n, values, found, ball.span.finite)
        for hit, gives in self._rows(n, values):
            if gives == "either-zero":
                value: Any = torch.copysign(torch.zeros_like(found.mid), like.to(torch.float64))
            else:
                value = point_of(gives)
            found = _override(found, hit, value)
        return found

    def _rows(self, n: Ball64, values: dict[str, Any]) -> Iterator[tuple[Tensor, Any]]:
        taken: Any = None
        for row in self.oracle.rows:
            hit = torch.as_tensor(row.when(n, **values), device=self.device)
            if taken is not None:
                hit = hit & ~taken
            taken = hit if taken is None else taken | hit
            yield hit, row.gives

    def _extended(self, n: Ball64, values: dict[str, Any], found: Enclosure, finite: bool) -> Enclosure:
        """Infinities, NaNs and the sign of exact zeros as IEEE arithmetic on float64 gives them, which
        no overflow or underflow disturbs where the operands are of a narrower format."""
        mid, rad = found.mid, _radius(found)
        tail = found.tail if found.tail is not None else torch.zeros((), dtype=torch.float64, device=mid.device)
        special = ~torch.isfinite(mid)
        if self.oracle.reference is not None:
            special = special | ((mid == 0) & (tail == 0) & (rad == 0))
            reference = self.ball if not n.double else n
            other = self.oracle.reference(reference, **values).mid.expand_as(mid)
            special = special | ~torch.isfinite(other)
            known = ~torch.isfinite(other) | (other == 0)
            mid = torch.where(special, other, mid)
        else:
            known = special
        if not finite:
            known = torch.zeros_like(special)
        rad = torch.where(special, torch.where(known, 0.0, torch.nan), rad)
        return Enclosure(mid, rad, None if found.tail is None else torch.where(special, 0.0, found.tail), found.sure)

    def scales(self, inputs: tuple[Tensor, ...], like: Tensor) -> Tensor | None:
        """Lower bounds of the oracle's scale, or None where it has none."""
        if self.oracle.scale is None:
            return None
        values = {name: self.ball.input(t) for name, t in zip(self.names, inputs, strict=True)}
        values |= {name: self.ball.const(v) for name, v in self.scalars.items()}
        ball = self.oracle.scale(self.ball, **values)
        low = (ball.mid - ball.radius) * (1 - 2.0**-45)
        return torch.nan_to_num(low, nan=0.0, posinf=2.0**1000).clamp(min=0.0).expand_as(like)

    def leaves_range(self, inputs: tuple[Tensor, ...], like: Tensor) -> Tensor | None:
        """Elements where a finite intermediate leaves the normal range of the working format.

        Infinite inputs make infinite intermediates, which are none; another one may overflow beside them. Nor is one
        the infinity that division by an exact zero gives, or the zero that division by an infinity does.
        """
        if self.oracle.intermediates is None:
            return None
        values = {name: self.ball.input(t) for name, t in zip(self.names, inputs, strict=True)}
        finite = torch.ones_like(like, dtype=torch.bool)
        for value in values.values():
            finite &= torch.isfinite(value.mid)
        zero = ~finite
        for value in values.values():
            zero |= value.mid == 0
        values |= {name: self.ball.const(v) for name, v in self.scalars.items()}
        low, high = float(self.working.smallest_normal), float(self.working.max_finite)
        out = torch.zeros_like(finite)
        for part in self.oracle.intermediates(self.ball, **values):
            size = part.mid.abs().expand_as(like)
            exact = torch.as_tensor(part.radius, device=like.device) == 0
            outside = ((size < low) & ~((size == 0) & (exact | zero))) | (size > high)
            out |= outside & (torch.isfinite(size) | (finite & ~zero))
        return out

    def _flushable(self, inputs: tuple[Tensor, ...], found: Enclosure) -> Tensor:
        """Elements with a subnormal input or result, in the working format."""
        low = float(self.working.smallest_normal)
        out = (found.mid.abs() < low) & ~((found.mid == 0) & (_radius(found) == 0))
        for t in inputs:
            out = out | _tiny(t, self.working)
        return out

    # ------------------------------------------------------------ one chunk

    def check(
        self,
        start: int,
        inputs: tuple[Tensor, ...],
        y: Tensor,
        eager: Tensor | None,
        given: Enclosure | None = None,
        floor: float = 0.0,
        sample: bool = True,
    ) -> Checked:
        """Tallies of the elements start.. of the domain: inputs and outputs of shape (n,).

        eager: eager's outputs on the same device, or None. given: the enclosure, where it is known,
        of inputs that share one exponent. floor: worst cases up to this error are of no interest, unless
        the oracle has a scale: an error of fewer ULP may be one of more scaled ULP.
        sample: re-evaluate a few elements in multiprecision.
        """
        if self.fmt.bits == 64:
            return self._by_mp(start, inputs, y, eager)
        rows = tuple(t.reshape(1, -1) for t in inputs)
        y2 = y.reshape(1, -1)
        e2 = None if eager is None else eager.reshape(1, -1)
        found, scale, outside, subnormal, coarse = self._facts(start, rows, y2, given)
        parts, upper = [], 0.0
        for mask, outer in ((~outside, False), (outside, True)) if outside is not None else ((None, False),):
            fine = mask if coarse is None else ~coarse if mask is None else mask & ~coarse
            decision = decide(y2, found, self.fmt, eager=e2, scale=scale, mask=fine, subnormal=subnormal)
            tally = tally_of(decision)
            if coarse is not None:
                more = coarse if mask is None else coarse & mask
                decision, count = replace(decision, open=decision.open | more), int(more.sum())
                tally = replace(tally, inputs=tally.inputs + count, undecided=tally.undecided + count)
            if given is None and not outer:
                tally = replace(tally, binades=self._binades(rows[0], y2, found, scale, decision.open, mask))
            if tally.undecided:
                tally = self._open(start, rows, y2, e2, found, scale, decision.open, tally)
            most = float(decision.maxima[0].max())
            if most <= floor and scale is None:
                upper = max(upper, most)
            else:
                tally = self._worst(start, rows, y2, found, scale, mask, decision, tally, floor)
            if sample and not outer:
                self._sample(rows, y2, found, scale, decision, mask)
            if not outer:
                tally = self._witnesses(start, rows, y2, found, scale, mask, tally)
            parts.append(tally)
        main = parts[0]
        if given is not None:
            main = replace(main, binades=one_binade(rows[0], replace(main, max_ulp=max(main.max_ulp, upper))))
        if outside is None:
            return Checked(main, upper=upper)
        others = replace(parts[1], binades=())  # they are told of elements inside the normal range
        return Checked(main, others, upper, self._excess(rows, y2, found, scale, outside))

    def _facts(
        self, start: int, rows: tuple[Tensor, ...], like: Tensor, given: Enclosure | None
    ) -> tuple[Enclosure, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """Enclosure, scale, masks of the range, of subnormals and of coarse enclosures; those of the last chunk are
        kept for the next lowering, unless a row's outcome depends on the output."""
        key = (start, like.shape[1])
        kept = self._kept  # read once: chunks may be judged in several threads
        if given is None and kept is not None and kept[0] == key:
            facts: tuple[Enclosure, Tensor | None, Tensor | None, Tensor | None, Tensor | None] = kept[1]
            return facts
        found = self.enclose(rows, like) if given is None else given
        outside = self.leaves_range(rows, like)
        if self.flushing:
            flushable = self._flushable(rows, found)
            outside = flushable if outside is None else outside | flushable
        if outside is not None and not bool(outside.any()):
            outside = None
        subnormal = None
        # with one exponent the ends tell
        if given is None or any(bool(_tiny(t[0, [0, -1]], self.fmt).any()) for t in rows):
            subnormal = _subnormals(rows, self.fmt)
        coarse = self._coarse(found, like) if given is None else None
        facts = (found, self.scales(rows, like), outside, subnormal, coarse)
        if given is None and not any(row.gives == "either-zero" for row in self.oracle.rows):
            self._kept = (key, facts)
        return facts

    def _coarse(self, found: Enclosure, like: Tensor) -> Tensor | None:
        """Elements whose error float64 tells no better than _COARSE: what is left by a cancellation."""
        hit = error_bounds(like.to(torch.float64), found, self.fmt)[1] > _COARSE
        return hit if bool(hit.any()) else None

    def _open(
        self,
        start: int,
        rows: tuple[Tensor, ...],
        y: Tensor,
        eager: Tensor | None,
        found: Enclosure,
        scale: Tensor | None,
        open_: Tensor,
        tally: Tally,
    ) -> Tally:
        """The elements left open by float64: flushed inputs, double-double, then multiprecision."""
        tally = replace(tally, inputs=tally.inputs - tally.undecided, undecided=0)
        index = open_[0].nonzero()[:, 0]
        part = tuple(t[:, index] for t in rows)
        yp, ep = y[:, index], None if eager is None else eager[:, index]
        sp = None if scale is None else scale[:, index]
        ball = found.take((slice(None), index))
        flushed = self._flushed(part, yp, ball, sp)
        if bool(flushed.any()):
            hit = decide_tensors(yp, ball, self.fmt, eager=ep, scale=sp, mask=flushed)
            counted = tally_of(hit)
            settled = counted.inputs - counted.undecided
            counted = Tally(
                inputs=settled, flushed=settled, different=counted.different, closer=counted.closer,
                farther=counted.farther, tied=counted.tied,
            )  # fmt: skip
            tally = tally.merge(counted)
            keep = ~flushed[0] | hit.open[0]
            index, part = index[keep], tuple(t[:, keep] for t in part)
            yp, ep = yp[:, keep], None if ep is None else ep[:, keep]
            sp = None if sp is None else sp[:, keep]
            ball = ball.take((slice(None), keep))
        if not len(index):
            return tally
        # what only the suspicion of a flushed input kept open
        coarse = self._coarse(ball, yp)
        first = decide_tensors(yp, ball, self.fmt, eager=ep, scale=sp, mask=None if coarse is None else ~coarse)
        keep = first.open[0] if coarse is None else first.open[0] | coarse[0]
        if not bool(keep.all()):
            counted = tally_of(first)
            binades = self._binades(part[0], yp, ball, sp, keep[None])
            counted = replace(counted, inputs=counted.inputs - counted.undecided, undecided=0, binades=binades)
            tally = tally.merge(counted)
            tally = self.rank(tally, start, index, part, yp, ball, sp, ~keep)
            index, part = index[keep], tuple(t[:, keep] for t in part)
            yp, ep = yp[:, keep], None if ep is None else ep[:, keep]
            sp = None if sp is None else sp[:, keep]
        if not len(index):
            return tally
        ball = self.enclose(part, yp, double=True)
        decision = decide_tensors(yp, ball, self.fmt, eager=ep, scale=sp)
        second = tally_of(decision)
        rest = decision.open[0].nonzero()[:, 0]
        binades = self._binades(part[0], yp, ball, sp, decision.open)
        tally = tally.merge(replace(second, inputs=second.inputs - second.undecided, undecided=0, binades=binades))
        tally = self._fold_maxima(tally, start, index, part, yp, decision, sp)
        points, ys = self._points(part, yp, rest)
        others = None if ep is None else patterns(ep[0, rest], self.fmt)
        last = self.exact.tally([start + k for k in index[rest].tolist()], points, ys, others)
        return tally.merge(replace(last, binades=self.exact.binades(points, ys)))

    def _points(self, rows: tuple[Tensor, ...], y: Tensor, index: Tensor) -> tuple[list[tuple[int, ...]], list[int]]:
        """Patterns of the inputs and outputs of some elements."""
        columns = [patterns(t[0, index], self.fmt) for t in rows]
        return list(zip(*columns, strict=True)), patterns(y[0, index], self.fmt)

    def _fold_maxima(
        self, tally: Tally, start: int, index: Tensor, part: tuple[Tensor, ...], y: Tensor, decision: Decision,
        scale: Tensor | None,
    ) -> Tally:  # fmt: skip
        """Worst cases among elements that double-double decided."""
        ball = self.enclose(part, y, double=True)
        return self.rank(tally, start, index, part, y, ball, scale, ~decision.open[0])

    def _flushed(self, part: tuple[Tensor, ...], y: Tensor, ball: Enclosure, scale: Tensor | None) -> Tensor:
        """Elements with a subnormal input, wrong by more than rounding could be, that a flushed input explains."""
        subnormal = _subnormals(part, self.fmt)
        if subnormal is None:
            return torch.zeros_like(y, dtype=torch.bool)
        zeroed = tuple(torch.where(_tiny(t, self.fmt), torch.copysign(torch.zeros_like(t), t), t) for t in part)
        as_given = decide_tensors(y, ball, self.fmt).codes
        as_zero = decide_tensors(y, self.enclose(zeroed, y), self.fmt)
        explained = ((as_zero.codes == _ROUNDING[0]) | (as_zero.codes == _ROUNDING[1])) & ~as_zero.open
        right = (as_given == _ROUNDING[0]) | (as_given == _ROUNDING[1])
        signed, _, inverse = error_bounds(y.to(torch.float64), ball, self.fmt)
        weight = inverse if scale is None else 2.0 ** (self.fmt.precision - 1) / binade(scale, self.fmt)
        return subnormal & explained & ~right & ~(signed.abs() / inverse * weight < FLUSH_ULP)

    # ------------------------------------------------------------ underflow

    def _excess(
        self, rows: tuple[Tensor, ...], y: Tensor, found: Enclosure, scale: Tensor | None, outside: Tensor
    ) -> tuple[float, float]:
        """Errors beyond underflow's of the elements `outside` none of whose intermediates overflows."""
        if self.oracle.underflow is None or self.flushing:
            return 0.0, 0.0
        index = outside[0].nonzero()[:, 0]
        index = index[~self._overflows(tuple(t[:, index] for t in rows))]
        if not len(index):
            return 0.0, 0.0
        part, yp = tuple(t[:, index] for t in rows), y[:, index]
        sp = None if scale is None else scale[:, index]
        values = {name: self.ball.input(t) for name, t in zip(self.names, part, strict=True)}
        values |= {name: self.ball.const(v) for name, v in self.scalars.items()}
        ball = self.oracle.underflow(self.ball, **values)
        units = ((ball.mid + ball.radius) * _SECOND_ORDER).expand_as(yp)
        beyond = self._beyond(yp, found.take((slice(None), index)), sp, units)
        unknown = torch.isnan(beyond[1]).nonzero()[:, 0]
        if len(unknown):
            some = tuple(t[:, unknown] for t in part)
            closer = self.enclose(some, yp[:, unknown], double=True)
            beyond[:, unknown] = self._beyond(
                yp[:, unknown], closer, None if sp is None else sp[:, unknown], units[:, unknown]
            )
            unknown = torch.isnan(beyond[1]).nonzero()[:, 0]
        known = torch.nan_to_num(beyond, nan=0.0)
        top = (float(known[0].max()), float(known[1].max()))
        if not len(unknown):
            return top
        return self._exact_excess(*self._points(part, yp, unknown), top)

    def _beyond(self, y: Tensor, ball: Enclosure, scale: Tensor | None, units: Tensor) -> Tensor:
        """Upper bounds of what `units` smallest subnormals leave of the errors, in ULP and in scaled ULP, shaped
        (2, n); NaN where the ball does not tell."""
        signed, spread, inverse = error_bounds(y.to(torch.float64), ball, self.fmt)
        weight = inverse if scale is None else 2.0 ** (self.fmt.precision - 1) / binade(scale, self.fmt)
        left = (signed.abs() + spread) / inverse * (1 + 2.0**-45) - units * float(self.fmt.smallest_subnormal)
        left = left.clamp(min=0.0)
        due, given = torch.isnan(ball.mid) & (_radius(ball) == 0), torch.isnan(y)
        left = torch.where(due & given, 0.0, torch.where(due | (given & torch.isfinite(spread)), _NO_NUMBER, left))
        return torch.cat([left * inverse, left * weight]).nan_to_num(nan=torch.nan, posinf=_NO_NUMBER)

    def _exact_excess(
        self, points: list[tuple[int, ...]], ys: list[int], top: tuple[float, float]
    ) -> tuple[float, float]:
        """As `_excess`, in multiprecision; `top` is what is known already."""
        n = MpSystem(96)
        assert self.oracle.underflow is not None
        for one, bits in zip(points, ys, strict=True):
            truth, verdict = self.exact.verdict(one, bits)
            if verdict is None:
                continue  # counted as undecided
            if verdict.high is None or verdict.scaled is None:
                top = top if verdict.cls == "correct" else (_NO_NUMBER, _NO_NUMBER)
                continue
            units = self.oracle.underflow(n, **self.about.values(n, one)).truth()
            if units.kind != "real" or truth.kind != "real":
                continue
            allowed = units.hi * Fraction(_SECOND_ORDER) * self.fmt.smallest_subnormal
            distance = verdict.high * ulp(truth.lo, self.fmt)
            share = max(distance - allowed, Fraction(0)) / distance if distance else Fraction(0)
            top = (max(top[0], finite(verdict.high * share)), max(top[1], finite(verdict.scaled * share)))
        return top

    def _overflows(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Elements one of whose intermediates may exceed the working format, or is none, shaped (n,)."""
        values = {name: self.ball.input(t) for name, t in zip(self.names, inputs, strict=True)}
        values |= {name: self.ball.const(v) for name, v in self.scalars.items()}
        assert self.oracle.intermediates is not None
        out = torch.zeros_like(inputs[0], dtype=torch.bool)
        for part in self.oracle.intermediates(self.ball, **values):
            out |= ~((part.mid.abs() + part.radius) * (1 + 2.0**-30) < float(self.working.max_finite))
        return out[0]

    # ------------------------------------------------------------ worst cases

    def _worst(
        self, start: int, rows: tuple[Tensor, ...], y: Tensor, found: Enclosure, scale: Tensor | None,
        mask: Tensor | None, decision: Decision, tally: Tally, floor: float,
    ) -> Tally:  # fmt: skip
        """Exact maxima: every element whose upper bound reaches the best lower bound goes to mp."""
        keep = ~decision.open[0] if mask is None else ~decision.open[0] & mask[0]
        index = torch.arange(y.shape[1], device=y.device)
        n = y.shape[1]
        step = BLOCK if y.device.type == "cpu" and n > 2 * BLOCK else n
        for low in range(0, n, step):
            part = slice(low, low + step)
            cut = (slice(None), part)
            some = tuple(t[cut] for t in rows), y[cut], found.take(cut), None if scale is None else scale[cut]
            if step < n:
                kept = None if mask is None else mask[cut]
                block = decide(some[1], some[2], self.fmt, scale=some[3], mask=kept)
                # each metric by its own measure: where sums cancel, an error of few scaled ULP is of millions of ULP
                most, most_scaled = block.maxima[:, 0].tolist()
                if most <= floor and (scale is None or most_scaled <= tally.max_scaled):
                    continue
            tally = self.rank(tally, start, index[part], *some, keep[part])
            floor = max(floor, tally.worst[-1].ulp if len(tally.worst) == WORST else 0.0)
        return tally

    def rank(
        self, tally: Tally, start: int, index: Tensor, rows: tuple[Tensor, ...], y: Tensor, found: Enclosure,
        scale: Tensor | None, keep: Tensor,
    ) -> Tally:  # fmt: skip
        """`tally` with the exact maxima and worst cases of the elements `index` of a chunk that begins at `start`;
        rows, y, found and scale are theirs, of shape (1, n). keep: those to look at."""
        signed, spread, inverse = error_bounds(y.to(torch.float64), found, self.fmt)
        weight = inverse[0] if scale is None else 2.0 ** (self.fmt.precision - 1) / binade(scale[0], self.fmt)
        # where t is clamped its radius is of no account
        beyond = found.mid.abs() - _radius(found) >= 2.0 ** (self.fmt.emax + 1)
        spread = torch.where(beyond, 0.0, spread)
        error = signed[0].abs() + spread[0]
        small = found.mid[0].abs() <= float(self.fmt.smallest_normal) * (1 + 2.0**-20)
        flush = (y[0] == 0) & small & (error / inverse[0] * weight >= FLUSH_ULP)
        usable = keep & torch.isfinite(signed[0]) & ~torch.isnan(found.mid[0]) & ~flush
        high = torch.where(usable, error, -1.0)
        chosen = leaders(high, spread[0], WORST)
        if scale is not None:
            scaled = torch.where(usable, high / inverse[0] * weight, -1.0)
            chosen = torch.cat([chosen, leaders(scaled, spread[0] / inverse[0] * weight, 1)]).unique()  # type: ignore[no-untyped-call]
        worst, top_scaled, top = [], 0.0, 0.0
        if not len(chosen):
            return tally
        balls = balls_of(found, chosen)
        for ball, place, one, bits in zip(balls, index[chosen].tolist(), *self._points(rows, y, chosen), strict=True):
            truth, verdict = self.exact.verdict(one, bits)
            require_inside(ball, truth, self.fmt, self._place(one))
            if verdict is None or verdict.high is None or verdict.cls == "flushed":
                continue
            ulps = finite(verdict.high)
            scaled_ulps = finite(verdict.scaled)
            top, top_scaled = max(top, ulps), max(top_scaled, scaled_ulps)
            worst.append(self.exact.entry(start + place, one, bits, truth, ulps, scaled_ulps))
        worst.sort(key=lambda w: w.order)
        more = Tally(max_ulp=top, max_scaled=top_scaled, worst=tuple(worst[:WORST]), worst_scaled=largest(*worst))
        return tally.merge(more)

    def _witnesses(
        self, start: int, rows: tuple[Tensor, ...], y: Tensor, found: Enclosure, scale: Tensor | None,
        mask: Tensor | None, tally: Tally,
    ) -> Tally:  # fmt: skip
        """The first element of each class that no bound excuses."""
        missing = [c for c in FAILING if getattr(tally, c) and c not in dict(tally.witnesses)]
        if not missing:
            return tally
        decision = decide_tensors(y, found, self.fmt, scale=scale, mask=mask)
        for name in missing:
            hits = (decision.codes == COUNTS.index(name)) & ~decision.open
            hits = hits if mask is None else hits & mask
            if not bool(hits.any()):
                continue
            k = hits[0].to(torch.uint8).argmax().reshape(1)
            (one,), (bits,) = self._points(rows, y, k)
            truth, verdict = self.exact.verdict(one, bits)
            error = finite(verdict.high) if verdict is not None else 0.0
            entry = self.exact.entry(start + int(k), one, bits, truth, error)
            tally = tally.merge(Tally(witnesses=((name, entry),)))
        return tally

    def _sample(
        self, rows: tuple[Tensor, ...], y: Tensor, found: Enclosure, scale: Tensor | None, decision: Decision,
        mask: Tensor | None,
    ) -> None:  # fmt: skip
        """Re-evaluate a fixed spread of decided elements in multiprecision."""
        keep = ~decision.open[0] if mask is None else ~decision.open[0] & mask[0]
        n = y.shape[1]
        picks = torch.arange(SAMPLE, device=y.device) * max(n // SAMPLE, 1) + n // (2 * SAMPLE)
        picks = picks[picks < n]
        picks = picks[keep[picks]]
        if not len(picks):
            return
        part = found.take((slice(None), picks))
        seen = decide_tensors(y[:, picks], part, self.fmt, scale=None if scale is None else scale[:, picks])
        assert seen.codes is not None
        columns = (balls_of(found, picks), seen.codes[0].tolist(), seen.open[0].tolist())
        for ball, code, open_, one, bits in zip(*columns, *self._points(rows, y, picks), strict=True):
            truth, verdict = self.exact.verdict(one, bits)
            require_inside(ball, truth, self.fmt, self._place(one))
            flushed = verdict is not None and verdict.cls == "flushed"  # perhaps an input: not the tensors' business
            if verdict is not None and not open_ and not flushed and verdict.cls != COUNTS[code]:
                raise OracleViolation(f"{self._place(one)}: tensors say {COUNTS[code]}, multiprecision {verdict.cls}")

    def _place(self, one: tuple[int, ...]) -> str:
        shown = ", ".join(f"{name}={self.fmt.hex(bits)}" for name, bits in zip(self.names, one, strict=True))
        return f"{self.oracle.name}({shown})"

    # ------------------------------------------------------------ multiprecision

    def _by_mp(self, start: int, inputs: tuple[Tensor, ...], y: Tensor, eager: Tensor | None) -> Checked:
        """float64: no wider tensor format exists, so every element is taken in multiprecision."""
        points = list(zip(*(patterns(t, self.fmt) for t in inputs), strict=True))
        ys = patterns(y, self.fmt)
        others = None if eager is None else patterns(eager, self.fmt)
        if self._outer is None or self._outer[0] != (start, len(ys)):
            low, high = self.fmt.smallest_normal, self.fmt.max_finite
            self._outer = ((start, len(ys)), [self.about.leaves_range(one, low, high) for one in points])
        outside = self._outer[1]
        parts = []
        for wanted in (False, True):
            chosen = [k for k, out in enumerate(outside) if out == wanted]
            picked = [points[k] for k in chosen], [ys[k] for k in chosen]
            theirs = None if others is None else [others[k] for k in chosen]
            tally = self.exact.tally([start + k for k in chosen], *picked, theirs)
            parts.append(tally if wanted else replace(tally, binades=self.exact.binades(*picked)))
        return Checked(parts[0], parts[1], excess=self._excess_by_mp(*picked))

    def _excess_by_mp(self, points: list[tuple[int, ...]], ys: list[int]) -> tuple[float, float]:
        if self.oracle.underflow is None or self.flushing:
            return 0.0, 0.0
        most = self.fmt.max_finite
        chosen = [k for k, one in enumerate(points) if not self.about.overflows(one, most)]
        return self._exact_excess([points[k] for k in chosen], [ys[k] for k in chosen], (0.0, 0.0))

    def _binades(
        self, x: Tensor, y: Tensor, found: Enclosure, scale: Tensor | None, open_: Tensor, mask: Tensor | None = None
    ) -> tuple[tuple[int, Binade], ...]:
        """Statistics by exponent of the first input, over the measured elements that are not open."""
        codes = decide_tensors(y, found, self.fmt, scale=scale, mask=mask).codes
        assert codes is not None
        settled = ~open_ if mask is None else ~open_ & mask
        number = ~torch.isnan(found.mid) & ~torch.isnan(y) & (codes != COUNTS.index("flushed"))
        size = x[0].to(torch.float64).abs()
        keep = (settled & number)[0] & torch.isfinite(size) & (size > 0)
        signed = error_bounds(y.to(torch.float64), found, self.fmt)[0][0, keep]
        exponent = ((size.view(torch.int64) >> 52) - 1023)[keep]
        q = (signed.abs().clamp(max=CLAMP_ULP) * QUANTUM + 0.5).to(torch.int64)
        low = self.fmt.emin - self.fmt.precision
        slot = exponent - low
        width = self.fmt.emax - low + 1
        zeros = torch.zeros(width, dtype=torch.int64, device=y.device)
        count = zeros.index_add(0, slot, torch.ones_like(slot))
        off = zeros.index_add(0, slot, (codes[0, keep] != _ROUNDING[0]).to(torch.int64))
        total_ = zeros.index_add(0, slot, q)
        sign = zeros.index_add(0, slot, torch.where(signed < 0, -q, q))
        top = zeros.scatter_reduce(0, slot, q, "amax")
        columns = [c.tolist() for c in (count, off, top, total_, sign)]
        return tuple((k + low, Binade(*values)) for k, values in enumerate(zip(*columns, strict=True)) if values[0])


_CLASSES = ("correct", "faithful", "worse", "flushed", "nan_mismatch", "inf_mismatch", "zero_sign")


def balls_of(found: Enclosure, index: Tensor) -> list[tuple[float, float, float]]:
    """Midpoint, tail and radius of some elements of an enclosure shaped (1, n)."""
    part = found.take((slice(None), index))
    tail = torch.zeros_like(part.mid) if part.tail is None else part.tail
    return list(zip(*(t[0].tolist() for t in (part.mid, tail, _radius(part))), strict=True))


def require_inside(ball: tuple[float, float, float], truth: Truth, fmt: Format, place: str) -> None:
    """Raise OracleViolation unless the truth meets the ball; `place` names the element."""
    mid, tail, rad = ball
    if math.isnan(rad):
        return
    if truth.kind != "real" or not math.isfinite(mid):
        agrees = truth.kind == "real" or rad > 0 or _kind(mid) == truth.kind
        if not agrees and not (truth.kind == "either-zero" and mid == 0):
            raise OracleViolation(f"{place}: the ball says {mid!r}, multiprecision {truth.kind}")
        return
    centre = Fraction(mid) + Fraction(tail)
    limit = Fraction(2) ** (fmt.emax + 2)
    if math.isinf(rad) or abs(centre) >= limit or abs(centre) <= Fraction(2) ** -990:
        return  # beyond the format, where balls only say so
    if truth.hi < centre - Fraction(rad) or truth.lo > centre + Fraction(rad):
        raise OracleViolation(f"{place}: the ball {mid!r} +- {rad!r} misses the truth {decimal(truth)}")


def point_of(gives: str | Fraction) -> float:
    """What a special row gives, as a midpoint of radius 0 (2^+-1000 for huge and tiny)."""
    return _POINTS[gives] if isinstance(gives, str) else float(gives)


def digests(number: int, inputs: tuple[Tensor, ...], y: Tensor, fmt: Format) -> Tally:
    """The digests of chunk `number`: of its outputs, and of its inputs together (none: of no inputs)."""
    word = _WORDS[fmt.bits]
    if not inputs:
        return Tally(digests=((number, digest(y.contiguous().view(word), fmt)),))
    value = sum(digest(t.view(word), fmt, k << 32) for k, t in enumerate(inputs)) & ((1 << 64) - 1)
    return Tally(digests=((number, digest(y.contiguous().view(word), fmt)),), input_digests=((number, value),))


def pattern(t: Tensor, fmt: Format) -> int:
    """Bits of a 0-dim tensor as a non-negative integer."""
    return patterns(t.reshape(1), fmt)[0]


def patterns(t: Tensor, fmt: Format) -> list[int]:
    """Bits of a 1-dim tensor as non-negative integers, in one transfer."""
    mask = (1 << fmt.bits) - 1
    return [bits & mask for bits in t.contiguous().view(_WORDS[fmt.bits]).tolist()]


def _override(found: Enclosure, hit: Tensor, value: Any) -> Enclosure:
    rad = torch.where(hit, 0.0, _radius(found))
    tail = None if found.tail is None else torch.where(hit, 0.0, found.tail)
    return Enclosure(torch.where(hit, value, found.mid), rad, tail, found.sure)


def _radius(found: Enclosure) -> Tensor:
    if found.rad is not None:
        return found.rad
    return torch.where(torch.isinf(found.mid), 0.0, found.mid.abs() * found.relative + found.absolute)


def tally_of(decision: Decision) -> Tally:
    row = decision.counts.sum(1).tolist()
    counts = dict(zip(COUNTS, row, strict=False))
    counts["max_int"] = int(decision.counts[COUNTS.index("max_int")].max())
    counts["undecided"] = counts.pop("open")
    inputs = sum(counts[name] for name in _CLASSES) + counts["undecided"]
    return Tally(inputs=inputs, histogram=tuple(row[len(COUNTS) :]), **counts)


def _tiny(t: Tensor, fmt: Format) -> Tensor:
    return (t != 0) & (t.abs() < float(fmt.smallest_normal))


def _subnormals(inputs: tuple[Tensor, ...], fmt: Format) -> Tensor | None:
    found = None
    for t in inputs:
        bits = t.view(_WORDS[fmt.bits]) & ((1 << (fmt.bits - 1)) - 1)
        hit = (bits > 0) & (bits < (1 << fmt.mantissa_bits))
        found = hit if found is None else found | hit
    return found if found is not None and bool(found.any()) else None


def one_binade(x: Tensor, tally: Tally) -> tuple[tuple[int, Binade], ...]:
    """The binade entry of a chunk whose inputs share one exponent."""
    ends = [float(x[0, k]) for k in (0, -1)]
    if any(end == 0 or not math.isfinite(end) for end in ends):
        return ()
    low, high = sorted(math.frexp(end)[1] - 1 for end in ends)
    if low != high or not tally.measured:
        return ()
    top = int(min(tally.max_ulp, CLAMP_ULP) * QUANTUM + 0.5)
    # where an exactly infinite truth is missed no number measures the error
    wrong = min(tally.faithful + tally.worse + tally.zero_sign + tally.inf_mismatch, tally.measured)
    return ((low, Binade(tally.measured, wrong, top, tally.sum, tally.sum_signed)),)


def leaders(high: Tensor, spread: Tensor, count: int) -> Tensor:
    """Indices that may be among the `count` largest: upper bounds `high`, each at most 2 `spread` too high.

    At most 64, those of the highest bounds, the lowest index of equal ones first: what is left out of more than that
    is larger by 2 `spread` at most.
    """
    # what `count` others are known to reach
    known = torch.where(high > 0, high - 2 * spread, 0.0)
    floor = known.topk(min(count, high.numel())).values[-1].clamp(min=0.0)
    index = (high >= floor).nonzero()[:, 0]
    index = index[high[index] > 0]
    if len(index) <= 64:
        return index
    order = high[index].sort(descending=True, stable=True).indices[:64]
    return index[order]


def _kind(mid: float) -> str:
    if math.isnan(mid):
        return "nan"
    if math.isinf(mid):
        return "+inf" if mid > 0 else "-inf"
    return ("-0" if math.copysign(1, mid) < 0 else "+0") if mid == 0 else "real"
