"""Planted defects of row kernels, each of one block, lane, step, rounding or constant, and correct variants.

A defect takes (x, dim, *weights, **scalars) as a user's own lowering does. Most are a change of what a correct kernel
is given: a term that is lost counts as the neutral element, so that the rest stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

Tensor = torch.Tensor
Function = Callable[..., Tensor]
INF = float("inf")


def wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def combine_exp(a: Tensor, b: Tensor) -> Tensor:
    high, low = torch.maximum(a, b), torch.minimum(a, b)
    return high + torch.log1p(torch.exp(torch.where(low == high, 0.0, low - high)))


# Correct ones: vectors of float32 (float64), rounded to the dtype once.


def total(x: Tensor, dim: int) -> Tensor:
    return wide(x).sum(dim).to(x.dtype)


def cumsum(x: Tensor, dim: int) -> Tensor:
    return blocked(wide(x), dim, torch.add, 0.0).to(x.dtype)


def cumprod(x: Tensor, dim: int) -> Tensor:
    return blocked(wide(x), dim, torch.mul, 1.0).to(x.dtype)


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return blocked(wide(x), dim, combine_exp, -INF).to(x.dtype)


def cummax(x: Tensor, dim: int) -> Tensor:
    return blocked(x, dim, torch.maximum, -INF)


def cummin(x: Tensor, dim: int) -> Tensor:
    return blocked(x, dim, torch.minimum, INF)


def softmax(x: Tensor, dim: int) -> Tensor:
    e = torch.exp(wide(x) - wide(x).amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def rms_norm(x: Tensor, dim: int, weight: Tensor, eps: float) -> Tensor:
    v = wide(x)
    return (v * (1 / torch.sqrt((v * v).mean(-1, keepdim=True) + eps)) * wide(weight)).to(x.dtype)


CORRECT: Mapping[str, Function] = {
    "sum": total, "cumsum": cumsum, "cumprod": cumprod, "logcumsumexp": logcumsumexp, "cummax": cummax,
    "cummin": cummin, "softmax": softmax, "rms_norm": rms_norm,
}  # fmt: skip
NEUTRAL = {"cumprod": 1.0, "logcumsumexp": -INF, "softmax": -INF, "cummax": -INF, "cummin": INF}
SCANS = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")


def blocked(
    x: Tensor,
    dim: int,
    combine: Callable[[Tensor, Tensor], Tensor],
    neutral: float,
    block: int = 64,
    carry: bool = True,
) -> Tensor:
    """A scan in blocks: Hillis and Steele's inside, the last value of each block carried into the next."""
    rows = x.movedim(dim, -1)
    n = rows.shape[-1]
    parts = torch.nn.functional.pad(rows, (0, -n % block), value=neutral).unflatten(-1, (-1, block))
    width = 1
    while width < block:
        moved = torch.nn.functional.pad(parts[..., :-width], (width, 0), value=neutral)
        parts = torch.where(torch.arange(block) >= width, combine(moved, parts), parts)
        width *= 2
    if carry and parts.shape[-2] > 1:
        ends = blocked(parts[..., -1], -1, combine, neutral, block)
        before = torch.nn.functional.pad(ends[..., :-1], (1, 0), value=neutral)[..., None]
        first = torch.arange(parts.shape[-2])[:, None] == 0
        parts = torch.where(first, parts, combine(before.expand_as(parts), parts))
    return parts.flatten(-2)[..., :n].movedim(-1, dim)


# Defects.


def without(kernel: str, lost: Callable[[Tensor, int], Tensor]) -> Function:
    """The terms at which lost(place, n) holds count as neutral; outputs of softmax and rms_norm there stay."""

    def run(x: Tensor, dim: int, *others: Tensor, **scalars: float) -> Tensor:
        rows = x.movedim(dim, -1)
        n = rows.shape[-1]
        mask = lost(torch.arange(n), n)
        kept = torch.where(mask, NEUTRAL.get(kernel, 0.0), rows)
        if kernel == "softmax":
            top = wide(rows).amax(-1, keepdim=True)
            e, given = torch.exp(wide(rows) - top), torch.exp(wide(kept) - top)
            return (e / given.sum(-1, keepdim=True)).to(x.dtype).movedim(-1, dim)
        if kernel == "rms_norm":
            (weight,), v = others, wide(kept)
            root = torch.sqrt((v * v).sum(-1, keepdim=True) / n + scalars["eps"])
            return (wide(rows) * (1 / root) * wide(weight)).to(x.dtype)
        return CORRECT[kernel](kept.movedim(-1, dim), dim)

    return run


def given(kernel: str, change: Callable[[Tensor], Tensor]) -> Function:
    return lambda x, dim, *others, **scalars: CORRECT[kernel](change(x), dim, *others, **scalars)


def giving(kernel: str, change: Callable[[Tensor], Tensor]) -> Function:
    return lambda x, dim, *others, **scalars: change(CORRECT[kernel](x, dim, *others, **scalars))


def short(bits: int) -> Callable[[Tensor], Tensor]:
    """The leading bits of each number, toward zero."""
    return lambda x: (x.view(torch.int32) & (-1 << 24 - bits)).view(torch.float32) if x.dtype == torch.float32 else x


def narrow_sum(x: Tensor, dim: int, accumulator: torch.dtype) -> Tensor:
    """Blocks of 64 in float32, their sums kept in a narrower accumulator."""
    rows = wide(x).movedim(dim, -1)
    parts = torch.nn.functional.pad(rows, (0, -rows.shape[-1] % 64)).unflatten(-1, (-1, 64)).sum(-1).to(accumulator)
    while parts.shape[-1] > 1:
        parts = torch.nn.functional.pad(parts, (0, parts.shape[-1] % 2))
        parts = parts[..., ::2] + parts[..., 1::2]
    return parts[..., 0].to(x.dtype)


def rounding(kernel: str, accumulator: torch.dtype) -> Function:
    """Scans that keep each partial result in a narrower format."""
    combine, neutral = {
        "cumsum": (torch.add, 0.0), "cumprod": (torch.mul, 1.0), "logcumsumexp": (combine_exp, -INF),
    }[kernel]  # fmt: skip

    def run(x: Tensor, dim: int) -> Tensor:
        found = blocked(wide(x), dim, lambda a, b: combine(a, b).to(accumulator).to(a.dtype), neutral)
        return found.to(x.dtype)

    return run


LOST: dict[str, Callable[[Tensor, int], Tensor]] = {
    "a block": lambda j, n: (j >= n // 2) & (j < n // 2 + max(1, n // 8)),
    "the first block": lambda j, n: j < max(1, n // 16),
    "the tail": lambda j, n: j >= n // 8 * 8,
    "the last term": lambda j, n: j == n - 1,
    "the first term": lambda j, n: j == 0,
    "a term in the middle": lambda j, n: j == n // 3,
    "a lane of 32": lambda j, n: j % 32 == 7,
    "a lane of 8 in the last block": lambda j, n: (j % 8 == 3) & (j >= n - 64),
    "a warp of each block": lambda j, n: (j % 256 >= 32) & (j % 256 < 64),
    "every second block": lambda j, n: j // 64 % 2 == 1,
    "all but the first block": lambda j, n: j >= 64,
}


#: Defects of half types alone.
OF_HALVES = ("terms of the sum in the dtype",)


def defects(kernel: str) -> dict[str, Function]:
    """Defects of a kernel, by what is wrong."""
    found = {f"{what} lost": without(kernel, lost) for what, lost in LOST.items()}
    if kernel in ("cummax", "cummin"):
        found |= {
            "values of 11 bits": given(kernel, lambda x: short(11)(x) if x.dtype == torch.float32 else x.roll(1, 0)),
            "starts from 0": giving(kernel, lambda y: y.clamp(min=0.0) if kernel == "cummax" else y.clamp(max=0.0)),
        }
    else:
        found |= {
            "terms of 11 bits": given(kernel, short(11)),
            # two ULP are within softmax's bound
            "result too short": giving(kernel, short(20 if kernel == "softmax" else 23)),
            "a thousandth too large": giving(kernel, lambda y: (y.double() * 1.01).to(y.dtype)),
        }
    if kernel in SCANS:
        combine, neutral = {
            "cumsum": (torch.add, 0.0), "cumprod": (torch.mul, 1.0), "logcumsumexp": (combine_exp, -INF),
            "cummax": (torch.maximum, -INF), "cummin": (torch.minimum, INF),
        }[kernel]  # fmt: skip

        def no_carry(x: Tensor, dim: int) -> Tensor:
            return blocked(wide(x), dim, combine, neutral, carry=False).to(x.dtype)

        def exclusive(x: Tensor, dim: int) -> Tensor:
            y = CORRECT[kernel](x, dim).movedim(dim, -1)
            return torch.nn.functional.pad(y[..., :-1], (1, 0), value=neutral).movedim(-1, dim)

        found |= {
            "no carry": no_carry,
            "exclusive": exclusive,
            "from the right": lambda x, dim: CORRECT[kernel](x.flip(dim), dim).flip(dim),
        }
        if kernel in ("cumsum", "cumprod", "logcumsumexp"):
            found["bfloat16 accumulator"] = rounding(kernel, torch.bfloat16)
            found["float16 accumulator"] = rounding(kernel, torch.float16)
    if kernel == "sum":
        found |= {
            "returns 0": lambda x, dim: torch.zeros_like(total(x, dim)),
            "bfloat16 accumulator": lambda x, dim: narrow_sum(x, dim, torch.bfloat16),
            "float16 accumulator": lambda x, dim: narrow_sum(x, dim, torch.float16),
            "the last term twice": lambda x, dim: (wide(total(x, dim)) + wide(x.select(dim, -1))).to(x.dtype),
        }
    if kernel == "softmax":

        def of(change: Callable[[Tensor], Tensor], top: Callable[[Tensor], Tensor]) -> Function:
            def run(x: Tensor, dim: int) -> Tensor:
                v = wide(x)
                e = change(torch.exp(v - top(v.amax(dim, keepdim=True))))
                return (e / e.sum(dim, keepdim=True)).to(x.dtype)

            return run

        def terms_in_half(x: Tensor, dim: int) -> Tensor:
            v = wide(x)
            e = torch.exp(v - v.amax(dim, keepdim=True))
            return (e / e.to(x.dtype).to(e.dtype).sum(dim, keepdim=True)).to(x.dtype)

        found |= {
            "terms of the sum in the dtype": terms_in_half,
            "no maximum": of(lambda e: e, torch.zeros_like),
            "exponentials of 11 bits": of(short(11), lambda m: m),
            "exponentials in bfloat16": of(lambda e: e.bfloat16().to(e.dtype), lambda m: m),
            "exp off by 2^-9": of(lambda e: torch.where(e == 1, e, e * (1 + 2.0**-9)), lambda m: m),
            "the maximum's own term left out": lambda x, dim: (
                softmax(x, dim).double() / (1 - softmax(x, dim).double().amax(dim, keepdim=True) / 2)
            ).to(x.dtype),
        }
    if kernel == "rms_norm":

        def norm(
            scale: Callable[[Tensor, int, float], Tensor],
            weighted: bool = True,
            square: Callable[[Tensor], Tensor] = lambda v: v,
        ) -> Function:
            def run(x: Tensor, dim: int, weight: Tensor, eps: float) -> Tensor:
                v = wide(x)
                root = scale(square(v * v).sum(-1, keepdim=True), v.shape[-1], eps)
                return (v * (1 / root) * (wide(weight) if weighted else 1.0)).to(x.dtype)

            return run

        def unrooted(x: Tensor, dim: int, weight: Tensor, eps: float) -> Tensor:
            v = wide(x)
            root = torch.sqrt((v * v).mean(-1, keepdim=True) + eps)
            lost = root.isinf() & v.isfinite().all(-1, keepdim=True)
            return (v * (1 / torch.where(lost, 1.0, root)) * wide(weight)).to(x.dtype)

        found |= {
            "no eps": norm(lambda s, n, eps: torch.sqrt(s / n)),
            "eps outside the root": norm(lambda s, n, eps: torch.sqrt(s / n) + eps),
            "mean over n - 1": norm(lambda s, n, eps: torch.sqrt(s / max(n - 1, 1) + eps)),
            "eps twice": norm(lambda s, n, eps: torch.sqrt(s / n + 2 * eps)),
            "no root where squares of finite numbers overflow": unrooted,
            "no weight": norm(lambda s, n, eps: torch.sqrt(s / n + eps), weighted=False),
            "squares in bfloat16": norm(
                lambda s, n, eps: torch.sqrt(s / n + eps), square=lambda v: v.bfloat16().float()
            ),
            "the root in bfloat16": norm(lambda s, n, eps: torch.sqrt(s / n + eps).bfloat16().to(s.dtype)),
        }
    return found


# Correct variants: other orders, wider accumulators, other formulas.


def one_after_another(x: Tensor, dim: int) -> Tensor:
    """A sum in float32 (float64), from left to right."""
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.add.accumulate(wide(x).numpy(), dim)
    return torch.from_numpy(found).select(dim, -1).to(x.dtype)


def in_pairs(x: Tensor, dim: int) -> Tensor:
    """A sum by halves: the first half's numbers meet the second's."""
    v = wide(x).movedim(dim, -1)
    while v.shape[-1] > 1:
        v = torch.nn.functional.pad(v, (0, v.shape[-1] % 2))
        v = v[..., : v.shape[-1] // 2] + v[..., v.shape[-1] // 2 :]
    return (v[..., 0] + 0).to(x.dtype)  # memory of its own, also of one number


def in_double(function: Callable[[Tensor, int], Tensor]) -> Function:
    return lambda x, dim: function(x.double(), dim).to(x.dtype)


def softmax_by_logarithm(x: Tensor, dim: int) -> Tensor:
    """exp(x - max - log(sum(exp(x - max)))), in float64."""
    v = x.double()
    v = v - v.amax(dim, keepdim=True)
    return torch.exp(v - torch.log(torch.exp(v).sum(dim, keepdim=True))).to(x.dtype)


def rms_norm_by_division(x: Tensor, dim: int, weight: Tensor, eps: float) -> Tensor:
    """Divided by the root, weighted last, the sum in float64."""
    v = wide(x)
    root = torch.sqrt((v.double() ** 2).sum(-1, keepdim=True) / v.shape[-1] + eps)
    return (v.double() / root * weight.double()).to(x.dtype)


def variants() -> list[tuple[str, str, Function, tuple[str, ...], str, str]]:
    """(kernel, what it is, function, dtypes, order declared, its worst status) of correct ones."""
    both = ("float32", "bfloat16")
    blocks = [(name, "in blocks", function, both, "", "passed") for name, function in CORRECT.items()]
    return [
        *blocks,
        ("sum", "one after another", one_after_another, ("float32",), "", "suspect"),
        ("sum", "one after another, declared", one_after_another, both, "sequential:float32", "passed"),
        ("sum", "in pairs, a tree declared", in_pairs, both, "tree:float32", "passed"),
        ("sum", "in float64", in_double(torch.sum), both, "", "passed"),
        ("cumsum", "in float64", in_double(torch.cumsum), both, "", "passed"),
        ("cumprod", "in float64", in_double(torch.cumprod), ("bfloat16",), "", "passed"),
        ("logcumsumexp", "in float64", in_double(torch.logcumsumexp), both, "", "passed"),
        ("softmax", "by the logarithm of its denominator", softmax_by_logarithm, both, "", "passed"),
        ("rms_norm", "divided, in float64", rms_norm_by_division, both, "", "passed"),
    ]  # fmt: skip


def lowering(function: Function) -> Any:
    """The function as a lowering of one's own."""
    from verify.lower.lowering import Lowering

    def run(problem: Any) -> dict[str, Tensor]:
        x, *others = problem.tensors.values()
        return {"": function(x, problem.parameters["dim"], *others, **problem.scalars)}

    return Lowering("mutants.py:planted", lambda target: run, lambda target: None)
