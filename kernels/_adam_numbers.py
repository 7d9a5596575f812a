"""Number systems for recurrences of many steps on many elements: `Certified`, a float64 midpoint whose error is one
number times a tensor, and `Balls`, where errors feed back; `BallsDD` and `Multiprecision`, for what they leave open.
The recurrences themselves are oracles.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from verify.facts.formats import FORMATS
from verify.inputs.draws import mix
from verify.numbers import enclosure as en
from verify.numbers.ball import GROW, LOOSE, TINY, Ball, Ball64, BallDD, U, filled
from verify.numbers.functions import FUNCTIONS
from verify.numbers.mp import EXACT, INF, NAN, MpSystem, MpValue
from verify.numbers.operators import Enclosing

Tensor = torch.Tensor
DOUBLE = FORMATS["float64"]
HOST = torch.empty(0).device

# ---------------------------------------------------------------- float64


@dataclass(frozen=True, eq=False)
class Near(Enclosing):
    """|true - mid| <= rho size + tau elementwise, where |mid| <= size. `size` is mid itself where the value is known
    to be positive or zero; `floor` is a lower bound of such a mid."""

    n: Certified
    mid: Tensor
    size: Tensor
    rho: float
    tau: float = 0.0
    floor: float = 0.0

    @property
    def positive(self) -> bool:
        return self.size is self.mid

    def __neg__(self) -> Near:
        return Near(self.n, -self.mid, self.size, self.rho, self.tau)

    def radius(self) -> Tensor:
        """The error, rounded outward; at least 2^-52 |mid| where it is not 0 (`verify.numbers.decide.Enclosure`)."""
        if not self.rho and not self.tau:
            return torch.zeros_like(self.mid)
        rad = self.size * ((self.rho + 2 * U) * GROW)
        return (rad + self.tau) * GROW if self.tau else rad

    def scale(self) -> Tensor:
        """A lower bound of the sum of absolute terms, which `size` is but for the same roundings."""
        return (self.size * ((1 - self.rho) / GROW**2) - self.tau).clamp(min=0.0)


class Certified:
    """Balls in float64 of which only the midpoint and a sum of absolute values are tensors.

    Each operation computes size by the operation of mid on sizes. Rounding is monotone, so that |mid| <= size holds
    in floating point too, and an operation adds at most U size to the error: a few passes over memory a step, where a
    tensor for the radius would take several times as many.

    root: relative error bound of the device's float64 square root in units of 2^-53. tiny: absolute error of an
    operation that may underflow, 0 where none can (see `underflow`). Not for recurrences in which errors feed back,
    as that of a parameter under L2 decay does: one number for all elements would double with every step.
    """

    def __init__(self, device: Any, root: float, tiny: float = 0.0) -> None:
        self.device, self.tiny = torch.device(device), tiny
        self.root = host_root() if self.device == HOST else root

    def input(self, tensor: Tensor, positive: bool = False) -> Near:
        mid = tensor.to(torch.float64)
        return Near(self, mid, mid if positive else mid.abs(), 0.0)

    def const(self, exact: Fraction | Near) -> Near:
        if isinstance(exact, Near):
            return exact
        near = float(exact)
        rho = 0.0 if Fraction(near) == exact else U * GROW
        mid = torch.tensor(near, dtype=torch.float64, device=self.device)
        return Near(self, mid, mid if near >= 0 else mid.abs(), rho, floor=max(near, 0.0))

    def between(self, lo: Fraction, hi: Fraction) -> Near:
        """A positive constant."""
        near = float((lo + hi) / 2)
        rho = float(max(hi - Fraction(near), Fraction(near) - lo) / lo) * GROW
        mid = torch.tensor(near, dtype=torch.float64, device=self.device)
        return Near(self, mid, mid, rho, floor=near)

    def add(self, a: Near, b: Near) -> Near:
        mid = a.mid + b.mid
        both = a.positive and b.positive
        size = mid if both else a.size + b.size
        floor = max(a.floor, b.floor) if both else 0.0
        return Near(self, mid, size, (max(a.rho, b.rho) + U) * GROW, (a.tau + b.tau) * GROW, floor)

    def mul(self, a: Near, b: Near) -> Near:
        """Where an absolute error counts at all, by a constant."""
        mid = a.mid * b.mid
        exact_square = a.mid is b.mid and not a.rho and not a.tau
        size = mid if exact_square or (a.positive and b.positive) else a.size * b.size
        tau = self.tiny
        if a.tau or b.tau:
            a, b = (a, b) if a.mid.dim() == 0 else (b, a)
            if a.mid.dim() or a.tau:
                raise ValueError("product of two numbers with an absolute error; expected a constant factor")
            tau += b.tau * float(a.size) * (1 + a.rho) * GROW
        return Near(self, mid, size, (a.rho + b.rho + a.rho * b.rho + U) * GROW, tau)

    def div(self, a: Near, b: Near) -> Near:
        """By a positive number; its absolute error is a relative one where it has a floor."""
        if not b.positive:
            raise ValueError("division by a number of unknown sign")
        mid = a.mid / b.mid
        size = mid if a.positive else a.size / b.mid
        below = b.rho + (b.tau / b.floor if b.tau and b.floor else math.inf if b.tau else 0.0)
        if below >= 0.5:
            return Near(self, mid, size, math.inf, math.inf)
        rho = ((a.rho + below) / (1 - below) + U) * GROW
        tau = (a.tau / (b.floor * (1 - below)) if a.tau else 0.0) * GROW + self.tiny
        return Near(self, mid, size, rho, tau)

    def sqrt(self, a: Near) -> Near:
        """Of a positive number: |sqrt(1 + e) - 1| <= |e|/2 (1 + |e|) for |e| <= 1/2, |sqrt(x + e) - sqrt(x)| <=
        sqrt(e)."""
        if not a.positive:
            raise ValueError("square root of a number of unknown sign")
        mid = root(a.mid)
        rho = (a.rho / 2 * (1 + a.rho) + self.root * U) * GROW if a.rho <= 0.5 else math.inf
        return Near(self, mid, mid, rho, math.sqrt(a.tau) * GROW)

    def max(self, a: Near, b: Near) -> Near:
        """Of positive numbers. NaN propagates."""
        if not (a.positive and b.positive):
            raise ValueError("maximum of numbers of unknown sign")
        mid = torch.maximum(a.mid, b.mid)
        return Near(self, mid, mid, max(a.rho, b.rho), max(a.tau, b.tau), max(a.floor, b.floor))


def root(t: Tensor) -> Tensor:
    """Square roots in float64; the host's are numpy's, a processor's instruction: torch's (MKL) starts threads of its
    own for a few thousand elements, and waiting for them takes longer than the roots."""
    return torch.from_numpy(np.sqrt(t.numpy())) if t.device == HOST else torch.sqrt(t)


@functools.cache
def host_root() -> float:
    """The error of numpy's float64 square root in units of 2^-53, at most, on numbers of all exponents.

    Raises ArithmeticError where it is not within an ULP.
    """
    words = [mix(k) << 20 | mix(k ^ 0x5BD1E995) >> 12 for k in range(2048)]
    points = [math.ldexp(1 + word * 2.0**-52, k % 2000 - 1000) for k, word in enumerate(words)]
    for x, y in zip(points, np.sqrt(np.array(points)).tolist(), strict=True):
        low, high = Fraction(y) * (1 - Fraction(2 * U)), Fraction(y) * (1 + Fraction(2 * U))
        if not low * low <= Fraction(x) <= high * high:
            raise ArithmeticError(f"numpy.sqrt({x!r}) = {y!r} is more than an ULP away")
    return 2.0 * GROW


def underflow(steps: int, scalars: Mapping[str, float]) -> float:
    """`Certified.tiny` for a recurrence of so many steps on float32 or bfloat16 inputs (2^-149 to 2^128, or zero).

    Terms decay by a beta a step. Where the smallest term stays above 2^-900, a sum of terms is a multiple of 2^-953,
    and products with the other scalars stay normal too.
    """
    sizes = {name: abs(math.log2(value)) * 1.001 for name, value in scalars.items() if value}
    betas = [sizes.pop(name) for name in ("beta1", "beta2") if name in sizes]
    return 0.0 if max(betas, default=0.0) * steps + sum(sizes.values()) + 2 * 149 + 120 <= 900 else TINY


def _larger(n: Any, a: Ball, b: Ball, difference: Tensor) -> Ball:
    """max(a, b), given a - b: |max(a, b) - max(a', b')| <= max(|a - a'|, |b - b'|). NaN propagates. A difference
    that is NaN is one of infinities."""
    first = ((difference >= 0) | a.mid.isnan() | (difference.isnan() & (a.mid >= b.mid))) & ~b.mid.isnan()
    rad = torch.maximum(filled(a.radius, difference), filled(b.radius, difference))
    larger: Ball = n.where(first, a, b)
    return replace(larger, rad=rad, source=False)


class Balls(Ball64):
    """`Ball64` with products and square roots of exact zeros, and the maximum of computed numbers."""

    carries = False  # it would tell nothing of averages of inexact numbers

    def __init__(self, device: Any, root: float) -> None:
        super().__init__(device, {})
        self.root = host_root() if torch.device(device) == HOST else root

    def between(self, lo: Fraction, hi: Fraction) -> Ball:
        near = float((lo + hi) / 2)
        rad = float(max(hi - Fraction(near), Fraction(near) - lo)) * GROW
        mid, radius = (torch.tensor(part, dtype=torch.float64, device=self.device) for part in (near, rad))
        return Ball(self, mid, radius)

    def mul(self, a: Ball, b: Ball) -> Ball:
        """Exact where a factor is exactly zero and the other finite; elsewhere it may underflow."""
        product = super().mul(a, b)
        zero = torch.zeros((), dtype=torch.bool, device=self.device)
        for one, other in ((a, b), (b, a)):
            zero = zero | ((one.mid == 0) & (filled(one.radius, one.mid) == 0) & other.mid.isfinite())
        return replace(product, rad=torch.where(zero, 0.0, filled(product.radius, product.mid)))

    def div(self, a: Ball, b: Ball) -> Ball:
        """Exact where the dividend is exactly zero and the divisor is not."""
        quotient = super().div(a, b)
        rad = filled(quotient.radius, quotient.mid)
        zero = (a.mid == 0) & (filled(a.radius, a.mid) == 0) & rad.isfinite()
        return replace(quotient, rad=torch.where(zero, 0.0, rad))

    def sqrt(self, a: Ball) -> Ball:
        """|sqrt(x) - sqrt(y)| <= |x - y| / sqrt(x) for x, y >= 0."""
        mid, rad = root(a.mid.clamp(min=0.0)), filled(a.radius, a.mid)
        spread = torch.where(rad > 0, rad / mid * GROW, 0.0)
        own = torch.where(rad < a.mid, mid * (self.root * U) + spread, torch.nan)
        zero = (a.mid == 0) & (rad == 0)
        return Ball(self, mid, torch.where(zero, 0.0, own))

    def max(self, a: Any, b: Any) -> Ball:
        x, y = self.const(a), self.const(b)
        return _larger(self, x, y, x.mid - y.mid)


class BallsDD(BallDD):
    """Double-double, with constants to 106 bits and the maximum of computed numbers."""

    def const(self, value: Any) -> Ball:
        if isinstance(value, Ball):
            return value
        exact = Fraction(value)
        mid = float(exact)
        tail = float(exact - Fraction(mid))
        return self._constant(mid, tail, abs(float(exact - Fraction(mid) - Fraction(tail))))

    def between(self, lo: Fraction, hi: Fraction) -> Ball:
        centre = (lo + hi) / 2
        mid = float(centre)
        tail = float(centre - Fraction(mid))
        near = Fraction(mid) + Fraction(tail)
        return self._constant(mid, tail, float(max(hi - near, near - lo)))

    def _constant(self, mid: float, tail: float, rad: float) -> Ball:
        parts = [torch.tensor(part, dtype=torch.float64, device=self.device) for part in (mid, rad * GROW, tail)]
        return Ball(self, parts[0], parts[1], LOOSE, tail=parts[2])

    def max(self, a: Any, b: Any) -> Ball:
        x, y = self.const(a), self.const(b)
        return _larger(self, x, y, self.add(x, -y).mid)


def radius(value: Near | Ball) -> Tensor:
    """The error of a value of `Certified` or `Balls`, as a tensor shaped as its midpoint."""
    if isinstance(value, Near):
        return value.radius()
    rad = filled(value.radius, value.mid)
    return torch.where(rad == 0, 0.0, rad * GROW + value.mid.abs() * (2 * U))


class Multiprecision(MpSystem):
    """`MpSystem` that keeps rationals exact only while they are short: a recurrence lengthens them step by step."""

    #: A sum that a format holds, or a midpoint of one, is shorter than this for many steps.
    EXACT_BITS = 2048

    def rational(self, exact: Fraction, negative: bool = False) -> MpValue:
        if exact and exact.numerator.bit_length() + exact.denominator.bit_length() > self.EXACT_BITS:
            return self.interval(en.inflate(en.from_fraction(exact, self.precision + 2)[0], self.precision))
        return MpValue(self, EXACT, exact, negative=exact < 0 if exact else negative)

    def sqrt(self, x: Any) -> MpValue:
        """Of NaN and +inf too, themselves (IEEE 754-2019, 6.1 and 6.2)."""
        value = self.value(x)
        special = value.kind == NAN or (value.kind == INF and not value.negative)
        return value if special else self.apply(FUNCTIONS["sqrt"], value)
