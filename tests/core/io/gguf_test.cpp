#include <cstring>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/io/gguf.h>
#include <heed/core/io/safetensors.h>

#include "expect_error.h"
#include "gguf_bytes.h"
#include "temporary_folder.h"

namespace heed {
namespace {

using test::bytes_of;
using test::expect_error;
using test::gguf;
using test::gguf_entry;
using test::gguf_string;
using test::gguf_tensor;
using test::TemporaryFolder;
using test::with_data;

constexpr uint32_t kU8 = 0, kU32 = 4, kBool = 7, kText = 8, kArray = 9, kU64 = 10;

void expect_refused(const std::string& content, std::initializer_list<std::string> pieces) {
  const TemporaryFolder folder;
  const std::string path = folder.put("m.gguf", content);
  expect_error<CheckpointError>([&] { GgufReader reader(path); }, pieces);
}

// Each type that is read, against the values that llama.cpp's own Python package makes of the same blocks.
TEST(Gguf, BlocksHaveTheValuesOfTheReference) {
  const GgufReader file(HEED_FIXTURES "/pretrained/blocks.gguf");
  const SafetensorsReader expected(HEED_FIXTURES "/pretrained/blocks.safetensors");
  ASSERT_EQ(file.tensors().size(), 9u);
  ASSERT_EQ(expected.header().tensors.size(), 9u);
  for (const GgufTensor& tensor : file.tensors()) {
    SCOPED_TRACE(tensor.name);
    EXPECT_EQ(tensor.type_name(), tensor.name);
    const TensorEntry& entry = expected.at(tensor.name);
    ASSERT_EQ(tensor.shape, entry.shape);
    std::vector<float> got(static_cast<size_t>(tensor.elements())), want(got.size());
    file.read(tensor, got.data());
    expected.read(entry, want.data(), want.size() * sizeof(float));
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]) << "element " << i;
    // By parts of whole rows.
    const int64_t row = tensor.shape.back();
    std::fill(got.begin(), got.end(), 0.0f);
    for (int64_t first = 0; first < tensor.elements(); first += row)
      file.read(tensor, first, row, got.data() + first);
    EXPECT_EQ(got, want);
    EXPECT_THROW(file.read(tensor, row, tensor.elements(), got.data()), IndexError);
    EXPECT_THROW(file.read(tensor, -row, row, got.data()), IndexError);
    if (tensor.name == "Q4_K") {
      EXPECT_THROW(file.read(tensor, 1, 32, got.data()), IndexError);
    }
  }
}

TEST(Gguf, MetadataAndVocabulary) {
  const GgufReader file(HEED_FIXTURES "/pretrained/llama.gguf");
  EXPECT_EQ(*file.value<std::string>("general.architecture"), "llama");
  EXPECT_EQ(*file.value<int64_t>("llama.block_count"), 2);
  EXPECT_EQ(*file.value<double>("llama.rope.freq_base"), 5000.0);
  EXPECT_EQ(*file.value<bool>("tokenizer.ggml.add_bos_token"), true);
  const auto* tokens = file.value<std::vector<std::string>>("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens);
  ASSERT_EQ(tokens->size(), 19u);
  EXPECT_EQ(tokens->at(18), "<18>");
  EXPECT_EQ(file.value<std::vector<double>>("tokenizer.ggml.scores")->at(3), 1.5);
  EXPECT_EQ(file.value<int64_t>("general.architecture"), nullptr) << "of another type";
  EXPECT_EQ(file.value<int64_t>("nothing"), nullptr);
  EXPECT_EQ(file.find("output.weight")->shape, (std::vector<int64_t>{19, 16}));
  EXPECT_EQ(file.find("nothing"), nullptr);
}

TEST(Gguf, NoFileOfThisKind) {
  expect_refused("", {"does not begin with 'GGUF'"});
  expect_refused(std::string(24, 'G'), {"does not begin with 'GGUF'"});
  expect_refused(gguf(0, 0, "", 1), {"version 1", "2 and 3"});
  expect_refused(gguf(0, 0, "", 0x03000000), {"big-endian"});
}

TEST(Gguf, CountsAndLengthsBeyondTheFile) {
  expect_refused(gguf(uint64_t{1} << 40, 0, ""), {"claims 1099511627776 tensors"});
  expect_refused(gguf(0, uint64_t{1} << 63, ""), {"entries of metadata"});
  expect_refused(gguf(0, 1, bytes_of(~uint64_t{0}) + std::string(20, 'x')),
                 {"a key has 18446744073709551615"});
  expect_refused(gguf(0, 1, gguf_entry("k", kText, bytes_of(uint64_t{100}) + "short")),
                 {"a text is longer than the file"});
  expect_refused(gguf(0, 1, gguf_entry("k", kArray, bytes_of(kU64) + bytes_of(uint64_t{1} << 61))),
                 {"an array of 2305843009213693952 elements exceeds the file"});
  expect_refused(gguf(0, 1, gguf_entry("k", kU64, "1234")), {"ends within its head"});
}

TEST(Gguf, ValuesThatCannotBe) {
  expect_refused(gguf(0, 1, gguf_entry("k", 13, std::string(8, 'x'))), {"unknown type 13"});
  expect_refused(gguf(0, 1, gguf_entry("k", kBool, "\x02")), {"neither 0 nor 1"});
  expect_refused(gguf(0, 1, gguf_entry("k", kU64, bytes_of(~uint64_t{0}))), {"larger than 2^63 - 1"});
  expect_refused(gguf(0, 1, gguf_entry("k", kArray, bytes_of(kArray) + bytes_of(uint64_t{1}))),
                 {"an array of arrays"});
  expect_refused(gguf(0, 2, gguf_entry("k", kU8, "a") + gguf_entry("k", kU8, "b")), {"'k' occurs twice"});
  const std::string alignment = gguf_entry("general.alignment", kU32, bytes_of(uint32_t{0}));
  expect_refused(gguf(0, 1, alignment), {"general.alignment"});
}

TEST(Gguf, TensorsThatCannotBe) {
  const auto one = [](const std::string& tensor, size_t data = 64) {
    return with_data(gguf(1, 0, tensor), std::string(data, '\0'));
  };
  expect_refused(one(gguf_tensor("x", 4, 5, 0)), {"'x' has the unknown type 5"});
  expect_refused(one(gguf_tensor("x", 33, 8, 0)), {"Q8_0", "rows of 33", "multiple of 32"});
  expect_refused(one(gguf_tensor("x", 32, 0, 0)), {"'x' lies beyond the end"});
  expect_refused(one(gguf_tensor("x", 4, 0, 96)), {"'x' lies beyond the end"});
  expect_refused(one(gguf_tensor("x", 4, 0, ~uint64_t{31})), {"'x' lies beyond the end"});
  expect_refused(one(gguf_tensor("x", 4, 0, 4)), {"no multiple of 32"});
  expect_refused(one(gguf_tensor("x", uint64_t{1} << 62, 0, 0)), {"too large"});
  expect_refused(one(gguf_string("x") + bytes_of(uint32_t{5}) + std::string(40, '\0')), {"5 axes"});
  expect_refused(
      with_data(gguf(2, 0, gguf_tensor("x", 16, 0, 0) + gguf_tensor("y", 4, 0, 32)), std::string(64, 0)),
      {"'x' and 'y' overlap"});
  expect_refused(
      with_data(gguf(2, 0, gguf_tensor("x", 4, 0, 0) + gguf_tensor("x", 4, 0, 32)), std::string(64, 0)),
      {"'x' occurs twice"});
}

TEST(Gguf, ATypeThatIsNotReadMattersOnlyToWhoNeedsIt) {
  const TemporaryFolder folder;
  const float value = 2.5f;
  std::string data(64, '\0');
  std::memcpy(data.data() + 32, &value, sizeof value);
  const std::string path = folder.put(
      "m.gguf", with_data(gguf(2, 0, gguf_tensor("x", 32, 6, 0) + gguf_tensor("y", 1, 0, 32)), data));
  const GgufReader file(path);
  float out[32];
  expect_error<CheckpointError>([&] { file.read(file.tensors()[0], out); }, {"'x' is Q5_0", "Q4_K"});
  file.read(*file.find("y"), out);
  EXPECT_EQ(out[0], 2.5f);
  const GgufTensor copy = file.tensors()[1];
  expect_error<StateError>([&] { file.read(copy, out); }, {"it is not one of"});
}

}  // namespace
}  // namespace heed
