// What two attention heads show before and after training.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/nn/init.h>
#include <heed/optim/adam.h>

#include "apps/common/program.h"
#include "apps/explain/common.h"
#include "apps/explain/language_model.h"

namespace heed::apps {
namespace {

constexpr const char* kFillers[] = {"a",    "dog",  "bird", "ran", "slept", "under",
                                    "near", "tree", "old",  "red", "by",    "house"};
constexpr const char* kAttention = "layers.0.self_attn";
constexpr int64_t kHeads = 2;

// Token 0 separates; the others are words.
struct Vocabulary {
  std::vector<std::string> words{"|"};

  explicit Vocabulary(const std::vector<std::string>& sentence) {
    for (const std::string& word : sentence) id(word);
    for (const char* word : kFillers) id(word);
  }
  int64_t id(const std::string& word) {
    const auto at = std::find(words.begin(), words.end(), word);
    if (at != words.end()) return at - words.begin();
    words.push_back(word);
    return static_cast<int64_t>(words.size()) - 1;
  }
  int64_t size() const { return static_cast<int64_t>(words.size()); }
};

// Sequences w1 … wn | w1 … w(n-1): what follows the bar is the sentence again, so each word after it can be
// known from where it stands.
struct Repetition {
  Tensor ids, labels;  // i64 [count, 2n]

  explicit Repetition(const Tensor& words) {  // i64 [count, n]
    const int64_t count = words.size(0), n = words.size(1);
    const Tensor bar = zeros({count, 1}, {.dtype = DType::i64});
    ids = cat({words, bar, words.slice(1, 0, n - 1)}, 1);
    labels = cat({full({count, n}, -100, {.dtype = DType::i64}), words}, 1);
  }
};

LanguageModelConfig model_config(int64_t vocabulary) {
  LanguageModelConfig config;
  config.d_model = 32;
  config.heads = kHeads;
  config.d_ff = 64;
  config.layers = 1;
  config.norm = nn::NormPlacement::pre;
  config.vocabulary = vocabulary;
  config.attention_dropout = config.activation_dropout = config.residual_dropout = config.embedding_dropout =
      0;
  return config;
}

double train(LanguageModel& model, int64_t vocabulary, int64_t length, int64_t steps, Generator& generator) {
  constexpr int64_t kBatch = 32;
  optim::Adam adam(model.parameters(), {.lr = 3e-3});
  double last = 0;
  for (int64_t step = 0; step < steps; ++step) {
    throw_if_stopped();
    const Repetition batch(randint(1, vocabulary, {kBatch, length}, kCpu, generator));
    const Tensor loss = cross_entropy(model.forward(nn::Tokens::dense(batch.ids)), batch.labels.flatten());
    loss.backward();
    adam.step({.clip = 1});
    last = loss.item<double>();
  }
  return last;
}

// Weights [heads, queries, keys] of one sequence.
Tensor weights_of(const LanguageModel& model, const Tensor& ids) {
  const NoGrad no_grad;
  const AttentionRecord record;
  model.forward(nn::Tokens::dense(ids));
  return record.weights(kAttention, 0);
}

// The mean weight that a head gives to the word that is to come, from the bar on.
double weight_on_next(const Tensor& weights, int64_t head, int64_t length) {
  double total = 0;
  for (int64_t i = 0; i < length; ++i)
    total += weights.select(0, head).select(0, length + i).select(0, i).item<double>();
  return total / static_cast<double>(length);
}

HeatmapGrid two_heads(const std::string& title, const Tensor& weights, const std::vector<std::string>& tokens,
                      int decimals) {
  HeatmapGrid grid{title, 2, {}, true};
  for (int64_t h = 0; h < kHeads; ++h)
    grid.panels.push_back(attention_map(concat("Head ", h), weights.select(0, h), tokens, decimals));
  return grid;
}

// Weights of a layer as its constructor makes it, on vectors drawn at random: what its heads show is the
// draw.
Tensor drawn_weights(int64_t words, int64_t seed) {
  constexpr int64_t kWidth = 64;
  Generator generator(static_cast<uint64_t>(seed));
  nn::MultiHeadAttention layer(kWidth, 4, {}, generator);
  layer.to(DType::f64);
  layer.name = kAttention;
  const NoGrad no_grad;
  const AttentionRecord record;
  layer.self(normal_numbers({words, kWidth}, generator), Segments::dense(1, words));
  return record.weights(kAttention, 0);
}

// How far from equal the weights are where q and k come from matrices with entries of N(0, 0.01²).
double distance_from_equal(int64_t seed) {
  constexpr int64_t kWidth = 8, kWords = 3;
  Generator generator(static_cast<uint64_t>(seed));
  const Tensor x = normal_numbers({kWords, kWidth}, generator);
  const auto project = [&] { return matmul(x, normal_numbers({kWidth, kWidth}, generator) * 0.01); };
  const Tensor q = project(), k = project(), v = project();
  const AttentionRecord record;
  attention(q, k, v, Segments::dense(1, kWords), {.heads = kHeads, .name = kAttention});
  return largest_difference(record.weights(kAttention, 0), 1.0 / kWords);
}

void show_untrained(Presentation& p, const std::vector<std::string>& words, int64_t seed) {
  p.heading("Untrained: a layer of width 64 with 4 heads on random vectors");
  const auto count = static_cast<int64_t>(words.size());
  Table table{{{"seed", "{}"}, {"head", "{}"}, {"most of the last word's attention"}, {"weight", "{:.2f}"}},
              {}};
  for (int64_t draw = 0; draw < 3; ++draw) {
    const Tensor weights = drawn_weights(count, seed + draw);
    for (int64_t h = 0; h < kHeads; ++h) {
      const Tensor row = weights.select(0, h).select(0, count - 1);
      const auto best = argmax(row, 0).item<int64_t>();
      table.rows.push_back(
          {seed + draw, h, words[static_cast<size_t>(best)], row.select(0, best).item<double>()});
    }
  }
  p.table("untrained", table);
  p.line("another seed, another pattern: these maps say nothing about the words");
  const double distance = distance_from_equal(seed);
  p.line(fmt::format("weight matrices of N(0, 0.01²) (width 8, 2 heads, 3 words): all within {:.1e} of 1/3",
                     distance));
  p.value("distance_from_equal", distance);
  p.figure(two_heads("Untrained heads: noise", drawn_weights(count, seed), words, 2), "heads-untrained");
}

}  // namespace

void explain_heads(const HeadsSettings& settings) {
  Presentation p = present(settings);
  const std::vector<std::string> words = split_words(settings.sentence);
  const auto length = static_cast<int64_t>(words.size());
  show_untrained(p, words, settings.seed);

  Vocabulary vocabulary(words);
  std::vector<int64_t> ids;
  ids.reserve(words.size());
  for (const std::string& word : words) ids.push_back(vocabulary.id(word));
  const Tensor sentence = Repetition(tensor(ids, {1, length})).ids;
  std::vector<std::string> tokens = words;
  tokens.push_back("|");
  tokens.insert(tokens.end(), words.begin(), words.end() - 1);

  Generator generator(static_cast<uint64_t>(settings.seed));
  LanguageModel model(model_config(vocabulary.size()), generator);
  model.to(DType::f64);
  const double deviation = 1 / std::sqrt(static_cast<double>(model.embedding.weight.size(1)));
  nn::initialize(model, {{"embedding.weight", nn::Initializer::normal, deviation}}, generator);
  const Tensor before = weights_of(model, sentence);
  const double loss = train(model, vocabulary.size(), length, settings.steps, generator);
  const Tensor after = weights_of(model, sentence);

  p.heading(
      fmt::format("Trained: a language model of one layer learns to say {} random words again", length));
  p.line(fmt::format("{} steps, loss {:.4f} (guessing: {:.4f})", settings.steps, loss,
                     std::log(static_cast<double>(vocabulary.size() - 1))));
  Table table{{{"head", "{}"}, {"untrained", "{:.3f}"}, {"trained", "{:.3f}"}}, {}};
  for (int64_t h = 0; h < kHeads; ++h)
    table.rows.push_back({h, weight_on_next(before, h, length), weight_on_next(after, h, length)});
  p.line("weight on the word that is to come, mean over the sentence said again");
  p.table("weight_on_next", table);
  p.value("loss", loss);
  p.figure(two_heads("Trained heads: the word to be said next", after, tokens, 0), "heads-trained");
  p.finish();
}

}  // namespace heed::apps
