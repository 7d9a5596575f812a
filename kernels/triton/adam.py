"""One Adam step by fused multiply-adds, for a list of tensors: averages, running maximum, decay and update.

m + w (g - m) and v + w (g^2 - v) keep a constant gradient's averages where they are; lr weight_decay p is subtracted
rather than p multiplied by a rounded 1 - lr weight_decay, whose error would grow with every step. Bias corrections are
computed in double on the host. Parameters may be bfloat16 with a float32 master copy: then the caller rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from verify.kernels.triton.arithmetic import divide, square_root
from verify.kernels.triton.elementwise import BLOCK, INTERPRETER_BLOCK, WARPS, Device, Loop

Tensor = torch.Tensor
Step = Callable[[list[Tensor], list[Tensor], list[Tensor], list[Tensor], list[Tensor]], None]


@Device
def averages(m, v, g, w1, w2):
    first = tl.full(m.shape, w1, tl.float32)
    second = tl.full(m.shape, w2, tl.float32)
    return tl.fma(first, g - m, m), tl.fma(second, tl.fma(g, g, -v), v)


@Loop
def ema(m_ptr, v_ptr, g_ptr, size, w1, w2, MAXIMIZE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    m = tl.load(m_ptr + offsets, mask=inside).to(tl.float32)
    v = tl.load(v_ptr + offsets, mask=inside).to(tl.float32)
    g = tl.load(g_ptr + offsets, mask=inside).to(tl.float32)
    if MAXIMIZE:
        g = -g
    m, v = averages(m, v, g, w1, w2)
    tl.store(m_ptr + offsets, m.to(m_ptr.dtype.element_ty), mask=inside)
    tl.store(v_ptr + offsets, v.to(v_ptr.dtype.element_ty), mask=inside)


@Loop
def update(
    p_ptr, m_ptr, v_ptr, x_ptr, g_ptr, size, w1, w2, eps, weight_decay, lr_decay, rate, inverse_root2,
    DECOUPLED: tl.constexpr, DECAYS: tl.constexpr, AMSGRAD: tl.constexpr, MAXIMIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    p = tl.load(p_ptr + offsets, mask=inside).to(tl.float32)
    m = tl.load(m_ptr + offsets, mask=inside).to(tl.float32)
    v = tl.load(v_ptr + offsets, mask=inside).to(tl.float32)
    g = tl.load(g_ptr + offsets, mask=inside).to(tl.float32)
    if MAXIMIZE:
        g = -g
    if DECAYS and not DECOUPLED:
        g = tl.fma(tl.full(p.shape, weight_decay, tl.float32), p, g)
    m, v = averages(m, v, g, w1, w2)
    tl.store(m_ptr + offsets, m.to(m_ptr.dtype.element_ty), mask=inside)
    tl.store(v_ptr + offsets, v.to(v_ptr.dtype.element_ty), mask=inside)
    if AMSGRAD:
        v = tl.maximum(tl.load(x_ptr + offsets, mask=inside).to(tl.float32), v, tl.PropagateNan.ALL)
        tl.store(x_ptr + offsets, v.to(x_ptr.dtype.element_ty), mask=inside)
    if DECAYS and DECOUPLED:
        p = tl.fma(tl.full(p.shape, -lr_decay, tl.float32), p, p)
    root = tl.full(p.shape, inverse_root2, tl.float32)
    denominator = tl.fma(square_root(v), root, tl.full(p.shape, eps, tl.float32))
    p = tl.fma(tl.full(p.shape, -rate, tl.float32), divide(m, denominator), p)
    tl.store(p_ptr + offsets, p.to(p_ptr.dtype.element_ty), mask=inside)


def stepper(
    kernel: str, scalars: Mapping[str, float], parameters: Mapping[str, Any], options: Mapping[str, Any],
    interpreted: bool,
) -> Step:  # fmt: skip
    """One step in place on lists of tensors: parameters, gradients, averages, running maxima (empty without amsgrad).

    `kernel` is adam_ema, adam_step or adamw_step; scalars and parameters are those of a problem; options are Triton's.
    """
    count = parameters["start"]
    decay = scalars.get("weight_decay", 0.0)
    fixed = {"w1": rounded(1 - scalars["beta1"]), "w2": rounded(1 - scalars["beta2"])}
    switches = {"MAXIMIZE": bool(parameters["maximize"])}
    if kernel != "adam_ema":
        lr = scalars["lr"]
        fixed |= {"eps": rounded(scalars["eps"]), "weight_decay": rounded(decay), "lr_decay": rounded(lr * decay)}
        switches |= {
            "DECOUPLED": kernel == "adamw_step", "DECAYS": bool(decay), "AMSGRAD": bool(parameters["amsgrad"]),
        }  # fmt: skip

    def step(
        params: list[Tensor], grads: list[Tensor], firsts: list[Tensor], seconds: list[Tensor], maxima: list[Tensor]
    ) -> None:
        nonlocal count
        count += 1
        varying = {}
        if kernel != "adam_ema":
            varying = {
                "rate": rounded(scalars["lr"] / (1 - scalars["beta1"] ** count)),
                "inverse_root2": rounded(1 / (1 - scalars["beta2"] ** count) ** 0.5),
            }
        values = {**fixed, **varying, **switches}
        for k, (m, v, g) in enumerate(zip(firsts, seconds, grads, strict=True)):
            if kernel == "adam_ema":
                _launch(ema, (m, v, g), values, options, interpreted)
            else:
                _launch(update, (params[k], m, v, maxima[k] if maxima else v, g), values, options, interpreted)

    return step


def rounded(value: float) -> float:
    """A double rounded once to float32, as a launch passes it."""
    return float(np.float32(value))


def _launch(
    kernel: Loop, tensors: tuple[Tensor, ...], values: Mapping[str, Any], options: Mapping[str, Any],
    interpreted: bool,
) -> None:  # fmt: skip
    size = tensors[0].numel()
    if interpreted:
        from triton.runtime.interpreter import InterpretedFunction

        block = min(INTERPRETER_BLOCK, triton.next_power_of_2(size))
        with np.errstate(all="ignore"):
            InterpretedFunction(kernel.fn)[(triton.cdiv(size, block),)](*tensors, size, **values, BLOCK=block)
        return
    launched = kernel.over(*tensors)[(triton.cdiv(size, BLOCK),)]
    launched(*tensors, size, **values, BLOCK=BLOCK, num_warps=WARPS, **options)
