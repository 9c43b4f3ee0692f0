#include "apps/copy_reverse/figures.h"

#include <algorithm>

#include <heed/core/attention.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>

#include "apps/common/presentation.h"
#include "apps/common/program.h"
#include "apps/common/seq2seq.h"

namespace heed::apps {
namespace {

std::string token_name(const data::Task& task, int64_t symbol) {
  switch (symbol) {
    case data::kPad:
      return "pad";
    case data::kStart:
      return "start";
    case data::kEnd:
      return "end";
    default:
      return task.text(symbol);
  }
}

std::vector<std::string> token_names(const data::Task& task, const data::Symbols& symbols) {
  std::vector<std::string> names;
  for (const int64_t symbol : symbols) names.push_back(token_name(task, symbol));
  return names;
}

bool is_cross(const std::string& name) { return name.find("multihead_attn") != std::string::npos; }
bool is_encoder(const std::string& name) { return name.compare(0, 7, "encoder") == 0; }

int64_t query_block(const AttentionMaps& maps, const std::string& name) {
  return is_encoder(name) ? maps.source_block : maps.target_block;
}
int64_t key_block(const AttentionMaps& maps, const std::string& name) {
  return is_encoder(name) || is_cross(name) ? maps.source_block : maps.target_block;
}

// [heads, queries, keys], reduced one by one: whole, those of long sequences would fill the memory.
Tensor all_heads(const AttentionRecord& record, const std::string& name, int64_t query_block,
                 int64_t key_block) {
  if (query_block == 1 && key_block == 1) return record.weights(name, 0).to(kCpu);
  std::vector<Tensor> heads;
  for (int64_t h = 0; h < record.heads(name); ++h) {
    throw_if_stopped();
    const Matrix map = reduced(to_matrix(record.weights(name, 0, h)), query_block, key_block);
    heads.push_back(tensor(map.values, {map.rows, map.cols}));
  }
  return stack(heads, 0);
}

std::string layer_name(const char* stack, int64_t layer, const char* part) {
  return concat(stack, ".layers.", layer, ".", part);
}

// Labels, axes and colours of one kind of attention.
Heatmap blank_heatmap(const AttentionMaps& maps, const std::string& name) {
  Heatmap heatmap;
  heatmap.row_labels = is_encoder(name) ? maps.source_tokens : maps.target_tokens;
  heatmap.column_labels = is_encoder(name) || is_cross(name) ? maps.source_tokens : maps.target_tokens;
  heatmap.row_axis = reduced_axis("Query", query_block(maps, name));
  heatmap.column_axis = reduced_axis("Key", key_block(maps, name));
  heatmap.colors = is_encoder(name) ? ColorMap::blues : is_cross(name) ? ColorMap::reds : ColorMap::greens;
  heatmap.range = std::pair(0.0, 1.0);
  return heatmap;
}

Figure save_layer_means(const AttentionMaps& maps, const char* stack, const char* part, int64_t layers,
                        const std::string& title, const std::filesystem::path& stem) {
  HeatmapGrid grid{title, 3, {}, true};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string name = layer_name(stack, i, part);
    Heatmap heatmap = blank_heatmap(maps, name);
    heatmap.values = to_matrix(mean(maps.at(name), {.axes = {0}}));
    heatmap.title = concat("Layer ", i);
    heatmap.colors = ColorMap::coolwarm;
    grid.panels.push_back(std::move(heatmap));
  }
  return save_figure(grid, stem);
}

// The head whose rows are the most concentrated.
int64_t sharpest_head(const Tensor& weights) {
  const Tensor peaks = mean(max(weights, {.axes = {-1}}), {.axes = {-1}});
  return argmax(peaks, 0).item<int64_t>();
}

}  // namespace

const Tensor& AttentionMaps::at(const std::string& name) const {
  for (const Map& map : maps)
    if (map.name == name) return map.weights;
  throw IndexError(concat("there is no attention called '", name, "'"));
}

AttentionMaps attention_maps(nn::Transformer& model, std::span<const int64_t> source,
                             std::span<const int64_t> target, data::Marks marks, const data::Task& task,
                             MapSize size) {
  const NoGrad no_grad;
  const AttentionRecord record;
  const bool was_training = model.training();
  model.eval();
  const int64_t most =
      output_limit(model.config(), INT64_MAX) - marks.end;  // of an output that was cut there
  target = target.first(static_cast<size_t>(std::min(std::ssize(target), most)));
  const std::vector<data::Pair> pairs{{{source.begin(), source.end()}, {target.begin(), target.end()}}};
  const std::vector<int64_t> numbers{0};
  const data::PairBatch packed = data::pack(pairs, numbers, marks);
  const train::Seq2SeqBatch batch = train::to_tensors(packed, model.parameters().device());
  model.forward(batch.source, batch.target);
  model.train(was_training);
  AttentionMaps result{{}, token_names(task, packed.source_ids), token_names(task, packed.target_ids)};
  if (size == MapSize::drawable) {
    result.source_block = block_of(packed.source.rows);
    result.target_block = block_of(packed.target.rows);
  }
  for (const std::string& name : record.names())
    result.maps.push_back(
        {name, all_heads(record, name, query_block(result, name), key_block(result, name))});
  result.source_tokens = reduced(result.source_tokens, result.source_block);
  result.target_tokens = reduced(result.target_tokens, result.target_block);
  return result;
}

Heatmap attention_heatmap(const AttentionMaps& maps, const std::string& name, int64_t head) {
  const Tensor& weights = maps.at(name);
  HEED_CHECK(head >= 0 && head < weights.size(0), ConfigError, "--head ", head, ": the model has heads 0 to ",
             weights.size(0) - 1);
  Heatmap heatmap = blank_heatmap(maps, name);
  heatmap.values = to_matrix(weights.select(0, head));
  return heatmap;
}

std::vector<Figure> save_attention_figures(const AttentionMaps& maps, const nn::TransformerConfig& config,
                                           const std::filesystem::path& directory,
                                           std::optional<int64_t> layer, std::optional<int64_t> head) {
  std::vector<Figure> figures;
  if (config.encoder_layers == 0 || config.decoder_layers == 0) return figures;
  const int64_t encoder_layer =
      std::min(layer.value_or(config.encoder_layers - 1), config.encoder_layers - 1);
  const int64_t decoder_layer = layer.value_or(config.decoder_layers - 1);
  HEED_CHECK(decoder_layer >= 0 && decoder_layer < config.decoder_layers, ConfigError, "--layer ",
             decoder_layer, ": the decoder has layers 0 to ", config.decoder_layers - 1);
  const std::string encoder = layer_name("encoder", encoder_layer, "self_attn");
  const std::string decoder = layer_name("decoder", decoder_layer, "self_attn");
  const std::string cross = layer_name("decoder", decoder_layer, "multihead_attn");
  const int64_t chosen = head.value_or(sharpest_head(maps.at(cross)));

  HeatmapGrid kinds{concat("Attention, layer ", decoder_layer, ", head ", chosen), 3, {}, false};
  for (const auto& [name, title] :
       {std::pair(encoder, "Encoder self-attention"), std::pair(decoder, "Decoder self-attention"),
        std::pair(cross, "Cross-attention")}) {
    kinds.panels.push_back(attention_heatmap(maps, name, chosen));
    kinds.panels.back().title = title;
  }
  figures.push_back(save_figure(kinds, directory / "attention"));

  for (const auto& [name, stem, title] :
       {std::tuple(encoder, "attention-heads", concat("All heads, encoder layer ", encoder_layer)),
        std::tuple(cross, "attention-cross-heads",
                   concat("All heads, cross-attention of decoder layer ", decoder_layer))}) {
    HeatmapGrid heads{title, 4, {}, true};
    for (int64_t h = 0; h < config.heads; ++h) {
      heads.panels.push_back(attention_heatmap(maps, name, h));
      heads.panels.back().title = concat("Head ", h);
      heads.panels.back().colors = ColorMap::viridis;
    }
    figures.push_back(save_figure(heads, directory / stem));
  }

  figures.push_back(save_layer_means(maps, "encoder", "self_attn", config.encoder_layers,
                                     "Self-attention of each encoder layer, heads averaged",
                                     directory / "attention-encoder-layers"));
  figures.push_back(save_layer_means(maps, "decoder", "multihead_attn", config.decoder_layers,
                                     "Cross-attention of each decoder layer, heads averaged",
                                     directory / "attention-layers"));
  return figures;
}

Figure save_loss_figure(const std::vector<Json>& epochs, const std::filesystem::path& directory) {
  Line line{"training loss", {}, {}};
  for (const Json& epoch : epochs) {
    line.x.push_back(epoch.at("epoch").get<double>());
    line.y.push_back(epoch.at("loss").get<double>());
  }
  return save_figure(LinePlot{"Training loss", "Epoch", "Cross-entropy", {line}}, directory / "loss");
}

std::vector<Figure> save_position_figure(const nn::Transformer& model,
                                         const std::filesystem::path& directory) {
  const NoGrad no_grad;
  const Tensor table = model.position.table(output_limit(model.config(), 64), DType::f32, kCpu);
  if (!table.defined()) return {};
  Heatmap heatmap;
  heatmap.title = "Positional encoding";
  heatmap.values = to_matrix(table.slice(0, 0, std::min<int64_t>(64, table.size(0))).contiguous());
  heatmap.row_axis = "Position";
  heatmap.column_axis = "Dimension";
  heatmap.color_label = "Value";
  heatmap.colors = ColorMap::rdbu;
  heatmap.square = false;
  return {save_figure(heatmap, directory / "positions")};
}

}  // namespace heed::apps
