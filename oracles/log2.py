"""log2(x), torch.log2: the binary logarithm.

Special values: C23 (N3220) F.10.3.15 and IEEE 754-2019, 9.2.1. No formulas: implementations are
polynomials of their own.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, Row


def log2(n: Any, x: Any) -> Any:
    return n.log2(x)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "C23 F.10: a NaN argument gives a NaN"),
    Row(lambda n, x: n.is_zero(x), "-inf", "C23 F.10.3.15: log2(+-0) is -inf"),
    Row(lambda n, x: x == 1, "+0", "C23 F.10.3.15: log2(1) is +0"),
    Row(lambda n, x: x < 0, "nan", "C23 F.10.3.15: log2(x) is a NaN for x < 0"),
    Row(lambda n, x: n.is_inf(x), "+inf", "C23 F.10.3.15: log2(+inf) is +inf"),
)

ORACLE = Oracle(log2, rows=ROWS)
