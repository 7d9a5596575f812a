"""Facts about torch.sum."""

from __future__ import annotations

from verify.families import rows
from verify.families.rows_recipes import SUMS
from verify.kernels import _orders, _row_details
from verify.oracles.sum import ORACLE, algorithm

KERNEL = rows.kernel(
    "sum",
    "sum over a dimension",
    rows.Rows(
        oracle=ORACLE,
        kind=SUMS,
        call=lambda torch, x, *, dim: torch.sum(x, dim),
        algorithms=_orders.of(algorithm, _orders.sums),
        held=f"the orders of the known lowerings, or the one it declares (else suspect), {_orders.WIDE}",
        reduces=True,
        counted=True,
        neutral=0.0,
        triton="verify.kernels.triton.scans",
        details=_row_details.of_sum,
    ),
    formulas="verify.kernels._row_formulas",
)
