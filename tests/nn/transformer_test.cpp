#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/core/serialize.h>
#include <heed/nn/models/transformer.h>
#include <heed/nn/summary.h>
#include <heed/nn/weights.h>

#include "flat_values.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::nn {
namespace {

TransformerConfig config_of(int64_t d_model, int64_t heads, int64_t layers, int64_t d_ff,
                            int64_t vocabulary) {
  TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = vocabulary;
  config.d_model = d_model;
  config.heads = heads;
  config.d_ff = d_ff;
  config.encoder_layers = config.decoder_layers = layers;
  return config;
}

const Tokens kSource = Tokens::packed({{1, 3, 4, 2}, {1, 5, 2}});
const Tokens kTarget = Tokens::packed({{1, 4, 3}, {1, 5, 6, 3}});

TEST(Transformer, ParameterCounts) {
  EXPECT_EQ(Transformer(config_of(128, 8, 3, 512, 20)).parameters().numel(), 1'396'244);
  TransformerConfig copy = config_of(128, 4, 2, 512, 100);
  copy.norm = NormPlacement::pre;
  EXPECT_EQ(Transformer(copy).parameters().numel(), 964'708);
  TransformerConfig paper = config_of(512, 8, 6, 2048, 10'000);
  paper.norm = NormPlacement::pre;
  Transformer model(paper);
  EXPECT_EQ(model.parameters().numel(), 59'510'544);
  const std::vector<ComponentCount> counts = count_parameters(model);
  EXPECT_EQ(counts[2].parameters, 18'915'328) << counts[2].name;
  EXPECT_EQ(counts[3].parameters, 25'225'216) << counts[3].name;
}

TEST(Transformer, NamesAreThoseOfTorch) {
  Transformer model(config_of(16, 2, 1, 32, 9));
  std::vector<std::string> names;
  for (const Parameter& p : model.parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"src_embedding.weight",
                                             "tgt_embedding.weight",
                                             "encoder.layers.0.self_attn.in_proj_weight",
                                             "encoder.layers.0.self_attn.in_proj_bias",
                                             "encoder.layers.0.self_attn.out_proj.weight",
                                             "encoder.layers.0.self_attn.out_proj.bias",
                                             "encoder.layers.0.linear1.weight",
                                             "encoder.layers.0.linear1.bias",
                                             "encoder.layers.0.linear2.weight",
                                             "encoder.layers.0.linear2.bias",
                                             "encoder.layers.0.norm1.weight",
                                             "encoder.layers.0.norm1.bias",
                                             "encoder.layers.0.norm2.weight",
                                             "encoder.layers.0.norm2.bias",
                                             "decoder.layers.0.self_attn.in_proj_weight",
                                             "decoder.layers.0.self_attn.in_proj_bias",
                                             "decoder.layers.0.self_attn.out_proj.weight",
                                             "decoder.layers.0.self_attn.out_proj.bias",
                                             "decoder.layers.0.multihead_attn.in_proj_weight",
                                             "decoder.layers.0.multihead_attn.in_proj_bias",
                                             "decoder.layers.0.multihead_attn.out_proj.weight",
                                             "decoder.layers.0.multihead_attn.out_proj.bias",
                                             "decoder.layers.0.linear1.weight",
                                             "decoder.layers.0.linear1.bias",
                                             "decoder.layers.0.linear2.weight",
                                             "decoder.layers.0.linear2.bias",
                                             "decoder.layers.0.norm1.weight",
                                             "decoder.layers.0.norm1.bias",
                                             "decoder.layers.0.norm2.weight",
                                             "decoder.layers.0.norm2.bias",
                                             "decoder.layers.0.norm3.weight",
                                             "decoder.layers.0.norm3.bias",
                                             "generator.weight",
                                             "generator.bias"}));
}

void expect_gradients(const TransformerConfig& config, Device device) {
  Transformer model(config);
  model.to(device);
  const Tensor labels = tensor<int64_t>({4, 3, 2, 5, 6, 3, 2}).to(device);
  cross_entropy(model.forward(test::on(device, kSource), test::on(device, kTarget)), labels).backward();
  for (const Parameter& p : model.parameters()) {
    ASSERT_TRUE(p.tensor.grad().defined()) << p.name;
    EXPECT_GT(heed::norm(p.tensor.grad()).item<double>(), 0) << p.name;
  }
}

TEST(Transformer, EveryParameterGetsAGradient) {
  for (NormPlacement norm : {NormPlacement::pre, NormPlacement::post})
    for (FeedForwardKind kind : {FeedForwardKind::relu, FeedForwardKind::gelu, FeedForwardKind::gelu_tanh,
                                 FeedForwardKind::silu, FeedForwardKind::swiglu})
      for (PositionKind position : {PositionKind::learned, PositionKind::relative}) {
        TransformerConfig config = config_of(16, 2, 2, 32, 9);
        config.norm = norm;
        config.activation = kind;
        config.position = position;
        for (const Device device : test::devices()) {
          SCOPED_TRACE(concat(name(norm), ' ', name(kind), ' ', name(position), " on ", device));
          expect_gradients(config, device);
        }
      }
}

TEST(Transformer, FusedPreNormStackEqualsItsLayersOneByOne) {
  TransformerConfig config = config_of(16, 2, 3, 32, 9);
  config.norm = NormPlacement::pre;
  Transformer model(config);
  model.eval();
  const NoGrad no_grad;
  const Tensor rows = randn({7, 16}, {.dtype = DType::f64});
  const auto both = [&](DType dtype, Device device) {
    test::move(model, dtype, device);
    const Tensor x = rows.to(dtype).to(device);
    Tensor one = x;
    for (const auto& layer : model.encoder.layers) one = (*layer)(one, kSource.segments);
    return test::Tensors{model.encoder(x, kSource.segments), (*model.encoder.norm)(one)};
  };
  const test::Tensors got = both(DType::f64, kCpu);
  EXPECT_LE(test::max_difference(got[0], got[1]), 1e-13);
  test::check_f32(both);
}

TEST(Transformer, TiedWeightsAreOneParameter) {
  TransformerConfig config = config_of(16, 2, 1, 32, 9);
  config.share_embeddings = config.tie_generator = true;
  Transformer model(config);
  const Parameter* tied = model.parameters().find("generator.weight");
  ASSERT_NE(tied, nullptr);
  EXPECT_EQ(tied, model.parameters().find("src_embedding.weight"));
  EXPECT_EQ(tied, model.parameters().find("tgt_embedding.weight"));
}

TEST(Transformer, ImpossibleConfigurations) {
  EXPECT_THROW(Transformer(config_of(16, 3, 1, 32, 9)), ConfigError);
  EXPECT_THROW(Transformer(config_of(16, 2, 1, 0, 9)), ConfigError);
  EXPECT_THROW(Transformer(TransformerConfig{}), ConfigError);
  TransformerConfig config = config_of(16, 2, 1, 32, 9);
  config.set_dropout(1);
  EXPECT_THROW(Transformer{config}, ConfigError);
  config = config_of(16, 2, 1, 32, 9);
  config.position = PositionKind::learned;
  config.max_length = 3;
  const Transformer model(config);
  EXPECT_THROW(model.encode(kSource), ShapeError);
}

class Weights : public ::testing::Test {
 protected:
  const std::string file_ =
      (std::filesystem::temp_directory_path() / concat("heed-weights-", getpid(), ".safetensors")).string();
  void TearDown() override { std::filesystem::remove(file_); }
};

TEST_F(Weights, RoundTripGivesTheSameBits) {
  TransformerConfig config = config_of(16, 2, 1, 32, 9);
  config.tie_generator = true;
  for (const Device device : test::devices()) {
    SCOPED_TRACE(concat("on ", device));
    Transformer a(config), b(config);
    for (Transformer* model : {&a, &b}) {
      model->to(device);
      model->eval();
    }
    const Tokens source = test::on(device, kSource), target = test::on(device, kTarget);
    save_weights(a, file_);
    EXPECT_FALSE(array_equal(a.forward(source, target).detach(), b.forward(source, target).detach()));
    load_weights(b, file_);
    EXPECT_TRUE(array_equal(a.forward(source, target).detach(), b.forward(source, target).detach()));
  }
}

TEST_F(Weights, WhatDoesNotFitChangesNothing) {
  Transformer a(config_of(16, 2, 1, 32, 9)), wider(config_of(32, 2, 1, 32, 9)),
      deeper(config_of(16, 2, 2, 32, 9));
  save_weights(a, file_);
  const Tensor before = test::flat_values(wider.parameters());
  EXPECT_THROW(load_weights(wider, file_), CheckpointError);
  EXPECT_TRUE(array_equal(before, test::flat_values(wider.parameters())));
  EXPECT_THROW(load_weights(deeper, file_), CheckpointError);
  const LoadReport report = load_weights(deeper, file_, {.strict = false});
  EXPECT_EQ(report.missing.size(), 12u + 18u);
  EXPECT_TRUE(report.unexpected.empty());
  EXPECT_TRUE(array_equal(a.src_embedding.weight.detach(), deeper.src_embedding.weight.detach()));
}

TEST_F(Weights, TiedCopiesThatDifferAreAnError) {
  TransformerConfig config = config_of(16, 2, 1, 32, 9);
  Transformer loose(config);
  save_weights(loose, file_);
  config.tie_generator = true;
  Transformer tied(config);
  EXPECT_THROW(load_weights(tied, file_), CheckpointError);
}

}  // namespace
}  // namespace heed::nn
