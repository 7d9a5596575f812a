"""flex_attention: softmax attention with a modified score and a mask, its logsumexp and its gradients.

The definition is that of torch.nn.attention.flex_attention (PyTorch documentation, "flex_attention"): scale q k^T,
score_mod, -inf where mask_mod is False, softmax over the keys, times the values. Its lines are in `_attention`.
"""

from __future__ import annotations

from verify.oracles._attention import (
    MASK_MODS,
    SCORE_MODS,
    SOFT_CAP,
    WINDOW,
    Head,
    Place,
    attention,
    scored,
    visible,
)

__all__ = [
    "MASK_MODS", "OUTPUTS", "SCORE_MODS", "SOFT_CAP", "SPECIAL", "WINDOW", "Head", "Place", "attention", "scored",
    "visible",
]  # fmt: skip

#: Each output and the axis of its elements: rows of queries, or of keys.
OUTPUTS = {"out": "query", "logsumexp": "query", "dq": "query", "dk": "key", "dv": "key"}

_EAGER = "torch/_higher_order_ops/flex_attention.py (PyTorch 2.13)"
_TEMPLATE = "torch/_inductor/kernel/flex/templates/flex_attention.py.jinja, note on fully masked out rows"

#: What the real function does not say: (where, output, value, source). First match wins.
SPECIAL = (
    (
        "the query sees no key",
        "out",
        "either-zero",
        f"{_EAGER}, math_attention: _safe_softmax gives weights 0 for a row of -inf; {_TEMPLATE}",
    ),
    (
        "the query sees no key",
        "logsumexp",
        "-inf",
        f"{_EAGER}, math_attention: torch.where(masked_rows, -inf, logsumexp)",
    ),
    (
        "the query sees no key",
        "dq",
        "either-zero",
        f"{_EAGER}, sdpa_dense_backward: weights of such a row become 0",
    ),
    ("no query sees the key", "dk", "either-zero", "a sum of products with weight 0, whose sign no document states"),
    ("no query sees the key", "dv", "either-zero", "a sum of products with weight 0, whose sign no document states"),
)
