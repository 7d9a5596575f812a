"""Schema 2: regions partition a cell and give it its status; schema 1 is read, converted, and written as converted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sample_reports import cell, cell_of, deviating, error, not_run, region, report, report_of, whole
from verify.facts.kernel import UsageError
from verify.judge.regions import MEANING, REGIONS
from verify.judge.status import EXIT_CODES, REASONS, STATUSES, combined
from verify.reports import store
from verify.reports.schema import Cell, Report

RECORDED = sorted((Path(__file__).resolve().parent.parent / "reports" / "recorded").glob("*.json"))


BEYOND = {"value": 1.0, "metric": "ulp", "source": "s", "measured": 706.8}
SCALED = {"value": 1.5, "metric": "scaled_ulp", "source": "s"}


def two(**changes: Any) -> dict[str, Any]:
    """A cell of two regions, both passed unless told."""
    return {**cell_of({"normal": region(90), "special": region(10)}), **changes}


def test_every_region_and_every_status_of_one_is_read_back() -> None:
    for status in STATUSES:
        if status in ("oracle-violation", "error", "not-run"):
            continue
        reason = {"kind": "" if status == "passed" else "flush", "text": "x"}
        if status == "deviates":
            reason |= {"ledger": ["an-id"]}
        made = cell_of({name: region(status=status, reason=reason) for name in REGIONS})
        found = Report.model_validate(report_of(made))
        again = store.parse("".join(store.lines(found)), "a.json")
        assert again == found and again.cells[0].status == status
        assert tuple(again.cells[0].regions) == REGIONS


def test_regions_are_written_in_their_order() -> None:
    shuffled = {name: region() for name in sorted(REGIONS)}
    assert tuple(Cell.model_validate(cell_of(shuffled)).regions) == REGIONS


OVER = {"normal": region(90, max_ulp=1.75), "special": region(10)}
SHARED = {"normal": region(90, max_share=1.5), "special": region(10)}
NANS = {"normal": region(90, nan_mismatch=1), "special": region(10)}
OPEN = {"normal": region(90), "special": deviating("e", inputs=10, undecided=1)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"regions": {"normal": region(90)}}, r"the regions hold 90 inputs; expected inputs = 100"),
        ({"regions": {"normal": region(90), "special": region(10, worse=1)}}, r"the regions hold 99 correct; expected"),
        ({"regions": {"normal": region(90), "other": region(10)}}, r"region 'other'; expected one of special, exact-"),
        ({"regions": {"normal": region(100) | {"inputs": 90}, "special": region(10)}}, r"classes sum to 100; expected"),
        ({"regions": {"normal": region(100), "special": region(0)}}, r"special.inputs"),
        ({"status": "exceeds-bound", "reason_kind": "bound"}, r"status exceeds-bound; expected passed, the worst of"),
        ({"status": "deviates", "reason_kind": "bound", "ledger": ["a"]}, r"expected passed, the worst of the regions"),
        ({"status": "not-run", "reason": "r"}, r"status not-run with regions"),
        ({"status": "unsteady"}, r"status unsteady without a kind of reason"),
        ({"reason_kind": "because"}, r"kind of reason 'because'; expected one of bound, nan, "),
        ({"status": "fine"}, r"status 'fine'; expected one of oracle-violation, error, "),
        ({"regions": {"normal": region(90, bound=None), "special": region(10)}}, r"region normal passed without a bo"),
        ({"regions": {"normal": region(90, bound=BEYOND), "special": region(10)}}, r"normal passed with 706.8 ulp"),
        ({"regions": {"normal": region(90, unjudged=91), "special": region(10)}}, r"91 unjudged of 90 inputs"),
        ({"regions": {"normal": region(90, unjudged=1), "special": region(10)}}, r"passed with 1 of 90 elements unjud"),
        ({"regions": OVER, "error": whole(OVER)}, r"normal passed with 1.75 ulp, bou"),
        ({"regions": OVER}, r"max_ulp is 0.75; expected 1.75, the regions'"),
        ({"regions": SHARED, "error": whole(SHARED)}, r"passed with 1.5 of what an element may be"),
        ({"regions": NANS, "error": whole(NANS)}, r"passed with 1 nan_mismatch, and no reason"),
        ({"properties": [{"name": "odd", "inputs": 9, "violations": 1}]}, r"passed, and 1 elements break the property"),
        ({"regions": OPEN, "error": whole(OPEN)}, r"status deviates with 1 undecided elements"),
        ({"regions": {"normal": region(90, bound=SCALED, max_scaled_ulp=None), "special": region(10)}},
         r"normal passed by a bound in scaled_ulp without that maximum"),
        ({"error": None}, r"without an error record"),
        ({"repeats": 8, "distinct": 2}, r"status passed, where launches or other calls make it unsteady"),
        ({"calls": {"made": 1, "status": "exceeds-bound"}}, r"launches or other calls make it exceeds-bound"),
        ({"calls": {"made": 1, "different": ["a"]}}, r"calls of other bits \(a\) with neither note nor status"),
    ],
)  # fmt: skip
def test_a_cell_that_contradicts_its_regions_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Report.model_validate(report_of(two(**changes)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (region(10, status="deviates", reason={"kind": "flush"}), "deviates without the id of a ledger entry"),
        (region(10, reason={"ledger": ["a"]}), "passed with entries of the ledger; expected deviates"),
        (region(10, undecided=1), "passed with 1 undecided elements"),
        (region(10, status="exceeds-bound", reason={}), "exceeds-bound without a kind of reason"),
        (region(10, status="not-run"), "status not-run of a region"),
        (region(10, nan_mismatch=1), "passed with 1 nan_mismatch, and no reason"),
        (region(10, zero_sign=1), "passed with 1 zero_sign, and no reason"),
        (region(10, max_share=2.0), "passed with 2.0 of what an element may be, and no reason"),
        (region(10, status="error"), "status error of a region"),
        (region(10, status="exceeds-bound", reason={"kind": "why"}), "kind of reason 'why'"),
    ],
)
def test_a_region_that_contradicts_itself_is_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Report.model_validate(report_of(cell_of({"normal": region(90), "special": bad})))


def test_the_ledgers_ids_of_regions_are_the_cells() -> None:
    made = cell_of({"normal": region(90), "subnormal-result": deviating("ftz", inputs=10)})
    assert Cell.model_validate(made).ledger == ["ftz"]
    with pytest.raises(ValidationError, match=r"the ledger's \['ftz'\]; expected those in ledger: \[\]"):
        Cell.model_validate(made | {"ledger": []})


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"status": "unsteady", "reason_kind": "unsteady"}, True),
        ({"status": "exceeds-bound", "reason_kind": "property"}, True),
        ({"status": "unjudged", "reason_kind": "resolution"}, True),
        ({"status": "unjudged", "reason_kind": "no-bound"}, False),
        ({"status": "suspect", "reason_kind": "order"}, False),
    ],
)
def test_only_what_is_no_elements_business_is_worse_than_the_regions(changes: dict[str, Any], allowed: bool) -> None:
    made = two(reason="r", **changes)
    if allowed:
        assert Cell.model_validate(made).status == changes["status"]
    else:
        with pytest.raises(ValidationError, match="the worst of the regions"):
            Cell.model_validate(made)


def test_no_cell_is_better_than_its_worst_region() -> None:
    made = cell_of({"normal": region(90), "special": region(10, status="exceeds-bound")})
    for status in ("passed", "deviates", "unsteady", "unjudged"):
        with pytest.raises(ValidationError):
            Cell.model_validate(made | {"status": status, "reason_kind": "property", "ledger": ["a"]})


def test_the_judged_truth_is_that_of_the_bound() -> None:
    """The regions add up to the record against the truth that the bound names, not to the other."""
    made = two(error_rounded_scalar=two()["error"])
    made["bound"] = made["bound"] | {"truth": "rounded"}
    made["error"] = made["error"] | {"correct": 99, "worse": 1, "misrounded": 1}
    assert Cell.model_validate(made).judged.correct == 100
    with pytest.raises(ValidationError, match="the regions hold 100 correct; expected 99"):
        Cell.model_validate(made | {"bound": made["bound"] | {"truth": "exact"}})


# Schema 1


def test_a_cell_without_regions_is_of_schema_1() -> None:
    for status in ("passed", "exceeds-bound"):
        with pytest.raises(ValidationError, match=f"status {status} of 1000 inputs without regions"):
            Report.model_validate(report_of(cell(status=status)))
        assert Report.model_validate(report(cell(status=status))).cells[0].regions == {}
    none = {name: 0 if isinstance(value, int | float) else value for name, value in cell()["error"].items()}
    none |= {"histogram": dict.fromkeys(none.get("histogram", {}), 0)}
    nothing = cell(inputs=0, error=none, against_eager=None)
    with pytest.raises(ValidationError, match="status passed of 0 inputs without regions"):
        Report.model_validate(report_of(nothing))
    bare = cell(status="error", reason="it raised", reason_kind="raised", error=None, inputs=0, against_eager=None)
    assert Report.model_validate(report_of(not_run(lowering="t"), bare)).converted_from is None


def test_what_the_ledger_excused_in_schema_1_deviates_once_read(tmp_path: Path) -> None:
    known = cell(reason="known deviation: powf flushes (3 flushed)")
    other = cell(lowering="eager", reason="not deterministic: two launches differ")
    both = cell(lowering="triton", reason=f"{other['reason']}; known deviation: it rounds (1 - w) (ulp 3 exceeds 1)")
    path = tmp_path / "old.json"
    path.write_text(json.dumps(report(known, other, both)))
    found = store.read(path)
    assert (found.schema_version, found.converted_from) == (2, 1)
    assert [one.status for one in found.cells] == ["deviates", "passed", "deviates"]
    assert found.cells[0].reason == "powf flushes" and found.cells[0].ledger == []
    assert found.cells[2].reason == f"{other['reason']}; it rounds (1 - w)"
    store.write(found, path)  # as schema 2, and says where it is from
    assert store.read(path) == found
    assert json.loads(path.read_text())["converted_from"] == 1
    assert store.scan(path, lambda one: one.status)[1] == ["deviates", "passed", "deviates"]


def test_the_properties_name_of_schema_1_is_read() -> None:
    old = Cell.model_validate(cell(checks=[{"name": "odd", "inputs": 9, "violations": 1}]))
    assert old.properties[0].violations == 1
    assert '"properties":[{"name":"odd"' in old.model_dump_json()


def test_scanning_converts_and_refuses_as_reading_does(tmp_path: Path) -> None:
    """A file of a line a cell is read without the report's validators: the same must come out."""
    path = tmp_path / "lines.json"
    raw = "".join(store.lines(Report.model_validate(report_of(two(), not_run(lowering="t")))))
    path.write_text(raw)
    assert [one.status for one in store.scan(path, lambda one: one)[1]] == ["passed", "not-run"]
    first = json.loads(raw)["cells"][0]
    path.write_text(raw.replace(json.dumps(first["regions"], separators=(",", ":")), "{}"))
    with pytest.raises(UsageError, match="without regions"):
        store.scan(path, lambda one: one)
    path.write_text(raw.replace('"schema":2,"converted_from":null', '"schema":1').replace(
        '"status":"passed","reason":""', '"status":"passed","reason":"known deviation: x"'))  # fmt: skip
    assert store.scan(path, lambda one: one)[0].converted_from == 1


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_reports_of_schema_1_are_read(path: Path) -> None:
    raw = json.loads(path.read_text())
    known = sum(one.get("reason", "").startswith("known deviation: ") for one in raw["cells"])
    found = store.read(path)
    if raw["schema"] == 1:
        assert sum(one.status == "deviates" for one in found.cells) == known
        assert not any(one.reason.startswith("known deviation") for one in found.cells)


def test_a_figure_that_no_number_of_64_bits_is_is_refused() -> None:
    """It would be infinite as a float."""
    value = report_of(cell_of({"normal": region(max_int_ulp=10**400)}))
    with pytest.raises(ValidationError, match="max_int_ulp"):
        Report.model_validate(value)


def test_a_passed_cell_has_no_undecided_element() -> None:
    with pytest.raises(ValidationError, match="passed with 1 undecided"):
        Report.model_validate(report(cell(error=error(correct=899, undecided=1))))


def test_every_kind_of_reason_is_known() -> None:
    for kind in REASONS:
        made = not_run(reason_kind=kind)
        assert Cell.model_validate(made).reason_kind == kind


# docs/definitions.md says what the tables of the code say


def table_of(heading: str) -> list[list[str]]:
    """The rows below a table's head in docs/definitions.md."""
    text = (RECORDED[0].parents[2] / "docs" / "definitions.md").read_text()
    _, _, after = text.partition(f"{heading}\n|---")
    lines = after.partition("\n")[2].split("\n\n")[0].splitlines()
    return [[part.strip() for part in line.strip("|").split("|")] for line in lines]


def test_the_statuses_of_the_definitions_are_those_of_the_code() -> None:
    found = table_of("| status | meaning | exit code |")
    assert {name.strip("`"): int(code) for name, _, code in found} == EXIT_CODES
    assert [name.strip("`") for name, *_ in found] == list(STATUSES)


def test_the_regions_of_the_definitions_are_those_of_the_code() -> None:
    assert {name.strip("`"): when for name, when in table_of("| region | when |")} == MEANING
    assert [name.strip("`") for name, _ in table_of("| region | when |")] == list(REGIONS)


def test_exit_codes_take_precedence_as_the_definitions_say() -> None:
    codes = [int(code) for code, _ in table_of("| code | meaning |")]
    assert codes == [0, 1, 2, 3, 4]
    order = [4, 2, 1, 3, 0]
    for index in range(len(order)):
        assert combined(order[index:]) == order[index]
