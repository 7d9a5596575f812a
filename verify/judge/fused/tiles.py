"""What generated Triton code shares: the reduction of judged elements, and operations on doubles.

A program gathers what it finds in registers, while its tiles are of one region and binade, and adds it to tables of
integers by atomic additions, minima and maxima, so that no order of programs shows. Programs that wait for one address
cost more than all the arithmetic; so there are COPIES of each table, added up at the end.
"""

from __future__ import annotations

import triton
import triton.language as tl

from verify.decide import BINS, CLAMP_ULP, QUANTUM
from verify.formats import FORMATS
from verify.judge.element import CLASSES
from verify.judge.reduce import COUNTED, METRICS, NORMAL, SLOTS
from verify.judge.regions import REGIONS

NONE = (1 << 62) + 1  # an index where there is none
COPIES = 32  # of each table
BINADES = 8  # of a tile at most that are added up one by one: atomic additions of each element wait for one another
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
EXPONENTS = tl.constexpr(SLOTS)
TABLES = tl.constexpr(COPIES)
SPAN = tl.constexpr(BINADES)
NOWHERE = tl.constexpr(NONE)
LOWEST = tl.constexpr((1023 + FORMATS["bfloat16"].emin) << 52)  # patterns of doubles: bfloat16's smallest normal,
TOP = tl.constexpr((1023 + FORMATS["bfloat16"].emax + 1) << 52)  # what overflows,
QUANTA = tl.constexpr((1023 + 52 - FORMATS["bfloat16"].mantissa_bits << 52) | 1 << 51)  # 1.5 * 2^52 quanta of 1


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
def count(mask):
    return tl.sum(mask.to(tl.int64), 0)


@triton.jit
def positive(v):
    """v, but 0 for a NaN."""
    return tl.where(v > 0, v, word(0))


@triton.jit
def holds(mask):
    """Whether it holds everywhere."""
    return tl.min(mask.to(tl.int32), 0) != 0


@triton.jit
def quanta(error):
    return (tl.where(error < CLAMP, error, CLAMP) * UNIT + 0.5).to(tl.int64)


@triton.jit
def _add(pointer, value):
    if value != 0:
        tl.atomic_add(pointer, value)


@triton.jit
def _highest(pointer, value):
    """Of numbers that are not negative, whose patterns are in their order."""
    top = tl.max(pattern(value), 0)
    if top != 0:
        tl.atomic_max(pointer, top)


@triton.jit
def flush(
    copy, piece, key, classes, beyond, total, signed, top_error, steps, upper, scaled, share, counts_ptr, steps_ptr,
    tops_ptr, binades_ptr,
):  # fmt: skip
    """Adds what a program has gathered of plain elements of one key, region * EXPONENTS + exponent (-1: nothing): to a
    copy of counts (COPIES, REGIONS, WIDTH), whose histogram counts the errors beyond each edge, of steps
    (COPIES, REGIONS) and binades (COPIES, SLOTS, 5), and to the piece's tops (pieces, REGIONS, METRICS).

    classes has fields of 16 bits: how many elements of a lane are correct, faithful and measured."""
    if key >= 0:
        region = key // EXPONENTS
        exponent = key - region * EXPONENTS
        place = copy * REGION_COUNT + region
        base = counts_ptr + place * WIDTH
        faithful, measured = _field(classes, 1), _field(classes, 2)
        sums, sums_signed = tl.sum(total, 0), tl.sum(signed, 0)
        tl.atomic_add(base, _field(classes, 0))
        _add(base + 1, faithful)
        _add(base + MEASURED, measured)
        _add(base + MEASURED + 2, sums)
        _add(base + MEASURED + 3, sums_signed)
        _add(base + HISTOGRAM, tl.sum(beyond, 0))
        tl.atomic_max(steps_ptr + place, tl.max(steps, 0))
        tops = tops_ptr + (piece * REGION_COUNT + region) * METRIC_COUNT
        _highest(tops, upper)
        _highest(tops + 1, scaled)
        _highest(tops + 2, share)
        if exponent > 0:
            slot = binades_ptr + (copy * EXPONENTS + exponent) * 5
            tl.atomic_add(slot, measured)
            _add(slot + 1, faithful)
            tl.atomic_max(slot + 2, tl.max(quanta(top_error), 0))
            _add(slot + 3, sums)
            _add(slot + 4, sums_signed)


@triton.jit
def _field(classes, place: tl.constexpr):
    return tl.sum((classes >> (16 * place)) & 0xFFFF, 0)


@triton.jit
def add_tile(
    tile, piece, inside, region, cls, left, measured, error, minus, upper, scaled, share, steps, unjudged, different,
    closer, farther, exponent, counts_ptr, steps_ptr, tops_ptr, left_ptr, binades_ptr,
):  # fmt: skip
    """Adds the elements `inside` of any tile, as `flush` does; left (tiles) is set to its number of open elements."""
    copy = tile % TABLES
    tl.store(left_ptr + tile, count(inside & left).to(tl.int32))
    counted = inside & (left == 0)
    q = tl.where(measured, quanta(error), 0)
    signed = tl.where(minus, -q, q)
    for r in range(REGION_COUNT):
        here = counted & (region == r)
        if count(here) > 0:
            place = copy * REGION_COUNT + r
            base = counts_ptr + place * WIDTH
            for k in range(CLASS_COUNT):
                _add(base + k, count(here & (cls == k)))
            number_ = here & measured
            told = here & different
            _add(base + MEASURED, count(number_))
            _add(base + MEASURED + 2, tl.sum(tl.where(here, q, 0), 0))
            _add(base + MEASURED + 3, tl.sum(tl.where(here, signed, 0), 0))
            if count(told) > 0:
                _add(base + MEASURED + 4, count(told))
                _add(base + MEASURED + 5, count(here & closer))
                _add(base + MEASURED + 6, count(here & farther))
                _add(base + MEASURED + 7, count(told & (closer == 0) & (farther == 0)))
            _add(base + MEASURED + 8, count(here & unjudged))
            largest = tl.max(tl.where(number_, error, 0.0), 0)
            edge = tl.full((), 0.5, tl.float64)
            if largest > edge:
                _add(base + MEASURED + 1, count(number_ & (error > CLAMP)))
                for k in range(BIN_COUNT):
                    if largest > edge:
                        _add(base + HISTOGRAM + k, count(number_ & (error > edge)))
                    edge = edge * 2
            tl.atomic_max(steps_ptr + place, tl.max(tl.where(here, steps, 0), 0))
            tops = tops_ptr + (piece * REGION_COUNT + r) * METRIC_COUNT
            _highest(tops, tl.where(here, upper, 0.0))
            _highest(tops + 1, tl.where(here, scaled, 0.0))
            _highest(tops + 2, tl.where(here, share, 0.0))
    told = counted & measured & (region == IN_NORMAL) & (exponent > 0) & (exponent < EXPONENTS - 1)
    low = tl.min(tl.where(told, exponent, EXPONENTS), 0)
    high = tl.max(tl.where(told, exponent, -1), 0)
    wrong = (cls != 0).to(tl.int64)
    if high - low < SPAN:
        for e in range(low, high + 1):
            here = told & (exponent == e)
            slot = binades_ptr + (copy * EXPONENTS + e) * 5
            _add(slot, count(here))
            _add(slot + 1, tl.sum(tl.where(here, wrong, 0), 0))
            most = tl.max(tl.where(here, q, 0), 0)
            if most != 0:
                tl.atomic_max(slot + 2, most)
            _add(slot + 3, tl.sum(tl.where(here, q, 0), 0))
            _add(slot + 4, tl.sum(tl.where(here, signed, 0), 0))
    else:
        slots = binades_ptr + (copy * EXPONENTS + exponent) * 5
        tl.atomic_add(slots, wrong * 0 + 1, mask=told)
        tl.atomic_add(slots + 1, wrong, mask=told)
        tl.atomic_max(slots + 2, q, mask=told)
        tl.atomic_add(slots + 3, q, mask=told)
        tl.atomic_add(slots + 4, signed, mask=told)


@triton.jit
def add_mismatch(copy, wrong, first, k, count_, mismatches_ptr, first_ptr):
    """Adds how often one formula of `count_` mispredicts, and where first, by lane: to a copy of mismatches and first,
    (COPIES, count_)."""
    some = tl.sum(wrong, 0)
    if some > 0:
        tl.atomic_add(mismatches_ptr + copy * count_ + k, some)
        tl.atomic_min(first_ptr + copy * count_ + k, tl.min(first, 0))
