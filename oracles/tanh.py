"""tanh(x), torch.tanh.

Special values: C23 (N3220) F.10.2.6 and IEEE 754-2019, 9.2.1. No formulas: implementations are
polynomials of their own.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.facts.oracle import Oracle, Row, Saturation


def tanh(n: Any, x: Any) -> Any:
    return n.tanh(x)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "C23 F.10: a NaN argument gives a NaN"),
    Row(lambda n, x: n.is_zero(x) & n.signbit(x), "-0", "C23 F.10.2.6: tanh(+-0) is +-0"),
    Row(lambda n, x: n.is_zero(x), "+0", "C23 F.10.2.6: tanh(+-0) is +-0"),
    Row(lambda n, x: n.is_inf(x) & (x > 0), Fraction(1), "C23 F.10.2.6: tanh(+-inf) is +-1"),
    Row(lambda n, x: n.is_inf(x), Fraction(-1), "C23 F.10.2.6: tanh(+-inf) is +-1"),
)

SATURATIONS = (
    Saturation(lambda n, x: x > 344, 1.0, "1 - tanh(x) = 2 / (exp(2 x) + 1) < 2^-990"),
    Saturation(lambda n, x: x < -344, -1.0, "tanh(-x) = -tanh(x)"),
)

ORACLE = Oracle(tanh, rows=ROWS, saturations=SATURATIONS)
