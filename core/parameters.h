// The parameters of a model, packed: one contiguous arena per role.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <heed/core/base/pooled_vector.h>
#include <heed/core/tensor.h>

namespace heed {

/// A named leaf. A tied parameter has several names.
struct Parameter {
  std::string name;                  // the first of its names
  std::vector<std::string> aliases;  // the others
  Tensor tensor;
};

/// An ordered list of parameters whose values lie in one arena, each in a slot aligned to 128 bytes with
/// zeroed gaps between; an optimizer's moments have arenas of the same layout. Building it moves the values
/// and points the given handles at their slots: whoever holds a handle sees the same parameter. A gradient
/// has memory from its first backward until it is forgotten: what a forward needs lies there in between.
/// Gradients are f32 for bf16 parameters, else of the parameters' dtype. Copies share.
class Parameters {
 public:
  Parameters() = default;
  /// Packs leaves of one dtype on one device. The same leaf may come several times, under several names: it
  /// is one parameter. ConfigError for an empty or repeated name, mixed dtypes or devices, or a tensor that
  /// is not a leaf requiring a gradient; StateError if one belongs to other Parameters already.
  explicit Parameters(std::vector<Parameter> parameters);

  int64_t size() const;
  const Parameter& operator[](int64_t i) const;
  const Parameter* begin() const;
  const Parameter* end() const;
  /// By any of its names; null if there is none.
  const Parameter* find(const std::string& name) const;
  /// Elements of all parameters.
  int64_t numel() const;
  DType dtype() const;
  DType gradient_dtype() const;
  Device device() const;

  /// Where parameter i lies in the arenas, in elements.
  int64_t offset(int64_t i) const;
  /// Undefined if no backward reached parameter i since zero_grad().
  const Tensor& gradient(int64_t i) const;
  /// The parameters that have one, in order.
  PooledVector<int64_t> with_gradient() const;

  /// The arena of values, one axis, gaps included.
  const Tensor& values() const;
  /// A further arena of the same layout, zeroed: moments, masters.
  Tensor make_arena(DType dtype) const;
  /// The part of an arena that belongs to parameter i, in its shape.
  Tensor slot(const Tensor& arena, int64_t i) const;

  /// Forgets all gradients: the next one of each parameter is written, not added.
  void zero_grad() const;
  /// Euclidean norm of all gradients.
  double gradient_norm() const;
  /// The same without waiting for the device: the bits of a double, i64 [1], in its memory.
  Tensor measure_gradient_norm() const;

  /// Moves or converts values and gradients. StateError once hold() was called: an optimizer has moments of
  /// the old kind.
  void to(Device device) const;
  void to(DType dtype) const;
  void hold() const;

 private:
  void rebuild(DType dtype, Device device) const;

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace heed
