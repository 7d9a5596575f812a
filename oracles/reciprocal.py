"""reciprocal(x) = 1 / x, torch.reciprocal.

Special values: IEEE 754-2019, 6.1, 6.3 and 7.3, on the spelling 1 / x; so 1 / -0 is -inf.
Triton's "/" on float32 is div.full.f32, an approximation within 2 ULP without a fixed sequence
of roundings: no formula here can stand for it.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, written


def reciprocal(n: Any, x: Any) -> Any:
    return 1 / x


ORACLE = Oracle(
    reciprocal,
    arithmetic=True,
    formulas=(
        # One correctly rounded division: eager everywhere, Inductor C++, Triton's div_rn.
        written("1/x"),
    ),
)
