"""Matrices of balls on tensors: products, row sums and what softmax needs of them, with proven radii.

`RowBalls` is float64, with radii that a whole row may share, and suits many millions of elements; `DDMatrices` is
double-double for the few rows that it leaves open. Multiprecision matrices are in `verify.numbers.fixed`.

A number system of matrices offers, beside the elementwise protocol of `verify.numbers`: `matmul`; `matmul_sizes`, which
gives a product and a function for that of the magnitudes; `transpose`; `sum` (last axis, kept with length 1); `shift`
(an exact number near the maximum of each row); `masked` (zero elsewhere); `input` (tensor of exact values) and `index`
(tensor of integers). A mask is a boolean tensor, or None for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch

from verify.facts.formats import FORMATS
from verify.numbers import Undecidable
from verify.numbers.arrays import BallDDArrays, gamma
from verify.numbers.ball import GROW, LOOSE, TINY, Ball, Ball64, U, filled
from verify.numbers.functions import LIBRARY
from verify.numbers.grid import below, last_bit, last_bits
from verify.numbers.operators import Enclosing
from verify.numbers.transforms import two_sum

Tensor = torch.Tensor
Radius = Tensor | float

#: Columns that a product sums before it adds partial sums, which keeps gamma small for long rows.
CHUNK = 256
#: Slices of a factor in double-double: five of 20 bits and more hold its 107.
SLICES = 6
#: Where the exponent of a double is.
_EXPONENT = 0x7FF << 52


@dataclass(frozen=True, eq=False)
class RowBall(Enclosing):
    """|true - mid| <= relative |mid| + absolute elementwise.

    `relative` and `absolute` are floats or tensors that broadcast against `mid`: of a column's shape where a row shares
    them. `top` bounds |mid| in the same way, where a bound is known without looking at every element.
    `positive`: no element of mid is negative. `width`: significant bits of each element, where it is exact.
    """

    n: RowBalls
    mid: Tensor
    relative: Radius = 0.0
    absolute: Radius = 0.0
    top: Radius | None = None
    positive: bool = False
    width: int = 53

    @property
    def point(self) -> bool:
        """Whether it is exact, as seen without looking at a tensor."""
        return (
            isinstance(self.relative, float) and isinstance(self.absolute, float) and not self.relative + self.absolute
        )

    @property
    def size(self) -> Radius:
        """Upper bound of |mid| that broadcasts against it."""
        return self.mid.abs() if self.top is None else self.top

    @property
    def error(self) -> Radius:
        """Upper bound of |true - mid|, by `size`."""
        if self.point:
            return 0.0
        return _affine(self.size, self.relative, self.absolute) * GROW

    @cached_property
    def radius(self) -> Tensor:
        """Radius of every element."""
        found = _affine(self.mid.abs(), self.relative, self.absolute) * GROW
        assert isinstance(found, Tensor)
        return found.expand_as(self.mid)

    @cached_property
    def as_divisor(self) -> tuple[Tensor, Tensor, Tensor]:
        """A lower bound of |true|, the radius over it (NaN where zero is not excluded), and the relative radius of an
        exact number's quotient by it."""
        room = self.mid.abs() * (1 - 2.0**-50) - self.radius
        relative = torch.where(room > 0, self.radius / room * GROW, torch.nan)
        return room, relative, (relative * (1 + U) + U) * GROW

    def at(self, k: int) -> RowBall:
        """Matrix `k` of a stack."""
        return RowBall(self.n, self.mid[k], 0.0, self.radius[k])

    def __neg__(self) -> RowBall:
        return replace(self, mid=-self.mid, positive=False)

    def __abs__(self) -> RowBall:
        return self if self.positive else replace(self, mid=self.mid.abs(), positive=True)


class RowBalls:
    """The float64 system. `bounds`: errors of the device's library functions in units of 2^-53 |f|, as for `Ball64`.
    `points`: elements of a product whose sums nothing rounds are points among others that are none, which takes one
    product of matrices more."""

    def __init__(self, device: Any, bounds: Mapping[str, float] = LIBRARY, *, points: bool = False) -> None:
        self.device, self.bounds, self.points = device, bounds, points
        self._constants: dict[Fraction, RowBall] = {}

    def input(self, tensor: Tensor) -> RowBall:
        """Exact values of any format."""
        fmt = FORMATS.get(str(tensor.dtype).removeprefix("torch."))
        return RowBall(self, tensor.to(self.device, torch.float64), width=fmt.precision if fmt else 53)

    def index(self, tensor: Tensor) -> RowBall:
        """Exact integers of magnitude below 2^53."""
        return self.input(tensor)

    def const(self, value: Any) -> RowBall:
        """A rational constant, rounded to float64 with a relative error of at most one unit roundoff."""
        if isinstance(value, RowBall):
            return value
        exact = Fraction(value)
        if exact not in self._constants:  # it waits for the device
            mid = torch.tensor(float(exact), dtype=torch.float64, device=self.device)
            own = 0.0 if Fraction(float(exact)) == exact else U * GROW
            self._constants[exact] = RowBall(self, mid, own, top=abs(float(exact)))
        return self._constants[exact]

    def add(self, a: RowBall, b: RowBall) -> RowBall:
        mid = a.mid + b.mid
        top = None if a.top is None or b.top is None else (a.top + b.top) * GROW
        return RowBall(self, mid, U * GROW, _plus(a.error, b.error), top)

    def mul(self, a: RowBall, b: RowBall) -> RowBall:
        if _power_of_two(a):
            a, b = b, a
        mid = a.mid * b.mid
        top = None if a.top is None or b.top is None else a.top * b.top * GROW
        if _power_of_two(b):
            moved = TINY if _zero(a.absolute) else a.absolute * b.size * GROW + TINY
            return RowBall(self, mid, a.relative, moved, top, a.positive and b.positive)
        relative = (a.relative + b.relative + a.relative * b.relative * GROW + U * (1 + a.relative + b.relative)) * GROW
        absolute: Radius = TINY
        if not _zero(a.absolute):
            absolute = absolute + a.absolute * (b.size * (1 + b.relative)) * GROW
        if not _zero(b.absolute):
            absolute = absolute + b.absolute * (a.size * (1 + a.relative) + a.absolute) * GROW
        return RowBall(self, mid, relative, absolute, top, a.positive and b.positive)

    def div(self, a: RowBall, b: RowBall) -> RowBall:
        mid = a.mid / b.mid
        if b.point:
            return RowBall(self, mid, a.relative + (U + a.relative * U) * GROW, a.absolute / b.mid.abs() * GROW + TINY)
        room, rel_b, relative = b.as_divisor
        if not _zero(a.relative):
            relative = (a.relative + rel_b + a.relative * rel_b + U * (1 + a.relative + rel_b)) * GROW
        absolute: Radius = TINY if _zero(a.absolute) else a.absolute / room * GROW + TINY
        return RowBall(self, mid, relative, absolute, positive=a.positive and b.positive)

    def exp(self, a: RowBall) -> RowBall:
        """Relative radius e^d - 1 <= d + d^2 for an argument known to within d <= 1."""
        d = torch.as_tensor(a.error, dtype=torch.float64, device=a.mid.device)
        own = self._library("exp")
        relative = torch.where(d <= 1, (d * (d + (1 + 2 * own)) + own) * GROW, torch.nan)
        return RowBall(self, a.mid.exp(), relative, TINY, positive=True)

    def tanh(self, a: RowBall) -> RowBall:
        return RowBall(self, a.mid.tanh(), self._library("tanh") * GROW, _plus(a.error, TINY), top=1.0)

    def log(self, a: RowBall) -> RowBall:
        room = a.mid - a.radius
        spread = torch.where(room > 0, a.radius / room * GROW, torch.nan)
        return RowBall(self, a.mid.log(), self._library("log") * GROW, spread + TINY)

    def sqrt(self, a: RowBall) -> RowBall:
        mid = a.mid.sqrt()
        spread = torch.where(a.radius < a.mid, a.radius / mid * GROW, torch.nan)
        return RowBall(self, mid, self._library("sqrt") * GROW, spread)

    def where(self, predicate: Tensor, a: Any, b: Any) -> RowBall:
        x, y = self.const(a), self.const(b)
        mid = torch.where(predicate, x.mid, y.mid)
        if x.point and y.point:
            return RowBall(self, mid)
        return RowBall(self, mid, 0.0, torch.where(predicate, x.radius, y.radius))

    def masked(self, mask: Tensor | None, a: RowBall) -> RowBall:
        """`a` where the mask holds, else exactly 0 (its radius keeps the absolute part of the row)."""
        return a if mask is None else replace(a, mid=torch.where(mask, a.mid, 0.0))

    def shift(self, a: RowBall, mask: Tensor | None) -> RowBall:
        """The largest midpoint of each row under the mask as an exact number; 0 where nothing is left."""
        seen = a.mid if mask is None else torch.where(mask, a.mid, -torch.inf)
        if seen.shape[-1] == 1 and mask is None:
            return RowBall(self, seen)
        top = seen.amax(-1, keepdim=True)
        top = torch.where(top == -torch.inf, 0.0, top)
        return RowBall(self, top, top=top.abs())

    def transpose(self, a: RowBall) -> RowBall:
        def turn(t: Radius | None) -> Radius | None:
            return t.transpose(-1, -2) if isinstance(t, Tensor) and t.dim() > 1 else t

        relative, absolute = turn(a.relative), turn(a.absolute)
        assert relative is not None and absolute is not None
        return replace(a, mid=a.mid.transpose(-1, -2), relative=relative, absolute=absolute, top=turn(a.top))

    def sum(self, a: RowBall) -> RowBall:
        """Any order of summation: at most gamma(n - 1) of the sum of magnitudes (Higham 2002, section 4.2)."""
        width = a.mid.shape[-1]
        mid = _sum(a.mid)
        sizes = mid if a.positive else _sum(a.mid.abs())
        own = _gamma_of(width)
        if _row(a.relative):
            rounding = (own + a.relative * (1 + own)) * sizes
        else:
            rounding = own * sizes + _sum(a.mid.abs() * a.relative) * (1 + own)
        absolute = width * a.absolute if _row(a.absolute) else _sum(filled(a.absolute, a.mid))
        return RowBall(self, mid, 0.0, (rounding * GROW + absolute) * (1 + own) * GROW, positive=a.positive)

    def matmul(self, a: RowBall, b: RowBall) -> RowBall:
        """(..., m, k) x (..., k, n), `b` exact. Two exact factors are split, which makes the product nearly exact; not
        where neither has a number below 0, since nothing cancels there."""
        if not (a.point and b.point):
            return self.matmul_sizes(a, b)[0]
        if not (a.positive and b.positive):
            return self._product(a, b)
        mid, own = _chunked(a.mid, b.mid), _gamma_of(a.mid.shape[-1])
        return RowBall(self, mid, 0.0, (own * mid + a.mid.shape[-1] * TINY) * (1 + 4 * own) * GROW, positive=True)

    def matmul_sizes(self, a: RowBall, b: RowBall) -> tuple[RowBall, Callable[[], RowBall]]:
        """a b and |a| |b|, `b` exact."""
        if not b.point:
            raise Undecidable("the second factor of a matrix product must be exact")
        size = b.mid.abs()
        own = _gamma_of(a.mid.shape[-1])
        if a.positive and _row(a.relative):  # one product gives the value and the sum of magnitudes
            both = _chunked(a.mid, torch.cat([b.mid, size], -1))
            mid, sizes = both[..., : b.mid.shape[-1]], both[..., b.mid.shape[-1] :]
        else:
            mid, sizes = _chunked(a.mid, b.mid), _chunked(a.mid.abs(), size)
        if _row(a.relative):
            spread = (own + a.relative * (1 + own)) * sizes
        else:
            spread = own * sizes + _chunked(a.mid.abs() * a.relative, size) * (1 + own)
        if _row(a.absolute):
            absolute = a.absolute * size.sum(-2, keepdim=True)
        else:
            absolute = _chunked(filled(a.absolute, a.mid), size)
        radius = (spread + absolute + TINY) * (1 + 4 * own) * GROW
        return RowBall(self, mid, 0.0, radius), lambda: RowBall(self, sizes, 0.0, radius, positive=True)

    def _product(self, one: RowBall, other: RowBall) -> RowBall:
        """Two exact matrices: exact where the grid of all products allows it, else in two slices each.

        Products of t-bit slices have 2t bits: k of them sum exactly in any order while 2t + log2(k) <= 53. The rest is
        smaller by 2^-t (Ozaki, Ogita, Oishi, Rump, Numerical Algorithms 59, 2012). Radii by Cauchy-Schwarz. Slices
        are multiples of what their numbers are multiples of, and the magnitudes of all their products have at most 7
        times the sum of |a| |b|: where that needs at most 53 bits, nothing is rounded on the way.
        """
        a, b = one.mid, other.mid
        k = a.shape[-1]
        if not k:
            return RowBall(self, a @ b)
        if one.width + other.width + math.log2(k) <= 53 and _grid_fits(a, b, k):
            return RowBall(self, a @ b, top=_norms(a, b))
        bits = (53 - math.ceil(math.log2(max(k, 2)))) // 2
        high_a, low_a = _slice(a, -1, bits)
        high_b, low_b = _slice(b, -2, bits)
        absolute = gamma(2 * k) * (_norms(high_a, low_b) + _norms(low_a, b)) * GROW + 3 * k * TINY
        rest = torch.cat([high_a, low_a], -1) @ torch.cat([low_b, b], -2)
        del low_a, low_b
        mid = (high_a @ high_b).add_(rest)
        if not self.points:
            return RowBall(self, mid, U * GROW, absolute, top=_norms(a, b))
        last = last_bits(a, b)
        sure = below(a.abs() @ b.abs(), last, 50) & (last > -1000)
        return RowBall(self, mid, 0.0, torch.where(sure, 0.0, (absolute + U * mid.abs()) * GROW), top=_norms(a, b))

    def _library(self, name: str) -> float:
        return self.bounds[name] * U if name in self.bounds else math.nan


class DDMatrices(BallDDArrays):
    """The double-double system: what `BallDDArrays` has, on matrices, and tanh."""

    def index(self, tensor: Tensor) -> Ball:
        return self.input(tensor.to(self.device, torch.float64))

    def where(self, predicate: Any, a: Any, b: Any) -> Ball:
        x, y = self.const(a), self.const(b)

        def pick(left: Radius, right: Radius) -> Tensor:
            return torch.where(predicate, left, right).to(torch.float64)

        return Ball(self, pick(x.mid, y.mid), pick(x.radius, y.radius), tail=pick(x.tail, y.tail))

    def masked(self, mask: Tensor | None, a: Ball) -> Ball:
        return a if mask is None else self.where(mask, a, 0)

    def shift(self, a: Ball, mask: Tensor | None = None) -> Ball:
        """The largest midpoint of each row under the mask as an exact number; 0 where nothing is left."""
        seen = a.mid if mask is None else torch.where(mask, a.mid, -torch.inf)
        top = seen.amax(-1, keepdim=True)
        return self._exactly(torch.where(top == -torch.inf, 0.0, top), LOOSE)

    def transpose(self, a: Ball) -> Ball:
        return _reshaped(a, lambda t: t.transpose(-1, -2))

    def matmul(self, a: Ball, b: Ball) -> Ball:
        return matmul(self, a, b)

    def matmul_sizes(self, a: Ball, b: Ball) -> tuple[Ball, Callable[[], Ball]]:
        return self.matmul(a, b), lambda: self.matmul(abs(a), abs(b))

    def tanh(self, a: Ball) -> Ball:
        """1 - 2 / (exp(2a) + 1); beyond 40 it is within 2^-113 of 1."""
        spread = filled(a.radius, a.mid)
        far = (a.mid.abs() > 40.0) & (spread < 1)
        inside = self.where(far, 0, a)
        value = 1 - 2 / (self.exp(inside + inside) + 1)
        one = Ball(self, a.mid.sign(), torch.full_like(a.mid, 2.0**-113), tail=torch.zeros_like(a.mid))
        return self.where(far, one, value)


def matmul(n: Ball64, a: Ball, b: Ball) -> Ball:
    """(..., m, k) times (..., k, n) of balls in their system `n`.

    In float64 the midpoints err by at most gamma(k) |a| |b| (Higham 2002, (3.13)) whatever the order, with or without
    fused multiply-adds; in double-double they err by what its radius says.
    """
    if n.double:
        return _doubled(n, a, b)
    size_a, size_b = a.mid.abs(), b.mid.abs()
    radius = (size_a @ size_b) * gamma(a.mid.shape[-1]) + a.mid.shape[-1] * TINY
    for left, right in ((a.radius, size_b), (size_a, b.radius), (a.radius, b.radius)):
        if not (_zero(left) or _zero(right)):
            radius = radius + filled(left, a.mid) @ filled(right, b.mid)
    return Ball(n, a.mid @ b.mid, radius * (1 + gamma(2 * a.mid.shape[-1])) * GROW)


def _doubled(n: Any, a: Ball, b: Ball) -> Ball:
    """In double-double: products of slices are exact (see `RowBalls._product`) and are added in double-double.

    Each slice is smaller by 2^-t than the one before. Pairs of them below 2^(-SLICES t) of the largest are left to the
    radius, as is what the last slices leave, unless that is too little to be anything.
    """
    k = a.mid.shape[-1]
    if not k:
        return n.index(a.mid @ b.mid)  # type: ignore[no-any-return]
    bits = (53 - math.ceil(math.log2(max(k, 2)))) // 2
    left, rest_a = _slices(a, -1, bits)
    right, rest_b = _slices(b, -2, bits)
    total = n.index(torch.zeros_like(left[0] @ right[0]))
    for x, one in enumerate(left):
        for other in right[: SLICES - x]:
            total = n.add(total, Ball(n, one @ other, 0.0))
    top_a, top_b = a.mid.abs().amax(-1, keepdim=True), b.mid.abs().amax(-2, keepdim=True)
    radius = top_a * top_b * 0.0
    if len(left) + len(right) > SLICES + 1:
        radius = top_a * top_b * (k * SLICES**2 * 4 * 2.0 ** (-bits * SLICES))
    size_a, size_b = a.mid.abs() * (1 + 2.0**-50), b.mid.abs() * (1 + 2.0**-50)
    for one, other in ((rest_a, size_b + rest_b), (size_a, rest_b)):
        if bool((one != 0).any()) and bool((other != 0).any()):
            radius = radius + one @ other
    radius = (radius * (1 + 8 * k * U) + filled(total.radius, total.mid)) * GROW
    if all(isinstance(one.rad, float) and not bool(filled(one.tail, one.mid).any()) for one in (a, b)):
        # Sums that differ by less than what both are multiples of are the same.
        unit = torch.exp2(last_bits(a.mid, b.mid).clamp(min=-1100.0))
        some = (a.mid != 0).to(torch.float64) @ (b.mid != 0).to(torch.float64)
        known = (filled(total.radius, total.mid) == 0) & ((radius < unit) | (some == 0))
        radius = torch.where(known, 0.0, radius)
    for top in (top_a, top_b):  # where products of slices might underflow
        radius = torch.where((top > 0) & (top < 2.0**-400), torch.nan, radius)
    return Ball(n, total.mid, radius + (radius > 0).to(torch.float64) * k * TINY, tail=total.tail)


def _slices(a: Ball, dim: int, bits: int) -> tuple[list[Tensor], Tensor]:
    """At most SLICES slices of midpoint and tail, and a bound of what they leave and of the radius."""
    found = []
    mid, tail = a.mid, filled(a.tail, a.mid)
    for _ in range(SLICES):
        high, mid = _slice(mid, dim, bits)
        found.append(high)
        mid, tail = two_sum(mid, tail)
        if not bool((mid != 0).any()):
            break
    return found, (mid.abs() + tail.abs() + filled(a.radius, a.mid)) * GROW


def unstacked(a: Ball) -> Ball:
    """The only matrix of a stack of one."""
    return _reshaped(a, lambda t: t.squeeze(0))


def _reshaped(a: Ball, change: Callable[[Tensor], Tensor]) -> Ball:
    """`change` on midpoint, tail and radius, each expanded to the full shape first."""
    rad = a.radius if isinstance(a.radius, float) else change(filled(a.radius, a.mid))
    return Ball(a.n, change(a.mid), rad, tail=change(filled(a.tail, a.mid)))


def _affine(size: Radius, relative: Radius, absolute: Radius) -> Radius:
    """size relative + absolute, in one call where it can be."""
    if isinstance(size, Tensor) and isinstance(absolute, Tensor):
        if isinstance(relative, Tensor):
            return torch.addcmul(absolute, size, relative)
        return torch.add(absolute, size, alpha=relative)
    return size * relative + absolute


def _zero(value: Radius) -> bool:
    return isinstance(value, float) and value == 0.0


def _plus(a: Radius, b: Radius) -> Radius:
    return a if _zero(b) else b if _zero(a) else (a + b) * GROW


def _row(value: Radius) -> bool:
    """Whether every row shares the value."""
    return isinstance(value, float) or value.dim() == 0 or value.shape[-1] == 1


def _power_of_two(a: RowBall) -> bool:
    """An exact constant that is a power of two."""
    return a.point and a.mid.dim() == 0 and isinstance(a.top, float) and abs(math.frexp(a.top)[0]) == 0.5


def _chunked(a: Tensor, b: Tensor) -> Tensor:
    """a @ b by partial sums of CHUNK columns."""
    k = a.shape[-1]
    if k <= 2 * CHUNK:
        return a @ b
    if a.dim() == 3:  # together, a product of stacks of chunks would copy a
        return torch.stack([_chunked(x, y) for x, y in zip(a, b, strict=True)])
    whole = k // CHUNK * CHUNK
    left = a[..., :whole].reshape(*a.shape[:-1], -1, CHUNK).movedim(-2, -3)
    right = b[..., :whole, :].reshape(*b.shape[:-2], -1, CHUNK, b.shape[-1])
    total: Tensor = (left @ right).sum(-3)
    if whole < k:
        total = total + a[..., whole:] @ b[..., whole:, :]
    return total


def _gamma_of(k: int) -> float:
    """For a sum of k terms, as `_chunked` and `_sum` take it."""
    return gamma(k if k <= 2 * CHUNK else CHUNK + -(-k // CHUNK) + 1)


def _sum(a: Tensor) -> Tensor:
    """Along the last axis, which stays, by partial sums of CHUNK columns."""
    k = a.shape[-1]
    if k <= 2 * CHUNK:
        return a.sum(-1, keepdim=True)
    whole = k // CHUNK * CHUNK
    total: Tensor = a[..., :whole].reshape(*a.shape[:-1], -1, CHUNK).sum(-1).sum(-1, keepdim=True)
    return total if whole == k else total + a[..., whole:].sum(-1, keepdim=True)


def _norms(a: Tensor, b: Tensor) -> Tensor:
    """|a_i| |b_j| for the longest column b_j, one number a row: it bounds every |(ab)_ij| (Cauchy-Schwarz)."""
    k = a.shape[-1]
    longest = torch.linalg.vector_norm(b, dim=-2, keepdim=True).amax(-1, keepdim=True)
    product: Tensor = torch.linalg.vector_norm(a, dim=-1, keepdim=True) * longest
    return product * ((1 + 4 * k * U) * GROW)


def _slice(a: Tensor, dim: int, bits: int) -> tuple[Tensor, Tensor]:
    """a = high + low exactly: high is a multiple of 2^-bits of a power of two above its row's maximum."""
    top = a.abs().amax(dim, keepdim=True).clamp(min=2.0**-900)
    power = (top.view(torch.int64) & _EXPONENT).view(torch.float64)  # top < 2 power
    magic = power * (1.5 * 2.0 ** (53 - bits))
    high = (a + magic) - magic
    return high, a - high


def _grid_fits(a: Tensor, b: Tensor, k: int) -> bool:
    """Whether all products are multiples of one grid on which a sum of k of them needs at most 53 bits."""
    extent = math.log2(max(k, 1))
    for t in (a, b):
        if not t.numel():
            return True
        highest = float(t.abs().max())
        if highest == 0.0 or not math.isfinite(highest):
            return highest == 0.0
        grid = float(last_bit(t).min())
        if grid < -400:  # and no product underflows
            return False
        extent += math.log2(highest) - grid
    return extent < 52.99
