// The parameters of an optimizer as a launch takes them: pieces of memory, each with a gradient, of which
// threads take a few elements at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include <heed/kernels/cuda/vector.cuh>
#include <heed/kernels/optimizer.h>

namespace heed::cuda {

inline constexpr int kPartThreads = 256;
inline constexpr int kPartWidth = 4;  // elements at once
inline constexpr int64_t kMaxPartBlocks =
    1024;  // enough to keep a GPU busy; a block works out the factors once

inline constexpr size_t kArgumentBytes = 4096, kOtherArguments = 512;
template <class Part>
inline constexpr int kParts = static_cast<int>((kArgumentBytes - kOtherArguments) /
                                               (sizeof(Part) + sizeof(int64_t)));
inline constexpr int64_t kChunk = int64_t{kPartThreads} * kPartWidth * 4;

/// Cut into chunks, which blocks take in turn.
template <class Part>
struct PartTable {
  Part parts[kParts<Part>];
  int64_t first_chunk[kParts<Part> + 1];  // of each part, and the number of chunks
  int size;

  unsigned blocks() const { return static_cast<unsigned>(std::min(first_chunk[size], kMaxPartBlocks)); }
};

/// f(part, i) for each run of kRun elements that is this thread's, i its place in the part; before the first
/// of a part all threads call begin(part).
template <int kRun, class Part, class Begin, class F>
__device__ __forceinline__ void for_each_run(const PartTable<Part>& table, const Begin& begin, const F& f) {
  int at = -1;
  for (int64_t chunk = blockIdx.x; chunk < table.first_chunk[table.size]; chunk += gridDim.x) {
    const bool is_next = chunk >= table.first_chunk[at + 1];
    while (chunk >= table.first_chunk[at + 1]) ++at;
    const Part& part = table.parts[at];
    if (is_next) begin(part);
    const int64_t first = (chunk - table.first_chunk[at]) * kChunk;
    const int64_t left = part.count - first, end = first + (left < kChunk ? left : kChunk);
#pragma unroll 4
    for (int64_t i = first + int64_t{threadIdx.x} * kRun; i < end; i += int64_t{kPartThreads} * kRun)
      f(part, i);
  }
}

/// Whether a part can be read kPartWidth elements at a time.
inline bool has_whole_vectors(const kernels::GradientPart<float>& part) {
  return part.count % kPartWidth == 0 && aligned_for<kPartWidth>(part.g);
}
template <class T>
bool has_whole_vectors(const kernels::StepPart<T>& part) {
  return part.count % kPartWidth == 0 && part.state % kPartWidth == 0 && aligned_for<kPartWidth>(part.g) &&
         aligned_for<kPartWidth>(part.value);
}

/// run(table, whether its parts are read kPartWidth elements at a time) for all parts.
template <class Part, class Run>
void for_each_table(kernels::Parts<Part> parts, bool aligned, const Run& run) {
  for (const bool vectors : {true, false}) {
    PartTable<Part> table{};
    for (const Part& part : parts) {
      if (part.count == 0 || (aligned && has_whole_vectors(part)) != vectors) continue;
      table.parts[table.size] = part;
      table.first_chunk[table.size + 1] =
          table.first_chunk[table.size] + simt::ceil_div<int64_t>(part.count, kChunk);
      if (++table.size < kParts<Part>) continue;
      run(table, vectors);
      table = {};
    }
    if (table.size > 0) run(table, vectors);
  }
}

}  // namespace heed::cuda
