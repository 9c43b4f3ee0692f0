#include <heed/kernels/cuda/convert.cuh>
#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/cuda/indexing/wrong_index.cuh>
#include <heed/kernels/embedding.h>
#include <heed/kernels/index_put.h>

namespace heed::cuda {
namespace {

template <class Bits>
struct PutOp {
  static constexpr int kOperands = 3, kWidth = kVectorWidth<Bits>;
  Bits* y;
  const Bits* x;
  const int64_t* index;
  int64_t width, stride_x;
  IndexGuard guard;

  bool aligned() const { return aligned_for<kWidth>(y) && aligned_for<kWidth>(x) && stride_x % kWidth == 0; }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    const int64_t to = index[at[1]];
    if (to == kNoToken || !guard.holds(to, at[1])) return;
    Bits v[kWidth];
    load_raw(v, x + at[1] * stride_x + at[2]);
    store_raw(y + to * width + at[2], v);
  }
};

}  // namespace

template <class T>
void index_put(const kernels::IndexPut<T>& args) {
  using Bits = unsigned_of_size<sizeof(T)>;
  elementwise("index_put",
              PutOp<Bits>{reinterpret_cast<Bits*>(args.y), reinterpret_cast<const Bits*>(args.x), args.index,
                          args.width, args.stride_x, IndexGuard(kernels::IndexUse::index_put, args.rows)},
              rows_and_columns(args.count, args.width));
}

template void index_put<float>(const kernels::IndexPut<float>&);
template void index_put<bfloat16>(const kernels::IndexPut<bfloat16>&);

}  // namespace heed::cuda
