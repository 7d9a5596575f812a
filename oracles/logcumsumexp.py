"""y_i = log(exp(x_0) + ... + exp(x_i)), torch.logcumsumexp, as m + log1p(r): m the largest x_j so far, and r the sum of
the others' exponentials relative to exp(m).

With one finite term r is 0 and y_i exact; with more, y_i - m is the logarithm of a sum of exponentials of distinct
rationals, which is rational for one term of coefficient 1 alone (Lindemann-Weierstrass; Baker 1975, theorem 1.4).
Special values: C23 (N3220) F.10.3.1 and F.10.3.7 on exp and log, IEEE 754-2019, 6.1 on their sum.
Scale: |m| + log1p(r).
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, Row
from verify.oracles._scans import INF, NANS


def logcumsumexp(n: Any, x: Any) -> Any:
    m, r = n.cumsumexp(x)
    return m + n.log1p(r)


def scale(n: Any, x: Any) -> Any:
    m, r = n.cumsumexp(x)
    return abs(m) + n.log1p(r)


ROWS = (
    Row(lambda n, x: n.seen(n.is_nan(x)), "nan", NANS),
    Row(lambda n, x: n.seen(x == INF), "+inf", "C23 F.10.3.1 and F.10.3.7: exp(+inf) and log(+inf) are +inf"),
    Row(lambda n, x: ~n.seen(x > -INF), "-inf", "C23 F.10.3.1 and F.10.3.7: exp(-inf) is +0, log(+0) is -inf"),
)

ORACLE = Oracle(logcumsumexp, scale=scale, rows=ROWS)


def algorithm(n: Any, x: Any, *, order: Any) -> Any:
    """Combinations max + log1p(exp(min - max))."""
    return n.logcumsumexp(x, order)
