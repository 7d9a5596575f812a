"""Facts about torch.cumprod."""

from __future__ import annotations

from verify.families import rows
from verify.families.rows_recipes import PRODUCTS
from verify.kernels import _orders
from verify.oracles.cumprod import ORACLE, algorithm

KERNEL = rows.kernel(
    "cumprod",
    "prefix products",
    rows.Rows(
        oracle=ORACLE,
        kind=PRODUCTS,
        call=lambda torch, x, *, dim: torch.cumprod(x, dim),
        algorithms=_orders.of(algorithm, _orders.scans),
        held=f"the orders of the known lowerings, or the one it declares (else suspect), {_orders.WIDE}",
        prefixes=True,
        triton="verify.kernels.triton.scans",
    ),
    formulas="verify.kernels._row_formulas",
)
