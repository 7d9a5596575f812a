"""atan(x), torch.atan.

Special values: C23 (N3220) F.10.1.3 and IEEE 754-2019, 9.2.1; at infinities the function itself is +-pi/2. No formulas:
implementations are polynomials of their own.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, Row


def atan(n: Any, x: Any) -> Any:
    return n.atan(x)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "C23 F.10: a NaN argument gives a NaN"),
    Row(lambda n, x: n.is_zero(x) & n.signbit(x), "-0", "C23 F.10.1.3: atan(+-0) is +-0"),
    Row(lambda n, x: n.is_zero(x), "+0", "C23 F.10.1.3: atan(+-0) is +-0"),
)

ORACLE = Oracle(atan, rows=ROWS)
