"""Bit-exact models of rounded operation sequences on tensors: every operation rounds once, to nearest even.

A value is a float64 tensor whose elements all belong to a narrower format, or to float64 itself.
No hardware FMA, no cast that rounds and no library function is relied upon. Of torch it needs bit
operations on int64, float64 + - * / rounded to nearest, a square root within one ulp and exact casts;
these are compared with integers before the first use on a device (`verify.numbers.primitives`). NaN
payloads are not modelled. Real numbers and enclosures are in `mp` and `ball`.

For a format of precision p <= 24, rounding a float64 result again is innocuous (Figueroa 1995 for
results in normal range). It holds for subnormal results too. Let m be a midpoint of the format's
grid. It has at most p + 1 significant bits, so it is a float64, and a result rounded to float64
cannot cross m, only land on it, from within 2^-53 |m|. But
  a + b   is exact, or |b| < 2^-27 |a|, and the midpoints nearest to a are 2^-25 |a| away;
  a * b   is exact: 2 p bits, exponents far inside float64's;
  a / b   differs from m, if at all, by more than 2^-(2 p + 1) |m|: a - m b is an integer multiple
          of the smaller of the units in the last place of a and of m b;
  sqrt a  differs from m by more than 2^-(2 p + 3) |m|, for m^2 has more than p bits; since that is
          at least 2^-51, a float64 root within one ulp will do.
Since products are exact, a compiler that contracts a * b + c changes nothing, and float64
subnormals never occur: narrow formats may be compiled, and run where float64 flushes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import torch

from verify.facts.formats import FORMATS, Format
from verify.numbers import primitives
from verify.numbers.functions import Function, offer
from verify.numbers.operators import Arithmetic, Binary, Comparing, Predicates
from verify.numbers.orders import Order, reduce, scan
from verify.numbers.transforms import power_of_two, round_to, round_to_odd, two_prod, two_sum

if TYPE_CHECKING:
    from verify.numbers.units import Plan

Tensor = torch.Tensor
DOUBLE = FORMATS["float64"]
HOST = torch.empty(0).device  # the device of Python scalars as tensors, until they meet a tensor
#: Elements at a time on the host: torch's own grain, up to which one thread does an operation. Short
#: operations handed to two threads, on whole tensors that leave the cache, took 8 to 16 times as long
#: (fma of 2^20 elements on two shared Xeon cores, torch 2.13).
BLOCK = 2**15


@dataclass(frozen=True, eq=False)
class Rounded(Arithmetic, Comparing):
    """Elements of `n.compute`, held in a float64 tensor of any shape.

    + - * / round to the wider compute format of the two operands (C23 6.3.1.8); Python numbers
    are rounded to this value's format first. Comparisons give boolean tensors.
    """

    tensor: Tensor
    n: IeeeSystem

    def _operate(self, op: Binary, left: Operand, right: Operand) -> Rounded:
        n = _common(left, right)
        return Rounded(round_to(op(*n._tensors(left, right)), n.compute), n)

    def _compare(self, op: Binary, other: Operand) -> Tensor:
        return op(*_common(self, other)._tensors(self, other))  # type: ignore[no-any-return]

    def __neg__(self) -> Rounded:
        return Rounded(-self.tensor, self.n)

    def __abs__(self) -> Rounded:
        return Rounded(self.tensor.abs(), self.n)

    def __bool__(self) -> bool:
        raise TypeError("a formula used a tensor's values as one truth value; select with n.where(predicate, a, b)")


Operand = Rounded | float
Predicate = Tensor | bool


@dataclass(frozen=True)
class IeeeSystem(Predicates):
    """Arithmetic that rounds every operation to `compute`; inputs and results are of `storage`.

    Half kernels usually compute in float32 and round once at the end:
    `IeeeSystem(FORMATS["float32"], FORMATS["bfloat16"])`. Python floats stay Python floats among
    themselves, which is the host's double arithmetic; meeting a value they are rounded to `compute`.
    """

    compute: Format
    storage: Format

    def __post_init__(self) -> None:
        for fmt in (self.compute, self.storage):
            if fmt != DOUBLE and not FORMATS["float32"].contains(fmt):
                raise ValueError(f"{fmt}; expected float64, or a format whose values are all float32 values")

    def input(self, tensor: Tensor) -> Rounded:
        """An input tensor of the storage dtype, exact unless `compute` is narrower. Raises NotAdmitted."""
        if tensor.dtype != _dtype(self.storage):
            raise TypeError(f"input of {tensor.dtype}; expected the storage dtype {_dtype(self.storage)}")
        primitives.require(tensor.device)
        return Rounded(round_to(tensor.double(), self.compute), self)

    def result(self, value: Operand) -> Tensor:
        """The value rounded to storage, as a tensor of the storage dtype. Raises NotAdmitted."""
        exact = value.tensor if isinstance(value, Rounded) else self.scalar(value).tensor
        primitives.require(exact.device)
        return round_to(exact, self.storage).to(_dtype(self.storage))  # exact by now

    def scalar(self, value: float, fmt: Format | None = None) -> Rounded:
        """A Python number rounded to `fmt` if given, and then to `compute`."""
        if not isinstance(value, int | float):
            raise TypeError(f"{type(value).__name__} in a formula; expected a value of n, or a Python float or int")
        exact = torch.full((), value, dtype=torch.float64, device=HOST)
        return Rounded(round_to(exact if fmt is None else round_to(exact, fmt), self.compute), self)

    def const(self, value: float | Fraction | str) -> Rounded:
        """A number, or a rational such as '1/3', rounded once to `compute`."""
        if isinstance(value, int | float):
            return self.scalar(value)
        bits = self.compute.round(Fraction(value))
        infinity = -torch.inf if bits & self.compute.sign_bit else torch.inf
        return self.scalar(infinity if self.compute.is_inf(bits) else float(self.compute.fraction(bits)))

    def value(self, x: Operand) -> Rounded:
        """`x` as a value of this system: a Python number, or a value of any system, rounded to `compute`."""
        if not isinstance(x, Rounded):
            return self.scalar(x)
        if x.n == self:
            return x
        return Rounded(x.tensor if self.compute.contains(x.n.compute) else round_to(x.tensor, self.compute), self)

    def cast(self, x: Operand, fmt: Format) -> Rounded:
        """`x` rounded once to `fmt`, and then held in `compute`, as after a round trip through memory."""
        if not isinstance(x, Rounded):
            return self.scalar(x, fmt)
        return Rounded(round_to(round_to(x.tensor, fmt), self.compute), self)

    def at(self, compute: Format) -> IeeeSystem:
        """The same storage with another compute format; `value` carries values over."""
        return IeeeSystem(compute, self.storage)

    def fma(self, a: Operand, b: Operand, c: Operand) -> Rounded:
        """a * b + c with one rounding (IEEE 754-2019, 5.4.1), exact zero sums as in 6.3."""
        x, y, z = self._tensors(a, b, c)
        if self.compute == DOUBLE:
            return Rounded(_fma_double(x, y, z), self)
        return Rounded(round_to(round_to_odd(*two_sum(x * y, z)), self.compute), self)

    def sqrt(self, a: Operand) -> Rounded:
        (x,) = self._tensors(a)
        return Rounded(_sqrt_double(x) if self.compute == DOUBLE else round_to(torch.sqrt(x), self.compute), self)

    def recip(self, a: Operand) -> Rounded:
        """1 / a, rounded."""
        return 1 / self.value(a)

    def where(self, predicate: Predicate, a: Operand, b: Operand) -> Operand:
        """`a` where the predicate holds, else `b`; under a Python bool the chosen one as it is."""
        if isinstance(predicate, bool):
            return a if predicate else b
        x, y = self._tensors(a, b)
        return Rounded(torch.where(predicate.to(x.device), x, y), self)

    def max(self, a: Operand, b: Operand) -> Rounded:
        """maximum of IEEE 754-2019, 9.6: NaNs propagate, and -0 < +0."""
        x, y = self._tensors(a, b)
        return Rounded(torch.where((x == 0) & (y == 0), x + y, torch.maximum(x, y)), self)

    def min(self, a: Operand, b: Operand) -> Rounded:
        """minimum of IEEE 754-2019, 9.6: NaNs propagate, and -0 < +0."""
        return -self.max(-self.value(a), -self.value(b))

    # Along the last axis, every partial result in the order's accumulator

    def amax(self, a: Operand) -> Rounded:
        """The largest element, with length 1."""
        return Rounded(self.value(a).tensor.amax(-1, keepdim=True), self)

    def count(self, a: Operand) -> int:
        """The length of the last axis."""
        return int(self.value(a).tensor.shape[-1])

    def cummax(self, a: Operand) -> Rounded:
        """Running maxima of numbers."""
        return Rounded(self.value(a).tensor.cummax(-1).values, self)

    def cummin(self, a: Operand) -> Rounded:
        return Rounded(self.value(a).tensor.cummin(-1).values, self)

    def sumexp(self, a: Operand, order: Order | None = None) -> Rounded:
        """sum exp(x - max x), from left to right, corrected by exp of the change where the maximum rises."""
        x = self.value(a).tensor
        n = self.at((order or Order("any", self.compute)).accumulator)
        top, total = Rounded(x[..., :1], self), n.value(self.exp(Rounded(x[..., :1] * 0.0, self)))
        for k in range(1, x.shape[-1]):
            one = Rounded(x[..., k : k + 1], self)
            high = self.max(top, one)
            total = n.value(total * n.value(self.exp(top - high))) + n.value(self.exp(one - high))
            top = high
        return total

    def sum(self, a: Operand, order: Order | None = None) -> Rounded:
        """The sum, with length 1; by default in any order (see `orders.reduce`) in `compute`. Of nothing +0."""
        n, x, chosen = self._accumulator(a, order)
        if not x.shape[-1]:
            return Rounded(x.new_zeros((*x.shape[:-1], 1)), n)
        return Rounded(reduce(chosen, lambda u, v: round_to(u + v, n.compute), x), n)

    def cumsum(self, a: Operand, order: Order | None = None) -> Rounded:
        """Inclusive prefix sums."""
        n, x, chosen = self._accumulator(a, order)
        return Rounded(scan(chosen, lambda u, v: round_to(u + v, n.compute), x), n)

    def cumprod(self, a: Operand, order: Order | None = None) -> Rounded:
        """Inclusive prefix products."""
        n, x, chosen = self._accumulator(a, order)
        return Rounded(scan(chosen, lambda u, v: round_to(u * v, n.compute), x), n)

    def logcumsumexp(self, a: Operand, order: Order | None = None) -> Rounded:
        """log of the prefix sums of exp, by combinations max + log1p(exp(min - max)) in `compute`, each then rounded to
        the order's accumulator. -inf with -inf is -inf."""
        chosen = order or Order("any", self.compute)

        def combine(u: Tensor, v: Tensor) -> Tensor:
            high, low = self.max(Rounded(u, self), Rounded(v, self)), self.min(Rounded(u, self), Rounded(v, self))
            distance = Rounded(torch.where(low.tensor == high.tensor, 0.0, (low - high).tensor), self)
            found = high + self.log1p(self.exp(distance))
            return round_to(torch.where(low.tensor == -torch.inf, high.tensor, found.tensor), chosen.accumulator)

        return Rounded(scan(chosen, combine, self.value(a).tensor), self.at(chosen.accumulator))

    def dot(self, a: Operand, b: Operand, order: Order | None = None) -> Rounded:
        """The sum of products along the last axis, each product rounded."""
        n = self.at((order or Order("any", self.compute)).accumulator)
        return n.sum(n.value(a) * n.value(b), order)

    def matmul(self, a: Operand, b: Operand, order: Order | Plan | None = None) -> Rounded:
        """(..., m, k) times (..., k, n), as `dot`; by a matrix unit where a plan says so."""
        if not isinstance(order, Order | None):
            return Rounded(order.product(self._asked(a), self._asked(b)), self)
        n = self.at((order or Order("any", self.compute)).accumulator)
        x, y = n.value(a).tensor, n.value(b).tensor
        return Rounded(
            n.dot(Rounded(x[..., :, None, :], n), Rounded(y.mT[..., None, :, :], n), order).tensor[..., 0], n
        )

    def _accumulator(self, a: Operand, order: Order | None) -> tuple[IeeeSystem, Tensor, Order]:
        chosen = order or Order("any", self.compute)
        n = self.at(chosen.accumulator)
        return n, n.value(a).tensor, chosen

    # Library functions: torch's in float64, rounded once. Within 1/2 ULP but for the double rounding. No library
    # promises these bits, so a formula that identifies code has functions of its own.

    def __getattr__(self, name: str) -> Callable[..., Rounded]:
        return offer(name, self.apply)

    def apply(self, entry: Function, a: Operand) -> Rounded:
        return Rounded(round_to(entry.tensor(self.value(a).tensor), self.compute), self)

    def pow(self, a: Operand, b: Operand) -> Rounded:
        x, y = self._tensors(a, b)
        return Rounded(round_to(torch.pow(x, y), self.compute), self)

    def _asked(self, a: Operand) -> Tensor:
        return self.value(a).tensor

    def _tensors(self, *operands: Operand) -> list[Tensor]:
        """The operands in `compute` on one device.

        Scalars move to the tensors' device, for CUDA divides by a host scalar through its reciprocal.
        """
        tensors = [self.value(x).tensor for x in operands]
        device = next((t.device for t in tensors if t.device != HOST), HOST)
        return [t.to(device) for t in tensors]


def evaluate(
    n: IeeeSystem, function: Callable[..., Operand], tensors: Mapping[str, Tensor], scalars: Mapping[str, float]
) -> Tensor:
    """`function(n, ...)` rounded to storage, by blocks. The tensors have the storage dtype and one shape.

    Scalars reach the function as Python floats. The result has the tensors' shape, dtype and device.
    """
    like = next(iter(tensors.values()))
    size = max(like.numel(), 1)
    block = BLOCK if like.device == HOST else size
    if size <= block:  # without views, so that the fused pass can be made of it
        values = {name: n.input(t) for name, t in tensors.items()}
        return n.result(function(n, **values, **scalars))
    flat = {name: t.reshape(-1) for name, t in tensors.items()}
    parts = []
    for start in range(0, size, block):
        values = {name: n.input(t[start : start + block]) for name, t in flat.items()}
        parts.append(n.result(function(n, **values, **scalars)))
    return torch.cat(parts).reshape(like.shape)


def _common(a: Operand, b: Operand) -> IeeeSystem:
    """The system of the wider operand, of the only one that is a value."""
    if not isinstance(a, Rounded):
        assert isinstance(b, Rounded)
        return b.n
    if not isinstance(b, Rounded) or a.n.compute.contains(b.n.compute):
        return a.n
    if b.n.compute.contains(a.n.compute):
        return b.n
    raise TypeError(
        f"{a.n.compute.name} met {b.n.compute.name} and neither contains the other; carry one over with n.value(x)"
    )


def _dtype(fmt: Format) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, fmt.name)
    return dtype


def _frexp(t: Tensor) -> tuple[Tensor, Tensor]:
    """t = m 2^e with 1/2 <= |m| < 1, e as int64; zeros and non-finite elements have e = 0."""
    mantissa, exponent = torch.frexp(t)
    return mantissa, exponent.long()


def _sqrt_double(x: Tensor) -> Tensor:
    """RN(sqrt(x)) in float64; torch's own (CPU, 2.13) is an ulp too low for 0.6% of the patterns.

    With x = s 2^(2 g) and s in [2^104, 2^106), an integer r is RN(sqrt(s)) iff -r < s - r^2 <= r.
    The residual is below 2^55 in magnitude, so that its low 64 bits suffice.
    """
    mantissa, exponent = _frexp(x)
    significand = (mantissa * 2.0**53).long()
    even = 1 - (exponent & 1)
    root = (torch.sqrt((significand << even).double()) * 2.0**26).long()
    residual = (significand << (52 + even)) - root * root
    root = root + (residual > root).long() - (residual <= -root).long()
    scaled = root.double() * power_of_two((exponent - 105 - even) >> 1)
    return torch.where((x > 0) & x.isfinite(), scaled, torch.sqrt(x))


def _fma_double(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """fma in float64 by error-free transformations (Boldo & Melquiond 2008).

    They work on mantissas of a and b, and on c scaled alike, where nothing over- or underflows.
    A c further away than the 106 bits of the product is moved nearer: only its sign, or only that
    the product is smaller than a quarter of its last place, decides. Scaling back is exact unless
    the result is subnormal; those elements go through Python integers.
    """
    (ma, ea), (mb, eb), (mc, ec) = _frexp(a), _frexp(b), _frexp(c)
    product_exponent = ea + eb
    ec = torch.where(c == 0, product_exponent, ec)
    scale = torch.maximum(product_exponent, ec - 130)
    high, low = two_prod(ma, mb)
    c_high, c_low = two_sum(mc * power_of_two((ec - scale).clamp(min=-130)), low)
    sum_high, sum_low = two_sum(high, c_high)
    scaled = sum_high + round_to_odd(*two_sum(c_low, sum_low))
    mantissa, exponent = _frexp(scaled)
    exponent = exponent + scale
    reach = exponent.clamp(-1021, 1026)  # 1025 and above overflow
    result = mantissa * power_of_two(reach >> 1) * power_of_two(reach - (reach >> 1))

    finite = a.isfinite() & b.isfinite()
    result = torch.where((a == 0) | (b == 0) | ~finite, a * b + c, result)
    result = torch.where(finite & ~c.isfinite(), c, result)  # a * b alone might overflow to the other infinity

    subnormal = finite & c.isfinite() & (a != 0) & (b != 0) & (exponent < -1021)
    if bool(subnormal.any()):
        operands = zip(*(t.expand_as(result)[subnormal].tolist() for t in (a, b, c)), strict=True)
        result[subnormal] = result.new_tensor([_fma_integers(*xyz) for xyz in operands])
    return result


def _fma_integers(a: float, b: float, c: float) -> float:
    """RN(a b + c) of finite doubles: CPython rounds int / int correctly, subnormals and signs included."""
    (na, da), (nb, db), (nc, dc) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    return (na * nb * dc + nc * da * db) / (da * db * dc)
