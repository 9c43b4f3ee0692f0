// A group of threads that works on one row: a warp on short rows, a block on long ones.
#pragma once

#include <cstdint>
#include <type_traits>

#include <heed/kernels/cuda/vector.cuh>

namespace heed::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr int kBlockThreads = 256;
inline constexpr int kWarpsPerBlock = 4;  // rows of a block where a warp takes a row
inline constexpr int kPerThread = 32;     // elements of a row that a thread can keep in registers

template <int kThreads>
inline constexpr int kGroupsPerBlock = kThreads == kWarpThreads ? kWarpsPerBlock : 1;
template <int kThreads>
inline constexpr int kThreadsPerBlock = kThreads* kGroupsPerBlock<kThreads>;
/// The longest row that a group keeps in registers.
template <int kThreads>
inline constexpr int kKeptCols = kThreads* kPerThread;

template <int kThreads>
struct GroupSums {
  float2 warp[kThreads / 32];
};

/// Sums of v.x and v.y over the group, the same bits in each of its threads. All threads of the group call
/// it; a group of more than a warp is the whole block.
template <int kThreads>
__device__ __forceinline__ float2 group_sum(float2 v) {
  v.x = simt::warp_sum(v.x);
  v.y = simt::warp_sum(v.y);
  if constexpr (kThreads > 32) {
    auto& sums = simt::shared<GroupSums<kThreads>>();
    if (threadIdx.x % 32 == 0) sums.warp[threadIdx.x / 32] = v;
    __syncthreads();
    v = sums.warp[0];
#pragma unroll
    for (int i = 1; i < kThreads / 32; ++i) {
      v.x += sums.warp[i].x;
      v.y += sums.warp[i].y;
    }
    __syncthreads();  // before the next call writes
  }
  return v;
}

template <int kThreads>
__device__ __forceinline__ float group_sum(float v) {
  return group_sum<kThreads>(float2{v, 0.0f}).x;
}

template <int kThreads>
struct GroupMaxima {
  float warp[kThreads / 32];
};

/// The largest of the group's values; NaN may be passed over.
template <int kThreads>
__device__ __forceinline__ float group_max(float v) {
  v = simt::warp_max(v);
  if constexpr (kThreads > 32) {
    auto& maxima = simt::shared<GroupMaxima<kThreads>>();
    if (threadIdx.x % 32 == 0) maxima.warp[threadIdx.x / 32] = v;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kThreads / 32; ++i) v = fmaxf(v, maxima.warp[i]);
    __syncthreads();  // before the next call writes
  }
  return v;
}

/// Which elements of a row one thread of a group has: pieces of kWidth, kThreads * kWidth apart. With kKeep
/// they are read once and stay in registers, which takes a row of at most kKeptCols<kThreads>; without, each
/// use reads again.
template <int kThreads, int kWidth, bool kKeep>
struct RowLayout {
  using Index = std::conditional_t<kKeep, int, int64_t>;
  static constexpr int kPieces = kKeep ? kPerThread / kWidth : 1;

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
        if (col < cols) f(i, col);
      }
    } else {
      for (Index col = Index{thread} * kWidth; col < cols; col += Index{kThreads} * kWidth) f(0, col);
    }
  }
};

/// A thread's part of one row.
template <class T, int kThreads, int kWidth, bool kKeep>
class RowPart {
 public:
  using Layout = RowLayout<kThreads, kWidth, kKeep>;

  __device__ __forceinline__ RowPart(const Layout& layout, const T* row) : row_(row) {
    if constexpr (kKeep) layout.each([&](int i, int col) { load(kept_[i], row_ + col); });
  }

  __device__ __forceinline__ void read(float (&out)[kWidth], int piece, typename Layout::Index col) const {
    if constexpr (kKeep) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out[j] = kept_[piece][j];
    } else {
      load(out, row_ + col);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out[j] = out[j] * scale_ - pivot_;
    }
  }

  /// From now on each value v is read as v * scale - pivot. Once at most.
  __device__ __forceinline__ void map(const Layout& layout, float scale, float pivot) {
    if constexpr (kKeep) {
      layout.each([&](int piece, int) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) kept_[piece][j] = kept_[piece][j] * scale - pivot;
      });
    } else {
      scale_ = scale;
      pivot_ = pivot;
    }
  }

  /// Applies f(values, first column) to every piece. f stores what it makes in `row`, from where values that
  /// are not kept are read afterwards.
  template <class F>
  __device__ __forceinline__ void transform(const Layout& layout, const T* row, F f) {
    layout.each([&](int piece, auto col) {
      float v[kWidth];
      read(v, piece, col);
      f(v, col);
      if constexpr (kKeep)
#pragma unroll
        for (int j = 0; j < kWidth; ++j) kept_[piece][j] = v[j];
    });
    row_ = row;
  }

 private:
  const T* row_;
  float kept_[Layout::kPieces][kWidth];
  float scale_ = 1.0f, pivot_ = 0.0f;  // of what is not kept
};

/// The grid in which each row has its group.
template <int kThreads>
dim3 blocks_of_rows(int64_t rows) {
  return dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(rows, kGroupsPerBlock<kThreads>)));
}

/// Calls run.operator()<kThreads, kWidth, kKeep>() with what suits rows of `cols` elements of T.
template <class T, class F>
void with_row_layout(int64_t cols, bool vectors, F run) {
  constexpr int kWide = kVectorWidth<T>;
  if (cols <= kKeptCols<kWarpThreads>) {
    vectors ? run.template operator()<kWarpThreads, kWide, true>()
            : run.template operator()<kWarpThreads, 1, true>();
  } else if (cols <= kKeptCols<kBlockThreads>) {
    vectors ? run.template operator()<kBlockThreads, kWide, true>()
            : run.template operator()<kBlockThreads, 1, true>();
  } else {
    vectors ? run.template operator()<kBlockThreads, kWide, false>()
            : run.template operator()<kBlockThreads, 1, false>();
  }
}

/// The kWidth values from column `col` on, or `absent` for each where there are none.
template <int kWidth, class T>
__device__ __forceinline__ void load_or(float (&out)[kWidth], const T* from, int64_t col, float absent) {
  if (from != nullptr) return load(out, from + col);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out[j] = absent;
}

}  // namespace heed::cuda
