// Rows that a group of threads works on one after another, each asked for some time before it is needed.
#pragma once

#include <heed/kernels/cuda/rows.cuh>

namespace heed::cuda {

/// The multiprocessors that kernels which go over all rows are cut for, those of an H100. A constant, so that
/// the bits depend on the shape and not on the device.
inline constexpr int64_t kMultiprocessors = 132;

/// The blocks of such a kernel, of which a multiprocessor holds `resident`.
template <class Group>
dim3 blocks_over_rows(int64_t rows, int resident) {
  const int64_t enough = simt::ceil_div<int64_t>(rows, Group::kGroups), most = kMultiprocessors * resident;
  return dim3(static_cast<unsigned>(enough < most ? enough : most));
}

/// The rows first_row(), + row_step(), … of kSources matrices. What a thread keeps and can be copied 16 bytes
/// at a time is on its way to shared memory early. Each thread has a part of that to itself, so none waits
/// for another. Other rows, and all of them unless kWanted, are read when it is their turn.
template <class T, class Layout, class Group, int kSources, bool kWanted = true>
class RowStream {
 public:
  static_assert(kSources <= 2);
  static constexpr bool kEarly = kWanted && Layout::kKeep && Layout::kWidth * sizeof(T) == 16;
  static constexpr int kVectors = kSources * (kEarly ? Layout::kPieces : 1);  // of a thread, for one row
  static constexpr int kDepth = kVectors < 4 ? 2 : 1;                         // rows on their way
  static constexpr size_t kBytes = kEarly ? size_t{16} * Group::kBlock * kVectors * kDepth : 0;

  /// `second` counts only where there are two.
  __device__ __forceinline__ RowStream(const Layout& layout, int64_t rows, const T* first, const T* second)
      : layout_(layout), rows_(rows) {
    sources_[0] = first;
    if constexpr (kSources == 2) sources_[1] = second;
    if constexpr (kEarly) {
      simt::Arena<> arena;
      memory_ = arena.take<uint4>(kBytes / 16) + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kDepth; ++i) request(Group::first_row() + i * Group::row_step(), i);
    }
  }

  /// Waits for the next row's values.
  __device__ __forceinline__ void wait() const {
    if constexpr (kEarly) simt::cp_async_wait<kDepth - 1>();
  }

  /// Values of that row; `turn` is 0 and 1 by turns.
  __device__ __forceinline__ void read(float (&out)[Layout::kWidth], int source, int64_t row, int turn,
                                       int piece, typename Layout::Index col) const {
    if constexpr (kEarly)
      load(out, slot(turn, source, piece));
    else
      load(out, sources_[source] + row * layout_.cols + col);
  }

  /// They are not needed any more: asks for a later row's.
  __device__ __forceinline__ void release(int64_t row, int turn) {
    if constexpr (kEarly) request(row + kDepth * Group::row_step(), turn);
  }

 private:
  __device__ __forceinline__ T* slot(int turn, int source, int piece) const {
    return reinterpret_cast<T*>(memory_ + (turn % kDepth * kVectors + source * Layout::kPieces + piece) *
                                              Group::kBlock);
  }

  __device__ __forceinline__ void request(int64_t row, int turn) {
    if (row < rows_)
#pragma unroll
      for (int s = 0; s < kSources; ++s)
        layout_.each([&](int piece, int col) {
          simt::cp_async<16>(slot(turn, s, piece), sources_[s] + row * layout_.cols + col);
        });
    simt::cp_async_commit();
  }

  const Layout layout_;
  const T* sources_[kSources];
  const int64_t rows_;
  uint4* memory_ = nullptr;
};

/// a / b to the nearest, given 1 / b or nearly so; NaN where that overflows.
__device__ __forceinline__ float divide(float a, float b, float inverse) {
  const float quotient = a * inverse;
  return fmaf(fmaf(-quotient, b, a), inverse, quotient);
}

}  // namespace heed::cuda
