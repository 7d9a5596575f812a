"""Facts about Adam's two moving averages alone, as torch.optim.Adam computes them."""

from __future__ import annotations

from verify.kernels._adam import common_settings, kernel
from verify.oracles.adam_ema import adam_ema

KERNEL = kernel(
    adam_ema,
    "the moving averages of gradients and of their squares",
    settings=common_settings(ema=True),
    cases=({"beta1": 0.9, "beta2": 0.999}, {"beta1": 0.9, "beta2": 0.95}, {"beta1": 0.3, "beta2": 0.5}),
)
