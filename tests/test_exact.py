"""`verify.judge.exact` against rational arithmetic written out here, and what it does where nothing decides."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judging import any_pattern, elements, hexes, tensor
from verify.facts import kernel
from verify.facts.formats import FORMATS, Format
from verify.facts.truth import Truth
from verify.families.elementwise import Patterns
from verify.judge.cell import Reader, Stated
from verify.judge.chunk import Judge
from verify.judge.element import Limits
from verify.judge.exact import CACHED, Allowed, Circumstances, Exact, Outcome, decimal, finite

F16, F32 = FORMATS["float16"], FORMATS["float32"]
ALPHA = {"alpha": 1.0}


def judge_of(name: str, scalars: dict[str, float], fmt: Format) -> Exact:
    facts = kernel.elementwise(name)
    return Exact(Patterns(facts.oracle, fmt, facts.tensors(scalars), scalars), fmt)


ADD = judge_of("add", ALPHA, F16)


def ulp_of(t: Fraction, fmt: Format) -> Fraction:
    """Goldberg's, clamped; by search."""
    exponent = fmt.emin
    while exponent < fmt.emax and abs(t) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    return Fraction(2) ** (exponent - fmt.precision + 1)


def place(y: int, fmt: Format) -> Fraction:
    """The number that a finite or infinite pattern stands for."""
    if fmt.is_inf(y):
        return Fraction(2) ** (fmt.emax + 1) * (-1 if y & fmt.sign_bit else 1)
    return fmt.fraction(y)


def finite_pattern(fmt: Format, rng: random.Random) -> int:
    while True:
        found = any_pattern(fmt, rng)
        if not (fmt.is_nan(found) or fmt.is_inf(found)):
            return found


def near(t: Fraction, fmt: Format, rng: random.Random) -> int:
    right = fmt.round(t)
    sign, magnitude = right & fmt.sign_bit, right & ~fmt.sign_bit
    return sign | max(0, min(fmt.inf_bits, magnitude + rng.choice((0, 0, 1, -1, 2, -2, 5, 900))))


@given(st.integers(0, 2**32), st.sampled_from([0.5, 1.0, 2.0, 4.0]))
def test_sums_are_judged_as_rational_arithmetic_says(seed: int, value: float) -> None:
    """float16 a + b: region, class, error, share and kind, with nothing of the checker but names."""
    rng = random.Random(seed)
    a, b = finite_pattern(F16, rng), finite_pattern(F16, rng)
    t = F16.fraction(a) + F16.fraction(b)
    if not t:
        return
    y = near(t, F16, rng)
    top = Fraction(2) ** (F16.emax + 1)
    off, unit = abs(place(y, F16) - max(-top, min(top, t))), ulp_of(t, F16)
    found = ADD.outcome((a, b), y, Limits.of("ulp", value))
    assert found is not None and found.verdict.high == found.verdict.low == off / unit
    right = F16.round(t)
    subnormal = any(0 < p & ~F16.sign_bit < 1 << F16.mantissa_bits for p in (a, b))
    size = abs(place(right, F16))
    if subnormal:
        region = "subnormal-operand"
    elif size < F16.smallest_normal:
        region = "subnormal-result"
    else:
        region = "overflow" if size >= F16.max_finite else "normal"
    assert found.region == region
    if found.verdict.cls in ("flushed", "zero_sign"):
        assert place(y, F16) == 0 or subnormal
        return
    if abs(t) < top:
        expected = "correct" if y == right else "faithful" if beside(t, y) else "worse"
        if F16.is_inf(y) != F16.is_inf(right) and expected == "worse":
            expected = "inf_mismatch"
        assert found.verdict.cls == expected
        assert found.verdict.sign == (place(y, F16) > t) - (place(y, F16) < t)
    share = off / (Fraction(value) * unit)
    assert found.share == (min(share, Fraction(1)) if y == right else share)
    assert found.kind == ("bound" if share > 1 and y != right else None)


def beside(t: Fraction, y: int) -> bool:
    """Whether y is RD(t) or RU(t)."""
    order = F16.ordinal(y)

    def at(o: int) -> Fraction:
        return place(o if o >= 0 else -o | F16.sign_bit, F16)

    low, high = at(max(order - 1, -F16.inf_bits)), at(min(order + 1, F16.inf_bits))
    return (at(order) <= t < high) or (low < t <= at(order))


@given(st.integers(0, 2**32), st.sampled_from(["ulp", "scaled_ulp", "int_ulp"]), st.sampled_from([0.5, 1.0, 3.0]))
def test_metrics_are_what_they_are_named(seed: int, metric: str, value: float) -> None:
    """float16 a + b c, whose scale is |a| + |b c|, away from subnormals and infinities."""
    rng = random.Random(seed)
    a, b, c = (float(torch.tensor(rng.uniform(-4, 4), dtype=torch.float16)) for _ in range(3))
    t, scale = Fraction(a) + Fraction(b) * Fraction(c), abs(Fraction(a)) + abs(Fraction(b) * Fraction(c))
    if abs(t) < Fraction(1, 1024) or min(abs(a), abs(b), abs(c), abs(b * c)) < 2.0**-12:
        return
    y, unit = near(t, F16, rng), ulp_of(t, F16)
    off = abs(place(y, F16) - t)
    steps = abs(F16.ordinal(y) - F16.ordinal(F16.round(t)))
    measures = {"ulp": off / unit, "scaled_ulp": off / ulp_of(scale, F16), "int_ulp": Fraction(steps)}
    key = tuple(F16.round(Fraction(v)) for v in (a, b, c))
    found = ADDCMUL.outcome(key, y, Limits.of(metric, value))
    assert found is not None and found.verdict.scaled == measures["scaled_ulp"] and found.verdict.steps == steps
    beyond = measures[metric] > Fraction(value) and (y != F16.round(t) or metric == "int_ulp")
    assert found.kind == ("bound" if beyond else None)
    assert ADDCMUL.outcome(key, y, Limits()).kind is None  # type: ignore[union-attr]


ADDCMUL = judge_of("addcmul", {"value": 1.0}, F16)


def one(name: str, scalars: dict[str, float], row: str, y: str, limits: Limits, **more: Any) -> Outcome:
    found = judge_of(name, scalars, F32).outcome(*hexes(F32, row), F32.parse(y), limits, **more)
    assert found is not None
    return found


def test_underflow_gives_room_and_no_more_than_that() -> None:
    """a + b c with b c = 2^-150: half a subnormal, which b c rounded may lose or double."""
    row = "0x1p-126 0x1p-75 0x1p-75"
    loose = Limits(ulp=0.51)
    assert one("addcmul", {"value": 1.0}, row, "0x1p-126", loose).kind is None
    assert one("addcmul", {"value": 1.0}, row, "0x1.000002p-126", loose).kind is None
    found = one("addcmul", {"value": 1.0}, row, "0x1.000008p-126", loose)
    assert found.kind == "bound" and found.region == "intermediate" and found.share is not None and found.share > 1


def test_a_limit_in_absolute_terms_stands_beside_the_others() -> None:
    close = one("add", ALPHA, "1 1", "0x1.000002p+1", Limits(), allowed=Allowed(Fraction(2) ** -22))
    assert (close.kind, close.share) == (None, 1)
    assert one("add", ALPHA, "1 1", "0x1.000004p+1", Limits(), allowed=Allowed(Fraction(2) ** -22)).kind == "bound"
    assert one("add", ALPHA, "1 1", "0x1.000002p+1", Limits(ulp=0.5), allowed=Allowed(Fraction(1))).kind == "bound"
    assert one("add", ALPHA, "1 1", "2", Limits(), allowed=Allowed(Fraction(0))).share == 0
    assert one("add", ALPHA, "1 1", "0x1.000002p+1", Limits(), allowed=Allowed(Fraction(0))).kind == "bound"


def test_of_an_unbounded_element_nothing_is_said_but_that() -> None:
    found = one("add", ALPHA, "1 1", "3e38", Limits(), allowed=Allowed(math.inf))
    assert found.unjudged and found.kind is None and found.share == 0
    nan = one("add", ALPHA, "1 1", "nan", Limits(), allowed=Allowed(math.inf))
    assert nan.unjudged and nan.kind is None


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [("1", "1", None), ("nan", "nan:0x7fc00001", None), ("2", "0x1.000002p+1", "closer"), ("3", "2", "farther"),
     ("0x1.000002p+1", "0x1.fffffcp+0", "tied"), ("nan", "9", "farther"), ("9", "nan", "closer"),
     ("inf", "nan", "closer")],
)  # fmt: skip
def test_who_is_closer(mine: str, theirs: str, told: str | None) -> None:
    judge = judge_of("add", ALPHA, F32)
    assert judge.against(*hexes(F32, "1 1"), F32.parse(mine), F32.parse(theirs)) == told


# ---------------------------------------------------------------- what is not decided


NOTHING = Circumstances()


class Vague:
    """An element whose truth no precision narrows."""

    def __init__(self, truths: list[Truth], about: Circumstances | None = NOTHING) -> None:
        self.truths, self.about, self.asked = truths, about, 0

    def enclosures(self, key: tuple[int, ...]) -> Iterator[Truth]:
        self.asked += 1
        yield from self.truths

    def scale(self, key: tuple[int, ...]) -> None:
        return None

    def zeroed(self, key: tuple[int, ...]) -> None:
        return None

    def circumstances(self, key: tuple[int, ...]) -> Circumstances | None:
        return self.about


WIDE = Truth.real(Fraction(1), Fraction(3, 2))
NARROW = Truth.real(Fraction(1) + Fraction(1, 2**40), Fraction(1) + Fraction(1, 2**39))
Y = F32.parse("1")


def test_what_the_cap_does_not_decide_is_undecided() -> None:
    assert Exact(Vague([WIDE]), F32).outcome((), Y, Limits(ulp=1.0)) is None
    assert Exact(Vague([WIDE]), F32).region(()) is None
    assert Exact(Vague([NARROW], None), F32).outcome((), Y, Limits(ulp=1.0)) is None
    assert Exact(Vague([WIDE, NARROW]), F32).outcome((), Y, Limits(ulp=1.0)) is not None
    # 2^-16.5 ULP, somewhere in the enclosure: more than that is not known
    assert Exact(Vague([NARROW]), F32).outcome((), Y, Limits(ulp=2.0**-16.5)) is None


def test_an_undecided_element_fails_its_region() -> None:
    given = elements("add", ALPHA, "float32", 3)
    given = replace(given, inputs=(tensor([Y], F32), tensor([Y], F32)))
    chunk = replace(given.chunk, exact=Exact(Vague([WIDE]), F32))

    class Blind(type(chunk)):  # type: ignore[misc]
        def facts(self, *args: Any, **options: Any) -> Any:
            found = super().facts(*args, **options)
            nothing = torch.full_like(found.truth.mid, torch.nan)
            return replace(found, truth=replace(found.truth, rad=nothing))

    blind = Blind(**{name: getattr(chunk, name) for name in chunk.__dataclass_fields__})
    tally = Judge(F32, Limits(ulp=1.0)).tally(blind, tensor([Y], F32))
    assert (tally.whole.undecided, tally.whole.inputs) == (1, 1)
    reader = Reader(chunk.exact, F32, Limits(ulp=1.0), scale=False)
    (record,) = reader.regions(tally, Stated(1.0, "ulp", "here")).values()
    assert (record["status"], record["reason"]["kind"]) == ("exceeds-bound", "undecided")
    assert record["error"]["undecided"] == 1


def test_truths_and_verdicts_are_asked_for_once() -> None:
    about = Vague([WIDE, NARROW])
    judge = Exact(about, F32)
    first = judge.outcome((), Y, Limits(ulp=1.0))
    asked = about.asked
    assert judge.outcome((), Y, Limits(ulp=1.0)) == first and judge.outcome((), Y, Limits(steps=1.0)) is not None
    assert next(iter(judge.truths(()))) == NARROW
    assert about.asked <= asked + 2  # narrower truths are not asked for again, but looked for
    assert CACHED >= 1 << 16


def test_numbers_are_told_with_twenty_digits() -> None:
    assert decimal(Truth.real(Fraction(1, 3), Fraction(1, 3))) == "0.33333333333333333333"
    assert decimal(Truth("-0")) == "-0" and decimal(Truth("nan")) == "nan"
    assert finite(None) == 0.0 and finite(Fraction(2) ** 3000) == 2.0**1000
