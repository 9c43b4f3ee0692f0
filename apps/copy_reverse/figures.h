// The figures of a trained model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <heed/data/pair_batch.h>
#include <heed/data/task.h>
#include <heed/nn/models/seq2seq.h>
#include <heed/nn/models/transformer.h>

#include "apps/common/figures/plot.h"
#include "apps/common/json_lines.h"
#include "apps/copy_reverse/settings.h"

namespace heed::apps {

/// Who asks and who answers: the source itself, the target itself, the target the source.
enum class AttentionKind { source, target, cross };

/// Of an attention of that name, as the models give them: a Transformer's, and a recurrent decoder's.
AttentionKind kind_of(const std::string& name);

/// A symbol as its task writes it, or a mark's name.
std::string token_name(const data::Task& task, int64_t symbol);

/// Attention weights of one pair, rebuilt after a forward in evaluation mode, with the tokens' names.
struct AttentionMaps {
  struct Map {
    std::string name;  // "encoder.layers.0.self_attn"
    AttentionKind kind;
    Tensor weights;  // f32 [heads, queries, keys]
  };
  std::vector<Map> maps;
  std::vector<std::string> source_tokens, target_tokens;
  int64_t source_block = 1, target_block = 1;  // tokens in a row or column, which is called by its first

  /// The maps of a kind, from the first layer on.
  std::vector<const Map*> of(AttentionKind kind) const;
};

/// How many weights all maps of a pair of so many symbols hold, at most.
int64_t count_weights(const Settings& settings, int64_t source, int64_t target);

/// Whole: weights that sum to 1 in each row. Drawable: reduced as they are made (apps/common/figures/plot.h)
/// where sequences are long, so that the maps take no more memory than figures show.
enum class MapSize { whole, drawable };

/// The maps of `source` → `target` (symbols without marks), which are called as the task writes them.
/// NumericError where weights are not finite.
AttentionMaps attention_maps(nn::Seq2SeqModel& model, std::span<const int64_t> source,
                             std::span<const int64_t> target, data::Marks marks, const data::Task& task,
                             MapSize size = MapSize::whole);

/// One head of one map as a heatmap with token labels.
Heatmap attention_heatmap(const AttentionMaps& maps, const AttentionMaps::Map& map, int64_t head);

/// Writes, into `directory`: attention (encoder self-, decoder self- and cross-attention of one layer and
/// head), attention-heads and attention-cross-heads (all heads of one layer's encoder self-attention and of
/// its cross-attention), attention-encoder-layers and attention-layers (each layer's encoder self-attention
/// and cross-attention, heads averaged), as far as the model has them. Without a layer the last of each
/// stack, without a head that of the lowest entropy, of each kind.
std::vector<Figure> save_attention_figures(const AttentionMaps& maps, const std::filesystem::path& directory,
                                           std::optional<int64_t> layer = {},
                                           std::optional<int64_t> head = {});

/// The sinusoidal or learned position table: positions. Nothing for other kinds.
std::vector<Figure> save_position_figure(const nn::Transformer& model,
                                         const std::filesystem::path& directory);

}  // namespace heed::apps
