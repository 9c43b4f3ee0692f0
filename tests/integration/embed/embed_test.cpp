// embed as its users run it, with a small model that the test makes.
#include <heed/core/numpy.h>

#include "embed_run.h"

namespace heed {
namespace {

class Embed : public EmbedTest {
 protected:
  Embed() {
    fs::create_directories(texts_);
    put("bread.md", "Flour and water.\n\nThe ship\nmake bread.\n");
    put("ship.txt", "A ship sails by the stars.\n");
  }

  void put(const std::string& name, const std::string& text) const { std::ofstream(texts_ / name) << text; }
  // The first that is found.
  Json found(const std::string& question) const {
    const Result r = run(command("search", {"--json", texts_.string(), question}));
    EXPECT_EQ(r.code, 0) << r.err;
    return r.last().at("found").at(0);
  }

  const fs::path texts_ = dir_ / "texts";
};

TEST_F(Embed, EncodesArgumentsFilesAndStandardInput) {
  const Result arguments = run(command("encode", {"--json", "bread", "a ship"}));
  ASSERT_EQ(arguments.code, 0) << arguments.err;
  const Json last = arguments.last();
  EXPECT_EQ(last["text"], "a ship");
  ASSERT_EQ(last["embedding"].size(), 24u);
  double squares = 0;
  for (const Json& value : last["embedding"]) squares += value.get<double>() * value.get<double>();
  EXPECT_NEAR(squares, 1, 1e-5);

  std::ofstream(dir_ / "lines.txt") << "bread\r\na ship";
  const std::string out = (dir_ / "vectors.npy").string();
  ASSERT_EQ(run(command("encode", {"--input", (dir_ / "lines.txt").string(), "--out", out})).code, 0);
  const Tensor vectors = load_npy(out);
  ASSERT_EQ(vectors.shape(), Shape({2, 24}));
  EXPECT_NEAR(vectors.select(0, 1).select(0, 0).item<float>(), last["embedding"][0].get<double>(), 1e-6);

  const Result piped = run(command("encode", {"--json"}), [&] {
    if (!std::freopen((dir_ / "lines.txt").c_str(), "r", stdin)) _exit(126);
  });
  EXPECT_EQ(piped.out, arguments.out);
}

TEST_F(Embed, ComparesTexts) {
  const Result r = run(command("compare", {"--json", "bread", "bread", "a ship sails"}));
  ASSERT_EQ(r.code, 0) << r.err;
  const Json cosines = r.last()["cosines"];
  EXPECT_NEAR(cosines[0][1].get<double>(), 1, 1e-5);
  EXPECT_LT(cosines[0][2].get<double>(), 0.9999);
  EXPECT_EQ(run(command("compare", {"one"})).code, 2);
}

TEST_F(Embed, FindsTheLineAndFollowsChanges) {
  Json hit = found("a ship sails by the stars.");
  EXPECT_EQ(hit["file"], "ship.txt");
  EXPECT_EQ(hit["line"], 1);
  EXPECT_NEAR(hit["score"].get<double>(), 1, 1e-5);
  EXPECT_TRUE(fs::exists(texts_ / ".heed-search.safetensors"));
  hit = found("the ship make bread.");
  EXPECT_EQ(hit["file"], "bread.md");
  EXPECT_EQ(hit["first_line"], 3);
  EXPECT_EQ(hit["last_line"], 4);

  put("new.txt", "Water by the stars.\n");
  fs::remove(texts_ / "ship.txt");
  hit = found("water by the stars.");
  EXPECT_EQ(hit["file"], "new.txt");
  for (const char* question : {"a ship sails by the stars.", "bread"})
    EXPECT_NE(found(question)["file"], "ship.txt");

  const Result none = run(
      command("search", {"--extensions", "xyz", "--index", (dir_ / "i").string(), texts_.string(), "bread"}));
  EXPECT_EQ(none.code, 0);
  EXPECT_NE(none.out.find("nothing found"), std::string::npos);
}

TEST_F(Embed, RefusesWithTheRightCode) {
  EXPECT_EQ(run({"encode", "--model", (dir_ / "none").string(), "x"}).code, 2);
  EXPECT_EQ(run(command("search", {})).code, 2);
  EXPECT_EQ(run(command("search", {(dir_ / "none").string(), "x"})).code, 3);
  EXPECT_EQ(run(command("encode", {"\xff"})).code, 2);
  std::ofstream(texts_ / ".heed-search.safetensors") << "rubbish that is no index";
  const Result damaged = run(command("search", {texts_.string(), "x"}));
  EXPECT_EQ(damaged.code, 4);
  EXPECT_NE(damaged.err.find(".heed-search.safetensors"), std::string::npos) << damaged.err;
  std::ofstream(fs::path(model_) / "model.safetensors") << "rubbish";
  EXPECT_EQ(run(command("encode", {"x"})).code, 4);
}

}  // namespace
}  // namespace heed
