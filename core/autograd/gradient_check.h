// Whether the gradient of an operation is that of what it computes: for tests of operations and modules of
// your own.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <vector>

#include <heed/core/tensor.h>

namespace heed {

struct GradientCheckOptions {
  double step = 1e-5;          // of each element, times its size where that is above 1
  double tolerance = 1e-5;     // of the largest gradient of an input where that is above 1
  int64_t most_elements = 64;  // of each input, spread evenly, that are compared; 0: all
};

/// What check_gradients found.
struct GradientReport {
  struct Difference {
    int input;
    std::vector<int64_t> place;  // of the element
    double gradient, slope;      // what the backward gives, and what differences give
  };
  std::vector<Difference> wrong;  // the largest first
  int64_t compared = 0;           // elements

  bool passed() const { return wrong.empty() && compared > 0; }
};

/// "32 elements compared, all right", or a line for each of the worst: "input 1, element [0, 2]: gradient
/// 0.5, slope 0.25".
void append_text(std::string& out, const GradientReport& report);
std::ostream& operator<<(std::ostream& out, const GradientReport& report);

/// Compares the gradients of `function` with respect to each floating-point input with central differences of
/// fourth order. Its result may have any shape: each element counts with a fixed factor of its own. Inputs of
/// other dtypes, or undefined, are passed on as they are; no input is changed. DTypeError for inputs and
/// results that are floating but not f64 (differences need its digits, and it exists on the CPU only),
/// AutogradError if the result has no graph, NumericError if it is not finite, StateError if a second call
/// gives another result: what is random must begin with the same generator in each call.
[[nodiscard]] GradientReport check_gradients(
    const std::function<Tensor(const std::vector<Tensor>&)>& function, const std::vector<Tensor>& inputs,
    const GradientCheckOptions& options = {});

}  // namespace heed
