// Ensembles of sequence-to-sequence models: their probabilities are the mean of the models', at each step of
// every way to find an output.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/decoding/ensemble.h>
#include <heed/nn/models/seq2seq_rnn.h>

#include "expect_error.h"
#include "op_check.h"
#include "search_model.h"

namespace heed::nn {
namespace {

using test::expect_error;
using Models = std::vector<std::shared_ptr<Seq2SeqModel>>;

constexpr int64_t kVocabulary = 5;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Models of one seed are equal.
std::shared_ptr<Transformer> small_model(uint64_t seed, int64_t vocabulary = kVocabulary) {
  TransformerConfig config;
  config.source_vocabulary = 7;
  config.target_vocabulary = vocabulary;
  config.encoder_layers = config.decoder_layers = 1 + static_cast<int64_t>(seed % 2);
  return small_model(config, seed);
}

std::shared_ptr<Seq2SeqRnn> small_rnn() {
  Generator generator(3);
  return std::make_shared<Seq2SeqRnn>(
      Seq2SeqRnnConfig{.source_vocabulary = 7, .target_vocabulary = kVocabulary, .d_model = 8}, generator);
}

// Of logits [rows, vocabulary], in f64.
std::vector<double> probabilities(const Tensor& logits) {
  return exp(log_softmax(logits.to(kCpu).to(DType::f64))).to_vector<double>();
}

// What is to be the exponential of `got`.
std::vector<double> mean_probabilities(const std::vector<Tensor>& logits) {
  std::vector<double> mean;
  for (const Tensor& one : logits) {
    const std::vector<double> p = probabilities(one);
    mean.resize(p.size());
    for (size_t i = 0; i < p.size(); ++i) mean[i] += p[i] / static_cast<double>(logits.size());
  }
  return mean;
}

void expect_logarithms(const Tensor& got, const std::vector<double>& want) {
  const std::vector<float> values = got.to(kCpu).to_vector<float>();
  ASSERT_EQ(values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values[i], std::log(want[i]), 1e-5) << i;
}

TEST(Ensemble, OfOneModelIsThatModel) {
  const auto model = small_model(1);
  Seq2SeqEnsemble ensemble({model});
  const NoGrad no_grad;
  const Tokens source = Tokens::packed(kSources), target = Tokens::packed({{1}, {1, 3, 4}, {1, 4}});
  EXPECT_TRUE(array_equal(ensemble.forward(source, target), model->forward(source, target)));
  for (const int64_t beam : {1, 4}) {
    const DecodeOptions options{.max_length = 9, .min_length = 2, .beam = beam, .length_penalty = 0.5};
    const auto want = beam_search(*model, source, options), got = beam_search(ensemble, source, options);
    for (size_t i = 0; i < want.size(); ++i)
      for (size_t n = 0; n < want[i].size(); ++n) {
        EXPECT_EQ(got[i][n].tokens, want[i][n].tokens);
        EXPECT_EQ(got[i][n].score, want[i][n].score);
      }
  }
}

TEST(Ensemble, OfEqualModelsSaysWhatOneSays) {
  const auto model = small_model(2);
  Seq2SeqEnsemble ensemble({model, small_model(2), small_model(2)});
  const DecodeOptions options{.max_length = 9, .beam = 3};
  const auto want = beam_search(*model, Tokens::packed(kSources), options);
  const auto got = beam_search(ensemble, Tokens::packed(kSources), options);
  for (size_t i = 0; i < want.size(); ++i)
    for (size_t n = 0; n < want[i].size(); ++n) {
      EXPECT_EQ(got[i][n].tokens, want[i][n].tokens);
      EXPECT_NEAR(got[i][n].score, want[i][n].score, 1e-4);
    }
}

// Also after hypotheses were exchanged, and with models of different kinds.
TEST(Ensemble, AStepHasTheMeanOfTheProbabilities) {
  const Models models{small_model(1), small_model(2), small_rnn()};
  Seq2SeqEnsemble ensemble(models);
  const NoGrad no_grad;
  for (const Device device : test::devices()) {
    ensemble.to(device);
    const Tokens source = Tokens::packed(kSources, device);
    const auto together = ensemble.start(source, 2);
    std::vector<std::unique_ptr<StepDecoder>> alone;
    for (const auto& model : models) alone.push_back(model->start(source, 2));
    for (std::vector<int64_t> ids : {std::vector<int64_t>{1, 1, 1, 1, 1, 1}, {3, 4, 0, 3, 4, 4}, {4, 2, 3}}) {
      SCOPED_TRACE(concat(device, ", ", ids.size(), " hypotheses"));
      const Tensor tokens = tensor(ids, {std::ssize(ids)}).to(device);
      std::vector<Tensor> logits;
      for (const auto& decoder : alone) logits.push_back(decoder->step(tokens));
      const Tensor got = together->step(tokens);
      EXPECT_EQ(together->rows(), std::ssize(ids));
      expect_logarithms(got, mean_probabilities(logits));
      if (ids.front() != 3) continue;
      const std::vector<int64_t> parents{5, 0, 2};
      together->select(parents);
      for (const auto& decoder : alone) decoder->select(parents);
    }
  }
}

TEST(Ensemble, AForwardHasTheMeanOfTheProbabilities) {
  const Models models{small_model(1), small_model(2)};
  const Seq2SeqEnsemble ensemble(models);
  const NoGrad no_grad;
  const Tokens source = Tokens::packed(kSources), target = Tokens::packed({{1}, {1, 3, 4}, {1, 4}});
  std::vector<Tensor> logits;
  for (const auto& model : models) logits.push_back(model->forward(source, target));
  expect_logarithms(ensemble.forward(source, target), mean_probabilities(logits));
}

// Answers with the same logits at each step.
class FixedModel final : public Seq2SeqModel {
 public:
  explicit FixedModel(std::vector<float> logits) : logits_(std::move(logits)) {}

  Tensor forward(const Tokens&, const Tokens& target) const override { return repeated(target.ids.size(0)); }
  std::unique_ptr<StepDecoder> start(const Tokens& source, int64_t hypotheses) const override {
    return std::make_unique<Steps>(*this, source.segments.count() * hypotheses);
  }
  int64_t target_vocabulary() const override { return std::ssize(logits_); }
  int64_t max_target() const override { return std::ssize(logits_); }
  void visit(Visitor&) override {}

 private:
  class Steps final : public StepDecoder {
   public:
    Steps(const FixedModel& model, int64_t rows) : model_(model), rows_(rows) {}
    int64_t rows() const override { return rows_; }
    Tensor step(const Tensor&) override { return model_.repeated(rows_); }
    void select(std::span<const int64_t> parents) override { rows_ = std::ssize(parents); }

   private:
    const FixedModel& model_;
    int64_t rows_;
  };

  Tensor repeated(int64_t rows) const {
    return tensor(logits_, {1, target_vocabulary()}).expand({rows, target_vocabulary()});
  }

  std::vector<float> logits_;
};

std::shared_ptr<FixedModel> fixed(std::vector<float> logits) {
  return std::make_shared<FixedModel>(std::move(logits));
}

// e^-200 is 0 in f32, but its logarithm is not lost. A model that excludes a token leaves it the others'
// part.
TEST(Ensemble, NothingUnderflows) {
  const auto never = static_cast<float>(-kInfinity);
  const Seq2SeqEnsemble ensemble({fixed({0, -200, -300, never, never}), fixed({0, -201, -290, -1, never})});
  const auto got =
      ensemble.forward(Tokens::packed({{1}}), Tokens::packed({{1}})).select(0, 0).to_vector<float>();
  const double rest = std::log1p(std::exp(-1.0));  // of the second model's probability, which token 3 takes
  EXPECT_NEAR(got[0], std::log((1 + std::exp(-rest)) / 2), 1e-6);
  EXPECT_NEAR(got[1], -200 + std::log((1 + std::exp(-1 - rest)) / 2), 1e-4);
  EXPECT_NEAR(got[2], -290 - rest + std::log((1 + std::exp(-10 + rest)) / 2), 1e-4);
  EXPECT_NEAR(got[3], -1 - rest - std::log(2), 1e-6);
  EXPECT_EQ(got[4], never);
}

// Of every output of at most `length` tokens: the product of the means over the models.
Scores all_outputs(const Models& models, const Tokens& source, int64_t length, double alpha) {
  const auto next = [&](const std::vector<int64_t>& input) {
    std::vector<Tensor> logits;
    for (const auto& model : models) {
      const Tensor rows = model->forward(source, Tokens::packed({input}));
      logits.push_back(rows.slice(0, rows.size(0) - 1, rows.size(0)));
    }
    std::vector<double> mean = mean_probabilities(logits);
    for (double& p : mean) p = std::log(p);
    return mean;
  };
  return nn::all_outputs(next, length, alpha);
}

TEST(Ensemble, AWideBeamFindsWhatExhaustiveSearchFinds) {
  const Models models{small_model(1), small_model(2)};
  Seq2SeqEnsemble ensemble(models);
  const NoGrad no_grad;
  const Tokens source = Tokens::packed({kSources[0]});
  for (const double alpha : {0.0, 1.0}) {
    const Scores all = all_outputs(models, source, 3, alpha);
    EXPECT_EQ(all.size(), 1u + 4 + 4 * 4 + 4 * 4 * 4);
    const auto found =
        beam_search(ensemble, source, {.max_length = 3, .beam = kVocabulary, .length_penalty = alpha})
            .front();
    expect_best_of(all, found);
  }
}

// The output that the mean finds is no model's own.
TEST(Ensemble, TheMeanDecides) {
  // Probabilities of tokens 3, 4 and the end: .6 .4 0, and 0 .4 .6.
  const auto never = static_cast<float>(-kInfinity);
  const float more = std::log(0.6f), less = std::log(0.4f);
  const auto first = fixed({never, never, never, more, less}),
             second = fixed({never, never, more, never, less});
  const Tokens source = Tokens::packed({{1}});
  const DecodeOptions options{.max_length = 2};
  EXPECT_EQ(greedy_search(*first, source, options).front().tokens, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(greedy_search(*second, source, options).front().tokens, std::vector<int64_t>{});
  Seq2SeqEnsemble ensemble({first, second});
  const Hypothesis together = greedy_search(ensemble, source, options).front();
  EXPECT_EQ(together.tokens, (std::vector<int64_t>{4, 4}));
  EXPECT_NEAR(together.score, 2 * std::log(0.4), 1e-6);
}

TEST(Ensemble, DrawsFromTheMean) {
  const Models models{small_model(1), small_model(2)};
  Seq2SeqEnsemble ensemble(models);
  const NoGrad no_grad;
  const Tokens source = Tokens::packed({kSources[0]});
  expect_drawn_from(all_outputs(models, source, 2, 0), ensemble, source);
}

TEST(Ensemble, BatchesChangeNothing) {
  Seq2SeqEnsemble ensemble({small_model(1), small_model(2)});
  const DecodeOptions options{.max_length = 9, .beam = 3};
  const auto together = beam_search(ensemble, Tokens::packed(kSources), options);
  for (size_t i = 0; i < kSources.size(); ++i) {
    const auto alone = beam_search(ensemble, Tokens::packed({kSources[i]}), options).front();
    for (size_t n = 0; n < alone.size(); ++n) {
      EXPECT_EQ(together[i][n].tokens, alone[n].tokens);
      EXPECT_NEAR(together[i][n].score, alone[n].score, 1e-5);
    }
  }
}

TEST(Ensemble, SetsItsModelsToEvaluation) {
  const auto a = small_model(1), b = small_model(2);
  EXPECT_TRUE(a->training());
  const Seq2SeqEnsemble ensemble({a, b});
  EXPECT_FALSE(ensemble.training() || a->training() || b->training());
}

TEST(Ensemble, EndsWhereTheFirstModelEnds) {
  EXPECT_EQ(Seq2SeqEnsemble({small_model(1)}).max_target(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Seq2SeqEnsemble({small_model(1), fixed({0, 0, 0, 0, 0})}).max_target(), 5);
}

TEST(Ensemble, RefusesWhatFitsNot) {
  expect_error<ConfigError>([] { Seq2SeqEnsemble({}); }, {"no models"});
  expect_error<ConfigError>([] { Seq2SeqEnsemble({small_model(1), nullptr}); }, {"model 2", "null"});
  expect_error<ConfigError>(
      [] {
        Seq2SeqEnsemble({small_model(1), small_model(1, 6)});
      },
      {"model 2", "vocabulary of 6", "first one of 5"});
}

TEST(Ensemble, NaNOfOneModelIsAnError) {
  const auto broken = small_model(2);
  {
    const NoGrad no_grad;
    broken->encoder.layers[0]->feed_forward.linear1.weight.slice(0, 0, 1).fill_(std::nanf(""));
  }
  Seq2SeqEnsemble ensemble({small_model(1), broken});
  for (const int64_t beam : {1, 4})
    EXPECT_THROW(beam_search(ensemble, Tokens::packed(kSources), {.max_length = 6, .beam = beam}),
                 NumericError);
}

}  // namespace
}  // namespace heed::nn
