// Integer functions of whole tensors, compiled for the host: digests of bit patterns, which `verify.numbers.decide.digest_tensors`
// defines, random words, which `verify.inputs.draws.Draw.word` does, and the sums of products of `verify.numbers.units`.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

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

inline uint32_t mix32(uint32_t word) {  // lowbias32, see verify.inputs.draws.mix
  word = (word ^ (word >> 16)) * 0x7FEB352Du;
  word = (word ^ (word >> 15)) * 0x846CA68Bu;
  return word ^ (word >> 16);
}

}  // namespace

// Words in [0, 2^32) for n positions below 2^32.
extern "C" void words(int64_t n, const int64_t* index, uint32_t first, uint32_t second, int64_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = mix32(mix32(static_cast<uint32_t>(index[i]) ^ first) ^ second);
}

// Position-dependent hash of n patterns of `bytes` bytes: a sum, so that parts add up.
extern "C" uint64_t digest(int64_t n, const void* data, int bytes, uint64_t infinity, uint64_t canonical,
                           uint64_t start) {
  if (bytes == 2) return sum(n, static_cast<const uint16_t*>(data), infinity, canonical, start);
  if (bytes == 4) return sum(n, static_cast<const uint32_t*>(data), infinity, canonical, start);
  return sum(n, static_cast<const uint64_t*>(data), infinity, canonical, start);
}

namespace {

template <typename Bits>
void count(int64_t n, uint64_t start, int shift, Bits* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Bits>((start + static_cast<uint64_t>(i)) >> shift);
}

template <typename Bits>
bool counts(int64_t n, uint64_t start, int shift, const Bits* data) {
  Bits differs = 0;
  for (int64_t i = 0; i < n; ++i) differs |= data[i] ^ static_cast<Bits>((start + static_cast<uint64_t>(i)) >> shift);
  return differs == 0;
}

template <typename Bits>
bool equal(int64_t n, Bits value, const Bits* data) {
  Bits differs = 0;
  for (int64_t i = 0; i < n; ++i) differs |= data[i] ^ value;
  return differs == 0;
}

}  // namespace

// The words of `bytes` bytes that (start + i) >> shift has, for i = 0 to n - 1; whether data holds them.
extern "C" void in_order(int64_t n, int bytes, uint64_t start, int shift, void* out) {
  bytes == 2 ? count(n, start, shift, static_cast<uint16_t*>(out)) : count(n, start, shift, static_cast<uint32_t*>(out));
}

extern "C" int is_in_order(int64_t n, int bytes, uint64_t start, int shift, const void* data) {
  return bytes == 2 ? counts(n, start, shift, static_cast<const uint16_t*>(data))
                    : counts(n, start, shift, static_cast<const uint32_t*>(data));
}

// Whether n words are all the same one.
extern "C" int is_constant(int64_t n, int bytes, uint32_t value, const void* data) {
  return bytes == 2 ? equal(n, static_cast<uint16_t>(value), static_cast<const uint16_t*>(data))
                    : equal(n, value, static_cast<const uint32_t*>(data));
}

// Sums of products, as the rules of verify.numbers.units have them: a (m, k), b (k, n), c and out (m, n), row by row.
namespace {

template <typename Real>
inline Real flushed(Real t, bool flush) {
  return flush && std::fabs(t) < Real(0x1p-126) ? t * 0 : t;
}

template <typename Real>
void chain(int64_t m, int64_t n, int64_t k, const Real* a, const Real* b, Real* c, bool flush) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p) {
      Real* row = c + i * n;
      const Real x = a[i * k + p];
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) row[j] = flushed(std::fma(x, b[p * n + j], row[j]), flush);
    }
}

}  // namespace

extern "C" void chain64(int64_t m, int64_t n, int64_t k, const double* a, const double* b, double* c) {
  chain(m, n, k, a, b, c, false);
}

extern "C" void chain32(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  chain(m, n, k, a, b, c, false);
}

// As chain32, but products are rounded before they are added.
extern "C" void apart32(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p) {
      float* row = c + i * n;
      const float x = a[i * k + p];
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) row[j] += x * b[p * n + j];
    }
}

// As chain32; subnormal numbers are flushed.
extern "C" void dots32(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  for (int64_t j = 0; j < m * n; ++j) c[j] = flushed(c[j], true);
  chain(m, n, k, a, b, c, true);
}

// Even and odd terms of a block of `terms`, from 0 each; their sum is added to c. Subnormal numbers are flushed.
extern "C" void pairs32(int64_t m, int64_t n, int64_t k, int64_t terms, const float* a, const float* b, float* c) {
  std::vector<float> sums(2 * n);
  for (int64_t i = 0; i < m; ++i) {
    float* row = c + i * n;
    for (int64_t start = 0; start < k; start += terms) {
      const int64_t stop = std::min(k, start + terms);
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t p = start; p < stop; ++p) {
        float* sum = sums.data() + ((p - start) % 2) * n;
        const float x = a[i * k + p];
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) sum[j] = flushed(std::fma(x, b[p * n + j], sum[j]), true);
      }
      for (int64_t j = 0; j < n; ++j)
        row[j] = flushed(flushed(row[j], true) + flushed(sums[j] + sums[n + j], true), true);
    }
  }
}

namespace {

const int32_t kNothing = -8192;  // the exponent of a zero

// floor(log2|t|), at least `least`; of a zero kNothing.
inline int32_t exponent(double t, int32_t least) {
  int64_t bits;
  std::memcpy(&bits, &t, sizeof bits);
  return t == 0 ? kNothing : std::max(static_cast<int32_t>((bits >> 52) & 0x7FF) - 1023, least);
}

inline double power_of_two(int32_t e) {
  const int64_t bits = static_cast<int64_t>(e + 1023) << 52;
  double t;
  std::memcpy(&t, &bits, sizeof t);
  return t;
}

// Towards zero to `kept` fraction bits of float32.
inline double cut(double t, int32_t kept) {
  int64_t bits;
  std::memcpy(&bits, &t, sizeof bits);
  bits &= -(int64_t{1} << (52 - kept));
  double found;
  std::memcpy(&found, &bits, sizeof found);
  const double least = power_of_two(-126 - kept), size = std::fabs(t);
  found = size < 0x1p-126 ? std::trunc(t / least) * least : found;
  return size >= 0x1p128 ? std::copysign(HUGE_VAL, t) : found;
}

// To nearest even in float16.
inline double halved(double t) {
  const double least = power_of_two(std::max(exponent(t, -14), -14) - 10), found = std::nearbyint(t / least) * least;
  return std::fabs(found) >= 65520 ? std::copysign(HUGE_VAL, t) : found;
}

}  // namespace

// Blocks by the rule `aligned`, in float64; ends: where each block ends; emin: the least exponent of an operand; half:
// results in float16; separate: see verify.numbers.units, of which ends are multiples or k.
// 0 where an operand is not finite, and c as it was.
extern "C" int32_t aligned(int64_t m, int64_t n, int64_t k, int64_t separate, int64_t fraction, int64_t kept,
                           int64_t least, int64_t emin, int64_t half, const int64_t* ends, const double* a,
                           const double* b, double* c) {
  std::vector<int32_t> ea(m * k), eb(k * n), top(n);
  std::vector<double> up(n), sum(n), before(n);
  for (int64_t j = 0; j < m * k; ++j) ea[j] = exponent(a[j], emin);
  for (int64_t j = 0; j < k * n; ++j) eb[j] = exponent(b[j], emin);
  int32_t most = 0;
  for (const int32_t e : ea) most = std::max(most, e);
  for (const int32_t e : eb) most = std::max(most, e);
  if (most == 1024) return 0;
  for (int64_t i = 0; i < m; ++i) {
    double* row = c + i * n;
    for (int64_t start = 0, block = 0, stop; start < k; start = stop, ++block) {
      stop = ends[block];
      if (separate && start % separate == 0) {
        std::copy(row, row + n, before.begin());
        std::fill(row, row + n, 0.0);
      }
      for (int64_t j = 0; j < n; ++j)
        top[j] = std::isfinite(row[j]) ? std::max<int32_t>(exponent(row[j], -126), least) : least;
      for (int64_t p = start; p < stop; ++p) {
        const int32_t e = ea[i * k + p];
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) top[j] = std::max(top[j], e + eb[p * n + j]);
      }
      for (int64_t j = 0; j < n; ++j) {
        up[j] = power_of_two(fraction - top[j]);
        sum[j] = std::trunc(row[j] * up[j]);
      }
      for (int64_t p = start; p < stop; ++p) {
        const double x = a[i * k + p];
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) sum[j] += std::trunc(x * b[p * n + j] * up[j]);
      }
      for (int64_t j = 0; j < n; ++j) {
        const double t = sum[j] * power_of_two(top[j] - fraction);
        row[j] = (half ? halved(t) : cut(t, kept)) + 0.0;
      }
      if (separate && (stop % separate == 0 || stop == k))
        for (int64_t j = 0; j < n; ++j)
          row[j] = half ? halved(before[j] + row[j]) : static_cast<float>(before[j] + row[j]);
    }
  }
  return 1;
}
