"""An elementwise kernel with its Python scalars on a domain, as a case of the walk."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from verify import backends
from verify.backends import Backend
from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import Kernel, Scalars, facts_of, told_apart
from verify.facts.oracle import Formula
from verify.families.elementwise import Chunk, Elementwise, Patterns, judgement, plain_judgement
from verify.families.level import Level, levels
from verify.inputs.domains import CHUNK, LONG_CHUNK, Domain
from verify.inputs.draws import spread
from verify.judge import fused, ledger
from verify.judge.cell import Reader, Stated
from verify.judge.chunk import Engine, Excuse, Formulas, digests
from verify.judge.chunk import Source as Elements
from verify.judge.element import Judged, Limits
from verify.judge.exact import Exact, room
from verify.judge.identify import Identification, candidates, identify, predict, predictor, probing
from verify.judge.reduce import Reduced, joined
from verify.judge.tally import Fit, Tally, root
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.numbers import NotAdmitted, admit
from verify.numbers.decide import WORDS
from verify.numbers.decide import digests as of_chunks
from verify.numbers.ieee import HOST
from verify.walk.cases import SAMPLE, SMALL, excuse, limited
from verify.workers.launch import LoweringError, Outputs, launch_steady

Tensor = torch.Tensor
MOST = 1 << 30  # elements of a sweep that a GPU is given at a time
HOST_MOST = 4  # portions of a sweep that the host is given at a time; what is larger is mapped anew each time
ROOM_EACH = 32  # bytes of a GPU's memory for each of them: inputs, outputs, their copies and tables
RANGES = 256  # into which at most a sweep is divided: what is in flight is lost where a run is killed
LEAST = 1 << 24  # elements of a range, a second on a core: a record on the disk takes some milliseconds
FEWEST = 4  # portions of a range at least, whose open elements are judged together
KEPT_PORTIONS = 4  # of a domain of so many what was drawn, launched and judged is kept for the next lowering
LONGEST = 1 << 26  # elements of a domain of which it is kept, however many portions they are

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
