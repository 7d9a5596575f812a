"""What the Adam lowerings compute: the algorithm of each, the errors of the functions that it calls, and the resulting
bounds.

The machinery is `verify.families.steps`; the recurrences and roundings are `verify.oracles._adam`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch

from verify import backends
from verify.facts.bounds import published
from verify.facts.formats import FORMATS
from verify.facts.kernel import facts_of, is_file
from verify.families import steps as family
from verify.families.composite import Limit, Problem
from verify.kernels._adam import PLACES, kept_format, states, steps_of, switches
from verify.kernels._adam_formulas import POWER_BITS, corrected, hand_written, values
from verify.kernels._adam_numbers import HOST, Multiprecision
from verify.kernels._adam_truth import BLOCK, Trajectory, constants
from verify.lower.lowering import Lowering, Target
from verify.numbers.documented import Documented
from verify.numbers.functions import LIBRARY
from verify.numbers.roundoff import TINY, UP, Rough, Roundoff
from verify.oracles import _adam as a
from verify.oracles._adam import Algorithm, averages, rounded_step

Tensor = torch.Tensor
FLOAT32 = FORMATS["float32"]
#: Of the state: second averages and their maximum are never negative.
POSITIVE = (False, False, True, True)


@dataclass(frozen=True)
class Declared:
    """An algorithm with the errors of the functions that its platform computes it by, in units of u (1: correctly
    rounded)."""

    algorithm: Algorithm
    division: float = 1.0
    root: float = 1.0
    power: float = 1.0

    def system(self, problem: Problem, flushes: bool) -> Roundoff:
        units = {"div": self.division, "sqrt": self.root, "pow": self.power}
        known = {(name, "float32"): Documented(size, "declared") for name, size in units.items() if size != 1.0}
        known["pow", "float32"] = Documented(self.power, "declared")
        known["pow", "float64"] = Documented(2.0, "the host's pow: within an ULP (glibc)")
        flush = float(FLOAT32.smallest_normal) if flushes else 0.0
        device = problem.tensors["exp_avg"].device
        exact = problem.parameters["gradients"] == "exact"
        return Roundoff(FLOAT32, FORMATS[kept_format(problem)], known, flush, device=device, exact=exact)


def limit_of(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit | None:
    """`Composite.limit`, see `verify.kernels._adam`; None where no element has a bound."""
    found = declared(problem, target, lowering.name)
    flushes = lowering.ftz(target)
    bounds = [bounds_of(problem, one, flushes)[PLACES[output]] for one in found]
    # a form that divides by a rate of 0 states nothing, which leaves the others theirs
    bound = family.widest(bounds, stated=is_file(lowering.name) and not problem.scalars.get("lr", 1.0))
    texts = list(dict.fromkeys(one.algorithm.text(switches(problem)) for one in found))
    if output == "param" and "master" in problem.tensors:
        mid, rad, _ = _trajectory(problem).ends[0]
        bound = family.rounded_once(bound, mid, rad, FORMATS[problem.dtype])
        texts = [f"{text}; p rounded once to {problem.dtype}" for text in texts]
    bounded = int(bound.isfinite().sum())
    if not bounded:
        return None
    what = "; or, where larger, of ".join(texts)
    source = f"roundoff: running error (Higham 2002, 3.3) over {problem.parameters['steps']} steps of {what}"
    if bounded < bound.numel():
        source += (
            f"; nothing is proved of {bound.numel() - bounded} elements: an infinite truth, or errors that feed back"
        )
    return Limit(bound, source)


def ways(problem: Problem, target: Target) -> dict[str, Callable[..., Limit | None]]:
    """`Composite.ways`."""
    return {"eager": lambda problem, target, own, output: limit_of(problem, target, replace(own, name="eager"), output)}


def declared(problem: Problem, target: Target, name: str) -> tuple[Declared, ...]:
    """The algorithms of the named lowering, with every rounding that it may have (a contraction saves one). A user's
    own lowering may be any of them."""
    half = kept_format(problem) != "float32"
    where = facts_of(target.backend.name)
    host = where == "cpu"
    power = published(backends.load(where).library, "pow", "float64" if host else "float32").roundings
    # glibc documents 1 ULP for powf, as for pow
    sqrt = published("Intel", "sqrt", "float32").roundings if host else _sqrt(where)
    eager = Algorithm(
        a.lerp_separate, a.square_last_stored if half else a.square_last, a.in_double,
        a.decay_factor_stored if half else a.decay_factor, _eager_denominator(half, host), a.product_over,
        a.l2_stored_product if half else a.l2_separate, stored=half,
    )  # fmt: skip
    lists = eager
    if half and host:
        lists = eager._replace(second=a.square_last_stored_beta, decay=a.decay_stored_factor)
    compiled = Algorithm(a.lerp_separate, a.square_first, a.in_tensor, a.decay_factor, a.quotient, a.quotient_separate)
    folded = compiled._replace(denominator=a.folded, update=a.plain_quotient)
    listed = compiled._replace(first=a.lerp_stored_weight if half else a.lerp_separate)
    divided = listed._replace(bias=a.in_tensors, denominator=a.divided, update=a.plain_quotient)
    # in float32 throughout: on CUDA, and as the paper writes it, which is Metal's
    nested = Algorithm(a.ema_two_fused, a.square_two_fused, a.in_float32, a.decay_subtracted)
    written_out = nested._replace(first=a.ema_separate, second=a.square_last)
    fused = [Algorithm(a.lerp_separate, a.square_last)] if host else [nested, written_out]
    written = hand_written(problem)
    # Triton's / on float32 is div.full, unless the options ask for IEEE division
    division = 1.0 if host else _division(where)
    loose: dict[str, Any] = {"division": division, "power": power, "root": 1.0 if host else _sqrt(where)}
    ieee = "eager_numerics.division_rounding" not in target.backend.inert_options
    strict = {**loose, "division": 1.0 if ieee else division}
    if half:
        stored = Algorithm(
            a.lerp_stored, a.square_stored_products, a.in_tensor, a.decay_factor_stored, a.quotient_stored_root,
            a.stored_quotient_separate, a.l2_stored, stored=True,
        )  # fmt: skip
    else:
        stored = compiled
    table: dict[str, tuple[Declared, ...]] = {
        "eager": (Declared(eager, root=sqrt),),
        "foreach": (Declared(lists, root=sqrt),),
        "fused": tuple(Declared(one, power=power, root=1.0 if host else sqrt) for one in fused),
        "capturable": (Declared(_stored(folded, a.folded_stored, half), power=power, root=sqrt),),
        "capturable-foreach": (Declared(_stored(divided, a.divided_stored, half), power=power, root=sqrt),),
        "inductor-strict": (Declared(stored, **strict),),
        "inductor-capturable": (Declared(folded, **loose),),
        "inductor-capturable-foreach": (Declared(divided, **loose),),
        "triton": (Declared(written),),
        "triton-interpreter": (Declared(hand_written(problem, False)),),  # before triton 3.9 its fma rounds twice
    }
    for one, algorithm in (("inductor", compiled), ("inductor-foreach", listed)):
        table[one] = table[f"{one}-combo"] = (Declared(algorithm, **loose),)
    if name in table:
        return table[name]
    others = (Declared(one, power=power, root=sqrt) for one in (nested, written_out))
    return tuple(dict.fromkeys((*(one for found in table.values() for one in found), *others)))


def _eager_denominator(half: bool, host: bool) -> Any:
    if host:
        return a.quotient_stored_eps if half else a.quotient
    return a.reciprocal_stored if half else a.reciprocal


def _stored(algorithm: Algorithm, denominator: Any, half: bool) -> Algorithm:
    """The eager form: lerp from the nearer end, and each operation rounds to storage."""
    algorithm = algorithm._replace(first=a.lerp_separate)
    if not half:
        return algorithm
    return algorithm._replace(
        second=a.square_last_stored, decay=a.decay_factor_stored, denominator=denominator, l2=a.l2_stored_product,
        stored=True,
    )  # fmt: skip


def _division(where: str) -> float:
    """Of Triton's / on float32: div.full, and elsewhere the 2.5 ULP that LLVM allows a division of GPU code."""
    return published("NVIDIA", "div.full", "float32").roundings if where == "cuda" else 5.0


def _sqrt(where: str) -> float:
    """Square roots of GPUs are correctly rounded (sqrt.rn) but for AMD's library."""
    return published("AMD", "sqrt", "float32").roundings if where == "rocm" else 1.0


def bounds_of(problem: Problem, one: Declared, flushes: bool) -> Mapping[int, Tensor]:
    """Bounds of |computed - true| after the last step, by place in a state (`verify.families.steps.bound_of`); kept
    with the problem."""
    kept = problem.extra["cache"].setdefault("bounds", {})
    key = one, flushes, str(problem.tensors["exp_avg"].device)
    if key not in kept:
        kept[key] = _bounds(problem, one, flushes)
    found: Mapping[int, Tensor] = kept[key]
    return found


def _trajectory(problem: Problem) -> Trajectory:
    """The float64 truth of the problem."""
    kept = problem.extra["cache"]
    device = problem.tensors["exp_avg"].device
    if ("trajectory", str(device)) not in kept:
        own = replace(problem, extra={**problem.extra, "cache": {}})  # one that does not sustain itself
        kept["trajectory", str(device)] = Trajectory(own, device, LIBRARY)
    found: Trajectory = kept["trajectory", str(device)]
    return found


def _bounds(problem: Problem, one: Declared, flushes: bool) -> Mapping[int, Tensor]:
    n = one.system(problem, flushes)
    k = values(n, problem, _power, library_power=_power, library_sqrt=Roundoff.sqrt)
    rounded = _each(corrected(n, one.algorithm, k, tuple(steps_of(problem))), problem.parameters["steps"])
    real = list(constants(problem, family.real_system(n)))
    # gradients made for exact results at most alternate, and without memory all steps are like the first
    repeats = problem.parameters["gradients"] == "exact" and not (problem.scalars["beta1"] or problem.scalars["beta2"])
    period = 2 if repeats else 0
    count = problem.tensors["exp_avg"].numel()
    block = BLOCK if problem.tensors["exp_avg"].device == HOST else max(count, 1)
    found: dict[int, list[Tensor]] = {}
    for begin in range(0, count, block):
        part = slice(begin, begin + block)
        start = [None if t is None else t[part] for t in states(problem)]
        walk = _walk(problem, one.algorithm, n, zip(rounded, real, strict=True), part)
        for place, value in enumerate(family.running(n, start, POSITIVE, walk, period)):
            if value is not None:
                mid, rad, _ = (t[part] for t in _trajectory(problem).ends[place])
                found.setdefault(place, []).append(family.bound_of(value, mid, rad, FLOAT32))
    return {place: torch.cat(parts) for place, parts in found.items()}


def _walk(problem: Problem, algorithm: Algorithm, n: Roundoff, constants: Any, part: slice) -> Iterator[family.Step]:
    for (k, exact), row in zip(constants, problem.tensors["grads"], strict=True):
        g = row[part].to(torch.float64)
        yield family.Step(
            partial(_rounded, n, algorithm, k, replace(n.given(g), held=n.storage)),
            partial(_real, problem, n, exact, g),
        )


def _rounded(n: Roundoff, algorithm: Algorithm, k: SimpleNamespace, g: Rough, state: family.Parts) -> family.Parts:
    """The step as it is computed. Second averages are never negative: sums of such terms, or v + w (g^2 - v) with
    w < 1, where rounding is monotone and leaves -v alone."""
    g = -g if k.maximizes else g
    algorithm = algorithm._replace(second=_Positive(algorithm.second))  # type: ignore[arg-type]
    if state[0] is None:
        _, m, v, _ = state
        m, v, _ = averages(n, algorithm, k, None, m, v, g)
        return [None, n.cast(m, n.storage), n.cast(v, n.storage), None]
    p, m, v, x = state
    return rounded_step(n, algorithm, k, p, m, v, x, g)


@dataclass(frozen=True)
class _Positive:
    """A formula whose result is never negative."""

    formula: Any

    def evaluate(self, *given: Any) -> Rough:
        found: Rough = self.formula.evaluate(*given)
        return replace(found, positive=True)


def _real(problem: Problem, n: Roundoff, k: SimpleNamespace, g: Tensor, state: family.Parts) -> family.Parts:
    real = family.real_system(n)
    found: family.Parts = problem.extra["step"](real, k, state, real.given(g))
    return found


def _each(k: SimpleNamespace, steps: int) -> list[SimpleNamespace]:
    """The values of each step of those of all steps, which have a length."""
    values = vars(k)
    long = [name for name, value in values.items() if isinstance(value, Rough) and value.mid.dim()]
    return [SimpleNamespace(**{**values, **{name: values[name].at(step) for name in long}}) for step in range(steps)]


@cache
def _powers(base: float, times: tuple[int, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Midpoints and radii of base^t."""
    wide = Multiprecision(POWER_BITS)
    truths = [wide.pow(wide.const(Fraction(base)), t).truth() for t in times]
    mids = [float((truth.lo + truth.hi) / 2) for truth in truths]
    far = [max(t.hi - Fraction(mid), Fraction(mid) - t.lo) for t, mid in zip(truths, mids, strict=True)]
    return tuple(mids), tuple(float(one) * UP + (TINY if one else 0.0) for one in far)


def _power(n: Roundoff, base: float, times: tuple[int, ...]) -> Rough:
    """base^t of the base rounded to the compute format, by the platform's pow, for each t."""
    mid, rad = (torch.tensor(part, dtype=torch.float64, device=n.device) for part in _powers(base, times))
    exponents = n.given(torch.tensor(times, dtype=torch.float64, device=n.device))
    return replace(n.pow(n.scalar(base), exponents), mid=mid, rad=rad)
