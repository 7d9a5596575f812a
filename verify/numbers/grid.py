"""The powers of two that numbers are multiples of, and what they tell of sums of products."""

from __future__ import annotations

import math

import torch

Tensor = torch.Tensor


def last_bit(t: Tensor) -> Tensor:
    """The exponent of the last bit of each float64: it is a multiple of 2^that; inf for zeros, -inf for no number."""
    raw = t.contiguous().view(torch.int64)
    exponent = (raw >> 52) & 0x7FF
    significand = (raw & ((1 << 52) - 1)) | ((exponent > 0).to(torch.int64) << 52)
    lowest = (significand & -significand).to(torch.float64)
    place = (lowest.view(torch.int64) >> 52) - 1023
    found = (place + exponent.clamp(min=1) - 1075).to(torch.float64)
    found = torch.where(significand == 0, math.inf, found)
    return torch.where(t.isfinite(), found, -math.inf)


def last_bits(x: Tensor, y: Tensor) -> Tensor:
    """The same of all products of each sum in (..., m, k) times (..., k, n), k at least 1."""
    return last_bit(x).amin(-1, keepdim=True) + last_bit(y).amin(-2, keepdim=True)


def below(size: Tensor, finest: Tensor, precision: int) -> Tensor:
    """size < 2^precision 2^finest. A float64 sum of magnitudes is exact below 2^53 units, and not below them where the
    true sum is beyond."""
    return (size == 0) | (size < torch.exp2((finest + precision).clamp(-1100.0, 1023.0)))


def largest_products(x: Tensor, y: Tensor) -> Tensor:
    """At least the largest 2^(e(a) + e(b)) of each sum of products, e the exponent of a number: of finite float64
    (m, k) and (k, n), none negative. It is that, unless all products are far below those of the largest factors; 0
    where all are 0.

    One product of matrices gives it: the sum of at most k powers 2^(p e), 2^p > 2k, lies between 2^(p max) and
    2^(p max + p).
    """
    if not x.shape[-1]:
        return x @ y
    p = math.ceil(math.log2(x.shape[-1])) + 2
    powers, tops = zip(_powers(x, -1, p), _powers(y, -2, p), strict=True)
    found = powers[0] @ powers[1]
    least = -(1022 // p)  # what is smaller may be lost
    exponent = torch.div(torch.frexp(found).exponent - 1, p, rounding_mode="floor")
    exponent = torch.where(found > 0, exponent, least).clamp(min=least) + tops[0] + tops[1]
    some = (found > 0) | ((x > 0).to(torch.float64) @ (y > 0).to(torch.float64) > 0)
    return torch.where(some, two_to(exponent.clamp(min=-1022)), 0.0)


def _powers(t: Tensor, dim: int, p: int) -> tuple[Tensor, Tensor]:
    """2^(p (e - top)) of each number, and the largest exponent, top, of each sum."""
    exponent = torch.where(t > 0, torch.frexp(t).exponent - 1, -(1 << 20))
    top = exponent.amax(dim, keepdim=True)
    return torch.where(t > 0, two_to(p * (exponent - top)), 0.0), top


def two_to(exponent: Tensor) -> Tensor:
    """2^exponent exactly for integers from -1022 to 1023; 0 below."""
    bits: Tensor = (exponent.to(torch.int64).clamp(min=-1023) + 1023) << 52
    return bits.view(torch.float64)
