#include <algorithm>
#include <numeric>

#include <heed/core/io/detail/json_scanner.h>
#include <heed/core/io/detail/stored_type.h>
#include <heed/core/io/safetensors.h>

namespace heed {
namespace {

using detail::quoted;

constexpr char kMetadata[] = "__metadata__";
constexpr size_t kHex = 64;  // digits of a digest

class HeaderParser {
 public:
  HeaderParser(std::string_view json, uint64_t file_size, std::string_view file)
      : json_(json), data_bytes_(file_size - 8 - json.size()), file_(file), in_(json, file, 8) {
    header_.data_start = 8 + json.size();
    constexpr size_t kShortestTensor = 50;  // bytes of JSON
    header_.tensors.reserve(std::min(kMaxTensors, json.size() / kShortestTensor));
  }

  SafetensorsHeader parse(Checksums checksums) {
    in_.expect('{', {"at the start of the header"});
    if (!in_.accept('}')) {
      do parse_member();
      while (in_.accept(','));
      in_.expect('}', {"or ',' after a tensor"});
    }
    in_.skip_space();
    if (!in_.at_end()) in_.fail("unexpected text after the header's closing '}'");
    sort_by_name();
    check_layout();
    if (checksum_at_ > 0) parse_checksums(checksums);
    return std::move(header_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw CheckpointError(concat("safetensors file '", file_, "': ", parts...));
  }

  void parse_member() {
    std::string name = in_.string(kMaxTensorName, {"a tensor's name"});
    in_.expect(':', {"after a name"});
    if (name == kMetadata) return parse_metadata();
    if (header_.tensors.size() == kMaxTensors) in_.fail("more than ", kMaxTensors, " tensors");
    parse_tensor(std::move(name));
  }

  void parse_metadata() {
    if (has_metadata_) in_.fail(kMetadata, " occurs twice");
    has_metadata_ = true;
    in_.expect('{', {"after __metadata__"});
    if (in_.accept('}')) return;
    size_t bytes = 0;
    do {
      std::string key = in_.string(kMaxMetadataBytes, {"a key of __metadata__"});
      in_.expect(':', {"after a key of __metadata__"});
      in_.skip_space();
      const size_t value_at = in_.position() + 1;
      std::string value = in_.string(kMaxMetadataBytes, {"a value of __metadata__"});
      bytes += key.size() + value.size();
      if (bytes > kMaxMetadataBytes) in_.fail("__metadata__ holds more than ", kMaxMetadataBytes, " bytes");
      if (key == kChecksumKey) {
        checksum_at_ = value_at;
        checksum_bytes_ = in_.position() - 1 - value_at;
      }
      if (header_.metadata.size() == kMaxMetadataEntries)
        in_.fail("__metadata__ has more than ", kMaxMetadataEntries, " entries");
      if (!header_.metadata.emplace(key, std::move(value)).second)
        in_.fail("the key ", quoted(key), " of __metadata__ occurs twice");
    } while (in_.accept(','));
    in_.expect('}', {"or ',' after a value of __metadata__"});
  }

  void parse_tensor(std::string name) {
    TensorEntry& tensor = header_.tensors.emplace_back();
    tensor.name = std::move(name);
    const detail::Place label{"", tensor.name};
    bool has_dtype = false, has_shape = false, has_offsets = false;
    in_.expect('{', {"for", tensor.name});
    do {
      const std::string key = in_.string(kMaxTensorName, {"a field of a tensor"});
      bool* seen = key == "dtype"          ? &has_dtype
                   : key == "shape"        ? &has_shape
                   : key == "data_offsets" ? &has_offsets
                                           : nullptr;
      if (!seen)
        in_.fail(label, " has an unknown field ", quoted(key), " (expected dtype, shape, data_offsets)");
      if (*seen) in_.fail(label, ": ", key, " occurs twice");
      *seen = true;
      in_.expect(':', {"after a field of", tensor.name});
      if (seen == &has_dtype) parse_dtype(tensor, label);
      if (seen == &has_shape) parse_shape(tensor, label);
      if (seen == &has_offsets) parse_offsets(tensor, label);
    } while (in_.accept(','));
    in_.expect('}', {"or ',' in", tensor.name});
    if (!has_dtype || !has_shape || !has_offsets)
      in_.fail(label, " has no ", !has_dtype ? "dtype" : !has_shape ? "shape" : "data_offsets");
    check_size(tensor, label);
  }

  /// What cannot be read is an error only for who wants to read it.
  void parse_dtype(TensorEntry& tensor, const detail::Place& label) {
    const std::string text = in_.string(64, {"a dtype"});
    tensor.stored = detail::find_stored_type(text);
    if (!tensor.stored) in_.fail(label, " has the unknown dtype ", quoted(text));
    if (tensor.stored->read_as) tensor.dtype = *tensor.stored->read_as;
  }

  void parse_shape(TensorEntry& tensor, const detail::Place& label) {
    in_.expect('[', {"for the shape of", tensor.name});
    if (in_.accept(']')) return;
    do {
      if (tensor.shape.size() == static_cast<size_t>(kMaxRank))
        in_.fail(label, " has more than ", kMaxRank, " dimensions");
      tensor.shape.push_back(static_cast<int64_t>(in_.whole_number({"a size in the shape of", tensor.name})));
    } while (in_.accept(','));
    in_.expect(']', {"or ',' in the shape of", tensor.name});
  }

  void parse_offsets(TensorEntry& tensor, const detail::Place& label) {
    in_.expect('[', {"for data_offsets of", tensor.name});
    tensor.begin = in_.whole_number({"data_offsets of", tensor.name});
    in_.expect(',', {"between the two data_offsets of", tensor.name});
    tensor.end = in_.whole_number({"data_offsets of", tensor.name});
    in_.expect(']', {"after the two data_offsets of", tensor.name});
    if (tensor.begin > tensor.end)
      in_.fail("data_offsets [", tensor.begin, ", ", tensor.end, "] of ", label, " end before they begin");
  }

  void check_size(const TensorEntry& tensor, const detail::Place& label) {
    const auto bits = static_cast<uint64_t>(tensor.stored->bits);
    const std::optional<uint64_t> elements = detail::checked_elements(tensor.shape);
    // Only types of less than a byte can end within one.
    const uint64_t per_byte = bits < 8 ? 8 : 1;
    const std::optional<uint64_t> parts =
        elements ? detail::checked_product(*elements, bits < 8 ? bits : bits / 8) : std::nullopt;
    const uint64_t in_memory = tensor.stored->read_as ? static_cast<uint64_t>(size_of(tensor.dtype)) : 1;
    if (!parts || !detail::checked_product(*elements, in_memory))
      in_.fail(label, " of shape ", detail::shape_text(tensor.shape), " and dtype ", tensor.stored->name,
               " has more than 2^63 - 1 bytes");
    if (*parts % per_byte != 0)
      in_.fail(label, " of shape ", detail::shape_text(tensor.shape), " and dtype ", tensor.stored->name,
               " ends within a byte");
    const uint64_t bytes = *parts / per_byte, span = tensor.end - tensor.begin;
    if (bytes != span)
      in_.fail(label, " of shape ", detail::shape_text(tensor.shape), " and dtype ", tensor.stored->name,
               " needs ", bytes, " bytes, but its data_offsets [", tensor.begin, ", ", tensor.end, "] span ",
               span);
  }

  void sort_by_name() {
    std::sort(header_.tensors.begin(), header_.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end < b.end : a.name < b.name;
    });
    header_.by_name.resize(header_.tensors.size());
    std::iota(header_.by_name.begin(), header_.by_name.end(), 0u);
    const auto name_of = [&](uint32_t i) -> const std::string& { return header_.tensors[i].name; };
    std::sort(header_.by_name.begin(), header_.by_name.end(),
              [&](uint32_t a, uint32_t b) { return name_of(a) < name_of(b); });
    for (size_t i = 1; i < header_.by_name.size(); ++i)
      if (name_of(header_.by_name[i - 1]) == name_of(header_.by_name[i]))
        fail("tensor ", quoted(name_of(header_.by_name[i])), " occurs twice");
  }

  /// The tensors must cover the data section exactly: no hole, no overlap, nothing after the last.
  void check_layout() const {
    uint64_t covered = 0;
    const TensorEntry* last = nullptr;
    for (const TensorEntry& tensor : header_.tensors) {
      if (tensor.end > data_bytes_)
        fail("tensor ", quoted(tensor.name), " ends at byte ", tensor.end, " of the data, which have ",
             data_bytes_, "; is the file truncated?");
      if (tensor.begin < covered)
        fail("tensors ", quoted(last->name), " [", last->begin, ", ", last->end, ") and ",
             quoted(tensor.name), " [", tensor.begin, ", ", tensor.end, ") overlap");
      if (tensor.begin > covered)
        fail("bytes ", covered, " to ", tensor.begin, " of the data, before tensor ", quoted(tensor.name),
             ", belong to no tensor");
      covered = tensor.end;
      last = &tensor;
    }
    if (covered != data_bytes_)
      fail(data_bytes_ - covered, " bytes follow ",
           last ? "the last tensor " + quoted(last->name) : "the header", " and belong to no tensor");
  }

  void parse_checksums(Checksums checksums) {
    const std::string& hex = header_.metadata[kChecksumKey];
    const size_t count = header_.tensors.size() + 1;
    if (hex.size() != checksum_bytes_ || hex.size() != count * kHex ||
        hex.find_first_not_of("0123456789abcdef") != std::string::npos)
      fail(kChecksumKey, " must be ", count, " digests of ", kHex, " lower-case hexadecimal digits");
    if (checksums == Checksums::ignore) return;
    Sha256 hash;
    uint8_t length[8];
    for (size_t i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(uint64_t{json_.size()} >> (8 * i));
    const std::string zeros(checksum_bytes_, '0');
    const size_t after = checksum_at_ + checksum_bytes_;
    hash.update(length, 8);
    hash.update(json_.data(), checksum_at_);
    hash.update(zeros.data(), zeros.size());
    hash.update(json_.data() + after, json_.size() - after);
    if (to_hex(hash.finish()) != hex.substr(0, kHex))
      fail(
          "the header does not have its checksum: the file is damaged, or was edited by a program that kept "
          "the "
          "metadata entry '",
          kChecksumKey, "'");
    for (size_t i = 1; i < count; ++i)
      header_.digests.push_back(from_hex(std::string_view(hex).substr(i * kHex, kHex)));
  }

  static Sha256::Digest from_hex(std::string_view hex) {
    const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    Sha256::Digest digest;
    for (size_t i = 0; i < digest.size(); ++i)
      digest[i] = static_cast<uint8_t>(value(hex[2 * i]) * 16 + value(hex[2 * i + 1]));
    return digest;
  }

  std::string_view json_;
  uint64_t data_bytes_;
  std::string_view file_;
  detail::JsonScanner in_;
  SafetensorsHeader header_;
  bool has_metadata_ = false;
  size_t checksum_at_ = 0;  // where the digits of kChecksumKey begin in json_; 0 without
  size_t checksum_bytes_ = 0;
};

/// What the first bytes say the file is, if not safetensors; empty if they say nothing.
std::string foreign_format(std::string_view first) {
  struct Magic {
    std::string_view bytes;
    const char* kind;
  };
  using namespace std::string_view_literals;
  static constexpr Magic kMagic[] = {
      {"PK\x03\x04"sv, "a zip archive, as torch.save writes (.pt, .pth)"},
      {"GGUF"sv, "a GGUF file"},
      {"\x1f\x8b"sv, "gzip-compressed; unpack it first"},
      {"\x89HDF"sv, "an HDF5 file"},
      {"\x93NUMPY"sv, "a NumPy array"},
      {"version "sv, "a Git LFS pointer; fetch the file itself with 'git lfs pull'"},
      {"<!DOCTYP"sv, "an HTML page"},
      {"{"sv, "JSON text; the 8-byte length is missing"},
  };
  for (const Magic& magic : kMagic)
    if (first.starts_with(magic.bytes)) return magic.kind;
  if (first.size() >= 2 && first[0] == '\x80' && first[1] >= 2 && first[1] <= 5)
    return "a Python pickle, as older torch.save writes; heed never executes one";
  // A protobuf whose first fields are ir_version (1, a small number) and producer_name (2, a string).
  if (first.size() >= 3 && first[0] == '\x08' && first[1] > 0 && first[1] < 32 && first[2] == '\x12')
    return "an ONNX model";
  return "";
}

}  // namespace

uint64_t safetensors_header_length(std::span<const std::byte> first, uint64_t file_size,
                                   std::string_view file) {
  const std::string_view text(reinterpret_cast<const char*>(first.data()), first.size());
  const auto refuse = [&](const std::string& reason) {
    const std::string kind = foreign_format(text);
    throw CheckpointError(
        concat("'", file, "' is not a safetensors file: ", kind.empty() ? reason : "it looks like " + kind));
  };
  if (file_size < 8 || first.size() < 8)
    refuse(concat("it has ", file_size, " bytes, fewer than the 8 of the header's length"));
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<uint8_t>(first[i]);
  if (length < 2) refuse(concat("its header has ", length, " bytes, fewer than the 2 of '{}'"));
  if (length > kMaxHeaderBytes)
    refuse(concat("its header would have ", length, " bytes, more than the limit of ", kMaxHeaderBytes));
  if (length > file_size - 8)
    refuse(concat("its header would have ", length, " bytes, but only ", file_size - 8,
                  " follow; is it truncated?"));
  return length;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> json, uint64_t file_size,
                                           std::string_view file, Checksums checksums) {
  HEED_CHECK(file_size >= 8 && json.size() <= file_size - 8, CheckpointError, "safetensors file '", file,
             "': a header of ", json.size(), " bytes does not fit a file of ", file_size);
  HEED_CHECK(json.size() <= kMaxHeaderBytes, CheckpointError, "safetensors file '", file, "': a header of ",
             json.size(), " bytes, more than the limit of ", kMaxHeaderBytes);
  const std::string_view text(reinterpret_cast<const char*>(json.data()), json.size());
  return HeaderParser(text, file_size, file).parse(checksums);
}

bool TensorEntry::readable() const { return !stored || stored->read_as; }

uint64_t TensorEntry::bytes() const {
  if (!readable()) return 0;
  return stored && stored->widened ? stored->elements(end - begin) * static_cast<uint64_t>(size_of(dtype))
                                   : end - begin;
}

const char* TensorEntry::stored_name() const {
  return stored ? stored->name : detail::safetensors_dtype(dtype);
}

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name.begin(), by_name.end(), name,
                                   [&](uint32_t i, std::string_view key) { return tensors[i].name < key; });
  return at != by_name.end() && tensors[*at].name == name ? &tensors[*at] : nullptr;
}

namespace detail {

const char* safetensors_dtype(DType dtype) { return stored_type(dtype).name; }

std::optional<uint64_t> checked_product(uint64_t a, uint64_t b) {
  if (b != 0 && a > static_cast<uint64_t>(INT64_MAX) / b) return std::nullopt;
  return a * b;
}

std::optional<uint64_t> checked_elements(std::span<const int64_t> shape) {
  std::optional<uint64_t> product = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
    } else if (product) {
      product = checked_product(*product, static_cast<uint64_t>(size));
    }
  }
  return product && empty ? 0 : product;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace detail
}  // namespace heed
