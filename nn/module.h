// Module: a part of a model that has parameters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/parameters.h>
#include <heed/core/serialize.h>
#include <heed/core/tensor.h>

namespace heed::nn {

class Module;

/// Walks the parts that a Module lists in visit(). Names join with dots: "encoder.layers.0.linear1.weight".
class Visitor {
 public:
  virtual ~Visitor() = default;

  /// A parameter. An undefined one (a layer without bias) is passed over.
  void operator()(std::string_view name, Tensor& parameter);
  /// A parameter that is another module's too: one slot with two names.
  void tied(std::string_view name, Tensor& parameter);
  /// A tensor that is saved and moved with the parameters but not trained, such as running statistics.
  void buffer(std::string_view name, Tensor& buffer);
  void operator()(std::string_view name, Module& child);
  /// A child whose parts appear as the module's own, without a name between.
  void unnamed(Module& child);
  /// A list: name.0, name.1, …
  template <class M>
  void operator()(std::string_view name, std::vector<std::unique_ptr<M>>& children) {
    for (size_t i = 0; i < children.size(); ++i)
      (*this)(concat(name, '.', i), static_cast<Module&>(*children[i]));
  }

 protected:
  virtual void on_parameter(const std::string& name, Tensor& parameter, bool tied) = 0;
  virtual void on_buffer(const std::string&, Tensor&) {}
  /// Called before the parts of a child; visits them unless overridden.
  virtual void on_module(const std::string& name, Module& child);
  /// Visits the parts of `module`, whose names begin with `prefix`.
  void walk(const std::string& prefix, Module& module);

 private:
  std::string full_name(std::string_view name) const;

  std::string prefix_;
};

/// Base of all modules. A module owns its parameters and children as members and lists each once in visit();
/// all else (names, device moves, train and eval, saving, the summary) follows from that list. Modules are
/// not copied.
class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  virtual void visit(Visitor& visitor) = 0;
  /// What print_tree shows beside the module's name: "Linear(128, 512)". Unless overridden the name of the
  /// class.
  virtual std::string describe() const;

  /// The names and tensors of all parameters, wherever these lie.
  std::vector<Parameter> named_parameters();
  /// The names and tensors of all buffers.
  NamedTensors named_buffers();
  /// All parameters, those that no list has yet packed into an arena (core/parameters.h). Parts have lists of
  /// their own, before and after that of the whole. StateError if a part has come since, and an optimizer
  /// holds the list there was: it would not train that part.
  Parameters parameters();

  /// Freezes the parameters whose names a pattern fits (* stands for any characters), or those of the whole
  /// module, with false; thaws them with true. A frozen parameter gets no gradient and is never stepped. What
  /// an optimizer has of it stays as it is. ConfigError if the pattern fits none.
  void set_requires_grad(bool value, const std::string& pattern = "*");

  /// Training mode (dropout acts) for this module and all its parts; eval() is train(false).
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  /// Moves or converts all parameters and buffers. StateError once an optimizer holds one that would change.
  /// Floating buffers become what sums of the parameters' new type are kept in: f32, or f64 of f64.
  void to(Device device);
  void to(DType dtype);

 private:
  bool training_ = true;
  Parameters parameters_;
};

}  // namespace heed::nn
