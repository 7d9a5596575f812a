"""Digests of bit patterns: published vectors, and every form of them alike."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verify import native
from verify.facts.formats import FORMATS, Format
from verify.numbers.decide import digest, digest_tensors, salts

MASK = (1 << 64) - 1


def mix(z: int) -> int:
    """Stafford's variant 13, in Python's integers."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def written_out(bits: Sequence[int], fmt: Format, start: int = 0) -> int:
    total = 0
    for k, b in enumerate(bits):
        total += mix((fmt.nan_bits if fmt.is_nan(b) else b) ^ (start + k + 1) * 0x9E3779B97F4A7C15 & MASK)
    return total & MASK


#: Published: format, patterns, position of the first, digest. A digest in a report can be checked against these.
#: The first one is splitmix64's first output for seed 0 (Steele, Lea & Flood 2014).
VECTORS = [
    ("float32", (0x00000000,), 0, "0xe220a8397b1dcdaf"),
    ("float32", (0x3F800000, 0xBF800000, 0x7F800000), 0, "0xec94a5bcd4418418"),
    ("float32", (0x7FC00000, 0xFFFFFFFF, 0x80000000), 1 << 20, "0xf45102234c7751c8"),
    ("float16", (0x3C00, 0x8000, 0x7E01), 0, "0xe42cf68a0acc5b5c"),
    ("bfloat16", (0x3F80, 0x7F80, 0xFFC1), 7, "0x9d5fa92c27abedc9"),
    ("float64", (0x3FF0000000000000, 0x8000000000000000, 0x7FF8000000000000), 0, "0x5eef4704448473c0"),
]


def integers(bits: Sequence[int], fmt: Format) -> torch.Tensor:
    word = {16: torch.int16, 32: torch.int32, 64: torch.int64}[fmt.bits]
    return torch.tensor([b - (1 << fmt.bits) if b >> (fmt.bits - 1) else b for b in bits], dtype=word)


def by_tensors(column: torch.Tensor, fmt: Format, start: int) -> int:
    return int(digest_tensors(column.reshape(1, -1), fmt, salts(column.numel(), start, "cpu"))) & MASK


@pytest.mark.parametrize(("dtype", "bits", "start", "expected"), VECTORS)
def test_published_digests(dtype: str, bits: tuple[int, ...], start: int, expected: str) -> None:
    fmt = FORMATS[dtype]
    column = integers(bits, fmt)
    assert f"{digest(column, fmt, start):#018x}" == expected
    assert f"{by_tensors(column, fmt, start):#018x}" == expected
    assert f"{written_out(bits, fmt, start):#018x}" == expected


def test_without_a_compiler_tensors_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "host", lambda: None)
    for dtype, bits, start, expected in VECTORS:
        assert f"{digest(integers(bits, FORMATS[dtype]), FORMATS[dtype], start):#018x}" == expected


@given(st.sampled_from(list(FORMATS)), st.integers(0, 2**32), st.integers(1, 300), st.integers(0, 2**40))
def test_digests_in_all_forms_agree_add_up_and_depend_on_position(dtype: str, seed: int, size: int, start: int) -> None:
    fmt, rng = FORMATS[dtype], random.Random(seed)
    bits = [rng.choice([rng.randrange(1 << fmt.bits), fmt.nan_bits + rng.randrange(4)]) for _ in range(size)]
    column = integers(bits, fmt)
    value = digest(column, fmt, start)
    assert value == by_tensors(column, fmt, start) == written_out(bits, fmt, start)
    cut = rng.randrange(size + 1)
    assert value == digest(column[:cut], fmt, start) + digest(column[cut:], fmt, start + cut) & MASK
    assert value != digest(column, fmt, start + 1)
    i, j = rng.randrange(size), rng.randrange(size)
    swapped = column.clone()
    swapped[[i, j]] = column[[j, i]]
    both_nan = fmt.is_nan(bits[i]) and fmt.is_nan(bits[j])
    assert (digest(swapped, fmt, start) == value) == (bits[i] == bits[j] or both_nan)
    flipped = column.clone()
    flipped[i] ^= 1
    same_nan = fmt.is_nan(bits[i]) and fmt.is_nan(bits[i] ^ 1)
    assert (digest(flipped, fmt, start) == value) == same_nan


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_digest_is_the_same_whatever_the_number_of_threads(dtype: str) -> None:
    fmt, n = FORMATS[dtype], 3 * (1 << 17) + 5
    word = {16: torch.int16, 32: torch.int32, 64: torch.int64}[fmt.bits]
    drawn = torch.randint(-(1 << 63), (1 << 63) - 1, (n,), generator=torch.Generator().manual_seed(1))
    bits, before = drawn.to(word), torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(digest(bits, fmt, 1 << 40))
    finally:
        torch.set_num_threads(before)
    assert found == [found[0]] * 3
    assert found[0] == int(digest_tensors(bits[None], fmt, salts(n, 1 << 40, "cpu")).item()) & MASK
