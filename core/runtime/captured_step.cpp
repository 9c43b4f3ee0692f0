#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <heed/core/base/int_math.h>
#include <heed/core/creation.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/captured_step.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>
#include <heed/kernels/capture.h>

namespace heed {

#if HEED_CUDA_AVAILABLE

namespace {

constexpr int64_t kAlignment = 256;
constexpr size_t kStepsAhead = 2;  // the host prepares the next step while the device does this one

int64_t aligned(int64_t bytes) { return round_up(bytes, kAlignment); }
int64_t bytes_of(const Tensor& x) { return x.numel() * size_of(x.dtype()); }

// Which steps may repeat each other.
using Key = PooledVector<int64_t>;

Key key_of(const StepInputs& inputs, uint64_t seed) {
  Key key{static_cast<int64_t>(seed)};
  for (const Tensor& x : inputs.tensors) {
    key.push_back(static_cast<int64_t>(x.dtype()));
    key.push_back(x.rank());
    key.insert(key.end(), x.shape().begin(), x.shape().end());
  }
  key.push_back(-1);  // no rank
  key.insert(key.end(), inputs.constants.begin(), inputs.constants.end());
  return key;
}

// Pinned memory of one step under way: what goes to the device, and what comes back.
struct Slot {
  std::unique_ptr<cuda::PinnedMemory> inputs, report;
  cuda::Event done;

  explicit Slot(int device) : done(device) {}
  static std::byte* at_least(std::unique_ptr<cuda::PinnedMemory>& memory, int64_t bytes) {
    if (!memory || memory->bytes() < static_cast<size_t>(bytes)) {
      memory.reset();
      memory = std::make_unique<cuda::PinnedMemory>(static_cast<size_t>(bytes + bytes / 2 + kAlignment));
    }
    return memory->data();
  }
};

// What a report holds: where each output lies, and how long it is.
struct Report {
  PooledVector<cuda::Piece> pieces;
  int64_t bytes = aligned(cuda::kReportHeader);

  explicit Report(const PooledVector<Tensor>& outputs) {
    for (const Tensor& output : outputs) {
      pieces.push_back(
          {output.raw_data(), static_cast<size_t>(bytes_of(output)), static_cast<size_t>(bytes)});
      bytes += aligned(bytes_of(output));
    }
  }
};

// The steps of one kind: the block of device memory that holds what they read, first of all the place of the
// generator and where the report goes; and the graph, once there is one.
struct Bucket {
  struct Header {
    uint64_t base;
    std::byte* report;
  };
  Tensor block;  // i64
  StepInputs inputs;
  bool prepared = false;         // a call has come to its end
  PooledVector<Tensor> outputs;  // of the graph
  uint64_t draws = 0;            // offsets of the generator that a repetition takes
  std::optional<cuda::Graph> graph;

  Bucket(const StepInputs& host, Device device);
  Header* header() const { return reinterpret_cast<Header*>(block.data<int64_t>()); }
};

Bucket::Bucket(const StepInputs& host, Device device) {
  int64_t bytes = kAlignment;
  for (const Tensor& x : host.tensors) bytes += aligned(bytes_of(x));
  block = empty({bytes / size_of(DType::i64)}, {DType::i64, device});
  inputs.constants = host.constants;
  int64_t first = kAlignment;
  for (const Tensor& x : host.tensors) {
    inputs.tensors.push_back(make_contiguous(make_ref<Storage>(block.storage(), first, bytes_of(x)),
                                             x.shape(), x.numel(), x.dtype()));
    first += aligned(bytes_of(x));
  }
}

PooledVector<Tensor> call(const CapturedStep::Function& function, const StepInputs& inputs) {
  PooledVector<Tensor> outputs = function(inputs);
  for (Tensor& output : outputs) output = output.detach().contiguous();
  return outputs;
}

}  // namespace

struct StepOutputs::State {
  PooledVector<Tensor> tensors;  // those of the CPU; of a device only shapes and dtypes count
  std::shared_ptr<Slot> slot;    // null: the CPU
};

PooledVector<Tensor> StepOutputs::get() const {
  if (!state_->slot) return state_->tensors;
  state_->slot->done.wait();
  const std::byte* const report = state_->slot->report->data();
  kernels::WrongIndex wrong;
  std::memcpy(&wrong, report, sizeof wrong);
  kernels::throw_if_wrong(wrong);
  PooledVector<Tensor> result;
  for (const cuda::Piece& piece : Report(state_->tensors).pieces) {
    const Tensor& like = state_->tensors[result.size()];
    result.push_back(empty(like.shape(), {like.dtype(), kCpu}));
    std::memcpy(result.back().raw_data(), report + piece.place, piece.bytes);
  }
  return result;
}

struct CapturedStep::OnDevice {
  OnDevice(Device where, const CapturedStepOptions& how)
      : device(where), options(how), arena(cuda::make_arena(where.index)) {}

  std::shared_ptr<StepOutputs::State> step(const Function& function, const StepInputs& host);
  int64_t graphs() const {
    return std::count_if(buckets.begin(), buckets.end(),
                         [](const auto& entry) { return entry.second.graph.has_value(); });
  }
  int64_t nodes() const {
    int64_t most = 0;
    for (const auto& [key, bucket] : buckets)
      if (bucket.graph) most = std::max(most, bucket.graph->nodes());
    return most;
  }

 private:
  std::shared_ptr<Slot> free_slot();
  void upload(Slot& slot, const Bucket& bucket, const StepInputs& host, const Bucket::Header& header) const;
  void capture(const Function& function, Bucket& bucket, Generator& generator) const;
  PooledVector<Tensor> call_step(const Function& function, Bucket& bucket, Slot& slot) const;
  void launch_step(Bucket& bucket, Generator& generator) const;

  Device device;
  CapturedStepOptions options;
  std::shared_ptr<Allocator> arena;  // of all graphs, which run one after another
  std::map<Key, Bucket> buckets;
  std::shared_ptr<Slot> slots[kStepsAhead];
  size_t next_slot = 0;
};

std::shared_ptr<Slot> CapturedStep::OnDevice::free_slot() {
  std::shared_ptr<Slot>& slot = slots[next_slot++ % kStepsAhead];
  if (!slot || slot.use_count() > 1)
    slot = std::make_shared<Slot>(device.index);  // its outputs are yet to be read
  slot->done.wait();
  return slot;
}

void CapturedStep::OnDevice::upload(Slot& slot, const Bucket& bucket, const StepInputs& host,
                                    const Bucket::Header& header) const {
  const int64_t bytes = bytes_of(bucket.block);
  std::byte* const block = Slot::at_least(slot.inputs, bytes);
  std::memcpy(block, &header, sizeof header);
  std::byte* to = block + kAlignment;
  for (const Tensor& x : host.tensors) {
    const Tensor from = x.contiguous();
    std::memcpy(to, from.raw_data(), static_cast<size_t>(bytes_of(from)));
    to += aligned(bytes_of(from));
  }
  cuda::upload(device.index, bucket.block.raw_data(), block, static_cast<size_t>(bytes));
  slot.done.record();  // also where the step throws
}

// Nothing runs meanwhile, so what is drawn here is drawn by the first launch.
void CapturedStep::OnDevice::capture(const Function& function, Bucket& bucket, Generator& generator) const {
  const uint64_t seed = generator.seed(), offset = generator.offset();
  try {
    const RepeatedDraws draws(generator, &bucket.header()->base);
    bucket.graph.emplace(device.index, arena, [&] {
      bucket.outputs = call(function, bucket.inputs);
      cuda::report(device.index, Report(bucket.outputs).pieces, {nullptr, &bucket.header()->report});
    });
    bucket.draws = draws.used();
  } catch (...) {
    bucket.outputs.clear();
    generator.reset(seed, offset);
    throw;
  }
  generator.reset(seed, offset);
}

// The first call finds and makes whatever is made once: tables, plans of products, code to be loaded.
PooledVector<Tensor> CapturedStep::OnDevice::call_step(const Function& function, Bucket& bucket,
                                                       Slot& slot) const {
  PooledVector<Tensor> outputs = call(function, bucket.inputs);
  bucket.prepared = true;
  const Report report(outputs);
  cuda::report(device.index, report.pieces, {Slot::at_least(slot.report, report.bytes), nullptr});
  return outputs;
}

void CapturedStep::OnDevice::launch_step(Bucket& bucket, Generator& generator) const {
  bucket.graph->launch();
  generator.reset(generator.seed(), generator.offset() + bucket.draws);
}

std::shared_ptr<StepOutputs::State> CapturedStep::OnDevice::step(const Function& function,
                                                                 const StepInputs& host) {
  for (const Tensor& x : host.tensors)
    HEED_CHECK(backend(x.device()).host_memory, DeviceError, "captured step: an input of shape ", x.shape(),
               " is on ", x.device(), "; inputs are handed in on the cpu");
  Generator& generator = default_generator();
  const Key key = key_of(host, generator.seed());
  auto found = buckets.find(key);
  std::optional<Bucket> unkept;
  if (found == buckets.end() && static_cast<int64_t>(buckets.size()) < options.most_buckets)
    found = buckets.try_emplace(key, host, device).first;
  Bucket& bucket = found != buckets.end() ? found->second : unkept.emplace(host, device);

  const bool captured = bucket.prepared && options.capture;
  if (captured && !bucket.graph) capture(function, bucket, generator);
  const std::shared_ptr<Slot> slot = free_slot();
  std::byte* const report = captured ? Slot::at_least(slot->report, Report(bucket.outputs).bytes) : nullptr;
  upload(*slot, bucket, host, {generator.offset(), report});
  PooledVector<Tensor> outputs = bucket.outputs;
  if (captured)
    launch_step(bucket, generator);
  else
    outputs = call_step(function, bucket, *slot);
  slot->done.record();
  return std::allocate_shared<StepOutputs::State>(PoolAllocator<StepOutputs::State>(),
                                                  StepOutputs::State{std::move(outputs), slot});
}

#else

struct StepOutputs::State {
  PooledVector<Tensor> tensors;
  std::nullptr_t slot;
};
struct CapturedStep::OnDevice {
  OnDevice(Device, const CapturedStepOptions&) { detail::fail_without_cuda("captured step"); }
  std::shared_ptr<StepOutputs::State> step(const Function&, const StepInputs&) { return nullptr; }
  int64_t graphs() const { return 0; }
  int64_t nodes() const { return 0; }
};
PooledVector<Tensor> StepOutputs::get() const { return state_->tensors; }

#endif

CapturedStep::CapturedStep(Device device, Function function, const CapturedStepOptions& options)
    : function_(std::move(function)) {
  HEED_CHECK(options.most_buckets >= 0, ConfigError, "captured step: most_buckets is ", options.most_buckets,
             "; it cannot be negative");
  if (backend(device).repeats_steps) on_device_ = std::make_unique<OnDevice>(device, options);
}

CapturedStep::~CapturedStep() = default;

StepOutputs CapturedStep::operator()(const StepInputs& inputs) {
  StepOutputs outputs;
  if (on_device_)
    outputs.state_ = on_device_->step(function_, inputs);
  else
    outputs.state_ = std::allocate_shared<StepOutputs::State>(PoolAllocator<StepOutputs::State>(),
                                                              StepOutputs::State{function_(inputs), {}});
  return outputs;
}

int64_t CapturedStep::graphs() const { return on_device_ ? on_device_->graphs() : 0; }
int64_t CapturedStep::nodes() const { return on_device_ ? on_device_->nodes() : 0; }

}  // namespace heed
