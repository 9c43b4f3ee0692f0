#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include <heed/core/creation.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/io/detail/json_scanner.h>
#include <heed/core/io/detail/stored_type.h>
#include <heed/core/io/safetensors.h>
#include <heed/core/io/zip.h>
#include <heed/core/numpy.h>

namespace heed {
namespace {

using detail::StoredType;

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kLongestHeader = 1 << 16;

constexpr std::pair<const char*, const char*> kTypes[] = {
    {"<f8", "F64"}, {"<f4", "F32"}, {"<f2", "F16"}, {"<i8", "I64"}, {"<i4", "I32"}, {"<i2", "I16"},
    {"|i1", "I8"},  {"<u8", "U64"}, {"<u4", "U32"}, {"<u2", "U16"}, {"|u1", "U8"},  {"|b1", "BOOL"}};

struct Header {
  std::string descr;
  bool column_major = false;
  std::vector<int64_t> shape;
};

/// Takes the header, a literal of a Python dict with three known keys.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Header parse() {
    Header header;
    std::set<std::string> keys;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      if (!keys.insert(key).second) fail(detail::quoted(key), " occurs twice");
      expect(':');
      if (key == "descr")
        header.descr = string();
      else if (key == "fortran_order")
        header.column_major = boolean();
      else if (key == "shape")
        header.shape = shape();
      else
        fail("it has the unknown key ", detail::quoted(key));
      if (!accept(',') && !next_is('}')) fail("it is damaged");
    }
    skip_space();
    if (!text_.empty() || keys.size() != 3) fail("it needs descr, fortran_order and shape, and nothing else");
    return header;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw CheckpointError(concat("'", file_, "': the header of the array: ", parts...));
  }
  void skip_space() { text_.remove_prefix(std::min(text_.find_first_not_of(" \n"), text_.size())); }
  bool next_is(char c) {
    skip_space();
    return !text_.empty() && text_[0] == c;
  }
  bool accept(char c) {
    if (!next_is(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail("'", c, "' is missing");
  }
  std::string string() {
    expect('\'');
    const size_t end = text_.find('\'');
    if (end == text_.npos) fail("a text does not end");
    const std::string value(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return value;
  }
  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"})
      if (text_.starts_with(word)) {
        text_.remove_prefix(word.size());
        return word == "True";
      }
    fail("fortran_order is neither True nor False");
  }
  std::vector<int64_t> shape() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      if (sizes.size() == static_cast<size_t>(kMaxRank)) fail("the array has more than ", kMaxRank, " axes");
      sizes.push_back(number());
      if (!accept(',') && !next_is(')')) fail("the shape is damaged");
    }
    return sizes;
  }
  int64_t number() {
    skip_space();
    int64_t value = 0;
    size_t digits = 0;
    for (; digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9'; ++digits) {
      if (value > (std::numeric_limits<int64_t>::max() - 9) / 10) fail("a size is too large");
      value = value * 10 + (text_[digits] - '0');
    }
    if (digits == 0) fail("a size is no number");
    text_.remove_prefix(digits);
    return value;
  }

  std::string_view text_;
  const std::string& file_;
};

/// The header, and the data after it.
std::pair<Header, std::string_view> split(std::string_view bytes, const std::string& file) {
  const auto check = [&](bool holds, const char* what) {
    HEED_CHECK(holds, CheckpointError, "'", file, "': ", what);
  };
  check(bytes.size() >= 12 && bytes.starts_with(kMagic), "it is no NumPy array");
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
  check(byte(6) >= 1 && byte(6) <= 3, "the version of NumPy's format is unknown");
  const bool first = byte(6) == 1;
  const size_t begin = first ? 10 : 12;
  const size_t length = byte(8) | byte(9) << 8 | (first ? 0 : byte(10) << 16 | byte(11) << 24);
  check(length <= kLongestHeader && length <= bytes.size() - begin, "the header is too long");
  return {HeaderParser(bytes.substr(begin, length), file).parse(), bytes.substr(begin + length)};
}

const StoredType& type_of(const std::string& descr, const std::string& file) {
  for (const auto& entry : kTypes)
    if (descr == entry.first) return *detail::find_stored_type(entry.second);
  throw CheckpointError(concat("'", file, "': the type ", detail::quoted(descr),
                               " is none that heed reads; it reads <f2, <f4, <f8, integers and |b1"));
}

const char* descr_of(DType dtype) {
  for (const auto& entry : kTypes)
    if (std::string_view(detail::safetensors_dtype(dtype)) == entry.second) return entry.first;
  throw InternalError("descr_of: NumPy has no such type");
}

std::string header_of(const Tensor& tensor) {
  std::string text = concat("{'descr': '", descr_of(tensor.dtype()), "', 'fortran_order': False, 'shape': (");
  for (int i = 0; i < tensor.rank(); ++i)
    text += concat(tensor.size(i), i == 0 || i + 1 < tensor.rank() ? "," : "");
  text += "), }";
  constexpr size_t kBefore = 10, kAlignment = 64;
  text.append(kAlignment - 1 - (kBefore + text.size()) % kAlignment, ' ');
  text += '\n';
  std::string out(kMagic);
  out += {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return out + text;
}

Tensor writable(const Tensor& tensor) {
  const Tensor host = tensor.detach().to(kCpu);
  return (host.dtype() == DType::bf16 ? host.to(DType::f32) : host).contiguous();
}

size_t bytes_of(const Tensor& tensor) {
  return static_cast<size_t>(tensor.numel() * size_of(tensor.dtype()));
}

}  // namespace

Tensor parse_npy(std::string_view bytes, const std::string& file) {
  auto [header, data] = split(bytes, file);
  const StoredType& type = type_of(header.descr, file);
  const std::optional<uint64_t> elements = detail::checked_elements(header.shape);
  const std::optional<uint64_t> size =
      elements ? detail::checked_product(*elements, static_cast<uint64_t>(type.bits / 8)) : std::nullopt;
  HEED_CHECK(size == data.size(), CheckpointError, "'", file, "': an array of shape ",
             detail::shape_text(header.shape), " and type ", header.descr, " does not have ", data.size(),
             " bytes");
  if (header.column_major) std::reverse(header.shape.begin(), header.shape.end());
  const Tensor tensor = empty(Shape(std::span<const int64_t>(header.shape)), {*type.read_as, kCpu});
  const auto* from = reinterpret_cast<const std::byte*>(data.data());
  auto* const to = static_cast<std::byte*>(tensor.raw_data());
  if (type.widened) {
    HEED_CHECK(detail::widen(type, from, *elements, to) == *elements, CheckpointError, "'", file,
               "': a number is larger than 2^63 - 1");
  } else {
    if (!data.empty()) std::memcpy(to, from, data.size());
  }
  if (*type.read_as == DType::boolean)
    HEED_CHECK(std::all_of(data.begin(), data.end(), [](char c) { return c == 0 || c == 1; }),
               CheckpointError, "'", file, "': an element of type |b1 is neither 0 nor 1");
  if (!header.column_major || tensor.rank() < 2) return tensor;
  Shape axes = tensor.shape();
  for (int i = 0; i < tensor.rank(); ++i) axes[i] = tensor.rank() - 1 - i;
  return tensor.permute(axes).contiguous();
}

Tensor load_npy(const std::string& path) {
  return parse_npy(read_whole_file(path, std::numeric_limits<int64_t>::max()), path);
}

NamedTensors load_npz(const std::string& path) {
  const ZipReader zip(path);
  NamedTensors result;
  for (const ZipEntry& entry : zip.entries()) {
    HEED_CHECK(entry.name.ends_with(".npy"), CheckpointError, "'", path, "': ", detail::quoted(entry.name),
               " is no array: its name does not end in .npy");
    result.emplace_back(entry.name.substr(0, entry.name.size() - 4),
                        parse_npy(zip.read(entry), concat(path, ":", entry.name)));
  }
  return result;
}

void save_npy(const std::string& path, const Tensor& tensor) {
  const Tensor host = writable(tensor);
  AtomicFile file(path);
  file.write(header_of(host));
  file.write(host.raw_data(), bytes_of(host));
  file.commit();
}

void save_npz(const std::string& path, const NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& entry : tensors)
    HEED_CHECK(!entry.first.empty() && entry.first.find('/') == std::string::npos &&
                   names.insert(entry.first).second,
               ConfigError, "save_npz: ", detail::quoted(entry.first),
               " cannot be a name: names are not empty, have no '/' and differ");
  ZipWriter zip(path);
  for (const auto& entry : tensors) {
    const Tensor host = writable(entry.second);
    zip.add(entry.first + ".npy", header_of(host), host.raw_data(), bytes_of(host));
  }
  zip.commit();
}

}  // namespace heed
