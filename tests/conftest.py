"""Hypothesis profiles by name, and skipping of `gpu` tests where torch has no accelerator.

gate     the default: derandomized, so that the same commit gives the same verdict
nightly  random, failures kept in a database and replayed first
dev      random and short, for work on a test

Choose with `pytest --hypothesis-profile=nightly`.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

ROOT = Path(__file__).resolve().parent.parent

# A kernel's first call compiles, which takes seconds: neither a deadline nor "too slow" says anything here.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("gate", PATIENT, derandomize=True, database=None, max_examples=50)
settings.register_profile(
    "nightly", PATIENT, max_examples=2000, database=DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples")
)
settings.register_profile("dev", PATIENT, max_examples=20)
settings.load_profile("gate")  # also where CI is set, for which Hypothesis has a profile of its own


@functools.cache
def why_no_gpu() -> str:
    """The reason that no GPU can be used, or an empty string."""
    import torch

    if torch.accelerator.is_available():
        return ""
    return f"no GPU that torch {torch.__version__} can use"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and (reason := why_no_gpu()):
            item.add_marker(pytest.mark.skip(reason=reason))
