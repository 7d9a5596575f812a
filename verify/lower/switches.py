"""torch's switches of the precision of float32 products, which inherit from one another.

Source: PyTorch's notes on numerical accuracy and CUDA semantics ("Precision for float32 operations"): a switch that is
"none" has its parent's value. The older switches write to the new ones of single operators, and writing their old
values back does not undo that: a parent's value is without effect from then on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import reduce
from typing import Any

import torch

#: Below torch.backends, parents first; as far as torch has them.
NAMES = ("fp32_precision", "cuda.matmul.fp32_precision", "mkldnn.fp32_precision", "mkldnn.matmul.fp32_precision")


def read() -> dict[str, str]:
    """The switches' values, by name below torch.backends; of a torch before 2.9, which has none, the older one's."""
    found = {name: getattr(owner, key) for name, (owner, key) in _owners().items()}
    return found or {"float32_matmul_precision": torch.get_float32_matmul_precision()}


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """A context in which none is set, and after which all are as they were, the older one included."""
    before = [(owner, key, getattr(owner, key)) for owner, key in _owners().values()]
    older = None
    with contextlib.suppress(RuntimeError):  # which newer ones hide where both were written to
        older = torch.get_float32_matmul_precision()
    try:
        for owner, key, _ in before:
            setattr(owner, key, "none")
        yield
    finally:
        if older is not None:
            torch.set_float32_matmul_precision(older)
        for owner, key, value in before:
            setattr(owner, key, "none")
            if getattr(owner, key) != value:  # not its parent's
                setattr(owner, key, value)


def _owners() -> dict[str, tuple[Any, str]]:
    found = {}
    for name in NAMES:
        *parents, key = name.split(".")
        owner = reduce(getattr, parents, torch.backends)
        if hasattr(owner, key):
            found[name] = owner, key
    return found
