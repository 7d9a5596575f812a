"""Is a GPU's matrix unit what `verify.numbers.units` says? 10^6 dot products a dtype and recipe, by `tl.dot`.

    PYTHONPATH=. python3 bench/units_gpu.py [--out FILE] [--architecture hopper] [--size 1024]

Counts the outputs whose bits differ (NaNs apart, whose patterns are counted), for mma.sync (one warp) and wgmma (four),
and for rivals, of which the unit must have none as good. Takes a minute on an H200; prints JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Values = dict[str, Any]
#: Terms of a dot product, of which every unit takes several blocks.
TERMS = 64


def recipes(torch: Any, dtype: Any, size: int) -> Iterator[tuple[str, Any, Any, Any]]:
    """(name, a, b, c): a (size, TERMS), b (TERMS, size) of the dtype and c (size, size) float32, on the GPU."""
    generator = torch.Generator(device="cuda").manual_seed(1)
    single = dtype == torch.float32
    info = torch.finfo(torch.bfloat16 if single else dtype)
    low, high = math.floor(math.log2(info.smallest_normal)) - (0 if single else 10), math.floor(math.log2(info.max))

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, device="cuda")

    def spread(t: Any, least: int, most: int) -> Any:
        powers = torch.randint(least, most + 1, t.shape, generator=generator, device="cuda")
        return torch.ldexp(t.clamp(-2, 2), powers)

    def some(t: Any, share: float, value: float) -> Any:
        return torch.where(torch.rand(t.shape, generator=generator, device="cuda") < share, value, t)

    a, b, c = normal(size, TERMS), normal(TERMS, size), normal(size, size)
    yield "normal", a.to(dtype), b.to(dtype), c
    yield "from zero", a.to(dtype), b.to(dtype), c * 0
    yield "13 binades", spread(a, -6, 6).to(dtype), spread(b, -6, 6).to(dtype), spread(c, -6, 6)
    wide = max(low, -60), min(high - 1, 60)
    yield "wide", spread(a, *wide).to(dtype), spread(b, *wide).to(dtype), spread(c, -60, 60)
    pairs = torch.stack([b[::2], -b[::2] * (1 + 2.0**-7 * normal(TERMS // 2, size).round())], 1).reshape(TERMS, size)
    twice = a[:, ::2].repeat_interleave(2, 1)
    yield "cancelling", twice.to(dtype), pairs.to(dtype), c * 2.0**-12
    tiny = max(low, -140)
    yield "subnormal operands", spread(a, tiny, tiny + 12).to(dtype), b.to(dtype), c * 2.0**tiny
    if low < -60:  # products and sums below 2^-126
        half = -75
        yield "subnormal sums", spread(a, half, half + 6).to(dtype), spread(b, half, half + 6).to(dtype), c * 2.0**-140
        zeros = some(spread(a, half, half + 2), 0.9, 0.0), some(spread(b, half, half + 2), 0.9, 0.0)
        yield "few subnormal terms", zeros[0].to(dtype), zeros[1].to(dtype), c * 0
        yield "far below", spread(a, -90, -70).to(dtype), spread(b, -90, -70).to(dtype), c * 0
        yield "overflow", spread(a, 55, 64).to(dtype), spread(b, 50, 63).to(dtype), spread(c, 100, 127)
    signs = some(some(a.sign() * 0.0, 0.05, 1.0), 0.05, -1.0), b.sign()
    yield "signed zeros", signs[0].to(dtype), signs[1].to(dtype), c.sign() * 0.0
    if dtype not in (torch.float8_e4m3fn,):
        infinite = some(a, 0.002, math.inf)
        yield "infinities", some(infinite, 0.001, -math.inf).to(dtype), some(b, 0.01, 0.0).to(dtype), c
    yield "NaNs", some(a, 0.002, math.nan).to(dtype), b.to(dtype), some(c, 0.01, math.inf)


def counted(torch: Any, y: Any, expected: Any) -> Values:
    """How y differs from what a unit gives, bit for bit."""
    word = torch.int16 if y.dtype == torch.float16 else torch.int32
    nan, other = y.isnan(), expected.isnan()
    bits = y.view(word) != expected.view(word)
    wrong = (bits & ~(nan & other)).nonzero()
    found: Values = {"different": len(wrong)}
    if bool((bits & nan & other).any()):
        found["other NaN patterns"] = int((bits & nan & other).sum())
    if bool(zeros := int((bits & (y == 0) & (expected == 0)).sum())):
        found["signs of zero"] = zeros
    if len(wrong):
        i, j = wrong[0].tolist()
        found["first"] = [i, j, float(y[i, j]).hex(), float(expected[i, j]).hex()]
    return found


def rivals(unit: Any, recipe: str) -> dict[str, Any]:
    """The unit with one thing changed; of sums below 2^-126, other floors of the exponent; of fp8, what else Triton may
    make of it."""
    if "sub" in recipe or recipe == "far below":
        return {f"floor {floor}": replace(unit, floor=floor) for floor in (-400, -149, -142, -134, -133, -132, -126)}
    if recipe not in ("normal", "13 binades", "wide", "from zero"):
        return {}
    found = {
        "fraction + 1": replace(unit, fraction=unit.fraction + 1),
        "fraction - 1": replace(unit, fraction=unit.fraction - 1),
        "half the terms": replace(unit, terms=unit.terms // 2),
        "twice the terms": replace(unit, terms=2 * unit.terms),
    }
    if unit.operands.startswith("float8"):
        plain = replace(unit, groups=1, run=1, separate=0)
        halves = replace(plain, terms=16, fraction=25, kept=23)
        turned = replace(halves, groups=2, run=2)
        for text, one in {"as it is": plain, "16 in order": halves, "two of four": turned}.items():
            for apart in (16, 32, TERMS) if one is not turned else (32, TERMS):
                found[f"{text}, c after {apart}"] = replace(one, separate=apart)
            if one is not turned:
                found[f"{text}, c first"] = one
        found["32 in order, c first"] = replace(halves, terms=32)
    return found


def measure(architecture: str, size: int) -> Values:
    import torch

    from verify.kernels.triton import products
    from verify.numbers import units

    found: Values = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "size": size, "terms": TERMS}
    cells: list[Values] = []
    began = time.perf_counter()
    cases = [("float16", "float32"), ("bfloat16", "float32"), ("tf32", "float32"), ("float8_e4m3fn", "float32"),
             ("float8_e5m2", "float32"), ("float16", "float16")]  # fmt: skip
    for operands, result in cases:
        dtype = torch.float32 if operands == "tf32" else getattr(torch, operands)
        eighth = operands.startswith("float8")
        for warps in (1, 4):
            path = "mma.sync" if warps == 1 else "wgmma"
            unit = units.unit(architecture, operands, result, path if eighth else "")
            given: Values = {"warps": warps, "precision": "tf32" if operands == "tf32" else "ieee"}
            given |= {"blocks": (32, 32, 64) if warps == 1 else (64, 64, 64), "options": {}}
            if eighth:
                given["imprecise"] = TERMS
            if result == "float16":
                given["accumulator"] = torch.float16
            for name, a, b, c in recipes(torch, dtype, size):
                cell: Values = {"unit": str(unit), "path": path, "recipe": name}
                cells.append(cell)
                try:
                    start = c.to(torch.float16) if result == "float16" else c
                    y = products.run(a, b, out=getattr(torch, result), start=start, **given)
                    cell |= counted(torch, y, unit.matmul(a, b, start))
                    some = slice(0, 128)
                    rows = y[some], a[some], start[some]
                    cell["rivals"] = {
                        text: counted(torch, rows[0], one.matmul(rows[1], b, rows[2]))["different"]
                        for text, one in rivals(unit, name).items()
                    }
                except Exception as error:
                    cell["error"] = f"{type(error).__name__}: {error}"[:300]
    found["cells"], found["seconds"] = cells, time.perf_counter() - began
    a, b = (torch.randn(4096, 4096, device="cuda").bfloat16() for _ in range(2))
    unit = units.unit(architecture, "bfloat16")
    unit.matmul(a[:64], b)
    torch.cuda.synchronize()
    began = time.perf_counter()
    expected = unit.matmul(a, b)
    torch.cuda.synchronize()
    found["4096 cube, seconds"] = time.perf_counter() - began
    found["4096 cube, torch.mm differs"] = int((expected.bfloat16() != a @ b).sum())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--architecture", default="hopper")
    parser.add_argument("--size", type=int, default=1024)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT)]
    found = measure(options.architecture, options.size)
    lines = ",\n".join(json.dumps(cell) for cell in found.pop("cells"))
    text = json.dumps(found)[:-1] + f', "cells": [\n{lines}\n]}}\n'
    if options.out:
        options.out.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
