"""log(x): the algorithm of our own under safe math, Metal's fast::log under fast math.

metal::precise::log, within 4 ULP, is what eager and Inductor call; ours is below 0.6 ULP: `log_single` of
kernels/triton/log.py, its coefficients and error analysis. Where a device flushes subnormals, theirs is that of 0.
"""

from __future__ import annotations

from verify.kernels.metal.arithmetic import FAST_TWO_SUM
from verify.kernels.metal.elementwise import Operation, Operations

#: x = 2^e m, m from 2/3 (0x3f2aaaab) to 4/3, f = m - 1.
SAFE = (
    FAST_TWO_SUM
    + """
inline float operation(float x) {
    if (isnan(x) || x == INFINITY) {
        return x;
    }
    if (x <= 0.0f) {
        return x < 0.0f ? NAN : -INFINITY;
    }
    bool subnormal = x < SMALLEST_NORMAL;
    uint bits = as_type<uint>(subnormal ? x * 8388608.0f : x) + (0x3f800000u - 0x3f2aaaabu);
    float e = float(int(bits >> 23) - 127 - (subnormal ? 23 : 0));
    float f = as_type<float>((bits & 0x7fffffu) + 0x3f2aaaabu) - 1.0f;
    float half_f = 0.5f * f;
    float square = f * half_f;
    float square_low = fma(f, half_f, -square);
    float p = fma(f, -0.23359618f, 0.24220163f);
    p = fma(p, f, -0.18969145f);
    p = fma(p, f, 0.21450849f);
    p = fma(p, f, -0.25072306f);
    p = fma(p, f, 0.2861454f);
    p = fma(p, f, -0.3333102f);
    p = fma(p, f, 0.39998975f);
    p = fma(p, f, -0.50000024f);
    p = fma(p, f, 0.66666675f);
    float2 main = fast_two_sum(f, -square);
    float rest = fma(square_low, fma(f, p, -1.0f), main.y);
    float2 upper = fast_two_sum(e * LN2_HIGH, main.x);
    float2 sum = fast_two_sum(upper.x, square * f * p);
    return sum.x + fma(e, LN2_LOW, sum.y + (upper.y + rest));
}
"""
)

#: ln 2 in two parts, the first of 16 bits: e * LN2_HIGH is exact.
CONSTANTS = {"SMALLEST_NORMAL": 2.0**-126, "LN2_HIGH": 0.693145751953125, "LN2_LOW": 1.428606765330187e-06}


def log(scalar: float | None) -> Operation:
    return Operation(SAFE, fast="inline float operation(float x) { return fast::log(x); }\n", constants=CONSTANTS)


OPERATIONS: Operations = {"t": log}
