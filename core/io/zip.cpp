#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include <heed/core/base/check.h>
#include <heed/core/io/detail/json_scanner.h>
#include <heed/core/io/zip.h>

namespace heed {
namespace {

static_assert(std::endian::native == std::endian::little, "ZIP's numbers are little-endian");

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50, kIn64 = 0xffffffff;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56;

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? 0xedb88320 ^ value >> 1 : value >> 1;
    table[i] = value;
  }
  return table;
}

template <class T>
T at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The list of entries: where it is and how many it has.
struct Directory {
  uint64_t offset, bytes, count;
};

class DirectoryReader {
 public:
  explicit DirectoryReader(const InputFile& file) : file_(file) {}

  std::vector<ZipEntry> entries() const {
    const Directory directory = find();
    if (directory.offset > file_.size() || directory.bytes > file_.size() - directory.offset ||
        directory.count > directory.bytes / kCentralBytes)
      fail("its list of ", directory.count, " entries exceeds the file");
    const std::string list = bytes(directory.offset, directory.bytes);
    std::vector<ZipEntry> entries;
    std::set<std::string_view> names;
    size_t next = 0;
    for (uint64_t i = 0; i < directory.count; ++i) entries.push_back(entry(list, next));
    for (ZipEntry& e : entries) {
      if (!names.insert(e.name).second) fail("it has two entries ", detail::quoted(e.name));
      e.offset = data_of(e);
    }
    check_apart(entries);
    return entries;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw CheckpointError(concat("ZIP archive '", file_.path(), "': ", parts...));
  }

  std::string bytes(uint64_t offset, uint64_t count) const {
    std::string out(count, '\0');
    file_.read_at(offset, {reinterpret_cast<std::byte*>(out.data()), out.size()});
    return out;
  }

  Directory find() const {
    constexpr uint64_t kLongestComment = 65535;
    const uint64_t tail_bytes = std::min<uint64_t>(file_.size(), kEndBytes + kLongestComment);
    const std::string tail = bytes(file_.size() - tail_bytes, tail_bytes);
    for (size_t i = tail.size() < kEndBytes ? 0 : tail.size() - kEndBytes + 1; i-- > 0;) {
      if (at<uint32_t>(tail, i) != kEnd || at<uint16_t>(tail, i + 20) != tail.size() - kEndBytes - i)
        continue;
      const Directory found{at<uint32_t>(tail, i + 16), at<uint32_t>(tail, i + 12),
                            at<uint16_t>(tail, i + 10)};
      const bool large = found.offset == kIn64 || found.bytes == kIn64 || found.count == 0xffff;
      return large && i >= kLocatorBytes ? find64(tail.substr(i - kLocatorBytes, kLocatorBytes)) : found;
    }
    fail("it is none: it has no end record");
  }

  Directory find64(std::string_view locator) const {
    const auto offset = at<uint64_t>(locator, 8);
    if (at<uint32_t>(locator, 0) != kLocator64 || file_.size() < kEnd64Bytes ||
        offset > file_.size() - kEnd64Bytes)
      fail("its end record is damaged");
    const std::string end = bytes(offset, kEnd64Bytes);
    if (at<uint32_t>(end, 0) != kEnd64) fail("its end record is damaged");
    return {at<uint64_t>(end, 48), at<uint64_t>(end, 40), at<uint64_t>(end, 32)};
  }

  /// The entry at `next` of the list; its offset is that of its local header.
  ZipEntry entry(std::string_view list, size_t& next) const {
    if (list.size() - next < kCentralBytes || at<uint32_t>(list, next) != kCentral)
      fail("its list of entries is damaged");
    const std::string_view e = list.substr(next);
    const size_t name = at<uint16_t>(e, 28), extra = at<uint16_t>(e, 30), comment = at<uint16_t>(e, 32);
    if (e.size() < kCentralBytes + name + extra + comment) fail("its list of entries is damaged");
    next += kCentralBytes + name + extra + comment;
    ZipEntry result{std::string(e.substr(kCentralBytes, name)), at<uint32_t>(e, 42), at<uint32_t>(e, 24),
                    at<uint32_t>(e, 16)};
    const std::string shown = detail::quoted(result.name);
    uint64_t packed = at<uint32_t>(e, 20);
    read_extra64(e.substr(kCentralBytes + name, extra), result, packed);
    if (at<uint16_t>(e, 8) & 1) fail(shown, " is encrypted");
    if (at<uint16_t>(e, 10) != 0)
      fail(shown, " is compressed, which heed does not read; numpy.savez does not compress");
    if (packed != result.bytes) fail(shown, " has two sizes, ", packed, " and ", result.bytes);
    return result;
  }

  /// The numbers that do not fit 32 bits stand in an extra field, in this order.
  void read_extra64(std::string_view extra, ZipEntry& entry, uint64_t& packed) const {
    while (extra.size() >= 4) {
      const size_t size = at<uint16_t>(extra, 2);
      if (size > extra.size() - 4) fail("an extra field of ", detail::quoted(entry.name), " is damaged");
      std::string_view field = extra.substr(4, size);
      if (at<uint16_t>(extra, 0) == 1)
        for (uint64_t* const number : {&entry.bytes, &packed, &entry.offset})
          if (*number == kIn64 && field.size() >= 8) {
            *number = at<uint64_t>(field, 0);
            field.remove_prefix(8);
          }
      extra.remove_prefix(4 + size);
    }
  }

  uint64_t data_of(const ZipEntry& entry) const {
    if (file_.size() < kLocalBytes || entry.offset > file_.size() - kLocalBytes)
      fail(detail::quoted(entry.name), " lies beyond the end of the file");
    const std::string local = bytes(entry.offset, kLocalBytes);
    const uint64_t before = entry.offset + kLocalBytes + at<uint16_t>(local, 26) + at<uint16_t>(local, 28);
    if (at<uint32_t>(local, 0) != kLocal || before > file_.size() || entry.bytes > file_.size() - before)
      fail(detail::quoted(entry.name), " lies beyond the end of the file");
    return before;
  }

  void check_apart(const std::vector<ZipEntry>& entries) const {
    std::vector<const ZipEntry*> order;
    for (const ZipEntry& e : entries)
      if (e.bytes > 0) order.push_back(&e);
    std::sort(order.begin(), order.end(),
              [](const ZipEntry* a, const ZipEntry* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i]->offset - order[i - 1]->offset < order[i - 1]->bytes)
        fail(detail::quoted(order[i - 1]->name), " and ", detail::quoted(order[i]->name), " overlap");
  }

  const InputFile& file_;
};

}  // namespace

uint32_t crc32(const void* data, size_t bytes, uint32_t crc) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  const auto* from = static_cast<const uint8_t*>(data);
  crc = ~crc;
  for (size_t i = 0; i < bytes; ++i) crc = kTable[(crc ^ from[i]) & 0xff] ^ crc >> 8;
  return ~crc;
}

ZipReader::ZipReader(const std::string& path) : file_(path), entries_(DirectoryReader(file_).entries()) {}

std::string ZipReader::read(const ZipEntry& entry) const {
  std::string data(entry.bytes, '\0');
  file_.read_at(entry.offset, {reinterpret_cast<std::byte*>(data.data()), data.size()});
  HEED_CHECK(crc32(data.data(), data.size()) == entry.crc, CheckpointError, "ZIP archive '", path(),
             "': ", detail::quoted(entry.name), " does not have its CRC: the file is damaged");
  return data;
}

void ZipWriter::add(const std::string& name, std::string_view head, const void* data, size_t bytes) {
  const uint64_t size = head.size() + bytes;
  HEED_CHECK(name.size() <= 0xffff && count_ < 0xffff - 1, ConfigError, "ZIP archive '", file_.path(),
             "': too many entries, or too long a name");
  HEED_CHECK(end_ + size + directory_.size() + 4 * name.size() + 4096 < kIn64, ConfigError, "ZIP archive '",
             file_.path(), "' would have 4 GiB; safetensors files may");
  std::string fields;                 // that both headers have
  put<uint16_t>(fields, 20);          // version needed
  put<uint16_t>(fields, 1 << 11);     // names are UTF-8
  put<uint16_t>(fields, 0);           // stored
  put<uint32_t>(fields, 0x00210000);  // 1980-01-01
  put<uint32_t>(fields, crc32(data, bytes, crc32(head.data(), head.size())));
  put<uint32_t>(fields, static_cast<uint32_t>(size));
  put<uint32_t>(fields, static_cast<uint32_t>(size));
  put<uint16_t>(fields, static_cast<uint16_t>(name.size()));
  put<uint16_t>(fields, 0);  // no extra field
  put<uint32_t>(directory_, kCentral);
  put<uint16_t>(directory_, 20);
  directory_ += fields;
  put<uint16_t>(directory_, 0);  // comment
  put<uint16_t>(directory_, 0);  // disk
  put<uint16_t>(directory_, 0);
  put<uint32_t>(directory_, 0);
  put<uint32_t>(directory_, static_cast<uint32_t>(end_));
  directory_ += name;
  std::string local;
  put<uint32_t>(local, kLocal);
  local += fields + name;
  file_.write(local);
  file_.write(head);
  file_.write(data, bytes);
  end_ += local.size() + size;
  ++count_;
}

void ZipWriter::commit() {
  std::string end;
  put<uint32_t>(end, kEnd);
  put<uint32_t>(end, 0);
  put<uint16_t>(end, count_);
  put<uint16_t>(end, count_);
  put<uint32_t>(end, static_cast<uint32_t>(directory_.size()));
  put<uint32_t>(end, static_cast<uint32_t>(end_));
  put<uint16_t>(end, 0);
  file_.write(directory_);
  file_.write(end);
  file_.commit();
}

}  // namespace heed
