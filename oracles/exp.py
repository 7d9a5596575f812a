"""exp(x), torch.exp.

Special values: C23 (N3220) F.10.3.1 and IEEE 754-2019, 9.2.1. Saturation holds for every
format: above 1024 log 2 the value exceeds 2^1024, to which errors are clamped in float64; below
-800 it is under 2^-1154, where float64's smallest subnormal is 2^-1074. No formulas: implementations are
polynomials of their own.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.facts.oracle import Oracle, Row

# The largest double below 1024 log 2: evaluation in float64 overflows from the next one on.
LARGEST = float.fromhex("0x1.62e42fefa39efp+9")


def exp(n: Any, x: Any) -> Any:
    return n.exp(x)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "C23 F.10: a NaN argument gives a NaN"),
    Row(lambda n, x: n.is_zero(x), Fraction(1), "C23 F.10.3.1: exp(+-0) is 1"),
    Row(lambda n, x: n.is_inf(x) & (x > 0), "+inf", "C23 F.10.3.1: exp(+inf) is +inf"),
    Row(lambda n, x: n.is_inf(x), "+0", "C23 F.10.3.1: exp(-inf) is +0"),
    Row(lambda n, x: x > LARGEST, "+huge", "saturation: exp(x) > 2^1024"),
    Row(lambda n, x: x < -800, "+tiny", "saturation: 0 < exp(x) < 2^-1154"),
)

ORACLE = Oracle(exp, rows=ROWS)
