"""The order in which the terms of a row are combined: from left to right, as a tree, in blocks, or any.

`Order` is a value that a user may write (`blocked=128:float32`). How it bounds an error is `roundoff`'s business;
`reduce` and `scan` carry it out on tensors, for `ieee`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verify.facts.formats import FORMATS, Format

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

KINDS = ("sequential", "tree", "blocked", "any")
_EXPECTED = "expected ORDER:FORMAT such as sequential:float32, tree:float32, blocked=128:float32 or any:float32"


@dataclass(frozen=True)
class Order:
    """How n terms are combined, and the format that holds every partial result.

    sequential  from left to right, n - 1 combinations on the first term's path
    tree        by halves: at most ceil(log2 n) on a path
    blocked     `block` running results of n / block terms each, or blocks of that size one after another; inside and
                between them any order: at most (block - 1) + (ceil(n / block) - 1)
    any         at most n - 1

    paths       paths(counts) -> combinations on the longest path of a result of so many terms (float64 tensors),
                for the orders of known code: kind 'any' with fewer combinations
    adjacent    whether each partial result is one of consecutive terms, as those of an associative scan are
    text        its name in a bound's source; made from the other fields where empty
    """

    kind: str
    accumulator: Format
    block: int = 0
    paths: Callable[[Tensor], Tensor] | None = None
    adjacent: bool = False
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"order {self.kind!r}; expected one of {', '.join(KINDS)}")
        if (self.kind == "blocked") != (self.block > 0):
            raise ValueError(f"order {self.kind} with a block of {self.block}; a block belongs to 'blocked' alone")
        if self.adjacent and self.kind != "any":
            raise ValueError(f"order {self.kind} with adjacent terms; expected 'any': of the others it is known")
        if self.paths is not None and self.kind != "any":
            raise ValueError(f"order {self.kind} with paths of its own; expected 'any'")

    def __str__(self) -> str:
        return self.text or f"{self.kind}{f'={self.block}' if self.block else ''} in {self.accumulator.name}"

    @staticmethod
    def parse(text: str) -> Order:
        """`sequential:float32`, `tree:float64`, `blocked=128:float32`, `any:bfloat16`. Raises ValueError, one line."""
        order, colon, name = text.strip().partition(":")
        kind, equals, size = order.partition("=")
        if not colon:
            raise ValueError(f"{text!r} names no accumulator; {_EXPECTED}")
        if name not in FORMATS:
            raise ValueError(f"{text!r}: unknown format {name!r}; expected one of {', '.join(FORMATS)}")
        if kind not in KINDS:
            raise ValueError(f"{text!r}: unknown order {kind!r}; {_EXPECTED}")
        if (kind == "blocked") != bool(equals):
            raise ValueError(f"{text!r}: blocked needs a size and only blocked has one; {_EXPECTED}")
        if equals and not (size.isdecimal() and size.isascii() and 0 < int(size) <= 1 << 40):
            raise ValueError(f"{text!r}: {size!r} is not a block size; expected a number of terms such as 128")
        return Order(kind, FORMATS[name], int(size) if equals else 0)

    def steps(self, counts: Tensor) -> Tensor:
        """Combinations on the longest path of results of so many terms, float64; 0 of none."""
        most = (counts - 1).clamp(min=0.0)
        if self.paths is not None:
            return self.paths(counts).minimum(most)
        if self.kind == "tree":
            return _log2_up(counts).minimum(most)
        if self.kind == "blocked":
            return ((counts / self.block).ceil() - 1 + counts.clamp(max=float(self.block)) - 1).clamp(min=0.0)
        return most


def _log2_up(counts: Tensor) -> Tensor:
    """ceil(log2 n) of whole numbers n >= 1, exactly; 0 of 0."""
    mantissa, exponent = (counts.clamp(min=1.0)).frexp()
    return (exponent - (mantissa == 0.5).to(exponent.dtype)).to(counts.dtype)


Combine = Callable[[Any, Any], Any]


def reduce(order: Order, combine: Combine, terms: Tensor) -> Tensor:
    """One result along the last axis, of length 1, in the given order ('any' goes by halves, last term first).

    combine(a, b) takes tensors of one shape. Raises ValueError for no terms.
    """
    n = terms.shape[-1]
    if n == 0:
        raise ValueError("no terms to combine")
    if order.kind == "blocked" and n > order.block:
        blocks = [reduce(Order("sequential", order.accumulator), combine, part) for part in _parts(terms, order.block)]
        return reduce(Order("sequential", order.accumulator), combine, _joined(blocks))
    if order.kind in ("sequential", "blocked"):
        total = terms[..., :1]
        for k in range(1, n):
            total = combine(total, terms[..., k : k + 1])
        return total
    if order.kind == "any":
        terms = terms.flip(-1)
    while (n := terms.shape[-1]) > 1:
        half = n // 2
        paired = combine(terms[..., : 2 * half : 2], terms[..., 1 : 2 * half : 2])
        terms = _joined([paired, terms[..., 2 * half :]])
    return terms


def scan(order: Order, combine: Combine, terms: Tensor) -> Tensor:
    """Inclusive prefixes along the last axis; earlier terms come first in combine(a, b).

    sequential: left to right. tree: Sklansky's scan. blocked: left to right inside, each block combined with what
    came before it. any: as the tree.
    """
    n = terms.shape[-1]
    if order.kind == "blocked" and n > order.block:
        found: list[Tensor] = []
        for part in _parts(terms, order.block):
            inside = scan(Order("sequential", order.accumulator), combine, part)
            found.append(combine(found[-1][..., -1:].expand_as(inside), inside) if found else inside)
        return _joined(found)
    if order.kind in ("sequential", "blocked"):
        found = []
        for k in range(n):
            one = terms[..., k : k + 1]
            found.append(combine(found[-1], one) if found else one)
        return _joined(found) if found else terms
    width = 1
    while width < n:
        parts = list(_parts(terms, 2 * width))
        for k, part in enumerate(parts):
            if part.shape[-1] > width:
                left, right = part[..., :width], part[..., width:]
                parts[k] = _joined([left, combine(left[..., -1:].expand_as(right), right)])
        terms = _joined(parts)
        width *= 2
    return terms


def _parts(terms: Tensor, size: int) -> tuple[Tensor, ...]:
    import torch

    return torch.split(terms, size, -1)


def _joined(parts: list[Tensor]) -> Tensor:
    import torch

    return torch.cat(parts, -1)
