"""Matrix products with `tl.dot` in each of its input precisions, one accumulator in float32 (float64, int32) for each
output, and what is done to it before it is stored.

Only Triton's builtins are called, so that one process can compile and interpret the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from verify.kernels.triton.div import div
from verify.kernels.triton.elementwise import Device
from verify.kernels.triton.exp import exp

#: Rows, columns and terms of a block.
BLOCKS = (64, 64, 64)
#: The least that every matrix unit takes, of numbers of 8 bits too.
LEAST = (16, 16, 32)
ACTIVATIONS = {"none": 0, "relu": 1, "silu": 2}
ACCUMULATORS = {torch.float64: torch.float64, torch.int8: torch.int32}


@Device
def product(
    a_ptr, b_ptr, c_ptr, bias_ptr, rows_ptr, columns_ptr, scale_ptr, zero_ptr, out_ptr, m, n, k, a_m, a_k, b_k, b_n,
    a_batch, b_batch, bias_m, bias_n, length, ALPHA: tl.constexpr, BETA: tl.constexpr, SPLIT: tl.constexpr,
    START: tl.constexpr, BIAS: tl.constexpr, SCALED: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
    ACC: tl.constexpr, PRECISION: tl.constexpr, IMPRECISE: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    K: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(2).to(tl.int64)
    first, last = 0, k
    if SPLIT > 1:
        first = tl.program_id(2) % SPLIT * length
        last = tl.minimum(k, first + length)
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    here = batch * m * n + rows[:, None].to(tl.int64) * n + columns[None, :]
    acc = tl.full((M, N), 0, ACC)
    if START:
        before = c_ptr + here + batch * (START - 1) * m * n
        acc = tl.load(before, mask=inside, other=0.0).to(ACC)
        for part in range(1, START):
            acc = acc + tl.load(before + part * m * n, mask=inside, other=0.0).to(ACC)
    for start in range(first, last, K):
        terms = start + tl.arange(0, K)
        left = (rows[:, None] < m) & (terms[None, :] < last)
        right = (terms[:, None] < last) & (columns[None, :] < n)
        of_x = batch // SPLIT * a_batch + rows[:, None] * a_m + terms[None, :] * a_k
        of_y = batch // SPLIT * b_batch + terms[:, None] * b_k + columns[None, :] * b_n
        x = tl.load(a_ptr + of_x, mask=left, other=0.0)
        y = tl.load(b_ptr + of_y, mask=right, other=0.0)
        if GROUP:
            of = (terms[:, None] // GROUP) * n + columns[None, :]
            scale = tl.load(scale_ptr + of, mask=right, other=0.0).to(tl.float32)
            zero = tl.load(zero_ptr + of, mask=right, other=0.0).to(tl.float32)
            y = ((y.to(tl.float32) - 8) * scale + zero).to(x.dtype)
        acc = tl.dot(x, y, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=ACC)
    if ACC == tl.float16:
        acc = acc.to(tl.float32)
    if SCALED:
        of_rows = tl.load(rows_ptr + rows, mask=rows < m, other=0.0)[:, None]
        of_columns = tl.load(columns_ptr + columns, mask=columns < n, other=0.0)[None, :]
        acc = acc * (of_rows * of_columns)
    if BIAS:
        place = rows[:, None] * bias_m + columns[None, :] * bias_n
        bias = tl.load(bias_ptr + place, mask=inside, other=0.0).to(acc.dtype)
        acc = acc * ALPHA + bias * BETA  # as arguments they would be float32
    if ACTIVATION == 1:
        acc = tl.where(acc < 0, 0.0, acc)
    if ACTIVATION == 2:
        acc = div(acc, 1.0 + exp(-acc))
    tl.store(out_ptr + here, acc.to(out_ptr.dtype.element_ty), mask=inside)


def run(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.dtype,
    start: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    scales: tuple[torch.Tensor, torch.Tensor] | None = None,
    groups: tuple[torch.Tensor, torch.Tensor] | None = None,
    activation: str = "none",
    precision: str = "ieee",
    imprecise: int | None = None,
    accumulator: torch.dtype | None = None,
    parts: int = 1,
    blocks: tuple[int, int, int] = BLOCKS,
    warps: int = 4,
    options: Mapping[str, Any] | None = None,
    kernel: Any = product,
) -> torch.Tensor:
    """a ([batch,] m, k) times b ([batch,] k, n). start: what the accumulator begins with, or stacks of matrices that
    are added in their order first; bias: (n,) or (m, n), added as alpha product + beta bias; scales: float32 of rows
    (m,) and columns (n,); groups: scale and zero (k / group, n) of codes b, whose weights are rounded to a's dtype.
    parts: k is cut into so many pieces of whole blocks, each summed by itself; another launch adds them in their order.
    float8: `imprecise` terms are summed before float32 takes them over. kernel: the compiled or the interpreted one."""
    (*batch, m, k), n = a.shape, b.shape[-1]
    found = torch.empty((*batch, m, n), dtype=out, device=a.device)
    if not found.numel():
        return found
    acc = accumulator or ACCUMULATORS.get(a.dtype, torch.float32)
    wide = None if bias is None else bias.expand(m, n)
    group = k // len(groups[0]) if groups else 0
    length = max(1, triton.cdiv(triton.cdiv(k, parts), blocks[2])) * blocks[2]

    def launch(y: torch.Tensor, k: int, split: int, start: torch.Tensor | None, whole: bool) -> torch.Tensor:
        kernel[triton.cdiv(m, blocks[0]), triton.cdiv(n, blocks[1]), max(1, y.numel() // (m * n))](
            a, b, y if start is None else start, y if wide is None else wide, *((y, y) if scales is None else scales),
            *(groups or (y, y)), y, m, n, k, a.stride(-2), a.stride(-1), b.stride(-2), b.stride(-1),
            *(a.stride(0), b.stride(0)) if batch else (0, 0), *((0, 0) if wide is None else wide.stride()),
            length, ALPHA=alpha, BETA=beta, SPLIT=split, START=0 if start is None else start.numel() // y.numel(),
            BIAS=whole and bias is not None, SCALED=whole and scales is not None, GROUP=group,
            ACTIVATION=ACTIVATIONS[activation] if whole else 0, ACC=getattr(tl, str(acc).removeprefix("torch.")),
            PRECISION=precision, IMPRECISE=imprecise, M=blocks[0], N=blocks[1], K=blocks[2],
            **({} if options is None else {"num_warps": warps, **options}),
        )  # fmt: skip
        return y

    if (split := triton.cdiv(k, length)) > 1:
        sums = torch.empty((*batch, split, m, n), dtype=acc, device=a.device)
        return launch(found, 0, 1, launch(sums, k, split, None, False), True)
    return launch(found, k, 1, start, True)


def interpreted() -> Callable[..., torch.Tensor]:
    """`run` under the Triton interpreter, on CPU tensors; numpy's warnings are kept quiet."""
    import numpy as np
    from triton.runtime.interpreter import InterpretedFunction

    def call(a: torch.Tensor, b: torch.Tensor, **given: Any) -> torch.Tensor:
        with np.errstate(all="ignore"):
            return run(a, b, **given, options=None, kernel=InterpretedFunction(product.fn))

    return call
