"""The decision on tensors: class, error, maxima and who is closer, for every element whose
enclosure allows it; the others are marked open. The exact form is `verify.ulp.judge`.

`decide_tensors` is the definition and runs on every device, eagerly or compiled;
`native/decide.cpp` does the same on the host at several times the speed.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from verify.formats import Format
from verify.numbers.ball import GROW, Ball, two_sum
from verify.ulp import FLUSH_ULP

Tensor = torch.Tensor
CLAMP_ULP = 1024.0  # errors are clamped here (2^10 ULP) ...
NEGLIGIBLE = 2.0**-20  # ULP: too small to matter in which of two binades it is counted
QUANTUM = 65536.0  # ... and summed in units of 2^-16 ULP
BINS = tuple(2.0**k for k in range(-1, 11))
#: Integer results, in the order of native/decide.cpp; one histogram count per bin follows.
COUNTS = (
    "correct", "faithful", "worse", "flushed", "nan_mismatch", "inf_mismatch", "zero_sign", "open", "measured",
    "clamped", "sum", "sum_signed", "max_int", "different", "closer", "farther", "tied",
)  # fmt: skip
WIDTH = len(COUNTS) + len(BINS)
_EXPONENT = 0x7FF0000000000000
_UP = 1.0 + 2.0**-45  # covers the roundings of an error estimate
_KNOWN_SIGN = 2.0**-1000  # stands for a real number of which only the sign is known


@dataclass(frozen=True)
class Decision:
    """counts: int64 (WIDTH, rows); maxima: float64 (2, rows), upper bounds of ulp and scaled_ulp;
    open: bool, one per element; codes: int8, position of each settled element's class in COUNTS."""

    counts: Tensor
    maxima: Tensor
    open: Tensor
    codes: Tensor | None = None


@dataclass(frozen=True)
class Enclosure:
    """Tensors of a ball ready to decide: |t - (mid + tail)| <= rad, rad 0 or >= 2^-52 |mid| where
    tail is None. NaN mid with rad 0 is a certain NaN; NaN rad is undecided. `sure`: t has the sign
    of mid even where the ball touches zero. `relative`, `absolute` give rad where it is None."""

    mid: Tensor
    rad: Tensor | None
    tail: Tensor | None = None
    sure: bool = False
    relative: float = 0.0
    absolute: float = 0.0

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


def binade(v: Tensor, fmt: Format) -> Tensor:
    """2^e of the binade in which an ULP is taken, e = clamp(floor(log2|v|), emin, emax)."""
    a = v.abs().clamp(2.0**fmt.emin, 2.0**fmt.emax)
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


def error_bounds(y: Tensor, e: Enclosure, fmt: Format) -> tuple[Tensor, Tensor, Tensor]:
    """Signed error of y in ULPs (an estimate), its uncertainty, and 1 / ulp(t); y in float64."""
    mid, rad, tail = e.within(fmt)
    low, high = _ends(mid, rad, tail, e.sure)
    inverse = 2.0 ** (fmt.precision - 1) / torch.minimum(binade(low, fmt), binade(high, fmt))
    return _difference(y, mid, tail, fmt) * inverse, rad * inverse, inverse


def _difference(y: Tensor, mid: Tensor, tail: Tensor | None, fmt: Format) -> Tensor:
    """y - t, both limited to the format's range; y in float64."""
    top = 2.0 ** (fmt.emax + 1)
    found = y.clamp(-top, top) - mid.clamp(-top, top)
    return found if tail is None else found - torch.where(mid.abs() < top, tail, 0.0)


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def _ends(mid: Tensor, rad: Tensor, tail: Tensor | None, sure: bool) -> tuple[Tensor, Tensor]:
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


@torch.inference_mode()
def decide_tensors(
    y: Tensor,
    e: Enclosure,
    fmt: Format,
    eager: Tensor | None = None,
    scale: Tensor | None = None,
    mask: Tensor | None = None,
    subnormal: Tensor | None = None,
) -> Decision:
    """Decide elements shaped (rows, n); each row is reduced by itself.

    y, eager: outputs, any dtype whose values float64 holds. scale: lower bound of the positive
    number that scaled_ulp refers to. mask: elements to look at. subnormal: elements with a
    subnormal input; those that are neither correct nor faithful stay open, since a flushed input
    may explain them.
    """
    top = 2.0 ** (fmt.emax + 1)
    yv = y.to(torch.float64)
    m, rad, tail = e.within(fmt)
    lo, hi = _ends(m, rad, tail, e.sure)
    # Few calls: on a GPU each costs more than what it does. Of booleans, a > b is "a and not b".
    ends = torch.stack([lo, hi])
    (nlo, nhi), (b_lo, b_hi) = nearest(ends, fmt), binade(ends, fmt)
    yc = yv.clamp(-top, top)
    inverse = 2.0 ** (fmt.precision - 1) / torch.minimum(b_lo, b_hi)
    signed, spread = _difference(yv, m, tail, fmt) * inverse, rad * inverse
    error = signed.abs()
    exact = rad == 0
    nan = torch.isnan(m) & exact
    ynan = torch.isnan(yv)
    zero_split = ((nlo == 0) & ((lo < 0) != (hi < 0))) > exact
    one_binade = (b_lo == b_hi) | (error + spread < NEGLIGIBLE)
    agree = ((rad >= 0) & (nlo == nhi) & one_binade) > zero_split
    of_y, of_t = ordinal(torch.stack([yc, nlo]), fmt)
    d = of_y - of_t
    steps = d.abs()
    near = steps == 1
    above, below = (lo > nlo) & (hi > nlo), (lo < nlo) & (hi < nlo)
    side_unknown = near > (exact | above | below)
    same_sign = torch.signbit(yv) == torch.signbit(m)
    infinite_miss = torch.isinf(e.mid) & (d != 0)  # infinity or a real overflow: mp tells
    settled = nan | (agree & (ynan | ~(side_unknown | infinite_miss)))
    if mask is not None:
        settled = settled & mask
    number = settled > (nan | ynan)
    hit = number & (d == 0)
    nonzero = m != 0 if tail is None else (m != 0) | (tail != 0)
    zero = yv == 0
    wrong_zero = (number & zero & ((d == 0) | (near & nonzero))) > same_sign
    # a zero left by cancellation has the sign of an exact zero, whatever the sign of t
    cancelled = wrong_zero & nonzero if scale is not None else torch.zeros_like(wrong_zero)
    sign_miss = wrong_zero > cancelled
    ok = hit > wrong_zero
    faithful = (number & ((above & (d == 1)) | (below & (d == -1)) | cancelled)) > sign_miss
    rest = number > (hit | faithful | sign_miss)
    if subnormal is not None:
        odd = subnormal & (rest | (settled & (nan != ynan)))
        rest, settled, number = rest > odd, settled > odd, number > odd
    size = nlo.abs()
    inf_miss = rest & ((size == top) != (yc.abs() == top))
    distance = (error + spread) / inverse
    weight = inverse if scale is None else 2.0 ** (fmt.precision - 1) / binade(scale, fmt)
    # a zero left by cancellation is no flush: it is wrong by more than rounding could be
    slack = torch.where(exact, 1.0, _UP)
    lost = (rest & zero & (size <= 2.0**fmt.emin) & (distance * weight * slack >= FLUSH_ULP)) > inf_miss
    flush = lost & ((error - spread) / inverse * weight >= FLUSH_ULP * slack)
    unclear = lost > flush
    rest, settled, number = rest > unclear, settled > unclear, number > unclear
    left = ~settled if mask is None else mask > settled
    late = torch.zeros(4, *left.shape[:1], dtype=torch.int64, device=left.device)
    if eager is not None:
        ev = eager.to(torch.float64)
        other = (_difference(ev, m, tail, fmt) * inverse).abs()
        same = ((ev == yv) & (torch.signbit(ev) == torch.signbit(yv))) | (torch.isnan(ev) & ynan)
        different = ~same if mask is None else mask > same
        enan = torch.isnan(ev)
        measurable = (different & number & (yv != ev)) > enan
        # float64 tells exact errors apart up to 8 ULP, where y - t is exact (Sterbenz), which a tail's part of t is not
        blur = error * 2.0**-50 + torch.where(exact, 0.0, 2.0**-30)
        apart = exact & (error <= 8) if tail is None else exact & (error <= 8) & (tail == 0)
        tie = (measurable & ((error - other).abs() <= 2 * spread * _UP + blur)) > apart
        measurable = measurable > tie
        one_nan = different & (ynan != enan)  # whoever has the NaN where it is due, or has not, is closer
        due = nan == ynan
        wins, loses = (measurable & (error < other)) | (one_nan & due), (measurable & (error > other)) | (one_nan > due)
        left, settled, number = left | tie, settled > tie, number > tie
        decided = different & settled
        late = torch.stack([decided, wins & settled, loses & settled, decided > (wins | loses)]).sum(2)
    counted = number > flush  # a flush is a class of its own: its error is in no maximum and no sum
    upper = torch.where(counted, (error + spread) * _UP, 0.0)
    scaled = upper if scale is None else torch.where(counted, distance * weight * _UP, 0.0)
    q = torch.where(counted, (error.clamp(max=CLAMP_ULP) * QUANTUM + 0.5), 0.0).to(torch.int64)
    masks = [
        settled & ((nan & ynan) | ok), settled & faithful, (settled & rest) > (inf_miss | flush), settled & flush,
        settled & (nan != ynan), settled & inf_miss, settled & sign_miss, left, counted,
        counted & (error > CLAMP_ULP),
    ]  # fmt: skip
    classes = torch.stack(masks)
    codes = classes[:7].to(torch.int8).argmax(0).to(torch.int8)
    bins = counted & (error <= _edges(error.device))
    sums = torch.stack([q.sum(1), torch.where(signed < 0, -q, q).sum(1), torch.where(counted, steps, 0).amax(1)])
    counts = torch.cat([classes.sum(2), sums, late, bins.sum(2)])
    return Decision(counts, torch.stack([upper.amax(1), scaled.amax(1)]), left, codes)


@functools.cache
def _edges(device: torch.device) -> Tensor:
    return torch.tensor(BINS, dtype=torch.float64, device=device).view(-1, 1, 1)


# ---------------------------------------------------------------- the host's native form


class NativeUnavailable(Exception):
    """No C++ compiler, or it failed; `decide_tensors` serves instead."""


@functools.cache
def _library() -> ctypes.CDLL:
    """Compile native/decide.cpp once per source, compiler and processor, into the user's cache."""
    source = Path(__file__).with_name("native") / "decide.cpp"
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise NativeUnavailable("no C++ compiler (g++ or clang++) found")
    flags = ["-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"]
    if platform.machine() == "x86_64" and "clang" not in compiler:
        flags.append("-mprefer-vector-width=512")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    key = hashlib.sha256("\n".join([source.read_text(), version, *flags, _processor()]).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ulproof"
    target = cache / f"decide-{key}.so"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}.tmp")
        done = subprocess.run(
            [compiler, *flags, "-std=c++17", "-shared", "-fPIC", "-o", str(partial), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NativeUnavailable(f"{compiler} failed: {done.stderr.strip()[:200]}")
        partial.replace(target)
    library = ctypes.CDLL(str(target))
    library.decide.restype = None
    library.decide.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 4, *[ctypes.c_double] * 2, *[ctypes.c_void_p] * 3]
    library.decide.argtypes += [*[ctypes.c_int] * 5, *[ctypes.c_void_p] * 3]
    library.exceeding.restype = ctypes.c_int64
    library.exceeding.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 3, *[ctypes.c_double] * 2, *[ctypes.c_int] * 4]
    library.exceeding.argtypes += [ctypes.c_double, ctypes.c_int64, ctypes.c_void_p]
    library.digest.restype = ctypes.c_uint64
    return library


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(line for line in lines[:40] if line.startswith(("model name", "flags")))


@functools.cache
def native_reason() -> str | None:
    """Why the native form is not used, or None where it is."""
    if os.environ.get("VERIFY_NATIVE") == "0":
        return "switched off by VERIFY_NATIVE=0"
    try:
        _library()
    except (NativeUnavailable, OSError) as problem:
        return str(problem)
    return None


def decide_native(
    y: Tensor,
    e: Enclosure,
    fmt: Format,
    eager: Tensor | None = None,
    scale: Tensor | None = None,
    mask: Tensor | None = None,
    subnormal: Tensor | None = None,
) -> Decision:
    """As `decide_tensors`, for host tensors shaped (1, n) and enclosures without tail."""
    if e.tail is not None:
        raise ValueError("the native decision takes no tails")
    n, one_mid = y.numel(), _shared(e)
    outputs = [_flat(t, torch.float32) for t in (y, eager)]
    ball = _midpoints(e, one_mid)
    facts = [_flat(scale, torch.float64), *(_flat(t, torch.uint8) for t in (mask, subnormal))]
    counts = torch.zeros(WIDTH, dtype=torch.int64)
    maxima = torch.zeros(2, dtype=torch.float64)
    flags = torch.empty(n, dtype=torch.uint8)
    _library().decide(
        n, *map(_pointer, outputs), *map(_pointer, ball), e.relative, e.absolute,
        *map(_pointer, facts), e.sure, one_mid, fmt.precision, fmt.emin, fmt.emax,
        *map(_pointer, (counts, maxima, flags)),
    )  # fmt: skip
    return Decision(counts[:, None], maxima[:, None], flags.view(torch.bool).view(y.shape))


def exceeding(y: Tensor, e: Enclosure, fmt: Format, floor: float, most: int) -> Tensor | None:
    """Indices of the elements, of tensors shaped (1, n), whose error may exceed `floor` ULPs, in ascending order;
    None where they are more than `most`."""
    if e.tail is not None or y.device.type != "cpu" or native_reason() is not None:
        signed, spread, _ = error_bounds(y.to(torch.float64), e, fmt)
        index = ((signed.abs() + spread) * _UP > floor)[0].nonzero()[:, 0]
        return index if len(index) <= most else None
    outputs, ball = _flat(y, torch.float32), _midpoints(e, False)
    found = torch.empty(most, dtype=torch.int64)
    count: int = _library().exceeding(
        y.numel(), _pointer(outputs), *map(_pointer, ball), e.relative, e.absolute,
        e.sure, fmt.precision, fmt.emin, fmt.emax, floor, most, _pointer(found),
    )  # fmt: skip
    return found[:count] if count <= most else None


def bound_of(error: float) -> float:
    """What `Decision.maxima` holds for an element of an exact enclosure, whose error is this float."""
    return error * _UP


def _shared(e: Enclosure) -> bool:
    """Whether all elements have one midpoint and radius, expanded to their shape."""
    return all(t is None or t.numel() == 1 or t.stride()[-1] == 0 for t in (e.mid, e.rad))


def _midpoints(e: Enclosure, shared: bool) -> list[Tensor | None]:
    """Midpoints and radii in a row, one of each where they are shared."""
    return [_flat(t[..., :1] if shared and t is not None else t, torch.float64) for t in (e.mid, e.rad)]


def _flat(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else tensor.to(dtype).reshape(-1).contiguous()


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p | None:
    return None if tensor is None else ctypes.c_void_p(tensor.data_ptr())


def decide(y: Tensor, e: Enclosure, fmt: Format, **rest: Tensor | None) -> Decision:
    """The fastest form that applies."""
    if e.tail is None and y.device.type == "cpu" and y.shape[0] == 1 and native_reason() is None:
        return decide_native(y, e, fmt, **rest)
    return decide_tensors(y, e, fmt, **rest)


# ---------------------------------------------------------------- digests

_GOLDEN = 0x9E3779B97F4A7C15


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
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return (z ^ ((z >> 31) & ((1 << 33) - 1))).sum(1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def digest(bits: Tensor, fmt: Format, start: int = 0) -> int:
    """The digest of one chunk of patterns (any integer dtype of the format's width), as 64 bits."""
    if bits.device.type == "cpu" and native_reason() is None:
        flat = bits.reshape(-1).contiguous()
        value: int = _library().digest(
            ctypes.c_int64(flat.numel()), ctypes.c_void_p(flat.data_ptr()), ctypes.c_int(fmt.bits // 8),
            ctypes.c_uint64(fmt.inf_bits), ctypes.c_uint64(fmt.nan_bits), ctypes.c_uint64(start),
        )  # fmt: skip
        return value
    row = bits.reshape(1, -1)
    return int(digest_tensors(row, fmt, salts(row.shape[1], start, row.device)).item()) & ((1 << 64) - 1)
