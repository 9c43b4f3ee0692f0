// Event files: checksums with known values, and records read back by a reader written from their description.
#include <bit>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/train/event_file.h>

#include "temporary_folder.h"

namespace heed::train {
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

// The step of an event.
uint64_t step_of(const std::string& event) {
  uint64_t step = 0;
  for (size_t i = 10;; ++i) {  // behind the time and the field's key
    const auto byte = static_cast<unsigned char>(event.at(i));
    step |= static_cast<uint64_t>(byte & 0x7f) << (7 * (i - 10));
    if (byte < 0x80) return step;
  }
}

std::vector<uint64_t> steps(const test::TemporaryFolder& folder) {
  std::vector<uint64_t> result;
  for (const std::string& event : records(folder)) result.push_back(step_of(event));
  return result;
}

TEST(EventFile, GoesOnAfterWhatIsKept) {
  const test::TemporaryFolder folder;
  {
    EventFile file(folder.path());
    for (const int64_t step : {100, 200, 300}) file.write(step, {{"loss", 1}});
  }
  EventFile(folder.path(), 2).write(301, {{"loss", 2}});
  EXPECT_EQ(steps(folder), (std::vector<uint64_t>{0, 100, 200, 301}));
  EXPECT_EQ(folder.entries(), 1u);
  EventFile(folder.path(), 9).write(400, {{"loss", 2}});
  EXPECT_EQ(steps(folder), (std::vector<uint64_t>{0, 100, 200, 301, 400}));
  EventFile(folder.path()).write(50, {{"loss", 3}});
  EXPECT_EQ(steps(folder), (std::vector<uint64_t>{0, 50}));
}

TEST(EventFile, APipeIsNoEventFile) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("events.out.tfevents.1.2.heed").c_str(), 0600), 0);
  EXPECT_THROW(EventFile(folder.path(), 2), IoError);
}

TEST(EventFile, AHalfWrittenRecordIsCutOff) {
  const test::TemporaryFolder folder;
  {
    EventFile file(folder.path());
    file.write(100, {{"loss", 1}});
    file.write(200, {{"loss", 1}});
  }
  const auto path = std::filesystem::directory_iterator(folder.path())->path();
  const auto size = std::filesystem::file_size(path);
  for (const uintmax_t missing : {uintmax_t{1}, uintmax_t{20}}) {
    std::filesystem::resize_file(path, size - missing);
    EventFile(folder.path(), 2).write(201, {{"loss", 2}});
    EXPECT_EQ(steps(folder), (std::vector<uint64_t>{0, 100, 201}));
  }
  folder.put(path.filename().string(), "half");
  EventFile(folder.path(), 2).write(300, {{"loss", 2}});
  EXPECT_EQ(steps(folder), (std::vector<uint64_t>{0, 300}));
  folder.put(path.filename().string(), std::string(40, '\xff'));  // a length beyond all files
  EventFile(folder.path(), 2).write(300, {{"loss", 2}});
  EXPECT_EQ(steps(folder), (std::vector<uint64_t>{0, 300}));
}

TEST(EventFile, CanBeRemoved) {
  const test::TemporaryFolder folder;
  EventFile file(folder.path());
  remove_event_files(folder.path());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(EventFile(std::filesystem::path(folder.path()) / "none"), IoError);
}

}  // namespace
}  // namespace heed::train
