// What each head of a Transformer does, measured on pairs of one length.
#pragma once

#include <string>
#include <vector>

#include <heed/data/pair_dataset.h>
#include <heed/nn/attention/attention_heads.h>
#include <heed/nn/models/transformer.h>

#include "apps/common/figures/presentation.h"
#include "apps/copy_reverse/figures.h"
#include "apps/copy_reverse/trained.h"

namespace heed::apps {

struct HeadFacts {
  nn::HeadRole role;
  double entropy = 0, distance = 0;  // means over all rows
  double place = 0, symbol = 0;      // what explains the weights (nn/attention/attention_statistics.h)
  double loss = 0, right = 0;        // of the model without the head: loss, and share of sequences right
};

struct AttentionFacts {
  nn::MultiHeadAttention* attention;
  AttentionKind kind;
  int64_t layer;
  Tensor weights;  // f64 [pairs, heads, queries, keys]
  std::vector<HeadFacts> heads;
};

/// What is left as heads are taken away one after another, the one whose loss is least first.
struct PrunedModel {
  double loss = 0, right = 0;
};

struct HeadStudy {
  data::Pair first;  // of the pairs, which the figures show
  int64_t pairs = 0;
  Evaluation whole;
  std::vector<AttentionFacts> attentions;
  std::vector<PrunedModel> pruned;  // without one head, without two, …

  std::vector<const AttentionFacts*> of(AttentionKind kind) const;
};

/// "Encoder", "Decoder", "Cross-attention".
std::string name_of(AttentionKind kind);

/// The heads of one layer beside each other with their roles, how alike heads are, what is lost without each,
/// what is left without many, and the rollout through all layers.
void draw_heads(Presentation& show, const HeadStudy& study, const Trained& trained, int64_t layer);

}  // namespace heed::apps
