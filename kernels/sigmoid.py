"""Facts about torch.sigmoid: 1 / (1 + exp(-x))."""

from __future__ import annotations

from typing import Any

from verify.facts.bounds import HALVES, LOG_RANGE, hand_written, published, rounded, through_float32
from verify.facts.formats import Format
from verify.facts.kernel import Bound, Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed, within
from verify.facts.spellings import elementwise
from verify.inputs.corners import subnormal
from verify.inputs.domains import Stratum
from verify.inputs.strata import interval, neighbourhood, unary
from verify.oracles.sigmoid import ORACLE

LN2 = 0.6931471805599453


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    low, normal, high = (LN2 * e for e in (fmt.emin - fmt.precision, fmt.emin, fmt.emax + 1))
    saturation = LN2 * (fmt.precision + 1)
    return unary(
        fmt,
        size,
        interval("range", low, saturation, 8),
        interval("middle", -2.0, 2.0, 6),
        interval("subnormal", low, normal),
        # exp(-x) overflows from here on, while the result is a subnormal.
        interval("overflowing-exp", low, -high + LN2),
        neighbourhood("edges", low, normal, -high, saturation),
        neighbourhood("zero", 2.0**-fmt.precision, 2.0 ** -(fmt.precision // 2)),
    )


def quotient(vendor: str, dtype: str) -> float:
    """Roundings of 1/(1 + e): those of e, weighted by e/(1 + e) < 1, the sum's and the quotient's."""
    return published(vendor, "exp", dtype).roundings + 2


def by_vendor(vendor: str, **where: Any) -> tuple[Bound, ...]:
    """Bounds of 1/(1 + exp(-x)) with a vendor's exp, for every dtype it documents."""
    bounds: list[Bound] = []
    dtypes = ("float32",) if vendor == "Apple" else ("float32", "float64")
    for dtype in dtypes:
        figure = published(vendor, "exp", dtype)
        why = f"1/(1 + e): e's error weighs e/(1 + e) < 1, sum and quotient are rounded; {figure.source}"
        bounds += rounded(quotient(vendor, dtype), why, dtypes=(dtype,), **where)
        if dtype == "float32":
            n = quotient(vendor, dtype)
            bounds += through_float32(n / (1 - n * 2.0**-24), why, **where)
    return tuple(bounds)


EX2, DIV_FULL = published("NVIDIA", "ex2.approx", "float32"), published("NVIDIA", "div.full", "float32")
TL_ROUNDINGS = 2 * LOG_RANGE + EX2.roundings + 1 + DIV_FULL.roundings
TL_SIGMOID = (
    "tl.sigmoid: ex2.approx(-x * log2 e), whose exponent two roundings change by 2u |x|, |x| <= 89 where neither the "
    f"result nor exp(-x) leaves normal range ({EX2.source}); 1 + e; div.full ({DIV_FULL.source})"
)
#: |error| of e, of the sum and of the quotient as pairs: below 2^-28 each.
TRITON = (
    "error analysis in kernels/triton/sigmoid.py: below 0.1 ULP before the last rounding, e = 0.6 ULP; a subnormal "
    "result loses a bit or more to a second rounding: 1/2 + e/2 ULP"
)
TRITON_DOUBLE = "exp(-|x|) of libdevice within 3u, 1 + e, an IEEE division"

KERNEL = Kernel(
    name="sigmoid",
    summary="1 / (1 + exp(-x)), the logistic function",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("sigmoid", broadcast_when=None),
    domain=domain,
    bounds=(
        *hand_written(0.5 + 0.6 / 2, TRITON),
        *rounded(quotient("NVIDIA", "float64"), TRITON_DOUBLE, lowering="triton*", dtypes=("float64",)),
        *rounded(TL_ROUNDINGS, TL_SIGMOID, dtypes=("float32",), lowering="inductor*", backend="cuda"),
        *through_float32(
            TL_ROUNDINGS / (1 - TL_ROUNDINGS * 2.0**-24),
            TL_SIGMOID,
            dtypes=HALVES,
            lowering="inductor*",
            backend="cuda",
        ),
        *by_vendor("NVIDIA", backend="cuda"),
        *by_vendor("AMD", backend="rocm"),
        *by_vendor("Apple", backend="mps"),
        *by_vendor("SLEEF"),
    ),
    properties=(
        Property("sigmoid(0) = 1/2", fixed(x=0.0, gives=0.5)),
        Property("range", within(0.0, 1.0)),
    ),
    checks=Checks(
        second=lambda x: x.exp() / (x.exp() + 1),
        within=lambda x: abs(x) <= 400,  # beyond, exp(x) is too long for the second truth
        reference=lambda c, x: 1 / (1 + c.exp(-x)),
        corners={
            "subnormal result": lambda f, v, t, s: subnormal(f, t),
            "exp(-x) overflows": lambda f, v, t, s: (v["x"] < -0.6931472 * (f.emax + 1)) & (t > 0),
        },
    ),
    triton="verify.kernels.triton.sigmoid",
)
