// A model in bf16, on every device: what is kept in which precision, and that it learns.
#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>

#include "address_sanitizer.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::nn {
namespace {

using test::on;

const Tokens kSource = Tokens::packed({{1, 3, 4, 2}, {1, 5, 2}, {1, 8, 3, 6, 2}});
const Tokens kTarget = Tokens::packed({{1, 4, 3}, {1, 5}, {1, 6, 3, 8}});
const Tensor kLabels = tensor<int64_t>({4, 3, 2, 5, 2, 6, 3, 8, 2});

TransformerConfig config(NormPlacement norm) {
  TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 9;
  config.d_model = 32;
  config.heads = 2;
  config.d_ff = 64;
  config.encoder_layers = config.decoder_layers = 2;
  config.norm = norm;
  config.set_dropout(0);
  return config;
}

Tensor loss_of(const Transformer& model) {
  const Device device = model.tgt_embedding.weight.device();
  return cross_entropy(model.forward(on(device, kSource), on(device, kTarget)), kLabels.to(device));
}

// The losses of some steps of Adam.
std::vector<double> losses(NormPlacement norm, DType dtype, int steps, Device device) {
  Generator generator(3);
  Transformer model(config(norm), generator);
  test::move(model, dtype, device);
  optim::Adam adam(model.parameters(), {.lr = 2e-3});
  std::vector<double> result;
  for (int step = 0; step < steps; ++step) {
    const Tensor loss = loss_of(model);
    result.push_back(loss.item<double>());
    loss.backward();
    adam.step({.clip = 1});
  }
  return result;
}

void check_precisions(NormPlacement norm, Device device) {
  Transformer model(config(norm));
  test::move(model, DType::bf16, device);
  const Tensor memory = model.encode(on(device, kSource));
  EXPECT_EQ(memory.dtype(), DType::bf16);
  EXPECT_EQ(model.decode(on(device, kTarget), memory, kSource.segments).dtype(), DType::bf16);
  const Tensor loss = loss_of(model);
  EXPECT_EQ(loss.dtype(), DType::f32);
  loss.backward();
  EXPECT_EQ(model.parameters().dtype(), DType::bf16);
  EXPECT_EQ(model.parameters().gradient_dtype(), DType::f32);
  const optim::Adam adam(model.parameters());
  int64_t masters = 0;
  for (const auto& entry : adam.state()) {
    EXPECT_EQ(entry.second.dtype(), entry.first.compare(0, 4, "step") == 0 ? DType::i64 : DType::f32)
        << entry.first;
    masters += entry.first.compare(0, 7, "master.") == 0;
  }
  EXPECT_EQ(masters, model.parameters().size());
}

TEST(BFloat16, OnlyParametersAndTheStreamAreNarrow) {
  for (const Device device : test::devices())
    for (const NormPlacement norm : {NormPlacement::pre, NormPlacement::post}) {
      SCOPED_TRACE(concat(device, ' ', name(norm)));
      check_precisions(norm, device);
    }
}

TEST(BFloat16, LearnsLikeFloat) {
  for (const NormPlacement norm : {NormPlacement::pre, NormPlacement::post}) {
    const std::vector<double> wide = losses(norm, DType::f32, 80, kCpu);
    EXPECT_LT(wide.back(), 0.1 * wide[0]);
    for (const Device device : test::devices()) {
#ifdef HEED_ADDRESS_SANITIZER  // takes minutes; the test above runs the same kernels
      if (device.is_cuda()) continue;
#endif
      SCOPED_TRACE(concat(device, ' ', name(norm)));
      const std::vector<double> narrow = losses(norm, DType::bf16, 80, device);
      // The first loss differs by rounding alone: some ulps of bf16 (2^-8) of the largest logits.
      EXPECT_NEAR(narrow[0], wide[0], 8 * 0x1p-8 * wide[0]);
      EXPECT_LT(narrow.back(), 0.1 * narrow[0]);
    }
  }
}

}  // namespace
}  // namespace heed::nn
