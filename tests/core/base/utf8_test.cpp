#include <string>

#include <gtest/gtest.h>

#include <heed/core/base/utf8.h>

namespace heed {
namespace {

std::string bytes_of(char32_t c) {
  const auto byte = [](char32_t value) { return static_cast<char>(value); };
  const auto rest = [&](int shift) { return byte(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xc0 | c >> 6), rest(0)};
  if (c < 0x10000) return {byte(0xe0 | c >> 12), rest(6), rest(0)};
  return {byte(0xf0 | c >> 18), rest(12), rest(6), rest(0)};
}

TEST(Utf8, EveryCodePointButSurrogates) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    const std::string text = bytes_of(c);
    const CodePoint found = first_code_point(text + "a");
    if (c >= 0xd800 && c < 0xe000) {
      ASSERT_EQ(found.length, 0u) << std::hex << static_cast<uint32_t>(c);
    } else {
      ASSERT_EQ(found.value, c);
      ASSERT_EQ(found.length, text.size());
      const size_t cut = first_code_point(text.substr(0, text.size() - 1)).length;
      ASSERT_EQ(cut, 0u);
    }
  }
}

// Every text of two bytes, and of three and four with the edges of what a byte may be: one that is accepted
// is the only way to write its code point.
TEST(Utf8, OneWayToWriteEach) {
  const int edges[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
  const auto check = [](const std::string& text) {
    const CodePoint found = first_code_point(text);
    if (found.length == 0) return;
    ASSERT_EQ(bytes_of(found.value), text.substr(0, found.length));
  };
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      std::string text = {static_cast<char>(first), static_cast<char>(second)};
      check(text);
      for (const int third : edges)
        for (const int fourth : edges) check(text + static_cast<char>(third) + static_cast<char>(fourth));
    }
}

TEST(Utf8, WhatIsNone) {
  EXPECT_EQ(first_code_point("").length, 0u);
  for (const char* text :
       {"\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"})
    EXPECT_EQ(first_code_point(text).length, 0u);
  EXPECT_EQ(invalid_utf8("a\u00e4\u20ac\U0001f600"), std::nullopt);
  EXPECT_EQ(invalid_utf8("ab\xff"), 2u);
  EXPECT_EQ(invalid_utf8("\u00e4\xc3"), 2u);
  EXPECT_EQ(invalid_utf8(std::string_view("\0a", 2)), std::nullopt);
}

}  // namespace
}  // namespace heed
