"""Formulas of matrix products: outputs made by a unit are named, and what differs from it by one thing is not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from verify import backends
from verify.facts.kernel import Composite, UsageError, load
from verify.families import products_formulas
from verify.families.composite import Part
from verify.families.products_formulas import Candidate
from verify.families.products_settings import setting
from verify.families.products_truth import factors
from verify.judge.chunk import Formulas
from verify.numbers import units
from verify.numbers.units import SPLITS, Plan, Split, Unit

pytestmark = pytest.mark.part(2)

Tensor = torch.Tensor
UNIT = units.unit("hopper", "bfloat16")
TF32 = units.unit("hopper", "tf32")
HALF = units.unit("hopper", "float16")
EIGHTH = units.unit("hopper", "float8_e4m3fn", "float32", "wgmma")


@dataclass(frozen=True)
class Gpu:
    """As much of a backend as a formula depends on."""

    name: str = "cuda"

    def capability(self) -> str:
        return "sm_90"


def facts(name: str) -> Composite:
    found = load(name)
    assert isinstance(found, Composite)
    return found


def outputs(
    name: str, dtype: str, one: Candidate, k: int = 264, size: int = 24, **scalars: float
) -> tuple[Any, Tensor, str]:
    """A problem, what a candidate computes for it, and the dtype of that."""
    kernel = facts(name)
    problem = kernel.problem(dtype, setting("own", m=size, k=k, n=size), scalars, 0)
    result = kernel.family.result(dtype)
    return problem, one(problem, factors(products_formulas._Plain(), problem), result), result


def named(problem: Any, y: Tensor, result: str, backend: Any = Gpu()) -> list[str]:
    """The formulas that explain every output."""
    found = products_formulas.searched(problem, backend, result, y)
    return [text for text, make in found.items() if torch.equal(whole(make()), y)]


def whole(made: Tensor | Part) -> Tensor:
    assert isinstance(made, Tensor)
    return made


RIGHT = [
    ("mm", "bfloat16", Candidate(Plan(UNIT)), {}),
    ("mm", "bfloat16", Candidate(Plan(UNIT, parts=4)), {}),
    ("mm", "bfloat16", Candidate(Plan(UNIT, parts=4, dealt=True)), {}),
    ("mm", "bfloat16", Candidate(Plan(UNIT, every=128)), {}),
    ("mm", "bfloat16", Candidate(Plan(UNIT, parts=4, tree="neighbours")), {}),
    ("mm", "float16", Candidate(Plan(HALF, parts=4, adding="float16")), {}),
    ("mm", "float32", Candidate(Plan(TF32, parts=8)), {}),
    ("mm", "float32", Candidate(Plan(units.scalar("float32"), panel=256)), {}),
    ("mm", "float64", Candidate(Plan(units.scalar("float64"))), {}),
    ("mm", "float32", Candidate(Plan(Split("tf32x3", TF32), every=64)), {}),
    ("mm", "float32", Candidate(Plan(Split("bf16x3", UNIT), every=32)), {}),
    ("mm", "float32", Candidate(Plan(Split("bf16x6", UNIT), every=64)), {}),
    ("mm", "bfloat16", Candidate(Plan(UNIT, parts=2, grain=64)), {}),
    ("mm", "float16", Candidate(Plan(units.unit("hopper", "float16", "float16"))), {}),
    ("addmm", "bfloat16", Candidate(Plan(UNIT)), {"alpha": 1.0, "beta": 1.0}),
    ("addmm", "bfloat16", Candidate(Plan(UNIT), epilogue="first"), {"alpha": 1.0, "beta": 1.0}),
    ("addmm", "bfloat16", Candidate(Plan(UNIT), epilogue="stored"), {"alpha": 1.0, "beta": 1.0}),
    (
        "addmm",
        "bfloat16",
        Candidate(Plan(UNIT, parts=4, stored="float32", adding="bfloat16"), epilogue="onto"),
        {"alpha": 1.0, "beta": 1.0},
    ),
    ("mm", "bfloat16", Candidate(Plan(UNIT, parts=4, stored="float32", adding="bfloat16")), {}),
    ("addmm", "float32", Candidate(Plan(TF32), epilogue="fma"), {"alpha": 0.7, "beta": -1.3}),
    ("scaled_mm", "float8_e4m3fn", Candidate(Plan(EIGHTH)), {"fast": 1.0}),
    ("scaled_mm", "float8_e4m3fn", Candidate(Plan(EIGHTH, every=128)), {"fast": 0.0}),
]


@pytest.mark.parametrize(("name", "dtype", "one", "scalars"), RIGHT, ids=lambda v: str(getattr(v, "plan", v)))
def test_a_formula_is_named(name: str, dtype: str, one: Candidate, scalars: dict[str, float]) -> None:
    problem, y, result = outputs(name, dtype, one, **scalars)
    shape = problem.extra["shape"]
    simple = name in ("mm",)
    assert named(problem, y, result) == [one.text(shape, simple)]


def changed(**changes: Any) -> Candidate:
    return Candidate(Plan(replace(UNIT, **changes)))


WRONG = [
    ("F + 1", changed(fraction=26)),
    ("F - 1", changed(fraction=24)),
    ("K a quarter", changed(terms=4)),
    ("K doubled", changed(terms=32)),
    ("result cut to 22 bits", changed(kept=22)),
    ("c added after the block", changed(separate=16)),
    ("two terms of four in each block", changed(groups=2, run=2, separate=0, terms=16)),
]


@pytest.mark.parametrize(("what", "one"), WRONG)
def test_another_unit_is_not_named(what: str, one: Candidate) -> None:
    problem, y, result = outputs("mm", "bfloat16", one, k=256)
    # adding c after each block is what as many pieces as blocks give
    same = [str(Plan(UNIT, parts=16))] if one.plan.unit.separate else []
    assert named(problem, y, result) == same


def test_nearest_for_cut_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit whose terms are rounded to nearest."""
    problem, right, result = outputs("mm", "bfloat16", Candidate(Plan(UNIT)))
    monkeypatch.setattr(torch.Tensor, "trunc_", torch.Tensor.round_)
    monkeypatch.setattr(Unit, "_natively", lambda *_: None)
    problem, y, result = outputs("mm", "bfloat16", Candidate(Plan(UNIT)))
    monkeypatch.undo()
    assert not torch.equal(right, y)
    assert named(problem, y, result) == []


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("tf32x3", ((0, 1), (1, 0), (0, 0))),
        ("tf32x3", ((1, 0), (0, 0))),
        ("bf16x3", ((0, 1), (1, 0), (0, 0))),
        ("bf16x3", ((1, 1), (1, 0), (0, 1), (0, 0))),
        ("bf16x6", ((0, 2), (2, 0), (1, 1), (0, 1), (1, 0), (0, 0))),
        ("bf16x6", ((2, 0), (0, 2), (1, 0), (0, 1), (0, 0))),
    ],
)
def test_other_products_of_parts_are_not_named(name: str, pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another order, one left out, one too many. Which of the small products comes first shows in few outputs."""
    unit, size = TF32 if name == "tf32x3" else UNIT, 24 if set(pairs) != set(SPLITS[name][2]) else 128
    monkeypatch.setitem(SPLITS, name, (*SPLITS[name][:2], pairs))
    problem, y, result = outputs("mm", "float32", Candidate(Plan(Split(name, unit), every=64)), size=size)
    monkeypatch.undo()
    assert named(problem, y, result) == []


def test_parts_are_the_number_and_an_infinity_is_kept() -> None:
    t = torch.randn(40, 50) * 2.0 ** torch.randint(-20, 20, (40, 50))
    for name, left in (("tf32x3", 0.0), ("bf16x3", 2.0**-17), ("bf16x6", 2.0**-25)):
        split = Split(name, TF32 if name == "tf32x3" else UNIT)
        parts = split.parted(t)
        assert len(parts) == SPLITS[name][1]
        rest = t.double() - torch.stack(parts).double().sum(0)
        assert bool((rest.abs() <= left * t.abs()).all())
        a, b = torch.tensor([[torch.inf, 1.0]]), torch.tensor([[1.0], [2.0]])
        assert split.product(a, b).item() == torch.inf
    tie = torch.tensor([[1 + 2.0**-11]])
    assert Split("tf32x3", TF32).parted(tie)[0].item() == 1 + 2.0**-10  # away from 0
    assert Split("bf16x3", UNIT).parted(torch.tensor([[1 + 2.0**-8]]))[0].item() == 1.0  # to even


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        (Candidate(Plan(UNIT, parts=4)), Candidate(Plan(UNIT, parts=4, tree="neighbours"))),
        (Candidate(Plan(UNIT, every=128)), Candidate(Plan(UNIT, every=64))),
        (Candidate(Plan(UNIT, parts=2)), Candidate(Plan(UNIT, parts=2, dealt=True))),
    ],
)
def test_another_order_is_told_apart(declared: Candidate, given: Candidate) -> None:
    """Splits in another order, promotion every 64 for 128."""
    problem, y, result = outputs("mm", "bfloat16", given)
    texts = named(problem, y, result)
    assert declared.text(problem.extra["shape"], True) not in texts
    assert texts == [given.text(problem.extra["shape"], True)]


def test_where_the_bias_enters_is_told_apart() -> None:
    seen = {}
    for epilogue in ("after", "first", "stored"):
        problem, y, result = outputs("addmm", "bfloat16", Candidate(Plan(UNIT), epilogue=epilogue), alpha=1.0, beta=1.0)
        [seen[epilogue]] = named(problem, y, result)
    assert len(set(seen.values())) == 3


def test_how_much_a_formula_explains_is_told() -> None:
    """One wrong output: the formula explains all others."""
    problem, y, result = outputs("mm", "bfloat16", Candidate(Plan(UNIT, parts=2)))
    y[5, 5] = -y[5, 5]
    found = products_formulas.searched(problem, Gpu(), result, y)
    counts = {text: int((make() != y).sum()) for text, make in found.items()}
    assert counts[Candidate(Plan(UNIT, parts=2)).text(problem.extra["shape"], True)] == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_eager_computes_on_this_host_has_a_name(dtype: str) -> None:
    """Of the libraries that the host's torch may call, those of x86."""
    if torch.backends.cpu.get_cpu_capability() not in ("AVX512", "AVX2") or not torch.backends.mkl.is_available():
        pytest.skip("formulas are known of MKL and oneDNN on x86")
    cpu = backends.load("cpu")
    problem = facts("mm").problem(dtype, facts("mm").spellings["64x80x48"], {}, 0)
    y = problem.tensors["a"] @ problem.tensors["b"]
    texts = named(problem, y, dtype, cpu)
    if dtype in ("float32", "float64"):
        assert texts == [f"scalar {dtype}: one chain"]
    found = products_formulas.searched(problem, cpu, dtype, y)
    assert found and all(make().shape == y.shape for make in found.values())


def test_nothing_is_looked_for_where_nothing_can_be_told() -> None:
    problem, y, result = outputs(
        "mm", "float32", Candidate(Plan(Unit("scalar", "float32", "float32", "chain", 1))), k=4
    )
    assert products_formulas.searched(problem, Gpu(), result, y) == {}


def test_a_large_product_is_tried_on_some_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Candidate(Plan(UNIT, parts=4))
    problem, y, result = outputs("mm", "bfloat16", one)
    monkeypatch.setattr(products_formulas, "MOST", 264 * 100)
    (text, make), *others = products_formulas.searched(problem, Gpu(), result, y).items()
    part = make()
    assert not others and isinstance(part, Part)
    assert text == f"{one.text(problem.extra['shape'], True)}; tried on 10 rows and 10 columns"
    assert torch.equal(part.values, y.reshape(-1)[part.places]) and len(part.places) == 100
    formulas = Formulas(lambda index: {text: part.values}, names=(text,), places={text: part.places})
    changed = y.reshape(-1).clone()
    changed[part.places[37:39]] += 1.0
    assert list(formulas.wrong(y.reshape(-1))) == [(0, -1)]
    assert list(formulas.wrong(changed)) == [(2, int(part.places[37]))]


def test_cubes_up_to_4096_are_taken() -> None:
    kernel = facts("mm")
    assert kernel.custom is not None
    assert kernel.custom(dict.fromkeys(("m", "k", "n"), "4096")).parameters["m"] == 4096
    with pytest.raises(UsageError, match="expected at most"):
        kernel.custom(dict.fromkeys(("m", "k", "n"), "4097"))
