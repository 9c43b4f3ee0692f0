#include <algorithm>
#include <cmath>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/batch_norm.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/grain.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/norm/batch_norm.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/columns-inl.h>

#ifndef HEED_KERNELS_CPU_BATCH_NORM_ONCE_
#define HEED_KERNELS_CPU_BATCH_NORM_ONCE_
namespace heed::cpu {

/// Sums over a run of pixels: of x - shift and its square, or with gy of gy and gy (x - shift).
template <class T>
struct RunSums {
  const T *x, *gy;
  accumulator_t<T> shift;
  double *first, *second;  // added to
};

/// out (+)= x_scale * (x - shift) + g_scale * gy + constant; gy may be null.
template <class T>
struct RunMap {
  const T *x, *gy;
  T* out;
  accumulator_t<T> shift, x_scale, g_scale, constant;
  bool accumulate;
};

}  // namespace heed::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class T>
struct SumColumns {
  const T *x, *gy;
  Vec<Tag<T>> shift, first[2], second[2];

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    const auto v = io.keep(hn::Sub(io.load(x + c), shift));
    const auto g = gy == nullptr ? v : io.load(gy + c);
    first[I] = hn::Add(first[I], g);
    second[I] = hn::MulAdd(g, v, second[I]);
  }
};

template <class T>
void sum_run(const RunSums<T>& args, int64_t begin, int64_t end) {
  constexpr int64_t kPixels = 256;  // summed before they are added in f64
  const Tag<T> d;
  const auto zero = hn::Zero(d);
  for (int64_t first = begin; first < end; first += kPixels) {
    SumColumns<T> columns{args.x, args.gy, hn::Set(d, args.shift), {zero, zero}, {zero, zero}};
    for_columns<T>(first, HWY_MIN(first + kPixels, end), columns);
    *args.first += static_cast<double>(reduce_sum(d, hn::Add(columns.first[0], columns.first[1])));
    *args.second += static_cast<double>(reduce_sum(d, hn::Add(columns.second[0], columns.second[1])));
  }
}
HEED_TYPED(sum_run, RunSums)

template <class T>
struct MapColumns {
  RunMap<T> args;

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) const {
    const Tag<T> d;
    const auto v = hn::Sub(io.load(args.x + c), hn::Set(d, args.shift));
    auto out = hn::MulAdd(v, hn::Set(d, args.x_scale), hn::Set(d, args.constant));
    if (args.gy != nullptr) out = hn::MulAdd(io.load(args.gy + c), hn::Set(d, args.g_scale), out);
    if (args.accumulate) out = hn::Add(out, io.load(args.out + c));
    io.store(out, args.out + c);
  }
};

template <class T>
void map_run(const RunMap<T>& args, int64_t begin, int64_t end) {
  MapColumns<T> columns{args};
  for_columns<T>(begin, end, columns);
}
HEED_TYPED(map_run, RunMap)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(sum_run)
HEED_EXPORT_TYPED(map_run)

/// f(offset) for each image's pixels of a channel, in order.
template <class Args, class F>
void for_runs(const Args& args, int64_t channel, const F& f) {
  for (int64_t n = 0; n < args.batch; ++n) f((n * args.channels + channel) * args.pixels);
}

template <class Args, class F>
void for_channels(const Args& args, const F& f) {
  parallel_for(args.channels, rows_per_task(args.channels, args.batch * args.pixels),
               [&](int64_t begin, int64_t end) {
                 for (int64_t channel = begin; channel < end; ++channel) f(channel);
               });
}

struct Pair {
  double first = 0, second = 0;
};

/// The sums of a channel, image by image.
template <class T, class Args>
Pair sum_channel(const Args& args, int64_t channel, const T* x, const T* gy, accumulator_t<T> shift) {
  const auto sum = HEED_SIMD_OF(T, sum_run);
  Pair sums;
  for_runs(args, channel, [&](int64_t at) {
    sum({x + at, gy == nullptr ? nullptr : gy + at, shift, &sums.first, &sums.second}, 0, args.pixels);
  });
  return sums;
}

}  // namespace

template <class T>
void batch_norm_forward(const kernels::BatchNormForward<T>& args) {
  using A = accumulator_t<T>;
  const double count = static_cast<double>(args.batch * args.pixels);
  const auto map = HEED_SIMD_OF(T, map_run);
  for_channels(args, [&](int64_t c) {
    const A mean = static_cast<A>(sum_channel<T>(args, c, args.x, nullptr, A(0)).first / count);
    const Pair sums = sum_channel<T>(args, c, args.x, nullptr, mean);
    const double off = sums.first / count;  // what rounding the mean left
    const double variance = std::max(sums.second / count - off * off, 0.0);
    args.mean[c] = mean;
    args.variance[c] = static_cast<A>(variance);
    const A weight = args.weight == nullptr ? A(1) : static_cast<A>(args.weight[c]);
    const A scale = weight / static_cast<A>(std::sqrt(variance + args.eps));
    const A bias = args.bias == nullptr ? A(0) : static_cast<A>(args.bias[c]);
    for_runs(args, c, [&](int64_t at) {
      map({args.x + at, nullptr, args.y + at, mean, scale, A(0), bias, false}, 0, args.pixels);
    });
  });
}

template <class T>
void batch_norm_backward(const kernels::BatchNormBackward<T>& args) {
  using A = accumulator_t<T>;
  const double count = static_cast<double>(args.batch * args.pixels);
  const auto map = HEED_SIMD_OF(T, map_run);
  for_channels(args, [&](int64_t c) {
    const Pair sums = sum_channel<T>(args, c, args.x, args.gy, args.mean[c]);
    const double rstd = 1 / std::sqrt(static_cast<double>(args.variance[c]) + args.eps);
    const auto give = [&](A* to, double value, bool accumulate) {
      if (to != nullptr) to[c] = static_cast<A>(accumulate ? static_cast<double>(to[c]) + value : value);
    };
    give(args.gweight, sums.second * rstd, args.accumulate_weight);
    give(args.gbias, sums.first, args.accumulate_bias);
    if (args.gx == nullptr) return;
    const double scale =
        rstd * (args.weight == nullptr ? 1.0 : static_cast<double>(static_cast<A>(args.weight[c])));
    const RunMap<T> all{args.x,
                        args.gy,
                        args.gx,
                        args.mean[c],
                        static_cast<A>(-scale * rstd * rstd * sums.second / count),
                        static_cast<A>(scale),
                        static_cast<A>(-scale * sums.first / count),
                        args.accumulate_x};
    for_runs(args, c, [&](int64_t at) {
      RunMap<T> run = all;
      run.x += at, run.gy += at, run.out += at;
      map(run, 0, args.pixels);
    });
  });
}

#define HEED_INSTANTIATE(T)                                                 \
  template void batch_norm_forward<T>(const kernels::BatchNormForward<T>&); \
  template void batch_norm_backward<T>(const kernels::BatchNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
