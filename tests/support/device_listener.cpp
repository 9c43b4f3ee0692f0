// Marks each test that took memory of a CUDA device with a line of its own, so that `./heed gpu-check` can
// tell tests of a device from those that only share a program with them, however the program ends.
#include <cstdio>

#include <gtest/gtest.h>

#include <heed/kernels/runtime.h>

namespace heed::test {
namespace {

int64_t device_requests() {
#if HEED_CUDA_AVAILABLE
  return cuda::device_count() > 0 ? cuda::allocator(0).stats().requests : 0;
#else
  return 0;
#endif
}

class DeviceListener : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { before_ = device_requests(); }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (device_requests() > before_) std::printf("[  DEVICE  ] %s.%s\n", test.test_suite_name(), test.name());
  }

  int64_t before_ = 0;
};

[[maybe_unused]] const bool installed =
    (::testing::UnitTest::GetInstance()->listeners().Append(new DeviceListener), true);

}  // namespace
}  // namespace heed::test
