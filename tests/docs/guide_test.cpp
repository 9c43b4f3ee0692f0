// The guide (docs/index.md): the order of its pages, the formulas on them, and the page with figures to
// touch.
#include <cmath>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "markdown.h"

namespace heed::test {
namespace {

namespace fs = std::filesystem;

const fs::path kDocs = fs::path(HEED_SOURCE_FOLDER) / "docs";

std::string without_fragment(const std::string& link) { return link.substr(0, link.find('#')); }

// The pages that the guide numbers, in its order.
std::vector<fs::path> guide() {
  std::vector<fs::path> pages;
  const std::string text = read_file(kDocs / "index.md");
  const std::regex entry(R"(\n\| [0-9]+ \| \[[^\]]+\]\(([^)]+)\))");
  for (std::sregex_iterator it(text.begin(), text.end(), entry), end; it != end; ++it)
    pages.push_back(fs::weakly_canonical(kDocs / without_fragment((*it)[1])));
  return pages;
}

// Where the last line of a page leads: "[← …](before.md) · [All pages](…/index.md) · [… →](after.md)".
std::vector<fs::path> last_links(const fs::path& page) {
  std::string text = read_file(page);
  text.erase(text.find_last_not_of('\n') + 1);
  const std::string line = text.substr(text.rfind('\n') + 1);
  std::vector<fs::path> links;
  const std::regex link(R"(\]\(([^)]+)\))");
  for (std::sregex_iterator it(line.begin(), line.end(), link), end; it != end; ++it)
    links.push_back(fs::weakly_canonical(page.parent_path() / without_fragment((*it)[1])));
  return links;
}

TEST(Guide, EachPageLeadsToTheNext) {
  const std::vector<fs::path> pages = guide();
  ASSERT_GE(pages.size(), 11u);
  for (size_t i = 0; i < pages.size(); ++i) {
    std::vector<fs::path> expected;
    if (i > 0) expected.push_back(pages[i - 1]);
    expected.push_back(fs::weakly_canonical(kDocs / "index.md"));
    if (i + 1 < pages.size()) expected.push_back(pages[i + 1]);
    EXPECT_EQ(last_links(pages[i]), expected) << pages[i];
  }
}

std::vector<std::string> formulas(const std::string& markdown) {
  std::vector<std::string> found;
  const std::string text = prose(markdown);
  const std::regex formula(R"(\$\$([^$]*)\$\$)");
  for (std::sregex_iterator it(text.begin(), text.end(), formula), end; it != end; ++it)
    found.push_back((*it)[1]);
  return found;
}

// What GitHub's Markdown takes apart before the formula is drawn: escaped punctuation loses its backslash, an
// underscore after punctuation begins emphasis, and an asterisk does anywhere.
TEST(Guide, MarkdownLeavesFormulasAlone) {
  const std::regex harmful(R"(\\[^A-Za-z]|[^A-Za-z0-9]_|\*|<|\n)");
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kDocs)) {
    if (entry.path().extension() != ".md") continue;
    for (const std::string& formula : formulas(read_file(entry.path()))) {
      ++count;
      EXPECT_FALSE(std::regex_search(formula, harmful)) << entry.path() << ": " << formula;
      EXPECT_EQ(std::count(formula.begin(), formula.end(), '{'),
                std::count(formula.begin(), formula.end(), '}'))
          << formula;
    }
  }
  EXPECT_GE(count, 10);
}

TEST(InteractivePage, NeedsNoNetworkAndHoldsAttention) {
  const std::string page = read_file(kDocs / "interactive/attention.html");
  ASSERT_FALSE(page.empty());
  EXPECT_LT(page.size(), 300'000u);
  for (const char* outside : {"http://", "https://", "src=", "@import", "fetch(", "XMLHttpRequest"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;

  const std::string before = "<script id=\"data\" type=\"application/json\">";
  const size_t first = page.find(before) + before.size(), last = page.find("</script>", first);
  const nlohmann::json data = nlohmann::json::parse(page.substr(first, last - first));
  ASSERT_EQ(data["models"].size(), 2u);
  for (const auto& model : data["models"]) {
    for (const auto& layer : model["layers"])
      for (const auto& head : layer) {
        ASSERT_EQ(head.size(), model["rows"].size());
        for (size_t q = 0; q < head.size(); ++q) {
          ASSERT_EQ(head[q].size(), model["columns"].size());
          int sum = 0;
          for (size_t k = 0; k < head[q].size(); ++k) {
            sum += head[q][k].get<int>();
            if (model["same"] && k > q) {
              EXPECT_EQ(head[q][k], 0) << "a token sees a later one";
            }
          }
          EXPECT_NEAR(sum, 1000, head[q].size());  // thousandths, each of them rounded
        }
      }
  }
  EXPECT_NEAR(data["scores"][0][0], 4.5512, 1e-4);  // those of explain attention
}

// python/heed_interactive.py fills the template with what the programs print.
TEST(InteractivePage, IsMadeOfItsTemplate) {
  const std::string page = read_file(kDocs / "interactive/attention.html"),
                    form = read_file(kDocs.parent_path() / "python/heed_interactive.html");
  const std::string hole = "@DATA@";
  const size_t at = form.find(hole);
  ASSERT_NE(at, std::string::npos);
  const std::string end = form.substr(at + hole.size());
  EXPECT_EQ(page.substr(0, at), form.substr(0, at));
  ASSERT_GT(page.size(), end.size());
  EXPECT_EQ(page.substr(page.size() - end.size()), end);
}

}  // namespace
}  // namespace heed::test
