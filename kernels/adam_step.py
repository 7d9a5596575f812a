"""Facts about torch.optim.Adam: L2 weight decay, which enters the gradient."""

from __future__ import annotations

from verify.kernels._adam import common_settings, kernel
from verify.oracles.adam_step import adam_step

TORCH = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
#: The first: every term is seen in bfloat16, the decay beside a gradient, eps beside a root, the bias corrections in
#: early steps.
CASES = (
    {"lr": 0.02, "beta1": 0.7, "beta2": 0.8, "eps": 0.03, "weight_decay": 0.3},
    {**TORCH, "weight_decay": 0.0},
    {**TORCH, "weight_decay": 0.01},
)

KERNEL = kernel(
    adam_step,
    "Adam with L2 weight decay, over many steps",
    settings=common_settings(CASES),
    cases=CASES,
)
