// Sorting along an axis: a bitonic network by a total order, a block a line.
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/index_space.cuh>
#include <heed/kernels/cuda/vector.cuh>
#include <heed/kernels/indexing.h>

namespace heed::cuda {
namespace {

constexpr int kSortThreads = 256;
constexpr int64_t kMaxInShared = 4096;  // elements of a line; longer ones are sorted in global memory

template <class M>
struct Entries {  // of a line, as many as the next power of two
  M* values;
  int32_t* places;

  __device__ __forceinline__ bool above(int64_t i, int64_t j) const {  // whether i is larger than j
    const M a = values[i], b = values[j];
    return a != a ? b == b : a > b;
  }

  __device__ __forceinline__ void exchange(int64_t i, int64_t j) const {
    const M value = values[i];
    const int32_t place = places[i];
    values[i] = values[j], places[i] = places[j];
    values[j] = value, places[j] = place;
  }
};

// The line that a block sorts lies in shared memory if `far` holds no pointers.
// Budget: 40 registers, 0 bytes shared.
template <class T>
__global__ void __launch_bounds__(kSortThreads)
    sort_kernel(kernels::Sort<T> args, IndexSpace<3> lines, int64_t size, Entries<math_t<T>> far) {
  using M = math_t<T>;
  Entries<M> line = far;
  if (far.values == nullptr) {
    simt::Arena<> arena;
    line.values = arena.take<M>(static_cast<size_t>(size));
    line.places = arena.take<int32_t>(static_cast<size_t>(size));
  } else {
    line.values += blockIdx.x * size;
    line.places += blockIdx.x * size;
  }
  int64_t at[3];
  lines.locate(at, blockIdx.x);
  for (int64_t i = threadIdx.x; i < size; i += kSortThreads) {
    line.values[i] = i < args.n ? M(args.x[at[2] + i * args.stride_x]) : M(0);
    line.places[i] = static_cast<int32_t>(i);
  }

  const auto before = [&](int64_t i, int64_t j) {
    const bool i_is_padding = line.places[i] >= args.n, j_is_padding = line.places[j] >= args.n;
    if (i_is_padding != j_is_padding) return j_is_padding;
    if (args.descending ? line.above(i, j) : line.above(j, i)) return true;
    if (args.descending ? line.above(j, i) : line.above(i, j)) return false;
    return line.places[i] < line.places[j];
  };
  for (int64_t run = 2; run <= size; run *= 2)
    for (int64_t gap = run / 2; gap > 0; gap /= 2) {
      __syncthreads();
      for (int64_t pair = threadIdx.x; pair < size / 2; pair += kSortThreads) {
        const int64_t low = pair / gap * gap * 2 + pair % gap, high = low + gap;
        if ((low & run) == 0 ? before(high, low) : before(low, high)) line.exchange(low, high);
      }
    }
  __syncthreads();

  for (int64_t i = threadIdx.x; i < args.k; i += kSortThreads) {
    args.values[at[0] + i * args.stride_values] = T(line.values[i]);
    args.indices[at[1] + i * args.stride_indices] = line.places[i];
  }
}

}  // namespace

template <class T>
void sort(const kernels::Sort<T>& args) {
  using M = math_t<T>;
  const int64_t count = args.lines.count();
  if (count == 0 || args.k == 0) return;
  HEED_CHECK(args.n <= int64_t{1} << 30, ShapeError, "sort: lines of ", args.n,
             " elements; on CUDA at most 2^30");
  int64_t size = 1;
  while (size < args.n) size *= 2;
  const size_t entries = static_cast<size_t>(size * count);
  const bool far = size > kMaxInShared;
  const Scratch scratch(far ? entries * (sizeof(M) + sizeof(int32_t)) : 0);
  Entries<M> entry{};
  if (far) entry = {scratch.as<M>(), reinterpret_cast<int32_t*>(scratch.as<M>() + entries)};
  const size_t shared = simt::SharedLayout()
                            .template add<M>(static_cast<size_t>(size))
                            .template add<int32_t>(static_cast<size_t>(size))
                            .bytes;
  launch("sort", sort_kernel<T>, dim3(static_cast<unsigned>(count)), dim3(kSortThreads), far ? 0 : shared,
         args, IndexSpace<3>(args.lines), size, entry);
}

template void sort<float>(const kernels::Sort<float>&);
template void sort<bfloat16>(const kernels::Sort<bfloat16>&);
template void sort<int64_t>(const kernels::Sort<int64_t>&);
template void sort<int32_t>(const kernels::Sort<int32_t>&);

}  // namespace heed::cuda
