"""Outputs that tensors do not judge, of float64, and integers: an element is wrong wherever it lies."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch

from verify import backends
from verify.facts import kernel
from verify.facts.kernel import Composite
from verify.judge import chunk
from verify.judge.cell import standing, standing_of
from verify.judge.chunk import Judge
from verify.lower.lowering import Target
from verify.lower.lowerings import lowerings
from verify.walk import instance
from verify.walk.cases import terms
from verify.walk.instance import Instance

CPU = backends.load("cpu")
#: Kernels with outputs of float64 or of integers, which are judged as such.
KERNELS = [
    (name, dtype)
    for name in kernel.names()
    for dtype in ("float64", "int8")
    if isinstance(facts := kernel.load(name), Composite) and dtype in facts.dtypes
]
MANY = {"m": "31", "k": "40", "n": "33"}  # outputs, of which 256 are drawn


def instance_of(name: str, dtype: str) -> tuple[Instance, Target]:
    facts = kernel.load(name)
    assert isinstance(facts, Composite) and facts.custom is not None
    given = facts.batched(35, 65) if facts.batched else facts.sized(33)[0] | MANY
    setting = replace(facts.custom(given), name="many")
    return (
        Instance(facts, setting, facts.cases[0], dtype, CPU, 0),
        Target(facts, facts.cases[0], setting.name, dtype, CPU),
    )


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(("name", "dtype"), KERNELS)
def test_one_wrong_element_is_found(name: str, dtype: str, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the walk and by other calls, in double-double, and of large outputs in float64."""
    monkeypatch.setattr(instance, "SCREENED", 1 << 14 if small else 0)
    one, on = instance_of(name, dtype)
    eager = lowerings(one.kernel)[0]
    draw = random.Random(f"{name} {dtype}")
    outputs = one.eager(0, eager, on)
    assert outputs
    for output, right in outputs.items():
        (term,) = terms(one, on, eager, 0, output, right)[1].values()
        assert standing(term.judge.doubts(term.elements, right.reshape(-1))) == "passed"
        values = right.reshape(-1).tolist()
        places = [k for k, v in enumerate(values) if math.isfinite(v) and v]
        for wrong in (lambda v: v * (1 + 1e-7) if dtype == "float64" else v + 1, lambda v: v * 0, lambda v: v / 0):
            y = right.reshape(-1).clone()
            place = draw.choice(places)
            y[place] = wrong(y[place])
            for tally in (term.judge.tally(term.elements, y), term.judge.doubts(term.elements, y)):
                assert standing(tally) in ("exceeds-bound", "suspect"), (output, place, y[place])
            assert standing_of(term.judge, term.elements, y) == standing(term.judge.doubts(term.elements, y))
        assert standing_of(term.judge, term.elements, right.reshape(-1)) == "passed"


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "mm", "int_mm"])
def test_of_many_wrong_elements_a_few_tell(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each of a thousand would go through multiprecision, in every call: 26 s instead of 6 for the calls of a
    `rms_norm` that computes in float32, and 175 s instead of 5 of an `int_mm` that keeps what it was given before.
    Where the few do not tell, as where something excuses them, all do."""
    one, on = instance_of(name, "int8" if name == "int_mm" else "float64")
    eager = lowerings(one.kernel)[0]
    outputs = one.eager(0, eager, on)
    assert outputs
    (output, right), *_ = outputs.items()
    (term,) = terms(one, on, eager, 0, output, right)[1].values()
    y, asked = right.reshape(-1), []
    y = y + 1 if name == "int_mm" else y * (1 + 1e-9)
    whole = Judge.exactly
    monkeypatch.setattr(Judge, "exactly", lambda *given: asked.append(len(given[2])) or whole(*given))
    assert standing_of(term.judge, term.elements, y) == "exceeds-bound"
    assert sum(asked) <= instance.TELLING < len(y)
    monkeypatch.setattr(type(term.elements), "far", lambda self, y: torch.tensor([0]))
    y = right.reshape(-1).clone()
    y[3] = y[3] * 1.01 + 1
    assert standing_of(term.judge, term.elements, y) == "exceeds-bound"


def test_an_element_that_is_not_a_number_is_doubted() -> None:
    one, on = instance_of("softmax", "float64")
    eager = lowerings(one.kernel)[0]
    outputs = one.eager(0, eager, on)
    assert outputs
    y = outputs[""].reshape(-1).clone()
    y[77] = torch.nan
    (term,) = terms(one, on, eager, 0, "", outputs[""])[1].values()
    assert 77 in term.elements.picked(y).tolist() and 77 in term.elements.doubted(y).tolist()


#: Rows whose results are zeros, by kernel: where exp vanishes, where a factor is zero, of numbers that are zeros.
ZEROS = {
    "softmax": [0.0, -800.0, -750.0, 1.0], "cumprod": [2.0, -0.0, 3.0, -1.0], "cummax": [-1.0, -0.0, -2.0, -3.0],
    "rms_norm": [0.0, -0.0, 1.0, 2.0],
}  # fmt: skip


@pytest.mark.parametrize("name", ZEROS)
def test_the_sign_of_a_zero_counts_and_is_mostly_known_without_multiprecision(name: str) -> None:
    one, on = instance_of(name, "float64")
    first, *others = one.problem.tensors
    row = torch.tensor(ZEROS[name], dtype=torch.float64)
    rows = torch.cat([row, torch.ones(one.problem.tensors[first].shape[1] - len(row), dtype=torch.float64)])
    one = one.of({first: rows.repeat(35, 1), **{k: torch.ones_like(one.problem.tensors[k]) for k in others}})
    outputs = one.eager(0, lowerings(one.kernel)[0], on)
    assert outputs
    y = outputs[""].reshape(-1)
    (term,) = terms(one, on, lowerings(one.kernel)[0], 0, "", outputs[""])[1].values()
    zeros = (y == 0).nonzero()[:, 0]
    assert len(zeros) and standing(term.judge.tally(term.elements, y)) == "passed"
    assert not torch.isin(zeros, term.elements.doubted(y)).any()
    for place in zeros[:4].tolist():
        wrong = y.clone()
        wrong[place] = -wrong[place]
        assert place in term.elements.doubted(wrong).tolist()
        assert standing(term.judge.doubts(term.elements, wrong)) == "exceeds-bound"


def test_where_only_passing_is_asked_a_few_tell_that_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond one algorithm's bound: else all would go through multiprecision before the next algorithm is tried."""
    one, on = instance_of("mm", "float64")
    eager = lowerings(one.kernel)[0]
    outputs = one.eager(0, eager, on)
    assert outputs
    (term,) = terms(one, on, eager, 0, "", outputs[""])[1].values()
    bounds = term.elements.bounds
    limit = replace(bounds, bound=bounds.bound * 0 + 1e-300, beyond=(("order", bounds.bound),))
    y, asked = outputs[""].reshape(-1), list[int]()
    whole = Judge.exactly
    monkeypatch.setattr(Judge, "exactly", lambda *given: asked.append(len(given[2])) or whole(*given))
    for briefly in (True, False):
        asked.clear()
        assert standing_of(term.judge, term.elements.bounded(limit), y, briefly=briefly) == "suspect"
        assert (sum(asked) <= instance.TELLING) == briefly


def many(name: str, given: dict[str, str]) -> tuple[Instance, Target, torch.Tensor]:
    """A call's problem in float64, and eager's output."""
    facts = kernel.load(name)
    assert isinstance(facts, Composite) and facts.custom is not None
    setting = replace(facts.custom(given), name="many")
    one = Instance(facts, setting, facts.cases[0], "float64", CPU, 0)
    on = Target(facts, facts.cases[0], setting.name, "float64", CPU)
    outputs = one.eager(0, lowerings(facts)[0], on)
    assert outputs
    return one, on, outputs[""]


def test_of_what_double_double_leaves_open_some_are_judged() -> None:
    """1,485 of 6,144, in half a second; and every one that is certainly wrong."""
    one, on, right = many("rms_norm", {"shape": "3x2048", "recipe": "tiny,wide,random"})
    (term,) = terms(one, on, lowerings(one.kernel)[0], 0, "", right)[1].values()
    y = right.reshape(-1).clone()
    assert len(term.elements.doubted(y)) <= instance.OF_CALLS
    places = [int(k) for k in (y.abs() > 1e-3).nonzero()[:, 0][::700]]
    y[places] *= 1 + 1e-13
    assert set(places) <= set(term.elements.doubted(y).tolist())
    zero = int((one.problem.tensors["x"].reshape(-1) == 0).nonzero()[0, 0])
    y = right.reshape(-1).clone()
    y[zero] = -y[zero]
    assert y[zero] == 0 and zero in term.elements.doubted(y).tolist()
    for value in (torch.nan, torch.inf):
        for place in (places[0], int((right.reshape(-1) != 0).nonzero()[7, 0])):
            y = right.reshape(-1).clone()
            y[place] = value
            assert place in term.elements.doubted(y).tolist()
    tiny = (right.reshape(-1).abs() < 1e-307) & (right.reshape(-1) != 0)
    assert tiny.sum() > 500
    y = torch.where(tiny, 0.0, right.reshape(-1))  # flushed
    assert standing(term.judge.doubts(term.elements, y)) == "exceeds-bound"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(
            (name, {"shape": shape, "dim": dim, "recipe": "random"})
            for name, shape, dim in (("softmax", "300x128", "-1"), ("cumsum", "130x300", "0"), ("sum", "20000x4", "-1"))
        ),
        ("mm", {"m": "130", "k": "40", "n": "227"}),
        ("bmm", {"batch": "9", "m": "66", "k": "70", "n": "66"}),
    ],
)
def test_of_many_outputs_some_rows_are_judged_one_by_one(name: str, given: dict[str, str]) -> None:
    """There float64 alone would not tell so little, which in the other rows it does not."""
    one, on, right = many(name, given)
    (term,) = terms(one, on, lowerings(one.kernel)[0], 0, "", right)[1].values()
    y = right.reshape(-1)
    assert len(y) > instance.SCREENED
    drawn = one.source.drawn(instance.DRAWN)
    assert len(drawn.unique()) == len(drawn) and 1000 < len(drawn) <= instance.DRAWN
    bound = term.elements.bounds.bound.reshape(-1)
    place = int(drawn[int(bound[drawn].argmax())])
    wrong = y.clone()
    wrong[place] += 2.2 * bound[place]
    assert place in term.elements.doubted(wrong).tolist()
    assert standing(term.judge.doubts(term.elements, wrong)) in ("exceeds-bound", "suspect")
    assert standing(term.judge.doubts(term.elements, y)) == "passed"


@pytest.mark.parametrize(("name", "dtype"), [("mm", "float16"), ("softmax", "float32"), ("linear", "bfloat16")])
def test_where_only_passing_is_asked_of_tensors_too_a_few_tell_that_it_does_not(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long product in float16 on a GPU is tried by a dozen algorithms, each of which took as long as the one that it
    keeps."""
    one, on = instance_of(name, dtype)
    eager = lowerings(one.kernel)[0]
    outputs = one.eager(0, eager, on)
    assert outputs
    (term,) = terms(one, on, eager, 0, "", outputs[""])[1].values()
    right, asked = outputs[""].reshape(-1), list[int]()
    whole = Judge.rest
    monkeypatch.setattr(Judge, "rest", lambda *given, **named: asked.append(len(given[2])) or whole(*given, **named))
    for wrong in (right * 1.1, right.index_fill(0, torch.tensor([5, 9]), 3.0)):
        asked.clear()
        assert standing_of(term.judge, term.elements, wrong, briefly=True) == "exceeds-bound"
        assert sum(asked) <= chunk.FARTHEST
        assert standing_of(term.judge, term.elements, wrong) == "exceeds-bound"
    assert standing_of(term.judge, term.elements, right, briefly=True) == "passed"
    # where the few do not fail all are looked at
    monkeypatch.setattr(chunk, "farthest", lambda y, facts, count: torch.tensor([0]))
    assert standing_of(term.judge, term.elements, wrong, briefly=True) == "exceeds-bound"
    assert standing_of(term.judge, term.elements, right, briefly=True) == "passed"
