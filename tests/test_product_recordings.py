"""Outputs of products on an H200 (torch 2.11.0, triton 3.6.0), recorded by bench/products_gpu.py: the formula of each
reproduces them bit for bit, and the search finds it."""

from __future__ import annotations

import io
import lzma
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verify.facts.formats import FORMATS
from verify.facts.kernel import load
from verify.families import products_formulas
from verify.families.products_data import decoded
from verify.families.products_formulas import Candidate
from verify.inputs.domains import CHUNK
from verify.judge.chunk import digests
from verify.judge.tally import root
from verify.numbers import units
from verify.numbers.units import Plan

RECORDED = Path(__file__).parent / "vectors" / "products.npz.xz"
HALF, BRAIN, TF32 = (units.unit("hopper", name) for name in ("float16", "bfloat16", "tf32"))
SUMS, BRAIN8 = units.unit("hopper", "float16", "float16"), units.unit("hopper", "bfloat16", "float32", "m16n8k8")
EIGHTH = units.unit("hopper", "float8_e4m3fn", "float32", "wgmma")
SINGLE, DOUBLE = units.scalar("float32"), units.scalar("float64")
UNITS = {"float16": HALF, "bfloat16": BRAIN, "float32": SINGLE, "float64": DOUBLE}


def split(unit: Any, every: int, **how: Any) -> Candidate:
    operands = {"operands": "tf32"} if unit is TF32 else {}
    return Candidate(Plan(unit, every=every, **how), **operands)


def halves(dtype: str, every: int, **how: int) -> Candidate:
    return split(UNITS[dtype], every, tree="halves", **how)


def lanes(unit: Any, parts: int, grain: int, **how: Any) -> Candidate:
    return Candidate(Plan(unit, parts=parts, grain=grain, **{"tree": "halves", **how}))


#: A row alone: float16 and bfloat16 are dealt to a warp by fours, float32 to two by 64, float64 to blocks of 128.
ROW = {
    "float16": lanes(SINGLE, 32, 4, dealt=True), "bfloat16": lanes(SINGLE, 32, 4, dealt=True),
    "float32": lanes(SINGLE, 2, 64, dealt=True, tree=""),
    "float64": Candidate(Plan(Plan(DOUBLE, parts=128, grain=1, dealt=True, tree="halves"), every=128)),
}  # fmt: skip
#: By lowering, dtype and setting, '' for any other.
FORMULAS: dict[tuple[str, str, str], Candidate] = {
    **{("eager", dtype, ""): Candidate(Plan(unit)) for dtype, unit in UNITS.items()},
    **{("eager", dtype, "one row"): one for dtype, one in ROW.items()},
    ("eager", "float16", "one column"): lanes(SINGLE, 16, 1),
    ("eager", "bfloat16", "one column"): lanes(SINGLE, 32, 1),
    ("eager", "float32", "one column"): lanes(SINGLE, 32, 1),
    ("eager", "float64", "one column"): lanes(DOUBLE, 32, 1),
    ("eager", "float16", "33x517x20"): split(HALF, 72, tile=64),
    ("eager", "bfloat16", "33x517x20"): split(BRAIN8, 40, tile=32),
    **{("eager", d, "64x4096x64"): Candidate(Plan(UNITS[d], parts=3, grain=64)) for d in ("float16", "bfloat16")},
    **{("eager", "float32", name): split(SINGLE, every) for name, every in {
        "33x517x20": 132, "64x80x48": 8, "128x1024x128": 64, "64x4096x64": 64, "transposed b": 32, "strided": 32,
    }.items()},
    **{("eager", "float64", name): split(DOUBLE, 128) for name in ("128x1024x128", "64x4096x64")},
    **{("eager-fp16-sums", "float16", name): split(SUMS, every, adding="float16") for name, every in {
        "33x517x20": 8, "64x80x48": 8, "transposed a": 8, "transposed b": 8, "strided": 8, "128x1024x128": 64,
        "64x4096x64": 192,
    }.items()},
    ("eager-fp16-sums", "float16", "one row"): Candidate(Plan(SUMS, tile=128)),
    ("eager-fp16-sums", "float16", "one column"): Candidate(Plan(SUMS, tile=64)),
    ("eager-tf32", "float32", "33x517x20"): Candidate(Plan(TF32), "tf32"),
    **{("eager-tf32", "float32", name): split(TF32, every) for name, every in {
        "64x80x48": 4, "transposed a": 4, "transposed b": 32, "strided": 32, "128x1024x128": 64, "64x4096x64": 128,
    }.items()},
    ("eager-tf32", "float32", "one row"): ROW["float32"],
    ("eager-tf32", "float32", "one column"): lanes(SINGLE, 32, 1),
    **{("inductor-decompose-k", d, name): halves(d, 128, apart=apart, near=near) for d, name, apart, near in (
        ("float16", "128x1024x128", 1, 4), ("bfloat16", "128x1024x128", 1, 1), ("float32", "128x1024x128", 1, 1),
        ("float64", "128x1024x128", 2, 2), ("float16", "64x4096x64", 1, 4), ("bfloat16", "64x4096x64", 1, 1),
        ("float32", "64x4096x64", 1, 4), ("float64", "64x4096x64", 2, 8),
    )},
    ("inductor-template", "float16", "64x4096x64"): halves("float16", 256, near=4),
    ("inductor-template", "bfloat16", "64x4096x64"): halves("bfloat16", 256, near=4),
    ("inductor-template", "float32", "64x4096x64"): halves("float32", 128, apart=4),
    # promoted every 128, where sums are not fast
    ("eager", "float8_e4m3fn", "fast=0.0"): split(EIGHTH, 128),
    ("eager", "float8_e4m3fn", "fast=1.0"): Candidate(Plan(EIGHTH)),
    # eight warps, which take eight blocks in turn, and add them one after another
    ("eager", "bfloat16", "codes"): Candidate(
        Plan(Plan(BRAIN, every=16), parts=8, grain=128, dealt=True), weights=("bfloat16",)
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Gpu:
    name: str = "cuda"

    def capability(self) -> str:
        return "sm_90"


def recorded() -> dict[str, Any]:
    with np.load(io.BytesIO(lzma.decompress(RECORDED.read_bytes()))) as held:
        return dict(held)


def known(name: str) -> tuple[Any, Any, Candidate, str]:
    """The problem, the factors of the recorded outputs, their formula, and their dtype."""
    kernel, lowering, dtype, told = name.split("|")
    setting, _, fast = told.partition(" fast=")
    facts: Any = load(kernel)
    one = next(s for s in facts.settings if s.name == setting)
    problem = decoded(facts.problem(dtype, one, {"fast": float(fast)} if fast else {}, 0))
    shape = problem.extra["shape"]
    x = products_formulas._given(problem)
    some = products_formulas._some(x, list(range(min(24, shape.m))), list(range(min(24, shape.n))))
    which = f"fast={fast}" if fast else "codes" if shape.group else setting
    formula = FORMULAS.get((lowering, dtype, which)) or FORMULAS[lowering, dtype, ""]
    return problem, some, formula, facts.family.result(dtype)


@pytest.mark.parametrize("name", [name for name in recorded() if not name.startswith("dot")])
def test_the_formula_reproduces_what_an_h200_computed(name: str) -> None:
    problem, x, formula, result = known(name)
    due = torch.from_numpy(recorded()[name]).view(getattr(torch, result))
    found = formula(problem, x, result)
    assert found.shape == due.shape
    assert torch.equal(found, due)


@pytest.mark.parametrize(
    "name",
    [
        "mm|eager|float16|33x517x20", "mm|eager|bfloat16|33x517x20", "mm|eager|float32|33x517x20",
        "mm|eager|float64|one row", "mm|eager|float32|one column", "mm|eager|float16|one row",
        "mm|eager-tf32|float32|64x80x48", "mm|eager-fp16-sums|float16|transposed a",
        "mm|inductor-decompose-k|float64|128x1024x128", "mm|inductor-decompose-k|float16|128x1024x128",
        "scaled_mm|eager|float8_e4m3fn|128x1024x128 fast=0.0", "int4_mm|eager|bfloat16|48x1024x64 by 32",
    ],
)  # fmt: skip
def test_the_search_names_it(name: str) -> None:
    """Of the whole output, which the formula makes."""
    problem, _, formula, result = known(name)
    y = formula(problem, products_formulas._given(problem), result)
    found = products_formulas.searched(problem, Gpu(), result, y)
    assert [text for text, make in found.items() if torch.equal(make(), y)]


#: Digests of whole outputs of 33 x 517 x 20, bfloat16, by kernel, setting and lowering, and the formulas of the sum.
KEPT = Candidate(Plan(BRAIN8, parts=3, grain=8, tile=16, stored="float32", adding="bfloat16"), epilogue="onto")
ROUNDED = Candidate(Plan(BRAIN8, parts=3, grain=8, tile=16), epilogue="stored")
DIGESTS = {
    ("addmm", "33x517x20", "eager"): ("e7cde00e4a3b1549", KEPT),
    ("addmm", "33x517x20", "eager-full"): ("fcbb3b29cdbd8ad4", ROUNDED),
    ("linear", "33x517x20 silu", "eager"): ("5e3c142cab08fe9f", KEPT),  # and Inductor's, which calls the same function
    ("linear", "33x517x20 silu", "eager-full"): ("19443dd0961b06f6", ROUNDED),
}


@pytest.mark.parametrize(("kernel", "setting", "lowering"), DIGESTS)
def test_a_bias_meets_parts_in_bfloat16_or_a_sum_that_was_rounded(kernel: str, setting: str, lowering: str) -> None:
    """What an H200 gave has the digest of the formula's outputs. By default torch allows reductions in the dtype: three
    parts are added one after another to the bias, kept in bfloat16. Without them their sum is rounded, then with the
    bias, then once more after an activation."""
    due, formula = DIGESTS[kernel, setting, lowering]
    facts: Any = load(kernel)
    one = next(s for s in facts.settings if s.name == setting)
    problem = facts.problem("bfloat16", one, dict.fromkeys(("alpha", "beta"), 1.0) if kernel == "addmm" else {}, 0)
    bare = replace(problem, extra={**problem.extra, "shape": replace(problem.extra["shape"], activation="none")})
    y = formula(bare, products_formulas._given(bare), "bfloat16")
    y = torch.nn.functional.silu(y) if "silu" in setting else y
    assert root(digests(0, (), y.reshape(-1), FORMATS["bfloat16"], CHUNK).digests) == due
    if "silu" not in setting:
        found = products_formulas.searched(problem, Gpu(), "bfloat16", y)
        assert [text for text, make in found.items() if torch.equal(make(), y)]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bits_by_one_warp_join_what_was_before_in_every_block(dtype: str) -> None:
    """Blocks that begin from c, with the exponents of float16, where the recordings of float16 results add c last."""
    kinds = {"a": dtype, "b": dtype, "c": "float32", "y": "float32"}
    a, b, c, y = (torch.from_numpy(recorded()[f"dot|{dtype}|{x}"]).view(getattr(torch, t)) for x, t in kinds.items())
    unit = units.unit("hopper", dtype, "float32", "mma.sync")
    assert torch.equal(unit.matmul(a, b, c), y)
    for rival in ({"separate": 32}, {"fraction": 24}, {"groups": 1}):
        assert not torch.equal(replace(unit, **rival).matmul(a, b, c), y), rival


def test_subnormal_operands_of_eight_bits_have_the_exponents_of_float16() -> None:
    """2^-8 is subnormal in e4m3; one output of an H200's tl.dot by one warp."""
    unit, zeros = units.unit("hopper", "float8_e4m3fn", "float32", "mma.sync"), torch.zeros(1, 31)
    a, b = (torch.cat([zeros, torch.tensor([[x]])], 1).to(torch.float8_e4m3fn) for x in (-1.625, 2.0**-8))
    c, y = float.fromhex("0x1.9f742ap-10"), float.fromhex("-0x1.3822f4p-8")
    assert unit.matmul(a, b.mT, c).item() == y
    assert replace(unit, emin=-6).matmul(a, b.mT, c).item() == float.fromhex("-0x1.3822f6p-8")
