"""The judgement of composite kernels, on a small one whose truth is rational arithmetic: the sum of rows."""

from __future__ import annotations

import gc
import importlib
import math
import weakref
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verify import assess, backends, kernel
from verify.assess import Instance, own_setting, settings_of
from verify.composite import Limit, Problem
from verify.decide import Enclosure
from verify.formats import FORMATS
from verify.kernel import Composite, Setting, UsageError
from verify.lowerings import Lowering, NotLowered, Target, lowerings
from verify.truth import Truth

COLUMNS = 12


class RowSums:
    """Sums of rows: exact rationals, as a float64 midpoint and a radius that covers its rounding."""

    def __init__(self, problem: Problem, shift: float = 0.0) -> None:
        self.x, self.shift = problem.tensors["x"], shift

    def exact_sum(self, k: int, absolute: bool = False) -> Fraction:
        return sum((Fraction(abs(v) if absolute else v) for v in self.x[k].tolist()), Fraction(0))

    def enclose(self, output: str, index: Any = None, double: bool = False) -> tuple[Enclosure, torch.Tensor]:
        rows = range(len(self.x)) if index is None else index.tolist()
        sums = [self.exact_sum(k) for k in rows]
        mid = torch.tensor([[float(s) + self.shift for s in sums]], dtype=torch.float64)
        scale = torch.tensor([[float(self.exact_sum(k, True)) * (1 - 2.0**-50) for k in rows]], dtype=torch.float64)
        rad = mid.abs() * 2.0**-52
        return (Enclosure(mid, rad, torch.zeros_like(mid)) if double else Enclosure(mid, rad)), scale

    def exact(self, output: str, index: int) -> Any:
        value = self.exact_sum(index)
        yield Truth("real", value, value) if value else Truth("+0")

    def scale(self, output: str, index: int) -> Truth:
        value = self.exact_sum(index, True)
        return Truth("real", value, value)

    def explain(self, output: str, index: int) -> list[tuple[str, str]]:
        return [("terms", ", ".join(map(str, self.x[index].tolist())))]


def problem(dtype: str, setting: Setting, scalars: Any, seed: int) -> Problem:
    k = torch.arange(50 * COLUMNS, dtype=torch.int64)
    values = ((k * 2654435761 + seed) % 1000003).to(torch.float64) / 1000003 + 0.25
    x = values.view(50, COLUMNS).to(getattr(torch, dtype))
    return Problem({"x": x}, dict(setting.parameters), dict(scalars), dtype)


def limit(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit:
    x = problem.tensors["x"].to(torch.float64)
    u = torch.finfo(problem.tensors["x"].dtype).eps / 2
    gamma = COLUMNS * u / (1 - COLUMNS * u)
    return Limit(x.abs().sum(-1) * gamma * (1 + 2.0**-40), "Higham 2002, (4.4)")


def composite(**changes: Any) -> Composite:
    facts: dict[str, Any] = {
        "name": "rows",
        "summary": "sums of rows",
        "inputs": ("x",),
        "settings": (Setting("plain", quick=True),),
        "problem": problem,
        "truth": lambda problem, device, bounds: RowSums(problem),
        "limit": limit,
        "implementations": "unused",
        "lowerings": ("eager",),
        "dtypes": ("float32", "float64"),
        "parameters": {"rows": "how many"},
        "formulas": lambda problem, output: {
            "left to right": lambda: left_to_right(problem)[""],
            "right to left": lambda: left_to_right(reversed_(problem))[""],
        },
    }
    return Composite(**(facts | changes))


def reversed_(problem: Problem) -> Problem:
    return Problem({"x": problem.tensors["x"].flip(-1)}, {}, {}, problem.dtype)


def left_to_right(problem: Problem) -> dict[str, torch.Tensor]:
    total = torch.zeros_like(problem.tensors["x"][:, 0])
    for column in problem.tensors["x"].unbind(-1):
        total = total + column
    return {"": total}


def one_lost(problem: Problem) -> dict[str, torch.Tensor]:
    y = left_to_right(problem)[""]
    y[17] -= problem.tensors["x"][17, 3]
    return {"": y}


def lowering(name: str, call: Any) -> Lowering:
    return Lowering(name, lambda target: call, lambda target: None)


def fill(call: Any, dtype: str = "float32", name: str = "eager", **changes: Any) -> list[dict[str, Any]]:
    facts, cpu = composite(**changes), backends.load("cpu")
    target = Target(facts, {}, "plain", dtype, cpu)
    instance = Instance(facts, facts.settings[0], {}, dtype, cpu, 0)
    blank = {"kernel": "rows", "lowering": name, "spelling": "plain", "backend": "cpu", "dtype": dtype, "scalars": {}}
    reference = lowering("eager", left_to_right)
    return assess.cells(target, lowering(name, call), reference, instance, blank)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_honest_lowering_passes_and_its_formula_is_found(dtype: str) -> None:
    (cell,) = fill(left_to_right, dtype)
    assert cell["status"] == "passed" and cell["error"]["undecided"] == 0 and cell["inputs"] == 50
    assert 0 < cell["bound"]["measured"] == cell["error"]["max_share"] <= 1
    assert cell["formula"]["identified"] == "left to right"
    assert cell["worst"][0]["share"] <= 1 and cell["worst"][0]["inputs"] == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_lost_term_exceeds_the_bound_and_is_named(dtype: str) -> None:
    (cell,) = fill(one_lost, dtype, "mine")
    assert cell["status"] == "exceeds-bound" and "share of the bound" in cell["reason"]
    assert cell["worst"][0]["index"] == 17
    assert cell["against_eager"] == {"different": 1, "closer": 0, "farther": 1, "tied": 0}


def test_maxima_are_those_of_rational_arithmetic() -> None:
    facts = composite()
    (cell,) = fill(left_to_right)
    given = problem("float32", facts.settings[0], {}, 0)
    y, source = left_to_right(given)[""], RowSums(given)
    errors = [
        abs(Fraction(float(y[k])) - source.exact_sum(k)) / Fraction(2) ** (_exponent(source.exact_sum(k)) - 23)
        for k in range(50)
    ]
    assert cell["error"]["max_ulp"] == float(max(errors))


def _exponent(value: Fraction) -> int:
    exponent = 0
    while value >= 2:
        value, exponent = value / 2, exponent + 1
    while value < 1:
        value, exponent = value * 2, exponent - 1
    return exponent


def test_a_truth_outside_its_ball_is_a_violation() -> None:
    cells = fill(left_to_right, truth=lambda problem, device, bounds: RowSums(problem, 2.0**-30))
    assert [cell["status"] for cell in cells] == ["oracle-violation"]


def test_an_input_changed_in_place_is_an_error() -> None:
    def careless(given: Problem) -> dict[str, torch.Tensor]:
        return {"": given.tensors["x"].cumsum_(-1)[:, -1]}

    assert fill(careless)[0]["status"] == "error"
    assert "modified its input x" in fill(careless)[0]["reason"]


def test_outputs_that_differ_between_launches_are_told_and_the_worse_is_judged() -> None:
    calls = []

    def moody(given: Problem) -> dict[str, torch.Tensor]:
        calls.append(1)
        return one_lost(given) if len(calls) == 1 else left_to_right(given)

    (cell,) = fill(moody)
    assert cell["status"] == "exceeds-bound" and "not deterministic" in cell["reason"]


def test_a_lowering_that_does_not_exist_is_not_run() -> None:
    def absent(given: Problem) -> dict[str, torch.Tensor]:
        raise NotLowered("no such path")

    assert fill(absent)[0] | {"reason": "no such path"} == fill(absent)[0]
    assert fill(absent)[0]["status"] == "not-run"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: {"other": p.tensors["x"]}, "returned outputs ['other']; expected one"),
        (lambda p: {"": 3.0}, "returned float for its output"),
        (lambda p: {"": p.tensors["x"][:3, 0].clone()}, "expected (50,)"),
        (lambda p: {"": p.tensors["x"][:, 0].to(torch.int32)}, "dtype int32"),
    ],
)
def test_a_broken_contract_is_an_error(call: Any, said: str) -> None:
    (cell,) = fill(call, name="mine")
    assert cell["status"] == "error" and said in cell["reason"]


def test_an_output_of_another_shape_is_an_error_where_no_reference_tells() -> None:
    (cell,) = fill(lambda p: {"": p.tensors["x"][:3, 0].clone()})
    assert cell["status"] == "error" and "expected (50,)" in cell["reason"]


def test_a_lowering_of_the_wrong_shape_does_not_spoil_the_next_one() -> None:
    facts, cpu = composite(), backends.load("cpu")
    target = Target(facts, {}, "plain", "float32", cpu)
    instance = Instance(facts, facts.settings[0], {}, "float32", cpu, 0)
    blank = {"kernel": "rows", "spelling": "plain", "backend": "cpu", "dtype": "float32", "scalars": {}}
    reference = lowering("eager", left_to_right)
    short = lowering("mine", lambda p: {"": p.tensors["x"][:3, 0].clone()})
    statuses = [assess.cells(target, one, reference, instance, blank)[0]["status"] for one in (short, reference)]
    assert statuses == ["error", "passed"]


def test_an_empty_output_is_not_run() -> None:
    (cell,) = fill(lambda p: {"": p.tensors["x"][:0, 0].clone()}, limit=lambda *given: None)
    assert cell["status"] == "not-run" and cell["reason"] == "the output has no element"


def test_an_output_that_a_lowering_does_not_give_is_not_run() -> None:
    sums, other = fill(left_to_right, outputs=("", "other"))
    assert sums["status"] == "passed" and other["status"] == "not-run" and other["output"] == "other"


def test_an_output_that_the_problem_has_not_has_no_cell() -> None:
    (cell,) = fill(left_to_right, outputs=("", "other"), defined=lambda setting: ("",))
    assert cell["status"] == "passed"
    (cell,) = fill(lambda p: {"other": p.tensors["x"]}, outputs=("", "other"), defined=lambda setting: ("",))
    assert cell["status"] == "error" and "returned outputs ['other']; expected one" in cell["reason"]


@pytest.mark.parametrize(
    ("name", "set_", "names"),
    [
        ("adam_step", {}, ("param", "exp_avg", "exp_avg_sq")),
        ("adam_step", {"amsgrad": "1"}, ("param", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")),
        ("adamw_step", {"master": "1"}, ("param", "exp_avg", "exp_avg_sq", "master")),
        ("adam_ema", {}, ("exp_avg", "exp_avg_sq")),
        ("cumsum", {"shape": "3"}, ("",)),
        ("flex_attention", {"length": "4", "backward": "no"}, ("out", "logsumexp")),
        ("flex_attention", {"length": "4"}, ("out", "logsumexp", "dq", "dk", "dv")),
    ],
)
def test_outputs_that_a_setting_has(name: str, set_: dict[str, str], names: tuple[str, ...]) -> None:
    facts = kernel.load(name)
    assert isinstance(facts, Composite) and facts.custom
    assert facts.outputs_of(facts.custom(set_)) == names


@pytest.mark.parametrize("blind", [torch.inf, torch.nan])
def test_elements_without_a_finite_bound_count_as_range(blind: float) -> None:
    def half_blind(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit:
        whole = limit(problem, target, lowering, output)
        bound = whole.bound.clone()
        bound[17:27] = blind
        return Limit(bound, whole.source)

    (cell,) = fill(one_lost, limit=half_blind)
    assert cell["status"] == "passed" and cell["error"]["range"] == 10


@pytest.mark.parametrize("blind", [math.inf, math.nan])
def test_no_share_is_taken_of_a_bound_that_is_none(blind: float) -> None:
    facts, cpu = composite(), backends.load("cpu")
    instance = Instance(facts, facts.settings[0], {}, "float32", cpu, 0)
    judge = instance.judge("", left_to_right(instance.problem)[""])
    assert judge._share(3, FORMATS["float32"].parse("1e30"), blind) == 0.0
    assert judge._share(3, FORMATS["float32"].parse("1e30"), 1.0) > 1e20


def test_ones_own_setting_names_itself() -> None:
    facts = composite(custom=lambda given: Setting("anything", {"rows": int(given["rows"])}))
    (one,) = settings_of(facts, {"rows": "3"}, (), "default", "float32")
    assert one.name == "rows=3" and own_setting(one.name) == {"rows": "3"}
    assert settings_of(facts, None, ("rows=3",), "default", "float32") == [one]
    with pytest.raises(UsageError, match="unknown parameter of rows 'row'"):
        settings_of(facts, {"row": "3"}, (), "default", "float32")


@pytest.mark.parametrize("name", [name for name in kernel.names() if isinstance(kernel.load(name), Composite)])
def test_the_lowerings_that_a_composite_kernel_lists_are_those_it_has(name: str) -> None:
    facts = kernel.load(name)
    assert facts.lowerings == tuple(one.name for one in lowerings(facts))


SMALL = {
    "adam": {"sizes": "3x2", "steps": "2"},
    "flex": {"length": "3", "heads": "1", "head_dim": "16"},
    "": {"shape": "2x3"},
}


@pytest.mark.parametrize("name", [name for name in kernel.names() if isinstance(kernel.load(name), Composite)])
def test_a_problem_does_not_outlive_its_instance(name: str) -> None:
    """Without the garbage collector, which runs too rarely for tensors: two large problems would be held at once."""
    facts, cpu = kernel.load(name), backends.load("cpu")
    assert isinstance(facts, Composite) and facts.custom
    own = facts.custom(next(given for start, given in SMALL.items() if name.startswith(start)))
    instance = Instance(facts, own, facts.cases[0], "float32", cpu, 0)
    target = Target(facts, facts.cases[0], own.name, "float32", cpu)
    blank = {"kernel": name, "spelling": own.name, "backend": "cpu", "dtype": "float32", "scalars": {}}
    reference = lowerings(facts)[0]
    importlib.import_module("torch._dynamo")  # its first import keeps the frames of whoever imports it
    gc.collect()
    gc.disable()
    try:
        found = assess.cells(target, reference, reference, instance, blank)
        assert {cell["status"] for cell in found} == {"passed"}
        held = [weakref.ref(t) for t in instance.problem.tensors.values()]
        del instance
        assert not [ref for ref in held if ref() is not None]
    finally:
        gc.enable()


@given(n=st.integers(0, 100_000), size=st.integers(1, 300))
def test_a_spread_is_one_place_of_each_part_with_both_ends(n: int, size: int) -> None:
    places = assess.spread(n, size)
    assert places == sorted(set(places)) and len(places) == min(n, size)
    if len(places) > 1:
        assert places[0] == 0 and places[-1] == n - 1
        assert max(b - a for a, b in pairwise(places)) <= 2 * -(-n // size)


def test_a_spread_meets_every_column_of_a_power_of_two() -> None:
    """At equal distances one column of each row would be all that is ever looked at."""
    assert len({place % 64 for place in assess.spread(1 << 16, 256)}) > 48


def test_a_float64_beyond_every_number_of_bounds_is_a_failure() -> None:
    (cell,) = fill(lambda problem: {"": torch.full_like(left_to_right(problem)[""], 1e308)}, "float64", "mine")
    assert cell["status"] == "exceeds-bound" and cell["error"]["max_share"] > 1e300


def test_float64_elements_without_a_bound_are_counted_apart() -> None:
    def nothing(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit:
        found = limit(problem, target, lowering, output)
        return Limit(torch.where(torch.arange(50) < 25, found.bound, torch.inf), found.source)

    def late(problem: Problem) -> dict[str, torch.Tensor]:
        y = left_to_right(problem)[""]
        return {"": torch.where(torch.arange(50) < 25, y, torch.nan)}

    (cell,) = fill(late, "float64", "mine", limit=nothing)
    assert cell["status"] == "passed" and (cell["error"]["range"], cell["error"]["nan_mismatch"]) == (25, 25)
    assert fill(late, "float64", "mine")[0]["status"] == "exceeds-bound"
