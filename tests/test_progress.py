"""How long the rest takes, and what a long command shows."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verify.cli.commands import main
from verify.walk import progress, run
from verify.walk.called import Called
from verify.walk.progress import Done, TimeLeft, shown, spoken

ADD, POW, NONE = (("add eager", "eager"), 1.0), (("pow eager", "eager"), 1.0), ((), 1.0)
SCAN = ("scan inductor", "inductor"), 1.0


def test_jobs_take_what_others_of_their_kind_took() -> None:
    left = TimeLeft([ADD, SCAN, NONE, ADD, SCAN, POW, ADD], 100.0)
    assert left.seconds(100.0) is None
    left.ends(0, 2.0, 102.0)  # add: 2 s, and all that is known
    assert left.seconds(102.0) == 2.0 + 2.0 + 2.0 + 2.0 + 2.0
    left.ends(1, 20.0, 122.0)  # a scan: 20 s
    assert left.seconds(122.0) == 2.0 + 20.0 + 2.0 + 2.0  # pow is like add: eager
    assert left.seconds(123.5) == 0.5 + 20.0 + 2.0 + 2.0
    left.ends(3, 4.0, 126.0)  # the second add took 4 s
    assert left.seconds(126.0) == 20.0 + 3.0 + 3.0
    left.ends(4, 10.0, 136.0)
    left.ends(5, 1.0, 137.0)  # pow: 1 s
    assert left.seconds(137.0) == 3.0
    left.ends(6, 3.0, 140.0)
    left.ends(9, 1.0, 141.0)  # one of which nothing is known
    assert left.seconds(141.0) == 0.0


def test_jobs_that_are_done_at_a_time() -> None:
    left = TimeLeft([ADD] * 8, 0.0)
    for number, now in ((2, 4.0), (0, 4.0), (1, 4.0), (5, 8.0)):
        left.ends(number, 4.0, now)
    assert left.seconds(8.0) == 4 * 4.0 / 2.0  # 16 s of work in 8 s
    assert left.seconds(9.0) == 7.0


def test_jobs_take_as_much_of_their_estimates_as_others_did() -> None:
    """The longest are begun first, and say nothing of how long the shortest take."""
    left = TimeLeft([(("add",), 100.0), (("add",), 1.0), (("pow",), 10.0)], 0.0)
    left.ends(0, 50.0, 50.0)
    assert left.seconds(50.0) == 0.5 + 5.0


def test_each_process_does_a_job() -> None:
    """Though the first one that has ended is one of eight that were begun."""
    left = TimeLeft([ADD] * 17, 0.0)
    left.ends(0, 4.0, 8.0, processes=8)
    assert left.seconds(8.0) == 16 * 4.0 / 8


def test_a_job_that_does_not_run_says_nothing_of_others() -> None:
    left = TimeLeft([NONE, ADD, ADD], 0.0)
    assert left.seconds(0.001) is None
    left.ends(1, 5.0, 5.001)
    assert left.seconds(5.001) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (250, "4 min 10 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_spoken(seconds: float, text: str) -> None:
    assert spoken(seconds) == text


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds

    return wait


def test_without_a_terminal_a_line_every_ten_seconds(
    clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with shown(lambda: [ADD] * 40) as told:
        told(0, 40, "next: add 0")
        for done in range(1, 40):
            clock(3.0)
            told(done, 40, f"next: add {done}", Done(done - 1, 3.0, 6000))
        told(40, 40, "")
    lines = stream.getvalue().splitlines()
    assert lines[0] == (
        "verify: 4 of 40 jobs are done (10%); 2e+03 inputs a second; about 1 min 48 s left; next: add 4"
    )
    assert [int(line.split()[1]) for line in lines] == list(range(4, 40, 4))


def test_a_short_run_asks_for_no_plan_and_prints_nothing(
    clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with shown(lambda: pytest.fail("asked")) as told:
        for done in range(3):
            told(done, 3, "add")
            clock(0.3)
    assert not stream.getvalue()


def test_without_a_plan_no_time_is_told(clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with shown() as told:
        for done, _ in zip(itertools.count(), range(5), strict=False):
            told(done, 5, "next: chunk")
            clock(6.0)
    assert stream.getvalue().splitlines()[0] == "verify: 2 of 5 jobs are done (40%); next: chunk"


def test_the_time_left_is_worked_out_only_where_it_is_shown(
    clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes through all jobs that are left, so that asked for after each it takes the square of their number."""
    asked: list[float] = []
    monkeypatch.setattr(TimeLeft, "seconds", lambda self, now: asked.append(now))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with shown(lambda: [ADD] * 100) as told:
        for done in range(100):
            told(done, 100, "add", Done(done, 1.0, 1))
            clock(1.0)
    assert 5 <= len(asked) <= 10


def test_a_terminal_shows_what_each_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "ANEW", 0.0)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    with shown(lambda: [ADD] * 4) as told:
        told(1, 4, "last: add 0", Done(0, 1.0, 1000, 0, "add 0"))
        time.sleep(0.2)
        assert "process 0" not in stream.getvalue()  # there is one
        told(2, 4, "last: pow 1", Done(1, 1.0, 1000, 1, "pow 1"))
        time.sleep(0.4)
    shown_there = stream.getvalue()
    assert "process 0:" in shown_there and "inputs a second; last: add 0" in shown_there
    assert "process 1:" in shown_there and "inputs a second; last: pow 1" in shown_there


def test_a_run_tells_what_failed_and_a_resumed_one_what_is_done_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def f(a, b, alpha=1):\n    return a + b\n")
    given = [
        "kernel",
        "add",
        "--lowering",
        f"{path}:f",
        "--dtype",
        "float32",
        "--profile",
        "quick",
        "--jobs",
        "1",
        "--spelling",
        "out-of-place",
    ]
    seen: list[tuple[int, str]] = []

    def told(done: int, total: int, label: str, ended: Done | None = None) -> None:
        seen.append((done, label))

    monkeypatch.setattr("verify.cli.conduct.shown", lambda plan=None: contextlib.nullcontext(told))
    monkeypatch.setattr("verify.walk.walk.call_all", lambda *given, **named: Called())
    journal = tmp_path / "j"
    assert main([*given, "--journal", str(journal)]) == 1
    own = (
        "verify: mine.py:f: 1 of 3 cells passed, 2 failed; the registered lowerings beside it are still being judged\n"
    )
    assert own in capsys.readouterr().err  # the verdict that was asked for comes first
    whole = seen[-1][0]
    wrong = re.compile(r"1 exceeds-bound; worst: [1-9].* of its bound, add float32 .*f out-of-place; last: add")
    assert any(wrong.match(label) for _, label in seen), seen
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    seen.clear()
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:3]))
    assert main([*given, "--journal", str(journal), "--resume"]) == 1
    assert seen[0][0] == 2 and seen[-1][0] == whole, seen


def test_what_an_overflowing_intermediate_does_to_a_passing_cell_is_not_the_worst() -> None:
    def cell(name: str, status: str, **shares: float | None) -> dict[str, Any]:
        regions = {region: {"error": {"max_share": share}} for region, share in shares.items()}
        return {"kernel": name, "dtype": "float64", "lowering": "eager", "spelling": "out-of-place", "status": status,
                "regions": regions}  # fmt: skip

    passing = cell("addcdiv", "passed", normal=0.9, intermediate=9e15, special=None)
    assert run._worst([passing, cell("add", "deviates", normal=40.0)]) == (
        False, 0.9, "addcdiv float64 eager out-of-place"
    )  # fmt: skip
    assert run._worst([cell("add", "exceeds-bound", normal=1.5), passing])[:2] == (True, 1.5)
