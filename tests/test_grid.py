"""What powers of two tell of sums of products, against integers and against every product."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verify.facts.formats import FORMATS
from verify.numbers.grid import Extent, below, largest_products, last_bit, last_bits
from verify.numbers.matmul import RowBalls

Tensor = torch.Tensor
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(DOUBLES, min_size=1, max_size=9))
def test_a_number_is_an_odd_multiple_of_its_last_bit(values: list[float]) -> None:
    for value, exponent in zip(values, last_bit(torch.tensor(values, dtype=torch.float64)).tolist(), strict=True):
        if value == 0:
            assert exponent == math.inf
        else:
            assert (Fraction(value) / Fraction(2) ** int(exponent)) % 2 == 1
    assert last_bit(torch.tensor([math.inf, math.nan], dtype=torch.float64)).tolist() == [-math.inf] * 2


def _drawn(seed: int, spread: int) -> tuple[Tensor, Tensor]:
    """(m, k) and (k, n), none negative, a third of them zeros."""
    draw = torch.Generator().manual_seed(seed)
    m, k, n = (int(torch.randint(1, limit, (), generator=draw)) for limit in (6, 70, 6))

    def matrix(*shape: int) -> Tensor:
        t = torch.rand(shape, dtype=torch.float64, generator=draw)
        t = t * torch.exp2(torch.randint(-spread, spread + 1, shape, generator=draw).double())
        return torch.where(torch.rand(shape, generator=draw) < 1 / 3, 0.0, t)

    return matrix(m, k), matrix(k, n)


@pytest.mark.parametrize("spread", [0, 10, 40, 150])
def test_the_largest_product_is_found_among_all(spread: int) -> None:
    for seed in range(50):
        x, y = _drawn(seed, spread)
        powers = [torch.where(t > 0, torch.exp2(torch.frexp(t).exponent.double() - 1), 0.0) for t in (x, y)]
        due = (powers[0][:, :, None] * powers[1][None]).amax(1)
        found = largest_products(x, y)
        near = due >= x.amax(1, keepdim=True) * y.amax(0) * 2.0**-100
        assert torch.equal(found[near], due[near]) and bool((found >= due).all()) and torch.equal(found == 0, due == 0)
    assert largest_products(torch.ones(2, 0), torch.ones(0, 3)).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("k", [2, 64, 1000])
def test_sums_that_nothing_rounds_are_points_among_others(k: int) -> None:
    """Rows of small integers, of sums that cancel, and of numbers with all their bits, in one product."""
    draw = torch.Generator().manual_seed(k)
    a, b = (torch.randn(shape, dtype=torch.float64, generator=draw) for shape in ((9, k), (k, 9)))
    a[:3], b[:, :3] = (a[:3] * 3).round(), (b[:, :3] * 3).round()
    a[3:6, k // 2 :], b[k // 2 :, 3:6] = -a[3:6, : k // 2], b[: k // 2, 3:6]
    a[6], b[:, 6] = a[6] * 2.0**-70, b[:, 6] * 2.0**60
    n = RowBalls("cpu", points=True)
    found = n.matmul(n.input(a), n.input(b))
    radius = torch.as_tensor(found.radius).expand(9, 9)
    for i in range(9):
        for j in range(9):
            exact = sum(Fraction(x) * Fraction(y) for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True))
            assert abs(Fraction(float(found.mid[i, j])) - exact) <= Fraction(float(radius[i, j]))
    sure = below(a.abs() @ b.abs(), last_bits(a, b), 50)
    assert bool(sure[:3, :3].all()) and not bool(sure[6:, 6:].any()) and bool((radius[sure] == 0).all())


PATTERN = st.integers(0, (1 << 16) - 1).filter(lambda p: p & 0x7C00 != 0x7C00)  # finite ones of float16
EXPRESSIONS = (
    lambda a, b, c: a + b * c, lambda a, b, c: (1 - c) * (b - a), lambda a, b, c: abs(a - b) * c - 3 * a,
    lambda a, b, c: a / b * c, lambda a, b, c: Fraction(3, 4) / (a - b), lambda a, b, c: (a + b) / (b - c) * 5,
)  # fmt: skip


@given(PATTERN, PATTERN, PATTERN, st.sampled_from(EXPRESSIONS))
def test_extents_hold_of_every_number(a: int, b: int, c: int, expression: Any) -> None:
    """Also of the smallest differences: neighbours are among those that Hypothesis tries."""
    fmt = FORMATS["float16"]
    extent = expression(*[Extent.every(fmt)] * 3)
    for numbers in ((a, b, c), (a, a ^ 1, c), (a, a ^ 1, a)):
        try:
            value = expression(*map(fmt.fraction, numbers))
        except ZeroDivisionError:
            continue
        assert value == 0 or extent.low <= abs(value) <= extent.high
        assert extent.grid is None or (value / Fraction(2) ** extent.grid).denominator == 1


def test_extents_are_no_wider_than_they_have_to_be() -> None:
    every = Extent.every(FORMATS["float16"])
    assert (every.low, every.high, every.grid) == (Fraction(2) ** -24, 65504, -24)
    assert every * every - every == Extent(Fraction(2) ** -48, Fraction(65504) ** 2 + 65504, -48)
    assert (1 / every).within(Fraction(1, 65504), Fraction(2) ** 24) and (1 / every).grid is None
    for value, grid in ((Fraction(3, 8), -3), (-40, 3), (1, 0), (Fraction(1, 3), None), (Fraction(-5, 12), None)):
        assert Extent.of(value) == Extent(Fraction(abs(value)), Fraction(abs(value)), grid)


def test_what_is_not_certain_is_no_extent() -> None:
    every = Extent.every(FORMATS["float16"])
    with pytest.raises(ArithmeticError, match="near zero"):
        every / every - 1
    with pytest.raises(ArithmeticError, match="near zero"):
        every + Fraction(1, 3)
    with pytest.raises(ArithmeticError, match="away from zero"):
        Extent.of(0)
    with pytest.raises(TypeError, match="float in an expression"):
        every * 0.1
