"""Families: what `steps` bounds, against the same formulas run bit for bit; `roundoff` without exactness."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verify.facts.formats import FORMATS
from verify.families import steps
from verify.inputs.draws import Draw, to_tensor
from verify.numbers.documented import Documented
from verify.numbers.ieee import IeeeSystem, Rounded
from verify.numbers.roundoff import Rough, Roundoff

Tensor = torch.Tensor
F16, BF16, F32, F64 = (FORMATS[name] for name in ("float16", "bfloat16", "float32", "float64"))


def drawn(fmt: Any, count: int, seed: int, name: str, low: int, high: int) -> Tensor:
    d = Draw(fmt, torch.arange(count), seed, name)
    return to_tensor(fmt, d.value(d.integer(low, high)))


# ---------------------------------------------------------------- roundoff


def expressions(n: Any, x: Any, y: Any, z: Any) -> list[Any]:
    total = n.fma(x, y, z)
    return [x + y, x * y, x / y, n.sqrt(abs(x)), total, n.fma(-0.875, x, x), (x - z) * total + y, n.max(x * y, z)]


@given(seed=st.integers(0, 2**32), low=st.sampled_from([-3, -60, -140]), high=st.sampled_from([2, 30]))
@settings(max_examples=40, deadline=None)
def test_without_exactness_bounds_hold_and_are_near(seed: int, low: int, high: int) -> None:
    """Computed values are as near to the exact ones as either system says, which differ by a few units in the last
    place where nothing is exact."""
    given_ = [drawn(F32, 64, seed, name, low, high) for name in "xyz"]
    bits = expressions(IeeeSystem(F32, F32), *(Rounded(t.double(), IeeeSystem(F32, F32)) for t in given_))
    found = {}
    for exact in (True, False):
        n = Roundoff(F32, F32, exact=exact)
        found[exact] = expressions(n, *(n.input(t) for t in given_))
    for y, tight, loose in zip(bits, found[True], found[False], strict=True):
        for one in (tight, loose):
            far = (y.tensor - one.mid).abs() - one.rad
            assert bool((~(far > one.error) | one.error.isinf()).all())
        assert bool((loose.error >= tight.error * (1 - 2.0**-30))[tight.error.isfinite()].all())
        ordinary = (tight.error > tight.mid.abs() * 2.0**-26) & tight.error.isfinite() & (tight.mid.abs() > 2.0**-100)
        assert bool((loose.error <= 4 * tight.error + 2.0**-140)[ordinary].all())


def test_storing_twice_rounds_once() -> None:
    n = Roundoff(F32, BF16)
    x = n.given(drawn(F32, 64, 0, "x", -2, 2).double(), 1e-9)
    once = n.cast(x, BF16)
    assert torch.equal(n.cast(once, BF16).error, once.error) and torch.equal(n.cast(-once, BF16).error, once.error)
    assert torch.equal(n.max(once, once).error, once.error)
    summed = once + n.cast(n.given(drawn(F32, 64, 1, "x", -2, 2).double(), 1e-9), BF16)
    assert bool((n.cast(summed, BF16).error > summed.error).any()), "a sum is a number of its own"


@pytest.mark.parametrize("fmt", [F16, BF16, F32])
def test_a_rounding_finds_back_to_a_number_of_the_format(fmt: Any) -> None:
    """From within half the way to the nearer neighbour, which below a power of two is a quarter of an ULP away; from
    half the way it may be lost."""
    values = torch.tensor([1.0, 1.5, -2.0, 2.0**fmt.emin, 3 * 2.0 ** (fmt.emin - fmt.mantissa_bits)])
    n = Roundoff(F64, fmt)
    quarter = torch.tensor([fmt.precision + 1.0])
    place = torch.tensor([0.0, 0.0, 1.0, fmt.emin, fmt.emin])
    way = torch.exp2(place.double() - quarter.double())
    for share, back in ((0.999, True), (1.0, False), (1.5, False)):
        stored = n.cast(n.given(values.double(), 0.0, way * share), fmt)
        assert bool((stored.error == 0).all()) == back, share
        for sign in (1, -1):
            y = IeeeSystem(F64, fmt).cast(Rounded(values.double() + sign * way * share, IeeeSystem(F64, fmt)), fmt)
            assert bool(((y.tensor - values.double()).abs() <= stored.error).all())


def test_errors_of_one_number_cancel_in_its_multiples() -> None:
    """a b + b with a = -0.999: an error of b counts once a thousandth."""
    n = Roundoff(F32, F32)
    b = n.given(torch.ones(1, dtype=torch.float64), 0.0, 1e-3)
    assert float(n.fma(-0.999, b, b).error) < 2e-6 < 1e-3 < float(n.fma(-0.999, b, n.mul(b, 1.0)).error)


def test_powers_of_zero_are_exact() -> None:
    n = Roundoff(F32, F32, {("pow", "float32"): Documented(4.0, "test")})
    for x, y, expected in ((0.0, 3.0, 0.0), (1.0, 0.5, 1.0), (0.7, 0.0, 1.0)):
        found = n.pow(n.given(torch.tensor([x], dtype=torch.float64)), y)
        assert float(found.mid) == expected and float(found.error) == float(found.rad) == 0


# ---------------------------------------------------------------- steps

#: Recurrences of one state: (formula, what it is exactly), beta as the exact constant.
Formula = Callable[[Any, Any, Any, Any, Any], Any]
FORMULAS: dict[str, Formula] = {
    "m + w(g - m)": lambda n, beta, rest, m, g: m + rest * (g - m),
    "fma(w, g - m, m)": lambda n, beta, rest, m, g: n.fma(rest, g - m, m),
    "b m + w g": lambda n, beta, rest, m, g: beta * m + rest * g,
    "fma(b, m, fma(-b, g, g))": lambda n, beta, rest, m, g: n.fma(beta, m, n.fma(-beta, g, g)),
    "storage(b m) + w g": lambda n, beta, rest, m, g: n.cast(beta * m, n.storage) + rest * g,
}


def average(
    formula: str, fmt: Any, beta: float, gradients: Tensor, exact: bool, period: int = 0
) -> tuple[Rough, Tensor]:
    """The bound after all steps, and the bits."""
    n, bits = Roundoff(F32, fmt, exact=exact), IeeeSystem(F32, fmt)
    real = steps.real_system(n)
    b, rest = real.const(Fraction(beta)), real.const(1 - Fraction(beta))
    run = FORMULAS[formula]
    start = torch.zeros(gradients.shape[1], dtype=torch.float64)
    y = Rounded(start, bits)
    walk = []
    for g in gradients.double():
        stored = replace(n.given(g), held=fmt)
        walk.append(
            steps.Step(
                lambda s, g=stored: [n.cast(run(n, n.scalar(beta), n.scalar(1 - beta), s[0], g), fmt)],  # type: ignore[misc]
                lambda s, g=g: [b * s[0] + rest * real.given(g)],  # type: ignore[misc]
            )
        )
        y = bits.cast(run(bits, bits.scalar(beta), bits.scalar(1 - beta), y, Rounded(g, bits)), fmt)
    (found,) = steps.running(n, [start], [False], walk, period)
    assert found is not None
    return found, y.tensor


def truth(beta: float, gradients: Tensor) -> list[Fraction]:
    state = [Fraction(0)] * gradients.shape[1]
    for row in gradients.tolist():
        state = [Fraction(beta) * m + (1 - Fraction(beta)) * Fraction(g) for m, g in zip(state, row, strict=True)]
    return state


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("fmt", [F32, BF16])
@pytest.mark.parametrize("formula", FORMULAS)
def test_an_average_stays_within_its_bound(formula: str, fmt: Any, exact: bool) -> None:
    gradients = drawn(fmt, 40 * 64, 5, formula, -4, 2).reshape(40, 64).double()
    beta = 0.9
    found, y = average(formula, fmt, beta, gradients, exact)
    shares = []
    for computed, t, mid, rad, error in zip(
        y.tolist(), truth(beta, gradients), found.mid.tolist(), found.rad.tolist(), found.error.tolist(), strict=True
    ):
        assert abs(Fraction(mid) - t) <= Fraction(rad)
        assert abs(Fraction(computed) - t) <= Fraction(error)
        shares.append(float(abs(Fraction(computed) - t) / Fraction(error)))
    assert max(shares) > 0.05, "a bound twenty times too wide says little"


def test_errors_fade_as_an_average_forgets() -> None:
    """After 400 steps the bound is that of some 1 / (1 - beta) steps, though m + w (g - m) takes m twice."""
    gradients = drawn(F32, 400 * 8, 1, "g", -1, 1).reshape(400, 8).double()
    found, _ = average("m + w(g - m)", F32, 0.9, gradients, False)
    assert bool((found.error < 40 * 2.0**-24 * gradients.abs().amax()).all())


def test_steps_that_repeat_end_early() -> None:
    """The same bound as by walking all steps, for gradients to and fro and for one step more."""
    for count in (101, 102):
        signs = torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0)[:, None].double()
        gradients = signs * torch.tensor([[1.0, 3.0, 0.75]], dtype=torch.float64)
        early, y = average("b m + w g", BF16, 0.0, gradients, True, period=2)
        whole, _ = average("b m + w g", BF16, 0.0, gradients, True)
        assert torch.equal(early.mid, whole.mid) and torch.equal(early.error, whole.error)
        assert torch.equal(early.mid, y) and not bool(early.error.any())


def test_a_bound_is_0_at_nan_and_infinite_beyond_the_range() -> None:
    n = Roundoff(F32, F32)
    mid = torch.tensor([1.0, math.nan, math.inf, 2.0**127], dtype=torch.float64)
    part = n.given(mid, 0.0, torch.tensor([0.5, math.nan, math.nan, 2.0**127], dtype=torch.float64))
    found = steps.bound_of(part, mid, torch.zeros(4, dtype=torch.float64), F32)
    assert found.tolist()[1:] == [0.0, math.inf, math.inf] and 0.5 <= float(found[0]) < 0.5 + 1e-9
