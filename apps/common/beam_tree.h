// A beam search as a tree, for people and for programs.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <heed/nn/decoding/decode.h>

#include "apps/common/json_lines.h"

namespace heed::apps {

/// Follows the search for one output.
class BeamTree {
 public:
  using Continuations = std::span<const nn::Continuation>;
  using TokenName = std::function<std::string(int64_t token)>;

  /// start: the token that outputs are searched from.
  explicit BeamTree(int64_t start);

  /// What DecodeOptions::on_choice tells, at each token.
  void add(Continuations kept, Continuations pruned);

  /// A line for each token, beneath the one that it follows: its name, its probability there, the score by
  /// which the search chose, and what became of it: it ends an output, it was pruned, or nothing that follows
  /// it was kept.
  std::string to_text(const TokenName& name) const;
  /// token, probability, score, kept and next, a list of the same; the start is the root.
  Json to_json(const TokenName& name) const { return to_json(name, 0); }

 private:
  /// A token that the search looked at, after those above it.
  struct Node {
    int64_t token;
    double probability;  // of the token, after those above it
    double score;        // by which the search chose
    double least;        // of those that were kept in its step
    bool kept = true;
    std::vector<size_t> next = {};
  };
  /// Where a hypothesis ends.
  struct Leaf {
    size_t node;
    double score;  // without length penalty
  };

  size_t add(const nn::Continuation& continuation, bool kept);
  void append(std::string& text, const TokenName& name, size_t node, const std::string& indent) const;
  std::string line(const TokenName& name, size_t node) const;
  Json to_json(const TokenName& name, size_t node) const;

  std::vector<Node> nodes_;
  std::vector<Leaf> leaves_;  // best first
  double least_ = 0;
};

struct BeamOutput {
  std::string text;
  double score;
};

/// Prints a search: the source, the tree, and what was found, best first.
void show_search(const std::string& source, const BeamTree& tree, const BeamTree::TokenName& name,
                 const std::vector<BeamOutput>& outputs, bool json);

}  // namespace heed::apps
