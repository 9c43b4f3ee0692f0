#include <cstring>

#include <heed/core/base/check.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/capture.h>
#include <heed/kernels/runtime.h>

namespace heed {
namespace detail {

void fail_without_cuda(const char* what) {
  throw DeviceError(
      concat(what, ": this build of heed has no CUDA; configure with HEED_CUDA=ON, or use the cpu"));
}

void fail_without_kernel(const char* kernel, Device device, bool f64) {
  HEED_CHECK(!f64 || backend(device).f64, DTypeError, kernel,
             ": f64 exists on the cpu only; use f32 or bf16 on ", device);
  throw DeviceError(concat(kernel, ": ", device, " has no kernel for this; move the operands to the cpu"));
}

}  // namespace detail

namespace {

void copy_in_host(int, void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void fill_in_host(int, void* to, int value, int64_t bytes) {
  constexpr int64_t kTaskBytes = int64_t{1} << 18;
  parallel_for(bytes, kTaskBytes, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(to) + begin, value, static_cast<size_t>(end - begin));
  });
}

constexpr Backend kCpuBackend{.host_memory = true,
                              .f64 = true,
                              .repeats_steps = false,
                              .saves_dropout_masks = true,
                              .inverts_post_norms = false,
                              .row_alignment = 1,
                              .device_count = [] { return 1; },
                              .device_name = [](int) { return std::string("cpu"); },
                              .allocator = [](int) -> Allocator& { return cpu_allocator(); },
                              .copy_from_host = copy_in_host,
                              .copy_to_host = copy_in_host,
                              .copy = copy_in_host,
                              .fill = fill_in_host,
                              .synchronize = [](int) {},
                              .capture_memory = [](int) { return std::shared_ptr<Allocator>(); }};

#if HEED_CUDA_AVAILABLE

void check_cuda_device(int index, const char* what) {
  const int count = cuda::device_count();
  HEED_CHECK(index < count, DeviceError, what, ": there is no ", cuda_device(index), "; this machine has ",
             count, " usable CUDA device", count == 1 ? "" : "s");
}

constexpr Backend kCudaBackend{
    .host_memory = false,
    .f64 = false,
    .repeats_steps = true,
    .saves_dropout_masks = false,
    .inverts_post_norms = true,
    .row_alignment = 16,
    .device_count = cuda::device_count,
    .device_name =
        [](int index) {
          check_cuda_device(index, "device_name");
          return cuda::device_name(index);
        },
    .allocator = [](int index) -> Allocator& {
      check_cuda_device(index, "allocator");
      return cuda::allocator(index);
    },
    .copy_from_host =
        [](int index, void* to, const void* from, int64_t bytes) {
          cuda::copy_to_device(index, to, from, static_cast<size_t>(bytes));
        },
    .copy_to_host = [](int index, void* to, const void* from,
                       int64_t bytes) { cuda::copy_to_host(index, to, from, static_cast<size_t>(bytes)); },
    .copy = [](int index, void* to, const void* from,
               int64_t bytes) { cuda::copy_on_device(index, to, from, static_cast<size_t>(bytes)); },
    .fill = [](int index, void* to, int value,
               int64_t bytes) { cuda::fill_bytes(index, to, value, static_cast<size_t>(bytes)); },
    .synchronize = cuda::synchronize,
    .capture_memory = cuda::capture_memory};

#else

[[noreturn]] void fail_to_copy(int, void*, const void*, int64_t) { detail::fail_without_cuda("copy"); }

constexpr Backend kCudaBackend{
    .host_memory = false,
    .f64 = false,
    .repeats_steps = true,
    .saves_dropout_masks = false,
    .inverts_post_norms = true,
    .row_alignment = 16,
    .device_count = [] { return 0; },
    .device_name = [](int) -> std::string { detail::fail_without_cuda("device_name"); },
    .allocator = [](int) -> Allocator& { detail::fail_without_cuda("allocator"); },
    .copy_from_host = fail_to_copy,
    .copy_to_host = fail_to_copy,
    .copy = fail_to_copy,
    .fill = [](int, void*, int, int64_t) { detail::fail_without_cuda("fill"); },
    .synchronize = [](int) { detail::fail_without_cuda("synchronize"); },
    .capture_memory = [](int) { return std::shared_ptr<Allocator>(); }};

#endif

}  // namespace

constinit const Backend detail::backends[] = {kCpuBackend, kCudaBackend};

}  // namespace heed
