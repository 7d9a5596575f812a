"""Formulas of attention's products, for outputs that are one such product but for known factors.

The logsumexp of a query that one key outweighs (recipe `alone`) is that key's score: the other weights vanish beside
1, whose logarithm is 0. Where all scores are 0 (recipe `uniform`) and keys are a power of two, weights are exactly 1 /
keys, before the product or after it: `out` is their product with the values, dv that with grad_out. Other outputs have
functions in them that no formula has the bits of.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from verify.backends import Backend
from verify.families import products_data, products_formulas
from verify.families.composite import Part, Problem
from verify.kernels.flex_attention import Shape

Tensor = torch.Tensor


def searched(problem: Problem, backend: Backend, output: str, y: Tensor) -> dict[str, Callable[[], Tensor | Part]]:
    """See `verify.facts.kernel.Composite`: formulas of one of the products; none where an output is none."""
    shape: Shape = problem.extra["shape"]
    if shape.group > 1 or (shape.score_mod, shape.mask_mod) != ("none", "none"):
        return {}
    t = {name: value.flatten(0, 1) for name, value in problem.tensors.items()}
    even = 1.0 / shape.kv_len
    if output == "logsumexp" and shape.data == "alone":
        what, a, b, scalars = "score", t["query"], t["key"][:, :1].mT, {"alpha": shape.scale}
    elif shape.data == "uniform" and shape.kv_len & (shape.kv_len - 1) == 0 and output in ("out", "dv"):
        of = t["value" if output == "out" else "grad_out"]
        sizes = (shape.q_len, shape.kv_len) if output == "out" else (shape.kv_len, shape.q_len)
        what, a, b, scalars = "weights times values", of.new_full((len(of), *sizes), even), of, {}
        what = what if output == "out" else "weights times grad_out"
    else:
        return {}
    size = products_data.Shape(m=a.shape[1], k=a.shape[2], n=b.shape[2], batch=len(a))
    own = Problem({"a": a, "b": b}, {}, scalars, problem.dtype, {"shape": size, "logarithm": output == "logsumexp"})
    result = str(y.dtype).removeprefix("torch.")
    found = products_formulas.searched(own, backend, result, y.reshape(len(a), size.m, size.n))
    return {f"{what}: {text}": make for text, make in found.items()}
