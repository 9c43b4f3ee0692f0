// What memory-bound CUDA kernels read and write: each operand as often as passes.inc says, which is as often
// as the operation needs, counted by the race checker. Small operands that many rows share (weights,
// statistics, ids) come from caches and are not looked at.
#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>

#include <heed/kernels/activation.h>
#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/dropout.h>
#include <heed/kernels/linear.h>
#include <heed/kernels/norm.h>
#include <heed/kernels/optimizer.h>
#include <heed/kernels/rotary.h>
#include <heed/kernels/softmax.h>

#include "schedules/schedules.h"

namespace heed::testing {
namespace {

template <class T>
class Traffic : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulator::checks_races()) GTEST_SKIP() << "counted by the race checker";
  }
};
TYPED_TEST_SUITE(Traffic, KernelTypes);

struct Passes {
  std::string_view kernel, operand;
  uint64_t read, written;
};
constexpr Passes kPasses[] = {
#define HEED_PASSES(kernel, operand, read, written) {#kernel, #operand, read, written},
#include "passes.inc"
#undef HEED_PASSES
};

/// An operand of a kernel that has run.
struct Use {
  std::string_view kernel, operand;
};

// The whole passes that are known of these uses of one buffer.
template <class T>
void expect_passes(const DeviceBuffer<T>& buffer, std::initializer_list<Use> uses) {
  uint64_t read = 0, written = 0;
  for (const Use& use : uses) {
    const auto* known = std::find_if(std::begin(kPasses), std::end(kPasses), [&](const Passes& passes) {
      return passes.kernel == use.kernel && passes.operand == use.operand;
    });
    ASSERT_NE(known, std::end(kPasses)) << use.kernel << " of " << use.operand;
    read += known->read;
    written += known->written;
  }
  const Use& last = std::data(uses)[uses.size() - 1];
  const emulator::Traffic seen = emulator::traffic(buffer.data());
  const uint64_t bytes = buffer.size() * sizeof(T);
  EXPECT_EQ(seen.read, read * bytes) << last.kernel << ": " << last.operand << " of " << bytes << " bytes";
  EXPECT_EQ(seen.written, written * bytes)
      << last.kernel << ": " << last.operand << " of " << bytes << " bytes";
}

constexpr int64_t kRows = 5;
constexpr int64_t kWidths[] = {64, 512, 1024, 2048, 4096, 8192};  // of rows that threads keep in registers

TYPED_TEST(Traffic, Rotary) {
  using T = TypeParam;
  for (const RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved})
    for (const int64_t rotated : {32, 64}) {
      constexpr int64_t kHeads = 3, kWidth = 64, kCount = kRows * kHeads * kWidth;
      const Buffer<T> x(numbers<T>(kCount, 1)), y(kCount);
      const Buffer<int64_t> positions(std::vector<int64_t>{0, 1, 0, 1, 1});
      const Buffer<float> table(numbers<float>(2 * 2 * rotated, 2));
      cuda::rotary(kernels::Rotary<T>{x.data(), positions.data(), table.data(), y.data(), kRows, kHeads,
                                      /*rotated_heads=*/2, kWidth, rotated, /*entries=*/2, pairing,
                                      /*inverse=*/false, /*accumulate=*/false});
      expect_passes(x, {{"rotary", "x"}});
      expect_passes(y, {{"rotary", "y"}});
    }
}

TYPED_TEST(Traffic, Softmax) {
  using T = TypeParam;
  for (const int64_t cols : kWidths) {
    const int64_t count = kRows * cols;
    const Buffer<T> x(numbers<T>(count, 1)), y(count), gy(numbers<T>(count, 2)), gx(count);
    cuda::softmax_forward(kernels::SoftmaxForward<T>{x.data(), y.data(), kRows, cols, false});
    expect_passes(x, {{"softmax_forward", "x"}});
    expect_passes(y, {{"softmax_forward", "y"}});
    cuda::softmax_backward(
        kernels::SoftmaxBackward<T>{y.data(), gy.data(), gx.data(), kRows, cols, false, false});
    expect_passes(y, {{"softmax_forward", "y"}, {"softmax_backward", "y"}});
    expect_passes(gy, {{"softmax_backward", "gy"}});
    expect_passes(gx, {{"softmax_backward", "gx"}});
  }
}

enum class NormCase { alone, pre, post };

template <class T>
void expect_norm_passes(NormKind kind, NormCase which, int64_t cols) {
  const bool layer = kind == NormKind::layer, with_residual = which != NormCase::alone,
             post = which == NormCase::post;
  const int64_t count = kRows * cols;
  const Buffer<T> residual(numbers<T>(count, 1)), x(numbers<T>(count, 2)),
      weight(std::vector<T>(static_cast<size_t>(cols), T(0.5f))), bias(numbers<T>(cols, 4)), added(count),
      y(count);
  const Buffer<float> mean(kRows), rstd(kRows), gweight(cols), gbias(cols);
  const Buffer<uint8_t> flag(1);
  bool* const invertible = post ? reinterpret_cast<bool*>(flag.data()) : nullptr;
  const Buffer<T>& sum = with_residual ? added : x;
  const Dropout dropout = with_residual ? some_dropout() : Dropout{};
  kernels::NormForward<T> forward{};
  forward.kind = kind;
  forward.residual = with_residual ? residual.data() : nullptr;
  forward.x = x.data();
  forward.weight = weight.data();
  forward.bias = layer ? bias.data() : nullptr;
  forward.dropout = dropout;
  forward.sum = with_residual ? added.data() : nullptr;
  forward.y = y.data();
  forward.mean = layer ? mean.data() : nullptr;
  forward.rstd = rstd.data();
  forward.rows = kRows;
  forward.cols = cols;
  forward.eps = 1e-5;
  forward.post = post;
  forward.invertible = invertible;
  cuda::norm_forward(forward);
  const std::string_view of_forward = post            ? "post_norm_forward"
                                      : with_residual ? "residual_norm_forward"
                                                      : "norm_forward";
  expect_passes(x, {{of_forward, "x"}});
  expect_passes(y, {{of_forward, "y"}});
  if (with_residual) expect_passes(residual, {{of_forward, "residual"}});
  if (which == NormCase::pre) expect_passes(added, {{of_forward, "sum"}});

  const Buffer<T> gy(numbers<T>(count, 5)), gsum(numbers<T>(count, 6)), gresidual(count), gx(count);
  kernels::NormBackward<T> backward{};
  backward.kind = kind;
  backward.residual = with_residual;
  backward.gy = gy.data();
  backward.gsum = which == NormCase::pre ? gsum.data() : nullptr;
  backward.sum = sum.data();
  backward.weight = weight.data();
  backward.mean = forward.mean;
  backward.rstd = rstd.data();
  backward.dropout = dropout;
  backward.gresidual = with_residual ? gresidual.data() : nullptr;
  backward.gx = gx.data();
  backward.gweight = gweight.data();
  backward.gbias = layer ? gbias.data() : nullptr;
  backward.rows = kRows;
  backward.cols = cols;
  if (post) {
    backward.y = y.data();
    backward.bias = forward.bias;
    backward.invertible = invertible;
  }
  cuda::norm_backward(backward);
  const std::string_view of_backward = post            ? "post_norm_backward"
                                       : with_residual ? "residual_norm_backward"
                                                       : "norm_backward";
  expect_passes(gy, {{of_backward, "gy"}});
  if (post) {
    expect_passes(y, {{of_forward, "y"}, {of_backward, "y"}});
    EXPECT_EQ(emulator::traffic(added.data()).read + emulator::traffic(added.data()).written, 0u);
  } else {
    expect_passes(sum, {{of_forward, with_residual ? "sum" : "x"}, {of_backward, "sum"}});
  }
  if (which == NormCase::pre) expect_passes(gsum, {{of_backward, "gsum"}});
  if (with_residual) expect_passes(gresidual, {{of_backward, "gresidual"}});
  expect_passes(gx, {{of_backward, "gx"}});
}

TYPED_TEST(Traffic, Norm) {
  for (const NormKind kind : {NormKind::layer, NormKind::rms})
    for (const NormCase which : {NormCase::alone, NormCase::pre, NormCase::post})
      for (const int64_t cols : kWidths) expect_norm_passes<TypeParam>(kind, which, cols);
}

TYPED_TEST(Traffic, Gelu) {
  using T = TypeParam;
  for (const int64_t count : {8, 4096, 40'000}) {
    const Buffer<T> x(numbers<T>(count, 1)), y(count), gy(numbers<T>(count, 2)), gx(count);
    cuda::activation_forward(kernels::ActivationForward<T>{Activation::gelu, x.data(), y.data(), count});
    expect_passes(x, {{"gelu_forward", "x"}});
    expect_passes(y, {{"gelu_forward", "y"}});
    cuda::activation_backward(
        kernels::ActivationBackward<T>{Activation::gelu, x.data(), gy.data(), gx.data(), count, false});
    expect_passes(x, {{"gelu_forward", "x"}, {"gelu_backward", "x"}});
    expect_passes(gy, {{"gelu_backward", "gy"}});
    expect_passes(gx, {{"gelu_backward", "gx"}});
  }
}

TYPED_TEST(Traffic, CrossEntropyWithItsGradient) {
  using T = TypeParam;
  std::vector<int64_t> widths(std::begin(kWidths), std::end(kWidths));
  widths.push_back(16384);
  widths.push_back(sizeof(T) == 2 ? 32768 : 20000);  // in shared memory
  for (const int64_t classes : widths) {
    const int64_t count = kRows * classes;
    const Buffer<T> logits(numbers<T>(count, 1)), glogits(count);
    const Buffer<int64_t> targets(std::vector<int64_t>{1, 2, 3, 4, 5}), counted(1);
    const Buffer<float> loss(1), gloss(std::vector<float>{1});
    cuda::cross_entropy_forward(kernels::CrossEntropyForward<T>{logits.data(), targets.data(), kNoToken, 0,
                                                                true, loss.data(), counted.data(),
                                                                glogits.data(), kRows, classes});
    // The target's logit is looked up before the row is taken.
    const emulator::Traffic read = emulator::traffic(logits.data());
    EXPECT_LE(read.read, (static_cast<uint64_t>(count) + kRows) * sizeof(T));
    EXPECT_EQ(read.written, 0u);
    expect_passes(glogits, {{"cross_entropy", "glogits"}});
    cuda::cross_entropy_backward(
        kernels::CrossEntropyBackward<T>{glogits.data(), gloss.data(), glogits.data(), count, false});
    expect_passes(glogits, {{"cross_entropy", "glogits"}});  // its factor is 1
  }
}

TYPED_TEST(Traffic, Adam) {
  using T = TypeParam;
  constexpr bool kMaster = sizeof(T) == 2;
  for (const int64_t count : {64, 10'000}) {
    const Buffer<T> value(numbers<T>(count, 1));
    const Buffer<float> g(numbers<float>(count, 2)), master(numbers<float>(count, 1)),
        m(numbers<float>(count, 3)), v(std::vector<float>(static_cast<size_t>(count), 0.5f));
    const Buffer<double> rate(std::vector<double>{0.01});
    const Buffer<int64_t> steps(std::vector<int64_t>{3});
    const kernels::StepPart<T> part{g.data(), count, value.data(), 0, 0};
    const kernels::StepSlice<T> slice{.parts = {&part, 1},
                                      .master = kMaster ? master.data() : nullptr,
                                      .written = false,
                                      .steps = steps.data(),
                                      .lr = rate.data(),
                                      .lr_factor = 1,
                                      .weight_decay = 0,
                                      .gradient_norm = nullptr,
                                      .clip = 0};
    cuda::adam_step(kernels::AdamStep<T>{slice, m.data(), v.data(), 0.9, 0.98, 1e-9, false});
    constexpr std::string_view kKernel = kMaster ? "adam_with_master" : "adam";
    expect_passes(g, {{kKernel, "g"}});
    expect_passes(m, {{kKernel, "m"}});
    expect_passes(v, {{kKernel, "v"}});
    expect_passes(value, {{kKernel, "value"}});
    if (kMaster) expect_passes(master, {{kKernel, "master"}});
  }
}

TYPED_TEST(Traffic, EmbeddingForward) {
  using T = TypeParam;
  const int64_t rows = 40, cols = 64, vocabulary = 40;
  std::vector<int64_t> each(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) each[static_cast<size_t>(row)] = rows - 1 - row;
  const Buffer<int64_t> ids(each);
  const Buffer<T> weight(numbers<T>(vocabulary * cols, 1)), y(rows * cols);
  cuda::embedding_forward(kernels::EmbeddingForward<T>{
      ids.data(), weight.data(), nullptr, nullptr, {}, 1, y.data(), rows, cols, vocabulary, 0});
  expect_passes(weight, {{"embedding_forward", "weight"}});
  expect_passes(y, {{"embedding_forward", "y"}});
}

// Tables that are searched, and those whose rows are sorted.
TYPED_TEST(Traffic, EmbeddingBackward) {
  using T = TypeParam;
  constexpr int64_t kSmall = 40;
  for (const int64_t vocabulary : {kSmall, int64_t{3000}}) {
    const int64_t rows = 200, cols = 64;
    std::vector<int64_t> drawn(static_cast<size_t>(rows));
    for (size_t row = 0; row < drawn.size(); ++row) drawn[row] = random_word(row, 1) % vocabulary;
    const Buffer<int64_t> ids(drawn);
    const Buffer<T> gy(numbers<T>(rows * cols, 2));
    const Buffer<float> gweight(vocabulary * cols);
    cuda::embedding_backward(kernels::EmbeddingBackward<T>{.gy = gy.data(),
                                                           .ids = ids.data(),
                                                           .position_ids = nullptr,
                                                           .dropout = {},
                                                           .scale = 1,
                                                           .padding_id = kNoToken,
                                                           .gweight = gweight.data(),
                                                           .gposition = nullptr,
                                                           .accumulate_weight = false,
                                                           .accumulate_position = false,
                                                           .rows = rows,
                                                           .cols = cols,
                                                           .vocabulary = vocabulary,
                                                           .positions = 0});
    expect_passes(gy, {{"embedding_backward", "gy"}});
    // A small table whole; of a large one, which has been cleared, the rows that occur.
    const auto occurring = static_cast<int64_t>(std::set(drawn.begin(), drawn.end()).size());
    const int64_t written = (vocabulary == kSmall ? vocabulary : occurring) * cols * int64_t{sizeof(float)};
    EXPECT_EQ(emulator::traffic(gweight.data()).written, static_cast<uint64_t>(written)) << vocabulary;
  }
}

TYPED_TEST(Traffic, GradientOfABias) {
  using T = TypeParam;
  for (const int64_t rows : {3, 700}) {
    const int64_t out = 64;
    const Buffer<T> gy(numbers<T>(rows * out, 1));
    const Buffer<float> gbias(out);
    cuda::linear_activation_backward(kernels::LinearActivationBackward<T>{.gy = gy.data(),
                                                                          .saved = nullptr,
                                                                          .activation = Activation::none,
                                                                          .dropout = {},
                                                                          .gpre = nullptr,
                                                                          .gbias = gbias.data(),
                                                                          .accumulate_bias = false,
                                                                          .rows = rows,
                                                                          .out = out});
    expect_passes(gy, {{"bias_gradient", "gy"}});
  }
}

TYPED_TEST(Traffic, DropoutAddedToAResidual) {
  using T = TypeParam;
  for (const int64_t count : {64, 10'000}) {
    const Buffer<T> x(numbers<T>(count, 1)), residual(numbers<T>(count, 2)), y(count);
    cuda::dropout_forward(
        kernels::DropoutForward<T>{x.data(), residual.data(), y.data(), count, some_dropout()});
    expect_passes(x, {{"dropout_forward", "x"}});
    expect_passes(residual, {{"dropout_forward", "residual"}});
    expect_passes(y, {{"dropout_forward", "y"}});
  }
}

}  // namespace
}  // namespace heed::testing
