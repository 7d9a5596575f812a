"""1/x: one division, correctly rounded under safe math (MSL table 8.1), within 1 ULP under fast math (table 8.2)."""

from __future__ import annotations

from verify.kernels.metal.elementwise import Operation, Operations


def reciprocal(scalar: float | None) -> Operation:
    return Operation("inline float operation(float x) { return 1.0f / x; }\n")


OPERATIONS: Operations = {"t": reciprocal}
