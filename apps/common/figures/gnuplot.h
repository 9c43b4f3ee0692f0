// A gnuplot script with its data, safe against the text it shows, and running it; private to the figures.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "apps/common/figures/plot.h"

namespace heed::apps {

/// The text as a gnuplot string expression of single-quoted pieces, inside which gnuplot neither runs
/// `commands` nor expands @macros; control characters, which could end the line, are made visible. Use it
/// with noenhanced.
std::string gnuplot_string(std::string_view text);

/// About how wide the text is in pixels at a font size; errs to the wide side.
double text_width(std::string_view text, double font_size);

/// A figure in the making. Positions are in pixels from the top left corner; PNG has two dots a pixel.
class GnuplotFigure {
 public:
  /// Font sizes in pixels.
  static constexpr double kText = 13, kSmall = 12, kTitle = 16, kHeading = 18;

  GnuplotFigure(int width, int height) : width_(width), height_(height) {}

  /// Adds lines of script.
  void add(std::string_view script) { (body_ += script) += '\n'; }
  /// Adds a block of data and returns its number for `index`.
  int add_data(std::string_view block);
  /// Adds script that shows text at a pixel; options are gnuplot's: "center rotate by 90", ….
  void add_label(std::string_view text, double left, double top, std::string_view options,
                 double size = kText);

  /// The frame of a plot, from its pixels.
  void set_margins(double left, double top, double width, double height);
  /// "screen X", "screen Y" for a pixel.
  std::string x(double pixel) const;
  std::string y(double pixel) const;
  /// Pixels as a part of the whole width or height.
  double fraction_x(double pixels) const { return pixels / width_; }
  double fraction_y(double pixels) const { return pixels / height_; }

  /// Runs gnuplot and writes stem.svg and stem.png, each whole or not at all.
  Figure save(const std::filesystem::path& stem) const;

  /// What the script calls the file of data.
  static constexpr std::string_view kData = "data";

 private:
  std::string script(const std::string& data, const std::string& svg, const std::string& png) const;

  int width_, height_;
  int blocks_ = 0;
  std::string body_, data_;
};

/// `set palette defined (…)` for the map.
std::string gnuplot_palette(ColorMap map);

}  // namespace heed::apps
