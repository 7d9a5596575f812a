"""The process that stands by and those that are forked from it: whose children they are, and that none is left."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from verify import backends
from verify.processes import standby, start

pytestmark = pytest.mark.part(2)

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


@pytest.fixture(autouse=True)
def _none_stands_by(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    standby.drop()
    yield
    standby.drop()


def telling(channel: int, *files: int) -> None:
    """What a process of these tests does: it tells what it is, then what it is asked for."""
    connection = Connection(channel)
    connection.send({
        "pid": os.getpid(), "parent": os.getppid(), "folder": str(Path.cwd()), "files": [os.read(f, 9) for f in files],
        "threads": threading.active_count(), "torch": "torch" in sys.modules, "place": os.environ.get("PLACE"),
        "blocked": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), "standing": standby._standing,
    })  # fmt: skip
    while True:
        exec(connection.recv())


TASK = "test_standby:telling"


def told(process: standby.Process) -> dict[str, Any]:
    process.start()
    found: dict[str, Any] = process.connection.recv()
    return found


def first(process: standby.Process) -> dict[str, Any]:
    """What it tells, after which it is ended."""
    try:
        return told(process)
    finally:
        process.end()


@linux
def test_processes_are_forked_from_one_and_are_the_askers_children(tmp_path: Path) -> None:
    standby.prepare()
    assert standby._standing is not None
    standing = standby._standing.process.pid
    (tmp_path / "given").write_bytes(b"contents")
    with (tmp_path / "given").open("rb") as file:
        processes = [standby.Process(TASK), standby.Process(TASK, [file])]
        found = [told(process) for process in processes]
    assert [one["pid"] for one in found] == [process.pid for process in processes]
    assert all(isinstance(process.start(), standby.Forked) for process in processes)
    assert found[0] | {"pid": 0, "files": []} == found[1] | {"pid": 0, "files": []}
    assert found[1]["files"] == [b"contents"]
    assert found[0]["parent"] == os.getpid() and found[0]["torch"] and found[0]["blocked"]
    assert found[0]["threads"] == 1 and found[0]["standing"] is None
    assert standing not in {one["pid"] for one in found} and not standby._starting
    assert processes[0].poll() is None and processes[0].wait(0.01) is None
    processes[0].connection.send("import sys; sys.exit(7)")
    processes[1].connection.send("os.kill(os.getpid(), 11)")
    assert [process.wait(60) for process in processes] == [7, -11]
    for process in processes:
        process.end()
        process.end()
    assert standby._standing.process.pid == standing and standby._standing.fits


@linux
def test_a_wait_ends_where_the_system_has_no_descriptor_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(pid: int) -> int:
        raise OSError

    monkeypatch.setattr(os, "pidfd_open", none, raising=False)
    process = standby.Process(TASK)
    told(process)
    assert process.sentinel is None and process.wait(0.05) is None
    process.connection.send("import sys; sys.exit(3)")
    assert process.wait(60) == 3
    process.end()


@linux
def test_one_that_waits_for_another_s_variables_leaves_forks_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_forks", True)
    early = standby.Process(TASK)
    monkeypatch.setenv("PLACE", "elsewhere")  # what was asked may not have answered yet
    late = standby.Process(TASK)
    assert told(early)["pid"] == early.pid and told(late)["place"] == "elsewhere" and standby._forks
    assert isinstance(late.start(), standby.Forked)
    early.end()
    late.end()


@linux
def test_an_exception_ends_a_process_and_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    process = standby.Process(TASK)
    told(process)
    process.connection.send("print('to the report?'); raise ValueError('planted')")
    assert process.wait(60) == 1
    process.end()
    shown = capfd.readouterr()
    assert "ValueError: planted" in shown.err and "to the report?" in shown.err and not shown.out


@linux
def test_another_stands_by_where_variables_differ_and_processes_are_in_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    standby.prepare()
    before = standby._standing
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another")
    monkeypatch.chdir(tmp_path)
    assert first(standby.Process(TASK))["folder"] == str(tmp_path) and standby._standing is before
    monkeypatch.setenv("PLACE", "elsewhere")
    assert first(standby.Process(TASK))["place"] == "elsewhere"
    assert before is not None and standby._standing is not before and before.process.poll() is not None


@linux
def test_what_torch_sets_while_it_runs_lets_no_other_stand_by(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "TRITON_CACHE_DIR"
    monkeypatch.setenv(name, "before")
    standby.prepare()
    before = standby._standing
    for value in ("after", None):
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
        process = standby.Process(TASK)
        told(process)
        process.connection.send(f"connection.send(os.environ.get({name!r}))")
        assert process.connection.recv() == value
        process.end()
    assert standby._standing is before


@linux
@pytest.mark.parametrize("opens", [False, True])
def test_further_modules_are_imported_unless_they_open_a_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opens: bool
) -> None:
    """After which no process could be forked."""
    (tmp_path / "card0").touch()
    opening = f"from verify.processes import standby\nstandby.DEVICES = ('{tmp_path}/card',)\n"
    opening += f"kept = open('{tmp_path}/card0')\n"
    (tmp_path / "further.py").write_text(opening * opens)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    standby.prepare("further")
    process = standby.Process(TASK)
    assert told(process)["torch"] and isinstance(process.start(), standby.Forked)
    process.connection.send("import sys; connection.send('further' in sys.modules)")
    assert process.connection.recv() is not opens
    process.end()


@pytest.mark.parametrize("built", [None, "13.0"])
def test_torch_is_not_asked_for_a_gpu_while_modules_are_imported(
    monkeypatch: pytest.MonkeyPatch, built: str | None
) -> None:
    """On a GPU's machine Inductor of torch 2.11 asks, and would open it."""
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: asked.append("torch"))
    monkeypatch.setattr(torch.version, "cuda", built)
    with backends.unasked():
        assert torch.cuda.is_available() is (built is not None)
    assert not asked
    torch.cuda.is_available()
    assert asked


@linux
@pytest.mark.parametrize("interrupted", [False, True])
def test_what_inductor_asks_and_compiles_first_is_done_beside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, interrupted: bool
) -> None:
    """Once for a cache; a compiler that is interrupted leaves no half of a header."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    standby.prepare("torch._inductor.codegen.cpp")
    cached = tmp_path / f"torchinductor_{getpass.getuser()}"
    done, headers = cached / f"ulproof-{torch.__version__}", cached / "precompiled_headers"
    until = time.monotonic() + 120
    while not (any(headers.glob("**/*.h")) if interrupted else done.exists()) and time.monotonic() < until:
        time.sleep(0.02)
    running = [*_descendants(standby._standing.process.pid)] if standby._standing else []
    assert running or not interrupted
    standby.drop()
    _all_end(*running)
    assert done.exists() is not interrupted and any(headers.glob("**/*.gch")) is not interrupted


def _descendants(pid: int) -> Iterator[int]:
    """Processes below one, but for those that have ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, (state, parent) = int(path.parent.name), path.read_text().rpartition(") ")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                yield number
                yield from _descendants(number)


@linux
def test_one_that_has_ended_is_replaced() -> None:
    standby.prepare()
    assert standby._standing is not None
    standby._standing.process.kill()
    standby._standing.process.wait()
    assert first(standby.Process(TASK))["parent"] == os.getpid()


@linux
@pytest.mark.parametrize("fault", ["opened", "ended", "refused"])
def test_where_none_can_be_forked_processes_start_by_themselves(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(standby, "_forks", True)
    fault_of = {
        "opened": "standby.DEVICES = '/'",  # a device, by what stands by
        "ended": "sys.exit()",
        "refused": "standby.ADOPTION = 0.1",  # on a system on which nobody takes others' children
    }
    monkeypatch.setattr(standby, "STAND", standby.STAND.replace("standby.stand", f"{fault_of[fault]}\nstandby.stand"))
    if fault == "refused":
        monkeypatch.setattr(standby, "PR_SET_CHILD_SUBREAPER", 0)
    processes = [standby.Process(TASK), standby.Process(TASK)]
    try:
        found = [told(process) for process in processes]
        assert [one["pid"] for one in found] == [process.pid for process in processes]
        assert all(isinstance(process.start(), subprocess.Popen) for process in processes)
        assert all(one["torch"] and one["parent"] == os.getpid() and one["blocked"] for one in found)
        assert not standby._forks and standby._standing is None and not standby._starting
    finally:
        for process in processes:
            process.end()
    assert all(process.poll() == -signal.SIGKILL for process in processes)


DIVIDED = """
import os, sys
standby.divide(connection.fileno())
inner = standby.Process("test_standby:telling")
inner.start()
connection.send((inner.connection.recv(), standby._standing.process.pid))
"""


@linux
def test_a_forked_process_has_one_that_stands_by_for_it() -> None:
    outer = standby.Process(TASK)
    mine = told(outer)
    outer.connection.send(DIVIDED)
    inner, standing = outer.connection.recv()
    assert inner["parent"] == mine["pid"] and inner["torch"] and inner["pid"] not in (standing, mine["pid"])
    outer.end()
    _all_end(standing)


def test_none_is_left_when_its_parent_ends() -> None:
    code = """
import os
from verify.processes import standby
process = standby.Process("test_standby:telling")
process.start(), process.connection.recv()
print(process.pid, *([] if standby._standing is None else [standby._standing.process.pid]), flush=True)
"""
    for end in ("", "os._exit(0)", "os.kill(os.getpid(), 9)"):
        done = subprocess.run([sys.executable, "-c", code + end], capture_output=True, text=True, check=False)
        _all_end(*map(int, done.stdout.split()))


def _all_end(*pids: int) -> None:
    until = time.monotonic() + 60
    while any(map(_runs, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_message_waits_for_its_process() -> None:
    process = standby.Process(TASK)
    process.connection.send("connection.send('later')")
    assert told(process)["pid"] == process.pid and process.connection.recv() == "later"
    process.end()


def test_an_interrupt_while_a_process_starts_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number was asked for once more when it was ended, from a descriptor that was closed."""
    process = standby.Process(TASK)

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(standby, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            process.start()
    process.end(group=True)
    process.end()
    assert process._process is None and process.connection.closed
    after = standby.Process(TASK)
    assert told(after)["pid"] == after.pid
    after.end()


@pytest.mark.parametrize("own", [None, "glibc.malloc.check=0"])
def test_a_process_that_launches_keeps_no_freed_memory_and_has_the_callers_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str | None
) -> None:
    monkeypatch.setattr(start, "glibc", lambda: start.CACHED)
    if own is None:
        monkeypatch.delenv(start.TUNABLES, raising=False)
    else:
        monkeypatch.setenv(start.TUNABLES, own)
    code = """
import os, sys
from pathlib import Path
from verify.processes import start
before = os.environ[start.TUNABLES]
start.settle()
Path(sys.argv[1]).write_text(repr((before, os.environ.get(start.TUNABLES), start.KEPT in os.environ)))
"""
    told = tmp_path / "told"
    assert standby._started([code, str(told)], []).wait() == 0
    assert told.read_text() == repr((f"{own}:{start.UNCACHED}" if own else start.UNCACHED, own, False))
