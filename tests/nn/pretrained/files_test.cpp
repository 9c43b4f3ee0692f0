// What load_pretrained and save_pretrained do with files: sound ones, others' and wrong ones.
#include <cstring>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/int8_weight.h>
#include <heed/core/io/file.h>
#include <heed/core/io/gguf.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/models/transformer_layer.h>
#include <heed/nn/pretrained/pretrained.h>

#include "expect_error.h"
#include "pretrained_fixture.h"

namespace heed::test {
namespace {

namespace fs = std::filesystem;
using nn::LanguageModel;
using nn::TextEncoder;
using nn::Tokens;
using nn::Transformer;

/// A copy of a fixture that may be changed.
class Copy {
 public:
  explicit Copy(const std::string& family) { fs::copy(pretrained_folder() + "/" + family, path()); }
  std::string path() const { return folder_.file("model"); }
  std::string get(const std::string& name) const { return folder_.get("model/" + name); }
  void put(const std::string& name, const std::string& text) const { folder_.put("model/" + name, text); }
  /// Puts one text in the place of another that stands in a file.
  void change(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = get(name);
    const size_t at = text.find(from);
    HEED_CHECK(at != text.npos, IndexError, name, " has no ", from);
    put(name, text.replace(at, from.size(), to));
  }
  NamedTensors weights() const { return load_tensors(path() + "/model.safetensors"); }
  void put_weights(const NamedTensors& tensors) const {
    save_tensors(path() + "/model.safetensors", tensors);
  }

 private:
  TemporaryFolder folder_;
};

std::set<std::string> names_of(const NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& entry : tensors) names.insert(entry.first);
  return names;
}

template <class Model>
void expect_round_trip(const std::string& family) {
  SCOPED_TRACE(family);
  const Copy original(family);
  const auto model = nn::load_pretrained<Model>(original.path());
  const TemporaryFolder folder;
  nn::save_pretrained(*model, folder.file("out"));
  const NamedTensors saved = load_tensors(folder.file("out") + "/model.safetensors");
  NamedTensors expected;
  for (const auto& entry : fs::directory_iterator(original.path()))
    if (entry.path().filename().string().rfind("model", 0) == 0 && entry.path().extension() == ".safetensors")
      for (const auto& tensor : load_tensors(entry.path())) expected.push_back(tensor);
  EXPECT_EQ(names_of(saved), names_of(expected));
  for (const auto& [name, tensor] : saved)
    for (const auto& [other, want] : expected)
      if (name == other) {
        EXPECT_TRUE(array_equal(tensor, want)) << name;
        EXPECT_EQ(tensor.shape(), want.shape()) << name;
      }
  // And the settings are those of the model.
  const auto again = nn::load_pretrained<Model>(folder.file("out"));
  EXPECT_EQ(again->describe(), model->describe());
  for (int64_t i = 0; i < model->parameters().size(); ++i)
    EXPECT_TRUE(array_equal(again->parameters()[i].tensor, model->parameters()[i].tensor));
}

TEST(PretrainedFiles, WhatIsSavedHasTheNamesAndValuesOfTransformers) {
  expect_round_trip<TextEncoder>("bert");
  expect_round_trip<TextEncoder>("roberta");
  expect_round_trip<LanguageModel>("gpt2");
  expect_round_trip<LanguageModel>("llama");
  expect_round_trip<LanguageModel>("llama3");
  expect_round_trip<Transformer>("marian");
}

TEST(PretrainedFiles, AModelThatAFamilyCannotSayIsNotSaved) {
  const TemporaryFolder folder;
  const auto refuse = [&](nn::LanguageModelConfig config, const char* family, const char* setting,
                          auto&& change) {
    config.vocabulary = 5;
    config.layers = 1;
    config.d_model = config.heads = config.key_heads = config.d_ff = 4;
    config.head_width = config.position == nn::PositionKind::rotary ? 2 : 1;
    change(config);
    LanguageModel model(config);
    expect_error<ConfigError>([&] { nn::save_pretrained(model, folder.file("out")); }, {family, setting});
    EXPECT_FALSE(fs::exists(folder.file("out")));
  };
  const auto llama = nn::LanguageModelConfig::llama(), gpt2 = nn::LanguageModelConfig::gpt2();
  const BlockPattern blocks(ones({1, 1}, {.dtype = DType::boolean}));
  refuse(llama, "Llama", "norms", [](auto& c) { c.norm_kind = nn::NormKind::layer; });
  for (const auto& [config, family] : {std::pair(llama, "Llama"), std::pair(gpt2, "GPT-2")}) {
    refuse(config, family, "sparse attention", [](auto& c) { c.window = 3; });
    refuse(config, family, "sparse attention", [](auto& c) { c.window = 3, c.global_tokens = 1; });
    refuse(config, family, "sparse attention", [&](auto& c) { c.blocks = blocks; });
  }
}

TEST(PretrainedFiles, StrictListsWhatIsWrongAndLoadsNothing) {
  const Copy copy("bert");
  NamedTensors weights = copy.weights();
  for (auto& entry : weights) {
    if (entry.first == "pooler.dense.bias") entry.first = "pooler.dense.bios";
    if (entry.first == "embeddings.LayerNorm.bias") entry.second = zeros({13});
  }
  copy.put_weights(weights);
  expect_error<CheckpointError>(
      [&] { nn::load_pretrained<TextEncoder>(copy.path()); },
      {"missing (1): pooler.dense.bias", "unexpected (1): pooler.dense.bios",
       "mismatched (1): 'embeddings.LayerNorm.bias' is F32[13] in the file and [12] in the model"});
  for (auto& entry : weights)
    if (entry.first == "embeddings.LayerNorm.bias") entry.second = zeros({12});
  copy.put_weights(weights);
  nn::LoadReport report;
  const auto model = nn::load_pretrained<TextEncoder>(copy.path(), {.strict = false, .report = &report});
  EXPECT_EQ(report.missing, std::vector<std::string>{"pooler.dense.bias"});
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"pooler.dense.bios"});
  EXPECT_EQ(model->pooler->bias.to_vector<float>(), std::vector<float>(12, 0.0f)) << "as it was made";

  nn::TextEncoder own(model->config());
  const Tensor before = own.embedding.weight.detach().clone();
  expect_error<CheckpointError>([&] { nn::load_pretrained_weights(own, copy.path()); }, {"missing (1)"});
  EXPECT_TRUE(array_equal(own.embedding.weight.detach(), before));
}

TEST(PretrainedFiles, PrefixesAndHeadsOfOthers) {
  const Copy copy("bert");
  const auto plain = nn::load_pretrained<TextEncoder>(copy.path());
  NamedTensors weights = copy.weights();
  for (auto& entry : weights) entry.first = "bert." + entry.first;
  weights.emplace_back("cls.predictions.bias", zeros({19}));
  weights.emplace_back("bert.embeddings.position_ids", arange(0, 9));
  copy.put_weights(weights);
  const auto of_head = nn::load_pretrained<TextEncoder>(copy.path());
  EXPECT_TRUE(array_equal(of_head->pooler->weight.detach(), plain->pooler->weight.detach()));
  for (auto& entry : weights) entry.first = "sentence." + entry.first;
  weights.emplace_back("other", zeros({1}));
  copy.put_weights(weights);
  const auto within = nn::load_pretrained<TextEncoder>(copy.path(), {.prefix = "sentence."});
  EXPECT_TRUE(array_equal(within->pooler->weight.detach(), plain->pooler->weight.detach()));
  expect_error<CheckpointError>([&] { nn::load_pretrained<TextEncoder>(copy.path()); },
                                {"missing", "unexpected"});
}

TEST(PretrainedFiles, WithoutAPooler) {
  const Copy copy("bert");
  NamedTensors weights = copy.weights();
  std::erase_if(weights, [](const auto& entry) { return entry.first.rfind("pooler", 0) == 0; });
  copy.put_weights(weights);
  const auto model = nn::load_pretrained<TextEncoder>(copy.path());
  EXPECT_EQ(model->pooler, nullptr);
  const Tokens tokens = Tokens::packed({{3, 4}});
  expect_error<StateError>([&] { (void)model->pooled(model->forward(tokens), tokens.segments); },
                           {"no pooler"});
}

TEST(PretrainedFiles, APartOfAModel) {
  const PretrainedFixture fixture("llama");
  const auto model = nn::load_pretrained<LanguageModel>(fixture.path());
  nn::EncoderLayer layer(model->config());
  nn::load_pretrained_weights(layer, fixture.path(), {.part = "layers.1."});
  const auto have = layer.named_parameters(), want = model->layers.layers[1]->named_parameters();
  ASSERT_EQ(have.size(), want.size());
  for (size_t i = 0; i < have.size(); ++i)
    EXPECT_TRUE(array_equal(have[i].tensor, want[i].tensor)) << have[i].name;
  const auto gguf = pretrained_folder() + "/llama.gguf";
  nn::Linear generator(16, 19, false);
  nn::load_pretrained_weights(generator, gguf, {.part = "generator."});
  EXPECT_TRUE(array_equal(generator.weight.detach(), model->output->weight.detach()));
  expect_error<CheckpointError>([&] { nn::load_pretrained_weights(layer, gguf, {.part = "layers.2."}); },
                                {"missing", "blk.2.attn_q.weight"});
  expect_error<ConfigError>([&] { nn::load_pretrained_weights(generator, gguf, {.part = "x."}); },
                            {"no name for 'x.weight'"});
}

TEST(PretrainedFiles, TypesConvert) {
  for (const DType stored : {DType::f64, DType::bf16}) {
    const Copy copy("gpt2");
    NamedTensors weights = copy.weights();
    for (auto& entry : weights) entry.second = entry.second.to(stored);
    copy.put_weights(weights);
    const auto model = nn::load_pretrained<LanguageModel>(copy.path(), {.dtype = stored});
    EXPECT_EQ(model->embedding.weight.dtype(), stored);
    for (const auto& entry : weights)
      if (entry.first == "transformer.wte.weight") {
        EXPECT_TRUE(array_equal(model->embedding.weight.detach(), entry.second));
      }
  }
  const Copy copy("gpt2");
  NamedTensors weights = copy.weights();
  weights[0].second = weights[0].second.to(DType::i64);
  copy.put_weights(weights);
  expect_error<CheckpointError>([&] { nn::load_pretrained<LanguageModel>(copy.path()); },
                                {"mismatched (1)", "is I64"});
}

// The matrices are those of f32, each rounded by itself; all else is as it was.
TEST(PretrainedFiles, MatricesOf8Bits) {
  for (const std::string family : {"gpt2", "llama"}) {
    SCOPED_TRACE(family);
    const PretrainedFixture fixture(family);
    const auto model = nn::load_pretrained<LanguageModel>(fixture.path(), {.int8 = true});
    const auto twin = nn::load_pretrained<LanguageModel>(fixture.path());
    const std::vector<Parameter> kept = model->named_parameters(), plain = twin->named_parameters();
    ASSERT_EQ(kept.size(), plain.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      const Tensor& x = kept[i].tensor;
      const Tensor values = plain[i].tensor.detach();
      EXPECT_EQ(is_int8(x), values.rank() == 2 && kept[i].name != "position.weight") << kept[i].name;
      if (!is_int8(x)) {
        EXPECT_TRUE(array_equal(x.detach(), values)) << kept[i].name;
        continue;
      }
      const Tensor most = max(abs(values), {.axes = {1}, .keep = true});
      const Tensor got = int8_rows(x, arange(0, x.size(0), 1, {DType::i64, kCpu}));
      EXPECT_TRUE(all(less_equal(abs(got - values), most * (0.5001 / 127))).item<bool>()) << kept[i].name;
    }
    const NoGrad no_grad;
    const Tokens tokens = Tokens::packed(rows_by_rule(7, 3, 1));
    const Tensor logits = model->forward(tokens), expected = twin->forward(tokens);
    EXPECT_LE(max(abs(logits - expected)).item<double>(), 0.1 * max(abs(expected)).item<double>());
  }
  const std::string bert = PretrainedFixture("bert").path(), gpt2 = PretrainedFixture("gpt2").path();
  EXPECT_THROW(nn::load_pretrained<TextEncoder>(bert, {.int8 = true}), ConfigError);
  EXPECT_THROW(nn::load_pretrained<LanguageModel>(gpt2, {.dtype = DType::bf16, .int8 = true}), ConfigError);
}

// A tied output layer that stands in the file as well must be the embedding.
TEST(PretrainedFiles, CopiesMustAgree) {
  const Copy copy("gpt2");
  NamedTensors weights = copy.weights();
  Tensor embedding;
  for (const auto& entry : weights)
    if (entry.first == "transformer.wte.weight") embedding = entry.second;
  weights.emplace_back("lm_head.weight", embedding);
  copy.put_weights(weights);
  (void)nn::load_pretrained<LanguageModel>(copy.path());
  weights.back().second = embedding + 1.0;
  copy.put_weights(weights);
  expect_error<CheckpointError>([&] { nn::load_pretrained<LanguageModel>(copy.path()); },
                                {"lm_head.weight", "transformer.wte.weight", "differ"});
}

TEST(PretrainedFiles, AnotherKindOfModel) {
  expect_error<CheckpointError>([] { nn::load_pretrained<LanguageModel>(pretrained_folder() + "/bert"); },
                                {"'bert'", "LanguageModel takes gpt2, llama and GGUF files"});
  expect_error<CheckpointError>([] { nn::load_pretrained<TextEncoder>(pretrained_folder() + "/llama.gguf"); },
                                {"'gguf'"});
  expect_error<ConfigError>([] { nn::load_pretrained<LanguageModel>(pretrained_folder() + "/blocks.gguf"); },
                            {"'none'", "heed reads 'llama'"});
  expect_error<IoError>([] { nn::load_pretrained<LanguageModel>("/nowhere"); }, {"there is no '/nowhere'"});
  expect_error<IoError>([] { nn::load_pretrained<LanguageModel>(pretrained_folder()); }, {"no config.json"});
  const Copy copy("bert");
  fs::remove(copy.path() + "/model.safetensors");
  copy.put("pytorch_model.bin", "");
  expect_error<IoError>([&] { nn::load_pretrained<TextEncoder>(copy.path()); },
                        {"does not read pytorch_model.bin"});
}

TEST(PretrainedFiles, SettingsThatCannotBe) {
  const auto refused = [](const std::string& family, const std::string& from, const std::string& to,
                          std::initializer_list<std::string> pieces) {
    SCOPED_TRACE(to);
    const Copy copy(family);
    copy.change("config.json", from, to);
    if (family == "bert")
      expect_error<ConfigError>([&] { nn::load_pretrained<TextEncoder>(copy.path()); }, pieces);
    else
      expect_error<ConfigError>([&] { nn::load_pretrained<LanguageModel>(copy.path()); }, pieces);
  };
  refused("bert", "\"hidden_size\": 12", "\"hidden_size\": -12", {"hidden_size", "-12"});
  refused("bert", "\"hidden_size\": 12", "\"hidden_size\": 12.5", {"hidden_size is no whole number"});
  refused("bert", "\"hidden_size\": 12", "\"hidden_size\": 18446744073709551615", {"hidden_size"});
  refused("bert", "\"hidden_size\": 12", "\"x\": 12", {"hidden_size is missing"});
  refused("bert", "\"hidden_size\": 12", "\"hidden_size\": null", {"hidden_size is missing"});
  refused("bert", "\"num_attention_heads\": 3", "\"num_attention_heads\": 5", {"d_model = 12", "heads = 5"});
  refused("bert", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"cos\"", {"hidden_act is 'cos'"});
  refused("bert", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 5000", {"expected 0 to 4096"});
  refused("bert", "\"hidden_dropout_prob\": 0.1", "\"hidden_dropout_prob\": 1.5", {"1.5"});
  refused("llama", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\", \"factor\": 2", {"'yarn'"});
  refused("llama", "\"mlp_bias\": false", "\"mlp_bias\": true", {"mlp_bias is true"});
  refused("llama", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", {"must be silu"});
}

// Sizes that the weights do not have are found out before memory is asked for.
TEST(PretrainedFiles, SizesThatAreClaimed) {
  const Copy copy("bert");
  copy.change("config.json", "\"hidden_size\": 12", "\"hidden_size\": 12000000");
  expect_error<CheckpointError>([&] { nn::load_pretrained<TextEncoder>(copy.path()); },
                                {"mismatched (37)", "[19, 12000000] in the model"});
  const Copy llama("llama");
  for (const char* const size :
       {"\"hidden_size\": 16", "\"head_dim\": 4", "\"num_attention_heads\": 4", "\"num_key_value_heads\": 2"})
    llama.change("config.json", size, std::string(size, std::string(size).find(':')) + ": 16777216");
  expect_error<ConfigError>([&] { nn::load_pretrained<LanguageModel>(llama.path()); },
                            {"config.json", "16777216 heads of 16777216 columns"});
  std::string gguf = read_whole_file(pretrained_folder() + "/llama.gguf", 1 << 20);
  const std::string name = "token_embd.weight";
  const uint64_t shape[] = {0, uint64_t{1} << 60};  // takes no bytes
  std::memcpy(gguf.data() + gguf.find(name) + name.size() + sizeof(uint32_t), shape, sizeof shape);
  const TemporaryFolder folder;
  const std::string path = folder.put("m.gguf", gguf);
  expect_error<ConfigError>([&] { nn::load_pretrained<LanguageModel>(path); },
                            {"m.gguf", "a vocabulary of 1152921504606846976"});
}

TEST(PretrainedFiles, JsonThatIsNone) {
  const Copy copy("bert");
  const auto refused = [&](const std::string& text, std::initializer_list<std::string> pieces) {
    copy.put("config.json", text);
    expect_error<CheckpointError>([&] { nn::load_pretrained<TextEncoder>(copy.path()); }, pieces);
  };
  refused("", {"config.json", "at byte 0"});
  refused("[]", {"no JSON object"});
  refused("{\"a\": \"\xff\"}", {"not valid UTF-8"});
  refused("{\"a\": 1, \"a\": 2}", {"the key 'a' stands twice"});
  refused("{\"a\": " + std::string(100000, '['), {"more than 32 deep"});
  copy.put("config.json", std::string((1 << 20) + 1, ' '));
  expect_error<IoError>([&] { nn::load_pretrained<TextEncoder>(copy.path()); }, {"config.json"});
}

TEST(PretrainedFiles, AnIndexThatDoesNotFit) {
  const auto refused = [](const std::string& from, const std::string& to,
                          std::initializer_list<std::string> pieces) {
    SCOPED_TRACE(to);
    const Copy copy("llama");
    copy.change("model.safetensors.index.json", from, to);
    expect_error<CheckpointError>([&] { nn::load_pretrained<LanguageModel>(copy.path()); }, pieces);
  };
  const std::string first = "\"lm_head.weight\": \"model-00003-of-00003.safetensors\"";
  for (const char* const name : {"../model.safetensors", "/etc/passwd", ".", "..", "", "a\\\\b"})
    refused(first, "\"lm_head.weight\": \"" + std::string(name) + "\"", {"no name of a file beside it"});
  refused(first, "\"lm_head.weight\": \"a\\u0000\"", {"a NUL character"});
  refused(first, "\"lm_head.weight\": 3", {"'lm_head.weight' is no text"});
  refused(first, "\"lm_head.weight\": \"model-00001-of-00003.safetensors\"", {"lm_head.weight"});
  refused("\"weight_map\"", "\"weights\"", {"no weight_map"});
  const Copy copy("llama");
  fs::remove(copy.path() + "/model-00002-of-00003.safetensors");
  expect_error<IoError>([&] { nn::load_pretrained<LanguageModel>(copy.path()); }, {"model-00002-of-00003"});
}

}  // namespace
}  // namespace heed::test
