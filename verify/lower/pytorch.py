"""PyTorch's lowerings: eager, and Inductor with and without its numerics flags."""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.machinery
import importlib.util
import logging
import os
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify import backends
from verify.lower import instructions
from verify.lower.lowering import (
    Call,
    Lowering,
    NotLowered,
    Target,
    by_name,
    describe,
    device_flushes,
    flushes,
    inapplicable,
    laid_out,
)
from verify.lower.triton import catalogue

if TYPE_CHECKING:
    import torch

    from verify.families.composite import Problem


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM)


def _build_eager(target: Target) -> Call:
    call = by_name(target)

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        try:
            return call(*tensors)
        except NotImplementedError as error:
            raise NotLowered(f"torch has no such operator for this device: {describe(error)}") from error

    return laid_out(target, run)


def _inductor_reason(target: Target) -> str | None:
    if absent := inapplicable(target) or compile_disabled():
        return absent
    if (virtual := backends.virtual(target.backend)) is None:
        return target.backend.inductor_unavailable()
    call = virtual.inductor(by_name(target), {})
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
            call = virtual.inductor(by_name(target), flags(target))
            assert not isinstance(call, str)
            return laid_out(target, call)
        compiled = compile_apart(by_name(target), f"{target.kernel.name}_{target.dtype}", flags(target))
        seen: set[tuple[tuple[torch.Size, tuple[int, ...]], ...]] = set()

        def run(*tensors: torch.Tensor) -> torch.Tensor:
            signature = tuple((tensor.shape, tensor.stride()) for tensor in tensors)
            if signature in seen:
                return compiled(*tensors)  # type: ignore[no-any-return]
            with first_call():
                result = compiled(*tensors)
            seen.add(signature)
            return result  # type: ignore[no-any-return]

        return laid_out(target, run)

    return build


def compile_apart(function: Callable[..., Any], name: str, options: dict[str, Any]) -> Callable[..., Any]:
    """`function` under torch.compile, with a code object of its own: Dynamo's cache, guards and recompilation limit
    belong to the code object."""
    import torch

    instructions.keep()
    assert isinstance(function, types.FunctionType)
    code = function.__code__.replace(co_name=name)
    fresh = types.FunctionType(code, function.__globals__, name, None, function.__closure__)
    return torch.compile(fresh, fullgraph=True, dynamic=False, options=options)


def prepare() -> None:
    """Compile a function in C++, unless that was done here: the first time Inductor asks which instructions there are
    and compiles a header, for which all other processes wait."""
    import torch
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    done = Path(default_cache_dir()) / f"ulproof-{torch.__version__}"
    if not done.exists():
        with first_call():
            compile_apart(lambda x: -x, "prepare", {"compile_threads": 1})(torch.zeros(64))
        done.touch()


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
    """A context without torch's log of a failed compilation, a page of stack traces, since the exception says what
    failed; without the autotuner's tables and Inductor's warnings, which are not the user's."""
    algorithms: Any = importlib.import_module("torch._inductor.select_algorithm")
    silent = {"PRINT_AUTOTUNE": False, "_log_autotune_choices_stats": lambda *_: None}
    given = {name: getattr(algorithms, name) for name in silent if hasattr(algorithms, name)}
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        for name in given:
            setattr(algorithms, name, silent[name])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\._inductor")
            yield
    finally:
        for name, value in given.items():
            setattr(algorithms, name, value)
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
    known, rather than in workers that keep the settings of their start; and those of the backend."""
    return {"compile_threads": 1, **target.backend.usual_options}


def strict_options(target: Target) -> dict[str, Any]:
    from torch._inductor import config

    known = config.get_config_copy()
    return {**{name: value for name, value in STRICT_OPTIONS.items() if name in known}, **default_flags(target)}


def strict_flags(target: Target) -> dict[str, Any]:
    """The options, and those of them that the backend says do nothing on it."""
    options = strict_options(target)
    return {**options, "without_effect": [name for name in options if name in target.backend.inert_options]}


def _inductor_ftz(target: Target) -> bool:
    reflected = target.kernel.name in catalogue().INDUCTOR_REFLECTS_FTZ and flushes(target, "default")
    return reflected or device_flushes(target)


EAGER = Lowering("eager", _build_eager, inapplicable, ftz=device_flushes)


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
