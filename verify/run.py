"""The walk: domain -> lowering on a backend -> outputs -> check -> tally -> cell, and the report of a selection.

Nothing here names a kernel, a lowering or a backend.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import hashlib
import heapq
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from verify import backends, kernel, laws, ledger, native, standby, sweep
from verify.backends import Backend
from verify.calls import Called, Sample, call_all
from verify.calls_of_problems import call_problems
from verify.cases import (
    Case,
    Instance,
    Pointwise,
    Strata,
    cases_of,
    format_of,
    own_setting,
    ranges_of,
    settings_of,
    terms,
    trust,
    unit_of,
)
from verify.domains import SIZES, SIZES_FLOAT64, Domain, domain_of
from verify.draws import spread
from verify.formats import FORMATS, Format
from verify.jobs import cluster, pool
from verify.jobs.journal import Journal
from verify.jobs.pool import Ended, Spent
from verify.judge import status
from verify.judge.cell import Reader, Stated, binades, conclude, overall, unresolved
from verify.judge.chunk import OracleViolation
from verify.judge.element import Limits, decide, resolution
from verify.judge.regions import REGIONS
from verify.judge.tally import WORST, Tally, root
from verify.kernel import (
    DTYPES,
    NARROW,
    Composite,
    Kernel,
    NothingToCompare,
    Scalars,
    Setting,
    UsageError,
    is_file,
    suggest,
)
from verify.launch import LoweringError, launch_steady, repeats_of
from verify.lowerings import Lowering, NotLowered, Target, lowerings, sources, user_composite, user_lowering
from verify.numbers.orders import Order
from verify.oracle import OracleError
from verify.progress import Progress
from verify.workers import TIMEOUT, imported, isolated, isolated_composite

RESOLVED = 4096  # elements whose resolution is taken


@dataclass(frozen=True)
class Selection:
    """What to run. Empty tuples mean all; `lowerings` are names or shell patterns.

    Raises UsageError for unknown names.
    """

    kernels: tuple[str, ...]
    backends: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    lowerings: tuple[str, ...] = ()
    spellings: tuple[str, ...] = ()
    profile: str = "default"
    user_lowerings: tuple[str, ...] = ()
    #: ORDER:ACCUMULATOR that the user declares of them, see `verify.numbers.orders`
    algorithm: str = ""
    #: Python scalars; {}: none, every input is a tensor
    scalars: Mapping[str, float] | None = None
    seed: int = 0
    #: NAME -> text: the user's own setting of a composite kernel
    setting: Mapping[str, str] | None = None
    #: under 'exhaustive', kernels of three 16-bit inputs on all triples
    triples: bool = False
    #: of the user's own: seconds that a launch may take, beside compilation, and GiB of memory on the CPU
    timeout: float = TIMEOUT
    memory: float | None = None
    #: the user's functions, by name, that are judged in this process
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    @property
    def own(self) -> bool:
        """Whether lowerings of the user's own are asked for."""
        return bool(self.user_lowerings or self.functions)


@dataclass(frozen=True)
class Job:
    """One cell to fill: a lowering of a case in a spelling. `reason`: why it is not run. `mine`: a
    user's own lowering. `setting`: of a composite kernel, whose outputs are a cell each; `resolved`: those that
    another job's setting resolves, see `verify.kernel.Setting`. `kind`: of the reason. `calls`: whether other calls
    than the walk's are made; `scalars`: also with other Python scalars."""

    target: Target
    lowering: Lowering
    reason: str | None = None
    mine: bool = False
    setting: Setting | None = None
    resolved: frozenset[str] = frozenset()
    kind: str = "absent"
    calls: bool = False
    scalars: bool = False

    @property
    def label(self) -> str:
        scalars = "".join(f" {name}={value!r}" for name, value in self.target.scalars.items())
        return f"{self.target.kernel.name}{scalars} {self.target.dtype} {self.lowering.name} {self.target.spelling}"

    @property
    def called(self) -> tuple[Any, ...]:
        """What is called, however its inputs lie in memory."""
        target = self.target
        return target.kernel.name, target.backend.name, target.dtype, self.lowering.name, *target.scalars.items()

    @property
    def arranged(self) -> bool:
        """Whether the inputs of an elementwise kernel lie in another way than the plain one."""
        return self.setting is None and self.target.layout is not None


@dataclass(frozen=True)
class Found:
    """What a walk found of one output: tallies by truth of the scalars, how to read them, and its launches."""

    tallies: dict[str, Tally]
    readers: dict[str, Reader]
    stated: Stated | None
    resolution: dict[str, dict[str, float]]
    unresolved: str
    against_eager: bool
    fmt: Format


def walk(
    case: Case, job: Job, reference: Lowering | None, elements: range | None = None
) -> tuple[dict[str, Found], Launched]:
    """Launch a lowering on every portion of the case and judge all that it gives, by output.

    elements: of a sweep, those to be walked, whole portions; None: all.

    Raises LoweringError, NotLowered, OracleViolation, OracleError.
    """
    target, lowering = job.target, job.lowering
    began = time.perf_counter()
    portions = case.portions()
    if elements is not None and isinstance(case, Pointwise):
        portions = range(elements.start // case.portion, elements.stop // case.portion)
        call = case.built(lowering, target)
    else:
        call = lowering.build(target)
    launched = Launched(compiling=time.perf_counter() - began)
    building = native.compiled_for()
    found: dict[str, Found] = {}
    for number in portions:
        eager = None if reference is None else case.eager(number, reference, target)
        one = launch_steady(
            call, case.given(number), case.backend, lowering.name, names=case.outputs, like=eager,
            repeats=repeats_of(first=number == 0, user=job.mine),
        )  # fmt: skip
        compiling = one.first if number == 0 else 0.0
        launched += Launched(one.seconds, one.repeats if one.distinct > 1 else 1, one.distinct, one.told, compiling)
        for outputs in one.results:
            for name, y in outputs.items():
                new = judged(case, job, number, name, y, None if eager is None else eager.get(name), found.get(name))
                found[name] = new
        few = not lowering.each_shape or case.portions() == range(1)
        if number == 0 and one.steady and job.calls and few and isinstance(case, Pointwise):
            given = case.given(0)
            sample = Sample(given, one.output) if lowering.each_shape else Sample.of(given, one.output)
            options = {"mine": job.mine, "scalars": job.scalars}
            launched = replace(launched, calls=call_all(case, target, lowering, call, reference, sample, **options))
        if one.steady and job.calls and isinstance(case, Instance):
            first = lowerings(target.kernel)[0]
            options = {"mine": job.mine, "scalars": job.scalars}
            launched = replace(launched, calls=call_problems(case, target, lowering, call, first, **options))
        for name, y in one.results[0].items():
            exact = found[name].tallies["exact"] + case.digests(number, name, y.reshape(-1))
            found[name] = replace(found[name], tallies=found[name].tallies | {"exact": exact})
    return found, launched + Launched(compiling=native.compiled_for() - building)


def judged(
    case: Case, job: Job, number: int, name: str, y: torch.Tensor, eager: torch.Tensor | None, before: Found | None
) -> Found:
    """One output of one launch, added to what is known of that output."""
    flat, other = y.contiguous().reshape(-1), None if eager is None else eager.contiguous().reshape(-1)
    if not len(flat):
        raise LoweringError("the output has no element", "inapplicable")
    stated, on = terms(case, job.target, job.lowering, number, name, y, user=job.mine)
    fmt, meant = format_of(y), next(one for one in on.values() if one.meant)
    tallies = dict(before.tallies) if before else {}
    for truth, one in on.items():
        asked = (name, truth, one.judge.limits.values, tuple(e.id for e in one.judge.excuses), job.mine)
        tally = case.known(number, asked, flat, other)
        if tally is None:
            formulas, engine = case.formulas(number, name, y), case.engine(number, name, truth)
            tally = one.judge.tally(one.elements, flat, other, formulas, engine)
            one.judge.sample(one.elements, case.sampled(number, name, flat), flat)
            case.learn(number, asked, flat, other, tally)
        tallies[truth] = tallies.get(truth, Tally()) + tally
    known: tuple[dict[str, dict[str, float]], str] = ({}, "")
    if before:
        known = before.resolution, before.unresolved
    elif number == 0:  # of a portion, which may be larger where there is room
        some = flat[: case.backend.portion] if isinstance(case, Pointwise) else flat
        known = resolved(meant.elements, some, fmt, stated, None if name in job.resolved else case.strata(name, y))
    return Found(tallies, {truth: one.reader for truth, one in on.items()}, stated, *known, eager is not None, fmt)


@dataclass(frozen=True)
class Launched:
    """All launches of a cell: seconds in the kernel, and of a lowering that is not steady the launches of a portion,
    the most different results of one, and how they differ. compiling: seconds of building it and its first launch;
    calls: other calls than the walk's."""

    seconds: float = 0.0
    repeats: int = 1
    distinct: int = 1
    told: str = ""
    compiling: float = 0.0
    calls: Called | None = None

    def __add__(self, other: Launched) -> Launched:
        return Launched(
            self.seconds + other.seconds, max(self.repeats, other.repeats), max(self.distinct, other.distinct),
            self.told or other.told, self.compiling + other.compiling, self.calls or other.calls,
        )  # fmt: skip

    def took(self, began: float) -> dict[str, float]:
        """Where the seconds since `began` went, as cells have it."""
        check = max(time.perf_counter() - began - self.seconds - self.compiling, 0.0)
        return {"kernel_s": self.seconds, "check_s": check, "compile_s": self.compiling}


def run(
    selection: Selection, on_cell: Callable[[Any], Any] | None = None, progress: Progress | None = None, *,
    workers: int | None = 1, shard: tuple[int, int] = (1, 1), journal: Journal | None = None,
    on: cluster.Cluster | None = None,
) -> Any:  # fmt: skip
    """Walk everything selected and return a report (`verify.reports.schema`).

    workers: processes that share the jobs; 1: this one does them; None: as many as pay
    shard: number k of n parts, into which the jobs are divided; `verify.merge` joins their reports
    journal: of `identity`; the jobs in it are not done again
    on: the Ray cluster whose processes do the jobs; None: those of this machine
    The cells are the same whatever these are.
    A KeyboardInterrupt ends the run: the cells complete by then are kept, `interrupted` is set.
    Raises UsageError for unknown names, NothingToCompare where no backend is present, Broken for a mistake of this
    project.
    """
    present, absent = backends_of(selection)
    jobs = [job for backend in present for job in jobs_of(selection, backend)]
    if not jobs:
        raise NothingToCompare("no kernel, dtype, lowering and spelling agree with the options")
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
            "whole": whole,
            "parts": [],
        }
    cells: list[dict[str, Any]] = report["cells"]
    used: Counter[str] = Counter()  # cells by allowance
    at = 0  # among `numbers`
    completed: set[int] = set()
    failing: Counter[str] = Counter()

    def on_end(one: Ended) -> None:
        if journal is not None and not one.died and not isinstance(one.value, BaseException):
            journal.add(one.number, plan.label(jobs, one.number), one.value)
        if progress:
            failing.update(_failing(one.value))
            told = ", ".join(f"{count} {status}" for status, count in failing.items())
            label = "; ".join(filter(None, (told, f"last: {plan.label(jobs, one.number)}")))
            progress(len(results.settled), len(plan.tasks), label, (one.number, one.seconds, _inputs(one.value)))

    def complete(number: int) -> None:
        """Put down the cells of a job, in the order of the jobs."""
        found = results.of(number)
        completed.add(number)
        if isinstance(found, Mapping):
            report["shard"]["parts"].append(found)
            return
        for cell in found:
            ledger.cap(cell, used)
            if on_cell:
                on_cell(cell)
            cells.append(cell)
            if "shard" in report:
                report["shard"]["numbers"].append(number)

    known = {} if journal is None else journal.known
    with contextlib.closing(_Results(jobs, plan, selection, present, workers, known, on_end, on, shard)) as results:
        try:
            if progress:
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
        except (UsageError, NothingToCompare):
            raise
        except Exception as error:
            raise Broken(jobs[numbers[at]].label, report | {"interrupted": True}) from error
    if progress:
        progress(len(plan.tasks), len(plan.tasks), "")
    return report


#: What decides cells: the engine, kernels, oracles and native code, and the ledger.
SOURCES = (".py", ".toml", ".cpp", ".h")


def identity(selection: Selection) -> dict[str, Any]:
    """What a journal is for: what was asked, of which source, where. Raises what `run` does for a selection."""
    root = Path(kernel.__file__).parent
    folders = [path for path in root.iterdir() if path.is_dir() and path.name != "reports"]
    files = [*root.iterdir(), *(path for folder in folders for path in folder.rglob("*"))]
    source = {path.relative_to(root).as_posix(): path for path in files if path.suffix in SOURCES}
    for text in selection.user_lowerings:
        own = sources(text)
        source |= {f"{text} {name}": path for name, path in own.items()}
    present, absent = backends_of(selection)
    return {
        "selection": asdict(selection),
        "environment": {b.name: b.fingerprint() for b in present} | {f"{n} absent": why for n, why in absent.items()},
        "source": {
            name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            for name, path in sorted(source.items())
            if path.is_file()
        },
    }


def _identity_there(selection: Selection, threads: int) -> dict[str, Any]:
    """`identity` in a process whose launches have that many threads."""
    backends.launch_threads = threads
    return identity(selection)


class Broken(Exception):
    """A mistake of this project ended the run, at `label`. `report` has the cells that were complete."""

    def __init__(self, label: str, report: dict[str, Any]) -> None:
        super().__init__(f"an internal error at {label}")
        self.report = report


def _empty(job: Job, selection: Selection) -> list[dict[str, Any]]:
    """What is known of a job's cells before it is done."""
    target = job.target
    blank = {
        "kernel": target.kernel.name,
        "lowering": job.lowering.name,
        "spelling": target.spelling,
        "backend": target.backend.name,
        "dtype": target.dtype,
        "scalars": dict(target.scalars),
        "domain": {"kind": "none", "size": 0, "seed": selection.seed, "digest": ""},
        "source": source_of(target.kernel.name),
        **({"predicted": {}} if backends.virtual(target.backend) else {}),
    }
    if job.setting is None:
        return [blank]
    return [blank | {"output": name} for name in target.kernel.outputs_of(job.setting)]


#: A module of kernels or oracles that a file names, imported or as a string, and what it imports from it.
_NAMED = re.compile(r"verify\.((?:kernels|oracles)[\w.]*)(?: import (\w+(?:, \w+)*))?")


@functools.cache
def source_of(kernel_name: str) -> str:
    """Digest (16 hex digits) of the kernel's files in kernels/ and oracles/: those of its name and what they use."""
    root = Path(kernel.__file__).parent
    found: dict[str, bytes] = {}
    waiting = [path for folder in ("kernels", "oracles") for path in (root / folder).rglob(f"{kernel_name}.py")]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(root).as_posix()
        if name in found or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        found[name] = text.encode()  # with one kind of line end on every system
        for module, names in _NAMED.findall(text):
            place = root.joinpath(*module.strip(".").split("."))
            waiting += [place.with_suffix(".py"), *(place / f"{one}.py" for one in names.split(", ") if one)]
    hasher = hashlib.sha256()
    for name, data in sorted(found.items()):
        hasher.update(f"{name} {len(data)}\n".encode() + data)
    return hasher.hexdigest()[:16]


def fill(job: Job, held: list[Case], selection: Selection) -> list[dict[str, Any]]:
    """The cells of a job, one an output. `held` has the last job's case, then this one's."""
    if job.reason is not None:
        empty = _empty(job, selection)
        return [cell | {"status": "not-run", "reason": job.reason, "reason_kind": job.kind} for cell in empty]
    began = time.perf_counter()
    try:
        case, found, launched = _walked(job, held, selection)
        cells = {name: cell_of(case, job, one, launched, name) for name, one in found.items()}
    except FAULTS as fault:
        return _faulty(job, selection, fault)
    return _filled(job, selection, cells, launched.took(began))


#: What ends a job, but not the run.
FAULTS = (NotLowered, LoweringError, OracleViolation, OracleError)


def _walked(
    job: Job, held: list[Case], selection: Selection, elements: range | None = None
) -> tuple[Case, dict[str, Found], Launched]:
    case = case_of(job, selection, held)
    reference = lowerings(job.target.kernel)[0]
    alone = reference.name == job.lowering.name or reference.reason(job.target) is not None
    return case, *walk(case, job, None if alone else reference, elements)


def _faulty(job: Job, selection: Selection, fault: Exception) -> list[dict[str, Any]]:
    """The cells of a job that one of FAULTS has ended."""
    told = {"status": "error", "reason": str(fault)}
    if isinstance(fault, NotLowered):
        told |= {"status": "not-run", "reason_kind": "not-lowered"}
    elif isinstance(fault, LoweringError):
        told |= {"reason_kind": fault.kind}
        if job.mine and job.arranged and fault.kind == "raised":  # many kernels take contiguous input alone
            refused = f"it refuses this layout: {fault}"
            told = {"status": "not-run", "reason": refused, "reason_kind": "inapplicable"}
    else:
        told |= {"status": "oracle-violation", "reason_kind": "oracle"}
    return [cell | told for cell in _empty(job, selection)]


def _filled(
    job: Job, selection: Selection, cells: dict[str, dict[str, Any]], seconds: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The cells of a job from those of the outputs that its lowering gave."""
    filled = []
    for cell in _empty(job, selection):
        one = cells.get(cell.get("output", ""))
        if one is None:
            absent = {"status": "not-run", "reason": "the lowering does not give this output"}
            filled.append(cell | absent | {"reason_kind": "inapplicable"})
            continue
        one["timing"] |= {name: value / len(cells) for name, value in seconds.items()}
        filled.append(cell | one)
    if (virtual := backends.virtual(job.target.backend)) is not None:
        filled = [cell | {"predicted": virtual.modelled()} for cell in filled]
    return filled


def part_of(job: Job, start: int, stop: int, held: list[Case], selection: Selection) -> dict[str, Any]:
    """What is found of the elements start..stop-1 of a sweep, as JSON (see `verify.sweep`)."""
    began, ends = time.perf_counter(), {"start": start, "stop": stop}
    try:
        case, found, launched = _walked(job, held, selection, range(start, stop))
        one = found[""]
        first = None
        if not start:
            calls = None if launched.calls is None else asdict(launched.calls)
            first = {"resolution": one.resolution, "unresolved": one.unresolved, "calls": calls} | _facts(case, job)
    except FAULTS as fault:
        return ends | {"cells": _faulty(job, selection, fault)}
    part = {
        **ends,
        "stated": None if one.stated is None else asdict(one.stated),
        "device": _on_device(job),
        "tallies": {truth: tally.record() for truth, tally in one.tallies.items()},
        "against_eager": one.against_eager,
        "launched": {name: getattr(launched, name) for name in ("repeats", "distinct", "told")},
        "seconds": launched.took(began),
        "first": first,
    }
    plain: dict[str, Any] = json.loads(json.dumps(part))
    return plain


def cells_of(job: Job, part: Mapping[str, Any], selection: Selection, domain: Domain) -> list[dict[str, Any]]:
    """The cells of a job from a part that is all of its sweep, or, of what is not yet known of it, of a part alone.

    Needs no device: of what is here only the sources."""
    if "cells" in part:
        return list(part["cells"])
    target, first = job.target, part["first"] or {}
    case = Pointwise(target.kernel, target.scalars, target.dtype, target.backend, domain)
    stated = part["stated"] and Stated(**part["stated"])
    readers = case.readers(stated, ftz=part["device"]["ftz"], user=job.mine)
    known = first.get("resolution", {}), first.get("unresolved", "")
    tallies = sweep.tallies_of(part)
    counted, due = tallies["exact"].whole.inputs, part["stop"] - part["start"]
    if counted < due or (counted > due and part["launched"]["distinct"] == 1):  # each different result is judged
        raise RuntimeError(f"{job.label}: {counted} of {due} elements were counted")
    found = Found(tallies, readers, stated, *known, part["against_eager"], case.fmt)
    told: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in (first.get("calls") or {}).items()}
    launched = Launched(**part["launched"], calls=Called(**told) if told else None)
    empty: dict[str, Any] = {"properties": [], "trust": [], "flags": {}}
    of_lowering = empty | {name: value for name, value in first.items() if name in empty}
    try:
        cell = cell_of(case, job, found, launched, of_lowering=of_lowering | part["device"])
    except FAULTS as fault:
        return _faulty(job, selection, fault)
    return _filled(job, selection, {"": cell}, part["seconds"])


def told_by(part: Mapping[str, Any]) -> dict[str, Any]:
    """The cell that a part of a report tells of (`verify.reports.schema.Part`), as `cells_of` makes it."""
    facts, mine = kernel.load(part["kernel"]), is_file(part["lowering"])
    if isinstance(facts, Composite):
        raise UsageError(f"{part['kernel']} has no sweeps")
    if source_of(facts.name) != part["source"]:
        raise UsageError(f"{facts.name} has other files here than where it was run; merge with those of the run")
    target = Target(facts, part["scalars"], part["spelling"], part["dtype"], backends.load(part["backend"]))
    one = next((one for one in lowerings(facts) if one.name == part["lowering"]), lowerings(facts)[0])
    job = Job(target, replace(one, name=part["lowering"]), mine=mine)
    domain = Domain("exhaustive", FORMATS[part["dtype"]], facts.tensors(part["scalars"]))
    (cell,) = cells_of(job, part["found"], Selection((facts.name,)), domain)
    return cell


def _facts(case: Case, job: Job) -> dict[str, Any]:
    """What a cell tells of its lowering here, whatever it gives on the domain."""
    target, lowering = job.target, job.lowering
    lawless = not job.mine or job.setting is not None or target.layout is not None
    return {
        "properties": [] if lawless else laws.hold(target, lowering.build(target), lowering.name),
        "trust": trust(case),
        "flags": _anywhere(lowering.flags(target)),
        **_on_device(job),
    }


def _on_device(job: Job) -> dict[str, Any]:
    """What decides what a lowering may give on the device."""
    return {"ftz": job.lowering.ftz(job.target), "capability": job.target.backend.capability()}


def cell_of(
    case: Case, job: Job, found: Found, launched: Launched, output: str = "",
    of_lowering: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Everything of a cell that its tallies decide; of_lowering: what `_facts` gave where they were made."""
    of_lowering = of_lowering or _facts(case, job)
    target, exact = job.target, found.tallies["exact"]
    stated, fmt = found.stated, found.fmt
    meant = stated.truth if stated and stated.truth in found.tallies else "exact"
    records = found.readers[meant].regions(found.tallies[meant], stated, found.resolution)
    concluded = conclude(records)
    if job.mine and stated and len(found.tallies) > 1:  # nothing says to which of the two scalars it keeps
        meant, stated, records, concluded = _kinder(found, (meant, stated, records, concluded))
    if launched.distinct > 1:
        concluded = weighed(concluded, "unsteady", "unsteady", f"not deterministic: {launched.told}")
    if launched.calls:
        concluded = weighed(concluded, launched.calls.status, launched.calls.kind, launched.calls.remark)
    if found.unresolved:
        concluded = weighed(concluded, "unjudged", "resolution", found.unresolved)
    whole, digests = exact.whole, exact.digests or tuple(sorted(exact.sums.items()))
    told = found.tallies[meant].whole
    concluded = lawful(concluded, of_lowering["properties"])
    cell: dict[str, Any] = {
        **concluded,
        "properties": of_lowering["properties"],
        "allowance": _allowed(job, concluded["status"], output, of_lowering["capability"]),
        "inputs": whole.inputs,
        "regions": records,
        "error": overall(found.readers["exact"], exact, stated if meant == "exact" else None),
        "worst": _worst(records, meant),
        "domain": case.domain(whole.inputs, exact),
        "digest": root(digests),
        "chunks": [f"{value:016x}" for _, value in digests],
        **{name: of_lowering[name] for name in ("trust", "flags", "ftz")},
        "timing": {"mp_elements": whole.mp},
    }
    if target.spelling == target.default_spelling if job.setting is None else False:
        cell["error"]["binades"] = binades(exact)
    if "rounded" in found.tallies:
        cell["error_rounded_scalar"] = overall(
            found.readers["rounded"], found.tallies["rounded"], stated if meant == "rounded" else None
        )
    if found.against_eager:
        cell["against_eager"] = {k: told.counts.get(k, 0) for k in ("different", "closer", "farther", "tied")}
    if exact.formulas:
        cell["formula"] = case.identified(exact.formulas).record(fmt)
    if stated:
        value = records.get("normal", next(iter(records.values())))["bound"]["measured"]
        cell["bound"] = {
            "value": stated.value, "metric": stated.metric, "source": stated.source, "truth": stated.truth,
            "measured": value,
        }  # fmt: skip
    if launched.calls:
        cell["calls"] = launched.calls.record()
    if launched.distinct > 1:
        cell |= {"repeats": launched.repeats, "distinct": launched.distinct}
    return cell


def _kinder(found: Found, first: tuple[str, Stated, Any, Any]) -> tuple[str, Stated, Any, Any]:
    """Truth of the scalars, bound, records and conclusion by the truth that is kinder to all of the cell: that which
    the bound means (`first`), or the other one."""
    other = next(truth for truth in found.tallies if truth != first[0])
    stated = replace(first[1], truth=other)
    records = found.readers[other].regions(found.tallies[other], stated, found.resolution)
    second = other, stated, records, conclude(records)
    return max(first, second, key=lambda one: status.STATUSES.index(one[3]["status"]))


def lawful(concluded: dict[str, Any], properties: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The conclusion of a cell that is to keep the kernel's stated properties."""
    broken = [one for one in properties if one["violations"]]
    if not broken:
        return concluded
    told = "; ".join(
        f"{one['name']} is broken by {one['violations']} of {one['inputs']}, first by {', '.join(one['witness'])}"
        for one in broken
    )
    return weighed(concluded, "exceeds-bound", "property", told)


def weighed(concluded: dict[str, Any], found: str, kind: str, told: str) -> dict[str, Any]:
    """The conclusion of a cell of which something is found beside its elements: a status, the kind of its reason."""
    if status.STATUSES.index(found) >= status.STATUSES.index(concluded["status"]):
        return concluded | {"reason": "; ".join(filter(None, (concluded["reason"], told)))}
    reason = "; ".join(filter(None, (told, concluded["reason"])))
    return concluded | {"status": found, "reason": reason, "reason_kind": kind}


def _worst(records: Mapping[str, Any], meant: str) -> list[dict[str, Any]]:
    """The worst elements of all regions: those of the worst status first, then by error."""
    order = sorted(records.values(), key=lambda r: status.STATUSES.index(r["status"]))
    rows = [row | ({} if meant == "exact" else {"truth": meant}) for r in order for row in r["worst"]]
    head = [r["worst"][0]["index"] for r in order if r["status"] != "passed" and r["worst"]]
    rows.sort(key=lambda row: (row["index"] not in head, -(row["share"] or 0.0), -(row["ulp"] or 0.0), row["index"]))
    return rows[: 2 * WORST]


def _anywhere(flags: Any) -> Any:
    """Flags with the paths of installed files as they are on any machine."""
    if isinstance(flags, Mapping):
        return {name: _anywhere(value) for name, value in flags.items()}
    return flags.rpartition("/site-packages/")[2] if isinstance(flags, str) else flags


def _allowed(job: Job, found: str, output: str, capability: str) -> str:
    """The id of the allowance of a registered cell, or ''."""
    if job.mine or found not in status.ALLOWABLE:
        return ""
    target = job.target
    cell = {"lowering": job.lowering.name, "kernel": target.kernel.name, "dtype": target.dtype}
    entry = ledger.allowance(target.backend.name, found, capability, **cell, spelling=target.spelling, output=output)
    return entry.id if entry else ""


def resolved(
    source: Any, y: torch.Tensor, fmt: Format, stated: Stated | None, strata: Strata | None
) -> tuple[dict[str, dict[str, float]], str]:  # fmt: skip
    """Median and 90% point of the resolution in each region, of up to RESOLVED hashed elements, and why no stratum
    resolves ('' where one does, or none are asked for)."""
    if source is None or stated is None or fmt.bits == 64:
        return {}, ""
    index = torch.tensor(spread(len(y), RESOLVED), dtype=torch.int64, device=y.device)
    facts = source.facts(index, y[index], double=False, zeroed=False)
    limits = Limits.of(stated.metric, stated.value)
    region = decide(y[index], facts, fmt, limits).region
    d = resolution(facts, fmt, limits)
    found = {}
    for k, name in enumerate(REGIONS):
        here = d[(region == k) & torch.isfinite(d)]
        if len(here) and name not in ("special", "exact-zero"):
            ends = here.quantile(torch.tensor([0.5, 0.9], dtype=here.dtype, device=here.device)).tolist()
            found[name] = {"median": ends[0], "p90": ends[1]}
    if strata is None:
        return found, ""
    names, of = strata
    parts = (of.bincount(minlength=len(names)) / max(len(of), 1)).tolist()
    return found, unresolved(d, of[index], names, parts, fmt)


def case_of(job: Job, selection: Selection, held: list[Case]) -> Case:
    """The case of a job: the last one where it is the same."""
    target = job.target
    if job.setting is not None:
        given: tuple[Any, ...] = (target.kernel, job.setting, target.scalars, target.dtype, target.backend)
        if not (held and isinstance(held[0], Instance) and held[0].serves(*given)):
            held.clear()  # first: there may be no room for two
            held.append(
                Instance(target.kernel, job.setting, target.scalars, target.dtype, target.backend, selection.seed)
            )
        return held[0]
    given = (target.kernel, target.scalars, target.dtype, target.backend, _domain(job, selection))
    if not (held and isinstance(held[0], Pointwise) and held[0].serves(*given)):
        held.clear()
        held.append(Pointwise(*given))
    return held[0]


def _domain(job: Job, selection: Selection) -> Domain:
    """The domain of an elementwise job. Spellings other than the default one get the quick one: they are there to tell
    formulas apart."""
    target = job.target
    sizes = SIZES_FLOAT64 if FORMATS[target.dtype].bits == 64 else SIZES
    quick = None if target.spelling == target.default_spelling else 1 << sizes["quick"]
    limits = [n for n in (job.lowering.limit(target), quick) if n is not None]
    return domain_of(
        target.kernel, FORMATS[target.dtype], target.scalars, selection.profile, selection.seed,
        limit=min(limits, default=None), most=target.backend.elements, triples=selection.triples,
    )  # fmt: skip


# Where jobs are done.

#: Seconds, roughly, by which jobs are put in order: an element in tensors and one in multiprecision, a compilation, a
#: problem and its truth, and what a process takes until it can begin (two cores of a Xeon, November 2026); of a sweep,
#: an element on the host and on a GPU.
EACH, EACH_FLOAT64, COMPILING, PROBLEM, STARTING = 5e-7, 1e-5, 1.0, 1.0, 5.0
EACH_SWEPT, EACH_SWEPT_GPU = 1e-7, 1e-10
NEARLY = 0.25  # seconds for which a user's process is waited for with nothing else done
TOGETHER = 16  # groups of ranges of one sweep, each in one process at first


@dataclass(frozen=True)
class Task:
    """What is done at a time: a job, or of a sweep the `elements` of its domain."""

    job: int
    elements: range | None = None


@dataclass(frozen=True)
class Plan:
    """What a run, or a shard of one, has to do.

    numbers  its jobs, in order
    sweeps   the domains of those of them that are done in ranges
    tasks    in the order of the jobs; their numbers are those of a journal
    """

    numbers: Sequence[int]
    sweeps: Mapping[int, Domain]
    tasks: Sequence[Task]

    def label(self, jobs: Sequence[Job], number: int) -> str:
        """A task, for people."""
        task = self.tasks[number]
        if task.elements is None:
            return jobs[task.job].label
        share = task.elements.start / self.sweeps[task.job].size
        return f"{jobs[task.job].label} from {share:.4%} of its inputs"


def planned(jobs: Sequence[Job], selection: Selection, index: int = 1, of: int = 1) -> Plan:
    """The tasks of a shard: whole cases, so that as much is to be done in each, and a range of every sweep.

    Raises NothingToCompare for none.
    """
    sweeps = {n: domain for n, job in enumerate(jobs) if (domain := _swept(job, selection, of)) is not None}
    spans: dict[int, range | None] = dict.fromkeys(_share(jobs, selection, sweeps, index, of))
    for n, domain in sweeps.items():
        unit = unit_of(jobs[n].target.backend)
        first, end = (domain.size // unit * k // of * unit for k in (index - 1, index))
        if first < end:
            spans[n] = range(first, end)
    if not spans:
        whole = len(_groups(jobs, [Task(n) for n, job in enumerate(jobs) if job.reason is None], selection))
        raise NothingToCompare(f"shard {index}/{of} has no job: the run has {whole} cases to divide")
    tasks: list[Task] = []
    for n, span in sorted(spans.items()):
        if span is None:
            tasks.append(Task(n))
            continue
        parts = ranges_of(span.start, span.stop, unit_of(jobs[n].target.backend))
        tasks += [Task(n, range(start, stop)) for start, stop in parts]
    return Plan(sorted(spans), {n: domain for n, domain in sweeps.items() if n in spans}, tasks)


def _swept(job: Job, selection: Selection, of: int) -> Domain | None:
    """The domain of a job that is done in ranges, since it has many portions; None of any other."""
    target = job.target
    if job.setting is not None or job.reason is not None:
        return None
    bits = FORMATS[target.dtype].bits * len(target.kernel.tensors(target.scalars))
    if bits != 16 and (bits not in (32, 48) or selection.profile != "exhaustive"):  # others take time to be composed
        return None
    domain = _domain(job, selection)
    if domain.kind != "exhaustive" or domain.size <= unit_of(target.backend):
        return None
    if job.mine and of > 1 and domain.size <= 1 << 32:
        return None  # of a user's own the layouts depend on the whole plain call, which one shard then does
    return domain


def _groups(jobs: Sequence[Job], tasks: Sequence[Task], selection: Selection) -> list[tuple[float, list[int]]]:
    """The tasks to be done, by their places, by case, with an estimate of their seconds, the dearest case first."""
    groups: dict[Any, list[int]] = {}
    seconds: dict[Any, float] = defaultdict(float)
    several = Counter(task.job for task in tasks)
    for number, task in enumerate(tasks):
        job, target = jobs[task.job], jobs[task.job].target
        key: tuple[Any, ...] = target.kernel.name, target.dtype, target.backend.name, *sorted(target.scalars.items())
        if task.elements is not None:  # neighbours together, in so many groups that processes begin at once
            size = len(task.elements)
            key = *key, "range", task.job, task.elements.start // (size * -(-several[task.job] // TOGETHER))
        elif job.setting is not None:
            key, size = (*key, job.setting.name), 0
        else:
            domain = _domain(job, selection)
            key, size = (*key, domain.kind, domain.size), domain.size
        compiled = task.elements is None or key not in groups
        each = EACH_FLOAT64 if target.dtype == "float64" else EACH
        if task.elements is not None:
            each = EACH_SWEPT_GPU if unit_of(target.backend) > target.backend.portion else EACH_SWEPT
        seconds[key] += size * each
        seconds[key] += COMPILING * (compiled and job.lowering.name != lowerings(target.kernel)[0].name)
        seconds[key] += PROBLEM * (job.setting is not None and key not in groups)
        groups.setdefault(key, []).append(number)
    return sorted(((seconds[key], group) for key, group in groups.items()), key=lambda one: (-one[0], one[1]))


def _share(
    jobs: Sequence[Job], selection: Selection, sweeps: Container[int], index: int, of: int
) -> list[int]:  # fmt: skip
    """The jobs of a shard that are done as wholes."""
    if of == 1:
        return [n for n in range(len(jobs)) if n not in sweeps]
    tasks = [Task(n) for n, job in enumerate(jobs) if job.reason is None and n not in sweeps]
    groups = [(seconds, [tasks[k].job for k in group]) for seconds, group in _groups(jobs, tasks, selection)]
    if selection.user_lowerings:  # whether layouts run depends on the plain call
        joined: dict[Any, tuple[float, list[int]]] = {}
        for seconds, group in groups:
            target = jobs[group[0]].target
            key = target.kernel.name, target.backend.name, target.dtype
            before = joined.get(key, (0.0, []))
            joined[key] = before[0] + seconds, before[1] + group
        groups = list(joined.values())
    shares: list[tuple[float, int, list[int]]] = [(0.0, k, []) for k in range(min(of, len(groups)))]
    for seconds, group in groups:
        least, k, before_ = shares[0]
        heapq.heapreplace(shares, (least + seconds, k, before_ + group))
    mine = next((group for _, k, group in shares if k == index - 1), [])
    return mine + [n for n, job in enumerate(jobs) if job.reason is not None and index == 1]


def _places(
    present: Sequence[Backend], groups: Sequence[tuple[float, list[int]]], workers: int | None
) -> list[dict[str, str]]:
    """The variables of each worker process; none where this process does the jobs."""
    if workers == 1 or not groups:
        return []
    each = [backend.processes() for backend in present]
    count = workers or min(map(len, each))
    whole, longest = sum(seconds for seconds, _ in groups), groups[0][0]
    if workers is None and whole - max(whole / count, longest) < 2 * STARTING:
        return []
    count = min(count, sum(len(group) for _, group in groups))
    return [{name: value for one in each for name, value in one[k % len(one)].items()} for k in range(count)]


class _Results:
    """The results of tasks, done in this process when they are asked for or by worker processes.

    on_end is told of each task that has ended, in the order of their ends. settled: those that need nothing more."""

    def __init__(
        self, jobs: Sequence[Job], plan: Plan, selection: Selection, present: Sequence[Backend], workers: int | None,
        known: Mapping[int, Any], on_end: Callable[[Ended], None], on: cluster.Cluster | None, shard: tuple[int, int],
    ) -> None:  # fmt: skip
        self.jobs, self.plan, self.selection, self.known, self.on_end = jobs, plan, selection, known, on_end
        self.held: list[Case] = []
        self.ended: dict[int, Ended] = {}
        self.failed: set[tuple[Any, ...]] = set()  # plain calls that ended in an error
        self.stream: Generator[Ended] | None = None
        self.settled = set(known)
        self.tasks: dict[int, list[int]] = defaultdict(list)  # by job
        for number, task in enumerate(plan.tasks):
            self.tasks[task.job].append(number)
        for number, value in known.items():
            self._learn(number, value)
        wanted = [n for n, task in enumerate(plan.tasks) if jobs[task.job].reason is None and n not in known]
        found = [] if workers == 1 and on is None else _groups(jobs, [plan.tasks[n] for n in wanted], selection)
        groups = [(seconds, [wanted[k] for k in group]) for seconds, group in found]
        given = selection, backends.threads(), shard
        if on is not None and groups:
            needs = {name: amount for backend in present for name, amount in backend.resources().items()}
            make = functools.partial(_worker, *given, 1)
            identify = functools.partial(_identity_there, selection, backends.threads())
            self.stream = cluster.ended(make, [group for _, group in groups], on, needs, workers, identify, self.runs)
        elif places := _places(present, groups, workers):
            for text in selection.user_lowerings:
                imported(text)
            standby.drop()
            make = functools.partial(_worker, *given, max(backends.cores() // len(places), 1))
            ahead = len(selection.user_lowerings)
            self.stream = pool.ended(make, [group for _, group in groups], places, self.runs, ahead)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()

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
        if number in self.known:
            value = self.known[number]
        elif self.jobs[self.plan.tasks[number].job].reason is not None or not self.runs(number):
            job = self.jobs[self.plan.tasks[number].job]
            if job.reason is None:
                job = replace(job, reason="its plain call ended in an error", kind="inapplicable")
            value = fill(job, self.held, self.selection)
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
            one = Ended(number, _done(self.jobs, self.plan, number, self.held, self.selection))
            one = replace(one, seconds=time.perf_counter() - began)
        else:
            one = next(self.stream)
        if one.died:
            task = self.plan.tasks[one.number]
            job = self.jobs[task.job]
            told = {"status": "error", "reason": f"lowering {job.lowering.name}: {one.died}", "reason_kind": "ended"}
            value: Any = [cell | told for cell in _empty(job, self.selection)]
            if task.elements is not None:
                value = {"start": task.elements.start, "stop": task.elements.stop, "cells": value}
            one = replace(one, value=value)
        if isinstance(one.value, UsageError):
            raise one.value  # it ends the run, whatever is before it
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
        for cell, empty in zip(cells, _empty(job, self.selection), strict=True) if cells else ():
            if any(cell[name] != empty[name] for name in ("kernel", "lowering", "spelling", "dtype", "scalars")):
                raise RuntimeError(f"job {number}, {job.label}, came back as {cell}")
        if not job.arranged:
            self.failed |= {job.called for cell in cells or () if cell["status"] == "error"}


#: In place of a task that has not ended.
_NONE = Ended(-1, KeyboardInterrupt())


def _done(jobs: Sequence[Job], plan: Plan, number: int, held: list[Case], selection: Selection) -> Any:
    """Do a task: its cells, or its part."""
    task = plan.tasks[number]
    if task.elements is None:
        return fill(jobs[task.job], held, selection)
    return part_of(jobs[task.job], task.elements.start, task.elements.stop, held, selection)


def _inputs(value: Any) -> int:
    """Elements that a task has judged."""
    if isinstance(value, Mapping):
        return int(value["stop"] - value["start"])
    return 0 if isinstance(value, BaseException) else sum(cell.get("inputs", 0) for cell in value)


def _failing(value: Any) -> list[str]:
    """Statuses of the cells of a task that give an exit code other than 0; an allowance may still cover one."""
    cells = value.get("cells", ()) if isinstance(value, Mapping) else () if isinstance(value, BaseException) else value
    return [cell["status"] for cell in cells if status.EXIT_CODES[cell["status"]]]


def _lost(backend: Backend) -> bool:
    """Whether a launch that went wrong has taken the device with it."""
    try:
        backend.synchronize()
    except RuntimeError:
        return True
    return False


def _worker(selection: Selection, threads: int, shard: tuple[int, int], share: int) -> Callable[[int], Any]:
    """What a worker process does with the number of a task. threads: of a launch; share: of all else."""
    jobs = [job for backend in backends_of(selection)[0] for job in jobs_of(selection, backend)]
    plan = planned(jobs, selection, *shard)
    held: list[Case] = []
    backends.launch_threads = threads
    torch.set_num_threads(share)

    def do(number: int) -> Any:
        task = plan.tasks[number]
        job = jobs[task.job]
        try:
            found = _done(jobs, plan, number, held, selection)
        except RuntimeError as error:  # of torch, whatever it was asked to do when a launch's error came to light
            if not _lost(job.target.backend):
                raise
            first = next(iter(str(error).splitlines()), type(error).__name__)
            told = LoweringError(f"the device was lost while it was checked: {first}", "ended")
            cells = _faulty(job, selection, told)
            if task.elements is None:
                raise Spent(cells) from None
            raise Spent({"start": task.elements.start, "stop": task.elements.stop, "cells": cells}) from None
        if _lost(job.target.backend):
            raise Spent(found)
        return found

    return do


def backends_of(selection: Selection) -> tuple[list[Backend], dict[str, str]]:
    """Backends to run on, and the absent ones with their reason."""
    names = selection.backends or tuple(backends.names())
    found, absent = [], {}
    for name in names:
        backend = backends.load(name)
        reason = backend.unavailable()
        if reason is None:
            found.append(backend)
        else:
            absent[name] = reason
    if not found or (selection.backends and absent):
        raise NothingToCompare("; ".join(f"backend {name} is not present: {why}" for name, why in absent.items()))
    return found, absent


def jobs_of(selection: Selection, backend: Backend) -> Iterator[Job]:
    """Every cell selected on one backend, ordered so that cells of one case follow each other."""
    kernels = [kernel.load(name) for name in selection.kernels]
    _known_names(selection, kernels)
    order = _order(selection, kernels)
    for facts in kernels:
        if isinstance(facts, Composite):
            yield from _composite_jobs(facts, selection, backend, order)
            continue
        if selection.setting:
            raise UsageError(f"--set is for composite kernels; {facts.name} takes --scalar and --spelling")
        limits: dict[str, Any] = {"timeout": selection.timeout, "memory": selection.memory}
        users = [isolated(text, **limits) for text in selection.user_lowerings]
        users += [user_lowering(name, function=function) for name, function in selection.functions.items()]
        chosen = [
            one
            for one in lowerings(facts)
            if not selection.lowerings or any(fnmatch.fnmatchcase(one.name, p) for p in selection.lowerings)
        ]
        if selection.own and not selection.lowerings:
            chosen = chosen[:1]  # the reference, beside the user's own; the others when asked for
        for dtype in selection.dtypes or facts.dtypes:
            pairs = list(_targets(facts, selection))
            if users and not selection.spellings:
                pairs = _of_users(facts, pairs)
            for scalars, spelling in pairs:
                target = Target(facts, scalars, spelling, dtype, backend)
                beside = chosen if not users or selection.spellings or target.layout is None else ()
                for one in (*users, *beside):
                    if one.one_spelling and spelling != target.default_spelling:
                        continue
                    reason = one.reason(target)
                    mine, plain = one in users, spelling == target.default_spelling
                    calls = plain and target.layout is None
                    yield Job(target, one, reason, mine, calls=calls, scalars=mine and selection.scalars is None)


def _composite_jobs(facts: Composite, selection: Selection, backend: Backend, order: Order | None) -> Iterator[Job]:
    limits: dict[str, Any] = {"timeout": selection.timeout, "memory": selection.memory}
    users = [isolated_composite(text, order, **limits) for text in selection.user_lowerings]
    users += [user_composite(name, order, function=function) for name, function in selection.functions.items()]
    chosen = [
        one
        for one in lowerings(facts)
        if not selection.lowerings or any(fnmatch.fnmatchcase(one.name, p) for p in selection.lowerings)
    ]
    if selection.own and not selection.lowerings:
        chosen = chosen[:1]
    cases, reference = cases_of(facts, selection.scalars, selection.profile), lowerings(facts)[0].name
    for dtype in selection.dtypes or facts.dtypes:
        settings = settings_of(facts, selection.setting, selection.spellings, selection.profile, dtype)
        for number, setting in enumerate(settings):
            first = setting is settings[0]  # other calls are of problems of their own, whatever the setting
            beside = (one for one in settings if one.resolves and one.length == setting.length and one is not setting)
            resolved = frozenset(output for one in beside for output in facts.outputs_of(one))
            suited = setting.cases if setting.cases and not selection.scalars else cases
            if not (first or users or selection.spellings or selection.profile != "default"):
                suited = kernel.some(suited, number)
            for scalars in suited:
                target = Target(facts, scalars, setting.name, dtype, backend)
                for one in (*users, *chosen):
                    reason = backend.dtype_unavailable(dtype) or one.reason(target)
                    mine = one in users
                    calls = first and (mine or one.name == reference)
                    free = mine and selection.scalars is None
                    yield Job(target, one, reason, mine, setting, resolved, calls=calls, scalars=free)


def _targets(facts: Kernel, selection: Selection) -> Iterator[tuple[Scalars, str]]:
    given = dict(selection.scalars or {})
    if selection.scalars is not None and not given and {} not in facts.cases:
        raise UsageError(f"--scalar none: {facts.name} has no case of tensors alone, see `verify show {facts.name}`")
    unknown = [name for name in given if name not in facts.inputs]
    if unknown:
        raise UsageError(suggest(f"scalar of {facts.name}", unknown[0], facts.inputs))
    seen: dict[tuple[tuple[str, float], ...], bool] = {}
    every = selection.spellings or (selection.scalars is not None and selection.profile == "default")
    for scalars, spelling in facts.targets("exhaustive" if every else selection.profile):
        if given and not set(given) <= set(scalars) and not given.keys() <= set(facts.inputs):
            continue
        chosen = scalars
        if selection.scalars is not None and not given and scalars:
            continue
        if given:
            if set(scalars) != set(given):
                continue
            chosen = given
            if not facts.spellings[spelling].applies(given):
                continue
        if selection.spellings and spelling not in selection.spellings:
            continue
        key = (*sorted(chosen.items()), (spelling, 0.0))
        if key not in seen:
            seen[key] = True
            yield chosen, spelling


def _of_users(facts: Kernel, pairs: list[tuple[Scalars, str]]) -> list[tuple[Scalars, str]]:
    """With a user's own lowering: each case once, in its default spelling; the first one in every layout too."""
    plain = []
    for scalars, spelling in pairs:
        first = next(name for name, s in facts.spellings.items() if s.applies(scalars))
        if spelling == first:
            plain.append((scalars, spelling))
    first_case = [scalars for scalars, _ in plain[:1]]
    layouts = [(x, name) for x in first_case for name, s in facts.spellings.items() if s.layout and s.applies(x)]
    return [*plain, *layouts] or pairs


def _known_names(selection: Selection, kernels: list[Kernel | Composite]) -> None:
    for dtype in selection.dtypes:
        if dtype not in DTYPES + NARROW:
            raise UsageError(suggest("dtype", dtype, DTYPES + NARROW))
    known = list(dict.fromkeys(one.name for facts in kernels for one in lowerings(facts)))
    for pattern in selection.lowerings:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in known):
            raise UsageError(suggest("lowering", pattern, known))
    spellings = list(dict.fromkeys(name for facts in kernels for name in facts.spellings))
    for spelling in selection.spellings:
        if spelling not in spellings and not own_setting(spelling):
            raise UsageError(suggest("spelling", spelling, spellings))


def _order(selection: Selection, kernels: list[Kernel | Composite]) -> Order | None:
    """What --algorithm declares. Raises UsageError where it means nothing."""
    if not selection.algorithm:
        return None
    if not selection.own:
        raise UsageError("--algorithm is for a lowering of your own: expected --lowering FILE.py:FUNCTION beside it")
    for facts in kernels:
        if not (isinstance(facts, Composite) and facts.orders):
            raise UsageError(
                f"--algorithm declares how the terms of a row meet; the bound of {facts.name} has no order"
            )
    try:
        return Order.parse(selection.algorithm)
    except ValueError as error:
        raise UsageError(f"--algorithm {error}") from None
