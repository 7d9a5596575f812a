"""Strata that several kernels share, in terms of `verify.inputs.draws`; the file of a kernel composes them.

A uniform sample of bit patterns overflows almost always and finds nothing, so every stratum aims at a place where
implementations branch, cancel, round to even, overflow or underflow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from verify.facts.formats import Format
from verify.inputs.domains import LISTED, Stratum
from verify.inputs.draws import Bits, Draw, Ints, Reals, as_int64, coarse, magnitude_of, pack

#: Special values take at most one part in this many of a domain.
SPECIALS_SHARE = 4


@dataclass(frozen=True)
class Part:
    """A stratum whose size is not yet fixed: `weight` is its share among the parts of a domain."""

    name: str
    weight: int
    bits: Callable[[Draw], Bits]


def compose(fmt: Format, arity: int, size: int, *parts: Part) -> tuple[Stratum, ...]:
    """The specials' cross product, then `parts` by weight: exactly `size` elements in all."""
    listed = specials(fmt)
    keep = max(1, min(len(listed), math.floor((size / SPECIALS_SHARE) ** (1 / arity) + 1e-9)))
    first = Stratum(LISTED, keep**arity, _cross(listed[:keep], arity))
    rest, total = size - first.size, sum(p.weight for p in parts)
    edges = [rest * w // total for w in itertools.accumulate((p.weight for p in parts), initial=0)]
    sized = zip(parts, itertools.pairwise(edges), strict=True)
    return first, *(Stratum(part.name, high - low, part.bits) for part, (low, high) in sized if high > low)


def specials(fmt: Format) -> tuple[int, ...]:
    """Patterns at which implementations branch, most telling first; a small domain takes the first ones."""
    one, top = fmt.parse("1"), fmt.inf_bits - 1
    normal, unit = 1 << fmt.mantissa_bits, 1 << fmt.mantissa_bits

    def power(exponent: int) -> int:
        return (exponent + fmt.emax) << fmt.mantissa_bits

    positive = [0, fmt.inf_bits, fmt.nan_bits, one, 1, top, normal, power(-1), power(1), fmt.parse("3")]
    positive += [one + 1, one - 1, normal - 1, power(-1) - 1, power(-1) + 1, top - 1, power(fmt.emax), normal + 1]
    # Where the spacing of values is 2 and 1: the largest odd integers, and the ties of adding one.
    positive += [power(fmt.precision), power(fmt.mantissa_bits) + 1, power(-fmt.precision), fmt.parse("1.5")]
    # A NaN with a payload; a mid-range product that only just overflows or underflows.
    positive += [fmt.nan_bits + 1, power(fmt.emax // 2 + 1), power(fmt.emin // 2), unit // 2, fmt.parse("0.1")]
    signed = [pattern for p in positive for pattern in (p, p | fmt.sign_bit)]
    return tuple(dict.fromkeys(signed))


def bits(arity: int, weight: int = 6) -> Part:
    """Uniform patterns."""
    return Part("bits", weight, lambda d: (d.bits(),) if arity == 1 else d.evenly(arity))


def binades(arity: int, weight: int = 4) -> Part:
    """Every exponent equally often, for each input independently."""
    return Part("binades", weight, lambda d: tuple(d.finite() for _ in range(arity)))


def moderate(arity: int, weight: int = 4) -> Part:
    """Exponents so near zero that products and quotients of all inputs stay normal."""

    def draw(d: Draw) -> Bits:
        limit = d.fmt.emax // (arity + 1)
        return tuple(d.value(d.integer(-limit, limit)) for _ in range(arity))

    return Part("moderate", weight, draw)


def powers_of_two(arity: int, weight: int = 3) -> Part:
    """Powers of two and their neighbours, for each input independently."""
    return Part("powers-of-two", weight, lambda d: tuple(d.power_of_two() for _ in range(arity)))


def one_power_of_two(arity: int, weight: int = 2) -> Part:
    """One input is a power of two or a neighbour, the others have any exponent."""

    def draw(d: Draw) -> Bits:
        chosen = d.integer(0, arity - 1)
        return tuple(d.power_of_two().where(chosen == k, d.finite()) for k in range(arity))

    return Part("one-power-of-two", weight, draw)


def one_zero(arity: int, weight: int = 1) -> Part:
    """One input is a zero of either sign, the others have any exponent."""

    def draw(d: Draw) -> Bits:
        chosen = d.integer(0, arity - 1)
        return tuple(d.signed(d.index * 0).where(chosen == k, d.finite()) for k in range(arity))

    return Part("one-zero", weight, draw)


def equal(arity: int, weight: int = 1) -> Part:
    """All inputs the same or opposite."""

    def draw(d: Draw) -> Bits:
        first = d.finite()
        return first, *(d.signed(magnitude_of(d.fmt, first)) for _ in range(arity - 1))

    return Part("equal", weight, draw)


def integers(arity: int, weight: int = 1) -> Part:
    """Integers and halves up to 2^precision in magnitude, small ones as often as large ones."""

    def draw(d: Draw) -> Bits:
        import torch

        return tuple(d.encode(d.spread(d.fmt.precision + 1).to(torch.float64) * 0.5) for _ in range(arity))

    return Part("integers", weight, draw)


def interval(name: str, low: float, high: float, weight: int = 4) -> Part:
    """One input, uniform as a real number in [low, high]."""
    return Part(name, weight, lambda d: (d.encode(d.real(low, high)),))


def neighbourhood(name: str, *points: float, width: int | None = None, weight: int = 2) -> Part:
    """One input around the `points` of either side, at log-uniform distances up to 2^width steps (the precision)."""

    def draw(d: Draw) -> Bits:
        import torch

        at = torch.tensor(points, dtype=torch.float64, device=d.index.device)[d.integer(0, len(points) - 1)]
        return (d.near(d.encode(at), d.fmt.precision if width is None else width),)

    return Part(name, weight, draw)


def general(arity: int, uniform: int | None = None) -> tuple[Part, ...]:
    """Parts for any kernel of several inputs, whatever it computes. uniform: the weight of `bits`, chosen so that quick
    domains meet four of five random boxes of patterns; three inputs need less for that.
    """
    return (
        bits(arity, uniform or (30 if arity == 2 else 6)),
        binades(arity),
        moderate(arity),
        powers_of_two(arity),
        one_power_of_two(arity),
        one_zero(arity),
        equal(arity),
        integers(arity),
    )


def unary(fmt: Format, size: int, *parts: Part) -> tuple[Stratum, ...]:
    """Strata of one input: the specials, general ones, and the kernel's own `parts`."""
    return compose(fmt, 1, size, bits(1), binades(1, 6), powers_of_two(1), *parts)


def sums(operands: Callable[[Draw, Ints], Bits], term: Callable[..., Reals], *, weight: int = 4) -> tuple[Part, ...]:
    """Strata of a + term(*operands), guided by where the addition is delicate.

    `operands(draw, exponent)` gives patterns whose term has about that binary exponent; `term` maps their
    float64 values to the term, to within a few units of float64's roundoff.
    """

    def drawn(d: Draw, exponent: Ints) -> tuple[Bits, Reals]:
        others = operands(d, exponent)
        return others, term(*map(d.reals, others))

    def aligned(d: Draw) -> Bits:
        exponent = d.integer(d.fmt.emin - 1, d.fmt.emax)
        reach = d.fmt.precision + 2
        return d.value(exponent + d.integer(-reach, reach)), *operands(d, exponent)

    def cancel(d: Draw) -> Bits:
        others, value = drawn(d, d.integer(d.fmt.emin, d.fmt.emax))
        return d.near(d.encode(-value), d.fmt.precision), *others

    def ties(d: Draw) -> Bits:
        # A term of few bits whose last one is about half the last place of a.
        exponent = d.integer(d.fmt.emin, d.fmt.emax - d.fmt.precision)
        others = tuple(coarse(d.fmt, bits, d.integer(0, 2)) for bits in operands(d, exponent))
        return d.value(exponent + d.fmt.precision - d.integer(0, 3)), *others

    def halfway(d: Draw) -> Bits:
        # As ties, the term moved off the midpoint by as little as its own last place.
        exponent = d.integer(d.fmt.emin, d.fmt.emax - d.fmt.precision)
        first, *others = (coarse(d.fmt, bits, d.integer(0, 1)) for bits in operands(d, exponent))
        return d.value(exponent + d.fmt.precision - d.integer(0, 2)), d.near(first, 3), *others

    def overflow(d: Draw) -> Bits:
        others, value = drawn(d, d.fmt.emax - d.integer(1, d.fmt.precision))
        limit = float(d.fmt.max_finite)
        return d.near(d.encode((limit - value.abs()) * _sign(value)), 4), *others

    def last_binade(d: Draw) -> Bits:
        return d.value(d.fmt.emax), *operands(d, d.fmt.emax - d.integer(1, d.fmt.precision))

    def subnormal(d: Draw) -> Bits:
        low, high = d.fmt.emin - d.fmt.mantissa_bits, d.fmt.emin
        return d.value(d.integer(low, high)), *operands(d, d.integer(low - 1, high))

    named = {"aligned": aligned, "cancel": cancel, "ties": ties, "halfway": halfway}
    named |= {"overflow": overflow, "last-binade": last_binade, "subnormal": subnormal}
    return tuple(Part(name, weight, draw) for name, draw in named.items())


def factors(d: Draw, total: Ints) -> Bits:
    """Two values whose exponents add up to `total`, in the normal range where that is possible."""
    least, most = (total - d.fmt.emax).clamp(min=d.fmt.emin), (total - d.fmt.emin).clamp(max=d.fmt.emax)
    first = d.integer(least, most.maximum(least))
    return d.value(first), d.value(total - first)


def fraction(d: Draw, total: Ints) -> Bits:
    """A dividend and a divisor whose exponents differ by `total`, in the normal range where that is possible."""
    least, most = (d.fmt.emin - total).clamp(min=d.fmt.emin), (d.fmt.emax - total).clamp(max=d.fmt.emax)
    divisor = d.integer(least, most.maximum(least))
    return d.value(total + divisor), d.value(divisor)


def quotient_near_midpoint(d: Draw, exponent: Ints, divisor_exponent: Ints) -> Bits:
    """Patterns (a, b) whose quotient is the closest to a midpoint of two neighbours that any quotient can be.

    a * 2^p = b * m + r for p-bit integers a and b, an odd (p+1)-bit m and a small odd r, so a/b = m/2^p + r/(b 2^p).
    m = -r/b modulo 2^p, by Newton's iteration for the inverse (all modulo 2^p; int64 products wrap). Where a
    would need p+1 bits and is odd, its last bit is lost and the quotient is an ordinary one.
    """
    p, unit = d.fmt.precision, 1 << d.fmt.mantissa_bits
    b = d.significand() | unit | 1
    r = d.spread(2) | 1
    inverse = b * 3 ^ 2  # correct modulo 2^5; every step doubles the number of correct bits
    for _ in range(4):
        inverse = inverse * (2 - b * inverse)
    m = (-r * inverse & ((1 << p) - 1)) | 1 << p
    a = _shifted_product(b, m, r, p)
    longer = a >> p
    a = (a >> longer) & (unit - 1)
    shift = longer  # a p+1 bits long is worth twice as much
    return (
        d.signed(pack(d.fmt, exponent + divisor_exponent + shift, a)),
        d.signed(pack(d.fmt, divisor_exponent, b & (unit - 1))),
    )


def _shifted_product(b: Ints, m: Ints, r: Ints, p: int) -> Ints:
    """(b*m + r) >> p for b < 2^53, m < 2^54, in limbs of 27 bits so that nothing exceeds int64."""
    limb = (1 << 27) - 1
    b0, b1, m0, m1 = b & limb, b >> 27, m & limb, m >> 27
    low = b0 * m0 + r
    middle = b1 * m0 + b0 * m1 + (low >> 27)
    if p >= 27:
        return (middle >> (p - 27)) + (b1 * m1 << (54 - p))
    return b * m + r >> p


def _cross(listed: Sequence[int], arity: int) -> Callable[[Draw], Bits]:
    def draw(d: Draw) -> Bits:
        import torch

        table = torch.tensor([as_int64(d.fmt, p) for p in listed], dtype=torch.int64, device=d.index.device)
        return tuple(table[d.index // len(listed) ** k % len(listed)] for k in reversed(range(arity)))

    return draw


def _sign(reals: Reals) -> Reals:
    """+-1.0; a zero counts as positive."""
    import torch

    return (reals >= 0).to(torch.float64) * 2.0 - 1.0
