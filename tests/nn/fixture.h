// What PyTorch computed, as tests/fixtures/write_fixtures.py wrote it, and the comparison with a module of
// ours.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/core/serialize.h>
#include <heed/nn/module.h>
#include <heed/optim/adam.h>

#include "golden.h"

namespace heed::test {

/// One case of a fixture file: the tensors under "label/", described in write_fixtures.py.
class Fixture {
 public:
  Fixture(const std::string& file, const std::string& label) {
    for (const auto& entry : load_tensors(HEED_FIXTURES "/" + file + ".safetensors"))
      if (entry.first.rfind(label + "/", 0) == 0)
        tensors_.emplace(entry.first.substr(label.size() + 1), entry.second);
  }
  const Tensor& operator[](const std::string& key) const {
    const auto found = tensors_.find(key);
    HEED_CHECK(found != tensors_.end(), IndexError, "the fixture has no '", key, "'");
    return found->second;
  }
  double number(const std::string& key, int64_t i = 0) const {
    return (*this)[key].to(DType::f64).data<double>()[i];
  }
  /// The names after "prefix/", sorted.
  std::vector<std::string> names(const std::string& prefix) const {
    std::vector<std::string> names;
    for (const auto& entry : tensors_)
      if (entry.first.rfind(prefix + "/", 0) == 0) names.push_back(entry.first.substr(prefix.size() + 1));
    return names;
  }

 private:
  std::map<std::string, Tensor> tensors_;
};

/// The positions of a module's parameters in the order of their names.
inline std::vector<int64_t> sorted_by_name(const Parameters& parameters) {
  std::vector<int64_t> order(static_cast<size_t>(parameters.size()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return parameters[a].name < parameters[b].name; });
  return order;
}

/// Fills them as write_fixtures.py does.
inline void fill_parameters(const Parameters& parameters, const Fixture& fixture) {
  const NoGrad no_grad;
  uint64_t key = 100 * static_cast<uint64_t>(fixture.number("seed"));
  for (const int64_t i : sorted_by_name(parameters)) {
    const Parameter& p = parameters[i];
    const Tensor value = golden_input(++key, p.tensor.shape());
    const bool norm_weight =
        p.tensor.rank() == 1 && p.name.find("norm") != std::string::npos && p.name.ends_with("weight");
    const double scale = p.tensor.rank() > 1 ? 1 / std::sqrt(static_cast<double>(p.tensor.size(-1))) : 0.1;
    p.tensor.copy_(value * scale + (norm_weight ? 1.0 : 0.0));
  }
}

inline Tensor as_f64(const Tensor& x) { return x.detach().to(kCpu).to(DType::f64); }
inline double largest(const Tensor& x) { return max(abs(as_f64(x))).item<double>(); }
inline double difference(const Tensor& a, const Tensor& b) { return largest(as_f64(a) - as_f64(b)); }

/// A module with inputs that need gradients, in one layout of the batch: `rows` are the rows that count, and
/// `dense_rows` the same tokens' in the padded batch that PyTorch saw.
struct Problem {
  struct Input {
    std::string name;
    Tensor value;
    Tensor rows, dense_rows;  // i64; undefined: the input is not made of tokens
  };

  nn::Module* module = nullptr;
  std::vector<Input> inputs;
  Tensor rows, dense_rows;
  bool post_norm = false;
  std::function<Tensor()> output;
  std::function<Tensor(const Tensor& output)> loss;

  Tensor loss_now() const { return loss(output()); }
};

/// The part of a fixture's padded output that a layout has.
inline Tensor tokens_of(const Tensor& padded, const Tensor& dense_rows) {
  return index_select(padded.reshape({-1, padded.size(-1)}), dense_rows);
}

/// The gradients by name, ours and PyTorch's, as f64 on the CPU, of the parameters and the inputs.
struct Gradient {
  Tensor got, want;
};
inline std::map<std::string, Gradient> gradients(const Problem& p, const Fixture& fixture) {
  std::map<std::string, Gradient> result;
  for (const Parameter& parameter : p.module->parameters())
    result[parameter.name] = {as_f64(parameter.tensor.grad()), fixture["gradient/" + parameter.name]};
  for (const Problem::Input& input : p.inputs) {
    const Tensor got = as_f64(input.value.grad()), want = fixture["gradient/" + input.name];
    result[input.name] = input.rows.defined()
                             ? Gradient{index_select(got, input.rows), tokens_of(want, input.dense_rows)}
                             : Gradient{got, want.reshape(got.shape())};
  }
  std::vector<std::string> names;
  for (const auto& entry : result) names.push_back(entry.first);
  EXPECT_EQ(names, fixture.names("gradient"));
  return result;
}

/// The keys' third of an input projection's bias has no gradient, since softmax ignores what all keys share:
/// what rounding leaves of it is compared with nothing.
inline void expect_no_key_bias_gradient(const std::map<std::string, Gradient>& gradients, double tolerance) {
  for (const auto& entry : gradients)
    if (entry.first.ends_with("in_proj_bias")) {
      const int64_t d = entry.second.got.numel() / 3;
      EXPECT_LE(largest(entry.second.got.slice(0, d, 2 * d)), tolerance) << entry.first;
      EXPECT_GT(largest(entry.second.got.slice(0, 0, d)), 100 * tolerance) << entry.first;
    }
}

/// Losses of as many Adam steps as the fixture has, or of three on a device other than the CPU, which may be
/// emulated.
inline std::vector<double> train(const Problem& p, const Fixture& fixture) {
  p.module->parameters().zero_grad();
  optim::Adam adam(p.module->parameters(), {.lr = 1e-3});
  std::vector<double> losses;
  const int64_t all = fixture["losses"].numel();
  const int64_t steps = p.module->parameters().device().is_cpu() ? all : 3;
  for (int64_t i = 0; i < steps; ++i) {
    const Tensor loss = p.loss_now();
    losses.push_back(loss.item<double>());
    loss.backward();
    adam.step();
  }
  return losses;
}

/// In f64 PyTorch and heed agree to rounding: output, gradients, the losses of 20 steps, and what they led
/// to.
inline void expect_parity_f64(const Problem& p, const Fixture& fixture) {
  const Tensor y = p.output();
  EXPECT_LE(difference(index_select(as_f64(y), p.rows), tokens_of(fixture["output"], p.dense_rows)), 1e-10);
  p.loss(y).backward();
  const auto all = gradients(p, fixture);
  expect_no_key_bias_gradient(all, 1e-15);
  for (const auto& [name, gradient] : all)
    EXPECT_LE(difference(gradient.got, gradient.want), 1e-10 * std::min(1.0, largest(gradient.want))) << name;
  const std::vector<double> losses = train(p, fixture);
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], fixture.number("losses", static_cast<int64_t>(i)), 1e-10) << "step " << i;
  for (const Parameter& parameter : p.module->parameters())
    EXPECT_LE(difference(parameter.tensor, fixture["after/" + parameter.name]), 1e-8) << parameter.name;
}

/// In f32 heed is as close to f64 as PyTorch's own f32, within a factor of two.
inline void expect_parity_f32(const Problem& p, const Fixture& fixture) {
  const Tensor y = p.output();
  EXPECT_LE(difference(index_select(as_f64(y), p.rows), tokens_of(fixture["output"], p.dense_rows)), 1e-5);
  p.loss(y).backward();
  const auto all = gradients(p, fixture);
  expect_no_key_bias_gradient(all, 1e-7);
  int64_t i = 0;
  for (const auto& [name, gradient] : all) {
    const double distance = norm(gradient.got - gradient.want).item<double>();
    EXPECT_LE(distance / norm(gradient.want).item<double>(),
              std::max(2e-6, 2 * fixture.number("f32_distance", i++)))
        << name;
  }
  const std::vector<double> losses = train(p, fixture);
  double ours = 0, theirs = 0, level = 0;
  for (size_t k = 0; k < losses.size(); ++k) {
    const double exact = fixture.number("losses", static_cast<int64_t>(k));
    ours = std::max(ours, std::abs(losses[k] - exact));
    theirs = std::max(theirs, std::abs(fixture.number("losses_f32", static_cast<int64_t>(k)) - exact));
    level = std::max(level, std::abs(exact));
  }
  // A loss is itself a rounded f32 number: a few units in its last place are no sign of anything.
  EXPECT_LE(ours, std::max(2 * theirs, 4 * 0x1p-23 * level));
  EXPECT_LE(ours, p.post_norm ? 2e-4 : 2e-5);
}

inline void expect_parity(const Problem& p, const Fixture& fixture, DType dtype) {
  dtype == DType::f64 ? expect_parity_f64(p, fixture) : expect_parity_f32(p, fixture);
}

}  // namespace heed::test
