// Other values for parameters, for a while.
#pragma once

#include <vector>

#include <heed/core/parameters.h>
#include <heed/core/tensor.h>

namespace heed::optim {

/// While one lives the parameters have the given values, rounded to their dtype; then they have their own
/// again, bit by bit.
class WeightScope {
 public:
  /// ShapeError for values of another number or other shapes, before anything changes.
  [[nodiscard]] WeightScope(Parameters parameters, const std::vector<Tensor>& values);
  ~WeightScope();
  WeightScope(const WeightScope&) = delete;
  WeightScope& operator=(const WeightScope&) = delete;

 private:
  Parameters parameters_;
  std::vector<Tensor> own_;
};

}  // namespace heed::optim
