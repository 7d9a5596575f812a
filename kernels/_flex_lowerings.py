"""What computes flex_attention: PyTorch's, eager and compiled, SDPA's kernels, and the hand-written Triton kernel.

float32 products with the precision `high` are lowerings of their own, named after what ran: tf32. Each callable takes a
problem and returns the outputs it gives; gradients are those of sum(grad_out * out).
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch

from verify import native
from verify.families.composite import Problem
from verify.kernels import _flex
from verify.kernels._flex_user import TorchSystem
from verify.kernels.flex_attention import Shape
from verify.lower import switches
from verify.lower.lowering import Lowering, NotLowered, Target, describe
from verify.lower.triton import no_triton, triton_options
from verify.oracles import _attention as oracle

Tensor = torch.Tensor
Outputs = dict[str, Tensor]
Call = Callable[[Problem], Outputs]

#: What SDPA can express as an additive mask; a function of the score it cannot.
ADDITIVE = ("none", "causal", "alibi", "relative_bias")


def lowerings() -> tuple[Lowering, ...]:
    """The reference first."""
    return (
        _torch("eager", _eager),
        _torch("compiled", _compiled),
        _torch("eager-tf32", _eager, "high"),
        _torch("compiled-tf32", _compiled, "high"),
        _sdpa("sdpa-math", "MATH"),
        _sdpa("sdpa-math-tf32", "MATH", "high"),
        _sdpa("sdpa-flash", "FLASH_ATTENTION"),
        _sdpa("sdpa-efficient", "EFFICIENT_ATTENTION"),
        _sdpa("sdpa-cudnn", "CUDNN_ATTENTION"),
        _triton("triton", "ieee"),
        _triton("triton-tf32", "tf32"),
        Lowering("triton-interpreter", _interpreted, partial(no_triton, variant="interpreter")),
    )


# The precision of float32 products


@contextmanager
def precision(name: str) -> Iterator[None]:
    """float32 matmul precision `name` (torch.set_float32_matmul_precision) inside, all switches as before after."""
    with switches.fresh():
        torch.set_float32_matmul_precision(name)
        yield


@cache
def multiplied_in(device: str, name: str, shape: Shape) -> tuple[str, str]:
    """'ieee', 'tf32' or 'bf16' for the scores' products and for those with the values, in a setting's own shapes.

    A library chooses by shape too: cuBLAS takes tf32 only where rows are aligned. The probe is a factor 1 + 2^-12 or
    1 + 2^-9 that meets a 1 among zeros.
    """
    queries = torch.zeros(shape.of_queries, device=device)
    keys = torch.zeros((*shape.of_queries[:2], shape.kv_len, shape.head_dim), device=device)
    weights = torch.zeros((*shape.of_queries[:3], shape.kv_len), device=device)
    found = []
    with precision(name):
        for left, right in ((queries, keys.mT), (weights, keys)):
            kept = {}
            for power in (12, 9):
                left[..., 0], right[..., 0, 0] = 1 + 2.0**-power, 1.0
                kept[power] = float((left @ right)[0, 0, 0, 0]) == 1 + 2.0**-power
                left.zero_()
                right.zero_()
            found.append("ieee" if kept[12] else "tf32" if kept[9] else "bf16")
    return found[0], found[1]


def template_precision(name: str) -> str:
    """'ieee' or 'tf32': what flex_attention's Triton template multiplies in under `name`, whatever the shapes."""

    def ask() -> str:
        template: Any = importlib.import_module("torch._inductor.kernel.flex.flex_attention")
        with precision(name):
            return str(template.get_float32_precision()).strip("'")

    # A process that only plans has no other use for Inductor's import.
    return str(native.answered(f"torch {torch.__version__} {torch.__file__}: flex_attention's products, {name}", ask))


def _products(target: Target, name: str, template: bool) -> tuple[str, str]:
    """The formats in which the scores' products and those with the values are multiplied."""
    if template and target.backend.device != "cpu":
        return (template_precision(name),) * 2
    settings = target.kernel.spellings
    own = settings[target.spelling] if target.spelling in settings else target.kernel.settings[0]
    return multiplied_in(target.backend.device, name, Shape.of(own.parameters))


def _flags(target: Target, name: str, template: bool = False) -> dict[str, Any]:
    if target.dtype != "float32":
        return {}
    scores, values = _products(target, name, template)
    return {"float32_matmul_precision": name, "scores_multiplied_in": scores, "values_multiplied_in": values}


def _no_tf32(target: Target, name: str, template: bool = False) -> str | None:
    """Why the precision `name` makes no separate lowering."""
    if name == "highest":
        return None
    if target.dtype != "float32":
        return "the precision of float32 products concerns float32 alone"
    found = _products(target, name, template)
    if "tf32" in found:
        return None
    return f"the precision {name!r} multiplies in {found[0]} here and in these shapes: a factor 1 + 2^-12 is kept"


# flex_attention, eager and compiled


def _torch(name: str, build: Callable[[Target], Call], wanted: str = "highest") -> Lowering:
    template = name.startswith("compiled")

    def built(target: Target) -> Any:
        call = build(target)

        def run(problem: Problem) -> Outputs:
            with precision(wanted):
                return call(problem)

        return run

    def reason(target: Target) -> str | None:
        if template and (why := target.backend.inductor_unavailable()):
            return why
        return _no_tf32(target, wanted, template)

    return Lowering(name, built, reason, flags=lambda target: _flags(target, wanted, template))


def _eager(target: Target) -> Call:
    """The public function, uncompiled. It refuses gradients on the CPU, where the operator below it gives them."""
    from torch.nn.attention.flex_attention import AuxRequest
    from torch.nn.attention.flex_attention import flex_attention as untyped

    flex_attention: Any = untyped
    torch._dynamo.reset()
    on_host = target.backend.device == "cpu"
    prepared = _once()

    def run(problem: Problem) -> Outputs:
        shape, function, mask = prepared(problem)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            return _differentiated(problem, lambda q, k, v: call(shape, function, mask, q, k, v))

    def call(shape: Shape, function: Any, mask: Any, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Any]:
        if on_host and q.requires_grad:
            return _operator(shape, function, mask, q, k, v)
        options: dict[str, Any] = {"score_mod": function, "block_mask": mask} | _of(shape)
        out, extra = flex_attention(q, k, v, **options, return_aux=AuxRequest(lse=True))
        return out, extra.lse

    return run


def _operator(shape: Shape, function: Any, mask: Any, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """torch.ops.higher_order.flex_attention, whose dense code the public function runs when it is not compiled."""
    import math

    from torch.nn.attention.flex_attention import _create_empty_block_mask, _identity

    blocks = (mask or _create_empty_block_mask(q, k)).as_tuple()
    options = {"BACKEND": "AUTO", "OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": False}
    out, lse, _ = torch.ops.higher_order.flex_attention(q, k, v, function or _identity, blocks, shape.scale, options)
    return out, lse * math.log(2)


def _compiled(target: Target) -> Call:
    """torch.compile(flex_attention). On the CPU its template gives neither logsumexp nor gradients."""
    from torch._inductor.exc import InductorError
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    torch._dynamo.reset()
    function: Any = torch.compile(flex_attention, fullgraph=True, options={"compile_threads": 1})
    on_host = target.backend.device == "cpu"
    prepared = _once()

    def run(problem: Problem) -> Outputs:
        shape, score_mod, mask = prepared(problem)
        options: dict[str, Any] = {"score_mod": score_mod, "block_mask": mask} | _of(shape)
        tensors = problem.tensors
        if on_host:
            return {"out": function(tensors["query"], tensors["key"], tensors["value"], **options)}

        def call(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Any]:
            out, extra = function(q, k, v, **options, return_aux=AuxRequest(lse=True))
            return out, extra.lse

        try:
            return _differentiated(problem, call)
        except InductorError as error:
            raise NotLowered(f"torch.compile fails: {describe(error)}") from error

    return run


def _of(shape: Shape) -> dict[str, Any]:
    """Options of attention. The usual scale is left to the function, as callers do."""
    return {"enable_gqa": shape.group > 1} | ({} if shape.scale == shape.usual_scale else {"scale": shape.scale})


def _differentiated(problem: Problem, call: Callable[..., tuple[Tensor, Tensor | None]]) -> Outputs:
    """`call(q, k, v)` and, where the setting has gradients, those of sum(grad_out * out)."""
    tensors, shape = problem.tensors, problem.extra["shape"]
    inputs = [tensors[name] for name in ("query", "key", "value")]
    if not shape.backward:
        out, lse = call(*inputs)
        return {"out": out} | ({} if lse is None else {"logsumexp": lse})
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    with torch.enable_grad():
        out, lse = call(*inputs)
        gradients = torch.autograd.grad(out, inputs, tensors["grad_out"])
    found = {"out": out.detach()} | ({} if lse is None else {"logsumexp": lse.detach()})
    return found | dict(zip(("dq", "dk", "dv"), gradients, strict=True))


def _once() -> Callable[[Problem], tuple[Shape, Any, Any]]:
    """`_given`, the same objects for the same problem: other closures would be compiled again."""
    kept: list[tuple[Problem, tuple[Shape, Any, Any]]] = []

    def prepared(problem: Problem) -> tuple[Shape, Any, Any]:
        if not kept or kept[0][0] is not problem:
            kept[:] = [(problem, _given(problem))]
        return kept[0][1]

    return prepared


def _given(problem: Problem) -> tuple[Shape, Any, Any]:
    """The setting, and its score_mod and BlockMask as PyTorch takes them."""
    from torch.nn.attention.flex_attention import create_block_mask

    shape: Shape = problem.extra["shape"]
    device = problem.tensors["query"].device
    tables = _flex.on(device, problem.extra["buffers"])
    mask = None
    if (function := oracle.MASK_MODS[shape.mask_mod]) is not None:

        def mask_mod(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
            seen: Tensor = function(b, h, q, kv, tables)
            return seen

        mask = create_block_mask(mask_mod, None, None, shape.q_len, shape.kv_len, device=device)
    return shape, score_mod(shape, tables), mask


def score_mod(shape: Shape, tables: dict[str, Tensor]) -> Callable[..., Tensor] | None:
    """The setting's score_mod as one writes it for flex_attention; the oracle's is another text."""
    if shape.function is not None:
        own = shape.function

        def given(score: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
            result: Tensor = own(TorchSystem(), score, b, h, q, kv, {})
            return result

        return given
    slopes, bias = tables["slopes"], tables["bias"]
    reach = bias.shape[1] // 2

    def causal(score: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        shown: Tensor = torch.where(q >= kv, score, -float("inf"))
        return shown

    def alibi(score: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return score + slopes[h] * (kv - q)

    def relative_bias(score: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return score + bias[h, torch.clamp(kv - q, -reach, reach) + reach]

    def soft_cap(score: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return shape.soft_cap * torch.tanh(score / shape.soft_cap)

    return {"causal": causal, "alibi": alibi, "relative_bias": relative_bias, "soft_cap": soft_cap}.get(shape.score_mod)


# scaled_dot_product_attention


def _sdpa(name: str, backend: str, wanted: str = "highest") -> Lowering:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def build(target: Target) -> Any:
        def run(problem: Problem) -> Outputs:
            shape: Shape = problem.extra["shape"]
            options = _mask(problem) | _of(shape)

            def call(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, None]:
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options), None

            only = sdpa_kernel(getattr(SDPBackend, backend))
            with warnings.catch_warnings(record=True) as said, precision(wanted), only:
                warnings.simplefilter("always")
                try:
                    return _differentiated(problem, call)
                except RuntimeError as error:
                    known = ("No available kernel", "No viable backend", "attn_mask", "invalid dtype for bias")
                    if not any(text in str(error) for text in known):
                        raise
                    reasons = [str(w.message).split(" (Triggered")[0] for w in said] or [str(error).splitlines()[0]]
                    raise NotLowered(f"{backend}: {'; '.join(dict.fromkeys(reasons))[:400]}") from error

        return run

    def reason(target: Target) -> str | None:
        modification = target.kernel.spellings[target.spelling].parameters["score_mod"] if _known(target) else "none"
        if modification not in ADDITIVE:
            return f"scaled_dot_product_attention adds a mask to the scores; score_mod {modification} is not a sum"
        return _no_tf32(target, wanted)

    return Lowering(name, build, reason, flags=lambda target: {"backend": backend, **_flags(target, wanted)})


def _known(target: Target) -> bool:
    return target.spelling in target.kernel.spellings


def _mask(problem: Problem) -> dict[str, Any]:
    """attn_mask and is_causal: booleans, or float32 numbers with -inf where a score is biased."""
    shape: Shape = problem.extra["shape"]
    device = problem.tensors["query"].device
    if shape.score_mod not in ADDITIVE:
        raise NotLowered(f"scaled_dot_product_attention adds a mask to the scores; {shape.score_mod} is not a sum")
    tables = _flex.on(device, problem.extra["buffers"])
    visible = _flex.unmasked(shape, tables, device)
    function = score_mod(shape, tables)
    if function is None or shape.score_mod == "causal":
        if {shape.score_mod, shape.mask_mod} in ({"none", "causal"}, {"causal"}):
            return {"is_causal": True}
        return {"attn_mask": visible}
    heads, queries, keys = (torch.arange(n, device=device) for n in (shape.heads, shape.q_len, shape.kv_len))
    places = heads[None, :, None, None], queries[None, None, :, None], keys[None, None, None, :]
    bias = function(torch.zeros(1, 1, 1, 1, device=device), heads * 0, *places)
    return {"attn_mask": bias if visible is None else bias.masked_fill(~visible, -torch.inf)}


# Triton


def _triton(name: str, wanted: str) -> Lowering:
    def build(target: Target) -> Any:
        from verify.kernels.triton import flex_attention as kernels

        run, block = kernels.compiled(triton_options(target)), kernels.LEAST if target.small == 2 else kernels.BLOCK
        return lambda problem: _hand_written(problem, run, wanted, block)

    def reason(target: Target) -> str | None:
        if (absent := no_triton(target)) is None and wanted == "tf32" and target.dtype != "float32":
            return "the precision of float32 products concerns float32 alone"
        return absent

    def flags(target: Target) -> dict[str, Any]:
        given = {"input_precision": wanted, **triton_options(target)}
        if target.small == 2:
            from verify.kernels.triton import flex_attention as kernels

            given["blocks"] = f"{kernels.LEAST} x {kernels.LEAST}"
        return given

    return Lowering(name, build, reason, flags=flags)


def _hand_written(problem: Problem, run: Any, wanted: str, block: int) -> Outputs:
    from verify.kernels.triton import flex_attention as kernels

    shape: Shape = problem.extra["shape"]
    if shape.score_mod not in kernels.MODS:
        raise NotLowered(f"the hand-written kernel has no score_mod {shape.score_mod}")
    if shape.head_dim not in (16, 32, 64, 128):
        raise NotLowered(f"the hand-written kernel takes head_dim 16, 32, 64 or 128, not {shape.head_dim}")
    device = problem.tensors["query"].device
    tables = _flex.on(device, problem.extra["buffers"])
    return kernels.attention(run, problem.tensors, tables, shape, wanted, block)


def _interpreted(target: Target) -> Any:
    from verify.kernels.triton import flex_attention as kernels

    run = kernels.interpreted()
    return lambda problem: _hand_written(problem, run, "ieee", kernels.INTERPRETER_BLOCK)
