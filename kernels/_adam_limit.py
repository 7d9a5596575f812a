"""Proven bounds of Adam's outputs: the running error of the algorithm that a lowering declares, over all steps.

Each step the computed values lie in known intervals. `verify.kernels._adam_numbers.Roundoff` bounds what the step's own
roundings do on them, and the exact recurrence carries the errors so far: b e for an average, and for the parameter the
change of the update over the intervals of its averages (Higham 2002, 3.3, running error analysis).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch

from verify.bounds import published
from verify.composite import Limit, Problem
from verify.formats import FORMATS
from verify.kernels._adam import PLACES, kept_format, states, steps_of, switches
from verify.kernels._adam_formulas import corrected, hand_written, values
from verify.kernels._adam_numbers import HOST, SLACK, Near, Rough, Roundoff, radius, root
from verify.kernels._adam_truth import BLOCK, Trajectory
from verify.lowerings import Lowering, Target
from verify.numbers.ball import LIBRARY, Ball
from verify.oracles import _adam as a
from verify.oracles._adam import Algorithm, averages, rounded_step

Tensor = torch.Tensor
#: A true value with its error, in float64.
Value = Near | Ball
FLOAT32 = FORMATS["float32"]
#: Whose functions a backend's own code calls, as `vendor_bounds.toml` has them.
VENDORS = {"cpu": "glibc", "cuda": "NVIDIA", "rocm": "AMD", "mps": "Apple"}


@dataclass(frozen=True)
class Declared:
    """An algorithm with the errors of the functions that its platform computes it by, in units of u."""

    algorithm: Algorithm
    division: float = 1.0
    root: float = 1.0
    power: float = 1.0
    fuses: bool = True

    def system(self, problem: Problem, flushes: bool) -> Roundoff:
        flush = float(FLOAT32.smallest_normal) if flushes else 0.0
        storage = FORMATS[kept_format(problem)]
        return Roundoff(FLOAT32, storage, self.division, self.root, self.power, flush, self.fuses)


def limit_of(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit | None:
    """`Composite.limit`, see `verify.kernels._adam`; None where no element has a bound."""
    found = declared(problem, target, lowering.name)
    flushes = lowering.ftz(target)
    bounds = [bounds_of(problem, one, flushes)[PLACES[output]] for one in found]
    bound = bounds[0]
    for other in bounds[1:]:
        bound = torch.maximum(bound, other)
    texts = list(dict.fromkeys(one.algorithm.text(switches(problem)) for one in found))
    if output == "param" and "master" in problem.tensors:
        bound = _rounded_once(bound, problem)
        texts = [f"{text}; p rounded once to {problem.dtype}" for text in texts]
    bounded = int(bound.isfinite().sum())
    if not bounded:
        return None
    what = "; or, where larger, of ".join(texts)
    source = f"running error (Higham 2002, 3.3) over {problem.parameters['steps']} steps of {what}"
    if bounded < bound.numel():
        source += (
            f"; nothing is proved of {bound.numel() - bounded} elements: an infinite truth, or errors that feed back"
        )
    return Limit(bound, source)


def _rounded_once(bound: Tensor, problem: Problem) -> Tensor:
    """With the parameter's own rounding from the master copy: u (|t| + bound), and half a subnormal."""
    fmt = FORMATS[problem.dtype]
    mid, rad, _ = _trajectory(problem).ends[0]
    own = (mid.abs() + rad + bound) * float(fmt.unit_roundoff) + float(fmt.smallest_subnormal)
    return (bound + own) * SLACK


def declared(problem: Problem, target: Target, name: str) -> tuple[Declared, ...]:
    """What the lowering of that name computes, with every rounding that it may have: a contraction spares one. A
    user's own lowering may be any of them."""
    half = kept_format(problem) != "float32"
    host = target.backend.device == torch.empty(0).device.type
    where = target.backend.name
    power = published(VENDORS.get(where, "glibc"), "pow", "float32" if where != "cpu" else "float64").roundings
    # glibc documents 1 ULP for powf, as for pow
    sqrt = published("Intel", "sqrt", "float32").roundings if host else _sqrt(where)
    eager = Algorithm(
        a.lerp_separate, a.square_last_stored if half else a.square_last, a.in_double,
        a.decay_factor_stored if half else a.decay_factor, _eager_denominator(half, host), a.product_over,
        a.l2_stored_product if half else a.l2_separate, stored=half,
    )  # fmt: skip
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
        "foreach": (Declared(eager, root=sqrt),),
        "fused": tuple(Declared(one, power=power, root=1.0 if host else sqrt) for one in fused),
        "capturable": (Declared(_stored(folded, a.folded_stored, half), power=power, root=sqrt),),
        "capturable-foreach": (Declared(_stored(divided, a.divided_stored, half), power=power, root=sqrt),),
        "inductor-strict": (Declared(stored, **strict),),
        "inductor-capturable": (Declared(folded, **loose),),
        "inductor-capturable-foreach": (Declared(divided, **loose),),
        "triton": (Declared(written),),
        "triton-interpreter": (Declared(written, fuses=False),),
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
    """Bounds of |computed - true| after the last step, by place in a state; kept with the problem.

    0 where the truth is NaN, which nothing but NaN is near; infinite where the truth is infinite, or where nothing can
    be proved: an infinity of the recurrence is a NaN of algorithms that subtract.
    """
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
        own = replace(problem, extra={**problem.extra, "cache": {}})  # one that does not keep itself alive
        kept["trajectory", str(device)] = Trajectory(own, device, LIBRARY)
    found: Trajectory = kept["trajectory", str(device)]
    return found


def _bounds(problem: Problem, one: Declared, flushes: bool) -> Mapping[int, Tensor]:
    n = one.system(problem, flushes)
    k = values(n, problem, Roundoff.pow, library_power=Roundoff.pow, library_sqrt=Roundoff.sqrt)
    steps = [corrected(n, one.algorithm, k, t) for t in steps_of(problem)]
    count = problem.tensors["exp_avg"].numel()
    block = BLOCK if problem.tensors["exp_avg"].device == HOST else max(count, 1)
    parts = [_part_bounds(problem, one, n, steps, slice(begin, begin + block)) for begin in range(0, count, block)]
    return {place: torch.cat([part[place] for part in parts]) for place in parts[0]}


def _part_bounds(
    problem: Problem, one: Declared, n: Roundoff, steps: list[SimpleNamespace], part: slice
) -> Mapping[int, Tensor]:
    start = [None if t is None else t[part].double() for t in states(problem)]
    errors = [None if t is None else torch.zeros_like(t) for t in start]
    ranges = [None if t is None else (t, t) for t in start]
    after: Any = None
    for k, (exact, g, after) in zip(steps, _trajectory(problem).certified(part), strict=True):
        given = [None if ends is None else n.given(*ends) for ends in ranges]
        gradient = n.given(-g, -g) if k.maximizes else n.given(g, g)
        rough = _stepped(n, one.algorithm, k, given, gradient)
        errors, ranges = _carried(exact, g, after, rough, errors, ranges)
    return {
        place: _finished(near, error)
        for place, (near, error) in enumerate(zip(after, errors, strict=True))
        if near is not None and error is not None
    }


def _stepped(n: Roundoff, algorithm: Algorithm, k: Any, given: list[Any], g: Rough) -> list[Rough | None]:
    p, m, v, x = given
    if p is not None:
        return list(rounded_step(n, algorithm, k, p, m, v, x, g))
    m, v, _ = averages(n, algorithm, k, None, m, v, g)
    return [None, n.cast(m, n.storage), n.cast(v, n.storage), None]


def _carried(
    k: Any, g: Tensor, after: Any, rough: list[Rough | None], errors: list[Any], ranges: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Errors and ranges of the computed state after a step: the step's own errors, and the exact step's on those
    before it. k: its exact constants; g: the gradient as given; after: the true state."""
    p, m, v, x = after
    rough_p, rough_m, rough_v, rough_x = rough
    assert rough_m is not None and rough_v is not None
    beta1, rest1, beta2, rest2 = (float(c.mid) for c in (k.beta1, k.rest1, k.beta2, k.rest2))
    of_g, size = 0.0, g.abs()
    if p is not None and k.couples:
        decay = float(k.weight_decay.mid)
        of_g = errors[0] * decay
        size = size + decay * (_largest(ranges[0]) + errors[0])  # the true |g| with its L2 term, at most
    moved_m = errors[1] * beta1 + of_g * rest1
    moved_v = errors[2] * beta2 + of_g * (2 * size + of_g) * rest2
    error_m, error_v = (moved_m + rough_m.err) * SLACK, (moved_v + rough_v.err) * SLACK
    ends_v = _ends(v, error_v, rough_v)
    error_x, ends_x, error_p, ends_p = None, None, None, None
    moved_x = moved_v
    if x is not None:
        assert rough_x is not None
        moved_x = torch.maximum(errors[3], moved_v)
        error_x = (moved_x + rough_x.err) * SLACK
        ends_x = _ends(x, error_x, rough_x)
    if p is not None:
        assert rough_p is not None
        # where the exact step takes v (x: its maximum) from the computed averages; an L2 gradient may vanish
        low = (beta2 * ranges[2][0] + (0.0 if k.couples else rest2 * (g * g))) / SLACK
        top, low = (v, low) if x is None else (x, torch.maximum(low, ranges[3][0]))
        low = torch.maximum(low, _low(top) - moved_x * SLACK).clamp(min=0.0)
        high = (_high(top) + moved_x) * SLACK
        error_p = _update(k, m, top, errors[0], moved_m, (low, high)) + rough_p.err
        error_p = error_p * SLACK
        ends_p = (_low(p) - error_p, _high(p) + error_p)
    return (
        [error_p, error_m, error_v, error_x],
        [ends_p, (_low(m) - error_m, _high(m) + error_m), ends_v, ends_x],
    )


def _update(k: Any, m: Value, v: Value, error_p: Tensor, moved_m: Tensor, ends: tuple[Tensor, Tensor]) -> Tensor:
    """|T(p', m', v') - T(p, m, v)| of the exact update T, for p' within error_p of p, m' within moved_m of m and v' in
    `ends`: the decay carries error_p; of the quotient m / d, |m'/d' - m/d| <= (|m' - m| + |m/d| |d' - d|) / d'."""
    rate, inverse, eps = float(k.rate.mid), float(k.inverse.mid), float(k.eps.mid)
    low, high = (root(inverse * end) + eps for end in ends)
    true_low, true_high = root((inverse * _low(v)).clamp(min=0.0)) + eps, root(inverse * _high(v)) + eps
    apart = torch.maximum(high * SLACK - true_low, true_high * SLACK - low).clamp(min=0.0)
    most = m.mid.abs() + radius(m)
    moved = (moved_m + most / true_low * apart) / low
    carried = error_p * float(k.decay.mid) if k.decays else error_p
    return (abs(carried) + rate * moved * SLACK) * SLACK


def _low(value: Value) -> Tensor:
    return value.mid - radius(value)


def _high(value: Value) -> Tensor:
    return value.mid + radius(value)


def _largest(ends: tuple[Tensor, Tensor]) -> Tensor:
    return torch.maximum(ends[0].abs(), ends[1].abs())


def _ends(near: Value, error: Tensor, rough: Rough) -> tuple[Tensor, Tensor]:
    """Where a computed second average lies: by its error, and by the step's own interval."""
    low = torch.maximum(_low(near) - error, torch.as_tensor(rough.lo)).clamp(min=0.0)
    return low, torch.minimum(_high(near) + error, torch.as_tensor(rough.hi))


def _finished(near: Value, error: Tensor) -> Tensor:
    """The bound on |computed - true| of an output, see `bounds_of`."""
    largest = float(FLOAT32.max_finite)
    bound = (error + radius(near)) * SLACK
    bound = torch.where(near.mid.abs() + bound <= largest, bound, math.inf)
    return torch.where(near.mid.isnan(), 0.0, bound)
