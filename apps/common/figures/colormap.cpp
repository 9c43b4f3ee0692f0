#include "apps/common/figures/colormap.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <heed/core/base/check.h>

namespace heed::apps {

namespace {

// Blues, Greens, Reds, RdBu and RdYlBu after Cynthia Brewer's ColorBrewer; viridis by Nathaniel Smith and
// Stéfan van der Walt; coolwarm after Kenneth Moreland, "Diverging Color Maps for Scientific Visualization"
// (2009).
constexpr uint32_t kBlues[] = {0xf7fbff, 0xdeebf7, 0xc6dbef, 0x9dcae1, 0x6aaed6,
                               0x4292c6, 0x2171b5, 0x08519c, 0x08306b};
constexpr uint32_t kGreens[] = {0xf7fcf5, 0xe5f5e0, 0xc7e9c0, 0xa0d99b, 0x73c476,
                                0x42ab5d, 0x238b45, 0x006d2c, 0x00441b};
constexpr uint32_t kReds[] = {0xfff5f0, 0xfee0d2, 0xfcbba1, 0xfc9272, 0xfb694a,
                              0xef3c2c, 0xcb181d, 0xa50f15, 0x67000d};
constexpr uint32_t kViridis[] = {0x440154, 0x470d60, 0x48186a, 0x482374, 0x472d7b, 0x453781, 0x424086,
                                 0x3e4989, 0x3b528b, 0x375b8d, 0x33638d, 0x2f6b8e, 0x2c728e, 0x297a8e,
                                 0x26828e, 0x23898e, 0x21918c, 0x1f978b, 0x1f9f88, 0x21a685, 0x27ad81,
                                 0x31b57b, 0x3dbc74, 0x4cc26c, 0x5cc863, 0x6ece58, 0x81d34d, 0x95d840,
                                 0xaadc32, 0xc0df25, 0xd5e21a, 0xeae51a, 0xfde725};
constexpr uint32_t kCoolwarm[] = {0x3b4cc0, 0x445acc, 0x4e68d8, 0x5875e1, 0x6282ea, 0x6c8ff1, 0x779af7,
                                  0x82a6fb, 0x8db0fe, 0x98b9ff, 0xa3c2fe, 0xaec9fc, 0xb9d0f9, 0xc3d5f4,
                                  0xccd9ed, 0xd5dbe5, 0xdddcdc, 0xe4d9d2, 0xebd3c6, 0xf1cdba, 0xf4c5ad,
                                  0xf7bca1, 0xf7b194, 0xf7a688, 0xf49a7b, 0xf18d6f, 0xec7f63, 0xe57058,
                                  0xde614d, 0xd55042, 0xcb3e38, 0xc0282f, 0xb40426};
constexpr uint32_t kRdBu[] = {0x67001f, 0xb3192c, 0xd6604d, 0xf3a481, 0xfddbc7, 0xf6f7f7,
                              0xd1e5f0, 0x93c6de, 0x4393c3, 0x2065ab, 0x053061};
constexpr uint32_t kRdYlBu[] = {0xa50026, 0xd83128, 0xf46d43, 0xfdad60, 0xfee090, 0xfeffc0,
                                0xe0f3f8, 0xacdae9, 0x74add1, 0x4574b3, 0x313695};

Color unpack(uint32_t rgb) {
  return {static_cast<uint8_t>(rgb >> 16), static_cast<uint8_t>(rgb >> 8), static_cast<uint8_t>(rgb)};
}

// Relative luminance as WCAG 2 defines it.
double luminance(Color c) {
  const auto linear = [](uint8_t channel) {
    const double v = channel / 255.0;
    return v <= 0.03928 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(c.red) + 0.7152 * linear(c.green) + 0.0722 * linear(c.blue);
}

}  // namespace

std::span<const uint32_t> anchors(ColorMap map) {
  switch (map) {
    case ColorMap::blues:
      return kBlues;
    case ColorMap::greens:
      return kGreens;
    case ColorMap::reds:
      return kReds;
    case ColorMap::viridis:
      return kViridis;
    case ColorMap::coolwarm:
      return kCoolwarm;
    case ColorMap::rdbu:
      return kRdBu;
    case ColorMap::rdylbu:
      return kRdYlBu;
  }
  HEED_ASSERT(false, "unknown colour map ", static_cast<int>(map));
  return {};
}

Color color_at(ColorMap map, double t) {
  if (std::isnan(t)) return {0xd9, 0xd9, 0xd9};
  const std::span<const uint32_t> colors = anchors(map);
  const double at = std::clamp(t, 0.0, 1.0) * static_cast<double>(colors.size() - 1);
  const size_t below = std::min(static_cast<size_t>(at), colors.size() - 2);
  const double weight = at - static_cast<double>(below);
  const Color a = unpack(colors[below]), b = unpack(colors[below + 1]);
  const auto mix = [&](uint8_t x, uint8_t y) {
    return static_cast<uint8_t>(std::lround(x + weight * (y - x)));
  };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

Color text_color_on(Color background) {
  // Contrast ratio with white 1.05 / (L + 0.05), with black (L + 0.05) / 0.05; black is softened a little.
  const double l = luminance(background) + 0.05;
  return 1.05 / l >= l / 0.05 ? Color{0xff, 0xff, 0xff} : Color{0x1a, 0x1a, 0x1a};
}

std::string hex(Color color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color.red, color.green, color.blue);
}

ColorMap parse_color_map(std::string_view name) {
  static const std::pair<std::string_view, ColorMap> names[] = {
      {"Blues", ColorMap::blues},     {"Greens", ColorMap::greens},     {"Reds", ColorMap::reds},
      {"viridis", ColorMap::viridis}, {"coolwarm", ColorMap::coolwarm}, {"RdBu", ColorMap::rdbu},
      {"RdYlBu", ColorMap::rdylbu}};
  for (const auto& entry : names) {
    if (entry.first == name) return entry.second;
  }
  throw ConfigError(concat(
      "'", name, "' is not one of the colour maps Blues, Greens, Reds, viridis, coolwarm, RdBu, RdYlBu"));
}

}  // namespace heed::apps
