#include <cstdlib>
#include <cxxabi.h>
#include <functional>
#include <memory>
#include <typeinfo>
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

class BufferCollector final : public Visitor {
 public:
  explicit BufferCollector(Module& module) { walk("", module); }
  NamedTensors buffers;

 private:
  void on_parameter(const std::string&, Tensor&, bool) override {}
  void on_buffer(const std::string& name, Tensor& buffer) override { buffers.emplace_back(name, buffer); }
};

// Replaces each buffer by what `convert` makes of it.
class BufferConverter final : public Visitor {
 public:
  BufferConverter(Module& module, std::function<Tensor(const Tensor&)> convert)
      : convert_(std::move(convert)) {
    walk("", module);
  }

 private:
  void on_parameter(const std::string&, Tensor&, bool) override {}
  void on_buffer(const std::string&, Tensor& buffer) override { buffer = convert_(buffer); }
  std::function<Tensor(const Tensor&)> convert_;
};

// A part that was made after an optimizer took all there was.
void check_none_is_late(const Parameters& before, const Parameters& now) {
  for (int64_t i = 0; i < before.size(); ++i)
    if (!before.is_held(i)) return;
  if (before.size() == 0) return;
  for (int64_t i = 0; i < now.size(); ++i)
    HEED_CHECK(
        now.is_held(i) || !now[i].tensor.requires_grad(), StateError, "Module: '", now[i].name,
        "' was made after the optimizer, which would not train it; make parts before the optimizer, or "
        "give new ones an optimizer of their own first");
}

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

void Visitor::buffer(std::string_view name, Tensor& buffer) {
  if (buffer.defined()) on_buffer(full_name(name), buffer);
}

void Visitor::operator()(std::string_view name, Module& child) { on_module(full_name(name), child); }

void Visitor::unnamed(Module& child) { on_module(std::string(prefix_), child); }

void Visitor::on_module(const std::string& name, Module& child) { walk(name, child); }

void Visitor::walk(const std::string& prefix, Module& module) {
  std::string outer = std::exchange(prefix_, prefix);
  module.visit(*this);
  prefix_ = std::move(outer);
}

// The name of the class alone: "Mlp" of "app::Mlp", and of one in an unnamed namespace.
std::string Module::describe() const {
  const char* const mangled = typeid(*this).name();
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr),
                                                    std::free);
  const std::string_view full = name ? name.get() : mangled;
  // Namespaces in front; those of template arguments stay.
  const size_t arguments = full.find('<'), colons = full.substr(0, arguments).rfind("::");
  return std::string(colons == full.npos ? full : full.substr(colons + 2));
}

std::vector<Parameter> Module::named_parameters() { return join_tied(Collector(*this).parameters); }

NamedTensors Module::named_buffers() { return std::move(BufferCollector(*this).buffers); }

Parameters Module::parameters() {
  std::vector<Parameter> now = named_parameters();
  if (parameters_.consists_of(now)) return parameters_;
  const Parameters list(std::move(now));
  check_none_is_late(parameters_, list);
  parameters_ = list;
  return parameters_;
}

void Module::set_requires_grad(bool value, const std::string& pattern) {
  const std::vector<Parameter> all = named_parameters();
  check_pattern("set_requires_grad", pattern, all);
  for (const Parameter& parameter : all)
    if (parameter.fits(pattern)) parameter.tensor.set_requires_grad(value);
}

void Module::train(bool on) {
  training_ = on;
  TrainSwitch(*this, on);
}

void Module::to(Device device) {
  if (const Parameters all = parameters(); all.size() > 0) all.to(device);
  BufferConverter(*this, [&](const Tensor& buffer) { return buffer.to(device); });
}

void Module::to(DType dtype) {
  if (const Parameters all = parameters(); all.size() > 0) all.to(dtype);
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  BufferConverter(*this, [&](const Tensor& buffer) {
    return is_floating(buffer.dtype()) && is_floating(dtype) ? buffer.to(wide) : buffer;
  });
}

}  // namespace heed::nn
