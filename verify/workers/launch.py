"""Launch a lowering, elementwise or composite, and hold it to the contract; one policy for every path and profile.

The contract: named outputs of the right shape, dtype, device and layout, every element written, inputs left alone, and
the same bits again. Whether the numbers are right is for the judge, which sees every result that differed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from verify import backends
from verify.backends import Backend
from verify.facts.kernel import UsageError
from verify.families.composite import Problem
from verify.lower.lowering import Breach, NotLowered, describe

Tensor = torch.Tensor
#: Outputs by name; of a single output the name is ''.
Outputs = dict[str, Tensor]
#: What a lowering is called with: tensors by position, or a problem.
Given = Sequence[Tensor] | Problem

#: Launches of a user's own lowering on a cell's first inputs, and of any other that gave two results there.
REPEATS = 8
#: Launches in a process of its own that may be under way: of one call, and of several, whose times differ.
AHEAD, UNDERWAY = 2, 4
#: Fresh memory is filled with one of these bytes before each launch.
POISON = (0x7F, 0x99)
#: Which of them: the sequence of Thue and Morse has none of the periods up to 5, with which a lowering's state may
#: come round, so that a result that follows the state is not taken for one that follows the memory.
_ORDER = (0, 1, 1, 0, 1, 0, 0, 1)

# torch keys the code that it caches by everything but ATEN_CPU_CAPABILITY (torch 2.13, _inductor/codecache.py): a run
# under AVX2 would take what an earlier one compiled for AVX-512, and report it as AVX2's.
torch.compiler.config.cache_key_tag += f" ATEN_CPU_CAPABILITY {torch.backends.cpu.get_cpu_capability()}"

_ran = 0.0  # see `ran`
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class LoweringError(UsageError):
    """A lowering broke its contract: which one, and how. `kind` is a word of `verify.judge.status.REASONS`."""

    def __init__(self, message: str, kind: str = "contract") -> None:
        super().__init__(message)
        self.kind = kind


class NoRoom(torch.OutOfMemoryError):
    """The device has no memory left for what a lowering is given, which is no fault of the lowering's."""


class Origin(Protocol):
    """Where inputs come from that need not be copied to be compared."""

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """Whether they are as they were made, bit for bit."""
        ...

    def made_again(self) -> Sequence[Tensor]:
        """Others like them, which are given from now on."""
        ...


@dataclass(frozen=True)
class Launches:
    """What the launches of a lowering on the same inputs gave.

    results     the results that differ from one another in bits (NaNs equal), in the order of appearance, on the
                device that the inputs came from
    which       for each launch the index of its result
    seconds     of the last launch, from call to synchronized completion: no compilation, no transfer
    first       seconds of the first launch, in which a lowering may compile
    difference  where the first two results differ; '' where the lowering is steady
    """

    results: tuple[Outputs, ...]
    which: tuple[int, ...]
    seconds: float
    difference: str = ""
    first: float = 0.0

    @property
    def repeats(self) -> int:
        return len(self.which)

    @property
    def distinct(self) -> int:
        return len(self.results)

    @property
    def steady(self) -> bool:
        return self.distinct == 1

    def distinct_of(self, name: str) -> int:
        """How many different results one output has."""
        found: list[Outputs] = []
        for result in self.results:
            one = {name: result[name]}
            if _place(one, found)[0] == len(found):
                found.append(one)
        return len(found)

    @property
    def output(self) -> Tensor:
        """The single output of the first launch."""
        return self.results[0][""]

    @property
    def told(self) -> str:
        """One line on an unsteady lowering; '' of a steady one."""
        if self.steady:
            return ""
        return f"{self.distinct} different results in {self.repeats} launches on the same inputs: {self.difference}"


def repeats_of(*, first: bool, user: bool) -> int:
    """How often a lowering is launched on a chunk. first: of its cell; user: it is of a user's own file."""
    if first:
        return REPEATS if user else 2
    return 2 if user else 1


def launch_steady(
    call: Callable[..., Any], given: Given, backend: Backend, name: str, *, repeats: int = REPEATS,
    names: Sequence[str] | None = None, like: Mapping[str, Tensor] | None = None, origin: Origin | None = None,
) -> Launches:  # fmt: skip
    """Launch `call` `repeats` times on the same inputs, and REPEATS times where results differ.

    call     of the tensors by position, giving a tensor of their broadcast shape, dtype and device (or a dict with that
             under ''); or of the problem, giving tensors by name
    given    the lowering gets copies on the backend's device, with the same strides, offsets and shared memory; a call
             that has `isolated` puts them there by itself
    name     the lowering's, for messages
    names    of a problem: the outputs that exist
    like     of a problem: outputs whose shape and dtype those of the same name must have
    origin   of tensors on the backend's device that can be made again: the lowering gets these, and no copies

    Fresh memory holds one of two bytes before a launch, in an order without a short period, and so does the memory of a
    result once it has been copied (that of an isolated call in its own process): what is returned again must have been
    written again. Inputs and the memory around them are compared bit for bit after each launch.

    Found: what depends on memory, on chance or on whether it was called before, by two launches; an answer that is
    another on every k-th call, as soon as the launches of all chunks that made two or more add up to k (`repeats_of`:
    at once for k <= REPEATS and a user's own lowering). Every result that differs is to be judged. Not found: what
    begins after the last launch; what all launches of a chunk share, unless its numbers are wrong; what needs other
    sizes, strides, streams, threads or addresses.

    With repeats=1 nothing is compared with another result, and the result is not copied: it may be memory that the
    lowering uses again.

    Raises LoweringError (kind 'raised' or 'contract'), also for an output that follows the byte in fresh memory: not
    all of it is written. An unsteady lowering raises nothing. NotLowered passes through.
    """
    inputs = _Inputs(given, backend, origin, isolated=getattr(call, "isolated", False))
    try:
        return _launched(call, inputs, backend, name, repeats, names, like, deque())
    except BaseException:
        if origin is not None:
            origin.made_again()  # what the lowering did to them is not known
        raise


class Begun:
    """One launch, as by `launch_steady` with repeats=1. That of an isolated call is under way; others begin when their
    result is asked for."""

    def __init__(
        self, call: Callable[..., Any], given: Given, backend: Backend, name: str, names: Sequence[str] | None = None
    ) -> None:
        self._inputs = _Inputs(given, backend, None, isolated=getattr(call, "isolated", False))
        self._about, self._underway = (backend, name, 1, names), deque[Any]()
        self._call = call
        if self._inputs.isolated:
            _begin(call, self._inputs, self._inputs.expected, self._underway, range(1))

    def result(self, like: Mapping[str, Tensor] | None = None) -> Outputs:
        """What it gave. To be asked once. Raises as `launch_steady`."""
        return _launched(self._call, self._inputs, *self._about, like, self._underway).results[0]

    def drop(self) -> None:
        """Let it end, whatever it gives, unless it has."""
        for begun in self._underway:
            begun.drop()


def _launched(
    call: Callable[..., Any], inputs: _Inputs, backend: Backend, name: str, repeats: int, names: Sequence[str] | None,
    like: Mapping[str, Tensor] | None, underway: deque[Any],
) -> Launches:  # fmt: skip
    results: list[Outputs] = []
    which: list[int] = []
    difference, seconds, first, wanted = "", 0.0, 0.0, repeats
    changed: Mapping[int, Tensor] = {}
    try:
        while len(which) < wanted:
            turn = len(which)
            expected = inputs.expected if inputs.problem is None else _known(results, like)
            if inputs.isolated:
                _begin(call, inputs, expected, underway, range(turn, wanted))
                begun = underway.popleft()
                with torch.no_grad():
                    returned, seconds, changed = begun(), begun.seconds, begun.changed
            else:
                with backend.poisoned(_most(inputs, expected), _byte(turn)):
                    returned, seconds = _timed(call, inputs.arguments, backend, name)
            first = first or seconds
            outputs = _named(returned, name, inputs.type)
            _check_names(outputs, results, ("",) if inputs.problem is None else names, name)
            told = {key: t.detach().resolve_neg() for key, t in outputs.items()}
            told = {key: _real(t) for key, t in told.items()} if inputs.whole else told
            _check(told, expected, inputs.device, name)
            again = repeats > 1 and not inputs.isolated  # else nobody writes there again
            result = {key: t.clone() if again else t for key, t in told.items()}
            inputs.check(name, changed)
            if any(t.numel() and inputs.hold(t) for t in outputs.values()):
                raise LoweringError(f"lowering {name} returned memory of its input; expected memory of its own")
            if told_of := shared(outputs):
                raise LoweringError(f"lowering {name} {told_of}")
            if again:
                for t in outputs.values():
                    if not inputs.hold(t):
                        _spoil(t, _byte(turn + 1))
            place, differing = _place(result, results)
            which.append(place)
            if place == len(results):
                results.append(result)
            difference = difference or differing
            if difference:
                wanted = max(wanted, REPEATS)
                # of two results that come by chance one in 2^7 follows the memory through REPEATS launches
                if len(which) == wanted < 2 * REPEATS and _follows_memory(which):
                    wanted = 2 * REPEATS
    finally:
        for begun in underway:
            begun.drop()
    if difference and (_follows_memory(which) or _holds_poison(results, which)):
        raise LoweringError(
            f"lowering {name} returns an output that is not all written: with other bytes in fresh memory {difference}"
        )
    moved = tuple({key: t.to(inputs.home) for key, t in result.items()} for result in results)
    return Launches(moved, tuple(which), seconds, difference, first)


def _begin(call: Any, inputs: _Inputs, expected: _Expected, underway: deque[Any], turns: range) -> None:
    """Let as many of an isolated call's launches be under way as may be, of those that are due. The memory is filled in
    its process."""
    ahead = AHEAD if expected else 1  # before that the memory to be filled is not known
    for turn in turns[len(underway) : ahead]:
        with call.poisoned(_most(inputs, expected), _byte(turn)):
            underway.append(call.begin(*inputs.arguments))


def _most(inputs: _Inputs, expected: _Expected) -> int:
    """Bytes of the largest input or output."""
    return max(inputs.nbytes, *(math.prod(shape) * dtype.itemsize for shape, dtype in expected.values()), 0)


# What a lowering is given.


class _Inputs:
    """Copies of a lowering's inputs on the backend's device, and what they must hold after a launch.

    isolated: the lowering runs in a process that has copies of its own, and tells how it left them.
    """

    def __init__(self, given: Given, backend: Backend, origin: Origin | None, *, isolated: bool) -> None:
        self.origin, self.isolated = origin, isolated
        self.problem = given if isinstance(given, Problem) else None
        named = given.read if isinstance(given, Problem) else {str(k): t for k, t in enumerate(given)}
        self.home = next(iter(named.values())).device
        self.device = self.home if isolated else torch.device(backend.device)
        self.memory: dict[Any, tuple[Tensor, Tensor]] = {}  # the caller's storages on the device, and copies of them
        self.kept, self.handed = {}, {}
        for label, t in named.items():
            key = t.untyped_storage().data_ptr(), t.dtype
            if key not in self.memory:
                whole = t.as_strided((t.untyped_storage().nbytes() // t.element_size(),), (1,), 0).to(self.device)
                self.memory[key] = (whole, whole if origin or isolated else whole.clone())
            views = (held.as_strided(t.shape, t.stride(), t.storage_offset()) for held in self.memory[key])
            self.kept[label], self.handed[label] = views
        first = next(iter(self.handed.values()))
        self.device, self.type = first.device, type(first)  # the device with its index
        self.places = [place_of(t) for t in self.handed.values()]
        self.sizes = [copy.untyped_storage().nbytes() for _, copy in self.memory.values()]
        self.nbytes = max(t.nbytes for t in self.handed.values())
        self.whole = not any(t.is_floating_point() for t in self.handed.values())
        self.expected = {} if self.problem else _elementwise(list(self.handed.values()))

    @property
    def arguments(self) -> Sequence[Any]:
        if self.problem is None:
            return list(self.handed.values())
        return [self.problem.reading(self.handed)]

    def hold(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in the inputs' memory."""
        here = tensor.untyped_storage().data_ptr()
        # 0 is the address of tensors that tell none
        return here != 0 and any(here == copy.untyped_storage().data_ptr() for _, copy in self.memory.values())

    def check(self, name: str, changed: Mapping[int, Tensor]) -> None:
        """Raise LoweringError where an input, or the memory around one, was changed. changed: of an isolated call, as
        `verify.workers.Awaited` has it."""
        if self.isolated:
            for label, t in self.kept.items() if changed else ():
                left = changed.get(t.untyped_storage().data_ptr())
                if left is not None:
                    whole = left[: len(left) // t.element_size() * t.element_size()].to(t.device).view(t.dtype)
                    given = whole.as_strided(t.shape, t.stride(), t.storage_offset())
                    self._require_same(name, label, given)
            if changed:
                raise LoweringError(f"lowering {name} wrote into memory beside its inputs")
            return
        if self.sizes != [copy.untyped_storage().nbytes() for _, copy in self.memory.values()]:
            raise LoweringError(f"lowering {name} resized the memory of its inputs")
        if self.origin is not None:
            same = self.origin.holds(list(self.handed.values()))
        else:
            same = all(torch.equal(words(held), words(copy)) for held, copy in self.memory.values())
        if same and self.places == [place_of(t) for t in self.handed.values()]:
            return
        if self.origin is not None:
            self.kept = dict(zip(self.kept, self.origin.made_again(), strict=True))
        for label, t in self.handed.items():
            self._require_same(name, label, t)
        if not same:
            raise LoweringError(f"lowering {name} wrote into memory beside its inputs")

    def _require_same(self, name: str, label: str, t: Tensor) -> None:
        if told := _differences(t, self.kept[label], exactly=True):
            raise LoweringError(f"lowering {name} modified its input {label} in place: {told}")


def octets(t: Tensor) -> Tensor:
    """The bytes of its elements, in their order."""
    dense = t.detach().resolve_neg().contiguous()
    # of one element or none a dimension may have any stride, which a view of bytes refuses
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)


def words(held: Tensor) -> Tensor:
    """Bits as the widest integers that fit, which are compared fastest."""
    return held.view(next(_BITS[size] for size in (8, 4, 2, 1) if held.nbytes % size == 0))


def place_of(t: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies, and as what."""
    return t.untyped_storage().data_ptr(), t.storage_offset(), t.dtype, t.shape, t.stride()


# A launch and its results.


def _timed(call: Callable[..., Any], arguments: Sequence[Any], backend: Backend, name: str) -> tuple[Any, float]:
    """What the call returns, and the seconds from its start to synchronized completion."""
    global _ran
    backend.synchronize()
    start, before = time.perf_counter(), time.thread_time()
    try:
        with _raising(name, arguments), backends.sharing(backends.threads(), backends.threads()):
            with torch.no_grad():
                returned = call(*arguments)
            backend.synchronize()
    finally:
        _ran += time.thread_time() - before
    return returned, time.perf_counter() - start


def ran() -> float:
    """Seconds of a processor that launches in this process have taken so far, in the threads that made them: torch's
    other threads wait more than they work."""
    return _ran


@contextmanager
def _raising(name: str, arguments: Sequence[Any]) -> Iterator[None]:
    """Whatever a lowering raises as a LoweringError."""
    try:
        yield
    except (UsageError, NotLowered, NoRoom):
        raise
    except Breach as error:
        raise LoweringError(f"lowering {name} {error}") from error
    except (Exception, SystemExit) as error:
        if backends.out_of_memory(error) and (backends.memory_share or 1) < 1:
            raise  # `verify.walk.run` tries it again with more
        raise LoweringError(f"lowering {name} raised {describe(error)} on {_shapes(arguments)}", "raised") from error


def _shapes(arguments: Sequence[Any]) -> str:
    first = arguments[0]
    if isinstance(first, Problem):
        return ", ".join(f"{key} {tuple(t.shape)}" for key, t in first.tensors.items())
    return f"{first.dtype} inputs of shape {', '.join(str(tuple(t.shape)) for t in arguments)}"


def _named(returned: Any, name: str, like: type = torch.Tensor) -> Outputs:
    """Outputs by name, each a plain tensor, or one of the inputs' type."""
    outputs = dict(returned) if isinstance(returned, Mapping) else {"": returned}
    for key, t in outputs.items():
        # a subclass may overload what is asked of it
        if type(t) not in (torch.Tensor, torch.nn.Parameter, like):
            told = f" for {key}" if key else ""
            raise LoweringError(f"lowering {name} returned {type(t).__name__}{told}; expected a tensor")
    return outputs


def _real(t: Tensor) -> Tensor:
    """Outputs of 32-bit integers are judged as float64, which holds them exactly."""
    return t.to(torch.float64) if t.dtype == torch.int32 else t


def shared(outputs: Mapping[str, Tensor]) -> str:
    """What is wrong with outputs of which two elements, of one or of two, lie in the same memory: who writes into one
    writes into the other. '' where none do."""
    held: dict[int, list[tuple[str, Tensor]]] = {}
    for label, t in outputs.items():
        if t.numel() and t.layout is torch.strided and (address := t.untyped_storage().data_ptr()):
            held.setdefault(address, []).append((label, t))
    for those in held.values():
        for place, (label, t) in enumerate(those):
            if not _apart(t):
                told = f" for {label}" if label else ""
                return f"returned a tensor{told} whose elements share memory: strides {t.stride()}"
            for other, before in those[:place]:
                if _meet(t, before) and len(np.intersect1d(_addresses(t), _addresses(before))):
                    return f"returned {other} and {label} in the same memory; expected memory of their own"
    return ""


def _meet(a: Tensor, b: Tensor) -> bool:
    """Whether the first to the last element of one lies where those of the other do."""
    (first, last), (start, stop) = (
        (t.storage_offset() * t.element_size(), (t.storage_offset() + _reach(t) + 1) * t.element_size()) for t in (a, b)
    )
    return first < stop and start < last


def _reach(t: Tensor) -> int:
    """Elements from the first one in memory to the last."""
    return sum(stride * (size - 1) for stride, size in zip(t.stride(), t.shape, strict=True))


def _apart(t: Tensor) -> bool:
    """Whether each element has memory of its own."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1):
        if stride <= reach:
            return len(np.unique(_addresses(t))) == t.numel()
        reach += stride * (size - 1)
    return True


def _addresses(t: Tensor) -> npt.NDArray[np.int64]:
    """Of each element in its storage, in bytes."""
    found = np.array(t.storage_offset(), dtype=np.int64)
    for stride, size in zip(t.stride(), t.shape, strict=True):
        found = np.add.outer(found, np.arange(size, dtype=np.int64) * stride)
    addresses: npt.NDArray[np.int64] = found.reshape(-1) * t.element_size()
    return addresses


#: Shape and dtype of an output, by name.
_Expected = Mapping[str, tuple[Sequence[int], torch.dtype]]


def _elementwise(inputs: Sequence[Tensor]) -> _Expected:
    shape = np.broadcast_shapes(*(t.shape for t in inputs))  # torch.broadcast_shapes imports sympy
    return {"": (tuple(shape), inputs[0].dtype)}


def _known(results: Sequence[Outputs], like: Mapping[str, Tensor] | None) -> _Expected:
    """Of a problem: what the first launch gave, else what is expected of some of the outputs."""
    given = results[0] if results else like or {}
    return {key: (tuple(t.shape), t.dtype) for key, t in given.items()}


def _check(outputs: Outputs, expected: _Expected, device: torch.device, name: str) -> None:
    """Raise LoweringError for an output that is not as `expected` (where that names it), dense and on the device."""
    for key, t in outputs.items():
        shape, dtype = expected.get(key, (tuple(t.shape), t.dtype))
        told = f" for {key}" if key else ""
        for what, given, due in (
            ("shape", tuple(t.shape), tuple(shape)),
            ("dtype", t.dtype, dtype),
            ("device", t.device, device),
            ("layout", t.layout, torch.strided),
        ):
            if given != due:
                raise LoweringError(f"lowering {name} returned {what} {given}{told}; expected {due}")
        if t.element_size() not in _BITS:
            raise LoweringError(f"lowering {name} returned dtype {t.dtype}{told}; expected real numbers")


def _check_names(outputs: Outputs, results: Sequence[Outputs], names: Sequence[str] | None, name: str) -> None:
    """Raise LoweringError unless the outputs are some of `names` (any: None), and those of earlier launches."""
    known = list(results[0]) if results else list(outputs if names is None else names)
    if not outputs or not set(outputs) <= set(known) or (results and len(outputs) < len(known)):
        expected = ", ".join(filter(None, known)) or "one"
        again = " again" if results else ""
        raise LoweringError(f"lowering {name} returned outputs {list(outputs)}; expected {expected}{again}")


# Memory and bits.


def _byte(turn: int) -> int:
    """The byte that fills fresh memory before launch number `turn`."""
    return POISON[_ORDER[turn % len(_ORDER)]]


def _spoil(t: Tensor, pattern: int) -> None:
    """Fill the elements of an output that has been copied, those of expanded axes once."""
    with torch.inference_mode(t.is_inference()):
        for axis, step in enumerate(t.stride()):
            if step == 0 and t.numel():
                t = t.narrow(axis, 0, 1)
        t.detach().view(_BITS[t.element_size()]).fill_(_poison(t, pattern))


def _poison(t: Tensor, pattern: int) -> int:
    """The bits of an element of poisoned memory."""
    return int.from_bytes(bytes([pattern]) * t.element_size(), "little", signed=t.element_size() > 1)


def _place(result: Outputs, results: Sequence[Outputs]) -> tuple[int, str]:
    """Where among `results` the same bits are (the end: nowhere), and how they differ from the first."""
    told = ""
    for place, other in enumerate(results):
        parts = [(key, _differences(result[key], t)) for key, t in other.items()]
        found = [f"output {key}: {changed}" if key else changed for key, changed in parts if changed]
        if not found:
            return place, ""
        told = told or found[0]
    return len(results), told


def _follows_memory(which: Sequence[int]) -> bool:
    """Whether the result depends on the byte that fresh memory held, and on nothing else."""
    pairs = {(_byte(turn), place) for turn, place in enumerate(which)}
    return len(pairs) == len(set(which)) == 2


def _holds_poison(results: Sequence[Outputs], which: Sequence[int]) -> bool:
    """Whether an element of every launch has the bits that fresh memory had."""
    for key, t in results[0].items():
        hit = torch.ones(t.shape, dtype=torch.bool, device=t.device)
        for turn, place in enumerate(which):
            hit &= bits(results[place][key]) == _poison(t, _byte(turn))
        if bool(hit.any()):
            return True
    return False


def bits(tensor: Tensor) -> Tensor:
    """The tensor's patterns as integers of its width."""
    return tensor.contiguous().view(_BITS[tensor.element_size()])


def _differences(a: Tensor, b: Tensor, *, exactly: bool = False) -> str:
    """How many elements differ in bits, and where the first is; '' where none does. Two NaNs are equal, unless
    `exactly`."""
    if a.dtype != b.dtype:
        return f"the dtype is {a.dtype}, was {b.dtype}"
    if a.shape != b.shape:
        return f"the shape is {tuple(a.shape)}, was {tuple(b.shape)}"
    if torch.equal(bits(a), bits(b)):
        return ""
    different = bits(a).ne(bits(b))
    if not exactly:
        different &= ~(a.isnan() & b.isnan())
    count = int(different.sum())
    if not count:
        return ""
    first = int(different.flatten().to(torch.uint8).argmax())
    return f"{count} of {a.numel()} elements differ, the first at index {first}"
