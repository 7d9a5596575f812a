"""Exhaustive sweeps: every pattern of a float32 input, as fast as the memory allows.

On the host a chunk takes the native decision, without special rows where none applies. On a GPU one kernel judges
hundreds of chunks a launch (`bulk`); the chunks that it leaves open go through `verify.check` like any other. Worst
cases are ranked at the end, in the chunks that may hold one.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from verify import admit
from verify.check import Checked, Checker, digests, one_binade, point_of, tally_of
from verify.decide import COUNTS, Decision, Enclosure, bound_of, exceeding
from verify.domains import CHUNK, Domain
from verify.formats import Format
from verify.identify import Identification, count, merged, predict
from verify.launch import Launched, LoweringError, enqueue, launch, launch_checked
from verify.lowerings import describe
from verify.numbers.predicates import Predicates
from verify.tally import WORST, Tally, Worst
from verify.ulp import FAILING

if TYPE_CHECKING:
    from verify.run import Case, Job

Tensor = torch.Tensor
Call = Callable[..., Tensor]
SAMPLED = 512  # every so many chunks one is sampled in multiprecision
ROWS = 256  # chunks that a GPU judges in one launch, where its memory holds them
BYTES = 40  # of a GPU's memory for each element in a launch: 32 have been seen
CONTENDERS = 64  # elements of a chunk that are ranked by themselves; a chunk with more of them is judged whole


def suits(domain: Domain, fmt: Format) -> bool:
    """Whether a domain is large enough for this module."""
    return domain.kind == "exhaustive" and fmt.bits == 32


@dataclass(frozen=True)
class Swept:
    """Tallies by truth of the scalars, formula, seconds in the kernel, and in the whole sweep once
    everything is compiled."""

    found: dict[str, Checked]
    formula: Identification
    kernel_s: float
    sweep_s: float


def sweep(case: Case, job: Job, reference: Call | None) -> Swept:
    """Judge every pattern. As `verify.run.walk`, for a domain that `suits`."""
    call = job.lowering.build(job.target)
    if torch.device(case.backend.check_device).type == "cpu":
        return _on_host(case, job, call, reference)
    return _on_gpu(case, job, call, reference)


def _on_host(case: Case, job: Job, call: Call, reference: Call | None) -> Swept:
    """The calling thread launches, on its share of the cores, while others judge. Worst cases are ranked at the end, in
    the chunks that may hold one."""
    backend, domain = case.backend, case.domain
    formulas = tuple(f for f in case.formulas if not f.rounds_once)
    judged = {truth: Judged(checker) for truth, checker in case.checkers.items()}
    outputs: list[tuple[int, int]] = []
    counted: list[tuple[int, Identification]] = []
    seconds = began = 0.0

    def launched(number: int) -> tuple[tuple[Tensor, ...], Launched]:
        inputs = domain.chunk(number, backend.check_device)
        # a user's own lowering may use a buffer again, of which this copies the output
        run_once = launch_checked if job.mine or not began else launch
        return inputs, run_once(call, inputs, backend, job.lowering.name)

    def judge(number: int, inputs: tuple[Tensor, ...], y: Tensor, eager: Tensor | None) -> None:
        for one in judged.values():
            one.add(number, inputs, y, eager)
        outputs.extend(digests(number, (), y, case.fmt).digests)
        if formulas:
            formula = Identification()
            count(formula, predict(formulas, case.fmt, domain.names, inputs, case.scalars), case.fmt, inputs, y)
            counted.append((number, formula))

    with _sharing() as share, _one_at_a_time(case.checkers.values()):
        for number in sorted(domain.chunks(), key=_apart):
            inputs, output = launched(number)
            seconds += output.seconds
            eager = None if reference is None else launch(reference, inputs, backend, "eager").output
            work = partial(judge, number, inputs, output.output, eager)
            if began:
                share(work)
            else:
                work()
                began = time.perf_counter()
    result = {}
    for truth, one in judged.items():
        with _sharing() as share, _one_at_a_time((one.checker,)):
            for place, number in enumerate(one.contenders()):
                inputs, output = launched(number)
                work = partial(one.rank, number, inputs, output.output)
                if place:
                    share(work)
                else:
                    work()  # it narrows down the others
        result[truth] = one.value
    result["exact"] += Checked(Tally(digests=tuple(sorted(outputs))))
    formula = merged(part for _, part in sorted(counted, key=lambda c: c[0]))
    _rounded_once(case, formula, result["exact"])
    return Swept(result, formula, seconds, time.perf_counter() - began)


def _apart(number: int) -> int:
    """Neighbours far apart: where results overflow, a kernel may take ten times as long and its judgement a tenth, and
    threads that wait for one another need both at a time."""
    return number * 0x9E3779B1 & 0xFFFFFFFF  # Fibonacci hashing: Knuth, TAOCP 3, 6.4


class Leaders:
    """The worst cases found so far, each of them once, and the maxima."""

    def __init__(self) -> None:
        self._worst: dict[int, Worst] = {}
        self._maxima = Tally()

    @property
    def worst(self) -> tuple[Worst, ...]:
        return tuple(sorted(self._worst.values(), key=lambda w: w.order)[:WORST])

    @property
    def floor(self) -> float:
        """No error up to this one, unless it is equal and of a lower index, is among the worst."""
        worst = self.worst
        return worst[-1].ulp if len(worst) == WORST else 0.0

    def hold(self, found: Tally) -> None:
        self._worst |= {w.index: w for w in found.worst}
        self._worst = {w.index: w for w in self.worst}
        self._maxima += Tally(max_ulp=found.max_ulp, max_scaled=found.max_scaled)

    def into(self, total: Tally) -> Tally:
        return replace(total, worst=()).merge(replace(self._maxima, worst=self.worst))


class Judged:
    """What is known of the chunks of a sweep, for one truth of the scalars. Threads may share it."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.prepare = Prepare(checker)
        self._total = Sum()
        self._uppers: list[tuple[float, int]] = []
        self._ranged: set[int] = set()
        self._exact: set[int] = set()
        self._main, self._range = Leaders(), Leaders()
        self._lock = threading.Lock()

    def add(self, number: int, inputs: tuple[Tensor, ...], y: Tensor, eager: Tensor | None) -> None:
        """Chunk `number`, without its worst cases."""
        given = self.prepare(number, inputs[0])
        start, sample = number * CHUNK, number % SAMPLED == 0
        part = self.checker.check(start, inputs, y, eager, given, floor=math.inf, sample=sample)
        exact = given is not None and given.rad is None and given.relative == given.absolute == 0
        self.settle(number, part, part.upper, exact)

    def settle(self, number: int, part: Checked, upper: float, exact: bool = False) -> None:
        """What was found of chunk `number`, without its worst cases: no error is above `upper`."""
        with self._lock:
            self._total.add(part)
            self._uppers.append((upper, number))
            if part.range.inputs:
                self._ranged.add(number)
            elif exact:
                self._exact.add(number)

    def contenders(self) -> Iterator[int]:
        """Chunks that may hold a worst case, the likeliest first; their `rank` narrows down what follows."""
        self._hold(self._total.value)
        for upper, number in sorted(self._uppers, key=lambda u: (-u[0], u[1])):
            with self._lock:
                worst, floor, other = self._main.worst, self._main.floor, self._range.floor
            if upper <= (min(floor, other) if number in self._ranged else floor):
                continue
            # an exact truth: the errors are known as floats, and equal ones of higher index are no worse
            exact = number in self._exact and len(worst) == WORST
            if not (exact and upper <= bound_of(floor) and number * CHUNK > worst[-1].index):
                yield number

    def rank(self, number: int, inputs: tuple[Tensor, ...], y: Tensor) -> None:
        """The worst cases of a chunk: multiprecision for every element that may be among the worst of all."""
        checker, given = self.checker, self.prepare(number, inputs[0])
        found = None
        if given is not None and checker.oracle.scale is None and not checker.flushing:
            rows, like = tuple(t.reshape(1, -1) for t in inputs), y.reshape(1, -1)
            outside = checker.leaves_range(rows, like) if number in self._ranged else None
            # NaNs for the elements that a tally is not about: no number exceeds any
            own = like if outside is None else like.masked_fill(outside, math.nan)
            main, range_ = self._few(number, rows, own, given, self._main), None
            if outside is not None:
                range_ = self._few(number, rows, like.masked_fill(~outside, math.nan), given, self._range)
            if main is not None and (range_ is not None or outside is None):
                found = Checked(main, range_ or Tally())
        if found is None:
            with self._lock:
                floor = min(self._main.floor, self._range.floor if number in self._ranged else math.inf)
            found = checker.check(number * CHUNK, inputs, y, None, given, floor=floor, sample=False)
        self._hold(found)

    def _few(
        self, number: int, rows: tuple[Tensor, ...], y: Tensor, given: Enclosure, leaders: Leaders
    ) -> Tally | None:
        """Worst cases among the elements that may be worse than the leaders; None where these are too many."""
        with self._lock:
            floor = leaders.floor
        index = exceeding(y, given, self.checker.fmt, floor, CONTENDERS)
        if index is None:
            return None
        if not len(index):
            return Tally()
        cut = (slice(None), index)
        keep = torch.ones_like(index, dtype=torch.bool)
        some = tuple(t[cut] for t in rows), y[cut], given.take(cut)
        return self.checker.rank(Tally(), number * CHUNK, index, *some, None, keep)

    def _hold(self, found: Checked) -> None:
        with self._lock:
            self._main.hold(found.main)
            self._range.hold(found.range)

    @property
    def value(self) -> Checked:
        total = self._total.value
        return replace(total, main=self._main.into(total.main), range=self._range.into(total.range))


@contextmanager
def _sharing() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Gives a function that has work done by another thread, or here where the others have enough of it.

    torch's own threads spin between operations on cores that the others need, so that it gets a share of the cores
    only: a power of two, for which a chunk has no remainder that a kernel's vectors would leave to other code.
    Whatever work raises is raised here, later perhaps.
    """
    cores = torch.get_num_threads()
    others = cores // 2
    torch.set_num_threads(1 << (cores - others).bit_length() - 1)
    pool = ThreadPoolExecutor(max(others, 1), initializer=torch.set_num_threads, initargs=(1,))
    pending: deque[Future[None]] = deque()

    def share(work: Callable[[], None]) -> None:
        while pending and pending[0].done():
            pending.popleft().result()
        if len(pending) < 4 * others:  # some 20 MB each
            pending.append(pool.submit(work))
        else:
            work()

    try:
        yield share
        while pending:
            pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)


@contextmanager
def _one_at_a_time(checkers: Iterable[Checker]) -> Iterator[None]:
    """Multiprecision in one thread at a time: mpmath keeps constants in plain variables, and `Exact` what it judged."""
    lock = threading.Lock()
    plain = [(checker, checker.exact) for checker in checkers]
    try:
        for checker, exact in plain:
            checker.exact = Guarded(exact, lock)  # type: ignore[assignment]
        yield
    finally:
        for checker, exact in plain:
            checker.exact = exact


@dataclass(frozen=True)
class Guarded:
    """An object whose methods wait for a lock."""

    guarded: Any
    lock: threading.Lock

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.guarded, name)

        def call(*arguments: Any) -> Any:
            with self.lock:
                return method(*arguments)

        return call


def _on_gpu(case: Case, job: Job, call: Call, reference: Call | None) -> Swept:
    from verify.native.decide_gpu import patterns  # it needs triton

    backend, domain, fmt, name = case.backend, case.domain, case.fmt, job.lowering.name
    memory = torch.get_device_module(backend.device)
    rows = rows_in(memory.mem_get_info()[0] + memory.memory_reserved() - memory.memory_allocated())
    bulks = {truth: bulk(checker, rows) for truth, checker in case.checkers.items()}
    formula, began = Identification(), 0.0
    formulas = tuple(f for f in case.formulas if not f.rounds_once)
    timers: list[Callable[[], float]] = []
    judged: dict[str, list[tuple[Tensor, ...]]] = {truth: [] for truth in bulks}
    starts = range(0, domain.size, rows * CHUNK)
    try:
        for turn, start in enumerate([0, *starts]):  # the first is judged twice: it compiles
            inputs: tuple[Tensor, ...] = (patterns(start, rows * CHUNK, backend.device),)
            if not turn:
                launch_checked(call, inputs, backend, name)
            # nothing waits for the device: it would idle while the host prepares what comes next
            y, seconds = enqueue(call, inputs, name)
            if job.mine:  # it may have used a stream of its own
                backend.synchronize()
            eager = None if reference is None else enqueue(reference, inputs, "eager")[0]
            results = {truth: one(start, y, eager) for truth, one in bulks.items()}
            if not turn:
                backend.synchronize()
                began = time.perf_counter()
                continue
            timers.append(seconds)
            for truth, result in results.items():
                judged[truth].append(result)
            if formulas:
                count(formula, predict(formulas, fmt, domain.names, inputs, case.scalars), fmt, inputs, y)
            del inputs, y, eager
        backend.synchronize()
    except torch.AcceleratorError as error:
        raise LoweringError(f"lowering {name} raised {describe(error)} on all patterns of {fmt.name}") from error
    host = {truth: [torch.cat(c, -1).cpu() for c in zip(*parts, strict=True)] for truth, parts in judged.items()}
    sweep_s = time.perf_counter() - began

    def launched(number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        inputs = domain.chunk(number, backend.check_device)
        return inputs, launch(call, inputs, backend, name).output

    found = {}
    for truth, (counts, maxima, outputs) in host.items():
        one = Judged(case.checkers[truth])
        unseen = set(FAILING)
        for number in domain.chunks():
            new = {cls for cls in unseen if int(counts[COUNTS.index(cls), number])}  # they need a witness
            unseen -= new
            if new or int(counts[COUNTS.index("open"), number]) or number % SAMPLED == 0:
                inputs, y = launched(number)
                eager = None if reference is None else launch(reference, inputs, backend, "eager").output
                one.add(number, inputs, y, eager)
            else:
                one.settle(number, _settled(number, counts, maxima), float(maxima[0, number]))
        for number in one.contenders():
            one.rank(number, *launched(number))
        found[truth] = one.value
        if truth == "exact":
            mask = (1 << 64) - 1
            digests_ = tuple((number, int(outputs[number]) & mask) for number in domain.chunks())
            found[truth] += Checked(Tally(digests=digests_))
    _rounded_once(case, formula, found["exact"])
    return Swept(found, formula, sum(timer() for timer in timers), sweep_s)


def rows_in(memory: int) -> int:
    """Chunks for one launch, a power of two, in that many bytes."""
    return max(1, min(ROWS, 1 << (memory // (CHUNK * BYTES)).bit_length() >> 1))


def _settled(number: int, counts: Tensor, maxima: Tensor) -> Checked:
    """Chunk `number` as the GPU left it, with nothing open."""
    here = slice(number, number + 1)
    tally = tally_of(Decision(counts[:, here], maxima[:, here], counts[COUNTS.index("open")]))
    ends = torch.tensor([[number * CHUNK, number * CHUNK + CHUNK - 1]])
    ends = torch.where(ends >= 1 << 31, ends - (1 << 32), ends).to(torch.int32).view(torch.float32)
    sized = replace(tally, max_ulp=float(maxima[0, number]))
    return Checked(replace(tally, binades=one_binade(ends, sized)))


class Sum:
    """A running total of chunks, merged like a binary counter: digests are copied log n times each."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Checked]] = []

    def add(self, part: Checked) -> None:
        weight = 1
        while self._parts and self._parts[-1][0] <= weight:
            other, last = self._parts.pop()
            part, weight = last + part, weight + other
        self._parts.append((weight, part))

    @property
    def value(self) -> Checked:
        total = Checked()
        for _, part in self._parts:
            total += part
        return total


class Prepare:
    """Enclosures of whole chunks of one input on the host, without special rows where none applies
    and as a constant where one covers the chunk; None where `Checker.enclose` must look closer."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        (self.name,) = checker.names
        n = Predicates()
        self._scalars = {name: n.const(v) for name, v in checker.scalars.items()}
        self._constants: dict[str | Fraction, Enclosure] = {}

    def __call__(self, number: int, x: Tensor) -> Enclosure | None:
        n, first = Predicates(), number * CHUNK
        run = n.input(first, first + CHUNK - 1, self.checker.fmt)
        for row in self.checker.oracle.rows:
            hit = row.when(n, **{self.name: run}, **self._scalars)
            if hit.every and row.gives != "either-zero":
                return self._constant(row.gives, x)
            if hit.some:
                return None
        if n.is_nan(run).some or n.is_inf(run).some or math.frexp(run.low)[1] != math.frexp(run.high)[1]:
            return None
        return self.checker.enclose((x.reshape(1, -1),), x.reshape(1, -1), plain=True)

    def _constant(self, gives: str | Fraction, x: Tensor) -> Enclosure:
        if gives not in self._constants:
            mid = torch.full((1, 1), point_of(gives), dtype=torch.float64, device=x.device).expand(1, CHUNK)
            # a NaN is certain only where there is a radius of 0
            self._constants[gives] = Enclosure(mid, torch.zeros_like(mid) if gives == "nan" else None)
        return self._constants[gives]


def bulk(checker: Checker, rows: int) -> Callable[[int, Tensor, Tensor | None], Any]:
    """A judge of `rows` chunks of an oracle without a scale: (first index, outputs, eager's outputs) ->
    counts (WIDTH, rows), maxima (2, rows), digests of the outputs (rows).

    Inductor compiles the enclosures; library functions are admitted in their compiled form. Raises
    admit.NotAdmitted.
    """
    from verify.native.decide_gpu import judge_rows  # it needs triton

    library = admit.library(checker.device, _wrapped)
    compiled = Checker(
        checker.oracle, checker.fmt, checker.names, checker.scalars, checker.device, {a.name: a.bound for a in library}
    )
    like = torch.zeros(1, 1, device=checker.device)
    plain = compiled.enclose((like,), like, plain=True)

    def enclose(start: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Midpoints, and radii, or one byte each where special rows alone change what the plain ball has."""
        step = torch.arange(CHUNK, dtype=torch.int32, device=checker.device)
        x = (start.to(torch.int32)[:, None] + step).view(torch.float32)
        found = compiled.enclose((x,), y)
        if found.rad is None:
            return (found.mid,)
        if plain.rad is not None:
            return found.mid, found.rad
        return found.mid, torch.where(torch.isnan(found.rad), 2, (found.rad == 0).to(torch.uint8)).to(torch.uint8)

    starts = torch.zeros(rows, dtype=torch.int64, device=checker.device)
    run = _compiled(enclose, starts, torch.zeros(rows, CHUNK, device=checker.device))

    def call(start: int, y: Tensor, eager: Tensor | None) -> Any:
        first = start + CHUNK * torch.arange(rows, dtype=torch.int64, device=checker.device)
        first = torch.where(first >= 1 << 31, first - (1 << 32), first)
        y, other = y.view(rows, CHUNK), None if eager is None else eager.view(rows, CHUNK)
        mid, *rad = run(first, y)
        return judge_rows(
            first, y, mid, rad[0] if rad else None, other,
            sure=plain.sure, relative=plain.relative, absolute=plain.absolute,
        )  # fmt: skip

    return call


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """How admission sees a function in the form that `bulk` uses."""

    def traced(*tensors: Tensor) -> Any:
        return _compiled(function, *tensors)(*tensors)

    return traced


def _compiled(function: Callable[..., Any], *example: Tensor) -> Callable[..., Any]:
    """Trace on fake tensors, then compile without contraction where Inductor lets one say so."""
    from torch._inductor import config

    known = config.get_config_copy()
    options: dict[str, Any] = {
        k: v for k, v in {"emulate_precision_casts": True, "compile_threads": 1}.items() if k in known
    }
    # make_fx counts the parameters of what it traces
    forms: tuple[Callable[..., Any], ...] = (
        lambda a: function(a),
        lambda a, b: function(a, b),
        lambda a, b, c: function(a, b, c),
        lambda a, b, c, d: function(a, b, c, d),
    )
    graph = make_fx(forms[len(example) - 1], tracing_mode="fake")(*example)
    compiled: Callable[..., Any] = torch.compile(graph, fullgraph=True, dynamic=False, options=options)
    return compiled


def _rounded_once(case: Case, formula: Identification, found: Checked) -> None:
    """Formulas that are the correct rounding fail exactly where the output is not correct."""
    whole = found.all
    for f in case.formulas:
        if f.rounds_once:
            formula.mismatches[f.text] = whole.misrounded
            if whole.misrounded and whole.worst:
                formula.witnesses[f.text] = whole.worst[0].inputs
