"""Backends: where kernels run. One file each, found by file name; only they contain device literals."""

from __future__ import annotations

import importlib
import os
import pkgutil
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, cast

from verify.facts import environment
from verify.facts.kernel import VIRTUAL, UsageError, facts_of, suggest


class Backend(Protocol):
    """What a module in `verify/backends/` defines. Importing it imports no torch.

    name          as in reports and on the command line
    library       whose mathematical functions its own code calls, by its name in `kernels/vendor_bounds.toml`
    device        torch's device string
    check_device  where inputs are made and outputs judged: `device`, or the host where that has no float64
    elements      in the default profile's domain of an elementwise kernel
    portion       elements launched and judged at a time, whole chunks of 2^20
    launches      the most that a layout of slices is given, where each is slow; None: any number
    inert_options  Inductor's numerics options that can change no bit here, with the reason
    usual_options  those of Inductor that every compilation has here, which choose no rounding
    """

    name: str
    library: str
    device: str
    check_device: str
    elements: int
    portion: int
    launches: int | None
    inert_options: Mapping[str, str]
    usual_options: Mapping[str, Any]

    def unavailable(self) -> str | None:
        """Why nothing can run here, or None."""

    def dtype_unavailable(self, dtype: str) -> str | None:
        """Why tensors of `dtype` do not exist here, or None."""

    def capability(self) -> str:
        """What decides which code is chosen for the chip, such as its architecture or instruction set."""

    def fingerprint(self) -> dict[str, Any]:
        """Chip, driver, toolkit, software: everything that may change bits. `chip` and `capability` name the device."""

    def processes(self) -> list[dict[str, str]]:
        """The environment variables of each process that may work here at once: as many as are worthwhile and give
        equal bits."""

    def resources(self) -> dict[str, float]:
        """What one of these processes takes of a Ray cluster, by resource name."""

    def synchronize(self) -> None:
        """Wait for all launched work."""

    def poisoned(self, size: int, pattern: int) -> AbstractContextManager[None]:
        """A context in which fresh memory of about `size` bytes is filled with the byte `pattern`."""

    def inductor_unavailable(self) -> str | None:
        """Why Inductor cannot generate code here, or None."""

    def triton_options(self, variant: str) -> Mapping[str, Any] | str:
        """Triton's compile options for `variant`, or the reason why it does not exist here.

        'own': hand-written kernels, nothing contracted, nothing flushed; 'default'; 'nofuse'; 'noftz';
        'toolkit': the toolkit's libdevice instead of the bundled one; 'interpreter': not compiled at all.
        """

    def metal_compiler(self) -> Callable[[str], Any] | str:
        """compile(source) gives a library with one attribute, a callable, for each kernel; or why Metal is not here."""

    def flushes(self, variant: str) -> bool:
        """Whether float32 library functions flush subnormals under `variant`, a set of Triton's options; under
        'arithmetic': whether all float32 arithmetic here may, subnormal operands included."""


class Virtual(Backend, Protocol):
    """A device that is absent: its code is executed on the CPU, and its results are predictions. Used only where
    named."""

    def lowering_unavailable(self, name: str) -> str | None:
        """Why the lowering of that name cannot run here, or None."""

    def inductor(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any] | str:
        """`function` of tensors, elementwise, by the kernels that Inductor generates for the device, to be called
        inside `launching`; or why there is none."""

    def launching(self) -> AbstractContextManager[Callable[[], int]]:
        """A context in which launches of kernels are executed on host tensors, and what counts them. Raises
        verify.virtual.compile.Unsupported."""

    def modelled(self) -> dict[str, str]:
        """How instructions that no standard defines were modelled, by name, in the launches since the last call."""

    def learn(self, modelled: Mapping[str, str]) -> None:
        """Add what another process reports of its launches."""


def _files() -> list[str]:
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def _module(file: str) -> Any:
    return importlib.import_module(f"{__name__}.{file.replace('-', '_')}")


def names() -> list[str]:
    """All backends of devices that may be present, by file name."""
    return [name for name in _files() if not name.startswith(VIRTUAL)]


def virtual_names() -> list[str]:
    """All virtual devices. A file is one device, or lists several models of it in DEVICES."""
    files = (file for file in _files() if file.startswith(VIRTUAL))
    return [name for file in files for name in getattr(_module(file), "DEVICES", (file,))]


def load(name: str) -> Backend:
    """The backend `name`, a virtual one too. Raises UsageError with near names when there is none."""
    file = next((file for file in _files() if file in (name, f"{VIRTUAL}{facts_of(name)}")), None)
    module = _module(file) if file else None
    devices = getattr(module, "DEVICES", {file: module})
    if name not in devices:
        raise UsageError(suggest("backend", name, [*names(), *virtual_names()]))
    return cast(Backend, devices[name])


def virtual(backend: Backend) -> Virtual | None:
    """The backend where it is a virtual one, else None."""
    return cast(Virtual, backend) if backend.name.startswith(VIRTUAL) else None


def judged_on(backend: Backend) -> str:
    """Where the outputs of `backend` are judged, as reports name it."""
    return backend.name if backend.check_device == backend.device else backend.check_device


#: Why an Inductor option is inert where the code that reads it is not what runs (torch 2.13, _inductor/codegen).
TRITON_CODE = "read only where Inductor generates Triton code"
CPP_CODE = "read only where Inductor generates C++"
CUTLASS_TEMPLATES = "read only by CUTLASS templates for matrix products on NVIDIA GPUs"
CK_TEMPLATES = "read only by Composable Kernel templates for matrix products on AMD GPUs"
NVIDIA_CODE = "read only for NVIDIA GPUs (_inductor/runtime/triton_heuristics.py)"

#: Of an elementwise Triton kernel one size of blocks, which decides none of its bits, rather than two of which the
#: faster one is taken (torch 2.13, _inductor/runtime/triton_heuristics.py, pointwise).
UNTUNED: Mapping[str, Any] = {"triton.autotune_pointwise": False}

NO_METAL = "Metal kernels run on Apple GPUs only"


def subnormals(device: str, dtypes: Iterable[str]) -> dict[str, str]:
    """What the framework's own product does with subnormals on `device`, measured, by dtype.

    'kept', 'flushed', or which of them it takes as zero: 'operands flushed', 'results flushed'.
    """
    import torch

    found = {}
    for name in dtypes:
        dtype = getattr(torch, name)
        least = torch.tensor([torch.finfo(dtype).smallest_normal], dtype=dtype)
        operand = bool(((least / 2).to(device) * 2).cpu() == 0)
        result = bool((least.to(device) * 0.5).cpu() == 0)
        found[name] = {
            (False, False): "kept", (True, False): "operands flushed", (False, True): "results flushed",
            (True, True): "flushed",
        }[operand, result]  # fmt: skip
    return found


#: torch's threads in a launch where all else is given fewer, see `threads`.
launch_threads: int | None = None


def threads() -> int:
    """Threads of torch's own operators in a launch, whatever the rest of the process has: their number decides how work
    is divided and in which order terms are combined, and so may decide bits."""
    import torch

    return launch_threads or torch.get_num_threads()


@contextmanager
def sharing(threads: int, share: int) -> Iterator[None]:
    """Inside, launches have that many threads, and all else `share`."""
    import torch

    global launch_threads
    before, others = launch_threads, torch.get_num_threads()
    launch_threads = threads
    if others != share:  # it takes time, where there are many
        torch.set_num_threads(share)
    try:
        yield
    finally:
        launch_threads = before
        if torch.get_num_threads() != others:
            torch.set_num_threads(others)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_gpus(variable: str) -> list[dict[str, str]]:
    """The processes of `Backend.processes` for torch's GPUs of the first one's kind: each sees one GPU, named by the
    environment variable `variable`. Where compiling is most of the work several share one."""
    import torch

    each = [torch.cuda.get_device_properties(k) for k in range(torch.cuda.device_count())]
    kinds = [(one.name, one.major, one.minor, one.total_memory) for one in each]
    seen = os.environ.get(variable, "").split(",") if os.environ.get(variable) else [str(k) for k in range(len(each))]
    alike = [seen[k] for k, kind in enumerate(kinds) if kind == kinds[0]]
    most = share_gpu() * len(alike)
    return [{variable: alike[k % len(alike)]} for k in range(max(len(alike), min(cores(), most)))]


def share_gpu() -> int:
    """How many processes may use one of torch's GPUs of the first one's kind."""
    import torch

    memory = torch.cuda.get_device_properties(0).total_memory if torch.cuda.device_count() else 0
    return max(1, min(16, memory // MEMORY_EACH))


MEMORY_EACH = 1 << 33  # bytes of a GPU's memory, at least, for each process that uses it
FOR_TENSORS = 0.9  # of a GPU's memory: contexts, code and stacks need the rest, and a launch that finds none left fails
BESIDE_EACH = 3 << 29  # bytes at least for those of each process; half its share where that is less

#: The share of that which the tensors of this process may take, see `confine`; None: all memory, as torch has it.
memory_share: float | None = None


def confine(device: str, share: float | None) -> None:
    """Let tensors of this process take no more than `share` of what a GPU has for tensors. torch keeps memory that was
    freed, so that processes without a limit would in time leave none to others."""
    global memory_share
    import torch

    if torch.device(device).type != "cpu":
        module = torch.get_device_module(device)
        module.empty_cache()
        whole = module.mem_get_info()[1]
        module.set_per_process_memory_fraction(1.0 if share is None else _for_tensors(share, whole) / whole)
        memory_share = share


def _for_tensors(share: float, whole: int) -> int:
    """Bytes that tensors of a process may take of its share of a GPU's `whole` memory."""
    return int(min(FOR_TENSORS * share * whole, max(share * whole - BESIDE_EACH, share * whole / 2)))


def pin(address: int, size: int) -> bool | None:
    """Let GPUs copy to and from this memory of the host directly, until `unpin`, which has to come before it is
    unmapped: what lies there later would be taken for it. Whether they do; None where no GPU is used so far."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    if int(torch.cuda.cudart().cudaHostRegister(address, size, 0)) == 0:  # type: ignore[no-untyped-call]
        return True
    with suppress(Exception):  # or the next launch would be told of it
        torch.zeros(1, device="cuda")
    return False


def unpin(address: int) -> None:
    import torch

    torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


def room(device: str) -> int:
    """Bytes that tensors of this process may still take on a GPU."""
    import torch

    module = torch.get_device_module(device)
    free, total = module.mem_get_info()
    held = module.memory_allocated()
    most: int = min(free + module.memory_reserved() - held, _for_tensors(memory_share or 1, total) - held)
    return most


@contextmanager
def unasked() -> Iterator[None]:
    """A context in which torch supposes that it may use the GPUs it was built for, where it would open them to know.
    Inductor asks as it is imported, by which it chooses how kernels are timed (torch 2.11,
    _inductor/runtime/benchmarking.py)."""
    import torch

    before = torch.cuda.is_available
    torch.cuda.is_available = lambda: bool(torch.version.cuda or torch.version.hip)
    try:
        yield
    finally:
        torch.cuda.is_available = before


def out_of_memory(error: BaseException) -> bool:
    """Whether a device had no memory left. Where it had none for a context, the error has no type of its own."""
    return isinstance(error, RuntimeError) and "out of memory" in str(error)


LARGE = 1 << 28  # bytes, of which filling takes longer than a launch


@contextmanager
def poisoned_pool(device: str, size: int, pattern: int, wait: Callable[[], None] | None = None) -> Iterator[None]:
    """`Backend.poisoned` where an allocator hands the last freed block of a size out again: fill some, of large ones
    two, and free them.

    wait: until they are filled, where freed memory does not wait for work in its own stream.
    """
    import torch

    blocks = [torch.full((size,), pattern, dtype=torch.uint8, device=device) for _ in range(2 if size > LARGE else 4)]
    if wait:
        wait()
    del blocks
    yield


def installed(file: str, variables: Iterable[str], compiler: str, default: str) -> Path | None:
    """`file` of a vendor's toolkit: below the folder that one of the `variables` names, that of `compiler`, or
    `default`."""
    found = shutil.which(compiler)
    homes = [*map(os.environ.get, variables), found and str(Path(found).resolve().parents[1]), default]
    return next((path for home in homes if home and (path := Path(home) / file).is_file()), None)


def answer(*command: str) -> str | None:
    """What a command of the system prints; None where there is none or it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def software(own: Iterable[str] = ()) -> dict[str, Any]:
    """The part of a fingerprint that every backend shares. `variables`: those of `verify.facts.environment` that are
    set, its own among them, only where there are any: what names what the machine has anyway makes no other one."""
    given = {name: os.environ[name] for name in (*own, *environment.SHARED) if name in os.environ}
    return {
        **({"variables": given} if given else {}),
        "torch": _version("torch"),
        "triton": _version("triton"),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
    }


def _version(distribution: str) -> str | None:
    from importlib import metadata  # it takes longer than all else that is imported here

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
