// Attention in windows, by the kernels that hold tiles of bf16 rows, against plain loops in double.
#include <limits>

#include <gtest/gtest.h>

#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/simt/host/emulator.h>

#include "attention_check.h"

namespace heed::test {
namespace {

using cuda::AttentionPath;
using Problem = AttentionProblem<bfloat16>;

void check(const AttentionCase& c, AttentionPath path) { check_problem(Problem(aligned(c)), path); }

// Tiles that nothing sees are not even looked at: a window takes time by its width, not by the length.
TEST(AttentionWindows, TakeTimeByTheirWidth) {
  if (!testing::emulated()) GTEST_SKIP() << "a real device does not count";
  const auto work = [](int64_t width, int32_t length, const Visibility& rule) {
    const Problem p(aligned(
        {.sequences = {{length, length}}, .heads = 1, .key_heads = 1, .width = width, .visibility = rule}));
    const Attention attention(p);
    AttentionResult<bfloat16, float> r;
    const uint64_t before = emulator::stats().block_barriers;
    attention.forward(r);
    attention.backward({}, r);
    return static_cast<double>(emulator::stats().block_barriers - before);
  };
  const Visibility window{.causal = Causal::top_left, .window_left = 40, .global_tokens = 4};
  EXPECT_LT(work(16, 2048, window), 2.3 * work(16, 1024, window));
  const Visibility dense{.causal = Causal::top_left};
  EXPECT_GT(work(16, 1024, dense), 3 * work(16, 512, dense));
}

// Around the end of the keys, where a tile is or is not seen whole.
TEST(AttentionWindows, ToTheRight) {
  for (const int32_t right : {0, 31, 40}) {
    SCOPED_TRACE(right);
    check({.sequences = {{70, 63}, {63, 130}, {150, 64}},
           .heads = 1,
           .key_heads = 1,
           .width = 64,
           .visibility = {.window_right = right}},
          AttentionPath::flash);
    check({.sequences = {{20, 31}},  // so few keys that one more would weigh something
           .heads = 1,
           .key_heads = 1,
           .width = 128,
           .visibility = {.window_right = right}},
          AttentionPath::flash);
  }
}

// The last query of a block of 128 sees one key of a further tile.
TEST(AttentionWindows, EndBehindATile) {
  check({.sequences = {{130, 131}},
         .heads = 1,
         .key_heads = 1,
         .width = 16,
         .visibility = {.causal = Causal::bottom_right, .window_left = 2}},
        AttentionPath::flash);
}

// What lies that far from a place is more than 32 bits hold.
TEST(AttentionWindows, ShowEverything) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  for (const int32_t keys : {90, 200})
    for (const Causal causal : {Causal::none_bottom_right, Causal::bottom_right})
      check({.sequences = {{40, keys}},
             .heads = 1,
             .key_heads = 1,
             .width = 16,
             .visibility = {.causal = causal, .window_left = kMost, .window_right = kMost}},
            keys < 129 ? AttentionPath::short_sequences : AttentionPath::flash);
}

}  // namespace
}  // namespace heed::test
