// Random tokens that come again, and how well they are predicted.
#include "apps/lm/repeated_tokens.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/data/text/tokenizer.h>

#include "../support/expect_error.h"

namespace heed::apps {
namespace {

nn::TextGenerator random_generator() {
  const std::shared_ptr<const data::Tokenizer> tokenizer =
      data::train_tokenizer({.kind = data::TokenizerKind::characters, .max_vocab = 300},
                            {std::vector<std::string>{"abcdefghijkl"}});
  nn::LanguageModelConfig config = nn::LanguageModelConfig::llama();
  config.vocabulary = tokenizer->vocab();
  config.d_model = 16;
  config.heads = config.key_heads = 2;
  config.d_ff = 32;
  config.layers = 1;
  Generator random(7);
  return {std::make_shared<nn::LanguageModel>(config, random), tokenizer, data::kStart, {data::kEnd}};
}

// The least that the sequence repeats itself after, behind its start.
int64_t period_of(const std::vector<int64_t>& ids) {
  int64_t period = 1;
  while (!std::equal(ids.begin() + 1 + period, ids.end(), ids.begin() + 1)) ++period;
  return period;
}

TEST(RepeatedTokens, ComeAgainAfterPeriodsOfTheirOwn) {
  const nn::TextGenerator generator = random_generator();
  const data::TokenIds letters = generator.tokenizer().encode("abcdefghijkl");
  const std::vector<int64_t> tokens(letters.begin(), letters.end());
  const RepeatedTokens repeated(generator, tokens, 10, 40, 3);
  EXPECT_EQ(repeated.ids().shape(), (Shape{40, 21}));
  std::set<int64_t> periods, used;
  for (const std::vector<int64_t>& ids : repeated.sequences()) {
    EXPECT_EQ(ids.front(), data::kStart);
    const int64_t period = period_of(ids);
    periods.insert(period);
    const std::set<int64_t> different(ids.begin() + 1, ids.begin() + 1 + period);
    EXPECT_EQ(std::ssize(different), period);
    used.insert(different.begin(), different.end());
  }
  EXPECT_EQ(periods, (std::set<int64_t>{5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(used, std::set<int64_t>(tokens.begin(), tokens.end()));
  EXPECT_EQ(RepeatedTokens(generator, tokens, 10, 40, 3).sequences(), repeated.sequences());
  test::expect_error<ConfigError>([&] { RepeatedTokens(generator, tokens, 13, 1, 3); }, {"13", "12"});
}

// Against the model's own loss, of which other targets are left out.
TEST(RepeatedTokens, RecallIsOfWhatAnEarlierTokenForetells) {
  const nn::TextGenerator generator = random_generator();
  const data::TokenIds letters = generator.tokenizer().encode("abcdefghijkl");
  const RepeatedTokens repeated(generator, {letters.begin(), letters.end()}, 6, 9, 5);
  std::vector<int64_t> first, again;
  for (const std::vector<int64_t>& ids : repeated.sequences())
    for (size_t row = 0; row < ids.size(); ++row) {
      const auto begin = static_cast<size_t>(1 + period_of(ids));
      const int64_t none = CrossEntropyOptions{}.ignore, next = row + 1 < ids.size() ? ids[row + 1] : none;
      first.push_back(row + 1 < begin ? next : none);
      again.push_back(row >= begin ? next : none);
    }
  const NoGrad no_grad;
  const nn::Tokens tokens = nn::Tokens::packed(repeated.sequences());
  const auto check = [&](const Recall& recall, const std::vector<int64_t>& targets) {
    const Tensor wanted = tensor(targets, {std::ssize(targets)});
    EXPECT_NEAR(recall.loss, generator.model().loss(tokens, wanted).item<double>(), 1e-5);
    const std::vector<int64_t> likeliest = argmax(generator.model().forward(tokens), -1).to_vector<int64_t>();
    double right = 0, count = 0;
    for (size_t i = 0; i < targets.size(); ++i) {
      right += likeliest[i] == targets[i];
      count += targets[i] >= 0;
    }
    EXPECT_NEAR(recall.right, right / count, 1e-12);
  };
  const RepeatedTokens::Recalls recalls = repeated.recall(generator.model());
  check(recalls.first, first);
  check(recalls.again, again);
}

}  // namespace
}  // namespace heed::apps
