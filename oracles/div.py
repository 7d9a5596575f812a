"""div(a, b) = a / b, torch.div (true division) by a tensor or by a Python scalar.

Special values: IEEE 754-2019, 6.1, 6.3 and 7.3, on the spelling a / b. In formulas storage(.)
is rounding to the tensors' dtype, double(.) arithmetic on the host; every other operation
rounds to the compute dtype, which is float32 for the 16-bit formats. Triton's "/" on float32 is
div.full.f32, an approximation within 2 ULP without a fixed sequence of roundings: no formula
here can stand for it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.facts.oracle import Oracle, written


def div(n: Any, a: Any, b: Any) -> Any:
    return a / b


def intermediates(n: Any, a: Any, b: Any) -> tuple[Any, ...]:
    return (1 / b,)


def underflow(n: Any, a: Any, b: Any) -> Any:
    """Half a unit of 1 / b, times a, and of the product."""
    return (1 + abs(a)) * Fraction(1, 2)


def divisor(n: Any, b: Any) -> Any:
    """The divisor in the compute dtype, where 1 / b is rounded: the exact double stays out of it."""
    return n.scalar(b) if isinstance(b, float) else b


ORACLE = Oracle(
    div,
    intermediates=intermediates,
    underflow=underflow,
    arithmetic=True,
    formulas=(
        # One correctly rounded division: eager, but for scalars on CUDA; Inductor C++; Triton's div_rn.
        written("a / b", admissible=True),
        # Eager CUDA (BinaryDivTrueKernel.cu) and Inductor off the CPU, for a scalar divisor.
        written("a * double(1/b)", scalars=("b",), applies=lambda scalars: scalars["b"] != 0),
        written("a * (1/b)"),
        # A divisor that became a tensor of the operand's dtype.
        written("a / storage(b)", scalars=("b",), admissible=True),
        written("a * (1/storage(b))", scalars=("b",)),
        # A user's a * b.reciprocal().
        written("a * storage(1/b)", scalars=()),
    ),
)
