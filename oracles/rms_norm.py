"""rms_norm over the last dimension: x_i w_i / sqrt(mean_j x_j^2 + eps), torch.nn.functional.rms_norm.

Special values: IEEE 754-2019, 6.1 to 6.3 and 7.2, on the spelling x * (1 / sqrt(mean(x * x) + eps)) * w. It is rational
where the root is.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, Row
from verify.oracles._scans import INF, NANS


def rms_norm(n: Any, x: Any, weight: Any, *, eps: Any) -> Any:
    return n.own(x) * n.own(weight) / n.sqrt(n.dot(x, x) / n.count(x) + eps)


def _infinite(n: Any, x: Any) -> Any:
    return n.anywhere((x == INF) | (x == -INF))


def _is_infinite(n: Any, own: Any) -> Any:
    return (own == INF) | (own == -INF)


def _zero(n: Any, x: Any) -> Any:
    """x times the reciprocal root."""
    return _infinite(n, x) | n.is_zero(n.own(x))


def _negative(n: Any, x: Any, weight: Any) -> Any:
    return n.signbit(n.own(x)) ^ n.signbit(n.own(weight))


ROWS = (
    Row(lambda n, x, weight, eps: n.anywhere(n.is_nan(x)) | n.is_nan(n.own(weight)), "nan", NANS),
    Row(
        lambda n, x, weight, eps: _is_infinite(n, n.own(x)),
        "nan",
        "IEEE 754-2019, 6.1: mean and root are inf, its reciprocal 0; 7.2 b: inf 0",
    ),
    Row(
        lambda n, x, weight, eps: (eps == 0) & ~n.anywhere(~n.is_zero(x)),
        "nan",
        "IEEE 754-2019, 7.3: 1 / sqrt(0) is inf; 7.2 b: 0 inf",
    ),
    Row(
        lambda n, x, weight, eps: _is_infinite(n, n.own(weight)) & _zero(n, x),
        "nan",
        "IEEE 754-2019, 7.2 b: 0 inf; beside an infinity x / inf is 0",
    ),
    Row(
        lambda n, x, weight, eps: _is_infinite(n, n.own(weight)) & _negative(n, x, weight),
        "-inf",
        "IEEE 754-2019, 6.1 and 6.3",
    ),
    Row(lambda n, x, weight, eps: _is_infinite(n, n.own(weight)), "+inf", "IEEE 754-2019, 6.1 and 6.3"),
    Row(
        lambda n, x, weight, eps: (_zero(n, x) | n.is_zero(n.own(weight))) & _negative(n, x, weight),
        "-0",
        "IEEE 754-2019, 6.3: the sign of a product",
    ),
    Row(lambda n, x, weight, eps: _zero(n, x) | n.is_zero(n.own(weight)), "+0", "IEEE 754-2019, 6.3"),
)

ORACLE = Oracle(rms_norm, rows=ROWS)


# Algorithms


def by_root(n: Any, x: Any, weight: Any, *, eps: float, order: Any) -> Any:
    """The reciprocal of a square root, each rounded."""
    return x * n.recip(n.sqrt(n.sum(x * x, order) / n.count(x) + eps)) * weight


def by_function(n: Any, x: Any, weight: Any, *, eps: float, order: Any) -> Any:
    """A library's reciprocal square root, and the mean as a product with 1 / n."""
    return x * n.rsqrt(n.sum(x * x, order) * n.recip(n.count(x)) + eps) * weight


def by_stored(n: Any, x: Any, weight: Any, *, eps: float, order: Any) -> Any:
    """The normalized number is kept in the dtype before it meets its weight, as in transformers' LlamaRMSNorm."""
    return n.cast(x * n.rsqrt(n.sum(x * x, order) / n.count(x) + eps), n.storage) * weight


def by_norm(n: Any, x: Any, weight: Any, *, eps: float, order: Any) -> Any:
    """The squared Euclidean norm in place of the sum of squares, as a library's norm gives it."""
    norm = n.sqrt(n.sum(x * x, order))
    return x * n.rsqrt(norm * norm / n.count(x) + eps) * weight
