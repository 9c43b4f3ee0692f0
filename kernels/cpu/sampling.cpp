#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/sampling.h>

namespace heed::cpu {

template <class T>
void sample(const kernels::Sample<T>& args) {
  parallel_for(args.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) kernels::sample_row(args, row);
  });
}

template void sample<float>(const kernels::Sample<float>&);
template void sample<bfloat16>(const kernels::Sample<bfloat16>&);
template void sample<double>(const kernels::Sample<double>&);

}  // namespace heed::cpu
