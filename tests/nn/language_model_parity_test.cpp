// Decoder-only models against PyTorch: forward, every gradient, and training, in f64 and f32, packed and
// padded, on every device.
#include <heed/kernels/embedding.h>
#include <heed/nn/models/language_model.h>

#include "fixture.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::test {
namespace {

constexpr int64_t kVocabulary = 13, kLongest = 10;
const std::vector<int32_t> kLengths{7, 10, 1};

nn::LanguageModelConfig small(nn::LanguageModelConfig c) {
  c.vocabulary = kVocabulary;
  c.layers = 2;
  c.d_model = 20;
  c.heads = 4;
  c.d_ff = 28;
  c.max_length = 12;
  return c;
}

nn::LanguageModelConfig config_of(const std::string& label) {
  if (label == "gpt2") return small(nn::LanguageModelConfig::gpt2());
  nn::LanguageModelConfig c = small(nn::LanguageModelConfig::llama());
  c.key_heads = 2;
  c.head_width = 6;
  c.tie_embeddings = false;
  nn::RotaryScaling& scaling = c.rotary.scaling;
  if (label == "interleaved_part")
    c.rotary = {.base = 500, .width = 4, .pairing = RotaryPairing::interleaved};
  if (label == "linear") {
    c.tie_embeddings = true;
    scaling = {.kind = nn::RotaryScalingKind::linear, .factor = 2};
  }
  if (label == "ntk") {
    c.key_heads = 1;
    scaling = {.kind = nn::RotaryScalingKind::ntk, .factor = 4};
  }
  if (label == "llama3") {
    c.rotary.base = 100;
    scaling = {.kind = nn::RotaryScalingKind::llama3, .factor = 8, .original_length = 64};
  }
  return c;
}

struct Texts {
  nn::Tokens tokens;
  Tensor labels;
  Tensor rows, dense_rows;  // of the tokens, here and in the padded batch
};

Tensor padded(int64_t a, int64_t b, int64_t c) {
  const Tensor ids = empty({static_cast<int64_t>(kLengths.size()), kLongest}, {.dtype = DType::i64});
  for (int64_t i = 0; i < ids.size(0); ++i)
    for (int64_t j = 0; j < kLongest; ++j)
      ids.data<int64_t>()[i * kLongest + j] = (a * i * i + b * j * j + c) % (kVocabulary - 1) + 1;
  return ids;
}

Texts texts(bool packed, Device device) {
  std::vector<int64_t> rows;
  for (size_t i = 0; i < kLengths.size(); ++i)
    for (int64_t j = 0; j < kLengths[i]; ++j) rows.push_back(static_cast<int64_t>(i) * kLongest + j);
  const Tensor dense = tensor(rows, {static_cast<int64_t>(rows.size())});
  const Tensor labels = index_select(padded(2, 5, 4).flatten(), dense);
  if (packed)
    return {{index_select(padded(7, 3, 1).flatten(), dense).to(device), Segments::packed(kLengths)},
            labels.to(device),
            arange(0, dense.numel()).to(device),
            dense};
  const Tensor all = full({padded(0, 0, 0).numel()}, kNoToken, {.dtype = DType::i64});
  for (size_t i = 0; i < rows.size(); ++i) all.data<int64_t>()[rows[i]] = labels.data<int64_t>()[i];
  return {nn::Tokens::dense(padded(7, 3, 1).to(device), kLengths), all.to(device), dense.to(device), dense};
}

struct ModelOnTexts {
  nn::LanguageModel model;
  Texts batch;
  Problem problem;

  ModelOnTexts(const std::string& label, bool packed, DType dtype, Device device)
      : model(config_of(label)), batch(texts(packed, device)) {
    const Fixture fixture("language_model", label);
    move(model, dtype, device);
    fill_parameters(model.parameters(), fixture);
    problem.module = &model;
    problem.rows = batch.rows.to(kCpu);
    problem.dense_rows = batch.dense_rows;
    problem.output = [this] { return model.forward(batch.tokens); };
    problem.loss = [this](const Tensor& logits) {
      return cross_entropy(logits, batch.labels, {.ignore = kNoToken});
    };
  }
};

TEST(LanguageModelParity, StylesOfGpt2AndLlama) {
  for (const char* const label : {"llama", "gpt2"})
    for (const bool packed : {true, false})
      for (const DType dtype : {DType::f64, DType::f32})
        for (const Device device : devices(dtype)) {
          SCOPED_TRACE(concat(label, packed ? " packed " : " padded ", dtype, " on ", device));
          const Fixture fixture("language_model", label);
          expect_parity(ModelOnTexts(label, packed, dtype, device).problem, fixture, dtype);
        }
}

// Pairings, part of the width, scaled angles, one key head.
TEST(LanguageModelParity, OtherRotaryPositions) {
  for (const char* const label : {"interleaved_part", "linear", "ntk", "llama3"}) {
    SCOPED_TRACE(label);
    const Fixture fixture("language_model", label);
    const ModelOnTexts one(label, true, DType::f64, kCpu);
    EXPECT_LE(difference(one.problem.output(), tokens_of(fixture["output"], one.problem.dense_rows)), 1e-10);
    const std::vector<double> losses = train(one.problem, fixture);
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], fixture.number("losses", static_cast<int64_t>(i)), 1e-10) << "step " << i;
    check_f32([&](DType dtype, Device device) {
      return Tensors{ModelOnTexts(label, true, dtype, device).problem.output()};
    });
  }
}

}  // namespace
}  // namespace heed::test
