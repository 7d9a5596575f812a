"""`verify history`: order, series, first bad reports, what is left out, and queries that see the reports alone."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import verify.reports
from sample_reports import cell, error, not_run, report
from verify.cli import commands
from verify.facts.kernel import UsageError
from verify.reports import history, store
from verify.reports.blocks import Line
from verify.reports.history_page import history_page
from verify.reports.schema import Report

pytest.importorskip("duckdb", reason="the optional extra `history`")

DAY = 86_400
BAD = {"status": "exceeds-bound", "reason": "r"}


def put(
    folder: Path, name: str, *cells: dict[str, Any], day: int | None = None, profile: str = "quick", **facts: Any
) -> Path:
    """A report of one CPU in `folder`, of the day so many days after 2025-01-01."""
    machine = {"backend": "cpu", "chip": "Xeon", "capability": "AVX2", "torch": "2.13.0", "triton": "3.6.0"} | facts
    environment: dict[str, Any] = {"cpu": machine}
    if day is not None:
        environment["created"] = 1_735_689_600 + day * DAY
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write(Report.model_validate(report(*cells, environment=environment, profile=profile)), path)
    return path


def told(folder: Path, **options: Any) -> history.History:
    return history.changes(history.read(folder), **options)


def steps(found: history.History) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(report before, report after, [(kernel, kind)])."""
    return [
        (step.before.file, step.after.file, [(row.place.kernel, row.kind) for row in step.changes])
        for step in found.steps
    ]


def test_a_change_is_told_with_the_versions_that_changed_and_the_first_bad_report(tmp_path: Path) -> None:
    put(tmp_path, "c.json", cell(), cell(kernel="pow"), day=0, torch="2.11.0", triton="3.6.0")
    put(tmp_path, "b.json", cell(), cell(kernel="pow", digest="d1"), day=1, torch="2.12.0")
    put(tmp_path, "a.json", cell(), cell(kernel="pow", digest="d2", **BAD), day=2, torch="2.13.0", triton="3.7.1")
    put(tmp_path, "d.json", cell(), cell(kernel="pow", digest="d2", **BAD), day=3, torch="2.14.0", triton="3.7.1")
    found = told(tmp_path)
    assert (found.reports, found.series) == (4, 2)
    assert steps(found) == [
        ("c.json", "b.json", [("pow", "other bits")]),
        ("b.json", "a.json", [("pow", "new failure")]),
    ]
    assert [step.environment for step in found.steps] == [
        (("torch", "2.11.0", "2.12.0"),),
        (("torch", "2.12.0", "2.13.0"), ("triton", "3.6.0", "3.7.1")),
    ]
    [failing] = found.failing
    assert failing.first_bad.file == "a.json" and failing.last_good is not None
    assert failing.last_good.file == "b.json" and failing.facts.place.kernel == "pow"
    text = "\n".join(block.text for block in history_page(found).blocks if isinstance(block, Line))
    assert "first bad a.json (2025-01-03, torch 2.13.0, triton 3.7.1)" in text
    assert "last good b.json (2025-01-02, torch 2.12.0, triton 3.6.0)" in text


def test_without_a_date_the_name_orders_and_comes_before_any_date(tmp_path: Path) -> None:
    put(tmp_path, "2.json", cell(digest="d2"))
    put(tmp_path, "1.json", cell(digest="d1"))
    put(tmp_path, "0.json", cell(digest="d0"), day=5)
    put(tmp_path, "sub/3.json", cell(digest="d3"), day=4)
    for odd in ("1", -1, True, 1.5, 1 << 70):
        put(tmp_path, "1.json", cell(digest="d1"))
        value = json.loads((tmp_path / "1.json").read_text())
        value["environment"]["created"] = odd
        (tmp_path / "1.json").write_text(json.dumps(value))
        assert [one.file for one in history.read(tmp_path).reports] == ["1.json", "2.json", "sub/3.json", "0.json"]


def test_a_failure_counts_from_the_last_good_report_on(tmp_path: Path) -> None:
    for day, bad in enumerate([True, False, True, True]):
        put(tmp_path, f"{day}.json", cell(**(BAD if bad else {})), day=day)
    [failing] = told(tmp_path).failing
    assert failing.first_bad.file == "2.json"
    put(tmp_path, "4.json", cell(), day=4)
    assert told(tmp_path).failing == ()
    assert [kinds for _, _, kinds in steps(told(tmp_path))] == [
        [("addcmul", "failure resolved")],
        [("addcmul", "new failure")],
        [("addcmul", "failure resolved")],
    ]


def test_never_good_is_said(tmp_path: Path) -> None:
    put(tmp_path, "0.json", cell(**BAD), day=0)
    put(tmp_path, "1.json", cell(**BAD), day=1)
    [failing] = told(tmp_path).failing
    assert failing.first_bad.file == "0.json" and failing.last_good is None
    texts = [block.text for block in history_page(told(tmp_path)).blocks if isinstance(block, Line)]
    assert any("never good in these reports" in text for text in texts)


@pytest.mark.parametrize(
    "other",
    [{"chip": "EPYC"}, {"capability": "DEFAULT"}, {"profile": "default"}],
)
def test_other_devices_and_profiles_are_other_series(other: dict[str, Any], tmp_path: Path) -> None:
    put(tmp_path, "0.json", cell(), day=0)
    put(tmp_path, "1.json", cell(digest="d1"), day=1, **other)
    put(tmp_path, "2.json", cell(digest="d2"), day=2)
    assert steps(told(tmp_path)) == [("0.json", "2.json", [("addcmul", "other bits")])]


def test_what_did_not_run_between_is_skipped_and_other_inputs_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "0.json", cell(), day=0)
    put(tmp_path, "1.json", not_run(backend="cpu"), day=1)
    put(tmp_path, "2.json", cell(digest="d2"), day=2)
    put(tmp_path, "3.json", cell(digest="d3", domain={**cell()["domain"], "digest": "ffff"}), day=3)
    crashed = {**not_run(backend="cpu", domain={"kind": "none", "size": 0, "seed": 0, "digest": ""}), "status": "error"}
    put(tmp_path, "4.json", crashed, day=4)
    found = told(tmp_path)
    assert steps(found) == [
        ("0.json", "2.json", [("addcmul", "other bits")]),
        ("2.json", "3.json", [("addcmul", "not compared")]),
        ("3.json", "4.json", [("addcmul", "new failure")]),
    ]
    assert [one.first_bad.file for one in found.failing] == ["4.json"]


def test_an_error_in_another_metric_than_the_bounds_is_no_change(tmp_path: Path) -> None:
    put(tmp_path, "0.json", cell(), day=0)
    put(tmp_path, "1.json", cell(error=error(max_ulp=9.0)), day=1)
    assert told(tmp_path).steps == ()


# Against a history that is followed by hand

states = st.sampled_from(["absent", "not-run", "good", "good", "bits", "bad", "worse"])


def cell_of(state: str, kernel: str) -> Iterator[dict[str, Any]]:
    match state:
        case "absent":
            return
        case "not-run":
            yield not_run(kernel=kernel, backend="cpu")
        case "good" | "bits":
            yield cell(kernel=kernel, digest="ab12" if state == "good" else "d1")
        case "bad":
            yield cell(kernel=kernel, digest="d2", **BAD)
        case "worse":
            yield cell(kernel=kernel, digest="d2", error=error(max_scaled_ulp=9.0), **BAD)


@settings(max_examples=25)
@given(
    days=st.lists(st.tuples(states, states, st.sampled_from(["Xeon", "EPYC"])), min_size=1, max_size=7),
    random=st.randoms(),
)
def test_changes_and_first_bad_reports_are_those_followed_by_hand(
    days: Any, random: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("h")
    names = [f"{number}.json" for number in range(len(days))]
    random.shuffle(names)  # the date orders, not the name
    last: dict[tuple[str, str], tuple[str, str]] = {}
    bad: dict[tuple[str, str], str] = {}
    changed: list[tuple[str, str, str]] = []
    for day, (name, (first, second, chip)) in enumerate(zip(names, days, strict=True)):
        put(folder, name, *cell_of(first, "a"), *cell_of(second, "b"), day=day, chip=chip)
        for kernel, state in (("a", first), ("b", second)):
            if state in ("absent", "not-run"):
                continue
            key = (chip, kernel)
            if key in last and last[key][1] != state:
                changed.append((last[key][0], name, kernel))
            if state in ("bad", "worse"):
                bad.setdefault(key, name)
            else:
                bad.pop(key, None)
            last[key] = (name, state)
    found = told(folder)
    assert sorted(changed) == sorted(
        (step.before.file, step.after.file, row.place.kernel) for step in found.steps for row in step.changes
    )
    assert bad == {(one.device.chip, one.facts.place.kernel): one.first_bad.file for one in found.failing}


# Selecting


def test_kernels_by_pattern_and_devices_by_part_of_their_name(tmp_path: Path) -> None:
    for day, digest in enumerate(["d0", "d1"]):
        put(tmp_path, f"x{day}.json", cell(digest=digest), cell(kernel="pow", digest=digest), day=day)
        put(tmp_path, f"e{day}.json", cell(digest=digest), day=day, chip="AMD EPYC")
    assert len(steps(told(tmp_path))) == 2
    assert steps(told(tmp_path, kernels=("p*",))) == [("x0.json", "x1.json", [("pow", "other bits")])]
    assert [step.device.chip for step in told(tmp_path, devices=("epyc",)).steps] == ["AMD EPYC"]
    assert [step.device.chip for step in told(tmp_path, devices=("EPYC", "xeon")).steps] == ["AMD EPYC", "Xeon"]
    with pytest.raises(UsageError, match="unknown kernel in these reports 'powr'; did you mean pow"):
        told(tmp_path, kernels=("powr",))
    with pytest.raises(UsageError, match=r"unknown device in these reports 'H100'.*cpu AMD EPYC AVX2"):
        told(tmp_path, devices=("H100",))


# What is read


def test_files_that_are_no_reports_are_named_and_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "0.json", cell(), day=0)
    put(tmp_path, "1.json", cell(digest="d1"), day=1)
    (tmp_path / "cut.json").write_text('{"schema": 1')
    (tmp_path / "new.JSON").write_text('{"schema": 3}')
    (tmp_path / "notes.txt").write_text("no report, not looked at")
    put(tmp_path, "big.json", cell(inputs=1 << 63, error=error(correct=(1 << 63) - 100)), day=2)
    os.mkfifo(tmp_path / "pipe.json")  # to read it would not end
    code = commands.main(["history", str(tmp_path)])
    out, err = capsys.readouterr()
    assert code == 0 and "1 change in 1 cell" in " ".join(out.split())
    lines = err.splitlines()
    assert len(lines) == 4 and all(line.startswith("verify: skipped: ") for line in lines)
    assert "pipe.json': it is no file" in err
    assert "cut.json' is not a complete JSON" in err and "schema 3; this version reads" in err
    assert "'big.json' holds a count above 9223372036854775807 in 'inputs'" in err


def test_an_output_is_none_of_the_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "0.json", cell(), day=0)
    put(tmp_path, "1.json", cell(digest="d1"), day=1)
    before = (tmp_path / "1.json").read_bytes()
    assert commands.main(["history", str(tmp_path), "--json", str(tmp_path / "1.json")]) == 2
    assert "is read, and the output would replace it" in capsys.readouterr().err
    assert (tmp_path / "1.json").read_bytes() == before


def test_packed_reports_are_read_as_others_are(tmp_path: Path) -> None:
    put(tmp_path, "0.json", cell(), day=0)
    put(tmp_path, "1.json.xz", cell(**BAD), day=1)
    assert steps(told(tmp_path)) == [("0.json", "1.json.xz", [("addcmul", "new failure")])]


def test_the_recorded_reports_are_read_whole() -> None:
    """Among them steps between float64 numbers, of up to 2^64."""
    folder = Path(next(iter(verify.reports.__path__))) / "recorded"
    archive = history.read(folder)
    assert {"cpu.json.xz", "h200.json.xz"} <= {one.file for one in archive.reports}
    for one in archive.reports:
        cells = store.read(folder / one.file).cells
        sql = f"SELECT count(*), max(max_int_ulp), sum(misrounded) FROM cells WHERE report = '{one.file}'"
        [(count, steps_, misrounded)] = history.query(archive, sql)[1]
        errors = [cell_.error for cell_ in cells if cell_.error]
        assert count == len(cells) and misrounded == sum(error_.misrounded for error_ in errors)
        assert steps_ == max(error_.max_int_ulp for error_ in errors)


def test_links_out_of_the_folder_are_refused_and_links_inside_count_once(tmp_path: Path) -> None:
    folder, outside = tmp_path / "in", tmp_path / "in-not"
    put(folder, "sub/0.json", cell(), day=0)
    secret = put(outside, "1.json", cell(digest="d1"), day=1)
    (folder / "latest.json").symlink_to(folder / "sub" / "0.json")
    (folder / "out.json").symlink_to(secret)
    (folder / "far.json").symlink_to(Path("..") / "in-not" / "1.json")
    (folder / "loop.json").symlink_to(folder / "loop.json")
    (folder / "more").symlink_to(outside, target_is_directory=True)
    archive = history.read(folder)
    assert [one.file for one in archive.reports] == ["latest.json"]
    assert sum("leads out of the folder" in why for why in archive.skipped) == 2
    assert any("loop.json" in why for why in archive.skipped)
    assert history.read(tmp_path).facts  # a folder that is itself reached otherwise is a folder


def test_what_cannot_be_read_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.json").write_text("{")
    (tmp_path / "bad" / "y.json").write_text("")
    put(tmp_path / "one", "a.json", cell(), day=0)
    for folder, code, message in (
        ("none", 2, "is not a folder"),
        ("bad", 2, "no file in .*bad' can be read: .*x.json.* \\(and 1 more\\)"),
        ("empty", 3, "no \\*.json or \\*.json.xz file"),
        ("one", 3, "no cell ran in two reports.* these are of cpu.*Xeon.*, profile quick, seed 0$"),
    ):
        assert commands.main(["history", str(tmp_path / folder)]) == code
        err = capsys.readouterr().err
        assert re.search(message, err) and err.count("\n") == 1, err


def test_without_duckdb_the_extra_is_named(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    put(tmp_path, "0.json", cell())
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert commands.main(["history", str(tmp_path)]) == 2
    assert (
        capsys.readouterr().err
        == "verify: verify history needs DuckDB; install it with: pip install 'ulproof[history]'\n"
    )


# Queries


@pytest.fixture
def archive(tmp_path: Path) -> history.Archive:
    put(tmp_path, "0.json", cell(), not_run(kernel="pow", backend="cpu"), day=0)
    put(tmp_path, "1.json", cell(digest="d1", bound=None, formula=None), day=1)
    return history.read(tmp_path)


def test_the_view_is_what_its_page_says(archive: history.Archive) -> None:
    names, found = history.query(archive, "DESCRIBE cells")
    columns = {row[0]: row[1] for row in found}
    page = (Path(__file__).resolve().parent.parent / "docs" / "history.md").read_text()
    written = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert written == columns
    for sql in re.findall(r"--sql \"(.+?)\"", page, re.DOTALL):
        history.query(archive, sql)
    assert names[:2] == ["column_name", "column_type"]


def test_values_and_nulls_of_the_view(archive: history.Archive) -> None:
    sql = """SELECT report, run, created, kernel, status, failed, error, metric, bound, share, max_ulp, max_int_ulp,
             formula, digest, torch, device, scalars, inputs FROM cells ORDER BY run, kernel"""
    names, found = history.query(archive, sql)
    first, absent, second = (dict(zip(names, row, strict=True)) for row in found)
    assert (first["report"], first["run"], str(first["created"])) == ("0.json", 1, "2025-01-01 00:00:00")
    assert (first["error"], first["metric"], first["bound"], first["share"]) == (
        0.7712,
        "scaled_ulp",
        1.5,
        0.7712 / 1.5,
    )
    assert (first["formula"], first["device"]) == ("fma(value, rn(b*c), a)", "cpu Xeon AVX2")
    assert (second["error"], second["metric"], second["bound"], second["share"]) == (1.015625, "ulp", None, None)
    assert (second["formula"], second["digest"], second["max_int_ulp"]) == (None, "d1", 1)
    assert (absent["status"], absent["failed"], absent["error"], absent["metric"]) == ("not-run", False, None, None)


FORBIDDEN = [
    "SELECT * FROM '/etc/hostname'",
    "SELECT * FROM read_csv('/etc/hostname')",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM archive",  # a variable of Python
    "SELECT * FROM sys",
    "COPY cells TO '/tmp/ulproof-stolen.csv'",
    "COPY (SELECT 1) TO '/tmp/ulproof-stolen.csv'",
    "EXPORT DATABASE '/tmp/ulproof-stolen'",
    "ATTACH '/tmp/ulproof-stolen.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "PRAGMA database_list",
    "CREATE TABLE t (a INT)",
    "DROP VIEW cells",
    "DELETE FROM measured",
    "UPDATE measured SET kernel = 'x'",
    "INSERT INTO measured SELECT * FROM measured",
    "WITH x AS (INSERT INTO measured SELECT * FROM measured) SELECT 1",
    "SELECT 1; DROP VIEW cells",
    "SELECT 1; SELECT 2",
    "BEGIN",
    "",
    "-- nothing",
    "SELECT",
    "SELECT nothing FROM cells",
    "SELECT 1 / 'x' FROM cells",
    "SELECT * FROM range(1000000)",
]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_a_query_reads_the_reports_and_nothing_else(sql: str, archive: history.Archive) -> None:
    before = history.query(archive, "SELECT count(*) FROM cells")
    with pytest.raises(UsageError, match=r"^--sql") as caught:
        history.query(archive, sql)
    assert "\n" not in str(caught.value)
    assert history.query(archive, "SELECT count(*) FROM cells") == before
    assert not list(Path("/tmp").glob("ulproof-stolen*"))


def test_settings_cannot_be_opened_again(archive: history.Archive) -> None:
    names = ("enable_external_access", "lock_configuration", "python_enable_replacements")
    sql = f"SELECT name, value FROM duckdb_settings() WHERE name IN {names}"
    assert dict(history.query(archive, sql)[1]) == {
        "enable_external_access": "false",
        "lock_configuration": "true",
        "python_enable_replacements": "false",
    }


def test_an_answer_as_table_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "0.json", cell(kernel="\x1b[31m|<b>"), day=0)
    sql = "SELECT kernel, created, error, error / 0 AS endless, NULL AS nothing FROM cells"
    assert (
        commands.main(["history", str(tmp_path), "--sql", sql, "--json", "-", "--markdown", str(tmp_path / "q.md")])
        == 0
    )
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "columns": ["kernel", "created", "error", "endless", "nothing"],
        "rows": [["\x1b[31m|<b>", "2025-01-01 00:00:00", 0.7712, "inf", None]],
    }
    assert "\x1b" not in err and "\\x1b[31m|<b>" in err
    assert "<b>" not in (tmp_path / "q.md").read_text()
    assert commands.main(["history", str(tmp_path), "--sql", sql, "--kernel", "x"]) == 2
    assert "--sql makes its own selection" in capsys.readouterr().err


def test_an_answer_is_printed_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """One of a single column was not printed, and of one that is split rows without values were left out."""
    put(tmp_path, "0.json", *(cell(dtype=dtype) for dtype in ("float16", "bfloat16", "float32")), day=0)
    assert commands.main(["history", str(tmp_path), "--sql", "SELECT 1234 + count(*) AS many FROM cells"]) == 0
    assert "1237" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "50")
    whether = ", ".join(f"CASE WHEN dtype = 'float32' THEN 'x' END AS {name * 30}" for name in "ab")
    assert commands.main(["history", str(tmp_path), "--sql", f"SELECT dtype, {whether} FROM cells"]) == 0
    words = capsys.readouterr().out.split()
    assert [words.count(dtype) for dtype in ("float16", "bfloat16", "float32")] == [1, 1, 2]


# The command


def test_the_command_prints_and_writes_the_same_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;t\x07<i>"
    put(tmp_path, "0.json", cell(kernel=hostile), day=0, torch=hostile)
    put(tmp_path, "1.json", cell(kernel=hostile, **BAD), day=1, torch="2.14")
    assert commands.main(["history", str(tmp_path), "--markdown", "-", "--json", str(tmp_path / "h.out")]) == 0
    out, err = capsys.readouterr()
    assert "<i>" not in out and "\x1b" not in out + err and "new failure" in out and "new failure" in err
    found = json.loads((tmp_path / "h.out").read_text())
    assert [one["created"] for one in found["reports"]] == [1_735_689_600, 1_735_689_600 + DAY]
    [step] = found["steps"]
    assert step["environment"] == {"torch": [hostile, "2.14"]}
    assert [one["kind"] for one in step["cells"]] == ["new failure"]
    [failing] = found["failing"]
    assert (failing["first_bad"], failing["last_good"], failing["kernel"]) == ("1.json", "0.json", hostile)


def test_every_kind_of_change_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    larger = {"error": error(max_scaled_ulp=3.0)}
    variants = [{}, {"digest": "d1"}, {"formula": None}, larger, larger | BAD]
    for day, change in enumerate(itertools.chain(variants, reversed(variants))):
        put(tmp_path, f"{day}.json", cell(**change), day=day)
    assert commands.main(["history", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for kind in ("other bits: 1", "larger maximum: 1", "new failure: 1", "failure resolved: 1", "smaller maximum: 1"):
        assert kind in out
