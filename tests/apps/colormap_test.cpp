#include "apps/common/figures/colormap.h"

#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>

#include "apps/common/figures/terminal_heatmap.h"
#include "apps/common/text.h"

namespace heed::apps {
namespace {

// The colours that matplotlib 3 gives at 0, 1/4, 1/2, 3/4 and 1: entries 0, 64, 128, 192 and 255 of 256.
TEST(ColorMaps, AgreeWithThePublishedOnes) {
  const std::pair<const char*, std::array<const char*, 5>> published[] = {
      {"Blues", {"#f7fbff", "#c6dbef", "#6aaed6", "#2070b4", "#08306b"}},
      {"Greens", {"#f7fcf5", "#c7e9c0", "#73c476", "#228a44", "#00441b"}},
      {"Reds", {"#fff5f0", "#fcbba1", "#fb694a", "#ca181d", "#67000d"}},
      {"viridis", {"#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"}},
      {"coolwarm", {"#3b4cc0", "#8db0fe", "#dddcdc", "#f4987a", "#b40426"}},
      {"RdBu", {"#67001f", "#e58368", "#f6f7f7", "#68abd0", "#053061"}},
      {"RdYlBu", {"#a50026", "#f98e52", "#feffc0", "#8ec2dc", "#313695"}}};
  const double places[] = {0, 64 / 255.0, 128 / 255.0, 192 / 255.0, 1};
  for (const auto& map : published) {
    for (size_t i = 0; i < 5; ++i) {
      const Color color = color_at(parse_color_map(map.first), places[i]);
      const unsigned rgb = static_cast<unsigned>(std::stoul(map.second[i] + 1, nullptr, 16));
      // Two steps of 255 for interpolating between fewer anchors.
      EXPECT_NEAR(color.red, rgb >> 16, 2) << map.first << i;
      EXPECT_NEAR(color.green, rgb >> 8 & 255, 2) << map.first << i;
      EXPECT_NEAR(color.blue, rgb & 255, 2) << map.first << i;
    }
  }
}

TEST(ColorMaps, HoldToTheirEnds) {
  for (const ColorMap map : {ColorMap::blues, ColorMap::viridis, ColorMap::rdylbu}) {
    EXPECT_EQ(color_at(map, -3), color_at(map, 0));
    EXPECT_EQ(color_at(map, std::numeric_limits<double>::infinity()), color_at(map, 1));
    EXPECT_EQ(color_at(map, std::nan("")), (Color{0xd9, 0xd9, 0xd9}));
    for (size_t i = 0; i < anchors(map).size(); ++i) {
      const Color c = color_at(map, static_cast<double>(i) / static_cast<double>(anchors(map).size() - 1));
      EXPECT_EQ(static_cast<uint32_t>(c.red << 16 | c.green << 8 | c.blue), anchors(map)[i]);
    }
  }
  EXPECT_THROW(parse_color_map("blues"), ConfigError);
}

TEST(ColorMaps, TextIsReadableOnEveryColour) {
  const Color white{0xff, 0xff, 0xff};
  EXPECT_EQ(text_color_on(color_at(ColorMap::blues, 1)), white);
  EXPECT_NE(text_color_on(color_at(ColorMap::blues, 0)), white);
  EXPECT_EQ(text_color_on(color_at(ColorMap::viridis, 0)), white);
  EXPECT_NE(text_color_on(color_at(ColorMap::viridis, 1)), white);
  EXPECT_EQ(text_color_on({0, 0, 0}), white);
  EXPECT_NE(text_color_on(white), white);
}

TEST(Text, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(text_columns("aü…█"), 4);
  EXPECT_EQ(text_columns("日本"), 4);
  EXPECT_EQ(shorten("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten("abcdefg", 6), "abcde…");
  EXPECT_EQ(shorten("日本語", 5), "日本…");
  EXPECT_EQ(shorten("日本語", 4), "日…");
  EXPECT_EQ(pad_left("日", 4), "  日");
  EXPECT_EQ(pad_right("ü", 3), "ü  ");
}

Heatmap sample() {
  Heatmap map;
  map.title = "Cross-attention";
  map.values = {2, 3, {0.f, 0.3f, 0.7f, 1.f, 0.5f, -0.25f}};
  map.row_labels = {"<s>", "日本"};
  map.column_labels = {"a", "b\n", "a longer word"};
  map.range = std::pair(0.0, 1.0);
  return map;
}

TEST(TerminalHeatmap, WithShades) {
  EXPECT_EQ(terminal_heatmap(sample(), {.color = false, .utf8 = true}),
            "Cross-attention\n"
            "          a    b\\n a lon… \n"
            " <s>    .00 ░░ .30 ▓▓ .70 \n"
            "日本 ██1.00 ▒▒ .50   -.25 \n"
            "Query (rows) by Key (columns), 0 to 1\n");
  const std::string plain = terminal_heatmap(sample(), {.color = false, .utf8 = false});
  EXPECT_NE(plain.find("\n <s>    .00 .. .30 %% .70 \n"), std::string::npos) << plain;
}

TEST(TerminalHeatmap, WithColours) {
  Heatmap map;
  map.values = {1, 2, {0, 1}};
  EXPECT_EQ(terminal_heatmap(map, {.color = true}),
            "      0     1 \n"
            "0 \x1b[48;2;247;251;255m\x1b[38;2;26;26;26m  .00 \x1b[0m"
            "\x1b[48;2;8;48;107m\x1b[38;2;255;255;255m 1.00 \x1b[0m\n"
            "Query (rows) by Key (columns), 0 to 1\n");
}

TEST(TerminalHeatmap, OddValuesAndSizes) {
  Heatmap map;
  map.values = {
      1, 3, {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1234.5f}};
  const std::string text = terminal_heatmap(map, {});
  EXPECT_NE(text.find("??    NaN"), std::string::npos) << text;
  EXPECT_NE(text.find("-Inf"), std::string::npos) << text;
  EXPECT_NE(text.find("1234.50"), std::string::npos) << text;
  map.values = {0, 0, {}};
  EXPECT_EQ(terminal_heatmap(map, {}), " \nQuery (rows) by Key (columns), 0 to 1\n");
  map.values = {2, 2, {1}};
  EXPECT_THROW(terminal_heatmap(map, {}), ShapeError);
}

}  // namespace
}  // namespace heed::apps
