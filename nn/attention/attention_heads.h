// The heads of a model's attentions: all of them, a model without one, and what each is there for.
#pragma once

#include <string>
#include <vector>

#include <heed/nn/attention/multi_head_attention.h>

namespace heed::nn {

/// The multi-head attentions of a module, in the order in which it lists its parts.
std::vector<MultiHeadAttention*> attentions(Module& module);

struct Head {
  MultiHeadAttention* attention;
  int64_t number;
};

/// While one lives, the outputs of some heads are zero: what the model loses by it is what they were worth
/// (Michel et al., arXiv 1905.10650). It computes as if the heads' columns of out_proj.weight were zero.
/// Those of several scopes, one within another, add up.
class HeadAblation {
 public:
  /// IndexError for a head that is not there. The attentions must outlive it.
  [[nodiscard]] explicit HeadAblation(const std::vector<Head>& heads);
  ~HeadAblation();
  HeadAblation(const HeadAblation&) = delete;
  HeadAblation& operator=(const HeadAblation&) = delete;

 private:
  std::vector<std::pair<MultiHeadAttention*, Tensor>> before_;
};

/// What a head looks at.
struct HeadRole {
  /// Lines through the map that have at least half of the weight where they have a key, the one with most
  /// weight first:
  ///   of self-attention  "itself", "previous", "next", "2 back", "3 ahead", …
  ///   of cross-attention "diagonal +1", …: key = query + 1, read forwards
  ///   of both            "mirror 20", …: key + query = 20, read backwards; "first", "last": one key
  /// A head without such a line is "even" (its entropy is 95 % of the largest there can be), or "by place" or
  /// "by symbol" where that explains half of its weights and more than the other, or else "mixed".
  std::string name;
  double share = 0;  // the first line's weight, where it has a key; else what place or symbol explains
};

struct HeadRoleOptions {
  bool cross = false;  // queries and keys are places of different sequences
};

/// The role of each head of weights [sequences, heads, queries, keys] of sequences of one length, with ids as
/// of explained_by_symbols(). Undefined ids: symbols are not asked, as of vocabularies so large that hardly a
/// pair of symbols comes twice, where each would explain its own weight. ShapeError.
std::vector<HeadRole> head_roles(const Tensor& weights, const Tensor& query_ids, const Tensor& key_ids,
                                 const HeadRoleOptions& options = {});

}  // namespace heed::nn
