#include <gtest/gtest.h>

#include <heed/nn/decoding/decode.h>

#include "search_model.h"

namespace heed::nn {
namespace {

TEST(Sampling, DrawsWhatTheModelSays) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 5);
  const Tokens source = Tokens::packed({{1, 3, 4, 2}});
  model->eval();
  const NoGrad no_grad;
  const Scores all = all_outputs(*model, source, 2, 0);
  model->train();
  expect_drawn_from(all, *model, source);
}

TEST(Sampling, FollowsSeedLimitsAndPrefix) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  const Tokens sources = Tokens::packed(kSources);
  const auto draw = [&](uint64_t seed, SampleOptions options, DecodeOptions decode) {
    Generator generator(seed);
    options.generator = &generator;
    decode.sample = options;
    return beam_search(*model, sources, decode);
  };
  const DecodeOptions wide{.max_length = 12, .beam = 6};
  const auto a = draw(1, {}, wide), b = draw(1, {}, wide), c = draw(2, {}, wide);
  bool differs = false;
  for (size_t i = 0; i < kSources.size(); ++i)
    for (size_t n = 0; n < 6; ++n) {
      EXPECT_EQ(a[i][n].tokens, b[i][n].tokens);
      differs |= a[i][n].tokens != c[i][n].tokens;
    }
  EXPECT_TRUE(differs);
  const auto greedy = greedy_search(*model, sources, {.max_length = 12});
  const auto sharp = draw(1, {.top_k = 1}, {.max_length = 12});
  for (size_t i = 0; i < kSources.size(); ++i) EXPECT_EQ(sharp[i].front().tokens, greedy[i].tokens);
  const auto forced = draw(1, {.temperature = 5},
                           {.max_length = 12, .min_length = 6, .beam = 6, .prefixes = {{3}, {4}, {5}}});
  for (size_t i = 0; i < kSources.size(); ++i)
    for (const Hypothesis& h : forced[i]) {
      EXPECT_GE(h.tokens.size(), 6u);
      EXPECT_EQ(h.tokens[0], static_cast<int64_t>(3 + i));
    }
}

}  // namespace
}  // namespace heed::nn
