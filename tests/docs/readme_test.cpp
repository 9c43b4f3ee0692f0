// What the documentation shows is what the tree holds.
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = HEED_SOURCE_FOLDER;

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// The contents of the fenced blocks of a language.
std::vector<std::string> blocks(const std::string& markdown, const std::string& language) {
  std::vector<std::string> found;
  const std::string fence = "```", opening = fence + language + "\n";
  for (size_t at = markdown.find(opening); at != std::string::npos; at = markdown.find(opening, at)) {
    at += opening.size();
    const size_t end = markdown.find("\n" + fence, at);
    if (end == std::string::npos) break;
    found.push_back(markdown.substr(at, end + 1 - at));
    at = end;
  }
  return found;
}

std::vector<fs::path> pages() {
  std::vector<fs::path> found;
  for (const fs::path& folder : {kRoot, kRoot / "docs"})
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".md") found.push_back(entry.path());
  return found;
}

TEST(Readme, ItsProgramIsTheCompiledOne) {
  const std::vector<std::string> programs = blocks(read(kRoot / "README.md"), "cpp");
  ASSERT_EQ(programs.size(), 1u);
  EXPECT_EQ(programs[0], read(kRoot / "docs/examples/train.cpp"));
}

TEST(Readme, LinksLeadToFiles) {
  const std::regex link(R"(\]\(([^)#:]+)\))");
  int links = 0;
  for (const fs::path& page : pages()) {
    const std::string text = read(page);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it, ++links)
      EXPECT_TRUE(fs::exists(page.parent_path() / (*it)[1].str())) << page << ": " << (*it)[1];
  }
  EXPECT_GT(links, 5);
}

}  // namespace
