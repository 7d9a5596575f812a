"""Several reports as one: the shards of a run, or parts that were run by kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from verify import ledger
from verify.kernel import UsageError
from verify.reports.schema import Cell, Report


def merged(reports: Sequence[Report]) -> Report:
    """The cells of all, of one environment, profile and seed; of shards in the order of the run that they are of.

    Raises UsageError where they are not of one kind, a cell is in two, or a shard is missing or incomplete.
    """
    first = reports[0]
    for other in reports[1:]:
        for name in ("environment", "profile", "seed"):
            if _undated(getattr(other, name)) != _undated(getattr(first, name)):
                raise UsageError(
                    f"the reports differ in {name}: {getattr(first, name)} and {getattr(other, name)}; "
                    "join reports of one run only"
                )
    cells = [cell for report in reports for cell in report.cells]
    repeated = [key for key, times in Counter(cell.key for cell in cells).items() if times > 1]
    if repeated:
        raise UsageError(f"{len(repeated)} cells are in two reports, the first {repeated[0]}; name each report once")
    versions = defaultdict[str, set[str]](set)
    for cell in cells:
        versions[cell.lowering].add(str(cell.flags.get("source", "")))
    if two := next((name for name, known in versions.items() if len(known - {""}) > 1), ""):
        raise UsageError(f"the reports are of different versions of {two}, or of what it imports; run them again")
    created = [one for report in reports if isinstance(one := report.environment.get("created"), int)]
    environment = {**first.environment, **({"created": max(created)} if created else {})}
    command = " && ".join(dict.fromkeys(report.command for report in reports))
    if any(report.shard for report in reports):
        cells = _whole(reports)
    update = {"cells": cells, "command": command, "environment": environment, "shard": None}
    return first.model_copy(update={**update, "interrupted": any(report.interrupted for report in reports)})


def _undated(value: Any) -> Any:
    """An environment without the time of the run, which parts of a split one do not share."""
    return {name: fact for name, fact in value.items() if name != "created"} if isinstance(value, dict) else value


def _whole(reports: Sequence[Report]) -> list[Cell]:
    """The cells of shards as the whole run has them, which only now can count allowances and unneeded entries."""
    shards = [report.shard for report in reports if report.shard]
    kinds = {(one.of, one.jobs, one.whole) for one in shards}
    if len(shards) < len(reports) or len(kinds) > 1 or len({report.command for report in reports}) > 1:
        raise UsageError("the reports are no shards of one run; name all of one `verify run --shard I/N`")
    shard = shards[0]
    if missing := sorted(set(range(1, shard.of + 1)) - {one.index for one in shards}):
        raise UsageError(f"shard {', '.join(map(str, missing))} of {shard.of} is missing; name the reports of all")
    for one, report in zip(shards, reports, strict=True):
        if report.interrupted or len(one.numbers) != len(report.cells):
            raise UsageError(f"shard {one.index} of {one.of} is not complete; go on with it by --resume")
    numbers = [number for one in shards for number in one.numbers]
    if set(numbers) != set(range(shard.jobs)):
        raise UsageError(f"the shards have {len(set(numbers))} of {shard.jobs} jobs; run them again")
    cells = [cell for report in reports for cell in report.cells]
    placed = sorted(zip(numbers, cells, strict=True), key=lambda one: one[0])
    capabilities = {
        name: str(facts["capability"])
        for name, facts in reports[0].environment.items()
        if isinstance(facts, dict) and "capability" in facts
    }
    raw, used = [cell.model_dump() for _, cell in placed], Counter[str]()
    for cell in raw:
        ledger.cap(cell, used, capabilities.get(cell["backend"], ""))
    if shard.whole:
        ledger.unneeded(raw, capabilities)
    return [Cell.model_validate(cell) for cell in raw]
