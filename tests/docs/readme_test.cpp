// What the documentation shows is what the tree holds.
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "markdown.h"

namespace heed::test {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = HEED_SOURCE_FOLDER;

std::vector<fs::path> pages() {
  std::vector<fs::path> found;
  const auto add = [&](const fs::path& file) {
    if (file.extension() == ".md") found.push_back(file);
  };
  for (const auto& entry : fs::directory_iterator(kRoot)) add(entry.path());
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs")) add(entry.path());
  return found;
}

TEST(Readme, ItsProgramsAreTheCompiledOnes) {
  std::vector<std::string> programs;
  for (const Block& block : fenced_blocks(read_file(kRoot / "README.md")))
    if (block.language == "cpp") programs.push_back(block.text);
  ASSERT_EQ(programs.size(), 2u);
  EXPECT_EQ(programs[0], read_file(kRoot / "docs/examples/mlp.cpp"));
  EXPECT_EQ(programs[1], read_file(kRoot / "docs/examples/train.cpp"));
}

TEST(TextPage, ItsProgramIsTheCompiledOne) {
  std::vector<std::string> programs;
  for (const Block& block : fenced_blocks(read_file(kRoot / "docs/text.md")))
    if (block.language == "cpp") programs.push_back(block.text);
  ASSERT_EQ(programs.size(), 1u);
  EXPECT_EQ(programs[0], read_file(kRoot / "docs/examples/text/pronounce.cpp"));
}

TEST(PretrainedPage, ItsProgramIsTheCompiledOne) {
  std::vector<std::string> programs;
  for (const Block& block : fenced_blocks(read_file(kRoot / "docs/pretrained.md")))
    if (block.language == "cpp") programs.push_back(block.text);
  ASSERT_GE(programs.size(), 1u);
  EXPECT_EQ(programs[0], read_file(kRoot / "docs/examples/pretrained/embed.cpp"));
}

// Lines that are not empty.
int lines_of(const char* program) {
  std::istringstream lines(read_file(kRoot / "docs/examples" / program));
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += !line.empty();
  return count;
}

TEST(Readme, ItsProgramsAreShort) {
  EXPECT_LE(lines_of("mlp.cpp"), 15);
  EXPECT_LE(lines_of("gpt.cpp"), 40);
}

TEST(Readme, LinksLeadToFiles) {
  const std::regex link(R"(\]\(([^)#:]+)(#[^)]*)?\))");
  int links = 0;
  for (const fs::path& page : pages()) {
    const std::string text = prose(read_file(page));
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it, ++links)
      EXPECT_TRUE(fs::exists(page.parent_path() / (*it)[1].str())) << page << ": " << (*it)[1];
  }
  EXPECT_GT(links, 5);
}

}  // namespace
}  // namespace heed::test
