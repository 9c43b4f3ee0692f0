// Event files: checksums with known values, and records read back by a reader written from their description.
#include "apps/common/event_file.h"

#include <bit>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>

#include "temporary_folder.h"

namespace heed::apps {
namespace {

// RFC 3720, B.4, and the usual check value.
TEST(EventFile, Crc32c) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

template <class T>
T take(std::string& bytes) {
  T value;
  EXPECT_GE(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.erase(0, sizeof value);
  return value;
}

uint32_t unmasked(uint32_t masked) { return std::rotl(masked - 0xa282ead8u, 15); }

// The events of the only file in a folder, their checksums right.
std::vector<std::string> records(const test::TemporaryFolder& folder) {
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    bytes = folder.get(entry.path().filename().string());
  std::vector<std::string> events;
  while (!bytes.empty()) {
    const std::string length_bytes = bytes.substr(0, 8);
    const auto length = take<uint64_t>(bytes);
    EXPECT_EQ(unmasked(take<uint32_t>(bytes)), crc32c(length_bytes));
    events.push_back(bytes.substr(0, length));
    bytes.erase(0, length);
    EXPECT_EQ(unmasked(take<uint32_t>(bytes)), crc32c(events.back()));
  }
  return events;
}

TEST(EventFile, RecordsReadBack) {
  const test::TemporaryFolder folder;
  EventFile(folder.path()).write(300, {{"train/loss", 1.5}, {"lr", -2.0}});
  std::vector<std::string> events = records(folder);
  ASSERT_EQ(events.size(), 2u);
  // Wall times differ; what follows them does not. 0x11: field 2 as a varint, 0x1a and 0x2a: fields 3 and 5
  // as bytes.
  for (std::string& event : events) {
    EXPECT_EQ(take<uint8_t>(event), 0x09);
    EXPECT_GT(take<double>(event), 1.6e9);
  }
  EXPECT_EQ(events[0], std::string("\x10\0\x1a\x0d", 4) + "brain.Event:2");
  const std::string loss =
      std::string("\x0a\x11\x0a\x0a") + "train/loss" + std::string("\x15\0\0\xc0\x3f", 5);
  const std::string rate = std::string("\x0a\x09\x0a\x02") + "lr" + std::string("\x15\0\0\0\xc0", 5);
  EXPECT_EQ(events[1], std::string("\x10\xac\x02\x2a\x1e") + loss + rate);
}

TEST(EventFile, CanBeRemoved) {
  const test::TemporaryFolder folder;
  EventFile file(folder.path());
  remove_event_files(folder.path());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(EventFile(std::filesystem::path(folder.path()) / "none"), IoError);
}

}  // namespace
}  // namespace heed::apps
