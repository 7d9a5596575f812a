"""The gate: every mutant of a report gets its own status, no larger error a milder one, and nothing bad is accepted."""

from __future__ import annotations

import copy
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sample_reports import cell, cell_of, deviating, error, not_run, region, report, worst_at
from verify.backends import cpu
from verify.cli.commands import main
from verify.facts import environment
from verify.facts.kernel import UsageError, load
from verify.judge import ledger
from verify.judge.status import STATUSES
from verify.lower.lowering import Lowering
from verify.lower.lowerings import lowerings
from verify.numbers.ulp import FAILING
from verify.reports import accept as accepting
from verify.reports import baseline, difference, gate, store
from verify.reports.accept import Refused, accept
from verify.reports.baseline import COUNTS, Accepted, AcceptedRegion, Device
from verify.reports.blocks import Line
from verify.reports.compare import compare as compare_reports
from verify.reports.compare import load as load_reports
from verify.reports.compare import place_json
from verify.reports.difference import JUDGED, differences
from verify.reports.gate import ALWAYS_FAIL, PRECEDENCE
from verify.reports.gate_page import as_json, gate_page, verdict_line
from verify.reports.replays import assignments
from verify.reports.run_page import kernel_page, run_page
from verify.reports.schema import Report
from verify.walk.called import Called
from verify.walk.cells import source_of
from verify.walk.merge import merged
from verify.walk.plan import Selection
from verify.walk.run import run
from verify.workers.launch import REPEATS, LoweringError, launch_steady

ROOT = Path(__file__).resolve().parent.parent
FINGERPRINT = {
    "backend": "cpu",
    "chip": "Some(R) CPU",
    "capability": "AVX2",
    "torch": "2.13.0",
    "triton": None,
    "threads": 2,
    "os": "Linux 6.1",
}
SLUG = "cpu-some-cpu-avx2"
DEVICE = Device("cpu", "Some(R) CPU", "AVX2")


def whole(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A report of a known device; three cells unless told."""
    given = cells or (
        cell(),
        cell(dtype="float16", digest="cd"),
        cell(lowering="eager", against_eager=None, digest="ef"),
    )
    return report(*given, **{"environment": {"cpu": dict(FINGERPRINT)}, **changes})


class Bench:
    """A folder with a baseline and reports, worked through the command line."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.root, self.capsys = folder, folder / "baselines", capsys
        self.root.mkdir()

    def write(self, value: dict[str, Any], name: str = "r.json") -> str:
        path = self.folder / name
        store.write(Report.model_validate(copy.deepcopy(value)), path)
        return str(path)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = main([*arguments, "--baseline", str(self.root)])
        return (code, *self.capsys.readouterr())

    def accept(self, value: dict[str, Any], *options: str) -> tuple[int, str, str]:
        return self.run("accept", self.write(value, "accepted.json"), *options)

    def gate(self, value: dict[str, Any], *options: str) -> tuple[int, list[dict[str, Any]]]:
        path = self.folder / "verdicts.json"
        code, _, problem = self.run("gate", self.write(value), "--json", str(path), *options)
        assert code in (0, 1, 3, 4), problem
        return code, json.loads(path.read_text())["verdicts"]

    def statuses(self, value: dict[str, Any], *options: str) -> tuple[int, dict[str, int]]:
        code, verdicts = self.gate(value, *options)
        names = [verdict["status"] for verdict in verdicts]
        return code, {name: names.count(name) for name in names}

    @property
    def file(self) -> Path:
        return self.root / SLUG / "quick.json"


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)


# Mutants: one change each, one status each


def worse(value: dict[str, Any]) -> None:
    value["cells"][0]["error"]["max_scaled_ulp"] = 0.875


def nudged(by: float, **fields: Any) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        value["cells"][0]["error"]["max_scaled_ulp"] *= 1 + by
        value["cells"][0]["error"]["mean_ulp"] += by / 16
        value["cells"][0] |= fields

    return change


def one_more(name: str) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        counts = value["cells"][0]["error"]
        source = "faithful" if name == "worse" else "correct"
        counts[source] -= 1
        counts["misrounded"] += source == "correct"
        if name != "misrounded":
            counts[name] += 1
        else:
            counts["faithful"] += 1

    return change


def beyond(value: dict[str, Any]) -> None:
    value["cells"][0]["error"]["max_scaled_ulp"] = 1.5625


def better(value: dict[str, Any]) -> None:
    value["cells"][0] |= {"digest": "ab13"}
    value["cells"][0]["error"]["max_scaled_ulp"] = 0.7


def at(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(given: Any) -> None:
        for step in path[:-1]:
            given = given[step]
        given[path[-1]] = value

    return change


def also(*changes: Callable[[Any], Any]) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        for one in changes:
            one(value)

    return change


MUTANTS = [
    pytest.param(worse, "regressed", "scaled_ulp 0.7712 -> 0.875", 1, id="worst case"),
    pytest.param(nudged(2.0**-28), "regressed", "scaled_ulp 0.7712", 1, id="more than an enclosure's radius"),
    pytest.param(nudged(2.0**-40, digest="ab13"), "regressed", "scaled_ulp 0.7712", 1, id="other bits, a little worse"),
    *(
        pytest.param(one_more(name), "regressed", name.split("_")[0], 1, id=name)
        for name in COUNTS
    ),
    pytest.param(
        at("cells", 0, "checks", value=[{"name": "odd", "inputs": 9, "violations": 1}]),
        "regressed", "violations of odd 0 -> 1", 1, id="property",
    ),
    pytest.param(at("cells", 0, "digest", value="ab13"), "changed", "other bits", 1, id="digest"),
    pytest.param(at("cells", 0, "digest", value=""), "changed", "a digest is missing", 1, id="digest lost"),
    pytest.param(
        at("cells", 0, "formula", "identified", value="a + rn(value*rn(b*c))"),
        "changed", "formula 'fma(value, rn(b*c), a)' -> 'a + rn(value*rn(b*c))'", 1, id="formula",
    ),
    pytest.param(at("cells", 0, "formula", value=None), "changed", "-> not looked for", 1, id="formula lost"),
    pytest.param(at("cells", 0, "error", "max_ulp", value=2.0), "changed", "ulp 1.016 -> 2", 1, id="forward error"),
    pytest.param(at("cells", 0, "worst", 0, "output", value="0x1.9p+1"), "changed", "judged otherwise", 1, id="worst"),
    pytest.param(at("cells", 0, "error", "mean_ulp", value=0.3), "changed", "mean_ulp 0.251 -> 0.3", 1, id="mean"),
    pytest.param(at("environment", "cpu", "torch", value="2.14.0"), "stale", "torch 2.13.0 -> 2.14.0", 0, id="torch"),
    pytest.param(at("environment", "cpu", "threads", value=8), "stale", "threads 2 -> 8", 0, id="threads"),
    pytest.param(at("cells", 0, "source", value="1" * 16), "stale", "other source files", 0, id="source"),
    pytest.param(at("cells", 0, "bound", "value", value=1.4), "stale", "under the bound 1.5 scaled_ulp", 0, id="bound"),
    pytest.param(
        at("cells", 0, "bound", "value", value=1.6), "changed", "under the bound 1.5 scaled_ulp -> 1.6", 1, id="wider"
    ),
    pytest.param(at("cells", 0, "flags", value={"ftz": True}), "stale", "with flags", 0, id="flags"),
    pytest.param(at("cells", 0, "ftz", value=True), "changed", "flushed numbers are expected now", 1, id="flushing"),
    pytest.param(lambda value: value["cells"].pop(0), "not-run", "accepted, and missing from", 1, id="cell dropped"),
    pytest.param(
        lambda value: value["cells"].append(cell(kernel="lerp")), "not-run", "never accepted", 1, id="cell added"
    ),
    pytest.param(
        lambda value: value["cells"].__setitem__(0, not_run(backend="cpu")),
        "not-run", "now not run: torch finds no CUDA device", 1, id="cell not run",
    ),
    pytest.param(at("cells", 0, "domain", "digest", value="0100"), "stale", "for other inputs", 1, id="inputs"),
    pytest.param(
        lambda value: value["cells"][0]["domain"].update(seed=1, digest="0100"), "stale", "seed 0 -> ", 1, id="seed"
    ),
    pytest.param(beyond, "exceeds-bound", "scaled_ulp 1.563 exceeds the bound 1.5", 1, id="bound exceeded"),
    pytest.param(
        at("cells", 0, "status", value="exceeds-bound"), "exceeds-bound", "the report says so", 1, id="status"
    ),
    pytest.param(better, "improved", "scaled_ulp 0.7712 -> 0.7", 0, id="better"),
    pytest.param(
        at("cells", 0, "error", "max_scaled_ulp", value=0.7),
        "changed", "the same bits, judged otherwise; scaled_ulp 0.7712 -> 0.7", 1, id="less of the same bits",
    ),
    pytest.param(
        also(better, at("cells", 0, "error", "max_ulp", value=9.0)),
        "changed", "ulp 1.016 -> 9", 1, id="better, and larger where nothing is judged",
    ),
    pytest.param(
        also(better, at("cells", 0, "error", "max_scaled_ulp", value=None)),
        "changed", "scaled_ulp 0.7712 -> none", 1, id="a judged figure lost",
    ),
    pytest.param(
        lambda value: value["cells"][0].update(
            status="error", reason="it raised", error=None, inputs=0, against_eager=None
        ),
        "error", "it raised", 1, id="error",
    ),
    pytest.param(
        lambda value: value["cells"][0].update(status="oracle-violation", reason="outside"),
        "oracle-violation", "outside", 4, id="oracle violation",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2.13.0", "2.13.0", True), ("2.13.0+cu130", "2.13.0", True), ("2.13.0", "2.13.0+cpu", True),
        ("2.13.0+cu130", "2.13.0+cpu", False), ("2.13.0", "2.13.1", False), ("2.13.0+cu130", "2.14.0", False),
        (None, None, True), ("3.7.1", None, False),
    ],
)  # fmt: skip
def test_a_version_is_the_same_with_and_without_its_build(one: str | None, other: str | None, same: bool) -> None:
    assert baseline.same_version(one, other) == baseline.same_version(other, one) == same


@pytest.mark.parametrize(("mutate", "status", "reason", "code"), MUTANTS)
def test_each_mutant_gets_its_own_status_reason_and_replay(
    bench: Bench, mutate: Callable[[Any], Any], status: str, reason: str, code: int
) -> None:
    value = whole()
    value["cells"][0]["source"] = "0" * 16
    assert bench.accept(value)[0] == 0
    assert bench.statuses(value) == (0, {"passed": 3})
    mutate(value)
    seen, verdicts = bench.gate(value)
    assert (seen, verdicts[0]["status"]) == (code, status)
    assert reason in verdicts[0]["reason"]
    assert verdicts[0]["fails"] == (code != 0)
    # an environment is that of all cells, and nothing else is
    others = "stale" if "environment" in verdicts[0]["reason"] else "passed"
    assert {verdict["status"] for verdict in verdicts[1:]} == {others}
    words = shlex.split(verdicts[0]["replay"])
    assert words[:2] in (["verify", "kernel"], ["verify", "explain"])
    assert words[2] == ("lerp" if "never" in verdicts[0]["reason"] else "addcmul")
    for option in ("--lowering", "--dtype", "--spelling", "--backend", "--scalar"):
        assert option in words
    assert any(word.startswith("--input=") or word == "--profile" for word in words)


def test_another_enclosure_of_the_same_bits_passes(bench: Bench) -> None:
    value = whole()
    bench.accept(value)
    nudged(2.0**-40)(value)
    assert bench.statuses(value) == (0, {"passed": 3})


def test_what_a_reader_alone_needs_makes_nothing_stale(bench: Bench) -> None:
    value = whole()
    bench.accept(value)
    value["environment"]["cpu"] = FINGERPRINT | {"os": "Linux 6.9", "python": "3.14", "device": "new field", "rev": 3}
    assert bench.statuses(value) == (0, {"passed": 3})


def test_the_build_of_a_version_makes_nothing_stale_where_one_side_does_not_name_it(bench: Bench) -> None:
    value = whole()
    bench.accept(value)
    value["environment"]["cpu"] = FINGERPRINT | {"torch": "2.13.0+cu130"}
    assert bench.statuses(value) == (0, {"passed": 3})
    value["environment"]["cpu"] = FINGERPRINT | {"torch": "2.13.1+cu130"}
    assert bench.statuses(value) == (0, {"stale": 3})


def test_a_status_never_hides_a_more_severe_one(bench: Bench) -> None:
    """Everything at once: the first of the precedence is the status, and the reason tells the others too."""
    value = whole(cell())
    bench.accept(value)
    value["environment"]["cpu"] = FINGERPRINT | {"torch": "2.14.0"}
    value["cells"][0] |= {"digest": "00"}
    expected = "changed"
    for mutate, status in ((None, "changed"), (worse, "regressed"), (beyond, "exceeds-bound")):
        if mutate:
            mutate(value)
        code, (verdict,) = bench.gate(value)
        expected = status
        assert (code, verdict["status"]) == (1, expected)
        assert "torch 2.13.0 -> 2.14.0" in verdict["reason"] and "other bits" in verdict["reason"]
    assert "exceeds the bound 1.5; scaled_ulp 0.7712 -> 1.563" in verdict["reason"]


def test_statuses_are_ordered_by_the_precedence() -> None:
    order = (
        "oracle-violation, error, exceeds-bound, unsteady, suspect, unbounded, unjudged, regressed, changed, stale, "
        "deviates, not-run, improved, passed"
    )
    assert ", ".join(PRECEDENCE) == order
    # the run's own statuses stay in their order
    assert tuple(status for status in PRECEDENCE if status in STATUSES) == STATUSES


@pytest.mark.parametrize(
    ("metric", "grown", "status"),
    [
        ("ulp", "max_ulp", "regressed"), ("int_ulp", "max_ulp", "regressed"), ("int_ulp", "max_int_ulp", "regressed"),
        ("scaled_ulp", "max_ulp", "changed"), ("scaled_ulp", "max_scaled_ulp", "regressed"),
        ("share", "max_share", "regressed"), ("share", "max_ulp", "changed"),
    ],
)  # fmt: skip
def test_the_metric_of_the_bound_decides(bench: Bench, metric: str, grown: str, status: str) -> None:
    bound = {"value": 100.0, "metric": metric, "source": "here"}
    value = whole(cell(bound=bound, error=error(max_share=0.5)))
    bench.accept(value)
    value["cells"][0]["error"][grown] += 1
    assert bench.statuses(value) == (1, {status: 1})


@pytest.mark.parametrize(("metric", "name"), sorted(baseline.RANGE.items()))
def test_what_underflow_does_not_explain_is_judged_and_allowed_by_name(bench: Bench, metric: str, name: str) -> None:
    bound = {"value": 2000.0, "metric": metric, "source": "here"}
    value = whole(cell(bound=bound))
    bench.accept(value)
    value["cells"][0]["error"][name] = 7.0
    assert bench.statuses(value) == (1, {"regressed": 1})
    (other,) = {*baseline.RANGE.values()} - {name}
    value["cells"][0]["error"] |= {name: 0.0, other: 7.0}
    assert bench.statuses(value) == (1, {"changed": 1})
    value["cells"][0] |= {"status": "exceeds-bound", "reason": "ulp 9000 beyond underflow exceeds 2000"}
    value["cells"][0]["error"][name] = 9000.0
    assert bench.accept(value, "--allow", "*", "--reason", "r")[0] == 0
    (entry,) = tomllib.loads((bench.root / SLUG / "budget.toml").read_text())["allowance"]
    assert {*entry} - {*FAILING} == {"cells", "exactly", "reason", name} and entry[name] == 9000.0
    assert bench.statuses(value) == (0, {"deviates": 1})
    value["cells"][0]["error"][name] = 9001.0
    assert bench.statuses(value) == (1, {"exceeds-bound": 1})


def test_what_the_bound_measures_is_compared_where_it_leaves_elements_out(bench: Bench) -> None:
    value = whole(cell())
    value["cells"][0]["bound"]["measured"] = 0.5
    bench.accept(value)
    value["cells"][0]["bound"]["measured"] = 0.6
    _, (verdict,) = bench.gate(value)
    assert verdict["status"] == "regressed" and "bounded scaled_ulp 0.5 -> 0.6" in verdict["reason"]


def test_the_truth_that_the_bound_means_is_compared(bench: Bench) -> None:
    value = whole(cell(error_rounded_scalar=error()))
    value["cells"][0]["bound"]["truth"] = "rounded"
    bench.accept(value)
    value["cells"][0]["error_rounded_scalar"]["max_scaled_ulp"] = 0.875
    assert bench.statuses(value) == (1, {"regressed": 1})
    value["cells"][0]["error_rounded_scalar"] = error(worse=7, faithful=89)
    assert bench.statuses(value) == (1, {"regressed": 1})
    value["cells"][0]["error_rounded_scalar"] = error()
    value["cells"][0]["error"]["max_scaled_ulp"] = 0.875  # what the bound does not mean
    _, (told,) = bench.gate(value)
    assert told["status"] == "changed" and "scaled_ulp against exact scalars" in told["reason"]


def test_an_entry_of_another_kernel_excuses_nothing(bench: Bench) -> None:
    value = whole(cell(status="deviates", reason="as known", reason_kind="bound", ledger=["sleef-tanh"]))
    assert bench.statuses(value) == (1, {"exceeds-bound": 1})
    _, (told,) = bench.gate(value)
    assert "no entry sleef-tanh for such a cell" in told["reason"]


def test_what_goes_farther_than_todays_ledger_fails(bench: Bench) -> None:
    """The report may have been made before the entry allowed less, or by hand."""

    def one(error: float) -> dict[str, Any]:
        bound = {"value": 1.0, "metric": "ulp", "source": "SLEEF"}
        normal = deviating("sleef-tanh", text="as known", kind="bound", max_ulp=error, max_int_ulp=2, bound=bound)
        return whole(cell_of({"normal": normal}, kernel="tanh", scalars={}), schema=2)

    assert bench.accept(one(1000.0))[0] == 1
    assert bench.accept(one(1.00000005))[0] == 0
    assert bench.statuses(one(1.00000005)) == (0, {"deviates": 1})
    code, (verdict,) = bench.gate(one(1.00000015))
    assert (code, verdict["status"]) == (1, "exceeds-bound")
    assert "1.00000015 ulp in normal, where the ledger's sleef-tanh allows less" in verdict["reason"]


def test_what_is_predicted_is_said_to_be_and_never_green(bench: Bench) -> None:
    machine = FINGERPRINT | {"backend": "virtual-cuda", "chip": "NVIDIA H200", "capability": "sm_90"}
    value = report(cell(backend="virtual-cuda", predicted={"ex2": "recorded"}), environment={"virtual-cuda": machine})
    assert bench.accept(value)[0] == 0
    outcome = gate.gate([bench.write(value)], bench.root)
    page = gate_page(outcome)
    assert (outcome.exit_code, outcome.counts, outcome.predicted) == (0, {"passed": 1}, 1)
    assert verdict_line(outcome).startswith("passed: 1 passed; 1 predicted, not measured;")
    assert not any(isinstance(block, Line) and block.kind == "good" for block in page.blocks)
    assert "\N{ALMOST EQUAL TO} virtual-cuda NVIDIA H200 sm_90" in bench.run("gate", bench.write(value))[1]
    told = as_json(outcome)
    assert told["predicted"] == 1 and told["verdicts"][0]["predicted"] is True
    _, (missing,) = bench.gate(report(environment=value["environment"]))
    assert missing["status"] == "not-run" and missing["predicted"] is True


def test_a_pattern_of_cells_that_did_not_run_is_no_mistake(bench: Bench) -> None:
    value = whole(cell(), not_run(kernel="sqrt", scalars={}))
    assert bench.accept(value)[0] == 0
    code, page, _ = bench.run("gate", bench.write(value), "--only", "sqrt")
    assert code == 3 and "1 cell on cpu Some(R) CPU AVX2 not run, and never accepted there" in " ".join(page.split())
    assert bench.run("gate", bench.write(value), "--only", "sqrrt")[0] == 2


def test_chips_whose_names_are_written_in_other_letters_have_folders_of_their_own() -> None:
    slugs = {Device("cpu", chip, "").slug for chip in ("海光", "龙芯", "海光" * 99, "海光 7285")}
    assert len(slugs) == 4 and all(slug.startswith("cpu-") for slug in slugs)


def test_two_that_accept_at_once_lose_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both into one file and one budget, each of which is replaced as a whole."""
    real = accepting._merged

    def slow(*given: Any) -> Any:
        time.sleep(0.2)
        return real(*given)

    monkeypatch.setattr(accepting, "_merged", slow)
    names = ("float16", "float32", "bfloat16")
    paths = []
    for name in names:
        one = cell(dtype=name, status="exceeds-bound", reason="r", error=error(max_scaled_ulp=9.0))
        paths.append(bench.write(whole(one), f"{name}.json"))
    root = bench.folder / "new" / "baselines"  # where there is none yet
    root.parent.mkdir()
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda path: accept([path], root, ["*"], "r"), paths))
    kept = json.loads((root / SLUG / "quick.json").read_text())["cells"]
    assert {one["dtype"] for one in kept} == {*names}
    assert len(tomllib.loads((root / SLUG / "budget.toml").read_text())["allowance"]) == 3


def test_a_negative_zero_is_another_scalar(bench: Bench) -> None:
    positive, negative = whole(cell(scalars={"value": 0.0})), whole(cell(scalars={"value": -0.0}, digest="99"))
    assert bench.accept(positive)[0] == bench.accept(negative)[0] == 0
    assert len(json.loads(bench.file.read_text())["cells"]) == 2
    both = whole(*positive["cells"], *negative["cells"])
    assert bench.statuses(both) == (0, {"passed": 2})
    paths = [Path(bench.write(one, f"{name}.json")) for name, one in (("p", positive), ("n", negative))]
    assert len(merged([store.read(path) for path in paths]).cells) == 2
    found = compare_reports(load_reports([bench.write(both), bench.write(both, "2.json")]))
    assert found.compared == 2 and {place_json(row.place)["scalars"]["value"].hex() for row in found.rows} == {
        "0x0.0p+0",
        "-0x0.0p+0",
    }


@pytest.mark.parametrize("given", [{"value": -0.0}, {"value": 0.0}])
def test_the_command_of_a_cell_names_its_zero(bench: Bench, given: dict[str, float]) -> None:
    bench.accept(whole(cell(), cell(scalars=given)))
    _, (told, _) = bench.gate(whole(cell()))
    assert f"--scalar value={given['value']!r} " in told["replay"]


SLEEF_TANH = next(one for one in ledger.deviations("cpu", "AVX2") if one.id == "sleef-tanh")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"capability": "AVX*", "torch_before": "2.14", "triton_before": "3.0"}, ""),
        ({"regions": ("subnormal-operand",)}, "the ledger's sleef-tanh is not for kind 'bound' in normal"),
        ({"kinds": ("flush",), "where": "x < 0"}, "the ledger's sleef-tanh is not for kind 'bound' in normal"),
        ({"capability": "AVX512"}, "the ledger has no entry sleef-tanh for such a cell"),
        ({"torch_before": "2.13"}, "the ledger has no entry sleef-tanh for such a cell"),
        ({"status": "not-run"}, "the ledger has no entry sleef-tanh for such a cell"),
    ],
)
def test_a_deviation_stands_while_todays_ledger_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], told: str
) -> None:
    bound = {"value": 1.0, "metric": "ulp", "source": "SLEEF"}
    normal = deviating("sleef-tanh", text="as known", kind="bound", max_ulp=1.00000005, max_int_ulp=2, bound=bound)
    value = whole(cell_of({"normal": normal}, kernel="tanh", scalars={}), schema=2)
    assert bench.accept(value)[0] == 0
    monkeypatch.setattr(ledger, "_all", lambda backend: (replace(SLEEF_TANH, **changes),))
    code, (verdict,) = bench.gate(value)
    assert (code, verdict["status"]) == ((1, "exceeds-bound") if told else (0, "deviates"))
    assert told in verdict["reason"]
    assert bench.accept(value)[0] == (1 if told else 0)


def shaky(kernel: str, status: str = "unsteady") -> dict[str, Any]:
    told = {"status": status, "reason": "r", "reason_kind": "unsteady" if status == "unsteady" else "resolution"}
    return cell_of({"normal": region()}, kernel=kernel, **told, allowance="atomics")


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger with one allowance."""
    cells = {"lowering": "*", "kernel": ("add*", "s*"), "dtype": ("*",), "capability": "AVX*"}
    entry = ledger.Allowance(**cells, id="atomics", status="unsteady", cap=2, reason="they are added in any order")
    monkeypatch.setattr(ledger, "_all", lambda backend: (entry,))


def test_an_allowance_is_for_its_status_its_cells_and_its_devices(bench: Bench, listed: None) -> None:
    assert bench.accept(whole(shaky("addcmul"), schema=2))[0] == 0
    assert bench.statuses(whole(shaky("addcmul"), schema=2)) == (0, {"unsteady": 1})
    for wrong in (shaky("addcmul", "unjudged"), shaky("tanh")):
        value = whole(wrong, schema=2)
        assert bench.accept(value)[0] == 1
        code, (verdict, *_) = bench.gate(value, "--only", wrong["kernel"])
        assert code == 1 and verdict["fails"] and not verdict["allowance"]
        assert "the ledger has no allowance atomics for that" in verdict["reason"]
    value = whole(shaky("addcmul"), schema=2, environment={"cpu": FINGERPRINT | {"capability": "DEFAULT"}})
    assert bench.accept(value)[0] == 1


def test_an_allowance_is_for_as_many_cells_of_all_reports_as_its_cap(bench: Bench, listed: None) -> None:
    two, other = whole(shaky("add"), shaky("addcdiv"), schema=2), whole(shaky("addcmul"), shaky("add"), schema=2)
    for value in (two, other):
        assert bench.accept(value)[0] == 0
    paths = [bench.write(two, "1.json"), bench.write(other, "2.json")]
    outcome = gate.gate(paths, bench.root)
    assert [one.cell for one in outcome.failed] == ["addcmul inductor out-of-place cpu float32 value=0.3"]
    assert "allowance atomics is for 2 cells, which come before this one" in outcome.failed[0].reason
    code, _, problem = bench.run("accept", *paths)
    assert code == 1 and "addcmul inductor" in problem and "add inductor" not in problem


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[deviation", "Expected"),
        ("[[deviations]]", "unknown table deviations"),
        ("deviation = 3", "not iterable"),
        ("deviation = [3]", "no attribute"),
        ('[[deviation]]\nid = "one"', "missing 3 required"),
        ('[[deviation]]\nid = "one"\nkernels = ["x"]', "unknown key 'kernels'"),
        ('[[deviation]]\nid = "one"\nkernel = "x"', "kernel is 'x'; expected an array of texts"),
        ('WHOLE\nkinds = ["flush"]\nregions = ["normal"]', "flush: kinds without an error need `where`"),
        ('WHOLE\nkinds = ["bound"]\nregions = ["normal"]\nat_most = {ulp = "4"}', "expected a number for each"),
        ('[[allowance]]\nid = "one"\nlowering = "*"\nkernel = ["*"]\ndtype = ["*"]\ncap = 3', "expected an id"),
    ],
)
def test_a_malformed_ledger_is_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, told: str
) -> None:
    head = '[[deviation]]\nid = "one"\nlowering = "*"\nkernel = ["*"]\ndtype = ["*"]\nreason = "r"\nsource = "s"'
    path = tmp_path / "cpu.toml"
    path.write_text(text.replace("WHOLE", head))
    monkeypatch.setattr(ledger, "_path", lambda backend: path)
    value = whole(cell_of({"normal": deviating("one")}, allowance="one"), schema=2)
    ledger._all.cache_clear()
    code, _, problem = bench.run("gate", bench.write(value))
    ledger._all.cache_clear()
    assert code == 2 and problem.count("\n") == 1, problem
    assert problem.startswith("verify: kernels/ledger/cpu.toml is malformed: ") and told in problem


def test_calls_that_are_not_made_for_want_of_time_are_missed(bench: Bench) -> None:
    made = {"made": 20, "different": ["transposed"], "note": "as eager's"}
    value = whole(cell(calls=made))
    bench.accept(value)
    assert bench.statuses(value) == (0, {"passed": 1})
    value["cells"][0]["calls"] = {**made, "made": 2, "untried": [f"size {n}" for n in range(18)]}
    _, (told,) = bench.gate(value)
    assert told["status"] == "changed" and "other calls 20 -> 2" in told["reason"]
    value["cells"][0]["calls"] = {**made, "different": ["transposed", "misaligned"]}
    _, (told,) = bench.gate(value)
    assert told["status"] == "changed" and "calls that give other bits now: misaligned" in told["reason"]


def test_a_call_of_bits_of_its_own_gives_the_same_ones_again(bench: Bench) -> None:
    """An eager `lerp` that was wrong by 7 steps where one input is transposed, within its bound, passed."""
    made = {"made": 20, "different": ["transposed"], "bits": {"transposed": "ab12"}, "note": "as eager's"}
    value = whole(cell(calls=made))
    bench.accept(value)
    assert bench.statuses(value) == (0, {"passed": 1})
    value["cells"][0]["calls"] = {**made, "bits": {"transposed": "cd34"}}
    _, (told,) = bench.gate(value)
    assert told["status"] == "changed" and "calls that give bits other than their own: transposed" in told["reason"]


def test_a_larger_error_of_another_call_is_a_change(bench: Bench) -> None:
    """A `sum` that adds up one number after another in rows of a length that no cell has was stale at most."""
    made = {"made": 20, "errors": {"shape=50x4096": 0.85, "shape=3x64": 0.5}}
    value = whole(cell(calls=made))
    bench.accept(value)
    for ulp, status in ((0.85, "passed"), (2.1, "passed"), (522.0, "changed")):
        value["cells"][0]["calls"] = {**made, "errors": {"shape=50x4096": ulp, "shape=3x65": 9.0}}
        _, (told,) = bench.gate(value)
        assert told["status"] == status, told
    assert "larger errors of other calls: shape=50x4096: 0.85 -> 522 ulp" in told["reason"]


def test_calls_of_a_cell_are_held_to_its_own(bench: Bench) -> None:
    """A function that erred with one case of scalars was accepted, and passed when it erred with the other too. A cell
    that makes fewer calls is held to those of others, too, since these may be made in its place."""
    worse = {"errors": {"shape=3x64": 19.5, "shape=9": 0.4}, "refused": {"size 3": "no"}, "different": ["transposed"]}
    one, other = ({"made": 20, "note": "as eager's", "errors": {"shape=3x64": 0.5}} for _ in range(2))
    value = whole(cell(calls=one), cell(scalars={"value": 1.0}, calls=other | worse | {"made": 19}))
    bench.accept(value)
    assert bench.statuses(value) == (0, {"passed": 2})
    for what, told in (
        ("errors", "larger errors of other calls: shape=3x64: 0.5 -> 19.5 ulp"),
        ("refused", "calls refused now: size 3"),
        ("different", "calls that give other bits now: transposed"),
    ):
        value["cells"][0]["calls"] = one | {what: worse[what], "made": 20 - (what == "refused")}
        code, verdicts = bench.gate(value)
        assert code == 1 and [v["status"] for v in verdicts].count("changed") == 1
        assert any(told in v["reason"] for v in verdicts), verdicts
    for before, after in ((one, None), (None, one | worse), ({"made": 3}, one | worse)):
        value["cells"][0]["calls"] = before
        bench.accept(value)
        value["cells"][0]["calls"] = after
        assert bench.statuses(value)[0] == 0


def test_a_binade_that_gets_worse_is_told_whatever_the_others_do(bench: Bench) -> None:
    """An exp whose other results were nearer, and those from 1 to 2 farther off, was an improvement."""
    of = {"measured": 10, "misrounded": 3, "max_ulp": 0.9, "bias_ulp": 0.0}
    value = whole(cell())
    value["cells"][0]["error"]["binades"] = [{"exponent": k, "mean_ulp": 0.3, **of} for k in (-1, 0)]
    bench.accept(value)
    assert bench.statuses(value) == (0, {"passed": 1})
    better(value)
    assert bench.statuses(value) == (0, {"improved": 1})
    value["cells"][0]["error"]["binades"][1]["mean_ulp"] = 0.6
    _, (told,) = bench.gate(value)
    assert told["status"] == "changed" and "mean_ulp of the worst binade 0.3 -> 0.6" in told["reason"]


@pytest.mark.parametrize(
    ("median", "digest", "status"),
    [(1e-7, "", "passed"), (1.01e-7, "", "changed"), (0.9e-7, "", "stale"), (0.5, "", "changed"), (None, "", "changed"),
     (1.5e-7, "ab13", "stale"), (2.5e-7, "ab13", "changed")],
)  # fmt: skip
def test_a_coarser_resolution_is_a_change(bench: Bench, median: float | None, digest: str, status: str) -> None:
    def one(median: float | None, digest: str, largest: float) -> dict[str, Any]:
        resolution = None if median is None else {"median": median, "p90": median}
        part = region(resolution=resolution, max_scaled_ulp=largest)
        return whole(cell_of({"normal": part}, **({"digest": digest} if digest else {})), schema=2)

    bench.accept(one(1e-7, "", 0.75))
    _, (told,) = bench.gate(one(median, digest, 0.7 if digest else 0.75))
    assert told["status"] == status, told


def test_a_known_deviation_is_told_until_it_gets_worse(bench: Bench) -> None:
    known = cell(reason="known deviation: powf (scaled_ulp 9 exceeds 1.5)", error=error(max_scaled_ulp=9.0))
    value = whole(known)
    assert bench.accept(value)[0] == 0
    assert bench.statuses(value) == (0, {"deviates": 1})
    _, page, _ = bench.run("gate", bench.write(value))
    assert "gate: 1 cell, 0 failing, 1 deviates" in page and "passed: 1 deviates" in page
    value["cells"][0]["error"]["max_scaled_ulp"] = 9.5
    assert bench.statuses(value) == (1, {"regressed": 1})
    value["cells"][0]["reason"] = ""
    assert bench.statuses(value) == (1, {"exceeds-bound": 1})


# Properties

natural = st.integers(0, 50)
errors = st.floats(0, 100).map(lambda x: round(x, 2))


@st.composite
def results(draw: st.DrawFn) -> Accepted:
    metric = draw(st.sampled_from(sorted(JUDGED)))
    maxima = {"ulp": draw(errors), "int_ulp": draw(natural), "scaled_ulp": draw(errors), "share": draw(errors)}
    return Accepted(
        kernel="k", lowering="l", spelling="s", dtype="float32", domain="strata", size=9, seed=0, inputs_digest="a",
        inputs=9, error=maxima[metric], metric=metric, bound=draw(st.none() | errors), **maxima,
        mean_ulp=draw(errors), bias_ulp=0.0, **{name: draw(st.integers(0, 2)) for name in COUNTS},
        formula=draw(st.none() | st.lists(st.sampled_from("AB"), max_size=2)), digest=draw(st.sampled_from("xyz")),
    )  # fmt: skip


def milder(status: str) -> int:
    """Rank by severity; improved and passed are equally mild."""
    return min(PRECEDENCE.index(status), PRECEDENCE.index("improved"))


def status_of(new: Accepted, old: Accepted) -> str:
    found = differences(new, old)
    assert len(found) <= 1 and all(reason for _, reason in found)
    return found[0][0] if found else "passed"


@given(st.floats(0, 1e30), st.floats(0, 1e30))
def test_numbers_that_differ_are_told_apart_and_never_understated(a: float, b: float) -> None:
    if a == b:
        return
    texts = difference._apart(a, b)
    assert (float(texts[0]) < float(texts[1])) == (a < b) and texts[0] != texts[1]
    assert all(float(text) >= value for text, value in zip(texts, (a, b), strict=True))


@given(results())
def test_a_result_compared_with_itself_is_no_difference(one: Accepted) -> None:
    assert differences(one, replace(one)) == []


@given(results(), results(), st.sampled_from(["error", *COUNTS]), st.integers(1, 20))
def test_a_larger_error_never_gets_a_milder_status(old: Accepted, new: Accepted, grown: str, more: int) -> None:
    old = replace(old, metric=new.metric, bound=new.bound)
    if grown == "error":
        most = getattr(new, new.metric) + more
        larger = replace(new, error=most, **{new.metric: most})
    else:
        larger = replace(new, **{grown: getattr(new, grown) + more})
    assert milder(status_of(larger, old)) <= milder(status_of(new, old))


@given(results(), results())
def test_what_regressed_improved_the_other_way_or_is_mixed(old: Accepted, new: Accepted) -> None:
    old = replace(old, metric=new.metric)
    there, back = status_of(new, old), status_of(old, new)
    assert (there == "passed") == (back == "passed")
    assert there != "changed" or back in ("changed", "regressed")  # of mixed ones some are worse either way
    assert there != "improved" or back == "regressed"


@given(st.lists(results(), min_size=1, max_size=4))
def test_a_baseline_reads_back_equal_and_writes_the_same_bytes(cells: list[Accepted]) -> None:
    named = {cell.key: cell for cell in (replace(c, kernel=f"k{i}") for i, c in enumerate(cells))}
    first = baseline.Baseline(DEVICE, "default", {"": FINGERPRINT}, named)
    with tempfile.TemporaryDirectory() as folder:
        path = baseline.write(Path(folder), first)
        once = path.read_bytes()
        again = baseline.read(Path(folder), DEVICE, "default")
        assert again == first
        assert baseline.write(Path(folder), again).read_bytes() == once
    assert len(once.splitlines()) == 8 + len(named)


numbers = st.floats(0, 1e6) | st.sampled_from([0.0, 0.5, 5e-324, 1e300])


@st.composite
def measured_cells(draw: st.DrawFn) -> list[dict[str, Any]]:
    made = []
    for index in range(draw(st.integers(1, 4))):
        counts = {name: draw(st.integers(0, 9)) for name in (*FAILING, "faithful", "worse")}
        figures = {name: draw(numbers) for name in ("max_ulp", "max_scaled_ulp", "mean_ulp")}
        one = error(**counts, correct=1000 - sum(counts.values()), **figures, max_int_ulp=draw(st.integers(0, 9)))
        metric = draw(st.sampled_from(["ulp", "scaled_ulp", "int_ulp"]))
        bound = draw(st.none() | st.just({"value": draw(numbers) or 1.0, "metric": metric, "source": "s"}))
        status, text = draw(st.sampled_from(["passed", "exceeds-bound"])), draw(st.text("ab \n\x1b'\"*[", max_size=9))
        made.append(
            cell(
                lowering=f"{index} {text}",
                error=one,
                bound=bound,
                status=status,
                reason="r",
                digest=draw(st.text("01")),
            )
        )
    return made


@given(measured_cells())
def test_what_was_accepted_passes(cells: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, root = Path(folder) / "r.json", Path(folder) / "b"
        store.write(Report.model_validate(whole(*cells)), path)
        accept([path], root, ["*"], "whatever they show")
        outcome = gate.gate([path], root)
        assert set(outcome.counts) <= {"passed", "deviates"} and outcome.exit_code == 0, outcome.verdicts
        assert outcome.deviating >= sum(one["status"] == "exceeds-bound" for one in cells)
        once = {file.name: file.read_bytes() for file in root.glob("*/*")}
        assert not accept([path], root).changes  # the budget holds what was allowed
        assert {file.name: file.read_bytes() for file in root.glob("*/*")} == once


# What fails, and exit codes


def test_fail_on_allow_and_only(bench: Bench) -> None:
    value = whole()
    bench.accept(value)
    worse(value)
    value["cells"][1]["digest"] = "00"
    assert bench.statuses(value) == (1, {"regressed": 1, "changed": 1, "passed": 1})
    assert bench.statuses(value, "--fail-on", "stale,improved")[0] == 0
    assert bench.statuses(value, "--fail-on", "improved", "--fail-on", "changed")[0] == 1
    assert bench.statuses(value, "--allow", "addcmul inductor")[0] == 0
    assert bench.statuses(value, "--allow", "* float32*")[0] == 1
    assert bench.statuses(value, "--only", "addcmul eager") == (0, {"passed": 1})
    assert bench.statuses(value, "--only", "* float16 *") == (1, {"changed": 1})
    allowed = [v["allowed"] for v in bench.gate(value, "--allow", "*")[1]]
    assert allowed == ["*", "*", ""]
    code, _, problem = bench.run("gate", bench.write(value), "--only", "lerp")
    assert code == 2 and "--only 'lerp': no cell" in problem
    assert bench.run("gate", bench.write(value), "--only", "addcmul", "--only", "lerp")[0] == 2  # nor the second
    assert bench.statuses(value, "--fail-on", "error,oracle-violation,stale,improved")[0] == 0  # as the last line says
    code, _, problem = bench.run("gate", bench.write(value), "--fail-on", "regresed")
    assert code == 2 and "did you mean regressed?" in problem


def test_a_status_that_was_not_asked_about_hides_none_that_was(bench: Bench) -> None:
    value = whole(cell(), cell(kernel="lerp"))
    bench.accept(whole(cell()))
    beyond(value)
    value["cells"][1]["error"]["max_scaled_ulp"] = 1.5625
    code, verdicts = bench.gate(value, "--fail-on", "regressed")
    assert code == 1 and [(one["status"], one["fails"]) for one in verdicts] == [
        ("exceeds-bound", True), ("exceeds-bound", False)
    ]  # fmt: skip
    assert [one["fails"] for one in bench.gate(value, "--fail-on", "not-run")[1]] == [True, False]  # never accepted
    value["cells"][0]["domain"]["digest"] = "0100"
    assert bench.gate(value, "--fail-on", "regressed")[0] == 1  # and what compares nothing fails always
    assert bench.gate(value, "--fail-on", "regressed", "--allow", "*")[0] == 3


@pytest.mark.parametrize("status", ALWAYS_FAIL)
def test_nothing_excuses_an_error_or_an_oracle_violation(bench: Bench, status: str) -> None:
    value = whole()
    bench.accept(value)
    value["cells"][0] |= {"status": status, "reason": "r"}
    code, _ = bench.gate(value, "--allow", "*", "--fail-on", "improved")
    assert code == (4 if status == "oracle-violation" else 1)


def test_nothing_to_compare_with_is_never_a_pass(bench: Bench) -> None:
    value = whole()
    code, verdicts = bench.gate(value)
    assert code == 3
    assert {verdict["status"] for verdict in verdicts} == {"not-run"}
    assert f"no baseline for cpu Some(R) CPU AVX2 in {bench.root} (there: none)" in verdicts[0]["reason"]
    bench.accept(value)
    other = copy.deepcopy(value)
    other["environment"]["cpu"] = FINGERPRINT | {"capability": "AVX512"}
    code, verdicts = bench.gate(other)
    assert code == 3 and f"(there: {SLUG})" in verdicts[0]["reason"]
    code, verdicts = bench.gate(value | {"profile": "default"})
    assert code == 3 and "has no baseline for profile default (it has quick)" in verdicts[0]["reason"]
    nameless = whole(environment={"torch": "2.13.0"})
    code, verdicts = bench.gate(nameless)
    assert code == 3 and "does not say on which chip backend 'cpu' ran" in verdicts[0]["reason"]
    assert bench.gate(report(environment={"cpu": FINGERPRINT}))[0] == 3  # a run that compared nothing
    beyond(other)
    assert bench.gate(other)[0] == 1  # a bound needs no baseline
    assert bench.gate(value, "--fail-on", "improved")[0] == 0


def test_cells_that_never_ran_are_counted_and_fail_nothing(bench: Bench) -> None:
    value = whole(cell(), not_run(backend="cpu", lowering="triton"))
    bench.accept(value)
    code, out, _ = bench.run("gate", bench.write(value))
    assert code == 0
    assert "1 cell on cpu Some(R) CPU AVX2 not run, and never accepted there" in " ".join(out.split())


def test_shards_of_a_run_are_one_and_the_worst_of_two_runs_counts(bench: Bench) -> None:
    value = whole()
    bench.accept(value)
    parts = [
        bench.write(value | {"cells": part}, f"{i}.json")
        for i, part in enumerate((value["cells"][:1], value["cells"][1:]))
    ]
    assert bench.run("gate", parts[0])[0] == 1
    assert bench.run("gate", *parts)[0] == 0
    absent = not_run(backend="cpu")
    assert bench.run("gate", bench.write(whole(absent), "a.json"), *parts)[0] == 0
    worse(value)
    code, out, _ = bench.run("gate", *parts, bench.write(value))
    assert code == 1 and "regressed: addcmul inductor" in out


def test_an_interrupted_report_says_so(bench: Bench) -> None:
    value = whole()
    bench.accept(value)
    code, out, _ = bench.run("gate", bench.write(value | {"interrupted": True, "cells": value["cells"][:2]}))
    assert code == 1 and "was interrupted: cells that it lacks are not-run" in " ".join(out.split())


def test_many_cells_with_one_reason_are_one_line(bench: Bench) -> None:
    value = whole(*(cell(scalars={"value": float(i)}) for i in range(50)))
    bench.accept(value)
    code, out, _ = bench.run("gate", bench.write(value | {"cells": value["cells"][:1]}))
    text = " ".join(out.split())
    assert code == 1
    assert "not-run, 49 cells: addcmul inductor out-of-place cpu float32 value=1.0" in text and "and 46 more" in text
    assert out.count("verify kernel") == 1


# Accepting


def test_accept_prints_old_and_new_and_touches_nothing_else(bench: Bench) -> None:
    value = whole()
    code, out, _ = bench.accept(value)
    assert code == 0 and "new, 3 cells:" in out and f"written: {bench.file}" in out.replace("\n", "")
    before = bench.file.read_text().splitlines()
    worse(value)
    code, out, _ = bench.accept(value)
    text = " ".join(out.split())
    assert "changed: addcmul inductor out-of-place cpu float32 value=0.3: scaled_ulp 0.7712 -> 0.875" in text
    assert "2 cells as accepted before" in text
    after = bench.file.read_text().splitlines()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
    code, out, _ = bench.accept(value)
    assert "3 cells as accepted before" in out and bench.file.read_text().splitlines() == after
    value["environment"]["cpu"] = FINGERPRINT | {"torch": "2.14.0"}
    code, out, _ = bench.accept(value)
    assert "renewed, 3 cells" in out
    renewed = bench.file.read_text().splitlines()
    assert [a for a, b in zip(after, renewed, strict=True) if a != b] == [after[3], after[5]]  # the head alone


def test_accept_keeps_other_cells_unless_told(bench: Bench) -> None:
    value = whole()
    bench.accept(value)
    part = value | {"cells": [cell(digest="99")], "interrupted": True}
    part["environment"] = {"cpu": FINGERPRINT | {"torch": "2.14.0"}}
    code, out, _ = bench.accept(part)
    text = " ".join(out.split())
    assert code == 0 and "was interrupted" in text and "2 cells of cpu Some(R) CPU AVX2 are not in the report" in text
    kept = baseline.read(bench.root, DEVICE, "quick")
    assert kept is not None and len(kept.cells) == 3
    torch_versions = {kept.environments[one.environment]["torch"]: one.digest for one in kept.cells.values()}
    assert torch_versions["2.14.0"] == "99" and len(torch_versions) == 2
    code, _, told = bench.accept(part, "--prune")  # which removed what the run had not reached
    assert code == 2 and "interrupted: --prune would remove what was not reached" in " ".join(told.split())
    code, out, _ = bench.accept(part | {"interrupted": False}, "--prune")
    assert "removed, 2 cells" in out
    kept = baseline.read(bench.root, DEVICE, "quick")
    assert kept is not None and [one.digest for one in kept.cells.values()] == ["99"]


@pytest.mark.parametrize(("status", "code"), [("exceeds-bound", 1), ("error", 1), ("oracle-violation", 4)])
def test_accept_refuses_and_writes_nothing(bench: Bench, status: str, code: int) -> None:
    value = whole()
    value["cells"][2] |= {"status": status, "reason": "why not"}
    seen, out, problem = bench.accept(value)
    assert (seen, out) == (code, "")
    assert "not accepted: 1 cell; nothing was written" in problem and "why not" in problem and "verify " in problem
    assert not bench.file.exists()
    if status != "exceeds-bound":
        assert bench.accept(value, "--allow", "*", "--reason", "no")[0] == code
        assert not bench.file.exists()


def test_an_allowed_error_is_recorded_exactly_and_holds_the_gate_to_it(bench: Bench) -> None:
    value = whole()
    value["cells"][0] |= {"status": "exceeds-bound", "reason": "scaled_ulp 9 exceeds 1.5; 1 nan mismatch"}
    value["cells"][0]["error"]["max_scaled_ulp"] = 9.0
    assert bench.accept(value, "--allow", "addcmul")[0] == 2  # no reason
    assert bench.accept(value, "--reason", "for nothing")[0] == 2
    code, _, _ = bench.accept(value, "--allow", "addcmul", "--reason", 'quoted "text"\u2028 \x7f')
    assert code == 0
    budget = bench.root / SLUG / "budget.toml"
    (entry,) = tomllib.loads(budget.read_text())["allowance"]
    assert entry == {
        "cells": "addcmul inductor out-of-place cpu float32 value=0.3",
        "exactly": True,
        "reason": 'quoted "text"\u2028 \x7f',
        "scaled_ulp": 9.0,
        **dict.fromkeys(FAILING, 1),
    }
    assert bench.statuses(value) == (0, {"deviates": 1, "passed": 2})
    value["cells"][0]["error"]["max_scaled_ulp"] = 9.01
    assert bench.statuses(value) == (1, {"exceeds-bound": 1, "passed": 2})
    value["cells"][0]["error"]["max_scaled_ulp"] = 9.0
    one_more("nan_mismatch")(value)
    assert bench.statuses(value) == (1, {"exceeds-bound": 1, "passed": 2})
    # what was written by hand stays, comments included
    budget.write_text("# ours\n" + budget.read_text())
    assert bench.accept(value, "--allow", "*", "--reason", "again")[0] == 0
    assert budget.read_text().startswith("# ours\n") and len(tomllib.loads(budget.read_text())["allowance"]) == 2
    assert bench.statuses(value) == (0, {"deviates": 1, "passed": 2})


def test_an_allowance_for_a_cell_covers_no_other(bench: Bench) -> None:
    """A name may look like a pattern."""
    beyond_it = {"status": "exceeds-bound", "reason": "r"}
    value = whole(cell(lowering="a[1]*", **beyond_it), cell(lowering="a1b"))
    assert bench.accept(value, "--allow", "*", "--reason", "r")[0] == 0
    assert bench.statuses(value) == (0, {"deviates": 1, "passed": 1})
    value["cells"][1] |= beyond_it
    assert bench.statuses(value) == (1, {"exceeds-bound": 1, "deviates": 1})


def test_an_allowance_for_a_cell_covers_none_whose_name_begins_with_its_own(bench: Bench) -> None:
    beyond_it = {"status": "exceeds-bound", "reason": "r"}
    value = whole(cell(scalars={}, **beyond_it), cell(), cell(scalars={}, output="dq"))
    assert bench.accept(value, "--allow", "*", "--reason", "r")[0] == 0
    assert bench.statuses(value) == (0, {"deviates": 1, "passed": 2})
    for one in value["cells"][1:]:
        one |= beyond_it
    assert bench.statuses(value) == (1, {"exceeds-bound": 2, "deviates": 1})


def test_a_shard_is_neither_gated_nor_accepted(bench: Bench) -> None:
    """Its sweeps have no cells, and its allowances no cap."""
    value = whole()
    bench.accept(value)
    shard = {"index": 1, "of": 2, "jobs": 6, "numbers": [0, 1, 2], "whole": False}
    for command in ("gate", "accept"):
        code, _, told = bench.run(command, bench.write(value | {"shard": shard}))
        assert code == 2 and "is shard 1 of 2; join all of them by `verify merge`" in told


def test_an_allowance_that_is_no_longer_needed_is_named(bench: Bench) -> None:
    value = whole(cell(error=error(correct=904, flushed=0, nan_mismatch=0, inf_mismatch=0, zero_sign=0)))
    bench.accept(value)
    path = bench.root / SLUG / "budget.toml"
    path.write_text('[[allowance]]\ncells = "addcmul"\nreason = "r"\nscaled_ulp = 3\n')
    code, out, _ = bench.run("gate", bench.write(value))
    assert code == 0 and "allows 'addcmul' what it no longer needs" in " ".join(out.split())
    beyond(value)
    assert bench.statuses(value)[1] == {"regressed": 1}  # within the budget, and larger than accepted


@pytest.mark.parametrize("text", [
    'status = "unsteady"\nulp = 0.1', 'status = "suspect"\nregion = "normal"', 'status = "unjudged"\nviolations = 3',
    'status = "unbounded"\nflushed = 0', 'violations = 3\nregion = "normal"',
])  # fmt: skip
def test_a_budget_has_no_limits_that_are_not_compared(bench: Bench, text: str) -> None:
    """An error of 1 ULP passed beside a status with a limit of 0.6."""
    bench.accept(whole())
    path = bench.root / SLUG / "budget.toml"
    path.write_text(f'[[allowance]]\ncells = "*"\nreason = "r"\n{text}\n')
    code, _, told = bench.run("gate", bench.write(whole()))
    assert code == 2 and "put " in told and "into another entry" in told


def test_undecided_elements_are_never_within_a_budget(bench: Bench) -> None:
    bench.accept(whole())
    (bench.root / SLUG / "budget.toml").write_text(
        '[[allowance]]\ncells = "*"\nreason = "r"\nscaled_ulp = 9e9\n' + "".join(f"{n} = 9999\n" for n in FAILING)
    )
    value = whole()
    value["cells"][0] |= {"status": "exceeds-bound", "reason": "1 undecided", "error": error(correct=899, undecided=1)}
    assert bench.statuses(value)[1]["exceeds-bound"] == 1
    assert bench.accept(value, "--allow", "*", "--reason", "r")[0] == 1


def test_two_reports_that_differ_cannot_both_be_accepted(bench: Bench) -> None:
    value = whole()
    first = bench.write(value, "a.json")
    assert bench.run("accept", first, bench.write(value, "b.json"))[0] == 0
    value["cells"][0]["digest"] = "00"
    code, _, problem = bench.run("accept", first, bench.write(value, "b.json"))
    assert code == 2 and "two of the reports differ in 'addcmul inductor" in problem


def test_devices_have_folders_of_their_own(bench: Bench) -> None:
    gpu = {"backend": "cuda", "chip": "NVIDIA H200", "capability": "sm_90", "torch": "2.11.0"}
    value = whole(cell(), cell(backend="cuda"), environment={"cpu": FINGERPRINT, "cuda": gpu})
    assert bench.accept(value)[0] == 0
    assert sorted(path.name for path in bench.root.iterdir()) == [SLUG, "cuda-nvidia-h200-sm_90"]
    assert bench.statuses(value) == (0, {"passed": 2})
    assert bench.statuses(whole(cell())) == (0, {"passed": 1})  # another machine's baseline is not missed
    absent = whole(cell(), environment={"cpu": FINGERPRINT, "cuda absent": "no driver", "mps absent": "not Apple"})
    code, out, _ = bench.run("gate", bench.write(absent))
    text = " ".join(out.split())
    assert code == 0 and "mps" not in text  # but where the backend should have been there, it is told
    assert "of backend cuda (no driver): what was accepted of cuda-nvidia-h200-sm_90 is not gated" in text


# Bad input


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a complete JSON file"),
        ("{}", '"baseline" is None; expected the number 1 or 2'),
        ('{"baseline": 3}', "a baseline of version 3; this version reads 1 or 2; upgrade"),
        ('{"baseline": true}', '"baseline" is True'),
        ('{"schema": 1, "cells": []}', '"baseline" is None'),
        ("[" * 100_000, "not a complete JSON file"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused_in_one_line(bench: Bench, text: str, problem: str) -> None:
    value = whole()
    bench.accept(value)
    bench.file.write_text(text)
    for command in ("gate", "accept"):
        code, out, told = bench.run(command, bench.write(value))
        assert (code, out) == (2, "") and problem in told and len(told.splitlines()) == 1


def test_a_baseline_without_a_name_is_not_the_current_folder(bench: Bench) -> None:
    report = bench.write(whole(cell_of({"normal": region()}), schema=2))
    for command in (["gate", report], ["accept", report], ["report", report, "--html", str(bench.folder / "r.html")]):
        assert main([*command, "--baseline", ""]) == 2
        assert "the baseline's folder has no name" in bench.capsys.readouterr().err


def test_a_broken_line_of_a_baseline_is_named(bench: Bench) -> None:
    value = whole()
    bench.accept(value)
    good = bench.file.read_text()

    def problem(text: str) -> str:
        bench.file.write_text(text)
        code, _, told = bench.run("gate", bench.write(value))
        assert code == 2 and len(told.splitlines()) == 1
        return told

    lines = good.splitlines()
    assert "cells[1] repeats 'addcmul eager" in problem("\n".join([*lines[:7], lines[7], *lines[7:]]))
    assert "$.cells[0].ulp" in problem(good.replace('"ulp":1.015625', '"ulp":"large"', 1))
    assert "$.cells[0].ulp" in problem(good.replace('"ulp":1.015625', '"ulp":-1', 1))
    assert "$.cells[0].more" in problem(good.replace('"kernel"', '"more":1,"kernel"', 1))
    assert "names no environment" in problem(good.replace('"kernel"', '"environment":"00","kernel"', 1))
    assert "names no environment" in problem(good.replace('"environment":"', '"environment":"0', 1))
    assert "is the baseline of cpu Other" in problem(good.replace("Some(R) CPU", "Other"))
    assert "holds the profile 'default'" in problem(good.replace('"quick"', '"default"', 1))
    for cut in range(0, len(good) - 2, 97):
        assert "quick.json'" in problem(good[:cut])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("allowance = 3", "$.allowance"),
        ('[[allowance]]\ncells = "*"', "$.allowance[0].reason: Field required"),
        ('[[allowance]]\ncells = ""\nreason = "r"', "$.allowance[0].cells"),
        ('[[allowance]]\ncells = "*"\nreason = "r"\nulp = inf', "$.allowance[0].ulp"),
        ('[[allowance]]\ncells = "*"\nreason = "r"\nundecided = 1', "$.allowance[0].undecided"),
        ("[[allowance", "is not a valid budget"),
        (f"x = {'[' * 5000}", "is not a valid budget"),
        ('[[allowance]]\ncells = "*"\nreason = "r"\nregion = "nosuch"', "expected one of special, exact-zero, "),
    ],
)
def test_a_broken_budget_is_refused_in_one_line(bench: Bench, text: str, problem: str) -> None:
    value = whole()
    bench.accept(value)
    (bench.root / SLUG / "budget.toml").write_text(text)
    code, _, told = bench.run("gate", bench.write(value))
    assert code == 2 and problem in told and "budget.toml" in told and len(told.splitlines()) == 1


def test_what_never_ends_is_no_budget(bench: Bench) -> None:
    bench.accept(whole())
    os.mkfifo(bench.root / SLUG / "budget.toml")
    code, _, told = bench.run("gate", bench.write(whole()))
    assert code == 2 and "budget.toml' is no regular file" in told


def test_remarks_beyond_the_first_are_counted(bench: Bench) -> None:
    value = whole(*(cell(scalars={"value": k / 8}, error=error(max_scaled_ulp=0.6)) for k in range(20)))
    bench.accept(value)
    for k, one in enumerate(value["cells"]):
        one["error"]["max_scaled_ulp"] = 0.7 + k / 1000
    _, page, _ = bench.run("gate", bench.write(value), "--fail-on", "exceeds-bound")
    assert "and 8 cells more that passed with a remark; --json FILE lists all" in page


def test_a_missing_folder_is_bad_input(bench: Bench) -> None:
    path = bench.write(whole())
    bench.root.rmdir()
    code, _, told = bench.run("gate", path)
    assert code == 2 and "cannot read the folder of baselines" in told and "verify accept" in told
    assert bench.run("accept", path)[0] == 0  # makes it
    assert bench.run("gate", path)[0] == 0
    assert bench.run("gate", str(bench.folder / "none.json"))[0] == 2


HOSTILE = "../../etc/passwd\x1b[31m\n::error::x<script>alert(1)</script>|`"


def test_hostile_names_stay_inside_the_folder_and_come_out_as_text(bench: Bench) -> None:
    chip = FINGERPRINT | {"chip": HOSTILE, "capability": "..\\..\\"}
    value = whole(cell(kernel=HOSTILE, lowering=HOSTILE), environment={"cpu": chip})
    code, out, _ = bench.accept(value)
    assert code == 0 and "\x1b" not in out
    (folder,) = bench.root.iterdir()
    assert folder.name == "cpu-etc-passwd-31m-error-x-script-alert-1-script"
    assert sorted(path.name for path in bench.folder.iterdir()) == ["accepted.json", "baselines"]
    value["cells"][0]["digest"] = "00"
    code, out, told = bench.run("gate", bench.write(value), "--annotations")
    assert code == 1 and "\x1b" not in out + told
    assert out.splitlines()[-1].startswith("::error title=changed%3A ..")


def test_a_device_folder_that_leads_elsewhere_is_refused(bench: Bench) -> None:
    value = whole()
    elsewhere = bench.folder / "elsewhere"
    elsewhere.mkdir()
    (bench.root / SLUG).symlink_to(elsewhere)
    for command in ("accept", "gate"):
        code, _, told = bench.run(command, bench.write(value))
        assert code == 2 and "does not lie in" in told
    (bench.root / SLUG).unlink()
    bench.accept(value)
    bench.file.rename(elsewhere / "quick.json")
    bench.file.symlink_to(elsewhere / "quick.json")
    code, _, told = bench.run("gate", bench.write(value))
    assert code == 2 and "a link out of" in told


def test_profiles_are_names_and_no_paths(bench: Bench) -> None:
    code, _, told = bench.run("gate", bench.write(whole(profile="../quick")))
    assert code == 2 and "profile '../quick'; expected one of quick, default, exhaustive" in told


@given(st.text(max_size=200) | st.text("aB0 -_./", min_size=100, max_size=300), st.text(max_size=20))
def test_a_slug_is_one_plain_folder_name(chip: str, capability: str) -> None:
    slug = Device("cpu", chip, capability).slug
    assert slug.startswith("cpu") and len(slug) <= baseline.MAX_SLUG
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")


def test_a_failed_write_leaves_the_old_baseline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    value = whole()
    bench.accept(value)
    old = bench.file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    worse(value)
    with pytest.raises(UsageError, match="No space left"):
        accept([bench.folder / "accepted.json"], bench.root)
    assert bench.file.read_bytes() == old and len(list(bench.file.parent.iterdir())) == 1


def test_refusal_names_every_group_of_cells() -> None:
    verdicts = [gate.Verdict("error", f"k{i}", "d", "quick", f"why {i}") for i in range(20)]
    from verify.reports.accept import refused_page

    text = " ".join(line.text for line in refused_page(Refused(verdicts, False)).blocks)
    assert "k11" in text and "and 8 cells more" in text


def test_an_allowance_is_not_advised_once_it_was_tried() -> None:
    from verify.reports.accept import refused_page

    for allowing in (False, True):
        last = refused_page(Refused([gate.Verdict("exceeds-bound", "k", "d", "quick", "why")], allowing)).blocks[-1]
        assert isinstance(last, Line) and ("--allow PATTERN" in last.text) != allowing


# Size and start


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "r.json"
    lines = "".join(store.lines(Report.model_validate(whole()))).splitlines()
    one = lines[1].rstrip(",")
    assert '"value":0.3' in one
    with path.open("w") as file:
        file.write(lines[0] + "\n")
        file.write(",\n".join(one.replace('"value":0.3', f'"value":{i}.5') for i in range(10_000)) + "\n]}\n")
    return path


MEASURE = """
import pathlib, re, sys, time
began = time.process_time()
from verify.cli.commands import main
code = main(sys.argv[1:])
status = pathlib.Path("/proc/self/status")  # ru_maxrss would begin with that of the process that forked this one
most = int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) if status.exists() else 0
print(code, time.process_time() - began, most / 1024, *sys.modules)
"""


YARDSTICK = """
import json, pathlib, sys, time
text = pathlib.Path(sys.argv[1]).read_text()
began = time.process_time()
json.loads(text)
print(time.process_time() - began)
"""
PARSED = 0.22  # seconds that this takes for the 10,000 cells where the gate takes 1.0, two Xeon cores of 2023


def slowness(path: Path) -> float:
    """How many times slower this machine is at present, by Python's own JSON."""
    command = [sys.executable, "-c", YARDSTICK, str(path)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / PARSED


def measured(*arguments: str) -> tuple[float, float, set[str]]:
    """User and system seconds, MiB at most, and the modules imported, of a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, cwd=ROOT, check=True
    )
    code, seconds, memory, *modules = done.stdout.splitlines()[-1].split()
    assert code == "0", done.stdout[-500:] + done.stderr
    return float(seconds), float(memory), set(modules)


def test_the_gate_is_fast_small_and_torch_free(large: Path, tmp_path: Path) -> None:
    """10,000 cells in a tenth of what 100,000 may take, 10 s and 1 GiB; processor time, as the machine may be busy."""
    for command in ("accept", "gate"):
        seconds, memory, modules = measured(command, str(large), "--baseline", str(tmp_path))
        assert not {"torch", "triton"} & modules
        assert seconds < (1.5 + 0.5) * max(1, slowness(large)) and memory < 105 + 50  # and what it takes to start


# Determinism


def unsteady(values: list[float]) -> Callable[..., torch.Tensor]:
    """A function whose every launch adds the next of these to its last element."""
    state = {"turn": 0}

    def call(a: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        result = a.clone()
        result[-1] += values[state["turn"] % len(values)]
        state["turn"] += 1
        return result

    return call


def test_a_lowering_that_repeats_itself_is_launched_twice() -> None:
    calls = []

    def same(a: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return a * 2

    assert launch_steady(same, [torch.ones(5)], cpu, "same", repeats=2).steady and len(calls) == 2


def test_one_that_does_not_is_launched_again_and_again() -> None:
    launches = launch_steady(unsteady([0.0, 1.0, 2.0]), [torch.ones(5)], cpu, "unsteady", repeats=2)
    assert launches.repeats == REPEATS and launches.distinct == 3


def test_what_depends_on_memory_alone_is_no_result() -> None:
    def forgets(a: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(a)
        out[1:] = a[1:]
        return out

    with pytest.raises(LoweringError, match="not all written"):
        launch_steady(forgets, [torch.ones(1 << 16)], cpu, "forgets", repeats=2)


def planted(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> dict[str, Any]:
    """The quick report of `reciprocal` in float32 with a lowering that errs by one of `values` in its last element."""
    eager = lowerings(load("reciprocal"))[0]

    def build(target: Any) -> Callable[..., torch.Tensor]:
        call, off = eager.build(target), unsteady(values)
        return lambda a: off(call(a))

    planted = Lowering("atomic", build, eager.reason)
    for module in ("plan", "cells"):
        monkeypatch.setattr(f"verify.walk.{module}.lowerings", lambda kernel: (eager, planted))
    selection = Selection(("reciprocal",), ("cpu",), ("float32",), ("atomic",), ("out-of-place",), "quick")
    value: dict[str, Any] = run(selection)
    Report.model_validate(value)
    return value


def test_the_worst_of_all_launches_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    (steady,) = planted(monkeypatch, [0.0])["cells"]
    assert "deterministic" not in steady["reason"] and "repeats" not in steady
    (found,) = planted(monkeypatch, [0.0, float("nan"), 0.5])["cells"]
    assert (found["repeats"], found["distinct"]) == (REPEATS, 3)
    assert found["inputs"] == 3 * steady["inputs"]  # every result that differs is judged
    assert found["error"]["nan_mismatch"] > steady["error"]["nan_mismatch"]
    assert found["error"]["correct"] < 3 * steady["error"]["correct"]
    assert "not deterministic: 3 different results in 8 launches" in found["reason"]


def test_the_gate_compares_the_worst_seen(bench: Bench) -> None:
    shaky = {"repeats": 8, "distinct": 3, "digest": "11"}
    value = whole(cell(**shaky))
    bench.accept(value)
    value["cells"][0]["digest"] = "12"
    assert bench.statuses(value) == (0, {"passed": 1})  # other bits say nothing
    better(value)
    assert bench.statuses(value) == (0, {"improved": 1})
    bench.accept(value)
    kept = baseline.read(bench.root, DEVICE, "quick")
    assert kept is not None and next(iter(kept.cells.values())).error == 0.7712  # the worst accepted stays
    worse(value)
    assert bench.statuses(value) == (1, {"regressed": 1})
    assert "scaled_ulp 0.7712 -> 0.875" in " ".join(bench.accept(value)[1].split())
    assert bench.statuses(value) == (0, {"passed": 1})


ACCEPTED = Accepted(
    kernel="k", lowering="l", spelling="s", dtype="float32", domain="strata", size=9, seed=0, inputs_digest="a",
    inputs=9, error=0.5, ulp=900.0, int_ulp=0, mean_ulp=3.0, bias_ulp=0.0,
)  # fmt: skip


def shares(**changed: Any) -> AcceptedRegion:
    given = {"inputs": 100_000, "error": 0.5, "metric": "share", "bound": 1.0, "ulp": 900.0, "share": 0.5}
    return AcceptedRegion(**given | {"mean_ulp": 3.0, "unjudged": 0} | changed)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"mean_ulp": 300.0}, "mean_ulp 3 -> 300"),
        ({"unjudged": 1000}, "unjudged 0 -> 0.01 of all"),
        ({"mean_ulp": 3.9, "unjudged": 0}, ""),  # as far as chance goes, of elements that count 1,024 at most
    ],
)
def test_what_chance_does_not_explain_is_a_change_where_results_differ(changed: dict[str, Any], told: str) -> None:
    """In every metric: most lowerings that are not deterministic add up in another order each time."""
    old = replace(ACCEPTED, metric="share", distinct=3, regions={"normal": shares()})
    found = differences(replace(old, regions={"normal": shares(**changed)}), old)
    assert [status for status, _ in found] == ["changed"] * bool(told) and all(told in text for _, text in found)


def test_what_the_bound_does_not_mean_gets_better_too() -> None:
    old = replace(ACCEPTED, metric="share", digest="a", regions={"normal": shares()})
    for changed in ({"ulp": 600.0}, {"ulp": 600.0, "mean_ulp": 2.0}):
        ((status, _),) = differences(replace(old, digest="b", regions={"normal": shares(**changed)}), old)
        assert status == "improved"
    ((status, _),) = differences(replace(old, digest="b", regions={"normal": shares(ulp=600.0, mean_ulp=3.5)}), old)
    assert status == "changed"


def test_losing_determinism_is_a_change(bench: Bench) -> None:
    bench.accept(whole(cell()))
    _, (verdict,) = bench.gate(whole(cell(repeats=8, distinct=2)))
    assert verdict["status"] == "changed" and "no longer deterministic: 2 different results in 8" in verdict["reason"]


def test_the_source_of_a_kernel_is_that_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert source_of("lerp") != source_of("exp") and len(source_of("lerp")) == 16
    files = {
        "kernels/made.py": "from verify.kernels import _shared\nfrom verify.oracles.made import ORACLE\n",
        "kernels/_shared.py": 'implementations = "verify.kernels.triton._made"\n',
        "kernels/triton/_made.py": "from verify.kernels._shared import a, b\n",  # a circle
        "kernels/triton/made.py": "c\n",
        "oracles/made.py": "import verify.oracles._deep\n",
        "oracles/_deep.py": "d\n",
    }
    for name, text in (files | {"kernels/__pycache__/made.txt": "x", "kernels/other.py": "x"}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("verify.facts.kernel.__file__", str(tmp_path / "facts" / "kernel.py"))
    first = source_of.__wrapped__("made")
    (tmp_path / "kernels/other.py").write_text("y")
    (tmp_path / "kernels/triton/made.py").write_bytes(b"c\r\n")  # as git writes it on other systems
    assert source_of.__wrapped__("made") == first
    for name, text in files.items():
        (tmp_path / name).write_text(text + "# changed\n")
        assert source_of.__wrapped__("made") != first
        (tmp_path / name).write_text(text)
    assert source_of.__wrapped__("made") == first


# From end to end

GOOD = "def lerp(a, b, w):\n    return a + w * (b - a)\n"
WORSE = "def lerp(a, b, w):\n    return a + w * (b - a).half().float()\n"


def test_a_deliberately_worse_lowering_fails_with_reason_and_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine.py"
    selection = "--lowering mine.py:lerp --lowering eager --dtype float32 --scalar w=0.9 --spelling out-of-place"
    selection += " --profile quick --backend cpu --jobs 1"
    monkeypatch.setattr("verify.walk.walk.call_all", lambda *given, **named: Called())

    def kernel(text: str) -> int:
        mine.write_text(text)
        code = main(["kernel", "lerp", *selection.split(), "--json", "r.json"])
        capsys.readouterr()
        return code

    assert kernel(GOOD) == 0
    assert main(["accept", "r.json", "--baseline", "accepted"]) == 0
    assert main(["gate", "r.json", "--baseline", "accepted"]) == 0
    assert " 0 failing" in capsys.readouterr().out
    assert kernel(WORSE) == 1
    assert main(["gate", "r.json", "--baseline", "accepted", "--json", "v.json"]) == 1
    out = capsys.readouterr().out
    assert "exceeds-bound: lerp mine.py:lerp " in " ".join(out.split())
    assert "the bound" in out or "exceeds" in out
    replays = [one for one in out.splitlines() if one.startswith("verify explain lerp")]
    assert replays
    assert main(shlex.split(replays[0])[1:]) == 0  # the command works
    assert "mine.py:lerp" in capsys.readouterr().out
    failing = [verdict for verdict in json.loads(Path("v.json").read_text())["verdicts"] if verdict["fails"]]
    assert {verdict["cell"].split()[1] for verdict in failing} == {"mine.py:lerp"}
    assert all("scaled_ulp" in verdict["reason"] for verdict in failing)


ASSIGNED = {"ATEN_CPU_CAPABILITY": "avx2", "PYTORCH_MPS_FAST_MATH": "1; echo"}


def test_replays_set_the_variables_that_chose_the_code(bench: Bench) -> None:
    value = whole(cell(), cell(dtype="float16"))
    # what a report may hold and a command must not: any other variable, any other shape
    value["environment"]["cpu"]["variables"] = ASSIGNED | {
        "LD_PRELOAD": "evil.so", "TORCHINDUCTOR_CPP_MARCH": "native -fplugin=evil.so", "x; y": "z",
    }  # fmt: skip
    bench.accept(value)
    worse(value)
    del value["cells"][1]
    before = ["ATEN_CPU_CAPABILITY=avx2", "PYTORCH_MPS_FAST_MATH=1; echo", "verify"]
    for verdict in bench.gate(value)[1]:
        assert verdict["status"] in ("regressed", "not-run")
        assert shlex.split(verdict["replay"])[:3] == before
    value["cells"][0] |= {"status": "exceeds-bound", "reason": "r"}
    pages = [
        kernel_page(Report.model_validate(value), "addcmul"),
        run_page(Report.model_validate(value)),
    ]
    for page in pages:
        told = [block.text for block in page.blocks if isinstance(block, Line) and block.kind == "command"]
        assert told and all(shlex.split(text)[:3] == before for text in told)


@pytest.mark.parametrize("fingerprint", [None, "x", {}, {"variables": None}, {"variables": ["LD_PRELOAD"]}])
def test_a_fingerprint_without_variables_sets_none(fingerprint: Any) -> None:
    assert assignments(fingerprint) == ""


def test_every_variable_of_a_backend_is_set_by_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.EVERY:
        monkeypatch.delenv(name, raising=False)
    assert "variables" not in cpu.fingerprint()
    monkeypatch.setenv("TORCHINDUCTOR_CPP_MARCH", "x86-64-v3")
    assert cpu.fingerprint()["variables"] == {"TORCHINDUCTOR_CPP_MARCH": "x86-64-v3"}
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    assert assignments(cpu.fingerprint()) == "ATEN_CPU_CAPABILITY=default TRITON_DEFAULT_FP_FUSION=0 "


def test_a_replay_names_the_file_as_the_command_did(bench: Bench) -> None:
    value = whole(cell(lowering="mine.py:f", scalars={}, status="exceeds-bound", reason="r"))
    value["command"] = "ATEN_CPU_CAPABILITY=avx2 verify kernel addcmul --lowering 'some folder/mine.py:f' --seed 0"
    told = [one["replay"] for one in bench.gate(value)[1]]
    told += [one.text for one in kernel_page(Report.model_validate(value), "addcmul").blocks if isinstance(one, Line)]
    commands = [text for text in told if "verify explain" in text]
    assert len(commands) >= 2
    for text in commands:
        words = shlex.split(text)
        assert words[words.index("--lowering") + 1] == "some folder/mine.py:f"
    value["command"] = "verify kernel 'not closed"
    assert all("--lowering mine.py:f" in one["replay"] for one in bench.gate(value)[1])


def test_what_fails_in_other_calls_alone_is_run_again_as_a_whole(bench: Bench) -> None:
    """No element of its own inputs shows it; that of the largest error, which keeps its bound, was named."""
    calls = {"made": 20, "status": "exceeds-bound", "different": ["1 elements"]}
    regions = {"normal": region(worst=[worst_at(1)])}
    given = {"lowering": "mine.py:f", "status": "exceeds-bound", "reason": "1 of 20 calls", "reason_kind": "calls"}
    (told,) = bench.gate(whole(cell_of(regions, calls=calls, **given)))[1]
    assert "verify kernel addcmul" in told["replay"]
    regions["normal"] |= {"status": "exceeds-bound", "reason": {"kind": "bound", "text": "ulp 3 exceeds 1"}}
    (told,) = bench.gate(whole(cell_of(regions, calls=calls, **given)))[1]
    assert "verify explain addcmul" in told["replay"]


def test_a_cell_without_scalars_is_run_again_without_any(bench: Bench) -> None:
    value = whole(cell(kernel="lerp", scalars={}), cell(kernel="exp", scalars={}), cell(kernel="lerp"))
    bench.accept(value)
    value["cells"].clear()
    found = [one["replay"].partition(" --scalar ")[2].split()[:1] for one in bench.gate(value)[1]]
    assert sorted(found) == [[], ["none"], ["value=0.3"]]


def test_a_replay_of_a_cell_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = cell(
        kernel="reciprocal", lowering="eager", scalars={}, spelling="in-place", against_eager=None, formula=None
    )
    (tmp_path / "b").mkdir()
    path = tmp_path / "r.json"
    store.write(Report.model_validate(whole(cells)), path)
    outcome = gate.gate([path], tmp_path / "b")
    (verdict,) = outcome.verdicts
    assert main(shlex.split(verdict.replay)[1:]) == 0
    assert "reciprocal" in capsys.readouterr().out
