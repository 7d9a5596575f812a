"""One step of Adam (Kingma & Ba 2015, algorithm 1) with L2 regularization, as torch.optim.Adam documents it.

The gradient gets weight_decay p before the averages. Infinities and NaNs as in `verify.oracles.adam_ema`; an infinite
average makes the parameter NaN (inf / inf).
"""

from __future__ import annotations

from typing import Any

from verify.oracles._adam import State, averaged, signed, updated


def adam_step(n: Any, k: Any, state: State, g: Any) -> State:
    """The state after one step with the gradient g; k as in `verify.oracles._adam`."""
    p, m, v, x = state
    g = signed(k, g)
    if k.couples:
        g = g + k.weight_decay * p
    m, v, x = averaged(n, k, m, v, x, g)
    return updated(n, k, p, m, v if x is None else x), m, v, x
