#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/text/gettext.h>

#include "../../support/expect_error.h"
#include "../../support/temporary_folder.h"

namespace heed::data {
namespace {

using test::expect_error;
using Texts = std::vector<std::string>;

constexpr const char* kCatalogue = R"(# Translations of a program.
msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset=UTF-8\n"

#. a comment of the programmer
#: main.c:3
msgid "Open"
msgstr "Öffnen"

#: main.c:7
#, c-format
msgid "%d of "
"%d files\n"
msgstr ""

#, fuzzy
msgctxt "menu"
msgid "Close"
msgstr "Zumachen"

msgid "one file"
msgid_plural "many files"
msgstr[0] "eine Datei"
msgstr[1] "viele Dateien"

msgid "a \"quoted\" \\ tab\tword"
msgstr ""

#, fuzzy
#~ msgid "gone"
#~ msgstr "weg"

msgid "last"
msgstr ""
)";

PoFile parse(const std::string& text) { return PoFile::parse(text, "f.po"); }

TEST(PoFile, IsTakenApart) {
  const PoFile po = parse(kCatalogue);
  const auto& m = po.messages();
  ASSERT_EQ(m.size(), 7u);
  EXPECT_TRUE(m[0].is_header());
  EXPECT_EQ(m[1].id, "Open");
  EXPECT_EQ(m[1].translations, Texts{"Öffnen"});
  EXPECT_EQ(m[2].id, "%d of %d files\n");
  EXPECT_FALSE(m[2].is_translated());
  EXPECT_EQ(m[3].context, "menu");
  EXPECT_TRUE(m[3].fuzzy);
  EXPECT_EQ(m[4].plural_id, "many files");
  EXPECT_EQ(m[4].translations, (Texts{"eine Datei", "viele Dateien"}));
  EXPECT_EQ(m[5].id, "a \"quoted\" \\ tab\tword");
  EXPECT_EQ(m[6].id, "last");
  EXPECT_FALSE(m[6].fuzzy);  // that was of the obsolete message
}

TEST(PoFile, WhatIsFilledInIsAllThatChanges) {
  const PoFile po = parse(kCatalogue);
  EXPECT_EQ(po.filled({}), kCatalogue);
  std::string want = kCatalogue;
  const auto replace = [&](const std::string& from, const std::string& to) {
    want.replace(want.find(from), from.size(), to);
  };
  replace("#, c-format\nmsgid \"%d of \"\n\"%d files\\n\"\nmsgstr \"\"",
          "#, fuzzy, c-format\nmsgid \"%d of \"\n\"%d files\\n\"\nmsgstr \"%d von %d Dateien\\n\"");
  replace("msgid \"a \\\"quoted\\\" \\\\ tab\\tword\"\nmsgstr \"\"",
          "#, fuzzy\nmsgid \"a \\\"quoted\\\" \\\\ tab\\tword\"\nmsgstr \"\"\n\"ein "
          "\\\"W\\\"\\n\"\n\"\\\\\\tort\"");
  EXPECT_EQ(po.filled({{2, {"%d von %d Dateien\n"}}, {5, {"ein \"W\"\n\\\tort"}}}), want);
  const PoFile again = parse(want);
  EXPECT_EQ(again.messages()[5].translations, Texts{"ein \"W\"\n\\\tort"});
  EXPECT_TRUE(again.messages()[5].fuzzy);
  for (const size_t i : {size_t{1}, size_t{4}, size_t{7}})
    expect_error<ConfigError>([&] { (void)po.filled({{i, {"x"}}}); }, {"none that can be filled"});
  expect_error<ConfigError>([&] { (void)po.filled({{2, {"x", "y"}}}); }, {"has 1 translations, got 2"});
}

TEST(PoFile, PluralFormsAreFilledInTogether) {
  const std::string header = "msgid \"\"\nmsgstr \"Plural-Forms: nplurals=3; plural=n>1;\\n\"\n";
  const std::string message =
      "msgid \"a\"\nmsgid_plural \"b\"\nmsgstr[0] \"\"\n\"\"\nmsgstr[1] \"\"\n# next\n";
  const PoFile po = parse(header + message);
  EXPECT_EQ(po.plural_forms(), 3u);
  EXPECT_EQ(
      po.filled({{1, {"x", "y\nz"}}}),
      header +
          "#, fuzzy\nmsgid \"a\"\nmsgid_plural \"b\"\nmsgstr[0] \"x\"\nmsgstr[1] \"\"\n\"y\\n\"\n\"z\"\n# "
          "next\n");
  expect_error<ConfigError>([&] { (void)po.filled({{1, {"x"}}}); }, {"has 2 translations, got 1"});
  EXPECT_EQ(parse(message).plural_forms(), 0u);
  EXPECT_EQ(parse("msgid \"\"\nmsgstr \"nplurals=INTEGER\"\n").plural_forms(), 0u);
  EXPECT_EQ(parse("msgid \"\"\nmsgstr \"nplurals=99999999999999999999\"\n").plural_forms(), 0u);
}

TEST(PoFile, LineEndsStay) {
  const std::string text = "msgid \"a\"\r\nmsgstr \"\"\r\n\r\nmsgid \"b\"\r\nmsgstr \"\"";
  EXPECT_EQ(parse(text).filled({{0, {"x\ny"}}, {1, {"z"}}}),
            "#, fuzzy\r\nmsgid \"a\"\r\nmsgstr \"\"\r\n\"x\\n\"\r\n\"y\"\r\n\r\n#, fuzzy\r\nmsgid "
            "\"b\"\r\nmsgstr \"z\"");
  // Parts of an empty translation go with it.
  EXPECT_EQ(parse("msgid \"a\"\nmsgstr \"\"\n\"\"\n\"\"\n").filled({{0, {"x"}}}),
            "#, fuzzy\nmsgid \"a\"\nmsgstr \"x\"\n");
}

TEST(PoFile, BreaksOfSyntaxAreNamed) {
  const auto refuse = [](const std::string& text, const std::string& message) {
    expect_error<DataError>([&] { parse(text); }, {message});
  };
  refuse("msgid \"a\"\nmsgstr \"\xff\"\n", "f.po:2:9: this byte is not UTF-8");
  refuse(std::string("msgid \"a\0\"\n", 11), "f.po:1: a NUL");
  refuse("msgid \"a\n", "f.po:1: the closing quote is missing");
  refuse("msgid \"a\\q\"\n", "f.po:1: a backslash");
  refuse("msgid \"a\" b\n", "f.po:1: something follows");
  refuse("msgid a\n", "f.po:1: expected a text in quotes after msgid");
  refuse("\"a\"\n", "f.po:1: a text that belongs to no keyword");
  refuse("msgstr \"a\"\n", "f.po:1: msgstr stands after msgid");
  refuse("msgid \"a\"\nmsgid \"b\"\n", "f.po:2: a second msgid");
  refuse("msgid \"a\"\nmsgstr[0] \"b\"\n", "f.po:2: 'msgstr[0]' cannot stand here");
  refuse("msgid \"a\"\nmsgid_plural \"b\"\nmsgstr[1] \"b\"\n", "f.po:3: 'msgstr[1]' cannot");
  refuse("msgid \"a\"\n# c\nmsgstr \"b\"\n", "f.po:2: a comment within");
  refuse("msgid \"a\"\n", "without msgstr");
  refuse("msgid \"a\"\nmsgstr \"\\303\"\n", "make no UTF-8");
  refuse("msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=ISO-8859-1\\n\"\n", "'iso-8859-1'; convert");
  refuse("\xff\xfem", "UTF-16");
  EXPECT_TRUE(parse("").messages().empty());
  EXPECT_EQ(parse("msgid \"\\x41\\102\"\nmsgstr \"\"\n").messages()[0].id, "AB");
}

// A compiled catalogue of either byte order.
std::string compiled(const std::vector<std::pair<std::string, std::string>>& messages,
                     bool big_endian = false) {
  const auto word = [&](size_t value) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * (big_endian ? 3 - i : i)));
    return bytes;
  };
  const size_t count = messages.size(), tables = 28 + 16 * count;
  std::string ids, texts, strings;
  const auto put = [&](std::string& table, const std::string& text) {
    table += word(text.size()) + word(tables + strings.size());
    strings += text + '\0';
  };
  for (const auto& message : messages) put(ids, message.first);
  for (const auto& message : messages) put(texts, message.second);
  return word(0x950412de) + word(0) + word(count) + word(28) + word(28 + 8 * count) + word(0) + word(tables) +
         ids + texts + strings;
}

const std::vector<std::pair<std::string, std::string>> kMessages{
    {"", "Content-Type: text/plain; charset=utf-8\n"},
    {"Open", "Öffnen"},
    {"menu\4Close", "Schließen"},
    {std::string("file\0files", 10), std::string("Datei\0Dateien", 13)}};

TEST(MoFile, IsRead) {
  for (const bool big_endian : {false, true}) {
    const auto m = parse_mo(compiled(kMessages, big_endian), "f.mo");
    ASSERT_EQ(m.size(), 4u);
    EXPECT_TRUE(m[0].is_header());
    EXPECT_EQ(m[1].translations, Texts{"Öffnen"});
    EXPECT_EQ(m[2].context, "menu");
    EXPECT_EQ(m[2].id, "Close");
    EXPECT_EQ(m[3].plural_id, "files");
    EXPECT_EQ(m[3].translations, (Texts{"Datei", "Dateien"}));
  }
}

TEST(MoFile, ForgedNumbersAreErrors) {
  const std::string good = compiled(kMessages);
  const auto refuse = [](const std::string& bytes, const std::string& message) {
    expect_error<DataError>([&] { parse_mo(bytes, "f.mo"); }, {"f.mo", message});
  };
  const auto forged = [&](size_t at, uint32_t value) {
    std::string bytes = good;
    for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
    return bytes;
  };
  for (size_t size = 0; size < good.size(); ++size)  // cut anywhere
    EXPECT_THROW(parse_mo(good.substr(0, size), "f.mo"), DataError) << size;
  refuse("abc", "3 bytes");
  refuse(forged(0, 7), "begins otherwise");
  refuse(forged(4, 5 << 16), "revision 5");
  refuse(forged(8, 0xffffffff), "4294967295 messages do not fit");
  refuse(forged(12, 0xfffffff0), "outside the file");
  refuse(forged(28, 0xffffffff), "does not end within");
  refuse(forged(32, 0xffffffff), "does not end within");
  refuse(forged(36, 3), "does not end within");  // no NUL behind "Ope"
  // All texts at one place would be many times the file.
  std::string bomb = compiled({{"a", std::string(100, 'x')}, {"b", "y"}, {"c", "z"}});
  for (const size_t entry : {size_t{1}, size_t{2}})
    for (size_t i = 0; i < 8; ++i) bomb[28 + 24 + 8 * entry + i] = bomb[28 + 24 + i];
  refuse(bomb, "overlap");
  refuse(compiled({{"a", "\xff"}}), "not UTF-8");
  refuse(compiled({{"", "charset=KOI8-R"}}), "'koi8-r'");
}

TEST(GettextPairs, AreWhatIsTranslated) {
  const test::TemporaryFolder folder;
  const TextPairs po = read_gettext_pairs(folder.put("a.po", kCatalogue));
  EXPECT_EQ(po.sources, (Texts{"Open", "one file", "many files"}));
  EXPECT_EQ(po.targets, (Texts{"Öffnen", "eine Datei", "viele Dateien"}));
  const TextPairs mo = read_gettext_pairs(folder.put("a.mo", compiled(kMessages)));
  EXPECT_EQ(mo.sources, (Texts{"Open", "Close", "file", "files"}));
  EXPECT_EQ(mo.targets, (Texts{"Öffnen", "Schließen", "Datei", "Dateien"}));
  const TextPairs lines =
      to_pairs({{.id = "a\n\n b\n", .translations = {"x\n\ny"}}, {.id = "a\nb", .translations = {"x"}}});
  EXPECT_EQ(lines.sources, (Texts{"a", "b", "a b"}));
  EXPECT_EQ(lines.targets, (Texts{"x", "y", "x"}));
  expect_error<DataError>([&] { read_gettext_pairs(folder.file("none.po")); }, {"none.po"});
}

}  // namespace
}  // namespace heed::data
