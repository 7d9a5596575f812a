"""erf(x) = 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x, torch.erf, an alias of torch.special.erf.

Special values: C23 (N3220) F.10.5.1. No formulas: implementations are polynomials of their own.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.facts.oracle import Oracle, Row, Saturation


def erf(n: Any, x: Any) -> Any:
    return n.erf(x)


ROWS = (
    Row(lambda n, x: n.is_nan(x), "nan", "C23 F.10: a NaN argument gives a NaN"),
    Row(lambda n, x: n.is_zero(x) & n.signbit(x), "-0", "C23 F.10.5.1: erf(+-0) is +-0"),
    Row(lambda n, x: n.is_zero(x), "+0", "C23 F.10.5.1: erf(+-0) is +-0"),
    Row(lambda n, x: n.is_inf(x) & (x > 0), Fraction(1), "C23 F.10.5.1: erf(+-inf) is +-1"),
    Row(lambda n, x: n.is_inf(x), Fraction(-1), "C23 F.10.5.1: erf(+-inf) is +-1"),
)

SATURATIONS = (
    Saturation(lambda n, x: x > 26.25, 1.0, "1 - erf(x) < exp(-x^2) / (x sqrt(pi)) < 2^-990: DLMF 7.8.2"),
    Saturation(lambda n, x: x < -26.25, -1.0, "erf(-x) = -erf(x)"),
)

ORACLE = Oracle(erf, rows=ROWS, saturations=SATURATIONS)
