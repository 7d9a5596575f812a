"""The Metal kernels without an Apple GPU: their text, and their arithmetic compiled for the host (`metal_device`).

Under safe math the host computes what Metal must where subnormals are kept; a second run flushes them.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from typing import Any

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from metal_device import Library, needs_compiler
from verify.backends import cpu, cuda, mps
from verify.facts.formats import FORMATS
from verify.facts.kernel import Kernel, Scalars, load, names
from verify.inputs.domains import domain_of
from verify.judge.identify import candidates, predict
from verify.kernels import metal
from verify.kernels.metal import elementwise, logcumsumexp
from verify.lower.lowering import Target
from verify.lower.lowerings import lowering_names, lowerings
from verify.workers.launch import bits

pytestmark = pytest.mark.part(2)

DTYPES = tuple(elementwise.TYPES)
SHARED = {"elementwise", "arithmetic"}
FILES = sorted(m.name for m in pkgutil.iter_modules(metal.__path__) if m.name not in SHARED)
REGISTERED = [name for name in FILES if name in names()]


def operations(name: str) -> elementwise.Operations:
    found: elementwise.Operations = importlib.import_module(f"verify.kernels.metal.{name}").OPERATIONS
    return found


def pattern(kernel: Kernel, scalars: Scalars) -> str:
    return "".join("s" if name in scalars else "t" for name in kernel.inputs)


def built(name: str, scalars: Scalars, dtype: str, mode: str = "safe", flush: bool = False) -> Any:
    """The kernel of a case as a callable of host tensors."""
    needs_compiler()
    shape = pattern(load(name), scalars)
    operation = operations(name)[shape](next(iter(scalars.values()), None))
    return elementwise.compiled(operation, shape.count("t"), dtype, mode, functools.partial(Library, flush=flush))


CASES = [
    pytest.param(name, scalars, id=f"{name}-{dict(scalars)}")
    for name in REGISTERED
    if isinstance(load(name), Kernel)
    for scalars in load(name).cases
]


# Text.


def test_the_kernels_asked_for_are_there() -> None:
    assert FILES == ["addcmul", "div", "exp", "lerp", "log", "logcumsumexp", "reciprocal"]
    for name in REGISTERED:
        if isinstance(load(name), Kernel):
            assert lowering_names(load(name))[-2:] == ("metal", "metal-fast")
    assert not {"metal", "metal-fast"} & set(lowering_names(load("sqrt")))


@pytest.mark.parametrize("mode", ["safe", "fast"])
@pytest.mark.parametrize(("name", "scalars"), CASES)
def test_source(name: str, scalars: Scalars, mode: str) -> None:
    """The math mode stands in it, as compile_shader offers none; nothing in it is float64 or not ASCII."""
    shape = pattern(load(name), scalars)
    for dtype, kind in elementwise.TYPES.items():
        operation = operations(name)[shape](next(iter(scalars.values()), None))
        text = elementwise.source(operation, shape.count("t"), dtype, mode)
        assert re.findall(r"#pragma METAL fp math_mode\((\w+)\)", text) == [mode]
        assert ("#pragma METAL fp contract(off)" in text) == (mode == "safe")
        assert text.index("#include <metal_stdlib>") < text.index("#pragma") < text.index("kernel void")
        assert text.count(f"device const {kind}*") == shape.count("t")
        assert text.isascii() and "double" not in text
        # A literal without suffix is float in Metal and double in C++: the host's compiler would compute otherwise.
        assert not re.search(r"(?<![\w.])\d+\.\d*(?:e-?\d+)?(?![\df.])", text)


@pytest.mark.parametrize("value", [0.3, 1 / 3, -1.7, 1e-45, 3.4e38, -0.0])
def test_a_scalar_is_rounded_once_to_float32(value: float) -> None:
    needs_compiler()
    operation = elementwise.Operation("inline float operation(float x) { return VALUE; }", constants={"VALUE": value})
    library = Library(elementwise.source(operation, 1, "float32", "safe").replace("float x)", "float)"))
    out = torch.empty(1)
    library.elementwise(out, torch.ones(1))
    assert bits(out) == bits(torch.tensor([value], dtype=torch.float64).float())


# Reasons.


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    lerp = load("lerp")
    by_name = {lowering.name: lowering for lowering in lowerings(lerp)}
    safe = by_name["metal"]
    for backend in (cpu, cuda):
        assert "Apple GPUs only" in str(safe.reason(Target(lerp, {}, "out-of-place", "float32", backend)))
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: (major, minor) <= (14, 7))
    assert "needs macOS 15" in str(safe.reason(Target(lerp, {}, "out-of-place", "float32", mps)))
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: (major, minor) <= (15, 0))
    assert safe.reason(Target(lerp, {}, "out-of-place", "float32", mps)) is None
    assert "calling convention" in str(safe.reason(Target(lerp, {}, "in-place", "float32", mps)))
    for lowering in by_name.values():
        reason = lowering.reason(Target(lerp, {}, "out-of-place", "float64", mps))
        assert reason, lowering.name
        if not lowering.name.startswith("triton"):
            assert "Metal has no float64" in reason
    assert safe.flags(Target(lerp, {}, "out-of-place", "float32", mps)) == {"math_mode": "safe"}


# Arithmetic.


def formula_of(name: str, scalars: Scalars) -> str:
    """The text of the oracle's formula that the safe kernel is."""
    match name:
        case "reciprocal":
            return "1/x"
        case "div":
            return "a / b"
        case "addcmul":
            return "fma(b, c, a)" if scalars["value"] == 1 else "fma(value, b*c, a)"
        case "lerp" if not scalars:
            return "|w| < 1/2: fma(w, b-a, a); else: fma(w-1, b-a, b)"
        case "lerp" if scalars["w"] < 0.5:
            return "fma(w, b-a, a)"
        case "lerp":  # the scalar is shifted in double
            return "|w| < 1/2: fma(w, b-a, a); else: fma(-double(1-w), b-a, b)"
        case _:
            raise KeyError(name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "scalars"), [case for case in CASES if case.values[0] not in ("exp", "log")])
def test_safe_arithmetic_is_the_formula_bit_for_bit(name: str, scalars: Scalars, dtype: str) -> None:
    """Against the oracle's formula in the number system `ieee`, on the kernel's own domain, special values included."""
    kernel, fmt = load(name), FORMATS[dtype]
    inputs = domain_of(kernel, fmt, scalars, "quick", 0).chunk(0, "cpu")
    text = formula_of(name, scalars)
    (chosen,) = (f for f in candidates(kernel.oracle, dict(scalars), fmt) if f.text == text)
    expected = predict((chosen,), fmt, kernel.tensors(scalars), inputs, dict(scalars))[text]
    given = built(name, scalars, dtype)(*inputs)
    wrong = (bits(given) != bits(expected)) & ~(given.isnan() & expected.isnan())
    assert not wrong.any(), [(t[wrong][:3], given[wrong][:3], expected[wrong][:3]) for t in inputs]


def test_exp_keeps_what_it_claims() -> None:
    """Below 1/2 + 2^-5 ULP in normal range and below 1 under it; 0, infinity and NaN at the ends."""
    x = torch.arange(0, 2**32, 10_007).to(torch.int32).view(torch.float32)
    x = torch.cat([x, torch.linspace(-110, 95, 300_001), torch.linspace(-1.5, 1.5, 300_001)])
    y, exact = built("exp", {}, "float32")(x), torch.exp(x.double())
    assert torch.equal(y.isnan(), x.isnan())
    finite = ~x.isnan() & (exact < 2.0**128)
    error = ulps(y[finite], exact[finite])
    normal = exact[finite] >= 2.0**-126
    assert float(error[normal].max()) <= 0.5 + 2.0**-5
    assert float(error[~normal].max()) < 1
    assert bool((y[exact >= 2.0**128] == torch.inf).all())


def test_log_keeps_what_it_claims() -> None:
    """Below 0.6 ULP for every positive number, subnormal ones too; -infinity, infinity and NaN where they belong."""
    x = torch.arange(0, 2**32, 10_007).to(torch.int32).view(torch.float32)
    x = torch.cat([x, torch.linspace(0.6, 1.4, 300_001), torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1e-45, 1.0])])
    y, exact = built("log", {}, "float32")(x), torch.log(x.double())
    assert torch.equal(y.isnan(), exact.isnan())
    assert torch.equal(y[exact.isinf()], exact[exact.isinf()].float())
    finite = exact.isfinite() & (exact != 0)
    error = ulps(y[finite], exact[finite])
    assert 0.54 < float(error.max()) <= 0.6
    assert bits(y[x == 1]).eq(0).all()  # +0


def test_log_survives_flushing() -> None:
    """Where the device takes subnormals as zero, their logarithm is that of zero, and others keep the claim."""
    x = torch.cat([torch.linspace(0.5, 2, 400_001), torch.logspace(-37, 38, 100_001), torch.tensor([2.0**-126])])
    y, exact = built("log", {}, "float32", flush=True)(x), torch.log(x.double())
    assert float(ulps(y[exact != 0], exact[exact != 0]).max()) <= 0.6
    assert built("log", {}, "float32", flush=True)(torch.tensor([1e-40])).tolist() == [-torch.inf]


def test_exp_survives_flushing() -> None:
    """Where the device takes subnormals as zero, normal results keep the claim: no error term is needed that small."""
    x = torch.cat([torch.linspace(-87.3, 88.7, 400_001), torch.tensor([1e-40, -1e-40, 1e-20, 2.0**-126])])
    y, exact = built("exp", {}, "float32", flush=True)(x), torch.exp(x.double())
    assert float(ulps(y, exact)[exact >= 2.0**-126].max()) <= 0.5 + 2.0**-5


def test_error_terms_need_safe_math() -> None:
    """What the pragmas are for: reassociation makes the low parts of sums vanish, and the claim with them."""
    x = torch.linspace(-80, 80, 100_001)
    operation = operations("exp")["t"](None)
    careless = elementwise.Operation(operation.text, constants=operation.constants)
    needs_compiler()
    fast = elementwise.compiled(careless, 1, "float32", "fast", Library)(x)
    assert float(ulps(fast, torch.exp(x.double())).max()) > 0.6


def ulps(y: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """|y - exact| in float32 ULPs of float64 values."""
    exponent = torch.frexp(exact)[1].clamp(min=-125) - 1
    return (y.double() - exact).abs() / torch.ldexp(torch.ones_like(exact), exponent - 23)


# logcumsumexp.


def pairs(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Differences of all sizes, sums that cancel (a = -ln 2 + tiny at d = 0), huge and tiny operands."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal(size) * np.exp2(rng.uniform(-30, 8, size))
    b = np.where(rng.random(size) < 0.5, a + rng.standard_normal(size) * np.exp2(rng.uniform(-20, 7, size)), -a)
    a[: size // 8] = b[: size // 8] = -np.log(2) * (1 + rng.standard_normal(size // 8) * 2.0**-20)
    return torch.from_numpy(a).float(), torch.from_numpy(b).float()


def combine_bound(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """log(e^a + e^b) in float64, and the bound that `kernels/metal/logcumsumexp.py` derives, plus 2^-50 for float64."""
    high, low = torch.maximum(a, b).double(), torch.minimum(a, b).double()
    term = torch.log1p(torch.exp(low - high))
    exact = high + term
    step = torch.ldexp(torch.ones_like(exact), torch.frexp(exact)[1].clamp(min=-125) - 24)
    return exact, step / 2 + 5.1 * 2.0**-24 * term + 2.0**-50 * (high.abs() + term)


def combined(dtype: str = "float32", mode: str = "safe") -> Any:
    needs_compiler()
    return elementwise.compiled(logcumsumexp.combine(None), 2, dtype, mode, Library)


def test_combine_keeps_its_bound() -> None:
    a, b = pairs(400_000)
    exact, bound = combine_bound(a, b)
    error = (combined()(a, b).double() - exact).abs()
    assert bool((error <= bound).all()), (a[error > bound][:3], b[error > bound][:3])
    assert float((error / bound).max()) > 0.9  # the bound is no ocean


def test_combine_against_multiprecision() -> None:
    """The same on few pairs, by a truth that shares nothing with float64's library."""
    a, b = pairs(300)
    _, bound = combine_bound(a, b)
    with mp.workprec(120):
        for x, y, given, limit in zip(a.tolist(), b.tolist(), combined()(a, b).tolist(), bound.tolist(), strict=True):
            exact = mp.log(mp.exp(mpf(x)) + mp.exp(mpf(y)))
            assert abs(mpf(given) - exact) <= limit, (x.hex(), y.hex())


def test_combine_of_special_values_is_that_of_torch() -> None:
    values = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3e38, -3e38, 1e-45, -1e-45, 104, -104.5, 1.0])
    a, b = (t.reshape(-1) for t in torch.meshgrid(values, values, indexing="ij"))
    given, expected = combined()(a, b), torch.logaddexp(a.double(), b.double()).float()
    torch.testing.assert_close(given, expected, rtol=2**-22, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 257), (2, 5, 64), (0, 4), (4, 0)])
def test_scan(dtype: str, shape: tuple[int, ...]) -> None:
    """Row by row, in float32, rounded once an element: the combine's bound at each step adds up along the row."""
    needs_compiler()
    generator = torch.Generator().manual_seed(1)
    x = (torch.randn(shape, generator=generator) * 8).to(getattr(torch, dtype))
    scan = logcumsumexp.compiled(dtype, "safe", Library)
    for given in (x, x.transpose(0, -1)):
        y = scan(given)
        assert (y.shape, y.dtype) == (given.shape, given.dtype)
        if not y.numel():
            continue
        exact = torch.logcumsumexp(given.double(), -1)
        length = given.shape[-1]
        steps = torch.arange(length, dtype=torch.float64)
        largest = exact.abs().cummax(-1).values
        accumulated = steps * (largest * 2.0**-24 + 5.1 * 2.0**-24)
        error = (y.double() - exact).abs()
        assert bool((error <= accumulated + exact.abs() * torch.finfo(y.dtype).eps / 2 + accumulated * 2**-8).all())


def test_scan_starts_from_minus_infinity_and_keeps_nan() -> None:
    needs_compiler()
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[-inf, -inf, 1.0, -inf], [inf, 0.0, -inf, 1.0], [0.0, nan, 1.0, 2.0]])
    y = logcumsumexp.compiled("float32", "safe", Library)(x)
    expected = torch.tensor([[-inf, -inf, 1.0, 1.0], [inf, inf, inf, inf], [0.0, nan, nan, nan]])
    assert torch.equal(y.isnan(), expected.isnan())
    assert torch.equal(y.nan_to_num(7.0), expected.nan_to_num(7.0))
