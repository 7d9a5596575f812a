"""Cases: what one walk judges. Inputs in portions, what is known about each element, and how far a lowering may be off.

`Pointwise` is an elementwise kernel with its Python scalars on a domain; `Instance` one problem of a composite kernel.
The walk (`verify.walk.walk`) knows them by `Case` alone.
"""

from __future__ import annotations

import copy
import fnmatch
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import torch

from verify import backends
from verify.backends import Backend, judged_on
from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import Composite, Kernel, Scalars, Setting, UsageError, facts_of, suggest, told_apart
from verify.facts.oracle import Formula
from verify.facts.truth import Truth
from verify.families.composite import KEPT, Limit, Part, Problem, Source
from verify.families.elementwise import Chunk, Elementwise, Patterns, judgement, plain_judgement
from verify.families.level import Level, levels
from verify.inputs.domains import CHUNK, LONG_CHUNK, Domain
from verify.inputs.draws import spread
from verify.judge import fused, ledger
from verify.judge.cell import Reader, Stated
from verify.judge.chunk import Engine, Excuse, Formulas, Judge, differing, digests
from verify.judge.chunk import Source as Elements
from verify.judge.element import Facts, Judged, Limits
from verify.judge.exact import Allowed, Circumstances, Exact, Key, room
from verify.judge.identify import Identification, candidates, identify, predict, predictor, probing
from verify.judge.reduce import Reduced, joined
from verify.judge.regions import REGIONS
from verify.judge.status import FAILURES
from verify.judge.tally import Fit, Tally, root
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.lower.pytorch import EAGER
from verify.numbers import NotAdmitted, admit
from verify.numbers.decide import WORDS, Enclosure
from verify.numbers.decide import digests as of_chunks
from verify.numbers.ieee import HOST
from verify.workers.launch import Given, LoweringError, Origin, Outputs, launch_steady, octets

Tensor = torch.Tensor
#: Names of the kinds of data of a problem, and which of them each element of an output is of (int64, flat).
Strata = tuple[tuple[str, ...], Tensor]
SAMPLE = 32  # elements of a cell that multiprecision judges again, whatever the tensors say
SAMPLE_FLOAT64 = 256  # elements of a composite kernel's float64 output that are judged, each in multiprecision
OF_CALLS = 16  # the same of one of many calls
TELLING = 2  # of those that are certainly beyond their bound, where one tells the status
MOST = 1 << 30  # elements of a sweep that a GPU is given at a time
HOST_MOST = 4  # portions of a sweep that the host is given at a time; what is larger is mapped anew each time
ROOM_EACH = 32  # bytes of a GPU's memory for each of them: inputs, outputs, their copies and tables
RANGES = 256  # into which at most a sweep is divided: what is in flight is lost where a run is killed
LEAST = 1 << 24  # elements of a range, a second on a core: a record on the disk takes some milliseconds
FEWEST = 4  # portions of a range at least, whose open elements are judged together
KEPT_PORTIONS = 4  # of a domain of so many what was drawn, launched and judged is kept for the next lowering
LONGEST = 1 << 26  # elements of a domain of which it is kept, however many portions they are
#: Elements of a call's float64 output up to which double-double looks for those beyond their bounds, else float64, and
#: those in whole rows that double-double looks at then, about; of those that it leaves open as many go to
#: multiprecision, and OF_CALLS of more.
SCREENED, DRAWN, MOST_DOUBTED = 1 << 14, 1 << 12, 64
#: Elements up to which the host judges them sooner than a GPU that other jobs wait for: of a domain, of which one of
#: float64 takes as long as sixteen, or of a problem's inputs, a step.
SMALL = 1 << 18
LONG = 1 << 12  # of rows beyond this one element a cell is judged again


class Case(Protocol):
    """What a walk needs to know. Portions are numbered from 0; outputs are flat tensors."""

    @property
    def backend(self) -> Backend: ...

    @property
    def device(self) -> str:
        """Where it is judged: the backend's place for that, or the host."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """Outputs that exist, '' where there is one."""
        ...

    @property
    def trusted(self) -> tuple[admit.Admitted, ...]:
        """The library functions that the enclosures rest on."""
        ...

    def portions(self) -> range: ...

    def given(self, number: int) -> Given:
        """The arguments of a lowering's call."""
        ...

    def origin(self, number: int) -> Origin | None:
        """Where the arguments can be had again; None where copies are to be kept."""
        ...

    def eager(self, number: int, lowering: Lowering, target: Target) -> Outputs | None:
        """The reference lowering's outputs; None where it does not run."""
        ...

    def stated(self, target: Target, lowering: Lowering, output: str, y: Tensor) -> Stated | None:
        """The bound of the lowering's output y."""
        ...

    def sources(self, number: int, output: str, y: Tensor) -> Mapping[str, Elements]:
        """The elements by truth of the scalars, 'exact' first. After `stated`."""
        ...

    def formulas(self, number: int, output: str, y: Tensor) -> Formulas: ...

    def strata(self, output: str, y: Tensor) -> Strata | None:
        """The kinds of data that elements depend on. At least one must resolve; None where none has to."""
        ...

    def identified(self, fits: Mapping[str, Fit]) -> Identification:
        """The formula that remains after the fits of a whole walk."""
        ...

    def engine(self, number: int, output: str, truth: str) -> Engine | None:
        """The fused pass, where there is one."""
        ...

    def excuses(self, number: int, output: str, entries: Sequence[ledger.Deviation]) -> tuple[Excuse, ...]:
        """The ledger's entries as the judge asks them."""
        ...

    def sampled(self, number: int, output: str, y: Tensor) -> Tensor:
        """Places of the elements to be judged again in multiprecision."""
        ...

    def known(self, number: int, asked: tuple[Any, ...], y: Tensor, eager: Tensor | None) -> Tally | None:
        """The tally of equal bits that were judged before, beside equal bits of eager's, where what was asked is the
        same."""
        ...

    def learn(self, number: int, asked: tuple[Any, ...], y: Tensor, eager: Tensor | None, tally: Tally) -> None: ...

    def digests(self, number: int, output: str, y: Tensor) -> Tally: ...

    def domain(self, inputs: int, tally: Tally) -> dict[str, Any]:
        """The record of the domain; `inputs`: how many of its elements were judged."""
        ...


@dataclass(frozen=True)
class Terms:
    """How an output of a lowering is judged against one truth of the scalars: its elements, the judge that knows what
    they may be, and the reader of the tallies that it makes. meant: whether the bound means this truth."""

    elements: Elements
    judge: Judge
    reader: Reader
    meant: bool


def terms(
    case: Case, target: Target, lowering: Lowering, number: int, output: str, y: Tensor, *, user: bool = False
) -> tuple[Stated | None, dict[str, Terms]]:
    """The bound of the outputs y of a portion, and the terms by truth of the scalars.

    Bound and ledger belong to the truth that the bound means. user: the lowering is of a user's own file, which may
    keep its bound of either.
    """
    stated = case.stated(target, lowering, output, y)
    fmt, ftz = format_of(y), lowering.ftz(target)
    entries = ledger.known(
        target.backend.name, lowering=EAGER.name if user else lowering.name, kernel=target.kernel.name,
        dtype=target.dtype, spelling=target.spelling, output=output,
    )  # fmt: skip
    excuses, sources, found = case.excuses(number, output, entries), case.sources(number, output, y), {}
    for truth, elements in sources.items():
        limits, meant = limited(stated, truth, sources, ftz, user)
        reader = Reader(
            elements.exact, fmt, limits, scale=elements.scaled, allowed=elements.allowed, place=elements.place,
            inputs=elements.inputs_of,
        )  # fmt: skip
        judge = Judge(fmt, limits, excuses if meant or user else (), user)
        found[truth] = Terms(elements, judge, reader, meant)
    return stated, found


def limited(
    stated: Stated | None, truth: str, truths: Container[str], ftz: bool, user: bool
) -> tuple[Limits, bool]:  # fmt: skip
    """The limits of elements judged against one truth of the scalars, and whether the bound means this truth."""
    # scalars that the dtype represents have one truth, whichever the bound names
    meant = truth == (stated.truth if stated and stated.truth in truths else "exact")
    held = stated is not None and (meant or user)
    return Limits.of(stated.metric, stated.value, ftz) if held and stated else Limits(ftz=float(ftz)), meant


# Elementwise kernels.

#: Elements on the host for which double-double is worth a compilation.
WORTH = 1 << 14
#: Fused passes by oracle, dtype and scalars, with the oracle, so that its identity stays its own.
_ENGINES: dict[tuple[Any, ...], tuple[Any, Callable[..., Reduced] | None]] = {}


@dataclass(frozen=True)
class _Passes:
    """The fused passes over a portion of a case (`verify.judge.chunk.Engine`).

    A lowering that is compared with none is compared with itself: one compilation serves both.
    """

    case: Pointwise
    number: int
    truth: str
    judge: Callable[..., Reduced]

    def __call__(
        self, y: Tensor, eager: Tensor | None, parameters: tuple[float, ...],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Reduced:  # fmt: skip
        more = {} if y.is_cpu else {"meanwhile": meanwhile}
        given, start, parts, done = self.case.given(self.number), self.number * self.case.portion, [], 0

        def judged(low: int, high: int) -> None:
            if low < high:
                part, other = tuple(t[low:high] for t in given), y if eager is None else eager
                reduced = self.judge(part, y[low:high], other[low:high], parameters, start=start + low, **more)
                parts.append((low, reduced))

        for level in self.case.levels(self.truth):
            low, high = max(level.start - start, done), min(level.stop - start, len(y))
            if low >= high:
                continue
            if all(level.holds(t[low:high], Limits(*parameters)) for t in (y, eager) if t is not None):
                judged(done, low)
                parts.append((low, replace(level, start=start + low, stop=start + high).reduced()))
                done = high
        judged(done, len(y))
        return joined(parts) if len(parts) > 1 else parts[0][1]

    def finer(
        self, index: Tensor, y: Tensor, eager: Tensor | None, parameters: tuple[float, ...]
    ) -> tuple[Reduced, Judged] | None:  # fmt: skip
        if not index.is_cpu or len(index) < WORTH:
            return None
        made = self.case._fused(self.truth, double=True)
        if made is None:
            return None
        judge, each = made
        inputs = tuple(t[index] for t in self.case.given(self.number))
        return judge(inputs, y, y if eager is None else eager, parameters), each(inputs, y, parameters)


@dataclass(frozen=True)
class _Ordered:
    """The inputs of a portion of a sweep (`verify.workers.launch.Origin`)."""

    case: Pointwise
    number: int

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        return self.case.inputs.holds(self.number * self.case.portion, tensors)

    def made_again(self) -> Sequence[Tensor]:
        return self.case.given(self.number, again=True)


def truths_of(scalars: Scalars, fmt: Format) -> Mapping[str, Scalars]:
    """The scalars that a truth may be of: as they are, and rounded to the dtype where that is another number."""
    rounded = {name: fmt.to_float(fmt.round_float(value)) for name, value in scalars.items()}
    # one that overflows the dtype has no rounded truth
    both = rounded != scalars and all(map(math.isfinite, rounded.values()))
    return {"exact": scalars, **({"rounded": rounded} if both else {})}


class Pointwise:
    """One elementwise kernel with its Python scalars, dtype, backend and domain.

    moved: inputs of a GPU are made on the host, and outputs judged there, where they are few. Not for a user's own
    function, whose other calls are of tensors that lie on its device.
    """

    outputs: tuple[str, ...] = ("",)

    def __init__(
        self, facts: Kernel, scalars: Scalars, dtype: str, backend: Backend, domain: Domain, *, moved: bool = False
    ) -> None:  # fmt: skip
        self.kernel, self.scalars, self.dtype, self.backend, self.inputs = facts, dict(scalars), dtype, backend, domain
        self.fmt = FORMATS[dtype]
        self.few = domain.size << 4 * (self.fmt.bits == 64) <= SMALL
        self.device = "cpu" if self.few and moved else backend.check_device  # where inputs are made and outputs judged
        self.truths = truths_of(self.scalars, self.fmt)
        self.patterns = {
            truth: Patterns(facts.oracle, self.fmt, domain.names, values) for truth, values in self.truths.items()
        }
        self.exact = {truth: Exact(one, self.fmt) for truth, one in self.patterns.items()}
        self.candidates: tuple[Formula, ...] = candidates(facts.oracle, self.scalars, self.fmt)
        self._kept: dict[Any, Any] = {}
        self._built: tuple[tuple[str, str], Callable[..., Any]] | None = None
        self._judged: dict[int, list[tuple[tuple[Any, ...], list[Tensor], Tally]]] = {}
        self._places: Tensor | None = None
        self._levels: dict[str, tuple[Level, ...]] = {}

    @cached_property
    def about(self) -> Mapping[str, Elementwise]:
        """By truth of the scalars; on the device, which need not be there where tallies are only read."""
        device, of = self.device, (self.kernel.oracle, self.fmt, self.inputs.names)
        bounds = admit.Bounds(device)
        return {truth: Elementwise(*of, values, device, bounds) for truth, values in self.truths.items()}

    def built(self, lowering: Lowering, target: Target) -> Callable[..., Any]:
        """The lowering's callable, kept for the next range of a sweep."""
        key = lowering.name, target.spelling
        if self._built is None or self._built[0] != key:
            self._built = key, lowering.build(target)
        return self._built[1]

    def levels(self, truth: str) -> tuple[Level, ...]:
        """Ranges of a sweep whose truth is nearly one number each; none where formulas are looked for."""
        if self.inputs.kind != "exhaustive" or not self.swept or self.candidates:
            return ()
        if truth not in self._levels:
            self._levels[truth] = levels(self.patterns[truth])
        return self._levels[truth]

    def readers(self, stated: Stated | None, *, ftz: bool, user: bool) -> dict[str, Reader]:
        """Readers of tallies of any of its elements, by truth of the scalars."""
        return {
            truth: Reader(
                self.exact[truth], self.fmt, limited(stated, truth, self.truths, ftz, user)[0],
                scale=one.oracle.scale is not None, place=one.place, inputs=one.inputs_of,
            )
            for truth, one in self.patterns.items()
        }  # fmt: skip

    def on(self, inputs: Sequence[Tensor], places: Tensor | None = None) -> Pointwise:
        """The same case on other elements: tensors of shape (n,), at most CHUNK elements. places: the number of each in
        the domain."""
        other = copy.copy(self)
        other.inputs, other._kept = Domain("list", self.fmt, self.inputs.names), {("inputs", 0): tuple(inputs)}
        other._places = places
        return other

    def there(self, device: str) -> Pointwise:
        """The same case with elements that lie, and are judged, on that device."""
        if device == self.device:
            return self
        other = copy.copy(self)
        other.device = device
        other.__dict__.pop("about", None)
        return other

    def serves(self, facts: Kernel, scalars: Scalars, dtype: str, backend: Backend, domain: Domain) -> bool:
        """Whether a job with these facts is one of this case."""
        of = self.kernel.name, told_apart(self.scalars), self.dtype, self.backend.name
        mine = (*of, self.inputs.kind, self.inputs.size)
        return mine == (facts.name, told_apart(scalars), dtype, backend.name, domain.kind, domain.size)

    @cached_property
    def trusted(self) -> tuple[admit.Admitted, ...]:
        """Of the library those that its enclosures ask for, of whatever element and in whatever stage."""
        if self.fmt.bits == 64:
            return ()
        bounds = admit.Bounds(HOST)
        about = Elementwise(self.kernel.oracle, self.fmt, self.inputs.names, self.scalars, HOST, bounds)
        one = tuple(torch.ones(1, dtype=getattr(torch, self.dtype)) for _ in self.inputs.names)
        for double in (False, True):
            about.facts(one, one[0], double=double, zeroed=True)
        return admit.library(self.device, names=sorted(bounds.asked))

    def portions(self) -> range:
        return range(-(-self.inputs.size // self.portion))

    @property
    def swept(self) -> bool:
        """Whether there are too many portions, or too large ones, to keep their results."""
        return len(self.portions()) > KEPT_PORTIONS or self.inputs.size > LONGEST

    @cached_property
    def portion(self) -> int:
        """Elements that are launched and judged at a time: of every pattern more, on a GPU as many as its memory has
        room for, since each portion costs the host some milliseconds."""
        if self.inputs.kind != "exhaustive":
            return self.backend.portion
        if torch.device(self.backend.check_device).type == "cpu":
            return unit_of(self.backend)
        count = backends.room(self.backend.check_device) // ROOM_EACH
        return max(self.backend.portion, min(MOST, 1 << count.bit_length() - 1))

    def given(self, number: int, *, again: bool = False) -> tuple[Tensor, ...]:
        """again: made anew, and kept instead of those that were."""
        if again:
            self._kept.pop(("inputs", number), None)
        start = number * self.portion
        stop = min(start + self.portion, self.inputs.size)
        kept: tuple[Tensor, ...] = self._once(("inputs", number), lambda: self.inputs.span(start, stop, self.device))
        return kept

    def origin(self, number: int) -> _Ordered | None:
        return _Ordered(self, number) if self.swept and self.inputs.kind == "exhaustive" else None

    def eager(self, number: int, lowering: Lowering, target: Target) -> Outputs | None:
        if lowering.reason(target):
            return None

        def run() -> Outputs:
            call, given, origin = lowering.build(target), self.given(number), self.origin(number)
            return launch_steady(call, given, self.backend, lowering.name, repeats=1, origin=origin).results[0]

        try:
            kept: Outputs = self._once(("eager", number, target.spelling), run)
        except (LoweringError, NotLowered):
            return None
        return kept

    def stated(self, target: Target, lowering: Lowering, output: str, y: Tensor) -> Stated | None:
        bound = target.kernel.bound(
            lowering=lowering.name, backend=facts_of(target.backend.name), spelling=target.spelling, dtype=target.dtype,
            scalars=target.scalars,
        )  # fmt: skip
        return None if bound is None else Stated(bound.value, bound.metric, bound.source, bound.truth)

    def sources(self, number: int, output: str, y: Tensor) -> dict[str, Elements]:
        inputs = self.given(number)
        return {
            truth: Chunk(about, self.exact[truth], inputs, number * self.portion, self._places)
            for truth, about in self.about.items()
        }

    def formulas(self, number: int, output: str, y: Tensor) -> Formulas:
        def predicted(index: Tensor | None) -> Mapping[str, Tensor]:
            if index is None:
                kept: Mapping[str, Tensor] = self._once(("formulas", number), lambda: self._predict(self.given(number)))
                return kept
            return self._predict(tuple(t[index] for t in self.given(number)))

        names = tuple(f.text for f in self.candidates)
        return Formulas(predicted, frozenset(f.text for f in self.candidates if f.admissible), names)

    def _predict(self, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return predict(self.candidates, self.fmt, self.inputs.names, inputs, self.scalars)

    def identified(self, fits: Mapping[str, Fit]) -> Identification:
        if self.inputs.kind == "exhaustive":
            return identify(fits, lambda texts: ())
        return identify(fits, probing(self.candidates, self.fmt, self.inputs.names, self.scalars, self.device))

    def strata(self, output: str, y: Tensor) -> None:
        """Each element depends on its own inputs, and its bound is a few of its own ULPs."""

    def engine(self, number: int, output: str, truth: str) -> Engine | None:
        judge = self._fused(truth, double=False)
        return None if judge is None else _Passes(self, number, truth, judge)

    def _fused(self, truth: str, *, double: bool) -> Any:
        """The fused pass for one truth of the scalars, made once for every domain; None where it cannot be made. In
        double-double, with what judges each element. Nor is it made for few elements of a GPU: a compilation takes
        seconds there, tensors a fraction of one."""
        if self.fmt.bits == 64 or (self.few and torch.device(self.backend.check_device).type != "cpu"):
            return None
        about, oracle = self.about[truth], self.kernel.oracle
        key = (id(oracle), self.dtype, told_apart(about.scalars), told_apart(self.scalars), double, self._in_order)
        if key not in _ENGINES:
            room(_ENGINES, 128)[key] = (oracle, self._made(about, double))
        return _ENGINES[key][1]

    def _made(self, given: Elementwise, double: bool) -> Any:
        try:
            made = fused.on(self.given(0)[0].device)
            admit.arithmetic(self.device, made.mapped)
            bounds = admit.Bounds(self.device, made.mapped)
            about = Elementwise(given.oracle, self.fmt, given.names, given.scalars, HOST, bounds)  # where it is traced
            dtypes = tuple(t.dtype for t in self.given(0))
            element, parameters = judgement(about, double=double), len(Limits().values)
            if double:
                return fused.settling(element, dtypes, parameters)
            formulas = predictor(self.candidates, self.fmt, given.names, self.scalars) if self.candidates else None
            order = {"every": True} if self._in_order and made is not fused.cpp else {}
            return made.compiled(
                element, dtypes, True, parameters, formulas, plain=plain_judgement(about), **order
            )  # fmt: skip
        except (fused.Unsupported, NotAdmitted):  # tensors serve, where they are admitted
            return None

    @property
    def _in_order(self) -> bool:
        """Whether a GPU need not read the inputs to judge, their patterns being those of the index."""
        return self.inputs.kind == "exhaustive" and self.inputs.size > CHUNK

    def excuses(self, number: int, output: str, entries: Sequence[ledger.Deviation]) -> tuple[Excuse, ...]:
        inputs = self.given(number)

        def where(entry: ledger.Deviation) -> Callable[[Tensor], Tensor]:
            def hits(index: Tensor) -> Tensor:
                named = dict(zip(self.inputs.names, (t[index] for t in inputs), strict=True))
                found: Tensor = ledger.holds(entry.where, self.about["exact"].ball, named, self.scalars)
                return found

            return hits

        def predicted(index: Tensor, named: Callable[[str], bool]) -> Mapping[str, Tensor]:
            some = tuple(f for f in self.candidates if named(f.text))
            return predict(some, self.fmt, self.inputs.names, tuple(t[index] for t in inputs), self.scalars)

        return tuple(excuse(entry, predicted, where(entry) if entry.where else None) for entry in entries)

    def sampled(self, number: int, output: str, y: Tensor) -> Tensor:
        start = number * self.portion
        places = [k - start for k in spread(self.inputs.size, SAMPLE) if start <= k < start + len(y)]
        return torch.tensor(places, dtype=torch.int64, device=y.device)

    def known(self, number: int, asked: tuple[Any, ...], y: Tensor, eager: Tensor | None) -> Tally | None:
        word = WORDS[self.fmt.bits]
        given = [y.view(word), *([] if eager is None else [eager.view(word)])]
        for known, bits, tally in self._judged.get(number, ()):
            if known == asked and len(bits) == len(given) and all(map(torch.equal, bits, given)):
                return tally
        return None

    def learn(self, number: int, asked: tuple[Any, ...], y: Tensor, eager: Tensor | None, tally: Tally) -> None:
        if not self.swept:
            held = self._judged.setdefault(number, [])
            kept = [b for _, bits, _ in held for b in bits]
            bits = [t.view(WORDS[self.fmt.bits]) for t in (y, *([] if eager is None else [eager]))]
            bits = [_held(b, kept) for b in bits]
            held.append((asked, bits, tally))

    def digests(self, number: int, output: str, y: Tensor) -> Tally:
        everything = self.inputs.kind == "exhaustive"  # every pattern in order needs no hash
        inputs = () if everything else self.given(number)
        if self.inputs.size > 1 << 32:
            chunk, place = divmod(number * self.portion, LONG_CHUNK)
            word = y.contiguous().view(WORDS[self.fmt.bits])
            return Tally(sums={chunk: sum(of_chunks(word, self.fmt, len(word), place)) & ((1 << 64) - 1)})
        return digests(number * self.portion // CHUNK, inputs, y, self.fmt, CHUNK)

    def domain(self, inputs: int, tally: Tally) -> dict[str, Any]:
        digest = root(tally.input_digests) if tally.input_digests else f"every-{self.fmt.name}"
        one = self.inputs
        return {"kind": one.kind, "size": one.size, "seed": one.seed, "digest": digest}

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            if self.swept:  # what the last portions needed, as far as memory allows
                self._kept = {k: v for k, v in self._kept.items() if k[1] == key[1]}
            self._kept[key] = make()
        return self._kept[key]


def unit_of(backend: Backend) -> int:
    """Elements, some portions, that the ranges into which a sweep is divided are multiples of."""
    return HOST_MOST * backend.portion if torch.device(backend.check_device).type == "cpu" else MOST


def ranges_of(start: int, stop: int, unit: int) -> tuple[tuple[int, int], ...]:
    """The elements start..stop-1 of a domain, whole units, in RANGES parts at most, none much smaller than LEAST or
    FEWEST units."""
    units, first = (stop - start) // unit, start // unit
    count = max(min(units // FEWEST, RANGES, (stop - start) // LEAST), 1)
    edges = [(first + units * k // count) * unit for k in range(count + 1)]
    return tuple(itertools.pairwise(edges))


def _held(bits: Tensor, kept: Sequence[Tensor]) -> Tensor:
    """One of those kept that equals `bits`, else a copy."""
    same = (one for one in kept if torch.equal(one, bits))
    return found if (found := next(same, None)) is not None else bits.clone()


def excuse(
    entry: ledger.Deviation,
    predicted: Callable[[Tensor, Callable[[str], bool]], Mapping[str, Tensor]],
    where: Callable[[Tensor], Tensor] | None,
) -> Excuse:
    """An entry of the ledger for the judge. predicted: outputs of the named formulas for the elements at an index;
    where: which of these the entry covers."""
    regions = torch.tensor([REGIONS.index(name) for name in entry.regions])
    kinds = torch.tensor([FAILURES.index(name) for name in entry.kinds])

    def named(formula: str) -> bool:
        return any(formula == text or fnmatch.fnmatchcase(formula, text) for text in entry.formula)

    def covers(index: Tensor, y: Tensor, judged: Judged) -> Tensor:
        hit = torch.isin(judged.region, regions.to(y.device)) & torch.isin(judged.kind, kinds.to(y.device))
        far = torch.zeros_like(hit)
        for metric, most in entry.at_most.items():
            values = {"ulp": judged.upper, "scaled_ulp": judged.scaled, "share": judged.share, "int_ulp": judged.steps}
            far = far | (values[metric] > most)
        hit = hit & ~(far & judged.measured)
        if entry.overflow:
            hit = hit & judged.lost
        if entry.zero:
            hit = hit & (y == 0)
        if entry.infinite:
            hit = hit & y.isinf()
        if where is not None:
            hit = hit & where(index)
        if entry.formula:
            same = torch.zeros_like(hit)
            for values_ in predicted(index, named).values():
                same = same | ~differing(values_, y)
            hit = hit & same
        return hit

    return Excuse(entry.id, covers)


# Composite kernels.


@dataclass(frozen=True)
class Placed:
    """Elements of one output of a source, known by their place in it (see `verify.judge.exact.Elements`)."""

    source: Source
    output: str

    def enclosures(self, key: Key) -> Iterator[Truth]:
        return self.source.exact(self.output, key[0])

    def scale(self, key: Key) -> Truth | None:
        return self.source.scale(self.output, key[0])

    def zeroed(self, key: Key) -> None:
        return None

    def circumstances(self, key: Key) -> Circumstances:
        left = _left(self.source, self.output)
        under, over = (False, False) if left is None else (bool(part[key[0]]) for part in left)
        return Circumstances(under=under, over=over, slack=Fraction(ROOM))


#: The least slack, for bounds that have their own underflow terms: a zero within such a bound is not a flush.
ROOM = 2.0**-1074


def _left(source: Source, output: str) -> tuple[Tensor, Tensor] | None:
    """Where an intermediate of the reference leaves the normal range, below and above; None where none is named."""
    found = getattr(source, "left", None)
    left: tuple[Tensor, Tensor] | None = None if found is None else found(output)
    return left


class OfOutput:
    """The elements of one output of a problem, as `verify.judge.chunk.Source`.

    limit: what each element may be off by, its tensors of shape (n,) on the outputs' device; or None.
    """

    coarse = math.inf

    def __init__(
        self, source: Source, output: str, shape: tuple[int, ...], fmt: Format, exact: Exact, name: str,
        limit: Limit | None = None,
    ) -> None:  # fmt: skip
        self.source, self.output, self.shape, self.fmt, self.exact = source, output, shape, fmt, exact
        self.name, self.bounds = name, limit
        self._enclosed: tuple[Enclosure, Tensor | None] | None = None
        self._doubled: list[Enclosure] = []  # of all elements, once it was asked for

    def bounded(self, limit: Limit | None) -> OfOutput:
        """The same elements with another lowering's bounds."""
        other = OfOutput(self.source, self.output, self.shape, self.fmt, self.exact, self.name, limit)
        other._enclosed, other._doubled = self._enclosed, self._doubled
        return other

    def facts(self, index: Tensor | None, y: Tensor, *, double: bool, zeroed: bool) -> Facts:
        if double:
            found, scale = self.source.enclose(self.output, index, double=True)
        else:
            found, scale = self.enclosed
        truth = found.take(0)
        if index is not None and not double:
            truth = truth.take(index)
            scale = None if scale is None else scale[:, index]
        false = torch.zeros(y.shape, dtype=torch.bool, device=y.device)
        if truth.either is not None:
            zero = torch.zeros_like(truth.mid)
            truth = replace(truth, mid=torch.where(truth.either, torch.copysign(zero, y.to(zero.dtype)), truth.mid))
        unit = None
        if self.fmt.bits == 64:
            unit = torch.zeros_like(truth.mid, dtype=torch.int64)
            truth = replace(truth, tail=torch.zeros_like(truth.mid))
        rad = truth.rad if truth.rad is not None else torch.zeros_like(truth.mid)
        special = (torch.isnan(truth.mid) | torch.isinf(truth.mid)) & (rad == 0)
        limit = self.bounds if self.bounds is None or index is None else self.bounds.each(lambda t: t[index])
        low = None if scale is None else scale[0]
        left = _left(self.source, self.output)
        under, over = (false, false) if left is None else left
        if left is not None and index is not None:
            under, over = under[index], over[index]
        slack = torch.full_like(truth.mid, ROOM)
        if limit is not None:
            slack = torch.where(torch.isinf(limit.bound), torch.inf, slack)
        return Facts(
            truth, special, false, under & ~special, over, false, slack,
            scale=None if low is None else (low, low),
            limit=None if limit is None else limit.bound, beyond=() if limit is None else limit.beyond,
            infinite=self.infinite if self.infinite is None or index is None else self.infinite[index], unit=unit,
        )  # fmt: skip

    @property
    def enclosed(self) -> tuple[Enclosure, Tensor | None]:
        if self._enclosed is None:
            self._enclosed = self.source.enclose(self.output)
        return self._enclosed

    @cached_property
    def infinite(self) -> Tensor | None:
        """Elements that no finite number may be, although an intermediate may leave the range and nothing else is
        stated; None where there are none. The source knows of them, or they are sums: what has become infinite stays so
        or becomes a NaN. Where nothing has, partial sums are below 2^(emax + 1): rounding at most 2^(p + 2) of them, by
        2^-p each, and terms that are together at most 8 |t|, brings no |t| >= 2^(emax + 4) back into the range."""
        if self.bounds is None or self.fmt.bits == 64:
            return None
        terms, known = getattr(self.source, "sums", 0), getattr(self.source, "infinite", None)
        found = None if known is None else known(self.output)
        unknown = torch.isinf(self.bounds.bound).reshape(-1)
        if not bool(unknown.any()) or (found is None and not 0 < terms <= 4 << self.fmt.precision):
            return None
        stays = torch.zeros_like(unknown) if found is None else found.reshape(-1)
        if 0 < terms <= 4 << self.fmt.precision:
            truth, scale = self.enclosed
            assert scale is not None
            size = truth.take(0).mid.abs()
            far = (size >= 2.0 ** (self.fmt.emax + 4)) & size.isfinite() & (scale[0] <= 8 * size)
            stays = stays | far.reshape(-1)
        return unknown & stays

    @property
    def on_tensors(self) -> bool:
        """Whether tensors judge the elements: those of float64 where they hold the results themselves."""
        return self.fmt.bits < 64 or getattr(self.source, "whole", False)

    @property
    def scaled(self) -> bool:
        """Whether the output has a scale of its own."""
        if not self.on_tensors:
            return self.source.scale(self.output, 0) is not None
        return self.enclosed[1] is not None

    def numbers(self, index: Tensor) -> list[int]:
        found: list[int] = index.tolist()
        return found

    def first(self, index: Tensor | None) -> None:
        return None

    def keys(self, index: Tensor) -> list[Key]:
        return [(k,) for k in index.tolist()]

    def allowed(self, key: Key) -> Allowed | None:
        if self.bounds is None:
            return None

        def at(bounds: Tensor) -> Fraction | float:
            bound = float(bounds[key[0]])
            return Fraction(bound) if math.isfinite(bound) else math.inf

        wider = tuple((kind, at(bound)) for kind, bound in self.bounds.beyond)
        return Allowed(at(self.bounds.bound), wider, self.infinite is not None and bool(self.infinite[key[0]]))

    def picked(self, y: Tensor, count: int = SAMPLE_FLOAT64) -> Tensor:
        """All of them; of float64, for which there are no wider tensors, some, each in multiprecision: so many drawn
        ones, and those farthest off of which float64 tells that they exceed their bound."""
        if self.on_tensors:
            return torch.arange(len(y), device=y.device)
        drawn = torch.tensor(spread(len(y), count), dtype=torch.int64, device=y.device)
        far = self.far(y, SAMPLE_FLOAT64)
        return torch.cat([drawn, far]).unique() if len(far) else drawn  # type: ignore[no-untyped-call]

    def far(self, y: Tensor, count: int = TELLING) -> Tensor:
        """Of outputs of float64 or integers the places of those that exceed their bound whatever the truth in its
        enclosure, the farthest first."""
        if self.bounds is None:
            return torch.empty(0, dtype=torch.int64, device=y.device)
        index = torch.arange(len(y), device=y.device)
        double = len(y) <= SCREENED and not self.on_tensors
        least, _, special, same = _distance(self._truth(index, whole=True, double=double), y)
        bound = self.bounds.bound.reshape(-1)
        share = torch.where(special, torch.where(same, 0.0, torch.inf), least / bound)
        share = torch.where((special | (least > bound)) & bound.isfinite(), share, 0.0)
        some: Tensor = share.topk(min(len(y), count)).indices
        return some[share[some] > 0]

    def doubted(self, y: Tensor) -> Tensor:
        """Places of outputs of which neither double-double nor float64 tells that they keep their bound: OF_CALLS drawn
        ones where there are more than MOST_DOUBTED. Of more than SCREENED outputs those in some rows, and those of the
        others that float64 tells to exceed it."""
        if self.bounds is None:
            return self.picked(y, OF_CALLS)
        index, far = torch.arange(len(y), device=y.device), y.new_empty(0, dtype=torch.int64)
        if len(y) > SCREENED:
            drawn = getattr(self.source, "drawn", None)
            if drawn is None:
                return self.picked(y, OF_CALLS)
            index, far = drawn(DRAWN).to(y.device), self.far(y, SAMPLE_FLOAT64)
        bound, y = self.bounds.bound.reshape(-1)[index], y[index]
        open_, wrong = torch.ones_like(index, dtype=torch.bool), torch.zeros_like(index, dtype=torch.bool)
        for double in (True, False):  # of what is below its range float64 knows more
            truth = self._truth(index, whole=len(index) == self.bounds.bound.numel(), double=double)
            least, most, special, same = _distance(truth, y)
            signed = (y != 0) | _sign(truth, y)
            open_ = open_ & ~(torch.where(special, same, most <= bound) & signed)
            if not bool(open_.any()):
                break
            known = (truth.radius == 0) | (~y.isfinite() & (truth.mid.abs() + truth.radius).isfinite())
            wrong = wrong | torch.where(special, ~same & known, least > bound) | (~signed & _sign(truth, -y))
        unknown = index[open_ & ~wrong]
        if len(unknown) > MOST_DOUBTED:
            unknown = unknown[torch.tensor(spread(len(unknown), OF_CALLS), device=unknown.device)]
        found: Tensor = torch.cat([unknown, index[open_ & wrong], far]).unique()  # type: ignore[no-untyped-call]
        return found

    def _truth(self, index: Tensor, *, whole: bool, double: bool) -> Enclosure:
        """That of outputs. whole: of all of them, which is kept."""
        if not double:
            found = self.enclosed[0].take(0)
            return found if whole else found.take(index)
        if whole and self._doubled:
            return self._doubled[0]
        found = self.source.enclose(self.output, index, double=True, scaled=False)[0].take(0)
        if whole:
            self._doubled.append(found)
        return found

    @property
    def stages(self) -> tuple[bool, ...]:
        if self.fmt.bits == 64:
            return (False,) if self.on_tensors else ()
        return (False, True)

    def place(self, key: Key) -> str:
        """The element as its index in the output."""
        place, spot = key[0], []
        for size in reversed(self.shape):
            place, rest = divmod(place, size)
            spot.append(rest)
        return f"{self.name} {self.output}{list(reversed(spot))}".strip()

    def inputs_of(self, key: Key) -> list[str]:
        """Empty: an element is known by its place."""
        return []


def _distance(truth: Enclosure, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of outputs of float64 the least and the most that they may be off by; which are no finite numbers, or are to be
    none, and of these which are what they are to be."""
    distance = (y - truth.mid if truth.tail is None else (y - truth.mid) - truth.tail).abs()
    special = ~(y.isfinite() & truth.mid.isfinite())
    same = ((y == truth.mid) | (y.isnan() & truth.mid.isnan())) & (truth.radius == 0)
    return distance * (1 - 2.0**-50) - truth.radius, (distance + truth.radius) * (1 + 2.0**-50), special, same


def _sign(truth: Enclosure, y: Tensor) -> Tensor:
    """Where the truth certainly has the sign of a zero, or may have either."""
    rad = truth.radius if truth.tail is None else truth.radius + truth.tail.abs()
    certain = (rad == 0) | (truth.mid.abs() > rad) | truth.sure
    same = certain & (torch.signbit(y) == torch.signbit(truth.mid))
    return same if truth.either is None else same | truth.either


class Instance:
    """A problem of a kernel on a backend: truths and the reference's outputs are kept for the next lowering."""

    def __init__(
        self, facts: Composite, setting: Setting, scalars: Scalars, dtype: str, backend: Backend, seed: int
    ) -> None:
        self.kernel, self.setting, self.scalars, self.dtype = facts, setting, dict(scalars), dtype
        self.backend, self.seed = backend, seed
        host: Problem = facts.problem(dtype, setting, dict(scalars), seed)
        self.digest = problem_digest(host)
        few = sum(t.numel() for t in host.tensors.values()) <= SMALL * host.steps
        self.device = "cpu" if few else backend.check_device  # where it is judged
        self.problem = host.to(self.device)
        self.outputs = facts.outputs_of(setting)
        self._exact: dict[tuple[str, str], Exact] = {}
        self._sources: dict[tuple[str, str, tuple[int, ...]], OfOutput] = {}
        self._limits: dict[str, Limit | None] = {}
        self._limited: Lowering | None = None  # whose they are
        self._ways: dict[str, Instance] | None = None
        self._reference: Outputs | None = None
        self._predicted: dict[tuple[str, str], Tensor] = {}
        self._bounds = admit.Bounds(self.device)

    @cached_property
    def source(self) -> Source:
        found: Source = self.kernel.truth(self.problem, self.device, self._bounds)
        return found

    def serves(self, facts: Composite, setting: Setting, scalars: Scalars, dtype: str, backend: Backend) -> bool:
        """Whether a job with these facts is one of this instance."""
        mine = (self.kernel.name, self.setting, told_apart(self.scalars), self.dtype, self.backend.name)
        return mine == (facts.name, setting, told_apart(scalars), dtype, backend.name)

    @cached_property
    def trusted(self) -> tuple[admit.Admitted, ...]:
        """Of the library those that its enclosures ask for; the source has them by now, of all outputs."""
        if self.dtype != "float64":
            for output in self.outputs:
                self.source.enclose(output)
        return admit.library(self.device, names=sorted(self._bounds.asked))

    def reading(self, tensors: Mapping[str, Tensor]) -> Instance:
        """The same numbers in other memory, with what is known of them; see `Problem.reading`."""
        other = copy.copy(self)
        other.problem, other._reference, other._ways = self.problem.reading(tensors), None, None
        return other

    def of(self, tensors: Mapping[str, Tensor]) -> Instance:
        """The setting's problem of other numbers, before anything was asked of this one: nothing is drawn for it."""
        other = copy.copy(self)
        kept = {name: dict(one) if isinstance(one, dict) else one for name, one in self.problem.extra.items()}
        other.problem = replace(self.problem, tensors=tensors, extra=kept).to(self.device)
        other._exact, other._sources, other._limits, other._predicted = {}, {}, {}, {}
        other._bounds = admit.Bounds(self.device)
        return other

    def ways(self, target: Target) -> dict[str, Instance]:
        """The same problem, held to single algorithms, see `Composite.ways`."""
        if self._ways is None:
            self._ways = {}
            for text, limit in self.kernel.ways(self.problem, target).items():
                one = self._ways[text] = copy.copy(self)
                one.kernel, one._limits, one._limited = replace(self.kernel, limit=limit), {}, None
        return self._ways

    def portions(self) -> range:
        return range(1)

    def given(self, number: int) -> Problem:
        return self.problem

    def origin(self, number: int) -> None:
        """A problem's tensors are copied."""

    def eager(self, number: int, lowering: Lowering, target: Target) -> Outputs | None:
        if self._reference is None:
            if lowering.reason(target):
                return None
            try:
                call = lowering.build(target)
                given = (call, self.problem, self.backend, lowering.name)
                self._reference = launch_steady(*given, repeats=1, names=self.outputs).results[0]
            except (LoweringError, NotLowered):
                return None
        return self._reference

    def limit(self, target: Target, lowering: Lowering, output: str) -> Limit | None:
        """What each element may be off by; kept until another lowering's is asked for."""
        if self._limited is not lowering:
            self._limits, self._limited = {}, lowering
        if output not in self._limits:
            self._limits[output] = self.kernel.limit(self.problem, target, lowering, output)
        return self._limits[output]

    def stated(self, target: Target, lowering: Lowering, output: str, y: Tensor) -> Stated | None:
        limit = self.limit(target, lowering, output)
        if limit is not None and limit.bound.numel() not in (1, y.numel()):
            raise LoweringError(
                f"lowering {lowering.name} returned {output or 'an output'} of shape {tuple(y.shape)}; "
                f"expected {tuple(limit.bound.shape)}"
            )
        return None if limit is None else Stated(1.0, "share", limit.source)

    def sources(self, number: int, output: str, y: Tensor) -> dict[str, Elements]:
        limit = self._limits.get(output)
        if limit is not None:
            limit = limit.each(lambda t: t.to(y.device, torch.float64).expand(y.shape).reshape(-1))
        return {"exact": self._elements(output, y).bounded(limit)}

    def _elements(self, output: str, y: Tensor) -> OfOutput:
        """What is known of an output of that shape and dtype."""
        fmt = format_of(y)
        key = (output, fmt.name, tuple(y.shape))
        if key not in self._sources:
            exact = self._exact.setdefault((output, fmt.name), Exact(Placed(self.source, output), fmt))
            name = f"{self.kernel.name} {self.setting.name}"
            self._sources[key] = OfOutput(self.source, output, tuple(y.shape), fmt, exact, name)
        return self._sources[key]

    def prepare(self, target: Target, lowering: Lowering, dtypes: Mapping[str, torch.dtype]) -> None:
        """Bounds and enclosures of outputs of these dtypes, ahead of their judgement."""
        for output in self.outputs:
            limit = self.limit(target, lowering, output)
            if limit is not None and limit.bound.dim() and output in dtypes:
                of = self._elements(output, torch.empty(limit.bound.shape, dtype=dtypes[output], device="meta"))
                if of.on_tensors:
                    of.enclosed  # noqa: B018

    def formulas(self, number: int, output: str, y: Tensor) -> Formulas:
        given = {
            text: t.reshape(-1) for text, t in self._predictions(output) if t.shape == y.shape and t.dtype == y.dtype
        }
        places: dict[str, Tensor] = {}
        if self.kernel.searched is not None:
            found = self.kernel.searched(self.problem, self.backend, output, y)
            for text, make in found.items():
                made = make()
                if isinstance(made, Part):
                    given[text], places[text] = made.values, made.places
                else:
                    given[text] = made.reshape(-1)

        def predicted(index: Tensor | None) -> Mapping[str, Tensor]:
            return given if index is None else {text: t[index] for text, t in given.items() if text not in places}

        apart = self.kernel.pointwise and format_of(y).bits == 16  # others err by their scalars' roundings, all alike
        return Formulas(predicted, names=tuple(given), places=places, apart=apart)

    def _predictions(self, output: str) -> Iterator[tuple[str, Tensor]]:
        """Each formula's prediction of `output`, kept as far as KEPT bytes hold it."""
        if self.kernel.formulas is None:
            return
        for text, make in self.kernel.formulas(self.problem, self.backend, output).items():
            found = self._predicted.get((output, text))
            if found is None:
                found = make()
                if sum(t.nbytes for t in self._predicted.values()) + found.nbytes <= KEPT:
                    self._predicted[output, text] = found
            yield text, found

    def identified(self, fits: Mapping[str, Fit]) -> Identification:
        return identify(fits)

    def strata(self, output: str, y: Tensor) -> Strata | None:
        if self.kernel.strata is None:
            return None
        names, of = self.kernel.strata(self.problem, output)
        return names, of.to(y.device).reshape(-1)

    def engine(self, number: int, output: str, truth: str) -> Engine | None:
        return None

    def excuses(self, number: int, output: str, entries: Sequence[ledger.Deviation]) -> tuple[Excuse, ...]:
        def predicted(index: Tensor, named: Callable[[str], bool]) -> Mapping[str, Tensor]:
            return {text: t.reshape(-1)[index] for text, t in self._predictions(output) if named(text)}

        def where(entry: ledger.Deviation) -> Callable[[Tensor], Tensor]:
            hit: Tensor = getattr(self.source, "where")(entry.where)  # noqa: B009 - rows alone have it
            return lambda index: hit[index]

        return tuple(excuse(entry, predicted, where(entry) if entry.where else None) for entry in entries)

    def sampled(self, number: int, output: str, y: Tensor) -> Tensor:
        longest = max((t.shape[-1] for t in self.problem.tensors.values() if t.dim()), default=0)
        few = 1 if self.kernel.inputs and longest > LONG else SAMPLE
        return torch.tensor(spread(y.numel(), few), dtype=torch.int64, device=y.device)

    def known(self, number: int, asked: tuple[Any, ...], y: Tensor, eager: Tensor | None) -> None:
        """A bound of each element's own makes judgements that no other lowering shares."""
        return

    def learn(self, number: int, asked: tuple[Any, ...], y: Tensor, eager: Tensor | None, tally: Tally) -> None:
        pass

    def digests(self, number: int, output: str, y: Tensor) -> Tally:
        return digests(0, (), y, format_of(y), CHUNK)

    def domain(self, inputs: int, tally: Tally) -> dict[str, Any]:
        return {"kind": "problem", "size": inputs, "seed": self.seed, "digest": self.digest}


def problem_digest(problem: Problem) -> str:
    """SHA-256 over the tensors' names, shapes and bytes and the parameters, 16 hex digits."""
    hasher = hashlib.sha256()
    for name, t in problem.tensors.items():
        hasher.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        hasher.update(octets(t).numpy().tobytes())
    facts = {"parameters": dict(problem.parameters), "scalars": dict(problem.scalars), "dtype": problem.dtype}
    hasher.update(json.dumps(facts, sort_keys=True, default=str).encode())
    return hasher.hexdigest()[:16]


def format_of(y: Tensor) -> Format:
    name = str(y.dtype).removeprefix("torch.")
    if name not in FORMATS:
        raise LoweringError(f"an output has dtype {name}; expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def trust(case: Case) -> list[dict[str, Any]]:
    """The library functions that the case's enclosures rest on."""
    where = judged_on(case.backend) if case.device == case.backend.check_device else case.device
    return [
        {
            "library": f"torch.{a.name} float64, {a.form} on {where}",
            "bound_ulp": a.bound,
            "seen_ulp": a.seen,
            "admitted_on": a.points,
        }
        for a in case.trusted
    ]


# Which cases a composite kernel has.


def settings_of(
    facts: Composite, given: Mapping[str, str] | None, spellings: tuple[str, ...], profile: str, dtype: str
) -> list[Setting]:
    """The user's own setting, those named (a name of NAME=VALUE words that is not listed is a custom one), or those of
    the profile, as far as they exist for `dtype`. Raises UsageError."""
    if given:
        return [_own(facts, given)]
    if spellings:
        words = [own_setting(name) for name in spellings if name not in facts.spellings]
        own = [_own(facts, one) for one in words if one]
        return own + [s for s in facts.settings if s.name in spellings and dtype in s.dtypes]
    return [s for s in facts.settings if dtype in s.dtypes and (s.quick or profile != "quick")]


def own_setting(spelling: str) -> dict[str, str] | None:
    """The NAME=VALUE words that `spelling` consists of, or None where it is a name."""
    words = spelling.split()
    if not words or not all("=" in word for word in words):
        return None
    return dict(word.split("=", 1) for word in words)


def _own(facts: Composite, given: Mapping[str, str]) -> Setting:
    """A setting of the user's own; its name gives it back, see `own_setting`."""
    if facts.custom is None:
        raise UsageError(f"{facts.name} takes no --set; its settings are {', '.join(facts.spellings)}")
    for name in given:
        if name not in facts.parameters:
            raise UsageError(suggest(f"parameter of {facts.name}", name, tuple(facts.parameters)))
    own = facts.custom(given)
    name = " ".join(f"{name}={value}" for name, value in given.items())
    if name in facts.spellings:  # which may have other parameters beside
        name = " ".join(f"{name}={own.parameters[name]}" for name in facts.parameters if name in own.parameters)
    return replace(own, name=name)


def cases_of(facts: Composite, given: Scalars | None, profile: str) -> list[Scalars]:
    """The cases of the profile; with scalars given, the first case that has these, with them as given."""
    if not given:
        return list(facts.cases[: facts.quick_cases] if profile == "quick" else facts.cases)
    known = tuple(dict.fromkeys(name for case in facts.cases for name in case))
    if not known:
        raise UsageError(f"{facts.name} takes no --scalar; its parameters are given by --set, see `verify show`")
    for name in given:
        if name not in known:
            raise UsageError(suggest(f"scalar of {facts.name}", name, known))
    return [{**next(case for case in facts.cases if given.keys() <= case.keys()), **given}]
