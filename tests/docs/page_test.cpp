// Runs what a page (HEED_PAGE) shows. A ```console block holds commands, "$ ./heed run PROGRAM …", and what
// they print: the lines that follow must be the output's, in this order and without a gap but where a line is
// "…"; one that ends in "…" is the beginning of a line. In a ```console ~5% block a number with a point may
// be off by 5 % of itself, and one followed by " %" by 5: f32 gives other digits on other machines. A ```cpp
// block is a program of docs/examples, a ```cpp part block some lines of one; a ```text block right after it
// is all that it prints. Pictures are those that the commands draw: figures/NAME.svg is
// runs/explain/NAME.svg, figures/RUN/NAME.svg runs/RUN/NAME.svg.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "markdown.h"
#include "temporary_folder.h"

namespace heed::test {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

const fs::path kRoot = HEED_SOURCE_FOLDER, kPrograms = HEED_PROGRAMS;

// Without blank lines, and without spaces at the ends.
Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    line.erase(line.find_last_not_of(" \r") + 1);
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

struct Command {
  std::string text;
  Lines expected;
};

std::vector<Command> commands_of(const std::string& block) {
  std::vector<Command> commands;
  for (const std::string& line : lines_of(block)) {
    if (line.compare(0, 2, "$ ") == 0)
      commands.push_back({line.substr(2), {}});
    else if (!commands.empty())
      commands.back().expected.push_back(line);
  }
  return commands;
}

// "step 3  loss 4.5" → "step 3  loss #" and the numbers with a point, with the texts behind them.
struct Numbers {
  std::string text;
  std::vector<std::pair<double, std::string>> values;

  explicit Numbers(const std::string& line) {
    const char* at = line.c_str();
    while (*at) {
      char* end = nullptr;
      const double value = std::isdigit(static_cast<unsigned char>(*at)) ? std::strtod(at, &end) : 0;
      if (end && std::find(at, static_cast<const char*>(end), '.') != end) {
        text += '#';
        values.emplace_back(value, std::string(end, std::min<size_t>(2, std::strlen(end))));
        at = end;
      } else {
        do text += *at++;
        while (at < end);
      }
    }
  }
};

// Whether a line of a page is a line of the output, or its beginning, where numbers may be off by
// `tolerance`.
bool fits(std::string expected, std::string line, double tolerance) {
  const std::string rest = "…";
  if (expected.size() > rest.size() &&
      expected.compare(expected.size() - rest.size(), rest.size(), rest) == 0) {
    expected.erase(expected.find_last_not_of(' ', expected.size() - rest.size() - 1) + 1);
    line.resize(std::min(line.size(), expected.size()));
  }
  if (expected == line || tolerance == 0) return expected == line;
  const Numbers want(expected), got(line);
  if (want.text != got.text) return false;
  for (size_t i = 0; i < want.values.size(); ++i) {
    const auto& [value, unit] = want.values[i];
    const double allowed = unit == " %" ? 100 * tolerance : tolerance * std::abs(value);
    if (!(std::abs(got.values[i].first - value) <= allowed)) return false;
  }
  return true;
}

// The first expected line that the output does not have where it should; "" if all are there.
std::string first_missing(const Lines& expected, const Lines& output, double tolerance) {
  size_t at = 0;
  bool gap = false;
  for (const std::string& line : expected) {
    if (line == "…") {
      gap = true;
      continue;
    }
    while (gap && at < output.size() && !fits(line, output[at], tolerance)) ++at;
    if (at == output.size() || !fits(line, output[at], tolerance)) return line;
    ++at;
    gap = false;
  }
  return gap || at == output.size() ? "" : "(nothing more, but the output goes on: " + output[at] + ")";
}

class Page : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* page = std::getenv("HEED_PAGE");
    if (!page) GTEST_SKIP() << "HEED_PAGE names the page to test";
    page_ = page;
    text_ = read_file(page_);
    ASSERT_FALSE(text_.empty()) << page_;
    fs::create_directory_symlink(kRoot / "docs", folder_.file("docs"));  // texts that pages train on
  }

  // Runs a program in the temporary folder, where its figures then are.
  std::string run(const fs::path& program, const std::string& arguments) {
    const std::string command =
        "cd '" + folder_.file("") + "' && '" + program.string() + "' " + arguments + " >out 2>err";
    EXPECT_EQ(std::system(command.c_str()), 0) << command << "\n" << folder_.get("err");
    return folder_.get("out");
  }

  void run_commands(const std::string& block, double tolerance) {
    const std::string driver = "./heed run ";
    for (const Command& command : commands_of(block)) {
      ASSERT_EQ(command.text.compare(0, driver.size(), driver), 0) << "cannot run: " << command.text;
      const std::string words = command.text.substr(driver.size());
      const size_t space = std::min(words.find(' '), words.size());
      std::string& output = outputs_[words];  // a page may show parts of one command's output
      if (output.empty()) output = run(kPrograms / words.substr(0, space), words.substr(space));
      EXPECT_EQ(first_missing(command.expected, lines_of(output), tolerance), "") << command.text << "\n"
                                                                                  << output;
    }
  }

  // The example with this code, or with this part, as a program; empty if there is none.
  static fs::path example_program(const std::string& code, bool part) {
    for (const auto& entry : fs::directory_iterator(kRoot / "docs/examples")) {
      const std::string whole = read_file(entry.path());
      if (part ? whole.find("\n" + code) != std::string::npos : whole == code)
        return kPrograms / (entry.path().stem().string() + "_example");
    }
    return {};
  }

  // A program prints the same whichever page, or part of it, asks.
  const std::string& run_example(const fs::path& program) {
    std::string& output = outputs_[program.string()];
    if (output.empty()) output = run(program, "");
    return output;
  }

  fs::path page_;
  std::string text_;
  TemporaryFolder folder_;
  std::map<std::string, std::string> outputs_;  // by command
};

TEST_F(Page, ShowsWhatItsCommandsDo) {
  const std::vector<Block> blocks = fenced_blocks(text_);
  int executed = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::smatch console;
    if (std::regex_match(blocks[i].language, console, std::regex("console( ~([0-9]+)%)?"))) {
      run_commands(blocks[i].text, console[2].matched ? std::stod(console[2]) / 100 : 0);
      ++executed;
    }
    const bool part = blocks[i].language == "cpp part";
    if (blocks[i].language != "cpp" && !part) continue;
    const fs::path program = example_program(blocks[i].text, part);
    ASSERT_FALSE(program.empty()) << "not of a program of docs/examples:\n" << blocks[i].text;
    const std::string output = run_example(program);
    ++executed;
    if (i + 1 < blocks.size() && blocks[i + 1].language == "text") {
      EXPECT_EQ(lines_of(output), lines_of(blocks[i + 1].text));
    }
  }
  EXPECT_GT(executed, 0);

  // gnuplot writes its version into the file; another one may draw otherwise.
  const std::regex picture(R"(!\[[^\]]*\]\((figures/([^)]+\.svg))\))"), version("Produced by GNUPLOT [^-]*");
  const bool can_draw = std::system("command -v gnuplot >/dev/null") == 0;
  for (std::sregex_iterator it(text_.begin(), text_.end(), picture), end; it != end && can_draw; ++it) {
    const std::string kept = read_file(page_.parent_path() / (*it)[1].str());
    const std::string name = (*it)[2];
    const bool trained = name.find('/') != std::string::npos;
    const std::string drawn = folder_.get((trained ? "runs/" : "runs/explain/") + name);
    EXPECT_LT(kept.size(), 100'000u) << (*it)[2];
    ASSERT_FALSE(drawn.empty()) << "no command of the page draws " << (*it)[2];
    std::smatch of_kept, of_drawn;
    ASSERT_TRUE(std::regex_search(kept, of_kept, version) && std::regex_search(drawn, of_drawn, version));
    if (!trained && of_kept.str() == of_drawn.str() && drawn.find("<image") == std::string::npos) {
      EXPECT_TRUE(kept == drawn) << (*it)[2] << " is not what the command draws now";
    }
  }
}

}  // namespace
}  // namespace heed::test
