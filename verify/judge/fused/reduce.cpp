// The reduction of verify.judge.reduce over what generated code finds of tiles of elements. Most blocks of eight are
// common: one region, settled and measured, correct or faithful. They are added up in lanes, the others one by one.

#include "lanes.h"

namespace {

enum { REGIONS = 7, SPECIAL = 0, NORMAL = 6, CLASSES = 7, BINS = 12, LEADERS = 2 * LANES, METRICS = 3, EXPONENTS = 2048 };
// Order of the counts, as in verify.judge.reduce.COUNTED.
enum { MEASURED = CLASSES, CLAMPED, SUM, SUM_SIGNED, DIFFERENT, CLOSER, FARTHER, TIED, UNJUDGED, COUNTS };

constexpr double kClamp = 1024.0;     // ULP: errors are clamped here
constexpr double kQuantum = 65536.0;  // and added up in units of 2^-16 ULP

struct Leader {
  double value;
  int64_t index;
};

struct Region {
  int64_t counts[COUNTS];
  int64_t histogram[BINS];  // errors up to 2^-1, 1, ..., 2^10 ULP
  int64_t steps;
  int64_t held[METRICS];
  Leader leaders[METRICS][LEADERS];  // the largest first
};

struct Binade {
  int64_t measured, misrounded, maximum, sum, sum_signed;
};

}  // namespace

// What is found of a range of elements; verify/judge/fused/cpp.py reads it as a numpy record. Zeros at first.
struct Found {
  Region regions[REGIONS];
  Binade binades[EXPONENTS];
  int64_t formulas[FORMULAS][2];  // mismatches, index of the first one
  int64_t open;                   // how many of `Task.open` are set
};

// What is judged: `columns` pointers to the inputs, the outputs and eager's outputs, with their bytes an element.
struct Task {
  Judges* judge;
  Judges* formulas;
  JudgesPlain* const* plain;  // for each region, or null
  const void* const* in;
  const int64_t* bytes;
  int64_t columns;
  const double* parameters;
  int64_t begin, end, count;      // count: of formulas
  int64_t metrics;                // bits: which of ulp, scaled and share are told apart
  int64_t* open;
  Found* found;
};

namespace {

inline int64_t quantum(double error) {
  return static_cast<int64_t>((error < kClamp ? error : kClamp) * kQuantum + 0.5);
}

inline int64_t total(I v) {
  int64_t sum = 0;
  for (int k = 0; k < LANES; ++k) sum += v[k];
  return sum;
}

inline int64_t largest(I v) {
  int64_t top = v[0];
  for (int k = 1; k < LANES; ++k) top = v[k] > top ? v[k] : top;
  return top;
}

// Elements arrive in ascending order, so that of equal values the one that is held stays before.
void lead(Region& r, int metric, double value, int64_t index) {
  Leader* held = r.leaders[metric];
  int64_t& count = r.held[metric];
  if (count == LEADERS && !(value > held[LEADERS - 1].value)) return;
  int64_t place = count < LEADERS ? count++ : LEADERS - 1;
  for (; place > 0 && held[place - 1].value < value; --place) held[place] = held[place - 1];
  held[place] = {value, index};
}

// Sums of common blocks that share a region and, unless it is -1, the first inputs' exponent.
struct Run {
  int region = -1, exponent = -1;
  int64_t blocks = 0, faithful = 0;
  I half{}, sum{}, sum_signed{}, top{}, steps{};

  void flush(Found& found) {
    if (!blocks) return;
    Region& r = found.regions[region];
    const int64_t n = blocks * LANES, added = total(sum), added_signed = total(sum_signed), most = largest(steps);
    r.counts[0] += n - faithful;
    r.counts[1] += faithful;
    r.counts[MEASURED] += n;
    r.counts[SUM] += added;
    r.counts[SUM_SIGNED] += added_signed;
    r.histogram[0] -= total(half);
    for (int k = 1; k < BINS; ++k) r.histogram[k] += n;
    r.steps = most > r.steps ? most : r.steps;
    if (exponent >= 0) {
      Binade& b = found.binades[exponent];
      const int64_t peak = largest(top);
      b.measured += n;
      b.misrounded += faithful;
      b.maximum = peak > b.maximum ? peak : b.maximum;
      b.sum += added;
      b.sum_signed += added_signed;
    }
    *this = Run();
  }
};

struct Reducer {
  const Task& task;
  Found& found;
  Run run;
  double floors[REGIONS][METRICS] = {};  // no value up to it becomes a leader

  explicit Reducer(const Task& t) : task(t), found(*t.found) {}

  void leader(int region, int metric, double value, int64_t index) {
    Region& r = found.regions[region];
    lead(r, metric, value, index);
    if (r.held[metric] == LEADERS) floors[region][metric] = r.leaders[metric][LEADERS - 1].value;
  }

  void one(const Tile& t, int64_t i, int64_t index) {
    const int bit = 1 << (i % LANES);
    const auto is = [&](const uint8_t* bytes) { return (bytes[i / LANES] & bit) != 0; };
    if (is(t.open)) {
      task.open[found.open++] = index;
      return;
    }
    Region& r = found.regions[t.region[i]];
    const int cls = t.cls[i];
    ++r.counts[cls];
    const bool measured = is(t.measured), different = is(t.different), closer = is(t.closer), farther = is(t.farther);
    r.counts[DIFFERENT] += different;
    r.counts[CLOSER] += closer;
    r.counts[FARTHER] += farther;
    r.counts[TIED] += different && !closer && !farther;
    r.counts[UNJUDGED] += is(t.unjudged);
    r.steps = t.steps[i] > r.steps ? t.steps[i] : r.steps;
    const double* const values[METRICS] = {t.upper, t.scaled, t.share};
    for (int m = 0; m < METRICS; ++m)
      if ((task.metrics >> m & 1) && values[m][i] > floors[t.region[i]][m]) leader(t.region[i], m, values[m][i], index);
    if (!measured) return;
    const double error = t.error[i];
    const int64_t q = quantum(error), q_signed = is(t.negative) ? -q : q;
    ++r.counts[MEASURED];
    r.counts[CLAMPED] += error > kClamp;
    r.counts[SUM] += q;
    r.counts[SUM_SIGNED] += q_signed;
    for (int k = 0; k < BINS; ++k) r.histogram[k] += error <= 0.5 * (1 << k);
    if (t.region[i] == NORMAL) binade(t.exponent[i], cls != 0, q, q_signed);
  }

  void binade(int exponent, int64_t misrounded, int64_t q, int64_t q_signed) {
    if (exponent == 0 || exponent == EXPONENTS - 1) return;
    Binade& b = found.binades[exponent];
    ++b.measured;
    b.misrounded += misrounded;
    b.maximum = q > b.maximum ? q : b.maximum;
    b.sum += q;
    b.sum_signed += q_signed;
  }

  // Adds a whole block where it is common; returns false, having added nothing, where it is not.
  bool common(const Tile& t, int64_t i, int64_t index) {
    const int64_t b = i / LANES;
    uint64_t regions, classes;
    std::memcpy(&regions, t.region + i, 8);
    std::memcpy(&classes, t.cls + i, 8);
    const int region = t.region[i];
    if ((regions ^ region * 0x0101010101010101u) | (classes & 0xFEFEFEFEFEFEFEFEu)) return false;
    if (!(t.open[b] | t.unjudged[b] | t.measured[b] | t.different[b] | classes)) {
      found.regions[region].counts[0] += LANES;  // correct, and no error
      return true;
    }
    if (t.open[b] | t.unjudged[b] | (t.measured[b] ^ 0xFF)) return false;
    const D error = load<D>(t.error + i);
    if (byte(error <= 1.0) != 0xFF) return false;
    int exponent = -1;
    int16_t exponents[LANES];
    if (region == NORMAL) {
      std::memcpy(exponents, t.exponent + i, sizeof exponents);
      exponent = exponents[0];
      for (int k = 1; k < LANES; ++k) exponent = exponents[k] == exponents[0] ? exponent : -1;
      if (exponent == 0 || exponent == EXPONENTS - 1) exponent = -1;
    }
    if (region != run.region || exponent != run.exponent) {
      run.flush(found);
      run.region = region;
      run.exponent = exponent;
    }
    const int64_t faithful = __builtin_popcountll(classes);
    ++run.blocks;
    run.faithful += faithful;
    run.half += error <= 0.5;
    const I q = toint(error * kQuantum + 0.5), q_signed = select(truth(t.negative[b]), -q, q);
    run.sum += q;
    run.sum_signed += q_signed;
    run.top = select(q > run.top, q, run.top);
    const I steps = load<I>(t.steps + i);
    run.steps = select(steps > run.steps, steps, run.steps);
    const double* const values[METRICS] = {t.upper, t.scaled, t.share};
    for (int m = 0; m < METRICS; ++m) {
      if (!(task.metrics >> m & 1)) continue;
      uint8_t higher = byte(load<D>(values[m] + i) > floors[region][m]);
      for (; higher; higher &= higher - 1) {
        const int k = __builtin_ctz(higher);
        if (values[m][i + k] > floors[region][m]) leader(region, m, values[m][i + k], index + k);
      }
    }
    if (t.different[b]) {
      Region& r = found.regions[region];
      r.counts[DIFFERENT] += __builtin_popcount(t.different[b]);
      r.counts[CLOSER] += __builtin_popcount(t.closer[b]);
      r.counts[FARTHER] += __builtin_popcount(t.farther[b]);
      r.counts[TIED] += __builtin_popcount(t.different[b] & ~(t.closer[b] | t.farther[b]));
    }
    if (region == NORMAL && exponent < 0)
      for (int k = 0; k < LANES; ++k) binade(exponents[k], classes >> (8 * k) & 1, q[k], q_signed[k]);
    return true;
  }

  void tile(const Tile& t, int64_t n, int64_t index) {
    for (int64_t i = 0; i < n; i += LANES)
      if (i + LANES > n || !common(t, i, index + i))
        for (int64_t k = i; k < n && k < i + LANES; ++k) one(t, k, index + k);
  }

  // Adds a whole tile of one region whose elements are plain; returns false, having added nothing, where their errors
  // or the first inputs' exponents are not.
  bool plain(const Tile& t, int region, int64_t index) {
    if (region == SPECIAL) {
      found.regions[region].counts[0] += TILE;
      return true;
    }
    int exponent = -1;
    if (region == NORMAL) {
      exponent = t.exponent[0];
      if (exponent == 0 || exponent == EXPONENTS - 1) return false;
      typedef int16_t Words __attribute__((vector_size(64)));
      Words differs{};
      for (int64_t i = 0; i < TILE; i += 32) {
        Words some;
        std::memcpy(&some, t.exponent + i, sizeof some);
        differs |= some ^ static_cast<int16_t>(exponent);
      }
      Words none{};
      if (std::memcmp(&differs, &none, sizeof none)) return false;
    }
    I half{}, sum{}, sum_signed{}, top{}, steps{}, off{};
    int64_t faithful = 0;
    for (int64_t i = 0; i < TILE; i += LANES) {
      const D error = load<D>(t.error + i);
      uint64_t classes;
      std::memcpy(&classes, t.cls + i, 8);
      faithful += __builtin_popcountll(classes);
      off |= error > 1.0;
      half += error <= 0.5;
      const I q = toint(error * kQuantum + 0.5), one = load<I>(t.steps + i);
      sum += q;
      sum_signed += select(truth(t.negative[i / LANES]), -q, q);
      top = select(q > top, q, top);
      steps = select(one > steps, one, steps);
    }
    if (byte(off)) return false;
    if (region != run.region || exponent != run.exponent) {
      run.flush(found);
      run.region = region;
      run.exponent = exponent;
    }
    run.blocks += TILE / LANES;
    run.faithful += faithful;
    run.half += half;
    run.sum += sum;
    run.sum_signed += sum_signed;
    run.top = select(top > run.top, top, run.top);
    run.steps = select(steps > run.steps, steps, run.steps);
    const double* const values[METRICS] = {t.upper, t.scaled, t.share};
    for (int m = 0; m < METRICS; ++m) {
      if (!(task.metrics >> m & 1)) continue;
      // Sixteen columns of a tile: each holds an element as large as the least of their maxima, so that none below it
      // is among the LEADERS. Where errors grow from element to element, as near exp(0), that leaves sixteen of 256.
      D even{}, odd{};
      for (int64_t i = 0; i < TILE; i += 2 * LANES) {
        const D a = load<D>(values[m] + i), b = load<D>(values[m] + i + LANES);
        even = select(a > even, a, even);
        odd = select(b > odd, b, odd);
      }
      if (!byte((even > floors[region][m]) | (odd > floors[region][m]))) continue;
      double least = even[0];
      for (int k = 0; k < LANES; ++k) {
        least = even[k] < least ? even[k] : least;
        least = odd[k] < least ? odd[k] : least;
      }
      for (int64_t i = 0; i < TILE; i += LANES) {
        const D value = load<D>(values[m] + i);
        uint8_t higher = byte((value > floors[region][m]) & (value >= least));
        for (; higher; higher &= higher - 1) {
          const int k = __builtin_ctz(higher);
          if (value[k] > floors[region][m]) leader(region, m, value[k], index + i + k);
        }
      }
    }
    return true;
  }

  void mismatches(Tile& t, int64_t n, int64_t index) {
    const int64_t bytes = (n + LANES - 1) / LANES;
    for (int64_t f = 0; f < task.count; ++f) {
      uint8_t* wrong = t.mismatches[f];
      if (n % LANES) wrong[bytes - 1] &= (1 << n % LANES) - 1;
      for (int64_t b = 0; b < bytes; ++b) {
        if (!wrong[b]) continue;
        int64_t* const counted = found.formulas[f];
        if (!counted[0]) counted[1] = index + b * LANES + __builtin_ctz(wrong[b]);
        counted[0] += __builtin_popcount(wrong[b]);
      }
    }
  }
};

}  // namespace

// Judges and reduces elements begin..end. Indices count from the columns' first element.
extern "C" void run(const Task* given) {
  const Task& task = *given;
  Found& found = *task.found;
  const Environment environment;
  Reducer reducer(task);
  Tile tile, plain;
  std::memset(&tile, 0, sizeof tile);
  std::memset(&plain, 0, sizeof plain);
  int region = NORMAL;  // of which the next tile is hoped to be
  int64_t patience = 1, pause = 0;
  alignas(64) char padded[16][LANES * 8] = {};
  const void* pointers[16];
  for (int64_t i = task.begin; i < task.end; i += TILE) {
    const int64_t n = task.end - i < TILE ? task.end - i : TILE, whole = n / LANES * LANES;
    bool done = false;
    if (n == TILE && task.plain[region] && !pause) {
      done = task.plain[region](task.in, task.parameters, i, TILE / LANES, &plain) && reducer.plain(plain, region, i);
      patience = done ? 1 : patience < 64 ? 2 * patience : 64;
      pause = done ? 0 : patience;
    }
    if (whole) {
      if (!done) {
        task.judge(task.in, task.parameters, i, whole / LANES, &tile);
        reducer.tile(tile, whole, i);
        region = tile.region[whole - 1];
        pause -= pause > 0;
      }
      if (task.count) task.formulas(task.in, task.parameters, i, whole / LANES, &tile);
      reducer.mismatches(tile, whole, i);
    }
    if (whole < n) {  // the last elements of all, with zeros beside them
      for (int64_t c = 0; c < task.columns; ++c) {
        const int64_t bytes = task.bytes[c];
        std::memcpy(padded[c], static_cast<const char*>(task.in[c]) + (i + whole) * bytes, (n - whole) * bytes);
        pointers[c] = padded[c];
      }
      task.judge(pointers, task.parameters, 0, 1, &tile);
      reducer.tile(tile, n - whole, i + whole);
      if (task.count) task.formulas(pointers, task.parameters, 0, 1, &tile);
      reducer.mismatches(tile, n - whole, i + whole);
    }
  }
  reducer.run.flush(found);
}
