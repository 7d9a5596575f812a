"""Arithmetic and checked memory over arrays of lanes, one element a thread of a virtual GPU: `lanes.cpp` for numpy.

What numpy has itself (integers, comparisons, casts that round once) is not here.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from verify.native import Unsupported as NotBuilt
from verify.native import build
from verify.virtual.compile import Fault, Unsupported

Array = np.ndarray
#: Directions of rounding, in PTX's names, as `lanes.cpp` numbers them.
ROUNDING = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
#: Fraction bits, least and largest exponent.
NARROW = {"f16": (10, -14, 15), "bf16": (7, -126, 127)}


@functools.cache
def library() -> ctypes.CDLL:
    """Raises Unsupported where there is no C++ compiler."""
    try:
        found = build((Path(__file__).parent / "lanes.cpp").read_text(), "-O3", ("-frounding-math",))
    except NotBuilt as why:
        raise Unsupported(f"virtual devices need a C++ compiler: {why}") from None
    for bits in (8, 16, 32, 64):
        getattr(found, f"load_{bits}").restype = getattr(found, f"store_{bits}").restype = ctypes.c_long
    return found


def _place(a: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(a.ctypes.data)


def arithmetic(
    name: str, a: Array, b: Array | None = None, c: Array | None = None, *, rounding: str = "rn", ftz: bool = False,
    sat: bool = False,
) -> Array:  # fmt: skip
    """One IEEE operation (add, sub, mul, div, fma, sqrt, min, max, min_nan, max_nan) of float32 or float64 lanes.

    ftz: subnormal operands and results are zeros of their sign; sat: the result is brought into [0, 1], NaN to 0.
    """
    a = np.ascontiguousarray(a)
    b = a if b is None else np.ascontiguousarray(b)
    c = a if c is None else np.ascontiguousarray(c)
    out = np.empty_like(a)
    call = getattr(library(), f"{name}_f{8 * a.itemsize}")
    call(_place(a), _place(b), _place(c), _place(out), ctypes.c_long(a.size), ROUNDING[rounding], int(ftz), int(sat))
    return out


def narrow(name: str, kind: str, a: Array, b: Array, c: Array | None = None) -> Array:
    """add, sub, mul or fma of float16 or bfloat16 lanes, given and returned as values in float64, rounded once."""
    given = [np.ascontiguousarray(x, np.float64) for x in (a, b, a if c is None else c)]
    out = np.empty_like(given[0])
    which = ("add", "sub", "mul", "fma").index(name)
    library().narrow(*map(_place, given), _place(out), ctypes.c_long(out.size), which, *NARROW[kind])
    return out


class Memory:
    """The address ranges that lanes may touch: of this process, by the storages that a launch was given."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        """ranges: first address and one behind the last."""
        self.low = np.array([low for low, _ in ranges], np.uint64)
        self.high = np.array([high for _, high in ranges], np.uint64)

    def load(self, address: Array, bits: int, count: int = 1) -> list[Array]:
        """`count` neighbouring words of each lane. Raises Fault for an address outside, or askew."""
        out = [np.empty(address.size, f"u{bits // 8}") for _ in range(count)]
        self._move("load", address, bits, out)
        return out

    def store(self, address: Array, bits: int, values: Sequence[Array]) -> None:
        self._move("store", address, bits, [np.ascontiguousarray(value) for value in values])

    def _move(self, name: str, address: Array, bits: int, words: Sequence[Array]) -> None:
        address = np.ascontiguousarray(address, np.uint64)
        places = (ctypes.c_void_p * len(words))(*(word.ctypes.data for word in words))
        bad = getattr(library(), f"{name}_{bits}")(
            _place(address), places, ctypes.c_long(address.size), ctypes.c_long(len(words)), _place(self.low),
            _place(self.high), ctypes.c_long(self.low.size),
        )  # fmt: skip
        if bad >= 0:
            where, size = int(address[bad]), bits // 8 * len(words)
            ranges = zip(self.low.tolist(), self.high.tolist(), strict=True)
            low, high = min(ranges, key=lambda one: max(one[0] - where, where + size - one[1]), default=(where, where))
            at = f"at byte {where - low} of a tensor's {high - low}"
            if low <= where <= high - size:
                raise Fault(f"launched a {name} of {size} bytes {at}, whose address is no multiple of {bits // 8}")
            raise Fault(f"launched a {name} of {size} bytes outside its tensors, {at}; is a mask missing?")
