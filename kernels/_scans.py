"""What the facts about sums, scans and softmax share: shapes, layouts, recipes of data, settings, what `--set` takes.

Data are integer functions of (seed, recipe, index), as in `verify.draws`. Truths, bounds, formulas and lowerings live
in modules of their own, which need torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from verify.draws import Draw, Ints, exp2, pack, to_tensor
from verify.formats import FORMATS
from verify.kernel import Composite, Setting, UsageError, suggest
from verify.oracle import Oracle

if TYPE_CHECKING:
    from verify.composite import Limit, Problem, Source

#: Elements of the largest problem that `--set shape=` may ask for: a ball and a bound take about 100 bytes each.
MOST = 1 << 24
#: Elements of a row that a hand-written Triton kernel holds at a time.
BLOCK = 1024
LAYOUTS = ("contiguous", "transposed", "strided", "expanded")
#: Which numbers are ordinary for an operation: terms of a sum, factors of a product, arguments of exp.
SUMS, PRODUCTS, EXPONENTIALS = "sums", "products", "exponentials"
Recipe = Callable[["Row"], Ints]


class Row:
    """Where a recipe draws: `draw` for each element, its place `j` in its row, the row's number `r`, the length `n`,
    and what the operation is about (`kind`)."""

    def __init__(self, draw: Draw, n: int, kind: str) -> None:
        self.draw, self.n, self.kind = draw, n, kind
        self.j, self.r = draw.index % n, draw.index // n

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


# ---------------------------------------------------------------- recipes


def random(row: Row) -> Ints:
    """Ordinary numbers of either sign: of 16 binades; within 6% of 1 in magnitude; within 20 of 0."""
    d = row.draw
    if row.kind == PRODUCTS:
        return d.signed(row.real(0.9399, 1.0613))  # their logarithms have mean 0
    return row.real(-20.0, 20.0) if row.kind == EXPONENTIALS else d.value(d.integer(-12, 3))


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
    low, high = {PRODUCTS: (0.98, 1.02), EXPONENTIALS: (-20.0, 20.0), SUMS: (-0.5, 4.0)}[row.kind]
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


def wide(row: Row) -> Ints:
    """Far apart: terms of 60 binades, factors that overflow and underflow, arguments beyond exp's range."""
    d = row.draw
    if row.kind == EXPONENTIALS:
        return row.real(-3000.0, 3000.0)
    reach = min(30, d.fmt.emax // 2 - 1)
    return d.value(d.integer(-reach, reach if row.kind == PRODUCTS else reach // 2))


def dominated(row: Row) -> Ints:
    """A number that outweighs all the rest, so that small terms count: 0 under exp; factors near 1."""
    d, first = row.draw, row.j == row.r % 3
    if row.kind == EXPONENTIALS:
        return d.constant("0").where(first, row.real(-60.0, -9.0))
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
    """Few different numbers, so that equal ones meet, zeros of either sign among them."""
    d = row.draw
    return d.pick([d.fmt.parse(text) for text in ("0", "-0", "1", "-1", "0.5", "-2", "3")])


RECIPES: Mapping[str, Recipe] = {
    f.__name__: f
    for f in (
        random, equal, alternating, powers, ascending, descending, infinities, nans, wide, dominated, cancelling, tiny,
    )
}  # fmt: skip


def recipes_of(extremes: bool) -> dict[str, Recipe]:
    """The recipes of a kernel; `extremes`: it compares, so that equal numbers are of interest."""
    return dict(RECIPES) | ({"ties": ties} if extremes else {})


# ---------------------------------------------------------------- problems


def problem(
    dtype: str, setting: Setting, scalars: Mapping[str, float], seed: int, *, kind: str, extremes: bool = False
) -> Problem:
    """The tensor `x` of the setting's shape and layout. Its rows are the slices along `dim`, in C order; 'mixed' gives
    every row the next recipe."""
    import torch

    from verify.composite import Problem

    parameters = dict(setting.parameters)
    shape, dim = tuple(parameters["shape"]), parameters["dim"]
    fmt = FORMATS[dtype]
    n = shape[dim]
    rest = [size for axis, size in enumerate(shape) if axis != dim % len(shape)]
    rows = math.prod(rest)
    recipes = recipes_of(extremes)
    bits = torch.empty((rows, n), dtype=torch.int64)
    mixed = parameters["recipe"] == "mixed"
    names = list(recipes) if mixed else [parameters["recipe"]]
    for k, name in enumerate(names):
        own = bits[k :: len(names)]  # numbered among the rows of their own recipe
        if own.numel():
            draw = Draw(fmt, torch.arange(own.numel()), seed, f"{kind} {name}")
            own[:] = recipes[name](Row(draw, n, kind)).reshape(own.shape)
    x = to_tensor(fmt, bits).reshape(*rest, n).movedim(-1, dim).contiguous()
    return Problem({"x": _laid_out(x, parameters["layout"])}, parameters, dict(scalars), dtype, {"sizes": {}})


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
    name: str, shape: tuple[int, ...], dim: int = -1, layout: str = "contiguous", recipe: str = "mixed", **rest: Any
) -> Setting:
    return Setting(name, {"shape": list(shape), "dim": dim, "layout": layout, "recipe": recipe}, **rest)


#: Rows hold a prime or an odd number of elements, so that no block size divides them.
SETTINGS = (
    setting("rows", (52, 1009), quick=True),
    setting("columns", (301, 52), dim=0, quick=True),
    setting("middle", (13, 129, 5), dim=1),
    setting("transposed", (39, 515), layout="transposed"),
    setting("strided", (39, 515), layout="strided"),
    setting("expanded", (5, 2050), layout="expanded", recipe="random"),
    setting("length-1", (64, 1)),
    setting("length-2", (130, 2)),
    setting("length-33", (130, 33), quick=True),
    setting("length-2^16", (2, 65536), recipe="random"),
    setting("length-2^20", (1 << 20,), recipe="random"),
)
PARAMETERS = {
    "shape": "sizes of the tensor, such as 3x1000",
    "dim": "the dimension along which it runs, such as -1",
    "layout": f"how it lies in memory: {', '.join(LAYOUTS)}",
    "recipe": "its numbers: mixed (every row another recipe) or one of those that `verify show` lists",
}


def custom(given: Mapping[str, str], *, extremes: bool = False, reduces: bool = False) -> Setting:
    """The setting of `--set NAME=VALUE`. reduces: the output has one element for each row. Raises UsageError."""
    shape = _shape(given.get("shape", "52x1009"))
    dim = _integer("dim", given.get("dim", "-1"))
    if not -len(shape) <= dim < len(shape):
        sizes = "x".join(map(str, shape))
        raise UsageError(f"dim={dim} is out of range for shape={sizes}: expected {-len(shape)} to {len(shape) - 1}")
    kept = [size for axis, size in enumerate(shape) if not (reduces and axis == dim % len(shape))]
    if 0 in kept:
        sizes = "x".join(map(str, shape))
        raise UsageError(f"shape={sizes}: the output has no element to compare; expected sizes of at least 1")
    layout, recipe = given.get("layout", "contiguous"), given.get("recipe", "mixed")
    known = ("mixed", *recipes_of(extremes))
    for what, value, names in (("layout", layout, LAYOUTS), ("recipe", recipe, known)):
        if value not in names:
            raise UsageError(suggest(what, value, names))
    return setting(" ".join(f"{k}={v}" for k, v in given.items()), shape, dim, layout, recipe)


def _shape(text: str) -> tuple[int, ...]:
    sizes = []
    for word in text.split("x"):
        if not word.isdecimal() or not word.isascii():
            raise UsageError(f"shape={text}: {word!r} is no size; expected sizes such as 3x1000")
        sizes.append(int(word))
    if math.prod(sizes) > MOST:
        raise UsageError(f"shape={text} has {math.prod(sizes):,} elements; expected at most {MOST:,}")
    return tuple(sizes)


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name}={text} is no integer; expected one such as -1") from None


# ---------------------------------------------------------------- facts


def _truth(oracle: Oracle, x: Problem, device: Any, bounds: Mapping[str, float]) -> Source:
    from verify.kernels._scans_truth import Rows

    return Rows(oracle, x, device, bounds)


def _limit(problem: Problem, target: Any, lowering: Any, output: str) -> Limit | None:
    from verify.kernels._scans_limits import limit

    return limit(problem, target, lowering, output)


def _formulas(name: str, problem: Problem, output: str) -> dict[str, Callable[[], Any]]:
    from verify.kernels._scans_formulas import formulas

    return formulas(name, problem)


#: In the order of `_scans_lowerings`, which imports torch.
LOWERINGS = ("eager", "inductor", "inductor-strict", "triton", "triton-interpreter")


_WIDE = "each rounding to float32 (float64 for float64), the result then to the dtype"
#: What the bound of a user's own lowering is proved for, see `verify.kernels._scans_limits.algorithm`.
HELD = {
    "sum": f"sums in any order, {_WIDE}",
    "cumsum": f"sums in any order, {_WIDE}",
    "cumprod": f"products in any order, {_WIDE}",
    "logcumsumexp": f"max + log1p(exp(min - max)) in any order, exp and log1p within 2 ULP, {_WIDE}",
    "softmax": f"exp(x - max) over its sum in any order, exp and the quotient within 2 ULP, {_WIDE}",
    "cummax": "the exact maximum",
    "cummin": "the exact minimum",
}


def facts(
    name: str, summary: str, oracle: Oracle, kind: str, *, extremes: bool = False, notes: tuple[str, ...] = ()
) -> Composite:
    """The facts about one operation along a dimension, in torch's name for it."""
    listed = ", ".join(("mixed", *recipes_of(extremes)))
    return Composite(
        name=name,
        summary=summary,
        inputs=("x",),
        settings=SETTINGS,
        parameters=PARAMETERS | {"recipe": f"its numbers: {listed}"},
        custom=functools.partial(custom, extremes=extremes, reduces=name == "sum"),
        problem=functools.partial(problem, kind=kind, extremes=extremes),
        truth=functools.partial(_truth, oracle),
        limit=_limit,
        formulas=functools.partial(_formulas, name),
        implementations="verify.kernels._scans_lowerings",
        lowerings=LOWERINGS + (("metal", "metal-fast") if name == "logcumsumexp" else ()),
        notes=(*notes, f"your own lowering is held to {HELD[name]}"),
    )
