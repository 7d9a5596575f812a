"""Every planted fault and every correct variant of every kernel, judged as a lowering of one's own is.

A fault is killed by a cell that ends a run with exit code 1 and tells of the lowering (`unbounded` and `unjudged` tell
of the cell). Of a kernel of rows it is looked for at each length at which it changes a bit: some setting of that length
must kill it. A correct variant has to pass every cell of the default profile, or to be `suspect` where its order is
beyond the known ones and not declared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from chosen import picks
from mutants import adam, flex, planted, products, rows
from verify import backends
from verify.facts import kernel
from verify.facts.kernel import Composite, Scalars, Setting
from verify.families.composite import Problem
from verify.judge import status
from verify.lower.lowering import Lowering
from verify.lower.lowerings import lowerings
from verify.numbers.orders import Order
from verify.walk.cells import fill
from verify.walk.plan import Job, Selection, jobs_of
from verify.walk.walk import case_of
from verify.workers.launch import bits

CPU = backends.load("cpu")
ROOT = Path(__file__).resolve().parents[2]
NAME = "mutants.py:planted"
#: Statuses that tell of the lowering, of those that end a run with exit code 1.
TELLING = ("exceeds-bound", "unsteady", "suspect")
PROFILES = ("quick", "default")


@dataclass(frozen=True)
class Planted:
    """A fault of `kernel`, or a correct variant of it.

    right    of a fault in a kernel of rows: the same without it
    scalars  the one case of an elementwise kernel in which it is judged
    status   the worst that a correct variant has and must have: `suspect` where its order is not declared
    """

    kernel: str
    name: str
    dtype: str
    lowering: Lowering
    wrong: bool = True
    right: Lowering | None = None
    scalars: Scalars | None = None
    status: str = "passed"

    @property
    def label(self) -> str:
        return f"{self.kernel} {self.dtype} {self.name}"


@dataclass(frozen=True)
class Verdict:
    """What became of an item at a length of rows (0: of no rows): whether it is as it should be, in which profile that
    was found, and the cell that tells it. quick: whether the quick profile has that length."""

    item: Planted
    length: int
    holds: bool
    profile: str
    quick: bool
    cell: Mapping[str, Any]

    def record(self) -> dict[str, Any]:
        """A line of the kill table."""
        cell, item = self.cell, self.item
        regions = cell.get("regions", {})
        region = next((name for name in reversed(regions) if regions[name]["status"] == cell["status"]), "")
        worst = next(iter(regions[region]["worst"]), {}) if region and cell["status"] != "passed" else {}
        found = {
            "kernel": item.kernel, "name": item.name, "dtype": item.dtype, "wrong": item.wrong,
            "length": self.length, "holds": self.holds, "profile": self.profile, "quick": self.quick,
            "status": cell["status"], "kind": cell["reason_kind"], "region": region,
            "setting": cell["spelling"], "scalars": cell["scalars"], "output": cell.get("output", ""),
        }  # fmt: skip
        if worst:
            place = {"index": worst["index"]} if "output" in cell else {"inputs": worst["inputs"]}
            found |= place | {"gave": worst["output"], "truth": worst["exact"], "share": worst["share"]}
            found["bound"] = f"{cell['bound']['value']:g} {cell['bound']['metric']}" if "bound" in cell else ""
        return found


#: What is known to survive or not to pass, and why: these stay in the kill table as they are.
KNOWN = {
    "lerp float32 w beside 1/2": "a step more than eager's error is within the bound; told where bits vary by the call",
    "softmax float16 terms of the sum in the dtype": "at 2^16 terms no row loses in every term",
    "softmax bfloat16 terms of the sum in the dtype": "at 2^20 terms no row loses in every term",
    "rms_norm float32 result too short": "at length 1: one step is within the bound, but on few exact results",
    "logcumsumexp float32 result too short": "at 2^20 one step is within the bound",
    "logcumsumexp float32 a term in the middle lost": "one of 2^16 terms or more is within the bound",
}


# ---------------------------------------------------------------- what is planted


def of_problem(call: Callable[[Problem], Any]) -> Lowering:
    return Lowering(NAME, lambda target: call, lambda target: None)


def row(function: rows.Function, order: str = "") -> Lowering:
    return replace(rows.lowering(function), order=Order.parse(order) if order else None)


def everything() -> Iterator[Planted]:
    """All that is planted, in an order that does not matter."""
    for m in planted.MUTANTS:
        yield Planted(m.kernel, m.name, m.dtype, replace(m.lowering(), name=NAME), scalars=m.scalars)
    for m, due in planted.VARIANTS:
        mine = replace(m.lowering(), name=NAME)
        yield Planted(m.kernel, m.name, m.dtype, mine, wrong=False, scalars=m.scalars, status=due)
    for name, correct in rows.CORRECT.items():
        for fault, function in rows.defects(name).items():
            for dtype in ("float16", "bfloat16") if fault in rows.OF_HALVES else ("float32",):
                yield Planted(name, fault, dtype, row(function), right=row(correct))
    for name, variant, function, dtypes, order, found in rows.variants():
        for dtype in dtypes:
            yield Planted(name, variant, dtype, row(function, order), wrong=False, status=found)
    for fault, step, names, dtypes in adam.FAULTS:
        for name in names:
            for dtype in dtypes:
                yield Planted(name, fault, dtype, of_problem(step))
    for variant, step, names in adam.VARIANTS:
        for name in names:
            for dtype in adam.EVERY:
                yield Planted(name, variant, dtype, of_problem(step), wrong=False)
    for fault, attention, dtypes in flex.FAULTS:
        for dtype in dtypes:
            yield Planted("flex_attention", fault, dtype, of_problem(attention))
    for variant, attention in flex.VARIANTS:
        for dtype in flex.EVERY:
            yield Planted("flex_attention", variant, dtype, of_problem(attention), wrong=False)
    for listed, wrong in ((products.faults(), True), (products.variants(), False)):
        for name, told, product, dtype in listed:
            yield Planted(name, told, dtype, of_problem(product), wrong=wrong)


@cache
def tenth(of: str) -> list[Planted]:
    """One item in ten, chosen by a commit or any other text."""
    return [one for one in everything() if picks(of, one.label, 10)]


def chosen(commit: str | None, kernels: Sequence[str]) -> list[Planted]:
    every = everything() if commit is None else tenth(commit)
    return [one for one in every if not kernels or one.kernel in kernels]


# ---------------------------------------------------------------- the walk


def judge(
    items: Sequence[Planted], told: Callable[[Verdict], None] = lambda verdict: None,
    profiles: Sequence[str] = PROFILES, calls: Callable[[Planted], bool] = lambda one: True,
) -> list[Verdict]:  # fmt: skip
    """What becomes of each item, and of each length of it. calls: which are called in other ways than the plain one."""
    found: list[Verdict] = []
    for name, dtype in sorted({(one.kernel, one.dtype) for one in items}):
        these = [one for one in items if (one.kernel, one.dtype) == (name, dtype)]
        for verdict in _judge(name, dtype, these, profiles, calls):
            told(verdict)
            found.append(verdict)
    return found


def judged(
    commit: str | None, kernels: Sequence[str], places: Sequence[int]
) -> tuple[set[tuple[str, str, str]], list[dict[str, Any]]]:
    """Kernel, name and dtype of the items in these places of `chosen`, and the records of their verdicts."""
    items = chosen(commit, kernels)
    some = [items[k] for k in places]
    return {(one.kernel, one.name, one.dtype) for one in some}, [v.record() for v in judge(some, told)]


def told(verdict: Verdict) -> None:
    if not verdict.holds:
        where = f" at length {verdict.length}" if verdict.length else ""
        print(f"{verdict.item.label}{where}: {verdict.cell['status']}: {verdict.cell['reason']}", file=sys.stderr)


def jobs(name: str, dtype: str, profiles: Sequence[str]) -> Iterator[tuple[str, Selection, Job]]:
    """The reference's cells in the profiles, one after another, none of a composite kernel again."""
    facts = kernel.load(name)
    before: list[Any] = []
    for profile in profiles:
        selection = Selection(
            (name,), backends=("cpu",), dtypes=(dtype,), lowerings=(lowerings(facts)[0].name,), profile=profile
        )
        for job in jobs_of(selection, CPU):
            key = job.setting, dict(job.target.scalars)
            if isinstance(facts, Composite) and key in before:
                continue
            before.append(key)
            yield profile, selection, job


def _judge(
    name: str, dtype: str, items: Sequence[Planted], profiles: Sequence[str], calls: Callable[[Planted], bool]
) -> Iterator[Verdict]:
    """Each case's truth is built once for all that is still alive."""
    over: dict[tuple[str, int], Verdict] = {}  # what is decided, by item and length
    last: dict[tuple[str, int], Verdict] = {}  # what is not yet
    held: list[Any] = []
    for profile, selection, given in jobs(name, dtype, profiles):
        length = length_of(given.setting)
        for one in items:
            if one.scalars is not None and not _meant(one, given):
                continue
            key = (one.label, length if one.right else 0)
            if key in over:
                continue
            job = replace(given, lowering=one.lowering, reason=None, mine=True, calls=given.calls and calls(one))
            if one.right and not _differs(one, job, selection, held):
                continue
            early = profile == "quick" or (key in last and last[key].quick)
            verdict = _verdict(one, key[1], profile, early, fill(job, held, selection))
            if verdict.holds if one.wrong else verdict.cell["status"] not in ("passed", one.status):
                over[key] = verdict
            elif key not in last or status.STATUSES.index(verdict.cell["status"]) < status.STATUSES.index(
                last[key].cell["status"]
            ):
                last[key] = verdict
    yield from (last | over).values()


def length_of(setting: Setting | None) -> int:
    """Terms of a row; 0 of what has no rows."""
    facts = {} if setting is None else setting.parameters
    return int(facts["shape"][facts["dim"]]) if {"shape", "dim"} <= facts.keys() else 0


def _meant(one: Planted, job: Job) -> bool:
    target = job.target
    return target.scalars == one.scalars and target.spelling == target.default_spelling


def _differs(one: Planted, job: Job, selection: Selection, held: list[Any]) -> bool:
    """Whether the fault changes a bit."""
    assert one.right is not None
    problem = case_of(job, selection, held).given(0)
    ours, theirs = (x.build(job.target)(problem) for x in (one.lowering, one.right))
    pairs = [(ours[key], y) for key, y in theirs.items()]  # all NaNs are one
    return any(bool(((bits(x) != bits(y)) & ~(x.isnan() & y.isnan())).any()) for x, y in pairs)


def _verdict(one: Planted, length: int, profile: str, quick: bool, cells: Sequence[Mapping[str, Any]]) -> Verdict:
    """By the worst of a job's cells."""
    ran = [cell for cell in cells if cell["status"] != "not-run"] or cells
    cell = min(ran, key=lambda cell: status.STATUSES.index(cell["status"]))
    if one.wrong:
        holds = cell["status"] in TELLING and status.exit_code(cell["status"], user=True) == 1
    else:
        holds = cell["status"] == one.status
    return Verdict(one, length, holds, profile, quick, cell)
