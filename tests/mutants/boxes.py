"""Kernels that are wrong only inside a random box of inputs, and the share of them that a domain can catch.

A box is an interval of bit patterns for each input, drawn without looking at any domain; a mutant of it is caught
when an element of the domain lies inside. No torch at import.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verify.facts.formats import Format
from verify.inputs.domains import CHUNK, Domain

#: -log2 of the share of all inputs that a box covers is uniform in this range: from 1/16 down to one in a million.
SHARE = (4, 20)


@dataclass(frozen=True)
class Box:
    """Patterns low[k] <= bits < high[k] of every input k."""

    fmt: Format
    low: tuple[int, ...]
    high: tuple[int, ...]

    def contains(self, bits: Sequence[Any]) -> Any:
        """A boolean tensor over int64 tensors of patterns (see `verify.inputs.draws`)."""
        # Two's complement of 64-bit patterns puts those with the sign bit first; turning it restores their order.
        turn = self.fmt.sign_bit if self.fmt.bits == 64 else 0
        inside: Any = True
        for pattern, low, high in zip(bits, self.low, self.high, strict=True):
            key = pattern ^ -turn if turn else pattern
            inside = (key >= low - turn) & (key <= high - 1 - turn) & inside
        return inside


def random_boxes(fmt: Format, n_inputs: int, seed: int, count: int = 200) -> list[Box]:
    """`count` boxes; the logarithm of the share is split among the inputs at random."""
    source = random.Random(seed)
    boxes = []
    for _ in range(count):
        share = source.uniform(*SHARE)
        cuts = sorted(source.uniform(0, share) for _ in range(n_inputs - 1))
        parts = [after - before for before, after in zip([0.0, *cuts], [*cuts, share], strict=True)]
        widths = [max(1, int(2.0 ** (fmt.bits - part))) for part in parts]
        low = tuple(source.randrange((1 << fmt.bits) - width + 1) for width in widths)
        boxes.append(Box(fmt, low, tuple(start + width for start, width in zip(low, widths, strict=True))))
    return boxes


def kill_rate(domain: Domain, boxes: Sequence[Box], device: Any = "cpu") -> float:
    """The share of `boxes` that hold at least one element of `domain`."""
    alive = list(boxes)
    for number in domain.chunks():
        start = number * CHUNK
        bits = domain.bits(start, min(start + CHUNK, domain.size), device)
        alive = [box for box in alive if not box.contains(bits).any()]
    return 1 - len(alive) / len(boxes)
