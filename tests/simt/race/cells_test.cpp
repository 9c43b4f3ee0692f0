// Cells that bytes share say the same as one for each byte would.
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/philox.h>
#include <heed/kernels/simt/race/cells.h>

namespace heed::emulator {
namespace {

constexpr size_t kBytes = 100;  // the last group is not whole

struct Drawn {
  size_t first, count;
  bool write;
};

// Vectors in their places, single elements, and ranges from anywhere to anywhere.
Drawn drawn(uint32_t i) {
  const auto word = philox(i, 0, 0, 0, 7, 0).word;
  const bool write = word[0] % 4 == 0;
  if (word[0] % 3 == 0) {
    const size_t first = word[1] % kBytes;
    return {first, word[2] % (kBytes - first + 1), write};
  }
  const size_t width = size_t{1} << word[1] % 5;
  return {word[2] % (kBytes / width) * width, width, write};
}

TEST(Cells, AreAsOneForEachByte) {
  Cells cells(kBytes);
  struct Known {
    uint32_t write = 0, read = 0;
    bool operator==(const Known&) const = default;
  };
  std::vector<Known> bytes(kBytes);
  for (uint32_t i = 1; i < 20000; ++i) {
    const Drawn use = drawn(i);
    std::vector<std::pair<size_t, Known>> found;  // by the first byte of each cell
    cells.visit(use.first, use.count, use.write, [&](Cell& cell, size_t at) {
      found.push_back({at, {cell.last_write, cell.last_reads[0]}});
      cell.last_reads[0] = use.write ? 0 : i;
      if (use.write) cell.last_write = i;
    });
    size_t cell = 0;
    for (size_t byte = use.first; byte < use.first + use.count; ++byte) {
      if (cell + 1 < found.size() && found[cell + 1].first == byte) ++cell;
      ASSERT_EQ(found.at(cell).second, bytes[byte]) << byte << " in use " << i;
      bytes[byte] = use.write ? Known{i, 0} : Known{bytes[byte].write, i};
    }
  }
}

TEST(Cells, AreDividedByWhatTakesLessAndMadeOneByAWrite) {
  Cells cells(64);
  const auto visits = [&](size_t first, size_t count, bool write) {
    std::vector<size_t> at;
    cells.visit(first, count, write, [&](Cell&, size_t byte) { at.push_back(byte); });
    return at;
  };
  EXPECT_EQ(visits(0, 64, false), (std::vector<size_t>{0, 16, 32, 48}));
  EXPECT_EQ(visits(20, 4, true), (std::vector<size_t>{20}));
  EXPECT_EQ(visits(16, 16, false), (std::vector<size_t>{16, 20, 24, 28}));
  EXPECT_EQ(visits(19, 2, true), (std::vector<size_t>{19, 20}));
  EXPECT_EQ(visits(12, 8, false), (std::vector<size_t>{12, 16, 17, 18, 19}));
  EXPECT_EQ(visits(16, 16, true).size(), 16u);
  EXPECT_EQ(visits(16, 16, false), (std::vector<size_t>{16}));
  EXPECT_EQ(visits(7, 0, true).size(), 0u);
}

}  // namespace
}  // namespace heed::emulator
