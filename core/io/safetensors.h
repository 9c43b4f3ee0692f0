// safetensors: named tensors in a file that PyTorch, JAX and others read too. A file is an 8-byte
// little-endian length N, N bytes of JSON that place each tensor, and the data.
//
// Reading takes nothing on trust: every size is checked against the file before memory is asked for, names
// are never paths, and one that breaks a rule of the format is refused with a CheckpointError saying where.
// Files of heed's own carry SHA-256 digests (kChecksumKey) of the header and of each tensor, which reading
// verifies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/base/dtype.h>
#include <heed/core/base/strided.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/io/file.h>
#include <heed/core/io/sha256.h>

namespace heed {

namespace detail {
struct StoredType;
}

struct TensorSpec {
  std::string name = {};
  DType dtype = DType::f32;
  std::vector<int64_t> shape = {};

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// A tensor of a file. Its data are the bytes [begin, end) of the data section, row-major. `dtype` is what
/// reading gives: the file's own type, or a wider one that holds each of its values: f32 for F16, i32 for
/// I16, I8, U16 and U8, i64 for U32 and U64.
struct TensorEntry : TensorSpec {
  uint64_t begin = 0;
  uint64_t end = 0;
  const detail::StoredType* stored = nullptr;  // the file's type; null: that of `dtype`

  /// False for a type that heed does not read (of 8 bits and fewer in floating point, complex): `dtype` then
  /// means nothing.
  bool readable() const;
  /// Of the data once read; 0 if they cannot be.
  uint64_t bytes() const;
  /// The name that the file gives its type, such as "F16".
  const char* stored_name() const;
};

/// The metadata entry with heed's checksums: the SHA-256 of the header (the 8 length bytes and the JSON, with
/// the digits of this very value as '0') and of each tensor's data in the order of the file, 64 hexadecimal
/// digits each. Other programs ignore it; one that edits a file must drop it.
inline constexpr char kChecksumKey[] = "heed.sha256";

/// What the reader accepts at most, beyond what the format itself says.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxMetadataBytes = 1 << 20;
inline constexpr size_t kMaxMetadataEntries = 10'000;
inline constexpr size_t kMaxTensors = 1'000'000;
inline constexpr size_t kMaxTensorName = 4096;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // in the order of their data
  std::map<std::string, std::string> metadata;  // "__metadata__"
  uint64_t data_start = 0;                      // where the data section begins in the file
  std::vector<Sha256::Digest> digests;          // one for each tensor, or none
  std::vector<uint32_t> by_name;                // positions in `tensors`, sorted by name

  /// The tensor of that name, or null.
  const TensorEntry* find(std::string_view name) const;
};

enum class Checksums { verify, ignore };

/// The length N of the JSON header, from the first bytes of a file (eight, or all where there are fewer).
/// CheckpointError if N cannot be; it says so when the file is of another well-known kind.
uint64_t safetensors_header_length(std::span<const std::byte> first, uint64_t file_size,
                                   std::string_view file);

/// Parses and checks the JSON header (without the 8 bytes before it) of a file of `file_size` bytes. `file`
/// stands in the messages. CheckpointError if any rule is broken, or if checksums.verify finds the header
/// changed.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> json, uint64_t file_size,
                                           std::string_view file, Checksums checksums = Checksums::verify);

/// A file open for reading; the header is read once, from a private copy.
class SafetensorsReader {
 public:
  /// IoError if the file cannot be read, CheckpointError if it is no sound safetensors file.
  explicit SafetensorsReader(const std::string& path, Checksums checksums = Checksums::verify);

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }

  /// The tensor of that name; CheckpointError listing what there is if it is missing.
  const TensorEntry& at(std::string_view name) const;

  /// Reads the data of `entry`, one of header().tensors, into `out`, which has bytes() bytes, as elements of
  /// its dtype. CheckpointError if heed does not read its type, or if the data do not have their digest, are
  /// bool and hold a byte other than 0 and 1, or are U64 and hold more than 2^63 - 1; `out` is then
  /// unspecified.
  void read(const TensorEntry& entry, void* out, uint64_t out_bytes) const;

  /// The same of `count` elements from number `first` on, of a floating type, without a look at the digest.
  void read_elements(const TensorEntry& entry, uint64_t first, uint64_t count, void* out) const;
  /// CheckpointError if the data do not have their digest.
  void check_digest(const TensorEntry& entry) const;

 private:
  const TensorEntry& own_entry(const TensorEntry& wanted) const;

  InputFile file_;
  Checksums checksums_;
  SafetensorsHeader header_;
};

struct TensorSummary {
  std::string name;
  int64_t elements = 0;
  int64_t nan = 0;       // elements that are not a number
  int64_t infinite = 0;  // elements that are + or - infinity
};

/// Reads the whole file and checks everything, the digests and that the header begins with '{' included.
std::vector<TensorSummary> verify_safetensors(const std::string& path);

struct SaveOptions {
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  bool checksums = true;  // write kChecksumKey
  bool read_back = true;  // before the rename, read the file again and compare
};

/// Writes a safetensors file tensor by tensor, in any order; see AtomicFile for what an interruption leaves.
/// Tensors are placed by falling element size, so that each is aligned to its element.
class SafetensorsWriter {
 public:
  /// ConfigError if a name is empty, used twice, not UTF-8 or reserved, or metadata are too large; ShapeError
  /// for an impossible shape; IoError if the file cannot be created.
  SafetensorsWriter(const std::string& path, std::span<const TensorSpec> tensors, SaveOptions options = {});

  /// Writes the data of tensors[i], which have `bytes` bytes. Each tensor once.
  void write(size_t i, const void* data, uint64_t bytes);

  /// Makes the file appear under its name; StateError if a tensor was not written.
  void commit();

 private:
  void write_header();

  AtomicFile file_;
  SaveOptions options_;
  std::vector<TensorEntry> entries_;                    // in file order
  std::vector<size_t> place_;                           // place_[i]: where tensors[i] stands in entries_
  std::vector<std::optional<Sha256::Digest>> digests_;  // set when written
  uint64_t data_start_ = 0;
};

/// A tensor to save: `data` has the elements of `spec`, row-major, on the CPU.
struct TensorData {
  TensorSpec spec;
  const void* data = nullptr;
};

/// Writes all of them at once.
void save_safetensors(const std::string& path, std::span<const TensorData> tensors, SaveOptions options = {});

/// Checks that the file has exactly the expected tensors, in shape and kind of element (floating types
/// convert into each other, F16 too), before anything is loaded. CheckpointError with every missing,
/// unexpected and mismatched one (the first 20 of each and their number).
void match_tensors(const SafetensorsHeader& header, std::span<const TensorSpec> expected,
                   std::string_view file);

/// The number under `key` of the metadata; CheckpointError if it is missing, no number, or outside
/// [oldest, newest], the versions this build reads.
int64_t read_format_version(const SafetensorsHeader& header, const std::string& key, int64_t oldest,
                            int64_t newest, std::string_view file);

namespace detail {
/// The name the format gives a type: "F32", "BF16", "F64", "I64", "I32" or "BOOL".
const char* safetensors_dtype(DType dtype);
/// Elements of `shape`; nothing if a size is negative or the product, zeros left out, exceeds 2^63 - 1.
std::optional<uint64_t> checked_elements(std::span<const int64_t> shape);
/// a * b, or nothing if that exceeds 2^63 - 1.
std::optional<uint64_t> checked_product(uint64_t a, uint64_t b);
/// "[2, 3]"
std::string shape_text(std::span<const int64_t> shape);
/// "\n  missing (2): a, b", at most 20 of them; empty if there are none.
std::string listed(const char* what, const std::vector<std::string>& items);
}  // namespace detail

}  // namespace heed
