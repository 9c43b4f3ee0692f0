// What the heads of a language model look at, in a text and in random tokens that come again, and what the
// model loses without each.
#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/nn/attention/attention_heads.h>
#include <heed/nn/attention/attention_statistics.h>

#include "apps/common/figures/presentation.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"
#include "apps/lm/commands.h"
#include "apps/lm/documents.h"
#include "apps/lm/repeated_tokens.h"

namespace heed::apps {
namespace {

constexpr int64_t kWindow = 64, kMaxWindows = 32;  // of the text whose maps are looked at
constexpr int64_t kDrawnPeriod = 10, kShortestText = 4;

struct HeadFacts {
  nn::HeadRole role;
  double entropy = 0, distance = 0;    // on the text
  double previous = 0, induction = 0;  // on tokens that come again
  double bits = 0;                     // a character of the text, of the model without it,
  Recall recall;                       // and what it then knows of tokens that come again
};

struct LayerFacts {
  nn::MultiHeadAttention* attention;
  std::vector<HeadFacts> heads;
};

struct HeadPlace {
  size_t layer = 0, head = 0;
};

// What the model loses of its strongest induction without a head of an earlier layer: the one that feeds it.
struct Composition {
  HeadPlace induction, helper;
  double left = 1;  // of the induction, without the helper; 1: there are no earlier layers
};

std::vector<std::vector<int64_t>> encode(const nn::TextGenerator& generator,
                                         const std::vector<std::string>& documents) {
  std::vector<std::vector<int64_t>> result;
  for (const std::string& document : documents) {
    const data::TokenIds ids = generator.tokenizer().encode(document);
    result.emplace_back(ids.begin(), ids.end());
  }
  return result;
}

// The tokens of documents, each once: those that the model may have learned, as it has not all of its
// vocabulary.
std::vector<int64_t> tokens_of(const nn::TextGenerator& generator,
                               const std::vector<std::vector<int64_t>>& documents) {
  std::vector<int64_t> tokens;
  for (const std::vector<int64_t>& document : documents)
    for (const int64_t id : document)
      if (!generator.tokenizer().is_mark(id)) tokens.push_back(id);
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  HEED_CHECK(tokens.size() >= 2, DataError, "heads: the text has ", tokens.size(), " different tokens");
  return tokens;
}

// Windows of one length, which half of the documents have, each behind the token that begins texts.
std::vector<std::vector<int64_t>> windows_of(const nn::TextGenerator& generator,
                                             const std::vector<std::vector<int64_t>>& documents) {
  std::vector<int64_t> lengths;
  for (const std::vector<int64_t>& document : documents) lengths.push_back(std::ssize(document));
  const auto middle = lengths.begin() + std::ssize(lengths) / 2;
  std::nth_element(lengths.begin(), middle, lengths.end());
  const int64_t longest = count_positions(generator.model()),
                window = std::min({kWindow, longest - 1, *middle});
  HEED_CHECK(window >= kShortestText, DataError, "heads: a text of ", *middle, " tokens and a model of ",
             longest, " positions; both must have more than ", kShortestText);
  std::vector<std::vector<int64_t>> windows;
  for (const std::vector<int64_t>& document : documents)
    for (int64_t first = 0; first + window <= std::ssize(document) && std::ssize(windows) < kMaxWindows;
         first += window) {
      windows.emplace_back();
      if (generator.start() >= 0) windows.back().push_back(generator.start());
      windows.back().insert(windows.back().end(), document.begin() + first,
                            document.begin() + first + window);
    }
  return windows;
}

// Told the weights of each of the attentions, [sequences, heads, rows, rows], of sequences of one length.
template <class Look>
void look_at(nn::LanguageModel& model, const std::vector<std::vector<int64_t>>& sequences,
             std::span<const LayerFacts> layers, const Look& look) {
  const NoGrad no_grad;
  const AttentionRecord record;
  (void)model.states(nn::Tokens::packed(sequences, model.embedding.weight.device()));
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    throw_if_stopped();
    std::vector<Tensor> weights;
    for (int64_t n = 0; n < std::ssize(sequences); ++n)
      weights.push_back(record.weights(layers[layer].attention->name, n).to(kCpu));
    look(layer, stack(weights, 0));
  }
}

// Of each head, [heads].
Tensor induction_of(const Tensor& weights, const RepeatedTokens& repeated) {
  return mean(nn::attention_share(weights, nn::induction_pattern(repeated.ids())), {.axes = {0}});
}

std::vector<LayerFacts> measure(nn::LanguageModel& model, const std::vector<std::vector<int64_t>>& windows,
                                const RepeatedTokens& repeated) {
  std::vector<LayerFacts> layers;
  for (nn::MultiHeadAttention* attention : nn::attentions(model))
    layers.push_back({attention, std::vector<HeadFacts>(static_cast<size_t>(attention->layout.heads))});
  const auto put = [&](size_t layer, const Tensor& values, double HeadFacts::*member) {
    const std::vector<double> numbers = values.to_vector<double>();
    for (size_t h = 0; h < numbers.size(); ++h) layers[layer].heads[h].*member = numbers[h];
  };
  look_at(model, windows, layers, [&](size_t layer, const Tensor& weights) {
    const std::vector<nn::HeadRole> roles = nn::head_roles(weights, {}, {});
    for (size_t h = 0; h < roles.size(); ++h) layers[layer].heads[h].role = roles[h];
    put(layer, mean(nn::attention_entropy(weights), {.axes = {0, 2}}), &HeadFacts::entropy);
    put(layer, mean(nn::attention_distance(weights), {.axes = {0, 2}}), &HeadFacts::distance);
  });
  look_at(model, repeated.sequences(), layers, [&](size_t layer, const Tensor& weights) {
    const int64_t rows = weights.size(-1);
    put(layer, mean(nn::attention_share(weights, nn::diagonal_pattern(rows, rows, -1)), {.axes = {0}}),
        &HeadFacts::previous);
    put(layer, induction_of(weights, repeated), &HeadFacts::induction);
  });
  return layers;
}

HeadPlace strongest(const std::vector<LayerFacts>& layers, double HeadFacts::*member) {
  HeadPlace best;
  for (size_t l = 0; l < layers.size(); ++l)
    for (size_t h = 0; h < layers[l].heads.size(); ++h)
      if (layers[l].heads[h].*member > layers[best.layer].heads[best.head].*member) best = {l, h};
  return best;
}

// What a model makes of the text and of the repetitions.
struct Judge {
  const nn::TextGenerator& generator;
  const std::vector<std::string>& documents;
  int64_t window;
  const RepeatedTokens& repeated;

  double bits() const {
    return predict(generator, documents, window).bits_per_character(count_characters(documents));
  }
  RepeatedTokens::Recalls recall() const { return repeated.recall(generator.model()); }
  double induction(const LayerFacts& layer, size_t head) const {
    double result = 0;
    look_at(generator.model(), repeated.sequences(), std::span(&layer, 1),
            [&](size_t, const Tensor& weights) {
              result = induction_of(weights, repeated).to_vector<double>()[head];
            });
    return result;
  }
};

// Without each head.
Composition ablate(std::vector<LayerFacts>& layers, const Judge& judge) {
  int64_t count = 0;
  for (const LayerFacts& layer : layers) count += std::ssize(layer.heads);
  Progress progress("without heads", count, "heads");
  Composition composition{strongest(layers, &HeadFacts::induction), {}};
  const HeadPlace at = composition.induction;
  for (size_t l = 0; l < layers.size(); ++l)
    for (size_t h = 0; h < layers[l].heads.size(); ++h) {
      throw_if_stopped();
      const nn::HeadAblation ablation({{layers[l].attention, static_cast<int64_t>(h)}});
      layers[l].heads[h].bits = judge.bits();
      layers[l].heads[h].recall = judge.recall().again;
      const double left = l < at.layer ? judge.induction(layers[at.layer], at.head) : composition.left;
      if (left < composition.left) composition = {at, {l, h}, left};
      progress.advance(1);
    }
  progress.finish();
  return composition;
}

// Rows are layers, columns heads.
template <class Value>
Heatmap over_heads(const std::vector<LayerFacts>& layers, const std::string& title, const Value& value,
                   ColorMap colors) {
  Heatmap map;
  map.title = title;
  map.values = {std::ssize(layers), std::ssize(layers.front().heads), {}};
  for (const LayerFacts& layer : layers)
    for (const HeadFacts& head : layer.heads) map.values.values.push_back(static_cast<float>(value(head)));
  map.row_axis = "Layer";
  map.column_axis = "Head";
  map.color_label = "";
  map.colors = colors;
  map.decimals = layers.front().heads.size() <= 16 ? 2 : 0;
  map.square = false;
  return map;
}

void draw_scores(Presentation& show, const std::vector<LayerFacts>& layers, double bits,
                 const Recall& again) {
  HeatmapGrid grid{"The heads of each layer", 2, {}, false};
  grid.panels = {
      over_heads(
          layers, "On the previous token", [](const HeadFacts& h) { return h.previous; }, ColorMap::blues),
      over_heads(
          layers, "Induction", [](const HeadFacts& h) { return h.induction; }, ColorMap::greens),
      over_heads(
          layers, "Bits a character lost", [&](const HeadFacts& h) { return h.bits - bits; }, ColorMap::reds),
      over_heads(
          layers, "Loss added where tokens come again",
          [&](const HeadFacts& h) { return h.recall.loss - again.loss; }, ColorMap::reds)};
  grid.panels[0].range = grid.panels[1].range = std::pair(0.0, 1.0);
  show.figure(grid, "heads");
}

// The head that looks most at the previous token and the one with the most induction, on few tokens that come
// again.
void draw_maps(Presentation& show, const nn::TextGenerator& generator, const std::vector<LayerFacts>& layers,
               const RepeatedTokens& few) {
  std::vector<std::string> pieces;
  for (const int64_t id : few.sequences().front())
    pieces.push_back(printable(generator.tokenizer().piece(id)));
  HeatmapGrid grid{"Random tokens that come again", 2, {}, true};
  for (const auto& [name, member] :
       {std::pair("previous", &HeadFacts::previous), std::pair("induction", &HeadFacts::induction)}) {
    const HeadPlace at = strongest(layers, member);
    Heatmap map;
    map.title = concat("Layer ", at.layer, ", head ", at.head, ": ", name, " ",
                       fixed_text(layers[at.layer].heads[at.head].*member, 2));
    look_at(generator.model(), few.sequences(), std::span(&layers[at.layer], 1),
            [&](size_t, const Tensor& weights) {
              map.values = to_matrix(weights.select(0, 0).select(0, static_cast<int64_t>(at.head)));
            });
    map.row_labels = map.column_labels = pieces;
    map.row_axis = "Token";
    map.column_axis = "Looks back at";
    map.range = std::pair(0.0, 1.0);
    map.zeros_are_hidden = true;
    map.colors = ColorMap::viridis;
    grid.panels.push_back(std::move(map));
  }
  show.figure(grid, "heads-induction");
}

Table table_of(const std::vector<LayerFacts>& layers, double bits, const Recall& again) {
  Table table{{{"Layer"},
               {"Head"},
               {"Looks at"},
               {"Share", "{:.2f}"},
               {"Entropy", "{:.2f}"},
               {"Distance", "{:.1f}"},
               {"Previous", "{:.2f}"},
               {"Induction", "{:.2f}"},
               {"Bits lost", "{:.4f}"},
               {"Repeat loss +", "{:.2f}"},
               {"Right without, %", "{:.1f}"}},
              {}};
  for (size_t l = 0; l < layers.size(); ++l)
    for (size_t h = 0; h < layers[l].heads.size(); ++h) {
      const HeadFacts& head = layers[l].heads[h];
      table.rows.push_back({l, h, head.role.name, head.role.share, head.entropy, head.distance, head.previous,
                            head.induction, head.bits - bits, head.recall.loss - again.loss,
                            100 * head.recall.right});
    }
  return table;
}

void show_composition(Presentation& show, const std::vector<LayerFacts>& layers, const Composition& c) {
  const auto name = [](const HeadPlace& at) { return concat("layer ", at.layer, ", head ", at.head); };
  const double score = layers[c.induction.layer].heads[c.induction.head].induction;
  std::string text = concat("most induction: ", name(c.induction), ", ", fixed_text(score, 2));
  Json json{{"layer", c.induction.layer}, {"head", c.induction.head}, {"score", score}};
  if (c.induction.layer > 0) {
    text += concat("; without ", name(c.helper), ": ", fixed_text(c.left, 2));
    json["helper"] = {{"layer", c.helper.layer}, {"head", c.helper.head}, {"left", c.left}};
  }
  show.line(text);
  show.value("induction", json);
}

}  // namespace

void heads(const HeadsSettings& s) {
  HEED_CHECK(!s.data.empty(), ConfigError, "heads needs a text: give a file with --data");
  const std::vector<std::string> documents = read_documents(s.data, s.unit);
  const nn::TextGenerator generator = open_generator(s);
  nn::LanguageModel& model = generator.model();
  HEED_CHECK(model.config().layers > 0, ConfigError, "the model has no layers, and so no heads");
  HEED_CHECK(2 * s.period + 1 <= count_positions(model), ConfigError, "--period ", s.period,
             ": the model has ", count_positions(model), " positions");
  model.eval();
  const std::vector<std::vector<int64_t>> texts = encode(generator, documents);
  const std::vector<int64_t> tokens = tokens_of(generator, texts);
  const int64_t period = std::min<int64_t>(s.period, std::ssize(tokens));
  const auto seed = static_cast<uint64_t>(s.seed);
  const RepeatedTokens repeated(generator, tokens, period, s.sequences, seed),
      few(generator, tokens, std::min(period, kDrawnPeriod), 1, seed);
  std::vector<LayerFacts> layers = measure(model, windows_of(generator, texts), repeated);
  const Judge judge{generator, documents, s.window, repeated};
  const double bits = judge.bits();
  const RepeatedTokens::Recalls recall = judge.recall();
  const Composition composition = ablate(layers, judge);

  Presentation show(s.json, s.out.empty() ? s.model : s.out);
  show.line(fmt::format("the text: {:.4f} bits a character", bits));
  show.line(
      fmt::format("up to {} random tokens: loss {:.2f}, {:.1f} % right; as they come again {:.2f}, {:.1f} % "
                  "(guessing: {:.2f})",
                  period, recall.first.loss, 100 * recall.first.right, recall.again.loss,
                  100 * recall.again.right, std::log(static_cast<double>(tokens.size()))));
  show.value("bits_per_character", bits);
  show.value("period", period);
  show.value("first", Json{{"loss", recall.first.loss}, {"right", recall.first.right}});
  show.value("again", Json{{"loss", recall.again.loss}, {"right", recall.again.right}});
  show_composition(show, layers, composition);
  show.table("heads", table_of(layers, bits, recall.again));
  draw_scores(show, layers, bits, recall.again);
  draw_maps(show, generator, layers, few);
  show.finish();
}

}  // namespace heed::apps
