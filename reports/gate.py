"""The gate: every cell of reports and baseline gets one status, a reason and a command that replays it.

What the statuses mean, and which of them fail, is written in docs/ci.md. Files are in `verify.reports.baseline`,
outputs for continuous integration in `verify.reports.ci`.
"""

from __future__ import annotations

import functools
import glob
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verify.facts.kernel import PROFILES, UsageError, facts_of, is_file, load, names, suggest
from verify.judge import ledger
from verify.judge.status import ALLOWABLE, combined, exit_code
from verify.numbers.ulp import FAILING
from verify.reports import baseline, store
from verify.reports.baseline import Accepted, Allowance, Baseline, Device, Key, accepted
from verify.reports.difference import difference, inputs_text, source_text
from verify.reports.figures import ENCLOSURE, as_eager, maximum, telling, unresolved
from verify.reports.looks import PRECEDENCE, WRONG
from verify.reports.reasons import beside_regions, ledger_text, statuses_beside
from verify.reports.replays import Replays, assignments, replay_command
from verify.reports.schema import Cell, Worst
from verify.reports.text import count_text, upward

#: These fail whatever is asked for: without a truth, or without a result, nothing else can be said.
ALWAYS_FAIL = ("oracle-violation", "error")
#: What `--fail-on` may name beside these, and which of them fail by default.
CHOICES = PRECEDENCE[2:-1]
FAIL_ON = (*WRONG[2:], "regressed", "changed", "not-run")

#: What a reader needs of a fingerprint and no result depends on; `device` repeats chip and capability.
INFORMATIVE = ("device", "os", "python")

#: Regions in which an intermediate may overflow, where a formula may account for elements that no entry is for.
OVERFLOWING = ("special", "overflow", "intermediate")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the gate needs of a report's cell, in a small part of its memory.

    result is None where the cell has no error record. `element` is the command that takes the element apart that tells
    most, where `result` does not say which that is. `told`: what the report says of each region that did not pass, or
    of the cell. allowance: the entry of the ledger that lets the status stand, '' for a user's own file. beside:
    statuses that its launches and other calls give it, whatever its elements. unknown: ids of the ledger that the
    report names and the ledger has not; foreign: those that it has for other cells. deviates: the regions that do, or
    'it', whatever the cell's status is; beyond: those of them that go farther than the ledger's entries say, and how.
    """

    name: str
    key: Key
    backend: str
    status: str
    reason: str
    result: Accepted | None
    undecided: int
    element: str
    told: str = ""
    made: int = 0
    allowance: str = ""
    cap: int = 0
    beside: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    deviates: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    lowering: str = ""

    @property
    def excusable(self) -> bool:
        """Whether entries of a budget can allow all that it shows: none is for an element that is undecided, or for
        an error in other calls than the walk's."""
        return not self.undecided and self.result is not None and not baseline.unexplained(self.result, self.beside)

    def stands(self, status: str) -> bool:
        """Whether that is the cell's status, and an allowance of the ledger is for it."""
        return bool(self.allowance) and status == self.status and status in ALLOWABLE


@dataclass(frozen=True)
class Verdict:
    """One cell's status. `reason` tells everything that applies, the status' own reason first; `note` is what the
    report said of the cell.

    ran: whether the report has a result. compared: whether there was an accepted one for the same inputs.
    allowed: the `--allow` pattern that excuses it, allowance: the entry of the ledger.
    nothing: whether a result was there to compare with, and could not be compared.
    deviates: whether something exceeds that ledger or budget cover, whatever the status; ledger: the entries.
    applies: every status that does, but for what an allowance of the ledger lets stand. predicted: whether it is of a
    virtual device.
    """

    status: str
    cell: str
    device: str
    profile: str
    reason: str = ""
    note: str = ""
    replay: str = ""
    kernel: str = ""
    lowering: str = ""
    ran: bool = False
    compared: bool = False
    allowed: str = ""
    fails: bool = False
    allowance: str = ""
    deviates: bool = False
    ledger: tuple[str, ...] = ()
    applies: tuple[str, ...] = ()
    nothing: bool = False
    predicted: bool = False

    def beside(self, other: Verdict) -> Verdict:
        """With what another report's cell of the same name shows, where this is the more severe verdict of the two: it
        hides nothing."""
        if other.ran < self.ran:  # that report lacks the cell
            return self
        applies = (*other.applies, *([] if other.allowance or other.status == "passed" else [other.status]))
        return replace(
            self, deviates=self.deviates or other.deviates, nothing=self.nothing or other.nothing,
            compared=self.compared or other.compared, ledger=tuple(dict.fromkeys((*self.ledger, *other.ledger))),
            applies=tuple(dict.fromkeys((*self.applies, *applies))),
        )  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """All verdicts, worst first. `notices` are sentences about files, for the reader."""

    verdicts: tuple[Verdict, ...]
    fail_on: tuple[str, ...]
    notices: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(verdict.status for verdict in self.verdicts)
        return {status: found[status] for status in PRECEDENCE if found[status]}

    @property
    def failed(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.fails)

    @property
    def compared(self) -> int:
        return sum(verdict.compared for verdict in self.verdicts)

    @property
    def deviating(self) -> int:
        """Cells in which something exceeds that ledger or budget cover: told beside every count of failures."""
        return sum(verdict.deviates for verdict in self.verdicts)

    @property
    def predicted(self) -> int:
        """Cells that were not measured: no pass of theirs is green."""
        return sum(verdict.predicted for verdict in self.verdicts)

    @property
    def exit_code(self) -> int:
        """4 oracle violation; 1 failed; 3 nothing was compared with a baseline; 0 passed."""
        known = [verdict.status for verdict in self.failed if verdict.status != "not-run"]
        codes = [max(1, exit_code(status)) for status in known]
        if not self.compared and not known:
            codes.append(3)
        elif self.failed:
            codes.append(1)
        return combined(codes)


# Reading


@dataclass(frozen=True)
class Run:
    """A report as the gate reads it. cells: by (backend, key). shard: '2 of 8' where it is a part of a run."""

    path: str
    profile: str
    seed: int
    interrupted: bool
    environment: Mapping[str, Any]
    cells: Mapping[tuple[str, Key], Seen]
    shard: str = ""

    def device(self, backend: str) -> Device | None:
        return baseline.device_of(self.environment.get(backend), backend)


def read(path: str | Path) -> Run:
    """The report in `path`, reduced. Raises UsageError."""
    head, cells = store.scan_under(path, lambda cell, head: seen(cell, Replays.of(head)))
    by_key = {(cell.backend, cell.key): cell for cell in cells}
    shard = f"{head.shard.index} of {head.shard.of}" if head.shard else ""
    return Run(str(path), head.profile, head.seed, head.interrupted, head.environment, by_key, shard)


def read_whole(path: str | Path) -> Run:
    """As `read`; a shard is refused: of sweeps it has no cells, and caps of allowances hold for the whole run."""
    run = read(path)
    if run.shard:
        raise UsageError(
            f"{str(path)!r} is shard {run.shard}; join all of them by `verify merge`, and give that report"
        )
    return run


def capped(runs: Sequence[Run], backend: str) -> list[dict[Key, Seen]]:
    """The cells of each of the runs on one device, without allowances beyond their caps: one is for so many cells of
    all, of which those that come first have it."""
    allowed: dict[str, set[Key]] = {}

    def within(cell: Seen) -> Seen:
        have = allowed.setdefault(cell.allowance, set())
        if not cell.cap:  # a user's, which has it of a registered one
            return cell
        if cell.key in have or len(have) < cell.cap:
            have.add(cell.key)
            return cell
        told = f"allowance {cell.allowance} is for {cell.cap} cells, which come before this one"
        return replace(cell, allowance="", told="; ".join(filter(None, [cell.told, told])))

    return [
        {key: within(cell) if cell.allowance else cell for (where, key), cell in run.cells.items() if where == backend}
        for run in runs
    ]


def seen(cell: Cell, replays: Replays) -> Seen:
    """replays: of its report, whose environment tells the device that it ran on, for which an entry of the ledger has
    to be."""
    fingerprint = replays.environment.get(cell.backend)
    ran = cell.error is not None and cell.status not in ("not-run", "error", "oracle-violation")
    # what excuses a user's own where its bits are eager's is what excuses eager
    lowering = "eager" if is_file(cell.lowering) else cell.lowering
    place = (lowering, cell.kernel, cell.dtype, cell.spelling, cell.output)
    facts: Mapping[str, Any] = fingerprint if isinstance(fingerprint, dict) else {}
    known = ledger.on_device(cell.backend, ledger.Deviation, facts) if cell.ledger else []
    known = [one for one in known if one.id in cell.ledger and one.status == "deviates"]
    entries = [one for one in known if one.names(*place)]
    elsewhere = {one.id for one in known} - {one.id for one in entries}
    listed = ledger.on_device(cell.backend, ledger.Allowance, facts) if cell.allowance else []
    listed = [one for one in listed if (one.id, one.status) == (cell.allowance, cell.status) and one.names(*place)]
    mine = is_file(cell.lowering)
    if mine and not as_eager(cell):
        listed = [one for one in listed if unresolved(cell) and one.lowering == ledger.ANY]
    allowed = next(iter(listed), None)
    told = _told_of(cell)
    if cell.allowance and allowed is None:
        told = "; ".join(filter(None, [told, f"the ledger has no allowance {cell.allowance} for that"]))
    return Seen(
        name=baseline.cell_name(cell),
        key=baseline.key_of(cell),
        backend=cell.backend,
        status=cell.status,
        reason=cell.reason,
        result=accepted(cell) if ran else None,
        undecided=cell.judged.undecided if cell.error else 0,
        beside=statuses_beside(cell),
        element=_element_command(cell, replays),
        lowering=replays.place(cell)[2],
        told=told,
        made=cell.calls.made + len(cell.calls.refused) if cell.calls else 0,
        allowance=allowed.id if allowed else "",
        cap=allowed.cap if allowed and not mine else 0,
        unknown=tuple(sorted({*cell.ledger} - {one.id for one in known})),
        foreign=tuple(sorted(elsewhere)),
        deviates=tuple(_deviating(cell)) if ran else (),
        beyond=tuple(_beyond(cell, entries)) if ran else (),
    )


def _deviating(cell: Cell) -> list[str]:
    """The regions that deviate, or 'it' where the report has none."""
    found = [name for name, region in cell.regions.items() if region.status == "deviates"]
    return found or (["it"] if cell.status == "deviates" else [])


def _beyond(cell: Cell, entries: Sequence[ledger.Deviation]) -> Iterator[str]:
    """Deviating regions for which none of their ledger's entries is, or whose maximum is larger than their bound and
    than any of these accounts for: as the entries are today, which the report may not have known."""
    for name, region in cell.regions.items():
        named = [one for one in entries if one.id in region.reason.ledger]
        if region.status != "deviates" or not named:  # an entry that is not there is told of the cell
            continue
        ids = ", ".join(region.reason.ledger)
        if not any(name in one.regions and region.reason.kind in one.kinds for one in named):
            yield f"the ledger's {ids} is not for kind {region.reason.kind!r} in {name}"
        elif region.bound is not None and name not in OVERFLOWING:
            error, metric = maximum(region.error, region.bound)
            most = [one.at_most.get(metric) for one in named]
            if None not in most and error > max(region.bound.value, *filter(None, most)) * (1 + ENCLOSURE):
                yield f"{error:.9g} {metric} in {name}, where the ledger's {ids} allows less"


def _told_of(cell: Cell) -> str:
    """What the report says of a cell that did not pass: every region that did not, its reason and worst element."""
    if cell.status == "passed" or not cell.regions:
        return cell.reason
    told = []
    for name, region in telling(cell).items():
        if region.status == "passed":
            continue
        word = "" if region.status == cell.status else f"{region.status}, "
        at = "".join(f", worst {_at(one)}" for one in region.worst[:1])
        told.append(
            f"in {name}: {word}{region.reason.text or region.reason.kind}{at}{ledger_text(region.reason.ledger)}"
        )
    further = beside_regions(cell)
    words = (text if status == cell.status else f"{status}, {text}" for status, text in further)
    return "; ".join([*words, *told])


def _at(worst: Worst) -> str:
    """'0x1p+0,0x1.8p+1 -> 0x1p+2': where an element is, and what it gives."""
    return f"{','.join(worst.inputs) or f'element {worst.index}'} -> {worst.output}"


def _by_calls(cell: Seen) -> bool:
    """Whether a cell is beyond its bound by what no element of its own inputs tells: in other calls."""
    regions = {} if cell.result is None else cell.result.regions
    beyond = any(region.status == "exceeds-bound" for region in regions.values())
    return not beyond and cell.result is not None and baseline.unexplained(cell.result, cell.beside)


def _kernel_command(key: Key, lowering: str, backend: str, profile: str, seed: int) -> str:
    """`verify kernel` of one cell. lowering: as commands name it."""
    kernel, _, spelling, dtype, scalars, _ = key
    words = ["verify", "kernel", kernel, "--lowering", lowering, "--dtype", dtype, "--spelling", spelling]
    words += ["--backend", backend]
    for name, value, _ in scalars:
        words += ["--scalar", f"{name}={value!r}"]
    words += ["--scalar", "none"] if not scalars and _has_scalars(kernel) else []
    return shlex.join([*words, "--profile", profile, "--seed", str(seed)])


@functools.cache
def _has_scalars(kernel: str) -> bool:
    """Whether a kernel has cases with scalars, which a command runs unless tensors alone are asked for."""
    return kernel in names() and any(load(kernel).cases)


def _element_command(cell: Cell, replays: Replays) -> str:
    """`verify explain` of the element that tells most: one of a class that fails, else the largest error.

    '' where `Accepted` names it: a command for each of 100,000 cells would take a second.
    """
    for region in telling(cell).values() if cell.status != "passed" else ():
        if region.status != "passed" and region.worst:
            return replays.element(cell, region.worst[0])
    if not cell.worst or (cell.status == "passed" and 0 < baseline.length(cell.worst[0]) <= baseline.LONGEST_INPUTS):
        return ""
    telling_one = next((one for one in cell.worst if one.error_class in FAILING), cell.worst[0])
    return replays.element(cell, cell.worst[0] if cell.status == "passed" else telling_one)


def _element_of(cell: Seen, region: str = "") -> str:
    """The command for a cell's element, of a region where one is named; '' where it has none."""
    result = cell.result
    inputs = result.regions[region].worst_inputs if result is not None and region else []
    if not inputs and (cell.element or result is None or not result.worst_inputs):
        return cell.element
    assert result is not None
    place = (result.dtype, cell.backend, cell.lowering, result.spelling)
    return replay_command(result.kernel, place, result.scalars, inputs or result.worst_inputs)


# Judging


def gate(
    paths: Sequence[str | Path],
    root: str | Path,
    fail_on: Sequence[str] = FAIL_ON,
    allow: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Outcome:
    """Verdicts on all cells of the reports in `paths` and of the baselines in the folder `root` for their devices.

    Cells in several reports of a device get their worst verdict. `allow` and `only` are patterns of cells' names:
    see `baseline.covers`. Raises UsageError for files that cannot be read and patterns that select nothing.
    """
    root = baseline.folder(root)
    baseline.ensure_folder(root)
    for status in fail_on:
        if status not in (*ALWAYS_FAIL, *CHOICES):
            raise UsageError(suggest("status", status, CHOICES))
    with store.no_collection():
        return _judge([read_whole(path) for path in paths], root, tuple(fail_on), tuple(allow), tuple(only))


def _judge(
    runs: Sequence[Run], root: Path, fail_on: tuple[str, ...], allow: tuple[str, ...], only: tuple[str, ...]
) -> Outcome:
    notices = [f"{run.path} was interrupted: cells that it lacks are not-run" for run in runs if run.interrupted]
    notices += [text for run in runs for text in _absent(run, root)]
    verdicts: list[Verdict] = []
    left_out: list[str] = []  # names of cells that did not run and were never accepted
    groups: dict[tuple[Device | None, str, str], list[Run]] = {}
    for run in runs:
        backends = {backend for backend, _ in run.cells} | {name for name in run.environment if run.device(name)}
        for backend in sorted(backends):
            groups.setdefault((run.device(backend), backend, run.profile), []).append(run)
    for (device, backend, profile), members in groups.items():
        found, told, never = _judge_device(device, backend, profile, members, root, only)
        verdicts += found
        notices += told
        left_out += never
    for pattern in _unused(only, [*(verdict.cell for verdict in verdicts), *left_out]):
        raise UsageError(f"--only {pattern!r}: no cell of the reports or the baseline has such a name")
    named = [verdict.cell for verdict in verdicts]
    notices += [f"--allow {pattern!r} names no cell" for pattern in _unused(allow, named)]
    judged = [_with_failure(verdict, fail_on, allow) for verdict in verdicts]
    judged.sort(key=lambda v: (not v.fails, PRECEDENCE.index(v.status), v.device, v.cell))
    return Outcome(tuple(judged), fail_on, tuple(notices))


def _with_failure(verdict: Verdict, fail_on: tuple[str, ...], allow: tuple[str, ...]) -> Verdict:
    if verdict.status in ALWAYS_FAIL:
        return replace(verdict, fails=True)
    # a status that nobody asked about hides none that was asked about: what regressed may exceed its bound, too
    applies = {*verdict.applies, "" if verdict.allowance else verdict.status, "deviates" if verdict.deviates else ""}
    # what could not be compared is no promise: nobody asked for a gate that says nothing
    if not (verdict.nothing or applies & {*fail_on}):
        return verdict
    pattern = next((pattern for pattern in allow if baseline.covers(pattern, verdict.cell)), None)
    return replace(verdict, fails=pattern is None, allowed=pattern or "")


def _function(key: Key) -> tuple[str, str, str]:
    """Kernel, lowering and dtype of a cell."""
    kernel, lowering, _, dtype, _, _ = key
    return kernel, lowering, dtype


@dataclass(frozen=True)
class Calling:
    """The other calls of a function: of its cells some make them, and which ones depends on what is run beside them.
    most: that one cell made; names of those that any of them refused, and that gave other bits; the largest errors of
    those with problems of their own."""

    most: int = 0
    refused: frozenset[str] = frozenset()
    different: frozenset[str] = frozenset()
    errors: Mapping[str, float] = field(default_factory=dict)

    def beside(self, result: Accepted, own: Mapping[str, float]) -> Accepted:
        """The result with the names of all, and with the largest errors but where `own` has one."""
        different = None if result.different is None else sorted(self.different)
        return replace(result, refused=sorted(self.refused), different=different, errors={**self.errors, **own})

    def of(self, new: Accepted) -> Accepted:
        """A result, of this function's run, where it made no calls with those of the others."""
        if new.calls or new.calls is None or not self.most:
            return new
        return replace(self.beside(new, {}), calls=self.most)

    def accepted(self, old: Accepted, made: int) -> Accepted:
        """What a result is held to that made so many calls itself: its own, and those of others that it may have made
        in their place."""
        if old.calls is None or not self.most or 0 < made <= old.calls:
            return old
        return self.beside(old, old.errors if made else {})


def _calling(results: Iterable[Accepted | None]) -> dict[tuple[str, str, str], Calling]:
    found: dict[tuple[str, str, str], Calling] = {}
    for one in results:
        if one is not None and one.calls:
            other = found.get(function := _function(one.key), Calling())
            names = other.refused | {*one.refused}, other.different | {*(one.different or ())}
            errors = {k: max(e, other.errors.get(k, 0.0)) for k, e in one.errors.items()}
            found[function] = Calling(max(other.most, one.calls), *names, {**other.errors, **errors})
    return found


def _judge_device(
    device: Device | None, backend: str, profile: str, runs: Sequence[Run], root: Path, only: tuple[str, ...]
) -> tuple[list[Verdict], list[str], list[str]]:
    """Verdicts and notices for one backend of one device under one profile, and names of cells that did not run and
    were never accepted."""
    base, why = None, ""
    budget: tuple[Allowance, ...] = ()
    if device is None:
        why = f"the report does not say on which chip backend {backend!r} ran"
    else:
        base, budget = baseline.read(root, device, profile), baseline.read_budget(root, device)
        why = _no_baseline(root, device, profile) if base is None else ""
    context = Context(device, backend, profile, base, budget, why, str(root))
    verdicts: dict[Key, Verdict] = {}
    measured: dict[Key, Accepted] = {}
    left_out: dict[Key, str] = {}
    for run, of_run in zip(runs, capped(runs, backend), strict=True):
        calling = _calling(cell.result for cell in of_run.values())
        for key, given in of_run.items():
            cell = given
            if cell.result is not None and (calls := calling.get(_function(key))) is not None:
                cell = replace(cell, result=calls.of(cell.result))
            if not _selected(cell.name, only):
                continue
            if cell.status == "not-run" and (base is None or key not in base.cells):
                left_out[key] = cell.name
                continue
            if cell.result is not None:
                measured[key] = cell.result
            one = context.verdict(cell, run)
            if (other := verdicts.get(key)) is None:
                verdicts[key] = one
            else:
                first, second = sorted((one, other), key=_telling)
                verdicts[key] = first.beside(second)
    for key, old in base.cells.items() if base else ():
        if key not in verdicts and _selected(old.name(backend), only):
            verdicts[key] = context.missing(old, runs)
    notices = [] if only or device is None else _unneeded(budget, root, device, measured, backend)
    never = [name for key, name in left_out.items() if key not in verdicts]
    if never:
        notices.append(f"{count_text(len(never), 'cell')} on {device or backend} not run, and never accepted there")
    return list(verdicts.values()), notices, never


def _absent(run: Run, root: Path) -> Iterator[str]:
    """What is not gated, since the backend of accepted results was not there: nothing says of which device."""
    for fact, why in run.environment.items():
        name = fact.removesuffix(" absent")
        known = sorted(path.parent.name for path in root.glob(f"{glob.escape(name)}-*/*.json"))
        if name != fact and known and not any(where == name for where, _ in run.cells):
            told = ", ".join(dict.fromkeys(known))
            yield f"{run.path} has nothing of backend {name} ({why}): what was accepted of {told} is not gated"


def _unused(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    return [one for one in patterns if not any(baseline.covers(one, name) for name in names)]


def _selected(name: str, only: tuple[str, ...]) -> bool:
    return not only or any(baseline.covers(pattern, name) for pattern in only)


def _telling(verdict: Verdict) -> tuple[bool, int]:
    """Of several verdicts on a cell the smallest stands: one on a run of it, and of these the most severe. What an
    allowance lets stand is no more severe than what deviates."""
    status = "deviates" if verdict.allowance else verdict.status
    return (verdict.status == "not-run" and not verdict.ran, PRECEDENCE.index(status))


def _no_baseline(root: Path, device: Device, profile: str) -> str:
    folder = baseline.folder_of(root, device)
    others = [name for name in PROFILES if (folder / f"{name}.json").exists()]
    if others:
        return f"{device} has no baseline for profile {profile} (it has {', '.join(others)})"
    known = sorted(path.parent.name for path in root.glob("*/*.json"))
    return f"no baseline for {device} in {root} (there: {', '.join(dict.fromkeys(known)) or 'none'})"


def _unneeded(
    budget: Sequence[Allowance], root: Path, device: Device, measured: Mapping[Key, Accepted], backend: str
) -> list[str]:
    """Allowances whose cells were all run and need none."""
    notices = []
    for entry in budget:
        covered = [cell for cell in measured.values() if entry.covers(cell.name(backend))]
        if covered and not any(_needs(cell) for cell in covered):
            path = baseline.budget_path(root, device)
            notices.append(f"{path} allows {entry.cells!r} what it no longer needs: remove the entry")
    return notices


def _needs(cell: Accepted) -> bool:
    """Whether the cell shows anything that an entry of the budget could be for."""
    if cell.regions:
        return bool(exit_code(cell.status))
    exceeds = cell.bound is not None and cell.error > cell.bound
    return exceeds or baseline.beyond_range(cell) or any(getattr(cell, name) for name in FAILING)


@dataclass(frozen=True)
class Context:
    """What the verdicts on one backend's cells have in common. why: the reason where there is no baseline; root: the
    folder of baselines, '' where the results to compare with are another report's."""

    device: Device | None
    backend: str
    profile: str
    base: Baseline | None
    budget: Sequence[Allowance]
    why: str = ""
    root: str = ""
    _environments: dict[tuple[str, str], str] = field(default_factory=dict)
    _calls: list[dict[tuple[str, str, str], Calling]] = field(default_factory=list)

    @property
    def where(self) -> str:
        return str(self.device or self.backend)

    @property
    def predicted(self) -> bool:
        return facts_of(self.backend) != self.backend

    def verdict(self, cell: Seen, run: Run) -> Verdict:
        old = self.base.cells.get(cell.key) if self.base else None
        if old is not None and self.base is not None:
            if not self._calls:
                self._calls.append(_calling(self.base.cells.values()))
            old = self._calls[0].get(_function(cell.key), Calling()).accepted(old, cell.made)
        findings, compared, region = self._findings(cell, old, run)
        # what an allowance lets stand hides nothing that differs from the baseline, as what deviates does not
        findings.sort(key=lambda finding: PRECEDENCE.index("deviates" if cell.stands(finding[0]) else finding[0]))
        status = findings[0][0] if findings else "passed"
        reason = "; ".join(text for _, text in findings)
        command = ""
        if status in ("regressed", "improved"):
            command = _element_of(cell, region)
        elif (status in ("exceeds-bound", "deviates") or status == cell.status != "passed") and not _by_calls(cell):
            command = _element_of(cell)
        if status != "passed" and not command:
            command = _kernel_command(cell.key, cell.lowering, self.backend, run.profile, run.seed)
        command = command and assignments(run.environment.get(self.backend)) + command
        note = "" if status in ALWAYS_FAIL or cell.told in reason else cell.told
        return Verdict(
            status, cell.name, self.where, self.profile, reason, note, command, cell.key[0], cell.lowering,
            ran=cell.status != "not-run", compared=compared, allowance=cell.allowance if cell.stands(status) else "",
            deviates=bool(cell.deviates) or any(found == "deviates" for found, _ in findings),
            ledger=() if cell.result is None else tuple(cell.result.ledger),
            applies=tuple(found for found, _ in findings if not cell.stands(found)),
            nothing=not compared and any(found == "stale" for found, _ in findings), predicted=self.predicted,
        )  # fmt: skip

    def missing(self, old: Accepted, runs: Sequence[Run]) -> Verdict:
        """The verdict on an accepted cell that no report of the device has."""
        lacking = runs[0].path if len(runs) == 1 else f"{len(runs)} reports"
        reason = f"accepted, and missing from {lacking}"
        then = self.base.environments.get(old.environment) if self.base else None
        command = assignments(then) + _kernel_command(old.key, old.lowering, self.backend, self.profile, old.seed)
        name = old.name(self.backend)
        words = name, self.where, self.profile, reason, "", command, old.kernel, old.lowering
        return Verdict("not-run", *words, predicted=self.predicted)

    def _findings(self, cell: Seen, old: Accepted | None, run: Run) -> tuple[list[tuple[str, str]], bool, str]:
        """(status, reason) of everything that applies, whether results were compared, and the region that tells most
        of the difference."""
        if cell.status in ALWAYS_FAIL:
            return [(cell.status, cell.reason)], False, ""
        new = cell.result
        if new is None:
            return [("not-run", f"accepted, and now not run: {cell.reason}")], False, ""
        own = self.own(cell, new, old)
        wrong = [finding for finding in own if finding[0] != "deviates" and not cell.stands(finding[0])]
        if old is None:
            why = self.why or "never accepted: `verify accept` adds it to the baseline"
            return [*wrong, ("not-run", why)], False, ""
        if why := self._incomparable(new, old, run):
            return [*wrong, ("stale", why)], False, ""
        stale = [text for text in (self._environment(old, run), source_text(new, old)) if text]
        found, region = difference(new, old)
        own += found
        own += [("stale", f"accepted {text}") for text in stale]
        return own, True, region

    def _incomparable(self, new: Accepted, old: Accepted, run: Run) -> str:
        """Why a result cannot be compared with the accepted one, and the command that accepts anew; '' where it can."""
        anew = ""
        if self.root:
            command = shlex.join(["verify", "accept", run.path, "--baseline", self.root])
            anew = f"; accept anew: {command}"
        assert self.base is not None
        if new.regions and not old.regions or self.base.version < baseline.SCHEMA:
            return f"accepted from a report of schema 1, without regions{anew}"
        if old.regions and not new.regions:
            return "accepted with regions, and the report is of schema 1: compute it anew"
        difference = inputs_text(new, old)
        return f"accepted for other inputs: {difference}{anew}" if difference else ""

    def own(self, cell: Seen, new: Accepted, old: Accepted | None = None) -> list[tuple[str, str]]:
        """What the report says of the cell by itself: nothing where it passed; `deviates` where ledger or budget cover
        what exceeds. old: the accepted result, which may name an entry of the ledger that was for this cell then."""
        if not new.regions and cell.status in ("passed", "exceeds-bound"):
            status, reason = self._excess(cell, new)
        else:
            status, reason = cell.status, cell.told
        missing = sorted({*cell.unknown, *({*cell.foreign} - {*(old.ledger if old else ())})})
        told = [f"the ledger has no entry {', '.join(missing)} for such a cell"] if missing else []
        uncovered = "; ".join((*told, *cell.beyond)) if cell.deviates else ""
        further = [("exceeds-bound", uncovered)] if uncovered and status != "deviates" else []
        if uncovered and not further:
            status, reason = "exceeds-bound", f"{reason}; {uncovered}"
        if status in ("passed", "deviates"):
            return [(status, reason)] if status == "deviates" else further
        entries = [entry for entry in self.budget if entry.covers(cell.name)]
        used = baseline.excused(entries, new, cell.beside) if cell.excusable else []
        if used:
            reasons = dict.fromkeys(entry.reason for entry in used)
            return [("deviates", f"{reason}, which the budget allows: {'; '.join(reasons)}"), *further]
        return [(status, reason), *further]

    def refuses(self, cell: Seen, new: Accepted) -> bool:
        """Whether the cell must not be accepted as it is: neither ledger nor budget covers what it shows."""
        return any(status != "deviates" and not cell.stands(status) for status, _ in self.own(cell, new))

    def _excess(self, cell: Seen, new: Accepted) -> tuple[str, str]:
        """Status and reason of a cell without regions."""
        reasons = [f"{cell.undecided} elements undecided"] if cell.undecided else []
        if new.bound is not None and new.error > new.bound:
            # the bound is not rounded up: a value that exceeds it would seem to be within
            value, limit = upward(new.error), f"{new.bound:.6g}"
            if new.error - new.bound < 1e-3 * new.bound:
                value, limit = repr(new.error), repr(new.bound)
            reasons.append(f"{new.metric} {value} exceeds the bound {limit}")
        if cell.status == "exceeds-bound":
            return cell.status, cell.reason or "; ".join(reasons) or "the report says so"
        return ("exceeds-bound", "; ".join(reasons)) if reasons else ("passed", "")

    def _environment(self, old: Accepted, run: Run) -> str:
        """How the accepted result's environment differs from the run's, '' where it does not."""
        assert self.base is not None
        key = (run.path, old.environment)
        if key not in self._environments:
            now, then = run.environment.get(self.backend), self.base.environments[old.environment]
            now = now if isinstance(now, dict) else {}

            def same(name: str) -> bool:
                return now.get(name) == then[name] or (
                    name in ("torch", "triton") and baseline.same_version(now.get(name), then[name])
                )

            # a fact that only the run knows is one that an earlier version did not ask for
            differing = [name for name in sorted(then.keys() - {*INFORMATIVE}) if not same(name)]
            pairs = ", ".join(f"{name} {then[name]} -> {now.get(name, 'not told')}" for name in differing)
            self._environments[key] = f"in another environment: {pairs}" if pairs else ""
        return self._environments[key]
