"""A stand-in for an Apple GPU, shared by tests: a device without float64, and Metal source run by a C++ compiler.

Tensors on it are wrappers around host tensors that no operation mixes with others; its compiler is
`verify.virtual.metal`.
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from verify.virtual import metal

COMPILER = shutil.which("g++") or shutil.which("clang++")
#: Fast math by the single options: the umbrella ones link a start-up file that flushes subnormals in the whole process.
FAST = ("-fassociative-math", "-freciprocal-math", "-fno-signed-zeros", "-fno-trapping-math", "-ffinite-math-only")

#: A device type that torch can name without having it: no kernel of its own is ever reached.
DEVICE = "meta"


class OnDevice(torch.Tensor):
    """A tensor of the stand-in; `host` holds its elements."""

    host: torch.Tensor

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> OnDevice:
        layout = {"strides": host.stride(), "storage_offset": host.storage_offset(), "dtype": host.dtype}
        wrapper: OnDevice = torch.Tensor._make_wrapper_subclass(cls, host.shape, device=DEVICE, **layout)  # type: ignore[attr-defined]
        wrapper.host = host
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} on the stand-in device after its test")


class Device(TorchDispatchMode):
    """While active, operations on the stand-in run on the host. Fails where one meets float64 or another device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        mine = [t for t in tensors if isinstance(t, OnDevice)]
        asked = kwargs.get("device")
        here = bool(mine) if asked is None else torch.device(asked).type == DEVICE
        if asked is not None:
            kwargs["device"] = torch.device("cpu")
        if mine and func is not torch.ops.aten._to_copy.default:
            foreign = [t for t in tensors if not isinstance(t, OnDevice) and t.dim()]
            assert not foreign, f"{func} mixes the device's tensors with the host's"
        out = func(*tree_map(_host, args), **tree_map(_host, kwargs))

        def wrapped(leaf: Any) -> Any:
            if not (here and isinstance(leaf, torch.Tensor)):
                return leaf
            assert leaf.dtype != torch.float64, f"{func} makes float64 on a device that has none"
            same = [t for t in mine if t.host is leaf]  # of an operation in place
            return same[0] if same else OnDevice(leaf)

        return tree_map(wrapped, out)


class Library(metal.Library):
    """What `torch.mps.compile_shader` returns, for tensors of the stand-in and of the host."""

    def __init__(self, source: str, flush: bool = False) -> None:
        assert COMPILER is not None
        fast = FAST if "math_mode(fast)" in source else ()
        super().__init__(source, (COMPILER, *fast), metal.Mode(flush=flush), host=_host)


def needs_compiler() -> None:
    if COMPILER is None:
        pytest.skip("no g++ and no clang++ to compile Metal source with")


def _host(leaf: Any) -> Any:
    return leaf.host if isinstance(leaf, OnDevice) else leaf
