// Arithmetic over the lanes of a virtual GPU that numpy does not have: fused, directed, flushed; checked memory.
// IEEE 754 operations of the host, whose rounding direction is set around a loop (compiled with -frounding-math). NaNs
// of 32 bits come out as 0x7fffffff, as NVIDIA's do (PTX ISA, 9.7.3); on AMD as 0x7fc00000.
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>

typedef uint32_t u32;
typedef uint64_t u64;

template <class To, class From> static inline To bits(From x) { To y; std::memcpy(&y, &x, sizeof y); return y; }

static inline float flushed(float x) {
    u32 b = bits<u32>(x);
    return bits<float>(b & 0x7f800000u ? b : b & 0x80000000u);
}
static inline double flushed(double x) { return x; }

static u32 nan32 = 0x7fffffffu;
extern "C" void set_nan(u32 b) { nan32 = b; }
static inline float settled(float x, u32 nan) { return x != x ? bits<float>(nan) : x; }
static inline double settled(double x, u32) { return x; }

static const int MODES[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
struct Rounding {
    int before;
    Rounding(int mode) : before(std::fegetround()) { if (mode) std::fesetround(MODES[mode]); }
    ~Rounding() { std::fesetround(before); }
};

struct Add { template <class T> static inline T of(T a, T b, T) { return a + b; } };
struct Sub { template <class T> static inline T of(T a, T b, T) { return a - b; } };
struct Mul { template <class T> static inline T of(T a, T b, T) { return a * b; } };
struct Div { template <class T> static inline T of(T a, T b, T) { return a / b; } };
struct Fma { template <class T> static inline T of(T a, T b, T c) { return std::fma(a, b, c); } };
struct Sqrt { template <class T> static inline T of(T a, T, T) { return std::sqrt(a); } };
// The other operand where one is NaN; -0 is below +0.
struct Min { template <class T> static inline T of(T a, T b, T) {
    return a != a ? b : b != b ? a : a < b || (a == b && std::signbit(a)) ? a : b; } };
struct Max { template <class T> static inline T of(T a, T b, T) {
    return a != a ? b : b != b ? a : a > b || (a == b && !std::signbit(a)) ? a : b; } };
struct MinNan { template <class T> static inline T of(T a, T b, T) {
    return a != a ? a : b != b ? b : a < b || (a == b && std::signbit(a)) ? a : b; } };
struct MaxNan { template <class T> static inline T of(T a, T b, T) {
    return a != a ? a : b != b ? b : a > b || (a == b && !std::signbit(a)) ? a : b; } };

template <class Op, class T>
static void each(const T *a, const T *b, const T *c, T *out, long n, int mode, int ftz, int sat) {
    Rounding rounding(mode);
    u32 nan = nan32;
    if (!ftz && !sat) {
        for (long i = 0; i < n; i++) out[i] = settled(Op::of(a[i], b[i], c[i]), nan);
        return;
    }
    for (long i = 0; i < n; i++) {
        T y = ftz ? Op::of(flushed(a[i]), flushed(b[i]), flushed(c[i])) : Op::of(a[i], b[i], c[i]);
        if (ftz) y = flushed(y);
        out[i] = sat ? (y > 0 ? (y < 1 ? y : T(1)) : T(0)) : settled(y, nan);
    }
}

#define OPERATION(NAME, OP)                                                                                            \
    extern "C" void NAME##_f32(const float *a, const float *b, const float *c, float *o, long n, int m, int f, int s)  \
    { each<OP, float>(a, b, c, o, n, m, f, s); }                                                                       \
    extern "C" void NAME##_f64(const double *a, const double *b, const double *c, double *o, long n, int m, int f,     \
                               int s) { each<OP, double>(a, b, c, o, n, m, f, s); }
OPERATION(add, Add) OPERATION(sub, Sub) OPERATION(mul, Mul) OPERATION(div, Div) OPERATION(fma, Fma)
OPERATION(sqrt, Sqrt) OPERATION(min, Min) OPERATION(max, Max) OPERATION(min_nan, MinNan) OPERATION(max_nan, MaxNan)

// Half formats: exact operands in double, the exact result rounded to odd there, then once to the format.
static double odd(double high, double error) {
    if (error == 0 || high != high || std::isinf(high)) return high;
    u64 b = bits<u64>(high);
    if (b & 1) return high;
    return bits<double>((error > 0) == (high > 0) ? b + 1 : b - 1);
}
static double sum_odd(double a, double b) {
    double s = a + b, z = s - a;
    return odd(s, (a - (s - z)) + (b - z));
}
// nearest, ties to even, to `fraction` bits behind the leading one, least exponent `low`, largest `high`
static double narrowed(double x, int fraction, int low, int high) {
    if (x != x || std::isinf(x) || x == 0) return x;
    int e;
    std::frexp(x, &e);
    e = e - 1 < low ? low : e - 1;
    double unit = std::ldexp(1.0, e - fraction), y = std::nearbyint(x / unit) * unit;
    return std::fabs(y) >= std::ldexp(1.0, high + 1) ? std::copysign(INFINITY, x) : y;
}
// op: 0 add, 1 sub, 2 mul, 3 fma. Operands and results as doubles that are numbers of the format.
extern "C" void narrow(const double *a, const double *b, const double *c, double *o, long n, int op, int fraction,
                       int low, int high) {
    for (long i = 0; i < n; i++) {
        double y = op == 0 ? sum_odd(a[i], b[i]) : op == 1 ? sum_odd(a[i], -b[i]) : op == 2 ? a[i] * b[i]
                                                                                  : sum_odd(a[i] * b[i], c[i]);
        o[i] = narrowed(y, fraction, low, high);
    }
}

// Memory. `low` and `high`: the address ranges that may be touched. Returns the first lane outside them, or -1.
template <class T> static long outside(const u64 *a, long n, long bytes, const u64 *low, const u64 *high, long k) {
    for (long i = 0; i < n; i++) {
        bool in = false;
        for (long j = 0; j < k; j++) in |= a[i] >= low[j] && a[i] + bytes <= high[j];
        if (!in || a[i] % sizeof(T)) return i;
    }
    return -1;
}
template <class T>
static long load(const u64 *a, T *const *o, long n, long count, const u64 *low, const u64 *high, long k) {
    long bad = outside<T>(a, n, count * sizeof(T), low, high, k);
    if (bad >= 0) return bad;
    for (long i = 0; i < n; i++)
        for (long j = 0; j < count; j++) o[j][i] = reinterpret_cast<const T *>(a[i])[j];
    return -1;
}
template <class T>
static long store(const u64 *a, T *const *v, long n, long count, const u64 *low, const u64 *high, long k) {
    long bad = outside<T>(a, n, count * sizeof(T), low, high, k);
    if (bad >= 0) return bad;
    for (long i = 0; i < n; i++)
        for (long j = 0; j < count; j++) reinterpret_cast<T *>(a[i])[j] = v[j][i];
    return -1;
}
#define MEMORY(BITS)                                                                                                   \
    extern "C" long load_##BITS(const u64 *a, void *const *o, long n, long c, const u64 *l, const u64 *h, long k)      \
    { return load<uint##BITS##_t>(a, (uint##BITS##_t *const *)o, n, c, l, h, k); }                                     \
    extern "C" long store_##BITS(const u64 *a, void *const *v, long n, long c, const u64 *l, const u64 *h, long k)     \
    { return store<uint##BITS##_t>(a, (uint##BITS##_t *const *)v, n, c, l, h, k); }
MEMORY(8) MEMORY(16) MEMORY(32) MEMORY(64)
