"""Softmax attention, forward and backward: how far an algorithm's outputs may be from the real ones.

The stages of an `Algorithm` are run in `roundoff`, on blocks of rows of one head. A number that is common to a row is
taken as computed, a parameter: the shift that is subtracted before exp, the sum or the logsumexp that a row is divided
by, the mean that is subtracted from dP. What the row would give exactly with that parameter is known: softmax does not
depend on the shift; a sum off by the factor 1 + r divides out and dq by it; a mean off by d moves dq_i by
d scale sum_j P_ij f'_ij k_j, where keys without a common part cancel. Only what differs from key to key adds up as
sum_j |dS_ij| |k_j|. (Attention: Dao et al., NeurIPS 2022, appendix B; sums: Higham 2002, 4.2; softmax: Blanchard,
Higham, Higham, IMA J. Numer. Anal. 41, 2021, section 4.)

Where exact results are looked for (`Roundoff.exact`), nothing is taken as a parameter: then all errors count, and a
rounding to a narrow format removes them where the exact value is one of its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch

from verify.facts.formats import FORMATS, Format
from verify.numbers.documented import Documented
from verify.numbers.grid import below, last_bits
from verify.numbers.roundoff import UP, Rough, Roundoff
from verify.numbers.transforms import round_to

Tensor = torch.Tensor
FLOAT32 = FORMATS["float32"]
#: Unit roundoffs of float32, and of float64, in which bounds are evaluated.
U = 2.0**-24
U64 = 2.0**-53
#: Where float32 has an infinity.
BEYOND = 2.0**128 * (1 - U / 2)
#: Numbers below this are flushed to 0 by approximate exponentials.
FLUSH = 2.0**-126
#: Float64 evaluates the formulas that the algorithms evaluate in float32: its errors are below this share of theirs.
OWN = 2.0**-20
LOG2_E = Fraction(1.4426950408889634)
LN_2 = Fraction(0.6931471805599453)


LOG = Documented(2.0, "an ULP (glibc), and as much absolutely", 2 * U)
TANH = Documented(5.0, "Inductor's and the platforms' tanh")
DIVISION = Documented(2.0, "IEEE 754 division, or a product with the reciprocal: exact by powers of two")


@dataclass(frozen=True)
class Algorithm:
    """What a lowering computes, as far as it rounds; float32 between what is stored.

    exp, log, tanh, division  what is documented of them; division's points: exact by powers of two
    operand     relative rounding of each factor of a product (tf32: 2^-10)
    operand_bits  significant bits of factors that are kept whole
    unit, adds  unit roundoff of an accumulation, and roundings for each of its terms
    scaling     'scores': one product each; 'inputs': sqrt(scale) on queries and on keys
    base2       exponents are multiplied by log2(e) first, with this relative error of the constant (None: base e)
    keys        keys of a block between two rescalings by exp of the change of the maximum (None: one pass)
    weights     whether weights are rounded to the dtype before they meet the values
    first       whether weights are normalized before they meet the values; None: one or the other
    saved       whether the gradient reuses the forward weights rather than the logsumexp
    mean        'out': rowsum(dO O) of the stored output; 'weights': rowsum(P dP)
    mean_stored whether that mean is stored in the dtype
    scores      whether dS is rounded to the dtype
    graded      whether it is so before it is scaled, too
    rows        queries between two stores of dk and dv in the dtype (None: one store, of each query head)
    """

    text: str
    exp: Documented
    log: Documented = LOG
    tanh: Documented = TANH
    division: Documented = DIVISION
    operand: float = 0.0
    operand_bits: int = 24
    unit: float = U
    adds: float = 1.0
    scaling: str = "scores"
    base2: float | None = None
    keys: int | None = None
    weights: bool = False
    first: bool | None = False
    saved: bool = False
    mean: str = "out"
    mean_stored: bool = False
    scores: bool = False
    graded: bool = False
    rows: int | None = None

    def dot(self, terms: int) -> float:
        """Relative error of an accumulation of so many terms, in units of the sum of magnitudes."""
        return math.expm1(self.adds * terms * math.log1p(self.unit)) * UP

    @property
    def product(self) -> float:
        """Relative error of a product by the rounding of its factors."""
        return (1 + self.operand) ** 2 - 1

    def system(self, storage: Format, device: Any, exact: bool) -> Roundoff:
        exp = {(name, "float32"): self.exp for name in ("exp", "exp2")}
        log = {(name, "float32"): self.log for name in ("log", "log2", "log1p")}
        known = {("tanh", "float32"): self.tanh, ("div", "float32"): self.division}
        return Roundoff(FLOAT32, storage, {**exp, **log, **known}, device=device, exact=exact)


@dataclass(frozen=True)
class Rows:
    """Blocks of query rows of heads: float64 tensors query (..., m, d), key (..., n, d), value (..., n, e), grad_out
    (..., m, e), whose first axes broadcast; where a key is hidden, (..., m, n) booleans or None; score_mod and its
    derivative as functions of a system and of scores."""

    query: Tensor
    key: Tensor
    value: Tensor
    grad_out: Tensor
    hidden: Tensor | None
    scale: float
    score_mod: Callable[[Roundoff, Rough], Rough]
    slope: Callable[[Roundoff, Rough], Any]


@dataclass(frozen=True)
class Product:
    """A matrix product, and the sum of the magnitudes of its terms."""

    value: Rough
    size: Tensor


@dataclass(frozen=True)
class Forward:
    """What the backward pass takes from the forward pass of the same rows.

    weights and common: the weights with the errors that differ from key to key, and the relative error that a row has
    in common. out, logsumexp: as stored.
    """

    scores: Rough
    modified: Rough
    weights: Rough
    common: Tensor
    out: Rough
    logsumexp: Rough
    empty: Tensor


@dataclass(frozen=True)
class Backward:
    """dq as stored; dk and dv before they are stored, summed over the rows of the block."""

    dq: Rough
    dk: Product
    dv: Product


def product(n: Roundoff, a: Algorithm, x: Rough | Tensor, y: Tensor, terms: int, factor: float = 1.0) -> Product:
    """factor x y, x of shape (..., m, k) or exact, y (..., k, p) exact, `terms` the additions that the sums may be part
    of.

    The error is that of x whatever the parameters in its radius; the radius here is float64's own error at `mid`.
    """
    given = not isinstance(x, Rough)
    rough = n.given(x) if isinstance(x, Tensor) else x
    far = y.abs()
    mid = rough.mid @ y
    whole = rough.mid.abs() if given else rough.mid.abs() + rough.rad
    size = whole @ far
    carried: Tensor | float = 0.0 if given else rough.error @ far
    scaling = 0.0 if math.frexp(factor)[0] == 0.5 else U
    halves = math.frexp(factor)[1] % 2 == 1 and not scaling  # sqrt(factor) is a power of two as well
    inputs = 4 * U if a.scaling == "inputs" and factor != 1.0 and not halves else 0.0
    grown = (1 + a.dot(terms)) * (1 + a.product) * (1 + inputs) * (1 + scaling) * (1 + scaling) - 1
    least = (terms + 2) * float(FLOAT32.smallest_subnormal)
    error = (grown * (size + carried) + carried) * (factor * UP) + least
    error = torch.where((size + carried) * UP < BEYOND, error, math.inf)  # a partial sum may leave the range
    rad = size * (2 * (y.shape[-2] + 2) * U64 * factor)
    if not given:
        rad = rad + error * OWN
    value = Rough(n, mid * factor, rad, error)
    if n.exact:
        value = _exact(n, a, rough, y, value, whole=not scaling and not inputs)
    return Product(value, size * factor)


def _exact(n: Roundoff, a: Algorithm, x: Rough, y: Tensor, value: Rough, whole: bool) -> Rough:
    """With error 0 where every partial sum is a number of the accumulator, and every factor one of the unit's (whole:
    scaling rounds nothing), and where every product has a factor 0."""
    found = n.matmul(x, n.given(y))
    bits = replace(FLOAT32, precision=a.operand_bits) if a.operand_bits < FLOAT32.precision else None
    fits: Tensor | bool = True
    if bits is not None:
        fits = (round_to(x.mid, bits) == x.mid).all(-1, keepdim=True) & (round_to(y, bits) == y).all(-2, keepdim=True)
    # an accumulator with fewer bits than float32: no partial sum beyond what it holds of the finest unit
    size = x.mid.abs() @ y.abs()
    room = below(size, last_bits(x.mid, y), math.floor(-math.log2(a.unit)) - 1)
    sure = (found.error == 0) & (found.rad == 0) & ((fits & room & whole) | (size == 0))
    rad, error = (torch.where(sure, 0.0, t) for t in (value.rad, value.error))
    return replace(value, rad=rad, error=error)


def scored(n: Roundoff, a: Algorithm, rows: Rows) -> tuple[Rough, Rough]:
    """Scores before and after their modification."""
    scores = product(n, a, rows.query, rows.key.mT, rows.query.shape[-1], rows.scale).value
    return scores, rows.score_mod(n, scores)


def forward(n: Roundoff, a: Algorithm, rows: Rows) -> Forward:
    """The forward pass of a block; bounds are the errors of out and logsumexp."""
    scores, modified = scored(n, a, rows)
    keys = rows.key.shape[-2]
    z = modified if a.base2 is None else n.mul(modified, n.between(*_near(LOG2_E)))
    hidden = rows.hidden
    shown = z.mid if hidden is None else z.mid.masked_fill(hidden, -torch.inf)
    top = shown.amax(-1, keepdim=True)
    empty = top == -torch.inf
    top = torch.where(empty, 0.0, top)
    spread = _visible(z.error + z.rad, hidden).amax(-1, keepdim=True)
    shift = n.given(top, spread)
    x = n.subtract(z, shift)
    if a.base2 is not None:
        x = _moved(x, a.base2)
    terms = _masked(n.exp(x) if a.base2 is None else n.exp2(x), hidden)
    terms = _rescaled(terms, a, shown, spread, keys)
    total = n.sum(terms)
    mid = torch.where(empty, 1.0, total.mid)
    rad, error = (torch.where(empty, 0.0, t) for t in (total.rad, total.error))
    total = replace(total, mid=mid, rad=rad, error=error, positive=True)
    divisor, off = _parameter(n, total)
    weights = _masked(_quotient(n, a, terms, divisor), hidden)
    ways = []
    if a.first is not False:
        sums = product(n, a, _stored(n, weights, a.weights), rows.value, keys)
        ways.append(Product(sums.value, sums.size))
    if not a.first:
        sums = product(n, a, _stored(n, terms, a.weights), rows.value, keys)
        dividend = replace(sums.value, rad=sums.value.rad + sums.size * (torch.expm1(spread) * UP))
        ways.append(Product(_quotient(n, a, dividend, divisor), sums.size / total.mid))
    out, size = _either(ways)
    # the exact result is the same whatever was subtracted: of it only float64's own errors are not known
    own = 2 * _visible(z.rad.expand_as(z.mid), hidden).amax(-1, keepdim=True) + (2 * keys + 64) * U64
    rad = torch.where(empty, 0.0, torch.minimum(out.rad, size * own))
    out = replace(out, rad=rad, held=None)
    out = n.result(replace(out, error=(out.error + out.size * off) * UP))
    out = replace(out, error=torch.where(empty, 0.0, out.error))
    return Forward(scores, modified, weights, off, out, _logsumexp(n, a, shift, total, own, empty), empty)


def _logsumexp(n: Roundoff, a: Algorithm, shift: Rough, total: Rough, own: Tensor, empty: Tensor) -> Rough:
    """The logsumexp by way of base 2, as flex_attention computes it, stored in float32. The shift does not change the
    number; float64's own errors in it are not known."""
    log2_e, ln_2 = (_moved(n.between(*_near(value)), U) for value in (LOG2_E, LN_2))
    found = n.add(shift, n.log(total) if a.base2 is None else n.log2(total))
    found = n.mul(found if a.base2 is not None else n.mul(found, log2_e), ln_2)
    error = torch.where(empty, 0.0, found.error)
    return replace(found, rad=own * (1 + found.mid.abs()), error=torch.where(error.isnan(), math.inf, error), held=None)


def backward(n: Roundoff, a: Algorithm, rows: Rows, done: Forward, queries: int) -> Backward:
    """The gradients of a block; dk and dv are parts of sums over so many queries."""
    keys, scale, hidden = rows.key.shape[-2], rows.scale, rows.hidden
    grad, far = rows.grad_out, rows.grad_out.abs()
    weights, common = (done.weights, done.common) if a.saved else _recomputed(n, a, rows, done)
    given = _stored(n, weights, a.weights)
    dv = product(n, a, _turned(given), grad, queries)
    dv = _with(dv, (weights.size * common).mT @ far)

    passed = product(n, a, grad, rows.value.mT, grad.shape[-1]).value
    if a.mean == "out":
        mean = n.sum(n.mul(n.given(grad), done.out))
        mean = n.cast(mean, n.storage) if a.mean_stored else mean
    else:
        # against the true weights, which no parameter moves
        error = weights.error + weights.size * common
        mean = n.sum(n.mul(replace(weights, rad=torch.minimum(weights.rad, error * OWN), error=error), passed))
    zero = torch.zeros_like(mean.mid)
    mean = replace(mean, error=torch.where(done.empty, zero, mean.error + mean.rad), rad=zero, held=None)
    if n.exact:
        subtrahend, away = mean, zero
    else:
        subtrahend, away = n.given(mean.mid, mean.error), mean.error
    slope = rows.slope(n, done.scores)
    change = n.mul(weights, n.subtract(passed, subtrahend))
    steep: Tensor | float = 1.0
    if isinstance(slope, Rough):
        slope = _moved(slope, 2 * U)
        change, steep = n.mul(change, slope), slope.mid
    elif slope == 0:
        change, steep = n.mul(change, 0.0), 0.0
    change = _masked(_scaled(n, _stored(n, change, a.graded), scale, a.scores), hidden)
    kept = _stored(n, change, a.scores)
    response = weights.size * torch.as_tensor(steep, dtype=torch.float64, device=grad.device).abs() * UP

    dq = product(n, a, kept, rows.key, keys, scale)
    if not n.exact:
        # a mean that is off by `away` moves the row by a multiple of sum P f' k
        along = ((weights.mid * steep) @ rows.key).abs() * scale
        most = rows.key.abs().amax((-2, -1), keepdim=True)
        along = along + response.sum(-1, keepdim=True) * most * (keys * 2 * U64 * scale)
        dq = _with(dq, dq.value.size * common + (1 + common) * away * along * UP)
    dk = product(n, a, _turned(kept), rows.query, queries, scale)
    if not n.exact:
        more = change.size * common + (1 + common) * away * response
        dk = _with(dk, more.mT @ (rows.query.abs() * (scale * UP)))
    if a.rows is not None:  # stored in the dtype after each block of keys
        u = float(n.storage.unit_roundoff)
        dq = _with(dq, -(-keys // (a.keys or keys)) * u * dq.size * (1 + u) ** 64)
    return Backward(n.result(replace(dq.value, held=None)), dk, dv)


def _recomputed(n: Roundoff, a: Algorithm, rows: Rows, done: Forward) -> tuple[Rough, Tensor]:
    """Weights from scores and the stored logsumexp: with the errors of each, and the relative error of a row."""
    z, lse = done.modified, replace(done.logsumexp, held=None)
    least = torch.where(done.empty, 0.0, lse.mid)
    lse = replace(lse, mid=least)
    if a.base2 is not None:
        constant = n.between(*_near(LOG2_E))
        z, lse = _moved(n.mul(z, constant), a.base2), _moved(n.mul(lse, constant), a.base2)
    if n.exact:
        x, common = n.subtract(z, lse), torch.zeros_like(lse.mid)
    else:
        far = (lse.rad + lse.error) * UP
        x = n.subtract(z, n.given(lse.mid, far))
        common = torch.expm1(far if a.base2 is None else far * float(LN_2)) * UP
    weights = _masked(n.exp(x) if a.base2 is None else n.exp2(x), rows.hidden)
    return replace(weights, mid=done.weights.mid, rad=done.weights.rad) if n.exact else weights, common


def _near(value: Fraction) -> tuple[Fraction, Fraction]:
    """Ends of an interval around the irrational constant whose nearest double is `value`."""
    return value - Fraction(2) ** -53, value + Fraction(2) ** -53


def _either(ways: Sequence[Product]) -> tuple[Rough, Tensor]:
    """What holds of a number, and of its terms' magnitudes, in whichever of the ways it is computed."""
    found, size = ways[0].value, ways[0].size
    for other in ways[1:]:
        one = other.value
        rad = torch.maximum(found.rad, one.rad) + (found.mid - one.mid).abs() * UP
        error, size = torch.maximum(found.error, one.error), torch.maximum(size, other.size)
        found = replace(found, rad=rad, error=error, positive=found.positive and one.positive, held=None)
    return found, size


def _parameter(n: Roundoff, total: Rough) -> tuple[Rough, Tensor]:
    """The number as computed, and its relative error, whatever was subtracted; where exactness matters, the number with
    its error."""
    if n.exact:
        return total, torch.zeros_like(total.mid)
    room = total.mid - total.rad - total.error
    off = torch.where(room > 0, total.error / room * UP, math.inf)
    return replace(total, rad=(total.rad + total.error) * UP, error=torch.zeros_like(total.error)), off


def _quotient(n: Roundoff, a: Algorithm, x: Rough, divisor: Rough) -> Rough:
    """x over a row's divisor; exact by a power of two, where that is documented."""
    found = n.div(x, divisor)
    if not (n.exact and a.division.points):
        return found
    whole = x.known & divisor.known & (torch.frexp(divisor.mid).mantissa == 0.5)
    rad, error = (torch.where(whole, 0.0, t) for t in (found.rad, found.error))
    return replace(found, rad=rad, error=error)


def _scaled(n: Roundoff, change: Rough, scale: float, stored: bool) -> Rough:
    """dS, which may be multiplied by the scale before it is stored."""
    if math.frexp(scale)[0] != 0.5:
        change = _moved(change, 2 * U)
    if not stored:
        return change
    least = float(n.storage.smallest_subnormal) / 2 / min(scale, 1.0)
    whole = change.mid * scale
    fits = (change.error == 0) & (change.rad == 0) & (round_to(whole, n.storage) == whole)
    near = change.mid.abs() * scale < 2 * float(n.storage.smallest_normal)
    return replace(change, error=torch.where(fits | ~near, change.error, change.error + least))


def _rescaled(terms: Rough, a: Algorithm, shown: Tensor, spread: Tensor, keys: int) -> Rough:
    """Each block multiplies what it has by exp of the change of the maximum: a function and a product. The roundings of
    their arguments are those of one argument, as the distances add up. Nothing happens where all maxima are equal."""
    times = 0 if a.keys is None else -(-keys // a.keys) - 1
    if times <= 0:
        return terms
    off = math.expm1(times * math.log1p((a.exp.units + 1) * U * (1 + U))) * UP
    error = (terms.error + (terms.size + terms.error) * off) * UP + times * (FLUSH + a.exp.absolute)
    if a.exp.points:
        lowest = torch.where(shown == -torch.inf, torch.inf, shown).amin(-1, keepdim=True)
        same = (spread == 0) & (lowest == shown.amax(-1, keepdim=True))
        error = torch.where(same, terms.error, error)
    return replace(terms, error=error)


def _moved(x: Rough, relative: float) -> Rough:
    """x with a further relative error."""
    return replace(x, error=x.error + x.reach * relative, held=None)


def _stored(n: Roundoff, x: Rough, rounds: bool) -> Rough:
    return n.cast(x, n.storage) if rounds else x


def _masked(x: Rough, hidden: Tensor | None) -> Rough:
    """The tensor with 0 where a key is hidden."""
    if hidden is None:
        return x
    mid, rad, error = (t.expand_as(x.mid).masked_fill(hidden, 0.0) for t in (x.mid, x.rad, x.error))
    return replace(x, mid=mid, rad=rad, error=error)


def _visible(t: Tensor, hidden: Tensor | None) -> Tensor:
    return t if hidden is None else t.masked_fill(hidden, 0.0)


def _turned(x: Rough) -> Rough:
    return replace(x, mid=x.mid.mT, rad=x.rad.expand_as(x.mid).mT, error=x.error.expand_as(x.mid).mT)


def _with(found: Product, error: Tensor) -> Product:
    return replace(found, value=replace(found.value, error=(found.value.error + error) * UP))
