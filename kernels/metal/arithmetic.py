"""MSL that several Metal kernels share: the error of a sum, and exp in float32.

Built for safe math without contraction: fast math may reassociate what an error term accounts for. Every operation is
taken as correctly rounded (MSL table 8.1), ties to even; MSL 8.2 leaves that to the device, and the fingerprint tells.
"""

from __future__ import annotations

#: `FastTwoSum` (Dekker 1971): sum + error = a + b exactly, sum = RN(a + b), where |a| >= |b|.
FAST_TWO_SUM = """\
inline float2 fast_two_sum(float a, float b) {
    float sum = a + b;
    return float2(sum, b - (sum - a));
}
"""

#: exp of a float, below 1/2 + 2^-5 ULP in normal range: the algorithm, coefficients and error analysis of
#: `exp_parts` in kernels/triton/arithmetic.py. Results below normal range are rounded twice, or flushed by the device.
EXP = (
    FAST_TWO_SUM
    + """
inline float power_of_two(int k) { return as_type<float>((k + 127) << 23); }

inline float accurate_exp(float x) {
    if (isnan(x)) {
        return x;
    }
    float inside = min(max(x, -105.0f), 89.0f);  // beyond, the result is 0 or infinite
    float k = floor(fma(inside, LOG2_E, 0.5f));
    float2 r = fast_two_sum(fma(k, -LN2, inside), k * -LN2_TAIL);
    float square = r.x * r.x;
    float square_low = fma(r.x, r.x, -square);
    float p = fma(r.x, 0.0001991326f, 0.0013935448f);
    p = fma(p, r.x, 0.008333275f);
    p = fma(p, r.x, 0.04166646f);
    p = fma(p, r.x, 0.16666667f);
    float2 one = fast_two_sum(1.0f, r.x);
    float2 two = fast_two_sum(one.x, 0.5f * square);
    float low = one.y + (two.y + fma(0.5f, square_low, r.y * two.x));
    float2 sum = fast_two_sum(two.x, fma(square * r.x, p, low));
    int exponent = int(k);
    int half_of_it = exponent >> 1;  // two exact factors, for results beyond the range of one
    return (sum.x + sum.y) * power_of_two(half_of_it) * power_of_two(exponent - half_of_it);
}
"""
)

#: Constants of EXP: ln 2 = LN2 + LN2_TAIL, so that k LN2 is exact inside an fma.
EXP_CONSTANTS = {
    "LOG2_E": 1.4426950408889634,
    "LN2": 0.693147182464599609375,
    "LN2_TAIL": -1.904654299957768e-09,
}
