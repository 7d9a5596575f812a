// Integer functions of whole tensors, compiled for the host: digests of bit patterns, which `verify.decide.digest_tensors`
// defines, and random words, which `verify.draws.Draw.word` does.

#include <cstdint>

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

inline uint32_t mix32(uint32_t word) {  // lowbias32, see verify.draws.mix
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
