"""The matrices of products: a setting's shape, and the numbers and codes that they hold.

These are integer functions of (seed, kind, index), as in `verify.inputs.draws`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from verify.facts.formats import FORMATS
from verify.facts.kernel import Setting, UsageError, suggest
from verify.inputs.draws import Draw, beginning, exp2, normal, to_tensor

if TYPE_CHECKING:
    from verify.families.composite import Problem
    from verify.families.products import Products

Tensor = Any

LAYOUTS = ("contiguous", "transposed-a", "transposed-b", "strided", "interleaved", "expanded-a", "expanded-b")
#: The kinds of data in rows of a and columns of b, in turn.
ROWS = ("opposed", "normal", "positive", "whole")
COLUMNS = ("paired", "positive", "whole")
DATA = ("mixed", "special", "nans", "bias", "scales", "zeros", "extreme")
#: Factors of scales of rows and columns in turn, where the data are `scales`: such as code guards divisions by, or
#: flushes, and those that are no numbers.
SCALES = (1.0, 0.0, math.nan, 2.0**-130, 2.0**20, 2.0**-70, math.inf, 2.0**-100)
ACTIVATIONS = ("none", "relu", "silu")
#: The integer that stands for 1.
WHOLE = 40.0
#: Sizes beyond which a setting is refused.
MOST = 1 << 24
MOST_PRODUCTS = 1 << 36


@dataclass(frozen=True)
class Shape:
    """A setting: (batch, m, k) times (batch, k, n); how they lie in memory; what they hold."""

    m: int = 64
    k: int = 80
    n: int = 48
    batch: int = 0
    layout: str = "contiguous"
    data: str = "mixed"
    activation: str = "none"
    group: int = 0

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Shape:
        """The validated shape. Raises UsageError."""
        shape = cls(**{f.name: parameters[f.name] for f in fields(cls) if f.name in parameters})
        for name in ("m", "n"):
            if getattr(shape, name) < 1:
                raise UsageError(f"{name}={getattr(shape, name)}: expected at least 1; there is nothing to compare")
        if shape.k < 0 or shape.batch < 0:
            raise UsageError(f"k={shape.k}, batch={shape.batch}: expected at least 0")
        products = max(shape.batch, 1) * shape.m * shape.n * max(shape.k, 1)
        elements = max(shape.batch, 1) * max(shape.m * shape.k, shape.k * shape.n, shape.m * shape.n)
        if elements > MOST or products > MOST_PRODUCTS:
            most = f"{MOST:,} and {MOST_PRODUCTS:,}"
            raise UsageError(f"{elements:,} elements of a matrix and {products:,} products; expected at most {most}")
        if shape.layout == "interleaved" and not shape.batch:
            raise UsageError(f"layout={shape.layout}, batch=0: expected a stack of matrices")
        if shape.group < 0 or (shape.group and shape.k % shape.group):
            raise UsageError(f"group={shape.group}, k={shape.k}: expected a k of whole groups")
        for what, known in (("layout", LAYOUTS), ("data", DATA), ("activation", ACTIVATIONS)):
            if getattr(shape, what) not in known:
                raise UsageError(suggest(what, getattr(shape, what), known))
        return shape

    @property
    def stack(self) -> tuple[int, ...]:
        return (self.batch,) if self.batch else ()


def _numbers(draw: Draw) -> Tensor:
    """(2, n): normal ones, and whole ones from -3 to 3."""
    import torch

    return torch.stack([normal(draw), draw.integer(-3, 3).to(torch.float64)])


def _matrix(name: str, kinds: tuple[str, ...], size: tuple[int, int, int], dtype: str, seed: int) -> Tensor:
    """float64 (batch, lines, k): each line holds the next kind of numbers.

    opposed, paired: the second half of a row is the first one's negative, of a column its equal, but for every eighth
    number, small in one half and 0 in the other (smaller still in every other such line): their sum is what a rounding
    on the way leaves. whole: from -3 to 3. Every other normal line has magnitudes of 13 binades, another one in each
    place; every other positive line is one number with all its bits among zeros.
    """
    import torch

    batch, lines, k = size
    # these numbers are no format's: those of one serve all
    numbers = beginning(_numbers, FORMATS["float32"], batch * lines * k, seed, f"products {name}")
    noise, whole = (t.reshape(batch * lines, k) for t in numbers)
    place, half = torch.arange(k), k // 2
    sparse = (place % max(half, 1)) % 8 == 3
    turn = torch.where(place < half, place, place - half).clamp(max=max(half - 1, 0))
    sign = torch.where(place < half, 1.0, torch.where(place < 2 * half, -1.0, 0.0))
    powers = torch.tensor([2.0**-n for n in range(6 if dtype == "float8_e4m3fn" else 13)], dtype=torch.float64)
    result = torch.empty(batch * lines, k, dtype=torch.float64)
    for number, kind in enumerate(kinds):
        line, some = torch.arange(batch * lines)[number :: len(kinds), None], noise[number :: len(kinds)]
        again = line // len(kinds) % 2 == 1
        match kind:
            case "normal":
                found = torch.where(again, some * powers[(place + 5 * line) % len(powers)], some)
            case "positive":
                alone = torch.where(place == (line * 7 + 3) % max(k, 1), some, 0.0)
                found = torch.where(again, alone, some).abs()
            case "opposed":
                tiny = torch.where(again, 2.0**-16, 2.0**-9) if dtype != "float8_e4m3fn" else 2.0**-6
                small = torch.where(place < half, some * tiny, 0.0)
                found = torch.where(sparse, small, some[:, turn] * sign)
            case "paired":
                found = torch.where(sparse, some, some[:, turn])
            case _:
                found = whole[number :: len(kinds)]
        result[number :: len(kinds)] = found
    return result.reshape(size)


def _coded(shape: Shape, dtype: str, seed: int) -> dict[str, Tensor]:
    """Codes b (n, k), 0 to 15 in int8, and the `scale` and `zero` (n, k / group) of their groups.

    Columns are those of `_matrix`: paired ones have the codes, scales and zeros of the first half of the groups in the
    second too, positive weights are code times scale, whole ones have the scale 1. Zeros of every other paired column
    are so small that no weight is a float32.
    """
    import torch

    fmt, n, groups = FORMATS[dtype], shape.n, shape.k // shape.group
    draw = Draw(fmt, torch.arange(n * shape.k), seed, "products codes")
    codes = draw.integer(0, 15).reshape(n, shape.k)
    each = Draw(fmt, torch.arange(n * groups), seed, "products groups")
    scale = to_tensor(fmt, each.value(each.integer(-3, 1)) & (fmt.sign_bit - 1)).reshape(n, groups).double()
    noise, whole = normal(each).reshape(n, groups), each.integer(-3, 3).reshape(n, groups).double()
    line, half = torch.arange(n)[:, None], max(groups // 2, 1)
    again = line // len(COLUMNS) % 2 == 1
    zero = noise * torch.where(again, 2.0**-16, 4.0)
    is_ = {name: line % len(COLUMNS) == number for number, name in enumerate(COLUMNS)}
    twice = torch.arange(groups) % half
    scale = torch.where(is_["paired"], scale[:, twice], scale)
    zero = torch.where(is_["paired"], zero[:, twice], torch.where(is_["positive"], 8 * scale, whole))
    place = torch.arange(shape.k) % (half * max(shape.group, 1))
    codes = torch.where(is_["paired"] & (place % 8 != 3), codes[:, place], codes)
    scale = torch.where(is_["whole"], 1.0, scale)
    return {"b": codes.to(torch.int8), "scale": stored(scale, dtype), "zero": stored(zero, dtype)}


def decoded(x: Problem) -> Problem:
    """The problem with weights, in float64, in place of codes. Raises UsageError where float64 does not hold one
    exactly."""
    if "zero" not in x.tensors:
        return x
    import torch

    from verify.numbers.transforms import two_sum
    from verify.oracles.products import weights

    tensors = {name: t for name, t in x.tensors.items() if name not in ("scale", "zero")}
    codes, scale, zero = stored_weights(x)
    tensors["b"] = weights(codes, scale, zero)
    lost = two_sum(weights(codes, scale, torch.zeros_like(zero)), zero)[1]
    if bool(((lost != 0) & scale.isfinite() & zero.isfinite()).any()):
        raise UsageError("scales and zeros too far apart: float64 does not hold all weights exactly")
    return replace(x, tensors=tensors)


def stored_weights(x: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Code, scale and zero of each weight, (k, n) in float64."""
    group = x.extra["shape"].group
    scale, zero = (x.tensors[name].double().repeat_interleave(group, 0) for name in ("scale", "zero"))
    return x.tensors["b"].double(), scale, zero


def unordered(x: Problem) -> Tensor | None:
    """bool, as the output: elements that infinities make an infinity or a NaN, which of them is told nowhere, since
    scales may meet terms or sums of them: an infinite scale, and where there are codes an infinite factor or zero; None
    where there are none. What a NaN decides, or 0 times an infinite scale, is no such element."""
    import torch

    def wide(name: str) -> Tensor:
        return x.tensors[name].to(torch.float64)

    if "scale_a" in x.tensors:
        one, other = wide("scale_a"), wide("scale_b")
        found = (one.isinf() & (other != 0) & ~other.isnan()) | (other.isinf() & (one != 0) & ~one.isnan())
        if not bool(found.any()):
            return None
        return found & ~(wide("a").isnan().any(-1, keepdim=True) | wide("b").isnan().any(-2, keepdim=True))
    if "zero" not in x.tensors:
        return None
    a, scale, zero = map(wide, ("a", "scale", "zero"))
    found, nan = (
        kind(a).any(-1, keepdim=True) | (kind(scale) | kind(zero)).any(-2, keepdim=True)
        for kind in (torch.isinf, torch.isnan)
    )
    return found & ~nan if bool(found.any()) else None


def unread(x: Problem) -> Tensor | None:
    """bool, as the output: elements beside infinities or NaNs of factors where alpha is 0; None where there are none. A
    BLAS does not read the factors then (Netlib, dgemm.f: "if (alpha.eq.zero)"), and 0 times these is a NaN elsewhere;
    torch.addmm documents neither, and does either by the dtype."""
    if x.scalars.get("alpha", 1.0):
        return None
    import torch

    a, b = (x.tensors[name].to(torch.float64).isfinite() for name in ("a", "b"))
    found = ~(a.all(-1, keepdim=True) & b.all(-2, keepdim=True))
    return found if bool(found.any()) else None


def _special(t: Tensor, seed: int, name: str, often: int = 400) -> Tensor:
    """With infinities, NaNs and zeros scattered in, each replacing one number in `often`."""
    import torch

    draw = Draw(FORMATS["float32"], torch.arange(t.numel()), seed, f"products special {name}")
    which = draw.integer(0, often).reshape(t.shape)
    for number, value in enumerate((math.inf, -math.inf, math.nan, 0.0, 0.0)):
        t = torch.where(which == number, value, t)
    return t


def _extreme(t: Tensor, dtype: str, kinds: int, tiny: bool) -> Tensor:
    """(batch, lines, k) at the ends of the dtype's range, each kind of lines in turn. Integers: all -128, both ends,
    near 127. Floats: scaled so that two large lines meet at the end of the range, or beyond it where float32 holds
    their sums, and two small ones among subnormal numbers; others have these themselves (tiny) or stay, as float64
    does, which holds no such products exactly. Of 8 bits: below the largest, about the smallest normal one, and as they
    are. Lines of the first kind, whose sums nearly cancel, are never large."""
    import torch

    turn = torch.arange(t.shape[1])[:, None] // kinds % 3
    if dtype == "int8":
        ends, near = torch.where(t < 0, -128.0, 127.0), 127.0 - (t.abs() * 4).floor().clamp(max=7.0)
        return torch.where(turn == 0, -128.0, torch.where(turn == 1, ends, near)) / WHOLE
    if dtype in ("float8_e4m3fn", "float8_e5m2"):
        info = torch.finfo(getattr(torch, dtype))
        of_8_bits = math.log2(info.max) // 1 - 3, math.log2(info.smallest_normal), 0
        return t * exp2(torch.tensor(of_8_bits, dtype=torch.float64)[turn])
    if dtype not in ("float16", "bfloat16", "float32"):
        return t
    fmt = FORMATS[dtype]
    large = fmt.emax // 2 + (3 if fmt.emax < FORMATS["float32"].emax else -8)
    exponents = large, fmt.emin // 2 - 1, (fmt.emin - 2) * tiny
    turn = torch.where((torch.arange(t.shape[1])[:, None] % kinds == 0) & (turn == 0), 2, turn)
    return t * exp2(torch.tensor(exponents, dtype=torch.float64)[turn])


def stored(reals: Tensor, dtype: str) -> Tensor:
    """float64 values as a tensor of the dtype: towards zero, 8-bit floats to nearest; int8 from -128 to 127."""
    import torch

    from verify.families.composite import encoded

    if dtype == "int8":
        return (reals * WHOLE).round().clamp(-128, 127).to(torch.int8)
    if dtype not in FORMATS:
        return reals.to(torch.float32).to(getattr(torch, dtype))
    fmt = FORMATS[dtype]
    if fmt.bits == 64:
        return reals
    finite = reals.isfinite()
    found = to_tensor(fmt, encoded(reals, fmt=fmt))
    return found if bool(finite.all()) else found.where(finite, reals.to(found.dtype))


def problem(dtype: str, setting: Setting, scalars: Mapping[str, float], seed: int, *, facts: Products) -> Problem:
    """Tensors a (m, k), b (k, n), stacks of them where there is a batch, `bias` (n,), `scale_a` (m, 1), `scale_b`
    (1, n), on the host."""
    import torch

    from verify.families.composite import Problem

    shape = Shape.of(setting.parameters)
    size = max(shape.batch, 1)
    often = max(400, 4 * shape.k)  # of many terms all results would be NaN
    a = _matrix("a", ROWS, (size, shape.m, shape.k), dtype, seed)
    b = _matrix("b", COLUMNS, (size, shape.n, shape.k), dtype, seed)
    if shape.data in ("special", "nans"):
        a, b = _special(a, seed, "a", often), _special(b, seed, "b", often)
    if shape.data == "nans":
        a, b = (t.where(~t.isinf(), 1.0) for t in (a, b))
    if shape.data == "extreme":
        a, b = _extreme(a, dtype, len(ROWS), True), _extreme(b, dtype, len(COLUMNS), False)
    a, b = (stored(t, dtype).reshape(*shape.stack, *t.shape[1:]) for t in (a, b))
    groups = _coded(shape, dtype, seed) if facts.coded else {}
    b = groups.pop("b", b)
    if groups and shape.data == "extreme":
        groups["scale"][1::2].neg_()
        # some of whose weights a sum leaves the range; of one of the two, since each may meet a whole group's sum
        for first, name, other in ((2, "scale", "zero"), (5, "zero", "scale")):
            groups[name][first::6] *= 2.0 ** (FORMATS[dtype].emax - 6)
            groups[other][first::6] = 0
        # some tiny and subnormal, beside which no zero hides them; in float16 their weights are normal in float32
        tiny = (2.0**-14,) if dtype == "float16" else (2.0**-100, 2.0**-124)
        for k, by in enumerate(tiny):
            groups["scale"][3 * k :: 3 * len(tiny)] *= by
        groups["zero"][::3] = 0
    if groups and shape.data == "scales":
        groups["scale"] = _special(groups["scale"], seed, "scale", 8)
    if groups and shape.data == "zeros":  # and large ones that are no whole numbers
        groups["zero"] = _special(groups["zero"] * 32, seed, "zero", 24)
    tensors = {"a": laid_out(a, shape.layout, "a"), "b": laid_out(_by_rows(b.mT), shape.layout, "b")}
    tensors |= {name: _by_rows(t.mT) for name, t in groups.items()}
    index = torch.arange(max(shape.m, shape.n), dtype=torch.int64)
    if facts.scales:
        for name, count in (("scale_a", shape.m), ("scale_b", shape.n)):
            drawn = Draw(FORMATS["float32"], index[:count], seed, f"products {name}")
            scale = to_tensor(drawn.fmt, drawn.value(drawn.integer(-3, 1)) & (drawn.fmt.sign_bit - 1))
            if shape.data == "extreme":
                scale[1::2].neg_()
                # also of which a small sum is no normal number, and their product is one
                scale *= torch.tensor([1.0, 2.0**-20, 2.0**20, 2.0**-60])[index[:count] % 4]
            if shape.data == "scales":
                scale *= torch.tensor(SCALES)[index[:count] % len(SCALES)]
            tensors[name] = scale[:, None] if name == "scale_a" else scale[None]
    if facts.bias:
        result = FORMATS[facts.result(dtype)]
        drawn = Draw(result, index[: shape.n], seed, "products bias")
        kinds = index[: shape.n] % len(COLUMNS)  # small where sums nearly cancel, whole where they are
        bias = torch.where(kinds == COLUMNS.index("whole"), 1.0, normal(drawn))
        again = index[: shape.n] // len(COLUMNS) % 2 == 1
        bias = torch.where(kinds == COLUMNS.index("paired"), bias * torch.where(again, 2.0**-15, 2.0**-9), bias)
        bias = _special(bias, seed, "bias", 8) if shape.data == "bias" else bias
        tensors["bias"] = stored(bias, result.name)
    return Problem(tensors, dict(setting.parameters), dict(scalars), dtype, {"shape": shape, "kept": {}})


def _by_rows(t: Tensor) -> Tensor:
    """In C order with the strides of C order: `contiguous` leaves a dimension of size 1 any stride, for which
    torch._int_mm of the host reads beyond the tensor (torch 2.13, b of one row and strides (1, 1))."""
    import torch

    return torch.empty(t.shape, dtype=t.dtype).copy_(t)


def laid_out(t: Tensor, layout: str, name: str) -> Tensor:
    """The same values in another arrangement: stored by columns, every other element of a buffer, or the matrices of a
    stack row by row in turn."""
    import torch

    if layout == "interleaved":
        return t.movedim(0, 1).contiguous().movedim(1, 0)

    if layout == f"transposed-{name}":
        return t.mT.contiguous().mT
    if layout == f"expanded-{name}":
        return t[:1].expand(t.shape)
    return torch.stack([t, t], -1)[..., 0] if layout == "strided" else t


def strata(problem: Problem, output: str, *, facts: Products) -> tuple[tuple[str, ...], Tensor]:
    """`Composite.strata`: the kinds of the row and of the column that meet."""
    import torch

    shape: Shape = problem.extra["shape"]
    names = tuple(f"{row} x {column}" for row in ROWS for column in COLUMNS)
    size = max(shape.batch, 1)
    rows, columns = (torch.arange(size * count).reshape(size, count) for count in (shape.m, shape.n))
    of = rows[:, :, None] % len(ROWS) * len(COLUMNS) + columns[:, None, :] % len(COLUMNS)
    return names, of.reshape(*shape.stack, shape.m, shape.n)
