"""Matrix units: recorded hardware results, a second model in rationals, and rivals that must fail."""

from __future__ import annotations

import io
import lzma
import math
import random
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verify import native
from verify.facts.formats import FORMATS, floor_log2
from verify.numbers import units
from verify.numbers.units import EMIN, Unit

Tensor = torch.Tensor
RECORDED = Path(__file__).parent / "vectors" / "tensor_cores.npz.xz"
OPERANDS = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "E4M3": torch.float8_e4m3fn,
    "E5M2": torch.float8_e5m2,
}  # fmt: skip
ARCHITECTURES = {
    "V100": "volta", "A2": "ampere", "A100": "ampere", "Ada": "ada", "L40S": "ada", "H100": "hopper", "H200": "hopper",
    "B200": "blackwell",
}  # fmt: skip


@cache
def recorded() -> dict[str, np.ndarray[Any, Any]]:
    with lzma.open(RECORDED) as file:
        return dict(np.load(io.BytesIO(file.read())))


def files() -> list[str]:
    return sorted({name.split("/")[0] for name in recorded()})


def given(name: str) -> tuple[Unit, Tensor, Tensor, Tensor, Tensor]:
    """Unit, a, b, c and d of a file of recordings."""
    chip, operands, _, result = name.split("_")
    dtype = OPERANDS[operands]
    a, b, c, d = (torch.from_numpy(recorded()[f"{name}/{x}"].copy()) for x in "abcd")
    a, b = (t.view(dtype) for t in (a, b))
    c, d = c.view(torch.float32), d.view(torch.float16 if result == "fp16" else torch.float32)
    eighth = operands.startswith("E")
    instruction = ""
    if eighth and chip in ("H100", "H200", "B200"):
        # fp8 goes through mma.sync, but for float32 results of Hopper, which are wgmma's from c = 0
        wide = result == "fp32" and chip != "B200"
        instruction, c = ("wgmma", torch.zeros_like(c)) if wide else ("mma.sync", c)
    kind = "tf32" if operands == "tf32" else str(dtype).removeprefix("torch.")
    wanted = str(d.dtype).removeprefix("torch.")
    return units.unit(ARCHITECTURES[chip], kind, wanted, instruction), a, b, c, d


def different(unit: Unit, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> int:
    word = torch.int16 if d.dtype == torch.float16 else torch.int32
    return int((unit.dot(a, b, c).view(word) != d.view(word)).sum())


@pytest.mark.parametrize("name", files())
def test_recorded_hardware(name: str) -> None:
    unit, *vectors = given(name)
    assert unit.confirmed and name.split("_")[0] in unit.chips
    assert different(unit, *vectors) == 0


def test_every_confirmed_unit_is_recorded() -> None:
    assert {given(name)[0] for name in files()} == {u for u in units.units() if u.confirmed}


@pytest.mark.parametrize("name", [f for f in files() if f.split("_")[3] == "fp32" and not f.startswith("B200_E")])
def test_rivals_fail_on_the_recordings(name: str) -> None:
    """F one more or less, result bits, K halved, nearest for cut."""
    unit, *vectors = given(name)
    rivals = {
        "fraction + 1": replace(unit, fraction=unit.fraction + 1),
        "fraction - 1": replace(unit, fraction=unit.fraction - 1),
        "half the terms": replace(unit, terms=unit.terms // 2),
        "kept": replace(unit, kept=unit.kept - 1),
        "added after": replace(unit, separate=vectors[0].shape[-1]),
    }
    if unit.operands == "tf32" and unit.architecture in ("hopper", "blackwell"):
        del rivals["half the terms"]  # recordings have 4 terms of 8
    if name.split("_")[1].startswith("E") and unit.instruction == "wgmma":
        del rivals["added after"]  # c is 0
    assert {what: different(rival, *vectors) for what, rival in rivals.items() if different(rival, *vectors) == 0} == {}


# A second model, of one block at a time, in rationals


def second(unit: Unit, a: list[Fraction], b: list[Fraction], c: Fraction) -> Fraction:
    """The aligned rule on finite numbers; an infinity as a number beyond float32."""
    least, span, blocks = unit.emin or EMIN[unit.operands], unit.groups * unit.terms, dict[Any, list[Any]]()
    for place, pair in enumerate(zip(a, b, strict=True)):
        blocks.setdefault((place // span, place // unit.run % unit.groups if unit.groups > 1 else 0), []).append(pair)
    for _, block in sorted(blocks.items()):
        terms = []
        for x, y in block:
            if x and y:
                terms.append((x * y, sum(max(floor_log2(abs(t)), least) for t in (x, y))))
        if c:
            terms.append((c, max(floor_log2(abs(c)), -126)))
        top = max([unit.floor, *(e for _, e in terms)])
        grid = Fraction(2) ** (top - unit.fraction)
        c = sum((grid * math.trunc(t / grid) for t, _ in terms), Fraction(0))
        if unit.result == "float16":
            if FORMATS["float16"].is_inf(bits := FORMATS["float16"].round(c)):
                return c * 2**1000  # finite terms leave an infinity as it is
            c = FORMATS["float16"].fraction(bits)
        elif c:
            ulp = Fraction(2) ** (max(floor_log2(abs(c)), -126) - unit.kept)
            c = ulp * math.trunc(c / ulp)
    return c


def drawn(dtype: torch.dtype, shape: tuple[int, int], rng: random.Random, spread: int) -> Tensor:
    """Hashed significands over so many binades around 1, or over all with subnormals where it is 0; some zeros."""
    values = torch.tensor([rng.uniform(1, 2) * rng.choice((-1, 1)) for _ in range(shape[0] * shape[1])]).double()
    low = {torch.float16: -26, torch.bfloat16: -75, torch.float32: -75, torch.float8_e4m3fn: -10,
           torch.float8_e5m2: -17}[dtype]  # fmt: skip
    powers = [rng.randint(low, -low // 2) if not spread else rng.randint(-spread, spread) for _ in values]
    values = torch.ldexp(values, torch.tensor(powers))
    values[torch.tensor([rng.random() < 0.05 for _ in values])] = 0.0
    t = values.float().to(dtype).reshape(shape)
    return (t.view(torch.int32) & -(1 << 13)).view(torch.float32) if dtype == torch.float32 else t


@pytest.mark.parametrize("spread", [0, 1, 12])
@pytest.mark.parametrize("unit", [u for u in units.units() if u.rule == "aligned" and not u.separate], ids=str)
def test_the_aligned_rule_in_rationals(unit: Unit, spread: int) -> None:
    rng = random.Random(f"{unit} {spread}")
    dtype = torch.float32 if unit.operands == "tf32" else getattr(torch, unit.operands)
    k = 2 * unit.terms + 3
    a, b = drawn(dtype, (24, k), rng, spread), drawn(dtype, (24, k), rng, spread)
    b[:12, 1::2] = a.float()[:12, : k - 1 : 2].to(dtype)  # neighbours cancel
    a[:12, 1::2] = (-b.float()[:12, : k - 1 : 2]).to(dtype)
    c = drawn(torch.float32, (24, 1), rng, spread)[:, 0].to(getattr(torch, unit.result))
    c = torch.where(c.isfinite(), c, 1.0)
    c[::3] = 0.0
    found = unit.dot(a, b, c)
    for k, y in enumerate(found.double().tolist()):
        rows = [[Fraction(x) for x in t[k].double().tolist()] for t in (a, b)]
        expected = second(unit, *rows, Fraction(float(c[k])))
        assert y == (
            float(expected) if abs(expected) < Fraction(2) ** 128 else math.inf * (1 if expected > 0 else -1)
        ), k


@pytest.mark.parametrize("fmt", ["float32", "float64"])
def test_chains_are_fused_multiply_adds(fmt: str) -> None:
    rng, form = random.Random(fmt), FORMATS[fmt]
    rows = [[rng.uniform(-1, 1) * 2.0 ** rng.randint(-30, 30) for _ in range(9)] for _ in range(40)]
    a, b = torch.tensor(rows[::2]).to(getattr(torch, fmt)), torch.tensor(rows[1::2]).to(getattr(torch, fmt))
    found = units.scalar(fmt).dot(a, b)
    for y, x, z in zip(found.tolist(), a.double().tolist(), b.double().tolist(), strict=True):
        total = Fraction(0)
        for p, q in zip(x, z, strict=True):
            total = form.fraction(form.round(Fraction(p) * Fraction(q) + total))
        assert Fraction(y) == total


NATIVE = [
    units.unit("amx", "bfloat16"),
    units.unit("avx512_bf16", "bfloat16"),
    *map(units.scalar, ("float32", "float64")),
    units.scalar("float32", fused=False),
]


def test_products_without_fma_are_rounded_first() -> None:
    torch.manual_seed(3)
    a, b = (torch.randn(64, 40) * 2.0 ** torch.randint(-20, 20, (64, 40)) for _ in range(2))
    due = torch.zeros(64)
    for x, y in zip(a.T, b.T, strict=True):
        due = due + x * y
    assert torch.equal(units.scalar("float32", fused=False).dot(a, b), due)
    assert not torch.equal(units.scalar("float32").dot(a, b), due)


@pytest.mark.parametrize("unit", NATIVE, ids=str)
@pytest.mark.parametrize("spread", [1, 30, 70])
def test_native_chains_are_those_of_tensors(unit: Unit, spread: int) -> None:
    """Subnormal sums, overflow, infinities and NaNs too."""
    rng, dtype = random.Random(f"{unit} {spread}"), getattr(torch, unit.operands)
    a, b = (drawn(torch.float32, size, rng, spread).to(dtype) for size in ((9, 71), (71, 13)))
    a[0, 3], a[1, 5], b[7, 2], b[9, 4] = math.inf, math.nan, -math.inf, 0.0
    found = unit.matmul(a, b, torch.ones(13))
    due = unit.dot(a[:, None], b.mT[None], torch.ones(13))
    assert torch.equal(found.nan_to_num(nan=7.0), due.nan_to_num(nan=7.0))
    assert torch.equal(found.signbit() | found.isnan(), due.signbit() | due.isnan())


@pytest.mark.parametrize("unit", [u for u in units.units() if u.rule == "aligned"], ids=str)
@pytest.mark.parametrize("spread", [1, 30, 70])
def test_native_blocks_are_those_of_tensors(unit: Unit, spread: int) -> None:
    """Subnormal sums and overflow too; operands that are not finite are left to tensors."""
    rng, dtype = (
        random.Random(f"{unit} {spread}"),
        getattr(torch, "float32" if unit.operands == "tf32" else unit.operands),
    )
    most = torch.finfo(dtype).max
    a, b = (drawn(torch.float32, size, rng, spread).clamp(-most, most).to(dtype) for size in ((9, 71), (71, 13)))
    c = drawn(torch.float32, (9, 13), rng, spread)
    a[0, 3], b[9, 4] = 0.0, 0.0
    found, due = unit.matmul(a, b, c), unit.dot(a[:, None], b.mT[None], c)
    assert torch.equal(found.nan_to_num(nan=7.0), due.nan_to_num(nan=7.0))
    assert torch.equal(found.signbit() | found.isnan(), due.signbit() | due.isnan())
    stacks = torch.stack([a, a.flip(0)]), torch.stack([b, b])
    assert torch.equal(unit.product(*stacks, c)[0].nan_to_num(7.0), unit.product(a, b, c).nan_to_num(7.0))
    if native.host() is not None:
        assert unit._natively(a, b, c) is not None
        a[1, 5] = math.nan
        assert unit._natively(a, b, c) is None


@pytest.mark.parametrize("unit", units.units(), ids=str)
def test_matmul_is_dot_and_exact_data_is_exact(unit: Unit) -> None:
    """Small whole numbers are summed exactly by every rule, whatever the order; rows are cut into tiles."""
    generator = torch.Generator().manual_seed(1)
    dtype = torch.float32 if unit.operands == "tf32" else getattr(torch, unit.operands)
    a = torch.randint(-2, 3, (5, 37), generator=generator).float().to(dtype)
    b = torch.randint(-2, 3, (37, 7), generator=generator).float().to(dtype)
    c = torch.randint(-2, 3, (5, 7), generator=generator).to(getattr(torch, unit.result))
    due = (a.double() @ b.double() + c.double()).to(getattr(torch, unit.result))
    found = unit.matmul(a, b, c)
    assert found.dtype == due.dtype and torch.equal(found, due)
    noise = torch.randn(5, 37, generator=generator).to(dtype), torch.randn(37, 7, generator=generator).to(dtype)
    before, units.TILE = units.TILE, 14
    try:
        assert torch.equal(unit.matmul(*noise, c), unit.dot(noise[0][:, None], noise[1].mT[None], c))
    finally:
        units.TILE = before


HOPPER = units.unit("hopper", "bfloat16")


@pytest.mark.parametrize(
    ("a", "b", "c", "due"),
    [
        ([math.inf, 1.0], [1.0, 1.0], 0.0, math.inf),
        ([math.inf, 1.0], [-2.0, 1.0], 0.0, -math.inf),
        ([math.inf, 1.0], [0.0, 1.0], 0.0, math.nan),
        ([math.inf, math.inf], [1.0, -1.0], 0.0, math.nan),
        ([math.nan, 1.0], [1.0, 1.0], 0.0, math.nan),
        ([1.0, 1.0], [1.0, 1.0], math.nan, math.nan),
        ([1.0, 1.0], [1.0, 1.0], -math.inf, -math.inf),
        ([math.inf, 1.0], [1.0, 1.0], -math.inf, math.nan),
        ([2.0**100, 1.0], [2.0**100, 1.0], 0.0, math.inf),
        ([2.0**100, 2.0**100], [2.0**100, -(2.0**100)], 1.0, 0.0),  # a block's products leave float32's range alone
        ([2.0**127, 2.0**126], [1.0, 1.0], 2.0**126, math.inf),
        ([-0.0, 0.0], [1.0, 1.0], -0.0, 0.0),
        ([1.0, -1.0], [1.0, 1.0], 0.0, 0.0),
        ([2.0**-75, 0.0], [2.0**-74, 0.0], 0.0, 2.0**-149),
        ([2.0**-75, 0.0], [1.75 * 2.0**-75, 0.0], 0.0, 0.0),  # cut, not rounded
        ([2.0**-133, 0.0], [1.0, 0.0], 2.0**-149, 2.0**-133 + 2.0**-149),
    ],
)
def test_special_values(a: list[float], b: list[float], c: float, due: float) -> None:
    found = HOPPER.dot(torch.tensor(a).bfloat16(), torch.tensor(b).bfloat16(), torch.tensor(c))
    if math.isnan(due):
        assert int(found.view(torch.int32)) == 0x7FFFFFFF
    else:
        assert float(found) == due and math.copysign(1.0, float(found)) == math.copysign(1.0, due)


def test_a_unit_that_is_not_there() -> None:
    with pytest.raises(KeyError, match=r"no volta unit of bfloat16 .* volta float16"):
        units.unit("volta", "bfloat16")
    with pytest.raises(KeyError, match="architectures: ada, "):
        units.unit("sm_42", "float16")
