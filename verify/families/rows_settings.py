"""Which problems a row kernel has: its settings, what `--set` gives, and what a user's own lowering is called with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from verify.facts.kernel import Setting, UsageError, comma_list, drawn_size, in_pairs, parted, suggest, whole_number
from verify.families.rows_recipes import EXPONENTIALS, LAYOUTS, PRODUCTS, SQUARES, SUMS, recipes_of

if TYPE_CHECKING:
    from verify.facts.kernel import Scalars
    from verify.families.rows import Rows

#: Elements of the largest problem that `--set shape=` may request: ball and bound take about 100 bytes an element.
MOST = 1 << 24


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


def asks(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """A dimension other than the last; see `Composite.asks`."""
    return ("dim",) * (parameters["dim"] not in (-1, len(parameters["shape"]) - 1))


def sized(n: int, last: bool) -> tuple[dict[str, str], ...]:
    """Rows of length n, n rows, one row alone, and columns of length n, or so many of them, also within a stack."""
    shapes = [{"shape": f"3x{n}"}, {"shape": f"{n}x3"}, {"shape": f"{n}"}, {"shape": f"1x{n}"}]
    columns = [{"shape": shape, "dim": "0"} for shape in (f"{n}x3", f"{n}x1", f"3x{n}")]
    shapes += [] if last else [*columns, {"shape": f"2x3x{n}", "dim": "1"}]
    return tuple(one | {"recipe": "random"} for one in shapes)


def forms(last: bool, weighted: bool, reduces: bool) -> tuple[dict[str, str], ...]:
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


def crossed(
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


def drawn(draw: Random, kind: str, extremes: bool, last: bool, weighted: bool) -> dict[str, str]:
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


def many(last: bool) -> tuple[tuple[dict[str, str], dict[str, str], dict[str, str]], ...]:
    """Long rows, more of them than a persistent kernel has programs, or than two thousand; a batch of sequences; and
    columns, long ones too, of which there are several tiles both ways, of a matrix, of each of a batch, and across a
    batch. Some rows or columns are judged, the last one among them: an odd step finds every place in a tile. More rows,
    columns and matrices than an axis of a grid holds, and four times as many rows."""
    some = [("300x8200", -1, 0, 0, 49), ("20x24601", -1, 0, 2, 13), ("2206x1033", -1, 0, 0, 105)]
    some += [("4x128x1024", -1, 1, 7, 15), ("33001x21", -1, 0, 0, 165), ("270001x3", -1, 0, 0, 675)]
    some += [("66001x20", -1, 0, 0, 165), ("66001x8", -1, 0, 0, 165)]
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


def further(
    rows: Rows, last: bool, others: tuple[Scalars, ...]
) -> tuple[tuple[Mapping[str, str], Scalars], ...]:  # fmt: skip
    """As `Composite.further`. others: scalars that the kernel's cases do not have."""
    return (
        *((one, {}) for one in forms(last, bool(rows.weights), rows.reduces)),
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
        *(({"shape": shape, "recipe": "climbing"}, {}) for shape in ("8x4096", "4x20000") if rows.kind == EXPONENTIALS),
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
    )


#: Sizes and strides of models and of whole blocks that meet few others above: heads of 128 numbers, rows at an odd
#: distance that vectors divide, more rows than a grid has blocks, of some length; heads that a batch repeats; outer
#: dimensions that are no single one; windows one apart; rows of one block in several dimensions; of what is not their
#: last dimension, long columns, and blocks of each of many matrices.
BLOCKS: tuple[tuple[dict[str, str], str], ...] = (
    ({"shape": "2x5x3x128"}, ""), ({"shape": "6x1100"}, "x.repeat(1, 2)[:, :1101].contiguous()[:, :-1]"),
    ({"shape": "1300x160"}, ""), ({"shape": "3x4x6x33"}, "x[:, :1].expand(x.shape)"),
    ({"shape": "3x4x2100"}, "x.transpose(0, 1).contiguous().transpose(0, 1)"),
    ({"shape": "2x3x4x2100"}, "x.repeat(1, 2, 1, 1)[:, :3]"), ({"shape": "9x16"}, "x.flatten().unfold(0, 16, 1)[:9]"),
    ({"shape": "5x6x256"}, ""), ({"shape": "2x3x5x1024"}, "x.transpose(1, 2).contiguous().transpose(1, 2)"),
    ({"shape": "20x320"}, "x.repeat(1, 2)[:, :360].contiguous()[:, :320]"),
    ({"shape": "6x640"}, "x[:1].expand(x.shape)"), ({"shape": "1100"}, "x.repeat_interleave(3)[::3]"),
    ({"shape": "2x140000"}, "torch.stack([x, x], -1)[..., 0]"),
    ({"shape": "6x64"}, "torch.cat([x.flatten()[:2], x.flatten()])[2:].view(x.shape)"),
    ({"shape": "2x3x2x2x2x2x9"}, "x.movedim(0, -2).contiguous().movedim(-2, 0)"),
)  # fmt: skip
BLOCKS_ACROSS: tuple[tuple[dict[str, str], str], ...] = (
    ({"shape": "33100x3", "dim": "0"}, ""), ({"shape": "6x1100x3", "dim": "1"}, ""),
    ({"shape": "2x192x5x3", "dim": "1"}, "x.contiguous(memory_format=torch.channels_last)"),
    ({"shape": "1100x1060", "dim": "0"}, ""), ({"shape": "40x1x9", "dim": "2"}, ""),
    ({"shape": "256x12", "dim": "0"}, "x.t().contiguous().t()"), ({"shape": "5x300x2", "dim": "-2"}, ""),
    ({"shape": "2x5x3x4x6", "dim": "1"}, "x.contiguous(memory_format=torch.channels_last_3d)"),
)  # fmt: skip
#: A NaN at the first place of a block after the first, of one size in each row; and special numbers alone up to the
#: second block.
AT_BLOCKS = (
    "torch.where(torch.arange(x.shape[-1], device=x.device) == torch.tensor([[256], [1024], [2048]], device=x.device),"
    " float('nan'), x)"
)
ALONE_FIRST = "torch.cat([x[:1100] * 0 + ({}), x[1100:]])"


def related(rows: Rows, last: bool) -> tuple[tuple[Mapping[str, str], Mapping[str, str]], ...]:
    """As `Composite.related`: numbers of which a row has one, rows that a batch repeats, rows at different distances or
    of longer ones, a batch of sequences, weights that code leaves out, that are misaligned or one number, and sums
    beyond the range."""
    return (
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
        *((of, {"x": text} if text else {}) for of, text in (*BLOCKS, *(() if last else BLOCKS_ACROSS))),
        ({"shape": "3x2100", "recipe": "random"}, {"x": AT_BLOCKS}),
        # the last of what no vector has is far above all others
        *(
            (
                (
                    {"shape": "4x1103", "recipe": "random"},
                    {"x": "x.index_add(-1, torch.tensor([1102], device=x.device), x[:, :1] * 0 + 200)"},
                ),
            )
            * (rows.kind == EXPONENTIALS)
        ),
        *(
            ({"shape": "2300x3", "dim": "0", "recipe": "random"}, {"x": ALONE_FIRST.format(f"float('{text}')")})
            for text in ("inf", "-inf")
            if not last and (rows.kind == EXPONENTIALS) <= (text == "-inf")
        ),
    )
