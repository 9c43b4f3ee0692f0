// Colour maps for figures and terminals.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace heed::apps {

/// Blues to viridis run from small to large; the last three diverge from a middle.
enum class ColorMap { blues, greens, reds, viridis, coolwarm, rdbu, rdylbu };

struct Color {
  uint8_t red = 0, green = 0, blue = 0;
  friend bool operator==(const Color&, const Color&) = default;
};

/// The colours at equal steps from 0 to 1, as 0xRRGGBB; between them colours are interpolated.
std::span<const uint32_t> anchors(ColorMap map);

/// The colour at t, which is held to [0, 1]; NaN is grey.
Color color_at(ColorMap map, double t);

/// Black or white, whichever is easier to read on the colour (the larger contrast ratio of WCAG 2).
Color text_color_on(Color background);

/// "#rrggbb".
std::string hex(Color color);

/// "Blues", "RdYlBu", …: reads the usual names of the maps; ConfigError on another.
ColorMap parse_color_map(std::string_view name);

}  // namespace heed::apps
