"""lerp(a, b, w) = a + w (b - a), from the nearer end point: the formulas of kernels/triton/lerp.py.

w = 0 gives a and w = 1 gives b exactly (for finite b - a), which torch's own one-sided Metal kernel does not promise. A
scalar weight is shifted in double and rounded once.
"""

from __future__ import annotations

from verify.kernels.metal.elementwise import Operation, Operations

TENSOR = """\
inline float operation(float a, float b, float w) {
    bool near = fabs(w) < 0.5f;
    return fma(near ? w : w - 1.0f, b - a, near ? a : b);
}
"""


def lerp(scalar: float | None) -> Operation:
    return Operation(TENSOR)


def lerp_scalar(weight: float | None) -> Operation:
    assert weight is not None
    near = abs(weight) < 0.5
    end = "a" if near else "b"
    return Operation(
        f"inline float operation(float a, float b) {{ return fma(WEIGHT, b - a, {end}); }}\n",
        constants={"WEIGHT": weight if near else weight - 1.0},
    )


OPERATIONS: Operations = {"ttt": lerp, "tts": lerp_scalar}
