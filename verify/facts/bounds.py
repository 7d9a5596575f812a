"""Error limits with their derivation: proofs by counting roundings, and what vendors publish.

Facts in `kernels/` are built of these; the vendors' figures are data, `kernels/vendor_bounds.toml`. Every function
returns one `Bound` for each dtype it speaks of, whose source holds the whole derivation.
Notation: p the precision, u = 2^-p the unit roundoff, ulp(t) as in `verify.numbers.ulp`, so that u|t| <= ulp(t).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from verify.facts.formats import FORMATS
from verify.facts.kernel import Bound, UsageError

SINGLES = ("float32", "float64")
HALVES = ("float16", "bfloat16")

#: Lowerings that run the hand-written kernels, compiled or interpreted; other `triton-*` call a library.
OWN_TRITON = ("triton", "triton-interpreter")

PATH = Path(__file__).parents[1] / "kernels" / "vendor_bounds.toml"

#: ln of the largest binary32 is 88.73 and of the smallest normal -87.34: |ln t| where t is in normal range.
LOG_RANGE = 89.0

_GAMMA = (
    "Higham 2002, lemma 3.1: {n:g} roundings, relative error at most gamma = nu/(1 - nu); with u|t| <= ulp(t), "
    "n/(1 - nu) ULP"
)
_VIA_FLOAT32 = (
    "then rounded once from float32 to {dtype}: 1/2 + e 2^-(24 - p) ULP for an error of e = {e:g} ULP of float32 "
    "(a power of two between the exact and the computed value is representable, so no binade doubles the 1/2)"
)
_INNOCUOUS = (
    "the double rounding through float32 is innocuous for + - * / sqrt as 24 >= 2p + 2 (Figueroa 1995, theorem 5.3)"
)


@dataclass(frozen=True)
class Published:
    """A figure of `kernels/vendor_bounds.toml`, in its own metric."""

    value: float
    metric: str
    source: str

    @property
    def ulps(self) -> float:
        """A real distance from the exact value that follows from it, in ULPs.

        n steps from RN(t), which is within 1/2 ULP of t; the steps are twice as long above a power of two.
        """
        return self.value if self.metric == "ulp" else 2 * self.value + 0.5

    @property
    def roundings(self) -> float:
        """The relative error in units of u: an ULP is at most 2u|t| (t at the low end of its binade).

        Steps of the longer kind begin at a power of two, above every t that they are counted from: 2u|t| each.
        """
        return 2 * self.value if self.metric == "ulp" else 2 * self.value + 1


@cache
def figures() -> dict[tuple[str, str, str], Published]:
    """The data file, by vendor, function and dtype."""
    found = {}
    for document in tomllib.loads(PATH.read_text(encoding="utf-8"))["document"]:
        conditions = f" ({document['conditions']})" if "conditions" in document else ""
        for dtype in SINGLES:
            for function, value in document.get(dtype, {}).items():
                key = (document["vendor"], function, dtype)
                figure = f"{' '.join(key)}: {value:g} {document['metric']}{conditions}"
                found[key] = Published(value, document["metric"], f"{figure}; {document['source']}, {document['url']}")
    return found


def published(vendor: str, function: str, dtype: str) -> Published:
    """The figure for a function. Raises UsageError where the data file has none."""
    figure = figures().get((vendor, function, dtype))
    if figure is None:
        raise UsageError(f"kernels/{PATH.name} has no figure for {vendor} {function} {dtype}; add it with its source")
    return figure


def vendor(
    name: str, function: str, why: str, *, dtypes: tuple[str, ...] = ("float16", "bfloat16", *SINGLES), **where: Any
) -> tuple[Bound, ...]:
    """A published figure as it stands for float32 and float64; half types round float32's result once more."""
    found = [
        Bound(figure.value, figure.metric, f"{why}: {figure.source}", dtypes=(dtype,), **where)
        for dtype in dtypes
        if dtype in SINGLES
        for figure in (published(name, function, dtype),)
    ]
    halves = tuple(dtype for dtype in dtypes if dtype in HALVES)
    if not halves:
        return tuple(found)
    figure = published(name, function, "float32")
    given = f"{why}: {figure.source}"
    if figure.metric == "int_ulp":
        given += f"; {figure.value:g} steps from RN(t) are at most 2 * {figure.value:g} + 1/2 ULP from t"
    return *found, *through_float32(figure.ulps, given, dtypes=halves, **where)


def correctly_rounded(why: str, *, dtypes: tuple[str, ...] = (*HALVES, *SINGLES), **where: Any) -> tuple[Bound, ...]:
    """1/2 ULP: one IEEE 754-2019 operation on exact operands, whose double rounding is innocuous for half types."""
    return tuple(
        Bound(
            0.5,
            "ulp",
            f"{why}: one correctly rounded operation (IEEE 754-2019, 4.3.1)"
            + (f"; {_INNOCUOUS}" if dtype in HALVES else ""),
            dtypes=(dtype,),
            **where,
        )
        for dtype in dtypes
    )


def rounded(
    n: float, why: str, *, metric: str = "ulp", dtypes: tuple[str, ...] = SINGLES, **where: Any
) -> tuple[Bound, ...]:
    """n/(1 - nu): n roundings in the dtype itself, on one term (`ulp`) or on each of a sum (`scaled_ulp`)."""
    bounds = []
    for dtype in dtypes:
        u = float(FORMATS[dtype].unit_roundoff)
        bounds.append(Bound(n / (1 - n * u), metric, f"{why}; {_GAMMA.format(n=n)}", dtypes=(dtype,), **where))
    return tuple(bounds)


def through_float32(
    ulps: float, why: str, *, metric: str = "ulp", dtypes: tuple[str, ...] = HALVES, **where: Any
) -> tuple[Bound, ...]:
    """Half types computed in float32 with an error of `ulps` ULPs of float32, then rounded once."""
    return tuple(
        Bound(
            0.5 + ulps * 2.0 ** (FORMATS[dtype].precision - FORMATS["float32"].precision),
            metric,
            f"{why}; {_VIA_FLOAT32.format(dtype=dtype, e=ulps)}",
            dtypes=(dtype,),
            **where,
        )
        for dtype in dtypes
    )


def composite(n: float, why: str, *, extra: float = 0, metric: str = "scaled_ulp", **where: Any) -> tuple[Bound, ...]:
    """`rounded` for float32 and float64, and through float32 for half types.

    A scalar is rounded to float32 before half types meet it: `extra` roundings against the exact one. float32 and
    float64 operands round it to their own dtype, so their bound means the rounded scalar.
    """
    singles = where if not extra else {**where, "truth": "rounded"}
    note = f"{why}; the scalar's rounding to float32 counts {extra:g}" if extra else why
    total = n + extra
    ulps = total / (1 - total * 2.0**-24)
    return (
        *rounded(n, why, metric=metric, **singles),
        *through_float32(ulps, f"{note}; {_GAMMA.format(n=total)}", metric=metric, **where),
    )


def hand_written(ulps: float, why: str, lowerings: tuple[str, ...] = OWN_TRITON) -> tuple[Bound, ...]:
    """float32 arithmetic of hand-written kernels with an error of `ulps`; half types go through it."""
    return tuple(
        bound
        for lowering in lowerings
        for bound in (
            Bound(ulps, "ulp", why, lowering=lowering, dtypes=("float32",)),
            *through_float32(ulps, why, lowering=lowering),
        )
    )
