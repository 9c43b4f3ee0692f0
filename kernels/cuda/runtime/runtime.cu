#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/kernels/capture.h>
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/cuda/indexing/wrong_index.cuh>
#include <heed/kernels/cuda/runtime/device_state.cuh>
#include <heed/kernels/runtime.h>

namespace heed::cuda {
namespace {

thread_local int selected_device = 0;

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

int capability_of(int device) {
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor, device) +
         attribute(cudaDevAttrComputeCapabilityMinor, device);
}

// The number of a device that the kernels are compiled for: sm_80 and sm_90a, and PTX for what comes after.
int supported(int device) {
  const int capability = capability_of(device);
  HEED_CHECK(capability >= 80, DeviceError, "cuda:", device, " has compute capability ", capability / 10, ".",
             capability % 10, "; heed needs 8.0 or later; the cpu works without");
  return device;
}

// Selects a device for calls of the runtime that are not told one, and then this thread's own again.
class OnDevice {
 public:
  explicit OnDevice(int device) { check(cudaSetDevice(device), "cudaSetDevice"); }
  ~OnDevice() { static_cast<void>(cudaSetDevice(selected_device)); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};

cudaStream_t make_stream(int device) {
  const OnDevice selected(device);
  // Keep what is freed: the pool is our allocator's to trim.
  cudaMemPool_t pool;
  check(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
  uint64_t threshold = ~uint64_t{0};
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
        "cudaMemPoolSetAttribute");
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return stream;
}

cudaEvent_t make_event(int device) {
  const OnDevice selected(device);
  cudaEvent_t event;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

template <class T>
T* make_zeros(size_t count, cudaStream_t stream) {
  void* pointer = nullptr;
  check(cudaMallocAsync(&pointer, count * sizeof(T), stream), "cudaMallocAsync");
  check(cudaMemsetAsync(pointer, 0, count * sizeof(T), stream), "cudaMemsetAsync");
  return static_cast<T*>(pointer);
}

DeviceError no_device(int index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  const char* reason = error == cudaErrorInsufficientDriver
                           ? "the NVIDIA driver is older than this build of heed needs"
                       : error == cudaErrorNoDevice ? "this machine has no CUDA device"
                                                    : cudaGetErrorString(error);
  return DeviceError(concat("cuda:", index, ": ", reason, "; the cpu works without one"));
}

bool setting_of_dependent_launch() {
  const char* const value = std::getenv("HEED_CUDA_DEPENDENT_LAUNCH");
  if (value == nullptr || *value == '\0' || std::string_view(value) == "on") return true;
  HEED_CHECK(std::string_view(value) == "off", ConfigError, "HEED_CUDA_DEPENDENT_LAUNCH is '", value,
             "'; expected on or off");
  return false;
}

// Waits, and throws what was reported.
void read_report(const std::byte* report, cudaStream_t stream, const char* what) {
  check(cudaStreamSynchronize(stream), what);
  kernels::WrongIndex wrong;
  std::memcpy(&wrong, report, sizeof wrong);
  kernels::throw_if_wrong(wrong);
}

}  // namespace

DeviceState::DeviceState(int device)
    : index(supported(device)),
      capability(capability_of(device)),
      multiprocessors(attribute(cudaDevAttrMultiProcessorCount, device)),
      name("cuda:" + std::to_string(device)),
      allocator(source()),
      stream_(make_stream(device)),
      side_(make_stream(device)),
      forked_(make_event(device)),
      joined_(make_event(device)),
      wrong_index_(make_zeros<kernels::WrongIndex>(1, stream_)),
      counters_(make_zeros<unsigned>(kCounters, stream_)) {
  simt::allows_dependent_launch = setting_of_dependent_launch();
}

MemorySource DeviceState::source() {
  return {.name = name.c_str(),
          .acquire = [this](size_t bytes) -> void* {
            void* pointer = nullptr;
            const cudaError_t error = cudaMallocAsync(&pointer, bytes, stream());
            if (error == cudaErrorMemoryAllocation) {
              static_cast<void>(cudaGetLastError());
              return nullptr;
            }
            check(error, "cudaMallocAsync");
            return pointer;
          },
          // An error here is one of earlier work, which the next checked call reports.
          .release =
              [this](void* pointer, size_t) {
                if (CaptureState* capture = own_capture())
                  capture->to_free.push_back(pointer);
                else
                  cudaFreeAsync(pointer, stream_);
              },
          .poison = [this](void* pointer,
                           size_t bytes) { check(simt::poison(pointer, bytes, stream()), "poison"); }};
}

cudaStream_t DeviceState::stream() const {
  const CaptureState* capture = capture_;
  HEED_CHECK(capture == nullptr || capture->thread == std::this_thread::get_id(), StateError, name,
             ": another thread is capturing a graph; a device is for one thread meanwhile");
  return capture != nullptr && capture->on_side ? side_ : stream_;
}

cudaStream_t DeviceState::stream_outside_capture(const char* what) const {
  HEED_CHECK(own_capture() == nullptr, StateError, what, ": the host would wait for ", name,
             " within a captured step, which cannot be repeated; do it before or after the step");
  return stream();
}

kernels::WrongIndex* DeviceState::expect_wrong_index() {
  checks_indices_ = true;
  return wrong_index_;
}

kernels::WrongIndex* DeviceState::reported_wrong_index() {
  const bool checked = checks_indices_.exchange(false);
  return checked || own_capture() != nullptr ? wrong_index_ : nullptr;
}

IndexGuard::IndexGuard(kernels::IndexUse use, int64_t entries)
    : first_(device_state(selected_device).expect_wrong_index()), entries_(entries), use_(use) {}

CaptureState* DeviceState::own_capture() const {
  CaptureState* capture = capture_;
  return capture != nullptr && capture->thread == std::this_thread::get_id() ? capture : nullptr;
}

void DeviceState::begin_capture(CaptureState& capture) {
  CaptureState* none = nullptr;
  HEED_CHECK(capture_.compare_exchange_strong(none, &capture), StateError, name,
             ": a graph is being captured already; captures do not nest");
  capture.checks_indices = checks_indices_.exchange(false);
}

void DeviceState::end_capture() {
  CaptureState* const capture = capture_.exchange(nullptr);
  capture->checks_indices = checks_indices_.exchange(capture->checks_indices);
  for (void* pointer : capture->to_free) cudaFreeAsync(pointer, stream_);
}

void DeviceState::fork_side() {
  check(cudaEventRecord(forked_, stream_), "cudaEventRecord");
  check(cudaStreamWaitEvent(side_, forked_, 0), "cudaStreamWaitEvent");
}

void DeviceState::join_side() {
  check(cudaEventRecord(joined_, side_), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream_, joined_, 0), "cudaStreamWaitEvent");
}

DeviceState& device_state(int index) {
  static auto* const mutex = new std::mutex;
  static auto* const devices =
      new std::vector<std::unique_ptr<DeviceState>>(static_cast<size_t>(device_count()));
  if (devices->empty()) throw no_device(index);
  HEED_CHECK(index >= 0 && index < static_cast<int>(devices->size()), DeviceError, "cuda:", index,
             ": no such device; this machine has cuda:0 to cuda:", devices->size() - 1);
  std::lock_guard lock(*mutex);
  auto& device = (*devices)[static_cast<size_t>(index)];
  if (!device) device = std::make_unique<DeviceState>(index);
  return *device;
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  const std::string text = concat(what, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  if (error == cudaErrorNoKernelImageForDevice)
    throw DeviceError(concat(text, "; this build of heed has no code for this device's architecture"));
  throw DeviceError(text);
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

std::string device_name(int index) {
  device_state(index);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return concat(properties.name, " (sm_", properties.major, properties.minor, ")");
}

void set_device(int index) {
  device_state(index);
  check(cudaSetDevice(index), "cudaSetDevice");
  selected_device = index;
}

int current_device() { return selected_device; }
int multiprocessors() { return device_state(selected_device).multiprocessors; }
int compute_capability() { return device_state(selected_device).capability; }
unsigned* launch_counter() { return device_state(selected_device).launch_counter(); }
cudaStream_t current_stream() { return device_state(selected_device).stream(); }

Allocator& allocator(int index) { return device_state(index).allocator; }

void copy_to_device(int index, void* device, const void* host, size_t bytes) {
  constexpr const char* kWhat = "copy_to_device";
  DeviceState& state = device_state(index);
  const cudaStream_t stream = state.stream_outside_capture(kWhat);
  if (bytes == 0) return;
  if (bytes <= Staging::kMax)
    state.staging.upload(stream, device, host, bytes, kWhat);
  else
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), kWhat);
}

void copy_to_host(int index, void* host, const void* device, size_t bytes) {
  constexpr const char* kWhat = "copy_to_host";
  DeviceState& state = device_state(index);
  const cudaStream_t stream = state.stream_outside_capture(kWhat);
  if (bytes == 0 || bytes > Staging::kMax - kReportHeader) {
    if (bytes != 0) check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream), kWhat);
    return synchronize(index);
  }
  const Piece piece{device, bytes, kReportHeader};
  const std::lock_guard lock(state.staging.answer_mutex);
  report(index, {&piece, 1}, {state.staging.answer(), nullptr});
  read_report(state.staging.answer(), stream, kWhat);
  std::memcpy(host, state.staging.answer() + kReportHeader, bytes);
}

void copy_on_device(int index, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, device_state(index).stream()),
        "copy_on_device");
}

void fill_bytes(int index, void* device, int value, size_t bytes) {
  if (bytes != 0) check(cudaMemsetAsync(device, value, bytes, device_state(index).stream()), "fill_bytes");
}

void synchronize(int index) {
  DeviceState& device = device_state(index);
  const cudaStream_t stream = device.stream_outside_capture("synchronize");
  constexpr const char* kWhat = "synchronize";
  if (!device.checks_indices()) return check(cudaStreamSynchronize(stream), kWhat);
  const std::lock_guard lock(device.staging.answer_mutex);
  report(index, {}, {device.staging.answer(), nullptr});
  read_report(device.staging.answer(), stream, kWhat);
}

cudaStream_t device_stream(int index) { return device_state(index).stream(); }

Scratch::Scratch(size_t bytes) : bytes_(bytes) {
  DeviceState& device = device_state(selected_device);
  const CaptureState* const capture = device.own_capture();
  allocator_ = capture != nullptr ? capture->arena.get() : &device.allocator;
  pointer_ = allocator_->allocate(bytes);
}
Scratch::~Scratch() { allocator_->deallocate(pointer_, bytes_); }

}  // namespace heed::cuda
