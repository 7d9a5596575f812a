"""Other calls of a lowering of rows, attention or steps, on small problems of the kernel's own.

The same numbers in other memory, some rows of a batch, other rows beside them: the bits are those of the plain call, or
where known lowerings depend on size and place too, within the bound, and it is said. Other sizes, and new data at the
same address: within the bound, by a truth of their own.
"""

from __future__ import annotations

import math
import pickle
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from random import Random
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch

from verify import backends
from verify.backends import Backend
from verify.facts.kernel import Composite, Setting, load
from verify.families.composite import Problem
from verify.families.rows import Rows
from verify.jobs.aside import Aside
from verify.judge import status
from verify.judge.cell import failing, standing_of
from verify.judge.exact import decimal, finite
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.lower.lowerings import lowerings
from verify.lower.stubs import expression
from verify.lower.user import importing, user_composite
from verify.walk.arrangements import AFTER, LATER, USUAL, applied, applied_to
from verify.walk.called import DEPENDS, JUDGING, Called, edges, listed, possible, tried
from verify.walk.cases import format_of, terms
from verify.walk.instance import Instance
from verify.walk.values import drawn_scalars
from verify.workers.launch import AHEAD, Begun, LoweringError, Outputs, bits

Tensor = torch.Tensor
ROWS, LENGTH = 35, 65  # of the problem whose memory and rows are arranged
#: Rows that a user's own is called with alone and again and again, more often than a persistent kernel has programs,
#: their length, and how often.
SOME, LONG, TIMES = 17, 517, 33
SIZES = (1, 2, 3, 31, 33, 1023, 1025, 5001)
#: The same numbers in other memory, as expressions of each tensor t.
MEMORY: Mapping[str, str] = {
    "transposed": "t.movedim(0, -1).contiguous().movedim(-1, 0)",
    "every other": "torch.stack([t, t], -1)[..., 0]",
    "sliced": "torch.cat([t, t.flip(-1)], -1)[..., :t.shape[-1]]",
    "misaligned": "torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape)",
}
MORE = " if t.dim() > 2 else "  # what follows is of tensors of fewer dimensions
#: What each tensor of a user's own lowering's further problems lies in: as it is, as above, in matrices that do not
#: follow one another, in the first part of longer ones, with heads within rows, with those between the heads of other
#: tensors, and with the second dimension as the last.
LAYOUTS = (
    "t",
    *MEMORY.values(),
    "t.repeat_interleave(2, 0)[::2]",
    f"torch.cat([t, t.flip(-2)], -2).narrow(-2, 0, t.shape[-2]){MORE}t",
    f"t.transpose(1, 2).contiguous().transpose(1, 2){MORE}t",
    f"torch.stack([t.transpose(1, 2)] * 3, 2)[:, :, 1].transpose(1, 2){MORE}torch.cat([t, t])[len(t):]",
    f"t.movedim(1, -1).contiguous().movedim(-1, 1){MORE}t",
)
DRAWN = 10  # problems of sizes and options that nobody has written down
ARRANGED = 120  # how often the further problems together are tried with all of their tensors in other layouts
ASIDE, EACH = 8, 2  # processes that judge beside the one that makes the calls, at most, and cores for each
LARGE = 1 << 18  # elements of a tensor beyond which a further problem is tried in few other layouts
APART = "transposed", "sliced"  # those of MEMORY
#: Some rows, as expressions of each tensor t that has them.
PICKED: Mapping[str, str] = {
    **{f"{n} rows": f"t[:{n}].clone()" for n in (1, 2, 3, 31, 33)},
    "the last row": "t[-1:].clone()",
    "rows in another order": "t.flip(0)",
    "every other row": "t[::2]",
    "rows repeated": f"t[torch.arange({ROWS}, device=t.device) // 2]",
    "one row expanded": f"t[:1].expand({ROWS}, *t.shape[1:])",
}
#: As the plain call, but for how it is made, see `verify.walk.arrangements.MANNERS`.
MADE: Mapping[str, str] = {
    "other memory around it": "guard", "another thread": "thread", LATER: "late",
    "a result that is kept": "kept",
    "a stream of the caller's": "stream", "memory of zeros": "zeros", "another number of threads": "threads",
    "another default dtype": "default", "float64 as the default dtype": "default_64",
    "inputs that require grad": "grad", "inputs that require grad, without grad": "no_grad",
    "the first input requires grad": "grad_first", "the other inputs require grad": "grad_others",
    "inputs that were computed": "grad_computed", "inputs that are parameters": "grad_parameter",
    "inference mode": "inference",
    "an output to write": "out", "once more": "",
}  # fmt: skip
#: Of further problems each is also called in one of these manners, by turns, where that is a call.
BY_TURNS = "grad", "out", "grad_parameter", "no_grad", "inference"
LOOSE = "threads", "default", "default_64"  # manners in which other bits are excused within the bound
GUARDED = "guards around its outputs"
NO_ERROR = 1e290  # times a bound: it is 0
BEYOND = {
    "exceeds-bound": "beyond its bound",
    "suspect": "beyond the known algorithms or the probable bound, and not proved wrong, see --algorithm",
    "unjudged": "nothing is stated of some of its numbers, which have not eager's bits",
}
PLAIN, BESIDE = f"{ROWS} rows of {LENGTH}", "other rows beside them"


@dataclass(frozen=True)
class _Wrong:
    """A call that went wrong: elements of its output, what a person reads, the status that it gives, whether its bits
    are excused where they keep the bound, whether it goes wrong in other memory alone, what finds out whether it is
    right without the call before, and what finds an element that fails."""

    elements: int
    told: str
    status: str
    loose: bool = False
    moved: bool = False
    alone: Callable[[], bool] | None = None
    element: Callable[[], str] = str

    def shown(self) -> str:
        after = f" {AFTER}" if self.alone is not None and self.alone() else ""
        return ": ".join(filter(None, (self.told + after, self.element())))


@dataclass(frozen=True)
class Drawn:
    """What a problem of its own is drawn from: what is given to `--set`, what is added to the case's seed, scalars in
    place of the case's, and tensors made of others, see `Composite.related`."""

    given: Mapping[str, str]
    seed: int = 0
    scalars: Mapping[str, float] | None = None
    made: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Result:
    """What a call on a problem gave, in one layout of its inputs ({}: as they are) and one manner."""

    one: Instance
    outputs: Outputs
    layout: Mapping[str, str] = field(default_factory=dict)
    how: str = ""


@dataclass(frozen=True)
class _Left:
    """Results whose judgement is left to another process, by the numbers of the questions. drawn: their problem."""

    drawn: Drawn
    results: Mapping[int, _Result]


@dataclass(frozen=True)
class _Call:
    """A call in words, what makes it, and what is given to `--set` for a problem of its own. made: see
    `Composite.related`."""

    text: str
    make: Callable[[], _Wrong | _Left | None]
    sizes: Mapping[str, str] | None = None
    made: Mapping[str, str] = field(default_factory=dict)


class _Ahead:
    """Instances in the order in which they are asked for: the next one is made while a launch is waited for. (A thread
    that makes it would have to take turns with the launches' for each of torch's operators.)"""

    def __init__(self, meanwhile: Callable[[Callable[[], None]], None]) -> None:
        self.meanwhile = meanwhile  # do it while the next launch runs
        self.makes: list[Callable[[], Instance]] = []
        self.made: dict[int, Instance] = {}

    def __call__(self, make: Callable[[], Instance]) -> Callable[[], Instance]:
        """What gives the instance that `make` makes, after those of earlier calls."""
        self.makes.append(make)
        return partial(self._at, len(self.makes) - 1)

    def _at(self, place: int) -> Instance:
        one = self.made.pop(place) if place in self.made else self.makes[place]()
        if place + 1 < len(self.makes):
            self.meanwhile(partial(self._make, place + 1))
        return one

    def _make(self, place: int) -> None:
        with suppress(Exception):  # it is raised again where it is asked for
            self.made.setdefault(place, self.makes[place]())


class Calls:
    """The calls of one lowering on one kernel's problems in a dtype, with its scalars. aside: processes that judge some
    of them."""

    def __init__(
        self, case: Instance, target: Target, lowering: Lowering, reference: Lowering, call: Callable[..., Any],
        mine: bool, scalars: bool = True, aside: Aside | None = None,
    ) -> None:  # fmt: skip
        self.aside, self.described = aside, WeakKeyDictionary[Instance, Drawn]()
        self.facts: Composite = target.kernel
        assert self.facts.custom is not None
        self.further = [
            (given, values)
            for given, values in self.facts.further
            if (scalars or not values) and case.dtype in self.facts.custom(given).dtypes
        ]
        if scalars and case.scalars:
            self.further.append((target.kernel.sized(33)[0], drawn_scalars(case.scalars, case.seed)))
        self.further += [(given, {}) for given in self.chosen(case)]
        self.further.sort(key=lambda one: _work(one[0]))  # where time runs out, it is for few large ones
        self.case, self.target, self.lowering, self.reference, self.call = case, target, lowering, reference, call
        self.mine, self.scalars = mine, scalars
        self.ahead = _Ahead(getattr(call, "meanwhile", lambda work: None))
        self.last: tuple[str, Instance] | None = None  # that `keeps` was asked for
        self.kept = ""  # the algorithm whose bound was, last
        self.fails = False  # whether outputs were beyond all bounds; others are then held to fewer, see `ways`
        self.dtypes: dict[tuple[str, ...], dict[str, torch.dtype]] = {}  # of outputs, by which of them there are
        self.seen: list[float] = []  # the largest error of each of a call's outputs
        self.errors: dict[str, float] = {}  # of each call with a problem of its own that passes
        self.unstated: dict[str, None] = {}  # problems of whose elements nothing is stated, that pass
        self.batched: frozenset[str] = frozenset()
        if self.facts.batched:
            one, more = (self.drawn(self.batch(n)).problem.tensors for n in (1, 2))
            self.batched = frozenset(name for name, t in more.items() if t.shape != one[name].shape)
        self.blank = {str(self.batch(ROWS)): self.drawn(self.batch(ROWS))}  # of which nothing is asked
        self.plain = self.drawn(self.batch(ROWS), next(iter(self.blank.values())).problem.tensors)

    def chosen(self, case: Instance) -> Iterator[Mapping[str, str]]:
        """Problems that the seed draws, others for each dtype and case of scalars."""
        draw, facts = Random(f"{case.seed} {self.facts.name} {case.dtype} {sorted(case.scalars.items())}"), self.facts
        for given in (facts.drawn(draw) for _ in range(DRAWN)) if facts.drawn is not None else ():
            if facts.custom is not None and case.dtype in facts.custom(given).dtypes:
                yield given

    @cached_property
    def due(self) -> Outputs:
        """What the plain call gives."""
        found = self.launched(self.plain)
        self.learn(self.plain, found)
        return found

    def learn(self, one: Instance, outputs: Outputs) -> None:
        self.dtypes[tuple(one.outputs)] = {name: y.dtype for name, y in outputs.items()}

    def dtypes_of(self, one: Instance) -> Mapping[str, torch.dtype]:
        """Those of an instance's outputs, as far as they are known: those of earlier instances that had the same."""
        return self.dtypes.get(tuple(one.outputs), {})

    @cached_property
    def known(self) -> Outputs:
        """The same; {} where the lowering refuses the plain call."""
        try:
            return self.due
        except NotLowered:
            return {}
        except LoweringError as error:
            if error.kind != "raised":
                raise
            return {}

    def batch(self, rows: int, length: int = LENGTH) -> Mapping[str, str]:
        return self.facts.batched(rows, length) if self.facts.batched else self.facts.sized(ROWS)[0]

    def drawn(
        self, given: Mapping[str, str], tensors: Mapping[str, Tensor] | None = None, seed: int = 0,
        scalars: Mapping[str, float] | None = None,
    ) -> Instance:  # fmt: skip
        """The problem of `--set` with these; with these tensors in place of drawn ones, or with these scalars in place
        of the case's."""
        assert self.facts.custom is not None
        if tensors is not None:
            if str(given) not in self.blank:
                self.blank[str(given)] = self.drawn(given)
            return self.blank[str(given)].of(tensors)
        setting: Setting = replace(self.facts.custom(given), name=" ".join(f"{k}={v}" for k, v in given.items()))
        of = self.case
        values = {**of.scalars, **(scalars or {})}
        return Instance(self.facts, setting, values, of.dtype, of.backend, of.seed + seed)

    def begun(self, one: Instance, how: str = "") -> Begun:
        with getattr(self.call, "manner", nullcontext)(how):
            return Begun(self.call, one.problem, one.backend, self.lowering.name, one.outputs)

    def launched(self, one: Instance, how: str = "", like: Outputs | None = None) -> Outputs:
        """Outputs for an instance; like: what has their shapes, where it is known."""
        like = self.shaped(one) if like is None else like
        return self.begun(one, how).result(like)

    def in_turn(self, every: Iterable[tuple[Instance, str]]) -> Generator[Begun]:
        """Launches of instances in their manners, each of which begins before the result of the last one is used. To be
        closed."""
        underway = deque[Begun]()
        try:
            for one, how in every:
                underway.append(self.begun(one, how))
                if len(underway) == AHEAD:
                    yield underway.popleft()
            while underway:
                yield underway.popleft()
        finally:
            for launch in underway:
                launch.drop()

    def shaped(self, one: Instance) -> Outputs | None:
        """What has the shapes and dtypes of an instance's outputs: their bounds and earlier calls', which take less
        time than eager's outputs."""
        found: Outputs = {}
        dtypes = self.dtypes_of(one) if one is not self.plain and self.known else {}
        for name, dtype in dtypes.items():
            limit = self.first(one).limit(self.aim(one), self.lowering, name)
            if limit is None or limit.bound.dim() == 0:
                break
            found[name] = torch.empty(limit.bound.shape, dtype=dtype, device="meta")
        if len(found) == len(one.outputs):
            return found
        eager = one.eager(0, self.reference, self.aim(one))
        if eager is not None:
            self.learn(one, eager)
        return eager

    def ways(self, one: Instance) -> dict[str, Instance]:
        """The problem held to one algorithm alone, by that algorithm, the one that was kept last first; and at last, by
        '', to what a user's own is held to, whose bound is as wide as any, and takes longest to find."""
        found = one.ways(self.target) if self.mine and self.lowering.order is None else {}
        ordered = sorted(found, key=lambda text: text != self.kept)
        return {text: found[text] for text in ordered[: 1 if self.fails else None]} | {"": one}

    def first(self, one: Instance) -> Instance:
        return next(iter(self.ways(one).values()))

    def aim(self, one: Instance) -> Target:
        return replace(self.target, spelling=one.setting.name, scalars=one.scalars)

    def status(self, one: Instance, outputs: Outputs) -> str:
        """What a cell of these outputs would be."""
        *ways, _ = self.ways(one).items()
        for text, way in ways:
            if self.as_of(way, outputs, briefly=True) == "passed":
                self.kept = text
                return "passed"
        each, eager = self.each_as_of(one, outputs), None
        if status.worst(each.values()) != "passed" and self.mine:  # the ledger excuses a user's with eager's bits alone
            eager = one.eager(0, self.reference, self.aim(one))
            each = each if eager is None else self.each_as_of(one, outputs, eager)
        found = status.worst(each.values())
        self.fails |= found == "exceeds-bound"
        open_ = {name: outputs[name] for name, standing in each.items() if standing == "unjudged"}
        if found == "unjudged" and (
            self.lowering.order is not None or (eager is not None and not _differing(open_, eager))
        ):
            self.unstated[one.setting.name] = None
            return "passed"
        return found

    def as_of(self, one: Instance, outputs: Outputs, *, briefly: bool = False) -> str:
        """The worst of `each_as_of`."""
        return status.worst(self.each_as_of(one, outputs, briefly=briefly).values())

    def each_as_of(
        self, one: Instance, outputs: Outputs, eager: Outputs | None = None, *, briefly: bool = False
    ) -> dict[str, str]:
        """By output what a cell would be, beside eager's outputs. briefly: only whether they pass is asked."""
        found, target = dict[str, str](), self.aim(one)
        for name, y in outputs.items():
            flat = y.contiguous().reshape(-1)
            other = None if eager is None else eager[name].contiguous().reshape(-1)
            if len(flat):
                stated, on = terms(one, target, self.lowering, 0, name, y, user=self.mine)
                (term,) = on.values()
                given = term.judge, term.elements, flat, other
                found[name] = standing_of(*given, briefly=briefly, errors=self.seen) if stated else "unjudged"
        return found

    def beside(
        self, given: Instance, picked: str, loose: bool, how: str = "", plain: Instance | None = None
    ) -> _Wrong | None:  # fmt: skip
        """What is wrong with a call whose bits are to be those of the plain one, or what is picked of them. loose:
        others are excused within the bound."""
        if how == "outputs":  # where what is compiled may run as it is written
            self.launched(given, how)
            return None
        due = self.due if plain is None else self.launched(plain)
        due = {k: applied(picked, t).to(given.device) for k, t in due.items()} if picked else due
        y = self.launched(given, how, like=due)
        told = _differing(y, due)
        if not told:
            return None
        found = self.status(given, y)
        excused = loose and found in ("passed", "deviates", "suspect")
        shown = found if excused or found == "exceeds-bound" else "unsteady"
        return _Wrong(sum(t.numel() for t in y.values()), told, shown, excused)

    def judged(
        self, given: Instance, layouts: Sequence[Mapping[str, str]] = (), how: str = USUAL, also: Sequence[str] = ()
    ) -> _Wrong | _Left | None:  # fmt: skip
        """What is wrong with a call whose outputs are to keep their bound, also with the inputs in other layouts, and
        in other manners."""
        left = bool(self.known) and self.leaves(given)
        results: list[_Result] = []
        with closing(self.results(given, layouts, how, {} if left else self.shaped(given), also)) as found:
            for result in found:
                if left:
                    results.append(result)
                elif wrong := self.wrong(result):
                    return wrong
        return self.asked(self.described[given], results) if left else None

    def results(
        self, given: Instance, layouts: Sequence[Mapping[str, str]], how: str, like: Outputs | None,
        also: Sequence[str] = (),
    ) -> Generator[_Result]:  # fmt: skip
        """What a call gives, and then what it gives of the inputs in other layouts, or in other manners, where bits are
        other ones. To be closed."""
        others: list[tuple[Instance, Mapping[str, str], str]] = [
            (given.reading({k: applied(layout.get(k, "t"), t) for k, t in given.problem.read.items()}), layout, "")
            for layout in layouts
        ]
        others += [(given, {}, manner) for manner in also]
        with closing(self.in_turn([(given, how), *((one, manner) for one, _, manner in others)])) as launches:
            plain = next(launches).result(like)
            yield _Result(given, plain, how=how)
            for (one, layout, manner), launch in zip(others, launches, strict=True):
                try:
                    y = launch.result(plain)
                except (LoweringError, NotLowered) as error:  # it may refuse them
                    if isinstance(error, LoweringError) and error.kind != "raised":
                        raise
                    continue
                if _differing(y, plain):
                    yield _Result(one, y, layout, manner)

    def wrong(self, result: _Result) -> _Wrong | None:
        """What is wrong with outputs that are to keep their bound."""
        one, outputs = result.one, result.outputs
        if (found := self.status(one, outputs)) in ("passed", "deviates"):
            return None
        told = BEYOND.get(found, found)
        if result.layout:
            moved = {k: _of_rank(text, one.problem.read[k].dim()) for k, text in result.layout.items()}
            told += " with " + "; ".join(f"t = {k}: {text}" for k, text in moved.items() if text != "t")
        if result.how in BY_TURNS:
            told += f" with {next(name for name, how in MADE.items() if how == result.how)}"
        usual = result.how == USUAL and not result.layout
        alone = partial(self.right_alone, one, outputs) if usual else None
        element = partial(self.failing, one, outputs) if found in BEYOND else str
        elements = sum(t.numel() for t in outputs.values())
        again = bool(result.layout) or result.how in BY_TURNS
        return _Wrong(elements, told, found, moved=again, alone=alone, element=element)

    def failing(self, one: Instance, outputs: Outputs) -> str:
        """An element that fails, in words; '' where none does by itself."""
        for name, y in outputs.items():
            _, on = terms(one, self.aim(one), self.lowering, 0, name, y, user=self.mine)
            (term,) = on.values()
            found = failing(term.judge, term.reader, term.elements, y.contiguous().reshape(-1)) if y.numel() else None
            if found is not None:
                element, outcome = found
                place = [int(k) for k in torch.unravel_index(torch.tensor(element.index), y.shape)]
                due = decimal(outcome.truth).replace("either-zero", "0 of either sign")
                share = 0.0 if outcome.share is None else finite(outcome.share)
                times = f", off by {share:.3g} times what it may be" if 0 < share < NO_ERROR else ""
                return f"{name or 'output'}{place} is {format_of(y).hex(element.output)}, exact {due}{times}"
        return ""

    def right_alone(self, one: Instance, outputs: Outputs) -> bool:
        """Whether a problem's outputs keep their bound where it is launched by itself."""
        with suppress(LoweringError, NotLowered):
            return self.status(one, self.launched(one, like=outputs)) in ("passed", "deviates")
        return False

    # Judged in other processes

    def leaves(self, one: Instance) -> bool:
        """Whether the judgement of a problem is left to another process: to compare with a bound takes longer than all
        else, and the next call can be made meanwhile."""
        if self.aside is None or one not in self.described or one.device != "cpu" or not self.dtypes_of(one):
            return False
        return self.aside.free(sum(t.nbytes for t in one.problem.tensors.values()))  # as many as of outputs, roughly

    def asked(self, drawn: Drawn, results: Sequence[_Result]) -> _Left:
        return _Left(drawn, {self.ask(drawn, one): one for one in results})

    def ask(self, drawn: Drawn, result: _Result, eager: Outputs | None = None) -> int:
        """The number of the question whether a result is beyond doubt; eager: where it was not, beside eager's."""
        assert self.aside is not None
        question = drawn, self.dtypes_of(result.one), dict(result.outputs), eager and dict(eager)
        return self.aside.ask(pickle.dumps(question))

    def noting(self, name: str, make: Callable[[], _Wrong | _Left | None]) -> _Wrong | _Left | None:
        """Make a call, and keep its error."""
        self.seen = []
        found = make()
        if found is None and self.seen:
            self.errors[name] = max(self.seen)
        return found

    def keeps(self, question: bytes) -> list[float] | None:
        """In another process: the errors, as far as they are known, of outputs that pass beyond doubt, or beside
        eager's; None of others."""
        self.seen = []
        return self.seen if self.passes(question) else None

    def passes(self, question: bytes) -> bool:
        drawn, dtypes, outputs, eager = pickle.loads(question)
        if self.last is None or self.last[0] != repr(drawn):  # by which -0.0 is another scalar than 0.0
            self.last = repr(drawn), self.prepared(drawn)
        one = self.last[1]
        for name, y in outputs.items():
            limit = self.first(one).limit(self.aim(one), self.lowering, name)
            if limit is None or limit.bound.shape != y.shape or dtypes[name] != y.dtype:
                return False
        if eager is not None:
            return status.worst(self.each_as_of(one, outputs, eager).values()) in ("passed", "deviates")
        return any(self.as_of(way, outputs, briefly=True) == "passed" for way in self.ways(one).values())

    def settled(self, given: dict[str, _Wrong | _Left]) -> dict[str, _Wrong]:
        """The calls that are wrong. What another process does not let pass it is asked for again with eager's outputs,
        and what it does not then is judged here."""
        again: dict[str, _Wrong | _Left] = {}
        for name, one in given.items():
            self.seen = []
            again[name] = one if isinstance(one, _Wrong) else self.doubted(one)
            if self.seen:
                self.errors[name] = max(self.seen)
        found: dict[str, _Wrong] = {}
        for name, one in again.items():
            if isinstance(one, _Wrong):
                found[name] = one
                continue
            every = (self.wrong(result) for result in self.unanswered(one))
            if (wrong := next(filter(None, every), None)) is not None:
                found[name] = wrong
        return found

    def unanswered(self, left: _Left) -> list[_Result]:
        """The results that are not beyond doubt."""
        assert self.aside is not None
        answers = [(result, self.aside.answer(number)) for number, result in left.results.items()]
        self.seen += [error for _, errors in answers for error in errors or ()]
        return [result for result, errors in answers if errors is None]

    def doubted(self, left: _Left) -> _Wrong | _Left:
        """Questions about the results that are not beyond doubt, beside eager's outputs; what is wrong where one has
        other shapes or dtypes."""
        results, questions = self.unanswered(left), {}
        for result in results:
            if (wrong := self.misshapen(result)) is not None:
                return wrong
            eager = result.one.eager(0, self.reference, self.aim(result.one))
            questions[self.ask(left.drawn, result, eager)] = result
        return _Left(left.drawn, questions)

    def misshapen(self, result: _Result) -> _Wrong | None:
        """What is wrong with the shapes and dtypes of outputs."""
        due = self.shaped(result.one) or {}
        for name, y in result.outputs.items():
            t = due.get(name, y)
            if (t.shape, t.dtype) != (y.shape, y.dtype):
                told = f"returned {y.dtype} of shape {tuple(y.shape)}; expected {t.dtype} of {tuple(t.shape)}"
                return _Wrong(y.numel(), told, "error")
        return None

    def table(self) -> Iterator[tuple[str, _Call]]:
        plain, tensors = self.plain, self.plain.problem.tensors
        if possible("outputs", self.call, self.target):  # first: it may end the process in other calls
            yield GUARDED, _Call("the plain call's tensors", partial(self.beside, plain, "", False, "outputs"))
        if self.mine:
            yield PLAIN, _Call("a problem of its own", lambda: self.judged(plain))
        yield from self.plainly(LATER)  # early, since what it writes then is waited for
        for name, text in MEMORY.items():
            yield name, _Call(text, partial(self.beside, self.moved(name, tensors), "", True))
        for name, text in PICKED.items() if self.batched else ():
            yield name, _Call(text, partial(self.beside, self.moved(name, tensors), text, True))
        if self.batched:
            yield BESIDE, _Call("every second row other", self.others)
        if self.mine and isinstance(self.facts.family, Rows):
            yield f"{SOME * TIMES} rows", _Call(f"of {LONG} numbers, {TIMES} times the same", self.repeated)
        yield from self.own_problems() if self.mine else ()
        yield from self.plainly(*(name for name in MADE if name != LATER))

    def plainly(self, *names: str) -> Iterator[tuple[str, _Call]]:
        """The plain call, made in these manners of MADE."""
        for name in names:
            how = MADE[name]
            some = how not in ("grad_first", "grad_others") or len(self.plain.problem.tensors) > 1
            if some and possible(how, self.call, self.target):
                make = partial(self.beside, self.plain, "", how in LOOSE, how)
                yield name, _Call("the plain call's tensors", make)

    def own_problems(self) -> Iterator[tuple[str, _Call]]:
        for n in dict.fromkeys((*SIZES, *edges(self.call))):
            for given in self.facts.sized(n):
                name = " ".join(f"{k}={v}" for k, v in given.items())
                one = self.ahead(partial(self.prepared, Drawn(given)))
                yield name, _Call("a problem of its own, see --set", partial(self.sized, one), given)
        for place, (given, scalars) in enumerate(self.further):
            name = " ".join(f"{k}={v}" for k, v in {**given, **scalars}.items())
            text = "a problem of its own, see --set" + " and --scalar" * bool(scalars)
            one = self.ahead(partial(self.prepared, Drawn(given, scalars=scalars)))
            yield name, _Call(text, partial(self.arranged, one, self.turn(place)), None if scalars else given)
        crossed = [one for one in self.facts.crossed() if self.scalars or not one[2]]
        others = (*((*one, {}) for one in self.facts.related), *crossed)
        for place, (given, made, scalars) in enumerate(others):
            name = ", ".join(f"{k} = {text}" for k, text in made.items())
            sizes = " ".join(f"{k}={v}" for k, v in {**given, **scalars}.items())
            one = self.ahead(partial(self.prepared, Drawn(given, scalars=scalars, made=made)))
            yield (
                f"{name} where {sizes}" if made else sizes,
                _Call(
                    "a problem of its own",
                    partial(self.sized, one, also=self.turn(place)),
                    None if scalars else given,
                    made,
                ),
            )
        for given, some, picked in self.facts.many:
            sizes = " ".join(f"{k}={v}" for k, v in given.items())
            yield sizes, _Call(f"of whose output {picked['']} is judged", partial(self.many, given, some, picked))
        if possible("threads", self.call, self.target):
            long = next(iter(self.facts.sized(SIZES[-1]) or self.facts.sized(33)))
            name = "another number of threads " + " ".join(f"{k}={v}" for k, v in long.items())
            one = self.ahead(partial(self.prepared, Drawn(long)))
            yield name, _Call("a problem of its own", partial(self.sized, one, "threads"))
        if possible("out", self.call, self.target):
            large = next(iter(self.facts.sized(SIZES[-1]) or self.facts.sized(33)))
            name = "an output to write " + " ".join(f"{k}={v}" for k, v in large.items())
            one = self.ahead(partial(self.prepared, Drawn(large)))
            yield name, _Call("a problem of its own", partial(self.sized, one, "out"))
        if possible("inside", self.call, self.target):
            alone = next(iter(self.facts.sized(37)))  # a size that no other call has
            one = self.ahead(partial(self.prepared, Drawn(alone)))
            name = "new data in the middle " + " ".join(f"{k}={v}" for k, v in alone.items())
            yield name, _Call("a problem of its own", partial(self.sized, one, "inside"))
        for place, given in enumerate(self.facts.again or (self.facts.sized(33)[0],)):
            which = " " + " ".join(f"{k}={v}" for k, v in given.items()) if place else ""
            two = [self.ahead(partial(self.prepared, Drawn(given, seed))) for seed in (0, 1)]
            yield f"new data at the same address{which}", _Call("other numbers", partial(self.again, *two))

    def moved(self, name: str, tensors: Mapping[str, Tensor]) -> Instance:
        """A call of MEMORY, or of PICKED, with the tensors of a plain one."""
        if text := MEMORY.get(name):
            return self.drawn(self.batch(ROWS), {k: applied(text, t) for k, t in tensors.items()})
        picked = {k: applied(PICKED[name], t) if k in self.batched else t for k, t in tensors.items()}
        return self.drawn(self.batch(next(len(t) for k, t in picked.items() if k in self.batched)), picked)

    def prepared(self, drawn: Drawn) -> Instance:
        """The problem, with what its judgement takes where that is not left to another process."""
        one = self.drawn(drawn.given, seed=drawn.seed, scalars=drawn.scalars)
        if drawn.made:
            tensors = dict(one.problem.tensors)
            tensors |= {k: applied_to(text, k, tensors) for k, text in drawn.made.items()}
            one.problem = replace(one.problem, tensors=tensors)
        self.described[one] = drawn
        if not self.leaves(one):
            self.first(one).prepare(self.aim(one), self.lowering, self.dtypes_of(one))
        return one

    def turn(self, place: int) -> Sequence[str]:
        """The manner in which the problem of that place is also called."""
        manner = BY_TURNS[place % len(BY_TURNS)]
        return [manner] if possible(manner, self.call, self.target) else []

    def sized(self, drawn: Callable[[], Instance], how: str = USUAL, also: Sequence[str] = ()) -> _Wrong | _Left | None:
        return self.judged(drawn(), how=how, also=also)

    def arranged(self, drawn: Callable[[], Instance], also: Sequence[str]) -> _Wrong | _Left | None:
        """A further problem, in its layouts too where it is small."""
        one = drawn()
        small = max(t.numel() for t in one.problem.tensors.values()) <= LARGE
        return self.judged(one, list(self.layouts(one)) if small else self.apart(one), also=also)

    def apart(self, one: Instance) -> list[Mapping[str, str]]:
        """Layouts of the tensors of a large problem."""
        return [dict.fromkeys(one.problem.read, MEMORY[name]) for name in APART]

    def layouts(self, one: Instance) -> Iterator[Mapping[str, str]]:
        """LAYOUTS of each tensor, at distances that the seed draws: all in each, and one or two of one tensor alone; of
        many problems in some, and of some tensors."""
        names, everything = list(one.problem.tensors), list(one.problem.read)
        draw = Random(f"{self.case.seed} {one.setting.name}")
        away = {k: draw.randrange(len(LAYOUTS)) for k in everything}
        each = max(1, ARRANGED // len(self.further))
        for place in sorted(draw.sample(range(len(LAYOUTS)), min(each, len(LAYOUTS)))):
            yield {k: LAYOUTS[(place + away[k]) % len(LAYOUTS)] for k in everything}
        some = draw.sample(names, each) if each < len(names) else names
        for k in some if len(names) > 1 else ():
            yield from ({k: text} for text in draw.sample(LAYOUTS[1:], 1 + (len(names) < 4)))

    def many(
        self, given: Mapping[str, str], some: Mapping[str, str], picked: Mapping[str, str]
    ) -> _Wrong | _Left | None:  # fmt: skip
        """A problem of which some rows are judged, as one of these alone; also in other layouts."""
        one = self.drawn(given)
        tensors = {k: applied(picked.get(k, "t"), t) for k, t in one.problem.tensors.items()}
        rows, like = self.drawn(some, tensors), one.eager(0, self.reference, self.aim(one))
        with closing(self.results(one, self.apart(one), "", like)) as found:
            for result in found:
                taken = {k: applied(picked[""], t).to(rows.device) for k, t in result.outputs.items()}
                if wrong := self.wrong(replace(result, one=rows, outputs=taken)):
                    return wrong
        return None

    def again(self, first: Callable[[], Instance], second: Callable[[], Instance]) -> _Wrong | _Left | None:
        """Other numbers where the last ones were, and other tables of the same sizes: in tensors as new as those, by
        all that torch says of them."""
        self.launched(first())
        return self.judged(second(), how="")

    def others(self) -> _Wrong | None:
        """Rows beside which others are other ones."""
        changed = {k: t.clone() for k, t in self.plain.problem.tensors.items()}
        for k in self.batched:
            changed[k][1::2] = changed[k][1::2].flip(0) * 2
        y = self.launched(self.drawn(self.batch(ROWS), changed), like=self.due)
        told = _differing({k: t[::2] for k, t in y.items()}, {k: t[::2] for k, t in self.due.items()})
        return _Wrong(sum(t.numel() for t in y.values()), told, "unsteady") if told else None

    def repeated(self) -> _Wrong | None:
        """The same rows again and again, of which each is to be as in a batch of few."""
        plain, text = self.drawn(self.batch(SOME, LONG)), f"t.repeat({TIMES}, *[1] * (t.dim() - 1))"
        tensors = {k: applied(text, t) if k in self.batched else t for k, t in plain.problem.tensors.items()}
        return self.beside(self.drawn(self.batch(SOME * TIMES, LONG), tensors), text, True, plain=plain)

    def script(self, name: str, sizes: Mapping[str, str] | None, made: Mapping[str, str]) -> str:
        """Lines of torch that show, in a process of their own, that a call on rows goes wrong, of simple numbers; ''
        where they do not show it."""
        family, text = self.facts.family, MEMORY.get(name) or PICKED.get(name)
        if not isinstance(family, Rows) or not (text or sizes) or backends.virtual(self.target.backend):
            return ""
        if not importing(self.lowering.text, ""):
            return ""
        one = self.drawn(sizes or self.batch(ROWS))
        numbers = {
            k: f"(torch.arange({t.numel()}) * 37 % 97 / 64 + 0.5).to(torch.{self.case.dtype}).view({tuple(t.shape)})"
            for k, t in one.problem.tensors.items()
        }
        tensors = {k: eval(v, {"torch": torch}).to(self.case.device) for k, v in numbers.items()}
        tensors |= {k: applied_to(text, k, tensors) for k, text in made.items()}
        plain = self.drawn(sizes or self.batch(ROWS), tensors)
        getattr(self.call, "restart", lambda: None)()
        try:
            if sizes:
                shown = self.judged(plain)
            else:
                shown = self.beside(self.moved(name, tensors), PICKED.get(name, ""), False, plain=plain)
        except (LoweringError, NotLowered):
            return ""
        return self.written(name, numbers, one.problem, text or "", made) if shown else ""

    def written(
        self, name: str, numbers: Mapping[str, str], problem: Problem, text: str, made: Mapping[str, str]
    ) -> str:
        function = self.lowering.name.rpartition(":")[2]
        given = {k: v for k, v in {**problem.parameters, **problem.scalars}.items() if k not in ("shape", "recipe")}
        words = {k: repr(v) for k, v in given.items() if k != "layout"}
        mine = [f"first({k})" if name in MEMORY or k in self.batched else k for k in numbers]
        due = f"{function}({', '.join(numbers)}, **given)"
        due = f"first({due})" if name in PICKED else due
        if not text:
            reference = expression(self.facts.family.call, *(f"{k}.double()" for k in numbers), **words)
            mine, due = list(numbers), f"({reference}).to(torch.{self.case.dtype})"
        device = self.case.backend.device
        lines = [
            importing(self.lowering.text, "inspect, torch"),
            *(f"{k} = {v}" + (f".to({device!r})" if device != "cpu" else "") for k, v in numbers.items()),
            *(f"{k} = {v}" for k, v in made.items()),
            *([f"first = lambda t: {text}"] if text else []),
            f"given = {{k: v for k, v in {given}.items() if k in inspect.signature({function}).parameters}}",
            f"due = {due}\ny = {function}({', '.join(mine)}, **given)",
            "worst = (y.double() - due.double()).abs().argmax()\nprint(y.flatten()[worst], due.flatten()[worst])",
        ]
        return "\n".join(lines)


@contextmanager
def _aside(case: Instance, target: Target, lowering: Lowering, count: int) -> Iterator[Aside | None]:
    """So many processes that judge the problems of `Calls`."""
    if count < 1:
        yield None
        return
    aside = Aside(_Judging(target, case.seed, lowering), count)
    try:
        yield aside
    finally:
        aside.end()


class _Told:
    """A backend in a process that judges on the host, of which the device would have to be opened to be asked."""

    check_device = "cpu"

    def __init__(self, name: str, capability: str) -> None:
        self._backend, self._capability = backends.load(name), capability

    def capability(self) -> str:
        return self._capability

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class _Judging:
    """Picklable: in another process, what judges problems as `Calls` of a lowering do here."""

    def __init__(self, target: Target, seed: int, lowering: Lowering) -> None:
        self.kernel, self.backend = target.kernel.name, (target.backend.name, target.backend.capability())
        self.scalars, self.dtype, self.spelling = dict(target.scalars), target.dtype, target.spelling
        self.seed, self.name, self.order = seed, lowering.name, lowering.order

    def __call__(self) -> Callable[[bytes], list[float] | None]:
        torch.set_num_threads(JUDGING)
        facts, backend = load(self.kernel), cast(Backend, _Told(*self.backend))
        assert isinstance(facts, Composite) and facts.custom is not None
        case = Instance(facts, facts.custom(facts.sized(1)[0]), self.scalars, self.dtype, backend, self.seed)
        target = Target(facts, self.scalars, self.spelling, self.dtype, backend)
        lowering = replace(user_composite(self.name, self.order, function=_nothing), name=self.name)
        return Calls(case, target, lowering, lowerings(facts)[0], _nothing, mine=True).keeps


def _nothing(target: Target) -> Callable[[Any], Any]:
    raise NotLowered("it is called in another process")


def call_problems(
    case: Instance, target: Target, lowering: Lowering, call: Callable[..., Any], reference: Lowering, *,
    mine: bool = True, scalars: bool = True,
) -> Called:  # fmt: skip
    """Make every call with the lowering, built as `call`; reference: the registered one, whose shapes are due. mine: it
    is a user's own; a registered one is not called with problems of their own, which its settings are. scalars: it is
    to take other Python scalars than the case's."""
    apart = mine and possible("guard", call, target)
    count = min(ASIDE, torch.get_num_threads() // EACH) if apart else 0
    with backends.sharing(backends.threads(), JUDGING), _aside(case, target, lowering, count) as aside:
        calls = Calls(case, target, lowering, reference, call, mine, scalars, aside)
        table = dict(calls.table())
        make: dict[str, Callable[[], _Wrong | _Left | None]] = {
            name: partial(calls.noting, name, one.make) for name, one in table.items()
        }
        found, wrong = tried(make, lambda name: f"{name}, {table[name].text}", call, calls.settled)
        beyond = {name: one for name, one in wrong.items() if not one.loose}
        name, shown = "", ""
        worst = status.worst(one.status for one in beyond.values())
        if beyond and not found.told:
            telling = [key for key, one in beyond.items() if one.status == worst]
            name = min(telling, key=lambda key: (beyond[key].moved, beyond[key].elements))
            shown = beyond[name].shown()
    if mine:
        found = replace(found, errors={name: float(f"{error:.3g}") for name, error in calls.errors.items()})
    if calls.unstated:
        why = "in the declared order" if lowering.order is not None else "which have eager's bits"
        told = f"nothing is stated of some elements, {why}: {listed(calls.unstated)}"
        found = replace(found, excused=told)
    if found.told or not wrong:
        return found
    if not beyond and not mine:
        return replace(found, excused=DEPENDS)
    if not beyond:
        told = f"bits depend on size or place, as those of known lowerings do, and keep their bound: {listed(wrong)}"
        return replace(found, excused="; ".join(filter(None, (told, found.excused))))
    ended = "cannot be judged" if worst == "unjudged" else "fail"
    told = f"{len(beyond)} of {found.made} calls {ended}; the smallest: {name}, {table[name].text}: {shown}"
    return replace(
        found, status=worst, told=told, script=calls.script(name, table[name].sizes, table[name].made) if mine else ""
    )


def _of_rank(text: str, dims: int) -> str:
    """What counts of an expression of LAYOUTS for a tensor of so many dimensions."""
    whole, *other = text.split(MORE)
    return other[0] if other and dims <= 2 else whole


def _work(given: Mapping[str, str]) -> int:
    """The product of all numbers in what is given to `custom`: the larger, the longer a problem takes."""
    return math.prod(max(1, int(n)) for text in given.values() for n in re.findall(r"\d+", text))


def _differing(found: Outputs, due: Outputs) -> str:
    """The first element whose bits are others; '' where none is."""
    for name, y in found.items():
        t = due[name]
        different = bits(y).ne(bits(t)) & ~(y.isnan() & t.isnan())
        if bool(different.any()):
            place = different.nonzero()[0].tolist()
            shown = (float(one[tuple(place)]).hex() for one in (y, t))
            return f"{int(different.sum())} of {y.numel()} elements differ, {name}{place} is {' and was '.join(shown)}"
    return ""
