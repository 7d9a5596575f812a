"""Facts about torch.cumsum."""

from __future__ import annotations

from verify.families import rows
from verify.families.rows_recipes import SUMS
from verify.kernels import _orders, _row_details
from verify.oracles.cumsum import ORACLE, algorithm

KERNEL = rows.kernel(
    "cumsum",
    "prefix sums",
    rows.Rows(
        oracle=ORACLE,
        kind=SUMS,
        call=lambda torch, x, *, dim: torch.cumsum(x, dim),
        algorithms=_orders.of(algorithm, _orders.scans),
        held=f"the orders of the known lowerings, or the one it declares (else suspect), {_orders.WIDE}",
        prefixes=True,
        counted=True,
        neutral=0.0,
        triton="verify.kernels.triton.scans",
        details=_row_details.of_sum,
    ),
    formulas="verify.kernels._row_formulas",
)
