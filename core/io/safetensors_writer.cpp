#include <algorithm>
#include <numeric>

#include <heed/core/base/utf8.h>
#include <heed/core/io/detail/json_scanner.h>
#include <heed/core/io/safetensors.h>

namespace heed {
namespace {

using detail::quoted;

void check_spec(const TensorSpec& spec, const std::string& path) {
  HEED_CHECK(!spec.name.empty() && spec.name.size() <= kMaxTensorName && spec.name != "__metadata__" &&
                 !invalid_utf8(spec.name) && spec.name.find('\0') == std::string::npos,
             ConfigError, "cannot save '", path, "': ", quoted(spec.name),
             " cannot name a tensor (1 to 4096 bytes of UTF-8 without NUL, and not __metadata__)");
  HEED_CHECK(spec.shape.size() <= static_cast<size_t>(kMaxRank), ShapeError, "cannot save '", path,
             "': tensor ", quoted(spec.name), " has ", spec.shape.size(), " dimensions, more than ",
             kMaxRank);
  const std::optional<uint64_t> elements = detail::checked_elements(spec.shape);
  HEED_CHECK(elements && detail::checked_product(*elements, static_cast<uint64_t>(size_of(spec.dtype))),
             ShapeError, "cannot save '", path, "': tensor ", quoted(spec.name), " has the impossible shape ",
             detail::shape_text(spec.shape));
}

void check_names(std::span<const TensorSpec> tensors, const std::string& path) {
  HEED_CHECK(tensors.size() <= kMaxTensors, ConfigError, "cannot save '", path, "': ", tensors.size(),
             " tensors, more than ", kMaxTensors);
  std::vector<std::string_view> names;
  for (const TensorSpec& spec : tensors) {
    check_spec(spec, path);
    names.push_back(spec.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  HEED_CHECK(twice == names.end(), ConfigError, "cannot save '", path, "': the name ", quoted(*twice),
             " is used twice");
}

void check_metadata(const SaveOptions& options, size_t tensors, const std::string& path) {
  size_t bytes = options.checksums ? sizeof kChecksumKey - 1 + 64 * (tensors + 1) : 0;
  for (const auto& entry : options.metadata) {
    bytes += entry.first.size() + entry.second.size();
    for (const std::string* text : {&entry.first, &entry.second})
      HEED_CHECK(!invalid_utf8(*text) && text->find('\0') == std::string::npos, ConfigError, "cannot save '",
                 path, "': metadata ", quoted(entry.first), " is not UTF-8 without NUL");
  }
  HEED_CHECK(options.metadata.size() < kMaxMetadataEntries, ConfigError, "cannot save '", path,
             "': ", options.metadata.size(), " entries of metadata, at most ", kMaxMetadataEntries - 1);
  HEED_CHECK(options.metadata.count(kChecksumKey) == 0, ConfigError, "cannot save '", path,
             "': the metadata key '", kChecksumKey, "' is heed's own");
  HEED_CHECK(bytes <= kMaxMetadataBytes, ConfigError, "cannot save '", path, "': ", bytes,
             " bytes of metadata, more than ", kMaxMetadataBytes,
             options.checksums ? "; without checksums there is more room" : "");
}

void append_json(std::string& out, std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string header_json(const std::vector<TensorEntry>& entries,
                        const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& entry : metadata) {
      if (json.back() != '{') json += ',';
      append_json(json, entry.first);
      json += ':';
      append_json(json, entry.second);
    }
    json += '}';
  }
  for (const TensorEntry& entry : entries) {
    if (json.size() > 1) json += ',';
    append_json(json, entry.name);
    json += concat(":{\"dtype\":\"", detail::safetensors_dtype(entry.dtype), "\",\"shape\":[");
    for (size_t i = 0; i < entry.shape.size(); ++i) json += (i ? "," : "") + std::to_string(entry.shape[i]);
    json += concat("],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  return json;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::span<const TensorSpec> tensors,
                                     SaveOptions options)
    : file_((check_names(tensors, path), check_metadata(options, tensors.size(), path), path)),
      options_(std::move(options)),
      place_(tensors.size()),
      digests_(tensors.size()) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size_of(tensors[a].dtype) > size_of(tensors[b].dtype); });
  uint64_t end = 0;
  for (const size_t i : order) {
    const uint64_t bytes =
        *detail::checked_elements(tensors[i].shape) * static_cast<uint64_t>(size_of(tensors[i].dtype));
    HEED_CHECK(bytes <= static_cast<uint64_t>(INT64_MAX) - end, ShapeError, "cannot save '", path,
               "': the tensors have more than 2^63 - 1 bytes together");
    place_[i] = entries_.size();
    entries_.push_back({tensors[i], end, end + bytes});
    end += bytes;
  }
  if (options_.checksums) options_.metadata[kChecksumKey] = std::string(64 * (tensors.size() + 1), '0');
  const size_t length = header_json(entries_, options_.metadata).size();
  HEED_CHECK(length <= kMaxHeaderBytes, ConfigError, "cannot save '", path, "': the header has ", length,
             " bytes, more than ", kMaxHeaderBytes);
  data_start_ = 8 + length;
}

void SafetensorsWriter::write(size_t i, const void* data, uint64_t bytes) {
  HEED_CHECK(i < place_.size(), IndexError, "cannot save '", file_.path(), "': there is no tensor ", i,
             " of ", place_.size());
  const TensorEntry& entry = entries_[place_[i]];
  std::optional<Sha256::Digest>& digest = digests_[place_[i]];
  HEED_CHECK(bytes == entry.bytes(), ShapeError, "cannot save '", file_.path(), "': tensor ",
             quoted(entry.name), " of shape ", detail::shape_text(entry.shape), " has ", entry.bytes(),
             " bytes, not ", bytes);
  HEED_CHECK(!digest, StateError, "cannot save '", file_.path(), "': tensor ", quoted(entry.name),
             " was already written");
  file_.write_at(data_start_ + entry.begin, data, bytes);
  digest = options_.checksums ? sha256(data, bytes) : Sha256::Digest{};
}

void SafetensorsWriter::write_header() {
  uint8_t length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>((data_start_ - 8) >> (8 * i));
  std::string json = header_json(entries_, options_.metadata);
  if (options_.checksums) {
    Sha256 hash;
    hash.update(length, 8);
    hash.update(json.data(), json.size());
    std::string& checksums = options_.metadata[kChecksumKey];
    checksums = to_hex(hash.finish());
    for (const auto& digest : digests_) checksums += to_hex(*digest);
    json = header_json(entries_, options_.metadata);
  }
  HEED_ASSERT(json.size() == data_start_ - 8, "the header changed its length");
  file_.write(length, 8);
  file_.write(json);
}

void SafetensorsWriter::commit() {
  for (size_t i = 0; i < entries_.size(); ++i)
    HEED_CHECK(digests_[i], StateError, "cannot save '", file_.path(), "': tensor ", quoted(entries_[i].name),
               " was not written");
  write_header();
  if (options_.read_back) {
    file_.sync();
    verify_safetensors(file_.temporary_path());
  }
  file_.commit();
}

void save_safetensors(const std::string& path, std::span<const TensorData> tensors, SaveOptions options) {
  std::vector<TensorSpec> specs;
  for (const TensorData& tensor : tensors) specs.push_back(tensor.spec);
  SafetensorsWriter writer(path, specs, std::move(options));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes =
        *detail::checked_elements(specs[i].shape) * static_cast<uint64_t>(size_of(specs[i].dtype));
    HEED_CHECK(tensors[i].data || bytes == 0, StateError, "cannot save '", path, "': tensor ",
               quoted(specs[i].name), " has no data");
    writer.write(i, tensors[i].data, bytes);
  }
  writer.commit();
}

}  // namespace heed
