"""What tallies mean: statuses and reasons of regions, a cell's conclusion, allowances, and maxima in multiprecision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judging import cell, elements, hexes, limits, outputs, patterns
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.facts.kernel import Bound
from verify.inputs import domains
from verify.judge import ledger, status
from verify.judge.cell import UNJUDGED, Reader, Stated, accounting, conclude, exceeds, leaning, overall
from verify.judge.chunk import Judge, OracleViolation
from verify.judge.element import Limits
from verify.judge.ledger import Allowance
from verify.judge.regions import REGIONS
from verify.judge.status import ALLOWABLE, FAILURES, REASONS, STATUSES, exit_code
from verify.judge.tally import Element, Fit, InRegion, Lean, Tally
from verify.walk.plan import Selection
from verify.walk.run import run

F32, F64 = FORMATS["float32"], FORMATS["float64"]
BOUND = Stated(1.0, "ulp", "here")
SUM = elements("add", {"alpha": 1.0}, "float32", 3)
#: 1 + 1 = 2, one step off.
ONE = Element(4, (0x3F800000, 0x3F800000), 0x40000001)


def reader() -> Reader:
    return Reader(SUM.exact, F32, Limits(ulp=1.0), scale=False)


def region(**facts: Any) -> InRegion:
    """100 correct elements, and more."""
    counts = {"correct": 100, "measured": 100, "sum": 0, "sum_signed": 0} | facts.pop("counts", {})
    return InRegion(counts=counts, **facts)


def record(one: InRegion, *, name: str = "normal", bound: Stated | None = BOUND, **tally: Any) -> dict[str, Any]:
    found: dict[str, Any] = reader().regions(Tally({name: one}, **tally), bound)[name]
    return found


# ---------------------------------------------------------------- regions


@pytest.mark.parametrize("kind", FAILURES)
def test_an_element_that_fails_fails_its_region(kind: str) -> None:
    facts: dict[str, Any] = {"undecided": 1} if kind == "undecided" else {"fails": {kind: 1}}
    found = record(region(**facts, witnesses={kind: ONE}))
    assert found["status"] == "exceeds-bound" and found["reason"]["kind"] == kind
    assert "1 element" in found["reason"]["text"]
    assert [row["index"] for row in found["worst"]] == [4]
    assert found["worst"][0]["inputs"] == ["0x1p+0", "0x1p+0"] and found["worst"][0]["output"] == "0x1.000002p+1"


def test_all_kinds_of_failure_are_told_the_bound_first() -> None:
    one = region(fails={"flush": 3, "bound": 2, "nan": 1}, leaders=(((1.5, ONE),), (), ()), witnesses={"nan": ONE})
    text = record(one)["reason"]["text"]
    assert record(one)["reason"]["kind"] == "bound"
    assert text.index("(2 elements)") < text.index("1 element NaN") < text.index("3 elements flushed")


def test_a_region_that_passes_says_nothing() -> None:
    found = record(region())
    assert (found["status"], found["reason"]) == ("passed", {"kind": "", "text": "", "ledger": []})
    assert found["inputs"] == 100 and found["bound"]["value"] == 1.0


def test_a_region_without_elements_has_no_record() -> None:
    assert reader().regions(Tally({"normal": region(), "special": InRegion()}), BOUND).keys() == {"normal"}


@pytest.mark.parametrize("name", REGIONS)
def test_a_region_with_numbers_and_no_bound_is_unbounded(name: str) -> None:
    """NaNs, infinities and zeros are judged without one."""
    found = record(region(), name=name, bound=None)
    expected = "passed" if name in ("special", "exact-zero") else "unbounded"
    assert found["status"] == expected and found["bound"] is None


@pytest.mark.parametrize(("count", "told"), [(0, "passed"), (1, "passed"), (2, "unjudged")])
def test_at_most_one_in_100_normal_elements_may_be_unjudged(count: int, told: str) -> None:
    found = record(region(counts={"unjudged": count}))
    assert found["status"] == told and Fraction(1, 100) == UNJUDGED
    assert found["unjudged"] == count
    assert (f"nothing is stated of {count}" in found["reason"]["text"]) == (count > 0)
    other = record(region(counts={"unjudged": count}), name="intermediate")
    assert other["status"] == "passed" and (f"nothing is stated of {count}" in other["reason"]["text"]) == (count > 0)


@pytest.mark.parametrize("normal", [{}, {"counts": {"unjudged": 50}}, {"fails": {"nan": 1}}])
def test_a_cell_tells_of_the_unjudged_whatever_its_status(normal: dict[str, Any]) -> None:
    silent = record(region(counts={"unjudged": 7}), name="intermediate")
    told = conclude({"intermediate": silent, "normal": record(region(**normal))})["reason"]
    assert "intermediate: nothing is stated of 7 elements" in told


DEVIATES = {("known", "flush"): 2, ("other", "bound"): 1}


@pytest.mark.parametrize(
    ("facts", "bound", "told"),
    [
        ({}, BOUND, "deviates"),
        ({"fails": {"nan": 1}}, BOUND, "exceeds-bound"),
        ({}, None, "unbounded"),
        ({"counts": {"unjudged": 50}}, BOUND, "unjudged"),
    ],
)
def test_what_the_ledger_knows_hides_nothing_that_is_worse(
    facts: dict[str, Any], bound: Stated | None, told: str
) -> None:
    found = record(region(deviates=DEVIATES, witnesses={"known": ONE}, **facts), bound=bound)
    assert found["status"] == told
    assert found["reason"]["ledger"] == ["known", "other"]
    assert "3 elements as the ledger says (known, other)" in found["reason"]["text"]
    if told == "deviates":
        assert found["reason"]["kind"] == "bound"


# ---------------------------------------------------------------- overflow of an intermediate


FITS = {
    "fma(b, c, a)": Fit(mismatches=9, lost=2, admissible=True),
    "a + b*c": Fit(mismatches=3, lost=0, admissible=True),
    "a + b": Fit(mismatches=0, lost=0, admissible=False),
}


def test_one_admissible_formula_must_account_for_all_elements_that_are_lost() -> None:
    regions = {"intermediate": region(lost={"nan": 2}), "overflow": region(lost={"bound": 1})}
    assert accounting(Tally(regions, formulas=FITS)) == "a + b*c"
    assert accounting(Tally({"normal": region()}, formulas=FITS)) is None
    wrong = FITS | {"a + b*c": Fit(lost=1, admissible=True)}
    assert accounting(Tally(regions, formulas=wrong)) is None
    records = reader().regions(Tally(regions, formulas=FITS), BOUND)
    assert {r["status"] for r in records.values()} == {"passed"}
    assert "the bits of a + b*c" in records["overflow"]["reason"]["text"]
    records = reader().regions(Tally(regions, formulas=wrong), BOUND)
    assert {(r["status"], r["reason"]["kind"]) for r in records.values()} == {
        ("exceeds-bound", "nan"), ("exceeds-bound", "bound"),
    }  # fmt: skip


def test_what_else_fails_is_accounted_for_by_no_formula() -> None:
    one = region(lost={"nan": 2}, fails={"nan": 1})
    found = record(one, name="intermediate", formulas=FITS)
    assert found["status"] == "exceeds-bound" and "1 element NaN" in found["reason"]["text"]
    assert "2 elements where an intermediate overflows: the bits of a + b*c" in found["reason"]["text"]


# ---------------------------------------------------------------- one side of all known formulas


def leans(*each: Lean) -> str:
    return leaning(Tally(formulas={str(k): Fit(mismatches=1, lean=one) for k, one in enumerate(each)}))


def test_what_lies_to_one_side_of_every_formula_is_told() -> None:
    down, up, away = Lean(4096, -2048, 3, 2048), Lean(4096, 900, 0, 900), Lean(4096, 3, 1024, 1024)
    assert "-0.5 steps along the number line, in the mean of 4096 elements" in leans(down)
    assert "+0.22 steps" in leans(down, up) and "+0.25 steps away from zero" in leans(down, away)
    assert not leans(down, Lean(4096, 100, -300, 4000))  # about the results of one
    assert not leans() and not leans(Lean())


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_chance_is_no_side(count: int, share: float) -> None:
    """Steps of +-1 with a share of either sign: seven standard errors and an eighth of a step are due to chance."""
    up = int(count * share)
    assert not Lean().aside
    one = Lean(count, up - (count - up), 0, count)
    assert bool(leans(one)) == (abs(one.along) / count > 1 / 8 + 7 / math.sqrt(count))


# ---------------------------------------------------------------- cells


def records(**statuses: str) -> Mapping[str, Mapping[str, Any]]:
    kinds = {"exceeds-bound": "nan", "deviates": "flush", "unbounded": "no-bound", "unjudged": "no-bound", "passed": ""}
    return {
        name: {
            "status": s,
            "reason": {"kind": kinds[s], "text": f"{s} here" if s != "passed" else "", "ledger": [name]},
        }
        for name, s in statuses.items()
    }


@pytest.mark.parametrize(
    ("one", "other"),
    list(itertools.product(("exceeds-bound", "unbounded", "unjudged", "deviates", "passed"), repeat=2)),
)
def test_a_cell_has_its_worst_regions_status(one: str, other: str) -> None:
    found = conclude(records(overflow=one, normal=other))
    worst = min(one, other, key=STATUSES.index)
    assert found["status"] == worst
    for name, each in (("overflow", one), ("normal", other)):
        assert (f"{name}: {each} here" in found["reason"]) == (each != "passed")
    assert found["reason_kind"] == records(normal=worst)["normal"]["reason"]["kind"]
    assert found["ledger"] == ["normal", "overflow"]


def test_of_regions_of_one_status_the_normal_one_is_told_first() -> None:
    found = conclude(records(special="exceeds-bound", normal="exceeds-bound"))
    assert found["reason"].startswith("normal: ")


def test_no_region_at_all_is_no_failure() -> None:
    assert conclude({}) == {"status": "passed", "reason": "", "reason_kind": "", "ledger": []}


def test_kinds_of_reason_are_words_of_the_table() -> None:
    assert {"", *FAILURES, "no-bound", "unsteady", "oracle"} <= set(REASONS)
    assert len(set(REASONS)) == len(REASONS)


@pytest.mark.parametrize(
    ("name", "code"),
    [("oracle-violation", 4), ("error", 1), ("exceeds-bound", 1), ("unsteady", 1), ("suspect", 1), ("unbounded", 1),
     ("unjudged", 1), ("deviates", 0), ("not-run", 0), ("passed", 0)],
)  # fmt: skip
def test_exit_codes(name: str, code: int) -> None:
    assert exit_code(name) == code
    assert exit_code(name, user=True) == (2 if name == "error" else code)
    assert exit_code(name, allowed=True) == (0 if name in ALLOWABLE else code)


def test_the_statuses_are_ordered_worst_first() -> None:
    assert STATUSES == (
        "oracle-violation", "error", "exceeds-bound", "unsteady", "suspect", "unbounded", "unjudged", "deviates",
        "not-run", "passed",
    )  # fmt: skip
    assert status.worst(["passed", "deviates", "unjudged"]) == "unjudged" and status.worst([]) == "passed"
    assert [status.combined(codes) for codes in ([0, 1, 2, 4], [3, 1, 2], [1, 3], [3, 0], [])] == [4, 2, 1, 3, 0]


def test_the_ledger_knows_early_infinities_of_pow_and_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ledger.deviations("cpu", "AVX512")
    monkeypatch.setattr(ledger, "deviations", lambda backend: known)
    facts: dict[str, Any] = {"lowering": "inductor", "bounds": (Bound(1.0, "ulp", "s"),)}
    early = hexes(F64, "0x1.00000aa2b8301p+0 0x1.0af20ca342ca1p+30")
    found = cell("pow", {}, "float64", early, lambda x, y: x * math.inf, **facts)
    assert (found["status"], found["ledger"]) == ("deviates", ["sleef-pow-overflows-early"])
    plain = hexes(F64, "0x1.8p+0 0x1.8p+1")
    found = cell("pow", {}, "float64", plain, lambda x, y: x**y * (1 + 400 * 2.0**-52), **facts)
    assert (found["status"], found["ledger"]) == ("exceeds-bound", [])


@pytest.mark.parametrize(
    ("kernel_name", "lowering", "dtype", "inputs", "wrong"),
    [
        ("erf", "inductor", "float32", "0x1p-1", 0.0),  # 0 was as far from the truth as what the entry allowed
        ("erf", "inductor", "float32", "0x1p-10", 0.0),
        ("erf", "eager", "float16", "0x1p-1", 1 + 2.0**-9),
        ("erf", "eager", "bfloat16", "0x1p-10", 0.0),
        ("log", "triton-interpreter", "float32", "0x1.8p+3", 1 + 2.0**-18),
        ("exp", "triton-interpreter", "float16", "0x1.8p+0", 1 + 2.0**-8),
        ("pow", "triton-interpreter", "float32", "0x1.8p+0 0x1.8p+1", 1 + 2.0**-18),
    ],
)
def test_an_entry_goes_no_further_than_its_fault(
    monkeypatch: pytest.MonkeyPatch, kernel_name: str, lowering: str, dtype: str, inputs: str, wrong: float
) -> None:
    """Errors that the ledger once took for those of erf's formula and of the interpreter's fma."""
    known = ledger.deviations("cpu", "AVX512")
    monkeypatch.setattr(ledger, "deviations", lambda backend: known)

    def call(*given: torch.Tensor) -> torch.Tensor:
        exact = getattr(torch, kernel_name)(*(t.double() for t in given))
        return (exact * wrong).to(given[0].dtype)

    found = cell(kernel_name, {}, dtype, hexes(FORMATS[dtype], inputs), call, lowering=lowering)
    assert (found["status"], found["ledger"]) == ("exceeds-bound", [])


# ---------------------------------------------------------------- allowances


def allow(monkeypatch: pytest.MonkeyPatch, cap: int = 9) -> None:
    entry = Allowance(
        lowering="*", kernel=("add",), dtype=("*",), id="listed", status="unbounded", cap=cap, reason="none is known"
    )  # fmt: skip
    monkeypatch.setattr(ledger, "allowances", lambda backend, capability="": (entry,))


def test_a_registered_cell_may_have_a_status_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = hexes(F32, "1 2", "3 4")
    alpha, add = {"alpha": 1.0}, lambda a, b: a + b
    assert cell("add", alpha, "float32", given, add, bounds=())["allowance"] == ""
    allow(monkeypatch)
    found = cell("add", alpha, "float32", given, add, bounds=())
    assert (found["status"], found["allowance"]) == ("unbounded", "listed")
    assert cell("add", alpha, "float32", given, add, bounds=(), mine=True)["allowance"] == "listed"  # eager's bits
    assert cell("add", alpha, "float32", given, lambda a, b: a - b, bounds=(), mine=True)["allowance"] == ""
    wrong = cell("add", alpha, "float32", given, lambda a, b: a * 0 - 1, bounds=(Bound(0.5, "ulp", "s"),))
    assert (wrong["status"], wrong["allowance"]) == ("exceeds-bound", "")


def test_an_allowance_for_one_status_covers_no_other_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans that are not deterministic, and of which nothing would be noticed."""
    turns = itertools.count()
    entries = {
        name: Allowance(lowering="*", kernel=("add",), dtype=("*",), id=name, status=name, cap=9, reason="r")
        for name in ("unsteady", "unbounded")
    }
    for allowed, expected in ((("unsteady",), ""), (("unbounded",), ""), (("unsteady", "unbounded"), "unsteady")):
        listed = tuple(entries[name] for name in allowed)
        monkeypatch.setattr(ledger, "allowances", lambda backend, capability="", listed=listed: listed)
        found = cell(
            "add", {"alpha": 1.0}, "float32", hexes(F32, "1 2", "3 4"), lambda a, b: a + b + next(turns) % 3, bounds=()
        )
        assert (found["status"], found["allowance"]) == ("unsteady", expected)


def test_an_allowance_is_for_so_many_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, cap=1)
    monkeypatch.setitem(domains.SIZES, "quick", 9)
    facts = replace(kernel.elementwise("add"), bounds=())
    monkeypatch.setattr(kernel, "load", lambda name: facts)
    selection = Selection(
        ("add",), ("cpu",), ("float32", "float16"), ("eager",), profile="quick", scalars={"alpha": 1.0}
    )
    found = run(selection)["cells"]
    assert len(found) > 1 and {c["status"] for c in found} == {"unbounded"}
    assert [c["allowance"] for c in found] == ["listed"] + [""] * (len(found) - 1)
    assert "allowance listed is for 1 cells, which come before this one" in found[1]["reason"]


# ---------------------------------------------------------------- maxima


def test_maxima_are_those_of_multiprecision() -> None:
    """Of all elements, whichever path judged them; the worst is the one that has the error."""
    given = elements("addcmul", {"value": 0.3}, "float32", 60)
    y, terms = outputs(given, 3), limits(given, 0)
    tally = Judge(given.fmt, terms).tally(given.chunk, y)
    read = Reader(given.exact, given.fmt, terms, scale=True)
    found = read.regions(tally, Stated(1.0, "scaled_ulp", "here"))
    for name, one in found.items():
        outcomes = [given.exact.outcome(k, b, terms) for k, b in zip(given.keys, patterns(y, given.fmt), strict=True)]
        mine = [o for o in outcomes if o and o.region == name and o.verdict.high is not None]
        mine = [o for o in mine if o.verdict.cls != "flushed"]
        assert one["error"]["max_ulp"] == max((float(min(o.verdict.high, 2**1000)) for o in mine), default=0.0)
        assert one["error"]["max_scaled_ulp"] == max((float(min(o.verdict.scaled, 2**1000)) for o in mine), default=0.0)
        assert one["error"]["max_int_ulp"] == max((o.verdict.steps for o in mine), default=0)
        if one["reason"]["kind"] in ("", "bound") and one["worst"]:
            assert one["worst"][0]["scaled_ulp"] == one["error"]["max_scaled_ulp"]
    assert overall(read, tally, None)["max_ulp"] == max(one["error"]["max_ulp"] for one in found.values())


def test_the_largest_scaled_error_is_found_among_many_beside_a_power_of_two() -> None:
    """Scales of 2 and a little more, which float64 does not tell from 2: ulp(scale) is known within a factor of two."""
    given = hexes(F32, *(f"2 0x1p-{60 + k} 1" for k in range(20)), "3 0x1p-23 1")
    off = torch.tensor([1] * 20 + [2], dtype=torch.int32)

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return (a.view(torch.int32) + off).view(torch.float32)

    found = cell("addcmul", {"value": 1.0}, "float32", given, call, bounds=(Bound(9.0, "scaled_ulp", "s"),))
    assert found["error"]["max_scaled_ulp"] == 1.5 == found["bound"]["measured"]
    assert found["worst"][0]["index"] == 20


def test_an_upper_bound_below_the_error_is_a_violation() -> None:
    """What tensors say of an element must hold in multiprecision."""
    good = InRegion({"worse": 1}, leaders=(((1.0, ONE),), ((1.0, ONE),), ()))
    assert reader().extremes(good).top["ulp"] == 1.0
    bad = InRegion({"worse": 1}, leaders=(((0.9, ONE),), ((1.0, ONE),), ()))
    with pytest.raises(OracleViolation, match=r"ulp is 1\.0, above its upper bound 0\.9"):
        reader().extremes(bad)


@given(st.floats(min_value=2.0**-20, max_value=1e300))
def test_an_excess_is_told_in_digits_that_show_it(limit: float) -> None:
    most = math.nextafter(limit, math.inf)
    told, allowed = map(float, exceeds(most, limit).split(" exceeds "))
    assert told > allowed
    assert exceeds(1200.0, 3.0) == "1200 exceeds 3"
