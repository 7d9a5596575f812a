"""A run as a command conducts it: journal, progress, signals, the report's file, its pages and exit code."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from verify.cli.options import ENGINES, ensure_known, sources_of
from verify.cli.output import FAILED, INTERRUPTED, NOTHING, TERMINATED, USAGE, complain, ensure_writable, print_to
from verify.facts.kernel import DTYPES, Kernel, UsageError, is_file, load
from verify.judge.status import combined
from verify.judge.status import exit_code as status_code
from verify.processes import start
from verify.reports.blocks import Page
from verify.reports.figures import code_of, counted
from verify.reports.looks import tally, tally_text
from verify.reports.reasons import parts_of
from verify.reports.replays import assignments
from verify.reports.text import printable
from verify.walk.progress import Awaited, Kinds, shown, spoken

if TYPE_CHECKING:
    from verify.jobs.journal import Journal
    from verify.reports.schema import Cell, Report
    from verify.walk.plan import Selection


def exit_code(report: Report) -> int:
    """The code of a finished run: that of its cells by `verify.judge.status`, 3 where none ran, but in a shard without
    any. A user's own lowering that misbehaves (status error) is bad input."""
    parts = report.shard.parts if report.shard else []
    empty = not report.cells and report.shard is not None  # of a run with fewer cases than shards
    nothing = not parts and not empty and all(cell.status == "not-run" for cell in report.cells)
    of_parts = (status_code(part.status, user=is_file(part.lowering)) for part in parts)
    return combined([*(NOTHING for _ in range(nothing)), *map(code_of, report.cells), *of_parts])


def tell_parts(report: Report) -> None:
    """Say how far sweeps divided among shards have come, and what they have found."""
    for text, part in parts_of(report):
        print(f"verify: {printable(text)}", file=sys.stderr)
        if part.reason:
            print(f"verify: {printable(part.reason)}", file=sys.stderr)


def conduct(verb: str, selection: Selection, out: str | None, pages: Callable[[Report], list[Page]], how: How) -> int:
    """Run the selection, write the report, print its pages, and return the exit code."""
    ensure_writable(out, how.journal, reading=sources_of(selection.user_lowerings))
    if how.journal is None:
        return _conduct_with(None, verb, selection, out, pages, how)
    from verify.jobs import journal
    from verify.walk.run import identity

    head = {**identity(selection), "shard": f"{how.shard[0]}/{how.shard[1]}"}
    with journal.opened(how.journal, head, resume=how.resume) as kept:
        if kept.replaced:
            told = f"{kept.replaced} finished jobs of an earlier run, which the first one of this run replaces"
            print(f"verify: {printable(str(how.journal))} holds {told}; --resume goes on with them", file=sys.stderr)
        return _conduct_with(kept, verb, selection, out, pages, how)


def _conduct_with(
    journal: Journal | None, verb: str, selection: Selection, out: str | None, pages: Callable[[Report], list[Page]],
    how: How,
) -> int:  # fmt: skip
    from verify.jobs.cluster import Cluster
    from verify.reports import store
    from verify.reports.schema import Cell, Report
    from verify.walk.run import Broken, run

    stop = _Stop()
    left: dict[str, str] = {}  # kernels of which the options select nothing, and why
    checked: dict[int, tuple[Mapping[str, Any], Cell]] = {}  # by identity, which is theirs while they are here
    further = "" if journal is None else "; go on with --resume"
    on = (
        None
        if how.address is None
        else Cluster(how.address, lambda line: print(f"verify: {printable(line)}", file=sys.stderr))
    )

    def answered(cells: Sequence[Any]) -> None:
        """The verdict on the user's own, before known lowerings beside it are through."""
        own = [Cell.model_validate(cell) for cell in cells]
        for name, part in groupby(sorted(own, key=lambda cell: cell.lowering), key=lambda cell: cell.lowering):
            told = tally_text(tally(map(counted, part)))
            print(
                f"verify: {printable(name)}: {told}; the registered lowerings beside it are still being judged",
                file=sys.stderr,
            )

    def valid(cell: Mapping[str, Any]) -> None:
        checked[id(cell)] = cell, Cell.model_validate(cell)

    def reported(raw: Mapping[str, Any]) -> Report:
        cells = [checked[id(cell)][1] if id(cell) in checked else cell for cell in raw["cells"]]
        with store.no_collection():
            return Report.model_validate(
                {**raw, "cells": cells, "command": _command(verb, selection, raw["environment"])}
            )

    def plan() -> list[Awaited]:
        return _plan(selection, how.shard, journal.known if journal else ())

    try:
        for line in _ahead(selection, how):
            print(f"verify: {line}", file=sys.stderr)
        with terminable() as stop, shown(plan) as progress:
            # Validating cell by cell stops at the first that breaks the schema, not after the last.
            raw = run(
                selection, on_cell=valid, progress=progress, workers=how.jobs, shard=how.shard, journal=journal, on=on,
                on_own=answered, on_left=left.__setitem__ if verb == "kernel" else None,
            )  # fmt: skip
    except KeyboardInterrupt:
        return complain(_nothing(stop, journal), stop.code)
    except Broken as broken:
        raw = broken.report
        if out is not None and raw["cells"]:
            store.write(reported(raw), out)
            kept = "standard output" if out == "-" else out
            complain(f"{broken}; {_kept(len(raw['cells']), kept)}", FAILED)
        raise
    # some seconds for many cells, in which the report would be lost; a pipe may wait for its reader
    with contextlib.nullcontext() if out == "-" else start.uninterrupted(signal.SIGINT, signal.SIGTERM):
        report = reported(raw)
        nothing = report.interrupted and not report.cells
        if out is not None and not nothing:
            store.write(report, out)
            if journal is not None and how.temporary and not report.interrupted:
                journal.remove()
    if nothing:
        return complain(_nothing(stop, journal), stop.code)
    code = exit_code(report)
    if report.shard and not report.cells and not report.shard.parts and not report.interrupted:
        print(
            f"verify: shard {how.shard[0]}/{how.shard[1]} has no jobs: the run has {report.shard.jobs}", file=sys.stderr
        )
    if code != NOTHING:
        for page in pages(report) if report.cells else ():
            print_to(page, sys.stderr if out == "-" else sys.stdout)
        tell_parts(report)
    if report.interrupted:
        kept = "standard output" if out == "-" else out or "the table only; --json FILE keeps them in a file"
        return complain(f"{stop.word}; {_kept(len(report.cells), kept)}{further}", stop.code)
    if out not in (None, "-"):
        print(f"report: {out}", file=sys.stderr)
    for name, why in left.items():
        complain(f"{name}: nothing was compared: {why}", NOTHING)
    if code == NOTHING:
        reasons = dict.fromkeys(f"{cell.backend}: {cell.reason}" for cell in report.cells)
        return complain(f"nothing was compared: {'; '.join(reasons) or 'no cell matches the options'}", NOTHING)
    if code == USAGE:
        errors = [cell for cell in report.cells if cell.status == "error" and is_file(cell.lowering)]
        for line in dict.fromkeys(f"{cell.lowering}: {cell.reason}" for cell in errors):
            complain(line, USAGE)
    return combined([code, *(NOTHING for _ in left)])


class How(NamedTuple):
    """How a run is done. address: of a Ray cluster; temporary: the journal goes when the report is complete."""

    jobs: int | None
    address: str | None
    shard: tuple[int, int]
    journal: str | None
    resume: bool
    temporary: bool


def how_of(
    jobs: int | None, engine: str, address: str | None, shard: str | None, journal: str | None, resume: bool,
    out: str | None,
) -> How:  # fmt: skip
    ensure_known("engine", [engine], ENGINES)
    if address and engine != "ray":
        raise UsageError("--address is for --engine ray")
    index, slash, of = (shard or "1/1").partition("/")
    if not (slash and index.isdecimal() and of.isdecimal() and 1 <= int(index) <= int(of)):
        raise UsageError(f"--shard {shard!r}; expected I/N with I from 1 to N, such as 2/8")
    # a pipe or a device is no place beside which a file is kept
    kept = out not in (None, "-") and (Path(str(out)).is_file() or not Path(str(out)).exists())
    beside = f"{out}.journal" if kept else None
    if journal and out and Path(journal).resolve() == Path(out).resolve():
        raise UsageError(f"--journal and --json are both {out!r}; expected two files")
    if resume and not (journal or beside):
        raise UsageError("--resume needs the journal of the run: give --json FILE or --journal FILE as it had")
    return How(
        jobs,
        (address or "auto") if engine == "ray" else None,
        (int(index), int(of)),
        journal or beside,
        resume,
        journal is None,
    )


def _command(verb: str, selection: Selection, environment: Mapping[str, Any]) -> str:
    """The command that repeats a run: variables, options in a fixed order, no output file."""
    words = ["verify", verb, *(selection.kernels if verb == "kernel" else ())]
    for option in ("backend", "dtype", "lowering", "spelling"):
        for value in getattr(selection, f"{option}s"):
            words += [f"--{option}", value]
    for value in selection.user_lowerings:
        words += ["--lowering", value]
    if selection.algorithm:
        words += ["--algorithm", selection.algorithm]
    words += ["--scalar", "none"] if selection.scalars == {} else []
    for name, number in (selection.scalars or {}).items():
        words += ["--scalar", f"{name}={number!r}"]
    for name, text in (selection.setting or {}).items():
        words += ["--set", f"{name}={text}"]
    defaults = type(selection)(())
    for option in ("timeout", "memory"):
        if (amount := getattr(selection, option)) != getattr(defaults, option):
            words += [f"--{option}", f"{amount:g}"]
    words += ["--profile", selection.profile, *["--triples"][: selection.triples], "--seed", str(selection.seed)]
    variables = "".join(dict.fromkeys(assignments(fingerprint) for fingerprint in environment.values()))
    return variables + shlex.join(words).encode(errors="backslashreplace").decode()


def _plan(selection: Selection, shard: tuple[int, int], known: Container[int]) -> list[Awaited]:
    """The kinds of a selection's jobs, by which their times are compared, none for jobs that are not done, and their
    estimated seconds."""
    from verify.walk.plan import Task, backends_of, estimated, jobs_of, planned

    present, _ = backends_of(selection)

    def kinds(task: Task) -> Kinds:
        job = jobs[task.job]
        name, target = job.lowering.name, job.target
        family = "elementwise" if job.setting is None else "composite"
        if task.elements is not None:
            return f"{job.label} ranges", f"{target.kernel.name} ranges", "ranges"
        return () if job.reason else (f"{target.kernel.name} {target.dtype} {name}", f"{family} {name}", name)

    jobs = [job for backend in present for job in jobs_of(selection, backend)]
    tasks = planned(jobs, selection, *shard).tasks
    seconds = estimated(jobs, tasks, selection)
    return [(() if number in known else kinds(task), seconds[number]) for number, task in enumerate(tasks)]


#: Triples that are judged a second: what one core of a Xeon does, and what an H200 does (16-bit lerp, November 2026).
TRIPLES_CPU, TRIPLES_GPU = 1e7, 1e10


def _ahead(selection: Selection, how: How) -> Iterator[str]:
    """What to say before an exhaustive run begins: how long triples take, or that not all of them are taken."""
    if selection.profile != "exhaustive":
        return
    from verify import backends

    facts = [one for one in map(load, selection.kernels) if isinstance(one, Kernel)]
    narrow = {"float16", "bfloat16"} & set(selection.dtypes or DTYPES)
    three = [one.name for one in facts if any(len(one.tensors(scalars)) == 3 for scalars in one.cases)]
    if not selection.triples:
        if narrow and three:
            yield f"16-bit {', '.join(three)}: 2^24 of 2^48 triples are drawn; --triples takes all of them"
        return
    from verify.walk.plan import backends_of, jobs_of, planned

    present, _ = backends_of(selection)
    for backend in present:
        jobs = list(jobs_of(selection, backend))
        plan = planned(jobs, selection, *how.shard)
        spans = [(task.job, len(task.elements)) for task in plan.tasks if task.elements is not None]
        sizes = [plan.sweeps[job].size == 1 << 48 and size for job, size in spans]
        if not (count := sum(sizes)):
            continue
        cells = len({job for (job, _), size in zip(spans, sizes, strict=True) if size})
        cores = how.jobs or backends.cores()
        seconds, where = count / TRIPLES_GPU, f"on one GPU that does {TRIPLES_GPU:.0e} a second"
        if backend.name == "cpu":
            seconds, where = count / TRIPLES_CPU / cores, f"on {cores} cores, at {TRIPLES_CPU:.0e} a second each"
        told = f"{cells} cell{'s'[: cells > 1]} of three 16-bit inputs: {count // cells} of 2^48 triples"
        yield f"{backend.name}: {told}{' each'[: 5 * (cells > 1)]}, some {spoken(seconds)} {where}"


def _nothing(stop: _Stop, journal: Journal | None) -> str:
    told = f"{stop.word} before a cell was complete; nothing was written"
    if journal is None or not journal.finished:
        return told
    jobs = f"{journal.finished} finished {'job is' if journal.finished == 1 else 'jobs are'}"
    return f"{told}, but {jobs} kept in {printable(str(journal.path))}; go on with --resume"


def _kept(count: int, where: str) -> str:
    return f"{count} complete {'cell is' if count == 1 else 'cells are'} kept in {where}"


INSISTED = 5.0  # seconds after which another signal ends what the first one has begun


class _Stop:
    """How a run was stopped: the word for it and the exit code."""

    word, code = "interrupted", INTERRUPTED


@contextlib.contextmanager
def terminable() -> Iterator[_Stop]:
    """Inside, SIGTERM stops a run as Ctrl-C does, so that complete cells are kept. `timeout` sends a signal both to a
    process and to its group, and people press Ctrl-C twice: cells would be lost while they are put together."""
    stop = _Stop()
    began: list[float] = []

    def end(number: int, frame: object) -> None:
        if began and time.monotonic() - began[0] < INSISTED:  # the same one, or a hasty one
            return
        began[:] = began or [time.monotonic()]
        if number == signal.SIGTERM:
            stop.word, stop.code = "terminated", TERMINATED
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread may say what signals do
        yield stop
        return
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, or another's
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, *[signal.SIGINT] * usual)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
