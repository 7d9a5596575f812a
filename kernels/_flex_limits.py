"""Proven bounds of attention algorithms: the error recurrence of each, evaluated on the problem in float64.

An `Algorithm` says which operations round, and how; `limit` turns it into a bound of every element. Notation: u the
unit roundoff of float32, gamma(n) = nu/(1 - nu), P the true weights, e their relative errors, S^ the computed S.

Scores: |S^ - S| <= scale (gamma(d) + operand rounding) |q||k|^T + r |S|; score_mod by `Running`; then for weights
    |out^ - out| <= (sum P_j (e_j + r) |v_j| + |out| (sum P_j e_j + gamma(n)) + gamma(n) sum P_j |v_j|) (1 + ...)
since out^ = sum P_j (1 + e_j) v_j / sum P_j (1 + e_j) up to roundings (Higham 2002, chapter 3; of softmax: Blanchard,
Higham, Higham, IMA J. Numer. Anal. 41, 2021, section 4). Everything is divided by 1 - sum P_j e_j and multiplied by
1 + max e, so that no term is dropped. Gradients: the same sums through dP, rowsum, dS and the last products.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import torch

from verify.bounds import published
from verify.composite import Limit, Problem
from verify.formats import FORMATS
from verify.kernels import _flex
from verify.kernels.flex_attention import Shape
from verify.oracles import flex_attention as oracle
from verify.oracles._attention import derivative

Tensor = torch.Tensor

U = 2.0**-24
#: A tensor core takes the upper 19 bits of a float32, truncated unless a library rounds first (PTX ISA, mma .tf32).
TF32 = 2.0**-10
#: Covers the roundings of the bound's own float64 arithmetic, and of P and S in it.
SLACK = 1.0 + 2.0**-20
#: float32 numbers below this are flushed to 0 by approximate exponentials.
FLUSH = 2.0**-126
#: ATen's `exp_u20`, "a faster version of exp with ULP=20" (ATen/cpu/vec/vec512/vec512_float.h); an ULP is at most 2u.
EXP_U20 = 40 * U
#: ATen's `fexp_u20` (same file), 2^i (1 + f - K(f)) for x log2(e) = i + f: |K| misses 2^f by at most 1.0652e-4, the
#: product x log2(e) errs by 126 * 1.22u log 2 and the sum with the exponent's bias by 32 * 2^-23.
FEXP_U20 = 1.0652e-4 + 126 * 1.22 * U * math.log(2) + 32 * 2.0**-23
#: RCP_LN2 = 1.44269504 of PyTorch's templates, as a float32, against log2(e): 0.2237u.
RCP_LN2 = 0.224 * U


@dataclass(frozen=True)
class Algorithm:
    """What a lowering computes, as far as it rounds.

    operand     relative rounding of each factor of a product (tf32: 2^-10)
    unit, adds  unit roundoff of an accumulation, and roundings for each of its terms
    scaling     'scores': one product each; 'inputs': sqrt(scale) on queries and on keys
    base2       exponents are multiplied by log2(e) first, with this relative error of the constant (None: base e)
    exp, log    relative errors of the functions; log also absolutely
    division    relative error of a quotient
    keys        keys of a block between two rescalings by exp of the change of the maximum (None: one pass)
    weights     roundoff to which weights are rounded before they meet the values, and its underflow
    first       whether weights are normalized before they meet the values
    saved       whether the gradient reuses the forward weights rather than the logsumexp
    mean        'out': rowsum(dO O) of the stored output; 'weights': rowsum(P dP)
    mean_stored whether that mean is stored in the dtype
    scores      roundoff to which dS is rounded, and its underflow
    rows        queries between two stores of dk and dv in the dtype (None: one store, of each query head)
    """

    text: str
    exp: float
    operand: float = 0.0
    unit: float = U
    adds: float = 1.0
    scaling: str = "scores"
    base2: float | None = None
    log: float = 2 * U
    division: float = 2 * U
    tanh: float = 5 * U
    keys: int | None = None
    weights: tuple[float, float] = (0.0, 0.0)
    first: bool = False
    saved: bool = False
    mean: str = "out"
    mean_stored: bool = False
    scores: tuple[float, float] = (0.0, 0.0)
    rows: int | None = None

    def dot(self, n: int) -> float:
        """Relative error of a product's accumulation over n terms, in units of the sum of magnitudes."""
        x = self.adds * n * self.unit
        return x / (1 - x) if x < 0.5 else math.inf

    @property
    def product(self) -> float:
        """Relative error of a product by the rounding of its factors."""
        return (1 + self.operand) ** 2 - 1


def gamma(n: int) -> float:
    return n * U / (1 - n * U) if n * U < 0.5 else math.inf


def limit(problem: Problem, target: Any, lowering: Any, output: str) -> Limit | None:
    """The bound of `output` by the lowering's algorithm, in the output's own dtype."""
    algorithm = algorithm_of(lowering.name, target.backend.name, problem.dtype, problem.extra["shape"])
    kept: dict[Algorithm, dict[str, Tensor]] = problem.extra["limits"]
    if algorithm not in kept:
        kept[algorithm] = bounds(problem, algorithm)
    if output not in kept[algorithm]:
        return None
    return Limit(kept[algorithm][output], f"{algorithm.text}; error recurrence in kernels/_flex_limits.py")


# Which algorithm a lowering uses


def algorithm_of(name: str, backend: str, dtype: str, shape: Shape) -> Algorithm:
    """By the names of the lowering and the backend. A user's own function is held to float32 scores and sums."""
    fmt = FORMATS[dtype]
    half = fmt.bits == 16
    rounding = (float(fmt.unit_roundoff), float(fmt.smallest_subnormal) / 2) if half else (0.0, 0.0)
    base = name.removesuffix("-tf32")
    if backend == "cpu":
        found = _on_host(base, half, rounding, shape)
    else:
        found = _on_device(base, half, rounding, shape)
    if name.endswith("-tf32"):
        found = replace(found, operand=TF32, text=f"{found.text}, factors of products rounded to tf32", **_TENSOR_CORES)
    return found


#: Partial sums of a tensor core are truncated, and terms are aligned to the largest of their group (Fasi, Higham,
#: Mikaitis, Pranesh, PeerJ Comput. Sci. 7, 2021, section 4): at most two truncations of 2^-23 a term.
_TENSOR_CORES: dict[str, Any] = {"unit": 2.0**-23, "adds": 2.0}


def _on_host(name: str, half: bool, rounding: tuple[float, float], shape: Shape) -> Algorithm:
    sleef = published("SLEEF", "exp", "float32").roundings * U
    own: dict[str, Any] = {"weights": rounding, "scores": rounding}
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
        rows = 256 if shape.q_len >= 768 else 64 if shape.q_len >= 192 else 32
        return Algorithm("ATen's flash attention for the CPU: online softmax, gradients added up in the dtype",
                         FEXP_U20 if half else EXP_U20, keys=512, rows=rows, **own)  # fmt: skip
    text = "float32 scores, softmax and sums in any order, weights rounded to the dtype"
    if name.startswith("triton"):
        text = "the hand-written kernel: float32 scores, online softmax in base 2, weights rounded to the dtype"
        return Algorithm(text, 4 * U, base2=RCP_LN2, keys=16, **own)
    return Algorithm(text, max(sleef, EXP_U20), keys=128, **own)


def _on_device(name: str, half: bool, rounding: tuple[float, float], shape: Shape) -> Algorithm:
    exp = published("NVIDIA", "exp", "float32").roundings * U
    exp2 = published("NVIDIA", "ex2.approx", "float32").roundings * U
    full = published("NVIDIA", "div.full", "float32").roundings * U
    own: dict[str, Any] = {"weights": rounding, "scores": rounding, "division": full, "log": 2.0**-22}
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


# Running errors of score_mod


@dataclass(frozen=True, eq=False)
class Running:
    """A float64 value and a bound of what float32 arithmetic makes of it: |computed - value| <= error."""

    n: RunningErrors
    value: Tensor
    error: Tensor | float = 0.0

    def __add__(self, other: Any) -> Running:
        b = self.n.const(other)
        return self.n.rounded(self.value + b.value, self.error + b.error)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Running:
        return self + -self.n.const(other)

    def __rsub__(self, other: Any) -> Running:
        return self.n.const(other) + -self

    def __mul__(self, other: Any) -> Running:
        b = self.n.const(other)
        spread = self.value.abs() * b.error + b.value.abs() * self.error + self.error * b.error
        return self.n.rounded(self.value * b.value, spread)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Running:
        b = self.n.const(other)
        value = self.value / b.value
        room = b.value.abs() - b.error
        spread = torch.where(room > 0, (self.error + value.abs() * b.error) / room, torch.inf)
        return self.n.rounded(value, spread, self.n.division)

    def __rtruediv__(self, other: Any) -> Running:
        return self.n.const(other) / self

    def __neg__(self) -> Running:
        return replace(self, value=-self.value)

    def __abs__(self) -> Running:
        return replace(self, value=self.value.abs())


class RunningErrors:
    """The running error analysis of Higham 2002, section 3.3, over the operations of a score_mod in float32."""

    def __init__(self, algorithm: Algorithm, device: Any) -> None:
        self.device = device
        self.division = max(algorithm.division, 2 * U)  # a constant divisor may become a factor
        self.exp_error, self.log_error, self.tanh_error = algorithm.exp, algorithm.log, algorithm.tanh

    def rounded(self, value: Tensor, spread: Tensor | float, own: float = U) -> Running:
        return Running(self, value, spread * (1 + own) + value.abs() * own + FLUSH)

    def const(self, value: Any) -> Running:
        if isinstance(value, Running):
            return value
        exact = Fraction(value)
        near = torch.tensor(float(exact), dtype=torch.float64, device=self.device)
        error = abs(Fraction(float(torch.tensor(float(exact), dtype=torch.float32))) - exact)
        return Running(self, near, float(error) * SLACK)

    def input(self, values: Tensor) -> Running:
        return Running(self, values.to(self.device, torch.float64))

    def index(self, values: Tensor) -> Running:
        return self.input(values)

    def exp(self, a: Running) -> Running:
        value = a.value.exp()
        return self.rounded(value, value * torch.expm1(torch.as_tensor(a.error)), self.exp_error)

    def log(self, a: Running) -> Running:
        room = a.value - a.error
        spread = torch.where(room > 0, a.error / room, torch.inf)
        return self.rounded(a.value.log(), spread + self.log_error, self.log_error)

    def sqrt(self, a: Running) -> Running:
        value = a.value.sqrt()
        return self.rounded(value, torch.where(a.value > 0, a.error / value, torch.inf), 2 * U)

    def tanh(self, a: Running) -> Running:
        return self.rounded(a.value.tanh(), a.error, self.tanh_error)

    def where(self, predicate: Tensor, a: Any, b: Any) -> Running:
        x, y = self.const(a), self.const(b)
        return Running(self, torch.where(predicate, x.value, y.value), torch.where(predicate, x.error, y.error))


# The recurrence


@dataclass
class _Sums:
    """Bounds of the outputs of one head of keys, as far as its query heads have been added."""

    value: dict[str, Tensor] = field(default_factory=dict)
    error: dict[str, Tensor] = field(default_factory=dict)
    stores: dict[str, Tensor] = field(default_factory=dict)


def bounds(problem: Problem, algorithm: Algorithm) -> dict[str, Tensor]:
    """{output: bound of |computed - true|} in float64, in the outputs' shapes."""
    shape: Shape = problem.extra["shape"]
    device = problem.tensors["query"].device
    fmt = FORMATS[problem.dtype]
    most = _flex.HOST_SCORES // 8 if device.type == "cpu" else _flex.DEVICE_SCORES // 32
    step = max(1, most // max(1, shape.kv_len))
    found = {name: torch.zeros(size, dtype=torch.float64, device=device) for name, size in shape.outputs.items()}
    tables = {name: t.to(device) for name, t in problem.extra["buffers"].items()}
    reals = {name: t.to(torch.float64) for name, t in problem.tensors.items()}
    for b in range(shape.batch):
        for g in range(shape.kv_heads):
            sums = _Sums()
            for h in range(g * shape.group, (g + 1) * shape.group):
                own = _Sums()
                for start in range(0, shape.q_len, step):
                    rows = torch.arange(start, min(start + step, shape.q_len), device=device)
                    block = _Block(algorithm, shape, reals, tables, b, h, rows)
                    found["out"][b, h, rows], found["logsumexp"][b, h, rows] = block.forward(fmt)
                    if shape.backward:
                        found["dq"][b, h, rows] = block.backward(fmt, own, found["out"][b, h, rows])
                for name, value in own.value.items():  # each query head is stored, then the heads are added
                    error = own.error[name]
                    stored = float(fmt.unit_roundoff) * (value.abs() + error) if shape.group > 1 else 0.0
                    _accumulate(sums, name, value, error + stored)
                    sums.stores[name] = sums.stores.get(name, 0.0) + own.stores.get(name, torch.zeros_like(value))
            for name, value in sums.value.items():
                error = sums.error[name] + sums.stores[name]
                error = error * (1 + gamma(shape.group)) + gamma(shape.group) * value.abs()
                found[name][b, g] = _stored(value, error, fmt)
    return found


def _accumulate(sums: _Sums, name: str, value: Tensor, error: Tensor) -> None:
    sums.value[name] = sums.value[name] + value if name in sums.value else value
    sums.error[name] = sums.error[name] + error if name in sums.error else error


def _stored(value: Tensor, error: Tensor, fmt: Any) -> Tensor:
    """With the rounding to the output's format, infinite where it may overflow."""
    u, tiny, top = float(fmt.unit_roundoff), float(fmt.smallest_subnormal) / 2, float(fmt.max_finite)
    total = (error * (1 + u) + u * value.abs()) * SLACK + tiny
    return torch.where(value.abs() + total > top, torch.inf, total)


class _Block:
    """Rows `rows` of query head h: true scores and weights in float64, and the errors of an algorithm's."""

    def __init__(
        self, algorithm: Algorithm, shape: Shape, reals: Mapping[str, Tensor], tables: Mapping[str, Tensor], b: int,
        h: int, rows: Tensor,
    ) -> None:  # fmt: skip
        a, g = algorithm, h // shape.group
        self.algorithm, self.shape = a, shape
        self.query, self.key, self.value = reals["query"][b, h][rows], reals["key"][b, g], reals["value"][b, g]
        self.grad_out = reals["grad_out"][b, h][rows]
        device = rows.device
        place = oracle.Place(
            torch.tensor([[b]], device=device),
            torch.tensor([[h]], device=device),
            rows[:, None],
            torch.arange(shape.kv_len, device=device)[None, :],
        )
        self.mask = oracle.visible(shape.score_mod, shape.mask_mod, place, tables)
        sizes = self.query.abs() @ self.key.abs().T
        raw = (self.query @ self.key.T) * shape.scale
        exact = math.frexp(shape.scale)[0] == 0.5
        scaling = 0.0 if a.scaling == "scores" and exact else 2 * U
        terms = 4 * U if a.scaling == "inputs" else 0.0
        spread = (a.dot(shape.head_dim) + a.product + terms) * shape.scale * sizes * (1 + scaling) + scaling * raw.abs()
        self.n = RunningErrors(a, device)
        self.scores = Running(self.n, raw, spread + shape.head_dim * 2.0**-140)
        score_mod = _flex.score_mod(shape)
        modified = score_mod(self.n, self.scores, *place.indices, tables)
        self.slope = derivative(self.n, score_mod, self.scores, place, tables)
        self.modified = modified
        hidden = torch.zeros_like(modified.value, dtype=torch.bool) if self.mask is None else ~self.mask.expand_as(raw)
        self.hidden = hidden
        shown = modified.value.masked_fill(hidden, -torch.inf)
        self.empty = hidden.all(-1, keepdim=True)
        top = torch.where(self.empty, 0.0, shown.amax(-1, keepdim=True))
        terms_ = torch.where(hidden, 0.0, torch.exp(shown - top))
        total = terms_.sum(-1, keepdim=True)
        self.weights = terms_ / torch.where(self.empty, 1.0, total)
        self.log_total = torch.where(self.empty, 0.0, total.log())
        self.lse = top + self.log_total
        self.distance = torch.where(hidden, 0.0, top - modified.value)
        self.magnitude = torch.where(hidden, 0.0, modified.value.abs())
        self.spread = torch.where(hidden, 0.0, torch.as_tensor(modified.error).expand_as(raw))
        self.total = torch.where(self.empty, 1.0, total)

    def forward(self, fmt: Any) -> tuple[Tensor, Tensor]:
        """Bounds of out and logsumexp."""
        a, n = self.algorithm, self.shape.kv_len
        steps = 0 if a.keys is None else -(-n // a.keys)
        # The maximum that is subtracted may err, which no weight notices. Differences round, and those of one maximum
        # to the next add up to the distance from the last one.
        widest = self.spread.amax(-1, keepdim=True)
        errors = self.spread + U * (self.distance + self.spread + (1 + 2 * steps) * widest)
        constant = 0.0
        if a.base2 is not None:
            errors = errors + U * (self.magnitude + self.spread) + a.base2 * self.distance
            constant = a.base2
        relative = torch.expm1(errors) * (1 + a.exp) + a.exp + steps * (a.exp + 3 * U)
        missing = FLUSH / self.total  # each exponential may be flushed
        self.error = error = (self.weights * relative).sum(-1, keepdim=True) + n * missing
        most = 1 + relative.amax(-1, keepdim=True)
        room = torch.where(error < 0.5, 1 - error, torch.nan)
        self.common = (error + gamma(n)) / room * (1 + gamma(n))
        rounding, tiny = a.weights
        extra = relative + rounding + (a.division if a.first else 0.0)
        sizes = self.weights @ self.value.abs()
        out = self.weights @ self.value
        direct = (self.weights * extra) @ self.value.abs() + (a.dot(n) + a.product) * most * sizes
        lost = (tiny if a.first else tiny / self.total) + missing
        direct = direct + lost * self.value.abs().sum(0, keepdim=True) * (1 + a.dot(n))
        division = 0.0 if a.first else a.division
        whole = (direct * (1 + a.product) / room + out.abs() * self.common) * (1 + division) + division * out.abs()
        self.out = out
        bound = _stored(out, _known(whole) * most, fmt)
        self.relative = relative
        logs = self.common + constant * ((self.weights * self.magnitude).sum(-1, keepdim=True))
        change = 2 * (U + RCP_LN2) * self.lse.abs()  # to base 2 and back
        lse = logs + a.log * (1 + self.log_total.abs()) + U * (self.lse.abs() + self.log_total.abs()) + change
        self.lse_error = _known(lse) * SLACK
        single = _stored(self.lse, self.lse_error, FORMATS["float32"])
        nothing = self.empty
        return torch.where(nothing, 0.0, bound), torch.where(nothing, 0.0, single)[:, 0]

    def backward(self, fmt: Any, own: _Sums, out_bound: Tensor) -> Tensor:
        """Bound of dq; shares of dk and dv go into `own`. `out_bound`: that of the output as stored."""
        a, n, d, scale = self.algorithm, self.shape.kv_len, self.shape.head_dim, self.shape.scale
        weights, grad = self.weights, self.grad_out.abs()
        if a.saved:
            error = (self.relative + a.division + self.common) * (1 + self.common)
        else:
            away = (self.lse - self.modified.value).abs()
            exponent = self.spread + U * (away + self.spread + self.lse_error) + self.lse_error
            if a.base2 is not None:
                exponent = exponent + (U + a.base2) * (self.magnitude + self.spread + self.lse.abs())
            error = torch.expm1(exponent) * (1 + a.exp) + a.exp
        error = torch.where(weights > 0, _known(error), 0.0)
        missing = FLUSH
        rounding, tiny = a.weights
        most = 1 + float(error.max()) + rounding
        rows = self.shape.q_len * self.shape.group
        into = (a.dot(rows) + a.product) * most
        dv = weights.T @ self.grad_out
        dv_error = (weights * (error + rounding)).T @ grad * (1 + a.product) + into * (weights.T @ grad)
        dv_error = dv_error + (tiny + missing) * grad.sum(0, keepdim=True) * (1 + into)

        passed = self.grad_out @ self.value.T
        passed_size = grad @ self.value.abs().T
        passed_error = (a.dot(d) + a.product) * passed_size
        mean = (weights * passed).sum(-1, keepdim=True)
        if a.mean == "out":
            mean_error = (grad * out_bound).sum(-1, keepdim=True) * (1 + gamma(d))
            mean_error = mean_error + gamma(d) * (grad * self.out.abs()).sum(-1, keepdim=True)
            if a.mean_stored:
                mean_error = mean_error * (1 + float(fmt.unit_roundoff)) + float(fmt.unit_roundoff) * mean.abs()
        else:
            parts = (weights * (error * passed.abs() + passed_error * (1 + error))).sum(-1, keepdim=True)
            mean_error = parts + gamma(n) * ((weights * passed.abs()).sum(-1, keepdim=True) + parts)
        mean_error = torch.where(self.empty, 0.0, _known(mean_error))
        gap = (passed - mean).abs()
        size = passed.abs() + mean.abs() + passed_error + mean_error
        change = weights * (passed - mean)
        change_error = weights * (error * gap + (1 + error) * (passed_error + mean_error + 3 * U * size))
        change_error = change_error + missing * size
        if not isinstance(self.slope, int):
            steep = self.slope.value.abs()
            off = self.slope.error + 2 * U * steep
            change_error = change_error * (steep + off) + change.abs() * off
            change = change * self.slope.value
        elif self.slope == 0:
            change, change_error = change * 0.0, change_error * 0.0
        rounding, tiny = a.scores
        late = 2 * U + rounding  # the scale, before or after the product, and the rounding to the dtype
        change_error = change_error + late * (change.abs() + change_error) + tiny / scale
        change_error = torch.where(self.hidden, 0.0, change_error)
        both = change.abs() + change_error

        def product(transposed: bool, factor: Tensor, terms: int) -> tuple[Tensor, Tensor, Tensor]:
            one, err, most_ = (t.T if transposed else t for t in (change, change_error, both))
            sizes = most_ @ factor.abs()
            value = scale * (one @ factor)
            bound = scale * (err @ factor.abs() * (1 + a.product) + (a.dot(terms) + a.product) * sizes)
            return value, bound + 3 * U * (value.abs() + bound), scale * sizes

        dq, dq_error, dq_size = product(False, self.key, n)
        dk, dk_error, dk_size = product(True, self.query, rows)
        if a.rows is not None:  # stored in the dtype after each block of keys and of queries
            u = float(fmt.unit_roundoff)
            dq_error = dq_error + -(-n // (a.keys or n)) * u * dq_size * (1 + u) ** 64
            times = self.shape.group * -(-self.shape.q_len // a.rows)
            for name, more in (("dk", dk_size), ("dv", weights.T @ grad * most)):
                own.stores[name] = own.stores.get(name, torch.zeros_like(more)) + times * u * more * (1 + u) ** times
        _accumulate(own, "dk", dk, dk_error)
        _accumulate(own, "dv", dv, dv_error)
        return _stored(dq, dq_error, fmt)


def _known(t: Tensor) -> Tensor:
    """Infinite where the recurrence has lost hold."""
    return torch.where(torch.isnan(t), torch.inf, t)
