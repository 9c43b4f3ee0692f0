// Reading and writing whole files.
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "../../support/expect_error.h"
#include "../../support/temporary_folder.h"
#include "safetensors_bytes.h"

namespace heed::test {
namespace {

const float kMatrix[6] = {1, 2, 3, 4, 5, 6};
const bool kFlags[3] = {true, false, true};
const int64_t kLong[2] = {-1, int64_t{1} << 40};

/// Three tensors, given in an order that the writer must change.
std::string save_three(const std::string& path, SaveOptions options = {}) {
  const TensorData tensors[] = {{{"flags", DType::boolean, {3}}, kFlags},
                                {{"matrix", DType::f32, {2, 3}}, kMatrix},
                                {{"empty", DType::f32, {0, 4}}, nullptr},
                                {{"long", DType::i64, {2}}, kLong}};
  save_safetensors(path, tensors, std::move(options));
  return path;
}

template <class T>
std::vector<T> read_all(const SafetensorsReader& reader, const std::string& name) {
  const TensorEntry& entry = reader.at(name);
  EXPECT_EQ(entry.dtype, dtype_of<T>());
  std::vector<T> values(entry.bytes() / sizeof(T));
  reader.read(entry, values.data(), entry.bytes());
  return values;
}

TEST(Safetensors, RoundTripKeepsEveryBit) {
  const TemporaryFolder folder;
  const float special[] = {0.0f,           -0.0f,  std::numeric_limits<float>::infinity(),
                           std::nanf("7"), 1e-45f, 3.4e38f};
  const bfloat16 halves[] = {1.5f, -2.25f};
  const double doubles[] = {0.1};
  const int32_t ints[] = {std::numeric_limits<int32_t>::min(), 7};
  const TensorData tensors[] = {{{"special", DType::f32, {3, 2}}, special},
                                {{"halves", DType::bf16, {2}}, halves},
                                {{"doubles", DType::f64, {}}, doubles},
                                {{"ints", DType::i32, {1, 2, 1}}, ints}};
  save_safetensors(folder.file("f"), tensors, {{{"format", "pt"}, {"note", "a \"quoted\"\n\\ é\x01"}}});
  const SafetensorsReader reader(folder.file("f"));
  EXPECT_EQ(reader.header().metadata.at("note"), "a \"quoted\"\n\\ é\x01");
  for (const TensorData& tensor : tensors) {
    const TensorEntry& entry = reader.at(tensor.spec.name);
    EXPECT_EQ(static_cast<const TensorSpec&>(entry), tensor.spec);
    std::string bytes(entry.bytes(), 'x');
    reader.read(entry, bytes.data(), bytes.size());
    EXPECT_EQ(std::memcmp(bytes.data(), tensor.data, bytes.size()), 0) << tensor.spec.name;
  }
}

/// A file of one tensor of `bytes`, whose type heed does not write.
std::string put_foreign(const TemporaryFolder& folder, const std::string& dtype, size_t elements,
                        const std::string& data) {
  const std::string json = concat("{\"a\":{\"dtype\":\"", dtype, "\",\"shape\":[", elements,
                                  "],\"data_offsets\":[0,", data.size(), "]}}");
  return folder.put("foreign", length_bytes(json.size()) + json + data);
}

template <class Stored>
std::string put_foreign(const TemporaryFolder& folder, const std::string& dtype,
                        const std::vector<Stored>& values) {
  return put_foreign(folder, dtype, values.size(),
                     {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Stored)});
}

TEST(Safetensors, EveryHalfIsReadAsTheFloatItIs) {
  const TemporaryFolder folder;
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) halves.push_back(static_cast<uint16_t>(bits));
  for (int i = 0; i < 3; ++i)
    halves.insert(halves.end(), halves.begin(), halves.end());  // more than one chunk
  const SafetensorsReader reader(put_foreign(folder, "F16", halves));
  const std::vector<float> values = read_all<float>(reader, "a");
  ASSERT_EQ(values.size(), halves.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const int exponent = halves[i] >> 10 & 31, mantissa = halves[i] & 1023;
    const double sign = halves[i] & 0x8000 ? -1 : 1;
    if (exponent == 31 && mantissa) {
      ASSERT_TRUE(std::isnan(values[i])) << i;
    } else {
      const double magnitude = exponent == 31 ? std::numeric_limits<double>::infinity()
                               : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                              : std::ldexp(mantissa, -24);
      ASSERT_EQ(static_cast<double>(values[i]), sign * magnitude) << i;
      ASSERT_EQ(std::signbit(values[i]), sign < 0) << i;
    }
  }
  const TensorSummary summary = verify_safetensors(folder.file("foreign"))[0];
  EXPECT_EQ(summary.elements, 8 * 65536);
  EXPECT_EQ(summary.nan, 8 * 2 * 1023);
  EXPECT_EQ(summary.infinite, 8 * 2);
}

TEST(Safetensors, NarrowIntegersAreWidened) {
  const TemporaryFolder folder;
  const auto as_i32 = [&](const std::string& path) {
    return read_all<int32_t>(SafetensorsReader(path), "a");
  };
  const auto as_i64 = [&](const std::string& path) {
    return read_all<int64_t>(SafetensorsReader(path), "a");
  };
  EXPECT_EQ(as_i32(put_foreign<int16_t>(folder, "I16", {-32768, -1, 32767})),
            (std::vector<int32_t>{-32768, -1, 32767}));
  EXPECT_EQ(as_i32(put_foreign<int8_t>(folder, "I8", {-128, -1, 127})),
            (std::vector<int32_t>{-128, -1, 127}));
  EXPECT_EQ(as_i32(put_foreign<uint16_t>(folder, "U16", {0, 65535})), (std::vector<int32_t>{0, 65535}));
  EXPECT_EQ(as_i32(put_foreign<uint8_t>(folder, "U8", {0, 255})), (std::vector<int32_t>{0, 255}));
  EXPECT_EQ(as_i64(put_foreign<uint32_t>(folder, "U32", {0, 4294967295u})),
            (std::vector<int64_t>{0, 4294967295}));
  EXPECT_EQ(as_i64(put_foreign<uint64_t>(folder, "U64", {0, uint64_t{INT64_MAX}})),
            (std::vector<int64_t>{0, INT64_MAX}));
  expect_error<CheckpointError>(
      [&] {
        as_i64(put_foreign<uint64_t>(folder, "U64", {1, uint64_t{1} << 63}));
      },
      {"tensor 'a' is U64", "element 1", "2^63 - 1"});
}

TEST(Safetensors, TypesThatAreNotReadAreErrorsOnlyForTheirReader) {
  const TemporaryFolder folder;
  const SafetensorsReader reader(put_foreign(folder, "F8_E4M3", 3, "abc"));
  char out[16];
  expect_error<CheckpointError>([&] { reader.read(reader.at("a"), out, 3); },
                                {"tensor 'a' has dtype F8_E4M3", "does not read", "F32"});
  const TensorSpec specs[] = {{"a", DType::f32, {3}}};
  expect_error<CheckpointError>([&] { match_tensors(reader.header(), specs, "f"); },
                                {"mismatched (1): 'a' is F8_E4M3[3] in the file and f32[3] here"});
  EXPECT_EQ(verify_safetensors(folder.file("foreign"))[0].elements, 3);
}

TEST(Safetensors, WriterAlignsAndStartsWithABrace) {
  const TemporaryFolder folder;
  const SafetensorsReader reader(save_three(folder.file("f")));
  EXPECT_EQ(reader.header().data_start % 8, 0u);
  for (const TensorEntry& entry : reader.header().tensors)
    EXPECT_EQ(entry.begin % static_cast<uint64_t>(size_of(entry.dtype)), 0u) << entry.name;
  EXPECT_EQ(folder.get("f")[8], '{');
  EXPECT_EQ(reader.header().metadata.at("format"), "pt");
  EXPECT_EQ(read_all<int64_t>(reader, "long"), std::vector<int64_t>(kLong, kLong + 2));
  EXPECT_EQ(read_all<float>(reader, "matrix"), std::vector<float>(kMatrix, kMatrix + 6));
  EXPECT_TRUE(read_all<float>(reader, "empty").empty());
  save_three(folder.file("again"));
  EXPECT_EQ(folder.get("f"), folder.get("again")) << "the same content gives the same file";
}

TEST(Safetensors, AFileWithoutTensorsIsSound) {
  const TemporaryFolder folder;
  save_safetensors(folder.file("f"), {}, {{}, false, true});
  EXPECT_EQ(folder.get("f"), length_bytes(8) + "{}      ");
  EXPECT_TRUE(SafetensorsReader(folder.file("f")).header().tensors.empty());
}

TEST(Safetensors, TensorsMayBeWrittenInAnyOrderButAllOnce) {
  const TemporaryFolder folder;
  const TensorSpec specs[] = {{"a", DType::f32, {2}}, {"b", DType::i64, {1}}};
  const float a[] = {1, 2};
  const int64_t b = 3;
  SafetensorsWriter writer(folder.file("f"), specs);
  writer.write(1, &b, 8);
  expect_error<StateError>([&] { writer.commit(); }, {"'a' was not written"});
  expect_error<StateError>([&] { writer.write(1, &b, 8); }, {"'b' was already written"});
  expect_error<ShapeError>([&] { writer.write(0, a, 4); }, {"'a' of shape [2] has 8 bytes, not 4"});
  expect_error<IndexError>([&] { writer.write(2, a, 4); }, {"no tensor 2 of 2"});
  writer.write(0, a, 8);
  EXPECT_EQ(folder.get("f"), "");
  writer.commit();
  const SafetensorsReader reader(folder.file("f"));
  EXPECT_EQ(read_all<float>(reader, "a")[1], 2);
  EXPECT_EQ(read_all<int64_t>(reader, "b")[0], 3);
}

TEST(Safetensors, WriterRefusesWhatNoReaderWouldTake) {
  const TemporaryFolder folder;
  folder.put("f", "old");
  const auto refused = [&](std::vector<TensorSpec> specs, SaveOptions options = {}) {
    SafetensorsWriter(folder.file("f"), specs, std::move(options));
  };
  expect_error<ConfigError>([&] { refused({{"", DType::f32, {1}}}); }, {"'' cannot name a tensor"});
  expect_error<ConfigError>([&] { refused({{"__metadata__", DType::f32, {1}}}); }, {"cannot name"});
  expect_error<ConfigError>([&] { refused({{"\xff", DType::f32, {1}}}); }, {"cannot name"});
  expect_error<ConfigError>(
      [&] {
        refused({{std::string("a\0", 2), DType::f32, {1}}});
      },
      {"'a\\x00' cannot name"});
  expect_error<ConfigError>([&] { refused({{std::string(4097, 'a'), DType::f32, {1}}}); }, {"cannot name"});
  expect_error<ConfigError>([&] { refused({{"a"}, {"b"}, {"a"}}); }, {"'a' is used twice"});
  expect_error<ShapeError>([&] { refused({{"a", DType::f32, {-1}}}); }, {"'a'", "impossible shape [-1]"});
  expect_error<ShapeError>(
      [&] {
        refused({{"a", DType::f32, {1, 1, 1, 1, 1, 1, 1, 1, 1}}});
      },
      {"9 dimensions"});
  const int64_t large = int64_t{1} << 31;
  expect_error<ShapeError>([&] { refused({{"a", DType::f32, {large, large, 2}}}); }, {"impossible shape"});
  expect_error<ShapeError>(
      [&] {
        refused({{"a", DType::f32, {large, large / 4}}, {"b", DType::f32, {large, large / 4}}});
      },
      {"more than 2^63 - 1 bytes together"});
  expect_error<ConfigError>([&] { refused({}, {{{"k", "\xff"}}}); }, {"metadata 'k'", "UTF-8"});
  expect_error<ConfigError>([&] { refused({}, {{{kChecksumKey, ""}}}); }, {"heed's own"});
  expect_error<ConfigError>(
      [&] {
        refused({}, {{{"k", std::string(1 << 20, 'x')}}});
      },
      {"bytes of metadata"});
  const TensorData none{{"a", DType::f32, {1}}, nullptr};
  expect_error<StateError>([&] { save_safetensors(folder.file("f"), {&none, 1}); }, {"'a' has no data"});
  EXPECT_EQ(folder.get("f"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Safetensors, AFileMappedInMemoryCanBeSavedOverItself) {
  const TemporaryFolder folder;
  const std::string path = save_three(folder.file("f"));
  const SafetensorsReader reader(path);
  const size_t size = folder.get("f").size();
  const int fd = ::open(path.c_str(), O_RDONLY);
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  ASSERT_NE(map, MAP_FAILED);
  const TensorEntry& entry = reader.at("matrix");
  const TensorData tensor{entry, static_cast<const char*>(map) + reader.header().data_start + entry.begin};
  save_safetensors(path, {&tensor, 1});
  EXPECT_EQ(read_all<float>(SafetensorsReader(path), "matrix"), std::vector<float>(kMatrix, kMatrix + 6));
  EXPECT_EQ(read_all<float>(reader, "matrix")[5], 6) << "a reader keeps the file it opened";
  ::munmap(map, size);
}

TEST(Safetensors, ReadChecksItsArguments) {
  const TemporaryFolder folder;
  const SafetensorsReader reader(save_three(folder.file("f")));
  float out[6];
  expect_error<CheckpointError>([&] { reader.at("weight"); },
                                {"no tensor 'weight'", "it has 4", "'long', 'matrix'"});
  expect_error<ShapeError>([&] { reader.read(reader.at("matrix"), out, 20); },
                           {"'matrix'", "24 bytes", "room for 20"});
  TensorEntry foreign = reader.at("matrix");
  foreign.begin -= 8;
  expect_error<StateError>([&] { reader.read(foreign, out, 32); }, {"not an entry"});
  expect_error<IoError>([&] { SafetensorsReader(folder.file("none")); }, {"none", "No such file"});
  expect_error<IoError>([&] { SafetensorsReader(folder.path()); }, {"directory"});
}

TEST(Safetensors, BooleansAreZeroOrOne) {
  const TemporaryFolder folder;
  const std::string json = R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  for (const char* data : {"\x02", "\xff"}) {
    folder.put("f", length_bytes(json.size()) + json + std::string("\x01\x01") + data);
    const SafetensorsReader reader(folder.file("f"));
    bool out[3];
    expect_error<CheckpointError>([&] { reader.read(reader.at("m"), out, 3); }, {"'m' is BOOL", "element 2"});
  }
}

TEST(Safetensors, AFileThatShrinksIsAnErrorNotASignal) {
  const TemporaryFolder folder;
  const SafetensorsReader reader(save_three(folder.file("f")));
  std::filesystem::resize_file(folder.file("f"), reader.header().data_start + 8);
  float out[6];
  expect_error<IoError>([&] { reader.read(reader.at("matrix"), out, 24); }, {"truncated meanwhile"});
}

TEST(Safetensors, VerifyCountsSpecialValuesAndIsStrict) {
  const TemporaryFolder folder;
  const float values[] = {NAN, 1, INFINITY, -INFINITY, NAN, NAN};
  const bfloat16 halves[] = {NAN, 1.0f, INFINITY};
  const TensorData tensors[] = {{{"a", DType::f32, {6}}, values}, {{"b", DType::bf16, {3}}, halves}};
  save_safetensors(folder.file("f"), tensors);
  const std::vector<TensorSummary> summaries = verify_safetensors(folder.file("f"));
  ASSERT_EQ(summaries.size(), 2u);
  EXPECT_EQ(summaries[0].elements, 6);
  EXPECT_EQ(summaries[0].nan, 3);
  EXPECT_EQ(summaries[0].infinite, 2);
  EXPECT_EQ(summaries[1].nan, 1);
  EXPECT_EQ(summaries[1].infinite, 1);
  folder.put("space", file_bytes(" {}", 0));
  EXPECT_TRUE(SafetensorsReader(folder.file("space")).header().tensors.empty());
  expect_error<CheckpointError>([&] { verify_safetensors(folder.file("space")); }, {"must begin with '{'"});
}

TEST(Safetensors, LargeTensorsAreReadAndHashedInPieces) {
  const TemporaryFolder folder;
  std::vector<float> values(1'000'003);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const TensorData tensor{{"a", DType::f32, {1'000'003}}, values.data()};
  save_safetensors(folder.file("f"), {&tensor, 1});
  const SafetensorsReader reader(folder.file("f"));
  EXPECT_EQ(read_all<float>(reader, "a"), values);
  EXPECT_EQ(reader.header().digests[0], sha256(values.data(), values.size() * 4));
}

TEST(Safetensors, MatchListsEverythingThatDoesNotFit) {
  const TemporaryFolder folder;
  const SafetensorsReader reader(save_three(folder.file("f")));
  const auto match = [&](std::vector<TensorSpec> expected) { match_tensors(reader.header(), expected, "f"); };
  const TensorSpec flags{"flags", DType::boolean, {3}}, empty{"empty", DType::f32, {0, 4}},
      integers{"long", DType::i64, {2}};
  match({flags, empty, integers, {"matrix", DType::bf16, {2, 3}}});  // floating types convert
  expect_error<CheckpointError>(
      [&] {
        match({flags, empty, integers, {"matrix", DType::f32, {3, 2}}});
      },
      {"nothing was loaded", "mismatched (1): 'matrix' is f32[2, 3] in the file and f32[3, 2] here"});
  expect_error<CheckpointError>(
      [&] {
        match({flags, empty, {"long", DType::f32, {2}}, {"matrix", DType::f32, {2, 3}}});
      },
      {"'long' is i64[2] in the file and f32[2] here"});
  expect_error<CheckpointError>(
      [&] {
        match({flags, empty, {"x", DType::f32, {}}, {"y", DType::f32, {}}});
      },
      {"missing (2): 'x', 'y'", "unexpected (2): 'long', 'matrix'"});
  std::vector<TensorSpec> many(50);
  for (size_t i = 0; i < many.size(); ++i) many[i].name = "t" + std::to_string(i);
  expect_error<CheckpointError>([&] { match(many); }, {"missing (50): 't0', 't1'", "'t19' and 30 more"});
}

TEST(Safetensors, FormatVersions) {
  SafetensorsHeader header;
  const auto version = [&](const std::string& text) {
    header.metadata["heed.checkpoint"] = text;
    return read_format_version(header, "heed.checkpoint", 2, 4, "f");
  };
  expect_error<CheckpointError>([&] { read_format_version(header, "heed.checkpoint", 2, 4, "f"); },
                                {"has no 'heed.checkpoint'"});
  EXPECT_EQ(version("2"), 2);
  EXPECT_EQ(version("4"), 4);
  expect_error<CheckpointError>([&] { version("5"); }, {"version 5", "newer than 4"});
  expect_error<CheckpointError>([&] { version("1"); }, {"version 1", "older than 2"});
  for (const char* text : {"", "3x", "three", "99999999999999999999"})
    expect_error<CheckpointError>([&] { version(text); }, {"not a version number", text});
}

// Written by safetensors 0.8.0 for Python; tests/fixtures/write_safetensors.py says how.
TEST(Safetensors, ReadsWhatThePythonPackageWrites) {
  const SafetensorsReader reader(HEED_FIXTURES "/python.safetensors");
  EXPECT_EQ(reader.header().metadata.at("format"), "pt");
  EXPECT_EQ(reader.header().metadata.at("naïve \"key\""), "tab\t, line\n, \u20ac");
  EXPECT_EQ(reader.header().tensors.size(), 8u);
  std::vector<float> matrix(12);
  for (int i = 0; i < 12; ++i) matrix[static_cast<size_t>(i)] = static_cast<float>(i) / 8;
  EXPECT_EQ(reader.at("layer.weight").shape, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(read_all<float>(reader, "layer.weight"), matrix);
  const std::vector<bfloat16> halves = read_all<bfloat16>(reader, "layer.half");
  EXPECT_EQ(static_cast<float>(halves[0]), -1.5f);
  EXPECT_EQ(static_cast<float>(halves[1]), 0.0078125f);
  EXPECT_EQ(read_all<double>(reader, "double"), (std::vector<double>{0.1, -1e300}));
  EXPECT_EQ(read_all<int64_t>(reader, "long"),
            (std::vector<int64_t>{std::numeric_limits<int64_t>::min(), 7}));
  EXPECT_EQ(read_all<int32_t>(reader, "int"), (std::vector<int32_t>{-1, 2, -3}));
  EXPECT_TRUE(reader.at("scalar").shape.empty());
  EXPECT_EQ(read_all<float>(reader, "scalar"), std::vector<float>{2.5f});
  EXPECT_EQ(reader.at("empty").shape, (std::vector<int64_t>{0, 3}));
  bool mask[5];
  reader.read(reader.at("mask"), mask, sizeof mask);
  EXPECT_TRUE(mask[0] && !mask[1] && mask[2] && mask[3] && !mask[4]);
}

}  // namespace
}  // namespace heed::test
