"""Processes that are started ahead of their use: which one is taken, and that none is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from verify import standby


@pytest.fixture(autouse=True)
def _none_ready() -> Iterator[None]:
    standby.drop()
    yield
    standby.drop()


def test_a_process_is_started_ahead_and_the_next_one_when_told_to() -> None:
    standby.prepare(2)
    (first,) = standby._ready
    taken = standby.take()
    assert taken is first and not standby._ready and taken.fits
    standby.go_on()
    (second,) = standby._ready
    standby.go_on()
    assert standby._ready == [second]  # no more than were wanted
    standby.prepare(1)
    assert standby._ready == [second]
    standby.drop()
    assert second.process.poll() is not None and taken.process.poll() is None
    taken.end()
    assert taken.process.poll() is not None


def test_none_is_taken_that_has_ended_or_was_started_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for change in ("ended", "variable", "folder"):
        standby.prepare(1)
        (old,) = standby._ready
        if change == "ended":
            old.process.kill()
            old.process.wait()
        elif change == "variable":
            monkeypatch.setenv("OMP_NUM_THREADS", "7")
        else:
            monkeypatch.chdir(tmp_path)
        taken = standby.take()
        assert taken is not old and taken.fits and old.process.poll() is not None
        taken.end()
    standby.prepare(1)
    (old,) = standby._ready
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another")
    taken = standby.take()
    assert taken is old
    taken.end()


def test_none_is_left_when_its_parent_ends() -> None:
    code = "from verify import standby; standby.prepare(1); print(standby._ready[0].process.pid, flush=True)"
    for end in ("", "; import os; os._exit(0)"):
        done = subprocess.run(
            [sys.executable, "-c", code + end.replace("; ", "\n")], capture_output=True, text=True, check=True
        )
        pid, until = int(done.stdout), time.monotonic() + 60
        while _runs(pid) and time.monotonic() < until:
            time.sleep(0.1)
        assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
