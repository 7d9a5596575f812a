"""Single elements in multiprecision: the same judgement as `verify.judge.element`, on exact numbers.

Truths and verdicts are cached, because the next lowering of a case needs the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

from mpmath.libmp import from_rational, to_str

from verify.facts.formats import Format
from verify.facts.truth import Truth
from verify.judge.element import LOOSE, ROUNDED, Limits
from verify.numbers.ulp import FLUSH_ULP, RANKS, Verdict, ulp, verdict_of

Key = tuple[int, ...]
CACHED = 1 << 17  # elements remembered
_LARGEST = Fraction(2) ** 1000


@dataclass(frozen=True)
class Circumstances:
    """What is known of an element before its output is seen; see `verify.judge.element.Facts`.

    slack: in absolute terms; None: nothing is stated. flush: the same where FTZ is declared.
    """

    special: bool = False
    subnormal: bool = False
    under: bool = False
    over: bool = False
    slack: Fraction | None = Fraction(0)
    flush: Fraction = Fraction(0)

    def held_to(self, limits: Limits) -> Circumstances:
        """The same, with what underflow may add to such a bound (`Limits.room`)."""
        return replace(self, slack=Fraction(0)) if float(limits.ulp) <= ROUNDED else self


@dataclass(frozen=True)
class Allowed:
    """What |y - t| may be of one element, in absolute terms (inf: nothing is stated), and (kind, ever wider bound):
    what is beyond the bound and within this one fails as that kind. infinite: no finite number is what it may be."""

    bound: Fraction | float
    beyond: tuple[tuple[str, Fraction | float], ...] = ()
    infinite: bool = False


class Elements(Protocol):
    """Elements known by a tuple of integers: the patterns of their inputs, or their place in an output."""

    def enclosures(self, key: Key) -> Iterator[Truth]:
        """Ever narrower truths."""
        ...

    def scale(self, key: Key) -> Truth | None:
        """The positive number that scaled ULPs refer to; None: the truth itself."""
        ...

    def zeroed(self, key: Key) -> Key | None:
        """The element with its subnormal inputs taken as zero, or None where it has none."""
        ...

    def circumstances(self, key: Key) -> Circumstances | None:
        """None where the cap of precision does not decide them."""
        ...


@dataclass(frozen=True)
class Outcome:
    """The judgement of one element. `share` is |y - t| over what it may be (None: no number), `kind` a word of
    `verify.judge.status.KINDS` where it fails."""

    region: str
    verdict: Verdict
    truth: Truth
    share: Fraction | None
    kind: str | None
    lost: bool
    unjudged: bool


class Exact:
    """The multiprecision judge of elements whose outputs have the format `fmt`."""

    def __init__(self, about: Elements, fmt: Format) -> None:
        self.about, self.fmt = about, fmt
        self._truths: dict[Key, Truth] = {}
        self._scales: dict[Key, Truth | None] = {}
        self._verdicts: dict[tuple[Key, int], tuple[Truth, Verdict | None, Verdict | None]] = {}
        self._circumstances: dict[Key, Circumstances | None] = {}

    def truths(self, key: Key) -> Iterator[Truth]:
        """Ever narrower truths of one element, the narrowest known one first."""
        kept = self._truths.get(key)
        if kept is not None:
            yield kept
            if kept.exact:
                return
        for truth in self.about.enclosures(key):
            if len(self._truths) < CACHED:
                self._truths[key] = truth
            yield truth

    def scale(self, key: Key) -> Truth | None:
        """The scale of one element, or None where it has none or it is not a positive real."""
        if key not in self._scales:
            room(self._scales)[key] = self.about.scale(key)
        return self._scales[key]

    def circumstances(self, key: Key) -> Circumstances | None:
        if key not in self._circumstances:
            room(self._circumstances)[key] = self.about.circumstances(key)
        return self._circumstances[key]

    def verdict(self, key: Key, y: int) -> tuple[Truth, Verdict | None]:
        """Truth and verdict of output `y`; None where multiprecision's cap does not decide."""
        truth, _, verdict = self._verdict(key, y)
        return truth, verdict

    def _verdict(self, key: Key, y: int) -> tuple[Truth, Verdict | None, Verdict | None]:
        """The truth that decides, its verdict, and the verdict that takes flushed inputs into account."""
        place = (key, y)
        if place not in self._verdicts:
            room(self._verdicts)[place] = self._judge(key, y)
        return self._verdicts[place]

    def _judge(self, key: Key, y: int) -> tuple[Truth, Verdict | None, Verdict | None]:
        truth, scale = Truth("nan"), self.scale(key)
        for truth in self.truths(key):
            verdict = verdict_of(y, truth, self.fmt, scale)
            if verdict is not None:
                return truth, verdict, self._flushed(key, y, verdict)
        return truth, None, None

    def _flushed(self, key: Key, y: int, verdict: Verdict) -> Verdict:
        """Class `flushed` for what a flushed subnormal input explains and rounding does not."""
        if verdict.cls in ("correct", "faithful", "zero_sign") or (verdict.scaled or FLUSH_ULP) < FLUSH_ULP:
            return verdict
        zeroed = self.about.zeroed(key)
        if zeroed is None:
            return verdict
        for truth in self.truths(zeroed):
            other = verdict_of(y, truth, self.fmt)
            if other is not None:
                return replace(verdict, cls="flushed") if other.cls in ("correct", "faithful") else verdict
        return verdict

    def region(self, key: Key) -> str | None:
        """The region of an element, from its inputs and truth alone; None where the cap does not decide it."""
        about, fmt = self.circumstances(key), self.fmt
        if about is None:
            return None
        for truth in self.truths(key):
            if about.special or truth.kind in ("nan", "+inf", "-inf"):
                return "special"
            if truth.kind != "real":
                return "exact-zero"
            if about.subnormal:
                return "subnormal-operand"
            low, high = fmt.round(truth.lo), fmt.round(truth.hi)
            if low != high:
                continue
            size = abs(fmt.fraction(low)) if not fmt.is_inf(low) else None
            if size is None or size >= fmt.max_finite:
                return "overflow"
            if size < fmt.smallest_normal:
                return "subnormal-result"
            return "intermediate" if about.under or about.over else "normal"
        return None

    def outcome(self, key: Key, y: int, limits: Limits, allowed: Allowed | None = None) -> Outcome | None:
        """The judgement of output `y`; allowed: what it may be, None where `Limits` say it. None where multiprecision's
        cap does not decide."""
        limit = None if allowed is None else allowed.bound
        decisive, found, verdict = self._verdict(key, y)
        truth, about, region = decisive, self.circumstances(key), self.region(key)
        if verdict is None or about is None or region is None:
            return None
        about = about.held_to(limits)
        measured = verdict.high is not None and verdict.cls != "flushed"
        share, stated = None, True
        if verdict.high is not None:
            for truth in self.truths(key):
                again = found if truth is decisive else verdict_of(y, truth, self.fmt, self.scale(key))
                if again is None or again.high is None or again.low is None:
                    continue
                stated, low, high = self._share(key, truth, again, about, limits, limit)
                share = high
                if low > 1 or high <= 1:
                    break
            else:
                return None
        far = measured and verdict.cls != "zero_sign" and share is not None and share > 1
        if far and limits.ftz and self._within_flushing(key, y, about, limits):
            verdict, measured = replace(verdict, cls="flushed"), False
        kind = self._kind(verdict, measured, share, about, limits)
        if kind is None and self._short(key, y, verdict, about, limits, limit):
            kind = "infinity"
        if kind == "bound" and allowed is not None:
            inside = (name for name, wider in allowed.beyond if self._inside(key, y, wider))
            kind = next(inside, kind)
        saturated = allowed is not None and allowed.infinite and not (self.fmt.is_inf(y) or self.fmt.is_nan(y))
        silent = kind is not None and limit == math.inf and not saturated  # nothing is stated
        kind = "infinity" if saturated else None if silent else kind
        return Outcome(
            region, verdict, truth, share if measured else None, kind, kind is not None and about.over,
            silent or (measured and not stated and not saturated),
        )  # fmt: skip

    def _short(
        self, key: Key, y: int, verdict: Verdict, about: Circumstances, limits: Limits, limit: Fraction | float | None
    ) -> bool:
        """Whether the output is finite though the truth is at least twice the place of infinity, which no error of a
        few ULP explains."""
        if verdict.cls != "inf_mismatch" or verdict.high is None or self.fmt.is_inf(y):
            return False
        top = Fraction(2) ** (self.fmt.emax + 1)
        room = about.slack if limit is None else limit
        if room is None or room > top / 4:
            return False
        if limit is None and min(float(v) for v in limits.bounds) > 2.0**self.fmt.precision / LOOSE:
            return False
        for truth in self.truths(key):
            small, large = sorted((abs(truth.lo), abs(truth.hi)))
            if small >= 2 * top or large < 2 * top:
                return small >= 2 * top
        return False

    @staticmethod
    def _kind(
        verdict: Verdict, measured: bool, share: Fraction | None, about: Circumstances, limits: Limits
    ) -> str | None:
        if verdict.cls == "nan_mismatch":
            return "nan"
        if verdict.cls == "zero_sign":
            return "zero-sign"
        if verdict.cls == "inf_mismatch" and verdict.high is None:
            return "infinity"
        beyond = share is not None and share > 1
        if verdict.cls == "flushed":
            by_room = about.slack is not None and about.slack > 0 and share is not None and not beyond
            return None if limits.ftz or by_room else "flush"
        return "bound" if measured and beyond else None

    def _share(
        self,
        key: Key,
        truth: Truth,
        verdict: Verdict,
        about: Circumstances,
        limits: Limits,
        limit: Fraction | float | None,
    ) -> tuple[bool, Fraction, Fraction]:
        """Whether anything is stated, and lower and upper bounds of |y - t| over what the element may be."""
        assert verdict.low is not None and verdict.high is not None
        unit = ulp(truth.lo if truth.kind == "real" else Fraction(0), self.fmt)
        scale = self.scale(key)
        light, heavy = (unit, unit) if scale is None else (ulp(scale.hi, self.fmt), ulp(scale.lo, self.fmt))
        low, high = verdict.low * unit, verdict.high * unit
        if about.slack is None or limit == math.inf:
            return False, Fraction(0), Fraction(0)
        ends = [(Fraction(0), Fraction(0))]
        bound, scaled, steps = (Fraction(float(v)) if math.isfinite(float(v)) else None for v in limits.bounds)
        right = verdict.cls == "correct"
        for value, wide, narrow in ((bound, unit, unit), (scaled, light, heavy)):
            if value is not None:
                one = low / (value * wide + about.slack), high / (value * narrow + about.slack)
                # a correctly rounded result is within half an ULP of t, and of any scale not below |t|
                ends.append((min(one[0], Fraction(1)), min(one[1], Fraction(1))) if right and value >= 0.5 else one)
        if steps is not None:
            count = Fraction(verdict.steps) / steps
            if about.slack > 0 and count > 1:  # n steps are at most 2 n + 1/2 ULP
                room = (2 * steps + Fraction(1, 2)) * unit + about.slack
                ends.append((low / room, high / room))
            else:
                ends.append((count, count))
        if limit is not None:
            ends.append((_over(low, Fraction(limit)), _over(high, Fraction(limit))))
        return True, max(e[0] for e in ends), max(e[1] for e in ends)

    def _within_flushing(self, key: Key, y: int, about: Circumstances, limits: Limits) -> bool:
        """Where FTZ is declared: within the bound plus what flushing can do, or within the bound of the truth at
        operands whose subnormals are taken as zero."""
        fmt = self.fmt
        bound, scaled, steps = (Fraction(float(v)) if math.isfinite(float(v)) else None for v in limits.bounds)
        if steps is not None:
            bound = min(bound or 2 * steps + Fraction(1, 2), 2 * steps + Fraction(1, 2))
        gone = fmt.smallest_normal if y & ~fmt.sign_bit == 0 else Fraction(0)
        scale = self.scale(key)
        if self._within(self.truths(key), y, (bound, scaled), scale, about.flush + gone):
            return True
        zeroed = self.about.zeroed(key)
        return zeroed is not None and self._within(self.truths(zeroed), y, (bound, scaled), scale, Fraction(0))

    def _inside(self, key: Key, y: int, distance: Fraction | float) -> bool:
        if distance == math.inf:
            return True
        return self._within(self.truths(key), y, (Fraction(0), None), None, Fraction(distance))

    def _within(
        self, truths: Iterator[Truth], y: int, bounds: tuple[Fraction | None, Fraction | None], scale: Truth | None,
        room: Fraction,
    ) -> bool:  # fmt: skip
        """Whether `y` is within the bounds in ULP and in scaled ULP, plus `room` in absolute terms."""
        for truth in truths:
            found = verdict_of(y, truth, self.fmt)
            if found is None or found.high is None or found.low is None:
                continue
            unit = ulp(truth.lo if truth.kind == "real" else Fraction(0), self.fmt)
            heavy, light = (unit, unit) if scale is None else (ulp(scale.lo, self.fmt), ulp(scale.hi, self.fmt))
            low, high = found.low * unit, found.high * unit
            if all(v is None or high <= v * w + room for v, w in zip(bounds, (unit, heavy), strict=True)):
                return True
            if any(v is not None and low > v * w + room for v, w in zip(bounds, (unit, light), strict=True)):
                return False
        return False

    def against(self, key: Key, y: int, other: int) -> str | None:
        """Whether `y` is 'closer' than `other`, 'farther' or 'tied'; None where their bits agree."""
        if y == other or (self.fmt.is_nan(y) and self.fmt.is_nan(other)):
            return None
        for truth in self.truths(key):
            a, b = verdict_of(y, truth, self.fmt), verdict_of(other, truth, self.fmt)
            if a is None or b is None:
                continue
            if a.low is None or b.low is None or a.high is None or b.high is None:
                mine, theirs = RANKS.get(a.cls, 1), RANKS.get(b.cls, 1)
                return "closer" if mine < theirs else "farther" if mine > theirs else "tied"
            if a.high < b.low:
                return "closer"
            if a.low > b.high:
                return "farther"
        return "tied"


def finite(value: Fraction | None) -> float:
    """A ULP count as a float, at most 2^1000."""
    return 0.0 if value is None else float(min(value, _LARGEST))


def decimal(truth: Truth) -> str:
    """The truth to 20 significant digits, or its kind."""
    if truth.kind != "real":
        return truth.kind
    centre = (truth.lo + truth.hi) / 2
    text: str = to_str(from_rational(centre.numerator, centre.denominator, 120, "n"), 20)
    return text


def _over(distance: Fraction, limit: Fraction) -> Fraction:
    if not distance:
        return Fraction(0)
    return min(distance / limit, _LARGEST) if limit else _LARGEST


def room(cache: dict[Any, Any], most: int = CACHED) -> dict[Any, Any]:
    """The cache, emptied where it holds `most`."""
    if len(cache) >= most:
        cache.clear()
    return cache
