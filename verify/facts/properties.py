"""Laws that a kernel's outputs obey whatever the formula; facts in `kernels/` name those that hold.

Each returns a check for `verify.facts.kernel.Property`: check(run, inputs) launches the lowering by
`run(**tensors)` and gives a boolean tensor, True where the law holds. Only tensor methods are used, so torch is not
imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Tensors = Mapping[str, Any]
Check = Callable[[Callable[..., Any], Tensors], Any]


def same(x: Any, y: Any) -> Any:
    """Equal values, zeros of either sign alike; or both NaN."""
    return (x == y) | ((x != x) & (y != y))


def finite(*tensors: Any) -> Any:
    """Where all are finite."""
    return sum(tensor - tensor for tensor in tensors) == 0


def fixed(*, gives: str | float, when: Callable[..., Any] | None = None, **at: float) -> Check:
    """With the inputs `at` set to a constant, the result is another input or a constant.

    Only where `when(**inputs)` holds (default: everywhere).
    """

    def check(run: Callable[..., Any], inputs: Tensors) -> Any:
        placed = {
            name: tensor.new_full(tensor.shape, at[name]) if name in at else tensor for name, tensor in inputs.items()
        }
        result = run(**placed)
        expected = placed[gives] if isinstance(gives, str) else result.new_full(result.shape, gives)
        holds = same(result, expected)
        return holds if when is None else holds | ~when(**placed)

    return check


def odd(*names: str) -> Check:
    """Negating all of `names` negates the result."""

    def check(run: Callable[..., Any], inputs: Tensors) -> Any:
        return same(run(**{k: -t if k in names else t for k, t in inputs.items()}), -run(**inputs))

    return check


def even(*names: str) -> Check:
    """Negating all of `names` leaves the result as it is."""

    def check(run: Callable[..., Any], inputs: Tensors) -> Any:
        return same(run(**{k: -t if k in names else t for k, t in inputs.items()}), run(**inputs))

    return check


def symmetric(first: str, second: str) -> Check:
    """Exchanging the two inputs leaves the result as it is."""

    def check(run: Callable[..., Any], inputs: Tensors) -> Any:
        return same(run(**{**inputs, first: inputs[second], second: inputs[first]}), run(**inputs))

    return check


def non_decreasing(name: str) -> Check:
    """A larger input gives no smaller result; the single input is sorted first, NaN results are passed over."""

    def check(run: Callable[..., Any], inputs: Tensors) -> Any:
        result = run(**{name: inputs[name].flatten().sort().values})
        later, earlier = result[1:], result[:-1]
        return (later >= earlier) | (later != later) | (earlier != earlier)

    return check


def within(low: float, high: float) -> Check:
    """The result lies in [low, high] or is NaN."""

    def check(run: Callable[..., Any], inputs: Tensors) -> Any:
        result = run(**inputs)
        return ((result >= low) & (result <= high)) | (result != result)

    return check
