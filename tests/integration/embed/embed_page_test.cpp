// docs/tutorials/search.md in a small form: its commands with a tiny encoder, and its program.
#include <map>
#include <sstream>

#include "../../docs/markdown.h"
#include "embed_run.h"

namespace heed {
namespace {

class SearchPage : public EmbedTest {
 protected:
  SearchPage() {
    fs::create_directories(dir_ / "notes");
    const std::string notes = block("text", 0);
    std::istringstream lines(notes);
    std::ofstream file(dir_ / "notes/notes.txt");
    for (std::string line; std::getline(lines, line);) file << line << "\n\n";
    for (const char* name : {"pairs.tsv", "held.tsv"})
      std::ofstream(dir_ / name) << "the flour\ta ship\nthe water\tstars\nmake bread\tsails by\n";
    for (const char* name : {"reviews.tsv", "test.tsv"})
      std::ofstream(dir_ / name)
          << "good\tmake bread\nbad\tship sails\ngood\tflour and water\nbad\tthe stars\n";
  }

  // The number-th block of a language.
  std::string block(const std::string& language, int number) const {
    for (const test::Block& each : test::fenced_blocks(page_))
      if (each.language == language && number-- == 0) return each.text;
    ADD_FAILURE() << "no block " << number << " of " << language;
    return "";
  }

  // What a command line prints.
  std::string shell(const std::string& command) const {
    const std::string whole = "cd '" + dir_.string() + "' && export HEED_MODEL='" + model_ +
                              "' HEED_THREADS=1 && " + command + " >out 2>err";
    EXPECT_EQ(std::system(whole.c_str()), 0) << command << "\n" << read_file(dir_ / "err");
    return read_file(dir_ / "out");
  }

  const std::string page_ = read_file(HEED_SEARCH_PAGE);
};

TEST_F(SearchPage, ItsCommandsRun) {
  const std::string driver = "./heed run embed ";
  std::map<std::string, std::string> outputs;  // by the command's first word, the last of each
  int executed = 0;
  for (const test::Block& each : test::fenced_blocks(page_)) {
    if (each.language != "sh") continue;
    std::istringstream lines(each.text);
    for (std::string line; std::getline(lines, line);) {
      ASSERT_TRUE(line.starts_with(driver)) << line;
      const std::string words = line.substr(driver.size()), name = words.substr(0, words.find(' '));
      if (name == "serve") continue;  // embed_serve_test
      outputs[name] = shell("'" + program_ + "' " + words);
      ++executed;
    }
  }
  EXPECT_EQ(executed, 7);
  EXPECT_NE(outputs["search"].find("notes.txt:"), std::string::npos);
  EXPECT_NE(outputs["compare"].find("1.0000"), std::string::npos);
  EXPECT_NE(outputs["train"].find("% right"), std::string::npos);
  EXPECT_TRUE(outputs["classify"].starts_with("good  ") || outputs["classify"].starts_with("bad  "))
      << outputs["classify"];
}

TEST_F(SearchPage, ItsProgramFindsTheNearestLine) {
  EXPECT_EQ(block("cpp", 0), read_file(HEED_FIND_SOURCE));
  std::ofstream(dir_ / "lines.txt") << "flour and water\na ship sails by the stars\nmake bread\nthe ship\n";
  const std::string out = shell("'" HEED_FIND "' '" + model_ + "' lines.txt 'a ship sails by the stars'");
  EXPECT_TRUE(out.starts_with("1.000  a ship sails by the stars\n")) << out;
  EXPECT_EQ(std::ranges::count(out, '\n'), 3);
}

// The program of docs/tutorials/three_halves.md that shows a head of MiniLM.
TEST_F(SearchPage, AHeadsWeightsOfAWordSumToOne) {
  const std::string out = shell("'" HEED_LOOK "' '" + model_ + "' 'a ship sails' ship 0 2");
  std::istringstream lines(out);
  double sum = 0, weight = 0;
  std::vector<std::string> tokens;
  for (std::string token; lines >> weight >> token; sum += weight) tokens.push_back(token);
  EXPECT_EQ(tokens, (std::vector<std::string>{"[CLS]", "a", "ship", "sails", "[SEP]"}));
  EXPECT_NEAR(sum, 1, 0.003);
}

}  // namespace
}  // namespace heed
