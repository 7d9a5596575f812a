"""Runs as jobs: in worker processes, interrupted and gone on with, in shards."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numbered import doubling, nothing
from verify import run
from verify.jobs.pool import Ended, ended
from verify.run import Selection

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
    assert found[1] == Ended(1, died="the process that ran it was killed by SIGSEGV")
    assert isinstance(found[7].value, ValueError) and "in do" in found[7].value.__notes__[0]
    assert {n: found[n].value[0] for n in (0, 2, 6, 8, 9)} == {0: 0, 2: 4, 6: 12, 8: 8, 9: 18}
    assert found[0].value[1] != found[2].value[1] == found[8].value[1] != found[9].value[1]
    assert os.getpid() not in {found[n].value[1] for n in (0, 2, 6, 8, 9)}


def test_a_worker_that_cannot_begin_ends_the_run() -> None:
    with pytest.raises(RuntimeError, match="ended with exit code 5 before it did anything"):
        list(ended(nothing, [[0], [1]], [{}, {}]))


def test_what_is_not_wanted_is_not_done_and_closing_ends_the_processes() -> None:
    stream = ended(doubling, [[0, 1, 2], [3]], [{"PLACE": "a"}], lambda number: number != 1)
    first = next(stream)
    assert first.number == 0 and [one.number for one in stream] == [2, 3]
    stream = ended(doubling, [[0, 1, 2]], [{}])
    pid = next(stream).value[1]
    stream.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_workers_give_the_cells_of_one_process(tmp_path: Path) -> None:
    """In the same order, whatever dies beside them."""
    path = tmp_path / "mine.py"
    path.write_text("import os\ndef works(x):\n    return 1 / x\ndef dies(x):\n    os._exit(3)\n")
    both = replace(SMALL, kernels=("reciprocal",), spellings=(), user_lowerings=(f"{path}:works", f"{path}:dies"))
    seen: list[Any] = []
    ends: list[tuple[Any, ...]] = []
    found = run.run(both, seen.append, lambda *given: ends.append(given), workers=2)["cells"]
    assert found == seen
    alone = run.run(replace(both, user_lowerings=(f"{path}:works",)))["cells"]
    assert bare([cell for cell in found if cell["lowering"] != "mine.py:dies"]) == bare(alone)
    plain, *layouts = [cell for cell in found if cell["lowering"] == "mine.py:dies"]
    assert (plain["status"], plain["reason_kind"]) == ("error", "died")
    assert plain["reason"] == "lowering mine.py:dies: the process that ran it ended with exit code 3"
    assert layouts and {cell["reason"] for cell in layouts} == {"its plain call ended in an error"}
    assert [done for done, *_ in ends] == sorted(done for done, *_ in ends) and ends[-1][:2] == (len(found), len(found))


def test_any_number_of_processes_gives_equal_cells() -> None:
    assert bare(run.run(SMALL, workers=3)["cells"]) == serial()
