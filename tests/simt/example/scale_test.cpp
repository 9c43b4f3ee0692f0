// The example of docs/emulator.md.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

cudaError_t scale(float* values, float factor, int count, cudaStream_t stream);

TEST(Example, ScalesOnTheEmulatedDevice) {
  std::vector<float> values(1000, 3.0f);
  float* device = nullptr;
  cudaStream_t stream = nullptr;
  const size_t bytes = values.size() * sizeof(float);
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&device, bytes), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device, values.data(), bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
  ASSERT_EQ(scale(device, 2.0f, 1000, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(values.data(), device, bytes, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(values, std::vector<float>(1000, 6.0f));
  cudaFree(device);
  cudaStreamDestroy(stream);
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
