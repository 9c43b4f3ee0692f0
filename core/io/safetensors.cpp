#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

#include <heed/core/io/detail/json_scanner.h>
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

/// Hands the data of a tensor to `use(chunk, offset in the tensor)` as they are read, and checks them.
template <class Use>
void read_checked(const InputFile& file, const SafetensorsHeader& header, const TensorEntry& entry,
                  bool verify, Use&& use) {
  Sha256 hash;
  for (uint64_t done = 0; done < entry.bytes();) {
    const uint64_t now = std::min(kChunk, entry.bytes() - done);
    const std::span<const std::byte> chunk = use(done, now);
    if (verify) hash.update(chunk.data(), chunk.size());
    if (entry.dtype == DType::boolean) {
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

template <class T>
void count_special(std::span<const std::byte> bytes, TensorSummary& summary) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    if constexpr (std::is_same_v<T, double>) {
      summary.nan += std::isnan(value);
      summary.infinite += std::isinf(value);
    } else {
      summary.nan += std::isnan(static_cast<float>(value));
      summary.infinite += std::isinf(static_cast<float>(value));
    }
  }
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

void SafetensorsReader::read(const TensorEntry& entry, void* out, uint64_t out_bytes) const {
  const TensorEntry* own = header_.find(entry.name);
  HEED_CHECK(own && own->begin == entry.begin && own->end == entry.end, StateError, "cannot read tensor ",
             detail::quoted(entry.name), ": it is not an entry of '", path(), "'");
  HEED_CHECK(out_bytes == entry.bytes(), ShapeError, "cannot read tensor ", detail::quoted(entry.name),
             " of '", path(), "': it has ", entry.bytes(), " bytes, and there is room for ", out_bytes);
  const bool verify = checksums_ == Checksums::verify && !header_.digests.empty();
  auto* to = static_cast<std::byte*>(out);
  if (!verify && entry.dtype != DType::boolean)
    return file_.read_at(header_.data_start + entry.begin, {to, entry.bytes()});
  read_checked(file_, header_, entry, verify, [&](uint64_t done, uint64_t now) {
    const std::span<std::byte> chunk(to + done, now);
    file_.read_at(header_.data_start + entry.begin + done, chunk);
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
    summary.elements = static_cast<int64_t>(entry.bytes()) / size_of(entry.dtype);
    read_checked(file, header, entry, !header.digests.empty(), [&](uint64_t done, uint64_t now) {
      const std::span<std::byte> chunk(buffer.get(), now);
      file.read_at(header.data_start + entry.begin + done, chunk);
      if (entry.dtype == DType::f32) count_special<float>(chunk, summary);
      if (entry.dtype == DType::f64) count_special<double>(chunk, summary);
      if (entry.dtype == DType::bf16) count_special<bfloat16>(chunk, summary);
      return chunk;
    });
  }
  return summaries;
}

}  // namespace heed
