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

from verify.kernels.triton.elementwise import Device

#: Rows, columns and terms of a block.
BLOCKS = (64, 64, 64)
ACTIVATIONS = {"none": 0, "relu": 1, "silu": 2}
ACCUMULATORS = {torch.float64: tl.float64, torch.int8: tl.int32}


@Device
def product(
    a_ptr, b_ptr, c_ptr, bias_ptr, rows_ptr, columns_ptr, scale_ptr, zero_ptr, out_ptr, m, n, k, a_m, a_k, b_k, b_n,
    bias_m, bias_n, alpha, beta, START: tl.constexpr, BIAS: tl.constexpr, SCALED: tl.constexpr, GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr, IMPRECISE: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    here = batch * m * n + rows[:, None].to(tl.int64) * n + columns[None, :]
    acc = tl.load(c_ptr + here, mask=inside, other=0.0).to(ACC) if START else tl.full((M, N), 0, ACC)
    for start in range(0, k, K):
        terms = start + tl.arange(0, K)
        left = (rows[:, None] < m) & (terms[None, :] < k)
        right = (terms[:, None] < k) & (columns[None, :] < n)
        x = tl.load(a_ptr + batch * m * k + rows[:, None] * a_m + terms[None, :] * a_k, mask=left, other=0.0)
        y = tl.load(b_ptr + batch * k * n + terms[:, None] * b_k + columns[None, :] * b_n, mask=right, other=0.0)
        if GROUP:
            of = (terms[:, None] // GROUP) * n + columns[None, :]
            scale = tl.load(scale_ptr + of, mask=right, other=0.0).to(tl.float32)
            zero = tl.load(zero_ptr + of, mask=right, other=0.0).to(tl.float32)
            y = ((y.to(tl.float32) - 8) * scale + zero).to(x.dtype)
        acc = tl.dot(x, y, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=ACC)
    if SCALED:
        of_rows = tl.load(rows_ptr + rows, mask=rows < m, other=0.0)[:, None]
        of_columns = tl.load(columns_ptr + columns, mask=columns < n, other=0.0)[None, :]
        acc = acc * (of_rows * of_columns)
    if BIAS:
        place = rows[:, None] * bias_m + columns[None, :] * bias_n
        bias = tl.load(bias_ptr + place, mask=inside, other=0.0).to(ACC)
        acc = acc * alpha + bias * beta
    if ACTIVATION == 1:
        acc = tl.where(acc < 0, 0.0, acc)
    if ACTIVATION == 2:
        acc = acc / (1.0 + tl.exp(-acc))
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
    accumulator: Any = None,
    blocks: tuple[int, int, int] = BLOCKS,
    warps: int = 4,
    options: Mapping[str, Any] | None = None,
    kernel: Any = product,
) -> torch.Tensor:
    """a (..., m, k) times b (..., k, n), dense stacks of matrices. start: what the accumulator begins with; bias:
    (n,) or (m, n), added as alpha product + beta bias; scales: float32 of rows (m,) and columns (n,); groups: scale and
    zero (k / group, n) of 4-bit codes b, whose weights are rounded to a's dtype. kernel: the
    compiled or the interpreted one. float8: `imprecise` terms are summed before float32 takes them over."""
    (*batch, m, k), n = a.shape, b.shape[-1]
    found = torch.empty((*batch, m, n), dtype=out, device=a.device)
    if not found.numel():
        return found
    none = found
    wide = None if bias is None else bias.expand(m, n)
    grid = (triton.cdiv(m, blocks[0]), triton.cdiv(n, blocks[1]), max(1, found.numel() // (m * n)))
    kernel[grid](
        a, b, none if start is None else start, none if wide is None else wide,
        *((none, none) if scales is None else scales), *(groups or (none, none)), found, m, n, k,
        a.stride(-2), a.stride(-1), b.stride(-2), b.stride(-1), *((0, 0) if wide is None else wide.stride()), alpha,
        beta, START=start is not None, BIAS=bias is not None, SCALED=scales is not None,
        GROUP=k // len(groups[0]) if groups else 0, ACTIVATION=ACTIVATIONS[activation],
        ACC=accumulator or ACCUMULATORS.get(a.dtype, tl.float32), PRECISION=precision, IMPRECISE=imprecise,
        M=blocks[0], N=blocks[1], K=blocks[2], **({} if options is None else {"num_warps": warps, **options}),
    )  # fmt: skip
    return found


def interpreted() -> Callable[..., torch.Tensor]:
    """`run` under the Triton interpreter, on CPU tensors; numpy's warnings are kept quiet."""
    import numpy as np
    from triton.runtime.interpreter import InterpretedFunction

    def call(a: torch.Tensor, b: torch.Tensor, **given: Any) -> torch.Tensor:
        with np.errstate(all="ignore"):
            return run(a, b, **given, options=None, kernel=InterpretedFunction(product.fn))

    return call
