"""Inductor's Triton kernels for an NVIDIA GPU that is only described: generated, and compiled with Inductor's options.

Inductor generates code for tensors that exist in name alone, but asks torch.cuda for the properties of the GPU; here it
is told those of the description. Read in torch 2.13 (_inductor/graph.py, runtime/triton_heuristics.py). What the
kernels give is not executed: `--keep-code` keeps launches where there is a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from verify.virtual.compile import SHARED, TARGETS, Launch, Launcher, Unsupported, described

#: A kernel in generated code: its name and its source.
KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''(.*?)'''", re.S)


def launches(
    function: Callable[..., Any], shapes: Sequence[tuple[tuple[int, ...], Any]], options: Mapping[str, Any],
    target: str, limit: float = 0.0,
) -> list[Launch]:  # fmt: skip
    """The kernels of a function of tensors (shape, dtype), each compiled under its first configuration; without grid
    and arguments. limit: as in `described`. Raises Unsupported for other vendors' GPUs, and where no kernel comes."""
    vendor, arch, _ = TARGETS[target]
    if vendor != "cuda":
        raise Unsupported("Inductor generates code for AMD GPUs only where torch is built for ROCm")
    found = []
    with _cuda(target, int(arch)), described(target, lambda launch: None, limit):
        from torch._inductor import config
        from torch._inductor.codecache import PyCodeCache

        static = {name: False for name in ("use_static_triton_launcher", "use_static_cuda_launcher")
                  if hasattr(config, name)}  # fmt: skip
        with config.patch({**options, **static}):
            for name, source in KERNEL.findall(_generated(function, shapes)):
                tuner = getattr(PyCodeCache.load(source), name)
                kernel = tuner._precompile_config(tuner.configs[0]).kernel
                files = Launcher(kernel.src, kernel.metadata).files
                found.append(Launch(kernel.metadata.name, target, (1, 1, 1), (), kernel.metadata, files))
    if not found:
        raise Unsupported("Inductor generates no Triton kernel: it calls aten, so this would count eager")
    return found


def _generated(function: Callable[..., Any], shapes: Sequence[tuple[tuple[int, ...], Any]]) -> str:
    import torch
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode() as mode:
        inputs = [torch.empty(shape, dtype=dtype, device="cuda") for shape, dtype in shapes]

        def outputs(*tensors: Any) -> tuple[Any, ...]:
            return (function(*tensors),)

        module = make_fx(outputs, decomposition_table=select_decomp_table())(*inputs)
        with V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
            graph = GraphLowering(module, example_inputs=inputs)
            with V.set_graph_handler(graph):
                graph.run(*inputs)
                return str(graph.codegen()[0].value)


@contextmanager
def _cuda(target: str, arch: int) -> Iterator[None]:
    """Inside, torch.cuda describes one GPU of the target."""
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
    """Let torch ask anew what Triton has here, which it keeps for a process."""
    from torch.utils import _triton

    for known in vars(_triton).values():
        if hasattr(known, "cache_clear"):
            known.cache_clear()
