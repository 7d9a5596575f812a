"""Single elements in multiprecision: truth, verdict, and the tally of many. Works on bit patterns.

Truths and verdicts are remembered, since the next lowering of a case asks for the same ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

from mpmath.libmp import from_rational, to_str

from verify.decide import BINS, CLAMP_ULP, QUANTUM
from verify.formats import Format
from verify.numbers import mp
from verify.oracle import Oracle
from verify.tally import WORST, Binade, Tally, Worst
from verify.truth import Truth
from verify.ulp import FAILING, FLUSH_ULP, RANKS, Verdict, judge

Patterns = tuple[int, ...]
CACHED = 1 << 17  # elements remembered


class Elements(Protocol):
    """Elements known by a tuple of integers: the patterns of their inputs, or their place in an output."""

    def enclosures(self, key: Patterns) -> Iterator[Truth]:
        """Ever narrower truths."""
        ...

    def scale(self, key: Patterns) -> Truth | None:
        """The positive number that scaled ULPs refer to; None: the truth itself."""
        ...

    def zeroed(self, key: Patterns) -> Patterns | None:
        """The element with its subnormal inputs taken as zero, or None where it has none."""
        ...


@dataclass(frozen=True)
class Elementwise:
    """Elements of an oracle with its Python scalars (doubles, meant exactly), known by their input patterns."""

    oracle: Oracle
    fmt: Format
    names: tuple[str, ...]
    scalars: Mapping[str, float]

    def enclosures(self, key: Patterns) -> Iterator[Truth]:
        return mp.enclosures(self.oracle, dict(zip(self.names, key, strict=True)), dict(self.scalars), self.fmt)

    def scale(self, key: Patterns) -> Truth | None:
        if self.oracle.scale is None:
            return None
        n = mp.MpSystem(96)
        truth: Truth = mp.evaluate_expression(self.oracle.scale, self.values(n, key), 96).truth()
        return truth if truth.kind == "real" else None

    def zeroed(self, key: Patterns) -> Patterns | None:
        if not any(self.fmt.is_subnormal(p) for p in key):
            return None
        return tuple(p & self.fmt.sign_bit if self.fmt.is_subnormal(p) else p for p in key)

    def values(self, n: mp.MpSystem, key: Patterns) -> dict[str, Any]:
        values = {name: n.input(bits, self.fmt) for name, bits in zip(self.names, key, strict=True)}
        return values | {name: n.const(v) for name, v in self.scalars.items()}

    def leaves_range(self, key: Patterns, low: Fraction, high: Fraction) -> bool:
        """Whether a finite intermediate is not 0 and not in low..high."""
        if self.oracle.intermediates is None:
            return False
        n = mp.MpSystem(64)
        return any(_outside(v, low, high) for v in self.oracle.intermediates(n, **self.values(n, key)))

    def overflows(self, key: Patterns, most: Fraction) -> bool:
        """Whether an intermediate may exceed `most`, or is no number."""
        if self.oracle.intermediates is None:
            return False
        n = mp.MpSystem(64)
        return any(_beyond(v, most) for v in self.oracle.intermediates(n, **self.values(n, key)))


class Exact:
    """The multiprecision judge of elements whose outputs have the format `fmt`."""

    def __init__(self, about: Elements, fmt: Format) -> None:
        self.about, self.fmt = about, fmt
        self._truths: dict[Patterns, Truth] = {}
        self._scales: dict[Patterns, Truth | None] = {}
        self._verdicts: dict[tuple[Patterns, int], tuple[Truth, Verdict | None]] = {}

    def truths(self, patterns: Patterns) -> Iterator[Truth]:
        """Ever narrower truths of one element, the narrowest known one first."""
        kept = self._truths.get(patterns)
        if kept is not None:
            yield kept
            if kept.exact:
                return
        for truth in self.about.enclosures(patterns):
            if len(self._truths) < CACHED:
                self._truths[patterns] = truth
            yield truth

    def scale(self, patterns: Patterns) -> Truth | None:
        """The scale of one element, or None where it has none or it is no positive real."""
        if patterns not in self._scales:
            if len(self._scales) >= CACHED:
                self._scales.clear()
            self._scales[patterns] = self.about.scale(patterns)
        return self._scales[patterns]

    def verdict(self, patterns: Patterns, y: int) -> tuple[Truth, Verdict | None]:
        """Truth and verdict of output `y`; None where multiprecision's cap does not decide."""
        key = (patterns, y)
        if key not in self._verdicts:
            if len(self._verdicts) >= CACHED:
                self._verdicts.clear()
            self._verdicts[key] = self._judge(patterns, y)
        return self._verdicts[key]

    def _judge(self, patterns: Patterns, y: int) -> tuple[Truth, Verdict | None]:
        truth, scale = Truth("nan"), self.scale(patterns)
        for truth in self.truths(patterns):
            verdict = judge(y, truth, self.fmt, scale)
            if verdict is not None:
                return truth, self._excused(patterns, y, verdict)
        return truth, None

    def _excused(self, patterns: Patterns, y: int, verdict: Verdict) -> Verdict:
        """Class `flushed` for what a flushed subnormal input explains and rounding does not."""
        if verdict.cls in ("correct", "faithful", "zero_sign") or (verdict.scaled or FLUSH_ULP) < FLUSH_ULP:
            return verdict
        zeroed = self.about.zeroed(patterns)
        if zeroed is None:
            return verdict
        for truth in self.truths(zeroed):
            other = judge(y, truth, self.fmt)
            if other is not None:
                return replace(verdict, cls="flushed") if other.cls in ("correct", "faithful") else verdict
        return verdict

    def against(self, patterns: Patterns, y: int, other: int) -> str | None:
        """Whether `y` is 'closer' than `other`, 'farther' or 'tied'; None where their bits agree."""
        if y == other or (self.fmt.is_nan(y) and self.fmt.is_nan(other)):
            return None
        for truth in self.truths(patterns):
            a, b = judge(y, truth, self.fmt), judge(other, truth, self.fmt)
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

    def entry(self, index: int, patterns: Patterns, y: int, truth: Truth, error: float, scaled: float = 0.0) -> Worst:
        """`scaled` is kept where the element has a scale."""
        has = self.scale(patterns) is not None
        return Worst(error, index, patterns, y, decimal(truth), scaled if has else None)

    def tally(
        self, indices: Sequence[int], inputs: Sequence[Patterns], ys: Sequence[int], eager: Sequence[int] | None
    ) -> Tally:
        """The tally of elements, every one of them in multiprecision."""
        counts: Counter[str] = Counter()
        histogram, worst = [0] * len(BINS), []
        witnesses: dict[str, tuple[int, Patterns, int, Truth, float]] = {}
        top, top_scaled, steps = 0.0, 0.0, 0
        farthest: tuple[float, int, Patterns, int, Truth, float] | None = None
        for k, (index, patterns, y) in enumerate(zip(indices, inputs, ys, strict=True)):
            truth, verdict = self.verdict(patterns, y)
            if verdict is None:
                counts["undecided"] += 1
                continue
            counts[verdict.cls] += 1
            counts["infinite"] += verdict.cls == "inf_mismatch" and verdict.high is None
            if verdict.cls in FAILING and (verdict.cls not in witnesses or index < witnesses[verdict.cls][0]):
                witnesses[verdict.cls] = (index, patterns, y, truth, finite(verdict.high))
            if verdict.cls != "flushed":
                steps = max(steps, verdict.steps)
                if verdict.high is not None and verdict.low is not None:
                    middle = (verdict.low + verdict.high) / 2
                    error = finite(middle)
                    q = quantized(error)
                    counts.update(measured=1, clamped=int(error > CLAMP_ULP), sum=q)
                    counts["sum_signed"] += q if verdict.sign > 0 else -q
                    for bin_, edge in enumerate(BINS):
                        histogram[bin_] += middle <= edge
                    ulps = finite(verdict.high)
                    scaled = finite(verdict.scaled)
                    top, top_scaled = max(top, ulps), max(top_scaled, scaled)
                    if ulps:
                        worst.append((-ulps, index, patterns, y, truth, scaled))
                        if farthest is None or (-scaled, index) < (-farthest[5], farthest[1]):
                            farthest = worst[-1]
            if eager is not None:
                told = self.against(patterns, y, eager[k])
                if told:
                    counts.update({"different": 1, told: 1})
        worst.sort(key=lambda w: w[:2])
        counted: dict[str, Any] = dict(counts)
        return Tally(
            inputs=len(ys),
            mp_elements=len(ys),
            histogram=tuple(histogram),
            max_ulp=top,
            max_scaled=top_scaled,
            max_int=steps,
            worst=tuple(self.entry(i, p, y, t, -e, s) for e, i, p, y, t, s in worst[:WORST]),
            worst_scaled=largest(self.entry(*farthest[1:5], -farthest[0], farthest[5])) if farthest else (),
            witnesses=tuple((name, self.entry(*found)) for name, found in sorted(witnesses.items())),
            **counted,
        )

    def binades(self, inputs: Sequence[Patterns], ys: Sequence[int]) -> tuple[tuple[int, Binade], ...]:
        """Statistics by exponent of the first input."""
        found: dict[int, Binade] = {}
        for patterns, y in zip(inputs, ys, strict=True):
            verdict = self.verdict(patterns, y)[1]
            if verdict is None or verdict.high is None or verdict.low is None or verdict.cls == "flushed":
                continue
            if patterns[0] & ~self.fmt.sign_bit in (0, self.fmt.inf_bits) or self.fmt.is_nan(patterns[0]):
                continue
            q = quantized(finite((verdict.low + verdict.high) / 2))
            exponent = math.frexp(float(self.fmt.fraction(patterns[0])))[1] - 1
            one = Binade(1, int(verdict.cls != "correct"), q, q, q if verdict.sign > 0 else -q)
            found[exponent] = found.get(exponent, Binade()).merge(one)
        return tuple(sorted(found.items()))


def largest(*entries: Worst) -> tuple[Worst, ...]:
    """The one of the largest scaled error, of those that have a scale."""
    return tuple(sorted((w for w in entries if w.scaled is not None), key=lambda w: w.order_scaled)[:1])


def quantized(error: float) -> int:
    """An error in units of 2^-16 ULP, clamped to 2^10 ULP."""
    return int(min(error, CLAMP_ULP) * QUANTUM + 0.5)


def finite(value: Fraction | None) -> float:
    """A ULP count as a float, at most 2^1000."""
    return 0.0 if value is None else float(min(value, Fraction(2) ** 1000))


def decimal(truth: Truth, digits: int = 20) -> str:
    """The truth to 20 significant digits, or its kind."""
    if truth.kind != "real":
        return truth.kind
    centre = (truth.lo + truth.hi) / 2
    text: str = to_str(from_rational(centre.numerator, centre.denominator, 120, "n"), digits)
    return text


def _beyond(value: Any, most: Fraction) -> bool:
    if value.kind == mp.FAILED:
        return True
    truth: Truth = value.truth()
    if truth.kind == "real":
        return max(abs(truth.lo), abs(truth.hi)) > most
    return truth.kind in ("nan", "+inf", "-inf")


def _outside(value: Any, low: Fraction, high: Fraction) -> bool:
    if value.kind == mp.FAILED:
        return False
    truth: Truth = value.truth()
    sizes = abs(truth.lo), abs(truth.hi)
    return truth.kind == "real" and (max(sizes) > high or min(sizes) < low)
