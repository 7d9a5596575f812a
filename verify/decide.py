"""Numbers of a format held in float64 tensors: enclosures, rounding, positions on the number line; and digests of bits.

`verify.judge.element` decides elements with them. Values of every format up to float32 are exact in float64.
"""

from __future__ import annotations

import ctypes
import importlib.util
import struct
from dataclasses import dataclass
from typing import Any

import torch

from verify import native
from verify.formats import Format
from verify.numbers.ball import GROW, Ball, two_sum

Tensor = torch.Tensor
CLAMP_ULP = 1024.0  # errors are clamped here (2^10 ULP) ...
NEGLIGIBLE = 2.0**-20  # ULP: too small to matter in which of two binades it is counted
QUANTUM = 65536.0  # ... and summed in units of 2^-16 ULP
BINS = tuple(2.0**k for k in range(-1, 11))
_EXPONENT = 0x7FF0000000000000
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

    def within(self, fmt: Format) -> tuple[Tensor, Tensor, Tensor | None]:
        """Midpoint limited to +-2^(emax+2), radius and tail.

        Beyond that, a radius of at most a quarter of the midpoint changes no decision: it is 0.
        """
        top = 2.0 ** (fmt.emax + 2)
        mid = self.mid.clamp(-top, top)
        if self.rad is None:
            return mid, mid.abs() * self.relative + self.absolute, None
        size = self.mid.abs()
        beyond = (size >= top) & (self.rad <= size / 4) & (self.rad < torch.inf)
        tail = None if self.tail is None else torch.where(beyond, 0.0, self.tail)
        return mid, torch.where(beyond, 0.0, self.rad), tail

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


def enclosure(ball: Ball, like: Tensor) -> Enclosure:
    """The ball as tensors shaped as `like`, its radius rounded outward."""
    mid = ball.mid.expand_as(like)
    if ball.n.double:
        return Enclosure(mid, _full(ball.radius, like) * GROW, _full(ball.tail, like))
    if ball.rad is None:
        return Enclosure(mid, None, None, ball.sure, ball.relative * GROW + 2.0**-52, ball.absolute)
    rad = _full(ball.rad, like)
    return Enclosure(mid, torch.where(rad == 0, 0.0, rad * GROW + mid.abs() * 2.0**-52), sure=ball.sure)


def _full(value: Tensor | float, like: Tensor) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64, device=like.device).expand_as(like)


def either(which: Tensor, a: float, b: float) -> Tensor:
    """`a` where it holds, else `b`, in float64: torch.where rounds two Python numbers to float32."""
    return torch.where(which, torch.tensor(a, dtype=torch.float64, device=which.device), b)


def binade(v: Tensor, fmt: Format) -> Tensor:
    """2^e of the binade in which an ULP is taken, e = clamp(floor(log2|v|), emin, emax)."""
    return binade_of(v.abs().clamp(2.0**fmt.emin, 2.0**fmt.emax))


def binade_of(a: Tensor) -> Tensor:
    """The largest power of two that is at most `a`, for non-negative normal float64 values; 0 for subnormal ones."""
    return (a.view(torch.int64) & _EXPONENT).view(torch.float64)


def nearest(v: Tensor, fmt: Format) -> Tensor:
    """RN(v) to `fmt` in float64, infinity as 2^(emax+1): adds and subtracts 1.5 * 2^52 quanta."""
    a = v.abs().clamp(max=2.0 ** (fmt.emax + 1))
    e = (a.clamp(min=2.0**fmt.emin).view(torch.int64) & _EXPONENT).view(torch.float64)
    magic = e * (1.5 * 2.0 ** (53 - fmt.precision))
    return torch.copysign((a + magic) - magic, v)


def ordinal(v: Tensor, fmt: Format) -> Tensor:
    """Signed position on the number line of representable values (2^(emax+1) for infinity)."""
    a = v.abs()
    normal = (a.view(torch.int64) - _bits(2.0**fmt.emin)) >> (52 - fmt.mantissa_bits)
    subnormal = (a * 2.0 ** (fmt.mantissa_bits - fmt.emin)).to(torch.int64)
    n = torch.where(a >= 2.0**fmt.emin, normal + (1 << fmt.mantissa_bits), subnormal)
    return torch.where(v < 0, -n, n)


def difference(y: Tensor, mid: Tensor, tail: Tensor | None, fmt: Format) -> Tensor:
    """y - t, both limited to the format's range; y in float64."""
    top = 2.0 ** (fmt.emax + 1)
    found = y.clamp(-top, top) - mid.clamp(-top, top)
    return found if tail is None else found - torch.where(mid.abs() < top, tail, 0.0)


def subtracts(y: Tensor, mid: Tensor, fmt: Format) -> Tensor:
    """Where `difference` of the two is exact: TwoSum leaves nothing (Knuth, TAOCP 2, 4.2.2 theorem B)."""
    top = 2.0 ** (fmt.emax + 1)
    a, b = y.clamp(-top, top), mid.clamp(-top, top)
    found = a - b
    back = found - a
    return (a - (found - back)) - (b + back) == 0


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


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
    library = native.host() if bits.is_cpu else None
    if library is not None:
        flat = bits.reshape(-1).contiguous()
        value: int = library.digest(
            ctypes.c_int64(flat.numel()), ctypes.c_void_p(flat.data_ptr()), ctypes.c_int(fmt.bits // 8),
            ctypes.c_uint64(fmt.inf_bits), ctypes.c_uint64(fmt.nan_bits), ctypes.c_uint64(start),
        )  # fmt: skip
        return value
    row = bits.reshape(1, -1)
    return int(digest_tensors(row, fmt, salts(row.shape[1], start, row.device)).item()) & ((1 << 64) - 1)


def digests(bits: Tensor, fmt: Format, size: int, start: int = 0) -> list[int]:
    """The digest of each chunk of `size` patterns of an integer tensor (n,)."""
    if bits.is_cuda and importlib.util.find_spec("triton") is not None:
        from verify.native import hashes

        constants = (_signed(_GOLDEN), _signed(_MIX_1), _signed(_MIX_2))
        found = hashes.digests(bits.contiguous(), size, start, fmt.inf_bits, fmt.nan_bits, constants).tolist()
        return [value & ((1 << 64) - 1) for value in found]
    return [digest(part, fmt, start) for part in torch.split(bits, size)]
