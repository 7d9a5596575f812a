"""The run of a selection: its jobs, done here, by processes or by a cluster, and the report of their cells.

Nothing here names a kernel, a lowering or a backend.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from verify import backends
from verify.backends import Backend
from verify.facts import kernel
from verify.facts.kernel import NothingToCompare, UsageError, is_file
from verify.jobs import cluster, pool
from verify.jobs.journal import Journal
from verify.jobs.pool import Ended, Spent
from verify.judge import ledger, status
from verify.lower.user import Version, sources
from verify.walk import sweep
from verify.walk.cases import Case
from verify.walk.cells import cells_of, faulted, fill, part_of, unfilled
from verify.walk.plan import STARTING, Job, Plan, Selection, Task, backends_of, by_case, jobs_of, planned, why_nothing
from verify.walk.progress import Done, Progress
from verify.workers import START, imported
from verify.workers.launch import LoweringError

NEARLY = 0.25  # seconds for which a user's process is waited for with nothing else done


def run(
    selection: Selection, on_cell: Callable[[Any], Any] | None = None, progress: Progress | None = None, *,
    workers: int | None = 1, shard: tuple[int, int] = (1, 1), journal: Journal | None = None,
    on: cluster.Cluster | None = None, on_own: Callable[[Sequence[Any]], Any] | None = None,
    on_left: Callable[[str, str], Any] | None = None,
) -> Any:  # fmt: skip
    """Walk everything selected and return a report (`verify.reports.schema`).

    workers: processes that share the jobs; 1: this one does them; None: as many as pay
    shard: number k of n parts, into which the jobs are divided; `verify.walk.merge` joins their reports
    journal: of `identity`; the jobs in it are not done again
    on: the Ray cluster whose processes do the jobs; None: those of this machine
    on_cell: called with each cell as its job ends, and once more where others decide what it says
    on_own: called once with all cells of the user's own lowerings, where others are still to come
    on_left: called with each kernel that has no job, and why
    The cells are the same whatever these are.
    A KeyboardInterrupt ends the run: the cells complete by then are kept, `interrupted` is set.
    Raises UsageError for unknown names and where a user's file changes meanwhile, NothingToCompare where no backend is
    present, Broken for a mistake of this project.
    """
    versions = [Version(text) for text in selection.user_lowerings]
    present, absent = backends_of(selection)
    jobs = [job for backend in present for job in jobs_of(selection, backend)]
    if not jobs:
        raise NothingToCompare(why_nothing(selection, selection.kernels))
    having = {job.target.kernel.name for job in jobs}
    for name in selection.kernels:
        if on_left and name not in having:
            on_left(name, why_nothing(selection, [name]))
    mine = [job for job in jobs if job.mine]
    if selection.own and all(job.reason for job in mine):
        raise NothingToCompare(mine[0].reason if mine else "no job runs your lowering")
    report: dict[str, Any] = {
        "schema": 2,
        "environment": {b.name: b.fingerprint() for b in present}
        | {f"{n} absent": why for n, why in absent.items()}
        | {"created": int(time.time())},  # UTC seconds: what `verify history` orders reports by
        "profile": selection.profile,
        "seed": selection.seed,
        "command": "",
        "interrupted": False,
        "cells": [],
    }
    plan = planned(jobs, selection, *shard)
    numbers = plan.numbers
    whole = selection == Selection(selection.kernels, profile="default", seed=selection.seed)
    if shard != (1, 1):
        report["shard"] = {
            "index": shard[0],
            "of": shard[1],
            "jobs": len(jobs),
            "numbers": [],
            "source": hashlib.sha256(json.dumps(_digests(selection)).encode()).hexdigest()[:16],
            "whole": whole,
            "parts": [],
        }
    cells: list[dict[str, Any]] = report["cells"]
    used: Counter[str] = Counter()  # cells by allowance
    at = 0  # among `numbers`
    completed: set[int] = set()
    failing: Counter[str] = Counter()
    worst: tuple[bool, float, str] = (False, 0.0, "")

    told: set[int] = set()  # jobs of whose cells on_cell knows
    awaited = {number for number, task in enumerate(plan.tasks) if jobs[task.job].mine} if on_own else set()
    judged: list[Any] = []

    def on_end(one: Ended) -> None:
        nonlocal worst
        if one.number in awaited and isinstance(one.value, list):
            awaited.discard(one.number)
            judged.extend(one.value)
            if on_own and not awaited and len(results.settled) < len(plan.tasks):
                on_own(judged)
        if journal is not None and not one.died and not isinstance(one.value, BaseException):
            journal.add(one.number, plan.label(jobs, one.number), one.value)
        if on_cell and isinstance(one.value, list):
            try:
                for cell in one.value:
                    on_cell(cell)
            except Exception as error:
                raise Broken(plan.label(jobs, one.number), report | {"interrupted": True}) from error
            told.add(plan.tasks[one.number].job)
        if progress:
            failing.update(_failing(one.value))
            worst = max(worst, _worst(one.value))
            counts = ", ".join(f"{count} {status}" for status, count in failing.items())
            most = f"worst: {worst[1]:.3g} of its bound, {worst[2]}" if worst[2] else ""
            last = plan.label(jobs, one.number)
            label = "; ".join(filter(None, (counts, most, f"last: {last}")))
            done = Done(one.number, one.seconds, _inputs(one.value), one.process, last, results.processes)
            progress(len(results.settled), len(plan.tasks), label, done)

    def complete(number: int) -> None:
        """Put down the cells of a job, in the order of the jobs."""
        found = results.of(number)
        completed.add(number)
        if isinstance(found, Mapping):
            report["shard"]["parts"].append(found)
            return
        for cell in found:
            changed = ledger.cap(cell, used)
            if on_cell and (changed or number not in told):
                on_cell(cell)
            cells.append(cell)
            if "shard" in report:
                report["shard"]["numbers"].append(number)

    known = {} if journal is None else journal.known
    if any(number >= len(plan.tasks) for number in known):
        raise UsageError(f"{str(journal and journal.path)!r} has jobs that this run has not; run without --resume")
    given = jobs, plan, selection, present, versions, workers, known, on_end, on, shard
    with contextlib.closing(_Results(*given)) as results:
        try:
            if progress and plan.tasks:
                progress(len(known), len(plan.tasks), f"next: {plan.label(jobs, 0)}")
            for at, number in enumerate(numbers):  # noqa: B007
                complete(number)
            own = [cell for cell in cells if is_file(cell["lowering"])]
            if own and shard == (1, 1) and all(cell["status"] == "not-run" for cell in own):
                raise NothingToCompare(own[0]["reason"])
            if whole and shard == (1, 1):
                ledger.unneeded(cells)  # only a whole run can tell that nothing needs an entry
        except KeyboardInterrupt:
            report["interrupted"] = True
            for number in numbers[at:]:
                if number not in completed and results.has(number):
                    complete(number)
        except (UsageError, NothingToCompare, Broken):
            raise
        except Exception as error:
            raise Broken(jobs[numbers[at]].label, report | {"interrupted": True}) from error
    if progress:
        progress(len(plan.tasks), len(plan.tasks), "")
    return report


#: What decides cells: the engine, kernels, oracles and native code, and the ledger; of virtual GPUs their tables,
#: and Metal's header, which has no suffix.
SOURCES = (".py", ".toml", ".cpp", ".h", ".table", "")


def identity(selection: Selection) -> dict[str, Any]:
    """What a journal is for: what was asked, of which source, where. Raises what `run` does for a selection."""
    present, absent = backends_of(selection)
    return {
        "selection": asdict(selection),
        "environment": {b.name: b.fingerprint() for b in present} | {f"{n} absent": why for n, why in absent.items()},
        "source": _digests(selection),
    }


def _digests(selection: Selection) -> dict[str, str]:
    """Of every file that decides cells, the user's own and what it imports among them."""
    root = Path(kernel.__file__).parents[1]
    folders = [path for path in root.iterdir() if path.is_dir() and path.name != "reports"]
    files = [*root.iterdir(), *(path for folder in folders for path in folder.rglob("*"))]
    source = {path.relative_to(root).as_posix(): path for path in files if path.suffix in SOURCES}
    for text in selection.user_lowerings:
        own = sources(text)
        source |= {f"{text} {name}": path for name, path in own.items()}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for name, path in sorted(source.items())
        if path.is_file()
    }


def _identity_there(selection: Selection, threads: int) -> dict[str, Any]:
    """`identity` in a process whose launches would have that many threads."""
    with backends.sharing(threads, torch.get_num_threads()):
        return identity(selection)


def _confine(present: Iterable[Backend], selection: Selection, processes: float) -> None:
    """Let tensors take the share of each GPU's memory that is one of so many processes', half of it where a user's
    function has a process of its own beside."""
    for backend in present:
        backends.confine(backend.check_device, 1 / processes / (2 if selection.user_lowerings else 1))


def _unconfine(present: Iterable[Backend]) -> None:
    for backend in present:
        with contextlib.suppress(RuntimeError):  # the device may be lost
            backends.confine(backend.check_device, None)


class Broken(Exception):
    """A mistake of this project ended the run, at `label`. `report` has the cells that were complete."""

    def __init__(self, label: str, report: dict[str, Any]) -> None:
        super().__init__(f"an internal error at {label}")
        self.report = report


def _places(
    present: Sequence[Backend], groups: Sequence[tuple[float, list[int]]], workers: int | None, own: bool
) -> list[dict[str, str]]:
    """The variables of each worker process; none where this process does the jobs. own: beside each a user's function
    has one, too, on the same GPU."""
    if workers == 1 or not groups:
        return []
    each = [backend.processes() for backend in present]
    most = min(map(len, each))
    gpus = len({str(place) for places in each for place in places if place})
    count = workers or (max(gpus, most // 2) if own and gpus else most)
    whole, longest = sum(seconds for seconds, _ in groups), max(seconds for seconds, _ in groups)
    if workers is None and whole - max(whole / count, longest) < 2 * STARTING:
        return []
    count = min(count, sum(len(group) for _, group in groups))
    return [{name: value for one in each for name, value in one[k % len(one)].items()} for k in range(count)]


class _Results:
    """The results of tasks, done in this process when they are asked for or by worker processes.

    on_end is called for each task as it ends. settled: those that need nothing more. processes: that do them, 0 where
    their number is not known."""

    def __init__(
        self, jobs: Sequence[Job], plan: Plan, selection: Selection, present: Sequence[Backend],
        versions: Sequence[Version], workers: int | None, known: Mapping[int, Any], on_end: Callable[[Ended], None],
        on: cluster.Cluster | None, shard: tuple[int, int],
    ) -> None:  # fmt: skip
        self.versions = versions
        self.jobs, self.plan, self.selection, self.known, self.on_end = jobs, plan, selection, known, on_end
        self.held: list[Case] = []
        self.ended: dict[int, Ended] = {}
        self.failed: set[tuple[Any, ...]] = set()  # plain calls that ended in an error
        self.stream: Generator[Ended] | None = None
        self.at_end = contextlib.ExitStack()
        self.settled = set(known)
        self.processes = 1 if on is None else 0  # of a cluster's that is not known
        self.tasks: dict[int, list[int]] = defaultdict(list)  # by job
        for number, task in enumerate(plan.tasks):
            self.tasks[task.job].append(number)
        for number, value in known.items():
            self._learn(number, value)
        wanted = [n for n, task in enumerate(plan.tasks) if jobs[task.job].reason is None and n not in known]
        found = [] if workers == 1 and on is None else by_case(jobs, [plan.tasks[n] for n in wanted], selection)
        groups = [(seconds, [wanted[k] for k in group]) for seconds, group in found]
        given = selection, tuple(job.reason for job in jobs), backends.threads(), shard
        if on is not None and groups:
            needs = {name: amount for backend in present for name, amount in backend.resources().items()}
            each = min((amount for name, amount in needs.items() if name != "CPU"), default=1.0)
            make = functools.partial(_worker, *given, 1, 1 / each)
            identify = functools.partial(_identity_there, selection, backends.threads())
            self.stream = cluster.ended(make, [group for _, group in groups], on, needs, workers, identify, self.runs)
        elif places := _places(present, groups, workers, own := bool(selection.user_lowerings)):
            share, here = max(backends.cores() // len(places), 1), None
            # unless so many processes were asked for; of a device each has its own
            if own and workers is None and not any(places):
                self._imported()
                here, places = self._done, places[1:]
                self.at_end.enter_context(backends.sharing(backends.threads(), share))
            else:
                imported(selection.user_lowerings)
            self.processes = len(places) + (here is not None)
            make = functools.partial(_worker, *given, share, max(map(places.count, places), default=1))
            self.stream = pool.ended(make, [group for _, group in groups], places, self.runs, own, here)
        else:
            _confine(present, selection, 1)
            self.at_end.callback(_unconfine, present)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
        self.at_end.close()

    def _imported(self) -> None:
        """Wait for the process of the user's first function. Raises UsageError for what is wrong with its file."""
        first = next(job for job in self.jobs if job.mine and job.reason is None)
        first.lowering.ready(first.target, START)

    def _done(self, number: int) -> Any:
        """Do a task in this process."""
        return _done(self.jobs, self.plan, number, self.held, self.selection)

    def runs(self, number: int) -> bool:
        """Whether a task is to be done: where a user's function fails in its plain call, the layouts are not."""
        job = self.jobs[self.plan.tasks[number].job]
        return not (job.mine and job.arranged and job.called in self.failed)

    def has(self, job: int) -> bool:
        """Whether all that a job needs is there."""
        there = (
            n in self.known or not isinstance(self.ended.get(n, _NONE).value, BaseException) for n in self.tasks[job]
        )
        return all(there)

    def of(self, number: int) -> list[dict[str, Any]] | dict[str, Any]:
        """The cells of a job, or what is found of a part of its sweep. Raises what the job raised."""
        found = [self._value(task) for task in self.tasks[number]]
        domain = self.plan.sweeps.get(number)
        if domain is None:
            return list(found[0])
        (part,) = sweep.joined(found)
        cells = cells_of(self.jobs[number], part, self.selection, domain)
        if part["stop"] - part["start"] == domain.size:
            return cells
        names = ("kernel", "lowering", "spelling", "backend", "dtype", "scalars", "source", "status", "reason")
        told = {name: cells[0][name] for name in names}
        return {"job": number, "size": domain.size, "inputs": part["stop"] - part["start"], **told, "found": part}

    def _value(self, number: int) -> Any:
        """The cells of a task, or its part."""
        job = self.jobs[self.plan.tasks[number].job]
        if job.reason is None and not self.runs(number):  # a process may have begun it before that was known
            job = replace(job, reason="its case ended in an error in the plain layout", kind="inapplicable")
        if job.reason is not None:
            value = fill(job, self.held, self.selection)
        elif number in self.known:
            value = self.known[number]
        else:
            while number not in self.ended:
                self._end_one(number)
            value = self.ended.pop(number).value
        self.settled.add(number)
        if isinstance(value, BaseException):
            raise value
        return value

    def _end_one(self, number: int) -> None:
        """Let a task end: that one where this process does them and nothing has to be waited for, else any."""
        if self.stream is None:
            number = self._meanwhile(number)
            began = time.perf_counter()
            one = Ended(number, self._done(number))
            one = replace(one, seconds=time.perf_counter() - began)
        else:
            one = next(self.stream)
        if one.died:
            task = self.plan.tasks[one.number]
            job = self.jobs[task.job]
            told = {"status": "error", "reason": f"lowering {job.lowering.name}: {one.died}", "reason_kind": "ended"}
            value: Any = [cell | told for cell in unfilled(job, self.selection)]
            if task.elements is not None:
                value = {"start": task.elements.start, "stop": task.elements.stop, "cells": value}
            one = replace(one, value=value)
        if isinstance(one.value, UsageError):
            raise one.value  # it ends the run, whatever is before it
        if self.jobs[self.plan.tasks[one.number].job].mine:  # before anybody is told of its cells
            for version in self.versions:
                version.ensure_kept()
        self.ended[one.number] = one
        self.settled.add(one.number)
        if not isinstance(one.value, BaseException):
            self._learn(one.number, one.value)
        self.on_end(one)

    def _meanwhile(self, number: int) -> int:
        """A task of the same case, while the process that a user's own is to run in has not started."""
        job = self.jobs[self.plan.tasks[number].job]
        if job.reason is None and not job.lowering.ready(job.target, NEARLY):
            for other in range(number + 1, len(self.plan.tasks)):
                beside = self.jobs[self.plan.tasks[other].job]
                if beside.target != job.target:
                    break
                if not beside.mine and beside.reason is None and other not in self.known and other not in self.ended:
                    return other
        return number

    def _learn(self, number: int, value: Any) -> None:
        task = self.plan.tasks[number]
        job, cells = self.jobs[task.job], value
        if task.elements is not None:
            if range(value["start"], value["stop"]) != task.elements:
                raise RuntimeError(f"job {number}, {job.label}, came back as elements {value['start']} on")
            cells = value.get("cells")
        for cell, empty in zip(cells, unfilled(job, self.selection), strict=True) if cells else ():
            if any(cell[name] != empty[name] for name in ("kernel", "lowering", "spelling", "dtype", "scalars")):
                raise RuntimeError(f"job {number}, {job.label}, came back as {cell}")
        if not job.arranged:
            self.failed |= {job.called for cell in cells or () if cell["status"] == "error"}


#: In place of a task that has not ended.
_NONE = Ended(-1, KeyboardInterrupt())


def _done(jobs: Sequence[Job], plan: Plan, number: int, held: list[Case], selection: Selection) -> Any:
    """Do a task: its cells, or its part. Where this process's share of the GPU's memory does not suffice, it may take
    what others leave."""
    task = plan.tasks[number]
    job, share = jobs[task.job], backends.memory_share

    def do() -> Any:
        if task.elements is None:
            return fill(job, held, selection)
        return part_of(job, task.elements.start, task.elements.stop, held, selection)

    if share is not None and share < 1:
        try:
            return do()
        except RuntimeError as error:
            if not backends.out_of_memory(error):
                raise
        held.clear()
        backends.confine(job.target.backend.check_device, 1.0)
    try:
        return do()
    except RuntimeError as error:
        if not backends.out_of_memory(error):
            raise
        return _ended(job, task, selection, f"the GPU's memory does not suffice to check this: {error}")
    finally:
        if share is not None and share < 1:
            held.clear()
            backends.confine(job.target.backend.check_device, share)


def _ended(job: Job, task: Task, selection: Selection, why: str) -> Any:
    """The cells or the part of a task that could not be done to its end."""
    cells = faulted(job, selection, LoweringError(next(iter(why.splitlines())), "ended"))
    if task.elements is None:
        return cells
    return {"start": task.elements.start, "stop": task.elements.stop, "cells": cells}


def _inputs(value: Any) -> int:
    """Elements that a task has judged."""
    if isinstance(value, Mapping):
        return int(value["stop"] - value["start"])
    return 0 if isinstance(value, BaseException) else sum(cell.get("inputs", 0) for cell in value)


def _failing(value: Any) -> list[str]:
    """Statuses of the cells of a task that give an exit code other than 0; an allowance may still cover one."""
    cells = value.get("cells", ()) if isinstance(value, Mapping) else () if isinstance(value, BaseException) else value
    return [cell["status"] for cell in cells if status.EXIT_CODES[cell["status"]]]


def _worst(value: Any) -> tuple[bool, float, str]:
    """Whether the worst cell of a task fails, its largest share of the bound, and which it is. Left out is what the
    ledger accounts for, whose figures are known, and in cells that do not fail what is beyond the bound: an
    intermediate overflows there."""
    cells = value.get("cells", ()) if isinstance(value, Mapping) else () if isinstance(value, BaseException) else value
    found = (False, 0.0, "")
    for cell in cells:
        fails = bool(status.EXIT_CODES[cell["status"]])
        shares = [region["error"]["max_share"] for region in (cell.get("regions") or {}).values()]
        known = [share for share in shares if share is not None and (fails or share <= 1)]
        if known and cell["status"] != "deviates":
            place = f"{cell['kernel']} {cell['dtype']} {cell['lowering']} {cell['spelling']}"
            found = max(found, (fails, max(known), place))
    return found


def _lost(backend: Backend) -> bool:
    """Whether a launch that went wrong has taken the device with it."""
    try:
        backend.synchronize()
    except RuntimeError:
        return True
    return False


def _worker(
    selection: Selection, reasons: Sequence[str | None], threads: int, shard: tuple[int, int], share: int,
    processes: float,
) -> Callable[[int], Any]:  # fmt: skip
    """What a worker process does with the number of a task. reasons: the jobs'; threads: of a launch; share: of all
    else; processes: those that use its GPU."""
    present, found = backends_of(selection)[0], iter(reasons)
    jobs = [job for backend in present for job in jobs_of(selection, backend, found)]
    plan = planned(jobs, selection, *shard)
    held: list[Case] = []
    backends.launch_threads = threads
    torch.set_num_threads(share)
    _confine(present, selection, processes)

    def do(number: int) -> Any:
        task = plan.tasks[number]
        job = jobs[task.job]
        try:
            found = _done(jobs, plan, number, held, selection)
        except RuntimeError as error:  # of torch, whatever it was asked to do when a launch's error came to light
            if not _lost(job.target.backend):
                raise
            why = f"the device was lost while it was checked: {str(error) or type(error).__name__}"
            raise Spent(_ended(job, task, selection, why)) from None
        if _lost(job.target.backend):
            raise Spent(found)
        return found

    return do
