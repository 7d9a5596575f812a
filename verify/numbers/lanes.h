// The operations of verify.numbers.graph on LANES elements at a time, as GNU vectors of the processor's width: of
// wider ones g++ compares and selects element by element. Compile with -ffp-contract=off and without -ffast-math: every
// operation rounds once.

#ifndef ULPROOF_LANES_H
#define ULPROOF_LANES_H

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
enum { LANES = 8 };
#elif defined(__AVX2__)
enum { LANES = 4 };
#else
enum { LANES = 2 };
#endif
enum { TILE = 256, FORMULAS = 64, ALL = (1 << LANES) - 1 };

typedef double D __attribute__((vector_size(8 * LANES)));
typedef int64_t I __attribute__((vector_size(8 * LANES)));  // of a truth value: all bits set, or none
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Words __attribute__((vector_size(4 * LANES)));

// What generated code finds of a tile of elements (verify.judge.element.Judged). A truth value of LANES elements is one
// byte, lowest bit first. What it leaves zero it knows to be so.
struct Tile {
  double error[TILE], upper[TILE], scaled[TILE], share[TILE];
  int64_t steps[TILE];
  uint8_t region[TILE], cls[TILE];
  uint8_t open[TILE / LANES], measured[TILE / LANES], negative[TILE / LANES], unjudged[TILE / LANES];
  uint8_t different[TILE / LANES], closer[TILE / LANES], farther[TILE / LANES];
  // of plain elements, instead of region, cls, measured and steps
  uint8_t nan[TILE / LANES], operand[TILE / LANES], small[TILE / LANES], overflow[TILE / LANES], faithful[TILE / LANES];
  uint8_t mismatches[FORMULAS][TILE / LANES];
};

// Generated: judges `blocks` times LANES elements from number `at` of the columns `in`.
typedef void Judges(const void* const* in, const double* parameters, int64_t at, int64_t blocks, Tile* out);

// IEEE 754's default environment while it lives: a caller may have subnormal numbers flushed.
struct Environment {
  std::fenv_t before;
  Environment() { std::fegetenv(&before); std::fesetenv(FE_DFL_ENV); }
  ~Environment() { std::fesetenv(&before); }
};

// Conversions of four lanes in one instruction, where g++ 12 would make several.
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(__clang__)
inline Floats narrow(D v) { return __builtin_ia32_cvtpd2ps256(v); }
inline D widen(Floats v) { return __builtin_ia32_cvtps2pd256(v); }
inline I widen(Words v) {
  typedef int Four __attribute__((vector_size(16)));
  return reinterpret_cast<I>(__builtin_ia32_pmovsxdq256(reinterpret_cast<Four>(v)));
}
inline Words truncate(D v) { return reinterpret_cast<Words>(__builtin_ia32_cvttpd2dq256(v)); }
#else
inline Floats narrow(D v) { return __builtin_convertvector(v, Floats); }
inline D widen(Floats v) { return __builtin_convertvector(v, D); }
inline I widen(Words v) { return __builtin_convertvector(v, I); }
inline Words truncate(D v) { return __builtin_convertvector(v, Words); }
#endif

inline I bits(D v) { return reinterpret_cast<I>(v); }
inline D frombits(I b) { return reinterpret_cast<D>(b); }
inline D all(double v) { return v - D{}; }
inline I all(int64_t v) { return v - I{}; }
inline D word(int64_t b) { return frombits(all(b)); }
inline D select(I which, D a, D b) { return which ? a : b; }
inline I select(I which, I a, I b) { return which ? a : b; }

inline D absolute(D v) { return frombits(bits(v) & INT64_MAX); }
inline D negative(D v) { return frombits(bits(v) ^ INT64_MIN); }
inline D copysign(D v, D sign) { return frombits((bits(v) & INT64_MAX) | (bits(sign) & INT64_MIN)); }
inline D atleast(D v, D low) { return low > v ? low : v; }
inline D atmost(D v, D high) { return high < v ? high : v; }
inline D maximum(D a, D b) { return a != a ? a : (a > b ? a : b); }
inline D minimum(D a, D b) { return a != a ? a : (a < b ? a : b); }

// 1 / v of a power of two, and of infinity.
inline D reciprocal(D v) {
  const I b = (int64_t{2046} << 52) - bits(v);
  return frombits(b > 0 ? b : all(int64_t{0}));
}

// Division by a number that all elements share: where it is a power of two, zero or infinity, a product has the same
// bits and takes a quarter of the time.
struct Divisor {
  D by, inverse;
  bool exact;
  explicit Divisor(D v) : by(v), inverse(1.0 / v), exact((bits(v)[0] & 0xFFFFFFFFFFFFF) == 0) {}
  D divide(D v) const { return exact ? v * inverse : v / by; }
};

template <double (*function)(double)>
inline D each(D v) {
  D found;
  for (int k = 0; k < LANES; ++k) found[k] = function(v[k]);
  return found;
}
template <double (*function)(double, double)>
inline D each(D v, D w) {
  D found;
  for (int k = 0; k < LANES; ++k) found[k] = function(v[k], w[k]);
  return found;
}
inline D root(D v) {
  D found;
  for (int k = 0; k < LANES; ++k) found[k] = __builtin_sqrt(v[k]);
  return found;
}
inline D floor(D v) { return each<std::floor>(v); }
inline D ceil(D v) { return each<std::ceil>(v); }
inline D trunc(D v) { return each<std::trunc>(v); }
inline D rint(D v) { return each<std::nearbyint>(v); }

// e^v = 2^n e^r with |r| <= ln(2) / 2, by the Taylor polynomial of degree 13, 0.1 units of 2^-53 off at most. n ln(2) is
// subtracted in two parts, of which n times the first is exact, and what r loses is kept; so the roundings of 1 + s and
// of s = r + ... make nearly all of the error, 1.5 units. glibc's vector form has been seen 3 units off, its scalar form
// takes four times as long.
inline D exponential(D v) {
  const I gone = v < -745.2;  // rounds to zero; computed, it would take a processor 150 cycles
  const D x = atmost(select(gone, all(0.0), v), all(710.0));
  const D shifted = x * 0x1.71547652b82fep+0 + 0x1.8p52, n = shifted - 0x1.8p52;
  const D t = x - n * 0x1.62e42fefa3800p-1, c = n * 0x1.ef35793c76730p-45, r = t - c, rest = (t - r) - c;
  const D r2 = r * r, r4 = r2 * r2;
  const D a = (0.5 + r * 0x1.5555555555555p-3) + r2 * (0x1.5555555555555p-5 + r * 0x1.1111111111111p-7);
  const D b = (0x1.6c16c16c16c17p-10 + r * 0x1.a01a01a01a01ap-13) + r2 * (0x1.a01a01a01a01ap-16 + r * 0x1.71de3a556c734p-19);
  const D d = (0x1.27e4fb7789f5cp-22 + r * 0x1.ae64567f544e4p-26) + r2 * (0x1.1eed8eff8d898p-29 + r * 0x1.6124613a86d09p-33);
  const D s = r + (rest + r2 * (a + r4 * (b + r4 * d)));
  const I k = bits(shifted) - bits(all(0x1.8p52)), half = k >> 1;
  const D found = ((1.0 + s) * frombits((half + 1023) << 52)) * frombits((k - half + 1023) << 52);
  return select(gone, all(0.0), found);
}

// g++ makes trunc(v) of value(toint(v)) where the processor converts no vectors, and keeps the sign of a zero in it; the
// sum has none.
inline D value(I v) { return __builtin_convertvector(v, D) + 0.0; }
inline I toint(D v) { return __builtin_convertvector(v, I); }
inline I shl(I v, I by) { return v << by; }
inline I shr(I v, I by) { return v >> by; }
template <int width>
inline I wrap(I v) { return (v << (64 - width)) >> (64 - width); }

// ---- formats narrower than float64. A value of one is kept as a double, its pattern as a sign-extended integer.

inline D round_float32(D v) { return widen(narrow(v)); }

inline D fma_float32(D a, D b, D c) {
  const Floats x = narrow(a), y = narrow(b), z = narrow(c);
#if defined(__FMA__) && !defined(__clang__) && defined(__AVX512F__)
  return widen(__builtin_ia32_vfmaddps256(x, y, z));
#elif defined(__FMA__) && !defined(__clang__) && defined(__AVX2__)
  return widen(__builtin_ia32_vfmaddps(x, y, z));
#else
  Floats found;
  for (int k = 0; k < LANES; ++k) found[k] = __builtin_fmaf(x[k], y[k], z[k]);
  return widen(found);
#endif
}

// RN of a double to mantissa bits and exponents from emin, by adding and subtracting 1.5 * 2^52 quanta.
template <int mantissa, int emin, int emax>
inline D round_half(D v) {
  const double low = __builtin_ldexp(1.0, emin), top = __builtin_ldexp(1.0, emax + 1);
  const D a = absolute(v), within = atmost(atleast(a, all(low)), all(top));
  const D magic = frombits(bits(within) & 0x7FF0000000000000) * __builtin_ldexp(1.5, 52 - mantissa);
  const D rounded = (a + magic) - magic;
  return copysign(rounded >= top ? all(INFINITY) : rounded, v);
}
inline D round_float16(D v) { return round_half<10, -14, 15>(v); }
inline D round_bfloat16(D v) { return round_half<7, -126, 127>(v); }

inline I word_float32(D v) {
  return widen(reinterpret_cast<Words>(narrow(v)));
}
inline I word_bfloat16(D v) { return v != v ? all(int64_t{0x7FC0}) : word_float32(v) >> 16; }
inline I word_float16(D v) {
  const D a = absolute(v);
  const I normal = (bits(a) >> 42) - (int64_t{1008} << 10), subnormal = toint(atmost(a, all(1.0)) * 0x1p24);
  const I size = a >= 0x1p-14 ? (a == INFINITY ? all(int64_t{0x7C00}) : normal) : subnormal;
  return v != v ? all(int64_t{0x7E00}) : size | ((bits(v) >> 63) & ~int64_t{0x7FFF});
}
inline D unword_float32(I b) {
  return widen(reinterpret_cast<Floats>(__builtin_convertvector(b, Words)));
}
inline D unword_bfloat16(I b) { return unword_float32(b << 16); }
inline D unword_float16(I b) {
  const I size = b & 0x7FFF;
  const D scaled = frombits(size << 42) * 0x1p1008;
  const I special = (size << 42) | 0x7FF0000000000000;
  return frombits((size >= 0x7C00 ? special : bits(scaled)) | (b & INT64_MIN));
}

// ---- memory: LANES elements

template <typename To, typename From>
inline To load(const From* from) {
  typedef From Narrow __attribute__((vector_size(LANES * sizeof(From))));
  Narrow v;
  std::memcpy(&v, from, sizeof v);
  return __builtin_convertvector(v, To);
}
template <>
inline D load<D, float>(const float* from) {
  Floats v;
  std::memcpy(&v, from, sizeof v);
  return widen(v);
}
template <>
inline I load<I, int32_t>(const int32_t* from) {
  Words v;
  std::memcpy(&v, from, sizeof v);
  return widen(v);
}
template <typename Element, typename Value>
inline void store(Element* to, Value v) {
  typedef Element Narrow __attribute__((vector_size(LANES * sizeof(Element))));
  const Narrow narrow = __builtin_convertvector(v, Narrow);
  std::memcpy(to, &narrow, sizeof narrow);
}
// One bit of each lane.
inline uint8_t byte(I which) {
#if defined(__AVX512DQ__) && defined(__AVX512F__)
  return static_cast<uint8_t>(__builtin_ia32_cvtq2mask512(reinterpret_cast<long long __attribute__((vector_size(64)))>(which)));
#elif defined(__AVX2__) && !defined(__AVX512F__)
  return static_cast<uint8_t>(__builtin_ia32_movmskpd256(frombits(which)));
#else
  int64_t found = 0;
  for (int k = 0; k < LANES; ++k) found |= which[k] & (1 << k);
  return static_cast<uint8_t>(found);
#endif
}
inline I truth(uint8_t byte) {
  I bit;
  for (int k = 0; k < LANES; ++k) bit[k] = 1 << k;
  return (all(int64_t{byte}) & bit) != 0;
}

#endif
