// The reduction of verify.judge.reduce over what generated code finds of tiles of elements. Nearly all elements are plain
// (verify.judge.element.plainly) and added up in lanes; the others are gathered, judged in full and added one by one.

#include "lanes.h"

namespace {

enum { REGIONS = 7, SPECIAL = 0, OPERAND = 2, SMALL = 3, OVERFLOWN = 4, NORMAL = 6, CLASSES = 7, BINS = 12, LEADERS = 16, METRICS = 3, EXPONENTS = 2048 };
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
  Judges* plain;  // or null
  Judges* formulas;
  const void* const* in;
  const int64_t* bytes;
  int64_t columns, mantissa, bias;  // bits of the first input's significand but one, and its exponents' bias
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

// Of errors up to 2^10, by way of 32 bits, which more processors convert to.
inline I quanta(D error) {
  return widen(truncate(error * kQuantum + 0.5));
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

// Sums of plain elements that share a region and, unless it is -1, the first inputs' exponent.
struct Run {
  int region = -1, exponent = -1;
  int64_t elements = 0, faithful = 0;
  I half{}, sum{}, sum_signed{}, top{};  // half: minus the number of errors of 1/2 ULP at most

  void flush(Found& found) {
    if (!elements) return;
    Region& r = found.regions[region];
    const int64_t added = total(sum), added_signed = total(sum_signed);
    r.counts[0] += elements - faithful;
    r.counts[1] += faithful;
    r.counts[MEASURED] += elements;
    r.counts[SUM] += added;
    r.counts[SUM_SIGNED] += added_signed;
    r.histogram[0] -= total(half);
    for (int k = 1; k < BINS; ++k) r.histogram[k] += elements;
    if (faithful && !r.steps) r.steps = 1;
    if (exponent >= 0) {
      Binade& b = found.binades[exponent];
      const int64_t peak = largest(top);
      b.measured += elements;
      b.misrounded += faithful;
      b.maximum = peak > b.maximum ? peak : b.maximum;
      b.sum += added;
      b.sum_signed += added_signed;
    }
    *this = Run();
  }
};

// The regions of plain elements, of which the first that fits is taken.
struct Which {
  int region;
  const uint8_t* (*of)(const Tile&);
};
const Which regions[] = {
    {SPECIAL, [](const Tile& t) { return +t.nan; }},
    {OPERAND, [](const Tile& t) { return +t.operand; }},
    {SMALL, [](const Tile& t) { return +t.small; }},
    {OVERFLOWN, [](const Tile& t) { return +t.overflow; }},
    {NORMAL, nullptr},
};

struct Reducer {
  const Task& task;
  Found& found;
  Run run;
  double floors[REGIONS][METRICS] = {};  // no value below it becomes a leader
  Tile judged;
  alignas(64) char gathered[16][TILE * 8] = {};
  int64_t places[TILE] = {}, waiting = 0;  // elements that are not plain

  explicit Reducer(const Task& t) : task(t), found(*t.found) { std::memset(&judged, 0, sizeof judged); }

  void lead(int region, int metric, double value, int64_t index) {
    Region& r = found.regions[region];
    Leader* held = r.leaders[metric];
    int64_t& count = r.held[metric];
    const auto before = [&](const Leader& one) { return one.value > value || (one.value == value && one.index < index); };
    if (!(value > 0) || (count == LEADERS && before(held[LEADERS - 1]))) return;
    int64_t place = count < LEADERS ? count++ : LEADERS - 1;
    for (; place > 0 && !before(held[place - 1]); --place) held[place] = held[place - 1];
    held[place] = {value, index};
    if (count == LEADERS) floors[region][metric] = held[LEADERS - 1].value;
  }

  // The biased exponent of a first input as a double, 0 where it is zero.
  int exponent(const char* first, int64_t i) const {
    uint32_t word = 0;
    std::memcpy(&word, first + i * task.bytes[0], task.bytes[0]);
    const int field = (word >> task.mantissa) & (2 * task.bias + 1);
    const uint32_t fraction = word & ((1u << task.mantissa) - 1);
    if (field > 2 * task.bias) return EXPONENTS - 1;
    if (field) return field + 1023 - task.bias;
    return fraction ? 1024 - task.bias - task.mantissa + 31 - __builtin_clz(fraction) : 0;
  }

  void one(const Tile& t, int64_t i, int64_t index, const char* first) {
    const int bit = 1 << (i % LANES);
    const auto is = [&](const uint8_t* bytes) { return (bytes[i / LANES] & bit) != 0; };
    if (is(t.open)) {
      task.open[found.open++] = index;
      return;
    }
    Region& r = found.regions[t.region[i]];
    const int cls = t.cls[i];
    ++r.counts[cls];
    const bool different = is(t.different), closer = is(t.closer), farther = is(t.farther);
    r.counts[DIFFERENT] += different;
    r.counts[CLOSER] += closer;
    r.counts[FARTHER] += farther;
    r.counts[TIED] += different && !closer && !farther;
    r.counts[UNJUDGED] += is(t.unjudged);
    r.steps = t.steps[i] > r.steps ? t.steps[i] : r.steps;
    const double* const values[METRICS] = {t.upper, t.scaled, t.share};
    for (int m = 0; m < METRICS; ++m)
      if ((task.metrics >> m & 1) && values[m][i] >= floors[t.region[i]][m]) lead(t.region[i], m, values[m][i], index);
    if (!is(t.measured)) return;
    const double error = t.error[i];
    const int64_t q = quantum(error), q_signed = is(t.negative) ? -q : q;
    ++r.counts[MEASURED];
    r.counts[CLAMPED] += error > kClamp;
    r.counts[SUM] += q;
    r.counts[SUM_SIGNED] += q_signed;
    for (int k = BINS - 1; k >= 0 && error <= 0.5 * (1 << k); --k) ++r.histogram[k];
    if (t.region[i] == NORMAL) binade(exponent(first, i), cls != 0, q, q_signed);
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

  void begin(int region, int exponent) {
    if (region == run.region && exponent == run.exponent) return;
    run.flush(found);
    run.region = region;
    run.exponent = exponent;
  }

  // Adds those elements of a block that are plain and of one region.
  void block(const Tile& t, int64_t i, int64_t index, int region, int here, const char* first) {
    const D error = frombits(bits(load<D>(t.error + i)) & truth(here));
    const int faithful = t.faithful[i / LANES] & here;
    int exponents[LANES], common = -1;
    if (region == NORMAL) {
      common = exponents[0] = exponent(first, i);
      for (int k = 1; k < LANES; ++k) {
        exponents[k] = exponent(first, i + k);
        common = exponents[k] == exponents[0] ? common : -1;
      }
      if (common == 0 || common == EXPONENTS - 1) common = -1;
    }
    begin(region, common);
    run.elements += __builtin_popcount(here);
    run.faithful += __builtin_popcount(faithful);
    const I q = quanta(error), q_signed = select(truth(t.negative[i / LANES]), -q, q);
    run.half += (error <= 0.5) & truth(here);
    run.sum += q;
    run.sum_signed += q_signed;
    run.top = select(q > run.top, q, run.top);
    const double* const values[METRICS] = {t.upper, t.scaled, t.share};
    for (int m = 0; m < METRICS; ++m) {
      if (!(task.metrics >> m & 1)) continue;
      int higher = byte(load<D>(values[m] + i) > floors[region][m]) & here;
      for (; higher; higher &= higher - 1) lead(region, m, values[m][i + __builtin_ctz(higher)], index + __builtin_ctz(higher));
    }
    if (region == NORMAL && common < 0)
      for (int rest = here; rest; rest &= rest - 1) {
        const int k = __builtin_ctz(rest);
        binade(exponents[k], faithful >> k & 1, q[k], q_signed[k]);
      }
  }

  // Adds the plain elements of a tile; the others wait. first: the first inputs of its elements.
  void tile(const Tile& t, int64_t n, int64_t index, const char* first) {
    if (n == TILE && whole(t, index, first)) return;
    for (int64_t i = 0; i < n; i += LANES) {
      const int inside = n - i < LANES ? (1 << (n - i)) - 1 : ALL;
      int plain = ~t.open[i / LANES] & inside;
      for (int rest = inside & ~plain; rest; rest &= rest - 1) wait(index + i + __builtin_ctz(rest));
      for (const Which& one : regions) {
        const int region = one.region, here = one.of ? one.of(t)[i / LANES] & plain : plain;
        if (region == SPECIAL)
          found.regions[region].counts[0] += __builtin_popcount(here);  // nothing is measured
        else if (here)
          block(t, i, index + i, region, here, first);
        plain &= ~here;
      }
    }
  }

  // Adds a tile of plain elements of one region, whose first inputs have one exponent; returns false, having added
  // nothing, where it is not one.
  bool whole(const Tile& t, int64_t index, const char* first) {
    int open = 0, region = NORMAL, common = -1;
    for (int64_t b = 0; b < TILE / LANES; ++b) open |= t.open[b];
    if (open) return false;
    for (const Which& one : regions) {
      if (!one.of) continue;
      int all = ALL, some = 0;
      for (int64_t b = 0; b < TILE / LANES; ++b) {
        all &= one.of(t)[b];
        some |= one.of(t)[b];
      }
      if (some && all != ALL) return false;
      if (some && region == NORMAL) region = one.region;
    }
    if (region == SPECIAL) {
      found.regions[region].counts[0] += TILE;
      return true;
    }
    if (region == NORMAL) {
      common = exponent(first, 0);
      if (common == 0 || common == EXPONENTS - 1 || !(task.bytes[0] == 2 ? alike<uint16_t>(first) : alike<uint32_t>(first)))
        return false;
    }
    begin(region, common);
    run.elements += TILE;
    I half{}, sum{}, sum_signed{}, top{};
    for (int64_t i = 0; i < TILE; i += LANES) {
      const D error = load<D>(t.error + i);
      run.faithful += __builtin_popcount(t.faithful[i / LANES]);
      half += error <= 0.5;
      const I q = quanta(error);
      sum += q;
      sum_signed += select(truth(t.negative[i / LANES]), -q, q);
      top = select(q > top, q, top);
    }
    run.half += half;
    run.sum += sum;
    run.sum_signed += sum_signed;
    run.top = select(top > run.top, top, run.top);
    const double* const values[METRICS] = {t.upper, t.scaled, t.share};
    for (int m = 0; m < METRICS; ++m) {
      if (!(task.metrics >> m & 1)) continue;
      // LEADERS columns of a tile: each holds an element as large as the least of their maxima, so that none below it
      // is among the leaders. Where errors grow from element to element, as near exp(0), that leaves sixteen of 256.
      D columns[LEADERS / LANES] = {}, most{};
      for (int64_t i = 0; i < TILE; i += LEADERS)
        for (int k = 0; k < LEADERS / LANES; ++k) {
          const D value = load<D>(values[m] + i + k * LANES);
          columns[k] = select(value > columns[k], value, columns[k]);
        }
      for (const D& column : columns) most = select(column > most, column, most);
      if (!byte(most > floors[region][m])) continue;
      double least = columns[0][0];
      for (const D& column : columns)
        for (int k = 0; k < LANES; ++k) least = column[k] < least ? column[k] : least;
      for (int64_t i = 0; i < TILE; i += LANES) {
        const D value = load<D>(values[m] + i);
        int higher = byte((value > floors[region][m]) & (value >= least));
        for (; higher; higher &= higher - 1) {
          const int k = __builtin_ctz(higher);
          lead(region, m, value[k], index + i + k);
        }
      }
    }
    return true;
  }

  // Whether all first inputs of a tile have one exponent, other than that of subnormal numbers.
  template <typename Word>
  bool alike(const char* first) const {
    Word words[TILE], differs = 0;
    std::memcpy(words, first, sizeof words);
    for (int64_t i = 0; i < TILE; ++i) differs |= words[i] ^ words[0];
    const auto field = [&](Word word) { return (word >> task.mantissa) & (2 * task.bias + 1); };
    return !field(differs) && field(words[0]);
  }

  void wait(int64_t index) {
    for (int64_t c = 0; c < task.columns; ++c)
      std::memcpy(gathered[c] + waiting * task.bytes[c], static_cast<const char*>(task.in[c]) + index * task.bytes[c],
                  task.bytes[c]);
    places[waiting++] = index;
    if (waiting == TILE) settle();
  }

  // Judges the elements that wait in full, with what stood there before beside the last of them.
  void settle() {
    if (!waiting) return;
    const void* columns[16];
    for (int64_t c = 0; c < task.columns; ++c) columns[c] = gathered[c];
    task.judge(columns, task.parameters, 0, (waiting + LANES - 1) / LANES, &judged);
    for (int64_t k = 0; k < waiting; ++k) one(judged, k, places[k], gathered[0]);
    waiting = 0;
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

// Judges and reduces elements begin..end. Indices count from the columns' first element; open elements are in no order.
extern "C" void run(const Task* given) {
  const Task& task = *given;
  const Environment environment;
  Reducer reducer(task);
  Tile tile;
  std::memset(&tile, 0, sizeof tile);
  if (!task.plain) std::memset(tile.open, ALL, sizeof tile.open);
  alignas(64) char padded[16][LANES * 8] = {};
  const auto add = [&](const void* const* in, int64_t from, int64_t n, int64_t index) {
    const int64_t blocks = (n + LANES - 1) / LANES;
    if (task.plain) task.plain(in, task.parameters, from, blocks, &tile);
    reducer.tile(tile, n, index, static_cast<const char*>(in[0]) + from * task.bytes[0]);
    if (task.count) task.formulas(in, task.parameters, from, blocks, &tile);
    reducer.mismatches(tile, n, index);
  };
  for (int64_t i = task.begin; i < task.end; i += TILE) {
    const int64_t n = task.end - i < TILE ? task.end - i : TILE, whole = n / LANES * LANES;
    if (whole) add(task.in, i, whole, i);
    if (whole == n) continue;
    // the last elements of all, with zeros beside them
    const void* pointers[16];
    for (int64_t c = 0; c < task.columns; ++c) {
      const int64_t bytes = task.bytes[c];
      std::memcpy(padded[c], static_cast<const char*>(task.in[c]) + (i + whole) * bytes, (n - whole) * bytes);
      pointers[c] = padded[c];
    }
    add(pointers, 0, n - whole, i + whole);
  }
  reducer.settle();
  reducer.run.flush(*task.found);
}
