#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include <heed/core/base/check.h>
#include <heed/core/base/strided.h>
#include <heed/core/io/detail/gguf_type.h>
#include <heed/core/io/detail/json_scanner.h>
#include <heed/core/io/gguf.h>
#include <heed/core/io/safetensors.h>

namespace heed {
namespace {

constexpr uint64_t kChunk = 1 << 18;

enum ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, flag, text, array, u64, i64, f64 };
constexpr uint64_t kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // at least

/// Takes the head of a file from its beginning on, through a buffer.
class HeadReader {
 public:
  explicit HeadReader(const InputFile& file) : file_(file) {}

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw CheckpointError(concat("GGUF file '", file_.path(), "': ", parts..., ", at byte ", position_));
  }

  uint64_t position() const { return position_; }
  uint64_t left() const { return file_.size() - position_; }

  template <class T>
  T number() {
    T value;
    take({reinterpret_cast<std::byte*>(&value), sizeof value});
    return value;
  }
  std::string string(const char* what, uint64_t most = std::numeric_limits<uint64_t>::max()) {
    const auto length = number<uint64_t>();
    if (length > most) fail(what, " has ", length, " bytes, more than ", most);
    if (length > left()) fail(what, " is longer than the file");
    std::string out(length, '\0');
    take({reinterpret_cast<std::byte*>(out.data()), out.size()});
    return out;
  }

 private:
  void take(std::span<std::byte> out) {
    if (out.size() > left()) fail("the file ends within its head");
    while (!out.empty()) {
      if (position_ - start_ >= buffer_.size()) {
        start_ = position_;
        buffer_.resize(std::min(kChunk, left()));
        file_.read_at(start_, buffer_);
      }
      const size_t at = position_ - start_, now = std::min(out.size(), buffer_.size() - at);
      std::memcpy(out.data(), buffer_.data() + at, now);
      out = out.subspan(now);
      position_ += now;
    }
  }

  const InputFile& file_;
  uint64_t position_ = 0, start_ = 0;
  std::vector<std::byte> buffer_;
};

double floating(HeadReader& in, uint32_t type) {
  return type == f32 ? static_cast<double>(in.number<float>()) : in.number<double>();
}

int64_t integer(HeadReader& in, uint32_t type) {
  switch (type) {
    case u8:
      return in.number<uint8_t>();
    case i8:
      return in.number<int8_t>();
    case u16:
      return in.number<uint16_t>();
    case i16:
      return in.number<int16_t>();
    case u32:
      return in.number<uint32_t>();
    case i32:
      return in.number<int32_t>();
    case flag: {
      const auto value = in.number<uint8_t>();
      if (value > 1) in.fail("a flag is ", int{value}, ", neither 0 nor 1");
      return value;
    }
    case i64:
      return in.number<int64_t>();
    default: {
      const auto value = in.number<uint64_t>();
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        in.fail("the number ", value, " is larger than 2^63 - 1");
      return static_cast<int64_t>(value);
    }
  }
}

template <class T, class Next>
std::vector<T> values(uint64_t count, Next next) {
  std::vector<T> result;
  result.reserve(count);
  for (uint64_t i = 0; i < count; ++i) result.push_back(next());
  return result;
}

GgufValue array_value(HeadReader& in) {
  const auto type = in.number<uint32_t>();
  const auto count = in.number<uint64_t>();
  if (type > f64) in.fail("an array has elements of the unknown type ", type);
  if (type == array) in.fail("an array of arrays");
  if (count > in.left() / kValueBytes[type]) in.fail("an array of ", count, " elements exceeds the file");
  if (type == text) return values<std::string>(count, [&] { return in.string("a text of an array"); });
  if (type == f32 || type == f64) return values<double>(count, [&] { return floating(in, type); });
  return values<int64_t>(count, [&] { return integer(in, type); });
}

GgufValue metadata_value(HeadReader& in) {
  const auto type = in.number<uint32_t>();
  if (type > f64) in.fail("a value has the unknown type ", type);
  if (type == array) return array_value(in);
  if (type == text) return in.string("a text");
  if (type == f32 || type == f64) return floating(in, type);
  const int64_t value = integer(in, type);
  return type == flag ? GgufValue(value == 1) : GgufValue(value);
}

GgufTensor tensor_info(HeadReader& in) {
  GgufTensor tensor;
  tensor.name = in.string("the name of a tensor", kMaxGgufName);
  const auto rank = in.number<uint32_t>();
  if (rank == 0 || rank > 4) in.fail(detail::quoted(tensor.name), " has ", rank, " axes; expected 1 to 4");
  for (uint32_t i = 0; i < rank; ++i) {
    const auto size = in.number<uint64_t>();
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      in.fail(detail::quoted(tensor.name), " has an axis of ", size);
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const auto id = in.number<uint32_t>();
  tensor.type = detail::find_gguf_type(id);
  if (!tensor.type) in.fail(detail::quoted(tensor.name), " has the unknown type ", id);
  const auto block = static_cast<uint64_t>(tensor.type->elements);
  const std::optional<uint64_t> elements = detail::checked_elements(tensor.shape);
  if (static_cast<uint64_t>(tensor.shape.back()) % block != 0)
    in.fail(detail::quoted(tensor.name), " is ", tensor.type->name, ", but its rows of ", tensor.shape.back(),
            " are no multiple of ", block);
  const std::optional<uint64_t> bytes =
      elements ? detail::checked_product(*elements / block, tensor.type->bytes) : std::nullopt;
  if (!bytes || !detail::checked_product(*elements, sizeof(float)))
    in.fail(detail::quoted(tensor.name), " of shape ", detail::shape_text(tensor.shape), " is too large");
  tensor.bytes = *bytes;
  tensor.offset = in.number<uint64_t>();
  return tensor;
}

// From offsets in the data section to offsets in the file, none of which may leave it or meet another's.
void place_tensors(HeadReader& in, std::vector<GgufTensor>& tensors, uint64_t alignment, uint64_t size) {
  const uint64_t start = (in.position() + alignment - 1) / alignment * alignment;
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t i = 0; i < tensors.size(); ++i) {
    GgufTensor& t = tensors[i];
    if (t.offset % alignment != 0)
      in.fail(detail::quoted(t.name), " begins at ", t.offset, ", no multiple of ", alignment);
    if (start > size || t.offset > size - start || t.bytes > size - start - t.offset)
      in.fail(detail::quoted(t.name), " lies beyond the end of the file, which has ", size, " bytes");
    t.offset += start;
    if (t.bytes > 0) order.emplace_back(t.offset, i);
  }
  std::sort(order.begin(), order.end());
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor &a = tensors[order[i - 1].second], &b = tensors[order[i].second];
    if (a.offset + a.bytes > b.offset)
      in.fail(detail::quoted(a.name), " and ", detail::quoted(b.name), " overlap");
  }
}

}  // namespace

int64_t GgufTensor::elements() const { return static_cast<int64_t>(bytes / type->bytes) * type->elements; }
const char* GgufTensor::type_name() const { return type->name; }
bool GgufTensor::readable() const { return type->read != nullptr; }

GgufReader::GgufReader(const std::string& path) : file_(path) {
  HeadReader in(file_);
  if (file_.size() < 24 || in.number<uint32_t>() != 0x46554747) in.fail("it does not begin with 'GGUF'");
  const auto version = in.number<uint32_t>();
  if (version != 2 && version != 3)
    in.fail("it is version ", version, (version & 0xffff) == 0 ? ", or big-endian" : "",
            "; heed reads versions 2 and 3, little-endian");
  const auto tensors = in.number<uint64_t>(), entries = in.number<uint64_t>();
  constexpr uint64_t kMinTensor = 32, kMinEntry = 13;  // bytes
  if (tensors > std::min(kMaxGgufTensors, in.left() / kMinTensor)) in.fail("it claims ", tensors, " tensors");
  if (entries > std::min(kMaxGgufMetadata, in.left() / kMinEntry))
    in.fail("it claims ", entries, " entries of metadata");
  for (uint64_t i = 0; i < entries; ++i) {
    std::string key = in.string("a key", kMaxGgufName);
    if (!metadata_.emplace(key, metadata_value(in)).second)
      in.fail("the key ", detail::quoted(key), " occurs twice");
  }
  for (uint64_t i = 0; i < tensors; ++i) tensors_.push_back(tensor_info(in));
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (!by_name_.emplace(tensors_[i].name, i).second)
      in.fail("the tensor ", detail::quoted(tensors_[i].name), " occurs twice");
  uint64_t alignment = 32;
  if (metadata_.contains("general.alignment")) {
    const int64_t* const value = this->value<int64_t>("general.alignment");
    if (!value || *value <= 0 || *value > 1 << 20 || *value % 8 != 0)
      in.fail("general.alignment must be a multiple of 8, up to 1048576");
    alignment = static_cast<uint64_t>(*value);
  }
  place_tensors(in, tensors_, alignment, file_.size());
}

const GgufTensor* GgufReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void GgufReader::read(const GgufTensor& tensor, float* out) const { read(tensor, 0, tensor.elements(), out); }

void GgufReader::read(const GgufTensor& tensor, int64_t first, int64_t count, float* out) const {
  HEED_CHECK(find(tensor.name) == &tensor, StateError, "cannot read tensor ", detail::quoted(tensor.name),
             ": it is not one of '", path(), "'");
  const detail::GgufType& type = *tensor.type;
  HEED_CHECK(type.read, CheckpointError, "GGUF file '", path(), "': tensor ", detail::quoted(tensor.name),
             " is ", type.name,
             ", which heed does not read; it reads F32, F16, BF16, F64, Q4_0, Q4_1, Q8_0, ", "Q4_K and Q6_K");
  HEED_CHECK(first >= 0 && count >= 0 && first <= tensor.elements() && count <= tensor.elements() - first &&
                 first % type.elements == 0 && count % type.elements == 0,
             IndexError, "cannot read ", count, " elements from number ", first, " on of tensor ",
             detail::quoted(tensor.name), " of '", path(), "', which has ", tensor.elements(),
             " in blocks of ", type.elements);
  const auto blocks = static_cast<uint64_t>(count / type.elements);
  const uint64_t at_once = std::min(blocks, kChunk / type.bytes);
  const uint64_t start = tensor.offset + static_cast<uint64_t>(first / type.elements) * type.bytes;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(at_once * type.bytes);
  for (uint64_t done = 0; done < blocks;) {
    const uint64_t now = std::min(at_once, blocks - done);
    file_.read_at(start + done * type.bytes, {buffer.get(), now * type.bytes});
    for (uint64_t i = 0; i < now; ++i, out += type.elements) type.read(buffer.get() + i * type.bytes, out);
    done += now;
  }
}

}  // namespace heed
