"""The bounds of matrix products: what a lowering is known to compute, run in `roundoff`; nothing is derived here.

Beside the bound of what a lowering declares stands that of the best algorithm that the dtype allows: exact products,
summed in the widest format that the lowerings of the device use, rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch

from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import is_file
from verify.families.composite import Limit, Problem
from verify.families.products import LOWERINGS, Place
from verify.families.products_data import Shape, decoded, stored_weights, unordered, unread
from verify.families.products_truth import factors
from verify.families.rows_limits import settled
from verify.lower.lowering import Lowering, Target
from verify.numbers.documented import Documented
from verify.numbers.orders import Order
from verify.numbers.roundoff import UP, Rough, Roundoff
from verify.numbers.roundoff_units import Blocks
from verify.numbers.transforms import round_to
from verify.numbers.units import BFLOAT16, SPLITS, units
from verify.numbers.units import architecture as unit_architecture
from verify.oracles import products as oracle

Tensor = torch.Tensor
SINGLE = FORMATS["float32"]
#: Pieces of k that a library may sum apart.
PIECES = 32
#: Relative error of exp and of / in an activation's own code: 2 ULP, each at most 2 u.
OWN = Documented(4.0, "2 ULP")


@dataclass(frozen=True)
class Algorithm:
    """What a lowering rounds.

    order     of its sums with their accumulator, or a matrix unit's blocks
    split     '' or one of `verify.numbers.units.SPLITS`, in which float32 operands are multiplied
    weights   formats in which the weights of codes are computed and then stored; () where there are none
    from_zero whether weights are computed from that of code 0
    joined    whether alpha meets the terms or parts of their sum, and the bias is one of them
    stored    what is rounded to the result's dtype on the way: 'product', before a bias; 'sum', before an activation
    narrow    whether alpha and beta are rounded to the result's dtype
    flush     what may be flushed to zero of operands and sums
    powers    whether an activation may take its exponential as a power of two
    """

    order: Order | Blocks
    split: str = ""
    weights: tuple[str, ...] = ()
    from_zero: bool = False
    joined: bool = False
    stored: tuple[str, ...] = ()
    narrow: bool = False
    flush: float = 0.0
    powers: bool = False

    def __str__(self) -> str:
        told = f"products in {self.split}, " if self.split else ""
        told += f"weights in {', then '.join(self.weights)}" if self.weights else ""
        told += " from that of code 0, " if self.from_zero else ", " if self.weights else ""
        told += f"sums {self.order}" if isinstance(self.order, Order) else str(self.order)
        told += ", alpha and bias within" if self.joined else ""
        told += f", the {' and the '.join(self.stored)} rounded to the dtype" if self.stored else ""
        told += ", alpha and beta rounded to the dtype" if self.narrow else ""
        return told + (", exp(-y) also as exp2(-y log2 e)" if self.powers else "")


#: The instruction of kernels for older GPUs that libraries run.
OLDER = "m16n8k8"


def algorithms(place: Place) -> tuple[Algorithm, ...]:
    """What the lowering may run."""
    found = _algorithms(place)
    if not place.coded:
        return found
    # torch's kernel of the host has weights in float32, of bfloat16 with AVX2 from that of code 0
    # (native/cpu/int4mm_kernel.cpp); what multiplies them on a matrix unit has them in its operands' dtype, by way of
    # float32 or not (native/cuda/int4mm.cu: __hfma2)
    host = place.backend == "cpu"
    from_zero = host and place.capability == "AVX2" and place.operands == "bfloat16"
    ways = [(("float32",), True)] if from_zero else []
    if place.lowering != "eager" or not host:
        ways += [((*first, place.operands), False) for first in (("float32",), ())]
    if host and not (from_zero and place.lowering == "eager"):
        ways.append((("float32",), False))
    return tuple(replace(one, weights=formats, from_zero=own) for one in found for formats, own in ways)


def _algorithms(place: Place) -> tuple[Algorithm, ...]:
    if place.operands == "float64":
        return _epilogues(place, [Algorithm(Order("any", FORMATS["float64"]))])
    plain = Order("any", SINGLE)
    name, host = place.lowering, place.backend == "cpu"
    if host:
        # oneDNN may take bfloat16's dot products, which flush subnormal numbers (Intel SDM)
        flush = 2.0**-126 if place.operands == "bfloat16" and not name.startswith("triton") else 0.0
        found = [Algorithm(plain, flush=flush)]
        if place.operands == "float32" and name in ("eager-tf32", "eager-high", "eager-medium"):
            # what oneDNN may take (torch.backends.mkldnn.matmul.fp32_precision)
            found += [
                Algorithm(plain, {"eager-medium": "bf16"}.get(name, "tf32")),
                Algorithm(plain, "bf16", flush=flush),
            ]
        return _epilogues(place, found)
    split = _split(name, place)
    kind = {"tf32": "tf32", "tf32x3": "tf32"}.get(split, "bfloat16" if split else place.operands)
    cores = [u for u in units() if (u.architecture, u.operands) == (place.architecture, kind) and u.result == "float32"]
    if name.startswith("triton"):  # which has no kernels for older GPUs
        cores = [u for u in cores if u.instruction != OLDER]
    if kind == "float32" or not cores:
        return _epilogues(place, [Algorithm(plain)])
    pieces = max(PIECES, -(-place.shape.k // 32))
    chains = len(SPLITS[split][2]) if split else 1
    found = [Algorithm(Blocks(one, pieces, chains=chains), split) for one in cores]
    if (
        place.operands in ("float16", "bfloat16")
        and name in ("eager", "eager-fp16-sums", "inductor")
        and not place.coded
    ):
        # torch allows cuBLAS to reduce split sums in the dtype by default, and Inductor calls torch's own addmm;
        # products of codes are not cuBLAS's (native/cuda/int4mm.cu: warps' parts are floats)
        found += [Algorithm(Blocks(one, pieces, stored=True), split) for one in cores]
    if name.endswith("fp16-sums"):
        halves = [u for u in units() if (u.architecture, u.operands, u.result) == (place.architecture, kind, "float16")]
        found += [Algorithm(Blocks(one, pieces, stored=True)) for one in halves]
        found.append(Algorithm(Order("any", FORMATS["float16"])))
    return _epilogues(place, found)


def _split(name: str, place: Place) -> str:
    if place.operands != "float32":
        return ""
    if name.startswith("triton-"):
        return name.removeprefix("triton-") if name.removeprefix("triton-") in SPLITS else ""
    return "tf32" if name in ("eager-tf32", "eager-allow-tf32", "eager-high", "eager-medium") else ""


def _epilogues(place: Place, found: Sequence[Algorithm]) -> tuple[Algorithm, ...]:
    """With each way of what follows: fused into the sum or after it, stored in between, scalars as they are or in the
    dtype. Ways that a problem does not tell apart are one."""
    scaled, after = any(place.scalars.values()), place.shape.activation != "none"
    steps = (*(["product"] if place.bias or place.scaled else []), *(["sum"] if after else []))
    stores = tuple(some for count in range(len(steps) + 1) for some in combinations(steps, count))
    single = place.result in ("float32", "float64")
    return tuple(
        replace(one, joined=joined, stored=stored, narrow=narrow)
        for one in found
        for joined in ((False, True) if place.bias or place.scaled else (False,))
        for stored in (stores[:1] if single else stores)
        for narrow in ((False, True) if scaled and not single and _narrows(place) else (False,))
        if not (joined and "product" in stored)
    )


def _narrows(place: Place) -> bool:
    """Whether alpha and beta may be rounded to the dtype: by the host's libraries, and on a GPU by torch where there is
    no term (addmm_out_cuda_impl in aten/src/ATen/native/cuda/Blas.cpp: a tensor of the dtype)."""
    return place.backend == "cpu" or (place.shape.k == 0 and not place.lowering.startswith("triton"))


def limit(problem: Problem, target: Target, lowering: Lowering, output: str) -> Limit | None:
    """What every element may be off by. A user's own lowering may be any registered one that multiplies in the dtype
    itself, or have the order that it declares."""
    facts = target.kernel.family
    place = place_of(problem, target, lowering.name)
    if facts.exact:
        return Limit(_settled(problem, None, "float64"), "sums of integers in 32 bits are exact")
    if lowering.order is not None:
        found = _with_powers(place, _epilogues(place, [Algorithm(lowering.order)]))
    elif is_file(lowering.name) or lowering.name not in LOWERINGS:
        found = _of_ones_own(place)
    else:
        found = algorithms(place)
    widest = bounds = None
    for one in found:
        bounds = kept(problem, one, place.result)
        widest = bounds if widest is None else torch.maximum(widest, bounds)
    assert widest is not None
    best = kept(problem, Algorithm(Order("tree", _widest(place))), place.result)
    needed = [str(one) for one in found if bool((kept(problem, one, place.result) == widest).any())]
    return Limit(widest, f"roundoff of {' | '.join(dict.fromkeys(needed))}; {_compared(best, widest, place)}")


def _of_ones_own(place: Place) -> tuple[Algorithm, ...]:
    every = (one for name in ("eager", "triton") for one in algorithms(replace(place, lowering=name)))
    return _with_powers(place, tuple(dict.fromkeys(every)))


def _with_powers(place: Place, found: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
    """As Triton has it on GPUs, tl.exp and tl.sigmoid of float32 (ex2.approx of a product)."""
    return tuple(replace(one, powers=True) for one in found) if place.shape.activation == "silu" else found


def ways(problem: Problem, target: Target) -> dict[str, Callable[..., Limit]]:
    """`Composite.ways`."""
    if target.kernel.family.exact:
        return {}
    place = place_of(problem, target, "")
    return {
        f"{one} {one.flush}": lambda problem, *given, one=one: Limit(kept(problem, one, place.result), str(one))
        for one in _of_ones_own(place)
    }


def _widest(place: Place) -> Format:
    return FORMATS["float64" if place.operands == "float64" else "float32"]


def _compared(best: Tensor, bound: Tensor, place: Place) -> str:
    """How much smaller the bound of the best algorithm is, in the median."""
    known = (best > 0) & best.isfinite() & bound.isfinite()
    ratio = float((bound[known] / best[known]).median()) if bool(known.any()) else 1.0
    return f"{_widest(place).name} sums by halves have {1 / ratio:.2g} of it in the median"


def place_of(problem: Problem, target: Target, lowering: str) -> Place:
    shape: Shape = problem.extra["shape"]
    result = target.kernel.family.result(problem.dtype)
    facts = target.kernel.family
    return Place(lowering, target.backend.name, architecture(target.backend), problem.dtype, result, shape,
                 problem.scalars, facts.bias, facts.scales, facts.coded, str(target.backend.capability()))  # fmt: skip


def architecture(backend: Any) -> str:
    """The matrix unit's name in `verify.numbers.units`, '' where none is known."""
    if backend.name == "cpu":
        return ""
    return unit_architecture(str(backend.capability()))


def kept(problem: Problem, one: Algorithm, result: str) -> Tensor:
    """The bound of one algorithm on the problem, evaluated once."""
    found: dict[Any, Tensor] = problem.extra["kept"]
    key = (str(one), one.flush, problem.tensors["a"].device.type)
    if key not in found:
        found[key] = bound(problem, one, result)
    return found[key]


def bound(problem: Problem, one: Algorithm, result: str) -> Tensor:
    """|y - t| at most, in the output's shape, float64; infinite where nothing is stated."""
    device, storage = problem.tensors["a"].device, FORMATS[result]
    compute = FORMATS["float64" if problem.dtype == "float64" else "float32"]
    documented = {(name, compute.name): OWN for name in ("exp", "div")}
    n = _Products(compute, storage, documented, flush=one.flush, device=device, narrow=one.narrow)
    x = factors(n, decoded(problem), lambda name, t: torch.where(t.isfinite(), t, 0.0))
    if one.weights:
        x = replace(x, b=_weights(n, problem, one))
    x = replace(x, a=_multiplied(n, x.a, one.split), b=_multiplied(n, x.b, one.split))
    if one.flush:
        x = replace(x, a=_flushed(x.a, one.flush), b=_flushed(x.b, one.flush))
    parts = one.joined and bool(x.scales) and isinstance(one.order, Blocks)
    if one.joined and not parts:
        x = _joined(n, x)
    before = x.a.mid.shape[-1] - problem.tensors["a"].shape[-1]  # the bias
    order = replace(one.order, before=before) if isinstance(one.order, Blocks) else one.order
    y = n.matmul(x.a, x.b, order)
    if parts:  # a unit takes its operands as they are: scales meet parts of the sum, and round each twice
        sizes = (x.a.mid.abs() + x.a.rad) @ (x.b.mid.abs() + x.b.rad)
        y = replace(y, error=(y.error + sizes * (4.0 * float(compute.unit_roundoff))) * UP)
    if one.split:
        y = replace(y, error=(y.error + _dropped(x.a, x.b, one.split)) * UP)
    if "product" in one.stored:
        y = n.value(n.cast(y, storage))
    n = replace(n, product=y)
    y = oracle.product(n, x)
    shape: Shape = problem.extra["shape"]
    if shape.activation != "none" and "sum" in one.stored:
        y = n.value(n.cast(y, storage))
    if shape.activation == "silu":
        y = _silu(n, y, powers=one.powers)
    return _settled(problem, n.result(y), result)


#: An interval that holds silu's minimum, and a lower bound of that; its derivative is at most 1.1 in magnitude.
LOWEST, BOTTOM = (-1.2785, -1.2784), -0.2784645428


def _silu(n: _Products, y: Rough, *, powers: bool = False) -> Rough:
    """y / (1 + exp(-y)), or y sigmoid(y), of a computed y' within e of y. powers: or by exp2(-y log2(e)), of which
    the product and its constant are rounded, so that exp(-y') errs by 2 |y'| u more.

    silu falls up to a number in LOWEST and grows from there, so that its values at y - e and y + e, and BOTTOM between
    them, say how far silu(y') may be. exp, 1 + exp(-y') and the quotient then err by their units of |silu(y')|. Where
    exp(-y') is so large that it or the sigmoid leaves the normal range, anything from 0 to silu(y') may come of it: at
    most |m| exp(m), m the largest such number.
    """
    u, units = n.u, float(n.functions["exp", n.compute.name].units)
    wide = (n.library["exp"] + 8) * 2.0**-53

    def silu(t: Tensor) -> Tensor:
        return torch.where(t == -math.inf, 0.0, t / (1 + torch.exp(-t)))

    far = (y.rad + y.error) * UP + y.mid.abs() * 2.0**-52
    low, high = y.mid - far, y.mid + far
    mid, ends = silu(y.mid), torch.stack([silu(low), silu(high)])
    least = torch.where((low <= LOWEST[1]) & (high >= LOWEST[0]), BOTTOM, ends.amin(0))
    own = ends.abs().amax(0).clamp(min=mid.abs()) * wide + 2.0**-1000
    moved = torch.where(y.error > 0, torch.maximum(ends.amax(0) - mid, mid - least) + own, 0.0)
    rad = (own + 1.1 * y.rad) * UP
    edge = -math.log(2.0) * (n.compute.emax - 1)
    largest = high.clamp(max=edge)
    lost = torch.where(low <= edge, largest.abs() * largest.exp(), 0.0)
    relative: float | Tensor = (1 + units * u) ** 2 / ((1 - units * u) * (1 - u)) - 1
    if powers:  # of which the part counts that exp(-y') is of 1 + exp(-y')
        sizes = torch.maximum(low.abs(), high.abs()).clamp(max=n.compute.emax)
        relative = relative + 2.01 * u * sizes * torch.sigmoid(-low)
    error = moved + relative * (mid.abs() + rad + moved) + lost + 8 * float(n.compute.smallest_subnormal)
    return n.given(mid, rad, torch.where(error.isnan(), math.inf, error * UP))


def _weights(n: _Products, problem: Problem, one: Algorithm) -> Rough:
    """Those of the codes, each operation in the first format, then stored in the others."""
    first, *others = (FORMATS[name] for name in one.weights)
    own = replace(n, compute=first)
    weights = oracle.weights_from_zero if one.from_zero else oracle.weights
    found: Rough = weights(*(own.given(torch.where(t.isfinite(), t, 0.0)) for t in stored_weights(problem)))
    for fmt in others:
        found = own.value(own.cast(found, fmt))
    return replace(found, n=n)


def _joined(n: Roundoff, x: oracle.Factors) -> oracle.Factors:
    """The bias as one more term, the first one, which meets a 1; alpha and scales on the factors. What meets parts of a
    sum errs by no more."""
    a = x.a if x.alpha == 1.0 else n.mul(n.const(x.alpha), x.a)
    if x.scales:
        return oracle.Factors(n.mul(a, x.scales[0]), n.mul(x.b, x.scales[1]))
    if x.bias is None or x.beta == 0.0:
        return oracle.Factors(a, x.b)
    bias = x.bias if x.beta == 1.0 else n.mul(n.const(x.beta), x.bias)
    one = n.given(torch.ones((*a.mid.shape[:-1], 1), dtype=torch.float64, device=a.mid.device))
    shape = (*x.b.mid.shape[:-2], 1, x.b.mid.shape[-1])
    first = n.given(bias.mid.expand(shape), bias.rad.expand(shape), bias.error.expand(shape))
    return oracle.Factors(_beside(n, one, a, -1), _beside(n, first, x.b, -2))


def _beside(n: Roundoff, x: Rough, y: Rough, dim: int) -> Rough:
    pairs = ((x.mid, y.mid), (x.rad.expand_as(x.mid), y.rad), (x.error.expand_as(x.mid), y.error))
    mid, rad, error = (torch.cat(pair, dim) for pair in pairs)
    return n.given(mid, rad, error)


@dataclass(frozen=True)
class _Products(Roundoff):
    """With the product of matrices given, so that the oracle's expression is what follows it. narrow: constants are
    rounded to the storage format."""

    product: Rough | None = None
    narrow: bool = False

    def const(self, value: Any) -> Rough:
        found = super().const(value)
        return self.value(self.cast(found, self.storage)) if self.narrow and abs(value) != 1 else found

    def matmul(self, a: Any, b: Any, order: Any = None) -> Rough:
        return super().matmul(a, b, order) if self.product is None else self.product

    def input(self, tensor: Tensor) -> Rough:
        return self.given(tensor.to(torch.float64))


def _multiplied(n: Roundoff, x: Rough, split: str) -> Rough:
    """An operand as the sum of its parts, each rounded to nearest or cut."""
    if not split:
        return x
    fmt, parts, _ = SPLITS[split]
    rest = x.mid
    for _ in range(parts):
        near = round_to(rest, fmt if fmt == BFLOAT16 else _AS_TF32)
        rest = torch.maximum((rest - near).abs(), (rest - _cut(rest, fmt)).abs())
    return replace(x, error=rest)


def _flushed(x: Rough, flush: float) -> Rough:
    """An operand that may be 0 where it is below `flush`."""
    return replace(x, error=torch.maximum(x.error, torch.where(x.mid.abs() < flush, x.mid.abs(), 0.0)))


_AS_TF32 = replace(SINGLE, precision=11)


def _cut(t: Tensor, fmt: Format) -> Tensor:
    return (t.view(torch.int64) & -(1 << (53 - fmt.precision))).view(torch.float64)


def _dropped(x: Rough, y: Rough, split: str) -> Tensor:
    """What the products of small parts that are left out come to: each part is 2^(1 - p) of the one before."""
    fmt, parts, _ = SPLITS[split]
    if parts == 1:
        return torch.zeros((), dtype=torch.float64, device=x.mid.device)
    least = float(2 ** (1 - fmt.precision)) ** parts
    short = [torch.where(t.mid == _cut(t.mid, fmt), 0.0, t.mid.abs()) for t in (x, y)]
    return short[0] @ short[1] * (least * (parts + 1))


def _settled(problem: Problem, found: Rough | None, result: str) -> Tensor:
    """The bound as the judge takes it: 0 where special values decide."""
    a, b = (problem.tensors[name].to(torch.float64) for name in ("a", "b"))
    if found is None:
        return torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=torch.float64, device=a.device)
    whole = torch.zeros_like(found.mid, dtype=torch.bool)
    lines = ~a.isfinite().all(-1, keepdim=True) | ~b.isfinite().all(-2, keepdim=True)
    bound = settled(found.error, found.mid, whole | lines, whole, FORMATS[result])
    for open_ in (unordered(problem), unread(problem)):
        bound = bound if open_ is None else torch.where(open_, math.inf, bound)
    return bound
