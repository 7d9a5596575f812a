"""The gate's Hypothesis profile, skipping of `gpu` tests where torch has no accelerator, and the workers' threads."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest
from hypothesis import settings

# A hook of this conftest too, since a working tree has no entry points; doing it twice changes nothing.
from verify.plugin import pytest_configure as pytest_configure
from verify.plugin import register_profiles

if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    # They share the cores: torch's threads spin, and more of them than cores wait for one another.
    # The processes that tests start inherit it.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(workers))))

register_profiles(Path(__file__).resolve().parent.parent)
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
