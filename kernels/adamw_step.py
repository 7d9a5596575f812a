"""Facts about torch.optim.AdamW: decoupled weight decay."""

from __future__ import annotations

from verify.kernels._adam import common_settings, kernel
from verify.oracles.adamw_step import adamw_step

#: The first: every term is seen in bfloat16, lr weight_decay = 0.2 and eps beside a root; the second: torch's own.
CASES = (
    {"lr": 0.1, "beta1": 0.7, "beta2": 0.8, "eps": 0.03, "weight_decay": 2.0},
    {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
    {"lr": 3e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1},
)

KERNEL = kernel(
    adamw_step,
    "AdamW, Adam with decoupled weight decay, over many steps",
    settings=common_settings(CASES, decoupled=True),
    cases=CASES,
)
