"""The powers of two that numbers are multiples of, and what they tell of sums of products."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from verify.facts.formats import Format
from verify.numbers.cpp import on_host

Tensor = torch.Tensor
_FRACTION = (1 << 52) - 1  # of a float64's bits


def last_bit(t: Tensor, dim: int | None = None) -> Tensor:
    """The exponent of the last bit of each float64: it is a multiple of 2^that; inf for zeros, -inf for no number. dim:
    the least along it, which stays."""
    bit = _bit(t)
    return _exponent(bit if dim is None else bit.amin(dim, keepdim=True))


@on_host
def _bit(t: Tensor) -> Tensor:
    """The last bit of each as a number; inf for zeros, NaN for no number."""
    raw = t.contiguous().view(torch.int64)
    others = (raw & (raw - 1)).view(torch.float64)  # without the last bit, where that is not the implicit one
    bit = torch.where(raw & _FRACTION == 0, t, t - others).abs()
    return torch.where(bit == 0, math.inf, bit) + (t - t)


@on_host
def _exponent(bit: Tensor) -> Tensor:
    """The exponents of powers of two; inf for inf, -inf for NaN."""
    small = bit < 2.0**-1000  # with the subnormal ones
    raw = torch.where(small, bit * 2.0**100, bit).contiguous().view(torch.int64)
    found = (raw >> 52).to(torch.float64) - 1023 - torch.where(small, 100.0, 0.0)
    return torch.where(bit.isfinite(), found, torch.where(bit.isnan(), -math.inf, math.inf))


def last_bits(x: Tensor, y: Tensor) -> Tensor:
    """The same of all products of each sum in (..., m, k) times (..., k, n), k at least 1."""
    return last_bit(x, -1) + last_bit(y, -2)


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


@dataclass(frozen=True)
class Extent:
    """What is certain of a number: it is 0, or its magnitude lies in [low, high], and it is a multiple of 2^grid.

    A number system for expressions of +, -, *, / and abs on finite numbers, whose results stand for those of all
    operands; grid is None where they are multiples of no power. Of a quotient by zero nothing is said. Operators raise
    TypeError for what is no Extent, int or Fraction, ArithmeticError where nothing keeps the result away from zero.
    """

    low: Fraction
    high: Fraction
    grid: int | None

    @classmethod
    def of(cls, value: Fraction | int) -> Extent:
        """One number. Raises ArithmeticError for 0."""
        exact = Fraction(value)
        if not exact:
            raise ArithmeticError("nothing keeps 0 away from zero")
        last, units = exact.numerator & -exact.numerator, exact.denominator
        grid = None if units & (units - 1) else last.bit_length() - units.bit_length()
        return cls(abs(exact), abs(exact), grid)

    @classmethod
    def every(cls, fmt: Format) -> Extent:
        """Every finite number of a format."""
        return cls(fmt.smallest_subnormal, fmt.max_finite, fmt.emin - fmt.mantissa_bits)

    def within(self, low: Fraction, high: Fraction) -> bool:
        return low <= self.low and self.high <= high

    def __abs__(self) -> Extent:
        return self

    def __neg__(self) -> Extent:
        return self

    def __add__(self, other: Any) -> Extent:
        b = _extent(other)
        if self.grid is None or b.grid is None:
            raise ArithmeticError("a sum of numbers that are multiples of no power of two may be near zero")
        grid = min(self.grid, b.grid)
        return Extent(Fraction(2) ** grid, self.high + b.high, grid)

    def __mul__(self, other: Any) -> Extent:
        b = _extent(other)
        grid = None if self.grid is None or b.grid is None else self.grid + b.grid
        return Extent(self.low * b.low, self.high * b.high, grid)

    def __truediv__(self, other: Any) -> Extent:
        b = _extent(other)
        return Extent(self.low / b.high, self.high / b.low, None)

    def __rtruediv__(self, other: Any) -> Extent:
        return _extent(other) / self

    __sub__ = __radd__ = __rsub__ = __add__
    __rmul__ = __mul__


def _extent(value: Any) -> Extent:
    if isinstance(value, Extent):
        return value
    if not isinstance(value, int | Fraction):
        raise TypeError(f"{type(value).__name__} in an expression of extents")
    return Extent.of(value)
