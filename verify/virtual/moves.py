"""What a lowering may do with tensors beside its launches, on a device that is not there: move numbers, not compute.

Host tensors stand for the device's memory. What torch computed with them would be this machine's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from verify.virtual.compile import Unsupported
from verify.virtual.dispatch import Watching

#: Operators that copy, arrange, fill or convert (each number rounded once, to nearest, as on any device).
MOVES = frozenset((
    "alias", "as_strided", "cat", "clone", "constant_pad_nd", "copy_", "detach", "empty", "empty_like",
    "empty_strided", "expand", "fill_", "flip", "_foreach_copy_", "_foreach_zero_", "full", "full_like", "gather",
    "index", "index_select", "lift_fresh", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros",
    "ones", "ones_like",
    "permute", "repeat", "resolve_conj", "resolve_neg", "select", "set_", "slice", "split", "split_with_sizes",
    "squeeze", "stack", "t", "_to_copy", "transpose", "unbind", "unfold", "_unsafe_view", "unsqueeze", "view",
    "zero_", "zeros", "zeros_like",
))  # fmt: skip

#: Refused of integers too, whose other operators find places.
PRODUCTS = frozenset(
    ("addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "convolution", "dot", "_int_mm", "mm", "mv")
)


#: What gives the memory of a tensor to others, such as numpy, which no mode sees compute.
GIVEN_AWAY = frozenset((torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__))


class KeptHere(TorchFunctionMode):
    """Inside, what takes a tensor's numbers out of torch raises Unsupported."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in GIVEN_AWAY:
            raise Unsupported(
                f"the lowering takes numbers out of torch with torch.Tensor.{func.__name__}, and may compute with them "
                "what a virtual device has no code of"
            )
        return func(*args, **(kwargs or {}))


def _written_in_python(name: str) -> Callable[..., Any] | None:
    """The function of an operator "namespace::name" that `torch.library` made of one, where that is its only one."""
    found = OPDEFS.get(name)
    return getattr(found, "_init_fn", None) if {*getattr(found, "_backend_fns", {})} <= {None} else None


class MovesOnly(Watching):  # type: ignore[no-untyped-call]
    """Inside, an operator that gives or writes floats by computing raises Unsupported, which names it, and so does a
    product of integers. What torch.library calls in Python is looked into."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if func.namespace != "aten":
            if (inside := _written_in_python(func._schema.name)) is not None:
                with self, KeptHere():
                    return inside(*args, **(kwargs or {}))
            name = func._schema.name.replace("::", ".")
        elif name not in MOVES:  # in inference mode torch leaves to us what is made of other operators
            with self:
                made = func.decompose(*args, **(kwargs or {}))
            if made is not NotImplemented:
                return made
        result = func(*args, **(kwargs or {}))
        written = (args, kwargs) if func._schema.is_mutable else ()  # lists of tensors are written without a result
        leaves = (leaf for leaf in tree_leaves((result, written)) if isinstance(leaf, torch.Tensor))
        of = "torch" if func.namespace == "aten" else "torch.ops"
        if name in PRODUCTS or name not in MOVES and any(leaf.is_floating_point() for leaf in leaves):
            raise Unsupported(f"the lowering computes with {of}.{name}, which a virtual device has no code of")
        return result
