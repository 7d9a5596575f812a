"""Sums, softmax and scans of rows, accumulated in float32 (float64 for float64) and rounded to the dtype once.

Scans go through a row in blocks: `tl.associative_scan` inside, each block combined with the last value before it. Sums
keep one accumulator a column of the block and reduce these at the end. Combinations of logcumsumexp are
max + log1p(exp(min - max)) with exp of `exp.py` and, for float32, log1p(e) = log(w) + c/w, w = 1 + e rounded and
c = e - (w - 1) exact: log within 0.6 ULP (`log.py`), the correction's quotient and (c/w)^2/2 below 1/2 ULP together,
the sum 1/2: below 2 ULP. The compilers must contract nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from verify.kernels._orders import BLOCK
from verify.kernels.triton.arithmetic import divide
from verify.kernels.triton.elementwise import COMPUTE, Device
from verify.kernels.triton.exp import exp
from verify.kernels.triton.log import log_single

#: Elements that a program holds: short rows share one.
HELD = 2048
WARPS = 4
#: Rows that the interpreter, which runs a program as numpy calls on whole blocks, holds at a time.
INTERPRETED_ROWS = 4096


@Device
def larger(a, b):
    """The larger one, or a NaN."""
    return tl.where((a > b) | (a != a), a, b)


@Device
def smaller(a, b):
    return tl.where((a < b) | (a != a), a, b)


@Device
def log1p(e):
    """log(1 + e) for e in [0, 1]."""
    if e.dtype == tl.float64:
        result = libdevice.log1p(e)
    else:
        w = 1.0 + e
        c = e - (w - 1.0)
        result = log_single(w) + divide(c, w)
    return result


@Device
def log_add_exp(a, b):
    high, low = larger(a, b), smaller(a, b)
    d = tl.where(low == high, 0.0, low - high)
    return high + log1p(exp(d))


@partial(Device, noinline=True)
def log_add_exp_apart(a, b):
    """`log_add_exp` of two numbers, called: put in, it is 155 times in the scan of a block of 1,024, which takes five
    times as long to compile."""
    return log_add_exp(a, b)


@Device
def combined(a, b, NAME: tl.constexpr):
    if NAME == "cumsum":
        result = a + b
    elif NAME == "cumprod":
        result = a * b
    elif NAME == "logcumsumexp":
        result = log_add_exp(a, b)
    elif NAME == "cummax":
        result = larger(a, b)
    else:
        result = smaller(a, b)
    return result


@Device
def scanned(x, NAME: tl.constexpr):
    """Prefixes along axis 1. Sums and products under the names that the interpreter knows, and scans as numpy does."""
    if NAME == "cumsum":
        result = tl.associative_scan(x, 1, tl.standard._sum_combine)
    elif NAME == "cumprod":
        result = tl.associative_scan(x, 1, tl.standard._prod_combine)
    elif NAME == "logcumsumexp":
        result = tl.associative_scan(x, 1, log_add_exp_apart)
    elif NAME == "cummax":
        result = tl.associative_scan(x, 1, larger)
    else:
        result = tl.associative_scan(x, 1, smaller)
    return result


@Device
def scan_rows(
    x_ptr,
    out_ptr,
    rows,
    n,
    NAME: tl.constexpr,
    START: tl.constexpr,
    COMPUTE: tl.constexpr,
    WORD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    carry = tl.full((ROWS, 1), START, COMPUTE)
    for begin in range(0, n, BLOCK):
        inside = (row < rows) & (begin + columns < n)
        x = tl.load(x_ptr + row * n + begin + columns, mask=inside, other=START).to(COMPUTE)
        y = scanned(x, NAME)
        if begin > 0:
            y = combined(carry, y, NAME)
        # The last value's bits, exactly: adding zeros would lose the sign of -0.
        bits = tl.where(columns == BLOCK - 1, y.to(WORD, bitcast=True), 0)
        carry = tl.reduce(bits, 1, tl.standard._sum_combine, keep_dims=True).to(COMPUTE, bitcast=True)
        tl.store(out_ptr + row * n + begin + columns, y.to(out_ptr.dtype.element_ty), mask=inside)


@Device
def sum_rows(x_ptr, out_ptr, rows, n, COMPUTE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    total = tl.full((ROWS, BLOCK), 0.0, COMPUTE)
    for begin in range(0, n, BLOCK):
        inside = (row < rows) & (begin + columns < n)
        total += tl.load(x_ptr + row * n + begin + columns, mask=inside, other=0.0).to(COMPUTE)
    result = tl.reduce(total, 1, tl.standard._sum_combine, keep_dims=True)
    tl.store(out_ptr + row, result.to(out_ptr.dtype.element_ty), mask=row < rows)


@Device
def softmax_rows(x_ptr, out_ptr, rows, n, COMPUTE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    top = tl.full((ROWS, BLOCK), float("-inf"), COMPUTE)
    for begin in range(0, n, BLOCK):
        inside = (row < rows) & (begin + columns < n)
        top = larger(top, tl.load(x_ptr + row * n + begin + columns, mask=inside, other=float("-inf")).to(COMPUTE))
    # It may pass over a NaN, which then reaches every element through the sum.
    most = tl.reduce(top, 1, tl.standard._elementwise_max, keep_dims=True)
    total = tl.full((ROWS, BLOCK), 0.0, COMPUTE)
    for begin in range(0, n, BLOCK):
        inside = (row < rows) & (begin + columns < n)
        x = tl.load(x_ptr + row * n + begin + columns, mask=inside, other=float("-inf")).to(COMPUTE)
        total += tl.where(inside, exp(x - most), 0.0)
    whole = tl.reduce(total, 1, tl.standard._sum_combine, keep_dims=True)
    for begin in range(0, n, BLOCK):
        inside = (row < rows) & (begin + columns < n)
        x = tl.load(x_ptr + row * n + begin + columns, mask=inside, other=0.0).to(COMPUTE)
        result = divide(exp(x - most), tl.broadcast_to(whole, (ROWS, BLOCK)))
        tl.store(out_ptr + row * n + begin + columns, result.to(out_ptr.dtype.element_ty), mask=inside)


#: Neutral elements.
SCANS: Mapping[str, float] = {
    "cumsum": 0.0,
    "cumprod": 1.0,
    "logcumsumexp": float("-inf"),
    "cummax": float("-inf"),
    "cummin": float("inf"),
}
REDUCTIONS: Mapping[str, Any] = {"sum": sum_rows, "softmax": softmax_rows}


def not_interpreted(name: str, dtype: str) -> str | None:
    """Why the interpreter cannot run a kernel."""
    if dtype == "float64" and name in ("softmax", "logcumsumexp"):
        return "exp and log1p in float64 are libdevice's, which the interpreter cannot call"
    return None


def block_of(name: str, n: int, interpreted: bool) -> int:
    """Columns of a block. The interpreter scans element by element unless it knows the combination: there a block is
    one column, so that the rows, which it treats at once, are combined from left to right."""
    if interpreted and name in ("logcumsumexp", "cummax", "cummin"):
        return 1
    return min(BLOCK, triton.next_power_of_2(max(n, 1)))  # type: ignore[no-any-return]


def held_rows(rows: int, block: int, interpreted: bool, held: int = HELD) -> int:
    """Rows that a program holds, of `held` elements together."""
    found = triton.next_power_of_2(max(rows, 1)) if interpreted else held // block
    return max(1, min(found, INTERPRETED_ROWS))


def constants(name: str, dtype: torch.dtype, rows: int, block: int) -> tuple[Any, dict[str, Any]]:
    """The kernel's loop and its compile-time constants, for blocks of `rows` by `block` elements."""
    found: dict[str, Any] = {"COMPUTE": COMPUTE[dtype], "ROWS": rows, "BLOCK": block}
    if name in REDUCTIONS:
        return REDUCTIONS[name], found
    word = tl.int64 if dtype == torch.float64 else tl.int32
    return scan_rows, found | {"NAME": name, "START": SCANS[name], "WORD": word}


def run(
    name: str, x: torch.Tensor, *, dim: int, options: Mapping[str, Any], interpreted: bool, held: int = HELD
) -> torch.Tensor:  # fmt: skip
    """torch's function `name` along `dim`. options: Triton's, for compiled kernels. held: elements of a program."""
    moved = x.movedim(dim, -1)
    rows, n = moved.numel() // max(moved.shape[-1], 1), moved.shape[-1]
    source = moved.contiguous()
    out = source.new_zeros(moved.shape[:-1] if name == "sum" else moved.shape)
    block = min(block_of(name, n, interpreted), held)
    together = held_rows(rows, block, interpreted, held)
    if source.numel():
        loop, constant = constants(name, x.dtype, together, block)
        grid = (triton.cdiv(rows, together),)
        if interpreted:
            interpret(loop, grid, (source, out, rows, n), constant)
        else:
            loop[grid](source, out, rows, n, num_warps=WARPS, **constant, **options)
    return out if name == "sum" else out.movedim(-1, dim)


def interpret(loop: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], constant: Mapping[str, Any]) -> None:
    """Under the interpreter, without numpy's warnings of infinities and NaNs."""
    import numpy as np
    from triton.runtime.interpreter import InterpretedFunction

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        InterpretedFunction(loop.fn)[grid](*arguments, **constant)
