// A heatmap as text, for a look without leaving the terminal.
#pragma once

#include <string>

#include "apps/common/figures/plot.h"

namespace heed::apps {

/// What the terminal can show.
struct TerminalStyle {
  bool color = false;  ///< 24-bit ANSI colours behind the values; else shades before them
  bool utf8 = true;    ///< block characters as shades; else characters of rising weight
};

/// The heatmap's title, column labels, rows and scale as lines of text. Cells show two decimals, without the
/// leading 0 where values lie in [0, 1). The scale is the heatmap's range, else that of its values.
std::string terminal_heatmap(const Heatmap& heatmap, TerminalStyle style);

}  // namespace heed::apps
