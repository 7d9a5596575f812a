"""Error-free transformations and roundings of float64 tensors, of which the number systems are made.

`verify.numbers.primitives` says whether a device computes them.
"""

from __future__ import annotations

import torch

from verify.facts.formats import FORMATS, Format

Tensor = torch.Tensor
DOUBLE = FORMATS["float64"]
SPLIT = 2.0**27 + 1.0


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """s + e == a + b exactly, s = RN(a + b) (Knuth, TAOCP 2, 4.2.2 theorem B)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_prod(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """p + e == a * b exactly, p = RN(a b), where nothing over- or underflows (Dekker 1971)."""
    p = a * b
    ca, cb = SPLIT * a, SPLIT * b
    ah, bh = ca - (ca - a), cb - (cb - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent for int64 exponents of normal float64."""
    return ((exponent + 1023) << 52).view(torch.float64)


def round_to(t: Tensor, fmt: Format) -> Tensor:
    """RN(t) in `fmt`, ties to even, as a float64 tensor (IEEE 754-2019, 4.3.1).

    t: float64, any shape. Overflow gives infinities; the signs of zeros, infinities and of values
    that round to zero are kept. `fmt` is float64, which gives t itself, or contained in float32.
    """
    if fmt == DOUBLE:
        return t
    exponent = ((t.view(torch.int64) >> 52) & 0x7FF) - 1023
    # Beyond emax + 1 the quantum no longer matters: the result overflows.
    quantum = exponent.clamp(fmt.emin, fmt.emax + 1) - fmt.mantissa_bits
    # In [2^(quantum+52), 2^(quantum+53)) floats are 2^quantum apart, and 1.5 2^(quantum+52) is an even multiple.
    magic = 1.5 * power_of_two(quantum + 52)
    rounded = (t + magic) - magic
    return torch.where(rounded.abs() >= 2.0 ** (fmt.emax + 1), torch.inf, rounded).copysign(t)


def round_to_odd(high: Tensor, low: Tensor) -> Tensor:
    """The exact sum high + low, rounded to odd in float64, given high = RN(high + low).

    An inexact sum becomes the one of its two float64 neighbours whose last bit is set, so that a
    later rounding to p <= 51 bits sees on which side of a midpoint it lies (Boldo & Melquiond 2008).
    A NaN `low`, which TwoSum gives for infinities, counts as exact.
    """
    bits = high.view(torch.int64)
    inexact = (low > 0) | (low < 0)
    outward = torch.where((low > 0) == (high > 0), 1, -1)
    return torch.where(inexact & ((bits & 1) == 0), bits + outward, bits).view(torch.float64)
