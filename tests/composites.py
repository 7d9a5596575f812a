"""Cells of composite kernels in settings that no kernel lists, filled as a run fills them."""

from __future__ import annotations

from typing import Any

import torch

from verify.backends import Backend
from verify.facts.kernel import Composite, Setting, is_file
from verify.judge.cell import overall
from verify.lower.lowering import Lowering, Target
from verify.walk.cases import terms
from verify.walk.cells import fill
from verify.walk.instance import Instance
from verify.walk.plan import Job, Selection


def cells(
    facts: Composite, setting: Setting, lowering: Lowering, dtype: str, backend: Backend, *, seed: int = 0,
    **scalars: float,
) -> list[dict[str, Any]]:  # fmt: skip
    """One cell for each output of the kernel in `setting`."""
    target = Target(facts, scalars, setting.name, dtype, backend)
    job = Job(target, lowering, mine=is_file(lowering.name), setting=setting)
    return fill(job, [], Selection((facts.name,), seed=seed))


def share(instance: Instance, target: Target, lowering: Lowering, output: str, y: torch.Tensor) -> float:
    """The largest |y - t| over what an element may be."""
    stated, on = terms(instance, target, lowering, 0, output, y)
    one = on["exact"]
    tally = one.judge.tally(one.elements, y.contiguous().reshape(-1))
    found: float = overall(one.reader, tally, stated)["max_share"]
    return found
