"""Facts about torch.optim.AdamW: decoupled weight decay."""

from __future__ import annotations

from verify.kernels._adam import common_settings, kernel
from verify.oracles.adamw_step import adamw_step

KERNEL = kernel(
    adamw_step,
    "AdamW, Adam with decoupled weight decay, over many steps",
    settings=common_settings(ema=False),
    cases=(
        {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
        {"lr": 3e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1},
    ),
)
