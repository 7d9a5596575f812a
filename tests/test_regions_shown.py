"""Two faults in one cell, in every pair of regions: each reader of a report shows both, and none takes what deviates
for a pass."""

from __future__ import annotations

import base64
import copy
import gzip
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sample_reports import cell, cell_of, deviating, not_run, region, report, report_of, worst_at
from test_ci_outputs import pytest_run
from test_gate import FINGERPRINT, SLUG, Bench, bench
from test_readme import tables
from verify.cli.commands import main
from verify.judge import ledger
from verify.judge.regions import REGIONS
from verify.judge.status import ALLOWABLE, EXIT_CODES, FAILURES, STATUSES
from verify.reports import ci, compare, embedded, gate, markdown, store, terminal
from verify.reports.blocks import Line, Page, Table
from verify.reports.compare_page import compare_page
from verify.reports.figures import counted, share
from verify.reports.gate_page import as_json, gate_page, verdict_line
from verify.reports.looks import COUNTED, LOOKS, PRECEDENCE, severity, tally, tally_text
from verify.reports.looks import tone as tone_of
from verify.reports.reasons import beside_regions
from verify.reports.run_page import kernel_page, run_page
from verify.reports.schema import Report

assert bench is not None  # the fixture
SHARE = {"value": 1.0, "metric": "share", "source": "s"}
#: Entries that these reports name.
IDS = frozenset({*(f"id-{name}" for name in REGIONS), "e", "id", "an-entry", "atomics", "unbounded-sums",
                 "interpreter-fma"})  # fmt: skip
PAIRS = list(itertools.permutations(REGIONS, 2))
PLACES = {name: index for index, name in enumerate(REGIONS, 100)}


@pytest.fixture(autouse=True)
def entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger with the entries that these reports name."""
    about = {"lowering": "*", "kernel": ("*",), "dtype": ("*",), "reason": "so"}
    far: dict[str, Any] = {"regions": REGIONS, "kinds": FAILURES, "formula": ("*",), "source": "here"}
    known = {
        ledger.Deviation: [ledger.Deviation(**about, **far, id=one) for one in IDS],
        ledger.Allowance: [ledger.Allowance(**about, id=one, status=s, cap=9) for one in IDS for s in ALLOWABLE],
    }
    monkeypatch.setattr(ledger, "on_device", lambda backend, kind, facts: known[kind])


def fault(name: str, **changes: Any) -> dict[str, Any]:
    """A region that exceeds its bound, with a worst element and a figure of its own."""
    size = float(PLACES[name])
    why = {"kind": "bound", "text": f"ulp {size:g} exceeds 1.5"}
    return region(**{"status": "exceeds-bound", "reason": why, "max_ulp": size, "max_share": size / 1.5,
                     "worst": [worst_at(PLACES[name], ulp=size)], **changes})  # fmt: skip


def known(name: str, **changes: Any) -> dict[str, Any]:
    """A region that the ledger's entry of its own covers."""
    return deviating(f"id-{name}", text=f"flushes there {PLACES[name]}", worst=[worst_at(PLACES[name])], **changes)


def filled(**given: dict[str, Any]) -> dict[str, Any]:
    """A cell with every region, passed but those given (with _ for -)."""
    named = {name.replace("_", "-"): one for name, one in given.items()}
    return cell_of({name: named.get(name, region()) for name in REGIONS}, digest="ab12")


def made(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return report_of(*cells, **{"environment": {"cpu": dict(FINGERPRINT)}, **changes})


def of(value: dict[str, Any]) -> Report:
    return Report.model_validate(copy.deepcopy(value))


def printed(page: Page, width: int = 200) -> str:
    file = io.StringIO()
    terminal.print_page(page, file, width)
    return file.getvalue()


def underscored(name: str) -> str:
    return name.replace("-", "_")


def both(first: str, second: str) -> dict[str, Any]:
    """`first` exceeds its bound, `second` deviates."""
    return filled(**{underscored(first): fault(first), underscored(second): known(second)})


def told_in(text: str, first: str, second: str) -> None:
    """Both faults, each with its region, status, reason, worst element; the second with its entry of the ledger."""
    flat = " ".join(text.split())
    for name, why in ((first, f"ulp {PLACES[first]} exceeds 1.5"), (second, f"flushes there {PLACES[second]}")):
        assert f"in {name}" in flat and why in flat, (name, flat)
        assert f"0x1.{PLACES[name]:x}p+0" in flat
    assert f"id-{second}" in flat and "exceeds-bound" in flat and "deviates" in flat


# The terminal and Markdown


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_terminal_and_markdown_show_both(first: str, second: str) -> None:
    value = of(made(both(first, second)))
    for page in (kernel_page(value, "addcmul"), run_page(value)):
        told_in(printed(page), first, second)
        told_in(re.sub(r"\\|<code>|</code>|&#45;|&#\d+;", "", "".join(markdown.lines(page))), first, second)
    shown = printed(kernel_page(value, "addcmul"), 110)
    assert re.search(rf"^ +in {first} +exceeds-bound +{PLACES[first]} +ulp", shown, re.MULTILINE)
    assert re.search(rf"^ +in {second} +deviates +0\.75 +ulp", shown, re.MULTILINE)
    assert "0 of 1 cell passed, 1 failed" in shown


@pytest.mark.parametrize("predicted", [False, True])
def test_a_users_own_has_its_verdict_first(predicted: bool) -> None:
    against = ({"different": 0, "closer": 0, "farther": 0, "tied": 0},
               {"different": 60, "closer": 41, "farther": 12, "tied": 7})  # fmt: skip
    value = of(made(*(filled() | {"lowering": "mine.py:f", "against_eager": one, "scalars": {"value": float(k)}}
                      for k, one in enumerate(against))))  # fmt: skip
    if predicted:
        value = value.model_copy(update={"cells": [one.model_copy(update={"predicted": {}}) for one in value.cells]})
    first = next(one for one in kernel_page(value, "addcmul").blocks if isinstance(one, Line))
    told = (
        "2 of 2 cells passed; the bits of eager in 1 of 2, in the others 41 elements closer to the truth than eager's"
    )
    assert (first.label, first.text.removeprefix("\N{ALMOST EQUAL TO} ")) == ("mine.py:f:", f"{told} and 12 farther")
    assert first.kind == ("plain" if predicted else "good")
    assert "inductor:" not in printed(kernel_page(of(made(filled())), "addcmul"))


def test_a_failure_that_eager_has_too_is_said() -> None:
    """Of a function held to more than eager, whose bits it has; not where its calls alone fail."""
    same = {"lowering": "mine.py:f", "against_eager": {"different": 0, "closer": 0, "farther": 0, "tied": 0}}
    calls = {"made": 30, "status": "unsteady", "different": ["a"]}
    cells = (filled(normal=fault("normal")) | same, filled(normal=fault("normal")) | same | {"calls": calls})
    told = [", also in 1 that fail: torch's own is beyond what is asked of yours there", ""]
    for one, more in zip(cells, told, strict=True):
        first = next(block for block in kernel_page(of(made(one)), "addcmul").blocks if isinstance(block, Line))
        assert first.text == f"0 of 1 cell passed, 1 failed; the bits of eager in 1 of 1{more}"


def test_calls_that_fail_beside_a_region_are_named() -> None:
    calls = {"made": 30, "status": "exceeds-bound", "different": ["a", "b", "c", "d", "e"]}
    cell = filled(normal=fault("normal")) | {"lowering": "mine.py:f", "calls": calls}
    (told,) = beside_regions(of(made(cell)).cells[0])
    assert told == ("exceeds-bound", "5 of 30 other calls fail: a, b, c, 2 more")


def test_the_verdict_counts_calls_that_say_nothing() -> None:
    calls = {"made": 30, "refused": {"expanded": "no"}, "untried": ["a", "b"]}
    value = of(made(filled() | {"lowering": "mine.py:f", "calls": calls}))
    first = next(one for one in kernel_page(value, "addcmul").blocks if isinstance(one, Line))
    assert first.text.endswith("; 1 other call refused; 2 other calls not made for want of time")
    ended = {"made": 0, "untried": ["a", "b"], "status": "error"}
    value = of(
        made(
            filled()
            | {"lowering": "mine.py:f", "calls": ended, "status": "error", "reason": "no", "reason_kind": "contract"}
        )
    )
    first = next(one for one in kernel_page(value, "addcmul").blocks if isinstance(one, Line))
    assert first.text.endswith("; 2 other calls not made after one that failed")


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(REGIONS, 2)))
def test_two_that_exceed_are_two_lines(first: str, second: str) -> None:
    value = of(made(filled(**{underscored(name): fault(name) for name in (first, second)})))
    shown = printed(kernel_page(value, "addcmul"))
    for name in (first, second):
        assert f": in {name}: ulp {PLACES[name]} exceeds 1.5" in shown
        assert f"--input=0x1.{PLACES[name]:x}p+0" in shown


@pytest.mark.parametrize("name", REGIONS)
def test_a_deviation_is_never_green_and_never_among_the_passes(name: str) -> None:
    value = of(made(filled(**{underscored(name): known(name)}), cell_of({"normal": region()}, lowering="eager")))
    for page in (kernel_page(value, "addcmul"), run_page(value)):
        lines = [block for block in page.blocks if isinstance(block, Line)]
        assert not any(line.kind in ("good", "bad") for line in lines)
        assert "1 of 2 cells passed, 1 deviates" in printed(page)
        assert any(line.kind == "deviates" and f"id-{name}" in line.text for line in lines)
    run = next(block for block in run_page(value).blocks if isinstance(block, Table))
    counts = dict(zip((column.title for column in run.columns), run.rows[0].cells, strict=True))
    assert (counts["passed"], counts["deviate"], counts["failed"]) == ("1", "1", "0")
    assert main_code(made(filled(**{underscored(name): known(name)}))) == 0


def main_code(value: dict[str, Any]) -> int:
    from verify.cli.conduct import exit_code

    return exit_code(of(value))


def test_the_headline_is_the_real_error_of_normal_and_a_vendors_steps_stand_beside_their_bound() -> None:
    """The 89 ULP of libdevice's pow, beside a flush of 10^8 steps that the ledger covers."""
    steps = {"value": 2.0, "metric": "int_ulp", "source": "CUDA C++ Programming Guide, table 12"}
    why = {"kind": "bound", "text": "int_ulp 90 exceeds 2"}
    normal = region(bound=steps, status="exceeds-bound", reason=why, max_ulp=89.25, max_int_ulp=90, max_share=45.0,
                    worst=[worst_at(7)])  # fmt: skip
    flushed = known("subnormal-result", bound=steps, max_int_ulp=130_000_000, max_ulp=130_000_000.0, flushed=60,
                    max_share=6.5e7)  # fmt: skip
    value = of(made(filled(normal=normal, subnormal_result=flushed)))
    shown = printed(kernel_page(value, "addcmul"), 130)
    first = next(line for line in shown.splitlines() if line.startswith("inductor"))
    assert first.split()[:9] == ["inductor", "exceeds-bound", "89.25", "ulp", "90", "of", "2", "int_ulp", "4500%"]
    assert re.search(r"in subnormal-result +deviates +1\.300e\+8 +ulp +1\.300e\+8 of 2 int_ulp", shown)
    assert shown.index("in normal: int_ulp 90 exceeds 2") < shown.index("[ledger: id-subnormal-result]")


def test_a_region_that_passes_is_told_where_its_error_is_larger() -> None:
    value = of(made(filled(normal=region(max_ulp=0.5), overflow=region(max_ulp=1.25), special=region(max_ulp=0.25))))
    shown = printed(kernel_page(value, "addcmul"), 130)
    assert re.search(r"in overflow +passed +1\.25 +ulp", shown) and "in special" not in shown


def test_what_a_formula_accounts_for_has_no_share() -> None:
    """Elements where an intermediate of the reference overflows may be those of an admissible formula, at any error."""
    lost = region(max_ulp=2.0**50, max_share=1e15, reason={"text": "4 elements: the bits of a + b*c"})
    value = of(made(filled(intermediate=lost)))
    shown = printed(kernel_page(value, "addcmul"), 130)
    assert re.search(r"in intermediate +passed +1\.126e\+15 +ulp +1\.5 +formula", shown)
    assert share(value.cells[0]) == 0.5


def test_no_region_hides_what_is_wrong_with_the_whole_cell(tmp_path: Path, bench: Bench) -> None:
    """Results that differ, and a broken property, beside a region that exceeds its bound."""
    broken = [{"name": "odd", "inputs": 9, "violations": 2, "witness": ["0x1.8p+0"]}]
    one = {**filled(normal=fault("normal")), "repeats": 8, "distinct": 3, "properties": broken}
    value = of(made(one))
    texts = ("3 different results in 8 launches", "the property odd is broken by 2 of 9, such as 0x1.8p+0")
    shown = [printed(kernel_page(value, "addcmul"), 300), printed(run_page(value), 300)]
    shown.append(bench.gate(made(one))[1][0]["reason"])
    path = tmp_path / "r.json"
    store.write(value, path)
    shown.append(gzip.decompress(base64.b64decode(embedded.embed([path]).data)).decode())
    for text in shown:
        assert all(part in text for part in texts), text
    assert "unsteady: addcmul" in shown[0] and "in normal: ulp 106 exceeds 1.5" in shown[0]
    alone = {**filled(), "status": "exceeds-bound", "reason": "odd is broken", "reason_kind": "property",
             "properties": broken}  # fmt: skip
    assert texts[1] in printed(kernel_page(of(made(alone)), "addcmul"), 300)


def test_every_status_is_counted_by_itself() -> None:
    reasons = {"passed": {}, "not-run": {}}
    cells = []
    for index, status in enumerate(STATUSES):
        if status == "not-run":
            cells.append(not_run(lowering=f"l{index}"))
        elif status in ("error", "oracle-violation"):
            cells.append(cell(lowering=f"l{index}", status=status, reason="r", reason_kind="raised"))
        else:
            one = region(status=status, reason={"kind": "bound", "text": "t", "ledger": ["e"] * (status == "deviates")}
                         | ({} if status != "passed" else {"kind": "", "ledger": []}))  # fmt: skip
            cells.append(cell_of({"normal": one}, lowering=f"l{index}"))
    assert reasons
    shown = printed(run_page(of(made(*cells))), 160)
    assert "1 of 9 cells passed, 1 deviates, 4 failed, 1 suspect, 1 unbounded, 1 unjudged, 1 not run" in shown
    counts = tally(LOOKS[status].counted for status in STATUSES)
    assert sum(counts.values()) == len(STATUSES) and tuple(counts) == COUNTED
    assert tally_text(tally(["passed"])) == "1 of 1 cell passed"
    assert tally_text(tally(["deviate", "deviate"])) == "0 of 2 cells passed, 2 deviate"


def test_looks_follow_the_table_of_statuses() -> None:
    """What ends a run with a code is never good, and only what passed is."""
    assert {status for status in STATUSES if LOOKS[status].tone == "good"} == {"passed"}
    assert all(LOOKS[status].tone in ("bad", "open") for status in STATUSES if EXIT_CODES[status])
    assert {look.tone for look in LOOKS.values()} == {"good", "deviates", "open", "bad", "dim"}
    assert [severity(status) for status in STATUSES if status not in ("not-run", "passed")] == [10, 9, 8, 7, 6, 5, 4, 3]
    assert tuple(status for status in PRECEDENCE if status in STATUSES) == STATUSES
    assert tone_of(tally(["passed", "deviate"])) == "deviates" and tone_of(tally(["passed"])) == "good"
    assert tone_of(tally(["passed", "deviate", "suspect"])) == "open" and tone_of(tally(["failed", "passed"])) == "bad"
    assert tone_of(tally(["not run"])) == "bad"  # nothing ran


def test_an_allowance_is_told_and_is_not_green() -> None:
    one = cell_of({"normal": region(status="unbounded", bound=None, reason={"kind": "no-bound", "text": "no bound"})},
                  allowance="unbounded-sums")  # fmt: skip
    value = of(made(one))
    page = kernel_page(value, "addcmul")
    shown = printed(page)
    assert "unbounded, allowed by unbounded-sums, 1 cell: inductor, cpu, float32: no bound" in shown
    assert not any(isinstance(block, Line) and block.kind == "good" for block in page.blocks)
    assert "0 of 1 cell passed, 1 allowed; undecided" in shown
    assert main_code(made(one)) == 0 and main_code(made({**one, "allowance": ""})) == 1


@pytest.mark.parametrize("status", ALLOWABLE)
@pytest.mark.parametrize("lowering", ["inductor", "mine.py:f"])
@pytest.mark.parametrize("allowance", ["", "an-entry"])
def test_failed_and_the_like_count_what_fails_the_run(status: str, lowering: str, allowance: str) -> None:
    one = region(status=status, reason={"kind": "bound", "text": "t"})
    value = made(cell_of({"normal": one}, lowering=lowering, allowance=allowance))
    counts = tally(map(counted, of(value).cells))
    failing = sum(counts[name] for name in ("failed", "suspect", "unbounded", "unjudged"))
    assert failing == bool(main_code(value)) == 1 - counts["allowed"]


def test_unjudged_elements_are_counted_where_the_region_passed() -> None:
    shown = printed(kernel_page(of(made(filled(normal=region(1000, unjudged=7)))), "addcmul"))
    assert "unjudged elements, 1 cell: nothing is stated of 0.7% of region normal" in shown


# The gate


@pytest.mark.parametrize(("worse", "better"), PAIRS)
def test_a_regression_in_one_region_is_one_whatever_another_shows(bench: Bench, worse: str, better: str) -> None:
    value = made(filled())
    assert bench.accept(value)[0] == 0
    assert bench.statuses(value) == (0, {"passed": 1})
    regions = {name: region() for name in REGIONS}
    regions[worse] = region(max_ulp=1.25, max_share=0.85, worst=[worst_at(PLACES[worse])])
    regions[better] = region(max_ulp=0.25)
    code, (verdict,) = bench.gate(made(cell_of(regions, digest="cd")))
    assert (code, verdict["status"]) == (1, "regressed")
    assert (
        f"in {worse}: ulp 0.75 -> 1.25" in verdict["reason"] and f"in {better}: ulp 0.75 -> 0.25" in verdict["reason"]
    )
    assert f"worst 0x1.{PLACES[worse]:x}p+0 -> 0x1p+1" in verdict["reason"]
    assert f"--input=0x1.{PLACES[worse]:x}p+0" in verdict["replay"]
    regions[worse] = region()
    code, (verdict,) = bench.gate(made(cell_of(regions, digest="cd")))
    assert (code, verdict["status"]) == (0, "improved")


@pytest.mark.parametrize(
    ("metric", "changes", "status"),
    [
        ("ulp", {"max_ulp": 1.25}, "regressed"),
        ("ulp", {"mean_ulp": 0.5}, "regressed"),
        ("ulp", {"worse": 1}, "regressed"),
        ("ulp", {"faithful": 1}, "regressed"),  # one more that is not correctly rounded
        ("ulp", {"flushed": 1}, "regressed"),
        ("share", {"nan_mismatch": 1, "reason": {"text": "an intermediate overflows"}}, "regressed"),
        ("ulp", {"max_scaled_ulp": 0.75}, "changed"),
        ("ulp", {"bias_ulp": 0.125}, "changed"),
        ("int_ulp", {"max_int_ulp": 2}, "regressed"),
        ("int_ulp", {"max_ulp": 1.25}, "regressed"),
        ("scaled_ulp", {"max_scaled_ulp": 0.75}, "regressed"),
        ("scaled_ulp", {"max_ulp": 1.25}, "changed"),
        ("scaled_ulp", {"mean_ulp": 0.5}, "changed"),
        ("share", {"max_share": 0.75}, "regressed"),
        ("share", {"max_ulp": 1.25}, "changed"),
        ("ulp", {"max_ulp": 0.75 * (1 + 2.0**-40)}, "passed"),  # the radius of another enclosure
        ("ulp", {"status": "deviates", "reason": {"kind": "flush", "text": "t", "ledger": ["e"]}}, "regressed"),
    ],
)
@pytest.mark.parametrize("name", ["normal", "subnormal-result"])
def test_each_figure_of_a_region_is_gated(
    bench: Bench, name: str, metric: str, changes: dict[str, Any], status: str
) -> None:
    bound = {"value": 2.0, "metric": metric, "source": "s"}
    regions = {one: region(bound=bound) for one in REGIONS}
    bench.accept(made(cell_of(regions)))
    regions[name] = region(**{"bound": bound, **changes})
    code, (verdict,) = bench.gate(made(cell_of(regions)))
    assert (verdict["status"], code) == (status, int(status in ("regressed", "changed"))), verdict
    if status != "passed":
        assert f"in {name}" in verdict["reason"]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_every_output_of_the_gate_shows_both(bench: Bench, first: str, second: str) -> None:
    value = made(both(first, second), cell_of({"normal": region()}, lowering="eager"))
    path = bench.write(value)
    outcome = gate.gate([path], bench.root)
    assert outcome.exit_code == 1 and outcome.counts["exceeds-bound"] == 1
    told_in(printed(gate_page(outcome)), first, second)
    log = ci.sarif(outcome)
    (result,) = [one for one in log["runs"][0]["results"] if one["ruleId"] == "exceeds-bound"]
    told_in(result["message"]["text"] + " exceeds-bound", first, second)
    assert result["level"] == "error" and result["properties"]["ledger"] == [f"id-{second}"]
    told_in(next(iter(ci.error_lines(outcome))).replace("%2C", ",").replace("%3A", ":"), first, second)
    code, _, problem = bench.accept(value)
    assert code == 1
    told_in(problem, first, second)


def test_what_deviates_is_counted_beside_the_passes_by_every_output_of_the_gate(bench: Bench) -> None:
    value = made(filled(overflow=known("overflow")), cell_of({"normal": region()}, lowering="eager"))
    assert bench.accept(value)[0] == 0
    path = bench.write(value)
    outcome = gate.gate([path], bench.root)
    assert (outcome.exit_code, outcome.counts, outcome.deviating) == (0, {"deviates": 1, "passed": 1}, 1)
    page = gate_page(outcome)
    assert page.title == "gate: 2 cells, 0 failing, 1 deviates"
    assert not any(isinstance(block, Line) and block.kind == "good" for block in page.blocks)
    assert "in overflow: flushes there" in printed(page) and "[ledger: id-overflow]" in printed(page)
    (result,) = ci.sarif(outcome)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("deviates", "note")
    (notice,) = ci.error_lines(outcome)
    assert notice.startswith("::notice title=1 deviates::")
    assert as_json(outcome)["deviate"] == 1
    # with another environment the status is another one, and the count stays
    value["environment"]["cpu"] = FINGERPRINT | {"torch": "2.14.0"}
    outcome = gate.gate([bench.write(value)], bench.root)
    assert outcome.counts == {"stale": 2} and outcome.exit_code == 0
    assert gate_page(outcome).title == "gate: 2 cells, 0 failing, 1 deviates"
    assert "(1 in all with known deviations)" in verdict_line(outcome)
    assert gate.gate([path], bench.root, fail_on=["deviates"]).exit_code == 1


def test_junit_skips_what_deviates_with_its_entry(bench: Bench) -> None:
    there = deviating("interpreter-fma", text="flushes there")  # an entry that the other process finds
    value = made(filled(overflow=there), cell_of({"normal": region()}, lowering="eager"))
    bench.accept(value)
    report, junit = bench.write(value), bench.folder / "junit.xml"
    line = ("--verify-report", report, "--verify-baseline", str(bench.root), "--junitxml", str(junit))
    done = pytest_run(bench.folder, *line)
    assert done.returncode == 0 and "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    (bad,) = [case for case in ElementTree.parse(junit).iter("testcase") if "inductor" in case.attrib["name"]]
    skipped = bad.find("skipped")
    assert skipped is not None and skipped.attrib["message"].startswith("deviates: in overflow: flushes there")
    properties = {one.attrib["name"]: one.attrib["value"] for one in bad.iter("property")}
    assert (properties["status"], properties["deviates"], properties["ledger"]) == (
        "deviates",
        "true",
        "interpreter-fma",
    )


def test_what_the_ledger_does_not_have_excuses_nothing(bench: Bench) -> None:
    value = made(filled(overflow=known("overflow")), cell_of({"normal": region()}, lowering="eager"))
    bench.accept(value)
    assert bench.gate(value)[0] == 0
    for gone in ({}, {"status": "unsteady", "reason_kind": "unsteady", "allowance": "gone"}):
        value["cells"][0] |= gone
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "on_device", lambda backend, kind, facts: [])
            code, (verdict, _) = bench.gate(value)
        assert code == 1 and verdict["fails"] and verdict["status"] == "exceeds-bound" and verdict["deviates"]
        assert "the ledger has no entry" in verdict["reason"] and "id-overflow for such a cell" in verdict["reason"]


def test_what_deviates_is_counted_whatever_else_the_cell_is(bench: Bench) -> None:
    """By launches or by another region."""
    shaky = {"status": "unsteady", "reason": "r", "reason_kind": "unsteady", "repeats": 8, "distinct": 2}
    for value in (
        made(filled(overflow=known("overflow")) | shaky),
        made(filled(overflow=known("overflow"), normal=fault("normal", max_ulp=2.0))),
    ):
        bench.accept(value, "--allow", "*", "--reason", "r")
        _, (verdict,) = bench.gate(value)
        assert verdict["deviates"] and bench.gate(value, "--fail-on", "deviates")[0] == 1, verdict


def test_of_two_reports_the_worse_hides_nothing_that_is_asked_for(bench: Bench) -> None:
    bench.accept(made(filled()))
    shaky = {"status": "unsteady", "reason": "r", "reason_kind": "unsteady", "repeats": 8, "distinct": 2}
    first = bench.write(made(filled() | shaky), "first.json")
    regressed = bench.write(made(filled(normal=region(max_ulp=1.25, max_share=0.85)) | {"digest": "o"}), "second.json")
    other = made(filled())
    other["cells"][0]["domain"]["digest"] = "0100"
    stale = bench.write(other, "third.json")
    for second, asked in ((regressed, ["regressed"]), (stale, ["improved"])):
        assert gate.gate([second], bench.root, fail_on=asked).exit_code == 1
        for pair in ((first, second), (second, first)):
            assert gate.gate(pair, bench.root, fail_on=asked).exit_code == 1, asked


def test_where_results_differ_or_did_shares_tell_what_is_worse(bench: Bench) -> None:
    """Every result of a lowering that became steady may be as bad as the worst that was accepted."""

    def one(steady: bool, share: float, mean: float) -> dict[str, Any]:
        n = 10_000 if steady else 20_000
        normal = region(n, faithful=int(n * share), mean_ulp=mean)
        shaky = {} if steady else {"repeats": 8, "distinct": 2, "reason_kind": "unsteady", "status": "unsteady"}
        domain = {"kind": "strata", "size": 10_000, "seed": 0, "digest": "00ff"}
        return made(cell_of({"normal": normal}, digest="11" if steady else "12", domain=domain, **shaky))

    bench.accept(one(False, 0.25, 0.26), "--allow", "*", "--reason", "r")
    assert bench.gate(one(True, 0.25, 0.26))[0] == 0
    for steady in (True, False):
        for part, mean, told in ((0.5, 0.26, "misrounded 0.25 -> 0.5 of all"), (0.25, 0.38, "mean_ulp 0.26 -> 0.38")):
            code, (verdict,) = bench.gate(one(steady, part, mean))
            assert code == 1 and told in verdict["reason"] and (verdict["status"] == "changed" or not steady), verdict
    assert bench.gate(one(False, 0.251, 0.262))[0] == 0  # as chance has it


def test_calls_that_another_cell_makes_are_compared(bench: Bench) -> None:
    """Of the cells of a function some make the calls: those that are left must be as many, and as good."""
    calls = {"made": 39, "different": ["transposed"], "note": "as eager's"}

    def both(first: Any, second: Any) -> dict[str, Any]:
        cells = [cell_of({"normal": region()}, calls=first), cell_of({"normal": region()}, spelling="s", calls=second)]
        return made(*cells)

    bench.accept(both(calls, {"made": 12}))
    assert bench.gate(both(None, calls))[0] == 0
    code, verdicts = bench.gate(both(None, {"made": 12}))
    assert code == 1 and any("other calls 39 -> 12" in one["reason"] for one in verdicts)
    more = calls | {"different": ["transposed", "expanded"]}
    code, verdicts = bench.gate(both(None, more))
    assert code == 1 and any("calls that give other bits now: expanded" in one["reason"] for one in verdicts)
    bench.accept(both(calls, None))
    alone = made(cell_of({"normal": region()}, spelling="s", calls=None))  # a run of it makes none, as before
    assert bench.gate(alone, "--only", "addcmul inductor s")[0] == 0


def test_what_is_no_longer_judged_is_a_change(bench: Bench) -> None:
    calls = {"made": 30, "refused": {"expanded": "no"}}
    odd = {"name": "odd", "inputs": 9, "violations": 0}
    resolved = region(bound=SHARE, resolution={"median": 0.001, "p90": 0.002})

    def one(resolution: float = 0.001, **changes: Any) -> dict[str, Any]:
        normal = resolved | {"resolution": {"median": resolution, "p90": 1.0}}
        return made(cell_of({"normal": normal}, **{"properties": [odd], "calls": calls, **changes}))

    bench.accept(one())
    assert bench.gate(one())[0] == 0 and bench.gate(one(calls=calls | {"made": 31}))[0] == 0
    for value, told in (
        (one(properties=[]), "no longer judged: the property odd"),
        (one(calls={"made": 30, "refused": {"expanded": "no", "transposed": "no"}}), "calls refused now: transposed"),
        (one(calls={"made": 20, "refused": {"expanded": "no"}}), "other calls 31 -> 21"),
        (one(calls=None), "other calls 31 -> 0"),
    ):
        code, (verdict,) = bench.gate(value)
        assert (code, verdict["status"]) == (1, "changed") and told in verdict["reason"], verdict
    beside = one(calls=None)
    beside["cells"] += one(spelling="strided")["cells"]
    assert "changed" not in bench.statuses(beside)[1]  # another cell of the run made them
    # a bound that says less, element by element, is another bound
    _, (verdict,) = bench.gate(one(resolution=0.5))
    assert verdict["status"] == "changed" and "the resolution is 0.001 -> 0.5 in normal" in verdict["reason"]


def test_a_fact_that_is_not_told_is_not_the_accepted_one(bench: Bench) -> None:
    value = made(filled())
    bench.accept(value)
    del value["environment"]["cpu"]["torch"]
    _, (verdict,) = bench.gate(value)
    assert verdict["status"] == "stale" and "-> not told" in verdict["reason"]


def test_a_budget_for_one_region_covers_no_other(bench: Bench) -> None:
    """A flush that is allowed does not allow an error in normal numbers, whatever its size."""
    value = made(filled(subnormal_result=fault("subnormal-result", flushed=20)))
    assert bench.accept(value, "--allow", "*", "--reason", "known")[0] == 0
    assert bench.statuses(value) == (0, {"deviates": 1})
    both_ = made(filled(subnormal_result=fault("subnormal-result", flushed=20), normal=fault("normal", max_ulp=2.0)))
    code, (verdict,) = bench.gate(both_)
    assert (code, verdict["status"]) == (1, "exceeds-bound") and "in normal: " in verdict["reason"]
    more = made(filled(subnormal_result=fault("subnormal-result", flushed=21)))
    assert bench.statuses(more) == (1, {"exceeds-bound": 1})


BETTER = {"max_ulp": 0.625, "max_share": 0.25}


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ({"max_scaled_ulp": 5.0}, "in normal: scaled_ulp 0.5 -> 5"),  # of a bound in ulp it is not judged
        ({"inputs": 60}, "inputs 100 -> 60"),
        ({"max_scaled_ulp": None}, "in normal: scaled_ulp 0.5 -> none"),
        ({"bias_ulp": -0.125}, "bias_ulp 0 -> 0.125"),
    ],
)
def test_nothing_got_better_where_something_is_larger_or_gone(bench: Bench, after: Any, reason: str) -> None:
    value = made(filled())
    bench.accept(value)
    one = filled(normal=region(**{"inputs": 100, **BETTER}))
    one["domain"] = value["cells"][0]["domain"]
    assert bench.statuses(made(one | {"digest": "other"})) == (0, {"improved": 1})
    one = filled(normal=region(**{"inputs": 100, **BETTER, **after}))
    one["domain"] = value["cells"][0]["domain"]
    code, (verdict,) = bench.gate(made(one | {"digest": "other"}))
    assert (code, verdict["status"]) == (1, "changed") and reason in verdict["reason"]


def test_nothing_got_better_where_a_region_is_gone(bench: Bench) -> None:
    value = made(filled())
    bench.accept(value)
    rest = {name: region() for name in REGIONS if name != "special"}
    one = cell_of(rest | {"normal": region(**BETTER)}, digest="other", domain=value["cells"][0]["domain"])
    code, (verdict,) = bench.gate(made(one))
    assert (code, verdict["status"]) == (1, "changed") and "region special is gone" in verdict["reason"]


def test_a_larger_mean_is_not_hidden_by_a_smaller_maximum(bench: Bench) -> None:
    bound = {"value": 9.0, "metric": "scaled_ulp", "source": "here"}
    value = made(cell_of({"normal": region(bound=bound)}))
    bench.accept(value)
    one = cell_of({"normal": region(bound=bound, max_scaled_ulp=0.25, mean_ulp=0.375)}, digest="other")
    code, (verdict,) = bench.gate(made(one))
    assert (code, verdict["status"]) == (1, "changed") and "mean_ulp 0.25 -> 0.375" in verdict["reason"]


@pytest.mark.parametrize("after", [{"max_ulp": 0.5, "max_share": 0.25}, {"max_share": 0.25}])
def test_less_is_no_improvement_of_the_same_bits(bench: Bench, after: dict[str, float]) -> None:
    """The bound or the truth is another one: a looser bound makes every share smaller."""
    share = {"value": 1.0, "metric": "share", "source": "roundings"}
    value = made(filled(normal=region(bound=share)))
    bench.accept(value)
    code, (verdict,) = bench.gate(made(filled(normal=region(bound=share, **after))))
    assert (code, verdict["status"]) == (1, "changed") and "the same bits, judged otherwise" in verdict["reason"]


def test_a_regions_bound_is_compared(bench: Bench) -> None:
    value = made(filled())
    bench.accept(value)
    loose = {"value": 10.0, "metric": "ulp", "source": "loosened"}
    code, (verdict,) = bench.gate(made(filled(overflow=region(bound=loose))))
    assert (code, verdict["status"]) == (1, "changed")
    assert verdict["reason"] == "under the bound 1.5 ulp -> 10 ulp in overflow"
    tight = {"value": 1.0, "metric": "ulp", "source": "tightened"}
    code, (verdict,) = bench.gate(made(filled(overflow=region(bound=tight))))
    assert (code, verdict["status"]) == (0, "stale")
    assert verdict["reason"] == "accepted under the bound 1.5 -> 1.0 in overflow"


def test_a_looser_bound_makes_no_pass_of_what_deviated(bench: Bench) -> None:
    value = made(filled(normal=known("normal", max_ulp=9.0)))
    bench.accept(value)
    loose = {"value": 10.0, "metric": "ulp", "source": "loosened"}
    code, (verdict,) = bench.gate(made(filled(normal=region(max_ulp=9.0, bound=loose))))
    assert (code, verdict["status"]) == (1, "changed") and "in normal: deviates -> passed" in verdict["reason"]


def test_more_elements_of_which_nothing_is_stated_are_a_regression(bench: Bench) -> None:
    value = made(filled(intermediate=region(unjudged=3)))
    bench.accept(value)
    assert bench.statuses(value) == (0, {"passed": 1})
    more = made(filled(intermediate=region(unjudged=4, max_ulp=0.5, max_share=0.25)) | {"digest": "other"})
    code, (verdict,) = bench.gate(more)
    assert (code, verdict["status"]) == (1, "regressed") and "in intermediate: unjudged 3 -> 4" in verdict["reason"]
    bench.file.write_text(bench.file.read_text().replace('"unjudged":3,', "").replace('"unjudged":0,', ""))
    assert bench.statuses(value) == (0, {"passed": 1})  # an earlier version did not record them


def test_a_status_that_no_region_tells_is_compared(bench: Bench) -> None:
    """An allowance lets a status stand, and hides nothing that differs from the baseline."""
    bench.accept(made(filled()))
    worse = filled() | {"status": "unjudged", "reason": "no stratum", "reason_kind": "resolution", "allowance": "id"}
    code, (verdict,) = bench.gate(made(worse))
    assert (code, verdict["status"]) == (1, "changed") and "passed -> unjudged" in verdict["reason"]
    assert bench.accept(made(worse))[0] == 0
    assert bench.statuses(made(worse)) == (0, {"unjudged": 1})
    assert bench.gate(made(filled()))[0] == 0


def test_of_two_reports_an_allowance_in_one_hides_nothing_of_the_other(bench: Bench) -> None:
    shaky = {"status": "unsteady", "reason": "r", "reason_kind": "unsteady", "allowance": "atomics", "repeats": 8}
    value = made(cell_of({"normal": region()}, distinct=2, **shaky))
    assert bench.accept(value)[0] == 0
    first = bench.write(value, "first.json")
    larger = bench.write(made(cell_of({"normal": region(max_ulp=1.25)}, distinct=2, **shaky)), "second.json")
    for pair in ((first, larger), (larger, first)):
        outcome = gate.gate(pair, bench.root)
        assert outcome.exit_code == 1 and outcome.counts == {"regressed": 1}
    assert gate.gate([first, first], bench.root).exit_code == 0


@pytest.mark.parametrize(
    ("beside", "allowed"),
    [
        ({"repeats": 8, "distinct": 2}, True),
        ({"calls": {"made": 9, "different": ["2 elements"]}}, True),
        ({"calls": {"made": 9, "status": "unsteady", "different": ["2 elements"]}}, True),
        ({"calls": {"made": 9, "status": "exceeds-bound", "different": ["2 elements"]}}, False),
    ],
)
def test_a_budget_for_elements_covers_neither_launches_nor_other_calls(
    bench: Bench, beside: dict[str, Any], allowed: bool
) -> None:
    value = made(filled(normal=fault("normal")))
    assert bench.accept(value, "--allow", "*", "--reason", "r")[0] == 0
    assert bench.statuses(value) == (0, {"deviates": 1})
    both_ = made(filled(normal=fault("normal")) | beside)
    assert bench.statuses(both_) == (1, {"exceeds-bound": 1})
    assert bench.accept(both_)[0] == 1
    assert (bench.accept(both_, "--allow", "*", "--reason", "r")[0] == 0) is allowed
    assert bench.gate(both_)[0] == (0 if allowed else 1)


def test_no_budget_covers_what_only_other_calls_show(bench: Bench) -> None:
    doubt = region(status="suspect", reason={"kind": "order", "text": "t"})
    value = made(filled(normal=doubt))
    assert bench.accept(value, "--allow", "*", "--reason", "r")[0] == 0
    value["cells"][0] |= {"status": "exceeds-bound", "reason": "called with 0.5", "reason_kind": "calls"}
    assert bench.statuses(value) == (1, {"exceeds-bound": 1})
    assert bench.accept(value, "--allow", "*", "--reason", "r")[0] == 1


def test_undecided_elements_of_the_truth_that_the_bound_means_are_never_within_a_budget(bench: Bench) -> None:
    bound = {"value": 1.5, "metric": "ulp", "source": "here", "truth": "rounded"}
    unsure = fault("normal", bound=bound, undecided=1, nan_mismatch=1)
    one = cell_of({"normal": unsure}, error_rounded_scalar={**unsure["error"]})
    one["error"] = region(nan_mismatch=1)["error"]
    assert bench.accept(made(one), "--allow", "*", "--reason", "r")[0] == 1
    (bench.root / SLUG).mkdir(exist_ok=True)
    (bench.root / SLUG / "budget.toml").write_text(
        '[[allowance]]\ncells = "*"\nreason = "r"\nulp = 9e9\nnan_mismatch = 9\n'
    )
    assert bench.statuses(made(one))[1] == {"exceeds-bound": 1}


@pytest.mark.parametrize("status", ["unsteady", "suspect", "unbounded", "unjudged"])
def test_what_is_not_proved_fails_unless_something_allows_it(bench: Bench, status: str) -> None:
    one = region(status=status, reason={"kind": "no-bound", "text": "t"}, bound=None)
    value = made(cell_of({"normal": one}))
    assert bench.statuses(value) == (1, {status: 1})
    assert bench.accept(value)[0] == 1
    allowed = made(cell_of({"normal": one}, allowance="an-entry"))
    code, (verdict,) = bench.gate(allowed)
    assert (code, verdict["status"]) == (3, "not-run")
    assert bench.accept(allowed)[0] == 0
    code, (verdict,) = bench.gate(allowed)
    assert (code, verdict["status"], verdict["allowance"], verdict["fails"]) == (0, status, "an-entry", False)
    last = gate_page(gate.gate([bench.write(allowed)], bench.root)).blocks[-1]
    assert isinstance(last, Line) and last.kind == "open"  # what is let stand is not green
    other = {"different": 5, "closer": 0, "farther": 0, "tied": 5}
    mine = {"allowance": "an-entry", "lowering": "mine.py:f"}
    assert bench.statuses(made(cell_of({"normal": one}, **mine, against_eager=other)))[0] == 1
    if status == "unjudged":  # the entry is for every lowering, where all that is found is that nothing would be
        open_ = {"status": "unjudged", "reason": "no stratum", "reason_kind": "resolution"} | mine
        assert bench.statuses(made(cell_of({"normal": region()}) | open_ | {"against_eager": other}))[0] == 3
    assert bench.statuses(made(cell_of({"normal": one}, **mine, against_eager=dict.fromkeys(other, 0))))[0] == 3
    assert bench.accept(value, "--allow", "*", "--reason", "r")[0] == 0
    assert bench.statuses(value) == (0, {"deviates": 1})


def test_a_baseline_of_schema_1_is_stale_and_names_the_command(bench: Bench) -> None:
    assert bench.accept(report(cell(), environment={"cpu": dict(FINGERPRINT)}))[0] == 0
    value = made(cell_of({"normal": region(1000)}))
    for version in ("2", "1"):  # accepted from a report of schema 1; and a file that an earlier version wrote
        bench.file.write_text(re.sub(r'^\{"baseline":\d', f'{{"baseline":{version}', bench.file.read_text()))
        code, (verdict,) = bench.gate(value)
        assert (code, verdict["status"], verdict["compared"]) == (1, "stale", False)
        assert "accepted from a report of schema 1, without regions; accept anew: verify accept " in verdict["reason"]
        assert bench.gate(value, "--fail-on", "improved")[0] == 1  # it compares nothing, whatever is asked for
        assert bench.gate(value, "--allow", "*")[0] == 3
    code, _ = bench.gate(report(cell(), environment={"cpu": dict(FINGERPRINT)}))
    assert code == 1
    assert bench.accept(value)[0] == 0 and bench.statuses(value) == (0, {"passed": 1})
    code, (verdict,) = bench.gate(report(cell(), environment={"cpu": dict(FINGERPRINT)}))
    assert (code, verdict["status"]) == (1, "stale") and "compute it anew" in verdict["reason"]


def test_other_inputs_are_stale_and_name_the_command(bench: Bench) -> None:
    value = made(filled())
    bench.accept(value)
    value["cells"][0]["domain"]["digest"] = "0100"
    code, (verdict,) = bench.gate(value)
    assert (code, verdict["status"]) == (1, "stale")
    assert "accepted for other inputs: " in verdict["reason"] and f"--baseline {bench.root}" in verdict["reason"]


def test_what_was_accepted_with_regions_is_read_back(bench: Bench) -> None:
    value = made(both("normal", "overflow"), filled(special=known("special")) | {"lowering": "eager"})
    assert bench.accept(value, "--allow", "*", "--reason", "r")[0] == 0
    once = bench.file.read_bytes()
    assert bench.statuses(value) == (0, {"deviates": 2})
    assert bench.accept(value)[0] == 0 and bench.file.read_bytes() == once


def test_an_unsteady_cell_is_gated_by_the_worst_seen_in_each_region(bench: Bench) -> None:
    """Neither bits nor the number of results that were judged is a difference."""
    shaky = {"status": "unsteady", "reason": "3 different results in 8 launches", "reason_kind": "unsteady",
             "allowance": "atomics", "repeats": 8}  # fmt: skip
    first = made(cell_of({"normal": region(300), "overflow": region(30)}, distinct=3, digest="1", **shaky))
    assert bench.accept(first)[0] == 0
    by_chance = {"mean_ulp": 0.375, "bias_ulp": 0.125, "worse": 3, "unjudged": 1}
    again = cell_of({"normal": region(200, **by_chance), "overflow": region(20)}, distinct=2, digest="2", **shaky)
    again["domain"] = first["cells"][0]["domain"]
    code, (verdict,) = bench.gate(made(again))
    assert (code, verdict["status"], verdict["reason"]) == (0, "unsteady", "3 different results in 8 launches")
    worse = cell_of({"normal": region(200), "overflow": region(20, max_ulp=1.25)}, distinct=2, digest="2", **shaky)
    worse["domain"] = first["cells"][0]["domain"]
    code, (verdict,) = bench.gate(made(worse))
    assert (code, verdict["status"]) == (1, "regressed") and "in overflow: ulp 0.75 -> 1.25" in verdict["reason"]
    never = cell_of({"normal": region()}, kernel="exp", **shaky)
    code, verdicts = bench.gate(made(again, never))
    assert code == 1 and verdicts[0]["status"] == "not-run" and "never accepted" in verdicts[0]["reason"]


# compare


@pytest.mark.parametrize(("worse", "better"), PAIRS)
def test_compare_shows_both_regions(worse: str, better: str) -> None:
    def source(name: str, *cells: dict[str, Any]) -> compare.Source:
        found = of(made(*cells))
        return compare.Source(name, found.environment, "quick", 0, tuple(map(compare.facts_of, found.cells)), {})

    # the maximum of all is that of a third region: only the region tells
    third = next(name for name in REGIONS if name not in (worse, better))
    large = {underscored(third): known(third, max_ulp=500.0, max_share=500.0, max_int_ulp=500)}
    a = filled(**large)
    b = filled(**large, **{underscored(worse): fault(worse), underscored(better): region(max_ulp=0.25)})
    found = compare.compare([source("a.json", a), source("b.json", b | {"status": "exceeds-bound"})])
    (row,) = found.rows
    assert row.kind == "new failure" and {one.name for one in row.regions} == {worse, better}
    assert row.pairs[1] is not None and {"larger maximum", "smaller maximum"} <= set(row.pairs[1].kinds)
    shown = printed(compare_page(found))
    assert re.search(rf"in {worse} +ulp +0\.75 +exceeds-bound {PLACES[worse]}", shown)
    assert re.search(rf"in {better} +ulp +0\.75 +0\.25", shown)
    told = json.loads("".join(compare.json_lines(found, False)))["cells"][0]
    assert {one["region"] for one in told["regions"]} == {worse, better}
    # without the failure it is a larger maximum all the same
    c = filled(**large, **{underscored(worse): region(max_ulp=1.25), underscored(better): region(max_ulp=0.25)})
    (row,) = compare.compare([source("a.json", a), source("c.json", c)]).rows
    assert row.kind == "larger maximum"


# history


def test_history_shows_regions_and_counts_what_deviates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb", reason="needs DuckDB: pip install -c constraints.txt '.[history]'")
    for day, one in enumerate((filled(), filled(normal=fault("normal"), overflow=known("overflow")),
                               filled(overflow=known("overflow")))):  # fmt: skip
        environment = {"cpu": dict(FINGERPRINT), "created": 1_700_000_000 + 86_400 * day}
        store.write(of(made(one, environment=environment)), tmp_path / f"{day}.json")
    assert main(["history", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "new failure: 1" in out and "in normal ulp" in out and "deviates" in out
    assert "0 failing, 1 deviates" in out
    sql = "SELECT region, status, ledger, max_ulp FROM regions WHERE run = 2 AND status <> 'passed' ORDER BY region"
    assert main(["history", str(tmp_path), "--sql", sql, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert found == [["normal", "exceeds-bound", None, 106.0], ["overflow", "deviates", "id-overflow", 0.75]]
    assert main(["history", str(tmp_path), "--sql", "SELECT count(*) FROM cells WHERE deviates", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [[1]]


def test_history_sees_a_region_that_nothing_else_tells_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two regions exchange their maxima: the record of all elements stays as it was."""
    pytest.importorskip("duckdb", reason="needs DuckDB: pip install -c constraints.txt '.[history]'")
    sizes = (0.75, 1.25)
    for day in range(2):
        one = filled(normal=region(max_ulp=sizes[day]), overflow=region(max_ulp=sizes[1 - day]))
        environment = {"cpu": dict(FINGERPRINT), "created": 1_700_000_000 + 86_400 * day}
        store.write(of(made(one, environment=environment)), tmp_path / f"{day}.json")
    assert main(["history", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1 change in 1 cell" in out and "larger maximum: 1" in out and "in normal ulp 0.75 1.25" in out


# The page and the README's tables


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_pages_data_hold_both(tmp_path: Path, first: str, second: str) -> None:
    path = tmp_path / "r.json"
    store.write(of(made(both(first, second))), path)
    data = json.loads(gzip.decompress(base64.b64decode(embedded.embed([path]).data)).decode())
    rows = {name: list(zip(*columns, strict=True)) for name, columns in data["tables"].items()}
    regions = [rows["region"][index] for index in data["values"][data["columns"]["regions"][0]]]
    found = {one[0]: one for one in regions}
    assert list(found) == list(REGIONS)
    assert found[first][2] == "exceeds-bound" and found[first][4] == str(PLACES[first])
    assert found[second][2] == "deviates" and data["values"][found[second][3]][2] == [f"id-{second}"]
    assert rows["element"][found[second][14][0]][0] == [f"0x1.{PLACES[second]:x}p+0"]
    assert data["looks"]["deviates"][0] == "deviates" and data["looks"]["exceeds-bound"][0] == "bad"


@pytest.mark.parametrize(("first", "second"), PAIRS[::7])
def test_the_readmes_tables_show_both(first: str, second: str) -> None:
    value = of(made(both(first, second)))
    shown = tables.errors_table([value], tables.Filter())
    assert f"in {first}" in shown and "**exceeds-bound**" in shown
    assert f"in {second}" in shown and f"**deviates** (id-{second})" in shown
    known_ = tables.deviations_table([value], tables.Filter())
    assert f"| {second} | id-{second} |" in known_


def test_no_reader_parses_a_reason() -> None:
    """Text is for people: what a reader needs is a value of the report. Schema 1 is converted in one place."""
    root = Path(__file__).resolve().parent.parent
    files = [*(root / "reports").rglob("*.py"), *(root / "reports").rglob("*.js"), *(root / "docs").glob("*.py")]
    files += (root / "verify" / "cli").glob("*.py")
    parsed = re.compile(r"known deviation: |calling convention|reason\.(startswith|rpartition|partition|removeprefix)")
    found = {path.relative_to(root).as_posix() for path in files if parsed.search(path.read_text())}
    assert found == {"reports/schema.py"}
