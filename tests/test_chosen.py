"""What a commit chooses of many cases, and that nothing else is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from chosen import picks

ROOT = Path(__file__).parents[1]


def test_each_part_is_chosen_by_some_text() -> None:
    names, texts = [f"case {k}" for k in range(200)], [f"commit {k}" for k in range(60)]
    found = [[name for name in names if picks(text, name, 3)] for text in texts]
    assert {name for part in found for name in part} == set(names)
    assert all(30 < len(part) < 110 for part in found)
    assert [name for name in names if picks("commit 0", name, 1)] == names


def test_what_the_commit_does_not_choose_is_exhaustive() -> None:
    """In a process as the other tests' is; of a part no case is lost or twice, and what is no part is always there."""

    def collected(marked: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", marked]
        done = subprocess.run(
            [*command, "tests/test_judge.py"], capture_output=True, text=True, check=False, cwd=ROOT, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if "::" in line]

    part, every = "part and not gpu", collected("part and not gpu")
    mine, others = collected(f"{part} and not exhaustive"), collected(f"{part} and exhaustive")
    assert sorted(mine + others) == sorted(every)
    assert mine and others
    assert len(collected("not exhaustive")) > len(mine) > len(every) // 5
