// Every rule by which a header is refused, with the words of the refusal.
#include <limits>
#include <tuple>

#include <gtest/gtest.h>

#include "../../support/expect_error.h"
#include "safetensors_bytes.h"

namespace heed::test {
namespace {

void refuses(const std::string& json, size_t data, std::initializer_list<std::string> pieces) {
  SCOPED_TRACE(json.substr(0, 200));
  expect_error<CheckpointError>([&] { parse_json(json, data); }, pieces);
}

void refuses_file(const std::string& file, std::initializer_list<std::string> pieces) {
  expect_error<CheckpointError>([&] { parse_bytes(file); }, pieces);
}

/// One tensor 'a' with these fields, in a file of 8 bytes of data.
void refuses_fields(const std::string& fields, std::initializer_list<std::string> pieces) {
  refuses("{\"a\":{" + fields + "}}", 8, pieces);
}

constexpr char kGood[] = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";

TEST(SafetensorsHeader, ReadsTensorsAndMetadataInTheOrderOfTheData) {
  const SafetensorsHeader header =
      parse_json(R"({"b":{"dtype":"F64","shape":[],"data_offsets":[8,16]},"__metadata__":{"k":"v"},)"
                 R"("a":{"shape":[2,1],"data_offsets":[0,8],"dtype":"I32"}})",
                 16);
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::i32);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_TRUE(header.tensors[1].shape.empty());
  EXPECT_EQ(header.find("b"), &header.tensors[1]);
  EXPECT_EQ(header.find("c"), nullptr);
  EXPECT_EQ(header.metadata.at("k"), "v");
  EXPECT_TRUE(parse_json("{}").tensors.empty());
  EXPECT_TRUE(parse_json("  {\n}\t\r ").tensors.empty());
}

TEST(SafetensorsHeader, LengthMustFitTheFile) {
  refuses_file("", {"has 0 bytes", "fewer than the 8"});
  refuses_file("1234567", {"has 7 bytes"});
  refuses_file(length_bytes(0), {"its header has 0 bytes"});
  refuses_file(length_bytes(1) + "{", {"its header has 1 bytes"});
  refuses_file(length_bytes(3) + "{}", {"would have 3 bytes", "only 2 follow", "truncated"});
  refuses_file(length_bytes(100'000'001) + "{}", {"100000001", "the limit of 100000000"});
  refuses_file(length_bytes(std::numeric_limits<uint64_t>::max()) + "{}", {"18446744073709551615"});
  refuses_file(length_bytes(uint64_t{1} << 63) + "{}", {"9223372036854775808"});
}

TEST(SafetensorsHeader, LimitItselfIsAccepted) {
  const std::string length = length_bytes(100'000'000);
  EXPECT_EQ(safetensors_header_length(as_bytes(length), 100'000'008, "t"), 100'000'000u);
  expect_error<CheckpointError>([&] { safetensors_header_length(as_bytes(length), 100'000'007, "t"); },
                                {"only 99999999 follow"});
}

TEST(SafetensorsHeader, NamesTheFormatOfAnotherFile) {
  using namespace std::string_literals;
  refuses_file("PK\x03\x04 and so on, many bytes", {"not a safetensors file", "zip archive", "torch.save"});
  refuses_file("\x80\x02}q\0X\x05\0\0\0"s, {"pickle", "never executes"});
  refuses_file("GGUF\x03\0\0\0\0\0\0\0"s, {"GGUF"});
  refuses_file("\x1f\x8b\x08\0\0\0\0\0\0\0"s, {"gzip"});
  refuses_file("\x08\x07\x12\x07pytorch", {"ONNX"});
  refuses_file("\x93NUMPY\x01\0v\0"s, {"NumPy"});
  refuses_file("\x89HDF\r\n\x1a\n", {"HDF5"});
  refuses_file("version https://git-lfs.github.com/spec/v1", {"Git LFS"});
  refuses_file("{\"weight_map\": {}}", {"JSON text"});
  refuses_file("PK\x03\x04", {"zip archive"});
  refuses_file("<!DOCTYPE html>", {"HTML"});
}

TEST(SafetensorsHeader, IsOneJsonObjectAndNothingElse) {
  refuses("[]", 0, {"expected '{' at the start of the header, found '['", "byte 8"});
  refuses("\"\"", 0, {"expected '{'"});
  refuses("{}{}", 0, {"unexpected text after", "byte 10"});
  refuses("{} x", 0, {"unexpected text after", "byte 11"});
  refuses(std::string("{}\0", 3), 0, {"unexpected text after"});
  refuses("{ ", 0, {"expected a string as a tensor's name", "the end of the header", "byte 10"});
  refuses("{,}", 0, {"expected a string"});
  refuses("{\"a\":{" + std::string(kGood) + "},}", 8, {"expected a string"});
  refuses("{\"a\":{" + std::string(kGood) + "}", 8, {"expected '}' or ','"});
  refuses("\xef\xbb\xbf{}", 0, {"expected '{'", "0xef"});
}

TEST(SafetensorsHeader, DeepNestingCannotExhaustTheStack) {
  refuses(std::string(1'000'000, '['), 0, {"expected '{'"});
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"a\":";
  refuses(objects, 0, {"unknown field 'a'"});
  refuses(R"({"a":{"dtype":"F32","shape":)" + std::string(100'000, '['), 0, {"expected a whole number"});
}

TEST(SafetensorsHeader, StringsAreValidUtf8WithoutNul) {
  refuses("{\"\xff\":{}}", 0, {"not valid UTF-8", "0xff", "byte 10"});
  refuses("{\"\xc0\x80\":{}}", 0, {"not valid UTF-8"});          // overlong
  refuses("{\"\xe0\x80\x80\":{}}", 0, {"not valid UTF-8"});      // overlong
  refuses("{\"\xed\xa0\x80\":{}}", 0, {"not valid UTF-8"});      // surrogate
  refuses("{\"\xf4\x90\x80\x80\":{}}", 0, {"not valid UTF-8"});  // above U+10FFFF
  refuses("{\"\xe2\x82", 0, {"not valid UTF-8"});                // cut off
  refuses(std::string("{\"a\0\":{}}", 9), 0, {"control character 0x00"});
  refuses("{\"a\nb\":{}}", 0, {"control character 0x0a"});
  refuses(R"({"a\u0000b":{}})", 0, {"NUL"});
  refuses(R"({"\ud800":{}})", 0, {"surrogate"});
  refuses(R"({"\ud800\u0041":{}})", 0, {"surrogate"});
  refuses(R"({"\udc00":{}})", 0, {"surrogate"});
  refuses(R"({"\x":{}})", 0, {"unknown escape"});
  refuses(R"({"\u12g4":{}})", 0, {"hexadecimal digit"});
  refuses(R"({"\u12)", 0, {"ends within an escape"});
  refuses(R"({"\)", 0, {"ends within an escape"});
  refuses(R"({"abc)", 0, {"ends within a tensor's name"});
}

TEST(SafetensorsHeader, EscapesAreDecoded) {
  const SafetensorsHeader header = parse_json(
      R"({"\u00e9\u20ac\ud83d\ude00\"\\\/\b\f\n\r\t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})");
  EXPECT_EQ(header.tensors[0].name, "\u00e9\u20ac\U0001f600\"\\/\b\f\n\r\t");
}

TEST(SafetensorsHeader, NumbersAreDigitsOnly) {
  const auto shape = [](const std::string& size) {
    return R"("dtype":"F32","shape":[)" + size + R"(],"data_offsets":[0,8])";
  };
  refuses_fields(shape("-2"), {"a size in the shape of tensor 'a'", "found '-'"});
  refuses_fields(shape("+2"), {"found '+'"});
  refuses_fields(shape("2.0"), {"not a whole number", "'.' follows 2"});
  refuses_fields(shape("2e0"), {"not a whole number"});
  refuses_fields(shape("2E0"), {"not a whole number"});
  refuses_fields(shape("02"), {"leading zero"});
  refuses_fields(shape("00"), {"leading zero"});
  refuses_fields(shape("9223372036854775808"), {"larger than 2^63 - 1"});
  refuses_fields(shape("99999999999999999999999"), {"larger than 2^63 - 1"});
  refuses_fields(shape("\"2\""), {"expected a whole number"});
  refuses_fields(shape("true"), {"expected a whole number"});
  refuses_fields(shape("2,"), {"expected a whole number"});
  refuses_fields(shape("[2]"), {"expected a whole number"});
  refuses_fields(shape("2 2"), {"expected ']' or ','"});
}

TEST(SafetensorsHeader, NamesOccurOnce) {
  const std::string a = R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  refuses("{\"a\":" + a + ",\"a\":" + a + "}", 0, {"tensor 'a' occurs twice"});
  refuses("{\"a\":" + a + ",\"\\u0061\":" + a + "}", 0, {"tensor 'a' occurs twice"});  // after unescaping
  refuses(R"({"__metadata__":{},"__metadata__":{}})", 0, {"__metadata__ occurs twice"});
  refuses(R"({"__metadata__":{},"\u005f_metadata__":{}})", 0, {"__metadata__ occurs twice"});
  refuses(R"({"__metadata__":{"k":"1","k":"1"}})", 0, {"key 'k' of __metadata__ occurs twice"});
  refuses(R"({"__metadata__":{"k":"1","\u006b":"2"}})", 0, {"key 'k' of __metadata__ occurs twice"});
}

TEST(SafetensorsHeader, TensorsHaveExactlyThreeFields) {
  refuses_fields(R"("shape":[2],"data_offsets":[0,8])", {"tensor 'a' has no dtype"});
  refuses_fields(R"("dtype":"F32","data_offsets":[0,8])", {"tensor 'a' has no shape"});
  refuses_fields(R"("dtype":"F32","shape":[2])", {"tensor 'a' has no data_offsets"});
  refuses_fields(std::string(kGood) + R"(,"dtype":"F32")", {"dtype occurs twice"});
  refuses_fields(std::string(kGood) + R"(,"shap\u0065":[2])", {"shape occurs twice"});
  refuses_fields(std::string(kGood) + R"(,"data_offsets":[0,8])", {"data_offsets occurs twice"});
  refuses_fields(std::string(kGood) + R"(,"extra":1)", {"unknown field 'extra'"});
  refuses("{\"a\":{}}", 0, {"expected a string as a field"});
  refuses("{\"a\":[]}", 0, {"expected '{' for tensor 'a'"});
  refuses("{\"a\":null}", 0, {"expected '{' for tensor 'a'"});
}

TEST(SafetensorsHeader, DTypesAreKnown) {
  const auto dtype = [](const std::string& name) {
    return R"("dtype":)" + name + R"(,"shape":[2],"data_offsets":[0,8])";
  };
  refuses_fields(dtype("\"Q4_0\""), {"unknown dtype 'Q4_0'"});
  refuses_fields(dtype("\"f32\""), {"unknown dtype 'f32'"});
  refuses_fields(dtype("\"\""), {"unknown dtype ''"});
  refuses_fields(dtype("1"), {"expected a string as a dtype"});
}

TEST(SafetensorsHeader, EveryReadableDType) {
  const std::pair<const char*, DType> dtypes[] = {{"F32", DType::f32}, {"BF16", DType::bf16},
                                                  {"F64", DType::f64}, {"I64", DType::i64},
                                                  {"I32", DType::i32}, {"BOOL", DType::boolean}};
  for (const auto& [text, dtype] : dtypes) {
    const size_t bytes = static_cast<size_t>(3 * size_of(dtype));
    const SafetensorsHeader header = parse_json(
        concat("{\"a\":{\"dtype\":\"", text, "\",\"shape\":[3],\"data_offsets\":[0,", bytes, "]}}"), bytes);
    EXPECT_EQ(header.tensors[0].dtype, dtype);
    EXPECT_STREQ(detail::safetensors_dtype(dtype), text);
  }
}

SafetensorsHeader header_of(const std::string& dtype, int64_t elements, size_t bytes) {
  return parse_json(concat("{\"a\":{\"dtype\":\"", dtype, "\",\"shape\":[", elements,
                           "],\"data_offsets\":[0,", bytes, "]}}"),
                    bytes);
}

TEST(SafetensorsHeader, OtherTypesAreReadAsWiderOnes) {
  const std::tuple<const char*, size_t, DType> types[] = {
      {"F16", 2, DType::f32}, {"I16", 2, DType::i32}, {"I8", 1, DType::i32}, {"U16", 2, DType::i32},
      {"U8", 1, DType::i32},  {"U32", 4, DType::i64}, {"U64", 8, DType::i64}};
  for (const auto& [text, size, dtype] : types) {
    const SafetensorsHeader header = header_of(text, 3, 3 * size);
    EXPECT_TRUE(header.tensors[0].readable());
    EXPECT_EQ(header.tensors[0].dtype, dtype) << text;
    EXPECT_EQ(header.tensors[0].bytes(), 3u * static_cast<size_t>(size_of(dtype))) << text;
    EXPECT_STREQ(header.tensors[0].stored_name(), text);
    expect_error<CheckpointError>([text = text, size = size] { header_of(text, 3, 3 * size + 1); },
                                  {"dtype " + std::string(text), concat("needs ", 3 * size, " bytes")});
  }
}

// They may stand in a file beside those that are wanted.
TEST(SafetensorsHeader, TypesThatAreNotReadHaveTheirSize) {
  const std::tuple<const char*, int64_t, size_t> types[] = {
      {"F8_E5M2", 3, 3}, {"F8_E4M3", 3, 3}, {"F8_E8M0", 3, 3}, {"F6_E2M3", 4, 3},
      {"F6_E3M2", 8, 6}, {"F4", 6, 3},      {"C64", 3, 24}};
  for (const auto& [text, elements, bytes] : types) {
    const SafetensorsHeader header = header_of(text, elements, bytes);
    EXPECT_FALSE(header.tensors[0].readable()) << text;
    EXPECT_EQ(header.tensors[0].bytes(), 0u);
    expect_error<CheckpointError>(
        [text = text, elements = elements, bytes = bytes] { header_of(text, elements, bytes + 1); },
        {text, concat("needs ", bytes, " bytes")});
  }
  expect_error<CheckpointError>([] { header_of("F4", 3, 2); }, {"F4", "ends within a byte"});
  expect_error<CheckpointError>([] { header_of("F6_E2M3", 1, 1); }, {"F6_E2M3", "ends within a byte"});
}

TEST(SafetensorsHeader, SizesAgreeAndDoNotOverflow) {
  const auto sized = [](const std::string& shape, const std::string& offsets) {
    return R"("dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]";
  };
  refuses_fields(sized("3", "0,8"), {"shape [3] and dtype F32 needs 12 bytes", "[0, 8] span 8"});
  refuses_fields(sized("", "0,8"), {"shape [] and dtype F32 needs 4 bytes"});
  refuses_fields(sized("0", "0,8"), {"needs 0 bytes"});
  refuses_fields(sized("4611686018427387904,2", "0,8"), {"more than 2^63 - 1 bytes"});
  refuses_fields(sized("4294967296,4294967296", "0,0"), {"more than 2^63 - 1 bytes"});  // wraps to 0
  refuses_fields(sized("4611686018427387904,4611686018427387904,0", "0,0"),
                 {"more than"});  // a zero hides nothing
  refuses_fields(sized("0,4611686018427387904,4611686018427387904", "0,0"), {"more than"});
  refuses_fields(sized("9223372036854775807", "0,8"), {"more than 2^63 - 1 bytes"});  // times 4 bytes
  refuses_fields(sized("1,1,1,1,1,1,1,1,2", "0,8"), {"more than 8 dimensions"});
  EXPECT_EQ(parse_json("{\"a\":{" + sized("1,1,1,1,1,1,1,2", "0,8") + "}}", 8).tensors[0].shape.size(), 8u);
}

TEST(SafetensorsHeader, OffsetsAreTwoAndOrdered) {
  const auto offsets = [](const std::string& text) {
    return R"("dtype":"F32","shape":[2],"data_offsets":)" + text;
  };
  refuses_fields(offsets("[8,0]"), {"[8, 0] of tensor 'a' end before they begin"});
  refuses_fields(offsets("[0]"), {"expected ','"});
  refuses_fields(offsets("[]"), {"expected a whole number"});
  refuses_fields(offsets("[0,8,16]"), {"expected ']'"});
  refuses_fields(offsets("[-8,0]"), {"found '-'"});
  refuses_fields(offsets("8"), {"expected '['"});
}

std::string f32(const std::string& name, size_t begin, size_t end) {
  return concat("\"", name, "\":{\"dtype\":\"F32\",\"shape\":[", (end - begin) / 4, "],\"data_offsets\":[",
                begin, ",", end, "]}");
}

TEST(SafetensorsHeader, DataAreCoveredExactly) {
  refuses("{" + f32("a", 0, 8) + "," + f32("b", 4, 12) + "}", 12, {"'a' [0, 8)", "'b' [4, 12) overlap"});
  refuses("{" + f32("a", 0, 8) + "," + f32("b", 0, 8) + "}", 8, {"'a'", "'b'", "overlap"});
  refuses("{" + f32("b", 0, 12) + "," + f32("a", 4, 8) + "}", 12, {"overlap"});
  refuses("{" + f32("a", 0, 4) + "," + f32("b", 8, 12) + "}", 12, {"bytes 4 to 8", "before tensor 'b'"});
  refuses("{" + f32("a", 4, 8) + "}", 8, {"bytes 0 to 4", "before tensor 'a'"});
  refuses("{" + f32("a", 0, 16) + "}", 12, {"'a' ends at byte 16", "which have 12", "truncated"});
  refuses("{" + f32("a", 0, 8) + "}", 12, {"4 bytes follow the last tensor 'a'"});
  refuses("{}", 1, {"1 bytes follow the header"});
}

TEST(SafetensorsHeader, EmptyTensorsLieOnBoundaries) {
  const std::string empties = f32("x", 0, 0) + "," + f32("y", 8, 8) + "," + f32("z", 8, 8);
  EXPECT_EQ(parse_json("{" + f32("a", 0, 8) + "," + empties + "}", 8).tensors.size(), 4u);
  refuses("{" + f32("a", 0, 8) + "," + f32("x", 4, 4) + "}", 8, {"'a' [0, 8)", "'x' [4, 4) overlap"});
  refuses("{" + f32("a", 0, 8) + "," + f32("x", 12, 12) + "}", 8, {"'x' ends at byte 12"});
}

TEST(SafetensorsHeader, MetadataAreStrings) {
  refuses(R"({"__metadata__":{"k":1}})", 0, {"expected a string as a value of __metadata__", "found '1'"});
  refuses(R"({"__metadata__":{"k":{}}})", 0, {"expected a string"});
  refuses(R"({"__metadata__":[]})", 0, {"expected '{' after __metadata__"});
  refuses(R"({"__metadata__":null})", 0, {"expected '{' after __metadata__"});
  refuses(R"({"__metadata__":{"k":")" + std::string(kMaxMetadataBytes + 1, 'x') + "\"}}", 0,
          {"longer than 1048576"});
  refuses(R"({"__metadata__":{"k":")" + std::string(kMaxMetadataBytes, 'x') + "\"}}", 0,
          {"more than 1048576 bytes"});
}

TEST(SafetensorsHeader, CountsAndNamesAreLimited) {
  refuses("{\"" + std::string(kMaxTensorName + 1, 'x') + "\":{" + kGood + "}}", 8,
          {"longer than 4096 bytes"});
  EXPECT_EQ(parse_json("{\"" + std::string(kMaxTensorName, 'x') + "\":{" + kGood + "}}", 8).tensors.size(),
            1u);
  std::string many = "{";
  for (size_t i = 0; i <= kMaxTensors; ++i)
    many += concat(i ? "," : "", "\"", i, R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  refuses(many + "}", 0, {"more than 1000000 tensors"});
  std::string entries = R"({"__metadata__":{)";
  for (size_t i = 0; i <= kMaxMetadataEntries; ++i) entries += concat(i ? "," : "", "\"", i, "\":\"\"");
  refuses(entries + "}}", 0, {"more than 10000 entries"});
}

TEST(SafetensorsHeader, LongNamesAreCutInMessages) {
  refuses("{\"" + std::string(500, 'x') + "\":[]}", 0, {std::string(80, 'x') + "…'"});
  refuses("{\"a\\u001b[31m\":[]}", 0, {"'a\\x1b[31m'"});
}

TEST(SafetensorsHeader, ChecksumsHaveTheRightForm) {
  const auto with = [](const std::string& hex) {
    return R"({"__metadata__":{"heed.sha256":")" + hex + "\"}}";
  };
  refuses(with(""), 0, {"heed.sha256 must be 1 digests of 64"});
  refuses(with(std::string(128, '0')), 0, {"must be 1 digests"});
  refuses(with(std::string(63, '0') + "G"), 0, {"hexadecimal"});
  refuses(with(std::string(63, '0') + "\\u0030"), 0, {"must be 1 digests"});
  refuses(with(std::string(64, '0')), 0, {"the header does not have its checksum"});
  EXPECT_EQ(parse_bytes(file_bytes(with(std::string(64, '0')), 0), Checksums::ignore).metadata.size(), 1u);
}

}  // namespace
}  // namespace heed::test
