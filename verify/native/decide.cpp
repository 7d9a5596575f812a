// The decision of `verify.decide` for one block of elements, compiled for the host.
//
// The tensor version in verify/decide.py is the definition; a test holds the two equal bit for
// bit. One pass, no branches, no fused multiply-add (-ffp-contract=off), so that the compiler
// vectorises it. Values of every format up to float32 are exact in double.

#include <cmath>
#include <cstdint>
#include <cstring>

// Order of the integer results; verify/decide.py names them in the same order.
enum { CORRECT, FAITHFUL, WORSE, FLUSHED, NAN_MISMATCH, INF_MISMATCH, ZERO_SIGN, UNSETTLED,
       MEASURED, CLAMPED, SUM, SUM_SIGNED, MAX_INT, DIFFERENT, CLOSER, FARTHER, TIED, HISTOGRAM };

namespace {

constexpr double kClampUlp = 1024.0;      // errors are clamped here (2^10 ULP)
constexpr double kQuantum = 65536.0;      // and summed in units of 2^-16 ULP
constexpr int64_t kBlock = 4096;         // stays in the first-level cache
constexpr int kBins = 12;                 // <= 2^-1, 1, 2, ..., 2^10 ULP
constexpr double kNegligible = 0x1p-20;   // ULP: too small to matter in which of two binades it is counted
constexpr double kUp = 1.0 + 0x1p-45;     // covers the roundings of an error estimate
constexpr double kFlush = 4.0;            // scaled ULP: the least error called a flush
constexpr double kTiny = 0x1p-1000;       // stands for a real number whose sign alone is known

inline int64_t bits(double v) { int64_t b; std::memcpy(&b, &v, 8); return b; }
inline double from_bits(int64_t b) { double v; std::memcpy(&v, &b, 8); return v; }

// minpd and maxpd: the second operand where either is NaN.
inline double lesser(double a, double b) { return a < b ? a : b; }
inline double greater(double a, double b) { return a > b ? a : b; }
// [-limit, limit]; NaN stays NaN.
inline double clamp(double v, double limit) { return greater(-limit, lesser(limit, v)); }
inline int64_t negative(double v) { return static_cast<uint64_t>(bits(v)) >> 63; }

struct Format {
  int64_t mantissa;   // trailing significand bits
  double top;         // 2^(emax+1): where infinity is measured
  double floor_ulp;   // 2^(emin - precision + 1), the smallest subnormal
  double normal;      // 2^emin
  double to_ulp;      // 2^(precision-1)
  double per_floor;   // 1 / floor_ulp
  double magic;       // 1.5 * 2^52 quanta of a number in [1, 2)
};

// 2^e of the binade that an ULP is taken in: e = clamp(floor(log2|v|), emin, emax).
inline double binade(double v, const Format& f) {
  double a = lesser(greater(std::fabs(v), f.normal), f.top * 0.5);
  return from_bits(bits(a) & 0x7FF0000000000000);
}

// The radius: a tensor, or relative |m| + absolute.
struct Ball {
  const double* rad;
  double relative, absolute;
};

template <bool kTensor>
inline double radius(double m, int64_t i, const Ball& b) {
  if (kTensor) return b.rad[i];
  return std::fabs(m) * b.relative + b.absolute;
}

// The ends of m -+ r, or with kSure of |m| -+ r (above zero) with the sign of m. 
template <bool kSure>
inline double inner(double m, double r) {
  if (!kSure) return m - r;
  return std::copysign(greater(std::fabs(m) - r, r > 0 ? kTiny : 0.0), m);
}

template <bool kSure>
inline double outer(double m, double r) {
  return kSure ? std::copysign(std::fabs(m) + r, m) : m + r;
}

inline int32_t raw(float v) { int32_t b; std::memcpy(&b, &v, 4); return b; }

// RN to the format: add and subtract 1.5 * 2^52 quanta (ties to even; exact for |v| < 2^1000).
inline double nearest(double v, const Format& f) {
  double a = lesser(std::fabs(v), f.top);
  double magic = from_bits(bits(greater(a, f.normal)) & 0x7FF0000000000000) * f.magic;
  double r = (a + magic) - magic;
  return std::copysign(r, v);
}

// Position on the number line of a representable value (infinity as 2^(emax+1)).
inline int64_t ordinal(double v, const Format& f) {
  double a = std::fabs(v);
  int64_t normal = (bits(a) - bits(f.normal)) >> (52 - f.mantissa);
  int64_t subnormal = static_cast<int64_t>(a * f.per_floor);
  int64_t n = a >= f.normal ? normal + (int64_t{1} << f.mantissa) : subnormal;
  return v < 0 ? -n : n;
}

// A block in which every element is correct or faithful and equal to eager: the common case, with a
// third of the work. Returns false, having added nothing, for any other.
template <bool kTensor, bool kSure>
bool plain(int64_t n, const float* y, const float* eager, const double* mid, const Ball& ball, const Format& f,
           int64_t* counts, double* maxima) {
  int64_t correct = 0, faithful = 0, half = 0, sum = 0, sum_signed = 0, different = 0;
  double max_ulp = 0;
#pragma omp simd reduction(+ : correct, faithful, half, sum, sum_signed) reduction(max : max_ulp)
  for (int64_t i = 0; i < n; ++i) {
    double yv = clamp(y[i], f.top), given = mid[i];
    double m = clamp(given, 2 * f.top), t = clamp(m, f.top);
    double r = radius<kTensor>(m, i, ball);
    double lo = inner<kSure>(m, r), hi = outer<kSure>(m, r);
    double blo = binade(lo, f), bhi = binade(hi, f);
    double magic = blo * f.magic;
    // RN of both ends at the quantum of this binade; an end in another binade fails `agree`
    double nlo = clamp((lo + magic) - magic, f.top), nhi = clamp((hi + magic) - magic, f.top);
    double inverse = from_bits((int64_t{2046} << 52) - bits(lesser(blo, bhi))) * f.to_ulp;
    double signed_error = (yv - t) * inverse, error = std::fabs(signed_error);
    double top = (error + r * inverse) * kUp;
    bool agree = (nlo == nhi) & ((blo == bhi) | (top < kNegligible)) & ((lo > 0) == (hi > 0)) & (lo != 0);
    bool hit = agree & (yv == nlo) & (negative(yv) == negative(m));
    bool faith = agree & (yv != nlo) & (top < 1.0) & (std::fabs(yv) >= (blo == f.normal ? f.floor_ulp : blo)) &
                 (yv * m > 0) & (std::fabs(m - nlo) > r);
    correct += hit;
    faithful += faith;
    half += error <= 0.5;
    double q = static_cast<double>(static_cast<int64_t>(error * kQuantum + 0.5));
    sum += static_cast<int64_t>(q);
    sum_signed += static_cast<int64_t>(signed_error < 0 ? -q : q);
    max_ulp = greater(top, max_ulp);
  }
  if (eager)
    for (int64_t i = 0; i < n; ++i) different += raw(eager[i]) != raw(y[i]);
  if (correct + faithful != n || different) return false;
  counts[CORRECT] += correct; counts[FAITHFUL] += faithful; counts[MEASURED] += n; counts[SUM] += sum;
  counts[SUM_SIGNED] += sum_signed;
  counts[HISTOGRAM] += half;
  for (int k = 1; k < kBins; ++k) counts[HISTOGRAM + k] += n;
  if (faithful && counts[MAX_INT] == 0) counts[MAX_INT] = 1;
  maxima[0] = greater(max_ulp, maxima[0]);
  maxima[1] = greater(max_ulp, maxima[1]);
  return true;
}

template <bool kTensor, bool kSure>
void full(int64_t n, const float* y, const float* eager, const double* mid, const Ball& ball, const double* scale,
          const uint8_t* mask, int want, const uint8_t* subnormal, const Format& f, int64_t* counts, double* maxima, uint8_t* flags) {
  const double to_ulp = f.to_ulp;
  int64_t correct = 0, faithful = 0, worse = 0, flushed = 0, nanm = 0, infm = 0, zsign = 0, unsettled = 0,
          measured = 0, clamped = 0, sum = 0, sum_signed = 0, different = 0, closer = 0,
          farther = 0, tied = 0;
  double max_ulp = 0, max_scaled = 0, max_int = 0;
  int64_t b0 = 0, b1 = 0, b2 = 0, b3 = 0, b4 = 0, b5 = 0, b6 = 0, b7 = 0, b8 = 0, b9 = 0, b10 = 0, b11 = 0;
#pragma omp simd reduction(+ : correct, faithful, worse, flushed, nanm, infm, zsign, unsettled, measured, clamped, sum, sum_signed, different, closer, farther, tied, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11) reduction(max : max_ulp, max_scaled, max_int)
  for (int64_t i = 0; i < n; ++i) {
    double yv = y[i], given = mid[i];
    double m = clamp(given, 2 * f.top);
    double r = radius<kTensor>(m, i, ball);
    int64_t in = mask ? mask[i] == want : 1;
    double lo = inner<kSure>(m, r), hi = outer<kSure>(m, r);
    double nlo = nearest(lo, f), nhi = nearest(hi, f);
    double t = clamp(m, f.top);
    double yc = clamp(yv, f.top);
    double blo = binade(lo, f), bhi = binade(hi, f);
    double inverse = from_bits((int64_t{2046} << 52) - bits(lesser(blo, bhi))) * to_ulp;
    double signed_error = (yc - t) * inverse, error = std::fabs(signed_error);
    double spread = r * inverse;
    int64_t nan = (m != m) & (r == 0), ynan = yv != yv, inf = std::fabs(given) == INFINITY;
    int64_t zero_split = (nlo == 0) & (r != 0) & ((lo < 0) != (hi < 0));
    int64_t agree = (m == m) & (r >= 0) & (nlo == nhi) & ((blo == bhi) | (error + spread < kNegligible)) & !zero_split;
    int64_t d = ordinal(yc, f) - ordinal(nlo, f);
    int64_t near = (d == 1) | (d == -1);
    int64_t above = (lo > nlo) & (hi > nlo), below = (lo < nlo) & (hi < nlo);
    int64_t side_unknown = near & (r != 0) & !above & !below;
    int64_t same_sign = negative(yv) == negative(m);
    int64_t infinite_miss = inf & (d != 0);  // infinity or a real overflow: mp tells
    int64_t settled = in & (nan | (ynan & agree) | (agree & !side_unknown & !infinite_miss));
    int64_t number = settled & !nan & !ynan;
    int64_t hit = number & (d == 0);
    int64_t wrong_zero = number & (yv == 0) & !same_sign & ((d == 0) | (near & (m != 0)));
    // a zero left by cancellation has the sign of an exact zero, whatever the sign of t
    int64_t cancelled = scale ? wrong_zero & (m != 0) : 0;
    int64_t sign_miss = wrong_zero & !cancelled;
    int64_t ok = hit & !wrong_zero;
    int64_t faith = number & !sign_miss & ((above & (d == 1)) | (below & (d == -1)) | cancelled);
    int64_t rest = number & !hit & !faith & !sign_miss;
    int64_t sub = subnormal ? (subnormal[i] != 0) : 0;
    int64_t odd = sub & (rest | (settled & (nan != ynan)));  // perhaps a flushed input: decided apart
    rest &= !odd;
    int64_t inf_miss = rest & ((std::fabs(nlo) == f.top) != (std::fabs(yc) == f.top));
    double distance = (error + spread) / inverse;
    double weight = scale ? f.to_ulp / binade(scale[i], f) : inverse;
    // a zero left by cancellation is no flush: it is wrong by more than rounding could be
    double slack = 1.0 + (r != 0 ? kUp - 1.0 : 0.0);
    int64_t lost = rest & !inf_miss & (yv == 0) & (std::fabs(nlo) <= f.normal) & (distance * weight * slack >= kFlush);
    int64_t flush = lost & ((error - spread) / inverse * weight >= kFlush * slack);
    int64_t unclear = lost & !flush;
    rest &= !unclear;
    settled &= !odd & !unclear;
    number &= !odd & !unclear;
    int64_t open = in & !settled;
    int64_t diff = 0, near_tie = 0, wins = 0, loses = 0;
    if (eager) {
      double ev = eager[i];
      double ec = clamp(ev, f.top);
      double other = std::fabs(ec - t) * inverse;
      int64_t both = (ev == ev) & (yv == yv);
      int64_t same = ((ev == yv) & (negative(ev) == negative(yv))) | ((ev != ev) & (yv != yv));
      diff = in & !same;
      int64_t measurable = diff & number & both & (yv != ev);
      // float64 tells exact errors apart up to 8 ULP, where y - t is exact (Sterbenz)
      double blur = error * 0x1p-50 + (r != 0 ? 0x1p-30 : 0.0);
      near_tie = measurable & (std::fabs(error - other) <= 2 * spread * kUp + blur) & !((r == 0) & (error <= 8));
      wins = measurable & !near_tie & (error < other);
      loses = measurable & !near_tie & (error > other);
    }
    open |= near_tie;
    settled &= !near_tie;
    number &= !near_tie;
    int64_t counted = number & !flush;  // a flush is a class of its own: its error is in no maximum and no sum
    double top_error = counted ? (error + spread) * kUp : 0.0;
    double top_scaled = scale ? (counted ? distance * weight * kUp : 0.0) : top_error;
    double steps = counted ? std::fabs(static_cast<double>(d)) : 0.0;
    correct += settled & ((nan & ynan) | ok);
    nanm += settled & (nan != ynan);
    zsign += settled & sign_miss;
    faithful += settled & faith;
    infm += settled & inf_miss;
    flushed += settled & flush;
    worse += settled & rest & !inf_miss & !flush;
    unsettled += open;
    measured += counted;
    double capped = lesser(error, kClampUlp);
    int64_t q = counted ? static_cast<int64_t>(capped * kQuantum + 0.5) : 0;
    clamped += counted & (error > kClampUlp);
    sum += q;
    sum_signed += signed_error < 0 ? -q : q;
    b0 += counted & (error <= 0.5);
    b1 += counted & (error <= 1.0);
    b2 += counted & (error <= 2.0);
    b3 += counted & (error <= 4.0);
    b4 += counted & (error <= 8.0);
    b5 += counted & (error <= 16.0);
    b6 += counted & (error <= 32.0);
    b7 += counted & (error <= 64.0);
    b8 += counted & (error <= 128.0);
    b9 += counted & (error <= 256.0);
    b10 += counted & (error <= 512.0);
    b11 += counted & (error <= 1024.0);
    max_ulp = greater(max_ulp, top_error);
    max_scaled = greater(max_scaled, top_scaled);
    max_int = greater(max_int, steps);
    int64_t decided_diff = diff & settled;
    different += decided_diff;
    closer += wins & settled;
    farther += loses & settled;
    tied += decided_diff & !wins & !loses;
    flags[i] = static_cast<uint8_t>(open);
  }
  counts[CORRECT] += correct; counts[FAITHFUL] += faithful; counts[WORSE] += worse; counts[FLUSHED] += flushed;
  counts[NAN_MISMATCH] += nanm; counts[INF_MISMATCH] += infm; counts[ZERO_SIGN] += zsign;
  counts[UNSETTLED] += unsettled; counts[MEASURED] += measured;
  counts[CLAMPED] += clamped; counts[SUM] += sum; counts[SUM_SIGNED] += sum_signed;
  counts[MAX_INT] = counts[MAX_INT] > max_int ? counts[MAX_INT] : static_cast<int64_t>(max_int);
  counts[DIFFERENT] += different; counts[CLOSER] += closer; counts[FARTHER] += farther; counts[TIED] += tied;
  const int64_t bins[kBins] = {b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11};
  for (int k = 0; k < kBins; ++k) counts[HISTOGRAM + k] += bins[k];
  maxima[0] = greater(maxima[0], max_ulp);
  maxima[1] = greater(maxima[1], max_scaled);
}

template <bool kTensor, bool kSure>
void blocks(int64_t n, const float* y, const float* eager, const double* mid, const Ball& whole, const double* scale,
            const uint8_t* mask, int want, const uint8_t* subnormal, const Format& f, int64_t* counts, double* maxima,
            uint8_t* flags) {
  for (int64_t i = 0; i < n; i += kBlock) {
    int64_t m = n - i < kBlock ? n - i : kBlock;
    const Ball ball{kTensor ? whole.rad + i : nullptr, whole.relative, whole.absolute};
    const float* e = eager ? eager + i : nullptr;
    if (!scale && !mask && plain<kTensor, kSure>(m, y + i, e, mid + i, ball, f, counts, maxima)) continue;
    full<kTensor, kSure>(m, y + i, e, mid + i, ball, scale ? scale + i : nullptr, mask ? mask + i : nullptr, want,
                         subnormal ? subnormal + i : nullptr, f, counts, maxima, flags + i);
  }
}

}  // namespace

// Counts, sums and maxima of n elements; see verify/decide.py for the meaning of the arguments.
// rad is null, 0 or at least 2^-52 |mid|, so that mid -+ rad rounds outward. `sure`: t has the sign
// of mid even where mid -+ rad straddles zero.
extern "C" void decide(int64_t n, const float* y, const float* eager, const double* mid, const double* rad,
                       double relative, double absolute, int sure, const double* scale, const uint8_t* mask, int want,
                       const uint8_t* subnormal, int precision, int emin, int emax, int64_t* counts, double* maxima,
                       uint8_t* flags) {
  const Format f{precision - 1, std::ldexp(1.0, emax + 1), std::ldexp(1.0, emin - precision + 1),
                 std::ldexp(1.0, emin), std::ldexp(1.0, precision - 1), std::ldexp(1.0, precision - 1 - emin),
                 std::ldexp(1.5, 53 - precision)};
  const Ball ball{rad, relative, absolute};
  std::memset(flags, 0, n);
  auto* run = rad ? (sure ? blocks<true, true> : blocks<true, false>)
                  : (sure ? blocks<false, true> : blocks<false, false>);
  run(n, y, eager, mid, ball, scale, mask, want, subnormal, f, counts, maxima, flags);
}

namespace {

inline uint64_t mix(uint64_t z) {  // Stafford's variant 13 of the MurmurHash3 finaliser
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

template <typename Bits>
uint64_t sum(int64_t n, const Bits* data, uint64_t infinity, uint64_t canonical, uint64_t start) {
  const uint64_t magnitude = (~uint64_t{0} >> (65 - 8 * sizeof(Bits)));
  uint64_t total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) {
    uint64_t v = data[i];
    v = (v & magnitude) > infinity ? canonical : v;
    total += mix(v ^ (start + static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15u);
  }
  return total;
}

}  // namespace

// Position-dependent hash of n patterns of `bytes` bytes: a sum, so that parts add up.
extern "C" uint64_t digest(int64_t n, const void* data, int bytes, uint64_t infinity, uint64_t canonical,
                           uint64_t start) {
  if (bytes == 2) return sum(n, static_cast<const uint16_t*>(data), infinity, canonical, start);
  if (bytes == 4) return sum(n, static_cast<const uint32_t*>(data), infinity, canonical, start);
  return sum(n, static_cast<const uint64_t*>(data), infinity, canonical, start);
}
