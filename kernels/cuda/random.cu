#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/random.h>

namespace heed::cuda {
namespace {

constexpr int kThreads = 256;

// y[4 group + j] = make(group, upper and lower words)(j).
// Budget: 32 registers, 0 bytes shared.
template <class T, class Make>
__global__ void __launch_bounds__(kThreads) fill_kernel(T* y, int64_t count, PhiloxState rng, Make make) {
  const int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x, first = 4 * group;
  const auto value = make(rng, group);
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (first + j < count) y[first + j] = value(j);
}

template <class T>
struct MakeUniform {
  kernels::UniformRange<T> range;

  struct Group {
    const kernels::UniformRange<T>& range;
    Philox4 upper;
    __device__ T operator()(int j) const { return range((upper.word[j] >> 8) * 0x1p-24); }
  };
  __device__ Group operator()(const PhiloxState& rng, int64_t group) const {
    return {range, kernels::fill_words(rng, group, 0)};
  }
};

template <class T>
struct MakeNormal {
  kernels::NormalScale<T> scale;

  struct Group {
    T value[4];
    __device__ T operator()(int j) const { return value[j]; }
  };
  __device__ Group operator()(const PhiloxState& rng, int64_t group) const {
    const Philox4 words = kernels::fill_words(rng, group, 0);
    const auto a = kernels::box_muller(words.word[0], words.word[1]);
    const auto b = kernels::box_muller(words.word[2], words.word[3]);
    return {{scale(a.cosine), scale(a.sine), scale(b.cosine), scale(b.sine)}};
  }
};

struct MakeIntegers {
  kernels::IntegerRange range;

  struct Group {
    const kernels::IntegerRange& range;
    Philox4 upper, lower;
    __device__ int64_t operator()(int j) const { return range(kernels::join(upper.word[j], lower.word[j])); }
  };
  __device__ Group operator()(const PhiloxState& rng, int64_t group) const {
    return {range, kernels::fill_words(rng, group, 0), kernels::fill_words(rng, group, 1)};
  }
};

template <class T, class Make>
void fill(const char* what, T* y, int64_t count, const PhiloxState& rng, const Make& make) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(simt::ceil_div<int64_t>(count, 4 * kThreads));
  launch(what, fill_kernel<T, Make>, dim3(blocks), dim3(kThreads), 0, y, count, rng, make);
}

}  // namespace

template <class T>
void fill_uniform(const kernels::FillUniform<T>& args) {
  fill("fill_uniform", args.y, args.count, args.rng,
       MakeUniform<T>{kernels::UniformRange<T>(args.low, args.high)});
}

template <class T>
void fill_normal(const kernels::FillNormal<T>& args) {
  fill("fill_normal", args.y, args.count, args.rng,
       MakeNormal<T>{kernels::NormalScale<T>(args.mean, args.std)});
}

void fill_integers(const kernels::FillIntegers& args) {
  fill("fill_integers", args.y, args.count, args.rng,
       MakeIntegers{kernels::IntegerRange(args.low, args.high)});
}

template void fill_uniform<float>(const kernels::FillUniform<float>&);
template void fill_uniform<bfloat16>(const kernels::FillUniform<bfloat16>&);
template void fill_normal<float>(const kernels::FillNormal<float>&);
template void fill_normal<bfloat16>(const kernels::FillNormal<bfloat16>&);

}  // namespace heed::cuda
