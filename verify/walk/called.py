"""The calls of a lowering beside the walk's launch: how they are made one after another, and what they gave."""

from __future__ import annotations

import textwrap
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

import torch

from verify import backends
from verify.lower.lowering import NotLowered, Target
from verify.walk.arrangements import ARRANGEMENT, DRAWN, LATER, MANNERS
from verify.workers.launch import UNDERWAY, LoweringError, ran

S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U", covariant=True)
#: Of a processor, that a lowering may take in its calls: all are made, or some are not, since each shape may be
#: compiled anew. What the checker takes to judge them, longer on a slow machine, and other work do not decide which are
#: made, but for LONGEST, by the clock.
SECONDS, LONGEST = 20.0, 100.0
#: torch's threads in their judgement: of small tensors more would wait for one another, where a core has other work.
JUDGING = 1
LISTED = 8  # calls that a remark names


#: Of a registered lowering whose calls differ within the bound.
DEPENDS = "bits depend on how it is called, and keep their bound: see its calls"


@dataclass(frozen=True)
class Called:
    """What the calls of a lowering gave.

    made, refused    how many gave a result, and those that the lowering refused, with its exception
    different        those whose bits are others
    bits             digests of what those of an elementwise function gave
    errors           of those with problems of their own that pass, the largest error, see `error_of`
    untried          those that were not made, for want of time or of a process that answers
    status, kind     what they give the cell, with the kind of its reason, and `told`, a line for people
    excused          why different bits are no fault
    script           lines of Python that show the smallest call of other bits
    later            in words, the call of which `settled` asks whether more was written; '' where none was made
    """

    made: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    different: tuple[str, ...] = ()
    bits: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
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

    def counted(self, lowering: Callable[..., Any]) -> Called:
        """Unjudged where most of a user's own calls were not made, and compiling them is not what took the time."""
        made, left = self.made + len(self.refused), len(self.untried)
        if self.status != "passed" or left <= made or getattr(lowering, "compiles", lambda: True)():
            return self
        told = (
            f"{left} of {made + left} other calls were not made, since those before took {SECONDS:g} s of a processor"
            f" or {LONGEST:g} s by the clock: {listed(self.untried)}"
        )
        return replace(self, status="unjudged", told=told)

    @property
    def remark(self) -> str:
        """For people: what is wrong, else what is not as in the plain call."""
        parts = {"refused": self.refused, "not made": self.untried}
        rest = [f"calls {what}: {listed(names)}" for what, names in parts.items() if names]
        if self.refused:
            rest[0] += f" ({textwrap.shorten(next(iter(self.refused.values())), 120)})"
        return self.told or "; ".join(filter(None, (self.excused, *rest)))

    def record(self) -> dict[str, Any]:
        lists = {
            "different": list(self.different),
            "bits": dict(self.bits),
            "errors": dict(self.errors),
            "untried": list(self.untried),
            "refused": dict(self.refused),
        }
        status = "" if self.status == "passed" else self.status
        return {"made": self.made, "status": status, **lists, "note": self.excused, "script": self.script.splitlines()}


def listed(names: Collection[str]) -> str:
    """The first names of calls, and how many there are of those that are drawn."""
    named = [name for name in names if not name.startswith(ARRANGEMENT)]
    drawn, more = len(names) - len(named), len(named) - LISTED
    told = [f"{more} more"] * (more > 0) + [f"{drawn} of {DRAWN} drawn {ARRANGEMENT}s"] * (drawn > 0)
    return ", ".join((*named[:LISTED], *told))


@dataclass(frozen=True)
class Underway(Generic[U]):
    """A call that has begun: what ends it and gives its result, and what lets it end for nobody."""

    end: Callable[[], U | None]
    drop: Callable[[], None] = lambda: None


def tried(
    calls: Mapping[str, Callable[[], Underway[S] | S | None]], told: Callable[[str], str], lowering: Callable[..., Any],
    sift: Callable[[dict[str, S]], dict[str, T]],
) -> tuple[Called, dict[str, T]]:  # fmt: skip
    """Make the calls, as long as there is time: what that gave, and the results of those that are wrong. told: a call
    in words; lowering: what is called, as built; sift: which of the results that calls gave are wrong. As many as
    UNDERWAY are under way at a time, and end in their order. A broken contract ends them, with status 'error'."""
    with backends.sharing(backends.threads(), JUDGING):
        return _tried(calls, told, lowering, sift)


def _tried(
    calls: Mapping[str, Callable[[], Underway[S] | S | None]], told: Callable[[str], str], lowering: Callable[..., Any],
    sift: Callable[[dict[str, S]], dict[str, T]],
) -> tuple[Called, dict[str, T]]:  # fmt: skip
    found, given, refused = Called(), dict[str, S](), dict[str, str]()
    spent = getattr(lowering, "spent", ran)
    began, before, names = time.monotonic(), spent(), list(calls)
    made = 0

    def ended(place: int, one: Underway[S]) -> None:
        """Take the result of a call."""
        nonlocal found, made
        name = names[place]
        try:
            result = one.end()
        except (LoweringError, NotLowered) as error:
            if isinstance(error, LoweringError) and error.kind != "raised":
                text = f"called with {told(name)}: {error}"
                found = replace(found, status="error", kind=error.kind, told=text, untried=tuple(names[place:]))
            else:
                refused[name] = str(error)
            return
        made += 1
        if result is not None:
            given[name] = result

    underway = deque[tuple[int, Underway[S]]]()
    try:
        for place, name in enumerate(names):
            if spent() - before > SECONDS or time.monotonic() - began > LONGEST:
                found = replace(found, untried=tuple(names[place:]))
                break
            ahead = UNDERWAY - 1
            try:
                one = calls[name]()
            except (LoweringError, NotLowered) as error:
                one, ahead = Underway(partial(_raise, error)), 0  # nothing begins after what may end them all
            underway.append((place, one if isinstance(one, Underway) else Underway(partial(_given_back, one))))
            while len(underway) > ahead and found.status == "passed":
                ended(*underway.popleft())
            if found.status != "passed":
                break
        while underway and found.status == "passed":
            ended(*underway.popleft())
    finally:
        for _, left in underway:
            left.drop()
    wrong = sift(given)
    later = told(LATER) if LATER in calls and hasattr(lowering, "settle") else ""
    found = replace(found, made=made, refused=refused, different=tuple(wrong), later=later)
    return found.settled(lowering) if wrong else found, wrong  # to find the cause may take another process


def _raise(error: BaseException) -> NoReturn:
    raise error


def _given_back(result: S | None) -> S | None:
    return result


def possible(how: str, call: Callable[..., Any], target: Target) -> bool:
    """Whether a call can be made in that manner: in a process of its own, on a device that has streams."""
    module = getattr(torch, torch.device(target.backend.device).type, None)  # not every device has one
    streams = hasattr(module, "_sleep")
    return how not in MANNERS or (hasattr(call, "manner") and (how != "stream" or streams))


def edges(call: Callable[..., Any]) -> list[int]:
    """Sizes beside the edges of the blocks of a user's Triton kernels, as far as the launches told them."""
    return sorted({n for block in getattr(call, "launched_blocks", ()) for n in (block - 1, block, block + 1)})
