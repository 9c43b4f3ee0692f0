#include <heed/kernels/cuda/convert.cuh>
#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/cuda/indexing/sorted_rows.cuh>
#include <heed/kernels/cuda/indexing/wrong_index.cuh>
#include <heed/kernels/embedding.h>
#include <heed/kernels/indexing.h>

namespace heed::cuda {
namespace {

using kernels::IndexUse;

// What a wrong index chooses: NaN, so that a step does not learn from it; false of bool.
template <class Bits>
constexpr Bits kPoison = sizeof(Bits) == 1 ? Bits(0) : static_cast<Bits>(~Bits(0));

template <class Bits>
struct GatherOp {
  static constexpr int kOperands = 3, kWidth = 1;
  Bits* y;
  const int64_t* index;
  const Bits* x;
  int64_t stride;
  bool gaps;
  IndexGuard guard;

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    const int64_t from = index[at[1]];
    if (gaps && from == kNoToken)
      y[at[0]] = 0;
    else
      y[at[0]] = guard.holds(from, gaps ? at[1] : at[0]) ? x[at[2] + from * stride] : kPoison<Bits>;
  }
};

template <class A>
__device__ __forceinline__ A scattered(ScatterOp op, A a, A b) {
  const auto arithmetic = [&](auto f) {
    if constexpr (std::is_integral_v<A>)
      return wrapping(a, b, f);
    else
      return f(a, b);
  };
  switch (op) {
    case ScatterOp::replace:
      return b;
    case ScatterOp::add:
      return arithmetic([](auto x, auto y) { return x + y; });
    case ScatterOp::multiply:
      return arithmetic([](auto x, auto y) { return x * y; });
    case ScatterOp::max:
      return b > a || b != b ? b : a;
    case ScatterOp::min:
      return b < a || b != b ? b : a;
  }
  return a;
}

// A thread a line: the order of the index, and nobody else writes there.
template <class T>
struct ScatterLine {
  static constexpr int kOperands = 3, kWidth = 1;
  kernels::Scatter<T> args;
  IndexGuard guard;

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    using A = math_t<T>;
    for (int64_t i = 0; i < args.n; ++i) {
      const int64_t place = at[1] + i * args.stride_index, target = args.index[place];
      if (args.use == IndexUse::index_select && target == kNoToken) continue;
      if (!guard.holds(target, place)) continue;
      A& to = args.y[at[0] + target * args.stride_y];
      to = scattered(args.op, to, static_cast<A>(args.source[at[2] + i * args.stride_source]));
    }
  }
};

struct CompactOp {
  static constexpr int kOperands = 1, kWidth = 1;
  kernels::Compact args;

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[1], unsigned) const {
    if (args.mask[at[0]]) args.y[args.place[at[0]] - 1] = at[0];
  }
};

template <class Bits>
struct SelectOp {
  static constexpr int kOperands = 3, kWidth = kVectorWidth<Bits>;
  Bits* y;
  const Bits* x;
  const int64_t* index;
  int64_t width;
  IndexGuard guard;

  bool aligned() const { return aligned_for<kWidth>(y) && aligned_for<kWidth>(x); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    const int64_t from = index[at[1]];
    Bits v[kWidth] = {};
    if (from != kNoToken) {
      if (guard.holds(from, at[1]))
        load_raw(v, x + from * width + at[2]);
      else
        for (Bits& value : v) value = kPoison<Bits>;
    }
    store_raw(y + at[0], v);
  }
};

template <class Bits>
struct TriangleOp {
  static constexpr int kOperands = 3, kWidth = kVectorWidth<Bits>;
  Bits* y;
  const Bits* x;
  int64_t rows, diagonal;
  bool lower;

  bool aligned() const { return aligned_for<kWidth>(y) && aligned_for<kWidth>(x); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    Bits v[kWidth];
    load_raw(v, x + at[0]);
    const int64_t row = at[1] % rows;
    for (int j = 0; j < kWidth; ++j) {
      const int64_t above = at[2] + j - row;  // the column's distance from the main diagonal
      if (lower ? above > diagonal : above < diagonal) v[j] = 0;
    }
    store_raw(y + at[0], v);
  }
};

template <class T>
struct OneHotOp {
  static constexpr int kOperands = 3, kWidth = kVectorWidth<T>;
  T* y;
  const int64_t* ids;
  IndexGuard guard;

  bool aligned() const { return aligned_for<kWidth>(y); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    const int64_t id = ids[at[1]];
    guard.holds(id, at[1]);
    math_t<T> v[kWidth];
    for (int j = 0; j < kWidth; ++j) v[j] = static_cast<math_t<T>>(at[2] + j == id ? 1 : 0);
    store(y + at[0], v);
  }
};

}  // namespace

template <class T>
void gather(const kernels::Gather<T>& args) {
  using Bits = unsigned_of_size<sizeof(T)>;
  elementwise(
      "gather",
      GatherOp<Bits>{reinterpret_cast<Bits*>(args.y), args.index, reinterpret_cast<const Bits*>(args.x),
                     args.stride_x, args.use == IndexUse::index_select, IndexGuard(args.use, args.entries)},
      args.space);
}

template <class T>
void scatter(const kernels::Scatter<T>& args) {
  elementwise("scatter", ScatterLine<T>{args, IndexGuard(args.use, args.entries)}, args.lines);
}

void compact(const kernels::Compact& args) {
  elementwise("compact", CompactOp{args}, single_run<1>(args.count));
}

template <class T>
void index_select(const kernels::IndexSelect<T>& args) {
  using Bits = unsigned_of_size<sizeof(T)>;
  elementwise("index_select",
              SelectOp<Bits>{reinterpret_cast<Bits*>(args.y), reinterpret_cast<const Bits*>(args.x),
                             args.index, args.width, IndexGuard(IndexUse::index_select, args.rows)},
              rows_and_columns(args.count, args.width));
}

template <class T>
void index_select_backward(const kernels::IndexSelectBackward<T>& args) {
  sum_rows("index_select_backward", RowSums<T>{.rows = {args.index, nullptr, kNoToken, args.count, args.rows},
                                               .from = args.gy,
                                               .to = args.gx,
                                               .cols = args.width,
                                               .dropout = {},
                                               .scale = 1.0f,
                                               .accumulate = true});
}

template <class T>
void triangle(const kernels::Triangle<T>& args) {
  using Bits = unsigned_of_size<sizeof(T)>;
  elementwise("triangle",
              TriangleOp<Bits>{reinterpret_cast<Bits*>(args.y), reinterpret_cast<const Bits*>(args.x),
                               args.rows, args.diagonal, args.lower},
              rows_and_columns(args.matrices * args.rows, args.cols));
}

template <class T>
void one_hot(const kernels::OneHot<T>& args) {
  elementwise("one_hot", OneHotOp<T>{args.y, args.ids, IndexGuard(IndexUse::one_hot, args.classes)},
              rows_and_columns(args.count, args.classes));
}

#define HEED_INSTANTIATE(T)                                      \
  template void gather<T>(const kernels::Gather<T>&);            \
  template void index_select<T>(const kernels::IndexSelect<T>&); \
  template void triangle<T>(const kernels::Triangle<T>&);        \
  template void one_hot<T>(const kernels::OneHot<T>&);
#define HEED_INSTANTIATE_NUMBER(T) \
  HEED_INSTANTIATE(T)              \
  template void scatter<T>(const kernels::Scatter<T>&);
HEED_INSTANTIATE_NUMBER(float)
HEED_INSTANTIATE_NUMBER(bfloat16)
HEED_INSTANTIATE_NUMBER(int64_t)
HEED_INSTANTIATE_NUMBER(int32_t)
HEED_INSTANTIATE(bool)
template void index_select_backward<float>(const kernels::IndexSelectBackward<float>&);
template void index_select_backward<bfloat16>(const kernels::IndexSelectBackward<bfloat16>&);
#undef HEED_INSTANTIATE_NUMBER
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
