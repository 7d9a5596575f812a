"""Integer functions of whole tensors for a GPU, in Triton: digests of many chunks at once, the same numbers as
`verify.numbers.decide.digest_tensors`, and what `verify.native.patterns` asks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024
WARPS = 4


@triton.jit
def _hash(
    words, found, n, size, start, infinity, canonical, GOLDEN: tl.constexpr, MIX_1: tl.constexpr, MIX_2: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    at = tile * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(words + at, mask=inside, other=0).to(tl.int64)
    if WIDTH < 64:
        v = v & ((1 << WIDTH) - 1)
    v = tl.where((v & ((1 << (WIDTH - 1)) - 1)) > infinity, canonical, v)
    first = tile * BLOCK % size + 1 + start  # a block lies in one chunk
    z = v ^ ((first + tl.arange(0, BLOCK)) * GOLDEN)
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * MIX_1
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * MIX_2
    z = z ^ ((z >> 31) & ((1 << 33) - 1))
    tl.atomic_add(found + tile * BLOCK // size, tl.sum(tl.where(inside, z, 0), 0))


def digests(
    words: torch.Tensor, size: int, start: int, infinity: int, canonical: int, constants: tuple[int, int, int]
) -> torch.Tensor:
    """int64 (chunks): the digest of each `size` patterns, a multiple of BLOCK, of an integer tensor (n,) on a GPU.

    start: added to each pattern's place in its chunk. infinity, canonical: patterns of the format, of +inf and of the
    NaN that stands for all. constants: the three multipliers.
    """
    n = len(words)
    found = torch.zeros(-(-n // size), dtype=torch.int64, device=words.device)
    width = 8 * words.element_size()
    _hash[(-(-n // BLOCK),)](
        words, found, n, size, start, infinity, canonical, *constants, width, BLOCK, num_warps=WARPS
    )
    return found


@triton.jit
def _fill(words, n, start, shift, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(words + at, (start + at) >> shift, mask=at < n)


@triton.jit
def _differing(words, found, n, start, shift, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    given = tl.load(words + at, mask=inside, other=0)
    _told(found, inside & (given != ((start + at) >> shift).to(given.dtype)))


@triton.jit
def _other(words, found, n, value, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    given = tl.load(words + at, mask=inside, other=0)
    _told(found, inside & (given.to(tl.int64) != value))


@triton.jit
def _told(found, which):
    some = tl.sum(which.to(tl.int32), 0)
    if some > 0:
        tl.atomic_add(found, some)


LONG = 4096  # elements of a program


def _programs(words: torch.Tensor) -> tuple[int]:
    return (-(-len(words) // LONG),)


def fill(words: torch.Tensor, start: int, shift: int) -> None:
    """Word i becomes (start + i) >> shift, modulo its width."""
    _fill[_programs(words)](words, len(words), start, shift, LONG, num_warps=8)


def differing(words: torch.Tensor, start: int, shift: int) -> torch.Tensor:
    """How many words are other ones; 0-dim int32."""
    found = torch.zeros((), dtype=torch.int32, device=words.device)
    _differing[_programs(words)](words, found, len(words), start, shift, LONG, num_warps=8)
    return found


def other(words: torch.Tensor, value: int) -> torch.Tensor:
    """How many words are not this one, sign-extended; 0-dim int32."""
    found = torch.zeros((), dtype=torch.int32, device=words.device)
    _other[_programs(words)](words, found, len(words), value, LONG, num_warps=8)
    return found
