"""The process in which a user's lowering runs. It holds the file's functions and what one launch needs; truth, eager's
outputs and the judge stay with the parent.

It is asked by pickled messages and answers in JSON, of which the parent believes nothing but shapes that it has checked
and bytes that it judges. Inputs lie in files that both have mapped, and outputs are copied to others: the next launch
waits in the channel while the last one runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import importlib
import inspect
import json
import mmap
import os
import pickle
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from operator import is_
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from verify import backends
from verify.facts import kernel
from verify.facts.kernel import UsageError
from verify.families.composite import Problem
from verify.lower import switches
from verify.lower.lowering import Breach, Lowering, NotLowered, Target, describe
from verify.lower.user import user_composite, user_function, user_lowering, writing
from verify.processes import standby
from verify.virtual.dispatch import Watching
from verify.workers import GUARD, laid_out
from verify.workers.behaviour import digest
from verify.workers.launch import octets, place_of, shared
from verify.workers.shared import Shared

T = TypeVar("T")

#: Modules in whose functions the main thread is while something is compiled.
COMPILING = ("torch._dynamo", "torch._inductor", "torch.utils.cpp_extension", "triton.compiler", "triton.backends")
SEED, THREADING = "the seed of random numbers", "the number of threads"
LATE = 0.25  # seconds after a launch in which it may still write
BLOCKS = 8  # sizes of blocks that are reported
USER = "ulproof_user_"  # how the modules of users' files begin
WORK = 200_000_000  # cycles of work before a launch on a stream of its own, about 0.1 s
THREADS = 7  # of a launch that has other threads than a run's
#: Of a launch: another default dtype, as while large models are loaded, and as in programs that compute in float64.
DEFAULTS: Mapping[str, torch.dtype] = {"default": torch.bfloat16, "default_64": torch.float64}
TURNS = 16  # launches more before a result is returned, while an earlier one is kept
#: Manners of a launch after one in which the same tensors held other numbers.
CHANGED = ("changed", "inside", "grad_parameter")
#: How inputs require grad: as they are given; as what was computed; as parameters, which their owner changes in place.
DIFFERENTIABLE: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "grad_computed": lambda t: torch.ops.aten.alias(t.requires_grad_()),
    "grad_parameter": torch.nn.Parameter,
}
#: Bytes of guard on both sides of what a launch allocates: more than a block of a kernel that forgets its mask.
OUTER = 1 << 16
#: The next number of torch's random numbers on the host, Python's and numpy's, whatever the names stand for later.
RANDOM: Sequence[Callable[[], Any]] = (
    functools.partial(torch.rand, (), dtype=torch.float64, device="cpu"), random.random, np.random.random_sample
)  # fmt: skip
#: Whose names a user's file may replace, beside those of the device's module.
OWNERS = (torch, torch.Tensor, torch.nn.functional, ctypes, mmap, time, json, os)


#: Whether this process is there for a user's function.
serving = False


def main(channel: int, *files: int) -> None:
    """Serve until the parent closes the channel. channel, files: descriptors; of files those of inputs and outputs, for
    each place of a launch."""
    global serving
    serving = True
    Server(Connection(channel), files).serve()


@dataclass(frozen=True)
class Waiting:
    """What a launch was given and returned, each with a copy: it may be written to until `until`, by time.monotonic."""

    until: float
    backend: backends.Backend
    given: tuple[torch.Tensor, torch.Tensor]
    returned: list[tuple[torch.Tensor, torch.Tensor]]


class Server:
    def __init__(self, connection: Connection, files: Sequence[int]) -> None:
        self.connection = connection
        self.shared = [Shared(file) for file in files]
        self.lock = threading.Lock()
        self.busy = threading.Event()
        self.lowerings: dict[str, Lowering] = {}
        self.calls: dict[tuple[str, str], Callable[..., Any]] = {}
        self.last: dict[str, torch.Tensor] = {}
        self.older: dict[str, torch.Tensor] = {}  # what the launch before that returned
        self.waiting: Waiting | None = None
        self.wrote = ""
        self.modes: dict[str, Any] = {}  # after the last launch, unless it failed
        self.memory = 0  # see `load`
        self.drawn: set[tuple[int, float]] = set()  # random numbers so far, each with the number of its source
        self.blocks: defaultdict[str, set[int]] = defaultdict(set)  # by kernel
        self.kernel = ""  # that is launched
        self.names = Names()
        standby.end_with_parent(lambda: os._exit(1))
        threading.Thread(target=self.watch, args=(threading.main_thread().ident,), daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                message = pickle.loads(self.connection.recv_bytes())
            except (EOFError, OSError):
                return
            self.busy.set()
            number = message.pop("number", None)
            try:
                self.names.restore()
                answer = getattr(self, message.pop("do"))(**message)
            finally:
                self.busy.clear()
            try:
                self.tell(answer if number is None else {**answer, "number": number})
            except OSError:  # the parent has ended
                return

    def tell(self, answer: Mapping[str, Any]) -> None:
        with self.lock:
            self.connection.send_bytes(json.dumps(answer).encode())

    def watch(self, main_thread: int) -> None:
        """Tell the parent while something is compiled, for which a launch has time of its own."""
        while True:
            time.sleep(standby.BEAT)
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

    def load(
        self, text: str, composite: bool, threads: int, memory: int, fixed: Mapping[str, float] | None
    ) -> dict[str, Any]:  # fmt: skip
        """Import the file. Answers with what is wrong with it, or with what its function does, see
        `verify.workers.behaviour`. threads: of a launch; memory: bytes of address space beside what torch has by now,
        0 for as many as there are. fixed: see `user_composite`."""
        torch.set_num_threads(threads)
        self.draw()
        self.modes = modes()  # before the file is imported
        self.memory = memory
        if memory:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (memory + mapped(), resource.getrlimit(resource.RLIMIT_AS)[1]))
        known = set(sys.modules)
        try:
            with self.names.replaced():
                label, function = user_function(text)
                made = user_composite(label, function=function, fixed=fixed) if composite else None
                self.lowerings[text] = made or user_lowering(label, function=function)
                behaviour = behaviour_of(function, text.rpartition(":")[0])
        except UsageError as error:
            return {"usage": str(error)}
        if (folder := str(Path(text.rpartition(":")[0]).resolve().parent)) not in sys.path:
            sys.path.insert(0, folder)  # for what the function imports itself when it is called
        self.modes[SEED] = torch.initial_seed()  # scripts seed them
        self.draw()
        for module in [sys.modules[name] for name in sys.modules.keys() - known if name.startswith(USER)]:
            for kernel_ in {id(one): one for one in map(innermost, vars(module).values()) if one is not None}.values():
                kernel_.add_pre_run_hook(self.seen(kernel_))
        if dynamo := sys.modules.get("torch._dynamo"):
            # calls of many shapes, each compiled: beyond its limit a compiled function would silently run eagerly
            dynamo.config.recompile_limit = dynamo.config.accumulated_recompile_limit = 1024
        return {"behaviour": behaviour}

    def seen(self, function: Any) -> Callable[..., None]:
        """A hook of a Triton kernel that keeps its blocks: the values of parameters named so."""
        defaults = {name: one.default for name, one in inspect.signature(function.fn).parameters.items()}

        def hook(*arguments: Any, **named: Any) -> None:
            bound = defaults | dict(zip(function.arg_names, arguments, strict=False)) | named
            found = {v for k, v in bound.items() if "BLOCK" in k.upper() and type(v) is int and v > 1}
            self.blocks[self.kernel] |= found

        return hook

    def launch(
        self, text: str, target: Sequence[Any], place: int, size: int, storages: Sequence[Sequence[int]],
        tensors: Sequence[Sequence[Any]], problem: Mapping[str, Any] | None, poison: Sequence[int], again: bool,
        how: str, most: int,
    ) -> dict[str, Any]:  # fmt: skip
        """Call the lowering once. place: of its files; size: bytes of that of inputs; storages: offset and bytes of
        each in it; tensors: name, storage, dtype, shape, strides, offset. problem: of a composite kernel. poison: bytes
        of fresh memory to fill, and with what. again: with the callable that was built for the last launch. how: see
        `verify.workers.Launch.manner`. most: bytes that it may return. Answers with what is returned, or with why
        nothing is."""
        name, scalars, spelling, dtype, backend_name = target
        backend, self.kernel = loaded(backend_name), name
        before, self.modes = self.modes or modes(), {}
        guarded, told = Guarded(), ""
        try:
            key = text, json.dumps(target)
            call = self.calls.get(key) if again else None
            if call is None:
                facts = kernel.load(name)
                on = Target(facts, scalars, spelling, dtype, backend)
                with self.names.replaced():
                    call = self.calls[key] = self.lowerings[text].build(on)
            with torch.inference_mode(how == "inference"):
                file = self.shared[2 * place].part(0, size)
                try:  # with its guards; 'late': where the next inputs are not written
                    inputs = file.to(backend.device, copy=how == "late")
                except RuntimeError as error:
                    if not backends.out_of_memory(error):
                        raise
                    return {"kind": "room", "told": describe(error)}
                whole = [alone(inputs[start : start + count]) for start, count in storages]
                views: dict[tuple[Any, ...], torch.Tensor] = {}  # the same twice is one tensor
                given = {}
                for label, storage, kind, shape, strides, offset in tensors:
                    view = whole[storage].view(getattr(torch, kind)).as_strided(shape, strides, offset)
                    given[label] = views.setdefault((storage, kind, shape, strides, offset), view)
            those = list(given) if problem is None else problem["inputs"]
            those = {
                "grad": those,
                "no_grad": those,
                "grad_first": those[:1],
                "grad_others": those[1:],
                "grad_computed": those,
                "grad_parameter": those,
            }.get(how, [])
            for k in those:
                if differentiable(given[k]):
                    given[k] = DIFFERENTIABLE.get(how, torch.Tensor.requires_grad_)(given[k])
            wanting, places = [t.requires_grad for t in given.values()], [place_of(t) for t in given.values()]
            arguments = list(given.values()) if problem is None else [problem_of(given, **problem)]
            poison = (poison[0], 0 if how == "zeros" else poison[1])
            for t in [*self.last.values()]:  # what is returned again must have been written again
                self.spoil(t, poison[1])

            def run() -> Any:
                # none that is off, which would put back what is left behind, such as automatic casting
                inference = torch.inference_mode() if how == "inference" else contextlib.nullcontext()
                with self.names.replaced(), inference, torch.set_grad_enabled(how.startswith("grad")):
                    return call(*arguments)

            with backend.poisoned(*poison):
                began = time.perf_counter()
                if how == "thread":
                    with ThreadPoolExecutor(1) as pool:
                        returned = pool.submit(run).result()
                elif how == "stream":
                    returned = streamed(run, inputs, backend, poison)
                elif how == "outputs":
                    with roomier(), guarded:
                        returned = run()
                elif how == "out":
                    with writing():
                        returned = run()
                elif how == "threads":
                    others = THREADS if torch.get_num_threads() < THREADS else 1
                    with otherwise(torch.get_num_threads, torch.set_num_threads, others):
                        returned = run()
                elif how in DEFAULTS:
                    with otherwise(torch.get_default_dtype, torch.set_default_dtype, DEFAULTS[how]):
                        returned = run()
                else:
                    if how in CHANGED:
                        real = inputs.clone()
                        turn(whole, tensors, inside=how == "inside")
                        earlier = self.spoiled(run(), whole, poison[1])
                        inputs.copy_(real)
                        for t in given.values():  # as torch has it of what is written in place
                            torch.autograd.graph.increment_version(t)
                    if how == "kept":
                        earlier = self.spoiled(detached(run()), whole, poison[1])
                        for _ in range(TURNS):  # where some buffers are used by turns
                            run()
                    returned = run()
                if how != "stream":
                    backend.synchronize()
            seconds = time.perf_counter() - began
            returned = named(returned)
            own = {t.untyped_storage().data_ptr() for t in whole}
            shapes = [t.shape for t in given.values()]
            due = np.broadcast_shapes(*shapes) if problem is None else None
            # the parent tells of another shape
            laid = {str(k): t for k, t in returned.items() if outline(t).get("layout") == "strided"}
            results = {k: t for k, t in laid.items() if t.numel() and (due is None or t.shape == due)}
            if any(t.untyped_storage().data_ptr() in own for t in results.values()):
                told = "returned memory of its input; expected memory of its own"
            else:
                told = shared(results)
            if how == "outputs" and not guarded.whole():
                told = "wrote into memory beside its output"
            if any(self.untouched(t, poison[1]) for t in results.values()):
                told = "returned memory of an earlier call's result as the caller had left it; expected its own"
            if how in ("kept", *CHANGED) and not all(torch.equal(octets(t), was) for t, was in earlier):
                told = "wrote to what an earlier call had returned"
            if any(map(self.older_has, results.values())):
                told = "wrote to what an earlier call had returned"
            if [t.requires_grad for t in given.values()] != wanting:
                told = "changed whether its input requires grad"
            for (label, t), was in zip(given.items(), places, strict=True):
                if place_of(t) != was:
                    told = f"modified its input {label} in place: it lies elsewhere, or in another shape"
            if how == "late":
                self.settled()
                kept = [(t, t.clone()) for t in dense(returned)]
                self.waiting = Waiting(time.monotonic() + LATE, backend, (inputs, inputs.clone()), kept)
        except NotLowered as why:
            return {"kind": "not-lowered", "told": str(why)}
        except Breach as why:
            return {"kind": "contract", "told": str(why)}
        except UsageError as error:
            return {"kind": "usage", "told": str(error)}
        except BaseException as error:
            lost = spoiled(backend)
            left = {} if lost else self.left(before, modes())
            told = self.within(describe(error))
            return {"kind": "raised", "told": told, "spoiled": lost, "changed": left}
        if told:
            return {"kind": "contract", "told": told}
        if inputs.data_ptr() != file.data_ptr():  # the parent looks at what became of its inputs
            with torch.inference_mode(inputs.is_inference()):
                file.copy_(inputs)
        self.modes = modes()
        outlines = {str(key): outline(value) for key, value in returned.items()}
        expected = ("Tensor", torch.device(backend.device).type, "strided")
        if all(tuple(one.get(k) for k in ("type", "device", "layout")) == expected for one in outlines.values()):
            offsets, size = laid_out({str(key): t.numel() * t.element_size() for key, t in returned.items()})
            if size <= most:  # else the parent says so
                self.hand_over(returned, self.shared[2 * place + 1].part(0, size), offsets)
        return {
            "outputs": outlines,
            "seconds": seconds,
            "modelled": virtual.modelled() if (virtual := backends.virtual(backend)) else {},
            "changed": self.left(before, self.modes),
            "blocks": sorted(self.blocks[name])[:BLOCKS],
        }

    def within(self, told: str) -> str:
        """What is told of an error, with the limit of memory where it may come of that, in the system's words, torch's
        or Python's."""
        lacking = any(text in told for text in (os.strerror(errno.ENOMEM), "can't allocate memory", "MemoryError"))
        if not (lacking and self.memory):
            return told
        return f"{told}; its process may take {self.memory / (1 << 30):.3g} GiB (--memory)"

    def draw(self) -> bool:
        """Draw a random number of each source; whether one is known, so that they were begun anew since. Double
        precision has so many that none comes twice by chance."""
        numbers = set(enumerate(float(source()) for source in RANDOM))
        known = not numbers.isdisjoint(self.drawn)
        self.drawn |= numbers
        return known

    def left(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[str]]:
        """The modes that a launch has changed, as text. Random numbers may be drawn, and not begun anew."""
        changed = {key: [str(before[key]), str(value)] for key, value in now.items() if value != before[key]}
        if self.draw():
            changed["random numbers"] = ["going on", "begun anew"]
        return changed

    def hand_over(self, returned: Mapping[Any, torch.Tensor], file: torch.Tensor, offsets: Mapping[str, int]) -> None:
        """Copy outputs, contiguous, to these offsets of a file."""
        self.older, self.last = self.last, {}
        for key, t in returned.items():
            dense = octets(t)
            if len(dense):
                file[offsets[str(key)] :][: len(dense)].copy_(dense)
            if not self.waits(t):
                self.last[str(key)] = t

    def settle(self) -> dict[str, Any]:
        """Answers with what is wrong with what was returned in the manner 'late', once it has been waited for that."""
        backend = self.waiting.backend if self.waiting else None
        try:
            self.settled()
        except BaseException as error:
            return {"kind": "raised", "told": describe(error), "spoiled": backend is not None and spoiled(backend)}
        told, self.wrote = self.wrote, ""
        return {"kind": "contract" if told else "", "told": told}

    def settled(self) -> None:
        """Wait until what was returned can no longer be written to, and keep whether it was."""
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            return
        time.sleep(max(waiting.until - time.monotonic(), 0.0))
        waiting.backend.synchronize()
        if not all(torch.equal(octets(t), octets(was)) for t, was in waiting.returned):
            self.wrote = "wrote to its output after it had returned"
        if not torch.equal(*waiting.given):
            self.wrote = "wrote to its input after it had returned"
        self.last |= {f"late {k}": t for k, (t, _) in enumerate(waiting.returned)}

    def waits(self, t: torch.Tensor) -> bool:
        """Whether it lies in memory of which it is waited whether that is written to."""
        if self.waiting is None or outline(t).get("layout") != "strided":
            return False
        own = {one.untyped_storage().data_ptr() for one, _ in self.waiting.returned}
        return t.untyped_storage().data_ptr() in own

    def holds(self, t: torch.Tensor) -> bool:
        """Whether it lies in a file that the parent has mapped too."""
        return any(one.holds(t.untyped_storage().data_ptr()) for one in self.shared)

    def spoiled(
        self, returned: Any, inputs: Sequence[torch.Tensor], pattern: int
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Results that are not the inputs' memory, filled, with the bytes that they have then."""
        own = {t.untyped_storage().data_ptr() for t in inputs}
        results = [t for t in dense(named(returned)) if t.numel() and t.untyped_storage().data_ptr() not in own]
        for t in results:
            self.spoil(t, pattern)
        return [(t, octets(t).clone()) for t in results]

    def untouched(self, t: torch.Tensor, pattern: int) -> bool:
        """Whether it is in the last results' memory and has the bytes that `spoil` has put there, as a view of a table
        has that was returned as a whole before."""
        known = {one.untyped_storage().data_ptr() for one in self.last.values()}
        return t.untyped_storage().data_ptr() in known and bool((octets(t) == pattern).all())

    def older_has(self, t: torch.Tensor) -> bool:
        """Whether it is in the memory of results that are not the last ones, as where two buffers are used by turns."""
        known = {one.untyped_storage().data_ptr() for one in self.older.values() if one.numel()}
        return t.untyped_storage().data_ptr() in known and not self.holds(t)

    def spoil(self, t: torch.Tensor, pattern: int) -> None:
        held = t.untyped_storage()
        if self.holds(t):
            return
        if self.waits(t):  # it is returned again
            self.settled()
        if t.device.type == "cpu":
            ctypes.memset(held.data_ptr(), pattern, held.nbytes())
        else:
            with torch.inference_mode(t.is_inference()):
                octets_of(t).fill_(pattern)


class Names:
    """What the names of OWNERS stand for: for the file's own code what it has put there, else what torch has."""

    def __init__(self) -> None:
        owners = *OWNERS, torch.get_device_module()  # not where it is imported: it looks for a device
        self.originals = [(owner, {k: v for k, v in vars(owner).items() if callable(v)}) for owner in owners]
        self.replacements: list[tuple[Any, str, Any]] = []
        self.clean = [self.held(owner) for owner in owners]

    @staticmethod
    def held(owner: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return tuple(vars(owner)), tuple(vars(owner).values())

    def restore(self) -> None:
        self.replacements = []
        for place, (owner, originals) in enumerate(self.originals):
            now = vars(owner)
            known, values = self.clean[place]
            # thousands of names, twice a launch: values by identity, since what is equal a file's own class may say
            if tuple(now) == known and all(map(is_, now.values(), values)):
                continue
            # what is new in a class may hide a method of its base
            names = originals.keys() | now.keys() if isinstance(owner, type) else originals.keys()
            changed = [k for k in names if now.get(k) is not originals.get(k) and callable(now.get(k))]
            self.replacements += [(owner, name, now[name]) for name in changed]
            for name in changed:
                if name in originals:
                    setattr(owner, name, originals[name])
                else:
                    delattr(owner, name)
            self.clean[place] = self.held(owner)

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        for replacement in self.replacements:
            setattr(*replacement)
        try:
            yield
        finally:
            self.restore()


def mapped() -> int:
    """Bytes of address space that the process has; 0 where the system does not say."""
    sizes = Path("/proc/self/statm")
    return int(sizes.read_text().split()[0]) * mmap.PAGESIZE if sizes.exists() else 0


@contextlib.contextmanager
def roomier() -> Iterator[None]:
    """Inside, memory for a second copy of what is allocated; what torch imports for that stays beside the limit."""
    import resource

    before, (soft, hard) = mapped(), resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        yield
        return
    most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_AS, (min(2 * soft + (1 << 30), most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (min(soft + max(mapped() - before, 0), most), hard))


class Guarded(Watching):  # type: ignore[no-untyped-call]
    """Inside, what torch allocates lies between bands of memory that nothing else writes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held: list[tuple[torch.Tensor, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.layout == torch.strided]
        known = {t.untyped_storage().data_ptr() for t in given}

        def moved(t: torch.Tensor) -> torch.Tensor:
            if t.layout != torch.strided or not t.numel() or t.untyped_storage().data_ptr() in known:
                return t
            size = t.untyped_storage().nbytes()
            whole = torch.full((size + 2 * OUTER,), GUARD, dtype=torch.uint8, device=t.device)
            self.held.append((whole, size))
            own = alone(whole[OUTER : OUTER + size])
            own.copy_(octets_of(t))
            again = torch.empty(0, dtype=t.dtype, device=t.device)
            return again.set_(own.untyped_storage(), t.storage_offset(), t.shape, t.stride())

        return tree_map_only(torch.Tensor, moved, func(*args, **(kwargs or {})))

    def whole(self) -> bool:
        ends = ((t[:OUTER], t[OUTER + size :]) for t, size in self.held)
        return all(bool((end == GUARD).all()) for both in ends for end in both)


def streamed(run: Callable[[], Any], inputs: torch.Tensor, backend: backends.Backend, poison: Sequence[int]) -> Any:
    """What the lowering returns on a stream of the caller's, read there, when its inputs are written there after long
    work. It has run before, so that nothing is compiled, and what it allocated is spoiled."""
    device, real = torch.get_device_module(inputs.device), inputs.clone()
    warm = [octets_of(t) for t in named(run()).values() if isinstance(t, torch.Tensor)]
    backend.synchronize()
    while warm:
        warm.pop().fill_(poison[1])
    inputs.zero_()
    stream = device.Stream()
    with device.stream(stream), backend.poisoned(*poison):
        pass
    backend.synchronize()
    with device.stream(stream):
        device._sleep(WORK)
        inputs.copy_(real)
        read = {key: t.clone() if isinstance(t, torch.Tensor) else t for key, t in named(run()).items()}
    stream.synchronize()  # this one alone: what runs elsewhere is not waited for
    return read


def turn(whole: Sequence[torch.Tensor], tensors: Sequence[Sequence[Any]], *, inside: bool) -> None:
    """Put other numbers into the memory of inputs: the same ones, the last first. inside: five in the middle alone."""
    kinds = {storage: getattr(torch, kind) for _, storage, kind, *_ in tensors}
    for number, kind in kinds.items():
        if len(whole[number]):
            part = octets_of(whole[number]).view(-1, kind.itemsize)
            part = part[max(len(part) // 2 - 2, 0) :][:5] if inside else part
            part.copy_(part.flip(0))


def detached(returned: Any) -> Any:
    """Results as others hold them: their memory, and not the objects that were returned."""
    return {key: t.detach() if isinstance(t, torch.Tensor) else t for key, t in named(returned).items()}


@contextlib.contextmanager
def otherwise(asked: Callable[[], T], put: Callable[[T], None], value: T) -> Iterator[None]:
    """Inside, one of torch's modes has another value."""
    before = asked()
    put(value)
    try:
        yield
    finally:
        put(before)


def problem_of(
    given: Mapping[str, torch.Tensor], inputs: Sequence[str], keywords: Mapping[str, Any],
    parameters: Mapping[str, Any], scalars: Mapping[str, float], dtype: str,
) -> Problem:  # fmt: skip
    """inputs: which of the tensors given are the problem's; the others are passed by keyword, as `keywords` are."""
    tables = {name: t for name, t in given.items() if name not in inputs}
    tensors = {name: given[name] for name in inputs}
    return Problem(tensors, parameters, scalars, dtype, {"keywords": {**keywords, **tables}})


loaded = functools.cache(backends.load)  # it looks for files


def innermost(value: Any) -> Any:
    """The Triton kernel under its decorators; None for what is none."""
    while type(value).__module__.startswith("triton."):
        if hasattr(type(value), "add_pre_run_hook"):
            return value
        value = getattr(value, "fn", None)
    return None


def named(returned: Any) -> dict[str, Any]:
    return dict(returned) if isinstance(returned, Mapping) else {"": returned}


def dense(returned: Mapping[str, Any]) -> list[torch.Tensor]:
    """The results that are tensors with strides, which lie in some memory."""
    return [t for t in returned.values() if outline(t).get("layout") == "strided"]


def differentiable(t: torch.Tensor) -> bool:
    return t.is_floating_point() and t.dtype.itemsize > 1


def alone(part: torch.Tensor) -> torch.Tensor:
    """The same memory as a storage of its own, which tensors have that are no slices."""
    return torch.from_dlpack(part) if len(part) else part.new_empty(0)  # type: ignore[attr-defined]


def octets_of(t: torch.Tensor) -> torch.Tensor:
    """All of the memory that it lies in."""
    return torch.empty(0, dtype=torch.uint8, device=t.device).set_(t.untyped_storage())


def spoiled(backend: backends.Backend) -> bool:
    """Whether the device's context answers no more, as after an illegal access."""
    try:
        backend.synchronize()
    except Exception:
        return True
    return False


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


def behaviour_of(function: Callable[..., Any], file: str) -> str:
    """What a function of a file does in this process, in a form that two can compare: its `digest`, and torch's global
    modes but for those that each process has of its own."""
    shared_by_all = {name: mode for name, mode in modes().items() if name not in (SEED, THREADING)}
    return f"{digest(function, file)} {shared_by_all}"


def modes() -> dict[str, Any]:
    """The global modes of torch that change what others compute."""
    cuda: Any = torch.backends.cuda
    cudnn, deterministic = torch.backends.cudnn, importlib.import_module("torch.utils.deterministic")
    one, little = 1.0, 2.0**-60
    accelerator = torch.accelerator.current_accelerator()
    kinds = ["cpu", *([accelerator.type] if accelerator else [])]
    attention = (cuda.flash_sdp_enabled, cuda.mem_efficient_sdp_enabled, cuda.math_sdp_enabled, cuda.cudnn_sdp_enabled)
    return {
        "the default dtype": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        THREADING: torch.get_num_threads(),
        "flushing of subnormal numbers": bool(torch.tensor(2.0**-149, device="cpu") * 1 == 0),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the precision of float32 products": ", ".join(f"{name} {value}" for name, value in switches.read().items()),
        "TF32 in cuDNN": cudnn.allow_tf32,
        "reduced precision in float16 products": cuda.matmul.allow_fp16_reduced_precision_reduction,
        "reduced precision in bfloat16 products": cuda.matmul.allow_bf16_reduced_precision_reduction,
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "rounding to the nearest": all(sign * one + d == sign * one for sign in (1, -1) for d in (little, -little)),
        "automatic casting": [kind for kind in kinds if torch.is_autocast_enabled(kind)],
        "the dtype of automatic casting": {kind: str(torch.get_autocast_dtype(kind)) for kind in kinds},
        "the filling of fresh memory": deterministic.fill_uninitialized_memory,
        "the threads of autograd": getattr(torch._C, "_is_multithreading_enabled", bool)(),
        "the kernels of scaled_dot_product_attention": [f.__name__ for f in attention if f()],
        "cuDNN": (cudnn.enabled, cudnn.benchmark),
        "oneDNN": torch.backends.mkldnn.enabled,
        SEED: torch.initial_seed(),
        "the detection of anomalies": torch.is_anomaly_enabled(),
        "deterministic algorithms of cuDNN": cudnn.deterministic,
        "numpy's treatment of errors": ", ".join(f"{name} {value}" for name, value in np.geterr().items()),
    }
