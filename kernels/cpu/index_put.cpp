#include <algorithm>

#include <heed/core/base/dtype.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/index_put.h>

namespace heed::cpu {

template <class T>
void index_put(const kernels::IndexPut<T>& args) {
  parallel_for(args.count, rows_per_task(args.count, args.width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (args.index[i] != kNoToken)
        std::copy_n(args.x + i * args.stride_x, args.width, args.y + args.index[i] * args.width);
  });
}

#define HEED_INSTANTIATE(T) template void index_put<T>(const kernels::IndexPut<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
