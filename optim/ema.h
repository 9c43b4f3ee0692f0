// An exponential moving average of weights.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <heed/core/parameters.h>
#include <heed/core/tensor.h>
#include <heed/optim/weight_scope.h>

namespace heed::optim {

/// The average of each parameter over the steps of a training, the latest counting most (Polyak and Juditsky,
/// 1992): often better than the last weights. In f32 for bf16 parameters, else in their dtype.
///
///   Ema ema(model.parameters(), 0.999);
///   for (…) { …; adam.step(); ema.update(); }
///   { const EmaScope averaged(ema); evaluate(model); }
///   save_tensors("average.safetensors", ema.state());  // which load_weights reads
class Ema {
 public:
  /// Begins with the present values. ConfigError for a decay outside [0, 1) or parameters of several kinds.
  explicit Ema(Parameters parameters, double decay = 0.999);
  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  /// average += (1 - decay) * (value - average): after each step, within a captured one too. StateError while
  /// an EmaScope lives, DeviceError if the parameters have moved since.
  void update();

  double decay() const { return decay_; }
  /// The averages, under all names of the parameters: views of what lives.
  std::vector<std::pair<std::string, Tensor>> state() const;
  /// Takes what state() gave. CheckpointError naming what is missing, unknown or of another shape or dtype,
  /// with nothing changed.
  void load_state(const std::vector<std::pair<std::string, Tensor>>& state);

 private:
  friend class EmaScope;

  Parameters parameters_;
  double decay_;
  std::vector<Tensor> averages_;
  bool swapped_in_ = false;
};

/// While one lives the parameters have their averages as values; then they have their own again, bit by bit.
class EmaScope {
 public:
  /// StateError if another one of this average lives.
  [[nodiscard]] explicit EmaScope(Ema& ema);
  ~EmaScope();
  EmaScope(const EmaScope&) = delete;
  EmaScope& operator=(const EmaScope&) = delete;

 private:
  bool& swapped_in_;
  WeightScope scope_;
};

}  // namespace heed::optim
