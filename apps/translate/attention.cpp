// The command attention: which source words the words of an output come from.
#include <heed/nn/text/text_alignment.h>

#include "apps/common/figures/presentation.h"
#include "apps/translate/commands.h"

namespace heed::apps {
namespace {

Heatmap to_heatmap(const nn::TextAlignment& a) {
  Heatmap map;
  map.title = "Cross-attention, averaged over layers and heads";
  map.values = {std::ssize(a.output), std::ssize(a.source), a.weights};
  map.row_labels = a.output;
  map.column_labels = a.source;
  map.row_axis = "Output";
  map.column_axis = "Source";
  map.range = {0.0, 1.0};
  return map;
}

std::vector<int64_t> output_of(const nn::TextModel& model, const AttentionSettings& s) {
  if (s.target.empty()) return model.run(s.texts, s.options()).front().front().tokens;
  const data::TokenIds symbols = model.target().encode(s.target);
  return {symbols.begin(), symbols.end()};
}

}  // namespace

void attention(const AttentionSettings& s) {
  HEED_CHECK(s.texts.size() == 1, ConfigError, "attention draws one text, got ", s.texts.size(),
             "; a text with spaces needs quotes");
  const nn::TextModel model = load_model(s);
  const std::vector<int64_t> output = output_of(model, s);
  const nn::TextAlignment a = nn::align(model, s.texts, {output}).front();
  HEED_CHECK(!a.weights.empty(), DataError, "there is nothing to draw: the text or its output is empty");
  Presentation show(s.json, s.out.empty() ? std::filesystem::path(s.models.front()) : s.out);
  show.heading(concat(s.texts.front(), "  ->  ", model.target().decode(output)));
  const Heatmap map = to_heatmap(a);
  show.map(map);
  show.figure(map, "attention");
  show.value("source", s.texts.front());
  show.value("output", model.target().decode(output));
  show.value("alignment", to_json(a));
  show.finish();
}

}  // namespace heed::apps
