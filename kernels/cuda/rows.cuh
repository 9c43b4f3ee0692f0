// Groups of threads, each of which works on one row at a time: a few lanes on short rows, a block on long
// ones.
#pragma once

#include <cstdint>
#include <type_traits>

#include <heed/kernels/cuda/vector.cuh>

namespace heed::cuda {

/// Which elements of a row one thread of a group of kThreads has: kPieces pieces of kWidth, kThreads * kWidth
/// apart. They are read once and stay in registers; in a full row each thread has all of them. With kPieces 0
/// the row is too long for that: a thread has as many as it takes, and each use reads again.
template <int kThreads_, int kWidth_, int kPieces_, bool kFull_>
struct RowLayout {
  static constexpr int kThreads = kThreads_, kWidth = kWidth_, kPieces = kPieces_;
  static constexpr bool kKeep = kPieces > 0, kFull = kFull_;
  using Index = std::conditional_t<kKeep, int, int64_t>;

  Index cols;
  int thread;

  __device__ __forceinline__ RowLayout(int64_t row_cols, int thread_of_group)
      : cols(static_cast<Index>(row_cols)), thread(thread_of_group) {}

  /// Calls f(number of the piece, its first column).
  template <class F>
  __device__ __forceinline__ void each(F f) const {
    if constexpr (kKeep) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const Index col = (i * kThreads + thread) * kWidth;
        if (kFull || col < cols) f(i, col);
      }
    } else {
      for (Index col = Index{thread} * kWidth; col < cols; col += Index{kThreads} * kWidth) f(0, col);
    }
  }
};

/// The values of a thread's pieces.
template <class Layout>
struct Pieces {
  float value[Layout::kKeep ? Layout::kPieces : 1][Layout::kWidth];
};

/// The threads of a block of kBlock that work on the same row. Groups of more than a warp have a barrier
/// each, so they need not keep step; those of one warp have to.
template <class Layout, int kBlock_ = Layout::kThreads<128 ? 128 : Layout::kThreads> struct RowGroup {
  static constexpr int kThreads = Layout::kThreads, kBlock = kBlock_, kGroups = kBlock / kThreads;
  static constexpr int kWarps = kThreads / 32;
  static_assert(kThreads <= 32 || kGroups < 16);

  static __device__ __forceinline__ int index() { return static_cast<int>(threadIdx.x) / kThreads; }
  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x) % kThreads; }

  /// The row it begins with, and how far it is from each to the next.
  static __device__ __forceinline__ int64_t first_row() { return int64_t{blockIdx.x} * kGroups + index(); }
  static __device__ __forceinline__ int64_t row_step() { return int64_t{gridDim.x} * kGroups; }
  /// Whether one of the groups of the thread's warp has a row if its own is this one.
  static __device__ __forceinline__ bool warp_has_row(int64_t row, int64_t rows) {
    return row - (kThreads < 32 ? index() % (32 / kThreads) : 0) < rows;
  }

  static __device__ __forceinline__ void sync() {
    if constexpr (kThreads <= 32)
      __syncwarp();
    else
      simt::barrier_sync(1 + index(), kThreads);
  }

  /// The group's values joined in a balanced tree, the same bits in each of its threads. All of them call it.
  /// `turn` is 0 and 1 by turns where it is called more than once with values of one type.
  template <class V, class Join>
  static __device__ __forceinline__ V join(V v, int turn, Join join_two) {
    join_lanes<(kThreads < 32 ? kThreads : 32)>(v, join_two);
    if constexpr (kThreads > 32) {
      auto& shared = simt::shared<OfWarps<V>>().value[index()][turn];
      if (threadIdx.x % 32 == 0) shared[thread() / 32] = v;
      sync();
      v = shared[threadIdx.x % kWarps];
      join_lanes<kWarps>(v, join_two);
    }
    return v;
  }

  static __device__ __forceinline__ float sum(float v, int turn = 0) {
    return join(v, turn, [](float a, float b) { return a + b; });
  }
  static __device__ __forceinline__ float2 sum(float2 v, int turn = 0) {
    return join(v, turn, [](float2 a, float2 b) { return float2{a.x + b.x, a.y + b.y}; });
  }
  /// NaN may be passed over.
  static __device__ __forceinline__ float max(float v, int turn = 0) {
    return join(v, turn, [](float a, float b) { return fmaxf(a, b); });
  }

 private:
  template <class V>
  struct OfWarps {
    V value[kGroups][2][kWarps];
  };

  static __device__ __forceinline__ float from_lane(float v, int offset) {
    return __shfl_xor_sync(0xffffffffu, v, offset);
  }
  static __device__ __forceinline__ float2 from_lane(float2 v, int offset) {
    return {from_lane(v.x, offset), from_lane(v.y, offset)};
  }

  template <int kLanes, class V, class Join>
  static __device__ __forceinline__ void join_lanes(V& v, Join join_two) {
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) v = join_two(v, from_lane(v, offset));
  }
};

/// A thread's part of one row.
template <class T, class Layout>
class RowPart {
 public:
  static constexpr int kWidth = Layout::kWidth;

  /// Of values that `row` has; what is kept is still to be filled in.
  __device__ __forceinline__ explicit RowPart(const T* row) : row_(row) {}
  __device__ __forceinline__ RowPart(const Layout& layout, const T* row) : row_(row) {
    if constexpr (Layout::kKeep) layout.each([&](int i, int col) { load(kept_.value[i], row + col); });
  }

  /// Has f(values, piece, first column) make every piece. Where they are not kept it has to store them too.
  template <class F>
  __device__ __forceinline__ void fill(const Layout& layout, F f) {
    layout.each([&](int piece, auto col) {
      float v[kWidth] = {};
      f(v, piece, col);
      if constexpr (Layout::kKeep)
#pragma unroll
        for (int j = 0; j < kWidth; ++j) kept_.value[piece][j] = v[j];
    });
  }

  __device__ __forceinline__ void read(float (&out)[kWidth], int piece, typename Layout::Index col) const {
    if constexpr (Layout::kKeep) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out[j] = kept_.value[piece][j];
    } else {
      load(out, row_ + col);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out[j] = out[j] * scale_ - pivot_;
    }
  }

  /// From now on each value v is read as v * scale - pivot. Once at most.
  __device__ __forceinline__ void map(const Layout& layout, float scale, float pivot) {
    if constexpr (Layout::kKeep) {
      layout.each([&](int piece, int) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) kept_.value[piece][j] = kept_.value[piece][j] * scale - pivot;
      });
    } else {
      scale_ = scale;
      pivot_ = pivot;
    }
  }

  /// The values that are kept. They are defined also where a thread has no column, or they would take their
  /// registers from one row to the next.
  __device__ __forceinline__ Pieces<Layout>& kept() { return kept_; }

 private:
  const T* row_;
  Pieces<Layout> kept_{};
  float scale_ = 1.0f, pivot_ = 0.0f;  // of what is not kept
};

/// The grid in which each row has its group.
template <class Group>
dim3 blocks_of_rows(int64_t rows) {
  return dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(rows, Group::kGroups)));
}

/// Calls run with the first of kThreads, kThreads * kStep, … that can keep `cols` of at most kMax elements.
template <int kThreads, int kStep, int kWidth, int kPerThread, int64_t kMax, class F>
void with_threads_for(int64_t cols, F run) {
  if constexpr (kThreads * kPerThread < kMax)
    if (cols > kThreads * kPerThread)
      return with_threads_for<kThreads * kStep, kStep, kWidth, kPerThread, kMax>(cols, run);
  if constexpr (kWidth > 1)
    if (cols == kThreads * kPerThread)
      return run.template operator()<RowLayout<kThreads, kWidth, kPerThread / kWidth, true>>();
  run.template operator()<RowLayout<kThreads, kWidth, kPerThread / kWidth, false>>();
}

/// Calls run.operator()<Layout>() with what suits rows of `cols` elements of T: kMinThreads or more, and no
/// more than a warp as long as a thread can keep the elements, at most kPerThread of 16 or 32;
/// kLongRowThreads where the row is too long to be kept.
template <class T, int kMinThreads, int kPerThread, int kLongRowThreads = 1024, class F>
void with_row_layout(int64_t cols, bool vectors, F run) {
  constexpr int kWide = kVectorWidth<T>, kMaxRowThreads = 512, kSingles = 8, kFew = 16;
  if (cols > kMaxRowThreads * (vectors ? kPerThread : kSingles))
    vectors ? run.template operator()<RowLayout<kLongRowThreads, kWide, 0, false>>()
            : run.template operator()<RowLayout<kLongRowThreads, 1, 0, false>>();
  else if (!vectors)
    with_threads_for<32, 4, 1, kSingles, kMaxRowThreads * kSingles>(cols, run);
  else if (cols <= 32 * kFew)
    with_threads_for<kMinThreads, 2, kWide, kFew, 32 * kFew>(cols, run);
  else
    with_threads_for<1024 / kPerThread, 2, kWide, kPerThread, kMaxRowThreads * kPerThread>(cols, run);
}

/// The kWidth values from column `col` on, or `absent` for each where there are none.
template <int kWidth, class T>
__device__ __forceinline__ void load_or(float (&out)[kWidth], const T* from, int64_t col, float absent) {
  if (from != nullptr) return load(out, from + col);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out[j] = absent;
}

}  // namespace heed::cuda
