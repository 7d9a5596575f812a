"""Proven bounds of sums, scans and softmax: the error recurrence of the algorithm that a lowering declares.

Notation: u the unit roundoff of the format in which an operation is computed (of each stored combination, where every
one is rounded to the storage dtype), t the truth, k the number of roundings on a path. All terms are positive and
evaluated in float64; SLACK covers the roundings of that. Derivations are in the functions' docstrings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from verify.bounds import published
from verify.composite import Limit, Problem
from verify.formats import FORMATS, Format
from verify.kernels._scans import BLOCK
from verify.kernels._scans_truth import rows_of
from verify.lowerings import Lowering, Target
from verify.numbers.arrays import BallArrays, gamma, scan

Tensor = torch.Tensor
SLACK = 1.0 + 2.0**-20
#: Errors of logcumsumexp up to which local errors, taken at the truth, are carried over to the computed values.
REACH = (2.0**-40, 2.0**-30, 2.0**-20, 2.0**-10, 2.0**-7, 2.0**-4, 0.25, 1.0, 2.0)

#: Relative errors in units of u that documents state, where `kernels/vendor_bounds.toml` has none: (value, source).
DOCUMENTED = {
    ("glibc", "exp", "float32"): (2.0, "GNU C Library Reference Manual, Known Maximum Errors: expf 1 ULP"),
    ("glibc", "exp", "float64"): (2.0, "GNU C Library Reference Manual, Known Maximum Errors: exp 1 ULP"),
    ("glibc", "log1p", "float64"): (2.0, "GNU C Library Reference Manual, Known Maximum Errors: log1p 1 ULP"),
    ("glibc", "log1p", "float32"): (
        2.6,
        "Zimmermann et al., Accuracy of Mathematical Functions in Single, Double...: log1pf of glibc 1.30 ULP",
    ),
    ("NVIDIA", "log1p", "float32"): (3.0, "CUDA Programming Guide, 5.5: log1pf 1 step from the rounded result"),
    ("NVIDIA", "log1p", "float64"): (3.0, "CUDA Programming Guide, 5.5: log1p 1 step from the rounded result"),
    ("AMD", "log1p", "float32"): (3.0, "hip-tests, catch/unit/math: log1pf 1 step"),
    ("AMD", "log1p", "float64"): (3.0, "hip-tests, catch/unit/math: log1p 1 step"),
    ("own", "exp", "float32"): (1.125, "kernels/triton/exp.py: below 1/2 + 2^-5 ULP"),
    ("own", "log1p", "float32"): (4.0, "kernels/triton/scans.py: below 2 ULP"),
    ("metal", "exp", "float32"): (2.13, "kernels/metal/logcumsumexp.py: 1.06 u, and 1 of the argument's correction"),
    ("metal", "log1p", "float32"): (3.1, "kernels/metal/logcumsumexp.py: 2 + u, the quotient and the last fma"),
    ("user", "exp", "float32"): (4.0, "2 ULP, what a lowering of one's own is held to"),
    ("user", "exp", "float64"): (4.0, "2 ULP, what a lowering of one's own is held to"),
    ("user", "log1p", "float32"): (4.0, "2 ULP, what a lowering of one's own is held to"),
    ("user", "log1p", "float64"): (4.0, "2 ULP, what a lowering of one's own is held to"),
}


@dataclass(frozen=True)
class Algorithm:
    """What a lowering declares about its roundings.

    compute, storage  formats of an operation and of the output
    each              every combination is rounded to `storage`, not only the result
    sequential        from left to right; else any order with at most `depth(i)` combinations on the path of a term
                      that the result of i + 1 terms contains
    library           whose exp and log1p
    quotient          roundings of softmax's quotient, in units of u
    rescaled          softmax corrects its running sum by exponentials of differences of maxima
    halved            softmax rounds the exponentials to `storage` before the quotient
    """

    text: str
    compute: Format
    storage: Format
    each: bool = False
    sequential: bool = False
    depth: Any = None
    library: str = ""
    quotient: float = 1.0
    rescaled: bool = False
    halved: bool = False

    @property
    def u(self) -> float:
        """Of one combination."""
        u = float(self.compute.unit_roundoff)
        s = float(self.storage.unit_roundoff)
        return u + s * (1 + u) if self.each and self.storage != self.compute else u

    @property
    def widest(self) -> float:
        """The largest finite intermediate."""
        held = self.storage if self.each else self.compute
        return float(held.max_finite)

    @property
    def unit(self) -> float:
        """The smallest subnormal of an intermediate."""
        held = self.storage if self.each else self.compute
        return float(held.smallest_subnormal)

    @property
    def normal(self) -> float:
        held = self.storage if self.each else self.compute
        return float(held.smallest_normal)

    def paths(self, n: int, device: Any) -> Tensor:
        """Combinations on the longest path to each of n positions, float64."""
        i = torch.arange(n, dtype=torch.float64, device=device)
        return i if self.depth is None else torch.minimum(i, self.depth(i))

    def error(self, function: str) -> tuple[float, str]:
        """Relative error of exp or log1p in absolute terms, and its source."""
        u = float(self.compute.unit_roundoff)
        known = DOCUMENTED.get((self.library, function, self.compute.name))
        if known is not None:
            return known[0] * u, known[1]
        figure = published(self.library, function, self.compute.name)
        return figure.roundings * u, figure.source


# ---------------------------------------------------------------- which lowering declares which algorithm


def algorithm(problem: Problem, target: Target, lowering: Lowering) -> Algorithm | None:
    """The algorithm of a lowering, or None where nothing is known of it."""
    name, backend = target.kernel.name, target.backend.name
    storage = FORMATS[target.dtype]
    wide = FORMATS["float64"] if target.dtype == "float64" else FORMATS["float32"]
    last = problem.parameters["dim"] in (-1, len(problem.parameters["shape"]) - 1)
    n = problem.tensors["x"].shape[problem.parameters["dim"]]
    vendor = {"cpu": "glibc", "cuda": "NVIDIA", "rocm": "AMD"}.get(backend)
    if lowering.name.startswith("triton"):
        library = "own" if wide.name == "float32" else str(vendor)
        return Algorithm(
            f"{BLOCK} running sums, then any order" if name in ("sum", "softmax") else
            f"blocks of {BLOCK} from left to right, any order inside",
            wide, storage, library=library, depth=lambda i: i.clamp(max=BLOCK - 1) + (i / BLOCK).floor(),
        )  # fmt: skip
    if lowering.name == "metal":
        text = "sequential in float32, one thread a row (kernels/metal/logcumsumexp.py)"
        return Algorithm(text, wide, storage, sequential=True, library="metal")
    if lowering.name == "eager" and backend == "cpu":
        if name == "sum":
            depth = cascade_depth(n)
            return Algorithm(
                f"cascade_sum of ATen's SumKernel.cpp, at most {depth} additions on a path", wide, storage,
                depth=lambda i: torch.full_like(i, depth),
            )  # fmt: skip
        if name == "softmax":
            vectors = last and storage.bits > 16
            lanes = max(-(-n // w) + w for w in (4, 8, 16)) if vectors else n
            halved = not last and storage.bits == 16
            text = "vectorised sum, then its reciprocal" if last else "left to right, then the quotient"
            kept = f", the exponentials kept in {storage.name} (seen)" if halved else ""
            return Algorithm(
                f"{text}{kept} (ATen's SoftMaxKernel.cpp)", wide, storage,
                depth=lambda i: torch.full_like(i, lanes), library="SLEEF", quotient=2.0, halved=halved,
            )  # fmt: skip
        # at::acc_type<scalar_t, false>: double for float
        accumulator = FORMATS["float32"] if storage.bits == 16 else FORMATS["float64"]
        return Algorithm(
            f"sequential in {accumulator.name} (ATen's ReduceOpsKernel.cpp)", accumulator, storage, sequential=True,
            library="glibc",
        )  # fmt: skip
    if lowering.name == "eager" and backend in ("cuda", "rocm"):
        if name in ("sum", "softmax"):
            return Algorithm("any order", wide, storage, library=str(vendor), quotient=2.0)
        each = storage.bits == 16
        if problem.tensors["x"].dim() == 1:
            return Algorithm("cub's scan, any order", wide, storage, each=each, library=str(vendor))
        if last:
            threads = inner_threads(problem.tensors["x"].numel() // max(n, 1), n)
            steps = threads.bit_length() + 1
            return Algorithm(
                f"Sklansky's scan of blocks of {2 * threads} (ScanUtils.cuh)", wide, storage, each=each,
                depth=lambda i: ((i / (2 * threads)).floor() + 1) * steps, library=str(vendor),
            )  # fmt: skip
        return Algorithm("sequential (ScanUtils.cuh)", wide, storage, each=each, sequential=True, library=str(vendor))
    if lowering.name.startswith("inductor"):
        if backend == "cpu":
            return Algorithm("any order", wide, storage, library="SLEEF", quotient=1.0)
        if backend in ("cuda", "rocm"):
            return Algorithm("any order", wide, storage, library=str(vendor), quotient=4.0, rescaled=True)
        return None
    if ":" in lowering.name:
        return Algorithm("any order", wide, storage, library="user", quotient=4.0)
    return None


def inner_threads(rows: int, n: int) -> int:
    """Threads along a row of ATen's CUDA scan (get_log_num_threads_x_inner_scan, ScanUtils.cuh)."""
    difference = max(n - 1, 0).bit_length() - max(rows - 1, 0).bit_length()
    half = int((9 + difference) / 2)  # C++ divides toward zero
    return 1 << int(min(max(half, 4), 9))


def cascade_depth(n: int) -> int:
    """Additions on the longest path of ATen's cascade_sum, for vectors of 1 to 16 lanes, whole or split by threads."""
    found = 0
    for size in {n, -(-n // max(torch.get_num_threads(), 1))}:
        for lanes in (1, 2, 4, 8, 16, 32):
            for rows in (size // lanes, size // lanes // 4):
                found = max(found, _levels(rows) + 3 + 3 + lanes + lanes)
    return int(min(max(n - 1, 0), found + torch.get_num_threads() + 2))


def _levels(size: int) -> int:
    """Additions in multi_row_sum: four levels of 2^power steps, the last one open, then one for each level."""
    power = max(4, (max(size - 1, 0)).bit_length() // 4)
    step = 1 << power
    closed = sum(min(step, (size >> level * power) + 1) for level in range(3))
    return closed + (size >> 3 * power) + 1 + 3


# ---------------------------------------------------------------- the bounds


def limit(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit | None:
    """The bound of every element of the output, in its shape."""
    name = target.kernel.name
    x, dim = problem.tensors["x"], problem.parameters["dim"]
    moved = x.movedim(dim, -1)
    shape = moved.shape[:-1] if name == "sum" else moved.shape

    def placed(rows: Tensor) -> Tensor:
        found = rows.expand(math.prod(moved.shape[:-1]), 1 if name == "sum" else moved.shape[-1]).reshape(shape)
        return found if name == "sum" else found.movedim(-1, dim)

    storage = FORMATS[target.dtype]
    if name in ("cummax", "cummin"):
        # Any error is at least one unit.
        half = torch.full((1, 1), float(storage.smallest_subnormal) / 2, dtype=torch.float64, device=x.device)
        return Limit(placed(half), "exact by definition: below the smallest step")
    known = algorithm(problem, target, lowering)
    if known is None:
        return None
    rows = rows_of(x, dim)
    kept: dict[Any, Any] = problem.extra.get("sizes", {})
    key = (name, x.device.type)
    if key not in kept:
        kept[key] = _SIZES[name](BallArrays(x.device), rows)
    error, truth, source = _ERRORS[name](known, kept[key])
    bound = _stored(error, truth, known)
    special = kept[key].special
    # Where special values decide there is nothing to bound, unless a finite partial result may have overflowed.
    bound = torch.where(special & torch.isfinite(bound), float(storage.smallest_subnormal) / 2, bound)
    return Limit(placed(bound), f"{source}; {known.text}")


def _stored(error: Tensor, truth: Tensor, known: Algorithm) -> Tensor:
    """With the last rounding to storage; infinite where overflow or not is left open."""
    fmt = known.storage
    if fmt != known.compute and not known.each:
        error = error + float(fmt.unit_roundoff) * (truth + error)
    half = float(fmt.smallest_subnormal) / 2 or float(fmt.smallest_subnormal)  # float64 holds no half unit
    bound = (error + half) * SLACK
    threshold = float(fmt.max_finite) * (1 + float(fmt.unit_roundoff))
    open_ = (truth * (1 - 2.0**-40) - bound < threshold) & (truth * (1 + 2.0**-40) + bound >= threshold)
    return torch.where(open_ | torch.isnan(bound), torch.inf, bound)


def _growth(k: Tensor, u: float) -> Tensor:
    """(1 + u)^k - 1."""
    return torch.expm1(k * math.log1p(u))


def _affine(factor: Tensor, term: Tensor) -> Tensor:
    """E_i = factor_i E_{i-1} + term_i along the last axis, of non-negative numbers."""
    return scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (factor, term))[1]  # type: ignore[no-any-return]


def _upper(ball: Any) -> Tensor:
    radius: Tensor = torch.as_tensor(ball.radius, dtype=torch.float64, device=ball.mid.device)
    size: Tensor = ball.mid.abs() + radius
    return size


@dataclass(frozen=True)
class Sizes:
    """What the bounds of one problem are made of; float64, rows by positions. truth: upper bounds of |t|."""

    truth: Tensor
    special: Tensor
    parts: tuple[Tensor, ...] = ()


def _running(t: Tensor) -> Tensor:
    """Running maxima."""
    top: Tensor = t.cummax(-1).values if t.shape[-1] else t
    return top


def _sums(x: Tensor, size: Tensor, n: int) -> Tensor:
    """Upper bounds of |sum| from float64 sums and the sums of |x|, whatever the order (Higham 2002, (4.4))."""
    return x.abs() + size * gamma(n)


def _prefixes(n: BallArrays, rows: Tensor) -> Sizes:
    x = rows.to(torch.float64)
    odd = ~torch.isfinite(x)
    x = torch.where(odd, 0.0, x)
    size = x.abs().cumsum(-1)
    return Sizes(_sums(x.cumsum(-1), size, x.shape[-1]), n.seen(odd), (size,))


def _totals(n: BallArrays, rows: Tensor) -> Sizes:
    x = rows.to(torch.float64)
    odd = ~torch.isfinite(x)
    x = torch.where(odd, 0.0, x)
    size = x.abs().sum(-1, keepdim=True)
    count = torch.full((1, 1), float(max(x.shape[-1] - 1, 0)), dtype=torch.float64, device=x.device)
    return Sizes(_sums(x.sum(-1, keepdim=True), size, x.shape[-1]), n.anywhere(odd), (size, count))


def _sum_error(known: Algorithm, sizes: Sizes) -> tuple[Tensor, Tensor, str]:
    """Any order: ((1 + u)^k - 1) sum|x| with k roundings on the longest path (Higham 2002, (4.4), (4.6))."""
    size, last = sizes.parts
    k = last if known.depth is None else torch.minimum(last, known.depth(last))
    error = _growth(k, known.u) * size
    error = torch.where(size + error >= known.widest, torch.inf, error)
    return error, sizes.truth, "Higham 2002, 4.2: ((1 + u)^k - 1) sum|x|"


def _cumsum_error(known: Algorithm, sizes: Sizes) -> tuple[Tensor, Tensor, str]:
    """Any order: as `_sum_error`. From left to right E_i = (1 + u) E_{i-1} + u|s_i|, and the first term is exact: each
    computed sum is (s + E_{i-1})(1 + d), |d| <= u (Higham 2002, 4.2, the running error bound)."""
    (size,) = sizes.parts
    n = size.shape[-1]
    if known.sequential:
        steps = torch.arange(n, dtype=torch.float64, device=size.device)
        terms = torch.where(steps > 0, sizes.truth, 0.0)
        error = known.u * terms.cumsum(-1) * (1 + _growth(steps, known.u))
        error = torch.where(_running(sizes.truth + error) >= known.widest, torch.inf, error)
        return error, sizes.truth, "Higham 2002, 4.2: E = (1 + u) E + u|s|, the running error bound"
    error = _growth(known.paths(n, size.device), known.u) * size
    error = torch.where(size + error >= known.widest, torch.inf, error)
    return error, sizes.truth, "Higham 2002, 4.2: ((1 + u)^k - 1) sum|x|"


def _blur(n: int) -> float:
    """A bound of the errors of a running sum of n binary logarithms."""
    return 1e-6 + n * 1e-9


def _products(n: BallArrays, rows: Tensor) -> Sizes:
    x = rows.to(torch.float64).abs()
    usable = torch.isfinite(x) & (x != 0)
    ball = n.cumprod(n.input(torch.where(usable, rows, torch.ones_like(rows))))
    size = _upper(ball)
    logs = torch.where(usable, x, 1.0).log2().cumsum(-1)
    # A ball whose midpoint underflows says nothing.
    size = torch.where(torch.isfinite(size), size, torch.exp2(logs + _blur(x.shape[-1])) + 2.0**-1074)
    zero = torch.zeros_like(logs[..., :1])
    before = torch.cat([zero, logs[..., :-1]], -1)
    # Largest and smallest product of consecutive factors that end at or before a position.
    rise = _running(logs + _running(-before)) if logs.shape[-1] else logs
    fall = -_running(-logs + _running(before)) if logs.shape[-1] else logs
    infinite = n.seen(x == torch.inf)
    return Sizes(size, n.seen(~usable), (torch.where(usable, x, 1.0), rise, fall, logs, infinite))


def _cumprod_error(known: Algorithm, sizes: Sizes) -> tuple[Tensor, Tensor, str]:
    """From left to right E_i = |x_i|(1 + u) E_{i-1} + u|p_i|, and half a unit where p_i may be subnormal.

    In any order a result has i roundings, all relative: ((1 + u)^i - 1)|p_i| (Higham 2002, lemma 3.1); a partial
    product s below the normal range adds a relative unit / 2|s|.

    Where such s are far below the unit that says nothing, but this does: each of the i products is ab(1 + d) + h, with
    h = 0 or d = 0, |h| <= unit for one or two roundings. Multiplied out, the result is a sum over sets of k products
    that contain none another: their h's, times what is left of the factors, at most k + 1 runs of consecutive ones,
    none above M = max(1, the largest product of consecutive factors). There are at most (i over k) such sets, so that
    E_i = ((1 + u)^i - 1)|p_i| + (1 + u)^i M ((1 + M unit)^i - 1).

    Infinite where a partial product may overflow.
    """
    x, rise, fall, logs, infinite = sizes.parts
    n = x.shape[-1]
    top, low = math.log2(known.widest), math.log2(known.normal)
    blur = _blur(n)
    steps = torch.arange(n, dtype=torch.float64, device=x.device)
    if known.sequential:
        under = _running(-logs) > -low - 1e-3 - blur
        # torch.where of two Python numbers is float32, which holds no half unit.
        below = (logs < low + blur).to(torch.float64) * (known.unit / 2)
        term = torch.where(steps > 0, known.u * sizes.truth + below, 0.0)
        # The sum is never 0, so that an infinite factor makes it infinite rather than undefined.
        error = _affine(x * (1 + known.u), term + 2.0**-1060)
        over = (_running(logs) + blur >= top) | (_running(sizes.truth + error) >= known.widest)
        error = torch.where(over, torch.inf, error)
        source = "E = |x|(1 + u) E + u|p|, and the subnormal unit / 2"
    else:
        under = (fall < low + blur) & (steps > 0)
        lost = torch.where(under, torch.exp2(math.log2(known.unit) - 1 - fall), 0.0)  # float64 holds no half unit
        logarithm = steps * (math.log1p(known.u) + torch.log1p(lost))
        error = torch.expm1(logarithm) * sizes.truth + under.to(torch.float64) * known.unit
        error = torch.where((rise + 2 * logarithm + blur >= top) | error.isnan(), torch.inf, error)
        most = torch.exp2(rise.clamp(0.0, 1000.0) + blur)  # finite, as 0 inf is undefined
        grown = _growth(steps, known.u)
        second = (1 + grown) * most * torch.expm1(steps * torch.log1p(most * known.unit))
        over = (rise >= min(top, 1000.0) - blur) | (most * (1 + grown) + second >= known.widest)
        error = torch.minimum(error, torch.where(over, torch.inf, grown * sizes.truth + second))
        source = "Higham 2002, lemma 3.1: ((1 + u)^i - 1)|p|, and the subnormal unit / 2 over partial products"
    # Once the error is of its size, a subnormal truth may have been flushed on the way; and what is 0 meets inf.
    held = known.storage
    least, normal = math.log2(held.smallest_subnormal), math.log2(held.smallest_normal)
    vague = (logs > least - 2 - blur) & (logs < normal + 1 + blur) & (error >= 0.4 * torch.exp2(logs)) & ~sizes.special
    return torch.where(under & (vague | infinite), torch.inf, error), sizes.truth, source


def _exponentials(n: BallArrays, rows: Tensor) -> Sizes:
    """truth |L|; parts: the weights of what came before and of the new term, d = |x - L before|, where there are both,
    the entropy H of the terms, and L - min x."""
    x = rows.to(torch.float64)
    odd = torch.isnan(x) | (x == torch.inf)
    ball = n.input(torch.where(odd, torch.zeros_like(rows), rows))
    m, r = n.cumsumexp(ball)
    value = m + n.log1p(r)
    some, term = m.mid > -torch.inf, ball.mid > -torch.inf
    y = torch.where(some, value.mid, 0.0)
    before = torch.cat([torch.zeros_like(y[..., :1]), y[..., :-1]], -1)
    joins = term & torch.cat([torch.zeros_like(some[..., :1]), some[..., :-1]], -1)
    distance = torch.where(joins, ball.mid - before, 0.0)
    new = torch.where(joins, torch.sigmoid(distance), torch.where(term, 1.0, 0.0))
    old = torch.where(joins, torch.sigmoid(-distance), torch.where(term, 0.0, 1.0))
    entropy = _affine(old, torch.where(joins, torch.special.entr(new) + torch.special.entr(old), 0.0))
    least = -_running(torch.where(term, -ball.mid, -torch.inf))
    spread = torch.where(torch.isfinite(least), y - least, 0.0)
    truth = torch.where(some, _upper(value), 0.0)
    return Sizes(truth, n.seen(odd), (old, new, distance.abs(), joins.to(torch.float64), entropy, spread))


def _logcumsumexp_error(known: Algorithm, sizes: Sizes) -> tuple[Tensor, Tensor, str]:
    """Combinations c = max + log1p(exp(-d)), d = max - min, each off by some delta.

    exp(c) = exp(delta)(exp(left) + exp(right)), so that with p_j = exp(x_j - L), the terms' weights, the error D of a
    result has exp(D) = sum p_j exp(D_j), D_j the sum of the deltas on the path of x_j, and |D| <= exp(B) sum p_j |D_j|
    for |D_j| <= B. With p(node) the weight of the terms of a node, sum p_j |D_j| = sum p(node) |delta|.

    |delta| <= u|c| + a l + q (b + v d): u of the sum; a of log1p, l its value; b of exp, whose argument is off by v d,
    v the unit roundoff of the operation; q = exp(-d) / (1 + exp(-d)), the smaller operand's share of the node.

    From left to right sum p(node) |delta| is E_i = w E_{i-1} + delta, w = exp(L_{i-1} - L_i), and B the sum of deltas.
    In any order, with H = -sum p_j log p_j and h(q) the entropy of one combination: sum p(node) h = H (chain rule);
    q d <= h, as d = log((1 - q) / q); q <= h / (2 log 2), as h is concave on [0, 1/2]; sum p(node) l <= H, as the l of
    a path add up to at most L - x_j; sum p(node) |c| <= k (|L| + H), as x_j <= c <= L on a path of at most k nodes. So
    E = k u (|L| + H) + (a + b / (2 log 2) + v) H, and B = k u|L| + k (b + v) / 2 + (k u + a)(L - x_j). Terms below
    L - 800 weigh nothing in float64, nor do those below c - 800 in the node of such a term.

    delta is that of the computed operands. An error of e in each moves d by 2 e, so that q and l grow by exp(2 e); c
    and d move by e and 2 e, which adds (u + 2 v) k times the sum itself, as sum p(node) |D(node)| <= k sum p_j |D_j|.

    |D| <= B as well, whatever the weights are; there l <= log 2, q <= 1/2 and q d <= 0.28 for any operands, and |c| is
    off by B itself. This is what bounds half types, each of whose combinations may be off by half an ULP of a large L.
    """
    old, new, distance, joins, entropy, spread = sizes.parts
    n = old.shape[-1]
    (a, first), (b, second) = known.error("log1p"), known.error("exp")
    u, v, tiny = known.u, float(known.compute.unit_roundoff), float(known.compute.smallest_normal)
    low = torch.minimum(old, new)
    k = known.paths(n, old.device)
    cap = 0.7 * a + (b + v) / 2 + tiny
    if known.sequential:
        steps = torch.arange(n, dtype=torch.float64, device=old.device)
        found = ((u * sizes.truth + cap) * joins).cumsum(-1) * (1 + _growth(2 * steps, u)) * (1 + 8 * u)
    else:
        found = k * (u * (sizes.truth + spread.clamp(max=1600.0)) + cap) * (1 + 8 * u) / (1 - k * u)
        found = torch.where((k * u <= 0.25) & (found <= 100.0), found, torch.inf)
    for reach in REACH:
        more = math.exp(2 * reach)
        if known.sequential:
            of_exp = low * (b + v * (distance + reach))
            delta = u * (sizes.truth + reach) + more * (of_exp - a * torch.log1p(-low)) + tiny
            delta = delta * joins * (1 + 8 * u)
            error = widest = _affine(old, delta) * torch.exp(delta.cumsum(-1))
        else:
            weighed = k * u * (sizes.truth + entropy) + more * (a + b / (2 * math.log(2)) + v) * entropy + k * tiny
            again = 2 * k * (u + 2 * v) * more
            weighed = torch.where(again < 0.5, weighed * (1 + 8 * u) * (1 + 2 * again), torch.inf)
            widest = k * (u * (sizes.truth + reach) + more * (b + v * (1 + 2 * reach)) / 2)
            widest = (widest + (k * u + more * a) * spread.clamp(max=1600.0)) * (1 + 8 * u)
            error = weighed * torch.exp(widest)
        found = torch.where(_running(widest) <= reach, torch.minimum(found, error), found)
    law = "E = w E + u|L| + a l + q (b + u d)" if known.sequential else "E = k u (|L| + H) + (a + b / (2 log 2) + u) H"
    return found, sizes.truth, f"{law}, proved in kernels/_scans_limits.py; {first}; {second}"


def _probabilities(n: BallArrays, rows: Tensor) -> Sizes:
    """truth p; parts: d = max - x, the mean of d under p, 1 / (sum exp(-d)), n - 1."""
    x = rows.to(torch.float64)
    odd = torch.isnan(x) | (x == torch.inf)
    safe = torch.where(odd, torch.zeros_like(rows), rows)
    ball = n.input(safe)
    e = n.where(ball == -torch.inf, 0, n.exp(ball - n.shift(ball)))
    total = n.sum(e)
    size = _upper(e / total)
    top = n.shift(ball).mid
    distance = torch.where(safe == -torch.inf, 0.0, top - safe.to(torch.float64))
    mean = (size * distance).sum(-1, keepdim=True)
    nothing = ~(safe > -torch.inf).any(-1, keepdim=True) if rows.shape[-1] else n.anywhere(odd)
    special = (n.anywhere(odd) | nothing).expand_as(x) | (safe == -torch.inf)
    count = torch.full((1, 1), float(max(rows.shape[1] - 1, 0)), dtype=torch.float64, device=rows.device)
    return Sizes(torch.where(special, 0.0, size), special, (distance, mean, count))


def _softmax_error(known: Algorithm, sizes: Sizes) -> tuple[Tensor, Tensor, str]:
    """p (b + u d + (1 + u)^k - 1 + b + u D + c u): exp's own error b and that of its argument, those of the sum, which
    weighs every term by its probability (D = sum p d), and c of the quotient; k more exponentials where the sum is
    corrected on the way; u of the storage where that holds the exponentials. An exponential that underflows is off by
    the smallest normal number at most."""
    distance, mean, count = sizes.parts
    b, source = known.error("exp")
    u = known.u
    k = count if known.depth is None else torch.minimum(count, known.depth(count))
    of_sum = _growth(k, u) + b + u * mean
    if known.rescaled:
        of_sum = of_sum + _growth(k, u + b) + u * mean
    relative = b + u * distance + of_sum + known.quotient * u
    lost = float(known.compute.smallest_normal) * (count + 2)
    if known.halved:
        relative = relative + float(known.storage.unit_roundoff)
        lost = lost + float(known.storage.smallest_subnormal) / 2  # over a sum of at least 1
    # (1 + r) / (1 - s) and products of errors
    relative = torch.where(relative < 0.25, relative * (1 + 4 * relative), torch.inf)
    far = sizes.truth * relative
    error = torch.where(sizes.truth == 0, 0.0, far) + lost
    return error, sizes.truth, f"p (2 b + u (d + D) + (1 + u)^k - 1 + c u); {source}"


_SIZES = {
    "sum": _totals, "cumsum": _prefixes, "cumprod": _products, "logcumsumexp": _exponentials,
    "softmax": _probabilities,
}  # fmt: skip
_ERRORS = {
    "sum": _sum_error, "cumsum": _cumsum_error, "cumprod": _cumprod_error, "logcumsumexp": _logcumsumexp_error,
    "softmax": _softmax_error,
}  # fmt: skip
