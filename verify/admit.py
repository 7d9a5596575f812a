"""Admission: which of a device's float64 operations may serve in a ball, and with which bound.

Nothing of torch is trusted unseen. Arithmetic, TwoSum and TwoProd must be exact to the bit; each
library function must stay within half of its bound of `verify.numbers.ball.LIBRARY` on strata of
ordinary, tiny, huge and special arguments, against multiprecision, in the form in which it is used.
What is not admitted leaves every element that needs it to multiprecision.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from verify.formats import FORMATS
from verify.numbers import mp
from verify.numbers.ball import LIBRARY, two_prod, two_sum

Tensor = torch.Tensor
F64 = FORMATS["float64"]
POINTS = 1536  # arguments a function is judged on


class NotAdmitted(Exception):
    """An operation that everything rests on does not round as IEEE 754 says on this device."""


@dataclass(frozen=True)
class Admitted:
    """A library function with its bound in units of 2^-53 |f|, and the largest error seen."""

    name: str
    form: str
    bound: float
    seen: float
    points: int


def library(device: Any, wrap: Callable[[Any], Any] | None = None) -> tuple[Admitted, ...]:
    """The admitted functions of the device's float64 library. Cached for each device and form.

    wrap: how a function is transformed before use (torch.compile, say); None: eager.
    Raises NotAdmitted where even + - * / do not round correctly.
    """
    return _library(str(device), wrap)


@functools.cache
def _library(device: str, wrap: Callable[[Any], Any] | None) -> tuple[Admitted, ...]:
    arithmetic(device, wrap)
    form = "eager" if wrap is None else "compiled"
    found = []
    for name, bound in LIBRARY.items():
        arguments = _pairs() if name == "pow" else [(x,) for x in _points(name)]
        columns = [torch.tensor(c, dtype=torch.float64, device=device) for c in zip(*arguments, strict=True)]
        function = getattr(torch, name)
        results = (wrap(function) if wrap else function)(*columns).tolist()
        seen = max(_error(name, a, r) for a, r in zip(arguments, results, strict=True))
        if seen <= bound / 2:
            found.append(Admitted(name, form, bound, seen, len(arguments)))
    return tuple(found)


def arithmetic(device: Any, wrap: Callable[[Any], Any] | None = None) -> None:
    """Compare + - * / and the error-free transformations with rationals."""
    values = [x for x, _ in zip(_mixed(), range(512), strict=False)]
    a = torch.tensor(values, dtype=torch.float64, device=device)
    b = torch.tensor(values[::-1], dtype=torch.float64, device=device)

    def everything(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return (a + b, a - b, a * b, a / b, *two_sum(a, b), *two_prod(a, b))

    rows = [t.tolist() for t in (wrap(everything) if wrap else everything)(a, b)]
    for k, (x, y) in enumerate(zip(values, values[::-1], strict=True)):
        p, q = Fraction(x), Fraction(y)
        exact = [p + q, p - q, p * q, p / q]
        for given, due, sign in zip((row[k] for row in rows[:4]), exact, "+-*/", strict=True):
            if math.isfinite(given) and F64.round(due) & ~F64.sign_bit != F64.round(Fraction(given)) & ~F64.sign_bit:
                raise NotAdmitted(
                    f"float64 {x!r} {sign} {y!r} gives {given!r} on {device}; correctly rounded it is not"
                )
        if Fraction(rows[4][k]) + Fraction(rows[5][k]) != exact[0]:
            raise NotAdmitted(f"TwoSum({x!r}, {y!r}) is not exact on {device}: it was contracted or reordered")
        safe = math.isfinite(rows[6][k]) and 2.0**-900 < abs(rows[6][k])
        if safe and Fraction(rows[6][k]) + Fraction(rows[7][k]) != exact[2]:
            raise NotAdmitted(f"TwoProd({x!r}, {y!r}) is not exact on {device}: it was contracted or reordered")


def _error(name: str, arguments: tuple[float, ...], given: float) -> float:
    """|given - f| in units of 2^-53 |f|; what lies under float64's normal range is absolute."""
    n = mp.MpSystem(160)
    value = getattr(n, name)(*(n.const(x) for x in arguments))
    truth = value.truth()
    if truth.kind != "real":
        return 0.0 if given == 0 else math.inf
    centre = (truth.lo + truth.hi) / 2
    top = 2 * F64.max_finite
    if abs(centre) >= F64.max_finite:
        return 0.0 if math.isinf(given) or abs(Fraction(given)) >= F64.max_finite / 2 else math.inf
    if math.isnan(given) or math.isinf(given):
        return math.inf
    error = min(abs(Fraction(given) - centre), top)
    if error <= F64.smallest_normal / 2:
        return float(error / (abs(centre) * F64.unit_roundoff)) if abs(centre) >= F64.smallest_normal else 0.0
    return float(error / (abs(centre) * F64.unit_roundoff))


def _words(seed: int) -> Iterator[int]:
    """A fixed sequence of 64-bit words: splitmix64 (Steele, Lea & Flood 2014)."""
    mask = (1 << 64) - 1
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def _float(word: int, low: int, high: int) -> float:
    """A number of either sign with an exponent in low..high."""
    exponent = low + (word >> 53) % (high - low + 1)
    value = math.ldexp(1 + (word & ((1 << 52) - 1)) * 2.0**-52, exponent)
    return -value if word >> 52 & 1 else value


def _mixed() -> Iterator[float]:
    for k, word in enumerate(_words(1)):
        yield _float(word, *((-60, 60), (-400, 400), (-4, 4))[k % 3])


#: Exponents of interesting arguments of each function; positive arguments only for logarithms.
_RANGES = {
    "exp": ((-60, -1), (-3, 9), (5, 9)),
    "expm1": ((-1000, -60), (-60, -1), (-3, 9)),
    "log": ((-1022, 1023), (-1, 0), (-20, 20)),
    "log1p": ((-1000, -60), (-60, -1), (-1, 100)),
    "sqrt": ((-1074, -1000), (-300, 300), (-1, 1)),
    "tanh": ((-1000, -60), (-60, -1), (-3, 6)),
}


def _points(name: str) -> list[float]:
    found = [0.0, -0.0] if name != "log" else []
    for k, word in enumerate(_words(2)):
        if len(found) >= POINTS:
            break
        x = _float(word, *_RANGES[name][k % 3])
        if k % 7 == 0 and name == "log":
            x = 1 + math.ldexp(float(word >> 40) - 2.0**23, -30)
        if name in ("log", "sqrt"):
            x = abs(x)
        if name == "log1p" and x <= -1:
            x = -x
        if x or name != "log":
            found.append(x)
    return found


def _pairs() -> list[tuple[float, float]]:
    """Bases and exponents whose power covers float64's range, bases near 1 with huge exponents too."""
    found: list[tuple[float, float]] = []
    words = _words(3)
    while len(found) < POINTS:
        first, second = next(words), next(words)
        if len(found) % 3 == 0:
            x = 1 + math.ldexp(float(first >> 12) * 2.0**-52 - 0.5, -(second & 31))
        else:
            x = abs(_float(first, -149, 127))
        exponent = math.frexp(x)[1] - 1 + math.frexp(x)[0] * 2 - 1
        target = 1100 * (2.0 * (second >> 11) * 2.0**-53 - 1)
        y = (
            float(FORMATS["float32"].fraction(FORMATS["float32"].round(Fraction(target / exponent))))
            if abs(exponent) > 1e-9
            else float(second % 64)
        )
        if 0 < x and abs(y) < 1e30:
            found.append((x, y))
    return found
