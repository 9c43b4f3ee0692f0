#include <gtest/gtest.h>

#include <heed/core/creation.h>
#include <heed/core/io/zip.h>
#include <heed/core/numpy.h>
#include <heed/core/ops.h>

#include "expect_error.h"
#include "temporary_folder.h"

namespace heed {
namespace {

using test::expect_error;
using test::TemporaryFolder;

std::string npy(const std::string& header, const std::string& data, char version = 1) {
  std::string out("\x93NUMPY", 6);
  out += {version, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  if (version > 1) out += std::string(2, '\0');
  return out + header + data;
}
std::string header(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
}
void expect_refused(const std::string& bytes, std::initializer_list<std::string> pieces) {
  expect_error<CheckpointError>([&] { (void)parse_npy(bytes, "input"); }, pieces);
}

// tests/fixtures/write_pretrained.py, by numpy.savez.
TEST(Numpy, ReadsWhatNumpyWrites) {
  std::map<std::string, Tensor> arrays;
  for (const auto& entry : load_npz(HEED_FIXTURES "/pretrained/arrays.npz")) arrays.insert(entry);
  ASSERT_EQ(arrays.size(), 8u);
  EXPECT_EQ(arrays.at("f4").shape(), (Shape{2, 3}));
  EXPECT_EQ(arrays.at("f4").to_vector<float>(), (std::vector<float>{0, 0.25, 0.5, 0.75, 1, 1.25}));
  EXPECT_EQ(arrays.at("column_major").shape(), (Shape{2, 3}));
  EXPECT_EQ(arrays.at("column_major").to_vector<double>(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(arrays.at("f2").to_vector<float>(), (std::vector<float>{0.5, -2}));
  EXPECT_EQ(arrays.at("i1").to_vector<int32_t>(), (std::vector<int32_t>{-3, 5}));
  EXPECT_EQ(arrays.at("u4").to_vector<int64_t>(), (std::vector<int64_t>{4000000000}));
  EXPECT_EQ(arrays.at("b1").to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(arrays.at("scalar").rank(), 0);
  EXPECT_EQ(arrays.at("scalar").item<double>(), 1.5);
  EXPECT_EQ(arrays.at("empty").shape(), (Shape{0, 4}));
}

TEST(Numpy, WritesWhatItReads) {
  const TemporaryFolder folder;
  const NamedTensors tensors{{"matrix", arange(0.0, 6.0).reshape({2, 3}).transpose(0, 1)},
                             {"f64", tensor({0.1, -0.0}, kCpu)},
                             {"ids", tensor({1, -2})},
                             {"flag", tensor({1, 0}).to(DType::boolean)},
                             {"halves", tensor({0.5f, 3.0f}).to(DType::bf16)},
                             {"scalar", scalar(7)},
                             {"nothing", zeros({3, 0})}};
  save_npz(folder.file("a.npz"), tensors);
  const NamedTensors read = load_npz(folder.file("a.npz"));
  ASSERT_EQ(read.size(), tensors.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].first, tensors[i].first);
    const Tensor& want = tensors[i].second;
    EXPECT_TRUE(array_equal(read[i].second, want.dtype() == DType::bf16 ? want.to(DType::f32) : want))
        << read[i].first;
    EXPECT_EQ(read[i].second.shape(), want.shape());
  }
  save_npy(folder.file("a.npy"), tensors[0].second);
  EXPECT_TRUE(array_equal(load_npy(folder.file("a.npy")), tensors[0].second));
  // NumPy wants the data of an array to begin at a multiple of 64.
  EXPECT_EQ((folder.get("a.npy").size() - 24) % 64, 0u);
}

TEST(Numpy, ArraysThatCannotBe) {
  const std::string four(4, '\0');
  EXPECT_EQ(parse_npy(npy(header("<f4", "(1,)"), four), "input").item<float>(), 0);
  EXPECT_EQ(parse_npy(npy(header("<f4", "(1,)"), four, 2), "input").item<float>(), 0);
  expect_refused("", {"no NumPy array"});
  expect_refused(npy(header("<f4", "(1,)"), four, 4), {"version"});
  expect_refused(npy(header("<f4", "(1,)"), four).substr(0, 40), {"header is too long"});
  expect_refused(npy(header(">f4", "(1,)"), four), {"'>f4' is none that heed reads"});
  expect_refused(npy(header("|O", "(1,)"), four), {"'|O'"});
  expect_refused(npy(header("<f4", "(2,)"), four), {"[2]", "does not have 4 bytes"});
  expect_refused(npy(header("<f4", "(9223372036854775807,)"), four), {"too large"});
  expect_refused(npy(header("<f4", "(4294967296, 4294967296)"), four), {"does not have 4 bytes"});
  expect_refused(npy(header("<f4", "(0, 4294967296, 4294967296)"), ""), {"does not have 0 bytes"});
  expect_refused(npy(header("<f4", "(-1,)"), four), {"a size is no number"});
  expect_refused(npy(header("<f4", "(1 2)"), four), {"shape is damaged"});
  expect_refused(npy("{'descr': '<f4'}", four), {"nothing else"});
  expect_refused(npy("{'descr': '<f4', 'descr': '<f4', 'shape': ()}", four), {"'descr' occurs twice"});
  expect_refused(npy("{'descr': '<f4", four), {"a text does not end"});
  expect_refused(npy("{'x': '<f4'}", four), {"unknown key 'x'"});
  expect_refused(npy(header("|b1", "(1,)"), "\x02"), {"neither 0 nor 1"});
  expect_refused(npy(header("<u8", "(1,)"), std::string(8, '\xff')), {"larger than 2^63 - 1"});
}

TEST(Numpy, ArchivesThatCannotBe) {
  const TemporaryFolder folder;
  expect_error<CheckpointError>([] { load_npz(HEED_FIXTURES "/pretrained/compressed.npz"); },
                                {"'x.npy' is compressed", "savez"});
  const auto refused = [&](const std::string& content, std::initializer_list<std::string> pieces) {
    const std::string path = folder.put("a.npz", content);
    expect_error<CheckpointError>([&] { load_npz(path); }, pieces);
  };
  save_npz(folder.file("sound.npz"), {{"x", tensor({1.0f, 2.0f})}});
  const std::string sound = folder.get("sound.npz");
  refused("", {"no end record"});
  for (size_t bytes = 0; bytes < sound.size(); ++bytes) refused(sound.substr(0, bytes), {"no end record"});
  std::string damaged = sound;
  damaged[sound.find("\x80\x3f")] ^= 1;  // 1.0f
  refused(damaged, {"CRC"});
  ZipWriter twice(folder.file("twice.npz"));
  twice.add("x.npy", "", "", 0);
  twice.add("x.npy", "", "", 0);
  twice.commit();
  refused(folder.get("twice.npz"), {"two entries 'x.npy'"});
  ZipWriter other(folder.file("other.npz"));
  other.add("../x", "", "", 0);
  other.commit();
  refused(folder.get("other.npz"), {"'../x' is no array"});
  for (const char* const name : {"", "a/b"})
    expect_error<ConfigError>(
        [&] {
          save_npz(folder.file("n.npz"), {{name, scalar(1)}});
        },
        {"cannot be a name"});
}

// Every byte of an archive changed in turn: a typed error, or the same arrays (a date, a padding).
TEST(Numpy, AnArchiveWithAWrongByte) {
  const TemporaryFolder folder;
  save_npz(folder.file("sound.npz"), {{"x", tensor({1.0f, 2.0f})}});
  const std::string sound = folder.get("sound.npz");
  size_t refused = 0;
  for (size_t i = 0; i < sound.size(); ++i) {
    std::string damaged = sound;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x41);
    const std::string path = folder.put("a.npz", damaged);
    try {
      const NamedTensors read = load_npz(path);
      if (!read.empty()) {
        EXPECT_EQ(read[0].second.to_vector<float>(), (std::vector<float>{1, 2})) << "byte " << i;
      }
    } catch (const CheckpointError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, sound.size() / 2);
}

}  // namespace
}  // namespace heed
