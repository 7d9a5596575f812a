"""Runs as jobs: in worker processes, interrupted and gone on with, in shards."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from numbered import doubling, nothing, signing, sleeping, telling
from sample_reports import cell, cell_of, region, report, report_of
from verify import backends
from verify.backends import cuda, rocm
from verify.cli import commands
from verify.cli.conduct import exit_code, how_of
from verify.facts.kernel import UsageError
from verify.jobs import journal
from verify.jobs.pool import Ended, Spent, ended
from verify.judge import ledger
from verify.judge.ledger import Allowance
from verify.lower import user
from verify.processes import standby
from verify.reports import store
from verify.reports.schema import Report, Timing
from verify.walk import pointwise, run
from verify.walk.cells import fill
from verify.walk.merge import merged
from verify.walk.plan import Selection, Task, by_case, jobs_of, planned
from verify.workers import launch

SMALL = Selection(
    ("reciprocal", "rms_norm"), ("cpu",), ("float16",), ("eager",), ("out-of-place", "length-2", "length-33"), "quick"
)


def bare(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cells without what another run need not repeat."""
    return [{name: value for name, value in cell.items() if name != "timing"} for cell in cells]


@functools.cache
def serial() -> list[dict[str, Any]]:
    return bare(run.run(SMALL)["cells"])


# ---------------------------------------------------------------- worker processes


def test_a_worker_that_dies_takes_one_job_with_it() -> None:
    places = [{}, {}]
    found = {one.number: one for one in ended(functools.partial(doubling, (1,)), [[0, 1, 2, 8, 9], [7, 6]], places)}
    assert sorted(found) == [0, 1, 2, 6, 7, 8, 9]
    # which of the two has the longer list is chance
    assert replace(found[1], process=0) == Ended(1, died="the process that ran it was killed by SIGSEGV")
    assert isinstance(found[7].value, ValueError) and "in do" in found[7].value.__notes__[0]
    assert {n: found[n].value[0] for n in (0, 2, 6, 8, 9)} == {0: 0, 2: 4, 6: 12, 8: 8, 9: 18}
    assert found[0].value[1] != found[2].value[1] == found[8].value[1] != found[9].value[1]
    assert os.getpid() not in {found[n].value[1] for n in (0, 2, 6, 8, 9)}


def here(number: int) -> tuple[int, int]:
    if number == 5:
        raise ValueError("here")
    time.sleep(0.05)
    return 2 * number, os.getpid()


@pytest.mark.parametrize("places", [[], [{}], [{}, {}]])
def test_this_process_does_jobs_beside_others(places: list[dict[str, str]]) -> None:
    """A second job waits with each process meanwhile, and is done by another where the first is its end."""
    groups = [[0, 1, 2, 3], [4, 5], [10, 11, 12, 13], [*range(20, 32)]]
    make = functools.partial(doubling, seconds=0.05)
    found = {one.number: one for one in ended(make, groups, places, lambda number: number != 11, here=here)}
    assert sorted(found) == sorted({*itertools.chain(*groups)} - {11})
    mine = {n for n, one in found.items() if one.process == len(places) and n != 5}
    assert mine and all(found[n].value == (2 * n, os.getpid()) for n in mine)
    theirs = found.keys() - mine - {5}
    assert all(found[n].value[0] == 2 * n and found[n].value[1] != os.getpid() for n in theirs)
    assert bool(theirs) == bool(places)
    assert not isinstance(found[5].value, ValueError) or found[5].process == len(places)


def test_a_job_that_its_process_had_not_begun_is_done_by_another() -> None:
    """One process dies of a job, another leaves after one; each held the next one by then."""
    groups = [[40], [*range(20, 28)], [8, *range(28, 34)]]
    found = list(ended(functools.partial(doubling, (22, 30)), groups, [{}], here=slowly))
    assert sorted(one.number for one in found) == [8, *range(20, 34), 40]
    assert {one.number for one in found if one.died} and {one.number for one in found if one.died} <= {22, 30}


def test_the_last_jobs_are_for_who_is_free_first() -> None:
    """With the other process at work on one, this one does those that are left."""

    def at_once(number: int) -> int:
        time.sleep(0.02)  # three take less than the one of the other process, on a busy machine too
        return number

    found = {one.number: one.process for one in ended(sleeping, [[k] for k in range(4)], [{}], here=at_once)}
    assert found.keys() == set(range(4)) and sorted(found.values()) == [0, 1, 1, 1]


def test_a_process_goes_on_while_this_one_puts_a_result_down() -> None:
    with contextlib.closing(ended(telling, [[*range(8)]], [{}])) as stream:
        next(stream)
        time.sleep(1)
        after = time.monotonic()
        assert next(stream).value < after - 0.25


def test_a_process_that_starts_has_its_job_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This one answers none while it does its own, and is at its first when the other has started."""
    monkeypatch.setenv("NUMBERED_SIGN", str(tmp_path / "sign"))

    def until_it_has_begun(number: int) -> bool:
        until = time.monotonic() + 60
        while not (begun := (tmp_path / "sign").exists()) and time.monotonic() < until:
            time.sleep(0.05)
        return begun

    found = {one.process: one.value for one in ended(signing, [[0], [1]], [{}], here=until_it_has_begun)}
    assert found.keys() == {0, 1} and found[1] is True  # which job is whose is for who is first


def slowly(number: int) -> int:
    time.sleep(0.3)
    return number


def gone(pid: int) -> bool:
    """Whether a process that was killed has ended within ten seconds."""
    until = time.monotonic() + 10
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.kill(pid, 0)
            time.sleep(0.02)
        return False
    return True


def test_what_interrupts_this_process_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[standby.Process] = []
    real = standby.Process
    monkeypatch.setattr(standby, "Process", lambda *given: started.append(real(*given)) or started[-1])

    def interrupted(number: int) -> int:
        raise KeyboardInterrupt

    # jobs that take no time the other could do alone
    make = functools.partial(doubling, seconds=0.2)
    stream = ended(make, [[*range(20, 30)], [*range(30, 40)]], [{}], here=interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    assert [gone(process.pid) for process in started] == [True]


LOCKED = """
from verify.jobs.pool import ended
from numbered import locking

if __name__ == "__main__":
    print([one.value for one in ended(locking, [[1, 2]], [{}])])
"""


def test_a_lock_in_a_worker_that_is_killed_is_not_warned_about(tmp_path: Path) -> None:
    """tqdm makes one where Inductor runs, and a resource tracker that outlives the run warned of it on the terminal."""
    script = tmp_path / "locked.py"
    script.write_text(LOCKED)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")


def test_a_worker_that_cannot_begin_ends_the_run() -> None:
    with pytest.raises(RuntimeError, match="ended with exit code 5 before it did anything"):
        list(ended(nothing, [[0], [1]], [{}, {}]))


def test_a_worker_whose_parent_ends_before_it_is_ready_ends_quietly() -> None:
    for sent in (False, True):
        process = standby.Process("verify.jobs.pool:serve")
        process.start()
        if sent:
            process.connection.send((sys.path, {}, pickle.dumps(doubling), False))
        process.connection.close()
        assert process.wait(60) == 0
        process.end()


def test_what_is_not_wanted_is_not_done_and_closing_ends_the_processes() -> None:
    stream = ended(doubling, [[0, 1, 2], [3]], [{"PLACE": "a"}], lambda number: number != 1)
    first = next(stream)
    assert first.number == 0 and [one.number for one in stream] == [2, 3]
    stream = ended(doubling, [[0, 1, 2]], [{}])
    pid = next(stream).value[1]
    stream.close()
    assert gone(pid)


@pytest.mark.parametrize(("gpus", "cores", "gib", "own", "due"), [
    (1, 16, 139, False, 16), (1, 16, 139, True, 8), (2, 64, 139, False, 32), (1, 8, 139, False, 8),
    (4, 2, 139, True, 4), (1, 64, 24, False, 3), (1, 64, 24, True, 0),
])  # fmt: skip
def test_a_run_on_gpus_takes_a_process_a_core(
    monkeypatch: pytest.MonkeyPatch, gpus: int, cores: int, gib: int, own: bool, due: int
) -> None:
    """Up to 16 a GPU, one for 8 GiB of its memory, and half as many beside those of a user's function; of one, none."""
    like = SimpleNamespace(name="one", major=9, minor=0, total_memory=gib << 30)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda k: like)
    monkeypatch.setattr(backends, "cores", lambda: cores)
    monkeypatch.delenv("SEEN", raising=False)
    backend: Any = SimpleNamespace(processes=lambda: backends.on_gpus("SEEN"))
    found = run._places([backend], [(1e6, [k]) for k in range(99)], None, own)
    assert [place["SEEN"] for place in found] == [str(k % gpus) for k in range(due)]
    each = min(16, gib // 8)
    assert cuda.resources()["GPU"] == rocm.resources()["rocm"] == 1 / each  # as many of a cluster's


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_workers_give_the_cells_of_one_process(tmp_path: Path, three_threads: None) -> None:
    """In the same order, with the same threads, whatever dies beside them."""
    path = tmp_path / "mine.py"
    path.write_text(
        "import os, torch\n"
        "def works(x):\n    assert torch.get_num_threads() == 3\n    return 1 / x\n"
        "def dies(x):\n    os.kill(os.getppid(), 9)\n    return x\n"
    )
    spellings = ("out-of-place", "strided")
    both = replace(
        SMALL, kernels=("reciprocal",), spellings=spellings, user_lowerings=(f"{path}:works", f"{path}:dies")
    )
    seen: list[Any] = []
    ends: list[tuple[Any, ...]] = []
    found = run.run(both, seen.append, lambda *given: ends.append(given), workers=2)["cells"]
    assert all(cell in seen for cell in found)
    alone = run.run(replace(both, user_lowerings=(f"{path}:works",)))["cells"]
    assert bare([cell for cell in found if cell["lowering"] != "mine.py:dies"]) == bare(alone)
    assert {cell["status"] for cell in alone} == {"passed"}
    plain, *layouts = [cell for cell in found if cell["lowering"] == "mine.py:dies"]
    assert (plain["status"], plain["reason_kind"]) == ("error", "ended")
    assert plain["reason"] == "lowering mine.py:dies: the process that ran it was killed by SIGKILL"
    assert layouts and {cell["reason"] for cell in layouts} == {"its case ended in an error in the plain layout"}
    assert [done for done, *_ in ends] == sorted(done for done, *_ in ends) and ends[-1][:2] == (len(found), len(found))


def test_layouts_that_were_done_before_their_plain_call_failed_are_not_kept(tmp_path: Path) -> None:
    """Another process may have begun one, and a journal have it."""
    path = tmp_path / "mine.py"
    path.write_text("def wrong(x):\n    return 1\n")
    mine = replace(SMALL, kernels=("reciprocal",), spellings=("out-of-place", "strided"))
    mine = replace(mine, user_lowerings=(f"{path}:wrong",))
    jobs = list(jobs_of(mine, backends.load("cpu")))
    known = {n: fill(job, [], mine) for n, job in enumerate(jobs) if job.mine and job.arranged and not job.reason}
    assert known and {cell["status"] for found in known.values() for cell in found} == {"error"}
    journal: Any = SimpleNamespace(known=known, add=lambda *_: None)
    alone = bare(run.run(mine)["cells"])
    assert bare(run.run(mine, journal=journal)["cells"]) == alone
    assert "its case ended in an error in the plain layout" in {cell["reason"] for cell in alone}


def test_a_case_with_two_truths_is_begun_before_one_with_one() -> None:
    """It takes twice as long."""
    selection = Selection(("lerp",), ("cpu",), ("float32",), ("eager",), ("out-of-place",))
    jobs = [job for job in jobs_of(selection, backends.load("cpu")) if job.reason is None]
    order = by_case(jobs, [Task(k) for k in range(len(jobs))], selection)
    (exact,) = (k for k, (_, (one,)) in enumerate(order) if jobs[one].target.scalars == {"w": 0.5})
    (rounded,) = (k for k, (_, (one,)) in enumerate(order) if jobs[one].target.scalars == {"w": 0.9999})
    assert rounded < exact and order[rounded][0] == 2 * order[exact][0]


def test_the_cases_that_make_most_of_the_calls_are_begun_first(tmp_path: Path) -> None:
    """Of a user's function, the first with each set of scalars."""
    (tmp_path / "mine.py").write_text("def f(a, b, w):\n    return a + w * (b - a)\n")
    selection = Selection(("lerp",), ("cpu",), ("float32",), user_lowerings=(f"{tmp_path}/mine.py:f",))
    jobs = [job for job in jobs_of(selection, backends.load("cpu")) if job.reason is None]
    order = by_case(jobs, [Task(k) for k in range(len(jobs))], selection)
    calling = [next(k for k, job in enumerate(jobs) if job.mine and len(job.target.scalars) == n) for n in (0, 1)]
    begun = [k for _, group in order for k in group]
    assert {begun.index(k) for k in calling} == {0, 1}


def test_what_inductor_compiles_in_c_comes_last_in_its_case() -> None:
    """Its first compilation waits for a header that another process compiles meanwhile."""
    selection = Selection(("adam_step",), ("cpu",), ("float32",), profile="quick")
    jobs = [job for job in jobs_of(selection, backends.load("cpu")) if job.reason is None]
    for _, group in by_case(jobs, [Task(k) for k in range(len(jobs))], selection):
        last = [jobs[k].lowering.compiles_here for k in group]
        assert last == sorted(last) and len(set(last)) == 2


def test_sweeps_of_a_gpu_are_begun_before_small_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone one takes half a second, among others up to 15: begun last, it was waited for."""
    monkeypatch.setattr(backends.load("cpu"), "check_device", "meta")
    selection = Selection(("sub",), ("cpu",), ("float16",), ("eager", "inductor"), profile="exhaustive")
    jobs = list(jobs_of(selection, backends.load("cpu")))
    tasks = [task for task in planned(jobs, selection).tasks if jobs[task.job].reason is None]
    swept = [tasks[group[0]].elements is not None for _, group in by_case(jobs, tasks, selection)]
    assert True in swept and swept == sorted(swept, reverse=True), swept


@pytest.mark.parametrize(("name", "first", "later"), [
    ("softmax", "length-2^20", "rows"), ("adamw_step", "1000 steps", "10 steps"), ("mm", "64x4096x64", "64x80x48"),
    ("flex_attention", "exact, shared keys", "plain 16"),
])  # fmt: skip
def test_a_large_problem_is_begun_before_small_ones(name: str, first: str, later: str) -> None:
    """Begun last, one that takes as long as all of the others lets their processes wait for it."""
    selection = Selection((name,), ("cpu",), ("float32",), ("eager",), profile="default")
    jobs = [job for job in jobs_of(selection, backends.load("cpu")) if job.reason is None]
    order = by_case(jobs, [Task(k) for k in range(len(jobs))], selection)
    begun = {jobs[group[0]].target.spelling: (place, seconds) for place, (seconds, group) in enumerate(order)}
    assert begun[first][0] < begun[later][0] and begun[first][1] > 3 * begun[later][1], begun


def test_this_process_gives_the_cells_that_others_give(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, three_threads: None
) -> None:
    """With a user's function, where little work is shared; its threads are as they were afterwards."""
    path = tmp_path / "mine.py"
    path.write_text("import torch\ndef works(x):\n    assert torch.get_num_threads() == 3\n    return 1 / x\n")
    mine = replace(
        SMALL, kernels=("reciprocal", "rms_norm"), dtypes=("float16", "float32"), user_lowerings=(f"{path}:works",)
    )
    alone, done, real = bare(run.run(mine)["cells"]), [], run._done

    def seen(jobs: Any, plan: Any, number: int, *given: Any) -> Any:
        done.append((number, backends.threads(), torch.get_num_threads()))
        return real(jobs, plan, number, *given)

    monkeypatch.setattr(run, "_done", seen)
    monkeypatch.setattr(run, "STARTING", 0.0)
    monkeypatch.setattr(backends.load("cpu"), "processes", lambda: [{}, {}])
    numbers: list[int] = []
    found = run.run(mine, progress=lambda *given: numbers.append(given[0]), workers=None)["cells"]
    assert bare(found) == alone
    assert done and len(done) < len(numbers) and {given[1:] for given in done} == {(3, max(backends.cores() // 2, 1))}
    assert (backends.threads(), torch.get_num_threads(), backends.launch_threads) == (3, 3, None)


def test_any_number_of_processes_gives_equal_cells() -> None:
    assert bare(run.run(SMALL, workers=3)["cells"]) == serial()


# ---------------------------------------------------------------- interrupted, in shards


def without_timing(path: Path) -> str:
    report = store.read(path)
    cells = [cell.model_copy(update={"timing": Timing()}) for cell in report.cells]
    environment = {name: facts for name, facts in report.environment.items() if name != "created"}
    return "".join(store.lines(report.model_copy(update={"cells": cells, "environment": environment})))


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_run_that_is_killed_goes_on(
    tmp_path: Path, jobs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "import os, pathlib, time\n"
        "def quick(x):\n    with open(os.environ['HERE'] + '.quick', 'a') as f: f.write('x')\n    return 1 / x\n"
        "def slow(x):\n"
        "    if 'HANG' in os.environ:\n"
        "        pathlib.Path(os.environ['HERE']).write_text(str(os.getpid()))\n"
        "        time.sleep(120)\n"
        "    return 1 / x\n"
    )
    out, here = tmp_path / "r.json", tmp_path / "pid"
    words = ["kernel", "reciprocal", "--backend", "cpu", "--dtype", "float16", "--profile", "quick", "--json", str(out)]
    words += ["--spelling", "out-of-place", "--spelling", "strided"]
    words += ["--lowering", f"{tmp_path}/mine.py:quick", "--lowering", f"{tmp_path}/mine.py:slow", "--jobs", jobs]
    monkeypatch.setenv("HERE", str(here))
    command = [sys.executable, "-m", "verify", *words]
    with subprocess.Popen(command, env=os.environ | {"HANG": "1"}, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 100
        while not here.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert commands.main(words) == 2
        assert "another run writes the journal" in capsys.readouterr().err
        process.kill()
    assert gone(int(here.read_text()))
    journal = tmp_path / "r.json.journal"
    kept = journal.read_bytes()
    assert not out.exists() and b'"lowering": "mine.py:quick"' in kept and b'"lowering": "mine.py:slow"' not in kept
    journal.write_bytes(kept + b'{"job": 3, "cel')  # what a machine that is lost may leave
    calls = len((tmp_path / "pid.quick").read_text())

    assert commands.main([*words, "--resume", "--seed", "1"]) == 2
    assert "selection: seed was 0, is 1" in capsys.readouterr().err and not out.exists()
    assert commands.main([*words, "--resume"]) == 0
    again = len((tmp_path / "pid.quick").read_text()) - calls
    assert not journal.exists()
    resumed = without_timing(out)
    before = len((tmp_path / "pid.quick").read_text())
    assert commands.main([*words, "--jobs", "1"]) == 0
    assert again < len((tmp_path / "pid.quick").read_text()) - before  # its plain call was not repeated
    assert without_timing(out) == resumed


def test_shards_are_merged_to_the_whole(tmp_path: Path) -> None:
    words = ("kernel", *SMALL.kernels, "--backend", "cpu", "--dtype", "float16", "--lowering", "eager")
    words += (*(w for s in SMALL.spellings for w in ("--spelling", s)), "--profile", "quick", "--json")
    files = [str(tmp_path / f"{k}.json") for k in range(3)]
    assert commands.main([*words, files[0]]) == 0
    for k in (1, 2):
        assert commands.main([*words, files[k], "--shard", f"{k}/2"]) == 0
    assert all(0 < len(store.read(file).cells) < len(store.read(files[0]).cells) for file in files[1:])
    whole = tmp_path / "whole.json"
    assert commands.main(["merge", *files[:0:-1], "-o", files[1]]) == 2  # the shard would be gone
    assert commands.main(["merge", *files[:0:-1], "-o", str(whole)]) == 0
    assert without_timing(whole) == without_timing(Path(files[0]))
    for given, told in (
        (files[1:2], "shard 2 of 2 is missing"),
        (files[:2], "cells are in two reports"),
        ([files[1], files[1]], "cells are in two reports"),
    ):
        with pytest.raises(UsageError, match=told):
            merged([store.read(file) for file in given])
    broken = store.read(files[1])
    with pytest.raises(UsageError, match="shard 1 of 2 is not complete"):
        merged([broken.model_copy(update={"interrupted": True}), store.read(files[2])])
    assert commands.main([*words, files[1], "--shard", "9/9"]) == 0  # it has no job
    assert commands.main([*words, files[1], "--shard", "3/2"]) == 2


def test_what_a_merge_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """An allowance is for so many cells of the run, not of a shard."""
    entry = Allowance("eager", ("add",), ("*",), id="listed", status="unbounded", cap=2, reason="why")
    monkeypatch.setattr(ledger, "allowances", lambda backend, capability="": (entry,))
    cell = {"backend": "cpu", "allowance": "listed", "reason": "r", "reason_kind": "no-bound", "status": "unbounded"}
    used: Counter[str] = Counter()
    whole = [dict(cell) for _ in range(5)]
    for one in whole:
        ledger.cap(one, used)
    parts = [[dict(cell) for _ in range(n)] for n in (3, 2)]
    for part in parts:
        used = Counter()
        for one in part:
            ledger.cap(one, used)
    used, joined = Counter(), [one for part in parts for one in part]
    for one in joined:
        ledger.cap(one, used)
    assert joined == whole and [one["allowance"] for one in whole] == ["listed"] * 2 + [""] * 3


def test_a_merge_of_whole_reports_counts_anew_too(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Allowance("inductor", ("addcmul",), ("*",), id="listed", status="unbounded", cap=1, reason="why")
    monkeypatch.setattr(ledger, "allowances", lambda backend, capability="": (entry,))
    open_ = region(status="unbounded", reason={"kind": "no-bound", "text": "t"}, bound=None)
    parts = [report_of(cell_of({"normal": open_}, allowance="listed", dtype=name)) for name in ("float16", "float32")]
    whole = merged([Report.model_validate(part) for part in parts])
    assert [one.allowance for one in whole.cells] == ["listed", ""] and exit_code(whole) == 1


def test_reports_of_different_files_are_not_merged() -> None:
    def part(k: int, source: str, shard: str = "") -> Report:
        one = cell_of({"normal": region()}, source=source, dtype=("float16", "float32")[k])
        of = {"index": k + 1, "of": 2, "jobs": 2, "numbers": [k], "source": shard, "whole": False} if shard else None
        return Report.model_validate(report_of(one, shard=of))

    assert len(merged([part(0, "aa"), part(1, "aa")]).cells) == 2
    assert len(merged([part(0, "aa", "11"), part(1, "aa", "11")]).cells) == 2
    with pytest.raises(UsageError, match="different files of addcmul in kernels/ or oracles/"):
        merged([part(0, "aa"), part(1, "bb")])
    with pytest.raises(UsageError, match="the shards were run from different files"):
        merged([part(0, "aa", "11"), part(1, "aa", "22")])


def test_a_report_of_schema_1_is_not_merged_with_one_that_has_regions() -> None:
    old, new = Report.model_validate(report(cell())), Report.model_validate(report_of(cell_of({"normal": region()})))
    with pytest.raises(UsageError, match="differ in converted_from"):
        merged([old, new.model_copy(update={"cells": []})])


# ---------------------------------------------------------------- the journal


def test_a_journal_keeps_what_it_was_given_until_a_run_begins_anew(tmp_path: Path) -> None:
    path, head = tmp_path / "j", {"selection": {"seed": 0, "kernels": ["a"]}}
    with journal.opened(path, head, resume=True) as kept:
        assert kept.known == {}
        kept.add(4, "four", [{"x": 0.1}])
        with pytest.raises(UsageError, match="another run writes"), journal.opened(path, head, resume=True):
            pass
    with journal.opened(path, head, resume=False):
        pass  # nothing was done
    with journal.opened(path, head, resume=True) as kept:
        assert kept.known == {4: [{"x": 0.1}]}
        kept.add(5, "five", [{"x": 0.2}])
    other = {"selection": {"seed": 1, "kernels": ["a"], "more": None}}
    with pytest.raises(UsageError, match="selection: seed was 0, is 1;"), journal.opened(path, other, resume=True):
        pass
    path.write_bytes(path.read_bytes().replace(b'{"job": 4', b'["job": 4'))
    with pytest.raises(UsageError, match="is no line of a journal"), journal.opened(path, head, resume=True):
        pass
    with journal.opened(path, head, resume=False) as kept:
        kept.add(1, "one", [{"x": 0.3}])
    with journal.opened(path, head, resume=True) as kept:
        assert kept.known == {1: [{"x": 0.3}]}
    other, lines = tmp_path / "other", path.read_bytes().splitlines(keepends=True)
    with journal.opened(other, head | {"source": "another"}, resume=True) as kept:
        kept.add(1, "one", [{"x": 0.3}])
    path.write_bytes(lines[0] + other.read_bytes().splitlines(keepends=True)[1])  # a line of another run
    with pytest.raises(UsageError, match=r"line 2 .* is no line"), journal.opened(path, head, resume=True):
        pass


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("def pow(x: torch.Tensor, y: float): ...", {"y": 3.7}),
        ("def pow(x: torch.Tensor, y: torch.Tensor): ...", {}),
        ("def pow(x: float, y, /, *rest, z=1, **more): ...", {"x": 2.5}),
        ("def pow(x, y): ...", None),
        ("@decorated\ndef pow(x: torch.Tensor, y: float): ...", None),
        ("pow = made()", None),
    ],
)  # fmt: skip
def test_the_first_case_that_a_function_takes_is_run_in_every_layout(
    tmp_path: Path, text: str, first: dict[str, float] | None
) -> None:
    """One of a tensor and a Python number was run in no layout, since the kernel's first case is of tensors."""
    (tmp_path / "mine.py").write_text(f"import torch\n\n{text}\n")
    mine = Selection(("pow",), ("cpu",), ("float32",), profile="quick", user_lowerings=(f"{tmp_path}/mine.py:pow",))
    jobs = [job for job in jobs_of(mine, backends.load("cpu"), itertools.repeat(None)) if job.target.layout]
    cases = {tuple(job.target.scalars) for job in jobs}
    usual = jobs_of(mine, backends.load("cpu"), itertools.repeat(None))
    assert cases == {tuple(next(usual).target.scalars if first is None else first)} and len(jobs) > 2


def test_a_full_disk_leaves_the_journal_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    with journal.opened(path, {}, resume=True) as kept:
        kept.add(1, "one", [])
        before = path.read_bytes()
        write = os.write
        with monkeypatch.context() as patch:

            def full(file: int, data: Any) -> int:
                if len(data) < 20:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return write(file, data[:10])

            patch.setattr(os, "write", full)
            with pytest.raises(UsageError, match="No space left on device; the jobs"):
                kept.add(2, "two", [])
    assert path.read_bytes() == before


def test_a_journal_is_a_regular_file(tmp_path: Path) -> None:
    """Root would remove /dev/null at the end of a run."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="is no regular file"), journal.opened(path, {}, resume=False):
        pass
    assert path.exists()


@pytest.mark.parametrize("out", ["-", os.devnull, "pipe"])
def test_no_journal_lies_beside_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    assert how_of(None, "local", None, None, None, False, out).journal is None
    assert how_of(None, "local", None, None, None, False, "r.json").journal == "r.json.journal"


def test_a_full_disk_from_the_beginning_promises_no_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with journal.opened(tmp_path / "j", {}, resume=False) as kept:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(UsageError, match=r"No space left on device$"):
            kept.add(1, "one", [])


def test_what_a_users_file_imports_is_a_part_of_what_a_journal_or_a_shard_is_of(tmp_path: Path) -> None:
    own, helper = tmp_path / "mine.py", tmp_path / "parts" / "helper.py"
    helper.parent.mkdir()
    (helper.parent / "__init__.py").touch()
    own.write_text("from parts.helper import f\n")
    helper.write_text("import torch\nfrom . import other\n\ndef f(x):\n    return torch.exp(x)\n")
    (helper.parent / "other.py").write_text("")
    (tmp_path / "unrelated.py").write_text("")
    chosen = replace(SMALL, kernels=("exp",), spellings=(), lowerings=("eager",), user_lowerings=(f"{own}:f",))
    found = list(user.sources(f"{own}:f"))
    assert found == ["mine.py", "parts/__init__.py", "parts/helper.py", "parts/other.py"]
    before, first = run.identity(chosen), Report.model_validate(run.run(chosen))
    helper.write_text(helper.read_text().replace("(x)\n", "(x) * 2\n", 2))
    assert "parts/helper.py" in journal.differences(before, run.identity(chosen))
    flags = {"source": user.user_lowering(f"{own}:f").flags(None)["source"]}  # type: ignore[arg-type]
    other = [
        one.model_copy(update={"dtype": "float32", "flags": flags}) for one in first.cells if "mine" in one.lowering
    ]
    with pytest.raises(UsageError, match=r"different versions of mine.py, or of what it imports"):
        merged([first, first.model_copy(update={"cells": other})])
    another = [one.model_copy(update={"lowering": "mine.py:g"}) for one in other]
    with pytest.raises(UsageError, match=r"different versions of mine.py"):
        merged([first, first.model_copy(update={"cells": another})])
    same = [one.model_copy(update={"dtype": "float32"}) for one in first.cells if "mine" in one.lowering]
    assert len(merged([first, first.model_copy(update={"cells": same})]).cells) == len(first.cells) + len(same)


def test_a_merge_of_no_cell_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.json"
    store.write(Report.model_validate({**run.run(SMALL), "cells": []}), empty)
    assert commands.main(["merge", str(empty), "-o", str(tmp_path / "out.json")]) == 3
    assert "empty.json: no cell in any of them" in capsys.readouterr().err


def test_modules_of_other_folders_are_a_part_of_a_version_unless_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was resumed after a change of one held cells of both."""
    own, other, installed = tmp_path / "own" / "mine.py", tmp_path / "src", tmp_path / "lib" / "site-packages"
    for folder in (own.parent, other / "ops", installed):
        folder.mkdir(parents=True)
    own.write_text("import json, ops.core, elsewhere\nf = ops.core.f\n")
    (other / "ops" / "__init__.py").write_text("from .scales import SCALE\n")
    (other / "ops" / "scales.py").write_text("SCALE = 1.0\n")
    (other / "ops" / "core.py").write_text("import torch\n\ndef f(x):\n    return torch.exp(x)\n")
    (installed / "elsewhere.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(other), *sys.path, str(installed)])
    names = ["mine.py", "ops/__init__.py", "ops/core.py", "ops/scales.py"]
    assert list(user.sources(f"{own}:f")) == names
    before, version = user.source_digest(f"{own}:f"), user.Version(f"{own}:f")
    (other / "ops" / "scales.py").write_text("SCALE = 2.0\n")
    assert user.source_digest(f"{own}:f") != before
    with pytest.raises(UsageError, match=r"mine.py, or what it imports, changed while it was judged"):
        version.ensure_kept()
    (own.parent / "ops").mkdir()
    assert list(user.sources(f"{own}:f")) == names
    (own.parent / "ops" / "__init__.py").write_text("")  # which Python finds first
    assert list(user.sources(f"{own}:f")) == ["mine.py", "ops/__init__.py"]


@pytest.mark.parametrize(("name", "value"), [
    ("TRITON_DEFAULT_FP_FUSION", "0"), ("ONEDNN_MAX_CPU_ISA", "AVX2"), ("DNNL_MAX_CPU_ISA", "AVX2"),
    ("MKL_CBWR", "COMPATIBLE"), ("TORCHINDUCTOR_VEC_ISA_OK", "0"), ("GLIBC_TUNABLES", "glibc.malloc.check=0"),
])  # fmt: skip
def test_a_journal_is_of_the_variables_that_change_bits(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Resumed without fused multiplications, or with other instructions, a report held the code of both."""
    monkeypatch.delenv(name, raising=False)
    before = run.identity(SMALL)
    monkeypatch.setenv(name, value)
    assert "environment" in journal.differences(before, run.identity(SMALL))
    assert not journal.differences(run.identity(SMALL), run.identity(SMALL))


def test_a_journal_and_a_shard_are_of_all_files_that_decide_cells() -> None:
    """All that are installed, but for reports and what only says that types are there."""
    root = Path(run.__file__).parents[1]
    files = (path for folder in root.iterdir() if folder.is_dir() for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(root).as_posix() for path in files if "__pycache__" not in path.parts}
    there = {name for name in names if not name.startswith("reports/")}
    assert {"virtual/tables/sm_90/ex2.table", "virtual/metal_shim/metal_stdlib", "kernels/ledger/cpu.toml"} < there
    assert there - run.identity(replace(SMALL, kernels=("exp",), spellings=()))["source"].keys() == set()


@pytest.mark.parametrize("gone", [True, False])
def test_a_device_that_is_lost_beside_a_launch_costs_its_job_and_its_process(
    monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """As on an H200, where a misaligned address came to light while the next job's inputs were copied."""

    def walked(*_: Any) -> Any:
        raise RuntimeError("CUDA error: misaligned address\nSearch for `cudaErrorMisalignedAddress'")

    def synchronize() -> None:
        if gone:
            raise RuntimeError("CUDA error: misaligned address")

    monkeypatch.setattr("verify.walk.cells._walked", walked)
    monkeypatch.setattr(backends.load("cpu"), "synchronize", synchronize)
    monkeypatch.setattr(backends, "launch_threads", backends.launch_threads)  # which a worker sets for its process
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    selection = Selection(("exp",), ("cpu",), ("float16",), ("eager",), profile="quick")
    do = run._worker(selection, [None], 1, (1, 1), 1, 1)
    with pytest.raises(Spent if gone else RuntimeError) as raised:
        do(0)
    if gone:
        (cell,) = raised.value.value
        assert (cell["kernel"], cell["status"], cell["reason_kind"]) == ("exp", "error", "ended")
        assert cell["reason"] == "the device was lost while it was checked: CUDA error: misaligned address"


NO_MEMORY = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has 1 GiB free"),
    RuntimeError("CUDA driver error: out of memory"),  # of a kernel's launch or code
)


@pytest.mark.parametrize("suffices", [True, False])
@pytest.mark.parametrize("lacking", NO_MEMORY, ids=["tensors", "code"])
def test_what_a_share_of_the_memory_does_not_suffice_for_is_done_with_more(
    monkeypatch: pytest.MonkeyPatch, lacking: RuntimeError, suffices: bool
) -> None:
    """As on two H100s and on an H200, where sixteen processes kept all memory that they had freed, until launches found
    none."""
    shares: list[float | None] = []

    def confine(device: str, share: float | None) -> None:
        monkeypatch.setattr(backends, "memory_share", share)
        shares.append(share)

    def timed(call: Any, arguments: Any, backend: Any, name: str) -> Any:
        with launch._raising(name, arguments):
            if backends.memory_share != 1 or not suffices:
                raise lacking
        return own(call, arguments, backend, name)

    own = launch._timed
    monkeypatch.setattr(launch, "_timed", timed)
    monkeypatch.setattr(backends, "confine", confine)
    monkeypatch.setattr(backends, "memory_share", None)
    monkeypatch.setattr(backends, "launch_threads", backends.launch_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    selection = Selection(("exp",), ("cpu",), ("float16",), ("eager",), profile="quick")
    do = run._worker(selection, [None], 1, (1, 1), 1, 8)
    (cell,) = do(0)
    assert cell["status"] == ("passed" if suffices else "error"), cell["reason"]
    assert suffices or "out of memory" in cell["reason"]
    assert shares == [0.125, 1.0, 0.125]


def test_a_gpu_without_room_for_a_context_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(*args: Any, **options: Any) -> Any:
        raise RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'")

    monkeypatch.setattr(pointwise.Pointwise, "given", given)
    selection = Selection(("exp",), ("cpu",), ("float16",), ("eager",), ("out-of-place",), profile="quick")
    (cell,) = run.run(selection)["cells"]
    assert (cell["status"], cell["reason_kind"]) == ("error", "ended")
    assert cell["reason"] == "the GPU's memory does not suffice to check this: CUDA error: out of memory"


@pytest.mark.gpu
def test_tensors_take_no_more_of_a_gpu_than_their_share() -> None:
    torch.cuda.empty_cache()  # what is kept of earlier tests is handed out whatever the share
    free, total = torch.cuda.mem_get_info()
    backends.confine("cuda", 0.02)
    try:
        assert backends.room("cuda") <= 0.02 * total
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(int(0.02 * total), dtype=torch.uint8, device="cuda")
        # what was freed, and is kept, is given back before memory does not suffice
        for size in (0.007, 0.008, 0.009):
            torch.empty(int(size * total), dtype=torch.uint8, device="cuda")
    finally:
        backends.confine("cuda", None)
    assert backends.room("cuda") > 0.5 * free
    torch.empty(int(0.02 * total), dtype=torch.uint8, device="cuda")


def test_a_process_that_does_jobs_is_told_why_some_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding that out takes seconds where Inductor or the device has to be asked."""
    cpu, selection = backends.load("cpu"), Selection(("exp", "softmax"), ("cpu",), profile="quick")
    jobs = list(jobs_of(selection, cpu))

    def asked(*_: Any) -> str:
        raise AssertionError

    monkeypatch.setattr(cpu, "inductor_unavailable", asked)
    monkeypatch.setattr(cpu, "triton_options", asked)
    told = list(jobs_of(selection, cpu, iter([job.reason for job in jobs])))
    assert [(one.label, one.reason) for one in told] == [(one.label, one.reason) for one in jobs]
    with pytest.raises(AssertionError):
        list(jobs_of(selection, cpu))
