"""a / b: one division, correctly rounded under safe math (MSL table 8.1), within 2.5 ULP under fast math (table 8.2).

A scalar divisor is rounded once to float32.
"""

from __future__ import annotations

from verify.kernels.metal.elementwise import Operation, Operations


def div(scalar: float | None) -> Operation:
    return Operation("inline float operation(float a, float b) { return a / b; }\n")


def div_by_scalar(divisor: float | None) -> Operation:
    assert divisor is not None
    return Operation("inline float operation(float a) { return a / DIVISOR; }\n", constants={"DIVISOR": divisor})


OPERATIONS: Operations = {"tt": div, "ts": div_by_scalar}
