// translate as its users run it: it learns to spell words, and is asked for some.
#include <map>

#include "../../support/address_sanitizer.h"
#include "../program_run.h"

namespace heed {
namespace {

class Translate : public ProgramTest {
 protected:
  Translate() : ProgramTest(HEED_TRANSLATE) {}

  static std::string spelled(const std::string& word) {
    std::string text;
    for (const char c : word) {
      if (!text.empty()) text += ' ';
      text += static_cast<char>(c - 'a' + 'A');
    }
    return text;
  }

  // Words of two to five letters and how they are spelled.
  std::string write_pairs(int count = 3000) const {
    std::string text;
    uint32_t random = 1;
    const auto draw = [&](uint32_t n) {
      random = random * 1664525 + 1013904223;
      return (random >> 16) % n;
    };
    for (int i = 0; i < count; ++i) {
      std::string word;
      for (uint32_t left = 2 + draw(4); left > 0; --left) word += static_cast<char>('a' + draw(8));
      text += word + "\t" + spelled(word) + "\n";
    }
    return folder_.put("pairs.tsv", text);
  }

  std::vector<std::string> small(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"train",
                                   "--data",
                                   (dir_ / "pairs.tsv").string(),
                                   "--out",
                                   (dir_ / out).string(),
                                   "--json",
                                   "--separate-vocabularies"};
    const auto put = [&](const char* option, const char* value) {
      if (std::find(more.begin(), more.end(), option) == more.end())
        words.insert(words.end(), {option, value});
    };
    put("--source-tokenizer", "characters");
    put("--target-tokenizer", "symbols");
    put("--tie", "output");
    put("--d-model", "32");
    put("--heads", "2");
    put("--layers", "1");
    put("--d-ff", "64");
    put("--lr", "5e-3");
    put("--warmup", "50");
    put("--epochs", "8");
    put("--dropout", "0");
    put("--batch-tokens", "256");
    put("--max-tokens", "32");
    put("--valid-share", "0.1");
    put("--test-share", "0.1");
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  std::vector<Json> lines(const std::string& text) const {
    std::vector<Json> result;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) result.push_back(Json::parse(line));
    return result;
  }

  std::string model() const { return (dir_ / "m").string(); }
};

TEST_F(Translate, LearnsAndIsUsed) {
  write_pairs();
  const Result trained = run(small("m"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<Json> told = lines(trained.out);
  ASSERT_EQ(told.size(), 9u);  // eight epochs and the test
  EXPECT_LT(told[7]["loss"], told[0]["loss"]);
  EXPECT_LT(told[7]["valid_loss"], told[0]["valid_loss"]);
  EXPECT_TRUE(told.back()["final"]);
  EXPECT_LT(told.back()["edit_rate"], 0.02) << trained.out;
  EXPECT_GT(told.back()["texts"], 100);
  for (const char* file :
       {"model.safetensors", "source.tokenizer", "target.tokenizer", "config.toml", "metrics.jsonl"})
    EXPECT_TRUE(fs::exists(dir_ / "m" / file)) << file;

  const Result evaluated =
      run({"eval", "--model", model(), "--data", (dir_ / "pairs.tsv").string(), "--json"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  for (const char* key : {"edit_rate", "text_error", "bleu", "chrf", "texts"})
    EXPECT_EQ(evaluated.last()[key], told.back()[key]) << key;  // the same part, found again

  // The same model twice is an ensemble that errs as it does; one that learned from other pairs is none.
  fs::copy(dir_ / "m", dir_ / "other");
  const auto evaluate_both = [&] {
    return run({"eval", "--model", model() + "," + (dir_ / "other").string(), "--data",
                (dir_ / "pairs.tsv").string(), "--json"});
  };
  EXPECT_EQ(evaluate_both().last()["text_error"], told.back()["text_error"]);
  std::string settings = folder_.get("other/config.toml");
  const std::string share = "valid-share = 0.1\n";
  ASSERT_NE(settings.find(share), std::string::npos);
  folder_.put("other/config.toml",
              settings.replace(settings.find(share), share.size(), "valid-share = 0.2\n"));
  const Result mixed = evaluate_both();
  EXPECT_EQ(mixed.code, 2);
  EXPECT_NE(mixed.err.find("other was trained with --valid-share 0.2"), std::string::npos) << mixed.err;

  const Result words = run({"run", "--model", model(), "head", "bead"});
  EXPECT_EQ(words.out, "head  ->  H E A D\nbead  ->  B E A D\n") << words.err;

  // Lines come out in their order, empty ones too, whatever their lengths.
  std::string input =
                  "\xef\xbb\xbf"
                  "cab\r\n\n",
              output = "C A B\n\n";
  for (const char* word : {"hedge", "ab", "face", "bad", "decaf"}) {
    input += std::string(word) + "\n";
    output += spelled(word) + "\n";
  }
  const Result file = run({"run", "--model", model(), "--input", folder_.put("lines", input)});
  EXPECT_EQ(file.out, output) << file.err;
  const Result piped = run({"run", "--model", model(), "--beam", "1", "--batch-tokens", "8"},
                           [&] { std::freopen((dir_ / "lines").c_str(), "r", stdin); });
  EXPECT_EQ(piped.out, output) << piped.err;

  const Result best = run({"run", "--model", model(), "--best", "3", "--json", "head"});
  const Json outputs = best.last().at("outputs");
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs[0]["text"], "H E A D");
  EXPECT_GT(outputs[0]["score"], outputs[1]["score"]);
  EXPECT_GE(outputs[1]["score"], outputs[2]["score"]);

  const Result shown = run({"info", "--model", model(), "--json"});
  EXPECT_EQ(shown.last()["source"]["tokenizer"], "characters");
  EXPECT_EQ(shown.last()["target"]["vocab"], 12);

  // The program of the documentation.
  const std::string command =
      std::string(HEED_EXAMPLE) + " " + model() + " head bead > " + (dir_ / "spoken").string();
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(folder_.get("spoken"), "head  ->  H E A D\nbead  ->  B E A D\n");
}

TEST_F(Translate, AStoppedRunGoesOnToTheSameBits) {
  write_pairs(600);
  const std::vector<std::string> more{"--epochs",  "4",   "--patience", "3",
                                      "--dropout", "0.1", "--threads",  "1"};
  ASSERT_EQ(run(small("whole", more)).code, 0);
  std::vector<std::string> part = more;
  part[1] = "2";
  part.insert(part.end(), {"--schedule", "noam"});
  std::vector<std::string> noam = more;
  noam.insert(noam.end(), {"--schedule", "noam"});
  ASSERT_EQ(run(small("noam", noam)).code, 0);
  ASSERT_EQ(run(small("part", part)).code, 0);
  const Result resumed =
      run({"train", "--data", (dir_ / "pairs.tsv").string(), "--out", (dir_ / "part").string(), "--json",
           "--resume", "--epochs", "4", "--threads", "2"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(folder_.get("noam/model.safetensors"), folder_.get("part/model.safetensors"));
  EXPECT_NE(folder_.get("noam/model.safetensors"), folder_.get("whole/model.safetensors"));
  EXPECT_EQ(lines(folder_.get("part/metrics.jsonl")).back()["edit_rate"],
            lines(folder_.get("noam/metrics.jsonl")).back()["edit_rate"]);
}

TEST_F(Translate, AStreamTrainsToTheSameBitsInLessMemory) {
  write_pairs(600);
  const std::vector<std::string> more{"--epochs", "2", "--schedule", "constant"};
  ASSERT_EQ(run(small("whole", more)).code, 0);
  std::vector<std::string> part = more;
  part[1] = "1";
  part.insert(part.end(), {"--stream", "--threads", "2"});
  const Result first = run(small("part", part));
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_EQ(run({"train", "--data", (dir_ / "pairs.tsv").string(), "--out", (dir_ / "part").string(),
                 "--json", "--resume", "--epochs", "2", "--threads", "1", "--stream"})
                .code,
            0);
  EXPECT_EQ(folder_.get("part/model.safetensors"), folder_.get("whole/model.safetensors"));
  EXPECT_EQ(folder_.get("part/source.tokenizer"), folder_.get("whole/source.tokenizer"));

#ifndef HEED_ADDRESS_SANITIZER  // which holds freed memory back
  constexpr long kPairs = 100'000, kBytes = 200;
  std::string text;
  for (long i = 0; i < kPairs; ++i)
    text += std::to_string(i) + std::string(kBytes / 2 - 8, 'a') + "\t" + std::string(kBytes / 2, 'b') + "\n";
  folder_.put("pairs.tsv", text);
  const auto peak = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--steps", "1", "--max-tokens", "120", "--batch-size", "8", "--valid-share",
                               "0", "--test-share", "0", "--target-tokenizer", "characters", "--force"});
    const Result result = run(small("large", words));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.peak_kilobytes;
  };
  // In memory are the texts, and four bytes of each of their characters.
  EXPECT_LT(peak({"--stream"}), peak({}) - 4 * kPairs * kBytes / 1024);
#endif
}

TEST_F(Translate, PatienceEndsATraining) {
  write_pairs(300);
  // A rate too small to learn by: after some epoch none is better.
  const Result result =
      run(small("m", {"--epochs", "40", "--patience", "2", "--lr", "1e-12", "--select", "edits"}));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(lines(result.out).size(), 4u);  // the best, two without a better one, the test
  EXPECT_EQ(lines(result.out).back()["best_epoch"], 1);
}

TEST_F(Translate, RotaryPositionsAndAveragesAreSavedAndUsed) {
  write_pairs(300);
  for (const auto& [option, value] : {std::pair("--average", "2"), std::pair("--ema", "0.9")}) {
    const Result result =
        run(small("m", {"--position", "rotary", "--epochs", "3", "--force", option, value}));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(lines(result.out)[1]["valid_loss"].is_number());
    EXPECT_EQ(run({"run", "--model", model(), "abc"}).code, 0);
    const std::string saved = folder_.get("m/model.safetensors");
    EXPECT_NE(saved.find("rotary"), std::string::npos);
    ASSERT_EQ(run(small("part", {"--position", "rotary", "--epochs", "2", "--schedule", "constant", "--force",
                                 option, value}))
                  .code,
              0);
    ASSERT_EQ(run({"train", "--resume", "--data", (dir_ / "pairs.tsv").string(), "--out",
                   (dir_ / "part").string(), "--epochs", "3"})
                  .code,
              0);
    ASSERT_EQ(run(small("whole", {"--position", "rotary", "--epochs", "3", "--schedule", "constant",
                                  "--force", option, value}))
                  .code,
              0);
    EXPECT_EQ(folder_.get("part/model.safetensors"), folder_.get("whole/model.safetensors"));
  }
}

TEST_F(Translate, OneVocabularyTiedAndBf16) {
  write_pairs(300);
  std::vector<std::string> words = small("m", {"--source-tokenizer", "bytes", "--target-tokenizer", "bytes",
                                               "--tie", "all", "--dtype", "bf16", "--epochs", "1"});
  words.erase(std::find(words.begin(), words.end(), "--separate-vocabularies"));
  const Result result = run(words);
  ASSERT_EQ(result.code, 0) << result.err;
  const Result shown = run({"info", "--model", model(), "--json"});
  EXPECT_EQ(shown.last()["source"]["vocab"], 259);
  EXPECT_EQ(shown.last()["target"]["vocab"], 259);
}

#ifdef HEED_HAVE_SENTENCEPIECE
TEST_F(Translate, SubWordsAreSharedByDefault) {
  std::string text;
  for (int i = 0; i < 120; ++i) {
    const std::string number = std::to_string(i);
    text += "the lower number is " + number + "\tdie kleinere Zahl ist " + number + "\n";
  }
  const Result result = run({"train", "--data", folder_.put("pairs.tsv", text), "--out", model(), "--steps",
                             "1", "--d-model", "16", "--layers", "1", "--vocab", "320", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json shown = run({"info", "--model", model(), "--json"}).last();
  EXPECT_EQ(shown["source"], shown["target"]);
  EXPECT_EQ(shown["source"]["tokenizer"], "unigram");
  EXPECT_EQ(run({"run", "--model", model(), "the number"}).code, 0);
}
#endif

TEST_F(Translate, PronunciationsAreRead) {
  std::string text;
  for (const char* word : {"bad", "dab", "cab", "face", "cafe", "bead", "deaf", "fade"})
    text += std::string(word) + " " + spelled(word) + "1\n" + word + "(2) X0\n";
  const std::string file = folder_.put("dict", text);
  const Result result =
      run({"train", "--preset", "pronounce", "--data", file, "--out", model(), "--steps", "1", "--d-model",
           "16", "--layers", "1", "--valid-share", "0", "--test-share", "0", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("16 pairs for training"), std::string::npos) << result.err;
  const Result shown = run({"info", "--model", model(), "--json"});
  EXPECT_EQ(shown.last()["target"]["vocab"], 4 + 7);  // A to F, and X, without stress
}

TEST_F(Translate, BadInputIsNamed) {
  const auto refuse = [&](const std::vector<std::string>& arguments, int code, const std::string& message) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  };
  refuse({"train"}, 2, "--data");
  refuse({"train", "--data", (dir_ / "none").string()}, 3, "none");
  folder_.put("pairs.tsv", "a\tb\nc\xff\td\n");
  refuse(small("m"), 3, "pairs.tsv:2:2: this byte is not UTF-8");
  folder_.put("pairs.tsv", "a\tb\tc\n");
  refuse(small("m"), 3, "pairs.tsv:1:4: a second tab");
  EXPECT_FALSE(fs::exists(dir_ / "m"));  // nothing is left behind
  refuse({"run", "--model", model(), "a"}, 8, "model.safetensors");
  write_pairs(100);
  ASSERT_EQ(run(small("m", {"--steps", "1"})).code, 0);
  refuse(small("m"), 2, "holds a model already");
  refuse({"run", "--model", model(), "a", "b\xff"}, 2, "'b\\xff' is not UTF-8");
  refuse({"run", "--model", model(), "--input", folder_.put("lines", "a\nb\xff\n")}, 3,
         "text 2: the text is not UTF-8: byte 1");
  refuse({"run", "--model", model(), "--beam", "500", "a"}, 2, "beam of 500");
  refuse({"eval", "--model", model()}, 2, "--data");
  folder_.put("m/source.tokenizer", "nonsense");
  refuse({"run", "--model", model(), "a"}, 4, "no tokenizer");
}

TEST_F(Translate, ASweepsRowsAreThoseOfTrainingsRunOneByOne) {
  write_pairs(400);
  std::vector<std::string> words = small("s", {"--epochs", "1", "--vary", "label-smoothing=0,0.1", "--seeds",
                                               "2", "--seed", "7", "--threads", "1"});
  words[0] = "sweep";
  const Result swept = run(words);
  ASSERT_EQ(swept.code, 0) << swept.err;
  const Json settings = swept.last()["settings"];
  ASSERT_EQ(settings.size(), 2u);
  EXPECT_EQ(settings[1]["label-smoothing"], "0.1");
  EXPECT_EQ(settings[1]["Runs"], "2");
  std::istringstream rows(read_file(dir_ / "s/sweep.jsonl"));
  std::map<std::string, Json> found;
  for (std::string line; std::getline(rows, line);) {
    const Json row = Json::parse(line);
    found[row["name"]] = row;
  }
  ASSERT_EQ(found.size(), 4u);
  const Result alone = run(small("one", {"--epochs", "1", "--label-smoothing", "0.1", "--seed", "8"}));
  ASSERT_EQ(alone.code, 0) << alone.err;
  for (const char* key : {"edit_rate", "text_error", "bleu", "chrf", "texts", "best_epoch"})
    EXPECT_EQ(found.at("label-smoothing=0.1,seed=8")[key], alone.last()[key]) << key;
  EXPECT_FALSE(found.at("label-smoothing=0.1,seed=8").contains("step_ms"));
  EXPECT_TRUE(fs::exists(dir_ / "s/report.html"));
}

}  // namespace
}  // namespace heed
