"""Special values that sums, scans and softmax share. Rows look at what a prefix or a whole row holds.

Beside the elementwise protocol, `n` says along the last axis: `seen(p)`, whether the predicate p holds at a position or
before it; `anywhere(p)`, in the row; `odd(p)`, an odd number of times up to a position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verify.facts.oracle import Row

INF = float("inf")
NANS = "IEEE 754-2019, 6.2: an operation on a NaN gives a NaN, and every order of the operations meets it"


def sums(over: Callable[[Any], Callable[[Any], Any]]) -> tuple[Row, ...]:
    """Rows of a sum over what `over(n)` looks at: `n.seen` for prefixes, `n.anywhere` for rows."""

    def positive_zeros(n: Any, x: Any) -> Any:
        zero, nothing = n.is_zero(x), ~over(n)(~n.is_zero(x))
        return nothing & (over(n)(zero & ~n.signbit(x)) | ~over(n)(zero))

    return (
        Row(lambda n, x: over(n)(n.is_nan(x)), "nan", NANS),
        Row(
            lambda n, x: over(n)(x == INF) & over(n)(x == -INF),
            "nan",
            "IEEE 754-2019, 7.2 d: inf - inf, which every order meets",
        ),
        Row(lambda n, x: over(n)(x == INF), "+inf", "IEEE 754-2019, 6.1: +inf + finite"),
        Row(lambda n, x: over(n)(x == -INF), "-inf", "IEEE 754-2019, 6.1: -inf + finite"),
        Row(
            positive_zeros,
            "+0",
            "IEEE 754-2019, 6.3: a zero sum is +0 unless both terms are -0; 9.4: an empty sum is +0",
        ),
        Row(
            lambda n, x: ~over(n)(~n.is_zero(x)),
            "either-zero",
            "zeros of sign minus alone: -0 by IEEE 754-2019, 6.3, but +0 where an accumulator starts from +0, which "
            "torch does not say",
        ),
    )


def largest(sign: int) -> tuple[Row, ...]:
    """Rows of a running maximum (sign +1) or minimum (-1)."""

    def both_zeros(n: Any, x: Any) -> Any:
        zero, beyond = n.is_zero(x), x > 0 if sign > 0 else x < 0
        return ~n.seen(beyond) & n.seen(zero & n.signbit(x)) & n.seen(zero & ~n.signbit(x))

    return (
        Row(lambda n, x: n.seen(n.is_nan(x)), "nan", "torch.cummax, cummin: a NaN propagates, as in torch.maximum"),
        Row(both_zeros, "either-zero", "the zeros compare equal, and torch does not say which one is taken"),
    )
