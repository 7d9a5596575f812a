"""Which problems a product has: settings, what `--set` gives, and what a user's own lowering is called with."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from random import Random
from typing import TYPE_CHECKING, Any

from verify.facts.kernel import (
    DTYPES,
    LARGE,
    NARROW,
    SUBNORMAL,
    Setting,
    UsageError,
    drawn_size,
    in_pairs,
    parted,
    whole_number,
)
from verify.families.products_data import ACTIVATIONS, LAYOUTS, Shape

if TYPE_CHECKING:
    from verify.families.products import Products

#: Elements of an output, and products, of a drawn problem: judging takes about 10 ms.
DRAWN_ELEMENTS, DRAWN_PRODUCTS = 1 << 15, 1 << 22


def setting(name: str, quick: bool = False, length: int = 0, resolves: bool = False, **values: Any) -> Setting:
    shape = Shape(**values)
    parameters = {f.name: getattr(shape, f.name) for f in fields(shape) if f.name != "group" or shape.group}
    work = max(shape.batch, 1) * shape.m * shape.k * shape.n // 8
    return Setting(name, parameters, ALL, quick, length=length, resolves=resolves, work=work)


ALL = DTYPES + NARROW
SETTINGS = (
    setting("33x517x20", m=33, k=517, n=20, quick=True, length=1, resolves=True),  # beyond a panel of the host's BLAS
    setting("64x80x48"),
    setting("k=0", m=6, k=0, n=5, quick=True, length=1),
    setting("special", m=30, k=32, n=20, data="special", quick=True, length=1),
    setting("1x1x1", m=1, k=1, n=1, length=1),
    setting("one row", m=1, k=260, n=64, length=1),
    setting("one column", m=64, k=260, n=1, length=1),
    setting("transposed a", m=48, k=96, n=32, layout="transposed-a"),
    setting("transposed b", m=48, k=96, n=32, layout="transposed-b"),
    setting("strided", m=48, k=96, n=32, layout="strided"),
    setting("128x1024x128", m=128, k=1024, n=128),
    setting("64x4096x64", m=64, k=4096, n=64),
)  # fmt: skip
BATCHED = (
    setting("3x40x64x24", batch=3, m=40, k=64, n=24, quick=True, length=1, resolves=True),
    setting("5x17x129x9", batch=5, m=17, k=129, n=9),
    setting("2x6x0x5", batch=2, m=6, k=0, n=5, length=1),
    setting("transposed b", batch=3, m=40, k=64, n=24, layout="transposed-b"),
    setting("strided", batch=3, m=40, k=64, n=24, layout="strided"),
    setting("interleaved", batch=3, m=40, k=64, n=24, layout="interleaved"),
    setting("one row", batch=4, m=1, k=260, n=64, length=1),
    setting("one column", batch=4, m=64, k=260, n=1, length=1),
)
PARAMETERS = {
    "m": "rows of a",
    "k": "columns of a, rows of b",
    "n": "columns of b",
    "batch": "matrices of a stack, 0 for no stack",
    "layout": ", ".join(LAYOUTS),
    "activation": ", ".join(ACTIVATIONS),
    "group": "terms of k that share a scale and a zero",
    "data": "mixed (every row and column another kind of numbers), special (infinities, NaNs and zeros among them), "
    "bias, scales or zeros (these among those of the bias, of the scales, of the zeros of codes, and scales that are 0 "
    "or tiny) or extreme (numbers at the ends of the range, and scales of either sign)",
}


def custom(given: Mapping[str, str], dtypes: tuple[str, ...] = DTYPES, coded: bool = False) -> Setting:
    """The setting of `--set NAME=VALUE`. Raises UsageError."""
    values: dict[str, Any] = {"k": 128, "group": 32} if coded else {}
    for name, text in given.items():
        values[name] = text if name in ("layout", "data", "activation") else whole_number(name, text)
    if coded and values["group"] < 1:
        raise UsageError(f"group={values['group']}: expected at least 1")
    Shape.of(values)
    return replace(setting(" ".join(f"{name}={text}" for name, text in given.items()), **values), dtypes=dtypes)


#: Some rows, terms and columns between those that code has a way for each: tails of terms in tiles, rows of a decoded
#: batch, rows and columns of many terms, an odd number of columns, more than a thousand columns of many terms.
BETWEEN = (
    *((130, k, 130) for k in (4, 24, 72, 88, 96, 112, 140, 1500)),
    *((m, 40, 130) for m in (8, 16, 24, 48)),
    (16, 4168, 136), (130, 4160, 130), (2, 11008, 16), (1, 4096, 130), (1, 1280, 800), (3000, 100, 1), (130, 40, 227),
    (40, 32, 2000), (24, 400, 1296), (8, 2096, 500), (128, 77, 128), (1030, 40, 71), (5, 640, 1300), (300, 2100, 40),
)  # fmt: skip


def forms(facts: Products) -> tuple[dict[str, str], ...]:
    """Square sizes, so that no shape shows whether a factor is transposed; two tiles of 128 or 256 both ways, of whole
    blocks of terms and others, of many terms, and eleven by four of few; no term at all; few rows or columns of many
    terms; one row of many columns, and one column of many rows; one matrix for a stack, and many; one row or column of
    a factor repeated. For codes, whole groups and tiles."""
    square = dict.fromkeys(("m", "k", "n", "batch")[: 4 if facts.stacked else 3], "32" if facts.coded else "33")
    tiles = {"m": "272", "k": "64", "n": "272"} | ({"m": "144", "n": "144", "batch": "2"} if facts.stacked else {})
    if facts.coded:
        few = {"m": "1", "k": "128", "n": "32", "group": "64", "data": "extreme"}
        grouped = (
            {"m": "24", "k": k, "n": "48", "group": group}
            for k, group in (("704", "64"), ("512", "128"), ("1280", "256"))
        )
        wide = (
            {"m": m, "k": k, "n": n, "group": group}
            for m, k, n, group in (("4", "512", "256", "32"), ("1", "1024", "128", "128"), ("4", "256", "32", "32"))
        )
        single = ({"m": "1", "k": k, "n": n} for k, n in (("1056", "16"), ("4096", "16"), ("64", "48"), ("64", "1040")))
        others = (
            (5, 64, 32, 16), (5, 256, 32, 256), (8, 256, 144, 128), (40, 128, 48, 64), (8, 64, 144, 32),
            (5, 512, 32, 256), (5, 1408, 32, 128),
        )  # fmt: skip
        groups = [dict(zip(("m", "k", "n", "group"), map(str, one), strict=True)) for one in others]
        groups.append({"m": "1", "k": "64", "n": "32", "data": "special"})
        groups += [{"m": m, "k": "384", "n": "1040", "group": group} for m, group in (("1", "128"), ("5", "32"))]
        groups += [
            {"m": "520", "k": "256", "n": "32", "group": "128"},
            {"m": "24", "k": "256", "n": "528", "group": "128"},
        ]
        groups += [{"m": "5", "k": "512", "n": "1040", "group": group} for group in ("64", "256")]
        groups += [{"m": "4", "k": "1024", "n": "1040"}, {"m": "264", "k": "1152", "n": "272"}]
        groups += [{"m": f"{16 + rest}", "k": "64", "n": "16"} for rest in range(1, 16)]
        deep = ({"m": m, "k": k, "n": n} for m, k, n in (("1300", "32", "400"), ("150", "2112", "144")))
        return square, tiles, tiles | {"k": "96"}, few, *single, *grouped, *groups, *wide, *deep
    stack = {"batch": "2"} if facts.stacked else {}
    shapes = [square, tiles, tiles | {"k": "75"}, {"m": "5", "k": "0", "n": "6"} | stack]
    shapes += [{"m": f"{m}", "k": "1031", "n": f"{n}"} | stack for m, n in ((1, 6), (2, 35), (35, 1), (40, 40))]
    shapes += [
        {"m": m, "k": k, "n": n} | stack
        for m, k, n in (
            ("1", "4096", "8"), ("5", "768", "6"), ("5", "8192", "6"), ("272", "272", "272"), ("256", "256", "256"),
            ("1", "40", "1"), ("1", "100", "1"),
            ("1", "64", "33"), ("1", "64", "100"), ("1", "64", "1025"), ("1", "40", "5001"), ("1025", "40", "1"),
            ("17", "64", "1025"), ("1300", "130", "400" if facts.stacked else "520"), ("400", "32", "1300"),
            ("150", "2100", "150"),
        )
    ]  # fmt: skip
    if not facts.stacked:  # few rows of matrices that models have, and more of them than multiprocessors
        models = (("1", "1152", "603"), ("4", "513", "260"), ("32", "512", "512"))
        shapes += [{"m": m, "k": k, "n": n} for m, k, n in (*models, ("18000", "32", "16"))]
    shapes.append({"m": "130", "k": "4099", "n": "130"} | stack)
    if facts.exact:  # whole tiles of terms that fill no vector, and more of them than float32 has integers
        shapes += [{"m": "1", "k": "70", "n": "64"}, {"m": "128", "k": "2047", "n": "128", "data": "extreme"}]
    # more rows, columns or matrices than an axis of a grid holds
    if facts.stacked:
        shapes.append({"m": "1", "k": "2", "n": "1", "batch": "70001"})
    elif not (facts.exact or facts.scales):
        shapes += [{"m": "70001", "k": "4", "n": "1"}, {"m": "1", "k": "4", "n": "70001"}]
    between = [one for one in BETWEEN if one[1] < 2000 or not facts.stacked]
    shapes += [{"m": f"{m}", "k": f"{k}", "n": f"{n}"} | stack for m, k, n in between]
    if facts.activated:
        few = {"m": "3", "k": "40", "n": "6"}
        shapes += [{"m": "1", "k": "40", "n": "1", "activation": name} for name in ("relu", "silu")]
        shapes += [few | {"activation": "silu"}, few | {"k": "2100", "activation": "relu"}]
        shapes += [few | {"k": "1", "activation": "relu"}, few | {"m": "1", "activation": "relu", "data": "special"}]
        shapes += [few | {"k": "0", "activation": name} for name in ("relu", "silu")]
        both = [{"activation": name, "layout": "transposed-b"} for name in ("relu", "silu")]
        shapes += [
            one | {"m": m, "k": k, "n": n} for m, k, n in (("130", "40", "130"), ("1", "40", "70")) for one in both
        ]
        rows = (
            ("1", "256", "40"),
            ("1", "520", "40"),
            ("16", "2120", "40"),
            ("16", "40", "130"),
            ("5", "72", "1300"),
            ("8", "520", "264"),
        )
        shapes += [{"m": m, "k": k, "n": n, "activation": f} for m, k, n in rows for f in ("relu", "silu")]
        shapes.append(few | {"k": "2100", "activation": "silu"})
        shapes += [{"m": m, "k": "40", "n": "80", "data": "bias", "activation": "relu"} for m in ("1", "72")]
        shapes += [few | both[0] | {"k": "4100"}, {"m": "4", "k": "256", "n": "256", "activation": "silu"}]
        shapes += [{"m": m, "k": "40", "n": "12", "activation": f} for m, f in (("1040", "relu"), ("2070", "silu"))]
    small = {"m": "5", "k": "40", "n": "6"} | ({"batch": "3"} if facts.stacked else {})
    shapes += [small | {"batch": "1"}, small | {"k": "100", "batch": "1"}] if facts.stacked else []
    # several tiles in a stack, and of many matrices one or a line of each
    stacks = (
        (66, 70, 66, 9), (34, 40, 34, 70), (1, 40, 70, 40), (70, 40, 1, 40), (140, 264, 20, 3), (128, 64, 64, 8),
        (200, 64, 200, 3), (130, 300, 64, 3), (4, 4, 4, 3), (16, 16, 16, 200), (700, 40, 6, 1),
    )  # fmt: skip
    named = [dict(zip(("m", "k", "n", "batch"), map(str, one), strict=True)) for one in stacks]
    shapes += named if facts.stacked else []
    shapes += [small | {"batch": "150"}, {"m": "2", "k": "8", "n": "3", "batch": "1030"}] if facts.stacked else []
    # integers are multiplied by a library of the host's that reads beyond a matrix of such strides
    for sizes in (small, small | {"m": "66", "n": "34"}) if not facts.exact else ():
        shapes += [sizes | {"layout": f"expanded-{t}"} for t in "ab"]
    return tuple(shapes)


def extremes(facts: Products) -> tuple[dict[str, str], ...]:
    """Numbers at the ends of the range, integers also in sums that float32 does not hold exactly; special values where
    no setting has them, or none before a relu."""
    sizes = {"m": "24", "k": "64" if facts.coded else "40", "n": "32" if facts.coded else "18", "data": "extreme"}
    sizes |= {"batch": "2"} if facts.stacked else {}
    found = [sizes, sizes | {"k": "4099"}] if facts.exact else [sizes]
    if facts.exact:
        found += [one | {"m": m} for one in found for m in ("4", "12")]
        found.append(sizes | {"m": "1", "n": "1"})
        found += [{"m": n, "k": "4099", "n": n, "data": "extreme"} for n in ("72", "130")]
        found += [sizes | {"k": "2047"}, {"m": "150", "k": "4099", "n": "40", "data": "extreme"}]
        # rows that decoding has, and terms whose sum needs more than 16 bits
        found += [sizes | {"m": "100", "k": "2047"}, sizes | {"k": "384"}]
        found.append(sizes | {"m": "72", "k": "4099", "n": "160"})
        found += [sizes | {"m": "24", "n": "272"}, sizes | {"m": "5", "k": "16384", "n": "6"}]
    elif not facts.coded:
        found += [
            {"m": m, "k": k, "n": n, "data": "special"} | ({"batch": "2"} if facts.stacked else {})
            for m, k, n in (
                ("1", "130", "20"), ("64", "64", "64"), ("30", "600", "20"), ("1", "520", "40"), ("5", "1040", "6")
            )
        ]  # fmt: skip
        found.append(sizes | {"k": "1040"})
    tiles = {"m": "144", "k": "64", "n": "144"} | ({"batch": "2"} if facts.stacked else {})
    if not facts.exact:  # of which code for large matrices has its own way
        found += [tiles | {"data": data} for data in ("special", "extreme")]
        found += [{"batch": "9", "m": "5", "k": "40", "n": "6", "data": "special"}] * facts.stacked
        found += [tiles | {"data": "special", "activation": "relu"}] * facts.activated
    special = {"m": "30", "k": "32", "n": "32" if facts.coded else "20", "data": "special"}
    special |= {"activation": "relu"} if facts.activated else {}
    found += [special] if facts.activated or facts.scales or facts.coded else []
    found += [sizes | {"data": "scales"}] if facts.scales or facts.coded else []
    found += [sizes | {"data": "zeros"}] if facts.coded else []
    if facts.activated:
        found += [special | {"data": "nans", "activation": "silu"}, special | {"data": "bias", "activation": "none"}]
        found += [special | {"k": "130"}, sizes | {"k": "100", "activation": "relu"}, special | {"data": "bias"}]
    return tuple(found)


#: Rows and columns with any remainder of 16, beyond a tile of as many and, half of them, beyond one of 64.
RESTS = tuple((16 + rest + 48 * (rest % 2), 16 + 5 * rest % 16 + 48 * (rest // 2 % 2)) for rest in range(16))


def related(facts: Products) -> tuple[tuple[dict[str, str], dict[str, str]], ...]:
    """The same matrix as both factors, one that is the other's transpose, and both transposed, where their dtypes and
    layouts allow it; zeros beside infinities and NaNs, codes of zero beside such scales; a column that is expanded,
    factors whose products leave the range of float32, and rows of longer matrices beside one matrix for a stack; one
    scale for all rows or for the first ones, a negative one, and large ones, with which sums leave the range; one term
    of one row, which is 0 in other problems; factors that are parts of longer rows, or heads that lie within rows. As
    they are: every remainder that a tail of terms may have, parts of tiles beside many, and thousands of matrices."""
    if facts.coded:
        deep = {"m": "16", "k": "1152", "n": "32", "group": "128"}
        large = {"m": "261", "k": "1024", "n": "304", "group": "128"}
        odd = {"m": "5", "k": "192", "n": "32", "group": "96"}
        given = {"m": "5", "k": "64", "n": "32", "data": "scales"}
        expanded = {"scale": "scale[:, :1].expand(scale.shape)"}, {"zero": "zero[:1, :1].expand(zero.shape)"}
        plain = {"m": "5", "k": "64", "n": "32"}
        # a row of one number, which leaves weights as they are
        alone = {"m": "1", "k": "64", "n": "256"}, {"a": "torch.cat([a[:, :1], a[:, 1:] * 0], 1)"}
        return (
            (given, {"b": "b * 0 + 8"}),
            (deep, {}),
            (large, {}),
            (odd, {}),
            alone,
            *((plain, one) for one in (*expanded, {"zero": "zero * 0"}, {"b": "b % 8"})),
            (plain, {"a": SUBNORMAL.format("a"), "scale": LARGE.format("scale"), "zero": LARGE.format("zero")}),
            (plain, {"a": LARGE.format("a"), "b": "b * 0 + 8", "zero": SUBNORMAL.format("zero")}),
        )
    if facts.scales:
        some = {"scale_a": "scale_a[[0, *range(len(scale_a) - 1)]]"}
        large = {"scale_a": "scale_a * 2.0**60", "scale_b": "scale_b * 2.0**62"}
        # NaNs with a sign bit, and of 5 bits of exponent another one
        turned = [{t: f"({t}.view(torch.uint8) ^ {bits}).view({t}.dtype)" for t in "ab"} for bits in (128, 130)]
        return (
            ({"m": "24", "k": "64", "n": "32"}, {"scale_a": "scale_a[:1].expand(scale_a.shape)"}),
            ({"m": "24", "k": "64", "n": "32"}, {"scale_b": "scale_b[:, :1].expand(scale_b.shape)"}),
            ({"m": "24", "k": "64", "n": "32"}, some),
            *(({"m": "24", "k": "64", "n": "32"}, {t: f"{t} * 0 + 1"}) for t in ("scale_a", "scale_b")),
            ({"m": "1", "k": "64", "n": "32"}, {"scale_a": "-scale_a.abs()"}),
            ({"m": "24", "k": "64", "n": "32"}, large),
            ({"m": "24", "k": "64", "n": "32"}, {"scale_a": "-scale_a.abs()", "scale_b": "scale_b * (scale_b > 1)"}),
            *(({"m": "64", "k": "64", "n": "64", "data": "special"}, one) for one in turned),
            *(({"m": "144", "k": f"{k}", "n": "144"}, {}) for k in (160, 192)),
            *(({"m": "304", "k": "64", "n": "64", "data": data}, {}) for data in ("special", "extreme")),
            *(({"m": f"{m}", "k": "64", "n": f"{n}"}, {}) for m, n in RESTS),
        )
    one = [{"m": "1", "k": "1", "n": n} | ({"batch": "3"} if facts.stacked else {}) for n in ("20", "1")]
    square, large = (
        dict.fromkeys(("m", "k", "n"), size) | ({"batch": "3"} if facts.stacked else {}) for size in ("33", "130")
    )
    both = {t: f"{t}.mT.contiguous().mT" for t in "ab"}
    found = [(square, {"b": "a"}), (square, {"b": "a.mT"}), (large, both), (large | {"k": "70"}, {"b": "a.mT"})]
    found += [(sizes, {"a": "-b[..., :1]"}) for sizes in one]
    if not facts.exact:
        nothing = [{t: f"{t}.new_zeros({t}.shape)"} for t in "ab"]
        lines = (
            {"m": m, "k": "72", "n": n} | ({"batch": "2"} if facts.stacked else {})
            for m, n in (("40", "1"), ("1", "40"))
        )
        found += [(sizes | {"data": "special"}, zeros) for sizes in (square, large, *lines) for zeros in nothing]
        found.append((square, {"a": "a.mT.contiguous().mT[..., :1].expand(a.shape)"}))
        few = {"m": "5", "k": "40", "n": "6"} | ({"batch": "2"} if facts.stacked else {})
        unbiased = {"bias": "bias * 0"} if facts.bias else {}
        found += [(few, {t: SUBNORMAL.format(t), other: LARGE.format(other)} | unbiased) for t, other in ("ab", "ba")]
        nothing_else = {"bias": SUBNORMAL.format("bias"), "a": "a * 0"}
        found += [(few | {"k": k}, nothing_else) for k in ("40", "0") if facts.bias]
        deep = {"m": "5", "k": "1040", "n": "6"} | ({"batch": "2"} if facts.stacked else {})
        for sizes in (square, deep):  # no infinity meets its opposite
            found.append((sizes, {t: f"{t}.abs() * 2.0**80" for t in "ab"}))
    else:  # an odd sum in one row, which float32 does not hold
        found.append(({"m": "1", "k": "2047", "n": "18"}, {t: f"{t} * 0 + 127" for t in "ab"}))
        found.append(({"m": "5", "k": "8192", "n": "6"}, {"a": "a * 0 + 127", "b": "(b & 63) | 64"}))
    stack = {"batch": "2"} if facts.stacked else {}
    if not facts.exact:  # factors that float32 holds, of float64 too; sums that leave float16's range and come back
        found.append(({"m": "12", "k": "70", "n": "20"} | stack, {t: f"{t}.float().to({t}.dtype)" for t in "ab"}))
        halves = {"a": "torch.cat([a.abs()[..., :2048] * 64] * 2, -1)",
                  "b": "torch.cat([b.abs()[..., :2048, :], -b.abs()[..., :2048, :] * 0.75], -2)"}  # fmt: skip
        found.append(({"m": "5", "k": "4096", "n": "6"} | stack, halves))
    else:
        small = {"m": "5", "k": "1024", "n": "6"}, {t: f"{t}.clamp(6, 8)" for t in "ab"}
        found.append(small)
    if facts.bias:
        named = [{"activation": f} for f in ("relu", "silu")] if facts.activated else [{}]
        found += [({"m": "5", "k": "40", "n": "6"} | one, {"bias": "bias * 0"}) for one in named]
        found += [({"m": "5", "k": "40", "n": "20"} | one, {"bias": "bias * 2.0**13"}) for one in named[1:]]
    tails = ((r, (64, 96)[r % 2] + r) for r in range(1, 32))
    found += [({"m": f"{2 + r % 4}", "k": f"{k}", "n": f"{3 + r % 5}"} | stack, {}) for r, k in tails]
    found += [({"m": f"{m}", "k": "40", "n": f"{n}"} | stack, {}) for m, n in RESTS]
    # as a layer has its weights, and as their gradients are computed
    for m, k, n in ((1, 1000, 100), (8, 512, 512), (32, 1024, 64), (130, 520, 130), (261, 72, 272)):
        found.append(({"m": f"{m}", "k": f"{k}", "n": f"{n}"} | stack, {"b": both["b"]}))
    for m, k, n in ((130, 1030, 72), (261, 72, 272)):
        found.append(({"m": f"{m}", "k": f"{k}", "n": f"{n}"} | stack, {"a": both["a"]}))
    found += [(dict(zip("mkn", size, strict=True)) | stack, both) for size in (("70", "520", "130"), ("64",) * 3)]
    if not facts.exact:
        ends = ("130", "40", "40")
        for made in ({"a": "a[..., :1, :].expand(a.shape)"}, {"b": "b[..., :1].expand(b.shape)"}):
            found.append((dict(zip("mkn", ends, strict=True)) | stack, made))
    found.append(({"m": "5", "k": "1", "n": "1"} | stack, {}))
    found.append(({"m": "2", "k": "33000", "n": "3"} | stack, {}))  # more terms than 15 bits number
    biases = ("bias[:1].expand(bias.shape)", "bias.repeat(2)[1:133]") if facts.bias else ()
    found += [({"m": "24", "k": "40", "n": "132"}, {"bias": bias}) for bias in biases]
    if not facts.stacked:
        for m, k, n in ((64, 256, 32), (60, 40, 128)):
            sizes = {"m": f"{m}", "k": f"{k}", "n": f"{n}"}
            found += [(sizes, {"a": f"a.repeat(1, 2)[:, :{k + 1}].contiguous()[:, :-1]"})]
            found += [(sizes, {"b": f"b.repeat(1, 2)[:, :{n + 1}].contiguous()[:, :-1]"})]
        for m, k, n in ((64, 50, 70), (1050, 60, 1)):
            apart = {"a": f"a.mT.repeat(1, 2)[:, :{m + 8}].contiguous()[:, :{m}].mT", "b": "b.mT.contiguous().mT"}
            found.append(({"m": f"{m}", "k": f"{k}", "n": f"{n}"}, apart))
        beyond = ((261, 64, 256), (64, 2166, 64), (1100, 64, 256), (512, 512, 512))
        found += [({"m": f"{m}", "k": f"{k}", "n": f"{n}"}, {}) for m, k, n in beyond]
        if facts.activated:
            tiles = (("256", "256", "256"), ("512", "512", "512"))
            pairs = itertools.product(tiles, ("relu", "silu"))
            found += [({"activation": f, "m": m, "k": k, "n": n}, {}) for (m, k, n), f in pairs]
    if facts.stacked:
        within = "a.transpose(0, 1).contiguous().transpose(0, 1)", "b.permute(2, 0, 1).contiguous().permute(1, 2, 0)"
        found.append(({"batch": "8", "m": "10", "k": "16", "n": "10"}, dict(zip("ab", within, strict=True))))
        found.append(({"batch": "24", "m": "74", "k": "99", "n": "66"}, {}))
        found.append(({"batch": "12", "m": "70", "k": "72", "n": "70", "layout": "transposed-b"}, {}))
        found.append((square, {"a": "a.repeat(1, 2, 1)[:, :33]"}))
        parts = {"a": "a.repeat(1, 2, 1)[:, :70]", "b": "b[:1].expand(b.shape)"}
        found.append(({"batch": "4", "m": "70", "k": "40", "n": "33"}, parts))
        shared = [(m, k, n, t) for m, k, n in ((5, 130, 6), (5, 1040, 6), (264, 40, 20), (20, 40, 264)) for t in "ab"]
        for m, k, n, t in shared if not facts.exact else ():
            sizes = {"batch": "3", "m": f"{m}", "k": f"{k}", "n": f"{n}"}
            found.append((sizes, {t: f"{t}[:1].expand({t}.shape)"}))
        if not facts.exact:
            found.append(
                ({"batch": "3", "m": "72", "k": "40", "n": "33"}, {t: f"{t}[:1].expand({t}.shape)" for t in "ab"})
            )
        found.append(({"batch": "4099", "m": "2", "k": "8", "n": "3"}, {}))
        found += [({"m": "128", "k": "128", "n": "128", "batch": size}, {}) for size in ("8", "16")]
    return tuple(found)


#: Rows and columns, terms, and matrices of a stack, that code has ways of its own for.
AREAS = (
    (1, 1), (1, 6), (1, 144), (1, 2100), (6, 1), (300, 1), (5, 6), (72, 80), (264, 272), (6, 2100), (1040, 6),
)  # fmt: skip
TERMS = (0, 1, 8, 64, 264, 1100, 4104)
STACKS = (1, 3, 12, 70)
GROUPS = (("64", "32"), ("128", "64"), ("512", "128"), ("1280", "256"), ("2112", "32"))
#: The same by which code chooses its fast paths: whole tiles or vectors of one dimension at least, beside few rows, and
#: terms that are whole blocks, or leave a rest.
TILED = (
    (1, 64), (4, 128), (1, 256), (16, 64), (16, 128), (4, 32), (128, 32), (64, 64), (128, 128), (256, 8), (600, 24),
)  # fmt: skip
TILED_TERMS = (64, 100, 128, 512, 1100, 2200)
TILED_STACKS = (2, 32, 130)
TILED_GROUPS = (("128", "128"), ("256", "64"), ("512", "256"), ("2048", "32"), ("2048", "64"), ("4096", "128"))
#: What a factor lies in, as expressions of it: itself, columns, longer rows, their second half, longer columns, and
#: one row or column that is repeated.
FACTORS = (
    "t", "t.mT.contiguous().mT", "torch.cat([t, t], -1)[..., :t.shape[-1]]", "torch.cat([t, t], -1)[..., t.shape[-1]:]",
    "torch.cat([t.mT, t.mT], -1)[..., :t.shape[-2]].mT",
)  # fmt: skip
REPEATED = {"a": "t[..., :1, :].expand(t.shape)", "b": "t[..., :1].expand(t.shape)"}
SHARED = ("t[:1].expand(t.shape)", "t[:1].mT.contiguous().mT.expand(t.shape)")
#: Elements of a factor or an output of a crossed problem, at most: judging takes about 10 ms.
CROSSED_ELEMENTS = 5 << 16


def crossed(facts: Products) -> tuple[tuple[dict[str, str], dict[str, str], dict[str, float]], ...]:
    """`Composite.crossed`: sizes, those of whole tiles apart, data, where each tensor lies, activations and scalars;
    and some that meet at three."""
    apart: list[dict[str, Any]] = []
    if facts.activated:
        few = {"m": "5", "k": "128", "n": "32"}
        for name in ("relu", "silu"):
            apart += [few | {"activation": name, "data": "nans"}, {**few, "k": "2200", "n": "80", "activation": name}]
        apart += [few | {"activation": "relu", "data": "bias"}, {**few, "m": "600", "k": "40", "activation": "relu"}]
        apart.append({"m": "10", "k": "512", "n": "1", "activation": "relu", "data": "special"})
    made = {"scale_a": "t[:1].expand(t.shape)", "scale_b": "t[:, :1].expand(t.shape)"} if facts.scales else {}
    every = (*_crossing(facts, AREAS, TERMS, STACKS), *_crossing(facts, TILED, TILED_TERMS, TILED_STACKS))
    every += (({"m": "32", "k": "128", "n": "128"}, made, {}),) * facts.scales  # one scale for each tensor
    return (*every, *((one, {}, {}) for one in apart))


def _crossing(
    facts: Products, of_areas: Sequence[tuple[int, int]], of_terms: Sequence[int], stacks: Sequence[int]
) -> tuple[tuple[dict[str, str], dict[str, str], dict[str, float]], ...]:
    """Those in which every two conditions meet, of these shapes of the output, numbers of terms and of matrices."""
    whole = 16 if facts.scales or facts.coded else 8 if facts.exact else 1
    areas = [{"m": f"{m}", "n": f"{-(-n // whole) * whole}"} for m, n in of_areas]
    terms = [{"k": f"{-(-k // whole) * whole}"} for k in of_terms if not (k == 1 and whole > 1)]
    groups = GROUPS if of_areas is AREAS else TILED_GROUPS
    kinds = ["mixed", "extreme"] if facts.exact else ["mixed", "extreme", "special"]
    kinds += ["bias"] * facts.bias + ["nans"] * facts.activated + ["scales"] * (facts.scales or facts.coded)
    kinds += ["zeros"] * facts.coded
    repeated, shared = not (facts.exact or facts.coded), SHARED if facts.stacked else ()
    made = {name: [*FACTORS, *([text] if repeated else []), *shared] for name, text in REPEATED.items()}
    if facts.bias:
        made["bias"] = ["t", "t[:1].expand(t.shape)", "torch.cat([t, t])[len(t) :]", "torch.cat([t[:1], t])[1:]"]
    if facts.scales:
        made["scale_a"] = ["t", "t[:1].expand(t.shape)", "t * (t < 1)", "-t"]
        made["scale_b"] = ["t", "t[:, :1].expand(t.shape)", "t * (t < 1)"]
    if facts.coded:
        one_group = "t[:1].expand(t.shape)"
        made |= {"scale": [*FACTORS[:3], one_group], "zero": [*FACTORS[:3], one_group, "t * 0"]}
    options: list[list[dict[str, Any]]] = [
        areas,
        [{"k": k, "group": group} for k, group in groups] if facts.coded else terms,
        [{"batch": f"{size}"} for size in stacks] if facts.stacked else [{}],
        [{"data": kind} for kind in kinds],
        [{"activation": name} for name in ACTIVATIONS] if facts.activated else [{}],
        [{**given, **scalars} for scalars, given in facts.scalars],
        *([{name: text} for text in texts] for name, texts in made.items()),
    ]

    def elements(of: Mapping[str, Any]) -> int:
        least = {"k": 0 if facts.coded else min(of_terms), "batch": min(stacks) if facts.stacked else 1}
        m, k, n, batch = (int(of.get(name, least.get(name))) for name in ("m", "k", "n", "batch"))
        return batch * max(m * n, m * k, k * n)

    def fits(of: Mapping[str, Any]) -> bool:
        if of.get("activation") == "silu" and of.get("data") in ("special", "bias", "extreme"):
            return False  # nothing is stated of infinities, and small results are many to be judged in multiprecision
        if of.get("data") == "scales" and of.get("k") == "0":
            return False  # nothing is stated of infinite scales of nothing
        some = [of] if "m" in of else [{**of, **area} for area in areas]  # of what is not there yet the least
        return any(elements(one) <= CROSSED_ELEMENTS for one in some)

    return tuple(parted(one, made) for one in in_pairs(options, fits))


def many(facts: Products) -> tuple[tuple[dict[str, str], dict[str, str], dict[str, str]], ...]:
    """More tiles of 128 x 128 than a GPU has multiprocessors, 304 at most, of which a persistent kernel computes more
    than one in a program; several tiles every way, of many terms, also of each matrix of a stack, and of a scaled
    factor that lies by columns, as torch wants it; two tiles of rows and many of columns. Some rows are judged."""
    if facts.coded:
        return (_some({"m": "2304", "k": "96", "n": "2304"}, 36),)
    if facts.stacked:
        sizes = (("521", "1031", "522", "1", 13), ("309", "323", "302", "6", 13), ("140", "40", "140", "9", 9))
        return tuple(_some(dict(zip(("m", "k", "n", "batch"), one, strict=True)), step) for *one, step in sizes)
    if facts.scales:
        large = {"m": "617", "k": "1040", "n": "656", "layout": "transposed-b"}
        several = [large, {"m": "528", "k": "1040", "n": "544"}]
    else:
        large = {"m": "617", "k": "1031", "n": "642"}
        several = [large, *({"activation": f} | large for f in ("relu", "silu") if facts.activated)]
    k, n, few = ("336", "1296", "80") if facts.scales else ("331", "1300", "72")
    several.append({"m": "150", "k": k, "n": n})
    return _some({"m": "2304", "k": few, "n": "2304"}, 36), *(_some(one, 11) for one in several)


def _some(sizes: dict[str, str], step: int) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """A problem of which one in `step` rows is judged: an odd step finds every kind of row, and place in a tile."""
    rows = -(-int(sizes["m"]) // step)
    return sizes, sizes | {"m": f"{rows}"}, dict.fromkeys(("a", "scale_a", ""), f"t[..., ::{step}, :]")


def drawn(facts: Products, draw: Random) -> dict[str, str]:
    """`Composite.drawn`; for codes, whole groups and tiles of 16 columns; of integers and scales three in four have
    sizes that CUDA's libraries take."""
    whole = 16 if facts.scales else 8 if facts.exact else 1
    while True:
        m, k, n = (drawn_size(draw, most) for most in (600, 4200, 600))
        batch = drawn_size(draw, 40) if facts.stacked else 1
        group = draw.choice((32, 64, 96, 128, 256))
        if facts.coded:
            k, n = -(-k // group) * group, -(-n // 16) * 16
        if whole > 1 and draw.randrange(4):
            m, k, n = max(m, 17), -(-k // whole) * whole, -(-n // whole) * whole
        if not facts.coded:
            m, k, n = (-(-size // 64) * 64 if draw.randrange(2) else size for size in (m, k, n))
        if batch * m * n <= DRAWN_ELEMENTS and batch * m * k * n <= DRAWN_PRODUCTS:
            break
    found = {"m": f"{m}", "k": f"{k}", "n": f"{n}"}
    found |= {"batch": f"{batch}"} if facts.stacked else {}
    found |= {"group": f"{group}"} if facts.coded else {}
    activation = draw.choice(ACTIVATIONS) if facts.activated else "none"
    found |= {"activation": activation} if facts.activated else {}
    layouts = [
        one for one in LAYOUTS if (one != "interleaved" or facts.stacked) and not ("expand" in one and facts.exact)
    ]
    if draw.randrange(2):
        found["layout"] = draw.choice(layouts)
    # infinities before a silu are not tried
    if activation != "silu" and not facts.exact and not draw.randrange(4):
        found["data"] = "special"
    return found


def again(facts: Products) -> tuple[dict[str, str], ...]:
    """One small problem, and one of more than 2^18 numbers, such as are worth to be kept in another layout."""
    if facts.coded:
        return {"m": "5", "k": "64", "n": "16"}, {"m": "4", "k": "512", "n": "528"}
    stack = {"batch": "3"} if facts.stacked else {}
    large = {"m": "2", "k": "513", "n": "260" if facts.stacked else "520"}
    return {"m": "5", "k": "33", "n": "6"} | stack, large | stack


def sized(n: int, stacked: bool, coded: bool = False) -> tuple[dict[str, str], ...]:
    """Problems with n terms, rows or columns, and few of the other two; for codes, whole groups and tiles of 16
    columns."""
    if coded:
        small, of = {"m": "5", "k": "64", "n": "16"}, {"m": 1, "k": 32, "n": 16}
        return tuple(small | {name: f"{-(-n // step) * step}"} for name, step in of.items() if n or name == "k")
    small = {"m": "5", "k": "40", "n": "6"} | ({"batch": "3"} if stacked else {})
    return tuple(small | {name: f"{n}"} for name in ("k", "m", "n") if n or name == "k")
