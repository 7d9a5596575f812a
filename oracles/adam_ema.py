"""The two moving averages of Adam (Kingma & Ba 2015, algorithm 1): exp_avg and exp_avg_sq of torch.optim.Adam.

Infinities and NaNs as IEEE 754-2019, 6.1 and 6.2, give them on this spelling: an infinite gradient leaves infinities,
where implementations that compute m + (1 - beta1) (g - m) or g - beta1 g find NaN.
"""

from __future__ import annotations

from typing import Any

from verify.oracles._adam import State, averaged, signed


def adam_ema(n: Any, k: Any, state: State, g: Any) -> State:
    """The state after one step with the gradient g; k as in `verify.oracles._adam`."""
    _, m, v, x = state
    return None, *averaged(n, k, m, v, x, signed(k, g))
