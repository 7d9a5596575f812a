"""Hypothesis profiles, markers, skipping of `gpu` tests where torch has no accelerator, and the workers' threads.

Profiles, chosen by `pytest --hypothesis-profile=NAME`:
gate     the default; derandomized, so that the same commit gives the same verdict
nightly  random and long; failures are kept in a database and replayed first
dev      random and short, for work on a test
"""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

import chosen

ROOT = Path(__file__).resolve().parent.parent
MARKERS = (
    "gpu: needs a GPU that torch can use; skipped with its reason elsewhere",
    "exhaustive: walks a whole input space; minutes, run with -m exhaustive",
    "part(n): of the tests and cases of that mark one in n, which the commit chooses; the others are exhaustive",
    "slow: more than 20 seconds on two cores",
)

if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    # They share the cores: torch's threads spin, and more of them than cores wait for one another.
    # The processes that tests start inherit it.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(workers))))

# A shell's background jobs ignore Ctrl-C, and so would all that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A kernel's first call compiles, which takes seconds, so deadlines and "too slow" say nothing here. A failure is
# explained by its element, not by the lines that ran.
PATIENT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)  # fmt: skip
DATABASE = DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples")
settings.register_profile("gate", PATIENT, derandomize=True, database=None, max_examples=50)
settings.register_profile("nightly", PATIENT, max_examples=2000, database=DATABASE)
settings.register_profile("dev", PATIENT, max_examples=20)
settings.load_profile("gate")  # also under CI, for which Hypothesis has a profile of its own


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@functools.cache
def why_no_gpu() -> str:
    """The reason that no GPU can be used, or an empty string."""
    import torch

    if torch.accelerator.is_available():
        return ""
    return f"no GPU that torch {torch.__version__} can use"


@pytest.hookimpl(tryfirst=True)  # before pytest deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        part, gpu = item.get_closest_marker("part"), item.get_closest_marker("gpu")
        if part and not gpu and not chosen.picks(chosen.commit(), item.nodeid, *part.args):
            item.add_marker(pytest.mark.exhaustive)
        if gpu and (reason := why_no_gpu()):
            item.add_marker(pytest.mark.skip(reason=reason))
