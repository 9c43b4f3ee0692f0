#include <cstring>

#include <heed/core/base/check.h>
#include <heed/core/base/parallel_for.h>
#include <heed/core/dispatch.h>
#include <heed/core/storage.h>
#include <heed/kernels/capture.h>
#include <heed/kernels/runtime.h>

namespace heed {
namespace detail {

void fail_without_cuda(const char* what) {
  throw DeviceError(
      concat(what, ": this build of heed has no CUDA; configure with HEED_CUDA=ON, or use the cpu"));
}

void fail_f64_on_cuda(const char* kernel) {
  throw DTypeError(concat(kernel, ": f64 exists on the cpu only; use f32 or bf16 on CUDA"));
}

}  // namespace detail

namespace {

[[maybe_unused]] void check_cuda_device(Device device, const char* what) {
  const int count = cuda_device_count();
  HEED_CHECK(device.index < count, DeviceError, what, ": there is no ", device, "; this machine has ", count,
             " usable CUDA device", count == 1 ? "" : "s");
}

}  // namespace

int cuda_device_count() {
#if HEED_CUDA_AVAILABLE
  return cuda::device_count();
#else
  return 0;
#endif
}

#if HEED_CUDA_AVAILABLE
#define HEED_CUDA_CALL(what, call) call
#else
#define HEED_CUDA_CALL(what, call) detail::fail_without_cuda(what)
#endif

Allocator& allocator(Device device) {
  if (device.is_cpu()) return cpu_allocator();
#if HEED_CUDA_AVAILABLE
  check_cuda_device(device, "allocator");
  return cuda::allocator(device.index);
#else
  detail::fail_without_cuda("allocator");
#endif
}

std::string device_name(Device device) {
  if (device.is_cpu()) return "cpu";
#if HEED_CUDA_AVAILABLE
  check_cuda_device(device, "device_name");
  return cuda::device_name(device.index);
#else
  detail::fail_without_cuda("device_name");
#endif
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (bytes == 0) return;
  if (to_device.is_cpu() && from_device.is_cpu()) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
#if HEED_CUDA_AVAILABLE
  if (to_device.is_cpu())
    cuda::copy_to_host(from_device.index, to, from, static_cast<size_t>(bytes));
  else if (from_device.is_cpu())
    cuda::copy_to_device(to_device.index, to, from, static_cast<size_t>(bytes));
  else
    cuda::copy_on_device(to_device.index, to, from, static_cast<size_t>(bytes));
#else
  detail::fail_without_cuda("copy");
#endif
}

void fill_bytes(void* to, Device device, int value, int64_t bytes) {
  if (bytes == 0) return;
  if (device.is_cpu()) {
    constexpr int64_t kTaskBytes = int64_t{1} << 18;
    parallel_for(bytes, kTaskBytes, [&](int64_t begin, int64_t end) {
      std::memset(static_cast<char*>(to) + begin, value, static_cast<size_t>(end - begin));
    });
    return;
  }
  HEED_CUDA_CALL("fill", cuda::fill_bytes(device.index, to, value, static_cast<size_t>(bytes)));
}

bool is_capturing([[maybe_unused]] Device device) {
#if HEED_CUDA_AVAILABLE
  return device.is_cuda() && cuda::capture_memory(device.index) != nullptr;
#else
  return false;
#endif
}

void synchronize(Device device) {
  if (device.is_cpu()) return;
  HEED_CUDA_CALL("synchronize", cuda::synchronize(device.index));
}

Storage::Storage(Device device, int64_t bytes) : bytes_(bytes), device_(device) {
  Allocator* from = &allocator(device);
#if HEED_CUDA_AVAILABLE
  if (device.is_cuda() && (arena_ = cuda::capture_memory(device.index))) from = arena_.get();
#endif
  data_ = static_cast<std::byte*>(from->allocate(static_cast<size_t>(bytes)));
}

Storage::Storage(Ref<Storage> whole, int64_t offset, int64_t bytes)
    : data_(whole->data() + offset), bytes_(bytes), device_(whole->device()), whole_(std::move(whole)) {}

Storage::~Storage() {
  drop_copies();
  if (whole_) return;
  Allocator& from = arena_ ? *arena_ : allocator(device_);
  from.deallocate(data_, static_cast<size_t>(bytes_));
}

struct Storage::Copy : Pooled {
  Matrix matrix;
  int64_t version;        // of what was copied
  const std::byte* data;  // of `memory`, whose own line of the cache is spared
  Copy* next;
  Ref<Storage> memory;
};

const std::byte* Storage::find(const Matrix& matrix) const {
  const int64_t now = version();
  for (const Copy* copy = copies_.load(std::memory_order_acquire); copy; copy = copy->next)
    if (copy->version == now && copy->matrix == matrix) return copy->data;
  return nullptr;
}

const std::byte* Storage::keep(const Matrix& matrix, int64_t bytes, FunctionRef<void(std::byte*)> pack) {
  Ref<Storage> memory = make_ref<Storage>(device_, bytes);
  std::byte* const data = memory->data();
  pack(data);
  std::unique_ptr<Copy> mine(new Copy{{}, matrix, version(), data, nullptr, std::move(memory)});
  mine->next = copies_.load(std::memory_order_acquire);
  do {
    if (const std::byte* other = find(matrix)) return other;
  } while (!copies_.compare_exchange_weak(mine->next, mine.get(), std::memory_order_acq_rel));
  return mine.release()->data;
}

void Storage::delete_copies() {
  for (Copy* copy = copies_.exchange(nullptr); copy;) delete std::exchange(copy, copy->next);
}

}  // namespace heed
