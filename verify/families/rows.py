"""Row kernels (sums, scans, softmax, norms): what one declares.

A row kernel works on the slices of its first input along one dimension. It is an oracle, its algorithms and one call of
`kernel`. Beside this module are its numbers (`rows_recipes`) and problems (`rows_settings`), and truths, bounds and
lowerings, which need torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import Composite, lazily
from verify.facts.oracle import Oracle
from verify.families import rows_settings as settings
from verify.families.rows_recipes import problem, recipes_of
from verify.lower.stubs import expression
from verify.numbers.documented import Documented
from verify.numbers.orders import Order

if TYPE_CHECKING:
    from torch import Tensor

    from verify.families.composite import Problem


# ---------------------------------------------------------------- what a row kernel declares


@dataclass(frozen=True)
class Place:
    """Where a row kernel runs, as far as its algorithm depends on it.

    storage, wide  the tensor's dtype, and float32, or float64 for float64
    n, rows        terms of a row, and how many rows there are
    last           whether the rows lie along the last dimension
    """

    lowering: str
    backend: str
    storage: Format
    n: int
    rows: int
    last: bool

    @property
    def wide(self) -> Format:
        return FORMATS["float64" if self.storage.name == "float64" else "float32"]


@dataclass(frozen=True)
class Algorithm:
    """What a lowering declares about its roundings.

    formula    formula(n, *tensors, order=, **scalars), run by `ieee` for bits and by `roundoff` for a bound
    order      of its sums, products or combinations, with their accumulator
    compute    the format of everything else, in which the inputs are taken
    functions  what is documented of the library functions that it calls, and of / ('div') where it rounds otherwise
    text       what is known of it, and where from; made from the order where empty
    """

    formula: Callable[..., Any]
    order: Order
    compute: Format
    functions: Mapping[str, Documented] = field(default_factory=dict)
    text: str = ""

    @property
    def source(self) -> str:
        told = [self.text or str(self.order)]
        told += list(dict.fromkeys(f"{name}: {known.source}" for name, known in self.functions.items()))
        return "; ".join(told)

    @property
    def ordered(self) -> bool:
        """Whether its order is known at all."""
        return self.order.kind != "any" or self.order.paths is not None


@dataclass(frozen=True)
class Rows:
    """What the family knows of a row kernel.

    oracle      the real function; n.own(x) is the element where the result is wanted
    kind        one of SUMS, PRODUCTS, EXPONENTIALS, SQUARES
    call        call(torch, *tensors, dim, **scalars) -> the output, in torch's own words
    algorithms  algorithms(place) -> those that the lowering may run; () where nothing is known
    forms       formulas that no registered lowering has, and the functions that they call: for a user's own that
                declares its order, and suspect in one that does not
    held        what a lowering of the user's own is held to, in words
    reduces     one output a row; else one for each element
    prefixes    an element depends on those up to it alone
    neutral     what a NaN or an infinity counts as in a bound, where a special value decides the truth (None: the
                algorithm's own business); `minus`: -inf is an ordinary argument
    counted     whether its bound counts the roundings of sums, so that a probable one may take their root
    weights     inputs after the first: one element for each of a row
    triton      the module of the Triton kernel, with `run`, `block_of` and `not_interpreted`
    listed      the larger, the more an element says in an explanation
    details     details(row, position) -> lines of an explanation
    """

    oracle: Oracle
    kind: str
    call: Callable[..., Any]
    algorithms: Callable[[Place], tuple[Algorithm, ...]]
    held: str
    forms: Mapping[Callable[..., Any], tuple[str, ...]] = field(default_factory=dict)
    reduces: bool = False
    prefixes: bool = False
    neutral: float | None = None
    minus: bool = False
    counted: bool = False
    weights: tuple[str, ...] = ()
    triton: str | None = None
    listed: Callable[[Any], Any] = abs
    details: Callable[..., list[tuple[str, str]]] | None = None


# ---------------------------------------------------------------- facts


def placed(problem: Problem, facts: Rows, rows: Tensor) -> Tensor:
    """Values by row and position in the output's shape."""
    x, dim = next(iter(problem.tensors.values())), problem.parameters["dim"]
    moved = x.movedim(dim, -1).shape
    if facts.reduces:
        return rows.reshape(moved[:-1])
    return rows.reshape(moved).movedim(-1, dim)


def _strata(facts: Rows, problem: Problem, output: str) -> tuple[tuple[str, ...], Any]:
    """The recipe of each row."""
    import torch

    told = problem.extra["recipes"]
    names = tuple(dict.fromkeys(told))
    of = torch.tensor([names.index(name) for name in told])[:, None]
    n = problem.parameters["shape"][problem.parameters["dim"]]
    return names, placed(problem, facts, of.expand(-1, 1 if facts.reduces else n))


def _stub(name: str, rows: Rows, scalars: tuple[str, ...]) -> str:
    keywords = ("dim", *scalars)
    told = expression(rows.call, "x", *rows.weights, **{word: word for word in keywords})
    return f"def {name}({', '.join(('x', *rows.weights, *keywords))}):\n    return {told}\n"


#: In the order of `rows_lowerings`, which imports torch.
LOWERINGS = ("eager", "inductor", "inductor-strict", "triton", "triton-interpreter")


def kernel(
    name: str,
    summary: str,
    rows: Rows,
    *,
    extremes: bool = False,
    last: bool = False,
    cases: tuple[Mapping[str, float], ...] = ({},),
    others: tuple[Mapping[str, float], ...] = (),
    formulas: str = "",
    lowerings: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    compiling: float = 1.0,
) -> Composite:
    """The facts about one operation along a dimension.

    extremes: it compares, so that equal numbers are of interest. last: rows lie along the last dimension. others:
    scalars that its cases do not have, see `Composite.further`. formulas: the module with formulas(name,
    problem, backend, output), see `Composite`. lowerings: those that it has beyond the family's. compiling: see
    `Kernel`.
    """
    listed = ", ".join(("mixed", *recipes_of(rows.kind, extremes)))
    own = settings.LAST if last else settings.EXTREMES if extremes else settings.SETTINGS
    return Composite(
        name=name,
        summary=summary,
        inputs=("x", *rows.weights),
        settings=(*own, *(() if extremes else settings.FURTHER.get(rows.kind, ()))),
        parameters=settings.PARAMETERS
        | {"recipe": f"its numbers, row by row: {listed}, or several with commas between"}
        | (
            {"weights": "ordinary, or special: zeros, infinities, NaNs and subnormal numbers among them"}
            if rows.weights
            else {}
        ),
        batched=lambda rows, length: {"shape": f"{rows}x{length}", "recipe": "random"},
        sized=functools.partial(settings.sized, last=last),
        further=settings.further(rows, last, others),
        drawn=functools.partial(
            settings.drawn, kind=rows.kind, extremes=extremes, last=last, weighted=bool(rows.weights)
        ),
        related=settings.related(rows, last),
        crossed=functools.partial(settings.crossed, rows.kind, extremes, last, bool(rows.weights), others),
        many=settings.many(last),
        custom=functools.partial(settings.custom, kind=rows.kind, extremes=extremes, reduces=rows.reduces, last=last),
        asks=settings.asks,
        problem=functools.partial(problem, kind=rows.kind, extremes=extremes, weights=rows.weights),
        truth=functools.partial(lazily("verify.families.rows_truth", "Slices"), rows),
        limit=lazily("verify.families.rows_limits", "limit"),
        orders=not extremes,
        strata=functools.partial(_strata, rows),
        family=rows,
        formulas=functools.partial(lazily(formulas, "formulas"), name) if formulas else None,
        implementations="verify.families.rows_lowerings",
        lowerings=LOWERINGS + lowerings,
        cases=cases,
        quick_cases=len(cases),
        held=rows.held,
        ways=lazily("verify.families.rows_limits", "ways"),
        stub=_stub(name, rows, tuple(dict.fromkeys(scalar for case in cases for scalar in case))),
        notes=notes,
        compiling=compiling,
    )
