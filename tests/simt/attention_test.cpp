// The attention kernels that hold tiles of bf16 rows, against plain loops in double.
#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/runtime.h>
#include <heed/kernels/simt/host/emulator.h>

#include "attention_check.h"

namespace heed::test {
namespace {

using cuda::AttentionPath;
using heed::testing::bytes_of;
using heed::testing::DeviceBuffer;
using Problem = AttentionProblem<bfloat16>;
using Result = AttentionResult<bfloat16, float>;

constexpr auto kShort = AttentionPath::short_sequences, kFlash = AttentionPath::flash,
               kGeneric = AttentionPath::generic;

void check(const AttentionCase& c, AttentionPath path) { check_problem(Problem(aligned(c)), path); }

// Rows at addresses that can be read 16 bytes at a time; nothing is read.
kernels::AttentionForward<bfloat16> some_forward(int64_t width, int32_t queries, int32_t keys) {
  const auto at = [](uintptr_t address) { return reinterpret_cast<bfloat16*>(address); };
  kernels::AttentionForward<bfloat16> args{};
  args.q = {at(0x1000), 256, width};
  args.k = {at(0x2000), 256, width};
  args.v = {at(0x3000), 256, width};
  args.out = {at(0x4000), 256, width};
  args.width = width;
  args.segments.max_query = queries;
  args.segments.max_key = keys;
  return args;
}

TEST(AttentionPath, IsChosenByWidthAndLength) {
  const auto path = [](int64_t width, int32_t queries, int32_t keys) {
    return cuda::attention_path(some_forward(width, queries, keys));
  };
  for (const int64_t width : {16, 32, 64}) {
    EXPECT_EQ(path(width, 1, 1), kShort);
    EXPECT_EQ(path(width, 128, 128), kShort);
    EXPECT_EQ(path(width, 129, 1), kFlash);
    EXPECT_EQ(path(width, 1, 129), kFlash);
  }
  EXPECT_EQ(path(128, 1, 1), kFlash);
  EXPECT_EQ(path(128, 5000, 5000), kFlash);
  for (const int64_t width : {1, 8, 24, 48, 80, 96, 192, 256}) EXPECT_EQ(path(width, 20, 20), kGeneric);
}

TEST(AttentionPath, NeedsAlignedRowsOfBf16) {
  auto args = some_forward(32, 20, 20);
  args.q.data += 1;
  EXPECT_EQ(cuda::attention_path(args), kGeneric);
  args = some_forward(32, 20, 20);
  args.v.row_stride = 257;
  EXPECT_EQ(cuda::attention_path(args), kGeneric);
  args = some_forward(32, 20, 20);
  args.v.row_stride = int64_t{1} << 31;  // 32 bits don't hold it
  EXPECT_EQ(cuda::attention_path(args), kGeneric);
  args = some_forward(32, 20, 20);
  args.out.head_stride = 36;
  EXPECT_EQ(cuda::attention_path(args), kGeneric);
  kernels::AttentionForward<float> wide{};
  wide.width = 32;
  EXPECT_EQ(cuda::attention_path(wide), kGeneric);
}

TEST(AttentionPath, LeavesGradientsOfBiasesToTheGenericKernels) {
  kernels::AttentionBackward<bfloat16> args{};
  args.width = 16;
  args.segments.max_query = args.segments.max_key = 20;
  EXPECT_EQ(cuda::attention_path(args), kShort);
  float gradient = 0;
  args.gbias = &gradient;
  EXPECT_EQ(cuda::attention_path(args), kGeneric);
  args.gbias = nullptr;
  args.grelative = &gradient;
  EXPECT_EQ(cuda::attention_path(args), kGeneric);
  args.grelative = nullptr;
  args.gk.row_stride = 4;
  EXPECT_EQ(cuda::attention_path(args), kGeneric);
  args.gk.row_stride = 0;
  args.segments.max_key = 129;
  EXPECT_EQ(cuda::attention_path(args), kFlash);
}

TEST(CudaAttention, MoreHeadsThanAGridTakesAreRefused) {
  kernels::AttentionForward<bfloat16> args = some_forward(24, 5, 5);
  args.segments.count = 1;
  args.heads = 65536;
  EXPECT_THROW(cuda::attention_forward(args), ShapeError);
}

// Of the widest heads that fit, and wider ones are refused before anything is launched.
TEST(CudaAttention, WideHeads) {
  check({.sequences = {{2, 3}}, .heads = 1, .key_heads = 1, .width = 3136}, kGeneric);
  const std::string message = "attention: heads of width 3137; on CUDA at most 3136";
  EXPECT_EQ(testing::message_of<ShapeError>([] { cuda::attention_forward(some_forward(3137, 5, 5)); }),
            message);
  kernels::AttentionBackward<float> args{};
  args.width = 3137;
  EXPECT_EQ(testing::message_of<ShapeError>([&] { cuda::attention_backward(args); }), message);
}

TEST(CudaAttention, ShortLengths) {
  for (const int32_t n : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128}) {
    SCOPED_TRACE(n);
    const int64_t width = n % 3 == 0 ? 16 : n % 3 == 1 ? 32 : 64;
    check({.sequences = {{n, n}, {1, n}, {n, 3}}, .heads = 1, .key_heads = 1, .width = width}, kShort);
    check({.sequences = {{n, n}, {5, n}},
           .heads = 1,
           .key_heads = 1,
           .width = width,
           .visibility = {.causal = Causal::bottom_right},
           .dropout = 0.2},
          kShort);
  }
}

TEST(CudaAttention, LongLengths) {
  for (const int32_t n : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200}) {
    SCOPED_TRACE(n);
    const bool causal = n % 2 == 1;
    check({.sequences = {{n, 130}, {130, n}},
           .heads = 1,
           .key_heads = 1,
           .width = 16,
           .visibility = {.causal = causal ? Causal::top_left : Causal::none},
           .dropout = causal ? 0.2 : 0},
          kFlash);
  }
}

TEST(CudaAttention, ScalesThatAreNotPositive) {
  for (const double scale : {-0.3, 0.0}) {
    Problem p(aligned({.sequences = {{70, 200}}, .width = 64}));
    p.scale = scale;
    check_problem(std::move(p), kFlash);
  }
}

TEST(CudaAttention, Widths) {
  for (const int64_t width : {16, 32, 64, 128})
    for (const int32_t extra : {0, 100})
      check({.sequences = {{40 + extra, 37 + extra}, {1, 3}},
             .heads = 1,
             .key_heads = 1,
             .width = width,
             .dropout = extra ? 0.25 : 0},
            width < 128 && extra == 0 ? kShort : kFlash);
}

TEST(CudaAttention, RulesAndGaps) {
  for (size_t i = 0; i < std::size(kRules); ++i) {
    SCOPED_TRACE(i);
    AttentionCase c{.sequences = {{20, 20}, {13, 29}, {0, 5}, {31, 7}, {5, 0}, {1, 1}, {50, 90}},
                    .heads = 1,
                    .key_heads = 1,
                    .width = 16,
                    .visibility = kRules[i],
                    .gaps = true};
    check(c, kShort);
    c.sequences.push_back({150, 140});
    check(c, kFlash);
  }
}

TEST(CudaAttention, PatternsOfBlocks) {
  for (size_t i = 0; i <= std::size(kRules); ++i) {
    SCOPED_TRACE(i);
    AttentionCase c{.sequences = {{20, 20}, {0, 5}, {100, 70}, {70, 120}, {5, 0}},
                    .heads = 2,
                    .key_heads = 1,
                    .width = 16,
                    .visibility = i < std::size(kRules) ? kRules[i] : Visibility{},
                    .gaps = true,
                    .dropout = i % 2 ? 0.2 : 0,
                    .blocks = 0x2d6b35};
    const AttentionPath path = is_bottom_right(c.visibility.causal) ? kGeneric : kFlash;
    check(c, path);
    c.sequences.push_back({200, 330});
    check(c, path);
  }
  check({.sequences = {{200, 140}}, .heads = 1, .key_heads = 1, .width = 128, .blocks = 0x2d6b35}, kFlash);
}

TEST(CudaAttention, SharedKeyHeads) {
  for (const int64_t key_heads : {1, 3, 6})
    for (const int64_t width : {16, 32})
      check({.sequences = {{19, 23}, {33, 40}},
             .heads = 6,
             .key_heads = key_heads,
             .width = width,
             .dropout = 0.1},
            kShort);
  check({.sequences = {{70, 130}}, .heads = 4, .key_heads = 2, .width = 16, .dropout = 0.1}, kFlash);
}

TEST(CudaAttention, HeadsThatDoNotFillABlock) {
  check({.sequences = {{16, 16}, {7, 9}}, .heads = 5, .key_heads = 5, .width = 16, .dropout = 0.1}, kShort);
}

// Rows of gaps alone where there are no keys or no queries at all: a launch of no blocks would be an error.
TEST(CudaAttention, NoKeysOrNoQueries) {
  const auto check_lengths = [](int64_t width, const std::vector<Lengths>& lengths, AttentionPath path) {
    SCOPED_TRACE(width);
    check({.sequences = lengths, .heads = 2, .key_heads = 1, .width = width, .gaps = true}, path);
  };
  for (const std::vector<Lengths>& lengths :
       {std::vector<Lengths>{{5, 0}, {17, 0}}, {{0, 5}, {0, 17}}, {{0, 0}}}) {
    SCOPED_TRACE(lengths[0].queries);
    check_lengths(24, lengths, kGeneric);
    check_lengths(32, lengths, kShort);
    check_lengths(128, lengths, kFlash);
  }
}

// A block that the kernel is not built for is refused by a GPU, which the emulator does not.
TEST(CudaAttention, LongRowsOfShortSequencesLeaveRoomForFewerHeads) {
  emulator::stats() = {};
  check({.sequences = {{128, 128}}, .heads = 4, .key_heads = 4, .width = 16}, kShort);
  EXPECT_LE(emulator::stats().threads, 256 * emulator::stats().blocks);
}

TEST(CudaAttention, GapsTakeNoLaunchOfTheirOwnWhereSequencesAreInOrder) {
  if (!testing::emulated()) GTEST_SKIP() << "a real device does not count";
  const auto launches = [](int64_t width, bool gaps, bool in_order) {
    Problem p(
        aligned({.sequences = {{5, 5}, {3, 3}}, .heads = 2, .key_heads = 2, .width = width, .gaps = gaps}));
    p.segments.in_order = in_order;
    const Attention attention(p);
    AttentionResult<bfloat16, float> r;
    const uint64_t before = emulator::stats().launches;
    attention.forward(r);
    attention.backward({.bias = false}, r);
    return emulator::stats().launches - before;
  };
  for (const int64_t width : {24, 32, 128}) {
    const uint64_t least = launches(width, false, true);
    EXPECT_EQ(launches(width, true, true), least);
    EXPECT_EQ(launches(width, true, false), least + 4) << "out, gq, gk, gv";
  }
}

TEST(CudaAttention, ALaunchRaisesTheLimitOfSharedMemoryOnce) {
  if (!testing::emulated()) GTEST_SKIP() << "a real device does not count";
  const AttentionCase c{.sequences = {{20, 20}}, .heads = 1, .key_heads = 1, .width = 128};
  check(c, kFlash);
  const uint64_t before = emulator::stats().function_attributes;
  check(c, kFlash);
  EXPECT_EQ(emulator::stats().function_attributes, before);
}

TEST(CudaAttention, Biases) {
  for (int parts = 1; parts < 32; ++parts) {
    SCOPED_TRACE(parts);
    const bool bias = parts & 1, shared = parts & 2, mask = parts & 4, alibi = parts & 8,
               relative = parts & 16;
    if (shared && !bias) continue;
    check({.sequences = {{20, 20}, {3, parts % 4 == 0 ? 130 : 70}},
           .heads = 2,
           .key_heads = 2,
           .width = 16,
           .visibility = {.causal = parts % 3 == 1 ? Causal::bottom_right : Causal::none},
           .bias = bias,
           .shared_bias = shared,
           .mask = mask,
           .alibi = alibi,
           .relative_limit = relative ? 6 : -1,
           .dropout = parts % 3 == 0 ? 0.25 : 0},
          parts % 4 == 0 ? kFlash : kShort);
  }
}

// Everything at once: keys' heads that are shared, gaps, sequences of one token and of none, rows that see no
// key.
TEST(CudaAttention, MixedOptions) {
  struct Size {
    int64_t width;
    int32_t longest;
    AttentionPath path;
  };
  for (const Size& size :
       {Size{32, 33, kShort}, Size{64, 33, kShort}, Size{64, 131, kFlash}, Size{128, 67, kFlash}})
    for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right})
      check({.sequences = {{1, 1}, {size.longest, 17}, {0, 3}, {7, 0}, {1, size.longest}},
             .heads = 2,
             .key_heads = 1,
             .width = size.width,
             .visibility = {.causal = causal, .window_left = causal == Causal::none ? 5 : -1},
             .gaps = true,
             .bias = causal == Causal::none,
             .shared_bias = causal == Causal::none,
             .mask = true,
             .alibi = causal == Causal::top_left,
             .relative_limit = causal == Causal::bottom_right ? 4 : -1,
             .dropout = 0.2},
            size.path);
}

TEST(CudaAttention, EverySubsetOfGradientsAndAccumulation) {
  for (const int32_t keys : {29, 140})
    check_subsets_of_gradients(Problem(aligned({.sequences = {{20, keys}, {13, 11}},
                                                .heads = 4,
                                                .key_heads = 2,
                                                .width = 16,
                                                .visibility = {.causal = Causal::bottom_right},
                                                .gaps = true,
                                                .dropout = 0.1})));
}

TEST(CudaAttention, WithoutLogSumExp) {
  for (const int32_t n : {20, 140}) check_without_log_sum_exp(Problem(aligned({.sequences = {{n, n}}})));
}

/// Forward and gradients of one head, without what is between the rows.
std::vector<std::vector<bfloat16>> head_of(const Problem& p) {
  const Attention attention(p);
  Result r;
  attention.forward(r);
  attention.backward({}, r);
  const int64_t w = p.c.width;
  return {Problem::inner(r.out, p.q_stride, 0, w), Problem::inner(r.gq, p.q_stride, 0, w),
          Problem::inner(r.gk, p.kv_stride, 0, w), Problem::inner(r.gv, p.kv_stride, w, w)};
}

// A tile has hidden keys beside visible ones, and 0 * NaN is not 0: all must be as the generic kernels have
// it.
TEST(CudaAttention, NaNGoesToThoseWhoSeeItAlone) {
  for (const int32_t n : {36, 140})  // four queries in the last tile
    for (const float poison :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
      for (const char* where : {"q", "k", "v", "gout"}) {
        SCOPED_TRACE(concat(n, ' ', poison, ' ', where));
        AttentionCase c{.sequences = {{n, n}},
                        .heads = 1,
                        .key_heads = 1,
                        .visibility = {.causal = Causal::top_left, .window_left = 8},
                        .dropout = 0.2};
        Problem generic(c), fast(aligned(c));
        const bool of_query = *where == 'q' || *where == 'g';
        const int64_t row = of_query ? generic.q_stride : generic.kv_stride;
        (*where == 'q'   ? generic.q
         : *where == 'g' ? generic.gout
                         : generic.kv)[static_cast<size_t>(21 * row + (*where == 'v' ? c.width : 0) + 3)] =
            poison;
        for (int64_t r = 0; r < n; ++r) {
          for (int64_t i = 0; i < c.width; ++i) {
            fast.q[r * fast.q_stride + i] = generic.q[r * generic.q_stride + i];
            fast.gout[r * fast.q_stride + i] = generic.gout[r * generic.q_stride + i];
          }
          for (int64_t i = 0; i < 2 * c.width; ++i)
            fast.kv[r * fast.kv_stride + i] = generic.kv[r * generic.kv_stride + i];
        }
        ASSERT_EQ(cuda::attention_path(Attention(generic).forward_args()), kGeneric);
        ASSERT_NE(cuda::attention_path(Attention(fast).forward_args()), kGeneric);
        const auto want = head_of(generic), got = head_of(fast);
        for (size_t what = 0; what < want.size(); ++what) {
          size_t finite = 0;
          for (size_t i = 0; i < want[what].size(); ++i) {
            const double x = double(got[what][i]), y = double(want[what][i]);
            ASSERT_EQ(std::isfinite(x), std::isfinite(y)) << what << " at " << i;
            if (!std::isfinite(y)) continue;
            ++finite;
            ASSERT_NEAR(x, y, 0.05) << what << " at " << i;
          }
          EXPECT_GT(finite, 0u) << what;
        }
      }
}

}  // namespace
}  // namespace heed::test
