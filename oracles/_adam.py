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

from collections.abc import Callable
from typing import Any, NamedTuple

from verify.facts.oracle import Formula, expression, formula

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


# ---------------------------------------------------------------- formulas
# Their text is their code: b and w are beta and 1 - beta of the average, c is root2 and s the step.

_NEAR = "w < 1/2: "
_SPELLED = {
    "torch.sqrt(v)": "library_sqrt(n, v)", "fl(1/c)": "inverse_root2", "fl(lr*wd)": "lr_decay", "fl(1-lr*wd)": "decay",
}  # fmt: skip
_SYMBOLS = {"wd": "weight_decay", "c": "root2", "s": "step"}


def _sides(text: str) -> list[Callable[..., Any]]:
    """What runs a formula's sides: one, or that of w < 1/2 and the other."""
    for spelled, name in _SPELLED.items():
        text = text.replace(spelled, name)
    return [expression(side) for side in text.removeprefix(_NEAR).split("; else: ")]


def _stage(arguments: str, beta: str = "") -> Callable[..., Formula]:
    """What makes a formula of its text. arguments: those of `evaluate` behind n and k. beta: the average's, 1 or 2."""

    def named(text: str, **options: Any) -> Formula:
        sides = _sides(text)

        def evaluate(n: Any, k: Any, *values: Any) -> Any:
            given = dict(zip(arguments.split(), values, strict=True))
            if beta:
                given |= {"b": getattr(k, f"beta{beta}"), "w": getattr(k, f"rest{beta}")}

            def look_up(name: str) -> Any:
                return given[name] if name in given else getattr(k, _SYMBOLS.get(name, name))

            return sides[0 if len(sides) == 1 or k.near1 else 1](n, look_up)

        return formula(text, **options)(evaluate)

    return named


_first, _second, _l2, _decay = _stage("m g", "1"), _stage("v g", "2"), _stage("p g"), _stage("p")
_denominator, _update = _stage("v"), _stage("p m d")

# ---------------------------------------------------------------- first average

# Eager CPU from AVX2 on and CUDA (Lerp.h, contracted), single-tensor and foreach; the vector body of fused CPU.
lerp_fused = _first("w < 1/2: fma(w, g-m, m); else: fma(-(1-w), g-m, g)")
# Inductor C++, which contracts nothing; eager CPU without SIMD.
lerp_separate = _first("w < 1/2: m + w*(g-m); else: g - (1-w)*(g-m)")
# Inductor for _foreach_lerp_, whose polyfill takes 1 - w in the tensors' dtype (torch/_dynamo/polyfills).
lerp_stored_weight = _first("w < 1/2: m + w*(g-m); else: g - storage(1-storage(w))*(g-m)")
lerp_stored_weight_fused = _first("w < 1/2: fma(w, g-m, m); else: fma(-storage(1-storage(w)), g-m, g)")
# Inductor under emulate_precision_casts.
lerp_stored = _first("w < 1/2: m + storage(w*storage(g-m)); else: g - storage((1-w)*storage(g-m))")
# The hand-written Triton step, whatever the weight; separate under an interpreter whose fma rounds twice.
lerp_one_sided = _first("m + w*(g-m)", applies=lambda scalars: scalars["beta1"] <= 0.5)
lerp_one_sided_fused = _first("fma(w, g-m, m)", applies=lambda scalars: scalars["beta1"] <= 0.5)
# torch's fused CUDA step (fused_adam_utils.cuh).
ema_two_fused = _first("fma(b, m, fma(-b, g, g))")
# As written in the paper and in torch's documentation; fused MPS.
ema_separate = _first("b*m + w*g")
ema_fused = _first("fma(b, m, w*g)")
ema_fused_gradient = _first("fma(w, g, b*m)")


FIRST = (
    lerp_fused, lerp_separate, lerp_stored_weight, lerp_stored_weight_fused, lerp_one_sided, lerp_one_sided_fused,
    lerp_stored, ema_two_fused, ema_separate, ema_fused, ema_fused_gradient,
)  # fmt: skip

# ---------------------------------------------------------------- second average

# addcmul_ of eager CPU from AVX2 on, and the vector body of fused CPU (contracted).
square_last_fused = _second("fma(w*g, g, b*v)")
# addcmul_ of eager CUDA; Inductor, which calls fma, for addcmul_.
square_first_fused = _second("fma(w, g*g, b*v)")
# Eager CPU without SIMD, fused MPS.
square_last = _second("b*v + (w*g)*g")
# Inductor C++ for _foreach_addcmul.
square_first = _second("b*v + w*(g*g)")
decay_fused = _second("fma(b, v, (w*g)*g)")
decay_fused_square = _second("fma(b, v, w*(g*g))")


# Fused CPU (FusedAdamKernel.cpp): its scalar loop for what is left of a thread's share is contracted the other way.
@formula("whole vectors: fma(w*g, g, b*v); rest: fma(b, v, (w*g)*g)")
def square_by_place(n: Any, k: Any, v: Any, g: Any) -> Any:
    term = k.rest2 * g
    return n.where(k.rest, n.fma(k.beta2, v, term * g), n.fma(term, g, k.beta2 * v))


# torch's fused CUDA step (fused_adam_utils.cuh).
square_two_fused = _second("fma(b, v, fma(-b, g*g, g*g))")
# The hand-written Triton step.
square_lerp_fused = _second("fma(w, fma(g, g, -v), v)")
square_lerp = _second("v + w*(g*g - v)")
# mul_ and addcmul_ are two operations, each of which rounds to storage: eager, single-tensor and foreach.
square_last_fused_stored = _second("fma(w*g, g, storage(b*v))")
square_first_fused_stored = _second("fma(w, g*g, storage(b*v))")
# Inductor under emulate_precision_casts.
square_stored_first_fused = _second("fma(w, storage(g*g), storage(b*v))")
# ... in torch 2.11, where addcmul_ is three operations.
square_stored_products = _second("storage(b*v) + storage(w*storage(g*g))")
square_last_stored = _second("storage(b*v) + (w*g)*g")
# ... and the factor 1 - beta2 is rounded to storage where the kernel takes it in the tensors' dtype.
square_last_fused_stored_weight = _second("fma(storage(w)*g, g, storage(b*v))")
square_last_stored_weight = _second("storage(b*v) + (storage(w)*g)*g")
# _foreach_mul_ of the CPU takes its scalar in the tensors' dtype, where mul_ takes it in float32.
square_last_fused_stored_beta = _second("fma(w*g, g, storage(storage(b)*v))")
square_last_stored_beta = _second("storage(storage(b)*v) + (w*g)*g")


SECOND = (
    square_last_fused, square_first_fused, square_last, square_first, decay_fused, decay_fused_square, square_by_place,
    square_two_fused, square_lerp_fused, square_lerp, square_last_fused_stored, square_first_fused_stored,
    square_stored_first_fused, square_stored_products, square_last_stored, square_last_fused_stored_weight,
    square_last_stored_weight, square_last_fused_stored_beta, square_last_stored_beta,
)  # fmt: skip

# ---------------------------------------------------------------- the parameter

# Eager CPU and CUDA from AVX2 on: add(alpha=) contracts. Fused CUDA.
l2_fused = _l2("fma(wd, p, g)")
# Inductor C++; fused CPU where the compiler does not contract.
l2_separate = _l2("g + wd*p")
# Eager CPU in bfloat16: add takes alpha in the tensors' dtype.
l2_stored_weight_fused = _l2("fma(storage(wd), p, g)")
l2_stored_weight = _l2("g + storage(wd)*p")
# ... and its scalar loop rounds the product too.
l2_stored_product = _l2("g + storage(storage(wd)*p)")
# Inductor under emulate_precision_casts.
l2_stored = _l2("g + storage(wd*p)")
decay_factor = _decay("p*fl(1-lr*wd)")
# Eager: mul_ is an operation of its own.
decay_factor_stored = _decay("storage(p*fl(1-lr*wd))")
# ... and _foreach_mul_ of the CPU.
decay_stored_factor = _decay("storage(p*storage(fl(1-lr*wd)))")
# Fused CUDA, contracted: p -= lr * wd * p with both in float32.
decay_contracted = _decay("fma(-(lr*wd), p, p)")
decay_subtracted = _decay("p - (lr*wd)*p")
# The hand-written Triton step: lr wd in double.
decay_host = _decay("fma(-fl(lr*wd), p, p)")
decay_host_separate = _decay("p - fl(lr*wd)*p")
# Eager CPU; fused CPU and CUDA; Inductor.
quotient = _denominator("sqrt(v)/c + eps")
# Eager CPU, whose square root is Intel's VML (within 1 ULP).
library_quotient = _denominator("torch.sqrt(v)/c + eps")
# Eager CUDA divides by a Python scalar through its reciprocal in the compute dtype.
reciprocal = _denominator("sqrt(v)*(1/c) + eps")
# The hand-written Triton step: 1 / c in double.
reciprocal_host = _denominator("fma(sqrt(v), fl(1/c), eps)")
reciprocal_host_separate = _denominator("sqrt(v)*fl(1/c) + eps")
# Eager in bfloat16: sqrt, div and add_ are operations of their own.
quotient_stored = _denominator("storage(storage(storage(sqrt(v))/c) + eps)")
# ... on the CPU, where add_ takes a scalar in the tensors' dtype.
quotient_stored_eps = _denominator("storage(storage(storage(sqrt(v))/c) + storage(eps))")
# Inductor under emulate_precision_casts: c, a tensor of one element, is stored too.
quotient_stored_root = _denominator("storage(storage(storage(sqrt(v))/storage(c)) + eps)")
reciprocal_stored = _denominator("storage(storage(storage(sqrt(v))*(1/c)) + eps)")
# capturable, single-tensor: -step is folded into the denominator.
folded = _denominator("sqrt(v)/(c*(-s)) + eps*(1/(-s))")
folded_stored = _denominator("storage(storage(storage(sqrt(v))/(c*(-s))) + eps*(1/(-s)))")
# capturable, foreach.
divided = _denominator("(sqrt(v)/c + eps)/(-s)")
divided_stored = _denominator("storage(storage(storage(storage(sqrt(v))/c) + eps)/(-s))")
# Eager CPU, fused CPU and CUDA (p - (s*m)/d is the same).
product_over = _update("p + (-s*m)/d")
stored_product_over = _update("p + (storage(-s)*m)/d")
# Eager CUDA; Inductor, which calls fma, for addcdiv_.
quotient_fused = _update("fma(-s, m/d, p)")
# Inductor under emulate_precision_casts.
stored_quotient_fused = _update("fma(storage(-s), storage(m/d), p)")
# ... in torch 2.11, where addcdiv_ is three operations.
stored_quotient_separate = _update("p + storage(storage(-s)*storage(m/d))")
quotient_separate = _update("p + -s*(m/d)")
# capturable: the step size is in the denominator.
plain_quotient = _update("p + m/d")


# ---------------------------------------------------------------- bias corrections: step and root2 of k,
# where b^t is an IEEE power rounded once or the device's torch.pow


# Python floats: eager that is not capturable; fused CPU; the hand-written Triton step.
@formula("double, lr/(1-b^t)")
def in_double(n: Any, k: Any, t: int) -> tuple[Any, Any]:
    h = k.host
    step = h.scalar(k.scalars["lr"]) / (1 - k.power(h, k.scalars["beta1"], t))
    root2 = h.sqrt(1 - k.power(h, k.scalars["beta2"], t))
    return n.value(step), n.value(root2)


def _correction(text: str) -> Formula:
    """In float32; b^t as torch.pow has it, or rounded once."""
    run = expression(text.removeprefix("float32, ").replace("torch.pow(b, t)", "power").replace("RN(b^t)", "power"))

    def evaluate(n: Any, k: Any, t: int) -> tuple[Any, Any]:
        power = k.library_power if "torch.pow" in text else k.power
        first, second = (power(n, k.scalars[beta], t) for beta in ("beta1", "beta2"))
        return run(n, {"power": first, "lr": k.lr}.__getitem__), n.sqrt(1 - second)

    return formula(text)(evaluate)


# Fused CUDA: all of it in float32 (FusedAdamMathFunctor).
in_float32 = _correction("float32, lr/(1-RN(b^t))")
in_float32_library = _correction("float32, lr/(1-torch.pow(b, t))")
# capturable and compiled single-tensor steps: lr / tensor is a reciprocal and a product.
in_tensor = _correction("float32, (1/(1-RN(b^t)))*lr")
in_tensor_library = _correction("float32, (1/(1-torch.pow(b, t)))*lr")
# capturable foreach: _foreach_div_ and _foreach_reciprocal_.
in_tensors = _correction("float32, 1/((1-RN(b^t))/lr)")
in_tensors_library = _correction("float32, 1/((1-torch.pow(b, t))/lr)")

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
