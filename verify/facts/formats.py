"""Floating-point formats and exact conversion between their bit patterns and rationals.

The one place for format constants (IEEE 754-2019, clause 3.4, table 3.5; bfloat16 as in
Intel's 2018 white paper). Errors in ULPs are in `verify.numbers.ulp`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache


@dataclass(frozen=True)
class Format:
    """A binary interchange format: `precision` significand bits, exponents `emin`..`emax`.

    Finite values are m * 2^(e - precision + 1) with |m| < 2^precision and emin <= e <= emax.
    """

    name: str
    bits: int
    precision: int
    emax: int

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number, 1 - emax (IEEE 754-2019, 3.3)."""
        return 1 - self.emax

    @property
    def mantissa_bits(self) -> int:
        """Width of the trailing significand field."""
        return self.precision - 1

    @cached_property
    def max_finite(self) -> Fraction:
        return (2 - Fraction(2) ** (1 - self.precision)) * Fraction(2) ** self.emax

    @cached_property
    def smallest_normal(self) -> Fraction:
        return Fraction(2) ** self.emin

    @cached_property
    def smallest_subnormal(self) -> Fraction:
        return Fraction(2) ** (self.emin - self.precision + 1)

    @cached_property
    def unit_roundoff(self) -> Fraction:
        """u = 2^-precision: |RN(t) - t| <= u |t| where t is in normal range (Higham 2002, thm 2.2)."""
        return Fraction(1, 2**self.precision)

    @property
    def sign_bit(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def inf_bits(self) -> int:
        """Bit pattern of +inf: an exponent field of ones."""
        return ((1 << (self.bits - self.precision)) - 1) << self.mantissa_bits

    @property
    def nan_bits(self) -> int:
        """The canonical quiet NaN: only the leading trailing-significand bit set."""
        return self.inf_bits | 1 << (self.mantissa_bits - 1)

    def contains(self, narrow: Format) -> bool:
        """Whether every value of `narrow` is one of this format, subnormals included."""
        lowest = self.emin - self.mantissa_bits <= narrow.emin - narrow.mantissa_bits
        return self.precision >= narrow.precision and self.emax >= narrow.emax and lowest

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign_bit > self.inf_bits

    def is_inf(self, bits: int) -> bool:
        return bits & ~self.sign_bit == self.inf_bits

    def is_subnormal(self, bits: int) -> bool:
        return 0 < bits & ~self.sign_bit < 1 << self.mantissa_bits

    def fraction(self, bits: int) -> Fraction:
        """The exact value of a finite pattern. Raises ValueError for infinities and NaNs."""
        magnitude = bits & ~self.sign_bit
        if magnitude >= self.inf_bits:
            raise ValueError(f"{self.hex(bits)} is not a finite {self.name}")
        field, significand = divmod(magnitude, 1 << self.mantissa_bits)
        if field:
            significand += 1 << self.mantissa_bits
        value = significand * power_of_two(max(field, 1) - self.emax - self.mantissa_bits)
        return -value if bits & self.sign_bit else value

    def to_float(self, bits: int) -> float:
        """The value of a pattern as a double, infinities and NaNs included; exact for every format here."""
        if self.is_nan(bits):
            return math.nan
        if self.is_inf(bits):
            return -math.inf if bits & self.sign_bit else math.inf
        return math.copysign(float(self.fraction(bits)), -1.0 if bits & self.sign_bit else 1.0)

    def round(self, value: Fraction) -> int:
        """Bits of RN(value): nearest, ties to even, overflow to infinity (IEEE 754-2019, 4.3.1).

        A zero value gives +0; a non-zero value that rounds to zero keeps its sign.
        """
        sign = self.sign_bit if value < 0 else 0
        value = abs(value)
        if value == 0:
            return 0
        exponent = max(floor_log2(value), self.emin)
        numerator, denominator, shift = value.numerator, value.denominator, self.mantissa_bits - exponent
        if shift >= 0:
            numerator <<= shift
        else:
            denominator <<= -shift
        significand, rest = divmod(numerator, denominator)
        significand += 2 * rest > denominator or (2 * rest == denominator and significand & 1)
        bits = ((exponent - self.emin) << self.mantissa_bits) + significand
        return sign | min(bits, self.inf_bits)

    def round_float(self, value: float) -> int:
        """Bits of a finite double rounded to this format, the sign of zero kept."""
        if value == 0:
            return self.sign_bit if math.copysign(1.0, value) < 0 else 0
        return self.round(Fraction(value))

    def ordinal(self, bits: int) -> int:
        """Signed position of a non-NaN pattern on the number line; +0 and -0 are both 0."""
        magnitude = bits & ~self.sign_bit
        return -magnitude if bits & self.sign_bit else magnitude

    def hex(self, bits: int) -> str:
        """A hex float such as '0x1.8p+0', with the sign of zero; 'nan', 'inf' and '-inf' as such.

        NaNs other than the canonical one carry their payload: 'nan:0x7fc00001'.
        """
        sign = "-" if bits & self.sign_bit else ""
        if self.is_nan(bits):
            return "nan" if bits == self.nan_bits else f"nan:{bits:#x}"
        if self.is_inf(bits):
            return sign + "inf"
        field, significand = divmod(bits & ~self.sign_bit, 1 << self.mantissa_bits)
        if field == 0 and significand == 0:
            return sign + "0x0p+0"
        width = -(-self.mantissa_bits // 4)
        digits = f"{significand << (4 * width - self.mantissa_bits):0{width}x}".rstrip("0")
        lead, exponent = (1, field - self.emax) if field else (0, self.emin)
        return f"{sign}0x{lead}{'.' + digits if digits else ''}p{exponent:+d}"

    def parse(self, text: str) -> int:
        """Bits of a literal: hex float, decimal, 'inf', 'nan', 'nan:BITS' or '#BITS' (raw pattern).

        Raises ValueError where the text is not a number, or not exactly a value of this format
        (decimals are rounded to nearest).
        """
        word = text.strip().lower()
        if word.startswith(("#", "nan:")):
            bits = int(word.partition(":")[2] or word[1:], 16)
            if not 0 <= bits < 1 << self.bits:
                raise ValueError(f"{text!r} is wider than the {self.bits} bits of {self.name}")
            return bits
        body = word.lstrip("+-")
        sign = self.sign_bit if word.startswith("-") else 0
        if body in ("inf", "infinity"):
            return sign | self.inf_bits
        if body == "nan":
            return sign | self.nan_bits
        value = _hex_fraction(body) if body.startswith("0x") else Fraction(body)
        bits = self.round(value)
        if self.is_inf(bits):
            most = self.hex(bits - 1)
            raise ValueError(f"{text!r} rounds to infinity in {self.name}, whose largest number is {most}; or say inf")
        if body.startswith("0x") and self.fraction(bits) != value:
            raise ValueError(f"{text!r} is not a {self.name} value; the nearest is {self.hex(sign | bits)}")
        return sign | bits


def floor_log2(value: Fraction) -> int:
    """floor(log2(value)) of a positive rational, exactly."""
    numerator, denominator = value.numerator, value.denominator
    exponent = numerator.bit_length() - denominator.bit_length()
    if exponent >= 0:
        return exponent - (numerator < denominator << exponent)
    return exponent - (numerator << -exponent < denominator)


@lru_cache(1 << 14)
def power_of_two(exponent: int) -> Fraction:
    """2^exponent, exactly."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def _hex_fraction(body: str) -> Fraction:
    digits, _, exponent = body[2:].partition("p")
    whole, _, part = digits.partition(".")
    return Fraction(int(whole + part, 16), 16 ** len(part)) * Fraction(2) ** int(exponent or 0)


FORMATS = {
    f.name: f
    for f in (
        Format("float16", bits=16, precision=11, emax=15),
        Format("bfloat16", bits=16, precision=8, emax=127),
        Format("float32", bits=32, precision=24, emax=127),
        Format("float64", bits=64, precision=53, emax=1023),
    )
}
