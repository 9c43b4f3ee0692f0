// Attention on one sentence, step by step.
#include <cmath>
#include <map>

#include <fmt/format.h>

#include <heed/core/attention.h>
#include <heed/core/ops.h>

#include "apps/explain/common.h"

namespace heed::apps {
namespace {

constexpr int64_t kWidth = 4;

struct Example {
  std::vector<std::string> words;
  Tensor embeddings;     // f64 [words, 4]
  Tensor w_q, w_k, w_v;  // f64 [4, 4]
};

// Normal numbers to all their digits, so that everyone who computes along gets the same results.
Example the_cat_sat() {
  const auto matrix = [](const std::vector<double>& values) {
    return tensor(values, {static_cast<int64_t>(values.size()) / kWidth, kWidth});
  };
  return {{"The", "cat", "sat"},
          matrix({0.4967141530112327, -0.13826430117118466, 0.6476885381006925, 1.5230298564080254,
                  -0.23415337472333597, -0.23413695694918055, 1.5792128155073915, 0.7674347291529088,
                  -0.4694743859349521, 0.5425600435859647, -0.46341769281246226, -0.46572975357025687}),
          matrix({0.24196227156603412, -1.913280244657798, -1.7249178325130328, -0.5622875292409727,
                  -1.0128311203344238, 0.3142473325952739, -0.9080240755212109, -1.4123037013352915,
                  1.465648768921554, -0.22577630048653566, 0.06752820468792384, -1.4247481862134568,
                  -0.5443827245251827, 0.11092258970986608, -1.1509935774223028, 0.37569801834567196}),
          matrix({-0.600638689918805, -0.2916937497932768, -0.6017066122293969, 1.8522781845089378,
                  -0.013497224737933921, -1.0577109289559004, 0.822544912103189, -1.2208436499710222,
                  0.2088635950047554, -1.9596701238797756, -1.3281860488984305, 0.19686123586912352,
                  0.7384665799954104, 0.1713682811899705, -0.11564828238824053, -0.3011036955892888}),
          matrix({-1.4785219903674274, -0.7198442083947086, -0.4606387709597875, 1.0571222262189157,
                  0.3436182895684614, -1.763040155362734, 0.324083969394795, -0.38508228041631654,
                  -0.6769220003059587, 0.6116762888408679, 1.030999522495951, 0.9312801191161986,
                  -0.8392175232226385, -0.3092123758512146, 0.33126343140356396, 0.9755451271223592})};
}

// A vector for each different word, and the three matrices, all drawn from N(0, 1).
Example drawn(const std::vector<std::string>& words, int64_t seed) {
  Generator generator(static_cast<uint64_t>(seed));
  Example example{words, {}, {}, {}, {}};
  for (Tensor* w : {&example.w_q, &example.w_k, &example.w_v})
    *w = normal_numbers({kWidth, kWidth}, generator);
  std::map<std::string, Tensor> vectors;
  std::vector<Tensor> rows;
  for (const std::string& word : words) {
    Tensor& vector = vectors[word];
    if (!vector.defined()) vector = normal_numbers({kWidth}, generator);
    rows.push_back(vector);
  }
  example.embeddings = stack(rows, 0);
  return example;
}

struct Steps {
  Tensor q, k, v, raw, scaled, weights, output;
};

Steps attend(const Example& e) {
  Steps s;
  s.q = matmul(e.embeddings, e.w_q);
  s.k = matmul(e.embeddings, e.w_k);
  s.v = matmul(e.embeddings, e.w_v);
  s.raw = matmul(s.q, s.k.transpose(0, 1));
  s.scaled = s.raw / std::sqrt(static_cast<double>(kWidth));
  s.weights = softmax(s.scaled);
  s.output = matmul(s.weights, s.v);
  return s;
}

// The fused operation, which never stores its weights: they are rebuilt from the record.
struct Fused {
  Tensor weights, output;
};

Fused fused_attention(const Steps& s, AttentionOptions options) {
  const AttentionRecord record;
  options.name = "sentence";
  const Tensor output = attention(s.q, s.k, s.v, Segments::dense(1, s.q.size(0)), options);
  return {record.weights("sentence", 0, 0), output};
}

Heatmap signed_map(const std::string& title, const Tensor& x, const std::vector<std::string>& rows,
                   const std::vector<std::string>& columns) {
  Heatmap map;
  map.title = title;
  map.values = to_matrix(x);
  map.row_labels = rows;
  map.column_labels = columns;
  const double end = max(abs(x)).item<double>();
  map.range = std::pair(-end, end);
  map.colors = ColorMap::coolwarm;
  map.color_label = "Value";
  map.decimals = 2;
  map.row_axis = "Word";
  map.column_axis = "Dimension";
  return map;
}

Heatmap score_map(const std::string& title, const Tensor& scores, const std::vector<std::string>& words) {
  Heatmap map = signed_map(title, scores, words, words);
  map.row_axis = "Query";
  map.column_axis = "Key";
  map.color_label = "Score";
  return map;
}

void draw(Presentation& p, const Example& e, const Steps& s, const Fused& causal, const Fused& unscaled) {
  const std::vector<std::string> dimensions = numbers_as_text(kWidth);
  HeatmapGrid projections{"Words as vectors: what they ask, offer and hand on", 2, {}, false};
  projections.panels = {signed_map("Embeddings E", e.embeddings, e.words, dimensions),
                        signed_map("Q = E W_q", s.q, e.words, dimensions),
                        signed_map("K = E W_k", s.k, e.words, dimensions),
                        signed_map("V = E W_v", s.v, e.words, dimensions)};
  p.figure(projections, "attention-qkv");

  HeatmapGrid scores{"Scores", 2, {}, false};
  scores.panels = {score_map("Q Kᵀ", s.raw, e.words), score_map("Q Kᵀ / √4", s.scaled, e.words)};
  p.figure(scores, "attention-scores");

  p.figure(attention_map("Attention weights", s.weights, e.words, 2), "attention-weights");

  HeatmapGrid sum{"The weighted sum: weights × V = output", 3, {}, false};
  sum.panels = {attention_map("Weights", s.weights, e.words, 2), signed_map("V", s.v, e.words, dimensions),
                signed_map("Output", s.output, e.words, dimensions)};
  p.figure(sum, "attention-sum");

  HeatmapGrid variants{"One sentence, three kinds of weights", 3, {}, true};
  variants.panels = {attention_map("Scaled", s.weights, e.words, 2),
                     attention_map("Causal", causal.weights, e.words, 2),
                     attention_map("Not scaled", unscaled.weights, e.words, 2)};
  p.figure(variants, "attention-variants");
}

}  // namespace

void explain_attention(const AttentionSettings& settings) {
  Presentation p = present(settings);
  const std::vector<std::string> words = split_words(settings.sentence);
  const Example e = words == the_cat_sat().words ? the_cat_sat() : drawn(words, settings.seed);
  const Steps s = attend(e);
  p.value("words", words);
  p.value("drawn", words != the_cat_sat().words);
  if (words != the_cat_sat().words)
    p.line(
        "Nothing is trained here: the vectors and matrices of these words are drawn at random, so the "
        "weights show\n"
        "how attention computes, not what the words mean to each other.");

  p.heading("1. Each word is a vector; three matrices make a query, a key and a value of it");
  p.matrix("embeddings", "embeddings E", e.embeddings, words);
  p.matrix("queries", "queries Q = E W_q", s.q, words);
  p.matrix("keys", "keys K = E W_k", s.k, words);
  p.matrix("values", "values V = E W_v", s.v, words);

  p.heading("2. How well each query (row) fits each key (column)");
  p.matrix("raw_scores", "scores Q Kᵀ", s.raw, words, words);
  p.matrix("scaled_scores", "scaled by 1/√4", s.scaled, words, words);

  p.heading("3. Softmax makes weights of each row");
  p.matrix("weights", "weights", s.weights, words, words);
  p.map(attention_map("", s.weights, words, 2));
  const Tensor sums = sum(s.weights, {.axes = {1}});
  p.line(fmt::format("each row sums to 1: the largest difference is {}",
                     difference_text(largest_difference(sums, 1))));

  p.heading("4. The output: the values, summed with these weights");
  p.matrix("output", "output", s.output, words);
  const Fused fused = fused_attention(s, {});
  p.line(fmt::format("heed::attention, which does all this in one pass: largest difference {}",
                     difference_text(std::max(largest_difference(fused.output, s.output),
                                              largest_difference(fused.weights, s.weights)))));

  p.heading("Causal: a word sees itself and those before it");
  const Fused causal = fused_attention(s, {.visibility = {Causal::top_left}});
  p.matrix("causal_weights", "weights", causal.weights, words, words);
  p.matrix("causal_output", "output", causal.output, words);

  p.heading("Without the scale: the softmax is nearly a choice");
  const Fused unscaled = fused_attention(s, {.scale = 1});
  p.matrix("unscaled_weights", "weights", unscaled.weights, words, words);

  draw(p, e, s, causal, unscaled);
  p.finish();
}

}  // namespace heed::apps
