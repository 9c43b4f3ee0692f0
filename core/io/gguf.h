// GGUF: the files of llama.cpp, of named metadata and of tensors that may be quantised in blocks. Nothing is
// taken on trust: every count and size is checked against the file before memory is asked for, and a file
// that breaks a rule of the format is refused with a CheckpointError. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <heed/core/io/file.h>

namespace heed {

namespace detail {
struct GgufType;
}

/// A value of the metadata. Integers and flags of an array are i64, its floating numbers f64.
using GgufValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>>;

/// A tensor of a file, row-major: the last axis is the one that GGUF writes first, and the one whose values
/// blocks hold.
struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;
  const detail::GgufType* type = nullptr;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;   // there

  int64_t elements() const;
  /// The name that GGUF gives its type, such as "Q4_K".
  const char* type_name() const;
  /// Whether read() knows the type.
  bool readable() const;
};

/// What the reader accepts at most, beyond what the format itself says.
inline constexpr uint64_t kMaxGgufTensors = 1'000'000;
inline constexpr uint64_t kMaxGgufMetadata = 100'000;
inline constexpr uint64_t kMaxGgufName = 65535;

/// A file open for reading, of version 2 or 3, little-endian.
class GgufReader {
 public:
  /// Reads the metadata and the list of tensors. IoError if the file cannot be read, CheckpointError if it is
  /// no sound GGUF file.
  explicit GgufReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  /// In the file's order.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// The tensor of that name, or null.
  const GgufTensor* find(std::string_view name) const;

  /// The value under `key` if it is there and of type T, else null.
  template <class T>
  const T* value(std::string_view key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? nullptr : std::get_if<T>(&found->second);
  }

  /// The elements of one of tensors(), dequantised: `out` has room for elements() floats. F32, F16, BF16,
  /// F64, Q4_0, Q4_1, Q8_0, Q4_K and Q6_K; CheckpointError for other types.
  void read(const GgufTensor& tensor, float* out) const;
  /// `count` elements from number `first` on, both multiples of what a block of the type holds (IndexError).
  void read(const GgufTensor& tensor, int64_t first, int64_t count, float* out) const;

 private:
  InputFile file_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, size_t> by_name_;  // of names in tensors_, which never changes
};

}  // namespace heed
