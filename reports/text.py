"""Numbers and names as text. Maxima and shares are rounded up, so that a printed number never understates an error."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context


def printable(text: str) -> str:
    """Control, format (bidirectional overrides) and unassigned characters as escapes such as \\x1b."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def upward(value: float, digits: int = 4) -> str:
    """`value` to `digits` significant digits, rounded towards +infinity; exact values stay short."""
    rounded = _ceiling(digits).create_decimal_from_float(value).normalize()
    plain = f"{rounded:f}"
    return plain if len(plain) <= digits + 4 else f"{rounded:.{digits - 1}e}"


@functools.cache  # a page of 100,000 cells rounds a million numbers
def _ceiling(digits: int) -> Context:
    return Context(prec=digits, rounding=ROUND_CEILING)


def percent(part: int, whole: int) -> str:
    """The share to 3 digits: '0%' and '100%' only where they are exact."""
    if part in (0, whole):
        return "100%" if part else "0%"
    share = 100 * part / whole
    return ">99.9%" if share > 99.9 else f"{share:.3g}%"


#: Scalars in the order of their names, with whether each is negative: -0.0 equals 0.0, and is another one.
ScalarsKey = tuple[tuple[str, float, bool], ...]


def scalars_key(scalars: Mapping[str, float]) -> ScalarsKey:
    return tuple((name, value, math.copysign(1, value) < 0) for name, value in sorted(scalars.items()))


def scalars_of(key: ScalarsKey) -> dict[str, float]:
    return {name: value for name, value, _ in key}


def scalars_text(scalars: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in scalars.items())


def count_text(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
