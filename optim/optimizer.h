// What all optimizers share: parameter groups, clipping, and state that can be saved.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <heed/core/parameters.h>
#include <heed/core/tensor.h>

namespace heed::optim {

/// Parameters with a rate and a decay of their own: those one of whose names a pattern fits (* stands for any
/// characters) and that no earlier group took.
struct Group {
  std::vector<std::string> patterns = {"*"};  // each fits some parameter
  double lr_factor = 1;                       // times the optimizer's rate
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
  int64_t without_gradient = 0;  // parameters, frozen ones aside, left alone as no gradient reached them

  double gradient_norm() const;  // 0 if it was not measured
  bool skipped() const;          // nothing was changed but the gradients, which are forgotten
};

/// Steps parameters. One that got no gradient since the last step is left alone, and so is a frozen one; each
/// counts its own steps, as in PyTorch. step() forgets all gradients. While it lives it holds the
/// parameters: they cannot change their device or dtype.
///
/// Moments, and f32 copies of bf16 parameters, have memory for the parameters that are not frozen when the
/// optimizer is made, and for one that is thawed later from its first step. They stay when a parameter is
/// frozen, so that it goes on where it was once it is thawed. What is written to a bf16 parameter between two
/// steps (weights that are loaded, clamping) replaces the copy where that does not round to it.
class Optimizer {
 public:
  /// The state of parameters that was made at one time: an arena for each role, all of one layout.
  struct State {
    std::vector<std::string> roles;  // "m", "v", …
    std::vector<Tensor> arenas;      // one axis; of the gradients' dtype
    Tensor masters;                  // f32 copies of bf16 parameters; else undefined
  };
  /// Parameters that share a group and a State and have gradients.
  struct Slice {
    struct Entry {
      int64_t index;   // of the parameter
      int64_t offset;  // in the arenas
    };
    PooledVector<Entry> entries;
    const State* state;
    bool written;          // whether values of bf16 may have been written to
    const int64_t* steps;  // of all parameters
    const double* lr;
    double lr_factor, weight_decay;
    const double* norm;  // null: not measured
    double clip;
  };

  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() { parameters_.release(); }

  /// One step. NumericError (and nothing changed) if the norm is not finite and that is not to be skipped;
  /// ConfigError for a clip that is negative or NaN; StateError if a parameter was thawed and meets its first
  /// gradient while a step is captured.
  StepResult step(const StepOptions& options = {});

  double lr() const { return lr_; }
  /// ConfigError unless positive (or 0) and finite; StateError within a captured step, whose repetitions take
  /// the rate that was set before each.
  void set_lr(double lr);
  /// Steps taken. Waits for a device.
  int64_t steps() const;
  const Parameters& parameters() const { return parameters_; }

  /// Everything a resume needs, by name: "step", "step.encoder.…" for each parameter, "m.encoder.…" and the
  /// like for each that has moments. The tensors are views of the live state.
  std::vector<std::pair<std::string, Tensor>> state() const;
  /// Takes what state() gave; where a parameter that has not been stepped has no moments in it, they start
  /// anew. A state without steps of parameters, as earlier versions saved, gives all of them "step".
  /// CheckpointError naming what is missing, unknown, negative or of another shape, with nothing changed.
  void load_state(const std::vector<std::pair<std::string, Tensor>>& state);

 protected:
  /// What kinds of moments a parameter has.
  using Roles = std::function<std::vector<std::string>(const Parameter&)>;
  /// Parameters that no group takes have the given weight decay. Before anything changes: ConfigError for a
  /// number out of range, a group's pattern that fits no parameter, or parameters of several kinds.
  Optimizer(Parameters parameters, double lr, double weight_decay, std::vector<Group> groups, Roles roles);
  virtual void step_slice(const Slice& slice) = 0;

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Place {
    size_t state = kNone;  // in states_
    int64_t offset = 0;
    int64_t version = 0;  // of the value when its master last agreed with it
  };
  class Loading;

  bool has_state(int64_t i) const { return places_[static_cast<size_t>(i)].state != kNone; }
  void make_state(const PooledVector<int64_t>& which);
  void make_missing_state(const PooledVector<int64_t>& stepped);
  Slice slice_of(size_t group, size_t state, const PooledVector<int64_t>& stepped, const double* norm,
                 double clip) const;
  void note_writes(const Slice& slice, NonFinite non_finite);
  void check_norm(double norm) const;
  Tensor slot(const Tensor& arena, int64_t i) const;
  /// "m", … and "master", with the part that is parameter i's.
  std::vector<std::pair<std::string, Tensor>> state_of(int64_t i) const;

  Parameters parameters_;
  std::vector<Group> groups_;
  std::vector<size_t> group_of_;  // of each parameter
  Roles roles_;
  std::vector<State> states_;
  std::vector<Place> places_;  // of each parameter
  double lr_ = 0;
  Tensor rate_tensor_;          // its bits, i64 [1], where the step reads it
  Tensor step_tensor_, steps_;  // of the optimizer, i64 [1], and of each parameter, i64 [size]
};

/// Scales all gradients so that their common norm is at most max_norm; returns the norm before. For loops
/// that step by hand: Optimizer::step clips in its own pass. NumericError if the norm is not finite.
double clip_gradient_norm(const Parameters& parameters, double max_norm);

}  // namespace heed::optim
