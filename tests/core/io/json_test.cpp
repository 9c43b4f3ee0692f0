#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/io/detail/json.h>

#include "../../support/expect_error.h"

namespace heed::detail {
namespace {

using test::expect_error;

Json parse(std::string_view text) { return parse_json(text, "f", {"test", "file"}); }

void refuses(std::string_view text, std::initializer_list<std::string> pieces) {
  SCOPED_TRACE(std::string(text.substr(0, 80)));
  expect_error<CheckpointError>([&] { parse(text); }, pieces);
}

TEST(Json, ReadsEachKindOfValue) {
  const Json json = parse(
      " {\"a\" : [1, -2.5e-1, 0, 1E3], \"b\": {\"c\": null}, \"d\": true, \"e\": false,\n"
      "\"f\": \"x\\u00e9\\ud83d\\ude00\\n\", \"\": {}, \"g\": []} ");
  const auto* const a = json.find("a")->as<std::vector<Json>>();
  ASSERT_TRUE(a && a->size() == 4);
  EXPECT_EQ(*(*a)[0].as<double>(), 1);
  EXPECT_EQ(*(*a)[1].as<double>(), -0.25);
  EXPECT_EQ(*(*a)[2].as<double>(), 0);
  EXPECT_EQ(*(*a)[3].as<double>(), 1000);
  EXPECT_TRUE(json.find("b")->find("c")->is_null());
  EXPECT_EQ(*json.find("d")->as<bool>(), true);
  EXPECT_EQ(*json.find("e")->as<bool>(), false);
  EXPECT_EQ(*json.find("f")->as<std::string>(), "x\u00e9\U0001f600\n");
  EXPECT_TRUE(json.find("")->as<JsonObject>()->keys.empty());
  EXPECT_TRUE(json.find("g")->as<std::vector<Json>>()->empty());
  EXPECT_EQ(json.find("h"), nullptr);
  EXPECT_EQ(json.find("d")->find("x"), nullptr);
  EXPECT_EQ(json.find("d")->as<double>(), nullptr);
}

TEST(Json, RefusesWhatIsNotStrict) {
  refuses("", {"test 'f'", "the end of the file", "byte 0"});
  refuses("[1,]", {"digit", "']'", "byte 3"});
  refuses("[1 2]", {"expected ']'", "byte 3"});
  refuses("[1", {"expected ']'", "the end of the file"});
  refuses("{\"a\" 1}", {"expected ':'"});
  refuses("{\"a\":1,\"a\":2}", {"'a'", "twice"});
  refuses("{1:2}", {"a key"});
  refuses("[1] x", {"follows"});
  for (const char* number : {"01", "-01", "1.", ".5", "1e", "+1", "-", "1e999", "NaN", "Infinity", "0x1"})
    refuses(number, {"test 'f'"});
  refuses("nul", {"null"});
  refuses("True", {"digit"});
  refuses("\"a", {"ends within"});
  refuses("\"\\x\"", {"escape"});
  refuses("\"\\u0000\"", {"NUL"});
  refuses("\"\\ud800\"", {"surrogate"});
  refuses("\"\xff\"", {"UTF-8"});
  refuses("\"\n\"", {"control character"});
}

TEST(Json, StringsMixRunsCharactersAndEscapes) {
  const std::string run(1000, 'a');
  EXPECT_EQ(*parse("\"" + run + "\u00e9\\n" + run + "\\\"\x7f\"").as<std::string>(),
            run + "\u00e9\n" + run + "\"\x7f");
  refuses("\"" + run + "\xff\"", {"UTF-8", "byte 1001"});
  refuses("\"" + run + "\x1f\"", {"control character", "byte 1001"});
  refuses("\"" + run, {"ends within", "byte 1001"});
}

TEST(Json, StringsAreOnlySoLong) {
  const auto read = [](const char* text, size_t most) {
    return JsonScanner(text, "f", 0).string(most, {"a word"});
  };
  for (const char* text : {"\"abcd\"", "\"ab\u00e9\"", "\"abc\\n\"", "\"\U0001f600\""}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(read(text, 4).size(), 4u);
    expect_error<CheckpointError>([&] { read(text, 3); }, {"a word is longer than 3 bytes"});
  }
  expect_error<CheckpointError>([&] { read("\"abcdefgh\"", 3); }, {"longer than 3", "byte 5"});
}

TEST(Json, NestsOnlySoDeep) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse(nested(kDeepestJson + 1)));
  refuses(nested(kDeepestJson + 2), {"32 deep"});
  refuses(std::string(1'000'000, '['), {"32 deep"});
}

TEST(Json, HasOnlySoManyValues) {
  std::string text = "[0";
  for (int64_t i = 2; i < kMaxJsonValues; ++i) text += ",0";
  EXPECT_EQ(std::ssize(*parse(text + "]").as<std::vector<Json>>()), kMaxJsonValues - 1);
  refuses(text + ",0]", {"test 'f'", "more than 4194304 values"});
}

TEST(Json, StringsAreWrittenAsTheyAreRead) {
  for (const char* text : {"", "a", "\"\\/", "\n\t\x01\x1f\x7f", "\u00e9\U0001f600"})
    EXPECT_EQ(*parse(json_string(text)).as<std::string>(), text);
}

}  // namespace
}  // namespace heed::detail
