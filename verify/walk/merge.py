"""Several reports as one: the shards of a run, or parts that were run by kernel."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from verify.facts.kernel import UsageError
from verify.jobs.journal import differences
from verify.judge import ledger
from verify.reports.schema import Cell, Part, Report, Shard

SHOWN = 8  # shards that are missing
_ANY: dict[str, Any] = {"inputs": 0, "status": "", "reason": "", "found": {}}  # in which the parts of a job may differ


def merged(reports: Sequence[Report]) -> Report:
    """The cells of all, of one environment, profile and seed; of shards in the order of the run that they are of.

    Where shards that divide sweeps are missing, what is there is joined, still as a shard: to be merged with others.
    Raises UsageError where they are not of one kind, a cell is in two, or a shard is missing or incomplete.
    """
    first = reports[0]
    for other in reports[1:]:
        for name in ("environment", "profile", "seed", "converted_from"):
            if found := differences(_undated(getattr(first, name)), _undated(getattr(other, name)), name):
                raise UsageError(f"the reports differ in {found}; join reports of one run only")
    cells = [cell for report in reports for cell in report.cells]
    repeated = [key for key, times in Counter(cell.key for cell in cells).items() if times > 1]
    if repeated:
        place = " ".join(filter(None, map(str, (*repeated[0][:5], repeated[0][-1]))))
        are = "1 cell is" if len(repeated) == 1 else f"{len(repeated)} cells are"
        raise UsageError(f"{are} in two reports, the first {place}; name each report once")
    versions = defaultdict[str, set[str]](set)
    for cell in cells:  # of a file, whichever function of it
        versions[cell.lowering.rpartition(":")[0] or cell.lowering].add(str(cell.flags.get("source", "")))
    if two := next((name for name, known in versions.items() if len(known - {""}) > 1), ""):
        raise UsageError(f"the reports are of different versions of {two}, or of what it imports; run them again")
    sources = defaultdict[str, set[str]](set)
    for cell in cells:
        sources[cell.kernel].add(cell.source)
    if two := next((name for name, known in sources.items() if len(known - {""}) > 1), ""):
        raise UsageError(f"the reports are of different files of {two} in kernels/ or oracles/; run them again")
    created = [one for report in reports if isinstance(one := report.environment.get("created"), int)]
    environment = {**first.environment, **({"created": max(created)} if created else {})}
    command = " && ".join(dict.fromkeys(report.command for report in reports))
    shard = None
    if any(report.shard for report in reports):
        cells, shard = _of_shards(reports)
    elif any(cell.allowance for cell in cells):
        cells = [Cell.model_validate(cell) for cell in _capped(cells, environment)]
    update = {"cells": cells, "command": command, "environment": environment, "shard": shard}
    return first.model_copy(update={**update, "interrupted": any(report.interrupted for report in reports)})


def _undated(value: Any) -> Any:
    """An environment without the time of the run, which parts of a split one do not share."""
    return {name: fact for name, fact in value.items() if name != "created"} if isinstance(value, dict) else value


def _of_shards(reports: Sequence[Report]) -> tuple[list[Cell], Shard | None]:
    """The cells of shards as the whole run has them, which only now can count allowances and unneeded entries; and
    what is there of a run of which shards are missing, None of a whole one."""
    shards = [report.shard for report in reports if report.shard]
    if len({one.source for one in shards}) > 1:
        raise UsageError("the shards were run from different files, of this project or of your own; run them again")
    kinds = {(one.of, one.jobs, one.whole) for one in shards}
    if len(shards) < len(reports) or len(kinds) > 1 or len({report.command for report in reports}) > 1:
        raise UsageError("the reports are no shards of one run; name all of one `verify run --shard I/N`")
    shard = shards[0]
    there = sorted({index for one in shards for index in (one.index, *one.others)})
    missing, parts = shard.of - len(there), _parts(reports)
    if missing and not parts:
        gaps = itertools.islice((k for k in range(1, shard.of + 1) if k not in there), SHOWN)
        told = ", ".join(map(str, gaps)) + (f" and {missing - SHOWN} more" if missing > SHOWN else "")
        raise UsageError(f"shard {told} of {shard.of} is missing; name the reports of all")
    for one, report in zip(shards, reports, strict=True):
        if report.interrupted or len(one.numbers) != len(report.cells):
            raise UsageError(f"shard {one.index} of {one.of} is not complete; go on with it by --resume")
    numbers = [number for one in shards for number in one.numbers]
    swept = {part.job: part for part in parts if part.inputs == part.size}
    if not missing and {*numbers, *swept} != set(range(shard.jobs)):
        raise UsageError(f"the shards have {len({*numbers, *swept})} of {shard.jobs} jobs; run them again")
    cells = [cell for report in reports for cell in report.cells]
    complete = [*zip(numbers, cells, strict=True), *((number, _cell(part)) for number, part in swept.items())]
    placed = sorted(complete, key=lambda one: one[0])
    if missing:
        left = [part for part in parts if part.job not in swept]
        done = {"numbers": [number for number, _ in placed], "parts": left}
        return [cell for _, cell in placed], shard.model_copy(update={"index": there[0], "others": there[1:], **done})
    raw = _capped([cell for _, cell in placed], reports[0].environment)
    if shard.whole:
        ledger.unneeded(raw, _capabilities(reports[0].environment))
    return [Cell.model_validate(cell) for cell in raw], None


def _capped(cells: Sequence[Cell], environment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells, of one report now, without the allowances that are beyond their caps."""
    raw, used, capabilities = [cell.model_dump() for cell in cells], Counter[str](), _capabilities(environment)
    for cell in raw:
        ledger.cap(cell, used, capabilities.get(cell["backend"], ""))
    return raw


def _capabilities(environment: Mapping[str, Any]) -> dict[str, str]:
    """Of the device of each backend that names one."""
    return {
        name: str(facts["capability"])
        for name, facts in environment.items()
        if isinstance(facts, dict) and "capability" in facts
    }


def _parts(reports: Sequence[Report]) -> list[Part]:
    """What all know of the sweeps that shards divide: one for each, or several with gaps between."""
    of_jobs: dict[int, list[Part]] = {}
    for report in reports:
        for part in report.shard.parts if report.shard else ():
            of_jobs.setdefault(part.job, []).append(part)
    if not of_jobs:
        return []
    from verify.walk import sweep

    found = []
    for _, given in sorted(of_jobs.items()):
        if len({part.model_copy(update=_ANY).model_dump_json() for part in given}) > 1:
            raise UsageError(f"parts of a sweep of {given[0].kernel} are of different jobs or files; run them again")
        given.sort(key=lambda part: int(part.found["start"]))  # type: ignore[arg-type]
        for one in sweep.joined(part.found for part in given):
            among = [part for part in given if one["start"] <= part.found["start"] < one["stop"]]
            told = among[0].model_copy(update={"inputs": one["stop"] - one["start"], "found": dict(one)})
            if len(among) > 1:
                told = told.model_copy(update=_so_far(told))
            found.append(told)
    return found


def _so_far(part: Part) -> dict[str, Any]:
    """Status and reason of a part that several were joined to."""
    cell = _cell(part)
    return {"status": cell.status, "reason": cell.reason}


def _cell(part: Part) -> Cell:
    """What a part says of its cell: all, where it is the whole sweep. The device need not be here."""
    from verify.walk.cells import told_by

    return Cell.model_validate(told_by(part.model_dump()))
