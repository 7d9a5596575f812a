"""Error in ULPs, and the class of a result, decided exactly on rationals.

ulp(t) = 2^(clamp(floor(log2|t|), emin, emax) - p + 1) (Goldberg 1991, clamped at both ends). An
error is |y - t| / ulp(t) against the real number t, never against a rounded reference. t is
clamped to +-2^(emax+1) and y = +-inf is measured as that, so a correct overflow has error 0.
The tensor form of the same decisions is `verify.numbers.decide`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from verify.facts.formats import Format, floor_log2, power_of_two
from verify.facts.truth import Truth

#: Scaled ULP: the least error that is called a flush.
FLUSH_ULP = 4
#: Steps are counted up to this.
MOST_STEPS = 1 << 62
#: Classes partition the inputs; the first that fits, in this order, is taken.
CLASSES = ("nan_mismatch", "correct", "zero_sign", "faithful", "inf_mismatch", "flushed", "worse")

#: Those that may fail a cell whose maximum keeps its bound, see `verify.judge.element`.
FAILING = ("nan_mismatch", "inf_mismatch", "zero_sign", "flushed")

#: Which of two results is closer, the lower, where one has no error that is a number; other classes rank 1.
RANKS = {"correct": 0, "nan_mismatch": 2}


@dataclass(frozen=True)
class Verdict:
    """One element: its class, error enclosure [low, high] in ULPs, signed by y - t, and steps.

    `low` and `high` are None where no number measures the error (NaNs, an infinite truth missed).
    `scaled` is an upper bound on |y - t| / ulp(scale). `steps` is the distance of y from RN(t) in
    representable numbers (int_ulp), at most MOST_STEPS.
    """

    cls: str
    low: Fraction | None = None
    high: Fraction | None = None
    scaled: Fraction | None = None
    steps: int = 0
    sign: int = 0


def ulp(t: Fraction, fmt: Format) -> Fraction:
    """ulp(t) of a real t in `fmt`; that of the smallest normal for t = 0."""
    exponent = floor_log2(abs(t)) if t else fmt.emin
    return power_of_two(min(max(exponent, fmt.emin), fmt.emax) - fmt.precision + 1)


def clamp(t: Fraction, fmt: Format) -> Fraction:
    """t limited to +-2^(emax+1), the place where infinity is measured."""
    top = power_of_two(fmt.emax + 1)
    return max(-top, min(top, t))


def measured(bits: int, fmt: Format) -> Fraction:
    """The number that a non-NaN result stands for: its value, or +-2^(emax+1) for an infinity."""
    if fmt.is_inf(bits):
        return clamp(Fraction(-1 if bits & fmt.sign_bit else 1) * 2 ** (fmt.emax + 2), fmt)
    return fmt.fraction(bits)


def verdict_of(bits: int, truth: Truth, fmt: Format, scale: Truth | None = None) -> Verdict | None:
    """The verdict on output pattern `bits`, or None where `truth` is too wide to decide.

    scale: enclosure of the positive number that `scaled` refers to (None: |t| itself).
    """
    if truth.kind == "nan":
        return Verdict("correct" if fmt.is_nan(bits) else "nan_mismatch")
    if fmt.is_nan(bits):
        return Verdict("nan_mismatch")
    if truth.kind in ("+inf", "-inf"):
        hit = bits == fmt.inf_bits | (fmt.sign_bit if truth.kind == "-inf" else 0)
        zero = Fraction(0)
        return Verdict("correct", zero, zero, zero) if hit else Verdict("inf_mismatch")
    if truth.kind != "real":
        return _judge_zero(bits, truth, fmt, scale)
    low, high = clamp(truth.lo, fmt), clamp(truth.hi, fmt)
    nearest = fmt.round(truth.lo)
    if nearest != fmt.round(truth.hi) or ulp(low, fmt) != ulp(high, fmt) or low <= 0 <= high:
        return None
    y, unit = measured(bits, fmt), ulp(low, fmt)
    steps = fmt.ordinal(bits) - fmt.ordinal(nearest)
    errors = sorted((abs(y - low) / unit, abs(y - high) / unit))
    floor = Fraction(0) if low <= y <= high else errors[0]
    weight = ulp(scale.lo if scale else low, fmt)
    scaled = errors[1] * unit / weight
    cls = _real_class(bits, y, steps, nearest, low, high, fmt, (floor * unit / weight, scaled), scale is not None)
    if cls is None:
        return None
    return Verdict(cls, floor, errors[1], scaled, min(abs(steps), MOST_STEPS), (y > high) - (y < low))


def _judge_zero(bits: int, truth: Truth, fmt: Format, scale: Truth | None) -> Verdict:
    y = measured(bits, fmt)
    error = abs(y) / fmt.smallest_subnormal
    scaled = abs(y) / ulp(scale.lo if scale else Fraction(0), fmt)
    if y == 0:
        wanted = {"+0": False, "-0": True}.get(truth.kind)
        agrees = wanted is None or wanted == bool(bits & fmt.sign_bit)
        cls = "correct" if agrees else "zero_sign"
    else:
        cls = "inf_mismatch" if fmt.is_inf(bits) else "worse"
    return Verdict(cls, error, error, scaled, min(abs(fmt.ordinal(bits)), MOST_STEPS), (y > 0) - (y < 0))


def _real_class(
    bits: int,
    y: Fraction,
    steps: int,
    nearest: int,
    low: Fraction,
    high: Fraction,
    fmt: Format,
    scaled: tuple[Fraction, Fraction],
    sums: bool,
) -> str | None:
    negative = low < 0 or (low == 0 and high < 0)
    wrong_zero = y == 0 and bool(bits & fmt.sign_bit) != negative
    if wrong_zero and abs(steps) <= 1:
        # a zero left by cancellation has the sign of an exact zero, whatever the sign of t
        return "faithful" if sums else "zero_sign"
    if steps == 0:
        return "correct"
    if abs(steps) == 1:
        centre = measured(nearest, fmt)
        if low <= centre <= high and low < high:
            return None
        if (steps == 1 and low > centre) or (steps == -1 and high < centre):
            return "faithful"
    if fmt.is_inf(bits) != fmt.is_inf(nearest):
        return "inf_mismatch"
    # a zero left by cancellation is not a flush: its error is larger than a rounding's
    if y == 0 and abs(measured(nearest, fmt)) <= fmt.smallest_normal and scaled[1] >= FLUSH_ULP:
        return "flushed" if scaled[0] >= FLUSH_ULP else None
    return "worse"
