"""2^x, torch.exp2.

Special values: C23 (N3220) F.10.3.4 and IEEE 754-2019, 9.2.1. Saturation holds for every format: errors are
clamped to 2^1024 in float64, and float64's smallest subnormal is 2^-1074. No formulas: implementations are
polynomials of their own.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.facts.oracle import Oracle, Row


def exp2(n: Any, x: Any) -> Any:
    return n.exp2(x)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "C23 F.10: a NaN argument gives a NaN"),
    Row(lambda n, x: n.is_zero(x), Fraction(1), "C23 F.10.3.4: exp2(+-0) is 1"),
    Row(lambda n, x: n.is_inf(x) & (x > 0), "+inf", "C23 F.10.3.4: exp2(+inf) is +inf"),
    Row(lambda n, x: n.is_inf(x), "+0", "C23 F.10.3.4: exp2(-inf) is +0"),
    Row(lambda n, x: x >= 1024, "+huge", "saturation: exp2(x) >= 2^1024"),
    Row(lambda n, x: x < -1154, "+tiny", "saturation: 0 < exp2(x) < 2^-1154"),
)

ORACLE = Oracle(exp2, rows=ROWS)
