#include "apps/common/figures/plot.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>

#include "apps/common/figures/gnuplot.h"
#include "apps/common/figures/heatmap_panel.h"

namespace heed::apps {
namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// What is wrong with an XML document; "" if it is well-formed. Knows what gnuplot writes: elements,
// attributes, comments, declarations and references.
std::string xml_mistake(const std::string& text) {
  std::vector<std::string> open;
  size_t at = 0, roots = 0;
  const auto references_end = [&](const std::string& piece) {
    for (size_t i = piece.find('&'); i != std::string::npos; i = piece.find('&', i + 1)) {
      const size_t end = piece.find(';', i);
      if (end == std::string::npos || end - i > 10) return false;
    }
    return true;
  };
  while (at < text.size()) {
    if (text[at] != '<') {
      const size_t end = std::min(text.find('<', at), text.size());
      const std::string piece = text.substr(at, end - at);
      if (!references_end(piece)) return "a bare & in: " + piece;
      if (open.empty() && piece.find_first_not_of(" \t\r\n") != std::string::npos)
        return "text outside: " + piece;
      at = end;
      continue;
    }
    if (text.compare(at, 4, "<!--") == 0) {
      at = text.find("-->", at) + 3;
      continue;
    }
    size_t end = at + 1;
    for (char quote = 0; end < text.size() && (quote || text[end] != '>'); ++end) {
      if (quote ? text[end] == quote : text[end] == '"' || text[end] == '\'') quote = quote ? 0 : text[end];
      if (text[end] == '<') return "a bare < at byte " + std::to_string(end);
    }
    if (end >= text.size()) return "a tag without end at byte " + std::to_string(at);
    const std::string tag = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag[0] == '?' || tag[0] == '!') continue;
    if (!references_end(tag)) return "a bare & in: " + tag;
    const std::string name = tag.substr(tag[0] == '/', tag.find_first_of(" \t\r\n/", 1) - (tag[0] == '/'));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name) return "</" + name + "> closes nothing";
      open.pop_back();
    } else if (tag.back() != '/') {
      roots += open.empty();
      open.push_back(name);
    }
  }
  if (!open.empty()) return "<" + open.back() + "> is not closed";
  return roots == 1 ? "" : "not one root";
}

TEST(XmlCheck, FindsMistakes) {
  EXPECT_EQ(xml_mistake("<?xml version='1.0'?><!-- < --><a b=\"<\"></a>"), "a bare < at byte 37");
  EXPECT_EQ(xml_mistake("<a><b c='&lt;>'/>x &amp; y</a>\n"), "");
  EXPECT_NE(xml_mistake("<a>x & y</a>"), "");
  EXPECT_NE(xml_mistake("<a><b></a></b>"), "");
  EXPECT_NE(xml_mistake("<a>"), "");
}

class Plot : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("plot_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    if (std::system("gnuplot --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "gnuplot is not installed";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // The SVG, after checks that both files are what they claim and nothing else stayed.
  template <class T>
  std::string draw(const T& plot, const std::string& name = "figure") {
    const Figure figure = save_figure(plot, folder_ / name);
    EXPECT_TRUE(figure.drawn) << figure.message;
    if (!figure.drawn) return "";
    EXPECT_EQ(figure.files, (std::vector<fs::path>{folder_ / (name + ".svg"), folder_ / (name + ".png")}));
    const std::string svg = read_all(figure.files[0]), png = read_all(figure.files[1]);
    EXPECT_EQ(xml_mistake(svg), "");
    EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
    EXPECT_NE(png.find("IEND"), std::string::npos);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
    return svg;
  }

  fs::path folder_;
};

Heatmap small_heatmap() {
  Heatmap map;
  map.title = "Weights";
  map.values = {2, 3, {0.25f, 0.5f, 0.25f, 0.f, 1.f, 0.f}};
  map.row_labels = {"cat", "sat"};
  map.column_labels = {"the", "cat", "mat"};
  return map;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

TEST_F(Plot, HeatmapShowsItsTextsAndColours) {
  Heatmap map = small_heatmap();
  map.decimals = 2;
  const std::string svg = draw(map);
  for (const char* text :
       {">Weights<", ">cat<", ">mat<", ">Query<", ">Key<", ">Attention weight<", ">0.25<", ">1.00<"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(count(svg, ">0.00<"), 2);
  // The ends of Blues: the largest cell and the smallest ones. gnuplot pads its numbers.
  EXPECT_NE(svg.find("rgb(  8,  48, 107)"), std::string::npos);
  EXPECT_NE(svg.find("rgb(247, 251, 255)"), std::string::npos);
  // Row 0 is on top: its label stands above that of row 1.
  EXPECT_LT(svg.find(">cat<"), svg.find(">sat<"));
  map.decimals = 3;
  EXPECT_NE(draw(map).find(">0.250<"), std::string::npos);
}

TEST_F(Plot, HeatmapsOfEveryShape) {
  for (const auto& [rows, cols] : {std::pair(1, 1), std::pair(1, 9), std::pair(9, 1), std::pair(64, 64),
                                   std::pair(65, 2), std::pair(1, 100), std::pair(100, 128)}) {
    Heatmap map;
    map.values = {rows, cols, std::vector<float>(static_cast<size_t>(rows * cols), 0.5f)};
    map.values.values.back() = std::numeric_limits<float>::quiet_NaN();
    map.values.values.front() = std::numeric_limits<float>::infinity();
    map.decimals = rows * cols < 20 ? 2 : 0;
    draw(map);
  }
}

TEST_F(Plot, Grids) {
  HeatmapGrid grid;
  grid.title = "All heads";
  grid.columns = 4;
  for (int i = 0; i < 8; ++i) grid.panels.push_back(small_heatmap());
  grid.panels[3].values.values[0] = 4;
  const std::string each = draw(grid);
  EXPECT_EQ(count(each, ">Attention weight<"), 8);
  EXPECT_EQ(count(each, ">Query<"), 8);
  grid.shared_scale = true;
  const std::string shared = draw(grid);
  EXPECT_EQ(count(shared, ">Attention weight<"), 1);
  EXPECT_EQ(count(shared, ">Query<"), 2) << "at the left edge only";
  EXPECT_EQ(count(shared, ">Key<"), 4) << "at the lower edge only";
  EXPECT_NE(shared.find(">All heads<"), std::string::npos);
}

TEST(HeatmapPanel, FewCellsAreWideUnlessSquare) {
  Heatmap map;
  map.values = {4, 3, std::vector<float>(12, 0.5F)};
  map.decimals = 2;
  EXPECT_EQ(make_panel(map, kSide).width, 3 * 48);
  EXPECT_EQ(make_panel(map, kSide).height, 4 * 48);
  map.square = false;
  EXPECT_EQ(make_panel(map, kSide).width, 3 * 96);
  EXPECT_EQ(make_panel(map, kSide).height, 4 * 30);
  EXPECT_EQ(make_panel(map, 150).width, 3 * 50);
  map.decimals = 0;
  map.values = {64, 2, std::vector<float>(128, 0.5F)};
  EXPECT_EQ(make_panel(map, kSide).width, 2 * 96) << "however many rows there are";
  EXPECT_EQ(make_panel(map, kSide).height, 64 * 6);
}

TEST_F(Plot, HiddenCellsAreBlank) {
  Heatmap map;
  map.values = {2, 2, {1, 0, 0.25F, 0.75F}};
  map.decimals = 2;
  map.zeros_are_hidden = true;
  const auto has = [&](const char* text) { return draw(map).find(text) != std::string::npos; };
  EXPECT_FALSE(has(">0.00<"));
  EXPECT_TRUE(has(">0.25<"));
  EXPECT_FALSE(has(">NaN<"));
  map.zeros_are_hidden = false;
  EXPECT_TRUE(has(">0.00<"));
}

TEST_F(Plot, GridsFitAPage) {
  Heatmap map;
  map.title = "Encoder, layer 11, head 15";
  map.values = {12, 12, std::vector<float>(144, 0.1F)};
  map.row_labels = map.column_labels = std::vector<std::string>(12, "start");
  for (const int columns : {1, 2, 3, 4, 6})
    for (const bool shared : {false, true}) {
      const std::string svg = draw(HeatmapGrid{"Heads", columns, std::vector<Heatmap>(6, map), shared});
      std::smatch width;
      ASSERT_TRUE(std::regex_search(svg, width, std::regex(R"re(width="(\d+)")re")));
      EXPECT_LE(std::stoi(width[1]), 880) << columns;
    }
}

TEST_F(Plot, GridsNameRowsAndColumnsWhereTheyDiffer) {
  HeatmapGrid grid;
  grid.columns = 2;
  grid.shared_scale = true;
  grid.panels = {small_heatmap(), small_heatmap()};
  EXPECT_EQ(count(draw(grid), ">sat<"), 1);
  grid.panels[1].row_labels = {"sat", "cat"};
  const std::string differing = draw(grid);
  EXPECT_EQ(count(differing, ">sat<"), 2);
  EXPECT_EQ(count(differing, ">Query<"), 2);
  grid.columns = 1;  // below each other, with other columns
  grid.panels[1].column_labels = {"mat", "cat", "the"};
  EXPECT_EQ(count(draw(grid), ">the<"), 2);
}

TEST_F(Plot, ManyCellsAreOneSharpPictureInAnSvg) {
  Heatmap map;
  map.values = {64, 65, std::vector<float>(64 * 65, 0.5f)};
  const std::string picture = draw(map);
  EXPECT_EQ(count(picture, "<image style='image-rendering:pixelated' "), 1);
  EXPECT_LT(picture.size(), 50'000u);
  map.values = {12, 12, std::vector<float>(144, 0.5f)};
  const std::string shapes = draw(map);
  EXPECT_EQ(count(shapes, "<image"), 0);
  EXPECT_LT(shapes.size(), 50'000u);
}

TEST_F(Plot, LargeFiguresAreReducedAndSaySo) {
  Heatmap map;
  map.values = {3000, 1000, std::vector<float>(3'000'000, 0.f)};
  map.values.values[1500 * 1000 + 500] = -0.5f;
  map.values.values[1500 * 1000 + 501] = 0.25f;
  map.title = "Large";
  const std::string svg = draw(map);
  EXPECT_LT(svg.size(), 200'000u);
  map.values = {64, 512, std::vector<float>(64 * 512, 0.f)};
  EXPECT_EQ(draw(map).find("in a cell"), std::string::npos);
  for (const char* text : {">Query (16 in a cell: the largest)<", ">Key (6 in a cell: the largest)<"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;

  HeatmapGrid grid{"Heads", 8, std::vector<Heatmap>(100, small_heatmap()), true};
  const std::string panels = draw(grid);
  EXPECT_NE(panels.find(">Heads: the first 64 of 100<"), std::string::npos);

  LinePlot plot{"", "", "", {{"", {}, {}}}};
  for (int i = 0; i < 1'000'000; ++i) {
    plot.lines[0].x.push_back(i);
    plot.lines[0].y.push_back(i == 777'777 ? 1000 : i % 2);
  }
  const std::string line = draw(plot);
  EXPECT_LT(line.size(), 300'000u);
  EXPECT_NE(line.find("> 1000<"), std::string::npos) << "the peak stays";
}

TEST(Reduced, KeepsOfEachBlockWhatIsFurthestFromZero) {
  const float nan = std::nanf("");
  const Matrix m{3, 5, {1, -2, 0, nan, nan, 3, 0.5f, nan, -1, 4, 0, 0, 0, nan, 7}};
  const Matrix r = reduced(m, 2, 2);
  EXPECT_EQ(r.rows, 2);
  EXPECT_EQ(r.cols, 3);
  EXPECT_EQ(r.values, (std::vector<float>{3, -1, 4, 0, 0, 7}));
  EXPECT_TRUE(std::isnan(reduced(Matrix{1, 2, {nan, nan}}, 1, 2).values[0]));
  EXPECT_EQ(reduced(m, 1, 1).values.size(), m.values.size());
  EXPECT_EQ(reduced({"a", "b", "c"}, 2), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(block_of(kMaxCells), 1);
  EXPECT_EQ(block_of(kMaxCells + 1), 2);
}

TEST_F(Plot, ShortLogarithmicAxesHaveTicks) {
  LinePlot plot{"", "", "", {{"", {1, 2, 3}, {80, 150, 200}}}, false, true};
  const std::string narrow = draw(plot);
  for (const char* tick : {">80<", ">100<", ">120<", ">150<", ">200<"})
    EXPECT_NE(narrow.find(tick), std::string::npos) << tick;
  const std::string bars = draw(BarChart{"", "", {"a", "b"}, {17.5, 770.5}, true});
  for (const char* tick : {">10<", ">20<", ">50<", ">100<", ">200<", ">500<"})
    EXPECT_NE(bars.find(tick), std::string::npos) << tick;
}

TEST_F(Plot, WholeNumbersHaveWholeTicks) {
  const std::string epochs = draw(LinePlot{"", "", "", {{"", {1, 2, 3}, {40, 60, 70}}}});
  for (const char* tick : {"> 1<", "> 2<", "> 3<"}) EXPECT_NE(epochs.find(tick), std::string::npos) << tick;
  EXPECT_EQ(epochs.find("> 2.5<"), std::string::npos);
  const std::string others = draw(LinePlot{"", "", "", {{"", {1, 2.5, 3}, {40, 60, 70}}}});
  EXPECT_NE(others.find("> 2.5<"), std::string::npos);
}

TEST_F(Plot, LargeNumbersAreWrittenOut) {
  const std::string bars = draw(BarChart{"", "", {"a", "b"}, {228'968, 1'304'552}, false});
  for (const char* text : {">228,968<", ">1,304,552<", ">500,000<", ">1,000,000<"})
    EXPECT_NE(bars.find(text), std::string::npos) << text;
}

TEST_F(Plot, LongNamesOfLinesStandBelow) {
  const auto size = [](const std::string& svg) {
    std::smatch found;
    if (!std::regex_search(svg, found, std::regex(R"re(width="(\d+)" height="(\d+)")re")))
      return std::pair(0, 0);
    return std::pair(std::stoi(found[1]), std::stoi(found[2]));
  };
  LinePlot plot{"", "", "", {}};
  for (const char* name : {"one", "two", "three"}) plot.lines.push_back({name, {1, 2}, {1, 2}});
  const auto beside = size(draw(plot));
  for (Line& line : plot.lines) line.name = "encoder-layers=0, decoder-layers=" + line.name;
  const std::string svg = draw(plot);
  const auto below = size(svg);
  EXPECT_LE(below.first, beside.first) << "as wide as a page";
  EXPECT_GT(below.second, beside.second);
  EXPECT_NE(svg.find("encoder-layers=0, decoder-layers=three"), std::string::npos) << "nothing is cut";
}

TEST_F(Plot, LinesAndBars) {
  LinePlot plot;
  plot.title = "Training loss";
  plot.x_axis = "Epoch";
  plot.y_axis = "Loss";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  plot.lines = {{"training", {1, 2, 3, 4, 5}, {3, 2, nan, nan, 0.5}}, {"validation", {1, 2}, {nan, 0}}};
  const std::string svg = draw(plot);
  for (const char* text : {">Training loss<", ">Epoch<", ">Loss<", "training", "validation"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  plot.log_y = plot.log_x = true;
  EXPECT_EQ(draw(plot).find("validation"), std::string::npos) << "nothing of it is positive";
  plot.lines = {{"", {1}, {1}}};
  draw(plot);
  plot.lines = {{"x", {1}, {nan}}};
  draw(plot);
  plot.lines.clear();
  draw(plot);

  BarChart chart{
      "Gradient norms", "Norm", {"w_q.weight", "w_q.bias", "w_k.bias"}, {0.5, 12.25, 1e-15}, false};
  for (const bool log_scale : {false, true}) {
    chart.log_scale = log_scale;
    const std::string bars = draw(chart);
    for (const char* text : {">w_q.weight<", ">12.25<", ">1e-15<"})
      EXPECT_NE(bars.find(text), std::string::npos) << text;
  }
  chart.values = {-1, nan, 0};
  for (const bool log_scale : {false, true}) {
    chart.log_scale = log_scale;
    draw(chart);
  }
}

// Texts that gnuplot, a shell or XML would interpret.
const std::vector<std::string>& hostile_texts() {
  static const std::vector<std::string> texts{"`touch canary`",
                                              "$(touch canary)",
                                              "'",
                                              "''",
                                              "\"",
                                              "\\",
                                              "\\'",
                                              "a\\",
                                              "'; system('touch canary'); '",
                                              "' . system(\"touch canary\") . '",
                                              "\"`touch canary`\"",
                                              "'\"'\"'`touch canary`",
                                              "@x",
                                              "{/Bold b}^2_3",
                                              "%d %s %%n",
                                              "a\nset output '|touch canary'\n",
                                              "\n!touch canary\n",
                                              "\r",
                                              "\x01\x1b[31m",
                                              "<b>&amp;</b>",
                                              "ü日本語😀",
                                              "\xff\xfe",
                                              "#",
                                              "|touch canary",
                                              "< touch canary",
                                              ""};
  return texts;
}

TEST_F(Plot, HostileTextsAreShownNotRun) {
  const fs::path before = fs::current_path();
  fs::create_directories(folder_);
  fs::current_path(folder_);
  // Everywhere a text can stand: labels and names here, titles and axes one by one in a grid of panels.
  Heatmap labels;
  labels.row_labels = labels.column_labels = hostile_texts();
  const auto n = static_cast<int64_t>(hostile_texts().size());
  labels.values = {n, n, std::vector<float>(static_cast<size_t>(n * n), 1.f)};
  draw(labels);
  HeatmapGrid grid;
  LinePlot lines;
  BarChart bars;
  for (const std::string& text : hostile_texts()) {
    Heatmap map;
    map.values = {1, 1, {1}};
    map.title = map.row_axis = map.column_axis = map.color_label = text;
    grid.panels.push_back(map);
    lines.lines.push_back({text, {1, 2}, {1, 2}});
    bars.names.push_back(text);
    bars.values.push_back(1);
  }
  for (const std::string& text : {hostile_texts()[0], hostile_texts()[8], hostile_texts()[15]}) {
    grid.title = text;
    lines.title = lines.x_axis = lines.y_axis = bars.title = bars.value_axis = text;
    draw(lines);
    draw(bars);
  }
  draw(grid);
  EXPECT_FALSE(fs::exists("canary"));
  fs::current_path(before);
}

TEST_F(Plot, HostileTextsAppearInTheSvg) {
  Heatmap map = small_heatmap();
  map.row_labels = {"`a` $b @c {d} %e \\f", "'\"<&>\n"};
  const std::string svg = draw(map);
  EXPECT_NE(svg.find(">`a` $b @c {d} %e \\f<"), std::string::npos);
  EXPECT_NE(svg.find(">'\"&lt;&amp;>\\n<"), std::string::npos) << svg;
}

TEST_F(Plot, HostileFileNames) {
  const fs::path before = fs::current_path();
  fs::create_directories(folder_);
  fs::current_path(folder_);
  for (const char* name :
       {"|touch canary", "< touch canary", "-e x", "a'b", "`touch canary`", "a\"b", "$x @y", "ü"}) {
    const Figure figure = save_figure(small_heatmap(), name);
    EXPECT_TRUE(figure.drawn) << figure.message;
    EXPECT_TRUE(fs::exists(std::string(name) + ".png")) << name;
    EXPECT_FALSE(fs::exists("canary")) << name;
  }
  fs::current_path(before);
  EXPECT_THROW(save_figure(small_heatmap(), folder_ / "a\nb"), ConfigError);
  EXPECT_THROW(save_figure(small_heatmap(), folder_ / ""), ConfigError);
}

TEST(PlotErrors, WithoutGnuplotDataAndScriptStay) {
  const fs::path folder = fs::path(testing::TempDir()) / ("no_gnuplot_" + std::to_string(::getpid()));
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  const Figure missing = save_figure(small_heatmap(), folder / "deeper" / "figure");
  // A gnuplot that fails.
  fs::create_directories(folder / "bin");
  std::ofstream(folder / "bin" / "gnuplot")
      << "#!/bin/sh\necho first >&2\necho 'line 7: what is this' >&2\nexit 3\n";
  ::chmod((folder / "bin" / "gnuplot").c_str(), 0755);
  ::setenv("PATH", (folder / "bin").c_str(), 1);
  const Figure failed = save_figure(small_heatmap(), folder / "failed");
  ::setenv("PATH", path.c_str(), 1);

  EXPECT_FALSE(missing.drawn);
  EXPECT_EQ(missing.message.substr(0, 24), "gnuplot is not installed");
  ASSERT_EQ(missing.files.size(), 2u);
  for (const fs::path& file : missing.files) EXPECT_GT(fs::file_size(file), 0u);
  EXPECT_NE(read_all(missing.files[1]).find("0.25 0.5 0.25\n0 1 0\n"), std::string::npos);
  EXPECT_FALSE(failed.drawn);
  EXPECT_EQ(failed.message.substr(0, 39), "gnuplot failed (line 7: what is this): ");
  EXPECT_TRUE(fs::exists(folder / "failed.gp"));
  fs::remove_all(folder);
}

// An empty entry of the PATH and a relative one stand for folders that hold data.
TEST(PlotErrors, AGnuplotAmongTheDataIsNotRun) {
  const fs::path folder = fs::path(testing::TempDir()) / ("planted_" + std::to_string(::getpid())),
                 before = fs::current_path();
  const std::string path = std::getenv("PATH");
  fs::create_directories(folder / "out");
  for (const fs::path& place : {folder, folder / "out"}) {
    std::ofstream(place / "gnuplot") << "#!/bin/sh\n: > '" << (folder / "canary").string() << "'\n";
    ::chmod((place / "gnuplot").c_str(), 0755);
  }
  fs::current_path(folder);
  for (const char* entries : {"", ":/nowhere", "/nowhere:", "/nowhere::", ".", "out", "./out:/nowhere"}) {
    ::setenv("PATH", entries, 1);
    const Figure figure = save_figure(small_heatmap(), folder / "out" / "figure");
    EXPECT_EQ(figure.message.substr(0, 24), "gnuplot is not installed") << entries;
  }
  ::setenv("PATH", path.c_str(), 1);
  fs::current_path(before);
  EXPECT_FALSE(fs::exists(folder / "canary"));
  fs::remove_all(folder);
}

TEST(PlotErrors, BadSizesAndPlaces) {
  Heatmap map = small_heatmap();
  map.values.values.pop_back();
  EXPECT_THROW(save_figure(map, "x"), ShapeError);
  map = small_heatmap();
  map.row_labels.pop_back();
  EXPECT_THROW(save_figure(map, "x"), ShapeError);
  EXPECT_THROW(save_figure(Heatmap(), "x"), ShapeError);
  EXPECT_THROW(save_figure(HeatmapGrid(), "x"), ShapeError);
  EXPECT_THROW(save_figure(BarChart(), "x"), ShapeError);
  EXPECT_THROW(save_figure(LinePlot{"", "", "", {{"a", {1, 2}, {1}}}, false, false}, "x"), ShapeError);
  EXPECT_THROW(save_figure(small_heatmap(), "/proc/no/figure"), IoError);
  EXPECT_FALSE(fs::exists("x.gp"));
}

TEST(GnuplotString, NeverLeavesItsQuotes) {
  EXPECT_EQ(gnuplot_string("abc"), "'abc'");
  EXPECT_EQ(gnuplot_string("a'b"), "'a'.\"'\".'b'");
  EXPECT_EQ(gnuplot_string("'"), "''.\"'\".''");
  EXPECT_EQ(gnuplot_string("a\n`b`"), "'a\\n`b`'");
}

}  // namespace
}  // namespace heed::apps
