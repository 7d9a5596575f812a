"""The documented error of a library function: a value, without torch, for the facts of kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Documented:
    """The error of a library function in one format: |f' - f| <= units u |f| + absolute + units eta/2, u its unit
    roundoff and eta its smallest subnormal number.

    points: exact where C23 Annex F.10 says so: exp(0) = 1, log(1) = 0, log1p(0) = expm1(0) = tanh(0) = 0, pow(x, 0) = 1
    = pow(1, y), pow(0, y) = 0 of y > 0; and exp2 at whole numbers and rsqrt at 1, which are not rules of C.
    """

    units: float
    source: str
    absolute: float = 0.0
    points: bool = True
