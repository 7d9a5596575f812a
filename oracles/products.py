"""Matrix products and what is done to them: act(alpha s_i t_j (a b)_ij + beta bias_ij), as torch has them.

Operands are exact numbers, whatever format they are stored in: an 8-bit float, or (q - 8) scale + zero of a 4-bit code.
With beta = 0 the bias is not read (torch.addmm's documentation). An infinity or a NaN among the terms, 0 times infinity
and infinities of either sign: IEEE 754-2019, 6.1, 7.2; relu of a NaN is a NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Factors:
    """The inputs, as values of a number system n; scales (m, 1) and (1, n), bias (1, n) or (m, n)."""

    a: Any
    b: Any
    scales: tuple[Any, ...] = ()
    bias: Any = None
    alpha: float = 1.0
    beta: float = 1.0


def weights(codes: Any, scale: Any, zero: Any) -> Any:
    """Numbers of any system, of which 4-bit codes are stored (torch._weight_int4pack_mm)."""
    return (codes - 8) * scale + zero


def weights_from_zero(codes: Any, scale: Any, zero: Any) -> Any:
    """The same by the weight of code 0, which is formed first (ATen/native/cpu/int4mm_kernel.cpp, for AVX2)."""
    return codes * scale + (zero - scale * 8)


def product(n: Any, x: Factors) -> Any:
    """Before the activation."""
    return _finished(n, n.matmul(x.a, x.b), x)


def magnitude(n: Any, x: Factors) -> Any:
    """The sum of the magnitudes of all terms, which errors are measured against."""
    sizes = Factors(abs(x.a), abs(x.b), tuple(map(abs, x.scales)), None if x.bias is None else abs(x.bias),
                    abs(x.alpha), abs(x.beta))  # fmt: skip
    return _finished(n, n.matmul(sizes.a, sizes.b), sizes)


def _finished(n: Any, y: Any, x: Factors) -> Any:
    for scale in x.scales:
        y = y * scale
    if x.alpha != 1.0:
        y = y * n.const(x.alpha)
    if x.bias is not None and x.beta != 0.0:
        y = y + (x.bias if x.beta == 1.0 else x.bias * n.const(x.beta))
    return y


def silu(n: Any, y: Any) -> Any:
    """y / (1 + exp(-y))."""
    return y / (n.exp(-y) + n.const(1))


#: Of numbers of which a system knows more than their sign; relu is max(y, 0), which enclosures take by their ends.
ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda n, y: y, "relu": lambda n, y: y, "silu": silu,
}  # fmt: skip
