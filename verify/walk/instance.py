"""One problem of a kernel of rows, products, attention or steps, as a case of the walk."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch

from verify.backends import Backend
from verify.facts.formats import Format
from verify.facts.kernel import Composite, Scalars, Setting, told_apart
from verify.facts.truth import Truth
from verify.families.composite import KEPT, Limit, Part, Problem, Source
from verify.inputs.domains import CHUNK
from verify.inputs.draws import spread
from verify.judge import ledger
from verify.judge.cell import Stated
from verify.judge.chunk import Engine, Excuse, Formulas, digests
from verify.judge.chunk import Source as Elements
from verify.judge.element import Facts
from verify.judge.exact import Allowed, Circumstances, Exact, Key
from verify.judge.identify import Identification, identify
from verify.judge.tally import Fit, Tally
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.numbers import admit
from verify.numbers.decide import Enclosure
from verify.walk.cases import SAMPLE, SMALL, Strata, excuse, format_of
from verify.workers.launch import LoweringError, Outputs, launch_steady, octets

Tensor = torch.Tensor
SAMPLE_FLOAT64 = 256  # elements of a composite kernel's float64 output that are judged, each in multiprecision
OF_CALLS = 16  # the same of one of many calls
TELLING = 2  # of those that are certainly beyond their bound, where one tells the status
#: Elements of a call's float64 output up to which double-double looks for those beyond their bounds, else float64, and
#: those in whole rows that double-double looks at then, about; of those that it leaves open as many go to
#: multiprecision, and OF_CALLS of more.
SCREENED, DRAWN, MOST_DOUBTED = 1 << 14, 1 << 12, 64
LONG = 1 << 12  # of rows beyond this one element a cell is judged again


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
