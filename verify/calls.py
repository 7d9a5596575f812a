"""Other calls of an elementwise lowering, which must give the bits that the walk's launch gave: an element's result
depends on nothing but the element.

`CALLS` is the table of them. Its expressions arrange an input of SIZE elements; the same expression of the output is
what is expected, so that a call that fails is shown in a few lines of torch. A user's own is also called with numbers
and Python scalars that code treats apart; what that gives is judged by a truth of its own.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from verify.cases import Pointwise, terms
from verify.domains import CHUNK
from verify.draws import spread
from verify.formats import FORMATS, Format
from verify.judge.cell import conclude
from verify.judge.chunk import patterns
from verify.judge.element import decide
from verify.judge.status import STATUSES
from verify.kernel import Scalars
from verify.launch import LoweringError, bits, launch_steady
from verify.lowerings import Lowering, NotLowered, Target

Tensor = torch.Tensor
T = TypeVar("T")
SIZE = 1280  # elements of the sample
#: Of a processor, in which all calls of a lowering are made, or some are not: each shape may be compiled anew. Other
#: work on the machine does not decide which are made, but for LONGEST, seconds of the clock.
SECONDS, LONGEST = 20.0, 100.0
LONG = 1 << 17  # elements of a plain call that the sample's own size does not stand for
OFTEN = 20  # calls after which a lowering is warm
#: Sizes of a user's own at which code begins to take other paths; the walk's portions are all powers of two.
LARGE = (4097, 65536, 65537, (1 << 20) + 1)
#: Of a lowering in a process of its own, see `verify.workers.Launch.manner`.
MANNERS = ("guard", "outputs", "thread", "late", "kept", "stream", "zeros", "grad", "no_grad", "inference")
#: The call of which it is told at the end whether more was written.
LATER = "what is written later"
#: Numbers that people write, and code treats apart, the most usual first: of several inputs every combination.
ROUND = (
    0, 1, 2, 3, 0.5, 10, 4, 1.5, 5, 0.25, 7, 100, 0.1, 6, 8, 9, math.pi, 1000, 1 / 3, math.e, 2.5, 0.75, 255, 256, 17,
    12, 16, 32, 64, 0.01, 127, 1024,
)  # fmt: skip
#: Of one input: also small multiples of what is round, and what lies beside powers of two.
ROUNDER = (
    *range(513), *(k / 8 for k in range(128)), *(k / 10 for k in range(128)), *(k * math.pi / 4 for k in range(1, 65)),
    *(k * math.log(2) / 2 for k in range(1, 65)), *(2**k + d for k in range(9, 25) for d in (-1, 0, 1)),
    *(2.0**-k for k in range(1, 25)), *(10.0**k for k in range(-9, 10)), *(k / 3 for k in range(1, 30)),
)  # fmt: skip
PAIRS = 1 << 12  # combinations of them at most
SCALARS = (0.0, -1.0, 2.0, 0.5)  # that a Python scalar may be too, beside those of the cases


@dataclass(frozen=True)
class Arranged:
    """`first` arranges the first input and `others` the others (the same way: ''), as expressions of t: contiguous,
    one-dimensional, SIZE elements. `several`: only for kernels of two tensors or more. `how`: what else is other than
    in the plain call, one of MANNERS; 'same': all are made of the first input, in its memory; 'pairs': other elements
    meet than in the plain call."""

    first: str
    others: str = ""
    several: bool = False
    how: str = ""


#: By name. A call of several inputs pairs the elements that the plain call paired.
CALLS: Mapping[str, Arranged] = {
    # first: what is written elsewhere in other calls may end the process before it is seen
    "guards around 1 output": Arranged("t[:1].clone()", how="outputs"),
    "guards around 1025 outputs": Arranged("t[:1025].clone()", how="outputs"),
    **{f"{n} elements": Arranged(f"t[:{n}].clone()") for n in (0, 1, 2, 3, 31, 33, 1023, 1025, SIZE)},
    "new data at the same address": Arranged(f"t[:{SIZE}].flip(0)", how="again"),
    "other neighbours": Arranged(f"t[torch.arange({SIZE}, device=t.device) // 2 * 2]"),
    "0 dimensions": Arranged("t[3].clone()"),
    "2 dimensions": Arranged("t[:35].view(5, 7).clone()"),
    "3 dimensions": Arranged("t[:1001].view(7, 11, 13).clone()"),
    "4 dimensions": Arranged("t[:210].view(2, 3, 5, 7).clone()"),
    "5 dimensions": Arranged("t[:210].view(2, 1, 3, 5, 7).clone()"),
    "7 dimensions": Arranged("t[:1260].view(2, 1, 3, 5, 7, 2, 3).movedim(0, 4)"),
    "transposed": Arranged("t[:1056].view(32, 33).t()"),
    "permuted": Arranged("t[:1001].view(7, 11, 13).permute(2, 0, 1)"),
    "every other": Arranged("t[:1024:2]"),
    "sliced": Arranged("t[3:1000:7]"),
    "sliced matrix": Arranged("t[:1056].view(32, 33)[1:, 3:20]"),
    "misaligned": Arranged("t[1:1024]"),
    "expanded": Arranged("t[:33].view(33, 1).expand(33, 31)"),
    "expanded rows": Arranged("t[:33].expand(31, 33)"),
    "expanded from one": Arranged("t[5].expand(100)"),
    "channels last": Arranged("t[:480].view(2, 3, 8, 10).contiguous(memory_format=torch.channels_last)"),
    "the first transposed": Arranged("t[:1056].view(33, 32).t()", "t[:1056].view(33, 32).t().contiguous()", True),
    "the others transposed": Arranged("t[:1056].view(33, 32).t().contiguous()", "t[:1056].view(33, 32).t()", True),
    "the first broadcast": Arranged("t[:33].view(33, 1)", "t[:33].view(33, 1).expand(33, 31).contiguous()", True),
    "the others broadcast": Arranged("t[:33].view(33, 1).expand(33, 31).contiguous()", "t[:33].view(33, 1)", True),
    "the first of 0 dimensions": Arranged("t[5].clone()", "t[5].expand(100).contiguous()", True),
    "the others of 0 dimensions": Arranged("t[5].expand(100).contiguous()", "t[5].clone()", True),
    "the others of fewer dimensions": Arranged("t[:33].expand(31, 33).contiguous()", "t[:33].clone()", True),
    "each broadcast": Arranged("t[:33].view(33, 1)", "t[:31].view(1, 31)", True, how="pairs"),
    "the middle broadcast": Arranged("t[:210].view(5, 6, 7)", "t[:35].view(5, 1, 7)", True, how="pairs"),
    "one tensor as all inputs": Arranged("t[:1023]", "t[:1023]", True, how="same"),
    "overlapping inputs": Arranged("t[:1000]", "t[1:1001]", True, how="same"),
    "other memory around it": Arranged("t[:1023].clone()", how="guard"),
    "another thread": Arranged("t[:1025].clone()", how="thread"),
    LATER: Arranged("t[:1023].clone()", how="late"),
    "a result that is kept": Arranged("t[:1023].clone()", how="kept"),
    "a stream of the caller's": Arranged("t.repeat(1024)", how="stream"),
    "memory of zeros": Arranged("t[:1023].clone()", how="zeros"),
    "inputs that require grad": Arranged("t[:1023].clone()", how="grad"),
    "inputs that require grad, without grad": Arranged("t[:1023].clone()", how="no_grad"),
    "inference mode": Arranged("t[:1023].clone()", how="inference"),
    "once more": Arranged(f"t[:{SIZE}].clone()"),
}


#: Of a lowering that is compiled for each shape: the elements of the walk's launch, all of them, in that shape.
WHOLE: Mapping[str, Arranged] = {
    "other places and neighbours": Arranged("t[torch.arange(len(t), device=t.device) * 787 % len(t)]"),
}


#: Of a registered lowering whose calls differ within the bound.
DEPENDS = "bits depend on how it is called, and keep their bound: see its calls"


@dataclass(frozen=True)
class Called:
    """What the calls of a lowering gave.

    made, refused    how many gave a result, and those that the lowering refused, with its exception
    different        those whose bits are others
    untried          those that were not made, for want of time or of a process that answers
    status, kind     what they give the cell, with the kind of its reason, and `told`, a line for people
    excused          why different bits are no fault
    script           lines of Python that show the smallest call of other bits
    later            in words, the call of which `settled` asks whether more was written; '' where none was made
    """

    made: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    different: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    status: str = "passed"
    kind: str = "calls"
    told: str = ""
    excused: str = ""
    script: str = ""
    later: str = ""

    def settled(self, lowering: Callable[..., Any]) -> Called:
        """With what became of the output of the call `later`. To be asked once all else is done, since a process waits
        for what is written late only as long as nothing else has taken."""
        if self.later and self.status != "error":
            try:
                lowering.settle()  # type: ignore[attr-defined]
            except LoweringError as error:
                told = f"called with {self.later}: {error}"
                return replace(self, status="error", kind=error.kind, told=told, script="", later="")
        return replace(self, later="")

    @property
    def remark(self) -> str:
        """For people: what is wrong, else what is not as in the plain call."""
        parts = {"refused": self.refused, "not made": self.untried}
        listed = (f"calls {what}: {', '.join(names)}" for what, names in parts.items() if names)
        return self.told or "; ".join(filter(None, (self.excused, *listed)))

    def record(self) -> dict[str, Any]:
        lists = {"different": list(self.different), "untried": list(self.untried), "refused": dict(self.refused)}
        status = "" if self.status == "passed" else self.status
        return {"made": self.made, "status": status, **lists, "note": self.excused, "script": self.script.splitlines()}


@dataclass(frozen=True)
class Sample:
    """Elements of the walk's first launch, and the bits that it gave. Tensors of shape (SIZE,)."""

    inputs: tuple[Tensor, ...]
    expected: Tensor

    @classmethod
    def of(cls, inputs: Sequence[Tensor], y: Tensor) -> Sample:
        index = torch.tensor(spread(len(y), SIZE), dtype=torch.int64, device=y.device)
        index = index[torch.arange(SIZE, device=y.device) * 787 % len(index)]  # mixed, or the first were one stratum's
        telling = y[index].isfinite() & (y[index] != 0)  # first, so that calls of one element are not of a zero
        index = torch.cat([index[telling][:40], index[~telling], index[telling][40:]])
        return cls(tuple(t[index] for t in inputs), y[index])


@dataclass(frozen=True)
class _One:
    """A call that gave other bits: flat inputs and output, what this should be, and the first place; y is None where
    it broke the contract in the way that `broken` says."""

    given: tuple[Tensor, ...]
    y: Tensor | None
    expected: Tensor
    place: int = 0
    broken: str = ""

    def told(self, fmt: Format) -> str:
        if self.y is None:
            return self.broken
        *given, got, due = (
            fmt.hex(patterns(t[self.place :][:1], fmt)[0]) for t in (*self.given, self.y, self.expected)
        )
        return f"{', '.join(given)} -> {got}, plain {due}"


def call_all(
    case: Pointwise, target: Target, lowering: Lowering, call: Callable[..., Any], reference: Lowering | None,
    sample: Sample, *, mine: bool = True, scalars: bool = True,
) -> Called:  # fmt: skip
    """Make every call of the table with the lowering, built as `call`, whose results are to be those of the sample.

    reference: the registered lowering; a dependence that it shares is reported, and is no fault within the bound. mine:
    the lowering is a user's own; a dependence of registered ones within the bound is only reported. scalars: it is
    to take other Python scalars than the case's.
    """
    table = dict(WHOLE if lowering.each_shape else _suited(sample, call, target, mine))
    begin: dict[str, Callable[[], _One | None]]
    begin = {name: partial(_called, call, one, sample, target, lowering.name) for name, one in table.items()}
    if mine:
        begin |= _judged_calls(case, target, lowering, call, reference, sample, scalars)
    found, wrong = tried(begin, lambda name: ", ".join((name, *(one.first for one in [table.get(name)] if one))), call)
    if not wrong or found.told:
        return found
    beyond = "; ".join(f"called with {name}: {wrong.pop(name).broken}" for name in [*wrong] if name not in table)
    if not wrong:
        return replace(found, status="exceeds-bound", told=beyond)
    within = _within(case, target, lowering, list(wrong.values()), mine)
    if beyond:
        reference = None  # nothing is excused beside it
    if within and not mine:
        return replace(found, excused=DEPENDS)
    if within and reference is not None and _depends(reference, target, sample):
        told = f"bits depend on the call, as those of {reference.name} do, and keep their bound: {', '.join(wrong)}"
        return replace(found, excused=told)
    name = min(wrong, key=lambda key: len(wrong[key].expected))
    told = (
        f"{len(wrong)} of {found.made} calls give other bits than the plain call{', within the bound' * within}; "
        f"the smallest: {name}, {table[name].first}: {wrong[name].told(FORMATS[target.dtype])}"
    )
    told = "; ".join(filter(None, (told, beyond)))
    script = _script(call, table[name], sample, wrong[name], target, lowering) if mine else ""
    return replace(found, status="unsteady", told=told, script=script)


def tried(
    calls: Mapping[str, Callable[[], T | None]], told: Callable[[str], str], lowering: Callable[..., Any]
) -> tuple[Called, dict[str, T]]:
    """Make the calls, as long as there is time: what that gave, and the results of those that gave one, which are
    wrong. told: a call in words; lowering: what is called, as built. A contract that is broken ends them, with status
    'error'."""
    found, wrong, refused = Called(), dict[str, T](), dict[str, str]()
    elsewhere = getattr(lowering, "spent", lambda: 0.0)
    began, before, names = time.monotonic(), time.process_time() + elsewhere(), list(calls)
    made = 0
    for place, name in enumerate(names):
        if time.process_time() + elsewhere() - before > SECONDS or time.monotonic() - began > LONGEST:
            found = replace(found, untried=tuple(names[place:]))
            break
        try:
            one = calls[name]()
        except (LoweringError, NotLowered) as error:
            if isinstance(error, LoweringError) and error.kind != "raised":
                text = f"called with {told(name)}: {error}"
                found = replace(found, status="error", kind=error.kind, told=text, untried=tuple(names[place:]))
                break
            refused[name] = str(error)
            continue
        made += 1
        if one is not None:
            wrong[name] = one
    later = told(LATER) if LATER in calls and hasattr(lowering, "settle") else ""
    found = replace(found, made=made, refused=refused, different=tuple(wrong), later=later)
    return found.settled(lowering) if wrong else found, wrong  # to find the cause may take another process


def possible(how: str, call: Callable[..., Any], target: Target) -> bool:
    """Whether a call can be made in that manner: in a process of its own, on a device that has streams."""
    module = getattr(torch, torch.device(target.backend.device).type, None)  # not every device has one
    streams = hasattr(module, "_sleep")
    return how not in MANNERS or (hasattr(call, "manner") and (how != "stream" or streams))


def edges(call: Callable[..., Any]) -> list[int]:
    """Sizes beside the edges of the blocks of a user's Triton kernels, as far as the launches told them."""
    return sorted({n for block in getattr(call, "launched_blocks", ()) for n in (block - 1, block, block + 1)})


def _suited(
    sample: Sample, call: Callable[..., Any], target: Target, mine: bool = False
) -> Iterator[tuple[str, Arranged]]:
    for name, one in CALLS.items():
        if (len(sample.inputs) > 1 or not one.several) and possible(one.how, call, target):
            yield name, one
    for n in sorted({*edges(call), *(LARGE if mine else ())}):
        if f"{n} elements" not in CALLS:
            # the first elements, which tell, come last: beyond the edge
            yield f"{n} elements", Arranged(f"t.repeat({-(-n // SIZE)})[:{n}].flip(0)")


def _arranged(text: str, t: Tensor) -> Tensor:
    arranged: Tensor = eval(text, {"torch": torch, "t": t})  # an expression of the table above
    return arranged


def _called(
    call: Callable[..., Any], arranged: Arranged, sample: Sample, target: Target, name: str
) -> _One | None:  # fmt: skip
    """Make the call; None where it gives the bits that it should."""
    first, *others = [sample.inputs[0]] * len(sample.inputs) if arranged.how == "same" else sample.inputs
    given = [_arranged(arranged.first, first), *(_arranged(arranged.others or arranged.first, t) for t in others)]
    shape = torch.broadcast_shapes(*(t.shape for t in given))  # type: ignore[no-untyped-call]
    if arranged.how in ("same", "pairs"):
        plain = [t.expand(shape).contiguous().clone() for t in given]
        expected = launch_steady(call, plain, target.backend, name, repeats=1).output
    else:
        expected = _arranged(arranged.first, sample.expected)
    flat = tuple(t.expand(shape).reshape(-1) for t in given)
    due = expected.expand(shape).reshape(-1)
    with getattr(call, "manner", nullcontext)(arranged.how):
        try:
            y = launch_steady(call, given, target.backend, name, repeats=1).output.reshape(-1)
        except LoweringError as error:
            if error.kind != "contract" or arranged.how in MANNERS:
                raise
            return _One(flat, None, due, broken=str(error))
    if arranged.how == "outputs":  # where what is compiled may run as it is written
        return None
    different = bits(y).ne(bits(due)) & ~(y.isnan() & due.isnan())
    return _One(flat, y, due, int(different.to(torch.uint8).argmax())) if bool(different.any()) else None


def _judged_calls(
    case: Pointwise, target: Target, lowering: Lowering, call: Callable[..., Any], reference: Lowering | None,
    sample: Sample, free: bool,
) -> dict[str, Callable[[], _One | None]]:  # fmt: skip
    """Calls that are judged by a truth of their own: with round numbers, and, in the first case of its kind, with other
    Python scalars, usual ones and drawn ones (`free`: it is to take them), as far as its signature has them."""
    facts, scalars = target.kernel, dict(target.scalars)
    numbers = _round_numbers(target.dtype, len(sample.inputs), sample.expected.device)
    found: dict[str, Callable[[], _One | None]]
    found = {"round numbers": partial(_judged, case, target, lowering, call, reference, numbers)}
    if not free or scalars != next((one for one in facts.cases if one.keys() == scalars.keys()), None):
        return found
    usual: list[Scalars] = [{name: value} for name, value in itertools.product(scalars, SCALARS)]
    for given in (*usual, drawn_scalars(scalars, case.inputs.seed)):
        other = {**scalars, **given}
        if any(spelling.applies(other) for spelling in facts.spellings.values()) and other not in facts.cases:
            on = replace(target, scalars=other)
            on = replace(on, spelling=on.default_spelling)
            apart = Pointwise(facts, other, target.dtype, target.backend, case.inputs)
            label = " ".join(f"{name}={value!r}".removesuffix(".0") for name, value in given.items())
            found[label] = partial(_fitting, apart, on, lowering, None, reference, sample.inputs)
    return found


def drawn_scalars(scalars: Scalars, seed: int) -> Scalars:
    """Others in place of all of them, which nobody has written down: between a half of each and all, of six bits, so
    that every format has them and no bound has to allow for their rounding."""
    draw = random.Random(seed)
    split = {name: math.frexp(value * draw.uniform(0.5, 0.98)) for name, value in scalars.items()}
    return {name: math.ldexp(round(m * 64) / 64, e) for name, (m, e) in split.items()}


def _fitting(*given: Any) -> _One | None:
    """`_judged`, where the signature fits."""
    try:
        return _judged(*given)
    except NotLowered:
        return None


def _round_numbers(dtype: str, arity: int, device: torch.device) -> tuple[Tensor, ...]:
    """Tensors of shape (n,), one an input: numbers of either sign, or combinations of the first ones."""
    numbers = ROUNDER if arity == 1 else ROUND[: math.floor(PAIRS ** (1 / arity) + 1e-9) // 2]
    kind = getattr(torch, dtype)
    each = torch.tensor([sign * x for x in numbers for sign in (1.0, -1.0)], dtype=torch.float64).to(kind)
    each = each[each.isfinite()].to(device)
    return tuple(t.reshape(-1) for t in torch.meshgrid(*[each] * arity, indexing="ij"))


def _judged(
    case: Pointwise, target: Target, lowering: Lowering, call: Callable[..., Any] | None, reference: Lowering | None,
    given: Sequence[Tensor],
) -> _One | None:  # fmt: skip
    """What is wrong with a call whose elements are to keep their bound, or to have eager's bits. call: as built; None:
    to be built."""
    y = launch_steady(call or lowering.build(target), given, target.backend, lowering.name, repeats=1).output
    if reference and (eager := case.on(given).eager(0, reference, target)):
        other = eager[""].reshape(-1)
        at = bits(y).ne(bits(other)) & ~(y.isnan() & other.isnan())
        given, y = [t[at] for t in given], y[at]
    on = case.on(given)
    stated, found = terms(on, target, lowering, 0, "", y, user=True)
    if not len(y) or stated is None or _keeps(on, target, lowering, y, True):
        return None
    judged = []
    for term in found.values():
        records = term.reader.regions(term.judge.tally(term.elements, y, None, on.formulas(0, "", y)), stated)
        judged.append((conclude(records), records))
    concluded, records = max(judged, key=lambda one: STATUSES.index(one[0]["status"]))  # the kinder truth of scalars
    if concluded["status"] != "exceeds-bound":
        return None
    worst = next(r["worst"] for r in records.values() if r["status"] == "exceeds-bound")
    told = "".join(f", such as {', '.join(one['inputs'])} -> {one['output']}" for one in worst[:1])
    return _One(tuple(given), None, y, broken=concluded["reason"] + told)


def _within(case: Pointwise, target: Target, lowering: Lowering, wrong: Sequence[_One], mine: bool) -> bool:
    """Whether the elements that differ in calls are what they may be: a user's own as in the plain call, a registered
    lowering's also as in a layout of its own, which another path serves."""
    given, parts = [], []
    for one in wrong:
        if one.y is None:
            return False
        at = bits(one.y).ne(bits(one.expected)).nonzero()[:, 0]
        given.append([t[at] for t in one.given])
        parts.append(one.y[at])
    on, y = [torch.cat(of) for of in zip(*given, strict=True)], torch.cat(parts)
    if len(y) > CHUNK:
        return False
    spellings = target.kernel.spellings.items()
    layouts = () if mine else (name for name, s in spellings if s.layout and s.applies(target.scalars))
    targets = (replace(target, spelling=name) for name in (target.spelling, *layouts))
    return any(_keeps(case.on(on), one, lowering, y, mine) for one in targets)


def _keeps(case: Pointwise, target: Target, lowering: Lowering, y: Tensor, mine: bool) -> bool:
    """All of the elements by one truth of the scalars, or each by one."""
    stated, on = terms(case, target, lowering, 0, "", y, user=mine)
    each = (term.reader.regions(term.judge.tally(term.elements, y), stated) for term in on.values() if stated)
    if any(conclude(records)["status"] in ("passed", "deviates") for records in each):
        return True
    outside = torch.ones_like(y, dtype=torch.bool)
    for term in on.values() if stated else ():
        facts = term.elements.facts(None, y, double=FORMATS[target.dtype].bits == 64, zeroed=True)
        judged = decide(y, facts, FORMATS[target.dtype], term.judge.limits)
        outside &= judged.fails | judged.open
    return not bool(outside.any())


def _depends(reference: Lowering, target: Target, sample: Sample) -> bool:
    """Whether the bits of the reference depend on the call."""
    if reference.reason(target):
        return False
    call = reference.build(target)
    whole = launch_steady(call, [t.repeat(LONG // SIZE) for t in sample.inputs], target.backend, reference.name)
    own = Sample(sample.inputs, whole.output[:SIZE])
    return any(_called(call, one, own, target, reference.name) for _, one in _suited(own, call, target))


# A script that shows it.


def _script(call: Any, arranged: Arranged, sample: Sample, one: _One, target: Target, lowering: Lowering) -> str:
    """At most ten lines of torch that show, in a process of their own, that a call has other bits, with data as simple
    as still shows it: some elements over and over. '' where none does."""
    if arranged.how in ("guard", "stream", "zeros", "pairs"):  # no line of torch says what lies in other memory
        return ""
    for often, period, size in ((1, 1, SIZE), (1, 7, SIZE), (1, 1, LONG), (OFTEN, 1, SIZE), (OFTEN, 7, SIZE)):
        both = zip(one.given, sample.inputs, strict=True)
        chosen = [torch.cat([t[one.place :][:1], others[: period - 1]]) for t, others in both]
        data = [t.repeat(-(-size // period))[:size] for t in chosen]
        getattr(call, "restart", lambda: None)()
        try:
            plain = launch_steady(call, data, target.backend, lowering.name, repeats=1).output
            for _ in range(often):
                if _called(call, arranged, Sample(tuple(data), plain), target, lowering.name):
                    return _written(arranged, data, period, often, target, lowering)
        except (LoweringError, NotLowered):
            continue
    return ""


def _written(
    arranged: Arranged, data: Sequence[Tensor], period: int, often: int, target: Target, lowering: Lowering
) -> str:  # fmt: skip
    fmt, names = FORMATS[target.dtype], target.kernel.tensors(target.scalars)
    path, _, function = lowering.name.rpartition(":")
    device = "" if target.backend.device == "cpu" else f", device={target.backend.device!r}"
    others, same = "others" if arranged.others else "first", arranged.how == "same"
    lines = [f"import concurrent.futures, torch\nfrom {Path(path).stem} import {function}"]
    for name, t in zip(names, data[:1] if same else data, strict=not same):
        values = ", ".join(f'"{fmt.hex(p)}"' for p in patterns(t[:period], fmt))
        made = f"torch.tensor([float.fromhex(x) for x in ({values},)], dtype=torch.{target.dtype}{device})"
        lines.append(f"{name} = {made}.repeat({-(-len(t) // period)})[:{len(t)}]")
    lines.append(f"first = lambda t: {arranged.first}")
    if arranged.others:
        lines.append(f"others = lambda t: {arranged.others}")
    given = {name: f"{others if k else 'first'}({names[0] if same else name})" for k, name in enumerate(names)}
    if arranged.how in ("grad", "no_grad"):
        given = {name: f"{text}.requires_grad_()" for name, text in given.items()}
    clones = {name: f"{text}.clone()" for name, text in given.items()} if same else {name: name for name in names}
    listed, alone = (
        f"{function}({', '.join(one.get(name) or repr(target.scalars[name]) for name in target.kernel.inputs)})"
        for one in (given, clones)
    )
    lines.append(f"plain = {alone if same else f'first({alone})'}")
    called = listed
    if arranged.how == "again":
        lines.append(f"for t in ({', '.join(names)},): t.copy_(first(t))")
        called = alone
    if arranged.how == "thread":
        called = f"concurrent.futures.ThreadPoolExecutor().submit(lambda: {called}).result()"
    mode = {"grad": "enable_grad", "no_grad": "no_grad", "inference": "inference_mode"}.get(arranged.how)
    called = f"y = {called}{'.detach()' if mode else ''}"
    called = called if often == 1 else f"for _ in range({often}): {called}"
    called = f"with torch.{mode}():\n    {called}" if mode else called
    integers = str(bits(data[0]).dtype)
    lines += [
        called,
        f"print(*(t.where(t == t, 7).contiguous().view({integers}).flatten() for t in (y, plain.expand(y.shape))))",
    ]
    text = "\n".join(lines)
    return text if arranged.how == "thread" else text.replace("concurrent.futures, ", "", 1)
