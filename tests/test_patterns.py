"""Bit patterns in order and constant ones, on the host, on a GPU, and as tensors tell them."""

from __future__ import annotations

import pytest
import torch

from verify import backends, native
from verify.facts.formats import FORMATS
from verify.inputs.domains import Domain
from verify.native import patterns


def require_alike(device: str) -> None:
    for dtype, width in ((torch.int32, 32), (torch.int16, 16)):
        for start, shift in ((0, 0), (0xFFFFFF00, 0), (0x3C01_2345_6700, 16), (0x7FFF_FFFF_FFF0, 32)):
            words = torch.empty(10_007, dtype=dtype, device=device)
            patterns.put_in_order(words, start, shift)
            due = torch.arange(start, start + len(words)) >> shift & ((1 << width) - 1)
            assert torch.equal(words.cpu().to(torch.int64) & ((1 << width) - 1), due)
            assert patterns.in_order(words, start, shift)
            for place in (0, 5_003, len(words) - 1):
                words[place] ^= 1
                assert not patterns.in_order(words, start, shift)
                words[place] ^= 1
        for value in (0, -1, -(1 << (width - 1)), 17):
            words = torch.full((10_007,), value, dtype=dtype, device=device)
            assert patterns.constant(words, value) and not patterns.constant(words, value ^ 1)
            for place in (0, len(words) - 1):
                words[place] ^= 2
                assert not patterns.constant(words, value)
                words[place] ^= 2


def test_the_host_writes_and_finds_them() -> None:
    require_alike("cpu")


def test_tensors_do_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "host", lambda: None)
    require_alike("cpu")


@pytest.mark.gpu
def test_a_gpu_writes_and_finds_them() -> None:
    if (why := (backend := backends.load("cuda")).unavailable()) is not None:
        pytest.skip(why)
    require_alike(backend.device)


@pytest.mark.parametrize(("dtype", "names"), [("float32", "x"), ("float16", "ab"), ("bfloat16", "abc")])
def test_the_elements_of_an_exhaustive_domain_are_these(dtype: str, names: str) -> None:
    domain = Domain("exhaustive", FORMATS[dtype], tuple(names))
    start = domain.size // 3
    tensors = domain.span(start, start + 5000, "cpu")
    word = torch.int32 if dtype == "float32" else torch.int16
    mask = (1 << FORMATS[dtype].bits) - 1
    for mine, theirs in zip(tensors, domain.bits(start, start + 5000, "cpu"), strict=True):
        assert torch.equal(mine.view(word).to(torch.int64) & mask, theirs)
    assert domain.holds(start, tensors) and not domain.holds(start + 1, tensors)
    tensors[-1].view(word)[77] ^= 4
    assert not domain.holds(start, tensors)
