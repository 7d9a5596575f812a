"""Prefix sums: y_i = x_0 + ... + x_i, torch.cumsum.

Special values: IEEE 754-2019, 6.1 to 6.3. Scale: the sum of |x_j| up to i.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle
from verify.oracles import _scans


def cumsum(n: Any, x: Any) -> Any:
    return n.cumsum(x)


def scale(n: Any, x: Any) -> Any:
    return n.cumsum(abs(x))


ORACLE = Oracle(cumsum, scale=scale, rows=_scans.sums(lambda n: n.seen))


def algorithm(n: Any, x: Any, *, order: Any) -> Any:
    return n.cumsum(x, order)
