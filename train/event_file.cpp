#include <array>
#include <bit>
#include <chrono>
#include <unistd.h>

#include <heed/core/base/check.h>
#include <heed/train/event_file.h>

namespace heed::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "events.out.tfevents.";
constexpr const char* kSuffix = ".heed";

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    table[byte] = crc;
  }
  return table;
}

template <class Integer>
std::string little_endian(Integer value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xff);
  return bytes;
}

// A checksum of data that hold checksums is weak, hence the mask.
std::string masked_crc(std::string_view bytes) {
  return little_endian(std::rotr(crc32c(bytes), 15) + 0xa282ead8u);
}

// Protocol buffers: a field is its number and wire type, then the value.
enum class Wire : uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

std::string key(uint32_t number, Wire wire) { return varint(number << 3 | static_cast<uint32_t>(wire)); }

std::string bytes_field(uint32_t number, std::string_view value) {
  return key(number, Wire::bytes) + varint(value.size()) + std::string(value);
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string event_at(double seconds, int64_t step) {
  return key(1, Wire::fixed64) + little_endian(std::bit_cast<uint64_t>(seconds)) + key(2, Wire::varint) +
         varint(static_cast<uint64_t>(step));
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const std::string& name : folder_entries(folder.string()))
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix) && !fs::is_symlink(folder / name))
      files.push_back(folder / name);
  return files;
}

// The bytes of the first `count` records, or of as many as are whole.
uint64_t length_of_records(const fs::path& path, int64_t count) {
  constexpr uint64_t kFrame = 16;  // length, its checksum, the event's
  const InputFile file(path.string());
  uint64_t end = 0;
  for (; count > 0 && file.size() - end >= kFrame; --count) {
    std::byte bytes[8];
    uint64_t length = 0;
    file.read_at(end, bytes);
    for (size_t i = sizeof bytes; i-- > 0;) length = length << 8 | static_cast<uint8_t>(bytes[i]);
    if (length > file.size() - end - kFrame) break;
    end += kFrame + length;
  }
  return end;
}

// The folder's event file, or the name of a new one.
fs::path event_file(const fs::path& folder) {
  const std::vector<fs::path> files = event_files(folder);
  return files.empty() ? folder / concat(kPrefix, static_cast<int64_t>(now()), ".", getpid(), kSuffix)
                       : files.front();
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

EventFile::EventFile(const fs::path& folder, int64_t kept) : file_(event_file(folder).string()) {
  file_.cut(length_of_records(file_.path(), 1 + kept));
  if (file_.size() == 0) write_record(event_at(now(), 0) + bytes_field(3, "brain.Event:2"));
}

void EventFile::write(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  // Summary: value = 1. Value: tag = 1, simple_value = 2.
  std::string summary;
  for (const auto& [tag, number] : scalars)
    summary += bytes_field(1, bytes_field(1, tag) + key(2, Wire::fixed32) +
                                  little_endian(std::bit_cast<uint32_t>(static_cast<float>(number))));
  write_record(event_at(now(), step) + bytes_field(5, summary));
}

void EventFile::write_record(const std::string& event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  file_.append(length + masked_crc(length) + event + masked_crc(event));
}

void remove_event_files(const fs::path& folder) {
  for (const fs::path& file : event_files(folder)) fs::remove(file);
}

}  // namespace heed::train
