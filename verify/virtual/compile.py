"""Triton kernels compiled for a GPU that is only described, and their launches caught.

Triton asks its active driver what to compile for and how to launch. `described` is a driver that names a GPU by its
architecture alone and hands each launch over as a value: the machine code, the grid and the arguments. Whoever
launches a Triton kernel, ours or a user's, needs no change; its tensors lie on the host.
"""

from __future__ import annotations

import functools
import hashlib
import signal
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from verify.facts.kernel import NothingToCompare, UsageError, suggest

P = ParamSpec("P")
R = TypeVar("R")

#: Triton's name of the vendor, of the architecture, and the threads of a warp or wave.
TARGETS: Mapping[str, tuple[str, int | str, int]] = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "sm_120": ("cuda", 120, 32),
    "gfx90a": ("hip", "gfx90a", 64),
    "gfx942": ("hip", "gfx942", 64),
    "gfx950": ("hip", "gfx950", 64),
    "gfx1100": ("hip", "gfx1100", 32),
    "gfx1201": ("hip", "gfx1201", 32),
}
#: The most blocks in x, y and z that CUDA launches (CUDA C Programming Guide, table of technical specifications).
GRID = (2**31 - 1, 65535, 65535)
#: Shared memory of a block in bytes, the most that a kernel may ask for (CUDA C Programming Guide, table of compute
#: capabilities; CDNA 3 and RDNA ISA guides, LDS).
SHARED: Mapping[str, int] = {
    "sm_80": 166912,
    "sm_90": 232448,
    "sm_100": 232448,
    "sm_120": 101376,
    "gfx950": 163840,
}
LDS = 65536

#: Code for people, by the vendor's name in Triton: what `Launch.code` is asked for.
ASSEMBLY: Mapping[str, str] = {"cuda": "ptx", "hip": "amdgcn"}
#: The backend of this project whose options of Triton's a vendor's targets have.
BACKENDS: Mapping[str, str] = {"cuda": "cuda", "hip": "rocm"}


class Unsupported(NothingToCompare):
    """A virtual device does not model an instruction or feature, which the message names. Exit code 3."""


class Fault(Exception):
    """A launch did what no device allows; the message goes on from who launched it."""


@dataclass(frozen=True)
class Argument:
    """One parameter of a launch. `kind` is Triton's type: '*fp32' with a tensor, 'i32', 'fp32' with a number."""

    name: str
    kind: str
    value: Any


@dataclass(frozen=True)
class Launch:
    """One launch of a compiled kernel.

    target     a name of TARGETS
    grid       programs in x, y, z
    arguments  in the order of the machine code's parameters; Triton appends two pointers to scratch memory
    metadata   Triton's: num_warps, shared (bytes), enable_fp_fusion, triton_version, hash, ...; and `linked`, name ->
               first 64 bits of the SHA-256 of each library that the compiler was given
    files      the stages of compilation by suffix: ttir, llir, ptx and cubin, or amdgcn and hsaco
    """

    name: str
    target: str
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    metadata: Any
    files: Mapping[str, Path]

    @property
    def code(self) -> str:
        """The assembly: PTX or AMDGCN."""
        return self.files[ASSEMBLY[TARGETS[self.target][0]]].read_text()

    @property
    def threads(self) -> int:
        """Of one program."""
        return int(self.metadata.num_warps) * TARGETS[self.target][2]


def known(target: str) -> str:
    """The target itself. Raises UsageError with near names."""
    if target not in TARGETS:
        raise UsageError(suggest("target", target, tuple(TARGETS)))
    return target


@contextmanager
def described(target: str, launched: Callable[[Launch], None], limit: float = 0.0) -> Iterator[None]:
    """A context in which Triton compiles for `target` and hands every launch to `launched` instead of a GPU.

    limit: seconds from launch to launch, which is what compiling takes; after them this process is ended by SIGALRM,
    which nothing else in it can do to a call of LLVM. For worker processes; 0: never.
    Compiled code is kept under `cache()`. Raises UsageError for an unknown target, Unsupported without Triton.
    """
    try:
        from triton import knobs
        from triton.runtime import driver
    except ImportError:
        raise Unsupported("Triton, which compiles for described GPUs, is not installed") from None
    from verify.native import cache

    def caught(launch: Launch) -> None:
        launched(launch)
        signal.setitimer(signal.ITIMER_REAL, limit)

    before = driver._active
    driver.set_active(_driver()(known(target), caught if limit else launched))
    try:
        with knobs.cache.scope(), knobs.runtime.scope():
            knobs.cache.dir = str(cache() / "triton")
            knobs.runtime.add_stages_inspection_hook = _once
            if limit:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, limit)
            yield
    finally:
        if limit:
            signal.setitimer(signal.ITIMER_REAL, 0)
        driver._active = before


#: Stages of NVIDIA's compiler before contraction, which is ptx's: `enable_fp_fusion` changes nothing in them.
BEFORE_PTX = ("ttir", "ttgir", "llir")
#: Their recent results, by input and options: texts by stage, and additions to the metadata.
_GIVEN: OrderedDict[str, tuple[dict[str, str], dict[str, Any]]] = OrderedDict()
LATELY = 16
#: The entry of a kernel's metadata that has the digests of the libraries given to the compiler, by name.
LINKED = "linked"


def _once(
    backend: Any = None, stages: Any = None, options: Any = None, language: Any = None, capability: Any = None
) -> tuple[str, str]:
    """Triton's hook that may exchange the stages of a compilation: the digests of the libraries join the metadata, and
    the stages that a kernel has in common with and without contraction are passed once. Called without arguments it
    adds to the key of the cache."""
    if stages is None:
        return LINKED, LINKED
    first = next(iter(stages))
    stages[first] = functools.partial(_digested, stages[first], options)
    if tuple(stages)[: len(BEFORE_PTX) + 1] != (*BEFORE_PTX, "ptx"):
        return LINKED, LINKED
    told = str(sorted((k, str(v)) for k, v in vars(options).items() if k != "enable_fp_fusion"))
    state: dict[str, Any] = {}

    def passed(name: str, stage: Callable[[Any, dict[str, Any]], Any], module: Any, metadata: dict[str, Any]) -> Any:
        if name == BEFORE_PTX[0]:
            text = f"{backend.target} {capability} {told} {module}"
            state["key"], state["before"], state["texts"] = (
                hashlib.sha256(text.encode()).hexdigest(),
                dict(metadata),
                {},
            )
        if known := _GIVEN.get(state["key"]):
            metadata |= known[1]
            return known[0][name]
        found = stage(module, metadata)
        state["texts"][name] = str(found)
        if name == BEFORE_PTX[-1]:
            new = {k: v for k, v in metadata.items() if k not in state["before"] or state["before"][k] != v}
            _GIVEN[state["key"]] = state["texts"], new
            while len(_GIVEN) > LATELY:
                _GIVEN.popitem(last=False)
        return found

    stages.update({name: functools.partial(passed, name, stages[name]) for name in BEFORE_PTX})
    return LINKED, LINKED


def _digested(stage: Callable[[Any, dict[str, Any]], Any], options: Any, module: Any, metadata: dict[str, Any]) -> Any:
    """The stage, which also notes the libraries: a path in cached metadata may be another installation's, now gone."""
    given = sorted(dict(options.extern_libs or ()).items())
    metadata[LINKED] = {name: hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] for name, path in given}
    return stage(module, metadata)


def unwatched(execute: Callable[P, R]) -> Callable[P, R]:
    """The function outside torch's modes: it does the device's work, or records it, and not the lowering's."""

    @functools.wraps(execute)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        from torch._C import DisableTorchFunction
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes(), DisableTorchFunction():
            return execute(*args, **kwargs)

    return run


class Launcher:
    """What Triton calls to launch a kernel. It may outlive the driver that made it, because Triton keeps it with the
    code."""

    def __init__(self, source: Any, metadata: Any) -> None:
        from triton.runtime.cache import get_cache_manager

        self.metadata = metadata
        self.kinds = {name: kind for name, kind in source.signature.items() if kind != "constexpr"}
        self.names = list(source.signature)
        group = get_cache_manager(metadata.hash).get_group(f"{source.name[:150]}.json") or {}
        paths = [Path(path) for path in group.values()]
        self.files = {path.suffix[1:]: path for path in paths}

    def launch(self, target: str, grid: tuple[int, int, int], rest: Sequence[Any]) -> Launch:
        """Of what Triton passes after the grid: stream, function, metadata, hooks, arguments."""
        if strange := [kind for kind in self.kinds.values() if not isinstance(kind, str) or ":" in kind]:
            told = f"{self.metadata.name} has a parameter of type {strange[0]}"
            raise Unsupported(f"{told}; a virtual device takes tensors and numbers")
        names = self.names if len(rest) - 6 == len(self.names) else list(self.kinds)  # with compile-time ones or not
        if len(rest) - 6 != len(names):
            raise Unsupported(f"{self.metadata.name} is launched with {len(rest) - 6} arguments for {len(names)}")
        values = dict(zip(names, rest[6:], strict=True))
        arguments = tuple(Argument(name, kind, values[name]) for name, kind in self.kinds.items())
        return Launch(self.metadata.name, target, grid, arguments, self.metadata, self.files)


@functools.cache
def _driver() -> type:
    """The class, made when Triton is there to inherit from."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase
    from triton.runtime import driver

    class Caught(Launcher):
        def __call__(self, x: int, y: int, z: int, *rest: Any) -> None:
            active = driver.active
            active.launched(self.launch(active.target, (x, y, z), rest))

    class Described(DriverBase):  # type: ignore[misc]
        launcher_cls = Caught

        def __init__(self, target: str, launched: Callable[[Launch], None]) -> None:
            self.target, self.launched, self.utils = target, launched, self

        @classmethod
        def is_active(cls) -> bool:
            return False

        def map_python_to_cpp_type(self, ty: str) -> str:
            raise NotImplementedError

        def get_current_target(self) -> Any:
            return GPUTarget(*TARGETS[self.target])

        def get_current_device(self) -> str:
            """Triton caches compiled kernels by device: each target has its own number, which no real device has."""
            return f"described {self.target}"

        def set_current_device(self, device: Any) -> None:
            pass

        def get_current_stream(self, device: Any) -> int:
            return 0

        def get_active_torch_device(self) -> Any:
            import torch

            return torch.device("cpu")

        def get_benchmarker(self) -> Callable[..., list[float]]:
            """All configurations of an autotuner count as equally fast, so the first is taken."""

            def measured(call: Callable[[], Any], quantiles: Any = None, **kwargs: Any) -> list[float]:
                call()
                return [1.0] * len(quantiles or [0.5])

            return measured

        def get_device_properties(self, device: str) -> dict[str, int]:
            return {"max_shared_mem": SHARED.get(self.target, LDS), "multiprocessor_count": 132, "warpSize": 32}

        def load_binary(self, name: str, kernel: Any, shared: int, device: str) -> tuple[None, None, int, int, int]:
            """Module, function, registers, spills, threads of a block at most."""
            return None, None, 0, 0, 1024

    return Described
