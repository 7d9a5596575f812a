"""Named formulas of sums, scans and softmax: the orders, trees and accumulators of known code, as tensors.

Every operation is one addition, multiplication or division of float32 or float64 tensors of torch, which round
correctly (`verify.numbers.admit`), or one of `verify.numbers.ieee`. exp and log1p of a formula are those of a named
library.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from verify.facts.formats import FORMATS, Format
from verify.families.composite import Problem
from verify.families.rows_truth import rows_of
from verify.kernels._orders import inner_threads
from verify.numbers.ieee import BLOCK, IeeeSystem, Rounded
from verify.numbers.orders import Order, reduce, scan
from verify.numbers.transforms import power_of_two, round_to

Tensor = torch.Tensor
Combine = Callable[[Tensor, Tensor], Tensor]
#: The most elements for which formulas that go through a row element by element in Python are evaluated.
SLOW = 1 << 17
#: Steps of such a loop.
STEPS = 1 << 14
IN_TURN = Order("sequential", FORMATS["float32"])  # whatever the terms' format


def formulas(name: str, problem: Problem, backend: Any, output: str = "") -> dict[str, Callable[[], Tensor]]:
    """The candidates for an operation on a problem, by text; each gives the whole output. Long problems have few."""
    x, dim = problem.tensors["x"], problem.parameters["dim"]
    rows = rows_of(x, dim).cpu()
    if not rows.numel() or name in ("cummax", "cummin"):
        return {}
    moved = x.movedim(dim, -1)
    short = rows.numel() <= SLOW and rows.shape[1] <= STEPS
    found: dict[str, Callable[[], Tensor]] = {}
    storage = FORMATS[problem.dtype]

    def add(text: str, make: Callable[[], Tensor]) -> None:
        def placed() -> Tensor:
            y = _rounded(make(), storage).to(x.device)
            if name == "sum":
                return y.reshape(moved.shape[:-1])
            return y.reshape(moved.shape).movedim(-1, dim)

        found[text] = placed

    formats = ("float64",) if storage.name == "float64" else ("float32", "float64")
    for accumulator in formats:
        given = rows.to(getattr(torch, accumulator))
        once = "" if accumulator == storage.name else f", each rounded to {storage.name} once"
        if name in ("cumsum", "cumprod"):
            operation = np.add if name == "cumsum" else np.multiply
            add(f"left to right in {accumulator}{once}", _accumulated(operation, given))
        if name == "logcumsumexp" and short:
            text = f"max + log1p(exp(min - max)) from left to right in {accumulator}, the C library's{once}"
            add(text, partial(_log_add_exps, given))
    compute = formats[0]
    given = rows.to(getattr(torch, compute))
    combinations: dict[str, tuple[Combine, float]] = {
        "cumsum": (torch.add, 0.0), "cumprod": (torch.mul, 1.0), "logcumsumexp": (_log_add_exp, -torch.inf),
    }  # fmt: skip
    if name in combinations and short and rows.shape[0] > 1:
        combine, start = combinations[name]
        each, step = _rounding(combine, storage), f"each step in {storage.name}"
        if name == "logcumsumexp":
            given = given.to(backend.check_device)  # exp and log1p are the device's
            step += ": max + log1p(exp(min - max)) by torch's functions"
        block = 2 * inner_threads(rows.shape[0], rows.shape[1])
        add(f"Sklansky's scan in blocks of {block}, {step}", partial(_sklansky, given, each, block, start))
        if storage.bits == 16 or name == "logcumsumexp":
            add(f"left to right, {step}", partial(scan, IN_TURN, each, given))
    if name == "sum" and short:
        add(f"left to right in {compute}", partial(_left_to_right, given))
        add(f"by halves in {compute}", partial(_halves, given))
        for lanes in (4, 8, 16):
            add(
                f"cascade of 4 x {lanes} lanes in {compute} (SumKernel.cpp, inner)",
                partial(_cascade_inner, given, lanes),
            )
            add(f"{lanes} lanes in {compute}, then by halves", partial(_lanes, given, lanes))
        add(f"cascade of 4 lanes in {compute} (SumKernel.cpp, row_sum)", partial(_row_sum, given[..., None]))
        add(f"cascade in {compute} (SumKernel.cpp, multi_row_sum)", partial(_multi_row_sum, given[..., None]))
    if name == "softmax" and short and compute == "float32":

        @functools.cache
        def e() -> Tensor:
            return sleef_expf(given - given.amax(-1, keepdim=True))

        orders: dict[str, Callable[[Tensor], Tensor]] = {
            "left to right": _left_to_right,
            **{f"{lanes} lanes, then by halves": partial(_lanes, lanes=lanes) for lanes in (8, 16)},
        }
        for order, total in orders.items():
            add(f"e = SLEEF's expf(x - max); s {order}; e / s", _quotient(e, total, False))
            add(f"e = SLEEF's expf(x - max); s {order}; e (1 / s)", _quotient(e, total, True))
        if storage.bits == 16:
            text = f"e = SLEEF's expf(x - max); s left to right; h = e rounded to {storage.name}; h / s"
            add(text, lambda: round_to(e().double(), storage).float() / _left_to_right(e())[..., None])
    return found


def _rounded(y: Tensor, fmt: Format) -> Tensor:
    """RN to the storage dtype, by integers where it is a half type."""
    return round_to(y.double(), fmt).to(getattr(torch, fmt.name))


def _rounding(combine: Combine, fmt: Format) -> Combine:
    """A float32 operation on values of `fmt`, rounded to it (innocuously: Figueroa 1995)."""
    if fmt.bits > 16:
        return combine
    return lambda a, b: round_to(combine(a, b).double(), fmt).to(a.dtype)


# Orders


def _accumulated(operation: Any, x: Tensor) -> Callable[[], Tensor]:
    """numpy's accumulate, which is from left to right by definition: r_i = r_{i-1} op x_i."""

    def run() -> Tensor:
        with np.errstate(all="ignore"):
            return torch.from_numpy(operation.accumulate(x.numpy(), axis=-1))

    return run


def _left_to_right(x: Tensor) -> Tensor:
    return reduce(IN_TURN, torch.add, x)[..., 0]


def _halves(x: Tensor) -> Tensor:
    """The first half of the terms plus the second, an odd one left for the next round."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = torch.cat([x[..., :half] + x[..., half : 2 * half], x[..., 2 * half :]], -1)
    return x[..., 0]


def _lanes(x: Tensor, lanes: int) -> Tensor:
    """A vector of accumulators, the last one partly fed, and their sum by halves (Inductor's C++ on full vectors)."""
    return _halves(_left_to_right(_in_blocks(x, lanes, 0.0).mT))


def _in_blocks(x: Tensor, block: int, fill: float) -> Tensor:
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % block), value=fill)
    return padded.reshape(*x.shape[:-1], -1, block)


def _sklansky(x: Tensor, combine: Combine, block: int, start: float) -> Tensor:
    """tensor_kernel_scan_innermost_dim of ATen's ScanUtils.cuh: the total so far enters a block's first element."""
    n = x.shape[-1]
    blocks = _in_blocks(x, block, start)
    total = torch.full_like(x[..., 0], start)
    found = []
    for k in range(blocks.shape[-2]):
        row = blocks[..., k, :].clone()
        row[..., 0] = combine(row[..., 0], total)
        width = 1
        while width < block:
            pairs = row.reshape(*row.shape[:-1], -1, 2, width)
            last = pairs[..., 0, -1:]
            row = torch.stack([pairs[..., 0, :], combine(pairs[..., 1, :], last)], -2).flatten(-3)
            width *= 2
        total = row[..., -1]
        found.append(row)
    return torch.cat(found, -1)[..., :n]


# ATen's cascade_sum (aten/src/ATen/native/cpu/SumKernel.cpp); the last axis holds independent lanes


def _multi_row_sum(x: Tensor) -> Tensor:
    """Rows (..., size, lanes) summed over size: 2^power steps a level, four levels."""
    size = x.shape[-2]
    power = max(4, max(size - 1, 0).bit_length() // 4)
    step = 1 << power
    levels = [torch.zeros_like(x[..., 0, :]) if size else x.new_zeros((*x.shape[:-2], x.shape[-1])) for _ in range(4)]
    i = 0
    while i + step <= size:
        for k in range(i, i + step):
            levels[0] = levels[0] + x[..., k, :]
        i += step
        for level in range(1, 4):
            levels[level] = levels[level] + levels[level - 1]
            levels[level - 1] = torch.zeros_like(levels[0])
            if i & (step - 1) << level * power:
                break
    for k in range(i, size):
        levels[0] = levels[0] + x[..., k, :]
    return levels[0] + levels[1] + levels[2] + levels[3]


def _row_sum(x: Tensor) -> Tensor:
    """Four interleaved rows of x (..., size, lanes), then the remaining ones, then the four one by one."""
    size, lanes = x.shape[-2:]
    whole = size // 4
    parts = _multi_row_sum(x[..., : 4 * whole, :].reshape(*x.shape[:-2], whole, 4 * lanes))
    parts = parts.reshape(*x.shape[:-2], 4, lanes)
    total = parts[..., 0, :]
    for k in range(4 * whole, size):
        total = total + x[..., k, :]
    for k in range(1, 4):
        total = total + parts[..., k, :]
    return total


def _cascade_inner(x: Tensor, lanes: int) -> Tensor:
    """Contiguous terms in vectors of `lanes`; the remainder first, then the lanes one by one."""
    n = x.shape[-1]
    whole = n // lanes
    vectors = _row_sum(x[..., : whole * lanes].reshape(*x.shape[:-1], whole, lanes))
    start = torch.zeros_like(x[..., :1])
    return _left_to_right(torch.cat([start, x[..., whole * lanes :], vectors], -1))


# Exponentials


def _log_add_exp(a: Tensor, b: Tensor) -> Tensor:
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    same = (low == high) & low.isinf()
    return torch.where(same, a, torch.log1p(torch.exp(torch.where(same, 0.0, low - high))) + high)


def _log_add_exps(x: Tensor) -> Tensor:
    """From left to right with the C library's functions, as ATen's _log_add_exp_helper."""
    exp: Any = np.vectorize(_exp, otypes=[np.float64])
    log1p: Any = np.vectorize(math.log1p, otypes=[np.float64])
    if x.dtype == torch.float32:  # Python calls the C library's double functions only; numpy's are as good a guess
        exp, log1p = np.exp, np.log1p
    values = x.numpy()
    found = np.empty_like(values)
    total = np.full(values.shape[:-1], -np.inf, dtype=values.dtype)
    with np.errstate(all="ignore"):
        for k in range(values.shape[-1]):
            one = values[..., k]
            low, high = np.minimum(one, total), np.maximum(one, total)
            plain = (low == high) & np.isinf(low)
            total = np.where(plain, one, log1p(exp(np.where(plain, 0, low - high))) + high).astype(values.dtype)
            found[..., k] = total
    return torch.from_numpy(found)


def _exp(x: float) -> float:
    return math.exp(x) if x <= 0 else math.nan


def _quotient(e: Callable[[], Tensor], total: Callable[[Tensor], Tensor], reciprocal: bool) -> Callable[[], Tensor]:
    def run() -> Tensor:
        s = total(e())[..., None]
        return e() * (1 / s) if reciprocal else e() / s

    return run


def sleef_expf(x: Tensor) -> Tensor:
    """Sleef_expf*_u10 of SLEEF 3 (src/libm/sleefsimdsp.c, xexpf) with FMA, for float32 x <= 0; NaN stays."""
    parts = [_sleef_expf(part) for part in torch.split(x.reshape(-1), BLOCK)]
    return torch.cat(parts).reshape(x.shape)


def _sleef_expf(x: Tensor) -> Tensor:
    fmt = FORMATS["float32"]
    n = IeeeSystem(fmt, fmt)
    a = n.input(x)
    q = Rounded((a * 1.442695040888963407359924681001892137426645954152985934135449406931).tensor.round(), n)
    r = n.fma(q, -0.693145751953125, a)
    r = n.fma(q, -1.428606765330187045e-06, r)
    u: Any = n.scalar(0.000198527617612853646278381)
    for c in (0.00139304355252534151077271, 0.00833336077630519866943359, 0.0416664853692054748535156):
        u = n.fma(u, r, c)
    u = n.fma(n.fma(u, r, 0.166666671633720397949219), r, 0.5)
    y = (n.fma(r * r, u, r) + 1.0).tensor
    # ldexp2 multiplies by two powers of two: the second product alone may be inexact
    k = q.tensor.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(-300, 300).long()
    half = k >> 1
    y = round_to(y * power_of_two(half), fmt)
    y = round_to(y * power_of_two(k - half), fmt)
    y = torch.where(a.tensor < -104, 0.0, y)
    return torch.where(a.tensor.isnan(), torch.nan, y).to(torch.float32)
