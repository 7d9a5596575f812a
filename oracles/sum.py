"""sum over a dimension: sum_i x_i, torch.sum. Order, tree and accumulator belong to formulas.

Special values: IEEE 754-2019, 6.1 to 6.3 and 9.4. Scale: the sum of |x_i|, so that scaled ULPs are the componentwise
backward error that summation is bounded by (Higham 2002, 4.2).
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle
from verify.oracles import _scans


def sum(n: Any, x: Any) -> Any:
    return n.sum(x)


def scale(n: Any, x: Any) -> Any:
    return n.sum(abs(x))


ORACLE = Oracle(sum, scale=scale, rows=_scans.sums(lambda n: n.anywhere))


def algorithm(n: Any, x: Any, *, order: Any) -> Any:
    return n.sum(x, order)
