"""sigmoid(x) = 1 / (1 + exp(-x)), torch.sigmoid, an alias of torch.special.expit.

No standard covers it: infinities follow torch's definition by C23 (N3220) F.10.3.1 and IEEE
754-2019, 6.1. Saturation holds for every format: below -800 the value is under 2^-1154, where
float64's smallest subnormal is 2^-1074. No formulas: each needs an exponential, which is no
sequence of roundings.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.facts.oracle import Oracle, Row, Saturation


def sigmoid(n: Any, x: Any) -> Any:
    decay = n.exp(-abs(x))  # at most 1, where exp(-x) would overflow
    return n.where(x < 0, decay, 1) / (1 + decay)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "IEEE 754-2019 6.2: a NaN operand gives a NaN"),
    Row(lambda n, x: n.is_zero(x), Fraction(1, 2), "torch.special.expit: 1 / (1 + exp(-0)), exp(+-0) is 1"),
    Row(lambda n, x: n.is_inf(x) & (x > 0), Fraction(1), "torch.special.expit: 1 / (1 + exp(-inf))"),
    Row(lambda n, x: n.is_inf(x), "+0", "torch.special.expit: 1 / (1 + exp(+inf)) is 1 / inf"),
    Row(lambda n, x: x < -800, "+tiny", "saturation: 0 < sigmoid(x) < 2^-1154"),
)

SATURATIONS = (Saturation(lambda n, x: x > 687, 1.0, "1 - sigmoid(x) < exp(-x) < 2^-990"),)

ORACLE = Oracle(sigmoid, rows=ROWS, saturations=SATURATIONS)
