"""The hand-written Triton kernels without a GPU: their machine code, and their arithmetic under a fused interpreter.

The interpreter's fma rounds twice before triton 3.9; here it is replaced by an exact one, so that what is measured
is what a GPU computes.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton", reason="triton is not installed")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.runtime import driver, interpreter  # noqa: E402

from verify import kernels  # noqa: E402
from verify.backends import cuda, rocm  # noqa: E402
from verify.facts.formats import FORMATS  # noqa: E402
from verify.kernels.triton import ABSENT, LIBRARIES, REFLECTS_FTZ, VARIANTS, elementwise  # noqa: E402

SM90 = GPUTarget("cuda", 90, 32)
GFX942 = GPUTarget("hip", "gfx942", 64)
GFX90A = GPUTarget("hip", "gfx90a", 64)
#: The elementwise ones: a file of operations each.
NAMES = sorted(p.stem for p in Path(kernels.__path__[0], "triton").glob("*.py") if "\nOPERATIONS = " in p.read_text())
DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}

#: (operation's name, dtype's width) whose code must hold these; fma where the docstring promises one.
FMA = {
    "add_scaled", "sub_scaled", "addcmul", "addcmul_value", "addcdiv_value", "lerp", "lerp_scalar", "rsqrt", "exp",
    "exp2", "log", "log2", "tanh", "sigmoid", "pow", "pow_scalar_exponent", "pow_scalar_base",
}  # fmt: skip
DIVISION = {"addcdiv", "addcdiv_value", "reciprocal", "div", "div_by_scalar", "div_of_scalar", "rsqrt"}
QUOTIENT_OF_FLOAT32 = {"tanh", "sigmoid"}
ROOT = {"sqrt", "rsqrt"}


def is_library(operation: Any, wide: bool) -> bool:
    """Whether the operation is a function of Triton's libraries, in float64 (`wide`) or in float32."""
    source = inspect.getsource(operation.fn)
    named = (operation.fn.__globals__.get(name) for name in set(re.findall(r"(?<![\w.])(\w+)\(", source)))
    parts = [source, *(inspect.getsource(f.fn) for f in named if isinstance(f, type(operation)))]
    return any("libdevice." in part and (wide or "tl.float64" not in part) for part in parts)


def operations(name: str) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = importlib.import_module(f"verify.kernels.triton.{name}").OPERATIONS
    return found


def assembly(operation: Any, pattern: str, dtype: str, target: Any, options: dict[str, Any]) -> str:
    loop = elementwise.LOOPS[pattern.count("t")]
    names = [p.name for p in loop.params]
    kinds = {"size": "i32"} | {n: f"*{DTYPES[dtype]}" for n in names if n.endswith("_ptr")}
    constants = {
        "OP": operation,
        "SCALAR": 3.7 if "s" in pattern else None,
        "COMPUTE": elementwise.COMPUTE[getattr(torch, dtype)],
        "BLOCK": elementwise.BLOCK,
    }
    source = ASTSource(
        fn=loop,
        signature={n: kinds.get(n, "constexpr") for n in names},
        constexprs=constants,
        attrs={(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n in kinds},
    )
    compiled = triton.compile(source, target=target, options={"num_warps": elementwise.WARPS, **options})
    text: str = compiled.asm["ptx" if target.backend == "cuda" else "amdgcn"]
    return text


def test_every_listed_lowering_has_an_operation_or_a_reason() -> None:
    for kernel, implementations in LIBRARIES.items():
        present = {implementation for implementation, _ in operations(kernel)}
        for implementation in implementations:
            assert (implementation in present) != ((kernel, implementation) in ABSENT)
    for name in NAMES:
        listed = {"triton", *LIBRARIES.get(name, ())}
        assert {implementation for implementation, _ in operations(name)} <= listed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_nvidia_code_rounds_as_written(name: str, dtype: str) -> None:
    """No contraction, no flushing, no approximate division; FMA, IEEE division and square root where promised."""
    options = dict(cuda.triton_options("own"))  # type: ignore[arg-type]
    wide = dtype == "float64"
    width = "f64" if wide else "f32"
    for (implementation, pattern), operation in operations(name).items():
        if implementation != "triton":
            continue
        ptx = assembly(operation, pattern, dtype, SM90, options)
        label = operation.__name__
        if not is_library(operation, wide):
            assert not re.search(r"\.ftz|\.approx|\.full", ptx), label
            # Without a rounding modifier, ptxas may contract (PTX ISA 9.7.3.3-5).
            assert not re.search(r"\b(mul|add|sub|fma)\.f(32|64)", ptx), label
        if label in FMA:
            assert "fma.rn.f64" in ptx if name == "pow" else f"fma.rn.{width}" in ptx, label
        if label in DIVISION or label in QUOTIENT_OF_FLOAT32 and not wide:
            assert f"div.rn.{width}" in ptx, label
        if label in ROOT:
            assert f"sqrt.rn.{width}" in ptx, label
        assert re.search(r"ld\.global\.v[248]\.b32|ld\.global\.v2\.b64", ptx), f"{label} loads no vectors"


@pytest.mark.parametrize(
    ("target", "dtype"),
    [*((GFX942, dtype) for dtype in DTYPES), (GFX90A, "float32")],
    ids=lambda v: getattr(v, "arch", v),
)
@pytest.mark.parametrize("name", NAMES)
def test_amd_code_rounds_as_written(name: str, target: GPUTarget, dtype: str) -> None:
    """Subnormals kept, FMA where promised, IEEE division.

    LLVM narrows a float32 quotient of float16 values that is rounded to float16 (innocuous double rounding).
    """
    options = dict(rocm.triton_options("own"))  # type: ignore[arg-type]
    width = "f64" if dtype == "float64" else "f32"
    for (implementation, pattern), operation in operations(name).items():
        if implementation != "triton":
            continue
        code = assembly(operation, pattern, dtype, target, options)
        label = operation.__name__
        assert ".amdhsa_float_denorm_mode_32 3" in code, label
        assert ".amdhsa_float_denorm_mode_16_64 3" in code, label
        if label in FMA:
            assert re.search(r"v_(pk_)?fma\w*_(f32|f64|f16)", code), label
        if label in DIVISION and dtype != "float16":
            assert f"v_div_fixup_{width}" in code, label


@pytest.mark.parametrize("variant", ["default", "nofuse"])
@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_amd_library_functions_keep_subnormals(name: str, variant: str) -> None:
    """OCML's and tl.math's: their mode keeps subnormals, and what v_exp_f32 and v_log_f32 take as zero is scaled."""
    options = dict(rocm.triton_options(variant))  # type: ignore[arg-type]
    assert not rocm.flushes(variant)
    for (implementation, pattern), operation in operations(name).items():
        if implementation == "triton":
            continue
        code = assembly(operation, pattern, "float32", GFX942, options)
        assert ".amdhsa_float_denorm_mode_32 3" in code, operation.__name__
        assert re.search(r"v_(exp|log)_f32", code), operation.__name__
        assert "v_ldexp_f32" in code, operation.__name__


@pytest.mark.parametrize("variant", sorted(set(VARIANTS.values())))
@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_declared_flushing_is_what_is_compiled(name: str, variant: str) -> None:
    options = cuda.triton_options(variant)
    if isinstance(options, str):
        pytest.skip(options)
    for (implementation, pattern), operation in operations(name).items():
        if implementation == "triton":
            continue
        ptx = assembly(operation, pattern, "float32", SM90, dict(options))
        declared = (name, implementation) in REFLECTS_FTZ and cuda.flushes(variant)
        # rcp.approx.ftz and ex2.approx.ftz stand in libdevice as such, on arguments that it has scaled.
        assert bool(re.search(r"\b(fma|mul|add|sub)\.(rn\.)?ftz\.f32", ptx)) == declared, operation.__name__
        contractible = bool(re.search(r"\b(mul|add|sub)\.f32", ptx))
        if variant == "nofuse":
            assert not contractible, operation.__name__


def test_toolkit_variant_links_the_toolkits_library() -> None:
    options = cuda.triton_options("toolkit")
    if isinstance(options, str):
        pytest.skip(options)
    bundled = dict(cuda.triton_options("default"))  # type: ignore[arg-type]
    assert options["extern_libs"] != bundled["extern_libs"]
    assert Path(options["extern_libs"]["libdevice"]).is_file()
    assert Path(bundled["extern_libs"]["libdevice"]).is_file()


@pytest.fixture
def sm90(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that reports an H100 and has none: kernels go through the launch path up to the launch."""

    class Driver:
        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> Any:
            return SM90

    monkeypatch.setattr(driver, "_active", Driver(), raising=False)


@pytest.mark.parametrize("variant", ["own", *sorted(set(VARIANTS.values()))])
def test_options_pass_through_the_launch(
    variant: str, sm90: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the metadata of a kernel in the user's cache may name another installation's libdevice
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    options = cuda.triton_options(variant)
    if isinstance(options, str):
        pytest.skip(options)
    x = torch.ones(4096)
    kernel = elementwise.unary.warmup(
        x,
        x,
        4096,
        OP=operations("pow")["triton-libdevice", "ts"],
        SCALAR=3.7,
        COMPUTE=elementwise.COMPUTE[x.dtype],
        BLOCK=elementwise.BLOCK,
        num_warps=elementwise.WARPS,
        grid=(4,),
        **options,
    )
    assert kernel.metadata.enable_fp_fusion == options["enable_fp_fusion"]
    assert kernel.metadata.enable_reflect_ftz == options["enable_reflect_ftz"]
    assert dict(kernel.metadata.extern_libs) == options["extern_libs"]


# Arithmetic.


def fused(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x * y + z rounded once. float32: the float64 sum rounded to odd (Boldo, Melquiond 2008); float64: rationals."""
    x, y, z = np.broadcast_arrays(x, y, z)
    with np.errstate(all="ignore"):
        if z.dtype == np.float32:
            product, addend = x.astype(np.float64) * y, z.astype(np.float64)
            total = product + addend
            moved = total - product
            error = (product - (total - moved)) + (addend - moved)
            patterns = total.view(np.int64)
            to_odd = (error != 0) & np.isfinite(error) & (patterns & 1 == 0)
            step = np.where(np.signbit(error) == np.signbit(total), 1, -1)
            return np.where(to_odd, patterns + step, patterns).view(np.float64).astype(np.float32)
        finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & (x != 0) & (y != 0)
        result = np.asarray(x * y + z)
    for index in np.flatnonzero(finite):
        exact = Fraction(x.flat[index]) * Fraction(y.flat[index]) + Fraction(z.flat[index])
        result.flat[index] = float(exact) if exact else 0.0
    return result


@pytest.fixture
def fma(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        return interpreter.TensorHandle(fused(x.data, y.data, z.data), z.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_fma", create_fma)
    with np.errstate(all="ignore"):
        yield


def run(name: str, pattern: str, *tensors: np.ndarray, scalar: float | None = None) -> np.ndarray:
    call = elementwise.interpreted(operations(name)["triton", pattern], scalar)
    result: np.ndarray = call(*(torch.from_numpy(np.ascontiguousarray(t)) for t in tensors)).numpy()
    return result


def every(step: int) -> np.ndarray:
    """Every `step`-th float32 pattern: all binades, both signs, subnormals, infinities and NaNs."""
    return np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def errors(outputs: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in float32 ULPs against float64 values, which are good to 2^-28 of that; NaNs must agree."""
    np.testing.assert_array_equal(np.isnan(outputs), np.isnan(exact))
    limit = 2.0**128
    y, t = (
        np.clip(np.nan_to_num(v.astype(np.float64), posinf=limit, neginf=-limit), -limit, limit)
        for v in (outputs, exact)
    )
    exponent = np.clip(np.frexp(t)[1] - 1, FORMATS["float32"].emin, FORMATS["float32"].emax)
    return np.abs(y - t) / np.ldexp(1.0, exponent - 23)


def worst(outputs: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """The largest error among normal and among subnormal results."""
    error = errors(outputs, exact)
    small = np.abs(exact) < 2.0**-126
    return float(error[~small].max()), float(error[small].max(initial=0.0))


def logistic(x: np.ndarray) -> np.ndarray:
    t = np.exp(-np.abs(x))
    return np.where(x < 0, t, 1.0) / (1.0 + t)


@pytest.mark.parametrize(
    ("name", "function", "limit"),
    [
        ("exp", np.exp, 0.5 + 2.0**-5),
        ("log", np.log, 0.6),
        ("tanh", np.tanh, 0.57),
        ("sigmoid", logistic, 0.5 + 2.0**-5),
        ("rsqrt", lambda x: 1 / np.sqrt(x), 0.5001),
        ("sqrt", np.sqrt, 0.5),
        ("reciprocal", lambda x: 1 / x, 0.5),
        ("exp2", np.exp2, 0.5 + 2.0**-5),
        ("log2", np.log2, 0.6),
        ("atan", np.arctan, 0.5001),
    ],
)
def test_unary_float32_keeps_what_its_docstring_claims(
    fma: None, name: str, function: Callable[[np.ndarray], np.ndarray], limit: float
) -> None:
    intervals = ((-1.5, 1.5), (0.6, 1.4), (-110, 95))
    x = np.concatenate([every(20_011), *(np.linspace(*ends, 300_001, dtype=np.float32) for ends in intervals)])
    normal, subnormal = worst(run(name, "t", x), function(x.astype(np.float64)))
    assert normal <= limit + 2.0**-24
    assert subnormal < 1


@pytest.mark.parametrize(
    "name", ["exp", "exp2", "log", "log2", "tanh", "atan", "sigmoid", "rsqrt", "sqrt", "reciprocal"]
)
def test_unary_special_values(fma: None, name: str) -> None:
    """Infinities, NaN, zeros with their sign, and the smallest subnormals (IEEE 754-2019, 9.2.1)."""
    inf, nan, tiny = np.inf, np.nan, 2.0**-149
    table = {
        "exp": [1, 1, inf, 0, nan, 1, 1],
        "log": [-inf, -inf, inf, nan, nan, np.float32(np.log(tiny)), nan],
        "exp2": [1, 1, inf, 0, nan, 1, 1],
        "log2": [-inf, -inf, inf, nan, nan, -149, nan],
        "tanh": [0.0, -0.0, 1, -1, nan, tiny, -tiny],
        "atan": [0.0, -0.0, np.pi / 2, -np.pi / 2, nan, tiny, -tiny],
        "sigmoid": [0.5, 0.5, 1, 0, nan, 0.5, 0.5],
        "rsqrt": [inf, -inf, 0, nan, nan, np.float32(2.0**74.5), nan],
        "sqrt": [0.0, -0.0, inf, nan, nan, np.float32(2.0**-74.5), nan],
        "reciprocal": [inf, -inf, 0.0, -0.0, nan, inf, -inf],
    }
    x = np.array([0.0, -0.0, inf, -inf, nan, tiny, -tiny], dtype=np.float32)
    outputs, expected = run(name, "t", x), np.array(table[name], dtype=np.float32)
    np.testing.assert_array_equal(outputs, expected)
    assert (np.signbit(outputs) == np.signbit(expected))[~np.isnan(expected)].all()


def test_what_calls_libdevice_says_where_to_name_it() -> None:
    with pytest.raises(interpreter.InterpreterError, match=r"erf has no value.*kernels/ledger/cpu\.toml"):
        run("erf", "t", np.ones(3, dtype=np.float32))


def powers() -> tuple[np.ndarray, np.ndarray]:
    """Bases over all binades and close to 1, exponents that spread the results over the whole range."""
    rng = np.random.default_rng(0)
    near = 1 + rng.standard_normal(3000) * np.exp2(-rng.uniform(0, 24, 3000))
    x = np.abs(np.concatenate([np.exp2(rng.uniform(-149, 128, 3000)), near])).astype(np.float32)
    logarithm = np.log2(x.astype(np.float64))
    y = rng.uniform(-152, 129, x.size) / np.where(logarithm == 0, 1, logarithm)
    return x, y.astype(np.float32)


def test_pow_float32(fma: None) -> None:
    x, y = powers()
    assert max(worst(run("pow", "tt", x, y), np.power(x.astype(np.float64), y.astype(np.float64)))) <= 0.5001


@pytest.mark.parametrize("scalar", [-2.0, -1.0, -0.5, 0.5, 2.0, 3.0, 7.0, 31.0, 3.7])
def test_pow_takes_the_exact_double_as_exponent_and_as_base(fma: None, scalar: float) -> None:
    x = every(1_000_003)
    assert max(worst(run("pow", "ts", x, scalar=scalar), np.power(x.astype(np.float64), scalar))) <= 0.5001
    y = np.linspace(-160, 160, 2001, dtype=np.float32)
    exact = np.power(abs(scalar), y.astype(np.float64))
    assert max(worst(run("pow", "st", y, scalar=abs(scalar)), exact)) <= 0.5001


def test_pow_special_values(fma: None) -> None:
    """C23 F.10.4.4, all pairs, as numpy's float64 pow has them; a result that rounds is compared as such."""
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 2.0**-149, -(2.0**-149), 1.5, -1.5]
    values += [3.4e38, -3.4e38, 2.0**24, 2.0**24 - 1, 1 - 2.0**-24]
    x, y = (v.ravel() for v in np.meshgrid(*[np.array(values, dtype=np.float32)] * 2))
    outputs = run("pow", "tt", x, y)
    exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert errors(outputs, exact).max() <= 0.5001
    assert (np.signbit(outputs) == np.signbit(exact))[~np.isnan(exact)].all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "pattern", "scalar", "exact"),
    [
        ("add", "tts", 0.3, lambda s, a, b: a + s * b),
        ("sub", "tts", 0.3, lambda s, a, b: a - s * b),
        ("addcmul", "ttt", None, lambda s, a, b, c: a + b * c),
        ("addcmul", "ttts", 1.0, lambda s, a, b, c: a + b * c),
        ("div", "ts", 0.3, lambda s, a: a / s),
        ("div", "st", 0.3, lambda s, b: s / b),
    ],
)
def test_single_roundings(fma: None, dtype: Any, name: str, pattern: str, scalar: float | None, exact: Any) -> None:
    """Correctly rounded, the scalar taken at the operands' precision: in float64 it must be the whole double."""
    rng = np.random.default_rng(0)
    tensors = [rng.standard_normal(300).astype(dtype) for _ in range(pattern.count("t"))]
    rounded = None if scalar is None else Fraction(float(dtype(scalar)))
    outputs = run(name, pattern, *tensors, scalar=scalar)
    form = FORMATS[np.dtype(dtype).name]
    for index, output in enumerate(outputs):
        value = exact(rounded, *(Fraction(float(t[index])) for t in tensors))
        assert Fraction(float(output)) == form.fraction(form.round(value))


@pytest.mark.parametrize("pattern", ["ttt", "tts"])
def test_lerp_meets_its_end_points(fma: None, pattern: str) -> None:
    """Exact there; elsewhere the last rounding, and those of b - a and of a scalar's coefficient c = w or w - 1.

    Each of the two is at most |c| 2^-24 |b - a|, in ULPs of |a| + |w (b - a)| at most |c / w|.
    """
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(2000).astype(np.float32) * np.float32(1e3) ** i for i in (0, 1))
    difference = b.astype(np.float64) - a
    for weight in (0.0, 1.0, 0.9999, 2.0**-20, 0.4, 0.9, -3.0):
        w = np.full_like(a, weight)
        outputs = run("lerp", "ttt", a, b, w) if pattern == "ttt" else run("lerp", "tts", a, b, scalar=weight)
        if weight in (0.0, 1.0):
            np.testing.assert_array_equal(outputs, (a, b)[int(weight)])
            continue
        factor = float(w[0]) if pattern == "ttt" else weight
        unit = np.ldexp(1.0, np.frexp(np.abs(a) + np.abs(factor * difference))[1] - 24)
        coefficient = factor if abs(factor) < 0.5 else factor - 1
        limit = 0.5 + pattern.count("s") * abs(coefficient / factor) + abs(coefficient / factor)
        assert np.max(np.abs(outputs - (a + factor * difference)) / unit) <= limit


def test_float16_rounds_float32_once(fma: None) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(run("exp", "t", x), run("exp", "t", x.astype(np.float32)).astype(np.float16))


def test_sizes_around_a_block(fma: None) -> None:
    """Masks: nothing is left out, whatever the size; broadcasting and strides as torch has them."""
    for size in (0, 1, 7, 1023, 1024, 1025):
        x = np.linspace(1, 2, size, dtype=np.float32)
        np.testing.assert_array_equal(run("add", "tt", x, x), 2 * x)
    add = elementwise.interpreted(operations("add")["triton", "tt"], None)
    a, b = torch.arange(12.0).view(3, 4).t(), torch.arange(4.0).view(4, 1)
    assert torch.equal(add(a, b), a + b)
