// The command beam: the search for one text's output as a tree.
#include "apps/common/beam_tree.h"
#include "apps/translate/commands.h"

namespace heed::apps {

void beam(const BeamSettings& s) {
  HEED_CHECK(s.texts.size() == 1, ConfigError, "beam draws the search for one text, got ", s.texts.size(),
             "; a text with spaces needs quotes");
  const nn::TextModel model = load_model(s);
  BeamTree tree(data::kStart);
  nn::TextOptions options = s.options(s.beam);
  options.on_choice = [&](int64_t, BeamTree::Continuations kept, BeamTree::Continuations pruned) {
    tree.add(kept, pruned);
  };
  std::vector<BeamOutput> outputs;
  const auto found = model.run(s.texts, options);
  for (const nn::TextOutput& o : found.front()) outputs.push_back({o.text, o.score});
  const auto name = [&](int64_t token) { return model.target().piece(token); };
  show_search(s.texts.front(), tree, name, outputs, s.json);
}

}  // namespace heed::apps
