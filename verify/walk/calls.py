"""Other calls of an elementwise lowering, which must give the bits that the walk's launch gave: an element's result
depends on nothing but the element.

`verify.walk.arrangements.CALLS` is the table of them. A user's own is also called with numbers and Python scalars that
code treats apart (`verify.walk.values`); what that gives is judged by a truth of its own.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from verify import backends
from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import Scalars, told_apart
from verify.inputs.domains import CHUNK
from verify.inputs.draws import spread
from verify.judge.cell import conclude, standing
from verify.judge.chunk import differing, patterns
from verify.judge.element import decide
from verify.judge.status import STATUSES
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.lower.user import importing
from verify.walk.arrangements import (
    AFTER,
    AGAIN,
    CALLS,
    FACTORS,
    GRID,
    LARGE,
    MANNERS,
    MANY,
    MATRIX,
    OWN,
    ROOM,
    SIZE,
    USUAL,
    WHOLE,
    Arranged,
    applied,
    broadcasts,
    drawn_arrangements,
    first_of,
    for_scalars,
    viewed,
)
from verify.walk.called import DEPENDS, Called, Underway, edges, listed, possible, tried
from verify.walk.cases import Terms, terms
from verify.walk.pointwise import Pointwise
from verify.walk.values import (
    SCALARS,
    SCALARS_64,
    drawn_scalars,
    everywhere,
    in_words,
    ranged,
    ranging,
    round_numbers,
    special_numbers,
)
from verify.workers.launch import Begun, LoweringError, bits, launch_steady, octets

Tensor = torch.Tensor
LONG = 1 << 17  # elements of a plain call that the sample's own size does not stand for
OFTEN = 20  # calls after which a lowering is warm
SHOWN = 3  # calls of which it is tried to show one by lines of torch
#: Elements of the walk among which special numbers are looked for, and of how many of each combination they are taken.
EARLY, EACH = 1 << 16, 4
FIRST = 40  # elements of the sample of which none is special
#: A kind of numbers of which calls are made that have no others; with fewer than FEW there is none.
ORDINARY, FEW = "normal numbers", 32
MODERATE = 16.0  # in magnitude, and one over it
AT_ONCE = 1 << 15  # elements that tensors judge at once
ALIGNED = 64  # elements, of which vectors and lines of a cache have whole parts
NEUTRAL = (0.0, 1.0)  # with which nothing is left to compute, unless special numbers are among the others


@dataclass(frozen=True)
class Sample:
    """Elements of the walk's first launch, and the bits that it gave. Tensors of shape (SIZE,). kinds: by name samples
    of other sizes, whose elements are all of one kind."""

    inputs: tuple[Tensor, ...]
    expected: Tensor
    kinds: Mapping[str, Sample] = field(default_factory=dict)

    def to(self, device: str) -> Sample:
        """The same on another device."""
        kinds = {name: one.to(device) for name, one in self.kinds.items()}
        return Sample(tuple(t.to(device) for t in self.inputs), self.expected.to(device), kinds)

    @classmethod
    def of(cls, inputs: Sequence[Tensor], y: Tensor, kinds: bool = False) -> Sample:
        """kinds: with those of ordinary numbers, since code that looks at all of a tensor, or of a block, takes other
        paths where there is nothing else."""
        index = torch.tensor(spread(len(y), SIZE), dtype=torch.int64, device=y.device)
        index = index[torch.arange(SIZE, device=y.device) * 787 % len(index)]  # mixed, or the first were one stratum's
        odd = _odd(inputs)[: SIZE // 2]
        index = torch.cat([odd, index[: SIZE - len(odd)]])
        telling = _telling(y[index])
        telling[: len(odd)] = False
        # first what tells, so that calls of one element are not of a zero; then of three elements two
        count = telling.cumsum(0)
        rank = torch.where(telling, count, FIRST + 2 * (torch.arange(1, SIZE + 1, device=y.device) - count))
        index = index[torch.argsort(rank, stable=True)]
        apart = {name: where.nonzero()[:ROOM, 0] for name, where in _kinds(inputs, y)} if kinds else {}
        apart = {name: _mixed(places, inputs, y) for name, places in apart.items() if len(places) >= FEW}
        held = {name: cls(tuple(t[places] for t in inputs), y[places]) for name, places in apart.items()}
        return cls(tuple(t[index] for t in inputs), y[index], held)


def _mixed(places: Tensor, inputs: Sequence[Tensor], y: Tensor) -> Tensor:
    """In another order, since in a domain's own an input may be one number for hundreds of elements; first those of
    moderate inputs whose result is none of these: in whatever pairs they meet, each of them tells."""
    step = next(prime for prime in (787, 797) if len(places) % prime)
    mixed = places[torch.arange(len(places), device=places.device) * step % len(places)]
    mute = torch.zeros_like(mixed, dtype=torch.bool)
    for t in inputs:
        size = t[mixed].abs()
        mute |= (size > MODERATE) | (size < 1 / MODERATE) | (y[mixed] == t[mixed])
    found: Tensor = mixed[torch.argsort(mute.to(torch.uint8), stable=True)]
    return found


def _telling(y: Tensor) -> Tensor:
    """Which results show an error: normal numbers, but for those that many inputs have, such as 1 of a sigmoid."""
    _, which, counts = torch.unique(bits(y), return_inverse=True, return_counts=True)
    found: Tensor = y.isfinite() & (y.abs() >= torch.finfo(y.dtype).smallest_normal) & (counts[which] <= EACH)
    return found


def _odd(inputs: Sequence[Tensor]) -> Tensor:
    """Places of elements with infinities, NaNs or zeros, a few of each combination, among those that come first; one of
    each before others, of one input before those of several."""
    kind = torch.zeros(min(len(inputs[0]), EARLY), dtype=torch.int64, device=inputs[0].device)
    several = torch.zeros_like(kind)
    for whole in inputs:
        t = whole[: len(kind)]
        special = torch.where(t.isinf(), 1, torch.where(t.isnan(), 2, torch.where(t == 0, 3, 0)))
        kind = kind * 8 + special * 2 + (torch.signbit(t) & (special > 0) & ~t.isnan())
        several += special > 0
    ordered, places = torch.sort(kind, stable=True)
    _, counts = torch.unique_consecutive(ordered, return_counts=True)
    within = torch.arange(len(kind), device=kind.device) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    found = (ordered > 0) & (within < EACH)
    order = within * (len(inputs) + 1) + several[places]
    return places[found][torch.argsort(order[found], stable=True)]


def _kinds(inputs: Sequence[Tensor], y: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Kinds of elements by name, and which are of them."""
    least = torch.finfo(y.dtype).smallest_normal
    every = torch.ones_like(y, dtype=torch.bool)
    finite, normal, positive, negative = y.isfinite(), every, every, every
    for t in inputs:
        finite = finite & t.isfinite()
        normal = normal & (t.abs() >= least)
        positive, negative = positive & (t > 0), negative & (t < 0)
    yield "finite numbers", finite
    for most in (math.inf, 2.0**12, 2.0**6, 2.0**3):
        within = finite & normal
        for t in inputs if math.isfinite(most) else ():
            within = within & (t.abs() <= most) & (t.abs() >= 1 / most)
        told = f" within 2^{math.frexp(most)[1] - 1}" if math.isfinite(most) else ""
        yield f"{ORDINARY}{told}", within
        yield f"positive {ORDINARY}{told}", within & positive
        yield f"negative {ORDINARY}{told}", within & negative


@dataclass(frozen=True)
class _One:
    """A call that gave other bits: flat inputs and output, what this should be, and the first place; y is None where
    it broke the contract in the way that `broken` says. note: what is added to it."""

    given: tuple[Tensor, ...]
    y: Tensor | None
    expected: Tensor
    place: int = 0
    broken: str = ""
    note: str = ""

    @property
    def digest(self) -> str:
        return "" if self.y is None else hashlib.sha256(octets(self.y).cpu().numpy().tobytes()).hexdigest()[:8]

    def told(self, fmt: Format) -> str:
        if self.y is None:
            return self.broken + self.note
        *given, got, due = (
            fmt.hex(patterns(t[self.place :][:1], fmt)[0]) for t in (*self.given, self.y, self.expected)
        )
        return f"{', '.join(given)} -> {got}, plain {due}{self.note}"


def call_all(
    case: Pointwise, target: Target, lowering: Lowering, call: Callable[..., Any], reference: Lowering | None,
    sample: Sample, *, mine: bool = True, scalars: bool = True,
) -> Called:  # fmt: skip
    """Make every call of the table with the lowering, built as `call`, whose results are to be those of the sample.

    reference: the registered lowering; a dependence that it shares is reported, and is no fault within the bound. mine:
    the lowering is a user's own; a dependence of registered ones within the bound is only reported. scalars: it is
    to take other Python scalars than the case's.
    """
    if getattr(call, "isolated", False):  # its process has inputs of its own; of few elements the host knows sooner
        case, sample = case.there("cpu"), sample.to("cpu")
    table = dict(WHOLE if lowering.each_shape else _suited(sample, call, target, mine))
    usual = set(table)  # rather shown than those that are drawn
    samples = {f"{name} alone": one for name, one in sample.kinds.items()}
    if mine and not lowering.each_shape:
        table |= dict(drawn_arrangements(len(sample.inputs), case.inputs.seed)) | dict.fromkeys(
            samples, Arranged("t.clone()")
        )
        alike = _alike_cases(target)
        neutral = bool(alike) and {*alike[0].values()} == {1.0}  # with which code takes a path of its own
        if len(sample.inputs) > 1 and dict(target.scalars) not in alike[1 + neutral :]:
            table |= {**dict(broadcasts(len(sample.inputs))), **dict(viewed(len(sample.inputs)))}
    begin: dict[str, Callable[[], Underway[_One | _Doubted] | None]]
    of = {name: samples.get(name, sample) for name in table}
    paired = {name: (one, of[name]) for name, one in table.items() if one.how in ("same", "pairs")}
    plain = _Plain(call, paired, target, lowering.name)
    begin = {
        name: partial(_calling, call, one, of[name], target, lowering.name, partial(plain.of, name))
        for name, one in table.items()
    }
    if mine:
        begin |= _judged_calls(case, target, lowering, call, reference, sample, scalars)
    found, wrong = tried(begin, lambda name: f"{name}, {table[name]}" if name in table else name, call, _sifted)
    if not wrong or found.told:
        return found
    found = replace(found, bits={name: one.digest for name, one in wrong.items() if one.y is not None})
    judged = [f"called with {name}: {wrong.pop(name).broken}" for name in [*wrong] if name not in table]
    more = [f"and {len(judged) - SHOWN} more calls that are judged"] if len(judged) > SHOWN else []
    beyond = "; ".join((*judged[:SHOWN], *more))
    if not wrong:
        return replace(found, status="exceeds-bound", told=beyond)
    samples[""] = sample
    if mine and not beyond and reference and _alike(reference, target, samples, table, wrong):
        told = f"bits depend on the call, and are those of {reference.name} in each: {listed(wrong)}"
        return replace(found, excused=told)
    given = [one for one in wrong.values() if one.y is not None]
    kept, exceeds = _within(case, target, lowering, given, mine) if given else (True, False)
    within = kept and len(given) == len(wrong)
    known = reference
    if beyond:
        reference = None  # nothing is excused beside it
    if within and not mine:
        return replace(found, excused=DEPENDS)
    if within and reference is not None and _depends(reference, target, sample, {k: table[k] for k in wrong}):
        told = f"bits depend on the call, as those of {reference.name} do, and keep their bound: {listed(wrong)}"
        return replace(found, excused=told)
    order = sorted(wrong, key=lambda key: (key not in usual, len(wrong[key].expected)))
    if mine and exceeds:  # an example is no call in which the bound is kept, nor one with the known lowering's own bits
        for key in order:
            place = _first_beyond(case, target, lowering, wrong[key])
            if place is not None and not (known and _alike(known, target, samples, table, {key: wrong[key]})):
                wrong[key] = replace(wrong[key], place=place)
                order = [key, *(other for other in order if other != key)]
                break
    name = order[0]
    what = "give other bits than the plain call" if given else "fail"
    what += ", beyond the bound" if exceeds else ", within the bound" if given and kept else ""
    told = (
        f"{len(wrong)} of {found.made} calls {what}; "
        f"the smallest: {name}, {table[name]}: {wrong[name].told(FORMATS[target.dtype])}"
    )
    told = "; ".join(filter(None, (told, beyond)))
    first = order[:SHOWN] if mine else []
    first += [AGAIN] if mine and AGAIN in table else []  # which shows what is kept of other numbers
    scripts = (
        _script(call, table[k], samples.get(k, sample), wrong.get(k, wrong[name]), target, lowering) for k in first
    )
    script = next(filter(None, scripts), "")
    status = "exceeds-bound" if exceeds or beyond else "unsteady"
    return replace(found, status=status, told=told, script=script)


def _suited(
    sample: Sample, call: Callable[..., Any], target: Target, mine: bool = False
) -> Iterator[tuple[str, Arranged]]:
    for name, one in {**CALLS, **(OWN if mine else {})}.items():
        if (len(sample.inputs) > 1 or not one.others) and possible(one.how, call, target):
            yield name, one
    for n in sorted({*edges(call), *(LARGE if mine else ())}):
        if f"{n} elements" not in CALLS:
            # the first elements, which tell, come last: beyond the edge
            yield f"{n} elements", Arranged(f"{first_of(n)}.flip(0)")


def _given(arranged: Arranged, sample: Sample) -> list[Tensor]:
    inputs = [sample.inputs[0]] * len(sample.inputs) if arranged.how == "same" else sample.inputs
    return [applied(arranged.of(k), t) for k, t in enumerate(inputs)]


class _Plain:
    """What a lowering gives in the plain call for the inputs of calls, by name, whose elements do not meet as in the
    walk's launch: of as many as have ROOM elements in one launch, each at a multiple of `aligned`."""

    def __init__(
        self, call: Callable[..., Any], calls: Mapping[str, tuple[Arranged, Sample]], target: Target, name: str,
        aligned: int = ALIGNED,
    ) -> None:  # fmt: skip
        self.call, self.target, self.name, self.aligned = call, target, name, aligned
        self.waiting, self.found = dict(calls), dict[str, Tensor]()

    def of(self, name: str) -> Tensor:
        """The flat output for one of them, to be asked once."""
        if name not in self.found:
            self._launch(name)
        return self.found.pop(name)

    def _launch(self, first: str) -> None:
        """Of that one, and of those that follow, unless they are refused together."""
        some, count = dict[str, list[Tensor]](), 0
        for name in itertools.dropwhile(first.__ne__, self.waiting):
            flat = _flat(_given(*self.waiting[name]))
            count += len(flat[0])
            if some and count > ROOM:
                break
            some[name] = flat
        try:
            self.found |= self._outputs(some)
        except (LoweringError, NotLowered):
            if len(some) == 1:
                raise
            some = {first: some[first]}
            self.found |= self._outputs(some)
        finally:
            for name in some:
                del self.waiting[name]

    def _outputs(self, some: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
        """By name, of flat inputs."""
        sizes = {name: len(flat[0]) for name, flat in some.items()}
        room = [size + -size % self.aligned for size in sizes.values()]
        pad, each = torch.nn.functional.pad, zip(some.values(), room, strict=True)
        padded = ([pad(t, (0, n - len(t))) for t in flat] for flat, n in each)
        given = [torch.cat(parts) for parts in zip(*padded, strict=True)]
        y = launch_steady(self.call, given, self.target.backend, self.name, repeats=1).output.clone()  # its own memory
        return {name: part[: sizes[name]] for name, part in zip(some, torch.split(y, room), strict=True)}


def _flat(given: Sequence[Tensor]) -> list[Tensor]:
    """Inputs of the broadcast shape, one-dimensional."""
    shape = np.broadcast_shapes(*(t.shape for t in given))
    return [t.expand(shape).reshape(-1) for t in given]


def _called(
    call: Callable[..., Any], arranged: Arranged, sample: Sample, target: Target, name: str, usual: str = USUAL
) -> _One | None:  # fmt: skip
    """Make the call; None where it gives the bits that it should. usual: the manner of one that has none."""
    plain = _Plain(call, {"": (arranged, sample)}, target, name, aligned=1)  # as scripts have it
    return _calling(call, arranged, sample, target, name, lambda: plain.of(""), usual).end()


def _calling(
    call: Callable[..., Any], arranged: Arranged, sample: Sample, target: Target, name: str,
    plain: Callable[[], Tensor], usual: str = USUAL,
) -> Underway[_One]:  # fmt: skip
    """The call, under way; its result as of `_called`. plain: the flat output of the plain call, where that is none of
    the walk's."""
    given = _given(arranged, sample)
    shape, flat = np.broadcast_shapes(*(t.shape for t in given)), tuple(_flat(given))
    if arranged.how in ("same", "pairs"):
        due = plain()
    else:
        due = applied(arranged.first, sample.expected).expand(shape).reshape(-1)

    def begun(how: str) -> Begun:
        with getattr(call, "manner", nullcontext)(how):
            return Begun(call, given, target.backend, name)

    def ended(launch: Begun, how: str) -> _One | None:
        try:
            y = launch.result()[""].reshape(-1)
        except LoweringError as error:
            if error.kind != "contract" or (arranged.how in MANNERS and not arranged.others):
                raise
            return _One(flat, None, due, broken=str(error))  # of broadcast inputs it may be the shape
        if how == "outputs":  # where what is compiled may run as it is written
            return None
        different = differing(y, due)
        return _One(flat, y, due, int(different.to(torch.uint8).argmax())) if bool(different.any()) else None

    def end() -> _One | None:
        found = ended(first, how)
        if found is None or arranged.how in MANNERS or not (usual and hasattr(call, "manner")):
            return found
        return ended(begun(""), "") or replace(found, note=f" {AFTER}")

    how = arranged.how if arranged.how in MANNERS else usual
    first = begun(how)
    return Underway(end, first.drop)


def _judged_calls(
    case: Pointwise, target: Target, lowering: Lowering, call: Callable[..., Any], reference: Lowering | None,
    sample: Sample, free: bool,
) -> dict[str, Callable[[], Underway[_One | _Doubted] | None]]:  # fmt: skip
    """Calls that are judged by a truth of their own: with round numbers, and, in the first case of its kind, with other
    Python scalars, usual ones and drawn ones (`free`: it is to take them), as far as its signature has them."""
    facts, scalars = target.kernel, dict(target.scalars)
    arity = len(sample.inputs)
    numbers = round_numbers(sample.expected, arity)
    found: dict[str, Callable[[], Underway[_One | _Doubted] | None]]
    judged = partial(_judging, case, target, lowering, call, reference)
    found = {"round numbers": partial(judged, numbers)}
    for place, name in enumerate(target.kernel.tensors(scalars)):  # code looks for what is the same everywhere
        same = [torch.full_like(t, 0.7) if k == place else t for k, t in enumerate(sample.inputs)]
        found[f"one number as {name}"] = partial(judged, same)
    # in a first case of these scalars, and in one more, since a factor of 1 does not show
    alike = _alike_cases(target)[:2]
    if scalars not in alike:
        return found
    special = special_numbers(sample.expected, arity)
    drawn = [torch.cat(both) for both in zip(sample.inputs, special, strict=True)]
    found |= {name: partial(judged, *given) for name, given in everywhere(target, drawn)}
    found |= {name: partial(judged, given) for name, given in ranged(target, drawn, case.inputs.seed)}
    if not free or scalars != alike[0]:
        return found
    ordinary = sample.kinds.get(ORDINARY)
    ordinary = ordinary if ordinary and len(ordinary.expected) >= SIZE else None
    listed = (*SCALARS, *(SCALARS_64 if target.dtype == "float64" else ()))
    usual: list[Scalars] = [{name: value} for name in scalars for value in (*listed, *facts.apart.get(name, ()))]
    usual += [one for one in facts.cases if one.keys() == scalars.keys()]
    usual += ranging(scalars, case.inputs.seed)
    for place, given in enumerate((*usual, drawn_scalars(scalars, case.inputs.seed))):
        other = {**scalars, **given}
        if not any(spelling.applies(other) for spelling in facts.spellings.values()):
            continue
        on = replace(target, scalars=other)
        on = replace(on, spelling=on.default_spelling)
        apart = Pointwise(facts, other, target.dtype, target.backend, case.inputs).there(case.device)
        label = " ".join(f"{name}={in_words(value)}" for name, value in given.items())
        judged_too = facts.cases[: facts.quick_cases or None]  # of the others none is in a quick run
        if told_apart(other) not in map(told_apart, judged_too) or any(
            isinstance(value, int) for value in given.values()
        ):
            found[label] = partial(_fitting, apart, on, lowering, None, reference, drawn)
        for one in (*for_scalars(given, arity, place), *[MATRIX] * bool(set(given.values()) & {*FACTORS})):
            of = drawn[:1] * arity if one.how == "same" else ordinary.inputs if ordinary else drawn
            passed = [applied(one.of(k), t) for k, t in enumerate(of)]
            period = len(of[0]) if one in (MANY, GRID) else 0
            if period:
                passed = [_ended(t) for t in passed]
            shape = np.broadcast_shapes(*(t.shape for t in passed))
            every = [t.expand(shape).reshape(-1) for t in passed]
            name = f"{label}, {one}{f', {one.how}' if one.how else ''}"
            found[name] = partial(_fitting, apart, on, lowering, None, reference, every, passed, period, one.how)
        if ordinary and set(given.values()) & {*NEUTRAL}:
            some = [t[:SIZE] for t in ordinary.inputs]
            found[f"{label}, {ORDINARY} alone"] = partial(_fitting, apart, on, lowering, None, reference, some)
    return found


def _ended(t: Tensor) -> Tensor:
    """With moderate numbers of its own at the end, where vectors have a rest: many functions of others overflow."""
    some = t[(t.abs() >= 0.25) & (t.abs() <= 4.0)][:ALIGNED]
    return torch.cat([t[: len(t) - len(some)], some])


def _alike_cases(target: Target) -> list[Scalars]:
    """The kernel's cases that have the scalars of the target's."""
    return [one for one in target.kernel.cases if one.keys() == target.scalars.keys()]


def _fitting(*given: Any) -> Underway[_One | _Doubted] | None:
    """`_judging`, where the signature fits."""
    try:
        begun = _judging(*given)
    except NotLowered:
        return None

    def end() -> _One | _Doubted | None:
        try:
            return begun.end() if begun else None
        except NotLowered:
            return None

    return Underway(end, begun.drop) if begun else None


def _judging(
    case: Pointwise, target: Target, lowering: Lowering, call: Callable[..., Any] | None, reference: Lowering | None,
    given: Sequence[Tensor], passed: Sequence[Tensor] | None = None, period: int = 0, how: str = "",
) -> Underway[_One | _Doubted] | None:  # fmt: skip
    """A call, under way, whose elements are to keep their bound, or to have eager's bits; its result is what may be
    wrong with it. call: as built; None: to be built. passed: what is passed for the inputs `given`, which it is
    broadcast to. period: after how many elements the inputs repeat themselves, but for the last ALIGNED; those that
    have the same bits again are not judged again. how: the manner, if it is one of MANNERS."""
    eager = case.on(given).eager(0, reference, target) if reference else None
    if reference and eager is None and call is None:
        return None  # eager refuses the scalars, as it does on a GPU what 16 bits do not hold
    call = call or lowering.build(target)
    with getattr(call, "manner", nullcontext)(how if how in MANNERS else ""):
        launch = Begun(call, passed or given, target.backend, lowering.name)

    def end() -> _One | _Doubted | None:
        try:
            y = launch.result()[""].reshape(-1)
        except LoweringError as error:
            if error.kind != "contract" or passed is None:
                raise
            return _One(tuple(given), None, given[0], broken=str(error))
        one = given
        if eager is not None:
            at = differing(y, eager[""].reshape(-1))
            if reference and passed is not None and bool(at.any()):  # eager may take another path for these, too
                own = launch_steady(reference.build(target), passed, target.backend, reference.name, repeats=1)
                at &= differing(y, own.output.reshape(-1))
            if period:
                place = torch.arange(len(y), device=y.device)
                again = ~differing(y, y[place % period])
                again[:period], again[-ALIGNED:] = False, False
                at &= ~again
            one, y = [t[at] for t in given], y[at]
        return _Doubted(case, target, lowering, tuple(one), y) if len(y) else None

    return Underway(end, launch.drop)


@dataclass(frozen=True)
class _Doubted:
    """Elements of a call of which it is not yet known whether they keep their bound: inputs and outputs (n,)."""

    case: Pointwise
    target: Target
    lowering: Lowering
    given: tuple[Tensor, ...]
    y: Tensor

    def left(self) -> Iterator[_Doubted]:
        """The elements of which tensors do not tell it at once, in parts that stay in the processor's cache."""
        for *given, y in zip(*(torch.split(t, AT_ONCE) for t in (*self.given, self.y)), strict=True):
            stated, found = terms(self.case.on(given), self.target, self.lowering, 0, "", y, user=True)
            if stated is not None and bool((doubted := _doubted(found.values(), y)).any()):
                yield replace(self, given=tuple(t[doubted] for t in given), y=y[doubted])

    def wrong(self) -> _One | None:
        """What is wrong with them."""
        if not (parts := [*self.left()]):
            return None
        one, judged = _together(parts), []
        on = self.case.on(one.given)
        stated, found = terms(on, self.target, self.lowering, 0, "", one.y, user=True)
        assert stated is not None
        for term in found.values():
            index = term.elements.picked(one.y)
            tally = term.judge.rest(term.elements, index, one.y, None, on.formulas(0, "", one.y), settled=False)
            judged.append((STATUSES.index(standing(tally)), term, tally))
        status, term, tally = max(judged, key=lambda one: one[0])  # by the kinder truth of the scalars
        if STATUSES[status] != "exceeds-bound":
            return None
        records = term.reader.regions(tally, stated)
        concluded = conclude(records)
        worst = next(r["worst"] for r in records.values() if r["status"] == "exceeds-bound")
        told = "".join(f", such as {', '.join(one['inputs'])} -> {one['output']}" for one in worst[:1])
        return _One(one.given, None, one.y, broken=concluded["reason"] + told)


def _together(some: Sequence[_Doubted]) -> _Doubted:
    """The elements of calls with the same scalars."""
    inputs = zip(*(one.given for one in some), strict=True)
    return replace(some[0], given=tuple(map(torch.cat, inputs)), y=torch.cat([one.y for one in some]))


def _sifted(given: dict[str, _One | _Doubted]) -> dict[str, _One]:
    """Those that are wrong. What is doubted of calls with the same scalars is judged together, which takes hardly
    longer than of one of them, and apart where something is wrong."""
    alike: dict[str, list[_Doubted]] = {}
    for one in given.values():
        if isinstance(one, _Doubted):
            alike.setdefault(repr(one.target.scalars), []).append(one)
    right = {id(one) for some in alike.values() if len(some) > 1 and not _together(some).wrong() for one in some}
    found = {k: one.wrong() if isinstance(one, _Doubted) else one for k, one in given.items() if id(one) not in right}
    return {k: one for k, one in found.items() if one is not None}


def _within(
    case: Pointwise, target: Target, lowering: Lowering, wrong: Sequence[_One], mine: bool
) -> tuple[bool, bool]:  # fmt: skip
    """Whether the elements that differ in calls are what they may be, and whether some are not, of as many as a chunk:
    a user's own as in the plain call, a registered lowering's also as in a layout of its own, which another path
    serves."""
    given, parts = [], []
    for one in wrong:
        assert one.y is not None
        at = bits(one.y).ne(bits(one.expected)).nonzero()[:, 0]
        given.append([t[at] for t in one.given])
        parts.append(one.y[at])
    on, y = [torch.cat(of)[:CHUNK] for of in zip(*given, strict=True)], torch.cat(parts)
    spellings = target.kernel.spellings.items()
    layouts = () if mine else (name for name, s in spellings if s.layout and s.applies(target.scalars))
    targets = (replace(target, spelling=name) for name in (target.spelling, *layouts))
    kept = any(_keeps(case.on(on), one, lowering, y[:CHUNK], mine) for one in targets)
    return kept and len(y) <= CHUNK, not kept


def _first_beyond(case: Pointwise, target: Target, lowering: Lowering, one: _One) -> int | None:
    """The first place of a call of a user's own at which it is not what it may be; None where there is none."""
    if one.y is None or not _within(case, target, lowering, [one], True)[1]:
        return None
    at = bits(one.y).ne(bits(one.expected)).nonzero()[:CHUNK, 0]
    _, on = terms(case.on([t[at] for t in one.given]), target, lowering, 0, "", one.y[at], user=True)
    return int(at[_doubted(on.values(), one.y[at]).to(torch.uint8).argmax()])


def _keeps(case: Pointwise, target: Target, lowering: Lowering, y: Tensor, mine: bool) -> bool:
    """Each of the elements by one truth of the scalars, which tensors tell at once of nearly all, or all by one."""
    stated, on = terms(case, target, lowering, 0, "", y, user=mine)
    if stated is None:
        return False
    if not bool(_doubted(on.values(), y).any()):
        return True
    each = (term.reader.regions(term.judge.tally(term.elements, y), stated) for term in on.values())
    return any(conclude(records)["status"] in ("passed", "deviates") for records in each)


def _doubted(on: Iterable[Terms], y: Tensor) -> Tensor:
    """Which elements tensors do not tell at once to keep the bound, by whichever truth of the scalars."""
    doubted = torch.ones_like(y, dtype=torch.bool)
    for term in on:
        facts = term.elements.facts(None, y, double=term.judge.fmt.bits == 64, zeroed=True)
        judged = decide(y, facts, term.judge.fmt, term.judge.limits)
        doubted &= judged.fails | judged.open
    return doubted


def _alike(
    reference: Lowering, target: Target, samples: Mapping[str, Sample], table: Mapping[str, Arranged],
    wrong: Mapping[str, _One],
) -> bool:  # fmt: skip
    """Whether the reference gives the same bits for the inputs of every one of these calls, as they lie there, and in
    the plain call beside it, where that is none of the walk's."""
    if reference.reason(target) or any(one.y is None for one in wrong.values()):
        return False
    call = reference.build(target)

    def gives(y: Tensor, due: Tensor | None) -> bool:
        return due is not None and not bool(differing(y.reshape(-1), due).any())

    of = {name: (table[name], samples.get(name, samples[""])) for name in wrong}
    plain = _Plain(call, of, target, reference.name)
    return all(
        gives(launch_steady(call, _given(*of[name]), target.backend, reference.name, repeats=1).output, one.y)
        and (table[name].how not in ("same", "pairs") or gives(plain.of(name), one.expected))
        for name, one in wrong.items()
    )


def _depends(reference: Lowering, target: Target, sample: Sample, wrong: Mapping[str, Arranged]) -> bool:
    """Whether the bits of the reference depend on the call: on one of those that are wrong, or on another."""
    if reference.reason(target):
        return False
    call = reference.build(target)
    whole = launch_steady(call, [t.repeat(LONG // SIZE) for t in sample.inputs], target.backend, reference.name)
    own = Sample(sample.inputs, whole.output[:SIZE])
    calls = (*wrong.values(), *(one for _, one in _suited(own, call, target)))
    return any(_called(call, one, own, target, reference.name) for one in calls if one.how not in MANNERS)


# A script that shows it.


def _script(call: Any, arranged: Arranged, sample: Sample, one: _One, target: Target, lowering: Lowering) -> str:
    """At most ten lines of torch that show, in a process of their own, that a call has other bits, with data as simple
    as still shows it: some elements over and over. '' where none does."""
    # no line of torch says what lies in other memory, some need more lines than there are, and no element no number
    if arranged.how in ("guard", "stream", "zeros", "threads", "default", "grad_parameter") or not len(one.expected):
        return ""
    if backends.virtual(target.backend):  # nor are launches on a device that is not there
        return ""
    if not importing(lowering.text, ""):
        return ""
    for often, period, size in ((1, 1, SIZE), (1, 7, SIZE), (1, 1, LONG), (OFTEN, 1, SIZE), (OFTEN, 7, SIZE)):
        both = zip(one.given, sample.inputs, strict=True)
        chosen = [torch.cat([t[one.place :][:1], others[: period - 1]]) for t, others in both]
        data = [t.repeat(-(-size // period))[:size] for t in chosen]
        getattr(call, "restart", lambda: None)()
        try:
            plain = launch_steady(call, data, target.backend, lowering.name, repeats=1).output
            for _ in range(often):
                if _called(call, arranged, Sample(tuple(data), plain), target, lowering.name, usual=""):
                    return _written(arranged, data, period, often, target, lowering)
        except (LoweringError, NotLowered):
            continue
    return ""


def _written(
    arranged: Arranged, data: Sequence[Tensor], period: int, often: int, target: Target, lowering: Lowering
) -> str:  # fmt: skip
    fmt, names = FORMATS[target.dtype], target.kernel.tensors(target.scalars)
    function = lowering.name.rpartition(":")[2]
    device = "" if target.backend.device == "cpu" else f", device={target.backend.device!r}"
    same, joined = arranged.how == "same", arranged.how in ("same", "pairs")
    lines = [importing(lowering.text, "concurrent.futures, torch")]
    for name, t in zip(names, data[:1] if same else data, strict=not same):
        values = ", ".join(f'"{fmt.hex(p)}"' for p in patterns(t[:period], fmt))
        made = f"torch.tensor([float.fromhex(x) for x in ({values},)], dtype=torch.{target.dtype}{device})"
        lines.append(f"{name} = {made}.repeat({-(-len(t) // period)})[:{len(t)}]")
    given = {name: re.sub(r"(?<![.])\bt\b", names[0] if same else name, arranged.of(k)) for k, name in enumerate(names)}
    first = next(iter(given))
    each = {how: {*given} for how in ("grad", "no_grad", "grad_computed")}
    wanting = {**each, "grad_first": {first}, "grad_others": {*given} - {first}}.get(arranged.how, set())
    made = "{}.requires_grad_()" if arranged.how != "grad_computed" else "torch.ops.aten.alias({}.requires_grad_())"
    given = {name: made.format(text) if name in wanting else text for name, text in given.items()}
    plain = {name: f"both[{k}].flatten().clone()" for k, name in enumerate(names)} if joined else {n: n for n in names}
    listed, alone = (
        f"{function}({', '.join(one.get(name) or repr(target.scalars[name]) for name in target.kernel.inputs)})"
        for one in (given, plain)
    )
    if joined:
        lines.append(f"both = torch.broadcast_tensors({', '.join(given.values())})")
    lines.append(f"plain = {alone}.view(both[0].shape)" if joined else f"t = {alone}; plain = {arranged.first}")
    called = listed
    if arranged.how == "again":
        lines.append(f"for t in ({', '.join(names)},): t.copy_({arranged.first})")
        called = alone
    if arranged.how == "inside":
        lines += [f"{', '.join(names)}, = ({', '.join(given.values())},); {alone}; n = len({first}) // 2"]
        lines += [f"for t in ({', '.join(names)}, plain): t[n - 2:n + 3] = t[n - 2:n + 3].flip(0)"]
        called = alone
    if arranged.how == "out":
        called = f"{called.removesuffix(')')}, out=torch.empty_like(plain))"
    if arranged.how == "thread":
        called = f"concurrent.futures.ThreadPoolExecutor().submit(lambda: {called}).result()"
    mode = {"no_grad": "no_grad", "inference": "inference_mode"}.get(arranged.how)
    mode = "enable_grad" if arranged.how.startswith("grad") else mode
    called = f"y = {called}{'.detach()' if mode else ''}"
    called = called if often == 1 else f"for _ in range({often}): {called}"
    called = f"with torch.{mode}():\n    {called}" if mode else called
    integers, some = str(bits(data[0]).dtype), "[n - 2:n + 3]" if arranged.how == "inside" else ""
    shown = f"t.where(t == t, 7).contiguous().view({integers}).flatten(){some}"
    lines += [called, f"print('this call, the plain one:', *({shown} for t in (y, plain.expand(y.shape))))"]
    text = "\n".join(lines)
    return text if arranged.how == "thread" else text.replace("concurrent.futures, ", "", 1)
