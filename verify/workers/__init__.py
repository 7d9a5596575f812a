"""A user's lowering in a process of its own: crashes, hangs, changed modes and spoiled memory end there.

The parent never imports the file. It sends inputs through files that both map, keeps its own, compares them with what
the launch left, and takes outputs as bytes. A worker is started when the lowering is named, so that it imports torch
while the domain is drawn. This is no sandbox: what the file does to the machine it does with the user's rights.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import signal
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import torch

from verify import backends
from verify.facts.kernel import Scalars, UsageError, told_apart
from verify.families.composite import Problem
from verify.lower.lowering import Lowering, NotLowered, Target, Unsuited
from verify.lower.user import Version, user_composite, user_lowering
from verify.numbers.orders import Order
from verify.processes import standby
from verify.workers.launch import UNDERWAY, LoweringError, NoRoom, words
from verify.workers.shared import Shared, up

Tensor = torch.Tensor
TIMEOUT = 60.0  # seconds that a launch may take, beside compilation
COMPILATION = 900.0  # seconds that a launch may take with it
START = 120.0  # seconds in which a worker must have imported torch and the file
BAND = 4096  # bytes of guard on both sides of each storage
GUARD = 0xA5
MOST = 1 << 16  # elements of the largest block whose edges are tried
PROCESSES = Path("/proc")  # where Linux tells what processes have used
#: Of launches under way, each a file of inputs and one of outputs; one is for a launch beside others.
PLACES = UNDERWAY + 1
LEFT = 1.0  # seconds in which a launch may end that is of no use any more
SELDOM = 0.1  # seconds between two questions for that, which may take some milliseconds
#: What a lowering may return: so many times the bytes of its inputs, or of the largest output that is due, and more.
TIMES, BESIDE = 64, 1 << 26
TEXT = 300  # characters that are shown of what a worker says
#: What an answer to a message has.
ANSWERS: Mapping[str, tuple[set[str], ...]] = {
    "launch": (
        {"outputs", "seconds", "modelled", "changed", "blocks"},
        {"kind", "told"},
        {"kind", "told", "spoiled"},
        {"kind", "told", "spoiled", "changed"},
    ),
    "settle": ({"kind", "told"}, {"kind", "told", "spoiled"}),
}


class Worker:
    """One process. Raises LoweringError, which says how it ended, where it answers no more."""

    def __init__(
        self, text: str, composite: bool, *, timeout: float, memory: int, fixed: Scalars | None = None
    ) -> None:  # fmt: skip
        self.timeout = timeout
        self.files = [standby.shared() for _ in range(2 * PLACES)]
        self.process = standby.Process("verify.workers.process:main", self.files)
        self.connection = self.process.connection
        self.shared = [Shared(file.fileno()) for file in self.files]
        self.asked = 0  # messages so far
        self.underway = deque[tuple[int, str]]()  # those that have no answer, and what they ask for
        self.answers: dict[int, dict[str, Any]] = {}  # that nobody has taken
        self.places = list(range(PLACES))  # those of no launch that is under way
        self.loaded, self.behaviour = False, ""  # what `verify.workers.process.behaviour_of` says of the function
        self.began, self.compiling, self._spent = time.monotonic(), 0.0, 0.0
        self._asked = -math.inf  # when the system was, of what it has spent
        self.meanwhile: Callable[[], None] | None = None  # what is done before an answer is waited for
        self.end = weakref.finalize(self, _end, self.process, self.files)
        self.limits = {"composite": composite, "threads": backends.threads(), "memory": memory, "fixed": fixed}
        self._send({"do": "load", "text": text, **self.limits})

    def also(self, text: str) -> None:
        """Import another function of the file, once the first one is. Raises UsageError as `load`."""
        self.load()
        self._send({"do": "load", "text": text, **self.limits})
        self.loaded = False
        self.load()

    def load(self) -> None:
        """Wait until the file is imported. Raises UsageError for what is wrong with it."""
        if not self.loaded:
            answer = self._answer(START, "import")
            if told := answer.get("usage"):
                self.end()
                raise UsageError(_plain(told))
            self.behaviour, self.loaded = str(answer.get("behaviour")), True

    def ready(self, seconds: float) -> bool:
        """Whether the file is imported within that time. Raises as `load`."""
        if self.loaded or self.connection.poll(seconds):
            self.load()
        return self.loaded

    def begin(self, message: Mapping[str, Any]) -> int:
        """The number of what it is asked to do, after what it was asked before."""
        self.load()
        self.asked += 1
        self._send({**message, "number": self.asked})
        self.underway.append((self.asked, message["do"]))
        return self.asked

    def take(self, number: int, limit: float | None = None) -> dict[str, Any]:
        """The answer to the message of that number, once. Its process ends where that takes more seconds than `limit`,
        or than a launch may, or where the wait is interrupted."""
        whole = max(self.timeout, COMPILATION) if limit is None else limit
        if (work := self.meanwhile) is not None:
            self.meanwhile = None
            with torch.enable_grad():  # of which the launch knows nothing
                work()
        while number not in self.answers:
            due, do = self.underway.popleft()
            answer = self._answer(min(self.timeout, whole), "launch", whole)
            # two may answer, where the file has forked
            if answer.pop("number", None) != due or set(answer) not in ANSWERS[do]:
                self.end()
                raise LoweringError("its process answered what it was not asked", "ended")
            self.answers[due] = answer
        return self.answers.pop(number)

    def part(self, which: int, offset: int, size: int) -> Tensor:
        """`Shared.part` of one of the files: for each place one of inputs and one of outputs."""
        return self.shared[which].part(offset, size)

    def spent(self) -> float:
        """Seconds that its launches have taken so far: of a processor, or in which something was compiled, perhaps by
        other processes. By the clock where the system does not tell."""
        if time.monotonic() - self._asked < SELDOM:
            return self._spent
        used = time.monotonic() - self.began if self.end.alive and not PROCESSES.exists() else 0.0
        with contextlib.suppress(OSError):  # it has ended
            fields = (PROCESSES / str(self.process.pid) / "stat").read_text().rpartition(")")[2].split()
            used = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # its own and its children's, proc(5)
        self._spent, self._asked = max(self._spent, used, self.compiling), time.monotonic()
        return self._spent

    def _send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has ended: the answer tells how
            self.connection.send_bytes(pickle.dumps(message))

    def _answer(self, limit: float, what: str, compiled: float = COMPILATION) -> dict[str, Any]:
        """limit, compiled: seconds that it may take, beside and with compilation."""
        began = last = time.monotonic()
        self.process.start()
        try:
            while True:
                end, most, why = min(
                    (last + limit, limit, " (--timeout)" if what == "launch" and limit == self.timeout else ""),
                    (began + compiled, compiled, " with what it compiles"),
                )
                left = end - time.monotonic()
                if left <= 0 or not self.connection.poll(left):
                    self.end()
                    told = f"the {what} did not end within {most:g} s{why}, its process was ended"
                    raise LoweringError(told, "timeout")
                answer: dict[str, Any] = json.loads(self.connection.recv_bytes())
                if not answer.get("compiling"):
                    if self.process.poll() is not None:  # who answers is another
                        raise EOFError
                    return answer
                now = time.monotonic()
                self.compiling, last = self.compiling + now - last, now
        except (EOFError, OSError, ValueError):
            code = self.process.wait(5)
            self.end()
            raise LoweringError(f"its process ended {_ended(code)}", "ended") from None
        except KeyboardInterrupt:  # what it answers later would be taken for another answer
            self.end()
            raise


def _end(process: standby.Process, files: Sequence[IO[bytes]]) -> None:
    process.end()
    for file in files:
        file.close()


def _ended(code: int | None) -> str:
    if code is None:
        return "its channel and ran on"
    if code >= 0:
        return f"with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"


def laid_out(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Places of outputs of these sizes one after another, in bytes, and where the last one ends."""
    offsets, place = {}, 0
    for key, size in sizes.items():
        offsets[key], place = place, up(place + size, 64)
    return offsets, place


def _plain(text: str) -> str:
    """What a worker says, fit for a terminal and a report."""
    shown = "".join(c if c.isprintable() else " " for c in str(text)[: 4 * TEXT])
    return shown if len(shown) <= TEXT else shown[: TEXT - 3] + "..."


def isolated(text: str, *, timeout: float = TIMEOUT, memory: float | None = None) -> Lowering:
    """`verify.lower.user.user_lowering`, in a process of its own. timeout: seconds for a launch; memory: GiB
    that the process may take on the CPU beside what torch has, by default as much as the machine has."""
    own = Own(text, composite=False, timeout=timeout, memory=memory)
    return replace(user_lowering(text, own.call), ready=own.ready)


def isolated_composite(
    text: str, order: Order | None = None, *, timeout: float = TIMEOUT, memory: float | None = None,
    fixed: Scalars | None = None,
) -> Lowering:  # fmt: skip
    """`verify.lower.user.user_composite`, likewise."""
    own = Own(text, composite=True, timeout=timeout, memory=memory, fixed=fixed)
    return replace(user_composite(text, order, own.call), ready=own.ready)


def imported(texts: Sequence[str]) -> None:
    """Import the files of the functions, each in a process that ends with that. Raises UsageError for what is wrong
    with one."""
    files: dict[str, list[str]] = {}
    for text in texts:
        files.setdefault(text.rpartition(":")[0], []).append(text)
    for first, *others in files.values():
        worker = Worker(first, composite=False, timeout=TIMEOUT, memory=0)
        with contextlib.suppress(LoweringError):  # a launch will tell
            worker.load()
            for text in others:
                worker.also(text)
        worker.end()


#: Those that run, by function, source, limits and variables: a function has one process for all kernels of a run.
_running: weakref.WeakValueDictionary[tuple[Any, ...], Worker] = weakref.WeakValueDictionary()


class Own:
    """A user's FILE.py:FUNCTION and the worker that runs it, started again where one has ended."""

    def __init__(
        self, text: str, composite: bool, *, timeout: float, memory: float | None, fixed: Scalars | None = None
    ) -> None:  # fmt: skip
        self.text, self.composite, self.timeout, self.version = text, composite, timeout, Version(text)
        self.fixed = dict(fixed or {})
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.memory = whole if memory is None else math.ceil(memory * (1 << 30))
        self._worker: Worker | None = None
        self.before = 0.0  # seconds that processes took which have ended
        self.blocks: tuple[int, ...] = ()

    def worker(self, device: str) -> Worker:
        """The process. Raises UsageError where it has to start and the file has changed."""
        if self._worker is None or not self._worker.end.alive:
            self.before = self.spent()
            memory = self.memory if device == "cpu" else 0  # a GPU's driver maps more than there is
            place = tuple(sorted(standby.variables().items()))  # the file may look at them where it is imported
            of = self.text, self.composite, told_apart(self.fixed), self.version.digest
            key = (*of, self.timeout, memory, backends.threads(), place)
            running = _running.get(key)
            if running is None or not running.end.alive:
                self.version.ensure_kept()
                running = _running[key] = Worker(
                    self.text, self.composite, timeout=self.timeout, memory=memory, fixed=self.fixed
                )  # fmt: skip
            self._worker = running
        return self._worker

    def spent(self) -> float:
        return self.before + (0.0 if self._worker is None else self._worker.spent())

    def ready(self, target: Target, seconds: float) -> bool:
        """As `Lowering.ready`. What a process ended of that imports the file, its launch will tell."""
        with contextlib.suppress(LoweringError):
            return self.worker(target.backend.device).ready(seconds)
        return True

    def behaviour(self, device: str) -> str | None:
        """What `verify.workers.process.behaviour_of` says of the function there; None where that ended before.
        Raises UsageError for what is wrong with the file."""
        with contextlib.suppress(LoweringError):  # a launch will tell
            worker = self.worker(device)
            worker.load()
            return worker.behaviour
        return None

    def call(self, target: Target) -> Launch:
        return Launch(self, target)


class Launch:
    """The lowering built for a target: a callable of tensors, or of a problem, that runs in the worker."""

    isolated = True  # see `verify.workers.launch.launch_steady`

    def __init__(self, own: Own, target: Target) -> None:
        self.own, self.target = own, target
        self.poison, self.how = (0, 0), ""
        self._built: Worker | None = None
        own.worker(target.backend.device)  # it starts while the domain is drawn

    @property
    def launched_blocks(self) -> tuple[int, ...]:
        """Sizes of the blocks of the file's Triton kernels, as far as they were launched."""
        return self.own.blocks

    @contextlib.contextmanager
    def poisoned(self, size: int, pattern: int) -> Iterator[None]:
        """As `Backend.poisoned`, in the worker."""
        self.poison = (size, pattern)
        yield

    @contextlib.contextmanager
    def manner(self, how: str) -> Iterator[None]:
        """Inside, launches are other than the plain one: 'guard', with other bytes beside the inputs; 'outputs', with
        guards beside all that torch allocates; 'thread', from another thread; 'late', of which `settle` tells whether
        more is written; 'changed', where the same tensors held other numbers in a launch just before, whose result is
        to stay, or 'inside', where some in the middle did; 'kept', after others of which the first one's result is to
        stay; 'zeros', with those in fresh memory; 'threads', with other threads; 'default' and 'default_64', with
        bfloat16 and float64 as the default dtype; 'grad' and 'no_grad', with inputs that require grad, enabled or not;
        'grad_first' and 'grad_others', where the first alone does or all but it; 'grad_computed', where each was
        computed; 'grad_parameter', where they are parameters, and as in 'changed'; 'inference', in that mode, with
        tensors of it; 'stream', on a stream of the caller's, see `verify.workers.process.streamed`; 'out', with an
        output to write where `out` is None by default."""
        self.how = how
        try:
            yield
        finally:
            self.how = ""

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do it while the next launch runs, which begins without it."""
        self.own.worker(self.target.backend.device).meanwhile = work

    def spent(self) -> float:
        """Seconds that all launches of the file have taken so far, see `Worker.spent`."""
        return self.own.spent()

    def compiles(self) -> bool:
        """Whether something was compiled in launches of the file."""
        return self.own.worker(self.target.backend.device).compiling > 0

    def settle(self) -> None:
        """Raise LoweringError where what a launch in the manner 'late' returned was written to since. It is waited
        for that, as long as the launches since then have not taken."""
        worker = self.own.worker(self.target.backend.device)
        if worker is not self._built:
            return
        answer = worker.take(worker.begin({"do": "settle"}))
        if answer.get("spoiled"):
            worker.end()
        if answer["kind"]:
            kind = "raised" if answer["kind"] == "raised" else "contract"
            raise LoweringError(f"{self.label} {_plain(answer['told'])}", kind)

    @property
    def label(self) -> str:
        path, _, function = self.own.text.rpartition(":")
        return f"lowering {Path(path).name}:{function}"

    def restart(self) -> None:
        """Let the next launch be the first of its process."""
        self.own.worker(self.target.backend.device).end()

    def begin(self, *given: Any) -> Awaited:
        """The launch, under way: at most PLACES are at a time."""
        return Awaited(self, given)

    def __call__(self, *given: Any) -> Any:
        """What the lowering returns. Inputs stay as they are; `Awaited.changed` tells what it did to its own.

        Raises LoweringError, NoRoom, NotLowered, Unsuited, UsageError.
        """
        return self.begin(*given)()

    def message(self, sent: _Sent, problem: Problem | None, *, again: bool) -> dict[str, Any]:
        """What the worker is asked. again: it may call what it built for the last launch."""
        target = self.target
        composite = None
        if problem is not None:
            composite = {
                "parameters": dict(problem.parameters), "scalars": dict(problem.scalars), "dtype": problem.dtype,
                "inputs": list(problem.tensors),
                "keywords": {k: v for k, v in problem.keywords.items() if k not in sent.labels},
            }  # fmt: skip
        return {
            "do": "launch",
            "text": self.own.text,
            "target": (target.kernel.name, dict(target.scalars), target.spelling, target.dtype, target.backend.name),
            "place": sent.place,
            "size": len(sent.file),
            "storages": sent.storages,
            "tensors": sent.tensors,
            "problem": composite,
            "poison": self.poison,
            "again": again,
            "how": self.how,
            "most": sent.most,
        }


class Awaited:
    """A launch that is under way. Called, once, it gives what the lowering returns, as `Launch` does.

    Once it has ended:
    seconds  that it took
    changed  inputs' memory as it left it where it wrote there, uint8 on the host, by the address of the input's storage
    """

    def __init__(self, launch: Launch, given: Sequence[Any]) -> None:
        self.launch, self.given, self.seconds = launch, given, 0.0
        self.changed: Mapping[int, Tensor] = {}
        self.manner, self.poison = launch.how, launch.poison
        self.problem = given[0] if given and isinstance(given[0], Problem) else None
        tensors = self.problem.read if self.problem is not None else {str(k): t for k, t in enumerate(given)}
        self.tensors: Mapping[str, Tensor] = tensors
        self.worker = launch.own.worker(launch.target.backend.device)
        self.worker.load()
        try:
            self.sent: _Sent | None = _Sent(
                self.worker, tensors, GUARD ^ 0xFF if launch.how == "guard" else GUARD, launch.poison[0]
            )
            message = launch.message(self.sent, self.problem, again=launch._built is self.worker)
            self.number = self.worker.begin(message)
        except BaseException:  # nobody knows what was sent, nor has its place back
            self.worker.end()
            raise
        launch._built = self.worker

    def drop(self) -> None:
        """Let it end, whatever it gives, unless it has; where that takes long, with its process."""
        if self.sent is not None and self._answers:
            with contextlib.suppress(LoweringError):
                self._done(self.worker.take(self.number, LEFT))
        self._leave()

    def __call__(self) -> Any:
        sent, launch, label = self.sent, self.launch, self.launch.label
        assert sent is not None
        if not self._answers:  # an earlier launch has ended its process
            self._leave()
            with launch.manner(self.manner), launch.poisoned(*self.poison):
                again = launch.begin(*self.given)
                returned, self.seconds, self.changed = again(), again.seconds, again.changed
                return returned
        try:
            answer = self.worker.take(self.number)
            modes = self._done(answer)
            if kind := answer.get("kind"):
                if modes:
                    raise LoweringError(f"{label} changed {modes}, and raised {_plain(answer['told'])}", "mode")
                self._refused(kind, _plain(answer["told"]))
            self.changed = sent.changed(label)
            self.seconds = float(answer["seconds"])
            launch.own.blocks = tuple(int(n) for n in answer["blocks"] if 1 < int(n) <= MOST)
            if virtual := backends.virtual(launch.target.backend):
                virtual.learn(answer["modelled"])
            if modes:
                raise LoweringError(f"{label} changed {modes}", "mode")
            outputs = self._fetched(sent, answer)
        except LoweringError as error:
            if error.kind in ("ended", "timeout"):
                raise LoweringError(f"{label}: {error}", error.kind) from None
            raise
        finally:
            self._leave()
        return outputs[""] if list(outputs) == [""] and self.problem is None else outputs

    @property
    def _answers(self) -> bool:
        return self.worker.end.alive or self.number in self.worker.answers

    def _done(self, answer: Mapping[str, Any]) -> str:
        """The modes that the launch has changed, in words. The next launch has a process without it."""
        changed = answer.get("changed") or {}
        if changed or answer.get("spoiled"):
            self.worker.end()
        return _plain("; ".join(f"{mode} from {was} to {now}" for mode, (was, now) in changed.items()))

    def _leave(self) -> None:
        if self.sent is not None:
            self.sent.leave()
            self.sent = None

    def _refused(self, kind: str, told: str) -> None:
        label = self.launch.label
        if kind == "not-lowered":
            raise NotLowered(told)
        if kind == "usage":
            raise Unsuited(told)
        if kind == "room":
            raise NoRoom(f"{label} has no room on the device for its inputs: {told}")
        if kind == "contract":
            raise LoweringError(f"{label} {told}")
        first = next(iter(self.tensors.values()))
        shapes = ", ".join(str(tuple(t.shape)) for t in self.tensors.values())
        raise LoweringError(f"{label} raised {told} on {first.dtype} inputs of shape {shapes}", "raised")

    def _fetched(self, sent: _Sent, answer: Mapping[str, Any]) -> dict[str, Tensor]:
        label, device = self.launch.label, torch.device(self.launch.target.backend.device)
        home = next(iter(self.tensors.values())).device
        sizes = {}
        for key, one in answer["outputs"].items():
            told = f" for {key}" if key else ""
            if one["type"] != "Tensor":
                raise LoweringError(f"{label} returned {_plain(one['type'])}{told}; expected a tensor")
            for what, due in (("device", device.type), ("layout", "strided")):
                if one[what] != due:
                    raise LoweringError(f"{label} returned {what} {_plain(one[what])}{told}; expected {due}")
            dtype = getattr(torch, str(one["dtype"]), None)
            if not isinstance(dtype, torch.dtype):
                raise LoweringError(f"{label} returned dtype {_plain(one['dtype'])}{told}; expected real numbers")
            shape = tuple(int(n) for n in one["shape"])
            sizes[key] = (shape, dtype, math.prod(shape) * dtype.itemsize)
            if sizes[key][2] > sent.most:
                raise LoweringError(f"{label} returned shape {shape}{told}; that is more than inputs could need")
        offsets, end = laid_out({key: size for key, (*_, size) in sizes.items()})
        if end > sent.most:
            raise LoweringError(f"{label} returned {end} bytes; that is more than inputs could need")
        return {
            key: sent.returned(offsets[key], size).to(home, copy=True).view(dtype).reshape(shape)
            if size
            else torch.empty(shape, dtype=dtype, device=home)
            for key, (shape, dtype, size) in sizes.items()
        }


class _Sent:
    """Inputs as a worker gets them: their storages in a file of its own, each between guards.

    largest: bytes of the largest input or output, as far as that is known; most: bytes that it may return
    """

    def __init__(self, worker: Worker, tensors: Mapping[str, Tensor], guard: int, largest: int) -> None:
        self.worker, self.guard, self.place = worker, guard, worker.places.pop(0)
        self.most = TIMES * max(sum(t.nbytes for t in tensors.values()), largest) + BESIDE
        held: dict[int, tuple[int, Tensor]] = {}
        place = BAND
        self.tensors = []
        for label, t in tensors.items():
            key = t.untyped_storage().data_ptr()
            if key not in held:
                whole = torch.empty(0, dtype=torch.uint8, device=t.device).set_(t.untyped_storage())
                held[key] = (place, whole)
                place = up(place + len(whole) + BAND, BAND)
            number = list(held).index(key)
            kind = str(t.dtype).removeprefix("torch.")
            self.tensors.append((label, number, kind, tuple(t.shape), tuple(t.stride()), t.storage_offset()))
        self.held, self.labels = list(held.values()), list(tensors)
        self.storages = [(start, len(whole)) for start, whole in self.held]
        self.file = worker.part(2 * self.place, 0, place)
        for beside, mine, whole in self._parts():
            beside.fill_(guard)
            mine.copy_(whole)

    def _parts(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The file's bytes before a storage, those of the storage, and the storage; at last those behind all."""
        last = 0
        for start, whole in (*self.held, (len(self.file), self.file[:0])):
            end = start + len(whole)
            yield self.file[last:start], self.file[start:end], whole
            last = end

    def changed(self, label: str) -> dict[int, Tensor]:
        """As `Awaited.changed`. Raises LoweringError where the launch wrote beside its inputs."""
        found = {}
        for beside, mine, whole in self._parts():
            if not bool((beside == self.guard).all()):
                raise LoweringError(f"{label} wrote into memory beside its inputs")
            if not torch.equal(words(mine.to(whole.device)), words(whole)):
                found[whole.data_ptr()] = mine.clone()
        return found

    def returned(self, offset: int, size: int) -> Tensor:
        """uint8 (size,): a part of what the launch returned."""
        return self.worker.part(2 * self.place + 1, offset, size)

    def leave(self) -> None:
        """Another launch may have the files."""
        self.worker.places = sorted((*self.worker.places, self.place))
