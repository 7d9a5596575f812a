"""What generated Triton code shares: the reduction of a tile of judged elements, and operations on doubles.

A tile's counts go to tables of integers by atomic additions, minima and maxima, so that no order of programs shows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from verify.decide import _GOLDEN, BINS, CLAMP_ULP, QUANTUM, _signed
from verify.formats import FORMATS
from verify.judge.element import CLASSES
from verify.judge.reduce import COUNTED, METRICS, NORMAL
from verify.judge.regions import REGIONS

NONE = (1 << 62) + 1  # an index where there is none
BINADES = 2048
REGION_COUNT = tl.constexpr(len(REGIONS))
CLASS_COUNT = tl.constexpr(len(CLASSES))
METRIC_COUNT = tl.constexpr(len(METRICS))
BIN_COUNT = tl.constexpr(len(BINS))
WIDTH = tl.constexpr(len(COUNTED) + len(BINS))  # of a region's row in the table of counts
MEASURED = tl.constexpr(COUNTED.index("measured"))  # clamped, sum and so on follow
HISTOGRAM = tl.constexpr(len(COUNTED))
IN_NORMAL = tl.constexpr(NORMAL)
CLAMP = tl.constexpr(CLAMP_ULP)
UNIT = tl.constexpr(QUANTUM)
EXPONENTS = tl.constexpr(BINADES)
NOWHERE = tl.constexpr(NONE)
LOWEST = tl.constexpr((1023 + FORMATS["bfloat16"].emin) << 52)  # patterns of doubles: bfloat16's smallest normal,
TOP = tl.constexpr((1023 + FORMATS["bfloat16"].emax + 1) << 52)  # what overflows,
QUANTA = tl.constexpr((1023 + 52 - FORMATS["bfloat16"].mantissa_bits << 52) | 1 << 51)  # 1.5 * 2^52 quanta of 1
GOLDEN = tl.constexpr(_signed(_GOLDEN))
MIX_1 = tl.constexpr(_signed(0xBF58476D1CE4E5B9))
MIX_2 = tl.constexpr(_signed(0x94D049BB133111EB))


@triton.jit
def word(bits):
    """A double constant by its pattern: Triton would round a Python number to float32."""
    return tl.full((), bits, tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def pattern(v):
    return v.to(tl.int64, bitcast=True)


@triton.jit
def number(bits):
    return bits.to(tl.float64, bitcast=True)


@triton.jit
def absolute(v):
    return number(pattern(v) & 0x7FFFFFFFFFFFFFFF)


@triton.jit
def negative(v):
    return number(pattern(v) ^ tl.full((), -0x8000000000000000, tl.int64))


@triton.jit
def copysign(v, sign):
    top = tl.full((), -0x8000000000000000, tl.int64)
    return number((pattern(v) & 0x7FFFFFFFFFFFFFFF) | (pattern(sign) & top))


@triton.jit
def atleast(v, low):
    return tl.where(low > v, low, v)


@triton.jit
def atmost(v, high):
    return tl.where(high < v, high, v)


@triton.jit
def maximum(a, b):
    return tl.where(a != a, a, tl.where(a > b, a, b))


@triton.jit
def minimum(a, b):
    return tl.where(a != a, a, tl.where(a < b, a, b))


@triton.jit
def reciprocal(v):
    """Of a power of two, and of infinity."""
    bits = tl.full((), 2046 << 52, tl.int64) - pattern(v)
    return number(tl.where(bits > 0, bits, 0))


@triton.jit
def round_float32(v):
    return v.to(tl.float32).to(tl.float64)


@triton.jit
def round_float16(v):
    return v.to(tl.float32).to(tl.float16).to(tl.float32).to(tl.float64)


@triton.jit
def round_bfloat16(v):
    """Adds and subtracts 1.5 * 2^52 quanta, as lanes.h does."""
    size = absolute(v)
    within = atmost(atleast(size, word(LOWEST)), word(TOP))
    magic = number(pattern(within) & 0x7FF0000000000000) * word(QUANTA)
    rounded = (size + magic) - magic
    return copysign(tl.where(rounded >= word(TOP), float("inf"), rounded), v)


@triton.jit
def word_float32(v):
    return v.to(tl.float32).to(tl.int32, bitcast=True).to(tl.int64)


@triton.jit
def word_float16(v):
    return v.to(tl.float32).to(tl.float16).to(tl.int16, bitcast=True).to(tl.int64)


@triton.jit
def word_bfloat16(v):
    return word_float32(v) >> 16


@triton.jit
def unword_float32(b):
    return b.to(tl.int32).to(tl.float32, bitcast=True).to(tl.float64)


@triton.jit
def unword_float16(b):
    return b.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32).to(tl.float64)


@triton.jit
def unword_bfloat16(b):
    return unword_float32(b << 16)


@triton.jit
def _count(mask):
    return tl.sum(mask.to(tl.int64), 0)


@triton.jit
def add_tile(
    row, tile, index, inside, region, cls, left, measured, error, minus, upper, scaled, share, steps, unjudged,
    different, closer, farther, exponent, counts_ptr, steps_ptr, first_ptr, tops_ptr, left_ptr, binades_ptr,
):  # fmt: skip
    """Adds the elements `inside` of one tile of a row: to counts (rows, REGIONS, WIDTH), steps (rows, REGIONS), first
    (rows, REGIONS, CLASSES) and binades (rows, BINADES, 5); tops (tiles, REGIONS, METRICS) and left (tiles) are set to
    the tile's largest values and its number of open elements."""
    tl.store(left_ptr + tile, _count(inside & left))
    q = (tl.where(error < CLAMP, error, CLAMP) * UNIT + 0.5).to(tl.int64)
    q = tl.where(measured, q, 0)
    signed = tl.where(minus, -q, q)
    for r in range(REGION_COUNT):
        here = inside & (region == r) & (left == 0)
        if _count(here) > 0:
            place = row * REGION_COUNT + r
            base = counts_ptr + place * WIDTH
            for k in range(CLASS_COUNT):
                mine = here & (cls == k)
                some = _count(mine)
                if some > 0:
                    tl.atomic_add(base + k, some)
                    tl.atomic_min(first_ptr + place * CLASS_COUNT + k, tl.min(tl.where(mine, index, NOWHERE), 0))
            number_ = here & measured
            told = here & different
            tl.atomic_add(base + MEASURED, _count(number_))
            tl.atomic_add(base + MEASURED + 1, _count(number_ & (error > CLAMP)))
            tl.atomic_add(base + MEASURED + 2, tl.sum(tl.where(here, q, 0), 0))
            tl.atomic_add(base + MEASURED + 3, tl.sum(tl.where(here, signed, 0), 0))
            if _count(told) > 0:
                tl.atomic_add(base + MEASURED + 4, _count(told))
                tl.atomic_add(base + MEASURED + 5, _count(here & closer))
                tl.atomic_add(base + MEASURED + 6, _count(here & farther))
                tl.atomic_add(base + MEASURED + 7, _count(told & (closer == 0) & (farther == 0)))
            tl.atomic_add(base + MEASURED + 8, _count(here & unjudged))
            edge = tl.full((), 0.5, tl.float64)
            for k in range(BIN_COUNT):
                tl.atomic_add(base + HISTOGRAM + k, _count(number_ & (error <= edge)))
                edge = edge * 2
            tl.atomic_max(steps_ptr + place, tl.max(tl.where(here, steps, 0), 0))
            tops = tops_ptr + (tile * REGION_COUNT + r) * METRIC_COUNT
            tl.store(tops, tl.max(tl.where(here, upper, 0.0), 0))
            tl.store(tops + 1, tl.max(tl.where(here, scaled, 0.0), 0))
            tl.store(tops + 2, tl.max(tl.where(here, share, 0.0), 0))
    told = inside & (left == 0) & measured & (region == IN_NORMAL) & (exponent > 0) & (exponent < EXPONENTS - 1)
    low = tl.min(tl.where(told, exponent, EXPONENTS), 0)
    high = tl.max(tl.where(told, exponent, -1), 0)
    wrong = (cls != 0).to(tl.int64)
    if low == high:
        slot = binades_ptr + (row * EXPONENTS + low) * 5
        tl.atomic_add(slot, _count(told))
        tl.atomic_add(slot + 1, tl.sum(tl.where(told, wrong, 0), 0))
        tl.atomic_max(slot + 2, tl.max(tl.where(told, q, 0), 0))
        tl.atomic_add(slot + 3, tl.sum(tl.where(told, q, 0), 0))
        tl.atomic_add(slot + 4, tl.sum(tl.where(told, signed, 0), 0))
    elif high >= 0:
        slots = binades_ptr + (row * EXPONENTS + exponent) * 5
        tl.atomic_add(slots, wrong * 0 + 1, mask=told)
        tl.atomic_add(slots + 1, wrong, mask=told)
        tl.atomic_max(slots + 2, q, mask=told)
        tl.atomic_add(slots + 3, q, mask=told)
        tl.atomic_add(slots + 4, signed, mask=told)


@triton.jit
def add_digest(row, index, inside, bits, width: tl.constexpr, infinity, canonical, digest_ptr):
    """Adds the hashes of patterns (sign-extended) at their places in the row: `verify.decide.digest`."""
    v = bits & ((1 << width) - 1)
    v = tl.where((v & ((1 << (width - 1)) - 1)) > infinity, canonical, v)
    z = v ^ ((index + 1) * GOLDEN)
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * MIX_1
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * MIX_2
    z = z ^ ((z >> 31) & ((1 << 33) - 1))
    tl.atomic_add(digest_ptr + row, tl.sum(tl.where(inside, z, 0), 0))


@triton.jit
def add_mismatch(row, index, inside, wrong, k, count, mismatches_ptr, first_ptr):
    """Adds what one formula of `count` mispredicts in a tile: to mismatches and first, both (rows, count)."""
    mine = inside & wrong
    some = _count(mine)
    if some > 0:
        tl.atomic_add(mismatches_ptr + row * count + k, some)
        tl.atomic_min(first_ptr + row * count + k, tl.min(tl.where(mine, index, NOWHERE), 0))
