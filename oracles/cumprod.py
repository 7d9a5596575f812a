"""Prefix products: y_i = x_0 x_1 ... x_i, torch.cumprod.

Special values: IEEE 754-2019, 6.1 to 6.3: the sign is the parity of the signs, zeros and infinities included.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, Row
from verify.oracles._scans import INF, NANS


def cumprod(n: Any, x: Any) -> Any:
    return n.cumprod(x)


def _infinite(n: Any, x: Any) -> Any:
    return n.seen((x == INF) | (x == -INF))


ROWS = (
    Row(lambda n, x: n.seen(n.is_nan(x)), "nan", NANS),
    Row(lambda n, x: _infinite(n, x) & n.seen(n.is_zero(x)), "nan", "IEEE 754-2019, 7.2 b: 0 x inf"),
    Row(lambda n, x: _infinite(n, x) & n.odd(n.signbit(x)), "-inf", "IEEE 754-2019, 6.1 and 6.3"),
    Row(_infinite, "+inf", "IEEE 754-2019, 6.1 and 6.3"),
    Row(lambda n, x: n.seen(n.is_zero(x)) & n.odd(n.signbit(x)), "-0", "IEEE 754-2019, 6.3"),
    Row(lambda n, x: n.seen(n.is_zero(x)), "+0", "IEEE 754-2019, 6.3"),
)

ORACLE = Oracle(cumprod, rows=ROWS)


def algorithm(n: Any, x: Any, *, order: Any) -> Any:
    return n.cumprod(x, order)
