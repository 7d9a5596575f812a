"""float64 arithmetic and the error-free transformations of `verify.numbers.ball`, compared with Python's integers.

What is required of a device, in the form in which it is used:

  + - * /          correctly rounded (IEEE 754-2019, 4.3.1), with the signs of zeros, infinities and NaNs of 6.1 to 7.3
  TwoSum           exact below 2^1020, also of a product that was just computed (it might be contracted)
  TwoProd          exact for factors below 2^990 and products from 2^-900 to 2^1020
  square root      within one ULP, which `verify.numbers.ieee` rounds correctly
  float32          + - * /, square root and fma as `verify.numbers.ieee` spells them, correctly rounded; of some pairs

Operands have full hashed significands: ordinary ones, of all exponents, with subnormal results, that cancel, that make
midpoints of sums; and special values in all pairs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import torch

from verify.facts.formats import FORMATS
from verify.numbers.casts import Floats, hashed
from verify.numbers.transforms import round_to, round_to_odd, two_prod, two_sum

Tensor = torch.Tensor
LARGEST = float.fromhex("0x1.fffffffffffffp+1023")


def computed(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """One result of each operation, two of each transformation: see `_due`; then the square root, and float32's
    operations."""
    x, y = (t.to(torch.float32).to(torch.float64) for t in (a, b))
    single = (x + y, x - y, x * y, x / y, torch.sqrt(x), round_to_odd(*two_sum(x * y, x)))
    doubles = (a + b, a - b, a * b, a / b, *two_sum(a, b), *two_prod(a, b), *two_sum(a * b, a), torch.sqrt(a))
    return (*doubles, *(round_to(t, FORMATS["float32"]) for t in single))


def complaints(device: str, form: Callable[..., Any]) -> dict[str, str]:
    """The operations that go wrong, each with the first operands that show it. form: see `primitives`."""
    columns = _operands()
    given = [torch.tensor(column, dtype=torch.float64, device=device) for column in columns]
    results = [t.cpu().numpy() for t in form(computed)(*given)]
    roots, singles = results[10], results[11:]
    found: dict[str, str] = {}
    for operation, places, due in _due():
        got = np.stack([results[place] for place in places])
        bits, right = got.view(np.int64), due.view(np.int64)  # numbers would compare as zeros where the host flushes
        if len(places) > 1:
            bits = np.where(bits == -(1 << 63), 0, bits)
        wrong = (bits != right) & ~(np.isnan(got) & np.isnan(due))
        if len(places) > 1:
            wrong &= ~np.isnan(due)
        if wrong.any():
            k = int(wrong.any(0).argmax())
            of = " and ".join(column[k].hex() for column in columns)
            found[operation] = f"of {of} it gives {_shown(got[:, k])}, not {_shown(due[:, k])}"
    for x, root in zip(columns[0], roots.tolist(), strict=True):
        if not _is_root(x, root):
            found["float64 sqrt"] = f"of {x.hex()} it gives {root.hex()}, more than an ULP off"
            break
    for operation, got, expected in zip(SINGLE, singles, zip(*_due_in_single(), strict=True), strict=True):
        for pair, mine, due_ in zip(_pairs_in_single(), got[::EIGHTH].tolist(), expected, strict=True):
            if not _same(mine, due_):
                of = " and ".join(x.hex() for x in pair)
                found[f"float32 {operation}"] = f"of {of} it gives {mine.hex()}, not {due_.hex()}"
                break
    return found


SINGLE = ("+", "-", "*", "/", "sqrt", "fma")  # the results of float32 in `computed`, in order
EIGHTH = 8


@functools.cache
def _pairs_in_single() -> tuple[tuple[float, float], ...]:
    """Every eighth pair of operands, rounded to float32."""
    columns = [[_to_single(x) for x in column[::EIGHTH]] for column in _operands()]
    return tuple(zip(*columns, strict=True))


def _to_single(x: float) -> float:
    return math.copysign(_near(*x.as_integer_ratio()), x) if math.isfinite(x) else x


def _near(n: int, d: int) -> float:
    """RN(n / d) in float32."""
    fmt = FORMATS["float32"]
    return fmt.to_float(fmt.round(Fraction(n, d)))


@functools.cache
def _due_in_single() -> tuple[tuple[float, ...], ...]:
    """What each of SINGLE gives of each pair."""
    return tuple(
        (
            _single(_add(x, y), _sum(x, y) if math.isfinite(x - y) else None),
            _single(_add(x, -y), _sum(x, -y) if math.isfinite(x - y) else None),
            _single(_multiply(x, y), _product(x, y) if math.isfinite(x) and math.isfinite(y) else None),
            _single(_divide(x, y), _quotient(x, y)),
            _root(x),
            _single(_add(_multiply(x, y), x), _product_sum(x, y)),
        )
        for x, y in _pairs_in_single()
    )


def _single(double: float, exact: tuple[int, int] | None) -> float:
    """RN in float32 of an exact result, of which `double` is RN in float64: that one where it is special or a zero."""
    return double if exact is None or double == 0 or not math.isfinite(double) else _near(*exact)


def _quotient(x: float, y: float) -> tuple[int, int] | None:
    if not (math.isfinite(x) and math.isfinite(y) and y):
        return None
    (n, d), (m, e) = x.as_integer_ratio(), y.as_integer_ratio()
    return n * e, d * m


def _product_sum(x: float, y: float) -> tuple[int, int] | None:
    """x y + x."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return None
    (n, d), (m, e) = x.as_integer_ratio(), y.as_integer_ratio()
    return n * m + n * e, d * e


def _root(x: float) -> float:
    """The square root, correctly rounded to float32: by integers, with a bit that tells whether more follow."""
    if math.isnan(x) or x < 0:
        return math.nan
    if x == 0 or math.isinf(x):
        return x
    n, d = x.as_integer_ratio()
    shift = 4 * 40
    whole = math.isqrt((n << 2 * shift) // d)
    return _near(2 * whole + (whole * whole * d != n << 2 * shift), 1 << shift + 1)


def _same(x: float, y: float) -> bool:
    return (x == y and math.copysign(1.0, x) == math.copysign(1.0, y)) or (x != x and y != y)


def _shown(values: Floats) -> str:
    return " and ".join(value.hex() for value in values.tolist())


@functools.cache
def _operands() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Pairs: ordinary ones; of all exponents; with subnormal results; that cancel; midpoints of sums; special ones."""
    count = 160
    ranges = ((-4, 4), (-60, 60), (-400, 400), (-1074, 1023), (-545, -500), (-1074, -1015))
    pairs = [(hashed(k, count, *r), hashed(k + 50, count, *r)) for k, r in enumerate(ranges)]
    pairs.append((hashed(7, count, -1060, -1000), hashed(57, count, -10, 60)))  # subnormal quotients
    a, b = hashed(8, count, -60, 60), hashed(58, count, 0, 5)
    pairs += [(a, -a * (1 + np.round(b) * 2.0**-52)), (a, np.spacing(a) / 2), (a, np.spacing(a) * b)]
    ends = [0.0, 2.0**-1074, 2.0**-1022, 1.0, 1.5, 3.0, 2.0**970, LARGEST, math.inf, math.nan]
    grid = np.array(list(product([*ends, *(-end for end in ends[:-1])], repeat=2)))
    pairs.append((grid[:, 0], grid[:, 1]))
    first, second = (np.concatenate(column).tolist() for column in zip(*pairs, strict=True))
    return tuple(first), tuple(second)


@functools.cache
def _due() -> tuple[tuple[str, tuple[int, ...], Floats], ...]:
    """Operation, indices of its results in `computed`, and their expected values for each pair of operands: one number,
    or the rounded one and its error (zeros of any sign; NaN where nothing is required)."""
    pairs = list(zip(*_operands(), strict=True))
    nothing = math.nan, math.nan
    sums, products, nested = [], [], []
    for x, y in pairs:
        p = _multiply(x, y)
        small = abs(x) < 2.0**1020 and abs(y) < 2.0**1020  # of a NaN neither
        sums.append(_with_error(*_sum(x, y)) if small else nothing)
        # Dekker's splitting must not overflow, and the error of the product be no subnormal
        fine = abs(x) < 2.0**990 and abs(y) < 2.0**990 and (2.0**-900 < abs(p) < 2.0**1020 or 0 in (x, y))
        products.append(_with_error(*_product(x, y)) if fine else nothing)
        nested.append(_with_error(*_sum(p, x)) if fine else nothing)
    return (
        ("float64 +", (0,), np.array([[_add(x, y) for x, y in pairs]])),
        ("float64 -", (1,), np.array([[_add(x, -y) for x, y in pairs]])),
        ("float64 *", (2,), np.array([[_multiply(x, y) for x, y in pairs]])),
        ("float64 /", (3,), np.array([[_divide(x, y) for x, y in pairs]])),
        ("TwoSum", (4, 5), np.array(sums).T.copy()),
        ("TwoProd", (6, 7), np.array(products).T.copy()),
        ("TwoSum of a product", (8, 9), np.array(nested).T.copy()),
    )


def _add(x: float, y: float) -> float:
    """IEEE 754-2019, 6.1, 6.3 and 7.2."""
    if math.isnan(x) or math.isnan(y) or (math.isinf(x) and math.isinf(y) and x != y):
        return math.nan
    if math.isinf(x) or math.isinf(y):
        return x if math.isinf(x) else y
    negative = x == 0 == y and math.copysign(1.0, x) + math.copysign(1.0, y) < 0
    return -0.0 if negative else _rounded(*_sum(x, y))


def _multiply(x: float, y: float) -> float:
    sign = math.copysign(1.0, x) * math.copysign(1.0, y)
    if math.isnan(x) or math.isnan(y) or (0 in (x, y) and math.inf in (abs(x), abs(y))):
        return math.nan
    if math.isinf(x) or math.isinf(y):
        return sign * math.inf
    return math.copysign(_rounded(*_product(x, y)), sign)


def _divide(x: float, y: float) -> float:
    """7.3: a finite number other than zero, divided by zero, is an infinity."""
    sign = math.copysign(1.0, x) * math.copysign(1.0, y)
    if math.isnan(x) or math.isnan(y) or x == 0 == y or (math.isinf(x) and math.isinf(y)):
        return math.nan
    if math.isinf(x) or y == 0:
        return sign * math.inf
    if math.isinf(y):
        return sign * 0.0
    (n, d), (m, e) = abs(x).as_integer_ratio(), abs(y).as_integer_ratio()
    return math.copysign(_rounded(n * e, d * m), sign)


def _sum(x: float, y: float) -> tuple[int, int]:
    (n, d), (m, e) = x.as_integer_ratio(), y.as_integer_ratio()
    return n * e + m * d, d * e


def _product(x: float, y: float) -> tuple[int, int]:
    (n, d), (m, e) = x.as_integer_ratio(), y.as_integer_ratio()
    return n * m, d * e


def _rounded(n: int, d: int) -> float:
    """RN(n / d): CPython divides integers with one rounding, subnormal results included."""
    try:
        return n / d
    except OverflowError:
        return math.inf if n > 0 else -math.inf


def _with_error(n: int, d: int) -> tuple[float, float]:
    """RN(n / d) and n / d - RN(n / d), which a float64 holds; zeros are positive."""
    near = _rounded(n, d)
    m, e = near.as_integer_ratio()
    return near, _rounded(n * e - m * d, d * e)


def _is_root(x: float, root: float) -> bool:
    """Whether `root` is less than an ULP from the square root of x; special values as in 5.4.1."""
    if math.isnan(x) or x < 0:
        return math.isnan(root)
    if x == 0 or math.isinf(x):
        return _same(x, root)
    if not 0 < root < math.inf:
        return False
    significand, exponent = math.frexp(root)
    whole, shift = int(significand * 2.0**53), 2 * (53 - exponent)  # x = n / d against (whole +- 1)^2 / 2^shift
    n, d = x.as_integer_ratio()
    n, d = (n << shift, d) if shift >= 0 else (n, d << -shift)
    return (whole - 1) ** 2 * d < n < (whole + 1) ** 2 * d
