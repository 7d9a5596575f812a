"""Bit patterns in order, and constant ones: written and looked for as fast as memory allows.

`words` are one-dimensional integer tensors of 16 or 32 bits. Word i "in order" is (start + i) >> shift, modulo its
width, as an input of an exhaustive `verify.inputs.domains.Domain` is.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from verify import native

T = TypeVar("T")


def put_in_order(words: torch.Tensor, start: int, shift: int = 0) -> None:
    """Write them."""
    if (gpu := _gpu(words)) is not None:
        gpu.fill(words, start, shift)
    elif (library := _host(words)) is not None:
        by = ctypes.c_int(shift)
        _parts(words, lambda n, size, first, at: library.in_order(n, size, ctypes.c_uint64(start + first), by, at))
    else:
        words.copy_(_ordered(words, start, shift))


def in_order(words: torch.Tensor, start: int, shift: int = 0) -> bool:
    """Whether they are."""
    if (gpu := _gpu(words)) is not None:
        return not gpu.differing(words, start, shift).item()
    if (library := _host(words)) is not None:
        by, ask = ctypes.c_int(shift), library.is_in_order
        return all(_parts(words, lambda n, size, first, at: ask(n, size, ctypes.c_uint64(start + first), by, at)))
    return torch.equal(words, _ordered(words, start, shift).to(words.dtype))


def constant(words: torch.Tensor, value: int) -> bool:
    """Whether all are this one (sign-extended)."""
    if (gpu := _gpu(words)) is not None:
        return not gpu.other(words, value).item()
    if (library := _host(words)) is not None:
        due = ctypes.c_uint32(value & ((1 << 8 * words.element_size()) - 1))
        return all(_parts(words, lambda n, size, first, at: library.is_constant(n, size, due, at)))
    return bool((words == value).all())


def _gpu(words: torch.Tensor) -> Any:
    if words.is_cpu or not words.is_cuda or importlib.util.find_spec("triton") is None:
        return None
    from verify.native import gpu

    return gpu


def _host(words: torch.Tensor) -> ctypes.CDLL | None:
    return native.host() if words.is_cpu and words.is_contiguous() else None


def _parts(words: torch.Tensor, call: Callable[[ctypes.c_int64, ctypes.c_int, int, ctypes.c_void_p], T]) -> list[T]:
    """What a function of host.cpp gives for parts of the words: called with how many they are, their bytes, where they
    begin, and their address."""
    size, address = words.element_size(), words.data_ptr()

    def of(first: int, end: int) -> T:
        return call(ctypes.c_int64(end - first), ctypes.c_int(size), first, ctypes.c_void_p(address + first * size))

    return native.divided(of, len(words), torch.get_num_threads())


def _ordered(words: torch.Tensor, start: int, shift: int) -> torch.Tensor:
    return torch.arange(start, start + len(words), dtype=torch.int64, device=words.device) >> shift
