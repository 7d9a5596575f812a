"""Cases: what one walk judges. Inputs in portions, what is known about each element, and how far a lowering may be off.

`verify.walk.pointwise.Pointwise` is an elementwise kernel with its Python scalars on a domain;
`verify.walk.instance.Instance` one problem of a composite kernel. The walk (`verify.walk.walk`) knows them by `Case`
alone.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from verify.backends import Backend, judged_on
from verify.facts.formats import FORMATS, Format
from verify.judge import ledger
from verify.judge.cell import Reader, Stated
from verify.judge.chunk import Engine, Excuse, Formulas, Judge, differing
from verify.judge.chunk import Source as Elements
from verify.judge.element import Judged, Limits
from verify.judge.identify import Identification
from verify.judge.regions import REGIONS
from verify.judge.status import FAILURES
from verify.judge.tally import Fit, Tally
from verify.lower.lowering import Lowering, Target
from verify.lower.pytorch import EAGER
from verify.numbers import admit
from verify.workers.launch import Given, LoweringError, Origin, Outputs

Tensor = torch.Tensor
#: Names of the kinds of data of a problem, and which of them each element of an output is of (int64, flat).
Strata = tuple[tuple[str, ...], Tensor]
SAMPLE = 32  # elements of a cell that multiprecision judges again, whatever the tensors say
#: Elements up to which the host judges them sooner than a GPU that other jobs wait for: of a domain, of which one of
#: float64 takes as long as sixteen, or of a problem's inputs, a step.
SMALL = 1 << 18


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
