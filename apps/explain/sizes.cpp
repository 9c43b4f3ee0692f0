// A block, a language model around it, and what their sizes cost.
#include <fmt/format.h>

#include <heed/core/ops.h>
#include <heed/nn/summary.h>

#include "apps/explain/common.h"
#include "apps/explain/language_model.h"

namespace heed::apps {
namespace {

LanguageModelConfig model_config(const SizesSettings& s) {
  LanguageModelConfig config;
  config.vocabulary = s.vocabulary;
  config.d_model = s.d_model;
  config.heads = s.heads;
  config.layers = s.layers;
  config.d_ff = s.d_ff;
  return config;
}

// Products with weights that each token meets, times two.
int64_t flops_per_token(const SizesSettings& s) {
  return 2 * (s.layers * (4 * s.d_model * s.d_model + 2 * s.d_model * s.d_ff) + s.d_model * s.vocabulary);
}

void show_block(Presentation& p) {
  nn::LayerConfig config;
  config.d_model = 64;
  config.heads = 8;
  config.d_ff = 256;
  Generator generator;
  nn::EncoderLayer block(config, generator);
  block.eval();
  const Tensor x = randn({2 * 10, config.d_model}, {}, generator);
  const Tensor y = block(x, Segments::dense(2, 10));
  p.heading("A block: width 64, 8 heads, feed-forward 256");
  p.line(fmt::format("input [2, 10, 64], output {}", concat(y.reshape({2, 10, -1}).shape())));
  p.line(nn::component_table(block));
  p.value("block_parameters", block.parameters().numel());
}

void show_model(Presentation& p, const SizesSettings& s) {
  constexpr int64_t kBatch = 2, kLength = 20;
  Generator generator(static_cast<uint64_t>(s.seed));
  LanguageModel model(model_config(s), generator);
  model.eval();
  const NoGrad no_grad;
  const Tensor ids = randint(0, s.vocabulary, {kBatch, kLength}, kCpu, generator);
  const Tensor logits = model.forward(nn::Tokens::dense(ids));
  p.heading(fmt::format("A language model: {} tokens, width {}, {} heads, {} layers, feed-forward {}",
                        s.vocabulary, s.d_model, s.heads, s.layers, s.d_ff));
  p.line(fmt::format("ids {}, logits {}", concat(ids.shape()),
                     concat(logits.reshape({kBatch, kLength, -1}).shape())));
  p.line(nn::component_table(model));
  if (s.tree) p.line(nn::module_tree(model));
  Json components = Json::object();
  for (const nn::ComponentCount& count : nn::count_parameters(model))
    components[count.name] = count.parameters;
  p.value("components", components);
  p.value("parameters", model.parameters().numel());
}

struct Variant {
  const char* name;
  int64_t SizesSettings::*member;
  std::vector<int64_t> values;
};

void compare(Presentation& p, const SizesSettings& base) {
  const Variant variants[] = {{"heads", &SizesSettings::heads, {1, 2, 4, 8}},
                              {"d-model", &SizesSettings::d_model, {32, 64, 128, 256}},
                              {"layers", &SizesSettings::layers, {1, 2, 4, 6}},
                              {"d-ff", &SizesSettings::d_ff, {128, 256, 512, 1024}}};
  Table table{
      {{"changed"}, {"value", "{}"}, {"head width", "{}"}, {"parameters", "{}"}, {"FLOP/token", "{}"}}, {}};
  BarChart chart;
  chart.title = "Parameters, one setting changed at a time";
  chart.value_axis = "Parameters";
  for (const Variant& variant : variants) {
    for (const int64_t value : variant.values) {
      SizesSettings s;
      s.vocabulary = base.vocabulary;
      s.*variant.member = value;
      Generator generator;
      LanguageModel model(model_config(s), generator);
      const int64_t parameters = model.parameters().numel();
      table.rows.push_back({variant.name, value, s.d_model / s.heads, parameters, flops_per_token(s)});
      chart.names.push_back(concat(variant.name, " ", value));
      chart.values.push_back(static_cast<double>(parameters));
    }
  }
  p.heading("Settings compared: one changed at a time, the others as above by default");
  p.table("configurations", table);
  p.figure(chart, "sizes");
}

}  // namespace

void explain_sizes(const SizesSettings& settings) {
  Presentation p = present(settings);
  show_block(p);
  show_model(p, settings);
  compare(p, settings);
  p.finish();
}

}  // namespace heed::apps
