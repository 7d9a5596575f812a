"""`verify.numbers.ulp` against the definitions, by enumeration of a 7-bit format.

The definitions stand here a second time: RN, RD and RU are found in the sorted list of all values, infinity standing
at 2^(emax+1), and a class is a sentence about them.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from fractions import Fraction

import pytest

from verify.facts.formats import FORMATS, Format
from verify.facts.truth import HUGE, TINY, Truth
from verify.numbers.ulp import CLASSES, FLUSH_ULP, Verdict, ulp, verdict_of

TOY = Format("toy7", 7, 4, 3)
SIGN, INFINITY = 64, 56
TOP = Fraction(16)  # 2^(emax+1)
NORMAL = Fraction(1, 4)  # 2^emin
LEAST = Fraction(1, 32)  # the smallest subnormal


def value_of(bits: int) -> Fraction:
    """Sign, 3 exponent bits of bias 3, 3 fraction bits; infinity as TOP."""
    field, fraction = bits >> 3 & 7, bits & 7
    magnitude = Fraction(8 + fraction, 8) * Fraction(2) ** (field - 3) if field else fraction * LEAST
    return -magnitude if bits & SIGN else magnitude


PATTERNS = [b for b in range(128) if b & 63 <= INFINITY]
NANS = [b for b in range(128) if b & 63 > INFINITY]
#: Every value once, in order; the two zeros share an entry.
VALUES = sorted({value_of(b) for b in PATTERNS})
PLACE = {value: k for k, value in enumerate(VALUES)}
EVEN = {value_of(b) for b in PATTERNS if b % 2 == 0}


def neighbours(t: Fraction) -> tuple[Fraction, Fraction]:
    """RD(t) and RU(t)."""
    return VALUES[bisect_right(VALUES, t) - 1], VALUES[bisect_left(VALUES, t)]


def nearest(t: Fraction) -> Fraction:
    """RN(t), ties to the even pattern."""
    down, up = neighbours(t)
    if t - down == up - t:
        return down if down in EVEN else up
    return down if t - down < up - t else up


def unit(t: Fraction) -> Fraction:
    power = NORMAL
    while power * 2 <= abs(t) and power < TOP / 2:
        power *= 2
    return power / 8


def limited(t: Fraction) -> Fraction:
    return max(-TOP, min(TOP, t))


def class_of(bits: int, t: Fraction) -> str:
    """The class of result `bits` for a non-zero real t, by the sentences of the design."""
    if bits in NANS:
        return "nan_mismatch"
    t = limited(t)
    y, best = value_of(bits), nearest(t)
    wrong_zero = y == 0 and (bits >= SIGN) != (t < 0)
    if wrong_zero and abs(PLACE[best] - PLACE[y]) <= 1:
        return "zero_sign"
    if y == best:
        return "correct"
    if y in neighbours(t):
        return "faithful"
    if (abs(y) == TOP) != (abs(best) == TOP):
        return "inf_mismatch"
    if y == 0 and abs(best) <= NORMAL and abs(t) >= FLUSH_ULP * LEAST:
        return "flushed"
    return "worse"


def gaps() -> list[tuple[Fraction, Fraction]]:
    return list(itertools.pairwise(VALUES))


def reals() -> list[Fraction]:
    """Every value, every midpoint, points to either side of both, powers of two approached from below, and beyond."""
    found = []
    for low, high in gaps():
        width = high - low
        found += [low + width * Fraction(k, 64) for k in ((0, 1, 32, 33) if low >= 0 else (0, 31, 32, 63))]
    found += [TOP, TOP * 3, -TOP * 3, LEAST / 1024, -LEAST / 1024]
    return [t for t in found if t]


def decided(bits: int, truth: Truth, scale: Truth | None = None) -> Verdict:
    verdict = verdict_of(bits, truth, TOY, scale)
    assert verdict is not None, (TOY.hex(bits), truth)
    return verdict


def test_every_pair_of_result_and_exact_truth_is_judged_as_defined() -> None:
    seen: Counter[str] = Counter()
    for t in reals():
        truth, at, size = Truth("real", t, t), limited(t), unit(limited(t))
        best = PLACE[nearest(at)]
        for bits in (*PATTERNS, NANS[0]):
            verdict = decided(bits, truth)
            cls = class_of(bits, t)
            assert verdict.cls == cls, (TOY.hex(bits), t)
            seen[cls] += 1
            if cls == "nan_mismatch":
                assert verdict.low is None and verdict.high is None
                continue
            y = value_of(bits)
            error = abs(y - at) / size
            assert (verdict.low, verdict.high, verdict.scaled) == (error, error, error)
            assert verdict.steps == abs(PLACE[y] - best)
            assert verdict.sign == (y > at) - (y < at)
    assert set(seen) == set(CLASSES)


def test_a_correct_overflow_has_no_error_and_the_boundary_is_the_midpoint() -> None:
    largest = value_of(INFINITY - 1)
    boundary = (largest + TOP) / 2  # a tie, which goes to the even pattern: infinity
    for t, infinite in ((boundary - LEAST, False), (boundary, True), (TOP, True), (HUGE, True)):
        truth = Truth("real", t, t)
        assert decided(INFINITY, truth).cls == ("correct" if infinite else "faithful")
        assert decided(INFINITY - 1, truth).cls == (
            "inf_mismatch" if t >= TOP else "faithful" if infinite else "correct"
        )
        assert decided(INFINITY | SIGN, truth).cls == ("worse" if infinite else "inf_mismatch")
    assert decided(INFINITY, Truth("real", HUGE, HUGE)).high == 0
    assert decided(INFINITY - 1, Truth("real", HUGE, HUGE)).high == TOP - largest


@pytest.mark.parametrize(("kind", "right"), [("+0", {0}), ("-0", {SIGN}), ("either-zero", {0, SIGN})])
def test_zero_truths(kind: str, right: set[int]) -> None:
    for bits in range(128):
        verdict = decided(bits, Truth(kind))  # type: ignore[arg-type]
        if bits in NANS:
            assert verdict.cls == "nan_mismatch"
            continue
        expected = "worse" if bits & 63 else "correct" if bits in right else "zero_sign"
        assert verdict.cls == ("inf_mismatch" if bits & 63 == INFINITY else expected)
        assert verdict.high == abs(value_of(bits)) / LEAST
        assert verdict.steps == bits & 63


def test_infinite_and_nan_truths() -> None:
    for bits in range(128):
        assert decided(bits, Truth("nan")).cls == ("correct" if bits in NANS else "nan_mismatch")
        for kind, due in (("+inf", INFINITY), ("-inf", INFINITY | SIGN)):
            verdict = decided(bits, Truth(kind))  # type: ignore[arg-type]
            wrong = "nan_mismatch" if bits in NANS else "inf_mismatch"
            assert verdict.cls == ("correct" if bits == due else wrong)
            assert verdict.high == (0 if bits == due else None)


def test_the_flush_rule_needs_four_ulps_of_the_scale() -> None:
    t = 5 * LEAST
    truth = Truth("real", t, t)
    assert decided(0, truth).cls == "flushed"
    assert decided(0, Truth("real", 3 * LEAST, 3 * LEAST)).cls == "worse"
    large = Truth("real", Fraction(1), Fraction(1))  # a cancellation: the zero is within rounding of the terms
    assert decided(0, truth, large).cls == "worse"
    assert decided(0, truth, large).scaled == t / ulp(Fraction(1), TOY)
    # flushed before rounding: a result that rounds to the smallest normal number
    assert decided(0, Truth("real", NORMAL, NORMAL)).cls == "flushed"
    assert decided(0, Truth("real", NORMAL + LEAST, NORMAL + LEAST)).cls == "worse"


def test_what_holds_for_an_enclosure_holds_for_every_real_in_it() -> None:
    """All enclosures between grid points up to three gaps apart: decided ones agree with both ends and the inside."""
    ends = sorted({low + (high - low) * Fraction(k, 8) for low, high in gaps() for k in (0, 1, 4, 7)} | {2 * TOP})
    outcome: Counter[bool] = Counter()
    for k in range(len(ends) - 9):
        for width in (1, 2, 3, 5, 9):
            low, high = ends[k], ends[k + width]
            inside = [t for t in ends[k : k + width + 1] if t] + [(low + high) / 2 or LEAST / 3]
            for bits in near(low, high):
                verdict = verdict_of(bits, Truth("real", low, high), TOY)
                classes = {class_of(bits, t) for t in inside}
                units = {unit(limited(t)) for t in inside}
                outcome[verdict is None] += 1
                if verdict is None:
                    continue
                assert classes == {verdict.cls}, (TOY.hex(bits), low, high)
                if verdict.high is not None and verdict.low is not None:
                    assert len(units) == 1
                    errors = [abs(value_of(bits) - limited(t)) / unit(limited(t)) for t in inside]
                    assert verdict.low <= min(errors) and max(errors) <= verdict.high
    assert outcome[True] and outcome[False]


def near(low: Fraction, high: Fraction) -> list[int]:
    """Results around an enclosure, and both zeros, infinities and a NaN."""
    centre = VALUES.index(nearest(limited((low + high) / 2)))
    wanted = set(VALUES[max(0, centre - 2) : centre + 3])
    return [b for b in PATTERNS if value_of(b) in wanted or b & 63 in (0, INFINITY)] + NANS[:1]


def test_an_enclosure_free_of_boundaries_is_decided() -> None:
    for low, high in gaps():
        width = (high - low) / 64
        for k in (0, 1, 15, 31, 32, 33, 62, 63):
            start, stop = low + k * width, low + (k + 1) * width
            quarter = (stop - start) / 4
            truth = Truth("real", start + quarter, stop - quarter)
            for bits in near(low, high):
                assert verdict_of(bits, truth, TOY) is not None, (TOY.hex(bits), truth)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (Fraction(33, 32), Fraction(35, 32)),  # the midpoint of 1 and the next value
        (Fraction(127, 128), Fraction(129, 128)),  # two binades, one nearest value
        (-LEAST / 4, LEAST / 4),  # both signs
        (Fraction(31, 2) - LEAST, Fraction(31, 2) + LEAST),  # overflow or not
    ],
)
def test_a_truth_across_a_boundary_is_undecided(low: Fraction, high: Fraction) -> None:
    assert verdict_of(TOY.round(high), Truth("real", low, high), TOY) is None


def test_the_side_of_a_neighbour_must_be_known() -> None:
    one, width = Fraction(1), Fraction(1, 1 << 20)
    following = TOY.round(one) + 1
    assert decided(following, Truth("real", one + width, one + 2 * width)).cls == "faithful"
    assert decided(following, Truth("real", one, one)).cls == "worse"
    around = Truth("real", Fraction(9, 8) - width, Fraction(9, 8) + width)
    assert verdict_of(following, around, TOY) is not None  # correct either way
    assert verdict_of(following + 1, around, TOY) is None
    assert decided(following + 2, around).cls == "worse"


@pytest.mark.parametrize("name", FORMATS)
def test_ulp_of_the_formats_ends(name: str) -> None:
    fmt = FORMATS[name]
    two = Fraction(2)
    assert ulp(Fraction(1), fmt) == two ** (1 - fmt.precision)
    assert ulp(two - TINY, fmt) == two ** (1 - fmt.precision)
    assert ulp(Fraction(0), fmt) == ulp(TINY, fmt) == ulp(fmt.smallest_normal, fmt) == fmt.smallest_subnormal
    assert ulp(HUGE, fmt) == ulp(fmt.max_finite, fmt) == two ** (fmt.emax - fmt.precision + 1)
    assert ulp(-fmt.max_finite, fmt) == ulp(fmt.max_finite, fmt)
