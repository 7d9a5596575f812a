"""The walk of one job: domain -> lowering on a backend -> outputs -> check -> tally."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from verify import native
from verify.facts.formats import Format
from verify.inputs.draws import spread
from verify.judge import ledger, status
from verify.judge.cell import Reader, Stated, standing, unresolved
from verify.judge.element import Limits, decide, resolution
from verify.judge.regions import REGIONS
from verify.judge.tally import Tally
from verify.lower.lowering import Lowering, NotLowered
from verify.lower.lowerings import lowerings
from verify.walk.called import Called
from verify.walk.calls import Sample, call_all
from verify.walk.calls_of_problems import call_problems
from verify.walk.cases import Case, Strata, format_of, terms
from verify.walk.instance import Instance
from verify.walk.plan import Job, Selection, job_domain
from verify.walk.pointwise import Pointwise
from verify.workers.launch import LoweringError, launch_steady, repeats_of

RESOLVED = 4096  # elements whose resolution is taken
HELD = 1 << 20  # elements that may wait until all portions are through
ON_HOST = 1 << 13  # elements of a GPU with which the host is done before it has launched hundreds of kernels


@dataclass(frozen=True)
class Found:
    """What a walk found of one output: tallies by truth of the scalars, how to read them, and how many different
    results its launches gave at most."""

    tallies: dict[str, Tally]
    readers: dict[str, Reader]
    stated: Stated | None
    resolution: dict[str, dict[str, float]]
    unresolved: str
    against_eager: bool
    fmt: Format
    distinct: int = 1


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
    held: dict[str, _Held] = {}
    for number in portions:
        eager = None if reference is None else case.eager(number, reference, target)
        try:
            one = launch_steady(
                call, case.given(number), case.backend, lowering.name, names=case.outputs, like=eager,
                repeats=repeats_of(first=number == 0, user=job.mine), origin=case.origin(number),
            )  # fmt: skip
        except LoweringError as error:
            if not (job.mine and reference and error.kind == "raised" and isinstance(case, Instance) and eager is None):
                raise
            raise NotLowered(f"it refuses these inputs, as {reference.name} does: {error}") from error
        compiling = one.first if number == 0 else 0.0
        launched += Launched(one.seconds, one.repeats if one.distinct > 1 else 1, one.distinct, one.told, compiling)
        few = not lowering.each_shape or case.portions() == range(1)
        if number == 0 and one.steady and job.calls and few and isinstance(case, Pointwise):
            given = case.given(0)
            sample = Sample(given, one.output) if lowering.each_shape else Sample.of(given, one.output, kinds=job.mine)
            options = {"mine": job.mine, "scalars": job.scalars}
            launched = replace(launched, calls=call_all(case, target, lowering, call, reference, sample, **options))
        if one.steady and job.calls and isinstance(case, Instance):
            first = lowerings(target.kernel)[0]
            options = {"mine": job.mine, "scalars": job.scalars}
            launched = replace(launched, calls=call_problems(case, target, lowering, call, first, **options))
        for outputs in one.results:
            for name, y in outputs.items():
                other, before = None if eager is None else eager.get(name), found.get(name)
                found[name] = judged(case, job, number, name, y, other, before, held.setdefault(name, _Held()))
        for name, y in one.results[0].items():
            if found[name].unresolved and isinstance(case, Instance):
                every, other = [outputs[name] for outputs in one.results], None if eager is None else eager.get(name)
                found[name] = narrowed(case, job, name, every, other, found[name])
            exact = found[name].tallies["exact"] + case.digests(number, name, y.reshape(-1))
            distinct = max(found[name].distinct, one.distinct_of(name))
            found[name] = replace(found[name], tallies=found[name].tallies | {"exact": exact}, distinct=distinct)
    for name, rest in held.items():
        found[name] = rest.judged(case, job, name, found[name])
    if launched.calls is not None:
        launched = replace(launched, calls=launched.calls.settled(call).counted(call))
    return found, launched + Launched(compiling=native.compiled_for() - building)


def judged(
    case: Case, job: Job, number: int, name: str, y: torch.Tensor, eager: torch.Tensor | None, before: Found | None,
    held: _Held,
) -> Found:  # fmt: skip
    """One output of one launch, added to what is known of that output. held: takes what is judged once all portions
    are through."""
    flat, other = y.contiguous().reshape(-1), None if eager is None else eager.contiguous().reshape(-1)
    if not len(flat):
        raise LoweringError("the output has no element", "inapplicable")
    stated, on = terms(case, job.target, job.lowering, number, name, y, user=job.mine)
    fmt, intended = format_of(y), next(truth for truth, one in on.items() if one.meant)
    tallies = dict(before.tallies) if before else {}
    for truth, one in on.items():
        asked = (name, truth, one.judge.limits.values, tuple(e.id for e in one.judge.excuses), job.mine)
        tally = case.known(number, asked, flat, other)
        if tally is None:
            formulas, engine = case.formulas(number, name, y), case.engine(number, name, truth)
            later, places = held.room(case), case.sampled(number, name, flat)
            ahead = places if truth == intended and isinstance(case, Pointwise) and not flat.is_cpu else None
            tally = one.judge.tally(one.elements, flat, other, formulas, engine, later, ahead)
            if not isinstance(case, Pointwise):
                one.judge.sample(one.elements, places, flat)
            elif len(places) and truth == intended:
                held.sampled.append((*(t[places] for t in case.given(number)), flat[places]))
            if isinstance(case, Pointwise) and later:
                held.leave(case, number, truth, later[0], flat, other)
            case.learn(number, asked, flat, other, tally)
        tallies[truth] = tallies.get(truth, Tally()) + tally
    known: tuple[dict[str, dict[str, float]], str] = ({}, "")
    if before:
        known = before.resolution, before.unresolved
    elif number == 0:
        # of a portion, which may be larger where there is room
        count = min(len(flat), case.backend.portion) if isinstance(case, Pointwise) else len(flat)
        index = torch.tensor(spread(count, RESOLVED), dtype=torch.int64, device=flat.device)
        strata, elements = None if name in job.resolved else case.strata(name, y), on[intended].elements
        if isinstance(case, Pointwise) and not flat.is_cpu:
            same, flat = case.on([t[index].cpu() for t in case.given(0)]).there("cpu"), flat[index].cpu()
            elements, index = same.sources(0, name, flat)[intended], torch.arange(len(flat))
        known = resolved(elements, index, flat, fmt, stated, strata)
    readers, distinct = {truth: one.reader for truth, one in on.items()}, before.distinct if before else 1
    return Found(tallies, readers, stated, *known, eager is not None, fmt, distinct)


def narrowed(
    case: Instance, job: Job, name: str, every: Sequence[torch.Tensor], eager: torch.Tensor | None, found: Found
) -> Found:  # fmt: skip
    """An output that nothing resolves under all known algorithms together, held to one of them alone whose bound does
    and which all elements keep; as it was found where there is none. An allowance of the ledger comes first."""
    capability = job.target.backend.capability()
    if job.lowering.order is not None or (not job.mine and allowed(job, "unjudged", {"unjudged"}, name, capability)):
        return found
    index = torch.tensor(spread(every[0].numel(), RESOLVED), dtype=torch.int64, device=every[0].device)
    for way in case.ways(job.target).values():
        flat, strata = every[0].contiguous().reshape(-1), way.strata(name, every[0])
        stated, on = terms(way, job.target, job.lowering, 0, name, every[0], user=job.mine)
        if any(resolved(one.elements, index, flat, found.fmt, stated, strata)[1] for one in on.values()):
            continue
        one: Found | None = None
        for y in every:
            one = judged(way, job, 0, name, y, eager, one, _Held())
        if one is not None and all(standing(tally) == "passed" for tally in one.tallies.values()):
            return one
    return found


@dataclass
class _Held:
    """Elements of several portions of one output, on their device: sampled ones with inputs and output, and what fused
    passes left open, with number, inputs, output and eager's, by truth of the scalars."""

    sampled: list[tuple[torch.Tensor, ...]] = field(default_factory=list)
    open: dict[str, list[tuple[torch.Tensor, ...]]] = field(default_factory=dict)
    count: int = 0

    def room(self, case: Case) -> list[torch.Tensor] | None:
        """Where what is left of a portion may be put; None where it is to be judged at once."""
        return [] if isinstance(case, Pointwise) and case.swept and self.count <= HELD else None

    def leave(
        self, case: Pointwise, number: int, truth: str, index: torch.Tensor, y: torch.Tensor, eager: torch.Tensor | None
    ) -> None:
        """Take the elements of a portion at `index`."""
        if len(index):
            given = (index + number * case.portion, *(t[index] for t in case.given(number)), y[index])
            self.open.setdefault(truth, []).append(given if eager is None else (*given, eager[index]))
            self.count += len(index)

    def judged(self, case: Case, job: Job, name: str, found: Found) -> Found:
        """What was found, with the open elements, once the sample has been held against multiprecision. Raises
        OracleViolation."""
        if not isinstance(case, Pointwise):
            return found
        if self.sampled:
            *inputs, y = map(torch.cat, zip(*self.sampled, strict=True))
            _, on = terms(case.on(inputs), job.target, job.lowering, 0, name, y, user=job.mine)
            for one in on.values():
                one.judge.sample(one.elements, torch.arange(len(y), device=y.device), y)
        tallies = dict(found.tallies)
        for truth, parts in self.open.items():
            places, *tensors = map(torch.cat, zip(*parts, strict=True))
            device = "cpu" if len(places) <= ON_HOST else case.device
            places, *tensors = (t.to(device) for t in (places, *tensors))
            inputs, (y, *eager) = tensors[: len(case.inputs.names)], tensors[len(case.inputs.names) :]
            same = case.on(inputs, places).there(device)
            one = terms(same, job.target, job.lowering, 0, name, y, user=job.mine)[1][truth]
            index, formulas = torch.arange(len(y), device=y.device), same.formulas(0, name, y)
            other = eager[0] if eager else None
            tallies[truth] += one.judge.rest(one.elements, index, y, other, formulas, settled=True)
        return replace(found, tallies=tallies)


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


def resolved(
    source: Any, index: torch.Tensor, y: torch.Tensor, fmt: Format, stated: Stated | None, strata: Strata | None
) -> tuple[dict[str, dict[str, float]], str]:  # fmt: skip
    """Median and 90% point of the resolution in each region, of the elements at `index` of the outputs y, and why no
    stratum resolves ('' where one does, or none are asked for)."""
    if source is None or stated is None or fmt.bits == 64:
        return {}, ""
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
    given = (target.kernel, target.scalars, target.dtype, target.backend, job_domain(job, selection))
    if not (held and isinstance(held[0], Pointwise) and held[0].serves(*given)):
        held.clear()
        held.append(Pointwise(*given, moved=not selection.own))
    return held[0]


def allowed(
    job: Job, found: str, shown: Collection[str], output: str, capability: str, *, as_eager: bool = False
) -> str:  # fmt: skip
    """The id of the allowance of a cell for its status `found`; '' where it has none for one of the others that it
    shows: a status hides none that is less severe. as_eager: it has those of the reference; a user's own has else none
    but those for every lowering."""
    if found not in status.ALLOWABLE:
        return ""
    target = job.target
    name = lowerings(target.kernel)[0].name if as_eager else job.lowering.name
    cell = {"lowering": name, "kernel": target.kernel.name, "dtype": target.dtype}
    cell |= {"spelling": target.spelling, "output": output}
    due = [one for one in status.ALLOWABLE if one in shown]  # the worst, `found`, is the first
    entries = [ledger.allowance(target.backend.name, one, capability, **cell) for one in due]
    return entries[0].id if entries[0] and all(entries) else ""
