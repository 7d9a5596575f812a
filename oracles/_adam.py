"""Adam over a number system: the real recurrences, and the roundings of known code as named formulas.

m <- beta1 m + (1 - beta1) g,  v <- beta2 v + (1 - beta2) g^2, and after step t
p <- p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
(Kingma & Ba 2015, algorithm 1; AMSGrad: Reddi et al. 2018; decoupled decay: Loshchilov & Hutter 2019; the loop that
torch.optim.Adam documents). Scalars are the doubles that Python holds, meant exactly. The values k of one step:
beta1, rest1 = 1 - beta1, beta2, rest2 = 1 - beta2, eps, weight_decay, decay = 1 - lr weight_decay, and of the real
function rate = lr / (1 - beta1^t), inverse = 1 / (1 - beta2^t).

Of formulas: storage(.) is rounding to the tensors' dtype, other operations round to the compute dtype, float32 for
bfloat16; fl(.) is a host double, or a float32, rounded to the compute dtype. In formulas k has the host's doubles as
they meet the tensors, and step s = lr / (1 - beta1^t), root2 c = sqrt(1 - beta2^t) by a bias correction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from verify.oracle import Formula, formula

# ---------------------------------------------------------------- the real function


#: (p, m, v, x): parameter, averages and, under amsgrad, the running maximum of v; p or x may be None.
State = tuple[Any, Any, Any, Any]


def averaged(n: Any, k: Any, m: Any, v: Any, x: Any, g: Any) -> tuple[Any, Any, Any]:
    """m, v and x after one step with the gradient g."""
    m, v = k.beta1 * m + k.rest1 * g, k.beta2 * v + k.rest2 * (g * g)
    return m, v, None if x is None else n.max(x, v)


def updated(n: Any, k: Any, p: Any, m: Any, v: Any) -> Any:
    """The parameter after one step with the new averages (v: their running maximum under amsgrad)."""
    return p - k.rate * m / (n.sqrt(k.inverse * v) + k.eps)


def signed(k: Any, g: Any) -> Any:
    """The gradient of what is minimized."""
    return -g if k.maximizes else g


def corrections(n: Any, lr: Any, beta1: Any, beta2: Any, t: int) -> tuple[Any, Any]:
    """rate and inverse of k at step t = 1, 2, ..."""
    return n.const(lr) / (1 - n.pow(n.const(beta1), t)), 1 / (1 - n.pow(n.const(beta2), t))


# ---------------------------------------------------------------- first average


# Eager CPU from AVX2 on and CUDA (Lerp.h, contracted), single-tensor and foreach; the vector body of fused CPU.
@formula("w < 1/2: fma(w, g-m, m); else: fma(-(1-w), g-m, g)")
def lerp_fused(n: Any, k: Any, m: Any, g: Any) -> Any:
    d = g - m
    return n.fma(k.rest1, d, m) if k.near1 else n.fma(-(1 - k.rest1), d, g)


# Inductor C++, which contracts nothing; eager CPU without SIMD.
@formula("w < 1/2: m + w*(g-m); else: g - (1-w)*(g-m)")
def lerp_separate(n: Any, k: Any, m: Any, g: Any) -> Any:
    d = g - m
    return m + k.rest1 * d if k.near1 else g - (1 - k.rest1) * d


# Inductor for _foreach_lerp_, whose polyfill takes 1 - w in the tensors' dtype (torch/_dynamo/polyfills).
@formula("w < 1/2: m + w*(g-m); else: g - storage(1-storage(w))*(g-m)")
def lerp_stored_weight(n: Any, k: Any, m: Any, g: Any) -> Any:
    d = g - m
    return m + k.rest1 * d if k.near1 else g - n.cast(1 - n.cast(k.rest1, n.storage), n.storage) * d


@formula("w < 1/2: fma(w, g-m, m); else: fma(-storage(1-storage(w)), g-m, g)")
def lerp_stored_weight_fused(n: Any, k: Any, m: Any, g: Any) -> Any:
    d = g - m
    if k.near1:
        return n.fma(k.rest1, d, m)
    return n.fma(-n.cast(1 - n.cast(k.rest1, n.storage), n.storage), d, g)


# Inductor under emulate_precision_casts.
@formula("w < 1/2: m + storage(w*storage(g-m)); else: g - storage((1-w)*storage(g-m))")
def lerp_stored(n: Any, k: Any, m: Any, g: Any) -> Any:
    d = n.cast(g - m, n.storage)
    return m + n.cast(k.rest1 * d, n.storage) if k.near1 else g - n.cast((1 - k.rest1) * d, n.storage)


# The hand-written Triton step, whatever the weight; separate under an interpreter whose fma rounds twice.
@formula("m + w*(g-m)", applies=lambda scalars: scalars["beta1"] <= 0.5)
def lerp_one_sided(n: Any, k: Any, m: Any, g: Any) -> Any:
    return m + k.rest1 * (g - m)


@formula("fma(w, g-m, m)", applies=lambda scalars: scalars["beta1"] <= 0.5)
def lerp_one_sided_fused(n: Any, k: Any, m: Any, g: Any) -> Any:
    return n.fma(k.rest1, g - m, m)


# torch's fused CUDA step (fused_adam_utils.cuh).
@formula("fma(b, m, fma(-b, g, g))")
def ema_two_fused(n: Any, k: Any, m: Any, g: Any) -> Any:
    return n.fma(k.beta1, m, n.fma(-k.beta1, g, g))


# As written in the paper and in torch's documentation; fused MPS.
@formula("b*m + w*g")
def ema_separate(n: Any, k: Any, m: Any, g: Any) -> Any:
    return k.beta1 * m + k.rest1 * g


@formula("fma(b, m, w*g)")
def ema_fused(n: Any, k: Any, m: Any, g: Any) -> Any:
    return n.fma(k.beta1, m, k.rest1 * g)


@formula("fma(w, g, b*m)")
def ema_fused_gradient(n: Any, k: Any, m: Any, g: Any) -> Any:
    return n.fma(k.rest1, g, k.beta1 * m)


FIRST = (
    lerp_fused, lerp_separate, lerp_stored_weight, lerp_stored_weight_fused, lerp_one_sided, lerp_one_sided_fused,
    lerp_stored, ema_two_fused, ema_separate, ema_fused, ema_fused_gradient,
)  # fmt: skip


# ---------------------------------------------------------------- second average


# addcmul_ of eager CPU from AVX2 on, and the vector body of fused CPU (contracted).
@formula("fma(w*g, g, b*v)")
def square_last_fused(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.fma(k.rest2 * g, g, k.beta2 * v)


# addcmul_ of eager CUDA; Inductor, which calls fma, for addcmul_.
@formula("fma(w, g*g, b*v)")
def square_first_fused(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.fma(k.rest2, g * g, k.beta2 * v)


# Eager CPU without SIMD, fused MPS.
@formula("b*v + (w*g)*g")
def square_last(n: Any, k: Any, v: Any, g: Any) -> Any:
    return k.beta2 * v + k.rest2 * g * g


# Inductor C++ for _foreach_addcmul.
@formula("b*v + w*(g*g)")
def square_first(n: Any, k: Any, v: Any, g: Any) -> Any:
    return k.beta2 * v + k.rest2 * (g * g)


@formula("fma(b, v, (w*g)*g)")
def decay_fused(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.fma(k.beta2, v, k.rest2 * g * g)


@formula("fma(b, v, w*(g*g))")
def decay_fused_square(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.fma(k.beta2, v, k.rest2 * (g * g))


# Fused CPU (FusedAdamKernel.cpp): its scalar loop for what is left of a thread's share is contracted the other way.
@formula("whole vectors: fma(w*g, g, b*v); rest: fma(b, v, (w*g)*g)")
def square_by_place(n: Any, k: Any, v: Any, g: Any) -> Any:
    term = k.rest2 * g
    return n.where(k.rest, n.fma(k.beta2, v, term * g), n.fma(term, g, k.beta2 * v))


# torch's fused CUDA step (fused_adam_utils.cuh).
@formula("fma(b, v, fma(-b, g*g, g*g))")
def square_two_fused(n: Any, k: Any, v: Any, g: Any) -> Any:
    square = g * g
    return n.fma(k.beta2, v, n.fma(-k.beta2, square, square))


# The hand-written Triton step.
@formula("fma(w, fma(g, g, -v), v)")
def square_lerp_fused(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.fma(k.rest2, n.fma(g, g, -v), v)


@formula("v + w*(g*g - v)")
def square_lerp(n: Any, k: Any, v: Any, g: Any) -> Any:
    return v + k.rest2 * (g * g - v)


# mul_ and addcmul_ are two operations, each of which rounds to storage: eager, single-tensor and foreach.
@formula("fma(w*g, g, storage(b*v))")
def square_last_fused_stored(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.fma(k.rest2 * g, g, n.cast(k.beta2 * v, n.storage))


@formula("fma(w, g*g, storage(b*v))")
def square_first_fused_stored(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.fma(k.rest2, g * g, n.cast(k.beta2 * v, n.storage))


# Inductor under emulate_precision_casts.
@formula("fma(w, storage(g*g), storage(b*v))")
def square_stored_first_fused(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.fma(k.rest2, n.cast(g * g, n.storage), n.cast(k.beta2 * v, n.storage))


# ... in torch 2.11, where addcmul_ is three operations.
@formula("storage(b*v) + storage(w*storage(g*g))")
def square_stored_products(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.cast(k.beta2 * v, n.storage) + n.cast(k.rest2 * n.cast(g * g, n.storage), n.storage)


@formula("storage(b*v) + (w*g)*g")
def square_last_stored(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.cast(k.beta2 * v, n.storage) + k.rest2 * g * g


# ... and the factor 1 - beta2 is rounded to storage where the kernel takes it in the tensors' dtype.
@formula("fma(storage(w)*g, g, storage(b*v))")
def square_last_fused_stored_weight(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.fma(n.cast(k.rest2, n.storage) * g, g, n.cast(k.beta2 * v, n.storage))


@formula("storage(b*v) + (storage(w)*g)*g")
def square_last_stored_weight(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.cast(k.beta2 * v, n.storage) + n.cast(k.rest2, n.storage) * g * g


# _foreach_mul_ of the CPU takes its scalar in the tensors' dtype, where mul_ takes it in float32.
@formula("fma(w*g, g, storage(storage(b)*v))")
def square_last_fused_stored_beta(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.fma(k.rest2 * g, g, n.cast(n.cast(k.beta2, n.storage) * v, n.storage))


@formula("storage(storage(b)*v) + (w*g)*g")
def square_last_stored_beta(n: Any, k: Any, v: Any, g: Any) -> Any:
    return n.cast(n.cast(k.beta2, n.storage) * v, n.storage) + k.rest2 * g * g


SECOND = (
    square_last_fused, square_first_fused, square_last, square_first, decay_fused, decay_fused_square, square_by_place,
    square_two_fused, square_lerp_fused, square_lerp, square_last_fused_stored, square_first_fused_stored,
    square_stored_first_fused, square_stored_products, square_last_stored, square_last_fused_stored_weight,
    square_last_stored_weight, square_last_fused_stored_beta, square_last_stored_beta,
)  # fmt: skip


# ---------------------------------------------------------------- the parameter


# Eager CPU and CUDA from AVX2 on: add(alpha=) contracts. Fused CUDA.
@formula("fma(wd, p, g)")
def l2_fused(n: Any, k: Any, p: Any, g: Any) -> Any:
    return n.fma(k.weight_decay, p, g)


# Inductor C++; fused CPU where the compiler does not contract.
@formula("g + wd*p")
def l2_separate(n: Any, k: Any, p: Any, g: Any) -> Any:
    return g + k.weight_decay * p


# Eager CPU in bfloat16: add takes alpha in the tensors' dtype.
@formula("fma(storage(wd), p, g)")
def l2_stored_weight_fused(n: Any, k: Any, p: Any, g: Any) -> Any:
    return n.fma(n.cast(k.weight_decay, n.storage), p, g)


@formula("g + storage(wd)*p")
def l2_stored_weight(n: Any, k: Any, p: Any, g: Any) -> Any:
    return g + n.cast(k.weight_decay, n.storage) * p


# ... and its scalar loop rounds the product too.
@formula("g + storage(storage(wd)*p)")
def l2_stored_product(n: Any, k: Any, p: Any, g: Any) -> Any:
    return g + n.cast(n.cast(k.weight_decay, n.storage) * p, n.storage)


# Inductor under emulate_precision_casts.
@formula("g + storage(wd*p)")
def l2_stored(n: Any, k: Any, p: Any, g: Any) -> Any:
    return g + n.cast(k.weight_decay * p, n.storage)


@formula("p*fl(1-lr*wd)")
def decay_factor(n: Any, k: Any, p: Any) -> Any:
    return k.decay * p


# Eager: mul_ is an operation of its own.
@formula("storage(p*fl(1-lr*wd))")
def decay_factor_stored(n: Any, k: Any, p: Any) -> Any:
    return n.cast(k.decay * p, n.storage)


# ... and _foreach_mul_ of the CPU.
@formula("storage(p*storage(fl(1-lr*wd)))")
def decay_stored_factor(n: Any, k: Any, p: Any) -> Any:
    return n.cast(n.cast(k.decay, n.storage) * p, n.storage)


# Fused CUDA, contracted: p -= lr * wd * p with both in float32.
@formula("fma(-(lr*wd), p, p)")
def decay_contracted(n: Any, k: Any, p: Any) -> Any:
    return n.fma(-(k.lr * k.weight_decay), p, p)


@formula("p - (lr*wd)*p")
def decay_subtracted(n: Any, k: Any, p: Any) -> Any:
    return p - k.lr * k.weight_decay * p


# The hand-written Triton step: lr wd in double.
@formula("fma(-fl(lr*wd), p, p)")
def decay_host(n: Any, k: Any, p: Any) -> Any:
    return n.fma(-k.lr_decay, p, p)


@formula("p - fl(lr*wd)*p")
def decay_host_separate(n: Any, k: Any, p: Any) -> Any:
    return p - k.lr_decay * p


# Eager CPU; fused CPU and CUDA; Inductor.
@formula("sqrt(v)/c + eps")
def quotient(n: Any, k: Any, v: Any) -> Any:
    return n.sqrt(v) / k.root2 + k.eps


# Eager CPU, whose square root is Intel's VML (within 1 ULP).
@formula("torch.sqrt(v)/c + eps")
def library_quotient(n: Any, k: Any, v: Any) -> Any:
    return k.library_sqrt(n, v) / k.root2 + k.eps


# Eager CUDA divides by a Python scalar through its reciprocal in the compute dtype.
@formula("sqrt(v)*(1/c) + eps")
def reciprocal(n: Any, k: Any, v: Any) -> Any:
    return n.sqrt(v) * (1 / k.root2) + k.eps


@formula("fma(sqrt(v), 1/c, eps)")
def reciprocal_fused(n: Any, k: Any, v: Any) -> Any:
    return n.fma(n.sqrt(v), 1 / k.root2, k.eps)


# The hand-written Triton step: 1 / c in double.
@formula("fma(sqrt(v), fl(1/c), eps)")
def reciprocal_host(n: Any, k: Any, v: Any) -> Any:
    return n.fma(n.sqrt(v), k.inverse_root2, k.eps)


@formula("sqrt(v)*fl(1/c) + eps")
def reciprocal_host_separate(n: Any, k: Any, v: Any) -> Any:
    return n.sqrt(v) * k.inverse_root2 + k.eps


# Eager in bfloat16: sqrt, div and add_ are operations of their own.
@formula("storage(storage(storage(sqrt(v))/c) + eps)")
def quotient_stored(n: Any, k: Any, v: Any) -> Any:
    root = n.cast(n.sqrt(v), n.storage)
    return n.cast(n.cast(root / k.root2, n.storage) + k.eps, n.storage)


# ... on the CPU, where add_ takes a scalar in the tensors' dtype.
@formula("storage(storage(storage(sqrt(v))/c) + storage(eps))")
def quotient_stored_eps(n: Any, k: Any, v: Any) -> Any:
    root = n.cast(n.sqrt(v), n.storage)
    return n.cast(n.cast(root / k.root2, n.storage) + n.cast(k.eps, n.storage), n.storage)


# Inductor under emulate_precision_casts: c, a tensor of one element, is stored too.
@formula("storage(storage(storage(sqrt(v))/storage(c)) + eps)")
def quotient_stored_root(n: Any, k: Any, v: Any) -> Any:
    root = n.cast(n.sqrt(v), n.storage)
    return n.cast(n.cast(root / n.cast(k.root2, n.storage), n.storage) + k.eps, n.storage)


@formula("storage(storage(storage(sqrt(v))*(1/c)) + eps)")
def reciprocal_stored(n: Any, k: Any, v: Any) -> Any:
    root = n.cast(n.sqrt(v), n.storage)
    return n.cast(n.cast(root * (1 / k.root2), n.storage) + k.eps, n.storage)


# capturable, single-tensor: -step is folded into the denominator.
@formula("sqrt(v)/(c*(-s)) + eps*(1/(-s))")
def folded(n: Any, k: Any, v: Any) -> Any:
    return n.sqrt(v) / (k.root2 * -k.step) + (1 / -k.step) * k.eps


@formula("storage(storage(storage(sqrt(v))/(c*(-s))) + eps*(1/(-s)))")
def folded_stored(n: Any, k: Any, v: Any) -> Any:
    root = n.cast(n.sqrt(v), n.storage)
    return n.cast(n.cast(root / (k.root2 * -k.step), n.storage) + (1 / -k.step) * k.eps, n.storage)


# capturable, foreach.
@formula("(sqrt(v)/c + eps)/(-s)")
def divided(n: Any, k: Any, v: Any) -> Any:
    return (n.sqrt(v) / k.root2 + k.eps) / -k.step


@formula("storage(storage(storage(storage(sqrt(v))/c) + eps)/(-s))")
def divided_stored(n: Any, k: Any, v: Any) -> Any:
    return n.cast(quotient_stored.evaluate(n, k, v) / -k.step, n.storage)


# Eager CPU, fused CPU and CUDA (p - (s*m)/d is the same).
@formula("p + (-s*m)/d")
def product_over(n: Any, k: Any, p: Any, m: Any, d: Any) -> Any:
    return p + -k.step * m / d


@formula("p + (storage(-s)*m)/d")
def stored_product_over(n: Any, k: Any, p: Any, m: Any, d: Any) -> Any:
    return p + n.cast(-k.step, n.storage) * m / d


# Eager CUDA; Inductor, which calls fma, for addcdiv_.
@formula("fma(-s, m/d, p)")
def quotient_fused(n: Any, k: Any, p: Any, m: Any, d: Any) -> Any:
    return n.fma(-k.step, m / d, p)


# Inductor under emulate_precision_casts.
@formula("fma(storage(-s), storage(m/d), p)")
def stored_quotient_fused(n: Any, k: Any, p: Any, m: Any, d: Any) -> Any:
    return n.fma(n.cast(-k.step, n.storage), n.cast(m / d, n.storage), p)


# ... in torch 2.11, where addcdiv_ is three operations.
@formula("p + storage(storage(-s)*storage(m/d))")
def stored_quotient_separate(n: Any, k: Any, p: Any, m: Any, d: Any) -> Any:
    return p + n.cast(n.cast(-k.step, n.storage) * n.cast(m / d, n.storage), n.storage)


@formula("p + -s*(m/d)")
def quotient_separate(n: Any, k: Any, p: Any, m: Any, d: Any) -> Any:
    return p + -k.step * (m / d)


# capturable: the step size is in the denominator.
@formula("p + m/d")
def plain_quotient(n: Any, k: Any, p: Any, m: Any, d: Any) -> Any:
    return p + m / d


# ---------------------------------------------------------------- bias corrections: step and root2 of k,
# where b^t is an IEEE power rounded once or the device's torch.pow


# Python floats: eager that is not capturable; fused CPU; the hand-written Triton step.
@formula("double, lr/(1-b^t)")
def in_double(n: Any, k: Any, t: int) -> tuple[Any, Any]:
    h = k.host
    step = h.scalar(k.scalars["lr"]) / (1 - k.power(h, k.scalars["beta1"], t))
    root2 = h.sqrt(1 - k.power(h, k.scalars["beta2"], t))
    return n.value(step), n.value(root2)


def _float32(n: Any, k: Any, t: int, power: Any) -> tuple[Any, Any]:
    step = k.lr / (1 - power(n, k.scalars["beta1"], t))
    return step, n.sqrt(1 - power(n, k.scalars["beta2"], t))


def _tensor(n: Any, k: Any, t: int, power: Any) -> tuple[Any, Any]:
    step = 1 / (1 - power(n, k.scalars["beta1"], t)) * k.lr
    return step, n.sqrt(1 - power(n, k.scalars["beta2"], t))


def _tensors(n: Any, k: Any, t: int, power: Any) -> tuple[Any, Any]:
    step = 1 / ((1 - power(n, k.scalars["beta1"], t)) / k.lr)
    return step, n.sqrt(1 - power(n, k.scalars["beta2"], t))


# Fused CUDA: all of it in float32 (FusedAdamMathFunctor).
@formula("float32, lr/(1-RN(b^t))")
def in_float32(n: Any, k: Any, t: int) -> tuple[Any, Any]:
    return _float32(n, k, t, k.power)


@formula("float32, lr/(1-torch.pow(b, t))")
def in_float32_library(n: Any, k: Any, t: int) -> tuple[Any, Any]:
    return _float32(n, k, t, k.library_power)


# capturable and compiled single-tensor steps: lr / tensor is a reciprocal and a product.
@formula("float32, (1/(1-RN(b^t)))*lr")
def in_tensor(n: Any, k: Any, t: int) -> tuple[Any, Any]:
    return _tensor(n, k, t, k.power)


@formula("float32, (1/(1-torch.pow(b, t)))*lr")
def in_tensor_library(n: Any, k: Any, t: int) -> tuple[Any, Any]:
    return _tensor(n, k, t, k.library_power)


# capturable foreach: _foreach_div_ and _foreach_reciprocal_.
@formula("float32, 1/((1-RN(b^t))/lr)")
def in_tensors(n: Any, k: Any, t: int) -> tuple[Any, Any]:
    return _tensors(n, k, t, k.power)


@formula("float32, 1/((1-torch.pow(b, t))/lr)")
def in_tensors_library(n: Any, k: Any, t: int) -> tuple[Any, Any]:
    return _tensors(n, k, t, k.library_power)


# ---------------------------------------------------------------- a whole step


class Algorithm(NamedTuple):
    """One step as a sequence of roundings. `stored`: every operation's result is rounded to storage before it is
    used, as where each is a kernel of its own; otherwise only what is kept from step to step is."""

    first: Formula
    second: Formula
    bias: Formula = in_double
    decay: Formula = decay_factor
    denominator: Formula = quotient
    update: Formula = product_over
    l2: Formula = l2_separate
    stored: bool = False

    def text(self, k: Any) -> str:
        """The parts that a step with the switches k has, for a report; of lerp the side that its weight takes."""
        first = self.first.text
        if first.startswith("w < 1/2: "):
            first = first.removeprefix("w < 1/2: ").split("; else: ")[0 if k.near1 else 1]
        parts = [f"g = {self.l2.text}"] if k.couples else []
        parts += [f"m = {first}", f"v = {self.second.text}", f"bias: {self.bias.text}"]
        parts += [f"p = {self.decay.text}"] if k.decays else []
        return "; ".join([*parts, f"d = {self.denominator.text}", self.update.text])


def averages(n: Any, a: Algorithm, k: Any, p: Any, m: Any, v: Any, g: Any) -> tuple[Any, Any, Any]:
    """New m and v as the rest of the step uses them, and the gradient with its L2 term."""
    if k.couples:
        g = a.l2.evaluate(n, k, p, g)
        g = n.cast(g, n.storage) if a.stored else g
    m, v = a.first.evaluate(n, k, m, g), a.second.evaluate(n, k, v, g)
    return (n.cast(m, n.storage), n.cast(v, n.storage), g) if a.stored else (m, v, g)


def rounded_step(n: Any, a: Algorithm, k: Any, p: Any, m: Any, v: Any, x: Any, g: Any) -> tuple[Any, Any, Any, Any]:
    """p, m, v and x after one step, rounded to storage; x is the running maximum (amsgrad) or None."""
    m, v, g = averages(n, a, k, p, m, v, g)
    top = v if x is None else n.max(x, v)
    if k.decays:
        p = a.decay.evaluate(n, k, p)
    p = a.update.evaluate(n, k, p, m, a.denominator.evaluate(n, k, top))
    kept = (n.cast(one, n.storage) for one in (p, m, v))
    return *kept, None if x is None else n.cast(top, n.storage)
