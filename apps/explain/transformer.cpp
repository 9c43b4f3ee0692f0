// The whole Transformer: its attention, heads, residual blocks, stacks, masks, shapes and parameters.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/nn/inspection.h>
#include <heed/nn/models/transformer.h>

#include "apps/explain/common.h"

namespace heed::apps {

nn::TransformerConfig TransformerSettings::model() const {
  nn::TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = vocabulary;
  config.d_model = d_model;
  config.heads = heads;
  config.d_ff = d_ff;
  config.encoder_layers = config.decoder_layers = layers;
  config.norm = nn::NormPlacement::pre;
  config.set_dropout(0);
  config.check();
  return config;
}

namespace {

void show_difference(Presentation& p, const std::string& what, const std::string& key, double difference) {
  p.line(fmt::format("{}: {}", what, difference_text(difference)));
  p.value(key, difference);
}

// Attention of four tokens of width 8, random ones.
void show_attention(Presentation& p, uint64_t seed) {
  Generator generator(seed);
  const Tensor q = normal_numbers({4, 8}, generator), k = normal_numbers({4, 8}, generator);
  const Tensor weights = softmax(matmul(q, k.transpose(0, 1)) / std::sqrt(8.0));
  const std::vector<std::string> tokens = numbers_as_text(4);
  p.heading("Attention");
  p.matrix("attention", "weights of 4 random tokens, width 8", weights, tokens, tokens);
  const Tensor sums = sum(weights, {.axes = {1}});
  p.line(fmt::format("sum of each row {:.4f}", fmt::join(sums.to_vector<double>(), " ")));
  p.value("row_sums", sums.to_vector<double>());
  Heatmap map = attention_map("Attention pattern", weights, tokens, 2);
  map.colors = ColorMap::viridis;
  p.figure(map, "transformer-attention");
}

// Heads as views of one matrix, attention in each, and the matrix put together again.
void show_heads(Presentation& p, const nn::EncoderLayer& layer, const Tensor& x) {
  const int64_t rows = x.size(0), heads = layer.self_attn.layout.heads, width = x.size(1) / heads;
  const Segments segments = Segments::dense(1, rows);
  const auto split_heads = [&](const Tensor& y) { return y.reshape({rows, heads, width}).transpose(0, 1); };
  const auto combine_heads = [&](const Tensor& y) {
    return y.transpose(0, 1).reshape({rows, heads * width});
  };
  const Tensor qkv = layer.self_attn.project_qkv(x);
  const std::vector<Tensor> parts = chunk(qkv, 3, 1);
  const Tensor q = split_heads(parts[0]), k = split_heads(parts[1]), v = split_heads(parts[2]);
  const Tensor weights = softmax(matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(width)));
  const Tensor combined = combine_heads(matmul(weights, v));
  p.heading("Heads");
  p.line(fmt::format("queries {}, split {}, weights {}, combined {}", concat(parts[0].shape()),
                     concat(q.shape()), concat(weights.shape()), concat(combined.shape())));
  show_difference(p, "split and combined again", "split_combined",
                  largest_difference(combine_heads(q), parts[0]));
  show_difference(p, "against heed::attention_qkv, which never splits anything", "heads",
                  largest_difference(combined, attention_qkv(qkv, segments, {.heads = heads})));
}

// A layer against the two formulas, and a stack before and after its final norm.
void show_residuals(Presentation& p, nn::Encoder& encoder, const Tensor& x) {
  const Segments segments = Segments::dense(1, x.size(0));
  const nn::EncoderLayer& layer = *encoder.layers.front();
  const Tensor y = layer(x, segments);
  const Tensor a = x + layer.self_attn.self(layer.norm1(x), segments);
  const Tensor pre = a + layer.feed_forward(layer.norm2(a));
  const Tensor b = layer.norm1(x + layer.self_attn.self(x, segments));
  const Tensor post = layer.norm2(b + layer.feed_forward(b));
  p.heading("Residual blocks");
  show_difference(p, "the layer against x + sublayer(norm(x))", "pre_norm", largest_difference(y, pre));
  p.line(fmt::format("the layer against norm(x + sublayer(x)), the paper's: {:.2f}",
                     largest_difference(y, post)));
  p.value("post_norm", largest_difference(y, post));

  const double normed = nn::statistics(encoder(x, segments)).deviation;
  const std::unique_ptr<nn::Norm> norm = std::exchange(encoder.norm, nullptr);
  const double stream = nn::statistics(encoder(x, segments)).deviation;
  p.line(fmt::format("{} layers: deviation {:.2f} before the final norm, {:.2f} after", encoder.layers.size(),
                     stream, normed));
  p.value("stream", stream);
}

// What a target token sees, and that pads are not seen: on a small model in f64.
void show_masks(Presentation& p, Generator& generator) {
  TransformerSettings small;
  small.d_model = 64;
  small.heads = 4;
  small.layers = 2;
  small.d_ff = 256;
  small.vocabulary = 100;
  nn::Transformer model(small.model(), generator);
  model.to(DType::f64);
  model.eval();
  const Tensor ids = randint(3, 100, {2, 10}, kCpu, generator);
  const Tensor source = ids.select(0, 0).reshape({1, 10}), target = ids.select(0, 1).reshape({1, 10});
  const auto logits = [&](const nn::Tokens& s, const nn::Tokens& t) { return model.forward(s, t); };
  const Tensor full = logits(nn::Tokens::dense(source), nn::Tokens::dense(target));
  const Tensor other = cat({target.slice(1, 0, 7), flip(target.slice(1, 7, 10), 1)}, 1);
  const Tensor changed = logits(nn::Tokens::dense(source), nn::Tokens::dense(other));
  p.heading("Masks");
  show_difference(p, "target tokens 7 to 9 changed, logits of 0 to 6", "causal_before",
                  largest_difference(full.slice(0, 0, 7), changed.slice(0, 0, 7)));
  p.line(fmt::format("logits of 7 to 9: {:.2f}",
                     largest_difference(full.slice(0, 7, 10), changed.slice(0, 7, 10))));

  const Tensor padded = cat({source, zeros({1, 5}, {.dtype = DType::i64})}, 1);
  const int32_t lengths[] = {10};
  show_difference(
      p, "source with 5 pads behind it, and its length", "pads_hidden",
      largest_difference(full, logits(nn::Tokens::dense(padded, lengths), nn::Tokens::dense(target))));
  const double seen = largest_difference(full, logits(nn::Tokens::dense(padded), nn::Tokens::dense(target)));
  p.line(fmt::format("the same without its length, pads attended to: {:.2f}", seen));
  p.value("pads_seen", seen);
}

void show_shapes(Presentation& p, const TransformerSettings& s, const nn::Transformer& model,
                 Generator& generator) {
  const int64_t B = s.batch, S = s.source_length, T = s.target_length, D = s.d_model, H = s.heads;
  const nn::Tokens source = nn::Tokens::dense(randint(0, s.vocabulary, {B, S}, kCpu, generator));
  const nn::Tokens target = nn::Tokens::dense(randint(0, s.vocabulary, {B, T}, kCpu, generator));
  const AttentionRecord record;
  const Tensor memory = model.encode(source);
  const Tensor states = model.decode(target, memory, source.segments);
  const auto weights = [&](const char* name) { return record.weights(name, 0).shape(); };
  Shapes shapes(p);
  shapes.add("encoder output", memory.reshape({B, S, -1}).shape(), {B, S, D});
  shapes.add("decoder output", states.reshape({B, T, -1}).shape(), {B, T, D});
  shapes.add("logits", model.logits(states).reshape({B, T, -1}).shape(), {B, T, s.vocabulary});
  shapes.add("weights of one sequence, encoder", weights("encoder.layers.0.self_attn"), {H, S, S});
  shapes.add("decoder, on itself", weights("decoder.layers.0.self_attn"), {H, T, T});
  shapes.add("decoder, on the source", weights("decoder.layers.0.multihead_attn"), {H, T, S});
  p.heading("Shapes");
  shapes.show();
}

void show_parameters(Presentation& p, const TransformerSettings& s, nn::Transformer& model) {
  int64_t total = 0, trainable = 0;
  for (const Parameter& parameter : model.parameters()) {
    total += parameter.tensor.numel();
    if (parameter.tensor.requires_grad()) trainable += parameter.tensor.numel();
  }
  // What stands in several places is asked for by the beginnings of its names.
  const auto count = [&](std::initializer_list<const char*> beginnings) {
    int64_t sum = 0;
    for (const Parameter& parameter : model.parameters())
      for (const char* beginning : beginnings)
        if (parameter.name.rfind(beginning, 0) == 0) sum += parameter.tensor.numel();
    return sum;
  };
  Table table{{{"component"}, {"parameters", "{}"}, {"times", "{}"}}, {}};
  const auto add = [&](const char* name, int64_t parameters, int64_t times) {
    table.rows.push_back({name, parameters, times});
  };
  add("multi-head attention", count({"encoder.layers.0.self_attn"}), 3 * s.layers);
  add("feed-forward network", count({"encoder.layers.0.linear"}), 2 * s.layers);
  add("encoder layer", count({"encoder.layers.0."}), s.layers);
  add("encoder, with its final norm", count({"encoder."}), 1);
  add("decoder layer", count({"decoder.layers.0."}), s.layers);
  add("decoder, with its final norm", count({"decoder."}), 1);
  add("embedding", count({"src_embedding."}), 2);
  add("positions", count({"position."}), 1);
  add("output layer", count({"generator."}), 1);
  add("total", total, 1);
  add("trainable", trainable, 1);
  p.heading("Parameters");
  p.table("parameters", table);
}

}  // namespace

void explain_transformer(const TransformerSettings& settings) {
  Presentation p = present(settings);
  const NoGrad no_grad;
  Generator generator(static_cast<uint64_t>(settings.seed));
  const nn::TransformerConfig config = settings.model();
  p.heading(fmt::format(
      "A pre-norm Transformer: width {}, {} heads, {}+{} layers, feed-forward {}, {} tokens", config.d_model,
      config.heads, settings.layers, settings.layers, config.d_ff, settings.vocabulary));
  show_attention(p, static_cast<uint64_t>(settings.seed));
  {
    nn::Encoder encoder(config, settings.layers, true, generator);
    encoder.to(DType::f64);
    encoder.eval();
    const Tensor x = normal_numbers({settings.source_length, settings.d_model}, generator);
    show_heads(p, *encoder.layers.front(), x);
    show_residuals(p, encoder, x);
  }
  show_masks(p, generator);
  nn::Transformer model(config, generator);
  model.eval();
  show_shapes(p, settings, model, generator);
  show_parameters(p, settings, model);
  p.finish();
}

}  // namespace heed::apps
