#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/decoding/decoder_cache.h>
#include <heed/nn/init.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>

#include "on_device.h"
#include "op_check.h"

namespace heed::nn {
namespace {

std::unique_ptr<Transformer> small_model(NormPlacement norm, PositionKind position, int64_t vocabulary) {
  TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = vocabulary;
  config.d_model = 24;
  config.heads = 3;
  config.d_ff = 40;
  config.encoder_layers = 2;
  config.decoder_layers = 2;
  config.norm = norm;
  config.position = position;
  config.key_heads = position == PositionKind::rotary ? 1 : 3;
  config.set_dropout(0.1);  // must not act while decoding
  Generator generator(5);
  auto model = std::make_unique<Transformer>(config, generator);
  initialize(*model, {{"*embedding*", Initializer::normal, 0.3}, {"*weight", Initializer::normal, 0.3}},
             generator);
  model->to(DType::f64);
  return model;
}

const std::vector<std::vector<int64_t>> kSources{{1, 3, 4, 2}, {1, 5, 2}, {1, 3, 3, 4, 5, 2}};

// The logits of steps with a cache, and those of the last rows of full forwards.
test::Tensors cached_and_full(const Transformer& model, Device device) {
  const NoGrad no_grad;
  const Tokens source = Tokens::packed(kSources, device);
  const Tensor memory = model.encode(source);
  DecoderCache cache(model, memory, source.segments);
  std::vector<std::vector<int64_t>> targets(3);
  test::Tensors all_cached, all_full;
  for (int64_t step = 0; step < 40; ++step) {  // past the cache's first capacity
    std::vector<int64_t> ids;
    for (size_t i = 0; i < 3; ++i) {
      ids.push_back(step == 0 ? 1 : 3 + (step * 5 + static_cast<int64_t>(i) * 2) % 4);
      targets[i].push_back(ids.back());
    }
    const Tensor cached = cache.step(tensor(ids, {3}).to(device));
    if (step % 13 != 0 && step != 1 && step != 32) continue;
    all_cached.push_back(cached);
    const Tensor full = model.logits(model.decode(Tokens::packed(targets, device), memory, source.segments));
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t last = (i + 1) * (step + 1) - 1;
      all_full.push_back(full.slice(0, last, last + 1));
    }
  }
  return {cat(all_cached, 0), cat(all_full, 0)};
}

TEST(DecoderCache, AStepEqualsTheLastRowOfAFullForward) {
  for (NormPlacement norm : {NormPlacement::pre, NormPlacement::post})
    for (PositionKind position :
         {PositionKind::sinusoidal, PositionKind::learned, PositionKind::relative, PositionKind::alibi,
          PositionKind::rotary, PositionKind::t5, PositionKind::none}) {
      SCOPED_TRACE(concat(name(norm), ' ', name(position)));
      const auto model = small_model(norm, position, 7);
      model->eval();
      const test::Tensors got = cached_and_full(*model, kCpu);
      EXPECT_LE(test::max_difference(got[0], got[1]), 1e-12);
      if (norm == NormPlacement::post) continue;  // one of them is enough for an emulated device
      test::check_f32([&](DType dtype, Device device) {
        test::move(*model, dtype, device);
        return cached_and_full(*model, device);
      });
    }
}

TEST(DecoderCache, SelectFollowsParents) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  model->eval();
  const NoGrad no_grad;
  const Tokens source = Tokens::packed(kSources);
  const Tensor memory = model->encode(source);
  DecoderCache cache(*model, memory, source.segments);
  cache.step(tensor<int64_t>({1, 1, 1}));
  cache.step(tensor<int64_t>({3, 4, 5}));
  const std::vector<int64_t> parents{2, 0};
  cache.select(parents);
  EXPECT_EQ(cache.rows(), 2);
  const Tensor after = cache.step(tensor<int64_t>({6, 6}));
  DecoderCache fresh(*model, memory, source.segments);
  fresh.step(tensor<int64_t>({1, 1, 1}));
  fresh.step(tensor<int64_t>({3, 4, 5}));
  const Tensor straight = fresh.step(tensor<int64_t>({6, 6, 6}));
  EXPECT_LE(max(abs(after.select(0, 0) - straight.select(0, 2))).item<double>(), 1e-13);
  EXPECT_LE(max(abs(after.select(0, 1) - straight.select(0, 0))).item<double>(), 1e-13);
  const std::vector<int64_t> wrong{5};
  EXPECT_THROW(cache.select(wrong), IndexError);
}

// Log probabilities of every output of at most `length` tokens, by brute force.
void enumerate(const Transformer& model, const Tensor& memory, const Tokens& source,
               std::vector<int64_t> input, double score, int64_t length, double alpha,
               std::map<std::vector<int64_t>, double>& all) {
  const Tensor logits = model.logits(model.decode(Tokens::packed({input}), memory, source.segments));
  const std::vector<double> row = log_softmax(logits.select(0, logits.size(0) - 1)).to_vector<double>();
  const auto made = static_cast<int64_t>(input.size());  // tokens with this one
  const double penalty = std::pow((5.0 + static_cast<double>(made)) / 6.0, alpha);
  for (int64_t token = 0; token < static_cast<int64_t>(row.size()); ++token) {
    const double next = score + row[static_cast<size_t>(token)];
    std::vector<int64_t> output(input.begin() + 1, input.end());
    if (token == 2) {
      all[output] = next / penalty;
      continue;
    }
    std::vector<int64_t> longer = input;
    longer.push_back(token);
    if (made == length) {
      output.push_back(token);
      all[output] = next / penalty;
    } else {
      enumerate(model, memory, source, longer, next, length, alpha, all);
    }
  }
}

TEST(BeamSearch, AWideBeamFindsWhatExhaustiveSearchFinds) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 5);
  for (double alpha : {0.0, 1.0}) {
    const Tokens source = Tokens::packed({{1, 3, 4, 2}});
    const auto found =
        beam_search(*model, source, {.max_length = 3, .beam = 5, .length_penalty = alpha}).front();
    model->eval();
    const NoGrad no_grad;
    std::map<std::vector<int64_t>, double> all;
    enumerate(*model, model->encode(source), source, {1}, 0, 3, alpha, all);
    double best = -1e300;
    for (const auto& entry : all) best = std::max(best, entry.second);
    EXPECT_NEAR(found.front().score, best, 1e-5);
    for (const Hypothesis& h : found) EXPECT_NEAR(h.score, all.at(h.tokens), 1e-5);
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

TEST(BeamSearch, APrefixIsForced) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 5);
  const Tokens source = Tokens::packed({{1, 3, 4, 2}, {1, 4, 2}});
  const auto found = beam_search(*model, source, {.max_length = 3, .beam = 5, .prefixes = {{4, 3}, {}}});
  const auto free = beam_search(*model, source, {.max_length = 3, .beam = 5});
  EXPECT_EQ(found[1].front().tokens, free[1].front().tokens);
  model->eval();
  const NoGrad no_grad;
  const Tokens first = Tokens::packed({{1, 3, 4, 2}});
  std::map<std::vector<int64_t>, double> all;
  enumerate(*model, model->encode(first), first, {1}, 0, 3, 0, all);
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

TEST(Sampling, DrawsWhatTheModelSays) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 5);
  const Tokens source = Tokens::packed({{1, 3, 4, 2}});
  Generator generator(3);
  const int64_t draws = 4000;
  const auto found = beam_search(
      *model, source, {.max_length = 2, .beam = draws, .sample = SampleOptions{.generator = &generator}});
  model->eval();
  const NoGrad no_grad;
  std::map<std::vector<int64_t>, double> all;
  std::map<std::vector<int64_t>, int> counts;
  enumerate(*model, model->encode(source), source, {1}, 0, 2, 0, all);
  for (const Hypothesis& h : found.front()) {
    ++counts[h.tokens];
    EXPECT_NEAR(h.score, all.at(h.tokens), 1e-5);
  }
  for (const auto& [tokens, score] : all) {
    const double p = std::exp(score), deviation = std::sqrt(draws * p * (1 - p));
    EXPECT_NEAR(counts[tokens], draws * p, 5 * deviation + 1);
  }
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

// Weights are kept packed between decodings: each change of them must be seen. What is recorded does not use
// the packed ones.
TEST(PackedWeights, FollowEveryChange) {
  const auto model = small_model(NormPlacement::post, PositionKind::sinusoidal, 7);
  model->to(DType::f32);
  model->eval();
  const Tokens source = Tokens::packed(kSources), target = Tokens::packed({{1, 3, 5}, {1, 4}, {1, 5, 6, 3}});
  std::vector<double> before;
  const auto expect_change = [&](const char* what) {
    const Tensor recorded = model->forward(source, target).detach();
    const NoGrad no_grad;
    EXPECT_LE(max(abs(model->forward(source, target) - recorded)).item<double>(), 1e-4) << what;
    const auto values = recorded.to(DType::f64).to_vector<double>();
    EXPECT_NE(values, before) << what << " changed nothing";
    before = values;
  };
  expect_change("the beginning");
  optim::Adam adam(model->parameters(), {.lr = 0.05});
  for (int step = 0; step < 2; ++step) {
    sum(model->forward(source, target)).backward();
    adam.step();
    expect_change("a step of the optimizer");
  }
  {
    const NoGrad no_grad;
    model->decoder.layers[1]->multihead_attn.in_proj_weight.slice(0, 5, 30).mul_(2);
  }
  expect_change("a write in place");
  const auto path = std::filesystem::temp_directory_path() / concat("heed_packed_", getpid(), ".safetensors");
  const auto other = small_model(NormPlacement::post, PositionKind::sinusoidal, 7);
  save_weights(*other, path.string());
  load_weights(*model, path.string());
  std::filesystem::remove(path);
  expect_change("other weights");
}

TEST(PackedWeights, ThreadsDecodeWithOneModel) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  model->to(DType::f32);
  model->eval();
  const DecodeOptions options{.max_length = 12, .min_length = 11};
  const Tokens source = Tokens::packed(kSources);
  const auto want = greedy_search(*model, source, options);
  for (int round = 0; round < 10; ++round) {
    {
      const NoGrad no_grad;  // so that the threads pack at the same time
      for (const Parameter& parameter : model->parameters()) parameter.tensor.bump_version();
    }
    std::vector<std::vector<Hypothesis>> got(4);
    std::vector<std::thread> threads;
    for (auto& result : got) threads.emplace_back([&] { result = greedy_search(*model, source, options); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& result : got)
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(result[i].tokens, want[i].tokens);
        EXPECT_EQ(result[i].score, want[i].score);
      }
  }
}

}  // namespace
}  // namespace heed::nn
