#include "apps/common/beam_tree.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/common/program.h"
#include "apps/common/text.h"

namespace heed::apps {

BeamTree::BeamTree(int64_t start) {
  nodes_.push_back({.token = start, .probability = 1, .score = 0, .least = 0});
  leaves_.push_back({.node = 0, .score = 0});
}

void BeamTree::add(Continuations kept, Continuations pruned) {
  least_ = kept.back().rank;
  std::vector<Leaf> leaves;
  for (const nn::Continuation& c : kept)
    leaves.push_back({c.token < 0 ? leaves_[c.parent].node : add(c, true), c.score});
  for (const nn::Continuation& c : pruned) {
    if (c.token >= 0)
      add(c, false);
    else
      nodes_[leaves_[c.parent].node].kept = false;  // finished, and then passed by others
  }
  leaves_ = std::move(leaves);
}

size_t BeamTree::add(const nn::Continuation& c, bool kept) {
  const Leaf& parent = leaves_[c.parent];
  nodes_.push_back({c.token, std::exp(c.score - parent.score), c.rank, least_, kept});
  nodes_[parent.node].next.push_back(nodes_.size() - 1);
  return nodes_.size() - 1;
}

std::string BeamTree::to_text(const TokenName& name) const {
  std::string text;
  append(text, name, 0, "");
  return text;
}

void BeamTree::append(std::string& text, const TokenName& name, size_t node,
                      const std::string& indent) const {
  const std::vector<size_t>& next = nodes_[node].next;
  for (size_t i = 0; i < next.size(); ++i) {
    const bool last = i + 1 == next.size();
    text += concat(indent, last ? "└ " : "├ ", line(name, next[i]), "\n");
    append(text, name, next[i], indent + (last ? "  " : "│ "));
  }
}

std::string BeamTree::line(const TokenName& name, size_t number) const {
  const Node& node = nodes_[number];
  std::string text = concat(pad_right(printable(name(node.token)), 8), " ",
                            fixed_text(100 * node.probability, 1), " %  ", fixed_text(node.score, 2));
  const auto leaf =
      std::find_if(leaves_.begin(), leaves_.end(), [&](const Leaf& l) { return l.node == number; });
  if (leaf != leaves_.end())
    text += concat("  output ", leaf - leaves_.begin() + 1);
  else if (!node.kept)
    text += concat("  pruned: ", fixed_text(node.least, 2), " was the least kept");
  else if (std::none_of(node.next.begin(), node.next.end(), [&](size_t n) { return nodes_[n].kept; }))
    text += "  no continuation kept";
  return text;
}

Json BeamTree::to_json(const TokenName& name, size_t number) const {
  const Node& node = nodes_[number];
  Json next = Json::array();
  for (const size_t n : node.next) next.push_back(to_json(name, n));
  return {{"token", name(node.token)},
          {"probability", node.probability},
          {"score", node.score},
          {"kept", node.kept},
          {"next", next}};
}

void show_search(const std::string& source, const BeamTree& tree, const BeamTree::TokenName& name,
                 const std::vector<BeamOutput>& outputs, bool json) {
  if (json) {
    Json found = Json::array();
    for (const BeamOutput& output : outputs)
      found.push_back({{"text", output.text}, {"score", output.score}});
    return JsonLines().write({{"source", source}, {"outputs", found}, {"tree", tree.to_json(name)}});
  }
  std::printf("%s\n%s", printable(source).c_str(), tree.to_text(name).c_str());
  for (size_t i = 0; i < outputs.size(); ++i)
    std::printf("output %zu  %s  %s\n", i + 1, fixed_text(outputs[i].score, 2).c_str(),
                printable(outputs[i].text).c_str());
}

}  // namespace heed::apps
