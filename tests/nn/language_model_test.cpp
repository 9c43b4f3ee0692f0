// Decoder-only models: caches, sampling, parameters, and what they refuse.
#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include <heed/core/runtime/captured_step.h>
#include <heed/nn/decoding/generate.h>
#include <heed/nn/parameter.h>
#include <heed/nn/summary.h>
#include <heed/optim/adam.h>

#include "each_device.h"
#include "expect_error.h"
#include "op_check.h"

namespace heed::nn {
namespace {

using test::expect_error;

constexpr int64_t kVocabulary = 11;

LanguageModelConfig small(LanguageModelConfig c = LanguageModelConfig::llama()) {
  c.vocabulary = kVocabulary;
  c.layers = 2;
  c.d_model = 24;
  c.heads = 4;
  c.key_heads = 2;
  c.d_ff = 20;
  c.max_length = 80;
  return c;
}

// Larger weights than at first, so that logits differ.
std::unique_ptr<LanguageModel> model_of(const LanguageModelConfig& config, Device device = kCpu) {
  Generator generator(3);
  auto model = std::make_unique<LanguageModel>(config, generator);
  const NoGrad no_grad;
  for (const Parameter& p : model->parameters())
    if (p.tensor.rank() == 2) p.tensor.mul_(10);
  model->to(device);
  return model;
}

std::vector<LanguageModelConfig> several() {
  std::vector<LanguageModelConfig> configs{small(), small(LanguageModelConfig::gpt2())};
  for (const PositionKind position :
       {PositionKind::none, PositionKind::sinusoidal, PositionKind::alibi, PositionKind::relative}) {
    configs.push_back(small());
    configs.back().position = position;
    configs.back().norm = position == PositionKind::alibi ? NormPlacement::post : NormPlacement::pre;
    configs.back().tie_embeddings = false;
  }
  configs.push_back(small());
  configs.back().rotary = {.base = 100, .width = 4, .pairing = RotaryPairing::interleaved};
  configs.back().head_width = 10;
  configs.back().key_heads = 1;
  configs.push_back(small());
  configs.back().window = 3;
  configs.push_back(small());
  configs.back().window = 1;
  configs.back().global_tokens = 2;
  configs.push_back(small());
  configs.back().blocks = BlockPattern(tensor(std::vector<int64_t>{1, 0, 0, 1}, {2, 2}).to(DType::boolean));
  return configs;
}

// Of three blocks of tokens, each sees itself and the first.
LanguageModelConfig sparse(int64_t window, int64_t global_tokens) {
  LanguageModelConfig config = small();
  config.window = window;
  config.global_tokens = global_tokens;
  config.blocks =
      BlockPattern(tensor(std::vector<int64_t>{1, 0, 0, 1, 1, 0, 1, 0, 1}, {3, 3}).to(DType::boolean));
  return config;
}

class LanguageModelOn : public test::EachDevice {};
HEED_ON_EACH_DEVICE(LanguageModelOn);

// Prompts of different lengths at once, then rows one at a time, then several at once.
TEST_P(LanguageModelOn, CachedLogitsAreThoseOfAWholeForward) {
  const std::vector<std::vector<int64_t>> texts{
      {1, 2, 3, 4, 5, 6, 7}, {8, 2, 9, 4, 1}, {10, 1, 5, 3, 2, 2, 8}};
  const std::vector<size_t> prompts{3, 1, 3};
  for (const LanguageModelConfig& config : several()) {
    const auto model = model_of(config, device());
    SCOPED_TRACE(model->describe());
    const NoGrad no_grad;
    const Tensor whole = model->forward(Tokens::packed(texts, device())).to(kCpu);
    KeyValueCache cache = model->make_cache(3);
    const auto expect_rows = [&](const std::vector<size_t>& from, const std::vector<size_t>& to) {
      std::vector<std::vector<int64_t>> part;
      std::vector<int64_t> rows;
      int64_t first = 0;
      for (size_t i = 0; i < texts.size(); ++i) {
        part.emplace_back(texts[i].begin() + static_cast<int64_t>(from[i]),
                          texts[i].begin() + static_cast<int64_t>(to[i]));
        for (size_t j = from[i]; j < to[i]; ++j) rows.push_back(first + static_cast<int64_t>(j));
        first += static_cast<int64_t>(texts[i].size());
      }
      const Tensor got = model->forward(Tokens::packed(part, device()), cache).to(kCpu);
      const Tensor want = index_select(whole, tensor(rows, {static_cast<int64_t>(rows.size())}));
      EXPECT_LE(test::max_difference(got, want), 2e-5 * std::max(1.0, test::max_abs(want)));
    };
    expect_rows({0, 0, 0}, prompts);
    expect_rows(prompts, {4, 2, 4});
    expect_rows({4, 2, 4}, {5, 3, 5});
    expect_rows({5, 3, 5}, {7, 5, 7});
    EXPECT_EQ(cache.length(0), 7);
    EXPECT_EQ(cache.length(1), 5);
    EXPECT_EQ(cache.max_length(), 7);
  }
}

// Longer than two blocks, between which windows are cut: in pieces of any length, and one by one.
TEST_P(LanguageModelOn, SparseTextsInPiecesAreThoseOfAWholeForward) {
  const int64_t length = 140;
  std::vector<int64_t> text;
  for (int64_t i = 0; i < length; ++i) text.push_back(i * i % kVocabulary);
  const auto model = model_of(sparse(9, 5), device());
  const NoGrad no_grad;
  const Tensor whole = model->forward(Tokens::packed({text}, device())).to(kCpu);
  KeyValueCache cache = model->make_cache(1);
  int64_t first = 0;
  for (const int64_t end : {3, 4, 70, 130, 137, 138, 139, 140}) {
    const std::vector<int64_t> piece(text.begin() + first, text.begin() + end);
    const Tensor got = model->forward(Tokens::packed({piece}, device()), cache).to(kCpu);
    EXPECT_LE(test::max_difference(got, whole.slice(0, first, end)), 2e-5 * test::max_abs(whole)) << first;
    first = end;
  }
  // The last token sees the global ones, far outside of its window.
  const Tensor without = model_of(sparse(9, 0), device())->forward(Tokens::packed({text}, device())).to(kCpu);
  EXPECT_LE(test::max_difference(without.slice(0, 0, 9), whole.slice(0, 0, 9)), 2e-5 * test::max_abs(whole));
  EXPECT_GT(test::max_difference(without.slice(0, 139, 140), whole.slice(0, 139, 140)), 1e-2);
}

// Each text begins at position 0: packed beside others it has the logits that it has alone.
TEST_P(LanguageModelOn, PackedTextsDoNotSeeEachOther) {
  const auto model = model_of(small(), device());
  const NoGrad no_grad;
  const Tensor both = model->forward(Tokens::packed({{1, 2, 3}, {4, 5, 6, 7}}, device())),
               second = model->forward(Tokens::packed({{4, 5, 6, 7}}, device()));
  EXPECT_LE(test::max_difference(both.slice(0, 3, 7), second), 1e-5);
}

// The likeliest continuations by whole forwards.
std::vector<std::vector<int64_t>> continued(const LanguageModel& model,
                                            const std::vector<std::vector<int64_t>>& prompts, int64_t count,
                                            Device device) {
  const NoGrad no_grad;
  std::vector<std::vector<int64_t>> texts;
  for (std::vector<int64_t> text : prompts) {
    texts.emplace_back();
    for (int64_t step = 0; step < count; ++step) {
      const Tensor logits = model.forward(Tokens::packed({text}, device));
      text.push_back(argmax(logits[logits.size(0) - 1], 0).item<int64_t>());
      texts.back().push_back(text.back());
    }
  }
  return texts;
}

TEST_P(LanguageModelOn, GreedyTextsAreThoseWithoutACache) {
  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3, 4}, {5}, {6, 7}};
  const int64_t count = device().is_cpu() ? 40 : 4;  // 40: more than a cache first has room for
  for (const LanguageModelConfig& config : {small(), sparse(2, 3)}) {
    const auto model = model_of(config, device());
    SCOPED_TRACE(model->describe());
    const std::vector<std::vector<int64_t>> want = continued(*model, prompts, count, device());
    std::vector<std::vector<int64_t>> told(3);
    GenerateOptions options{.max_tokens = count, .sample = {.temperature = 0}};
    options.on_token = [&](int64_t prompt, int64_t token) {
      told[static_cast<size_t>(prompt)].push_back(token);
      return true;
    };
    EXPECT_EQ(generate(*model, prompts, options), want);
    EXPECT_EQ(told, want);
    EXPECT_TRUE(model->training());
    // A text ends before its end mark, the others go on.
    options.ends = {want[0][1]};
    options.on_token = {};
    const auto ended = generate(*model, prompts, options);
    for (size_t i = 0; i < 3; ++i) {
      const auto end = std::find(want[i].begin(), want[i].end(), options.ends[0]);
      EXPECT_EQ(ended[i], std::vector<int64_t>(want[i].begin(), end)) << i;
    }
  }
}

TEST_P(LanguageModelOn, CapturedStepsAreThoseOfTheHost) {
  const auto losses = [&](bool capture) {
    const auto model = model_of(small(), device());
    optim::AdamW adam(model->parameters(), {.lr = 1e-2});
    const Segments segments = Segments::dense(2, 4);
    CapturedStep step(device(),
                      [&](const StepInputs& in) -> PooledVector<Tensor> {
                        const Tokens tokens{in.tensors[0], segments, in.tensors[1]};
                        const Tensor loss = cross_entropy(model->forward(tokens), in.tensors[2]);
                        loss.backward();
                        adam.step();
                        return {loss.detach()};
                      },
                      {.capture = capture});
    std::vector<float> losses;
    for (int64_t i = 0; i < 4; ++i)
      losses.push_back(step({.tensors = {(arange(0, 8) + static_cast<double>(i)),
                                         tensor({0, 1, 2, 3, 0, 1, 2, 3}), tensor({1, 2, 3, 4, 5, 6, 7, 8})},
                             .constants = {}})
                           .get()[0]
                           .item<float>());
    EXPECT_EQ(step.graphs(), capture && !device().is_cpu() ? 1 : 0);
    return losses;
  };
  const std::vector<float> captured = losses(true);
  EXPECT_EQ(captured, losses(false));
  EXPECT_NE(captured[0], captured[3]);
}

TEST(LanguageModel, SamplesFollowTheGenerator) {
  const auto model = model_of(small());
  const auto texts = [&](uint64_t seed, const SampleOptions& sample) {
    Generator generator(seed);
    GenerateOptions options{.max_tokens = 12, .sample = sample};
    options.sample.generator = &generator;
    return generate(*model, {{1}, {2, 3}}, options);
  };
  const SampleOptions warm{.temperature = 3};
  EXPECT_EQ(texts(1, warm), texts(1, warm));
  EXPECT_NE(texts(1, warm), texts(2, warm));
  const auto greedy = generate(*model, {{1}, {2, 3}}, {.max_tokens = 12, .sample = {.temperature = 0}});
  EXPECT_EQ(texts(1, {.temperature = 3, .top_k = 1}), greedy);
  EXPECT_EQ(texts(1, {.temperature = 3, .top_p = 1e-6}), greedy);
  EXPECT_EQ(texts(1, {.temperature = 3, .min_p = 1}), greedy);
}

TEST(LanguageModel, TextsGoOnWithACache) {
  const auto model = model_of(small());
  const GenerateOptions once{.max_tokens = 9, .sample = {.temperature = 0}};
  const auto whole = generate(*model, {{1, 2}}, once).front();
  KeyValueCache cache = model->make_cache(1);
  GenerateOptions part{.max_tokens = 4, .sample = {.temperature = 0}, .cache = &cache};
  std::vector<int64_t> text{1, 2};
  for (int turn = 0; turn < 2; ++turn) {
    const std::vector<int64_t> rest(text.begin() + cache.length(0), text.end());  // what the cache has not
    EXPECT_EQ(rest.size(), turn == 0 ? 2u : 1u);
    const auto more = generate(*model, {rest}, part).front();
    text.insert(text.end(), more.begin(), more.end());
  }
  EXPECT_EQ(std::vector<int64_t>(text.begin() + 2, text.end()),
            std::vector<int64_t>(whole.begin(), whole.begin() + 8));
  expect_error<ConfigError>([&] { generate(*model, {{1}, {2}}, part); }, {"for one prompt"});
}

TEST(LanguageModel, TokensThatWereThereArePenalized) {
  const auto model = model_of(small());
  const std::vector<std::vector<int64_t>> prompts{{1, 2}, {3}};
  const GenerateOptions plain{.max_tokens = 10, .sample = {.temperature = 0}};
  GenerateOptions penalized = plain;
  penalized.repetition_penalty = 1e6;
  const auto texts = generate(*model, prompts, penalized);
  // Logits of either sign become the smallest: no token comes twice while there are others.
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<int64_t> all = prompts[i];
    all.insert(all.end(), texts[i].begin(), texts[i].end());
    const size_t checked = std::min<size_t>(all.size(), 6);
    EXPECT_EQ(std::set<int64_t>(all.begin(), all.begin() + static_cast<int64_t>(checked)).size(), checked);
  }
  // One by one or together: the same.
  EXPECT_EQ(generate(*model, {prompts[1]}, penalized).front(), texts[1]);
  penalized.repetition_penalty = 0;
  EXPECT_THROW(generate(*model, prompts, penalized), ConfigError);
  GenerateOptions ended = plain;
  ended.on_token = [](int64_t prompt, int64_t) { return prompt == 1; };
  const auto short_and_long = generate(*model, prompts, ended);
  EXPECT_EQ(short_and_long[0].size(), 1u);
  EXPECT_EQ(short_and_long[1].size(), 10u);
}

TEST(LanguageModel, PublishedSizes) {
  const ShapesOnly shapes;
  const auto parameters = [](const LanguageModelConfig& config) {
    LanguageModel model(config);
    int64_t all = 0;
    for (const Parameter& p : model.named_parameters()) all += p.tensor.numel();
    return all;
  };
  EXPECT_EQ(parameters(LanguageModelConfig::gpt2()), 124439808);
  EXPECT_EQ(parameters(LanguageModelConfig::llama()), 134515008);
}

TEST(LanguageModel, NamesAndDescription) {
  LanguageModelConfig config = small();
  config.layers = 1;
  config.tie_embeddings = false;
  LanguageModel model(config);
  std::vector<std::string> names;
  for (const Parameter& p : model.named_parameters()) names.push_back(p.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "embedding.weight", "layers.0.self_attn.in_proj_weight", "layers.0.self_attn.out_proj.weight",
                "layers.0.linear1.weight", "layers.0.linear2.weight", "layers.0.linear_gate.weight",
                "layers.0.norm1.weight", "layers.0.norm2.weight", "norm.weight", "generator.weight"}));
  EXPECT_EQ(model.describe(), "LanguageModel(24, heads 4, 1 layers, d_ff 20, rms norm, rotary positions)");
  EXPECT_EQ(LanguageModel(sparse(9, 5)).describe(),
            "LanguageModel(24, heads 4, 2 layers, d_ff 20, rms norm, rotary positions, window 9, "
            "global tokens 5, pattern of 3 by 3 blocks)");
  EXPECT_NE(module_tree(model).find("MultiHeadAttention(24, heads 4, key heads 2, dropout 0)"),
            std::string::npos);
  EXPECT_NE(module_tree(model).find("RMSNorm(24, eps 1e-05)"), std::string::npos);
}

TEST(LanguageModel, Gradients) {
  for (LanguageModelConfig config : {small(), sparse(1, 2)}) {
    config.layers = 1;
    LanguageModel model(config);
    model.to(DType::f64);
    test::Tensors leaves;
    for (const Parameter& p : model.parameters()) leaves.push_back(p.tensor);
    const Tokens tokens = Tokens::packed({{1, 2, 3, 4}, {5, 6}});
    test::check_gradients(model.describe(), leaves, [&] { return test::Tensors{model.forward(tokens)}; });
  }
}

TEST(LanguageModel, LogitsOfBf16AreNotRounded) {
  for (const bool tied : {true, false}) {
    LanguageModelConfig config = small();
    config.tie_embeddings = tied;
    LanguageModel model(config);
    model.to(DType::bf16);
    const NoGrad no_grad;
    const Tensor states = model.states(Tokens::packed({{1, 2, 3, 4}, {5, 6}})), logits = model.logits(states);
    EXPECT_EQ(states.dtype(), DType::bf16);
    EXPECT_EQ(logits.dtype(), DType::f32);
    const Tensor weight = (tied ? model.embedding.weight : model.output->weight).detach();
    const Tensor exact = matmul(states.to(DType::f64), weight.to(DType::f64).transpose(0, 1));
    EXPECT_LE(max(abs(logits.to(DType::f64) - exact)).item<double>(), 1e-6 * max(abs(exact)).item<double>());
  }
}

// Of the logits that the forward would make, whichever weight they are by.
TEST(LanguageModel, LossWithoutLogits) {
  for (const bool tied : {false, true}) {
    LanguageModelConfig config = small();
    config.tie_embeddings = tied;
    const auto model = model_of(config);
    const Tokens tokens = Tokens::packed({{1, 2, 3, 4}, {5, 6}});
    const Tensor targets = tensor(std::vector<int64_t>{2, 3, 4, 0, 6, 0}, {6});
    const CrossEntropyOptions options{.ignore = 0, .label_smoothing = 0.1};
    const Tensor loss = model->loss(tokens, targets, options);
    EXPECT_NEAR(loss.item<double>(), cross_entropy(model->forward(tokens), targets, options).item<double>(),
                1e-6);
    loss.backward();
    const Tensor gradient = model->embedding.weight.grad().clone();
    model->parameters().zero_grad();
    cross_entropy(model->forward(tokens), targets, options).backward();
    EXPECT_LE(test::max_difference(gradient, model->embedding.weight.grad()), 1e-6);
  }
}

TEST(LanguageModel, Errors) {
  const auto refuse = [](auto&& change, const char* words) {
    LanguageModelConfig config = small();
    change(config);
    expect_error<ConfigError>([&] { LanguageModel model(config); }, {words});
  };
  refuse([](auto& c) { c.vocabulary = 0; }, "LanguageModel: vocabulary must be positive, got 0");
  refuse([](auto& c) { c.layers = -1; }, "LanguageModel: -1 layers");
  refuse([](auto& c) { c.window = -1; }, "LanguageModel: window is -1");
  refuse([](auto& c) { c.window = 1, c.global_tokens = -1; }, "LanguageModel: global_tokens is -1");
  refuse([](auto& c) { c.global_tokens = 4; }, "LanguageModel: 4 global_tokens without a window");
  refuse([](auto& c) { c.key_heads = 3; }, "key_heads = 3 does not divide heads = 4");
  refuse([](auto& c) { c.d_model = 25; }, "d_model = 25 is not divisible by heads = 4");
  refuse([](auto& c) { c.rotary.width = 5; }, "rotary: 5 columns cannot be turned in heads of 6");
  refuse([](auto& c) { c.head_width = 7; }, "rotary: 7 columns cannot be turned in heads of 7");
  refuse([](auto& c) { c.rotary.base = 0; }, "rotary: base is 0");
  refuse([](auto& c) { c.rotary.scaling.factor = 0.5; }, "rotary: the scaling factor is 0.5");

  const auto model = model_of(small());
  expect_error<ConfigError>([&] { generate(*model, {{1}, {}}); }, {"generate: a prompt is empty"});
  expect_error<ConfigError>([&] { generate(*model, {{1}}, {.max_tokens = 0}); },
                            {"max_tokens must be positive, got 0"});
  EXPECT_THROW(generate(*model, {{kVocabulary}}), IndexError);
  EXPECT_TRUE(generate(*model, {}).empty());
  const auto learned = model_of(small(LanguageModelConfig::gpt2()));
  expect_error<ShapeError>([&] { generate(*learned, {{1}}, {.max_tokens = 100}); },
                           {"longer than the 80 learned positions"});
  {
    const NoGrad no_grad;
    model->embedding.weight.fill_(NAN);
  }
  expect_error<NumericError>([&] { generate(*model, {{1}}); }, {"generate: the logits are NaN"});
}

}  // namespace
}  // namespace heed::nn
