"""NVIDIA's approximate instructions as they answered on a GPU: tables of significands, and what is made of them.

`MUFU` is the unit behind ex2, lg2, rcp, rsqrt and sqrt `.approx`: it flushes subnormals, and its results in
one binade (two, for the roots) determine all others. A table holds the difference from the correctly rounded result,
which is one number by definition, so that the table means the same on every machine. PTX's other forms are the few
instructions around `MUFU` that ptxas emits for them (read in the SASS of sm_80 to sm_120). Recorded and proved by
`bench/instructions.py`. Bits are int32 tensors on any device.
"""

from __future__ import annotations

import decimal
import functools
import io
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

Tensor = torch.Tensor
Table = Tensor
HERE = Path(__file__).parent / "tables"

SIGN, MAGNITUDE, FRACTION = -0x80000000, 0x7FFFFFFF, 0x7FFFFF
INF, NAN, ONE = 0x7F800000, 0x7FFFFFFF, 0x3F800000


def f32(bits: Tensor) -> Tensor:
    return bits.view(torch.float32)


def i32(value: Tensor) -> Tensor:
    return value.view(torch.int32)


def _fields(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sign bit, biased exponent, fraction."""
    return x & SIGN, (x & MAGNITUDE) >> 23, x & FRACTION


def _special(y: Tensor, *cases: tuple[Tensor, Tensor | int]) -> Tensor:
    """The last case that holds decides."""
    for where, value in cases:
        y = torch.where(where, value, y)
    return y


# MUFU, by function: bits of x and the recorded table to bits of the result.


def rcp(x: Tensor, table: Table) -> Tensor:
    """table: bits of 1/x for x = 1 + k 2^-23."""
    sign, e, m = _fields(x)
    y = table[m] + ((127 - e) << 23)
    return _special(
        y | sign, (y < 0x800000, sign), (e == 0, sign | INF), ((e == 255) & (m == 0), sign),
        ((e == 255) & (m != 0), NAN),
    )  # fmt: skip


def _root(x: Tensor, table: Table, power: int) -> Tensor:
    """table: for x = 1 + k 2^-23, then for twice that; power: of 2 in the result for each of 4 in x."""
    _, e, m = _fields(x)
    y = table[m | ((e & 1) ^ 1) << 23]
    return y + power * (((e - 127) >> 1) << 23)


def rsq(x: Tensor, table: Table) -> Tensor:
    sign, e, m = _fields(x)
    y = _root(x, table, -1)
    return _special(
        y, (x == INF, 0), (sign != 0, NAN), (e == 0, sign | INF), ((e == 255) & (m != 0), NAN)
    )  # fmt: skip


def sqrt(x: Tensor, table: Table) -> Tensor:
    sign, e, m = _fields(x)
    y = _root(x, table, 1)
    return _special(y, (x == INF, INF), (sign != 0, NAN), (e == 0, sign), ((e == 255) & (m != 0), NAN))


def ex2(x: Tensor, table: Table) -> Tensor:
    """table: bits of 2^x for x = k 2^-23. What |x| has beyond these bits is cut off; a fraction below zero is the ones'
    complement of |x|'s, one step short of its negative."""
    sign, e, m = _fields(x)
    wide, up = (m | 0x800000).to(torch.int64), e.to(torch.int64) - 127  # |x| 2^23 = wide 2^up
    fixed = torch.where(up >= 0, wide << up.clamp(0, 30), wide >> (-up).clamp(0, 62))
    fixed = torch.where(sign == 0, fixed, torch.where((fixed & FRACTION) == 0, -fixed, ~fixed))
    y = table[(fixed & FRACTION).to(torch.int32)].to(torch.int64) + ((fixed >> 23) << 23)
    y = torch.where(y < 0x800000, 0, torch.where(y >= INF, INF, y)).to(torch.int32)
    return _special(
        y, (e >= 135, torch.where(sign != 0, 0, INF).to(torch.int32)), (e == 0, ONE), ((e == 255) & (m != 0), NAN)
    )  # fmt: skip


def lg2(x: Tensor, table: Table) -> Tensor:
    """table: bits of log2 x for x = 1 + k 2^-23, then for half of that; both are cut off toward zero, and so is their
    sum with a further exponent."""
    sign, e, m = _fields(x)
    above = e >= 127
    part = f32(table[torch.where(above, m, m | 0x800000)]).to(torch.float64)
    exact = part + torch.where(above, e - 127, e - 126).to(torch.float64)
    y = exact.to(torch.float32)
    y = i32(y) - (y.to(torch.float64).abs() > exact.abs()).to(torch.int32)
    return _special(
        y, (x == INF, INF), (sign != 0, NAN), (e == 0, INF | SIGN), ((e == 255) & (m != 0), NAN)
    )  # fmt: skip


# The same for the high word of a double, the only part that the unit reads.

INF64, NAN64 = 0x7FF00000, 0x7FFFFFFF


def _fields64(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x & SIGN, (x & MAGNITUDE) >> 20, x & 0xFFFFF


def rcp64h(x: Tensor, table: Table) -> Tensor:
    """table: high word of 1/x for x = 1 + k 2^-20."""
    sign, e, m = _fields64(x)
    y = table[m] + ((1023 - e) << 20)
    return _special(
        y | sign, (y < 0x100000, sign), (e == 0, sign | INF64), ((e == 2047) & (m == 0), sign),
        ((e == 2047) & (m != 0), NAN64),
    )  # fmt: skip


def rsq64h(x: Tensor, table: Table) -> Tensor:
    sign, e, m = _fields64(x)
    y = table[m | ((e & 1) ^ 1) << 20] - (((e - 1023) >> 1) << 20)
    return _special(
        y, (x == INF64, 0), (sign != 0, NAN64), (e == 0, sign | INF64), ((e == 2047) & (m != 0), NAN64)
    )  # fmt: skip


Unit = Callable[[Tensor, Table], Tensor]
UNITS: Mapping[str, Unit] = {
    "rcp": rcp, "rsq": rsq, "sqrt": sqrt, "ex2": ex2, "lg2": lg2, "rcp64h": rcp64h, "rsq64h": rsq64h,
}  # fmt: skip
#: Bits of the arguments for which each table was recorded, in its order.
ARGUMENTS: Mapping[str, Callable[[], Tensor]] = {
    "rcp": lambda: torch.arange(1 << 23, dtype=torch.int32) + ONE,
    "rsq": lambda: torch.arange(1 << 24, dtype=torch.int32) + ONE,
    "sqrt": lambda: torch.arange(1 << 24, dtype=torch.int32) + ONE,
    "ex2": lambda: i32(torch.arange(1 << 23, dtype=torch.float64).div(1 << 23).to(torch.float32)),
    "lg2": lambda: torch.cat([torch.arange(1 << 23, dtype=torch.int32) + start for start in (ONE, ONE - 0x800000)]),
    "rcp64h": lambda: torch.arange(1 << 20, dtype=torch.int32) + 0x3FF00000,
    "rsq64h": lambda: torch.arange(1 << 21, dtype=torch.int32) + 0x3FF00000,
}


# PTX's instructions: what ptxas makes of each. x and the result are float32 tensors.

Mufu = Callable[[str, Tensor], Tensor]


def _flushing(name: str) -> Callable[[Mufu, Tensor], Tensor]:
    return lambda mufu, x: f32(mufu(name, i32(x)))


def _scaled(name: str, back: Callable[[Tensor], Tensor]) -> Callable[[Mufu, Tensor], Tensor]:
    """Subnormal arguments times 2^24, and the result put right."""

    def run(mufu: Mufu, x: Tensor) -> Tensor:
        small = x.abs() < 2.0**-126
        y = f32(mufu(name, i32(torch.where(small, x * 2.0**24, x))))
        return torch.where(small, back(y), y)

    return run


def _ex2(mufu: Mufu, x: Tensor) -> Tensor:
    half = x < -126
    y = f32(mufu("ex2", i32(torch.where(half, x * 0.5, x))))
    return torch.where(half, y * y, y)


def _scale(x: Tensor) -> Tensor:
    """What a divisor is multiplied by, so that MUFU neither flushes it nor its reciprocal."""
    size = x.abs()
    return torch.where(size > 2.0**126, 0.25, torch.where(size < 2.0**-126, 2.0**24, 1.0)).to(torch.float32)


def _rcp(mufu: Mufu, x: Tensor) -> Tensor:
    scale = _scale(x)
    return scale * f32(mufu("rcp", i32(x * scale)))


def div_full(mufu: Mufu, x: Tensor, y: Tensor) -> Tensor:
    """div.full.f32: ptxas makes a product with the reciprocal of it."""
    scale = _scale(y)
    return f32(mufu("rcp", i32(y * scale))) * (x * scale)


INSTRUCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "rcp.approx.ftz.f32": _flushing("rcp"),
    "rsqrt.approx.ftz.f32": _flushing("rsq"),
    "sqrt.approx.ftz.f32": _flushing("sqrt"),
    "ex2.approx.ftz.f32": _flushing("ex2"),
    "lg2.approx.ftz.f32": _flushing("lg2"),
    "rcp.approx.f32": _rcp,
    "rsqrt.approx.f32": _scaled("rsq", lambda y: y * 2.0**12),
    "sqrt.approx.f32": _scaled("sqrt", lambda y: y * 2.0**-12),
    "ex2.approx.f32": _ex2,
    "lg2.approx.f32": _scaled("lg2", lambda y: y - 24),
    "div.full.f32": div_full,
}


def _word(name: str) -> Callable[[Mufu, Tensor], Tensor]:
    """Of a double's high word; the low word of the result is zero."""

    def run(mufu: Mufu, x: Tensor) -> Tensor:
        high = mufu(name, (x.view(torch.int64) >> 32).to(torch.int32))
        return (high.to(torch.int64) << 32).view(torch.float64)

    return run


#: Those of float64.
WORDS: Mapping[str, Callable[[Mufu, Tensor], Tensor]] = {
    "rcp.approx.ftz.f64": _word("rcp64h"),
    "rsqrt.approx.ftz.f64": _word("rsq64h"),
}


# Models of the unit.


def correct(name: str, x: Tensor) -> Tensor:
    """As if the unit rounded correctly, subnormals flushed; of high words the nearest, ties away from zero."""
    if name.endswith("64h"):
        wide = (x.to(torch.int64) << 32).view(torch.float64)
        wide = torch.where(wide.abs() < 2.0**-1022, wide * 0, wide)
        y = wide.reciprocal() if name == "rcp64h" else 1 / wide.sqrt()
        word = ((y.view(torch.int64) + (1 << 31)) >> 32).to(torch.int32)
        small = y.abs() < 2.0**-1022
        return _special(word, (small, word & SIGN), (wide == -0.0, (x & SIGN) | INF64), (y.isnan(), NAN64))
    wide = f32(_flush(x)).to(torch.float64)
    exact = {"rcp": torch.reciprocal, "rsq": lambda v: 1 / v.sqrt(), "sqrt": torch.sqrt, "ex2": torch.exp2,
             "lg2": torch.log2}[name](wide)  # fmt: skip
    return torch.where(exact.isnan(), NAN, _flush(i32(exact.to(torch.float32))))


def _flush(x: Tensor) -> Tensor:
    return torch.where((x & INF) == 0, x & SIGN, x)


def of_chip(chip: str, end: int = 0) -> Mufu:
    """The unit as recorded on a chip ('sm_90'); what was not recorded, as if it rounded correctly, or at the lower
    (end=-1) or upper (1) end of its documented error."""

    def mufu(name: str, x: Tensor) -> Tensor:
        table = recorded(chip, name)
        if table is not None:
            return UNITS[name](x, table)
        y = correct(name, x)
        return _moved(name, x, y, end) if end else y

    return mufu


#: Relative errors that the PTX ISA (9.1, 9.7.3) documents; rcp and ex2 have 1 and 2 steps, lg2 an absolute one near 1.
#: Of the high words it states no error: a step of them is assumed.
RELATIVE = {"sqrt": 2.0**-23, "rsq": 2.0**-22.9, "lg2": 2.0**-22}
STEPS = {"rcp": 1, "ex2": 2, "rcp64h": 1, "rsq64h": 1}


def _moved(name: str, x: Tensor, y: Tensor, end: int) -> Tensor:
    """Correctly rounded results y at x, at an end of what is documented; never across zero or beyond infinity."""
    size, (least, infinity) = y & MAGNITUDE, (0xFFFFF, INF64) if name.endswith("64h") else (FRACTION, INF)
    finite = (size > least) & (size < infinity)
    if name in STEPS:
        return torch.where(finite, y + torch.where(y < 0, -end, end).to(torch.int32) * STEPS[name], y)
    value = f32(y).to(torch.float64)
    near = (name == "lg2") & (f32(x) > 0.5) & (f32(x) < 2)
    error = torch.where(near, RELATIVE[name], value.abs() * RELATIVE[name])
    return torch.where(finite, i32((value + end * error).to(torch.float32)), y)


def recorded_names(chip: str) -> list[str]:
    """The units that a chip has tables of."""
    return [name for name in UNITS if (HERE / chip / f"{name}.table").is_file()]


def how(chip: str, instruction: str, end: int = 0) -> str:
    """How `of_chip` models a PTX instruction, in words."""
    unit = UNIT[instruction.split(".")[0]] + ("64h" if instruction.endswith("f64") else "")
    if unit in recorded_names(chip):
        return f"recorded on {chip}"
    return {0: "as if correctly rounded", -1: "at the lower end of its documented error",
            1: "at the upper end of its documented error"}[end]  # fmt: skip


#: The unit behind each PTX instruction, by its root.
UNIT = {"rcp": "rcp", "rsqrt": "rsq", "sqrt": "sqrt", "ex2": "ex2", "lg2": "lg2", "div": "rcp"}


# Correctly rounded results, to which tables refer.


@functools.cache
def nearest(name: str) -> np.ndarray:
    """int32: the correctly rounded bits for the arguments of a table; of the high words the nearest one, ties up.

    float64 decides all but those within 2^-47 of a midpoint, which are decided with 60 digits.
    """
    x = ARGUMENTS[name]().numpy()
    if name.endswith("64h"):
        return _nearest_words(name, x)
    value = x.view(np.float32).astype(np.float64)
    function: dict[str, Callable[[Any], Any]] = {"rcp": np.reciprocal, "rsq": lambda v: 1 / np.sqrt(v), "sqrt": np.sqrt,
                                                 "ex2": np.exp2, "lg2": np.log2}  # fmt: skip
    wide = function[name](value)
    low, high = ((wide * (1 + side * 2.0**-47)).astype(np.float32) for side in (-1, 1))
    result = wide.astype(np.float32)
    for k in np.nonzero(low != high)[0]:
        result[k] = _decided(name, float(value[k]), float(low[k]), float(high[k]))
    bits: np.ndarray = result.view(np.int32)
    return bits


def _decided(name: str, x: float, one: float, other: float) -> float:
    """Which of two neighbouring floats is nearer to the function at x."""
    with decimal.localcontext(decimal.Context(prec=60)):
        d = decimal.Decimal(x)
        ln2 = decimal.Decimal(2).ln()
        exact = {
            "rcp": lambda: 1 / d, "rsq": lambda: 1 / d.sqrt(), "sqrt": lambda: d.sqrt(),
            "ex2": lambda: (d * ln2).exp(), "lg2": lambda: d.ln() / ln2,
        }[name]()  # fmt: skip
        return min((one, other), key=lambda y: abs(decimal.Decimal(y) - exact))


def _nearest_words(name: str, x: np.ndarray) -> np.ndarray:
    """float64 is 2^32 times finer than the words, and its own rounding decides none of them: their midpoints are
    doubles of 21 bits, and neither a reciprocal nor a root of 20 bits comes within 2^-45 of one without being it."""
    value = (x.astype(np.int64) << 32).view(np.float64)
    wide = np.reciprocal(value) if name == "rcp64h" else 1 / np.sqrt(value)
    words: np.ndarray = ((wide.view(np.int64) + (1 << 31)) >> 32).astype(np.int32)
    return words


# Files: differences from these, two bits each where they suffice.


def packed(name: str, table: np.ndarray) -> bytes:
    """The file of a table of int32 bits. It begins with the least difference and the bits of an entry, as text."""
    difference = table.astype(np.int64) - nearest(name)
    least = int(difference.min())
    width = next(w for w in (1, 2, 4, 8, 16, 32) if int(difference.max()) - least < 1 << w)
    words = (difference - least).astype(np.uint32)
    if width < 8:
        lanes = words.reshape(-1, 8 // width).astype(np.uint8)
        data = np.zeros(len(lanes), np.uint8)
        for k in range(8 // width):
            data |= lanes[:, k] << (k * width)
    else:
        data = words.astype(f"<u{width // 8}")
    return f"{name} {least} {width}\n".encode() + lzma.compress(data.tobytes(), preset=6)


def unpacked(name: str, file: bytes) -> np.ndarray:
    """int32: the table that `packed` was given. Raises ValueError for another table's file."""
    stream = io.BytesIO(file)
    label, least, width = stream.readline().decode().split()
    if label != name:
        raise ValueError(f"the file holds the table of {label}; expected {name}")
    data, w = np.frombuffer(lzma.decompress(stream.read()), np.uint8), int(width)
    if w < 8:
        words = np.stack([(data >> (k * w)) & ((1 << w) - 1) for k in range(8 // w)], axis=1).reshape(-1)
    else:
        words = data.view(f"<u{w // 8}")
    return (nearest(name) + words.astype(np.int64) + int(least)).astype(np.int32)


@functools.cache
def recorded(chip: str, name: str) -> Table | None:
    """The table of a chip ('sm_90'), or None where it was not recorded."""
    path = HERE / chip / f"{name}.table"
    return torch.from_numpy(unpacked(name, path.read_bytes())) if path.is_file() else None
