// A training step that a CUDA device repeats by itself, without the host in between (docs/cuda_step.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <heed/core/base/memory/pooled_vector.h>
#include <heed/core/generator.h>
#include <heed/core/tensor.h>

namespace heed {

/// What one step works on. Steps that agree in the shapes and dtypes of the tensors and in the constants can
/// repeat each other: they form a bucket.
struct StepInputs {
  PooledVector<Tensor>
      tensors;  // on the CPU where they are handed in, on the device where the step sees them
  PooledVector<int64_t> constants;  // whatever else the step's launches depend on, such as longest lengths
};

struct CapturedStepOptions {
  bool capture = true;        // false: the function is called each time, with the same results
  int64_t most_buckets = 64;  // that are captured; for further ones the function is called
};

/// The tensors that one step returned, read by the host when it likes.
class StepOutputs {
 public:
  /// On the CPU. Waits until the device has done the step. IndexError if a kernel of the step, or of what
  /// came between it and the step before, met a wrong index.
  PooledVector<Tensor> get() const;

 private:
  friend class CapturedStep;
  struct State;
  std::shared_ptr<State> state_;
};

/// Calls a function of tensors that does a whole training step: forward, loss, backward, optimizer. On a CUDA
/// device only the first call of each bucket does so. The second records what the function enqueues as a CUDA
/// graph, and from then on calls of that bucket launch the graph: they copy the inputs to where the graph
/// reads them, and neither call the function, nor allocate device memory, nor wait for the device.
///
/// What the function draws from the default generator is drawn anew in each call, the same numbers as without
/// capture. Everything else that is decided on the host stays as it was when the function was recorded:
/// shapes, branches, options. Tensors that outlive a step and are changed by it (parameters, moments) must
/// exist before the first call; gradients are made and forgotten within one. The device is for one thread
/// meanwhile.
class CapturedStep {
 public:
  /// Returns what the host wants to read, such as the loss.
  using Function = std::function<PooledVector<Tensor>(const StepInputs&)>;

  CapturedStep(Device device, Function function, const CapturedStepOptions& options = {});
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  /// One step. DeviceError if an input is not on the CPU; what the function throws; StateError where it does
  /// what cannot be captured (docs/cuda_step.md names them) and OutOfMemory, after both of which the device
  /// and the generator are as they were before the call.
  StepOutputs operator()(const StepInputs& inputs);

  /// Buckets that have a graph; 0 on the CPU.
  int64_t graphs() const;
  /// Kernels, copies and fills of the largest of them.
  int64_t nodes() const;

 private:
  struct OnDevice;

  Function function_;
  std::unique_ptr<OnDevice> on_device_;  // null: the CPU
};

}  // namespace heed
