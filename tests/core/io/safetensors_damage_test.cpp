// Damaged and hostile files: never a crash, never an allocation that the file's own size does not justify.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>

#include <gtest/gtest.h>

#include "../../support/expect_error.h"
#include "../../support/temporary_folder.h"
#include "safetensors_bytes.h"

namespace {
std::atomic<size_t> now{0};
std::atomic<size_t> peak{0};

void* allocate(size_t bytes) {
  void* p = std::malloc(bytes);
  const size_t total = now += malloc_usable_size(p);
  size_t seen = peak;
  while (total > seen && !peak.compare_exchange_weak(seen, total)) {
  }
  return p;
}

void release(void* p) {
  now -= malloc_usable_size(p);
  std::free(p);
}
}  // namespace

// Every allocation of this program is counted.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void* operator new(size_t bytes) {
  void* p = allocate(bytes);
  if (!p) throw std::bad_alloc();
  return p;
}
void operator delete(void* p) noexcept { release(p); }
void operator delete(void* p, size_t) noexcept { release(p); }

namespace heed::test {
namespace {

/// The most bytes that `call` had allocated at a time.
template <class Call>
size_t peak_of(Call&& call) {
  const size_t before = now;
  peak = before;
  call();
  return peak - before;
}

std::string small_file(const TemporaryFolder& folder) {
  const float a[] = {1, 2, 3};
  const int64_t b[] = {4};
  const TensorData tensors[] = {{{"a.weight", DType::f32, {3}}, a}, {{"b", DType::i64, {1}}, b}};
  save_safetensors(folder.file("small"), tensors, {{{"format", "pt"}, {"step", "100"}}});
  return folder.get("small");
}

/// Everything a file says but its checksums, as one string; throws if it is refused.
std::string content(const std::string& path) {
  const SafetensorsReader reader(path);
  std::string all;
  for (const auto& entry : reader.header().metadata)
    if (entry.second.size() < 64) all += entry.first + "=" + entry.second + ";";
  for (const TensorEntry& entry : reader.header().tensors) {
    std::string bytes(entry.bytes(), '\0');
    reader.read(entry, bytes.data(), bytes.size());
    all += entry.name + name(entry.dtype) + detail::shape_text(entry.shape) + bytes;
  }
  return all;
}

/// Inverts one bit of a file in place.
void flip(const std::string& path, size_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(static_cast<char>(byte ^ (1 << bit % 8)));
}

TEST(SafetensorsDamage, TruncationIsFoundAtEveryByte) {
  const TemporaryFolder folder;
  const std::string whole = small_file(folder);
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string path = folder.put("cut", whole.substr(0, length));
    EXPECT_THROW(SafetensorsReader reader(path), CheckpointError) << length;
  }
  EXPECT_THROW(parse_bytes(whole + "x"), CheckpointError);
}

TEST(SafetensorsDamage, EveryFlippedBitIsFoundOrHarmless) {
  const TemporaryFolder folder;
  const std::string whole = small_file(folder);
  const std::string path = folder.file("small");
  const std::string sound = content(path);
  size_t undetected = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    flip(path, bit);
    try {
      EXPECT_EQ(content(path), sound) << "bit " << bit;  // a flip in the checksums' own key only hides them
      ++undetected;
    } catch (const CheckpointError&) {
    }
    flip(path, bit);
  }
  EXPECT_LE(undetected, 8 * (sizeof kChecksumKey - 1));
}

TEST(SafetensorsDamage, WithoutChecksumsNoFlipCrashes) {
  const TemporaryFolder folder;
  const float a[] = {1, 2, 3};
  const TensorData tensor{{"a", DType::f32, {3}}, a};
  save_safetensors(folder.file("plain"), {&tensor, 1}, {{{"format", "pt"}}, false, true});
  const std::string path = folder.file("plain");
  const std::string whole = folder.get("plain");
  size_t refused = 0;
  for (size_t bit = 0; bit < 8 * (whole.size() - sizeof a); ++bit) {
    flip(path, bit);
    try {
      content(path);
    } catch (const CheckpointError&) {
      ++refused;
    }
    flip(path, bit);
  }
  EXPECT_GT(refused, 4 * (whole.size() - sizeof a));  // the rest renames tensors or metadata
}

TEST(SafetensorsDamage, AChangedTensorIsNamed) {
  const TemporaryFolder folder;
  std::string damaged = small_file(folder);
  damaged.back() ^= 1;  // the last byte belongs to a.weight, which stands after the wider b
  const SafetensorsReader reader(folder.put("damaged", damaged));
  float a[3];
  int64_t b = 0;
  reader.read(reader.at("b"), &b, 8);
  EXPECT_EQ(b, 4);
  expect_error<CheckpointError>([&] { reader.read(reader.at("a.weight"), a, 12); },
                                {"'a.weight'", "checksum", "damaged"});
  expect_error<CheckpointError>([&] { verify_safetensors(folder.file("damaged")); }, {"'a.weight'"});
  const SafetensorsReader trusting(folder.file("damaged"), Checksums::ignore);
  trusting.read(trusting.at("a.weight"), a, 12);
  EXPECT_EQ(a[0], 1);
}

TEST(SafetensorsDamage, HostileSizesAllocateNothing) {
  const TemporaryFolder folder;
  const std::string huge_header = folder.put("header", length_bytes(99'999'999) + "{}");
  const std::string huge_tensor = folder.put(
      "tensor",
      file_bytes(R"({"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}})", 8));
  const std::string bomb = folder.put(
      "bomb",
      file_bytes(
          R"({"a":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904,0],"data_offsets":[0,0]}})",
          0));
  for (const std::string& path : {huge_header, huge_tensor, bomb}) {
    const size_t used = peak_of([&] { EXPECT_THROW(SafetensorsReader reader(path), CheckpointError); });
    EXPECT_LE(used, 16'384u) << path;
  }
}

TEST(SafetensorsDamage, MemoryStaysWithinFourTimesTheHeader) {
  const TemporaryFolder folder;
  std::string short_names = "{", high_ranks = "{", metadata = R"({"__metadata__":{)";
  for (int i = 0; i < 50'000; ++i) {
    const std::string comma = i ? "," : "";
    short_names +=
        concat(comma, '"', i, R"(":{"dtype":"F32","shape":[],"data_offsets":[)", 4 * i, ",", 4 * i + 4, "]}");
    high_ranks +=
        concat(comma, '"', i, R"(":{"dtype":"F32","shape":[0,0,0,0,0,0,0,0],"data_offsets":[0,0]})");
  }
  for (int i = 0; i < 9'000; ++i) metadata += concat(i ? "," : "", '"', i, R"(":"")");
  short_names += "}";
  high_ranks += "}";
  metadata += "}}";
  const std::pair<const std::string*, size_t> headers[] = {
      {&short_names, 200'000}, {&high_ranks, 0}, {&metadata, 0}};
  for (const auto& header : headers) {
    const std::string path = folder.put("f", file_bytes(*header.first, header.second));
    const size_t used = peak_of([&] { SafetensorsReader reader(path); });
    EXPECT_LE(used, 4 * header.first->size() + (1 << 20)) << header.first->substr(0, 60);
  }
}

}  // namespace
}  // namespace heed::test
