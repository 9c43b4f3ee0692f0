// Adapters in the files of `peft`: as tests/fixtures/write_lora.py had them written, and back.
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include <heed/nn/pretrained/lora_files.h>
#include <heed/nn/pretrained/pretrained.h>

#include "expect_error.h"
#include "pretrained_fixture.h"

namespace heed::test {
namespace {

namespace fs = std::filesystem;
using nn::LanguageModel;

std::unique_ptr<LanguageModel> base(const std::string& family) {
  return nn::load_pretrained<LanguageModel>(pretrained_folder() + "/" + family);
}

Tensor logits(const LanguageModel& model) {
  const NoGrad no_grad;
  return model.forward(nn::Tokens::packed({{3, 7, 2, 11, 5, 18, 4}}));
}

double difference(const Tensor& x, const Tensor& y) {
  return max(abs(x.to(DType::f64) - y.to(DType::f64))).item<double>();
}

TEST(LoraFiles, AreThoseOfPeft) {
  for (const char* family : {"llama", "gpt2"}) {
    SCOPED_TRACE(family);
    const PretrainedFixture fixture(concat("lora_", family));
    ASSERT_TRUE(nn::is_lora_folder(fixture.path()));
    EXPECT_EQ(nn::lora_base(fixture.path()), family);
    const auto model = base(family);
    const Tensor own = logits(*model);
    const auto lora = nn::load_lora(*model, fixture.path());
    EXPECT_GT(difference(own, fixture["logits"]), 0.1);
    {
      const nn::LoraScope scope(*lora);
      EXPECT_LE(difference(logits(*model), fixture["logits"]), 1e-5);
    }
    EXPECT_EQ(difference(logits(*model), own), 0);

    // Written again they have the same names and values.
    const TemporaryFolder folder;
    nn::save_lora(*lora, *model, family, folder.path());
    std::map<std::string, Tensor> written;
    for (const auto& entry : load_tensors(folder.file("adapter_model.safetensors"))) written.insert(entry);
    const NamedTensors theirs = load_tensors(fixture.path() + "/adapter_model.safetensors");
    EXPECT_EQ(written.size(), theirs.size());
    for (const auto& [name, tensor] : theirs) {
      ASSERT_TRUE(written.contains(name)) << name;
      EXPECT_EQ(difference(written[name], tensor), 0) << name;
    }
    const auto again = base(family);
    nn::load_lora(*again, folder.path())->merge();
    EXPECT_LE(difference(logits(*again), fixture["logits"]), 1e-5);
    EXPECT_LT(fs::file_size(folder.file("adapter_model.safetensors")), 16384u) << "adapters alone";
  }
}

TEST(LoraFiles, TargetsAreNamedAsTheFamilyDoes) {
  const auto llama = base("llama"), gpt2 = base("gpt2");
  std::set<std::string> names;
  for (const nn::LoraTarget& target : nn::lora_targets(*llama, {"q_proj", "up_proj"}))
    names.insert(target.name);
  EXPECT_EQ(names, (std::set<std::string>{"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj",
                                          "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj"}));
  EXPECT_EQ(nn::lora_targets(*llama, {"all"}).size(), 2u * 7);
  EXPECT_EQ(nn::lora_targets(*gpt2, {"all"}).size(), 2u * 4);
  expect_error<ConfigError>(
      [&] {
        nn::lora_targets(*gpt2, {"c_attn", "q_proj"});
      },
      {"q_proj", "c_attn", "c_fc"});
}

TEST(LoraFiles, WhatIsNotSoundIsRefused) {
  const TemporaryFolder folder;
  const fs::path from = pretrained_folder() + "/lora_llama", to = folder.file("lora");
  fs::copy(from, to);
  const auto model = base("llama");
  const auto load = [&] { nn::load_lora(*model, to.string()); };
  const auto rewrite = [&](const std::string& old, const std::string& text) {
    std::ifstream in(from / "adapter_config.json");
    std::string json((std::istreambuf_iterator<char>(in)), {});
    ASSERT_NE(json.find(old), json.npos) << old;
    std::ofstream(to / "adapter_config.json") << json.replace(json.find(old), old.size(), text);
  };
  rewrite("\"LORA\"", "\"IA3\"");
  expect_error<ConfigError>(load, {"peft_type", "IA3"});
  rewrite("\"use_dora\": false", "\"use_dora\": true");
  expect_error<ConfigError>(load, {"use_dora"});
  rewrite("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": 1}");
  expect_error<ConfigError>(load, {"alpha_pattern"});
  rewrite("\"r\": 3", "\"r\": 1000000000");
  expect_error<ConfigError>(load, {"r", "1000000000"});
  rewrite("\"r\": 3", "\"r\": 4");
  expect_error<CheckpointError>(load, {"lora_A"});
  rewrite("\"o_proj\",", "");
  expect_error<CheckpointError>(load, {"o_proj"});
  rewrite("\"target_modules\": [", "\"target_modules\": [7,");
  expect_error<ConfigError>(load, {"target_modules"});
  rewrite("{", "[");
  EXPECT_THROW(load(), CheckpointError);
  fs::remove(to / "adapter_config.json");
  fs::copy(from / "adapter_config.json", to);
  EXPECT_NO_THROW(load());
  std::ofstream(to / "adapter_model.safetensors") << "rubbish";
  EXPECT_THROW(load(), CheckpointError);
  const auto gpt2 = base("gpt2");
  EXPECT_THROW(nn::load_lora(*gpt2, from.string()), ConfigError) << "of another family";
}

}  // namespace
}  // namespace heed::test
