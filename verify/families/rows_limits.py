"""The bounds of row kernels: the algorithm that a lowering declares, run in `roundoff`; nothing is derived here.

A user's own lowering is held to the order that it declares, else to the widest of the kernel's known algorithms,
beyond which it may still have another order: that does not prove that it is right. All functions it calls are allowed
2 ULP at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import facts_of, is_file
from verify.families.composite import Limit, Problem
from verify.families.rows import LOWERINGS, Algorithm, Place, Rows, placed
from verify.families.rows_recipes import SQUARES
from verify.families.rows_truth import rows_of, squares_overflow
from verify.lower.lowering import Lowering, Target
from verify.numbers.arrays import BallArrays
from verify.numbers.documented import Documented
from verify.numbers.orders import Order
from verify.numbers.roundoff import UP, Roundoff

Tensor = torch.Tensor
#: Covers what a float64 ball or quotient adds to an error before the comparison with its bound.
SLACK = 1.0 + 2.0**-20
#: Relative to the truth, likewise; far below any step of the format. Of float64, whose elements are judged in 96 bits
#: of multiprecision or more, where the truth is not rational.
RESOLVED, RESOLVED_FLOAT64 = 2.0**-40, 2.0**-76
#: Elements of the rows that are evaluated at once.
STEP = 1 << 20
#: The error allowed to library functions of a user's own lowering: 2 ULP, each at most 2 u.
OWN = Documented(4.0, "2 ULP, what a user's own lowering is held to")
#: The probability with which a run of at most so many cells may call a correct kernel suspect.
RISK, CELLS = 1e-6, 1 << 13


def limit(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit | None:
    """The error allowed to every element of the output, in its shape; None where nothing is known about the lowering.

    A user's own lowering may have the order that it declares. Without one it may have any known one, and is suspect
    beyond them as long as it is within any order in float32 (float64 of float64). Every lowering is suspect beyond its
    probable bound.
    """
    facts, place = target.kernel.family, place_of(problem, target, lowering.name)
    found, outer = facts.algorithms(place), None
    if is_file(lowering.name):
        found = of_ones_own(facts, place, lowering.order)
        if lowering.order is None:
            outer = _widest(problem, facts, of_ones_own(facts, place, Order("any", place.wide), quotient=OWN))
    return _bounded(problem, facts, place, found, outer)


def ways(problem: Problem, target: Target) -> dict[str, Callable[..., Limit | None]]:
    """`Composite.ways`."""
    facts, place = target.kernel.family, place_of(problem, target, "")
    return {
        f"{one.formula.__name__}, {one.source}": lambda problem, *given, one=one: _bounded(problem, facts, place, [one])
        for one in of_ones_own(facts, place, None)
    }


def _bounded(
    problem: Problem, facts: Rows, place: Place, found: Sequence[Algorithm], outer: Limit | None = None
) -> Limit | None:
    """The bound of the algorithms, the probable one where rows are random. outer: a wider one, beyond which only an
    order that nobody knows may be."""
    proven = _widest(problem, facts, found) or outer
    if proven is None:
        return None
    beyond = (("order", torch.maximum(outer.bound, proven.bound)),) if outer is not None else ()
    likely = probable(problem, facts, place, found)
    if likely is None:
        return replace(proven, beyond=beyond)
    bound = torch.where(proven.bound.isfinite(), torch.minimum(likely.bound, proven.bound), math.inf)
    source = f"{proven.source}; on random rows also {likely.source}"
    return Limit(bound, source, (("probable", proven.bound), *beyond))


def probable(problem: Problem, facts: Rows, place: Place, found: Sequence[Algorithm]) -> Limit | None:
    """The bound of the algorithms with (1 + u)^k - 1 replaced by exp(l sqrt(k) u + k u^2 / (1 - u)) - 1 (Higham and
    Mary 2019, theorem 2.4): l such that all roundings of all elements keep it at once with a probability of at least
    1 - RISK a run, by a union over them, where roundings to nearest err independently with mean 0, as they do on
    random significands and signs. Infinite on other rows, and where no path has more than l^2 roundings, of which
    (1 + u)^k - 1 is the smaller. None where no row is so, and where no rule counts roundings.
    """
    random = torch.tensor([name == "random" for name in problem.extra.get("recipes", ())])
    if not bool(random.any()) or not found or not facts.counted:
        return None
    roundings = float(max(place.rows * place.n, 1)) * max(place.n, 1) * CELLS
    confidence = math.sqrt(2 * math.log(2 * roundings / RISK)) / (1 - float(place.storage.unit_roundoff))
    x, *weights = problem.tensors.items()
    random = random.to(x[1].device)
    shape = len(random), 1 if facts.reduces else place.n
    bounds = torch.full(shape, math.inf, dtype=torch.float64, device=random.device)
    source = f"Higham and Mary 2019, theorem 2.4, for 1 - {RISK:g} a run"
    counts = torch.arange(1 if facts.prefixes else place.n, place.n + 1, dtype=torch.float64)
    if all(bool((one.order.steps(counts) + 1 <= confidence**2).all()) for one in found):  # 1: a product's
        return Limit(placed(problem, facts, bounds), source)
    kept = problem.extra.get("bounds", {})
    if "random" not in kept:
        drawn = rows_of(x[1], problem.parameters["dim"])[random]
        only = {"shape": list(drawn.shape), "dim": -1}
        kept["random"] = Problem({x[0]: drawn, **dict(weights)}, only, problem.scalars, problem.dtype, {"bounds": {}})
    widest = _widest(kept["random"], facts, found, confidence)
    assert widest is not None
    bounds[random] = widest.bound.reshape(bounds[random].shape)
    return Limit(placed(problem, facts, bounds), source)


def place_of(problem: Problem, target: Target, lowering: str) -> Place:
    x, dim = next(iter(problem.tensors.values())), problem.parameters["dim"] % len(problem.parameters["shape"])
    n = x.shape[dim]
    last = dim == x.dim() - 1
    return Place(lowering, facts_of(target.backend.name), FORMATS[target.dtype], n, x.numel() // max(n, 1), last)


def known(facts: Rows, place: Place) -> list[Algorithm]:
    """The algorithms of the registered lowerings on the backend."""
    return [one for name in LOWERINGS for one in facts.algorithms(replace(place, lowering=name))]


def of_ones_own(
    facts: Rows, place: Place, order: Order | None, quotient: Documented | None = None
) -> tuple[Algorithm, ...]:
    """Each formula that a registered lowering has, in the declared order; without one, each known algorithm whose order
    is known. Functions may err by 2 ULP, or as much as the worst of the known ones."""
    listed = known(facts, place)
    functions: dict[str, Documented] = {}
    for one in listed:
        for name, documented in one.functions.items():
            loose = documented if name in ("div", "sqrt") else _looser(documented, OWN)
            functions[name] = _looser(functions.get(name, loose), loose)
    if quotient is not None:
        functions["div"] = _looser(functions.get("div", quotient), quotient)
    if order is None:
        chosen = [one for one in listed if one.ordered]
        return tuple(replace(one, functions={**functions, **_exact_quotients(one)}) for one in chosen)
    formulas = dict.fromkeys((*(one.formula for one in listed), *facts.forms))
    further = (name for names in facts.forms.values() for name in names)
    functions = dict.fromkeys(further, replace(OWN, absolute=float(place.wide.smallest_normal))) | functions
    held = FORMATS["float64"] if order.accumulator.name == "float64" else place.wide
    return tuple(Algorithm(formula, order, held, functions) for formula in formulas)


def _exact_quotients(one: Algorithm) -> dict[str, Documented]:
    """What the algorithm itself states about / and square roots."""
    return {name: known for name, known in one.functions.items() if name in ("div", "sqrt")}


def _looser(a: Documented, b: Documented) -> Documented:
    wide, narrow = (a, b) if a.units >= b.units else (b, a)
    return replace(wide, absolute=max(a.absolute, b.absolute), points=wide.points and narrow.points)


def _widest(problem: Problem, facts: Rows, found: Sequence[Algorithm], confidence: float | None = None) -> Limit | None:
    """The largest bound of several algorithms, element by element; sources of those that are anywhere the largest."""
    if not found:
        return None
    bounds = [_kept(problem, facts, one, confidence) for one in found]
    widest = bounds[0]
    for other in bounds[1:]:
        widest = torch.maximum(widest, other)
    needed = [one for one, bound in zip(found, bounds, strict=True) if bool((bound == widest).any())]
    sources = dict.fromkeys(one.source for one in needed) or [found[0].source]
    return Limit(widest, f"run in roundoff (Higham 2002, chapters 2 to 4): {' | '.join(sources)}")


def _kept(problem: Problem, facts: Rows, one: Algorithm, confidence: float | None) -> Tensor:
    """The bound of one algorithm on the problem, evaluated once."""
    x = next(iter(problem.tensors.values()))
    kept: dict[Any, Tensor] = problem.extra.get("bounds", {})
    functions = tuple(
        sorted((name, known.units, known.absolute, known.points) for name, known in one.functions.items())
    )
    n = x.shape[problem.parameters["dim"]]
    count = torch.arange(1, n + 1, dtype=torch.float64)
    steps = tuple(one.order.steps(count[-1:] if facts.reduces or not facts.prefixes else count).tolist()[-1:])
    order = (one.order.kind, one.order.accumulator, one.order.block, one.order.text, steps)
    key = (one.formula, order, one.compute, functions, x.device.type, confidence)
    if key not in kept:
        kept[key] = bound_of(problem, facts, one, confidence)
    return kept[key]


def bound_of(problem: Problem, facts: Rows, one: Algorithm, confidence: float | None = None) -> Tensor:
    """|y - t| at most, for each element of the output in its shape (float64); infinite where nothing is stated.

    0 where the algorithm is exact, or a special value decides the truth; there a format narrower than float64 gets
    less than its smallest step, which a float64 ball's own radius needs.
    """
    x, *others = problem.tensors.values()
    storage = FORMATS[problem.dtype]
    rows = rows_of(x, problem.parameters["dim"])
    functions = {(name, one.compute.name): documented for name, documented in one.functions.items()}
    base = Roundoff(one.compute, storage, functions, device=rows.device, confidence=confidence)
    kept = problem.extra.get("bounds", {})
    system = BallArrays(rows.device)
    parts = []
    for k, part in enumerate(torch.split(rows, max(1, STEP // max(rows.shape[1], 1))) if len(rows) else [rows]):
        n = replace(base, kept=kept.setdefault(("inputs", rows.device.type, k), {}))
        inputs = [part, *(t[None] for t in others)]
        special, nan = _special(facts, system, [system.input(t) for t in inputs], problem.scalars, part)
        values = (_input(n, facts, t) for t in inputs)
        found = n.result(one.formula(n, *values, order=one.order, **problem.scalars))
        error = found.error
        if facts.kind == SQUARES:  # their reciprocal root is 0 then, and so is its product with a finite number
            beyond = squares_overflow(part)
            error = torch.where(beyond, (found.mid.abs() + found.rad) * UP, error)
            for t in others:  # but where it meets an infinite weight
                error = torch.where(beyond & t.isinf(), math.inf, error)
        parts.append(settled(error, found.mid, special, nan, storage))
    return placed(problem, facts, torch.cat(parts))


def _input(n: Roundoff, facts: Rows, t: Tensor) -> Any:
    value = n.input(t)
    if facts.neutral is None:
        return value
    odd = ~value.mid.isfinite() & ~(facts.minus & (value.mid == -math.inf))
    mid = torch.where(odd, facts.neutral, value.mid)
    return replace(value, mid=mid, error=torch.where(odd, 0.0, value.error))


def _special(
    facts: Rows, n: BallArrays, inputs: list[Any], scalars: Mapping[str, float], part: Tensor
) -> tuple[Tensor, Tensor]:
    """Where a special value decides the truth, and where it is NaN."""
    shape = (part.shape[0], 1 if facts.reduces else part.shape[1])
    special = nan = torch.zeros(shape, dtype=torch.bool, device=part.device)
    for row in facts.oracle.rows:
        hit = row.when(n, *inputs, **scalars).expand(shape) & ~special
        special, nan = special | hit, nan | hit if row.gives == "nan" else nan
    return special, nan


def settled(error: Tensor, mid: Tensor, special: Tensor, nan: Tensor, storage: Format) -> Tensor:
    """A bound as the judge takes it, with what its own enclosures do not resolve. special: where a special value
    decides the truth; nan: where that is NaN."""
    error, size = error.expand_as(special), mid.abs().expand_as(special)
    bound = torch.where(error > 0, error * SLACK, 0.0)
    # A finite partial result may have left the range, and then met what decides the truth; a NaN it leaves as it is.
    bound = torch.where(nan | (special & bound.isfinite()), 0.0, bound)
    size = torch.where(special | ~size.isfinite(), 0.0, size)
    if storage.bits == 64:
        bound = bound + torch.where(bound > 0, size * RESOLVED_FLOAT64, 0.0)
    else:
        floor = size.clamp(max=2.0 ** (storage.emax + 1)) * RESOLVED + float(storage.smallest_subnormal) / 4
        bound = torch.maximum(bound, floor) + torch.where(bound > 0, floor, 0.0)
    return torch.where(bound.isnan(), math.inf, bound)
