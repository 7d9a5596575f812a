"""Recorded instructions: what a table means, how it is packed, and whether the proof would notice a wrong model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verify.virtual import approx

BENCH = Path(__file__).parent.parent / "bench" / "instructions.py"


@pytest.fixture(scope="module")
def bench() -> Any:
    if not BENCH.is_file():
        pytest.skip("the measurements are not installed")
    spec = importlib.util.spec_from_file_location("instructions", BENCH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.CHUNK = 1 << 15
    return module


@pytest.mark.parametrize(
    ("name", "function"),
    [("rcp", torch.reciprocal), ("rsq", torch.rsqrt), ("sqrt", torch.sqrt), ("ex2", torch.exp2), ("lg2", torch.log2)],
)
def test_with_correctly_rounded_tables_a_unit_is_its_function(name: str, function: Any) -> None:
    """Flushed. ex2 cuts its argument off behind 23 bits, and is a step short below zero; lg2 cuts sums off."""
    x = torch.randint(-(1 << 31), 1 << 31, (1 << 18,), generator=torch.Generator().manual_seed(1)).to(torch.int32)
    x = torch.cat([x, torch.tensor([0, -(1 << 31), 1, 0x7F800000, 0x7FC00000, -8388608, 0x3F800000, 0x42FE0000])])
    x = x.to(torch.int32)
    y = approx.f32(approx.UNITS[name](x, torch.from_numpy(approx.nearest(name))))
    value = approx.f32(x)
    flushed = torch.where(value.abs() < 2.0**-126, value * 0, value)
    exact = function(flushed.double()).float()
    exact = torch.where(exact.abs() < 2.0**-126, exact * 0, exact)
    same = (y == exact) | (y.isnan() & exact.isnan())
    assert (same | ((approx.i32(y) - approx.i32(exact)).abs() <= {"ex2": 3, "lg2": 2}.get(name, 0))).all()
    assert same.float().mean() > 0.4


@pytest.mark.parametrize("name", ["rcp64h", "ex2"])
def test_a_table_survives_packing(name: str) -> None:
    nearest = approx.nearest(name)
    table = (nearest + np.random.default_rng(0).integers(-2, 2, len(nearest))).astype(np.int32)
    data = approx.packed(name, table)
    assert len(data) <= len(table) / 4 + 4096
    assert np.array_equal(approx.unpacked(name, data), table)
    table[77] += 1000 if len(table) == 1 << 20 else 0
    assert np.array_equal(approx.unpacked(name, approx.packed(name, table)), table)
    with pytest.raises(ValueError, match=f"holds the table of {name}; expected rsq"):
        approx.unpacked("rsq", data)


@pytest.mark.parametrize(
    ("instruction", "x", "y"),
    [
        ("ex2.approx.ftz.f32", 0xBE000000, 0x3F6AC0C5),  # a step short below zero, and an ULP more
        ("ex2.approx.ftz.f32", 0xBF000000, 0x3F3504F2),
        ("ex2.approx.ftz.f32", 0x80800000, 0x3F800000),  # cut off toward zero
        ("lg2.approx.ftz.f32", 0x00800000, 0xC2FBFFFF),  # cut off, although -126 is exact
        ("lg2.approx.ftz.f32", 0x011FED85, 0xC2F95B81),
        ("lg2.approx.f32", 0x0000001D, 0xC310245B),
        ("lg2.approx.f32", 0x00B92DEB, 0xC2FAEF37),
    ],
)
def test_recorded_tables_give_the_h200_s_bits(instruction: str, x: int, y: int) -> None:
    """Of those that a first model had missed."""
    given = torch.from_numpy(np.array([x], np.uint32).view(np.float32))
    result = approx.INSTRUCTIONS[instruction](approx.of_chip("sm_90"), given)
    assert int(result.numpy().view(np.uint32)[0]) == y


def test_the_correctly_rounded_reciprocal_is_that_of_rationals() -> None:
    nearest = approx.nearest("rcp64h")
    for k in (0, 1, 12345, (1 << 20) - 1):
        exact = (1 << 21 << 20) // ((1 << 20) + k)  # 2^21 / x, rounded down
        twice = (1 << 22 << 20) // ((1 << 20) + k)
        expected = exact + (twice & 1) if k else 1 << 20
        assert (int(nearest[k]) & 0xFFFFF) == (expected & 0xFFFFF), k


def test_a_table_off_by_one_and_a_finer_argument_are_noticed(bench: Any) -> None:
    tables = {name: torch.from_numpy(approx.nearest(name)) for name in ("ex2", "rcp64h")}
    wrong = tables["rcp64h"].clone()
    wrong[: 1 << 19] += 1

    def gpu(instruction: str, x: torch.Tensor) -> torch.Tensor:
        if instruction.endswith("f64"):
            return approx.rcp64h(x, tables["rcp64h"])
        return approx.ex2(x, tables["ex2"]) + ((x & 1) == 0) * ((x & approx.MAGNITUDE) >> 23 == 126)

    def differing(instruction: str, model: Any) -> int:
        return int(bench.compared(gpu, instruction, model, 65537, "cpu")["differing"])

    assert differing("rcp.approx.ftz.f64", lambda x: approx.rcp64h(x, tables["rcp64h"])) == 0
    assert differing("rcp.approx.ftz.f64", lambda x: approx.rcp64h(x, wrong)) > 20000
    assert differing("ex2.approx.ftz.f32", lambda x: approx.ex2(x, tables["ex2"])) > 100


@pytest.mark.parametrize("name", ["rcp", "rsq", "sqrt", "ex2", "lg2"])
def test_the_ends_of_documented_errors_enclose_what_was_recorded(name: str) -> None:
    """Of a chip of which nothing was recorded, and of the H200."""
    x = torch.rand(1 << 16, generator=torch.Generator().manual_seed(2)) * 8
    low, high, real = (approx.f32(approx.of_chip(chip, end)(name, approx.i32(x)))
                       for chip, end in (("sm_99", -1), ("sm_99", 1), ("sm_90", 0)))  # fmt: skip
    assert (low < high).float().mean() > 0.99
    assert ((low <= real) & (real <= high)).all()
