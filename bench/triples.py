"""Triples of 16-bit inputs a second: of the fused pass alone, and of the walk over a range of the domain.

    python3 bench/triples.py cuda lerp float16 --elements 30

On a GPU the first range takes some minutes more, to compile. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from verify import backends
from verify.walk.cells import part_of
from verify.walk.plan import Selection, jobs_of, planned
from verify.walk.pointwise import Pointwise

START = 0x3C01_3000_0000  # where the first two inputs are ordinary


def measured(backend_name: str, kernel: str, dtype: str, lowering: str, elements: int) -> dict[str, Any]:
    backend = backends.load(backend_name)
    selection = Selection(
        (kernel,), (backend_name,), (dtype,), (lowering,), ("out-of-place",), "exhaustive", triples=True
    )
    jobs = list(jobs_of(selection, backend))
    number, domain = next((n, d) for n, d in planned(jobs, selection).sweeps.items() if d.size == 1 << 48)
    job, held = jobs[number], []  # type: ignore[var-annotated]
    start = START // elements * elements
    part_of(job, start, start + elements, held, selection)  # compiles
    began = time.perf_counter()
    part = part_of(job, start + elements, start + 2 * elements, held, selection)
    walk = time.perf_counter() - began
    case = held[0]
    assert isinstance(case, Pointwise) and domain == case.inputs
    at = start // case.portion
    y = case.built(job.lowering, job.target)(*case.given(at))
    engine, limits = case.engine(at, "", "exact"), (float("inf"),) * 4
    assert engine is not None
    engine(y, None, limits)
    backend.synchronize()
    began = time.perf_counter()
    reduced = engine(y, None, limits)
    backend.synchronize()
    fused = time.perf_counter() - began
    counts = {"elements": elements, "portion": case.portion, "open": len(reduced.open), "failed": "cells" in part}
    return counts | {"walk_a_second": elements / walk, "fused_a_second": len(y) / fused, "label": job.label}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("backend", "kernel", "dtype"):
        parser.add_argument(name)
    parser.add_argument("--lowering", default="eager")
    parser.add_argument("--elements", type=int, default=30, help="log2 of those of a range")
    given = parser.parse_args()
    print(json.dumps(measured(given.backend, given.kernel, given.dtype, given.lowering, 1 << given.elements)))
