// The decision of `verify.decide` for one row of elements, compiled for the host, and digests.
//
// The tensor version in verify/decide.py is the definition; a test holds the two equal bit for bit. No branches on
// elements, no fused multiply-add (-ffp-contract=off). Values of every format up to float32 are exact in double.

#include <cmath>
#include <cstdint>
#include <cstring>

// Order of the integer results; verify/decide.py names them in the same order.
enum { CORRECT, FAITHFUL, WORSE, FLUSHED, NAN_MISMATCH, INF_MISMATCH, ZERO_SIGN, UNSETTLED,
       MEASURED, CLAMPED, SUM, SUM_SIGNED, MAX_INT, DIFFERENT, CLOSER, FARTHER, TIED, HISTOGRAM };

namespace {

constexpr double kClampUlp = 1024.0;      // errors are clamped here (2^10 ULP)
constexpr double kQuantum = 65536.0;      // and summed in units of 2^-16 ULP
constexpr int64_t kBlock = 4096;          // elements for which the common case is tried
constexpr int kBins = 12;                 // <= 2^-1, 1, 2, ..., 2^10 ULP
constexpr int kWidth = HISTOGRAM + kBins;
constexpr double kNegligible = 0x1p-20;   // ULP: too small to matter in which of two binades it is counted
constexpr double kUp = 1.0 + 0x1p-45;     // covers the roundings of an error estimate
constexpr double kMargin = 0x1p-20;       // ULP: closer calls leave the common case
constexpr double kFlush = 4.0;            // scaled ULP: the least error called a flush
constexpr double kTiny = 0x1p-1000;       // stands for a real number whose sign alone is known

// ---- numbers: GNU vectors of the processor's width, since compilers leave a loop with so many conditions scalar

#if defined(__AVX512F__)
constexpr int64_t kLanes = 8;
#elif defined(__AVX__)
constexpr int64_t kLanes = 4;
#else
constexpr int64_t kLanes = 2;
#endif

typedef double Doubles __attribute__((vector_size(8 * kLanes)));
typedef int64_t Lanes __attribute__((vector_size(8 * kLanes)));  // of a condition: all bits set, or none

inline Lanes bits(Doubles v) { return reinterpret_cast<Lanes>(v); }
inline Doubles from_bits(Lanes b) { return reinterpret_cast<Doubles>(b); }
inline int64_t bits(double v) { int64_t b; std::memcpy(&b, &v, 8); return b; }
inline Doubles all(double v) { return v - Doubles{}; }
inline Lanes select(Lanes which, Lanes a, Lanes b) { return which ? a : b; }
inline Doubles select(Lanes which, Doubles a, Doubles b) { return which ? a : b; }

// minpd and maxpd: the second operand where either is NaN.
inline Doubles lesser(Doubles a, Doubles b) { return a < b ? a : b; }
inline Doubles greater(Doubles a, Doubles b) { return a > b ? a : b; }
inline double greater(double a, double b) { return a > b ? a : b; }
// [-limit, limit]; NaN stays NaN.
inline Doubles clamp(Doubles v, double limit) { return greater(all(-limit), lesser(all(limit), v)); }
inline Doubles magnitude(Doubles v) { return from_bits(bits(v) & INT64_MAX); }
inline Doubles copysign(Doubles v, Doubles sign) { return from_bits((bits(v) & INT64_MAX) | (bits(sign) & INT64_MIN)); }
inline Lanes opposite(Doubles a, Doubles b) { return (bits(a) ^ bits(b)) < 0; }  // in sign

struct Format {
  int64_t mantissa;   // trailing significand bits
  double top;         // 2^(emax+1): where infinity is measured
  double floor_ulp;   // 2^(emin - precision + 1), the smallest subnormal
  double normal;      // 2^emin
  double to_ulp;      // 2^(precision-1)
  double per_floor;   // 1 / floor_ulp
  double magic;       // 1.5 * 2^52 quanta of a number in [1, 2)

  Format(int precision, int emin, int emax)
      : mantissa(precision - 1), top(std::ldexp(1.0, emax + 1)), floor_ulp(std::ldexp(1.0, emin - precision + 1)),
        normal(std::ldexp(1.0, emin)), to_ulp(std::ldexp(1.0, precision - 1)),
        per_floor(std::ldexp(1.0, precision - 1 - emin)), magic(std::ldexp(1.5, 53 - precision)) {}
};

// 2^e of the binade that an ULP is taken in: e = clamp(floor(log2|v|), emin, emax).
inline Doubles binade(Doubles v, const Format& f) {
  Doubles a = lesser(all(f.top * 0.5), greater(all(f.normal), magnitude(v)));
  return from_bits(bits(a) & 0x7FF0000000000000);
}

// 1 / ulp in the lower of two binades.
inline Doubles per_ulp(Doubles a, Doubles b, const Format& f) {
  return from_bits((int64_t{2046} << 52) - bits(lesser(a, b))) * f.to_ulp;
}

// RN to the format: add and subtract 1.5 * 2^52 quanta (ties to even; exact for |v| < 2^1000).
inline Doubles nearest(Doubles v, const Format& f) {
  Doubles a = lesser(magnitude(v), all(f.top));
  Doubles magic = from_bits(bits(greater(a, all(f.normal))) & 0x7FF0000000000000) * f.magic;
  return copysign((a + magic) - magic, v);
}

// Position on the number line of a representable value (infinity as 2^(emax+1)).
inline Lanes ordinal(Doubles v, const Format& f) {
  typedef uint64_t Words __attribute__((vector_size(8 * kLanes)));
  Doubles a = magnitude(v);
  Words above = reinterpret_cast<Words>(bits(a) - bits(f.normal)) >> (52 - f.mantissa);  // of normal numbers
  Lanes normal = reinterpret_cast<Lanes>(above) + (int64_t{1} << f.mantissa);
  Lanes subnormal = __builtin_convertvector(lesser(a, all(f.normal)) * f.per_floor, Lanes);
  Lanes n = select(a >= f.normal, normal, subnormal);
  return select(v < 0, -n, n);
}

// What is decided. Null: no eager, no scale, all elements, no subnormal inputs. rad: null (relative |mid| + absolute),
// 0 or at least 2^-52 |mid|, so that mid -+ rad rounds outward.
struct Elements {
  const float* y;
  const float* eager;
  const double* mid;
  const double* rad;
  double relative, absolute;
  const double* scale;
  const uint8_t* mask;
  const uint8_t* subnormal;

  Elements from(int64_t i) const {
    return {y + i, eager ? eager + i : eager, mid + i, rad ? rad + i : rad, relative, absolute,
            scale ? scale + i : scale, mask ? mask + i : mask, subnormal ? subnormal + i : subnormal};
  }
};

// As many numbers as there are lanes, widened.
template <typename To, typename From>
inline To load(const From* from) {
  typedef From Narrow __attribute__((vector_size(kLanes * sizeof(From))));
  Narrow v;
  std::memcpy(&v, from, sizeof v);
  return __builtin_convertvector(v, To);
}

// Beyond 2^(emax+2) a radius of at most a quarter of the midpoint changes no decision: it is 0.
inline Doubles radius(const Elements& e, Doubles given, const Format& f) {
  if (!e.rad) return magnitude(clamp(given, 2 * f.top)) * e.relative + e.absolute;
  Doubles r = load<Doubles>(e.rad), m = magnitude(given);
  return select((m >= 2 * f.top) & (r <= m / 4) & (r < INFINITY), all(0.0), r);
}

// The ends of m -+ r, or with kSure of |m| -+ r (above zero) with the sign of m.
template <bool kSure>
inline Doubles inner(Doubles m, Doubles r) {
  if (!kSure) return m - r;
  return copysign(greater(magnitude(m) - r, select(r > 0, all(kTiny), all(0.0))), m);
}

template <bool kSure>
inline Doubles outer(Doubles m, Doubles r) {
  return kSure ? copysign(magnitude(m) + r, m) : m + r;
}

// ---- decisions

// The results of each lane.
struct Counters {
  Lanes of[kWidth] = {};
  Doubles max_ulp = {}, max_scaled = {}, max_int = {};

  void add(int which, Lanes condition) { of[which] -= condition; }

  void into(int64_t* counts, double* maxima) const {
    for (int64_t k = 0; k < kLanes; ++k) {
      for (int which = 0; which < kWidth; ++which) counts[which] += of[which][k];
      maxima[0] = greater(maxima[0], max_ulp[k]);
      maxima[1] = greater(maxima[1], max_scaled[k]);
      counts[MAX_INT] = static_cast<int64_t>(greater(static_cast<double>(counts[MAX_INT]), max_int[k]));
    }
  }
};

// A block in which every element is correct or faithful, equal to eager and no closer call than kMargin: the common
// case. No rounding is needed there: y = RN(t) where it is within half an ULP of t, and the other neighbour of t where
// it is within one and lies in the closed binade of t. The margin covers the roundings of mid -+ rad.
// Returns false, having added nothing, for any other. n: a multiple of kLanes.
bool plain(const Elements& e, int64_t n, const Format& f, int64_t* counts, double* maxima) {
  Lanes correct{}, faithful{}, sum{}, sum_signed{};
  Doubles max_ulp{};
  for (int64_t i = 0; i < n; i += kLanes) {
    const Elements at = e.from(i);
    const Doubles y = load<Doubles>(at.y), m = load<Doubles>(at.mid), size = magnitude(m), r = radius(at, m, f);
    const Doubles lo = binade(size - r, f), hi = binade(size + r, f), inverse = per_ulp(lo, lo, f);
    const Doubles signed_error = (y - m) * inverse, error = magnitude(signed_error), spread = r * inverse;
    const Doubles reach = error + spread, top = reach * kUp;
    // an infinite y is infinitely far from m here, and a finite one an ULP at least from m >= 2^(emax+1)
    const Lanes fine = ((r < size) | (r == 0)) & ~opposite(y, m) & ((lo == hi) | (reach < kNegligible));
    const Doubles least = select(lo == f.normal, all(f.floor_ulp), lo);
    correct -= fine & (top < 0.5 - kMargin);
    faithful -= fine & (error - spread > 0.5 + kMargin) & (top < 1 - kMargin) & (magnitude(y) >= least);
    const Lanes q = __builtin_convertvector(error * kQuantum + 0.5, Lanes);
    sum += q;
    sum_signed += select(signed_error < 0, -q, q);
    max_ulp = greater(top, max_ulp);
  }
  if (e.eager && std::memcmp(e.eager, e.y, n * sizeof(float))) return false;
  int64_t total = 0;
  for (int64_t k = 0; k < kLanes; ++k) total += correct[k] + faithful[k];
  if (total != n) return false;
  Counters c;
  c.of[CORRECT] = correct; c.of[FAITHFUL] = faithful; c.of[SUM] = sum; c.of[SUM_SIGNED] = sum_signed;
  c.of[HISTOGRAM] = correct;
  c.of[MEASURED][0] = n;
  for (int k = 1; k < kBins; ++k) c.of[HISTOGRAM + k][0] = n;
  c.max_ulp = c.max_scaled = max_ulp;
  c.max_int = select(faithful != 0, all(1.0), all(0.0));
  c.into(counts, maxima);
  return true;
}

// Any elements, one in each lane: adds to `c`, returns those left open. in: elements to look at.
template <bool kSure, bool kScale>
inline Lanes decide_lanes(Doubles yv, Doubles ev, Doubles given, Doubles r, Doubles scale, Lanes in, Lanes sub,
                          const Format& f, Counters& c) {
  const Doubles m = clamp(given, 2 * f.top);
  const Doubles lo = inner<kSure>(m, r), hi = outer<kSure>(m, r);
  const Doubles nlo = nearest(lo, f), nhi = nearest(hi, f);
  const Doubles t = clamp(m, f.top), yc = clamp(yv, f.top);
  const Doubles blo = binade(lo, f), bhi = binade(hi, f), inverse = per_ulp(blo, bhi, f);
  const Doubles signed_error = (yc - t) * inverse, error = magnitude(signed_error), spread = r * inverse;
  const Lanes exact = r == 0, ynan = yv != yv, nan = (m != m) & exact;
  const Lanes zero_split = (nlo == 0) & ~exact & ((lo < 0) ^ (hi < 0));
  const Lanes one_binade = (blo == bhi) | (error + spread < kNegligible);
  const Lanes agree = (m == m) & (r >= 0) & (nlo == nhi) & one_binade & ~zero_split;
  const Lanes d = ordinal(yc, f) - ordinal(nlo, f);
  const Lanes same = d == 0, up = d == 1, down = d == -1, near = up | down;
  const Lanes above = (lo > nlo) & (hi > nlo), below = (lo < nlo) & (hi < nlo);
  const Lanes side_unknown = near & ~exact & ~above & ~below;
  const Lanes infinite_miss = (magnitude(given) == INFINITY) & ~same;  // infinity or a real overflow: mp tells
  Lanes settled = in & (nan | (ynan & agree) | (agree & ~side_unknown & ~infinite_miss));
  Lanes number = settled & ~nan & ~ynan;
  const Lanes wrong_zero = number & (yv == 0) & opposite(yv, m) & (same | (near & (m != 0)));
  // a zero left by cancellation has the sign of an exact zero, whatever the sign of t
  const Lanes cancelled = kScale ? wrong_zero & (m != 0) : Lanes{};
  const Lanes sign_miss = wrong_zero & ~cancelled;
  const Lanes hit = number & same;
  const Lanes faith = number & ~sign_miss & ((above & up) | (below & down) | cancelled);
  Lanes rest = number & ~hit & ~faith & ~sign_miss;
  const Lanes odd = sub & (rest | (settled & (nan ^ ynan)));  // perhaps a flushed input: decided apart
  rest &= ~odd;
  const Lanes inf_miss = rest & ((magnitude(nlo) == f.top) ^ (magnitude(yc) == f.top));
  const Doubles distance = (error + spread) / inverse;
  const Doubles weight = kScale ? f.to_ulp / binade(scale, f) : inverse;
  // a zero left by cancellation is no flush: it is wrong by more than rounding could be
  const Doubles slack = select(exact, all(1.0), all(kUp));
  const Lanes lost = rest & ~inf_miss & (yv == 0) & (magnitude(nlo) <= f.normal) & (distance * weight * slack >= kFlush);
  const Lanes flush = lost & ((error - spread) / inverse * weight >= kFlush * slack);
  const Lanes gone = odd | (lost & ~flush);
  rest &= ~gone;
  settled &= ~gone;
  number &= ~gone;
  const Doubles other = magnitude(clamp(ev, f.top) - t) * inverse;
  const Lanes enan = ev != ev;
  const Lanes diff = in & ~(((ev == yv) & ~opposite(ev, yv)) | (enan & ynan));
  const Lanes measurable = diff & number & ~enan & (yv != ev);
  // float64 tells exact errors apart up to 8 ULP, where y - t is exact (Sterbenz)
  const Doubles blur = error * 0x1p-50 + select(exact, all(0.0), all(0x1p-30));
  const Lanes tie = measurable & (magnitude(error - other) <= 2 * spread * kUp + blur) & ~(exact & (error <= 8));
  const Lanes open = (in & ~settled) | tie;
  settled &= ~tie;
  number &= ~tie;
  // whoever has the NaN where it is due, or has not, is closer
  const Lanes one_nan = diff & (ynan ^ enan), amiss = nan ^ ynan;
  const Lanes wins = settled & ((measurable & (error < other)) | (one_nan & ~amiss));
  const Lanes loses = settled & ((measurable & (error > other)) | (one_nan & amiss));
  const Lanes counted = number & ~flush;  // a flush is a class of its own: its error is in no maximum and no sum
  const Lanes decided = diff & settled;
  c.add(CORRECT, settled & ((nan & ynan) | (hit & ~wrong_zero)));
  c.add(FAITHFUL, settled & faith);
  c.add(WORSE, settled & rest & ~inf_miss & ~flush);
  c.add(FLUSHED, settled & flush);
  c.add(NAN_MISMATCH, settled & (nan ^ ynan));
  c.add(INF_MISMATCH, settled & inf_miss);
  c.add(ZERO_SIGN, settled & sign_miss);
  c.add(UNSETTLED, open);
  c.add(MEASURED, counted);
  c.add(CLAMPED, counted & (error > kClampUlp));
  const Doubles quanta = select(counted, lesser(error, all(kClampUlp)) * kQuantum + 0.5, all(0.0));
  const Lanes q = __builtin_convertvector(quanta, Lanes);
  c.of[SUM] += q;
  c.of[SUM_SIGNED] += select(signed_error < 0, -q, q);
  c.add(DIFFERENT, decided);
  c.add(CLOSER, wins);
  c.add(FARTHER, loses);
  c.add(TIED, decided & ~wins & ~loses);
  for (int k = 0; k < kBins; ++k) c.add(HISTOGRAM + k, counted & (error <= 0.5 * (1 << k)));
  const Doubles top = select(counted, (error + spread) * kUp, all(0.0));
  c.max_ulp = greater(c.max_ulp, top);
  c.max_scaled = greater(c.max_scaled, kScale ? select(counted, distance * weight * kUp, all(0.0)) : top);
  c.max_int = greater(c.max_int, select(counted, magnitude(__builtin_convertvector(d, Doubles)), all(0.0)));
  return open;
}

// n: a multiple of kLanes.
template <bool kSure, bool kScale>
void full(const Elements& e, int64_t n, const Format& f, int64_t* counts, double* maxima, uint8_t* flags) {
  typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
  Counters c;
  for (int64_t i = 0; i < n; i += kLanes) {
    const Elements at = e.from(i);
    const Doubles given = load<Doubles>(at.mid), yv = load<Doubles>(at.y);
    const Doubles ev = at.eager ? load<Doubles>(at.eager) : yv;
    const Lanes in = at.mask ? load<Lanes>(at.mask) != 0 : ~Lanes{};
    const Lanes sub = at.subnormal ? load<Lanes>(at.subnormal) != 0 : Lanes{};
    const Doubles scale = kScale ? load<Doubles>(at.scale) : Doubles{};
    const Lanes open = decide_lanes<kSure, kScale>(yv, ev, given, radius(at, given, f), scale, in, sub, f, c);
    const Bytes left = __builtin_convertvector(open & 1, Bytes);
    std::memcpy(flags + i, &left, sizeof left);
  }
  c.into(counts, maxima);
}

// Fewer elements than lanes: the other lanes are masked.
template <bool kSure, bool kScale>
void rest(const Elements& e, int64_t n, const Format& f, int64_t* counts, double* maxima, uint8_t* flags) {
  float y[kLanes] = {}, eager[kLanes] = {};
  double mid[kLanes] = {}, rad[kLanes] = {}, scale[kLanes] = {};
  uint8_t mask[kLanes] = {}, subnormal[kLanes] = {}, left[kLanes];
  for (int64_t i = 0; i < n; ++i) {
    y[i] = e.y[i];
    eager[i] = e.eager ? e.eager[i] : e.y[i];
    mid[i] = e.mid[i];
    rad[i] = e.rad ? e.rad[i] : 0;
    scale[i] = e.scale ? e.scale[i] : 0;
    mask[i] = e.mask ? e.mask[i] : 1;
    subnormal[i] = e.subnormal ? e.subnormal[i] : 0;
  }
  const Elements padded{y, eager, mid, e.rad ? rad : nullptr, e.relative, e.absolute, e.scale ? scale : nullptr, mask,
                        subnormal};
  full<kSure, kScale>(padded, kLanes, f, counts, maxima, left);
  std::memcpy(flags, left, n);
}

template <bool kSure>
void block(const Elements& e, int64_t n, const Format& f, int64_t* counts, double* maxima, uint8_t* flags) {
  const int64_t whole = n - n % kLanes;
  if (!e.scale && !e.mask && plain(e, whole, f, counts, maxima)) std::memset(flags, 0, whole);
  else (e.scale ? full<kSure, true> : full<kSure, false>)(e, whole, f, counts, maxima, flags);
  if (whole < n)
    (e.scale ? rest<kSure, true> : rest<kSure, false>)(e.from(whole), n - whole, f, counts, maxima, flags + whole);
}

inline bool uniform(const float* v, int64_t n) { return !v || !std::memcmp(v, v + 1, (n - 1) * sizeof(float)); }

// One midpoint, and radius, for all elements: a block of equal results is n times one of them.
template <bool kSure>
void constant(const Elements& e, int64_t n, const Format& f, int64_t* counts, double* maxima, uint8_t* flags) {
  double mid[kBlock], rad[kBlock];
  for (int64_t i = 0; i < kBlock; ++i) mid[i] = *e.mid;
  for (int64_t i = 0; e.rad && i < kBlock; ++i) rad[i] = *e.rad;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t size = n - i < kBlock ? n - i : kBlock;
    Elements at = e.from(i);
    at.mid = mid;
    at.rad = e.rad ? rad : nullptr;
    if (!e.scale && !e.mask && !e.subnormal && uniform(at.y, size) && uniform(at.eager, size)) {
      int64_t once[kWidth] = {};
      rest<kSure, false>(at, 1, f, once, maxima, flags + i);
      std::memset(flags + i, flags[i], size);
      for (int which = 0; which < kWidth; ++which) counts[which] += which == MAX_INT ? 0 : once[which] * size;
      counts[MAX_INT] = once[MAX_INT] > counts[MAX_INT] ? once[MAX_INT] : counts[MAX_INT];
    } else {
      block<kSure>(at, size, f, counts, maxima, flags + i);
    }
  }
}

template <bool kSure>
void varying(const Elements& e, int64_t n, const Format& f, int64_t* counts, double* maxima, uint8_t* flags) {
  for (int64_t i = 0; i < n; i += kBlock)
    block<kSure>(e.from(i), n - i < kBlock ? n - i : kBlock, f, counts, maxima, flags + i);
}

}  // namespace

// Counts, sums and maxima of n elements, added to `counts` and `maxima`; open elements in `flags`. See `Elements` and
// verify/decide.py for the meaning of the arguments. sure: t has the sign of mid even where mid -+ rad straddles zero.
// one_mid: mid, and rad unless null, point to one number that all elements share.
extern "C" void decide(int64_t n, const float* y, const float* eager, const double* mid, const double* rad,
                       double relative, double absolute, const double* scale, const uint8_t* mask,
                       const uint8_t* subnormal, int sure, int one_mid, int precision, int emin, int emax,
                       int64_t* counts, double* maxima, uint8_t* flags) {
  const Elements e{y, eager, mid, rad, relative, absolute, scale, mask, subnormal};
  auto* run = one_mid ? (sure ? constant<true> : constant<false>) : (sure ? varying<true> : varying<false>);
  run(e, n, Format(precision, emin, emax), counts, maxima, flags);
}

// Indices of the elements whose error may exceed `floor` (ULPs), the first `room` of them in `found`; returns how many.
extern "C" int64_t exceeding(int64_t n, const float* y, const double* mid, const double* rad, double relative,
                             double absolute, int sure, int precision, int emin, int emax, double floor, int64_t room,
                             int64_t* found) {
  const Format f(precision, emin, emax);
  int64_t count = 0;
  const auto hits = [&](const Elements& e) {
    const Doubles given = load<Doubles>(e.mid), m = clamp(given, 2 * f.top), r = radius(e, given, f);
    const Doubles lo = sure ? inner<true>(m, r) : inner<false>(m, r), hi = sure ? outer<true>(m, r) : outer<false>(m, r);
    const Doubles inverse = per_ulp(binade(lo, f), binade(hi, f), f);
    const Doubles error = magnitude(clamp(load<Doubles>(e.y), f.top) - clamp(m, f.top)) * inverse;
    return (error + r * inverse) * kUp > floor;
  };
  const auto keep = [&](Lanes which, int64_t i, int64_t size) {
    for (int64_t k = 0; k < size; ++k)
      if (which[k] && ++count <= room) found[count - 1] = i + k;
  };
  const Elements e{y, nullptr, mid, rad, relative, absolute, nullptr, nullptr, nullptr};
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Lanes which = hits(e.from(i));
    int64_t any = 0;
    for (int64_t k = 0; k < kLanes; ++k) any |= which[k];
    if (any) keep(which, i, kLanes);
  }
  if (whole < n) {
    float ys[kLanes] = {};
    double mids[kLanes] = {}, rads[kLanes] = {};
    std::memcpy(ys, y + whole, (n - whole) * sizeof(float));
    std::memcpy(mids, mid + whole, (n - whole) * sizeof(double));
    if (rad) std::memcpy(rads, rad + whole, (n - whole) * sizeof(double));
    keep(hits({ys, nullptr, mids, rad ? rads : nullptr, relative, absolute, nullptr, nullptr, nullptr}), whole, n - whole);
  }
  return count;
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
