"""rms_norm of rows: squares in BLOCK running sums of float32 (float64 for float64), 1 / sqrt of their mean plus eps,
each operation rounded correctly, and the products with it and the weight. The result is rounded to the dtype once. The
compilers must contract nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from verify.kernels._orders import BLOCK
from verify.kernels.triton.arithmetic import divide, square_root
from verify.kernels.triton.elementwise import COMPUTE, Device
from verify.kernels.triton.scans import HELD, WARPS, held_rows, interpret


@Device
def norm_rows(
    x_ptr, weight_ptr, out_ptr, rows, n,
    EPS: tl.constexpr, COMPUTE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    total = tl.full((ROWS, BLOCK), 0.0, COMPUTE)
    for begin in range(0, n, BLOCK):
        inside = (row < rows) & (begin + columns < n)
        x = tl.load(x_ptr + row * n + begin + columns, mask=inside, other=0.0).to(COMPUTE)
        total += x * x
    whole = tl.reduce(total, 1, tl.standard._sum_combine, keep_dims=True)
    mean = divide(whole, tl.full((ROWS, 1), 0.0, COMPUTE) + n)
    inverse = divide(tl.full((ROWS, 1), 1.0, COMPUTE), square_root(mean + tl.full((ROWS, 1), EPS, COMPUTE)))
    for begin in range(0, n, BLOCK):
        inside = (row < rows) & (begin + columns < n)
        x = tl.load(x_ptr + row * n + begin + columns, mask=inside, other=0.0).to(COMPUTE)
        w = tl.load(weight_ptr + begin + columns, mask=begin + columns < n, other=0.0).to(COMPUTE)
        tl.store(out_ptr + row * n + begin + columns, (x * inverse * w).to(out_ptr.dtype.element_ty), mask=inside)


def not_interpreted(name: str, dtype: str) -> str | None:
    """Why the interpreter cannot run it."""
    return None


def block_of(name: str, n: int, interpreted: bool) -> int:
    """Elements of a row that a program holds."""
    return min(BLOCK, triton.next_power_of_2(max(n, 1)))  # type: ignore[no-any-return]


def run(
    name: str, x: torch.Tensor, weight: torch.Tensor, *, dim: int, options: Mapping[str, Any], interpreted: bool,
    eps: float, held: int = HELD,
) -> torch.Tensor:  # fmt: skip
    """rms_norm along the last dimension. options: Triton's, for compiled kernels. held: elements of a program."""
    source, out = x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.shape[-1]
    if x.numel():
        rows, block = x.numel() // n, min(block_of(name, n, interpreted), held)
        together = held_rows(rows, block, interpreted, held)
        arguments = (source, weight.contiguous(), out, rows, n)
        constant = {"EPS": eps, "COMPUTE": COMPUTE[x.dtype], "ROWS": together, "BLOCK": block}
        grid = (triton.cdiv(rows, together),)
        if interpreted:
            interpret(norm_rows, grid, arguments, constant)
        else:
            norm_rows[grid](*arguments, num_warps=WARPS, **constant, **options)
    return out
