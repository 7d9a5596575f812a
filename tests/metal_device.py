"""A stand-in for an Apple GPU, shared by tests: a device without float64, and Metal source run by a C++ compiler.

Tensors on it are wrappers around host tensors that no operation mixes with others; its compiler takes the text of
Metal kernels through `metal_shim/metal_stdlib`, which maps Metal's types to C++.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

SHIM = Path(__file__).parent / "metal_shim"
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


class Library:
    """What `torch.mps.compile_shader` returns: an attribute for each kernel of the source.

    flush: subnormal operands and results are taken as zero, as MSL 8.1 permits and Apple's GPUs do in float32.
    """

    def __init__(self, source: str, flush: bool = False) -> None:
        assert source.isascii(), "torch hands the source to Metal as ASCII"
        self._flush = flush
        self._library = ctypes.CDLL(str(_shared_object(source)))

    def __getattr__(self, name: str) -> Callable[..., None]:
        """The kernel's launch as torch binds it: tensors by address, integers as int64, as many threads as the first
        tensor has elements unless told."""
        function = getattr(self._library, f"launch_{name}")

        def launch(*args: Any, threads: int | None = None) -> None:
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            assert all(_host(t).is_contiguous() for t in tensors)
            given: list[Any] = []
            for a in args:
                if isinstance(a, torch.Tensor):
                    given.append(ctypes.c_void_p(_host(a).data_ptr()))
                else:
                    assert isinstance(a, int)
                    given.append(ctypes.byref(ctypes.c_int64(a)))
            torch.set_flush_denormal(self._flush)
            try:
                function(*given, ctypes.c_uint64(tensors[0].numel() if threads is None else threads))
            finally:
                torch.set_flush_denormal(False)

        return launch


def needs_compiler() -> None:
    if COMPILER is None:
        pytest.skip("no g++ and no clang++ to compile Metal source with")


def _host(leaf: Any) -> Any:
    return leaf.host if isinstance(leaf, OnDevice) else leaf


def _driver(source: str) -> str:
    """For each kernel a function that runs its threads one after the other."""
    drivers = []
    for name, parameters in re.findall(r"kernel void (\w+)\((.*?)\) \{", source, re.DOTALL):
        *given, thread = (p.strip() for p in parameters.split(","))
        assert "thread_position_in_grid" in thread
        names = ", ".join(p.split()[-1].lstrip("*&") for p in given)
        drivers.append(
            f'extern "C" void launch_{name}({", ".join(given)}, std::uint64_t threads) {{\n'
            f"    for (std::uint64_t i = 0; i < threads; ++i) {name}({names}, metal::uint(i));\n}}\n"
        )
    assert drivers, "no kernel in the source"
    return "\n".join(drivers)


@functools.cache
def _shared_object(source: str) -> Path:
    assert COMPILER is not None
    folder = Path(_folder())
    text = f"{source}\n{_driver(source)}"
    if "#include <metal_stdlib>" not in text:  # the Metal compiler includes nothing by itself either
        text = f"#include <metal_stdlib>\nusing namespace metal;\n{text}"
    stem = hashlib.sha256(text.encode()).hexdigest()[:16]
    path, library = folder / f"{stem}.cpp", folder / f"{stem}.so"
    path.write_text(text)
    fast = FAST if "math_mode(fast)" in source else ()
    options = ["-std=c++17", "-O2", "-ffp-contract=off", *fast, "-Wall", "-Wextra", "-Werror"]
    options += ["-Wno-attributes", "-Wno-unknown-pragmas", "-shared", "-fPIC", f"-I{SHIM}"]
    done = subprocess.run([COMPILER, *options, "-o", library, path], capture_output=True, text=True, check=False)
    if done.returncode:  # as torch does
        raise SyntaxError(done.stderr)
    return library


@functools.cache
def _folder() -> str:
    import atexit
    import tempfile

    folder = tempfile.mkdtemp(prefix="metal-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
