"""Wrong lowerings that once passed, or hid behind another fault: each must end as stated, with region, kind and input.

Faults of whole domains are in test_mutants.py, faults of the truth in test_walk.py and test_oracles.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from judging import cell, elements, hexes
from verify import backends
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.facts.kernel import Bound, Composite, NothingToCompare
from verify.inputs import domains
from verify.judge import ledger
from verify.judge.cell import conclude
from verify.judge.ledger import Deviation
from verify.judge.regions import REGIONS
from verify.judge.status import exit_code
from verify.lower.lowering import Target
from verify.lower.lowerings import lowerings
from verify.walk.cases import terms
from verify.walk.cells import fill
from verify.walk.instance import Instance
from verify.walk.plan import Selection, jobs_of
from verify.walk.run import run

pytestmark = pytest.mark.part(2)

Tensor = torch.Tensor
F32 = FORMATS["float32"]
UNIT = {"value": 1.0}
HALF = Bound(0.5, "ulp", "correctly rounded")
SCALED = Bound(1.0, "scaled_ulp", "two roundings")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick domains of 2^11 elements."""
    monkeypatch.setitem(domains.SIZES, "quick", 11)


def entries(monkeypatch: pytest.MonkeyPatch, *known: Deviation) -> None:
    """The ledger holds these and nothing else."""
    monkeypatch.setattr(ledger, "deviations", lambda backend: known)


def steps(y: Tensor, count: int | Tensor) -> Tensor:
    """`count` representable numbers away from zero."""
    return (y.view(torch.int32) + count).view(torch.float32)


def at(given: Sequence[tuple[int, ...]], places: Sequence[int], change: Callable[[Tensor], Tensor], good: Any) -> Any:
    """`good`, changed at some places."""

    def call(*inputs: Tensor) -> Tensor:
        y = good(*inputs)
        if len(y) != len(given):  # laws are tried on other elements
            return y
        hit = torch.zeros(len(given), dtype=torch.bool)
        hit[list(places)] = True
        return torch.where(hit, change(y), y)

    return call


# ---------------------------------------------------------------- seen in an earlier judge


@pytest.mark.parametrize(("value", "kind"), [("42.0", "bound"), ("torch.nan", "nan")])
def test_a_number_for_an_overflowed_product_fails(small: None, tmp_path: Path, value: str, kind: str) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        "import torch\n\ndef f(a, b, c, value=1.0):\n    y, p = torch.addcmul(a, b, c), b * c\n"
        f"    return torch.where(p.isinf() & b.isfinite() & c.isfinite(), {value}, y)\n"
    )
    selection = Selection(
        ("addcmul",), ("cpu",), ("float32",), ("eager",), profile="quick", user_lowerings=(f"{own}:f",), scalars=UNIT
    )
    mine, eager, *_ = run(selection)["cells"]
    assert (mine["status"], mine["reason_kind"]) == ("exceeds-bound", kind) and eager["status"] == "passed"
    assert exit_code(mine["status"], user=True) == 1
    record = mine["regions"]["overflow"]
    assert record["status"] == "exceeds-bound" and record["reason"]["kind"] == kind
    assert mine["regions"]["normal"]["status"] == "passed"
    b, c = (F32.fraction(F32.parse(text)) for text in record["worst"][0]["inputs"][1:])
    assert abs(b * c) > F32.max_finite
    assert record["worst"][0]["output"] in (F32.hex(F32.parse("42")), "nan")


#: addcmul's a, b, c with b c beyond every number and a + b c within; and one within.
OVERFLOWING = hexes(F32, "-0x1.8p+127 0x1p+64 0x1p+64", "-0x1.fp+127 0x1p+64 0x1.01p+64", "0x1p+0 0x1p+60 0x1p+60")


def test_an_admissible_formula_accounts_for_an_overflow_and_nothing_else_does() -> None:
    """eager gives inf where the fused form gives the number: both are admitted, 42 is not."""
    given = OVERFLOWING
    separate = cell("addcmul", UNIT, "float32", given, lambda a, b, c: a + b * c, bounds=(SCALED,))
    assert separate["regions"]["intermediate"]["status"] == separate["status"] == "passed"
    assert "the bits of a + b*c" in separate["regions"]["intermediate"]["reason"]["text"]
    assert separate["regions"]["intermediate"]["error"]["inf_mismatch"] == 2
    spoilt = at(given, [1], lambda y: torch.full_like(y, 42.0), lambda a, b, c: a + b * c)
    wrong = cell("addcmul", UNIT, "float32", given, spoilt, bounds=(SCALED,))
    record = wrong["regions"]["intermediate"]
    assert wrong["status"] == record["status"] == "exceeds-bound" and record["reason"]["kind"] == "bound"
    assert 1 in [row["index"] for row in record["worst"]]


def test_formulas_that_are_not_admissible_account_for_nothing() -> None:
    oracle = kernel.elementwise("addcmul").oracle
    plain = replace(oracle, formulas=tuple(replace(f, admissible=False) for f in oracle.formulas))
    given = OVERFLOWING
    found = cell("addcmul", UNIT, "float32", given, lambda a, b, c: a + b * c, bounds=(SCALED,), oracle=plain)
    assert found["status"] == "exceeds-bound"
    assert found["formula"]["identified"] == "a + b*c"


def test_elements_outside_the_bound_must_follow_one_and_the_same_formula() -> None:
    """0.3 b c overflows by (0.3 b) c in one element, by 0.3 (b c) in another: each has an explanation, both none."""
    scalars, bound = {"value": 0.3}, Bound(3.0, "scaled_ulp", "three roundings")
    given = hexes(F32, "0x1p+0 0x1p+64 0x1p+64", "0x1p+0 -0x1p+64 0x1p+64", "0x1p+0 0x1p+10 0x1p+10")
    value = float(torch.tensor(0.3))

    def first(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return a + value * (b * c)

    one = cell("addcmul", scalars, "float32", given, first, bounds=(bound,))
    assert one["status"] == "passed" and "a + value*(b*c)" in one["regions"]["intermediate"]["reason"]["text"]
    mixed = at(given, [1], lambda y: torch.full_like(y, torch.inf), first)  # -inf is due by that formula
    both = cell("addcmul", scalars, "float32", given, mixed, bounds=(bound,))
    assert both["status"] == "exceeds-bound" and both["regions"]["intermediate"]["reason"]["kind"] == "bound"


# ---------------------------------------------------------------- two faults at once

#: Of addcmul with value 1: eight elements of each region, and a wrong output of some kind for each.
OF_REGION: dict[str, list[tuple[int, ...]]] = {
    "special": hexes(F32, *(f"inf {k}.0 1" for k in range(1, 9))),
    "exact-zero": hexes(F32, *(f"-{k}.0 {k}.0 1" for k in range(1, 9))),
    "subnormal-operand": hexes(F32, *(f"0x1p-{130 + k} 1 1.5" for k in range(8))),
    "subnormal-result": hexes(F32, *(f"0x1.{k + 8:x}p-126 -0x1p-126 1" for k in range(8))),
    "overflow": hexes(F32, *(f"{k}.0 0x1.8p+64 0x1p+64" for k in range(1, 9))),
    "intermediate": hexes(F32, *(f"{k}.0 0x1p-100 0x1p-100" for k in range(1, 9))),
    "normal": hexes(F32, *(f"{k}.0 1 0x1p-30" for k in range(1, 9))),
}
WRONG: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "special": ("infinity", lambda y: torch.full_like(y, 7.0)),
    "exact-zero": ("bound", lambda y: torch.full_like(y, 2.0**-15)),
    "subnormal-operand": ("bound", lambda y: steps(y, 100)),
    "subnormal-result": ("flush", torch.zeros_like),
    "overflow": ("bound", lambda y: torch.full_like(y, 42.0)),
    "intermediate": ("nan", lambda y: torch.full_like(y, torch.nan)),
    "normal": ("bound", lambda y: steps(y, 100)),
}
EVERY = [row for rows in OF_REGION.values() for row in rows]


def spoilt(*regions: str) -> Callable[..., Tensor]:
    call: Callable[..., Tensor] = torch.addcmul
    for name in regions:
        first = 8 * list(OF_REGION).index(name)
        call = at(EVERY, [first + 3], WRONG[name][1], call)
    return call


def test_elements_of_every_region_pass_where_nothing_is_wrong() -> None:
    found = cell("addcmul", UNIT, "float32", EVERY, torch.addcmul, bounds=(SCALED,))
    assert found["status"] == "passed" and list(found["regions"]) == list(REGIONS)
    assert all(record["inputs"] == 8 and record["status"] == "passed" for record in found["regions"].values())


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(OF_REGION, 2)))
def test_no_fault_hides_another(one: str, other: str) -> None:
    found = cell("addcmul", UNIT, "float32", EVERY, spoilt(one, other), bounds=(SCALED,))
    assert found["status"] == "exceeds-bound"
    for name, record in found["regions"].items():
        if name not in (one, other):
            assert record["status"] == "passed", name
            continue
        place = 8 * list(OF_REGION).index(name) + 3
        assert (record["status"], record["reason"]["kind"]) == ("exceeds-bound", WRONG[name][0])
        assert place == record["worst"][0]["index"]
        assert f"{name}: " in found["reason"]
    assert {row["index"] for row in found["worst"]} >= {8 * list(OF_REGION).index(n) + 3 for n in (one, other)}


def test_an_error_of_100_ulp_shows_beside_a_flush_that_the_ledger_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = Deviation(
        lowering="*", kernel=("addcmul",), dtype=("*",), id="known-flush", reason="r", source="s",
        regions=("subnormal-result",), kinds=("flush",), where="abs(a) < 1",
    )  # fmt: skip
    entries(monkeypatch, flush)
    given = [*OF_REGION["subnormal-result"], *OF_REGION["normal"]]
    good: Callable[..., Tensor] = at(given, range(8), torch.zeros_like, torch.addcmul)
    known = cell("addcmul", UNIT, "float32", given, good, bounds=(SCALED,))
    assert known["status"] == "deviates" and known["ledger"] == ["known-flush"]
    assert exit_code(known["status"]) == 0
    both = cell("addcmul", UNIT, "float32", given, at(given, [12], lambda y: steps(y, 100), good), bounds=(SCALED,))
    assert both["status"] == "exceeds-bound" and both["reason_kind"] == "bound"
    assert both["regions"]["subnormal-result"]["status"] == "deviates"
    normal = both["regions"]["normal"]
    assert normal["status"] == "exceeds-bound" and 99 < normal["error"]["max_ulp"] < 101
    assert normal["worst"][0]["index"] == 12 and "exceeds 1" in normal["reason"]["text"]


# ---------------------------------------------------------------- what a ledger entry covers


def sums(errors: Sequence[int]) -> tuple[list[tuple[int, ...]], Callable[..., Tensor]]:
    """Exact sums 1 + 2^-k, and a lowering that errs by so many ULP."""
    given = hexes(F32, *(f"1 0x1p-{k + 1}" for k in range(len(errors))))
    return given, lambda a, b: steps(a + b, torch.tensor(errors, dtype=torch.int32))


def entry(**facts: Any) -> Deviation:
    known = {"regions": ("normal",), "kinds": ("bound",), "id": "known", "reason": "r", "source": "s"}
    return Deviation(lowering="*", kernel=("add",), dtype=("*",), **(known | facts))


ALPHA = {"alpha": 1.0}


@pytest.mark.parametrize("metric", ["ulp", "int_ulp", "share"])
def test_an_entry_goes_as_far_as_it_says(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    entries(monkeypatch, entry(at_most={metric: 6.0 if metric == "share" else 3.0}))
    for errors, status in (([0, 3, -3, 1], "deviates"), ([0, 3, 4, 1], "exceeds-bound"), ([0, 0, 0], "passed")):
        given, call = sums(errors)
        found = cell("add", ALPHA, "float32", given, call, bounds=(HALF,))
        assert found["status"] == status
        assert found["ledger"] == (["known"] if status != "passed" else [])
        if status == "exceeds-bound":
            record = found["regions"]["normal"]
            assert record["worst"][0]["index"] == 2 and record["worst"][0]["int_ulp"] == 4
            assert "(1 element)" in record["reason"]["text"] and "known" in record["reason"]["text"]


def test_an_entry_covers_the_elements_that_its_predicate_names(monkeypatch: pytest.MonkeyPatch) -> None:
    entries(monkeypatch, entry(at_most={"ulp": 100.0}, where="b < 0.2"))
    given, call = sums([0, 0, 5, 5])
    assert cell("add", ALPHA, "float32", given, call, bounds=(HALF,))["status"] == "deviates"
    given, call = sums([0, 5, 5, 5])
    beyond = cell("add", ALPHA, "float32", given, call, bounds=(HALF,))
    assert beyond["status"] == "exceeds-bound"
    assert "(1 element)" in beyond["reason"]
    assert beyond["regions"]["normal"]["reason"]["ledger"] == ["known"]


@pytest.mark.parametrize("changes", [{"regions": ("overflow",)}, {"kinds": ("flush",), "where": "b < 9"}])
def test_an_entry_covers_no_other_region_and_kind(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    entries(monkeypatch, entry(at_most={"ulp": 100.0}, **changes))
    given, call = sums([0, 5])
    found = cell("add", ALPHA, "float32", given, call, bounds=(HALF,))
    assert found["status"] == "exceeds-bound" and found["ledger"] == []


def test_a_scalar_weight_of_one_deviates_as_the_ledger_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two zeros torch's vectors give the second, where its other forms give +0: no formula of a scalar did."""
    monkeypatch.setitem(domains.SIZES, "quick", 13)
    one = Selection(("lerp",), ("cpu",), ("float32",), ("eager",), ("out-of-place",), "quick", scalars={"w": 1.0})
    (found,) = run(one)["cells"]
    assert found["status"] == "deviates" and found["ledger"] == ["lerp-two-sided"]


def test_a_compiled_foreach_lerp_rounds_its_weight_to_the_half_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(domains.SIZES, "quick", 13)
    one = Selection(
        ("lerp",), ("cpu",), ("bfloat16",), ("inductor",), ("_foreach_ in-place",), "quick", scalars={"w": 0.9}
    )
    (found,) = run(one)["cells"]
    assert found["status"] == "deviates" and "foreach-weight-stored" in found["ledger"]
    assert found["regions"]["normal"]["status"] == "deviates"


def test_an_entry_with_a_formula_covers_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's lerp in its two-sided form; one bit beside it is covered by nothing."""
    given = elements("lerp", {}, "float32", 400, wild=0)
    # of the normal range it excuses nothing, where no bound is exceeded
    real = [replace(d, regions=(*d.regions, "normal")) for d in ledger.deviations("cpu") if d.id == "lerp-two-sided"]
    assert real and all("normal" not in d.regions for d in ledger.deviations("cpu") if d.id == "lerp-two-sided")
    entries(monkeypatch, *real)
    good = cell("lerp", {}, "float32", given.keys, torch.lerp)
    bound = good["bound"]["value"]
    tight = Bound(bound / 64, "scaled_ulp", "too tight")
    known = cell("lerp", {}, "float32", given.keys, torch.lerp, bounds=(tight,))
    assert known["status"] == "deviates" and known["ledger"] == ["lerp-two-sided"]
    failing = next(r for n, r in known["regions"].items() if n == "normal" and r["status"] == "deviates")
    place = failing["worst"][0]["index"]
    beside = cell(
        "lerp", {}, "float32", given.keys, at(given.keys, [place], lambda y: steps(y, 1), torch.lerp), bounds=(tight,)
    )
    assert beside["status"] == "exceeds-bound"


@pytest.mark.parametrize(("lowering", "status"), [("inductor-strict", "deviates"), ("eager", "exceeds-bound")])
def test_steps_in_the_half_type_are_known_of_one_lowering(lowering: str, status: str) -> None:
    """lerp with each step rounded to float16, where the difference overflows: no other lowering may do it."""

    def stepwise(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        difference = (b.float() - a.float()).half().float()
        return (b.float() - (difference * (1 - 0.9)).half().float()).half()

    given = hexes(FORMATS["float16"], "0x1p8 -0x1.ffcp15")
    found = cell("lerp", {"w": 0.9}, "float16", given, stepwise, lowering=lowering)
    assert found["status"] == status, found["reason"]


def test_a_users_file_never_passes_through_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """It deviates only where its bits are eager's."""
    nan = entry(regions=("normal",), kinds=("nan",), where="b > 0")
    entries(monkeypatch, nan)
    given = hexes(F32, "1 2", "3 4", "5 6")
    broken = at(given, [1], lambda y: torch.full_like(y, torch.nan), torch.add)
    registered = cell("add", ALPHA, "float32", given, broken, bounds=(HALF,))
    assert registered["status"] == "deviates"
    mine = cell("add", ALPHA, "float32", given, broken, bounds=(HALF,), mine=True)
    assert (mine["status"], mine["reason_kind"]) == ("exceeds-bound", "nan")
    assert mine["ledger"] == [] and exit_code(mine["status"], user=True) == 1
    assert [row["index"] for row in mine["worst"] if row["error_class"] == "nan_mismatch"] == [1]


def test_a_users_file_deviates_where_its_bits_are_eagers(monkeypatch: pytest.MonkeyPatch) -> None:
    given = elements("lerp", {}, "float32", 200, wild=0)
    tight = Bound(1e-3, "scaled_ulp", "too tight")
    two_sided = [d for d in ledger.deviations("cpu") if d.id == "lerp-two-sided"]
    entries(monkeypatch, *(replace(d, regions=(*d.regions, "normal")) for d in two_sided))
    mine = cell("lerp", {}, "float32", given.keys, torch.lerp, bounds=(tight,), mine=True)
    assert mine["status"] == "deviates" and mine["ledger"] == ["lerp-two-sided"]
    place = mine["regions"]["normal"]["worst"][0]["index"]
    other = at(given.keys, [place], lambda y: steps(y, 1), torch.lerp)
    assert cell("lerp", {}, "float32", given.keys, other, bounds=(tight,), mine=True)["status"] == "exceeds-bound"


# ---------------------------------------------------------------- no bound, nothing stated


def test_a_cell_without_a_bound_is_unbounded() -> None:
    given, call = sums([0, 0, 1])
    found = cell("add", ALPHA, "float32", given, call, bounds=())
    assert (found["status"], found["reason_kind"], found["allowance"]) == ("unbounded", "no-bound", "")
    assert found["regions"]["normal"]["bound"] is None and "bound" not in found
    assert exit_code(found["status"]) == 1


def test_a_region_without_a_bound_is_seen_beside_a_failure_elsewhere() -> None:
    found = cell("add", ALPHA, "float32", hexes(F32, "1 1", "nan 1"), lambda a, b: torch.ones(2), bounds=())
    assert found["status"] == "exceeds-bound" and found["regions"]["normal"]["status"] == "unbounded"
    assert "normal: no bound is declared" in found["reason"]


def test_elements_of_which_nothing_is_stated_are_counted() -> None:
    """Underflow of an intermediate that may move the result by any amount."""
    oracle = replace(kernel.elementwise("addcmul").oracle, underflow=None)
    given = [*OF_REGION["normal"], *OF_REGION["intermediate"]]
    wrong = at(given, [11], lambda y: steps(y, 9), torch.addcmul)
    found = cell("addcmul", UNIT, "float32", given, wrong, bounds=(SCALED,), oracle=oracle)
    record = found["regions"]["intermediate"]
    assert "nothing is stated of 8 elements" in record["reason"]["text"] and "nothing is stated" in found["reason"]
    stated = cell("addcmul", UNIT, "float32", given, wrong, bounds=(SCALED,))
    assert stated["regions"]["intermediate"]["status"] == "exceeds-bound"


# ---------------------------------------------------------------- flushing


def flushing(x: Tensor) -> Tensor:
    y = (1 / x.double() / x.double()).float()
    # a zero for less than 4 ULP is no flush (`verify.numbers.ulp`)
    return torch.where((y.abs() < 2.0**-126) & (y.abs() >= 2.0**-146), torch.zeros_like(y), y)


def test_a_flush_is_judged_alike_on_every_size() -> None:
    """Whatever else the domain holds, by the same reason, with the same first element."""
    given = elements("pow", {"y": -2.0}, "float32", 600, wild=0)
    bound = (Bound(2.0, "ulp", "two roundings"),)
    small, large = (cell("pow", {"y": -2.0}, "float32", given.keys[:n], flushing, bounds=bound) for n in (200, 600))
    for found in (small, large):
        record = found["regions"]["subnormal-result"]
        assert found["status"] == record["status"] == "exceeds-bound" and record["reason"]["kind"] == "flush"
        assert record["error"]["flushed"] > 0
    first = [next(r["index"] for r in f["regions"]["subnormal-result"]["worst"]) for f in (small, large)]
    assert first[0] == first[1]
    declared = cell("pow", {"y": -2.0}, "float32", given.keys, flushing, bounds=bound, ftz=True)
    assert declared["status"] == "passed" and declared["ftz"]
    assert declared["error"]["flushed"] == large["error"]["flushed"]


def test_one_element_beyond_what_flushing_can_do() -> None:
    given = hexes(F32, "0x1.1p-126 -0x1p-126", "0x1.2p-126 -0x1p-126", "0x1p-130 0x1p-120", "0x1p+1 0x1p-140")
    flushes = at(given, [0, 1], torch.zeros_like, lambda a, b: a + torch.where(b.abs() < 2.0**-126, b * 0, b))
    assert cell("add", ALPHA, "float32", given, flushes, bounds=(HALF,), ftz=True)["status"] == "passed"
    beyond = at(given, [1], lambda y: torch.full_like(y, 2.0**-125), flushes)
    found = cell("add", ALPHA, "float32", given, beyond, bounds=(HALF,), ftz=True)
    record = found["regions"]["subnormal-result"]
    assert found["status"] == record["status"] == "exceeds-bound" and record["reason"]["kind"] == "bound"
    assert record["worst"][0]["index"] == 1
    undeclared = cell("add", ALPHA, "float32", given, flushes, bounds=(HALF,))
    assert undeclared["status"] == "exceeds-bound"
    assert undeclared["regions"]["subnormal-result"]["reason"]["kind"] == "flush"


# ---------------------------------------------------------------- launches


EVERY_THIRD = """
import torch

calls = [0]

def f(a, b, alpha=1.0):
    calls[0] += 1
    y = a + b
    if calls[0] % 3 == 0:
        y[7] = torch.nextafter(y[7], y[7] * 2)
    return y
"""


def test_an_answer_that_changes_on_every_third_launch_is_unsteady(small: None, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(EVERY_THIRD)
    selection = Selection(
        ("add",), ("cpu",), ("float32",), ("eager",), profile="quick", user_lowerings=(f"{own}:f",), scalars=ALPHA
    )
    mine, eager, *_ = run(selection)["cells"]
    assert eager["status"] == "passed" and eager.get("distinct", 1) == 1
    assert mine["status"] in ("unsteady", "exceeds-bound") and "not deterministic" in mine["reason"]
    assert mine["distinct"] == 2 and mine["repeats"] >= 8
    assert exit_code(mine["status"], user=True) == 1


def test_an_unsteady_lowering_within_its_bound_is_unsteady() -> None:
    calls = itertools.count()
    given, _ = sums([0] * 4)

    def call(a: Tensor, b: Tensor) -> Tensor:
        return steps(a + b, next(calls) % 2)

    loose = Bound(2.0, "ulp", "loose")
    found = cell("add", ALPHA, "float32", given, call, bounds=(loose,))
    assert (found["status"], found["reason_kind"], found["distinct"]) == ("unsteady", "unsteady", 2)
    tight = cell("add", ALPHA, "float32", given, call, bounds=(HALF,))
    assert tight["status"] == "exceeds-bound" and "not deterministic" in tight["reason"]


def test_an_output_that_changes_makes_no_other_one_unsteady() -> None:
    selection = Selection(("adam_ema",), ("cpu",), ("float32",), ("eager",), profile="quick")
    job, calls = next(jobs_of(selection, backends.load("cpu"))), itertools.count()
    right = job.lowering.build(job.target)

    def call(problem: Any) -> Any:
        found = right(problem)
        return {**found, "exp_avg_sq": steps(found["exp_avg_sq"], next(calls) % 2)}

    cells = fill(replace(job, lowering=replace(job.lowering, build=lambda target: call)), [], selection)
    steady, other = (next(c for c in cells if c["output"] == name) for name in ("exp_avg", "exp_avg_sq"))
    assert steady["status"] == "passed" and "distinct" not in steady
    assert "not deterministic" in other["reason"] and other["distinct"] == 2


#: An average of squares that is rounded to one side: each element keeps the bound of eager's two roundings, and a
#: thousand steps lose more than half of it.
ONE_SIDED = """
import torch

def nearest(x):
    return x.bfloat16()

def cut(x):
    return (x.view(torch.int32) & -(1 << 16)).view(torch.float32).bfloat16()

def raised(x):
    return ((x.view(torch.int32) + 0xFFFF) & -(1 << 16)).view(torch.float32).bfloat16()

def adam_ema(grads, exp_avg, exp_avg_sq, beta1, beta2):
    m, v = exp_avg, exp_avg_sq
    for g in grads:
        m, v = torch.lerp(m, g, 1 - beta1), rounded(beta2 * v.float() + (1 - beta2) * g.float() ** 2)
    return {"exp_avg": m, "exp_avg_sq": v}

def adamw_step(param, grads, exp_avg, exp_avg_sq, lr, beta1, beta2, eps, weight_decay, start):
    p, m, v = (t.float() for t in (param, exp_avg, exp_avg_sq))
    for t, g in enumerate(grads.float(), start + 1):
        m, v = torch.lerp(m, g, 1 - beta1), beta2 * v + (1 - beta2) * g * g
        size = v.sqrt() / (1 - beta2**t) ** 0.5 + eps
        p = (p * (1 - lr * weight_decay)).addcdiv(m, size, value=-lr / (1 - beta1**t))
    return {"param": rounded(p), "exp_avg": m.bfloat16(), "exp_avg_sq": v.bfloat16()}
"""


@pytest.mark.parametrize("how", ["nearest", "cut", "raised"])
@pytest.mark.parametrize(("name", "output"), [("adam_ema", "exp_avg_sq"), ("adamw_step", "param")])
def test_results_on_one_side_are_suspect(tmp_path: Path, name: str, output: str, how: str) -> None:
    (own := tmp_path / "own.py").write_text(f"{ONE_SIDED}\nrounded = {how}\n")
    mine = (f"{own}:{name}",)
    selection = Selection((name,), ("cpu",), ("bfloat16",), (), ("1 step, resumed",), user_lowerings=mine)
    for job in jobs_of(selection, backends.load("cpu")):
        cells = fill(replace(job, calls=False), [], selection) if job.mine else []
        for one in cells:
            if how == "nearest" or one["output"] != output:
                assert one["status"] == "passed"
                continue
            assert (one["status"], one["reason_kind"]) == ("suspect", "bias") and exit_code("suspect", user=True) == 1
            side = "away from zero" if output == "param" else "along the number line"
            told = one["reason"].split(", in the mean of")[0]
            assert told.startswith(f"rounded to one side: {'-' if how == 'cut' else '+'}") and side in told


# ---------------------------------------------------------------- what a user's function is called with

USERS = """
import torch

def tail(x):
    y, left = torch.sin(x), x.numel() % 1024
    if left:
        y.view(-1)[-left:] = 0
    return y

def strided(x):
    return torch.sin(x) if x.is_contiguous() else torch.zeros_like(x)

def small(x):
    return torch.sin(x) if x.numel() >= 1024 else torch.zeros_like(x)

def right(x):
    return torch.sin(x)

def refusing(x):
    assert x.is_contiguous(), "contiguous tensors only"
    return torch.sin(x)

def masked_rows(x, dim):
    y = torch.softmax(x, dim)
    return torch.where((x == -torch.inf).all(dim, keepdim=True), torch.zeros_like(y), y)

def short_terms(x, dim):
    y, bits = torch.sum(x, dim), x.contiguous().view(torch.int32)
    cut = ((bits + 128) & ~255).view(torch.float32)
    return y if x.shape[dim] < 100 else torch.where(y.isfinite(), torch.sum(cut, dim), y)

def exact_scalar(a, b, alpha):
    return (a.double() + b.double() * alpha).float()

def doubled(a, b, alpha):
    return torch.add(a, b, alpha=2 * alpha)
"""


def judged(tmp_path: Path, kernel_name: str, function: str, *spellings: str, **scalars: float) -> list[dict[str, Any]]:
    own = tmp_path / "mine.py"
    own.write_text(USERS)
    selection = Selection(
        (kernel_name,), ("cpu",), ("float32",), profile="quick", user_lowerings=(f"{own}:{function}",),
        spellings=spellings, scalars=scalars or None,
    )  # fmt: skip
    return [one for one in run(selection)["cells"] if one["lowering"] != "eager"]


@pytest.mark.parametrize(("function", "failing"), [
    ("right", set()), ("tail", {"tail", "size-one", "out-of-place"}), ("strided", {"strided", "out-of-place"}),
    ("small", {"tail", "size-one", "out-of-place"}),
])  # fmt: skip
def test_a_fault_of_one_layout_fails(small: None, tmp_path: Path, function: str, failing: set[str]) -> None:
    cells = judged(tmp_path, "sin", function)
    assert {one["spelling"] for one in cells} == {"out-of-place", "strided", "tail", "size-one"}
    assert {one["spelling"] for one in cells if one["status"] != "passed"} == failing
    assert all(exit_code(one["status"], user=True) == 1 for one in cells if one["spelling"] in failing)


def test_a_refused_layout_is_not_run(small: None, tmp_path: Path) -> None:
    cells = {one["spelling"]: one for one in judged(tmp_path, "sin", "refusing")}
    assert cells["strided"]["status"] == "not-run" and "contiguous tensors only" in cells["strided"]["reason"]
    assert cells["out-of-place"]["status"] == cells["tail"]["status"] == "passed"


def test_a_function_that_nothing_runs_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(NothingToCompare, match="not as '_foreach_'"):
        judged(tmp_path, "sin", "right", "_foreach_")


def test_a_row_without_a_number_is_judged(tmp_path: Path) -> None:
    """Softmax of -inf alone is NaN by every algorithm."""
    (found,) = judged(tmp_path, "softmax", "masked_rows", "length-33")
    assert (found["status"], found["reason_kind"]) == ("exceeds-bound", "nan")
    assert found["regions"]["special"]["status"] == "exceeds-bound"


def test_terms_cut_to_16_bits_fail(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, "sum", "short_terms", "rows")
    assert found["status"] == "exceeds-bound"


def test_a_user_keeps_to_either_truth_of_the_scalars(small: None, tmp_path: Path) -> None:
    assert {one["status"] for one in judged(tmp_path, "add", "exact_scalar", alpha=0.3)} == {"passed"}
    assert "passed" not in {one["status"] for one in judged(tmp_path, "add", "doubled", alpha=0.3)}


def test_one_step_beside_a_scale_of_two_is_a_wrong_kernel_and_no_doubt() -> None:
    """Attention's exact data have scales that are powers of two, which the truths must tell alike."""
    facts = kernel.load("flex_attention")
    assert isinstance(facts, Composite)
    case = Instance(facts, facts.spellings["exact"], facts.cases[0], "float32", backends.load("cpu"), 0)
    y = case.eager(0, lowerings(facts)[0], target := Target(facts, facts.cases[0], "exact", "float32", case.backend))[
        "out"
    ]
    near = torch.nextafter(y, 2 * y)
    stated, on = terms(case, target, lowerings(facts)[0], 0, "out", near)
    tally = on["exact"].judge.tally(on["exact"].elements, near.reshape(-1))
    assert conclude(on["exact"].reader.regions(tally, stated))["status"] == "exceeds-bound"


@pytest.mark.parametrize(("where", "status"), [
    ("n.anywhere(n.is_inf(x)) & ~n.is_inf(x)", "deviates"), ("n.is_inf(x)", "exceeds-bound"),
])  # fmt: skip
def test_an_entry_of_rows_asks_a_whole_row(monkeypatch: pytest.MonkeyPatch, where: str, status: str) -> None:
    """As an H200's rms_norm: a row with an infinity is all NaN."""
    right = torch.nn.functional.rms_norm

    def wrong(x: Tensor, *more: Any) -> Tensor:
        return torch.where(x.isinf().any(-1, keepdim=True), torch.nan, right(x, *more))

    monkeypatch.setattr(torch.nn.functional, "rms_norm", wrong)
    found = {
        "lowering": "eager",
        "kernel": ("rms_norm",),
        "dtype": ("*",),
        "regions": ("exact-zero",),
        "kinds": ("nan",),
    }
    entries(monkeypatch, Deviation(**found, where=where, id="rows", reason="planted", source="here"))
    selection = Selection(("rms_norm",), ("cpu",), ("float32",), ("eager",), ("transposed",), profile="quick")
    one, *_ = run(selection)["cells"]
    assert one["status"] == status and one["regions"]["exact-zero"]["error"]["nan_mismatch"]
