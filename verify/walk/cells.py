"""The cells of a job from what its walk found: figures, statuses, provenance; those of a job that a fault ended."""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from verify import backends
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.facts.kernel import Composite, UsageError, is_file
from verify.facts.oracle import OracleError
from verify.inputs.domains import Domain
from verify.judge import status
from verify.judge.cell import Stated, binades, conclude, leaning, overall
from verify.judge.chunk import OracleViolation
from verify.judge.tally import WORST, root
from verify.lower.lowering import NotLowered, Target, Unsuited
from verify.lower.lowerings import lowerings
from verify.lower.user import digest_of
from verify.walk import laws, sweep
from verify.walk.called import Called
from verify.walk.cases import Case, trust
from verify.walk.plan import Job, Selection
from verify.walk.pointwise import Pointwise
from verify.walk.walk import Found, Launched, allowed, case_of, walk
from verify.workers.launch import LoweringError


def unfilled(job: Job, selection: Selection) -> list[dict[str, Any]]:
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
    root = Path(kernel.__file__).parents[1]
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
    return digest_of(found)


def fill(job: Job, held: list[Case], selection: Selection) -> list[dict[str, Any]]:
    """The cells of a job, one an output. `held` has the last job's case, then this one's."""
    if job.reason is not None:
        empty = unfilled(job, selection)
        return [cell | {"status": "not-run", "reason": job.reason, "reason_kind": job.kind} for cell in empty]
    began = time.perf_counter()
    try:
        case, found, launched = _walked(job, held, selection)
        cells = {name: cell_of(case, job, one, launched, name) for name, one in found.items()}
    except FAULTS as fault:
        return faulted(job, selection, fault)
    return _filled(job, selection, cells, launched.took(began))


#: What ends a job, but not the run.
FAULTS = (NotLowered, LoweringError, OracleViolation, OracleError)


def _walked(
    job: Job, held: list[Case], selection: Selection, elements: range | None = None
) -> tuple[Case, dict[str, Found], Launched]:
    try:
        case = case_of(job, selection, held)
        reference = lowerings(job.target.kernel)[0]
        alone = reference.name == job.lowering.name or reference.reason(job.target) is not None
        return case, *walk(case, job, None if alone else reference, elements)
    except Unsuited as misfit:
        if len(selection.kernels) == 1:
            raise
        raise NotLowered(str(misfit)) from misfit  # it is for another of the kernels
    except Exception as error:
        told = kernel.mistake(error)
        if told is None:
            raise
        raise OracleError(told) from error


def faulted(job: Job, selection: Selection, fault: Exception) -> list[dict[str, Any]]:
    """The cells of a job that one of FAULTS has ended."""
    told = {"status": "error", "reason": str(fault)}
    if isinstance(fault, NotLowered):
        told |= {"status": "not-run", "reason_kind": "not-lowered"}
    elif isinstance(fault, LoweringError):
        told |= {"reason_kind": fault.kind}
        if job.mine and job.laid_out and fault.kind == "raised":  # many kernels take contiguous input alone
            refused = f"it refuses this layout: {fault}"
            told = {"status": "not-run", "reason": refused, "reason_kind": "inapplicable"}
    else:
        told |= {"status": "oracle-violation", "reason_kind": "oracle"}
    return [cell | told for cell in unfilled(job, selection)]


def _filled(
    job: Job, selection: Selection, cells: dict[str, dict[str, Any]], seconds: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The cells of a job from those of the outputs that its lowering gave."""
    filled = []
    for cell in unfilled(job, selection):
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
    """The findings for the elements start..stop-1 of a sweep, as JSON (see `verify.walk.sweep`)."""
    began, ends = time.perf_counter(), {"start": start, "stop": stop}
    try:
        case, found, launched = _walked(job, held, selection, range(start, stop))
        one = found[""]
        first = None
        if not start:
            calls = None if launched.calls is None else asdict(launched.calls)
            first = {"resolution": one.resolution, "unresolved": one.unresolved, "calls": calls} | _facts(case, job)
    except FAULTS as fault:
        return ends | {"cells": faulted(job, selection, fault)}
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
    """The cells of a job from a part of its sweep: all of it, or a share that stands for the whole so far. Needs no
    device, only the sources."""
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
    found = Found(tallies, readers, stated, *known, part["against_eager"], case.fmt, part["launched"]["distinct"])
    told: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in (first.get("calls") or {}).items()}
    launched = Launched(**part["launched"], calls=Called(**told) if told else None)
    empty: dict[str, Any] = {"properties": [], "trust": [], "flags": {}}
    of_lowering = empty | {name: value for name, value in first.items() if name in empty}
    try:
        cell = cell_of(case, job, found, launched, of_lowering=of_lowering | part["device"])
    except FAULTS as fault:
        return faulted(job, selection, fault)
    return _filled(job, selection, {"": cell}, part["seconds"])


def told_by(part: Mapping[str, Any]) -> dict[str, Any]:
    """The cell that a part of a report describes (`verify.reports.schema.Part`), as `cells_of` makes it."""
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
    """What a cell says about its lowering on this machine, whatever its results on the domain."""
    target, lowering = job.target, job.lowering
    lawless = not job.mine or job.setting is not None or target.layout is not None
    return {
        "properties": [] if lawless else laws.hold(target, lowering.build(target), lowering.name),
        "trust": trust(case),
        "flags": _anywhere(lowering.flags(target)),
        **_on_device(job),
    }


def _on_device(job: Job) -> dict[str, Any]:
    """The facts about lowering and device on which a lowering's bounds depend."""
    return {"ftz": job.lowering.ftz(job.target), "capability": job.target.backend.capability()}


def cell_of(
    case: Case, job: Job, found: Found, launched: Launched, output: str = "",
    of_lowering: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Everything in a cell that its tallies decide. of_lowering: the result of `_facts` where the tallies were made."""
    of_lowering = of_lowering or _facts(case, job)
    target, exact = job.target, found.tallies["exact"]
    stated, fmt = found.stated, found.fmt
    meant = stated.truth if stated and stated.truth in found.tallies else "exact"
    records = found.readers[meant].regions(found.tallies[meant], stated, found.resolution)
    concluded = conclude(records)
    if job.mine and stated and len(found.tallies) > 1:  # nothing says to which of the two scalars it keeps
        meant, stated, records, concluded = _kinder(found, (meant, stated, records, concluded))
    if found.distinct > 1:
        concluded = weighed(concluded, "unsteady", "unsteady", f"not deterministic: {launched.told}")
    if launched.calls:
        concluded = weighed(concluded, launched.calls.status, launched.calls.kind, launched.calls.remark)
    if found.unresolved:
        concluded = weighed(concluded, "unjudged", "resolution", found.unresolved)
    if leans := leaning(exact):
        concluded = weighed(concluded, "suspect", "bias", leans)
    whole, digests = exact.whole, exact.digests or tuple(sorted(exact.sums.items()))
    told = found.tallies[meant].whole
    concluded = lawful(concluded, of_lowering["properties"])
    shown = {concluded["status"], *(record["status"] for record in records.values())}
    shown |= {"unsteady"} if found.distinct > 1 else set()
    shown |= {"unjudged"} if found.unresolved else set()
    shown |= {"suspect"} if leans else set()
    shown |= {launched.calls.status} if launched.calls else set()
    steady = found.distinct == 1 and (launched.calls is None or launched.calls.status == "passed")
    # of float64 some elements alone are looked at
    same = job.mine and found.against_eager and fmt.bits < 64 and not told.counts.get("different", 0)
    alone = found.unresolved and {record["status"] for record in records.values()} == {"passed"}
    capability, allowance = of_lowering["capability"], ""
    if not job.mine or (steady and (same or alone)):
        allowance = allowed(job, concluded["status"], shown, output, capability, as_eager=same)
    cell: dict[str, Any] = {
        **concluded,
        "properties": of_lowering["properties"],
        "allowance": allowance,
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
    if found.distinct > 1:
        cell |= {"repeats": launched.repeats, "distinct": found.distinct}
    return cell


def _kinder(found: Found, first: tuple[str, Stated, Any, Any]) -> tuple[str, Stated, Any, Any]:
    """Truth of the scalars, bound, records and conclusion under the truth that is kinder to the whole cell: the one
    that the bound means (`first`) or the other."""
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
    """The conclusion of a cell with a finding beside its elements: the finding's status and kind of reason."""
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
