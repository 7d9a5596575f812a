"""The pytest plugin: Hypothesis profiles by name, and the markers that the tests of kernels use.

gate     derandomized, so that the same commit gives the same verdict
nightly  random and long, failures kept in a database and replayed first
dev      random and short, for work on a test

Nothing is loaded: choose with `pytest --hypothesis-profile=NAME`, or in a conftest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

MARKERS = (
    "gpu: needs a GPU that torch can use; skipped with its reason elsewhere",
    "exhaustive: walks a whole input space; minutes, run with -m exhaustive",
    "slow: more than 20 seconds on two cores",
)


# Before Hypothesis' own plugin, which loads the profile that the command line names.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    register_profiles(config.rootpath)
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def register_profiles(root: Path) -> None:
    """Register the profiles that a project has not registered itself; nightly's database is below `root`."""
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis.database import DirectoryBasedExampleDatabase
    from hypothesis.errors import InvalidArgument

    # A kernel's first call compiles, which takes seconds: neither a deadline nor "too slow" says anything here.
    # A failure is explained by its element, not by the lines that ran.
    phases = [phase for phase in Phase if phase is not Phase.explain]
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, phases=phases)
    database = DirectoryBasedExampleDatabase(root / ".hypothesis" / "examples")
    profiles = {
        "gate": settings(patient, derandomize=True, database=None, max_examples=50),
        "nightly": settings(patient, max_examples=2000, database=database),
        "dev": settings(patient, max_examples=20),
    }
    for name, profile in profiles.items():
        try:
            settings.get_profile(name)
        except InvalidArgument:
            settings.register_profile(name, profile)
