"""The numbers of row kernels: recipes by name, and the problems that consist of them.

A recipe is an integer function of (seed, recipe, index), as in `verify.inputs.draws`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import Setting
from verify.inputs.draws import Draw, Ints, exp2, mix, pack, to_tensor

if TYPE_CHECKING:
    from verify.families.composite import Problem

LAYOUTS = ("contiguous", "transposed", "strided", "expanded")
#: What an operation's ordinary numbers are: terms of a sum, factors of a product, arguments of exp, or numbers squared.
SUMS, PRODUCTS, EXPONENTIALS, SQUARES = "sums", "products", "exponentials", "squares"
Recipe = Callable[["Row"], Ints]


# ---------------------------------------------------------------- drawing


class Row:
    """Where a recipe draws: `draw` for each element, its place `j` in its row, the row's number `r`, the length `n`,
    and what the operation is about (`kind`)."""

    def __init__(self, draw: Draw, n: int, kind: str) -> None:
        self.draw, self.n, self.kind = draw, n, kind

    @functools.cached_property
    def j(self) -> Ints:
        return self.draw.index % self.n

    @functools.cached_property
    def r(self) -> Ints:
        return self.draw.index // self.n

    def real(self, low: float, high: float) -> Ints:
        return self.draw.encode(self.draw.real(low, high))

    def at(self, values: Any) -> Ints:
        """Patterns of float64 values."""
        return self.draw.encode(values)

    def one_of(self, *values: float) -> Ints:
        """The same value in a whole row."""
        import torch

        table = torch.tensor(values, dtype=torch.float64, device=self.draw.index.device)
        return self.at(table[self.r % len(values)])

    def triples(self) -> Draw:
        """Draws that three neighbours share."""
        place = self.r * (self.n // 3 + 1) + self.j // 3
        return Draw(self.draw.fmt, place, self.draw.seed, self.draw.stratum)

    def steps(self, low: int, high: int) -> tuple[Ints, Ints]:
        """An integer in [low, high] for each element, and that of its predecessor in the row (0 for the first)."""
        previous = Draw(self.draw.fmt, self.draw.index - 1, self.draw.seed, self.draw.stratum).integer(low, high)
        return self.draw.integer(low, high), previous.where(self.j > 0, self.j * 0)

    def turn(self, period: int) -> Ints:
        """0 to period - 1 by place and row, so that every place takes each value in some row."""
        return (mix(self.j) + 5 * self.r) % period

    def places(self, count: Ints) -> Any:
        """Whether an element is one of `count` evenly spread ones, which differ from row to row; count at most n."""
        turned = (self.j + self.r * 7919) % self.n
        return turned * count % self.n < count


# ---------------------------------------------------------------- recipes

CYCLE = (1 << 16) + 1  # a prime: rows of other lengths begin elsewhere


def random(row: Row) -> Ints:
    """Ordinary numbers of either sign: of 16 binades; within 6% of 1 in magnitude; within 20 of 0."""
    d = row.draw
    if row.kind == PRODUCTS:
        return d.signed(row.real(0.9399, 1.0613))  # their logarithms have mean 0
    return row.real(-20.0, 20.0) if row.kind == EXPONENTIALS else d.value(d.integer(-12, 3))


def cycled(row: Row) -> Ints:
    """As `random`, CYCLE numbers again and again, of which no two rows have the same: quick to draw. Terms and factors
    of 16 bits lie between neighbours of a random sequence instead, so that scans in their own type are exact: of so
    many others nothing is known."""
    draw, count = row.draw, len(row.draw.index)
    draw = Draw(draw.fmt, draw.index[:CYCLE], draw.seed, draw.stratum)
    few = Row(draw, row.n, row.kind)
    if draw.fmt.bits > 16 or row.kind not in (SUMS, PRODUCTS):
        found = random(few)
    elif row.kind == SUMS:
        heights = draw.integer(-15, 15)
        found = few.at((heights - heights.roll(1)).double())
    else:
        heights = draw.integer(-3, 3)
        found = draw.signed(few.at(exp2((heights - heights.roll(1)).double())))
    return found.repeat(-(-count // CYCLE))[:count]


def equal(row: Row) -> Ints:
    """One number in the whole row, another one in the next."""
    if row.kind == PRODUCTS:
        return row.one_of(1.01, -0.99, 1.0, -1.0, 2.0**0.5)
    return row.one_of(0.1, -7.3, 1.0, 0.0, 3.0)


def alternating(row: Row) -> Ints:
    """Signs that alternate, magnitudes nearly the same (factors: a number and nearly its reciprocal)."""
    import torch

    even = row.j % 2 == 0
    noise = row.draw.real(0.999, 1.001)
    if row.kind == PRODUCTS:
        return row.at(torch.where(even, noise * 1.7, noise / -1.7))
    size = 15.0 if row.kind == EXPONENTIALS else 3.0
    return row.at(torch.where(even, noise * size, noise * -size))


def powers(row: Row) -> Ints:
    """Increasing by powers of two, from 2^-10 to 2^9 again and again (factors: 2^-2 to 2^2)."""
    zero = row.j * 0
    if row.kind == PRODUCTS:
        return pack(row.draw.fmt, row.j % 5 - 2, zero)
    return pack(row.draw.fmt, row.j % 20 - 10, zero)


def ascending(row: Row) -> Ints:
    """Sorted, smallest first."""
    low, high = {PRODUCTS: (0.98, 1.02), EXPONENTIALS: (-20.0, 20.0)}.get(row.kind, (-0.5, 4.0))
    place = (row.j.double() + row.draw.real(0.0, 0.999)) / row.n
    return row.at(place * (high - low) + low)


def descending(row: Row) -> Ints:
    """Sorted, largest first."""
    row.j = row.n - 1 - row.j
    return ascending(row)


def infinities(row: Row) -> Ints:
    """-inf at the start and now and then, +inf late, both, or -inf alone, by row; ordinary numbers between."""
    d, j, n = row.draw, row.j, row.n
    negative, positive = d.constant("-inf"), d.constant("inf")
    scattered = (j < n // 8) | (d.integer(0, 9) == 0)
    late = (j >= n - n // 4) & (d.integer(0, 9) == 0)
    which = row.r % 4
    found = negative.where((which == 3) | scattered & (which != 1), random(row))
    return positive.where(late & ((which == 1) | (which == 2)), found)


def nans(row: Row) -> Ints:
    """A NaN in the middle of the row, ordinary numbers and one infinity around it."""
    d = row.draw
    found = d.constant("nan").where(row.j == row.n // 2, random(row))
    return d.constant("inf").where(row.j == row.n // 3, found)


def one_nan(row: Row) -> Ints:
    """A single NaN, at the end, in the middle or at the start, by row, among ordinary numbers alone."""
    place = (row.n - 1) * (2 - row.r % 3) // 2
    return row.draw.constant("nan").where(row.j == place, random(row))


def wide(row: Row) -> Ints:
    """Far apart: terms of 60 binades, factors that overflow and underflow, arguments beyond exp's range; of what is
    squared also rows whose squares overflow, and rows whose squares underflow."""
    d = row.draw
    if row.kind == EXPONENTIALS:
        return row.real(-3000.0, 3000.0)
    reach = min(30, d.fmt.emax // 2 - 1)
    if row.kind == SQUARES and d.fmt.bits < 64:  # whose own squares bound those of the others
        middle = d.fmt.emax // 2
        which = row.r % 3
        low = (row.j * 0 - reach).where(which == 0, (row.j * 0 + middle).where(which == 1, row.j * 0 + d.fmt.emin))
        high = (row.j * 0 + reach // 2).where(which == 0, (row.j * 0 + d.fmt.emax - 1).where(which == 1, -middle))
        return d.value(d.integer(low, high))
    return d.value(d.integer(-reach, reach if row.kind == PRODUCTS else reach // 2))


@functools.cache
def _rounded_down(fmt: Format) -> list[int]:
    """Patterns of the eight sixteenths above -6 whose exponentials lose most when they are rounded to the format;
    the losses are too far apart for a library's last place to choose others."""

    def loss(x: float) -> float:
        significand = math.ldexp(math.frexp(math.exp(x))[0], fmt.precision)
        return (significand - round(significand)) / significand

    return [fmt.parse(str(x)) for x in sorted((-k / 16 for k in range(1, 97)), key=loss)[-8:]]


def dominated(row: Row) -> Ints:
    """A number that outweighs all the rest, so that small terms count: 0 under exp, where in every other row rounding
    to the dtype makes seven in eight terms smaller; factors near 1."""
    d, first = row.draw, row.j == row.r % 3
    if row.kind == EXPONENTIALS:
        less = d.pick(_rounded_down(d.fmt)).where(d.integer(0, 7) > 0, row.real(-6.0, 0.0))
        rest = less.where(row.r % 2 == 1, row.real(-60.0, -9.0))
        return d.constant("0").where(first, rest)
    if row.kind == PRODUCTS:
        return row.at(exp2(d.integer(-24, -8).double()) * d.real(-1.0, 1.0) + 1.0)
    return row.one_of(1.0, -3.0).where(first, d.value(d.integer(-24, -12)))


def cancelling(row: Row) -> Ints:
    """x, -x and something small, again and again."""
    d, shared = row.draw, row.triples()
    if row.kind == EXPONENTIALS:
        return row.real(-1.0, 1.0)
    if row.kind == PRODUCTS:
        return pack(d.fmt, row.j % 3 * 3 - 3, shared.significand() * (row.j % 3 == 1).long())
    size = shared.value(shared.integer(-2, 4))
    signed = size ^ (size * 0 + 1 << (d.fmt.bits - 1)) * (row.j % 3 == 1).long()
    small = d.value(d.integer(-14, -8))
    return small.where(row.j % 3 == 2, signed)


def tiny(row: Row) -> Ints:
    """Subnormal numbers and zeros of either sign."""
    d = row.draw
    lowest = d.fmt.emin - d.fmt.mantissa_bits
    found = d.value(d.integer(lowest, d.fmt.emin + 1))
    return d.signed(d.constant("0")).where((d.integer(0, 3) == 0) & (row.j > 0), found)


def ties(row: Row) -> Ints:
    """Few different numbers, zeros of either sign among them, so that equal ones meet."""
    d = row.draw
    return d.pick([d.fmt.parse(text) for text in ("0", "-0", "1", "-1", "0.5", "-2", "3")])


def widening(row: Row) -> Ints:
    """Signs that alternate, magnitudes that grow: a new extreme of either kind at every other place, so that a part
    that is lost shows."""
    import torch

    size = (row.j.double() + row.draw.real(0.0, 0.999)) / row.n * 60.0 + 0.25
    return row.at(torch.where((row.j + row.r) % 2 == 0, size, -size))


def one_sign(row: Row) -> Ints:
    """Positive numbers with random significands, of 4 binades; within 6% of 1; within 20 of 0."""
    d = row.draw
    if row.kind == PRODUCTS:
        return row.real(0.9399, 1.0613)
    return row.real(0.5, 20.0) if row.kind == EXPONENTIALS else pack(d.fmt, d.integer(-2, 1), d.significand())


def graded(row: Row) -> Ints:
    """Magnitudes of 13 binades (arguments of exp of 17), each place another one in each row: every element is among the
    largest somewhere. Factors: the products stay within 8 binades."""
    d = row.draw
    if row.kind == PRODUCTS:
        now, before = row.steps(-4, 4)
        return d.signed(row.at(exp2((now - before).double()) * d.real(0.9399, 1.0613)))
    if row.kind == EXPONENTIALS:
        return row.at(row.turn(13).double() * -1.3 + d.real(0.0, 1.0))
    return d.value(-row.turn(13))


def exact(row: Row) -> Ints:
    """Numbers on which every order of the operations is exact, so that any other bit is a fault.

    Terms: differences of small odd numbers, so that no prefix sum is 0 and each is short, and all of them together are
    below 2^24 units; in every third row a number of a full significand among zeros. Factors: powers of two, and 3/2
    four times. Arguments of exp: a power of two of equal ones, or each 40 above the one before, among -inf. What is
    squared: 3/4, or 5/4, 1/4 and 1/4, whose mean square is 9/16.
    """
    import torch

    d, n = row.draw, row.n
    if row.kind == PRODUCTS:
        now, before = row.steps(-3, 3)
        halves = (row.j * 0 + 3).where(row.places(row.j * 0 + min(4, n)), row.j * 0 + 2)
        return d.signed(row.at(exp2((now - before).double()) * halves.double() * 0.5))
    if row.kind == EXPONENTIALS:
        # of counts that are powers of two; their reciprocals have to resolve in the format
        levels = min(n.bit_length(), 4 - d.fmt.emin)
        stairs, turn, steps = row.r % 2 == 1, row.r // 2, min(8, n)
        climbed = row.j * steps + turn * 7919 % n  # in n-ths of a step
        kept = row.places((row.j * 0 + 1) << (levels - 1 - turn % levels)).where(~stairs, climbed % n < steps)
        height = (climbed // n).double() * 40.0 - 150.0  # never 0, whose neighbours are small
        value = torch.where(stairs, height, (turn % 7).double() * 1.5 - 4.0)
        return row.at(value).where(kept, d.constant("-inf"))
    if row.kind == SQUARES:
        which, j = row.triples().integer(0, 3), row.j
        plain = (which == 3) | (j >= n // 3 * 3)
        quarters = (j * 0 + 3).where(plain, (j * 0 + 5).where(j % 3 == which, j * 0 + 1))
        return d.signed(row.at(quarters.double() * 0.25))
    bits = max(1, min(6, 24 - n.bit_length()))
    now, before = row.steps(-(1 << bits - 1), (1 << bits - 1) - 1)
    first = (2 * now + 1).where(row.j == 0, 2 * (now - before))
    short = row.at(first.double() * exp2(-(row.r % 5).double()))
    alone = d.value(d.integer(-3, 3)) | 1
    return short.where(row.r % 3 != 2, alone.where(row.j == (row.r * 7919 + 13) % n, row.j * 0))


def counted(row: Row) -> Ints:
    """Positive even numbers of units and an odd one of 24 bits, which add up to between 2^23 and 2^24 of them, so that
    a lost last bit shows. Other kinds: as `exact`, of one sign."""
    import torch

    if row.kind in (PRODUCTS, SQUARES):
        return exact(row) & (row.draw.fmt.sign_bit - 1)
    if row.kind == EXPONENTIALS:
        return exact(row)
    d, most = row.draw, min((1 << 22) // row.n, (1 << row.draw.fmt.precision) - 1)
    few, large = 2 * d.integer((most + 3) // 4, most // 2), 2 * d.integer(0, (1 << 21) - 1) + 1
    return row.at(torch.where(row.j == row.r * 7919 % row.n, large + (1 << 23), few).double() * 2.0**-10)


def shares(row: Row) -> Ints:
    """Arguments of exp that are equal at an odd number of places, among -inf, so that a share is the reciprocal of a
    count; in every other row 0 beside so many terms that each becomes as much less where it is rounded to the dtype."""
    import torch

    d, n = row.draw, row.n
    most = min(n, 1 << -d.fmt.emin - 2)  # whose shares are normal numbers
    kept = row.places((row.j * 0 + most * (3 + row.r % 5) // 8) | 1)
    worst = torch.tensor([d.fmt.to_float(bits) for bits in _rounded_down(d.fmt)], dtype=torch.float64)
    value = torch.where(row.r % 2 == 0, (row.r % 7).double() * 1.5 - 4.0, worst[row.r // 2 % len(worst)])
    first = (row.r % 2 == 1) & (row.j == row.r * 7919 % n)
    return d.constant("0").where(first, row.at(value).where(kept, d.constant("-inf")))


def late(row: Row) -> Ints:
    """Arguments of exp: each of the last 64 outweighs all before it; the others are -inf."""
    back = row.n - 1 - row.j
    value = (row.r % 7).double() * 1.5 + 3.0 - back.double() * 1.5
    return row.at(value).where(back < 64, row.draw.constant("-inf"))


def stairs(row: Row) -> Ints:
    """Arguments of exp: the last one, or in every other row the first one after it, of a block of 1, 2, 4... outweighs
    all before it by 20, among zeros. Where a scan by blocks loses it, all up to the next are others."""
    ends = row.j + (row.r + 1) % 2  # a power of two where there is one
    power = (ends > 0) & ((ends & (ends - 1)) == 0)
    height = row.at(((ends.double() + 0.5).log2().floor() + 1) * 20.0)
    return height.where(power, row.j * 0)


def low(row: Row) -> Ints:
    """Arguments of exp that are all far below what code takes for nothing: 0, -10,000, or -1e9 (in
    float16 three quarters of its least number)."""
    import torch

    least = max(-4e9, -0.75 * float(row.draw.fmt.max_finite))
    offset = torch.tensor([-75.0, -2e4, least], dtype=torch.float64)[row.r % 3]
    return row.at(offset - row.draw.real(0.0, 15.0))


def climbing(row: Row) -> Ints:
    """Arguments of exp that rise by 5 in all for each 64, 128, 256 or 1,024 places, by row, or fall as much in the next
    four: no block is far above the one before it, and the last is beyond exp's range above the first."""
    import torch

    size = torch.tensor([64.0, 128.0, 256.0, 1024.0], dtype=torch.float64)[row.r % 4]
    place = torch.where(row.r // 4 % 2 == 0, row.j, row.n - 1 - row.j).double()
    return row.at(place * 5.0 / size + row.draw.real(-1.0, 1.0))


def gap(row: Row) -> Ints:
    """Arguments of exp with -inf in place of those from a fifth to four fifths, in whole blocks after others; in every
    other row the first are as large as those after the gap, or larger than these by 10."""
    value = row.draw.real(-4.0, 4.0) + (row.r % 2 * (row.j < row.n // 2) * 10).double()
    return row.draw.constant("-inf").where((row.j >= row.n // 5) & (row.j < row.n * 4 // 5), row.at(value))


def parts(row: Row) -> Ints:
    """Terms of which five eighths are 0.45 steps above 1 in the mean, which rounds to 1, and the others a whole step:
    where partial sums are rounded to the dtype, the result is another one. Eighths of the row, or by turns."""
    d, step = row.draw, row.j * 0 + 1
    turn = (row.j * 8 // row.n).where(row.r % 3 == 0, row.j // (1 + 63 * (row.r % 3 == 2)) % 8)
    size = row.j * 0 + min(0, d.fmt.emax - row.n.bit_length())
    return pack(d.fmt, size, (step * (mix(row.j) % 100 < 45)).where(turn < 5, step))


def few(row: Row) -> Ints:
    """Numbers to be squared: 69/64 at 1,024 places, among zeros. Every order adds the squares exactly; bfloat16 holds
    none of them."""
    kept = row.places(row.j * 0 + min(1024, row.n))
    return row.draw.signed(row.at(kept.double() * (69 / 64)))


def small(row: Row) -> Ints:
    """Numbers to be squared, beside whose squares any eps but 0 counts, and which are no subnormal ones."""
    d, least = row.draw, -12 if row.draw.fmt.emax < 127 else -24
    return d.signed(d.value(d.integer(least, least + 2)))


def negative_nan(row: Row) -> Ints:
    """As `one_nan`, with a NaN whose sign bit is set."""
    bits = one_nan(row)
    return (bits | row.draw.fmt.sign_bit).where(bits == row.draw.fmt.nan_bits, bits)


def edges(row: Row) -> Ints:
    """Where code takes a finite number for an infinite one, or leaves early. Terms whose sum is within a factor of 3 of
    the largest number, below it or, in every other row, beyond it; arguments of exp all near the lowest number, or in
    the last binade, of which most times log2(e) are infinite; a zero, then an infinity or a NaN among factors;
    numbers to be squared whose squares are subnormal."""
    d, middle = row.draw, row.n // 2
    if row.kind == PRODUCTS:
        last = d.constant("inf").where(row.r % 2 == 0, d.constant("nan"))
        found = d.constant("0").where(row.j == middle // 2, random(row))
        return last.where(row.j == row.n - 1 - row.n // 4, found)
    if row.kind == EXPONENTIALS:
        below = d.significand().where(row.r % 2 == 0, row.j * 0)
        most = row.j * 0 + (7 << d.fmt.mantissa_bits - 3)
        found = pack(d.fmt, d.fmt.emax - (row.r % 4 < 2).long(), most.where(row.r % 4 == 3, below.minimum(most)))
        return found.where(row.r % 4 == 2, found | d.fmt.sign_bit)
    if row.kind == SQUARES:
        return d.value(row.j * 0 + (d.fmt.emin - 2) // 2)
    own = d.fmt.emax - max(1, row.n).bit_length() + (row.r % 2) * 2
    return pack(d.fmt, row.j * 0 + own, row.j * 0 + (1 << d.fmt.mantissa_bits - 1))


def hollow(row: Row) -> Ints:
    """-inf but for a few ordinary numbers, and in every other row one NaN among them."""
    d = row.draw
    found = random(row).where(row.turn(7) == 0, d.constant("-inf"))
    return d.constant("nan").where((row.r % 2 == 0) & (row.j == (row.r // 2 + 1) % row.n), found)


def carried(row: Row) -> Ints:
    """Ordinary numbers but for what one block of a long row leaves to the next ones: by row a NaN, +inf in two of them,
    a zero before a NaN, +inf or -inf in place of the first half, -inf alone."""
    d, j, which = row.draw, row.j, row.r % 6
    early, late, half = j == row.n // 5, j == row.n - row.n // 4, j < row.n // 2
    found = random(row)
    for text, where in (
        ("nan", (which == 0) & early | (which == 2) & late),
        ("inf", (which == 1) & (early | late) | (which == 3) & half),
        ("0", (which == 2) & early),
        ("-inf", (which == 4) & half | (which == 5)),
    ):
        found = d.constant(text).where(where, found)
    return found


def zeros(row: Row) -> Ints:
    """Ordinary numbers, and zeros of either sign among them."""
    d = row.draw
    return d.signed(d.constant("0")).where(d.integer(0, 4) == 0, random(row))


def relu(row: Row) -> Ints:
    """Ordinary numbers of one sign, and 0 in place of the others."""
    bits = random(row)
    return bits.where(bits & row.draw.fmt.sign_bit == 0, row.j * 0)


def ended(row: Row) -> Ints:
    """An infinity, or a NaN in every other row, and a zero at some distance after it."""
    d = row.draw
    first = d.constant("inf").where(row.r % 2 == 0, d.constant("nan"))
    return d.constant("0").where(row.j == row.n - 1 - row.n // 3, first.where(row.j == row.r // 2 % row.n, random(row)))


def lowest(row: Row) -> Ints:
    """The lowest finite number alone, which stands for -inf in masks."""
    return row.draw.constant(str(-float(row.draw.fmt.max_finite)))


def returning(row: Row) -> Ints:
    """Terms of one sign, then as many of the other: partial sums that 16-bit integers do not hold, as large as float16
    holds them, of a sum that is small."""
    size = row.draw.real(0.9, 1.1) * 80_000 / row.n
    return row.at(size.where(row.j < row.n // 2, -size))


def sinking(row: Row) -> Ints:
    """Halves, ones, and then twos: running products far below what 16-bit types hold, and back."""
    far = 120  # 2^-120 is normal in float32
    ones = row.draw.real(1.0, 1.0)
    return row.at(ones.where(row.j >= far, 0.5).where(row.j < row.n - far, 2.0))


RECIPES: Mapping[str, Recipe] = {
    f.__name__: f
    for f in (
        random, equal, alternating, powers, ascending, descending, infinities, nans, wide, dominated, cancelling, tiny,
        one_sign, graded, exact, counted,
    )
}  # fmt: skip


#: Recipes for one kind of operation that 'mixed' does not include.
OF_KIND: Mapping[str, Mapping[str, Recipe]] = {
    SUMS: {"parts": parts, "returning": returning}, SQUARES: {"few": few, "small": small},
    PRODUCTS: {"sinking": sinking},
    EXPONENTIALS: {"shares": shares, "late": late, "stairs": stairs, "low": low, "climbing": climbing, "gap": gap,
                   "lowest": lowest},
}  # fmt: skip


def mixed(extremes: bool) -> dict[str, Recipe]:
    """The recipes that 'mixed' takes; `extremes`: the kernel compares, so that equal numbers are of interest."""
    return dict(RECIPES) | ({"ties": ties, "widening": widening} if extremes else {})


def recipes_of(kind: str, extremes: bool) -> dict[str, Recipe]:
    """The recipes of a kernel."""
    others = {f.__name__: f for f in (one_nan, negative_nan, edges, cycled, hollow, carried, zeros, relu, ended)}
    return mixed(extremes) | others | dict(OF_KIND.get(kind, {}))


def named(recipe: str, extremes: bool) -> list[str]:
    """The recipes that rows take in turn: all for 'mixed', else those named, separated by commas."""
    return list(mixed(extremes)) if recipe == "mixed" else recipe.split(",")


# ---------------------------------------------------------------- problems


#: What every second one of special weights holds, in turn: `Format.parse` reads it.
SPECIAL = ("0", "nan", "#3", "inf", "-0", "-inf")


def problem(
    dtype: str, setting: Setting, scalars: Mapping[str, float], seed: int, *, kind: str, extremes: bool = False,
    weights: tuple[str, ...] = (),
) -> Problem:  # fmt: skip
    """The tensor `x` of the setting's shape and layout, and `weights`, of the length of its rows. Rows are the slices
    along `dim`, in C order; 'mixed' gives every row the next recipe. `extra["recipes"]`: that of each row."""
    import torch

    from verify.families.composite import Problem

    parameters = dict(setting.parameters)
    shape, dim = tuple(parameters["shape"]), parameters["dim"]
    fmt = FORMATS[dtype]
    n = shape[dim]
    rest = [size for axis, size in enumerate(shape) if axis != dim % len(shape)]
    rows = math.prod(rest)
    recipes = recipes_of(kind, extremes)
    bits = torch.empty((rows, n), dtype=torch.int64)
    names = named(parameters["recipe"], extremes)
    for k, name in enumerate(names):
        own = bits[k :: len(names)]  # numbered among the rows of their own recipe
        if own.numel():
            draw = Draw(fmt, torch.arange(own.numel()), seed, f"{kind} {name}")
            own[:] = recipes[name](Row(draw, n, kind)).reshape(own.shape)
    x = to_tensor(fmt, bits).reshape(*rest, n).movedim(-1, dim).contiguous()
    tensors = {"x": _laid_out(x, parameters["layout"])}
    for name in weights:
        draw = Draw(fmt, torch.arange(n), seed, f"{kind} {name}")
        found = draw.value(draw.integer(-2, 1))
        if parameters.get("weights") == "special":
            for k, text in enumerate(SPECIAL):
                found = draw.constant(text).where(torch.arange(n) % (2 * len(SPECIAL)) == 2 * k, found)
        tensors[name] = to_tensor(fmt, found)
    told = (names * (rows // len(names) + 1))[:rows]
    if parameters["layout"] == "expanded" and len(shape) > 1:
        each = math.prod(rest[1:])  # rows that come first on the first axis, along which one number is repeated
        told = ["repeated"] * rows if dim % len(shape) == 0 else [told[row % each] for row in range(rows)]
    return Problem(tensors, parameters, dict(scalars), dtype, {"bounds": {}, "recipes": told})


def _laid_out(x: Any, layout: str) -> Any:
    """The same values in another arrangement; 'expanded' repeats what stands first on the first axis of several."""
    import torch

    if layout == "transposed":
        return x.movedim(0, -1).contiguous().movedim(-1, 0)
    if layout == "strided":
        return torch.stack([x, x], dim=-1)[..., 0]
    if layout == "expanded" and x.dim() > 1:
        return x[:1].expand(x.shape)
    return x
