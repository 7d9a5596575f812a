"""Error bounds of prefix products and of logarithms of prefix sums of exponentials, for `verify.numbers.roundoff`.

Both combine consecutive terms by an operation that is not linear in its operands' errors, so that a bound of one
combination, repeated, says nothing: the rules here are of the whole tree. Inputs are exact. Logarithms to base 2 stand
for sizes, as partial products leave float64's range; `_blur` covers their errors.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from verify.numbers import Undecidable
from verify.numbers.arrays import BallArrays, scan
from verify.numbers.cpp import on_host
from verify.numbers.orders import Order

if TYPE_CHECKING:
    from verify.numbers.roundoff import Rough, Roundoff

Tensor = torch.Tensor
UP = 1.0 + 2.0**-40
#: How often a bound of logcumsumexp is put into the formula that makes the next.
ROUNDS = 3
#: Terms further below the largest weigh nothing in float64.
FAR = 1600.0


def products(n: Roundoff, x: Rough, order: Order) -> tuple[Tensor, Tensor, Tensor]:
    """mid, rad and error of the prefix products of exact numbers; zeros, infinities and NaNs count as 1.

    From left to right E_i = |x_i|(1 + u) E_{i-1} + u|p_i|, and half a unit where p_i may be subnormal.

    In any order a result has i roundings, all relative: ((1 + u)^i - 1)|p_i| (Higham 2002, lemma 3.1); a partial
    product s below the normal range adds a relative unit / 2|s|.

    Where such s are far below the unit that says nothing, but this does: each of the i products is ab(1 + d) + h, with
    h = 0 or d = 0, |h| <= unit. Multiplied out, the result is a sum over sets of k products that contain none another:
    their h's, times what is left of the factors, at most k + 1 runs of consecutive ones, none above M = max(1, the
    largest product of consecutive factors). There are at most (i over k) such sets, so that
    E_i = ((1 + u)^i - 1)|p_i| + (1 + u)^i M ((1 + M unit)^i - 1).

    Exact where the odd parts of the factors multiply to less than 2^p and no run of consecutive factors leaves the
    normal range: every partial product is then a number of the format.

    Infinite where a partial product may overflow, unless the product itself does: it is then infinite, too, or within
    its error; and where a partial product may underflow beside an infinity, which 0 makes a NaN.
    """
    if not bool(x.known.all()):
        raise Undecidable("cumprod of computed values; expected exact ones")
    fmt = n.compute
    usable = x.mid.isfinite() & (x.mid != 0)
    values = torch.where(usable, x.mid, 1.0)

    def product() -> Any:
        system = BallArrays(values.device, n.library)
        return system.cumprod(system.input(values))

    ball = n.once("product", product)
    mid, rad = ball.mid, torch.as_tensor(ball.radius, dtype=torch.float64, device=values.device).expand_as(ball.mid)
    if not values.shape[-1]:
        return mid, rad, rad
    size = values.abs()
    logs = size.log2().cumsum(-1)
    blur = 1e-6 + values.shape[-1] * 1e-9
    truth = mid.abs() + rad
    # A midpoint that leaves float64's range says nothing.
    truth = torch.where(truth.isfinite() & (truth > 2.0**-1000), truth, torch.exp2(logs.clamp(max=1100.0) + blur))
    truth = truth + 2.0**-1074
    before = torch.cat([torch.zeros_like(logs[..., :1]), logs[..., :-1]], -1)
    # Largest and smallest product of consecutive factors that end at or before a position.
    rise, fall = running(logs + running(-before)), -running(-logs + running(before))
    steps = torch.arange(values.shape[-1], dtype=torch.float64, device=values.device)
    u, unit = float(fmt.unit_roundoff), float(fmt.smallest_subnormal)
    top, low = float(fmt.emax + 1), float(fmt.emin)
    half = unit / 2 or unit  # float64 holds no half unit
    if order.kind == "sequential":
        under = running(-logs) > -low - 1e-3 - blur
        own = torch.where(steps > 0, u * truth + (logs < low + blur).to(torch.float64) * half, 0.0)
        error = affine(size * (1 + u), own * UP + 2.0**-1060)
        # Once infinite it stays so.
        over = (running(logs) + blur >= top - u) | (running(truth + error) >= float(fmt.max_finite))
    else:
        under = (fall < low + blur) & (steps > 0)
        lost = torch.where(under, torch.exp2(math.log2(unit) - 1 - fall), 0.0)
        logarithm = steps * (math.log1p(u) + torch.log1p(lost))
        error = torch.expm1(logarithm) * truth + under.to(torch.float64) * unit
        over = (rise + 2 * logarithm + blur >= top - u) | error.isnan()
        most = torch.exp2(rise.clamp(0.0, 1000.0) + blur)
        grown = torch.expm1(steps * math.log1p(u))
        second = (1 + grown) * most * torch.expm1(steps * torch.log1p(most * unit))
        beyond = (rise >= min(top, 1000.0) - blur) | (most * (1 + grown) + second >= float(fmt.max_finite))
        other = torch.where(beyond, math.inf, grown * truth + second + under.to(torch.float64) * unit)
        error = torch.where(over, other, torch.minimum(error, other))
        over = over & beyond
    error = error * UP
    # The product overflows itself: infinite, or as near as any other.
    grows = (logs - blur >= top) & ~under
    relative = torch.expm1(steps * math.log1p(u)) * 2.0 ** min(top, 1000.0) * UP
    error = torch.where(over, torch.where(grows, relative, math.inf), error)
    # What is 0 and meets an infinity is a NaN.
    error = torch.where(under & _seen(x.mid.isinf()), math.inf, error)
    odd = _odd_bits(values).cumsum(-1) < fmt.precision - blur
    exact = odd & (rise + blur < top) & ((fall - blur > low) | (steps == 0)) & (rad == 0)
    return mid, rad, torch.where(exact, 0.0, error)


def log_sums(n: Roundoff, x: Rough, order: Order) -> tuple[Tensor, Tensor, Tensor]:
    """mid, rad and error of log(sum of exp) of prefixes of exact numbers below +inf, by combinations
    c = max + log1p(exp(-d)), d = max - min, computed in `compute` and kept in the order's accumulator.

    Each combination is off by some delta: exp(c) = exp(delta)(exp(left) + exp(right)). With p_j = exp(x_j - L), the
    terms' weights, the error D of a result has exp(D) = sum p_j exp(D_j), D_j the sum of the deltas on the path of x_j.

    |delta| <= r + a l + q (b + v d): r = min(u|c|, l) of the sum, whose larger operand is a number of the format, or
    half a unit for u|c| where c is subnormal in an accumulator that is narrower than `compute`; a of log1p, l its
    value; b of exp, whose argument is off by v d, v the unit roundoff of the operation; q = exp(-d) / (1 + exp(-d)),
    the smaller operand's share of the node. l <= log 2, q <= 1/2 and q d <= 0.2785 for any operands. Operands that are
    off by e move d by at most 2 e, with which l and q grow by exp(2 e) at most, as |dl/dd| = q <= l.

    From left to right M = exp(D) - 1 obeys M_i = w M_{i-1} exp(delta) + exp(delta) - 1, w = exp(L_{i-1} - L_i); what
    is below the truth errs by less (Jensen). A bound that holds without any knowledge of the weights, E_i = (1 + u)
    E_{i-1} + u|L_i| + cap, as the logarithm of a sum moves by no more than its largest operand does, is put into the
    deltas, and what comes out again, ROUNDS times; each is a bound.

    In any order |D| <= exp(B) sum p_j |D_j| for |D_j| <= B. With p(node) the weight of the terms of a node, sum p_j
    |D_j| = sum p(node) |delta|, and with H = -sum p_j log p_j and h(q) the entropy of one combination: sum p(node) h
    = H (chain rule); q d <= h, as d = log((1 - q) / q); q <= h / (2 log 2), as h is concave on [0, 1/2]; sum p(node) l
    <= H, as the l of a path add up to at most L - x_j; sum p(node) |c| <= k (|L| + H), as x_j <= c <= L on a path of at
    most k nodes. So E = min(k u (|L| + H), H) + (a + b / (2 log 2) + v) H, and B = min(k u (|L| + L - x_j), L - x_j) +
    k (b + v) / 2 + a (L - x_j).
    Terms below L - 800 weigh nothing in float64, nor do those below c - 800 in the node of such a term. delta is that
    of the computed operands: c and d move by e and 2 e, which adds (u + 2 v) k times the sum itself, as sum p(node)
    |D(node)| <= k sum p_j |D_j|. |D| <= B whatever the weights are.

    A prefix with one finite term is that term, exactly.
    """
    if not bool(x.known.all()):
        raise Undecidable("logcumsumexp of computed values; expected exact ones")
    y, rad, some, term, joins, distance, new, old = n.once("exponentials", lambda: _exponentials(n, x.mid))
    truth = y.abs() + rad
    known = {name: n.functions[name, n.compute.name] for name in ("exp", "log1p")}
    v = float(n.compute.unit_roundoff)
    a, b = known["log1p"].units * v, known["exp"].units * v
    u = float(order.accumulator.unit_roundoff)
    u = u + v * (1 + u) if order.accumulator != n.compute else u
    half = float(order.accumulator.smallest_subnormal) / 2 if order.accumulator.emin > n.compute.emin else 0.0
    tiny = float(n.compute.smallest_normal) + known["exp"].absolute + known["log1p"].absolute
    parts = _Terms(truth, joins.to(torch.float64), old, new, distance.abs(), a, b, u, v, half, tiny)
    if order.kind == "sequential":
        error = _left_to_right(parts)
    else:
        count = torch.arange(1, y.shape[-1] + 1, dtype=torch.float64, device=y.device)
        entropy = n.once(
            "entropy",
            lambda: affine(old, torch.where(joins, torch.special.entr(new) + torch.special.entr(old), 0.0)),
        )
        least = -running(torch.where(term, -x.mid, -torch.inf))
        spread = torch.where(torch.isfinite(least), y - least, 0.0).clamp(min=0.0)
        error = _any_order(parts, order.steps(count), entropy, spread)
    single = term.to(torch.float64).cumsum(-1) <= 1
    mid = torch.where(some, y, -torch.inf)
    # The largest partial result is near the largest |L| or |x| so far.
    largest = running(torch.maximum(truth, torch.where(term, x.mid.abs(), 0.0)) + error)
    # Float64 holds no exp(-d) of a d beyond 745.
    error = torch.where(largest >= float(n.compute.max_finite), math.inf, error * UP + 2.0**-1000)
    return mid, torch.where(single, 0.0, rad), torch.where(single | ~some, 0.0, error)


def _exponentials(n: Roundoff, x: Tensor) -> tuple[Tensor, ...]:
    """L and its radius, where there is one, where a term is, where a term joins others, its distance from what came
    before, and the weights of the term and of what came before."""
    system = BallArrays(x.device, n.library)
    m, rest = system.cumsumexp(system.input(x))
    value = m + system.log1p(rest)
    some, term = m.mid > -torch.inf, x > -torch.inf
    y = torch.where(some, value.mid, 0.0)
    rad = torch.as_tensor(value.radius, dtype=torch.float64, device=y.device).expand_as(y)
    before = torch.cat([torch.zeros_like(y[..., :1]), y[..., :-1]], -1)
    joins = term & torch.cat([torch.zeros_like(some[..., :1]), some[..., :-1]], -1)
    distance = torch.where(joins, x - before, 0.0)
    new = torch.where(joins, torch.sigmoid(distance), torch.where(term, 1.0, 0.0))
    old = torch.where(joins, torch.sigmoid(-distance), torch.where(term, 0.0, 1.0))
    return y, torch.where(some, rad, 0.0), some, term, joins, distance, new, old


class _Terms:
    """What the bounds of logarithms of sums are made of, see `log_sums`."""

    def __init__(
        self, truth: Tensor, joins: Tensor, old: Tensor, new: Tensor, distance: Tensor, a: float, b: float, u: float,
        v: float, half: float, tiny: float,
    ) -> None:  # fmt: skip
        self.truth, self.joins, self.old, self.distance = truth, joins, old, distance
        self.low = torch.minimum(old, new)
        self.a, self.b, self.u, self.v, self.half, self.tiny = a, b, u, v, half, tiny
        #: Of a combination but for u|c| + half, whatever its operands are.
        self.cap = math.log(2) * a + b / 2 + 0.2785 * v + tiny
        self.again = 1 + 8 * max(u, v)
        #: A second rounding, to the accumulator, sees what the first one made.
        self.twice = 2 * v if u > v else 0.0


def _left_to_right(t: _Terms) -> Tensor:
    error = affine(torch.full_like(t.truth, 1 + t.u), (t.u * t.truth + t.half + t.cap) * t.joins * t.again)
    logarithm = -torch.log1p(-t.low)
    for _ in range(ROUNDS):
        held = torch.cat([torch.zeros_like(error[..., :1]), error[..., :-1]], -1)
        few = held.clamp(max=700.0)
        given = held, torch.exp(few), torch.expm1(few), logarithm, t.low, t.distance, t.old
        length, share, moved, weighed = _operands(*given)
        sizes = t.truth, torch.log1p(weighed), length, share, moved, t.joins
        delta = _deltas(*sizes, t.u, t.a, t.b, t.v, t.half, t.tiny, t.twice, t.again)
        grown = affine(t.old * torch.exp(delta), torch.expm1(delta))
        better = torch.where(grown.isfinite(), torch.log1p(grown), math.inf) * UP
        error = torch.minimum(error, better)
    return error


@on_host
def _operands(
    held: Tensor, more: Tensor, grown: Tensor, logarithm: Tensor, low: Tensor, distance: Tensor, old: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """l, q and q d at most, of operands that are off by `held`, and what that makes of what came before."""
    length = (logarithm * more).clamp(max=math.log(2))
    share = (low * more).clamp(max=0.5)
    return length, share, (share * (distance + held)).clamp(max=0.2785), old * grown


@on_host
def _deltas(
    truth: Tensor, carried: Tensor, length: Tensor, share: Tensor, moved: Tensor, joins: Tensor, u: float, a: float,
    b: float, v: float, half: float, tiny: float, twice: float, again: float,
) -> Tensor:  # fmt: skip
    """What each combination is off by."""
    rounding = torch.minimum(u * (truth + carried) + half, length * again + twice * (truth + carried))
    delta = (rounding + a * length + b * share + v * moved) * again + tiny
    return delta * joins


def _any_order(t: _Terms, k: Tensor, entropy: Tensor, spread: Tensor) -> Tensor:
    spread = spread.clamp(max=FAR)
    rounds = k * math.log1p(t.u)
    error = torch.expm1(rounds) / t.u * (t.u * (t.truth + spread) + t.half + t.cap) * t.again
    found = error
    for _ in range(ROUNDS):
        more = torch.exp(2 * error.clamp(max=300.0))
        largest = t.truth + error + spread
        rounding = torch.minimum(k * (t.u * largest + t.half), more * spread * t.again + k * t.twice * largest)
        widest = rounding + k * ((more * (t.b + t.v * (1 + 2 * error)) / 2).clamp(max=t.cap) + t.tiny)
        error = torch.minimum(error, (widest + more * t.a * spread) * t.again)
        more = torch.exp(2 * error.clamp(max=300.0))
        largest = k * (t.truth + entropy)
        weighed = torch.minimum(t.u * largest + k * t.half, more * entropy * t.again + t.twice * largest) + k * t.tiny
        weighed = weighed + more * (t.a + t.b / (2 * math.log(2)) + t.v) * entropy
        again = 2 * k * (t.u + 2 * t.v) * more
        weighed = torch.where(again < 0.5, weighed * t.again * (1 + 2 * again), math.inf)
        found = torch.minimum(found, torch.minimum(error, weighed * torch.exp(error)).nan_to_num(nan=math.inf))
    return found


def affine(factor: Tensor, term: Tensor) -> Tensor:
    """E_i = factor_i E_{i-1} + term_i along the last axis, of non-negative numbers."""

    def combine(x: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[Any, ...]:
        return x[0] * y[0], y[0] * x[1] + y[1]

    found: Tensor = scan(combine, (factor, term))[1]
    return found * UP


def _odd_bits(values: Tensor) -> Tensor:
    """log2 of the odd part of numbers that are not zero."""
    significand = (torch.frexp(values)[0].abs() * 2.0**53).to(torch.int64)
    return (significand // (significand & -significand)).to(torch.float64).log2()


def running(t: Tensor) -> Tensor:
    """Running maxima along the last axis."""
    found: Tensor = t.cummax(-1).values if t.shape[-1] else t
    return found


def _seen(t: Tensor) -> Tensor:
    return t.to(torch.int32).cumsum(-1) > 0
