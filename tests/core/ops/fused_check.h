// What the tests of fused operations share: the check against their plain composition, the masks that dropout
// must draw, and errors with their texts.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <heed/core/base/philox.h>
#include <heed/core/ops.h>
#include <heed/core/runtime/backend.h>

#include "expect_error.h"
#include "op_check.h"

namespace heed::test {

/// check_op, and in f64 the outputs and gradients of `plain`, whose simple operations have gradients of their
/// own: both must agree to rounding.
inline void check_fused(const OpCheck& check) {
  check_op(check);
  SCOPED_TRACE(check.name + " against its plain composition");
  const auto leaves = [&] {
    Tensors copies;
    for (const Tensor& x : check.inputs) {
      copies.push_back(x.defined() ? x.clone() : Tensor());
      if (x.defined() && is_floating(x.dtype())) copies.back().set_requires_grad();
    }
    return copies;
  };
  const Tensors fused_inputs = leaves(), plain_inputs = leaves();
  const Tensors fused = check.function(fused_inputs), plain = check.plain(plain_inputs);
  ASSERT_EQ(fused.size(), plain.size());
  for (size_t i = 0; i < fused.size(); ++i) {
    EXPECT_LE(max_difference(fused[i], plain[i]), 1e-12 * std::max(1.0, max_abs(plain[i]))) << "output " << i;
    const Tensor seed = normal(fused[i].shape(), 900 + i);
    fused[i].backward(seed, {.retain_graph = true});
    plain[i].backward(seed, {.retain_graph = true});
  }
  for (size_t i = 0; i < fused_inputs.size(); ++i) {
    if (!fused_inputs[i].defined() || !fused_inputs[i].requires_grad()) continue;
    const Tensor want = plain_inputs[i].grad();
    ASSERT_TRUE(fused_inputs[i].grad().defined()) << "input " << i;
    EXPECT_LE(max_difference(fused_inputs[i].grad(), want), 1e-12 * std::max(1.0, max_abs(want)))
        << "gradient of input " << i;
  }
}

/// The plain composition that the operation itself falls back to.
inline std::function<Tensors(const Tensors&)> unfused(std::function<Tensors(const Tensors&)> function) {
  return [function = std::move(function)](const Tensors& in) {
    const NoFusedKernels no_fused_kernels;
    return function(in);
  };
}

/// check_fused against that.
inline void check_composed(OpCheck check) {
  check.plain = unfused(check.function);
  check_fused(check);
}

/// What dropout of rate p multiplies each element with, drawn at {seed, offset}: 0 or the scale, f64.
inline Tensor dropout_factors(const Shape& shape, double p, uint64_t seed, uint64_t offset = 0) {
  const Dropout dropout = make_dropout(p, {seed, nullptr, offset});
  const Tensor factors = empty(shape, {.dtype = DType::f64});
  for (int64_t i = 0; i < factors.numel(); ++i) {
    const uint32_t bits = dropout_bits(dropout.rng, i / 8).bits(static_cast<int>(i % 8));
    factors.data<double>()[i] = bits >= dropout.threshold ? static_cast<double>(dropout.scale) : 0.0;
  }
  return factors;
}

/// The same for a text of one piece.
template <class E, class F>
void expect_error(F&& call, const std::string& text) {
  expect_error<E>(std::forward<F>(call), {text});
}

/// Writes into `kept`, which the graph of `y` needs, and expects the backward to refuse.
inline void expect_change_is_noticed(const Tensor& y, const Tensor& kept) {
  {
    const NoGrad no_grad;
    kept.detach().fill_(0.5);
  }
  EXPECT_THROW(y.backward(ones(y.shape(), y.options())), AutogradError);
}

inline constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                              Activation::gelu_tanh, Activation::silu};

}  // namespace heed::test
