#include <algorithm>
#include <limits>

#include <heed/kernels/cuda/convert.cuh>
#include <heed/kernels/cuda/lanes.cuh>
#include <heed/kernels/reduce.h>

namespace heed::cuda {
namespace {

using kernels::reduced_t;
using kernels::ReduceOp;

// Where the terms of each result are.
template <class T>
struct Terms {
  const T* x;
  IndexSpace<2> kept;     // y, x
  IndexSpace<1> reduced;  // x

  __device__ __forceinline__ int64_t at(int64_t first, int64_t term) const {
    int64_t place[1];
    reduced.locate(place, term);
    return first + place[0];
  }
};

// The operations that add up, in double or 64-bit integers.
template <class T>
struct SumOp {
  using Element = T;
  using A = std::conditional_t<kIsFloating<T>, double, uint64_t>;
  ReduceOp op;
  reduced_t<T>* y;
  const reduced_t<T>* centre;
  double scale;

  __device__ static A identity() { return 0; }
  __device__ static A join(A a, A b) { return a + b; }
  __device__ __forceinline__ A lift(math_t<T> x, int64_t to, int64_t) const {
    if constexpr (!kIsFloating<T>) {
      return static_cast<A>(x);
    } else {
      if (op == ReduceOp::norm) return double(x) * double(x);
      if (op == ReduceOp::sum_exponential) return expf(x - centre[to]);
      if (op != ReduceOp::sum_squared_gap) return x;
      const double gap = double(x) - double(centre[to]);
      return gap * gap;
    }
  }
  __device__ __forceinline__ void finish(int64_t to, A sum) const {
    if constexpr (kIsFloating<T>) sum *= scale;
    if constexpr (kIsFloating<T>)
      if (op == ReduceOp::norm) sum = sqrt(sum);
    y[to] = static_cast<reduced_t<T>>(sum);
  }
};

template <class T>
struct ExtremumOp {
  using Element = T;
  using A = std::conditional_t<std::is_same_v<T, bool>, uint8_t, math_t<T>>;
  bool largest;
  reduced_t<T>* y;
  A nothing;  // of no terms

  ExtremumOp(bool of_largest, reduced_t<T>* to) : largest(of_largest), y(to) {
    using Limits = std::numeric_limits<A>;
    const A least = Limits::has_infinity ? A(-Limits::infinity()) : Limits::lowest();
    const A greatest = Limits::has_infinity ? Limits::infinity() : Limits::max();
    nothing = largest ? least : greatest;
  }

  __device__ A identity() const { return nothing; }
  __device__ __forceinline__ A join(A a, A b) const { return (largest ? a > b : a < b) || a != a ? a : b; }
  __device__ static A lift(math_t<T> x, int64_t, int64_t) { return x; }
  __device__ __forceinline__ void finish(int64_t to, A best) const {
    y[to] = static_cast<reduced_t<T>>(best);
  }
};

template <class M>
struct Candidate {
  M value;
  int64_t place;  // -1: none
};

template <class T>
struct ArgOp {
  using Element = T;
  using A = Candidate<math_t<T>>;
  bool largest;
  int64_t* y;

  __device__ static A identity() { return {math_t<T>(0), -1}; }
  __device__ __forceinline__ bool wins(A a, A b) const {
    if (a.place < 0 || b.place < 0) return b.place < 0;
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    if (a_is_nan != b_is_nan) return a_is_nan;
    if (a_is_nan || a.value == b.value) return a.place < b.place;
    return largest ? a.value > b.value : a.value < b.value;
  }
  __device__ __forceinline__ A join(A a, A b) const { return wins(a, b) ? a : b; }
  __device__ static A lift(math_t<T> x, int64_t, int64_t term) { return {x, term}; }
  __device__ __forceinline__ void finish(int64_t to, A best) const { y[to] = best.place; }
};

// partials: [gridDim.y][results], or null: the results are final.
// Budget: 48 registers, 4096 bytes shared.
template <class Op, bool kVectors>
__global__ void __launch_bounds__(kLaneThreads)
    reduce_kernel(Op op, Terms<typename Op::Element> terms, Lanes lanes, typename Op::A* partials) {
  constexpr int kWidth = kVectors ? kVectorWidth<typename Op::Element> : 1;
  using A = typename Op::A;
  const LanePlace me(lanes);
  int64_t at[2] = {0, 0};
  A sum = op.identity();
  if (me.result < lanes.results) {
    terms.kept.locate(at, me.result);
#pragma unroll 4
    for (int64_t term = me.first; term < me.last; term += lanes.lanes) {
      math_t<typename Op::Element> v[kWidth];
      load(v, terms.x + (kVectors ? at[1] + term * kWidth : terms.at(at[1], term)));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum = op.join(sum, op.lift(v[j], at[0], term * kWidth + j));
    }
  }
  sum = join_lanes(lanes, me, sum, [&](A a, A b) { return op.join(a, b); });
  if (me.lane != 0 || me.result >= lanes.results) return;
  if (partials != nullptr)
    simt::store_as(partials + blockIdx.y * lanes.results + me.result, sum);  // with what pads it
  else
    op.finish(at[0], sum);
}

// Joins the partial results.
// Budget: 40 registers, 4096 bytes shared.
template <class Op>
__global__ void __launch_bounds__(kLaneThreads)
    join_kernel(Op op, IndexSpace<2> kept, Lanes lanes, const typename Op::A* partials) {
  using A = typename Op::A;
  const LanePlace me(lanes);
  A sum = op.identity();
  if (me.result < lanes.results)
    for (int64_t i = me.first; i < me.last; i += lanes.lanes)
      sum = op.join(sum, partials[i * lanes.results + me.result]);
  sum = join_lanes(lanes, me, sum, [&](A a, A b) { return op.join(a, b); });
  if (me.lane != 0 || me.result >= lanes.results) return;
  int64_t at[2];
  kept.locate(at, me.result);
  op.finish(at[0], sum);
}

// Whether each result's terms lie side by side and start where vectors can.
template <class T>
bool terms_are_vectors(const T* x, const Strided<2>& kept, const Strided<1>& reduced) {
  constexpr int kWidth = kVectorWidth<T>;
  if (reduced.rank != 1 || reduced.strides[0][0] != 1 || reduced.sizes[0] % kWidth != 0) return false;
  for (int axis = 0; axis < kept.rank; ++axis)
    if (kept.strides[1][axis] % kWidth != 0) return false;
  return aligned_for<kWidth>(x);
}

// Whether the elements that lie side by side belong to different results.
bool neighbours_are_results(const Strided<2>& kept, const Strided<1>& reduced) {
  if (kept.rank == 0) return false;
  if (reduced.rank == 0) return true;
  return kept.strides[1][kept.rank - 1] < reduced.strides[0][reduced.rank - 1];
}

template <class Op, class T = typename Op::Element>
void run(const char* what, const Op& op, const T* x, const Strided<2>& kept, const Strided<1>& reduced) {
  const int64_t results = kept.count();
  if (results == 0) return;
  const bool vectors = terms_are_vectors(x, kept, reduced);
  const int64_t items = reduced.count() / (vectors ? kVectorWidth<T> : 1);
  const Lanes lanes(results, items, neighbours_are_results(kept, reduced));
  const Scratch scratch(lanes.chunks == 1 ? 0 : sizeof(typename Op::A) * size_t(lanes.chunks * results));
  auto* const partials = lanes.chunks == 1 ? nullptr : scratch.as<typename Op::A>();
  const Terms<T> terms{x, IndexSpace<2>(kept), IndexSpace<1>(reduced)};
  launch(what, vectors ? reduce_kernel<Op, true> : reduce_kernel<Op, false>, lanes.grid(), dim3(kLaneThreads),
         0, op, terms, lanes, partials);
  if (partials == nullptr) return;
  const Lanes joining(results, lanes.chunks, true, 1);
  launch(what, join_kernel<Op>, joining.grid(), dim3(kLaneThreads), 0, op, terms.kept, joining, partials);
}

constexpr int kScanWarps = 4;

// A warp a line.
// Budget: 32 registers, 0 bytes shared.
template <class T>
__global__ void __launch_bounds__(kScanWarps * 32)
    cumulative_sum_kernel(kernels::CumSum<T> args, IndexSpace<2> lines, int64_t count) {
  using A = typename SumOp<T>::A;
  const int64_t line = int64_t{blockIdx.x} * kScanWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (line >= count) return;
  int64_t at[2];
  lines.locate(at, line);
  A before = 0;
  for (int64_t begin = 0; begin < args.n; begin += 32) {
    const bool inside = begin + lane < args.n;
    const int64_t i = args.reverse ? args.n - 1 - begin - lane : begin + lane;
    A sum = inside ? static_cast<A>(static_cast<math_t<T>>(args.x[at[1] + i * args.stride_x])) : A(0);
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const A left = __shfl_up_sync(0xffffffffu, sum, offset);
      if (lane >= offset) sum += left;
    }
    sum += before;
    before = __shfl_sync(0xffffffffu, sum, 31);
    if (!inside) continue;
    T& to = args.y[at[0] + i * args.stride_y];
    if (args.accumulate) sum += static_cast<A>(static_cast<math_t<T>>(to));
    to = convert<T>(static_cast<math_t<T>>(sum));
  }
}

}  // namespace

template <class T>
void reduce(const kernels::Reduce<T>& args) {
  const bool largest = args.op == ReduceOp::maximum;
  if (largest || args.op == ReduceOp::minimum)
    run("reduce", ExtremumOp<T>(largest, args.y), args.x, args.kept, args.reduced);
  else
    run("reduce", SumOp<T>{args.op, args.y, args.centre, args.scale}, args.x, args.kept, args.reduced);
}

template <class T>
void arg_reduce(const kernels::ArgReduce<T>& args) {
  Strided<1> axis{};
  axis.rank = 1;
  axis.sizes[0] = args.n;
  axis.strides[0][0] = args.stride;
  run("arg_reduce", ArgOp<T>{args.largest, args.y}, args.x, args.lines, axis);
}

template <class T>
void cumsum(const kernels::CumSum<T>& args) {
  const int64_t count = args.lines.count();
  if (count == 0 || args.n == 0) return;
  launch("cumsum", cumulative_sum_kernel<T>,
         dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(count, kScanWarps))), dim3(kScanWarps * 32), 0,
         args, IndexSpace<2>(args.lines), count);
}

#define HEED_INSTANTIATE(T)                                  \
  template void reduce<T>(const kernels::Reduce<T>&);        \
  template void arg_reduce<T>(const kernels::ArgReduce<T>&); \
  template void cumsum<T>(const kernels::CumSum<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(int64_t)
HEED_INSTANTIATE(int32_t)
template void reduce<bool>(const kernels::Reduce<bool>&);
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
