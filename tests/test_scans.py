"""Sums, scans and softmax: truths against separately written ones, bounds against random orders, laws, planted defects.

The second truths are Fraction for sums and products, Arb (python-flint) for exponentials, and Python's own floats for
infinities, NaNs and signs of zeros.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import platform
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mutants import scans as planted
from verify import backends
from verify.cli import commands
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.facts.kernel import Composite, Setting, UsageError
from verify.facts.truth import Truth
from verify.families import rows_limits, rows_recipes, rows_settings
from verify.families.composite import Problem
from verify.families.rows import Place
from verify.kernels._orders import cascade_depth, inner_threads, scans
from verify.kernels._row_formulas import formulas, sleef_expf
from verify.lower.lowering import Lowering, Target
from verify.lower.lowerings import lowerings
from verify.numbers import admit
from verify.numbers.orders import Order

pytestmark = pytest.mark.part(2)

NAMES = ("sum", "softmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
SCANS = NAMES[2:7]
DTYPES = ("float16", "bfloat16", "float32", "float64")
KINDS = {"sums": "cumsum", "products": "cumprod", "exponentials": "softmax"}
CPU = backends.load("cpu")
Tensor = torch.Tensor
#: 'nan', '+inf', '-inf', '+0', '-0', 'either-zero', or an enclosure.
Expected = str | tuple[Fraction, Fraction]


def facts(name: str) -> Composite:
    found = kernel.load(name)
    assert isinstance(found, Composite)
    return found


def small(shape: tuple[int, ...], recipe: str = "mixed", dim: int = -1, layout: str = "contiguous") -> Setting:
    return rows_settings.setting("small", shape, dim, layout, recipe)


def problem(name: str, dtype: str, setting: Setting, seed: int = 0) -> Problem:
    found: Problem = facts(name).problem(dtype, setting, {}, seed)
    return found


def target(name: str, dtype: str, backend: Any = CPU) -> Target:
    return Target(facts(name), {}, "small", dtype, backend)


def cell(name: str, dtype: str, setting: Setting, lowering: Lowering, backend: Any = CPU) -> dict[str, Any]:
    return planted.filled(facts(name), setting, dtype, lowering, backend)


def user(name: str) -> Lowering:
    """What a lowering of one's own is held to; it is not run."""
    return Lowering(f"own.py:{name}", lambda target: lambda problem: {}, lambda target: None)


def named(name: str, lowering: str) -> Lowering:
    return next(one for one in lowerings(facts(name)) if one.name == lowering)


# ---------------------------------------------------------------- the second truth


def _arb(x: Fraction) -> Any:
    import flint

    return flint.arb(flint.fmpq(x.numerator, x.denominator))


def _ends(x: Any) -> tuple[Fraction, Fraction]:
    parts = []
    for end in (x.lower(), x.upper()):
        mantissa, exponent = end.man_exp()
        parts.append(Fraction(int(mantissa)) * Fraction(2) ** int(exponent))
    return parts[0], parts[1]


def _zero(value: float) -> str:
    return "-0" if math.copysign(1, value) < 0 else "+0"


def _special(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return ("+inf" if value > 0 else "-inf") if math.isinf(value) else _zero(value)


def a_sum(row: Sequence[float]) -> Expected:
    if not all(map(math.isfinite, row)):
        return _special(functools.reduce(lambda a, b: a + b, (v if not math.isfinite(v) else 0.0 for v in row), 0.0))
    exact = sum(map(Fraction, row), Fraction(0))
    if exact:
        return exact, exact
    return "either-zero" if row and all(v == 0 and math.copysign(1, v) < 0 for v in row) else "+0"


def a_product(row: Sequence[float]) -> Expected:
    if any(not math.isfinite(v) or v == 0 for v in row):
        ones = (v if not math.isfinite(v) or v == 0 else math.copysign(1.0, v) for v in row)
        return _special(functools.reduce(lambda a, b: a * b, ones, 1.0))
    exact = math.prod(map(Fraction, row))
    return exact, exact


def a_logarithm(row: Sequence[float]) -> Expected:
    if any(map(math.isnan, row)):
        return "nan"
    if math.inf in row:
        return "+inf"
    terms = [Fraction(v) for v in row if v > -math.inf]
    if not terms:
        return "-inf"
    if len(terms) == 1:
        return "+0" if not terms[0] else (terms[0], terms[0])
    top = max(terms)
    import flint

    with flint.ctx.workprec(9000):
        return _ends(_arb(top) + sum((_arb(v - top).exp() for v in terms), flint.arb(0)).log())


def a_softmax(row: Sequence[float], place: int) -> Expected:
    if any(map(math.isnan, row)) or math.inf in row or not any(v > -math.inf for v in row):
        return "nan"
    if row[place] == -math.inf:
        return "+0"
    import flint

    with flint.ctx.workprec(300):
        total = sum((_arb(Fraction(v) - Fraction(row[place])).exp() for v in row if v > -math.inf), flint.arb(0))
        return _ends(1 / total)


def an_extreme(row: Sequence[float], sign: int) -> Expected:
    if any(map(math.isnan, row)):
        return "nan"
    top = max(row) if sign > 0 else min(row)
    if math.isinf(top):
        return _special(top)
    if top == 0:
        signs = {math.copysign(1, v) for v in row if v == 0}
        return "either-zero" if len(signs) == 2 else "+0" if signs == {1.0} else "-0"
    return Fraction(top), Fraction(top)


def expected(name: str, row: Sequence[float]) -> list[Expected]:
    """What a row gives, by position."""
    if name == "sum":
        return [a_sum(row)]
    if name == "softmax":
        return [a_softmax(row, k) for k in range(len(row))]
    of_prefix: dict[str, Callable[[Sequence[float]], Expected]] = {
        "cumsum": a_sum, "cumprod": a_product, "logcumsumexp": a_logarithm,
        "cummax": lambda r: an_extreme(r, 1), "cummin": lambda r: an_extreme(r, -1),
    }  # fmt: skip
    return [of_prefix[name](row[: i + 1]) for i in range(len(row))]


def in_ball(mid: float, tail: float, rad: float, due: Expected) -> bool:
    """Whether an enclosure holds the expected value (a NaN radius says nothing)."""
    if math.isnan(rad):
        return True
    if isinstance(due, str):
        return due != "either-zero" and rad == 0 and _special(mid) == due
    if math.isinf(mid):
        return rad == 0 and (due[0] >= Fraction(2) ** 1024 if mid > 0 else due[1] <= -(Fraction(2) ** 1024))
    centre = Fraction(mid) + Fraction(tail)
    return due[1] >= centre - Fraction(rad) and due[0] <= centre + Fraction(rad)


def in_truth(truth: Truth, due: Expected) -> bool:
    if isinstance(due, str):
        return truth.kind == due
    return truth.kind == "real" and truth.lo <= due[1] and due[0] <= truth.hi


def wrong(name: str, given: Problem, exact: int) -> list[str]:
    """Elements whose balls or multiprecision miss the second truth; multiprecision for `exact` of them."""
    source = facts(name).truth(given, "cpu", {a.name: a.bound for a in admit.library("cpu")})
    rows = source.rows.double().tolist()
    due = [value for row in rows for value in expected(name, row)]
    n = 1 if facts(name).family.reduces else len(rows[0])
    numbers = torch.arange(len(due)).reshape(-1, n)
    places = source._flat(numbers)[0].tolist()  # the number of each element of the output
    found = []
    whole, scale = source.enclose("")
    everything = torch.arange(len(due))
    double, _ = source.enclose("", everything, double=True)
    for label, e in (("float64", whole), ("double-double", double)):
        tails = torch.zeros_like(e.mid) if e.tail is None else e.tail
        for k, (mid, tail, rad) in enumerate(zip(*(t[0].tolist() for t in (e.mid, tails, e.rad)), strict=True)):
            if not in_ball(mid, tail, rad, due[places[k]]):
                found.append(f"{label} {k}: {mid} + {tail} +- {rad}, {due[places[k]]}")
    for k in range(0, len(due), max(1, len(due) // exact)):
        *_, last = itertools.islice(source.exact("", k), 2)
        if not in_truth(last, due[places[k]]):
            found.append(f"mp {k}: {last}, {due[places[k]]}")
        if scale is not None and (size := source.scale("", k)) is not None and not math.isnan(float(whole.rad[0, k])):
            part = float(scale[0, k])
            if not (Fraction(part) <= size.hi or part <= 2.0**-999 or part == 1.0):
                found.append(f"scale {k}: {part} above {float(size.hi)}")
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_truths_equal_separately_written_ones(name: str, dtype: str) -> None:
    """Every recipe, rows of odd length; balls of all elements, multiprecision of some."""
    pytest.importorskip("flint", reason="python-flint is not installed")
    assert wrong(name, problem(name, dtype, small((13, 9))), 60) == []


@pytest.mark.parametrize("name", NAMES)
def test_truths_along_other_dimensions(name: str) -> None:
    pytest.importorskip("flint", reason="python-flint is not installed")
    for dim, layout in ((0, "contiguous"), (1, "transposed"), (-2, "strided"), (1, "expanded")):
        assert wrong(name, problem(name, "float32", small((5, 7, 3), dim=dim, layout=layout)), 10) == []


@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str) -> None:
    """All rows of three out of NaN, infinities, zeros and ordinary numbers: table, multiprecision and torch agree."""
    pytest.importorskip("flint", reason="python-flint is not installed")
    values = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -2.0)
    x = torch.tensor(list(itertools.product(values, repeat=3)))
    given_ = Problem({"x": x}, {"shape": list(x.shape), "dim": -1}, {}, "float32", {"sizes": {}})
    assert wrong(name, given_, len(x) * 3) == []
    y = named(name, "eager").build(target(name, "float32"))(given_)[""]
    for row, got in zip(x.tolist(), y.reshape(len(x), -1).tolist(), strict=True):
        for due, value in zip(expected(name, row), got, strict=True):
            if due == "either-zero":
                assert value == 0
            elif isinstance(due, str):
                assert _special(value) == due, row
            else:
                assert math.isfinite(value) and abs(Fraction(value) - due[0]) <= Fraction(1, 2**20), row


def test_long_rows_in_double_double_go_to_multiprecision() -> None:
    """What is too long for double-double is left open, never wrong."""
    given_ = problem("logcumsumexp", "float32", small((2, 1 << 20), "random"))
    source = facts("logcumsumexp").truth(given_, "cpu", {})
    found, _ = source.enclose("", torch.tensor([5, (1 << 20) + 7]), double=True)
    assert bool(torch.isnan(found.rad).all())


# ---------------------------------------------------------------- problems


@pytest.mark.parametrize("recipe", ["random", "exact"])
def test_problems_have_the_same_bits_everywhere(recipe: str) -> None:
    """SHA-256 of the recipes' patterns in all dtypes: integers and + - * / of float64, no library."""
    recipe = ",".join(FIRST if recipe == "random" else sorted({*rows_recipes.RECIPES} - {*FIRST}))
    digests = {}
    for kind, name in KINDS.items():
        hasher = hashlib.sha256()
        for dtype in DTYPES:
            x = problem(name, dtype, small((39, 51), recipe), seed=3).tensors["x"]
            hasher.update(x.view(torch.uint8).numpy().tobytes())
        digests[kind] = hasher.hexdigest()[:16]
    assert digests == (PUBLISHED if recipe.startswith(FIRST[0]) else PUBLISHED_LATER)


#: A change of these is a change of the problems: of every recorded report and baseline.
FIRST = tuple(rows_recipes.RECIPES)[:12]
PUBLISHED = {"sums": "2f9896e831ee4955", "products": "5cc7e377e8576eb7", "exponentials": "20a7411674c13434"}
PUBLISHED_LATER = {"sums": "e5dea7407d25fb74", "products": "ef6cc9ccfdf555d2", "exponentials": "5d9ba6bbd2e2c4a0"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "softmax"])
def test_recipes_are_what_they_say(name: str, dtype: str) -> None:
    def rows(recipe: str) -> Tensor:
        return problem(name, dtype, small((8, 64), recipe)).tensors["x"].double()

    assert bool((rows("equal") == rows("equal")[:, :1]).all())
    assert bool((rows("ascending").diff() >= 0).all()) and bool((rows("descending").diff() <= 0).all())
    assert len(rows("ascending")[0].unique()) > 5
    assert bool((rows("powers").log2() % 1 == 0).all())
    assert bool(rows("nans").isnan().any(1).all())
    infinite = rows("infinities")
    assert bool((infinite == torch.inf).any()) and bool((infinite == -torch.inf).all(1).any())
    assert bool((infinite[0, :8] == -torch.inf).all())
    signs = rows("alternating").sign()
    assert bool((signs[:, 1:] == -signs[:, :-1]).all())
    tiny = rows("tiny")
    assert bool((tiny.abs() < 4 * float(FORMATS[dtype].smallest_normal)).all()) and bool((tiny == 0).any())
    if name == "softmax":
        assert float(rows("wide").max() - rows("wide").min()) > 2000
    if name == "cumsum":
        x = rows("cancelling")
        assert bool((x[:, 0:63:3] == -x[:, 1:64:3]).all())


def test_mixed_rows_take_the_recipes_in_turn() -> None:
    x = problem("cumsum", "float32", small((26, 17))).tensors["x"]
    for k, recipe in enumerate(rows_recipes.mixed(False)):
        alone = problem("cumsum", "float32", small((3, 17), recipe)).tensors["x"]
        assert torch.equal(x[k].view(torch.int32), alone[0].view(torch.int32)), recipe


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"shape": "3xq"}, "'q' is not a size; expected sizes such as 3x1000"),
        ({"shape": "3x-4"}, "'-4' is not a size"),
        ({"shape": "3x2.5"}, "'2.5' is not a size"),
        ({"shape": ""}, "'' is not a size"),
        ({"shape": "100000x100000"}, "10,000,000,000 elements; expected at most 16,777,216"),
        ({"shape": "0"}, "shape=0: the output has no element to compare; expected sizes of at least 1"),
        ({"shape": "0x3", "dim": "1"}, "shape=0x3: the output has no element"),
        ({"shape": "3x4", "dim": "2"}, "dim=2 is out of range for shape=3x4: expected -2 to 1"),
        ({"shape": "3x4", "dim": "-3"}, "dim=-3 is out of range"),
        ({"dim": "last"}, "dim=last: expected a whole number"),
        ({"layout": "columns"}, "unknown layout 'columns'"),
        ({"recipe": "rnadom"}, "unknown recipe 'rnadom'; did you mean random"),
    ],
)
def test_bad_settings_are_named(given_: dict[str, str], message: str) -> None:
    custom = facts("cumsum").custom
    assert custom is not None
    with pytest.raises(UsageError) as error:
        custom(given_)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_bad_settings_end_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["kernel", "cumsum", "--set", "dim=7", "--backend", "cpu"]) == 2
    assert "dim=7 is out of range for shape=52x1009: expected -2 to 1" in capsys.readouterr().err
    assert commands.main(["kernel", "softmax", "--set", "length=7", "--backend", "cpu"]) == 2
    assert "shape" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_one_element_and_none(name: str) -> None:
    """A dimension of one element is its value; of none, a sum is 0 and any other result is empty."""
    one = cell(name, "float32", small((26, 1)), named(name, "eager"))
    assert (one["status"], one["error"]["undecided"]) == ("passed", 0)
    given_ = problem(name, "float32", small((3, 0)))
    y = named(name, "eager").build(target(name, "float32"))(given_)[""]
    source = facts(name).truth(given_, "cpu", {})
    found, _ = source.enclose("")
    assert found.mid.shape == (1, y.numel())
    limit = facts(name).limit(given_, target(name, "float32"), named(name, "eager"), "")
    assert limit.bound.shape == y.shape
    if name == "sum":
        assert y.tolist() == found.mid[0].tolist() == [0.0, 0.0, 0.0]
        assert next(source.exact("", 1)).kind == "+0"


def test_another_shape_is_an_error() -> None:
    lowering = Lowering("mine.py:f", lambda t: lambda p: {"": p.tensors["x"].sum(-1, keepdim=True)}, lambda t: None)
    found = cell("sum", "float32", small((6, 5)), lowering)
    assert found["status"] == "error" and "expected (6,)" in found["reason"]


# ---------------------------------------------------------------- lowerings within their bounds


@pytest.mark.part(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_lowerings_keep_their_bounds(name: str, dtype: str) -> None:
    """Eager and the interpreted Triton kernels, on all recipes, along rows and columns; nothing is left undecided."""
    for setting in (small((26, 35)), small((40, 26), dim=0)):
        for lowering in ("eager", "triton-interpreter"):
            one = named(name, lowering)
            if lowering == "triton-interpreter":
                pytest.importorskip("triton", reason="triton is not installed")
                if dtype == "bfloat16" or one.reason(target(name, dtype)):
                    continue  # it truncates to bfloat16, see kernels/ledger
            found = cell(name, dtype, setting, one)
            assert (found["status"], found["reason"]) == ("passed", ""), (lowering, setting)
            assert found["error"]["undecided"] == 0
            assert found["error"]["max_share"] <= 1


def test_inductor_keeps_its_bound_and_is_identified() -> None:
    one = named("softmax", "inductor")
    if reason := one.reason(target("softmax", "float32")):
        pytest.skip(reason)
    found = cell("softmax", "float32", small((26, 35)), one)
    if found["status"] == "not-run":
        pytest.skip(found["reason"])
    assert (found["status"], found["reason"]) == ("passed", "")
    if vectorised():
        assert any("then by halves; e / s" in text for text in found["formula"]["survivors"])


def test_scans_are_not_compiled_for_the_cpu() -> None:
    reason = named("cumsum", "inductor").reason(target("cumsum", "float32"))
    assert reason is None or "calls aten" in reason or "TORCH" in reason or "compiler" in reason


def vectorised() -> bool:
    return platform.machine() == "x86_64" and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


IDENTIFIED = {
    ("cumsum", "float32"): r"left to right in float64, each rounded to float32 once",
    ("cumsum", "bfloat16"): r"left to right in float32, each rounded to bfloat16 once",
    ("cumsum", "float64"): r"left to right in float64",
    ("cumprod", "float32"): r"left to right in float64, each rounded to float32 once",
    ("cumprod", "float16"): r"left to right in float32, each rounded to float16 once",
    ("logcumsumexp", "float32"): r"max \+ log1p.*left to right in float64, .* each rounded to float32 once",
    ("logcumsumexp", "float64"): r"max \+ log1p.*left to right in float64, the C library's",
    ("sum", "float32"): r"cascade of 4 x 8 lanes in float32 \(SumKernel.cpp, inner\)",
    ("softmax", "float32"): r"e = SLEEF's expf\(x - max\); s (16|8) lanes, then by halves; e \(1 / s\)",
}


@pytest.mark.parametrize(("name", "dtype"), IDENTIFIED)
@pytest.mark.skipif(not vectorised(), reason="the formulas of ATen's vector code on x86-64 are meant")
def test_eager_is_identified(name: str, dtype: str) -> None:
    found = cell(name, dtype, small((26, 101)), named(name, "eager"))
    assert any(re.fullmatch(IDENTIFIED[name, dtype], text) for text in found["formula"]["survivors"]), found["formula"]


@pytest.mark.skipif(not vectorised(), reason="the formulas of ATen's vector code on x86-64 are meant")
def test_eager_softmax_along_columns_keeps_half_exponentials() -> None:
    """It rounds twice where the last dimension rounds once, nearly a whole ULP instead of half of one: in the columns
    that are too few for a vector, not in others."""
    for dtype in ("float16", "bfloat16"):
        few = cell("softmax", dtype, small((101, 10), dim=0), named("softmax", "eager"))
        whole = cell("softmax", dtype, small((101, 64), dim=0), named("softmax", "eager"))
        rows = cell("softmax", dtype, small((26, 101)), named("softmax", "eager"))
        assert any("h / s" in text for text in few["formula"]["survivors"])
        assert any("; e / s" in text for text in whole["formula"]["survivors"])
        assert few["error"]["max_ulp"] > 0.8 and rows["error"]["max_ulp"] < 0.52 > whole["error"]["max_ulp"]


def test_sleefs_exponential_has_its_documented_error() -> None:
    x = -torch.arange(0, 103, 2.0**-6)
    y, t = sleef_expf(x).double(), torch.exp(x.double())
    normal = t > 2.0**-126
    assert float(((y - t).abs() / t)[normal].max()) < 2.0 * 2.0**-24 * 1.001
    assert float(((y - t).abs())[~normal].max()) <= 2.0**-149
    assert sleef_expf(torch.tensor([0.0, -torch.inf, torch.nan])).tolist()[:2] == [1.0, 0.0]


@pytest.mark.parametrize("name", NAMES)
def test_bounds_have_the_outputs_shape(name: str) -> None:
    for setting in facts(name).settings:
        if math.prod(setting.parameters["shape"]) > 1 << 16:
            continue
        given_ = problem(name, "float16", setting)
        y = named(name, "eager").build(target(name, "float16"))(given_)[""]
        limit = facts(name).limit(given_, target(name, "float16"), named(name, "eager"), "")
        assert limit.bound.shape == y.shape and limit.bound.dtype == torch.float64
        assert not bool(limit.bound.isnan().any()) and bool((limit.bound >= 0).all())
        assert limit.source
        if y.numel() > 6000:
            continue
        for text, make in formulas(name, given_, CPU).items():
            predicted = make()
            assert predicted.shape == y.shape and predicted.dtype == y.dtype, text


def test_torchs_functions_are_those_of_the_backend() -> None:
    """Also where the problem is on the host. (Nothing can be copied from the device `meta`.)"""
    elsewhere = SimpleNamespace(check_device="meta")
    found = formulas("logcumsumexp", problem("logcumsumexp", "float32", small((4, 33))), elsewhere)
    made = [make for text, make in found.items() if "by torch's functions" in text]
    assert len(made) == 2
    for make in made:
        with pytest.raises(NotImplementedError, match="meta"):
            make()


# ---------------------------------------------------------------- bounds against random orders


def in_random_order(values: list[float], combine: Callable[[float, float], float], choose: Any) -> tuple[float, int]:
    """The result of a random tree over the values, and the combinations on its longest path."""
    if len(values) == 1:
        return values[0], 0
    cut = choose(len(values))
    (a, i), (b, j) = (in_random_order(part, combine, choose) for part in (values[:cut], values[cut:]))
    return combine(a, b), max(i, j) + 1


def bound_in(name: str, given_: Problem, order: Order) -> Tensor:
    """The bound of the kernel's formula in an order, with functions within 2 ULP."""
    family = facts(name).family
    (known,) = rows_limits.of_ones_own(family, Place("eager", "cpu", FORMATS[given_.dtype], 1, 1, True), order)
    return rows_limits.bound_of(given_, family, known)


def _log_add_exp(a: Any, b: Any) -> Any:
    import numpy as np

    high, low = max(a, b), min(a, b)
    return high if low == -np.inf else high + np.log1p(np.exp(low - high))


@given(
    name=st.sampled_from(["cumsum", "cumprod", "logcumsumexp"]),
    recipe=st.sampled_from(["random", "alternating", "ascending", "wide", "dominated", "cancelling", "equal", "tiny"]),
    dtype=st.sampled_from(["float16", "float32"]),
    n=st.integers(2, 40),
    seed=st.integers(0, 2**32),
    balanced=st.booleans(),
)
@settings(max_examples=60)
def test_any_order_keeps_the_bound(name: str, recipe: str, dtype: str, n: int, seed: int, balanced: bool) -> None:
    """numpy's scalars, every combination rounded to the dtype; the tree is random and its depth is what is declared."""
    import numpy as np

    given_ = problem(name, dtype, small((1, n), recipe), seed)
    x = given_.tensors["x"]
    fmt = FORMATS[dtype]
    operations: dict[str, Callable[[Any, Any], Any]] = {
        "cumsum": lambda a, b: a + b, "cumprod": lambda a, b: a * b, "logcumsumexp": _log_add_exp,
    }  # fmt: skip
    word = itertools.count(seed)

    def choose(size: int) -> int:
        return (
            size // 2
            if balanced
            else 1 + int(hashlib.sha256(str(next(word)).encode()).hexdigest()[:8], 16) % (size - 1)
        )

    with np.errstate(all="ignore"):
        y, depth = in_random_order(list(x[0].numpy()), operations[name], choose)
    # numpy's float16 operations are float32's, rounded; its exp and log1p are within 2 ULP
    order = Order("any", fmt, paths=lambda counts: (counts - 1).clamp(max=depth))
    bound = float(bound_in(name, given_, order)[0, -1])
    source = facts(name).truth(given_, "cpu", {})
    *_, t = itertools.islice(source.exact("", n - 1), 2)
    if math.isinf(bound):
        return
    exact = t.lo if t.kind == "real" else Fraction(0)
    top = Fraction(2) ** (fmt.emax + 1)
    got = max(-top, min(top, Fraction(float(y)))) if math.isfinite(y) else top * (1 if y > 0 else -1)
    assert abs(got - max(-top, min(top, exact))) <= Fraction(bound)


@given(
    exponents=st.lists(st.integers(-40, 40), min_size=1, max_size=60),
    dtype=st.sampled_from(["float16", "float32"]),
    seed=st.integers(0, 2**32),
    ordered=st.booleans(),
)
@settings(max_examples=200)
def test_products_that_underflow_on_the_way_keep_their_bound(
    exponents: list[int], dtype: str, seed: int, ordered: bool
) -> None:
    """Factors far from 1 around the subnormal numbers, in a random tree or from left to right."""
    import numpy as np

    fmt = FORMATS[dtype]
    made = np.float16 if dtype == "float16" else np.float32
    lowest = fmt.emin - fmt.mantissa_bits
    parts = [lowest + 3, *exponents] if seed % 2 else exponents
    mantissas = [1 + _hashed(seed + k) % 1024 / 1024 for k in range(len(parts))]
    pairs = zip(parts, mantissas, strict=True)
    values = [made(math.ldexp(m, max(lowest, min(e, fmt.emax - 1)))) for e, m in pairs]
    word = itertools.count(seed)
    with np.errstate(all="ignore"):
        y, _ = in_random_order(
            values, lambda a, b: a * b, lambda size: size - 1 if ordered else 1 + _hashed(next(word)) % (size - 1)
        )
    given_ = Problem({"x": torch.from_numpy(np.array(values))[None]}, {"shape": [1, len(values)], "dim": -1}, {}, dtype)
    bound = float(bound_in("cumprod", given_, Order("sequential" if ordered else "any", fmt))[0, -1])
    if math.isfinite(bound):
        exact = math.prod((Fraction(float(value)) for value in values), start=Fraction(1))
        top = Fraction(2) ** (fmt.emax + 1)
        got = top if math.isinf(y) else Fraction(float(y))
        assert abs(got - min(top, exact)) <= Fraction(bound)


def _hashed(word: int) -> int:
    return int(hashlib.sha256(str(word).encode()).hexdigest()[:8], 16)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_products_far_below_the_subnormal_numbers_are_bounded(dtype: str) -> None:
    """Nothing but a number near zero is right, whatever the order."""
    given_ = problem("cumprod", dtype, small((3, 200), "tiny"))
    limit = facts("cumprod").limit(given_, target("cumprod", dtype), user("tree"), "")
    assert bool(limit.bound.isfinite().all()) and float(limit.bound[:, 3:].max()) < 2.0**-100
    found = cell("cumprod", dtype, small((3, 200), "tiny"), honest_product())
    assert {one["status"] for one in found["regions"].values()} == {"passed"}


def honest_product() -> Lowering:
    def run(given_: Problem) -> dict[str, Tensor]:
        return {"": planted.cumprod(given_.tensors["x"], given_.parameters["dim"])}

    return Lowering("own.py:product", lambda target: run, lambda target: None)


def _longest(size: int) -> int:
    """Additions on the longest path of multi_row_sum, counted step by step."""
    power = max(4, max(size - 1, 0).bit_length() // 4)
    step = 1 << power
    levels = [0, 0, 0, 0]
    i = 0
    while i + step <= size:
        levels[0] += step
        i += step
        for level in range(1, 4):
            levels[level] = max(levels[level], levels[level - 1]) + 1
            levels[level - 1] = 0
            if i & (step - 1) << level * power:
                break
    depth = levels[0] + size - i
    for level in range(1, 4):
        depth = max(depth, levels[level]) + 1
    return depth


@given(n=st.one_of(st.integers(1, 5000), st.integers(1, 1 << 22)), lanes=st.sampled_from([1, 4, 8, 16, 32]))
@settings(max_examples=200)
def test_cascade_depth_is_not_exceeded(n: int, lanes: int) -> None:
    vectors = n // lanes
    row = max(_longest(vectors // 4) + vectors % 4, 0) + 3
    depth = max(row, n % lanes) + lanes
    assert min(depth, n - 1) <= cascade_depth(n)
    assert min(_longest(n), n - 1) <= cascade_depth(n)


def test_threads_of_the_cuda_scan() -> None:
    """By hand from ScanUtils.cuh: between 16 and 512, half of 9 bits plus half the difference of the sizes' bits."""
    assert [inner_threads(1, 1 << 20), inner_threads(1 << 20, 16), inner_threads(52, 1009), inner_threads(64, 64)] == [
        512,
        16,
        64,
        16,
    ]


def test_a_row_alone_is_scanned_by_cub() -> None:
    """A stub of cumsum, which is eager's, was refused on an H200 for one row of 20,000 equal numbers in float16."""
    cuda = SimpleNamespace(name="cuda")
    for shape, dim, by in (((9,), 0, "cub"), ((1, 9), 1, "cub"), ((9, 1), 0, "cub"), ((2, 9), 1, "Sklansky")):
        given_ = Problem({"x": torch.ones(shape)}, {"shape": list(shape), "dim": dim}, {}, "float32", {})
        order = scans(rows_limits.place_of(given_, target("cumsum", "float32", cuda), "eager"))
        assert order is not None
        assert order.text.startswith(by)


# ---------------------------------------------------------------- laws

DRAWN = {
    "recipe": st.sampled_from(sorted(rows_recipes.RECIPES)),
    "dtype": st.sampled_from(DTYPES),
    "n": st.integers(1, 60),
    "seed": st.integers(0, 2**32),
}


def run(name: str, x: Tensor) -> Tensor:
    given_ = Problem({"x": x}, {"shape": list(x.shape), "dim": -1}, {}, str(x.dtype)[6:], {"sizes": {}})
    result: Tensor = named(name, "eager").build(target(name, given_.dtype))(given_)[""]
    return result


def bound_of(name: str, x: Tensor) -> Tensor:
    given_ = Problem({"x": x}, {"shape": list(x.shape), "dim": -1}, {}, str(x.dtype)[6:], {"sizes": {}})
    limit = facts(name).limit(given_, target(name, given_.dtype), named(name, "eager"), "")
    result: Tensor = limit.bound
    return result


def same(a: Tensor, b: Tensor) -> bool:
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    equal = a.contiguous().view(words) == b.contiguous().view(words)
    return bool((equal | (a.isnan() & b.isnan())).all())


@pytest.mark.parametrize("name", SCANS)
@given(**DRAWN, cut=st.floats(0, 1))
@settings(max_examples=25)
def test_the_scan_of_a_prefix_is_the_prefix_of_the_scan(
    name: str, recipe: str, dtype: str, n: int, seed: int, cut: float
) -> None:
    """Bit for bit on the CPU, where eager goes from left to right."""
    x = problem(name, dtype, small((3, n), recipe), seed).tensors["x"]
    stop = 1 + int(cut * (n - 1))
    assert same(run(name, x[:, :stop]), run(name, x)[:, :stop])


@given(n=st.integers(1, 50), seed=st.integers(0, 2**32), shift=st.integers(-2000, 2000), dtype=st.sampled_from(DTYPES))
@settings(max_examples=40)
def test_logcumsumexp_follows_a_shift(n: int, seed: int, shift: int, dtype: str) -> None:
    """By an amount that is exact for every term: results move by it within both bounds."""
    fmt = FORMATS[dtype]
    unit = 2.0**-3 if fmt.bits == 16 else 2.0**-8
    top = 2.0 ** min(fmt.precision - 1, 20) * unit / 4
    x = problem("logcumsumexp", dtype, small((2, n), "random"), seed).tensors["x"].double()
    x = (x.clamp(-top, top) / unit).round() * unit
    c = math.remainder(shift, top)
    c = round(c / unit) * unit
    a, b = x.to(getattr(torch, dtype)), (x + c).to(getattr(torch, dtype))
    assert torch.equal(a.double() + c, b.double())
    moved = run("logcumsumexp", b).double() - run("logcumsumexp", a).double()
    room = bound_of("logcumsumexp", a) + bound_of("logcumsumexp", b)
    assert bool(((moved - c).abs() <= room * (1 + 2.0**-20) + abs(c) * 2.0**-50).all())


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@given(**DRAWN)
@settings(max_examples=25)
def test_extremes_are_exact_and_idempotent(name: str, recipe: str, dtype: str, n: int, seed: int) -> None:
    x = problem(name, dtype, small((3, n), recipe), seed).tensors["x"]
    y = run(name, x)
    assert same(run(name, y), y)
    other = run("cummin" if name == "cummax" else "cummax", -x)
    assert bool(((-other == y) | (y.isnan() & other.isnan())).all())
    indices = getattr(torch, name)(x, -1).indices
    assert same(x.gather(-1, indices), y), "the indices that torch returns beside are those of the values"


@given(**DRAWN)
@settings(max_examples=40)
def test_softmax_rows_sum_to_one(recipe: str, dtype: str, n: int, seed: int) -> None:
    x = problem("softmax", dtype, small((3, n), recipe), seed).tensors["x"]
    y, room = run("softmax", x), bound_of("softmax", x)
    for values, limits in zip(y.double().tolist(), room.tolist(), strict=True):
        if any(map(math.isnan, values)):
            assert all(map(math.isnan, values))
            continue
        assert abs(sum(map(Fraction, values)) - 1) <= sum(map(Fraction, limits))
        assert all(0 <= v <= 1 for v in values)


@given(**DRAWN)
@settings(max_examples=40)
def test_sums_of_permuted_terms_agree_within_their_bounds(recipe: str, dtype: str, n: int, seed: int) -> None:
    x = problem("sum", dtype, small((3, n), recipe), seed).tensors["x"]
    order = torch.argsort(torch.tensor([(k * 2654435761 + seed) % 2**32 for k in range(n)]))
    a, b = run("sum", x), run("sum", x[:, order])
    room = bound_of("sum", x) + bound_of("sum", x[:, order])
    same_kind = (a == b) | (a.isnan() & b.isnan())
    assert bool((same_kind | ((a.double() - b.double()).abs() <= room)).all())


@pytest.mark.parametrize("name", ["sum", "cumsum"])
@given(**DRAWN)
@settings(max_examples=25)
def test_sums_are_odd(name: str, recipe: str, dtype: str, n: int, seed: int) -> None:
    """Rounding to nearest is symmetric: bit for bit, up to the sign of zeros."""
    x = problem(name, dtype, small((3, n), recipe), seed).tensors["x"]
    a, b = run(name, x), -run(name, -x)
    assert bool(((a == b) | (a.isnan() & b.isnan())).all())


@given(n=st.integers(1, 40), seed=st.integers(0, 2**32), dtype=st.sampled_from(DTYPES))
@settings(max_examples=25)
def test_products_of_powers_of_two_are_exact(n: int, seed: int, dtype: str) -> None:
    x = problem("cumprod", dtype, small((1, n), "powers"), seed).tensors["x"]
    exact = [float(p) for p in itertools.accumulate(map(Fraction, x[0].double().tolist()), lambda a, b: a * b)]
    assert run("cumprod", x)[0].double().tolist() == exact


# ---------------------------------------------------------------- planted defects


@pytest.mark.parametrize("name", planted.DEFECTS)
def test_a_planted_defect_is_caught(name: str) -> None:
    defect = planted.DEFECTS[name]
    found = planted.cell(defect)
    assert found["status"] == "exceeds-bound", found


@pytest.mark.parametrize("name", planted.HONEST)
def test_the_honest_one_passes(name: str) -> None:
    for dtype in DTYPES:
        for recipe in ("mixed", "dominated", "wide", "random"):
            honest = planted.Defect(name, planted.HONEST[name], recipe, dtype, shape=(26, 30))
            found = planted.cell(honest)
            if (name, recipe) == ("cumprod", "wide"):  # factors between which products in another order overflow
                told = {region: one["status"] for region, one in found["regions"].items()}
                assert {told.pop("normal"), *told.values()} <= {"passed", "unjudged"}
                assert set(told.values()) <= {"passed"}
                continue
            assert {one["status"] for one in found["regions"].values()} == {"passed"}, (dtype, recipe)
            few = recipe != "mixed" and found["reason_kind"] == "resolution"  # mostly about 0
            assert found["status"] == ("unjudged" if few else "passed"), (dtype, recipe)


# ---------------------------------------------------------------- Triton, compiled


def assembly(name: str, dtype: str, where: Any, options: dict[str, Any]) -> str:
    import triton
    from triton.compiler import ASTSource

    from verify.kernels.triton import scans

    # One row of 128 columns: a program of 2,048 elements takes logcumsumexp ten seconds.
    loop, constant = scans.constants(name, getattr(torch, dtype), 1, scans.block_of(name, 100, interpreted=False))
    pointer = "*" + {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}[dtype]
    names = [p.name for p in loop.params]
    kinds = {"x_ptr": pointer, "out_ptr": pointer, "rows": "i32", "n": "i32"}
    source = ASTSource(
        fn=loop, signature={n: kinds.get(n, "constexpr") for n in names}, constexprs=constant,
        attrs={(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n.endswith("_ptr")},
    )  # fmt: skip
    compiled = triton.compile(source, target=where, options={"num_warps": scans.WARPS, **options})
    return str(compiled.asm["ptx" if where.backend == "cuda" else "amdgcn"])


@pytest.mark.parametrize("name", NAMES)
def test_triton_compiles_as_written(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the two vendors; nothing contracted, flushed or approximated in the code that is our own."""
    pytest.importorskip("triton", reason="triton is not installed")
    from triton.backends.compiler import GPUTarget

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    options = dict(backends.load("cuda").triton_options("own"))
    for dtype in ("float16", "float32", "float64"):
        ptx = assembly(name, dtype, GPUTarget("cuda", 90, 32), options)
        if dtype != "float64":
            assert not re.search(r"\.ftz|\.approx|\.full", ptx), dtype
            assert not re.search(r"\b(mul|add|sub|fma)\.f(32|64)", ptx), dtype
        assert "shfl.sync" in ptx, "rows are combined across the lanes of a warp"
    code = assembly(name, "float32", GPUTarget("hip", "gfx942", 64), {"enable_fp_fusion": False})
    assert ".amdhsa_float_denorm_mode_32 3" in code


# ---------------------------------------------------------------- a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_lowerings_keep_their_bounds_on_a_gpu(name: str, dtype: str) -> None:
    where = next(b for b in map(backends.load, backends.names()) if b.name != "cpu" and not b.unavailable())
    for setting in (small((26, 1100)), small((40, 26), dim=0), small((3000,), "random")):
        for lowering in lowerings(facts(name)):
            if lowering.reason(target(name, dtype, where)) is None:
                found = cell(name, dtype, setting, lowering, where)
                # data this small resolves nothing in the half types
                assert found["status"] in ("passed", "not-run", "unjudged"), (lowering.name, setting, found["reason"])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_formulas_take_the_functions_of_the_gpu(dtype: str) -> None:
    """Also where the host judges, whose exp and log1p have other bits."""
    where = next(b for b in map(backends.load, backends.names()) if b.name != "cpu" and not b.unavailable())
    found = cell("logcumsumexp", dtype, small((26, 1100)), named("logcumsumexp", "eager"), where)
    assert "by torch's functions" in (found["formula"]["identified"] or ""), found["formula"]
