"""The judgement of one element, as a pure function on tensors: region, class, error, and whether it is what it may be.

This is the definition. It runs eagerly on any device in float64 or double-double, and is traced and compiled for the
fused pass (`verify.judge.fused`), so there is no control flow on data. What an enclosure does not settle is left
`open` to the next stage; `verify.judge.exact` says the same of single elements in multiprecision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from verify.facts.formats import Format
from verify.judge.regions import REGIONS
from verify.judge.status import KINDS
from verify.numbers.decide import (
    BINS,
    NEGLIGIBLE,
    UP,
    WORDS,
    Enclosure,
    Line,
    binade,
    binade_of,
    difference,
    either,
    ends_on,
    limited,
    nearest,
    subtracts,
)
from verify.numbers.transforms import two_sum
from verify.numbers.ulp import FLUSH_ULP

Tensor = torch.Tensor

#: Classes in the order of `Judged.cls`.
CLASSES = ("correct", "faithful", "worse", "flushed", "nan_mismatch", "inf_mismatch", "zero_sign")
_NO_NUMBER = 2.0**1000  # the share of an element that may not err and does
MARGIN = 2.0**-20  # ULP: more than the roundings of an error of about 1 ULP, relative to its truth, add up to
UNMOVED = 2.0**500  # the underflow of an intermediate is not taken to move a result beyond it
ROUNDED = 0.5  # ULP: a bound of no more is that of one operation, which has no intermediates
LOOSE = 8.0  # a bound of 2^p / LOOSE ULP or more says nothing about results of another binade


@dataclass(frozen=True)
class Limits:
    """What a lowering's elements may be: a bound in each metric (inf: none), and whether FTZ is declared.

    ulp, scaled: in ULP and scaled ULP; steps: in representable steps. Values may be 0-dim float64 tensors,
    so that one traced judgement serves every lowering.
    """

    ulp: float | Tensor = math.inf
    scaled: float | Tensor = math.inf
    steps: float | Tensor = math.inf
    ftz: float | Tensor = 0.0

    @classmethod
    def of(cls, metric: str | None, value: float = math.inf, ftz: bool = False) -> Limits:
        """The limits of one declared bound. None: no bound; 'share': each element has its own (`Facts.limit`)."""
        field = {"ulp": "ulp", "scaled_ulp": "scaled", "int_ulp": "steps", "share": None, None: None}[metric]
        return cls(**({field: value} if field else {}), ftz=float(ftz))

    @property
    def bounds(self) -> tuple[float | Tensor, float | Tensor, float | Tensor]:
        return self.ulp, self.scaled, self.steps

    def least(self, device: torch.device) -> Tensor:
        """The smallest of the bounds, 0-dim float64."""
        ulp, scaled, steps = (torch.as_tensor(v, dtype=torch.float64, device=device) for v in self.bounds)
        return torch.minimum(torch.minimum(ulp, scaled), steps)

    def room(self, slack: Tensor) -> Tensor:
        """What underflow of intermediates may add, in absolute terms: nothing to a bound of half an ULP."""
        ulp = torch.as_tensor(self.ulp, dtype=torch.float64, device=slack.device)
        return torch.where(ulp <= ROUNDED, 0.0, slack)

    @property
    def values(self) -> tuple[float, ...]:
        """All four as floats: the parameters of a compiled judgement."""
        return tuple(float(v) for v in (*self.bounds, self.ftz))


@dataclass(frozen=True)
class Facts:
    """What is known of elements before their output is seen. Tensors of shape (n,), or 0-dim for all.

    truth     enclosure of the real number, special values applied (a NaN or an infinity with radius 0)
    special   bool: an operand is NaN or infinite, or the table of special values decides
    subnormal bool: an operand is subnormal
    under, over  bool: a named intermediate is certainly below, above the normal range; beside a special operand, where
              0 times infinity is a NaN, `over` says that one leaves it at either end
    unsure    bool: it is not known whether one is
    slack     float64 >= 0: how far underflow of intermediates may move the result, in absolute terms; inf: nothing
              is stated; NaN: not known
    scale     lower and upper bounds of the positive number that scaled ULPs refer to; None: the truth itself
    limit     float64 >= 0: what |y - t| may be, in absolute terms; inf: nothing is stated. None: `Limits` say it
    beyond    (kind, float64) of ever wider limits: what is beyond `limit` and within this one fails as that kind
    infinite  bool: no finite number is what the element may be, though `limit` states nothing; None: of none
    zeroed    the truth at operands whose subnormals are taken as zero, or None where it is left to a later stage
    flush     float64: how far flushed intermediates may move the result where FTZ is declared
    unit      int64: every number here is in units of 2^unit of its element; None: of 1 (`verify.numbers.decide.Line`)
    """

    truth: Enclosure
    special: Tensor
    subnormal: Tensor
    under: Tensor
    over: Tensor
    unsure: Tensor
    slack: Tensor
    scale: tuple[Tensor, Tensor] | None = None
    limit: Tensor | None = None
    beyond: tuple[tuple[str, Tensor], ...] = ()
    infinite: Tensor | None = None
    zeroed: Enclosure | None = None
    flush: Tensor | None = None
    unit: Tensor | None = None


@dataclass(frozen=True)
class Judged:
    """The judgement of each element; see the fields. Nothing counts of an element that is `open`."""

    region: Tensor  #: int64, index in REGIONS
    cls: Tensor  #: int64, index in CLASSES
    open: Tensor  #: bool: not settled here
    measured: Tensor  #: bool: a number measures the error, which enters maxima, sums and histogram
    error: Tensor  #: float64: ULP, at the midpoint of the enclosure
    negative: Tensor  #: bool: y < t
    upper: Tensor  #: float64: upper bound of the error in ULP; 0 where not measured
    scaled: Tensor  #: float64: the same in scaled ULP
    share: Tensor  #: float64: upper bound of |y - t| over what the element may be; 0 where nothing is stated
    steps: Tensor  #: int64: representable steps from RN(t); 0 where not measured
    fails: Tensor  #: bool: the element is something that it may not be
    kind: Tensor  #: int64: index in KINDS of why it fails; -1 where it does not
    lost: Tensor  #: bool: it fails, and an intermediate overflows: an admissible formula may account for it
    unjudged: Tensor  #: bool: nothing is stated of what it may be
    different: Tensor  #: bool: its bits differ from eager's
    closer: Tensor
    farther: Tensor


def decide(
    y: Tensor, facts: Facts, fmt: Format, limits: Limits, eager: Tensor | None = None, coarse: float = math.inf
) -> Judged:
    """Judge outputs y of shape (n,) against `facts`; eager: another lowering's outputs, to be compared with.

    Outputs have any dtype whose values float64 holds. coarse: elements whose error is known no better than to that
    many ULP are left open, since they would spoil sums and histogram.
    """
    facts = replace(facts, slack=limits.room(facts.slack))
    e, line = facts.truth, Line(fmt, facts.unit)
    top, yv = line.top, line.place(y)
    m, rad, tail = e.within(line)
    lo, hi = ends_on(m, rad, tail, e.sure, line)
    nlo, nhi, b_lo, b_hi = lo.nearest, hi.nearest, lo.binade, hi.binade
    yc = yv.clamp(-top, top)
    inverse = 2.0 ** (fmt.precision - 1) / torch.minimum(b_lo, b_hi)
    signed, spread = difference(yv, m, tail, line) * inverse, rad * inverse
    error = signed.abs()
    exact = rad == 0
    nan, ynan = torch.isnan(m) & exact, torch.isnan(yv)
    infinite = facts.special & torch.isinf(e.mid) & exact
    zero_split = (nlo == 0) & (lo.negative != hi.negative) & ~exact
    one_binade = (b_lo == b_hi) | (error + spread < NEGLIGIBLE)
    agree = (rad >= 0) & (nlo == nhi) & one_binade & ~zero_split
    d = line.steps(y, nlo)
    near = d.abs() == 1
    above, below = lo.above & hi.above, lo.below & hi.below  # the same RN, where it matters
    settled = nan | (agree & (ynan | infinite | ~(near & ~exact & ~above & ~below)))
    number = settled & ~(nan | ynan)
    missed = number & infinite & (d != 0)

    # classes, in the order in which they are tried
    nonzero = m != 0 if tail is None else (m != 0) | (tail != 0)
    zero, same_sign = yv == 0, torch.signbit(yv) == torch.signbit(m)
    wrong_zero = number & zero & ((d == 0) | (near & nonzero)) & ~same_sign
    # a zero left by cancellation has the sign of an exact zero, whatever the sign of t
    cancelled = wrong_zero & nonzero if facts.scale is not None else torch.zeros_like(wrong_zero)
    sign_miss = wrong_zero & ~cancelled
    hit = number & (d == 0) & ~wrong_zero
    beside = number & ~sign_miss & ~missed & ((above & (d == 1)) | (below & (d == -1)))  # t is between it and RN(t)
    faithful = beside | (number & ~sign_miss & ~missed & cancelled)
    rest = number & ~(hit | faithful | sign_miss)
    size = nlo.abs()
    inf_miss = rest & ((size == top) != (yc.abs() == top))
    distance = (error + spread) / inverse
    least = torch.clamp(error - spread, min=0.0) / inverse
    if facts.scale is None:
        heavy = light = inverse
    else:  # the scale is known within bounds
        heavy = 2.0 ** (fmt.precision - 1) / binade(facts.scale[0], line)
        light = 2.0 ** (fmt.precision - 1) / binade(facts.scale[1], line)
    # a zero left by cancellation is not a flush: its error is larger than a rounding's
    whole = exact & subtracts(yv, m, line)
    sharp = whole if tail is None else whole & (tail == 0)
    slack = either(sharp, 1.0, UP)
    lost = rest & zero & (size <= line.low) & (distance * heavy * slack >= FLUSH_ULP) & ~inf_miss
    flush = lost & (least * light >= FLUSH_ULP * slack)
    unclear = lost & ~flush
    wrong = (rest & ~unclear) | (settled & (nan != ynan))
    if facts.zeroed is None:
        unclear = unclear | (facts.subnormal & wrong & ~flush)
    else:
        as_zero, undecided = _at_zero(y, yv, facts.zeroed, line)
        known = number & ~missed  # by how much it is off
        suspect = facts.subnormal & wrong & ~flush & (~known | (distance * heavy * slack >= FLUSH_ULP))
        unclear = unclear | (suspect & (undecided | (known & (least * light < FLUSH_ULP * slack))))
        flush = flush | (suspect & as_zero)
        rest, inf_miss, missed = rest & ~flush, inf_miss & ~flush, missed & ~flush
    nan_miss = settled & (nan != ynan) & ~flush
    measured = number & ~missed & ~flush

    # what the element may be
    stated, share, within, beyond = _against(
        error, spread, d.abs().to(torch.float64), hit, beside, slack, inverse, heavy, light, facts, limits
    )
    if facts.limit is not None:
        bounded = torch.isfinite(facts.limit)
        part = torch.where(distance == 0, 0.0, distance * UP / facts.limit).clamp(max=_NO_NUMBER)
        share = torch.maximum(share, torch.where(bounded, part, 0.0))
        within = within & (~bounded | (distance * slack <= facts.limit))
        beyond = beyond | (bounded & (least > facts.limit * slack))
        stated = stated & bounded
    if facts.zeroed is not None and facts.flush is not None:
        allowed, perhaps = _flushed_within(yv, distance, least, inverse, heavy, light, facts, limits, line)
        ftz = torch.as_tensor(limits.ftz, device=y.device) > 0
        explained = ftz & allowed & beyond & measured & ~sign_miss
        beyond = beyond & ~(ftz & perhaps)
        flush, measured = flush | explained, measured & ~explained
        faithful, rest, inf_miss = faithful & ~explained, rest & ~explained, inf_miss & ~explained
        excused_flush = ftz | (within & (facts.slack > 0) & torch.isfinite(facts.slack))
    else:
        excused_flush = within & (facts.slack > 0) & torch.isfinite(facts.slack)
    unclear = unclear | (measured & ~(within | beyond)) | torch.isnan(facts.slack)
    bad = measured & beyond
    short = inf_miss & (size == top)  # a finite number, which the place of infinity is near to, and the truth is not
    if facts.limit is None:
        short = short & (facts.slack <= top / 4) & (limits.least(y.device) <= 2.0**fmt.precision / LOOSE)
    else:
        short = short & (facts.limit <= top / 4)
    far, near_far = e.exceeds(2 * top)
    unclear = unclear | (short & ~far & near_far)
    short = short & far & ~bad
    fails = nan_miss | sign_miss | missed | (flush & ~excused_flush) | bad | short
    # nothing is stated: a partial result may have left the range, and met its opposite
    nothing = torch.zeros_like(fails) if facts.limit is None else torch.isinf(facts.limit)
    saturated = torch.zeros_like(fails) if facts.infinite is None else number & facts.infinite & torch.isfinite(y)
    silent, fails = fails & nothing & ~saturated, (fails & ~nothing) | saturated
    # else the largest scaled error would hide among those that may be twice what they are, unless none matters
    unclear = unclear | (measured & (heavy != light) & (error + spread >= NEGLIGIBLE))
    unclear = unclear | (fails & facts.unsure)  # underflow may excuse it, overflow account for it
    kind = torch.full_like(d, -1)
    for name, which in (
        ("bound", bad),
        ("infinity", missed | short | saturated),
        ("zero-sign", sign_miss),
        ("flush", flush),
        ("nan", nan_miss),
    ):
        kind = torch.where(which & fails, KINDS.index(name), kind)
    for name, wider in reversed(facts.beyond):  # the narrowest that holds the element
        inside = distance * slack <= wider
        kind = torch.where(bad & fails & inside, KINDS.index(name), kind)
        unclear = unclear | (bad & fails & ~inside & (least <= wider * slack))

    # the region, from inputs and truth alone
    region = torch.full_like(d, REGIONS.index("normal"))
    leaves = facts.under | facts.over
    real = ~facts.special
    for name, which in (
        ("intermediate", leaves),
        ("overflow", size >= line.largest),
        ("subnormal-result", size < line.low),
        ("subnormal-operand", facts.subnormal),
        ("exact-zero", exact & ~nonzero),
        ("special", facts.special),
    ):
        region = torch.where(which, REGIONS.index(name), region)
    early = facts.special | facts.subnormal | (exact & ~nonzero) | (size < line.low) | (size >= line.largest)
    unclear = unclear | (real & ~early & facts.unsure & ~leaves)

    different = closer = farther = tie = torch.zeros_like(settled)
    if eager is not None:
        different, closer, farther, tie = _compare(yv, line.place(eager), m, rad, tail, nan, number, infinite, line)
    error, edged = _beside_edges(error, spread, whole, signed, yv, m, tail, inverse, line)
    open_ = ~settled | unclear | tie | (measured & ((spread > coarse) | edged))
    if facts.unit is not None:  # limited numbers do not show so large an error
        open_ = open_ | (measured & ~(error < _NO_NUMBER**0.5))
    counted = measured & ~open_
    upper = scaled = torch.where(counted, (error + spread) * slack, 0.0)
    if facts.scale is not None:
        scaled = torch.where(counted, distance * heavy * slack, 0.0)
    cls = torch.zeros_like(d)
    for index, which in enumerate((hit, faithful, rest, flush, nan_miss, inf_miss | missed, sign_miss)):
        if index:
            cls = torch.where(which, index, cls)
    return Judged(
        region=region,
        cls=cls,
        open=open_,
        measured=counted,
        error=torch.where(counted, error, 0.0),
        negative=signed < 0,
        upper=upper,
        scaled=scaled,
        share=torch.where(counted, share, 0.0),
        steps=torch.where(counted, d.abs(), 0),
        fails=fails & ~open_,
        kind=kind,
        lost=fails & facts.over & ~open_,
        unjudged=((~stated & measured & ~saturated) | silent) & ~open_,
        different=different & ~open_,
        closer=closer & ~open_,
        farther=farther & ~open_,
    )


def keeps(y: Tensor, facts: Facts, fmt: Format) -> Tensor:
    """bool (n,): elements that certainly keep the limit that `facts` give each, whatever else `decide` finds of them:
    numbers other than 0, of truths well inside the format's range, and what is exactly its truth."""
    if facts.limit is None or facts.unit is not None:
        return torch.zeros(y.shape, dtype=torch.bool, device=y.device)
    e, yv = facts.truth, y.to(torch.float64)
    rad = e.radius if e.tail is None else e.radius + e.tail.abs()
    distance = ((yv - e.mid).abs() + rad) * UP
    inside = ((e.mid.abs() + rad) < 2.0**fmt.emax) & (yv != 0) & yv.isfinite() & (distance <= facts.limit)
    same = (rad == 0) & (yv == e.mid) & (torch.signbit(yv) == torch.signbit(e.mid)) & yv.isfinite()
    number = (inside | same) & facts.limit.isfinite() & ~facts.special
    return number | (facts.special & (rad == 0) & ((e.mid.isnan() & yv.isnan()) | (yv.isinf() & (yv == e.mid))))


def error_of(y: Tensor, facts: Facts, fmt: Format) -> float | None:
    """The largest error of outputs that are numbers, in ULP of the truth, or of its scale where that is larger, as far
    as midpoints tell; None where they do not: of float64, and of no number."""
    if facts.unit is not None or fmt.bits == 64:
        return None
    e, yv = facts.truth, y.to(torch.float64)
    size = e.mid.abs() if facts.scale is None else torch.maximum(e.mid.abs(), facts.scale[1])
    counted = yv.isfinite() & e.mid.isfinite() & (size > 0) & size.isfinite() & ~facts.special
    if not bool(counted.any()):
        return None
    exponent = torch.frexp(size.where(counted, 1.0)).exponent.clamp(min=fmt.emin + 1)
    distance = (yv - e.mid if e.tail is None else yv - e.mid - e.tail).abs()
    return float((distance * torch.exp2((fmt.precision - exponent).double())).where(counted, 0.0).max())


def farthest(y: Tensor, facts: Facts, count: int) -> Tensor:
    """int64: at most so many places of elements that certainly are farther off than their limit, before any slack."""
    none = torch.zeros(0, dtype=torch.int64, device=y.device)
    if facts.limit is None or facts.unit is not None:
        return none
    e = facts.truth
    rad = e.radius if e.tail is None else e.radius + e.tail.abs()
    share = ((y.to(torch.float64) - e.mid).abs() - rad) / facts.limit
    share = share.where((share > 1) & facts.limit.isfinite() & ~facts.special, 0.0)
    places: Tensor = share.topk(min(len(y), count)).indices
    return places[share[places] > 0]


@dataclass(frozen=True)
class Usual:
    """The same of elements of the region normal, in fewer operations than `Plain` takes for all of its regions."""

    holds: Tensor  #: bool
    faithful: Tensor
    error: Tensor
    upper: Tensor
    scaled: Tensor


@dataclass(frozen=True)
class Plain:
    """What `decide` says of elements that are as nearly all are, where `holds`; of others nothing. They are settled,
    correct or faithful, within their bound, have eager's bits, and nothing else is to be told of them."""

    holds: Tensor  #: bool
    nan: Tensor  #: bool: the region is special, and a NaN is due, of which nothing is measured,
    operand: Tensor  #: else subnormal-operand,
    small: Tensor  #: else subnormal-result,
    overflow: Tensor  #: else overflow, else normal
    faithful: Tensor  #: bool; else correct
    error: Tensor  #: float64, and so on: as in `Judged`
    negative: Tensor
    upper: Tensor
    scaled: Tensor
    share: Tensor
    usual: Usual


def plainly(
    y: Tensor, facts: Facts, fmt: Format, limits: Limits, eager: Tensor | None = None, coarse: float = math.inf
) -> Plain:
    """The judgement of `decide` where it takes few operations: of a truth in one binade that is not beside a midpoint,
    of an overflow to infinity, or of a NaN.

    facts: of which truth, special, subnormal, under, over and scale are read. special: the element is special, and
    the midpoint a NaN only where that is due; over: an intermediate may leave the normal range; under: one is certainly
    below it, by which a result beyond UNMOVED is not moved.

    For y of the sign of t, |y - t| < 1/2 ULP makes y RN(t), since numbers are an ULP apart within the binade of t and
    closer below it. Less than 1 ULP makes it RD(t) or RU(t) where it is not below that binade, and more than 1/2 not
    RN(t). The error is computed from y - mid, which is exact or rounded by 2^-53 of itself, and the radius has room for
    its own roundings; so MARGIN decides on the same side as `decide` does by rounding both ends of the enclosure. Of an
    exact truth without a tail y - mid is exact where 2 t >= y >= t / 2 (Sterbenz): where the error is less than 1/2
    ULP, and where it is less than 1 ULP and y not below the binade. A midpoint belongs to the even one of its
    neighbours.
    """
    e, line = facts.truth, Line(fmt)
    yv, word = line.place(y), WORDS[fmt.bits]
    size = e.mid.abs()
    rad = size * e.relative + e.absolute if e.rad is None else e.rad
    lo, hi = size - rad, size + rad
    if e.tail is not None:
        outward = torch.where(e.mid < 0, -e.tail, e.tail)
        lo, hi = _toward_zero(size, outward - rad), _toward_zero(size, outward + rad)
    unit = binade_of(lo.clamp(min=line.low)) * 2.0 ** (1 - fmt.precision)
    inverse = _inverse(unit)
    off = yv - e.mid if e.tail is None else (yv - e.mid) - e.tail
    signed, spread = off * inverse, rad * inverse
    error = signed.abs()
    total = error + spread
    faithful, clear = error > 0.5, (error - 0.5).abs() > spread + MARGIN
    up: Any = UP
    far = (size >= 2 * line.top) & torch.isinf(yv)
    nan = torch.isnan(e.mid) & torch.isnan(yv) & facts.special
    if e.rad is not None:
        exact = rad == 0 if e.tail is None else (rad == 0) & (e.tail == 0)
        faithful = faithful | ((error == 0.5) & (y.view(word) & 1 == 1))
        clear, up, far = clear | exact, either(exact, 1.0, UP), far & (rad <= size / 4)
    small, normal = hi < line.low * (1 - 2.0**-fmt.precision), lo >= line.low
    near = (hi < line.largest * (1 - 2.0 ** (1 - fmt.precision))) & clear & (total < 1 - MARGIN)
    certain = hi > 0 if e.sure else lo > 0  # not zero, and of the sign of the midpoint
    if e.tail is not None:  # at an edge of a histogram's bin what is rounded away counts
        near = near & ((((yv - e.mid) - off) - e.tail == 0) | (error != binade_of(error)))
    near = near & (((lo > 0) & _one_binade(lo, hi)) | (certain & (total < NEGLIGIBLE)))
    near = near & (~faithful | (yv.abs() * inverse >= 2.0 ** (fmt.precision - 1))) & (spread <= coarse)
    upper = scaled = total * up
    if facts.scale is not None:
        low, high = (end.clamp(min=line.low) for end in facts.scale)
        near = near & (_one_binade(low, high) | (total < NEGLIGIBLE)) & (high < line.top)
        scaled = total * unit * _inverse(binade_of(low) * 2.0 ** (1 - fmt.precision)) * up

    ulp, most, count = (torch.as_tensor(v, dtype=torch.float64, device=y.device) for v in limits.bounds)
    both = torch.minimum(ulp, most)
    part, within = upper / both, upper <= both
    if facts.scale is not None:
        part, within = torch.maximum(upper / ulp, scaled / most), (upper <= ulp) & (scaled <= most)
    share = torch.maximum(part, torch.where(faithful, 1.0 / count, 0.0)).clamp(max=1.0)
    within = (within & (~faithful | (count >= 1))) | (~faithful & (both >= 0.5))
    near = near & within
    in_range = (small & near) | (normal & near & (facts.subnormal | ~facts.over)) | (far & (both >= 0.5))
    ordinary = (~facts.under | (size > UNMOVED)) & ~facts.special
    ordinary = ordinary & ((yv.view(torch.int64) ^ e.mid.view(torch.int64)) >= 0)  # of one sign
    holds = (in_range & ordinary) | nan
    usual = normal & near & ordinary & ~facts.over & ~facts.subnormal  # and so neither a NaN nor far
    if eager is not None:
        same = y.view(word) == eager.view(word)
        holds, usual = holds & same, usual & same
    first = Usual(usual, faithful, error, upper, scaled)
    nothing = far | nan
    error, upper, scaled, share = (torch.where(nothing, 0.0, value) for value in (error, upper, scaled, share))
    faithful = faithful & ~nothing
    return Plain(holds, nan, facts.subnormal, small, far, faithful, error, signed < 0, upper, scaled, share, first)


def _inverse(power: Tensor) -> Tensor:
    """1 / v of a power of two, by its pattern."""
    return (torch.full_like(power, 2046 << 52, dtype=torch.int64) - power.view(torch.int64)).view(torch.float64)


def _toward_zero(size: Tensor, off: Tensor) -> Tensor:
    """A float64 in the binade of size + off, where that is positive."""
    found, left = two_sum(size, off)
    return (found.view(torch.int64) - (left < 0).to(torch.int64)).view(torch.float64)


def _one_binade(low: Tensor, high: Tensor) -> Tensor:
    """Whether two positive numbers, the smaller one first, have one exponent."""
    return (low.view(torch.int64) ^ high.view(torch.int64)) < 1 << 52


def _against(
    error: Tensor, spread: Tensor, steps: Tensor, hit: Tensor, beside: Tensor, up: Tensor, inverse: Tensor,
    heavy: Tensor, light: Tensor, facts: Facts, limits: Limits,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Whether something is stated, the share of it, whether the element is certainly within it, certainly beyond it.

    up: the factor that covers the roundings of `error`, 1 where there are none.
    A correctly rounded result is within half an ULP of t, and so of any scale that is not below |t|; the other one of
    the two numbers beside t is within one.
    """
    ulp, most, count = (torch.as_tensor(v, dtype=torch.float64, device=error.device) for v in limits.bounds)
    room = facts.slack * inverse  # of underflow, in ULP
    margin = either(facts.slack > 0, UP, 1.0)
    high, low = (error + spread) * up, torch.clamp(error - spread, min=0.0)
    share_ulp = high / (ulp + room)
    within = (high <= ulp + room) | (hit & (ulp >= 0.5)) | (beside & (ulp >= 1.0))
    beyond = (low > (ulp + room) * up * margin) & ~within
    scale_room = facts.slack * heavy
    high_scaled, low_scaled = high / inverse * heavy, low / inverse * light
    share_scaled = high_scaled / (most + scale_room)
    within_scaled = (high_scaled <= most + scale_room) | (hit & (most >= 0.5)) | (beside & (most >= 1.0))
    beyond_scaled = (low_scaled > (most + scale_room) * up * margin) & ~within_scaled
    # n steps are at most 2 n + 1/2 ULP, where underflow may add some
    loose = (facts.slack > 0) & (high <= 2 * count + 0.5 + room)
    tight = (facts.slack > 0) & (low <= (2 * count + 0.5 + room) * up * margin)
    share_steps = torch.where(steps == 0, 0.0, steps / count)  # none are no share of none
    share_steps = torch.where((facts.slack > 0) & (steps > count), high / (2 * count + 0.5 + room), share_steps)
    within_steps, beyond_steps = (steps <= count) | loose, (steps > count) & ~tight
    share = torch.maximum(torch.maximum(share_ulp, share_scaled), share_steps)
    none = torch.isinf(facts.slack)
    within, beyond = within & within_scaled & within_steps, beyond | beyond_scaled | beyond_steps
    share = torch.where(none, 0.0, torch.where(within, share.clamp(max=1.0), share))
    return ~none, share, within | none, beyond & ~none


def _flushed_within(
    yv: Tensor, most_off: Tensor, least_off: Tensor, inverse: Tensor, heavy: Tensor, light: Tensor, facts: Facts,
    limits: Limits, line: Line,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Where FTZ is declared: within the bound plus what flushing can do, or within the bound of the truth at operands
    taken as zero. Certainly, and perhaps. most_off, least_off: bounds of |y - t|, in absolute terms."""
    assert facts.zeroed is not None and facts.flush is not None
    ulp, most, count = (torch.as_tensor(v, dtype=torch.float64, device=yv.device) for v in limits.bounds)
    ulp = torch.minimum(ulp, 2 * count + 0.5)
    m, rad, tail = facts.zeroed.within(line)
    lo, hi = ends_on(m, rad, tail, facts.zeroed.sure, line)
    unit = 2.0 ** (line.precision - 1) / torch.minimum(lo.binade, hi.binade)
    off = difference(yv, m, tail, line).abs()
    far, near = (off + rad) * UP, torch.clamp(off - rad, min=0.0)
    weights = (unit, unit) if facts.scale is None else (heavy, light)
    # an infinity that is not an overflow is either right or wrong, without a distance
    vague = torch.isinf(facts.zeroed.mid) & torch.isfinite(yv)
    at_zero = facts.subnormal & ~vague & (far * unit <= ulp) & (far * weights[0] <= most)
    beyond_zero = (near * unit > ulp * UP) | (near * weights[1] > most * UP) | (torch.isnan(m) & (rad == 0))
    gone = torch.where(yv == 0, line.low, 0.0)  # a subnormal result
    room = facts.flush + gone
    high = most_off * UP
    by_room = (high * inverse <= ulp + room * inverse) & (high * heavy <= most + room * heavy)
    beyond_room = (least_off * inverse > (ulp + room * inverse) * UP) | (least_off * light > (most + room * light) * UP)
    return at_zero | by_room, (facts.subnormal & ~beyond_zero) | ~beyond_room


def _at_zero(y: Tensor, yv: Tensor, e: Enclosure, line: Line) -> tuple[Tensor, Tensor]:
    """Elements that are RD or RU of the truth at operands taken as zero, and elements where that is unknown."""
    m, rad, tail = e.within(line)
    lo, hi = ends_on(m, rad, tail, e.sure, line)
    nlo, nhi = lo.nearest, hi.nearest
    exact, ynan = rad == 0, torch.isnan(yv)
    nan = torch.isnan(m) & exact
    d = line.steps(y, nlo)
    above, below = lo.above & hi.above, lo.below & hi.below
    agree = (rad >= 0) & (nlo == nhi)
    side = (d.abs() != 1) | exact | above | below
    # there the truth decides the sign of a zero: flushing keeps signs
    other_zero = (yv == 0) & (d.abs() <= 1) & (torch.signbit(yv) != torch.signbit(m)) & ((d == 0) | (m != 0))
    right = ((d == 0) | (above & (d == 1)) | (below & (d == -1))) & ~other_zero
    known = nan | (agree & (ynan | side))
    return known & ((nan & ynan) | (~nan & ~ynan & right)), ~known


def _beside_edges(
    error: Tensor, spread: Tensor, whole: Tensor, signed: Tensor, yv: Tensor, m: Tensor, tail: Tensor | None,
    inverse: Tensor, line: Line,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The error, on the side of a histogram's edge on which it lies, and where that is not known.

    whole: where float64 holds the error. Of y - t in double-double the part that float64 rounds away may tell the side.
    """
    edge = binade_of((error + spread) * (1 + 2.0**-40))
    gap, blur = error - edge, error * 2.0**-52
    if tail is not None:
        _, rest = two_sum(difference(yv, m, None, line), -limited(m, tail, line))
        rest = torch.where(signed < 0, -rest, rest) * inverse
        error = torch.where((gap == 0) & (rest > 0), error * (1 + 2.0**-52), error)
        gap = gap + rest
        blur = torch.where(subtracts(yv, m, line), gap.abs() * 2.0**-50, blur)  # nothing else was rounded
    near = gap.abs() <= spread * (1 + 2.0**-30) + blur
    return error, ~whole & near & (edge >= BINS[0]) & (edge <= BINS[-1])


def _compare(
    yv: Tensor, ev: Tensor, m: Tensor, rad: Tensor, tail: Tensor | None, nan: Tensor, number: Tensor, infinite: Tensor,
    line: Line,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """different, closer, farther, and those that only a closer look tells apart. infinite: the truth is.

    |y - t| < |e - t| where t is on y's side of the midpoint: where y - e and (y - t) + (e - t) have opposite signs.
    Neighbours cancel in that sum, so that it is taken with all that its additions leave.
    """
    ynan, enan = torch.isnan(yv), torch.isnan(ev)
    different = ~(((ev == yv) & (torch.signbit(ev) == torch.signbit(yv))) | (enan & ynan))
    numbers = different & number & ~enan
    measurable, hits = numbers & (yv != ev) & ~infinite, numbers & infinite
    y, e, mid = (v.clamp(-line.top, line.top) for v in (yv, ev, m))
    (u, u_left), (v, v_left) = two_sum(y, -mid), two_sum(e, -mid)
    s, left = two_sum(u, v)
    small, size = left + (u_left + v_left), left.abs() + u_left.abs() + v_left.abs()
    if tail is not None:
        twice = 2 * limited(m, tail, line)
        small, size = small - twice, size + twice.abs()
    side = s + small
    blur = (2 * rad + size * 2.0**-51) * UP  # four roundings of what is small
    tie = measurable & (((side.abs() <= blur) & (blur > 0)) | (y == e))
    measurable = measurable & ~tie
    one_nan, due = different & (ynan != enan), nan == ynan  # the one with a NaN where the truth is NaN is closer
    below = y < e
    closer = (measurable & torch.where(below, side > 0, side < 0)) | (one_nan & due) | (hits & (y == mid))
    farther = (measurable & torch.where(below, side < 0, side > 0)) | (one_nan & ~due) | (hits & (e == mid))
    return different, closer, farther, tie


def resolution(facts: Facts, fmt: Format, limits: Limits) -> Tensor:
    """The least d for which RN(t (1 + d)) and RN(t (1 - d)) are both beyond what the element may be, at the midpoint of
    the enclosure; NaN where t is zero or no real number, inf where nothing is stated."""
    line = Line(fmt)
    m, _, _ = facts.truth.within(line)
    size, unit = m.abs(), binade(m, line) * 2.0 ** (1 - fmt.precision)
    scale = size if facts.scale is None else facts.scale[1]
    heavy = binade(scale, line) * 2.0 ** (1 - fmt.precision)
    ulp, most, count = (torch.as_tensor(v, dtype=torch.float64, device=m.device) for v in limits.bounds)
    allowed = torch.minimum(torch.minimum(ulp * unit, most * heavy), (count + 0.5) * unit) + facts.slack
    if facts.limit is not None:
        allowed = torch.minimum(allowed, facts.limit)
    found = torch.zeros_like(m)
    for end in (size + allowed, size - allowed):
        step = binade(end, line) * 2.0 ** (1 - fmt.precision)
        near = nearest(end, line)
        outward = torch.where(end >= size, 1.0, -1.0)
        beyond = torch.where((near - end) * outward > 0, near, near + outward * step)
        found = torch.maximum(found, ((beyond - outward * step / 2) - size).abs() / size)
    real = torch.isfinite(size) & (size > 0) & ~facts.special
    return torch.where(real, torch.where(torch.isfinite(allowed), found, torch.inf), torch.nan)
