// The main function of GoogleTest programs that need a device: without one they are skipped, never passed.
#include <cstdio>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  if (!::testing::GTEST_FLAG(list_tests) && (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)) {
    std::printf("no CUDA device: nothing was tested\n");
    return 7;
  }
  return RUN_ALL_TESTS();
}
