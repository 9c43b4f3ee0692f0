// lm train as its users run it, on a small text.
#include <chrono>
#include <cmath>
#include <csignal>
#include <random>
#include <thread>

#include <heed/nn/text/text_generator.h>

#include "../../support/address_sanitizer.h"
#include "../program_run.h"

namespace heed {
namespace {

using Words = std::vector<std::string>;

class LmTrain : public ProgramTest {
 protected:
  LmTrain() : ProgramTest(HEED_LM) {
    std::ofstream text(text_);
    for (int i = 0; i < 150; ++i)
      text << "And the king of " << (i % 2 ? "Moab" : "Edom") << " said, I am number " << i * 37 % 91
           << ".\nThen he went out.\n\n";
  }
  Words command(const fs::path& out, const Words& more = {}) const {
    Words words{"train",
                "--data",
                text_.string(),
                "--documents",
                "paragraph",
                "--out",
                out.string(),
                "--d-model",
                "16",
                "--layers",
                "2",
                "--heads",
                "2",
                "--context",
                "24",
                "--batch-size",
                "4",
                "--lr",
                "0.01",
                "--warmup",
                "2",
                "--json",
                "--threads",
                "2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // As it stands in the folder.
  static std::string weights(const fs::path& folder) { return read_file(folder / "model.safetensors"); }
  static std::vector<std::string> measurements(const fs::path& folder) {
    std::vector<std::string> lines;
    std::ifstream in(folder / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      Json json = Json::parse(line);
      json.erase("samples_per_second");
      json.erase("tokens_per_second");
      lines.push_back(json.dump());
    }
    return lines;
  }
  const fs::path text_ = dir_ / "text.txt";
};

TEST_F(LmTrain, ModelsOfAllKindsAreLoadedAgain) {
  const std::vector<Words> kinds{{"--tokenizer", "char", "--style", "gpt2", "--dropout", "0.1"},
                                 {"--tokenizer", "byte", "--style", "llama", "--key-heads", "1"},
                                 {"--tokenizer", "bpe", "--vocab", "320", "--untied"},
                                 {"--tokenizer", "unigram", "--vocab", "320"}};
  for (const Words& kind : kinds) {
    SCOPED_TRACE(kind[1]);
    const fs::path out = dir_ / kind[1];
    Words words = command(out, kind);
    words.insert(words.end(), {"--steps", "40", "--save-every", "20"});
    const Result r = run(words);
    ASSERT_EQ(r.code, 0) << r.err;
    const Json last = r.last();
    EXPECT_EQ(last["final"], true);
    EXPECT_EQ(last["step"], 40);
    EXPECT_GT(last["valid_loss"].get<double>(), 0);
    EXPECT_NEAR(last["valid_perplexity"].get<double>(), std::exp(last["valid_loss"].get<double>()), 1e-6);
    const Json first = Json::parse(r.out.substr(0, r.out.find('\n')));
    EXPECT_EQ(first["step"], 20);
    EXPECT_LT(last["valid_bits_per_character"], first["valid_bits_per_character"]);

    // The folder is a model: what it was measured with comes out again.
    std::ofstream(dir_ / "one.txt") << "And the king of Moab said, I am number 17.\nThen he went out.";
    const Result eval =
        run({"eval", "--json", "--model", out.string(), "--data", (dir_ / "one.txt").string()});
    ASSERT_EQ(eval.code, 0) << eval.err;
    EXPECT_LT(eval.last()["bits_per_character"].get<double>(), 8);
    const Words generate{"generate", "--json", "--model", out.string(), "--max-tokens", "40", "And"};
    const Result text = run(generate);
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_EQ(run(generate).last()["text"], text.last()["text"]);
    const Result info = run({"info", "--json", "--model", out.string()});
    ASSERT_EQ(info.code, 0) << info.err;
    EXPECT_GT(info.last()["parameters"], 1000);
  }
}

TEST_F(LmTrain, WhatIsMeasuredIsTheValidationText) {
  const fs::path valid = dir_ / "valid.txt", out = dir_ / "folder";
  std::ofstream(valid) << "And he said, 17.";
  Words words = command(out, {"--valid", valid.string(), "--tokenizer", "byte", "--steps", "10"});
  const Result r = run(words);
  ASSERT_EQ(r.code, 0) << r.err;
  // Sixteen bytes and an end, from a start, in one sequence.
  const nn::TextGenerator generator = nn::load_text_generator(out.string());
  std::vector<int64_t> ids{generator.start()};
  for (const int64_t id : generator.tokenizer().encode("And he said, 17.")) ids.push_back(id);
  ids.push_back(generator.ends().front());
  const std::vector<int64_t> targets(ids.begin() + 1, ids.end());
  ids.pop_back();
  const double loss = generator.model()
                          .loss(nn::Tokens::packed({ids}), tensor(targets, {std::ssize(targets)}))
                          .item<double>();
  EXPECT_EQ(targets.size(), 17u);
  EXPECT_NEAR(r.last()["valid_loss"].get<double>(), loss, 1e-5);
  EXPECT_NEAR(r.last()["valid_bits_per_character"].get<double>(), loss * 17 / std::log(2.0) / 16, 1e-5);
}

TEST_F(LmTrain, StoppedAndResumedItIsTheSameToTheBit) {
  const Words recipe{"--tokenizer",  "char", "--dropout",  "0.1",      "--average",    "2",
                     "--accumulate", "2",    "--schedule", "constant", "--save-every", "5"};
  const auto with = [&](const fs::path& out, const Words& more) {
    Words words = command(out, recipe);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const fs::path straight = dir_ / "straight", stopped = dir_ / "stopped";
  ASSERT_EQ(run(with(straight, {"--steps", "23"})).code, 0);

  // In the middle of an epoch, between two measurements.
  const pid_t child = start(with(stopped, {"--steps", "23"}));
  const fs::path checkpoint = stopped / "checkpoint-5.safetensors";
  for (int i = 0; i < 6000 && !fs::exists(checkpoint); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(child, SIGTERM);
  const Result half = finish(child);
  ASSERT_TRUE(half.code == 143 || half.code == 0) << half.err;
  const Result r = run({"train", "--data", text_.string(), "--out", stopped.string(), "--resume",
                        "--save-every", "5", "--threads", "1", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(weights(stopped) == weights(straight));
  EXPECT_EQ(measurements(stopped), measurements(straight));
}

TEST_F(LmTrain, EndsWhereNothingGetsBetter) {
  // Too fast to learn: the first measurement stays the best.
  Words words = command(dir_ / "folder", {"--tokenizer", "byte", "--steps", "400", "--save-every", "4",
                                          "--patience", "3", "--schedule", "constant"});
  words[static_cast<size_t>(std::find(words.begin(), words.end(), "0.01") - words.begin())] = "3";
  const Result r = run(words);
  ASSERT_EQ(r.code, 0) << r.err;
  const Json last = r.last();
  EXPECT_LT(last["step"].get<int64_t>(), 400);
  EXPECT_EQ(last["step"].get<int64_t>(), last["best_step"].get<int64_t>() + 12);
}

TEST_F(LmTrain, GoesOnFromAModel) {
  const fs::path first = dir_ / "first", second = dir_ / "second";
  ASSERT_EQ(run(command(first, {"--tokenizer", "char", "--steps", "40"})).code, 0);
  const auto words = [&](const Words& more) {
    Words all{"train",        "--data", text_.string(),  "--documents", "paragraph", "--model",
              first.string(), "--out",  second.string(), "--context",   "24",        "--json",
              "--batch-size", "4",      "--lr",          "0.003"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Result r = run(words({"--steps", "20"}));
  ASSERT_EQ(r.code, 0) << r.err;
  const Json before = Json::parse(
      read_file(first / "metrics.jsonl").substr(0, read_file(first / "metrics.jsonl").find('\n')));
  EXPECT_LT(r.last()["valid_loss"].get<double>(), before["valid_loss"].get<double>());
  EXPECT_EQ(run(words({"--layers", "3", "--force"})).code, 2) << "the model has its layers";
}

TEST_F(LmTrain, ShowsWhatTokensLookBackAt) {
  const fs::path out = dir_ / "folder";
  ASSERT_EQ(run(command(out, {"--tokenizer", "char", "--steps", "1"})).code, 0);
  const Words look{"attention", "--json", "--model", out.string(), "--layer", "1", "--head", "0"};
  const auto with = [&](const Words& more) {
    Words words = look;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Result r = run(with({"And"}));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.last()["tokens"], (Words{"<start>", "A", "n", "d"}));
  const auto weights = r.last()["head0"].get<std::vector<std::vector<double>>>();
  ASSERT_EQ(weights.size(), 4u);
  for (size_t row = 0; row < 4; ++row) {
    double sum = 0;
    for (size_t column = 0; column < 4; ++column) sum += weights[row][column];
    EXPECT_NEAR(sum, 1, 1e-6);
    for (size_t column = row + 1; column < 4; ++column) EXPECT_EQ(weights[row][column], 0);
  }
  EXPECT_EQ(run(with({"--layer", "2", "And"})).code, 2);
  EXPECT_EQ(run(with({})).code, 2);
  EXPECT_EQ(run(with({std::string(200, 'a')})).code, 3);
}

// Lines of four pairs of letters in any order: after the first letter of a pair comes what came after it
// before. Two layers learn to look there, by a head that tells each letter its predecessor; one layer does
// not.
TEST_F(LmTrain, TwoLayersLearnInductionAndOneDoesNot) {
#ifdef HEED_ADDRESS_SANITIZER
  GTEST_SKIP() << "it trains for a minute there, by what others run too";
#endif
  std::mt19937 random(1);
  const auto write = [&](const char* name, int lines) {
    std::ofstream out(dir_ / name);
    for (int i = 0; i < lines; ++i) {
      std::string letters = "abcdefghijklmnopqrstuvwxyz";
      for (size_t at = 0; at < 8; ++at)
        std::swap(letters[at], letters[at + random() % (letters.size() - at)]);
      for (int pair = 0; pair < 24; ++pair) out << letters.substr(2 * (random() % 4), 2);
      out << "\n";
    }
    return (dir_ / name).string();
  };
  const std::string pairs = write("pairs", 10'000), unseen = write("unseen", 20);
  const auto heads = [&](const char* layers) {
    const std::string out = (dir_ / layers).string();
    const Result trained =
        run({"train",     "--data",  pairs,          "--documents", "line",    "--tokenizer", "char",
             "--layers",  layers,    "--d-model",    "64",          "--heads", "1",           "--untied",
             "--context", "64",      "--batch-size", "32",          "--lr",    "1e-3",        "--schedule",
             "constant",  "--steps", "1000",         "--threads",   "2",       "--json",      "--out",
             out});
    EXPECT_EQ(trained.code, 0) << trained.err;
    const Result r =
        run({"heads", "--model", out, "--data", unseen, "--documents", "line", "--period", "12", "--json"});
    EXPECT_EQ(r.code, 0) << r.err;
    return r.last();
  };
  const Json two = heads("2"), one = heads("1");
  EXPECT_LT(two["first"]["right"], 0.15) << "nobody can know";
  EXPECT_GT(two["again"]["right"], 0.5);
  EXPECT_LT(one["again"]["right"], 0.2);
  EXPECT_GT(two["again"]["right"].get<double>(), 3 * one["again"]["right"].get<double>());
  const Json& induction = two["induction"];
  EXPECT_EQ(induction["layer"], 1);
  EXPECT_GT(induction["score"], 0.3);
  EXPECT_LT(induction["helper"]["left"].get<double>(), induction["score"].get<double>() / 2);
  EXPECT_GT(two["heads"][0]["Previous"], 0.3);
  for (const Json& head : two["heads"]) EXPECT_LT(head["Right without, %"], 20);
  EXPECT_LT(one["induction"]["score"], 0.2);
}

TEST_F(LmTrain, AdaptersAreTrainedSavedAndMerged) {
  const fs::path first = dir_ / "first", adapters = dir_ / "adapters", merged = dir_ / "merged";
  ASSERT_EQ(run(command(first, {"--tokenizer", "char", "--steps", "40"})).code, 0);
  const auto words = [&](const Words& more) {
    Words all{"train",
              "--data",
              text_.string(),
              "--documents",
              "paragraph",
              "--model",
              first.string(),
              "--out",
              adapters.string(),
              "--context",
              "24",
              "--json",
              "--batch-size",
              "4",
              "--lr",
              "0.01",
              "--schedule",
              "constant",
              "--lora-rank",
              "2",
              "--lora-targets",
              "q_proj,v_proj,down_proj",
              "--save-every",
              "5"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  // Stopped and gone on with, as of a whole model.
  ASSERT_EQ(run(words({"--steps", "15"})).code, 0);
  const Result r = run(words({"--steps", "30", "--resume"}));
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<std::string> lines = measurements(adapters);
  EXPECT_LT(r.last()["valid_loss"].get<double>(), Json::parse(lines[0])["valid_loss"].get<double>());
  EXPECT_LT(fs::file_size(adapters / "adapter_model.safetensors"),
            fs::file_size(first / "model.safetensors") / 3);
  EXPECT_FALSE(fs::exists(adapters / "model.safetensors"));

  // Used with its model, and merged: the same.
  ASSERT_EQ(run({"merge", "--model", adapters.string(), "--out", merged.string()}).code, 0);
  EXPECT_EQ(run({"merge", "--model", adapters.string(), "--out", merged.string()}).code, 2) << "it holds one";
  EXPECT_EQ(run({"merge", "--model", first.string(), "--out", (dir_ / "x").string()}).code, 2)
      << "no adapters";
  const auto loss = [&](const fs::path& model) {
    const Result result = run({"eval", "--json", "--model", model.string(), "--data", text_.string()});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.last()["loss"].get<double>();
  };
  EXPECT_NEAR(loss(merged), loss(adapters), 1e-6);
  EXPECT_GT(std::abs(loss(first) - loss(adapters)), 1e-3);
  EXPECT_EQ(run(command(dir_ / "x", {"--lora-rank", "2"})).code, 2) << "nothing to adapt";
  EXPECT_EQ(run(words({"--force", "--dtype", "bf16"})).code, 2);
}

TEST_F(LmTrain, RefusesWithTheRightCode) {
  const fs::path out = dir_ / "folder";
  EXPECT_EQ(run({"train", "--out", out.string()}).code, 2) << "no text";
  EXPECT_EQ(run(command(out, {"--heads", "3"})).code, 2);
  EXPECT_EQ(run(command(out, {"--tokenizer", "words"})).code, 2);
  EXPECT_EQ(run(command(out, {"--resume"})).code, 4) << "nothing to resume";
  EXPECT_EQ(run(command(out, {"--vocab", "100", "--tokenizer", "char"})).code, 2) << "no room for bytes";
  EXPECT_EQ(run(command(out, {"--model", (dir_ / "none").string()})).code, 2);
  EXPECT_EQ(run(command(out, {"--valid", (dir_ / "none").string()})).code, 8);
  EXPECT_FALSE(fs::exists(out / "model.safetensors"));

  std::ofstream(dir_ / "latin") << "caf\xe9";
  std::ofstream(dir_ / "empty");
  for (const char* file : {"latin", "empty"})
    EXPECT_EQ(run({"train", "--data", (dir_ / file).string(), "--out", out.string()}).code, 3) << file;
  EXPECT_FALSE(fs::exists(out / "model.safetensors"));

  ASSERT_EQ(run(command(out, {"--tokenizer", "char", "--steps", "2"})).code, 0);
  EXPECT_EQ(run(command(out, {"--tokenizer", "char", "--steps", "2"})).code, 2) << "it holds a model";
  // Another text, or another recipe, is not gone on with.
  Words on = command(out, {"--resume", "--tokenizer", "char", "--steps", "4"});
  EXPECT_EQ(run(command(out, {"--resume", "--tokenizer", "byte"})).code, 4);
  std::ofstream(text_, std::ios::app) << "\n\nMore text.\n\nAnd more.\n\nAnd still more.\n";
  EXPECT_EQ(run(on).code, 4);
  // A damaged tokenizer or model is none.
  const Words generate{"generate", "--model", out.string(), "x"};
  EXPECT_EQ(run(generate).code, 0);
  const std::string tokenizer = read_file(out / "model.tokenizer");
  std::ofstream(out / "model.tokenizer") << tokenizer.substr(0, tokenizer.size() / 2) << "\xff";
  EXPECT_EQ(run(generate).code, 4);
  std::ofstream(out / "model.tokenizer") << tokenizer;
  std::ofstream(out / "config.json") << "{\"model_type\": \"llama\", \"vocab_size\": -1}";
  EXPECT_EQ(run(generate).code, 2);
}

}  // namespace
}  // namespace heed
