// kernels/runtime.h on the emulated device.
#include <cmath>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/kernels/capture.h>
#include <heed/kernels/runtime.h>
#include <heed/kernels/simt/host/emulator.h>

#include "device_buffer.h"
#include "device_test.h"

namespace heed::cuda {

void check(cudaError_t error, const char* what);  // of kernels/cuda/device.cuh, which is for kernels

namespace {

using heed::testing::DeviceBuffer;
using heed::testing::emulated;
using heed::testing::message_of;

TEST(CudaRuntime, TheDeviceSaysThatItIsEmulated) {
  if (!emulated()) GTEST_SKIP() << "a real device";
  EXPECT_EQ(device_count(), 1);
  EXPECT_EQ(device_name(0), "emulated CUDA device (sm_80)");
}

TEST(CudaRuntime, ErrorsOfCudaAreTyped) {
  check(cudaSuccess, "a launch");
  EXPECT_NE(message_of<OutOfMemory>([] {
              check(cudaErrorMemoryAllocation, "a launch");
            }).find("a launch: cudaErrorMemoryAllocation: "),
            std::string::npos);
  EXPECT_NE(message_of<DeviceError>([] {
              check(cudaErrorInvalidResourceHandle, "a launch");
            }).find("a launch: cudaErrorInvalidResourceHandle: "),
            std::string::npos);
  EXPECT_NE(message_of<DeviceError>([] {
              check(cudaErrorNoKernelImageForDevice, "a launch");
            }).find("; this build of heed has no code for this device's architecture"),
            std::string::npos);
}

TEST(CudaRuntime, AMissingDeviceIsADeviceError) {
  const std::string last = std::to_string(device_count() - 1);
  const std::string expected = "cuda:99: no such device; this machine has cuda:0 to cuda:" + last;
  EXPECT_EQ(message_of<DeviceError>([] { allocator(99); }), expected);
  EXPECT_EQ(message_of<DeviceError>([] { device_name(99); }), expected);
  EXPECT_EQ(message_of<DeviceError>([] { set_device(99); }), expected);
  EXPECT_EQ(message_of<DeviceError>([] { allocator(-1); }),
            "cuda:-1: no such device; this machine has cuda:0 to cuda:" + last);
}

TEST(CudaRuntime, CopiesAndFillsRoundTrip) {
  Allocator& memory = allocator(0);
  const std::vector<float> values{1.0f, -2.0f, 3.5f};
  const size_t bytes = values.size() * sizeof(float);
  void* a = memory.allocate(bytes);
  void* b = memory.allocate(bytes);
  std::vector<float> out(3);
  if (!emulator::checks_races()) {  // the race checker reports who reads it
    copy_to_host(0, out.data(), b, bytes);
    EXPECT_TRUE(std::isnan(out[1])) << "fresh memory of the plain allocator is NaN";
  }
  copy_to_device(0, a, values.data(), bytes);
  copy_on_device(0, b, a, bytes);
  copy_to_host(0, out.data(), b, bytes);
  EXPECT_EQ(out, values);
  fill_bytes(0, b, 0, bytes);
  copy_to_host(0, out.data(), b, bytes);
  EXPECT_EQ(out, std::vector<float>(3, 0.0f));
  synchronize(0);
  memory.deallocate(a, bytes);
  memory.deallocate(b, bytes);
}

// A small copy goes by way of pinned memory; reading is a kernel, which brings the wrong index too.
TEST(CudaRuntime, SmallCopiesAreOneOperation) {
  if (!emulated()) GTEST_SKIP() << "a real device does not count";
  const DeviceBuffer<float> a(4);
  const std::vector<float> values{1.0f, -2.0f, 3.5f, 4.0f};
  std::vector<float> out(4);
  const emulator::Stats start = emulator::stats();
  for (int i = 0; i < 20; ++i) copy_to_device(0, a.data(), values.data(), 16);
  const emulator::Stats sent = emulator::stats();
  EXPECT_EQ(sent.copies, start.copies + 20);
  EXPECT_EQ(sent.pageable_copies, start.pageable_copies);
  copy_to_host(0, out.data(), a.data(), 16);
  const emulator::Stats read = emulator::stats();
  EXPECT_EQ(out, values);
  EXPECT_EQ(read.launches, sent.launches + 1);
  EXPECT_EQ(read.copies, sent.copies);
  EXPECT_EQ(read.fills, sent.fills);
  EXPECT_EQ(read.synchronizations, sent.synchronizations + 1);
}

TEST(CudaRuntime, CopiesOfEverySizeAndPlace) {
  for (const size_t bytes : {1, 3, 4, 5, 1023, (64 << 10) - 32, (64 << 10) - 31, 64 << 10, (64 << 10) + 1})
    for (const size_t offset : {0, 1, 4}) {
      const DeviceBuffer<unsigned char> a(bytes, offset);
      std::vector<unsigned char> values(bytes), out(bytes);
      for (size_t i = 0; i < bytes; ++i) values[i] = static_cast<unsigned char>(i * 7 + 1);
      copy_to_device(0, a.data(), values.data(), bytes);
      copy_to_host(0, out.data(), a.data(), bytes);
      EXPECT_EQ(out, values) << bytes << " bytes, " << offset << " past a boundary";
    }
}

// What a program enqueues itself is in order with what heed does, and part of a step that is captured.
TEST(CudaRuntime, WorkOfOnesOwnGoesIntoTheDevicesStream) {
  DeviceBuffer<float> a(2), b(2);
  const auto work = [&] {
    fill_bytes(0, a.data(), 0xff, 8);
    EXPECT_EQ(cudaMemsetAsync(a.data(), 0, 4, device_stream(0)), cudaSuccess);
    copy_on_device(0, b.data(), a.data(), 8);
  };
  const auto expect_done = [&] {
    synchronize(0);
    const std::vector<float> values = b.get();
    EXPECT_EQ(values[0], 0.0f);
    EXPECT_TRUE(std::isnan(values[1]));
  };
  work();
  expect_done();
  const Graph graph(0, make_arena(0), work);
  b.set({1.0f, 1.0f});
  graph.launch();
  expect_done();
  EXPECT_THROW(device_stream(99), DeviceError);
}

TEST(CudaRuntime, WorkInAnotherStreamMustWait) {
  if (!emulated()) GTEST_SKIP() << "a real device does not look";
  const DeviceBuffer<float> a(2);
  for (const bool waits : {false, true}) {
    cudaEvent_t event = nullptr;
    EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
    fill_bytes(0, a.data(), 0, 8);
    EXPECT_EQ(cudaEventRecord(event, device_stream(0)), cudaSuccess);
    if (waits) {
      EXPECT_EQ(cudaStreamWaitEvent(nullptr, event, 0), cudaSuccess);
    }
    const std::string message =
        message_of<emulator::Error>([&] { cudaMemsetAsync(a.data(), 1, 8, nullptr); });
    if (waits || !emulator::checks_races())
      EXPECT_EQ(message, "nothing thrown");
    else
      EXPECT_NE(message.find("unordered with the write by a copy, fill or product in another stream"),
                std::string::npos)
          << message;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  }
}

TEST(CudaRuntime, AHostPointerInPlaceOfADevicePointerIsRefused) {
  if (!emulated()) GTEST_SKIP() << "some GPUs can reach host memory";
  float host[4] = {};
  EXPECT_EQ(message_of<DeviceError>([&] { copy_to_device(0, host, host, sizeof host); }),
            "copy_to_device: cudaErrorInvalidValue: invalid argument");
  EXPECT_EQ(message_of<DeviceError>([&] { fill_bytes(0, host, 0, sizeof host); }),
            "fill_bytes: cudaErrorInvalidValue: invalid argument");
}

TEST(CudaRuntime, OutOfMemoryCanBeRepeatedAfterFreeing) {
  if (!emulated()) GTEST_SKIP() << "the memory of a real device is not ours to limit";
  const emulator::Config saved = emulator::config();
  emulator::config().device_memory = 1 << 20;
  Allocator& memory = allocator(0);
  void* first = memory.allocate(700 << 10);
  EXPECT_NE(message_of<OutOfMemory>([&] {
              memory.allocate(700 << 10);
            }).find("cuda:0: cannot allocate 716800 bytes"),
            std::string::npos);
  memory.deallocate(first, 700 << 10);
  memory.release_cached();
  memory.deallocate(memory.allocate(700 << 10), 700 << 10);
  emulator::config() = saved;
}

}  // namespace
}  // namespace heed::cuda
