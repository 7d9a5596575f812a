"""rsqrt(x) = 1 / sqrt(x), torch.rsqrt.

Special values: rSqrt in IEEE 754-2019, 9.2.1, and rsqrt in C23 F.10.4.9: rSqrt(-0) is -inf.
torch documents 1/sqrt(x), which agrees, as sqrt(-0) is -0; so do eager CPU and CUDA's
__nv_rsqrtf (libdevice user's guide). A device's correctly rounded or approximate rsqrt is no
sequence of roundings and has no formula here.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, Row, written


def rsqrt(n: Any, x: Any) -> Any:
    return 1 / n.sqrt(x)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "IEEE 754-2019 6.2: a NaN operand gives a NaN"),
    Row(lambda n, x: n.is_zero(x) & n.signbit(x), "-inf", "IEEE 754-2019 9.2.1: rSqrt(+-0) is +-inf"),
    Row(lambda n, x: n.is_zero(x), "+inf", "IEEE 754-2019 9.2.1: rSqrt(+-0) is +-inf"),
    Row(lambda n, x: x < 0, "nan", "IEEE 754-2019 table 9.1: invalid for x < 0"),
    Row(lambda n, x: n.is_inf(x), "+0", "IEEE 754-2019 9.2.1: rSqrt(+inf) is +0"),
)


ORACLE = Oracle(
    rsqrt,
    rows=ROWS,
    formulas=(
        # Eager CPU.
        written("1/sqrt(x)"),
        # A user's x.sqrt().reciprocal() in a 16-bit dtype.
        written("1/storage(sqrt(x))"),
    ),
)
