"""The family of row kernels: rms_norm's truth against a separately written one, exact strata, orders of one's own,
probable bounds, and planted defects."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mutants import rows as planted
from mutants.scans import filled
from verify import backends
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.facts.kernel import Composite, Setting, UsageError
from verify.facts.truth import Truth
from verify.families import rows, rows_limits, rows_recipes, rows_settings
from verify.families.composite import Limit, Problem
from verify.families.rows import Place
from verify.lower.lowering import Target
from verify.lower.lowerings import lowerings
from verify.numbers.arrays import ExactRow
from verify.numbers.orders import Order
from verify.walk.arrangements import applied_to

pytestmark = pytest.mark.part(2)

Tensor = torch.Tensor
CPU = backends.load("cpu")
DTYPES = ("float16", "bfloat16", "float32", "float64")
NAMES = ("sum", "softmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "rms_norm")
#: Several rows of every recipe, in less than a second.
SMALL = rows_settings.setting("small", (34, 257))


def facts(name: str) -> Composite:
    found = kernel.load(name)
    assert isinstance(found, Composite)
    return found


def problem(name: str, dtype: str, setting: Setting, seed: int = 0) -> Problem:
    found: Problem = facts(name).problem(dtype, setting, dict(facts(name).cases[0]), seed)
    return found


def target(name: str, dtype: str = "float32") -> Target:
    return Target(facts(name), dict(facts(name).cases[0]), "small", dtype, CPU)


def test_every_row_kernel_has_a_second_truth() -> None:
    """That of rms_norm is here, of the others in `test_scans.expected`."""
    found = {name for name in kernel.names() if isinstance(getattr(kernel.load(name), "family", None), rows.Rows)}
    assert found == set(NAMES), "write it, and name the kernel in NAMES here and in tests/test_scans.py"


def own(name: str) -> Any:
    return planted.lowering(planted.CORRECT[name])


# ---------------------------------------------------------------- rms_norm


def expected(row: list[float], weight: list[float], place: int, eps: float) -> str | tuple[Fraction, Fraction]:
    """An element by Python's own floats where special values decide, else by Arb."""
    x, w = row[place], weight[place]
    mean = sum(v * v for v in row) if any(not math.isfinite(v) for v in row) else 0.0
    if not all(map(math.isfinite, (*row, w))) or x == 0 or w == 0 or (eps == 0 and not any(row)):
        root = math.sqrt(mean + 1.0) if math.isfinite(mean) or mean == math.inf else math.nan
        empty = eps == 0 and not any(row)
        value = math.nan if empty else x * (1 / root if root != math.inf else 0.0) * w
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "+inf" if value > 0 else "-inf"
        return "-0" if math.copysign(1, value) < 0 else "+0"
    import flint

    with flint.ctx.workprec(300):
        exact = sum(Fraction(v) ** 2 for v in row) / len(row) + Fraction(eps)
        size = flint.arb(flint.fmpq(exact.numerator, exact.denominator)).sqrt()
        top = Fraction(x) * Fraction(w)
        value = flint.arb(flint.fmpq(top.numerator, top.denominator)) / size
        ends = []
        for end in (value.lower(), value.upper()):
            mantissa, exponent = end.man_exp()
            ends.append(Fraction(int(mantissa)) * Fraction(2) ** int(exponent))
        return ends[0], ends[1]


def holds(truth: Truth, due: str | tuple[Fraction, Fraction]) -> bool:
    if isinstance(due, str):
        return truth.kind == due
    return truth.kind == "real" and truth.lo <= due[1] and due[0] <= truth.hi


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eps", [0.4375, 1e-05])
def test_the_truth_of_rms_norm_equals_a_separately_written_one(dtype: str, eps: float) -> None:
    pytest.importorskip("flint", reason="python-flint is not installed")
    name = facts("rms_norm")
    one: Problem = name.problem(dtype, rows_settings.setting("s", (17, 9)), {"eps": eps}, 3)
    x, w = (t.double().tolist() for t in one.tensors.values())
    source = name.truth(one, "cpu", {"sqrt": 4.0})
    whole, _ = source.enclose("")
    double, _ = source.enclose("", torch.arange(17 * 9), double=True)
    for k in range(17 * 9):
        due = expected(x[k // 9], w, k % 9, eps)
        *_, last = itertools.islice(source.exact("", k), 2)
        assert holds(last, due), (k, last, due)
        for found in (whole, double):
            mid, rad = float(found.mid[0, k]), float(found.rad[0, k])
            tail = 0.0 if found.tail is None else float(found.tail[0, k])
            if math.isnan(rad):
                continue
            if isinstance(due, str):
                assert rad == 0 and (math.isnan(mid) if due == "nan" else mid == {"+0": 0, "-0": 0}.get(due, mid))
            else:
                centre = Fraction(mid) + Fraction(tail)
                assert centre - Fraction(rad) <= due[1] and due[0] <= centre + Fraction(rad), k


def test_special_values_of_rms_norm() -> None:
    """All rows of two and weights out of NaN, infinities, zeros and numbers: table, multiprecision and torch agree."""
    pytest.importorskip("flint", reason="python-flint is not installed")
    values = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -2.0)
    name = facts("rms_norm")
    for weight, eps in itertools.product(values, (0.0, 0.5)):
        x, w = torch.tensor(list(itertools.product(values, repeat=2))), torch.tensor([weight, 3.0])
        one = Problem({"x": x, "weight": w}, {"shape": list(x.shape), "dim": -1}, {"eps": eps}, "float32", {})
        source = name.truth(one, "cpu", {"sqrt": 4.0})
        y = torch.nn.functional.rms_norm(x, (2,), w, eps)
        for k in range(x.numel()):
            due = expected(x[k // 2].tolist(), w.tolist(), k % 2, eps)
            truth = next(iter(source.exact("", k)))
            assert holds(truth, due), (x[k // 2], w, eps, truth, due)
            got = float(y.reshape(-1)[k])
            if isinstance(due, str):
                assert math.isnan(got) if due == "nan" else not math.isnan(got)
                assert due == "nan" or math.copysign(1, got) == (-1 if due[0] == "-" else 1), (x[k // 2], w, eps)
            else:
                assert abs(Fraction(got) - due[0]) <= abs(due[0]) / 2**20


@given(seed=st.integers(0, 2**32), n=st.integers(1, 50), dtype=st.sampled_from(DTYPES))
@settings(max_examples=30)
def test_an_exact_inner_product_is_that_of_rationals(seed: int, n: int, dtype: str) -> None:
    a, b = (
        problem("sum", dtype, rows_settings.setting("s", (1, n), recipe="wide"), seed + k).tensors["x"][0]
        for k in (0, 1)
    )
    exact = sum(
        (Fraction(x) * Fraction(y) for x, y in zip(a.double().tolist(), b.double().tolist(), strict=True)), Fraction(0)
    )
    assert ExactRow(a).dot(ExactRow(b)) == exact


def test_names_of_recipes_may_have_spaces_after_commas() -> None:
    spaced = rows_settings.custom({"shape": "8x16", "recipe": "random, exact"}, kind=rows_recipes.SUMS)
    assert spaced.parameters["recipe"] == "random,exact"


def test_rows_of_rms_norm_lie_along_the_last_dimension() -> None:
    custom = facts("rms_norm").custom
    assert custom is not None
    with pytest.raises(UsageError, match="rows lie along the last dimension; expected -1"):
        custom({"shape": "3x4", "dim": "0"})
    assert all(one.parameters["dim"] in (-1, len(one.parameters["shape"]) - 1) for one in facts("rms_norm").settings)


# ---------------------------------------------------------------- lowerings keep their bounds


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["eager", "triton-interpreter"])
def test_rms_norm_keeps_its_bound(name: str, dtype: str) -> None:
    one = next(x for x in lowerings(facts("rms_norm")) if x.name == name)
    if reason := one.reason(target("rms_norm", dtype)):
        pytest.skip(reason)
    if name == "triton-interpreter" and dtype == "bfloat16":
        pytest.skip("it truncates to bfloat16, see kernels/ledger")
    for scalars in facts("rms_norm").cases:
        found = filled(facts("rms_norm"), rows_settings.setting("s", (34, 35)), dtype, one, scalars=scalars)
        assert (found["status"], found["reason"]) == ("passed", "")


# ---------------------------------------------------------------- exact strata


@pytest.mark.parametrize("recipe", ["exact", "counted"])
@pytest.mark.parametrize("n", [1, 2, 33, 1009, 4096])
@pytest.mark.parametrize("name", ["sum", "cumsum", "cumprod", "rms_norm"])
def test_exact_strata_are_exact_for_every_known_algorithm(name: str, n: int, recipe: str) -> None:
    """Bounds below half a step of the result, on every backend: there any other bit is a fault, in every dtype."""
    for dtype in DTYPES:
        one = problem(name, dtype, rows_settings.setting("s", (3, n), recipe=recipe))
        family, fmt = facts(name).family, FORMATS[dtype]
        mid = facts(name).truth(one, "cpu", {"sqrt": 4.0}).enclose("")[0].mid
        for backend in ("cpu", "cuda"):
            place = Place("", backend, fmt, n, 3, True)
            for algorithm in rows_limits.known(family, place):
                if backend == "cuda" and (name == "rms_norm" or algorithm.order.accumulator.bits == 16):
                    continue  # a library's reciprocal root, and sums in half types, are not exact on these
                bound = rows_limits.bound_of(one, family, algorithm)
                truth = mid.reshape(bound.shape)
                step = 2.0 ** (torch.frexp(truth)[1].double() - fmt.precision).clamp(min=fmt.emin - fmt.mantissa_bits)
                # float64 holds no more than u of a product that is not one of its numbers
                most = 0.51 if fmt.bits < 64 else 1.01
                assert bool((bound <= most * step).all()), (dtype, backend, str(algorithm.order))


@pytest.mark.parametrize("n", [1, 2, 33, 1009])
def test_exact_strata_of_exponentials(n: int) -> None:
    """Equal scores: softmax is exact. Steps of 40: the logarithm is the last term, to less than a step of any dtype."""
    for dtype in DTYPES:
        for name, parity in (("softmax", 0), ("logcumsumexp", 1)):
            one = problem(name, dtype, rows_settings.setting("s", (8, n), recipe="exact"))
            limit = facts(name).limit(one, target(name, dtype), own(name), "")
            part = limit.bound[parity::2]
            y = planted.CORRECT[name](one.tensors["x"], -1).double()[parity::2]
            size = y.abs().nan_to_num(posinf=0.0, neginf=0.0)
            most = size * float(FORMATS[dtype].unit_roundoff) / 4 + float(FORMATS[dtype].smallest_subnormal) / 2
            assert bool((part <= most).all()), (name, dtype)


def test_sums_of_an_exact_stratum_are_never_zero() -> None:
    """A lost rest of a row must change what is seen: no prefix of it adds up to nothing."""
    for n in (1, 2, 33, 1009, 1 << 16, 1 << 20):
        x = problem("sum", "float32", rows_settings.setting("s", (2, n), recipe="exact")).tensors["x"]
        assert bool((x.double().cumsum(-1) != 0).all())


def test_quick_runs_meet_exact_strata() -> None:
    """In the quick profile, from two terms to 2^20 of them."""
    for name in NAMES:
        quick = [one for one in facts(name).settings if one.quick]
        told = [rows_recipes.named(one.parameters["recipe"], False) for one in quick]
        assert sum("exact" in names for names in told) >= 3 and (["counted"] in told or ["widening"] in told)
        assert any(one.parameters["shape"] == [1 << 20] for one in quick)


# ---------------------------------------------------------------- orders of one's own


def bounds(name: str, setting: Setting, order: str = "", dtype: str = "float32") -> Limit:
    lowering = replace(own(name), order=Order.parse(order) if order else None)
    found: Limit = facts(name).limit(problem(name, dtype, setting), target(name, dtype), lowering, "")
    return found


@pytest.mark.parametrize("name", ["sum", "softmax", "rms_norm"])
def test_any_order_is_wider_than_the_known_ones(name: str) -> None:
    found = bounds(name, rows_settings.setting("s", (2, 5000), recipe="one_sign"))
    ((kind, outer),) = found.beyond
    assert kind == "order" and bool((outer >= found.bound).all()) and bool((outer > found.bound).any())


def test_a_declared_order_is_the_bound_and_nothing_is_beyond_it() -> None:
    setting = rows_settings.setting("s", (2, 5000), recipe="one_sign")
    tree, blocks, line, half = (
        bounds("sum", setting, order)
        for order in ("tree:float32", "blocked=128:float32", "sequential:float32", "tree:bfloat16")
    )
    assert tree.beyond == line.beyond == () and "tree in float32" in tree.source
    assert bool((tree.bound < blocks.bound).all()) and bool((blocks.bound < line.bound).all())
    assert bool((line.bound < half.bound).all())


def test_a_registered_lowering_has_its_algorithm_alone() -> None:
    one = problem("sum", "float32", rows_settings.setting("s", (2, 5000), recipe="one_sign"))
    assert facts("sum").limit(one, target("sum"), lowerings(facts("sum"))[0], "").beyond == ()


# ---------------------------------------------------------------- probable bounds


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("shape", ["1x151937", "3x69632"])
def test_long_scans_of_a_gpu_in_the_half_type_are_bounded(name: str, dtype: str, shape: str) -> None:
    """cub's order is another one each time, so that their bits are no answer; of so many random terms nothing is
    known."""
    drawn = problem(name, dtype, facts(name).custom({"shape": shape, "recipe": "cycled"}))
    count, n = map(int, shape.split("x"))
    place = Place("eager", "cuda", FORMATS[dtype], n, count, True)
    [one] = facts(name).family.algorithms(place)
    assert one.order.accumulator.name == dtype
    assert float(rows_limits.bound_of(drawn, facts(name).family, one).max()) < 2.0**-20


def test_a_probable_bound_is_tighter_and_kept() -> None:
    setting = rows_settings.setting("s", (8, 4096), recipe="random,one_sign")
    x = problem("sum", "float32", setting).tensors["x"]
    found = bounds("sum", setting, "any:float32")
    ((kind, proven),) = found.beyond
    random = torch.arange(8) % 2 == 0
    assert kind == "probable" and bool((found.bound[random] < proven[random] / 4).all())
    assert torch.equal(found.bound[~random], proven[~random])
    exact = x.double().sum(-1)
    line = torch.from_numpy(np.cumsum(x.numpy(), 1, dtype="float32"))[:, -1]
    assert bool(((line.double() - exact).abs() <= found.bound)[random].all())
    narrow = planted.narrow_sum(x, -1, torch.bfloat16)
    assert bool(((narrow.double() - exact).abs() > found.bound)[random].any())
    assert "Higham and Mary 2019" in found.source


def test_there_is_no_probable_bound_without_random_rows_or_counted_roundings() -> None:
    for name, recipe in (("sum", "graded"), ("logcumsumexp", "random"), ("cummax", "random")):
        found = bounds(name, rows_settings.setting("s", (2, 64), recipe=recipe))
        assert "probable" not in dict(found.beyond)


# ---------------------------------------------------------------- planted defects


@functools.cache
def held(name: str, dtype: str, setting: str) -> list[Any]:
    return []


def status(name: str, dtype: str, function: planted.Function, setting: Setting = SMALL) -> dict[str, Any]:
    return filled(facts(name), setting, dtype, planted.lowering(function), held=held(name, dtype, setting.name))


def left_to_right(x: Tensor, dim: int) -> Tensor:
    """In float32, one term after another."""
    with np.errstate(invalid="ignore"):
        found = np.add.accumulate(planted.wide(x).numpy(), dim)
    return torch.from_numpy(found).select(dim, -1).to(x.dtype)


def test_an_undeclared_order_is_suspect_and_passes_once_declared() -> None:
    """2^16 terms one after another in float32, among them 0.1 again and again: beyond what the known orders allow."""
    setting, mine = facts("sum").spellings["length-2^16"], planted.lowering(left_to_right)
    held: list[Any] = []
    undeclared = filled(facts("sum"), setting, "float32", mine, held=held)
    assert (undeclared["status"], undeclared["reason_kind"]) == ("suspect", "order")
    assert "--algorithm tree:float32" in undeclared["reason"] and "length-2^16 [4]" in undeclared["reason"]
    assert undeclared["worst"][0]["index"] == 4 and undeclared["worst"][0]["share"] > 1
    declared = filled(
        facts("sum"), setting, "float32", replace(mine, order=Order.parse("sequential:float32")), held=held
    )
    assert declared["status"] == "passed", declared["reason"]
    other = filled(facts("sum"), setting, "float32", replace(mine, order=Order.parse("tree:float32")), held=held)
    assert other["status"] == "exceeds-bound"


def one_narrow_partial(x: Tensor, dim: int) -> Tensor:
    """Blocks of 64, the partial sum of one of them rounded to bfloat16."""
    rows_ = planted.wide(x).movedim(dim, -1)
    parts = torch.nn.functional.pad(rows_, (0, -rows_.shape[-1] % 64)).unflatten(-1, (-1, 64)).sum(-1)
    parts[..., parts.shape[-1] // 2] = parts[..., parts.shape[-1] // 2].bfloat16().to(parts.dtype)
    return parts.sum(-1).to(x.dtype)


def test_one_partial_sum_in_bfloat16_is_caught() -> None:
    assert status("sum", "float32", one_narrow_partial)["status"] == "exceeds-bound"


def test_beyond_the_probable_bound_a_lowering_is_suspect_a_registered_one_too() -> None:
    """Partial sums in bfloat16 on random rows, on which the bound of any order has room for them."""
    setting = rows_settings.setting("random", (64, 1 << 13), recipe="random")
    narrow = planted.lowering(lambda x, dim: planted.narrow_sum(x, dim, torch.bfloat16))
    right = planted.lowering(planted.total)
    for change in ({"name": "inductor"}, {"order": Order.parse("any:float32")}):
        found = filled(facts("sum"), setting, "float32", replace(narrow, **change))
        assert (found["status"], found["reason_kind"]) == ("suspect", "probable"), found["reason"]
        assert "within the proven bound" in found["reason"] and found["worst"][0]["share"] > 1
        assert filled(facts("sum"), setting, "float32", replace(right, **change))["status"] == "passed"


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda y, lost: y, "passed"),  # 0, as eager gives
        (lambda y, lost: torch.where(lost, 3.0, y), "exceeds-bound"),
        (lambda y, lost: torch.where(lost, math.nan, y), "exceeds-bound"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_where_squares_overflow_nothing_but_zero_and_the_truth_passes(spoil: Any, expected: str, dtype: str) -> None:
    """Also what computes in float64, where they do not."""
    setting = rows_settings.setting("wide", (12, 257), recipe="wide,exact")

    def of(function: planted.Function) -> planted.Function:
        def run(x: Tensor, dim: int, weight: Tensor, eps: float) -> Tensor:
            lost = planted.wide(x).square().sum(-1, keepdim=True).isinf()
            return spoil(function(x, dim, weight, eps), lost).to(x.dtype)

        return run

    for function in (planted.CORRECT["rms_norm"], planted.rms_norm_by_division):
        found = filled(facts("rms_norm"), setting, dtype, planted.lowering(of(function)))
        assert found["status"] == expected, found["reason"]
        assert found["regions"]["intermediate"]["inputs"] == 2 * 257
        assert found["regions"]["intermediate"]["status"] == expected


# ---------------------------------------------------------------- resolution


@pytest.mark.parametrize(("name", "alone"), [("sum", "passed"), ("cumsum", "unjudged")])
def test_a_cell_whose_bounds_say_nothing_is_unjudged(name: str, alone: str) -> None:
    """2^20 random numbers alone, where a bound is as large as what it bounds, unless one known algorithm is kept that
    resolves them; and its own settings of that length."""
    for recipe, expected in (("random", alone), ("random,exact", "passed")):
        setting = rows_settings.setting("s", (2, 1 << 20), recipe=recipe)
        found = status(name, "float16", planted.CORRECT[name], setting)
        assert found["status"] == expected, found["reason"]
        assert (found["reason_kind"] == "resolution") == (expected == "unjudged")


def by_powers(x: Tensor, dim: int, constant: float = 1.4426950408889634) -> Tensor:
    """exp as exp2 of a product, as kernels on GPUs have it."""
    below = planted.wide(x) - planted.wide(x).amax(dim, keepdim=True)
    powers = torch.exp2(below * constant)
    return (powers / powers.sum(dim, keepdim=True)).to(x.dtype)


def test_softmax_by_powers_of_two_is_suspect_and_passes_once_declared() -> None:
    setting, mine = facts("softmax").spellings["length-2"], planted.lowering(by_powers)
    undeclared = filled(facts("softmax"), setting, "float32", mine)
    assert (undeclared["status"], undeclared["reason_kind"]) == ("suspect", "order")
    declared = filled(facts("softmax"), setting, "float32", replace(mine, order=Order.parse("tree:float32")))
    assert declared["status"] == "passed", declared["reason"]
    wrong = planted.lowering(lambda x, dim: by_powers(x, dim, 1.4427))
    found = filled(facts("softmax"), setting, "float32", replace(wrong, order=Order.parse("tree:float32")))
    assert found["status"] == "exceeds-bound"


def as_llama(x: Tensor, dim: int, weight: Tensor, eps: float, squares: torch.dtype = torch.float32) -> Tensor:
    """The normalized number is rounded before it meets its weight, as transformers' LlamaRMSNorm does."""
    mean = x.float().pow(2).to(squares).float().mean(-1, keepdim=True)
    return weight * (x.float() * torch.rsqrt(mean + eps)).to(x.dtype)


def by_norm(x: Tensor, dim: int, weight: Tensor, eps: float, narrow: torch.dtype = torch.float32) -> Tensor:
    """rms_norm of a library's norm."""
    norm = torch.linalg.vector_norm(x.to(narrow).float(), dim=dim, keepdim=True)
    return (x.float() * torch.rsqrt(norm * norm / x.shape[dim] + eps) * weight.float()).to(x.dtype)


@pytest.mark.parametrize(("mine", "setting", "dtype", "wrong"), [
    (as_llama, "length-33", "bfloat16", functools.partial(as_llama, squares=torch.bfloat16)),
    (by_norm, "length-2", "float32", functools.partial(by_norm, narrow=torch.bfloat16)),
])  # fmt: skip
def test_rms_norm_in_another_form_is_suspect_and_passes_once_declared(
    mine: Callable[..., Tensor], setting: str, dtype: str, wrong: Callable[..., Tensor]
) -> None:
    own, of = planted.lowering(mine), facts("rms_norm").spellings[setting]
    undeclared = filled(facts("rms_norm"), of, dtype, own)
    assert (undeclared["status"], undeclared["reason_kind"]) == ("suspect", "order")
    order = Order.parse("tree:float32")
    declared = filled(facts("rms_norm"), of, dtype, replace(own, order=order))
    assert declared["status"] == "passed", declared["reason"]
    found = filled(facts("rms_norm"), of, dtype, replace(planted.lowering(wrong), order=order))
    assert found["status"] == "exceeds-bound", found["reason"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_tensors_are_made_of_others_in_every_dtype(name: str, dtype: str) -> None:
    """A place was a number of the dtype, of which bfloat16 has few."""
    facts = kernel.load(name)
    assert isinstance(facts, Composite)
    for sizes, made in facts.related:
        shape = [int(n) for n in sizes["shape"].split("x")]
        tensors = {w: torch.ones(shape[-1], dtype=getattr(torch, dtype)) for w in facts.inputs[1:]}
        tensors["x"] = torch.ones(shape, dtype=getattr(torch, dtype))
        for k, text in made.items():
            found = applied_to(text, k, tensors)
            assert (found.shape, found.dtype) == (tensors[k].shape, tensors[k].dtype), text
