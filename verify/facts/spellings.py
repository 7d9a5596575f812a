"""Ways to call a torch operation, each possibly computed by another formula; facts in `kernels/` use them.

The torch module is an argument of the call, so that nothing here imports it. Inputs arrive by name; `keywords`
are those that torch takes by keyword, all others are positional in the order given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from verify.facts.kernel import Scalars, Spelling

Call = Callable[..., Any]

#: Spellings whose elements, or some of them, ATen's CPU kernels compute one by one instead of in vectors.
SCALAR_LOOPS = ("strided", "tail", "size-one", "broadcast")


def always(scalars: Scalars) -> bool:
    return True


def function(name: str, *, keywords: tuple[str, ...] = ()) -> Call:
    """torch.NAME(...)."""

    def call(torch: Any, **inputs: Any) -> Any:
        positional, named = _split(inputs, keywords)
        return getattr(torch, name)(*positional, **named)

    return call


def in_place(name: str, *, keywords: tuple[str, ...] = ()) -> Call:
    """Tensor.NAME_(...) on a clone of the first input, which must be a tensor."""

    def call(torch: Any, **inputs: Any) -> Any:
        (first, *positional), named = _split(inputs, keywords)
        return getattr(first.clone(), f"{name}_")(*positional, **named)

    return call


def foreach(name: str, *, keywords: tuple[str, ...] = ()) -> Call:
    """torch._foreach_NAME on lists of one tensor; scalars stay as they are."""

    def call(torch: Any, **inputs: Any) -> Any:
        positional, named = _split(inputs, keywords)
        return getattr(torch, f"_foreach_{name}")(*_listed(torch, positional), **named)[0]

    return call


def foreach_in_place(name: str, *, keywords: tuple[str, ...] = ()) -> Call:
    """torch._foreach_NAME_ on a clone of the first input, which must be a tensor."""

    def call(torch: Any, **inputs: Any) -> Any:
        (first, *positional), named = _split(inputs, keywords)
        result = first.clone()
        getattr(torch, f"_foreach_{name}_")([result], *_listed(torch, positional), **named)
        return result

    return call


def omitting(scalar: str, call: Call) -> Call:
    """`call` without `scalar`, for the cases where it has the operation's default."""

    def without(torch: Any, **inputs: Any) -> Any:
        return call(torch, **{name: value for name, value in inputs.items() if name != scalar})

    return without


def as_tensor(scalar: str, call: Call, *, dtype: str | None = None) -> Call:
    """`call` with the Python scalar as a 0-dim tensor on the operands' device.

    Of the operands' dtype (which rounds it) unless `dtype` says otherwise.
    """

    def wrapped(torch: Any, **inputs: Any) -> Any:
        like = next(value for value in inputs.values() if isinstance(value, torch.Tensor))
        kind = like.dtype if dtype is None else getattr(torch, dtype)
        return call(torch, **{**inputs, scalar: torch.full((), inputs[scalar], dtype=kind, device=like.device)})

    return wrapped


def elementwise(
    name: str,
    *,
    keywords: tuple[str, ...] = (),
    in_place_when: Callable[[Scalars], bool] = always,
    broadcast_when: Callable[[Scalars], bool] | None = always,
    foreach_too: bool = True,
) -> dict[str, Spelling]:
    """The spellings that torch operations have, the default first, and the layouts that take other loops.

    `broadcast_when`: the cases of several tensors; None where there is one alone. `foreach_too`: whether there is a
    torch._foreach_NAME.
    """
    default = function(name, keywords=keywords)
    spellings = {
        "out-of-place": Spelling(default, quick=True),
        "in-place": Spelling(in_place(name, keywords=keywords), in_place_when),
    }
    if foreach_too:
        spellings["_foreach_"] = Spelling(foreach(name, keywords=keywords))
        spellings["_foreach_ in-place"] = Spelling(foreach_in_place(name, keywords=keywords), in_place_when)
    spellings |= {layout: Spelling(default, layout=layout) for layout in ("strided", "tail", "size-one")}
    if broadcast_when is not None:
        spellings["broadcast"] = Spelling(default, broadcast_when, layout="broadcast")
    return spellings


def _split(inputs: Mapping[str, Any], keywords: tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    positional = [value for name, value in inputs.items() if name not in keywords]
    return positional, {name: value for name, value in inputs.items() if name in keywords}


def _listed(torch: Any, values: list[Any]) -> list[Any]:
    return [[value] if isinstance(value, torch.Tensor) else value for value in values]
