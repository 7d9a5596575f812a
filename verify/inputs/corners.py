"""Corners of kernels' inputs, for `verify.facts.kernel.Checks`: predicates on float64 tensors of inputs and results.

Each takes the format first, and gives a boolean tensor. Values: inputs by name; t: the result; s: its scale.
"""

from __future__ import annotations

from typing import Any

from verify.facts.formats import Format


def subnormal(fmt: Format, t: Any) -> Any:
    return (t.abs() < float(fmt.smallest_normal)) & (t != 0)


def last_binades(fmt: Format, t: Any, count: int) -> Any:
    return (t.abs() >= 2.0 ** (fmt.emax + 1 - count)) & (t.abs() <= float(fmt.max_finite))


def overflow(fmt: Format, t: Any) -> Any:
    """Just beyond the largest finite number."""
    return (t.abs() > float(fmt.max_finite)) & (t.abs() < 2.0 ** (fmt.emax + 2))


def tie(fmt: Format, t: Any) -> Any:
    """Midway between two neighbours of the format."""
    lost = 52 - fmt.mantissa_bits
    midpoint = (_bits(t) & ((1 << lost) - 1)) == 1 << (lost - 1)
    return midpoint & (t.abs() >= float(fmt.smallest_normal)) & (t.abs() <= float(fmt.max_finite))


def ordinary(t: Any) -> Any:
    """Neither special nor simple: finite, and with more than four significant bits."""
    return t.isfinite() & ((_bits(t) & ((1 << 48) - 1)) != 0)


def below_power_of_two(fmt: Format, x: Any) -> Any:
    """The value just below a power of two."""
    lost, mask = 52 - fmt.mantissa_bits, (1 << 52) - 1
    return ((_bits(x) & mask) == mask >> lost << lost) & x.isfinite()


def negative_zero(x: Any) -> Any:
    return (x == 0) & x.signbit()


def beside(fmt: Format, x: Any, point: float, bits: int = 4) -> Any:
    """Within 2^bits units of roundoff of `point`, relative to it, and not equal to it."""
    return ((x / point - 1).abs() < 2.0 ** (bits - fmt.precision)) & (x != point)


def _bits(t: Any) -> Any:
    import torch

    return t.contiguous().view(torch.int64)


#: Of any kernel whose results cover the format's range.
RESULTS = {
    "subnormal result": lambda f, v, t, s: subnormal(f, t),
    "result in the last binade": lambda f, v, t, s: last_binades(f, t, 1),
    "result just beyond overflow": lambda f, v, t, s: overflow(f, t),
}
SUMS = RESULTS | {
    "ties": lambda f, v, t, s: tie(f, t),
    "cancellation of p - 3 bits": lambda f, v, t, s: (t.abs() < s * 2.0 ** (3 - f.precision)) & (t != 0),
    "cancellation of p/2 bits": lambda f, v, t, s: (t.abs() < s * 2.0 ** -(f.precision // 2)) & (t != 0),
}
