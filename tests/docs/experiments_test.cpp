// The pages of docs/experiments (HEED_PAGE): each ```console sweep block is a sweep of copy_reverse and its
// table. The trainings of a page take minutes; here each sweep runs for two steps, and its settings and what
// does not depend on training, the parameters, must be those of the table.
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "markdown.h"
#include "temporary_folder.h"

namespace heed::test {
namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& line) {
  Words words;
  std::istringstream in(line);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

struct Sweep {
  std::string arguments;
  std::vector<Words> rows;  // of the table, its head first
};

Sweep sweep_of(const Block& block) {
  const std::string start = "$ ./heed run copy_reverse sweep ";
  Sweep sweep;
  std::istringstream lines(block.text);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, start.size(), start) == 0)
      sweep.arguments = line.substr(start.size());
    else if (line == "…")
      break;
    else if (!line.empty())
      sweep.rows.push_back(words_of(line));
  }
  return sweep;
}

// The same settings, in two steps each.
std::string shortened(const std::string& arguments) {
  const std::string rest =
      std::regex_replace(arguments, std::regex(" *--(epochs|steps|seeds|pairs|valid-pairs|out) [^ ]+"), "");
  const bool varies_pairs = arguments.find("pairs=") != std::string::npos;
  return rest + " --steps 2 --seeds 1 --valid-pairs 8" + (varies_pairs ? "" : " --pairs 64") +
         " --json --out sweep --force";
}

TEST(Experiments, SettingsAreThoseOfTheTables) {
  const char* page = std::getenv("HEED_PAGE");
  if (!page) GTEST_SKIP() << "HEED_PAGE names the page to test";
  int found = 0;
  for (const Block& block : fenced_blocks(read_file(page))) {
    if (block.language != "console sweep") continue;
    ++found;
    const Sweep sweep = sweep_of(block);
    ASSERT_FALSE(sweep.arguments.empty()) << block.text;
    const TemporaryFolder folder;
    const std::string command = "cd '" + folder.file("") + "' && '" HEED_COPY_REVERSE "' sweep " +
                                shortened(sweep.arguments) + " >out 2>err";
    ASSERT_EQ(std::system(command.c_str()), 0) << command << "\n" << folder.get("err");
    const nlohmann::json settings = nlohmann::json::parse(folder.get("out"))["settings"];
    ASSERT_EQ(settings.size() + 1, sweep.rows.size()) << sweep.arguments;
    const Words& head = sweep.rows[0];
    for (size_t s = 0; s < settings.size(); ++s) {
      for (size_t c = 0; c < head.size() && head[c] != "Parameters"; ++c)
        EXPECT_EQ(settings[s][head[c]], sweep.rows[s + 1][c]) << sweep.arguments;
      const auto at = std::find(head.begin(), head.end(), "Parameters") - head.begin();
      EXPECT_EQ(settings[s]["Parameters"], sweep.rows[s + 1][static_cast<size_t>(at)]) << sweep.arguments;
    }
  }
  EXPECT_GT(found, 0) << page;
}

}  // namespace
}  // namespace heed::test
