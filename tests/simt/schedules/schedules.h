// What the tests of kernels under the emulator's schedules share: drawn inputs, and the check itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/philox.h>
#include <heed/kernels/elementwise.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/runtime.h>
#include <heed/kernels/simt/host/emulator.h>

#include "../device_buffer.h"
#include "../device_test.h"

namespace heed::testing {

using Bytes = std::vector<unsigned char>;

/// Which of a run's buffers begins one element past a 16-byte boundary: a number, or
inline constexpr int kNone = -1, kAll = -2;
inline int shifted_buffer = kNone;
inline int buffers_made = 0;

/// Device memory of a run under check_schedules.
template <class T>
class Buffer : public DeviceBuffer<T> {
 public:
  explicit Buffer(int64_t count) : DeviceBuffer<T>(static_cast<size_t>(count), offset()) {}
  explicit Buffer(const std::vector<T>& values) : DeviceBuffer<T>(values, offset()) {}

 private:
  static size_t offset() {
    const int number = buffers_made++;
    return shifted_buffer == number || shifted_buffer == kAll ? 1 : 0;
  }
};

inline uint32_t random_word(size_t i, uint32_t seed) {
  return philox(static_cast<uint32_t>(i), 0, 0, 0, seed, 0).word[0];
}

/// Values in [-1, 1).
template <class T>
std::vector<T> numbers(int64_t count, uint32_t seed) {
  std::vector<T> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = T(static_cast<float>(random_word(i, seed) >> 8) * 0x1p-23f - 1.0f);
  return out;
}

/// Values in [0, below), and kNoToken here and there.
inline std::vector<int64_t> ids(int64_t count, int64_t below, uint32_t seed) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = i % 11 == 3 ? kNoToken : static_cast<int64_t>(random_word(i, seed)) % below;
  return out;
}

inline Dropout some_dropout() { return make_dropout(0.3, {.seed = 5, .base = nullptr, .offset = 9}); }

/// The bytes of all buffers, one after the other.
template <class... Buffers>
Bytes bytes(const Buffers&... buffers) {
  cuda::synchronize(0);
  Bytes all;
  const auto append = [&](const Bytes& more) { all.insert(all.end(), more.begin(), more.end()); };
  (append(bytes_of(buffers.get())), ...);
  return all;
}

/// One kernel operation, with one shape, set of options and dtype: `run` launches it on Buffers that it
/// makes, and returns the bytes of the results. They must be the same under every schedule. With any one
/// buffer shifted they must be those of either all or none shifted: kernels have two ways, with vectors and
/// without, of which one mistake would take the wrong one. Where accesses are checked, both ways run once.
inline void check_schedules(const std::string& name, const std::function<Bytes()>& run) {
  SCOPED_TRACE(name);
  ++kernel_cases.count;
  Bytes aligned;
  each_schedule([&](const std::string& schedule) {
    const Bytes now = run();
    if (aligned.empty()) aligned = now;
    EXPECT_EQ(now, aligned) << "the results depend on the schedule: " << schedule;
  });
  EXPECT_FALSE(aligned.empty());
  const auto run_shifted = [&](int which) {
    shifted_buffer = which;
    buffers_made = 0;
    const Bytes result = run();
    shifted_buffer = kNone;
    return result;
  };
  const Bytes shifted = run_shifted(kAll);
  if (checks_accesses()) return;
  const int count = buffers_made;
  for (int which = 0; which < count; ++which) {
    const Bytes now = run_shifted(which);
    EXPECT_TRUE(now == aligned || now == shifted) << "buffer " << which << " is shifted";
  }
}

/// [rows, cols] against operands that have both axes (2), the columns (1) or are turned over (-1).
template <int kOperands>
Strided<kOperands> space(int64_t rows, int64_t cols, const int (&kinds)[kOperands]) {
  Strided<kOperands> index{};
  index.rank = 2;
  index.sizes[0] = rows, index.sizes[1] = cols;
  for (int k = 0; k < kOperands; ++k) {
    index.strides[k][0] = kinds[k] == 2 ? cols : kinds[k] == -1 ? 1 : 0;
    index.strides[k][1] = kinds[k] == -1 ? rows : 1;
  }
  return index;
}

template <int kOperands>
Strided<kOperands> line(int64_t count, int64_t stride = 1) {
  Strided<kOperands> index{};
  index.rank = 1;
  index.sizes[0] = count;
  for (int k = 0; k < kOperands; ++k) index.strides[k][0] = stride;
  return index;
}

}  // namespace heed::testing
