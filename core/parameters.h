// The parameters of a model, packed: one contiguous arena per role.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <heed/core/tensor.h>

namespace heed {

/// A named leaf. A tied parameter has several names.
struct Parameter {
  std::string name;                  // the first of its names
  std::vector<std::string> aliases;  // the others
  Tensor tensor;
};

/// An ordered list of parameters whose values lie in one arena and whose gradients in another, each parameter
/// in a slot aligned to 128 bytes with zeroed gaps between. Norms and optimizer steps are single passes over
/// the arenas. Building it moves the values and points the given handles at their slots: whoever
/// holds a handle sees the same parameter. Gradients are f32 for bf16 parameters, else of the parameters'
/// dtype. Copies share.
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
  Device device() const;

  /// Where parameter i lies in the arenas, in elements.
  int64_t offset(int64_t i) const;
  bool has_gradient(int64_t i) const;

  /// The arenas, one axis, gaps included. Where no gradient was written since zero_grad(), that of gradients
  /// holds what was left there, until settle_gradients().
  const Tensor& values() const;
  const Tensor& gradients() const;
  /// A further arena of the same layout, zeroed: moments, masters.
  Tensor make_arena(DType dtype) const;
  /// The part of an arena that belongs to parameter i, in its shape.
  Tensor slot(const Tensor& arena, int64_t i) const;

  /// Forgets all gradients: the next one of each parameter is written, not added.
  void zero_grad() const;
  /// Prepares for reading gradients(): slots that got no gradient are made zero.
  void settle_gradients() const;
  /// Euclidean norm of all gradients.
  double gradient_norm() const;
  /// The same without waiting for the device: the bits of a double, i64 [1], in its memory.
  Tensor measure_gradient_norm() const;

  /// Moves or converts the arenas. StateError once hold() was called: an optimizer has moments of the old
  /// kind.
  void to(Device device) const;
  void to(DType dtype) const;
  void hold() const;

 private:
  void rebuild(DType dtype, Device device) const;

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace heed
