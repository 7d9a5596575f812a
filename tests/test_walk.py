"""The walk: from a selection to cells, whatever a lowering does; and the cells of composite kernels."""

from __future__ import annotations

import gc
import importlib
import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from judging import cell, elements
from verify import backends
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.facts.kernel import Bound, Composite, NothingToCompare, Setting, UsageError
from verify.facts.truth import Truth
from verify.families.composite import Limit, Problem
from verify.inputs import domains
from verify.inputs.domains import Domain
from verify.judge import ledger
from verify.judge.chunk import Judge
from verify.judge.ledger import Deviation
from verify.judge.reduce import COUNTED
from verify.judge.status import EXIT_CODES, REASONS, exit_code
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.lower.lowerings import lowerings
from verify.lower.pytorch import EAGER
from verify.numbers.ball import Ball64
from verify.numbers.decide import Enclosure
from verify.walk import cases, pointwise, run
from verify.walk import walk as walk_
from verify.walk.cells import cell_of, fill
from verify.walk.instance import Instance
from verify.walk.plan import Job, Selection
from verify.walk.run import Broken
from verify.walk.walk import walk

Tensor = torch.Tensor
F32 = FORMATS["float32"]
ALPHA = {"alpha": 1.0}
EAGER_ADD = Selection(("add",), ("cpu",), ("float32",), ("eager",), profile="quick", scalars=ALPHA)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick domains of 2^9 elements."""
    monkeypatch.setitem(domains.SIZES, "quick", 9)


def with_lowerings(monkeypatch: pytest.MonkeyPatch, *calls: Callable[..., Any]) -> None:
    """These as the kernels' lowerings, after eager."""
    own = [Lowering(f"mine-{k}", lambda target, call=call: call, lambda target: None) for k, call in enumerate(calls)]
    for module in ("plan", "cells"):
        monkeypatch.setattr(f"verify.walk.{module}.lowerings", lambda facts: (EAGER, *own))


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        raise error

    return call


# ---------------------------------------------------------------- runs


def test_a_run_fills_a_cell_for_each_lowering(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with_lowerings(monkeypatch, torch.add, lambda a, b: a - b)
    seen: list[tuple[Any, ...]] = []
    told: list[Any] = []
    report = run.run(replace(EAGER_ADD, lowerings=()), told.append, lambda *given: seen.append(given))
    found = report["cells"]
    assert [c["lowering"] for c in found] == ["eager", "mine-0", "mine-1"] and told == found
    assert [c["status"] for c in found] == ["passed", "passed", "exceeds-bound"]
    assert (report["schema"], report["interrupted"], report["profile"]) == (2, False, "quick")
    assert [done for done, *_ in seen] == [0, 1, 2, 3, 3] and {total for _, total, *_ in seen} == {3}
    assert [one[0] for *_, one in seen[1:4]] == [0, 1, 2] and all(one[2] == 512 for *_, one in seen[1:4])
    for one in found:
        assert one["reason_kind"] in REASONS and one["status"] in EXIT_CODES
        assert one["inputs"] == one["domain"]["size"] == sum(r["inputs"] for r in one["regions"].values()) == 512
        error = one["error"]
        assert sum(error[c] for c in COUNTED[:7]) + error["undecided"] == 512
    assert found[0]["digest"] == found[1]["digest"] != found[2]["digest"]
    assert found[1]["against_eager"]["different"] == 0 < found[2]["against_eager"]["farther"]


@pytest.mark.parametrize(
    ("call", "status", "kind"),
    [
        (raising(RuntimeError("no luck")), "error", "raised"),
        (raising(SystemExit(3)), "error", "raised"),
        (raising(NotLowered("not here")), "not-run", "not-lowered"),
        (lambda a, b: a[:-1], "error", "contract"),
        (lambda a, b: (a + b).double(), "error", "contract"),
        (lambda a, b: 3.0, "error", "contract"),
        (lambda a, b: a.add_(b), "error", "contract"),
        (lambda a, b: torch.empty_like(a), "error", "contract"),
    ],
)
def test_a_lowering_that_breaks_is_one_cell(
    small: None, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any], status: str, kind: str
) -> None:
    with_lowerings(monkeypatch, call, torch.add)
    first, broken, last = run.run(replace(EAGER_ADD, lowerings=()))["cells"]
    assert (broken["status"], broken["reason_kind"]) == (status, kind) and broken["reason"]
    assert first["status"] == last["status"] == "passed"
    assert exit_code(broken["status"], user=True) == (2 if status == "error" else 0)


def test_an_interruption_keeps_what_is_complete(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with_lowerings(monkeypatch, raising(KeyboardInterrupt()), torch.add)
    report = run.run(replace(EAGER_ADD, lowerings=()))
    assert report["interrupted"] and [c["lowering"] for c in report["cells"]] == ["eager"]


def test_a_mistake_of_the_project_is_no_cell(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with_lowerings(monkeypatch, torch.add)
    monkeypatch.setattr("verify.walk.cells.cell_of", raising(ZeroDivisionError()))
    with pytest.raises(Broken, match=r"add alpha=1\.0 float32 eager") as caught:
        run.run(EAGER_ADD)
    assert caught.value.report["interrupted"] and caught.value.report["cells"] == []


def test_what_cannot_run_is_listed_with_the_reason(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Lowering("absent", lambda target: torch.add, lambda target: "the library is not there")
    for module in ("plan", "cells"):
        monkeypatch.setattr(f"verify.walk.{module}.lowerings", lambda facts: (EAGER, absent))
    _, found = run.run(replace(EAGER_ADD, lowerings=()))["cells"]
    assert (found["status"], found["reason"]) == ("not-run", "the library is not there")
    assert found["reason_kind"] == "absent" and "regions" not in found


@pytest.mark.parametrize(
    "selection",
    [
        replace(EAGER_ADD, kernels=("ad",)), replace(EAGER_ADD, dtypes=("float23",)),
        replace(EAGER_ADD, lowerings=("eagre",)), replace(EAGER_ADD, spellings=("nothing",)),
        replace(EAGER_ADD, scalars={"beta": 1.0}), replace(EAGER_ADD, setting={"shape": "3"}),
    ],
)  # fmt: skip
def test_unknown_names_are_told(selection: Selection) -> None:
    with pytest.raises(UsageError):
        run.run(selection)


def test_an_absent_backend_is_nothing_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends.load("mps"), "unavailable", lambda: "no such machine")
    with pytest.raises(NothingToCompare, match="no such machine"):
        run.run(replace(EAGER_ADD, backends=("mps",)))


def test_an_entry_that_nothing_needs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a whole run of all that it means."""
    known = Deviation(
        lowering="eager", kernel=("add",), dtype=("float32",), id="old", reason="it was so", source="s",
        regions=("normal",), kinds=("bound",), at_most={"ulp": 3.0},
    )  # fmt: skip
    monkeypatch.setattr(ledger, "deviations", lambda backend: (known,))
    listed = {"lowering": "eager", "kernel": "add", "dtype": "float32", "spelling": "out-of-place", "backend": "cpu"}
    needed, unneeded = (listed | {"error": {}, "status": "deviates", "ledger": ids} for ids in (["old"], []))
    for found in ([needed, dict(unneeded)], [dict(unneeded), needed]):
        ledger.unneeded(found)
        assert all(c["status"] == "deviates" for c in found)
    found = [dict(unneeded), dict(unneeded)]
    ledger.unneeded(found)
    assert [c["status"] for c in found] == ["deviates", "error"] and "no longer fails" in found[1]["reason"]
    monkeypatch.setattr(ledger, "deviations", lambda backend: (replace(known, drawn=True),))
    found = [dict(unneeded), dict(unneeded)]
    ledger.unneeded(found)
    assert [c["status"] for c in found] == ["deviates"] * 2


# ---------------------------------------------------------------- portions and equal bits


def cell_in(monkeypatch: pytest.MonkeyPatch, portion: int, call: Callable[..., Tensor]) -> dict[str, Any]:
    monkeypatch.setattr(pointwise, "CHUNK", 8)
    monkeypatch.setattr(backends.load("cpu"), "portion", portion)
    given = elements("addcmul", {"value": 0.3}, "float32", 96)
    found = cell("addcmul", {"value": 0.3}, "float32", given.keys, call)
    for record in found["regions"].values():
        del record["resolution"]  # of the first portion
    return {name: value for name, value in found.items() if name != "timing"}


def test_portions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        y = torch.addcmul(a, b, c, value=0.3)
        return torch.where(b > 1, y * 1.5, y)

    whole = cell_in(monkeypatch, 1 << 20, call)
    assert cell_in(monkeypatch, 8, call) == cell_in(monkeypatch, 32, call) == whole
    assert whole["status"] == "exceeds-bound"


def test_lowerings_with_equal_bits_share_their_tallies(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is judged on its own bound, and said to be compared with eager."""
    asked: list[int] = []
    tally = Judge.tally
    monkeypatch.setattr(Judge, "tally", lambda self, *given: asked.append(1) or tally(self, *given))
    tight = Bound(0.1, "ulp", "too tight", lowering="mine-1")
    facts = replace(kernel.elementwise("add"), bounds=(tight, Bound(0.5, "ulp", "s")))
    monkeypatch.setattr(kernel, "load", lambda name: facts)
    with_lowerings(monkeypatch, torch.add, lambda a, b: a + b, torch.add)
    found = run.run(replace(EAGER_ADD, lowerings=()))["cells"]
    assert [c["status"] for c in found] == ["passed", "passed", "exceeds-bound", "passed"]
    assert len({c["digest"] for c in found}) == 1
    assert len(asked) == 3  # eager alone, beside eager, and with another bound
    assert found[1]["regions"] == found[3]["regions"] and "against_eager" in found[3]


# ---------------------------------------------------------------- where it is judged


@pytest.mark.parametrize(("dtype", "size", "own", "device"), [
    ("float32", 18, False, "cpu"), ("float32", 19, False, "meta"), ("float32", 18, True, "meta"),
    ("float64", 14, False, "cpu"), ("float64", 15, False, "meta"),
])  # fmt: skip
def test_the_host_judges_few_elements_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, dtype: str, size: int, own: bool, device: str
) -> None:
    """A pass over them would be compiled for seconds. A user's own function is called where its device is."""
    for sizes in (domains.SIZES, domains.SIZES_FLOAT64):
        monkeypatch.setitem(sizes, "quick", size)
    facts, cpu = kernel.load("tanh"), backends.load("cpu")
    gpu: Any = SimpleNamespace(**{name: getattr(cpu, name) for name in dir(cpu)} | {"check_device": "meta"})
    selection = Selection(("tanh",), profile="quick", user_lowerings=("mine.py:f",) * own)
    case = walk_.case_of(Job(Target(facts, {}, "out-of-place", dtype, gpu), EAGER), selection, [])
    assert case.device == device == str(case.given(0)[0].device)
    assert size > 18 or case.engine(0, "", "exact") is None
    if dtype == "float32" and device == "cpu":
        functions = ("exp", "expm1", "tanh")  # beside 1 tanh is taken from exponentials
        assert [one["library"] for one in cases.trust(case)] == [f"torch.{f} float64, eager on cpu" for f in functions]


# ---------------------------------------------------------------- the checker is wrong


def job_of(name: str, scalars: dict[str, float], dtype: str = "float32") -> tuple[pointwise.Pointwise, Job]:
    given = elements(name, scalars, dtype, 300, wild=0)
    facts, cpu = given.facts, backends.load("cpu")
    listed = Domain("list", given.fmt, facts.tensors(scalars), patterns=tuple(given.keys))
    spelling = next(s for s, how in facts.spellings.items() if how.applies(scalars))
    job = Job(Target(facts, scalars, spelling, dtype, cpu), EAGER)
    return pointwise.Pointwise(facts, scalars, dtype, cpu, listed), job


@pytest.mark.parametrize("stage", ["tensors", "fused"])
def test_an_error_planted_once_in_a_ball_function_is_a_violation(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """exp off by 2^-30: far above its bound, far below what a float32 result shows. By the hashed sample."""
    case, job = job_of("exp", {})
    monkeypatch.setattr("verify.walk.cells.case_of", lambda *given: case)
    assert fill(job, [], EAGER_ADD)[0]["status"] == "passed"
    case, job = job_of("exp", {})
    about = case.about["exact"]
    about.ball = Ball64("cpu", about.ball.bounds, {"exp": lambda t: torch.exp(t) * (1 + 2.0**-30)})
    if stage == "tensors":
        monkeypatch.setattr(case, "engine", lambda *given: None)
    (found,) = fill(job, [], EAGER_ADD)
    assert (found["status"], found["reason_kind"]) == ("oracle-violation", "oracle")
    assert "exp(" in found["reason"] and exit_code(found["status"]) == 4


def test_an_error_of_the_scale_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors and multiprecision must mean the same scale."""
    case, job = job_of("addcmul", {"value": 0.3})
    about = case.about["exact"]
    monkeypatch.setattr(
        about, "_scale", lambda n, values, like, unit: tuple(torch.full(like.shape, 2.0**60).double() for _ in range(2))
    )
    monkeypatch.setattr(case, "engine", lambda *given: None)
    monkeypatch.setattr("verify.walk.cells.case_of", lambda *given: case)
    (found,) = fill(job, [], EAGER_ADD)
    assert found["status"] == "oracle-violation"


def test_a_sample_holds_every_element_that_it_is_given() -> None:
    """Outputs do not matter: an element that is right is compared as one that is wrong."""
    case, job = job_of("exp", {})
    (x,) = case.given(0)
    places = case.sampled(0, "", x)
    assert len(places) == 32 and len(set(places.tolist())) == 32
    significands = x[places].view(torch.int32) & 0x7FFFFF
    assert int((significands % 256 != 0).sum()) > 16  # not short ones alone
    assert walk(case, job, None)[0][""].tallies["exact"].whole.inputs == 300


# ---------------------------------------------------------------- composite kernels

COLUMNS = 12


class RowSums:
    """Sums of rows: exact rationals, as a float64 midpoint and a radius that covers its rounding."""

    def __init__(self, problem: Problem, shift: float = 0.0) -> None:
        self.x, self.shift = problem.tensors["x"], shift

    def exact_sum(self, k: int, absolute: bool = False) -> Fraction:
        return sum((Fraction(abs(v) if absolute else v) for v in self.x[k].tolist()), Fraction(0))

    def enclose(
        self, output: str, index: Any = None, double: bool = False, scaled: bool = True
    ) -> tuple[Enclosure, Tensor]:  # fmt: skip
        rows = range(len(self.x)) if index is None else index.tolist()
        mid = torch.tensor([[float(self.exact_sum(k)) + self.shift for k in rows]], dtype=torch.float64)
        scale = torch.tensor([[float(self.exact_sum(k, True)) * (1 - 2.0**-50) for k in rows]], dtype=torch.float64)
        rad = mid.abs() * 2.0**-52
        return (Enclosure(mid, rad, torch.zeros_like(mid)) if double else Enclosure(mid, rad)), scale

    def exact(self, output: str, index: int) -> Iterator[Truth]:
        value = self.exact_sum(index)
        yield Truth("real", value, value) if value else Truth("+0")

    def scale(self, output: str, index: int) -> Truth:
        value = self.exact_sum(index, True)
        return Truth("real", value, value)

    def explain(self, output: str, index: int) -> list[tuple[str, str]]:
        return []


def problem(dtype: str, setting: Setting, scalars: Any, seed: int) -> Problem:
    k = torch.arange(50 * COLUMNS, dtype=torch.int64)
    values = ((k * 2654435761 + seed) % 1000003).to(torch.float64) / 1000003 + 0.25
    return Problem({"x": values.view(50, COLUMNS).to(getattr(torch, dtype))}, setting.parameters, dict(scalars), dtype)


def limit(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit:
    x = problem.tensors["x"].to(torch.float64)
    u = torch.finfo(problem.tensors["x"].dtype).eps / 2
    gamma = COLUMNS * u / (1 - COLUMNS * u)
    return Limit(x.abs().sum(-1) * gamma * (1 + 2.0**-40), "Higham 2002, (4.4)")


def left_to_right(problem: Problem) -> dict[str, Tensor]:
    total = torch.zeros_like(problem.tensors["x"][:, 0])
    for column in problem.tensors["x"].unbind(-1):
        total = total + column
    return {"": total}


def right_to_left(problem: Problem) -> dict[str, Tensor]:
    return left_to_right(replace(problem, tensors={"x": problem.tensors["x"].flip(-1)}))


def one_lost(problem: Problem) -> dict[str, Tensor]:
    y = left_to_right(problem)[""]
    y[17] -= problem.tensors["x"][17, 3]
    return {"": y}


def composite(**changes: Any) -> Composite:
    facts: dict[str, Any] = {
        "name": "sum",
        "summary": "sums of rows",
        "inputs": ("x",),
        "settings": (Setting("plain", quick=True),),
        "problem": problem,
        "truth": lambda problem, device, bounds: RowSums(problem),
        "limit": limit,
        "held": "nothing",
        "stub": "",
        "sized": lambda n: (),
        "implementations": "unused",
        "lowerings": ("eager",),
        "dtypes": ("float32", "float64"),
        "parameters": {"rows": "how many"},
        "formulas": lambda problem, backend, output: {
            "left to right": lambda: left_to_right(problem)[""],
            "right to left": lambda: right_to_left(problem)[""],
        },
    }
    return Composite(**(facts | changes))


def lowering(name: str, call: Callable[..., Any]) -> Lowering:
    return Lowering(name, lambda target: call, lambda target: None)


REFERENCE = lowering("eager", left_to_right)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """rows(call, dtype, name): the cells of a lowering of the sum of rows."""
    for module in ("plan", "cells"):
        monkeypatch.setattr(f"verify.walk.{module}.lowerings", lambda facts: (REFERENCE,))

    def filled(call: Callable[..., Any], dtype: str = "float32", name: str = "mine", **changes: Any) -> Any:
        facts = composite(**changes)
        job = Job(
            Target(facts, {}, "plain", dtype, backends.load("cpu")), lowering(name, call), setting=facts.settings[0]
        )
        return fill(job, [], Selection(("sum",)))

    return filled


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_honest_composite_lowering_passes_and_its_formula_is_found(rows: Any, dtype: str) -> None:
    (found,) = rows(left_to_right, dtype, "eager")
    assert found["status"] == "passed" and found["error"]["undecided"] == 0 and found["inputs"] == 50
    assert 0 < found["bound"]["measured"] == found["error"]["max_share"] <= 1
    assert found["formula"]["identified"] == "left to right"
    assert found["worst"][0]["share"] == found["bound"]["measured"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_lost_term_exceeds_the_bound_and_is_named(rows: Any, dtype: str) -> None:
    (found,) = rows(one_lost, dtype)
    assert found["status"] == "exceeds-bound" and "share of the bound" in found["reason"]
    assert found["reason_kind"] == "bound" and found["worst"][0]["index"] == 17
    assert found["against_eager"] == {"different": 1, "closer": 0, "farther": 1, "tied": 0}


def test_maxima_of_composites_are_those_of_rational_arithmetic(rows: Any) -> None:
    facts = composite()
    (found,) = rows(left_to_right)
    given = problem("float32", facts.settings[0], {}, 0)
    y, source = left_to_right(given)[""], RowSums(given)
    errors = []
    for k in range(50):
        t = source.exact_sum(k)
        errors.append(abs(Fraction(float(y[k])) - t) / Fraction(2) ** (math.frexp(float(t))[1] - 24))
    assert found["error"]["max_ulp"] == float(max(errors))


def test_a_composite_truth_outside_its_ball_is_a_violation(rows: Any) -> None:
    (found,) = rows(left_to_right, truth=lambda problem, device, bounds: RowSums(problem, 2.0**-30))
    assert (found["status"], found["reason_kind"]) == ("oracle-violation", "oracle")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: {"other": p.tensors["x"]}, "returned outputs ['other']; expected one"),
        (lambda p: {"": 3.0}, "returned float"),
        (lambda p: {"": p.tensors["x"][:3, 0].clone()}, "expected (50,)"),
        (lambda p: {"": p.tensors["x"][:, 0].to(torch.int32)}, "int32"),
        (lambda p: {"": p.tensors["x"].cumsum_(-1)[:, -1]}, "modified its input x"),
    ],
)
def test_a_broken_contract_is_an_error(rows: Any, call: Any, said: str) -> None:
    (found,) = rows(call)
    assert (found["status"], found["reason_kind"]) == ("error", "contract") and said in found["reason"]


def test_a_composite_lowering_that_changes_is_judged_on_all_that_it_gave(rows: Any) -> None:
    calls: list[int] = []

    def moody(given: Problem) -> dict[str, Tensor]:
        calls.append(1)
        return one_lost(given) if len(calls) == 1 else left_to_right(given)

    (found,) = rows(moody)
    assert found["status"] == "exceeds-bound" and "not deterministic" in found["reason"]


def test_a_lowering_that_does_not_exist_is_not_run(rows: Any) -> None:
    (found,) = rows(raising(NotLowered("no such path")))
    assert (found["status"], found["reason"], found["reason_kind"]) == ("not-run", "no such path", "not-lowered")


def test_a_lowering_of_the_wrong_shape_does_not_spoil_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("plan", "cells"):
        monkeypatch.setattr(f"verify.walk.{module}.lowerings", lambda facts: (REFERENCE,))
    facts = composite()
    target = Target(facts, {}, "plain", "float32", backends.load("cpu"))
    held: list[Any] = []
    short = lowering("mine", lambda p: {"": p.tensors["x"][:3, 0].clone()})
    statuses = [
        fill(Job(target, one, setting=facts.settings[0]), held, Selection(("sum",)))[0]["status"]
        for one in (short, REFERENCE)
    ]
    assert statuses == ["error", "passed"] and len(held) == 1


def test_an_empty_output_is_an_error_of_its_kind(rows: Any) -> None:
    (found,) = rows(lambda p: {"": p.tensors["x"][:0, 0].clone()}, limit=lambda *given: None, name="eager")
    assert found["reason"] == "the output has no element" and found["reason_kind"] == "inapplicable"


def test_an_output_that_a_lowering_does_not_give_is_not_run(rows: Any) -> None:
    sums, other = rows(left_to_right, outputs=("", "other"))
    assert sums["status"] == "passed"
    assert (other["output"], other["status"], other["reason_kind"]) == ("other", "not-run", "inapplicable")


def test_an_output_that_the_problem_has_not_has_no_cell(rows: Any) -> None:
    (found,) = rows(left_to_right, outputs=("", "other"), defined=lambda setting: ("",))
    assert found["status"] == "passed"


@pytest.mark.parametrize("blind", [torch.inf, torch.nan])
@pytest.mark.parametrize(("count", "status"), [(0, "exceeds-bound"), (1, "unjudged"), (25, "unjudged")])
def test_elements_without_a_finite_bound_are_unjudged(rows: Any, blind: float, count: int, status: str) -> None:
    """More than one in a hundred of them: the lost term is among those of which nothing is stated."""

    def half_blind(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit:
        whole = limit(problem, target, lowering, output)
        bound = whole.bound.clone()
        bound[17 : 17 + count] = blind
        return Limit(bound, whole.source)

    (found,) = rows(one_lost, limit=half_blind)
    assert found["status"] == status
    if count:
        assert f"nothing is stated of {count} of 50 elements" in found["reason"]
        assert found["reason_kind"] == "no-bound" and exit_code(found["status"]) == 1


def test_a_composite_cell_without_a_bound_is_unbounded(rows: Any) -> None:
    (found,) = rows(left_to_right, limit=lambda *given: None)
    assert (found["status"], found["reason_kind"]) == ("unbounded", "no-bound")


def test_nan_for_a_number_is_no_pass_where_nothing_is_stated(rows: Any) -> None:
    def nan(given: Problem) -> dict[str, Tensor]:
        y = left_to_right(given)[""]
        y[3] = torch.nan
        return {"": y}

    def nothing(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit:
        return Limit(torch.full((50,), torch.inf, dtype=torch.float64), "nothing")

    (found,) = rows(nan, limit=nothing)
    assert (found["status"], found["reason_kind"]) == ("unjudged", "no-bound")


def test_a_float64_beyond_every_number_of_bounds_is_a_failure(rows: Any) -> None:
    (found,) = rows(lambda p: {"": torch.full_like(left_to_right(p)[""], 1e308)}, "float64")
    assert found["status"] == "exceeds-bound" and found["error"]["max_share"] > 1e300


@pytest.mark.parametrize("name", [name for name in kernel.names() if isinstance(kernel.load(name), Composite)])
def test_the_lowerings_that_a_composite_kernel_lists_are_those_it_has(name: str) -> None:
    facts = kernel.load(name)
    assert facts.lowerings == tuple(one.name for one in lowerings(facts))


def test_a_problem_does_not_outlive_its_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the garbage collector, which runs too rarely for tensors: two large problems would be held at once."""
    for module in ("plan", "cells"):
        monkeypatch.setattr(f"verify.walk.{module}.lowerings", lambda facts: (REFERENCE,))
    facts = composite()
    case = Instance(facts, facts.settings[0], {}, "float32", backends.load("cpu"), 0)
    target = Target(facts, {}, "plain", "float32", backends.load("cpu"))
    job = Job(target, REFERENCE, setting=facts.settings[0])
    importlib.import_module("torch._dynamo")  # its first import keeps the frames of whoever imports it
    gc.collect()
    gc.disable()
    try:
        found, launched = walk(case, job, None)
        assert cell_of(case, job, found[""], launched)["status"] == "passed"
        held = [weakref.ref(t) for t in case.problem.tensors.values()]
        del case, found, launched
        assert not [ref for ref in held if ref() is not None]
    finally:
        gc.enable()


def test_a_users_file_ends_with_2_where_it_raises(small: None, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text("def f(a, b, alpha=1.0):\n    raise ValueError('no')\n")
    mine, eager, *layouts = run.run(replace(EAGER_ADD, user_lowerings=(f"{own}:f",)))["cells"]
    assert layouts and {one["status"] for one in layouts} == {"not-run"}
    assert (mine["status"], mine["reason_kind"], eager["status"]) == ("error", "raised", "passed")
    assert exit_code(mine["status"], user=True) == 2
