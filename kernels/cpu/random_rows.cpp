#include <cmath>
#include <limits>
#include <type_traits>

#include <heed/kernels/cpu/random_rows.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/random_rows.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/box_muller-inl.h>
#include <heed/kernels/cpu/simd/math-inl.h>
#include <heed/kernels/cpu/simd/philox-inl.h>
#include <heed/kernels/cpu/simd/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

using Groups = hn::ScalableTag<uint64_t>;  // a group of four elements in each lane
using Words = Philox4Lanes<Groups>;

HWY_INLINE int64_t group_lanes() { return static_cast<int64_t>(hn::Lanes(Groups())); }

/// Rounds n values to T.
template <class Value, class T>
HWY_INLINE void store_block(const Value* values, int64_t n, T* y) {
  const hn::ScalableTag<Value> d;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d)))
    store_up_to(hn::Load(d, values + i), d, y + i, n - i);
}

/// Makes block after block: block(group, to) writes Block::groups() groups of Block::Value.
template <class T, class Block>
HWY_INLINE void fill_row(const RandomRow<T>& row, const Block& block) {
  using Value = typename Block::Value;
  const int64_t size = 4 * Block::groups();
  alignas(64) Value buffer[8 * hn::MaxLanes(Groups())];
  int64_t i = 0;
  for (; i + size <= row.n; i += size) {
    if constexpr (std::is_same_v<T, Value>) {
      block(row.group + i / 4, row.y + i);
    } else {
      block(row.group + i / 4, buffer);
      store_block(buffer, size, row.y + i);
    }
  }
  if (i == row.n) return;
  block(row.group + i / 4, buffer);
  store_block(buffer, row.n - i, row.y + i);
}

// ---- Uniform

template <class T>
struct UniformBlock {
  using Value = float;
  PhiloxKeys<Groups> keys;
  uint64_t position;
  double low, step;  // u is a multiple of 2^-24: width * u is exactly step times a whole number
  float high, last;  // what is not below `high` as a float becomes `last`

  UniformBlock(const PhiloxState& rng, const kernels::UniformRange<T>& range)
      : keys(Groups(), rng.seed),
        position(rng.position()),
        low(range.low),
        step(range.width * 0x1p-24),
        high(range.width == 0 ? std::numeric_limits<float>::infinity() : least_rounded_to_high(range)),
        last(float{range.last}) {}

  static HWY_INLINE int64_t groups() { return 2 * group_lanes(); }

  /// The least float that is range.high when it is rounded to T.
  static float least_rounded_to_high(const kernels::UniformRange<T>& range) {
    const float last{range.last}, high{range.high}, middle = last + (high - last) / 2;
    return float{T(middle)} < high ? std::nextafter(middle, high) : middle;
  }

  HWY_INLINE Vec<Tag<double>> in_range(Vec<Tag<double>> whole) const {
    const Tag<double> d;
    return hn::Add(hn::Set(d, low), hn::Mul(hn::Set(d, step), whole));
  }

  HWY_INLINE void store_values(Vec<Groups> words, float* y) const {
    const Tag<float> d;
    const hn::RebindToSigned<Tag<float>> di;
    const auto whole = hn::ShiftRight<8>(hn::BitCast(hn::RebindToUnsigned<Tag<float>>(), words));
    const auto signed_whole = hn::BitCast(di, whole);
    const auto value =
        floats(d, in_range(lower_doubles(di, signed_whole)), in_range(upper_doubles(di, signed_whole)));
    hn::StoreU(hn::IfThenElse(hn::Lt(value, hn::Set(d, high)), value, hn::Set(d, last)), d, y);
  }

  HWY_INLINE void operator()(int64_t group, float* y) const {
    const Groups d;
    const int64_t lanes = group_lanes();
    Words words[2];
    for (int i = 0; i < 2; ++i)
      words[i] = counters(d, count_alternately(d, static_cast<uint64_t>(group + i * lanes)), position);
    philox(d, keys, words);
    for (const Words& w : words) {
      Vec<Groups> lower, upper;
      order_words(d, w, lower, upper);
      store_values(lower, y);
      store_values(upper, y + 2 * lanes);
      y += 4 * lanes;
    }
  }
};

// ---- Normal

template <class T>
struct NormalBlock {
  using Value = float;
  PhiloxKeys<Groups> keys;
  uint64_t position;
  double mean, std;

  NormalBlock(const PhiloxState& rng, const kernels::NormalScale<T>& scale)
      : keys(Groups(), rng.seed), position(rng.position()), mean(scale.mean), std(scale.std) {}

  static HWY_INLINE int64_t groups() { return 2 * group_lanes(); }

  HWY_INLINE void operator()(int64_t group, float* y) const {
    const Groups d;
    const hn::Rebind<float, Groups> df;
    const int64_t lanes = group_lanes();
    Words words[2];
    for (int i = 0; i < 2; ++i)
      words[i] = counters(d, count_from(d, static_cast<uint64_t>(group + i * lanes)), position);
    philox(d, keys, words);
    Numbers cosine, sine;
    box_muller({{words[0].word[0], words[0].word[2], words[1].word[0], words[1].word[2]}},
               {{words[0].word[1], words[0].word[3], words[1].word[1], words[1].word[3]}}, cosine, sine);
    cosine = cosine * std + mean;
    sine = sine * std + mean;
    for (int i = 0; i < 4; i += 2) {
      hn::StoreInterleaved4(hn::DemoteTo(df, cosine.v[i]), hn::DemoteTo(df, sine.v[i]),
                            hn::DemoteTo(df, cosine.v[i + 1]), hn::DemoteTo(df, sine.v[i + 1]), df, y);
      y += 4 * lanes;
    }
  }
};

// ---- Integers

struct IntegerBlock {
  using Value = int64_t;
  PhiloxKeys<Groups> keys;
  uint64_t position, low, width;

  IntegerBlock(const PhiloxState& rng, const kernels::IntegerRange& range)
      : keys(Groups(), rng.seed), position(rng.position()), low(range.low), width(range.width) {}

  static HWY_INLINE int64_t groups() { return group_lanes(); }

  /// low and the upper 64 of the 128 bits of (upper 2^32 + lower) * width.
  HWY_INLINE Vec<hn::ScalableTag<int64_t>> in_range(Vec<Groups> upper, Vec<Groups> lower) const {
    const Groups d;
    const hn::Repartition<uint32_t, Groups> d32;
    const auto a0 = hn::BitCast(d32, lower), a1 = hn::BitCast(d32, upper);
    const auto b0 = hn::BitCast(d32, hn::Set(d, width)), b1 = hn::BitCast(d32, hn::Set(d, width >> 32));
    const auto middle = hn::Add(hn::MulEven(a1, b0), hn::ShiftRight<32>(hn::MulEven(a0, b0)));
    const auto other = hn::Add(hn::MulEven(a0, b1), hn::And(middle, hn::Set(d, 0xffffffffu)));
    const auto carried = hn::Add(hn::ShiftRight<32>(middle), hn::ShiftRight<32>(other));
    const auto high = hn::Add(hn::MulEven(a1, b1), carried);
    return hn::BitCast(hn::ScalableTag<int64_t>(), hn::Add(hn::Set(d, low), high));
  }

  HWY_INLINE void operator()(int64_t group, int64_t* y) const {
    const Groups d;
    const auto lanes = count_from(d, static_cast<uint64_t>(group));
    Words words[2] = {counters(d, lanes, position), counters(d, lanes, position + 1)};
    philox(d, keys, words);
    Vec<hn::ScalableTag<int64_t>> v[4];
    for (int j = 0; j < 4; ++j) v[j] = in_range(words[0].word[j], words[1].word[j]);
    hn::StoreInterleaved4(v[0], v[1], v[2], v[3], hn::ScalableTag<int64_t>(), y);
  }
};

#define HEED_DEFINE(T, name)                                                                \
  void uniform_row_##name(const RandomRow<T>& row, const kernels::UniformRange<T>& range) { \
    fill_row(row, UniformBlock<T>(row.rng, range));                                         \
  }                                                                                         \
  void normal_row_##name(const RandomRow<T>& row, const kernels::NormalScale<T>& scale) {   \
    fill_row(row, NormalBlock<T>(row.rng, scale));                                          \
  }
HEED_DEFINE(float, f32)
HEED_DEFINE(bfloat16, bf16)
#undef HEED_DEFINE
void integer_row(const RandomRow<int64_t>& row, const kernels::IntegerRange& range) {
  fill_row(row, IntegerBlock(row.rng, range));
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

#define HEED_EXPORT(T, name)                                                         \
  HWY_EXPORT(uniform_row_##name);                                                    \
  HWY_EXPORT(normal_row_##name);                                                     \
  template <>                                                                        \
  void uniform_row(const RandomRow<T>& row, const kernels::UniformRange<T>& range) { \
    HEED_SIMD(uniform_row_##name)(row, range);                                       \
  }                                                                                  \
  template <>                                                                        \
  void normal_row(const RandomRow<T>& row, const kernels::NormalScale<T>& scale) {   \
    HEED_SIMD(normal_row_##name)(row, scale);                                        \
  }
HEED_EXPORT(float, f32)
HEED_EXPORT(bfloat16, bf16)
#undef HEED_EXPORT
HWY_EXPORT(integer_row);
void integer_row(const RandomRow<int64_t>& row, const kernels::IntegerRange& range) {
  HEED_SIMD(integer_row)(row, range);
}

}  // namespace heed::cpu
#endif
