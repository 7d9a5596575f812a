"""The loop around every elementwise Metal kernel, and its launch.

The arithmetic lives in one file a kernel, as a function of one element; what several of them share is in `arithmetic`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: MSL 2.1. Conversions from half and bfloat are exact, those to them round to nearest, ties to even (MSL 8.6).
TYPES: Mapping[str, str] = {"float16": "half", "bfloat16": "bfloat", "float32": "float"}

#: Safe math leaves contraction within a statement on (MSL 1.6.3): error terms of a sum would vanish in it.
PRAGMAS: Mapping[str, str] = {
    "safe": "#pragma METAL fp math_mode(safe)\n#pragma METAL fp contract(off)\n",
    "fast": "#pragma METAL fp math_mode(fast)\n",
}


@dataclass(frozen=True)
class Operation:
    """The arithmetic of one element.

    text       MSL that defines `float operation(float, ...)` of the tensors' elements in order
    fast       what stands in its place under fast math; empty: the same text
    constants  names that the text uses, with their values, rounded once to float32
    """

    text: str
    fast: str = ""
    constants: Mapping[str, float] = field(default_factory=dict)


#: One for each pattern of tensors and scalars (see `kernels/triton/__init__.py`), made from the case's scalar.
Operations = Mapping[str, Callable[[float | None], Operation]]


def preamble(mode: str) -> str:
    """What every source begins with. mode: 'safe' or 'fast'."""
    return f"#include <metal_stdlib>\nusing namespace metal;\n{PRAGMAS[mode]}\n"


def definitions(operation: Operation, mode: str) -> str:
    """The constants and functions of an operation."""
    constants = "".join(f"#define {name} {_literal(value)}\n" for name, value in operation.constants.items())
    return f"{constants}{operation.fast if mode == 'fast' and operation.fast else operation.text}\n"


def source(operation: Operation, arity: int, dtype: str, mode: str) -> str:
    """A Metal library with the kernel `elementwise`: `arity` inputs of `dtype`, one thread an element.

    Half types are computed in float32 and rounded once. mode: 'safe' or 'fast'.
    """
    kind = TYPES[dtype]
    names = [f"x{i}" for i in range(arity)]
    inputs = "".join(f", device const {kind}* {name}" for name in names)
    values = ", ".join(f"float({name}[i])" for name in names)
    return (
        f"{preamble(mode)}{definitions(operation, mode)}"
        f"kernel void elementwise(device {kind}* out{inputs}, uint i [[thread_position_in_grid]]) {{\n"
        f"    out[i] = {kind}(operation({values}));\n"
        "}\n"
    )


def compiled(
    operation: Operation, arity: int, dtype: str, mode: str, compiler: Callable[[str], Any]
) -> Callable[..., torch.Tensor]:
    """`operation` over tensors of `dtype` on the GPU. `compiler` is the backend's `metal_compiler`."""
    import torch

    library = compiler(source(operation, arity, dtype, mode))

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        inputs = [t.contiguous() for t in torch.broadcast_tensors(*tensors)]  # type: ignore[no-untyped-call]
        out = torch.empty_like(inputs[0])
        if out.numel():
            library.elementwise(out, *inputs)  # as many threads as the first argument has elements
        return out

    return run


def _literal(value: float) -> str:
    """`value` rounded once to float32, by its bits: no parser's rounding enters."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return f"as_type<float>(0x{bits:08x}u)"
