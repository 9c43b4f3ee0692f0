// Parameters and inputs without data files: element i of key k is a fixed function of (k, i), so that any
// program, in any language, can build the same model and compare.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/models/transformer.h>

namespace heed::test {

/// 2 * (splitmix64(key * 2^32 + i) >> 11) * 2^-53 - 1, in [-1, 1).
inline double golden_value(uint64_t key, uint64_t i) {
  uint64_t z = (key << 32) + i + 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return 2 * static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53 - 1;
}

/// f64, of the given shape.
inline Tensor golden_input(uint64_t key, const Shape& shape) {
  const Tensor x = empty(shape, {.dtype = DType::f64});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = golden_value(key, static_cast<uint64_t>(i));
  return x;
}

/// Fills parameters one after another with keys 1, 2, …: matrices scaled by 1/√columns, biases by 0.1, norm
/// weights 1 plus 0.1 times the value.
class GoldenFill {
 public:
  void matrix(const Tensor& weight) { fill(weight, 0, 1 / std::sqrt(static_cast<double>(weight.size(-1)))); }
  void bias(const Tensor& bias) { fill(bias, 0, 0.1); }
  void linear(const nn::Linear& linear) {
    matrix(linear.weight);
    if (linear.bias.defined()) bias(linear.bias);
  }
  void norm(const nn::Norm& norm) {
    fill(norm.weight, 1, 0.1);
    bias(norm.bias);
  }
  /// Scaled by 1/√width besides, so that embeddings and positions are of like size.
  void embedding(const nn::Embedding& e) {
    fill(e.weight, 0, 1 / std::sqrt(static_cast<double>(e.weight.size(1))));
  }

  /// Separate projections for q, k and v, each with its bias, then the output projection.
  void separate(const nn::MultiHeadAttention& a) {
    for (int64_t part = 0; part < 3; ++part) {
      matrix(a.in_proj_weight.slice(0, part * a.d_model, (part + 1) * a.d_model));
      if (a.in_proj_bias.defined()) bias(a.in_proj_bias.slice(0, part * a.d_model, (part + 1) * a.d_model));
    }
    linear(a.out_proj);
  }
  /// One packed projection, then the output projection.
  void packed(const nn::MultiHeadAttention& a) {
    matrix(a.in_proj_weight);
    bias(a.in_proj_bias);
    linear(a.out_proj);
  }
  void feed_forward(const nn::FeedForward& f) {
    linear(f.linear1);
    linear(f.linear2);
  }
  void layer(const nn::EncoderLayer& l) {
    separate(l.self_attn);
    feed_forward(l.feed_forward);
    norm(l.norm1);
    norm(l.norm2);
  }
  /// With one packed projection.
  void packed_layer(const nn::EncoderLayer& l) {
    packed(l.self_attn);
    feed_forward(l.feed_forward);
    norm(l.norm1);
    norm(l.norm2);
  }
  void layer(const nn::DecoderLayer& l) {
    separate(l.self_attn);
    separate(l.multihead_attn);
    feed_forward(l.feed_forward);
    for (const nn::Norm* each : {&l.norm1, &l.norm2, &l.norm3}) norm(*each);
  }
  void transformer(const nn::Transformer& model) {
    embedding(model.src_embedding);
    embedding(model.tgt_embedding);
    stack(model.encoder);
    stack(model.decoder);
    linear(model.output);
  }

 private:
  template <class Stack>
  void stack(const Stack& s) {
    for (const auto& each : s.layers) layer(*each);
    if (s.norm) norm(*s.norm);
  }
  void fill(const Tensor& x, double offset, double scale) {
    const NoGrad no_grad;
    const Tensor values = golden_input(++key_, x.shape());
    for (int64_t i = 0; i < values.numel(); ++i)
      values.data<double>()[i] = offset + scale * values.data<double>()[i];
    x.copy_(values);
  }

  uint64_t key_ = 0;
};

/// Numbers printed with 12 digits.
inline double golden_tolerance(double value) { return 2e-11 * std::max(1.0, std::abs(value)); }

inline void expect_golden(double got, double want, const std::string& what) {
  EXPECT_NEAR(got, want, golden_tolerance(want)) << what;
}

inline void expect_first(const Tensor& got, const std::vector<double>& want, const std::string& what) {
  const std::vector<double> values = got.detach().reshape({got.numel()}).to_vector<double>();
  for (size_t i = 0; i < want.size(); ++i) expect_golden(values[i], want[i], concat(what, " [", i, "]"));
}

inline void expect_sums(const Tensor& y, double total, double squares) {
  expect_golden(sum(y).item<double>(), total, "sum");
  expect_golden(sum(square(y)).item<double>(), squares, "sum of squares");
}

/// For check_f32: the logits of a sequence-to-sequence test model, then the gradients of its parameters.
template <class Model>
std::vector<Tensor> logits_and_gradients(DType dtype, Device device) {
  Model m(dtype, device);
  std::vector<Tensor> results{m.model.forward(m.source, m.target)};
  m.loss().backward();
  for (const Parameter& p : m.model.parameters()) results.push_back(p.tensor.grad());
  return results;
}

/// Without dropout.
inline nn::LayerConfig plain_layer(int64_t d_model, int64_t heads, int64_t d_ff) {
  nn::LayerConfig config;
  config.d_model = d_model;
  config.heads = heads;
  config.d_ff = d_ff;
  config.attention_dropout = config.activation_dropout = config.residual_dropout = 0;
  return config;
}

}  // namespace heed::test
