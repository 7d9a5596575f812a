"""Composite kernels, whose outputs depend on many inputs or many steps: the problem, its truth,
the proven bound of an algorithm, and the judgement of a lowering's outputs.

Elementwise kernels are those of `verify.families.elementwise`; the judge of both is `verify.judge`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from verify.facts.formats import Format
from verify.facts.truth import Truth
from verify.inputs.draws import encode
from verify.numbers.cpp import on_host
from verify.numbers.decide import Enclosure

Tensor = torch.Tensor

#: Bytes of formulas' predictions that are kept with a problem; the rest is evaluated again when needed.
KEPT = 1 << 28


@dataclass(frozen=True)
class Problem:
    """One instance: `tensors` by name in the order of the kernel's inputs (dtypes and shapes as the
    lowering gets them), `parameters` of the setting, Python `scalars`, `dtype` of the cell."""

    tensors: Mapping[str, Tensor]
    parameters: Mapping[str, Any]
    scalars: Mapping[str, float]
    dtype: str
    #: What a kernel keeps with its problem, and `keywords`; no part of its identity.
    extra: Mapping[str, Any] = field(default_factory=dict)
    #: How many steps follow one another, among which the elements of its tensors are divided.
    steps: int = 1

    def to(self, device: Any) -> Problem:
        """The same problem with its tensors on `device`, strides kept."""
        moved = {name: t.to(device) for name, t in self.tensors.items()}
        return replace(self, tensors=moved)

    @property
    def keywords(self) -> Mapping[str, Any]:
        """What a user's own lowering may take by keyword, see `verify.facts.kernel.Composite`."""
        given: Mapping[str, Any] = self.extra.get("keywords", {})
        return given

    @property
    def read(self) -> dict[str, Tensor]:
        """All tensors that a lowering reads: its inputs, and tables among the keywords."""
        return {**self.tensors, **{k: v for k, v in self.keywords.items() if isinstance(v, torch.Tensor)}}

    def reading(self, tensors: Mapping[str, Tensor]) -> Problem:
        """The same problem with others in place of `read`."""
        keywords = {k: tensors.get(k, v) for k, v in self.keywords.items()}
        return replace(self, tensors={k: tensors[k] for k in self.tensors}, extra={**self.extra, "keywords": keywords})


@on_host
def encoded(reals: Tensor, *, fmt: Format) -> Tensor:
    """float64 values as patterns, int64 in their shape: `verify.inputs.draws.encode`, compiled on the host."""
    patterns: Tensor = encode(fmt, reals)
    return patterns


@dataclass(frozen=True)
class Limit:
    """What the elements of an output may be off by (float64, in its shape; inf: nothing is stated): |y - t| <= bound by
    an algorithm that the lowering uses. `source` cites the theorem and names the algorithm.

    beyond: (kind of `verify.judge.status.DOUBTS`, a wider bound), the narrowest first: an element that is beyond the
    bound and within this one is suspect for that reason; one that is beyond them all is wrong.
    """

    bound: Tensor
    source: str
    beyond: tuple[tuple[str, Tensor], ...] = ()

    def each(self, change: Callable[[Tensor], Tensor]) -> Limit:
        """With every tensor changed."""
        return Limit(change(self.bound), self.source, tuple((kind, change(wider)) for kind, wider in self.beyond))


@dataclass(frozen=True)
class Part:
    """What a formula gives for some elements of an output, where all would be too many: their places (int64) in the
    output as a flat tensor, and values (n,) in its dtype."""

    places: Tensor
    values: Tensor


class Source(Protocol):
    """The truth of every output of one problem. Elements are numbered in C order of the output.

    A source may also have `left(output)`: where an intermediate of the reference spelling lies below the normal range,
    and where one lies above it (two boolean tensors of shape (n,)), or None; `where(text)`: the elements for which a
    predicate of the ledger holds; `infinite(output)`: those that no algorithm gives as a finite number, or None;
    `whole`: whether `enclose` gives the results themselves, integers that float64 holds; and `sums`: of how many terms
    at most an element is the sum, whose magnitudes add up to its scale, so that an infinity that arises in one stays; 0
    where elements are none; and `drawn(count)`: the elements of so many drawn rows, of about `count` in all, but one
    row at least, which double-double takes together.
    """

    def enclose(
        self, output: str, index: Tensor | None = None, double: bool = False, scaled: bool = True
    ) -> tuple[Enclosure, Tensor | None]:
        """Enclosure and scale (lower bound of a positive number, or None) as tensors of shape (1, n):
        of all elements, or of those at `index` (int64, 1-D). double: in double-double, where
        undecided means NaN radius. scaled: whether the scale is asked for, which else may be None.
        Special values are applied: +-inf, NaN and signed zeros have radius 0."""
        ...

    def exact(self, output: str, index: int) -> Iterator[Truth]:
        """Truths of one element in multiprecision, each narrower than the one before."""
        ...

    def scale(self, output: str, index: int) -> Truth | None:
        """The scale of one element in multiprecision, or None."""
        ...

    def explain(self, output: str, index: int) -> list[tuple[str, str]]:
        """What the element is made of: (name, value) lines, terms first."""
        ...
