// The gradient of every parameter and input of each module: in f64 against central differences, and in f32 on
// every device against those of f64.
#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/layers/dropout.h>
#include <heed/nn/models/transformer.h>

#include "on_device.h"
#include "op_check.h"

namespace heed::nn {
namespace {

using test::normal;
using test::on;
using test::Tensors;

constexpr int64_t kModel = 8, kHeads = 2;

const Segments kSegments = Segments::packed(std::vector<int32_t>{3, 1, 4});  // 8 rows
const Segments kSources = Segments::packed(std::vector<int32_t>{2, 5, 3});   // 10 rows
const Tokens kSource = Tokens::packed({{1, 3, 4, 2}, {1, 5, 2}, {1, 3, 3, 6, 2}});
const Tokens kTarget = Tokens::packed({{1, 4, 3}, {1, 5, 6, 3}, {1, 6}});

// All parameters, in f64. Biases begin at zero and norms at one: both are moved, so that each term counts.
Tensors leaves_of(Module& module, std::vector<Tensor> inputs = {}) {
  module.to(DType::f64);
  const NoGrad no_grad;
  uint64_t seed = 100;
  for (const Parameter& parameter : module.parameters()) {
    parameter.tensor.add_(normal(parameter.tensor.shape(), ++seed) * 0.1);
    inputs.push_back(parameter.tensor);
  }
  return inputs;
}

Tensor input(const Shape& shape, uint64_t seed) { return normal(shape, seed).set_requires_grad(); }

Tensor weights_for(const Tensor& output) {
  return normal(output.shape(), 1).to(output.dtype()).to(output.device());
}

// The gradients of inputs and parameters of a module that is moved for it.
template <class Module, class Call>
Tensors gradients(Module& module, const Tensors& inputs, DType dtype, Device device, Call& call) {
  test::move(module, dtype, device);
  Tensors leaves;
  for (const Tensor& x : inputs)
    leaves.push_back(x.detach().to(dtype).to(device).clone().set_requires_grad());
  const Tensor y = call(leaves);
  y.backward(weights_for(y));
  for (const Parameter& parameter : module.parameters()) leaves.push_back(parameter.tensor);
  Tensors result;
  for (const Tensor& leaf : leaves) {
    EXPECT_TRUE(leaf.grad().defined());
    result.push_back(leaf.grad().clone());
    leaf.zero_grad();
  }
  return result;
}

// A module whose inputs are `shape` matrices.
template <class Module, class Call>
void check(const std::string& name, Module& module, const std::vector<Shape>& shapes, Call&& call,
           int64_t most_elements = 8) {
  Tensors inputs;
  for (const Shape& shape : shapes) inputs.push_back(input(shape, inputs.size() + 1));
  test::check_gradients(
      name, leaves_of(module, inputs), [&] { return Tensors{call(inputs)}; }, most_elements);

  SCOPED_TRACE(name);
  module.parameters().zero_grad();
  test::check_f32([&](DType dtype, Device device) { return gradients(module, inputs, dtype, device, call); });
  module.to(kCpu);
}

TEST(ModuleGradients, Linear) {
  for (const int64_t rows : {1, 33})
    for (const bool bias : {true, false}) {
      Linear module(5, 7, bias);
      check(concat("linear of ", rows, bias ? " with bias" : ""), module, {{rows, 5}},
            [&](const Tensors& x) { return module(x[0]); });
    }
}

TEST(ModuleGradients, EmbeddingAndPositions) {
  Embedding table(9, kModel);
  check("embedding", table, {}, [&](const Tensors&) { return table(kSource.ids.to(table.weight.device())); });
  Embedding scaled(9, kModel);
  PositionTable position(PositionKind::learned, kModel, {.max_length = 6});
  Tensors leaves = leaves_of(scaled);
  for (const Tensor& leaf : leaves_of(position)) leaves.push_back(leaf);
  const Tensor ids = position_ids(kSource.segments, kSource.ids.numel(), kCpu);
  const auto embed = [&](double dropout) {
    return [&, dropout] {
      Generator generator(7);
      return Tensors{scaled(kSource.ids, {.scale = 3,
                                          .position = position.table(5, DType::f64, kCpu),
                                          .position_ids = ids,
                                          .dropout = dropout,
                                          .generator = &generator})};
    };
  };
  test::check_gradients("embedding with learned positions", leaves, embed(0));
  test::check_gradients("embedding with dropout", leaves, embed(0.3));
}

TEST(ModuleGradients, Norms) {
  for (const NormKind kind : {NormKind::layer, NormKind::rms})
    for (const int64_t width : {1, 31, 32, 33}) {
      Norm module(kind, width, 1e-5);
      check(concat(name(kind), " norm of ", width), module, {{3, width}},
            [&](const Tensors& x) { return module(x[0]); });
      check(concat("residual ", name(kind), " norm of ", width), module, {{3, width}, {3, width}},
            [&](const Tensors& x) { return module(x[0], x[1], {}).normed; });
    }
}

TEST(ModuleGradients, FeedForward) {
  for (const FeedForwardKind kind : {FeedForwardKind::gelu, FeedForwardKind::gelu_tanh, FeedForwardKind::silu,
                                     FeedForwardKind::swiglu, FeedForwardKind::relu})
    for (const double dropout : {0.0, 0.25}) {
      FeedForward module(kModel, 13, {.kind = kind, .dropout = dropout});
      check(concat("feed-forward ", name(kind), " dropout ", dropout), module, {{5, kModel}},
            [&](const Tensors& x) {
              Generator generator(3);
              const GeneratorScope scope(generator);
              return module(x[0]);
            });
    }
}

TEST(ModuleGradients, MultiHeadAttention) {
  for (const PositionKind position :
       {PositionKind::none, PositionKind::alibi, PositionKind::relative, PositionKind::t5})
    for (const bool bias : {true, false})
      for (const Visibility& rule :
           {Visibility{}, Visibility{Causal::top_left}, Visibility{.window_left = 1}}) {
        MultiHeadAttention module(kModel, kHeads,
                                  {.qkv_bias = bias,
                                   .out_bias = bias,
                                   .position = position,
                                   .relative_limit = 2,
                                   .relative_buckets = 4});
        check(concat("self-attention ", name(position), bias ? " with bias" : ""), module, {{8, kModel}},
              [&](const Tensors& x) { return module.self(x[0], kSegments, {.visibility = rule}); });
      }
  const HeadLayout grouped{.heads = 4, .key_heads = 2, .width = 6};
  MultiHeadAttention shared(kModel, grouped, {.position = PositionKind::rotary});
  const RotaryConfig rotary{.width = 4};
  const Rotation rotation{rotary_table(8, rotary, 6), position_ids(kSegments, 8, kCpu)};
  check("self-attention with grouped queries and rotary positions", shared, {{8, kModel}},
        [&](const Tensors& x) {
          const DType dtype = x[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
          return shared.self(x[0], kSegments,
                             {.rotation = {rotation.table.to(dtype).to(x[0].device()),
                                           rotation.positions.to(x[0].device())}});
        });
  MultiHeadAttention module(kModel, kHeads, {.dropout = 0.2});
  const Segments cross = Segments::cross(kSegments, kSources);
  check("cross-attention with dropout", module, {{8, kModel}, {10, kModel}}, [&](const Tensors& x) {
    Generator generator(5);
    const GeneratorScope scope(generator);
    return module.cross(x[0], x[1], cross);
  });
}

LayerConfig layer_config(NormPlacement norm, FeedForwardKind activation) {
  TransformerConfig config;
  config.d_model = kModel;
  config.heads = kHeads;
  config.d_ff = 12;
  config.norm = norm;
  config.activation = activation;
  config.set_dropout(0.1);
  return config;
}

TEST(ModuleGradients, Layers) {
  for (const NormPlacement norm : {NormPlacement::pre, NormPlacement::post})
    for (const FeedForwardKind kind : {FeedForwardKind::gelu, FeedForwardKind::swiglu}) {
      const auto in_scope = [](auto&& call) {
        Generator generator(9);
        const GeneratorScope scope(generator);
        return call();
      };
      EncoderLayer encoder(layer_config(norm, kind));
      check(concat("encoder layer ", name(norm), " ", name(kind)), encoder, {{8, kModel}},
            [&](const Tensors& x) { return in_scope([&] { return encoder(x[0], kSegments); }); });
      DecoderLayer decoder(layer_config(norm, kind));
      check(concat("decoder layer ", name(norm), " ", name(kind)), decoder, {{8, kModel}, {10, kModel}},
            [&](const Tensors& x) {
              return in_scope([&] {
                return decoder(x[0], kSegments, {x[1], {}}, Segments::cross(kSegments, kSources),
                               {.visibility = {Causal::top_left}}, {});
              });
            });
    }
}

TEST(ModuleGradients, WholeModelsUpToTheLoss) {
  const Tensor labels = tensor<int64_t>({4, 3, 2, 5, 6, 0, 2, 6, 2});
  for (const NormPlacement norm : {NormPlacement::pre, NormPlacement::post})
    for (const PositionKind position :
         {PositionKind::sinusoidal, PositionKind::learned, PositionKind::alibi, PositionKind::relative,
          PositionKind::rotary, PositionKind::t5, PositionKind::none})
      for (const bool tied : {false, true}) {
        TransformerConfig config;
        config.source_vocabulary = config.target_vocabulary = 9;
        config.d_model = kModel;
        config.heads = kHeads;
        config.d_ff = 12;
        config.encoder_layers = config.decoder_layers = 1;
        config.norm = norm;
        config.position = position;
        config.max_length = 8;
        config.activation = FeedForwardKind::gelu;
        config.share_embeddings = config.tie_generator = tied;
        config.set_dropout(0.1);
        Transformer model(config);
        const auto loss = [&](const Tensors&) {
          Generator generator(11);
          const GeneratorScope scope(generator);
          const Device device = model.tgt_embedding.weight.device();
          return cross_entropy(model.forward(on(device, kSource), on(device, kTarget)), labels.to(device),
                               {.ignore = 0, .label_smoothing = 0.1});
        };
        check(concat("transformer ", name(norm), " ", name(position), tied ? " tied" : ""), model, {}, loss,
              3);
      }
}

}  // namespace
}  // namespace heed::nn
