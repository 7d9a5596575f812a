"""Casts between formats, each compared with integer arithmetic before `ball` and `ieee` use it on a device.

What is required, NaNs staying NaNs:

  a narrower format to a wider one  exact
  float64 to float32                to nearest even, subnormal results and overflow included
  float32 to a half                 exact where the half holds the value; torch rounds float64 to a half twice
  rounding to a format              `transforms.round_to` and the cast to storage after it: to nearest even, likewise
  float64 to int64, and back        truncated; exact up to 2^53

All patterns of the halves are tried; of float32 and float64 SIZE each: full significands of all exponents, subnormals,
neighbours of midpoints, of overflow and of powers of two. Integer and bit operations on the host (numpy's) are taken
for granted, and so are comparisons, `where` and views on any device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from verify.facts.formats import FORMATS, Format
from verify.numbers.transforms import round_to

Tensor = torch.Tensor
Words = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SIZE = 1 << 16  # arguments of each operation: as many as a half has patterns
FORMS = F16, BF16, F32, F64 = tuple(FORMATS[name] for name in ("float16", "bfloat16", "float32", "float64"))
#: The results of `converted`, in order, by the names under which they are refused.
OPERATIONS = (
    "float16 to float64", "bfloat16 to float64", "float32 to float64", "float16 to float32", "bfloat16 to float32",
    "float32 to float16", "float32 to bfloat16", "float64 to float32", "rounding to float16", "rounding to bfloat16",
    "rounding to float32", "float64 to int64", "int64 to float64",
)  # fmt: skip


def converted(h: Tensor, b: Tensor, f: Tensor, d: Tensor) -> tuple[Tensor, ...]:
    """The results that OPERATIONS names, from float16, bfloat16, float32 and float64 tensors of one shape."""
    wide_h, wide_b = h.to(torch.float32), b.to(torch.float32)
    whole = torch.where(d.abs() < 2.0**53, d, 0.0).to(torch.int64)
    return (
        h.to(torch.float64), b.to(torch.float64), f.to(torch.float64), wide_h, wide_b,
        wide_h.to(torch.float16), wide_b.to(torch.bfloat16), d.to(torch.float32),
        round_to(d, F16).to(torch.float16), round_to(d, BF16).to(torch.bfloat16), round_to(d, F32).to(torch.float32),
        whole, whole.to(torch.float64),
    )  # fmt: skip


def complaints(device: str, form: Callable[..., Any]) -> dict[str, str]:
    """The OPERATIONS that are wrong, each with the first argument that shows it. form: see `primitives`."""
    patterns, due = _cases()
    given = [_tensor(words, fmt).to(device) for words, fmt in zip(patterns, FORMS, strict=True)]
    results = [t.cpu() for t in form(converted)(*given)]
    found: dict[str, str] = {}
    for operation, (dtype, expected), result in zip(OPERATIONS, due, results, strict=True):
        source = FORMATS["float64" if operation[0] == "r" or "int" in operation else operation.split()[0]]
        if result.dtype != dtype:
            found[operation] = f"it gives {result.dtype}"
            continue
        bits = result.view(_INTEGERS[result.element_size()]).numpy().astype(np.int64)
        wrong = bits != expected
        if dtype.is_floating_point:
            fmt = FORMATS[str(dtype).removeprefix("torch.")]
            wrong &= ~(_is_nan(bits, fmt) & _is_nan(expected, fmt))
        if wrong.any():
            k = int(wrong.argmax())
            shown = source.hex(int(patterns[FORMS.index(source)][k]) & ((1 << source.bits) - 1))
            right = _tensor(expected[k : k + 1], fmt).item() if dtype.is_floating_point else int(expected[k])
            found[operation] = f"of {shown} it gives {result[k].item()!r}, not {right!r}"
    return found


def words(seed: int, count: int) -> Words:
    """Words number 0 to count - 1 of a fixed sequence: splitmix64 (Steele, Lea & Flood 2014)."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).view(np.int64)


def hashed(seed: int, count: int, low: int, high: int) -> Floats:
    """`count` numbers of either sign with full significands and exponents in low..high."""
    word = words(seed << 20, count)
    exponent = low + ((word >> 52 & 0x7FF) * (high - low + 1) >> 11)
    return np.asarray(np.ldexp(np.where(word < 0, -1.0, 1.0) * (1 + (word & ((1 << 52) - 1)) * 2.0**-52), exponent))


def unit(seed: int, count: int) -> Floats:
    """Numbers in [0, 1) with 53 hashed bits."""
    return np.asarray((words(seed << 30, count) >> 11 & (1 << 53) - 1) * 2.0**-53)


# ---------------------------------------------------------------- arguments and what is due, in integers

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@functools.cache
def _cases() -> tuple[tuple[Words, ...], tuple[tuple[torch.dtype, Words], ...]]:
    """Patterns of the arguments of `converted`, and dtype and bits of each expected result."""
    half = np.arange(-(1 << 15), 1 << 15, dtype=np.int64)
    single, double = _float32_patterns(), _float64_patterns()
    wide_h, wide_b = widened(half, F16), widened(half, BF16)
    whole = _truncated(double)
    due = [(torch.float64, t) for t in (wide_h, wide_b, widened(single, F32))]
    due += [(torch.float32, narrowed(t, F32)) for t in (wide_h, wide_b)]
    due += [(torch.float16, half), (torch.bfloat16, half), (torch.float32, narrowed(double, F32))]
    due += [(getattr(torch, fmt.name), narrowed(double, fmt)) for fmt in (F16, BF16, F32)]
    due += [(torch.int64, whole), (torch.float64, whole.astype(np.float64).view(np.int64))]
    return (half, half, single, double), tuple(due)


def _float32_patterns() -> Words:
    """A quarter are subnormal, the others of any exponent; powers of two with their neighbours."""
    found = words(1, SIZE) >> 32
    found[::4] &= ~0x7F800000
    powers = np.arange(256, dtype=np.int64) << 23
    for k, step in enumerate((-1, 0, 1)):
        found[k * 512 : k * 512 + 512] = np.concatenate([powers + step, (powers + step) - (1 << 31)])
    return found.astype(np.int32).astype(np.int64)


def _float64_patterns() -> Words:
    """In equal parts: any exponent; exponents of float32's range and beyond, and of float16's; midpoints between
    neighbours of each narrower format, and the float64 on either side of them; values of these formats."""
    part = SIZE // 16
    hashed = words(2, SIZE).reshape(16, part)
    sign, fraction = hashed & ~0x7FFFFFFFFFFFFFFF, hashed & ((1 << 52) - 1)

    def ranged(row: int, low: int, high: int) -> Words:
        exponent = low + (hashed[row] >> 52 & 0x7FF) % (high - low + 1)
        return np.asarray(sign[row] | exponent + 1023 << 52 | fraction[row])

    rows = [hashed[0], ranged(1, -160, 130), ranged(2, -130, -120), ranged(3, -28, 18)]
    for k, fmt in enumerate((F16, BF16, F32)):
        low, high = hashed[4 + k] & ((1 << fmt.bits - 1) - 1), sign[4 + k]
        low = np.where(low < fmt.inf_bits, low, low % fmt.inf_bits)
        low[0] = fmt.inf_bits - 1  # overflow begins at the midpoint above the largest
        low[1:3] = 0, (1 << fmt.mantissa_bits) - 1
        # one more bit of precision holds the midpoints
        middle = widened(2 * low + 1, Format("midpoints", fmt.bits + 1, fmt.precision + 1, fmt.emax))
        rows += [middle | high, middle + 1 | high, middle - 1 | high, widened(low, fmt) | high]
    ends = [0, 1, (1 << 52) - 1, 1 << 52, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000]
    found = np.concatenate(rows)
    found[: 2 * len(ends)] = [s | e for s in (0, -(1 << 63)) for e in ends]
    return found


def widened(patterns: Words, fmt: Format) -> Words:
    """The float64 bits of a narrower format's values, from its patterns (sign-extended or not)."""
    mantissa = fmt.mantissa_bits
    top = (1 << fmt.bits - fmt.precision) - 1
    field, fraction = patterns >> mantissa & top, patterns & ((1 << mantissa) - 1)
    length = sum(((fraction >> k > 0).astype(np.int64) for k in range(mantissa)), np.zeros_like(fraction))
    normal = (field - fmt.emax + 1023 << 52) | fraction << 52 - mantissa
    subnormal = (fmt.emin - fmt.mantissa_bits + length - 1 + 1023 << 52) | (fraction << 53 - length & (1 << 52) - 1)
    bits = np.where(field == 0, np.where(fraction == 0, 0, subnormal), normal)
    bits = np.where(field == top, 2047 << 52 | fraction << 52 - mantissa, bits)
    return np.asarray(bits | np.where(patterns >> fmt.bits - 1 & 1, -(1 << 63), 0))


def narrowed(bits: Words, fmt: Format) -> Words:
    """The patterns, sign-extended, of float64 values rounded to nearest even (IEEE 754-2019, 4.3.1)."""
    field, fraction = bits >> 52 & 2047, bits & ((1 << 52) - 1)
    significand = fraction | np.where(field > 0, 1 << 52, 0)
    exponent = np.maximum(field, 1) - 1023
    floor = np.maximum(exponent, fmt.emin)
    shift = np.minimum(floor - exponent + 52 - fmt.mantissa_bits, 54)
    kept, rest, half = significand >> shift, significand & ((1 << shift) - 1), np.int64(1) << shift - 1
    kept += (rest > half) | ((rest == half) & (kept & 1 == 1))
    found = np.minimum((floor - fmt.emin << fmt.mantissa_bits) + kept, fmt.inf_bits)
    found = np.where(field == 2047, np.where(fraction > 0, fmt.nan_bits, fmt.inf_bits), found)
    return np.asarray(found - np.where(bits < 0, 1 << fmt.bits - 1, 0))


def _truncated(bits: Words) -> Words:
    """float64 values below 2^53 as integers, others as 0."""
    exponent = (bits >> 52 & 2047) - 1023
    significand = bits & ((1 << 52) - 1) | 1 << 52
    size = np.where((exponent >= 0) & (exponent < 53), significand >> np.clip(52 - exponent, 0, 62), 0)
    return np.asarray(np.where(bits < 0, -size, size))


def _is_nan(patterns: Words, fmt: Format) -> npt.NDArray[np.bool_]:
    return np.asarray(patterns & ((1 << fmt.bits - 1) - 1) > fmt.inf_bits)


def _tensor(patterns: Words, fmt: Format) -> Tensor:
    """The values of patterns, as a tensor of the format's dtype."""
    integers = torch.from_numpy(patterns.copy()).to(_INTEGERS[fmt.bits // 8])
    return integers.view(getattr(torch, fmt.name))
