"""The process in which a user's lowering runs. It holds the file's functions and what one launch needs; truth, eager's
outputs and the judge stay with the parent.

It is asked by pickled messages and answers in JSON, of which the parent believes nothing but shapes that it has checked
and bytes that it judges. Inputs lie in one file that both have mapped, outputs are copied to another.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from verify import backends, kernel
from verify.composite import Problem
from verify.kernel import UsageError
from verify.lowerings import Lowering, NotLowered, Target, describe, user_composite, user_lowering

#: Modules in whose functions the main thread is while something is compiled.
COMPILING = ("torch._dynamo", "torch._inductor", "torch.utils.cpp_extension", "triton.compiler", "triton.backends")
BEAT = 0.5  # seconds between two looks at what the main thread does


def main(channel: int, inputs: int, outputs: int, memory: int) -> None:
    """Serve until the parent closes the channel. channel, inputs, outputs: file descriptors; memory: bytes of address
    space beside what torch has by now, 0 for as many as there are."""
    if memory:
        import resource

        sizes = Path("/proc/self/statm")
        if sizes.exists():
            memory += int(sizes.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    Server(Connection(channel), inputs, outputs).serve()


class Server:
    def __init__(self, connection: Connection, inputs: int, outputs: int) -> None:
        self.connection, self.files = connection, (inputs, outputs)
        self.maps: list[mmap.mmap | None] = [None, None]
        self.lock = threading.Lock()
        self.busy = threading.Event()
        self.lowerings: dict[str, Lowering] = {}
        self.calls: dict[str, Callable[..., Any]] = {}
        self.returned: dict[str, Any] = {}
        self.last: dict[str, torch.Tensor] = {}
        # a user's file may replace what torch's names stand for
        self.pointer, self.bytes = torch.Tensor.data_ptr, ctypes.memset
        threading.Thread(target=self.watch, args=(threading.main_thread().ident,), daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                message = pickle.loads(self.connection.recv_bytes())
            except (EOFError, OSError):
                return
            self.busy.set()
            try:
                answer = getattr(self, message.pop("do"))(**message)
            finally:
                self.busy.clear()
            try:
                self.tell(answer)
            except OSError:  # the parent has ended
                return

    def tell(self, answer: Mapping[str, Any]) -> None:
        with self.lock:
            self.connection.send_bytes(json.dumps(answer).encode())

    def watch(self, main_thread: int) -> None:
        """Tell the parent while something is compiled, for which a launch has time of its own; end with the parent."""
        parent = os.getppid()
        while True:
            time.sleep(BEAT)
            if os.getppid() != parent:
                os._exit(1)
            if not self.busy.is_set():
                continue
            frame = sys._current_frames().get(main_thread)
            while frame is not None:
                if frame.f_globals.get("__name__", "").startswith(COMPILING):
                    with contextlib.suppress(OSError):
                        self.tell({"compiling": True})
                    break
                frame = frame.f_back

    # what the parent asks for

    def load(self, text: str, composite: bool, threads: int) -> dict[str, Any]:
        """Import the file. Answers with what is wrong with it. threads: of a launch."""
        torch.set_num_threads(threads)
        try:
            self.lowerings[text] = user_composite(text) if composite else user_lowering(text)
        except UsageError as error:
            return {"usage": str(error)}
        if dynamo := sys.modules.get("torch._dynamo"):
            # calls of many shapes, each compiled: beyond its limit a compiled function would silently run eagerly
            dynamo.config.recompile_limit = dynamo.config.accumulated_recompile_limit = 1024
        return {}

    def launch(
        self, text: str, target: Sequence[Any], storages: Sequence[Sequence[int]], tensors: Sequence[Sequence[Any]],
        problem: Mapping[str, Any] | None, poison: Sequence[int], again: bool, thread: bool,
    ) -> dict[str, Any]:  # fmt: skip
        """Call the lowering once. storages: offset and bytes of each in the file of inputs; tensors: name, storage,
        dtype, shape, strides, offset. problem: of a composite kernel. poison: bytes of fresh memory to fill, and with
        what. again: with the callable that was built for the last launch. thread: from another thread. Answers with
        what is returned, which `fetch` copies, or with why nothing is."""
        name, scalars, spelling, dtype, backend_name = target
        backend = backends.load(backend_name)
        before = modes()
        try:
            call = self.calls.get(text) if again else None
            if call is None:
                facts = kernel.load(name)
                call = self.calls[text] = self.lowerings[text].build(Target(facts, scalars, spelling, dtype, backend))
            whole = [self.given(0, *place).to(backend.device) for place in storages]
            given = {
                label: whole[storage].view(getattr(torch, kind)).as_strided(shape, strides, offset)
                for label, storage, kind, shape, strides, offset in tensors
            }
            arguments = list(given.values()) if problem is None else [self.problem(given, problem, name)]
            for t in self.last.values():  # what is returned again must have been written again
                self.spoil(t, poison[1])
            with backend.poisoned(*poison):
                began = time.perf_counter()
                returned = threaded(call, arguments) if thread else plainly(call, arguments)
                backend.synchronize()
            seconds = time.perf_counter() - began
        except NotLowered as why:
            return {"kind": "not-lowered", "told": str(why)}
        except UsageError as error:
            return {"kind": "usage", "told": str(error)}
        except (Exception, SystemExit) as error:
            return {"kind": "raised", "told": describe(error), "spoiled": spoiled(backend)}
        self.returned = dict(returned) if isinstance(returned, Mapping) else {"": returned}
        if backend.device != "cpu":  # the parent looks at what became of its inputs
            for place, t in zip(storages, whole, strict=True):
                self.given(0, *place).copy_(t)
        changed = {key: [str(before[key]), str(now)] for key, now in modes().items() if now != before[key]}
        return {
            "outputs": {str(key): outline(value) for key, value in self.returned.items()},
            "seconds": seconds,
            "changed": changed,
        }

    def fetch(self, offsets: Mapping[str, int]) -> dict[str, Any]:
        """Copy the outputs, contiguous, to these places of the other file."""
        self.last = {}
        for key, t in self.returned.items():
            dense = t.detach().contiguous().cpu()
            size = dense.numel() * dense.element_size()
            if size:
                place = self.pointer(self.given(1, offsets[str(key)], size))
                ctypes.memmove(place, self.pointer(dense), size)
            if isinstance(t, torch.Tensor):
                self.last[str(key)] = t
        self.returned = {}
        return {}

    def given(self, which: int, offset: int, size: int) -> torch.Tensor:
        """uint8 (size,): a part of a mapped file, mapped again where that has grown."""
        held = self.maps[which]
        if held is None or len(held) < offset + size:
            held = self.maps[which] = mmap.mmap(self.files[which], os.fstat(self.files[which]).st_size)
        if not size:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(held, dtype=torch.uint8, count=size, offset=offset)

    def problem(self, tensors: Mapping[str, torch.Tensor], problem: Mapping[str, Any], name: str) -> Problem:
        facts, extra = kernel.load(name), {}
        if isinstance(facts, kernel.Composite) and facts.keywords:  # callables, which no message carries
            extra = facts.problem(*problem["origin"]).extra
        return Problem(tensors, problem["parameters"], problem["scalars"], problem["dtype"], extra)

    def spoil(self, t: torch.Tensor, pattern: int) -> None:
        held = t.untyped_storage()
        if any(m is not None and inside(held.data_ptr(), m) for m in self.maps):
            return
        if t.device.type == "cpu":
            self.bytes(held.data_ptr(), pattern, held.nbytes())
        else:
            torch.empty(0, dtype=torch.uint8, device=t.device).set_(held).fill_(pattern)


def plainly(call: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    with torch.no_grad():
        return call(*arguments)


def threaded(call: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(plainly, call, arguments).result()


def spoiled(backend: backends.Backend) -> bool:
    """Whether the device's context answers no more, as after an illegal access."""
    try:
        backend.synchronize()
    except Exception:
        return True
    return False


def inside(address: int, held: mmap.mmap) -> bool:
    """Whether an address lies in a mapped file."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(held))
    return start <= address < start + len(held)


def outline(value: Any) -> dict[str, Any]:
    """What the parent checks of an output before it takes it."""
    if not isinstance(value, torch.Tensor):
        return {"type": type(value).__name__}
    plain = type(value) in (torch.Tensor, torch.nn.Parameter)
    return {
        "type": "Tensor" if plain else type(value).__name__,
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": value.device.type,
        "layout": str(value.layout).removeprefix("torch."),
    }


def modes() -> dict[str, Any]:
    """The global modes of torch that change what others compute."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return {
        "the default dtype": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "the number of threads": torch.get_num_threads(),
        "flushing of subnormal numbers": bool(torch.tensor(2.0**-149) * 1 == 0),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the precision of float32 products": torch.get_float32_matmul_precision(),
        "TF32 in cuDNN": cudnn.allow_tf32,
        "reduced precision in float16 products": matmul.allow_fp16_reduced_precision_reduction,
        "reduced precision in bfloat16 products": matmul.allow_bf16_reduced_precision_reduction,
        "gradients": torch.is_grad_enabled(),
    }


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
