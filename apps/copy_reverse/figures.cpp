#include "apps/copy_reverse/figures.h"

#include <algorithm>

#include <heed/core/attention.h>
#include <heed/core/base/int_math.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/inspection.h>

#include "apps/common/figures/presentation.h"
#include "apps/common/program.h"
#include "apps/common/seq2seq.h"

namespace heed::apps {

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

namespace {

std::vector<std::string> token_names(const data::Task& task, const data::TokenIds& symbols) {
  std::vector<std::string> names;
  for (const int64_t symbol : symbols) names.push_back(token_name(task, symbol));
  return names;
}

void check_finite(const Tensor& weights, const std::string& name) {
  nn::check_finite(weights, concat("the attention of '", name, "'"));
}

int64_t query_block(const AttentionMaps& maps, AttentionKind kind) {
  return kind == AttentionKind::source ? maps.source_block : maps.target_block;
}
int64_t key_block(const AttentionMaps& maps, AttentionKind kind) {
  return kind == AttentionKind::target ? maps.target_block : maps.source_block;
}

// One head, reduced some queries at a time: whole, maps of long sequences would fill the memory.
Tensor reduced_head(const AttentionRecord& record, const std::string& name, int64_t head, int64_t queries,
                    int64_t query_block, int64_t key_block) {
  constexpr int64_t kQueries = 256;
  const int64_t stripe = round_up(kQueries, query_block);
  std::vector<Tensor> rows;
  for (int64_t query = 0; query < queries; query += stripe) {
    throw_if_stopped();
    const Tensor weights = record.weights(name, 0, head, query, std::min(stripe, queries - query));
    check_finite(weights, name);
    const Matrix map = reduced(to_matrix(weights), query_block, key_block);
    rows.push_back(tensor(map.values, {map.rows, map.cols}));
  }
  return cat(rows, 0);
}

// [heads, queries, keys]
Tensor all_heads(const AttentionRecord& record, const std::string& name, int64_t queries, int64_t query_block,
                 int64_t key_block) {
  if (query_block == 1 && key_block == 1) {
    const Tensor weights = record.weights(name, 0).to(kCpu);
    check_finite(weights, name);
    return weights;
  }
  std::vector<Tensor> heads;
  for (int64_t h = 0; h < record.heads(name); ++h)
    heads.push_back(reduced_head(record, name, h, queries, query_block, key_block));
  return stack(heads, 0);
}

// Labels, axes and colours of one kind of attention.
Heatmap blank_heatmap(const AttentionMaps& maps, AttentionKind kind) {
  const bool asks = kind == AttentionKind::source, answers = kind != AttentionKind::target;
  Heatmap heatmap;
  heatmap.row_labels = asks ? maps.source_tokens : maps.target_tokens;
  heatmap.column_labels = answers ? maps.source_tokens : maps.target_tokens;
  heatmap.row_axis = reduced_axis(asks ? "Query: source" : "Query: target", query_block(maps, kind));
  heatmap.column_axis = reduced_axis(answers ? "Key: source" : "Key: target", key_block(maps, kind));
  heatmap.colors = asks ? ColorMap::blues : kind == AttentionKind::cross ? ColorMap::reds : ColorMap::greens;
  heatmap.range = std::pair(0.0, 1.0);
  heatmap.zeros_are_hidden = true;
  return heatmap;
}

Figure save_layer_means(const AttentionMaps& maps, AttentionKind kind, const std::string& title,
                        const std::filesystem::path& stem) {
  HeatmapGrid grid{title, 3, {}, true};
  for (const AttentionMaps::Map* map : maps.of(kind)) {
    Heatmap heatmap = blank_heatmap(maps, kind);
    heatmap.values = to_matrix(mean(map->weights, {.axes = {0}}));
    heatmap.title = concat("Layer ", grid.panels.size());
    heatmap.colors = ColorMap::viridis;
    grid.panels.push_back(std::move(heatmap));
  }
  return save_figure(grid, stem);
}

// One kind of attention in the figures.
struct Shown {
  std::string title, heads_stem, heads_title;
  const AttentionMaps::Map* map = nullptr;
  int64_t layer = 0;
};

// The head whose rows are the most concentrated.
int64_t sharpest_head(const Tensor& weights) {
  const Tensor peaks = mean(max(weights, {.axes = {-1}}), {.axes = {-1}});
  return argmax(peaks, 0).item<int64_t>();
}

}  // namespace

AttentionKind kind_of(const std::string& name) {
  if (name.starts_with("encoder")) return AttentionKind::source;
  return name.ends_with("self_attn") ? AttentionKind::target : AttentionKind::cross;
}

std::vector<const AttentionMaps::Map*> AttentionMaps::of(AttentionKind kind) const {
  std::vector<const Map*> found;
  for (const Map& map : maps)
    if (map.kind == kind) found.push_back(&map);
  return found;
}

int64_t count_weights(const Settings& settings, int64_t source, int64_t target) {
  source += 2, target += 1;  // marks
  if (settings.model != SequenceModel::transformer) return target * source;
  const nn::TransformerConfig c = settings.model_config();
  return c.heads * (c.encoder_layers * source * source + c.decoder_layers * target * (target + source));
}

AttentionMaps attention_maps(nn::Seq2SeqModel& model, std::span<const int64_t> source,
                             std::span<const int64_t> target, data::Marks marks, const data::Task& task,
                             MapSize size) {
  const NoGrad no_grad;
  const AttentionRecord record;
  const bool was_training = model.training();
  model.eval();
  const int64_t most = model.max_target() - marks.end;  // of an output that was cut there
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
  for (const std::string& name : record.names()) {
    const AttentionKind kind = kind_of(name);
    result.maps.push_back(
        {name, kind,
         all_heads(record, name, kind == AttentionKind::source ? packed.source.rows : packed.target.rows,
                   query_block(result, kind), key_block(result, kind))});
  }
  result.source_tokens = reduced(result.source_tokens, result.source_block);
  result.target_tokens = reduced(result.target_tokens, result.target_block);
  return result;
}

Heatmap attention_heatmap(const AttentionMaps& maps, const AttentionMaps::Map& map, int64_t head) {
  HEED_CHECK(head >= 0 && head < map.weights.size(0), ConfigError, "--head ", head,
             ": the model has heads 0 to ", map.weights.size(0) - 1);
  Heatmap heatmap = blank_heatmap(maps, map.kind);
  heatmap.values = to_matrix(map.weights.select(0, head));
  return heatmap;
}

std::vector<Figure> save_attention_figures(const AttentionMaps& maps, const std::filesystem::path& directory,
                                           std::optional<int64_t> layer, std::optional<int64_t> head) {
  // What there is: a model may have no encoder layers, or no decoder layers.
  int64_t most = 0;
  std::vector<Shown> shown;
  const auto show = [&](AttentionKind which, Shown kind) {
    const std::vector<const AttentionMaps::Map*> layers = maps.of(which);
    if (layers.empty()) return;
    most = std::max<int64_t>(most, std::ssize(layers));
    const int64_t last = std::ssize(layers) - 1;
    // Stacks of different depths: a layer that only one has is the last of the other.
    kind.layer = std::clamp<int64_t>(layer.value_or(last), 0, last);
    kind.map = layers[static_cast<size_t>(kind.layer)];
    shown.push_back(std::move(kind));
  };
  show(AttentionKind::source, {"Encoder", "attention-heads", "encoder layer"});
  show(AttentionKind::target, {"Decoder", "", ""});
  show(AttentionKind::cross, {"Cross", "attention-cross-heads", "cross-attention of decoder layer"});
  HEED_CHECK(!layer || (*layer >= 0 && *layer < most), ConfigError, "--layer ", layer.value_or(0),
             ": the model has layers 0 to ", most - 1);

  std::vector<Figure> figures;
  HeatmapGrid kinds{"Self-attention of encoder and decoder, and cross-attention", 3, {}, false};
  for (const Shown& kind : shown) {
    const int64_t chosen = head.value_or(sharpest_head(kind.map->weights));
    kinds.panels.push_back(attention_heatmap(maps, *kind.map, chosen));
    kinds.panels.back().title = concat(kind.title, ", layer ", kind.layer, ", head ", chosen);
  }
  if (!shown.empty()) figures.push_back(save_figure(kinds, directory / "attention"));

  for (const Shown& kind : shown) {
    if (kind.heads_stem.empty() || maps.maps.size() == 1) continue;
    HeatmapGrid heads{concat("All heads, ", kind.heads_title, " ", kind.layer), 4, {}, true};
    for (int64_t h = 0; h < kind.map->weights.size(0); ++h) {
      heads.panels.push_back(attention_heatmap(maps, *kind.map, h));
      heads.panels.back().title = concat("Head ", h);
      heads.panels.back().colors = ColorMap::viridis;
    }
    figures.push_back(save_figure(heads, directory / kind.heads_stem));
  }

  if (!maps.of(AttentionKind::source).empty())
    figures.push_back(save_layer_means(maps, AttentionKind::source,
                                       "Self-attention of each encoder layer, heads averaged",
                                       directory / "attention-encoder-layers"));
  if (!maps.of(AttentionKind::cross).empty() && maps.maps.size() > 1)
    figures.push_back(save_layer_means(maps, AttentionKind::cross,
                                       "Cross-attention of each decoder layer, heads averaged",
                                       directory / "attention-layers"));
  return figures;
}

std::vector<Figure> save_position_figure(const nn::Transformer& model,
                                         const std::filesystem::path& directory) {
  const NoGrad no_grad;
  const Tensor table = model.position.table(std::min<int64_t>(64, model.max_target()), DType::f32, kCpu);
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
