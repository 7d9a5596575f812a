"""Errors of the math libraries of Triton's wheel on the CPU, over all float32 arguments, written to a JSON file.

    python bench/devicelib.py --out reports/measured/devicelib.json [--stride N] [--only NAME,...]

Functions are those of `vendor_libraries.py`, approximate instructions correctly rounded, nothing flushed; the
reference is float64's function, whose own error is below 2^-28 ULP of float32. `models` are the two instructions whose
models rest on float64's exp2 and log2: where the nearest number is not what they give, decided in multiprecision.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from vendor_libraries import function, vectorised
from verify.virtual import instructions
from verify.virtual.ir import F32, F64, I32, Value, host

Array = npt.NDArray[Any]
CHUNK = 1 << 18

FUNCTIONS: dict[tuple[str, str], Callable[[Array], Array]] = {
    ("libdevice", "expf"): np.exp,
    ("libdevice", "logf"): np.log,
    ("libdevice", "log2f"): np.log2,
    ("libdevice", "log1pf"): np.log1p,
    ("libdevice", "expm1f"): np.expm1,
    ("libdevice", "tanhf"): np.tanh,
    ("ocml", "exp_f32"): np.exp,
    ("ocml", "log_f32"): np.log,
    ("ocml", "log2_f32"): np.log2,
    ("ocml", "log1p_f32"): np.log1p,
    ("ocml", "expm1_f32"): np.expm1,
    ("ocml", "tanh_f32"): np.tanh,
}
MODELS = ("v_exp_f32", "v_log_f32")


def _ulps(y: Value, exact: Value) -> Value:
    limit = 2.0**128
    wide, t = (_clamped(x, limit) for x in (y.to(F64), exact))
    exponent = ((t.bits() >> 52) & 0x7FF).call("umax", 1023 - 126).call("umin", 1023 + 127)
    scale = ((exponent.like(2 * 1023 + 23) - exponent) << 52).bitcast(F64)
    error = abs(wide - t) * scale
    error = (y.isnan() ^ exact.isnan()).where(error.like(float("inf")), error)
    return (y.isnan() & exact.isnan()).where(error.like(0.0), error)


def _clamped(x: Value, limit: float) -> Value:
    above = (x > limit).where(x.like(limit), x)
    return (above < -limit).where(x.like(-limit), above)


#: ulps(y, exact): |y - exact| in ULPs of float32 at `exact`, given in float64, both clamped to 2^128 as
#: docs/definitions.md says; 0 for two NaNs, infinity for one.
ulps = vectorised(_ulps, F32, F64)


def arguments(stride: int) -> Iterator[Array]:
    """All float32 numbers in chunks, or every `stride`-th."""
    for start in range(0, 1 << 32, CHUNK * stride):
        bits = np.arange(start, min(start + CHUNK * stride, 1 << 32), stride, dtype=np.uint64)
        yield bits.astype(np.uint32).view(np.float32)


def worst(library: str, name: str, reference: Callable[[Array], Array], stride: int) -> dict[str, Any]:
    """The largest errors in normal range and below it, with their arguments, and how many results are not nearest."""
    run = function(library, name, ftz=False)
    found: dict[str, Any] = {"library": library, "function": name, "arguments": 0, "seconds": 0.0}
    found |= {f"{key}{region}": value for region in ("", "_subnormal") for key, value in (("max_ulp", 0.0), ("at", ""))}
    for x in arguments(stride):
        began = time.process_time()
        y = run(x)
        found["seconds"] += time.process_time() - began
        with np.errstate(all="ignore"):
            exact = reference(x.astype(np.float64))
        error = ulps(y, exact)
        found["arguments"] += x.size
        if error.max() <= min(found["max_ulp"], found["max_ulp_subnormal"]):
            continue
        tiny = np.abs(exact) < 2.0**-126
        for region, inside in (("", ~tiny), ("_subnormal", tiny)):
            here = np.where(inside, error, -1.0)
            k = int(here.argmax())
            if here[k] > found[f"max_ulp{region}"]:
                found |= {f"max_ulp{region}": float(here[k]), f"at{region}": float(x[k]).hex()}
    found["seconds"] = round(found["seconds"], 1)
    return found


def misrounded(name: str, stride: int) -> dict[str, Any]:
    """Arguments for which an instruction's nearest model is not the correctly rounded result. It is float64's function,
    rounded: where that is not within 2^-20 of half an ULP of a midpoint, an error below 2^-45 decides nothing."""
    intrinsic = {"v_exp_f32": "exp2", "v_log_f32": "log2"}[name]

    def near(x: Value) -> Value:
        wide = x.to(F64).call(intrinsic)
        result = wide.to(F32)  # whatever `instructions.HARD` says: what follows is about float64's function
        unit = ((result.bits() & 0x7F800000).bitcast(F32)).to(F64) * 2.0**-23
        close = abs(abs(wide - result.to(F64)) / unit - 0.5) < 2.0**-20
        ordinary = (abs(result) >= 2.0**-126) & (abs(result) < float("inf")) & (abs(x) >= 2.0**-126)
        return (ordinary.where(close.to(I32), 2)).to(I32)

    run, undecided = vectorised(lambda x: instructions.APPROXIMATE[name](x, "nearest"), F32), vectorised(near, F32)
    exact_of = {"v_exp_f32": lambda x: mpmath.power(2, x), "v_log_f32": lambda x: mpmath.log(x, 2)}[name]
    wrong: list[str] = []
    seen = multiprecision = 0
    for x in arguments(stride):
        flags = undecided(x)
        seen += int((flags < 2).sum())
        for argument in x[flags == 1]:
            multiprecision += 1
            y = run(np.array([argument]))[0]
            with mpmath.workprec(200):
                t = exact_of(mpmath.mpf(float(argument)))
                others = [float(np.nextafter(y, np.float32(end))) for end in (-np.inf, np.inf)]
                if abs(t - float(y)) > min(abs(t - other) for other in others):
                    wrong.append(float(argument).hex())
    return {"instruction": name, "arguments": seen, "in_multiprecision": multiprecision, "misrounded": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write, or to add to with --only")
    parser.add_argument("--stride", type=int, default=1, help="take every N-th argument [1]")
    parser.add_argument("--only", default="", help="names of functions and instructions, by commas [all]")
    options = parser.parse_args()
    chosen = set(options.only.split(",")) - {""}
    before = json.loads(options.out.read_text()) if chosen and options.out.exists() else {}
    functions = {(one["library"], one["function"]): one for one in before.get("functions", [])}
    models = {one["instruction"]: one for one in before.get("models", [])}
    for (library, name), reference in FUNCTIONS.items():
        if not chosen or name in chosen:
            functions[library, name] = worst(library, name, reference, options.stride)
            print(functions[library, name], file=sys.stderr, flush=True)
    for name in MODELS:
        if not chosen or name in chosen:
            models[name] = misrounded(name, options.stride)
            print(models[name], file=sys.stderr, flush=True)
    document = {
        "schema": 1,
        "command": shlex.join(["python", "bench/devicelib.py", *sys.argv[1:]]),
        "host": host(),
        "libc": " ".join(platform.libc_ver()),
        "functions": list(functions.values()),
        "models": list(models.values()),
    }
    options.out.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
