// What the host wants to know of a device, written into its pinned memory by one kernel: neither a copy
// engine nor a clearing of its own is needed, and a graph can hold it.
#include <algorithm>

#include <heed/kernels/capture.h>
#include <heed/kernels/cuda/runtime/device_state.cuh>

namespace heed::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 128;
constexpr size_t kMaxPieces = 32;  // of a launch

struct ReportWork {
  Piece piece[kMaxPieces];
  int count;
  ReportTarget target;
  kernels::WrongIndex* wrong;  // null if no index can have been wrong
};

// Words where both addresses allow them.
__device__ void copy_piece(std::byte* to, const std::byte* from, int64_t bytes) {
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x, step = int64_t{gridDim.x} * kThreads;
  const bool words = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 4 == 0;
  const int64_t in_words = words ? bytes / 4 : 0;
  for (int64_t i = first; i < in_words; i += step)
    reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
  for (int64_t i = in_words * 4 + first; i < bytes; i += step) to[i] = from[i];
}

// Budget: 32 registers, 0 bytes shared.
__global__ void __launch_bounds__(kThreads) report_kernel(simt::Dependent<ReportWork> arguments) {
  const ReportWork& work = arguments.wait();
  std::byte* const to = work.target.pinned != nullptr ? work.target.pinned : *work.target.where;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *reinterpret_cast<kernels::WrongIndex*>(to) = work.wrong != nullptr ? *work.wrong : kernels::WrongIndex{};
    if (work.wrong != nullptr) *work.wrong = {};
  }
  for (int i = 0; i < work.count; ++i)
    copy_piece(to + work.piece[i].place, static_cast<const std::byte*>(work.piece[i].device),
               work.piece[i].bytes);
}

}  // namespace

void report(int index, std::span<const Piece> pieces, const ReportTarget& target) {
  DeviceState& device = device_state(index);
  const cudaStream_t stream = device.stream();
  kernels::WrongIndex* wrong = device.reported_wrong_index();
  size_t done = 0;
  do {  // the last launch reports the index, since one writes none where it is given none
    ReportWork now{};
    now.target = target;
    now.count = static_cast<int>(std::min(pieces.size() - done, kMaxPieces));
    size_t most = 0;
    for (int i = 0; i < now.count; ++i) {
      now.piece[i] = pieces[done + static_cast<size_t>(i)];
      most = std::max(most, now.piece[i].bytes);
    }
    done += static_cast<size_t>(now.count);
    const int64_t blocks = std::clamp<int64_t>(simt::ceil_div<int64_t>(most / 4, kThreads), 1, kMaxBlocks);
    if (done == pieces.size()) now.wrong = wrong;
    check(simt::launch(report_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, now),
          "report");
  } while (done < pieces.size());
}

}  // namespace heed::cuda
