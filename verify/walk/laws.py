"""The laws that a kernel states (`verify.facts.kernel.Property`), judged on a lowering: exact points, symmetry,
monotonicity.

A law compares outputs with one another or with inputs, bit for bit but for the sign of a zero: no truth is needed.
"""

from __future__ import annotations

from typing import Any

import torch

from verify.facts.formats import FORMATS
from verify.inputs.domains import Domain
from verify.judge.chunk import patterns
from verify.judge.reduce import first_of
from verify.lower.lowering import Call, Target
from verify.workers.launch import launch_steady

Tensor = torch.Tensor
SIZE = 1 << 14  # elements that a law is judged on


def hold(target: Target, call: Call, name: str, *, size: int = SIZE, seed: int = 0) -> list[dict[str, Any]]:
    """The laws that the lowering `name` of the target promises, kept or broken; none where it promises none.

    call   the lowering, built for the target
    size   of the inputs, drawn from the kernel's strata with `seed`

    Each is {"name", "inputs", "violations", "witness"}: on how many elements (or pairs of neighbours) it was judged, on
    how many it is broken, and the inputs of the first of these as hex floats, as the lowering got them. Raises
    LoweringError and NotLowered as `verify.workers.launch.launch_steady` does.
    """
    kernel, scalars, fmt = target.kernel, target.scalars, FORMATS[target.dtype]
    laws = [p for p in kernel.properties if p.suits(lowering=name, spelling=target.spelling, scalars=scalars)]
    if not laws:
        return []
    names = kernel.tensors(scalars)
    domain = Domain("strata", fmt, names, kernel.domain(fmt, names, dict(scalars), size), seed)
    drawn = dict(zip(names, domain.span(0, min(size, domain.size), target.backend.check_device), strict=True))
    last: list[Tensor] = []

    def run(**tensors: Tensor) -> Tensor:
        last[:] = [tensors[key] for key in names]
        return launch_steady(call, last, target.backend, name, repeats=1).output

    found = []
    for law in laws:
        broken = ~law.check(run, drawn).reshape(-1)
        first, count = first_of(broken), int(broken.sum())
        # of sorted inputs a law judges neighbours: it has one judgement fewer than there are inputs
        places = [] if first < 0 else list(range(first, first + 1 + last[0].numel() - broken.numel()))
        witness = [fmt.hex(patterns(t[k : k + 1], fmt)[0]) for k in places for t in last]
        found.append({"name": law.name, "inputs": broken.numel(), "violations": count, "witness": witness})
    return found
