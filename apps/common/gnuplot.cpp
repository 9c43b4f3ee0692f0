#include "apps/common/gnuplot.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <memory>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <heed/core/base/check.h>

#include "apps/common/console.h"
#include "apps/common/text.h"

extern char** environ;

namespace heed::apps {

namespace {

void write_file(const std::filesystem::path& file, const std::string& text) {
  const std::string name = printable(file.string());
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "we"), &std::fclose);
  HEED_CHECK(stream, IoError, "cannot write ", name, ": ", std::strerror(errno));
  write_all(stream.get(), text, name);
}

struct Ran {
  int spawn_error = 0;  // errno of a program that did not start
  bool succeeded = false;
  std::string said;  // its standard error
};

// Runs a program of the PATH in a folder; its standard error is read to the end so that it cannot block.
Ran run(const std::vector<std::string>& words, const std::filesystem::path& folder) {
  int ends[2];
  HEED_CHECK(::pipe2(ends, O_CLOEXEC) == 0, IoError, "cannot start ", words[0], ": ", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t process = -1;
  Ran ran;
  ran.spawn_error = ::posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  constexpr size_t kMostSaid = 1 << 16;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR);) {
    if (got > 0 && ran.said.size() < kMostSaid) ran.said.append(buffer, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  if (ran.spawn_error != 0) return ran;
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
  ran.succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return ran;
}

// Pango draws a character that no font has as a huge box, so those of the PNG become small ones. Latin, Greek
// and Cyrillic are in every font; fontconfig is asked about the rest.
std::string only_with_fonts(const std::string& script) {
  std::map<std::string, bool> known;
  std::string out;
  for_each_character(script, [&](std::string_view character) {
    if (character.size() < 3) {
      out += character;
      return;
    }
    const auto found = known.find(std::string(character));
    bool has = found != known.end() && found->second;
    if (found == known.end()) {
      uint32_t code = static_cast<uint8_t>(character[0]) & (character.size() == 3 ? 0x0f : 0x07);
      for (size_t i = 1; i < character.size(); ++i)
        code = code << 6 | (static_cast<uint8_t>(character[i]) & 0x3f);
      has = run({"fc-list", "-q", fmt::format(":charset={:x}", code)}, ".").succeeded;
      known.emplace(character, has);
    }
    out += has ? character : "\u25a1";
  });
  return out;
}

// Pictures inside an SVG are cells: browsers would blur them.
void keep_cells_sharp(const std::filesystem::path& svg) {
  std::ostringstream text;
  text << std::ifstream(svg, std::ios::binary).rdbuf();
  std::string out = text.str();
  const std::string tag = "<image ", style = "style='image-rendering:pixelated' ";
  size_t at = out.find(tag);
  if (at == std::string::npos) return;
  for (; at != std::string::npos; at = out.find(tag, at)) out.insert(at += tag.size(), style);
  write_file(svg, out);
}

// The last line that is not empty: where gnuplot names the line of the script and the mistake.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

std::string gnuplot_string(std::string_view text) {
  // gnuplot's own way to write a quote, '', is not understood at the start of a string.
  std::string out = "'";
  for (const char c : printable(text)) out += c == '\'' ? std::string("'.\"'\".'") : std::string(1, c);
  return out + "'";
}

double text_width(std::string_view text, double font_size) {
  double ems = 0;
  for_each_character(printable(text), [&](std::string_view character) {
    const char c = character[0];
    if (is_wide(character))
      ems += 1.1;
    else if (std::strchr("ijl.,:;'|!()[]{} `fIt\"", c) && c)
      ems += 0.4;
    else if (std::strchr("mwMW@%", c) && c)
      ems += 0.98;
    else
      ems += c >= 'A' && c <= 'Z' ? 0.72 : 0.63;
  });
  return ems * font_size;
}

std::string gnuplot_palette(ColorMap map) {
  const auto colors = anchors(map);
  std::string out = "set palette maxcolors 0 defined (";
  for (size_t i = 0; i < colors.size(); ++i) {
    const char* comma = i == 0 ? "" : i % 8 == 0 ? ", \\\n  " : ", ";
    out += fmt::format("{}{} '#{:06x}'", comma, i, colors[i]);
  }
  return out + ")";
}

int GnuplotFigure::add_data(std::string_view block) {
  if (blocks_ > 0) data_ += "\n\n";
  data_ += block;
  return blocks_++;
}

void GnuplotFigure::add_label(std::string_view text, double left, double top, std::string_view options,
                              double size) {
  if (text.empty()) return;
  add(fmt::format("set label {} at {}, {} {} textcolor rgb '#262626' font 'sans-serif{},{}' noenhanced front",
                  gnuplot_string(text), x(left), y(top), options, size >= kTitle ? " Bold" : "", size));
}

void GnuplotFigure::set_margins(double left, double top, double width, double height) {
  add(fmt::format("set lmargin at {}; set rmargin at {}; set tmargin at {}; set bmargin at {}", x(left),
                  x(left + width), y(top), y(top + height)));
}

std::string GnuplotFigure::x(double pixel) const { return fmt::format("screen {:.6f}", pixel / width_); }
std::string GnuplotFigure::y(double pixel) const { return fmt::format("screen {:.6f}", 1 - pixel / height_); }

std::string GnuplotFigure::script(const std::string& name) const {
  // ./ in front: gnuplot would run a file name that begins with | or < as a command.
  std::string out = "# Run with gnuplot in this folder.\n";
  const auto pass = [&](std::string_view terminal, const std::string& extension, const std::string& body) {
    out += fmt::format("reset\nset encoding utf8\nset terminal {}\nset output {}\n{} = {}\n", terminal,
                       gnuplot_string("./" + name + extension), kData, gnuplot_string("./" + name + ".dat"));
    out += body;
    out += "set output\n";
  };
  pass(fmt::format("svg noenhanced size {},{} font 'sans-serif,{}' background '#ffffff'", width_, height_,
                   kText),
       ".svg", body_);
  // pngcairo counts fonts in points of 4/3 pixels.
  pass(fmt::format("pngcairo noenhanced size {},{} font 'sans-serif,{}' fontscale 1.5 linewidth 2 background "
                   "'#ffffff'",
                   2 * width_, 2 * height_, kText),
       ".png", only_with_fonts(body_));
  return out;
}

Figure GnuplotFigure::save(const std::filesystem::path& stem) const {
  const std::filesystem::path folder = stem.has_parent_path() ? stem.parent_path() : ".";
  const std::string name = stem.filename().string();
  HEED_CHECK(!name.empty() && printable(name) == name, ConfigError, "a figure cannot be named '",
             printable(name), "'");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  HEED_CHECK(!error, IoError, "cannot make the folder ", printable(folder.string()), ": ", error.message());
  const std::filesystem::path script_file = folder / (name + ".gp"), data_file = folder / (name + ".dat");
  write_file(script_file, script(name));
  write_file(data_file, data_);

  // A name that begins with a dash would be an option.
  const Ran ran = run({"gnuplot", "-d", "./" + name + ".gp"}, folder);
  Figure figure;
  figure.drawn = ran.succeeded;
  if (figure.drawn) {
    std::filesystem::remove(script_file, error);
    std::filesystem::remove(data_file, error);
    figure.files = {folder / (name + ".svg"), folder / (name + ".png")};
    keep_cells_sharp(figure.files[0]);
    return figure;
  }
  figure.files = {script_file, data_file};
  const std::string why = ran.spawn_error == ENOENT ? "gnuplot is not installed"
                          : ran.spawn_error
                              ? fmt::format("gnuplot did not start ({})", std::strerror(ran.spawn_error))
                              : fmt::format("gnuplot failed ({})", printable(last_line(ran.said)));
  figure.message = fmt::format("{}: the script and the data of the figure are in {} and {}", why,
                               printable(script_file.string()), printable(data_file.string()));
  return figure;
}

}  // namespace heed::apps
