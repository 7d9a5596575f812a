"""Truth: what is known about an exact result, as an enclosure of a real number or a special value.

Written by `verify.numbers.mp` (ground truth), read by `verify.numbers.ulp`. Errors are not defined here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

Kind = Literal["real", "nan", "+inf", "-inf", "+0", "-0", "either-zero"]
KINDS: tuple[str, ...] = get_args(Kind)

#: Magnitudes are clamped to [2^-LIMIT, 2^LIMIT]: far outside every format, so no decision changes.
LIMIT = 20000
HUGE = Fraction(1 << LIMIT)
TINY = Fraction(1, 1 << LIMIT)
ZERO = Fraction(0)


@dataclass(frozen=True)
class Truth:
    """A special value, or for kind 'real' a non-zero real t with lo <= t <= hi (lo == hi: exact).

    'real' with lo <= 0 <= hi says that the sign is not known yet. An exact zero is '+0', '-0', or
    'either-zero' where both are right. lo and hi mean nothing for the other kinds.
    """

    kind: Kind
    lo: Fraction = ZERO
    hi: Fraction = ZERO

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"truth of kind {self.kind!r}; expected one of {', '.join(KINDS)}")
        if self.lo > self.hi or (self.kind == "real" and self.lo == self.hi == 0):
            raise ValueError(f"{self.lo} <= t <= {self.hi} holds no non-zero real; an exact zero is '+0' or '-0'")

    @classmethod
    def real(cls, lo: Fraction, hi: Fraction) -> Truth:
        """An enclosure with each end clamped: magnitudes to 2^20000, non-zero ones to 2^-20000."""
        return cls("real", clamp(lo), clamp(hi))

    @property
    def exact(self) -> bool:
        """Whether nothing is left to decide: a special value, or one single real."""
        return self.kind != "real" or self.lo == self.hi


def clamp(value: Fraction) -> Fraction:
    """`value` with its magnitude limited to [2^-20000, 2^20000], sign kept; zero stays zero."""
    size = value.numerator.bit_length() - value.denominator.bit_length()  # floor(log2) or that plus one
    if -LIMIT < size - 1 and size < LIMIT:
        return value  # zero included
    magnitude = max(TINY, min(HUGE, abs(value)))
    return -magnitude if value < 0 else magnitude
