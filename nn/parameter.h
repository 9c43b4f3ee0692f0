// Making the parameters of modules, with values or as shapes alone.
#pragma once

#include <functional>
#include <optional>
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

/// While one lives, the modules that this thread makes have parameters of a dtype that are all 0 and have no
/// memory until the module's parameters() are asked for: for models that are read from a file next.
class [[nodiscard]] Unfilled {
 public:
  explicit Unfilled(DType dtype = DType::f32) : outer_(std::exchange(dtype_, dtype)) {}
  ~Unfilled() { dtype_ = outer_; }
  Unfilled(const Unfilled&) = delete;
  Unfilled& operator=(const Unfilled&) = delete;

  static std::optional<DType> active() { return dtype_; }

 private:
  static inline thread_local std::optional<DType> dtype_;
  std::optional<DType> outer_;
};

/// Whether parameters that this thread makes have values.
inline bool parameters_have_values() { return !ShapesOnly::active() && !Unfilled::active(); }

/// An f32 leaf on the CPU that requires a gradient, its values set by fill(tensor).
Tensor make_parameter(const Shape& shape, const std::function<void(const Tensor&)>& fill);

}  // namespace heed::nn
