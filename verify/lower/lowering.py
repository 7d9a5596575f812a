"""What a lowering is, and what it is built for. Launching and checking are in `verify.workers.launch`.

Importing this module imports neither torch nor triton; a lowering's `build` and `reason` do.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify import backends
from verify.backends import Backend
from verify.facts.kernel import Kernel, Scalars, Spelling, UsageError
from verify.lower.layouts import LAYOUTS, Layout
from verify.processes.start import uninterrupted
from verify.virtual import keep
from verify.virtual.compile import Fault, Unsupported

if TYPE_CHECKING:
    import torch

    from verify.numbers.orders import Order


Call = Callable[..., "torch.Tensor"]


class NotLowered(Exception):
    """A lowering turned out, on its first call, not to exist for its target; the message is the reason for not-run."""


class Breach(Exception):
    """A lowering broke its contract, as is seen where it is called; the message goes on from its name."""


class Unsuited(UsageError):
    """A user's function cannot be called with the inputs of any case of the kernel."""


@dataclass(frozen=True)
class Target:
    """What a lowering is built for: one case of one kernel, called one way, in one dtype, on one backend.

    kernel    a Kernel; a Composite for the lowerings of composite kernels
    spelling  how a Kernel is called; the name of a Composite's setting
    small     blocks that make shorter code of the same instructions, fewer of each, for `verify.walk.audit`: 0, those
              that run; 1, as long a side only as chooses between a matrix unit's instructions; 2, the least that its
              kernels take. `Lowering.flags` name the blocks where they are smaller
    """

    kernel: Any
    scalars: Scalars
    spelling: str
    dtype: str
    backend: Backend
    small: int = 0

    @property
    def call(self) -> Spelling:
        call: Spelling = self.kernel.spellings[self.spelling]
        return call

    @property
    def layout(self) -> Layout | None:
        """How the spelling arranges its inputs; None: contiguous."""
        return LAYOUTS[self.call.layout] if self.call.layout else None

    @property
    def default_spelling(self) -> str:
        kernel: Kernel = self.kernel
        return kernel.default_spelling(self.scalars)

    @property
    def pattern(self) -> str:
        """One letter an input: 't' where it is a tensor, 's' where it is a Python scalar."""
        return "".join("s" if name in self.scalars else "t" for name in self.kernel.inputs)


@dataclass(frozen=True)
class Lowering:
    """One way to compute a kernel.

    build(target)   a callable of the case's tensors, in the order of `kernel.inputs`; returns a
                    tensor of their dtype, broadcast shape and device
    reason(target)  why it does not exist for the target, or None
    ftz(target)     whether it is declared to flush subnormal operands and results to zero
    flags(target)   options that it was built with, for the report
    max_elements    the most elements worth giving it, where it is slow
    each_shape      whether it is compiled for each shape of its inputs
    one_spelling    whether it has one way to be called, and is listed under the default spelling alone
    order           in which it combines the terms of a row, where a user declares it of a lowering of their own
    compiles_here   whether Inductor compiles C++ for it, beside what is for a GPU
    text            FILE.py:FUNCTION as the user gave it, of a file's function; its `name` is without folders
    ready(target, seconds)  whether it can be launched within that time; starts getting ready. Raises UsageError for a
                            user's file that does not import
    """

    name: str
    build: Callable[[Target], Call]
    reason: Callable[[Target], str | None]
    ftz: Callable[[Target], bool] = lambda target: False
    flags: Callable[[Target], dict[str, Any]] = lambda target: {}
    max_elements: int | None = None
    one_spelling: bool = False
    each_shape: bool = False
    order: Order | None = None
    compiles_here: bool = False
    text: str = ""
    ready: Callable[[Target, float], bool] = lambda target, seconds: True

    def limit(self, target: Target) -> int | None:
        """The most elements worth giving it in this spelling, or None."""
        layout, launches = target.layout, target.backend.launches
        limits = [self.max_elements, layout.max_elements if layout else None]
        if layout and layout.width and launches is not None:
            limits.append(layout.width * launches)
        return min((limit for limit in limits if limit is not None), default=None)


def imported(name: str) -> Any:
    """A module of this project, with what it needs: an interrupt waits, since Triton is half there afterwards."""
    if name in sys.modules:
        return sys.modules[name]
    with uninterrupted():
        return importlib.import_module(name)


def here(target: Target, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call as made on the target's backend: a virtual device executes its launches on the CPU, and `--keep-code`
    keeps them in a folder."""
    virtual = backends.virtual(target.backend)
    kept = keep.folder() is not None and not isinstance(target.backend.triton_options("default"), str)
    if virtual is None and not kept:
        return call

    def run(*given: Any) -> Any:
        try:
            with contextlib.ExitStack() as around:
                launches = around.enter_context(virtual.launching()) if virtual else None
                if kept:
                    around.enter_context(keep.keeping(label))
                result = call(*given)
                if launches and not launches() and _numbers(result):
                    raise Unsupported("it launches no kernel, so that its numbers would be this machine's")
                return result
        except Unsupported as why:
            raise NotLowered(str(why)) from why
        except Fault as why:
            raise Breach(str(why)) from why

    scalars = "".join(f" {key}={value!r}" for key, value in target.scalars.items())
    label = f"{target.kernel.name}{scalars} {target.dtype} {name} {target.spelling}"
    return run


def _numbers(result: Any) -> bool:
    """Whether there is an element in what a lowering gave."""
    from torch.utils._pytree import tree_leaves

    return any(getattr(leaf, "numel", lambda: 1)() for leaf in tree_leaves(result))


def laid_out(target: Target, call: Call) -> Call:
    """`call` under the layout of the target's spelling. One-dimensional inputs."""
    return target.layout.arrange(call) if target.layout else call


def inapplicable(target: Target) -> str | None:
    if absent := target.backend.dtype_unavailable(target.dtype):
        return absent
    if target.call.applies(target.scalars):
        return None
    return f"the spelling {target.spelling!r} does not exist for the scalars {dict(target.scalars)}"


def by_name(target: Target) -> Call:
    """The spelling's call, given tensors by position."""
    import torch

    call, scalars, names = target.call.call, target.scalars, target.kernel.tensors(target.scalars)
    order = target.kernel.inputs

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        values = {**dict(zip(names, tensors, strict=True)), **scalars}
        result: torch.Tensor = call(torch, **{name: values[name] for name in order})
        return result

    return run


def device_flushes(target: Target) -> bool:
    return flushes(target, "arithmetic")


def scalar(target: Target) -> float | None:
    """The case's scalar. A device function takes one at most, which `pattern` has made sure of."""
    return next((float(value) for value in target.scalars.values()), None)


def flushes(target: Target, variant: str) -> bool:
    """Whether a float32 function flushes what the dtype can hold: float16's subnormals are normal in float32."""
    return target.dtype in ("bfloat16", "float32") and target.backend.flushes(variant)


def describe(error: BaseException, path: Path | None = None) -> str:
    """One line: the exception's type and message, and its last line in `path` (anywhere by default)."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if path is None or Path(frame.filename) == path]
    place = f" ({Path(inside[-1].filename).name}, line {inside[-1].lineno})" if inside else ""
    text = ""
    with contextlib.suppress(Exception):  # an exception of the user's may have no text
        text = str(getattr(error, "error_message", None) or error)  # Triton's own text begins with source code
    message = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if message.startswith("0 active drivers"):  # triton 3.7, runtime/driver.py
        message += " Triton finds no GPU here: --backend virtual-cuda or virtual-rocm predicts its kernels without one"
    return f"{type(error).__name__}{': ' + message if message else ''}{place}"
