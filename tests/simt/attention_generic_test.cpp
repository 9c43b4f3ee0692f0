// The attention kernels for every dtype, width and bias, against plain loops in double.
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>

#include "attention_check.h"

namespace heed::test {
namespace {

template <class T>
class GenericAttention : public ::testing::Test {
 protected:
  void check(const AttentionCase& c) { check_problem(AttentionProblem<T>(c), cuda::AttentionPath::generic); }
};
TYPED_TEST_SUITE(GenericAttention, heed::testing::KernelTypes);

TYPED_TEST(GenericAttention, WidthsAndLengths) {
  const std::vector<Lengths> lengths[] = {{{1, 1}}, {{0, 3}, {3, 0}, {1, 7}}, {{31, 33}, {33, 32}}};
  for (const int64_t width : {1, 5, 8, 24, 33, 80})
    for (const std::vector<Lengths>& sequences : lengths) {
      SCOPED_TRACE(concat(width, ' ', sequences[0].queries));
      this->check({.sequences = sequences, .width = width, .dropout = width % 2 ? 0.1 : 0});
    }
}

TYPED_TEST(GenericAttention, RulesAndGaps) {
  for (size_t i = 0; i < std::size(kRules); ++i) {
    SCOPED_TRACE(i);
    for (const int32_t longest : {32, 33}) {  // by one block, and by several
      this->check({.sequences = {{20, 20}, {13, longest}, {0, 5}, {longest, 7}, {5, 0}, {1, 1}},
                   .heads = 4,
                   .key_heads = 2,
                   .width = 7,
                   .visibility = kRules[i],
                   .gaps = true,
                   .dropout = 0.1});
    }
  }
}

TYPED_TEST(GenericAttention, PatternsOfBlocks) {
  for (size_t i = 0; i < std::size(kRules); ++i) {
    SCOPED_TRACE(i);
    this->check({.sequences = {{100, 70}, {70, 130}, {0, 5}, {1, 90}},
                 .width = 7,
                 .visibility = kRules[i],
                 .gaps = true,
                 .relative_limit = i % 2 ? 6 : -1,
                 .dropout = 0.1,
                 .blocks = 0x2d6b35});
  }
}

TYPED_TEST(GenericAttention, Biases) {
  for (const int parts : {1, 3, 4, 8, 16, 27, 31}) {
    SCOPED_TRACE(parts);
    for (const Causal causal : {Causal::none, Causal::bottom_right})
      this->check({.sequences = {{9, 5}, {1, 35}, {4, 4}},
                   .width = 12,
                   .visibility = {.causal = causal, .window_left = parts == 31 ? 3 : -1},
                   .gaps = true,
                   .bias = (parts & 1) != 0,
                   .shared_bias = (parts & 2) != 0,
                   .mask = (parts & 4) != 0,
                   .alibi = (parts & 8) != 0,
                   .relative_limit = parts & 16 ? 6 : -1,
                   .dropout = parts == 31 ? 0.25 : 0});
  }
}

TYPED_TEST(GenericAttention, CappedScores) {
  for (const int parts : {0, 1, 4, 16, 31}) {
    SCOPED_TRACE(parts);
    this->check({.sequences = {{9, 5}, {1, 35}, {33, 34}},
                 .heads = 4,
                 .key_heads = 2,
                 .width = 16,  // which faster paths would take
                 .visibility = {.causal = parts & 1 ? Causal::bottom_right : Causal::none},
                 .bias = (parts & 1) != 0,
                 .mask = (parts & 4) != 0,
                 .relative_limit = parts & 16 ? 6 : -1,
                 .dropout = parts == 31 ? 0.25 : 0,
                 .logit_cap = 0.8,
                 .query_padding = 8,
                 .key_padding = 8});
  }
}

}  // namespace
}  // namespace heed::test
