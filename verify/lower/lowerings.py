"""Lowerings: the ways a kernel is computed, as callables of tensors. Launching and checking are in
`verify.workers.launch`.

Importing this module imports neither torch nor triton; a lowering's `build` and `reason` do.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import errno
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify import backends
from verify.backends import Backend
from verify.facts.kernel import Composite, Kernel, Scalars, Spelling, UsageError, suggest
from verify.judge.ledger import not_run
from verify.processes.start import uninterrupted
from verify.virtual import keep
from verify.virtual.compile import Unsupported

if TYPE_CHECKING:
    import torch

    from verify.families.composite import Problem
    from verify.numbers.orders import Order

Call = Callable[..., "torch.Tensor"]


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM)


class NotLowered(Exception):
    """A lowering turned out, on its first call, not to exist for its target; the message is the reason for not-run."""


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
    ready: Callable[[Target, float], bool] = lambda target, seconds: True

    def limit(self, target: Target) -> int | None:
        """The most elements worth giving it in this spelling, or None."""
        layout, launches = target.layout, target.backend.launches
        limits = [self.max_elements, layout.max_elements if layout else None]
        if layout and layout.width and launches is not None:
            limits.append(layout.width * launches)
        return min((limit for limit in limits if limit is not None), default=None)


def _module(name: str) -> Any:
    """A module of this project, with what it needs: an interrupt waits, since Triton is half there afterwards."""
    if name in sys.modules:
        return sys.modules[name]
    with uninterrupted():
        return importlib.import_module(name)


def lowerings(kernel: Kernel | Composite) -> tuple[Lowering, ...]:
    """All registered lowerings of `kernel`, the reference (`eager`) first."""
    found: tuple[Lowering, ...]
    if isinstance(kernel, Composite):
        found = (*_module(kernel.implementations).lowerings(), *_metal_composites(kernel))
    else:
        found = (EAGER, INDUCTOR, INDUCTOR_STRICT, *_triton_lowerings(kernel), *_metal_lowerings(kernel))
    return tuple(map(_by_the_ledger, found))


def _by_the_ledger(one: Lowering) -> Lowering:
    """The lowering, absent too where the ledger says that its cells cannot run or a virtual device cannot execute
    it."""

    def reason(target: Target) -> str | None:
        virtual = backends.virtual(target.backend)
        if virtual is not None and (absent := virtual.lowering_unavailable(one.name)):
            return absent
        if absent := one.reason(target):
            return absent
        known = not_run(target.backend.name, lowering=one.name, kernel=target.kernel.name, dtype=target.dtype)
        return f"{known.reason} ({known.source})" if known else None

    return replace(one, reason=reason, build=lambda target: _here(target, one.name, one.build(target)))


def _here(target: Target, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call as made on the target's backend: a virtual device executes its launches on the CPU, and `--keep-code`
    keeps them in a folder."""
    virtual = backends.virtual(target.backend)
    kept = keep.folder() is not None
    if virtual is None and not kept:
        return call

    def run(*given: Any) -> Any:
        try:
            with contextlib.ExitStack() as around:
                if virtual:
                    around.enter_context(virtual.launching())
                if kept:
                    around.enter_context(keep.keeping(label))
                return call(*given)
        except Unsupported as why:
            raise NotLowered(str(why)) from why

    scalars = "".join(f" {key}={value!r}" for key, value in target.scalars.items())
    label = f"{target.kernel.name}{scalars} {target.dtype} {name} {target.spelling}"
    return run


def lowering_names(kernel: Kernel | Composite) -> tuple[str, ...]:
    if isinstance(kernel, Composite):
        return kernel.lowerings
    return tuple(lowering.name for lowering in lowerings(kernel))


# Layouts: the same elements by another path through the framework.


@dataclass(frozen=True)
class Layout:
    """How inputs lie in memory: `arrange(call)` is `call` on rearranged inputs, its outputs in their order.

    `max_elements` is the largest domain for which that is quick. width: elements of a launch (0: all at once).
    """

    arrange: Callable[[Call], Call]
    max_elements: int | None = None
    width: int = 0


def _strided(call: Call) -> Call:
    """Each input is every other element of a buffer of twice its size."""
    import torch

    def view(tensor: torch.Tensor) -> torch.Tensor:
        return torch.stack([tensor, tensor], dim=-1)[..., 0]

    return lambda *tensors: call(*map(view, tensors))


def _transposed(call: Call) -> Call:
    """Inputs as matrices, every second one stored by columns, so that no order of the loops is contiguous for all."""

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        size = tensors[0].numel()
        rows = 64
        matrices = [_padded(tensor, -(-size // rows) * rows).view(rows, -1) for tensor in tensors]
        matrices[1::2] = [matrix.t().contiguous().t() for matrix in matrices[1::2]]
        return call(*matrices).reshape(-1)[:size]

    return run


def _broadcast(call: Call) -> Call:
    """The first input repeated along rows of 9, the others expanded along them with stride 0.

    Row i's column i mod 9 is the output: vector lanes and tail elements alternate.
    """
    import torch

    columns = 9

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        first, *others = (tensor.unsqueeze(-1).expand(-1, columns) for tensor in tensors)
        index = torch.arange(tensors[0].numel(), device=tensors[0].device) % columns
        return call(first.contiguous(), *others).gather(1, index.unsqueeze(-1)).squeeze(-1)

    return run


def _sliced(width: int) -> Callable[[Call], Call]:
    """Slices of `width` elements, one call each."""

    def arrange(call: Call) -> Call:
        import torch

        def run(*tensors: torch.Tensor) -> torch.Tensor:
            slices = zip(*(torch.split(tensor, width) for tensor in tensors), strict=True)
            return torch.cat([call(*inputs) for inputs in slices])

        return run

    return arrange


def _padded(tensor: torch.Tensor, size: int) -> torch.Tensor:
    import torch

    return torch.cat([tensor, tensor[-1:].expand(size - tensor.numel())])


#: By the name that a Spelling's `layout` gives. A vector holds at least 8 elements, so 7 take the scalar tail alone.
LAYOUTS: Mapping[str, Layout] = {
    "strided": Layout(_strided),
    "transposed": Layout(_transposed),
    "broadcast": Layout(_broadcast, max_elements=1 << 20),
    "tail": Layout(_sliced(7), max_elements=1 << 14, width=7),
    "size-one": Layout(_sliced(1), max_elements=1 << 11, width=1),
}


def _laid_out(target: Target, call: Call) -> Call:
    """`call` under the layout of the target's spelling. One-dimensional inputs."""
    return target.layout.arrange(call) if target.layout else call


def _inapplicable(target: Target) -> str | None:
    if absent := target.backend.dtype_unavailable(target.dtype):
        return absent
    if target.call.applies(target.scalars):
        return None
    return f"the spelling {target.spelling!r} does not exist for the scalars {dict(target.scalars)}"


def _by_name(target: Target) -> Call:
    """The spelling's call, given tensors by position."""
    import torch

    call, scalars, names = target.call.call, target.scalars, target.kernel.tensors(target.scalars)
    order = target.kernel.inputs

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        values = {**dict(zip(names, tensors, strict=True)), **scalars}
        result: torch.Tensor = call(torch, **{name: values[name] for name in order})
        return result

    return run


# PyTorch: eager, and Inductor with and without its numerics flags.


def _build_eager(target: Target) -> Call:
    call = _by_name(target)

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        try:
            return call(*tensors)
        except NotImplementedError as error:
            raise NotLowered(f"torch has no such operator for this device: {describe(error)}") from error

    return _laid_out(target, run)


def _inductor_reason(target: Target) -> str | None:
    if absent := _inapplicable(target) or compile_disabled():
        return absent
    if (virtual := backends.virtual(target.backend)) is None:
        return target.backend.inductor_unavailable()
    call = virtual.inductor(_by_name(target), {})
    return call if isinstance(call, str) else None


def compile_disabled() -> str | None:
    """Variables under which torch.compile runs eager code; the second does so silently (torch 2.13)."""
    for variable in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        if os.environ.get(variable, "0") == "1":
            return f"torch.compile is disabled by the environment variable {variable}"
    return None


def _compiler(flags: Callable[[Target], dict[str, Any]]) -> Callable[[Target], Call]:
    """A build function that compiles with Inductor under the options `flags`."""

    def build(target: Target) -> Call:
        if virtual := backends.virtual(target.backend):
            call = virtual.inductor(_by_name(target), flags(target))
            assert not isinstance(call, str)
            return _laid_out(target, call)
        compiled = compile_apart(_by_name(target), f"{target.kernel.name}_{target.dtype}", flags(target))
        seen: set[tuple[tuple[torch.Size, tuple[int, ...]], ...]] = set()

        def run(*tensors: torch.Tensor) -> torch.Tensor:
            signature = tuple((tensor.shape, tensor.stride()) for tensor in tensors)
            if signature in seen:
                return compiled(*tensors)  # type: ignore[no-any-return]
            with first_call():
                result = compiled(*tensors)
            seen.add(signature)
            return result  # type: ignore[no-any-return]

        return _laid_out(target, run)

    return build


def compile_apart(function: Callable[..., Any], name: str, options: dict[str, Any]) -> Callable[..., Any]:
    """`function` under torch.compile, with a code object of its own: Dynamo's cache, guards and recompilation limit
    belong to the code object."""
    import torch

    assert isinstance(function, types.FunctionType)
    code = function.__code__.replace(co_name=name)
    fresh = types.FunctionType(code, function.__globals__, name, None, function.__closure__)
    return torch.compile(fresh, fullgraph=True, dynamic=False, options=options)


def compiled_for_problem(
    target: Target, function: Callable[[Target, Problem], Call], options: Callable[[Target], dict[str, Any]]
) -> Callable[[Problem], dict[str, torch.Tensor]]:
    """`function(target, problem)` of the problem's tensors, the one output of a composite kernel. It is compiled by
    Inductor when first called and then kept: one build serves one problem."""
    compiled: list[Call] = []

    def run(problem: Problem) -> dict[str, torch.Tensor]:
        given = problem.tensors.values()
        if compiled:
            return {"": compiled[0](*given)}
        name = f"{target.kernel.name}_{target.dtype}"
        compiled.append(compile_apart(function(target, problem), name, options(target)))
        with first_call():
            return {"": compiled[0](*given)}

    return run


def _full(error: BaseException | None) -> bool:
    """Whether something failed since the machine has no room left, or nothing can be written there."""
    while error is not None:
        if getattr(error, "errno", None) in FULL or os.strerror(errno.ENOSPC) in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def first_call(told: Callable[[BaseException], str] | None = None) -> Iterator[None]:
    """Around a call that compiles. Raises NotLowered where that fails (`told`: the failure in words) or Inductor
    generated no kernel."""
    from torch._dynamo import config
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor import metrics

    metrics.reset()
    try:
        with (
            _libdevice_path_restored(), _quiet(), _guards_untimed(),
            config.patch(recompile_limit=1024, suppress_errors=False),
        ):  # fmt: skip
            yield
    except TorchDynamoException as error:
        if _full(error):
            raise  # which says nothing about the lowering
        raise NotLowered(f"torch.compile fails: {(told or describe)(error)}") from error
    if not metrics.generated_kernel_count:
        raise NotLowered("Inductor generated no kernel: it calls aten, so this would measure eager")


@contextlib.contextmanager
def _guards_untimed() -> Iterator[None]:
    """A context without Dynamo's timing of its guards, for which it flushes the processor's caches: 20 ms a compilation
    (torch 2.13, _dynamo/guards.py)."""
    guards: Any = importlib.import_module("torch._dynamo.guards")
    before = getattr(guards, "profile_guard_manager", None)
    if before is None:  # a torch that has another way
        yield
        return
    guards.profile_guard_manager = lambda *_: 0.0
    try:
        yield
    finally:
        guards.profile_guard_manager = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A context without torch's log of a failed compilation, a page of stack traces; the exception says what failed."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _libdevice_path_restored() -> Iterator[None]:
    """Restore Triton's libdevice path, which Inductor sets for `use_pytorch_libdevice` in the whole process (torch
    2.13, _inductor/runtime/compile_tasks.py), and so for every later kernel without that flag."""
    before = os.environ.get("TRITON_LIBDEVICE_PATH")
    scope: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if importlib.util.find_spec("triton"):
        from triton import knobs

        scope = knobs.nvidia.scope()
    try:
        with scope:
            yield
    finally:
        os.environ.pop("TRITON_LIBDEVICE_PATH", None)
        if before is not None:
            os.environ["TRITON_LIBDEVICE_PATH"] = before


#: Every Inductor option, of any torch since 2.11, that chooses between roundings, with the value nearest to what
#: the program says. Those that the installed torch has are set, also where a backend ignores them.
STRICT_OPTIONS: Mapping[str, Any] = {
    "numerics": "strict",  # 2.14
    "strict_signed_zero": True,  # 2.14
    "eager_numerics.division_rounding": True,
    "eager_numerics.disable_ftz": True,
    "eager_numerics.use_pytorch_libdevice": True,  # 2.13
    "emulate_precision_casts": True,
    "emulate_precision_casts_on_saved_tensors": True,  # 2.13
    "use_fast_math": False,
    "cpp.enable_floating_point_contract_flag": "off",
    "cpp.enable_unsafe_math_opt_flag": False,
    "cutlass.use_fast_math": False,
    "rocm.use_fast_math": False,
    "rocm.flush_denormals": False,
}


def default_flags(target: Target) -> dict[str, Any]:
    """Options that choose no rounding, for every Inductor lowering: compile in this process, whose Triton settings are
    known, rather than in workers that keep the settings of their start."""
    return {"compile_threads": 1}


def strict_options(target: Target) -> dict[str, Any]:
    from torch._inductor import config

    known = config.get_config_copy()
    return {**{name: value for name, value in STRICT_OPTIONS.items() if name in known}, **default_flags(target)}


def strict_flags(target: Target) -> dict[str, Any]:
    """The options, and those of them that the backend says do nothing on it."""
    options = strict_options(target)
    return {**options, "without_effect": [name for name in options if name in target.backend.inert_options]}


def _inductor_ftz(target: Target) -> bool:
    reflected = target.kernel.name in _names().INDUCTOR_REFLECTS_FTZ and _flushes(target, "default")
    return reflected or device_flushes(target)


def device_flushes(target: Target) -> bool:
    return _flushes(target, "arithmetic")


EAGER = Lowering("eager", _build_eager, _inapplicable, ftz=device_flushes)
INDUCTOR = Lowering(
    "inductor", _compiler(default_flags), _inductor_reason, ftz=_inductor_ftz, flags=default_flags, each_shape=True
)
INDUCTOR_STRICT = Lowering(
    "inductor-strict",
    _compiler(strict_options),
    _inductor_reason,
    ftz=device_flushes,
    flags=strict_flags,
    each_shape=True,
)


# Triton: hand-written kernels, library functions, the interpreter. `verify.kernels` is imported by name: a kernel's
# facts build on this module, not it on them.


def _names() -> Any:
    """The names of the Triton lowerings, in `kernels/triton/__init__.py`."""
    return _module("verify.kernels.triton")


def _loops() -> Any:
    return _module("verify.kernels.triton.elementwise")


def _triton_lowerings(kernel: Kernel) -> tuple[Lowering, ...]:
    if kernel.triton is None:
        return ()
    names = [
        (implementation, variant, f"{implementation}{suffix}")
        for implementation in _names().LIBRARIES.get(kernel.name, ())
        for suffix, variant in _names().VARIANTS.items()
    ]
    return (
        _triton_lowering(kernel, "triton", "own", "triton"),
        *(_triton_lowering(kernel, *name) for name in names),
        Lowering(
            "triton-interpreter", _build_interpreted, _interpreter_reason, max_elements=1 << 22, one_spelling=True
        ),
    )


def triton_options(target: Target, variant: str = "own") -> dict[str, Any]:
    """Triton's compile options for `variant` (`Backend.triton_options`). Raises UsageError where it does not exist."""
    given = target.backend.triton_options(variant)
    if isinstance(given, str):
        raise UsageError(given)
    return dict(given)


def no_triton(target: Target, variant: str = "own") -> str | None:
    """Why `variant` of Triton's code does not exist on the target's backend, or None."""
    given = target.backend.triton_options(variant)
    if isinstance(given, str):
        return given
    return None if importlib.util.find_spec("triton") else "triton is not installed"


def _triton_lowering(kernel: Kernel, implementation: str, variant: str, name: str) -> Lowering:
    def build(target: Target) -> Call:
        operation, options = _operation(target, implementation), triton_options(target, variant)
        call: Call = _loops().compiled(operation, _scalar(target), options)
        return call

    def reason(target: Target) -> str | None:
        absent = _names().ABSENT.get((kernel.name, implementation))
        return absent or no_triton(target, variant) or _triton_reason(target, implementation)

    def ftz(target: Target) -> bool:
        return (kernel.name, implementation) in _names().REFLECTS_FTZ and _flushes(target, variant)

    return Lowering(name, build, reason, ftz=ftz, flags=partial(triton_options, variant=variant), one_spelling=True)


def _build_interpreted(target: Target) -> Call:
    call: Call = _loops().interpreted(_operation(target, "triton"), _scalar(target))
    return call


def _interpreter_reason(target: Target) -> str | None:
    return no_triton(target, "interpreter") or _triton_reason(target, "triton")


def _triton_reason(target: Target, implementation: str) -> str | None:
    """Why the hand-written kernels do not serve this target, whatever the backend."""
    if target.spelling != target.default_spelling:
        return f"a Triton kernel has one calling convention; it is listed under {target.default_spelling!r}"
    if (implementation, target.pattern) not in _operations(target):
        scalars = ", ".join(target.scalars) or "none"
        return f"{target.kernel.triton} has no {implementation} kernel with these scalars: {scalars}"
    return None


def _operations(target: Target) -> Mapping[tuple[str, str], Any]:
    operations: Mapping[tuple[str, str], Any] = _module(str(target.kernel.triton)).OPERATIONS
    return operations


def _operation(target: Target, implementation: str) -> Any:
    return _operations(target)[implementation, target.pattern]


def _scalar(target: Target) -> float | None:
    """The case's scalar. A device function takes one at most, which `pattern` has made sure of."""
    return next((float(value) for value in target.scalars.values()), None)


def _flushes(target: Target, variant: str) -> bool:
    """Whether a float32 function flushes what the dtype can hold: float16's subnormals are normal in float32."""
    return target.dtype in ("bfloat16", "float32") and target.backend.flushes(variant)


# Metal: hand-written kernels, under safe and under fast math.


def _metal_lowerings(kernel: Kernel) -> tuple[Lowering, ...]:
    module = f"verify.kernels.metal.{kernel.name}"
    if importlib.util.find_spec(module) is None:
        return ()
    modes: Mapping[str, str] = _module("verify.kernels.metal").MODES
    return tuple(_metal_lowering(module, name, mode) for name, mode in modes.items())


def _metal_composites(kernel: Composite) -> tuple[Lowering, ...]:
    module = f"verify.kernels.metal.{kernel.name}"
    if importlib.util.find_spec(module) is None:
        return ()
    found: tuple[Lowering, ...] = _module(module).lowerings()
    return found


def _metal_lowering(module: str, name: str, mode: str) -> Lowering:
    def build(target: Target) -> Call:
        compiler = target.backend.metal_compiler()
        if isinstance(compiler, str):
            raise UsageError(compiler)
        operation = _module(module).OPERATIONS[target.pattern](_scalar(target))
        launched = _module("verify.kernels.metal.elementwise")
        call: Call = launched.compiled(operation, target.pattern.count("t"), target.dtype, mode, compiler)
        return call

    def reason(target: Target) -> str | None:
        compiler = target.backend.metal_compiler()
        if absent := (compiler if isinstance(compiler, str) else None) or _inapplicable(target):
            return absent
        if target.spelling != target.default_spelling:
            return f"a Metal kernel has one calling convention; it is listed under {target.default_spelling!r}"
        if target.pattern not in _module(module).OPERATIONS:
            return f"{module} has no kernel with these scalars: {', '.join(target.scalars) or 'none'}"
        return None

    return Lowering(
        name, build, reason, ftz=device_flushes, flags=lambda target: {"math_mode": mode}, one_spelling=True
    )


# A user's own function.


def user_lowering(
    text: str, elsewhere: Callable[[Target], Call] | None = None, function: Callable[..., Any] | None = None
) -> Lowering:  # fmt: skip
    """The lowering 'FILE.py:FUNCTION': called with all of `kernel.inputs`, scalars as floats, in the default spelling
    and in every layout; with an output to write where it has a parameter `out` without a default.

    elsewhere: builds it without importing the file here. function: the function itself; `text` is then only its name.
    Raises UsageError, at once, for what is wrong with the file; in `build` Unsuited, where its signature fits no case
    of the kernel, and NotLowered where it fits another case.
    """
    label, function, flags = _found(text, elsewhere, function)

    def build(target: Target) -> Call:
        if function is None:
            assert elsewhere is not None
            return elsewhere(target)
        import numpy as np
        import torch

        names, scalars = target.kernel.tensors(target.scalars), target.scalars
        positional, named = _arguments(function, label, target)

        def run(*tensors: torch.Tensor) -> Any:
            values = {**dict(zip(names, tensors, strict=True)), **scalars}
            if "out" in (*positional, *named):
                shape = np.broadcast_shapes(*(t.shape for t in tensors))
                values["out"] = torch.empty(shape, dtype=tensors[0].dtype, device=tensors[0].device)
            result = function(*(values[name] for name in positional), **{name: values[name] for name in named})
            return values.get("out") if result is None else result

        return _here(target, label, _laid_out(target, run))

    def reason(target: Target) -> str | None:
        if target.spelling != target.default_spelling and target.layout is None:
            return f"{label} is called as {target.default_spelling!r} and in every layout, not as {target.spelling!r}"
        return target.backend.dtype_unavailable(target.dtype)

    return Lowering(label, build, reason, ftz=device_flushes, flags=lambda target: flags)


def _found(
    text: str, elsewhere: Any, function: Callable[..., Any] | None
) -> tuple[str, Callable[..., Any] | None, dict[str, Any]]:  # fmt: skip
    """Name, function (None: elsewhere) and flags of a user's own lowering."""
    if function is not None:
        return text, function, {"process": "the caller's"}
    label = _label(text)
    if elsewhere:
        examine(text)
    return label, None if elsewhere else user_function(text)[1], {"source": source_digest(text)}


def user_composite(
    text: str, order: Order | None = None, elsewhere: Callable[[Target], Callable[[Any], Any]] | None = None,
    function: Callable[..., Any] | None = None,
) -> Lowering:  # fmt: skip
    """The user's FILE.py:FUNCTION for composite kernels: called with the kernel's inputs by position and, where it has
    parameters of their names, by keyword with the problem's other tensors, the setting's parameters, the
    scalars and what the kernel declares as `keywords`. order: see `Lowering`; elsewhere, function: see
    `user_lowering`."""
    label, function, flags = _found(text, elsewhere, function)
    flags |= {} if order is None else {"algorithm": str(order)}

    def build(target: Target) -> Callable[[Any], Any]:
        if function is None:
            assert elsewhere is not None
            return elsewhere(target)
        inputs, outputs = target.kernel.inputs, target.kernel.outputs

        def run(problem: Any) -> dict[str, Any]:
            others = {name: t for name, t in problem.tensors.items() if name not in inputs}
            given = {**problem.parameters, **problem.scalars, **problem.keywords, **others}
            tensors, signature = [problem.tensors[name] for name in inputs], inspect.signature(function)
            keywords = {name: value for name, value in given.items() if name in signature.parameters}
            try:
                signature.bind_partial(*tensors)  # what it asks for beside them, another setting may have
            except TypeError:
                told = f"{label} takes {signature}, but is called by position with the inputs of {target.kernel.name}"
                raise Unsuited(f"{told}: {', '.join(inputs)}") from None
            result = function(*tensors, **keywords)
            if isinstance(result, Mapping):
                return dict(result)
            if not isinstance(result, tuple | list):
                result = (result,)
            return dict(zip(outputs, result, strict=False))

        return _here(target, label, run)

    return Lowering(label, build, lambda target: None, flags=lambda target: flags, order=order)


#: Files beside a user's own that its extensions may be built from.
BUILT = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".metal", ".so")


def sources(text: str) -> dict[str, Path]:
    """The file of 'FILE.py:FUNCTION', what it imports from its folder, directly or not, and what extensions there are
    built from. Raises UsageError where there is no such file."""
    _label(text)
    path = Path(text.rpartition(":")[0])
    folder, found = path.resolve().parent, dict[str, Path]()
    waiting = [path, *(one for one in folder.iterdir() if one.suffix in BUILT)]
    while waiting:
        one = waiting.pop()
        name = os.path.relpath(one.resolve(), folder)
        if name in found or not one.is_file():
            continue
        found[name] = one
        if one.suffix != ".py":
            continue
        with contextlib.suppress(SyntaxError, ValueError), warnings.catch_warnings():  # importing it will tell
            warnings.simplefilter("ignore")
            for node in ast.walk(ast.parse(one.read_bytes())):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    waiting += _named(node, folder, one)
    return dict(sorted(found.items()))


def _named(node: ast.Import | ast.ImportFrom, folder: Path, file: Path) -> Iterator[Path]:
    """Where an import may find what it names, but for this project's own."""
    base, module = folder, ""
    if isinstance(node, ast.ImportFrom):
        base, module = (file.parents[node.level - 1] if node.level else folder), node.module or ""
    for alias in node.names:
        words = f"{module}.{alias.name}".strip(".").split(".")
        if words[0] != "verify":
            for k in range(1, len(words) + 1):
                place = base.joinpath(*words[:k])
                yield from (place.with_suffix(".py"), place / "__init__.py")


def source_digest(text: str) -> str:
    """`digest_of` of `sources`. Raises as that does."""
    return digest_of({name: path.read_bytes() for name, path in sources(text).items()})


def digest_of(files: Mapping[str, bytes]) -> str:
    """16 hex digits of files' names and contents, in the order of the names."""
    hasher = hashlib.sha256()
    for name, data in sorted(files.items()):
        hasher.update(f"{name} {len(data)}\n".encode(errors="surrogateescape") + data)
    return hasher.hexdigest()[:16]


def unknown(pattern: str, known: list[str] | tuple[str, ...]) -> UsageError:
    """The mistake of naming a lowering that is none."""
    own = "; a function of your own is FILE.py:FUNCTION" if ":" in pattern or "/" in pattern else ""
    return UsageError(suggest("lowering", pattern, known) + own)


def _label(text: str) -> str:
    """The name of 'FILE.py:FUNCTION' in reports. Raises UsageError where there is no such file."""
    path, separator, name = text.rpartition(":")
    if not separator or not path.endswith(".py") or not name:
        raise UsageError(f"lowering {text!r} names no function: expected FILE.py:FUNCTION")
    if not Path(path).is_file():
        told = "is a directory; expected a Python file" if Path(path).is_dir() else "does not exist"
        raise UsageError(f"lowering file {path} {told}")
    return f"{Path(path).name}:{name}"


def user_function(text: str) -> tuple[str, Callable[..., Any]]:
    """Label and function of 'FILE.py:FUNCTION'. Raises UsageError for what is wrong with the file."""
    label, path, name = _label(text), Path(text.rpartition(":")[0]), text.rpartition(":")[2]
    module = _import(path)
    function = getattr(module, name, None)
    if not callable(function):
        raise _absent(path, name, (key for key, value in vars(module).items() if inspect.isroutine(value)))
    return label, function


def _absent(path: Path, name: str, functions: Iterable[str]) -> UsageError:
    known = sorted(key for key in functions if key[0] != "_")
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UsageError(f"{path} has no function {name!r}{hint} (it has: {', '.join(known) or 'none'})")


#: Words of a file that may define names which the file does not spell out.
DYNAMIC = frozenset(
    {"__dict__", "__getattr__", "eval", "exec", "f_globals", "f_locals", "globals", "locals", "modules", "setattr",
     "vars"}
)  # fmt: skip


def examine(text: str) -> None:
    """Raise UsageError for what is certainly wrong with 'FILE.py:FUNCTION', without running any of it."""
    _label(text)
    path, name = Path(text.rpartition(":")[0]), text.rpartition(":")[2]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = path.read_bytes()
            tree = ast.parse(data, str(path))
            compile(data, str(path), "exec", dont_inherit=True)  # also what the grammar alone does not tell
    except SyntaxError as error:
        raise UsageError(f"{path} does not import: {_unparsed(path, error)}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} does not import: {describe(error, path)}") from None
    words = {value for node in ast.walk(tree) for _, value in ast.iter_fields(node) if isinstance(value, str)}
    words |= {word for node in ast.walk(tree) if isinstance(node, ast.Global) for word in node.names}
    star = any(isinstance(node, ast.alias) and node.name == "*" for node in ast.walk(tree))
    if name not in words and not star and not words & DYNAMIC:
        functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        raise _absent(path, name, functions)


def _unparsed(path: Path, error: SyntaxError) -> str:
    """Where a file stops being Python, and why; a file that cannot be decoded has no such line."""
    return f"{path.name}:{error.lineno}: {error.msg}" if error.lineno else str(error.msg)


class _Source(importlib.machinery.SourceFileLoader):
    """Never cached bytecode: Python knows it by size and second, and so runs the old text after a quick edit."""

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _import(path: Path) -> types.ModuleType:
    """Import a user's file as Python would run it: its folder first on the path while it loads."""
    label = f"ulproof_user_{path.stem}_{abs(hash(str(path.resolve()))):x}"
    spec = importlib.util.spec_from_file_location(label, path, loader=_Source(label, str(path)))
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module  # torch.compile, triton.jit and dataclasses look functions up there
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{path} does not import: {_unparsed(Path(error.filename or path), error)}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} does not import: {describe(error, path)}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
        if sys.exc_info()[0] is not None:
            sys.modules.pop(label, None)
    return module


def _arguments(function: Callable[..., Any], label: str, target: Target) -> tuple[list[str], list[str]]:
    """The inputs (and 'out') that a function takes by position and by name, from its signature alone."""
    kernel, scalars = target.kernel, target.scalars
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without one: the first call will tell
        return list(kernel.inputs), []
    if found := _fitted(signature, kernel, scalars):
        return found
    told = f"{label} takes {signature}"
    if any(_fitted(signature, kernel, case) for case in kernel.cases):
        told += f", which does not fit {', '.join(kernel.inputs)} where "
        texts = [f"{', '.join(kernel.tensors(scalars))} are tensors", f"{', '.join(scalars)} Python numbers"]
        raise NotLowered(told + " and ".join(texts[: 1 + bool(scalars)]))
    raise Unsuited(
        f"{told}, but is called by position or by name with the {len(kernel.inputs)} inputs of {kernel.name}: "
        f"{', '.join(kernel.inputs)}"
    )


def _fitted(signature: inspect.Signature, kernel: Kernel, scalars: Scalars) -> tuple[list[str], list[str]] | None:
    """How the signature takes the inputs of a case; None where it does not. A scalar that has the operation's default
    may be left out."""
    parameters, tensors = signature.parameters, kernel.tensors(scalars)
    out = parameters.get("out") if "out" not in kernel.inputs else None
    writes = ["out"] if out is not None and out.default is inspect.Parameter.empty else []
    omitted = {one.omits for one in kernel.spellings.values() if one.omits and one.applies(scalars)}
    for left_out in (set(), omitted):
        given = [name for name in kernel.inputs if name not in left_out]
        positional: list[str] = []
        if all(name in parameters and parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY for name in given):
            named = [*given, *writes]
        else:
            by_name = [one.name for one in parameters.values() if one.kind is inspect.Parameter.KEYWORD_ONLY]
            named = [name for name in (*given, *writes) if name in by_name]
            waiting = [name for name in given if name not in named]
            for one in parameters.values():
                if one.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
                    break
                if one.name in writes or waiting:
                    positional.append(one.name if one.name in writes else waiting.pop(0))
            positional += waiting
        try:
            bound = signature.bind(*positional, **{name: name for name in named}).arguments
        except TypeError:
            continue
        kinds = {value: _annotated(parameters[key].annotation) for key, value in bound.items() if value in given}
        if all(kind in ("", "tensor" if name in tensors else "number") for name, kind in kinds.items()):
            return positional, named
    return None


def _annotated(annotation: Any) -> str:
    """The kind of parameter that an annotation declares: 'tensor', 'number', or '' (none, or either)."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return {"Tensor": "tensor", "torch.Tensor": "tensor", "float": "number", "int": "number"}.get(text, "")


def describe(error: BaseException, path: Path | None = None) -> str:
    """One line: the exception's type and message, and its last line in `path` (anywhere by default)."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if path is None or Path(frame.filename) == path]
    place = f" ({Path(inside[-1].filename).name}, line {inside[-1].lineno})" if inside else ""
    text = ""
    with contextlib.suppress(Exception):  # an exception of the user's may have no text
        text = str(getattr(error, "error_message", None) or error)  # Triton's own text begins with source code
    message = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}{': ' + message if message else ''}{place}"
