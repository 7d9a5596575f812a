"""Layouts: the same elements by another path through the framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from verify.lower.lowering import Call


@dataclass(frozen=True)
class Layout:
    """How inputs lie in memory: `arrange(call)` is `call` on rearranged inputs, its outputs in their order.

    `max_elements` is the largest domain for which that is quick. width: elements of a launch (0: all at once).
    """

    arrange: Callable[[Call], Call]
    max_elements: int | None = None
    width: int = 0


def _strided(call: Call) -> Call:
    """Each input is every other element of a buffer of twice its size."""
    import torch

    def view(tensor: torch.Tensor) -> torch.Tensor:
        return torch.stack([tensor, tensor], dim=-1)[..., 0]

    return lambda *tensors: call(*map(view, tensors))


def _transposed(call: Call) -> Call:
    """Inputs as matrices, every second one stored by columns, so that no order of the loops is contiguous for all."""

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        size = tensors[0].numel()
        rows = 64
        matrices = [_padded(tensor, -(-size // rows) * rows).view(rows, -1) for tensor in tensors]
        matrices[1::2] = [matrix.t().contiguous().t() for matrix in matrices[1::2]]
        return call(*matrices).reshape(-1)[:size]

    return run


def _broadcast(call: Call) -> Call:
    """The first input repeated along rows of 9, the others expanded along them with stride 0.

    Row i's column i mod 9 is the output: vector lanes and tail elements alternate.
    """
    import torch

    columns = 9

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        first, *others = (tensor.unsqueeze(-1).expand(-1, columns) for tensor in tensors)
        index = torch.arange(tensors[0].numel(), device=tensors[0].device) % columns
        return call(first.contiguous(), *others).gather(1, index.unsqueeze(-1)).squeeze(-1)

    return run


def _sliced(width: int) -> Callable[[Call], Call]:
    """Slices of `width` elements, one call each."""

    def arrange(call: Call) -> Call:
        import torch

        def run(*tensors: torch.Tensor) -> torch.Tensor:
            slices = zip(*(torch.split(tensor, width) for tensor in tensors), strict=True)
            return torch.cat([call(*inputs) for inputs in slices])

        return run

    return arrange


def _padded(tensor: torch.Tensor, size: int) -> torch.Tensor:
    import torch

    return torch.cat([tensor, tensor[-1:].expand(size - tensor.numel())])


#: By the name that a Spelling's `layout` gives. A vector holds at least 8 elements, so 7 take the scalar tail alone.
LAYOUTS: Mapping[str, Layout] = {
    "strided": Layout(_strided),
    "transposed": Layout(_transposed),
    "broadcast": Layout(_broadcast, max_elements=1 << 20),
    "tail": Layout(_sliced(7), max_elements=1 << 14, width=7),
    "size-one": Layout(_sliced(1), max_elements=1 << 11, width=1),
}
