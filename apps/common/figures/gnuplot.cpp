#include "apps/common/figures/gnuplot.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <spawn.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <heed/core/base/check.h>
#include <heed/core/io/atomic_file.h>

#include "apps/common/text.h"

namespace heed::apps {

namespace {

// A file in memory. gnuplot opens it by path(): what it writes lies in no folder where names are taken, links
// lead elsewhere or the disk ends, before it is known to be whole.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("figure", 0)) {
    HEED_CHECK(file_.valid(), IoError, "cannot make a file in memory: ", std::strerror(errno));
  }
  explicit MemoryFile(std::string_view text) : MemoryFile() {
    for (size_t at = 0; at < text.size();) {
      const ssize_t put = ::write(file_.get(), text.data() + at, text.size() - at);
      HEED_CHECK(put > 0 || errno == EINTR, IoError, "cannot write to memory: ", std::strerror(errno));
      at += static_cast<size_t>(std::max<ssize_t>(put, 0));
    }
  }

  // A program that is started inherits it under the same number.
  std::string path() const { return fmt::format("/proc/self/fd/{}", file_.get()); }
  std::string read() const { return read_whole_file(path(), uint64_t{1} << 32); }

 private:
  FileDescriptor file_;
};

// The program in the first absolute folder of the PATH that has it. Empty and relative entries stand for
// folders that hold data: a file called gnuplot in one of them is not to be executed.
std::string find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = concat(folder, "/", name);
    if (folder.starts_with('/') && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

struct Ran {
  int spawn_error = 0;  // errno of a program that did not start
  bool succeeded = false;
  std::string said;  // its standard error
};

// The signals that this process ignores are a program's own matter again.
void use_usual_signals(posix_spawnattr_t& attributes) {
  sigset_t usual;
  ::sigemptyset(&usual);
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::sigaddset(&usual, signal);
  ::posix_spawnattr_setsigdefault(&attributes, &usual);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
}

// Runs a program; its standard error is read to the end so that it cannot block.
Ran run(std::vector<std::string> words) {
  words[0] = find_program(words[0]);
  if (words[0].empty()) return {ENOENT, false, ""};
  int ends[2];
  HEED_CHECK(::pipe2(ends, O_CLOEXEC) == 0, IoError, "cannot start ", words[0], ": ", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  use_usual_signals(attributes);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t process = -1;
  Ran ran;
  ran.spawn_error = ::posix_spawn(&process, arguments[0], &actions, &attributes, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  constexpr size_t kMaxSaid = 1 << 16;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR);) {
    if (got > 0 && ran.said.size() < kMaxSaid) ran.said.append(buffer, static_cast<size_t>(got));
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
      has = run({"fc-list", "-q", fmt::format(":charset={:x}", code)}).succeeded;
      known.emplace(character, has);
    }
    out += has ? character : "\u25a1";
  });
  return out;
}

// Pictures inside an SVG are cells: browsers would blur them.
std::string with_sharp_cells(std::string svg) {
  const std::string tag = "<image ", style = "style='image-rendering:pixelated' ";
  for (size_t at = 0; (at = svg.find(tag, at)) != std::string::npos;) svg.insert(at += tag.size(), style);
  return svg;
}

// gnuplot may say that all went well where its output was cut short.
bool is_whole_svg(std::string_view text) {
  return text.substr(0, text.find_last_not_of("\r\n") + 1).ends_with("</svg>");
}
bool is_whole_png(std::string_view text) {
  return text.starts_with("\x89PNG") && text.ends_with(std::string_view("\0\0\0\0IEND\xae\x42\x60\x82", 12));
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

std::string GnuplotFigure::script(const std::string& data, const std::string& svg,
                                  const std::string& png) const {
  std::string out = "# Run with gnuplot in this folder.\n";
  const auto pass = [&](std::string_view terminal, const std::string& file, const std::string& body) {
    out += fmt::format("reset\nset encoding utf8\nset terminal {}\nset output {}\n{} = {}\n", terminal,
                       gnuplot_string(file), kData, gnuplot_string(data));
    out += body;
    out += "set output\n";
  };
  pass(fmt::format("svg noenhanced size {},{} font 'sans-serif,{}' background '#ffffff'", width_, height_,
                   kText),
       svg, body_);
  // pngcairo counts fonts in points of 4/3 pixels.
  pass(fmt::format("pngcairo noenhanced size {},{} font 'sans-serif,{}' fontscale 1.5 linewidth 2 background "
                   "'#ffffff'",
                   2 * width_, 2 * height_, kText),
       png, only_with_fonts(body_));
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

  const MemoryFile data(data_), svg, png, commands(script(data.path(), svg.path(), png.path()));
  const Ran ran = run({"gnuplot", "-d", commands.path()});
  const std::string drawing = svg.read(), picture = png.read();
  Figure figure;
  const auto add = [&](const char* extension, const std::string& text) {
    figure.files.push_back(folder / (name + extension));
    write_whole_file(figure.files.back(), text);
  };
  figure.drawn = ran.succeeded && is_whole_svg(drawing) && is_whole_png(picture);
  if (figure.drawn) {
    add(".svg", with_sharp_cells(drawing));
    add(".png", picture);
    for (const char* extension : {".gp", ".dat"}) std::filesystem::remove(folder / (name + extension), error);
    return figure;
  }
  // ./ in front: gnuplot would run a file name that begins with | or < as a command.
  add(".gp", script("./" + name + ".dat", "./" + name + ".svg", "./" + name + ".png"));
  add(".dat", data_);
  const std::string why =
      ran.spawn_error == ENOENT ? "gnuplot is not installed"
      : ran.spawn_error         ? fmt::format("gnuplot did not start ({})", std::strerror(ran.spawn_error))
      : ran.succeeded           ? "gnuplot left its figure unfinished"
                                : fmt::format("gnuplot failed ({})", printable(last_line(ran.said)));
  figure.message = fmt::format("{}: the script and the data of the figure are in {} and {}", why,
                               printable(figure.files[0].string()), printable(figure.files[1].string()));
  return figure;
}

}  // namespace heed::apps
