"""What a product by a matrix unit may err by, for `roundoff`: a bound of each block, and of the blocks of a chain.

A block of the aligned rule (`verify.numbers.units`) cuts K + 1 terms at 2^(E - F) and its result at 2^-kept of it or at
the last place of the subnormal numbers, E the largest exponent of the unnormalised products and of c. With X the
largest 2^(e(a) + e(b)) of the block's terms and |c| <= |s| + e, s the exact sum before it and e what is known of its
error: 2^E <= max(X, |s| + e, 2^-126), and

    e' = e + (K + 1) 2^-F max(X, |s| + e, 2^-126) + 2^-kept (|s'| + e) + 2^(-126 - kept).

In any order, and split into any pieces, |s| is at most the sum of magnitudes, and there are at most as many blocks as
pieces and K make; sums of pieces are additions in float32. Where the terms are multiples of q and the sum of their
magnitudes is below 2^p q, p the fewest of F + 1, kept + 1 and 24, nothing is ever cut.

Stored pieces are contiguous, a multiple of LEAST terms long but for the last, and meet the storage format, of unit
roundoff u, in one of two ways that cuBLASLt documents (cublasLtReductionScheme_t). OUTPUT_TYPE: each is rounded to it,
all are added in float32: u sum |P_j|. INPLACE: one after another is added to what is kept in it: u sum |S_j|, S_j the
exact sum up to a cut (the last store is the output's). With S between lo and hi at all cuts, |P_j| <= hi - lo, and sum
|P_j| <= sum |terms|. Where terms are multiples of q, and hi - lo is below 2^p q of the storage format as well, nothing
is rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from verify.facts.formats import FORMATS, Format
from verify.numbers.grid import below, largest_products, last_bits
from verify.numbers.units import Unit

if TYPE_CHECKING:
    from verify.numbers.roundoff import Rough, Roundoff

Tensor = torch.Tensor
SINGLE = FORMATS["float32"]
U, U64, UP = 2.0**-24, 2.0**-53, 1.0 + 2.0**-44
#: Of whose multiples stored pieces are: what the shortest instruction on halves takes (m16n8k8), 16 bytes of them.
LEAST = 8


@dataclass(frozen=True)
class Blocks:
    """A chain of a unit's blocks in the order of k, or (`pieces`) up to so many chains of any terms in any order, added
    in float32; where they are `stored`, of contiguous terms, and stored or added one after another in the storage
    format. chains: so many of each term, of parts of it. before: terms that come before those of the pieces, a bias."""

    unit: Unit
    pieces: int = 0
    stored: bool = False
    chains: int = 1
    before: int = 0

    def __str__(self) -> str:
        if not self.pieces:
            return f"one chain of blocks of {self.unit}"
        added = "contiguous pieces stored or added in the dtype" if self.stored else "pieces added in float32"
        return f"blocks of {self.unit} in any order, in up to {self.pieces} {added}"


def product(n: Roundoff, x: Rough, y: Rough, blocks: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """mid, rad and error of (..., m, k) times (..., k, n)."""
    k, unit = x.mid.shape[-1], blocks.unit
    left, right = x.size + x.error, y.size + y.error
    grown = 1.0 + 8 * (k + 2) * U64
    size = (left @ right) * grown
    mid = x.mid @ y.mid
    own = (k + 2) * U64 * size
    rad = own + (x.rad @ y.size + x.size @ y.rad) * grown
    carried = (x.error @ right + x.size @ y.error) * grown
    result = FORMATS[unit.result]
    bits = unit.kept if unit.result == "float32" else result.precision
    cut, kept, least = (unit.terms + 2) * 2.0**-unit.fraction, 2.0**-bits, 2.0 ** (result.emin - bits)
    floor = 2.0**unit.least
    tall, wide = (torch.where(t > 0, t.clamp(min=floor), 0.0) for t in (left, right))
    # the sum of magnitudes is no less than the largest one, unless some have been enlarged
    small = not bool((tall == left).all() & (wide == right).all())
    whole = torch.maximum(largest_products(tall, wide), size) if small else size
    if blocks.pieces:
        count = blocks.chains * -(-k // unit.terms) + blocks.pieces
        top = whole.clamp(min=2.0**SINGLE.emin)
        grow = _growth(count, cut + kept)
        error = grow * (top + count * least) + count * least
        error = error + _growth(blocks.pieces, U) * (size + error)
    else:
        error, sums = torch.zeros_like(mid), torch.zeros_like(mid)
        for start in range(0, k, unit.terms):
            part = slice(start, start + unit.terms)
            found = largest_products(tall[..., part], wide[..., part, :])
            top = torch.maximum(found, sums.abs() + error + own + carried)
            sums = sums + x.mid[..., part] @ y.mid[..., part, :]
            error = error + cut * top.clamp(min=2.0**SINGLE.emin) + kept * (sums.abs() + own + carried + error) + least
            error = error * UP
    span = most = torch.zeros_like(mid)
    if blocks.stored:
        span, most, onto = _running(x.mid, y.mid, rad, blocks.before)
        error = _stored(n.storage, min(blocks.pieces, -(-k // LEAST)), span, most, onto, size, error + carried)
    if k:
        finest = last_bits(x.mid, y.mid)
        fewest = min(unit.fraction + 1, bits + 1, result.precision)
        spread = torch.maximum(*(t.rad.amax((-2, -1), keepdim=True) for t in (x, y)))
        exact = (carried == 0) & (spread == 0) & below(whole, finest, fewest)
        exact = exact & (finest >= result.emin - result.mantissa_bits)
        if blocks.stored:
            exact &= below(span, finest, n.storage.precision) & (finest >= n.storage.emin - n.storage.mantissa_bits)
        error, rad = torch.where(exact, 0.0, error), torch.where(exact, 0.0, rad)
    else:
        error = torch.zeros_like(error)
    error = torch.where(error > 0, (error + carried) * UP, carried)
    over = (size + error) * UP >= 2.0 ** (result.emax + 1) * (1 - kept)
    if blocks.stored:
        last = 2.0 ** (n.storage.emax + 1) * (1 - float(n.storage.unit_roundoff) / 2)
        over |= (torch.maximum(span, most) + error) * UP >= last
    return mid, rad, torch.where(over | error.isnan(), math.inf, error)


def _growth(count: int, u: float) -> float:
    """(1 + u)^count - 1."""
    powers = count * math.log1p(u)
    return math.expm1(powers) * UP if powers < 700 else math.inf


def _running(x: Tensor, y: Tensor, rad: Tensor, before: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of the sums S up to each cut, 0 and the whole among them: the largest less the least, the largest magnitude, and
    the sum of magnitudes but the last. rad: what the sums may be off by."""
    total = x[..., :0] @ y[..., :0, :]
    least, most, sums = (torch.zeros_like(total) for _ in range(3))
    cuts = [*range(before, x.shape[-1], LEAST), x.shape[-1]]
    for start, end in pairwise([0, *cuts] if before else cuts):
        sums += total.abs() + rad
        total += x[..., start:end] @ y[..., start:end, :]
        torch.minimum(least, total, out=least)
        torch.maximum(most, total, out=most)
    return most - least + 2 * rad, torch.maximum(most, -least) + rad, sums


def _stored(fmt: Format, count: int, span: Tensor, most: Tensor, onto: Tensor, size: Tensor, error: Tensor) -> Tensor:
    """The error of up to `count` pieces that are stored in a format or added in it, the worse of both; `error`: of the
    pieces together, as they come."""
    u, eta = float(fmt.unit_roundoff), float(fmt.smallest_subnormal)
    apart = u * (torch.minimum(size, count * span) + error) + count * eta
    apart = apart + _growth(count, U) * (size + error + apart)
    inside = _growth(count, u + 2 * U) * (error + count * eta) + count * eta
    inside = inside + (1 + _growth(count, u + 2 * U)) * (u + 2 * U) * torch.minimum(onto, count * most)
    return (error + torch.maximum(apart, inside)) * UP
