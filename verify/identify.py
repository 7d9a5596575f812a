"""Which formula the bits obey: candidates of the oracle, evaluated in `ieee`, against the outputs.

A candidate survives while it reproduces every output bit (NaNs count as equal). One survivor is the
identified formula; several are ambiguous and named as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from verify.formats import FORMATS, Format
from verify.numbers import ieee
from verify.oracle import Formula, Oracle

Tensor = torch.Tensor


@dataclass
class Identification:
    """Counts of mismatches by formula, and the first input (patterns) that refutes each."""

    mismatches: dict[str, int] = field(default_factory=dict)
    witnesses: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def survivors(self) -> list[str]:
        return [text for text, count in self.mismatches.items() if not count]

    @property
    def identified(self) -> str | None:
        return self.survivors[0] if len(self.survivors) == 1 else None


def candidates(oracle: Oracle, scalars: Mapping[str, float], fmt: Format) -> tuple[Formula, ...]:
    """The formulas that apply; where storage is the compute format, those that differ by it only are dropped."""
    same = fmt.bits >= 32
    return tuple(f for f in oracle.formulas if f.suits(dict(scalars)) and not (same and "storage(" in f.text))


def predict(
    formulas: tuple[Formula, ...], fmt: Format, names: tuple[str, ...], inputs: tuple[Tensor, ...],
    scalars: Mapping[str, float],
) -> dict[str, Tensor]:  # fmt: skip
    """Output of every formula on this chunk, in the storage dtype."""
    n = ieee.IeeeSystem(FORMATS["float32"] if fmt.bits < 32 else fmt, fmt)
    tensors = dict(zip(names, inputs, strict=True))
    return {f.text: ieee.evaluate(n, f.evaluate, tensors, scalars) for f in formulas}


def count(
    found: Identification, predictions: Mapping[str, Tensor], fmt: Format, inputs: tuple[Tensor, ...], y: Tensor
) -> None:
    """Add this chunk's mismatches between `y` and each prediction."""
    from verify.check import pattern
    from verify.launch import bits

    for text, expected in predictions.items():
        differs = (bits(expected) != bits(y)) & ~(torch.isnan(expected) & torch.isnan(y))
        wrong = int(differs.sum())
        found.mismatches[text] = found.mismatches.get(text, 0) + wrong
        if wrong and text not in found.witnesses:
            k = int(differs.to(torch.uint8).argmax())
            found.witnesses[text] = tuple(pattern(t[k], fmt) for t in inputs)


def merged(parts: Iterable[Identification]) -> Identification:
    """The counts of several chunks, given in the domain's order."""
    total = Identification()
    for part in parts:
        for text, wrong in part.mismatches.items():
            total.mismatches[text] = total.mismatches.get(text, 0) + wrong
        total.witnesses = part.witnesses | total.witnesses
    return total
