#include <utility>

#include <heed/core/runtime/backend.h>
#include <heed/core/storage.h>

namespace heed {

int cuda_device_count() { return backend(cuda_device()).device_count(); }

Allocator& allocator(Device device) { return backend(device).allocator(device.index); }

std::string device_name(Device device) { return backend(device).device_name(device.index); }

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (bytes == 0) return;
  const Backend &target = backend(to_device), &source = backend(from_device);
  if (target.host_memory)
    source.copy_to_host(from_device.index, to, from, bytes);
  else if (source.host_memory)
    target.copy_from_host(to_device.index, to, from, bytes);
  else
    target.copy(to_device.index, to, from, bytes);
}

void fill_bytes(void* to, Device device, int value, int64_t bytes) {
  if (bytes > 0) backend(device).fill(device.index, to, value, bytes);
}

bool is_capturing(Device device) { return backend(device).capture_memory(device.index) != nullptr; }

void synchronize(Device device) { backend(device).synchronize(device.index); }

Storage::Storage(Device device, int64_t bytes) : bytes_(bytes), device_(device) {
  const Backend& memory = backend(device);
  Allocator* from = &memory.allocator(device.index);
  if (memory.repeats_steps && (arena_ = memory.capture_memory(device.index))) from = arena_.get();
  data_ = static_cast<std::byte*>(from->allocate(static_cast<size_t>(bytes)));
}

Storage::Storage(RefPtr<Storage> whole, int64_t offset, int64_t bytes)
    : data_(whole->data() + offset), bytes_(bytes), device_(whole->device()), whole_(std::move(whole)) {}

Storage::Storage(RefPtr<Storage> memory, kernels::Int8Matrix matrix)
    : data_(nullptr),
      int8_(matrix),
      bytes_(memory->bytes()),
      device_(memory->device()),
      whole_(std::move(memory)) {}

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
  RefPtr<Storage> memory;
};

const std::byte* Storage::find(const Matrix& matrix) const {
  const int64_t now = version();
  for (const Copy* copy = copies_.load(std::memory_order_acquire); copy; copy = copy->next)
    if (copy->version == now && copy->matrix == matrix) return copy->data;
  return nullptr;
}

const std::byte* Storage::keep(const Matrix& matrix, int64_t bytes, FunctionRef<void(std::byte*)> pack) {
  RefPtr<Storage> memory = make_ref<Storage>(device_, bytes);
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
