"""Matrix instructions of PTX: which lane or which bytes of shared memory hold an element, and what a GPU makes of them.

Places are those of the PTX ISA, 9.7.14 (fragments of mma) and 9.7.15 (wgmma, its descriptors and swizzles); bits are
those of the architecture's unit in `verify.numbers.units`, and of integers those of the sum.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from verify.numbers import units
from verify.virtual.compile import Unsupported

Array = Any  # of numpy
Tensor = torch.Tensor
#: Of PTX's types: the operands' name in `verify.numbers.units`, and the dtype that holds them.
TYPES: dict[str, tuple[str, torch.dtype]] = {
    "f16": ("float16", torch.float16), "bf16": ("bfloat16", torch.bfloat16), "tf32": ("tf32", torch.float32),
    "e4m3": ("float8_e4m3fn", torch.float8_e4m3fn), "e5m2": ("float8_e5m2", torch.float8_e5m2),
    "f32": ("float32", torch.float32), "f64": ("float64", torch.float64), "s32": ("int32", torch.int32),
    "s8": ("int8", torch.int8), "u8": ("uint8", torch.uint8),
}  # fmt: skip
WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MMA = re.compile(r"mma\.sync\.aligned\.m(8|16)n8k(\d+)\.row\.col(\.satfinite)?\.(\w+)\.(\w+)\.(\w+)\.(\w+)")
_WGMMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m(64)n(\d+)k(\d+)(\.satfinite)?\.(\w+)\.(\w+)\.(\w+)")
#: Bytes of a row of each swizzle, and the bits of an address that it turns, by its number in a descriptor.
SWIZZLES = {0: (16, 0), 1: (128, 7), 2: (64, 3), 3: (32, 1)}


@dataclass(frozen=True)
class Product:
    """d = a b + c for a (m, k) and b (k, n). a, b, result: PTX's types; clamped: integers end at those of 32 bits;
    unit: what rounds, None of integers."""

    name: str
    m: int
    n: int
    k: int
    a: str
    b: str
    result: str
    clamped: bool
    unit: units.Unit | None

    def __str__(self) -> str:
        if self.unit is None:
            return "exact sums of integers"
        recorded = "" if self.unit.confirmed else ", which no recordings confirm"
        return f"as {self.unit}, block by block of {self.unit.terms} terms{recorded}"

    def __call__(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """Stacks a (w, m, k), b by columns (w, n, k), c (w, m, n) of the types' dtypes."""
        if self.unit is None:
            total = (a.double() @ b.double().mT).long() + c
            return (total.clamp(-(1 << 31), (1 << 31) - 1) if self.clamped else total).to(torch.int32)
        step = max(units.TILE // (self.m * self.n), 1)
        parts = [slice(start, start + step) for start in range(0, len(a), step)]
        return torch.cat([self.unit.dot(a[some, :, None], b[some, None], c[some]) for some in parts])


@functools.cache
def decoded(op: str, capability: str) -> Product:
    """The instruction of a GPU ('sm_90'). Raises Unsupported for shapes, types and GPUs of which nothing is known."""
    if found := _MMA.fullmatch(op):
        m, k, clamped, result, a, b, c = found.groups()
        n = "8"
    elif found := _WGMMA.fullmatch(op):
        m, n, k, clamped, result, a, b = found.groups()
        c = result
        if capability != "sm_90":
            raise Unsupported(f"the PTX instruction {op}: sm_90 alone has it, not {capability}")
    else:
        raise Unsupported(f"the PTX instruction {op}")
    whole = result == "s32" and {a, b} <= {"s8", "u8"}
    if c != result or any(kind not in TYPES for kind in (a, b, result)) or not (whole or (a == b and not clamped)):
        raise Unsupported(f"the PTX instruction {op}")
    unit = None
    if not whole:
        instruction = op.split(".")[0].replace("mma", "mma.sync") if op[0] == "m" else "wgmma"
        here = units.architecture(capability)
        known = [one for one in units.units() if (one.architecture, one.operands, one.result)
                 == (here, TYPES[a][0], TYPES[result][0]) and one.instruction in ("", instruction)]  # fmt: skip
        if not known:
            raise Unsupported(f"the PTX instruction {op}: what {capability}'s matrix unit gives is not known")
        (unit,) = known
    return Product(op, int(m), int(n), int(k), a, b, result, bool(clamped), unit)


# Fragments


@functools.cache
def fragment(rows: int, columns: int, each: int) -> Array:
    """Of a matrix of 8 or 16 rows spread over a warp, `each` neighbouring columns a register: which of the elements
    (lane by lane, in the order of registers) is the one of each row and column, row by row.

    A has the elements of a word in a register, B likewise by columns, and C and D two.
    """
    lane = np.arange(32)[:, None, None]
    register = np.arange(rows * columns // 32 // each)[None, :, None]
    halves = rows // 8
    row = lane // 4 + 8 * (register % halves)
    column = (register // halves * 4 + lane % 4) * each + np.arange(each)
    return np.argsort((row * columns + column).reshape(-1))


def packed(kind: str) -> int:
    """Elements of a register of A or B, whose words have 32 bits, or the 64 of one element."""
    return max(4 // TYPES[kind][1].itemsize, 1)


def registers(rows: int, columns: int, kind: str) -> int:
    """How many a lane has of a matrix."""
    return rows * columns // 32 // packed(kind)


def gathered(words: Sequence[Array], rows: int, columns: int, kind: str, each: int = 0) -> Tensor:
    """Matrices (warps, rows, columns) of registers, each an array of unsigned words, one a lane."""
    elements = _typed(np.stack(words, axis=1), TYPES[kind][1]).reshape(-1, rows * columns)
    return elements[:, fragment(rows, columns, each or packed(kind))].reshape(-1, rows, columns)


def scattered(matrices: Tensor, count: int) -> list[Array]:
    """`gathered` undone, of C and D: `count` registers."""
    *_, rows, columns = matrices.shape
    elements = torch.empty(matrices.numel() // (rows * columns), rows * columns, dtype=matrices.dtype)
    elements[:, fragment(rows, columns, 2)] = matrices.reshape(elements.shape)
    words = elements.reshape(32 * len(elements), -1).view(WORDS[matrices.dtype.itemsize]).numpy()
    size = words.shape[1] * words.itemsize // count
    words = words.view(f"u{size}")
    return [words[:, k].copy() for k in range(count)]


def _typed(words: Array, dtype: torch.dtype) -> Tensor:
    """Elements along the last axis."""
    whole = np.ascontiguousarray(words).view(f"i{dtype.itemsize}")
    return torch.from_numpy(whole).view(dtype)


# Shared memory


def places(descriptors: Array, rows: int, columns: int, size: int, by_columns: bool) -> Array:
    """Addresses (descriptors, rows, columns) in shared memory of elements of `size` bytes.

    Along a row (`by_columns`: along a column) elements lie beside one another, up to the width of the swizzle, then
    `lead` bytes on; the lines beside it follow at once, and after eight of them `stride` bytes on. Unswizzled matrices
    by columns have the two exchanged.
    """
    word = descriptors.astype(np.int64)[:, None, None]
    start, lead, stride = ((word >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    if (word >> 49 & 7).any():
        raise Unsupported("wgmma with a base offset in its descriptor")
    which = np.unique(word >> 62 & 3)
    if len(which) != 1:
        raise Unsupported("wgmma with swizzles that differ between threads")
    width, turned = SWIZZLES[int(which[0])]
    row, column = np.arange(rows)[:, None], np.arange(columns)[None, :]
    line, along = (column, row * size) if by_columns else (row, column * size)
    if by_columns and not turned:
        lead, stride = stride, lead
    address = start + line // 8 * stride + line % 8 * width + along // width * lead + along % width
    return address ^ (address >> 7 & turned) << 4


def loaded(words: Array, shape: tuple[int, ...], kind: str) -> Tensor:
    """What was read at `places`."""
    return _typed(words, TYPES[kind][1]).reshape(shape)
