"""PTX executed on the CPU: bits that are known, bits of the standard, and faults that must be noticed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from verify.backends import cuda
from verify.facts.kernel import NothingToCompare
from verify.kernels.triton import elementwise
from verify.virtual import approx, lanes, ptx
from verify.virtual.compile import Argument, Fault, Launch, Unsupported, described
from verify.walk.plan import Selection
from verify.walk.run import run as run_all

try:
    lanes.library()
except Unsupported as why:
    pytest.skip(str(why), allow_module_level=True)


def executed(one: Launch) -> None:
    ptx.launch(one, approx.correct)


def run(
    name: str, *tensors: torch.Tensor, implementation: str = "triton", variant: str = "own",
    execute: Callable[[Launch], None] = executed, scalar: float | None = None,
) -> torch.Tensor:  # fmt: skip
    module = importlib.import_module(f"verify.kernels.triton.{name}")
    operation = module.OPERATIONS[implementation, "t" * len(tensors) + "s" * (scalar is not None)]
    options: Any = cuda.triton_options(variant)
    with described("sm_90", execute):
        return elementwise.compiled(operation, scalar, options)(*tensors)


def single(*bits: int) -> torch.Tensor:
    return torch.from_numpy(np.array(bits, np.uint32).view(np.float32))


def bits(t: torch.Tensor) -> list[int]:
    return [int(x) for x in t.numpy().view(np.uint32)]


def drawn(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    """Uniform bit patterns: every exponent, subnormals, infinities and NaNs."""
    raw = np.random.default_rng(seed).integers(0, 256, count * dtype.itemsize, np.uint8)
    return torch.from_numpy(raw).view(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.dtype.itemsize]
    return bool(((a.view(whole) == b.view(whole)) | (a.isnan() & b.isnan())).all())


# Known bits


POW = {"implementation": "triton-libdevice", "execute": lambda one: ptx.launch(one, approx.of_chip("sm_90"))}


def test_contraction_inside_libdevice_gives_the_bits_of_the_h200() -> None:
    """Measured on an H200 with triton 3.6: 15 ULP fused where 3 are left unfused, and pow(0.9, 100)."""
    x, y = single(0x3F3CE575, 0x3F666666), torch.cat([single(0x4389F8E8), torch.tensor([100.0])])
    assert bits(run("pow", x, y, variant="default", **POW)) == [0x02FD4D38, 0x37DED004]
    assert bits(run("pow", x, y, variant="nofuse", **POW))[0] == 0x02FD4D44


def test_the_toolkit_s_libdevice_gives_the_bits_of_the_h200() -> None:
    if isinstance(cuda.triton_options("toolkit"), str):
        pytest.skip("no CUDA toolkit")
    x, y = single(0x3F45AB57), single(0xC3A22745)
    assert bits(run("pow", x, y, variant="toolkit", **POW)) == [0x7BFD3934]


def test_a_hint_to_the_caches_changes_nothing() -> None:
    """As Inductor's reductions have it: a policy that is made and named by a load."""
    code = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 1 x)
.reqntid 32
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<3>;
	ld.param.b64 %rd1, [x];
	createpolicy.fractional.L2::evict_last.b64 %rd2, 1.0;
	ld.global.L1::evict_last.L2::cache_hint.b32 { %r1 }, [ %rd1 + 4 ], %rd2;
	st.global.b32 [ %rd1 ], { %r1 };
	ret;
}
"""
    memory = torch.tensor([1, 7], dtype=torch.int32)
    about = SimpleNamespace(num_warps=1, shared=0, global_scratch_size=0)
    one = Launch("k", "sm_90", (1, 1, 1), (Argument("x", "*i32", memory),), about, {})
    ptx.execute(one, code, approx.correct)
    assert memory.tolist() == [7, 7]


# The standard


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["add", "sub", "div", "reciprocal", "sqrt"])
def test_ieee_operations_are_the_host_s(name: str, dtype: torch.dtype) -> None:
    function: Any = {"add": torch.add, "sub": torch.sub, "div": torch.div, "sqrt": np.sqrt}.get(name)
    count = 1 if name in ("reciprocal", "sqrt") else 2
    given = [drawn(dtype, 1 << 14, seed) for seed in range(count)]
    wide = [t if t.dtype.itemsize > 2 else t.float() for t in given]
    with np.errstate(all="ignore"):
        if name == "sqrt":
            expected = torch.from_numpy(np.sqrt(wide[0].numpy()))
        else:
            expected = 1 / wide[0] if name == "reciprocal" else function(*wide)
    assert same(run(name, *given), expected.to(dtype))


def test_a_fused_multiply_add_is_that_of_rationals() -> None:
    a, b, c = (drawn(torch.float32, 3000, seed) for seed in (5, 6, 7))
    c[:1000] = -(a * b)[:1000]
    y = run("addcmul", c, a, b)
    for k in range(0, 3000, 7):
        values = [float(t[k]) for t in (a, b, c)]
        if all(np.isfinite(values)):
            exact = Fraction(values[0]) * Fraction(values[1]) + Fraction(values[2])
            expected = nearest32(exact, float(torch.copysign(torch.tensor(1.0), y[k])))
            assert float(y[k]) == expected, (k, values)


def nearest32(exact: Fraction, sign: float) -> float:
    """float32 nearest to a rational, ties to even."""
    if not exact:
        return 0.0 * sign
    e = -149
    while abs(exact) >= Fraction(2) ** (e + 24):
        e += 1
    scaled = abs(exact) / Fraction(2) ** e
    value = float(round(scaled) * Fraction(2) ** e)  # Python rounds halves to even
    return np.copysign(np.inf if value >= 2.0**128 else value, float(exact))


# Threads together


def test_a_softmax_through_shared_memory_and_shuffles_is_right_and_a_swapped_lane_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from verify.kernels.triton import scans

    x = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 1500)).astype(np.float32))
    options: Any = cuda.triton_options("own")

    def run_softmax(execute: Callable[[Launch], None]) -> torch.Tensor:
        with described("sm_90", execute):
            return scans.run("softmax", x, dim=1, options=options, interpreted=False)

    assert torch.allclose(run_softmax(executed), x.double().softmax(1).float(), rtol=1e-6, atol=0)

    def swapped(one: Launch) -> None:
        text = one.code
        at = text.index("shfl.sync.bfly.b32")
        line = text[at : text.index("\n", at)]
        wrong = line.replace(", 16, ", ", 15, ") if ", 16, " in line else line.replace(", 1, ", ", 3, ")
        assert wrong != line
        ptx.execute(one, text.replace(line, wrong), approx.correct)

    assert not same(run_softmax(swapped), run_softmax(executed))


# Faults


PLANTED: list[tuple[str, Callable[[str], str]]] = [
    ("rounding", lambda text: text.replace("fma.rn.f32", "fma.rz.f32")),
    ("operands", lambda text: text.replace("sub.rn.f32", "add.rn.f32")),
    ("ftz", lambda text: text.replace("fma.rn.f32", "fma.rn.ftz.f32")),
]


@pytest.mark.parametrize(("what", "plant"), PLANTED, ids=[name for name, _ in PLANTED])
def test_a_planted_fault_changes_bits(what: str, plant: Callable[[str], str]) -> None:
    given = [drawn(torch.float32, 1 << 14, seed) * (2.0**-20 if what == "ftz" else 1) for seed in range(3)]

    def wrong(one: Launch) -> None:
        text = plant(one.code)
        assert text != one.code
        ptx.execute(one, text, approx.correct)

    assert not same(run("lerp", *given), run("lerp", *given, execute=wrong))


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r1}, {%r1}, {%r1}, {%r1};", "instruction mma.sync"),
        ("tcgen05.mma.cta_group.1.kind::f16 [%r1], %rd1, %rd1, %r1, 1;", "instruction tcgen05.mma"),
        ("atom.global.add.f32 %r1, [%rd1], %r2;", "the PTX instruction atom.global.add.f32"),
        ("add.rn.relu.f32 %r1, %r2, %r3;", "modifier relu"),
        ("fma.rn.f32 %r1, %r2, 0d3FF0000000000000, %r3;", "the PTX instruction fma.rn.f32"),
        ("tanh.approx.f32 %r1, %r2;", "tanh.approx.f32"),
        ("bra $elsewhere;", "a branch to"),
    ],
)  # fmt: skip
def test_what_is_not_modelled_is_refused_by_name(statement: str, told: str) -> None:
    def changed(one: Launch) -> None:
        ptx.execute(one, one.code.replace("\tret;", f"\t{statement}\n\tret;", 1), approx.correct)

    with pytest.raises(Unsupported, match=told):
        run("add", torch.ones(8), torch.ones(8), execute=changed)


def test_an_access_outside_the_tensors_is_told() -> None:
    def moved(one: Launch) -> None:
        big = [a if a.kind != "i32" else type(a)(a.name, a.kind, 1 << 20) for a in one.arguments]
        executed(type(one)(one.name, one.target, (1024, 1, 1), tuple(big), one.metadata, one.files))

    with pytest.raises(Fault, match="outside its tensors"):
        run("add", torch.ones(4096), torch.ones(4096), execute=moved)


@pytest.mark.parametrize(
    ("at", "count", "told"),
    [
        (0, 2, "a load of 8 bytes outside its tensors, at byte 0 of a tensor's 4; is a mask missing?"),
        (-8, 1, "a load of 4 bytes outside its tensors, at byte -8 of a tensor's 4; is a mask missing?"),
        (66, 1, "a load of 4 bytes at byte 2 of a tensor's 40, whose address is no multiple of 4"),
        (100, 2, "a load of 8 bytes outside its tensors, at byte 36 of a tensor's 40; is a mask missing?"),
    ],
)
def test_where_an_access_goes_is_told(at: int, count: int, told: str) -> None:
    held = np.zeros(32, np.uint64)  # tensors of 4 and 40 bytes, 64 apart
    begin = held.ctypes.data
    memory = lanes.Memory([(begin, begin + 4), (begin + 64, begin + 104)])
    with pytest.raises(Fault, match=re.escape(told)):
        memory.load(np.array([begin + at], np.uint64), 32, count)


def test_a_grid_that_no_device_has_is_told() -> None:
    def moved(one: Launch) -> None:
        executed(type(one)(one.name, one.target, (1, 65536, 1), one.arguments, one.metadata, one.files))

    with pytest.raises(Fault, match=r"a grid of \(1, 65536, 1\); CUDA has at most"):
        run("add", torch.ones(8), torch.ones(8), execute=moved)


#: An inverse whose last store or load is one element too many, and which computes with torch and numpy.
USERS = """
import concurrent.futures, math, torch, triton
import triton.language as tl

@triton.jit
def kernel(x, out, n, loads, stores, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = 1.0 / tl.load(x + at, at < loads).to(tl.float32)
    tl.store(out + at, y, at < stores)

def launched(x, loads, stores):
    x, out = x.contiguous(), torch.empty_like(x.contiguous())
    n = out.numel()
    if n:
        kernel[(triton.cdiv(n, 1024),)](x, out, n, n + loads, n + stores, BLOCK=1024)
    return out

def right(x):
    return launched(x, 0, 0)

def loads(x):
    return launched(x, 1, 0)

def stores(x):
    return launched(x, 0, 1)

def foreach(x):
    y = x.clone()
    torch._foreach_reciprocal_([y])
    return y

def product(x):
    a = torch.ones(4, 4, dtype=torch.int32)
    return launched(x, 0, 0) + 0 * (a @ a).sum()

def numbers(x):
    return torch.from_numpy(1 / x.numpy())

def listed(x):
    inverse = [1 / v if v else math.copysign(math.inf, v) for v in x.flatten().tolist()]
    return torch.tensor(inverse, dtype=x.dtype).view(x.shape)

def arrays(x):
    import numpy
    return torch.from_numpy(1 / numpy.asarray(x))

pool = concurrent.futures.ThreadPoolExecutor(1)

def elsewhere(x):
    return pool.submit(torch.reciprocal, x).result()

@torch.library.custom_op("planted::select", mutates_args=())
def select(x: torch.Tensor) -> torch.Tensor:
    return torch.reciprocal(x)

def operator(x):
    return select(x)

@torch.library.custom_op("planted::wrapped", mutates_args=())
def wrapped_right(x: torch.Tensor) -> torch.Tensor:
    return right(x)

def wrapped(x):
    return wrapped_right(x)
"""


@pytest.mark.parametrize(("function", "status", "told"), [
    ("right", "passed", ""),
    ("wrapped", "passed", ""),
    ("listed", "not-run", "launches no kernel"),
    ("elsewhere", "not-run", "launches no kernel"),
    ("operator", "not-run", "computes with torch.reciprocal"),
    ("loads", "error", "launched a load of 2 bytes outside its tensors, at byte "),
    ("stores", "error", "launched a store of 2 bytes outside its tensors, at byte "),
    ("foreach", "not-run", "computes with torch._foreach_reciprocal_"),
    ("product", "not-run", "computes with torch.mm"),
    ("numbers", "not-run", "torch.Tensor.numpy"),
    ("arrays", "not-run", "torch.Tensor.__array__"),
])  # fmt: skip
def test_what_a_users_kernel_may_not_do_is_told(tmp_path: Path, function: str, status: str, told: str) -> None:
    """What a store beside the tensors raised was taken for the function's own refusal of such a call; what torch and
    numpy computed in place was this machine's arithmetic, and so was what another thread or an operator of one's own
    did."""
    (own := tmp_path / "own.py").write_text(USERS)
    selection = Selection(
        ("reciprocal",), ("virtual-cuda",), ("float16",), profile="quick", spellings=("out-of-place", "tail"),
        user_lowerings=(f"{own}:{function}",),
    )  # fmt: skip
    if status == "not-run":
        with pytest.raises(NothingToCompare, match=re.escape(told)):
            run_all(selection)
        return
    cells = [one for one in run_all(selection)["cells"] if "own.py" in one["lowering"]]
    statuses = {one["status"] for one in cells}
    assert statuses == ({status} if status == "passed" else {status, "not-run"})
    assert any(told in one["reason"] for one in cells)
