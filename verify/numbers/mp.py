"""The number system `mp`: the ground truth, as exact rationals and intervals of any precision.

Values are extended reals: NaN, +-inf, signed exact zeros, exact rationals, or an open interval around
one real number. Rows and the function of an oracle are evaluated here to a `Truth`; intervals and
library functions themselves live in `verify.numbers.enclosure`.

Why raising the precision ends (Ziv's strategy, ACM TOMS 17(3), 1991): a number is undecided for ever
only if it equals a value or midpoint of a format, which are rational, and is not known to be exact.
  * exp, expm1, tanh, sin, atan of a rational x != 0 and log, log1p of a rational other than the exact point are
    transcendental (Lindemann-Weierstrass; Baker, Transcendental Number Theory, 1975, theorem 1.4), as is pi/2.
    Of erf this is not known; so far none has been met.
  * exp2(p/q) and x^(p/q), in lowest terms, are rational only where x is the q-th power of a rational,
    log2(x) only for a power of two (unique factorization). These cases, and perfect squares under
    sqrt and rsqrt, are found and kept exact.
  * x^n too long to be kept exact has an odd part longer than any format's significand.
Sums and products of such numbers need an oracle that keeps its own exact cases exact.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import accumulate
from typing import Any

import numpy as np
from mpmath.libmp import finf, fninf, from_int, from_rational, fzero, mpf_le, mpf_lt, to_str

from verify.facts.formats import Format
from verify.facts.oracle import Oracle, OracleError
from verify.facts.truth import HUGE, LIMIT, TINY, ZERO, Truth
from verify.numbers import Undecidable
from verify.numbers import enclosure as en
from verify.numbers.functions import EXACT_BITS, Function, exact_power, offer
from verify.numbers.operators import Arithmetic, Binary, Comparing

#: Odd significands up to this length can be values or midpoints of a format (precision 53).
SHORT_BITS = 64

NAN, INF, EXACT, INTERVAL, FAILED = "nan", "infinity", "exact", "interval", "failed"

Number = int | float | Fraction | str


class MpValue(Arithmetic, Comparing):
    """An extended real under an `MpSystem`. Build it with `MpSystem.input` or `.const`.

    kind      NAN, INF, EXACT, INTERVAL, or FAILED: no value, with the reason in `why` (None: more
              precision is needed). A failure is kept as a value so that `where` may discard it.
    given     an exact input, its negation or absolute value: the only values that may be compared. As an interval,
              every input of a span: a comparison tells what holds for all, or raises Undecidable
    """

    __slots__ = ("bounds", "exact", "given", "kind", "negative", "system", "why")

    def __init__(
        self,
        system: MpSystem,
        kind: str,
        exact: Fraction = ZERO,
        bounds: en.Interval = en.WHOLE,
        negative: bool = False,
        given: bool = False,
        why: str | None = None,
    ) -> None:
        self.system = system
        self.kind = kind
        self.exact = exact  # for EXACT
        self.bounds = bounds  # for INTERVAL
        self.negative = negative  # sign bit, for NAN, INF and EXACT
        self.given = given
        self.why = why

    def __repr__(self) -> str:
        sign = "-" if self.negative else ""
        if self.kind == EXACT:
            return _digits(self.exact) if self.exact else f"{sign}0"
        if self.kind == INTERVAL:
            return " .. ".join(_digits(_end(end)) for end in self.bounds)
        return {NAN: "nan", INF: f"{sign}inf"}.get(self.kind, self.why or "undecided")

    def __neg__(self) -> MpValue:
        if self.kind == INTERVAL:
            return self.system.interval(en.negate(self.bounds), self.given)
        if self.kind == FAILED:
            return self
        return MpValue(self.system, self.kind, -self.exact, negative=not self.negative, given=self.given)

    def __abs__(self) -> MpValue:
        if self.kind == INTERVAL:
            sign = en.sign(self.bounds)
            return self.system.failed() if sign == 0 else self if sign > 0 else -self
        return -self if self.negative else self

    def _operate(self, op: Binary, left: Any, right: Any) -> MpValue:
        x, y = self.system.value(left), self.system.value(right)
        if op in (operator.add, operator.sub):
            return self.system.add(x, y if op is operator.add else -y)
        return (self.system.multiply if op is operator.mul else self.system.divide)(x, y)

    def _compare(self, op: Binary, other: Any) -> np.bool_:
        other = self.system.value(other)
        self.require_given("comparison")
        other.require_given("comparison")
        if self.kind == other.kind == EXACT:  # by integers, in a fifth of the time that Fraction takes
            a, b = self.exact, other.exact
            return np.bool_(op(a.numerator * b.denominator, b.numerator * a.denominator))
        if INTERVAL in (self.kind, other.kind):
            return np.bool_(op(*_spanning(self, other)))
        return np.bool_(NAN not in (self.kind, other.kind) and op(self.order, other.order))

    def __ne__(self, other: object) -> np.bool_:  # type: ignore[override]
        return ~self._compare(operator.eq, other)

    def __bool__(self) -> bool:
        raise Undecidable("a number used as a condition; write a predicate such as x == 0 or n.is_nan(x)")

    @property
    def order(self) -> Fraction | float:
        """An exact or infinite value, for comparisons."""
        return self.exact if self.kind == EXACT else -math.inf if self.negative else math.inf

    def require_given(self, what: str) -> None:
        """Raise Undecidable unless this is an exact input."""
        if not self.given:
            raise Undecidable(f"{what} on a computed value ({self!r}); predicates take exact inputs only")

    def truth(self) -> Truth:
        """The value as a Truth; one of unknown sign where more precision is needed.

        Raises OracleError where the value is undefined over the reals.
        """
        if self.kind == EXACT:
            if self.exact:
                return Truth.real(self.exact, self.exact)
            return Truth("-0" if self.negative else "+0")
        if self.kind == INTERVAL:
            return _interval_truth(self.bounds)
        if self.kind == NAN:
            return Truth("nan")
        if self.kind == INF:
            return Truth("-inf" if self.negative else "+inf")
        if self.why is None:
            return Truth("real", -HUGE, HUGE)
        raise OracleError(self.why)


class MpSystem:
    """The number system at a working precision in bits. See `verify.numbers` for the protocol.

    + - * / follow IEEE 754-2019, 6.1 to 6.3, on NaNs, infinities and zeros, and are exact on finite
    exact values: there is no overflow. A library function that is undefined over the reals at its
    argument gives a failed value, from which `truth` and `evaluate` raise OracleError.
    """

    def __init__(self, precision: int) -> None:
        if precision < 16:
            raise ValueError(f"precision {precision}; expected at least 16 bits")
        self.precision = precision

    # Values

    def input(self, bits: int, fmt: Format) -> MpValue:
        """The exact input of a bit pattern; NaNs, infinities and signed zeros included."""
        negative = bool(bits & fmt.sign_bit)
        if bits & ~fmt.sign_bit >= fmt.inf_bits:
            return MpValue(self, NAN if fmt.is_nan(bits) else INF, negative=negative, given=True)
        return MpValue(self, EXACT, fmt.fraction(bits), negative=negative, given=True)

    def const(self, number: Number) -> MpValue:
        """An exact constant: int, Fraction, a string such as '1/3', or the exact value of a double."""
        if isinstance(number, float):
            negative = math.copysign(1.0, number) < 0
            if not math.isfinite(number):
                return MpValue(self, INF if math.isinf(number) else NAN, negative=negative, given=True)
            return MpValue(self, EXACT, _rational(number), negative=negative, given=True)
        exact = _rational(number)
        return MpValue(self, EXACT, exact, negative=exact.numerator < 0, given=True)

    def value(self, number: Any) -> MpValue:
        """An operand: a value of some MpSystem, taken over unchanged, or a constant."""
        if not isinstance(number, MpValue):
            return self.const(number)
        if number.system is self:
            return number
        return MpValue(self, number.kind, number.exact, number.bounds, number.negative, number.given, number.why)

    def rational(self, exact: Fraction, negative: bool = False) -> MpValue:
        """A computed rational; `negative` is the sign of a zero. Too long a one becomes an interval."""
        if not exact:
            return MpValue(self, EXACT, exact, negative=negative)
        if exact.numerator.bit_length() + exact.denominator.bit_length() > EXACT_BITS:
            return self.interval(en.inflate(en.from_fraction(exact, self.precision + 2)[0], self.precision))
        return MpValue(self, EXACT, exact, negative=exact.numerator < 0)

    def span(self, first: int, last: int, fmt: Format) -> MpValue:
        """All inputs between two finite patterns of one sign, both included; neither is zero."""
        near, far = (bits & ~fmt.sign_bit for bits in sorted((first, last)))
        sign = first & fmt.sign_bit
        if (first ^ last) & fmt.sign_bit or not 0 < near <= far < fmt.inf_bits:
            raise ValueError(
                f"{fmt.hex(first)} to {fmt.hex(last)}; expected finite numbers of one sign, none of them 0"
            )
        outer = finf if far + 1 == fmt.inf_bits else en.from_fraction(fmt.fraction(far + 1), 64)[0]
        bounds = en.from_fraction(fmt.fraction(near - 1), 64)[0], outer
        return self.interval(en.negate(bounds) if sign else bounds, given=True)

    def interval(self, bounds: en.Interval, given: bool = False) -> MpValue:
        return MpValue(self, INTERVAL, bounds=bounds, negative=en.sign(bounds) < 0, given=given)

    def failed(self, why: str | None = None) -> MpValue:
        return MpValue(self, FAILED, why=why)

    def bounds(self, x: MpValue) -> en.Interval:
        """Enclosure of an exact value or interval."""
        return x.bounds if x.kind == INTERVAL else en.from_fraction(x.exact, self.precision + 4)

    # Arithmetic

    def add(self, a: MpValue, b: MpValue) -> MpValue:
        if a.kind == b.kind == EXACT:
            # x + (-x) is +0; only zeros of one sign keep it (IEEE 754-2019, 6.3).
            return self.rational(a.exact + b.exact, a.negative and b.negative)
        if (odd := self._failed_or_nan(a, b)) is not None:
            return odd
        if INF in (a.kind, b.kind):
            if a.kind == b.kind and a.negative != b.negative:
                return MpValue(self, NAN)
            return MpValue(self, INF, negative=(a if a.kind == INF else b).negative)
        return self.interval(en.add(self.bounds(a), self.bounds(b), self.precision))

    def multiply(self, a: MpValue, b: MpValue) -> MpValue:
        if a.kind == b.kind == EXACT:
            return self.rational(a.exact * b.exact, a.negative != b.negative)
        if (odd := self._failed_or_nan(a, b)) is not None:
            return odd
        zero, infinite = _is_zero(a) or _is_zero(b), INF in (a.kind, b.kind)
        if zero and infinite:
            return MpValue(self, NAN)
        if zero or infinite:
            return self._signed(EXACT if zero else INF, _sign(a) * _sign(b))
        return self.interval(en.multiply(self.bounds(a), self.bounds(b), self.precision))

    def divide(self, a: MpValue, b: MpValue) -> MpValue:
        if a.kind == b.kind == EXACT and b.exact:
            return self.rational(a.exact / b.exact, a.negative != b.negative)
        if (odd := self._failed_or_nan(a, b)) is not None:
            return odd
        if a.kind == b.kind == INF or (_is_zero(a) and _is_zero(b)):
            return MpValue(self, NAN)
        if a.kind == INF or _is_zero(b):
            return self._signed(INF, _sign(a) * _sign(b))
        if b.kind == INF or (_is_zero(a) and _sign(b)):
            return self._signed(EXACT, _sign(a) * _sign(b))
        if not _sign(b):
            return self.failed()
        return self.interval(en.multiply(self.bounds(a), en.reciprocal(self.bounds(b), self.precision), self.precision))

    def _signed(self, kind: str, sign: int) -> MpValue:
        """An infinity or (EXACT) a zero of that sign; 0 says that the sign is not known yet."""
        if not sign:
            return self.failed()
        return MpValue(self, kind, negative=sign < 0)

    def _failed_or_nan(self, a: MpValue, b: MpValue) -> MpValue | None:
        for x in (a, b):
            if x.kind == FAILED:
                return self.value(x)
        return MpValue(self, NAN) if NAN in (a.kind, b.kind) else None

    # Library functions

    def __getattr__(self, name: str) -> Callable[..., MpValue]:
        return offer(name, self.apply)

    def apply(self, entry: Function, argument: Any) -> MpValue:
        x = self.value(argument)
        if x.kind == FAILED:
            return x
        if x.kind == INF and entry.limits:
            lo, hi = entry.enclose(fninf if x.negative else finf, self.precision)
            if lo != hi:  # an irrational limit, which no row can give
                return self.interval((lo, hi))
        if x.kind in (NAN, INF):
            return self._undefined(entry.name, x)
        if x.kind == EXACT:
            undefined = entry.lower is not None and x.exact <= entry.lower
            if (exact := entry.at(x.exact, undefined)) is not None:
                return self.rational(exact, x.negative)
            if undefined:
                return self._undefined(entry.name, x)
        elif entry.lower is not None:
            lower = from_int(entry.lower)
            if mpf_le(x.bounds[1], lower):
                return self._undefined(entry.name, x)
            if mpf_lt(x.bounds[0], lower):
                return self.failed()
        return self.interval(entry.over(entry.enclose, self.bounds(x), self.precision))

    def _undefined(self, name: str, *arguments: MpValue) -> MpValue:
        call = f"{name}({', '.join(map(repr, arguments))})"
        return self.failed(f"{call} is undefined over the reals; give these inputs a special row")

    def pow(self, base: Any, exponent: Any) -> MpValue:
        """x^y over the reals: x > 0, or x < 0 and an integer y, or 0 to a positive y; x^0 = 1."""
        x, y = self.value(base), self.value(exponent)
        for operand in (x, y):
            if operand.kind == FAILED:
                return operand
        if {x.kind, y.kind} & {NAN, INF}:
            return self._undefined("pow", x, y)
        if _is_zero(y) or (x.kind == EXACT and x.exact == 1):
            return self.rational(Fraction(1))
        if _is_zero(x):
            if not _sign(y):
                return self.failed()
            return self._undefined("pow", x, y) if _sign(y) < 0 else self.rational(ZERO, x.negative and _is_odd(y))
        if not _sign(x):
            return self.failed()
        if _sign(x) < 0:
            if y.kind != EXACT or y.exact.denominator != 1:
                return self._undefined("pow", x, y)
            return -self.pow(-x, y) if _is_odd(y) else self.pow(-x, y)
        if x.kind == y.kind == EXACT:
            exact = exact_power(x.exact, y.exact)
            if exact is not None:
                return self.rational(exact)
        product = self._times_log(x, y, 40)
        size = max(map(en.magnitude, product))
        if size > 32:
            product = self._times_log(x, y, 8 + min(size, en.WIDE))
        return self.interval(en.increasing(en.exp, product, self.precision))

    def _times_log(self, x: MpValue, y: MpValue, extra: int) -> en.Interval:
        """y log(x) with `extra` bits: its absolute error is the relative error of its exponential."""
        wide = MpSystem(self.precision + extra)
        return wide.multiply(y, wide.log(x)).bounds

    # Selection and reductions

    def where(self, predicate: Any, a: Any, b: Any) -> MpValue:
        """a where the predicate holds, else b; the other one may be undefined."""
        return self._computed(self.value(a if decided(predicate) else b))

    def max(self, *values: Any) -> MpValue:
        """The largest, NaN if one is NaN, +0 above -0: maximum of IEEE 754-2019, 9.6."""
        return self._computed(reduce(self._larger, map(self.value, values)))

    def min(self, *values: Any) -> MpValue:
        """The smallest, NaN if one is NaN, -0 below +0: minimum of IEEE 754-2019, 9.6."""
        return -self.max(*(-self.value(v) for v in values))

    def sum(self, values: Sequence[Any]) -> MpValue:
        """The sum from left to right; +0 of nothing."""
        return reduce(self.add, map(self.value, values)) if values else self.rational(ZERO)

    def dot(self, a: Sequence[Any], b: Sequence[Any]) -> MpValue:
        return self.sum([self.value(x) * y for x, y in zip(a, b, strict=True)])

    def cumsum(self, values: Sequence[Any]) -> list[MpValue]:
        return list(accumulate(map(self.value, values), self.add))

    def _computed(self, x: MpValue) -> MpValue:
        return MpValue(self, x.kind, x.exact, x.bounds, x.negative, why=x.why)

    def _larger(self, a: MpValue, b: MpValue) -> MpValue:
        if (odd := self._failed_or_nan(a, b)) is not None:
            return odd
        if INTERVAL not in (a.kind, b.kind):
            if a.order == b.order:
                return b if a.negative else a
            return a if a.order > b.order else b
        if INF in (a.kind, b.kind):
            infinite, other = (a, b) if a.kind == INF else (b, a)
            return other if infinite.negative else infinite
        if a.kind == INTERVAL:
            a, b = b, a
        low, high = self.bounds(a)
        if a.kind == EXACT:
            if not mpf_lt(low, b.bounds[1]):
                return a
            # The maximum may be a itself, which an open interval from a would leave out.
            return self.interval((b.bounds[0], en.larger((high, high), b.bounds)[1]))
        return self.interval(en.larger(a.bounds, b.bounds))

    # Predicates on exact inputs

    def is_nan(self, x: MpValue) -> np.bool_:
        x.require_given("is_nan")
        return np.bool_(x.kind == NAN)

    def is_inf(self, x: MpValue) -> np.bool_:
        x.require_given("is_inf")
        return np.bool_(x.kind == INF)

    def is_zero(self, x: MpValue) -> np.bool_:
        x.require_given("is_zero")
        return np.bool_(_is_zero(x))

    def signbit(self, x: MpValue) -> np.bool_:
        x.require_given("signbit")
        return np.bool_(x.negative)

    def is_integer(self, x: MpValue) -> np.bool_:
        """Whether x is a finite integer."""
        _require_one(x, "is_integer")
        return np.bool_(x.kind == EXACT and x.exact.denominator == 1)

    def is_odd(self, x: MpValue) -> np.bool_:
        """Whether x is a finite odd integer."""
        _require_one(x, "is_odd")
        return np.bool_(_is_odd(x))


#: Rows and conditions name the same few constants for every element.
_rational = lru_cache(1024)(Fraction)


def _is_zero(x: MpValue) -> bool:
    return x.kind == EXACT and not x.exact


def _is_odd(x: MpValue) -> bool:
    return x.kind == EXACT and x.exact.denominator == 1 and x.exact.numerator % 2 == 1


def _sign(x: MpValue) -> int:
    """+1 or -1, the sign bit for zeros and infinities; 0 where an interval leaves it open."""
    return en.sign(x.bounds) if x.kind == INTERVAL else -1 if x.negative else 1


def _require_one(x: MpValue, what: str) -> None:
    x.require_given(what)
    if x.kind == INTERVAL:
        raise Undecidable(f"{what} of a span of inputs")


def _spanning(a: MpValue, b: MpValue) -> tuple[Fraction | float, Fraction | float]:
    """Two numbers that compare as every number of a span does with another one."""
    if b.kind == INTERVAL:
        return _spanning(b, a)[::-1]
    lo, hi = map(_end, a.bounds)
    if b.kind in (INTERVAL, NAN) or lo < b.order < hi:
        raise Undecidable(f"a comparison of {a!r} with {b!r}, which is not the same for all")
    return (lo + hi) / 2, b.order


def decided(predicate: Any) -> bool:
    if isinstance(predicate, (bool, np.bool_)):
        return bool(predicate)
    raise Undecidable(f"{predicate!r} as a condition; expected a predicate on exact inputs, such as x < 0")


def _digits(value: Fraction) -> str:
    """20 decimal digits, for messages."""
    digits: str = to_str(from_rational(value.numerator, value.denominator, 80, "n"), 20)
    return digits


# Truth


def _interval_truth(bounds: en.Interval) -> Truth:
    lo, hi = _end(bounds[0]), _end(bounds[1])
    # An interval is open. Where an end is short enough to be a number or midpoint of a format, say
    # which side of it t is on: shift it inward by less than any format could tell.
    if bounds[0][3] <= SHORT_BITS and 0 not in (lo, hi):
        lo += min(abs(lo) * TINY, (hi - lo) / 4)
    if bounds[1][3] <= SHORT_BITS and 0 not in (lo, hi):
        hi -= min(abs(hi) * TINY, (hi - lo) / 4)
    if not lo:
        lo = TINY
    if not hi:
        hi = -TINY
    return Truth("real", lo, hi)


def _end(x: en.Mpf) -> Fraction:
    """An end of an interval, with its magnitude clamped as in `Truth.real`."""
    if x == fzero:
        return ZERO
    size = en.magnitude(x)
    if x[1] and -LIMIT < size <= LIMIT:
        return en.to_fraction(x)
    limit = TINY if x[1] and size < 0 else HUGE
    return -limit if x[0] else limit


_OUTCOMES = {
    "nan": Truth("nan"),
    "+inf": Truth("+inf"),
    "-inf": Truth("-inf"),
    "+0": Truth("+0"),
    "-0": Truth("-0"),
    "either-zero": Truth("either-zero"),
    "+huge": Truth("real", HUGE, HUGE),
    "-huge": Truth("real", -HUGE, -HUGE),
    "+tiny": Truth("real", TINY, TINY),
    "-tiny": Truth("real", -TINY, -TINY),
}


def evaluate(oracle: Oracle, values: Mapping[str, MpValue], precision: int) -> Truth:
    """What `oracle` says of exact inputs, at `precision` bits: its rows first, then its function.

    An arithmetic oracle takes infinities, NaNs and the sign of an exact zero from IEEE arithmetic.
    Any other gives +0 for an exact zero without a row. Raises OracleError where the result
    is a NaN, infinite or undefined and no row says so.
    """
    n = MpSystem(precision)
    inputs = {name: n.value(value) for name, value in values.items()}
    for row in oracle.rows:
        if decided(row.when(n, **inputs)):
            return outcome(oracle, row.gives)
    result = n.value(oracle.function(n, **inputs))
    if oracle.arithmetic:
        return result.truth()
    if result.kind in (NAN, INF):
        raise OracleError(f"{_at(oracle, values)} is {result!r}; give these inputs a special row")
    if result.kind == FAILED and result.why:
        raise OracleError(f"{_at(oracle, values)}: {result.why}")
    return Truth("+0") if _is_zero(result) else result.truth()


def _at(oracle: Oracle, values: Mapping[str, MpValue]) -> str:
    return f"{oracle.name}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def outcome(oracle: Oracle, gives: str | Fraction) -> Truth:
    if isinstance(gives, str):
        return _OUTCOMES[gives]
    if not gives:
        raise OracleError(f"{oracle.name}: a special row gives 0 without a sign; say '+0', '-0' or 'either-zero'")
    return Truth.real(gives, gives)


def evaluate_expression(function: Callable[..., Any], values: Mapping[str, MpValue], precision: int) -> Any:
    """`function(n, **values)` at `precision` bits: an oracle's scale or intermediates."""
    n = MpSystem(precision)
    return function(n, **{name: n.value(value) for name, value in values.items()})


def enclosures(
    oracle: Oracle,
    inputs: Mapping[str, int],
    scalars: Mapping[str, float],
    fmt: Format,
    start: int = 96,
    cap: int = 12288,
) -> Iterator[Truth]:
    """Ever narrower truths, for a caller that stops when its question is decided.

    inputs are bit patterns in `fmt`, scalars doubles meant exactly. The precision doubles from
    `start` to at most `cap` bits, or until the truth is exact.
    """
    n = MpSystem(start)
    values = {name: n.input(bits, fmt) for name, bits in inputs.items()}
    values |= {name: n.const(scalar) for name, scalar in scalars.items()}
    precision = start
    while precision <= cap:
        truth = evaluate(oracle, values, precision)
        yield truth
        if truth.exact:
            return
        precision *= 2
