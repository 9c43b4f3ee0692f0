// Copies, conversions and fills of kernels/elementwise.h.
#include <heed/kernels/cuda/convert.cuh>
#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/elementwise.h>

namespace heed::cuda {
namespace {

template <class T>
__device__ __forceinline__ T sum_rounded_once(math_t<T> y, auto x) {
  if constexpr (std::is_same_v<T, bool>)
    return y || convert<bool>(x);
  else if constexpr (std::is_integral_v<T>)
    return wrapping(y, convert<T>(x), [](auto a, auto b) { return a + b; });
  else
    return convert<T>(static_cast<float>(y) + static_cast<float>(x));
}

template <class To, class From>
struct CopyOp {
  static constexpr int kOperands = 2;
  static constexpr int kWidth = 16 / static_cast<int>(sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  To* y;
  const From* x;
  bool accumulate;

  bool aligned() const { return aligned_for<kWidth>(y) && aligned_for<kWidth>(x); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[2], unsigned repeated) const {
    math_t<From> v[kWidth];
    read(v, x + at[1], repeated & 2);
    To out[kWidth];
    if (accumulate) {
      math_t<To> before[kWidth];
      load(before, y + at[0]);
      for (int j = 0; j < kWidth; ++j) out[j] = sum_rounded_once<To>(before[j], v[j]);
    } else {
      for (int j = 0; j < kWidth; ++j) out[j] = convert<To>(v[j]);
    }
    store_raw(y + at[0], out);
  }
};

// Elements as they are; Word is an unsigned type of their size.
template <class Word>
struct MoveOp {
  static constexpr int kOperands = 2, kWidth = kVectorWidth<Word>;
  Word* y;
  const Word* x;

  bool aligned() const { return aligned_for<kWidth>(y) && aligned_for<kWidth>(x); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[2], unsigned repeated) const {
    Word v[kWidth];
    read(v, x + at[1], repeated & 2);
    store_raw(y + at[0], v);
  }
};

template <class Word>
struct FillOp {
  static constexpr int kOperands = 1, kWidth = kVectorWidth<Word>;
  Word* y;
  Word value;

  bool aligned() const { return aligned_for<kWidth>(y); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[1], unsigned) const {
    Word v[kWidth];
    for (int j = 0; j < kWidth; ++j) v[j] = value;
    store_raw(y + at[0], v);
  }
};

}  // namespace

template <class To, class From>
void copy(const kernels::Copy<To, From>& args) {
  if constexpr (std::is_same_v<To, From>) {
    using Word = unsigned_of_size<sizeof(To)>;
    if (!args.accumulate)
      return elementwise("copy",
                         MoveOp<Word>{reinterpret_cast<Word*>(args.y), reinterpret_cast<const Word*>(args.x)},
                         args.index);
  }
  elementwise("copy", CopyOp<To, From>{args.y, args.x, args.accumulate}, args.index);
}

template <class T>
void fill(const kernels::Fill<T>& args) {
  using Word = unsigned_of_size<sizeof(T)>;
  Word value;
  memcpy(&value, &args.value, sizeof value);
  elementwise("fill", FillOp<Word>{reinterpret_cast<Word*>(args.y), value}, args.index);
}

#define HEED_INSTANTIATE(To)                                            \
  template void copy<To, float>(const kernels::Copy<To, float>&);       \
  template void copy<To, bfloat16>(const kernels::Copy<To, bfloat16>&); \
  template void copy<To, int64_t>(const kernels::Copy<To, int64_t>&);   \
  template void copy<To, int32_t>(const kernels::Copy<To, int32_t>&);   \
  template void copy<To, bool>(const kernels::Copy<To, bool>&);         \
  template void fill<To>(const kernels::Fill<To>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(int64_t)
HEED_INSTANTIATE(int32_t)
HEED_INSTANTIATE(bool)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
