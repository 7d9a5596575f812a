"""Code of gfx942 executed on the CPU: against IEEE arithmetic, against ocml by another way, and with faults planted."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("llvmlite", reason="llvmlite is not installed: the extra 'virtual'")
pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl
from triton.language.extra import libdevice

import vendor_libraries
from vendor_libraries import vectorised
from verify import backends
from verify.facts.formats import FORMATS
from verify.facts.kernel import Scalars, load
from verify.inputs.domains import domain_of
from verify.judge.identify import candidates, predict
from verify.kernels.triton import elementwise
from verify.virtual import amdgcn, instructions
from verify.virtual.compile import Launch, Unsupported, described
from verify.virtual.ir import F32, F64, I32, Value
from verify.workers.launch import bits

pytestmark = pytest.mark.part(2)

Device = elementwise.Device
Tensor = torch.Tensor


@Device
def exp(x):  # type: ignore[no-untyped-def]
    return libdevice.exp(x)


@Device
def log(x):  # type: ignore[no-untyped-def]
    return libdevice.log(x)


@Device
def tanh(x):  # type: ignore[no-untyped-def]
    return libdevice.tanh(x)


@Device
def log1p(x):  # type: ignore[no-untyped-def]
    return libdevice.log1p(x)


@Device
def expm1(x):  # type: ignore[no-untyped-def]
    return libdevice.expm1(x)


@Device
def power(x, y):  # type: ignore[no-untyped-def]
    return libdevice.pow(x, y)


@Device
def least(x, y):  # type: ignore[no-untyped-def]
    return tl.minimum(x, y)


def virtually(
    operation: Any, *tensors: Tensor, fuse: bool = False, scalar: float | None = None, model: str = "nearest",
    seen: Callable[[Launch], None] = lambda launch: None,
) -> Tensor:  # fmt: skip
    """An elementwise Triton operation as gfx942 would compute it."""

    def launched(launch: Launch) -> None:
        seen(launch)
        amdgcn.execute(launch, model)

    call = elementwise.compiled(operation, scalar, {"enable_fp_fusion": fuse})
    with described("gfx942", launched):
        return call(*tensors)


def code_of(operation: Any, *tensors: Tensor, fuse: bool = False) -> tuple[str, str]:
    """Assembly and name of the kernel."""
    found: list[Launch] = []
    virtually(operation, *tensors, fuse=fuse, seen=found.append)
    return found[0].code, found[0].name


def random_bits(size: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """All classes of numbers: uniform bit patterns, an eighth of them special values and numbers beside these."""
    kind = {torch.float32: torch.int32, torch.float64: torch.int64}[dtype]
    generator = torch.Generator().manual_seed(seed)
    info = torch.iinfo(kind)
    drawn = torch.randint(info.min, info.max, (size,), generator=generator, dtype=kind)
    corners = torch.tensor([0.0, torch.finfo(dtype).tiny, 1.0, torch.inf, torch.nan], dtype=dtype).view(kind)
    near = corners[torch.randint(0, 5, (size // 8,), generator=generator)]
    near = near + torch.randint(-3, 4, near.shape, generator=generator, dtype=kind)
    drawn[: size // 8] = torch.where(torch.rand(near.shape, generator=generator) < 0.5, near, near | info.min)
    return drawn.view(dtype)


def differing(a: Tensor, b: Tensor) -> int:
    """Elements whose bits differ, NaNs being equal."""
    return int(((bits(a) != bits(b)) & ~(a.isnan() & b.isnan())).sum())


# Kernels of IEEE operations alone: the number system `ieee`, bit for bit.

IEEE: list[tuple[str, str, Scalars, str]] = [
    ("add", "tt", {"alpha": 1.0}, "a + b"),
    ("sub", "tt", {"alpha": 1.0}, "a - b"),
    ("div", "tt", {}, "a / b"),
    ("reciprocal", "t", {}, "1/x"),
    ("sqrt", "t", {}, "sqrt(x)"),
    ("addcmul", "ttt", {"value": 1.0}, "fma(b, c, a)"),
    ("addcmul", "ttts", {"value": 0.3}, "fma(value, b*c, a)"),
    ("addcdiv", "ttts", {"value": 0.3}, "fma(value, b/c, a)"),
    ("lerp", "ttt", {}, "|w| < 1/2: fma(w, b-a, a); else: fma(w-1, b-a, b)"),
]


def against_ieee(name: str, scalars: Scalars, text: str, dtype: str, size: int = 1 << 18, seed: int = 0) -> int:
    """Elements in which the virtual kernel and the formula differ, on uniform bits and on the kernel's own inputs."""
    kernel, fmt = load(name), FORMATS[dtype]
    module = __import__(str(kernel.triton), fromlist=["OPERATIONS"])
    named = {key: value for key, value in scalars.items() if value != 1.0 or (name, key) == ("add", "")}
    shape = "".join("s" if key in named else "t" for key in kernel.inputs if key not in scalars or key in named)
    tensors = kernel.tensors(scalars)
    drawn = tuple(random_bits(size, seed + k, getattr(torch, dtype)) for k in range(len(tensors)))
    own = domain_of(kernel, fmt, scalars, "quick", seed, limit=size).chunk(0, "cpu")
    operation = module.OPERATIONS.get(("triton", shape)) or module.OPERATIONS["triton", shape + "s"]
    (chosen,) = (f for f in candidates(kernel.oracle, dict(scalars), fmt) if f.text == text)
    wrong = 0
    numerator = {"div": 0, "addcdiv": 1}.get(name)
    for inputs in (drawn, own):
        if numerator is not None and dtype == "float32":  # see `test_numerators_of_one_binade_may_be_misrounded`
            inside = tiny(inputs[numerator])
            inputs = tuple(x[~inside] for x in inputs)
        expected = predict((chosen,), fmt, tensors, inputs, dict(scalars))[text]
        wrong += differing(virtually(operation, *inputs, scalar=next(iter(named.values()), None)), expected)
    return wrong


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "shape", "scalars", "text"), IEEE, ids=lambda x: x if isinstance(x, str) else None)
def test_ieee_kernels_are_the_number_system(name: str, shape: str, scalars: Scalars, text: str, dtype: str) -> None:
    assert against_ieee(name, scalars, text, dtype, 1 << (18 if dtype == "float32" else 14)) == 0


@pytest.mark.exhaustive
def test_ieee_kernels_on_ten_million_inputs() -> None:
    for name, _, scalars, text in IEEE:
        assert against_ieee(name, scalars, text, "float32", 10**7, seed=7) == 0, name


def tiny(x: Tensor) -> Tensor:
    """In [2^-103, 2^-102), of either sign."""
    return (x.abs() >= 2.0**-103) & (x.abs() < 2.0**-102)


# Library functions: the same bits as ocml's own code, which shares no instruction but the approximate ones with this.

LIBRARY = [
    (exp, "exp", 1),
    (log, "log", 1),
    (tanh, "tanh", 1),
    (log1p, "log1p", 1),
    (expm1, "expm1", 1),
    (power, "pow", 2),
]


@pytest.mark.part(2)
@pytest.mark.parametrize("model", instructions.MODELS)
@pytest.mark.parametrize(("operation", "name", "arity"), LIBRARY, ids=[name for _, name, _ in LIBRARY])
def test_unfused_kernels_are_ocml(operation: Any, name: str, arity: int, model: str) -> None:
    size = 1 << 20
    inputs = [random_bits(size, k) for k in range(arity)]
    inputs[0][size // 2 :] = torch.exp(torch.randn(size // 2, generator=torch.Generator().manual_seed(9)))
    expected = vendor_libraries.function("ocml", f"{name}_f32", model)(*(x.numpy() for x in inputs))
    given = virtually(operation, *inputs, model=model)
    assert differing(given, torch.from_numpy(expected)) == 0
    assert differing(virtually(operation, *inputs, model=model, fuse=True), given) > 0 or name == "expm1"


@pytest.mark.parametrize("name", ["exp", "log", "pow", "tanh"])
def test_float64_kernels_are_ocml(name: str) -> None:
    operation, arity = next((op, arity) for op, key, arity in LIBRARY if key == name)
    inputs = [random_bits(1 << 17, k, torch.float64) for k in range(arity)]
    expected = vendor_libraries.function("ocml", f"{name}_f64")(*(x.numpy() for x in inputs))
    assert differing(virtually(operation, *inputs), torch.from_numpy(expected)) == 0


@pytest.mark.parametrize(
    ("operation", "given", "fused", "nearest"),
    [(exp, (0xC283B39C,), 0x0FFF88D4, 0x0FFF8901), (power, (0x3F4520B8, 0x43A09135), 0x02F3960C, 0x02F396B5)],
    ids=["exp", "pow"],
)
def test_contraction_makes_errors_of_dozens_of_ulp(
    operation: Any, given: tuple[int, ...], fused: int, nearest: int
) -> None:
    """The defect that Triton's default has on AMD GPUs: see docs/results/contraction-amd.md."""
    inputs = [torch.from_numpy(np.array([word], np.uint32).view(np.float32)) for word in given]
    exact = [x.double() for x in inputs]
    truth = (torch.exp(*exact) if operation is exp else torch.pow(*exact)).float()
    assert [int(bits(t)[0]) & 0xFFFFFFFF for t in (virtually(operation, *inputs, fuse=True), truth)] == [fused, nearest]
    assert abs(int(bits(virtually(operation, *inputs))[0]) - nearest) <= 1


def test_bits_of_contracted_code_depend_on_the_size() -> None:
    """Triton makes packed code where 16 divides the number of elements, of which LLVM contracts other products."""
    words = (0x3F4520B8, 0x43A09135)
    x, y = (torch.from_numpy(np.full(1024, word, np.uint32).view(np.float32)) for word in words)
    found = [int(bits(virtually(power, x[:size], y[:size], fuse=True))[0]) for size in (1000, 1024)]
    assert found == [0x02F3960C, 0x02F3966A]
    assert differing(virtually(power, x[:1000], y[:1000]), virtually(power, x, y)[:1000]) == 0


# Division and roots.


def quotients(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Operands of few bits and all exponents, whose quotients are often exact, ties or subnormal; and uniform bits."""
    generator, size = torch.Generator().manual_seed(3), 1 << 18
    low, high = (-150, 116) if dtype == torch.float32 else (-1074, 1000)
    few = [
        torch.ldexp(
            torch.randint(1, 2**12, (size,), generator=generator).to(dtype),
            torch.randint(low, high, (size,), generator=generator),
        )
        for _ in range(2)
    ]
    a, b = (torch.cat([x, random_bits(size, k, dtype)]) for k, x in enumerate(few))
    return a, b


def divide(a: Tensor, b: Tensor) -> Tensor:
    with np.errstate(all="ignore"):
        return torch.from_numpy(a.numpy() / b.numpy())


@pytest.mark.parametrize("model", instructions.MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_division_is_correctly_rounded_whatever_the_estimate(dtype: torch.dtype, model: str) -> None:
    """div_scale, rcp, refinement, div_fmas, div_fixup: subnormal quotients, overflow and special values included.

    But for one significand, whose bits are all ones: 1/d is just above the middle of two numbers, an estimate of which
    Newton's iteration leaves at the lower one, and with it the quotient of a power of two.
    """
    from verify.kernels.triton.div import OPERATIONS

    a, b = quotients(dtype)
    given, expected = virtually(OPERATIONS["triton", "tt"], a, b, model=model), divide(a, b)
    if model != "nearest":
        fraction = {torch.float32: 2**23 - 1, torch.float64: 2**52 - 1}[dtype]
        ones = (bits(b) & fraction) == fraction
        assert differing(given[ones], expected[ones]) > 0
        given, expected = given[~ones], expected[~ones]
    assert differing(given, expected) == 0


def test_numerators_of_one_binade_may_be_misrounded() -> None:
    """v_div_scale_f32 scales numerators with an exponent field up to 23: at 24 a last remainder of 2^-150 is lost."""
    from verify.kernels.triton.div import OPERATIONS

    a = torch.tensor(
        [float.fromhex("0x1.cf6d7ep-103"), float.fromhex("0x1.cf6d7ep-104"), float.fromhex("0x1.cf6d7ep-102")]
    )
    b = torch.tensor([float.fromhex("-0x1.db6012p-48")]).expand(3)
    assert tiny(a).tolist() == [True, False, False]
    given, expected = virtually(OPERATIONS["triton", "tt"], a, b), divide(a, b)
    assert (bits(given) - bits(expected)).tolist() == [-1, 0, 0]


@pytest.mark.parametrize("model", instructions.MODELS)
def test_square_root_is_correctly_rounded_whatever_the_estimate(model: str) -> None:
    from verify.kernels.triton.sqrt import OPERATIONS

    for dtype in (torch.float32, torch.float64):
        x = quotients(dtype)[0]
        with np.errstate(all="ignore"):
            expected = torch.from_numpy(np.sqrt(x.numpy()))
        assert differing(virtually(OPERATIONS["triton", "t"], x, model=model), expected) == 0


# Single instructions.


def test_instructions_against_numpy() -> None:
    """Those of integers and of exponents, which no kernel above decides alone."""
    x, y, n = (
        random_bits(1 << 16, 1).numpy(),
        random_bits(1 << 16, 2).numpy(),
        random_bits(1 << 16, 3).numpy().view(np.int32),
    )
    with np.errstate(all="ignore"):
        small = np.clip(n, -300, 300)
        scaled = vectorised(instructions.ldexp, F32, I32)(x, small)
        np.testing.assert_array_equal(scaled, np.ldexp(x.astype(np.float64), small).astype(np.float32))
        fraction, exponent = np.frexp(x)
        ordinary = np.isfinite(x)
        np.testing.assert_array_equal(
            vectorised(lambda v: instructions.frexp(v)[0], F32)(x)[ordinary], fraction[ordinary]
        )
        np.testing.assert_array_equal(
            vectorised(lambda v: instructions.frexp(v)[1], F32)(x), np.where(ordinary, exponent, 0)
        )
    u, v, w = (array.view(np.uint32).astype(np.uint64) for array in (x, y, n))
    cases = {
        "v_bfi_b32": (u & v) | (~u & w), "v_lshl_add_u32": (u << (v & 31)) + w, "v_and_or_b32": (u & v) | w,
        "v_bfe_u32": (u >> (v & 31)) & ((1 << (w & 31)) - 1), "v_alignbit_b32": ((u << 32) | v) >> (w & 31),
        "v_mul_hi_u32": (u * v) >> 32, "v_mad_u32_u24": (u & 0xFFFFFF) * (v & 0xFFFFFF) + w,
    }  # fmt: skip
    for name, expected in cases.items():
        kinds, compute = amdgcn.OPERATIONS[name]
        arrays = (x, y, n)[: len(kinds)]
        got = vectorised(compute, *kinds)(*(array.view(np.int32) for array in arrays))
        np.testing.assert_array_equal(got.view(np.uint32), expected.astype(np.uint32), err_msg=name)


def test_a_signed_sum_that_leaves_the_range() -> None:
    """SCC of s_add_i32 and s_sub_i32."""
    a, b = (random_bits(1 << 14, seed).numpy().view(np.int32) for seed in (1, 2))
    wide = a.astype(np.int64)
    sums = vectorised(lambda x, y: amdgcn._overflows(x, y, x + y, True), I32, I32)(a, b)
    differences = vectorised(lambda x, y: amdgcn._overflows(x, y, x - y, False), I32, I32)(a, b)
    for got, exact in ((sums, wide + b), (differences, wide - b)):
        np.testing.assert_array_equal(got, exact != exact.astype(np.int32))


BYTES = """
import triton
import triton.language as tl

@triton.jit
def halves(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, other=0)
    tl.store(out + at, tl.where(v > 0, 2 * v.to(tl.int32), v.to(tl.int32) - 1), at < n)

@triton.jit
def branches(x, out):
    v = tl.load(x + tl.program_id(0)).to(tl.int32).to(x.dtype.element_ty)
    if v > 0:
        y = v.to(tl.int32) * 2
    else:
        y = v.to(tl.int32) - 1
    tl.store(out + tl.program_id(0), y)
"""


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8])
def test_signs_of_parts_of_a_register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """sext(v1), which the compiler writes for signed bytes and halves, was 0."""
    (tmp_path / "kernels_of_bytes.py").write_text(BYTES)
    monkeypatch.syspath_prepend(tmp_path)
    kernels = importlib.import_module("kernels_of_bytes")
    x = torch.arange(0 if dtype == torch.uint8 else -100, 100).to(dtype)
    due = torch.where(x > 0, 2 * x.int(), x.int() - 1)
    device = backends.load("virtual-rocm")
    for kernel in ("halves", "branches"):
        out = torch.zeros(len(x), dtype=torch.int32)
        with device.launching():
            if kernel == "halves":
                kernels.halves[(1,)](x, out, len(x), BLOCK=256)
            else:
                kernels.branches[(len(x),)](x, out)
        assert torch.equal(out, due), kernel


def test_byte_permutation() -> None:
    """ISA, V_PERM_B32: 0 to 3 bytes of the second operand, 4 to 7 of the first, 12 zero, above it 255, else signs."""
    compute = vectorised(amdgcn.OPERATIONS["v_perm_b32"][1], I32, I32, I32)
    a, b = np.array([0x01828384], np.uint32), np.array([0x85060788], np.uint32)
    for selector, expected in ((0x07060504, 0x01828384), (0x03020100, 0x85060788), (0x0C0D0004, 0x00FF8884),
                               (0x08090A0B, 0x00FFFF00)):  # fmt: skip
        got = compute(a.view(np.int32), b.view(np.int32), np.array([selector], np.uint32).view(np.int32))
        assert int(got.view(np.uint32)[0]) == expected, hex(selector)


def test_minimum_and_maximum() -> None:
    """IEEE mode: a number beside a quiet NaN, a quiet NaN for a signalling one, -0 below +0."""
    words = np.array([0, 0x80000000, 0x3F800000, 0x7F800000, 0x7FC00000, 0x7F800001, 0xFF800001], np.uint32)
    a, b = (array.ravel() for array in np.meshgrid(words.view(np.float32), words.view(np.float32)))
    for largest, ufunc in ((True, np.fmax), (False, np.fmin)):
        got = vectorised(lambda p, q, largest=largest: instructions.extremum(p, q, largest), F32, F32)(a, b)
        signalling = [(x.view(np.uint32) & 0x7FC00000 == 0x7F800000) & np.isnan(x) for x in (a, b)]
        expected = np.where(signalling[0] | signalling[1], np.float32(np.nan), ufunc(a, b))
        both_zero = (a == 0) & (b == 0)
        sign = np.signbit(a) & np.signbit(b) if largest else np.signbit(a) | np.signbit(b)
        expected = np.where(both_zero, np.where(sign, np.float32(-0.0), np.float32(0)), expected)
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(np.signbit(got)[both_zero], np.signbit(expected)[both_zero])


def test_classes() -> None:
    x = random_bits(1 << 16, 5).numpy()
    tiny, size = np.abs(x) < np.float32(2**-126), np.abs(x)
    quiet = (x.view(np.uint32) & 0x00400000) != 0
    expected = np.select(
        [np.isnan(x) & ~quiet, np.isnan(x), size == np.inf, size == 0, tiny], [1, 2, 0x204, 0x60, 0x90], 0x108
    )
    for bit in range(10):
        mask = np.full(x.shape, 1 << bit, np.int32)
        got = vectorised(lambda v, m: instructions.is_class(v, m), F32, I32)(x, mask)
        side = np.where(np.isnan(x), 0x3, np.where(np.signbit(x), 0x3C, 0x3C0))
        np.testing.assert_array_equal(got, (expected & side & (1 << bit)) != 0)


# Approximate instructions.


def test_reciprocal_root_is_the_nearest_of_every_significand() -> None:
    """The model is float64's 1/sqrt(x), rounded. Of both parities of the exponent; decided in integers."""
    x = np.arange(0x3F800000, 0x40800000, dtype=np.uint32).view(np.float32)
    y = vectorised(lambda v: instructions.rsq(v, "nearest"), F32)(x)
    for part in np.array_split(np.arange(x.size), 64):
        xs = (x[part].astype(np.float64) * 2**23).astype(np.int64)  # in [2^23, 2^25)
        ys = (y[part].astype(np.float64) * 2**25).astype(np.int64)  # in (2^24, 2^25], of two halves of an ULP
        # nearest: (y - 1)^2 x < 2^(2*25 + 23) < (y + 1)^2 x, products of up to 76 bits in two parts
        for odd, below in ((ys - 1, True), (ys + 1, False)):
            square = odd * odd
            high = (square >> 26) * xs + (((square & (2**26 - 1)) * xs) >> 26)
            low = ((square & (2**26 - 1)) * xs) & (2**26 - 1)
            limit = 2 ** (73 - 26)
            less = high < limit
            more = (high > limit) | ((high == limit) & (low > 0))
            assert bool((less if below else more).all())


@pytest.mark.parametrize("name", ["v_exp_f32", "v_log_f32", "v_rcp_f32", "v_rsq_f32", "v_sqrt_f32"])
def test_ends_are_what_one_ulp_allows(name: str) -> None:
    """Below and above the real number within 1 ULP of it, the nearest one between; zeros, infinities and NaN stay."""
    x = np.concatenate([random_bits(1 << 16, 2).numpy(), np.linspace(-126, 127, 1 << 16).astype(np.float32)])
    low, near, high = (
        vectorised(lambda v, m=m: instructions.APPROXIMATE[name](v, m), F32)(x) for m in ("down", "nearest", "up")
    )
    with np.errstate(all="ignore"):
        wide = np.where(np.abs(x) < 2.0**-126, np.copysign(0, x), x).astype(np.float64)
        exact = {"v_exp_f32": np.exp2, "v_log_f32": np.log2, "v_rcp_f32": np.reciprocal, "v_sqrt_f32": np.sqrt,
                 "v_rsq_f32": lambda v: 1 / np.sqrt(v)}[name](wide)  # fmt: skip
        ordinary = np.isfinite(exact) & (np.abs(exact) >= 2.0**-125) & (np.abs(exact) < 2.0**127)
        unit = np.spacing(np.abs(exact[ordinary]).astype(np.float32)).astype(np.float64)
        error = [(y[ordinary] - exact[ordinary]) / unit for y in (low, near, high)]
    assert ordinary.sum() > 1 << 14
    assert error[0].max() <= 0 and error[0].min() >= -1.0001
    assert np.abs(error[1]).max() <= 0.5001
    assert error[2].min() >= 0 and error[2].max() <= 1.0001
    special = np.isnan(exact) | np.isinf(exact) | (exact == 0)
    np.testing.assert_array_equal(low[special], high[special])


# What is not modelled is refused by name.


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ds_bpermute_b32 v0, v1, v2", r"ds_bpermute_b32 \(shared memory or other lanes\)"),
        ("v_add_f32_dpp v0, v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf", "v_add_f32_dpp reads other lanes"),
        ("v_readlane_b32 s0, v1, 3", r"v_readlane_b32 \(cross-lane\)"),
        ("v_readfirstlane_b32 s0, v1", "v_readfirstlane_b32 of anything but the workitem's number"),
        ("v_mfma_f32_32x32x2_f32 a[0:15], v0, v1, a[0:15]", r"v_mfma_f32_32x32x2_f32 \(matrix\)"),
        ("s_barrier", r"s_barrier \(barrier\)"),
        ("v_sin_f32_e32 v0, v1", "no model of v_sin_f32"),
        ("v_add_f32_e64 v0, v1, v2 clamp", "output modifier"),
        ("v_add_f32_e64 v0, v1, v2 mul:2", "output modifier"),
        ("v_fma_f16 v0, v1, v2, v3", "no model of v_fma_f16"),
        ("v_invented_f32 v0, v1", "no model of v_invented_f32"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0", r"s_setreg_imm32_b32 \(modes\)"),
        ("v_add_f32_e32 v0, v1", "no model of this form of an instruction: v_add_f32_e32 v0, v1"),
        ("v_not_b32_e32 v0, |v1|", r"no model of this form of an instruction: v_not_b32_e32 v0, \|v1\|"),
        ("v_fma_f64 v[0:1], v2, v[4:5], v[6:7]", "the operand v2 as double"),
        ("v_mov_b32_e32 v0, src_lds_direct", "the operand src_lds_direct"),
        ("v_mov_b32_e32 v0, vmisspelt", "the operand vmisspelt"),
        ("v_mov_b32_e32 vmisspelt, v0", "the operand vmisspelt"),
        ("v_mov_b32_e32 v0, abs(v1)", r"the operand abs\(v1\)"),
        ("v_rcp_f16_sdwa v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0", "the modifiers of"),
        ("v_fmac_f32_sdwa v0, v1, v2 src0_sel:WORD_1", "the modifiers of"),
        ("buffer_load_dword v0, v1, s[0:3], 0 idxen", "the modifiers of"),
        ("v_add_co_u32_e64 v0, vcc, v1, v2 op_sel:[1,0]", "the modifiers of"),
    ],
)
def test_refusals_name_the_instruction(line: str, told: str) -> None:
    code, name = code_of(exp, torch.ones(8))
    with pytest.raises(Unsupported, match=told):
        amdgcn.compiled(code.replace("\ts_endpgm", f"\t{line}\n\ts_endpgm", 1), name)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("--gfx942", "--gfx90a", "the code is not for gfx942"),
        ("float_denorm_mode_32 3", "float_denorm_mode_32 0", "float_denorm_mode_32 is 0"),
        ("float_round_mode_32 0", "float_round_mode_32 3", "float_round_mode_32 is 3"),
        ("group_segment_fixed_size 0", "group_segment_fixed_size 64", "group_segment_fixed_size is 64"),
    ],
)
def test_other_modes_and_targets_are_refused(old: str, new: str, told: str) -> None:
    code, name = code_of(exp, torch.ones(8))
    assert old in code
    with pytest.raises(Unsupported, match=told):
        amdgcn.compiled(code.replace(old, new), name)


def test_kernels_across_lanes_are_refused() -> None:
    import triton

    from virtual_kernels import total

    x = torch.ones(1024)
    with described("gfx942", amdgcn.execute), pytest.raises(Unsupported, match=r"no model of|reads other lanes"):
        total[(1,)](x, torch.empty(1), BLOCK=triton.next_power_of_2(x.numel()))


def test_modelled_instructions_are_listed() -> None:
    assert amdgcn.parse(*code_of(exp, torch.ones(8))).modelled == ("v_exp_f32",)
    assert amdgcn.parse(*code_of(least, torch.ones(8), torch.ones(8))).modelled == ()


# Planted faults: what stands above notices each.


@contextlib.contextmanager
def planted(name: str, compute: Callable[..., Value]) -> Iterator[None]:
    """An instruction that computes something else."""
    before = amdgcn.OPERATIONS[name]
    amdgcn.OPERATIONS[name] = (before[0], compute)
    amdgcn.compiled.cache_clear()
    try:
        yield
    finally:
        amdgcn.OPERATIONS[name] = before
        amdgcn.compiled.cache_clear()


def _toward_zero(exact: Value) -> Value:
    near = exact.to(F32)
    return (abs(near.to(F64)) > abs(exact)).where((near.bits() - 1).bitcast(F32), near)


FIXUP = instructions.div_fixup
FAULTS: dict[str, tuple[str, Callable[..., Value], str]] = {
    "rounding mode of a product": ("v_mul_f32", lambda a, b: _toward_zero(a.to(F64) * b.to(F64)), "addcmul"),
    "order of operands": ("v_sub_f32", lambda a, b: b - a, "lerp"),
    "fma in two roundings": ("v_fma_f32", lambda a, b, c: a * b + c, "div"),
    "subnormal results flushed": ("v_mul_f32", lambda a, b: instructions.flushed(a * b), "addcmul"),
    "subnormal operands flushed": ("v_mul_f32", lambda a, b: instructions.flushed(a) * b, "addcmul"),
    "fixup without the sign": ("v_div_fixup_f32", lambda q, d, n: abs(FIXUP(q, d, n)), "div"),
    "fixup of 0/0": ("v_div_fixup_f32", lambda q, d, n: n.equals(0.0).where(n, FIXUP(q, d, n)), "div"),
    "fixup of overflow": (
        "v_div_fixup_f32", lambda q, d, n: (abs(FIXUP(q, d, n)) < math.inf).where(FIXUP(q, d, n), q), "div",
    ),
    "fixup of infinity": ("v_div_fixup_f32", lambda q, d, n: abs(d).equals(math.inf).where(q, FIXUP(q, d, n)), "div"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(fault: str) -> None:
    name, compute, kernel = FAULTS[fault]
    scalars, text = next((s, t) for key, _, s, t in reversed(IEEE) if key == kernel)
    with planted(name, compute):
        assert against_ieee(kernel, scalars, text, "float32", 1 << 16) > 0
    assert against_ieee(kernel, scalars, text, "float32", 1 << 12) == 0


@pytest.mark.parametrize(
    ("attribute", "fault"),
    [
        ("div_fmas", lambda a, b, c, back: a.fma(b, c)),
        (
            "div_fmas",
            lambda a, b, c, back: back.where(a.fma(b, c) * 2.0**-64, a.fma(b, c)),
        ),  # rounded twice, and only down
        ("div_scale", lambda s, d, n: (s, d.equals(d) & ~d.equals(d))),
    ],
    ids=["nothing is scaled back", "scaled after rounding", "nothing is scaled"],
)
def test_planted_faults_of_scaling_are_caught(monkeypatch: pytest.MonkeyPatch, attribute: str, fault: Any) -> None:
    from verify.kernels.triton.div import OPERATIONS

    a, b = quotients(torch.float32)
    amdgcn.compiled.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(instructions, attribute, fault)
        assert differing(virtually(OPERATIONS["triton", "tt"], a, b), divide(a, b)) > 0
    amdgcn.compiled.cache_clear()
