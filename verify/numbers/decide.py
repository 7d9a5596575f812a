"""Numbers of a format held in float64 tensors: enclosures, rounding, positions on the number line; and digests of bits.

`verify.judge.element` decides elements with them. Values of every format up to float32 are exact in float64; those of
float64 are held in units of 2^unit of each element, in which its truth is about 1 (`Line`).
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from verify import native
from verify.facts.formats import Format
from verify.numbers.ball import GROW, Ball, filled
from verify.numbers.scaled import FAR, power, times_power
from verify.numbers.transforms import two_sum
from verify.numbers.ulp import MOST_STEPS

Tensor = torch.Tensor
CLAMP_ULP = 1024.0  # errors are clamped here (2^10 ULP) ...
NEGLIGIBLE = 2.0**-20  # ULP: too small to matter in which of two binades it is counted
QUANTUM = 65536.0  # ... and summed in units of 2^-16 ULP
BINS = tuple(2.0**k for k in range(-1, 11))
_EXPONENT = 0x7FF0000000000000
WORDS = {
    8: torch.uint8,
    16: torch.int16,
    32: torch.int32,
    64: torch.int64,
}  # the integers that hold a format's patterns
UP = 1.0 + 2.0**-45  # covers the roundings of an error estimate
_KNOWN_SIGN = 2.0**-1000  # stands for a real number of which only the sign is known


@dataclass(frozen=True)
class Enclosure:
    """Tensors of a ball ready to decide: |t - (mid + tail)| <= rad, rad 0 or >= 2^-52 |mid| where
    tail is None. NaN mid with rad 0 is a certain NaN; NaN rad is undecided. `sure`: t has the sign
    of mid even where the ball touches zero. `relative`, `absolute` give rad where it is None. `either`: exact zeros
    that may have either sign."""

    mid: Tensor
    rad: Tensor | None
    tail: Tensor | None = None
    sure: bool = False
    relative: float = 0.0
    absolute: float = 0.0
    either: Tensor | None = None

    @property
    def radius(self) -> Tensor:
        """`rad`, made where it is None."""
        if self.rad is not None:
            return self.rad
        return torch.where(torch.isinf(self.mid), 0.0, self.mid.abs() * self.relative + self.absolute)

    def within(self, line: Line) -> tuple[Tensor, Tensor, Tensor | None]:
        """Midpoint limited to +-2^(emax+2), radius and tail.

        Beyond that, a radius of at most a quarter of the midpoint changes no decision: it is 0.
        """
        top = 2 * line.top
        mid = self.mid.clamp(-top, top)
        if self.rad is None:
            return mid, mid.abs() * self.relative + self.absolute, None
        size = self.mid.abs()
        beyond = (size >= top) & (self.rad <= size / 4) & (self.rad < torch.inf)
        tail = None if self.tail is None else torch.where(beyond, 0.0, self.tail)
        return mid, torch.where(beyond, 0.0, self.rad), tail

    def exceeds(self, bound: Any) -> tuple[Tensor, Tensor]:
        """Whether |t| is certainly a positive bound at least, and whether it may be."""
        size = self.mid.abs()
        rad = size * self.relative + self.absolute if self.rad is None else self.rad
        rad = rad if self.tail is None else rad + self.tail.abs()
        return size - rad * UP >= bound * UP, size + rad * UP >= bound

    def take(self, index: Any) -> Enclosure:
        return Enclosure(
            self.mid[index],
            None if self.rad is None else self.rad[index],
            None if self.tail is None else self.tail[index],
            self.sure,
            self.relative,
            self.absolute,
            None if self.either is None else self.either[index],
        )

    def put(self, index: Tensor, part: Enclosure) -> Enclosure:
        """With other elements at `index`."""
        assert self.rad is not None and part.rad is not None and self.tail is not None and part.tail is not None
        pairs = ((self.mid, part.mid), (self.rad, part.rad), (self.tail, part.tail))
        mid, rad, tail = (whole.index_put((index,), other) for whole, other in pairs)
        return Enclosure(mid, rad, tail, self.sure)


def enclosure(ball: Ball, like: Tensor) -> Enclosure:
    """The ball as tensors shaped as `like`, its radius rounded outward."""
    mid = ball.mid.expand_as(like)
    if ball.rest is not None and not ball.apart:
        left, slack = ball.rest()
        return Enclosure(mid, filled(slack, like) * GROW, filled(left, like))
    if ball.n.double:
        return Enclosure(mid, filled(ball.radius, like) * GROW, filled(ball.tail, like))
    if ball.rad is None:
        return Enclosure(mid, None, None, ball.sure, ball.relative * GROW + 2.0**-52, ball.absolute)
    rad = filled(ball.rad, like)
    return Enclosure(mid, torch.where(rad == 0, 0.0, rad * GROW + mid.abs() * 2.0**-52), sure=ball.sure)


def either(which: Tensor, a: float, b: float) -> Tensor:
    """`a` where it holds, else `b`, in float64: torch.where rounds two Python numbers to float32."""
    return torch.where(which, torch.tensor(a, dtype=torch.float64, device=which.device), b)


class Line:
    """The numbers of a format among the reals, in units of 2^unit of each element (int64; None: of 1).

    low     the smallest normal number
    top     2^(emax + 1), the place of infinity
    largest the largest finite number
    All three are limited to 2^+-FAR, beyond which nothing is that is compared with them.
    """

    def __init__(self, fmt: Format, unit: Tensor | None = None) -> None:
        self.fmt, self.unit, self.precision = fmt, unit, fmt.precision
        self.low: Any = 2.0**fmt.emin if unit is None else power(fmt.emin - unit)
        self.top: Any = 2.0 ** (fmt.emax + 1) if unit is None else power(fmt.emax + 1 - unit)
        self.largest: Any = float(fmt.max_finite) if unit is None else self.top * (1 - 2.0**-fmt.precision)

    def place(self, y: Tensor) -> Tensor:
        """Outputs in units, as float64; beyond 2^+-FAR they are that."""
        v = y.to(torch.float64)
        if self.unit is None:
            return v
        found = times_power(v, -self.unit)
        size, ends = found.abs(), (2.0**-FAR, 2.0**FAR)
        return torch.where((v == 0) | ~torch.isfinite(v), v, torch.copysign(size.clamp(*ends), v))

    def steps(self, y: Tensor, near: Tensor) -> Tensor:
        """Representable steps from a number of the line to the outputs y, signed; at most MOST_STEPS."""
        if self.unit is None:
            return ordinal(y.to(torch.float64).clamp(-self.top, self.top), self.fmt) - ordinal(near, self.fmt)
        a, b = _place_of(y), _place_of(times_power(near, self.unit))
        far = (a < 0) != (b < 0)
        far = far & (((a >> 1) - (b >> 1)).abs() >= MOST_STEPS >> 1)  # the difference may overflow
        return torch.where(far, MOST_STEPS, (a - b).clamp(-MOST_STEPS, MOST_STEPS))


def _place_of(v: Tensor) -> Tensor:
    """Signed position of a float64 on its number line."""
    n = v.abs().view(torch.int64)
    return torch.where(v < 0, -n, n)


@dataclass(frozen=True)
class End:
    """An end v of an enclosure on a line: RN(v), infinity as 2^(emax+1); its binade; whether v is above, below RN(v);
    and whether it is negative."""

    nearest: Tensor
    binade: Tensor
    above: Tensor
    below: Tensor
    negative: Tensor


def binade(v: Tensor, line: Line) -> Tensor:
    """2^e of the binade in which an ULP is taken, e = clamp(floor(log2|v|), emin, emax)."""
    return binade_of(v.abs().clamp(line.low, line.top / 2))


def binade_of(a: Tensor) -> Tensor:
    """The largest power of two that is at most `a`, for non-negative normal float64 values; 0 for subnormal ones."""
    return (a.view(torch.int64) & _EXPONENT).view(torch.float64)


def nearest(v: Tensor, line: Line) -> Tensor:
    """RN(v) to a format narrower than float64, infinity as 2^(emax+1): adds and subtracts 1.5 * 2^52 quanta."""
    a = v.abs().clamp(max=line.top)
    e = (a.clamp(min=line.low).view(torch.int64) & _EXPONENT).view(torch.float64)
    magic = e * (1.5 * 2.0 ** (53 - line.precision))
    return torch.copysign((a + magic) - magic, v)


def ordinal(v: Tensor, fmt: Format) -> Tensor:
    """Signed position on the number line of representable values (2^(emax+1) for infinity)."""
    a = v.abs()
    normal = (a.view(torch.int64) - _bits(2.0**fmt.emin)) >> (52 - fmt.mantissa_bits)
    subnormal = (a * 2.0 ** (fmt.mantissa_bits - fmt.emin)).to(torch.int64)
    n = torch.where(a >= 2.0**fmt.emin, normal + (1 << fmt.mantissa_bits), subnormal)
    return torch.where(v < 0, -n, n)


def difference(y: Tensor, mid: Tensor, tail: Tensor | None, line: Line) -> Tensor:
    """y - t, both limited to the format's range; y in float64. Where y is near t, y - mid is exact (Sterbenz)."""
    found = y.clamp(-line.top, line.top) - mid.clamp(-line.top, line.top)
    return found if tail is None else found - limited(mid, tail, line)


def limited(mid: Tensor, tail: Tensor, line: Line) -> Tensor:
    """The tail of a number limited to the format's range: at its end what leads back into it."""
    size = mid.abs()
    inward = torch.where(mid < 0, tail.clamp(min=0.0), tail.clamp(max=0.0))
    return torch.where(size < line.top, tail, torch.where(size == line.top, inward, 0.0))


def subtracts(y: Tensor, mid: Tensor, line: Line) -> Tensor:
    """Where `difference` of the two is exact: TwoSum leaves nothing (Knuth, TAOCP 2, 4.2.2 theorem B)."""
    a, b = y.clamp(-line.top, line.top), mid.clamp(-line.top, line.top)
    found = a - b
    back = found - a
    return (a - (found - back)) - (b + back) == 0


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def ends_on(mid: Tensor, rad: Tensor, tail: Tensor | None, sure: bool, line: Line) -> tuple[End, End]:
    """Both ends of an enclosure on a line."""
    if line.unit is not None:
        assert tail is not None
        return _wide_end(mid, _odd(tail, -rad), line), _wide_end(mid, _odd(tail, rad), line)
    lo, hi = ends(mid, rad, tail, sure)
    low, high = nearest(lo, line), nearest(hi, line)
    return (
        End(low, binade(lo, line), lo > low, lo < low, lo < 0),
        End(high, binade(hi, line), hi > high, hi < high, hi < 0),
    )


def _wide_end(mid: Tensor, tail: Tensor, line: Line) -> End:
    """An end mid + tail on the line of float64 itself; the tail, far below an ULP, is rounded to odd."""
    head, rest = two_sum(mid, tail)
    size = head.abs()
    # beside the smallest normal number the quanta of subnormal ones are its own
    base = torch.where(size < line.low, torch.copysign(torch.as_tensor(line.low), head), 0.0)
    s, left = two_sum(base, head)
    near = ((s + _odd(left, rest)) - base).clamp(-line.top, line.top)
    off = (head - near) + rest
    within = size.clamp(line.low, line.top / 2)
    power_ = binade_of(within)
    inward = (within == power_) & (within == size) & (size > line.low) & ((rest < 0) != (head < 0)) & (rest != 0)
    return End(near, torch.where(inward, power_ * 0.5, power_), off > 0, off < 0, head < 0)


def ends(mid: Tensor, rad: Tensor, tail: Tensor | None, sure: bool) -> tuple[Tensor, Tensor]:
    if tail is not None:
        return _odd(mid, tail - rad), _odd(mid, tail + rad)
    if sure:
        floor = (rad > 0).to(torch.float64) * _KNOWN_SIGN
        inner = torch.maximum(mid.abs() - rad, floor)
        return torch.copysign(inner, mid), torch.copysign(mid.abs() + rad, mid)
    return mid - rad, mid + rad


def _odd(mid: Tensor, rest: Tensor) -> Tensor:
    """mid + rest rounded to odd: later rounding to at most 51 bits is then a single rounding
    (Boldo & Melquiond 2008, theorem 1)."""
    s, error = two_sum(mid, rest)
    bits = s.view(torch.int64)
    inexact = (error != 0) & torch.isfinite(s)
    # toward zero first (the residual points back), then set the last bit
    back = inexact & ((error > 0) != (s > 0))
    bits = bits - back.to(torch.int64)
    return torch.where(inexact, bits | 1, bits).view(torch.float64)


# ---------------------------------------------------------------- digests

_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def salts(n: int, start: int, device: torch.device | str) -> Tensor:
    """What each of n positions from `start` is hashed with: (position + 1) * golden modulo 2^64."""
    return torch.arange(start + 1, start + 1 + n, dtype=torch.int64, device=device) * _signed(_GOLDEN)


def digest_tensors(bits: Tensor, fmt: Format, salt: Tensor) -> Tensor:
    """Hash of each row of patterns: integer tensor (rows, n), `salts` of its n positions.

    Sum over elements of mix(pattern xor salt) modulo 2^64, NaNs canonical, mix being Stafford's
    variant 13 of the MurmurHash3 finaliser.
    """
    v = bits.to(torch.int64)
    if fmt.bits < 64:
        v = v & ((1 << fmt.bits) - 1)
    magnitude = v & ((1 << (fmt.bits - 1)) - 1)
    v = torch.where(magnitude > fmt.inf_bits, fmt.nan_bits, v)
    z = v ^ salt
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _signed(_MIX_1)
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _signed(_MIX_2)
    return (z ^ ((z >> 31) & ((1 << 33) - 1))).sum(1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def digest(bits: Tensor, fmt: Format, start: int = 0) -> int:
    """The digest of one chunk of patterns (any integer dtype of the format's width), as 64 bits."""
    if (work := _by_host(bits, fmt, start)) is not None:
        return sum(native.divided(work, bits.numel(), torch.get_num_threads())) & ((1 << 64) - 1)
    row = bits.reshape(1, -1)
    return int(digest_tensors(row, fmt, salts(row.shape[1], start, row.device)).item()) & ((1 << 64) - 1)


def _by_host(bits: Tensor, fmt: Format, start: int) -> Callable[[int, int], int] | None:
    """The digest of the patterns from one place up to another; None where no function of the host's can give it."""
    library = native.host() if bits.is_cpu else None
    if library is None:
        return None
    flat = bits.reshape(-1).contiguous()

    def work(first: int, end: int) -> int:
        value: int = library.digest(
            ctypes.c_int64(end - first), ctypes.c_void_p(flat.data_ptr() + first * flat.element_size()),
            ctypes.c_int(fmt.bits // 8), ctypes.c_uint64(fmt.inf_bits), ctypes.c_uint64(fmt.nan_bits),
            ctypes.c_uint64(start + first),
        )  # fmt: skip
        return value

    return work


def digests(bits: Tensor, fmt: Format, size: int, start: int = 0) -> list[int]:
    """The digest of each chunk of `size` patterns of an integer tensor (n,)."""
    if bits.is_cuda and importlib.util.find_spec("triton") is not None:
        from verify.native import gpu

        constants = (_signed(_GOLDEN), _signed(_MIX_1), _signed(_MIX_2))
        found = gpu.digests(bits.contiguous(), size, start, fmt.inf_bits, fmt.nan_bits, constants).tolist()
        return [value & ((1 << 64) - 1) for value in found]
    chunks = torch.split(bits, size)
    works = [work for one in chunks if (work := _by_host(one, fmt, start)) is not None]
    if len(works) < max(len(chunks), 2):
        return [digest(one, fmt, start) for one in chunks]

    def several(first: int, end: int) -> list[int]:
        return [works[k](0, chunks[k].numel()) for k in range(first, end)]

    return list(itertools.chain(*native.divided(several, len(chunks), torch.get_num_threads(), 1)))
