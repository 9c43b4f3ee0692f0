// What the heads of a language model look at, in a text and in random tokens that come twice, and what the
// model loses without each.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <heed/core/attention.h>
#include <heed/core/creation.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/io/file.h>
#include <heed/core/ops.h>
#include <heed/nn/attention/attention_heads.h>
#include <heed/nn/attention/attention_statistics.h>

#include "apps/common/figures/presentation.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"
#include "apps/lm/commands.h"

namespace heed::apps {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 24;
constexpr int64_t kWindow = 64, kMaxWindows = 32;  // of the text whose maps are looked at
constexpr int64_t kDrawnPeriod = 10, kShortestText = 4;

struct HeadFacts {
  nn::HeadRole role;
  double entropy = 0, distance = 0;    // on the text
  double previous = 0, induction = 0;  // on tokens that come twice
  double bits = 0, repeated_loss = 0;  // of the model without it: on the text, and on what comes again
};

struct LayerFacts {
  nn::MultiHeadAttention* attention;
  std::vector<HeadFacts> heads;
};

// The tokens of a text, each once: those that the model may have learned, as it has not all of its
// vocabulary.
std::vector<int64_t> tokens_of(const nn::TextGenerator& generator, const std::string& text) {
  std::vector<int64_t> tokens;
  for (const int64_t id : generator.tokenizer().encode(text))
    if (!generator.tokenizer().is_mark(id)) tokens.push_back(id);
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  HEED_CHECK(tokens.size() >= 2, DataError, "heads: the text has ", tokens.size(), " different tokens");
  return tokens;
}

// Random tokens, and the same again: what follows a token was seen once before, and nothing else tells it.
struct Repetitions {
  std::vector<std::vector<int64_t>> sequences;
  int64_t start, period;  // tokens before the first of those that come twice (0 or 1), and their number

  Repetitions(const nn::TextGenerator& generator, const std::vector<int64_t>& tokens, int64_t period,
              int64_t count, uint64_t seed)
      : start(generator.start() >= 0 ? 1 : 0), period(period) {
    Generator random(seed);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<int64_t> once, sequence;
      for (const int64_t at : randint(0, std::ssize(tokens), {period}, kCpu, random).to_vector<int64_t>())
        once.push_back(tokens[static_cast<size_t>(at)]);
      if (start > 0) sequence.push_back(generator.start());
      for (int copy = 0; copy < 2; ++copy) sequence.insert(sequence.end(), once.begin(), once.end());
      sequences.push_back(std::move(sequence));
    }
  }

  // Targets of the second time alone, which the first foretells.
  Tensor targets() const {
    std::vector<int64_t> targets;
    for (const std::vector<int64_t>& sequence : sequences)
      for (int64_t row = 0; row < std::ssize(sequence); ++row)
        targets.push_back(row >= start + period && row + 1 < std::ssize(sequence)
                              ? sequence[static_cast<size_t>(row + 1)]
                              : CrossEntropyOptions{}.ignore);
    return tensor(targets, {std::ssize(targets)});
  }

  // The weight on the token after the earlier occurrence, [heads] (Olsson et al., arXiv 2209.11895: prefix
  // matching). weights: [sequences, heads, rows, rows].
  Tensor induction(const Tensor& weights) const {
    const int64_t rows = weights.size(-1), second = start + period;
    return mean(nn::attention_share(weights.slice(2, second, rows),
                                    nn::diagonal_pattern(rows, rows, 1 - period).slice(0, second, rows)),
                {.axes = {0}});
  }
};

// Windows of a text, each behind the token that begins texts.
std::vector<std::vector<int64_t>> windows_of(const nn::TextGenerator& generator, const std::string& text,
                                             int64_t longest) {
  const data::TokenIds ids = generator.tokenizer().encode(text);
  const int64_t window = std::min({kWindow, longest - 1, static_cast<int64_t>(ids.size())});
  HEED_CHECK(window >= kShortestText, DataError, "heads: a text of ", ids.size(), " tokens and a model of ",
             longest, " positions; both must have more than ", kShortestText);
  std::vector<std::vector<int64_t>> windows;
  for (int64_t first = 0; first + window <= std::ssize(ids) && std::ssize(windows) < kMaxWindows;
       first += window) {
    windows.emplace_back();
    if (generator.start() >= 0) windows.back().push_back(generator.start());
    windows.back().insert(windows.back().end(), ids.begin() + first, ids.begin() + first + window);
  }
  return windows;
}

// Told the weights of each attention, [sequences, heads, rows, rows], of sequences of one length.
template <class Look>
void look_at(nn::LanguageModel& model, const std::vector<std::vector<int64_t>>& sequences, const Look& look) {
  const NoGrad no_grad;
  const AttentionRecord record;
  (void)model.states(nn::Tokens::packed(sequences, model.embedding.weight.device()));
  size_t layer = 0;
  for (const nn::MultiHeadAttention* attention : nn::attentions(model)) {
    throw_if_stopped();
    std::vector<Tensor> weights;
    for (int64_t n = 0; n < std::ssize(sequences); ++n)
      weights.push_back(record.weights(attention->name, n).to(kCpu));
    look(layer++, stack(weights, 0));
  }
}

std::vector<LayerFacts> measure(nn::LanguageModel& model, const std::vector<std::vector<int64_t>>& windows,
                                const Repetitions& repetitions) {
  std::vector<LayerFacts> layers;
  for (nn::MultiHeadAttention* attention : nn::attentions(model))
    layers.push_back({attention, std::vector<HeadFacts>(static_cast<size_t>(attention->layout.heads))});
  const auto put = [&](size_t layer, const Tensor& values, double HeadFacts::*member) {
    const std::vector<double> numbers = values.to_vector<double>();
    for (size_t h = 0; h < numbers.size(); ++h) layers[layer].heads[h].*member = numbers[h];
  };
  look_at(model, windows, [&](size_t layer, const Tensor& weights) {
    const std::vector<nn::HeadRole> roles = nn::head_roles(weights, {}, {});
    for (size_t h = 0; h < roles.size(); ++h) layers[layer].heads[h].role = roles[h];
    put(layer, mean(nn::attention_entropy(weights), {.axes = {0, 2}}), &HeadFacts::entropy);
    put(layer, mean(nn::attention_distance(weights), {.axes = {0, 2}}), &HeadFacts::distance);
  });
  look_at(model, repetitions.sequences, [&](size_t layer, const Tensor& weights) {
    const int64_t rows = weights.size(-1);
    put(layer, mean(nn::attention_share(weights, nn::diagonal_pattern(rows, rows, -1)), {.axes = {0}}),
        &HeadFacts::previous);
    put(layer, repetitions.induction(weights), &HeadFacts::induction);
  });
  return layers;
}

// What a model makes of the text and of the repetitions.
class Judge {
 public:
  Judge(const nn::TextGenerator& generator, const std::string& text, int64_t window,
        const Repetitions& repetitions)
      : generator_(generator), text_(text), window_(window) {
    const Device device = generator.model().embedding.weight.device();
    tokens_ = nn::Tokens::packed(repetitions.sequences, device);
    targets_ = repetitions.targets().to(device);
    for_each_character(text, [&](std::string_view) { ++characters_; });
  }
  double bits() const {
    const auto [loss, tokens] = generator_.loss(text_, window_);
    return loss * static_cast<double>(tokens) / std::log(2.0) / static_cast<double>(characters_);
  }
  double repeated_loss() const {
    const NoGrad no_grad;
    return generator_.model().loss(tokens_, targets_).item<double>();
  }

 private:
  const nn::TextGenerator& generator_;
  const std::string& text_;
  int64_t window_, characters_ = 0;
  nn::Tokens tokens_;
  Tensor targets_;
};

void ablate(std::vector<LayerFacts>& layers, const Judge& judge) {
  int64_t count = 0;
  for (const LayerFacts& layer : layers) count += std::ssize(layer.heads);
  Progress progress("without heads", count, "heads");
  for (LayerFacts& layer : layers)
    for (size_t h = 0; h < layer.heads.size(); ++h) {
      throw_if_stopped();
      const nn::HeadAblation ablation({{layer.attention, static_cast<int64_t>(h)}});
      layer.heads[h].bits = judge.bits();
      layer.heads[h].repeated_loss = judge.repeated_loss();
      progress.advance(1);
    }
  progress.finish();
}

struct HeadPlace {
  size_t layer = 0, head = 0;
};

HeadPlace strongest(const std::vector<LayerFacts>& layers, double HeadFacts::*member) {
  HeadPlace best;
  for (size_t l = 0; l < layers.size(); ++l)
    for (size_t h = 0; h < layers[l].heads.size(); ++h)
      if (layers[l].heads[h].*member > layers[best.layer].heads[best.head].*member) best = {l, h};
  return best;
}

// Rows are layers, columns heads.
Heatmap over_heads(const std::vector<LayerFacts>& layers, const std::string& title, double HeadFacts::*member,
                   double whole, ColorMap colors) {
  Heatmap map;
  map.title = title;
  map.values = {std::ssize(layers), std::ssize(layers.front().heads), {}};
  for (const LayerFacts& layer : layers)
    for (const HeadFacts& head : layer.heads)
      map.values.values.push_back(static_cast<float>(head.*member - whole));
  map.row_axis = "Layer";
  map.column_axis = "Head";
  map.color_label = "";
  map.colors = colors;
  map.decimals = layers.front().heads.size() <= 16 ? 2 : 0;
  return map;
}

void draw_scores(Presentation& show, const std::vector<LayerFacts>& layers, double bits) {
  HeatmapGrid grid{"The heads of each layer", 3, {}, false};
  grid.panels = {over_heads(layers, "On the previous token", &HeadFacts::previous, 0, ColorMap::blues),
                 over_heads(layers, "Induction", &HeadFacts::induction, 0, ColorMap::greens),
                 over_heads(layers, "Bits a character lost", &HeadFacts::bits, bits, ColorMap::reds)};
  grid.panels[0].range = grid.panels[1].range = std::pair(0.0, 1.0);
  show.figure(grid, "heads");
}

// The head that looks most at the previous token and the one with the most induction, on few tokens that come
// twice.
void draw_maps(Presentation& show, const nn::TextGenerator& generator, const std::vector<int64_t>& tokens,
               const std::vector<LayerFacts>& layers, int64_t period, uint64_t seed) {
  const Repetitions few(generator, tokens, period, 1, seed);
  std::vector<std::string> pieces;
  for (const int64_t id : few.sequences.front()) pieces.push_back(printable(generator.tokenizer().piece(id)));
  HeatmapGrid grid{"Random tokens that come twice", 2, {}, true};
  for (const auto& [name, member] :
       {std::pair("previous", &HeadFacts::previous), std::pair("induction", &HeadFacts::induction)}) {
    const HeadPlace at = strongest(layers, member);
    Heatmap map;
    map.title = concat("Layer ", at.layer, ", head ", at.head, ": ", name, " ",
                       fixed_text(layers[at.layer].heads[at.head].*member, 2));
    look_at(generator.model(), few.sequences, [&](size_t layer, const Tensor& weights) {
      if (layer == at.layer)
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

Table table_of(const std::vector<LayerFacts>& layers, double bits, double repeated_loss) {
  Table table{{{"Layer"},
               {"Head"},
               {"Looks at"},
               {"Share", "{:.2f}"},
               {"Entropy", "{:.2f}"},
               {"Distance", "{:.1f}"},
               {"Previous", "{:.2f}"},
               {"Induction", "{:.2f}"},
               {"Bits lost", "{:.4f}"},
               {"Repeat loss +", "{:.2f}"}},
              {}};
  for (size_t l = 0; l < layers.size(); ++l)
    for (size_t h = 0; h < layers[l].heads.size(); ++h) {
      const HeadFacts& head = layers[l].heads[h];
      table.rows.push_back({l, h, head.role.name, head.role.share, head.entropy, head.distance, head.previous,
                            head.induction, head.bits - bits, head.repeated_loss - repeated_loss});
    }
  return table;
}

}  // namespace

void heads(const HeadsSettings& s) {
  HEED_CHECK(!s.data.empty(), ConfigError, "heads needs a text: give a file with --data");
  const std::string text = read_whole_file(s.data.string(), kMaxTextBytes);
  const std::optional<size_t> invalid = invalid_utf8(text);
  HEED_CHECK(!invalid, DataError, s.data.string(), " is not UTF-8 (byte ", *invalid + 1, ")");
  const nn::TextGenerator generator = open_generator(s);
  nn::LanguageModel& model = generator.model();
  const nn::LanguageModelConfig& config = model.config();
  HEED_CHECK(config.layers > 0, ConfigError, "the model has no layers, and so no heads");
  const bool learned = config.position == nn::PositionKind::learned;
  const int64_t longest = learned ? config.max_length : int64_t{1} << 20;
  HEED_CHECK(2 * s.period + 1 <= longest, ConfigError, "--period ", s.period, ": the model has ", longest,
             " positions");
  model.eval();
  const std::vector<int64_t> tokens = tokens_of(generator, text);
  const Repetitions repetitions(generator, tokens, s.period, s.sequences, static_cast<uint64_t>(s.seed));
  std::vector<LayerFacts> layers = measure(model, windows_of(generator, text, longest), repetitions);
  const Judge judge(generator, text, std::min(s.window, longest), repetitions);
  const double bits = judge.bits(), repeated_loss = judge.repeated_loss();
  ablate(layers, judge);

  Presentation show(s.json, s.out.empty() ? s.model : s.out);
  show.line(
      fmt::format("the text: {:.4f} bits a character; {} random tokens the second time: loss {:.2f} "
                  "(guessing among the text's: {:.2f})",
                  bits, s.period, repeated_loss, std::log(static_cast<double>(tokens.size()))));
  show.value("bits_per_character", bits);
  show.value("repeated_loss", repeated_loss);
  show.table("heads", table_of(layers, bits, repeated_loss));
  draw_scores(show, layers, bits);
  draw_maps(show, generator, tokens, layers, std::min(s.period, kDrawnPeriod), static_cast<uint64_t>(s.seed));
  show.finish();
}

}  // namespace heed::apps
