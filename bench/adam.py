"""Measure 1,000 AdamW steps over 10^6 parameters, checked in balls, and 256 of the parameters in multiprecision.

    python bench/adam.py [--count N] [--steps N] [--in-mp N]

Prints JSON. `bench/measure.py` takes the function.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Values = dict[str, Any]

OUTPUTS = ("param", "exp_avg", "exp_avg_sq")


def trajectory(count: int = 1_000_000, steps: int = 1000, in_mp: int = 256) -> Values:
    """Seconds of the kernel, the trajectory in balls, its decision and the parameters in multiprecision.

    Raises OracleViolation where a truth of multiprecision lies outside its ball.
    """
    import torch

    from verify import backends
    from verify.facts import kernel
    from verify.facts.formats import FORMATS
    from verify.judge.chunk import balls_of, require_inside
    from verify.judge.element import Limits, decide
    from verify.judge.exact import Exact
    from verify.kernels._adam import setting
    from verify.lower.lowering import Target
    from verify.lower.lowerings import lowerings
    from verify.numbers.functions import LIBRARY
    from verify.walk.instance import OfOutput, Placed

    facts, where, fmt = kernel.load("adamw_step"), backends.load("cpu"), FORMATS["float32"]
    parts: dict[str, float] = {}
    began, used = time.perf_counter(), time.process_time()

    def lap(name: str, start: float) -> float:
        now = time.perf_counter()
        parts[f"{name}_s"] = now - start
        return now

    own = setting("bench", steps=steps, sizes=[count])
    problem = facts.problem("float32", own, facts.cases[0], 0)
    target = Target(facts, facts.cases[0], own.name, "float32", where)
    start = lap("problem", began)
    [fused] = [lowering for lowering in lowerings(facts) if lowering.name == "fused"]
    outputs = fused.build(target)(problem)
    start = lap("kernel", start)
    source = facts.truth(problem, "cpu", LIBRARY)
    source.enclose("param")
    start = lap("ball", start)
    left, largest = 0, 0.0
    for name in OUTPUTS:
        y = outputs[name].reshape(-1)
        elements = OfOutput(source, name, tuple(y.shape), fmt, Exact(Placed(source, name), fmt), None, name)
        found = decide(y, elements.facts(None, y, double=False, zeroed=False), fmt, Limits())
        left += int(found.open.sum())
        largest = max(largest, float(found.scaled.max()))
    start = lap("decide", start)
    for k in range(in_mp):
        index = (2 * k + 1) * count // (2 * in_mp)
        for name in OUTPUTS:
            enclosure, _ = source.enclose(name)
            [ball] = balls_of(enclosure.take(0).take(torch.tensor([index])))
            require_inside(ball, next(source.exact(name, index)), fmt, f"{name}[{index}]")
    end = lap("mp", start)
    tensors = [*problem.tensors.values(), *outputs.values()]
    return {
        "runs_s": [end - began],
        "processor_s": [time.process_time() - used],
        **parts,
        "left_to_multiprecision": left,
        "max_scaled_ulp": largest,
        "tensors_mib": sum({t.data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values()) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="parameters")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--in-mp", type=int, default=256, help="parameters checked in multiprecision")
    arguments = parser.parse_args()
    print(json.dumps(trajectory(arguments.count, arguments.steps, arguments.in_mp)))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
