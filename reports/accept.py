"""`verify accept`: reports become the baseline of their devices.

What is refused is what the gate calls exceeds-bound, error or oracle-violation (`verify.reports.gate`); what a
baseline holds is in `verify.reports.baseline`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verify.facts.kernel import UsageError
from verify.reports import baseline, store
from verify.reports.baseline import COUNTS, MAXIMA, Accepted, Baseline, Device, Key
from verify.reports.blocks import Line, Page, Table
from verify.reports.difference import OUTSIDE, bound_text, differences, inputs_text
from verify.reports.gate import ALWAYS_FAIL, Context, Run, Verdict, capped, read_whole
from verify.reports.gate_page import NAMED, SHOWN, groups, told_of_groups
from verify.reports.text import count_text

#: What `accept` did to a cell, in the order in which it is printed.
CHANGES = ("changed", "new", "removed", "renewed")


@dataclass(frozen=True)
class Change:
    """One line that was written: `changed` results, or only `renewed` environment or source."""

    status: str
    cell: str
    reason: str = ""


@dataclass(frozen=True)
class Acceptance:
    """What was accepted: files written, changes, how many lines stay, sentences for the reader."""

    files: tuple[str, ...]
    changes: tuple[Change, ...]
    unchanged: int
    notices: tuple[str, ...]


class Refused(Exception):
    """Reports that must not become a baseline: the verdicts, whether errors were to be allowed, and the exit code."""

    def __init__(self, verdicts: Sequence[Verdict], allowing: bool) -> None:
        self.allowing = allowing
        self.verdicts = tuple(verdicts)
        self.code = 4 if any(verdict.status == "oracle-violation" for verdict in verdicts) else 1
        super().__init__(f"{count_text(len(verdicts), 'cell')} cannot be accepted")


def accept(
    paths: Sequence[str | Path], root: str | Path, allow: Sequence[str] = (), reason: str = "", prune: bool = False
) -> Acceptance:
    """Make the reports in `paths` the baseline of their devices in the folder `root`.

    Cells beyond their bound are refused unless a pattern in `allow` covers them: then the budget gets what they
    show, with `reason`. Cells that the reports lack are kept, unless `prune`. Nothing is written where anything is
    refused; each file is replaced as a whole. Another `accept` into the folder waits. Raises UsageError and Refused.
    """
    root = baseline.folder(root)
    with _alone(root):
        return _accept(paths, root, allow, reason, prune)


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """A context that only one process is in at a time, of those that write to the folder. It need not be there yet."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ValueError):  # of a file system without locks, or no path
            held = os.open(next((one for one in root.resolve().parents if one.is_dir()), root), os.O_RDONLY)
            stack.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _accept(
    paths: Sequence[str | Path], root: Path, allow: Sequence[str], reason: str, prune: bool
) -> Acceptance:  # fmt: skip
    if bool(allow) != bool(reason.strip()):
        raise UsageError("--allow PATTERN and --reason TEXT go together: the budget records why an error is accepted")
    with store.no_collection():
        runs = [read_whole(path) for path in paths]
        if prune and (cut := [str(run.path) for run in runs if run.interrupted]):
            told = "was" if len(cut) == 1 else "were"
            raise UsageError(f"{', '.join(cut)} {told} interrupted: --prune would remove what was not reached")
        plans = [_plan(device, members, root, tuple(allow), reason) for device, members in _by_device(runs)]
    refused = [verdict for plan in plans for verdict in plan.refused]
    if refused:
        raise Refused(refused, bool(allow))
    if not any(plan.cells for plan in plans):
        raise UsageError(f"{', '.join(map(str, paths))}: no cell was run, so there is nothing to accept")
    unused = [pattern for pattern in allow if not any(pattern in plan.used for plan in plans)]
    notices = [f"--allow {pattern!r} covers no cell beyond its bound" for pattern in unused]
    notices += [
        f"{run.path} was interrupted: only the cells that it has are accepted" for run in runs if run.interrupted
    ]
    changes: list[Change] = []
    files: list[str] = []
    for plan in plans:
        cells, done = _merged(plan, prune)
        changes += done
        kept = len(cells.keys() - plan.cells.keys())
        if kept:
            notices.append(
                f"{count_text(kept, 'cell')} of {plan.device} are not in the report and stay; --prune removes them"
            )
        if plan.allowances:
            baseline.append_allowances(root, plan.device, plan.allowances)
            files.append(str(baseline.budget_path(root, plan.device)))
        environments = {**(plan.old.environments if plan.old else {}), **plan.environments}
        files.append(str(baseline.write(root, Baseline(plan.device, plan.profile, environments, cells))))
    changes.sort(key=lambda change: (CHANGES.index(change.status), change.cell))
    written = sum(change.status != "removed" for change in changes)
    return Acceptance(tuple(files), tuple(changes), sum(len(plan.cells) for plan in plans) - written, tuple(notices))


@dataclass(frozen=True)
class _Plan:
    """What one device's reports would write. used: the patterns that allowed something."""

    device: Device
    profile: str
    old: Baseline | None
    cells: Mapping[Key, Accepted]
    environments: Mapping[str, Mapping[str, Any]]
    refused: Sequence[Verdict]
    allowances: Sequence[str]
    used: frozenset[str]


def _by_device(runs: Sequence[Run]) -> Iterator[tuple[Device, list[Run]]]:
    """Reports of one device and profile together."""
    found: dict[tuple[Device, str], list[Run]] = {}
    for run in runs:
        for backend in sorted({backend for backend, _ in run.cells}):
            device = run.device(backend)
            if device is None and any(where == backend and cell.result for (where, _), cell in run.cells.items()):
                raise UsageError(f"{run.path} does not say on which chip backend {backend!r} ran, as a baseline must")
            if device is not None:
                found.setdefault((device, run.profile), []).append(run)
    yield from ((device, members) for (device, _), members in found.items())


def _plan(device: Device, runs: Sequence[Run], root: Path, allow: tuple[str, ...], reason: str) -> _Plan:
    profile = runs[0].profile
    old, budget = baseline.read(root, device, profile), baseline.read_budget(root, device)
    context = Context(device, device.backend, profile, None, budget)
    cells: dict[Key, Accepted] = {}
    environments: dict[str, Mapping[str, Any]] = {}
    refused: list[Verdict] = []
    allowances: dict[str, list[str]] = {}
    used = set()
    for run, of_run in zip(runs, capped(runs, device.backend), strict=True):
        fingerprint = run.environment[device.backend]
        known = {} if old is None else old.environments
        environment = next((key for key, one in known.items() if one == fingerprint), None)
        if environment is None:
            environment = baseline.fingerprint_id(fingerprint)
        environments[environment] = fingerprint
        for key, cell in of_run.items():
            if cell.status == "not-run":
                continue
            if cell.status in ALWAYS_FAIL or cell.result is None or context.refuses(cell, cell.result):
                pattern = next((pattern for pattern in allow if baseline.covers(pattern, cell.name)), None)
                if cell.status in ALWAYS_FAIL or cell.result is None or not cell.excusable or pattern is None:
                    refused.append(replace(context.verdict(cell, run), fails=True))
                    continue
                used.add(pattern)
                allowances[cell.name] = baseline.allowance_texts(cell.result, cell.name, reason, cell.beside)
            result = replace(cell.result, environment=environment)
            twice = cells.setdefault(key, result)
            if twice is not result:
                if result.distinct == twice.distinct == 1 and differences(result, twice):
                    raise UsageError(f"two of the reports differ in {cell.name!r}: accept one of them")
                cells[key] = _worst_seen(result, twice)
    entries = [text for texts in allowances.values() for text in texts]
    return _Plan(device, profile, old, cells, environments, refused, entries, frozenset(used))


def _merged(plan: _Plan, prune: bool) -> tuple[dict[Key, Accepted], list[Change]]:
    """The baseline's new cells, and the changes."""
    old = plan.old.cells if plan.old else {}
    cells = {key: cell for key, cell in old.items() if not prune or key in plan.cells}
    changes = [Change("removed", cell.name(plan.device.backend)) for key, cell in old.items() if key not in cells]
    for key, cell in plan.cells.items():
        cells[key] = _worst_seen(cell, old.get(key))
        change = _change(cells[key], old.get(key), plan.device.backend)
        changes += [change] if change else []
    return cells, changes


def _change(new: Accepted, old: Accepted | None, backend: str) -> Change | None:
    """None where the line stays as it is."""
    name = new.name(backend)
    if old is None:
        return Change("new", name)
    inputs = inputs_text(new, old)
    if not inputs and bool(new.regions) != bool(old.regions):
        return Change("changed", name, f"now {'with' if new.regions else 'without'} regions")
    facts = [f"inputs {inputs}"] if inputs else [text for _, text in differences(new, old)]
    if bound_text(new) != bound_text(old):
        facts.append(f"bound {bound_text(old)} -> {bound_text(new)}")
    if facts:
        return Change("changed", name, "; ".join(facts))
    return None if new == old else Change("renewed", name)


def _worst_seen(new: Accepted, old: Accepted | None) -> Accepted:
    """`new`; where a lowering is not deterministic in either, with the larger figures of both."""
    if (
        old is None
        or min(new.distinct, old.distinct) == 1
        or inputs_text(new, old)
        or bound_text(new) != bound_text(old)
    ):
        return new
    regions = dict(new.regions)
    for name in new.regions.keys() & old.regions.keys():
        part, then = new.regions[name], old.regions[name]
        regions[name] = replace(part, **_larger(part, then, ("error", *MAXIMA, *COUNTS)))
    larger = _larger(new, old, ("error", *MAXIMA, *OUTSIDE, *COUNTS, "distinct", "repeats"))
    return replace(new, **larger, regions=regions)


def _larger(new: Any, old: Any, names: Sequence[str]) -> dict[str, Any]:
    """The larger one of each figure."""
    pairs = {name: [one for one in (getattr(new, name), getattr(old, name)) if one is not None] for name in names}
    return {name: max(values, default=None) for name, values in pairs.items()}


# Pages


def accept_page(done: Acceptance) -> Page:
    """What was written: old -> new for each cell that changed."""
    by_status = {status: [change for change in done.changes if change.status == status] for status in CHANGES}
    blocks: list[Table | Line] = [
        Line(f"{change.cell}: {change.reason}", label="changed:") for change in by_status.pop("changed")
    ]
    for status, changes in by_status.items():
        names = [change.cell for change in changes[:NAMED]]
        names += [f"and {len(changes) - NAMED} more"] if len(changes) > NAMED else []
        if changes:
            blocks.append(Line(", ".join(names), label=f"{status}, {count_text(len(changes), 'cell')}:"))
    if done.unchanged:
        blocks.append(Line(f"{count_text(done.unchanged, 'cell')} as accepted before"))
    blocks += [Line(notice, label="note:") for notice in done.notices]
    blocks += [Line(file, label="written:") for file in done.files]
    accepted = done.unchanged + sum(change.status != "removed" for change in done.changes)
    return Page(f"accepted {count_text(accepted, 'cell')}", tuple(blocks))


def refused_page(refused: Refused) -> Page:
    """What must be resolved before accepting, each with the command that replays it."""
    together = groups(refused.verdicts)
    blocks = [block for verdicts in together[:SHOWN] for block in told_of_groups(verdicts, "bad")]
    if len(together) > SHOWN:
        blocks.append(Line(f"and {count_text(sum(map(len, together[SHOWN:])), 'cell')} more", kind="bad"))
    if any(verdict.status == "exceeds-bound" for verdict in refused.verdicts):
        hint = "--allow PATTERN --reason TEXT accepts errors beyond a bound, and the budget records them"
        blocks.append(Line("nothing allows what is left: see docs/ci.md" if refused.allowing else hint))
    return Page(f"not accepted: {count_text(len(refused.verdicts), 'cell')}; nothing was written", tuple(blocks))
