"""softmax over a dimension: exp(x_i) / sum_j exp(x_j), torch.softmax, as exp(x_i - m) / s: m the largest x_j, s the
sum of all exp(x_j - m). `n.own(x)` is x where the result is wanted: everywhere, in multiprecision at one position.

It is rational only where all finite x_j are equal (Lindemann-Weierstrass), and kept exact there. Special values: C23
(N3220) F.10.3.1 on exp; where the row holds +inf, torch's reference decomposition exp(x - max) / sum meets inf - inf.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, Row
from verify.oracles._scans import INF, NANS


def softmax(n: Any, x: Any) -> Any:
    m, s = n.sumexp(x)
    return n.exp(n.own(x) - m) / s


ROWS = (
    Row(lambda n, x: n.anywhere(n.is_nan(x)), "nan", NANS),
    Row(
        lambda n, x: n.anywhere(x == INF),
        "nan",
        "torch/_decomp/decompositions.py, _softmax: inf - inf under exp, a NaN in the sum (IEEE 754-2019, 7.2 d)",
    ),
    Row(
        lambda n, x: ~n.anywhere(x > -INF),
        "nan",
        "as above: -inf - -inf; by the definition 0 / 0 (IEEE 754-2019, 7.2 d, e)",
    ),
    Row(lambda n, x: n.own(x) == -INF, "+0", "C23 F.10.3.1: exp(-inf) is +0"),
)

ORACLE = Oracle(softmax, rows=ROWS)


# Algorithms


def by_quotient(n: Any, x: Any, *, order: Any) -> Any:
    e = n.exp(x - n.amax(x))
    return e / n.sum(e, order)


def by_reciprocal(n: Any, x: Any, *, order: Any) -> Any:
    e = n.exp(x - n.amax(x))
    return e * n.recip(n.sum(e, order))


def by_stored_quotient(n: Any, x: Any, *, order: Any) -> Any:
    """The exponentials are kept in the dtype before they are divided."""
    e = n.exp(x - n.amax(x))
    return n.cast(e, n.storage) / n.sum(e, order)


#: log2 e, https://oeis.org/A007525.
LOG2_E = "1.44269504088896340735992468100189213742664595415298593413544940693"


def by_powers(n: Any, x: Any, *, order: Any) -> Any:
    """Powers of two, whose exponent is rounded once more: the error grows with the distance from the maximum."""
    below = x - n.amax(x)
    e = n.exp2(n.where(x == -INF, below, below * n.const(LOG2_E)))
    return e / n.sum(e, order)


def online(n: Any, x: Any, *, order: Any) -> Any:
    """The running sum is corrected by exp of the maximum's change."""
    return n.exp(x - n.amax(x)) / n.sumexp(x, order)
