#include <utility>

#include <heed/nn/module.h>

namespace heed::nn {
namespace {

class Collector final : public Visitor {
 public:
  explicit Collector(Module& module) { walk("", module); }
  std::vector<Parameter> parameters;

 private:
  void on_parameter(const std::string& name, Tensor& parameter, bool) override {
    parameters.push_back({name, {}, parameter});
  }
};

class TrainSwitch final : public Visitor {
 public:
  TrainSwitch(Module& module, bool on) : on_(on) { walk("", module); }

 private:
  void on_parameter(const std::string&, Tensor&, bool) override {}
  void on_module(const std::string&, Module& child) override { child.train(on_); }
  bool on_;
};

}  // namespace

std::string Visitor::full_name(std::string_view name) const {
  HEED_CHECK(!name.empty(), ConfigError, "Module: a part of '", prefix_,
             "' has an empty name; Visitor::unnamed is for a child without one");
  return prefix_.empty() ? std::string(name) : concat(prefix_, '.', name);
}

void Visitor::operator()(std::string_view name, Tensor& parameter) {
  if (parameter.defined()) on_parameter(full_name(name), parameter, false);
}

void Visitor::tied(std::string_view name, Tensor& parameter) {
  if (parameter.defined()) on_parameter(full_name(name), parameter, true);
}

void Visitor::operator()(std::string_view name, Module& child) { on_module(full_name(name), child); }

void Visitor::unnamed(Module& child) { on_module(std::string(prefix_), child); }

void Visitor::on_module(const std::string& name, Module& child) { walk(name, child); }

void Visitor::walk(const std::string& prefix, Module& module) {
  std::string outer = std::exchange(prefix_, prefix);
  module.visit(*this);
  prefix_ = std::move(outer);
}

Parameters Module::parameters() {
  if (parameters_.size() == 0) parameters_ = Parameters(Collector(*this).parameters);
  return parameters_;
}

void Module::train(bool on) {
  training_ = on;
  TrainSwitch(*this, on);
}

void Module::to(Device device) { parameters().to(device); }
void Module::to(DType dtype) { parameters().to(dtype); }

}  // namespace heed::nn
