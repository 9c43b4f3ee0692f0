#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/text/unicode.h>

#include "../../support/expect_error.h"

namespace heed::data {
namespace {

using test::expect_error;

TEST(Unicode, FindsTheFirstByteThatIsNotUtf8) {
  EXPECT_FALSE(invalid_utf8(""));
  EXPECT_FALSE(invalid_utf8("a\u00e4\u20ac\U0001f600"));
  EXPECT_EQ(invalid_utf8("ab\xff"), 2u);
  EXPECT_EQ(invalid_utf8("\u00e4\xc3"), 2u);               // cut short
  EXPECT_EQ(invalid_utf8("\xc0\xaf"), 0u);                 // overlong
  EXPECT_EQ(invalid_utf8("a\xed\xa0\x80"), 1u);            // a surrogate
  EXPECT_EQ(invalid_utf8("\xf4\x90\x80\x80"), 0u);         // beyond U+10FFFF
  EXPECT_FALSE(invalid_utf8(std::string_view("\0a", 2)));  // NUL is a character
}

TEST(Unicode, NormalFormsAreThoseOfTheStandard) {
  const std::string decomposed = "e\u0301", ligature = "\ufb01", wide = "\uff21";
  EXPECT_EQ(normalize(decomposed, Normalization::none), decomposed);
  EXPECT_EQ(normalize(decomposed, Normalization::nfc), "\u00e9");
  EXPECT_EQ(normalize(ligature, Normalization::nfc), ligature);
  EXPECT_EQ(normalize(ligature + wide, Normalization::nfkc), "fiA");
  EXPECT_EQ(normalize("\u212b", Normalization::nfc), "\u00c5");        // the sign of \u00e5ngstr\u00f6m
  EXPECT_EQ(normalize("\u1100\u1161", Normalization::nfc), "\uac00");  // Hangul
  EXPECT_EQ(normalize("", Normalization::nfkc), "");
  EXPECT_EQ(normalize("\u00c4\u03a9Z", Normalization::nfc, true), "\u00e4\u03c9z");
  EXPECT_EQ(normalize("A", Normalization::none, true), "a");
}

TEST(Unicode, LettersWithManyMarksTakeTimeInProportion) {
  std::string text = "a", ordered = "a";
  for (int i = 0; i < 100'000; ++i) text += "\u0301\u0323";  // above, below
  for (int i = 1; i < 100'000; ++i) ordered += "\u0323";
  for (int i = 0; i < 100'000; ++i) ordered += "\u0301";
  EXPECT_EQ(normalize(text, Normalization::nfc), "\u1ea1" + ordered.substr(1));
}

TEST(Unicode, TextThatIsNotUtf8IsRefusedWithThePlace) {
  expect_error<DataError>([] { normalize("abc\xff", Normalization::nfc); }, {"not UTF-8", "byte 3 of 4"});
  expect_error<DataError>([] { normalize("\xc3", Normalization::none); }, {"byte 0 of 1"});
}

TEST(Unicode, IllFormedBytesAreReplaced) {
  EXPECT_EQ(well_formed("a\xff\u00e4\xc3"), "a\ufffd\u00e4\ufffd");
  EXPECT_EQ(well_formed("ok"), "ok");
  EXPECT_EQ(well_formed("\xe2\x82x\xf0\x9f\x98"), "\ufffdx\ufffd");  // characters that break off
  EXPECT_EQ(well_formed("\xed\xa0\x80\xc0\x80"), "\ufffd\ufffd\ufffd\ufffd\ufffd");  // none begins so
  CharacterAssembler assembler;
  std::string text;
  for (const char byte : std::string("\u20ac\xe2\x82")) assembler.push(std::string_view(&byte, 1), text);
  EXPECT_EQ(text, "\u20ac");
  assembler.finish(text);
  EXPECT_EQ(text, "\u20ac\ufffd");
}

TEST(Unicode, CountsCodePointsAndKnowsTheirKind) {
  EXPECT_EQ(count_code_points("a\u00e4\u20ac\U0001f600"), 4);
  std::vector<std::string> seen;
  for_each_code_point("a\u20ac", [&](int32_t, std::string_view bytes) { seen.emplace_back(bytes); });
  EXPECT_EQ(seen, (std::vector<std::string>{"a", "\u20ac"}));
  for (const int32_t c : std::initializer_list<int32_t>{' ', '\t', '\n', '\r', 0xa0, 0x3000, 0x2028})
    EXPECT_EQ(character_class(c), CharacterClass::space) << c;
  for (const int32_t c : std::initializer_list<int32_t>{'a', 'Z', '0', 0xe4, 0x4e2d, 0x301})
    EXPECT_EQ(character_class(c), CharacterClass::word) << c;
  for (const int32_t c : std::initializer_list<int32_t>{'.', '-', '$', 0, 0x1f600})
    EXPECT_EQ(character_class(c), CharacterClass::other) << c;
}

TEST(Unicode, FormsHaveNames) {
  for (const char* form : {"none", "nfc", "nfkc"}) EXPECT_STREQ(name(parse_normalization(form)), form);
  expect_error<ConfigError>([] { parse_normalization("nfd"); }, {"nfd", "none, nfc or nfkc"});
}

}  // namespace
}  // namespace heed::data
