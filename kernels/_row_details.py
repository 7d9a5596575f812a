"""What an explanation of a row kernel's element tells beside its terms."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verify.numbers.arrays import ExactRow

Lines = list[tuple[str, str]]
PRECISION = 96  # bits


def of_sum(row: ExactRow, position: int, stop: int) -> Lines:
    """The exact sum of the first `stop` terms, that of their magnitudes, and the condition number."""
    total, size = row.sum(stop), abs(row).sum(stop)
    lines = [("sum", _text(total)), ("sum of |x|", _text(size))]
    return [*lines, ("condition", f"{float(size / abs(total)):.3g}")] if total else lines


def of_exponentials(row: ExactRow, position: int, stop: int) -> Lines:
    """The maximum, and what the others add to it."""
    from verify.numbers.arrays import MpArrays

    m, r = MpArrays(PRECISION, stop - 1).cumsumexp(row)
    return [("m = max", repr(m[0])), ("sum exp(x - m) - 1", repr(r[0]))]


def of_probability(row: ExactRow, position: int, stop: int) -> Lines:
    """As `of_exponentials`, and the element's own argument."""
    from verify.numbers.arrays import MpArrays

    n = MpArrays(PRECISION, stop - 1)
    m, _ = n.cumsumexp(row)
    own = n.system.const(float(row.floats[position])) - m[0]
    return [*of_exponentials(row, position, stop), (f"x[{position}] - m", repr(own))]


def _text(value: Fraction) -> str:
    near = float(value)
    return f"{near!r}" if Fraction(near) == value else f"{near!r} (rounded)"
