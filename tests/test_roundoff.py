"""`roundoff` against `ieee` and rationals: no formula, order or format errs by more than its bound; 0 means exact."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from verify.facts.formats import FORMATS
from verify.inputs.draws import Draw, to_tensor
from verify.numbers.documented import Documented
from verify.numbers.functions import FUNCTIONS
from verify.numbers.ieee import IeeeSystem
from verify.numbers.mp import MpSystem
from verify.numbers.orders import Order
from verify.numbers.roundoff import Roundoff

Tensor = torch.Tensor
F16, BF16, F32, F64 = (FORMATS[name] for name in ("float16", "bfloat16", "float32", "float64"))
#: `ieee`'s functions round torch's float64 ones, a few units of 2^-53 from the truth, once.
DOCUMENTED = {
    (name, fmt.name): Documented(1.0 + 16 * 2.0 ** (fmt.precision - 53) if fmt != F64 else 16.0, "ieee's own")
    for name in FUNCTIONS
    if name != "sqrt"  # an operation of `ieee`, correctly rounded
    for fmt in FORMATS.values()
}
ORDERS = ("sequential", "tree", "blocked=3", "blocked=16", "any")


def systems(compute: Any, storage: Any) -> tuple[IeeeSystem, Roundoff]:
    return IeeeSystem(compute, storage), Roundoff(compute, storage, DOCUMENTED)


def drawn(fmt: Any, shape: tuple[int, ...], seed: int, kind: str) -> Tensor:
    """Numbers of one kind: ordinary ones, integers, powers of two, subnormal or huge ones."""
    d = Draw(fmt, torch.arange(math.prod(shape)), seed, kind)
    bits = {
        "ordinary": lambda: d.value(d.integer(-4, 4)),
        "wide": lambda: d.value(d.integer(max(fmt.emin, -60) // 2, min(fmt.emax, 60) // 2)),
        "integers": lambda: d.encode(d.integer(-15, 15).double()),
        "powers": lambda: d.signed(d.encode(2.0 ** d.integer(-3, 3).double())),
        "tiny": lambda: d.value(d.integer(fmt.emin - fmt.mantissa_bits, fmt.emin + 2)),
        "huge": lambda: d.value(d.integer(fmt.emax - 3, fmt.emax)),
        "one sign": lambda: d.encode(d.real(0.5, 4.0)),
    }[kind]()
    return to_tensor(fmt, bits).reshape(shape)


KINDS = ("ordinary", "wide", "integers", "powers", "tiny", "huge", "one sign")


class Exact:
    """Formulas on one row of rationals; library functions and roots in multiprecision, as (low, high)."""

    def __init__(self) -> None:
        self.mp = MpSystem(300)


def rationals(t: Tensor) -> list[Fraction]:
    return [Fraction(v) for v in t.double().tolist()]


def within(found: Tensor, exact: list[Fraction], bound: Tensor, fmt: Any) -> None:
    """|y - t| <= bound for every element, y clamped as the judge does."""
    top = Fraction(2) ** (fmt.emax + 1)
    for y, t, most in zip(found.double().reshape(-1).tolist(), exact, bound.reshape(-1).tolist(), strict=True):
        if math.isinf(most):
            continue
        assert not math.isnan(most) and not math.isnan(y)
        clamped = (top if y > 0 else -top) if math.isinf(y) else Fraction(y)
        error = abs(clamped - max(-top, min(top, t)))
        assert error <= Fraction(most), f"{y!r} is {float(error)!r} from {float(t)!r}, bound {most!r}"


# ---------------------------------------------------------------- orders


@pytest.mark.parametrize(
    ("text", "kind", "block", "accumulator"),
    [
        ("sequential:float32", "sequential", 0, F32),
        ("tree:float64", "tree", 0, F64),
        ("blocked=128:float32", "blocked", 128, F32),
        (" any:bfloat16 ", "any", 0, BF16),
    ],
)
def test_an_order_is_parsed(text: str, kind: str, block: int, accumulator: Any) -> None:
    assert Order.parse(text) == Order(kind, accumulator, block)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tree", "names no accumulator; expected ORDER:FORMAT such as"),
        ("tree:float", "unknown format 'float'; expected one of float16, bfloat16, float32, float64"),
        ("pairwise:float32", "unknown order 'pairwise'"),
        ("blocked:float32", "blocked needs a size"),
        ("tree=4:float32", "only blocked has one"),
        ("blocked=0:float32", "'0' is not a block size"),
        ("blocked=x:float32", "'x' is not a block size"),
        ("", "names no accumulator"),
    ],
)
def test_a_bad_order_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        Order.parse(text)
    assert message in str(error.value) and "\n" not in str(error.value)


@given(n=st.integers(1, 200), order=st.sampled_from(ORDERS))
def test_an_order_takes_no_more_steps_than_it_says(n: int, order: str) -> None:
    """Depths counted by running the order on (depth, terms) pairs: every term once, no path longer."""
    from verify.numbers.orders import reduce, scan

    one = Order.parse(f"{order}:float32")
    # a term is 1 + depth * 2^20: adding takes the larger depth, plus one
    unit = 1 << 20

    def combine(a: Tensor, b: Tensor) -> Tensor:
        return torch.maximum(a // unit, b // unit) * unit + unit + a % unit + b % unit

    leaves = torch.ones(1, n, dtype=torch.int64)
    total = int(reduce(one, combine, leaves))
    steps = one.steps(torch.arange(1, n + 1, dtype=torch.float64))
    assert total % unit == n and total // unit <= int(steps[-1])
    for i, found in enumerate(scan(one, combine, leaves)[0].tolist()):
        assert found % unit == i + 1
        # Sklansky's prefixes are trees over the whole row, so that a prefix is not deeper than the row's tree
        assert found // unit <= max(int(steps[i]), int(steps[-1]) if order in ("tree", "any") else 0)


# ---------------------------------------------------------------- elementwise


def polynomial(n: Any, a: Any, b: Any, c: Any) -> Any:
    return n.fma(a, b, c) * (a - 3) + n.const("1/3")


def quotient(n: Any, a: Any, b: Any, c: Any) -> Any:
    return (a + b * c) / (abs(b) + 0.75)


def cast_away(n: Any, a: Any, b: Any, c: Any) -> Any:
    return n.cast(a * b, BF16) - n.at(F64).value(c) * n.at(F64).value(b)


def chosen(n: Any, a: Any, b: Any, c: Any) -> Any:
    return n.max(a * b, c) - n.min(a, b + c)


def doubled(n: Any, a: Any, b: Any, c: Any) -> Any:
    d = a + b
    return (d * d + c * c) * n.recip(abs(c) + 2)


EXACT: dict[str, Callable[[Fraction, Fraction, Fraction], Fraction]] = {
    "polynomial": lambda a, b, c: (a * b + c) * (a - 3) + Fraction(1, 3),
    "quotient": lambda a, b, c: (a + b * c) / (abs(b) + Fraction(3, 4)),
    "cast_away": lambda a, b, c: a * b - c * b,
    "chosen": lambda a, b, c: max(a * b, c) - min(a, b + c),
    "doubled": lambda a, b, c: ((a + b) ** 2 + c * c) / (abs(c) + 2),
}
FORMULAS = {f.__name__: f for f in (polynomial, quotient, cast_away, chosen, doubled)}


@given(
    name=st.sampled_from(sorted(FORMULAS)),
    compute=st.sampled_from([F16, BF16, F32, F64]),
    kinds=st.tuples(*[st.sampled_from(KINDS)] * 3),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150)
def test_a_formula_keeps_its_bound(name: str, compute: Any, kinds: tuple[str, ...], seed: int) -> None:
    storage = compute
    bits, rough = systems(compute, storage)
    tensors = [drawn(storage, (24,), seed + k, kind) for k, kind in enumerate(kinds)]
    assume(all(bool(t.isfinite().all()) for t in tensors))
    y = bits.result(FORMULAS[name](bits, *map(bits.input, tensors)))
    found = rough.result(FORMULAS[name](rough, *map(rough.input, tensors)))
    exact = [EXACT[name](*row) for row in zip(*map(rationals, tensors), strict=True)]
    within(y, exact, found.error.expand(24), storage)
    for t, mid, rad in zip(exact, found.mid.tolist(), found.rad.tolist(), strict=True):
        assert not math.isfinite(mid) or math.isinf(rad) or abs(Fraction(mid) - t) <= Fraction(rad)
    same = found.error == 0
    assert all(Fraction(v) == t for v, t, k in zip(y.double().tolist(), exact, same.tolist(), strict=True) if k)


# ---------------------------------------------------------------- sums


@given(
    operation=st.sampled_from(["sum", "cumsum", "dot"]),
    order=st.sampled_from(ORDERS),
    accumulator=st.sampled_from([F16, BF16, F32, F64]),
    storage=st.sampled_from([F16, BF16, F32]),
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 70),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=200)
def test_a_sum_keeps_its_bound(
    operation: str, order: str, accumulator: Any, storage: Any, kind: str, n: int, seed: int
) -> None:
    one = Order.parse(f"{order}:{accumulator.name}")
    bits, rough = systems(F32, storage)
    x = drawn(storage, (2, n), seed, kind)
    w = drawn(storage, (2, n), seed + 1, "integers")

    def run(system: Any) -> Any:
        if operation == "dot":
            return system.dot(system.input(x), system.input(w), one)
        return getattr(system, operation)(system.input(x), one)

    y, found = bits.result(run(bits)), rough.result(run(rough))
    exact = []
    for row, weights in zip(map(rationals, x), map(rationals, w), strict=True):
        terms = [a * b for a, b in zip(row, weights, strict=True)] if operation == "dot" else row
        sums = list(itertools.accumulate(terms))
        exact += sums if operation == "cumsum" else sums[-1:]
    within(y, exact, found.error.expand(y.shape), storage)


@given(
    n=st.integers(1, 300), order=st.sampled_from(ORDERS), accumulator=st.sampled_from([F16, BF16, F32, F64]),
    seed=st.integers(0, 2**32), places=st.integers(-10, 5),
)  # fmt: skip
@settings(max_examples=100)
def test_integers_that_fit_are_added_exactly_in_any_order(
    n: int, order: str, accumulator: Any, seed: int, places: int
) -> None:
    """Radius 0 for all orders, and then their bits are those of the exact sum; one unit too many, and it is not 0."""
    most = max(1, ((1 << accumulator.precision) - 1) // n)
    d = Draw(F32, torch.arange(n), seed, "exact")
    values = (d.integer(-min(most, 100), min(most, 100)).double() * 2.0**places)[None]
    assume(float(values.abs().sum()) < 2.0 ** (accumulator.precision + places))
    assume(n * 100 * 2.0**places < float(accumulator.max_finite) and places >= -10)
    x = values.to(torch.float32)
    _, rough = systems(F32, F32)
    for kind in ORDERS:
        one = Order.parse(f"{kind}:{accumulator.name}")
        if Fraction(2) ** places >= accumulator.smallest_subnormal:
            assert float(rough.sum(rough.input(x), one).error) == 0
    one = Order.parse(f"{order}:{accumulator.name}")
    bits, _ = systems(F32, F32)
    permuted = values[:, torch.argsort(torch.tensor([(k * 2654435761 + seed) % 2**32 for k in range(n)]))]
    y = bits.sum(bits.input(permuted.to(torch.float32)), one)
    assert Fraction(float(y.tensor)) == sum(map(Fraction, values[0].tolist()))


@given(
    data=st.data(), accumulator=st.sampled_from([F16, BF16, F32]), n=st.integers(1, 60),
    kind=st.sampled_from(["any", "sequential"]), over=st.booleans(), places=st.integers(-8, 3),
)  # fmt: skip
@settings(max_examples=200)
def test_scans_are_exact_where_sums_of_consecutive_terms_fit(
    data: st.DataObject, accumulator: Any, n: int, kind: str, over: bool, places: int
) -> None:
    """Between numbers that fit, whichever pairs are combined first, however large the sum of magnitudes; in an order
    of any terms, and where a sum is one bit too long, it is not called so."""
    most = ((1 << accumulator.precision) - 1) // 2 << int(over)
    heights = data.draw(st.lists(st.integers(-most, most), min_size=n, max_size=n))
    if over:
        heights = [most, -most + 1, *heights[2:]]
    terms = [b - a for a, b in itertools.pairwise([0, *heights])]
    x = torch.tensor([terms], dtype=torch.float64) * 2.0**places
    rough = Roundoff(F64, F64, DOCUMENTED)
    order = Order(kind, accumulator, adjacent=kind == "any")
    found = rough.cumsum(rough.given(x), order).error[0]
    unit = Fraction(2) ** places

    def combined(start: int, end: int) -> Fraction:
        """Of consecutive terms, at random."""
        if end - start == 1:
            return terms[start] * unit
        cut = end - 1 if kind == "sequential" else data.draw(st.integers(start + 1, end - 1))
        return accumulator.fraction(accumulator.round(combined(start, cut) + combined(cut, end)))

    for i in range(n) if n < 12 else (n // 2, n - 1):
        exact = Fraction(sum(terms[: i + 1])) * unit
        if float(found[i]) == 0:
            assert combined(0, i + 1) == exact
        else:
            assert over and i
    if over and n > 1:
        assert float(found[1]) > 0
    loose = rough.cumsum(rough.given(x), Order("any", accumulator)).error[0]
    if sum(map(abs, terms)) >= 1 << accumulator.precision and any(term % 2 for term in terms):
        assert float(loose[-1]) > 0


def test_what_does_not_fit_is_not_called_exact() -> None:
    _, rough = systems(F32, F32)
    for accumulator, n in ((F16, 1 << 12), (BF16, 1 << 9), (F32, 1 << 20)):
        one = Order("any", accumulator)
        x = torch.full((1, n), 2.0 ** (accumulator.precision - n.bit_length() + 2))
        x[0, -1] = 1.0
        assert float(rough.sum(rough.input(x), one).error) > 0


@pytest.mark.parametrize("name", [name for name, entry in FUNCTIONS.items() if entry.arity == 1])
@pytest.mark.parametrize("compute", [F16, BF16, F32], ids=lambda f: f.name)
def test_a_function_of_computed_values_keeps_its_bound(name: str, compute: Any) -> None:
    """f(a b + c) with a rounded argument, against float64's function of the exact argument (widened)."""
    bits, rough = systems(compute, compute)
    tensors = [drawn(compute, (400,), k, "one sign") for k in range(3)]

    def run(n: Any) -> Any:
        a, b, c = map(n.input, tensors)
        return getattr(n, name)(a * b + c)

    y, found = bits.result(run(bits)).double(), rough.result(run(rough))
    a, b, c = (t.double() for t in tensors)
    truth = FUNCTIONS[name].tensor(a * b + c)  # exact arguments: 2 p + 5 bits
    beyond = y.isinf()
    assert bool(((y - truth).abs() <= found.error + truth.abs() * 2.0**-48)[~beyond].all())
    assert bool((found.error[beyond] >= 0).all()) and bool((found.error >= 0).all())
    used = ((y - truth).abs() / found.error)[~beyond & found.error.isfinite()]
    assert float(used.max()) > 0.2, "a bound that nothing comes near says nothing"


@given(
    k=st.integers(1, 40), accumulator=st.sampled_from([F16, BF16, F32]), order=st.sampled_from(ORDERS),
    kind=st.sampled_from(["ordinary", "integers", "powers", "wide"]), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=60)
def test_a_matrix_product_keeps_its_bound(k: int, accumulator: Any, order: str, kind: str, seed: int) -> None:
    one = Order.parse(f"{order}:{accumulator.name}")
    bits, rough = systems(F32, F16)
    a, b = drawn(F16, (3, k), seed, kind), drawn(F16, (k, 2), seed + 1, kind)
    y = bits.matmul(bits.input(a), bits.input(b), one).tensor
    found = rough.matmul(rough.input(a), rough.input(b), one)
    exact = [
        sum((x * z for x, z in zip(row, column, strict=True)), Fraction(0))
        for row in map(rationals, a)
        for column in map(rationals, b.mT)
    ]
    within(y, exact, found.error, accumulator)


def test_flushing_is_bounded_where_it_is_declared() -> None:
    """A product that underflows to zero errs by more than half a unit, which only `flush` allows for."""
    x = torch.tensor([2.0**-70, 2.0**-80])
    plain, flushed = Roundoff(F32, F32), Roundoff(F32, F32, flush=float(F32.smallest_normal))
    exact = 2.0**-130, 2.0**-140
    y = torch.tensor([2.0**-60, 2.0**-60])
    for n, allowed in ((plain, False), (flushed, True)):
        found = n.mul(n.input(x), n.input(y))
        assert all((t <= e) == allowed for t, e in zip(exact, found.error.tolist(), strict=True))


def test_an_undocumented_function_is_named() -> None:
    n = Roundoff(F32, F32)
    with pytest.raises(KeyError, match="nothing is documented of exp of float32"):
        n.exp(n.input(torch.ones(1)))


# ---------------------------------------------------------------- scans


@given(
    order=st.sampled_from(ORDERS), accumulator=st.sampled_from([F16, BF16, F32]),
    kind=st.sampled_from(["near one", "powers", "wide", "tiny", "huge", "far"]), n=st.integers(1, 60),
    seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=200)
def test_prefix_products_keep_their_bound(order: str, accumulator: Any, kind: str, n: int, seed: int) -> None:
    one = Order.parse(f"{order}:{accumulator.name}")
    bits, rough = systems(accumulator, accumulator)
    d = Draw(accumulator, torch.arange(2 * n), seed, kind)
    if kind == "near one":
        x = to_tensor(accumulator, d.signed(d.encode(d.real(0.9, 1.1)))).reshape(2, n)
    elif kind == "far":
        x = to_tensor(accumulator, d.value(d.integer(accumulator.emin, accumulator.emax))).reshape(2, n)
    else:
        x = drawn(accumulator, (2, n), seed, kind)
    x = torch.where(x == 0, 1.0, x)
    y = bits.cumprod(bits.input(x), one).tensor
    found = rough.cumprod(rough.input(x), one)
    exact = [p for row in map(rationals, x) for p in itertools.accumulate(row, lambda a, b: a * b)]
    within(y, exact, found.error, accumulator)
    same = (found.error == 0).reshape(-1).tolist()
    assert all(Fraction(v) == t for v, t, k in zip(y.reshape(-1).tolist(), exact, same, strict=True) if k)


@given(
    order=st.sampled_from(ORDERS), accumulator=st.sampled_from([F16, BF16, F32]),
    kind=st.sampled_from(["random", "ascending", "equal", "wide", "near", "gaps", "beside 0", "of 1"]),
    n=st.integers(1, 60), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=300)
def test_logarithms_of_prefix_sums_keep_their_bound(order: str, accumulator: Any, kind: str, n: int, seed: int) -> None:
    """Against mpmath's sums of 200 bits."""
    import mpmath

    one = Order.parse(f"{order}:{accumulator.name}")
    storage = accumulator
    bits, rough = systems(F32, storage)
    d = Draw(storage, torch.arange(n), seed, kind)
    place = torch.arange(n).double()
    values = {
        "random": lambda: d.real(-20.0, 20.0),
        "ascending": lambda: place * 0.5 + d.real(0.0, 0.1) - 9.0,
        "equal": lambda: place * 0 + 1.5,
        "wide": lambda: d.real(-3000.0, 3000.0),
        "near": lambda: d.real(-0.01, 0.01) - 0.5,
        "gaps": lambda: torch.where(d.integer(0, 3) == 0, -torch.inf, d.real(-5.0, 5.0)),
        # partial results that are subnormal in float16
        "beside 0": lambda: torch.where(place == seed % n, 0.0, d.real(-40.0, -9.0)),
        "of 1": lambda: torch.where(place < 2, d.real(-0.6934, -0.6929), d.real(-40.0, -9.0)),
    }[kind]()
    x = values.to(getattr(torch, storage.name))[None]
    y = bits.logcumsumexp(bits.input(x), one).tensor
    found = rough.logcumsumexp(rough.input(x), one)
    with mpmath.workprec(200):
        total, exact = mpmath.mpf(0), []
        for v in x[0].double().tolist():
            total += mpmath.exp(v) if v > -math.inf else 0
            exact.append(total)
        for got, s, most in zip(y[0].tolist(), exact, found.error[0].tolist(), strict=True):
            if s == 0:
                assert got == -math.inf and most == 0
            else:
                assert math.isfinite(most) and abs(mpmath.mpf(got) - mpmath.log(s)) <= most * (1 + 1e-9) + 1e-40


def test_a_term_that_is_absorbed_leaves_the_others_bits() -> None:
    """Terms 40 apart: every prefix is its last term to 4e-18, which any algorithm gives exactly."""
    x = (torch.arange(20.0) * 40.0 - 300.0)[None]
    _, rough = systems(F32, F32)
    for order in ORDERS:
        found = rough.logcumsumexp(rough.input(x), Order.parse(f"{order}:float32"))
        assert float(found.error.max()) < 2.0**-24, order
