"""`mp` against Arb (whose error bounds are proved), published hard cases, and IEEE arithmetic.

Arb never shares code with mpmath, so it stands for a second truth. Without python-flint the tests
that need it are skipped; exactness, special values and the protocol are tested all the same.
"""

from __future__ import annotations

import copy
import itertools
import math
import operator
import random
import struct
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath.libmp import finf, fninf, fone, fzero, mpf_add, mpf_lt, mpf_shift, mpf_sub

from verify.facts.formats import FORMATS, Format
from verify.facts.oracle import Oracle, OracleError, Row
from verify.facts.truth import HUGE, TINY, Truth
from verify.numbers import Undecidable
from verify.numbers import enclosure as en
from verify.numbers.ball import Ball64, BallDD
from verify.numbers.functions import FUNCTIONS, NoFunction
from verify.numbers.ieee import IeeeSystem
from verify.numbers.mp import (
    EXACT,
    FAILED,
    INF,
    INTERVAL,
    NAN,
    MpSystem,
    MpValue,
    enclosures,
    evaluate,
    evaluate_expression,
)
from verify.numbers.roundoff import Roundoff
from verify.numbers.trace import TraceSystem

try:
    import flint
except ImportError:
    flint = None
needs_flint = pytest.mark.skipif(flint is None, reason="python-flint, the second truth, is not installed")

F32, F64 = FORMATS["float32"], FORMATS["float64"]
UNARY = tuple(entry for entry in FUNCTIONS.values() if entry.arity == 1)
NAMES = tuple(entry.name for entry in UNARY)
REFERENCE_BITS = 2400  # exp(2^-1074) - 1 - 2^-1074 is about 2^-2149


def bits_of(value: float) -> int:
    pattern: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return pattern


# The second truth


class ArbSystem:
    """The protocol's arithmetic and functions on Arb balls."""

    def const(self, x: int | float | Fraction | str) -> Any:
        exact = Fraction(x)
        return flint.arb(flint.fmpq(exact.numerator, exact.denominator))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in ("exp2", "log2"):
            log_of_2 = flint.arb.const_log2()
            return (lambda x: (x * log_of_2).exp()) if name == "exp2" else (lambda x: x.log() / log_of_2)
        if name in ("max", "min"):
            return lambda x, y: getattr(x, name)(y)
        return lambda x, *more: x.__pow__(*more) if name == "pow" else getattr(x, name)()


def arb_of(end: en.Mpf) -> Any:
    if end in (finf, fninf):
        return flint.arb.pos_inf() if end == finf else flint.arb.neg_inf()
    return flint.arb((-int(end[1]) if end[0] else int(end[1]), end[2]))


def agrees(value: MpValue, ball: Any) -> bool:
    """Whether a value and an Arb ball may be the same number.

    Balls are narrower than intervals by a factor of 2^-1500 here: to meet is to be contained, but for
    that. Where the true value is closer than this to an end, Arb cannot tell on which side it is.
    """
    if value.kind == EXACT:
        return bool(ball.overlaps(flint.arb(flint.fmpq(value.exact.numerator, value.exact.denominator))))
    if value.kind != INTERVAL:
        return not ball.is_finite()
    lo, hi = map(arb_of, value.bounds)
    return bool(ball.is_finite() and not (ball <= lo or ball >= hi))


def disagreements(name: str, points: list[Fraction], precision: int) -> list[str]:
    """Points where mp and Arb contradict each other, or mp's interval is wide for its precision."""
    n, found = MpSystem(precision), []
    with flint.ctx.workprec(REFERENCE_BITS):
        for x in points:
            value = getattr(n, name)(n.const(x))
            if not agrees(value, getattr(ArbSystem(), name)(ArbSystem().const(x))):
                found.append(f"{name}({x})")
            elif value.kind == INTERVAL and x.denominator & (x.denominator - 1) == 0:
                lo, hi = map(arb_of, value.bounds)
                if not hi - lo < abs(lo) * flint.arb((1, 6 - precision)):
                    found.append(f"{name}({x}): too wide")
    return found


def points(name: str, count: int, seed: int) -> list[Fraction]:
    """Inputs over all exponents, near exact points and zeros of derivatives, and non-dyadic ones."""
    rng = random.Random(f"{name} {seed}")
    drawn: list[Fraction] = []
    lower = FUNCTIONS[name].lower
    centres = [Fraction(c) for c in (0, 1, -1, 2, 4)] + [Fraction(k * math.log(2)) for k in (-1, 1, 2, 100)]
    while len(drawn) < count:
        fmt = rng.choice((F32, F64))
        x = fmt.fraction(rng.randrange(fmt.inf_bits)) * rng.choice((1, -1))
        family = rng.randrange(4)
        if family == 1:
            x = rng.choice(centres) + rng.choice((1, -1)) * Fraction(
                rng.getrandbits(20) + 1, 1 << rng.randrange(1, 200)
            )
        elif family == 2:
            x = Fraction(rng.randint(-(1 << 40), 1 << 40), 3 * (1 + rng.getrandbits(30)))
        elif family == 3:
            x = Fraction(rng.uniform(-745, 710))
        if (lower is None or x > lower) and not (name == "exp2" and abs(x) > 2**64):
            drawn.append(x)
    return drawn


@needs_flint
@pytest.mark.parametrize("precision", [40, 96, 384, 1000])
@pytest.mark.parametrize("name", NAMES)
def test_functions_enclose_what_arb_encloses(name: str, precision: int) -> None:
    drawn = points(name, 1200 if precision == 96 else 150, precision)
    assert disagreements(name, drawn, min(precision, 500)) == []


@needs_flint
def test_pow_encloses_what_arb_encloses() -> None:
    rng, n = random.Random(7), MpSystem(96)
    with flint.ctx.workprec(3000):  # a huge exponent costs Arb as many bits as it has
        for _ in range(1500):
            x = abs(F64.fraction(rng.randrange(1, F64.inf_bits)))
            if rng.random() < 0.5:
                x = 1 + Fraction(rng.choice((1, -1)) * (rng.getrandbits(10) + 1), 1 << rng.randrange(11, 53))
            y = F32.fraction(rng.randrange(F32.inf_bits)) if rng.random() < 0.3 else Fraction(rng.uniform(-400, 400))
            y *= rng.choice((1, -1))
            ball = (ArbSystem().const(x).log() * ArbSystem().const(y)).exp()
            assert agrees(n.pow(x, y), ball), (x, y)
            negative = n.pow(-x, 2 * round(y) + 1)
            assert negative.kind != FAILED
            assert agrees(-negative, (ArbSystem().const(x).log() * (2 * round(y) + 1)).exp()), (x, y)


def planted(function: Callable[..., Any], relative: int) -> Callable[..., Any]:
    """`function` with an error of 2^relative times its result."""

    def wrong(x: Any, precision: int, rounding: str = "d") -> Any:
        value = function(x, precision + 100, rounding)
        return mpf_add(value, mpf_shift(value, relative), precision, "d")

    return wrong


@needs_flint
@pytest.mark.parametrize(
    ("core", "names"),
    [
        ("mpf_exp", ("exp", "expm1", "exp2", "tanh", "erf")),
        ("mpf_log", ("log", "log1p")),  # log2 is a quotient of two
        ("mpf_sin", ("sin",)),
    ],
)
@pytest.mark.parametrize("relative", [-80, -94])
def test_a_planted_error_is_found(core: str, names: tuple[str, ...], relative: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(en, core, planted(getattr(en, core), relative))
    for name in names:
        assert disagreements(name, points(name, 40, 1), 96)


LEAVES = st.one_of(
    st.integers(0, F64.inf_bits - 1).map(F64.fraction),
    st.floats(-50, 50).map(Fraction),
    st.fractions(-10, 10, max_denominator=1000),
)


def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.sampled_from(["add", "sub", "mul", "truediv", "max", "min"]), inner, inner),
        st.tuples(st.sampled_from(["neg", "abs", *NAMES]), inner),
    )


def compute(tree: Any, n: Any) -> Any:
    """An expression tree in a number system: the protocol's operations, whatever the system."""
    if isinstance(tree, Fraction):
        return n.const(tree)
    name, *operands = tree[0], *(compute(branch, n) for branch in tree[1:])
    return getattr(n if (name in NAMES or hasattr(MpSystem, name)) and name not in ("add",) else operator, name)(
        *operands
    )


@needs_flint
@given(st.recursive(LEAVES, grow, max_leaves=6), st.sampled_from([32, 96, 300]))
def test_expressions_overlap_those_of_arb(tree: Any, precision: int) -> None:
    value = compute(tree, MpSystem(precision))
    with flint.ctx.workprec(REFERENCE_BITS):
        ball = compute(tree, ArbSystem())
        if not ball.is_finite() or value.kind == FAILED:
            return
        assert value.kind in (EXACT, INTERVAL)
        assert agrees(value, ball)


ENDS = st.one_of(st.just(Fraction(0)), st.fractions(-100, 100, max_denominator=1 << 20), LEAVES)
OPERATIONS = {
    "add": (lambda a, b: en.add(a, b, 20), operator.add),
    "multiply": (lambda a, b: en.multiply(a, b, 20), operator.mul),
    "larger": (en.larger, max),
    "reciprocal": (lambda a, b: en.reciprocal(a, 20), lambda x, y: 1 / x),
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(ends=st.lists(ENDS, min_size=4, max_size=4))
def test_interval_operations_round_outward_and_not_far(name: str, ends: list[Fraction]) -> None:
    """Against exact corners: + * max and 1/x reach their extremes there."""
    intervals = []
    for pair in (ends[:2], ends[2:]):
        lo, hi = (en.from_fraction(end, 53)[0] for end in sorted(pair))
        intervals.append((lo, hi) if lo != hi else (lo, mpf_add(lo, fone)))
    operation, exact = OPERATIONS[name]
    corners = itertools.product(*(map(en.to_fraction, interval) for interval in intervals))
    if name == "reciprocal" and (en.sign(intervals[0]) == 0 or fzero in intervals[0]):
        return
    values = [exact(x, y) for x, y in corners]
    lo, hi = map(en.to_fraction, operation(*intervals))
    slack = Fraction(1, 1 << 19)
    assert min(values) - abs(min(values)) * slack <= lo <= min(values)
    assert max(values) <= hi <= max(values) + abs(max(values)) * slack


@needs_flint
@pytest.mark.parametrize("width", [2.0**-40, 0.01, 1.0, 3.0, 7.0])
def test_a_function_that_turns_is_enclosed_on_intervals(width: float) -> None:
    """Of sin: the range on [a, a + width] is that of its ends and of the odd multiples of pi/2 between them."""
    rng, half = random.Random(1), math.pi / 2
    for _ in range(300):
        a = rng.choice((rng.uniform(-40, 40), (2 * rng.randrange(-9, 9) + 1) * half - rng.uniform(-1.5, 1.5) * width))
        b = a + width
        lo, hi = map(en.to_fraction, en.wave(en.sin, tuple(en.from_fraction(Fraction(x), 53)[0] for x in (a, b)), 53))
        turns = [(-1.0) ** k for k in range(-99, 99) if a < (2 * k + 1) * half < b]
        least, most = min(math.sin(a), math.sin(b), *turns), max(math.sin(a), math.sin(b), *turns)
        assert lo - 1e-15 <= least <= lo + 1e-14 and hi - 1e-14 <= most <= hi + 1e-15, (a, b)
        for x in (a, b):
            with flint.ctx.workprec(200):
                assert arb_of(en.from_fraction(lo, 99)[0]) < flint.arb(x).sin() < arb_of(en.from_fraction(hi, 99)[0])


@needs_flint
@pytest.mark.parametrize("x", [2**2300, 3 * 2**4000, -(2**2300) - 1])
def test_exponentials_too_large_to_compute_have_the_right_exponent(x: int) -> None:
    lo, hi = MpSystem(40).exp(x).bounds
    with flint.ctx.workprec(5000):
        log_of_2 = flint.arb.const_log2()
        assert lo[1] == hi[1] == 1
        assert lo[2] * log_of_2 < flint.arb(x) < hi[2] * log_of_2
        assert abs(hi[2] - lo[2]) < abs(x) // 4000
        assert agrees(MpSystem(2600).log1p(abs(x)), (1 + flint.arb(abs(x))).log())


# Published hard cases: Lefevre and Muller, Worst cases for correct rounding of the elementary functions
# in double precision, ARITH-15, 2001, and its 2003 extension (tables for exp, 2^x, log, log2).

HARD = [
    ("exp", "0x1.9e9cbbfd6080bp-31"),
    ("exp", "0x1.d77fd13d27fffp-11"),
    ("exp", "0x1.6a4d1af9cc989p-8"),
    ("exp", "0x1.83d4bcdebb3f4p+2"),
    ("exp", "-0x1.ed318efb627eap-27"),
    ("log", "0x1.ea71d85cee020p-509"),
    ("log", "0x1.9476e304cd7c7p-384"),
    ("log", "0x1.26e9c4d327960p-232"),
    ("log", "0x1.613955dc802f8p-35"),
    ("log", "0x1.62a88613629b6p+678"),
    ("exp2", "0x1.bfbbde44edfc5p-25"),
    ("exp2", "0x1.e4596526bf94dp-10"),
    ("log2", "0x1.61555f75885b4p-513"),
]


def unary(name: str) -> Oracle:
    return Oracle(lambda n, x: getattr(n, name)(x))


def doubled(value: Fraction) -> Fraction:
    """value in half units of the last place of a double: integers are doubles and midpoints."""
    return value / Fraction(2) ** (en.magnitude(en.from_fraction(value, 200)[0]) - 1 - 53)


@needs_flint
@pytest.mark.parametrize(("name", "text"), HARD)
def test_hard_cases_are_hard_and_get_decided(name: str, text: str) -> None:
    x = F64.parse(text)
    with flint.ctx.workprec(REFERENCE_BITS):
        ball = getattr(ArbSystem(), name)(ArbSystem().const(F64.fraction(x)))
        man, exp = (int(part) for part in ball.mid().man_exp())
    exact = man * Fraction(2) ** exp
    gap = abs(doubled(exact) - round(doubled(exact)))
    assert gap < Fraction(1, 2**46), f"{name}({text}) needs only {-math.log2(gap):.1f} bits beyond the midpoint"

    truths = list(itertools.islice(enclosures(unary(name), {"x": x}, {}, F64, start=96), 2))
    assert math.floor(doubled(truths[0].lo)) < math.floor(doubled(truths[0].hi)), "96 bits should not decide"
    assert math.floor(doubled(truths[1].lo)) == math.floor(doubled(truths[1].hi))
    assert truths[1].lo < exact < truths[1].hi


# Exact cases


@pytest.mark.parametrize(
    ("name", "arguments", "exact"),
    [
        ("exp", (0,), 1),
        ("expm1", (0,), 0),
        ("log", (1,), 0),
        ("log1p", (0,), 0),
        ("tanh", (0,), 0),
        ("erf", (-0.0,), 0),
        ("sin", (0,), 0),
        ("exp2", (10,), 1024),
        ("exp2", (-1074,), Fraction(1, 2**1074)),
        ("log2", (Fraction(1, 8),), -3),
        ("log2", (2.0**1023,), 1023),
        ("sqrt", (0,), 0),
        ("sqrt", (Fraction(9, 4),), Fraction(3, 2)),
        ("sqrt", (2.0**-1074,), Fraction(1, 2**537)),
        ("rsqrt", (Fraction(49, 16),), Fraction(4, 7)),
        ("pow", (1, "1/3"), 1),
        ("pow", (-1, 2**60 + 1), -1),
        ("pow", (-1, 2**1000), 1),
        ("pow", (7.5, 0), 1),
        ("pow", (0, 0), 1),
        ("pow", (0, 3.5), 0),
        ("pow", (3, 5), 243),
        ("pow", (-3, 3), -27),
        ("pow", (-0.5, -3), -8),
        ("pow", (0.1, 2), Fraction(0.1) ** 2),
        ("pow", (Fraction(9, 4), 1.5), Fraction(27, 8)),
        ("pow", (Fraction(9, 4), -0.5), Fraction(2, 3)),
        ("pow", (16, 0.25), 2),
        ("pow", (2.0**-1000, 0.375), Fraction(1, 2**375)),
        ("pow", (81, "3/4"), 27),
        ("pow", (Fraction(27, 8), "-2/3"), Fraction(4, 9)),
        ("pow", (2, 8000), Fraction(2) ** 8000),
        ("pow", (2, -8000), Fraction(1, 2**8000)),
    ],
)
def test_exact_cases_stay_exact(name: str, arguments: tuple[Any, ...], exact: Fraction | int) -> None:
    value = getattr(MpSystem(32), name)(*arguments)
    assert (value.kind, value.exact) == (EXACT, exact)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("exp", (2.0**-1074,)),
        ("log", (1 + 2.0**-52,)),
        ("exp2", (0.5,)),
        ("log2", (3,)),
        ("sqrt", (2,)),
        ("sqrt", (Fraction(1, 3),)),
        ("rsqrt", (Fraction(1, 8),)),
        ("pow", (2, 0.5)),
        ("pow", (8, 0.5)),
        ("pow", (16, 0.125)),
        ("pow", (Fraction(4, 3), 0.5)),
        ("pow", (3, 2.0**-40)),
        ("pow", (9, "1/3")),
    ],
)
def test_irrational_values_are_no_points(name: str, arguments: tuple[Any, ...]) -> None:
    assert getattr(MpSystem(500), name)(*arguments).kind == INTERVAL


@pytest.mark.parametrize("degree", [2, 3, 4, 5, 8, 64])
def test_exact_roots_are_found_and_only_those(degree: int) -> None:
    n, rng = MpSystem(64), random.Random(degree)
    for _ in range(50):
        root = Fraction(rng.getrandbits(30) + 2, rng.getrandbits(30) + 2)
        assert n.pow(root**degree, Fraction(1, degree)).exact == root
        assert n.pow(root**degree + 1, Fraction(1, degree)).kind == INTERVAL  # Catalan: no two perfect powers so close


def test_rationals_beyond_the_limit_become_strict_enclosures() -> None:
    n = MpSystem(96)
    for exact in (Fraction(2) ** 20000, -(Fraction(3) ** 12000), Fraction(1, 3**12000)):
        value = n.const(exact) * 1
        assert value.kind == INTERVAL
        lo, hi = map(en.to_fraction, value.bounds)
        assert lo < exact < hi
        assert hi - lo < abs(exact) / 2**90


def test_arithmetic_oracles_need_one_evaluation() -> None:
    lerp = Oracle(lambda n, a, b, w: a + w * (b - a), arithmetic=True)
    inputs = {
        name: F32.parse(text) for name, text in {"a": "0x1p-149", "b": "0x1.fffffep+127", "w": "0x1.99999ap-4"}.items()
    }
    (truth,) = enclosures(lerp, inputs, {}, F32)
    a, b, w = (F32.fraction(bits) for bits in inputs.values())
    assert truth.lo == truth.hi == a + w * (b - a)


def test_cancellation_of_intervals_is_no_exact_zero() -> None:
    n = MpSystem(96)
    difference = n.exp(2) - n.exp(2)
    assert difference.kind == INTERVAL
    assert difference.truth().lo < 0 < difference.truth().hi
    assert n.log(difference).truth() == Truth("real", -HUGE, HUGE)


# Extended reals: IEEE 754-2019, 6.1 to 6.3


EXTENDED = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 2.0, -2.0]


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_extended_arithmetic_is_that_of_the_hardware(operation: Callable[[Any, Any], Any]) -> None:
    n = MpSystem(64)
    for a, b in itertools.product(EXTENDED, repeat=2):
        with np.errstate(all="ignore"):
            expected = float(operation(np.float64(a), np.float64(b)))
        value = operation(n.input(bits_of(a), F64), n.input(bits_of(b), F64))
        if math.isnan(expected):
            assert value.kind == NAN, (a, b)
            continue
        assert value.kind == (INF if math.isinf(expected) else EXACT), (a, b)
        assert value.negative == (math.copysign(1, expected) < 0), (a, b)
        if value.kind == EXACT:
            assert float(value.exact) == pytest.approx(expected, rel=2**-52), (a, b)


@pytest.mark.parametrize(("operation", "ufunc"), [("max", np.maximum), ("min", np.minimum)])
def test_max_and_min_of_extended_reals(operation: str, ufunc: Any) -> None:
    n = MpSystem(64)
    for a, b in itertools.product(EXTENDED, repeat=2):
        value = getattr(n, operation)(a, b)
        expected = float(ufunc(a, b))
        if expected == 0 and a == b:  # numpy leaves the sign open, IEEE 754-2019, 9.6 does not
            signs = [math.copysign(1, x) for x in (a, b)]
            expected = math.copysign(0, max(signs) if operation == "max" else min(signs))
        assert (value.kind == NAN) == math.isnan(expected)
        if value.kind != NAN:
            assert value.order == expected
            assert value.negative == (math.copysign(1, expected) < 0)


def test_intervals_meet_zeros_and_infinities() -> None:
    n = MpSystem(64)
    e = n.exp(1)
    assert (e * math.inf).truth() == (e + math.inf).truth() == Truth("+inf")
    assert (-e * math.inf).truth() == (-e / 0.0).truth() == (e / -0.0).truth() == Truth("-inf")
    assert (e * -0.0).truth() == (-e / math.inf).truth() == (-0.0 / e).truth() == Truth("-0")
    assert ((e - e) * math.inf).truth() == (1 / (e - e)).truth() == Truth("real", -HUGE, HUGE)
    assert (e * math.nan).truth() == Truth("nan")
    assert abs(e - e).truth() == Truth("real", -HUGE, HUGE)
    assert abs(-e).bounds == e.bounds
    assert (-n.exp(-n.exp(n.exp(1e300)))).truth() == Truth("real", -TINY, -TINY)
    assert n.max(e, math.inf).truth() == Truth("+inf")
    assert n.max(e, -math.inf).kind == INTERVAL
    assert n.max(3, e).exact == 3
    assert n.max(2, e).bounds == e.bounds
    assert n.min(3, e).bounds == e.bounds
    assert n.max(e - e, 0).truth().lo < 0, "0 itself must lie inside the open interval"


def test_sums_fold_from_the_left() -> None:
    n = MpSystem(64)
    assert n.sum([]).truth() == Truth("+0")
    assert n.sum([n.const(-0.0), n.const(-0.0)]).truth() == Truth("-0")
    assert n.sum([2.0**1023, 2.0**1023, -(2.0**1023), 2.0**-1074]).exact == Fraction(2) ** 1023 + Fraction(2) ** -1074
    assert n.dot([0.1, 0.2], [0.3, 0.4]).exact == Fraction(0.1) * Fraction(0.3) + Fraction(0.2) * Fraction(0.4)
    assert [value.exact for value in n.cumsum([1, 2, "1/2"])] == [1, 3, Fraction(7, 2)]
    with pytest.raises(ValueError, match="zip"):
        n.dot([1], [1, 2])


# Predicates


@pytest.mark.parametrize("fmt", [F32, F64], ids=lambda fmt: fmt.name)
def test_predicates_on_exact_inputs(fmt: Format) -> None:
    n = MpSystem(64)
    for x, y in itertools.product(EXTENDED, repeat=2):
        a, b = (n.input(fmt.parse(str(v)), fmt) for v in (x, y))
        for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
            assert compare(a, b) == compare(x, y), (compare, x, y)
            assert compare(abs(-a), 1.5) == compare(abs(x), 1.5)
        assert (n.is_nan(a), n.is_inf(a), n.is_zero(a)) == (math.isnan(x), math.isinf(x), x == 0)
        assert math.isnan(x) or n.signbit(a) == (math.copysign(1, x) < 0)
        assert ~(n.is_nan(a) | (a < b)) & (b == b) == (not (math.isnan(x) or x < y) and y == y)
        assert n.is_integer(a) == (math.isfinite(x) and x == int(x))
    assert [bool(n.is_odd(n.const(v))) for v in (3, -1.0, 2, 0.0, 0.5, math.inf, 2.0**53)] == [True, True] + [False] * 5


def test_computed_values_cannot_be_compared() -> None:
    n = MpSystem(64)
    x = n.const(2)
    for computed in (x + 1, n.exp(x), -(x * x), n.max(x, 1), n.where(x > 0, x, 1)):
        for question in (
            lambda v: v < 1,
            lambda v: 1 == v,
            lambda v: x > v,
            n.is_nan,
            n.is_inf,
            n.is_zero,
            n.signbit,
            n.is_integer,
            n.is_odd,
        ):
            with pytest.raises(Undecidable, match="exact inputs only"):
                question(computed)
    with pytest.raises(Undecidable):
        bool(x)
    with pytest.raises(Undecidable, match="expected a predicate"):
        n.where(x, 1, 2)


# Undefined over the reals


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("log", (-1,)),
        ("log", (0,)),
        ("log2", (-0.0,)),
        ("log1p", (-1,)),
        ("log1p", (-1.5,)),
        ("sqrt", (-4,)),
        ("rsqrt", (0,)),
        ("pow", (-2, 0.5)),
        ("pow", (0, -1)),
        ("pow", (math.nan, 0)),
        ("exp", (math.inf,)),
        ("tanh", (math.nan,)),
        ("sin", (math.inf,)),
    ],
)
def test_undefined_is_an_error_of_the_oracle_unless_discarded(name: str, arguments: tuple[Any, ...]) -> None:
    n = MpSystem(64)
    value = getattr(n, name)(*arguments)
    with pytest.raises(OracleError, match=rf"{name}\(.*undefined"):
        (1 / (value + 1)).truth()
    assert n.where(n.const(0) == 0, 7, value).exact == 7


@pytest.mark.parametrize("system", ["mp", "ball", "double-double", "ieee", "roundoff", "rows", "trace"])
def test_a_function_without_an_entry_is_told_in_one_line(system: str) -> None:
    from verify.numbers.arrays import MpArrays

    ieee = IeeeSystem(F32, F32)
    n = {
        "mp": MpSystem(64), "ball": Ball64("cpu"), "double-double": BallDD("cpu"), "ieee": ieee,
        "roundoff": Roundoff(F32, F32), "rows": MpArrays(64), "trace": TraceSystem(ieee),
    }[system]  # fmt: skip
    with pytest.raises(
        NoFunction, match=r"^number systems have no function 'gamma': add an entry to verify/numbers/fun"
    ):
        n.gamma(1)
    assert not hasattr(n, "__deepcopy__")
    copy.copy(n)


def test_undefined_intervals() -> None:
    n = MpSystem(64)
    e = n.exp(1)
    for value in (n.log(-e), n.sqrt(-e), n.log1p(-e), n.pow(-e, 0.5), n.pow(-e, e), n.pow(0, -e)):
        with pytest.raises(OracleError, match="undefined"):
            value.truth()
    assert n.pow(-e, 3).truth().hi < -20
    assert n.pow(e, 0).exact == n.pow(1, e).exact == 1
    assert n.pow(0, e).truth() == Truth("+0")


# Oracles


def test_rows_come_first_and_in_order() -> None:
    oracle = Oracle(
        lambda n, x: n.exp(x),
        rows=(
            Row(lambda n, x: n.is_nan(x), "nan", "test"),
            Row(lambda n, x: n.is_inf(x) & ~n.signbit(x), "+inf", "test"),
            Row(lambda n, x: n.is_inf(x), "+0", "test"),
            Row(lambda n, x: x == 1, Fraction(1, 3), "test"),
            Row(lambda n, x: x >= 2, "+huge", "test"),
            Row(lambda n, x: x <= -2, "-tiny", "test"),
            Row(lambda n, x: n.is_zero(x) & n.signbit(x), "either-zero", "test"),
        ),
    )
    n = MpSystem(64)
    outcomes = {
        math.nan: Truth("nan"),
        math.inf: Truth("+inf"),
        -math.inf: Truth("+0"),
        1.0: Truth("real", Fraction(1, 3), Fraction(1, 3)),
        2.0: Truth("real", HUGE, HUGE),
        -3.0: Truth("real", -TINY, -TINY),
        -0.0: Truth("either-zero"),
    }
    for x, truth in outcomes.items():
        assert evaluate(oracle, {"x": n.const(x)}, 64) == truth
    assert evaluate(oracle, {"x": n.const(0)}, 64) == Truth.real(Fraction(1), Fraction(1))
    with pytest.raises(OracleError, match="without a sign"):
        evaluate(Oracle(lambda n, x: x, rows=(Row(lambda n, x: x == 0, Fraction(0), "test"),)), {"x": n.const(0)}, 64)
    with pytest.raises(Undecidable):
        evaluate(Oracle(lambda n, x: x, rows=(Row(lambda n, x: n.exp(x) == 0, "+0", "test"),)), {"x": n.const(0)}, 64)


def test_special_values_without_a_row_are_an_error() -> None:
    n = MpSystem(64)
    for function, x in (
        (lambda n, x: n.log(x), 0.0),
        (lambda n, x: n.exp(x), math.nan),
        (lambda n, x: x * n.tanh(1), math.inf),
        (lambda n, x: x / x + n.exp(1), 0.0),
    ):
        with pytest.raises(OracleError, match="special row"):
            evaluate(Oracle(function), {"x": n.const(x)}, 64)


def test_an_exact_zero_takes_its_sign_from_arithmetic() -> None:
    n = MpSystem(64)
    minus = {"x": n.const(-0.0)}
    assert evaluate(Oracle(lambda n, x: n.tanh(x)), minus, 64) == Truth("+0")
    assert evaluate(Oracle(lambda n, x: x * 3, arithmetic=True), minus, 64) == Truth("-0")
    from_zero = Oracle(lambda n, x: 0 + x * 3, arithmetic=True)
    assert evaluate(from_zero, minus, 64) == Truth("+0")
    assert evaluate(from_zero, {"x": n.const(-math.inf)}, 64) == Truth("-inf")
    assert evaluate(from_zero, {"x": n.const(5)}, 64).lo == 15
    reciprocal = Oracle(lambda n, x: 1 / x, arithmetic=True)
    assert evaluate(reciprocal, minus, 64) == Truth("-inf")


def test_intermediates_and_scale_are_plain_expressions() -> None:
    values = {"x": MpSystem(32).const("1/3")}
    first, second = evaluate_expression(lambda n, x: (x - 1, n.exp(abs(x))), values, 200)
    assert first.exact == Fraction(-2, 3)
    assert second.truth().hi - second.truth().lo < Fraction(1, 2**190)


# Precision


def softplus(n: Any, x: Any) -> Any:
    return n.max(x, 0) + n.log1p(n.exp(-abs(x)))


def sigmoid(n: Any, x: Any) -> Any:
    return 1 / (1 + n.exp(-x))


def power(n: Any, x: Any) -> Any:
    return n.pow(abs(x), 3.7)


@pytest.mark.parametrize("function", [softplus, sigmoid, power], ids=lambda f: f.__name__)
def test_truths_are_nested_as_precision_grows(function: Callable[..., Any]) -> None:
    rng = random.Random(3)
    for _ in range(25):
        bits = F32.round(Fraction(rng.uniform(-80, 80)))
        before: Truth | None = None
        for truth in itertools.islice(enclosures(Oracle(function), {"x": bits}, {}, F32, start=48), 5):
            assert truth.lo < truth.hi
            assert before is None or (before.lo <= truth.lo and truth.hi <= before.hi)
            before = truth


def test_enclosures_double_up_to_the_cap() -> None:
    def widths() -> Iterator[int]:
        for truth in enclosures(unary("exp"), {"x": F32.parse("1")}, {}, F32, start=50, cap=400):
            yield round(-math.log2(truth.hi - truth.lo), -1)

    assert len(list(widths())) == 4  # 50, 100, 200, 400
    assert list(widths()) == sorted(set(widths()))
    assert len(list(enclosures(unary("exp"), {"x": 0}, {}, F32))) == 1
    scaled = Oracle(lambda n, x, s: s * n.exp(x))
    assert next(enclosures(scaled, {"x": 0}, {"s": 0.1}, F32)).lo == Fraction(0.1)


@pytest.mark.parametrize("precision", [96, 3072])
def test_huge_arguments_end_quickly(precision: int) -> None:
    started = time.process_time()
    n = MpSystem(precision)
    big = n.const(1e300)
    assert n.exp(big).truth() == n.pow(big, big).truth() == Truth("real", HUGE, HUGE)
    assert n.exp(-big).truth() == n.pow(big, -big).truth() == n.exp(-n.exp(big)).truth() == Truth("real", TINY, TINY)
    assert n.exp(n.exp(n.exp(big))).truth() == n.expm1(big).truth() == n.exp2(big).truth() == Truth("real", HUGE, HUGE)
    assert (-n.pow(-big, 1e300 + 1)).truth() == Truth("real", -HUGE, -HUGE)
    assert n.pow(2, 1e300).truth() == Truth("real", HUGE, HUGE)
    assert n.pow(2, n.exp(n.exp(big))).truth() == Truth("real", HUGE, HUGE)
    assert n.log1p(n.exp(big)).truth().lo < Fraction(1e300) < n.log(1 + n.exp(big)).truth().hi
    assert n.log1p(n.exp(n.exp(big))).kind == INTERVAL
    assert time.process_time() - started < 5


@pytest.mark.parametrize("y", [0.1, 1e5, -1e12, 1e300])
def test_pow_keeps_its_relative_precision(y: float) -> None:
    lo, hi = MpSystem(96).pow(1 + 2.0**-40, y).bounds
    assert mpf_lt(mpf_sub(hi, lo), mpf_shift(lo, -85))


@pytest.mark.parametrize("scale", [30, 1e3, 1e30, 1e300])
def test_a_value_next_to_a_number_knows_its_side(scale: float) -> None:
    n = MpSystem(96)
    x = n.const(scale)
    below, above = (n.tanh(x).truth(), sigmoid(n, x).truth()), (1 + n.exp(-x)).truth()
    for truth in below:
        assert 1 - Fraction(1, 2**40) < truth.lo <= truth.hi < 1
    assert 1 < above.lo <= above.hi < 1 + Fraction(1, 2**40)
    small = n.const(1 / scale) * TINY if scale == 1e300 else n.const(1 / scale)
    for odd, side in ((n.tanh(small), -1), (n.log1p(small), -1), (n.expm1(small), 1)):
        truth = odd.truth()
        if scale >= 1e30:
            assert truth.hi * side > small.truth().hi * side or truth.lo == truth.hi == TINY
        assert truth.lo <= truth.hi


@pytest.mark.parametrize("x", [2.0**-1074, -(2.0**-1074), 2.0**-60])
def test_exp_next_to_one_knows_its_side(x: float) -> None:
    truth = MpSystem(40).exp(x).truth()
    assert truth.lo > 1 if x > 0 else truth.hi < 1
    assert abs(truth.hi - 1 - Fraction(x)) <= Fraction(x) ** 2


def test_precision_must_be_sensible() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        MpSystem(8)


# Spans of inputs


def test_a_span_encloses_every_input_and_result() -> None:
    n, drawn = MpSystem(80), random.Random(5)
    for name in ("exp", "log1p", "tanh", "erf", "atan", "exp2"):
        first = drawn.randrange(1, F32.inf_bits - (1 << 21))
        last = first + drawn.randrange(1 << 21)
        sign = 0 if name == "log1p" else drawn.choice((0, F32.sign_bit))
        truth = getattr(n, name)(n.span(sign | first, sign | last, F32)).truth()
        for bits in (first, last, *(drawn.randrange(first, last + 1) for _ in range(5))):
            point = getattr(n, name)(n.input(sign | bits, F32)).truth()
            assert truth.lo <= point.lo <= point.hi <= truth.hi


def test_a_predicate_on_a_span_holds_for_all_or_for_none() -> None:
    n = MpSystem(64)
    x = n.span(F32.parse("2"), F32.parse("4"), F32)
    assert x > 1 and x < 5 and x != 7 and not x < 1 and 1 < x
    assert abs(-x) > 1 and -x < -1 and not n.is_zero(x) and not n.is_nan(x) and not n.is_inf(x) and not n.signbit(x)
    assert n.signbit(-x) and x < math.inf
    for undecided in (lambda: x > 3, lambda: x == 2, lambda: x <= 4, lambda: n.is_integer(x), lambda: n.is_odd(x)):
        with pytest.raises(Undecidable):
            undecided()


@pytest.mark.parametrize(("first", "last"), [(0, 5), (3, F32.inf_bits), (5, F32.sign_bit | 5)])
def test_a_span_has_one_sign_and_no_zero(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="finite numbers of one sign"):
        MpSystem(64).span(first, last, F32)
