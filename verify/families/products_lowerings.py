"""Lowerings of matrix products: torch's own under each of its precision settings, Inductor's templates, Triton kernels.

Each takes a problem and gives its one output.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from verify.facts.kernel import DTYPES, NARROW
from verify.lower.lowering import Lowering, NotLowered, Target, describe
from verify.lower.pytorch import compile_disabled, compiled_for_problem, default_flags
from verify.lower.triton import no_triton, triton_options

if TYPE_CHECKING:
    import torch

    from verify.families.composite import Problem

Call = Callable[["Problem"], Any]  # {'': the output}
Settings = dict[str, Any]
#: The most products that the interpreter is given.
INTERPRETED = 1 << 22
#: Precision settings by lowering: (where below torch, value). Each is torch's own switch, tried as it is.
PRECISIONS: dict[str, Settings] = {
    "eager-tf32": {"backends.fp32_precision": "tf32"},
    "eager-allow-tf32": {"backends.cuda.matmul.allow_tf32": True},
    "eager-high": {"set_float32_matmul_precision": "high"},
    "eager-medium": {"set_float32_matmul_precision": "medium"},
    "eager-full": {
        "backends.cuda.matmul.allow_fp16_reduced_precision_reduction": False,
        "backends.cuda.matmul.allow_bf16_reduced_precision_reduction": False,
    },
    "eager-fp16-sums": {"backends.cuda.matmul.allow_fp16_accumulation": True},
}
#: Settings that only cuBLAS knows.
CUBLAS = ("eager-allow-tf32", "eager-full", "eager-fp16-sums")
#: The dtypes that each concerns; float32 alone unless listed.
CONCERNS = {
    "eager-full": ("float16", "bfloat16"), "eager-fp16-sums": ("float16",), "triton": DTYPES + NARROW,
    "triton-split-k": DTYPES + NARROW, "triton-fp16-sums": ("float16",),
    "triton-promoted": ("float8_e4m3fn", "float8_e5m2"),
}  # fmt: skip
#: Options of our Triton kernel, by lowering: an input precision; parts of k; the accumulator's format; terms that a
#: matrix unit sums before they are added in float32.
TRITON: dict[str, Settings] = {
    "triton": {"precision": "ieee"},
    **{f"triton-{name}": {"precision": name} for name in ("tf32", "tf32x3", "bf16x3", "bf16x6")},
    "triton-split-k": {"parts": 4},
    "triton-fp16-sums": {"accumulator": "float16"},
    "triton-promoted": {"imprecise": 128, "blocks": (64, 64, 128)},
}


def lowerings() -> tuple[Lowering, ...]:
    """The reference first."""
    return (
        Lowering("eager", partial(_eager, {}), lambda target: None),
        *(
            Lowering(name, partial(_eager, given), partial(_no_setting, name, given), flags=partial(_told, given))
            for name, given in PRECISIONS.items()
        ),
        Lowering("inductor", partial(_inductor, _unpadded), _no_inductor, flags=_unpadded),
        Lowering("inductor-template", partial(_inductor, _template), _no_inductor, flags=_template),
        Lowering("inductor-decompose-k", partial(_inductor, _unpadded, of=decomposed), _not_decomposed,
                 flags=_unpadded),
        *(
            Lowering(name, partial(_triton, given), partial(_no_triton, name), flags=partial(_triton_flags, given))
            for name, given in TRITON.items()
        ),
        Lowering("triton-interpreter", _interpreted, _uninterpreted),
    )  # fmt: skip


def _told(given: Settings, target: Target) -> Settings:
    return {name: " x ".join(map(str, value)) if isinstance(value, tuple) else value for name, value in given.items()}


# Eager


def operation(target: Target, problem: Problem) -> Callable[..., torch.Tensor]:
    """torch's own function of the problem's tensors."""
    import torch

    call, scalars = target.kernel.family.call, dict(problem.scalars)
    activation = problem.parameters.get("activation", "none")

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = call(torch, *tensors, **scalars)
        if activation != "none":
            y = getattr(torch.nn.functional, activation)(y)
        return y

    return run


def _eager(given: Settings, target: Target) -> Call:
    def run(problem: Problem) -> dict[str, torch.Tensor]:
        with set_to(given), _absent():
            return {"": operation(target, problem)(*problem.tensors.values())}

    return run


@contextlib.contextmanager
def _absent() -> Iterator[None]:
    """A context that raises NotLowered where the device has no operator for the call."""
    try:
        yield
    except (NotImplementedError, RuntimeError, ValueError) as error:
        told = describe(error)
        if any(text in told for text in _ABSENT):
            raise NotLowered(f"torch has no such product here: {told}") from error
        raise


_ABSENT = (
    "not implemented", "no kernel", "Could not run", "only supported", "not supported", "is only", "Only", "Expected",
    "expected", "Invalid scaling", "must be", "should be", "divisible",
)  # fmt: skip


@contextlib.contextmanager
def set_to(given: Settings) -> Iterator[None]:
    """A context in which torch's switches have these values, and those of float32 products no others."""
    import torch

    from verify.lower import switches  # which needs torch

    with contextlib.ExitStack() as stack:
        if given:
            stack.enter_context(switches.fresh())
        for path, value in given.items():
            *parents, name = path.split(".")
            if not parents:
                getattr(torch, name)(value)
                continue
            owner = reduce(getattr, parents, torch)
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def _no_setting(name: str, given: Settings, target: Target) -> str | None:
    if other := _unconcerned(name, target):
        return other
    if target.backend.device == "cpu" and name in CUBLAS:
        return "a setting of cuBLAS"
    return None


def _unconcerned(name: str, target: Target) -> str | None:
    concerned = CONCERNS.get(name, ("float32",))
    return None if target.dtype in concerned else f"the setting concerns {' and '.join(concerned)} alone"


# Inductor


def decomposed(target: Target, problem: Problem) -> Callable[..., torch.Tensor]:
    """Inductor's decomposition of a product with a long k (torch/_inductor/kernel/mm.py, decomposeK): a stack of
    products in float32 and the sum of these, of as many pieces as `get_k_splits` lists at most."""
    import torch

    shape, wide = problem.extra["shape"], problem.dtype in ("float32", "float64")
    most = min(shape.k // shape.m, shape.k // shape.n)
    sizes = [shape.k // parts for parts in range(2, most + 1) if shape.k % parts == 0]
    sizes = [size for size in sizes if size >= 128 and size % 32 == 0]
    if not sizes:
        raise NotLowered(f"Inductor decomposes no {shape.m} x {shape.k} x {shape.n}: pieces of k of 32s, 128 at least")
    parts = shape.k // min(sizes)

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x = torch.permute(a.reshape(shape.m, parts, -1), (1, 0, 2))
        y = b.reshape(parts, -1, shape.n)
        # with the dtype of the results there is no bmm on the host
        return torch.sum(torch.bmm(x, y) if wide else torch.bmm(x, y, out_dtype=torch.float32), 0).to(a.dtype)

    return run


def _not_decomposed(target: Target) -> str | None:
    facts = target.kernel.family
    if target.kernel.inputs != ("a", "b") or facts.stacked or facts.exact:
        return "Inductor decomposes products of two matrices of floats alone"
    return _no_inductor(target)


def _inductor(options: Callable[[Target], Settings], target: Target, of: Any = operation) -> Call:
    call = compiled_for_problem(target, of, options)

    def run(problem: Problem) -> dict[str, torch.Tensor]:
        with _absent():
            return call(problem)

    return run


def _unpadded(target: Target) -> Settings:
    """On a GPU without padding to whole lines, which Inductor does where it was faster in a trial of that moment: in
    one run of four a product of 30 x 32 x 20 got a kernel so (torch 2.13, _inductor/fx_passes/pad_mm.py)."""
    return {**default_flags(target), **({} if target.backend.device == "cpu" else {"shape_padding": False})}


def _template(target: Target) -> Settings:
    """Inductor's own kernels alone: its C++ template on the host, its Triton template on a GPU, there in the first of
    its sizes of blocks rather than in that which was fastest in a trial of that moment, for which Inductor compiles all
    of them (torch 2.13, _inductor/select_algorithm.py, pick_deterministic_choice)."""
    own = "CPP" if target.backend.device == "cpu" else "TRITON"
    untried = {} if target.backend.device == "cpu" else {"deterministic": True}
    return {**_unpadded(target), "max_autotune_gemm": True, "max_autotune_gemm_backends": own, **untried}


def _no_inductor(target: Target) -> str | None:
    return compile_disabled() or target.backend.inductor_unavailable()


# Triton


def _blocks(given: Settings, target: Target) -> Settings:
    """The settings, with smaller blocks where the target wants them: rows and columns decide which instructions are
    used, terms only repeat them. No partial sum has more terms than a block."""
    if not target.small:
        return given
    module = _module(target)
    rows, columns, terms = module.LEAST
    if target.small == 1:
        rows, columns, _ = given.get("blocks", module.BLOCKS)
    return {**given, "blocks": (rows, columns, terms)} | ({"imprecise": terms} if "imprecise" in given else {})


def _triton_flags(given: Settings, target: Target) -> Settings:
    return _told(_blocks(given, target), target)


def _triton(given: Settings, target: Target) -> Call:
    import torch

    given = _blocks(given, target)
    given = {**given, "accumulator": getattr(torch, given["accumulator"])} if "accumulator" in given else given
    options = triton_options(target)

    def run(problem: Problem) -> dict[str, torch.Tensor]:
        from triton.compiler.errors import CompilationError

        try:
            return _run(problem, target, **given, options=options)
        except CompilationError as error:
            if "input_precision must be" in (told := str(error).rpartition("\n")[2]):
                raise NotLowered(f"Triton does not support this precision on the GPU: {told}") from error
            raise

    return run


def _module(target: Target) -> Any:
    return importlib.import_module(target.kernel.family.triton)


def _run(problem: Problem, target: Target, **given: Any) -> dict[str, torch.Tensor]:
    import torch

    tensors, scalars = problem.tensors, problem.scalars
    groups = (tensors["scale"], tensors["zero"]) if "zero" in tensors else None
    result = "int32" if target.kernel.family.exact else target.kernel.family.result(problem.dtype)
    scales = None
    if "scale_a" in tensors:
        scales = tensors["scale_a"].reshape(-1).contiguous(), tensors["scale_b"].reshape(-1).contiguous()
    bias = tensors.get("bias")
    keywords = {"alpha": scalars.get("alpha", 1.0), "beta": scalars.get("beta", 1.0)}
    call = given.pop("call", None) or _module(target).run
    if bias is not None and keywords["beta"] == 0.0:
        bias = torch.zeros_like(bias)
    y = call(
        tensors["a"], tensors["b"], out=getattr(torch, result), bias=bias, scales=scales, groups=groups,
        activation=problem.extra["shape"].activation, **keywords, **given,
    )  # fmt: skip
    return {"": y}


def _no_triton(name: str, target: Target) -> str | None:
    return no_triton(target) or _unconcerned(name, target)


def _interpreted(target: Target) -> Call:
    def run(problem: Problem) -> dict[str, torch.Tensor]:
        shape = problem.extra["shape"]
        count = max(shape.batch, 1) * shape.m * shape.n * max(shape.k, 1)
        if count > INTERPRETED:
            raise NotLowered(f"{count:,} products; the interpreter is given {INTERPRETED:,} at most")
        if shape.activation == "silu" and target.dtype == "float64":
            raise NotLowered("the float64 kernel of silu calls libdevice, which the Triton interpreter cannot run")
        return _run(problem, target, call=_module(target).interpreted())

    return run


def _uninterpreted(target: Target) -> str | None:
    if absent := no_triton(target, "interpreter"):
        return absent
    if target.kernel.family.result(target.dtype) == "bfloat16":
        return "the interpreter multiplies bfloat16 patterns as integers and cuts results (triton 3.7.1)"
    return None
