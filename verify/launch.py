"""Launch a lowering and hold it to the contract: shape, dtype, device, inputs left alone, every output written.

Whether the numbers are right is `verify.check`'s business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from verify.backends import Backend
from verify.kernel import UsageError
from verify.lowerings import NotLowered, describe

#: Bytes that fresh memory holds in the first and the second run of `launch_checked`.
POISON = (0x7F, 0x99)

#: Launches on the same inputs of a lowering whose first two outputs differ.
REPEATS = 8

# torch keys the code that it caches by everything but ATEN_CPU_CAPABILITY (torch 2.13, _inductor/codecache.py): a run
# under AVX2 would take what an earlier one compiled for AVX-512, and report it as AVX2's.
torch.compiler.config.cache_key_tag += f" ATEN_CPU_CAPABILITY {torch.backends.cpu.get_cpu_capability()}"

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class LoweringError(UsageError):
    """A lowering broke its contract: which one, and how."""


class UnsteadyLowering(LoweringError):
    """Two launches on the same inputs gave other bits."""


@dataclass(frozen=True)
class Launched:
    """The output, and the wall-clock seconds from launch to synchronized completion."""

    output: torch.Tensor
    seconds: float


def launch(fn: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], backend: Backend, name: str) -> Launched:
    """Call `fn` on `inputs`, taken to the backend's device, and check the output's type, shape, dtype and device.

    The output is returned on the device that the inputs came from; the seconds exclude both transfers.
    `name` is the lowering's, for messages. Raises LoweringError; NotLowered passes through.
    """
    given = _on_device(inputs, backend)
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in given))  # type: ignore[no-untyped-call]
    backend.synchronize()
    start = time.perf_counter()
    try:
        with torch.no_grad():
            output = fn(*given)
        backend.synchronize()
    except (UsageError, NotLowered):
        raise
    except (Exception, SystemExit) as error:
        raise LoweringError(f"lowering {name} raised {describe(error)} on {_shapes(inputs)}") from error
    seconds = time.perf_counter() - start
    _check_output(output, given[0], shape, name)
    return Launched(output.detach().to(inputs[0].device), seconds)


def enqueue(
    fn: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], name: str
) -> tuple[torch.Tensor, Callable[[], float]]:
    """As `launch`, of inputs on the backend's device and without waiting for it: the output, and a function that gives
    the seconds between begin and end on the device, to be called once that has finished.

    Raises LoweringError for what the host notices; what the device does is raised where the host waits for it.
    """
    ends = [torch.Event(inputs[0].device, enable_timing=True) for _ in range(2)]
    ends[0].record()
    try:
        with torch.no_grad():
            output = fn(*inputs)
    except (UsageError, NotLowered):
        raise
    except (Exception, SystemExit) as error:
        raise LoweringError(f"lowering {name} raised {describe(error)} on {_shapes(inputs)}") from error
    ends[1].record()
    _check_output(output, inputs[0], inputs[0].shape, name)
    return output.detach(), lambda: ends[0].elapsed_time(ends[1]) / 1000


def launch_checked(
    fn: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], backend: Backend, name: str
) -> Launched:
    """`launch` twice, on memory poisoned with another byte each time, and compare inputs and outputs bit for bit.

    Returns the second launch, which includes no compilation. Raises LoweringError too where an
    input was modified, and where the two outputs differ.
    """
    before = _on_device(inputs, backend)
    given = [tensor.clone() for tensor in before]  # the caller's own are for the next lowering, whatever this one does
    size = max((tensor.nbytes for tensor in given), default=0)
    launched = []
    for pattern in POISON:
        with backend.poisoned(size, pattern):
            result = launch(fn, given, backend, name)
        # Copied: the output may be a view of an input, or a buffer that the lowering uses again.
        launched.append(Launched(result.output.clone(), result.seconds))
        for index, (tensor, kept) in enumerate(zip(given, before, strict=True)):
            if changed := _differences(tensor, kept):
                raise LoweringError(f"lowering {name} modified its input {index} in place: {changed}")
    first, second = launched
    if differing := _differences(first.output, second.output):
        raise UnsteadyLowering(
            f"lowering {name} returns uninitialised or non-deterministic output: "
            f"run twice on the same inputs, {differing}"
        )
    return Launched(second.output.to(inputs[0].device), second.seconds)


def launch_repeated(
    fn: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], backend: Backend, name: str
) -> list[Launched]:
    """As `launch_checked`; where the two outputs differ, REPEATS launches, all on memory that holds the same byte.

    Raises LoweringError too where these agree: then the output depends on what memory held, and is not all written.
    """
    try:
        return [launch_checked(fn, inputs, backend, name)]
    except UnsteadyLowering:
        repeated = []
        size = max((tensor.nbytes for tensor in inputs), default=0)
        for _ in range(REPEATS):
            with backend.poisoned(size, POISON[0]):
                result = launch(fn, inputs, backend, name)
            repeated.append(Launched(result.output.clone(), result.seconds))
        if distinct(repeated) == 1:
            raise
        return repeated


def distinct(launches: Sequence[Launched]) -> int:
    """How many of the outputs differ in bits, NaNs counting as equal."""
    found: list[torch.Tensor] = []
    for one in launches:
        if all(_differences(one.output, other) for other in found):
            found.append(one.output)
    return len(found)


def _on_device(inputs: Sequence[torch.Tensor], backend: Backend) -> list[torch.Tensor]:
    """The inputs where kernels run: themselves, unless the backend's outputs are judged on another device."""
    return [tensor.to(backend.device) for tensor in inputs]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's patterns as integers of its width."""
    return tensor.contiguous().view(_BITS[tensor.element_size()])


def _check_output(output: object, expected: torch.Tensor, shape: Sequence[int], name: str) -> None:
    # a subclass may overload what is asked of it below
    plain = (torch.Tensor, torch.nn.Parameter, type(expected))
    if not isinstance(output, torch.Tensor) or type(output) not in plain:
        raise LoweringError(f"lowering {name} returned {type(output).__name__}; expected a tensor")
    for what, given, due in (
        ("shape", tuple(output.shape), tuple(shape)),
        ("dtype", output.dtype, expected.dtype),
        ("device", output.device, expected.device),
        ("layout", output.layout, expected.layout),
    ):
        if given != due:
            raise LoweringError(f"lowering {name} returned {what} {given}; expected {due}, that of its inputs")


def _differences(a: torch.Tensor, b: torch.Tensor) -> str | None:
    """How many elements differ in bits, two NaNs counting as equal, and where the first is; None where none does."""
    if a.shape != b.shape:
        return f"the shape is {tuple(a.shape)}, was {tuple(b.shape)}"
    different = bits(a).ne(bits(b)) & ~(a.isnan() & b.isnan())
    count = int(different.sum())
    if not count:
        return None
    first = int(different.flatten().to(torch.uint8).argmax())
    return f"{count} of {a.numel()} elements differ, the first at index {first}"


def _shapes(inputs: Sequence[torch.Tensor]) -> str:
    return f"{inputs[0].dtype} inputs of shape {', '.join(str(tuple(tensor.shape)) for tensor in inputs)}"
