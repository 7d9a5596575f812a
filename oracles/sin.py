"""sin(x) of x in radians, torch.sin, for every finite x: a large one is what it is, not a rounded angle.

Special values: C23 (N3220) F.10.1.6 and IEEE 754-2019, 9.2.1. No formulas: implementations are
reductions and polynomials of their own.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, Row


def sin(n: Any, x: Any) -> Any:
    return n.sin(x)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "C23 F.10: a NaN argument gives a NaN"),
    Row(lambda n, x: n.is_zero(x) & n.signbit(x), "-0", "C23 F.10.1.6: sin(+-0) is +-0"),
    Row(lambda n, x: n.is_zero(x), "+0", "C23 F.10.1.6: sin(+-0) is +-0"),
    Row(lambda n, x: n.is_inf(x), "nan", "C23 F.10.1.6: sin(+-inf) is a NaN"),
)

ORACLE = Oracle(sin, rows=ROWS)
