"""Sums, products and scans of the array systems: every enclosure holds the value, found by Fraction or by Arb.

Arb (python-flint) and Fraction share no code with the systems; their bounds are proved, or there are none to prove.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from verify.facts.formats import FORMATS
from verify.inputs.draws import Draw, to_tensor
from verify.numbers import arrays, cpp
from verify.numbers.arrays import BallArrays, BallDDArrays, ExactRow, MpArrays, gamma, integer_sum, scan
from verify.numbers.ball import Ball
from verify.numbers.mp import MpSystem

flint = pytest.importorskip("flint", reason="python-flint is not installed")

Interval = tuple[Fraction, Fraction]
#: Bits of Arb: radii may be exp(-512) of the value, and are meant to be tight.
BITS = 1200
SYSTEMS: dict[str, Callable[[], Any]] = {
    "float64": lambda: BallArrays("cpu"),
    "double-double": lambda: BallDDArrays("cpu"),
}


@dataclass(frozen=True)
class Data:
    """A tensor of rows: what Hypothesis draws instead of its elements."""

    dtype: str
    rows: int
    n: int
    low: int  # exponents
    high: int
    seed: int

    def tensor(self) -> torch.Tensor:
        fmt = FORMATS[self.dtype]
        draw = Draw(fmt, torch.arange(self.rows * self.n), self.seed, "arrays")
        spread = draw.integer(max(self.low, fmt.emin), min(self.high, fmt.emax - 2))
        bits = draw.value(spread)
        zero = draw.signed(draw.index * 0)
        return to_tensor(fmt, zero.where(draw.integer(0, 19) == 0, bits)).reshape(self.rows, self.n)


def data(low: int, high: int, longest: int = 70) -> st.SearchStrategy[Data]:
    exponents = st.integers(low, high)
    return st.builds(
        lambda dtype, rows, n, a, b, seed: Data(dtype, rows, n, min(a, b), max(a, b), seed),
        st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
        st.integers(1, 3),
        st.integers(1, longest),
        exponents,
        exponents,
        st.integers(0, 2**32),
    )


def fractions(x: torch.Tensor) -> list[list[Fraction]]:
    return [[Fraction(v) for v in row] for row in x.to(torch.float64).tolist()]


def arb(x: Fraction) -> Any:
    return flint.arb(flint.fmpq(x.numerator, x.denominator))


def ends(x: Any) -> Interval:
    """An Arb ball as rationals."""
    parts = []
    for end in (x.lower(), x.upper()):
        mantissa, exponent = end.man_exp()
        parts.append(Fraction(int(mantissa)) * Fraction(2) ** int(exponent))
    return parts[0], parts[1]


def by_arb(function: Callable[[], Any]) -> Any:
    with flint.ctx.workprec(BITS):
        return function()


def total_of_exponentials(values: list[Fraction]) -> Interval:
    return ends(sum((arb(v).exp() for v in values), flint.arb(0)))


def outside(ball: Ball, truths: Iterable[Interval]) -> list[str]:
    """Elements whose ball misses the truth; undecided ones are not among them."""
    like = ball.mid

    def column(value: Any) -> list[float]:
        return torch.as_tensor(value, dtype=torch.float64).expand_as(like).reshape(-1).tolist()  # type: ignore[no-any-return]

    found = []
    for k, (mid, tail, rad, (low, high)) in enumerate(
        zip(column(ball.mid), column(ball.tail), column(ball.radius), truths, strict=True)
    ):
        if math.isnan(rad):
            continue
        if math.isinf(mid):
            if not (low >= Fraction(2) ** 1024 if mid > 0 else high <= -(Fraction(2) ** 1024)):
                found.append(f"{k}: {mid} for {float(low)}")
            continue
        centre = Fraction(mid) + Fraction(tail)
        if low < centre - Fraction(rad) or high > centre + Fraction(rad):
            if high - low > Fraction(rad) and low <= centre <= high:
                continue  # Arb is the wider one: an exact value that it does not know to be exact
            found.append(f"{k}: {mid!r} + {tail!r} +- {rad!r} misses {float(low)!r}")
    return found


def relative_radius(ball: Ball) -> float:
    """The largest radius relative to the midpoint, among decided elements that are not tiny."""
    mid = ball.mid.abs()
    rad = torch.as_tensor(ball.radius, dtype=torch.float64).expand_as(mid)
    part = torch.where((mid > 2.0**-900) & torch.isfinite(mid), rad / mid, 0.0)
    return float(part.max()) if part.numel() else 0.0


@pytest.mark.parametrize("system", SYSTEMS)
@given(case=data(-40, 40))
@settings(max_examples=25)
def test_sums_and_prefix_sums_hold_the_exact_value(system: str, case: Data) -> None:
    n, x = SYSTEMS[system](), case.tensor()
    rows = fractions(x)
    prefixes = [s for row in rows for s in itertools.accumulate(row)]
    assert outside(n.cumsum(n.input(x)), ((s, s) for s in prefixes)) == []
    assert outside(n.sum(n.input(x)), ((sum(row), sum(row)) for row in rows)) == []
    sizes = [sum(map(abs, row)) for row in rows]
    assert outside(n.sum(abs(n.input(x))), ((s, s) for s in sizes)) == []
    if system == "double-double" and case.high - case.low < 40:
        # 106 bits hold all of these: radius 0 says so
        assert float(torch.as_tensor(n.cumsum(n.input(x)).radius).max()) == 0


@pytest.mark.parametrize("system", SYSTEMS)
@given(case=data(-30, 30), factor=st.integers(-6, 6))
@settings(max_examples=25)
def test_sums_of_computed_values_hold_the_exact_value(system: str, case: Data, factor: int) -> None:
    """Quotients by 3 are in no format: every term has a radius."""
    n, x = SYSTEMS[system](), case.tensor()
    scale = Fraction(2) ** factor / 3
    rows = [[v * scale for v in row] for row in fractions(x)]
    found = n.sum(n.input(x) * n.const(Fraction(2) ** factor) / 3)
    assert outside(found, ((sum(row), sum(row)) for row in rows)) == []


def test_long_sums_by_torch_are_enclosed_and_tight() -> None:
    """The two-level sum: lengths around its widths, against integers."""
    n = BallArrays("cpu")
    for length in (63, 64, 65, 127, 128, 129, 1000, 4096, 4097, 65537):
        x = Data("float32", 1, length, -12, 3, length).tensor()
        e = n.input(x) * 3 / 3
        assert not isinstance(e.rad, float)
        exact = sum(fractions(x)[0])
        size = float(sum(map(abs, fractions(x)[0])))
        found = n.sum(e)
        assert outside(found, [(exact, exact)]) == []
        assert float(torch.as_tensor(found.radius)) < size * 2.0**-40


@pytest.mark.parametrize("system", SYSTEMS)
@given(case=st.one_of(data(-1, 1), data(-160, 160)))
@settings(max_examples=25)
def test_prefix_products_hold_the_exact_value(system: str, case: Data) -> None:
    """Zeros count as 1; partial products beyond float64 come back into it."""
    n, x = SYSTEMS[system](), case.tensor()
    rows = [[v or Fraction(1) for v in row] for row in fractions(x)]
    products = [p for row in rows for p in itertools.accumulate(row, lambda a, b: a * b)]
    found = n.cumprod(n.input(x))
    assert outside(found, ((p, p) for p in products)) == []
    assert relative_radius(found) < (2.0**-44 if system == "float64" else 2.0**-95)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", ["exp", "expm1", "log", "log1p"])
@given(case=data(-60, 8))
@settings(max_examples=15)
def test_library_functions_hold_the_value(system: str, name: str, case: Data) -> None:
    n, x = SYSTEMS[system](), case.tensor()
    x = x.abs() if name.startswith("log") else x.clamp(-690.0, 690.0)
    x = torch.where(x == 0, torch.ones_like(x), x) if name == "log" else x
    found = getattr(n, name)(n.input(x))
    truths = by_arb(lambda: [ends(getattr(arb(v), name)()) for row in fractions(x) for v in row])
    assert outside(found, truths) == []
    assert not bool(torch.isnan(torch.as_tensor(found.radius)).any())
    assert relative_radius(found) < (2.0**-49 if system == "float64" else 2.0**-95)


@pytest.mark.parametrize("system", SYSTEMS)
@given(case=data(-30, 9))
@settings(max_examples=25)
def test_prefix_sums_of_exponentials_hold_the_value(system: str, case: Data) -> None:
    """m is the running maximum and exact; 1 + r the sum relative to it, whatever lies below exp's range."""
    n, x = SYSTEMS[system](), case.tensor()
    m, r = n.cumsumexp(n.input(x))
    rows = fractions(x)
    tops = [t for row in rows for t in itertools.accumulate(row, max)]
    assert [Fraction(v) for v in m.mid.reshape(-1).tolist()] == tops

    def rests() -> list[Interval]:
        found = []
        for row in rows:
            for i in range(len(row)):
                place = max(range(i + 1), key=row.__getitem__)
                terms = [(arb(v - row[place])).exp() for k, v in enumerate(row[: i + 1]) if k != place]
                found.append(ends(sum(terms, flint.arb(0))))
        return found

    assert outside(r, by_arb(rests)) == []
    value = m + n.log1p(r)
    logs = by_arb(
        lambda: [
            ends(sum((arb(v - top).exp() for v in row[: i + 1]), flint.arb(0)).log() + arb(top))
            for row in rows
            for i, top in enumerate(itertools.accumulate(row, max))
        ]
    )
    assert outside(value, logs) == []


@given(
    row=st.lists(
        st.one_of(st.floats(-300, 90), st.sampled_from([-math.inf, 0.0, 90.0, 89.99999999999999, -310.0])),
        min_size=1,
        max_size=40,
    )
)
@settings(max_examples=60)
def test_rests_of_prefix_sums_keep_their_bits_far_below_the_largest_term(row: list[float]) -> None:
    """Though all of a row are computed relative to its largest one, which may come last; -inf adds nothing."""
    n = BallDDArrays("cpu")
    m, r = n.cumsumexp(n.input(torch.tensor([row], dtype=torch.float64)))
    assert m.mid[0].tolist() == list(itertools.accumulate(row, max))

    def rests() -> list[Interval]:
        found = []
        for i in range(len(row)):
            place = max(range(i + 1), key=row.__getitem__)
            others = [v for k, v in enumerate(row[: i + 1]) if k != place and v > -math.inf]
            found.append(
                ends(sum(((arb(Fraction(v)) - arb(Fraction(row[place]))).exp() for v in others), flint.arb(0)))
            )
        return found

    assert outside(r, by_arb(rests)) == []
    radius, mid = torch.as_tensor(r.radius).expand_as(r.mid)[0], r.mid[0]
    assert bool((radius <= mid * 2.0**-94).all()), "and exactly 0 where nothing is added"


@given(case=data(-30, 9, longest=24))
@settings(max_examples=20)
def test_multiprecision_holds_the_value_and_agrees_by_position(case: Data) -> None:
    x = case.tensor()[:1]
    (row,) = fractions(x)
    found = ExactRow(x)
    sums, products = MpArrays(96).cumsum(found), MpArrays(96).cumprod(found)
    assert [v.exact for v in sums] == list(itertools.accumulate(row))
    signs = list(itertools.accumulate(row, lambda a, b: a * b))
    assert [v.exact for v in products] == signs  # short: exact, zeros included
    m, r = MpArrays(96).cumsumexp(found)
    for i in range(len(row)):
        one = MpArrays(96, i)
        assert one.cumsum(found)[0].exact == sums[i].exact
        top = max(row[: i + 1])
        assert m[i].exact == top
        place = row.index(top)
        others = [v - top for k, v in enumerate(row[: i + 1]) if k != place]
        truth = by_arb(functools.partial(total_of_exponentials, others))
        value = one.cumsumexp(found)[1][0].truth() if i else None
        if value is not None and value.kind == "real":
            assert value.lo <= truth[1] and truth[0] <= value.hi
            assert value.hi - value.lo <= max(truth[1], Fraction(1, 2**60)) / 2**60
        assert i or r[0].exact == 0


@given(
    value=st.one_of(st.floats(-400, 64), st.floats(-1e-6, 1e-6), st.sampled_from([0.0, 64.0, 2.0**-1074, -1e4])),
    above=st.integers(0, 40),
    places=st.integers(90, 700),
)
def test_tabled_exponentials_hold_the_value(value: float, above: int, places: int) -> None:
    row, whole = ExactRow(torch.tensor([value], dtype=torch.float64)), math.ceil(value) + above
    found = arrays._exp_fixed(int(row.mantissas[0]), int(row.exponents[0]), whole, places)
    low, high = by_arb(lambda: ends(arb(Fraction(value) - whole).exp() * flint.arb(2) ** places))
    assert 0 <= found < low or (found == 0 and low >= 0)
    assert high < found + 3


@given(value=st.one_of(st.floats(-3000, 64), st.sampled_from([0.0, 64.0, -1e4])), places=st.integers(2040, 4000))
@settings(max_examples=30)
def test_exponentials_of_many_bits_hold_the_value(value: float, places: int) -> None:
    """Beyond TABLED bits: a table of 12,288 bits took 1.7 s, for the one element that asks for them."""
    row, whole = ExactRow(torch.tensor([value], dtype=torch.float64)), math.ceil(value) + 1
    found = arrays._exp_fixed(int(row.mantissas[0]), int(row.exponents[0]), whole, places)
    with flint.ctx.workprec(places + 200):
        low, high = ends(arb(Fraction(value) - whole).exp() * flint.arb(2) ** places)
    assert (0 <= found < low or (found == 0 and low >= 0)) and high < found + 3


def test_every_tabled_exponential_is_within_a_unit() -> None:
    width = 221
    for i, table in enumerate(arrays._tabled_exponentials(width)):
        for j, found in enumerate(table):
            distance = Fraction(j, 1 << (arrays.DIGIT * i))
            low, high = by_arb(functools.partial(_scaled_exp, distance, width))
            assert high - 1 <= found <= low + 1, (i, j)


def _scaled_exp(distance: Fraction, width: int) -> Interval:
    return ends(arb(-distance).exp() * flint.arb(2) ** width)


def test_multiprecision_products_stay_enclosed_when_they_are_cut() -> None:
    """2,000 float64 factors are beyond EXACT_BITS: the interval holds the exact product and is narrow."""
    x = Data("float64", 1, 2000, -3, 3, 5).tensor()
    x = torch.where(x == 0, torch.ones_like(x), x)
    exact = math.prod(fractions(x)[0])
    row = ExactRow(x)
    for precision in (96, 200):
        truth = MpArrays(precision, 1999).cumprod(row)[0].truth()
        assert truth.lo < exact < truth.hi
        assert truth.hi - truth.lo < abs(exact) / 2 ** (precision - 2)
    assert MpArrays(96, 1000).cumprod(row)[0].truth().lo < math.prod(fractions(x)[0][:1001])


@given(case=data(-900, 900), stop=st.integers(0, 70))
@settings(max_examples=30)
def test_integer_sums_are_exact(case: Data, stop: int) -> None:
    x = case.tensor()[0]
    assert ExactRow(x).sum(min(stop, len(x))) == sum((Fraction(v) for v in x.double().tolist()[:stop]), Fraction(0))
    negative = np.array([-(2**53) + 1, 2**53 - 1, -1], dtype=np.int64)
    assert integer_sum(negative, np.array([0, 0, 5])) == -32


def test_shift_is_exact_and_finite() -> None:
    x = torch.tensor([[1.5, -torch.inf, 3.25], [-torch.inf, -torch.inf, -torch.inf], [torch.nan, torch.inf, -2.0]])
    for system in SYSTEMS.values():
        n = system()
        assert n.shift(n.input(x)).mid.tolist() == [[3.25], [0.0], [-2.0]]
    assert [float(MpArrays(64).shift(ExactRow(row))[0].exact) for row in x] == [3.25, 0.0, -2.0]
    n = BallArrays("cpu")
    e = n.exp(n.input(x[:1]) - n.shift(n.input(x[:1])))
    assert e.mid[0, 2] == 1 and torch.as_tensor(e.radius)[0, 2] == 0, "exp is exactly 1 at the maximum"


def test_exponentials_far_below_the_range_are_decided() -> None:
    """The difference of far numbers has a radius above 1, and still their exponential is known to be nothing."""
    n = BallArrays("cpu")
    m, r = n.cumsumexp(n.input(torch.tensor([[1.0e38, -1.0e-30, -3.0e38]])))
    assert bool((m.mid == float(torch.tensor(1.0e38))).all())
    assert not torch.isnan(torch.as_tensor(r.radius)).any()
    assert float(torch.as_tensor(r.radius).max()) < 2.0**-1000


@given(st.floats(-2000, -700), st.floats(1, 2.0**60))
@example(-746.0, 1.0)
@example(-math.nextafter(746, 0), 3.0)
@settings(max_examples=200)
def test_quotients_of_exponentials_beyond_the_range_hold_the_value(x: float, s: float) -> None:
    """So that a 0 in float64 is seen to keep its bound, without multiprecision."""
    n = BallArrays("cpu")
    q = n.div(n.exp(n.input(torch.tensor([[x]], dtype=torch.float64))), n.input(torch.tensor([[s]]).double()))
    assert outside(q, by_arb(lambda: [ends(arb(Fraction(x)).exp() / arb(Fraction(s)))])) == []
    assert x > -746 or 0 < float(torch.as_tensor(q.radius)) <= 2 * arrays.LEAST


def test_a_radius_of_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LEAST", 0.0)
    n, x = BallArrays("cpu"), torch.tensor([[-746.0]], dtype=torch.float64)
    assert outside(n.div(n.exp(n.input(x)), n.const(3)), by_arb(lambda: [ends(arb(Fraction(-746)).exp() / 3)]))


def test_an_exponential_that_is_kept_is_that_of_its_argument() -> None:
    """Of other numbers, other tails or other radii it is computed anew."""
    n = BallDDArrays("cpu")
    x = n.input(torch.tensor([[1.0, 2.0, -3.0]], dtype=torch.float64))
    others = (x, -x, x + n.const("1/3"), replace(x, rad=torch.full_like(x.mid, 2.0**-60)), n.input(x.mid[:, :2]))
    kept = [n.exp(a) for a in others]
    assert n.exp(n.input(x.mid[:, :2].clone())) is kept[-1]
    for a, one in zip(others, kept, strict=True):
        fresh = BallDDArrays("cpu").exp(a)
        assert all(torch.equal(getattr(one, k), getattr(fresh, k)) for k in ("mid", "tail", "rad"))


def test_a_quotient_of_almost_nothing_is_not_exact() -> None:
    n = BallDDArrays("cpu")
    small = Ball(n, torch.zeros(1, dtype=torch.float64), torch.full((1,), 2.0**-1074, dtype=torch.float64))
    assert float(torch.as_tensor(n.div(small, n.const(2.0**60)).radius)) > 0


def test_log_of_two_is_right() -> None:
    low, high = by_arb(lambda: ends(flint.arb(2).log()))
    total = sum(map(Fraction, arrays._LN2))
    assert all((part * 2.0**k).is_integer() for part, k in zip(arrays._LN2, (40, 80, 120), strict=True))
    assert abs(total - low) < Fraction(arrays._LN2_LEFT) and abs(total - high) < Fraction(arrays._LN2_LEFT)


# What is planted here must be seen by `outside`: the tests above are no formality.


def test_a_wrong_constant_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Data("float32", 1, 40, -3, 6, 1).tensor().clamp(-600, 600)
    truths = by_arb(lambda: [ends(arb(v).exp()) for v in fractions(x)[0]])
    n = BallDDArrays("cpu")
    assert outside(n.exp(n.input(x)), truths) == []
    first, second, third = arrays._LN2
    monkeypatch.setattr(arrays, "_LN2", (first, second + 2.0**-80, third))
    monkeypatch.setattr(cpp, "_HOSTED", {})  # in what is compiled constants are what they were
    monkeypatch.setenv("VERIFY_NATIVE", "0")
    n = BallDDArrays("cpu")  # which keeps no exponential
    assert outside(n.exp(n.input(x)), truths)


def test_a_missing_term_of_the_series_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Data("float32", 1, 40, -3, 6, 1).tensor().clamp(-600, 600)
    truths = by_arb(lambda: [ends(arb(v).exp()) for v in fractions(x)[0]])
    terms = arrays._INVERSE_FACTORIALS
    monkeypatch.setattr(arrays, "_INVERSE_FACTORIALS", (*terms[:9], Fraction(0), *terms[10:]))
    monkeypatch.setattr(cpp, "_HOSTED", {})
    monkeypatch.setenv("VERIFY_NATIVE", "0")
    assert outside(BallDDArrays("cpu").exp(BallDDArrays("cpu").input(x)), truths)


def test_a_dropped_residual_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Data("float32", 1, 64, -30, 30, 2).tensor()
    exact = list(itertools.accumulate(fractions(x)[0]))
    monkeypatch.setattr(BallArrays, "add", lambda self, a, b: Ball(self, a.mid + b.mid, 0.0))
    assert outside(BallArrays("cpu").cumsum(BallArrays("cpu").input(x)), ((s, s) for s in exact))


def test_a_sum_with_too_small_a_bound_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    n = BallArrays("cpu")
    x = Data("float64", 1, 5000, -12, 3, 3).tensor()
    exact = sum(fractions(x)[0])
    e = n.input(x)
    wide = Ball(n, e.mid, torch.zeros_like(e.mid))
    assert outside(n.sum(wide), [(exact, exact)]) == []
    monkeypatch.setattr(arrays, "gamma", lambda k, u=0.0: 2.0**-60)
    assert outside(n.sum(wide), [(exact, exact)])


@given(st.integers(1, 200))
@settings(max_examples=20)
def test_scan_is_a_scan(n: int) -> None:
    """An operation that is associative and does not commute: composition of affine maps modulo a prime."""
    draw = Draw(FORMATS["float32"], torch.arange(n), n, "scan")
    a, b = draw.integer(0, 96), draw.integer(0, 96)
    found = scan(lambda x, y: (x[0] * y[0] % 97, (y[0] * x[1] + y[1]) % 97), (a[None], b[None]))
    p, q = int(a[0]), int(b[0])
    for i in range(n):
        if i:
            p, q = p * int(a[i]) % 97, (int(a[i]) * q + int(b[i])) % 97
        assert (int(found[0][0, i]), int(found[1][0, i])) == (p, q)


def test_predicates_along_the_axis() -> None:
    x = torch.tensor([[1.0, torch.nan, -0.0, -2.0, torch.inf]])
    n, row = BallArrays("cpu"), ExactRow(x)
    for name in ("seen", "odd", "anywhere"):
        for predicate in ("is_nan", "is_zero", "signbit", "is_inf"):
            ball = getattr(n, name)(getattr(n, predicate)(n.input(x)))[0].tolist()
            mp = MpArrays(64)
            assert getattr(mp, name)(getattr(mp, predicate)(row)).tolist() == ball
            if name != "anywhere":
                for i in range(5):
                    one = MpArrays(64, i)
                    assert getattr(one, name)(getattr(one, predicate)(row)).tolist() == [ball[i]]
    assert (row == float("inf")).tolist() == [False, False, False, False, True]
    assert (row < 0).tolist() == [False, False, False, True, False]


def test_computed_values_are_refused_where_only_inputs_are_exact() -> None:
    n = BallArrays("cpu")
    x = n.input(torch.ones(1, 4)) + 1
    for name in ("cumprod", "cumsumexp", "cummax"):
        with pytest.raises(TypeError, match="expected an exact input"):
            getattr(n, name)(x)
    with pytest.raises(ValueError, match="below 1/2"):
        gamma(1 << 60)
    with pytest.raises(ValueError, match="special rows"):
        MpArrays(96, 0).cumsumexp(ExactRow(torch.tensor([torch.inf])))


def test_exact_rows_keep_values() -> None:
    x = torch.tensor([1.5, -0.0, 3.0e-45, torch.inf, torch.nan])
    row = ExactRow(x)
    system = MpSystem(64)
    for value, number in zip(row.values, x.tolist(), strict=True):
        assert repr(value) == repr(system.const(number))
    assert repr((-row).values[0]) == "-1.5" and repr(abs(row).values[1]) == "0"
    assert len(row * 2) == 5 and repr((2 * row)[0]) == "3.0"
