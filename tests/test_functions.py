"""The table of library functions: each entry's propagation, pieces and exact points, against multiprecision."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import sys
from fractions import Fraction
from typing import Any

import pytest
import torch

from verify.cli.commands import main
from verify.facts import bounds, kernel
from verify.facts.oracle import OracleError
from verify.numbers.functions import FUNCTIONS, Function, fell, rose
from verify.numbers.mp import MpSystem
from verify.numbers.scaled import BallScaled

UNARY = [pytest.param(entry, id=entry.name) for entry in FUNCTIONS.values() if entry.arity == 1]
PRECISION = 600


def value(entry: Function, x: Fraction) -> Fraction:
    truth = MpSystem(PRECISION).apply(entry, x).truth()
    return (truth.lo + truth.hi) / 2


def drawn(entry: Function, count: int) -> list[tuple[float, float]]:
    """Arguments where the function is neither tiny nor huge, and how far they may be off: tiny and wide radii."""
    rng = random.Random(entry.name)
    low = entry.lower if entry.lower is not None else -6
    points = [low + 2.0 ** rng.uniform(-20, 4) if entry.lower is not None else rng.uniform(-6, 6) for _ in range(count)]
    return [(x, 2.0 ** rng.choice((rng.uniform(-60, -40), rng.uniform(-20, 0), rng.uniform(0, 3)))) for x in points]


@pytest.mark.parametrize("entry", UNARY)
def test_no_argument_within_a_radius_changes_the_function_by_more(entry: Function) -> None:
    used = 0.0
    for x, r in drawn(entry, 150):
        f = value(entry, Fraction(x))
        size = torch.tensor(float(abs(f)), dtype=torch.float64) * (1 + 2.0**-50)
        bound = float(entry.change(torch.tensor(x, dtype=torch.float64), size, torch.tensor(r, dtype=torch.float64)))
        if not math.isfinite(bound):
            assert entry.lower is not None and x - entry.lower <= r, "nothing is known where it should be"
            continue
        for share in (-1, -0.5, 0.5, 1):
            moved = Fraction(x) + Fraction(share) * Fraction(r)
            change = abs(value(entry, moved) - f)
            assert change <= Fraction(bound) * (1 + Fraction(1, 2**45)), (x, r, share)
            used = max(used, float(change) / bound)
    assert used > 0.5, "a bound that nothing comes near says nothing"


@pytest.mark.parametrize("entry", UNARY)
def test_an_interval_is_mapped_around_the_values_at_all_its_points(entry: Function) -> None:
    """The intervals are wide: those of a function that turns hold its turning points."""
    for x, r in drawn(entry, 60):
        ends = [Fraction(x) - Fraction(r), Fraction(x) + Fraction(r)]
        if entry.lower is not None and ends[0] <= entry.lower:
            continue
        n = MpSystem(80)
        span = n.interval((n.bounds(n.const(ends[0]))[0], n.bounds(n.const(ends[1]))[1]))
        truth = n.apply(entry, span).truth()
        for share in range(9):
            assert truth.lo <= value(entry, ends[0] + (ends[1] - ends[0]) * Fraction(share, 8)) <= truth.hi


@pytest.mark.parametrize("entry", [one for one in UNARY if one.id in vars(BallScaled)])
def test_double_double_encloses_the_function_closely(entry: Function) -> None:
    """To about 100 bits at ordinary arguments, where the series of `verify.numbers.scaled` have their largest terms."""
    points = [x for x, _ in drawn(entry, 300)]
    n = BallScaled("cpu")
    ball = getattr(n, entry.name)(n.input(torch.tensor(points, dtype=torch.float64)))
    parts = (ball.mid, ball.tail, ball.radius, torch.as_tensor(ball.shift))
    columns = (torch.as_tensor(part).expand(len(points)).tolist() for part in parts)
    for x, mid, tail, rad, shift in zip(points, *columns, strict=True):
        exact, unit = value(entry, Fraction(x)), Fraction(2) ** shift
        assert abs((Fraction(mid) + Fraction(tail)) * unit - exact) <= Fraction(rad) * unit <= abs(exact) / 2**85, x


@pytest.mark.parametrize("entry", UNARY)
def test_exact_points_and_special_values_agree(entry: Function) -> None:
    if entry.point is not None:
        assert entry.at(Fraction(entry.point[0]), undefined=True) == entry.point[1]
        given = entry.tensor(torch.tensor([float(entry.point[0])], dtype=torch.float64))
        assert given.item() == entry.point[1]
    for (x,), due in entry.special:
        if math.isfinite(x) and entry.lower is not None and x < entry.lower:
            assert math.isnan(due)
        if math.isfinite(x) and math.isfinite(due):
            exact = MpSystem(64).apply(entry, x)
            assert (exact.exact, exact.negative) == (Fraction(due), math.copysign(1, due) < 0)


def test_a_limit_that_is_not_rational_needs_no_row() -> None:
    """Which could not give it; a rational one does."""
    n = MpSystem(PRECISION)
    truth = n.atan(-math.inf).truth()
    assert truth.hi < -2 * value(FUNCTIONS["atan"], Fraction(1)) + Fraction(1, 2**90) and truth.lo > -Fraction(11, 7)
    assert 0 < truth.hi - truth.lo < Fraction(1, 2 ** (PRECISION - 4))
    with pytest.raises(OracleError, match="give these inputs a special row"):
        n.tanh(-math.inf).truth()


def test_growth_and_fall_are_bounded_from_above_and_closely() -> None:
    for exponent in range(-80, 5):
        for significand in (1.0, 1.37, 1.99):
            r = significand * 2.0**exponent
            grown = float(rose(torch.tensor(r, dtype=torch.float64)))
            if r >= 16:
                assert grown == math.inf
                continue
            exact = value(FUNCTIONS["expm1"], Fraction(r))
            assert exact * (1 - Fraction(1, 2**46)) <= Fraction(grown)
            assert grown <= float(exact) * (1 + 2.0**-46 + r * r / 1500 if r < 1 else 1.5 + r)
            x = 3.0
            left = Fraction(x) - Fraction(r)
            found = float(fell(torch.tensor(x, dtype=torch.float64), torch.tensor(r, dtype=torch.float64)))
            if left <= 0:
                assert found == math.inf
                continue
            exact = -value(FUNCTIONS["log"], left / Fraction(x))
            assert exact * (1 - Fraction(1, 2**46)) <= Fraction(found) <= exact * Fraction(11, 10)
            assert r > 0.1 or Fraction(found) <= exact * (1 + Fraction(1, 2**46) + Fraction(r * r / 500))


def log2(n: Any, x: Any) -> Any:
    return n.gamma(x)


@pytest.mark.parametrize("command", [["kernel", "log2", "--profile", "quick"], ["explain", "log2", "--input", "3"]])
def test_an_oracle_without_its_function_is_told_in_one_line(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = kernel.elementwise("log2")
    monkeypatch.setattr(
        "verify.kernels.log2.KERNEL",
        dataclasses.replace(facts, oracle=dataclasses.replace(facts.oracle, function=log2)),
    )
    assert main([*command, "--backend", "cpu", "--lowering", "eager", "--dtype", "float32"]) == 4
    said = " ".join("".join(capsys.readouterr()).split())
    assert "number systems have no function 'gamma': add an entry to verify/numbers/functions.py" in said
    assert "Traceback" not in said


def test_a_missing_figure_of_a_vendor_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {key: figure for key, figure in bounds.figures().items() if key[:2] != ("AMD", "log2")}
    monkeypatch.setattr(bounds, "figures", lambda: known)
    monkeypatch.delitem(sys.modules, "verify.kernels.log2", raising=False)
    assert main(["show", "log2"]) == 2
    said = capsys.readouterr().err
    told = "kernels/vendor_bounds.toml has no figure for AMD log2 float32; add it with its source"
    assert re.fullmatch(rf"verify: kernels/log2\.py, line \d+: {re.escape(told)}\n", said), said
