"""addcmul(a, b, c, value) = a + value * b * c: the formulas of kernels/triton/addcmul.py.

fma(b, c, a) where value is 1, else fma(value, rn(b * c), a). Fast math gets the plain expression, to contract or not.
"""

from __future__ import annotations

from verify.kernels.metal.elementwise import Operation, Operations

PARAMETERS = "inline float operation(float a, float b, float c)"


def addcmul(value: float | None) -> Operation:
    if value is None or value == 1.0:
        return Operation(
            f"{PARAMETERS} {{ return fma(b, c, a); }}\n",
            fast=f"{PARAMETERS} {{ return a + b * c; }}\n",
        )
    return Operation(
        f"{PARAMETERS} {{ return fma(VALUE, b * c, a); }}\n",
        fast=f"{PARAMETERS} {{ return a + VALUE * b * c; }}\n",
        constants={"VALUE": value},
    )


OPERATIONS: Operations = {"ttt": addcmul, "ttts": addcmul}
