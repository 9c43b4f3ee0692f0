// kernels/cuda/indexing/wrong_index.cuh: indices outside their tables, in every block and thread, under every
// schedule.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/capture.h>
#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/indexing.h>
#include <heed/kernels/runtime.h>
#include <heed/kernels/simt/host/emulator.h>

#include "device_buffer.h"
#include "device_test.h"

namespace heed::cuda {
namespace {

using heed::testing::bytes_of;
using heed::testing::DeviceBuffer;
using heed::testing::message_of;

constexpr int64_t kRows = 300, kCols = 8, kEntries = 5;

// A third of the rows is wrong, by little or by much.
std::vector<int64_t> mostly_right() {
  std::vector<int64_t> ids;
  for (int64_t row = 0; row < kRows; ++row)
    ids.push_back(row % 3 != 1 ? row % kEntries : row % 2 == 0 ? kEntries : int64_t{-1} << 50);
  return ids;
}

std::string wrong_row(const std::string& operation, const std::string& message) {
  if (message.rfind(operation, 0) != 0) return message;
  const auto after = [&](const char* word) { return std::stoll(message.substr(message.find(word) + 6)); };
  const size_t place = message.find(" in row ");
  const int64_t row = place == std::string::npos ? after("ement ") : after("n row ");
  return row % 3 == 1 ? "a wrong row" : message;
}

// Runs `launch` under every schedule; its wrong indices are reported once, and the bits are the same.
void check(const std::string& operation, const std::function<std::vector<unsigned char>()>& launch) {
  ++heed::testing::kernel_cases.count;
  std::vector<unsigned char> first;
  heed::testing::each_schedule([&](const std::string& schedule) {
    SCOPED_TRACE(operation + ", " + schedule);
    const std::vector<unsigned char> bytes = launch();
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first);
    EXPECT_EQ(wrong_row(operation, message_of<IndexError>([] { synchronize(0); })), "a wrong row");
    synchronize(0);
  });
}

TEST(WrongIndex, IsNeitherReadNorWrittenThrough) {
  const DeviceBuffer<int64_t> ids(mostly_right());
  const DeviceBuffer<float> table(std::vector<float>(kEntries * kCols, 1.0f));
  check("embedding: id", [&] {
    const DeviceBuffer<float> y(kRows * kCols);
    embedding_forward(kernels::EmbeddingForward<float>{.ids = ids.data(),
                                                       .weight = table.data(),
                                                       .position = nullptr,
                                                       .position_ids = nullptr,
                                                       .dropout = {},
                                                       .scale = 1,
                                                       .y = y.data(),
                                                       .rows = kRows,
                                                       .cols = kCols,
                                                       .vocabulary = kEntries,
                                                       .positions = 0});
    return bytes_of(y.get());
  });
  check("index_select: index", [&] {
    const DeviceBuffer<float> y(kRows * kCols);
    index_select(kernels::IndexSelect<float>{y.data(), table.data(), ids.data(), kRows, kCols, kEntries});
    return bytes_of(y.get());
  });
  check("scatter_add: index", [&] {
    const DeviceBuffer<float> y(std::vector<float>(kEntries, 0.0f));
    const DeviceBuffer<float> source(std::vector<float>(kRows, 1.0f));
    Strided<3> one_line{};
    scatter(kernels::Scatter<float>{kernels::IndexUse::scatter_add, ScatterOp::add, y.data(), ids.data(),
                                    source.data(), one_line, kRows, kEntries, 1, 1, 1});
    return bytes_of(y.get());
  });
}

// Rows are sorted by 32-bit targets. Nothing is launched.
TEST(WrongIndex, TablesBeyond32BitsAreRefused) {
  const DeviceBuffer<int64_t> ids(std::vector<int64_t>{0, 1});
  const DeviceBuffer<float> gy(std::vector<float>(2, 1.0f)), gweight(std::vector<float>(2, 0.0f));
  const std::string message = message_of<ShapeError>([&] {
    index_select_backward(
        kernels::IndexSelectBackward<float>{gweight.data(), gy.data(), ids.data(), 2, 1, int64_t{1} << 31});
  });
  EXPECT_NE(message.find("2 rows for 2147483648 entries; on CUDA both must be less than 2^31"),
            std::string::npos)
      << message;
}

TEST(WrongIndex, TravelsToPinnedMemoryWithoutWaiting) {
  PinnedMemory host(sizeof(kernels::WrongIndex));
  auto* const wrong = reinterpret_cast<kernels::WrongIndex*>(host.data());
  const DeviceBuffer<int64_t> ids(std::vector<int64_t>{2, 7});
  const DeviceBuffer<float> y(2 * 9);
  Event done(0);
  const auto one_hot_of = [&](int64_t classes) {
    one_hot(kernels::OneHot<float>{y.data(), ids.data(), 2, classes});
    report(0, {}, {host.data(), nullptr});
    done.record();
    done.wait();
  };
  one_hot_of(5);
  EXPECT_EQ(wrong->use, kernels::IndexUse::one_hot);
  EXPECT_EQ(wrong->value, 7);
  EXPECT_EQ(wrong->place, 1);
  EXPECT_EQ(wrong->entries, 5);
  one_hot_of(9);
  EXPECT_EQ(wrong->use, kernels::IndexUse::none) << "each is told once";
  const Graph graph(0, make_arena(0), [&] { one_hot(kernels::OneHot<float>{y.data(), ids.data(), 2, 7}); });
  synchronize(0);
  for (int i = 0; i < 2; ++i) {
    graph.launch();
    EXPECT_EQ(message_of<IndexError>([] { synchronize(0); }),
              "one_hot: index 7 at element 1 of the index is not in [0, 6]");
  }
}

}  // namespace
}  // namespace heed::cuda
