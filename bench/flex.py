"""Measure the check of attention at batch 2, heads 4, length 4,096, head 64: in balls, and rows in multiprecision.

    python bench/flex.py [--backend NAME] [--only ball,double,limit,rows] [--length N]

Prints JSON. `bench/measure.py` takes the functions. A check is the enclosure of every element of both outputs and the
decision on a lowering's; the kernel's own time is that of the fastest lowering of float32 `highest` present.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Values = dict[str, Any]

LENGTH = 4096
#: Kernels whose own time is taken, where they exist.
TIMED = ("eager", "compiled", "sdpa-flash", "sdpa-efficient", "triton")


def given(backend: str, length: int = LENGTH, data: str = "competing") -> tuple[Any, Any, Any]:
    """The problem on the backend's device, its setting's facts as a target, and the backend."""
    import dataclasses

    from verify import backends
    from verify.facts.kernel import load
    from verify.kernels import _flex
    from verify.kernels.flex_attention import setting
    from verify.lower.lowering import Target

    own = setting("bench", batch=2, heads=4, kv_heads=4, q_len=length, kv_len=length, data=data, backward=False)
    facts = dataclasses.replace(load("flex_attention"), settings=(own,))
    where = backends.load(backend)
    problem = _flex.problem("float32", own, {}, 0).to(where.device)
    return problem, Target(facts, {}, own.name, "float32", where), where


def timed(run: Callable[[], Any], synchronize: Callable[[], None], repetitions: int) -> tuple[list[float], float, Any]:
    """Wall seconds of each repetition after one that warms up, the processor's seconds of the best, the last result."""
    result = run()
    walls, processor = [], []
    for _ in range(repetitions):
        synchronize()
        began, used = time.perf_counter(), time.process_time()
        result = run()
        synchronize()
        walls.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    return walls, min(processor), result


def kernels(problem: Any, target: Any, where: Any, repetitions: int = 5) -> tuple[dict[str, float], Any]:
    """Best seconds of each lowering in TIMED, and the outputs of one that gives both."""
    import torch

    from verify.kernels import _flex_lowerings
    from verify.lower.lowering import NotLowered

    best: dict[str, float] = {}
    outputs: Any = None
    for lowering in _flex_lowerings.lowerings():
        if lowering.name not in TIMED or lowering.reason(target):
            continue
        if where.name == "cpu" and lowering.name in ("eager", "compiled"):
            continue  # a gigabyte of scores; minutes of compilation
        try:
            call = lowering.build(target)
            with torch.no_grad():
                walls, _, found = timed(lambda call=call: call(problem), where.synchronize, repetitions)  # type: ignore[misc]
        except NotLowered:
            continue
        best[lowering.name] = min(walls)
        if outputs is None or len(found) > len(outputs):
            outputs = found
    return best, outputs


def ball(backend: str, repetitions: int = 3, length: int = LENGTH) -> Values:
    """The check in float64 balls: enclosures of all elements, and their decision."""
    import torch

    from verify.facts.formats import FORMATS
    from verify.judge.chunk import BLOCK, MOST
    from verify.judge.element import Limits, decide
    from verify.judge.exact import Exact
    from verify.kernels import _flex
    from verify.walk.instance import OfOutput, Placed

    problem, target, where = given(backend, length)
    best, outputs = kernels(problem, target, where)
    fmt = FORMATS["float32"]
    if where.name != "cpu":
        torch.cuda.reset_peak_memory_stats()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def check() -> dict[str, int]:
        source = _flex.AttentionTruth(problem, where.device, {"exp": 4.0, "log": 4.0, "tanh": 8.0})
        left = {}
        for name, y in outputs.items():
            flat = y.reshape(-1)
            elements = OfOutput(source, name, tuple(flat.shape), fmt, Exact(Placed(source, name), fmt), name)
            left[name] = 0
            for index in torch.arange(len(flat), device=flat.device).split(BLOCK if flat.is_cpu else MOST):  # as there
                facts = elements.facts(index, flat[index], double=False, zeroed=False)
                left[name] += int(decide(flat[index], facts, fmt, Limits()).open.sum())
        return left

    walls, processor, left = timed(check, where.synchronize, repetitions)
    tensors = [*problem.tensors.values(), *outputs.values()]
    return {
        "runs_s": walls,
        "processor_s": [processor],
        "kernel_s": best,
        "share_of_kernel": min(walls) / min(best.values()),
        "open": left,
        "elements": {name: t.numel() for name, t in outputs.items()},
        "tensors_mib": sum(t.nbytes for t in tensors) / 2**20,
        "host_peak_more_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "device_peak_mib": torch.cuda.max_memory_allocated() / 2**20 if where.name != "cpu" else None,
    }


def double(backend: str, length: int = LENGTH) -> Values:
    """What balls leave open, in double-double."""
    import torch

    from verify.kernels import _flex

    problem, _, where = given(backend, length)
    source = _flex.AttentionTruth(problem, where.device, {"exp": 4.0, "log": 4.0, "tanh": 8.0})
    places = (torch.arange(40) * 52361 + 77) % (8 * length * 64)
    walls, processor, _ = timed(lambda: source.enclose("out", places, double=True), where.synchronize, 1)
    return {"runs_s": walls, "processor_s": [processor], "elements": 40}


def limit(backend: str, length: int = LENGTH) -> Values:
    """The bound of every element."""
    from verify.kernels import _flex_algorithms

    problem, target, where = given(backend, length)
    algorithm = _flex_algorithms.algorithm_of("compiled", target.backend.name, "float32", problem.extra["shape"])
    walls, processor, _ = timed(lambda: _flex_algorithms.bounds(problem, algorithm), where.synchronize, 1)
    return {"runs_s": walls, "processor_s": [processor]}


def rows(backend: str = "cpu", count: int = 64, length: int = LENGTH) -> Values:
    """Whole rows in multiprecision: all elements of `count` rows of the output, and their logsumexp."""
    from verify.kernels import _flex

    problem, _, _ = given("cpu", length)
    source = _flex.AttentionTruth(problem, "cpu", {"exp": 4.0, "log": 4.0, "tanh": 8.0})
    began, used = time.perf_counter(), time.process_time()
    for k in range(count):
        row = (k * 2654435761) % (8 * length)
        for column in range(64):
            next(iter(source.exact("out", row * 64 + column)))
        next(iter(source.exact("logsumexp", row)))
    return {"runs_s": [time.perf_counter() - began], "processor_s": [time.process_time() - used], "rows": count}


MEASURES: dict[str, Callable[..., Values]] = {"ball": ball, "double": double, "limit": limit, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--only", default="ball,double,limit,rows", help="comma-separated: " + ", ".join(MEASURES))
    parser.add_argument("--length", type=int, default=LENGTH)
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in MEASURES]:
        parser.error(f"unknown measure {unknown[0]!r} (known: {', '.join(MEASURES)})")
    for name in names:
        print(json.dumps({name: MEASURES[name](arguments.backend, length=arguments.length)}), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
