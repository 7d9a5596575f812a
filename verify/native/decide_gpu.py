"""The decision of `verify.decide.decide_tensors` and the digest, in Triton, for float32 sweeps.

Inductor keeps each of thirty sums in a tile of registers and spills; here counts share words of 10-bit fields, which
hold the steps of a program, and are taken apart once at its end. A first kernel settles the programs all of whose
elements are easy (rounded for certain, off by 2 ULP at most, or a NaN that is due), a second one takes the others.
Same counts, bit for bit (tests hold them equal).
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from verify.decide import _EXPONENT, _GOLDEN, _KNOWN_SIGN, _UP, BINS, COUNTS, NEGLIGIBLE, QUANTUM, WIDTH, _signed
from verify.decide import CLAMP_ULP as _CLAMP
from verify.formats import FORMATS
from verify.ulp import FLUSH_ULP

Tensor = torch.Tensor
BLOCK = 128
WARPS = 2
STEPS = 32  # fields of 10 bits would hold 1,023
PIECE = BLOCK * STEPS  # elements that a program judges
_FMT = FORMATS["float32"]

FIRST_NORMAL = tl.constexpr(1 << _FMT.mantissa_bits)
PRECISION = tl.constexpr(_FMT.precision)
NAN_BITS = tl.constexpr(_FMT.nan_bits)
INF_BITS = tl.constexpr(_FMT.inf_bits)
TOP = tl.constexpr(2.0 ** (_FMT.emax + 1))
BEYOND = tl.constexpr(2.0 ** (_FMT.emax + 2))
TOP_BITS = tl.constexpr((1023 + _FMT.emax + 1) << 52)
TOP_WORD = tl.constexpr((1023 + _FMT.emax + 1) << 20)
SIGN_WORD = tl.constexpr(-(1 << 31))
LOWEST = tl.constexpr(2.0**_FMT.emin)
HIGHEST = tl.constexpr(2.0**_FMT.emax)
E_LOWEST = tl.constexpr(1023 + _FMT.emin)
E_HIGHEST = tl.constexpr(1023 + _FMT.emax)
MAGIC = tl.constexpr(1.5 * 2.0 ** (53 - _FMT.precision))
EXPONENT = tl.constexpr(_EXPONENT)
SIGN = tl.constexpr(-(1 << 63))
REST = tl.constexpr((1 << 63) - 1)
KNOWN_SIGN = tl.constexpr(_KNOWN_SIGN)
UP = tl.constexpr(_UP)
TINY_ULP = tl.constexpr(NEGLIGIBLE)
CLAMP = tl.constexpr(_CLAMP)
UNIT = tl.constexpr(QUANTUM)
FLUSH = tl.constexpr(float(FLUSH_ULP))
GOLDEN = tl.constexpr(_signed(_GOLDEN))
MIX_1 = tl.constexpr(_signed(0xBF58476D1CE4E5B9))
MIX_2 = tl.constexpr(_signed(0x94D049BB133111EB))
BLUR_EXACT = tl.constexpr(2.0**-50)
BLUR = tl.constexpr(2.0**-30)
#: Positions in a program's row of integer results; the fields follow: CLASS_FIELDS, then BINS.
SUMS = ("sum", "sum_signed", "max_int", "digest")
CLASS_FIELDS = (
    "correct", "faithful", "worse", "flushed", "nan_mismatch", "inf_mismatch", "zero_sign", "open", "measured",
    "clamped", "different", "closer", "farther", "tied",
)  # fmt: skip
RESULTS = len(SUMS) + len(CLASS_FIELDS) + len(BINS)


@triton.jit
def _clamp(v, top):
    return tl.where(v > top, top, tl.where(v < -top, -top, v))  # a NaN stays one


@triton.jit
def _copysign(size, sign):
    bits = (size.to(tl.int64, bitcast=True) & REST) | (sign.to(tl.int64, bitcast=True) & SIGN)
    return bits.to(tl.float64, bitcast=True)


@triton.jit
def _binade_bits(v):
    a = tl.abs(v)
    a = tl.where(a < LOWEST, LOWEST, tl.where(a > HIGHEST, HIGHEST, a))
    return a.to(tl.int64, bitcast=True) & EXPONENT


@triton.jit
def _nearest(v):
    a = tl.abs(v)
    a = tl.where(a > TOP, TOP, a)
    e = tl.where(a < LOWEST, LOWEST, a).to(tl.int64, bitcast=True) & EXPONENT
    magic = e.to(tl.float64, bitcast=True) * MAGIC
    return _copysign((a + magic) - magic, v)


@triton.jit
def _ordinal(bits):
    size = (bits & 0x7FFFFFFF).to(tl.int64)
    return tl.where(bits < 0, -size, size)


@triton.jit
def _high(v):
    """The word of a double that holds its sign and exponent."""
    return (v.to(tl.int64, bitcast=True) >> 32).to(tl.int32)


@triton.jit
def _field(mask, shift: tl.constexpr):
    return tl.where(mask, 1 << shift, 0)


@triton.jit
def _radius(rad_ptr, at, raw, mid, relative, absolute, RADIUS: tl.constexpr):
    if RADIUS == 0:
        rad = tl.abs(mid) * relative + absolute
    else:
        if RADIUS == 1:
            rad = tl.load(rad_ptr + at)
        else:
            code = tl.load(rad_ptr + at)
            rad = tl.where(code == 0, tl.abs(raw) * relative + absolute, tl.where(code == 1, 0.0, float("nan")))
        beyond = (tl.abs(raw) >= BEYOND) & (rad <= tl.abs(raw) * 0.25) & (rad < float("inf"))
        rad = tl.where(beyond, 0.0, rad)
    return rad


@triton.jit
def _easy(
    y_ptr, mid_ptr, rad_ptr, eager_ptr, first_ptr, constants_ptr, out_ptr, maxima_ptr, hard_ptr, row_size, pieces,
    RADIUS: tl.constexpr, HAS_EAGER: tl.constexpr, SURE: tl.constexpr, SIZE: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Digests, and the results of the programs all of whose elements are easy; the others are marked hard.

    Sums and maxima are of every element, since those of a hard program are not used.
    """
    row = tl.program_id(0)
    piece = tl.program_id(1)
    relative = tl.load(constants_ptr)
    absolute = tl.load(constants_ptr + 1)
    up = tl.load(constants_ptr + 2)
    ranks = tl.zeros((SIZE,), tl.int32)
    total = tl.zeros((SIZE,), tl.int32)  # STEPS errors of 2 ULP at most
    total_signed = tl.zeros((SIZE,), tl.int32)
    top_error = tl.zeros((SIZE,), tl.float64)
    top_steps = tl.zeros((SIZE,), tl.int32)
    hashed = tl.zeros((SIZE,), tl.int64)
    hard = tl.zeros((SIZE,), tl.int32)
    start = piece * SIZE * STEPS
    ends = (tl.load(first_ptr + row).to(tl.int32) + start) & 0x7FFFFFFF
    last = (ends + SIZE * STEPS - 1) & 0x7FFFFFFF
    subnormal = (ends < FIRST_NORMAL) | (last < FIRST_NORMAL)
    lane = tl.arange(0, SIZE)
    at = row.to(tl.int64) * row_size + start + lane
    salt = (start + 1 + lane).to(tl.int64) * GOLDEN
    stride = tl.full((), SIZE, tl.int64) * GOLDEN
    for _ in range(STEPS):
        bits = tl.load(y_ptr + at).to(tl.int32, bitcast=True)
        raw = tl.load(mid_ptr + at)
        # in magnitudes: the signs must agree
        whole = tl.abs(raw)
        if RADIUS == 2:
            code = tl.load(rad_ptr + at).to(tl.int32)
            related = code == 0
            rad = tl.where(related & (whole < BEYOND), whole * relative + absolute, 0.0)
            hard |= code & 2
            bad = related & ~(whole < float("inf"))
        else:
            rad = _radius(rad_ptr, at, raw, tl.where(whole < BEYOND, whole, BEYOND), relative, absolute, RADIUS)
            bad = (raw != raw) & (rad != 0)
        y_size = bits & 0x7FFFFFFF
        nan = y_size > INF_BITS
        bad = bad | (nan != (raw != raw))
        # from here on a NaN that is due looks like an infinity that is
        y_size = tl.minimum(y_size, INF_BITS)
        size = tl.where(whole < TOP, raw.to(tl.int64, bitcast=True) & REST, TOP_BITS).to(tl.float64, bitcast=True)
        low = size - rad
        high = size + rad
        near = tl.abs(low).to(tl.float32).to(tl.int32, bitcast=True)
        near_high = high.to(tl.float32).to(tl.int32, bitcast=True)
        low_word = _high(low)
        hard |= near ^ near_high
        hard |= (low_word >> 31) & near_high
        hard |= tl.where(nan, 0, (bits ^ _high(raw)) & SIGN_WORD)
        if not SURE:
            bad = bad | ~(low > 0)
        exponent = tl.minimum(tl.maximum((low_word & 0x7FFFFFFF) >> 20, E_LOWEST), E_HIGHEST)
        scale_up = (((-exponent + (2046 + PRECISION - 1)) << 20).to(tl.int64) << 32).to(tl.float64, bitcast=True)
        y_bits = y_size.to(tl.float32, bitcast=True).to(tl.float64).to(tl.int64, bitcast=True)
        y_word = tl.minimum((y_bits >> 32).to(tl.int32), TOP_WORD)
        gap = ((y_word.to(tl.int64) << 32) | (y_bits & 0xFFFFFFFF)).to(tl.float64, bitcast=True) - size
        off = tl.abs(gap) * scale_up
        error = off + rad * scale_up
        rounded = near.to(tl.float32, bitcast=True).to(tl.float64)
        above = low > rounded
        below = high < rounded
        steps_off = y_size - near
        hit = steps_off == 0
        toward = (above & (steps_off == 1)) | (below & (steps_off == -1))
        # a miss is known as such, and as its histogram's bin has it: above 1/2 ULP, above 1 where it is not faithful
        finite = (y_size > 8) & (y_size < INF_BITS - 8)
        miss = finite & (above | below) & (off > 0.5) & (toward | ((off > 1.0) & ~subnormal))
        # without a side, an end of the enclosure may be in another binade
        fine = tl.where(hit, above | below | (error < TINY_ULP), miss) & ~bad
        if HAS_EAGER:
            hard |= tl.load(eager_ptr + at).to(tl.int32, bitcast=True) ^ bits
        hard |= tl.where(fine, 0, 1)
        ranks += tl.where(hit, tl.where(nan, 1 << 20, 1), _field(toward, 10))
        top_error = tl.where(error > top_error, error, top_error)
        top_steps = tl.maximum(top_steps, tl.abs(steps_off))
        q = (off * UNIT + 0.5).to(tl.int32)
        total += q
        total_signed += tl.where((_high(gap) ^ bits) < 0, -q, q)
        v = tl.where(nan, NAN_BITS, bits).to(tl.int64) & 0xFFFFFFFF
        z = v ^ salt
        z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * MIX_1
        z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * MIX_2
        hashed += z ^ ((z >> 31) & ((1 << 33) - 1))
        at += SIZE
        salt += stride
    results = tl.num_programs(0) * pieces
    out = out_ptr + row * pieces + piece
    fields = out + 4 * results
    nans = tl.sum(ranks >> 20, 0)
    correct = tl.sum(ranks & 1023, 0)
    faithful = tl.sum((ranks >> 10) & 1023, 0)
    measured = SIZE * STEPS - nans
    tl.store(out, tl.sum(total.to(tl.int64), 0))
    tl.store(out + results, tl.sum(total_signed.to(tl.int64), 0))
    tl.store(out + 2 * results, tl.max(top_steps, 0).to(tl.int64))
    tl.store(out + 3 * results, tl.sum(hashed, 0))
    tl.store(fields, (correct + nans).to(tl.int64))
    tl.store(fields + results, faithful.to(tl.int64))
    tl.store(fields + 2 * results, (measured - correct - faithful).to(tl.int64))
    for k in tl.static_range(3, 14):
        tl.store(fields + k * results, (measured if k == 8 else nans * 0).to(tl.int64))
    tl.store(fields + 14 * results, correct.to(tl.int64))
    tl.store(fields + 15 * results, (correct + faithful).to(tl.int64))
    for k in tl.static_range(16, 26):
        tl.store(fields + k * results, measured.to(tl.int64))
    tl.store(maxima_ptr + row * pieces + piece, tl.max(top_error, 0) * up)
    tl.store(hard_ptr + row * pieces + piece, tl.max((hard != 0).to(tl.int32) | (top_error > 2.0).to(tl.int32), 0))


@triton.jit
def _full(
    y_ptr, mid_ptr, rad_ptr, eager_ptr, first_ptr, constants_ptr, out_ptr, maxima_ptr, hard_ptr, row_size, pieces,
    RADIUS: tl.constexpr, HAS_EAGER: tl.constexpr, SURE: tl.constexpr, SIZE: tl.constexpr, STEPS: tl.constexpr,
    EDGES: tl.constexpr,
):  # fmt: skip
    """Every case, for the programs that `_easy` marked."""
    row = tl.program_id(0)
    piece = tl.program_id(1)
    if tl.load(hard_ptr + row * pieces + piece) != 0:
        first = tl.load(first_ptr + row).to(tl.int32)
        relative = tl.load(constants_ptr)
        absolute = tl.load(constants_ptr + 1)
        up = tl.load(constants_ptr + 2)
        known = tl.load(constants_ptr + 3)
        w0 = tl.zeros((SIZE,), tl.int32)
        w1 = tl.zeros((SIZE,), tl.int32)
        w2 = tl.zeros((SIZE,), tl.int32)
        w3 = tl.zeros((SIZE,), tl.int32)
        w4 = tl.zeros((SIZE,), tl.int32)
        w5 = tl.zeros((SIZE,), tl.int32)
        w6 = tl.zeros((SIZE,), tl.int32)
        w7 = tl.zeros((SIZE,), tl.int32)
        w8 = tl.zeros((SIZE,), tl.int32)
        total = tl.zeros((SIZE,), tl.float64)
        total_signed = tl.zeros((SIZE,), tl.float64)
        top_error = tl.zeros((SIZE,), tl.float64)
        top_steps = tl.zeros((SIZE,), tl.int64)
        for step in range(STEPS):
            place = piece * SIZE * STEPS + step * SIZE + tl.arange(0, SIZE)
            at = row.to(tl.int64) * row_size + place
            y = tl.load(y_ptr + at)
            raw = tl.load(mid_ptr + at)
            mid = _clamp(raw, BEYOND)
            rad = _radius(rad_ptr, at, raw, mid, relative, absolute, RADIUS)
            bits = y.to(tl.int32, bitcast=True)
            yv = y.to(tl.float64)
            if SURE:
                floor = tl.where(rad > 0, known, 0.0)
                inner = tl.abs(mid) - rad
                inner = tl.where(inner < floor, floor, inner)
                lo = _copysign(inner, mid)
                hi = _copysign(tl.abs(mid) + rad, mid)
            else:
                lo = mid - rad
                hi = mid + rad
            nlo = _nearest(lo)
            nhi = _nearest(hi)
            yc = _clamp(yv, TOP)
            b_lo = _binade_bits(lo)
            b_hi = _binade_bits(hi)
            # 2^(p-1) / binade, by exponents
            power = (2046 + PRECISION - 1) - (tl.minimum(b_lo, b_hi) >> 52)
            inverse = (power << 52).to(tl.float64, bitcast=True)
            centre = _clamp(mid, TOP)
            signed = (yc - centre) * inverse
            spread = rad * inverse
            error = tl.abs(signed)
            exact = rad == 0
            nan = (mid != mid) & exact
            ynan = yv != yv
            zero_split = (nlo == 0) & ~exact & ((lo < 0) != (hi < 0))
            one_binade = (b_lo == b_hi) | (error + spread < TINY_ULP)
            agree = (rad >= 0) & (nlo == nhi) & one_binade & ~zero_split
            d = _ordinal(bits) - _ordinal(nlo.to(tl.float32).to(tl.int32, bitcast=True))
            near = (d == 1) | (d == -1)
            above = (lo > nlo) & (hi > nlo)
            below = (lo < nlo) & (hi < nlo)
            side_unknown = near & ~exact & ~above & ~below
            negative = mid.to(tl.int64, bitcast=True) < 0
            same_sign = (bits < 0) == negative
            infinite_miss = (tl.abs(raw) == float("inf")) & (d != 0)
            settled = nan | (ynan & agree) | (agree & ~side_unknown & ~infinite_miss)
            number = settled & ~nan & ~ynan
            hit = number & (d == 0)
            sign_miss = number & (yv == 0) & ~same_sign & (hit | (near & (mid != 0)))
            ok = hit & ~sign_miss
            faithful = number & ~sign_miss & ((above & (d == 1)) | (below & (d == -1)))
            rest = number & ~hit & ~faithful & ~sign_miss
            x_size = (first + place) & 0x7FFFFFFF
            subnormal = (x_size > 0) & (x_size < FIRST_NORMAL)
            odd = subnormal & (rest | (settled & (nan != ynan)))
            rest = rest & ~odd
            settled = settled & ~odd
            number = number & ~odd
            inf_miss = rest & ((tl.abs(nlo) == TOP) != (tl.abs(yc) == TOP))
            slack = tl.where(exact, 1.0, up)
            lost = rest & ~inf_miss & (yv == 0) & (tl.abs(nlo) <= LOWEST) & ((error + spread) * slack >= FLUSH)
            flush = lost & ((error - spread) >= slack * FLUSH)
            unclear = lost & ~flush
            rest = rest & ~unclear
            settled = settled & ~unclear
            number = number & ~unclear
            left = ~settled
            if HAS_EAGER:
                e = tl.load(eager_ptr + at)
                ev = e.to(tl.float64)
                other = tl.abs((_clamp(ev, TOP) - centre) * inverse)
                enan = ev != ev
                same = ((ev == yv) & ((e.to(tl.int32, bitcast=True) < 0) == (bits < 0))) | (enan & ynan)
                different = ~same
                measurable = different & number & ~enan & (yv != ev)
                blur = error * BLUR_EXACT + tl.where(exact, 0.0, BLUR)
                tie = measurable & (tl.abs(error - other) <= 2 * spread * up + blur) & ~(exact & (error <= 8))
                one_nan = different & (ynan != enan)
                wins = (measurable & ~tie & (error < other)) | (one_nan & (nan == ynan))
                loses = (measurable & ~tie & (error > other)) | (one_nan & (nan != ynan))
                left = left | tie
                settled = settled & ~tie
                number = number & ~tie
                decided = different & settled
                w3 += _field(decided, 10) + _field(wins & settled, 20)
                w4 += _field(loses & settled, 0) + _field(decided & ~wins & ~loses, 10)
            counted = number & ~flush
            top_error = tl.maximum(top_error, tl.where(counted, (error + spread) * up, 0.0))
            top_steps = tl.maximum(top_steps, tl.where(counted, tl.abs(d), 0))
            q = tl.where(counted, tl.floor(tl.where(error > CLAMP, CLAMP, error) * UNIT + 0.5), 0.0)
            total += q
            total_signed += tl.where(signed < 0, -q, q)
            w0 += _field(settled & ((nan & ynan) | ok), 0) + _field(settled & faithful, 10)
            w0 += _field(settled & rest & ~inf_miss & ~flush, 20)
            w1 += _field(settled & flush, 0) + _field(settled & (nan != ynan), 10) + _field(settled & inf_miss, 20)
            w2 += _field(settled & sign_miss, 0) + _field(left, 10) + _field(counted, 20)
            w3 += _field(counted & (error > CLAMP), 0)
            w4 += _field(counted & (error <= EDGES[0]), 20)
            for k in tl.static_range(3):
                w5 += _field(counted & (error <= EDGES[1 + k]), 10 * k)
                w6 += _field(counted & (error <= EDGES[4 + k]), 10 * k)
                w7 += _field(counted & (error <= EDGES[7 + k]), 10 * k)
            for k in tl.static_range(2):
                w8 += _field(counted & (error <= EDGES[10 + k]), 10 * k)
        results = tl.num_programs(0) * pieces
        out = out_ptr + row * pieces + piece
        tl.store(out, tl.sum(total, 0).to(tl.int64))
        tl.store(out + results, tl.sum(total_signed, 0).to(tl.int64))
        tl.store(out + 2 * results, tl.max(top_steps, 0))
        fields = out + 4 * results
        for k in tl.static_range(3):
            tl.store(fields + k * results, tl.sum((w0 >> (10 * k)) & 1023, 0).to(tl.int64))
            tl.store(fields + (3 + k) * results, tl.sum((w1 >> (10 * k)) & 1023, 0).to(tl.int64))
            tl.store(fields + (6 + k) * results, tl.sum((w2 >> (10 * k)) & 1023, 0).to(tl.int64))
            tl.store(fields + (9 + k) * results, tl.sum((w3 >> (10 * k)) & 1023, 0).to(tl.int64))
            tl.store(fields + (12 + k) * results, tl.sum((w4 >> (10 * k)) & 1023, 0).to(tl.int64))
            tl.store(fields + (15 + k) * results, tl.sum((w5 >> (10 * k)) & 1023, 0).to(tl.int64))
            tl.store(fields + (18 + k) * results, tl.sum((w6 >> (10 * k)) & 1023, 0).to(tl.int64))
            tl.store(fields + (21 + k) * results, tl.sum((w7 >> (10 * k)) & 1023, 0).to(tl.int64))
        for k in tl.static_range(2):
            tl.store(fields + (24 + k) * results, tl.sum((w8 >> (10 * k)) & 1023, 0).to(tl.int64))
        tl.store(maxima_ptr + row * pieces + piece, tl.max(top_error, 0))


@triton.jit
def _count_up(x_ptr, start, SIZE: tl.constexpr):
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(x_ptr + place, start + place)


def patterns(start: int, count: int, device: str) -> Tensor:
    """The float32 numbers of `count` consecutive patterns from `start` on; count is a multiple of PIECE."""
    x = torch.empty(count, dtype=torch.int32, device=device)
    _count_up[(count // PIECE,)](x, start - (start >> 31 << 32), SIZE=PIECE)
    return x.view(torch.float32)


@functools.cache
def _constants(relative: float, absolute: float, device: torch.device) -> Tensor:
    """Arguments that are no float32, as which Triton takes Python's floats."""
    return torch.tensor([relative, absolute, _UP, _KNOWN_SIGN], dtype=torch.float64, device=device)


def judge_rows(
    first: Tensor, y: Tensor, mid: Tensor, rad: Tensor | None, eager: Tensor | None, *, sure: bool, relative: float,
    absolute: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """counts (WIDTH, rows), maxima (2, rows) and digests (rows) of float32 outputs shaped (rows, n).

    first: the pattern of each row's first input (int64, wrapped to 32 bits), the others count up from it.
    mid, rad, relative, absolute, sure: the enclosure, as in `verify.decide.Enclosure`; or rad as codes (uint8):
    0 where relative and absolute give it, 1 where it is 0, 2 where it is NaN. n is a multiple of PIECE.
    """
    rows, n = y.shape
    if n % PIECE:
        raise ValueError(f"rows of {n} elements; expected a multiple of {PIECE}")
    pieces = n // PIECE
    out = torch.empty(RESULTS, rows, pieces, dtype=torch.int64, device=y.device)
    maxima = torch.empty(rows, pieces, dtype=torch.float64, device=y.device)
    constants = _constants(relative, absolute, y.device)
    radius = 0 if rad is None else 2 if rad.dtype == torch.uint8 else 1
    hard = torch.empty(rows, pieces, dtype=torch.int32, device=y.device)
    given = (y, mid, mid if rad is None else rad, y if eager is None else eager, first, constants)
    facts = {"RADIUS": radius, "HAS_EAGER": eager is not None, "SURE": sure, "SIZE": BLOCK, "STEPS": STEPS}
    options = {"num_warps": WARPS, "enable_fp_fusion": False}
    _easy[(rows, pieces)](*given, out, maxima, hard, n, pieces, **facts, **options)
    _full[(rows, pieces)](*given, out, maxima, hard, n, pieces, **facts, EDGES=BINS, **options)
    summed = out.sum(-1)
    found = {name: summed[k] for k, name in enumerate(SUMS)} | {"max_int": out[SUMS.index("max_int")].amax(-1)}
    fields = summed[len(SUMS) :]
    found |= {name: fields[k] for k, name in enumerate(CLASS_FIELDS)}
    bins = fields[len(CLASS_FIELDS) :]
    counts = torch.cat([torch.stack([found[name] for name in COUNTS]), bins])
    assert counts.shape == (WIDTH, rows)
    high = maxima.amax(-1)
    return counts, torch.stack([high, high]), found["digest"]
