#include <heed/kernels/cuda/dropout_mask.cuh>
#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/dropout.h>

namespace heed::cuda {
namespace {

// y = accumulated or residual + dropout(x).
template <class T>
struct DropoutOp {
  static constexpr int kOperands = 1, kWidth = kDropoutGroup;
  const T* x;
  const T* added;  // or null
  T* y;
  Dropout dropout;

  bool aligned() const {
    return aligned_for<kWidth>(x) && aligned_for<kWidth>(added) && aligned_for<kWidth>(y);
  }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[1], unsigned) const {
    float v[kWidth];
    load(v, x + at[0]);
    apply_dropout(v, dropout, at[0]);
    if (added != nullptr) {
      float other[kWidth];
      load(other, added + at[0]);
      for (int j = 0; j < kWidth; ++j) v[j] += other[j];
    }
    store(y + at[0], v);
  }
};

}  // namespace

template <class T>
void dropout_forward(const kernels::DropoutForward<T>& args) {
  elementwise("dropout_forward", DropoutOp<T>{args.x, args.residual, args.y, args.dropout},
              single_run<1>(args.count));
}

template <class T>
void dropout_backward(const kernels::DropoutBackward<T>& args) {
  elementwise("dropout_backward",
              DropoutOp<T>{args.gy, args.accumulate ? args.gx : nullptr, args.gx, args.dropout},
              single_run<1>(args.count));
}

#define HEED_INSTANTIATE(T)                                            \
  template void dropout_forward<T>(const kernels::DropoutForward<T>&); \
  template void dropout_backward<T>(const kernels::DropoutBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
