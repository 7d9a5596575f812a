"""The command line: exit codes, one line for each mistake, what goes to which stream, what is never imported."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import lzma
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import verify.walk.explain
import verify.walk.run
from sample_reports import cell, error, not_run, report
from verify import __main__, __version__, native
from verify.cli import commands, conduct, output
from verify.facts.kernel import NothingToCompare, UsageError
from verify.inputs import domains
from verify.jobs import journal
from verify.lower.lowering import NotLowered
from verify.lower.pytorch import first_call
from verify.reports import store
from verify.walk import run as walks
from verify.walk.cells import fill
from verify.walk.plan import Selection
from verify.walk.run import Broken

Fake = Callable[..., dict[str, Any]]


def invoke(*arguments: str) -> int:
    return commands.main(list(arguments))


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fake | dict[str, Any]], list[Any]]:
    """Put a function, or a report, in place of the walk; the selections it is given are collected."""

    def install(fake: Fake | dict[str, Any]) -> list[Any]:
        selections: list[Any] = []

        def run(selection: Any, on_cell: Any, progress: Any, **_: Any) -> dict[str, Any]:
            selections.append(selection)
            return fake if isinstance(fake, dict) else fake(on_cell=on_cell, progress=progress)

        monkeypatch.setattr(verify.walk.run, "run", run)
        return selections

    return install


# Mistakes


def is_one_line(text: str) -> bool:
    return text.startswith("verify: ") and text.count("\n") == 1 and text.endswith("\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("kernl", "kernel"),
        ("kernel", "NAME"),
        ("nosuch", "No such command 'nosuch'; see `verify --help`"),
        ("show --nosuch", "No such option: --nosuch; see `verify show --help`"),
        ("gate r.json", "Missing option '--baseline'; see `verify gate --help`"),
        ("kernel addcmull", "unknown kernel 'addcmull'; did you mean addcmul"),
        ("kernel addcmul sqrrt", "unknown kernel 'sqrrt'; did you mean .*sqrt"),
        ("kernel addcmul --bakend x", "--backend"),
        ("kernel addcmul --backend", "--backend"),
        ("kernel addcmul --backend cudda", "unknown backend 'cudda'; did you mean cuda"),
        ("kernel addcmul --dtype float23", "unknown dtype 'float23'; did you mean .*float32"),
        ("kernel addcmul --lowering inductr", "unknown lowering 'inductr'; did you mean inductor"),
        ("kernel addcmul --lowering 'nothing*'", "'nothing\\*'"),
        ("kernel addcmul --lowering none.py:f", "none.py does not exist"),
        ("kernel addcmul --lowering nowhere/none.py:f --journal j", "none.py does not exist"),
        ("kernel addcmul --lowering none.py", "FILE.py:FUNCTION"),
        ("kernel addcmul --spelling in-plce", "unknown spelling 'in-plce'; did you mean in-place"),
        ("kernel addcmul --profile quik", "unknown profile 'quik'; did you mean quick"),
        ("kernel addcmul --seed x", "--seed"),
        ("kernel addcmul --scalar value", "expected NAME=VALUE"),
        ("kernel addcmul --scalar value=nan", "finite"),
        ("kernel addcmul --scalar value=0x", "finite"),
        ("kernel addcmul --json none/r.json", "cannot write to 'none/r.json': there is no folder 'none'"),
        ("kernel addcmul --json .", "is a directory"),
        ("run --out none/r.json", "cannot write to 'none/r.json'"),
        ("run addcmul", "addcmul"),
        ("show", "NAME"),
        ("show addcmull", "did you mean addcmul"),
        ("list --all", "--all"),
        ("explain addcmul", "--input"),
        ("explain addcmull --input 1,2,3", "did you mean addcmul"),
        ("explain addcmul", "expected --input HEX,HEX,HEX"),
        ("explain exp --index 3", "--index is for composite kernels, and exp is an elementwise one"),
        ("explain sum --index 0 --spelling rows --spelling columns", "an element lies in one"),
        ("kernel exp --timeout 5", "--timeout is for a lowering of your own"),
        ("kernel exp --lowering mine.py:f --timeout 1e8", r"--timeout 1e\+08; expected a number above 0, 1,000,000 at"),
        ("kernel exp --lowering mine.py:f --memory 1e10", r"--memory 1e\+10; expected a number above 0, 1,000,000,000"),
        ("explain addcmul --input 1,2,3 --dtype float23", "unknown dtype"),
        ("explain addcmul --input 1,2,3 --json none/r.json", "cannot write to 'none/r.json'"),
        ("explain addcmul --input 1,,3", "''"),
        ("kernel \x1b[31maddcmul", r"\\x1b\[31maddcmul"),
        ("kernel 'add\ncmul'", "unknown kernel"),
        ("kernel exp --lowering mine.py:f --algorithm tree:float32", "the bound of exp has no order"),
        ("kernel sum cummax --lowering mine.py:f --algorithm tree:float32", "the bound of cummax has no order"),
        ("kernel sum --algorithm tree:float32", "expected --lowering FILE.py:FUNCTION"),
        ("kernel sum --lowering mine.py:f --algorithm tree", "--algorithm 'tree' names no accumulator"),
        ("kernel sum --lowering mine.py:f --algorithm bush:float32", "unknown order 'bush'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = [tmp_path / "mine.py"] if "--algorithm" in arguments else []
    for path in there:
        path.write_text("def f(x):\n    return x\n")
    assert invoke(*shlex.split(arguments)) == 2
    out, err = capsys.readouterr()
    assert is_one_line(err), err
    assert re.search(message, err), err
    assert out == ""
    assert list(tmp_path.iterdir()) == there


def test_no_command_shows_help_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Commands:" in err


def test_help_names_the_exit_codes_and_version_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke("--help") == 0
    shown = capsys.readouterr().out.replace("\n", " ")
    for words in (
        "0 passed; 1 a bound failed; 2 bad usage or input; 3 nothing",
        "kernel",
        "run",
        "list",
        "show",
        "explain",
    ):
        assert words in shown
    assert invoke("--version") == 0
    assert capsys.readouterr().out == f"verify (ulproof) {__version__}\n"


# The walk's results

VIOLATION = cell(lowering="a", status="oracle-violation")
EXCEEDS = cell(lowering="b", status="exceeds-bound")
CRASHED = {**not_run(lowering="c", reason="compiler crashed"), "status": "error"}
OWN_CRASHED = {**not_run(lowering="mine.py:f", reason="raised ZeroDivisionError"), "status": "error"}
UNDECIDED = cell(lowering="d", status="error", reason="undecided", error=error(correct=899, undecided=1))
PASSED = cell(lowering="e")
ABSENT = not_run(lowering="f", backend="cuda")
OPEN = cell(lowering="g", status="unbounded", reason="no bound is declared", reason_kind="no-bound", bound=None)


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ([PASSED], 0),
        ([PASSED, ABSENT], 0),
        ([PASSED, cell(lowering="g", reason="known deviation: it flushes")], 0),
        ([PASSED, OPEN], 1),
        ([PASSED, {**OPEN, "allowance": "no-bound"}], 0),
        ([PASSED, {**OPEN, "allowance": "no-bound", "lowering": "mine.py:f"}], 1),  # none is for a user's own
        ([PASSED, {**EXCEEDS, "allowance": "no-bound"}], 1),
        ([PASSED, EXCEEDS, ABSENT], 1),
        ([PASSED, CRASHED], 1),
        ([CRASHED], 1),
        ([PASSED, UNDECIDED], 1),
        ([PASSED, cell(lowering="g", status="suspect", reason="r")], 1),
        ([PASSED, cell(lowering="g", status="unjudged", reason="r")], 1),
        ([PASSED, cell(lowering="g", status="unsteady", reason="r")], 1),
        ([PASSED, OWN_CRASHED], 2),
        ([EXCEEDS, OWN_CRASHED, ABSENT], 2),
        ([ABSENT], 3),
        ([], 3),
        ([VIOLATION], 4),
        ([PASSED, EXCEEDS, OWN_CRASHED, VIOLATION, ABSENT], 4),
    ],
)
@pytest.mark.parametrize("command", ["kernel addcmul", "run --out r.json"])
def test_exit_codes_and_their_precedence(
    command: str,
    cells: list[dict[str, Any]],
    code: int,
    running: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    running(report(*cells))
    assert invoke(*command.split()) == code


def test_nothing_compared_says_why(running: Any, capsys: pytest.CaptureFixture[str]) -> None:
    running(report(ABSENT))
    assert invoke("kernel", "addcmul") == 3
    out, err = capsys.readouterr()
    assert err == "verify: nothing was compared: cuda: torch finds no CUDA device\n"
    assert out == ""


def test_a_backend_that_is_not_present_is_exit_3(running: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def absent(**_: Any) -> dict[str, Any]:
        raise NothingToCompare("backend cuda: torch finds no CUDA device")

    running(absent)
    assert invoke("run", "--out", "-") == 3
    assert capsys.readouterr() == ("", "verify: backend cuda: torch finds no CUDA device\n")


def test_a_users_lowering_that_misbehaves_is_named_beside_the_others(
    running: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = {**OWN_CRASHED, "dtype": "float16"}
    running(report(PASSED, OWN_CRASHED, twice))
    assert invoke("kernel", "addcmul") == 2
    out, err = capsys.readouterr()
    assert err == "verify: mine.py:f: raised ZeroDivisionError\n"
    assert "1 of 3 cells passed, 2 failed" in out


def test_json_on_standard_output_is_json_only(running: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("kernel addcmul --json -", "run --out -", "run --json -"):
        running(report(PASSED))
        assert invoke(*command.split()) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["cells"][0]["kernel"] == "addcmul"
        assert store.parse(out, "stdout").profile == "quick"
        assert "51.5%" in err


def test_a_run_says_that_a_function_is_judged_as_every_kernel(
    running: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One named `exp` was compared with the arc tangent, the softmax and others, to no warning."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def exp(x):\n    return x.exp()\n")
    running(report(PASSED))
    assert invoke("run", "--lowering", "mine.py:exp") == 0
    assert "mine.py:exp is judged as every kernel that its signature fits" in capsys.readouterr().err


def test_run_writes_its_report_where_it_says(
    running: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    running(report(PASSED))
    for arguments, name in (
        ([], "report.json"),
        (["--backend", "cpu"], "report-cpu.json"),
        (["--out", "mine.json"], "mine.json"),
    ):
        assert invoke("run", *arguments) == 0
        assert f"report: {name}\n" in capsys.readouterr().err
        assert store.read(name).cells[0].lowering == "e"


def test_the_recorded_command_gives_the_same_selection(running: Any, tmp_path: Path) -> None:
    selections = running(report(PASSED))
    path = tmp_path / "r.json"
    mine = tmp_path / "my file.py"
    mine.write_text("def f(*inputs):\n    return inputs[0]\n")
    assert (
        invoke(
            *["kernel", "lerp", "addcmul", "lerp", "--dtype", "float16", "--dtype", "float32", "--backend", "cpu"],
            *["--lowering", "inductor*", "--lowering", f"{mine}:f", "--spelling", "out-of-place"],
            *["--scalar", "value=0x1.8p-1", "--profile", "quick", "--seed", "-3", "--json", str(path)],
        )
        == 0
    )
    first = selections.pop()
    assert first.kernels == ("lerp", "addcmul")
    assert first.user_lowerings == (f"{mine}:f",)
    assert first.lowerings == ("inductor*",)
    assert dict(first.scalars) == {"value": 0.75}
    assert (first.profile, first.seed) == ("quick", -3)
    assert invoke(*shlex.split(store.read(path).command)[1:]) == 0
    assert selections.pop() == first


def test_an_output_that_cannot_be_written_stops_before_the_walk(running: Any, tmp_path: Path) -> None:
    selections = running(report(PASSED))
    assert invoke("run", "--out", str(tmp_path / "none" / "r.json")) == 2
    assert selections == []


def test_a_cell_that_breaks_the_schema_stops_the_walk(running: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def walk(on_cell: Any, progress: Any) -> dict[str, Any]:
        on_cell(cell(inputs=999))
        raise AssertionError("the walk went on")

    running(walk)
    assert invoke("kernel", "addcmul") == 4
    told = capsys.readouterr().err
    assert "expected inputs = 999" in told and "the walk went on" not in told


# Stopping


def test_any_command_that_is_interrupted_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "list_page", interrupted)
    assert invoke("list") == 130
    assert capsys.readouterr().err == "verify: interrupted\n"


def test_ctrl_c_keeps_the_complete_cells(running: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    running(report(PASSED, EXCEEDS, interrupted=True))
    assert invoke("run", "--out", str(path)) == 130
    kept = store.read(path)
    assert kept.interrupted
    assert [c.lowering for c in kept.cells] == ["e", "b"]
    assert capsys.readouterr().err == f"verify: interrupted; 2 complete cells are kept in {path}; go on with --resume\n"
    running(report(PASSED, interrupted=True))
    assert invoke("kernel", "addcmul", "--json", "-") == 130
    assert json.loads(capsys.readouterr().out)["interrupted"] is True


def test_a_termination_keeps_the_complete_cells(
    running: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "r.json"

    def walk(on_cell: Any, progress: Any) -> dict[str, Any]:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
            raise AssertionError("the walk went on")
        return report(PASSED, EXCEEDS, interrupted=True)

    before = signal.getsignal(signal.SIGTERM)
    running(walk)
    assert invoke("run", "--out", str(path)) == 143
    assert [c.lowering for c in store.read(path).cells] == ["e", "b"]
    assert capsys.readouterr().err == f"verify: terminated; 2 complete cells are kept in {path}; go on with --resume\n"
    assert signal.getsignal(signal.SIGTERM) is before

    def early(**_: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the walk went on")

    running(early)
    assert invoke("run", "--out", str(tmp_path / "none.json")) == 143
    assert capsys.readouterr().err == "verify: terminated before a cell was complete; nothing was written\n"


@pytest.mark.parametrize("numbers", [(signal.SIGINT,) * 2, (signal.SIGTERM,) * 3, (signal.SIGINT, signal.SIGTERM)])
@pytest.mark.parametrize("insisted", [False, True])
def test_a_second_signal_at_once_loses_no_cell(
    numbers: tuple[signal.Signals, ...], insisted: bool, running: Any, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    """`timeout` sends one to the process and to its group; seen to lose 2,380 finished jobs of a report. Another one
    some seconds later ends it."""
    path = tmp_path / "r.json"

    def walk(**_: Any) -> dict[str, Any]:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), numbers[0])
            time.sleep(10)
            raise AssertionError("the walk went on")
        for number in numbers[1:]:
            os.kill(os.getpid(), number)
        time.sleep(0.01)
        return report(PASSED, EXCEEDS, interrupted=True)

    monkeypatch.setattr(conduct, "INSISTED", 0.0 if insisted else 5.0)
    running(walk)
    code = invoke("run", "--out", str(path))
    assert code in (130, 143)
    if insisted:
        assert "before a cell was complete; nothing was written" in capsys.readouterr().err and not path.exists()
    else:
        assert [c.lowering for c in store.read(path).cells] == ["e", "b"]
        assert "2 complete cells are kept" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_no_cell_is_complete_the_journal_is_named(tmp_path: Path) -> None:
    """Of a run whose finished jobs are parts, or were being put together."""
    stop = conduct._Stop()
    with journal.opened(tmp_path / "j", {"source": {}}, resume=False) as kept:
        assert conduct._nothing(stop, kept) == "interrupted before a cell was complete; nothing was written"
        kept.add(0, "one", [])
        told = conduct._nothing(stop, kept)
    assert told.endswith(f"but 1 finished job is kept in {tmp_path / 'j'}; go on with --resume")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_report_that_is_being_written_is_written(
    number: signal.Signals, running: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, write = tmp_path / "r.json", store.write

    def interrupted(*given: Any) -> None:
        signal.raise_signal(number)
        write(*given)

    def handle(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "write", interrupted)
    running(report(PASSED, EXCEEDS))
    before = signal.signal(number, handle)
    try:
        assert invoke("run", "--out", str(path)) == 130
    finally:
        signal.signal(number, before)
    assert [c.lowering for c in store.read(path).cells] == ["e", "b"]
    assert not path.with_name("r.json.journal").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_real_run_that_is_terminated(tmp_path: Path) -> None:
    """By `kill` from outside, in the middle of a user's lowering."""
    (tmp_path / "mine.py").write_text(
        "import os, pathlib, time\n"
        "def quick(x):\n    return 1 / x\n"
        "def slow(x):\n"
        "    pathlib.Path(os.environ['HERE']).write_text(str(os.getpid()))\n"
        "    time.sleep(120)\n"
    )
    out, here = tmp_path / "r.json", tmp_path / "pid"
    words = ["kernel", "reciprocal", "--backend", "cpu", "--dtype", "float16", "--profile", "quick", "--json", str(out)]
    words += ["--lowering", f"{tmp_path}/mine.py:quick", "--lowering", f"{tmp_path}/mine.py:slow"]
    with subprocess.Popen(
        [sys.executable, "-m", "verify", *words], env=os.environ | {"HERE": str(here)}, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True,
    ) as run:  # fmt: skip
        deadline = time.monotonic() + 120
        while not here.exists() and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        run.terminate()
        _, told = run.communicate(timeout=60)
    assert run.returncode == 143
    kept = [cell.lowering for cell in store.read(out).cells]
    assert kept in (["mine.py:quick"], ["mine.py:quick", "eager"])  # eager's is done while slow's process starts
    count = "1 complete cell is" if len(kept) == 1 else "2 complete cells are"
    assert told.splitlines()[-1] == f"verify: terminated; {count} kept in {out}; go on with --resume"


@pytest.mark.parametrize("how", ["raised", "reported"])
def test_ctrl_c_before_the_first_cell_leaves_an_old_report_alone(
    how: str, running: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")

    def stopped(**_: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    running(stopped if how == "raised" else report(interrupted=True))
    assert invoke("run", "--out", str(path)) == 130
    assert path.read_text() == "old"
    assert is_one_line(capsys.readouterr().err)


def test_an_internal_error_keeps_the_complete_cells(
    running: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "r.json"

    def broken(**_: Any) -> dict[str, Any]:
        raise Broken("lerp mine cpu float16", report(PASSED, EXCEEDS, interrupted=True)) from ZeroDivisionError("why")

    running(broken)
    assert invoke("run", "--out", str(path)) == 4, "which no kernel's failure has"
    assert store.read(path).interrupted and len(store.read(path).cells) == 2
    first, *lines, last = capsys.readouterr().err.splitlines()
    assert first == f"verify: an internal error at lerp mine cpu float16; 2 complete cells are kept in {path}"
    assert "ZeroDivisionError: why" in lines and last.endswith("please report the lines above")


def test_a_module_of_this_project_that_is_missing_is_its_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*given: Any) -> Any:
        raise ModuleNotFoundError("No module named 'verify.nowhere'", name="verify.nowhere")

    monkeypatch.setattr(commands, "list_page", broken)
    monkeypatch.setattr(sys, "argv", ["verify", "list"])
    assert __main__.main() == 4
    assert "Traceback" in (told := capsys.readouterr().err) and told.endswith("please report the lines above\n")


def test_an_internal_error_is_told_apart_from_a_users(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = fill
    selection = Selection(("sqrt",), ("cpu",), ("float16", "bfloat16"), ("eager",), profile="quick")

    def fails(problem: Exception) -> Any:
        def fill(job: Any, case: Any, selection: Any) -> Any:
            if job.target.dtype == "bfloat16":
                raise problem
            return filled(job, case, selection)

        return fill

    monkeypatch.setattr(walks, "fill", fails(ZeroDivisionError("why")))
    with pytest.raises(Broken, match="internal error at sqrt bfloat16 eager") as found:
        walks.run(selection)
    assert found.value.report["interrupted"]
    assert {c["dtype"] for c in found.value.report["cells"]} == {"float16"}
    monkeypatch.setattr(walks, "fill", fails(UsageError("yours")))
    with pytest.raises(UsageError, match="yours"):
        walks.run(selection)


def test_a_mistake_found_during_the_walk_leaves_an_old_report_alone(
    running: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")

    def refuse(**_: Any) -> dict[str, Any]:
        raise UsageError("mine.py:f returns float64;\nexpected float32")

    running(refuse)
    assert invoke("run", "--out", str(path)) == 2
    assert capsys.readouterr() == ("", "verify: mine.py:f returns float64; expected float32\n")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("command", [["--version"], ["list"], ["report", "REPORT", "--markdown", "-"]])
def test_a_reader_that_has_gone_is_no_traceback(command: list[str]) -> None:
    recorded = str(Path(__file__).resolve().parent.parent / "reports" / "recorded" / "cpu-avx2.json")
    command = [recorded if word == "REPORT" else word for word in command]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "verify", *command],
            stdout=pipe,
            stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            text=True,
            check=False,
        )
    assert (done.stderr, done.returncode) == (
        "",
        141,
    )  # as of a command that SIGPIPE ends; 1 would say that a bound failed


# A lowering of one's own, through the real walk

MISBEHAVING = {
    "raises": "def f(x):\n    return 1 // 0",
    "arity": "def f(x, y):\n    return x",
    "missing": "def g(x):\n    return x",
    "syntax": "def f(x:\n    return x",
    "import": "import nowhere_to_be_found\ndef f(x):\n    return x",
    "exits": "raise SystemExit(0)",
    "shape": "def f(x):\n    return x[:-1]",
    "dtype": "def f(x):\n    return x.double()",
    "device": "def f(x):\n    return x.to('meta')",
    "number": "def f(x):\n    return 1.0",
    "in place": "def f(x):\n    return x.reciprocal_()",
    "uninitialised": "import torch\ndef f(x):\n    return torch.empty_like(x)",
}
ONE_CASE = ["kernel", "reciprocal", "--dtype", "float16", "--profile", "quick", "--backend", "cpu"]


@pytest.mark.parametrize("how", MISBEHAVING)
def test_a_lowering_of_ones_own_that_misbehaves_is_one_line_and_exit_2(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(MISBEHAVING[how] + "\n")
    # beside a lowering that does not run on a CPU, for speed
    assert invoke(*ONE_CASE, "--lowering", "triton", "--lowering", f"{mine}:f") == 2
    err = capsys.readouterr().err
    assert is_one_line(err), err
    assert "mine.py" in err


def test_a_lowering_of_ones_own_that_answers_by_chance_is_judged_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no bad input: its results are, and there are several."""
    mine = tmp_path / "mine.py"
    mine.write_text("import torch\ndef f(x):\n    return torch.rand_like(x)\n")
    assert invoke(*ONE_CASE, "--lowering", "triton", "--lowering", f"{mine}:f") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "exceeds-bound: reciprocal mine.py:f" in out and "in normal: " in out
    assert "unsteady: reciprocal mine.py:f" in out and "8 different results in 8 launches" in out
    assert "0 of 4 cells passed, 4 failed, 1 not run" in out  # the plain call and three layouts


def test_a_lowering_of_ones_own_is_judged_beside_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, path = tmp_path / "mine.py", tmp_path / "r.json"
    mine.write_text("def f(x):\n    return (1.0 / x.double()).to(x.dtype)\n\ndef off(x):\n    return f(x) * 1.01\n")
    assert invoke(*ONE_CASE, "--lowering", "eager", "--lowering", f"{mine}:f", "--json", str(path)) == 0
    cells = store.read(path).cells
    assert {cell.lowering: cell.status for cell in cells} == {"eager": "passed", "mine.py:f": "passed"}
    assert all(cell.inputs == 1 << 16 for cell in cells if cell.spelling == "out-of-place")
    assert [cell.spelling for cell in cells if cell.lowering != "eager"] == [
        "out-of-place",
        "strided",
        "tail",
        "size-one",
    ]
    assert "5 of 5 cells passed; undecided 0 of" in " ".join(capsys.readouterr().out.split())
    assert invoke(*ONE_CASE, "--lowering", "eager", "--lowering", f"{mine}:off") == 1
    assert re.search(r"exceeds-bound: +reciprocal mine\.py:off", capsys.readouterr().out)


# Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "terminal", "shown"), [(1.3, True, True), (0.0, True, False), (1.3, False, False)])
def test_progress_shows_after_a_second_on_a_terminal_only(
    seconds: float, terminal: bool, shown: bool, running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walk(on_cell: Any, progress: Any) -> dict[str, Any]:
        progress(3, 7, "addcmul [bold]inductor[/bold]")
        time.sleep(seconds)
        return report(PASSED)

    running(walk)
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert invoke("kernel", "addcmul") == 0
    assert ("[bold]inductor[/bold]" in stream.getvalue()) == shown
    assert ("3/7" in stream.getvalue()) == shown


# Reading the registry


@pytest.mark.parametrize("command", ["list", "show addcmul", "show pow", "show lerp --stub", "--help", "--version"])
def test_reading_the_registry_imports_nothing_heavy(command: str) -> None:
    script = (
        "import sys; from verify.cli.commands import main; code = main(sys.argv[1:]); "
        "print(sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script, *command.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    modules = set(json.loads(done.stderr.splitlines()[-1].replace("'", '"')))
    assert not modules & {"torch", "triton", "numpy", "mpmath", "hypothesis", "sympy"}


def test_show_states_every_bound_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    from verify.facts.kernel import elementwise_names, load

    for name in elementwise_names():
        assert invoke("show", name) == 0
        shown = "".join(capsys.readouterr().out.split())
        kernel = load(name)
        for formula in kernel.oracle.formulas:
            assert "".join(formula.text.split()) in shown
        for row in kernel.oracle.rows:
            assert "".join(row.source.split()) in shown
        for spelling in kernel.spellings:
            assert "".join(spelling.split()) in shown
        assert f"show{name}--bounds" in shown and invoke("show", name, "--bounds") == 0
        listed = "".join(capsys.readouterr().out.split())
        for bound in kernel.bounds:
            assert f"{bound.value:.6g}" in listed and "".join(bound.source.split()) in listed


def test_show_refuses_bounds_that_no_table_has(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, told in ((("softmax", "--bounds"), "softmax has no table"), (("exp", "--stub", "--bounds"), "one")):
        assert invoke("show", *arguments) == 2
        assert told in capsys.readouterr().err


def test_show_states_the_settings_and_outputs_of_composite_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    from verify.facts.kernel import Composite, load, names

    for name in names():
        kernel = load(name)
        if isinstance(kernel, Composite):
            assert invoke("show", name) == 0
            shown = "".join(capsys.readouterr().out.split())
            told = (*kernel.spellings, *kernel.outputs, *kernel.parameters, *kernel.lowerings)
            assert all("".join(text.split()) in shown for text in told)


def test_list_has_a_row_for_every_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    from verify.facts.kernel import names

    assert invoke("list") == 0
    first = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert set(names()) <= set(first)


# Unfinished kernels

UNFINISHED = """
from verify.facts.bounds import correctly_rounded, vendor
from verify.inputs.domains import Stratum
from verify.facts.kernel import Kernel
from verify.kernels.exp import KERNEL as EXP
from verify.oracles.unfinished import ORACLE

KERNEL = dataclasses.replace(EXP, name="unfinished", oracle=ORACLE, triton=None)
""".replace("\n", "\nimport dataclasses\n", 1)
ORACLE = """
from verify.facts.oracle import Oracle

def unfinished(n, x):
    return n.exp(x)

ORACLE = Oracle(unfinished)
"""


@pytest.fixture
def unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Add a kernel to the registry for one test: the text of its file, and that of its oracle."""
    import verify.kernels
    import verify.oracles

    def write(facts: str = UNFINISHED, oracle: str | None = ORACLE) -> None:
        for package, text in ((verify.kernels, facts), (verify.oracles, oracle)):
            folder = tmp_path / package.__name__.rpartition(".")[2]
            folder.mkdir()
            if text is not None:
                (folder / "unfinished.py").write_text(text)
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])

    yield write
    for name in ("verify.kernels.unfinished", "verify.oracles.unfinished"):
        sys.modules.pop(name, None)
        package, _, module = name.rpartition(".")
        vars(sys.modules[package]).pop(module, None)


@pytest.mark.parametrize(
    ("facts", "oracle", "message"),
    [
        (UNFINISHED, None, "oracles/unfinished.py is missing, which kernels/unfinished.py imports"),
        (UNFINISHED + "KERNEL = (", ORACLE, "kernels/unfinished.py, line 10: SyntaxError: '(' was never closed"),
        (UNFINISHED, ORACLE + "(", "oracles/unfinished.py, line 8: SyntaxError: '(' was never closed"),
        (UNFINISHED, "", ("kernels/unfinished.py, line 7: ImportError: cannot import name 'ORACLE' from "
         "'verify.oracles.unfinished'")),
        (UNFINISHED + "vendor('NVIDIA', 'kosh', 'libdevice')", ORACLE, ("kernels/unfinished.py, line 10: "
         "kernels/vendor_bounds.toml has no figure for NVIDIA kosh float32; add it with its source")),
        (UNFINISHED + "KERNEL.bound", ORACLE, None),
        (UNFINISHED + "KERNEL.bounds['x']", ORACLE, ("kernels/unfinished.py, line 10: TypeError: tuple indices must be "
         "integers or slices, not str")),
        ("", ORACLE, "kernels/unfinished.py defines no KERNEL; expected KERNEL = Kernel(...), see CONTRIBUTING.md"),
        ("from verify.kernels.exp import KERNEL", ORACLE, ("kernels/unfinished.py names its kernel 'exp'; expected "
         "'unfinished', the file's name")),
    ],
)  # fmt: skip
def test_an_unfinished_file_stops_its_kernel_alone(
    facts: str, oracle: str | None, message: str | None, unfinished: Callable[..., None],
    running: Any, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from verify.facts.kernel import names

    unfinished(facts, oracle)
    line = "" if message is None else f"verify: {message}\n"
    assert invoke("list") == (2 if message else 0)
    captured = capsys.readouterr()
    assert captured.err == line and "softmax" in captured.out
    assert invoke("show", "exp") == 0 and capsys.readouterr().err == ""
    assert invoke("show", "unfinished") == (2 if message else 0) and capsys.readouterr().err == line
    selections = running(report(cell()))
    assert invoke("run", "--json", os.devnull) == (2 if message else 0)
    assert line in capsys.readouterr().err
    assert selections[0].kernels == tuple(one for one in names() if one != "unfinished" or not message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("n.kosh(x)", "number systems have no function 'kosh': add an entry to verify/numbers/functions.py"),
        ("n.exp(xx)", "oracles/unfinished.py, line 5: NameError: name 'xx' is not defined"),
    ],
)
def test_an_unfinished_oracle_fails_its_cells_alone(
    body: str, message: str, unfinished: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished(oracle=ORACLE.replace("n.exp(x)", body))
    options = ("--dtype", "float32", "--backend", "cpu", "--lowering", "eager")
    out = tmp_path / "report.json"
    code = invoke("kernel", "unfinished", "exp", *options, "--profile", "quick", "--jobs", "1", "--json", str(out))
    cells = {one["kernel"]: one for one in json.loads(out.read_text())["cells"]}
    assert code == 4 and cells["exp"]["status"] == "passed"
    assert (cells["unfinished"]["status"], cells["unfinished"]["reason"]) == ("oracle-violation", message)
    capsys.readouterr()
    assert invoke("explain", "unfinished", *options, "--input=0x1p+0") == 4
    assert capsys.readouterr().err == f"verify: {message}\n"


# Explaining

TOLD = {
    "kernel": "addcmul",
    "dtype": "float32",
    "backend": "cpu",
    "scalars": {"value": 0.5},
    "inputs": {"a": "-0x1p+0", "b": "0x1.8p+0", "c": "inf"},
    "exact": "0.33333333333333333333",
    "rounded": "0x1.555556p-2",
    "special": "",
    "lowerings": [
        {
            "lowering": "eager",
            "spelling": "in-place",
            "output": "0x1.555554p-2",
            "ulp": 0.6666,
            "scaled_ulp": 0.4321,
            "error_class": "faithful",
            "reason": "",
            "region": "intermediate",
            "may_be": "within 7.5 scaled_ulp",
            "source": "three roundings",
            "share": 0.0625,
            "status": "passed",
            "why": "",
            "ledger": {},
        },
        {
            "lowering": "triton",
            "spelling": "in-place",
            "output": "",
            "ulp": None,
            "scaled_ulp": None,
            "error_class": "",
            "region": "",
            "may_be": "",
            "source": "",
            "share": None,
            "status": "",
            "why": "",
            "ledger": {},
            "reason": "no GPU",
        },
    ],
    "formulas": [
        {
            "text": "a + rn(b*c)",
            "output": "0x1.555554p-2",
            "matches": ["eager"],
            "steps": [{"expression": "rn(b*c)", "value": "0x1.8p+0"}],
        }
    ],
}


def test_explain_passes_the_element_on_and_prints_every_fact(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def explain(*positional: Any, **named: Any) -> dict[str, Any]:
        asked.append((positional, named))
        return TOLD

    monkeypatch.setattr(verify.walk.explain, "explain", explain)
    line = "explain addcmul --input=-0x1p+0,0x1.8p+0,inf --lowering eager --spelling in-place --scalar value=0.5"
    assert invoke(*line.split()) == 0
    assert asked == [
        (
            ("addcmul", ["-0x1p+0", "0x1.8p+0", "inf"]),
            {
                "dtype": "float32",
                "scalars": {"value": 0.5},
                "lowerings": ("eager",),
                "spellings": ("in-place",),
                "backend": None,
            },
        )
    ]
    out, err = capsys.readouterr()
    assert err == ""
    for fact in (
        "a=-0x1p+0",
        "0.33333333333333333333",
        "0x1.555556p-2",
        "0x1.555554p-2",
        "0.6666",
        "faithful",
        "region: intermediate",
        "within 7.5 scaled_ulp",
        "no GPU",
    ):
        assert fact in out
    assert "a + rn(b*c) = 0x1.555554p-2  (eager)" in out
    assert "rn(b*c) = 0x1.8p+0" in out
    assert invoke(*line.split(), "--json", "-") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == TOLD
    assert "0x1.555556p-2" in err


@pytest.mark.parametrize(("words", "code", "told"), [
    (("kernel", "exp", "--dtype", "int8"), 3, "no selected kernel has dtype int8: exp has float16, bfloat16"),
    (("explain", "exp", "--dtype", "int8", "--input=0x1p+0"), 2, "exp is not there for int8; expected --dtype"),
    (("explain", "int_mm", "--index", "0"), 2, "int_mm is not there for float32; expected --dtype int8"),
])  # fmt: skip
def test_a_dtype_that_a_kernel_lacks(
    words: tuple[str, ...], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    assert invoke(*words) == code
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "kernel sqrt --lowering mine.py:f --json mine.py",
        "kernel sqrt --lowering mine.py:f --json helper.py",
        "kernel sqrt --lowering mine.py:f --journal mine.py",
        "kernel sqrt --lowering mine.py:f --journal a.json",
        "kernel sqrt --lowering eager --json out --journal a.json",
        "kernel sqrt --lowering eager --json out --journal a.json --resume",
        "gate a.json --baseline B --sarif ./a.json",
        "gate a.json --baseline B --json B/cpu/quick.json",
        "gate a.json --baseline B --markdown B/cpu/budget.toml",
        "gate a.json --baseline B --json out --sarif out",
        "compare a.json link.json --json a.json",
        "compare a.json link.json --markdown link.json",
        "compare a.json b.json --exchange a.json",
        "report a.json --markdown a.json",
        "report a.json --html out --baseline B --markdown B/cpu/quick.json",
        "audit exp --baseline a.json --json a.json",
        "explain sqrt --input 1 --lowering mine.py:f --json mine.py",
        "kernel sum --invariance --lowering mine.py:f --json mine.py",
    ],
)
def test_no_output_replaces_what_is_read(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import helper\n\n\ndef f(x):\n    return x\n")
    (tmp_path / "helper.py").touch()
    (tmp_path / "B" / "cpu").mkdir(parents=True)
    for name in ("a.json", "b.json", "B/cpu/quick.json", "B/cpu/budget.toml"):
        (tmp_path / name).write_text('{"schema": 2}')
    (tmp_path / "link.json").symlink_to(tmp_path / "b.json")
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert invoke(*line.split()) == 2
    problem = capsys.readouterr().err
    assert is_one_line(problem)
    assert re.search("is read, and the output would|two outputs are 'out'|is no journal", problem), problem
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_outputs_that_are_no_files_may_be_one(tmp_path: Path) -> None:
    output.ensure_writable(os.devnull, os.devnull, "-", str(tmp_path / "a"), reading=[os.devnull, tmp_path / "b"])


def test_a_kernel_of_which_nothing_is_selected_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside others it would be missed by nobody, and the baseline of their report would not have it."""
    monkeypatch.setitem(domains.SIZES, "quick", 8)
    line = ["--backend", "cpu", "--profile", "quick", "--lowering", "eager"]
    assert invoke("kernel", "sqrt", "sum", "exp", *line, "--dtype", "float16", "--spelling", "in-place") == 3
    out, problem = capsys.readouterr()
    assert "sum: nothing was compared: no kernel, dtype, lowering and spelling agree" in problem
    assert "sqrt: errors" in out and "exp: errors" in out and "sum: errors" not in out
    assert invoke("kernel", "int_mm", "sqrt", *line, "--dtype", "float16") == 3
    assert "int_mm: nothing was compared: no selected kernel has dtype float16: int_mm has" in capsys.readouterr().err
    own = tmp_path / "own.py"
    own.write_text("import torch\n\ndef wrong(x):\n    return torch.sqrt(x) * 2\n")
    beside = ["--lowering", f"{own}:wrong", "--spelling", "out-of-place"]
    assert invoke("kernel", "int_mm", "sqrt", *line, *beside, "--dtype", "float16") == 1  # of two codes that one


def test_an_option_given_twice_counts_once(tmp_path: Path) -> None:
    twice = ["--dtype", "float16", "--backend", "cpu"] * 2
    out = tmp_path / "r.json"
    assert invoke("kernel", "sqrt", *twice, "--profile", "quick", "--lowering", "eager", "--json", str(out)) == 0
    assert store.read(out).cells


def command(words: str, folder: Path, before: str = "", **given: Any) -> subprocess.CompletedProcess[str]:
    line = f"{before} {shlex.quote(sys.executable)} -m verify {words}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, **given
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_an_output_that_takes_nothing_is_told_in_one_line(tmp_path: Path) -> None:
    done = command("list > /dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (2, "verify: standard output: No space left on device\n")
    assert (command("list >&-", tmp_path).returncode, command("kernel nosuch 2>&-", tmp_path).returncode) == (0, 2)


def test_standard_output_takes_all_or_the_command_fails(tmp_path: Path) -> None:
    """Unbuffered, as CI often has it, what a short write leaves out was lost, and the exit code was 0."""
    report = tmp_path / "r.json"
    assert invoke("kernel", "sqrt", "--dtype", "float16", "--profile", "quick", "--json", str(report)) == 0
    unbuffered, written = "PYTHONUNBUFFERED=1", tmp_path / "page.html"
    assert command("report r.json --html - > page.html", tmp_path, unbuffered).returncode == 0
    assert written.read_text().rstrip().endswith("</html>")
    done = command("report r.json --html - > page.html", tmp_path, f"ulimit -f 20; {unbuffered}")
    assert done.returncode == 2 and "File too large" in done.stderr and written.stat().st_size == 20 * 1024
    done = command("report r.json --html - | head -c 10", tmp_path, f"set -o pipefail; {unbuffered}")
    assert done.returncode == 141
    done = command("report r.json --markdown - >&-", tmp_path)
    assert done.returncode == 2 and "cannot write to '-': standard output is closed" in done.stderr


ENDING = """
import atexit, sys
from verify import __main__

class Kept:
    def __del__(self):
        print("put away")

kept = Kept()
sys.argv = ["verify", *sys.argv[1:]]
try:
    __main__.process()
finally:
    atexit.register(print, "after")
"""


@pytest.mark.parametrize(("words", "code"), [("--version", 0), ("kernel nosuch", 2)])
def test_a_command_ends_without_putting_modules_away(tmp_path: Path, words: str, code: int) -> None:
    line = [sys.executable, "-c", ENDING, *words.split()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1] == "after" and "put away" not in done.stdout


@pytest.mark.parametrize(("words", "told"), [
    ("explain sum --spelling foo --dtype float32 --index 3", "unknown spelling of sum in float32 'foo'"),
    ("kernel exp --lowering /tmp:exp", "a function of your own is FILE.py:FUNCTION"),
    ("kernel exp --lowering mine:exp", "a function of your own is FILE.py:FUNCTION, such as mine.py:exp"),
    ("kernel exp --lowering folder.py:f", "folder.py is a directory; expected a Python file"),
    ("kernel exp --lowering pipe.py:f", "pipe.py is no regular file; expected a Python file"),
    ("kernel pow --scalar y=2 --scalar y=3", "--scalar gives y twice"),
    ("kernel sum --set shape=3x4 --set shape=4x3", "--set gives shape twice"),
])  # fmt: skip
def test_mistakes_that_were_tracebacks_or_silent(tmp_path: Path, words: str, told: str) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "mine.py").touch()
    os.mkfifo(tmp_path / "pipe.py")
    done = command(words, tmp_path)
    assert done.returncode == 2 and told in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("seconds", [0.3, 0.6])
def test_an_interrupt_while_torch_is_imported_is_one_line(tmp_path: Path, seconds: float) -> None:
    """numpy, half imported, ended in a RecursionError."""
    words = [sys.executable, "-m", "verify", "kernel", "exp", "--profile", "quick", "--backend", "cpu"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as one:
        time.sleep(seconds)
        one.send_signal(signal.SIGINT)
        _, told = one.communicate(timeout=60)
    starting = "/verify/" not in told and not told.startswith("verify")  # the interpreter, on a busy machine
    # where the signal met an exec of a text, as dataclasses have it, Python ends by the signal: 130 too for a shell
    ended = one.returncode in (130, -signal.SIGINT)
    assert starting or (ended and told.startswith("verify: interrupted")), told


INTERRUPTED_WHERE_NOTHING_IS_RAISED = """
import signal, sys, time, weakref
from verify.processes import start
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may ignore it
{hook}

class Module: ...

module = Module()
freed = weakref.ref(module, lambda _: signal.raise_signal(signal.SIGINT))
try:
    del module
    time.sleep({seconds})
except KeyboardInterrupt:
    raise SystemExit(130)
"""


@pytest.mark.parametrize(("hook", "code"), [("", 0), ("sys.unraisablehook = start.raised_again", 130)])
def test_an_interrupt_in_a_callback_is_not_lost(hook: str, code: int) -> None:
    """Python ignores what a callback raises; importlib has one for each module."""
    program = INTERRUPTED_WHERE_NOTHING_IS_RAISED.format(hook=hook, seconds=30 if code else 0.1)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == code and ("Exception ignored" in done.stderr) == (code == 0), done.stderr


def test_a_run_with_fewer_cases_than_shards_is_merged(tmp_path: Path) -> None:
    words = "kernel reciprocal --profile quick --dtype bfloat16 --lowering eager --spelling out-of-place --json"
    for k in (1, 2):
        assert command(f"{words} s{k}.json --shard {k}/2", tmp_path).returncode == 0
    done = command("merge s1.json s2.json --json m.json", tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(store.read(tmp_path / "m.json").cells) == 1
    twice = command("merge s1.json m.json --json n.json", tmp_path)
    assert twice.returncode == 2 and "1 cell is in two reports, the first reciprocal eager" in twice.stderr


def test_a_journal_that_is_replaced_is_told(tmp_path: Path) -> None:
    words = "kernel reciprocal --profile quick --dtype bfloat16 --lowering eager --journal j.jsonl --json"
    (tmp_path / "j.jsonl").write_text('{"journal": 3}\n{"job": 0}\n{"job": 1}\n')
    done = command(f"{words} r.json", tmp_path)
    assert done.returncode == 0 and "j.jsonl holds 2 finished jobs of an earlier run" in done.stderr, done.stderr


@pytest.mark.parametrize(("words", "told"), [
    (["--json", "r.json", "--journal", "./r.json"], "--journal and --json are both 'r.json'; expected two files"),
    (["--scalar", "w=1"], "exp takes no --scalar: all that it computes with are tensors"),
])  # fmt: skip
def test_options_that_contradict_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.main(["kernel", "exp", *words]) == 2
    assert told in capsys.readouterr().err and not [*tmp_path.iterdir()]


def test_a_shard_without_jobs_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--backend", "cpu", "--dtype", "float16", "--lowering", "eager", "--spelling", "out-of-place"]
    assert commands.main(["kernel", "exp", *words, "--profile", "quick", "--shard", "9/9"]) == 0
    assert "shard 9/9 has no jobs: the run has 1" in capfd.readouterr().err


@pytest.mark.parametrize(("pack", "told"), [
    (gzip.compress, "is compressed by gzip"), (lzma.compress, "is compressed by xz"),
])  # fmt: skip
def test_a_report_in_another_wrapping_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: Callable[[bytes], bytes], told: str
) -> None:
    (tmp_path / "r.json").write_bytes(pack(b"{}"))
    assert commands.main(["report", str(tmp_path / "r.json"), "--markdown", "-"]) == 2
    assert told in capsys.readouterr().err


def test_what_is_compiled_has_a_place_where_there_is_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no folder can be made there
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = native.cache()
    assert found.parent == tmp_path and found.stat().st_mode & 0o777 == 0o700
    found.chmod(0o777)  # others could write there what is executed here
    with pytest.raises(native.Unsupported, match="can be written to"):
        native.cache()


def test_a_full_machine_is_no_refusal_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import TorchDynamoException

    full, refused = TorchDynamoException("as\n: No space left on device"), TorchDynamoException("no such operation")
    for failure, expected in ((full, TorchDynamoException), (refused, NotLowered)):
        with pytest.raises(expected), first_call():
            raise failure


def test_a_file_whose_name_is_no_text_is_judged(tmp_path: Path) -> None:
    own = tmp_path / os.fsdecode(b"m\xff.py")
    own.write_text("import torch\n\ndef f(x):\n    return torch.exp(x)\n")
    words = ["kernel", "exp", "--dtype", "float16", "--profile", "quick", "--lowering", f"{own}:f"]
    assert commands.main([*words, "--spelling", "out-of-place"]) == 0
