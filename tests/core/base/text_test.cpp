#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/base/device.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/text.h>

#include "../../support/foreign_locale.h"

namespace heed::test {
namespace {

std::string sample() {
  const int8_t small = -8;
  return concat("a", 'b', std::string("c"), std::string_view("d"), ' ', 1234567, ' ', int64_t{INT64_MIN}, ' ',
                uint64_t{UINT64_MAX}, ' ', small, ' ', true, ' ', 1234567.0, ' ', 0.5f, ' ', -1e-7, ' ',
                std::numeric_limits<double>::infinity(), ' ', DType::bf16, ' ', cuda_device(1234));
}

constexpr char kSample[] =
    "abcd 1234567 -9223372036854775808 18446744073709551615 -8 1 1.23457e+06 0.5 -1e-07 inf bf16 cuda:1234";

TEST(Text, JoinsEachKindOfPart) {
  EXPECT_EQ(sample(), kSample);
  EXPECT_EQ(concat(), "");
}

TEST(Text, NumbersAsPrintfWritesThemInTheCLocale) {
  EXPECT_EQ(fixed_text(1234.5678, 2), "1234.57");
  EXPECT_EQ(fixed_text(-0.5, 0), "-0");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::max(), 6).size(), 309u + 7);
  EXPECT_EQ(scientific_text(1234.5678, 3), "1.235e+03");
  EXPECT_EQ(significant_text(1234.5678, 3), "1.23e+03");
  EXPECT_EQ(significant_text(0.1, 4), "0.1");
  EXPECT_EQ(fixed_text(std::nan(""), 2), "nan");
}

TEST(Text, ThousandsStandApart) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(-999), "-999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1396244), "1,396,244");
  EXPECT_EQ(grouped(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(Text, NoLocaleChangesIt) {
  {
    const ForeignLocale locale;
    EXPECT_EQ(sample(), kSample);
    EXPECT_EQ(fixed_text(1234567.5, 1), "1234567.5");
  }
  const ForeignCLocale locale;
  if (!locale.found()) GTEST_SKIP() << "no locale with a decimal comma is installed";
  EXPECT_EQ(sample(), kSample);
  EXPECT_EQ(fixed_text(1234567.5, 1), "1234567.5");
}

TEST(Text, Split) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("a,,b,", ','), (Parts{"a", "", "b", ""}));
  EXPECT_EQ(split("alone", ','), (Parts{"alone"}));
  EXPECT_EQ(split("", ','), (Parts{""}));
}

TEST(Text, Trim) {
  EXPECT_EQ(trim(" \t\r\n two words\v\f "), "two words");
  EXPECT_EQ(trim("\xc2\xa0 "), "\xc2\xa0");  // ASCII's white space alone
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(trim(""), "");
}

}  // namespace
}  // namespace heed::test
