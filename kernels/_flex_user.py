"""A user's score_mod: one function over a number system, which the truth, the bound and the lowerings all evaluate.

    def my_mod(n, score, batch, head, query, key):
        return score - n.const("1/16") * n.index(query - key)

`n` offers const, index (of integers), exp, log, sqrt, tanh and where; scores combine with + - * /.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch

from verify.facts.kernel import UsageError
from verify.lower.lowering import describe
from verify.lower.user import user_function
from verify.numbers.matmul import RowBall, RowBalls

ARGUMENTS = ("n", "score", "batch", "head", "query", "key")


class TorchSystem:
    """A user's function as a framework evaluates it: tensors in their own dtype, constants as Python numbers."""

    def const(self, value: Any) -> Any:
        return float(Fraction(value)) if isinstance(value, (str, Fraction)) else value

    def index(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def input(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def exp(self, a: torch.Tensor) -> torch.Tensor:
        return torch.exp(a)

    def log(self, a: torch.Tensor) -> torch.Tensor:
        return torch.log(a)

    def sqrt(self, a: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(a)

    def tanh(self, a: torch.Tensor) -> torch.Tensor:
        return torch.tanh(a)

    def where(self, predicate: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
        return torch.where(predicate, a, b)


def load(text: str) -> Callable[..., Any]:
    """The score_mod FILE.py:FUNCTION with the signature of those in the oracle. Raises UsageError.

    It is tried on a few scores first: a result of another dtype or shape than the scores, or a NaN, is refused.
    """
    label, function = user_function(text)
    try:
        inspect.signature(function).bind(*ARGUMENTS)
    except TypeError:
        takes = inspect.signature(function)
        raise UsageError(f"score_mod {label} takes {takes}; expected {', '.join(ARGUMENTS)}") from None

    def score_mod(n: Any, score: Any, b: Any, h: Any, q: Any, kv: Any, buffers: Any) -> Any:
        return function(n, score, b, h, q, kv)

    zero = torch.zeros(1, 1, dtype=torch.int64)
    places = (zero, zero + 1, torch.arange(9)[:, None], torch.arange(17)[None, :])
    scores = torch.linspace(-200.0, 200.0, 9 * 17, dtype=torch.float32).reshape(9, 17)
    _try_tensors(label, score_mod, scores, places)
    _try_balls(label, score_mod, scores, places)
    return score_mod


def _try_tensors(label: str, score_mod: Callable[..., Any], scores: torch.Tensor, places: Any) -> None:
    try:
        result = score_mod(TorchSystem(), scores, *places, {})
    except Exception as error:
        raise UsageError(f"score_mod {label} raised {describe(error)} on float32 scores") from error
    if not isinstance(result, torch.Tensor):
        raise UsageError(f"score_mod {label} returned {type(result).__name__}; expected a score")
    if result.dtype != scores.dtype:
        raise UsageError(f"score_mod {label} returned {result.dtype} for float32 scores; expected their own dtype")
    if result.shape != scores.shape:
        raise UsageError(f"score_mod {label} returned shape {tuple(result.shape)} for {tuple(scores.shape)} scores")
    if bool(result.isnan().any()):
        at = tuple(int(i) for i in result.isnan().nonzero()[0])
        where = f"the score {float(scores[at])} at query {at[0]}, key {at[1]}"
        raise UsageError(f"score_mod {label} returned NaN for {where}")
    if bool(result.isinf().any()):
        raise UsageError(f"score_mod {label} returned an infinity; what a query does not see belongs into mask_mod")


def _try_balls(label: str, score_mod: Callable[..., Any], scores: torch.Tensor, places: Any) -> None:
    n = RowBalls("cpu")
    try:
        result = score_mod(n, n.input(scores), *places, {})
    except Exception as error:
        raise UsageError(
            f"score_mod {label} raised {describe(error)} in a number system: use n.const, n.index, n.exp, n.log, "
            "n.sqrt, n.tanh, n.where and + - * / only"
        ) from error
    if not isinstance(result, RowBall):
        raise UsageError(f"score_mod {label} left the number system: it returned {type(result).__name__}")
