"""Inductor's Triton kernels for an NVIDIA GPU that is only described, generated and compiled with Inductor's options.

Inductor generates code for fake tensors, but asks torch.cuda for the properties of the GPU; here it gets those of the
description. Read in torch 2.13 (_inductor/compile_fx.py, graph.py, runtime/triton_heuristics.py).
Of an autotuner's configurations the first is taken, which decides no bits of an elementwise kernel.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from verify.virtual.compile import SHARED, TARGETS, Launch, Launcher, Unsupported, described, unwatched

#: What generated code has compiled, by kind.
COMPILED = re.compile(r"async_compile\.(\w+)\(")
#: Options under which torch 2.13 takes the CUDA toolkit's libdevice (_inductor/runtime/compile_tasks.py).
LIBDEVICE = ("eager_numerics.use_pytorch_libdevice", "emulate_precision_casts")
#: A kernel in generated code: its name and its source.
KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''(.*?)'''", re.S)


def launches(
    function: Callable[..., Any], shapes: Sequence[tuple[tuple[int, ...], Any]], options: Mapping[str, Any],
    target: str, libdevice: Any = None, limit: float = 0.0,
) -> list[Launch]:  # fmt: skip
    """The kernels of a function of tensors (shape, dtype), each compiled under its first configuration; without grid
    and arguments. libdevice: see `_generating`; limit: as in `described`.

    Raises Unsupported for other vendors' GPUs, and where no kernel comes."""
    found = []
    with _generating(target, options, libdevice), described(target, lambda launch: None, limit):
        contiguous = [(shape, _strides(shape), dtype) for shape, dtype in shapes]
        for name, source in KERNEL.findall(_generated(function, contiguous)):
            kernel = _compiled(name, source).kernel
            files = Launcher(kernel.src, kernel.metadata).files
            found.append(Launch(kernel.metadata.name, target, (1, 1, 1), (), kernel.metadata, files))
    if not found:
        raise Unsupported(NO_KERNEL)
    return found


NO_KERNEL = "Inductor generates no Triton kernel: it calls aten, so this would count eager"


def compiled(
    function: Callable[..., Any], options: Mapping[str, Any], target: str, libdevice: Any = None
) -> Callable[..., Any]:
    """The function of host tensors by Inductor's kernels, to be called where launches are caught (`described`).

    Compiled for each shape. Raises Unsupported for generated code that computes otherwise than by Triton kernels.
    """

    @functools.cache
    @unwatched
    def made(*shapes: tuple[tuple[int, ...], Any, Any]) -> Callable[..., Any]:
        try:
            with _generating(target, options, libdevice):
                return _module(function, shapes)
        except RuntimeError as error:  # which NotImplementedError is
            if not isinstance(error, NotImplementedError) and "NVIDIA driver" not in str(error):
                raise
            told = str(error).partition("\n")[0].partition(". ")[0]  # then follow its guesses
            raise Unsupported(f"Inductor asks the GPU itself while it generates code: {told}") from error

    return lambda *tensors: made(*((tuple(t.shape), t.stride(), t.dtype) for t in tensors))(*tensors)


def _module(function: Callable[..., Any], shapes: Sequence[tuple[tuple[int, ...], Any, Any]]) -> Callable[..., Any]:
    """The generated wrapper, changed to use the host's memory; its launches are unchanged."""
    import torch
    from torch._inductor.async_compile import AsyncCompile

    text = _generated(function, shapes)
    kinds = {kind for kind in COMPILED.findall(text) if kind != "wait"}
    if kinds != {"triton"}:
        others = ", ".join(sorted(kinds - {"triton"}))
        raise Unsupported(f"Inductor compiles {others} beside Triton" if kinds else NO_KERNEL)
    space: dict[str, Any] = {"__name__": "generated"}

    def kernel(self: Any, name: str, source: str, **_: Any) -> Any:
        launcher = _compiled(name, source).make_launcher()
        return SimpleNamespace(run=lambda *given, stream: launcher(*given, stream=stream))

    stream = mock.patch("torch._C._cuda_getCurrentRawStream", create=True, return_value=0)
    with mock.patch.object(AsyncCompile, "triton", kernel), stream:
        exec(text, space)
    space["empty_strided_cuda"] = lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype)

    def run(*tensors: Any) -> Any:
        with mock.patch("torch.cuda._DeviceGuard", contextlib.nullcontext), mock.patch("torch.cuda.set_device"):
            (y,) = space["call"](list(tensors))
        return y

    return run


def _compiled(name: str, source: str) -> Any:
    """A kernel of generated code under its first configuration, as torch compiles it."""
    from torch._inductor.codecache import PyCodeCache

    tuner = getattr(PyCodeCache.load(source), name)
    return tuner._precompile_config(tuner.configs[0])


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


@contextmanager
def _generating(target: str, options: Mapping[str, Any], libdevice: Any) -> Iterator[None]:
    """A context in which Inductor generates code for the target. libdevice: the file in the CUDA toolkit, which torch
    takes under LIBDEVICE's options, and Triton's where there is none. Raises Unsupported for other vendors' GPUs."""
    vendor, arch, _ = TARGETS[target]
    if vendor != "cuda":
        raise Unsupported("Inductor generates code for AMD GPUs only where torch is built for ROCm")
    from torch._inductor.fx_passes import joint_graph, post_grad
    from triton import knobs

    joint_graph.lazy_init(None)  # patterns are made by tracing on a device that is there
    post_grad.lazy_init()
    with _cuda(target, int(arch)), knobs.nvidia.scope():
        from torch._inductor import config

        if libdevice and any(options.get(name) for name in LIBDEVICE):
            knobs.nvidia.libdevice_path = str(libdevice)

        static = {name: False for name in ("use_static_triton_launcher", "use_static_cuda_launcher")
                  if hasattr(config, name)}  # fmt: skip
        with config.patch({**options, **static}):
            yield


def _generated(function: Callable[..., Any], shapes: Sequence[tuple[tuple[int, ...], Any, Any]]) -> str:
    """Inductor's Python code for tensors of these shapes, strides and dtypes."""
    import torch
    from torch._inductor.compile_fx import _recursive_joint_graph_passes, _recursive_post_grad_passes
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode() as mode:
        inputs = [torch.empty_strided(shape, stride, dtype=dtype, device="cuda") for shape, stride, dtype in shapes]

        def outputs(*tensors: Any) -> tuple[Any, ...]:
            return (function(*tensors),)

        module = make_fx(torch.func.functionalize(outputs), decomposition_table=select_decomp_table())(*inputs)
        with V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
            module = _recursive_joint_graph_passes(module)
            _recursive_post_grad_passes(module, is_inference=True)
            graph = GraphLowering(module, example_inputs=inputs)
            with V.set_graph_handler(graph):
                graph.run(*inputs)
                return str(graph.codegen()[0].value)


@contextmanager
def _cuda(target: str, arch: int) -> Iterator[None]:
    """A context in which torch.cuda describes one GPU of the target."""
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor.runtime import triton_helpers

    major, minor = divmod(arch, 10)
    shared = SHARED[target]
    about = SimpleNamespace(
        name=target, major=major, minor=minor, multi_processor_count=132, total_memory=1 << 37, warp_size=32,
        max_threads_per_multi_processor=2048, max_threads_per_block=1024, regs_per_multiprocessor=65536,
        shared_memory_per_block=49152, shared_memory_per_block_optin=shared, shared_memory_per_multiprocessor=shared,
        L2_cache_size=1 << 26, gcnArchName="",
    )  # fmt: skip
    answers: dict[Any, Mapping[str, Any]] = {
        "torch.cuda": {
            "get_device_properties": lambda *given: about, "get_device_capability": lambda *given: (major, minor),
            "current_device": lambda: 0, "device_count": lambda: 1, "is_available": lambda: True,
        },
        "torch.version": {"cuda": "13.0"},
    }  # fmt: skip
    with ExitStack() as patched:
        for place, values in answers.items():
            for name, value in values.items():
                patched.enter_context(mock.patch(f"{place}.{name}", value))
        for holder in (CudaInterface, CudaInterface.Worker):
            for name, value in (("get_device_properties", about), ("current_device", 0)):
                answer = staticmethod(lambda *given, value=value: value)
                patched.enter_context(mock.patch.object(holder, name, answer))
        patched.enter_context(mock.patch.object(triton_helpers, "set_driver_to_gpu"))
        _forget()  # what torch has found out of this machine, and in the end of the described one
        patched.callback(_forget)
        yield


def _forget() -> None:
    """Make torch query Triton again: it caches the answers for the process."""
    from torch.utils import _triton

    for known in vars(_triton).values():
        if hasattr(known, "cache_clear"):
            known.cache_clear()
