"""Matrix instructions of PTX on the CPU: every element in its place, the bits of the unit, and faults noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from verify.backends import cuda
from verify.kernels.triton import products
from verify.numbers import units
from verify.virtual import approx, lanes, matrix, ptx
from verify.virtual.compile import Argument, Fault, Launch, Unsupported, described
from verify.walk.plan import Selection
from verify.walk.run import run

pytestmark = pytest.mark.part(2)

try:
    lanes.library()
except Unsupported as why:
    pytest.skip(str(why), allow_module_level=True)

RESULTS = {torch.float64: torch.float64, torch.int8: torch.int32}


def product(
    a: torch.Tensor, b: torch.Tensor, target: str = "sm_90", precision: str = "ieee", warps: int = 4,
    changed: Callable[[str], str] = lambda text: text,
) -> torch.Tensor:  # fmt: skip
    def execute(one: Launch) -> None:
        ptx.execute(one, changed(one.code), approx.of_chip(target))

    options: Any = cuda.triton_options("own")
    with described(target, execute):
        return products.run(
            a, b, out=RESULTS.get(a.dtype, torch.float32), precision=precision, warps=warps, options=options
        )


def whole(dtype: str, seed: int = 0, by_columns: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers whose products' sums are exact in every format, not symmetric, over blocks' edges."""
    most = 127 if dtype == "int8" else 4
    draw = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(-most, most + 1, size, generator=draw).to(getattr(torch, dtype)) for size in SIZES)
    return (a.T.contiguous().T, b.T.contiguous().T) if by_columns else (a, b)


SIZES = ((70, 80), (80, 40))


def right(a: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> bool:
    return bool((y.double() == a.double() @ b.double()).all())


# Places


@pytest.mark.parametrize(
    ("dtype", "precision", "target", "warps", "by_columns"),
    [
        ("float16", "ieee", "sm_80", 4, False),  # mma.sync, ldmatrix with .trans and without
        ("float16", "ieee", "sm_80", 4, True),
        ("float16", "ieee", "sm_90", 1, False),  # stmatrix
        ("float16", "ieee", "sm_90", 4, False),  # wgmma, descriptors by rows and by columns
        ("float16", "ieee", "sm_90", 4, True),
        ("bfloat16", "ieee", "sm_100", 1, False),
        ("float64", "ieee", "sm_100", 4, False),
        ("float32", "tf32", "sm_80", 4, False),
        ("float32", "tf32", "sm_90", 4, False),
        ("float32", "tf32x3", "sm_90", 4, False),  # wgmma with a in registers
        ("float8_e4m3fn", "ieee", "sm_90", 4, False),
        ("int8", "ieee", "sm_80", 4, False),
        ("int8", "ieee", "sm_90", 4, False),
        ("float64", "ieee", "sm_80", 4, False),
        ("float64", "ieee", "sm_90", 4, True),
    ],
)  # fmt: skip
def test_every_element_is_in_its_place(dtype: str, precision: str, target: str, warps: int, by_columns: bool) -> None:
    a, b = whole(dtype, by_columns=by_columns)
    assert right(a, b, product(a, b, target, precision, warps))


@pytest.mark.parametrize("columns", [16, 32])
def test_narrow_matrices_have_other_swizzles(columns: int) -> None:
    a, b = whole("float16")
    codes: list[str] = []
    with described("sm_90", lambda one: [codes.append(one.code), ptx.launch(one, approx.correct)]):  # type: ignore[func-returns-value]
        y = products.run(a, b, out=a.dtype, blocks=(64, columns, 16), options=cuda.triton_options("own"))  # type: ignore[arg-type]
    assert f"wgmma.mma_async.sync.aligned.m64n{columns}k16" in codes[0]
    assert right(a, b, y)


# Bits


def spread(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of many binades, in whose sums every cut shows."""
    draw = np.random.default_rng(3)
    width = 3 if dtype.startswith("float8") else 12
    a, b = (draw.standard_normal(size) * 2.0 ** draw.integers(-width, 1, size) for size in SIZES)
    return tuple(torch.from_numpy(t).to(getattr(torch, dtype)) for t in (a, b))  # type: ignore[return-value]


BITS = [
    ("float16", "ieee", "sm_80", ""), ("bfloat16", "ieee", "sm_90", ""), ("float32", "tf32", "sm_80", ""),
    ("float32", "tf32", "sm_90", ""), ("float8_e4m3fn", "ieee", "sm_90", "wgmma"), ("float64", "ieee", "sm_90", ""),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "precision", "target", "instruction"), BITS)
def test_the_bits_are_those_of_one_chain_of_the_unit(dtype: str, precision: str, target: str, instruction: str) -> None:
    a, b = spread(dtype)
    operands = "tf32" if precision == "tf32" else dtype
    unit = units.unit(units.architecture(target), operands, "float64" if dtype == "float64" else "float32", instruction)
    y = product(a, b, target, precision)
    assert torch.equal(y, unit.matmul(a, b))
    if unit.rule == "aligned":  # rivals of which the chain is not one
        other = units.unit("hopper" if target == "sm_80" else "ampere", operands) if not instruction else None
        rival = replace(unit, kept=unit.kept - 1) if other is None else other
        assert not torch.equal(y, rival.matmul(a, b))


# Faults


def swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes 4 and 5 of every fragment of B."""
    real = matrix.fragment

    def wrong(rows: int, columns: int, each: int) -> Any:
        found, per = real(rows, columns, each), rows * columns // 32
        lane = found // per
        other = np.where(lane == 4, 5, np.where(lane == 5, 4, lane))
        return other * per + found % per if rows == 8 else found

    monkeypatch.setattr(matrix, "fragment", wrong)


def halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of half the terms."""
    known = tuple(replace(one, terms=max(one.terms // 2, 1)) for one in units.units())
    monkeypatch.setattr(units, "units", lambda: known)
    matrix.decoded.cache_clear()


def unturned(monkeypatch: pytest.MonkeyPatch) -> None:
    """No swizzle of shared memory."""
    monkeypatch.setattr(matrix, "SWIZZLES", {which: (width, 0) for which, (width, _) in matrix.SWIZZLES.items()})


FAULTS: list[tuple[str, str, Callable[[pytest.MonkeyPatch], None] | None, Callable[[str], str]]] = [
    ("a swapped lane", "sm_80", swapped, str),
    ("half the terms", "sm_90", halved, str),
    ("no swizzle", "sm_90", unturned, str),
    ("rows swapped", "sm_80", None, lambda text: re.sub(r"(mma\.sync.*?\}, \{ )(%r\d+), (%r\d+)", r"\1\3, \2", text)),
    ("no transposition", "sm_80", None, lambda text: text.replace(".x4.trans.", ".x4.")),
    ("B by rows", "sm_90", None, lambda text: re.sub(r"(wgmma.mma_async.*), 1;", r"\1, 0;", text)),
    ("no zeros beyond the edge", "sm_80", None, lambda text: re.sub(r"(cp\.async.*, 0x10), %r\d+;", r"\1;", text)),
    ("the sum begun anew", "sm_90", None, lambda text: re.sub(r"(mov\.pred\s+%p\d+), -1;", r"\1, 0;", text)),
]  # fmt: skip


@pytest.mark.parametrize(("what", "target", "plant", "text"), FAULTS, ids=[name for name, *_ in FAULTS])
def test_a_planted_fault_shows(
    what: str, target: str, plant: Callable[[pytest.MonkeyPatch], None] | None, text: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    a, b = spread("float16")
    due = product(a, b, target)

    def changed(code: str) -> str:
        found = text(code)
        assert plant or found != code, what
        return found + "// another" * bool(plant)  # decoded anew

    if plant:
        plant(monkeypatch)
    try:
        noticed = not torch.equal(product(a, b, target, changed=changed), due)
    except (Fault, Unsupported) as why:  # an address outside the tensors, or beyond what is shared
        noticed = "outside" in str(why) or "beyond" in str(why)
    finally:
        monkeypatch.undo()
        matrix.decoded.cache_clear()
    assert noticed


# What is refused


@pytest.mark.parametrize(
    ("op", "target", "told"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_120", "what sm_120's matrix unit gives is not known"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90", "the PTX instruction mma.sync"),
        ("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32", "sm_80", "the PTX instruction mma.sync"),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_80", "the PTX instruction mma.sp"),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
            "sm_120",
            "what sm_120's matrix unit gives is not known",
        ),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_120", "what sm_120's matrix unit gives is not known"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "sm_100", "sm_90 alone has it, not sm_100"),
    ],
)
def test_units_of_which_nothing_is_known_are_refused(op: str, target: str, told: str) -> None:
    with pytest.raises(Unsupported, match=told):
        matrix.decoded(op, target)


def test_tensor_memory_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="the PTX instruction tcgen05"):
        product(*whole("float16"), target="sm_100")


def test_an_unconfirmed_unit_is_told() -> None:
    known = matrix.decoded("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90")
    other = matrix.decoded("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90")
    assert "no recordings" in str(other) and "no recordings" not in str(known)


@pytest.mark.parametrize(
    ("types", "k", "operands", "confirmed"),
    [
        ("f32.f16.f16.f32", 16, "float16", True), ("f32.bf16.bf16.f32", 16, "bfloat16", True),
        ("f32.tf32.tf32.f32", 8, "tf32", True), ("f32.e4m3.e4m3.f32", 32, "float8_e4m3fn", True),
        ("f64.f64.f64.f64", 8, "float64", False),
    ],
)  # fmt: skip
def test_the_b200_s_unit_is_told_from_what_no_b200_has_shown(
    types: str, k: int, operands: str, confirmed: bool
) -> None:
    known = matrix.decoded(f"mma.sync.aligned.m16n8k{k}.row.col.{types}", "sm_100")
    assert known.unit and (known.unit.architecture, known.unit.operands) == ("blackwell", operands)
    assert ("no recordings" in str(known)) != confirmed and known.unit.confirmed == confirmed


# Instructions around them

KERNEL = """.version 8.0
.target sm_90
.visible .entry k(.param .u64 k_0) .reqntid 32 {{
.reg .pred %p<4>; .reg .b16 %rs<8>;
.reg .b32 %r<12>;
.reg .b64 %rd<8>;
ld.param.b64 %rd0, [k_0];
mov.u32 %r9, %tid.x;
mad.wide.u32 %rd1, %r9, 16, %rd0;
ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%rd1];
{0}
st.global.b32 [%rd1], %r5;
ret;
}}
"""


def words(statement: str, *columns: Any, functions: str = "") -> Any:
    """%r5 of a statement of %r1 to %r4 for 32 threads; words as unsigned."""
    given = np.zeros((32, 4), np.uint32)
    for k, column in enumerate(columns):
        given[:, k] = np.asarray(column, np.int64).astype(np.uint32)
    memory = torch.from_numpy(given.view(np.int32).copy())
    about = SimpleNamespace(num_warps=1, shared=0, global_scratch_size=0)
    one = Launch("k", "sm_90", (1, 1, 1), (Argument("x", "*i32", memory),), about, {})
    text = KERNEL.format(statement).replace(".visible", f"{functions}\n.visible")
    ptx.execute(one, text, approx.correct)
    return memory.numpy().view(np.uint32)[:, 0]


def test_integers_are_divided_towards_zero() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.integers(-(1 << 31), 1 << 31, 32), draw.integers(1, 1000, 32) * draw.choice([-1, 1], 32)
    quotient = np.trunc(a / b).astype(np.int64)
    assert (words("div.s32 %r5, %r1, %r2;", a, b).view(np.int32) == quotient).all()
    assert (words("rem.s32 %r5, %r1, %r2;", a, b).view(np.int32) == a - quotient * b).all()
    assert (words("div.u32 %r5, %r1, %r2;", a, abs(b)) == a % (1 << 32) // abs(b)).all()
    with pytest.raises(Unsupported, match="by 0"):
        words("div.s32 %r5, %r1, %r2;", a, b * 0)


def test_bytes_are_permuted_and_signed_fields_extended() -> None:
    a, b = 0x83828180, 0x77767574
    assert words("prmt.b32 %r5, %r1, %r2, 0x7410;", a, b)[0] == 0x77748180
    assert words("prmt.b32 %r5, %r1, %r2, 0xC8F1;", a, b)[0] == 0x00FF0081
    assert words("bfe.s32 %r5, %r1, 4, 8;", 0x00000F80)[0] == 0xFFFFFFF8
    assert words("bfe.s32 %r5, %r1, 28, 8;", 0x80000000)[0] == 0xFFFFFFF8
    assert words("bfe.u32 %r5, %r1, 28, 8;", 0x80000000)[0] == 8
    assert words("bfe.s32 %r5, %r1, 3, 0;", 0xFFFFFFFF)[0] == 0


def test_integers_become_bytes_by_their_low_bits_and_the_sign_fills_the_register() -> None:
    given = [0, 127, 128, 255, 256 + 5, -1, -129, 1 << 20] + [0] * 24
    assert (words("cvt.s8.s32 %r5, %r1;", given).view(np.int32)[:8] == [0, 127, -128, -1, 5, -1, 127, 0]).all()
    assert (words("cvt.u8.u32 %r5, %r1;", given)[:8] == [0, 127, 128, 255, 5, 255, 127, 0]).all()
    back = "cvt.s8.s32 %rs1, %r1;\ncvt.s32.s8 %r5, %rs1;"
    assert (words(back, given).view(np.int32)[:8] == [0, 127, -128, -1, 5, -1, 127, 0]).all()


EVEN = "and.b32 %r6, %r9, 1;\nsetp.eq.u32 %p1, %r6, 0;\n"


def test_a_register_keeps_its_width_where_threads_take_no_part() -> None:
    """A padded load of bytes lost its padding: the register of 16 bits became one of 8."""
    lane = np.arange(32)
    padded = "mov.b16 %rs1, 777;\n@%p1 {0}.b8 %rs1, {1};\ncvt.u32.u16 %r5, %rs1;"
    found = words(EVEN + padded.format("ld.global", "[%rd1]"), lane + 200)
    assert (found == np.where(lane % 2, 777, (lane + 200) % 256)).all()
    converted = "mov.b16 %rs1, 777;\n@%p1 cvt.u8.u32 %rs1, %r1;\ncvt.u32.u16 %r5, %rs1;"
    assert (words(EVEN + converted, lane + 200) == np.where(lane % 2, 777, lane + 200)).all()


def test_a_wider_register_gets_the_sign() -> None:
    given = [-5, 7, -(1 << 31), (1 << 31) - 1] * 8
    loaded = "ld.global.s32 %rd2, [%rd1];\nshr.s64 %rd2, %rd2, 32;\ncvt.u32.u64 %r5, %rd2;"
    assert (words(loaded, given).view(np.int32) == [-1, 0, -1, 0] * 8).all()
    unsigned = loaded.replace("ld.global.s32", "ld.global.u32")
    assert not words(unsigned, given).any()
    byte = "ld.global.s8 %r5, [%rd1];"
    assert (words(byte, given).view(np.int32) == [-5, 7, 0, -1] * 8).all()


def test_names_between_braces_are_their_own() -> None:
    """Inline code of Triton repeats its labels and registers, of other types too."""
    magnitude = "{{ .reg .pred p; setp.lt.s32 p, {0}, 0; mov.b32 {1}, {0}; @!p bra DONE; neg.s32 {1}, {0}; DONE: }}\n"
    other = "{ .reg .b64 p, lo; cvt.u64.u32 p, %r6; mul.lo.u64 lo, p, 3; cvt.u32.u64 %r6, lo; }\n"
    code = magnitude.format("%r1", "%r6") + other + magnitude.format("%r2", "%r7") + "add.s32 %r5, %r6, %r7;"
    draw = np.random.default_rng(0)
    a, b = draw.integers(-1000, 1000, 32), draw.integers(-1000, 1000, 32)
    assert (words(code, a, b) == 3 * abs(a) + abs(b)).all()


FUNCTION = """
.func (.param .b32 clipped_retval0) clipped(.param .b32 clipped_param_0, .param .b32 clipped_param_1)
{
.reg .pred %p<2>;
.reg .b32 %r<4>;
ld.param.b32 %r1, [clipped_param_0];
ld.param.b32 %r2, [clipped_param_1];
st.param.b32 [clipped_retval0], %r1;
setp.lt.s32 %p1, %r1, %r2;
@%p1 ret;
st.param.b32 [clipped_retval0], %r2;
ret;
}
"""
CALL = """{{
.param .b32 param0;
.param .b32 param1;
.param .b32 retval0;
st.param.b32 [param0], {0};
st.param.b32 [param1], {1};
call.uni (retval0), clipped, (param0, param1);
ld.param.b32 {2}, [retval0];
}}
"""


def test_a_function_that_some_threads_leave_early() -> None:
    """They ended altogether."""
    a, b = np.arange(32) - 16, np.arange(32) % 5
    code = CALL.format("%r1", "%r2", "%r6") + CALL.format("%r2", "%r1", "%r7") + "mad.lo.s32 %r5, %r6, 100, %r7;"
    found = words(code, a, b, functions=FUNCTION).view(np.int32)
    assert (found == 101 * np.minimum(a, b)).all()
    struct = FUNCTION.replace(".param .b32 clipped_retval0", ".param .align 4 .b8 clipped_retval0[8]")
    with pytest.raises(Unsupported, match="clipped that has several words"):
        words(code, a, b, functions=struct)


def test_not_a_number_as_an_integer() -> None:
    """PTX ISA 9.0, cvt: 0 where neither type has 64 bits, else the highest bit."""
    nan = np.full(32, np.float32(np.nan).view(np.uint32).astype(np.int64))
    wide = "cvt.f64.f32 %rd2, %r1;\n"
    for code, due in {
        "cvt.rzi.s32.f32 %r5, %r1;": 0, "cvt.rzi.u32.f32 %r5, %r1;": 0,
        wide + "cvt.rzi.s32.f64 %r5, %rd2;": 1 << 31, wide + "cvt.rzi.u32.f64 %r5, %rd2;": 1 << 31,
        "cvt.rzi.s64.f32 %rd2, %r1;\nmov.b64 {_, %r5}, %rd2;": 1 << 31,
        "cvt.rzi.u64.f32 %rd2, %r1;\nmov.b64 {_, %r5}, %rd2;": 1 << 31,
        "cvt.rzi.s64.f32 %rd2, %r1;\nmov.b64 {%r5, _}, %rd2;": 0,
    }.items():  # fmt: skip
        assert (words(code, nan) == due).all(), code


def test_extrema_of_three_and_of_a_warp() -> None:
    """Without .NaN what is no number is left out; +0 is above -0."""
    draw = np.random.default_rng(1)
    values = draw.choice(np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, 1.5, -2.5, 3.0], np.float32), (3, 32))
    given = values.view(np.uint32).astype(np.int64)

    def due(columns: Any, sign: int) -> Any:
        ordered = [(v, not np.signbit(v)) for v in columns if not np.isnan(v)]
        return np.float32(max(ordered, key=lambda one: (sign * one[0], sign * one[1]))[0] if ordered else np.nan)

    for name, sign in (("max", 1), ("min", -1)):
        found = words(f"{name}.f32 %r5, %r1, %r2, %r3;", *given)
        expected = np.array([due(column, sign) for column in values.T])
        number = ~np.isnan(expected)
        assert (found[number] == expected.view(np.uint32)[number]).all()
        assert np.isnan(found.view(np.float32)[~number]).all()
        loud = words(f"{name}.NaN.f32 %r5, %r1, %r2, %r3;", *given).view(np.float32)
        assert (np.isnan(loud) == np.isnan(values).any(0)).all()
        whole = words(f"redux.sync.{name}.f32 %r5, %r1, -1;", given[0])
        assert (whole == due(values[0], sign).view(np.uint32)).all()
        assert np.isnan(words(f"redux.sync.{name}.NaN.f32 %r5, %r1, -1;", given[0]).view(np.float32)).all()


@pytest.mark.parametrize(("statement", "told"), [
    ("mov.u32 %r5, %warpid;", "the register %warpid"), ("mov.u32 %r5, %clock;", "the register %clock"),
    ("mov.u32 %r5, %r99;", "the register %r99"), ("@%p9 mov.u32 %r5, %r1;", "the predicate %p9"),
    ("mov.u32 %r5, nothing;", "the PTX instruction mov.u32 %r5, nothing"),
    ("add.s32 %r5, %r1, %r2, %r3;", "add.s32 with 4 operands"), ("add.u64 %rd2, %r1, %rd1;", "add.u64 %rd2, %r1"),
    ("min.f64 %rd2, %rd1, %rd1, %rd1;", "min.f64"),
    ("ld.param.b32 %r5, [k_0+4];", "ld.param.b32"),
])  # fmt: skip
def test_what_nothing_declares_or_models_is_refused(statement: str, told: str) -> None:
    """Registers that nobody declares were 0, and operands too many left out."""
    with pytest.raises(Unsupported, match=re.escape(told)):
        words(statement, 1)


def test_tf32_is_to_nearest_with_ties_away() -> None:
    given = [0x3F800FFF, 0x3F801000, 0xBF801000, 0x7F7FFFFF, 0x7F800000, 0x7FC00001, 0x00000FFF, 0x00001000]
    due = [0x3F800000, 0x3F802000, 0xBF802000, 0x7F800000, 0x7F800000, 0x7FC00000, 0, 0x2000]
    assert words("cvt.rna.tf32.f32 %r5, %r1;", given + [0] * 24)[:8].tolist() == due


def test_a_shuffle_from_a_lane_left_out_by_a_predicate_is_told() -> None:
    with pytest.raises(Unsupported, match="does not take part"):
        words("setp.lt.u32 %p1, %r9, 16;\n@%p1 shfl.sync.bfly.b32 %r5, %r1, 16, 31, -1;", 1)
    with pytest.raises(Unsupported, match="part of a warp"):
        words("setp.lt.u32 %p1, %r9, 16;\n@%p1 redux.sync.add.u32 %r5, %r1, -1;", 1)


def test_scaled_products_of_a_matrix_unit_resolve() -> None:
    """Scales after the sum or on parts of it, never on what the unit multiplies: a bound for that would say nothing."""
    selection = Selection(
        ("scaled_mm",), ("virtual-cuda",), ("float8_e4m3fn",), ("triton",), profile="quick", scalars={"fast": 0.0}
    )
    [cell] = [one for one in run(selection)["cells"] if one["status"] != "not-run"]
    assert cell["status"] == "passed", cell["reason"]
    assert cell["formula"]["identified"].startswith("hopper float8_e4m3fn wgmma: one chain")
