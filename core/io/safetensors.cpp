#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

#include <heed/core/io/detail/json_scanner.h>
#include <heed/core/io/detail/stored_type.h>
#include <heed/core/io/safetensors.h>

namespace heed {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data are little-endian");

constexpr uint64_t kChunk = 1 << 18;  // read and hashed at a time, while still in the cache

SafetensorsHeader read_header(const InputFile& file, Checksums checksums) {
  std::byte first[8];
  const size_t known = std::min<uint64_t>(file.size(), sizeof first);
  file.read_at(0, {first, known});
  const uint64_t length = safetensors_header_length({first, known}, file.size(), file.path());
  const auto json = std::make_unique_for_overwrite<std::byte[]>(length);
  file.read_at(8, {json.get(), length});
  return parse_safetensors_header({json.get(), length}, file.size(), file.path(), checksums);
}

/// Gets the data of a tensor, as the file has them, from `read(offset in the tensor, bytes)` chunk by chunk,
/// and checks them.
template <class Read>
void read_checked(const InputFile& file, const SafetensorsHeader& header, const TensorEntry& entry,
                  bool verify, Read&& read) {
  Sha256 hash;
  const uint64_t bytes = entry.end - entry.begin;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t now = std::min(kChunk, bytes - done);
    const std::span<const std::byte> chunk = read(done, now);
    if (verify) hash.update(chunk.data(), chunk.size());
    if (entry.readable() && entry.dtype == DType::boolean) {
      const auto bad = std::find_if(chunk.begin(), chunk.end(), [](std::byte b) { return b > std::byte{1}; });
      HEED_CHECK(bad == chunk.end(), CheckpointError, "safetensors file '", file.path(), "': tensor ",
                 detail::quoted(entry.name), " is BOOL, but element ",
                 done + static_cast<uint64_t>(bad - chunk.begin()), " is neither 0 nor 1");
    }
    done += now;
  }
  if (!verify) return;
  const auto index = static_cast<size_t>(header.find(entry.name) - header.tensors.data());
  HEED_CHECK(hash.finish() == header.digests[index], CheckpointError, "safetensors file '", file.path(),
             "': the data of tensor ", detail::quoted(entry.name),
             " do not have their checksum: the file is damaged");
}

template <class T, class Convert>
void count_special(std::span<const std::byte> bytes, TensorSummary& summary, Convert convert) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    summary.nan += std::isnan(convert(value));
    summary.infinite += std::isinf(convert(value));
  }
}

void count_special(std::string_view type, std::span<const std::byte> bytes, TensorSummary& summary) {
  if (type == "F64") count_special<double>(bytes, summary, [](double x) { return x; });
  if (type == "F32") count_special<float>(bytes, summary, [](float x) { return x; });
  if (type == "BF16")
    count_special<bfloat16>(bytes, summary, [](bfloat16 x) { return static_cast<float>(x); });
  if (type == "F16") count_special<uint16_t>(bytes, summary, detail::from_half);
}

/// Reads `bytes` bytes of elements that become wider in memory, from `offset` in the file, through `chunk`.
void read_widened(const InputFile& file, const TensorEntry& entry, uint64_t offset,
                  std::span<std::byte> chunk, uint64_t first, std::byte* to) {
  file.read_at(offset, chunk);
  const size_t count = entry.stored->elements(chunk.size());
  const size_t good = detail::widen(*entry.stored, chunk.data(), count,
                                    to + first * static_cast<uint64_t>(size_of(entry.dtype)));
  HEED_CHECK(good == count, CheckpointError, "safetensors file '", file.path(), "': tensor ",
             detail::quoted(entry.name), " is ", entry.stored_name(), ", and its element ", first + good,
             " is larger than 2^63 - 1");
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path, Checksums checksums)
    : file_(path), checksums_(checksums), header_(read_header(file_, checksums)) {}

const TensorEntry& SafetensorsReader::at(std::string_view name) const {
  if (const TensorEntry* entry = header_.find(name)) return *entry;
  std::string names;
  for (size_t i = 0; i < std::min<size_t>(header_.tensors.size(), 20); ++i)
    names += (i ? ", " : "") + detail::quoted(header_.tensors[i].name);
  throw CheckpointError(concat("safetensors file '", path(), "' has no tensor ", detail::quoted(name),
                               "; it has ", header_.tensors.size(), ": ", names,
                               header_.tensors.size() > 20 ? ", …" : ""));
}

const TensorEntry& SafetensorsReader::own_entry(const TensorEntry& wanted) const {
  const TensorEntry* own = header_.find(wanted.name);
  HEED_CHECK(own && own->begin == wanted.begin && own->end == wanted.end, StateError, "cannot read tensor ",
             detail::quoted(wanted.name), ": it is not an entry of '", path(), "'");
  HEED_CHECK(own->readable(), CheckpointError, "safetensors file '", path(), "': tensor ",
             detail::quoted(own->name), " has dtype ", own->stored_name(),
             ", which heed does not read; convert it to F32, BF16 or F16");
  return *own;
}

void SafetensorsReader::read(const TensorEntry& wanted, void* out, uint64_t out_bytes) const {
  const TensorEntry& entry = own_entry(wanted);
  HEED_CHECK(out_bytes == entry.bytes(), ShapeError, "cannot read tensor ", detail::quoted(entry.name),
             " of '", path(), "': it has ", entry.bytes(), " bytes, and there is room for ", out_bytes);
  const bool verify = checksums_ == Checksums::verify && !header_.digests.empty();
  auto* to = static_cast<std::byte*>(out);
  const uint64_t from = header_.data_start + entry.begin;
  if (entry.stored && entry.stored->widened) {
    const auto buffer =
        std::make_unique_for_overwrite<std::byte[]>(std::min(kChunk, entry.end - entry.begin));
    return read_checked(file_, header_, entry, verify, [&](uint64_t done, uint64_t now) {
      const std::span<std::byte> chunk(buffer.get(), now);
      read_widened(file_, entry, from + done, chunk, entry.stored->elements(done), to);
      return chunk;
    });
  }
  if (!verify && entry.dtype != DType::boolean) return file_.read_at(from, {to, entry.bytes()});
  read_checked(file_, header_, entry, verify, [&](uint64_t done, uint64_t now) {
    const std::span<std::byte> chunk(to + done, now);
    file_.read_at(from + done, chunk);
    return chunk;
  });
}

void SafetensorsReader::read_elements(const TensorEntry& wanted, uint64_t first, uint64_t count,
                                      void* out) const {
  const TensorEntry& entry = own_entry(wanted);
  const bool widened = entry.stored && entry.stored->widened;
  const uint64_t element =
      (widened ? static_cast<uint64_t>(entry.stored->bits) / 8 : static_cast<uint64_t>(size_of(entry.dtype)));
  HEED_CHECK(is_floating(entry.dtype) && first <= (entry.end - entry.begin) / element &&
                 count <= (entry.end - entry.begin) / element - first,
             IndexError, "cannot read elements ", first, " to ", first + count, " of tensor ",
             detail::quoted(entry.name), " of '", path(), "'");
  auto* const to = static_cast<std::byte*>(out);
  const uint64_t from = header_.data_start + entry.begin + first * element, bytes = count * element;
  if (!widened) return file_.read_at(from, {to, bytes});
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(kChunk, bytes));
  for (uint64_t done = 0; done < bytes; done += kChunk)
    read_widened(file_, entry, from + done, {buffer.get(), std::min(kChunk, bytes - done)}, done / element,
                 to);
}

void SafetensorsReader::check_digest(const TensorEntry& wanted) const {
  const TensorEntry& entry = own_entry(wanted);
  if (checksums_ == Checksums::ignore || header_.digests.empty()) return;
  const uint64_t from = header_.data_start + entry.begin;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kChunk);
  read_checked(file_, header_, entry, true, [&](uint64_t done, uint64_t now) {
    const std::span<std::byte> chunk(buffer.get(), now);
    file_.read_at(from + done, chunk);
    return chunk;
  });
}

std::vector<TensorSummary> verify_safetensors(const std::string& path) {
  const InputFile file(path);
  const SafetensorsHeader header = read_header(file, Checksums::verify);
  std::byte brace;
  file.read_at(8, {&brace, 1});
  HEED_CHECK(brace == std::byte{'{'}, CheckpointError, "safetensors file '", path,
             "': the header must begin with '{', not with space, at byte 8");
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kChunk);
  std::vector<TensorSummary> summaries;
  for (const TensorEntry& entry : header.tensors) {
    TensorSummary& summary = summaries.emplace_back();
    summary.name = entry.name;
    summary.elements = static_cast<int64_t>(entry.stored->elements(entry.end - entry.begin));
    read_checked(file, header, entry, !header.digests.empty(), [&](uint64_t done, uint64_t now) {
      const std::span<std::byte> chunk(buffer.get(), now);
      file.read_at(header.data_start + entry.begin + done, chunk);
      count_special(entry.stored_name(), chunk, summary);
      return chunk;
    });
  }
  return summaries;
}

}  // namespace heed
