"""Row kernels (sums, scans, softmax, norms): their shapes, layouts, recipes of data, settings and `--set`.

A row kernel works on the slices of its first input along one dimension. It is an oracle, its algorithms and one call of
`kernel`; truths, bounds and lowerings live in the modules beside this one, which need torch. Data are integer functions
of (seed, recipe, index), as in `verify.inputs.draws`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import (
    Composite,
    Setting,
    UsageError,
    comma_list,
    drawn_size,
    in_pairs,
    lazily,
    parted,
    suggest,
    whole_number,
)
from verify.facts.oracle import Oracle
from verify.inputs.draws import Draw, Ints, exp2, mix, pack, to_tensor
from verify.lower.stubs import expression
from verify.numbers.documented import Documented
from verify.numbers.orders import Order

if TYPE_CHECKING:
    from torch import Tensor

    from verify.families.composite import Problem

#: Elements of the largest problem that `--set shape=` may request: ball and bound take about 100 bytes an element.
MOST = 1 << 24
LAYOUTS = ("contiguous", "transposed", "strided", "expanded")
#: What an operation's ordinary numbers are: terms of a sum, factors of a product, arguments of exp, or numbers squared.
SUMS, PRODUCTS, EXPONENTIALS, SQUARES = "sums", "products", "exponentials", "squares"
Recipe = Callable[["Row"], Ints]


# ---------------------------------------------------------------- what a row kernel declares


@dataclass(frozen=True)
class Place:
    """Where a row kernel runs, as far as its algorithm depends on it.

    storage, wide  the tensor's dtype, and float32, or float64 for float64
    n, rows        terms of a row, and how many rows there are
    last           whether the rows lie along the last dimension
    """

    lowering: str
    backend: str
    storage: Format
    n: int
    rows: int
    last: bool

    @property
    def wide(self) -> Format:
        return FORMATS["float64" if self.storage.name == "float64" else "float32"]


@dataclass(frozen=True)
class Algorithm:
    """What a lowering declares about its roundings.

    formula    formula(n, *tensors, order=, **scalars), run by `ieee` for bits and by `roundoff` for a bound
    order      of its sums, products or combinations, with their accumulator
    compute    the format of everything else, in which the inputs are taken
    functions  what is documented of the library functions that it calls, and of / ('div') where it rounds otherwise
    text       what is known of it, and where from; made from the order where empty
    """

    formula: Callable[..., Any]
    order: Order
    compute: Format
    functions: Mapping[str, Documented] = field(default_factory=dict)
    text: str = ""

    @property
    def source(self) -> str:
        told = [self.text or str(self.order)]
        told += list(dict.fromkeys(f"{name}: {known.source}" for name, known in self.functions.items()))
        return "; ".join(told)

    @property
    def ordered(self) -> bool:
        """Whether its order is known at all."""
        return self.order.kind != "any" or self.order.paths is not None


@dataclass(frozen=True)
class Rows:
    """What the family knows of a row kernel.

    oracle      the real function; n.own(x) is the element where the result is wanted
    kind        one of SUMS, PRODUCTS, EXPONENTIALS, SQUARES
    call        call(torch, *tensors, dim, **scalars) -> the output, in torch's own words
    algorithms  algorithms(place) -> those that the lowering may run; () where nothing is known
    forms       formulas that no registered lowering has, and the functions that they call: for a user's own that
                declares its order, and suspect in one that does not
    held        what a lowering of the user's own is held to, in words
    reduces     one output a row; else one for each element
    prefixes    an element depends on those up to it alone
    neutral     what a NaN or an infinity counts as in a bound, where a special value decides the truth (None: the
                algorithm's own business); `minus`: -inf is an ordinary argument
    counted     whether its bound counts the roundings of sums, so that a probable one may take their root
    weights     inputs after the first: one element for each of a row
    triton      the module of the Triton kernel, with `run`, `block_of` and `not_interpreted`
    listed      the larger, the more an element says in an explanation
    details     details(row, position) -> lines of an explanation
    """

    oracle: Oracle
    kind: str
    call: Callable[..., Any]
    algorithms: Callable[[Place], tuple[Algorithm, ...]]
    held: str
    forms: Mapping[Callable[..., Any], tuple[str, ...]] = field(default_factory=dict)
    reduces: bool = False
    prefixes: bool = False
    neutral: float | None = None
    minus: bool = False
    counted: bool = False
    weights: tuple[str, ...] = ()
    triton: str | None = None
    listed: Callable[[Any], Any] = abs
    details: Callable[..., list[tuple[str, str]]] | None = None


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


# ---------------------------------------------------------------- settings


def setting(
    name: str, shape: tuple[int, ...], dim: int = -1, layout: str = "contiguous", recipe: str = "mixed",
    weights: str = "ordinary", **rest: Any,
) -> Setting:  # fmt: skip
    parameters = {"shape": list(shape), "dim": dim, "layout": layout, "recipe": recipe}
    parameters |= {"weights": weights} if weights != "ordinary" else {}
    return Setting(name, parameters, work=math.prod(shape), **rest)


#: Rows hold a prime or an odd number of elements, so that no block size divides them.
SETTINGS = (
    setting("rows", (52, 1009), quick=True),
    setting("columns", (301, 52), dim=0, quick=True),
    setting("middle", (13, 129, 5), dim=1),
    setting("transposed", (39, 515), layout="transposed"),
    setting("strided", (39, 515), layout="strided"),
    setting("expanded", (5, 4, 1030), layout="expanded", recipe="random,one_sign,cancelling,exact"),
    setting("length-1", (64, 1)),
    setting("length-2", (130, 2), quick=True),
    setting("length-33", (130, 33), quick=True),
    # among equal numbers roundings are all to one side: sums one after another leave the other orders' bound
    setting("length-2^16", (5, 65536), recipe="random,exact,one_sign,graded,equal", length=1 << 16, resolves=True),
    setting("length-2^20", (2, 1 << 20), recipe="random,exact", length=1 << 20, resolves=True),
    setting("length-2^20-counted", (1 << 20,), recipe="counted", quick=True),
)
#: For kernels that compare: of long rows of other numbers the first few hold the extremes.
EXTREMES = (
    *SETTINGS[:-3],
    setting("length-2^16", (5, 65536), recipe="random,exact,one_sign,graded,widening"),
    setting("length-2^20", (2, 1 << 20), recipe="random,exact"),
    setting("length-2^20-widening", (1 << 20,), recipe="widening", quick=True),
)
#: For kernels of one kind: lengths at which faults would pass because the other settings have too few elements for
#: them.
FURTHER: Mapping[str, tuple[Setting, ...]] = {
    SUMS: (setting("length-2^16-counted", (65536,), recipe="counted"),),
    EXPONENTIALS: (
        setting("length-33-shares", (34, 33), recipe="shares,late"),
        setting("length-1030-shares", (12, 1030), recipe="shares,late"),
        setting("length-2^16-shares", (6, 65536), recipe="shares,late,shares", length=1 << 16),
        setting("length-2^20-shares", (3, 1 << 20), recipe="shares,late,shares", length=1 << 20),
    ),
    SQUARES: (setting("length-2^20-few", (1 << 20,), recipe="few", length=1 << 20),),
}
#: Rows along the last dimension, for kernels that support no other.
LAST = tuple(one for one in SETTINGS if one.parameters["dim"] in (-1, len(one.parameters["shape"]) - 1))

PARAMETERS = {
    "shape": "sizes of the tensor, such as 3x1000",
    "dim": "the dimension along which it runs, such as -1",
    "layout": f"how it lies in memory: {', '.join(LAYOUTS)}",
    "recipe": "its numbers: mixed (every row another recipe) or some of those that `verify show` lists",
}
WEIGHTS = ("ordinary", "special")


def custom(
    given: Mapping[str, str], *, kind: str, extremes: bool = False, reduces: bool = False, last: bool = False
) -> Setting:
    """The setting of `--set NAME=VALUE`. reduces: the output has one element for each row; last: rows lie along the
    last dimension. Raises UsageError."""
    shape = _shape(given.get("shape", "52x1009"))
    dim = whole_number("dim", given.get("dim", "-1"))
    if not -len(shape) <= dim < len(shape):
        sizes = "x".join(map(str, shape))
        raise UsageError(f"dim={dim} is out of range for shape={sizes}: expected {-len(shape)} to {len(shape) - 1}")
    if last and dim % len(shape) != len(shape) - 1:
        raise UsageError(f"dim={dim}: rows lie along the last dimension; expected -1")
    kept = [size for axis, size in enumerate(shape) if not (reduces and axis == dim % len(shape))]
    if 0 in kept:
        sizes = "x".join(map(str, shape))
        raise UsageError(f"shape={sizes}: the output has no element to compare; expected sizes of at least 1")
    layout, recipes = given.get("layout", "contiguous"), comma_list(given.get("recipe", "mixed"))
    known = ("mixed", *recipes_of(kind, extremes))
    weights = given.get("weights", "ordinary")
    words = (("layout", layout, LAYOUTS), ("weights", weights, WEIGHTS), *(("recipe", one, known) for one in recipes))
    for what, value, names in words:
        if value not in names or (value == "mixed" and len(recipes) > 1):
            raise UsageError(suggest(what, value, names))
    return setting(" ".join(f"{k}={v}" for k, v in given.items()), shape, dim, layout, ",".join(recipes), weights)


def _asks(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """A dimension other than the last; see `Composite.asks`."""
    return ("dim",) * (parameters["dim"] not in (-1, len(parameters["shape"]) - 1))


def _sized(n: int, last: bool) -> tuple[dict[str, str], ...]:
    """Rows of length n, n rows, one row alone, and columns of length n, or so many of them, also within a stack."""
    shapes = [{"shape": f"3x{n}"}, {"shape": f"{n}x3"}, {"shape": f"{n}"}, {"shape": f"1x{n}"}]
    columns = [{"shape": shape, "dim": "0"} for shape in (f"{n}x3", f"{n}x1", f"3x{n}")]
    shapes += [] if last else [*columns, {"shape": f"2x3x{n}", "dim": "1"}]
    return tuple(one | {"recipe": "random"} for one in shapes)


def _forms(last: bool, weighted: bool, reduces: bool) -> tuple[dict[str, str], ...]:
    """Rows in tensors of other ranks, along dimensions counted from either end; special values in rows of many blocks
    and of few, and among weights."""
    special = tuple({"shape": f"6x{n}", "recipe": "one_nan,infinities"} for n in (33, 10001))
    special += tuple({"shape": f"8x{n}", "recipe": "negative_nan,edges"} for n in (33, 4100))
    # zeros among factors, before or after what is no number, those that a relu leaves, NaNs beside -inf alone
    special += tuple({"shape": f"8x{n}", "recipe": "hollow,zeros,relu,ended"} for n in (5, 33, 1100))
    special += ({"shape": "6x40", "recipe": "relu,zeros", "weights": "special"},) * weighted
    # ... of lengths that code treats apart, and of other ranks
    special += tuple({"shape": f"6x{n}", "recipe": "one_nan,infinities,tiny"} for n in (8, 32, 64, 100, 1024))
    special += tuple({"shape": "33", "recipe": recipe} for recipe in ("one_nan", "infinities"))
    special += tuple({"shape": shape, "recipe": "one_nan,infinities,edges,tiny"} for shape in ("2x3x33", "2x3x5x33"))
    special += ({"shape": "2x1x3x2x33", "recipe": "random"},)
    special += ({"shape": "33x2x3", "dim": "0", "recipe": "one_nan,infinities,edges,tiny"},) * (not last)
    special += ({"shape": "3x0"},) * reduces + ({"shape": "0x33", "dim": "0"},) * (reduces and not last)
    # blocks of all usual sizes, in rows near zero too, where what pads them counts
    special += tuple(
        {"shape": f"3x{n}", "recipe": "tiny,wide,random"} for n in (128, 200, 256, 384, 512, 640, 768, 1300, 1536, 2048)
    )
    # lengths that vectors divide, long ones in many rows, other ranks, large batches, several rows a program
    special += tuple(
        {"shape": shape, "recipe": "random"}
        for shape in (
            "3x64", "3x1024", "3x3002", "3x4096", "1x8192", "3x8198", "2x12291", "1x16384", "1x32768", "8x64", "64x32",
            "2x16x64", "16x10x64", "2x8x1024", "140x513", "66x520", "20x4100",
            "2x1x2x1x3x33",
            # whole blocks whose number is no power of two, widths of heads, and many rows of as many numbers
            "3x5120", "2x2x5120", "3x48", "3x80", "3x96", "2x3x131", "3x5000", "3x11008", "1100x70",
            "600x128", "300x128", "3x301", "3x140", "5x12", "5x6", "3x6000", "1x40000", "3x9x17x130",
        )
    )  # fmt: skip
    special += ({"shape": "4x5000", "recipe": "infinities"},)
    # special values in rows of several large blocks, more rows than a grid's second axis holds, or than
    # 2^17, and volumes
    special += ({"shape": "8x20000", "recipe": "one_nan,infinities"}, {"shape": "131100x2", "recipe": "cycled"})
    special += ({"shape": "2x3x2x2x3", "dim": "1", "recipe": "random"},) * (not last)
    # the widths of usual vocabularies, and whole blocks
    special += ({"shape": "4x50257", "recipe": "random"},)
    special += tuple({"shape": shape, "recipe": "cycled"} for shape in ("1x151937", "2x128256", "3x69632"))
    special += ({"shape": "2x50257", "recipe": "one_nan,infinities"},)
    special += ({"shape": "4x3x5x130", "recipe": "wide,infinities"}, {"shape": "10x4096", "recipe": "equal"})
    for shape in ("130x200", "80x1200", "260x40"):
        special += ({"shape": shape, "recipe": "infinities,one_nan,wide"},)
    # all kinds of numbers in rows of many blocks, and in columns
    special += ({"shape": "20x2056", "recipe": "mixed"},)
    # any remainder of vectors of 16 in long rows, in many of them, and in columns
    special += tuple({"shape": f"2x{(1024, 4096)[rest % 2] + rest}", "recipe": "random"} for rest in range(1, 16))
    special += tuple({"shape": f"{1040 + rest}x5", "recipe": "random"} for rest in range(1, 16))
    special += tuple({"shape": f"3x9x{16 + rest}", "dim": "1", "recipe": "random"} for rest in range(1, 16) if not last)
    special += ({"shape": "1030x72", "dim": "0", "recipe": "mixed"},) * (not last)
    special += ({"shape": "2x1100x3", "dim": "1", "recipe": "one_nan,infinities,random"},) * (not last)
    for shape, dim in (("8192x32", "0"), ("20000x4", "0"), ("4096x2x4", "0"), ("2x4096x8", "1")):
        special += ({"shape": shape, "dim": dim, "recipe": "parts"},) * (reduces and not last)
    special += ({"shape": "6x1", "recipe": "one_nan,infinities"},)
    # numbers far apart and special ones in rows and columns of whole large blocks, and in tensors of other ranks
    special += ({"shape": "2x6x4096", "recipe": "one_nan,infinities,wide"}, {"shape": "3x8192", "recipe": "wide"})
    special += ({"shape": "2x2x8x64", "recipe": "infinities,wide"},)
    columns = (
        (("40x1100", "0"), ("72x528", "0"), ("2000x5", "0"), ("2x66x516", "1"), ("2x3x33x5", "2")) if not last else ()
    )
    special += tuple({"shape": shape, "dim": dim, "recipe": "wide,infinities,one_nan"} for shape, dim in columns)
    for shape in ("6x33", "6x1030", "9x4104") if weighted else ():
        special += ({"shape": shape, "recipe": "random,infinities", "weights": "special"},)
    if reduces:
        special += tuple({"shape": f"3x{n}", "recipe": "parts"} for n in (4096, 65536, 262144))
    if last:
        shapes = ("5x7x33", "2x3x5x33", "33", "330x104")
        return (*({"shape": shape, "recipe": "random"} for shape in shapes), *special)
    places = (
        ("5x7x33", 2),
        ("33x7x9", 0),
        ("3x700x5", 1),
        ("700x40", 0),
        ("2x3x5x33", 3),
        ("2x3x33x5", -2),
        ("2x4x70x66", 2),
        ("2x33x3x5", 1),
        ("2x33x3x5", -3),
        ("33x2x3x5", -4),
        ("5x33", 1),
        ("33x33", 0),
        ("5x200", 0),
        ("33", 0),
        # many columns of many rows, many rows within a stack, many matrices
        ("40x1100", 0),
        ("2x1100x3", 1),
        ("70x3x5", 0),
        # two tiles both ways, and images
        ("72x528", 0),
        ("2x66x516", 1),
        ("20x21x4x4", 1),
        ("2x40x16x16", 1),
        # sizes that are equal, and many rows of more than one block
        ("2x3x4x4", -2),
        ("330x104", 1),
        ("1x200x256", 1),
        # long columns, many of them, or of a stack: sequences of states; more matrices than a grid's second axis holds
        ("48x40", 0),
        ("256x12", 0),
        ("2x64x24", 1),
        ("20000x4", 0),
        ("3x1300", 0),
        ("3x9000", 0),
        ("2x600x40", 1),
        ("2x2000x3", 1),
        ("5000x3x2", 1),
        ("3x5x7", -2),
        ("2x3x4x5x6", 0),
        ("2x3x4x5x6", 2),
        ("2x3x4x5x6", 3),
        ("2x3x2x4x3x5", 3),
        ("5x7", -2),
    )
    special += tuple({"shape": shape, "dim": "0", "recipe": "cycled"} for shape in ("3000x64", "5001x40"))
    return (*({"shape": shape, "dim": f"{dim}", "recipe": "random"} for shape, dim in places), *special)


#: Sizes, and the dimension along which rows lie, that code has ways of its own for: few and many numbers, some blocks
#: of them, many rows, stacks, and columns likewise.
ALONG = (("5x4", -1), ("4x64", -1), ("4x1100", -1), ("4x4200", -1), ("1040x12", -1), ("2x3x5x33", -1))
ACROSS = (("40x6", 0), ("1100x5", 0), ("2100x8", 0), ("12x1040", 0), ("3x600x5", 1), ("2x40x36", 1), ("8x5000", 0),
          ("100x20x4", 1))  # fmt: skip
#: What the tensor lies in: itself, columns, longer rows, their second half, and rows apart; at last, zeros.
PLACED = (
    "x", "x.movedim(0, -1).contiguous().movedim(-1, 0)", "torch.cat([x, x], -1)[..., :x.shape[-1]]",
    "torch.cat([x, x], -1)[..., x.shape[-1]:]", "x.repeat_interleave(2, 0)[::2]", "x.new_zeros(x.shape)",
)  # fmt: skip
TOGETHER = 4  # recipes of one crossed problem


def _crossed(
    kind: str, extremes: bool, last: bool, weighted: bool, others: tuple[Mapping[str, float], ...]
) -> tuple[tuple[dict[str, str], dict[str, str], dict[str, float]], ...]:
    """`Composite.crossed`: sizes, numbers, where they lie, weights and scalars; special numbers in very long rows."""
    names = sorted({*recipes_of(kind, extremes)} - {"lowest"})  # times log2(e) it is infinite
    count = -(-len(names) // TOGETHER)
    options: list[list[Mapping[str, Any]]] = [
        [{"shape": shape, "dim": f"{dim}"} for shape, dim in (*ALONG, *(() if last else ACROSS))],
        [{"recipe": ",".join(names[k::count])} for k in range(count)],
        [{"weights": name} for name in WEIGHTS] if weighted else [{}],
        [{"x": text} for text in PLACED],
        [{}, *others],
    ]

    def fits(of: Mapping[str, Any]) -> bool:
        # nothing is stated of an infinite weight beside squares that overflow, or of squares that underflow without eps
        recipes = of.get("recipe", "").split(",")
        return not (of.get("weights") == "special" and "wide" in recipes or of.get("eps") == 0.0 and "tiny" in recipes)

    # all kinds of numbers in one row of many blocks, in more short rows than a grid's axis holds, in long columns, in
    # rows of a power of two and in five dimensions; arguments of exp that are all far below 0, or -inf; rows of more
    # blocks than 1,024 of 1,024
    low = [name for name in ("gap", "late", "low") if name in names]
    kinds, odd = ",".join(names), ",".join(("infinities", "one_nan", *low))
    places = [("5000x8", -1, kinds), ("2x3x2x4x8", -1, kinds), ("4x16384", -1, odd), ("3x70001", -1, odd)]
    places += [("8195x13", -1, kinds), ("6x36011", -1, "carried")] + [("2x140001", -1, "gap,late")] * bool(low)
    places += [("1x36011", -1, name) for name in ("edges", "infinities", "mixed", "one_nan", *low)]
    places += [("1x1052677", -1, "cycled")] * (kind in (SUMS, PRODUCTS))
    places += [("5000x40", 0, kinds), ("3x1300x3", 1, odd)] * (not last) + [("4096x4", 0, "low")] * bool(low)
    few: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"shape": shape, "dim": f"{dim}", "recipe": recipe}, {}) for shape, dim, recipe in places
    ]
    for shape, dim, text in (
        ("1x36011", -1, "x - 2e4"), ("2x16384", -1, "x - torch.inf"), ("2x1300x3", 1, "x - torch.inf"),
    ) * bool(low):  # fmt: skip
        few += [({"shape": shape, "dim": f"{dim}", "recipe": "low"}, {"x": text})]
    for shape in ("5000x8", "6x9000") if weighted else ():
        few += [({"shape": shape, "recipe": "random,infinities,one_nan", "weights": "special"}, {})]
    return (*(parted(one, ("x",)) for one in in_pairs(options, fits)), *((*given, {}) for given in few))


DRAWN = 1 << 15  # elements of a drawn problem, at most


def _drawn(draw: Random, kind: str, extremes: bool, last: bool, weighted: bool) -> dict[str, str]:
    """`Composite.drawn`."""
    length = drawn_size(draw, 9000)
    left, others = DRAWN // length, []
    for _ in range(draw.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        others.append(drawn_size(draw, max(1, left)))
        left //= others[-1]
    draw.shuffle(others)
    place = len(others) if last else draw.randrange(len(others) + 1)
    shape = [*others[:place], length, *others[place:]]
    found = {"shape": "x".join(map(str, shape)), "dim": f"{place - len(shape) * draw.randrange(2)}"}
    found |= {"layout": draw.choice(LAYOUTS)} if draw.randrange(2) else {}
    found |= {"weights": draw.choice(WEIGHTS)} if weighted else {}
    # nothing is stated of an infinite weight beside squares that overflow, nor of the lowest number times log2(e)
    known = sorted({*recipes_of(kind, extremes)} - {"lowest", *(["wide"] if found.get("weights") == "special" else [])})
    return found | {"recipe": ",".join(draw.sample(known, draw.randrange(1, 4)))}


def _many(last: bool) -> tuple[tuple[dict[str, str], dict[str, str], dict[str, str]], ...]:
    """Long rows, more of them than a persistent kernel has programs, or than two thousand; a batch of sequences; and
    columns, long ones too, of which there are several tiles both ways, of a matrix, of each of a batch, and across a
    batch. Some rows or columns are judged, the last one among them: an odd step finds every place in a tile. More rows,
    columns and matrices than an axis of a grid holds, and four times as many rows."""
    some = [("300x8200", -1, 0, 0, 49), ("20x24601", -1, 0, 2, 13), ("2206x1033", -1, 0, 0, 105)]
    some += [("4x128x1024", -1, 1, 7, 15), ("33001x21", -1, 0, 0, 165), ("270001x3", -1, 0, 0, 675)]
    columns = [("3100x610", 0, 1, 2, 19), ("200x1100", 0, 1, 0, 157), ("3x2100x40", 1, 2, 0, 13)]
    columns += [("16x140x260", 1, 2, 6, 23), ("80x66x70", 0, 2, 0, 23)]
    columns += [("9x70001", 0, 1, 0, 175), ("70001x3x2", 1, 0, 0, 175)]
    return tuple(_picked(*one) for one in (*some, *([] if last else columns)))


def _picked(
    shape: str, dim: int, axis: int, first: int, step: int
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """A problem of which each step-th of an axis is judged: of rows one before them, of columns the last one, which
    outputs have where these are sums too."""
    sizes = shape.split("x")
    sizes[axis] = f"{len(range(first, int(sizes[axis]), step))}"
    along = {"dim": f"{dim}"} if dim >= 0 else {}
    every = {"shape": shape} | along | {"recipe": "cycled"}
    few = {"shape": "x".join(sizes)} | along | {"recipe": "random"}
    taken = f"t[{'..., ' if along and axis else ':, ' * axis}{first}::{step}]"
    return every, few, {"x": taken, "": taken}


def _shape(text: str) -> tuple[int, ...]:
    sizes = []
    for word in text.split("x"):
        if not word.isdecimal() or not word.isascii():
            raise UsageError(f"shape={text}: {word!r} is not a size; expected sizes such as 3x1000")
        sizes.append(int(word))
    if math.prod(sizes) > MOST:
        raise UsageError(f"shape={text} has {math.prod(sizes):,} elements; expected at most {MOST:,}")
    return tuple(sizes)


# ---------------------------------------------------------------- facts


def placed(problem: Problem, facts: Rows, rows: Tensor) -> Tensor:
    """Values by row and position in the output's shape."""
    x, dim = next(iter(problem.tensors.values())), problem.parameters["dim"]
    moved = x.movedim(dim, -1).shape
    if facts.reduces:
        return rows.reshape(moved[:-1])
    return rows.reshape(moved).movedim(-1, dim)


def _strata(facts: Rows, problem: Problem, output: str) -> tuple[tuple[str, ...], Any]:
    """The recipe of each row."""
    import torch

    told = problem.extra["recipes"]
    names = tuple(dict.fromkeys(told))
    of = torch.tensor([names.index(name) for name in told])[:, None]
    n = problem.parameters["shape"][problem.parameters["dim"]]
    return names, placed(problem, facts, of.expand(-1, 1 if facts.reduces else n))


def _stub(name: str, rows: Rows, scalars: tuple[str, ...]) -> str:
    keywords = ("dim", *scalars)
    told = expression(rows.call, "x", *rows.weights, **{word: word for word in keywords})
    return f"def {name}({', '.join(('x', *rows.weights, *keywords))}):\n    return {told}\n"


#: In the order of `rows_lowerings`, which imports torch.
LOWERINGS = ("eager", "inductor", "inductor-strict", "triton", "triton-interpreter")


def kernel(
    name: str,
    summary: str,
    rows: Rows,
    *,
    extremes: bool = False,
    last: bool = False,
    cases: tuple[Mapping[str, float], ...] = ({},),
    others: tuple[Mapping[str, float], ...] = (),
    formulas: str = "",
    lowerings: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    compiling: float = 1.0,
) -> Composite:
    """The facts about one operation along a dimension.

    extremes: it compares, so that equal numbers are of interest. last: rows lie along the last dimension. others:
    scalars that its cases do not have, see `Composite.further`. formulas: the module with formulas(name,
    problem, backend, output), see `Composite`. lowerings: those that it has beyond the family's. compiling: see
    `Kernel`.
    """
    listed = ", ".join(("mixed", *recipes_of(rows.kind, extremes)))
    own = LAST if last else EXTREMES if extremes else SETTINGS
    return Composite(
        name=name,
        summary=summary,
        inputs=("x", *rows.weights),
        settings=(*own, *(() if extremes else FURTHER.get(rows.kind, ()))),
        parameters=PARAMETERS
        | {"recipe": f"its numbers, row by row: {listed}, or several with commas between"}
        | (
            {"weights": "ordinary, or special: zeros, infinities, NaNs and subnormal numbers among them"}
            if rows.weights
            else {}
        ),
        batched=lambda rows, length: {"shape": f"{rows}x{length}", "recipe": "random"},
        sized=functools.partial(_sized, last=last),
        further=(
            *((one, {}) for one in _forms(last, bool(rows.weights), rows.reduces)),
            *(({"shape": "5x33"}, one) for one in others),
            *(
                ({"shape": shape, "recipe": recipe}, one)
                for one in others
                if rows.kind == SQUARES
                for shape, recipe in (("6x33", "small"), ("60x33", "equal"), ("40x300", "equal"), ("2x5x1104", "small"))
            ),
            *((({"shape": "2x9001", "recipe": "small"}, {}),) * (rows.kind == SQUARES)),
            *((({"shape": "6x4160", "recipe": "late"}, {}),) * (rows.kind == EXPONENTIALS)),
            *((({"shape": "6x32", "recipe": "lowest"}, {}),) * (rows.kind == EXPONENTIALS)),
            *(
                ({"shape": shape, "recipe": "climbing"}, {})
                for shape in ("8x4096", "4x20000")
                if rows.kind == EXPONENTIALS
            ),
            *(
                ({"shape": shape, "recipe": "gap"}, {})
                for shape in ("4x700", "4x5000", "2x20000")
                if rows.kind == EXPONENTIALS
            ),
            *(
                ({"shape": shape, "dim": dim, "recipe": "late"}, {})
                for shape, dim in (("600x8", "0"), ("2x600x4", "1"))
                if rows.kind == EXPONENTIALS
            ),
            *((({"shape": "6x1030", "recipe": "returning"}, {}),) * (rows.kind == SUMS)),
            *(({"shape": shape, "recipe": "sinking"}, {}) for shape in ("3x300", "3x1100") if rows.kind == PRODUCTS),
            # a zero before an infinity or a NaN in several large blocks
            *((({"shape": "2x20000", "recipe": "edges"}, {}),) * (rows.kind == PRODUCTS)),
            *((({"shape": "2x131075", "recipe": "stairs"}, {}),) * (rows.kind == EXPONENTIALS and rows.prefixes)),
        ),
        drawn=functools.partial(_drawn, kind=rows.kind, extremes=extremes, last=last, weighted=bool(rows.weights)),
        # numbers of which a row has one, rows that a batch repeats, rows at different distances or of longer ones, a
        # batch of sequences, weights that code leaves out, that are misaligned or one number, and sums beyond the range
        related=(
            ({"shape": "5x33"}, {"x": "x[:, :1].expand(x.shape)"}),
            # numbers that float32 holds, of float64 too
            ({"shape": "5x333"}, {"x": "x.float().to(x.dtype)"}),
            # one number for all, windows that overlap, and matrices by columns
            ({"shape": "5x33"}, {"x": "x[:1, :1].expand(x.shape)"}),
            ({"shape": "9x16"}, {"x": "x.flatten().unfold(0, 16, 4)[:9]"}),
            ({"shape": "5x24x40"}, {"x": "x.mT.contiguous().mT"}),
            # infinities after a NaN, and before it
            (
                {"shape": "3x33", "recipe": "one_nan"},
                {"x": "x.index_fill(-1, x.new_tensor([4, 9, 30]).long(), float('inf'))"},
            ),
            ({"shape": "3x5x100"}, {"x": "x[:1].expand(x.shape)"}),
            ({"shape": "3x20x8"}, {"x": "x[:, :1].expand(x.shape)"}),
            ({"shape": "2x16x64"}, {"x": "x.repeat(1, 2, 1)[:, :16]"}),
            ({"shape": "8x8x64"}, {"x": "x.transpose(0, 1).contiguous().transpose(0, 1)"}),
            ({"shape": "2x6x4x32"}, {"x": "x.transpose(1, 2).contiguous().transpose(1, 2)"}),
            ({"shape": "2x10x64"}, {"x": "x.repeat(1, 1, 3)[..., :64]"}),
            *(
                ({"shape": f"8x{n}", **place}, {"x": f"x.repeat(1, 2)[:, :{n + 1}].contiguous()[:, :-1]"})
                for n in (96, 100)
                for place in ({}, *([{"dim": "0"}] * (not last)))
            ),
            # a vocabulary beside what pads it
            ({"shape": "2x50257"}, {"x": "x.repeat(1, 2)[:, :50304].contiguous()[:, :-47]"}),
            # parts of longer rows and of more heads, columns of a transposed matrix, one number for a whole column
            ({"shape": "2x3x4x33"}, {"x": "x.repeat(1, 2, 1, 1)[:, :3]"}),
            *(
                ({"shape": shape, "dim": dim}, {"x": made})
                for shape, dim, made in (
                    ("33x7", "0", "x.mT.repeat(1, 2)[:, :33].mT"),
                    ("40x24", "0", "x.repeat(1, 2)[:, :30].contiguous()[:, :24]"),
                    ("3x20x8", "1", "x.repeat(1, 1, 2)[..., :12].contiguous()[..., :8]"),
                    ("33x7", "0", "x[:1].expand(x.shape)"),
                    ("33x7", "0", "x[:, :1].expand(x.shape)"),
                    ("3x20x8", "1", "x[:, :1].expand(x.shape)"),
                )
                if not last
            ),
            ({"shape": "8x8x512", "recipe": "random"}, {}),
            *(
                ({"shape": shape, "recipe": "low"}, {})
                for shape in ("3x100", "3x300", "3x1030", "3x4100", "3x9001", *(["3x50257"] * (not rows.prefixes)))
                if rows.kind == EXPONENTIALS
            ),
            *(
                (
                    {"shape": f"2x{5 if rows.prefixes else 40}x16x16", **place},
                    {"x": "x.movedim(1, -1).contiguous().movedim(-1, 1)"},
                )
                for place in ({}, *([{"dim": "1"}] * (not last)))
            ),
            # a number beside which others count for less than float32 holds
            *(
                (
                    (
                        {"shape": "5x33", "recipe": "random"},
                        {"x": "(-9 - 20 * x.abs()).index_fill(-1, x.new_zeros(1).long(), 0)"},
                    ),
                )
                * (rows.kind == EXPONENTIALS)
            ),
            *(({"shape": "5x33"}, {w: f"{w} * {by}"}) for w in rows.weights for by in ("0", "0 + 1", "2.0**-6")),
            *(({"shape": "3x1160"}, {w: f"{w}.repeat(2)[1:1161]"}) for w in rows.weights),
            *(({"shape": "5x64"}, {w: f"{w}[:1].expand({w}.shape)"}) for w in rows.weights),
            *((({"shape": "3x600"}, {"x": "x.abs().clamp(max=1) * 2.0**126"}),) * (rows.kind == SUMS)),
        ),
        crossed=functools.partial(_crossed, rows.kind, extremes, last, bool(rows.weights), others),
        many=_many(last),
        custom=functools.partial(custom, kind=rows.kind, extremes=extremes, reduces=rows.reduces, last=last),
        asks=_asks,
        problem=functools.partial(problem, kind=rows.kind, extremes=extremes, weights=rows.weights),
        truth=functools.partial(lazily("verify.families.rows_truth", "Slices"), rows),
        limit=lazily("verify.families.rows_limits", "limit"),
        orders=not extremes,
        strata=functools.partial(_strata, rows),
        family=rows,
        formulas=functools.partial(lazily(formulas, "formulas"), name) if formulas else None,
        implementations="verify.families.rows_lowerings",
        lowerings=LOWERINGS + lowerings,
        cases=cases,
        quick_cases=len(cases),
        held=rows.held,
        ways=lazily("verify.families.rows_limits", "ways"),
        stub=_stub(name, rows, tuple(dict.fromkeys(scalar for case in cases for scalar in case))),
        notes=notes,
        compiling=compiling,
    )
