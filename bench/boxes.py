"""How strong the domains are: the share of random boxes of inputs that they reach, written to a JSON file.

    python bench/boxes.py --out reports/measured/boxes.json

A mutant of a box is wrong inside it only; it is found when an element of the domain lies inside. The boxes
(tests/mutants/boxes.py) know nothing of the domains. `docs/tables.py` puts the file into docs/results/.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from mutants.boxes import kill_rate, random_boxes  # noqa: E402
from verify.facts.formats import FORMATS  # noqa: E402
from verify.facts.kernel import elementwise_names, load  # noqa: E402
from verify.inputs.domains import domain_of  # noqa: E402

SEED = 0
BOXES = 200


def rates(kernels: list[str], profiles: list[str], dtype: str) -> Iterator[dict[str, Any]]:
    """One entry for each kernel, in its first case, and profile."""
    fmt = FORMATS[dtype]
    for name in kernels:
        kernel = load(name)
        scalars = kernel.cases[0]
        for profile in profiles:
            domain = domain_of(kernel, fmt, scalars, profile)
            boxes = random_boxes(fmt, len(domain.names), SEED, BOXES)
            print(f"{name} {profile}: {domain.size} elements", file=sys.stderr, flush=True)
            yield {
                "kernel": name,
                "scalars": dict(scalars),
                "dtype": dtype,
                "profile": profile,
                "elements": domain.size,
                "boxes": len(boxes),
                "killed": round(kill_rate(domain, boxes) * len(boxes)),
            }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--kernel", action="append", metavar="NAME", help="repeatable [all]")
    parser.add_argument("--profile", action="append", metavar="NAME", help="repeatable [quick, default]")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    kernels = options.kernel or elementwise_names()
    document = {
        "schema": 1,
        "command": shlex.join(["python", "bench/boxes.py", *sys.argv[1:]]),
        "seed": SEED,
        "rates": list(rates(kernels, options.profile or ["quick", "default"], options.dtype)),
    }
    options.out.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
