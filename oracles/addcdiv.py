"""addcdiv(a, b, c, value) = a + value b / c, torch.addcdiv with a Python scalar value.

Special values: IEEE 754-2019, 6.1 to 6.3 and 7.3 (division by zero), on the spelling that torch
documents, a + value * (b / c). In formulas storage(.) is rounding to the tensors' dtype; every
other operation rounds to the compute dtype, which is float32 for the 16-bit formats.
Triton's "/" on float32 is div.full.f32, an approximation within 2 ULP without a fixed sequence
of roundings: no formula here can stand for it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.oracle import Oracle, formula


def addcdiv(n: Any, a: Any, b: Any, c: Any, value: Any) -> Any:
    return a + value * (b / c)


def scale(n: Any, a: Any, b: Any, c: Any, value: Any) -> Any:
    return abs(a) + abs(value * (b / c))


def intermediates(n: Any, a: Any, b: Any, c: Any, value: Any) -> tuple[Any, ...]:
    return (b / c, 1 / c, value * b, value * (b / c))


def underflow(n: Any, a: Any, b: Any, c: Any, value: Any) -> Any:
    """Half a unit of the quotient, of 1 / c or of value * b, times what it is multiplied by, and of the second."""
    return (1 + abs(value) + abs(value * b) + abs(1 / c)) * Fraction(1, 2)


def unit(scalars: dict[str, float]) -> bool:
    return scalars["value"] == 1


def scaled(scalars: dict[str, float]) -> bool:
    return scalars["value"] != 1


# Eager CPU and CUDA, Inductor C++.
@formula("a + b/c", applies=unit, admissible=True)
def unit_quotient(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + b / c


@formula("a + b*(1/c)", applies=unit)
def unit_reciprocal(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + b * (1 / c)


@formula("fma(b, 1/c, a)", applies=unit)
def unit_reciprocal_fused(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(b, 1 / c, a)


@formula("a + storage(b/c)", applies=unit)
def unit_stored_quotient(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.cast(b / c, n.storage)


# Eager CUDA (DeviceAddCmulCdiv.cuh), Inductor Triton with div_rn, the in-place decomposition.
@formula("fma(value, b/c, a)", applies=scaled, admissible=True)
def quotient_fused(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value), b / c, a)


# Inductor C++, and the div, mul, add of torch.addcdiv(value=) where nothing is contracted.
@formula("a + value*(b/c)", applies=scaled, admissible=True)
def quotient_separate(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.scalar(value) * (b / c)


# Eager CPU and MPS.
@formula("a + (value*b)/c", applies=scaled, admissible=True)
def value_first(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.scalar(value) * b / c


@formula("fma(value*b, 1/c, a)", applies=scaled)
def reciprocal_fused(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value) * b, 1 / c, a)


@formula("fma(value, b*(1/c), a)", applies=scaled)
def reciprocal_quotient_fused(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value), b * (1 / c), a)


@formula("a + value*(b*(1/c))", applies=scaled)
def reciprocal_quotient(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.scalar(value) * (b * (1 / c))


# value rounded to float16 or bfloat16 on its way, in each of the orders above.
@formula("fma(storage(value), b/c, a)", applies=scaled, admissible=True)
def quotient_fused_storage(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value, n.storage), b / c, a)


@formula("a + storage(value)*(b/c)", applies=scaled, admissible=True)
def quotient_separate_storage(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.scalar(value, n.storage) * (b / c)


@formula("a + (storage(value)*b)/c", applies=scaled, admissible=True)
def value_first_storage(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.scalar(value, n.storage) * b / c


# The decompositions with an explicit cast after each of their steps.
@formula("fma(value, storage(b/c), a)", applies=scaled)
def stored_quotient_fused(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return n.fma(n.scalar(value), n.cast(b / c, n.storage), a)


@formula("a + storage(value*storage(b/c))", applies=scaled)
def stored_steps(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.cast(n.scalar(value) * n.cast(b / c, n.storage), n.storage)


# Eager MPS for the 16-bit types: everything has the tensors' type (PointwiseOps.metal).
@formula("a + storage(storage(storage(value)*b)/c)", applies=scaled)
def all_storage(n: Any, a: Any, b: Any, c: Any, value: float) -> Any:
    return a + n.cast(n.cast(n.scalar(value, n.storage) * b, n.storage) / c, n.storage)


ORACLE = Oracle(
    addcdiv,
    scale=scale,
    intermediates=intermediates,
    underflow=underflow,
    arithmetic=True,
    formulas=(
        unit_quotient,
        unit_reciprocal,
        unit_reciprocal_fused,
        unit_stored_quotient,
        quotient_fused,
        quotient_separate,
        value_first,
        reciprocal_fused,
        reciprocal_quotient_fused,
        reciprocal_quotient,
        quotient_fused_storage,
        quotient_separate_storage,
        value_first_storage,
        stored_quotient_fused,
        stored_steps,
        all_storage,
    ),
)
