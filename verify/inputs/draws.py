"""Random draws as integer functions of (seed, stratum, index), the same bits on every machine and device.

Only integer operations and eager float64 + - * / (IEEE 754-2019, 5.4.1; never contracted, since each is a launch
of its own) are used: no library random numbers and no libm. torch is imported on use.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias, overload

from verify import native
from verify.facts.formats import Format

#: An int64 tensor of words, exponents or bit patterns. Patterns narrower than 64 bits are non-negative, those of
#: float64 are in two's complement.
Ints: TypeAlias = Any
#: A float64 tensor.
Reals: TypeAlias = Any
#: One tensor of patterns for each input.
Bits: TypeAlias = tuple[Ints, ...]

_MASK32 = 0xFFFFFFFF
_MAX63 = (1 << 63) - 1
_MANTISSA64 = (1 << 52) - 1
# 0x846CA68B - 2^32: the same residue modulo 2^32, and a product with a 32-bit word stays inside int64.
_ODD_1, _ODD_2 = 0x7FEB352D, 0x846CA68B - (1 << 32)
_LN2 = 0.6931471805599453
#: Steps of Kronecker sequences by dimension d: 2^32 / g^k, g^(d + 1) = g + 1 (M. Roberts, "The unreasonable
#: effectiveness of quasirandom sequences", 2018), made odd.
_STEPS = {2: (0xC13FA9A9, 0x91E10DA7), 3: (0xD1B54A33, 0xABC98389, 0x8CB92BA7)}


@overload
def mix(word: int) -> int: ...
@overload
def mix(word: Ints) -> Ints: ...
def mix(word: Any) -> Any:
    """lowbias32, a bijection of 32-bit words with low avalanche bias (C. Wellons, hash-prospector, 2018)."""
    word = word ^ (word >> 16)
    word = (word * _ODD_1) & _MASK32
    word = word ^ (word >> 15)
    word = (word * _ODD_2) & _MASK32
    return word ^ (word >> 16)


@functools.cache
def keys(seed: int, stratum: str, lane: int) -> tuple[int, int]:
    """Two 32-bit keys of a lane: chained `mix` over the seed's words, the name's CRC-32 and the lane."""
    words = (seed & _MASK32, seed >> 32 & _MASK32, zlib.crc32(stratum.encode()), lane)
    first = reduce(lambda state, word: mix(state ^ word) + 0x9E3779B9 & _MASK32, words, 0)
    return first, mix(first ^ 0xA5A5A5A5)


def to_tensor(fmt: Format, bits: Ints) -> Any:
    """Patterns as a tensor of the dtype `fmt.name`, on the same device."""
    import torch

    return bits.to(getattr(torch, f"int{fmt.bits}")).view(getattr(torch, fmt.name))


def to_reals(fmt: Format, bits: Ints) -> Reals:
    """Patterns as float64 values; every format here embeds in float64 exactly."""
    import torch

    return to_tensor(fmt, bits).to(torch.float64)


def encode(fmt: Format, reals: Reals) -> Ints:
    """Patterns of float64 values rounded toward zero, by integers; overflow, inf and NaN give the largest finite.

    A guide for strata, not a rounding under test: what it loses is at most one step.
    """
    import torch

    raw = reals.contiguous().view(torch.int64)
    magnitude = raw & _MAX63
    if fmt.bits == 64:
        return with_sign(fmt, magnitude.clamp(max=fmt.inf_bits - 1), raw)
    exponent = (magnitude >> 52) - 1023
    significand = (magnitude & _MANTISSA64) >> (52 - fmt.mantissa_bits)
    return with_sign(fmt, pack(fmt, exponent, significand), raw)


def pack(fmt: Format, exponent: Ints, significand: Ints) -> Ints:
    """Non-negative patterns of (1 + significand/2^mantissa_bits) * 2^exponent.

    Exponents below emin give subnormals, rounded toward zero; above emax, the largest finite.
    """
    biased = (exponent + fmt.emax).clamp(max=2 * fmt.emax + 1)
    shifted = ((1 << fmt.mantissa_bits) | significand) >> (1 - biased).clamp(0, 62)
    normal = (biased.clamp(min=1) << fmt.mantissa_bits) | significand
    return shifted.where(biased < 1, normal).clamp(max=fmt.inf_bits - 1)


def with_sign(fmt: Format, magnitude: Ints, signed: Ints) -> Ints:
    """`magnitude` with the sign of the int64 `signed` (negative: sign bit set)."""
    sign = signed >> 63 & 1
    return magnitude | sign << (fmt.bits - 1)


def magnitude_of(fmt: Format, bits: Ints) -> Ints:
    return bits & (fmt.sign_bit - 1)


def step(fmt: Format, bits: Ints, steps: Ints) -> Ints:
    """`steps` representable values away from zero (toward it where negative), stopping at zero and infinity."""
    magnitude = magnitude_of(fmt, bits)
    # The smaller of the two first: the sum could exceed int64 for float64.
    return (bits ^ magnitude) | (magnitude + steps.minimum(fmt.inf_bits - magnitude)).clamp(min=0)


def coarse(fmt: Format, bits: Ints, keep: Ints) -> Ints:
    """Finite patterns with all but the leading `keep` bits of the trailing significand cleared."""
    lost = (keep * 0 + 1 << (fmt.mantissa_bits - keep).clamp(min=0)) - 1
    return bits & ~lost


def log2(reals: Reals) -> Reals:
    """log2 of the magnitude of finite normal float64 values, to about 2^-48: the atanh series.

    + - * / only, so that it is the same bits everywhere.
    """
    import torch

    raw = reals.contiguous().view(torch.int64) & _MAX63
    exponent = ((raw >> 52) - 1023).to(torch.float64)
    mantissa = ((raw & _MANTISSA64) | 1023 << 52).view(torch.float64)
    above = mantissa > 1.4142135623730951
    exponent, mantissa = exponent + above.to(torch.float64), (mantissa * 0.5).where(above, mantissa)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = square * 0.0
    for k in reversed(range(11)):
        series = series * square + 1.0 / (2 * k + 1)
    return exponent + s * series * (2.0 / _LN2)


def exp2(reals: Reals) -> Reals:
    """2^x for float64 x within +-1021, to about 2^-50: the Taylor series about the nearest integer."""
    import torch

    whole = (reals.clamp(-1021.0, 1021.0) + 0.5).floor()
    fraction = (reals - whole) * _LN2
    series = fraction * 0.0
    for k in reversed(range(19)):
        series = series * fraction + 1.0 / math.factorial(k)
    power: Reals = ((whole.to(torch.int64) + 1023) << 52).view(torch.float64)
    return series * power


@dataclass(frozen=True)
class Draw:
    """Random words for the elements `index` of a stratum. Every call hands out an independent lane.

    `index` is an int64 tensor of positions inside the stratum; results have its shape and device. others: the names of
    more strata, drawn in one go, each element being of the stratum whose number `of` has: 0 is `stratum`, 1 the first
    of the others.
    """

    fmt: Format
    index: Ints
    seed: int
    stratum: str
    others: tuple[str, ...] = ()
    of: Ints | None = None
    lanes: Iterator[int] = field(default_factory=itertools.count, repr=False, compare=False)

    def _keys(self) -> tuple[Any, Any]:
        """Those of the next lane, for all elements or for each."""
        lane = next(self.lanes)
        if self.of is None:
            return keys(self.seed, self.stratum, lane)
        import torch

        pairs = [keys(self.seed, name, lane) for name in (self.stratum, *self.others)]
        first, second = torch.tensor(pairs, dtype=torch.int64, device=self.index.device).t()
        return first[self.of], second[self.of]

    def word(self) -> Ints:
        """Uniform in [0, 2^32)."""
        first, second = self._keys()
        library = native.host() if self.index.is_cpu and self.of is None else None
        if library is None:
            return mix(mix(self.index ^ first) ^ second)
        import torch

        index = self.index.contiguous()
        found = torch.empty_like(index)
        library.words(
            ctypes.c_int64(index.numel()), ctypes.c_void_p(index.data_ptr()), ctypes.c_uint32(first),
            ctypes.c_uint32(second), ctypes.c_void_p(found.data_ptr()),
        )  # fmt: skip
        return found

    def wide(self) -> Ints:
        """Uniform in [0, 2^62)."""
        return self.word() << 30 | self.word() >> 2

    def integer(self, low: int | Ints, high: int | Ints) -> Ints:
        """Uniform in [low, high], bounds included; at most 2^31 values."""
        return low + (self.word() * (high - low + 1) >> 32)

    def real(self, low: float, high: float) -> Reals:
        """Float64 values, uniform in [low, high) up to 2^-32 of the width."""
        import torch

        return self.word().to(torch.float64) * ((high - low) * 2.0**-32) + low

    def pick(self, values: Sequence[int]) -> Ints:
        """One of `values`, each equally often."""
        import torch

        table = torch.tensor([as_int64(self.fmt, v) for v in values], dtype=torch.int64, device=self.index.device)
        return table[self.integer(0, len(values) - 1)]

    def either(self, first: Ints, second: Ints) -> Ints:
        """The first or the second, evenly."""
        return first.where(self.word() >> 31 == 0, second)

    def signed(self, magnitude: Ints) -> Ints:
        """`magnitude` with an even sign."""
        return magnitude | (self.word() >> 31) << (self.fmt.bits - 1)

    def bits(self) -> Ints:
        """Uniform over all patterns, infinities and NaNs among them; NaNs are made quiet.

        What pow(1, y) or hypot(inf, y) is for a signalling y is left open (IEEE 754-2019, 9.2.1 note).
        """
        return self._quiet(self.word())

    def _quiet(self, word: Ints) -> Ints:
        """The pattern of leading bits `word`, its NaNs quiet."""
        pattern = word >> (32 - self.fmt.bits) if self.fmt.bits < 64 else word << 32 | self.word()
        nan = magnitude_of(self.fmt, pattern) > self.fmt.inf_bits
        return (pattern | self.fmt.nan_bits).where(nan, pattern)

    def evenly(self, arity: int) -> Bits:
        """`bits` for `arity` inputs together, which leave smaller boxes of patterns empty than independent ones: the 16
        leading bits are those of a Kronecker sequence, the others random."""
        found = []
        for step in _STEPS[arity]:
            start, _ = self._keys()
            leading = self.index * step + start & 0xFFFF0000
            found.append(self._quiet(leading | self.word() & 0xFFFF))
        return tuple(found)

    def significand(self) -> Ints:
        """Uniform trailing significands."""
        bits = self.fmt.mantissa_bits
        return self.word() >> (32 - bits) if bits <= 32 else self.wide() >> (62 - bits)

    def value(self, exponent: int | Ints) -> Ints:
        """Either sign, uniform trailing significand, the given exponent; below emin they are subnormal."""
        return self.signed(pack(self.fmt, self.index * 0 + exponent, self.significand()))

    def finite(self) -> Ints:
        """Every exponent equally often, the lengths of subnormals included."""
        return self.value(self.integer(self.fmt.emin - self.fmt.mantissa_bits, self.fmt.emax))

    def spread(self, bits: int | Ints) -> Ints:
        """Integers of either sign; their length is uniform in 0..bits, so that 0 and +-1 are frequent."""
        top = self.index * 0 + 1 << self.integer(0, bits)
        magnitude = top >> 1 | self.wide() & ((top >> 1) - 1).clamp(min=0)
        return magnitude.where(self.word() >> 31 == 0, -magnitude)

    def near(self, bits: Ints, width: int) -> Ints:
        """Patterns at most 2^width representable values away, log-uniformly, toward or away from zero."""
        return step(self.fmt, bits, self.spread(width))

    def power_of_two(self, width: int = 3) -> Ints:
        """Powers of two of either sign, and their neighbours within 2^width steps."""
        powers = pack(self.fmt, self.integer(self.fmt.emin - self.fmt.mantissa_bits, self.fmt.emax), self.index * 0)
        return self.signed(self.near(powers, width))

    def reals(self, bits: Ints) -> Reals:
        return to_reals(self.fmt, bits)

    def encode(self, reals: Reals) -> Ints:
        return encode(self.fmt, reals)

    def constant(self, text: str) -> Ints:
        """The pattern of a literal (see `Format.parse`)."""
        return self.index * 0 + as_int64(self.fmt, self.fmt.parse(text))


def normal(draw: Draw) -> Reals:
    """Mean 0, variance 1, within +-3.47: the sum of four uniform words."""
    import torch

    total = draw.word() + draw.word() + draw.word() + draw.word()
    return (total.to(torch.float64) * 2.0**-32 - 2.0) * 1.7320508075688772


#: What `beginning` has given, of so many strata and of so many of their elements at most, the last one used at the end.
_KEPT: dict[tuple[Any, ...], Any] = {}
STRATA_KEPT, MOST_KEPT = 16, 1 << 20


def beginning(function: Callable[[Draw], Any], fmt: Format, count: int, seed: int, stratum: str) -> Any:
    """`function` of the first `count` elements of a stratum, which are those of its last dimension, on the host; not to
    be written to. An element depends on its index alone: what was drawn for more of them is kept and used again."""
    import torch

    key = function, fmt, seed, stratum
    found = _KEPT.get(key)
    if found is None or found.shape[-1] < count:
        found = function(Draw(fmt, torch.arange(count, dtype=torch.int64), seed, stratum))
        if count > MOST_KEPT:
            return found
    _KEPT.pop(key, None)
    _KEPT[key] = found
    if len(_KEPT) > STRATA_KEPT:
        del _KEPT[next(iter(_KEPT))]
    return found[..., :count]


def as_int64(fmt: Format, pattern: int) -> int:
    """A pattern as int64 holds it: those of float64 with the sign bit set are negative."""
    return pattern - (1 << 64) if fmt.bits == 64 and pattern & fmt.sign_bit else pattern


def spread(n: int, size: int) -> list[int]:
    """`size` places of n, or all: one of each of as many equal parts, the first and the last of n among them. Where in
    its part is hashed: equal distances would fall on the same few columns of every row and lanes of every block, and
    on short significands where every pattern is taken in order."""
    size = min(n, size)
    edges = [k * n // max(size, 1) for k in range(size + 1)]
    places = [low + mix(k) % (high - low) for k, (low, high) in enumerate(itertools.pairwise(edges))]
    return [0, *places[1:-1], n - 1] if size > 1 else places
