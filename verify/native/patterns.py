"""Bit patterns in order, and constant ones: written and looked for as fast as memory allows.

`words` are one-dimensional integer tensors of 16 or 32 bits. Word i "in order" is (start + i) >> shift, modulo its
width, as an input of an exhaustive `verify.inputs.domains.Domain` is.
"""

from __future__ import annotations

import ctypes
import importlib.util
from typing import Any

import torch

from verify import native


def put_in_order(words: torch.Tensor, start: int, shift: int = 0) -> None:
    """Write them."""
    if (gpu := _gpu(words)) is not None:
        gpu.fill(words, start, shift)
    elif (library := _host(words)) is not None:
        library.in_order(*_sizes(words), ctypes.c_uint64(start), ctypes.c_int(shift), ctypes.c_void_p(words.data_ptr()))
    else:
        words.copy_(_ordered(words, start, shift))


def in_order(words: torch.Tensor, start: int, shift: int = 0) -> bool:
    """Whether they are."""
    if (gpu := _gpu(words)) is not None:
        return not gpu.differing(words, start, shift).item()
    if (library := _host(words)) is not None:
        at = ctypes.c_uint64(start), ctypes.c_int(shift), ctypes.c_void_p(words.data_ptr())
        return bool(library.is_in_order(*_sizes(words), *at))
    return torch.equal(words, _ordered(words, start, shift).to(words.dtype))


def constant(words: torch.Tensor, value: int) -> bool:
    """Whether all are this one (sign-extended)."""
    if (gpu := _gpu(words)) is not None:
        return not gpu.other(words, value).item()
    if (library := _host(words)) is not None:
        mask = (1 << 8 * words.element_size()) - 1
        return bool(
            library.is_constant(*_sizes(words), ctypes.c_uint32(value & mask), ctypes.c_void_p(words.data_ptr()))
        )
    return bool((words == value).all())


def _gpu(words: torch.Tensor) -> Any:
    if words.is_cpu or not words.is_cuda or importlib.util.find_spec("triton") is None:
        return None
    from verify.native import gpu

    return gpu


def _host(words: torch.Tensor) -> ctypes.CDLL | None:
    return native.host() if words.is_cpu and words.is_contiguous() else None


def _sizes(words: torch.Tensor) -> tuple[ctypes.c_int64, ctypes.c_int]:
    return ctypes.c_int64(len(words)), ctypes.c_int(words.element_size())


def _ordered(words: torch.Tensor, start: int, shift: int) -> torch.Tensor:
    return torch.arange(start, start + len(words), dtype=torch.int64, device=words.device) >> shift
