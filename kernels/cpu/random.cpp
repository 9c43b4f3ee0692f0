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

/// Two normal numbers of (0, 1) from u in (0, 1] and a turn in [0, 1).
template <class A>
void box_muller(A u, A turn, A& first, A& second) {
  const A radius = std::sqrt(A(-2) * std::log(u));
  const A angle = A(6.283185307179586476925) * turn;
  first = radius * std::cos(angle);
  second = radius * std::sin(angle);
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
  using A = accumulator_t<T>;
  HEED_CHECK(args.std >= 0, ConfigError, "fill_normal: the standard deviation is ", args.std,
             ", expected >= 0");
  const A mean = A(args.mean), std = A(args.std);
  fill_groups(args.y, args.count, [&](int64_t group, T* values) {
    const Philox4 upper = kernels::fill_words(args.rng, group, 0);
    A unit[4], normal[4];
    if constexpr (std::is_same_v<T, double>) {
      const Philox4 lower = kernels::fill_words(args.rng, group, 1);
      for (int j = 0; j < 4; ++j)
        unit[j] = static_cast<A>(kernels::join(upper.word[j], lower.word[j])) * 0x1p-64;
    } else {
      for (int j = 0; j < 4; ++j) unit[j] = static_cast<A>(upper.word[j]) * 0x1p-32f;
    }
    // Half a step above zero keeps the logarithm finite.
    const A step = std::is_same_v<T, double> ? A(0x1p-65) : A(0x1p-33);
    box_muller(unit[0] + step, unit[1], normal[0], normal[1]);
    box_muller(unit[2] + step, unit[3], normal[2], normal[3]);
    for (int j = 0; j < 4; ++j) values[j] = T(mean + std * normal[j]);
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
