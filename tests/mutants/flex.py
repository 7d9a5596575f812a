"""Planted defects of attention kernels: each a forward pass as someone has written it, wrong in one place.

`honest` is the same text without a defect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from verify.families.composite import Problem
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


def heads_in_turn(problem: Problem) -> dict[str, Tensor]:
    """Query head h reads the keys of head h mod kv_heads; it is h div (heads / kv_heads)."""
    return _softmax(problem, *_scores(problem, interleaved=False))


def masked_afterwards(problem: Problem) -> dict[str, Tensor]:
    """Hidden weights are set to 0 after the softmax over all keys."""
    scores, visible, value = _scores(problem)
    weights = torch.softmax(scores, -1) * visible
    return _outputs(problem, weights, value, torch.logsumexp(scores, -1))


def scale_twice(problem: Problem) -> dict[str, Tensor]:
    """The scale is applied to the queries and to the scores."""
    tensors = dict(problem.tensors) | {"query": problem.tensors["query"] * problem.extra["shape"].scale}
    return honest(Problem(tensors, problem.parameters, problem.scalars, problem.dtype, problem.extra))


def _cut(t: Tensor) -> Tensor:
    bits = t.float().view(torch.int32) & -(1 << 13)
    return bits.view(torch.float32).to(t.dtype)


# Forward and backward by hand

Change = Any


def same(t: Tensor) -> Tensor:
    return t


@dataclass(frozen=True)
class Attention:
    """float32 between what is rounded to the dtype (weights, dS, outputs); each field but the default is a fault."""

    query: Change = same
    key: Change = same
    value: Change = same
    scores: Change = same  # before score_mod
    scale: float = 1.0  # a factor of the scale
    exponent: Change = same  # of s - max
    weights: Change = same  # exp(s - max), before anything is done with them
    total: Change = same
    logsumexp: Change = same
    normalized: Change = same  # weights as they meet the values
    out: Change = same
    passed: Change = same  # dP
    mean: Change = same
    saved: Change = same  # the weights of the backward pass
    change: Change = same  # dS
    grad_query: Change = same
    grad_key: Change = same
    grad_value: Change = same
    no_maximum: bool = False
    no_cap: bool = False
    no_slope: bool = False
    unmasked: bool = False  # the backward pass takes hidden keys too
    hidden: Change = same  # what is visible
    blocks: torch.dtype | None = None  # outputs are added up in this dtype, 32 keys or queries at a time

    def __call__(self, problem: Problem) -> dict[str, Tensor]:
        shape, dtype = problem.extra["shape"], problem.tensors["query"].dtype
        q, k, v, grad = (problem.tensors[name].float() for name in ("query", "key", "value", "grad_out"))
        k, v = (t.repeat_interleave(shape.group, 1) for t in (k, v))
        scale = shape.scale * self.scale
        raw = self.scores(self.query(q) @ self.key(k).mT * scale)
        s = self._modified(problem, raw)
        seen = _flex.unmasked(shape, problem.extra["buffers"], "cpu")
        shown = (torch.ones(1, 1, 1, 1, dtype=torch.bool) if seen is None else seen).expand_as(s)
        shown = self.hidden(shown.clone())
        empty = ~shown.any(-1, keepdim=True)
        whole, s = s, s.masked_fill(~shown, -torch.inf)
        top = torch.zeros_like(s[..., :1]) if self.no_maximum else s.amax(-1, keepdim=True).masked_fill(empty, 0.0)
        p = self.weights(self.exponent(s - top).exp())
        total = self.total(p.sum(-1, keepdim=True)).masked_fill(empty, 1.0)
        lse = self.logsumexp(top + total.log())
        shut = p / total
        out = self.out(self._summed(self.normalized(shut.to(dtype).float()), self.value(v))).to(dtype)
        found = {"out": out, "logsumexp": lse.masked_fill(empty, -torch.inf)[..., 0]}
        if not shape.backward:
            return found
        shut = (whole - lse).exp() if self.unmasked else (s - lse).exp().masked_fill(~shown, 0.0)
        shut = self.saved(shut)
        passed = self.passed(grad @ v.mT)
        mean = self.mean((grad * out.float()).sum(-1, keepdim=True))
        change = shut * (passed - mean)
        if shape.score_mod == "soft_cap" and not self.no_slope:
            change = change * (1 - (s / shape.soft_cap).masked_fill(~shown, 0.0) ** 2)
        change = self.change(change).to(dtype).float()
        dq = self.grad_query(self._summed(change, k) * scale)
        dk = self.grad_key(self._summed(change.mT, q) * scale)
        dv = self.grad_value(self._summed(shut.to(dtype).float().mT, grad))
        dk, dv = (t.to(dtype).unflatten(1, (-1, shape.group)).float().sum(2) for t in (dk, dv))
        return found | {"dq": dq.to(dtype), "dk": dk.to(dtype), "dv": dv.to(dtype)}

    def _modified(self, problem: Problem, raw: Tensor) -> Tensor:
        shape = problem.extra["shape"]
        if shape.score_mod == "soft_cap" and self.no_cap:
            return raw
        mod = _flex_lowerings.score_mod(shape, problem.extra["buffers"])
        if mod is None or shape.score_mod == "causal":
            return raw
        sizes = (shape.batch, shape.heads, shape.q_len, shape.kv_len)
        places = [torch.arange(n).reshape([-1 if i == j else 1 for i in range(4)]) for j, n in enumerate(sizes)]
        return mod(raw, *places)

    def _summed(self, a: Tensor, b: Tensor) -> Tensor:
        if self.blocks is None:
            return a @ b
        total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=self.blocks)
        for start in range(0, a.shape[-1], 32):
            total = total + (a[..., start : start + 32] @ b[..., start : start + 32, :]).to(self.blocks)
        return total.float()


def half(t: Tensor) -> Tensor:
    return t.half().float()


def brain(t: Tensor) -> Tensor:
    return t.bfloat16().float()


def dropped(start: int, stop: int | None = None, axis: int = -1) -> Change:
    """Zeros, or False, from place `start` on."""

    def change(t: Tensor) -> Tensor:
        t = t.clone()
        t.narrow(axis, start % t.shape[axis], (stop or 1) if stop is not None else 1).zero_()
        return t

    return change


def neighbour(axis: int) -> Change:
    return lambda t: t.roll(1, axis)


def one_row(axis: int) -> Change:
    """The last row is that of its neighbour."""

    def change(t: Tensor) -> Tensor:
        t = t.clone()
        t.select(axis, -1).copy_(t.select(axis, -2))
        return t

    return change


EVERY, SINGLE = ("float16", "bfloat16", "float32"), ("float32",)
#: (fault, attention, dtypes)
FAULTS: tuple[tuple[str, Change, tuple[str, ...]], ...] = (
    ("scores rounded before the softmax", rounded_scores, ("float16", "bfloat16")),
    ("heads in turn", heads_in_turn, EVERY),
    ("masked after the softmax", masked_afterwards, EVERY),
    ("scale applied twice", scale_twice, EVERY),
    ("hidden keys in the backward pass", Attention(unmasked=True), EVERY),
    ("dS cut to tf32", Attention(change=_cut), SINGLE),
    ("dS in bfloat16", Attention(change=brain), ("float16", "float32")),
    ("dP cut to tf32", Attention(passed=_cut), SINGLE),
    ("dP in the half type", Attention(passed=brain), ("float16", "float32")),
    ("weights of the backward pass cut to tf32", Attention(saved=_cut), SINGLE),
    ("weights cut to tf32", Attention(normalized=_cut), SINGLE),
    ("weights in bfloat16", Attention(normalized=brain), ("float16", "float32")),
    ("values cut to tf32", Attention(value=_cut), SINGLE),
    ("queries cut to tf32", Attention(query=_cut), SINGLE),
    ("keys cut to tf32", Attention(key=_cut), SINGLE),
    ("scores in float16", Attention(scores=half), EVERY),
    ("scores in bfloat16", Attention(scores=brain), EVERY),
    ("the exponent in float16", Attention(exponent=half), EVERY),
    ("the exponent in bfloat16", Attention(exponent=brain), EVERY),
    ("the denominator in float16", Attention(total=half), EVERY),
    ("the denominator in bfloat16", Attention(total=brain), EVERY),
    ("the logsumexp in float16", Attention(logsumexp=half), EVERY),
    ("the mean in float16", Attention(mean=half), SINGLE),
    ("the mean in bfloat16", Attention(mean=brain), SINGLE),
    ("no maximum", Attention(no_maximum=True), EVERY),
    ("no mean", Attention(mean=torch.zeros_like), EVERY),
    ("the mean of the neighbour", Attention(mean=neighbour(-2)), EVERY),
    ("scale forgotten", Attention(scale=8.0), EVERY),
    ("scale of another head_dim", Attention(scale=2.0**-0.5), EVERY),
    ("scale forgotten in dq", Attention(grad_query=lambda t: t * 8), EVERY),
    ("scale forgotten in dk", Attention(grad_key=lambda t: t * 8), EVERY),
    ("soft cap forgotten", Attention(no_cap=True), EVERY),
    ("slope of the soft cap forgotten", Attention(no_slope=True), EVERY),
    ("the last key dropped", Attention(hidden=dropped(-1)), EVERY),
    ("one key dropped", Attention(hidden=dropped(21)), EVERY),
    ("a block of keys dropped", Attention(hidden=dropped(32, 32)), EVERY),
    ("one value dropped", Attention(value=dropped(37, axis=-2)), EVERY),
    ("one weight of dS dropped", Attention(change=dropped(5)), EVERY),
    ("a block of dS dropped", Attention(change=dropped(32, 16)), EVERY),
    ("one query dropped from dk and dv", Attention(saved=dropped(-1, axis=-2)), EVERY),
    ("one lane of dS dropped", Attention(change=dropped(17, axis=-2)), EVERY),
    ("dq of the neighbour", Attention(grad_query=neighbour(-2)), EVERY),
    ("the last dq of its neighbour", Attention(grad_query=one_row(-2)), EVERY),
    ("the last dk of its neighbour", Attention(grad_key=one_row(-2)), EVERY),
    ("the last dv of its neighbour", Attention(grad_value=one_row(-2)), EVERY),
    ("out of the neighbouring head", Attention(out=neighbour(1)), EVERY),
    ("sums in bfloat16", Attention(blocks=torch.bfloat16), ("float16", "float32")),
    ("sums in float16", Attention(blocks=torch.float16), SINGLE),
)
#: (variant, attention) that are correct.
VARIANTS: tuple[tuple[str, Change], ...] = (
    ("one softmax", honest),
    ("by hand", Attention()),
    ("sums in blocks", Attention(blocks=torch.float32)),
)
