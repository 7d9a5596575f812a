"""The judge: outputs of one chunk against their truth, to a tally.

Elements go from the fused pass (or `verify.judge.element` on tensors, which defines it) over float64 with everything
that a wrong element needs (operands taken as zero, formulas, the ledger) and double-double to multiprecision. Each
stage settles what it can prove; undecided is what no stage proved.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import torch

from verify.facts.formats import Format
from verify.facts.truth import Truth
from verify.judge.element import CLASSES, Facts, Judged, Limits, decide, error_of, farthest, keeps
from verify.judge.exact import Allowed, Exact, Key, Outcome, decimal, finite
from verify.judge.reduce import COUNTED, LEADERS, Reduced, first_of, reduce
from verify.judge.regions import REGIONS
from verify.judge.status import KINDS
from verify.judge.tally import Binade, Element, Fit, InRegion, Lean, Tally, leading
from verify.numbers.decide import BINS, CLAMP_ULP, QUANTUM, WORDS, Enclosure, Line
from verify.numbers.decide import digests as of_chunks
from verify.numbers.scaled import FAR

Tensor = torch.Tensor
COARSE = 0.5 / QUANTUM  # ULP: errors known no better than this would spoil sums and histogram
#: Elements that tensors judge at once: their intermediates stay in the processor's cache.
BLOCK = 1 << 15
#: ... and their memory suffices.
MOST = 1 << 22
#: Elements left open by the fused pass up to which multiprecision is faster than hundreds of GPU launches.
FEW = 16
#: ... which may wait for those of other chunks.
LATER = 1 << 19
#: Elements by which it is seen that a lowering fails.
FARTHEST = 2


class OracleViolation(Exception):
    """Multiprecision contradicts a ball: the checker, a library or the machine is wrong."""


class Source(Protocol):
    """The elements of one chunk or output, all of one format, numbered from 0."""

    @property
    def exact(self) -> Exact: ...

    def numbers(self, index: Tensor) -> list[int]:
        """The numbers of the elements at `index` in the domain."""
        ...

    @property
    def coarse(self) -> float:
        """Errors known to no better than that many ULP go to the next stage."""
        ...

    @property
    def scaled(self) -> bool:
        """Whether scaled ULPs refer to a scale of the kernel's."""
        ...

    @property
    def stages(self) -> tuple[bool, ...]:
        """What `facts` knows of elements with such outputs: in float64 (False), in double-double (True), or neither."""
        ...

    def facts(self, index: Tensor | None, y: Tensor, *, double: bool, zeroed: bool) -> Facts:
        """What is known of the elements at `index` (None: all), whose outputs are y."""
        ...

    def first(self, index: Tensor | None) -> Tensor | None:
        """Their first input, by whose binade errors are grouped; None where that means nothing."""
        ...

    def keys(self, index: Tensor) -> list[Key]:
        """The keys by which multiprecision knows them."""
        ...

    def allowed(self, key: Key) -> Allowed | None:
        """What one element may be; None where `Limits` say it."""
        ...

    def picked(self, y: Tensor) -> Tensor:
        """Places of the elements that are judged where there is no fused pass over all."""
        ...

    def doubted(self, y: Tensor) -> Tensor:
        """Where there are no stages, places of the elements that have to be judged for a status."""
        ...

    def far(self, y: Tensor) -> Tensor:
        """Where double-double is no stage, places of a few elements that certainly exceed their bound, the farthest
        first."""
        ...

    def place(self, key: Key) -> str:
        """One element, for messages."""
        ...

    def inputs_of(self, key: Key) -> list[str]:
        """Its inputs as hex floats, none where it is known by its place alone."""
        ...


@dataclass(frozen=True)
class Excuse:
    """An entry of the ledger for the judge. covers(index, y, judged) says for which of the failing elements at `index`,
    with outputs y and their judgements, it accounts."""

    id: str
    covers: Callable[[Tensor, Tensor, Judged], Tensor]


@dataclass(frozen=True)
class Formulas:
    """Candidates for identification. predict(index): each candidate's results for the elements at `index` (None: all).

    admissible: the candidates that may account for elements where an intermediate of the reference overflows. places:
    for a candidate that does not cover all elements, those it does (int64); predict(index) leaves it out. apart:
    whether each element is rounded by itself, so that outputs lie on both sides of a formula's results.
    """

    predict: Callable[[Tensor | None], Mapping[str, Tensor]] = lambda index: {}
    admissible: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    places: Mapping[str, Tensor] = field(default_factory=dict)
    apart: bool = False

    def leans(self, y: Tensor, fmt: Format, missed: Iterable[int]) -> dict[str, Lean]:
        """On which side of the candidates' results the outputs y lie, of one alone where they lie about its results; {}
        where that tells nothing. missed: how many outputs each candidate misses."""
        found: dict[str, Lean] = {}
        predicted = self.predict(None) if self.apart else {}
        for _, text in sorted(zip(missed, self.names, strict=True)) if predicted else ():
            found[text] = lean_of(y, predicted[text], fmt)
            if not found[text].aside:
                return {text: found[text]}
        return found

    def wrong(self, y: Tensor) -> Iterator[tuple[int, int]]:
        """For each candidate, how many of the outputs y it misses, and the first of them (-1: none)."""
        for text, predicted in self.predict(None).items():
            places = self.places.get(text)
            missed = differing(predicted, y if places is None else y[places])
            first = first_of(missed)
            yield int(missed.sum()), first if places is None or first < 0 else int(places[first])


class Engine(Protocol):
    """The fused pass over the elements of a source."""

    def __call__(
        self, y: Tensor, eager: Tensor | None, parameters: tuple[float, ...],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Reduced:  # fmt: skip
        """All elements reduced, in float64. meanwhile: what this process has to do while a GPU is busy."""
        ...

    def finer(
        self, index: Tensor, y: Tensor, eager: Tensor | None, parameters: tuple[float, ...]
    ) -> tuple[Reduced, Judged] | None:  # fmt: skip
        """The elements at `index`, with outputs y, in double-double and with operands taken as zero: their reduction,
        failing elements included, and each one judged. None where tensors are as fast."""
        ...


@dataclass(frozen=True)
class Judge:
    """Judges the outputs of one lowering. user: the lowering is the user's own, and the ledger accounts only for those
    of its outputs with eager's bits."""

    fmt: Format
    limits: Limits
    excuses: tuple[Excuse, ...] = ()
    user: bool = False

    def tally(
        self, source: Source, y: Tensor, eager: Tensor | None = None, formulas: Formulas | None = None,
        engine: Engine | None = None, later: list[Tensor] | None = None, sampled: Tensor | None = None,
    ) -> Tally:  # fmt: skip
        """The tally of outputs y of shape (n,), `eager` being another lowering's. Without digests.

        later: takes the index of the elements that the fused pass left open, where they are few; they are to be judged
        with those of other chunks, for which the next stages' many steps take hardly longer. sampled: the index of
        elements of which `sample` is to be asked.
        """
        formulas = formulas or Formulas()
        fits: dict[str, Fit] = {}
        if engine is None:
            reduced = Reduced((), (), tuple(formulas.wrong(y)), source.picked(y))
        else:
            reduced = engine(y, eager, self.limits.values, self._ahead(source, sampled, y))
        leans = formulas.leans(y, self.fmt, (count for count, _ in reduced.formulas))
        for text, (count, first) in zip(formulas.names, reduced.formulas, strict=True):
            witness = self._element(source, first, y) if count else None
            fits[text] = Fit(count, witness, lean=leans.get(text, Lean()))
        found = self._tally(source, reduced, None, y, fits)
        index = reduced.open.to(y.device)
        if engine is not None and len(index):
            other = None if eager is None else eager[index]
            finer = engine.finer(index, y[index], other, self.limits.values)
            if finer is not None:
                reduced, judged = finer
                found += self._tally(source, reduced, index, y, {})
                found += self._failing(source, judged, index, y, other, formulas)
                index = index[reduced.open]
        if later is not None and len(index) <= LATER:
            later.append(index)
            return found
        return found + self.rest(source, index, y, eager, formulas, settled=engine is not None)

    def doubts(
        self, source: Source, y: Tensor, eager: Tensor | None = None, *, briefly: bool = False,
        errors: list[float] | None = None,
    ) -> Tally:  # fmt: skip
        """The tally of those outputs alone that are not seen at once to keep their bound: enough for a status. Of the
        others the normal ones count as correct, since of these no more than a share may be left unjudged. briefly: only
        whether they pass is asked, so that of those which fail a few are enough. errors: takes the largest one of all
        outputs (`error_of`), where that is known."""
        if not source.stages:
            index = source.doubted(y)
            found = self.rest(source, index, y, eager, Formulas(), settled=False)
            return found + Tally({"normal": InRegion({"correct": len(y) - len(index)})})
        facts = source.facts(None, y, double=source.stages[0], zeroed=True)
        if errors is not None and (error := error_of(y, facts, self.fmt)) is not None:
            errors.append(error)
        if briefly and len(few := farthest(y, facts, FARTHEST)):
            found = self.rest(source, few, y, eager, Formulas(), settled=False)
            if any(one.fails or one.lost for one in found.regions.values()):
                return found
        sure = keeps(y, facts, self.fmt)
        normal = sure & (facts.truth.mid.abs() >= 2.0 ** (self.fmt.emin + 1))
        normal = normal & ~(facts.special | facts.subnormal | facts.under | facts.over)
        found = self.rest(source, (~sure).nonzero()[:, 0], y, eager, Formulas(), settled=False)
        return found + Tally({"normal": InRegion({"correct": int(normal.sum())})})

    def rest(
        self, source: Source, index: Tensor, y: Tensor, eager: Tensor | None, formulas: Formulas, *, settled: bool
    ) -> Tally:
        """The tally of the elements at `index`. settled: a fused pass has settled the others, so that few are left."""
        found = Tally()
        few = settled and not y.is_cpu and len(index) <= FEW
        for double in () if few else source.stages:
            left = []
            # as a later stage double-double takes whole rows and keeps few of them
            blocks = y.is_cpu and double == source.stages[0]
            for part in torch.split(index, BLOCK if blocks else MOST):
                more, open_ = self._on_tensors(source, part, y, eager, formulas, double)
                found += more
                left.append(open_)
            index = torch.cat(left)
        return found + self.exactly(source, index, y, eager, formulas) if len(index) else found

    def _on_tensors(
        self, source: Source, index: Tensor, y: Tensor, eager: Tensor | None, formulas: Formulas, double: bool
    ) -> tuple[Tally, Tensor]:
        """The tally of the elements at `index` that tensors decide, and the index of the others."""
        if not len(index):
            return Tally(), index
        part, other = y[index], None if eager is None else eager[index]
        facts = source.facts(index, part, double=double, zeroed=True)
        judged = decide(part, facts, self.fmt, self.limits, other, source.coarse)
        reduced = reduce(judged, source.first(index), self.fmt)
        found = self._tally(source, reduced, index, y, {})
        found += self._failing(source, judged, index, y, other, formulas)
        return found, index[reduced.open]

    def _element(self, source: Source, place: int, y: Tensor) -> Element:
        index = torch.tensor([place], device=y.device)
        return Element(source.numbers(index)[0], source.keys(index)[0], patterns(y[index], self.fmt)[0])

    def _tally(self, source: Source, reduced: Reduced, index: Tensor | None, y: Tensor, fits: dict[str, Fit]) -> Tally:
        """A reduction's numbers; index: places of its elements in the chunk, None for all."""
        wanted = sorted({k for one in reduced.regions for leaders in one.leaders for _, k in leaders})
        elements: dict[int, Element] = {}
        if wanted:
            local = torch.tensor(wanted, device=y.device)
            places = local if index is None else index[local]
            columns = (wanted, source.numbers(places), source.keys(places), patterns(y[places], self.fmt))
            elements = {k: Element(number, key, bits) for k, number, key, bits in zip(*columns, strict=True)}
        regions = {
            name: InRegion(
                counts=dict(zip(COUNTED, one.counts, strict=True)),
                histogram=one.histogram,
                steps=one.steps,
                leaders=tuple(tuple((value, elements[k]) for value, k in found) for found in one.leaders),
            )
            for name, one in zip(REGIONS, reduced.regions, strict=False)
            if any(one.counts)
        }
        return Tally(regions, {e: Binade(*values) for e, *values in reduced.binades}, fits)

    def _failing(
        self, source: Source, judged: Judged, index: Tensor, y: Tensor, eager: Tensor | None, formulas: Formulas
    ) -> Tally:
        """What accounts for the failing elements, and which elements they are. eager: outputs at `index`."""
        where = judged.fails.nonzero()[:, 0]
        if not len(where):
            return Tally()
        places = index[where]
        part = take(judged, where)
        region, kind, lost = part.region, part.kind, part.lost.clone()
        covered = torch.zeros_like(lost)
        found: dict[str, InRegion] = {}
        same = None
        if self.user:  # the ledger excuses what eager does: a user's element needs eager's bits
            same = torch.zeros_like(lost) if eager is None else ~differing(eager[where], y[places])
        for excuse in self.excuses:
            hits = excuse.covers(places, y[places], part) & ~covered
            hits = hits if same is None else hits & same
            covered = covered | hits
            for k, j, which in _split(region, kind, hits):
                one = InRegion(
                    deviates={(excuse.id, KINDS[j]): int(which.sum())},
                    witnesses={excuse.id: self._element(source, int(places[first_of(which)]), y)},
                )
                found[REGIONS[k]] = found.get(REGIONS[k], InRegion()) + one
        lost = lost & ~covered
        fits = self._fits(formulas, places[lost], y)
        for name, which in (("lost", lost), ("fails", ~lost & ~covered)):
            for k, j, those in _split(region, kind, which):
                element = self._element(source, int(places[first_of(those)]), y)
                count = {KINDS[j]: int(those.sum())}
                lost_, fails = (count, {}) if name == "lost" else ({}, count)
                one = InRegion(fails=fails, lost=lost_, witnesses={KINDS[j]: element})
                found[REGIONS[k]] = found.get(REGIONS[k], InRegion()) + one
        return Tally(found, formulas=fits)

    @staticmethod
    def _fits(formulas: Formulas, places: Tensor, y: Tensor) -> dict[str, Fit]:
        """How many of the elements at `places` each admissible formula does not reproduce."""
        if not len(places) or not formulas.admissible:
            return {}
        predicted = formulas.predict(places)
        wrong = {text: differing(p, y[places]) for text, p in predicted.items() if text in formulas.admissible}
        return {text: Fit(lost=int(w.sum()), admissible=True) for text, w in wrong.items()}

    def exactly(self, source: Source, index: Tensor, y: Tensor, eager: Tensor | None, formulas: Formulas) -> Tally:
        """The tally of the elements at `index`, every one of them in multiprecision."""
        keys, ys = source.keys(index), patterns(y[index], self.fmt)
        others = itertools.repeat(None) if eager is None else patterns(eager[index], self.fmt)
        same: dict[tuple[Key, int, int | None], list[int]] = {}  # strata repeat inputs
        for k, one in enumerate(zip(keys, ys, others, strict=False)):
            same.setdefault(one, []).append(k)
        regions: dict[str, InRegion] = {}
        binades: dict[int, Binade] = {}
        outcomes: list[tuple[int, Outcome]] = []
        first, numbers = source.first(index), source.numbers(index)
        firsts = None if first is None else first.to(torch.float64).tolist()
        for (key, bits, other), among in same.items():
            elements = [Element(numbers[k], key, bits) for k in among[:LEADERS]]
            outcome = source.exact.outcome(key, bits, self.limits, source.allowed(key))
            if outcome is None:
                region = source.exact.region(key) or "normal"
                found = InRegion(undecided=len(among), mp=len(among), witnesses={"undecided": elements[0]})
                regions[region] = regions.get(region, InRegion()) + found
                continue
            told = None if other is None else source.exact.against(key, bits, other)
            found = of_outcome(outcome, elements, told, len(among))
            regions[outcome.region] = regions.get(outcome.region, InRegion()) + found
            if outcome.kind is not None:
                outcomes += [(k, outcome) for k in among]
            if firsts is not None and outcome.region == "normal" and measured(outcome) and firsts[among[0]]:
                exponent = math.frexp(firsts[among[0]])[1] - 1
                binades[exponent] = binades.get(exponent, Binade()) + binade_of(outcome, len(among))
        outcomes.sort(key=lambda found: found[0])
        tally = Tally(regions, binades)
        if outcomes:
            where = torch.tensor([k for k, _ in outcomes], device=y.device)
            judged = as_judged([o for _, o in outcomes], y.device)
            theirs = None if eager is None else eager[index][where]
            tally += self._failing(source, judged, index[where], y, theirs, formulas)
        return tally

    def _ahead(self, source: Source, index: Tensor | None, y: Tensor) -> Callable[[], None]:
        """What multiprecision says of the elements at `index`, so that it is known when `sample` asks for it."""
        if index is None or not len(index):
            return lambda: None
        columns = source.keys(index), patterns(y[index], self.fmt)

        def ahead() -> None:
            for key, bits in zip(*columns, strict=True):
                source.exact.outcome(key, bits, self.limits, source.allowed(key))

        return ahead

    def sample(self, source: Source, index: Tensor, y: Tensor) -> None:
        """Hold what the tensors say of the elements at `index` against multiprecision. Raises OracleViolation."""
        for double in source.stages if len(index) else ():
            part = y[index]
            facts = source.facts(index, part, double=double, zeroed=True)
            judged = decide(part, facts, self.fmt, self.limits)
            columns = (
                source.keys(index),
                patterns(part, self.fmt),
                balls_of(facts.truth, facts.unit),
                judged.open.tolist(),
            )
            for k, (key, bits, ball, left) in enumerate(zip(*columns, strict=True)):
                outcome = source.exact.outcome(key, bits, self.limits, source.allowed(key))
                if outcome is None:
                    continue
                require_inside(ball, outcome.truth, self.fmt, source.place(key))
                mine = (
                    REGIONS[int(judged.region[k])], CLASSES[int(judged.cls[k])],
                    KINDS[int(judged.kind[k])] if bool(judged.fails[k]) else None,
                )  # fmt: skip
                theirs = (outcome.region, outcome.verdict.cls, outcome.kind)
                if not left and mine != theirs:
                    raise OracleViolation(f"{source.place(key)}: tensors say {mine}, multiprecision {theirs}")
            index = index[judged.open]
            if not len(index):
                return


def digests(first: int, inputs: tuple[Tensor, ...], y: Tensor, fmt: Format, size: int) -> Tally:
    """The digests of the chunks of `size` elements from number `first`: of their outputs, and of their inputs together
    (none: of no inputs)."""
    word, mask = WORDS[fmt.bits], (1 << 64) - 1
    own = tuple(enumerate(of_chunks(y.contiguous().view(word), fmt, size), first))
    if not inputs:
        return Tally(digests=own)
    each = zip(*(of_chunks(t.view(word), fmt, size, k << 32) for k, t in enumerate(inputs)), strict=True)
    return Tally(digests=own, input_digests=tuple(enumerate((sum(values) & mask for values in each), first)))


def differing(a: Tensor, b: Tensor) -> Tensor:
    """Elements whose bits differ, two NaNs counting as equal."""
    word = WORDS[8 * a.element_size()]
    return (a.contiguous().view(word) != b.contiguous().view(word)) & ~(torch.isnan(a) & torch.isnan(b))


def lean_of(y: Tensor, f: Tensor, fmt: Format) -> Lean:
    """On which side of a formula's results f, of shape (n,) as outputs y are, these lie."""
    line, near = Line(fmt), f.to(torch.float64)
    normal = (near.abs() >= 2.0**fmt.emin) & near.isfinite() & y.isfinite()
    steps = line.steps(y, near)[normal].clamp(-4, 4)
    outward = torch.where(near[normal] < 0, -steps, steps)
    return Lean(len(steps), int(steps.sum()), int(outward.sum()), int(steps.square().sum()))


def patterns(t: Tensor, fmt: Format) -> list[int]:
    """Bits of a 1-dim tensor as non-negative integers, in one transfer."""
    mask = (1 << fmt.bits) - 1
    return [bits & mask for bits in t.contiguous().view(WORDS[fmt.bits]).tolist()]


def take(judged: Judged, index: Tensor) -> Judged:
    """The judgements of some elements."""
    return Judged(**{name: getattr(judged, name)[index] for name in Judged.__dataclass_fields__})


def of_outcome(outcome: Outcome, elements: Sequence[Element], told: str | None, n: int) -> InRegion:
    """n elements that multiprecision judged alike; what accounts for their failure may differ. elements: the first of
    them, LEADERS at most."""
    verdict, counts = outcome.verdict, Counter({outcome.verdict.cls: n})
    if told:
        counts.update({"different": n, told: n})
    counts["unjudged"] += n * outcome.unjudged
    if not measured(outcome):
        return InRegion(dict(counts), mp=n)
    assert verdict.low is not None and verdict.high is not None
    middle = (verdict.low + verdict.high) / 2
    q = n * quantum(finite(middle))
    counts.update({"measured": n, "clamped": n * (middle > CLAMP_ULP), "sum": q})
    counts["sum_signed"] += q if verdict.sign >= 0 else -q
    values = (finite(verdict.high), finite(verdict.scaled), finite(outcome.share))
    return InRegion(
        dict(counts),
        mp=n,
        histogram=tuple(n * (middle <= edge) for edge in BINS),
        steps=verdict.steps,
        leaders=tuple(leading([(v, one) for one in elements if v]) for v in values),
    )


def measured(outcome: Outcome) -> bool:
    return outcome.verdict.high is not None and outcome.verdict.cls != "flushed"


def binade_of(outcome: Outcome, n: int) -> Binade:
    verdict = outcome.verdict
    assert verdict.low is not None and verdict.high is not None
    q = quantum(finite((verdict.low + verdict.high) / 2))
    return Binade(n, n * (verdict.cls != "correct"), q, n * q, n * q if verdict.sign >= 0 else -n * q)


def quantum(error: float) -> int:
    """An error in units of 2^-16 ULP, at most 2^10 ULP."""
    return int(min(error, CLAMP_ULP) * QUANTUM + 0.5)


def as_judged(outcomes: Sequence[Outcome], device: Any) -> Judged:
    """Outcomes of multiprecision as judgements on tensors, for those who ask about failing elements."""

    def tensor(values: list[Any], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    flags = {name: tensor([False] * len(outcomes), torch.bool) for name in ("open", "different", "closer", "farther")}
    errors = [finite(o.verdict.high) for o in outcomes]
    return Judged(
        region=tensor([REGIONS.index(o.region) for o in outcomes], torch.int64),
        cls=tensor([CLASSES.index(o.verdict.cls) for o in outcomes], torch.int64),
        measured=tensor([measured(o) for o in outcomes], torch.bool),
        error=tensor(errors, torch.float64),
        negative=tensor([o.verdict.sign < 0 for o in outcomes], torch.bool),
        upper=tensor(errors, torch.float64),
        scaled=tensor([finite(o.verdict.scaled) for o in outcomes], torch.float64),
        share=tensor([finite(o.share) for o in outcomes], torch.float64),
        steps=tensor([o.verdict.steps for o in outcomes], torch.int64),
        fails=tensor([o.kind is not None for o in outcomes], torch.bool),
        kind=tensor([-1 if o.kind is None else KINDS.index(o.kind) for o in outcomes], torch.int64),
        lost=tensor([o.lost for o in outcomes], torch.bool),
        unjudged=tensor([o.unjudged for o in outcomes], torch.bool),
        **flags,
    )


def balls_of(found: Enclosure, unit: Tensor | None = None) -> list[tuple[float, float, float, int]]:
    """Midpoint, tail and radius of each element, and the exponent of their unit."""
    tail = torch.zeros_like(found.mid) if found.tail is None else found.tail
    unit = torch.zeros_like(found.mid, dtype=torch.int64) if unit is None else unit
    return list(zip(*(t.expand_as(found.mid).tolist() for t in (found.mid, tail, found.radius, unit)), strict=True))


def require_inside(ball: tuple[float, float, float, int], truth: Truth, fmt: Format, place: str) -> None:
    """Raise OracleViolation unless the truth meets the ball; `place` names the element."""
    mid, tail, rad, unit = ball
    if math.isnan(rad):
        return
    if truth.kind != "real" or not math.isfinite(mid):
        agrees = truth.kind == "real" or rad > 0 or _kind(mid) == truth.kind
        if not agrees and not (truth.kind == "either-zero" and mid == 0):
            raise OracleViolation(f"{place}: the ball says {mid!r}, multiprecision {truth.kind}")
        return
    one = Fraction(2) ** unit
    centre = Fraction(mid) + Fraction(tail)
    limit = Fraction(2) ** (fmt.emax + 2)
    if math.isinf(rad) or abs(centre) * one >= limit or abs(centre) <= Fraction(2) ** -FAR:
        return  # beyond the format, where balls say no more than that
    off = Fraction(rad) + Fraction(2) ** -FAR  # of what is added to a number balls say no more than that
    if truth.hi < (centre - off) * one or truth.lo > (centre + off) * one:
        shown = f"{mid!r} +- {rad!r}" + (f", times 2^{unit}," if unit else "")
        raise OracleViolation(f"{place}: the ball {shown} misses the truth {decimal(truth)}")


def _split(region: Tensor, kind: Tensor, which: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """(region, kind, mask) of each pair that occurs in `which`."""
    for k in region[which].unique().tolist():  # type: ignore[no-untyped-call]
        for j in kind[which & (region == k)].unique().tolist():  # type: ignore[no-untyped-call]
            yield k, j, which & (region == k) & (kind == j)


def _kind(mid: float) -> str:
    if math.isnan(mid):
        return "nan"
    if math.isinf(mid):
        return "+inf" if mid > 0 else "-inf"
    return ("-0" if math.copysign(1, mid) < 0 else "+0") if mid == 0 else "real"
