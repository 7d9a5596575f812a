"""pow(x, y) = x^y, torch.pow: tensor by tensor, scalar exponents and scalar bases.

Special values: C23 (N3220) F.10.4.5, the `pow` of IEEE 754-2019, 9.2.1; the rows are in its
words, ordered so that the first match wins. A negative base counts with an integer exponent
only; then |x|^y takes the exponent's parity as its sign. Overflow and underflow are left to the
number systems. Only exponents that frameworks expand into arithmetic have formulas; a library's
powf has no fixed sequence of roundings. In formulas storage(.) is rounding to the tensors' dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from verify.facts.oracle import Oracle, Row, formula, written

C23 = "C23 F.10.4.5"


def pow(n: Any, x: Any, y: Any) -> Any:
    magnitude = n.pow(abs(x), y)
    return n.where((x < 0) & n.is_odd(y), -magnitude, magnitude)


def intermediates(n: Any, x: Any, y: Any) -> tuple[Any, ...]:
    # Of all partial powers only |x|^|y| before its reciprocal can leave the range while the result
    # stays inside: 2^-127 before 2^127.
    return (n.where(y < 0, 1 / n.pow(abs(x), y), 1),)


def underflow(n: Any, x: Any, y: Any) -> Any:
    """1 / p for a subnormal power p: half a unit of p, at most p / 4, moves it by at most 1 / p^2 units."""
    p = n.pow(abs(x), y)
    return n.where(y < 0, p * p, 1)


ROWS = (
    Row(lambda n, x, y: n.is_zero(y), Fraction(1), f"{C23}: pow(x, +-0) is 1 for any x, even a NaN"),
    Row(lambda n, x, y: x == 1, Fraction(1), f"{C23}: pow(+1, y) is 1 for any y, even a NaN"),
    Row(lambda n, x, y: n.is_nan(x) | n.is_nan(y), "nan", "C23 F.10: otherwise a NaN argument gives a NaN"),
    Row(
        lambda n, x, y: n.is_zero(x) & n.signbit(x) & (y < 0) & n.is_odd(y),
        "-inf",
        f"{C23}: pow(+-0, y) is +-inf for y an odd integer < 0",
    ),
    Row(
        lambda n, x, y: n.is_zero(x) & (y < 0),
        "+inf",
        f"{C23}: pow(+-0, y) is +inf for y < 0 and not an odd integer, and for y = -inf; pow(+0, odd) as above",
    ),
    Row(
        lambda n, x, y: n.is_zero(x) & n.signbit(x) & n.is_odd(y),
        "-0",
        f"{C23}: pow(+-0, y) is +-0 for y an odd integer > 0",
    ),
    Row(
        lambda n, x, y: n.is_zero(x),
        "+0",
        f"{C23}: pow(+-0, y) is +0 for y > 0 and not an odd integer; pow(+0, odd) as above",
    ),
    Row(lambda n, x, y: n.is_inf(y) & (x == -1), Fraction(1), f"{C23}: pow(-1, +-inf) is 1"),
    Row(
        lambda n, x, y: n.is_inf(y) & (((abs(x) < 1) & (y < 0)) | ((abs(x) > 1) & (y > 0))),
        "+inf",
        f"{C23}: pow(x, -inf) is +inf for |x| < 1, pow(x, +inf) is +inf for |x| > 1",
    ),
    Row(
        lambda n, x, y: n.is_inf(y),
        "+0",
        f"{C23}: pow(x, -inf) is +0 for |x| > 1, pow(x, +inf) is +0 for |x| < 1",
    ),
    Row(
        lambda n, x, y: n.is_inf(x) & (x < 0) & (y < 0) & n.is_odd(y),
        "-0",
        f"{C23}: pow(-inf, y) is -0 for y an odd integer < 0",
    ),
    Row(
        lambda n, x, y: n.is_inf(x) & (y < 0),
        "+0",
        f"{C23}: pow(-inf, y) is +0 for y < 0 and not an odd integer; pow(+inf, y) is +0 for y < 0",
    ),
    Row(
        lambda n, x, y: n.is_inf(x) & (x < 0) & n.is_odd(y),
        "-inf",
        f"{C23}: pow(-inf, y) is -inf for y an odd integer > 0",
    ),
    Row(
        lambda n, x, y: n.is_inf(x),
        "+inf",
        f"{C23}: pow(-inf, y) is +inf for y > 0 and not an odd integer; pow(+inf, y) is +inf for y > 0",
    ),
    Row(
        lambda n, x, y: (x < 0) & ~n.is_integer(y),
        "nan",
        f"{C23}: pow(x, y) is a NaN for finite x < 0 and finite non-integer y",
    ),
)


def exponent(value: float) -> Callable[[dict[str, float]], bool]:
    return lambda scalars: scalars.get("y") == value


def expanded(scalars: dict[str, float]) -> bool:
    """Integer exponents that Inductor expands, and whose multiplications have several orders."""
    y = scalars.get("y", 0.0)
    return float(y).is_integer() and 3 < y < 32


# Inductor: the reciprocal first.
@formula("(1/x)*(1/x)", applies=exponent(-2))
def square_of_inverse(n: Any, x: Any, y: float) -> Any:
    reciprocal = 1 / x
    return reciprocal * reciprocal


@formula("storage(1/x)*storage(1/x)", applies=exponent(-2))
def square_of_inverse_storage(n: Any, x: Any, y: float) -> Any:
    reciprocal = n.cast(1 / x, n.storage)
    return reciprocal * reciprocal


# Inductor's pow_recursive.
@formula("x^y by squaring, from the exponent's leading bit: r = r*r (*x)", applies=expanded)
def squaring_from_left(n: Any, x: Any, y: float) -> Any:
    result = x
    for bit in f"{int(y):b}"[1:]:
        result = result * result
        if bit == "1":
            result = result * x
    return result


# The order of compiler-rt's __powisf2.
@formula("x^y by squaring, from the exponent's last bit: r = r*x^(2^k)", applies=expanded)
def squaring_from_right(n: Any, x: Any, y: float) -> Any:
    power, result = x, None
    for bit in f"{int(y):b}"[:0:-1]:
        if bit == "1":
            result = power if result is None else result * power
        power = power * power
    return power if result is None else result * power


@formula("((x*x)*x)*..., y - 1 products", applies=expanded)
def repeated_product(n: Any, x: Any, y: float) -> Any:
    result = x
    for _ in range(int(y) - 1):
        result = result * x
    return result


ORACLE = Oracle(
    pow,
    intermediates=intermediates,
    underflow=underflow,
    rows=ROWS,
    formulas=(
        # Eager CPU and CUDA take the exponents -1, 2, 3, 0.5, -0.5 and -2 apart (Pow.cuh, PowKernel.cpp).
        written("1/x", applies=exponent(-1)),
        written("x*x", applies=exponent(2)),
        written("(x*x)*x", applies=exponent(3)),
        # Eager CPU for bfloat16.
        written("storage(x*x)*x", applies=exponent(3)),
        written("sqrt(x)", applies=exponent(0.5)),
        written("1/sqrt(x)", applies=exponent(-0.5)),
        # Eager CUDA divides in double: 53 >= 2*24 + 2 bits make the second rounding harmless in normal
        # range (Figueroa 1995), and the quotient of two 24-bit numbers is never a subnormal midpoint.
        written("1/(x*x)", applies=exponent(-2)),
        # Eager CPU for bfloat16.
        written("1/storage(x*x)", applies=exponent(-2)),
        square_of_inverse,
        square_of_inverse_storage,
        squaring_from_left,
        squaring_from_right,
        repeated_product,
    ),
)
