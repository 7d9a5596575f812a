"""`Truth`: clamping, and what may not be built."""

from __future__ import annotations

from fractions import Fraction

import pytest

from verify.facts.truth import HUGE, TINY, Truth, clamp


@pytest.mark.parametrize(
    ("value", "clamped"),
    [
        (Fraction(0), Fraction(0)),
        (Fraction(-7, 3), Fraction(-7, 3)),
        (HUGE, HUGE),
        (HUGE + 1, HUGE),
        (HUGE - 1, HUGE - 1),
        (-HUGE * 8, -HUGE),
        (TINY, TINY),
        (TINY * Fraction(3, 4), TINY),
        (TINY * Fraction(5, 4), TINY * Fraction(5, 4)),
        (-TINY / 1024, -TINY),
    ],
)
def test_clamp_limits_the_magnitude_and_keeps_the_sign(value: Fraction, clamped: Fraction) -> None:
    assert clamp(value) == clamped


def test_real_clamps_both_ends() -> None:
    assert Truth.real(-HUGE * 2, TINY / 2) == Truth("real", -HUGE, TINY)


def test_exact_is_a_special_value_or_one_real() -> None:
    assert Truth("either-zero").exact
    assert Truth.real(Fraction(1, 3), Fraction(1, 3)).exact
    assert not Truth.real(Fraction(1, 3), Fraction(1, 2)).exact


@pytest.mark.parametrize(("kind", "lo", "hi"), [("real", 0, 0), ("real", 1, -1), ("zero", 0, 0), ("inf", 0, 0)])
def test_what_is_no_truth_is_refused(kind: str, lo: int, hi: int) -> None:
    with pytest.raises(ValueError, match=r"truth of kind|no non-zero real"):
        Truth(kind, Fraction(lo), Fraction(hi))  # type: ignore[arg-type]
