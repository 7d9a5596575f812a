"""What generated Triton code shares: the reduction of judged elements, and operations on doubles.

A program gathers what it finds in registers, while its tiles are of one region and binade, and adds it to tables of
integers by atomic additions, minima and maxima, so that no order of programs shows. Programs that wait for one address
cost more than all the arithmetic; so there are COPIES of each table, added up at the end.
"""

from __future__ import annotations

import triton
import triton.language as tl

from verify.judge.element import CLASSES
from verify.judge.reduce import COUNTED, METRICS, NORMAL, SLOTS
from verify.judge.regions import REGIONS
from verify.numbers.decide import BINS, CLAMP_ULP, QUANTUM

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
IN_SPECIAL = tl.constexpr(REGIONS.index("special"))
IN_OPERAND = tl.constexpr(REGIONS.index("subnormal-operand"))
IN_SMALL = tl.constexpr(REGIONS.index("subnormal-result"))
IN_OVERFLOW = tl.constexpr(REGIONS.index("overflow"))
CLAMP = tl.constexpr(CLAMP_ULP)
UNIT = tl.constexpr(QUANTUM)
EXPONENTS = tl.constexpr(SLOTS)
TABLES = tl.constexpr(COPIES)
SPAN = tl.constexpr(BINADES)
LAST = tl.constexpr((1 << 31) - 1)


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


# Sums, products, quotients and roots of float32 values, rounded to float32: what the float64 ones are when they are
# rounded again (Figueroa 1995).


@triton.jit
def single_add(a, b):
    return (a.to(tl.float32) + b.to(tl.float32)).to(tl.float64)


@triton.jit
def single_sub(a, b):
    return (a.to(tl.float32) - b.to(tl.float32)).to(tl.float64)


@triton.jit
def single_mul(a, b):
    return (a.to(tl.float32) * b.to(tl.float32)).to(tl.float64)


@triton.jit
def single_div(a, b):
    return tl.math.div_rn(a.to(tl.float32), b.to(tl.float32)).to(tl.float64)


@triton.jit
def single_sqrt(v):
    return tl.math.sqrt_rn(v.to(tl.float32)).to(tl.float64)


@triton.jit
def fma_float32(a, b, c):
    return tl.fma(a.to(tl.float32), b.to(tl.float32), c.to(tl.float32)).to(tl.float64)


@triton.jit
def round_half(v, MANTISSA: tl.constexpr, EMIN: tl.constexpr, EMAX: tl.constexpr):
    """Adds and subtracts 1.5 * 2^52 quanta, as lanes.h does."""
    size, top = absolute(v), word((1023 + EMAX + 1) << 52)
    within = atmost(atleast(size, word((1023 + EMIN) << 52)), top)
    magic = number(pattern(within) & 0x7FF0000000000000) * word((1023 + 52 - MANTISSA << 52) | 1 << 51)
    rounded = (size + magic) - magic
    return copysign(tl.where(rounded >= top, float("inf"), rounded), v)


@triton.jit
def narrow_float16(v):
    """Of a value of float32."""
    return v.to(tl.float32).to(tl.float16).to(tl.float32).to(tl.float64)


@triton.jit
def round_float16(v):
    return round_half(v, 10, -14, 15)


@triton.jit
def round_bfloat16(v):
    return round_half(v, 7, -126, 127)


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
def quanta(error):
    return (tl.where(error < CLAMP, error, CLAMP) * UNIT + 0.5).to(tl.int64)


@triton.jit
def small_quanta(error):
    """Of errors of 1 ULP at most."""
    return (error * UNIT + 0.5).to(tl.int32)


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
def region_of(nan, operand, small, overflow):
    """Of plain elements; the first that fits is taken."""
    region = tl.where(overflow, IN_OVERFLOW, IN_NORMAL)
    region = tl.where(small, IN_SMALL, region)
    region = tl.where(operand, IN_OPERAND, region)
    return tl.where(nan, IN_SPECIAL, region)


@triton.jit
def flush(
    copy, piece, key, counted, total, signed, top, upper, scaled, ulp, most, count_, counts_ptr, steps_ptr, tops_ptr,
    binades_ptr, SCALED: tl.constexpr,
):  # fmt: skip
    """Adds what the lanes of a program have gathered of plain elements of one key, region * EXPONENTS + exponent (-1:
    nothing): to a copy of counts (COPIES, REGIONS, WIDTH), whose histogram counts the errors beyond each edge, of steps
    (COPIES, REGIONS) and binades (COPIES, SLOTS, 5), and to the piece's tops (pieces, REGIONS, METRICS).

    counted has fields of 10 bits: how many elements of a lane there are, are faithful, and err by more than 1/2 ULP.
    total, signed and top: sums and the largest of errors in QUANTUM-th parts of an ULP; upper, scaled: largest ones.
    A share is a quotient by a bound, and the largest one that of the largest error: rounding is monotonic.
    """
    if key >= 0:
        region = key // EXPONENTS
        exponent = key - region * EXPONENTS
        place = copy * REGION_COUNT + region
        base = counts_ptr + place * WIDTH
        number_, faithful, beyond = _field(counted, 0), _field(counted, 1), _field(counted, 2)
        tl.atomic_add(base, number_ - faithful)
        _add(base + 1, faithful)
        if region != IN_SPECIAL:
            sums, sums_signed = tl.sum(total.to(tl.int64), 0), tl.sum(signed.to(tl.int64), 0)
            tl.atomic_add(base + MEASURED, number_)
            _add(base + MEASURED + 2, sums)
            _add(base + MEASURED + 3, sums_signed)
            _add(base + HISTOGRAM, beyond)
            most_upper, most_scaled = tl.max(upper, 0), tl.max(scaled, 0)
            step = tl.where(faithful > 0, word(0x3FF0000000000000), word(0)) / count_
            if SCALED:
                share = tl.where(most_upper / ulp > most_scaled / most, most_upper / ulp, most_scaled / most)
            else:
                share = most_upper / tl.where(most < ulp, most, ulp)
            share = tl.where((faithful > 0) & (step > share), step, share)
            tops = tops_ptr + (piece * REGION_COUNT + region) * METRIC_COUNT
            _higher(tops, most_upper)
            _higher(tops + 1, most_scaled)
            _higher(tops + 2, tl.where(share < 1, share, 1.0))
            if faithful > 0:
                tl.atomic_max(steps_ptr + place, (number_ * 0 + 1).to(tl.int64))
            if exponent > 0:
                slot = binades_ptr + (copy * EXPONENTS + exponent) * 5
                tl.atomic_add(slot, number_)
                _add(slot + 1, faithful)
                tl.atomic_max(slot + 2, tl.max(top, 0).to(tl.int64))
                _add(slot + 3, sums)
                _add(slot + 4, sums_signed)


@triton.jit
def _field(counted, place: tl.constexpr):
    return tl.sum((counted >> (10 * place)) & 0x3FF, 0).to(tl.int64)


@triton.jit
def _higher(pointer, value):
    if value > 0:
        tl.atomic_max(pointer, pattern(value))


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
    """Adds how often one formula of `count_` mispredicts, and where first, by lane (LAST: nowhere): to a copy of
    mismatches and first, (COPIES, count_)."""
    some = tl.sum(wrong, 0)
    if some > 0:
        tl.atomic_add(mismatches_ptr + copy * count_ + k, some.to(tl.int64))
        tl.atomic_min(first_ptr + copy * count_ + k, tl.min(first, 0).to(tl.int64))
