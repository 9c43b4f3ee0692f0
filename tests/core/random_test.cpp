// Random fills: the same numbers on every device, in every layout, from each place of the stream.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/runtime/captured_step.h>

#include "op_check.h"

namespace heed::test {
namespace {

struct Numbers {
  std::vector<float> uniform, normal, strided;
  std::vector<int64_t> integers;
  uint64_t offset;
};

Numbers numbers(DType dtype, Device device) {
  Generator generator(3);
  const Tensor uniform = empty({1027}, {dtype, device}), wide = zeros({5, 8}, {dtype, device});
  uniform_(uniform, -3, 5, generator);
  const Tensor normal = randn({1027}, {dtype, device}, generator);
  uniform_(wide.slice(1, 2, 7), 0, 1, generator);
  const Tensor integers = randint(-7, int64_t{1} << 62, {1027}, device, generator);
  const auto floats = [](const Tensor& x) { return x.to(DType::f32).to_vector<float>(); };
  return {floats(uniform), floats(normal), floats(wide), integers.to_vector<int64_t>(), generator.offset()};
}

TEST(Random, EveryDeviceHasTheSameNumbers) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Numbers cpu = numbers(dtype, kCpu);
    for (const float x : cpu.uniform) ASSERT_TRUE(x >= -3 && x < 5) << x;
    EXPECT_EQ(cpu.strided[1], 0) << "only the slice is written";
    EXPECT_NE(cpu.strided[2], 0);
    if (cuda_device_count() == 0) continue;
    const Numbers cuda = numbers(dtype, cuda_device());
    EXPECT_EQ(cuda.uniform, cpu.uniform);
    EXPECT_EQ(cuda.normal, cpu.normal);
    EXPECT_EQ(cuda.strided, cpu.strided);
    EXPECT_EQ(cuda.integers, cpu.integers);
    EXPECT_EQ(cuda.offset, cpu.offset);
  }
}

TEST(Random, ACapturedStepDrawsNewNumbers) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  Generator generator(3), again(3);
  const GeneratorScope scope(generator);
  CapturedStep step(cuda_device(), [](const StepInputs&) {
    const TensorOptions options{.device = cuda_device()};
    return PooledVector<Tensor>{rand({5}, options), randn({5}, options)};
  });
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const PooledVector<Tensor> drawn = step({}).get();
    EXPECT_EQ(drawn[0].to_vector<float>(), rand({5}, {}, again).to_vector<float>());
    EXPECT_EQ(drawn[1].to_vector<float>(), randn({5}, {}, again).to_vector<float>());
  }
  EXPECT_EQ(step.graphs(), 1);
}

}  // namespace
}  // namespace heed::test
