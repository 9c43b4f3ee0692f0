// The example of docs/emulator.md.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

cudaError_t scale(float* values, float factor, int count);

TEST(Example, ScalesOnTheEmulatedDevice) {
  std::vector<float> values(1000, 3.0f);
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, values.size() * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice),
            cudaSuccess);
  ASSERT_EQ(scale(device, 2.0f, 1000), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(values.data(), device, values.size() * sizeof(float), cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(values, std::vector<float>(1000, 6.0f));
  cudaFree(device);
}

TEST(Example, IsTheOneInTheDocumentation) {
  const auto read = [](const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  const std::string kernel = read(HEED_SOURCE_FOLDER "/tests/simt/example/scale.cu");
  ASSERT_FALSE(kernel.empty());
  EXPECT_NE(read(HEED_SOURCE_FOLDER "/docs/emulator.md").find(kernel), std::string::npos);
}
