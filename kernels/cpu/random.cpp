#include <algorithm>
#include <cmath>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/random_rows.h>
#include <heed/kernels/random.h>

namespace heed::cpu {
namespace {

constexpr int64_t kGroupsPerTask = 512;

/// Calls fill(row) for the rows that y is cut into: whole groups, but for what the last one lacks.
template <class T, class Fill>
void fill_rows(T* y, int64_t count, const PhiloxState& rng, const Fill& fill) {
  parallel_for((count + 3) / 4, kGroupsPerTask, [&](int64_t begin, int64_t end) {
    fill(RandomRow<T>{std::min(4 * end, count) - 4 * begin, y + 4 * begin, begin, rng});
  });
}

// ---- Doubles, which serve exact gradient checks, a group at a time

/// Calls make(words, values) for each group; words are 64 bits for each of the four elements.
template <class Make>
void fill_groups(const RandomRow<double>& row, const Make& make) {
  for (int64_t i = 0; i < row.n; i += 4) {
    const Philox4 upper = kernels::fill_words(row.rng, row.group + i / 4, 0);
    const Philox4 lower = kernels::fill_words(row.rng, row.group + i / 4, 1);
    uint64_t words[4];
    for (int j = 0; j < 4; ++j) words[j] = kernels::join(upper.word[j], lower.word[j]);
    double values[4];
    make(words, values);
    std::copy_n(values, std::min<int64_t>(4, row.n - i), row.y + i);
  }
}

/// kernels::box_muller in full precision, from a radius's u in (0, 1] and an angle in turns.
kernels::CosineAndSine box_muller(double u, double turn) {
  const double radius = std::sqrt(-2 * std::log(u)), angle = 6.283185307179586476925 * turn;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

template <>
void uniform_row(const RandomRow<double>& row, const kernels::UniformRange<double>& range) {
  fill_groups(row, [&](const uint64_t* words, double* values) {
    for (int j = 0; j < 4; ++j) values[j] = range(static_cast<double>(words[j] >> 11) * 0x1p-53);
  });
}

template <>
void normal_row(const RandomRow<double>& row, const kernels::NormalScale<double>& scale) {
  fill_groups(row, [&](const uint64_t* words, double* values) {
    for (int j = 0; j < 4; j += 2) {
      // Half a step above zero keeps the logarithm finite.
      const double u = static_cast<double>(words[j]) * 0x1p-64 + 0x1p-65;
      const kernels::CosineAndSine z = box_muller(u, static_cast<double>(words[j + 1]) * 0x1p-64);
      values[j] = scale(z.cosine);
      values[j + 1] = scale(z.sine);
    }
  });
}

template <class T>
void fill_uniform(const kernels::FillUniform<T>& args) {
  const kernels::UniformRange<T> range(args.low, args.high);
  fill_rows(args.y, args.count, args.rng, [&](const RandomRow<T>& row) { uniform_row(row, range); });
}

template <class T>
void fill_normal(const kernels::FillNormal<T>& args) {
  const kernels::NormalScale<T> scale(args.mean, args.std);
  fill_rows(args.y, args.count, args.rng, [&](const RandomRow<T>& row) { normal_row(row, scale); });
}

void fill_integers(const kernels::FillIntegers& args) {
  const kernels::IntegerRange range(args.low, args.high);
  fill_rows(args.y, args.count, args.rng, [&](const RandomRow<int64_t>& row) { integer_row(row, range); });
}

#define HEED_INSTANTIATE(T)                                      \
  template void fill_uniform<T>(const kernels::FillUniform<T>&); \
  template void fill_normal<T>(const kernels::FillNormal<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
