"""The oracles: every class of inputs is covered once, truths equal separately written ones, formulas differ.

What each is held to, a second truth in `fractions.Fraction` or python-flint's arb and the C library's classes, stands
with the kernel (`verify.facts.kernel.Checks`). `verify.numbers` has tests of its own.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import inspect
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from judging import to_bits
from verify.facts.formats import FORMATS, Format, floor_log2
from verify.facts.kernel import elementwise, elementwise_names
from verify.facts.oracle import Oracle, OracleError, expression, written
from verify.facts.truth import Truth
from verify.families.elementwise import Elementwise
from verify.inputs.draws import to_tensor
from verify.numbers.ieee import IeeeSystem
from verify.numbers.mp import MpSystem, evaluate

Values = dict[str, Fraction]
Interval = tuple[Fraction, Fraction]

FLOAT16, FLOAT64 = FORMATS["float16"], FORMATS["float64"]
PRECISION = 256

FACTS = {name: elementwise(name) for name in elementwise_names()}
KERNELS = tuple(FACTS)
CASES = {name: (*facts.cases, *facts.checks.scalars) for name, facts in FACTS.items()}
TRANSCENDENTAL = tuple(name for name, facts in FACTS.items() if not facts.checks.rational)


def oracle_of(kernel: str) -> Oracle:
    oracle: Oracle = import_module(f"verify.oracles.{kernel}").ORACLE
    return oracle


def truth_of(oracle: Oracle, bits: Mapping[str, int], scalars: Mapping[str, float], fmt: Format) -> Truth:
    n = MpSystem(PRECISION)
    values = {name: n.input(pattern, fmt) for name, pattern in bits.items()}
    values |= {name: n.const(value) for name, value in scalars.items()}
    return evaluate(oracle, values, PRECISION)


# --- Every class of inputs ------------------------------------------------------------------

#: A representative of every class on which a special value of + - * / may depend. Exponents stay
#: small, so that float64 evaluation of a float16 kernel neither overflows nor underflows.
SPECIMENS = ("nan", "inf", "0", "0x1p-24", "0x1.4p-1", "1", "3", "65504")
#: More for library functions, where integers, their parity, and the side of 1 count.
MORE_SPECIMENS = (*SPECIMENS, "0x1p-14", "0.25", "1.5", "2", "6", "17")


class CLibrary:
    """Functions of doubles of the C library, by name. (numpy.power takes square roots: (-inf)^0.5 becomes NaN.)"""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(ctypes.util.find_library("m"))

    def __getattr__(self, name: str) -> Callable[..., np.float64]:
        function = getattr(self.library, name)
        function.restype = ctypes.c_double
        return lambda *values: np.float64(function(*(ctypes.c_double(value) for value in values)))


C = CLibrary()


def reference(kernel: str, values: Mapping[str, Any]) -> np.float64:
    """The kernel's function in float64, as IEEE 754 and the C library evaluate it."""
    facts = FACTS[kernel]
    function = facts.checks.reference or (lambda c, *arguments: getattr(c, kernel)(*arguments))
    return np.float64(function(C, *(values[name] for name in facts.inputs)))


def combinations(kernel: str, scalars: Mapping[str, float], fmt: Format) -> Iterator[dict[str, int]]:
    names = FACTS[kernel].tensors(scalars)
    positive = [fmt.parse(text) for text in (SPECIMENS if FACTS[kernel].checks.rational else MORE_SPECIMENS)]
    signed = [pattern for p in positive for pattern in (p, p | fmt.sign_bit)]
    for patterns in itertools.product(signed, repeat=len(names)):
        yield dict(zip(names, patterns, strict=True))


def float64_of(bits: int, fmt: Format) -> np.float64:
    if fmt.is_nan(bits):
        return np.float64("nan")
    sign = -1.0 if bits & fmt.sign_bit else 1.0
    return np.float64(math.copysign(math.inf if fmt.is_inf(bits) else float(abs(fmt.fraction(bits))), sign))


def class_of(value: np.float64) -> str:
    sign = "-" if np.signbit(value) else "+"
    if np.isnan(value):
        return "nan"
    return sign + ("inf" if np.isinf(value) else "0" if value == 0 else "real")


def class_of_truth(truth: Truth) -> str:
    """nan, +-inf, +-0 or +-real, where a real beyond float64 counts as the inf or 0 it rounds to."""
    if truth.kind != "real":
        return truth.kind
    sign = "-" if truth.hi < 0 else "+"
    assert sign == "-" or truth.lo > 0, f"an enclosure without a sign: {truth}"
    rounded = FLOAT64.round(truth.lo) & ~FLOAT64.sign_bit
    return sign + ("inf" if rounded == FLOAT64.inf_bits else "0" if rounded == 0 else "real")


def is_float64(truth: Truth) -> bool:
    """Whether the truth is a number of float64; a library that errs by less than 1 ULP then gives it."""
    if truth.kind != "real" or not truth.exact or abs(truth.lo) > FLOAT64.max_finite:
        return False
    return FLOAT64.fraction(FLOAT64.round(truth.lo)) == truth.lo


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_class_of_inputs_has_the_value_that_ieee_arithmetic_or_the_c_library_gives(kernel: str) -> None:
    wrong = []
    for scalars in CASES[kernel]:
        if scalars.get("alpha", scalars.get("value")) == 0.3:
            continue  # in float64 a product with 0.3 is inexact, and -2.5 shows the same classes
        for bits in combinations(kernel, scalars, FLOAT16):
            truth = truth_of(oracle_of(kernel), bits, scalars, FLOAT16)
            arguments = {k: float64_of(p, FLOAT16) for k, p in bits.items()}
            arguments |= {k: np.float64(v) for k, v in scalars.items()}
            with np.errstate(all="ignore"):
                expected = reference(kernel, arguments)
            if class_of_truth(truth) != class_of(expected) or (
                kernel in TRANSCENDENTAL and is_float64(truth) and truth.lo != Fraction(float(expected))
            ):
                wrong.append((arguments, truth, expected))
    assert wrong == []


def test_pow_agrees_with_c_where_parity_and_range_are_those_of_float64() -> None:
    texts = ["nan", "inf", "0", "0x1p-1074", "0x1p-1022", "0x1.fp-1", "1", "0x1.0000000000001p+0", "3", "0x1p+52"]
    texts += ["0x1.0000000000001p+52", "0x1.fffffffffffffp+52", "0x1p+53", "0x1.fffffffffffffp+1023", "0.5"]
    patterns = [p for text in texts for p in (FLOAT64.parse(text), FLOAT64.parse(text) | FLOAT64.sign_bit)]
    wrong = []
    for x, y in itertools.product(patterns, repeat=2):
        truth = truth_of(oracle_of("pow"), {"x": x, "y": y}, {}, FLOAT64)
        with np.errstate(all="ignore"):
            expected = C.pow(float64_of(x, FLOAT64), float64_of(y, FLOAT64))
        if class_of_truth(truth) != class_of(expected):
            wrong.append((FLOAT64.hex(x), FLOAT64.hex(y), truth, expected))
    assert wrong == []


@pytest.mark.parametrize("kernel", TRANSCENDENTAL)
def test_every_row_is_the_first_match_of_some_input(kernel: str) -> None:
    oracle, n = oracle_of(kernel), MpSystem(PRECISION)
    reached = set()
    for bits in combinations(kernel, {}, FLOAT16):
        values = {name: n.input(pattern, FLOAT16) for name, pattern in bits.items()}
        reached.add(next((i for i, row in enumerate(oracle.rows) if row.when(n, **values)), None))
    assert reached == {*range(len(oracle.rows)), None}


def test_a_missing_row_is_an_error_of_the_oracle() -> None:
    """Without its rows the real function meets inputs on which it is no real number."""
    bare = replace(oracle_of("log"), rows=())
    with pytest.raises(OracleError):
        truth_of(bare, {"x": FLOAT64.parse("-2")}, {}, FLOAT64)


def test_spellings_decide_the_sign_of_an_exact_zero() -> None:
    zero, one = FLOAT64.parse("0"), FLOAT64.parse("1")
    negative = zero | FLOAT64.sign_bit
    kinds = {
        "-0 - 1 * 0": truth_of(oracle_of("sub"), {"a": negative, "b": zero}, {"alpha": 1.0}, FLOAT64).kind,
        "0 - 1 * 0": truth_of(oracle_of("sub"), {"a": zero, "b": zero}, {"alpha": 1.0}, FLOAT64).kind,
        "1 - 1 * 1": truth_of(oracle_of("sub"), {"a": one, "b": one}, {"alpha": 1.0}, FLOAT64).kind,
        "-0 + 1 * -0": truth_of(oracle_of("add"), {"a": negative, "b": negative}, {"alpha": 1.0}, FLOAT64).kind,
    }
    assert kinds == {"-0 - 1 * 0": "-0", "0 - 1 * 0": "+0", "1 - 1 * 1": "+0", "-0 + 1 * -0": "-0"}


# --- A second truth -------------------------------------------------------------------------

Enclose = Callable[[Values], Interval]


def second_truth(kernel: str) -> Enclose:
    """The kernel's second truth; skips the test where it needs python-flint, which is missing."""
    checks = FACTS[kernel].checks
    if checks.rational:
        return lambda values: (Fraction(checks.second(**values)),) * 2
    flint = pytest.importorskip("flint", reason="python-flint, the second truth, is not installed")

    def enclose(values: Values) -> Interval:
        with flint.ctx.workprec(PRECISION + 2400):  # 1 - tanh(400) is 2^-1153, sin(2^1023) loses as many bits
            balls = {k: flint.arb(flint.fmpq(v.numerator, v.denominator)) for k, v in values.items()}
            result = checks.second(**balls)
            assert result.is_finite(), (kernel, values)
            middle, radius = (_fraction(part.man_exp()) for part in (result.mid(), result.rad()))
        return middle - radius, middle + radius

    return enclose


def _fraction(man_exp: tuple[Any, Any]) -> Fraction:
    mantissa, exponent = (int(part) for part in man_exp)
    return Fraction(mantissa) * Fraction(2) ** exponent


@dataclass(frozen=True)
class Batch:
    """What is drawn: expands to elements by `seed` alone, so that a failure shrinks to few words."""

    stratum: str
    fmt: str
    scalars: tuple[tuple[str, float], ...]
    seed: int

    def elements(self, kernel: str, size: int) -> Iterator[dict[str, int]]:
        rng, fmt, scalars = random.Random(self.seed), FORMATS[self.fmt], dict(self.scalars)
        names = [name for name in FACTS[kernel].inputs if name not in scalars]
        for _ in range(size):
            bits = {name: STRATA[self.stratum](rng, fmt) for name in names}
            if self.stratum == "cancel":
                first = bits[names[0]]
                bits = {name: fmt.sign_bit * rng.randrange(2) ^ (first + rng.randrange(4)) for name in names}
            if "y" in FACTS[kernel].inputs:
                bits |= _aimed_exponent(rng, fmt, bits, scalars)
            if FACTS[kernel].checks.within(**{k: fmt.fraction(p) for k, p in bits.items()}, **_fractions(scalars)):
                yield bits


def _binade(rng: random.Random, fmt: Format) -> int:
    """Sign, exponent and significand uniform; never zero, infinite or NaN."""
    return max(1, rng.randrange(fmt.inf_bits)) | rng.choice((0, fmt.sign_bit))


def _unit(rng: random.Random, fmt: Format) -> int:
    """Magnitudes from 2^-4 to 2^10, where exp, tanh and sigmoid are neither 0 nor 1."""
    exponent = rng.randrange(-4, 10) + fmt.emax
    return exponent << fmt.mantissa_bits | rng.randrange(1 << fmt.mantissa_bits) | rng.choice((0, fmt.sign_bit))


def _edge(rng: random.Random, fmt: Format) -> int:
    """Powers of two and their neighbours, subnormals, the largest finite values."""
    power = rng.randrange(1, 2 * fmt.emax + 1) << fmt.mantissa_bits
    subnormal = rng.randrange(1, 1 << fmt.mantissa_bits)
    top = fmt.inf_bits - rng.randrange(1, 4)
    return rng.choice((power, power + 1, power - 1, subnormal, top)) | rng.choice((0, fmt.sign_bit))


def _near_one(rng: random.Random, fmt: Format) -> int:
    return fmt.parse("1") + rng.randrange(-8, 9)


STRATA: dict[str, Callable[[random.Random, Format], int]] = {
    "binades": _binade,
    "unit": _unit,
    "edges": _edge,
    "near one": _near_one,
    "cancel": _unit,
}


def _aimed_exponent(rng: random.Random, fmt: Format, bits: dict[str, int], scalars: dict[str, float]) -> dict[str, int]:
    """An exponent that puts x^y at a random binade, or a small integer under a negative base."""
    if "y" in scalars:
        return {}
    x = float(fmt.fraction(bits["x"])) if "x" in bits else scalars["x"]
    if x < 0:
        return {"y": fmt.round(Fraction(rng.randrange(-9, 10)))}
    if x == 1 or rng.random() < 0.1:
        return {}
    aimed = rng.uniform(-1.1, 1.1) * fmt.emax / math.log2(x)
    return {"y": min(fmt.round(Fraction(aimed)) & ~fmt.sign_bit, fmt.inf_bits - 1) | fmt.sign_bit * (aimed < 0)}


def _fractions(scalars: Mapping[str, float]) -> Values:
    return {name: Fraction(value) for name, value in scalars.items()}


def disagreements(
    kernel: str, oracle: Oracle, enclose: Enclose, fmt: Format, scalars: Mapping[str, float], bits: Mapping[str, int]
) -> list[str]:
    """Why the oracle's enclosure and the second one contradict each other, or are too wide to contradict."""
    truth = truth_of(oracle, bits, scalars, fmt)
    low, high = enclose({k: fmt.fraction(p) for k, p in bits.items()} | _fractions(scalars))
    if truth.kind not in ("real", "+0", "-0"):
        return [f"{truth.kind}, but the second truth is near {float(low)}"]
    lo, hi = (truth.lo, truth.hi) if truth.kind == "real" else (Fraction(0), Fraction(0))
    found = []
    if max(lo, low) > min(hi, high):
        found.append(f"disjoint: the oracle {float(lo)!r}, the second truth {float(low)!r}")
    if FACTS[kernel].checks.rational and lo != hi:
        found.append("a rational function of rationals is not exact")
    if lo != hi and floor_log2(hi - lo) > floor_log2(abs(lo)) - 64:
        found.append(f"fewer than 64 bits at precision {PRECISION}: [{float(lo)!r}, {float(hi)!r}]")
    where = ", ".join(f"{k}={fmt.hex(p)}" for k, p in bits.items())
    return [f"{kernel}({where}, {dict(scalars)}): {text}" for text in found]


@pytest.mark.parametrize("kernel", KERNELS)
def test_truths_agree_with_separately_written_ones(kernel: str) -> None:
    oracle, enclose = oracle_of(kernel), second_truth(kernel)

    @settings(max_examples=100)
    @given(
        st.builds(
            Batch,
            st.sampled_from(sorted(STRATA)),
            st.sampled_from(sorted(FORMATS)),
            st.sampled_from([tuple(case.items()) for case in CASES[kernel]]),
            st.integers(0, 2**32 - 1),
        )
    )
    def agree(batch: Batch) -> None:
        for bits in batch.elements(kernel, size=16):
            assert disagreements(kernel, oracle, enclose, FORMATS[batch.fmt], dict(batch.scalars), bits) == []

    agree()


def planted(kernel: str, mutant: Callable[..., Any]) -> int:
    """How many of 60 plain elements contradict the second truth when `mutant` replaces the oracle's function."""
    oracle, enclose = replace(oracle_of(kernel), function=mutant), second_truth(kernel)
    batch = Batch("unit", "float32", (), seed=1)
    return sum(
        bool(disagreements(kernel, oracle, enclose, FORMATS["float32"], {}, bits))
        for bits in batch.elements(kernel, size=60)
    )


TINY_FACTOR = 1 + Fraction(1, 2**30)

MUTANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "lerp with its ends swapped": ("lerp", lambda n, a, b, w: b + w * (a - b)),
    "lerp with a sum": ("lerp", lambda n, a, b, w: a + w * (b + a)),
    "div upside down": ("div", lambda n, a, b: b / a),
    "sigmoid without its sign": ("sigmoid", lambda n, x: 1 / (1 + n.exp(x))),
    "pow without its sign": ("pow", lambda n, x, y: n.pow(abs(x), y)),
    "pow with the base's sign always": ("pow", lambda n, x, y: n.where(x < 0, -n.pow(abs(x), y), n.pow(abs(x), y))),
}


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_planted_errors_contradict_the_second_truth(name: str) -> None:
    assert planted(*MUTANTS[name]) >= 5


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_error_of_a_billionth_contradicts_the_second_truth(kernel: str) -> None:
    function = oracle_of(kernel).function
    assert planted(kernel, lambda n, **values: function(n, **values) * n.const(TINY_FACTOR)) >= 5


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_a_planted_error_the_same_elements_agree(kernel: str) -> None:
    assert planted(kernel, oracle_of(kernel).function) == 0


# --- Saturation -----------------------------------------------------------------------------


def test_saturation_rows_hold_in_every_format() -> None:
    exp, sigmoid = second_truth("exp"), second_truth("sigmoid")
    largest = Fraction(import_module("verify.oracles.exp").LARGEST)
    following = FLOAT64.fraction(FLOAT64.round(largest) + 1)
    smallest = min(fmt.smallest_subnormal for fmt in FORMATS.values())
    assert max(fmt.emax for fmt in FORMATS.values()) == 1023
    assert exp({"x": largest})[1] < Fraction(2) ** 1024 < exp({"x": following})[0]
    for function in (exp, sigmoid):
        assert function({"x": Fraction(-800)})[1] < smallest / 2**79


@pytest.mark.parametrize("kernel", ["tanh", "sigmoid"])
@pytest.mark.parametrize("x", ["20", "400", "1e30", "1e300"])
def test_values_next_to_one_are_known_to_lie_below_it(kernel: str, x: str) -> None:
    """Without a row of their own: the open enclosures of mp tell 1 - 2^-(10^30) from 1."""
    truth = truth_of(oracle_of(kernel), {"x": FLOAT64.parse(x)}, {}, FLOAT64)
    assert truth.kind == "real"
    assert FORMATS["float32"].fraction(FORMATS["float32"].parse("1") - 1) < truth.lo <= truth.hi < 1


# --- Scales and intermediates ---------------------------------------------------------------


def finite_combinations(kernel: str, scalars: Mapping[str, float]) -> Iterator[dict[str, int]]:
    for bits in combinations(kernel, scalars, FLOAT16):
        if all(p & ~FLOAT16.sign_bit < FLOAT16.inf_bits for p in bits.values()):
            values = {k: FLOAT16.fraction(p) for k, p in bits.items()} | _fractions(scalars)
            if all(values.get(name, 1) != 0 for name in ("x", "c")) and (kernel != "div" or values["b"] != 0):
                yield bits


@pytest.mark.parametrize("kernel", [k for k in KERNELS if oracle_of(k).scale])
def test_the_scale_is_at_least_the_magnitude_of_the_truth(kernel: str) -> None:
    oracle = oracle_of(kernel)
    assert oracle.scale is not None
    scale = replace(oracle, function=oracle.scale)
    reached = 0
    for scalars in CASES[kernel]:
        for bits in itertools.islice(finite_combinations(kernel, scalars), 0, None, 3):
            size, truth = truth_of(scale, bits, scalars, FLOAT16), truth_of(oracle, bits, scalars, FLOAT16)
            if truth.kind == "real":
                assert size.kind == "real"
                assert size.lo >= max(abs(truth.lo), abs(truth.hi))
                reached += size.lo > abs(truth.lo)
            else:
                assert size.kind in ("real", "+0")
    assert reached


@pytest.mark.parametrize("kernel", [k for k in KERNELS if oracle_of(k).intermediates])
def test_intermediates_are_real_wherever_the_function_is(kernel: str) -> None:
    oracle = oracle_of(kernel)
    assert oracle.intermediates is not None
    for scalars in CASES[kernel]:
        for bits in itertools.islice(finite_combinations(kernel, scalars), 0, None, 3):
            if truth_of(oracle, bits, scalars, FLOAT16).kind in ("real", "+0", "-0"):
                n = MpSystem(PRECISION)
                values = {name: n.input(pattern, FLOAT16) for name, pattern in bits.items()}
                parts = oracle.intermediates(n, **values, **{k: n.const(v) for k, v in scalars.items()})
                assert {part.truth().kind for part in parts} <= {"real", "+0", "-0"}


def about_of(kernel: str, dtype: str, scalars: Mapping[str, float]) -> Elementwise:
    return Elementwise(oracle_of(kernel), FORMATS[dtype], FACTS[kernel].tensors(scalars), scalars, "cpu", {})


@pytest.mark.parametrize("kernel", [k for k in KERNELS if oracle_of(k).intermediates])
def test_intermediates_that_cannot_leave_the_range_do_not(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is certain of all operands is what is found of each, also beside infinities and NaNs."""
    known = [scalars for scalars in CASES[kernel] if about_of(kernel, "float16", scalars)._in_range]
    assert bool(known) == (kernel != "pow")
    for scalars in known:
        columns = zip(*(bits.values() for bits in combinations(kernel, scalars, FLOAT16)), strict=True)
        inputs = tuple(torch.tensor(c).to(torch.int16).view(torch.float16) for c in columns)
        found = about_of(kernel, "float16", scalars).facts(inputs, inputs[0])
        likely = about_of(kernel, "float16", scalars).likely(inputs, inputs[0])
        monkeypatch.setattr(Elementwise, "_in_range", False)
        each = about_of(kernel, "float16", scalars)
        due, other = each.facts(inputs, inputs[0]), each.likely(inputs, inputs[0])
        monkeypatch.undo()
        assert not (due.under | due.over | due.unsure).any()
        assert not (found.under | found.over | found.unsure).any()
        usual = ~likely.special & other.truth.mid.isfinite()  # x / 0 is infinite, of a finite 1 / 0 nothing is asked
        assert torch.equal(likely.special, other.special) and not ((other.under | other.over) & usual).any()


@pytest.mark.parametrize(("kernel", "dtype", "scalars"), [
    ("lerp", "bfloat16", {}), ("lerp", "float32", {}), ("addcmul", "float16", {"value": 2.0**-90}),
    ("addcmul", "float16", {"value": 2.0**97}), ("addcmul", "float16", {"value": 0.0}), ("div", "bfloat16", {}),
    ("addcmul", "float16", {"value": math.inf}), ("addcmul", "float16", {"value": math.nan}),
])  # fmt: skip
def test_intermediates_that_may_leave_the_range_are_asked_for(
    kernel: str, dtype: str, scalars: dict[str, float]
) -> None:
    assert not about_of(kernel, dtype, scalars)._in_range


# --- Formulas -------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_names_of_formulas_are_unique_and_their_inputs_are_the_oracles(kernel: str) -> None:
    oracle, inputs = oracle_of(kernel), FACTS[kernel].inputs
    texts = [f.text for f in oracle.formulas]
    assert len(set(texts)) == len(texts)
    for function in (oracle.function, oracle.scale, oracle.intermediates):
        if function is not None:
            assert tuple(inspect.signature(function).parameters) == ("n", *inputs)
    for f in oracle.formulas:  # a written one takes its inputs by name
        assert tuple(inspect.signature(f.evaluate).parameters) in (("n", *inputs), ("n", "inputs"))
    for f in oracle.formulas:
        assert any(f.suits(dict(case)) for case in CASES[kernel]), f"{f.text!r} applies to no case"


def test_a_written_formula_rounds_a_scalar_once_and_refuses_an_unknown_name() -> None:
    n = IeeeSystem(FORMATS["float32"], FORMATS["bfloat16"])
    x = n.input(torch.tensor([1.0], dtype=torch.bfloat16))
    above = 1 + 2.0**-8 + 2.0**-40  # of bfloat16's midpoint, which is float32's nearest
    tie = 1 + 2.0**-24  # of float32, to 1
    for text, y, gives in (
        ("storage(y)*x", above, 1 + 2.0**-7),
        ("y*x", above, 1 + 2.0**-8),
        ("storage(y*x)", above, 1.0),
        ("double(1/y)*x", tie, 1 - 2.0**-24),
        ("(1/y)*x", tie, 1.0),
    ):
        assert written(text).evaluate(n, x=x, y=y).tensor.item() == gives, text
    size = written("x < 0: -x; else: x*x", when=lambda n, x: x < 0)
    both = n.input(torch.tensor([-3.0, 3.0], dtype=torch.bfloat16))
    assert size.evaluate(n, x=both).tensor.tolist() == [3.0, 9.0]
    with pytest.raises(OracleError, match=r"names z; expected one of fma, .*, x, y"):
        written("fma(z, x, y)").evaluate(n, x=x, y=tie)


#: Pairs are told apart by a witness in one of these formats (float64 computes as it stores, like float32).
WITNESS_FORMATS = ("float32", "bfloat16", "float16")


def results(kernel: str, fmt: Format, scalars: dict[str, float]) -> dict[str, torch.Tensor]:
    """Bits of every formula that suits the case, on the same 4096 elements; NaNs made equal."""
    rng = random.Random(0)
    n = IeeeSystem(FORMATS["float32"], fmt)
    tensors = {}
    for name in FACTS[kernel].inputs:
        if name not in scalars:
            # every combination of a few points first: some formulas differ in the sign of a zero only
            points = [fmt.parse(text) for text in ("0", "-0", "1", "-1")]
            patterns = [points[k >> 2 * len(tensors) & 3] for k in range(64)]
            patterns += [STRATA[rng.choice(("unit", "edges", "near one"))](rng, fmt) for _ in range(4032)]
            tensors[name] = n.input(to_tensor(fmt, torch.tensor(patterns)))
    found = {}
    for f in oracle_of(kernel).formulas:
        if f.suits(scalars) and "single(" not in f.text:  # of float64 only: tests/test_identify.py
            result = n.result(f.evaluate(n, **tensors, **scalars))
            found[f.text] = torch.where(result.isnan(), fmt.nan_bits, to_bits(result))
    return found


@pytest.mark.parametrize("kernel", [k for k in KERNELS if len(oracle_of(k).formulas) > 1])
def test_every_two_formulas_of_a_case_differ_on_some_input_of_some_case(kernel: str) -> None:
    together, apart = set(), set()
    for scalars in CASES[kernel]:
        for fmt in WITNESS_FORMATS:
            found = results(kernel, FORMATS[fmt], dict(scalars))
            for pair in itertools.combinations(found, 2):
                together.add(pair)
                if not torch.equal(found[pair[0]], found[pair[1]]):
                    apart.add(pair)
    assert together == apart


@pytest.mark.parametrize("kernel", [k for k in KERNELS if oracle_of(k).formulas])
def test_formulas_stay_within_their_roundings_of_the_truth_where_no_intermediate_leaves_the_range(kernel: str) -> None:
    """|y - t| <= gamma_32 scale (Higham 2002, lemma 3.1): at most 31 roundings of terms up to the scale.

    It holds for |w| < 1; convex combinations have larger terms beyond.
    """
    oracle, fmt, n = oracle_of(kernel), FORMATS["float32"], IeeeSystem(FORMATS["float32"], FORMATS["float32"])
    gamma = 32 * fmt.unit_roundoff / (1 - 32 * fmt.unit_roundoff)
    scale = replace(oracle, function=oracle.scale or oracle.function)
    judged = 0
    for scalars in CASES[kernel]:
        formulas = [f for f in oracle.formulas if f.suits(dict(scalars)) and not f.wrong]
        elements = list(in_range(kernel, oracle, fmt, scalars)) if formulas else []
        names = [name for name in FACTS[kernel].inputs if name not in scalars]
        tensors = {k: n.input(to_tensor(fmt, torch.tensor([bits[k] for bits in elements]))) for k in names}
        limits = [gamma * abs(truth_of(scale, bits, scalars, fmt).hi) for bits in elements]
        truths = [truth_of(oracle, bits, scalars, fmt).lo for bits in elements]
        for f in formulas:
            outputs = to_bits(n.result(f.evaluate(n, **tensors, **scalars))).tolist()
            for bits, y, truth, limit in zip(elements, outputs, truths, limits, strict=True):
                assert y & ~fmt.sign_bit < fmt.inf_bits, (f.text, bits, scalars)
                assert abs(fmt.fraction(y) - truth) <= limit, (f.text, bits, scalars)
                judged += 1
    assert judged >= 100


def in_range(kernel: str, oracle: Oracle, fmt: Format, scalars: Mapping[str, float]) -> Iterator[dict[str, int]]:
    """Elements of which neither the truth nor an intermediate is subnormal or overflows."""
    rng, n = random.Random(0), MpSystem(PRECISION)
    names = [name for name in FACTS[kernel].inputs if name not in scalars]
    for stratum in ("unit", "binades", "edges", "rim") * 80:
        rim = _rim(rng, fmt)
        bits = {name: rim.pop() if stratum == "rim" else STRATA[stratum](rng, fmt) for name in names}
        if "w" in bits:
            bits["w"] = bits["w"] & ~fmt.inf_bits | rng.randrange(1, fmt.emax) << fmt.mantissa_bits
        if FACTS[kernel].checks.within(**{k: fmt.fraction(p) for k, p in bits.items()}, **_fractions(scalars)):
            values = {k: n.input(p, fmt) for k, p in bits.items()} | {k: n.const(v) for k, v in scalars.items()}
            parts = [part.truth() for part in oracle.intermediates(n, **values)] if oracle.intermediates else []
            if all(_is_normal(part, fmt) for part in (truth_of(oracle, bits, scalars, fmt), *parts)):
                yield bits


def _rim(rng: random.Random, fmt: Format) -> list[int]:
    """Three numbers: the last is near an end of the range, and so is the product or quotient of the others."""
    end, inner = rng.choice((fmt.emin, fmt.emax)), rng.randrange(fmt.emin, fmt.emax)
    other = rng.choice((end - inner, inner - end))
    exponents = [min(max(e + rng.randrange(-3, 4), fmt.emin), fmt.emax) + fmt.emax for e in (other, inner, end)]
    return [
        e << fmt.mantissa_bits | rng.randrange(1 << fmt.mantissa_bits) | rng.choice((0, fmt.sign_bit))
        for e in exponents
    ]


def _is_normal(truth: Truth, fmt: Format) -> bool:
    return truth.kind == "real" and all(fmt.smallest_normal <= abs(t) <= fmt.max_finite for t in (truth.lo, truth.hi))


# --- Imports --------------------------------------------------------------------------------


def test_what_a_text_says_twice_is_one_value() -> None:
    """Of 1 - b^2 as fma(-b, b, 1) times two the squares are one object, as roundoff's rule for (1 - w) x wants them."""

    class System:
        storage = None
        made: ClassVar[list[Any]] = []

        @staticmethod
        def fma(a: Any, b: Any, c: Any) -> Any:
            System.made.append((b, c))
            return a * b + c

        cast = sqrt = scalar = staticmethod(lambda *given: given[0])

    run = expression("fma(-w, x*x, x*x) + storage(x*x)/(x*x + fma(w, y, x*x))")
    w, x, y = Fraction(1, 3), Fraction(5, 7), Fraction(2, 11)
    found = run(System, {"w": w, "x": x, "y": y}.get)
    assert found == -w * x * x + x * x + x * x / (x * x + (w * y + x * x))
    (first, second), (_, third) = System.made
    assert first is second is third


def test_a_sum_beside_a_midpoint_is_decided_without_multiprecision() -> None:
    """77/256 b / 77 is exact though b / 77 is not: thousands of elements of a cell took milliseconds each."""
    values = {"value": 77 / 256}
    a, b, c = (torch.tensor([t], dtype=torch.bfloat16) for t in (1.0, 2.0**-7 * 3, 77.0))
    found = about_of("addcdiv", "bfloat16", values).facts((a, b, c), a, double=True).truth
    assert found.tail is not None and float(found.radius) == 0
    assert Fraction(float(found.mid)) + Fraction(float(found.tail)) == 1 + Fraction(3, 128 * 256)
