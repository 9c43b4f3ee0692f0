// The parameters of a model, packed into arenas.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/base/memory/pooled_vector.h>
#include <heed/core/tensor.h>

namespace heed {

/// A named leaf. A tied parameter has several names.
struct Parameter {
  std::string name;                  // the first of its names
  std::vector<std::string> aliases;  // the others
  Tensor tensor;

  /// Whether the pattern, in which * stands for any characters, fits one of its names.
  bool fits(std::string_view pattern) const;
};

/// One Parameter for each tensor, in the order of the first names: later names of a tensor become aliases.
/// ConfigError for an empty or repeated name.
std::vector<Parameter> join_tied(std::vector<Parameter> parameters);

/// ConfigError, which begins with `who`, if the pattern fits no parameter.
void check_pattern(std::string_view who, const std::string& pattern, std::span<const Parameter> parameters);

/// An ordered list of parameters. Building it moves values that no list has yet into one arena, each to a
/// slot aligned to 128 bytes with zeroed gaps between, and points the given handles there: whoever holds a
/// handle sees the same parameter. Lists may overlap: a list of a model's part, before or after one of the
/// whole, shares its parameters.
///
/// A gradient has memory from its first backward until it is forgotten: what a forward needs lies there in
/// between. Gradients are f32 for bf16 parameters, else of the parameters' dtype. A parameter that does not
/// require a gradient is frozen (Tensor::set_requires_grad): it gets none and is never stepped. Copies share.
class Parameters {
 public:
  Parameters() = default;
  /// The same leaf may come several times, under several names: it is one parameter. ConfigError for an empty
  /// or repeated name, or a tensor that set_requires_grad() was never called on or an operation made.
  explicit Parameters(std::vector<Parameter> parameters);

  int64_t size() const;
  /// IndexError if i is not in [0, size()).
  const Parameter& operator[](int64_t i) const;
  const Parameter* begin() const;
  const Parameter* end() const;
  /// By any of its names; null if there is none.
  const Parameter* find(const std::string& name) const;
  /// Whether these are its names and tensors.
  bool consists_of(const std::vector<Parameter>& list) const;
  /// Elements of all parameters.
  int64_t numel() const;
  /// Of all parameters: StateError if there are none, ConfigError if they differ, as parts of a model may
  /// that were moved or converted by themselves.
  DType dtype() const;
  DType gradient_dtype() const;
  Device device() const;

  /// Undefined if no backward reached parameter i since zero_grad().
  const Tensor& gradient(int64_t i) const;
  /// The parameters that have one, in order.
  PooledVector<int64_t> with_gradient() const;

  /// Forgets all gradients: the next one of each parameter is written, not added. A leaf that no list has and
  /// that then adds to a gradient from before is warned of, once.
  void zero_grad() const;
  /// Euclidean norm of all gradients.
  double gradient_norm() const;
  /// The same without waiting for the device: the bits of a double, i64 [1], in its memory.
  Tensor measure_gradient_norm() const;

  /// Moves or converts values and gradients, into a new arena. StateError, with nothing changed, where an
  /// optimizer holds one that would change: it has moments of the old kind.
  void to(Device device) const;
  void to(DType dtype) const;
  /// What an optimizer calls when it is made and when it ends. release() without hold(): StateError.
  void hold() const;
  void release() const;
  bool is_held(int64_t i) const;

 private:
  void convert(const std::function<TensorOptions(const Tensor&)>& target) const;
  const Tensor& representative() const;

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace heed
