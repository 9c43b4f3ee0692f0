// Which tokens of a text each token attends to.
#include <heed/core/attention.h>
#include <heed/core/autograd/autograd.h>

#include "apps/common/figures/presentation.h"
#include "apps/common/text.h"
#include "apps/lm/commands.h"

namespace heed::apps {
namespace {

constexpr int64_t kMaxTokens = 192;  // what a figure has room for

std::vector<std::string> pieces_of(const data::Tokenizer& tokenizer, const std::vector<int64_t>& ids) {
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const int64_t id : ids) pieces.push_back(printable(tokenizer.piece(id)));
  return pieces;
}

Heatmap heatmap_of(const Tensor& weights, const std::vector<std::string>& pieces, std::string title) {
  Heatmap map;
  map.title = std::move(title);
  map.values = to_matrix(weights);
  map.row_labels = map.column_labels = pieces;
  map.row_axis = "Token";
  map.column_axis = "Looks back at";
  map.range = {0.0, 1.0};
  return map;
}

}  // namespace

void attention(const AttentionSettings& s) {
  HEED_CHECK(s.texts.size() == 1, ConfigError, "attention draws one text, got ", s.texts.size(),
             "; a text with spaces needs quotes");
  const nn::TextGenerator generator = open_generator(s);
  const nn::LanguageModelConfig& config = generator.model().config();
  HEED_CHECK(s.layer < config.layers && (!s.head || *s.head < config.heads), ConfigError,
             "the model has layers 0 to ", config.layers - 1, " and heads 0 to ", config.heads - 1);
  std::vector<int64_t> ids;
  if (generator.start() >= 0) ids.push_back(generator.start());
  const data::TokenIds symbols = generator.tokenizer().encode(s.texts.front());
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  HEED_CHECK(!ids.empty() && std::ssize(ids) <= kMaxTokens, DataError, "a text of ", ids.size(),
             " tokens; 1 to ", kMaxTokens, " are drawn");

  const NoGrad no_grad;
  const AttentionRecord record;
  const Device device = generator.model().embedding.weight.device();
  (void)generator.model().states(nn::Tokens::packed({ids}, device));
  const std::string name = concat("layers.", s.layer, ".self_attn");
  const std::vector<std::string> pieces = pieces_of(generator.tokenizer(), ids);
  Presentation show(s.json, s.out.empty() ? s.model : s.out);
  HeatmapGrid grid;
  grid.title = concat("Layer ", s.layer, ": what each token looks back at");
  grid.columns = 2;
  grid.shared_scale = true;
  for (int64_t head = s.head.value_or(0); head < (s.head ? *s.head + 1 : config.heads); ++head) {
    const Tensor weights = record.weights(name, 0, head).to(kCpu);
    show.matrix(concat("head", head), concat("Layer ", s.layer, ", head ", head), weights, pieces, pieces);
    grid.panels.push_back(heatmap_of(weights, pieces, concat("Head ", head)));
  }
  if (grid.panels.size() == 1)
    show.figure(grid.panels.front(), "attention");
  else
    show.figure(grid, "attention");
  show.value("tokens", pieces);
  show.finish();
}

}  // namespace heed::apps
