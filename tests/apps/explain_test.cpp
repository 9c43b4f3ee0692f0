// What explain computes: parameter counts, values of reference implementations, and the bands that random
// initial values must stay in.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apps/explain/language_model.h"
#include "explain_run.h"
#include "nn/golden.h"

namespace heed::apps {
namespace {

using test::explain;
using test::Json;

int exit_code_of(const std::string& arguments) {
  const int status = std::system(("'" HEED_EXPLAIN "' " + arguments + " >/dev/null 2>&1").c_str());
  return WEXITSTATUS(status);
}

void expect_matrix(const Json& got, const std::vector<std::vector<double>>& want, double tolerance) {
  ASSERT_GE(got.size(), want.size());  // the first rows
  for (size_t r = 0; r < want.size(); ++r)
    for (size_t c = 0; c < want[r].size(); ++c) EXPECT_NEAR(got[r][c].get<double>(), want[r][c], tolerance);
}

// One run for two tests.
const Json& the_cat_sat() {
  static const Json result = explain("attention");
  return result;
}

TEST(Explain, AttentionOnTheCatSat) {
  const Json& a = the_cat_sat();
  EXPECT_NEAR(a.at("raw_scores")[1][0].get<double>(), 0.99, 0.005);  // of cat for The
  expect_matrix(a.at("weights"),
                {{0.12387964169205962, 0.8735648533027923, 0.00255550500514815},
                 {0.22783694342758484, 0.4486571280545068, 0.3235059285179084},
                 {0.06856475410896386, 0.019081742211736287, 0.9123535036792999}},
                1e-14);
  expect_matrix(a.at("output"),
                {{-1.5697742787324036, 1.1190863934015864, 1.7830414263802847, 2.1276392999058507}}, 1e-14);
}

TEST(Explain, AttentionCausalAndUnscaled) {
  const Json& a = the_cat_sat();
  expect_matrix(a.at("causal_weights"), {{1, 0, 0}, {0.3367907466334924, 0.6632092533665076, 0}}, 1e-14);
  expect_matrix(a.at("unscaled_weights"), {{0.019713, 0.980278, 0.000008}}, 5e-7);
}

TEST(Explain, SparseAttentionIsMaskedAttention) {
  const Json sparse = explain("sparse --length 512 --longest 2048");
  const Json &patterns = sparse.at("patterns"), &growth = sparse.at("growth");
  ASSERT_EQ(patterns.size(), 6u);
  for (const Json& pattern : patterns) EXPECT_EQ(pattern.at("from a mask"), "below 1e-12") << pattern;
  EXPECT_EQ(patterns[0].at("pairs"), 512 * 513 / 2);
  EXPECT_EQ(patterns[0].at("blocks"), 8 * 9 / 2);
  EXPECT_EQ(patterns[1].at("pairs"), 512 * 256 - 255 * 256 / 2);
  EXPECT_EQ(patterns[1].at("blocks"), 1 + 2 + 3 + 4 + 4 * 5);
  ASSERT_EQ(growth.size(), 2u);
  EXPECT_EQ(growth[1].at("tokens"), 2048);
  EXPECT_EQ(growth[1].at("causal"), 32 * 33 / 2);
  EXPECT_EQ(growth[1].at("window of 256"), 1 + 2 + 3 + 4 + 28 * 5);
}

TEST(Explain, AttentionOnAnySentence) {
  const Json a = explain("attention --sentence 'the dog saw the cat'");
  ASSERT_EQ(a.at("weights").size(), 5u);
  EXPECT_EQ(a.at("queries")[0], a.at("queries")[3]);  // the same word, the same vector
  EXPECT_NE(a.at("queries")[0], a.at("queries")[1]);
}

// The deviations of products of normal numbers are known: √d. The rest is from a run of the same experiment
// in NumPy with 2,000 draws; bands are four standard errors of a mean of 500.
TEST(Explain, ScaleKeepsTheSoftmaxSoft) {
  const Json table = explain("scale").at("scale");
  ASSERT_EQ(table.size(), 22u);
  for (const Json& r : table) {
    const double d = r.at("d"), expected = r.at("scores") == "raw" ? std::sqrt(d) : 1;
    EXPECT_NEAR(r.at("deviation").get<double>() / expected, 1, 0.1) << r;
    if (r.at("scores") == "scaled") {
      EXPECT_NEAR(r.at("gradient").get<double>(), d == 1 ? 0.282 : 0.30, 0.02) << r;
    }
  }
  EXPECT_NEAR(table.at(20).at("largest weight").get<double>(), 0.965, 0.02);
  EXPECT_NEAR(table.at(20).at("entropy").get<double>(), 0.0861 / std::log(16), 0.015);
  EXPECT_NEAR(table.at(20).at("gradient").get<double>(), 0.0484, 0.02);
}

TEST(Explain, TrainedHeadsAttendToTheWordToCome) {
  const Json h = explain("heads");
  EXPECT_LT(h.at("loss").get<double>(), 0.05);
  for (const Json& r : h.at("weight_on_next")) {
    EXPECT_LT(r.at("untrained").get<double>(), 0.3) << r;  // equal weights on 6 to 12 words
    EXPECT_GT(r.at("trained").get<double>(), 0.6) << r;
  }
}

TEST(Explain, Sizes) {
  const Json s = explain("sizes");
  EXPECT_EQ(s.at("block_parameters"), 49'984);
  EXPECT_EQ(s.at("parameters"), 228'968);
  EXPECT_EQ(s.at("components"), Json({{"embedding", 64'000}, {"layers", 99'968}, {"generator", 65'000}}));
  // 2 V D + V for embedding and output, 4 D² + 2 D F + 9 D + F for each layer.
  const auto parameters = [](int64_t d, int64_t layers, int64_t f) {
    return 2 * 1000 * d + 1000 + layers * (4 * d * d + 2 * d * f + 9 * d + f);
  };
  for (const Json& r : s.at("configurations")) {
    const int64_t value = r.at("value");
    const std::string changed = r.at("changed");
    EXPECT_EQ(r.at("parameters"),
              parameters(changed == "d-model" ? value : 64, changed == "layers" ? value : 2,
                         changed == "d-ff" ? value : 256))
        << r;
  }
}

TEST(Explain, PositionsAreUniqueAndTheirProductsDependOnTheDistanceAlone) {
  const Json p = explain("positions");
  expect_matrix(
      p.at("first"),
      {{0, 1, 0, 1}, {0.8414709848078965, 0.5403023058681398, 0.761720408471602, 0.6479058722668407}}, 1e-15);
  EXPECT_NEAR(p.at("sum").get<double>(), 4526.21878168712, 1e-9);
  EXPECT_GT(p.at("closest").at("distance").get<double>(), 1.9);
  EXPECT_LT(p.at("spread").get<double>(), 1e-12);
  // d/2 cosines of 0, and the sum of cos(10000^(-2i/d)).
  double neighbours = 0;
  for (int i = 0; i < 64; ++i) neighbours += std::cos(std::pow(10000.0, -2.0 * i / 128));
  EXPECT_NEAR(p.at("products")[0].at("dot product").get<double>(), 64, 1e-12);
  EXPECT_NEAR(p.at("products")[1].at("dot product").get<double>(), neighbours, 1e-12);
  EXPECT_GT(explain("positions --d-model 127").at("spread").get<double>(),
            1e-6);  // a sine without its cosine
}

TEST(Explain, EncoderBlock) {
  const Json e = explain("encoder");
  EXPECT_EQ(e.at("parameters"), 3'152'384);
  ASSERT_EQ(e.at("shapes").size(), 10u);
  for (const Json& r : e.at("shapes")) EXPECT_EQ(r.at("shape"), r.at("expected"));
  EXPECT_LT(e.at("change_without_positions").get<double>(), 1e-12);
  EXPECT_GT(e.at("change_with_positions").get<double>(), 0.1);
}

TEST(Explain, TheWholeTransformer) {
  const Json t = explain("transformer");
  const std::map<std::string, int64_t> counts{{"multi-head attention", 1'050'624},
                                              {"feed-forward network", 2'099'712},
                                              {"encoder layer", 3'152'384},
                                              {"encoder, with its final norm", 18'915'328},
                                              {"decoder layer", 4'204'032},
                                              {"decoder, with its final norm", 25'225'216},
                                              {"total", 59'510'544},
                                              {"trainable", 59'510'544}};
  std::map<std::string, int64_t> found;
  for (const Json& r : t.at("parameters")) found[r.at("component")] = r.at("parameters");
  for (const auto& [component, count] : counts) EXPECT_EQ(found[component], count) << component;
  ASSERT_EQ(t.at("row_sums").size(), 4u);
  for (const double sum : t.at("row_sums")) EXPECT_NEAR(sum, 1, 1e-12);
  for (const char* same : {"split_combined", "heads", "pre_norm", "causal_before", "pads_hidden"})
    EXPECT_LT(t.at(same).get<double>(), 1e-12) << same;
  EXPECT_GT(t.at("post_norm").get<double>(), 0.1);
  EXPECT_GT(t.at("pads_seen").get<double>(), 0.01);
  EXPECT_GT(t.at("stream").get<double>(), 1.1);
}

TEST(Explain, BlockWithoutInputBiases) {
  const Json e = explain("encoder --norm pre --activation gelu --no-qkv-bias --batch 2 --length 10");
  EXPECT_EQ(e.at("parameters"), 3'150'848);
  EXPECT_EQ(e.at("shapes")[4].at("shape"), "[2, 8, 10, 10]");
}

TEST(Explain, RefusesBadInput) {
  EXPECT_EQ(exit_code_of("encoder --d-model 10 --heads 4"), 2);
  EXPECT_EQ(exit_code_of("attention --sentence '  '"), 3);
  EXPECT_EQ(exit_code_of("sizes --heads 3"), 2);
  EXPECT_EQ(exit_code_of("attention --device cuda"), 7);
  EXPECT_EQ(exit_code_of("transformer --heads 7"), 2);
  EXPECT_EQ(exit_code_of("attentoin"), 2);
}

TEST(Explain, SignalsStopIt) {
  const auto begin = std::chrono::steady_clock::now();
  for (const char* command :
       {"heads --steps 100000", "gradients --steps 100000", "initialization --draws 1000"}) {
    const std::string line = concat("'" HEED_EXPLAIN "' ", command,
                                    " --no-figures >/dev/null 2>&1 & p=$!; sleep 1; kill -TERM $p; wait $p");
    EXPECT_EQ(WEXITSTATUS(std::system(line.c_str())), 143) << command;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// Filled by rule as golden.h says; the values are PyTorch's.
TEST(LanguageModel, GivesTheReferencesLogits) {
  LanguageModelConfig config;
  static_cast<nn::LayerConfig&>(config) = test::plain_layer(64, 4, 256);
  config.vocabulary = 1000;
  config.layers = 2;
  LanguageModel model(config);
  model.to(DType::f64);
  model.eval();
  test::GoldenFill fill;
  fill.embedding(model.embedding);
  for (const auto& layer : model.layers.layers) fill.packed_layer(*layer);
  fill.linear(model.output);
  const Tensor ids = empty({2, 20}, {.dtype = DType::i64});
  for (int64_t i = 0; i < 20; ++i) {
    ids.data<int64_t>()[i] = (7 * i * i + 3 * i + 1) % 1000;
    ids.data<int64_t>()[20 + i] = (11 * i * i + 5 * i + 2) % 1000;
  }
  const NoGrad no_grad;
  const Tensor full = model.forward(nn::Tokens::dense(ids), {});
  test::expect_sums(full, 938.375548345, 13677.5907039);
  test::expect_first(full, {1.17066010661}, "full");
  const Tensor causal = model.forward(nn::Tokens::dense(ids));
  test::expect_golden(sum(causal).item<double>(), 960.237047857, "sum, causal");
  test::expect_first(causal, {0.866749983905}, "causal");
}

TEST(LanguageModel, RefusesWhatCannotBe) {
  LanguageModelConfig config;
  EXPECT_THROW(LanguageModel model(config), ConfigError);  // no vocabulary
  config.vocabulary = 10;
  config.layers = -1;
  EXPECT_THROW(LanguageModel model(config), ConfigError);
  config.layers = 1;
  config.position = nn::PositionKind::learned;
  EXPECT_THROW(LanguageModel model(config), ConfigError);
}

}  // namespace
}  // namespace heed::apps
