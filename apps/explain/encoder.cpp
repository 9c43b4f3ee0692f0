// An encoder block, piece by piece, and what it knows of the order of words.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/nn/attention/position.h>
#include <heed/nn/models/transformer_layer.h>
#include <heed/nn/summary.h>

#include "apps/explain/common.h"

namespace heed::apps {

nn::LayerConfig BlockSettings::layer() const {
  nn::LayerConfig config;
  config.d_model = d_model;
  config.heads = heads;
  config.d_ff = d_ff;
  config.norm = norm;
  config.activation = activation;
  config.qkv_bias = !no_qkv_bias;
  config.attention_dropout = config.activation_dropout = config.residual_dropout = 0;
  config.position = nn::PositionKind::none;
  return config;
}

namespace {

constexpr const char* kAttention = "self_attn";

void show_pieces(Presentation& p, const EncoderSettings& s, nn::EncoderLayer& block, Generator& generator) {
  const NoGrad no_grad;
  const int64_t B = s.batch, S = s.length, D = s.d_model, H = s.heads;
  const Segments segments = Segments::dense(B, S);
  const Tensor x = normal_numbers({B * S, D}, generator);
  const AttentionRecord record;
  Shapes shapes(p);
  const auto in_batch = [&](const Tensor& y) { return y.reshape({B, S, -1}).shape(); };
  shapes.add("input x", in_batch(x), {B, S, D});
  const Tensor qkv = block.self_attn.project_qkv(x).reshape({B, S, 3, H, D / H});
  const char* names[] = {"queries, split into heads", "keys", "values"};
  for (int64_t i = 0; i < 3; ++i)
    shapes.add(names[i], qkv.select(2, i).transpose(1, 2).shape(), {B, H, S, D / H});
  const Tensor attended = block.self_attn.self(x, segments);
  std::vector<Tensor> weights;
  for (int64_t i = 0; i < B; ++i) weights.push_back(record.weights(kAttention, i));
  shapes.add("attention weights", stack(weights, 0).shape(), {B, H, S, S});
  shapes.add("attention, heads combined", in_batch(attended), {B, S, D});
  shapes.add("norm of x + attention", in_batch(block.norm1(x + attended)), {B, S, D});
  const Tensor hidden = block.feed_forward.linear1(x);
  shapes.add("feed-forward, inside", in_batch(hidden), {B, S, s.d_ff});
  shapes.add("feed-forward", in_batch(block.feed_forward(x)), {B, S, D});
  const Tensor y = block(x, segments);
  shapes.add("output of the block", in_batch(y), {B, S, D});
  shapes.show();
  p.line("the output has the shape of the input, so blocks can be stacked");

  const Tensor first = record.weights(kAttention, 0);
  const Tensor sums = sum(first, {.axes = {2}});
  p.line(fmt::format("weights of each query sum to 1: largest difference {}",
                     difference_text(largest_difference(sums, 1))));
  HeatmapGrid heads{"Attention weights of the untrained block, sequence 0", 2, {}, true};
  for (int64_t h = 0; h < std::min<int64_t>(2, H); ++h) {
    Heatmap map = attention_map(concat("Head ", h), first.select(0, h), {}, S <= 12 ? 3 : 0);
    map.range.reset();
    heads.panels.push_back(std::move(map));
  }
  p.figure(heads, "encoder-heads");
}

// One sentence and the same words backwards, through the block: words as vectors that depend on the word
// alone, with or without positions added.
struct Order {
  Tensor output, reversed_output;    // [words, d_model]
  Tensor weights, reversed_weights;  // [words, words], of head 0

  double change() const { return largest_difference(flip(reversed_output, 0), output); }
};

Order two_orders(const nn::EncoderLayer& block, const Tensor& vectors, const Tensor& positions) {
  const NoGrad no_grad;
  const AttentionRecord record;
  const Segments segments = Segments::dense(1, vectors.size(0));
  Order order;
  order.output = block(vectors + positions, segments);
  order.weights = record.weights(kAttention, 0, 0);
  order.reversed_output = block(flip(vectors, 0) + positions, segments);
  order.reversed_weights = record.weights(kAttention, 0, 0);
  return order;
}

HeatmapGrid order_figure(const std::string& title, const Order& order,
                         const std::vector<std::string>& words) {
  const auto text = [](const std::vector<std::string>& sentence) {
    std::string joined;
    for (const std::string& word : sentence) joined += (joined.empty() ? "" : " ") + word;
    return joined;
  };
  const std::vector<std::string> reversed(words.rbegin(), words.rend());
  const int decimals = words.size() <= 12 ? 2 : 0;
  HeatmapGrid grid{title, 2, {}, true};
  grid.panels = {attention_map(text(words), order.weights, words, decimals),
                 attention_map(text(reversed), order.reversed_weights, reversed, decimals)};
  return grid;
}

void show_order(Presentation& p, const EncoderSettings& s, const nn::EncoderLayer& block,
                Generator& generator) {
  const std::vector<std::string> words = split_words(s.sentence);
  std::map<std::string, Tensor> known;
  std::vector<Tensor> rows;
  for (const std::string& word : words) {
    Tensor& vector = known[word];
    if (!vector.defined()) vector = normal_numbers({s.d_model}, generator);
    rows.push_back(vector);
  }
  const Tensor vectors = stack(rows, 0);
  const Tensor positions = nn::sinusoidal_table(vectors.size(0), s.d_model);
  const Order without = two_orders(block, vectors, zeros_like(positions));
  const Order with = two_orders(block, vectors, positions);

  p.heading(fmt::format("Word order: \"{}\" and the same words backwards", s.sentence));
  p.line(fmt::format("largest change of a word's output without positions: {}",
                     difference_text(without.change())));
  p.line(fmt::format("with positions: {:.2f}", with.change()));
  p.value("change_without_positions", without.change());
  p.value("change_with_positions", with.change());
  p.figure(order_figure("Without positions: the same weights, moved", without, words),
           "order-without-positions");
  p.figure(order_figure("With positions: other weights", with, words), "order-with-positions");
}

}  // namespace

void explain_encoder(const EncoderSettings& settings) {
  Presentation p = present(settings);
  Generator generator(static_cast<uint64_t>(settings.seed));
  nn::EncoderLayer block(settings.layer(), generator);
  block.to(DType::f64);
  block.eval();
  block.self_attn.name = kAttention;
  p.heading(fmt::format("A {}-norm block: width {}, {} heads, feed-forward {} ({})", nn::name(settings.norm),
                        settings.d_model, settings.heads, settings.d_ff, nn::name(settings.activation)));
  show_pieces(p, settings, block, generator);
  p.heading("Parameters");
  p.line(nn::component_table(block));
  p.value("parameters", block.parameters().numel());
  show_order(p, settings, block, generator);
  p.finish();
}

}  // namespace heed::apps
