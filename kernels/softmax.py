"""Facts about torch.softmax."""

from __future__ import annotations

from verify.families import rows
from verify.families.rows import Algorithm, Place
from verify.families.rows_recipes import EXPONENTIALS
from verify.kernels import _orders, _row_details
from verify.numbers.orders import Order
from verify.oracles import softmax as oracle


def algorithms(place: Place) -> tuple[Algorithm, ...]:
    order, wide = _orders.sums(place), place.wide
    if order is None:
        return ()
    functions = _orders.documented(_orders.library(place), "exp", fmt=wide.name)
    if place.lowering.startswith("triton"):
        return (Algorithm(oracle.by_quotient, order, wide, functions),)
    if place.lowering.startswith("inductor"):
        if place.backend == "cpu":
            functions = _orders.documented("SLEEF", "exp", fmt=wide.name)
            return (Algorithm(oracle.by_quotient, order, wide, functions),)
        return (Algorithm(oracle.online, order, wide, functions | {"div": _orders.FULL}),)
    if place.backend != "cpu":
        return (
            Algorithm(oracle.by_quotient, order, wide, functions),
            Algorithm(oracle.by_reciprocal, order, wide, functions),
        )
    functions = _orders.documented("SLEEF", "exp", fmt=wide.name)
    told = "ATen's SoftMaxKernel.cpp"
    if place.last:
        # A vector holds at least four sums, and one that half types do not use the terms one by one.
        lanes = max(-(-place.n // w) + w for w in (4, 8, 16)) if place.storage.bits > 16 else place.n
        order = Order("any", wide, paths=lambda counts: counts * 0 + lanes, text=f"vectorised sum ({told})")
        return (
            Algorithm(oracle.by_reciprocal, order, wide, functions),
            Algorithm(oracle.by_quotient, order, wide, functions),
        )
    order = Order("sequential", wide, text=f"left to right, then the quotient ({told})")
    if place.storage.bits > 16:
        return (Algorithm(oracle.by_quotient, order, wide, functions),)
    order = Order(
        "sequential", wide, text=f"left to right, the exponentials kept in {place.storage.name} (seen; {told})"
    )
    return (Algorithm(oracle.by_stored_quotient, order, wide, functions),)


KERNEL = rows.kernel(
    "softmax",
    "softmax over a dimension",
    rows.Rows(
        oracle=oracle.ORACLE,
        kind=EXPONENTIALS,
        call=lambda torch, x, *, dim: torch.softmax(x, dim),
        algorithms=algorithms,
        forms={oracle.by_powers: ("exp2",)},
        held="exp(x - max) over its sum in the orders of the known lowerings, or the one it declares (else suspect), "
        "with a declared order also exp2((x - max) log2 e), "
        f"exp and exp2 within 2 ULP, or 0 where they are subnormal, {_orders.WIDE}",
        counted=True,
        neutral=float("-inf"),
        minus=True,
        triton="verify.kernels.triton.scans",
        listed=lambda values: values,
        details=_row_details.of_probability,
    ),
    formulas="verify.kernels._row_formulas",
)
