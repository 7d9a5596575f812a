"""Running minima: y_i = min(x_0, ..., x_i), the values of torch.cummin. Exact by definition."""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle
from verify.oracles import _scans


def cummin(n: Any, x: Any) -> Any:
    return -n.cummax(-x)


ORACLE = Oracle(cummin, rows=_scans.largest(-1))


def algorithm(n: Any, x: Any, *, order: Any) -> Any:
    return n.cummin(x)
