"""sub(a, b, alpha) = a - alpha b, torch.sub with a Python scalar alpha.

Special values: IEEE 754-2019, 6.1 to 6.3, on the spelling that torch documents, a - alpha * b.
In formulas storage(.) is rounding to the tensors' dtype; every other operation rounds to the
compute dtype, which is float32 for the 16-bit formats.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.facts.oracle import Oracle, formula, written


def sub(n: Any, a: Any, b: Any, alpha: Any) -> Any:
    return a - alpha * b


def scale(n: Any, a: Any, b: Any, alpha: Any) -> Any:
    return abs(a) + abs(alpha * b)


def intermediates(n: Any, a: Any, b: Any, alpha: Any) -> tuple[Any, ...]:
    return (alpha * b,)


def underflow(n: Any, a: Any, b: Any, alpha: Any) -> Any:
    """alpha * b: half a unit."""
    return n.const(Fraction(1, 2))


def unit(scalars: dict[str, float]) -> bool:
    return scalars["alpha"] == 1


def scaled(scalars: dict[str, float]) -> bool:
    return scalars["alpha"] != 1


# _foreach_sub compiled by Inductor before torch 2.13 (pytorch/pytorch#184415).
@formula("a - b, without alpha", applies=scaled, wrong=True)
def without_alpha(n: Any, a: Any, b: Any, alpha: float) -> Any:
    return a - b


ORACLE = Oracle(
    sub,
    scale=scale,
    intermediates=intermediates,
    underflow=underflow,
    arithmetic=True,
    formulas=(
        written("a - b", applies=unit, admissible=True),
        without_alpha,
        # Eager CUDA and CPU implement sub as add with -alpha, and are contracted like it.
        written("fma(-alpha, b, a)", applies=scaled, admissible=True),
        # Inductor has no fma for sub: separate in C++ always, in Triton without fp fusion.
        written("a - alpha*b", applies=scaled, admissible=True),
        # Eager CPU rounds alpha to float16 or bfloat16 before it computes in float32.
        written("fma(-storage(alpha), b, a)", applies=scaled, admissible=True),
        written("a - storage(alpha)*b", applies=scaled, admissible=True),
        # A product kept in the tensors' dtype: Inductor under emulate_precision_casts, a user's mul and sub.
        written("a - storage(alpha*b)", applies=scaled),
        # Eager MPS: alpha, product and difference all have the tensors' type (BinaryKernel.metal).
        written("a - storage(storage(alpha)*b)", applies=scaled),
    ),
)
