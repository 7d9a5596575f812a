"""Kill rates of the float32 domains of two or three inputs, as Markdown: `PYTHONPATH=. python3 tests/mutants/report.py`
in the repository."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutants.boxes import kill_rate, random_boxes
from mutants.planted import domain
from verify import kernel
from verify.kernel import Scalars

#: The seed and number of the boxes.
SEED, COUNT = 0, 200


def measured() -> list[tuple[str, Scalars]]:
    """Each elementwise kernel with the first of its cases that has two, and three, tensor inputs."""
    found = []
    for name in kernel.elementwise_names():
        facts, seen = kernel.load(name), {1}
        for scalars in facts.cases:
            arity = len(facts.tensors(scalars))
            if arity not in seen:
                seen.add(arity)
                found.append((name, scalars))
    return found


def killed(profile: str, name: str, scalars: Scalars) -> int:
    """How many of COUNT random boxes the float32 domain of a profile reaches."""
    drawn = domain(name, dict(scalars), "float32", profile)
    return round(kill_rate(drawn, random_boxes(drawn.fmt, len(drawn.names), SEED, COUNT)) * COUNT)


def table(profile: str = "default") -> str:
    lines = [f"| float32, {profile} domain | killed of {COUNT} random boxes |", "|---|---|"]
    for name, scalars in measured():
        count = killed(profile, name, scalars)
        shown = "".join(f" {key}={value!r}" for key, value in scalars.items())
        lines.append(f"| `{name}`{shown} | {count} ({count / COUNT:.1%}) |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
