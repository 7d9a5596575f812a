"""addcmul(a, b, c, value) = a + value b c, torch.addcmul with a Python scalar value.

Special values: IEEE 754-2019, 6.1 to 6.3, on the spelling that torch documents,
a + value * b * c (a product of extended reals has the same special values in any order).
In formulas storage(.) is rounding to the tensors' dtype; every other operation rounds to the
compute dtype, which is float32 for the 16-bit formats.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.facts.oracle import Oracle, single, written


def addcmul(n: Any, a: Any, b: Any, c: Any, value: Any) -> Any:
    return a + value * b * c


def scale(n: Any, a: Any, b: Any, c: Any, value: Any) -> Any:
    return abs(a) + abs(value * b * c)


def intermediates(n: Any, a: Any, b: Any, c: Any, value: Any) -> tuple[Any, ...]:
    return (b * c, value * b, value * c, value * b * c)


def underflow(n: Any, a: Any, b: Any, c: Any, value: Any) -> Any:
    """Half a unit of the first product, times the remaining factor, and half a unit of the second."""
    return (1 + abs(b) + abs(c) + abs(value)) * Fraction(1, 2)


def unit(scalars: dict[str, float]) -> bool:
    return scalars["value"] == 1


def scaled(scalars: dict[str, float]) -> bool:
    return scalars["value"] != 1


def long(scalars: dict[str, float]) -> bool:
    """No float32."""
    return single(scalars["value"]) != scalars["value"]


ORACLE = Oracle(
    addcmul,
    scale=scale,
    intermediates=intermediates,
    underflow=underflow,
    arithmetic=True,
    formulas=(
        # Eager CUDA and Inductor Triton call fma; the compiler contracts eager CPU from AVX2 on.
        written("fma(b, c, a)", applies=unit, admissible=True),
        # Eager CPU without SIMD, Inductor C++ (-ffp-contract=off).
        written("a + b*c", applies=unit, admissible=True),
        written("a + storage(b*c)", applies=unit),
        # Eager CUDA (DeviceAddCmulCdiv.cuh), Inductor Triton, and the in-place decomposition.
        written("fma(value, b*c, a)", applies=scaled, admissible=True),
        # Eager CPU from AVX2 on: other order than CUDA.
        written("fma(value*b, c, a)", applies=scaled, admissible=True),
        written("fma(value*c, b, a)", applies=scaled, admissible=True),
        # Inductor C++, which has CUDA's order.
        written("a + value*(b*c)", applies=scaled, admissible=True),
        # Inductor C++ (torch 2.13) takes the number in a float64 tensor as a float.
        written("a + single(value)*(b*c)", applies=long, wrong=True),
        # Eager CPU without SIMD, eager MPS for float32, Inductor 2.11.
        written("a + (value*b)*c", applies=scaled, admissible=True),
        written("a + (value*c)*b", applies=scaled, admissible=True),
        # value rounded to float16 or bfloat16 on its way, in each of the orders above.
        written("fma(storage(value), b*c, a)", applies=scaled, admissible=True),
        written("fma(storage(value)*b, c, a)", applies=scaled, admissible=True),
        written("a + storage(value)*(b*c)", applies=scaled, admissible=True),
        written("a + (storage(value)*b)*c", applies=scaled, admissible=True),
        # The in-place decomposition with an explicit cast after its mul.
        written("fma(value, storage(b*c), a)", applies=scaled),
        written("a + storage(value*storage(b*c))", applies=scaled),
        # Eager MPS for the 16-bit types: everything has the tensors' type (PointwiseOps.metal).
        written("a + storage(storage(storage(value)*b)*c)", applies=scaled),
    ),
)
