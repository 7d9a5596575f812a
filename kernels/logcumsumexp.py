"""Facts about torch.logcumsumexp."""

from __future__ import annotations

from verify.families import rows
from verify.families.rows_recipes import EXPONENTIALS
from verify.kernels import _orders, _row_details
from verify.oracles.logcumsumexp import ORACLE, algorithm

KERNEL = rows.kernel(
    "logcumsumexp",
    "logarithms of prefix sums of exponentials",
    rows.Rows(
        oracle=ORACLE,
        kind=EXPONENTIALS,
        call=lambda torch, x, *, dim: torch.logcumsumexp(x, dim),
        algorithms=_orders.of(algorithm, _orders.scans, "exp", "log1p"),
        held="max + log1p(exp(min - max)) in the orders of the known lowerings, or the one it declares (else suspect), "
        f"exp and log1p within 2 ULP, {_orders.WIDE}",
        prefixes=True,
        neutral=float("-inf"),
        minus=True,
        triton="verify.kernels.triton.scans",
        listed=lambda values: values,
        details=_row_details.of_exponentials,
    ),
    formulas="verify.kernels._row_formulas",
    lowerings=("metal", "metal-fast"),
    compiling=4.0,  # a scan's function, once for each of its levels
)
