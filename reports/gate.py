"""The gate: every cell of reports and baseline gets one status, a reason and a command that replays it.

What the statuses mean, and which of them fail, is written in docs/ci.md. Files are in `verify.reports.baseline`,
outputs for continuous integration in `verify.reports.ci`.
"""

from __future__ import annotations

import json
import math
import operator
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verify.kernel import UsageError, suggest
from verify.reports import baseline, store
from verify.reports.baseline import COUNTS, MAXIMA, RANGE, Accepted, Allowance, Baseline, Device, Key, accepted
from verify.reports.rows import ENCLOSURE, Column, Line, Page, Row, Table, assignments, replay, replay_command, upward
from verify.reports.schema import Cell
from verify.ulp import FAILING

#: The first that applies is a cell's status.
PRECEDENCE = (
    "oracle-violation", "error", "exceeds-bound", "regressed", "changed", "stale", "not-run", "improved", "passed",
)  # fmt: skip

#: These fail whatever is asked for: without a truth, or without a result, nothing else can be said.
ALWAYS_FAIL = ("oracle-violation", "error")
#: What `--fail-on` may name, and which of them fail by default.
CHOICES = PRECEDENCE[2:-1]
FAIL_ON = ("exceeds-bound", "regressed", "changed", "not-run")

#: What a reader needs of a fingerprint and no result depends on; `device` repeats chip and capability.
INFORMATIVE = ("device", "os", "python")

#: The maxima that a larger error is looked for in, by the metric of the bound: a distance of n steps leaves room
#: for 2 n + 1/2 ULP, so that the real error is looked at too. Where a forward error is unbounded it is not.
JUDGED = {"ulp": ("ulp",), "int_ulp": ("int_ulp", "ulp"), "scaled_ulp": ("scaled_ulp",), "share": ("share",)}

#: Figures of elements outside the normal range; the one in the bound's metric is judged too.
OUTSIDE = ("range_ulp", *dict.fromkeys(RANGE.values()))

#: Reason of the cells that a run excused by its backend's ledger.
KNOWN = "known deviation"

#: How many groups of verdicts are spelled out on a page, and how many cells of one group are named.
SHOWN = 12
NAMED = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """What the gate needs of a report's cell, in a small part of its memory.

    result is None where the cell has no error record. `element` is the command that takes the element apart that tells
    most, where `result` does not say which that is.
    """

    name: str
    key: Key
    backend: str
    status: str
    reason: str
    result: Accepted | None
    undecided: int
    element: str


@dataclass(frozen=True)
class Verdict:
    """One cell's status. `reason` tells everything that applies, the status' own reason first; `note` is what the
    report said of the cell.

    ran: whether the report has a result. compared: whether there was an accepted one for the same inputs.
    allowed: the `--allow` pattern that excuses it.
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
    def exit_code(self) -> int:
        """4 oracle violation; 1 failed; 3 nothing was compared with a baseline; 0 passed."""
        if any(verdict.status == "oracle-violation" for verdict in self.verdicts):
            return 4
        known = any(verdict.status in ("error", "exceeds-bound") for verdict in self.failed)
        if not self.compared and not known:
            return 3
        return 1 if self.failed else 0


# Reading


@dataclass(frozen=True)
class Run:
    """A report as the gate reads it. cells: by (backend, key)."""

    path: str
    profile: str
    seed: int
    interrupted: bool
    environment: Mapping[str, Any]
    cells: Mapping[tuple[str, Key], Seen]

    def device(self, backend: str) -> Device | None:
        return baseline.device_of(self.environment.get(backend), backend)


def read(path: str | Path) -> Run:
    """The report in `path`, reduced. Raises UsageError."""
    head, cells = store.scan(path, seen)
    by_key = {(cell.backend, cell.key): cell for cell in cells}
    return Run(str(path), head.profile, head.seed, head.interrupted, head.environment, by_key)


def seen(cell: Cell) -> Seen:
    ran = cell.error is not None and cell.status not in ("not-run", "error", "oracle-violation")
    return Seen(
        name=baseline.cell_name(cell),
        key=baseline.key_of(cell),
        backend=cell.backend,
        status=cell.status,
        reason=cell.reason,
        result=accepted(cell) if ran else None,
        undecided=cell.error.undecided if cell.error else 0,
        element=_element_command(cell),
    )


def _kernel_command(key: Key, backend: str, profile: str, seed: int) -> str:
    """`verify kernel` of one cell."""
    kernel, lowering, spelling, dtype, scalars, _ = key
    words = ["verify", "kernel", kernel, "--lowering", lowering, "--dtype", dtype, "--spelling", spelling]
    words += ["--backend", backend]
    for name, value in scalars:
        words += ["--scalar", f"{name}={value!r}"]
    return shlex.join([*words, "--profile", profile, "--seed", str(seed)])


def _element_command(cell: Cell) -> str:
    """`verify explain` of the element that tells most: one of a class that fails, else the largest error.

    '' where `Accepted` names it: a command for each of 100,000 cells would take a second.
    """
    if not cell.worst or (cell.status == "passed" and 0 < baseline.length(cell.worst[0]) <= baseline.LONGEST_INPUTS):
        return ""
    telling = next((one for one in cell.worst if one.error_class in FAILING), cell.worst[0])
    return replay(cell, cell.worst[0] if cell.status == "passed" else telling)


def _element_of(cell: Seen) -> str:
    """The command for a cell's element, '' where it has none."""
    if cell.element or cell.result is None or not cell.result.worst_inputs:
        return cell.element
    result = cell.result
    place = (result.dtype, cell.backend, result.lowering, result.spelling)
    return replay_command(result.kernel, place, result.scalars, result.worst_inputs)


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
    root = Path(root)
    baseline.ensure_folder(root)
    for status in fail_on:
        if status not in CHOICES:
            raise UsageError(suggest("status", status, CHOICES))
    with store.no_collection():
        return _judge([read(path) for path in paths], root, tuple(fail_on), tuple(allow), tuple(only))


def _judge(
    runs: Sequence[Run], root: Path, fail_on: tuple[str, ...], allow: tuple[str, ...], only: tuple[str, ...]
) -> Outcome:
    notices = [f"{run.path} was interrupted: cells that it lacks are not-run" for run in runs if run.interrupted]
    verdicts: list[Verdict] = []
    groups: dict[tuple[Device | None, str, str], list[Run]] = {}
    for run in runs:
        backends = {backend for backend, _ in run.cells} | {name for name in run.environment if run.device(name)}
        for backend in sorted(backends):
            groups.setdefault((run.device(backend), backend, run.profile), []).append(run)
    for (device, backend, profile), members in groups.items():
        found, told = _judge_device(device, backend, profile, members, root, only)
        verdicts += found
        notices += told
    for pattern in _unused(only, verdicts):
        raise UsageError(f"--only {pattern!r}: no cell of the reports or the baseline has such a name")
    notices += [f"--allow {pattern!r} names no cell" for pattern in _unused(allow, verdicts)]
    judged = [_with_failure(verdict, fail_on, allow) for verdict in verdicts]
    judged.sort(key=lambda v: (not v.fails, PRECEDENCE.index(v.status), v.device, v.cell))
    return Outcome(tuple(judged), fail_on, tuple(notices))


def _with_failure(verdict: Verdict, fail_on: tuple[str, ...], allow: tuple[str, ...]) -> Verdict:
    if verdict.status in ALWAYS_FAIL:
        return replace(verdict, fails=True)
    if verdict.status not in fail_on:
        return verdict
    pattern = next((pattern for pattern in allow if baseline.covers(pattern, verdict.cell)), None)
    return replace(verdict, fails=pattern is None, allowed=pattern or "")


def _judge_device(
    device: Device | None, backend: str, profile: str, runs: Sequence[Run], root: Path, only: tuple[str, ...]
) -> tuple[list[Verdict], list[str]]:
    """Verdicts and notices for one backend of one device under one profile."""
    base, why = None, ""
    budget: tuple[Allowance, ...] = ()
    if device is None:
        why = f"the report does not say on which chip backend {backend!r} ran"
    else:
        base, budget = baseline.read(root, device, profile), baseline.read_budget(root, device)
        why = _no_baseline(root, device, profile) if base is None else ""
    context = Context(device, backend, profile, base, budget, why)
    verdicts: dict[Key, Verdict] = {}
    measured: dict[Key, Accepted] = {}
    left_out: set[Key] = set()
    for run in runs:
        for (where, key), cell in run.cells.items():
            if where != backend or not _selected(cell.name, only):
                continue
            if cell.status == "not-run" and (base is None or key not in base.cells):
                left_out.add(key)
                continue
            if cell.result is not None:
                measured[key] = cell.result
            one = context.verdict(cell, run)
            verdicts[key] = min(one, verdicts.get(key, one), key=_telling)
    for key, old in base.cells.items() if base else ():
        if key not in verdicts and _selected(old.name(backend), only):
            verdicts[key] = context.missing(old, runs)
    notices = [] if only or device is None else _unneeded(budget, root, device, measured, backend)
    never = len(left_out - verdicts.keys())
    if never:
        notices.append(f"{cells_text(never)} on {device or backend} not run, and never accepted there")
    return list(verdicts.values()), notices


def _unused(patterns: Iterable[str], verdicts: Sequence[Verdict]) -> list[str]:
    return [one for one in patterns if not any(baseline.covers(one, verdict.cell) for verdict in verdicts)]


def _selected(name: str, only: tuple[str, ...]) -> bool:
    return not only or any(baseline.covers(pattern, name) for pattern in only)


def _telling(verdict: Verdict) -> tuple[bool, int]:
    """Of several verdicts on a cell the smallest stands: one on a run of it, and of these the most severe."""
    return (verdict.status == "not-run" and not verdict.ran, PRECEDENCE.index(verdict.status))


def _no_baseline(root: Path, device: Device, profile: str) -> str:
    folder = baseline.folder_of(root, device)
    others = [name for name in baseline.PROFILES if (folder / f"{name}.json").exists()]
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
        covered = [cell for cell in measured.values() if baseline.covers(entry.cells, cell.name(backend))]
        if covered and not any(_beyond_bound(cell) for cell in covered):
            path = baseline.budget_path(root, device)
            notices.append(f"{path} allows {entry.cells!r} what it no longer needs: remove the entry")
    return notices


def _beyond_bound(cell: Accepted) -> bool:
    exceeds = cell.bound is not None and cell.error > cell.bound
    return exceeds or baseline.beyond_range(cell) or any(getattr(cell, name) for name in FAILING)


@dataclass(frozen=True)
class Context:
    """What the verdicts on one backend's cells have in common. why: the reason where there is no baseline."""

    device: Device | None
    backend: str
    profile: str
    base: Baseline | None
    budget: Sequence[Allowance]
    why: str = ""
    _environments: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return str(self.device or self.backend)

    def verdict(self, cell: Seen, run: Run) -> Verdict:
        old = self.base.cells.get(cell.key) if self.base else None
        findings, compared = self._findings(cell, old, run)
        findings.sort(key=lambda finding: PRECEDENCE.index(finding[0]))
        status = findings[0][0] if findings else "passed"
        reason = "; ".join(text for _, text in findings)
        command = ""
        if status in ("exceeds-bound", "regressed", "improved"):
            command = _element_of(cell)
        if status != "passed" and not command:
            command = _kernel_command(cell.key, self.backend, run.profile, run.seed)
        command = command and assignments(run.environment.get(self.backend)) + command
        note = "" if status in ALWAYS_FAIL or cell.reason in reason else cell.reason
        return Verdict(
            status, cell.name, self.where, self.profile, reason, note, command, cell.key[0], cell.key[1],
            ran=cell.status != "not-run", compared=compared,
        )  # fmt: skip

    def missing(self, old: Accepted, runs: Sequence[Run]) -> Verdict:
        """The verdict on an accepted cell that no report of the device has."""
        lacking = runs[0].path if len(runs) == 1 else f"{len(runs)} reports"
        reason = f"accepted, and missing from {lacking}"
        then = self.base.environments.get(old.environment) if self.base else None
        command = assignments(then) + _kernel_command(old.key, self.backend, self.profile, old.seed)
        name = old.name(self.backend)
        return Verdict("not-run", name, self.where, self.profile, reason, "", command, old.kernel, old.lowering)

    def _findings(self, cell: Seen, old: Accepted | None, run: Run) -> tuple[list[tuple[str, str]], bool]:
        """(status, reason) of everything that applies, and whether results were compared."""
        if cell.status in ALWAYS_FAIL:
            return [(cell.status, cell.reason)], False
        new = cell.result
        if new is None:
            return [("not-run", f"accepted, and now not run: {cell.reason}")], False
        findings = self.excess(cell, new)
        if old is None:
            why = self.why or "never accepted: `verify accept` adds it to the baseline"
            return findings or [("not-run", why)], False
        if difference := inputs_text(new, old):
            return findings or [("not-run", f"accepted for other inputs: {difference}")], False
        stale = [text for text in (self._environment(old, run), _source(new, old)) if text]
        findings += compare(new, old)
        findings += [("stale", f"accepted {text}") for text in stale]
        return findings, True

    def excess(self, cell: Seen, new: Accepted) -> list[tuple[str, str]]:
        """The finding exceeds-bound, unless the backend's ledger or the device's budget excuses it."""
        reasons = [f"{cell.undecided} elements undecided"] if cell.undecided else []
        excess = False
        if new.bound is not None and new.error > new.bound:
            excess = True
            # the bound is not rounded up: a value that exceeds it would seem to be within
            value, limit = upward(new.error), f"{new.bound:.6g}"
            if new.error - new.bound < 1e-3 * new.bound:
                value, limit = repr(new.error), repr(new.bound)
            reasons.append(f"{new.metric} {value} exceeds the bound {limit}")
        if cell.status == "exceeds-bound":
            reasons = [cell.reason or "; ".join(reasons) or "the report says so"]
        elif not cell.undecided and (not excess or KNOWN in cell.reason):
            return []
        if not cell.undecided and any(
            baseline.covers(entry.cells, cell.name) and entry.excuses(new) for entry in self.budget
        ):
            return []
        return [("exceeds-bound", "; ".join(reasons))]

    def _environment(self, old: Accepted, run: Run) -> str:
        """How the accepted result's environment differs from the run's, '' where it does not."""
        assert self.base is not None
        key = (run.path, old.environment)
        if key not in self._environments:
            now, then = run.environment.get(self.backend), self.base.environments[old.environment]
            now = now if isinstance(now, dict) else {}
            differing = [name for name in sorted(now.keys() & then.keys()) if now[name] != then[name]]
            pairs = ", ".join(f"{name} {then[name]} -> {now[name]}" for name in differing if name not in INFORMATIVE)
            self._environments[key] = f"in another environment: {pairs}" if pairs else ""
        return self._environments[key]


#: Everything of a result that `compare` looks at.
_figures = operator.attrgetter(
    "error", "metric", "truth", *MAXIMA, *OUTSIDE, *COUNTS, "violations", "formula", "digest", "distinct", "mean_ulp",
    "bias_ulp", "inputs", "worst_index", "worst_inputs", "worst_output",
)  # fmt: skip


def compare(new: Accepted, old: Accepted) -> list[tuple[str, str]]:
    """What differs between two results for the same inputs: at most one of regressed, changed and improved.

    Inputs are fixed, so no difference is noise, but that of enclosures: see ENCLOSURE. Regressed: a larger maximum in
    the metrics of JUDGED, or more bad elements of any kind in COUNTS or `violations`. Improved: something smaller,
    nothing larger. Changed: neither, and other bits, another formula, or other figures for the same bits.
    """
    new = _without_noise(new, old)
    if _figures(new) == _figures(old):
        return []
    larger: list[str] = []
    smaller: list[str] = []
    other: list[str] = []
    names = (*MAXIMA, *OUTSIDE, *COUNTS)
    pairs = {name: (getattr(old, name) or 0, getattr(new, name) or 0) for name in names}
    judged = [*JUDGED[new.metric], *([RANGE[new.metric]] if new.metric in RANGE else []), *COUNTS]
    if (new.metric, new.truth) == (old.metric, old.truth):
        pairs["error"] = (old.error, new.error)
        judged.insert(0, "error")
    for name in sorted({*old.violations, *new.violations}):
        pairs[f"violations of {name}"] = (old.violations.get(name, 0), new.violations.get(name, 0))
        judged.append(f"violations of {name}")
    for name in dict.fromkeys((*judged, *pairs)):
        before, after = pairs[name]
        if before == after or (name == "error" and pairs[new.metric] == pairs["error"]):
            continue  # the bound's maximum is one of the maxima, unless it leaves elements out
        group = other if name not in judged else larger if after > before else smaller
        texts = (str(before), str(after)) if isinstance(after, int) else _apart(before, after)
        group.append(f"{_label(name, new)} {' -> '.join(texts)}")
    bits = _bits(new, old)
    steady = new.distinct == old.distinct == 1
    formula = f"formula {_formula(old)} -> {_formula(new)}" if steady and new.formula != old.formula else ""
    details = [*other, *filter(None, (bits, formula))]
    if larger:
        return [("regressed", "; ".join([*larger, *smaller, *details]))]
    if smaller:
        return [("improved", "; ".join([*smaller, *details]))]
    if not details and steady and (same := _same_bits(new, old)):
        details = [same]
    return [("changed", "; ".join(details))] if details else []


def _without_noise(new: Accepted, old: Accepted) -> Accepted:
    """`new` with the old figures where they are, for the same bits, the same but for ENCLOSURE."""
    if not new.digest or _bits(new, old) or not new.distinct == old.distinct == 1:
        return new
    kept: dict[str, Any] = {}
    for name in ("error", *MAXIMA, *OUTSIDE, "mean_ulp", "bias_ulp"):
        before, after = getattr(old, name), getattr(new, name)
        least = ENCLOSURE if name in ("mean_ulp", "bias_ulp") else 0.0
        both = isinstance(before, float) and isinstance(after, float)
        if both and math.isclose(before, after, rel_tol=ENCLOSURE, abs_tol=least):
            kept[name] = before
    return replace(new, **kept)


def _label(name: str, new: Accepted) -> str:
    return (
        f"bounded {new.metric}"
        if name == "error"
        else name.replace("_mismatch", " mismatches").replace("_sign", " signs")
    )


def _apart(a: float, b: float) -> tuple[str, str]:
    """Two different numbers with as few digits as tell them apart, four at least; rounded up, as everywhere."""
    for digits in (4, 6, 9):
        texts = upward(a, digits), upward(b, digits)
        if texts[0] != texts[1]:
            return texts
    return repr(a), repr(b)


def _bits(new: Accepted, old: Accepted) -> str:
    """'' where the bits are equal, or where the accepted lowering was known to give others in every launch."""
    if old.distinct > 1:
        return ""
    if new.distinct > 1:
        return f"no longer deterministic: {new.distinct} different results in {new.repeats} launches"
    if new.digest == old.digest:
        return ""
    return "other bits" if new.digest and old.digest else "bits not comparable: a digest is missing"


def _same_bits(new: Accepted, old: Accepted) -> str:
    """What is said otherwise of the same bits, so that the truth must be another one; '' where nothing is."""
    names = ("mean_ulp", "bias_ulp", "inputs", "worst_index", "worst_inputs", "worst_output")
    told = [
        f"{name} {getattr(old, name)} -> {getattr(new, name)}"
        for name in names
        if getattr(old, name) != getattr(new, name)
    ]
    return f"the same bits, judged otherwise: {'; '.join(told)}" if told else ""


def _formula(cell: Accepted) -> str:
    if cell.formula is None:
        return "not looked for"
    return " or ".join(map(repr, cell.formula)) or "none"


def inputs_text(new: Accepted, old: Accepted) -> str:
    """'' where both are results for the same inputs."""
    digests = new.inputs_digest == old.inputs_digest
    if (new.domain, new.size) == (old.domain, old.size) and digests and (new.inputs_digest or new.seed == old.seed):
        return ""
    texts = [f"{one.domain} of {one.size}, seed {one.seed}" for one in (old, new)]
    if texts[0] == texts[1]:
        texts = [
            f"{text}, digest {one.inputs_digest or 'unknown'}" for text, one in zip(texts, (old, new), strict=True)
        ]
    return " -> ".join(texts)


def _source(new: Accepted, old: Accepted) -> str:
    told = []
    if new.source and old.source and new.source != old.source:
        told.append("with other source files of the kernel")
    if (new.bound, new.metric, new.truth) != (old.bound, old.metric, old.truth):
        told.append(f"under the bound {bound_text(old)} -> {bound_text(new)}")
    if new.flags != old.flags:
        told.append(f"with flags {json.dumps(old.flags)} -> {json.dumps(new.flags)}")
    return ", ".join(told)


def bound_text(cell: Accepted) -> str:
    return "none" if cell.bound is None else f"{cell.bound:.6g} {cell.metric} ({cell.truth} scalars)"


# Pages


def gate_page(outcome: Outcome) -> Page:
    """Counts by device and status, the failing cells with reason and replay, then what passed with a remark."""
    failed = len(outcome.failed)
    blocks: list[Table | Line] = [_counts(outcome)] if outcome.verdicts else []
    bad = groups(verdict for verdict in outcome.verdicts if verdict.fails)
    for verdicts in bad[:SHOWN]:
        blocks += told(verdicts, "bad")
    if len(bad) > SHOWN:
        rest = sum(map(len, bad[SHOWN:]))
        blocks.append(Line(f"and {cells_text(rest)} more that fail; --json FILE lists all", kind="bad"))
    remarks = [v for v in outcome.verdicts if not v.fails and v.status != "passed"]
    for verdicts in groups(remarks)[:SHOWN]:
        blocks += told(verdicts, "plain")[:1]
    blocks += [Line(notice, label="note:") for notice in outcome.notices]
    blocks.append(Line(verdict_line(outcome), kind="good" if outcome.exit_code == 0 else "bad"))
    return Page(f"gate: {cells_text(len(outcome.verdicts))}, {failed} failing", tuple(blocks))


def verdict_line(outcome: Outcome) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in outcome.counts.items()) or "no cells"
    word = {0: "passed", 3: "nothing was compared with a baseline"}.get(outcome.exit_code, "failed")
    return f"{word}: {counts}; fails on {', '.join((*ALWAYS_FAIL, *outcome.fail_on))}"


def _counts(outcome: Outcome) -> Table:
    columns = [Column("device", fold=True), Column("profile"), *(Column(s, right=True) for s in outcome.counts)]
    found = Counter((v.device, v.profile, v.status) for v in outcome.verdicts)
    places = dict.fromkeys((v.device, v.profile) for v in sorted(outcome.verdicts, key=lambda v: (v.device, v.profile)))
    rows = (Row((*place, *(str(found[(*place, s)]) for s in outcome.counts))) for place in places)
    return Table(tuple(columns), tuple(rows))


def groups(verdicts: Iterable[Verdict]) -> list[list[Verdict]]:
    """Verdicts with the same status, device and reason are told once."""
    groups: dict[tuple[str, str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.status, verdict.device, verdict.reason, verdict.allowed), []).append(verdict)
    return list(groups.values())


def told(verdicts: Sequence[Verdict], kind: str) -> list[Table | Line]:
    first = verdicts[0]
    names = [verdict.cell for verdict in verdicts[:NAMED]]
    if len(verdicts) > NAMED:
        names.append(f"and {len(verdicts) - NAMED} more")
    count = "" if len(verdicts) == 1 else f", {cells_text(len(verdicts))}"
    allowed = f", allowed by {first.allowed!r}" if first.allowed else ""
    note = f" (the report: {first.note})" if first.note and first.fails and len(verdicts) == 1 else ""
    line = Line(f"{', '.join(names)}: {first.reason}{note}", label=f"{first.status}{count}{allowed}:", kind=kind)
    return [line, Line(first.replay, kind="command")]


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The verdicts for programs. Names and reasons are raw text."""
    names = ("status", "fails", "allowed", "cell", "device", "profile", "reason", "note", "replay", "compared")
    return {
        "exit_code": outcome.exit_code,
        "counts": outcome.counts,
        "fail_on": [*ALWAYS_FAIL, *outcome.fail_on],
        "notices": list(outcome.notices),
        "verdicts": [{name: getattr(verdict, name) for name in names} for verdict in outcome.verdicts],
    }


def cells_text(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
