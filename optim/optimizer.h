// What all optimizers share: parameter groups, clipping, and state that can be saved.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <heed/core/parameters.h>
#include <heed/core/tensor.h>

namespace heed::optim {

/// Parameters with a rate and a decay of their own: those whose name a pattern fits (* stands for any
/// characters) and that no earlier group took.
struct Group {
  std::vector<std::string> patterns = {"*"};
  double rate_factor = 1;  // times the optimizer's rate
  double weight_decay = 0;
};

/// What to do when the norm of the gradients is NaN or infinite. `raise` looks at the norm before it changes
/// anything, and so waits for a device; `skip` leaves the decision to the device.
enum class NonFinite { raise, skip };

struct StepOptions {
  double clip = 0;                          // largest norm of all gradients together; 0: no clipping
  NonFinite non_finite = NonFinite::raise;  // looked at where the norm is known: with clip or measure_norm
  bool measure_norm = false;                // find the norm even without clip
};

/// What a step came to. On a device it may still be under way: the two questions wait for it.
struct StepResult {
  Tensor norm;  // before clipping: the bits of a double, i64 [1], on the parameters' device (CUDA has no f64)
  int64_t without_gradient = 0;  // parameters left alone because no gradient reached them

  double gradient_norm() const;  // 0 if it was not measured
  bool skipped() const;          // nothing was changed but the gradients, which are forgotten
};

/// Steps the parameters of one model. A parameter that got no gradient since the last step is left alone.
/// step() forgets all gradients. It holds the parameters: the model cannot move to another device any more.
class Optimizer {
 public:
  /// Parameters that share a group and have gradients.
  struct Slice {
    PooledVector<int64_t> parameters;
    const double* rate;
    double rate_factor, weight_decay;
    const double* norm;  // null: not measured
    double clip;
  };

  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// One step. NumericError (and nothing changed) if the norm is not finite and that is not to be skipped;
  /// ConfigError for a clip that is negative or NaN.
  StepResult step(const StepOptions& options = {});

  double rate() const { return rate_; }
  /// ConfigError unless positive (or 0) and finite; StateError within a captured step, whose repetitions take
  /// the rate that was set before each.
  void set_rate(double rate);
  /// Steps taken. Waits for a device.
  int64_t steps() const;
  const Parameters& parameters() const { return parameters_; }

  /// Everything a resume needs, by name: "step", and "m.encoder.…" and the like for each arena. The tensors
  /// are views of the live state.
  std::vector<std::pair<std::string, Tensor>> state() const;
  /// Takes what state() gave. CheckpointError naming what is missing, unknown or of another shape, with
  /// nothing changed.
  void load_state(const std::vector<std::pair<std::string, Tensor>>& state);

 protected:
  /// Parameters that no group takes have the given weight decay.
  Optimizer(Parameters parameters, double rate, double weight_decay, std::vector<Group> groups);
  virtual void step_slice(const Slice& slice) = 0;
  /// The arenas of this optimizer and their names.
  virtual std::vector<std::pair<std::string, Tensor>> arenas() const = 0;

  /// For bf16 parameters: what the step works on, f32. Undefined otherwise.
  const Tensor& masters() const { return masters_; }
  /// The number of the step under way, i64 [1], in the memory of the parameters' device.
  const Tensor& step_tensor() const { return step_tensor_; }

 private:
  void check_norm(double norm) const;

  Parameters parameters_;
  std::vector<Group> groups_;
  std::vector<int32_t> group_of_;  // of each parameter
  double rate_ = 0;
  Tensor rate_tensor_;  // its bits, i64 [1], where the step reads it
  Tensor step_tensor_, masters_;
};

/// Scales all gradients so that their common norm is at most max_norm; returns the norm before. For loops
/// that step by hand: Optimizer::step clips in its own pass. NumericError if the norm is not finite.
double clip_gradient_norm(const Parameters& parameters, double max_norm);

}  // namespace heed::optim
