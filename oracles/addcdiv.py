"""addcdiv(a, b, c, value) = a + value b / c, torch.addcdiv with a Python scalar value.

Special values: IEEE 754-2019, 6.1 to 6.3 and 7.3 (division by zero), on the spelling that torch
documents, a + value * (b / c), which has those of a + value * b / c. In formulas storage(.) is
rounding to the tensors' dtype; every other operation rounds to the compute dtype, which is float32
for the 16-bit formats.
Triton's "/" on float32 is div.full.f32, an approximation within 2 ULP without a fixed sequence
of roundings: no formula here can stand for it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.facts.oracle import Oracle, written


def addcdiv(n: Any, a: Any, b: Any, c: Any, value: Any) -> Any:
    return a + value * b / c  # with an exact product, the quotient is exact too where value and c share their factors


def scale(n: Any, a: Any, b: Any, c: Any, value: Any) -> Any:
    return abs(a) + abs(value * b / c)


def intermediates(n: Any, a: Any, b: Any, c: Any, value: Any) -> tuple[Any, ...]:
    return (b / c, 1 / c, value * b, value * (b / c))


def underflow(n: Any, a: Any, b: Any, c: Any, value: Any) -> Any:
    """Half a unit of the quotient, of 1 / c or of value * b, times what it is multiplied by, and of the second."""
    return (1 + abs(value) + abs(value * b) + abs(1 / c)) * Fraction(1, 2)


def unit(scalars: dict[str, float]) -> bool:
    return scalars["value"] == 1


def scaled(scalars: dict[str, float]) -> bool:
    return scalars["value"] != 1


ORACLE = Oracle(
    addcdiv,
    scale=scale,
    intermediates=intermediates,
    underflow=underflow,
    arithmetic=True,
    formulas=(
        # Eager CPU and CUDA, Inductor C++.
        written("a + b/c", applies=unit, admissible=True),
        written("a + b*(1/c)", applies=unit),
        written("fma(b, 1/c, a)", applies=unit),
        written("a + storage(b/c)", applies=unit),
        # Eager CUDA (DeviceAddCmulCdiv.cuh), Inductor Triton with div_rn, the in-place decomposition.
        written("fma(value, b/c, a)", applies=scaled, admissible=True),
        # Inductor C++, and the div, mul, add of torch.addcdiv(value=) where nothing is contracted.
        written("a + value*(b/c)", applies=scaled, admissible=True),
        # Eager CPU and MPS.
        written("a + (value*b)/c", applies=scaled, admissible=True),
        written("fma(value*b, 1/c, a)", applies=scaled),
        written("fma(value, b*(1/c), a)", applies=scaled),
        written("a + value*(b*(1/c))", applies=scaled),
        # value rounded to float16 or bfloat16 on its way, in each of the orders above.
        written("fma(storage(value), b/c, a)", applies=scaled, admissible=True),
        written("a + storage(value)*(b/c)", applies=scaled, admissible=True),
        written("a + (storage(value)*b)/c", applies=scaled, admissible=True),
        # The decompositions with an explicit cast after each of their steps.
        written("fma(value, storage(b/c), a)", applies=scaled),
        written("a + storage(value*storage(b/c))", applies=scaled),
        # Eager MPS for the 16-bit types: everything has the tensors' type (PointwiseOps.metal).
        written("a + storage(storage(storage(value)*b)/c)", applies=scaled),
    ),
)
