"""Inputs of a walk: strata of random draws, every pattern of one input, or a list; in chunks of 2^20.

Which strata a kernel needs is said in `kernels/`, in the vocabulary of `verify.inputs.strata`; how random words are
made, in `verify.inputs.draws`. torch is imported on use.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from verify.facts.formats import Format
from verify.facts.kernel import PROFILES
from verify.inputs.draws import Bits, Draw, as_int64, to_tensor

__all__ = ["CHUNK", "Domain", "Draw", "Stratum", "domain_of"]

CHUNK = 1 << 20
#: Elements of a larger exhaustive domain that have one digest, so that there are few of them.
LONG_CHUNK = 1 << 40
#: The stratum of special values, which lists them all instead of drawing them.
LISTED = "specials"
#: The first BLOCK elements of a larger domain of strata are the same whatever its size.
BLOCK = 1 << 20
#: Elements that are drawn at once: on the host what they need stays in the processor's cache, and on a GPU, of several
#: strata, thousands of small steps become few. Fewer than DRAWN_THERE the host draws in less time.
TOGETHER, TOGETHER_THERE, DRAWN_THERE = 1 << 15, 1 << 22, 1 << 20
HOST = ("cpu",)  # torch's word for it
#: log2 of the number of elements by profile; float64 is smaller because its truth is double-double, run eagerly.
SIZES = {"quick": 17, "default": 22, "exhaustive": 24}
SIZES_FLOAT64 = {"quick": 14, "default": 18, "exhaustive": 20}


@dataclass(frozen=True)
class Stratum:
    """`size` elements drawn by `bits(draw)`, which returns one int64 tensor of patterns for each input."""

    name: str
    size: int
    bits: Callable[[Draw], Bits]

    def __post_init__(self) -> None:
        if not 0 < self.size <= 1 << 32:
            raise ValueError(f"stratum {self.name!r} of {self.size} elements; a counter has 32 bits")


@dataclass(frozen=True)
class Domain:
    """The inputs of one walk, in a fixed order.

    kind      'strata', 'exhaustive' (every pattern, the first input's bits the highest) or 'list' (`patterns`)
    fmt       format of every input
    names     the tensor inputs
    """

    kind: str
    fmt: Format
    names: tuple[str, ...]
    strata: tuple[Stratum, ...] = ()
    seed: int = 0
    patterns: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("strata", "exhaustive", "list"):
            raise ValueError(f"domain kind {self.kind!r}; expected 'strata', 'exhaustive' or 'list'")
        if self.kind == "exhaustive" and len(self.names) * self.fmt.bits > 48:
            raise ValueError(
                f"no exhaustive domain of {self.fmt.name} {self.names}: inputs of at most 48 bits together"
            )
        wrong = next((p for p in self.patterns if len(p) != len(self.names)), None)
        if wrong is not None:
            raise ValueError(f"{len(wrong)} patterns for the {len(self.names)} inputs {', '.join(self.names)}")

    @property
    def size(self) -> int:
        if self.kind == "exhaustive":
            return 1 << (self.fmt.bits * len(self.names))
        return len(self.patterns) if self.kind == "list" else sum(s.size for s in self.strata)

    def chunks(self) -> range:
        """Chunk numbers; each holds 2^20 elements but for the last."""
        return range(-(-self.size // CHUNK))

    def chunk(self, number: int, device: Any) -> tuple[Any, ...]:
        """Tensors of the dtype for chunk `number`, one for each name.

        Those of kind 'strata' are drawn on the host, or where there are many, on the device, which has float64.
        """
        start = number * CHUNK
        return self.span(start, min(start + CHUNK, self.size), device)

    def span(self, start: int, stop: int, device: Any) -> tuple[Any, ...]:
        """Tensors of the dtype for the elements start..stop-1."""
        import torch

        from verify.native import patterns

        if self.kind != "exhaustive":
            there = torch.device(device).type not in HOST and stop - start >= DRAWN_THERE
            drawn = (to_tensor(self.fmt, bits) for bits in self.bits(start, stop, device if there else "cpu"))
            return tuple(t.to(device) for t in drawn)
        found = []
        for shift in self._shifts:
            words = torch.empty(stop - start, dtype=getattr(torch, f"int{self.fmt.bits}"), device=device)
            patterns.put_in_order(words, start, shift)
            found.append(words.view(getattr(torch, self.fmt.name)))
        return tuple(found)

    def holds(self, start: int, tensors: Sequence[Any]) -> bool:
        """Whether the tensors are those of the elements from `start` of an exhaustive domain, bit for bit."""
        import torch

        from verify.native import patterns

        words = (t.view(getattr(torch, f"int{self.fmt.bits}")) for t in tensors)
        return all(patterns.in_order(w, start, shift) for w, shift in zip(words, self._shifts, strict=True))

    @property
    def _shifts(self) -> list[int]:
        """By how many bits the index of an element is to be shifted for each pattern of an exhaustive domain."""
        return [self.fmt.bits * k for k in reversed(range(len(self.names)))]

    def bits(self, start: int, stop: int, device: Any) -> Bits:
        """Patterns of the elements start..stop-1 as int64 tensors."""
        import torch

        if not 0 <= start < stop <= self.size:
            raise IndexError(f"elements {start}..{stop - 1} of a domain of {self.size}")
        if self.kind == "exhaustive":
            index = torch.arange(start, stop, dtype=torch.int64, device=device)
            return tuple(index >> shift & ((1 << self.fmt.bits) - 1) for shift in self._shifts)
        if self.kind == "list":
            rows = [[as_int64(self.fmt, p) for p in row] for row in self.patterns[start:stop]]
            columns = torch.tensor(rows, dtype=torch.int64, device=device).t().contiguous()
            return tuple(columns.unbind(0))  # contiguous each, or a lowering would take its strided loop
        whole = tuple(torch.empty(stop - start, dtype=torch.int64, device=device) for _ in self.names)
        host = torch.device(device).type in HOST
        wanted: list[_Piece] = []
        offset, step = 0, TOGETHER if host else TOGETHER_THERE
        for stratum in self.strata:
            low, high = max(start - offset, 0), min(stop - offset, stratum.size)
            pieces = ((k, min(k + step, high)) for k in range(low, high, step))
            wanted += [_Piece(stratum, k, upto - k, offset + k - start) for k, upto in pieces]
            offset += stratum.size
        groups = [[one] for one in wanted] if host else list(_alike(wanted, step))

        def draw(group: Sequence[_Piece]) -> None:
            first, *rest = group
            places = [torch.arange(one.low, one.low + one.size, device=device) for one in group]
            given = Draw(self.fmt, places[0], self.seed, first.stratum.name)
            if rest:
                of = torch.cat([torch.full_like(index, k) for k, index in enumerate(places)])
                others = tuple(one.stratum.name for one in rest)
                given = replace(given, index=torch.cat(places), others=others, of=of)
            for column, bits in zip(whole, first.stratum.bits(given), strict=True):
                for one, part in zip(group, bits.split([one.size for one in group]), strict=True):
                    column[one.at : one.at + one.size] = part

        if host and len(groups) > 8:
            with ThreadPoolExecutor(torch.get_num_threads()) as pool:
                list(pool.map(draw, groups))
        else:
            for one in groups:
                draw(one)
        return whole

    def replay(self, index: int) -> tuple[int, ...]:
        """Non-negative patterns of element `index`, one for each name."""
        mask = (1 << self.fmt.bits) - 1
        return tuple(int(bits) & mask for bits in self.bits(index, index + 1, "cpu"))


class _Piece(NamedTuple):
    """`size` elements of a stratum from its element `low`, which are the domain's from `at`."""

    stratum: Stratum
    low: int
    size: int
    at: int


def _alike(wanted: Sequence[_Piece], most: int) -> Iterator[list[_Piece]]:
    """Pieces that are drawn by one function, of at most so many elements together."""
    by_function: dict[Callable[[Draw], Bits], list[_Piece]] = {}
    for one in wanted:
        by_function.setdefault(one.stratum.bits, []).append(one)
    for pieces in by_function.values():
        group: list[_Piece] = []
        for one in pieces:
            if group and sum(other.size for other in group) + one.size > most:
                yield group
                group = []
            group.append(one)
        yield group


def domain_of(
    kernel: Any, fmt: Format, scalars: Any, profile: str = "default", seed: int = 0, *, limit: int | None = None,
    most: int | None = None, triples: bool = False,
) -> Domain:  # fmt: skip
    """The domain of `kernel` (a `verify.facts.kernel.Kernel`) in the case `scalars`, for a profile.

    A single 16-bit input is exhaustive in every profile; a single float32 and two 16-bit inputs under 'exhaustive';
    three 16-bit inputs where `triples` asks for them. most: what the default profile takes instead of its size. limit:
    the most elements that the lowering is given.
    """
    if profile not in PROFILES:
        raise ValueError(f"profile {profile!r}; expected one of {', '.join(PROFILES)}")
    names = kernel.tensors(scalars)
    bits = fmt.bits * len(names)
    if fmt.bits < 64 and (bits == 16 or (bits in (32, 48)[: 1 + triples] and profile == "exhaustive")):
        everything = Domain("exhaustive", fmt, names)
        if limit is None or everything.size <= limit:
            return everything
    size = 1 << (SIZES_FLOAT64 if fmt.bits == 64 else SIZES)[profile]
    if profile == "default" and most is not None and fmt.bits < 64:
        size = most
    size = size if limit is None else min(size, limit)
    first = kernel.domain(fmt, names, dict(scalars), min(size, BLOCK))
    return Domain("strata", fmt, names, (*first, *_further(first, size - BLOCK)), seed)


def _further(first: tuple[Stratum, ...], size: int) -> Iterator[Stratum]:
    """`size` elements more of the strata of the first block, in blocks with draws of their own; what is listed is not
    listed again."""
    drawn = [s for s in first if s.name != LISTED]
    for number, start in enumerate(range(0, size, BLOCK), 1):
        here, total = min(BLOCK, size - start), sum(s.size for s in drawn)
        edges = [here * part // total for part in itertools.accumulate((s.size for s in drawn), initial=0)]
        for stratum, (low, high) in zip(drawn, itertools.pairwise(edges), strict=True):
            if high > low:
                yield Stratum(f"{stratum.name} {number}", high - low, stratum.bits)
