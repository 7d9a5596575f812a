"""Exhaustive sweeps: every pattern of a float32 input, as fast as the memory allows.

On the host a chunk takes the native decision, without special rows where none applies. On a GPU
one compiled reduction judges hundreds of chunks a launch (`Bulk`); the chunks that it leaves open,
or that may hold a worst case, go through `verify.check` like any other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from verify import admit
from verify.check import Checked, Checker, digests, one_binade, point_of, tally_of
from verify.decide import COUNTS, Decision, Enclosure, decide_tensors, digest_tensors, salts
from verify.domains import CHUNK, Domain
from verify.formats import Format
from verify.identify import Identification, count, predict
from verify.launch import launch, launch_checked
from verify.tally import WORST, Tally

if TYPE_CHECKING:
    from verify.run import Case, Job

Tensor = torch.Tensor
Call = Callable[..., Tensor]
SAMPLED = 512  # every so many chunks one is sampled in multiprecision
ROWS = 256  # chunks that a GPU judges in one launch


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
    if torch.device(case.backend.device).type == "cpu":
        return _on_host(case, job, call, reference)
    return _on_gpu(case, job, call, reference)


def _on_host(case: Case, job: Job, call: Call, reference: Call | None) -> Swept:
    """One chunk after the other: judging them in threads of their own was slower, as torch's threads
    spin between operations. Worst cases are ranked at the end, in the chunks that may hold one."""
    prepare = {truth: Prepare(checker) for truth, checker in case.checkers.items()}
    found, formula, seconds = {truth: Sum() for truth in case.checkers}, Identification(), 0.0
    formulas = tuple(f for f in case.formulas if not f.rounds_once)
    uppers: dict[str, list[tuple[float, int]]] = {truth: [] for truth in case.checkers}
    began = 0.0
    for number in case.domain.chunks():
        inputs = case.domain.chunk(number, case.backend.device)
        launched = (launch if began else launch_checked)(call, inputs, case.backend, job.lowering.name)
        seconds += launched.seconds
        y = launched.output
        eager = None if reference is None else launch(reference, inputs, case.backend, "eager").output
        for truth, checker in case.checkers.items():
            given = prepare[truth](inputs[0])
            part = checker.check(number * CHUNK, inputs, y, eager, given, math.inf, number % SAMPLED == 0)
            uppers[truth].append((part.upper, number))
            found[truth].add(part)
        found["exact"].add(Checked(digests(number, (), y, case.fmt)))
        if formulas:
            expected = predict(formulas, case.fmt, case.domain.names, inputs, case.scalars)
            count(formula, expected, case.fmt, inputs, y)
        began = began or time.perf_counter()
    for truth, checker in case.checkers.items():
        redo = _again(case, job, checker, call, None)
        worst = Tally()
        for upper, number in sorted(uppers[truth], key=lambda u: (-u[0], u[1])):
            if not upper or (len(worst.worst) == WORST and upper <= worst.worst[-1].ulp):
                break
            floor = worst.worst[-1].ulp if len(worst.worst) == WORST else 0.0
            again = redo(number, floor, False).main
            worst += Tally(worst=again.worst, max_ulp=again.max_ulp, max_scaled=again.max_scaled)
        found[truth].add(Checked(worst))
    result = {truth: total.value for truth, total in found.items()}
    _rounded_once(case, formula, result["exact"])
    return Swept(result, formula, seconds, time.perf_counter() - began)


def _on_gpu(case: Case, job: Job, call: Call, reference: Call | None) -> Swept:
    backend, domain, fmt = case.backend, case.domain, case.fmt
    bulks = {truth: bulk(checker, reference is not None) for truth, checker in case.checkers.items()}
    formula, seconds, began = Identification(), 0.0, 0.0
    formulas = [f for f in case.formulas if not f.rounds_once]
    judged: dict[str, list[tuple[Tensor, ...]]] = {truth: [] for truth in bulks}
    starts = range(0, domain.size, ROWS * CHUNK)
    for turn, start in enumerate([0, *starts]):  # the first is judged twice: it compiles
        inputs = domain.span(start, start + ROWS * CHUNK, backend.device)
        launched = (launch if turn else launch_checked)(call, inputs, backend, job.lowering.name)
        eager = None if reference is None else launch(reference, inputs, backend, "eager").output
        results = {truth: one(start, launched.output, eager) for truth, one in bulks.items()}
        if not turn:
            backend.synchronize()
            began = time.perf_counter()
            continue
        seconds += launched.seconds
        for truth, result in results.items():
            judged[truth].append(result)
        if formulas:
            expected = predict(tuple(formulas), fmt, domain.names, inputs, case.scalars)
            count(formula, expected, fmt, inputs, launched.output)
        del inputs, launched, eager
    host = {truth: [torch.cat(c, -1).cpu() for c in zip(*parts, strict=True)] for truth, parts in judged.items()}
    backend.synchronize()
    sweep_s = time.perf_counter() - began
    found = {}
    for truth, (counts, maxima, outputs) in host.items():
        redo = _again(case, job, case.checkers[truth], call, reference)
        found[truth] = _assemble(domain, case.checkers[truth], counts, maxima, outputs, redo, truth == "exact")
    _rounded_once(case, formula, found["exact"])
    return Swept(found, formula, seconds, sweep_s)


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
        self._look = _compiled(self._flags, torch.zeros(CHUNK, dtype=torch.float32))
        self._constants: dict[str | Fraction, Enclosure] = {}

    def __call__(self, x: Tensor) -> Enclosure | None:
        finite, *hits = self._look(x).tolist()
        for row, (some, whole) in zip(self.checker.oracle.rows, zip(hits[::2], hits[1::2], strict=True), strict=True):
            if whole and row.gives != "either-zero":
                return self._constant(row.gives, x)
            if some:
                return None
        if not finite:
            return None
        return self.checker.enclose((x.reshape(1, -1),), x.reshape(1, -1), plain=True)

    def _flags(self, x: Tensor) -> Tensor:
        """Whether all are finite; for each row whether some, and whether all, take it."""
        n = self.checker.ball
        values = {self.name: n.input(x)} | {name: n.const(v) for name, v in self.checker.scalars.items()}
        flags, free = [torch.isfinite(x).all()], torch.ones_like(x, dtype=torch.bool)
        for row in self.checker.oracle.rows:
            hit = free & row.when(n, **values)
            free = free & ~hit
            flags += [hit.any(), hit.all()]
        return torch.stack(flags)

    def _constant(self, gives: str | Fraction, x: Tensor) -> Enclosure:
        if gives not in self._constants:
            mid = torch.full((1, CHUNK), point_of(gives), dtype=torch.float64, device=x.device)
            # without a radius tensor the native decision need not read one; a NaN must be certain
            self._constants[gives] = Enclosure(mid, torch.zeros_like(mid) if gives == "nan" else None)
        return self._constants[gives]


def bulk(checker: Checker, with_eager: bool, rows: int = ROWS) -> Callable[[int, Tensor, Tensor | None], Any]:
    """A compiled judge of `rows` chunks: (first index, outputs, eager's outputs) -> counts (WIDTH, rows),
    maxima (2, rows), digests of the outputs (rows).

    Library functions are admitted in their compiled form. Raises admit.NotAdmitted.
    """
    library = admit.library(checker.device, _wrapped)
    compiled = Checker(
        checker.oracle, checker.fmt, checker.names, checker.scalars, checker.device, {a.name: a.bound for a in library}
    )
    fmt = checker.fmt

    def judge(start: Tensor, salt: Tensor, y: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        eager = rest[0] if with_eager else None
        step = torch.arange(CHUNK, dtype=torch.int32, device=checker.device)
        x = (start.to(torch.int32)[:, None] + step).view(torch.float32)
        bits = x.view(torch.int32)
        magnitude = bits & 0x7FFFFFFF
        subnormal = (magnitude > 0) & (magnitude < 1 << fmt.mantissa_bits)
        found = compiled.enclose((x,), y)
        d = decide_tensors(y, found, fmt, eager=eager, scale=compiled.scales((x,), y), subnormal=subnormal)
        return d.counts, d.maxima, digest_tensors(y.view(torch.int32), fmt, salt)

    # an input, since Inductor folds its multiplications into index arithmetic that overflows 64 bits
    salt = salts(CHUNK, 0, checker.device)
    example = [torch.zeros(rows, dtype=torch.int64, device=checker.device), salt]
    example += [torch.zeros(rows, CHUNK, device=checker.device) for _ in range(1 + with_eager)]
    run = _compiled(judge, *example)

    def call(start: int, y: Tensor, eager: Tensor | None) -> Any:
        first = start + CHUNK * torch.arange(rows, dtype=torch.int64, device=checker.device)
        first = torch.where(first >= 1 << 31, first - (1 << 32), first)
        shaped = [t.view(rows, CHUNK) for t in (y, eager) if t is not None]
        return run(first, salt, *shaped)

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


def _again(
    case: Case, job: Job, checker: Checker, call: Call, reference: Call | None
) -> Callable[[int, float, bool], Checked]:
    """Judge one chunk by itself, as `verify.run.walk` does."""

    def redo(number: int, floor: float, sample: bool) -> Checked:
        inputs = case.domain.chunk(number, case.backend.device)
        y = launch(call, inputs, case.backend, job.lowering.name).output
        eager = None if reference is None else launch(reference, inputs, case.backend, "eager").output
        return checker.check(number * CHUNK, inputs, y, eager, floor=floor, sample=sample)

    return redo


def _assemble(
    domain: Domain, checker: Checker, counts: Tensor, maxima: Tensor, outputs: Tensor,
    redo: Callable[[int, float, bool], Checked], digested: bool,
) -> Checked:  # fmt: skip
    """Chunks that are settled as they are, and those that have to be judged again."""
    open_ = counts[COUNTS.index("open")]
    again = {n for n in domain.chunks() if int(open_[n]) or n % SAMPLED == 0}
    worst = Tally()
    total = Sum()
    for number in sorted(again):
        part = redo(number, 0.0, number % SAMPLED == 0)
        worst = worst.merge(Tally(worst=part.main.worst))
        total.add(part)
    for number in maxima[0].argsort(descending=True).tolist():
        if number in again:
            continue
        if len(worst.worst) == WORST and float(maxima[0, number]) <= worst.worst[-1].ulp:
            break
        part = redo(number, 0.0, False)
        again.add(number)
        worst = worst.merge(Tally(worst=part.main.worst))
        total.add(part)
    for number in domain.chunks():
        if number in again:
            continue
        tally = tally_of(Decision(counts[:, number : number + 1], maxima[:, number : number + 1], open_))
        ends = torch.tensor([[number * CHUNK, number * CHUNK + CHUNK - 1]])
        ends = torch.where(ends >= 1 << 31, ends - (1 << 32), ends).to(torch.int32).view(torch.float32)
        sized = replace(tally, max_ulp=float(maxima[0, number]))
        total.add(Checked(replace(tally, binades=one_binade(ends, sized))))
    if digested:
        mask = (1 << 64) - 1
        for number in domain.chunks():
            total.add(Checked(Tally(digests=((number, int(outputs[number]) & mask),))))
    return total.value


def _rounded_once(case: Case, formula: Identification, found: Checked) -> None:
    """Formulas that are the correct rounding fail exactly where the output is not correct."""
    whole = found.all
    for f in case.formulas:
        if f.rounds_once:
            formula.mismatches[f.text] = whole.misrounded
            if whole.misrounded and whole.worst:
                formula.witnesses[f.text] = whole.worst[0].inputs
