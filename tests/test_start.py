"""How a process starts: what it sets before torch is there, and what the collector of garbage leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _told(program: str, **variables: str) -> str:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "TRITON_CACHE_DIR")
    }
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT,
        env=environment | variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_threads_wait_without_spinning_unless_the_user_says_how() -> None:
    program = "import os; from verify.processes import start; start.settle(); print(os.environ['OMP_WAIT_POLICY'])"
    assert _told(program) == "PASSIVE"
    assert _told(program, OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"


def test_garbage_is_looked_for_less_often_in_every_process() -> None:
    program = "import gc; from verify.processes import start; start.settle(); print(gc.isenabled(), gc.get_threshold())"
    assert _told(program) == "True (700, 10, 100)"


def test_triton_keeps_compiled_code_where_it_does_by_itself(tmp_path: Path) -> None:
    """Inductor sets TRITON_CACHE_DIR where it is not set (torch/_inductor/runtime/triton_heuristics.py)."""
    pytest.importorskip("triton")
    program = "from triton import knobs; print(knobs.cache.dir)"
    settled = "import os; from verify.processes import start; start.settle(); print(os.environ['TRITON_CACHE_DIR'])"
    for name in ("HOME", "TRITON_HOME", "TRITON_CACHE_DIR"):
        assert _told(settled, **{name: str(tmp_path)}) == _told(program, **{name: str(tmp_path)})


def test_a_measurement_is_of_a_process_like_the_commands(tmp_path: Path) -> None:
    program = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, "bench")
import measure
measure.fingerprints = lambda: {{"policy": os.environ["OMP_WAIT_POLICY"], "torch": "torch" in sys.modules}}
measure.child("fingerprints", 1.0, Path({str(tmp_path / "result.json")!r}))
"""
    _told(program)
    assert (tmp_path / "result.json").read_text() == '{"policy": "PASSIVE", "torch": false}'


def test_what_is_imported_is_not_searched_for_garbage_and_what_came_later_is() -> None:
    program = """
import gc
from verify.processes import start
with start.importing():
    assert not gc.isenabled()
    import verify.walk.plan
frozen = gc.get_freeze_count()
assert gc.isenabled() and frozen > 50_000, frozen
class Knot: gone = 0
def tied():
    knot = Knot()
    knot.self = knot
    knot.__class__.__del__ = lambda self: setattr(Knot, "gone", Knot.gone + 1)
tied()
with start.importing():  # torch is there
    assert gc.isenabled()
gc.collect()
print(gc.get_freeze_count() <= frozen, Knot.gone)
"""
    assert _told(program) == "True 1"


def test_what_plans_a_gpus_scans_imports_inductor_once_for_all_processes(tmp_path: Path) -> None:
    """It took most of the seconds before a run's first job."""
    pytest.importorskip("triton")
    program = """
import sys
from verify.facts import kernel
from verify.families import rows_lowerings
from verify.lower.lowering import Target
class Gpu:
    device, inductor_unavailable = "cuda", lambda self: None
target = Target(kernel.load("cumsum"), {}, "rows", "float32", Gpu())
print(rows_lowerings._no_inductor(target), "torch._inductor.codegen" in sys.modules)
"""
    kept = {"XDG_CACHE_HOME": str(tmp_path)}
    assert [_told(program, **kept) for _ in range(2)] == ["None True", "None False"]


def test_a_thinned_sweep_has_the_portions_that_it_says() -> None:
    program = """
import sys
sys.path.insert(0, "bench")
import measure
values = measure.sweep("exp", "eager", "cpu", repetitions=1)(1 / 512)
print(values["inputs"] == 2**32 // 512, values["ratio"] > 1)
"""
    assert _told(program) == "True True"


def test_a_plan_asks_inductor_once(tmp_path: Path) -> None:
    """What it answers is kept, but for a compiler that it does not find: whoever installs one is not to wait."""
    code = """
import sys
from verify import backends
from verify.walk.plan import Selection, jobs_of
chosen = Selection(("add", "adam_step", "cumsum", "flex_attention"), ("cpu",), profile="quick")
jobs = list(jobs_of(chosen, backends.load("cpu")))
reasons = [str(job.reason) for job in jobs]
print("torch._inductor" in sys.modules, reasons.count("None"), sorted({*reasons}))
"""

    def planned(**variables: str) -> tuple[str, str, str]:
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)} | variables
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        imported, number, reasons = done.stdout.split(" ", 2)
        return imported, number, reasons

    first = planned()
    assert first[0] == "True" and planned() == ("False", *first[1:])
    for _ in range(2):
        imported, number, reasons = planned(CXX="/nowhere/c++")
        assert imported == "True" and int(number) < int(first[1]) and "Inductor finds no C++ compiler" in reasons
    assert planned() == ("False", *first[1:])


def test_an_interrupt_while_a_command_ends_is_not_heard() -> None:
    """What torch puts away then was interrupted, and told so at length."""
    program = """
import atexit, os, signal
from verify import __main__ as command
def main():
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
    return 130
signal.signal(signal.SIGINT, signal.default_int_handler)
command.main = main
command.process()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")
