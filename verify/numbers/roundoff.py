"""Error bounds of formulas: the algorithm that `verify.numbers.ieee` runs for its bits, run for what it may err by.

A value is what a formula would give without any rounding, enclosed in float64, and beside it a bound of how far the
computed number may be from that. All magnitudes are those of the exact values, so that a bound holds for every
lowering that runs the formula, whatever its bits. Elementwise, tensors of any shape; sums run along the last axis.

Rules, u the unit roundoff, eta the smallest subnormal of the format in which an operation is done:

- + - * / and square root: fl(x op y) = (x op y)(1 + d) + e, |d| <= u, |e| <= eta/2, d e = 0, and e = 0 for + and -
  (Higham 2002, (2.4) and (2.8), problem 2.19). A sum's d also obeys |x + y||d| <= min(|x|, |y|): x itself is a
  number of the format, and no nearer number is skipped. A function documented with c units errs by c u |f|.
- errors of operands: |x'y' - xy| <= |x| e_y + |y| e_x + e_x e_y and so on, first to last, no term dropped.
- n terms, k additions on the longest path: |s' - s| <= ((1 + u)^k - 1) sum |x_i| (Higham 2002, 4.2, (4.4) and
  lemma 3.1 before gamma_k is put for (1 + u)^k - 1). From left to right E_i = (1 + u) E_{i-1} + u |s_i|, the running
  error bound (Higham 2002, 4.3), which is smaller where terms cancel.
- exactness: where operands are exact and the exact result is a number of the format, nothing is rounded; where it is
  not, a rounding to nearest errs by its distance from the nearest number, which is known. Terms that are multiples of
  a power of two q with sum |x_i| < 2^p q are added exactly in any order: every partial sum is a multiple of q below
  2^p q. So data made for it have the bound 0, and any other bit is a fault.
- overflow: where a computed number may reach 2^(emax+1)(1 - u/2) the bound is infinite: nothing is stated. The last
  cast, to the dtype, is excepted: there infinity counts as 2^(emax+1) (`verify.numbers.ulp`), for which the rules
  above hold.

Bounds are evaluated in float64 and enlarged by UP after each operation, which covers its roundings.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

import torch

from verify.facts.formats import FORMATS, Format
from verify.numbers import Undecidable
from verify.numbers.cpp import on_host
from verify.numbers.documented import Documented as Documented
from verify.numbers.functions import FUNCTIONS, LIBRARY, Function, fell, offer
from verify.numbers.grid import below, last_bit, last_bits
from verify.numbers.operators import Arithmetic, Binary, Comparing
from verify.numbers.orders import Order
from verify.numbers.roundoff_scans import log_sums, products, running
from verify.numbers.roundoff_units import Blocks, product
from verify.numbers.transforms import round_to, two_prod, two_sum

Tensor = torch.Tensor
DOUBLE = FORMATS["float64"]
#: Of float64, in which bounds are evaluated.
U = 2.0**-53
UP = 1.0 + 2.0**-44
TINY = 2.0**-1060
#: Its part where exact results are not looked for: products with it stay normal, which are a hundred times as fast.
LEAST = 2.0**-900
Operand: TypeAlias = "Rough | float"
_RULES = {operator.add: "add", operator.sub: "subtract", operator.mul: "mul", operator.truediv: "div"}


@dataclass(frozen=True, eq=False)
class Rough(Arithmetic, Comparing):
    """One value of a formula; float64 tensors that broadcast against one another.

    mid, rad   the exact value lies within rad of mid (rad 0: it is mid)
    error      what is computed lies within error of the exact value; infinite: nothing is known
    positive   what is computed is never below zero
    held       what is computed is a number of this format: storing it there again rounds nothing
    """

    n: Roundoff
    mid: Tensor
    rad: Tensor
    error: Tensor
    positive: bool = False
    held: Format | None = None

    @property
    def size(self) -> Tensor:
        """An upper bound of the exact magnitude."""
        return self.mid.abs() + self.rad

    @property
    def reach(self) -> Tensor:
        """An upper bound of the computed magnitude."""
        return (self.mid.abs() + self.rad + self.error) * UP

    @property
    def known(self) -> Tensor:
        """Where the computed number is mid, and so is the exact one."""
        return (self.rad == 0) & (self.error == 0)

    def at(self, place: int) -> Rough:
        """The value at one place of the first axis."""
        return replace(self, mid=self.mid[place], rad=self.rad[place], error=self.error[place])

    def __neg__(self) -> Rough:
        return replace(self, mid=-self.mid, positive=False)

    def __abs__(self) -> Rough:
        return replace(self, mid=self.mid.abs(), positive=True)

    def _exact(self) -> Tensor:
        if not bool(self.known.all()):
            raise Undecidable("a formula compared a computed value; in roundoff predicates take exact values only")
        return self.mid

    def _operate(self, op: Binary, left: Operand, right: Operand) -> Rough:
        found: Rough = getattr(self.n, _RULES[op])(left, right)
        return found

    def _compare(self, op: Binary, other: Any) -> Tensor:
        return op(self._exact(), other)  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        raise Undecidable("a formula used a value as one truth value; select with n.where(predicate, a, b)")


@dataclass(frozen=True)
class Roundoff:
    """The operations of `verify.numbers.ieee.IeeeSystem` on values with error bounds.

    compute    the format of an operation and its result
    storage    the dtype of inputs and results
    functions  documented errors by (function, format); / and sqrt without an entry round correctly
    flush      the largest magnitude that an operation may replace by zero, beside gradual underflow (0: none)
    library    relative errors of torch's float64 functions in units of 2^-53, see `verify.numbers.admit`
    exact      whether exact results are found, which takes some three times as long for + - * / and square root;
               without it they get the error of any other, and errors may be NaN where nothing is known
    confidence  l, where k roundings of a sum are taken to err independently with mean 0: exp(l sqrt(k) u + k u^2 / (1 -
               u)) - 1 for (1 + u)^k - 1, each with a probability of at least 1 - 2 exp(-l^2 (1 - u)^2 / 2) (Higham and
               Mary 2019, theorem 2.4); None: proven
    kept       what is known of exact inputs, for other algorithms on the same ones; None: nothing is kept
    """

    compute: Format
    storage: Format
    functions: Mapping[tuple[str, str], Documented] = field(default_factory=dict)
    flush: float = 0.0
    library: Mapping[str, float] = field(default_factory=lambda: LIBRARY)
    device: Any = None
    exact: bool = True
    confidence: float | None = None
    kept: dict[Any, Any] | None = field(default=None, compare=False)

    @property
    def u(self) -> float:
        return float(self.compute.unit_roundoff)

    def once(self, what: str, make: Callable[[], Any]) -> Any:
        """What does not depend on the algorithm, as long as inputs are not rounded to `compute`."""
        if self.kept is None or not self.compute.contains(self.storage):
            return make()
        if what not in self.kept:
            self.kept[what] = make()
        return self.kept[what]

    def at(self, compute: Format) -> Roundoff:
        """The same with another compute format; `value` carries values over."""
        return replace(self, compute=compute)

    # Values

    def input(self, tensor: Tensor) -> Rough:
        """A tensor of the storage dtype, exact unless `compute` is narrower, or it is subnormal and flushed."""
        mid = tensor.to(torch.float64)
        given = self.given(mid)
        if self.flush:
            given = replace(given, error=torch.where(mid.abs() <= self.flush, mid.abs(), 0.0))
        return given if self.compute.contains(self.storage) else self._stored(given, self.compute)

    def given(self, mid: Tensor, rad: Tensor | float = 0.0, error: Tensor | float = 0.0) -> Rough:
        """A value within `rad` of `mid`, computed within `error` of it; float64."""
        wide, far = (torch.as_tensor(t, dtype=torch.float64, device=mid.device).expand_as(mid) for t in (rad, error))
        return Rough(self, mid, wide, far)

    def index(self, values: Tensor) -> Rough:
        """Whole numbers, exactly."""
        return self.given(values.to(torch.float64))

    def scalar(self, value: float, fmt: Format | None = None) -> Rough:
        """A Python number rounded to `fmt` if given, and then to `compute`; the number itself is the exact value."""
        exact = self.given(torch.tensor(float(value), dtype=torch.float64, device=self.device))
        exact = replace(exact, positive=value >= 0)
        return self._stored(exact if fmt is None else self._stored(exact, fmt), self.compute)

    def const(self, value: float | Fraction | str) -> Rough:
        """A number, or a rational such as '1/3', rounded once to `compute`."""
        exact = Fraction(value)
        near = self.compute.fraction(self.compute.round(exact))
        rounding = abs(near - exact)
        found = self.between(exact, exact)
        return replace(found, error=torch.full_like(found.mid, float(rounding) * UP + (TINY if rounding else 0.0)))

    def between(self, lo: Fraction, hi: Fraction) -> Rough:
        """An exact number that lies between two rationals."""
        mid = float((lo + hi) / 2)
        away = max(hi - Fraction(mid), Fraction(mid) - lo)
        found = self.given(
            torch.tensor(mid, dtype=torch.float64, device=self.device), float(away) * UP + (TINY if away else 0.0)
        )
        return replace(found, positive=lo >= 0)

    def value(self, x: Operand) -> Rough:
        """`x` as a value of this system: rounded to `compute` unless that holds it."""
        if not isinstance(x, Rough):
            return self.scalar(x)
        if x.n is self or x.n.compute == self.compute:
            return x
        if self.compute.contains(x.n.compute):
            return replace(x, n=self)
        return replace(self._stored(x, self.compute), n=self)

    def cast(self, x: Operand, fmt: Format) -> Rough:
        """`x` rounded once to `fmt`, and then held in `compute`, as after a round trip through memory."""
        if not isinstance(x, Rough):
            return self.scalar(x, fmt)
        return self.value(replace(self._stored(x, fmt), n=self.at(fmt)))

    def result(self, value: Operand) -> Rough:
        """The value rounded to storage. Infinity counts as 2^(emax+1) there, so that overflow needs no exception."""
        last = self.value(value)
        if self.storage.contains(last.n.compute):
            return last
        return self._stored(last, self.storage, overflows=False)

    # Arithmetic

    def add(self, a: Operand, b: Operand) -> Rough:
        n, x, y = self._common(a, b)
        if not n.exact:
            mid = x.mid + y.mid
            found = n._rounded(mid, x.rad + y.rad + mid.abs() * U, x.error + y.error, underflows=False)
            return replace(found, positive=x.positive and y.positive)
        mid, rad, error, most = _sum(x.mid, x.rad, x.error, y.mid, y.rad, y.error)
        found = n._rounded(mid, rad, error, underflows=False, most=most)
        return replace(found, positive=x.positive and y.positive)

    def subtract(self, a: Operand, b: Operand) -> Rough:
        n, x, y = self._common(a, b)
        return n.add(x, -y)

    def mul(self, a: Operand, b: Operand) -> Rough:
        n, x, y = self._common(a, b)
        mid, rad, error = _product(x, y, n.exact)
        return replace(n._rounded(mid, rad, error), positive=a is b or (x.positive and y.positive))

    def fma(self, a: Operand, b: Operand, c: Operand) -> Rough:
        """a * b + c with one rounding. Where c is b itself, a b + b = (1 + a) b: the errors of b do not add up."""
        x, y, z = self.value(a), self.value(b), self.value(c)
        if b is c and isinstance(b, Rough):
            near, far = two_sum(torch.ones_like(x.mid), x.mid)
            factor = replace(x, mid=near, rad=_up(far.abs() + x.rad), positive=False)
            return self._rounded(*_product(factor, y, self.exact))
        mid, rad, error = _product(x, y, self.exact)
        if not self.exact:
            total = mid + z.mid
            return self._rounded(total, rad + z.rad + total.abs() * U, error + z.error)
        total, left = two_sum(mid, z.mid)
        return self._rounded(total, _up(left.abs() + rad + z.rad), _up(error + z.error))

    def div(self, a: Operand, b: Operand) -> Rough:
        """|x'/y' - x/y| <= (e_x + |x/y| e_y) / (|y| - e_y); infinite where y' may be zero."""
        n, x, y = self._common(a, b)
        if not n.exact:
            mid = x.mid / y.mid
            size = mid.abs()
            least = y.mid.abs() - y.rad
            rad = (x.rad + size * (y.rad + y.mid.abs() * (4 * U)) + LEAST) / least * UP
            rad = torch.where(least > 0, rad, math.inf)
            room = least * (1 - 2.0**-50) - y.error
            error = torch.where(room > 0, (x.error + (size + rad) * y.error) / room, math.inf)
            known = n.functions.get(("div", n.compute.name))
            return replace(n._rounded(mid, rad, error, known), positive=x.positive and y.positive)
        mid, rad, error = _quotient(x.mid, x.rad, x.error, y.mid, y.rad, y.error)
        known = n.functions.get(("div", n.compute.name))
        return replace(n._rounded(mid, rad, error, known), positive=x.positive and y.positive)

    def recip(self, a: Operand) -> Rough:
        """1 / a, rounded."""
        return self.div(1.0, self.value(a))

    def sqrt(self, a: Operand) -> Rough:
        """|sqrt(x') - sqrt(x)| <= min(e / sqrt(x), sqrt(e)) for x, x' >= 0; infinite where x' may be negative."""
        x = self.value(a)
        mid = torch.sqrt(x.mid.clamp(min=0.0))
        if self.exact:
            square, left = two_prod(mid, mid)
            rest = ((x.mid - square) - left).abs()
            rest = torch.where(_safe(mid, mid, square), rest, rest + x.mid.abs() * (8 * U) + TINY)
        else:
            rest = x.mid.abs() * (8 * U) + LEAST
        least = x.mid - x.rad
        spread = torch.where(rest + x.rad == 0, 0.0, torch.minimum((rest + x.rad) / mid, torch.sqrt(rest + x.rad)))
        rad = _up(torch.where(spread.isnan(), math.inf, spread))
        root = torch.sqrt(least.clamp(min=0.0)) * (1 - 2.0**-50)
        error = torch.minimum(torch.where(root > 0, x.error / root, math.inf), torch.sqrt(x.error))
        error = torch.where(x.error == 0, 0.0, _up(error))
        if not x.positive:
            error = torch.where(least - x.error < 0, math.inf, error)
        known = self.functions.get(("sqrt", self.compute.name))
        return replace(self._rounded(mid, rad, error, known), positive=True)

    def max(self, a: Operand, b: Operand) -> Rough:
        """Exact; |max(x', y') - max(x, y)| <= max(e_x, e_y)."""
        n, x, y = self._common(a, b)
        mid = torch.maximum(x.mid, y.mid)
        first = x.mid - x.rad - x.error >= y.mid + y.rad + y.error
        second = y.mid - y.rad - y.error >= x.mid + x.rad + x.error
        rad, error = (
            torch.where(first, i, torch.where(second, j, torch.maximum(i, j)))
            for i, j in ((x.rad, y.rad), (x.error, y.error))
        )
        return Rough(n, mid, rad, error, x.positive or y.positive, x.held if x.held == y.held else None)

    def min(self, a: Operand, b: Operand) -> Rough:
        return -self.max(-self.value(a), -self.value(b))

    def where(self, predicate: Tensor | bool, a: Operand, b: Operand) -> Operand:
        """`a` where the predicate, of exact values, holds, else `b`."""
        if isinstance(predicate, bool):
            return a if predicate else b
        n, x, y = self._common(a, b)
        mid, rad, error = (
            torch.where(predicate, i, j) for i, j in ((x.mid, y.mid), (x.rad, y.rad), (x.error, y.error))
        )
        return Rough(n, mid, rad, error, x.positive and y.positive, x.held if x.held == y.held else None)

    # Library functions

    def __getattr__(self, name: str) -> Callable[..., Rough]:
        return offer(name, self.apply)

    def exp2(self, a: Operand) -> Rough:
        """Exact at whole numbers, where that is documented."""
        x, found = self.value(a), self.apply(FUNCTIONS["exp2"], a)
        whole = x.known & (x.mid == x.mid.floor()) & (x.mid.abs() <= 1000)
        if not self._documented("exp2").points:
            return found
        power = torch.ldexp(torch.ones_like(x.mid), torch.where(whole, x.mid, 0.0).to(torch.int32))
        held = whole & (round_to(power, self.compute) == power)
        mid = torch.where(held, power, found.mid)
        rad, error = (torch.where(held, 0.0, t) for t in (found.rad, found.error))
        return Rough(self, mid, rad, error, positive=True)

    def pow(self, a: Operand, b: Operand) -> Rough:
        """x^y of x > 0: relative change expm1(|y| l + |log x| e_y + l e_y), l = -log(1 - e_x/x)."""
        n, x, y = self._common(a, b)
        mid = torch.pow(x.mid, y.mid)

        def change(r: Tensor, s: Tensor, size: Tensor, least: Tensor) -> Tensor:
            by_base = fell(least, r)
            logarithm = torch.maximum(x.mid.log().abs(), least.log().abs()) * UP
            moved = y.size * by_base + (logarithm + by_base) * s
            return torch.where((r == 0) & (s == 0), 0.0, size * torch.expm1(moved * UP))

        own = mid.abs() * (n.library["pow"] * U) + TINY
        one = x.known & y.known & ((y.mid == 0) | (x.mid == 1) | ((x.mid == 0) & (y.mid > 0)))
        least = (x.mid - x.rad).clamp(min=0.0)
        rad = torch.where(one, 0.0, _up(own + change(x.rad, y.rad, mid.abs() * UP, x.mid)))
        error = _up(change(x.error, y.error, (mid.abs() + rad) * UP, least))
        error = torch.where(x.known & y.known, 0.0, torch.where(least > 0, error, math.inf))
        known = n._documented("pow")
        found = n._rounded(mid, rad, error, known, positive=True)
        return replace(found, error=torch.where(one, 0.0, found.error)) if known.points else found

    def _documented(self, name: str) -> Documented:
        try:
            return self.functions[name, self.compute.name]
        except KeyError:
            known = ", ".join(sorted({f"{f} of {fmt}" for f, fmt in self.functions})) or "none"
            raise KeyError(
                f"nothing is documented of {name} of {self.compute.name} (known: {known}); "
                "give Roundoff.functions its error"
            ) from None

    def apply(self, entry: Function, a: Operand) -> Rough:
        """A library function: the change from its operand's error, and what is documented of its own."""
        known, x = self._documented(entry.name), self.value(a)
        mid, positive = entry.tensor(x.mid), entry.sign == "positive"
        own = self.library[entry.name] * U
        mid, rad, error, held = _function(x.mid, x.rad, x.error, mid, own, name=entry.name, points=known.points)
        found = self._rounded(mid, rad, error, known, positive=positive)
        return replace(found, error=torch.where(held, 0.0, found.error))

    # Along the last axis

    def amax(self, a: Operand) -> Rough:
        """The largest value, with length 1: exact, off by the largest error."""
        x = _wide(self.value(a))
        if not x.mid.shape[-1]:
            return self.given(torch.full((*x.mid.shape[:-1], 1), -math.inf, dtype=torch.float64, device=x.mid.device))
        mid, rad, error = (t.amax(-1, keepdim=True) for t in (x.mid, x.rad, x.error))
        return Rough(self, mid, rad, error, x.positive)

    def count(self, a: Operand) -> int:
        """The length of the last axis."""
        return int(self.value(a).mid.shape[-1])

    def cummax(self, a: Operand) -> Rough:
        """Running maxima: exact, off by the largest error so far."""
        x = _wide(self.value(a))
        return Rough(self, running(x.mid), running(x.rad), running(x.error), x.positive)

    def cummin(self, a: Operand) -> Rough:
        return -self.cummax(-self.value(a))

    def sumexp(self, a: Operand, order: Order | None = None) -> Rough:
        """sum exp(x - max x) with a running sum that is corrected by exp(m - m') where the maximum rises from m to m':
        at most one correction for each addition, whose changes add up to the term's own distance d from the maximum.
        Each term is then off by (1 + u + b)^k exp(v d) - 1 more, b exp's error and v d that of its arguments."""
        x = self.value(a)
        distance = x - self.amax(x)
        e = self.exp(distance)
        found = self.sum(e, order)
        known, steps = self._documented("exp"), max(self.count(x) - 1, 0)
        if order is not None:
            steps = int(order.steps(torch.tensor(float(steps + 1), dtype=torch.float64)))
        moved = torch.where(distance.mid == -math.inf, 0.0, distance.reach) * self.u
        growth = torch.expm1(moved + steps * math.log1p(found.n.u + known.units * self.u)) * UP
        lost = steps * (self._eta() * known.units + known.absolute)
        extra = torch.where(e.reach > 0, e.reach * growth, 0.0).sum(-1, keepdim=True) * UP + lost
        alone = (_wide(x).mid == x.mid.amax(-1, keepdim=True)) | (x.mid == -math.inf)
        extra = torch.where(alone.all(-1, keepdim=True) & known.points, 0.0, extra)
        return replace(found, error=(found.error + extra) * UP, positive=True)

    def sum(self, a: Operand, order: Order | None = None) -> Rough:
        """The sum, with length 1, every partial sum in the order's accumulator (any order in `compute` without one)."""
        order = order or Order("any", self.compute)
        x = self.at(order.accumulator).value(a)
        x = _wide(x)
        count = (
            torch.full_like(x.mid[..., :1], float(x.mid.shape[-1]))
            if x.mid.shape[-1]
            else x.mid.new_zeros((*x.mid.shape[:-1], 1))
        )
        size = x.mid.abs().sum(-1, keepdim=True)
        finest = torch.full_like(count, -math.inf)  # nothing is known to be exact
        if x.mid.shape[-1] and self.exact:
            finest = last_bit(x.mid, -1)
        mid = x.mid.sum(-1, keepdim=True)
        rounding = _growth(count, U) * size
        rad = _up(torch.where(below(size, finest, 53), 0.0, rounding) + x.rad.sum(-1, keepdim=True))
        return x.n._summed(x, order, count, mid, rad, size, finest, lambda t: t.sum(-1, keepdim=True))

    def cumsum(self, a: Operand, order: Order | None = None) -> Rough:
        """Inclusive prefix sums, as `sum`. Where partial sums are those of consecutive terms, each is the difference of
        two prefix sums."""
        order = order or Order("any", self.compute)
        x = _wide(self.at(order.accumulator).value(a))
        count = torch.arange(1, x.mid.shape[-1] + 1, dtype=torch.float64, device=x.mid.device).expand_as(x.mid)
        size = x.mid.abs().cumsum(-1)
        finest = -running(-last_bit(x.mid))
        rad = torch.where(below(size, finest, 53), 0.0, _growth(count, U) * size) + x.rad.cumsum(-1) * UP
        mid, most = x.mid.cumsum(-1), None
        if order.adjacent or order.kind == "sequential":
            high, low = running(mid.clamp(min=0.0)), running(-mid.clamp(max=0.0))
            most = torch.where(rad == 0, high + low, math.inf)
        return x.n._summed(x, order, count, mid, _up(rad), size, finest, lambda t: t.cumsum(-1), most)

    def _summed(
        self, x: Rough, order: Order, count: Tensor, mid: Tensor, rad: Tensor, size: Tensor, finest: Tensor,
        over: Callable[[Tensor], Tensor], most: Tensor | None = None,
    ) -> Rough:  # fmt: skip
        """size: float64's own sum of |mid|, exact below 2^53 times the finest unit 2^finest of the terms. most: no
        partial sum is larger."""
        grown = 1.0 + 4 * (float(x.mid.shape[-1]) + 1) * U  # of float64's own sums of numbers that are not negative
        carried, steps = over(x.error) * grown, order.steps(count)
        total = (size + over(x.rad) + over(x.error)) * grown
        error = self._of_sum(steps) * total + carried
        reach = total + error
        if order.kind == "sequential" and x.mid.shape[-1]:
            running, highest = self._running_error(x)
            if count.shape != x.mid.shape:
                running, highest = running[..., -1:], highest[..., -1:]
            error, reach = torch.minimum(error, running), torch.minimum(reach, highest)
        error = _up(error + steps * self.flush)
        most = size if most is None else torch.minimum(size, most)
        exact = (carried == 0) & (over(x.rad) == 0) & below(most, finest, self.compute.precision)
        if not self.flush:
            error, reach = torch.where(exact, 0.0, error), torch.where(exact, most, reach)
        beyond = (reach * UP >= _overflow(self.compute)) | error.isnan()
        return Rough(self, mid, rad, torch.where(beyond, math.inf, error), x.positive)

    def _of_sum(self, steps: Tensor) -> Tensor:
        """What so many roundings make of a sum of magnitudes, relatively."""
        proven = _growth(steps, self.u)
        if self.confidence is None:
            return proven
        exponent = self.confidence * steps.sqrt() * self.u + steps * self.u**2 / (1 - self.u)
        return torch.minimum(proven, torch.expm1(exponent * UP) * UP)

    def _running_error(self, x: Rough) -> tuple[Tensor, Tensor]:
        """E_i = (1 + u)(E_{i-1} + e_i) + min(u |s_i|, |x_i|) at every position, and the largest partial sum so far."""
        size = x.mid.abs().cumsum(-1)
        prefix = x.mid.cumsum(-1).abs() + _growth(_arange(x.mid), U) * size + x.rad.cumsum(-1)
        own = torch.minimum(self.u * (prefix * UP), x.reach)
        own[..., 0] = 0.0
        own = own + (1 + self.u) * x.error
        n = own.shape[-1]
        if n * self.u < 2.0**-6:  # (1 + u)^n for all of them
            error = own.cumsum(-1) * (math.exp(n * self.u) * (1.0 + n * 2.0**-52))
        else:
            error = _affine(1 + self.u, own) * UP
        return error, running(prefix + error)

    def cumprod(self, a: Operand, order: Order | None = None) -> Rough:
        """Inclusive prefix products of exact values, see `roundoff_scans.products`."""
        order = order or Order("any", self.compute)
        n = self.at(order.accumulator)
        return Rough(n, *products(n, n.value(a), order))

    def logcumsumexp(self, a: Operand, order: Order | None = None) -> Rough:
        """log of the prefix sums of exp of exact values, see `roundoff_scans.log_sums`: exp, log1p and the sum are in
        `compute`, each result then in the order's accumulator."""
        order = order or Order("any", self.compute)
        return Rough(self, *log_sums(self, self.value(a), order))

    def dot(self, a: Operand, b: Operand, order: Order | None = None) -> Rough:
        """The sum of products along the last axis; where they are contracted, they err by no more."""
        n = self.at((order or Order("any", self.compute)).accumulator)
        return n.sum(n.mul(n.value(a), n.value(b)), order)

    def matmul(self, a: Operand, b: Operand, order: Order | Blocks | None = None) -> Rough:
        """(..., m, k) times (..., k, n): |E| <= ((1 + u)^(s + 1) - 1)|A'||B'| + E_A|B| + |A|E_B + E_A E_B (Higham 2002,
        (3.13)), s additions on the longest path; contracted products are among these. By a matrix unit:
        `roundoff_units.product`."""
        if isinstance(order, Blocks):
            return Rough(self, *product(self, _wide(self.value(a)), _wide(self.value(b)), order))
        order = order or Order("any", self.compute)
        n = self.at(order.accumulator)
        x, y = _wide(n.value(a)), _wide(n.value(b))
        k = x.mid.shape[-1]
        grown = 1.0 + 8 * (k + 2) * U
        size = x.mid.abs() @ y.mid.abs()
        finest = last_bits(x.mid, y.mid) if k else size
        mid = x.mid @ y.mid
        spread = _times(x.rad, y.size) + _times(x.mid.abs(), y.rad)
        rounding = _growth(torch.tensor(float(k + 1), dtype=torch.float64), U).to(size.device) * size
        rad = _up(torch.where(below(size, finest, 53), 0.0, rounding + TINY) + spread * grown)
        carried = (_times(x.error, y.size + y.error) + _times(x.size, y.error)) * grown
        total = (size + spread + carried) * grown
        steps = order.steps(torch.tensor(float(k), dtype=torch.float64, device=size.device))
        least = k * (n._eta() + n.flush) + steps * n.flush
        error = _up(n._of_sum(steps + 1) * total + carried + least)
        exact = (carried == 0) & (spread == 0) & below(size, finest, n.compute.precision)
        exact = exact & (finest >= n.compute.emin - n.compute.mantissa_bits)
        if not n.flush:
            error = torch.where(exact, 0.0, error)
        over = (total + error) * UP >= _overflow(n.compute)
        return Rough(n, mid, rad, torch.where(over | error.isnan(), math.inf, error), x.positive and y.positive)

    # Rounding

    def _eta(self) -> float:
        """The absolute error of an operation that underflows; float64 holds no half of its smallest number."""
        half = float(self.compute.smallest_subnormal) / 2
        return half or 8 * float(self.compute.smallest_subnormal)

    def _rounded(
        self,
        mid: Tensor,
        rad: Tensor,
        error: Tensor,
        known: Documented | None = None,
        *,
        underflows: bool = True,
        most: Tensor | None = None,
        positive: bool = False,
    ) -> Rough:
        """An exact result within `rad` of `mid`, off by `error` from its operands, and one rounding to `compute`, or
        the error of a documented function. most: a bound of the rounding error besides."""
        units = 1.0 if known is None else known.units
        if not self.exact:
            return self._loosely(mid, rad, error, known, underflows, positive)
        least = self._eta() * max(units, 1.0) if underflows else None
        absolute = None if known is None else known.absolute
        given = self.u * units, least, absolute, self.flush or None, _overflow(self.compute)
        return Rough(self, mid, rad, _rounding(mid, rad, error, most, *given, compute=self.compute), positive)

    def _loosely(
        self, mid: Tensor, rad: Tensor, error: Tensor, known: Documented | None, underflows: bool, positive: bool
    ) -> Rough:
        """`_rounded` of any result as of one that is not exact."""
        units, absolute = (1.0, 0.0) if known is None else (known.units, known.absolute)
        least = absolute + (self._eta() * max(units, 1.0) if underflows else 0.0)
        given = self.u * units * UP, least, self.flush or None, _overflow(self.compute)
        rad, error = _loose(mid, rad, error, *given)
        return Rough(self, mid, rad, error, positive)

    def _stored(self, x: Rough, fmt: Format, *, overflows: bool = True) -> Rough:
        """One rounding of `x` to `fmt`, to nearest: none of a number of `fmt`, and back to an exact value that is one
        from within half the way to its neighbours."""
        if x.held is not None and fmt.contains(x.held):
            return x
        n = self.at(fmt)
        if not self.exact and overflows and x.mid.dim():
            return replace(n._loosely(x.mid, x.rad, x.error, None, True, x.positive), n=x.n, held=fmt)
        quarter = _quarter(x.mid, fmt)
        given = n.u, n._eta(), self.flush, _overflow(fmt) if overflows else None
        error = _storing(x.mid, x.rad, x.error, quarter, *given, fmt=fmt, flushes=bool(self.flush))
        return replace(x, error=error, held=fmt)

    def _common(self, a: Operand, b: Operand) -> tuple[Roundoff, Rough, Rough]:
        """The operands in the system of the wider one, as in `ieee` (C23, 6.3.1.8)."""
        n = next((x.n for x in (a, b) if isinstance(x, Rough)), self)
        if isinstance(a, Rough) and isinstance(b, Rough):
            if not (a.n.compute.contains(b.n.compute) or b.n.compute.contains(a.n.compute)):
                raise TypeError(
                    f"{a.n.compute.name} met {b.n.compute.name} and neither contains the other; use n.value(x)"
                )
            n = a.n if a.n.compute.contains(b.n.compute) else b.n
        return n, n.value(a), n.value(b)


@cache
def _overflow(fmt: Format) -> float:
    """The least magnitude that rounds to infinity; float64's largest number for float64."""
    if fmt == DOUBLE:
        return float(fmt.max_finite)
    return float(fmt.max_finite * (1 + fmt.unit_roundoff / 2))


def _quarter(t: Tensor, fmt: Format) -> Tensor:
    """A quarter of ulp(t), half the way to the nearer neighbour of a number of `fmt` that is not 0; 0 where float64 has
    none."""
    places = (torch.frexp(t).exponent - 1).clamp(min=fmt.emin) - (fmt.precision + 1)
    return torch.ldexp(torch.ones_like(t), places)


def _up(t: Tensor) -> Tensor:
    """Enlarged by what a few float64 operations on numbers that are not negative lose; 0 stays 0."""
    return torch.where(t > 0, t * UP + TINY, t)


def _product(x: Rough, y: Rough, exact: bool) -> tuple[Tensor, Tensor, Tensor]:
    """mid, rad and the operands' error of x y; `exact`: which may be 0."""
    multiply = _exact_product if exact else _loose_product
    return multiply(x.mid, x.rad, x.error, y.mid, y.rad, y.error)


# What an operation makes of midpoints, radii and errors.


@on_host
def _sum(
    x: Tensor, x_rad: Tensor, x_error: Tensor, y: Tensor, y_rad: Tensor, y_error: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mid, rad and the operands' error of x + y, and a bound of its rounding error."""
    mid, left = two_sum(x, y)
    infinite = mid.isinf() & (x_rad == 0) & (y_rad == 0) & (x.isinf() | y.isinf())
    rad = torch.where(infinite, 0.0, _up(left.abs() + x_rad + y_rad))
    error = torch.where(infinite & (x_error == 0) & (y_error == 0), 0.0, _up(x_error + y_error))
    return mid, rad, error, torch.minimum((x.abs() + x_rad + x_error) * UP, (y.abs() + y_rad + y_error) * UP)


@on_host
def _exact_product(
    x: Tensor, x_rad: Tensor, x_error: Tensor, y: Tensor, y_rad: Tensor, y_error: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """mid, rad and the operands' error of x y."""
    mid, left = two_prod(x, y)
    left = torch.where(_safe(x, y, mid), left.abs(), mid.abs() * (4 * U) + TINY)
    nothing, none = (x_rad == 0) & (x_error == 0) & (x == 0), (y_rad == 0) & (y_error == 0) & (y == 0)
    zero = (nothing & y.isfinite()) | (none & x.isfinite())
    rad = left + x.abs() * y_rad + y.abs() * x_rad + x_rad * y_rad
    error = (x.abs() + x_rad) * y_error + (y.abs() + y_rad) * x_error + x_error * y_error
    clean = (x_error == 0) & (y_error == 0)
    error = torch.where(clean, 0.0, _up(error))
    lost = zero & x_error.isfinite() & y_error.isfinite()
    return mid, torch.where(lost, 0.0, _up(rad)), torch.where(lost, 0.0, error)


@on_host
def _loose_product(
    x: Tensor, x_rad: Tensor, x_error: Tensor, y: Tensor, y_rad: Tensor, y_error: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, none of them 0."""
    size, other = x.abs() + x_rad, y.abs() + y_rad
    rad = size * (y_rad + other * U) + x_rad * other + LEAST
    return x * y, rad, size * y_error + (other + y_error) * x_error


@on_host
def _quotient(
    x: Tensor, x_rad: Tensor, x_error: Tensor, y: Tensor, y_rad: Tensor, y_error: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """mid, rad and the operands' error of x / y."""
    mid = x / y
    product, left = two_prod(mid, y)
    rest = ((x - product) - left).abs()  # exact: x - product is, for product near x
    rest = torch.where(_safe(mid, y, product), rest, rest + x.abs() * (4 * U) + TINY)
    least = y.abs() - y_rad
    none = (rest == 0) & (x_rad == 0) & (y_rad == 0)
    rad = torch.where(none, 0.0, (rest + x_rad + mid.abs() * y_rad) / least * UP + TINY)
    rad = torch.where(least > 0, rad, math.inf)
    room = least * (1 - 2.0**-50) - y_error
    error = torch.where(room > 0, _up((x_error + (mid.abs() + rad) * y_error) / room), math.inf)
    return mid, rad, torch.where((x_error == 0) & (y_error == 0) & (least > 0), 0.0, error)


@on_host
def _function(
    x: Tensor, x_rad: Tensor, x_error: Tensor, mid: Tensor, own: float, *, name: str, points: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mid, rad and the operand's error of a function, of which the library gives `mid`, off by `own` of it at most, and
    where no rounding errs. points: where the function is exact is documented."""
    entry = FUNCTIONS[name]
    known = (x_rad == 0) & (x_error == 0)
    bottom = (x == -math.inf) & known & (entry.sign == "positive" and entry.limits)  # 0
    moved = torch.where(x_rad == 0, 0.0, entry.change(x, mid.abs() * UP, x_rad))
    rad = torch.where(bottom, 0.0, _up(mid.abs() * own + TINY + moved))
    held = torch.zeros_like(bottom)
    if entry.point is not None:
        at = known & (x == entry.point[0])
        mid, rad = torch.where(at, float(entry.point[1]), mid), torch.where(at, 0.0, rad)
        held = at if points else held
    error = torch.where(x_error == 0, 0.0, _up(entry.change(x - x_rad, (mid.abs() + rad) * UP, x_error)))
    error = torch.where(error.isnan() & (x_error != 0), math.inf, error)
    return mid, rad, error, held | bottom


@on_host
def _rounding(
    mid: Tensor, rad: Tensor, error: Tensor, most: Tensor | None, factor: float, least: float | None,
    absolute: float | None, flush: float | None, overflow: float, *, compute: Format,
) -> Tensor:  # fmt: skip
    """The error of an exact result within `rad` of `mid` that is off by `error` from its operands, and rounded once, or
    by a function that is documented to err by `absolute` too. See `Roundoff._rounded`."""
    exact = (rad == 0) & (error == 0)
    reach = (mid.abs() + rad + error) * UP
    own = reach * factor
    if least is not None:
        own = own + least
    if most is not None:
        own = torch.minimum(own, most)
    if absolute is None:
        own = torch.where(exact, (round_to(mid, compute) - mid).abs(), own)
    else:
        own = own + absolute
    if flush is not None:
        own = torch.where((reach > 0) & (mid.abs() - rad - error <= flush), own + flush, own)
    total = torch.where(own > 0, (error + own) * UP, error)
    beyond = (reach + own >= overflow) & ~(exact & mid.isinf())
    return torch.where(exact & mid.isinf(), 0.0, torch.where(beyond | total.isnan(), math.inf, total))


@on_host
def _loose(
    mid: Tensor, rad: Tensor, error: Tensor, factor: float, least: float, flush: float | None, overflow: float
) -> tuple[Tensor, Tensor]:
    """Radius and error of any result that is rounded once, see `_rounding`."""
    reach = mid.abs() + rad + error
    total = (error + reach * factor) * UP + least
    if flush is not None:
        total = torch.where(mid.abs() - rad - error <= flush, total + flush, total)
    return rad * UP, torch.where(reach * (1.0 + factor) >= overflow, math.inf, total)


@on_host
def _storing(
    mid: Tensor, rad: Tensor, error: Tensor, quarter: Tensor, u: float, eta: float, flush: float,
    overflow: float | None, *, fmt: Format, flushes: bool,
) -> Tensor:  # fmt: skip
    """The error of a value once it is rounded to `fmt`, see `Roundoff._stored`. quarter: half the way to a neighbour;
    overflow: what is rounded to infinity, None where an infinity counts as the end of the range."""
    exact = (rad == 0) & (error == 0)
    reach = (mid.abs() + rad + error) * UP
    near = round_to(mid, fmt)
    back = (near == mid) & (rad == 0) & (error < quarter) & (mid.abs() > 2 * flush)
    if overflow is None and fmt != DOUBLE:
        end = torch.copysign(torch.full_like(mid, 2.0 ** (fmt.emax + 1)), mid)
        near = torch.where(near.isinf() & mid.isfinite(), end, near)
    own = torch.where(exact, (near - mid).abs(), reach * u + eta)
    own = torch.where(exact & mid.isinf(), 0.0, own)
    found = torch.where(own > 0, (error + own) * UP, error)
    # Rounding is monotonic: what is computed lies between the rounded ends of what is to be rounded.
    away = (rad + error) * UP
    ends = [round_to(mid + away * sign, fmt) - mid for sign in (-1.0, 1.0)]
    between = (torch.maximum(ends[0].abs(), ends[1].abs()) + rad) * UP + mid.abs() * (2 * U)
    found = torch.where(exact, found, torch.minimum(found, torch.maximum(between, error)))
    if flushes:
        found = torch.where((reach > 0) & (mid.abs() - rad - error <= flush), found + flush, found)
    if overflow is not None:
        found = torch.where((reach >= overflow) & ~mid.isinf(), math.inf, found)
    elif fmt != DOUBLE:  # what is beyond the range counts as its end, and so does an infinity
        most, least = 2.0 ** (fmt.emax + 1), mid.abs() - away
        low = torch.minimum(least, round_to(least, fmt)).clamp(max=most)
        found = torch.where(mid.isfinite() & (mid.abs() >= most), torch.minimum(found, most - low), found)
    return torch.where(back, 0.0, torch.where(found.isnan(), math.inf, found))


def _safe(a: Tensor, b: Tensor, product: Tensor) -> Tensor:
    """Where TwoProd is exact: |ab| >= 2^-900, or a zero factor, and factors below 2^990."""
    inside = (a.abs() < 2.0**990) & (b.abs() < 2.0**990) & (product.abs() < 2.0**1000)
    return inside & ((a == 0) | (b == 0) | (product.abs() >= 2.0**-900))


def _growth(k: Tensor, u: float) -> Tensor:
    """(1 + u)^k - 1, and 0 for no rounding."""
    return torch.where(k > 0, torch.expm1(k * (math.log1p(u) * UP)) * UP, 0.0)


def _affine(factor: float, term: Tensor) -> Tensor:
    """E_i = factor E_{i-1} + term_i along the last axis, of non-negative numbers, by doubling."""
    found, power, width = term, factor, 1
    while width < found.shape[-1]:
        head, rest = found[..., :width], found[..., width:] + power * found[..., :-width]
        found = torch.cat([head, rest], -1)
        power, width = min(power * power, 1e300), 2 * width
    return found


def _arange(like: Tensor) -> Tensor:
    return torch.arange(1, like.shape[-1] + 1, dtype=torch.float64, device=like.device)


def _times(x: Tensor, y: Tensor) -> Tensor:
    """x @ y of magnitudes; one 0 where all of a factor's are, as the radii and errors of a kernel's inputs."""
    return x @ y if bool(x.any()) and bool(y.any()) else x.new_zeros(())


def _wide(x: Rough) -> Rough:
    """With all parts in the shape of mid."""
    return replace(x, rad=x.rad.expand_as(x.mid), error=x.error.expand_as(x.mid))
