"""Planted defects of attention kernels: each a forward pass as someone has written it, wrong in one place.

`honest` is the same text without a defect.
"""

from __future__ import annotations

from typing import Any

import torch

from verify.composite import Problem
from verify.kernels import _flex, _flex_lowerings

Tensor = torch.Tensor


def _scores(problem: Problem, interleaved: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """float32 scores after score_mod, what is visible, and the values of each query head."""
    shape = problem.extra["shape"]
    query, key, value = (problem.tensors[name] for name in ("query", "key", "value"))
    key, value = (
        t.repeat_interleave(shape.group, 1) if interleaved else t.repeat(1, shape.group, 1, 1) for t in (key, value)
    )
    scores = query.float() @ key.float().mT * shape.scale
    tables = problem.extra["buffers"]
    if (score_mod := _flex_lowerings.score_mod(shape, tables)) is not None:
        sizes = (shape.batch, shape.heads, shape.q_len, shape.kv_len)
        places = [torch.arange(n).reshape([-1 if i == k else 1 for i in range(4)]) for k, n in enumerate(sizes)]
        scores = score_mod(scores, *places)
    visible = _flex.unmasked(shape, tables, "cpu")
    shown = torch.ones(1, 1, 1, 1, dtype=torch.bool) if visible is None else visible
    return scores, shown.expand_as(scores), value


def _outputs(problem: Problem, weights: Tensor, value: Tensor, logsumexp: Tensor) -> dict[str, Tensor]:
    dtype = problem.tensors["query"].dtype
    return {"out": weights.to(dtype) @ value, "logsumexp": logsumexp}


def _softmax(problem: Problem, scores: Tensor, visible: Tensor, value: Tensor) -> dict[str, Tensor]:
    scores = scores.masked_fill(~visible, -torch.inf)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    return _outputs(problem, weights, value, torch.logsumexp(scores, -1))


def honest(problem: Problem) -> dict[str, Tensor]:
    return _softmax(problem, *_scores(problem))


def rounded_scores(problem: Problem) -> dict[str, Tensor]:
    """Scores are rounded to the inputs' dtype before the softmax, as flex_attention's eager code did until October
    2025 (pytorch/pytorch issue 163588)."""
    scores, visible, value = _scores(problem)
    return _softmax(problem, scores.to(problem.tensors["query"].dtype).float(), visible, value)


def no_maximum(problem: Problem) -> dict[str, Tensor]:
    """exp of the scores themselves: it overflows beyond 88 and loses rows below -103."""
    scores, visible, value = _scores(problem)
    terms = torch.exp(scores) * visible
    total = terms.sum(-1, keepdim=True)
    return _outputs(problem, (terms / total).nan_to_num(0.0, 0.0), value, torch.log(total)[..., 0])


def heads_in_turn(problem: Problem) -> dict[str, Tensor]:
    """Query head h reads the keys of head h mod kv_heads; it is h div (heads / kv_heads)."""
    return _softmax(problem, *_scores(problem, interleaved=False))


def masked_afterwards(problem: Problem) -> dict[str, Tensor]:
    """Hidden weights are set to 0 after the softmax over all keys."""
    scores, visible, value = _scores(problem)
    weights = torch.softmax(scores, -1) * visible
    return _outputs(problem, weights, value, torch.logsumexp(scores, -1))


def tf32_scores(problem: Problem) -> dict[str, Tensor]:
    """Factors of the scores lose their last 13 bits, in a kernel that says float32."""
    cut = {name: _cut(t) if name in ("query", "key") else t for name, t in problem.tensors.items()}
    return honest(Problem(cut, problem.parameters, problem.scalars, problem.dtype, problem.extra))


def scale_twice(problem: Problem) -> dict[str, Tensor]:
    """The scale is applied to the queries and to the scores."""
    tensors = dict(problem.tensors) | {"query": problem.tensors["query"] * problem.extra["shape"].scale}
    return honest(Problem(tensors, problem.parameters, problem.scalars, problem.dtype, problem.extra))


def one_key_missed(problem: Problem) -> dict[str, Tensor]:
    """The last key of a length that is no multiple of the block is left out."""
    scores, visible, value = _scores(problem)
    visible = visible.clone()
    visible[..., -1] = False
    return _softmax(problem, scores, visible, value)


def _cut(t: Tensor) -> Tensor:
    bits = t.float().view(torch.int32) & -(1 << 13)
    return bits.view(torch.float32).to(t.dtype)


#: (defect, setting that shows it, dtypes)
MUTANTS: tuple[tuple[Any, dict[str, Any], tuple[str, ...]], ...] = (
    (rounded_scores, {"data": "competing"}, ("float16", "bfloat16")),
    (no_maximum, {"data": "extreme"}, ("float16", "bfloat16", "float32")),
    (masked_afterwards, {"data": "normal", "mask_mod": "causal"}, ("float16", "bfloat16", "float32")),
    (tf32_scores, {"data": "competing"}, ("float32",)),
    (scale_twice, {"data": "normal"}, ("float16", "bfloat16", "float32")),
    (one_key_missed, {"data": "normal"}, ("float16", "bfloat16", "float32")),
)


# Gradients, by hand in float32


def gradients(problem: Problem, *, mean: bool = True, hidden: bool = False, slope: bool = True) -> dict[str, Tensor]:
    """dq, dk and dv of a setting without shared heads.

    Defects: the row's mean left out, hidden keys passed through, the derivative of the soft cap forgotten.
    """
    shape = problem.extra["shape"]
    query, key, value, grad = (problem.tensors[name].float() for name in ("query", "key", "value", "grad_out"))
    scores, visible, _ = _scores(problem)
    weights = torch.softmax(scores if hidden else scores.masked_fill(~visible, -torch.inf), -1).nan_to_num(0.0)
    passed = grad @ value.mT
    change = weights * (passed - (weights * passed).sum(-1, keepdim=True) if mean else passed)
    if shape.score_mod == "soft_cap" and slope:
        change = change * (1 - torch.tanh(query @ key.mT * shape.scale / 50) ** 2)
    dtype = problem.tensors["query"].dtype
    found = {"dq": change @ key * shape.scale, "dk": change.mT @ query * shape.scale, "dv": weights.mT @ grad}
    return {name: t.to(dtype) for name, t in found.items()}


#: (name, defect, setting, output that shows it)
GRADIENT_MUTANTS: tuple[tuple[str, dict[str, bool], dict[str, Any], str], ...] = (
    ("no mean", {"mean": False}, {"mask_mod": "causal"}, "dq"),
    ("hidden keys", {"hidden": True}, {"mask_mod": "causal"}, "dv"),
    ("no slope", {"slope": False}, {"score_mod": "soft_cap", "data": "competing"}, "dk"),
)
