#include <array>
#include <thread>

#include <gtest/gtest.h>

#include <heed/core/io/safetensors.h>
#include <heed/core/serialize.h>
#include <heed/nn/init.h>
#include <heed/nn/text/text_model.h>
#include <heed/nn/weights.h>

#include "../../support/expect_error.h"
#include "../../support/temporary_folder.h"

namespace heed::nn {
namespace {

using test::expect_error;
using Texts = std::vector<std::string>;

std::shared_ptr<const data::Tokenizer> tokenizer(data::TokenizerKind kind, const Texts& texts) {
  return data::train_tokenizer({.kind = kind}, {texts});
}

// With weights as they are drawn: outputs mean nothing, but depend on every letter.
TextModel small_model(PositionKind position = PositionKind::sinusoidal, int64_t max_output = 12) {
  const auto source = tokenizer(data::TokenizerKind::characters, {"abcdefgh"});
  const auto target = tokenizer(data::TokenizerKind::symbols, {"A B C D E F G H"});
  TransformerConfig config;
  config.source_vocabulary = source->vocab();
  config.target_vocabulary = target->vocab();
  config.d_model = 16;
  config.heads = 2;
  config.d_ff = 32;
  config.encoder_layers = config.decoder_layers = 2;
  config.norm = NormPlacement::pre;
  config.position = position;
  config.max_length = 12;
  config.tie_generator = true;
  Generator generator(7);
  auto model = std::make_shared<Transformer>(config, generator);
  model->eval();
  return TextModel(model, source, target, max_output);
}

TEST(TextModel, BatchesGiveWhatEachTextGivesAlone) {
  const TextModel model = small_model();
  const Texts texts{"abc", "h", "", "gfedcba", "ab", "hhhh", "abc", "\u00e9"};
  for (const int64_t batch_tokens : {1, 14, 4096}) {
    int64_t counted = 0;
    const auto outputs = model.run(
        texts,
        {.beam = 3, .batch_tokens = batch_tokens, .on_batch = [&](int64_t count) { counted += count; }});
    ASSERT_EQ(outputs.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_EQ(outputs[i].size(), 1u);
      EXPECT_EQ(outputs[i].front().text, model.run(texts[i], {.beam = 3})) << texts[i];
    }
    EXPECT_EQ(counted, 7);  // all but the empty one
    EXPECT_EQ(outputs[2].front().text, "");
    EXPECT_TRUE(outputs[2].front().finished);
  }
  EXPECT_TRUE(model.run(Texts{}).empty());
}

TEST(TextModel, OutputsComeBestFirst) {
  const TextModel model = small_model();
  const auto outputs = model.run(Texts{"abc"}, {.beam = 4, .best = 3}).front();
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_GE(outputs[0].score, outputs[1].score);
  EXPECT_GE(outputs[1].score, outputs[2].score);
  for (const TextOutput& o : outputs) EXPECT_EQ(o.text, model.target().decode(o.tokens));
  expect_error<ConfigError>([&] { model.run(Texts{"a"}, {.beam = 2, .best = 3}); },
                            {"3 outputs", "beam of 2"});
}

TEST(TextModel, OutputsAreForcedAndDrawn) {
  const TextModel model = small_model();
  for (const auto& outputs :
       model.run(Texts{"abc", "h"}, {.beam = 2, .best = 2, .min_length = 5, .prefix = "B A"}))
    for (const TextOutput& o : outputs) {
      EXPECT_EQ(o.text.substr(0, 4), "B A ");
      EXPECT_GE(o.tokens.size(), 5u);
    }
  const auto draw = [&](uint64_t seed) {
    Generator generator(seed);
    return model
        .run(Texts{"abc"},
             {.beam = 8, .best = 8, .sample = SampleOptions{.temperature = 20, .generator = &generator}})
        .front();
  };
  const auto a = draw(1), b = draw(1), c = draw(2);
  ASSERT_EQ(a.size(), 8u);
  bool differs = false;
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(a[i].text, b[i].text);
    differs |= a[i].text != c[i].text;
  }
  EXPECT_TRUE(differs);
}

TEST(TextModel, OutputsEndAtTheLimit) {
  const auto long_output = [](const TextModel& model, const TextOptions& options) {
    const auto all = model.run(Texts{"a", "b", "c", "ab", "ba", "hg", "abcdefgh"}, options);
    for (const auto& outputs : all)
      for (const TextOutput& o : outputs)
        if (!o.finished) return std::ssize(o.tokens);
    return std::ptrdiff_t{-1};
  };
  EXPECT_EQ(long_output(small_model(), {.beam = 4, .best = 4}), 12);
  EXPECT_EQ(long_output(small_model(), {.beam = 4, .best = 4, .max_length = 2}), 2);
  // A learned table of positions ends.
  EXPECT_EQ(long_output(small_model(PositionKind::learned, 50), {.beam = 4, .best = 4}), 12);
}

TEST(TextModel, RefusesTextsThatItCannotTake) {
  const TextModel model = small_model();
  expect_error<DataError>([&] { model.run(Texts{"a", "\xff"}); }, {"text 2", "not UTF-8", "byte 0"});
  expect_error<DataError>([&] { model.run(std::string(5000, 'a')); }, {"text 1", "5000 tokens", "4096"});
  expect_error<DataError>([&] { small_model(PositionKind::learned).run("abcabcabcab"); },
                          {"11 tokens", "10"});
  const auto other = tokenizer(data::TokenizerKind::symbols, {"A"});
  expect_error<ConfigError>(
      [&] { TextModel(std::make_shared<Transformer>(model.model().config()), other, other, 5); },
      {"vocabularies of 267 and 12", "of 5 and 5"});
}

TEST(TextModel, FilesGiveItBack) {
  const test::TemporaryFolder folder;
  const TextModel model = small_model();
  model.save(folder.path());
  const TextModel copy = load_text_model(folder.path());
  EXPECT_EQ(copy.max_output(), 12);
  EXPECT_FALSE(copy.model().training());
  EXPECT_TRUE(copy.model().config().tie_generator);
  for (const char* text : {"abc", "hgfedcba", "\u00e9"}) {
    const auto a = model.run(Texts{text}, {.beam = 3, .best = 3}),
               b = copy.run(Texts{text}, {.beam = 3, .best = 3});
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(a[0][i].text, b[0][i].text);
      EXPECT_EQ(a[0][i].score, b[0][i].score);
    }
  }
}

// A folder tells all that outputs depend on, also where that is not the default.
TEST(TextModel, FilesTellTheWholeArchitecture) {
  const test::TemporaryFolder folder;
  const TextModel plain = small_model();
  TransformerConfig config = plain.model().config();
  config.position = PositionKind::rotary;
  config.rotary = {.base = 500,
                   .width = 4,
                   .pairing = RotaryPairing::interleaved,
                   .scaling = {.kind = RotaryScalingKind::linear, .factor = 2.5}};
  config.norm_kind = NormKind::rms;
  config.key_heads = 1;
  config.qkv_bias = config.feed_forward_bias = config.scale_embeddings = config.tie_generator = false;
  config.activation = FeedForwardKind::swiglu;
  config.final_norm = false;
  Generator generator(7);
  const auto transformer = std::make_shared<Transformer>(config, generator);
  transformer->eval();
  const TextModel model(transformer,
                        std::shared_ptr<const data::Tokenizer>(std::shared_ptr<void>(), &plain.source()),
                        std::shared_ptr<const data::Tokenizer>(std::shared_ptr<void>(), &plain.target()), 9);
  model.save(folder.path());
  const TextModel copy = load_text_model(folder.path());
  for (const char* text : {"abc", "hgfedcba"}) {
    const auto a = model.run(Texts{text}, {.beam = 2}), b = copy.run(Texts{text}, {.beam = 2});
    EXPECT_EQ(a[0][0].tokens, b[0][0].tokens);
    EXPECT_EQ(a[0][0].score, b[0][0].score);
  }
}

TEST(TextModel, DamagedFilesAreRefused) {
  const test::TemporaryFolder folder;
  const TextModel model = small_model();
  const auto refuse = [&](const std::string& message) {
    expect_error<CheckpointError>([&] { load_text_model(folder.path()); }, {message});
  };
  EXPECT_THROW(load_text_model(folder.file("none")), IoError);
  model.save(folder.path());
  data::save_tokenizer(*tokenizer(data::TokenizerKind::symbols, {"A B"}), folder.file("target.tokenizer"));
  refuse("the tokenizers have 267 and 6 ids");
  model.save(folder.path());
  folder.put("source.tokenizer", "hello");
  refuse("no tokenizer");
  model.save(folder.path());
  const auto forge = [&](const std::string& key, const std::string& value) {
    const std::string file = folder.file("model.safetensors");
    auto metadata = SafetensorsReader(file).header().metadata;
    metadata[key] = value;
    for (auto entry = metadata.begin(); entry != metadata.end();)  // digests of the old header
      entry = entry->first == key || entry->first.find('.') == std::string::npos ||
                      entry->first == "heed.text_model"
                  ? std::next(entry)
                  : metadata.erase(entry);
    save_tensors(file, load_tensors(file), metadata);
  };
  for (const auto& [key, value, message] : std::vector<std::array<const char*, 3>>{
           {"heed.text_model", "7", "heed.text_model"},
           {"d_model", "-1", "'d_model' cannot be '-1'"},
           {"d_model", "16777216", "model.safetensors"},  // memory is not asked for
           {"encoder_layers", "9999", "1024 layers"},
           {"position", "somewhere", "'position' cannot be 'somewhere'"},
           {"tie_generator", "yes", "'tie_generator' cannot be 'yes'"},
           {"heads", "3", "not divisible"},
           {"eps", "nan", "'eps' cannot be"},
           {"rotary_pairing", "none", "'rotary_pairing' cannot be"},
           {"max_output", "0", "no tokens"}}) {
    model.save(folder.path());
    forge(key, value);
    refuse(message);
  }
  save_weights(model.model(), folder.file("model.safetensors"));
  refuse("no weights of a text model");
}

TEST(TextModel, ThreadsMayShareIt) {
  const TextModel model = small_model();
  const Texts texts{"abc", "hgf", "aabb"};
  Texts alone;
  for (const std::string& text : texts) alone.push_back(model.run(text, {.beam = 2}));
  std::vector<std::thread> threads;
  std::vector<Texts> found(4);
  for (Texts& result : found)
    threads.emplace_back([&] {
      for (const std::string& text : texts) result.push_back(model.run(text, {.beam = 2}));
    });
  for (std::thread& thread : threads) thread.join();
  for (const Texts& result : found) EXPECT_EQ(result, alone);
}

}  // namespace
}  // namespace heed::nn
