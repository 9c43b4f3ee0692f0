// Containers: modules one after the other, and lists of modules of one kind.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <heed/nn/module.h>

namespace heed::nn {

/// Modules and functions applied one after the other. Parts are named by their places, functions counted:
///
///   nn::Sequential mlp;
///   mlp.add<nn::Linear>(784, 128).add(relu).add<nn::Linear>(128, 10);  // 0.weight, 0.bias, 2.weight, 2.bias
class Sequential : public Module {
 public:
  /// A module M(args…) that maps a tensor to a tensor.
  template <class M, class... Args>
  Sequential& add(Args&&... args) {
    auto module = std::make_unique<M>(std::forward<Args>(args)...);
    M& part = *module;
    steps_.push_back({std::move(module), [&part](const Tensor& x) { return part(x); }});
    return *this;
  }
  /// A function without parameters, such as relu.
  Sequential& add(std::function<Tensor(const Tensor&)> function);

  Tensor operator()(const Tensor& x) const;

  int64_t size() const { return static_cast<int64_t>(steps_.size()); }

  void visit(Visitor& v) override;
  std::string describe() const override { return "Sequential"; }

 private:
  struct Step {
    std::unique_ptr<Module> module;  // null for a function
    std::function<Tensor(const Tensor&)> apply;
  };
  std::vector<Step> steps_;
};

/// A list of modules of one kind, named 0, 1, ….
template <class M>
class ModuleList : public Module {
 public:
  template <class... Args>
  M& add(Args&&... args) {
    modules_.push_back(std::make_unique<M>(std::forward<Args>(args)...));
    return *modules_.back();
  }

  int64_t size() const { return static_cast<int64_t>(modules_.size()); }
  /// IndexError outside of 0 … size() - 1.
  M& operator[](int64_t i) const {
    HEED_CHECK(i >= 0 && i < size(), IndexError, "ModuleList: there is no module ", i, " of ", size());
    return *modules_[static_cast<size_t>(i)];
  }

  void visit(Visitor& v) override {
    for (int64_t i = 0; i < size(); ++i) v(concat(i), static_cast<Module&>((*this)[i]));
  }
  std::string describe() const override { return concat("ModuleList of ", size()); }

 private:
  std::vector<std::unique_ptr<M>> modules_;
};

}  // namespace heed::nn
