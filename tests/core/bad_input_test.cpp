// Bad input that belongs to no single operation: memory and devices that are not there, losses without
// targets, tensors that are none.
#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/core/base/warning.h>
#include <heed/core/ops.h>
#include <heed/core/storage.h>

#include "each_device.h"
#include "expect_error.h"

namespace heed::test {
namespace {

TEST(BadInput, AnUndefinedTensorIsNamedAsOne) {
  const Tensor none;
  expect_error<StateError>([&] { none.shape(); }, {"undefined tensor", "give it a value"});
  expect_error<StateError>([&] { none.item<float>(); }, {"undefined tensor"});
  expect_error<StateError>([&] { none.backward(); }, {"undefined tensor"});
}

TEST(BadInput, OneElementOfManyMustBeChosen) {
  expect_error<ShapeError>([] { zeros({2, 3}).item<float>(); }, {"item", "one element", "[2, 3]"});
  expect_error<ShapeError>([] { zeros({0}).item<float>(); }, {"item", "[0]"});
  expect_error<DTypeError>([] { zeros({2}).data<double>(); }, {"f64", "f32", "[2]"});
  expect_error<DTypeError>([] { zeros({2}).to_vector<int64_t>(); }, {"i64", "f32"});
}

TEST(BadInput, AViewThatNeedsACopySaysSo) {
  expect_error<ShapeError>(
      [] {
        zeros({2, 3}).transpose(0, 1).view({6});
      },
      {"view", "[3, 2]", "strides [1, 3]", "[6]", "reshape()", "contiguous()"});
}

TEST(BadInput, ASizeThatCannotBeIsRefusedBeforeMemoryIsAskedFor) {
  const int64_t huge = int64_t{1} << 31;
  const int64_t before = cpu_allocator().stats().peak;
  expect_error<ShapeError>([&] { zeros({huge, huge, 2}); }, {"[2147483648, 2147483648, 2]"});
  expect_error<ShapeError>([&] { zeros({2, -1}); }, {"[2, -1]"});
  expect_error<ShapeError>(
      [&] {
        zeros({2, 1}).expand({huge, huge, 2, 2});
      },
      {"[2147483648, 2147483648, 2, 2]"});
  EXPECT_LE(cpu_allocator().stats().peak, before + 10'000) << "no more than the small tensor's handles";
}

void check_missing_memory(Device device) {
  const Tensor x = ones({256, 256}, {.device = device}).set_requires_grad();
  Allocator& memory = allocator(device);
  const auto squared = [&] { return sum(matmul(x, x)); };
  const int64_t before = memory.stats().in_use;
  memory.set_limit(before + 100'000);
  expect_error<OutOfMemory>(squared, {concat(device, ": cannot allocate"), "in use", "cached", "limit"});
  EXPECT_EQ(memory.stats().in_use, before) << "what failed keeps nothing";
  EXPECT_FALSE(x.grad().defined());
  memory.set_limit(0);
  const Tensor y = squared();
  EXPECT_EQ(y.item<float>(), 256.0f * 256 * 256);
  memory.set_limit(memory.stats().in_use + 100'000);
  EXPECT_THROW(y.backward({}, {.retain_graph = true}), OutOfMemory);
  memory.set_limit(0);
  x.zero_grad();
  y.backward();
  EXPECT_EQ(x.grad().to(kCpu).to_vector<float>()[0], 512);
}

TEST(BadInput, MemoryThatIsNotThereIsToldAndTheCallCanBeRepeated) {
  for (const Device device : devices()) check_missing_memory(device);
}

TEST(BadInput, ADeviceThatIsNotThereIsNamed) {
  expect_error<ConfigError>([] { parse_device("tpu"); }, {"'tpu'", "cpu, cuda or cuda:N"});
  expect_error<ConfigError>([] { parse_device("cuda:-1"); }, {"'cuda:-1'"});
  const int none = cuda_device_count() + 97;
  const TensorOptions there = {.device = cuda_device(none)};
  if (none == 97)
    expect_error<DeviceError>([&] { zeros({2}, there); }, {"CUDA"});
  else
    expect_error<DeviceError>([&] { zeros({2}, there); }, {concat("cuda:", none)});
  EXPECT_EQ(sum(ones({3})).item<float>(), 3) << "the CPU goes on";
}

TEST(BadInput, OperandsOnTwoDevicesAreNamed) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Tensor here = ones({2, 2}), there = here.to(cuda_device());
  expect_error<DeviceError>([&] { here + there; }, {"add", "cpu and cuda:0", "to(Device)"});
  expect_error<DeviceError>([&] { matmul(there, here); }, {"matmul", "cuda:0 and cpu"});
}

TEST(BadInput, AGradientHasNoSecondDerivative) {
  const Tensor x = ones({3}).set_requires_grad();
  sum(x * x).backward();
  EXPECT_FALSE(x.grad().requires_grad());
  expect_error<AutogradError>([&] { sum(x.grad()).backward(); }, {"has no graph"});
}

TEST(BadInput, WhatFailsHasDrawnNothing) {
  Generator generator(1);
  const Tensor table = ones({4, 8}), ids = tensor<int64_t>({0, 4});
  expect_error<IndexError>([&] { embedding(ids, table, {.dropout = 0.5, .generator = &generator}); },
                           {"embedding: id 4 in row 1", "expected 0 to 3, or -1"});
  expect_error<IndexError>(
      [&] {
        embedding(tensor<int64_t>({0, 1}), table,
                  {.position = zeros({2, 8}), .position_ids = ids, .dropout = 0.5, .generator = &generator});
      },
      {"embedding: position 4 in row 1", "2 positions"});
  EXPECT_THROW(linear(ones({2, 3}), ones({2, 4}), {}, {.dropout = 0.5, .generator = &generator}), ShapeError);
  const Segments segments = Segments::packed(std::vector<int32_t>{9});
  EXPECT_THROW(attention(table, table, table, segments, {.dropout = 0.5, .generator = &generator}),
               ShapeError);
  EXPECT_EQ(generator.offset(), 0u);
}

std::string* heard = nullptr;
int times = 0;

class Listener {
 public:
  Listener() : before_(set_warning_handler([](const std::string& line) { *heard = line, ++times; })) {
    heard = &text_;
    times = 0;
  }
  ~Listener() { set_warning_handler(before_); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  WarningHandler before_;
};

class BadInputOn : public EachDevice {};
HEED_ON_EACH_DEVICE(BadInputOn);

TEST_P(BadInputOn, ALossWithoutATargetIsZeroAndWarnsOnce) {
  const Listener listener;
  const Tensor logits = ones({2, 3}, {.device = device()}).set_requires_grad(),
               ignored = tensor<int64_t>({0, 0}).to(device());
  for (bool mean : {true, false}) {
    const Tensor loss =
        cross_entropy(logits, ignored, {.ignore = 0, .reduction = mean ? Reduction::mean : Reduction::sum});
    loss.backward();
    EXPECT_EQ(loss.item<float>(), 0);
    EXPECT_EQ(logits.grad().to_vector<float>(), std::vector<float>(6, 0));
  }
  const int warnings = device().is_cpu() ? 1 : 0;  // on a device looking would mean waiting
  EXPECT_EQ(times, warnings);
  EXPECT_EQ(listener.text(),
            warnings
                ? "cross_entropy: all 2 targets are the ignored id 0; the loss is 0 and so are its gradients"
                : "");
  expect_error<DataError>([&] { cross_entropy(logits, ignored, {.ignore = 0, .require_target = true}); },
                          {"cross_entropy: none of the 2 targets counts", "ignored id 0"});
  cross_entropy(zeros({0, 3}, {.device = device()}),
                zeros({0}, {DType::i64, device()}));  // nothing to learn from, but nothing odd
  EXPECT_EQ(times, warnings);
}

TEST(BadInput, AttentionRowsThatSeeNothingAreCounted) {
  const Segments segments = Segments::packed(std::vector<int32_t>{2, 3}, std::vector<int32_t>{2, 0});
  const Tensor q = ones({5, 4}), k = ones({2, 4});
  AttentionRecord record;
  const Tensor y = attention(q, k, k, segments, {.heads = 2, .name = "cross"});
  EXPECT_EQ(record.fully_masked_rows("cross"), 3 * 2);
  EXPECT_EQ(sum(y.slice(0, 2, 5)).item<float>(), 0);
  const Tensor none = zeros({2, 2}, {.dtype = DType::boolean});
  attention(k, k, k, Segments::packed(std::vector<int32_t>{2}),
            {.heads = 1, .mask = Mask::allowed(none), .name = "masked"});
  EXPECT_EQ(record.fully_masked_rows("masked"), 2);
  attention(k, k, k, Segments::packed(std::vector<int32_t>{2}), {.heads = 1, .name = "self"});
  EXPECT_EQ(record.fully_masked_rows("self"), 0);
  expect_error<IndexError>([&] { record.fully_masked_rows("other"); }, {"\"other\""});
}

}  // namespace
}  // namespace heed::test
