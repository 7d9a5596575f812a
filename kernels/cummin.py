"""Facts about torch.cummin: the values, not the indices, which no error is defined for."""

from __future__ import annotations

from verify.families import rows
from verify.families.rows_recipes import SUMS
from verify.kernels import _orders
from verify.oracles.cummin import ORACLE, algorithm

KERNEL = rows.kernel(
    "cummin",
    "running minima",
    rows.Rows(
        oracle=ORACLE,
        kind=SUMS,
        call=lambda torch, x, *, dim: torch.cummin(x, dim).values,
        algorithms=_orders.exact(algorithm),
        held="the exact minimum",
        prefixes=True,
        neutral=0.0,
        triton="verify.kernels.triton.scans",
        listed=lambda values: -values,
    ),
    extremes=True,
)
