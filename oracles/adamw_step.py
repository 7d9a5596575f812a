"""One step of AdamW (Loshchilov & Hutter 2019, algorithm 2), as torch.optim.AdamW documents it: decoupled weight decay.

The parameter is scaled by 1 - lr weight_decay before the update; gradients stay as they are. Special values as in
`verify.oracles.adam_step`.
"""

from __future__ import annotations

from typing import Any

from verify.oracles._adam import State, averaged, signed, updated


def adamw_step(n: Any, k: Any, state: State, g: Any) -> State:
    """The state after one step with the gradient g; k as in `verify.oracles._adam`."""
    p, m, v, x = state
    m, v, x = averaged(n, k, m, v, x, signed(k, g))
    p = k.decay * p if k.decays else p
    return updated(n, k, p, m, v if x is None else x), m, v, x
