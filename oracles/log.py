"""log(x), torch.log: the natural logarithm.

Special values: C23 (N3220) F.10.3.11 and IEEE 754-2019, 9.2.1. No formulas: implementations are
polynomials of their own.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, Row


def log(n: Any, x: Any) -> Any:
    return n.log(x)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "C23 F.10: a NaN argument gives a NaN"),
    Row(lambda n, x: n.is_zero(x), "-inf", "C23 F.10.3.11: log(+-0) is -inf"),
    Row(lambda n, x: x == 1, "+0", "C23 F.10.3.11: log(1) is +0"),
    Row(lambda n, x: x < 0, "nan", "C23 F.10.3.11: log(x) is a NaN for x < 0"),
    Row(lambda n, x: n.is_inf(x), "+inf", "C23 F.10.3.11: log(+inf) is +inf"),
)

ORACLE = Oracle(log, rows=ROWS)
