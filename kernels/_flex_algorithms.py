"""What the lowerings of flex_attention compute: the `Algorithm` of each, with its source, and the resulting bounds.

The machinery is `verify.families.attention`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from verify.facts.bounds import published
from verify.facts.formats import FORMATS
from verify.facts.kernel import facts_of
from verify.families.attention import FLUSH, Algorithm, Backward, Forward, Product, Rows, U, backward, forward
from verify.families.composite import Limit, Problem
from verify.kernels import _flex
from verify.kernels.flex_attention import EXP_SOURCE, EXP_UNITS, LOWERINGS, Shape
from verify.numbers.documented import Documented
from verify.numbers.functions import LIBRARY
from verify.numbers.roundoff import UP, Rough, Roundoff
from verify.oracles import flex_attention as oracle
from verify.oracles._attention import derivative

Tensor = torch.Tensor

#: A tensor core takes the upper 19 bits of a float32, truncated unless a library rounds first (PTX ISA, mma .tf32).
TF32 = 2.0**-10
TF32_BITS = 11
#: ATen's `exp_u20`, "a faster version of exp with ULP=20" (ATen/cpu/vec/vec512/vec512_float.h); an ULP is at most 2u.
#: Of 0 it is 1: its polynomial ends in 1 + x p(x).
EXP_U20 = Documented(EXP_UNITS, EXP_SOURCE, FLUSH)
#: ATen's `fexp_u20` (same file), 2^i (1 + f - K(f)) for x log2(e) = i + f: |K| misses 2^f by at most 1.0652e-4, the
#: product x log2(e) errs by 126 * 1.22u log 2 and the sum with the exponent's bias by 32 * 2^-23.
FEXP_U20 = 1.0652e-4 + 126 * 1.22 * U * math.log(2) + 32 * 2.0**-23
#: RCP_LN2 = 1.44269504 of PyTorch's templates, as a float32, against log2(e): 0.2237u.
RCP_LN2 = 0.224 * U
#: Modifications that add float32 numbers of a table.
TABLES = ("alibi", "relative_bias")
#: The most scores among which exact results are sought, which takes three times as long.
EXACT_SCORES = 1 << 18


def limit(problem: Problem, target: Any, lowering: Any, output: str) -> Limit | None:
    """The bound of `output` by the lowering's algorithm, in the output's own dtype."""
    found = algorithm_of(lowering.name, facts_of(target.backend.name), problem.dtype, problem.extra["shape"])
    if output not in problem.extra["shape"].outputs:
        return None
    kept: dict[Algorithm, dict[str, Tensor]] = problem.extra["limits"]
    if found not in kept:
        kept[found] = bounds(problem, found)
    return Limit(kept[found][output], f"roundoff of {found.text}")


# Which algorithm a lowering uses


def algorithm_of(name: str, backend: str, dtype: str, shape: Shape) -> Algorithm:
    """The algorithm of a lowering on a backend, by name. A user's own function is held to float32 scores and sums, and
    may normalize weights before or after they are multiplied with the values."""
    fmt = FORMATS[dtype]
    half = fmt.bits == 16
    base = name.removesuffix("-tf32")
    if backend == "cpu":
        found = _on_host(base, half, shape)
    else:
        found = _on_device(base, half)
    if base == "eager" and half and shape.score_mod in TABLES:
        # the graph of its derivative is traced with scores of the dtype, to which that of a sum with float32 goes back
        found = replace(found, graded=True)
    if name.endswith("-tf32"):
        found = replace(
            found,
            operand=TF32,
            operand_bits=TF32_BITS,
            text=f"{found.text}, factors of products rounded to tf32",
            **_TENSOR_CORES,
        )
    if name not in LOWERINGS:
        text = f"{found.text} before or after they are normalized"
        return replace(found, first=None, text=text)
    return found


#: Partial sums of a tensor core are truncated, and terms are aligned to the largest of their group (Fasi, Higham,
#: Mikaitis, Pranesh, PeerJ Comput. Sci. 7, 2021, section 4): at most two truncations of 2^-23 a term.
_TENSOR_CORES: dict[str, Any] = {"unit": 2.0**-23, "adds": 2.0}


def _on_host(name: str, half: bool, shape: Shape) -> Algorithm:
    sleef = published("SLEEF", "exp", "float32").roundings
    own: dict[str, Any] = {"weights": half, "scores": half}
    if name == "eager":
        return Algorithm("flex_attention's dense code: float32 scores, softmax, weights rounded to the dtype", EXP_U20,
                         base2=None, first=True, **own)  # fmt: skip
    if name == "compiled":
        keys = 128 if shape.mask_mod != "none" else None
        return Algorithm("Inductor's C++ template: online softmax of float32 scores, weights rounded to the dtype",
                         EXP_U20, keys=keys, **own)  # fmt: skip
    if name == "sdpa-math":
        return Algorithm("SDPA's math path in float32: sqrt(scale) on queries and keys, softmax", EXP_U20,
                         scaling="inputs", first=True, saved=True, mean="weights")  # fmt: skip
    if name == "sdpa-flash":
        fast = Documented(FEXP_U20 / U, "ATen, fexp_u20", FLUSH, points=False)
        rows = 256 if shape.q_len >= 768 else 64 if shape.q_len >= 192 else 32
        return Algorithm("ATen's flash attention for the CPU: online softmax, gradients added up in the dtype",
                         fast if half else EXP_U20, keys=512, rows=rows, **own)  # fmt: skip
    text = "float32 scores, softmax and sums in any order, weights rounded to the dtype"
    if name.startswith("triton"):
        text = "the hand-written kernel: float32 scores, online softmax in base 2, weights rounded to the dtype"
        return Algorithm(text, Documented(4.0, "numpy's exp2", FLUSH), base2=RCP_LN2, keys=16, **own)
    return Algorithm(text, replace(EXP_U20, units=max(sleef, EXP_U20.units)), keys=128, **own)


def _on_device(name: str, half: bool) -> Algorithm:
    figures = (published("NVIDIA", function, "float32") for function in ("exp", "ex2.approx", "div.full"))
    # ex2 of 0 is 1 (PTX ISA, ex2)
    exp, exp2, full = (Documented(one.roundings, one.source, FLUSH) for one in figures)
    full = replace(full, absolute=0.0, points=False)
    log = Documented(2.0**-22 / U, "lg2.approx", 2.0**-22, points=False)
    own: dict[str, Any] = {"weights": half, "scores": half, "division": full, "log": log}
    cores = _TENSOR_CORES if half else {}
    if name == "eager":
        return Algorithm("flex_attention's dense code: float32 scores, softmax, weights rounded to the dtype", exp,
                         first=True, **own, **cores)  # fmt: skip
    if name == "sdpa-math":
        return Algorithm("SDPA's math path in float32: sqrt(scale) on queries and keys, softmax", exp,
                         scaling="inputs", first=True, saved=True, mean="weights", division=full)  # fmt: skip
    if name == "sdpa-efficient" and not half:
        # 3xtf32: each factor as two tf32 numbers, the product of the two small ones left out
        cores = {**_TENSOR_CORES, "operand": 2.0**-21}
    text = {
        "compiled": "Inductor's Triton template",
        "sdpa-flash": "FlashAttention-2",
        "sdpa-efficient": "memory-efficient attention (CUTLASS)",
        "sdpa-cudnn": "cuDNN, taken for a FlashAttention",
        "triton": "the hand-written kernel",
    }.get(name, "sums in any order")
    text += ": online softmax of float32 scores in base 2, weights rounded to the dtype"
    constant = RCP_LN2 if name in ("compiled", "triton") else 2 * U  # scale log2(e) rounded twice
    return Algorithm(text, exp2, base2=constant, keys=16, mean_stored=name == "compiled", **own, **cores)


# The blocks of a problem


@dataclass
class _Sums:
    """Values and errors of dk and dv of query heads, summed over the rows added so far."""

    mid: dict[str, Tensor] = field(default_factory=dict)
    rad: dict[str, Tensor] = field(default_factory=dict)
    error: dict[str, Tensor] = field(default_factory=dict)

    def add(self, name: str, found: Product, stores: float, u: float) -> None:
        """`stores`: roundings to the dtype on the way."""
        error = found.value.error
        if stores:
            error = error + stores * u * found.size * (1 + u) ** stores
        for part, t in ((self.mid, found.value.mid), (self.rad, found.value.rad), (self.error, error)):
            part[name] = part[name] + t if name in part else t


def bounds(problem: Problem, algorithm: Algorithm) -> dict[str, Tensor]:
    """{output: bound of |computed - true|} in float64, in the outputs' shapes."""
    shape: Shape = problem.extra["shape"]
    device = problem.tensors["query"].device
    fmt = FORMATS[problem.dtype]
    exact = shape.data == "exact" and shape.q_len * shape.kv_len <= EXACT_SCORES
    most = _flex.HOST_SCORES // 8 if device.type == "cpu" else _flex.DEVICE_SCORES // 32
    groups = max(1, most // max(1, shape.group * shape.q_len * shape.kv_len))  # the time of small ones is that of calls
    step = shape.q_len if exact else max(1, most // max(1, shape.group * shape.kv_len))
    n = algorithm.system(fmt, device, exact)
    found = {name: torch.zeros(size, dtype=torch.float64, device=device) for name, size in shape.outputs.items()}
    tables = _flex.on(device, problem.extra["buffers"])
    reals = {name: _grouped(shape, name, t.to(torch.float64)) for name, t in problem.tensors.items()}
    mine = {name: _grouped(shape, name, t) for name, t in found.items()}
    for some in torch.split(torch.arange(shape.batch * shape.kv_heads, device=device), groups):
        sums = _Sums()
        for places in torch.split(torch.arange(shape.q_len, device=device), step):
            rows = _rows(shape, reals, tables, some, places)
            done = forward(n, algorithm, rows)
            at = some[:, None, None], torch.arange(shape.group, device=device)[:, None], places
            mine["out"][at] = done.out.error
            mine["logsumexp"][at] = _single(n, done.logsumexp)[..., 0]
            if shape.backward:
                mine["dq"][at] = _backward(n, algorithm, rows, done, shape, sums)
        for name in sums.mid:
            mine[name][some] = _shared(n, sums, name).error
    return _beside_truth(problem, found) if exact else {name: _known(t) for name, t in found.items()}


def _grouped(shape: Shape, name: str, t: Tensor) -> Tensor:
    """An input or output as (batch * key heads, query heads of each, ...), or (batch * key heads, ...) of keys."""
    group = () if name in ("key", "value", "dk", "dv") else (shape.group,)
    return t.reshape(shape.batch * shape.kv_heads, *group, *t.shape[2:])


def _rows(
    shape: Shape, reals: Mapping[str, Tensor], tables: Mapping[str, Tensor], some: Tensor, places: Tensor
) -> Rows:
    """Query rows at `places` of key heads, by their numbers in the batch: blocks of the shape (key heads, group)."""
    device = places.device
    batch, first = (t[:, None, None, None] for t in (some // shape.kv_heads, some % shape.kv_heads * shape.group))
    place = oracle.Place(
        batch,
        first + torch.arange(shape.group, device=device)[:, None, None],
        places[:, None],
        torch.arange(shape.kv_len, device=device)[None, :],
    )
    mask = oracle.visible(shape.score_mod, shape.mask_mod, place, tables)
    hidden = None if mask is None else ~mask.expand(len(some), shape.group, len(places), shape.kv_len)
    score_mod = _flex.score_mod(shape)
    return Rows(
        reals["query"][some][:, :, places],
        reals["key"][some][:, None],
        reals["value"][some][:, None],
        reals["grad_out"][some][:, :, places],
        hidden,
        shape.scale,
        lambda n, scores: score_mod(n, scores, *place.indices, tables),
        lambda n, scores: derivative(n, score_mod, scores, place, tables),
    )


def _backward(n: Roundoff, a: Algorithm, rows: Rows, done: Forward, shape: Shape, own: _Sums) -> Tensor:
    """The bound of dq; parts of dk and dv go into `own`."""
    queries = shape.q_len * shape.group
    found: Backward = backward(n, a, rows, done, queries)
    stores = 0.0 if a.rows is None else float(-(-shape.q_len // a.rows)) * rows.query.shape[-2] / shape.q_len
    for name, part in (("dk", found.dk), ("dv", found.dv)):
        own.add(name, part, math.ceil(stores), float(n.storage.unit_roundoff))
    return found.dq.error


def _shared(n: Roundoff, sums: _Sums, name: str) -> Rough:
    """The sum over the query heads of each key head, each of which is stored in the dtype first."""
    heads = Rough(n, sums.mid[name].movedim(1, -1), sums.rad[name].movedim(1, -1), sums.error[name].movedim(1, -1))
    if heads.mid.shape[-1] > 1:
        heads = n.sum(n.cast(heads, n.storage))
    mid, rad, error = (t[..., 0] for t in (heads.mid, heads.rad, heads.error))
    return n.result(replace(heads, mid=mid, rad=rad, error=error, held=None))


def _single(n: Roundoff, x: Rough) -> Tensor:
    """The error of an output stored as float32 in every dtype: x is float32 already."""
    return torch.where(x.error.isnan(), math.inf, x.error)


def _known(t: Tensor) -> Tensor:
    """The error, infinite where it is not known."""
    return torch.where(t.isnan(), math.inf, t * UP)


def _beside_truth(problem: Problem, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The bound plus four radii of the truth's own enclosure, which has the same arithmetic."""
    kept = problem.extra["limits"]
    if "truth" not in kept:
        kept["truth"] = _flex.AttentionTruth(problem, problem.tensors["query"].device, LIBRARY)
    result = {}
    for name, t in found.items():
        rad = kept["truth"].enclose(name)[0].rad
        result[name] = _known(t) if rad is None else _known(t + 4 * rad.reshape(t.shape))
    return result
