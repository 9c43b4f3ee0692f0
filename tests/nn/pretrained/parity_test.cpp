// Models of `transformers` in heed: outputs and all gradients, as tests/fixtures/write_pretrained.py wrote
// them.
#include <heed/core/numpy.h>
#include <heed/kernels/embedding.h>
#include <heed/nn/pretrained/pretrained.h>

#include "../fixture.h"
#include "op_check.h"
#include "pretrained_fixture.h"

namespace heed::test {
namespace {

using nn::LanguageModel;
using nn::TextEncoder;
using nn::Tokens;
using nn::Transformer;

// The gradients of a model under the names of the files: their values stand in a copy of the model that is
// saved.
template <class Model>
NamedTensors gradients_by_file_name(Model& model) {
  Model copy(model.config());
  copy.to(DType::f64);
  const NoGrad no_grad;
  const Parameters from = model.parameters(), to = copy.parameters();
  for (int64_t i = 0; i < from.size(); ++i) to[i].tensor.copy_(from[i].tensor.grad());
  // f32 is all that a file of weights has: high and low parts keep the digits of f64.
  const TemporaryFolder folder;
  nn::save_pretrained(copy, folder.file("high"));
  for (int64_t i = 0; i < to.size(); ++i)
    to[i].tensor.copy_(to[i].tensor.detach() - to[i].tensor.detach().to(DType::f32).to(DType::f64));
  nn::save_pretrained(copy, folder.file("low"));
  NamedTensors high = load_tensors(folder.file("high") + "/model.safetensors");
  const NamedTensors low = load_tensors(folder.file("low") + "/model.safetensors");
  for (size_t i = 0; i < high.size(); ++i)
    high[i].second = high[i].second.to(DType::f64) + low[i].second.to(DType::f64);
  return high;
}

template <class Model>
void expect_gradients(Model& model, const PretrainedFixture& fixture) {
  size_t compared = 0;
  for (const auto& entry : gradients_by_file_name(model)) {
    if (entry.first == "final_logits_bias") continue;  // a constant there
    const Tensor& want = fixture["gradient/" + entry.first];
    EXPECT_LE(difference(entry.second, want), 1e-10 * std::max(1.0, largest(want))) << entry.first;
    ++compared;
  }
  EXPECT_EQ(compared, fixture.gradients());
}

template <class Forward>
void expect_encoder(const std::string& family, Forward&& types_of) {
  const PretrainedFixture fixture(family);
  for (const DType dtype : {DType::f64, DType::f32}) {
    SCOPED_TRACE(concat(family, " ", dtype));
    const double tolerance = dtype == DType::f64 ? 1e-10 : 1e-5;
    const auto model = nn::load_pretrained<TextEncoder>(fixture.path(), {.dtype = dtype});
    const Tokens tokens = Tokens::packed(rows_by_rule(7, 3, 1));
    const Tensor states = model->forward(tokens, types_of(tokens));
    const Tensor pooled = model->pooled(states, tokens.segments);
    EXPECT_LE(difference(states, fixture["output"]), tolerance);
    EXPECT_LE(difference(pooled, fixture["pooled"]), tolerance);
    const Tensor loss = mean(square(states)) + mean(square(pooled));
    EXPECT_NEAR(loss.item<double>(), fixture.number("loss"), tolerance);
    loss.backward();
    if (dtype == DType::f64) expect_gradients(*model, fixture);
  }
}

TEST(PretrainedParity, Bert) {
  expect_encoder("bert", [](const Tokens& tokens) {
    return where(greater_equal(tokens.row_positions(), 2), full(tokens.ids.shape(), 1, {.dtype = DType::i64}),
                 0);
  });
}

// Padded, and on every device: the same states.
TEST(PretrainedParity, BertPaddedAndOnDevices) {
  const PretrainedFixture fixture("bert");
  const auto texts = rows_by_rule(7, 3, 1);
  constexpr int64_t kLongest = 7;
  const Tensor ids = full({3, kLongest}, kNoToken, {.dtype = DType::i64}),
               types = full({3 * kLongest}, kNoToken, {.dtype = DType::i64});
  std::vector<int32_t> lengths;
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 3; ++i) {
    const auto& text = texts[static_cast<size_t>(i)];
    lengths.push_back(static_cast<int32_t>(text.size()));
    for (int64_t j = 0; j < lengths.back(); ++j) {
      rows.push_back(i * kLongest + j);
      ids.data<int64_t>()[rows.back()] = text[static_cast<size_t>(j)];
      types.data<int64_t>()[rows.back()] = j >= 2;
    }
  }
  for (const Device device : devices(DType::f32)) {
    SCOPED_TRACE(concat(device));
    const auto model = nn::load_pretrained<TextEncoder>(fixture.path());
    model->to(device);
    const Tokens tokens = Tokens::dense(ids.to(device), lengths);
    const Tensor states = model->forward(tokens, types.to(device));
    const Tensor packed = index_select(states.to(kCpu), tensor(rows, {static_cast<int64_t>(rows.size())}));
    EXPECT_LE(difference(packed, fixture["output"]), 1e-5);
    EXPECT_LE(difference(model->pooled(states, tokens.segments), fixture["pooled"]), 1e-5);
    const Tensor length = norm(model->embed(tokens, types.to(device)), {.axes = {1}});
    EXPECT_LE(largest(length.to(kCpu) - 1.0), 1e-6);
  }
}

TEST(PretrainedParity, Roberta) {
  expect_encoder("roberta", [](const Tokens&) { return Tensor(); });
}

void expect_language_model(const std::string& family) {
  const PretrainedFixture fixture(family);
  for (const DType dtype : {DType::f64, DType::f32}) {
    SCOPED_TRACE(concat(family, " ", dtype));
    const double tolerance = dtype == DType::f64 ? 1e-10 : 1e-5;
    const auto model = nn::load_pretrained<LanguageModel>(fixture.path(), {.dtype = dtype});
    const Tokens tokens = Tokens::packed(rows_by_rule(7, 3, 1));
    const Tensor logits = model->forward(tokens);
    EXPECT_LE(difference(logits, fixture["output"]), tolerance * std::max(1.0, largest(fixture["output"])));
    const Tensor loss = cross_entropy(logits, flat(rows_by_rule(2, 5, 4)));
    EXPECT_NEAR(loss.item<double>(), fixture.number("loss"), 2 * tolerance);
    loss.backward();
    if (dtype == DType::f64) expect_gradients(*model, fixture);
  }
}

TEST(PretrainedParity, Gpt2) { expect_language_model("gpt2"); }
TEST(PretrainedParity, LlamaInThreeFiles) { expect_language_model("llama"); }
TEST(PretrainedParity, LlamaTiedWithBiasesAndScaledAngles) { expect_language_model("llama3"); }

TEST(PretrainedParity, LlamaOfGguf) {
  const PretrainedFixture fixture("llama");
  const auto model =
      nn::load_pretrained<LanguageModel>(pretrained_folder() + "/llama.gguf", {.dtype = DType::f64});
  const auto twin = nn::load_pretrained<LanguageModel>(fixture.path(), {.dtype = DType::f64});
  const Tokens tokens = Tokens::packed(rows_by_rule(7, 3, 1));
  const Tensor logits = model->forward(tokens), same = twin->forward(tokens);
  // The two files differ in one number alone: GGUF keeps eps as f32.
  EXPECT_LE(difference(logits, same), 1e-6 * largest(same));
  for (int64_t i = 0; i < model->parameters().size(); ++i)
    EXPECT_TRUE(array_equal(model->parameters()[i].tensor, twin->parameters()[i].tensor))
        << model->parameters()[i].name;
}

TEST(PretrainedParity, Marian) {
  const PretrainedFixture fixture("marian");
  std::vector<std::vector<int64_t>> targets = rows_by_rule(5, 1, 3), labels = rows_by_rule(2, 5, 4);
  for (auto* texts : {&targets, &labels})
    for (auto& text : *texts) text.resize(std::min<size_t>(text.size(), 4));
  for (const DType dtype : {DType::f64, DType::f32}) {
    SCOPED_TRACE(dtype);
    const double tolerance = dtype == DType::f64 ? 1e-10 : 1e-5;
    const auto model = nn::load_pretrained<Transformer>(fixture.path(), {.dtype = dtype});
    const Tensor logits = model->forward(Tokens::packed(rows_by_rule(7, 3, 1)), Tokens::packed(targets));
    EXPECT_LE(difference(logits, fixture["output"]), tolerance * std::max(1.0, largest(fixture["output"])));
    const Tensor loss = cross_entropy(logits, flat(labels));
    EXPECT_NEAR(loss.item<double>(), fixture.number("loss"), 2 * tolerance);
    loss.backward();
    if (dtype == DType::f64) expect_gradients(*model, fixture);
  }
}

}  // namespace
}  // namespace heed::test
