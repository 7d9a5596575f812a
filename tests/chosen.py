"""What of many cases a commit chooses."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path

from verify import __version__

ROOT = Path(__file__).resolve().parents[1]


@cache
def commit() -> str:
    """HEAD's, or the package's version where there is no repository."""
    try:
        found = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return found.stdout.strip()


def picks(of: str, name: str, parts: int) -> bool:
    """Whether a commit, or any other text, picks `name`, as it does one name in `parts`."""
    return hashlib.sha256(f"{of} {name}".encode()).digest()[0] * parts // 256 == 0
