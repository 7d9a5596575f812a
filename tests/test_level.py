"""Ranges of a sweep on which the truth is nearly one number: that it is, and that an output beside it is not missed."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest
import torch

from verify import backends
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.families.elementwise import Patterns
from verify.families.level import LEAF, SMALL, Level, levels
from verify.inputs.domains import CHUNK, Domain
from verify.judge.element import Limits
from verify.judge.exact import Exact
from verify.judge.reduce import Reduced
from verify.walk import pointwise
from verify.walk.pointwise import Pointwise

SINGLE = FORMATS["float32"]
FLAT = {"exp": 0.81, "exp2": 0.81, "sigmoid": 0.81, "tanh": 0.48, "erf": 0.48}  # the least part of all inputs


def of(name: str) -> Patterns:
    return Patterns(kernel.elementwise(name).oracle, SINGLE, ("x",), {})


@pytest.mark.parametrize("name", FLAT)
def test_the_truth_is_what_a_level_says(name: str) -> None:
    found = levels(of(name))
    assert sum(one.stop - one.start for one in found) / 2**32 > FLAT[name]
    assert all(a.stop <= b.start for a, b in itertools.pairwise(found))
    exact, drawn = Exact(of(name), SINGLE), random.Random(name)
    for one in found:
        places = [one.start, one.stop - 1, *(drawn.randrange(one.start, one.stop) for _ in range(6))]
        for bits in places:
            outcome = exact.outcome((bits,), one.bits, Limits(ulp=0.5), None)
            assert outcome is not None and outcome.kind is None
            assert (outcome.region, outcome.verdict.cls) == (one.region, "correct")
            if one.region != "special":
                assert outcome.verdict.high is not None and Fraction(outcome.verdict.high) <= 2 * SMALL


@pytest.mark.parametrize("name", ["log", "sqrt", "sin", "reciprocal"])
def test_a_function_that_nowhere_flattens_has_few(name: str) -> None:
    """NaNs, where a NaN gives one by the table; and what overflows."""
    assert {one.region for one in levels(of(name))} <= {"special", "subnormal-operand"}


def test_kernels_of_several_inputs_or_with_intermediates_have_none() -> None:
    assert levels(Patterns(kernel.elementwise("add").oracle, SINGLE, ("a", "b"), {"alpha": 1.0})) == ()
    assert levels(Patterns(kernel.elementwise("div").oracle, SINGLE, ("a",), {"b": 7.0})) == ()


def case() -> Pointwise:
    return Pointwise(
        kernel.elementwise("exp"), {}, "float32", backends.load("cpu"), Domain("exhaustive", SINGLE, ("x",))
    )  # fmt: skip


def judged(one: Pointwise, number: int, y: torch.Tensor, eager: torch.Tensor | None = None) -> Reduced:
    engine = one.engine(number, "", "exact")
    if engine is None:
        pytest.skip("no C++ compiler")
    return engine(y, eager, Limits(ulp=1.0).values)


#: Chunks of 2^20 inputs: all of a level; where one begins; overflow; NaNs; subnormal results, and -exp's underflow.
CHUNKS = (200, 0x429, 0x7F8, 0x42B, 0xC2D)


@pytest.mark.parametrize("number", CHUNKS)
def test_what_levels_say_is_what_the_judge_finds(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointwise, "HOST_MOST", 1)
    one = case()
    (x,) = one.given(number)
    y = torch.exp(x)
    for spoiled in (False, True):
        if spoiled:  # one element of a level is a neighbour, another one a NaN
            y[CHUNK // 2 + 5] = torch.nextafter(y[CHUNK // 2 + 5], torch.tensor(-1.0))
            y[CHUNK // 2 + 7] = math.nan
        for eager in (None, torch.where(torch.arange(CHUNK) == CHUNK // 3, -y, y)):
            short = judged(one, number, y, eager)
            with monkeypatch.context() as patch:
                patch.setattr(Pointwise, "levels", lambda self, truth: ())
                whole = judged(one, number, y, eager)
            assert (short.binades, short.formulas, short.open.tolist()) == (
                whole.binades,
                whole.formulas,
                whole.open.tolist(),
            )
            for a, b in zip(short.regions, whole.regions, strict=True):
                assert (a.counts, a.histogram, a.steps) == (b.counts, b.histogram, b.steps)
                for mine, theirs in zip(a.leaders, b.leaders, strict=True):  # but for errors that count as none
                    assert [v for v in mine if v[0] > 2.0**-17] == [v for v in theirs if v[0] > 2.0**-17]


def test_a_level_asks_for_the_bits() -> None:
    zero = Level(5, 9, SINGLE.sign_bit, "subnormal-result", SINGLE)
    assert zero.holds(torch.full((4,), -0.0), Limits(ulp=1.0))
    assert not zero.holds(torch.full((4,), 0.0), Limits(ulp=1.0))
    assert not zero.holds(torch.full((4,), -0.0), Limits(ulp=0.25))  # the judge says what such a bound means
    nan = Level(0x7F900000, 0x7F900004, SINGLE.nan_bits, "special", SINGLE)
    assert nan.holds(torch.full((4,), math.nan), Limits()) and not nan.holds(torch.full((4,), 1.0), Limits())
    assert nan.reduced().regions[0].counts[0] == 4 and not nan.reduced().regions[0].counts[7]


def test_levels_are_told_by_binades() -> None:
    one = Level(LEAF, 5 << 22, 0x3F800000, "normal", SINGLE)
    rows = one.reduced().binades
    assert [e for e, *_ in rows] == [-127, -126, -125] and sum(n for _, n, *_ in rows) == one.stop - one.start
