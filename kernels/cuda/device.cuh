// What the host side of every CUDA kernel uses: checked calls and launches, the device's stream, scratch
// memory.
#pragma once

#include <utility>

#include <heed/core/base/check.h>
#include <heed/core/base/memory/allocator.h>
#include <heed/kernels/simt/simt.h>

namespace heed::cuda {

/// Throws OutOfMemory or DeviceError, naming `what`, unless `error` is cudaSuccess.
void check(cudaError_t error, const char* what);

/// The device on which this thread's kernels run (set_device), and the stream in which all of its work is
/// ordered.
int current_device();
cudaStream_t current_stream();
/// Its multiprocessors.
int multiprocessors();

/// A counter in the device's memory that is 0 whenever no kernel uses it, for is_last_block (last_block.cuh).
/// Launches of which one may begin before the other is over get different ones.
unsigned* launch_counter();

/// Launches on the current stream, and checks the launch. `what` names the operation for messages.
template <class... Parameters, class... Arguments>
void launch(const char* what, void (*kernel)(Parameters...), simt::Grid grid, dim3 block, size_t shared_bytes,
            Arguments&&... arguments) {
  check(simt::launch(kernel, grid, block, shared_bytes, current_stream(),
                     std::forward<Arguments>(arguments)...),
        what);
}

/// Device memory for the kernels that are launched while this object lives. It may be reused as soon as they
/// are launched, since everything on a device runs in the order of one stream.
class Scratch {
 public:
  explicit Scratch(size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(pointer_);
  }

 private:
  Allocator* allocator_;
  void* pointer_;
  size_t bytes_;
};

}  // namespace heed::cuda
