"""Running maxima: y_i = max(x_0, ..., x_i), the values of torch.cummax. Exact by definition."""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle
from verify.oracles import _scans


def cummax(n: Any, x: Any) -> Any:
    return n.cummax(x)


ORACLE = Oracle(cummax, rows=_scans.largest(1))


def algorithm(n: Any, x: Any, *, order: Any) -> Any:
    return n.cummax(x)
