"""Attention with float32 scores as Triton kernels: forward, and the gradients in two kernels without atomics.

Only Triton's builtins are called, no functions of its library (tl.sum is one), so that one process can compile and
interpret them; the interpreter knows the library's combining functions and reduces with numpy's.

Scores, weights' exponents and all sums are float32; weights and dS are rounded to the dtype before a product. What is
done to scores and what is seen are compile-time choices. Launches are at the end; the interpreter shares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from verify.kernels.triton.elementwise import Device

#: Compile-time numbers of the score modifications and masks, by name.
MODS = {"none": 0, "causal": 0, "alibi": 1, "relative_bias": 2, "soft_cap": 3}
MASKS = {"none": 0, "causal": 1, "sliding_window": 2, "document": 3, "masked_rows": 4}
#: Queries and keys of a block; the interpreter runs larger ones faster, and fewer make no product.
BLOCK, INTERPRETER_BLOCK, LEAST = 32, 64, 16


@Device
def modified(s, q, kv, slope, bias_ptr, reach, inside, MOD: tl.constexpr, CAP: tl.constexpr):
    """score_mod of a block of scores, and d score_mod / d score."""
    steep = tl.full(s.shape, 1.0, tl.float32)
    if MOD == 1:
        s = s + slope * (kv - q).to(tl.float32)
    if MOD == 2:
        place = tl.minimum(tl.maximum(kv - q, -reach), reach) + reach
        s = s + tl.load(bias_ptr + place, mask=inside, other=0.0)
    if MOD == 3:
        y = s / CAP
        t = tl.exp2(-2.0 * 1.44269504 * tl.abs(y))
        t = tl.where(y < 0, t - 1.0, 1.0 - t) / (1.0 + t)
        s = t * CAP
        steep = 1.0 - t * t
    return s, steep


@Device
def seen(q, kv, query_document, key_document, inside, CAUSAL: tl.constexpr, MASK: tl.constexpr, WINDOW: tl.constexpr):
    if CAUSAL or MASK == 1:
        inside = inside & (kv <= q)
    if MASK == 2:
        inside = inside & (kv <= q) & (q - kv <= WINDOW)
    if MASK == 3:
        inside = inside & (query_document == key_document)
    if MASK == 4:
        inside = inside & (kv <= q) & (q % 5 != 2)
    return inside


@Device
def forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, slopes_ptr, bias_ptr, query_document_ptr, key_document_ptr,
    heads, group, q_len, kv_len, reach, scale,
    D: tl.constexpr, CAUSAL: tl.constexpr, MOD: tl.constexpr, MASK: tl.constexpr, WINDOW: tl.constexpr,
    CAP: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    h = head % heads
    shared = head // heads * (heads // group) + h // group
    q_ptr += head * q_len * D
    out_ptr += head * q_len * D
    k_ptr += shared * kv_len * D
    v_ptr += shared * kv_len * D
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, D)
    some = rows[:, None] < q_len
    q = tl.load(q_ptr + rows[:, None] * D + columns[None, :], mask=some, other=0.0)
    slope = tl.load(slopes_ptr + h)
    bias_ptr += h * (2 * reach + 1)
    query_document = tl.load(query_document_ptr + rows, mask=rows < q_len, other=-1)[:, None]
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, D], 0.0, tl.float32)
    for start in range(0, kv_len, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        there = keys[:, None] < kv_len
        k = tl.load(k_ptr + keys[:, None] * D + columns[None, :], mask=there, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * D + columns[None, :], mask=there, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        inside = some & (keys[None, :] < kv_len)
        key_document = tl.load(key_document_ptr + keys, mask=keys < kv_len, other=-2)[None, :]
        s, _ = modified(s, rows[:, None], keys[None, :], slope, bias_ptr, reach, inside, MOD, CAP)
        inside = seen(rows[:, None], keys[None, :], query_document, key_document, inside, CAUSAL, MASK, WINDOW)
        x = tl.where(inside, s * 1.44269504, float("-inf"))
        new = tl.maximum(top, tl.reduce(x, 1, tl.standard._elementwise_max))
        safe = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp2(x - safe[:, None])
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.reduce(weights, 1, tl.standard._sum_combine)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        top = new
    nothing = total == 0.0
    total = tl.where(nothing, 1.0, total)
    tl.store(out_ptr + rows[:, None] * D + columns[None, :], (acc / total[:, None]).to(q.dtype), mask=some)
    lse = tl.where(nothing, float("-inf"), (top + tl.log2(total)) * 0.69314718)
    tl.store(lse_ptr + head * q_len + rows, lse, mask=rows < q_len)


@Device
def rows_sum(out_ptr, grad_ptr, mean_ptr, q_len, D: tl.constexpr, BLOCK_M: tl.constexpr):
    """rowsum(dO O) of the stored output."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    place = rows[:, None] * D + tl.arange(0, D)[None, :]
    some = rows[:, None] < q_len
    out = tl.load(out_ptr + place, mask=some, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + place, mask=some, other=0.0).to(tl.float32)
    tl.store(mean_ptr + rows, tl.reduce(out * grad, 1, tl.standard._sum_combine), mask=rows < q_len)


@Device
def gradient_of_queries(
    q_ptr, k_ptr, v_ptr, grad_ptr, lse_ptr, mean_ptr, dq_ptr, slopes_ptr, bias_ptr, query_document_ptr,
    key_document_ptr, heads, group, q_len, kv_len, reach, scale,
    D: tl.constexpr, CAUSAL: tl.constexpr, MOD: tl.constexpr, MASK: tl.constexpr, WINDOW: tl.constexpr,
    CAP: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    h = head % heads
    shared = head // heads * (heads // group) + h // group
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, D)
    some = rows[:, None] < q_len
    place = head * q_len * D + rows[:, None] * D + columns[None, :]
    q = tl.load(q_ptr + place, mask=some, other=0.0)
    grad = tl.load(grad_ptr + place, mask=some, other=0.0)
    lse = tl.load(lse_ptr + head * q_len + rows, mask=rows < q_len, other=0.0)
    lse = tl.where(lse == float("-inf"), 0.0, lse) * 1.44269504
    mean = tl.load(mean_ptr + head * q_len + rows, mask=rows < q_len, other=0.0)
    slope = tl.load(slopes_ptr + h)
    bias_ptr += h * (2 * reach + 1)
    query_document = tl.load(query_document_ptr + rows, mask=rows < q_len, other=-1)[:, None]
    dq = tl.full([BLOCK_M, D], 0.0, tl.float32)
    for start in range(0, kv_len, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        there = keys[:, None] < kv_len
        k = tl.load(k_ptr + shared * kv_len * D + keys[:, None] * D + columns[None, :], mask=there, other=0.0)
        v = tl.load(v_ptr + shared * kv_len * D + keys[:, None] * D + columns[None, :], mask=there, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        inside = some & (keys[None, :] < kv_len)
        key_document = tl.load(key_document_ptr + keys, mask=keys < kv_len, other=-2)[None, :]
        s, steep = modified(s, rows[:, None], keys[None, :], slope, bias_ptr, reach, inside, MOD, CAP)
        inside = seen(rows[:, None], keys[None, :], query_document, key_document, inside, CAUSAL, MASK, WINDOW)
        weights = tl.exp2(tl.where(inside, s * 1.44269504 - lse[:, None], float("-inf")))
        change = weights * (tl.dot(grad, tl.trans(v), input_precision=PRECISION) - mean[:, None]) * steep
        dq += tl.dot(change.to(k.dtype), k, input_precision=PRECISION)
    tl.store(dq_ptr + place, (dq * scale).to(q.dtype), mask=some)


@Device
def gradient_of_keys(
    q_ptr, k_ptr, v_ptr, grad_ptr, lse_ptr, mean_ptr, dk_ptr, dv_ptr, slopes_ptr, bias_ptr, query_document_ptr,
    key_document_ptr, heads, group, q_len, kv_len, reach, scale,
    D: tl.constexpr, CAUSAL: tl.constexpr, MOD: tl.constexpr, MASK: tl.constexpr, WINDOW: tl.constexpr,
    CAP: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    shared = tl.program_id(1)
    kv_heads = heads // group
    keys = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    columns = tl.arange(0, D)
    there = keys[:, None] < kv_len
    place = shared * kv_len * D + keys[:, None] * D + columns[None, :]
    k = tl.load(k_ptr + place, mask=there, other=0.0)
    v = tl.load(v_ptr + place, mask=there, other=0.0)
    key_document = tl.load(key_document_ptr + keys, mask=keys < kv_len, other=-2)[None, :]
    dk = tl.full([BLOCK_N, D], 0.0, tl.float32)
    dv = tl.full([BLOCK_N, D], 0.0, tl.float32)
    for member in range(group):
        h = shared % kv_heads * group + member
        head = shared // kv_heads * heads + h
        slope = tl.load(slopes_ptr + h)
        table = bias_ptr + h * (2 * reach + 1)
        for start in range(0, q_len, BLOCK_M):
            rows = start + tl.arange(0, BLOCK_M)
            some = rows[:, None] < q_len
            at = head * q_len * D + rows[:, None] * D + columns[None, :]
            q = tl.load(q_ptr + at, mask=some, other=0.0)
            grad = tl.load(grad_ptr + at, mask=some, other=0.0)
            lse = tl.load(lse_ptr + head * q_len + rows, mask=rows < q_len, other=0.0)
            lse = tl.where(lse == float("-inf"), 0.0, lse) * 1.44269504
            mean = tl.load(mean_ptr + head * q_len + rows, mask=rows < q_len, other=0.0)
            query_document = tl.load(query_document_ptr + rows, mask=rows < q_len, other=-1)[:, None]
            s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            inside = some & (keys[None, :] < kv_len)
            s, steep = modified(s, rows[:, None], keys[None, :], slope, table, reach, inside, MOD, CAP)
            inside = seen(rows[:, None], keys[None, :], query_document, key_document, inside, CAUSAL, MASK, WINDOW)
            weights = tl.exp2(tl.where(inside, s * 1.44269504 - lse[:, None], float("-inf")))
            dv += tl.dot(tl.trans(weights.to(grad.dtype)), grad, input_precision=PRECISION)
            change = weights * (tl.dot(grad, tl.trans(v), input_precision=PRECISION) - mean[:, None]) * steep
            dk += tl.dot(tl.trans(change.to(q.dtype)), q, input_precision=PRECISION)
    tl.store(dk_ptr + place, (dk * scale).to(k.dtype), mask=there)
    tl.store(dv_ptr + place, dv.to(k.dtype), mask=there)


#: run(kernel, grid, *arguments, **compile-time arguments)
Run = Callable[..., None]


def attention(
    run: Run,
    tensors: Mapping[str, torch.Tensor],
    tables: Mapping[str, Any],
    shape: Any,
    precision: str,
    block: int = BLOCK,
) -> dict[str, torch.Tensor]:
    """All outputs that `shape` (a `Shape` of kernels/flex_attention.py) asks for; `precision`: 'ieee' or 'tf32'."""
    q, k, v, grad = (tensors[name].contiguous() for name in ("query", "key", "value", "grad_out"))
    out, lse = torch.empty_like(q), q.new_empty(shape.of_queries[:3], dtype=torch.float32)
    read = [tables["slopes"], tables["bias"], tables["query_document"], tables["key_document"]]
    sizes = [shape.heads, shape.group, shape.q_len, shape.kv_len, tables["bias"].shape[1] // 2, shape.scale]
    static = {
        "D": shape.head_dim, "CAUSAL": shape.score_mod == "causal", "MOD": MODS[shape.score_mod],
        "MASK": MASKS[shape.mask_mod], "WINDOW": shape.window, "CAP": float(shape.soft_cap), "PRECISION": precision,
        "BLOCK_M": block, "BLOCK_N": block,
    }  # fmt: skip
    queries = (triton.cdiv(shape.q_len, block), shape.batch * shape.heads)
    run(forward, queries, q, k, v, out, lse, *read, *sizes, **static)
    if not shape.backward:
        return {"out": out, "logsumexp": lse}
    mean, dq, dk, dv = torch.empty_like(lse), torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    count = mean.numel()
    run(rows_sum, (triton.cdiv(count, block),), out, grad, mean, count, D=shape.head_dim, BLOCK_M=block)
    run(gradient_of_queries, queries, q, k, v, grad, lse, mean, dq, *read, *sizes, **static)
    keys = (triton.cdiv(shape.kv_len, block), shape.batch * shape.kv_heads)
    run(gradient_of_keys, keys, q, k, v, grad, lse, mean, dk, dv, *read, *sizes, **static)
    return {"out": out, "logsumexp": lse, "dq": dq, "dk": dk, "dv": dv}


def compiled(options: Mapping[str, Any]) -> Run:
    """Launches on a GPU with Triton's compile `options`."""

    def run(kernel: Device, grid: tuple[int, ...], *arguments: Any, **static: Any) -> None:
        kernel[grid](*arguments, **static, num_warps=4, **options)

    return run


def interpreted() -> Run:
    """Runs under the Triton interpreter, on CPU tensors; numpy's warnings are kept quiet."""
    import numpy as np
    from triton.runtime.interpreter import InterpretedFunction

    def run(kernel: Device, grid: tuple[int, ...], *arguments: Any, **static: Any) -> None:
        with np.errstate(all="ignore"):
            InterpretedFunction(kernel.fn)[grid](*arguments, **static)

    return run
