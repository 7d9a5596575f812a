"""Kill rates of the default domains, as Markdown: `PYTHONPATH=. python3 tests/mutants/report.py` in the repository."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutants.boxes import kill_rate, random_boxes
from mutants.planted import domain

#: The domains that are measured, and the seed and number of the boxes.
MEASURED: tuple[tuple[str, dict[str, float]], ...] = (
    ("addcmul", {"value": 1.0}),
    ("lerp", {}),
    ("pow", {}),
    ("div", {}),
)
SEED, COUNT = 0, 200


def killed(profile: str = "default", names: tuple[str, ...] = ()) -> dict[str, int]:
    """How many of COUNT random boxes the float32 domains of a profile reach, by kernel; no names: all."""
    found = {}
    for name, scalars in MEASURED:
        if names and name not in names:
            continue
        drawn = domain(name, scalars, "float32", profile)
        boxes = random_boxes(drawn.fmt, len(drawn.names), SEED, COUNT)
        found[name] = round(kill_rate(drawn, boxes) * COUNT)
    return found


def table(found: dict[str, int], profile: str = "default") -> str:
    lines = [f"| float32, {profile} domain | killed of {COUNT} random boxes |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {count} ({count / COUNT:.1%}) |" for name, count in found.items())])


if __name__ == "__main__":
    print(table(killed()))
