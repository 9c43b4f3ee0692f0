#include <algorithm>

#include <gtest/gtest.h>

#include <heed/nn/decoding/decode.h>

#include "op_check.h"
#include "search_model.h"

namespace heed::nn {
namespace {

TEST(BeamSearch, AWideBeamFindsWhatExhaustiveSearchFinds) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 5);
  for (double alpha : {0.0, 1.0}) {
    const Tokens source = Tokens::packed({{1, 3, 4, 2}});
    const auto found =
        beam_search(*model, source, {.max_length = 3, .beam = 5, .length_penalty = alpha}).front();
    model->eval();
    const NoGrad no_grad;
    expect_best_of(all_outputs(*model, source, 3, alpha), found);
    for (size_t i = 1; i < found.size(); ++i) EXPECT_GE(found[i - 1].score, found[i].score);
    model->train();
  }
}

TEST(BeamSearch, ABeamOfOneIsGreedyAndBatchesChangeNothing) {
  const auto model = small_model(NormPlacement::post, PositionKind::sinusoidal, 7);
  const auto greedy = greedy_search(*model, Tokens::packed(kSources), {.max_length = 9});
  const auto beams = beam_search(*model, Tokens::packed(kSources), {.max_length = 9, .beam = 1});
  for (size_t i = 0; i < kSources.size(); ++i) {
    EXPECT_EQ(greedy[i].tokens, beams[i].front().tokens);
    const auto alone = greedy_search(*model, Tokens::packed({kSources[i]}), {.max_length = 9});
    EXPECT_EQ(greedy[i].tokens, alone.front().tokens);
    EXPECT_NEAR(greedy[i].score, alone.front().score, 1e-6);
  }
  EXPECT_TRUE(model->training()) << "decoding leaves the mode as it was";
}

TEST(BeamSearch, EveryDeviceFindsTheSame) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  model->to(DType::f32);
  const auto search = [&](Device device, int64_t beam) {
    model->to(device);
    return beam_search(*model, Tokens::packed(kSources, device),
                       {.max_length = 9, .min_length = 4, .beam = beam});
  };
  for (const int64_t beam : {1, 3}) {
    const auto want = search(kCpu, beam);
    for (const Device device : test::devices()) {
      const auto got = search(device, beam);
      for (size_t i = 0; i < want.size(); ++i)
        for (size_t rank = 0; rank < want[i].size(); ++rank) {
          EXPECT_EQ(got[i][rank].tokens, want[i][rank].tokens) << device;
          EXPECT_NEAR(got[i][rank].score, want[i][rank].score, 1e-4) << device;
        }
    }
  }
}

// Fewer are the first of all, found in no more steps and often in fewer.
TEST(BeamSearch, FewerHypothesesAreThoseOfAll) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  {
    const NoGrad no_grad;  // many outputs end
    model->output.bias.copy_(tensor<double>({0, 0, 1.5, 0, 0, 0, 0}));
  }
  int64_t saved = 0;
  for (const double alpha : {0.0, 0.6, 2.0})
    for (const int64_t beam : {2, 5}) {
      const auto search = [&, alpha = alpha, beam = beam](int64_t best, int64_t& steps) {
        return beam_search(
            *model, Tokens::packed(kSources),
            {.max_length = 12, .beam = beam, .best = best, .length_penalty = alpha, .on_step = [&] {
               ++steps;
             }});
      };
      int64_t all_steps = 0;
      const auto all = search(0, all_steps);
      for (int64_t best = 1; best <= beam; ++best) {
        int64_t steps = 0;
        const auto found = search(best, steps);
        EXPECT_LE(steps, all_steps);
        saved += all_steps - steps;
        for (size_t i = 0; i < all.size(); ++i) {
          ASSERT_EQ(static_cast<int64_t>(found[i].size()), best);
          for (size_t n = 0; n < found[i].size(); ++n) {
            EXPECT_EQ(found[i][n].tokens, all[i][n].tokens);
            EXPECT_EQ(found[i][n].finished, all[i][n].finished);
            EXPECT_NEAR(found[i][n].score, all[i][n].score, 1e-6);
          }
        }
      }
    }
  EXPECT_GT(saved, 0);
}

// Who follows the choices knows the outputs.
TEST(BeamSearch, ChoicesAreTold) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  constexpr size_t kBeam = 3;
  const double alpha = 0.5;
  std::vector<std::vector<Hypothesis>> followed(kSources.size(), std::vector<Hypothesis>(1));
  int pruned_ones = 0;
  const auto choose = [&](int64_t source, std::span<const Continuation> kept,
                          std::span<const Continuation> pruned) {
    std::vector<Hypothesis>& before = followed[static_cast<size_t>(source)];
    EXPECT_EQ(kept.size(), kBeam);
    EXPECT_LE(pruned.size(), kBeam);
    std::vector<Continuation> all(kept.begin(), kept.end());
    all.insert(all.end(), pruned.begin(), pruned.end());
    for (size_t i = 1; i < all.size(); ++i) EXPECT_GE(all[i - 1].rank, all[i].rank);
    std::vector<Hypothesis> after;
    for (const Continuation& c : kept) {
      Hypothesis h = before.at(c.parent);
      EXPECT_EQ(h.finished, c.token < 0);
      if (c.token == 2) h.finished = true;
      if (c.token >= 0 && c.token != 2) h.tokens.push_back(c.token);
      h.score = c.rank;
      after.push_back(h);
    }
    pruned_ones += static_cast<int>(pruned.size());
    before = after;
  };
  const DecodeOptions options{.max_length = 9, .beam = kBeam, .length_penalty = alpha, .on_choice = choose};
  const auto found = beam_search(*model, Tokens::packed(kSources), options);
  for (size_t i = 0; i < found.size(); ++i)
    for (size_t n = 0; n < kBeam; ++n) {
      EXPECT_EQ(followed[i][n].tokens, found[i][n].tokens);
      EXPECT_EQ(followed[i][n].finished, found[i][n].finished);
      EXPECT_NEAR(followed[i][n].score, found[i][n].score, 1e-12);
    }
  EXPECT_GT(pruned_ones, 20);
}

TEST(BeamSearch, APrefixIsForced) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 5);
  const Tokens source = Tokens::packed({{1, 3, 4, 2}, {1, 4, 2}});
  const auto found = beam_search(*model, source, {.max_length = 3, .beam = 5, .prefixes = {{4, 3}, {}}});
  const auto free = beam_search(*model, source, {.max_length = 3, .beam = 5});
  EXPECT_EQ(found[1].front().tokens, free[1].front().tokens);
  model->eval();
  const NoGrad no_grad;
  const Tokens first = Tokens::packed({{1, 3, 4, 2}});
  const Scores all = all_outputs(*model, first, 3, 0);
  // {4, 3} and one token more, or the end: five outputs, all of them in a beam of five.
  std::vector<double> scores;
  for (const auto& [tokens, score] : all)
    if (tokens.size() >= 2 && tokens[0] == 4 && tokens[1] == 3) scores.push_back(score);
  ASSERT_EQ(scores.size(), 5u);
  std::sort(scores.rbegin(), scores.rend());
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(found[0][i].score, scores[i], 1e-5);
    EXPECT_NEAR(found[0][i].score, all.at(found[0][i].tokens), 1e-5);
  }
}

TEST(BeamSearch, ImpossibleOptions) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  const Tokens source = Tokens::packed(kSources);
  EXPECT_THROW(beam_search(*model, source, {.max_length = 0}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.max_length = 3, .min_length = 3}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.beam = 0}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.beam = 8}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.beam = 2, .best = 3}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.end = 7}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.end = -2}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.prefixes = {{3}}}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.max_lengths = {3}}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.max_lengths = {3, 3, 0}}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.max_length = 2, .prefixes = {{3, 3}, {}, {}}}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.prefixes = {{2}, {}, {}}}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.prefixes = {{7}, {}, {}}}), ConfigError);
  EXPECT_THROW(beam_search(*model, source, {.length_penalty = std::nan("")}), ConfigError);
}

}  // namespace
}  // namespace heed::nn
