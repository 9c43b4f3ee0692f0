#include <algorithm>
#include <cmath>

#include <heed/core/ops.h>
#include <heed/nn/attention/attention_statistics.h>

#include "apps/copy_reverse/heads.h"

namespace heed::apps {
namespace {

// All heads of a layer on the first pair, with what each looks at.
void draw_layer(Presentation& show, const AttentionFacts& facts, const AttentionMaps& maps,
                const std::string& name) {
  const auto map = std::ranges::find(maps.maps, facts.attention->name, &AttentionMaps::Map::name);
  HeatmapGrid grid{
      concat(name_of(facts.kind), ", layer ", facts.layer, ": its heads side by side"), 4, {}, true};
  for (size_t h = 0; h < facts.heads.size(); ++h) {
    grid.panels.push_back(attention_heatmap(maps, *map, static_cast<int64_t>(h)));
    grid.panels.back().title = concat(h, ": ", facts.heads[h].role.name);
    grid.panels.back().colors = ColorMap::viridis;
  }
  show.figure(grid, name);
}

std::vector<std::string> numbers(size_t count, const std::string& before) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(before + std::to_string(i));
  return names;
}

// Heads of all layers of a kind, "layer.head".
Heatmap similarity_of(const std::vector<const AttentionFacts*>& layers) {
  std::vector<Tensor> weights;
  std::vector<std::string> names;
  for (const AttentionFacts* facts : layers) {
    weights.push_back(facts->weights);
    for (const std::string& name : numbers(facts->heads.size(), concat(facts->layer, ".")))
      names.push_back(name);
  }
  Heatmap map;
  map.title = name_of(layers.front()->kind);
  map.values = to_matrix(nn::head_similarity(cat(weights, 1)).to(DType::f32));
  map.row_labels = map.column_labels = names;
  map.row_axis = map.column_axis = "Layer.head";
  map.color_label = "Similarity";
  map.colors = ColorMap::viridis;
  map.range = std::pair(0.0, 1.0);
  return map;
}

// Rows are the layers of all stacks, columns heads.
void draw_losses(Presentation& show, const HeadStudy& study) {
  Heatmap map;
  map.title = "Loss that the model gains without a head";
  map.values.cols = std::ssize(study.attentions.front().heads);
  for (const AttentionFacts& facts : study.attentions) {
    map.row_labels.push_back(concat(name_of(facts.kind), " ", facts.layer));
    ++map.values.rows;
    for (const HeadFacts& head : facts.heads)  // + 0: no "-0.00"
      map.values.values.push_back(
          static_cast<float>(std::round(100 * (head.loss - study.whole.loss)) / 100 + 0.0));
  }
  map.row_axis = "";
  map.column_axis = "Head";
  map.color_label = "Loss added";
  map.colors = ColorMap::reds;
  map.decimals = 2;
  map.square = false;
  show.figure(map, "heads-ablation");
}

void draw_pruned(Presentation& show, const HeadStudy& study) {
  Line right{"", {0}, {100 * study.whole.sequence_accuracy}};
  for (const PrunedModel& left : study.pruned) {
    right.x.push_back(static_cast<double>(right.x.size()));
    right.y.push_back(100 * left.right);
  }
  show.figure(LinePlot{"Whole sequences right as heads are taken away", "Heads taken away", "%", {right}},
              "heads-pruned");
}

// What each state of the decoder is mixed from: source tokens, then target tokens.
void draw_rollout(Presentation& show, const AttentionMaps& maps) {
  const auto weights = [&](AttentionKind kind) {
    std::vector<Tensor> layers;
    for (const AttentionMaps::Map* map : maps.of(kind)) layers.push_back(map->weights);
    return layers;
  };
  if (maps.of(AttentionKind::cross).empty()) return;
  Heatmap map;
  map.title = "Rollout: of which tokens the decoder's last states are mixed";
  map.values = to_matrix(nn::attention_rollout(weights(AttentionKind::source), weights(AttentionKind::target),
                                               weights(AttentionKind::cross)));
  map.row_labels = maps.target_tokens;
  map.column_labels = maps.source_tokens;
  map.column_labels.insert(map.column_labels.end(), maps.target_tokens.begin(), maps.target_tokens.end());
  map.row_axis = "State: target";
  map.column_axis = "Token: source, then target";
  map.color_label = "Share";
  map.colors = ColorMap::viridis;
  show.figure(map, "heads-rollout");
}

}  // namespace

void draw_heads(Presentation& show, const HeadStudy& study, const Trained& trained, int64_t layer) {
  const AttentionMaps maps = attention_maps(*trained.model, study.first.source, study.first.target,
                                            trained.marks(), trained.settings.task_rule());
  HeatmapGrid similarity{"How alike heads are", 3, {}, true};
  for (const auto& [kind, name] :
       {std::pair(AttentionKind::source, "heads-encoder"), std::pair(AttentionKind::target, "heads-decoder"),
        std::pair(AttentionKind::cross, "heads-cross")}) {
    const std::vector<const AttentionFacts*> layers = study.of(kind);
    if (layers.empty()) continue;
    // Stacks of different depths: a layer that only one has is the last of the other.
    draw_layer(show, *layers[static_cast<size_t>(std::min<int64_t>(layer, std::ssize(layers) - 1))], maps,
               name);
    similarity.panels.push_back(similarity_of(layers));
  }
  show.figure(similarity, "heads-similarity");
  draw_losses(show, study);
  draw_pruned(show, study);
  draw_rollout(show, maps);
}

}  // namespace heed::apps
