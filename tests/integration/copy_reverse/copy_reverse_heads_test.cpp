// What copy_reverse says of a model's heads, failures and searches.
#include <numeric>

#include "../search_tree.h"
#include "copy_reverse_run.h"

namespace heed {
namespace {

class CopyReverseHeads : public CopyReverse {
 protected:
  // One layer in each stack, two heads, sources of 2 to 4 symbols.
  void train(const std::vector<std::string>& more) {
    const Result r = run(small("m", more));
    ASSERT_EQ(r.code, 0) << r.err;
  }
  Json use(std::vector<std::string> words) const {
    words.insert(words.end(), {"--model", model_, "--json"});
    const Result r = run(words);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.last();
  }
  bool drawn(const char* name) const {
    return fs::exists(dir_ / "m" / (std::string(name) + ".svg")) ||
           fs::exists(dir_ / "m" / (std::string(name) + ".gp"));
  }
  const std::string model_ = (dir_ / "m").string();
};

// A copier's cross-attention goes down the source: a diagonal, one symbol ahead of what was written.
TEST_F(CopyReverseHeads, OfACopierFollowTheDiagonal) {
  train({"--d-model", "64", "--d-ff", "128", "--warmup", "20", "--lr", "3e-3", "--dropout", "0", "--pairs",
         "2000", "--steps", "600"});
  const Json heads = use({"heads", "--length", "4", "--pairs", "40"});
  const Json whole = use({"eval", "--min-length", "4", "--max-length", "4", "--pairs", "40"});
  EXPECT_EQ(heads["pairs"], 40);
  EXPECT_EQ(heads["loss"], whole["loss"]);
  EXPECT_EQ(heads["sequence_accuracy"], whole["sequence_accuracy"]);
  EXPECT_GE(whole["sequence_accuracy"].get<double>(), 0.9);

  bool diagonal = false;
  double worst = 0;
  for (const char* kind : {"encoder", "decoder", "cross"}) {
    ASSERT_EQ(heads[kind].size(), 2u) << kind;
    for (size_t h = 0; h < 2; ++h) {
      const Json& head = heads[kind][h];
      EXPECT_EQ(head["Layer"], 0);
      EXPECT_EQ(head["Head"], h);
      for (const char* part : {"Share", "By place", "By symbol"}) {
        EXPECT_GE(head[part].get<double>(), 0) << part;
        EXPECT_LE(head[part].get<double>(), 1 + 1e-9) << part;
      }
      worst = std::max(worst, head["Loss without"].get<double>());
    }
  }
  for (const Json& head : heads["cross"])
    diagonal |= head["Looks at"].get<std::string>().find("diagonal +1") != std::string::npos;
  EXPECT_TRUE(diagonal) << heads["cross"].dump();
  EXPECT_GT(worst, 10 * whole["loss"].get<double>() + 0.1);

  // The first head to go is the one that is missed least; without any nothing of the source is known.
  ASSERT_EQ(heads["pruned"].size(), 6u);
  double least = 1e9;
  for (const char* kind : {"encoder", "decoder", "cross"})
    for (const Json& head : heads[kind]) least = std::min(least, head["Loss without"].get<double>());
  EXPECT_EQ(heads["pruned"][0]["Loss"], least);
  EXPECT_EQ(heads["pruned"][5]["Right, %"].get<double>(), 0);

  for (const char* name : {"heads-encoder", "heads-decoder", "heads-cross", "heads-similarity",
                           "heads-ablation", "heads-pruned", "heads-rollout"})
    EXPECT_TRUE(drawn(name)) << name;
  const std::string csv = read_file(dir_ / "m" / "heads.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 7);
  EXPECT_EQ(csv.find("attention,layer,head,looks_at,"), 0u);
}

// All ways of counting count the same, and agree with eval.
TEST_F(CopyReverseHeads, FailuresAddUp) {
  train({"--steps", "60", "--lr", "3e-3"});
  const Json whole = use({"eval", "--max-length", "5", "--pairs", "60"});
  const Json found = use({"failures", "--max-length", "5", "--pairs", "60", "--worst", "2"});
  EXPECT_EQ(found["pairs"], 60);
  ASSERT_GT(found["wrong"].get<int>(), 2);
  EXPECT_NEAR(1 - found["wrong"].get<double>() / 60, whole["sequence_accuracy"].get<double>(), 1e-12);
  const auto total = [&](const char* key, const char* column) {
    return std::accumulate(found[key].begin(), found[key].end(), 0,
                           [&](int sum, const Json& row) { return sum + row[column].get<int>(); });
  };
  EXPECT_EQ(total("lengths", "All"), 60);
  EXPECT_EQ(total("lengths", "Wrong"), found["wrong"]);
  EXPECT_EQ(total("twins", "All"), 60);
  EXPECT_EQ(total("twins", "Wrong"), found["wrong"]);
  const int labels = total("places", "All"), wrong = total("places", "Wrong");
  EXPECT_NEAR(1 - wrong / static_cast<double>(labels), whole["token_accuracy"].get<double>(), 1e-12);
  EXPECT_EQ(total("symbols", "All"), labels);
  EXPECT_EQ(total("symbols", "Wrong"), wrong);
  EXPECT_LE(total("confusions", "Times"), wrong);

  ASSERT_EQ(found["worst"].size(), 2u);
  EXPECT_GE(found["worst"][0]["loss"], found["worst"][1]["loss"]);
  for (const Json& worst : found["worst"]) {
    EXPECT_EQ(worst["source"], worst["target"]);  // the task is to copy
    EXPECT_NE(worst["output"], worst["target"]);
  }
  for (const char* name : {"failures-places", "failures-lengths", "failures-confusions", "failures-worst"})
    EXPECT_TRUE(drawn(name)) << name;
  EXPECT_NE(read_file(dir_ / "m" / "failures.csv").find("length,5,"), std::string::npos);
}

// What a search found stands in its tree, with the score that decode gives it.
TEST_F(CopyReverseHeads, ASearchIsATree) {
  train({"--steps", "60", "--lr", "3e-3"});
  const Json json = use({"beam", "--beam", "4", "3 4 5"});
  EXPECT_EQ(json["source"], "3 4 5");
  std::map<std::string, double> found;
  collect_outputs(json["tree"], "end", found);
  EXPECT_EQ(json["tree"]["token"], "start");
  EXPECT_EQ(json["tree"]["next"].size(), 8u) << "four that were kept, and the next four";
  ASSERT_EQ(json["outputs"].size(), 4u);
  ASSERT_FALSE(found.empty());
  size_t finished = 0;
  for (const Json& output : json["outputs"]) {
    const auto at = found.find(output["text"]);
    if (at == found.end()) continue;
    ++finished;
    EXPECT_NEAR(at->second, output["score"].get<double>(), 1e-9);
  }
  EXPECT_EQ(finished, found.size());
  const Json decoded = use({"decode", "--beam", "4", "3 4 5"});
  EXPECT_EQ(decoded["score"], json["outputs"][0]["score"]);
  std::string text;
  for (const Json& symbol : decoded["output"]) text += (text.empty() ? "" : " ") + symbol.dump();
  EXPECT_EQ(json["outputs"][0]["text"], text);

  const Result drawn = run({"beam", "--model", model_, "--beam", "2", "3 4 5"});
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_TRUE(drawn.out.starts_with("3 4 5\n├ ")) << drawn.out;
  for (const char* part : {"  output 1\n", " was the least kept\n", "output 2  "})
    EXPECT_NE(drawn.out.find(part), std::string::npos) << part << "\n" << drawn.out;
  EXPECT_EQ(run({"beam", "--model", model_, "3", "4"}).code, 2);
  EXPECT_EQ(run({"beam", "--model", model_}).code, 2);

  // Without an end mark an output is as long as its target.
  train({"--steps", "2", "--no-end-mark", "--force"});
  const Json searched = use({"beam", "--beam", "2", "3 4 5"});
  for (const Json& output : searched["outputs"]) {
    const std::string words = output["text"];
    EXPECT_EQ(std::count(words.begin(), words.end(), ' '), 2) << words;
  }
}

// Recurrent models have failures, but no heads; pairs of a file have their own lengths.
TEST_F(CopyReverseHeads, OfWhatHasNone) {
  train({"--model", "gru", "--steps", "2"});
  EXPECT_EQ(use({"failures", "--pairs", "10"})["pairs"], 10);
  const Result heads = run({"heads", "--model", model_});
  EXPECT_EQ(heads.code, 2);
  EXPECT_NE(heads.err.find("has no heads"), std::string::npos) << heads.err;

  ASSERT_EQ(run(small("m", {"--steps", "2", "--force"})).code, 0);
  std::ofstream(dir_ / "pairs.tsv") << "3 4\t3 4\n5 6 7\t5 6 7\n8 9\t8 9\n";
  const std::string data = (dir_ / "pairs.tsv").string();
  EXPECT_EQ(use({"heads", "--data", data})["pairs"], 2);
  EXPECT_EQ(run({"heads", "--model", model_, "--data", data, "--length", "3"}).code, 2);
}

}  // namespace
}  // namespace heed
