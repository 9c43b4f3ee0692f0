// Sparse attention: which keys queries see, how many blocks that takes, and that it is masked attention.
#include <cmath>

#include <fmt/format.h>

#include <heed/core/attention.h>
#include <heed/core/base/int_math.h>
#include <heed/core/block_pattern.h>
#include <heed/core/ops.h>

#include "apps/explain/common.h"

namespace heed::apps {
namespace {

constexpr int64_t kBlock = BlockPattern::kBlock;

/// A causal pattern of some length. `seen` are the blocks that attention computes.
struct Pattern {
  const char* name;
  Visibility rule;
  Tensor seen;
  bool by_blocks;  // seen is needed as a pattern; otherwise it follows from the rule

  AttentionOptions options() const {
    return {.visibility = rule, .blocks = by_blocks ? BlockPattern(seen) : BlockPattern()};
  }
};

std::vector<Pattern> patterns(int64_t length, int64_t seed) {
  constexpr Causal kCausal = Causal::top_left;
  const int64_t blocks = pattern_blocks(length);
  Generator generator(static_cast<uint64_t>(seed));
  const auto by_rule = [&](const char* name, const Visibility& rule) {
    return Pattern{name, rule, visible_blocks(rule, length), rule.dilation > 1};
  };
  const auto union_of = [&](const char* name, const Visibility& window, const Tensor& more) {
    return Pattern{name,
                   {.causal = kCausal},
                   logical_and(logical_or(visible_blocks(window, length), more),
                               visible_blocks({.causal = kCausal}, length)),
                   true};
  };
  return {by_rule("causal", {.causal = kCausal}),
          by_rule("window of 256", {.causal = kCausal, .window_left = 255}),
          by_rule("dilated window", {.causal = kCausal, .window_left = 512, .dilation = 128}),
          by_rule("window, 16 global", {.causal = kCausal, .window_left = 255, .global_tokens = 16}),
          union_of("BigBird", {.window_left = 64, .window_right = 0, .global_tokens = kBlock},
                   random_blocks(blocks, 2, true, generator)),
          union_of("strided", {.window_left = 64, .window_right = 0},
                   strided_blocks(blocks, static_cast<int64_t>(std::sqrt(static_cast<double>(blocks)))))};
}

int64_t count(const Tensor& seen) { return sum(seen.to(DType::i64)).item<int64_t>(); }

// bool [length, length]: every pair that is seen.
Tensor pairs(const Pattern& pattern, int64_t length) {
  const BlockPattern blocks(pattern.seen);
  const VisibilityView view(pattern.rule, blocks.view(kCpu));
  const Tensor seen = empty({length, length}, {.dtype = DType::boolean});
  bool* next = seen.data<bool>();
  for (int64_t q = 0; q < length; ++q)
    for (int64_t k = 0; k < length; ++k) *next++ = view.sees(q, k, length, length);
  return seen;
}

struct Gradients {
  Tensor output, inputs;
};

Gradients attend(const Tensor& from, const Tensor& gradient, const AttentionOptions& options) {
  const Tensor qkv = from.clone().set_requires_grad();
  const Tensor y = attention_qkv(qkv, Segments::dense(1, qkv.size(0)), options);
  y.backward(gradient);
  return {y.detach(), qkv.grad()};
}

// Small enough for three beside each other: a cell is so many tokens, seen if one of its pairs is.
Heatmap map_of(const std::string& title, const Tensor& seen) {
  constexpr int64_t kCells = 32;
  const int64_t length = seen.size(0), block = ceil_divide(length, kCells);
  Heatmap map;
  map.title = title;
  map.values = reduced(to_matrix(seen.to(DType::f32)), block, block);
  for (int64_t first = 0; first < length; first += block) map.row_labels.push_back(std::to_string(first));
  map.column_labels = map.row_labels;
  map.color_label = "Seen";
  map.range = std::pair(0.0, 1.0);
  map.zeros_are_hidden = true;
  return map;
}

// The patterns of one length: what they see and compute, and that they are masks.
void show_patterns(Presentation& p, const SparseSettings& s) {
  Table table{{{"pattern"}, {"pairs"}, {"of causal", "{:.1f} %"}, {"blocks"}, {"from a mask"}}, {}};
  HeatmapGrid grid{"Which keys a query sees", 3, {}, true};
  Generator generator(static_cast<uint64_t>(s.seed));
  const Tensor qkv = normal_numbers({s.length, 3 * 16}, generator),
               gradient = normal_numbers({s.length, 16}, generator);
  double all = 0;
  for (const Pattern& pattern : patterns(s.length, s.seed)) {
    const Tensor seen = pairs(pattern, s.length);
    const Gradients sparse = attend(qkv, gradient, pattern.options()),
                    dense = attend(qkv, gradient, {.mask = Mask::allowed(seen)});
    const auto number = static_cast<double>(count(seen));
    if (all == 0) all = number;
    table.rows.push_back({pattern.name, count(seen), 100 * number / all, count(pattern.seen),
                          difference_text(std::max(largest_difference(sparse.output, dense.output),
                                                   largest_difference(sparse.inputs, dense.inputs)))});
    grid.panels.push_back(map_of(pattern.name, seen));
  }
  p.heading(fmt::format("{} tokens: pairs that are seen, blocks of {} that are computed", s.length, kBlock));
  p.line("and the largest difference from attention with the same mask, of outputs and gradients");
  p.table("patterns", table);
  p.figure(grid, "sparse-patterns");
}

void show_growth(Presentation& p, const SparseSettings& s) {
  Table table{{{"tokens"}}, {}};
  for (int64_t length = 1024; length <= s.longest; length *= 2) {
    table.rows.push_back({length});
    for (const Pattern& pattern : patterns(length, s.seed)) {
      if (length == 1024) table.columns.push_back({pattern.name});
      table.rows.back().push_back(count(pattern.seen));
    }
  }
  p.heading("Blocks that are computed, as texts grow longer");
  p.table("growth", table);
}

}  // namespace

void explain_sparse(const SparseSettings& settings) {
  Presentation p = present(settings);
  show_patterns(p, settings);
  show_growth(p, settings);
  p.finish();
}

}  // namespace heed::apps
