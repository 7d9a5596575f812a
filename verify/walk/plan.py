"""The jobs of a selection, their estimated cost, and how they are divided among processes and shards."""

from __future__ import annotations

import fnmatch
import heapq
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verify import backends
from verify.backends import Backend
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.facts.kernel import DTYPES, NARROW, BackendAbsent, Composite, Kernel, Scalars, Setting, UsageError, suggest
from verify.inputs.domains import SIZES, SIZES_FLOAT64, Domain, domain_of
from verify.lower.lowering import Lowering, Target
from verify.lower.lowerings import lowerings, unknown
from verify.lower.user import declared, may_take, user_composite, user_lowering
from verify.numbers.orders import Order
from verify.walk.pointwise import ranges_of, truths_of, unit_of
from verify.walk.settings import cases_of, own_setting, settings_of
from verify.workers import TIMEOUT, isolated, isolated_composite


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
        """Whether the selection has lowerings of the user's own."""
        return bool(self.user_lowerings or self.functions)


@dataclass(frozen=True)
class Job:
    """One cell to fill: a lowering of a case in a spelling. `reason`: why it is not run. `mine`: a
    user's own lowering. `setting`: of a composite kernel, whose outputs are a cell each; `resolved`: those that
    another job's setting resolves, see `verify.facts.kernel.Setting`. `kind`: of the reason. `calls`: whether other
    calls than the walk's are made; `scalars`: also with other Python scalars."""

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
        """What identifies the call, whatever the layout of its inputs."""
        target = self.target
        return target.kernel.name, target.backend.name, target.dtype, self.lowering.name, *target.scalars.items()

    @property
    def arranged(self) -> bool:
        """Whether an elementwise kernel's inputs have a layout other than the plain one."""
        return self.setting is None and self.target.layout is not None

    @property
    def laid_out(self) -> bool:
        """Whether inputs do not lie as a function may expect that takes contiguous ones alone."""
        layout = PLAIN if self.setting is None else self.setting.parameters.get("layout", PLAIN)
        return self.arranged or layout != PLAIN


def job_domain(job: Job, selection: Selection) -> Domain:
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


#: Rough seconds, to order jobs by: an element in tensors and in multiprecision, a compilation, a problem, and a unit of
#: `Setting.work`, the start of a process (two cores of a Xeon, and sixteen beside an H200, November 2026), the other
#: calls of a user's function; in a sweep, an element on the host and on a GPU.
EACH, EACH_FLOAT64, COMPILING, PROBLEM, EACH_WORK, STARTING, CALLING = 5e-7, 1e-5, 1.0, 0.3, 2e-6, 5.0, 2.5

EACH_SWEPT, EACH_SWEPT_GPU = 1e-7, 1e-10
#: ... and that a range of a GPU's takes longer at most beside other processes there, by which it is begun sooner: it
#: cannot be divided, as small cases can.
HELD_UP = 15.0

PLAIN = "contiguous"  # the layout of a composite kernel's setting that every function has to take
TOGETHER = 16  # groups of ranges of one sweep, each in one process at first


@dataclass(frozen=True)
class Task:
    """A unit of work: a whole job, or the `elements` of a sweep's domain."""

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
    """The tasks of a shard: whole cases, divided so that shards cost about the same, and a range of every sweep. None
    where there are fewer cases than shards."""
    sweeps = {n: domain for n, job in enumerate(jobs) if (domain := _swept(job, selection, of)) is not None}
    spans: dict[int, range | None] = dict.fromkeys(_share(jobs, selection, sweeps, index, of))
    for n, domain in sweeps.items():
        unit = unit_of(jobs[n].target.backend)
        first, end = (domain.size // unit * k // of * unit for k in (index - 1, index))
        if first < end:
            spans[n] = range(first, end)
    tasks: list[Task] = []
    for n, span in sorted(spans.items()):
        if span is None:
            tasks.append(Task(n))
            continue
        parts = ranges_of(span.start, span.stop, unit_of(jobs[n].target.backend))
        tasks += [Task(n, range(start, stop)) for start, stop in parts]
    return Plan(sorted(spans), {n: domain for n, domain in sweeps.items() if n in spans}, tasks)


def _swept(job: Job, selection: Selection, of: int) -> Domain | None:
    """The domain of a job that is done in ranges, because it has many portions; None for any other job."""
    target = job.target
    if job.setting is not None or job.reason is not None:
        return None
    bits = FORMATS[target.dtype].bits * len(target.kernel.tensors(target.scalars))
    if bits != 16 and (bits not in (32, 48) or selection.profile != "exhaustive"):  # others take time to be composed
        return None
    domain = job_domain(job, selection)
    if domain.kind != "exhaustive" or domain.size <= unit_of(target.backend):
        return None
    if job.mine and of > 1 and domain.size <= 1 << 32:
        return None  # of a user's own the layouts depend on the whole plain call, which one shard then does
    return domain


def by_case(jobs: Sequence[Job], tasks: Sequence[Task], selection: Selection) -> list[tuple[float, list[int]]]:
    """The tasks grouped by case, as indices into `tasks`, with an estimate of each group's seconds; first those that
    take the longest among others. A user's own lowering is first answered: known ones beside it have groups of their
    own, where a case is soon made again."""
    groups: dict[Any, list[int]] = {}
    seconds: dict[Any, float] = defaultdict(float)
    held_up: dict[Any, float] = defaultdict(float)
    several, later = Counter(task.job for task in tasks), set[Any]()
    first: dict[str, str] = {}  # lowering of each kernel
    called = set[Any]()
    for number, task in enumerate(tasks):
        job, target = jobs[task.job], jobs[task.job].target
        key: tuple[Any, ...] = target.kernel.name, target.dtype, target.backend.name, *sorted(target.scalars.items())
        if target.kernel.name not in first:
            first[target.kernel.name] = lowerings(target.kernel)[0].name
        if task.elements is not None:  # neighbours together, in so many groups that processes begin at once
            size = len(task.elements)
            key = *key, "range", task.job, task.elements.start // (size * -(-several[task.job] // TOGETHER))
        elif job.setting is not None:
            key, size = (*key, job.setting.name), 0
            seconds[key] += job.setting.work * EACH_WORK
        else:
            domain = job_domain(job, selection)
            key, truths = (*key, domain.kind, domain.size), truths_of(target.scalars, FORMATS[target.dtype])
            size = domain.size * len(truths)
            kind = target.kernel.name, target.dtype, target.backend.name, *sorted(target.scalars)
            if job.mine and kind not in called:  # which has most of the other calls
                called.add(kind)
                seconds[key] += CALLING
            if selection.own and not job.mine:
                key = *key, "beside"
                later.add(key)
        compiled = task.elements is None or key not in groups
        each = EACH_FLOAT64 if target.dtype == "float64" else EACH
        if task.elements is not None:
            there = target.backend.check_device != "cpu"
            each = EACH_SWEPT_GPU if there else EACH_SWEPT
            held_up[key] += HELD_UP * there
        seconds[key] += size * each
        compiles = compiled and job.lowering.name != first[target.kernel.name]
        seconds[key] += COMPILING * target.kernel.compiling * compiles
        seconds[key] += PROBLEM * (job.setting is not None and key not in groups)
        groups.setdefault(key, []).append(number)
    order = sorted(groups, key=lambda key: (key in later, -seconds[key] - held_up[key], groups[key]))
    # a first compilation in C++ waits for a header, which is compiled meanwhile
    last = {number for number, task in enumerate(tasks) if jobs[task.job].lowering.compiles_here}
    return [(seconds[key], sorted(groups[key], key=lambda number: number in last)) for key in order]


def estimated(jobs: Sequence[Job], tasks: Sequence[Task], selection: Selection) -> list[float]:
    """Rough seconds of each task: its part of what its group takes; 0 for a job that is not done."""
    done = [number for number, task in enumerate(tasks) if jobs[task.job].reason is None]
    found = [0.0] * len(tasks)
    for seconds, group in by_case(jobs, [tasks[number] for number in done], selection):
        for k in group:
            found[done[k]] = seconds / len(group)
    return found


def _share(
    jobs: Sequence[Job], selection: Selection, sweeps: Container[int], index: int, of: int
) -> list[int]:  # fmt: skip
    """The jobs of a shard that are done as wholes."""
    if of == 1:
        return [n for n in range(len(jobs)) if n not in sweeps]
    tasks = [Task(n) for n, job in enumerate(jobs) if job.reason is None and n not in sweeps]
    groups = [(seconds, [tasks[k].job for k in group]) for seconds, group in by_case(jobs, tasks, selection)]
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
        raise BackendAbsent.of(absent)
    return found, absent


def jobs_of(selection: Selection, backend: Backend, reasons: Iterator[str | None] | None = None) -> Iterator[Job]:
    """Every cell selected on one backend, ordered so that cells of one case follow each other. reasons: theirs, where
    another process has found them, some by importing Inductor or with the device."""
    kernels = [kernel.load(name) for name in selection.kernels]
    _known_names(selection, kernels)
    for name, value in (selection.scalars or {}).items():
        if not math.isfinite(value):
            raise UsageError(f"{name}={value} as a scalar; expected a finite number")
    order = _order(selection, kernels)
    for facts in kernels:
        if isinstance(facts, Composite):
            yield from _composite_jobs(facts, selection, backend, order, reasons)
            continue
        if selection.setting:
            raise UsageError(f"--set is for composite kernels; {facts.name} takes --scalar and --spelling")
        limits: dict[str, Any] = {"timeout": selection.timeout, "memory": selection.memory}
        users = [isolated(text, **limits) for text in selection.user_lowerings]
        users += [user_lowering(name, function=function) for name, function in selection.functions.items()]
        chosen = _chosen(facts, selection)
        for dtype in selection.dtypes or facts.dtypes:
            if dtype in NARROW:  # of composite kernels alone
                continue
            pairs = list(_targets(facts, selection))
            if users and not selection.spellings:
                pairs = _of_users(facts, pairs, selection)
            for scalars, spelling in pairs:
                target = Target(facts, scalars, spelling, dtype, backend)
                beside = chosen if not users or selection.spellings or target.layout is None else ()
                for one in (*users, *beside):
                    if one.one_spelling and spelling != target.default_spelling:
                        continue
                    reason = one.reason(target) if reasons is None else next(reasons)
                    mine, plain = one in users, spelling == target.default_spelling
                    calls = plain and target.layout is None
                    yield Job(target, one, reason, mine, calls=calls, scalars=mine and selection.scalars is None)


def why_nothing(selection: Selection, names: Sequence[str]) -> str:
    """Why these kernels have no job."""
    kernels = [kernel.load(name) for name in names]
    if selection.dtypes and not any(set(selection.dtypes) & set(one.dtypes) for one in kernels):
        having = "; ".join(f"{one.name} has {', '.join(one.dtypes)}" for one in kernels[:3])
        return f"no selected kernel has dtype {' or '.join(selection.dtypes)}: {having}"
    return "no kernel, dtype, lowering and spelling agree with the options"


def _chosen(facts: Kernel | Composite, selection: Selection) -> list[Lowering]:
    """The registered lowerings that are selected; beside a user's own, unless any is named, the reference alone."""
    known = list(lowerings(facts))
    if not selection.lowerings:
        return known[:1] if selection.own else known
    return [one for one in known if kernel.fits(one.name, selection.lowerings)]


def _composite_jobs(
    facts: Composite, selection: Selection, backend: Backend, order: Order | None, reasons: Iterator[str | None] | None
) -> Iterator[Job]:
    limits: dict[str, Any] = {"timeout": selection.timeout, "memory": selection.memory}
    fixed = selection.scalars
    users = [isolated_composite(text, order, **limits, fixed=fixed) for text in selection.user_lowerings]
    users += [user_composite(name, order, function=f, fixed=fixed) for name, f in selection.functions.items()]
    chosen = _chosen(facts, selection)
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
                    if reasons is None:
                        reason = backend.dtype_unavailable(dtype) or one.reason(target)
                    else:
                        reason = next(reasons)
                    mine = one in users
                    calls = first and (mine or one.name == reference)
                    free = mine and selection.scalars is None
                    yield Job(target, one, reason, mine, setting, resolved, calls=calls, scalars=free)


def _targets(facts: Kernel, selection: Selection) -> Iterator[tuple[Scalars, str]]:
    given = dict(selection.scalars or {})
    if selection.scalars is not None and not given and {} not in facts.cases:
        raise UsageError(f"--scalar none: {facts.name} has no case of tensors alone, see `verify show {facts.name}`")
    known = tuple(dict.fromkeys(name for case in facts.cases for name in case))
    if given and not known:
        raise UsageError(f"{facts.name} takes no --scalar: all that it computes with are tensors")
    if unknown := [name for name in given if name not in known]:
        raise UsageError(suggest(f"scalar of {facts.name}", unknown[0], known))
    seen = set()
    every = selection.spellings or (selection.scalars is not None and selection.profile == "default")
    for scalars, spelling in facts.targets("exhaustive" if every else selection.profile):
        if selection.scalars is not None:
            if scalars.keys() != given.keys() or not facts.spellings[spelling].applies(given):
                continue
            scalars = given
        if selection.spellings and spelling not in selection.spellings:
            continue
        key = spelling, *sorted(scalars.items())
        if key not in seen:
            seen.add(key)
            yield scalars, spelling


def _of_users(
    facts: Kernel, pairs: list[tuple[Scalars, str]], selection: Selection
) -> list[tuple[Scalars, str]]:  # fmt: skip
    """With a user's own lowering: each case once, in its default spelling; the first one that a function takes, as far
    as its file tells, in every layout too."""
    plain = [(scalars, spelling) for scalars, spelling in pairs if spelling == facts.default_spelling(scalars)]
    signatures = [*map(declared, selection.user_lowerings), *itertools.starmap(declared, selection.functions.items())]
    taken = ([one for one, _ in plain if may_take(signature, facts, one)] for signature in signatures)
    first = [cases[0] for cases in taken if cases]
    first = [one for k, one in enumerate(first) if one not in first[:k]]
    layouts = [(x, name) for x in first for name, s in facts.spellings.items() if s.layout and s.applies(x)]
    return [*plain, *layouts] or pairs


def _known_names(selection: Selection, kernels: list[Kernel | Composite]) -> None:
    for dtype in selection.dtypes:
        if dtype not in DTYPES + NARROW:
            raise UsageError(suggest("dtype", dtype, DTYPES + NARROW))
    known = list(dict.fromkeys(one.name for facts in kernels for one in lowerings(facts)))
    for pattern in selection.lowerings:
        if not fnmatch.filter(known, pattern):
            raise unknown(pattern, known)
    spellings = list(dict.fromkeys(name for facts in kernels for name in facts.spellings))
    for spelling in selection.spellings:
        if spelling not in spellings and not own_setting(spelling):
            raise UsageError(suggest("spelling", spelling, spellings))


def _order(selection: Selection, kernels: list[Kernel | Composite]) -> Order | None:
    """The order that --algorithm declares. Raises UsageError where it has no meaning."""
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
