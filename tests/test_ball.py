"""`verify.numbers.ball` against multiprecision: random expressions on ordinary and extreme inputs.

What a ball claims is spelled out once, in `claim`; a NaN radius claims nothing.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verify.facts import kernel
from verify.facts.formats import FORMATS, Format
from verify.facts.oracle import OracleError
from verify.facts.truth import Truth
from verify.families.elementwise import Elementwise
from verify.judge.element import Facts, Judged, Limits, decide
from verify.numbers import Undecidable, admit
from verify.numbers.ball import Ball, Ball64, BallDD
from verify.numbers.decide import Enclosure, enclosure
from verify.numbers.functions import FUNCTIONS, LIBRARY
from verify.numbers.mp import FAILED, MpSystem

NAMES = ("a", "b", "c")
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
}
UNARY = (*(name for name, entry in FUNCTIONS.items() if entry.arity == 1), "neg", "abs")
WORDS = {16: torch.int16, 32: torch.int32}
Tree = Any  # a name, a float, or (operation, tree[, tree])


def tree_value(tree: Tree, n: Any, values: dict[str, Any]) -> Any:
    """The expression in any number system."""
    if isinstance(tree, str):
        return values[tree]
    if isinstance(tree, (float, Fraction)):
        return n.const(tree)
    operation, *parts = tree
    operands = [tree_value(part, n, values) for part in parts]
    if operation in BINARY:
        return BINARY[operation](*operands)
    if operation == "neg":
        return -operands[0]
    return abs(operands[0]) if operation == "abs" else getattr(n, operation)(*operands)


def trees(unary: Sequence[str] = UNARY) -> st.SearchStrategy[Tree]:
    leaf = st.one_of(
        st.sampled_from(NAMES), st.sampled_from([1.0, -0.5, 3.0, 0.1, 2.0**-140, 2.0**120, Fraction(1, 3)])
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(list(BINARY)), inner, inner), st.tuples(st.sampled_from(list(unary)), inner)
        ),
        max_leaves=8,
    )


def inputs(fmt: Format) -> st.SearchStrategy[int]:
    """Finite patterns: extremes, neighbours of small numbers, or any."""
    unit = 1 << fmt.mantissa_bits
    special = [0, 1, unit - 1, unit, fmt.inf_bits - 1, fmt.parse("1"), fmt.parse("1") + 1, fmt.parse("1") - 1]
    magnitude = st.one_of(
        st.sampled_from(special),
        st.integers(fmt.parse("0.01"), fmt.parse("20")),
        st.integers(0, fmt.inf_bits - 1),
    )
    return st.builds(lambda m, negative: m | (fmt.sign_bit if negative else 0), magnitude, st.booleans())


@st.composite
def columns(draw: st.DrawFn) -> tuple[Format, list[tuple[int, int, int]]]:
    fmt = FORMATS[draw(st.sampled_from(["float16", "bfloat16", "float32"]))]
    one = inputs(fmt)
    return fmt, draw(st.lists(st.tuples(one, one, one), min_size=1, max_size=5))


def tensors(fmt: Format, rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    def column(k: int) -> torch.Tensor:
        signed = [row[k] - (1 << fmt.bits) if row[k] & fmt.sign_bit else row[k] for row in rows]
        return torch.tensor(signed, dtype=WORDS[fmt.bits]).view(getattr(torch, fmt.name))

    return {name: column(k) for k, name in enumerate(NAMES)}


def truth_of(tree: Tree, fmt: Format, row: Sequence[int], precision: int = 400) -> Truth | None:
    """The exact value to 400 bits, or None where the expression is undefined over the reals."""
    n = MpSystem(precision)
    try:
        value = n.value(tree_value(tree, n, {name: n.input(bits, fmt) for name, bits in zip(NAMES, row, strict=True)}))
        return None if value.kind == FAILED else value.truth()
    except OracleError:
        return None


def claim(mid: float, tail: float, rad: float, truth: Truth) -> bool | None:
    """Whether the truth is what the ball says; None where it says nothing."""
    if math.isnan(rad) or math.isinf(rad):
        return None
    if math.isnan(mid):
        return truth.kind == "nan" if rad == 0 else None
    if math.isinf(mid):
        if rad:
            return None
        beyond = Fraction(2) ** 1023
        above, below = truth.kind == "real" and truth.lo >= beyond, truth.kind == "real" and truth.hi <= -beyond
        return truth.kind == "+inf" or above if mid > 0 else truth.kind == "-inf" or below
    centre = Fraction(mid) + Fraction(tail)
    if truth.kind == "real":
        return truth.hi >= centre - Fraction(rad) and truth.lo <= centre + Fraction(rad)
    return truth.kind in ("+0", "-0") and abs(centre) <= rad


def parts(found: Enclosure, k: int) -> tuple[float, float, float]:
    mid = float(found.mid[k])
    tail = 0.0 if found.tail is None else float(found.tail[k])
    rad = abs(mid) * found.relative + found.absolute if found.rad is None else float(found.rad[k])
    if found.rad is None and math.isinf(mid):
        rad = 0.0
    return mid, tail, rad


def balls(n: Ball64, tree: Tree, values: dict[str, torch.Tensor]) -> tuple[Ball, Enclosure]:
    ball = n.const(tree_value(tree, n, {name: n.input(t) for name, t in values.items()}))
    return ball, enclosure(ball, values["a"])


def verify_rows(n: Ball64, tree: Tree, fmt: Format, rows: Sequence[Sequence[int]]) -> Counter[bool | None]:
    values = tensors(fmt, rows)
    ball, found = balls(n, tree, values)
    own = [
        torch.as_tensor(t, dtype=torch.float64).expand(len(rows)).tolist() for t in (ball.mid, ball.tail, ball.radius)
    ]
    outcomes: Counter[bool | None] = Counter()
    for k, row in enumerate(rows):
        truth = truth_of(tree, fmt, row)
        if truth is None:
            continue
        said = claim(*parts(found, k), truth)
        outcomes[said] += 1
        assert claim(own[0][k], own[1][k], own[2][k], truth) is not False, (tree, [fmt.hex(b) for b in row], truth)
        assert said is not False, (tree, [fmt.hex(b) for b in row], parts(found, k), truth)
        if ball.sure and said and truth.kind == "real" and truth.lo * truth.hi > 0:
            assert (math.copysign(1, parts(found, k)[0]) < 0) == (truth.lo < 0), (tree, row)
    return outcomes


@settings(max_examples=300)
@given(trees(), columns())
def test_float64_balls_contain_the_truth(tree: Tree, drawn: tuple[Format, list[tuple[int, int, int]]]) -> None:
    verify_rows(Ball64("cpu"), tree, *drawn)


@settings(max_examples=300)
@given(trees(("sqrt", "neg", "abs")), columns())
def test_double_double_balls_contain_the_truth(tree: Tree, drawn: tuple[Format, list[tuple[int, int, int]]]) -> None:
    verify_rows(BallDD("cpu"), tree, *drawn)


#: Expressions of which a ball must dodge none on ordinary inputs, and whether float64 knows them exactly (None: some).
ORDINARY: list[tuple[Tree, bool | None]] = [
    (("*", "a", "b"), True),
    (("/", ("+", "a", "b"), "c"), False),
    (("*", ("*", "a", "b"), "c"), True),  # in two float64
    (("/", "a", 3.0), None),
    (("-", ("*", "a", "b"), ("*", "b", "c")), None),
    (("sqrt", ("abs", "a")), False),
    (("tanh", ("*", "a", "b")), False),
    (("exp", ("/", "a", 3.0)), False),
    (("log", ("+", 3.0, ("*", "a", "a"))), False),
    (("log1p", ("exp", "a")), False),
    (("expm1", ("*", "a", Fraction(1, 3))), False),
    (("exp2", ("/", "a", 3.0)), False),
    (("log2", ("+", 3.0, ("*", "a", "a"))), False),
    (("erf", ("*", "a", "b")), False),
    (("sin", ("*", "a", "b")), False),
    (("atan", ("*", "a", "b")), False),
    (("rsqrt", ("+", 3.0, ("*", "a", "a"))), False),
]
TEXTS = (("1.5", "0.7", "-3"), ("-2.25", "1e-3", "0.1"))
ROWS = [tuple(FORMATS["float32"].parse(text) for text in row) for row in TEXTS]


@pytest.mark.parametrize(("tree", "exact"), ORDINARY)
def test_ordinary_expressions_are_claimed_and_tightly(tree: Tree, exact: bool | None) -> None:
    fmt = FORMATS["float32"]
    assert set(verify_rows(Ball64("cpu"), tree, fmt, ROWS)) == {True}
    found = balls(Ball64("cpu"), tree, tensors(fmt, ROWS))[1]
    for k in range(len(ROWS)):
        mid, _, rad = parts(found, k)
        assert rad <= abs(mid) * 2.0**-43
        assert exact is None or (rad == 0) == exact


@pytest.mark.parametrize("tree", [t for t, _ in ORDINARY if t[0] in ("*", "/", "-", "sqrt")])
def test_double_double_is_tight_to_a_hundred_bits(tree: Tree) -> None:
    fmt = FORMATS["float32"]
    assert set(verify_rows(BallDD("cpu"), tree, fmt, ROWS)) == {True}
    found = balls(BallDD("cpu"), tree, tensors(fmt, ROWS))[1]
    for k in range(len(ROWS)):
        mid, _, rad = parts(found, k)
        assert rad <= abs(mid) * 2.0**-98


def chain(operation: str, length: int, names: str = "abc") -> Tree:
    """a, b, c, a, b, ... joined from the left."""
    tree: Tree = names[0]
    for k in range(1, length):
        tree = (operation, tree, names[k % 3])
    return tree


#: Zero, and a small part of a product, by two orders of the same factors.
NOTHING = ("-", chain("*", 9), chain("*", 9, "cba"))
LITTLE = ("-", chain("*", 9), ("*", 1 - 2.0**-30, chain("*", 9, "cba")))


#: Errors of many operations, or magnified ones, which no slack of a single operation hides.
ACCUMULATED: list[Tree] = [
    chain("*", 13),
    chain("/", 12),
    ("exp", ("*", 9.0, chain("*", 5))),
    ("expm1", ("*", 9.0, chain("*", 5))),
    ("exp2", ("*", 9.0, chain("*", 5))),
    ("log", ("+", 1.0, NOTHING)),
    ("log1p", NOTHING),
    ("tanh", NOTHING),
    ("erf", NOTHING),
    ("atan", NOTHING),
    ("sin", ("*", 9.0, chain("*", 5))),
    ("sqrt", LITTLE),
    ("log", LITTLE),
    ("log2", LITTLE),
    ("rsqrt", LITTLE),
    ("/", 1.0, LITTLE),
    ("/", chain("*", 9), chain("*", 9)),
    ("-", chain("*", 9), ("*", chain("*", 8), "c")),
]


@pytest.mark.parametrize("tree", ACCUMULATED)
def test_errors_that_accumulate_stay_inside(tree: Tree) -> None:
    """Factors between 1 and 1.5 with all their bits, so that almost every operation rounds."""
    fmt, rng = FORMATS["float32"], random.Random(4)
    rows = [tuple(fmt.parse("1") + rng.randrange(1 << 22) for _ in NAMES) for _ in range(150)]
    assert verify_rows(Ball64("cpu"), tree, fmt, rows)[True] > 100


def test_double_double_products_of_tiny_factors_keep_their_underflow_term() -> None:
    """2^-149 to the 8th is under float64's range: its radius must say so."""
    tree: Tree = "a"
    for _ in range(3):
        tree = ("*", tree, tree)
    ball, found = balls(BallDD("cpu"), tree, tensors(FORMATS["float32"], [(1, 1, 1)]))
    assert float(torch.as_tensor(ball.radius)) > 0
    truth = truth_of(tree, FORMATS["float32"], (1, 1, 1))
    assert truth is not None and claim(*parts(found, 0), truth)


@pytest.mark.parametrize("double", [False, True])
def test_an_exact_tie_is_known_to_be_exact(double: bool) -> None:
    n = BallDD("cpu") if double else Ball64("cpu")
    one, half = torch.tensor([1.0]), torch.tensor([2.0**-24])
    found = enclosure(n.input(one) + n.input(half), one)
    assert parts(found, 0)[2] == 0


@settings(max_examples=100)
@given(columns(), st.sampled_from([("+", "a", "b"), ("-", "a", "b"), ("neg", ("+", "a", ("*", "b", -2.5)))]))
def test_what_a_sum_of_exact_numbers_leaves_is_known(
    drawn: tuple[Format, list[tuple[int, int, int]]], tree: Tree
) -> None:
    fmt, rows = drawn
    _, found = balls(Ball64("cpu"), tree, tensors(fmt, rows))
    for k, row in enumerate(rows):
        truth = truth_of(tree, fmt, row)
        mid, tail, rad = parts(found, k)
        assert truth is not None and rad == 0
        assert truth.kind != "real" or truth.lo == Fraction(mid) + Fraction(tail) == truth.hi


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(
    "compare",
    [
        lambda n, x: x > 0,
        lambda n, x: x == 1,
        lambda n, x: x <= 0,
        lambda n, x: n.is_zero(x),
        lambda n, x: n.is_nan(x),
        lambda n, x: n.is_integer(x),
        lambda n, x: n.signbit(x),
        lambda n, x: n.max(x, 1),
        lambda n, x: n.min(x, 1),
        lambda n, x: bool(x),
    ],
)
def test_predicates_on_computed_values_are_refused(compare: Callable[[Any, Any], Any], double: bool) -> None:
    n = BallDD("cpu") if double else Ball64("cpu")
    x = n.input(torch.tensor([1.0, 2.0]))
    with pytest.raises(Undecidable):
        compare(n, x + x)
    with pytest.raises(Undecidable):
        bool(x)


def test_predicates_on_inputs_and_their_negation_hold() -> None:
    n = Ball64("cpu")
    x = n.input(torch.tensor([1.0, -0.0, 3.5, math.inf]))
    assert (x > 1).tolist() == [False, False, True, True]
    assert (-x < -1).tolist() == [False, False, True, True]
    assert n.signbit(x).tolist() == [False, True, False, False]
    assert n.is_odd(x).tolist() == [True, False, False, False]
    assert n.is_integer(abs(x)).tolist() == [True, True, False, False]


def test_a_function_that_is_not_admitted_claims_nothing() -> None:
    bounds = {name: bound for name, bound in LIBRARY.items() if name != "exp"}
    x = torch.tensor([1.0])
    n = Ball64("cpu", bounds)
    assert math.isnan(parts(enclosure(n.exp(n.input(x)), x), 0)[2])
    assert not math.isnan(parts(enclosure(n.log(n.input(x)), x), 0)[2])
    assert math.isnan(parts(enclosure(BallDD("cpu").log(BallDD("cpu").input(x)), x), 0)[2])


def test_double_double_exp_beside_one_encloses_the_truth_narrowly() -> None:
    n = BallDD("cpu")
    x = torch.tensor([-(2.0**-25), 2.0**-30, 0.5, -1.0, 0.0, -691.0, 710.0], dtype=torch.float64)
    found = enclosure(n.exp(n.input(x)), x)
    for k, value in enumerate(x.tolist()[:5]):
        mid, tail, rad = parts(found, k)
        with mpmath.workprec(400):
            assert abs(mpmath.exp(value) - mpmath.mpf(mid) - mpmath.mpf(tail)) <= rad
        assert rad <= 2.0**-50 * abs(value)
    assert math.isnan(parts(found, 5)[2]) and math.isnan(parts(found, 6)[2])


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid", "exp"])
def test_double_double_knows_what_is_left_to_a_saturated_result(name: str) -> None:
    """Outputs beside 1 were each judged in multiprecision, all of a large half of float32's numbers."""
    oracle, fmt, rng = kernel.load(name).oracle, FORMATS["float32"], random.Random(7)
    sizes = [rng.uniform(1, 40) for _ in range(40)] + [2.0 ** rng.uniform(0, 127) for _ in range(40)]
    sizes += [4.0, 26.0, 26.25, 26.3, 344.0, 344.1, 345.0, 687.0, 687.1, 690.0, fmt.to_float(fmt.inf_bits - 1)]
    x = torch.tensor([*sizes, *(-size for size in sizes)])
    about = Elementwise(oracle, fmt, ("x",), {}, "cpu", admit.Bounds("cpu"))
    found, known = about.facts((x,), x, double=True).truth, 0
    for k, value in enumerate(x.tolist()):
        mid, tail, rad = parts(found, k)
        n = MpSystem(1200)
        truth = oracle.function(n, n.input(fmt.round(Fraction(value)), fmt)).truth()
        if math.isnan(rad):
            assert not math.isclose(abs(float(truth.lo)), 1.0, rel_tol=2.0**-30)
            continue
        known += 1
        if 2.0**-900 < abs(mid) < 2.0**900:
            middle, off = Fraction(mid) + Fraction(tail), Fraction(rad) + Fraction(2) ** -900
            assert truth.lo <= middle + off and truth.hi >= middle - off, value
            assert name == "exp" or abs(middle) + Fraction(rad) < 1
    assert known > 120
    for one in oracle.saturations:  # where it begins
        edge = min((v for v in x.tolist() if one.when(Ball64("cpu"), x=torch.tensor(v))), key=abs)
        n = MpSystem(1200)
        truth = oracle.function(n, n.input(fmt.round(Fraction(edge)), fmt)).truth()
        assert 0 < 1 - max(abs(truth.lo), abs(truth.hi)) < Fraction(2) ** -990 and truth.lo * int(one.at) > 0


def decided(y: torch.Tensor, found: Enclosure) -> Judged:
    """Of float32 outputs of which nothing but the enclosure is known."""
    no = torch.zeros(y.shape, dtype=torch.bool)
    facts = Facts(found, no, no, no, no, no, torch.zeros(y.shape, dtype=torch.float64))
    return decide(y, facts, FORMATS["float32"], Limits())


#: exp(1000) is beyond float64, and counts as infinite only as long as nothing brings it back.
SATURATED: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("quotient", lambda n, x: n.exp(x) / n.exp(x)),
    ("difference", lambda n, x: n.exp(x) - n.exp(x)),
    ("reciprocal", lambda n, x: 1 / n.exp(x)),
    ("root", lambda n, x: n.sqrt(n.exp(x))),
    ("logarithm", lambda n, x: n.log(n.exp(x))),
    ("tanh of a product", lambda n, x: n.tanh(n.exp(x) * n.exp(-x))),
    ("times tiny", lambda n, x: n.exp(x) * n.exp(-x)),
    ("times zero", lambda n, x: n.exp(x) * n.const(0.0)),
    ("square over square", lambda n, x: (x * n.exp(x)) / (2 * n.exp(x))),
]


def test_double_double_powers_that_arithmetic_gives() -> None:
    """Powers on midpoints are known to be exact, near ones are enclosed; one beyond float64 is not claimed."""
    n, rng, claimed = BallDD("cpu"), random.Random(3), 0
    for exponent in (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, -1.0, 0.5, -0.5, 1.5, 2.5, 3.5, 4.5):
        for bits, scale in [(rng.randrange(2, 25), rng.randrange(-148, 100)) for _ in range(40)]:
            base = (rng.randrange(1 << (bits - 1), 1 << bits) | 1) * 2.0**scale
            x, y = (torch.tensor([v], dtype=torch.float32) for v in (base, exponent))
            if math.isinf(x.item()):
                continue
            mid, tail, rad = parts(enclosure(n.pow(n.input(x), n.input(y)), x), 0)
            if math.isnan(rad):
                continue
            claimed += 1
            middle = Fraction(mid) + Fraction(tail)
            if exponent.is_integer():
                due = Fraction(base) ** int(exponent)
                assert abs(middle - due) <= Fraction(rad)
                assert rad == 0 or exponent < 0 or bits * exponent > 106 or abs(math.log2(due)) > 900
            else:
                least, most = (middle - Fraction(rad)) ** 2, (middle + Fraction(rad)) ** 2
                assert least <= Fraction(base) ** int(2 * exponent) <= most and exponent != 4.5
    assert claimed > 470


def test_double_double_knows_the_powers_that_are_midpoints() -> None:
    """Half of the smallest subnormal, and odd numbers of one bit more than the format has."""
    pairs = [(2.0**-10, 2.5, 2.0**-25), (0.5, 25.0, 2.0**-25), (4.0, -3.5, 2.0**-7), (2.0**-50, 3.0, 2.0**-150)]
    pairs += [(9.0, 3.5, 2187.0), (169.0, 1.5, 2197.0), (25.0, 2.5, 3125.0), (2.0**-127, -8.0, 2.0**1016)]
    x, y, due = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    n = BallDD("cpu")
    found = enclosure(n.pow(n.input(x.float()), n.input(y.float())), x)
    assert torch.equal(found.mid, due) and not found.radius.any() and not torch.as_tensor(found.tail).any()
    beyond = [(2.0**-127, 9.0), (2.0, 0.3), (2.0, math.inf), (1.0, math.nan), (math.inf, 2.0**-149)]
    x, y = (torch.tensor(column, dtype=torch.float32) for column in zip(*beyond, strict=True))
    assert bool(enclosure(n.pow(n.input(x), n.input(y)), x).radius.isnan().all())


@pytest.mark.parametrize("expression", [f for _, f in SATURATED], ids=[name for name, _ in SATURATED])
def test_saturated_values_do_not_leak(expression: Callable[[Any, Any], Any]) -> None:
    fmt = FORMATS["float32"]
    bits = fmt.parse("1000")
    x = torch.tensor([1000.0])
    n, m = Ball64("cpu"), MpSystem(400)
    value = m.value(expression(m, m.input(bits, fmt)))
    if value.kind == FAILED:
        value = m.value(expression(MpSystem(4000), MpSystem(4000).input(bits, fmt)))
    found = enclosure(expression(n, n.input(x)), x)
    truth = value.truth()
    assert claim(*parts(found, 0), truth) is not False
    for output in (0.0, 1.0, 500.0, math.inf, math.nan):
        judged = decided(torch.tensor([output]), found)
        if bool(judged.open):
            continue
        right = int(judged.cls) == 0
        assert right == (output == float((truth.lo + truth.hi) / 2)) or truth.kind == "real" and truth.hi > 2**300


def test_a_product_that_overflows_float64_over_a_ball_around_zero_is_undecided() -> None:
    """Both factors may be 0 though their midpoints are 2^600: infinity is no enclosure of the product."""
    n = Ball64("cpu")
    wide = Ball(n, torch.tensor([2.0**600], dtype=torch.float64), torch.tensor([2.0**600], dtype=torch.float64))
    product = wide * wide
    one = torch.ones(1)
    ball = enclosure(product, one)
    assert bool(decided(one * math.inf, ball).open)
    assert bool(decided(one * 0, ball).open)


@pytest.mark.parametrize(
    ("a", "b", "operation"),
    [
        (-0.0, 7.0, lambda x, y: x / y),
        (-0.0, 7.0, lambda x, y: x * y),
        (-0.0, -0.0, lambda x, y: x + y),
        (0.0, 3.0, lambda x, y: -(x * y)),
        (1.5, 1.5, lambda x, y: x - y),
        (-0.0, 0.0, lambda x, y: x + y),
    ],
)
def test_double_double_keeps_the_sign_that_float64_gives_a_zero(a: float, b: float, operation: Any) -> None:
    x, y = (torch.tensor([v], dtype=torch.float32) for v in (a, b))
    n = BallDD("cpu")
    found = operation(n.input(x), n.input(y))
    expected = operation(x, y)
    assert float(found.mid) == 0 and bool(torch.signbit(found.mid) == torch.signbit(expected))


def test_compiled_balls_contain_the_truth() -> None:
    """Inductor may fuse and reorder: the midpoint and radius that it computes must still be an enclosure."""
    tree: Tree = ("+", ("/", ("-", ("*", "a", "b"), "c"), ("+", ("*", "b", "b"), 3.0)), ("exp", ("tanh", "a")))
    fmt = FORMATS["float32"]
    generator = torch.Generator().manual_seed(3)
    count = 200
    exponents = torch.randint(-30, 30, (3, count), generator=generator).float()
    values = torch.randn(3, count, generator=generator) * torch.exp2(exponents)
    values[2, :100] = values[0, :100] * values[1, :100]  # cancellation
    n = Ball64("cpu")

    def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ball = tree_value(tree, n, {"a": n.input(a), "b": n.input(b), "c": n.input(c)})
        return ball.mid, torch.as_tensor(ball.radius)

    compiled = torch.compile(run, fullgraph=True, dynamic=False)
    mid, rad = compiled(*values)
    rows = values.view(torch.int32).t().tolist()
    said = Counter(
        claim(float(mid[k]), 0.0, float(rad[k]), truth)
        for k, row in enumerate(rows)
        if (truth := truth_of(tree, fmt, [bits & 0xFFFFFFFF for bits in row])) is not None
    )
    assert said == {True: count}
