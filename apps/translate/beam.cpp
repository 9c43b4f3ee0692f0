// The command beam: the search for one text's output as a tree.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "apps/common/json_lines.h"
#include "apps/common/program.h"
#include "apps/common/text.h"
#include "apps/translate/commands.h"

namespace heed::apps {
namespace {

using Continuations = std::span<const nn::Continuation>;

/// A token that the search looked at, after those above it.
struct Node {
  int64_t token;
  double probability;  // of the token, after those above it
  double score;        // by which the search chose
  double least;        // of those that were kept in its step
  bool kept = true;
  std::vector<size_t> next = {};
};

/// Follows a search.
class Tree {
 public:
  Tree() : nodes_{{data::kStart, 1, 0, 0}} {}

  void add(Continuations kept, Continuations pruned) {
    least_ = kept.back().rank;
    std::vector<Leaf> leaves;
    std::vector<size_t> numbers;
    for (const nn::Continuation& c : kept) {
      numbers.push_back(c.token < 0 ? leaves_[c.parent].node : add(c, true));
      leaves.push_back({numbers.back(), c.score});
    }
    for (const nn::Continuation& c : pruned) {
      if (c.token >= 0)
        add(c, false);
      else
        nodes_[leaves_[c.parent].node].kept = false;  // finished, and then passed by others
    }
    leaves_ = std::move(leaves);
  }

  const Node& operator[](size_t i) const { return nodes_[i]; }
  /// Where the hypotheses that are left end, best first.
  std::vector<size_t> ends() const {
    std::vector<size_t> result;
    for (const Leaf& leaf : leaves_) result.push_back(leaf.node);
    return result;
  }

 private:
  struct Leaf {
    size_t node;
    double score;  // without length penalty
  };

  size_t add(const nn::Continuation& c, bool kept) {
    const Leaf& parent = leaves_[c.parent];
    nodes_.push_back({c.token, std::exp(c.score - parent.score), c.rank, least_, kept});
    nodes_[parent.node].next.push_back(nodes_.size() - 1);
    return nodes_.size() - 1;
  }

  std::vector<Node> nodes_;
  std::vector<Leaf> leaves_{{0, 0}};
  double least_ = 0;
};

class TreePrinter {
 public:
  TreePrinter(const Tree& tree, const data::Tokenizer& tokenizer)
      : tree_(tree), tokenizer_(tokenizer), ends_(tree.ends()) {}

  void print(size_t node, const std::string& indent = "") const {
    const std::vector<size_t>& next = tree_[node].next;
    for (size_t i = 0; i < next.size(); ++i) {
      const bool last = i + 1 == next.size();
      std::printf("%s%s%s\n", indent.c_str(), last ? "└ " : "├ ", line(next[i]).c_str());
      print(next[i], indent + (last ? "  " : "│ "));
    }
  }

 private:
  std::string line(size_t number) const {
    const Node& node = tree_[number];
    std::string text = concat(pad_right(printable(tokenizer_.piece(node.token)), 8), " ",
                              fixed_text(100 * node.probability, 1), " %  ", fixed_text(node.score, 2));
    const auto place = std::find(ends_.begin(), ends_.end(), number);
    if (place != ends_.end())
      text += concat("  output ", place - ends_.begin() + 1);
    else if (!node.kept)
      text += concat("  pruned: ", fixed_text(node.least, 2), " was the least kept");
    else if (std::none_of(node.next.begin(), node.next.end(), [&](size_t n) { return tree_[n].kept; }))
      text += "  no continuation kept";
    return text;
  }

  const Tree& tree_;
  const data::Tokenizer& tokenizer_;
  std::vector<size_t> ends_;
};

Json to_json(const Tree& tree, const data::Tokenizer& tokenizer, size_t number) {
  const Node& node = tree[number];
  Json next = Json::array();
  for (const size_t n : node.next) next.push_back(to_json(tree, tokenizer, n));
  return {{"token", tokenizer.piece(node.token)},
          {"probability", node.probability},
          {"score", node.score},
          {"kept", node.kept},
          {"next", next}};
}

}  // namespace

void beam(const BeamSettings& s) {
  HEED_CHECK(s.texts.size() == 1, ConfigError, "beam draws the search for one text, got ", s.texts.size(),
             "; a text with spaces needs quotes");
  const nn::TextModel model = load_model(s);
  Tree tree;
  nn::TextOptions options = s.options(s.beam);
  options.on_choice = [&](int64_t, Continuations kept, Continuations pruned) { tree.add(kept, pruned); };
  const std::vector<nn::TextOutput> outputs = model.run(s.texts, options).front();
  if (s.json) {
    Json texts = Json::array();
    for (const nn::TextOutput& o : outputs) texts.push_back({{"text", o.text}, {"score", o.score}});
    return JsonLines().write(
        {{"source", s.texts.front()}, {"outputs", texts}, {"tree", to_json(tree, model.target(), 0)}});
  }
  std::printf("%s\n", printable(s.texts.front()).c_str());
  TreePrinter(tree, model.target()).print(0);
  for (size_t i = 0; i < outputs.size(); ++i)
    std::printf("output %zu  %s  %s\n", i + 1, fixed_text(outputs[i].score, 2).c_str(),
                printable(outputs[i].text).c_str());
}

}  // namespace heed::apps
