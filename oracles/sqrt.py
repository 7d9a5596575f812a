"""sqrt(x), torch.sqrt: the non-negative square root.

Special values: IEEE 754-2019, 6.3 and 7.2 (squareRoot), repeated in C23 F.10.4.10.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, Row, written


def sqrt(n: Any, x: Any) -> Any:
    return n.sqrt(x)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "IEEE 754-2019 6.2: a NaN operand gives a NaN"),
    Row(lambda n, x: n.is_zero(x) & n.signbit(x), "-0", "IEEE 754-2019 6.3: squareRoot(-0) is -0"),
    Row(lambda n, x: n.is_zero(x), "+0", "IEEE 754-2019 5.4.1: the exact root of +0"),
    Row(lambda n, x: x < 0, "nan", "IEEE 754-2019 7.2: squareRoot of an operand less than zero is invalid"),
    Row(lambda n, x: n.is_inf(x), "+inf", "IEEE 754-2019 6.1: squareRoot(+inf) is exact"),
)


ORACLE = Oracle(
    sqrt,
    rows=ROWS,
    formulas=(
        # Eager CUDA, Triton's sqrt_rn, Inductor C++.
        written("sqrt(x)"),
        # The shape of fast approximations.
        written("x * (1/sqrt(x))"),
    ),
)
