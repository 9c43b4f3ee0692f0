// Making the parameters of modules, with values or as shapes alone.
#pragma once

#include <functional>
#include <utility>

#include <heed/core/tensor.h>

namespace heed::nn {

/// While one lives, the modules that this thread makes have parameters of their shapes, but no memory for the
/// values: to count them, and to compare them with a file (check_weights), whatever their sizes. Such modules
/// are not for computing with, and their parameters() not for asking, which would give them memory.
class [[nodiscard]] ShapesOnly {
 public:
  ShapesOnly() : outer_(std::exchange(active_, true)) {}
  ~ShapesOnly() { active_ = outer_; }
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

  static bool active() { return active_; }

 private:
  static inline thread_local bool active_ = false;
  bool outer_;
};

/// While one lives, the modules that this thread makes have parameters with memory, but whatever values are
/// there: for models whose parameters are all read from a file next.
class [[nodiscard]] Unfilled {
 public:
  Unfilled() : outer_(std::exchange(active_, true)) {}
  ~Unfilled() { active_ = outer_; }
  Unfilled(const Unfilled&) = delete;
  Unfilled& operator=(const Unfilled&) = delete;

  static bool active() { return active_; }

 private:
  static inline thread_local bool active_ = false;
  bool outer_;
};

/// Whether parameters that this thread makes have values.
inline bool parameters_have_values() { return !ShapesOnly::active() && !Unfilled::active(); }

/// An f32 leaf on the CPU that requires a gradient, its values set by fill(tensor).
Tensor make_parameter(const Shape& shape, const std::function<void(const Tensor&)>& fill);

}  // namespace heed::nn
