#include "apps/translate/placeholders.h"

#include <gtest/gtest.h>

namespace heed::apps {
namespace {

using Texts = std::vector<std::string>;

TEST(Placeholders, AreFoundInProgramsMessages) {
  EXPECT_EQ(placeholders("%s has %5.2f of %ld"), (Texts{"%s", "%5.2f", "%ld"}));
  EXPECT_EQ(placeholders("%2$s before %1$s"), (Texts{"%1$s", "%2$s"}));
  EXPECT_EQ(placeholders("%(name)s: %(count)d"), (Texts{"%(count)d", "%(name)s"}));
  EXPECT_EQ(placeholders("100 % of it, 100%"), Texts{});
  EXPECT_EQ(placeholders("100%% of {} and {name:>8}"), (Texts{"%%", "{}", "{name:>8}"}));
  EXPECT_EQ(placeholders("<b>bold</b> <a href=\"x\">y</a> 1 < 2"),
            (Texts{"<b>", "</b>", "<a href=\"x\">", "</a>"}));
  EXPECT_EQ(placeholders("a &amp; b &#8211; c"), (Texts{"&#8211;", "&amp;"}));
  EXPECT_EQ(placeholders("$HOME and ${name} for 5 $"), (Texts{"$HOME", "${name}"}));
  for (const char* text : {"_File", "&File", "~File", "Save _as"})
    EXPECT_EQ(placeholders(text).size(), 1u) << text;
  EXPECT_EQ(placeholders("snake_case, A & B, a ~ b, _"), Texts{});
  EXPECT_EQ(placeholders("%"), Texts{});
  EXPECT_EQ(placeholders("%(x"), Texts{});
  EXPECT_EQ(placeholders("{open <b"), Texts{});
}

TEST(Placeholders, NamedOnesMayMove) {
  EXPECT_EQ(placeholders("{1} {0}"), placeholders("{0} {1}"));
  EXPECT_EQ(placeholders("_Open %(a)s"), placeholders("%(a)s _offen"));
  EXPECT_NE(placeholders("%s %d"), placeholders("%d %s"));
  EXPECT_NE(placeholders("%s"), placeholders("%s %s"));
  EXPECT_NE(placeholders("</b><b>"), placeholders("<b></b>"));
}

}  // namespace
}  // namespace heed::apps
