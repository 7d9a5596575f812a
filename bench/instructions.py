"""Record an NVIDIA GPU's approximate instructions and prove the model of them on all 2^32 inputs.

    python3 bench/instructions.py --out FOLDER

Needs torch, Triton, numpy and a GPU; half a minute on an H200. FOLDER gets one `.table` a unit, for
`verify/virtual/tables/<chip>/`, and `instructions.json`: of each PTX instruction the inputs on which the model
(`verify/virtual/approx.py` with these tables) gives other bits than the GPU, by exponent, with examples. Of a unit that
is not reproduced `raw-<unit>.npz` gets whole binades, from which a better model can be found without the GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from verify.virtual import approx

Tensor = torch.Tensor
Measure = Callable[[str, Tensor], Tensor]

#: The PTX instruction that shows a unit as it is.
PLAIN = {
    "rcp": "rcp.approx.ftz.f32", "rsq": "rsqrt.approx.ftz.f32", "sqrt": "sqrt.approx.ftz.f32",
    "ex2": "ex2.approx.ftz.f32", "lg2": "lg2.approx.ftz.f32", "rcp64h": "rcp.approx.ftz.f64",
    "rsq64h": "rsqrt.approx.ftz.f64",
}  # fmt: skip
CHUNK = 1 << 27
#: Binades of a unit that is not reproduced: exponents of positive and of negative arguments.
RAW = {"ex2": ((-1, -2, -3, -6, 0, 3), (-1, -2, -3, 0)), "lg2": ((-3, -2, -1, 0, 1, 2, 7, 40, -100), ())}


def on_gpu() -> Measure:
    """measure(instruction, bits) of int32 bits; of the 64-bit instructions, of high words."""
    import triton
    import triton.language as tl

    @triton.jit
    def single(x, y, n, TEXT: tl.constexpr, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + i, mask=i < n)
        r = tl.inline_asm_elementwise(TEXT, "=r,r", [v], dtype=tl.int32, is_pure=True, pack=1)
        tl.store(y + i, r, mask=i < n)

    texts = {}

    def measure(instruction: str, x: Tensor) -> Tensor:
        wide = (
            "{{.reg .b64 d; .reg .b32 low; mov.b64 d, {{0, $1}}; {} d, d; mov.b64 {{low, $0}}, d;}}"
            if instruction.endswith("f64")
            else "{} $0, $1;"
        )
        text = texts.setdefault(instruction, wide.format(instruction))
        y = torch.empty_like(x)
        single[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), TEXT=text, BLOCK=1024)
        return y

    return measure


def recorded(measure: Measure, device: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The table of each unit, on the device, and what was chosen."""
    tables, chosen = {}, {}
    for name, arguments in approx.ARGUMENTS.items():
        tables[name] = measure(PLAIN[name], arguments().to(device))
        chosen[name] = {"entries": len(tables[name])}
    return tables, chosen


def compared(measure: Measure, instruction: str, model: Callable[[Tensor], Tensor], every: int, device: str) -> Any:
    """On every `every`-th of the 2^32 inputs: where the model differs, NaNs being equal."""
    wide = instruction.endswith("f64")
    differing = torch.zeros(1 << 12 if wide else 1 << 9, dtype=torch.int64, device=device)
    examples: list[list[str]] = []
    total = 0
    for start in range(-(1 << 31), 1 << 31, CHUNK * every):
        x = torch.arange(CHUNK, dtype=torch.int64, device=device)
        x = (x * every + start)[: ((1 << 31) - start + every - 1) // every].to(torch.int32)
        total += len(x)
        y, z = measure(instruction, x), model(x)
        top = approx.INF64 if wide else approx.INF
        nan = ((y & approx.MAGNITUDE) > top) & ((z & approx.MAGNITUDE) > top)
        bad = torch.nonzero((y != z) & ~nan).flatten()
        if len(bad):
            exponent = (x[bad] >> (20 if wide else 23)) & (0xFFF if wide else 0x1FF)
            differing += torch.bincount(exponent, minlength=len(differing))
            for k in bad[:: max(len(bad) // 12, 1)][:12].tolist() if len(examples) < 240 else ():
                examples.append([f"{int(v[k]) & 0xFFFFFFFF:08x}" for v in (x, y, z)])
    bins = {f"{k:03x}": int(n) for k, n in enumerate(differing.tolist()) if n}
    return {"inputs": total, "differing": sum(bins.values()), "by_sign_and_exponent": bins,
            "examples_x_gpu_model": examples}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables and instructions.json")
    parser.add_argument("--every", type=int, default=1, help="try every N-th input only, N odd")
    options = parser.parse_args()
    began = time.perf_counter()
    measure, device = on_gpu(), "cuda"
    write(measure, device, options.out, options.every, began)


def write(measure: Measure, device: str, out: Path, every: int, began: float) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    tables, about = recorded(measure, device)

    def mufu(name: str, x: Tensor) -> Tensor:
        return approx.UNITS[name](x, tables[name])

    models = {
        text: lambda x, made=made: approx.i32(made(mufu, approx.f32(x)))
        for text, made in approx.INSTRUCTIONS.items()
        if text != "div.full.f32"
    } | {PLAIN[name]: lambda x, name=name: mufu(name, x) for name in ("rcp64h", "rsq64h")}  # fmt: skip
    facts: dict[str, Any] = {"chip": chip(device), "every": every, "units": about, "instructions": {}}
    for text, model in models.items():
        facts["instructions"][text] = found = compared(measure, text, model, every, device)
        print(f"{text:24} {found['differing']:>12,} of {found['inputs']:,} differ", flush=True)
    facts["seconds"] = {"proved": round(time.perf_counter() - began, 1)}
    (out / "instructions.json").write_text(json.dumps(facts, indent=1))
    missed = [name for name, text in PLAIN.items() if facts["instructions"][text]["differing"]]
    for name, table in tables.items():
        data = approx.packed(name, table.cpu().numpy())
        (out / f"{name}.table").write_bytes(data)
        least, width = data.split(b"\n", 1)[0].split()[1:]
        about[name] |= {"bytes": len(data), "least_difference": int(least), "bits_an_entry": int(width)}
    for name in set(missed) & set(RAW):
        np.savez_compressed(out / f"raw-{name}.npz", **raw(measure, name, device))
    facts["seconds"]["written"] = round(time.perf_counter() - began, 1)
    (out / "instructions.json").write_text(json.dumps(facts, indent=1))
    print(json.dumps(facts["units"], indent=1), facts["seconds"])
    return facts


def raw(measure: Measure, name: str, device: str) -> dict[str, np.ndarray]:
    """Whole binades as differences in bits from torch's float64 function on the host, rounded."""
    function = {"ex2": torch.exp2, "lg2": torch.log2}[name]
    told = {}
    for sign, exponents in zip((0, 1), RAW[name], strict=True):
        for e in exponents:
            x = (torch.arange(1 << 23, dtype=torch.int64) + ((127 + e) << 23) - (sign << 31)).to(torch.int32)
            y = measure(PLAIN[name], x.to(device)).cpu()
            difference = y - approx.i32(function(approx.f32(x).double()).float())
            small = bool((difference.abs() < 128).all())
            told[f"{'-' if sign else '+'}{e}"] = difference.to(torch.int8 if small else torch.int32).numpy()
    return told


def chip(device: str) -> dict[str, Any]:
    import triton

    about = {"torch": torch.__version__, "triton": triton.__version__}
    if device == "cuda":
        about |= {
            "name": torch.cuda.get_device_name(),
            "capability": "sm_{}{}".format(*torch.cuda.get_device_capability()),
        }
    return about


if __name__ == "__main__":
    main()
