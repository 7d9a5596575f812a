"""Batch invariance: whether the bits of a row depend on the batch that it is computed in.

A row (of a scan, a softmax; a sequence of attention) is computed alone, then in batches of other sizes, at other places
of a batch, and beside other rows. Its exact result is the same each time. Where its bits are not, a model's answer
depends on the other requests in the batch. How far such bits are from the real number is `verify kernel`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from verify.facts import kernel
from verify.facts.kernel import Composite, Setting, UsageError, is_file
from verify.families.composite import Problem
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.lower.lowerings import lowerings
from verify.walk.plan import Job, Selection, backends_of, jobs_of
from verify.walk.progress import Progress
from verify.workers.launch import REPEATS, LoweringError, Outputs, bits, launch_steady

Tensor = torch.Tensor
#: Sizes of batches: powers of two, where kernels change how they divide the work, and beside them.
SIZES = (2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 128, 129, 256)
PLACED = 64  # size of the batch in which rows are placed elsewhere, and beside others


@dataclass(frozen=True)
class Found:
    """Of one lowering, in one dtype, for rows of one length.

    sizes      how many sizes of batches were tried, beside a row alone
    differing  those in which some row has other bits than alone
    row        the first such row in the smallest of them, and steps, by how many representable numbers its elements
               differ at most, in any batch
    place      whether bits depend on the place in the batch; contents: on the other rows
    scalars    those that it was called with
    reason     why it did not run; '' where it did
    failed     whether that is a fault of the lowering's
    """

    kernel: str
    lowering: str
    backend: str
    dtype: str
    length: int
    sizes: int = 0
    differing: tuple[int, ...] = ()
    row: int = -1
    steps: int = 0
    place: bool = False
    contents: bool = False
    scalars: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    failed: bool = False

    @property
    def invariant(self) -> bool:
        return not (self.reason or self.differing or self.place or self.contents)

    def record(self) -> dict[str, Any]:
        return {**vars(self), "differing": list(self.differing), "invariant": self.invariant}


def invariance_of(target: Target, lowering: Lowering, length: int, seed: int = 0) -> Found:
    """Judge one lowering of a kernel that has `batched`, whatever the target's spelling."""
    facts, scalars, dtype, backend = target.kernel, target.scalars, target.dtype, target.backend
    about = Found(facts.name, lowering.name, backend.name, dtype, length, scalars=scalars)

    def prepared(rows: int) -> tuple[Problem, Setting]:
        assert facts.custom is not None and facts.batched is not None
        setting = facts.custom(facts.batched(rows, length))
        return facts.problem(dtype, setting, dict(scalars), seed), setting

    largest, setting = prepared(max(SIZES))
    one = prepared(1)[0].tensors
    batched = frozenset(name for name, t in largest.tensors.items() if t.shape != one[name].shape)
    target = replace(target, spelling=setting.name)
    if reason := backend.dtype_unavailable(dtype) or lowering.reason(target):
        return replace(about, reason=reason)

    def launch(
        rows: Sequence[int], data: Problem = largest, of: Lowering = lowering, repeats: int = 1,
        like: Outputs | None = None,
    ) -> Outputs:  # fmt: skip
        """The outputs for these rows of the largest problem, in this order."""
        problem, setting = prepared(len(rows))
        tensors = {name: t[list(rows)] if name in batched else t for name, t in data.tensors.items()}
        call = of.build(replace(target, spelling=setting.name))
        given = replace(problem, tensors=tensors).to(backend.check_device)
        names = facts.outputs_of(setting)
        found = launch_steady(call, given, backend, of.name, names=names, repeats=repeats, like=like)
        if not found.steady:
            raise LoweringError(f"lowering {of.name} is not deterministic: {found.told}", "unsteady")
        return found.results[0]

    def checked(rows: Sequence[int]) -> Outputs:
        """The same, launched several times, all of it written, in the shapes and dtypes of the reference's outputs."""
        reference = lowerings(facts)[0]
        known = lowering.name == reference.name or reference.reason(target)
        return launch(rows, repeats=REPEATS, like=None if known else launch(rows, of=reference))

    try:
        checked([0])
        alone = _joined([launch([row]) for row in range(max(SIZES))])
        differing: list[int] = []
        first, steps = -1, 0
        for size in SIZES:
            rows, most = _compared(launch(range(size)), alone, range(size))
            if rows:
                first = rows[0] if not differing else first
                differing.append(size)
                steps = max(steps, most)
        order = [(5 * k + 3) % PLACED for k in range(PLACED)]
        here = checked(range(PLACED))
        moved, _ = _compared(launch(order), here, order)
        others, _ = _compared(
            launch(range(PLACED), _beside(largest, batched)), here, range(0, PLACED, 2), range(0, PLACED, 2)
        )
    except (LoweringError, NotLowered) as error:
        known = isinstance(error, NotLowered) or (error.kind == "unsteady" and not is_file(lowering.name))
        return replace(about, reason=str(error), failed=not known)
    return replace(
        about, sizes=len(SIZES), differing=tuple(differing), row=first, steps=steps, place=bool(moved),
        contents=bool(others),
    )  # fmt: skip


def _joined(results: Sequence[Outputs]) -> Outputs:
    return {name: torch.cat([one[name] for one in results]) for name in results[0]}


def _beside(problem: Problem, batched: frozenset[str]) -> Problem:
    """Every second row has other numbers."""
    tensors = {name: t.clone() for name, t in problem.tensors.items()}
    for name in batched:
        tensors[name][1::2] = tensors[name][1::2].flip(0) * 2
    return replace(problem, tensors=tensors)


def _compared(
    found: Outputs, wanted: Outputs, rows: Sequence[int], at: Sequence[int] | None = None
) -> tuple[list[int], int]:
    """The places whose bits are not those of `rows` of `wanted`, and by how many numbers they differ at most. at: the
    places in `found`, all of them where it is None."""
    wrong: set[int] = set()
    most = 0
    for name, t in found.items():
        mine = t if at is None else t[list(at)]
        theirs = wanted[name][list(rows)]
        unequal = (bits(mine) != bits(theirs)) & ~(mine.isnan() & theirs.isnan())
        if bool(unequal.any()):
            wrong |= set(unequal.reshape(len(mine), -1).any(1).nonzero()[:, 0].tolist())
            most = max(most, _steps(*(_ordinal(part[unequal]).cpu().numpy() for part in (mine, theirs))))
    return sorted(wrong), most


def _steps(a: np.ndarray, b: np.ndarray) -> int:
    """The most numbers from those numbered a to those numbered b (int64), of which there may be 2^64."""
    sizes = (np.abs(part).astype(np.uint64) for part in (a, b))
    across = next(sizes) + next(sizes)
    return int(np.where((a < 0) == (b < 0), np.abs(a - b).astype(np.uint64), across).max())


def _ordinal(t: Tensor) -> Tensor:
    """The number of each value among those of the format, from 0 up and down."""
    held = bits(t).to(torch.int64)
    width = 8 * t.element_size() - 1
    size = held & ((1 << width) - 1)
    return torch.where(held < 0, -size, size)


def walk(selection: Selection, lengths: Sequence[int], progress: Progress | None = None) -> dict[str, Any]:
    """The findings for every selected lowering, dtype and length, and the machine: JSON values.

    Raises UsageError for a kernel without rows and for unknown names, NothingToCompare where no backend is present.
    """
    present, _ = backends_of(selection)
    jobs = []
    for backend in present:
        for facts in map(kernel.load, selection.kernels):
            if not isinstance(facts, Composite) or facts.batched is None:
                raise UsageError(f"{facts.name} has no batch: --invariance is for kernels of rows, such as softmax")
            for dtype in selection.dtypes or facts.dtypes:
                of_it = replace(selection, kernels=(facts.name,), dtypes=(dtype,))
                chosen: dict[str, Job] = {}
                for job in jobs_of(of_it, backend):
                    chosen.setdefault(job.lowering.name, job)
                jobs += [(one, length) for length in lengths for one in chosen.values()]
    rows = []
    for done, (job, length) in enumerate(jobs):
        target = job.target
        if progress:
            named = f"{target.kernel.name} {target.dtype} {job.lowering.name}"
            progress(done, len(jobs), f"next: {named}, length {length}")
        rows.append(invariance_of(target, job.lowering, length, selection.seed).record())
    return {"invariance": 1, "environment": {b.name: b.fingerprint() for b in present}, "rows": rows}
