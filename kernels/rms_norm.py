"""Facts about torch.nn.functional.rms_norm over the last dimension, with a weight."""

from __future__ import annotations

from verify.families import rows
from verify.families.rows import Algorithm, Place
from verify.families.rows_recipes import SQUARES
from verify.kernels import _orders, _row_details
from verify.oracles import rms_norm as oracle


def algorithms(place: Place) -> tuple[Algorithm, ...]:
    order = _orders.sums(place)
    if order is None:
        return ()
    if place.lowering.startswith("triton") or place.backend == "cpu":
        return (Algorithm(oracle.by_root, order, place.wide),)
    functions = _orders.documented(_orders.vendor(place), "rsqrt", fmt=place.wide.name)
    return (Algorithm(oracle.by_function, order, place.wide, functions),)


KERNEL = rows.kernel(
    "rms_norm",
    "rows over their root mean square, times a weight",
    rows.Rows(
        oracle=oracle.ORACLE,
        kind=SQUARES,
        call=lambda torch, x, weight, *, dim, eps: torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps),
        algorithms=algorithms,
        forms={oracle.by_stored: ("rsqrt",), oracle.by_norm: ("rsqrt",)},
        held="x (1 / sqrt(mean x^2 + eps)) w in the orders of the known lowerings, or the one it declares (else "
        f"suspect), rsqrt within 2 ULP, {_orders.WIDE}",
        counted=True,
        neutral=0.0,
        weights=("weight",),
        triton="verify.kernels.triton.rms_norm",
        details=_row_details.of_sum,
    ),
    last=True,
    cases=({"eps": 0.4375}, {"eps": 1e-05}),
    others=({"eps": 0.0}, {"eps": 2.0}, {"eps": 1e-6}, {"eps": 1e-8}, {"eps": 1e-12}, {"eps": 4.0}),
)
