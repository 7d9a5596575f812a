"""addcmul(a, b, c, value) = a + value b c, torch.addcmul with a Python scalar value.

Special values: IEEE 754-2019, 6.1 to 6.3, on the spelling that torch documents,
a + value * b * c (a product of extended reals has the same special values in any order).
In formulas storage(.) is rounding to the tensors' dtype; every other operation rounds to the
compute dtype, which is float32 for the 16-bit formats.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.oracle import Oracle, formula


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


# Eager CUDA and Inductor Triton call fma; the compiler contracts eager CPU from AVX2 on.
@formula("fma(b, c, a)", applies=unit, admissible=True)
def unit_fused(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(b, c, a)


# Eager CPU without SIMD, Inductor C++ (-ffp-contract=off).
@formula("a + b*c", applies=unit, admissible=True)
def unit_separate(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + b * c


@formula("a + storage(b*c)", applies=unit)
def unit_stored_product(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.cast(b * c, n.storage)


# Eager CUDA (DeviceAddCmulCdiv.cuh), Inductor Triton, and the in-place decomposition.
@formula("fma(value, b*c, a)", applies=scaled, admissible=True)
def product_first_fused(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value), b * c, a)


# Eager CPU from AVX2 on: other order than CUDA.
@formula("fma(value*b, c, a)", applies=scaled, admissible=True)
def value_first_fused(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value) * b, c, a)


@formula("fma(value*c, b, a)", applies=scaled, admissible=True)
def value_last_fused(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value) * c, b, a)


# Inductor C++, which has CUDA's order.
@formula("a + value*(b*c)", applies=scaled, admissible=True)
def product_first(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.scalar(value) * (b * c)


# Eager CPU without SIMD, eager MPS for float32, Inductor 2.11.
@formula("a + (value*b)*c", applies=scaled, admissible=True)
def value_first(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.scalar(value) * b * c


@formula("a + (value*c)*b", applies=scaled, admissible=True)
def value_last(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.scalar(value) * c * b


# value rounded to float16 or bfloat16 on its way, in each of the orders above.
@formula("fma(storage(value), b*c, a)", applies=scaled, admissible=True)
def product_first_fused_storage(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value, n.storage), b * c, a)


@formula("fma(storage(value)*b, c, a)", applies=scaled, admissible=True)
def value_first_fused_storage(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value, n.storage) * b, c, a)


@formula("a + storage(value)*(b*c)", applies=scaled, admissible=True)
def product_first_storage(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.scalar(value, n.storage) * (b * c)


@formula("a + (storage(value)*b)*c", applies=scaled, admissible=True)
def value_first_storage(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.scalar(value, n.storage) * b * c


# The in-place decomposition with an explicit cast after its mul.
@formula("fma(value, storage(b*c), a)", applies=scaled)
def stored_product_fused(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value), n.cast(b * c, n.storage), a)


@formula("a + storage(value*storage(b*c))", applies=scaled)
def stored_products(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.cast(n.scalar(value) * n.cast(b * c, n.storage), n.storage)


# Eager MPS for the 16-bit types: everything has the tensors' type (PointwiseOps.metal).
@formula("a + storage(storage(storage(value)*b)*c)", applies=scaled)
def all_storage(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.cast(n.cast(n.scalar(value, n.storage) * b, n.storage) * c, n.storage)


ORACLE = Oracle(
    addcmul,
    scale=scale,
    intermediates=intermediates,
    underflow=underflow,
    arithmetic=True,
    formulas=(
        unit_fused,
        unit_separate,
        unit_stored_product,
        product_first_fused,
        value_first_fused,
        value_last_fused,
        product_first,
        value_first,
        value_last,
        product_first_fused_storage,
        value_first_fused_storage,
        product_first_storage,
        value_first_storage,
        stored_product_fused,
        stored_products,
        all_storage,
    ),
)
