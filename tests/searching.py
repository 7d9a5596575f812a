"""Property-based search: descriptors of batches of inputs that Hypothesis draws and shrinks, and what fails on them.

Arrays of floats drawn one by one hold few distinct values. A descriptor of a few integers is drawn instead and
expanded on the device; when a batch fails, the descriptor shrinks, and the batch is bisected to one element.
Hypothesis itself (settings, profiles) is the caller's business.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from hypothesis import currently_in_test_context
from hypothesis import strategies as st
from hypothesis import target as aim

from verify.backends import Backend
from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import Kernel, Property, Scalars, is_file
from verify.inputs.domains import Domain, Stratum
from verify.inputs.draws import Bits, Draw
from verify.inputs.strata import specials
from verify.judge.cell import Stated, conclude
from verify.judge.chunk import patterns
from verify.judge.tally import Tally
from verify.lower.lowering import Lowering, Target
from verify.lower.lowerings import lowerings
from verify.reports.replays import replay_command
from verify.walk.cases import Terms, terms
from verify.walk.explain import COPIES, Element, digits, judgement, outputs_of, truth_of
from verify.walk.pointwise import Pointwise
from verify.workers.launch import launch_steady

Tensor = torch.Tensor
Tensors = tuple[Tensor, ...]
T = TypeVar("T")

#: Elements of a batch. Multiples of every vector's length, so that a lowering takes its vector loop alone; layouts
#: that slice take the other loops at any size.
SIZES = (COPIES, 8 * COPIES, 64 * COPIES)
#: The truth of float64 is double-double, run eagerly, and multiprecision.
SIZES_FLOAT64 = (COPIES, 4 * COPIES)
#: Special values replace n of this many inputs.
SHARES = 16
_SEEDS = 1 << 16


@dataclass(frozen=True)
class Descriptor:
    """A batch of inputs in a few small numbers; equal descriptors are equal batches on every device.

    case       which of the kernel's cases gives the Python scalars
    spelling   how the lowering is called, layout included
    stratum    name of a stratum of the kernel's domain
    size       elements
    specials   of 16 inputs so many are replaced by special values, each by itself
    seed       of all draws, and of the place inside the stratum
    """

    case: int
    spelling: str
    stratum: str
    size: int
    specials: int
    seed: int


@dataclass(frozen=True)
class Subject:
    """A lowering of a kernel in one dtype on one backend. What is built for it is kept, for descriptors repeat."""

    kernel: Kernel
    lowering: Lowering
    dtype: str
    backend: Backend
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def fmt(self) -> Format:
        return FORMATS[self.dtype]

    @property
    def name(self) -> str:
        return f"{self.kernel.name}-{self.lowering.name}-{self.dtype}-{self.backend.name}"

    def scalars(self, d: Descriptor) -> Scalars:
        return self.kernel.cases[d.case]

    def target(self, d: Descriptor) -> Target:
        return Target(self.kernel, self.scalars(d), d.spelling, self.dtype, self.backend)

    def call(self, d: Descriptor) -> Callable[..., Tensor]:
        return self._once(("call", d.case, d.spelling), lambda: self.lowering.build(self.target(d)))

    def case(self, d: Descriptor) -> Pointwise:
        """The case; its own domain is empty, for batches come from descriptors (`Pointwise.on`)."""
        domain = Domain("list", self.fmt, self.kernel.tensors(self.scalars(d)))
        return self._once(
            ("case", d.case), lambda: Pointwise(self.kernel, self.scalars(d), self.dtype, self.backend, domain)
        )

    def strata(self, case: int) -> dict[str, Stratum]:
        """The strata of the kernel's domain by name; `size` is only their share of a domain."""
        scalars = self.kernel.cases[case]
        made: tuple[Stratum, ...] = self._once(
            ("strata", case),
            lambda: self.kernel.domain(self.fmt, self.kernel.tensors(scalars), dict(scalars), 1 << 16),
        )
        return {stratum.name: stratum for stratum in made}

    @cached_property
    def places(self) -> tuple[tuple[int, str], ...]:
        """Every (case, spelling) in which the lowering exists."""
        return tuple(
            (k, spelling)
            for k, scalars in enumerate(self.kernel.cases)
            for spelling in self.kernel.spellings
            if self.lowering.reason(Target(self.kernel, scalars, spelling, self.dtype, self.backend)) is None
        )

    @cached_property
    def laws(self) -> tuple[tuple[int, str, Property], ...]:
        """Every law that the lowering promises, with the (case, spelling) in which it does."""
        return tuple(
            (k, spelling, law)
            for k, spelling in self.places
            for law in self.kernel.properties
            if law.suits(lowering=self.lowering.name, spelling=spelling, scalars=self.kernel.cases[k])
        )

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]  # type: ignore[no-any-return]


# Drawing and expanding


@st.composite
def descriptors(
    draw: st.DrawFn,
    subject: Subject,
    places: Sequence[tuple[int, str]] | None = None,
    sizes: Sequence[int] | None = None,
) -> Descriptor:
    """Batches for a subject, in its own places and sizes unless told otherwise; each shrinks towards the first."""
    case, spelling = draw(st.sampled_from(places or subject.places))
    default = SIZES_FLOAT64 if subject.fmt.bits == 64 else SIZES
    limit = subject.kernel.spellings[spelling].layout and 8 * COPIES  # a call for every few elements
    fitting = [size for size in sizes or default if not limit or size <= limit]
    return Descriptor(
        case,
        spelling,
        draw(st.sampled_from(tuple(subject.strata(case)))),
        draw(st.sampled_from(fitting)),
        draw(st.integers(0, SHARES)),
        draw(st.integers(0, _SEEDS - 1)),
    )


def expand(subject: Subject, d: Descriptor) -> Tensors:
    """The batch: one tensor of shape (d.size,) for each tensor input, made on the backend's device."""
    stratum = subject.strata(d.case)[d.stratum]
    names = subject.kernel.tensors(subject.scalars(d))

    def bits(draw: Draw) -> Bits:
        return tuple(_mixed(draw, k, column, d.specials) for k, column in enumerate(stratum.bits(draw)))

    # a stratum is a function of a 32-bit counter: each seed starts at a place of its own
    start = d.seed * (1 << 32) // _SEEDS
    domain = Domain("strata", subject.fmt, names, (Stratum(stratum.name, 1 << 32, bits),), d.seed)
    tensors: Tensors = domain.span(start, start + d.size, subject.backend.check_device)
    return tensors


def _mixed(draw: Draw, input_: int, column: Any, share: int) -> Any:
    """`column` with special values in `share` of SHARES places."""
    other = Draw(draw.fmt, draw.index, draw.seed, f"special {input_}")
    return other.pick(specials(draw.fmt)).where(other.integer(0, SHARES - 1) < share, column)


# Failures


@dataclass(frozen=True)
class Failure:
    """What is wrong, its kind (a word of `verify.judge.status.REASONS`), the elements, and their outputs if those were
    judged."""

    what: str
    kind: str
    inputs: Tensors
    output: Tensor | None = None


def outputs(subject: Subject, d: Descriptor, inputs: Tensors) -> Tensor:
    """What the lowering gives. Raises LoweringError where it breaks its contract."""
    return launch_steady(subject.call(d), inputs, subject.backend, subject.lowering.name, repeats=1).output.clone()


@dataclass(frozen=True)
class Judged:
    """A batch as a run judges a cell: the terms of the truth that the bound means, the tally, and the conclusion."""

    stated: Stated | None
    on: Terms
    tally: Tally
    concluded: Mapping[str, Any]

    @property
    def fails(self) -> bool:
        """Whether an element is what it may not be, and nothing accounts for it."""
        return bool(self.concluded["status"] == "exceeds-bound")


def judged(subject: Subject, d: Descriptor, inputs: Tensors, y: Tensor) -> Judged:
    """The judgement of outputs y of shape (n,) on these inputs. Raises OracleViolation."""
    case, target, mine = subject.case(d).on(inputs), subject.target(d), is_file(subject.lowering.name)
    stated, found = terms(case, target, subject.lowering, 0, "", y, user=mine)
    one = next(one for one in found.values() if one.meant)
    eager = case.eager(0, lowerings(subject.kernel)[0], target) if mine else None
    formulas = case.formulas(0, "", y)
    # those that may account for an element are asked about it; which one the batch follows is nobody's question
    asked = replace(formulas, predict=lambda index: {} if index is None else formulas.predict(index), names=())
    tally = one.judge.tally(one.elements, y, None if eager is None else eager[""], asked)
    return Judged(stated, one, tally, conclude(one.reader.regions(tally, stated)))


def first_failure(subject: Subject, d: Descriptor) -> Failure | None:
    """Judge the batch; where it fails, one element of it that does. Tells Hypothesis the error to aim at."""
    return failure_on(subject, d, expand(subject, d))


def failure_on(subject: Subject, d: Descriptor, inputs: Tensors) -> Failure | None:
    """As `first_failure`, of these inputs in the case and spelling of `d`."""
    y = outputs(subject, d, inputs)

    def of(index: Tensor) -> Judged:
        return judged(subject, d, tuple(t[index] for t in inputs), y[index])

    found = judged(subject, d, inputs, y)
    if currently_in_test_context():
        most = max((value for one in found.tally.regions.values() for value, _ in one.leaders[0]), default=0.0)
        aim(math.log2(1.0 + min(most, 2.0**1000)), label="log2(1 + ulp)")
    if not found.fails:
        return None
    one = bisect(lambda index: of(index).fails, torch.arange(y.numel(), device=y.device))
    told = of(one).concluded
    return Failure(told["reason"], told["reason_kind"], tuple(t[one] for t in inputs), y[one])


def broken_law(subject: Subject, d: Descriptor, law: Property) -> Failure | None:
    """Check a law on the batch; where it is broken, the fewest elements that do."""
    names = subject.kernel.tensors(subject.scalars(d))

    def holds(inputs: Tensors) -> bool:
        def run(**tensors: Tensor) -> Tensor:
            return outputs(subject, d, tuple(tensors[name] for name in names))

        return bool(law.check(run, dict(zip(names, inputs, strict=True))).all())

    inputs = expand(subject, d)
    if holds(inputs):
        return None

    def fails(index: Tensor) -> bool:
        return not holds(tuple(_filled(t[index], d.size) for t in inputs))

    few = bisect(fails, torch.arange(d.size, device=inputs[0].device))
    return Failure(f"the law {law.name!r} is broken", "property", tuple(t[few] for t in inputs))


def _filled(t: Tensor, size: int) -> Tensor:
    """The elements repeated to `size`: the loop that a batch takes, and nothing compiled for another shape."""
    return t.repeat(-(-size // t.numel()))[:size]


def bisect(fails: Callable[[Tensor], bool], index: Tensor) -> Tensor:
    """The fewest of `index` on which `fails` still holds: one element where it is a matter of elements.

    Delta debugging (Zeller & Hildebrandt 2002, ddmin): halves, then smaller parts and their complements, so that
    the result is minimal under leaving out any one of it.
    """
    parts = 2
    while index.numel() > 1:
        pieces = index.tensor_split(min(parts, index.numel()))
        smaller = next((piece for piece in pieces if fails(piece)), None)
        if smaller is not None:
            index, parts = smaller, 2
            continue
        rests = (torch.cat([p for j, p in enumerate(pieces) if j != k]) for k in range(len(pieces)))
        rest = next((rest for rest in rests if len(pieces) > 2 and fails(rest)), None)
        if rest is not None:
            index, parts = rest, max(parts - 1, 2)
        elif parts >= index.numel():
            break
        else:
            parts *= 2
    return index


# What a failing test says


def require(subject: Subject, d: Descriptor, failure: Failure | None) -> None:
    """Raise AssertionError with the element, its truth and the command that replays it, if there is a failure."""
    if failure is not None:
        raise AssertionError("\n".join([f"{subject.name}: {failure.what}", *_told(subject, d, failure)]))


def _told(subject: Subject, d: Descriptor, failure: Failure) -> Iterator[str]:
    fmt, names, lowering = subject.fmt, subject.kernel.tensors(subject.scalars(d)), subject.lowering
    source = ""
    for k in range(failure.inputs[0].numel()):
        inputs = tuple(t[[k]] for t in failure.inputs)
        key = tuple(patterns(t, fmt)[0] for t in inputs)
        element = Element(subject.kernel, subject.scalars(d), subject.dtype, subject.backend, key)
        again = outputs_of(element, element.case, lowering, d.spelling)
        alone = Counter(patterns(again, fmt))
        y = again[:1] if failure.output is None else failure.output[[k]]
        case = subject.case(d).on(inputs)
        told = judgement(case, subject.target(d), lowering, "", y, 0)
        truth, suffix = ("rounded", "_rounded_scalars") if told["truth"] == "rounded" else ("exact", "")
        ulp, scaled = told[f"ulp{suffix}"], told[f"scaled_ulp{suffix}"]
        error = "none" if ulp is None else f"{ulp:.6g} ulp"
        more = "" if scaled is None else f", {scaled:.6g} scaled_ulp"
        yield f"  inputs {', '.join(f'{n}={fmt.hex(p)}' for n, p in zip(names, key, strict=True))}"
        yield f"  output {told['output']}, truth {digits(truth_of(case.exact[truth], key))}"
        yield f"  error {error}{more}, class {told[f'error_class{suffix}'].replace('_', '-')}"
        yield f"  region {told['region']}, may be {told['may_be']}"
        if patterns(y, fmt)[0] not in alone:
            yield f"  alone it gives {', '.join(map(fmt.hex, alone))}: the output depends on its place in {d}"
        words = replay_command(
            subject.kernel.name,
            (subject.dtype, subject.backend.name, lowering.name, d.spelling),
            subject.scalars(d),
            [fmt.hex(p) for p in key],
        )
        yield f"  replay: {words}"
        source = told["source"]
    if source:
        yield f"  bound: {source}"
