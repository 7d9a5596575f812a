"""Facts about Adam's two moving averages alone, as torch.optim.Adam computes them."""

from __future__ import annotations

from verify.kernels._adam import common_settings, kernel
from verify.oracles.adam_ema import adam_ema

#: The first: both terms are seen in bfloat16; the second: torch's own.
CASES = ({"beta1": 0.7, "beta2": 0.8}, {"beta1": 0.9, "beta2": 0.999}, {"beta1": 0.3, "beta2": 0.5})

KERNEL = kernel(
    adam_ema,
    "the moving averages of gradients and of their squares",
    settings=common_settings(CASES),
    cases=CASES,
)
