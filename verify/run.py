"""The walk: domain -> lowering on a backend -> outputs -> check -> tally -> cell, and the report of a selection.

Nothing here names a kernel, a lowering or a backend.
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from verify import admit, assess, backends, kernel, ledger, sweep
from verify.assess import Instance, cases_of, own_setting, settings_of
from verify.backends import Backend
from verify.cells import error_of, measured, status_of, worst_list
from verify.check import Checked, Checker, OracleViolation, digests
from verify.domains import CHUNK, SIZES, Domain, domain_of
from verify.formats import FORMATS, Format
from verify.identify import Identification, candidates, count, predict
from verify.kernel import DTYPES, Composite, Kernel, NothingToCompare, Scalars, Setting, UsageError, suggest
from verify.launch import LoweringError, distinct, launch, launch_checked, launch_repeated
from verify.lowerings import Lowering, NotLowered, Target, lowerings, user_lowering
from verify.oracle import OracleError
from verify.tally import root

QUICK = 1 << SIZES["quick"]
Progress = Callable[[int, int, str], None]


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
    scalars: Mapping[str, float] | None = None
    seed: int = 0
    #: NAME -> text: a setting of one's own for a composite kernel
    setting: Mapping[str, str] | None = None


class Case:
    """One kernel with its Python scalars, dtype, backend and domain; the last chunk is kept."""

    def __init__(self, facts: Kernel, scalars: Scalars, dtype: str, backend: Backend, domain: Domain) -> None:
        self.kernel, self.scalars, self.dtype, self.backend, self.domain = facts, dict(scalars), dtype, backend, domain
        self.fmt = FORMATS[dtype]
        self.library = admit.library(backend.check_device)
        bounds = {a.name: a.bound for a in self.library}
        rounded = {name: self.fmt.to_float(self.fmt.round_float(v)) for name, v in self.scalars.items()}
        # float16's subnormals are normal in float32, where it is computed
        flushing = backend.flushes("arithmetic") and self.fmt.emin == FORMATS["float32"].emin
        self.checkers = {
            truth: Checker(
                facts.oracle, self.fmt, domain.names, values, backend.check_device, bounds, flushing=flushing
            )
            for truth, values in (("exact", self.scalars), ("rounded", rounded))
            # a scalar that overflows the dtype has no rounded truth
            if truth == "exact" or (values != self.scalars and all(map(math.isfinite, values.values())))
        }
        self.formulas = candidates(facts.oracle, self.scalars, self.fmt)
        self._kept: dict[Any, Any] = {}

    def chunk(self, number: int) -> tuple[torch.Tensor, ...]:
        kept: tuple[torch.Tensor, ...] = self._once(
            ("inputs", number), lambda: self.domain.chunk(number, self.backend.check_device)
        )
        return kept

    def predictions(self, number: int) -> dict[str, torch.Tensor]:
        inputs = self.chunk(number)
        kept: dict[str, torch.Tensor] = self._once(
            ("formulas", number), lambda: predict(self.formulas, self.fmt, self.domain.names, inputs, self.scalars)
        )
        return kept

    def eager(self, number: int, spelling: str, call: Callable[..., torch.Tensor]) -> torch.Tensor:
        """What the reference lowering gives for this chunk in `spelling`."""
        kept: torch.Tensor = self._once(
            ("eager", number, spelling),
            lambda: launch(call, self.chunk(number), self.backend, "eager").output.clone(),
        )
        return kept

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept = {k: v for k, v in self._kept.items() if k[1] == key[1]}
            self._kept[key] = make()
        return self._kept[key]


@dataclass(frozen=True)
class Job:
    """One cell to fill: a lowering of a case in a spelling. `reason`: why it is not run. `mine`: a
    user's own lowering, every launch of which is checked. `setting`: of a composite kernel, whose
    outputs are a cell each."""

    target: Target
    lowering: Lowering
    reason: str | None = None
    mine: bool = False
    setting: Setting | None = None

    @property
    def label(self) -> str:
        scalars = "".join(f" {name}={value!r}" for name, value in self.target.scalars.items())
        return f"{self.target.kernel.name}{scalars} {self.target.dtype} {self.lowering.name} {self.target.spelling}"


def walk(
    case: Case, job: Job, reference: Callable[..., torch.Tensor] | None
) -> tuple[dict[str, Checked], Identification, float, dict[str, int]]:
    """Check every chunk of the case's domain: tallies by truth of the scalars, formula, kernel seconds.

    And `repeats` and `distinct` of a lowering that is not deterministic: then all launches of a chunk are counted.
    """
    call = job.lowering.build(job.target)
    found = {truth: Checked() for truth in case.checkers}
    formula, seconds = Identification(), 0.0
    unsteady: dict[str, int] = {}
    for number in case.domain.chunks():
        inputs = case.chunk(number)
        arguments = (call, inputs, case.backend, job.lowering.name)
        if job.mine:
            launches = [launch_checked(*arguments)]
        else:
            launches = [launch(*arguments)] if number and not unsteady else launch_repeated(*arguments)
        if len(launches) > 1:
            most = max(distinct(launches), unsteady.get("distinct", 1))
            unsteady = {"repeats": len(launches), "distinct": most}
        seconds += launches[-1].seconds
        eager = None if reference is None else case.eager(number, job.target.spelling, reference)
        for launched in launches:
            for truth, checker in case.checkers.items():
                found[truth] += checker.check(number * CHUNK, inputs, launched.output, eager)
            if case.formulas:
                count(formula, case.predictions(number), case.fmt, inputs, launched.output)
        found["exact"] += Checked(digests(number, inputs, launches[0].output, case.fmt))
    return found, formula, seconds, unsteady


def run(selection: Selection, on_cell: Callable[[Any], Any] | None = None, progress: Progress | None = None) -> Any:
    """Walk everything selected and return a report (`verify.reports.schema`).

    A KeyboardInterrupt ends the run: the cells complete by then are kept, `interrupted` is set.
    Raises UsageError for unknown names, NothingToCompare where no backend is present, Broken for a mistake of this
    project.
    """
    present, absent = _backends(selection)
    jobs = [job for backend in present for job in jobs_of(selection, backend)]
    if not jobs:
        raise NothingToCompare("no kernel, dtype, lowering and spelling agree with the options")
    report: dict[str, Any] = {
        "schema": 1,
        "environment": {b.name: b.fingerprint() for b in present}
        | {f"{n} absent": why for n, why in absent.items()}
        | {"created": int(time.time())},  # UTC seconds: what `verify history` orders reports by
        "profile": selection.profile,
        "seed": selection.seed,
        "command": "",
        "interrupted": False,
        "cells": [],
    }
    cells: list[dict[str, Any]] = report["cells"]
    try:
        case: Case | None = None
        held: list[Instance] = []
        for done, job in enumerate(jobs):
            if progress:
                progress(done, len(jobs), job.label)
            if job.setting is not None:
                filled = fill_composite(job, held, selection)
            else:
                if job.reason is None:
                    case = case_of(job, selection, case)
                filled = [fill(job, case, selection)]
            for cell in filled:
                if on_cell:
                    on_cell(cell)
                cells.append(cell)
        if selection == Selection(selection.kernels, profile="default", seed=selection.seed):
            _stale_ledger(jobs, cells)  # only a whole run can tell that nothing needs an entry
    except KeyboardInterrupt:
        report["interrupted"] = True
    except UsageError:
        raise
    except Exception as error:
        raise Broken(job.label, report | {"interrupted": True}) from error
    if progress:
        progress(len(cells), len(jobs), "")
    return report


class Broken(Exception):
    """A mistake of this project ended the run, at `label`. `report` has the cells that were complete."""

    def __init__(self, label: str, report: dict[str, Any]) -> None:
        super().__init__(f"an internal error at {label}")
        self.report = report


def _blank(job: Job, selection: Selection) -> dict[str, Any]:
    target = job.target
    return {
        "kernel": target.kernel.name,
        "lowering": job.lowering.name,
        "spelling": target.spelling,
        "backend": target.backend.name,
        "dtype": target.dtype,
        "scalars": dict(target.scalars),
        "domain": {"kind": "none", "size": 0, "seed": selection.seed, "digest": ""},
        "source": source_of(target.kernel.name),
    }


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


def fill_composite(job: Job, held: list[Instance], selection: Selection) -> list[dict[str, Any]]:
    """The cells of a job of a composite kernel, one an output. `held` has the last job's instance, then this one's."""
    target, facts, blank = job.target, job.target.kernel, _blank(job, selection)
    assert job.setting is not None
    if job.reason is not None:
        not_run = {"status": "not-run", "reason": job.reason}
        return [blank | {"output": name} | not_run for name in facts.outputs_of(job.setting)]
    given = (facts, job.setting, target.scalars, target.dtype, target.backend)
    if not (held and held[0].serves(*given)):
        held.clear()  # first: there may be no room for two
        held.append(Instance(*given, selection.seed))
    return assess.cells(target, job.lowering, lowerings(facts)[0], held[0], blank)


def fill(job: Job, case: Case | None, selection: Selection) -> dict[str, Any]:
    """The cell of a job: run, judged against its bound, or not run and why."""
    target, lowering = job.target, job.lowering
    cell = _blank(job, selection)
    if job.reason is not None or case is None:
        return cell | {"status": "not-run", "reason": job.reason or "no case"}
    cell["domain"] |= {"kind": case.domain.kind, "size": case.domain.size}
    began = time.perf_counter()
    try:
        reference = _reference(job)
        sweep_s = 0.0
        unsteady: dict[str, int] = {}
        if sweep.suits(case.domain, case.fmt):
            swept = sweep.sweep(case, job, reference)
            found, formula, seconds, sweep_s = swept.found, swept.formula, swept.kernel_s, swept.sweep_s
        else:
            found, formula, seconds, unsteady = walk(case, job, reference)
    except NotLowered as why:
        return cell | {"status": "not-run", "reason": str(why)}
    except LoweringError as error:
        return cell | {"status": "error", "reason": str(error)}
    except (OracleViolation, OracleError) as violation:
        empty = Checked()
        return cell | {"status": "oracle-violation", "reason": str(violation), "error": error_of(empty)}
    flags = {"flags": lowering.flags(target), "ftz": lowering.ftz(target)}
    timing = {"kernel_s": seconds, "check_s": time.perf_counter() - began - seconds, "sweep_s": sweep_s}
    cell |= flags | judged(case, job, found, formula, timing) | unsteady
    if unsteady:
        told = "not deterministic: {distinct} different results in {repeats} launches, all judged".format(**unsteady)
        cell["reason"] = "; ".join(filter(None, (cell["reason"], told)))
    return cell


def judged(
    case: Case, job: Job, found: dict[str, Checked], formula: Identification, timing: dict[str, float]
) -> dict[str, Any]:
    """Everything of a cell that its tallies decide."""
    target, fmt = job.target, case.fmt
    exact = found["exact"]
    whole = exact.all.check()
    bound = target.kernel.bound(
        lowering=job.lowering.name, backend=target.backend.name, spelling=target.spelling, dtype=target.dtype,
        scalars=target.scalars,
    )  # fmt: skip
    meant = found.get(bound.truth if bound else "exact", exact)
    status, reason, kinds = status_of(meant, bound, job.lowering.ftz(target))
    if status == "exceeds-bound":
        explained = bool(formula.survivors) or (_reference(job) is not None and not meant.all.different)
        known = ledger.excuse(
            target.backend.name, kinds, explained, lowering=job.lowering.name, kernel=target.kernel.name,
            dtype=target.dtype, spelling=target.spelling,
        )  # fmt: skip
        if known is not None:
            status, reason = "passed", f"known deviation: {known} ({reason})"
    cell: dict[str, Any] = {
        "status": status,
        "reason": reason,
        "inputs": whole.inputs,
        "error": error_of(exact, binades=target.spelling == target.default_spelling),
        "worst": worst_list(found, bound, fmt),
        "domain": {
            "kind": case.domain.kind, "size": case.domain.size, "seed": case.domain.seed,
            # every pattern in order needs no hash
            "digest": root(exact.main.input_digests) if exact.main.input_digests else f"every-{fmt.name}",
        },
        "digest": root(exact.main.digests),
        "chunks": [f"{value:016x}" for _, value in exact.main.digests],
        "trust": _trust(case) if fmt.bits < 64 else [],
        "timing": {**timing, "mp_elements": whole.mp_elements},
    }  # fmt: skip
    if "rounded" in found:
        cell["error_rounded_scalar"] = error_of(found["rounded"])
    if _reference(job) is not None:
        against = meant.all
        cell["against_eager"] = {k: getattr(against, k) for k in ("different", "closer", "farther", "tied")}
    if case.formulas:
        cell["formula"] = {
            "identified": formula.identified,
            "mismatches": formula.mismatches,
            "survivors": formula.survivors,
            "witnesses": {text: [fmt.hex(p) for p in bits] for text, bits in formula.witnesses.items()},
        }
    if bound:
        cell["bound"] = {
            "value": bound.value, "metric": bound.metric, "source": bound.source, "truth": bound.truth,
            "measured": float(measured(meant.main, bound)),
        }  # fmt: skip
    return cell


def _trust(case: Case) -> list[dict[str, Any]]:
    return [
        {
            "library": f"torch.{a.name} float64, {a.form} on {backends.judged_on(case.backend)}",
            "bound_ulp": a.bound,
            "seen_ulp": a.seen,
            "admitted_on": a.points,
        }
        for a in case.library
    ]


def _reference(job: Job) -> Callable[..., torch.Tensor] | None:
    """The first lowering of the kernel, which the others are compared with; None for itself."""
    first = lowerings(job.target.kernel)[0]
    if first.name == job.lowering.name or first.reason(job.target):
        return None
    return first.build(job.target)


def case_of(job: Job, selection: Selection, last: Case | None = None) -> Case:
    """The case of an elementwise job: `last` where it is the same."""
    target, fmt = job.target, FORMATS[job.target.dtype]
    limits = [n for n in (job.lowering.limit(target), _limit(target, fmt)) if n is not None]
    limit = min(limits, default=None)
    domain = domain_of(target.kernel, fmt, target.scalars, selection.profile, selection.seed)
    if limit is not None and domain.size > limit:
        names = target.kernel.tensors(target.scalars)
        strata = target.kernel.domain(fmt, names, dict(target.scalars), limit)
        domain = Domain("strata", fmt, names, strata, selection.seed)
    key = (target.kernel.name, target.scalars, target.dtype, target.backend.name, domain.kind, domain.size)
    if last is not None and key == (
        last.kernel.name, last.scalars, last.dtype, last.backend.name, last.domain.kind, last.domain.size,
    ):  # fmt: skip
        return last
    return Case(target.kernel, target.scalars, target.dtype, target.backend, domain)


def _limit(target: Target, fmt: Format) -> int | None:
    """Spellings other than the default one get the quick domain: they are there to tell formulas apart."""
    return None if target.spelling == target.default_spelling or fmt.bits == 16 else QUICK


def _backends(selection: Selection) -> tuple[list[Backend], dict[str, str]]:
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
    for facts in kernels:
        if isinstance(facts, Composite):
            yield from _composite_jobs(facts, selection, backend)
            continue
        if selection.setting:
            raise UsageError(f"--set is for composite kernels; {facts.name} takes --scalar and --spelling")
        users = [user_lowering(text) for text in selection.user_lowerings]
        chosen = [
            one
            for one in lowerings(facts)
            if not selection.lowerings or any(fnmatch.fnmatchcase(one.name, p) for p in selection.lowerings)
        ]
        if selection.user_lowerings and not selection.lowerings:
            chosen = list(lowerings(facts))
        for dtype in selection.dtypes or facts.dtypes:
            pairs = list(_targets(facts, selection))
            if users:
                pairs = _default_pairs(facts, pairs)
            for scalars, spelling in pairs:
                target = Target(facts, scalars, spelling, dtype, backend)
                for one in (*users, *chosen):
                    reason = one.reason(target)
                    if reason and spelling != target.default_spelling and "calling convention" in reason:
                        continue
                    yield Job(target, one, reason, one in users)


def _composite_jobs(facts: Composite, selection: Selection, backend: Backend) -> Iterator[Job]:
    users = [assess.user_lowering(text) for text in selection.user_lowerings]
    chosen = [
        one
        for one in lowerings(facts)
        if not selection.lowerings or any(fnmatch.fnmatchcase(one.name, p) for p in selection.lowerings)
    ]
    cases = cases_of(facts, selection.scalars, selection.profile)
    for dtype in selection.dtypes or facts.dtypes:
        for setting in settings_of(facts, selection.setting, selection.spellings, selection.profile, dtype):
            for scalars in cases:
                target = Target(facts, scalars, setting.name, dtype, backend)
                for one in (*users, *chosen):
                    reason = backend.dtype_unavailable(dtype) or one.reason(target)
                    yield Job(target, one, reason, one in users, setting)


def _targets(facts: Kernel, selection: Selection) -> Iterator[tuple[Scalars, str]]:
    given = dict(selection.scalars or {})
    unknown = [name for name in given if name not in facts.inputs]
    if unknown:
        raise UsageError(suggest(f"scalar of {facts.name}", unknown[0], facts.inputs))
    seen: dict[tuple[tuple[str, float], ...], bool] = {}
    wide = "default" if selection.spellings and selection.profile == "quick" else selection.profile
    for scalars, spelling in facts.targets(wide):
        if given and not set(given) <= set(scalars) and not given.keys() <= set(facts.inputs):
            continue
        chosen = scalars
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


def _default_pairs(facts: Kernel, pairs: list[tuple[Scalars, str]]) -> list[tuple[Scalars, str]]:
    """With a user's own lowering: each case once, in its default spelling."""
    found = []
    for scalars, spelling in pairs:
        first = next(name for name, s in facts.spellings.items() if s.applies(scalars))
        if spelling == first:
            found.append((scalars, spelling))
    return found or pairs


def _known_names(selection: Selection, kernels: list[Kernel | Composite]) -> None:
    for dtype in selection.dtypes:
        if dtype not in DTYPES:
            raise UsageError(suggest("dtype", dtype, DTYPES))
    known = list(dict.fromkeys(one.name for facts in kernels for one in lowerings(facts)))
    for pattern in selection.lowerings:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in known):
            raise UsageError(suggest("lowering", pattern, known))
    spellings = list(dict.fromkeys(name for facts in kernels for name in facts.spellings))
    for spelling in selection.spellings:
        if spelling not in spellings and not own_setting(spelling):
            raise UsageError(suggest("spelling", spelling, spellings))


def _stale_ledger(jobs: list[Job], cells: list[dict[str, Any]]) -> None:
    """A ledger entry none of whose cells failed any more is an error, told on the last of them."""
    for name in {job.target.backend.name for job in jobs}:
        for entry in ledger.deviations(name):
            if entry.status != "exceeds-bound":
                continue
            kernels = {job.target.kernel.name for job in jobs}
            if not kernels >= {k for k in kernel.names() if any(fnmatch.fnmatchcase(k, p) for p in entry.kernel)}:
                continue
            covered = [
                cell
                for cell in cells
                if cell["backend"] == name
                and cell["status"] in ("passed", "exceeds-bound")
                and entry.suits(**{name: cell[name] for name in ("lowering", "kernel", "dtype", "spelling")})
            ]
            if covered and all(c["status"] == "passed" and not c["reason"].startswith("known") for c in covered):
                covered[-1] |= {"status": "error", "reason": f"ledger entry no longer fails, remove it: {entry.reason}"}
