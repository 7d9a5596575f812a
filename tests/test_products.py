"""Matrix products: truth against rationals, bounds against honest products and against faults, refusals."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any, cast

import pytest
import torch

from composites import cells
from judging import to_bits
from mutants import products as mutants
from verify import backends
from verify.facts.formats import FORMATS
from verify.facts.kernel import Composite, UsageError, load
from verify.families import (
    products,
    products_data,
    products_formulas,
    products_limits,
    products_lowerings,
    products_settings,
    products_truth,
)
from verify.families.products_lowerings import PRECISIONS, set_to
from verify.families.products_settings import setting
from verify.families.products_truth import Truths
from verify.judge import ledger
from verify.judge.element import Limits, decide
from verify.judge.ledger import Allowance
from verify.judge.status import ALLOWABLE, KINDS
from verify.lower import switches
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.numbers import units
from verify.numbers.functions import LIBRARY
from verify.numbers.ieee import IeeeSystem, Rounded
from verify.numbers.roundoff import Roundoff
from verify.numbers.roundoff_units import Blocks
from verify.reports.figures import code_of
from verify.reports.schema import Cell
from verify.walk.called import Called
from verify.walk.cases import terms
from verify.walk.cells import fill
from verify.walk.instance import Instance
from verify.walk.plan import Job, Selection
from verify.walk.settings import settings_of

pytestmark = pytest.mark.part(2)

Tensor = torch.Tensor
CPU = backends.load("cpu")
SMALL = setting("small", m=16, k=70, n=12)
F32 = units.SINGLE


def facts(name: str) -> Composite:
    found = load(name)
    assert isinstance(found, Composite)
    return found


def cell(
    name: str, own: Any, call: Any, dtype: str, lowering: str = "mine.py:mine", **scalars: float
) -> dict[str, Any]:
    """The cell of a callable of the problem, judged as a user's own lowering or by a registered name."""
    kernel = dataclasses.replace(facts(name), settings=(own,), searched=None)
    one = Lowering(lowering, lambda target: call, lambda target: None)
    [found] = cells(kernel, own, one, dtype, CPU, **scalars)
    return found


# Truth


def rational(name: str, own: Any, dtype: str, scalars: dict[str, float]) -> tuple[Truths, list[Fraction]]:
    """The family's truth, and the product in rationals, before an activation."""
    kernel = facts(name)
    problem = kernel.problem(dtype, own, scalars, 0)
    t = {k: v.double().tolist() for k, v in problem.tensors.items()}
    if "zero" in t:
        group = own.parameters["group"]
        t["b"] = [
            [(Fraction(q) - 8) * Fraction(s) + Fraction(z) for q, s, z in zip(line, scale, zero, strict=True)]
            for i, line in enumerate(t["b"])
            for scale, zero in [(t["scale"][i // group], t["zero"][i // group])]
        ]
    alpha, beta = (Fraction(scalars.get(k, 1.0)) for k in ("alpha", "beta"))
    found = []
    for i, row in enumerate(t["a"]):
        for j in range(len(t["b"][0]) if t["b"] else own.parameters["n"]):
            total = alpha * sum(
                (Fraction(x) * Fraction(line[j]) for x, line in zip(row, t["b"], strict=True)), Fraction(0)
            )
            if "bias" in t:
                total += beta * Fraction(t["bias"][j])
            if "scale_a" in t:
                total *= Fraction(t["scale_a"][i][0]) * Fraction(t["scale_b"][0][j])
            found.append(total)
    return Truths(kernel.family, problem, "cpu", LIBRARY), found


CASES = [
    ("mm", "float16", {}), ("mm", "float32", {}), ("mm", "float64", {}),
    ("addmm", "bfloat16", {"alpha": 0.7, "beta": -1.3}),
    ("addmm", "float32", {"alpha": 2.0, "beta": 0.0}), ("linear", "float32", {}), ("int_mm", "int8", {}),
    ("scaled_mm", "float8_e4m3fn", {}), ("scaled_mm", "float8_e5m2", {}), ("int4_mm", "float16", {}),
    ("int4_mm", "bfloat16", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "scalars"), CASES)
@pytest.mark.parametrize("k", [0, 1, 70])
def test_truth_is_the_rational_product(name: str, dtype: str, scalars: dict[str, float], k: int) -> None:
    groups: dict[str, Any] = {"group": max(k // 5, 1)} if name == "int4_mm" else {}
    source, due = rational(name, setting("own", m=5, k=k, n=7, **groups), dtype, scalars)
    index = torch.arange(len(due))
    for double in (False, True):
        found, scale = source.enclose("", index, double)
        assert scale is not None and found.rad is not None
        tail = torch.zeros_like(found.mid) if found.tail is None else found.tail
        columns = (t[0].tolist() for t in (found.mid, found.rad, tail, scale))
        for t, mid, rad, low, least in zip(due, *columns, strict=True):
            if not math.isnan(rad):
                assert abs(Fraction(mid) + Fraction(low) - t) <= Fraction(rad)
            assert 0 < least
            if t:
                assert rad < abs(t) * 2.0**-30 + 2.0**-40
    for place in (0, len(due) - 1, len(due) // 2):
        truth = next(source.exact("", place))
        assert truth.kind == "either-zero" if due[place] == 0 else truth.lo == truth.hi == due[place]
    assert source.explain("", 3)


@pytest.mark.parametrize("step", [1 << 18, 150])
@pytest.mark.parametrize("take", ["all", "some", "one of each", "of one"])
def test_the_truth_of_stacks_is_the_rational_product(monkeypatch: pytest.MonkeyPatch, step: int, take: str) -> None:
    """By matrices together, or by each alone, in parts of any size."""
    monkeypatch.setattr(products_truth, "STEP", step)
    kernel = facts("bmm")
    problem = kernel.problem("float64", setting("own", batch=5, m=6, k=9, n=7), {}, 0)
    count = 5 * 6 * 7
    index = {
        "all": torch.arange(count),
        "some": torch.randperm(count, generator=torch.Generator().manual_seed(0))[: count // 2],
        "one of each": torch.arange(0, count, 42) + 17,
        "of one": torch.arange(90, 110),
    }[take]
    found, scale = Truths(kernel.family, problem, "cpu", LIBRARY).enclose("", index, True)
    assert found.rad is not None and found.tail is not None and scale is not None
    a, b = (problem.tensors[name].tolist() for name in "ab")
    columns = (t[0].tolist() for t in (found.mid, found.tail, found.rad, scale))
    for place, mid, tail, rad, least in zip(index.tolist(), *columns, strict=True):
        which, i, j = place // 42, place // 7 % 6, place % 7
        terms = [Fraction(x) * Fraction(line[j]) for x, line in zip(a[which][i], b[which], strict=True)]
        assert abs(Fraction(mid) + Fraction(tail) - sum(terms)) <= Fraction(rad) <= Fraction(least) / 2**90
        size = max(sum(map(abs, terms)), Fraction(products_truth.TINY_SCALE))
        assert Fraction(least) <= size < Fraction(least) * Fraction(1 + 2**-30)


def test_silu_and_relu_of_a_product() -> None:
    for activation in ("relu", "silu"):
        source, due = rational("linear", setting("own", m=9, k=20, n=9, activation=activation), "float32", {})
        found, _ = source.enclose("")
        doubled, _ = source.enclose("", torch.arange(81), True)
        for place, y in enumerate(map(float, due)):
            t = max(y, 0.0) if activation == "relu" else y / (1 + math.exp(-y))
            for one in (found, doubled):
                assert one.rad is not None
                assert abs(float(one.mid[0, place]) - t) <= abs(t) * 1e-13
            truth = next(source.exact("", place))
            assert truth.kind == "either-zero" if t == 0 else abs(float(truth.lo) - t) <= abs(t) * 1e-13


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (-1.0, -1.0), (-3.0, 1e-5), (0.7, -1.3), (-0.5, 0.0)])
def test_infinities_have_the_signs_of_their_terms(alpha: float, beta: float) -> None:
    """That of alpha had been left out: beside infinities and a negative alpha right products were refused."""
    own = setting("own", m=30, k=8, n=20, data="special")
    one = facts("addmm").problem("float64", own, {"alpha": alpha, "beta": beta}, 0)
    one.tensors["bias"][::5] = torch.tensor([math.inf, -math.inf, math.nan, 2.0])
    due = torch.addmm(one.tensors["bias"], one.tensors["a"], one.tensors["b"], alpha=alpha, beta=beta)
    found, _ = facts("addmm").truth(one, "cpu", {}).enclose("")
    nan = due.isnan().reshape(-1)
    assert bool((due == math.inf).any() and (due == -math.inf).any() and nan.any())
    assert bool((found.mid[0].isnan() == nan).all())
    wide = due.reshape(-1).isinf()
    assert torch.equal(found.mid[0][wide], due.reshape(-1)[wide]) and bool(found.mid[0][~nan & ~wide].isfinite().all())


def test_scales_turn_infinities() -> None:
    own = setting("own", m=64, k=32, n=32, data="special")
    one = facts("scaled_mm").problem("float8_e5m2", own, {"fast": 0.0}, 0)
    one.tensors["scale_a"][::3] *= -1
    one.tensors["scale_b"][:, ::5] = 0
    a, b, scale_a, scale_b = (one.tensors[name].double() for name in ("a", "b", "scale_a", "scale_b"))
    due = ((a @ b) * scale_a * scale_b).reshape(-1)
    found, _ = facts("scaled_mm").truth(one, "cpu", {}).enclose("")
    wide = due.isinf()
    assert bool((due == -math.inf).any()) and torch.equal(found.mid[0][wide], due[wide])
    assert torch.equal(found.mid[0].isnan(), due.isnan())


def test_a_silu_that_no_format_holds_is_decided() -> None:
    """It was left undecided below -2,800, where exp(y) has more places than multiprecision takes, and so refused."""
    own = setting("own", m=1, k=1, n=1, activation="silu")
    for y in (-2000.0, -3000.0, -4095.0, -4097.0, -(2.0**14), -(2.0**100)):
        one = facts("linear").problem("float32", own, {}, 0)
        tensors = {name: torch.full_like(t, {"b": 1.0, "bias": 0.0}.get(name, y)) for name, t in one.tensors.items()}
        source = facts("linear").truth(dataclasses.replace(one, tensors=tensors), "cpu", {})
        *_, truth = source.exact("", 0)
        assert -(2.0**-1000) < truth.lo <= truth.hi < 0
        assert FORMATS["float64"].round(truth.lo) == FORMATS["float64"].round(truth.hi) == FORMATS["float64"].sign_bit


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 42.0, 0.0, -1e38, "largest"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_beyond_the_range_both_judges_refuse_finite_numbers_alone(dtype: str, value: float | str) -> None:
    kernel, own, fmt = facts("mm"), setting("few", m=6, k=40, n=7), FORMATS[dtype]
    one = Instance(kernel, own, {}, dtype, CPU, 0)
    target = Target(kernel, {}, own.name, dtype, CPU)
    given = {name: t.abs() * 2.0**66 for name, t in one.problem.tensors.items()}
    given["a"][0] *= 2.0**-70
    given["a"][4] *= -1
    given["a"][5, 1::2] *= -1  # whose terms are together more than their sum
    a, b = (t.double() for t in given.values())
    due, size = (a @ b).reshape(-1), (a.abs() @ b.abs()).reshape(-1)
    refused = (due.abs() >= 2.0 ** (fmt.emax + 4)) & (size <= 8 * due.abs())
    assert refused[28:35].sum() > 3 and not refused[:7].any() and not refused[35:].all()
    number = fmt.to_float(fmt.inf_bits - 1) if value == "largest" else float(value)
    y = torch.full((6, 7), number, dtype=getattr(torch, dtype))
    lowering = Lowering("mine.py:f", lambda target: None, lambda target: None)
    _, on = terms(one.of(given), target, lowering, 0, "", y, user=True)
    [term] = on.values()
    elements, flat, limits = cast(Any, term.elements), y.reshape(-1), Limits.of("share")
    tensor = decide(flat, elements.facts(None, flat, double=False, zeroed=False), fmt, limits)
    unknown = torch.isinf(elements.bounds.bound.reshape(-1))
    assert unknown[refused].all() and not unknown[:7].any()
    for k in unknown.nonzero()[:, 0].tolist():
        found = elements.exact.outcome((k,), int(to_bits(flat[k])), limits, elements.allowed((k,)))
        wrong = bool(refused[k]) and math.isfinite(number)
        assert found.kind == ("infinity" if wrong else None) and (wrong <= (not found.unjudged)), (k, found)
        if not tensor.open[k]:
            kind = int(tensor.kind[k])
            assert (KINDS[kind] if kind >= 0 else None, bool(tensor.unjudged[k])) == (found.kind, found.unjudged), k


@pytest.mark.parametrize(("count", "dtype", "due"), [
    (1023, "bfloat16", True), (1024, "bfloat16", False), (1024, "float32", True), (40, "float64", False),
])  # fmt: skip
def test_of_many_terms_in_few_bits_a_finite_sum_is_not_refused(count: int, dtype: str, due: bool) -> None:
    """One that is kept in bfloat16 stops growing where a term is less than half of its last bit."""
    kernel, own = facts("mm"), setting("many", m=2, k=count, n=2)
    one, target = Instance(kernel, own, {}, dtype, CPU, 0), Target(kernel, {}, own.name, dtype, CPU)
    one = one.of({name: torch.full_like(t, 2.0**64) for name, t in one.problem.tensors.items()})
    y = torch.full((2, 2), 1.0, dtype=getattr(torch, dtype))
    _, on = terms(one, target, Lowering("mine.py:f", lambda target: None, lambda target: None), 0, "", y, user=True)
    [term] = on.values()
    assert (cast(Any, term.elements).infinite is not None) == due


def test_special_values_of_products() -> None:
    kernel = facts("mm")
    problem = kernel.problem("float32", facts("mm").spellings["special"], {}, 0)
    source = Truths(kernel.family, problem, "cpu", LIBRARY)
    found, _ = source.enclose("")
    due = problem.tensors["a"].double() @ problem.tensors["b"].double()
    odd = ~due.isfinite().reshape(-1)
    assert 50 < int(odd.sum()) < odd.numel() // 2
    assert torch.equal(found.mid[0][odd].nan_to_num(nan=7.0), due.reshape(-1)[odd].nan_to_num(nan=7.0))
    assert bool((found.rad[0][odd] == 0).all())  # type: ignore[index]
    kinds = {next(source.exact("", int(k))).kind for k in odd.nonzero()[:, 0]}
    assert kinds == {"nan", "+inf", "-inf"}
    relu = setting("own", m=30, k=32, n=20, data="special", activation="relu")
    problem = facts("linear").problem("float32", relu, {}, 0)
    found, _ = Truths(facts("linear").family, problem, "cpu", LIBRARY).enclose("")
    a, b, bias = (problem.tensors[name].double() for name in ("a", "b", "bias"))
    due = (a @ b + bias).reshape(-1)
    assert bool((due == -torch.inf).any()) and bool((found.mid[0][due == -torch.inf] == 0).all())


def test_subnormal_operands_may_be_flushed_where_dot_products_flush() -> None:
    """oneDNN's of bfloat16 on the host, and no other's."""

    def flushed(problem: Any) -> torch.Tensor:
        a, b = problem.tensors["a"], problem.tensors["b"]
        return (torch.where(a.abs() < 2.0**-126, 0.0, a).double() @ b.double()).to(a.dtype)

    for dtype, due in (("bfloat16", "passed"), ("float32", "exceeds-bound")):
        own = setting("own", m=24, k=40, n=18, data="extreme")
        assert cell("mm", own, flushed, dtype)["status"] == due


# Bounds


@pytest.mark.parametrize("name", ["hopper bfloat16", "hopper float16", "hopper tf32", "ampere float16", "volta float16",
                                  "hopper float8_e4m3fn wgmma", "gfx942 bfloat16"])  # fmt: skip
def test_bounds_of_blocks_hold_and_are_not_idle(name: str) -> None:
    """A unit's own bits are within its bound, near it somewhere, and exact where the bound says so."""
    [unit] = [u for u in units.units() if str(u) == name]
    dtype = "float32" if unit.operands == "tf32" else unit.operands
    problem = facts("mm").problem(dtype, setting("own", m=16, k=75, n=24), {}, 1)
    a, b = (unit.operand(problem.tensors[x]) for x in ("a", "b"))
    n = Roundoff(F32, F32)
    due = a @ b
    tight = n.matmul(n.given(a), n.given(b), Blocks(unit))
    for plan in (units.Plan(unit), units.Plan(unit, parts=4), units.Plan(unit, parts=3, dealt=True, tree="neighbours")):
        far = (plan.product(a, b) - due).abs()
        loose = n.matmul(n.given(a), n.given(b), Blocks(unit, 4))
        assert bool((far <= loose.error + loose.rad).all()), plan
        if plan.parts == 1:
            assert bool((far <= tight.error + tight.rad).all())
            assert float((far / tight.error)[tight.error > 0].max()) > 0.02
    exact = tight.error == 0
    assert 0.1 < float(exact.double().mean()) < 0.9
    assert bool((tight.error <= loose.error * (1 + 1e-9)).all())


def test_formulas_take_plans() -> None:
    unit = units.unit("hopper", "bfloat16")
    a, b = torch.randn(8, 40).bfloat16(), torch.randn(40, 6).bfloat16()
    n = IeeeSystem(F32, F32)
    found = n.matmul(Rounded(a.double(), n), Rounded(b.double(), n), units.Plan(unit, every=16))
    total = torch.zeros(8, 6)
    for k in range(0, 40, 16):
        total = total + unit.matmul(a[:, k : k + 16], b[k : k + 16])
    assert torch.equal(found.tensor, total.double())


# Faults


def faults() -> list[Any]:
    listed = [one for one in mutants.faults() if one[0] in ("mm", "int4_mm", "scaled_mm")]  # of others: test_mutants.py
    return [pytest.param(name, fault, dtype, id=f"{name}, {told}, {dtype}") for name, told, fault, dtype in listed]


@pytest.mark.parametrize(("name", "fault", "dtype"), faults())
def test_faults_are_killed(name: str, fault: Any, dtype: str) -> None:
    """In the cells of the quick profile."""
    found = [cell(name, own, fault, dtype) for own in facts(name).settings if own.quick and own.parameters["k"] > 32]
    if all(one["status"] == "passed" for one in found):
        further = facts(name).spellings.get("special") or setting("extreme", data="extreme")
        found.append(cell(name, further, fault, dtype))
    assert any(one["status"] in ("exceeds-bound", "unsteady") for one in found), [one["status"] for one in found]


@pytest.mark.parametrize("dtype", mutants.EVERY)
@pytest.mark.parametrize(("name", "variant"), mutants.VARIANTS)
def test_variants_pass(name: str, variant: Any, dtype: str) -> None:
    for own in (facts("mm").spellings["33x517x20"], facts("mm").spellings["special"]):
        found = cell("mm", own, variant, dtype)
        assert found["status"] == "passed", found["reason"]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_epilogues_fused_and_unfused_pass(dtype: str, stored: bool) -> None:
    product = mutants.Product(stored=stored)
    own = facts("addmm").spellings["64x80x48"]
    assert cell("addmm", own, product, dtype, alpha=1.0, beta=1.0)["status"] == "passed"
    assert cell("addmm", own, product, dtype, alpha=0.7, beta=-1.3)["status"] == "passed"
    for activation in ("relu", "silu"):
        own = setting(activation, activation=activation)
        assert cell("linear", own, product, dtype)["status"] == "passed"


@pytest.mark.parametrize("dtype", mutants.HALVES)
def test_weights_in_float32_or_in_the_dtype_pass(dtype: str) -> None:
    """As torch has them on the host, and as a matrix unit takes them."""
    own, to = facts("int4_mm").settings[0], mutants.rounded(getattr(torch, dtype))
    assert cell("int4_mm", own, mutants.Product(), dtype)["status"] == "passed"
    assert cell("int4_mm", own, mutants.Product(b=to), dtype)["status"] == "passed"
    # which of them it is, the bits tell
    problem = facts("int4_mm").problem(dtype, own, {}, 0)
    names = []
    for product in (mutants.Product(), mutants.Product(b=to)):
        y = product(problem)[""]
        found = products_formulas.searched(problem, CPU, dtype, y)
        names.append([t for t, make in found.items() if torch.equal(make(), y)])
    assert all("weights rounded to float32, scalar" in t for t in names[0]) and names[0]
    assert all(f"{dtype}, scalar" in t for t in names[1]) and names[1]


def test_weights_from_that_of_code_0_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's kernel for AVX2 has them: zero - 8 scale is rounded, however small the weights are beside it."""

    def product(problem: Any) -> dict[str, Tensor]:
        codes, scale, zero = products_data.stored_weights(problem)
        weights = (codes * scale + (zero - 8 * scale).float()).float()
        total = torch.zeros(problem.tensors["a"].shape[0], weights.shape[1])
        for a, row in zip(problem.tensors["a"].double().T, weights.double(), strict=True):
            total = (a[:, None] * row + total).float()  # a product has 32 bits
        return {"": total.bfloat16()}

    kernel = facts("int4_mm")
    problem = kernel.problem("bfloat16", kernel.settings[0], {}, 0)
    y = product(problem)[""]
    (told,) = [
        t for t, make in products_formulas.searched(problem, CPU, "bfloat16", y).items() if torch.equal(make(), y)
    ]
    assert told == "weights rounded to float32 from that of code 0, scalar float32: one chain"
    special = kernel.spellings["special"]
    statuses = []
    for capability in ("AVX512", "AVX2"):
        monkeypatch.setattr(CPU, "capability", lambda capability=capability: capability)
        statuses.append(cell("int4_mm", special, product, "bfloat16", "eager")["status"])
    assert statuses == ["exceeds-bound", "passed"]


def test_weights_that_float64_does_not_hold_are_refused() -> None:
    kernel = facts("int4_mm")
    problem = kernel.problem("bfloat16", kernel.settings[0], {}, 0)
    wide = mutants.of(zero=lambda t: t * 2.0**-80)(problem)
    with pytest.raises(UsageError, match="float64 does not hold all weights"):
        products_data.decoded(wide)
    with pytest.raises(UsageError, match="group=0: expected at least 1"):
        kernel.custom({"group": "0"})  # type: ignore[misc]
    with pytest.raises(UsageError, match="group=64, k=96: expected a k of whole groups"):
        kernel.custom({"group": "64", "k": "96"})  # type: ignore[misc]


def test_codes_of_a_misaligned_matrix_are_refused_before_a_gpu_faults() -> None:
    """torch._weight_int4pack_mm of an H200 ended with a misaligned address, after which nothing ran."""
    kernel = facts("int4_mm")
    given = [t.to("meta") for t in kernel.problem("bfloat16", kernel.settings[0], {}, 0).tensors.values()]
    given[0] = torch.empty(given[0].numel() + 1, dtype=torch.bfloat16, device="meta")[1:].view(given[0].shape)
    with pytest.raises(NotLowered, match="must be aligned to 16 bytes"), products_lowerings._absent():
        kernel.family.call(torch, *given)


@pytest.mark.parametrize("dtype", mutants.EIGHTHS)
def test_scales_once(dtype: str) -> None:
    assert cell("scaled_mm", facts("scaled_mm").settings[0], mutants.Product(), dtype)["status"] == "passed"


def test_integers_are_exact() -> None:
    own, ends = setting("own", m=16, k=300, n=8), setting("ends", m=24, k=300, n=18, data="extreme")
    for one in (own, ends):
        assert cell("int_mm", one, mutants.Product(), "int8")["status"] == "passed"
    for name, wrong, _ in mutants.OF_KERNELS["int_mm"]:
        where = ends if "-128" in name or "pairs" in name else own  # which only numbers at the ends show
        assert cell("int_mm", where, wrong, "int8")["status"] == "exceeds-bound", name


def test_a_listed_setting_is_not_one_s_own_of_the_same_words() -> None:
    """`k=0` is both: named, it is the listed one, and given by --set it has a name that gives it back."""
    [listed] = settings_of(facts("mm"), None, ("k=0",), "quick", "float32")
    assert listed == facts("mm").spellings["k=0"]
    [own] = settings_of(facts("mm"), {"k": "0"}, (), "quick", "float32")
    assert own.parameters["m"] != listed.parameters["m"]
    assert settings_of(facts("mm"), None, (own.name,), "quick", "float32") == [own]


# Refusals


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"m": "0"}, "m=0: expected at least 1"),
        ({"k": "-1"}, "k=-1"),
        ({"m": "x"}, "m=x: expected a whole number"),
        ({"m": "9000", "n": "9000"}, "elements of a matrix"),
        ({"layout": "transposed"}, "unknown layout 'transposed'"),
        ({"data": "mixt"}, "unknown data 'mixt'"),
        ({"layout": "interleaved"}, "expected a stack of matrices"),
    ],
)
def test_settings_that_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        products_settings.custom(given)


def test_shapes_that_do_not_multiply_are_an_error() -> None:
    found = cell("mm", SMALL, lambda problem: {"": problem.tensors["a"] @ problem.tensors["a"]}, "float32")
    assert found["status"] == "error" and "cannot be multiplied" in found["reason"]
    found = cell("mm", SMALL, lambda problem: {"": torch.zeros(12, 16)}, "float32")
    assert found["status"] == "error" and "shape" in found["reason"]


@pytest.mark.parametrize("first", PRECISIONS)
def test_switches_are_put_back(first: str) -> None:
    """Whatever was set before, each does what it does in a new process: `allow_tf32`, put back as it had been, hid
    `fp32_precision` from then on."""
    with switches.fresh():
        torch.set_float32_matmul_precision("highest")  # which writes to the new ones, too
        before = switches.read(), torch.backends.cuda.matmul.allow_fp16_accumulation
        with set_to(PRECISIONS[first]):
            pass
        for name, given in PRECISIONS.items():
            with set_to(given):
                tf32 = name in ("eager-tf32", "eager-allow-tf32", "eager-high", "eager-medium")
                assert switches.read()["cuda.matmul.fp32_precision"] == ("tf32" if tf32 else "none")
        assert (switches.read(), torch.backends.cuda.matmul.allow_fp16_accumulation) == before
        assert torch.get_float32_matmul_precision() == "highest"


def test_a_switch_that_inherits_still_does() -> None:
    with switches.fresh():
        torch.backends.fp32_precision = "tf32"
        with switches.fresh():
            torch.backends.cuda.matmul.fp32_precision = "ieee"
        assert switches.read()["cuda.matmul.fp32_precision"] == "tf32"
        torch.backends.fp32_precision = "ieee"
        assert switches.read()["cuda.matmul.fp32_precision"] == "ieee"


def test_what_a_lowering_is_held_to_is_told() -> None:
    """With the bound of the best algorithm beside it."""
    own = facts("mm").spellings["64x80x48"]
    problem = facts("mm").problem("float32", own, {}, 0)
    target = Target(facts("mm"), {}, own.name, "float32", CPU)
    for name, more in (("eager", 1.0), ("eager-medium", 50.0)):
        limit = products_limits.limit(problem, target, Lowering(name, lambda t: None, lambda t: None), "")  # type: ignore[arg-type,return-value]
        assert limit is not None and "float32 sums by halves have" in limit.source
        told = float(limit.source.split("sums by halves have ")[1].split()[0])
        assert told <= 1 / more


def test_instructions_of_older_gpus_are_allowed_to_libraries_alone() -> None:
    shape = facts("mm").problem("bfloat16", setting("own", m=12, k=70, n=9), {}, 0).extra["shape"]
    for name, due in (("eager", True), ("inductor", True), ("triton", False), ("triton-split-k", False)):
        place = products.Place(name, "cuda", "hopper", "bfloat16", "bfloat16", shape, {})
        assert any("m16n8k8" in str(one) for one in products_limits.algorithms(place)) == due


IN_PLACE = {
    dtype: units.Plan(units.unit("hopper", *of), parts=3, grain=8, stored="float32", adding=dtype)
    for dtype, of in (("bfloat16", ("bfloat16", "float32", "m16n8k8")), ("float16", ("float16",)))
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("lowering", ["eager", "inductor"])
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_parts_that_a_library_adds_in_the_dtype_are_within_the_bound(
    activation: str, lowering: str, dtype: str
) -> None:
    """As an H200 does by default with 33 x 517 x 20: onto the bias, and where sums of whole numbers are beyond the
    dtype's. Inductor calls the same function."""
    own = setting("own", m=33, k=517, n=20, activation=activation)
    problem = facts("linear").problem(dtype, own, {}, 0)
    bare = facts("addmm").problem(dtype, setting("own", m=33, k=517, n=20), {"alpha": 1.0, "beta": 1.0}, 0)
    one = products_formulas.Candidate(IN_PLACE[dtype], epilogue="onto")
    y = one(bare, products_limits.factors(products_formulas._Plain(), bare), dtype)
    y = torch.nn.functional.silu(y) if activation == "silu" else y
    within(problem, y, lowering, dtype, "linear")


def within(problem: Any, y: Tensor, lowering: str, dtype: str, kernel: str) -> None:
    """Of Hopper's bounds, all of which are finite."""
    place = products.Place(
        lowering, "cuda", "hopper", dtype, dtype, problem.extra["shape"], problem.scalars, facts(kernel).family.bias
    )
    found = products_limits.algorithms(place)
    bound = torch.stack([products_limits.kept(problem, one, dtype) for one in found]).amax(0)
    due = Truths(facts(kernel).family, problem, "cpu", LIBRARY).enclose("")[0].mid.reshape(y.shape)
    assert bool(bound.isfinite().all())
    far = (y.double() - due).abs()
    assert bool((far <= bound * (1 + 2.0**-20) + due.abs() * 2.0**-40).all()), float((far / bound).nan_to_num().max())


def test_a_product_and_its_sum_may_both_be_rounded_before_an_activation() -> None:
    """As an H200 does without reductions in the dtype."""
    own = setting("own", m=33, k=517, n=20, activation="silu")
    problem = facts("linear").problem("bfloat16", own, {}, 0)
    t = problem.tensors
    y = torch.nn.functional.silu((t["a"].double() @ t["b"].double()).bfloat16() + t["bias"])
    within(problem, y, "eager-full", "bfloat16", "linear")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_stored_parts_are_exact_where_the_dtype_holds_them(dtype: str) -> None:
    """Whole numbers whose sums stay below 2^p: 0 is the bound of them, of others it is not."""
    most = 1 << units.FORMATS[dtype].precision
    signs = torch.tensor([1.0, -1.0]).repeat(64)
    a = torch.stack([torch.full((128,), 3.0) * signs, torch.full((128,), 3.0), (torch.arange(128) < most // 4).float()])
    n = Roundoff(F32, units.FORMATS[dtype])
    unit = units.unit("hopper", dtype)
    given = n.given(a.double()), n.given(torch.full((128, 1), 3.0).double())
    free, stored = (n.matmul(*given, Blocks(unit, 32, stored=stored)).error[:, 0] for stored in (False, True))
    assert bool((free == 0).all())
    # sums reach 9, 1,152 and at most 3/4 of 2^p
    assert (stored == 0).tolist() == [True, 1152 < most, True]


@pytest.mark.parametrize("how", [{"pieces": 32}, {"pieces": 32, "stored": True}, {}])
def test_a_stack_of_many_matrices_is_bounded_as_each_alone(how: dict[str, Any]) -> None:
    """Exact where only some are; 70,001 of them once took 90 s."""
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, generator=draw).half().double() for size in ((70_001, 1, 3), (70_001, 3, 2)))
    a[::2], b[::2] = a[::2].round(), b[::2].round()
    off = torch.zeros_like(a)
    off[1::4] = 2.0**-20
    n, order = Roundoff(F32, units.FORMATS["float16"]), Blocks(units.unit("hopper", "float16"), **how)
    found = n.matmul(n.given(a, off), n.given(b), order)
    assert 0.4 < float((found.error == 0).double().mean()) < 0.6
    for i in (*range(40), 70_000):
        alone = n.matmul(n.given(a[i], off[i]), n.given(b[i]), order)
        for name in ("mid", "rad", "error"):
            torch.testing.assert_close(getattr(found, name)[i], getattr(alone, name), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("powers", [False, True])
def test_silu_is_bounded_wherever_its_argument_may_lie(powers: bool) -> None:
    """Of arguments that are far off, beside the threshold of exp, and exact, whichever way it is written; with a power
    of two, which is beyond the bound of the others from -20 on."""
    n = products_limits._Products(F32, F32, {(name, "float32"): products_limits.OWN for name in ("exp", "div")})
    y = torch.cat([torch.linspace(-104, 20, 2001), torch.tensor([-88.7, -88.73, -87.4, -1000.0, 0.0, 2.4, 500.0])])
    truth = lambda t: t / (1 + torch.exp(-t))  # noqa: E731
    for far in (0.0, 2.0**-20, 0.1, 3.0, 40.0):
        found = products_limits._silu(n, n.given(y.double(), 0.0, far), powers=powers)
        assert bool(found.error.isfinite().all())
        assert bool(((truth(y.double()) - found.mid).abs() <= found.rad).all())
        for moved in torch.linspace(-far, far, 9).tolist():
            x = (y.double() + moved).float()
            x = x.clamp(min=y.double() - far, max=y.double() + far).float() if far else y
            inside = (x.double() - y.double()).abs() <= far
            ways = [x / (1 + torch.exp(-x)), x * torch.sigmoid(x), torch.nn.functional.silu(x)]
            by_powers = x / (1 + torch.exp2(-x * 1.4426950408889634))
            for got in (*ways, *[by_powers] * powers):
                assert bool(((got.double() - found.mid).abs() <= found.error + found.rad)[inside].all())
            if not powers and not far:
                beyond = (by_powers.double() - found.mid).abs() > found.error + found.rad
                assert bool(beyond[y < -20].any()) and not bool(beyond[y > -2].any())
        if powers:  # of which nothing is seen where the exponential is small
            usual = products_limits._silu(n, n.given(y.double(), 0.0, far)).error
            assert bool((found.error <= 1.05 * usual)[y > 0].all())
        elif far:  # the bound is not idle
            ends = torch.stack([truth(y.double() + t) for t in torch.linspace(-far, far, 33)])
            spread = (ends - found.mid).abs().amax(0)
            assert float((found.error / spread)[y > -80].median()) < 1.5 + 2.0**-19 / far


@pytest.mark.parametrize(
    ("lowering", "k", "due"), [("eager-full", 0, True), ("triton", 0, False), ("eager", 70, False)]
)
def test_torch_rounds_beta_where_a_gpu_has_no_term_to_add(lowering: str, k: int, due: bool) -> None:
    given = facts("addmm").problem("bfloat16", setting("own", m=12, k=k, n=9), {"alpha": 0.7, "beta": -1.3}, 0)
    place = products.Place(
        lowering, "cuda", "hopper", "bfloat16", "bfloat16", given.extra["shape"], {"alpha": 0.7, "beta": -1.3}, True
    )
    assert any(one.narrow for one in products_limits.algorithms(place)) == due


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_lowerings_are_held_to_on_hopper_covers_its_units(dtype: str) -> None:
    """Chains of the unit, split and added in float32, and in float16 where sums are allowed to be."""
    own = setting("own", m=12, k=70, n=9)
    problem = facts("mm").problem(dtype, own, {}, 0)
    source = Truths(facts("mm").family, problem, "cpu", LIBRARY)
    due = source.enclose("")[0].mid.reshape(12, 9)
    for name in products.LOWERINGS:
        place = products.Place(name, "cuda", "hopper", dtype, dtype, problem.extra["shape"], {})
        found = products_limits.algorithms(place)
        bound = torch.stack([products_limits.kept(problem, one, dtype) for one in found]).amax(0)
        split = products_limits._split(name, place)
        kind = "tf32" if split == "tf32" else dtype
        parted = split.endswith(("x3", "x6"))
        if split in ("", "tf32") or parted:
            plain = dtype in ("float32", "float64") and not split
            unit: Any = units.scalar(dtype) if plain or parted else units.unit("hopper", kind)
            if parted:
                unit = units.Split(split, units.unit("hopper", "tf32" if split == "tf32x3" else "bfloat16"))
            plans = [units.Plan(unit), units.Plan(unit, parts=4), units.Plan(unit, every=64)]
            if name.endswith("fp16-sums") and dtype == "float16":
                plans.append(units.Plan(units.unit("hopper", dtype, "float16"), adding="float16"))
            for plan in plans:
                y = plan.product(problem.tensors["a"], problem.tensors["b"]).to(getattr(torch, dtype)).double()
                assert bool(((y - due).abs() <= bound * (1 + 2.0**-20) + due.abs() * 2.0**-40).all()), (name, plan)
        assert bool(bound.isfinite().all()), name


#: Of so many terms that no bound of all that cuBLAS may do in float16 resolves them; and of numbers that may overflow.
LONG = setting("long", m=24, k=1024, n=24, activation="relu")
OVERFLOWING = setting("overflowing", m=24, k=1040, n=18, data="extreme", activation="relu")


def _right(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(torch.nn.functional.linear(a, b.mT, bias))


def _halves(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """Sums of parts kept in float16, as cuBLAS may: no bound of that tells a fault of a hundredth."""
    half = a.shape[1] // 2
    return torch.relu(a[:, :half] @ b[:half] + a[:, half:] @ b[half:] + bias)


def _unstated(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """Wrong wherever sums may overflow on the way, of which nothing is stated."""
    problem = Instance(facts("linear"), OVERFLOWING, {}, "float16", CPU, 0).problem
    target = Target(facts("linear"), {}, OVERFLOWING.name, "float16", CPU)
    limit = products_limits.limit(problem, target, Lowering("mine.py:f", lambda _: None, lambda _: None), "")
    y = _right(a, b, bias)
    assert limit is not None and limit.bound.isinf().any()
    return torch.where(limit.bound.isinf() & y.isfinite(), 42.0, y)


def _beside(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    y = _right(a, b, bias)
    y[:, ::7] *= 1 + 2.0**-8
    return y


@pytest.mark.parametrize(("function", "status"), [
    (_right, "passed"), (_halves, "unjudged"), (_beside, "unjudged|exceeds-bound")
])  # fmt: skip
def test_one_known_algorithm_that_is_kept_resolves_what_all_together_do_not(
    monkeypatch: pytest.MonkeyPatch, function: Any, status: str
) -> None:
    """As on an H200, where torch's own product of 1,024 terms in float16 was refused as a user's function."""
    of = products_limits.place_of
    there = {"backend": "cuda", "architecture": "hopper", "capability": "9.0"}
    monkeypatch.setattr(products_limits, "place_of", lambda *given: dataclasses.replace(of(*given), **there))
    own = next(one for one in facts("linear").settings if one.name == "128x1024x128 relu")
    found = cell("linear", own, lambda problem: {"": function(*problem.tensors.values())}, "float16")
    assert found["status"] in status.split("|"), found["reason"]
    assert (found["status"] == "passed") == ("|" not in found["bound"]["source"])


@pytest.mark.parametrize(("function", "called", "of", "expected"), [
    (_right, "passed", "eager", True), (_right, "unsteady", "eager", False), (_halves, "passed", "eager", False),
    (_halves, "passed", "*", True), (_halves, "unsteady", "*", False), (_unstated, "passed", "*", False),
])  # fmt: skip
def test_a_users_function_has_allowances_for_all_and_with_eagers_bits_eagers(
    monkeypatch: pytest.MonkeyPatch, function: Any, called: str, of: str, expected: bool
) -> None:
    """Nothing tells more of what torch computes there than of its own call; other calls are excused by nothing."""
    place_of = products_limits.place_of
    there = {"backend": "cuda", "architecture": "hopper", "capability": "9.0"}
    monkeypatch.setattr(products_limits, "place_of", lambda *given: dataclasses.replace(place_of(*given), **there))
    monkeypatch.setattr(Instance, "ways", lambda self, target: {})
    every = tuple(Allowance(of, ("*",), ("*",), id=one, status=one, cap=1, reason="as stated") for one in ALLOWABLE)
    monkeypatch.setattr(ledger, "allowances", lambda *given: every)
    monkeypatch.setattr(
        "verify.walk.walk.call_problems", lambda *given, **options: Called(status=called, told="they do")
    )
    own = next(one for one in facts("linear").settings if one.name == "128x1024x128 relu")
    own = OVERFLOWING if function is _unstated else LONG
    target = Target(facts("linear"), {}, own.name, "float16", CPU)
    one = Lowering(
        "mine.py:f", lambda target: lambda problem: {"": function(*problem.tensors.values())}, lambda target: None
    )
    [found] = fill(Job(target, one, mine=True, setting=own, calls=True), [], Selection(("linear",)))
    assert found["status"] == ("unjudged" if called == "passed" else called)
    assert found["allowance"] == ("unjudged" if expected else "")
    assert code_of(Cell.model_validate(found)) == (0 if expected else 1)


@pytest.mark.parametrize(("refuses", "status"), [(True, "not-run"), (False, "error")])
def test_a_users_function_may_refuse_what_eager_refuses(
    monkeypatch: pytest.MonkeyPatch, refuses: bool, status: str
) -> None:
    """torch._int_mm takes no matrix of one row on a GPU."""
    if refuses:
        monkeypatch.setattr(Instance, "eager", lambda *given: None)

    def raises(problem: Any) -> Any:
        raise RuntimeError("self.size(0) needs to be greater than 16")

    found = cell("int_mm", facts("int_mm").settings[0], raises, "int8")
    assert found["status"] == status and "needs to be greater" in found["reason"]
