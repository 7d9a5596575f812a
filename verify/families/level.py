"""Ranges of a sweep on which the truth is nearly one number of the format, as exp(x) is 1 for small x.

There RN(t) is known beforehand, by multiprecision on whole ranges of inputs (`verify.numbers.mp.MpSystem.span`), and
errors of RN(t) are too small to be counted: an output is judged by comparing bits. Such ranges make four fifths of all
float32 arguments of exp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import torch

from verify.facts.formats import Format
from verify.facts.oracle import OracleError
from verify.facts.truth import Truth
from verify.families.elementwise import Patterns
from verify.judge.element import Limits
from verify.judge.reduce import COUNTED, METRICS, InRegion, Reduced
from verify.judge.regions import REGIONS
from verify.native import patterns
from verify.numbers import Undecidable, mp
from verify.numbers.decide import BINS, QUANTUM, WORDS
from verify.numbers.ulp import ulp

LEAF = 1 << 16  # patterns: no smaller ranges are looked at
PRECISION = 64
SMALL = Fraction(1, 4 * int(QUANTUM))  # ULP: so small an error is counted as 0


@dataclass(frozen=True)
class Level:
    """The inputs with the patterns start..stop-1, for which RN(t) is `bits`; in the region special both are NaNs."""

    start: int
    stop: int
    bits: int
    region: str
    fmt: Format

    def holds(self, y: torch.Tensor, limits: Limits) -> bool:
        """Whether outputs of these inputs are all RN(t), and a lowering with these limits may give it."""
        if self.region == "special":
            return bool(y.isnan().all())
        ulp, scaled, _ = map(float, limits.bounds)
        return min(ulp, scaled) >= 0.5 and patterns.constant(y.view(WORDS[self.fmt.bits]), self._pattern)

    @property
    def _pattern(self) -> int:
        return self.bits - ((self.bits & self.fmt.sign_bit) << 1)

    def reduced(self) -> Reduced:
        """What the judge finds of such outputs."""
        n, measured = self.stop - self.start, self.region != "special"
        counts = Counter({"correct": n, "measured": n * measured})
        none = InRegion((0,) * len(COUNTED), (0,) * len(BINS), 0, ((),) * len(METRICS))
        mine = InRegion(tuple(counts[name] for name in COUNTED), (n * measured,) * len(BINS), 0, none.leaders)
        regions = tuple(mine if name == self.region else none for name in REGIONS)
        return Reduced(regions, tuple(self._binades()), (), torch.empty(0, dtype=torch.int64))

    def _binades(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        if self.region != "normal":
            return
        least, most = (size & ~self.fmt.sign_bit for size in (self.start, self.stop - 1))
        for field in range(least >> self.fmt.mantissa_bits, (most >> self.fmt.mantissa_bits) + 1):
            low, high = (end << self.fmt.mantissa_bits for end in (field, field + 1))
            yield field - self.fmt.emax, min(high, most + 1) - max(low, least), 0, 0, 0, 0


def levels(of: Patterns) -> tuple[Level, ...]:
    """Ranges of the patterns of a kernel's one input, in their order, less LEAF patterns at either end: there are the
    largest of the small errors, which belong to the leaders.

    They are looked for from zero upwards and from the largest numbers downwards, where functions flatten.
    """
    oracle, fmt = of.oracle, of.fmt
    if len(of.names) != 1 or oracle.intermediates is not None or oracle.scale is not None:
        return ()
    found: list[Level] = []
    for sign in (0, fmt.sign_bit):
        for low, high in ((0, 1 << fmt.mantissa_bits), (1 << fmt.mantissa_bits, fmt.inf_bits)):
            up = list(_from(of, sign, low, high, 1))
            reached = up[-1].stop & ~fmt.sign_bit if up else low
            found += [*up, *reversed(list(_from(of, sign, reached, high, -1)))]
        if _gives_nan(of):
            found.append(Level(sign | fmt.inf_bits, sign + fmt.sign_bit, fmt.nan_bits, "special", fmt))
    return tuple(
        replace(one, start=one.start + LEAF, stop=one.stop - LEAF) for one in found if one.stop - one.start > 2 * LEAF
    )


def _gives_nan(of: Patterns) -> bool:
    """Whether a row of the table gives a NaN for a NaN."""
    n, fmt = mp.MpSystem(PRECISION), of.fmt
    values = {of.names[0]: n.input(fmt.nan_bits, fmt)} | {k: n.const(v) for k, v in of.scalars.items()}
    row = next((row for row in of.oracle.rows if mp.decided(row.when(n, **values))), None)
    return row is not None and row.gives == "nan"


def _from(of: Patterns, sign: int, low: int, high: int, step: int) -> Iterator[Level]:
    """Ranges of the sizes low..high-1 one after another from the low end (step 1) or the high one (step -1), with at
    most one leaf between them: two values of the function, or two rows of its table, meet there."""
    missed = 0
    while high - low >= LEAF and missed < 2:
        one = _longest(of, sign, low, high, step)
        size = LEAF if one is None else one.stop - one.start
        low, high = (low + size, high) if step > 0 else (low, high - size)
        missed = missed + 1 if one is None else 0
        if one is not None:
            yield one


def _longest(of: Patterns, sign: int, low: int, high: int, step: int) -> Level | None:
    """The longest range of whole leaves that begins at one end, by doubling and halving."""
    most = (high - low) // LEAF
    best: Level | None = None

    def begun(leaves: int) -> Level | None:
        size = leaves * LEAF
        ends = (low, low + size) if step > 0 else (high - size, high)
        return _level(of, sign, max(ends[0], 1), ends[1])

    good, bad = 0, most + 1
    while bad - good > 1:
        tried = min(2 * good or 1, most) if bad > most else (good + bad) // 2
        one = begun(tried)
        if one is None:
            bad = tried
        else:
            good, best = tried, one
    return best


def _level(of: Patterns, sign: int, low: int, high: int) -> Level | None:
    fmt = of.fmt
    n = mp.MpSystem(PRECISION)
    values = {of.names[0]: n.span(sign | low, sign | high - 1, fmt)}
    values |= {name: n.const(value) for name, value in of.scalars.items()}
    try:
        row = next((row for row in of.oracle.rows if mp.decided(row.when(n, **values))), None)
        if row is None:
            truth = n.value(of.oracle.function(n, **values)).truth()
        elif row.gives in ("+huge", "-huge", "+tiny", "-tiny"):
            truth = mp.outcome(of.oracle, row.gives)
        else:
            return None
    except (Undecidable, OracleError):  # not the same for all, or undefined for some
        return None
    bits = _nearest(truth, fmt)
    if bits is None:
        return None
    region = "normal"
    if high <= 1 << fmt.mantissa_bits:
        region = "subnormal-operand"
    elif bits & ~fmt.sign_bit < 1 << fmt.mantissa_bits:
        region = "subnormal-result"
    elif bits & ~fmt.sign_bit >= fmt.inf_bits - 1:
        region = "overflow"
    return Level(sign | low, sign | high, bits, region, fmt)


def _nearest(truth: Truth, fmt: Format) -> int | None:
    """The number of the format to which the truth is so near that the error is counted as 0; None: there is none."""
    if truth.kind != "real" or truth.lo <= 0 <= truth.hi:
        return None
    bits = fmt.round(truth.lo)
    if fmt.round(truth.hi) != bits:
        return None
    top = Fraction(2) ** (fmt.emax + 1)
    if bits & ~fmt.sign_bit == fmt.inf_bits:
        return bits if min(abs(truth.lo), abs(truth.hi)) >= 2 * top else None
    value = fmt.fraction(bits)
    near = all(abs(value - end) <= SMALL * ulp(end, fmt) for end in (truth.lo, truth.hi))
    return bits if near else None
