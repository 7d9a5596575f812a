"""Facts about torch.optim.Adam: L2 weight decay, which enters the gradient."""

from __future__ import annotations

from verify.kernels._adam import common_settings, kernel
from verify.oracles.adam_step import adam_step

COMMON = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}

KERNEL = kernel(
    adam_step,
    "Adam with L2 weight decay, over many steps",
    settings=common_settings(ema=False),
    cases=({**COMMON, "weight_decay": 0.0}, {**COMMON, "weight_decay": 0.01}),
)
