// Attention as an operation: its options, its masks, and the record of its weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <heed/core/base/visibility.h>
#include <heed/core/block_pattern.h>
#include <heed/core/generator.h>
#include <heed/core/segments.h>
#include <heed/core/tensor.h>

namespace heed {

/// What keys a query may see, as data. In heed a boolean mask is true where attention is allowed.
class Mask {
 public:
  Mask() = default;
  /// True: visible. Shape broadcasts to [sequences, heads, queries, keys]. DTypeError unless bool.
  static Mask allowed(const Tensor& visible);
  /// The opposite kind, as PyTorch's attn_mask and key_padding_mask.
  static Mask blocked(const Tensor& hidden);
  /// Floats added to the scaled scores, -inf hides. ConfigError for one of only 0 and 1 with a 1 among them:
  /// that is a boolean mask in disguise. (One that requires grad is taken as it is.)
  static Mask added(const Tensor& bias);

  const Tensor& visible() const { return visible_; }  // bool, undefined if none
  const Tensor& bias() const { return bias_; }        // floats, undefined if none

 private:
  Tensor visible_, bias_;
};

struct AttentionOptions {
  int64_t heads = 1;
  int64_t key_heads = 0;  // 0: as many as heads; fewer: grouped queries; must divide heads
  double scale = 0;       // 0: 1 / sqrt(head width)
  Visibility visibility = {};
  BlockPattern blocks = {};  // hides what lies outside; must hold the longest sequence
  Mask mask = {};            // a bias that requires grad receives one
  Tensor alibi_slopes = {};  // f32 [heads]
  Tensor relative = {};      // [heads, 2 * limit + 1], added by key - query clamped to ±limit; learnable
  double logit_cap = 0;  // above 0: scaled scores s become cap tanh(s / cap) before biases and masks (arXiv
                         // 2408.00118)
  double dropout = 0;    // of the weights, while training
  Generator* generator = nullptr;  // null: default_generator()
  std::string_view name = {};      // under which an AttentionRecord lists this call
};

/// Multi-head scaled dot-product attention, fused. q [query_rows, heads * width], k and v [key_rows,
/// key_heads * width]; the segments say which rows belong together. Returns [query_rows, heads * width]. The
/// heads of v may have another width than those of q and k, which is then that of the result's. A query that
/// sees no key gives zeros; rows outside the segments are zeros. Leading axes count as rows, so that dense
/// [count, length, …] operands need no reshaping. A mask or bias may be larger than the longest sequence:
/// positions count from the start of each. A window, with global tokens or without, and blocks spare the time
/// of what they hide, 64 keys at a time; a mask does not. Memory is linear in the rows whatever is seen.
///
/// Causal rules, windows, global tokens, blocks and biases by distance go by a query's place among the keys
/// of its sequence: query i stands on key i, or with Causal::bottom_right and none_bottom_right on key i +
/// keys - queries, as where the first keys come from a cache. So queries after a cache see what they see in
/// the whole sequence, and the first of them are global tokens only where their places are below
/// global_tokens.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Segments& segments,
                 const AttentionOptions& options);
/// The same with q, k and v side by side in one matrix [rows, (heads + 2 key_heads) * width].
Tensor attention_qkv(const Tensor& qkv, const Segments& segments, const AttentionOptions& options);
/// The same with k and v side by side in one matrix [key_rows, 2 * key_heads * width].
Tensor attention_kv(const Tensor& q, const Tensor& kv, const Segments& segments,
                    const AttentionOptions& options);

/// The scores of one sequence as the softmax gets them, scaled, capped and with all biases: [heads, queries,
/// keys], f32 (f64 for f64), -inf where a query does not see a key. Recorded. Dropout plays no part.
/// IndexError for a sequence that is not there.
Tensor attention_scores(const Tensor& q, const Tensor& k, const Segments& segments,
                        const AttentionOptions& options, int64_t sequence);

/// While one lives on a thread, attention calls there leave a handle in it, from which the weights of any
/// sequence and head are rebuilt. Costs no memory but what the backward keeps
/// anyway. The innermost one records.
class AttentionRecord {
 public:
  [[nodiscard]] AttentionRecord();
  ~AttentionRecord();
  AttentionRecord(const AttentionRecord&) = delete;
  AttentionRecord& operator=(const AttentionRecord&) = delete;

  /// Names in the order of the calls; a name that came more than once is listed once.
  std::vector<std::string> names() const;
  int64_t heads(const std::string& name) const;
  int64_t sequences(const std::string& name) const;
  /// The softmax weights before dropout of the latest call of that name, [queries, keys], f32 (f64 for f64).
  /// Rows with a visible key sum to 1. Recorded if the call was: a loss of them leads gradients to q, k and
  /// the biases. IndexError for a name, sequence or head that is not there, StateError if q, k or a bias was
  /// written to since the call.
  Tensor weights(const std::string& name, int64_t sequence, int64_t head) const;
  /// Those of `queries` queries from first_query on, [queries, keys]. IndexError if the sequence has not so
  /// many.
  Tensor weights(const std::string& name, int64_t sequence, int64_t head, int64_t first_query,
                 int64_t queries) const;
  /// All heads: [heads, queries, keys].
  Tensor weights(const std::string& name, int64_t sequence) const;
  /// Query rows that see no key, counted over all sequences and heads: their output is zero. A mask that
  /// hides more than was meant shows here.
  int64_t fully_masked_rows(const std::string& name) const;

  struct Call;
  static AttentionRecord* current();
  void add(Call call);

 private:
  std::vector<Call> calls_;
  AttentionRecord* previous_;
};

}  // namespace heed
