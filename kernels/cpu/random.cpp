#include <algorithm>
#include <cmath>

#include <heed/core/base/check.h>
#include <heed/core/base/parallel_for.h>
#include <heed/kernels/random.h>

namespace heed::cpu {
namespace {

constexpr int64_t kGroupsPerTask = 4096;

/// Calls make(group, values) for every group of four elements; `values` takes what is stored.
template <class T, class Make>
void fill_groups(T* y, int64_t count, const Make& make) {
  parallel_for((count + 3) / 4, kGroupsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      T values[4];
      make(group, values);
      std::copy_n(values, std::min<int64_t>(4, count - 4 * group), y + 4 * group);
    }
  });
}

/// kernels::box_muller in full precision, from a radius's u in (0, 1] and an angle in turns.
kernels::CosineAndSine box_muller(double u, double turn) {
  const double radius = std::sqrt(-2 * std::log(u)), angle = 6.283185307179586476925 * turn;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

template <class T>
void fill_uniform(const kernels::FillUniform<T>& args) {
  const kernels::UniformRange<T> range(args.low, args.high);
  fill_groups(args.y, args.count, [&](int64_t group, T* values) {
    const Philox4 upper = kernels::fill_words(args.rng, group, 0);
    if constexpr (std::is_same_v<T, double>) {
      const Philox4 lower = kernels::fill_words(args.rng, group, 1);
      for (int j = 0; j < 4; ++j)
        values[j] = range(static_cast<double>(kernels::join(upper.word[j], lower.word[j]) >> 11) * 0x1p-53);
    } else {
      for (int j = 0; j < 4; ++j) values[j] = range((upper.word[j] >> 8) * 0x1p-24);
    }
  });
}

template <class T>
void fill_normal(const kernels::FillNormal<T>& args) {
  const kernels::NormalScale<T> scale(args.mean, args.std);
  fill_groups(args.y, args.count, [&](int64_t group, T* values) {
    const Philox4 upper = kernels::fill_words(args.rng, group, 0);
    [[maybe_unused]] Philox4 lower;
    if constexpr (std::is_same_v<T, double>) lower = kernels::fill_words(args.rng, group, 1);
    for (int j = 0; j < 4; j += 2) {
      kernels::CosineAndSine z;
      if constexpr (std::is_same_v<T, double>) {
        const auto unit = [&](int k) {
          return static_cast<double>(kernels::join(upper.word[k], lower.word[k])) * 0x1p-64;
        };
        z = box_muller(unit(j) + 0x1p-65, unit(j + 1));  // half a step above zero keeps the logarithm finite
      } else {
        z = kernels::box_muller(upper.word[j], upper.word[j + 1]);
      }
      values[j] = scale(z.cosine);
      values[j + 1] = scale(z.sine);
    }
  });
}

void fill_integers(const kernels::FillIntegers& args) {
  const kernels::IntegerRange range(args.low, args.high);
  fill_groups(args.y, args.count, [&](int64_t group, int64_t* values) {
    const Philox4 upper = kernels::fill_words(args.rng, group, 0);
    const Philox4 lower = kernels::fill_words(args.rng, group, 1);
    for (int j = 0; j < 4; ++j) values[j] = range(kernels::join(upper.word[j], lower.word[j]));
  });
}

#define HEED_INSTANTIATE(T)                                      \
  template void fill_uniform<T>(const kernels::FillUniform<T>&); \
  template void fill_normal<T>(const kernels::FillNormal<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
