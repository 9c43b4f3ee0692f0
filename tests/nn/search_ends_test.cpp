// How a search ends: at the end mark, at a length, when nothing better can come, or by an error.
#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include <heed/nn/decoding/decode.h>

#include "search_model.h"

namespace heed::nn {
namespace {

// Gives the end mark and two tokens the same odds at each step, and counts the rows that it is asked for.
class CountingDecoder final : public StepDecoder {
 public:
  CountingDecoder(int64_t rows, std::vector<int64_t>& counts) : rows_(rows), counts_(counts) {}
  int64_t rows() const override { return rows_; }
  Tensor step(const Tensor& ids) override {
    counts_.push_back(ids.size(0));
    std::vector<float> logits;
    for (int64_t i = 0; i < rows_; ++i) logits.insert(logits.end(), {-30, -30, 0, 1, -2});
    return tensor(logits, {rows_, 5});
  }
  void select(std::span<const int64_t> parents) override { rows_ = std::ssize(parents); }

 private:
  int64_t rows_;
  std::vector<int64_t>& counts_;
};

class CountingModel final : public Seq2SeqModel {
 public:
  Tensor forward(const Tokens&, const Tokens&) const override { return {}; }
  std::unique_ptr<StepDecoder> start(const Tokens& source, int64_t hypotheses) const override {
    counts.clear();
    return std::make_unique<CountingDecoder>(source.segments.count() * hypotheses, counts);
  }
  int64_t target_vocabulary() const override { return 5; }
  void visit(Visitor&) override {}

  mutable std::vector<int64_t> counts;
};

// Log probabilities of token 3, the end and token 4: -0.35, -1.35 and -3.35. The best output, of no token, is
// certain when 3 3 3 3 has fallen behind it, the second, 3, a step later; the third is cut.
TEST(BeamSearch, NothingIsComputedForWhatHasFinished) {
  CountingModel model;
  const auto search = [&](int64_t best) {
    return beam_search(model, Tokens::packed({{1}}), {.max_length = 8, .beam = 3, .best = best}).front();
  };
  EXPECT_TRUE(search(1).front().tokens.empty());
  EXPECT_EQ(model.counts, (std::vector<int64_t>{3, 2, 1, 1}));
  EXPECT_EQ(search(2).back().tokens, (std::vector<int64_t>{3}));
  EXPECT_EQ(model.counts, (std::vector<int64_t>{3, 2, 1, 1, 1}));
  EXPECT_EQ(search(3).back().tokens, std::vector<int64_t>(8, 3));
  EXPECT_EQ(model.counts, (std::vector<int64_t>{3, 2, 1, 1, 1, 1, 1, 1}));
}

TEST(BeamSearch, LengthsAreKept) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  {
    const NoGrad no_grad;  // the end mark wins every time
    model->output.bias.copy_(tensor<double>({0, 0, 50, 0, 0, 0, 0}));
  }
  const auto none = greedy_search(*model, Tokens::packed(kSources), {.max_length = 6});
  for (const Hypothesis& h : none) EXPECT_TRUE(h.tokens.empty() && h.finished);
  const auto some = greedy_search(*model, Tokens::packed(kSources), {.max_length = 6, .min_length = 4});
  for (const Hypothesis& h : some) EXPECT_TRUE(h.tokens.size() == 4 && h.finished);
  // Without an end mark its id is one as all others, and the length alone ends an output.
  for (const int64_t min_length : {0, 4})
    for (const int64_t beam : {1, 3})
      for (const auto& found :
           beam_search(*model, Tokens::packed(kSources),
                       {.end = -1, .max_length = 6, .min_length = min_length, .beam = beam})) {
        EXPECT_EQ(found.front().tokens, std::vector<int64_t>(6, 2));
        EXPECT_FALSE(found.front().finished);
      }
}

// What a source's outputs are, if they may have so many tokens, does not depend on those beside it.
TEST(BeamSearch, EachSourceHasItsOwnLength) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  const std::vector<int64_t> lengths{4, 9, 1};
  for (const int64_t end : {int64_t{-1}, int64_t{2}})
    for (const int64_t beam : {1, 3})
      for (const double alpha : {0.0, 1.0}) {
        const DecodeOptions options{.end = end, .max_length = 6, .beam = beam, .length_penalty = alpha};
        DecodeOptions together = options;
        together.max_lengths = lengths;
        const auto found = beam_search(*model, Tokens::packed(kSources), together);
        for (size_t i = 0; i < kSources.size(); ++i) {
          DecodeOptions alone = options;
          alone.max_length = std::min<int64_t>(6, lengths[i]);
          const auto want = beam_search(*model, Tokens::packed({kSources[i]}), alone).front();
          for (size_t n = 0; n < want.size(); ++n) {
            EXPECT_EQ(found[i][n].tokens, want[n].tokens);
            EXPECT_EQ(found[i][n].finished, want[n].finished);
            EXPECT_NEAR(found[i][n].score, want[n].score, 1e-6);
          }
          if (end < 0) {
            EXPECT_EQ(std::ssize(found[i].front().tokens), alone.max_length);
          }
        }
      }
}

TEST(BeamSearch, NaNIsAnError) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
    {
      const NoGrad no_grad;
      model->encoder.layers[0]->feed_forward.linear1.weight.slice(0, 0, 1).fill_(bad);
    }
    for (const int64_t beam : {1, 4})
      EXPECT_THROW(beam_search(*model, Tokens::packed(kSources), {.max_length = 6, .beam = beam}),
                   NumericError);
    EXPECT_THROW(greedy_search(*model, Tokens::packed(kSources), {.max_length = 6}), NumericError);
  }
}

TEST(BeamSearch, WhatAStepThrowsEndsIt) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  int steps = 0;
  const DecodeOptions options{.max_length = 60, .min_length = 50, .on_step = [&] {
                                if (++steps == 3) throw 3;
                              }};
  EXPECT_THROW(greedy_search(*model, Tokens::packed(kSources), options), int);
  EXPECT_EQ(steps, 3);
  EXPECT_TRUE(model->training());
}

}  // namespace
}  // namespace heed::nn
