"""Property-based search: descriptors of batches of inputs that Hypothesis draws and shrinks, and what fails on them.

Arrays of floats drawn one by one hold few distinct values. A descriptor of a few integers is drawn instead and
expanded on the device; when a batch fails, the descriptor shrinks, and the batch is bisected to one element.
Hypothesis itself (settings, profiles) is the caller's business.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from hypothesis import currently_in_test_context
from hypothesis import strategies as st
from hypothesis import target as aim

from verify import ledger
from verify.backends import Backend
from verify.cells import status_of
from verify.check import Checked, Checker, pattern
from verify.domains import Domain, Stratum
from verify.draws import Bits, Draw
from verify.exact import finite
from verify.explain import COPIES, Element, digits, outputs_of, truth_of
from verify.formats import FORMATS, Format
from verify.kernel import Bound, Kernel, Property, Scalars
from verify.launch import launch
from verify.lowerings import Lowering, Target
from verify.reports.rows import replay_command
from verify.run import Case
from verify.strata import specials

Tensor = torch.Tensor
Tensors = tuple[Tensor, ...]
T = TypeVar("T")

#: Elements of a batch. Multiples of every vector's length, so that a lowering takes its vector loop alone; layouts
#: that slice take the other loops at any size.
SIZES = (COPIES, 8 * COPIES, 64 * COPIES)
#: The truth of float64 is multiprecision, element by element.
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

    def case(self, d: Descriptor) -> Case:
        """Checkers of the case; its own domain is empty, for batches come from descriptors."""
        names = self.kernel.tensors(self.scalars(d))
        return self._once(
            ("case", d.case),
            lambda: Case(self.kernel, self.scalars(d), self.dtype, self.backend, Domain("list", self.fmt, names)),
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
    """What is wrong, its kinds (the ledger's, or 'property'), the elements, and their outputs if those were judged."""

    what: str
    kinds: tuple[str, ...]
    inputs: Tensors
    output: Tensor | None = None


def outputs(subject: Subject, d: Descriptor, inputs: Tensors) -> Tensor:
    """What the lowering gives. Raises LoweringError where it breaks its contract."""
    return launch(subject.call(d), inputs, subject.backend, subject.lowering.name).output.clone()


def bound_of(subject: Subject, d: Descriptor) -> Bound | None:
    return subject.kernel.bound(
        lowering=subject.lowering.name,
        backend=subject.backend.name,
        spelling=d.spelling,
        dtype=subject.dtype,
        scalars=subject.scalars(d),
    )


_places = itertools.count()


def checker_of(subject: Subject, d: Descriptor) -> Checker:
    """The checker against the truth that the bound means."""
    checkers, bound = subject.case(d).checkers, bound_of(subject, d)
    return checkers.get(bound.truth if bound else "exact", checkers["exact"])


def checked(subject: Subject, d: Descriptor, inputs: Tensors, y: Tensor) -> Checked:
    """The tally of outputs against that truth. Raises OracleViolation."""
    # a checker keeps facts of the chunk that it saw last, by its place
    return checker_of(subject, d).check(next(_places) << 20, inputs, y, None)


def judge(subject: Subject, d: Descriptor, found: Checked) -> tuple[str, tuple[str, ...]]:
    """What fails of bound, classes and undecided count, and the kinds; empty where the ledger excuses all of it."""
    status, reason, kinds = status_of(found, bound_of(subject, d), subject.lowering.ftz(subject.target(d)))
    return ("", ()) if status == "passed" or _excused(subject, d, kinds) else (reason, kinds)


def first_failure(subject: Subject, d: Descriptor) -> Failure | None:
    """Judge the batch; where it fails, one element of it that does. Tells Hypothesis the error to aim at."""
    return failure_on(subject, d, expand(subject, d))


def failure_on(subject: Subject, d: Descriptor, inputs: Tensors) -> Failure | None:
    """As `first_failure`, of these inputs in the case and spelling of `d`."""
    y = outputs(subject, d, inputs)

    def judged(index: Tensor) -> tuple[str, tuple[str, ...]]:
        return judge(subject, d, checked(subject, d, tuple(t[index] for t in inputs), y[index]))

    found = checked(subject, d, inputs, y)
    if currently_in_test_context():
        aim(math.log2(1.0 + min(found.all.max_ulp, 2.0**1000)), label="log2(1 + ulp)")
    if not judge(subject, d, found)[1]:
        return None
    one = bisect(lambda index: bool(judged(index)[1]), torch.arange(y.numel(), device=y.device))
    return Failure(*judged(one), tuple(t[one] for t in inputs), y[one])


def broken_law(subject: Subject, d: Descriptor, law: Property) -> Failure | None:
    """Check a law on the batch; where it is broken, and the ledger does not excuse it, the fewest elements that do."""
    names = subject.kernel.tensors(subject.scalars(d))

    def holds(inputs: Tensors) -> bool:
        def run(**tensors: Tensor) -> Tensor:
            return outputs(subject, d, tuple(tensors[name] for name in names))

        return bool(law.check(run, dict(zip(names, inputs, strict=True))).all())

    inputs = expand(subject, d)
    if holds(inputs) or _excused(subject, d, ("property",)):
        return None

    def fails(index: Tensor) -> bool:
        return not holds(tuple(_filled(t[index], d.size) for t in inputs))

    few = bisect(fails, torch.arange(d.size, device=inputs[0].device))
    return Failure(f"the law {law.name!r} is broken", ("property",), tuple(t[few] for t in inputs))


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


def _excused(subject: Subject, d: Descriptor, kinds: tuple[str, ...]) -> bool:
    """Whether the ledger expects all of them."""
    known = ledger.excuse(
        subject.backend.name, kinds, lowering=subject.lowering.name, kernel=subject.kernel.name, dtype=subject.dtype,
        spelling=d.spelling,
    )  # fmt: skip
    return known is not None


# What a failing test says


def require(subject: Subject, d: Descriptor, failure: Failure | None) -> None:
    """Raise AssertionError with the element, its truth and the command that replays it, if there is a failure."""
    if failure is not None:
        raise AssertionError("\n".join([f"{subject.name}: {failure.what}", *_told(subject, d, failure)]))


def _told(subject: Subject, d: Descriptor, failure: Failure) -> Iterator[str]:
    fmt, names = subject.fmt, subject.kernel.tensors(subject.scalars(d))
    bound = bound_of(subject, d)
    for k in range(failure.inputs[0].numel()):
        patterns = tuple(pattern(t[k], fmt) for t in failure.inputs)
        element = Element(subject.kernel, subject.scalars(d), subject.dtype, subject.backend, patterns)
        again = outputs_of(element, subject.lowering, d.spelling)
        bits = again.most_common(1)[0][0] if failure.output is None else pattern(failure.output[k], fmt)
        exact = checker_of(subject, d).exact
        _, verdict = exact.verdict(patterns, bits)
        error = "none" if verdict is None or verdict.high is None else f"{finite(verdict.high):.6g} ulp"
        scaled = "" if verdict is None or verdict.scaled is None else f", {finite(verdict.scaled):.6g} scaled_ulp"
        yield f"  inputs {', '.join(f'{n}={fmt.hex(p)}' for n, p in zip(names, patterns, strict=True))}"
        yield f"  output {fmt.hex(bits)}, truth {digits(truth_of(exact, patterns))}"
        yield f"  error {error}{scaled}, class {'undecided' if verdict is None else verdict.cls.replace('_', '-')}"
        if bits not in again:
            yield f"  alone it gives {', '.join(map(fmt.hex, again))}: the output depends on its place in {d}"
        words = replay_command(
            subject.kernel.name,
            (subject.dtype, subject.backend.name, subject.lowering.name, d.spelling),
            subject.scalars(d),
            [fmt.hex(p) for p in patterns],
        )
        yield f"  replay: {words}"
    if bound is not None:
        yield f"  bound {bound.value:g} {bound.metric}, truth of {bound.truth} scalars: {bound.source}"
