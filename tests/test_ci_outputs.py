"""What continuous integration reads: annotations, step summary, SARIF, JUnit, benchmark records; docs/ci.md's steps."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from sample_reports import cell, error, not_run
from test_gate import FINGERPRINT, HOSTILE, SLUG, Bench, bench, better, whole, worse
from verify.cli import commands
from verify.judge import status
from verify.reports import ci, oss_benchmark
from verify.reports.gate import Outcome, Verdict, gate
from verify.reports.gate_page import gate_page

__all__ = ["bench"]  # the fixture

ROOT = Path(__file__).resolve().parent.parent


def failing(bench: Bench, count: int = 1) -> Outcome:
    """The outcome of a gate on which `count` cells regressed."""
    value = whole(*(cell(scalars={"value": float(i)}) for i in range(count)), cell(dtype="float16", digest="77"))
    bench.accept(value)
    for one in value["cells"][:count]:
        one["error"]["max_scaled_ulp"] = 0.875
    return gate([bench.write(value)], bench.root)


# Annotations


def unescaped(line: str) -> tuple[str, str]:
    """Title and message as GitHub's runner reads them (actions/runner, ActionCommand.TryParseV2)."""
    assert line.startswith("::error ") and line.endswith("\n") and "\n" not in line[:-1]
    properties, _, data = line[len("::error ") : -1].partition("::")
    assert "," not in properties and properties.startswith("title=")
    title = properties.removeprefix("title=")
    for code, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        title = title.replace(code, character)
    for code, character in (("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        data = data.replace(code, character)
    return title, data


def test_an_annotation_says_cell_reason_and_replay(bench: Bench) -> None:
    (line,) = ci.error_lines(failing(bench))
    title, message = unescaped(line)
    assert title == "regressed: addcmul inductor out-of-place cpu float32 value=0.0"
    reason, replay = message.split("\n")
    assert reason == "scaled_ulp 0.7712 -> 0.875; the same bits, judged otherwise"
    assert replay.startswith("verify explain addcmul --dtype float32")


#: Text that any step of escaping, left out or doubled, would change.
escapes = st.text(max_size=60) | st.text("%0AD235C:,\n\r x", max_size=60)


@given(escapes, escapes)
def test_annotations_are_one_line_that_reads_back(name: str, reason: str) -> None:
    verdict = Verdict("error", name, "d", "quick", reason, replay="verify", fails=True)
    (line,) = ci.error_lines(Outcome((verdict,), ()))
    title, message = unescaped(line)
    shown = ci.printable(name)
    assert title == f"error: {shown}" and message == f"{ci.printable(reason)}\nverify"


def test_no_more_annotations_than_github_shows(bench: Bench) -> None:
    assert len(list(ci.error_lines(failing(bench, 10)))) == 10
    lines = list(ci.error_lines(failing(bench, 13)))
    assert len(lines) == 10
    assert unescaped(lines[-1]) == ("4 cells more", "all cells: 13 regressed, 1 passed")


@pytest.mark.parametrize("annotated", [True, False])
def test_no_line_of_the_page_is_a_command_to_the_runner(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, annotated: bool
) -> None:
    """A word that a narrow page puts at the beginning of a line would be one."""
    value = whole(*(cell(kernel=f"{'x' * n} ::add-mask::a ::error::b") for n in range(40, 60)))
    bench.accept(value)
    for index, one in enumerate(value["cells"]):
        one["error"]["max_scaled_ulp"] = 0.8 + index / 100
    monkeypatch.setenv("GITHUB_ACTIONS", "true" if not annotated else "")
    _, out, _ = bench.run("gate", bench.write(value), *(["--annotations"] if annotated else []))
    first, *lines = out.splitlines()
    token = first.removeprefix("::stop-commands::")
    assert len(token) == 32 and first != token
    end = lines.index(f"::{token}::")
    assert any(line.startswith("::") for line in lines[:end])  # what the runner must not see
    assert len(lines[end + 1 :]) == (10 if annotated else 0)
    assert all(unescaped(line + "\n") for line in lines[end + 1 :])


def test_outputs_go_where_they_are_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    value = whole()
    bench.accept(value)
    worse(value)
    path = bench.write(value)
    code, out, told = bench.run("gate", path, "--annotations")
    assert code == 1 and told == "" and out.splitlines()[-1].startswith("::error title=regressed%3A addcmul")
    code, out, told = bench.run("gate", path, "--json", "-")
    assert code == 1 and json.loads(out)["counts"] == {"regressed": 1, "passed": 2} and "regressed:" in told
    assert json.loads(out)["fail_on"] == [
        "oracle-violation",
        "error",
        "exceeds-bound",
        "unsteady",
        "suspect",
        "unbounded",
        "unjudged",
        "regressed",
        "changed",
        "not-run",
    ]
    code, _, told = bench.run("gate", path, "--json", "-", "--annotations")
    assert code == 2 and "only one output can be standard output" in told
    code, _, told = bench.run("gate", path, "--json", "-", "--sarif", "-")
    assert code == 2
    code, _, told = bench.run("gate", path, "--sarif", str(bench.folder / "none" / "x"))
    assert code == 2 and "cannot write" in told
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    code, _, told = bench.run("gate", path, "--summary")
    assert code == 1 and "GITHUB_STEP_SUMMARY is not set" in told


# Step summary


def test_a_summary_is_not_appended_to_the_report_that_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.write(whole(cell()))
    before = Path(path).read_bytes()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    code, _, told = bench.run("gate", path, "--summary")
    assert code == 2 and "is read, and the output would replace it" in told
    assert Path(path).read_bytes() == before


def test_the_summary_is_appended_and_says_what_the_page_says(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = failing(bench)
    path = bench.folder / "summary.md"
    path.write_text("before\n\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    assert ci.append_summary(gate_page(outcome))
    text = path.read_text()
    assert text.startswith("before\n\n") and "verify explain addcmul" in text and "```sh" in text
    assert "1 failing" in text and "0.7712 -" in text


def test_a_summary_beyond_githubs_limit_is_cut(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.folder / "summary.md"
    path.write_text("x" * (ci.MOST_SUMMARY - 500))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    ci.append_summary(gate_page(failing(bench, 12)))
    assert ci.MOST_SUMMARY - 500 < path.stat().st_size <= ci.MOST_SUMMARY
    assert path.read_text().endswith("The rest is left out: GitHub takes 1 MiB a step.\n")


# SARIF: the parts of sarif-schema-2.1.0.json (OASIS, errata 01) that a log of ours has; nothing else is allowed there


class Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


Bag = dict[str, Any]
Level = Literal["none", "note", "warning", "error"]
Uri = Annotated[str, Field(pattern=r"^[A-Za-z0-9._~/%-]+$")]


class Message(Part):
    text: str


class Configuration(Part):
    level: Level


class Rule(Part):
    id: str
    name: str
    shortDescription: Message  # noqa: N815
    fullDescription: Message  # noqa: N815
    help: Message
    defaultConfiguration: Configuration  # noqa: N815
    properties: Bag


class Driver(Part):
    name: str
    version: str
    rules: list[Rule]


class Tool(Part):
    driver: Driver


class Artifact(Part):
    uri: Uri
    uriBaseId: str  # noqa: N815


class Region(Part):
    startLine: Annotated[int, Field(ge=1)]  # noqa: N815


class Physical(Part):
    artifactLocation: Artifact  # noqa: N815
    region: Region


class Logical(Part):
    fullyQualifiedName: str  # noqa: N815
    kind: str


class Location(Part):
    physicalLocation: Physical  # noqa: N815
    logicalLocations: list[Logical]  # noqa: N815


class Suppression(Part):
    kind: Literal["inSource", "external"]
    justification: str


class Result(Part):
    ruleId: str  # noqa: N815
    ruleIndex: Annotated[int, Field(ge=0)]  # noqa: N815
    level: Level
    message: Message
    locations: Annotated[list[Location], Field(min_length=1)]
    partialFingerprints: dict[str, str]  # noqa: N815
    properties: Bag
    suppressions: list[Suppression] = []


class Details(Part):
    id: str


class Invocation(Part):
    executionSuccessful: bool  # noqa: N815
    exitCode: int  # noqa: N815


class Run(Part):
    tool: Tool
    automationDetails: Details  # noqa: N815
    invocations: list[Invocation]
    results: list[Result]
    properties: Bag = {}


class Log(Part):
    schema_uri: Annotated[str, Field(alias="$schema")]
    version: Literal["2.1.0"]
    runs: Annotated[list[Run], Field(min_length=1, max_length=20)]


def sarif(outcome: Outcome) -> Run:
    """The log's run, after a journey through JSON, held to the schema and to what code scanning asks for."""
    (found,) = Log.model_validate_json(json.dumps(ci.sarif(outcome))).runs
    ids = [rule.id for rule in found.tool.driver.rules]
    assert len(set(ids)) == len(ids)
    assert all(ids[result.ruleIndex] == result.ruleId for result in found.results)
    prints = [result.partialFingerprints["primaryLocationLineHash"] for result in found.results]
    assert len(set(prints)) == len(prints)  # else alerts of one file and line would be taken for one
    return found


def test_sarif_has_one_rule_a_status_and_one_result_a_cell(bench: Bench) -> None:
    value = whole(
        cell(),
        cell(lowering="mine.py:lerp"),
        cell(dtype="float16"),
        not_run(backend="cpu", kernel="exp"),
        cell(kernel="x y"),
    )
    bench.accept(value)
    worse(value)
    value["cells"][1]["digest"] = "00"
    value["cells"].pop(4)
    outcome = gate([bench.write(value)], bench.root, allow=["addcmul mine.py:lerp"])
    found = sarif(outcome)
    assert [(one.ruleId, one.level) for one in found.results] == [
        ("regressed", "error"), ("not-run", "error"), ("changed", "note"),
    ]  # fmt: skip
    uris = [one.locations[0].physicalLocation.artifactLocation.uri for one in found.results]
    assert uris == ["kernels/addcmul.py", "kernels/x%20y.py", "mine.py"]
    assert [len(one.suppressions) for one in found.results] == [0, 0, 1]
    assert "scaled_ulp 0.7712 -> 0.875" in found.results[0].message.text
    assert "verify explain addcmul" in found.results[0].message.text
    assert found.invocations[0].exitCode == 1
    again = sarif(gate([bench.write(value)], bench.root, allow=["addcmul mine.py:lerp"]))
    assert [r.partialFingerprints for r in again.results] == [r.partialFingerprints for r in found.results]


@pytest.mark.parametrize(("named", "uri"), [
    ("mine.py", "mine.py"), ("sub folder/mine.py", "sub%20folder/mine.py"), ("./sub/mine.py", "sub/mine.py"),
    ("../mine.py", "mine.py"), ("/elsewhere/mine.py", "mine.py"),
])  # fmt: skip
def test_sarif_names_a_file_of_ones_own_with_its_folder(bench: Bench, named: str, uri: str) -> None:
    """The report's command does; cells have its name alone."""
    value = whole(cell(lowering="mine.py:lerp"))
    value["command"] = f"verify kernel addcmul --lowering {shlex.quote(f'{named}:lerp')}"
    bench.accept(value)
    worse(value)
    (result,) = sarif(gate([bench.write(value)], bench.root)).results
    assert result.locations[0].physicalLocation.artifactLocation.uri == uri


def test_what_improved_is_told_where_it_fails(bench: Bench) -> None:
    value = whole()
    bench.accept(value)
    better(value)
    outcome = gate([bench.write(value)], bench.root, ["improved"])
    assert outcome.exit_code == 1
    (result,) = ci.sarif(outcome)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("improved", "error")
    assert not ci.sarif(gate([bench.write(value)], bench.root))["runs"][0]["results"]


def test_an_annotation_says_that_nothing_was_compared(bench: Bench) -> None:
    outcome = gate([bench.write(whole())], bench.root, ["regressed"])
    (line,) = ci.error_lines(outcome)
    assert outcome.exit_code == 3 and line.startswith("::error title=nothing was compared with a baseline::")


def test_sarif_of_a_pass_is_empty_and_of_very_many_cells_is_cut(bench: Bench) -> None:
    assert sarif(Outcome((), ())).results == []
    verdicts = tuple(Verdict("regressed", f"k{i}", "d", "quick", "r", fails=True) for i in range(ci.MOST_RESULTS + 7))
    found = sarif(Outcome(verdicts, ("regressed",)))
    assert len(found.results) == ci.MOST_RESULTS and found.properties == {"omitted": 7}


def test_every_status_has_a_meaning_and_its_row_in_the_documentation() -> None:
    rows = re.findall(r"^\| `([a-z][a-z-]+)` \| ", (ROOT / "docs" / "ci.md").read_text(), re.MULTILINE)
    assert tuple(rows) == ci.PRECEDENCE
    assert (*ci.MEANINGS, "passed") == ci.PRECEDENCE


@given(st.text(max_size=40), st.text(max_size=40))
def test_sarif_takes_any_name(kernel: str, lowering: str) -> None:
    verdict = Verdict("changed", f"{kernel} {lowering}", "d", "quick", "r", "", "verify", kernel, lowering, fails=True)
    (result,) = sarif(Outcome((verdict,), ("changed",))).results
    assert ".." not in result.locations[0].physicalLocation.artifactLocation.uri.split("/")


# JUnit, through pytest


#: Entry points are not loaded, since a clone that is not installed has none; the plugin is named instead.
QUIET = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
PYTEST = ("pytest", "-p", "verify.cli.plugin", "-p", "xdist", "-p", "no:cacheprovider")


def pytest_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    line = [sys.executable, "-m", *PYTEST, *arguments]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_pytest_makes_a_test_of_each_verdict(bench: Bench) -> None:
    value = whole(cell(), cell(dtype="float16"), cell(kernel=HOSTILE, digest="55"))
    bench.accept(value)
    worse(value)
    value["cells"][1]["digest"] = "00"
    report, junit = bench.write(value), bench.folder / "junit.xml"
    (bench.folder / "test_other.py").write_text("def test_other():\n    raise SystemExit\n")
    line = ("--verify-report", report, "--verify-baseline", str(bench.root), "--junitxml", str(junit))
    done = pytest_run(bench.folder, *line, "--verify-allow", "* float16 *")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed, 1 xfailed" in done.stdout
    assert "regressed: scaled_ulp 0.7712 -> 0.875; the same bits, judged otherwise\nverify explain" in done.stdout
    cases = {case.attrib["name"]: case for case in ElementTree.parse(junit).iter("testcase")}
    assert len(cases) == 3
    bad = cases["addcmul inductor out-of-place cpu float32 value=0.3"]
    failure = bad.find("failure")
    assert failure is not None and failure.attrib["message"].startswith("regressed: scaled_ulp 0.7712 -> 0.875")
    properties = {one.attrib["name"]: one.attrib["value"] for one in bad.iter("property")}
    assert properties["status"] == "regressed" and properties["device"] == "cpu Some(R) CPU AVX2"
    done = pytest_run(bench.folder, *line, "--verify-fail-on", "changed", "--verify-only", "addcmul", "-n", "2")
    assert done.returncode == 1 and "1 failed, 1 skipped" in done.stdout  # what regressed is no pass, asked for or not


def test_pytest_fails_where_nothing_was_compared(bench: Bench) -> None:
    line = ("--verify-report", bench.write(whole()), "--verify-baseline", str(bench.root))
    done = pytest_run(bench.folder, *line, "--verify-fail-on", "regressed,exceeds-bound")
    assert done.returncode == 2 and "nothing was compared with a baseline: 3 not-run" in done.stdout
    done = pytest_run(bench.folder, *line)  # by default the cells fail
    assert done.returncode == 1 and "3 failed" in done.stdout


def test_tests_of_several_profiles_and_devices_have_names_of_their_own(bench: Bench) -> None:
    """pytest-xdist tells tests apart by their names."""
    other = {"cpu": FINGERPRINT | {"capability": "AVX512"}}
    given = whole(cell()), whole(cell(), profile="default"), whole(cell(), environment=other)
    paths = []
    for number, value in enumerate(given):
        bench.accept(value)
        paths += ["--verify-report", bench.write(value, f"{number}.json")]
    junit = bench.folder / "junit.xml"
    for count, options in ((2, ()), (3, ("-n", "2", "--dist", "loadfile"))):
        line = (*paths[: 2 * count], "--verify-baseline", str(bench.root), "--junitxml", str(junit), *options)
        done = pytest_run(bench.folder, *line)
        assert done.returncode == 0 and f"{count} passed" in done.stdout, done.stdout + done.stderr
        names = {case.attrib["name"] for case in ElementTree.parse(junit).iter("testcase")}
        name, device = "addcmul inductor out-of-place cpu float32 value=0.3", "cpu Some(R) CPU AVX2"
        assert len(names) == count and (f"{name} [default]" if count == 2 else f"{name} [{device}, default]") in names


def test_pytest_names_bad_input(bench: Bench) -> None:
    report = bench.write(whole())
    done = pytest_run(bench.folder, "--verify-report", report)
    assert done.returncode == 4 and "go together" in done.stderr
    done = pytest_run(bench.folder, "--verify-report", report, "--verify-baseline", "none")
    assert done.returncode == 2 and "cannot read the folder of baselines" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    (bench.folder / "d").mkdir()
    (bench.folder / "d" / "test_ok.py").write_text("def test_ok(): pass\n")
    for others in ([], ["--verify-report", report]):  # pytest would run the folder's tests, and gate nothing
        done = pytest_run(bench.folder, "--verify-report", "d", *others, "--verify-baseline", str(bench.root))
        assert done.returncode == 4 and "cannot read the report 'd': is a directory" in done.stderr


# Records of PyTorch's OSS benchmark database: the columns of oss_ci_benchmark_v3/schema.sql that we fill


Texts = dict[str, str]


class Benchmark(Part):
    name: str
    mode: str
    dtype: str
    extra_info: Texts


class Model(Part):
    name: str
    type: str
    backend: str
    origins: list[str]
    extra_info: Texts


class Metric(Part):
    name: str
    benchmark_values: Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)]
    target_value: float = 0.0
    extra_info: Texts = {}


class Runner(Part):
    name: str
    cpu_info: str = ""
    gpu_info: str = ""
    gpu_count: int = 0
    extra_info: Texts


class Dependency(Part):
    repo: str
    version: str


class BenchmarkRecord(Part):
    benchmark: Benchmark
    model: Model
    metric: Metric
    runners: list[Runner]
    dependencies: dict[str, Dependency]


def test_records_hold_each_cells_metrics_with_the_bound_as_target(bench: Bench) -> None:
    gpu = {"backend": "cuda", "chip": "NVIDIA H200", "capability": "sm_90", "torch": "2.11.0", "triton": "3.6.0"}
    value = whole(
        cell(),
        cell(backend="cuda", bound=None, error=error(max_ulp=1e300)),
        not_run(kernel="exp"),
        environment={"cpu": whole()["environment"]["cpu"], "cuda": gpu},
    )
    text = "".join(oss_benchmark.lines([bench.write(value)]))
    found = [BenchmarkRecord.model_validate(one) for one in json.loads(text)]
    assert [(r.metric.name, r.metric.benchmark_values, r.metric.target_value) for r in found] == [
        ("max_scaled_ulp", [0.7712], 1.5),
        ("max_ulp", [1.015625], 0.0),
        ("misrounded_share", [0.1], 0.0),
        ("max_ulp", [oss_benchmark.LARGEST], 0.0),
        ("misrounded_share", [0.1], 0.0),
    ]
    first, huge = found[0], found[3]
    assert huge.metric.extra_info == {"value": "1e+300"}
    assert (first.benchmark.name, first.benchmark.dtype, first.model.name) == ("ulproof", "float32", "addcmul")
    assert first.model.backend == "inductor" and first.model.extra_info["scalars"] == "value=0.3"
    assert first.model.extra_info["formula"] == "fma(value, rn(b*c), a)"
    assert first.runners[0].cpu_info == "Some(R) CPU" and first.runners[0].extra_info["threads"] == "2"
    assert (huge.runners[0].gpu_info, huge.runners[0].gpu_count) == ("NVIDIA H200", 1)
    assert huge.dependencies["triton"] == Dependency(repo="triton-lang/triton", version="3.6.0")
    assert "triton" not in first.dependencies  # none there


def test_the_records_of_nothing_are_an_empty_list(bench: Bench) -> None:
    assert json.loads("".join(oss_benchmark.lines([bench.write(whole(not_run()))]))) == []
    two = whole(cell(), cell(kernel="tanh", scalars={}))
    assert bench.accept(two)[0] == 0
    out = bench.folder / "oss.json"
    assert bench.run("gate", bench.write(two), "--only", "tanh", "--oss-benchmark", str(out))[0] == 0
    assert "tanh" in out.read_text() and "addcmul" not in out.read_text()


# What is committed


@pytest.mark.parametrize(
    "names",
    [
        ("cpu.json.xz",),
        ("cpu-avx2.json",),
        ("cpu-default.json",),
        ("h200.json.xz", "h200-composites.json.xz"),
    ],
)
def test_recorded_reports_are_the_baseline_of_their_device(names: tuple[str, ...]) -> None:
    """After recording anew: `verify accept reports/recorded/NAME --baseline reports/baselines`."""
    outcome = gate([ROOT / "reports" / "recorded" / name for name in names], ROOT / "reports" / "baselines")
    assert outcome.exit_code == 0, [verdict.reason for verdict in outcome.failed[:3]]
    allowed = (
        status.ALLOWABLE if "h200.json.xz" in names else ()
    )  # rows of the H200, each with its reason in the ledger
    assert set(outcome.counts) <= {"passed", "deviates", *allowed}


def test_a_committed_baseline_is_small() -> None:
    files = list((ROOT / "reports" / "baselines").glob("*/*.json"))
    assert files and all(path.stat().st_size < 5_000_000 for path in files)


# docs/ci.md: its commands are run


def text_of_guide() -> str:
    return (ROOT / "docs" / "ci.md").read_text()


def steps() -> dict[str, str]:
    """The shell steps of the example workflow, by name: `run: |` blocks of its fenced YAML."""
    (workflow,) = re.findall(r"^```yaml\n(.*?)^```$", text_of_guide(), re.MULTILINE | re.DOTALL)
    found = {}
    for name, block in re.findall(r"- name: (.+)\n(?: {8}if: .*\n)? {8}run: \|\n((?: {10}.*\n)+)", workflow):
        found[name] = re.sub(r"^ {10}", "", block, flags=re.MULTILINE)
    assert len(found) == workflow.count("run: |")
    return found


def test_the_workflow_uses_no_expression_inside_a_shell_step() -> None:
    """An expression would be pasted into the script before it is parsed: the road to injection."""
    assert len(steps()) == 6
    assert not any("${{" in block for block in steps().values())


@pytest.mark.parametrize("name", steps())
def test_each_step_is_valid_bash(name: str) -> None:
    done = subprocess.run(["bash", "-n", "-c", steps()[name]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def documented() -> list[list[str]]:
    """Every `verify` command of the guide, as words, variables as they stand."""
    text = re.sub(r"\\\n\s*", " ", text_of_guide())
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("verify ")]
    lines = [re.split(r" \|\|? ", line)[0] for line in lines]
    return [[word for word in shlex.split(line) if word not in ("${patterns[@]}", "$OPTIONS")] for line in lines]


@pytest.mark.parametrize("words", documented(), ids=" ".join)
def test_each_command_of_the_guide_is_one_that_exists(words: list[str]) -> None:
    group = typer.main.get_command(commands.app)
    command = group.commands[words[1]]  # type: ignore[attr-defined]
    command.make_context(words[1], list(words[2:]))  # raises on an unknown option


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_the_workflow_runs_on_a_cpu(tmp_path: Path) -> None:
    """Measure, gate without and with a baseline, JUnit, and what accepting would change, as a runner does them."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, module in (("verify", "verify"), ("pytest", shlex.join(PYTEST))):
        script = bin_folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
        script.chmod(0o755)
    summary, work = tmp_path / "summary.md", tmp_path / "work"
    work.mkdir()
    environment = {
        **os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "BACKEND": "cpu", "KERNELS": "reciprocal", "OPTIONS": "--profile quick --lowering eager --dtype float16",
        "GITHUB_STEP_SUMMARY": str(summary), **QUIET,
    }  # fmt: skip

    def step(name: str) -> subprocess.CompletedProcess[str]:
        line = ["bash", "-e", "-c", steps()[name]]
        return subprocess.run(line, cwd=work, env=environment, capture_output=True, text=True, check=False)

    assert step("Chip and driver").returncode == 0
    done = step("Measure")
    assert done.returncode == 0, done.stderr
    (work / "reports" / "baselines").mkdir(parents=True)
    done = step("Gate")
    assert done.returncode == 3 and "nothing was compared" in done.stdout
    assert "no baseline for cpu" in summary.read_text()
    accepting = re.findall(
        r"^ {4}(verify accept report\.json --baseline reports/baselines)$", text_of_guide(), re.MULTILINE
    )
    done = subprocess.run(
        shlex.split(accepting[-1]), cwd=work, env=environment, capture_output=True, text=True, check=True
    )
    assert "new, " in done.stdout
    done = step("Gate")
    assert done.returncode == 0 and "0 failing" in done.stdout and "::error" not in done.stdout, done.stdout
    for name in ("gate.json", "gate.sarif", "benchmark.json"):
        json.loads((work / name).read_text())
    (path,) = (work / "reports" / "baselines").glob("*/quick.json")
    path.write_text(path.read_text().replace('"digest":"', '"digest":"f', 1))
    done = step("Gate")
    assert done.returncode == 1 and "::error title=changed%3A reciprocal eager" in done.stdout
    assert "other bits" in summary.read_text()
    done = step("JUnit")
    assert done.returncode == 0 and "1 failed" in done.stdout
    assert 'failures="1"' in (work / "junit.xml").read_text()
    done = step("What accepting would change")
    assert done.returncode == 0 and "other bits" in (work / "accepted.txt").read_text()
    assert (work / "accepted.patch").read_text().count("\n+{") == 1


def test_the_layout_in_the_guide_is_what_accept_writes(bench: Bench) -> None:
    value = whole()
    value["cells"][0] |= {"status": "exceeds-bound", "reason": "r"}
    bench.accept(value, "--allow", "*", "--reason", "r")
    assert sorted(path.name for path in (bench.root / SLUG).iterdir()) == ["budget.toml", "quick.json"]
    (example,) = re.findall(r"^ {4}\[\[allowance\]\]\n(?: {4}.*\n)+", text_of_guide(), re.MULTILINE)
    (bench.root / SLUG / "budget.toml").write_text(re.sub(r"^ {4}", "", example, flags=re.MULTILINE))
    assert bench.run("gate", bench.write(whole()))[0] == 0  # read, and of no use here
