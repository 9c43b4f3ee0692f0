// The program as its users run it: what it writes, learns, refuses, and how it goes on after being killed.
#include <chrono>
#include <fstream>
#include <map>
#include <signal.h>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/serialize.h>

#include "../../support/address_sanitizer.h"
#include "copy_reverse_run.h"

namespace heed {
namespace {

TEST_F(CopyReverse, LearnsToCopy) {
  const Result r = run(
      small("m", {"--d-model", "64", "--d-ff", "128", "--warmup", "20", "--lr", "3e-3", "--steps", "500"}));
  ASSERT_EQ(r.code, 0) << r.err;
  const Json last = r.last();
  EXPECT_TRUE(last.at("final").get<bool>());
  EXPECT_EQ(last.at("pairs").get<int>(), 50);
  EXPECT_GE(last.at("sequence_accuracy").get<double>(), 0.98);

  const Result eval = run({"eval", "--model", (dir_ / "m").string(), "--json"});
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_EQ(eval.last().at("loss").get<double>(), last.at("loss").get<double>());
  EXPECT_NE(eval.err.find("evaluating"), std::string::npos) << eval.err;
  EXPECT_NE(eval.err.find("50/50 pairs"), std::string::npos) << eval.err;

  const Result decoded = run({"decode", "--model", (dir_ / "m").string(), "--json", "3 4 5", "--beam", "3"});
  ASSERT_EQ(decoded.code, 0) << decoded.err;
  EXPECT_EQ(decoded.last().at("output").get<std::vector<int>>(), (std::vector<int>{3, 4, 5}));
  EXPECT_TRUE(decoded.last().at("finished").get<bool>());

  const Result maps = run({"attention", "--model", (dir_ / "m").string(), "--json", "--input", "7 8"});
  ASSERT_EQ(maps.code, 0) << maps.err;
  const NamedTensors tensors = load_tensors((dir_ / "m" / "attention.safetensors").string());
  ASSERT_EQ(tensors.size(), 3u);
  for (const auto& entry : tensors) {
    const bool encoder = entry.first == "encoder.layers.0.self_attn";
    const bool cross = entry.first == "decoder.layers.0.multihead_attn";
    EXPECT_EQ(entry.second.shape(), encoder ? (Shape{2, 4, 4}) : cross ? (Shape{2, 3, 4}) : (Shape{2, 3, 3}));
    const std::vector<float> weights = entry.second.to_vector<float>();
    const int64_t keys = entry.second.size(-1);
    for (int64_t row = 0; row < entry.second.numel() / keys; ++row) {
      double total = 0;
      for (int64_t k = 0; k < keys; ++k) total += weights[static_cast<size_t>(row * keys + k)];
      EXPECT_NEAR(total, 1, 1e-5) << entry.first;
    }
  }
}

// Recurrent networks are trained, resumed, judged, asked and drawn as the Transformer.
TEST_F(CopyReverse, RecurrentModelsLearnToCopy) {
  for (const std::string cell : {"gru", "lstm"}) {
    std::vector<std::string> arguments =
        small(cell, {"--model", cell, "--d-model", "64", "--layers", "2", "--dropout", "0.05", "--warmup",
                     "20", "--lr", "5e-3", "--pairs", "640", "--steps", "400", "--save-every", "200"});
    const Result r = run(arguments);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_GE(r.last().at("sequence_accuracy").get<double>(), 0.95) << cell;
    const std::string model = (dir_ / cell).string(), whole = read_file(dir_ / cell / "model.safetensors");
    fs::remove(dir_ / cell / "checkpoint-400.safetensors");
    arguments.push_back("--resume");
    ASSERT_EQ(run(arguments).code, 0);
    EXPECT_EQ(read_file(dir_ / cell / "model.safetensors"), whole) << cell;

    const Result eval = run({"eval", "--model", model, "--json"});
    EXPECT_EQ(eval.last().at("loss"), r.last().at("loss"));
    const Result decoded = run({"decode", "--model", model, "--json", "3 4 5", "--beam", "3"});
    EXPECT_EQ(decoded.last().at("output").get<std::vector<int>>(), (std::vector<int>{3, 4, 5})) << cell;
    const Result maps = run({"attention", "--model", model, "--json", "--input", "7 8"});
    ASSERT_EQ(maps.code, 0) << maps.err;
    const NamedTensors tensors = load_tensors((dir_ / cell / "attention.safetensors").string());
    ASSERT_EQ(tensors.size(), 1u);
    EXPECT_EQ(tensors[0].first, "decoder.attention");
    EXPECT_EQ(tensors[0].second.shape(), (Shape{1, 3, 4}));
    const Json info = run({"info", "--model", model, "--json"}).last();
    EXPECT_FALSE(info.contains("flops_per_token"));
    EXPECT_GT(info.at("components").at("attention").get<int>(), 0);
  }
  // The settings say which model it is.
  EXPECT_NE(read_file(dir_ / "gru" / "config.toml").find("model = \"gru\""), std::string::npos);
  EXPECT_NE(run(small("odd", {"--model", "gru", "--d-model", "33"})).err.find("d_model = 33 is odd"),
            std::string::npos);
}

// Without an end mark nothing but the target says how long an output is.
TEST_F(CopyReverse, OutputsWithoutAnEndMarkAreAsLongAsTheirTargets) {
  const Result r =
      run(small("m", {"--no-end-mark", "--no-source-marks", "--separate-projections", "--d-model", "64",
                      "--d-ff", "128", "--lr", "3e-3", "--pairs", "2000", "--steps", "800"}));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_GE(r.last().at("sequence_accuracy").get<double>(), 0.95);
  const std::string model = (dir_ / "m").string();
  const Result decoded = run({"decode", "--model", model, "--json", "5 4 3"});
  EXPECT_EQ(decoded.last().at("output").get<std::vector<int>>(), (std::vector<int>{5, 4, 3}));
  EXPECT_FALSE(decoded.last().at("finished").get<bool>());
  // Whoever searches, and whatever stands beside a source, its output and score are those of so many symbols.
  const Json tree = run({"beam", "--model", model, "--json", "--beam", "2", "5 4 3"}).last();
  const Json beside = run({"decode", "--model", model, "--json", "--beam", "2", "3 4 5 6 7", "5 4 3"}).last();
  EXPECT_EQ(beside.at("output"), decoded.last().at("output"));
  EXPECT_NEAR(beside.at("score").get<double>(), tree.at("outputs").at(0).at("score").get<double>(), 1e-5);
  // Compared with outputs that are too short, the same model has learned only what is shorter still.
  const Result cut = run({"eval", "--model", model, "--json", "--max-decode-length", "1"});
  EXPECT_EQ(cut.last().at("sequence_accuracy").get<double>(), 0);
  EXPECT_EQ(cut.last().at("loss"), r.last().at("loss"));
}

TEST_F(CopyReverse, LengthsAreThoseOfEvalAtEachLength) {
  const std::vector<std::string> recipe{"--no-source-marks", "--steps", "60", "--lr", "3e-3"};
  std::vector<std::string> randomised = recipe;
  randomised.insert(randomised.end(), {"--random-positions", "16"});
  ASSERT_EQ(run(small("plain", recipe)).code, 0);
  ASSERT_EQ(run(small("randomised", randomised)).code, 0);
  EXPECT_NE(read_file(dir_ / "plain" / "model.safetensors"),
            read_file(dir_ / "randomised" / "model.safetensors"));
  const std::vector<std::string> models{(dir_ / "plain").string(), (dir_ / "randomised").string()};
  const Result r = run({"lengths", "--lengths", "3,7", "--pairs", "40", "--json", "--out",
                        (dir_ / "lengths").string(), models[0], models[1]});
  ASSERT_EQ(r.code, 0) << r.err;
  const Json rows = r.last().at("models");
  ASSERT_EQ(rows.size(), 2u);
  std::string csv = "model,length,pairs,token_accuracy,sequence_accuracy\n";
  for (size_t m = 0; m < 2; ++m) {
    EXPECT_EQ(rows[m].at("Model"), m == 0 ? "plain" : "randomised");
    for (const char* length : {"3", "7"}) {
      const Json eval = run({"eval", "--model", models[m], "--min-length", length, "--max-length", length,
                             "--pairs", "40", "--json"})
                            .last();
      EXPECT_EQ(rows[m].at(length), 100 * eval.at("sequence_accuracy").get<double>());
    }
  }
  const std::string numbers = read_file(dir_ / "lengths" / "lengths.csv");
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), '\n'), 5);
  EXPECT_EQ(numbers.compare(0, csv.size(), csv), 0);

  const auto refused = [&](const std::vector<std::string>& words, const char* text) {
    const Result wrong = run(words);
    EXPECT_EQ(wrong.code, 2);
    EXPECT_NE(wrong.err.find(text), std::string::npos) << wrong.err;
  };
  refused({"lengths"}, "name the folders");
  refused({"lengths", "--lengths", "5,x", models[0]}, "'x' is no length");
  refused(small("none", {"--random-positions", "4"}), "too few for sequences of 6");
  refused(small("none", {"--random-positions", "16", "--position", "alibi"}),
          "sinusoidal, learned or rotary");
  refused(small("none", {"--random-positions", "16", "--position", "learned", "--max-positions", "15"}),
          "exceeds --max-positions 15");
}

// Trained on up to 4 symbols. docs/experiments/lengths.md goes from 10 to 40.
TEST_F(CopyReverse, RandomPositionsCopyWhatIsLongerThanInTraining) {
#ifdef HEED_ADDRESS_SANITIZER
  GTEST_SKIP() << "2 x 2,000 steps; other tests run the same code";
#endif
  const auto accuracy = [&](const char* name, const char* range) {
    EXPECT_EQ(run(small(name, {"--no-source-marks", "--dropout", "0", "--pairs", "2000", "--epochs", "1000",
                               "--lr", "5e-3", "--steps", "2000", "--random-positions", range}))
                  .code,
              0);
    const Result r = run({"lengths", "--lengths", "4,6,8", "--pairs", "100", "--json", "--out",
                          (dir_ / "lengths").string(), (dir_ / name).string()});
    EXPECT_EQ(r.code, 0) << r.err;
    return r.last().at("models").at(0);
  };
  const Json plain = accuracy("plain", "0"), randomised = accuracy("randomised", "12");
  EXPECT_GE(plain.at("4").get<double>(), 95);
  EXPECT_LE(plain.at("6").get<double>(), 5);
  EXPECT_GE(randomised.at("4").get<double>(), 95);
  EXPECT_GE(randomised.at("6").get<double>(), 95);
  EXPECT_GE(randomised.at("8").get<double>(), 85);
}

TEST_F(CopyReverse, LearnsInBFloat16) {
  std::vector<std::string> arguments = small("m", {"--dtype", "bf16", "--d-model", "64", "--warmup", "20",
                                                   "--lr", "3e-3", "--steps", "500", "--save-every", "250"});
  const Result r = run(arguments);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_GE(r.last().at("sequence_accuracy").get<double>(), 0.95);

  // The file holds f32, and what it holds evaluates alike.
  for (const auto& entry : load_tensors((dir_ / "m" / "model.safetensors").string()))
    EXPECT_EQ(entry.second.dtype(), DType::f32) << entry.first;
  const Result eval = run({"eval", "--model", (dir_ / "m").string(), "--json"});
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_GE(eval.last().at("sequence_accuracy").get<double>(), 0.95);  // in f32

  // Masters, moments and gradients are f32: a resumed run goes on bit by bit.
  const std::string whole = read_file(dir_ / "m" / "model.safetensors");
  fs::remove(dir_ / "m" / "checkpoint-500.safetensors");
  arguments.push_back("--resume");
  const Result again = run(arguments);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_file(dir_ / "m" / "model.safetensors"), whole);
}

TEST_F(CopyReverse, TheThreadCountChangesNoBit) {
  std::vector<std::string> models;
  for (const char* threads : {"1", "2", "4"}) {
    const Result r = run(small(threads, {"--steps", "30", "--threads", threads}));
    ASSERT_EQ(r.code, 0) << r.err;
    models.push_back(read_file(dir_ / threads / "model.safetensors"));
  }
  EXPECT_EQ(models[0], models[1]);
  EXPECT_EQ(models[0], models[2]);
}

TEST_F(CopyReverse, TheCudaDeviceTrainsAlike) {
  std::vector<Json> epochs;
  for (const char* device : {"cpu", "cuda"}) {
    const Result r = run(small(device, {"--steps", "12", "--batch-size", "8", "--device", device}));
    if (r.code == 7) GTEST_SKIP() << "no CUDA device";
    ASSERT_EQ(r.code, 0) << r.err;
    epochs.push_back(Json::parse(r.out.substr(0, r.out.find('\n'))));
    const Result eval = run({"eval", "--model", (dir_ / device).string(), "--device", device, "--json"});
    ASSERT_EQ(eval.code, 0) << eval.err;
    epochs.back()["eval"] = eval.last().at("loss");
  }
  for (const char* what : {"loss", "grad_norm", "eval"})
    EXPECT_NEAR(epochs[0].at(what).get<double>(), epochs[1].at(what).get<double>(), 1e-4) << what;
  EXPECT_EQ(epochs[0].at("step"), epochs[1].at("step"));
}

TEST_F(CopyReverse, OnCudaTwoRunsAndAResumedOneAreEqual) {
  const std::vector<std::string> options{"--steps",      "14", "--batch-size", "8",
                                         "--save-every", "7",  "--device",     "cuda"};
  std::vector<std::string> resumed = options;
  resumed.push_back("--resume");
  for (const char* name : {"a", "b"}) {
    const Result r = run(small(name, options));
    if (r.code == 7) GTEST_SKIP() << "no CUDA device";
    ASSERT_EQ(r.code, 0) << r.err;
  }
  const std::string whole = read_file(dir_ / "a" / "model.safetensors");
  EXPECT_EQ(read_file(dir_ / "b" / "model.safetensors"), whole);
  fs::remove(dir_ / "b" / "checkpoint-14.safetensors");
  const Result again = run(small("b", resumed));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_file(dir_ / "b" / "model.safetensors"), whole);
}

TEST_F(CopyReverse, KilledAndResumedEqualsNeverStopped) {
  const std::vector<std::string> length{"--steps", "400", "--save-every", "7", "--clip", "1"};
  ASSERT_EQ(run(small("whole", length)).code, 0);
  const std::string whole = read_file(dir_ / "whole" / "model.safetensors");

  std::vector<std::string> resumed = length;
  for (int kills = 0; kills < 3; ++kills) {
    const pid_t child = start(small("killed", resumed));
    std::this_thread::sleep_for(std::chrono::milliseconds(150 + 130 * kills));
    kill(child, SIGKILL);
    finish(child);
    if (resumed.back() != "--resume" && fs::exists(dir_ / "killed")) {
      for (const auto& entry : fs::directory_iterator(dir_ / "killed"))
        if (entry.path().extension() == ".safetensors") resumed.push_back("--resume");
      if (resumed.back() == "--resume") resumed.resize(length.size() + 1);
    }
  }
  const Result r = run(small("killed", resumed));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(read_file(dir_ / "killed" / "model.safetensors"), whole);
}

TEST_F(CopyReverse, AnInterruptSavesAndCanBeResumed) {
  const pid_t child = start(small("m", {"--steps", "100000"}));
  while (!fs::exists(dir_ / "m" / "metrics.jsonl")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(child, SIGINT);
  const Result stopped = finish(child);
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  EXPECT_NE(stopped.err.find("go on with --resume"), std::string::npos) << stopped.err;
  const Result other = run(small("m", {"--steps", "100000", "--resume", "--batch-size", "16"}));
  EXPECT_EQ(other.code, 4);
  EXPECT_NE(other.err.find("batch-size = 32 (now 16)"), std::string::npos) << other.err;
}

TEST_F(CopyReverse, AResumedRunKnowsItsSettingsAndMayBeLonger) {
  const std::vector<std::string> constant{"--schedule", "constant", "--dtype", "bf16"};
  std::vector<std::string> whole = constant, begun = constant;
  whole.insert(whole.end(), {"--steps", "24"});
  begun.insert(begun.end(), {"--steps", "13"});
  ASSERT_EQ(run(small("whole", whole)).code, 0);
  ASSERT_EQ(run(small("begun", begun)).code, 0);
  const Result r = run({"train", "--resume", "--out", (dir_ / "begun").string(), "--steps", "24"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(read_file(dir_ / "begun" / "model.safetensors"), read_file(dir_ / "whole" / "model.safetensors"));
}

TEST_F(CopyReverse, ADamagedCheckpointFallsBackToTheOneBefore) {
  ASSERT_EQ(run(small("m", {"--steps", "30", "--save-every", "10"})).code, 0);
  std::ofstream(dir_ / "m" / "checkpoint-30.safetensors", std::ios::trunc) << "nonsense";
  const Result r = run(small("m", {"--steps", "30", "--save-every", "10", "--resume"}));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("passing over a damaged checkpoint"), std::string::npos) << r.err;
}

// What is saved is the average: it differs from the last weights, and a resumed run has its bits.
TEST_F(CopyReverse, AveragesAreSavedAndResumed) {
  ASSERT_EQ(run(small("plain", {"--steps", "24", "--save-every", "6"})).code, 0);
  for (const std::vector<std::string>& average :
       {std::vector<std::string>{"--average", "3"}, std::vector<std::string>{"--ema", "0.9"}}) {
    const std::string name = average[0].substr(2);
    const auto words = [&](const std::string& folder, const std::string& steps) {
      std::vector<std::string> all{"--steps", steps, "--save-every", "6", "--schedule", "constant"};
      all.insert(all.end(), average.begin(), average.end());
      return small(name + folder, all);
    };
    ASSERT_EQ(run(words("whole", "24")).code, 0);
    ASSERT_EQ(run(words("part", "13")).code, 0);
    const Result r = run({"train", "--resume", "--out", (dir_ / (name + "part")).string(), "--steps", "24",
                          "--save-every", "6"});
    ASSERT_EQ(r.code, 0) << r.err;
    const std::string saved = read_file(dir_ / (name + "whole") / "model.safetensors");
    EXPECT_EQ(read_file(dir_ / (name + "part") / "model.safetensors"), saved) << name;
    EXPECT_NE(read_file(dir_ / "plain" / "model.safetensors"), saved) << name;
  }
  const Result both = run(small("both", {"--average", "3", "--ema", "0.9"}));
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("--average and --ema contradict"), std::string::npos) << both.err;
}

TEST_F(CopyReverse, RotaryPositionsAreSavedAndUsed) {
  ASSERT_EQ(run(small("m", {"--steps", "20", "--position", "rotary"})).code, 0);
  const std::string model = (dir_ / "m").string();
  EXPECT_NE(read_file(dir_ / "m" / "config.toml").find("position = \"rotary\""), std::string::npos);
  const Json trained = run({"eval", "--model", model, "--json"}).last();
  EXPECT_EQ(trained.at("loss"),
            run({"eval", "--model", model, "--json", "--threads", "1"}).last().at("loss"));
  EXPECT_EQ(run({"decode", "--model", model, "--beam", "2", "3 4 5"}).code, 0);
  const Result odd = run(small("odd", {"--position", "rotary", "--d-model", "6", "--heads", "2"}));
  EXPECT_EQ(odd.code, 2);
  EXPECT_NE(odd.err.find("rotary: 3 columns"), std::string::npos) << odd.err;
}

TEST_F(CopyReverse, WritesLogitsInFileOrder) {
  ASSERT_EQ(run(small("m", {"--steps", "0"})).code, 0);
  std::ofstream(dir_ / "pairs.tsv") << "3 4\t3 4\n5\t5 5 5\n";
  const std::string out = (dir_ / "l.safetensors").string();
  const Result r = run(
      {"logits", "--model", (dir_ / "m").string(), "--data", (dir_ / "pairs.tsv").string(), "--out", out});
  ASSERT_EQ(r.code, 0) << r.err;
  const NamedTensors tensors = load_tensors(out);
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].first, "logits");
  EXPECT_EQ(tensors[0].second.shape(), (Shape{3 + 4, 12}));
}

TEST_F(CopyReverse, EvaluatesOnOtherPairs) {
  ASSERT_EQ(run(small("m", {"--steps", "0"})).code, 0);
  const std::string model = (dir_ / "m").string();
  const Json usual = run({"eval", "--model", model, "--json"}).last();
  const Json same = run({"eval", "--model", model, "--json", "--task", "copy", "--max-length", "4"}).last();
  EXPECT_EQ(same, usual);
  const Json longer =
      run({"eval", "--model", model, "--json", "--max-length", "9", "--min-length", "9", "--pairs", "70"})
          .last();
  EXPECT_EQ(longer.at("pairs").get<int>(), 70);
  EXPECT_NE(longer.at("loss"), usual.at("loss"));
  EXPECT_NE(run({"eval", "--model", model, "--json", "--task", "reverse"}).last().at("loss"),
            usual.at("loss"));
  EXPECT_EQ(run({"eval", "--model", model, "--task", "shuffle"}).code, 2);
  EXPECT_EQ(run({"eval", "--model", model, "--min-length", "5"}).code, 2);
}

TEST_F(CopyReverse, HelpNamesEachOptionOnce) {
  for (const char* command : {"train", "eval", "decode", "logits", "attention", "info"}) {
    const Result r = run({command, "--help"});
    ASSERT_EQ(r.code, 0) << r.err;
    std::map<std::string, int> seen;
    std::istringstream lines(r.out);
    for (std::string word; lines >> word;)
      if (word.starts_with("--")) ++seen[word];
    EXPECT_EQ(seen["--debug"], 1) << command;
    EXPECT_EQ(seen["--accumulate"], std::string(command) == "train") << command;
  }
}

TEST_F(CopyReverse, InfoCountsParameters) {
  const Result r = run({"info", "--model", (dir_ / "none").string(), "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.last().at("parameters").get<int64_t>(), 1'396'756);
  EXPECT_EQ(r.last().at("components").at("generator").get<int64_t>(), 2'580);
  EXPECT_EQ(run({"info", "--tree"}).code, 0);
}

TEST_F(CopyReverse, RefusesWithTheRightCode) {
  const auto expect = [&](const std::vector<std::string>& arguments, int code, const std::string& text) {
    const Result r = run(arguments);
    EXPECT_EQ(r.code, code) << r.err;
    EXPECT_NE(r.err.find(text), std::string::npos) << r.err;
  };
  expect({"train", "--epocs", "3"}, 2, "--epochs");
  expect({"train", "--lr", "nan"}, 2, "lr");
  expect({"train", "--min-length", "5", "--max-length", "4", "--out", (dir_ / "x").string()}, 2,
         "--min-length 5");
  expect({"train", "--resume", "--force", "--out", (dir_ / "x").string()}, 2, "contradict");
  expect({"train", "--heads", "7", "--out", (dir_ / "x").string()}, 2, "not divisible");
  expect({"train", "--data", (dir_ / "missing.tsv").string()}, 3, "missing.tsv");
  expect({"train", "--device", "cuda:99"}, 7, "cuda");
  expect(small("y", {"--resume"}), 4, "no checkpoint");
  expect(small("z", {"--init", (dir_ / "missing.safetensors").string()}), 8, "missing.safetensors");
  ASSERT_EQ(run(small("m", {"--steps", "0"})).code, 0);
  expect(small("m", {"--steps", "0"}), 2, "--force");
  expect({"decode", "--model", (dir_ / "m").string(), "3 99"}, 3, "'99' is no symbol");
}

class BadInput : public CopyReverse {
 protected:
  void refuse(const std::vector<std::string>& arguments, int code,
              const std::vector<std::string>& pieces) const {
    const Result r = run(arguments);
    EXPECT_EQ(r.code, code) << r.err;
    EXPECT_EQ(r.out, "");
    for (const std::string& piece : pieces) EXPECT_NE(r.err.find(piece), std::string::npos) << r.err;
  }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }
};

TEST_F(BadInput, NumbersOutOfTheirRange) {
  refuse(small("x", {"--threads", "-1"}), 2, {"--threads", "-1", "from 0 to 1024"});
  refuse(small("x", {"--threads", "1000000"}), 2, {"--threads", "1000000"});
  refuse(small("x", {"--batch-size", "0"}), 2, {"--batch-size"});
  refuse(small("x", {"--clip", "-1"}), 2, {"--clip", "-1"});
  refuse(small("x", {"--lr", "1e999"}), 2, {"--lr", "'1e999'"});
  refuse({"train", "--vocab", "3", "--out", path("x")}, 2, {"vocab", "3"});
  refuse({"train", "--task", "add", "--vocab", "12", "--out", path("x")}, 2, {"vocab is 12", "at least 14"});
  refuse({"train", "--dropout", "1", "--out", path("x")}, 2, {"--dropout", "[0, 1)"});
}

TEST_F(BadInput, DataThatCannotBeUsed) {
  std::ofstream(dir_ / "empty.tsv").flush();
  std::ofstream(dir_ / "large.tsv") << "3 4\t4 3\n3 12\t3\n";
  std::ofstream(dir_ / "text.tsv") << "3 4\t4 3\nthree\t3\n";
  refuse(small("x", {"--data", path("empty.tsv")}), 3, {"empty.tsv", "empty"});
  refuse(small("x", {"--data", path("large.tsv")}), 3, {"large.tsv", "2", "12"});
  refuse(small("x", {"--data", path("text.tsv")}), 3, {"text.tsv:2:1", "found 't'"});
  refuse(small("x", {"--data", dir_.string()}), 3, {"directory"});
}

TEST_F(BadInput, ADirectoryThatCannotBeWritten) {
  std::ofstream(dir_ / "file") << "x";
  refuse(small("file", {"--steps", "0"}), 8, {"file"});
  refuse(small("file/below", {"--steps", "0"}), 8, {"file"});
}

TEST_F(BadInput, TwoRunsInOneDirectory) {
  const pid_t first = start(small("m", {"--steps", "100000"}));
  while (!fs::exists(dir_ / "m" / "metrics.jsonl")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const Result second = run(small("m", {"--force"}));
  EXPECT_EQ(second.code, 4);
  EXPECT_NE(second.err.find(concat("process ", first, " on ")), std::string::npos) << second.err;
  EXPECT_NE(second.err.find("is writing there"), std::string::npos) << second.err;
  kill(first, SIGKILL);
  waitpid(first, nullptr, 0);
}

TEST_F(BadInput, ACheckpointOfOtherDataOrSettings) {
  std::ofstream(dir_ / "pairs.tsv") << "3 4\t4 3\n5\t5\n";
  const std::vector<std::string> data{"--data", path("pairs.tsv"), "--steps", "2"};
  ASSERT_EQ(run(small("m", data)).code, 0);
  std::vector<std::string> resumed = data;
  resumed.push_back("--resume");
  std::vector<std::string> other = resumed;
  other.insert(other.end(), {"--seed", "7", "--optimizer", "sgd"});
  refuse(small("m", other), 4, {"other settings", "optimizer = \"adam\" (now \"sgd\"), seed = 42 (now 7)"});
  std::ofstream(dir_ / "pairs.tsv", std::ios::app) << "6\t6\n";
  refuse(small("m", resumed), 4, {"the training data have changed"});
}

TEST_F(BadInput, OnlyPiecesOfCheckpoints) {
  ASSERT_EQ(run(small("m", {"--steps", "2"})).code, 0);
  for (const auto& entry : fs::directory_iterator(dir_ / "m"))
    if (entry.path().filename().string().compare(0, 10, "checkpoint") == 0)
      std::ofstream(entry.path(), std::ios::trunc) << "half of";
  refuse(small("m", {"--steps", "2", "--resume"}), 4, {"checkpoint"});
}

TEST_F(BadInput, DecodingThatCannotBe) {
  ASSERT_EQ(run(small("m", {"--steps", "0"})).code, 0);
  const std::string model = path("m");
  refuse({"decode", "--model", model, ""}, 3, {"holds no symbol"});
  refuse({"decode", "--model", model, "--beam", "0", "3"}, 2, {"--beam"});
  refuse({"decode", "--model", model, "--beam", "99", "3"}, 2, {"beam of 99", "vocabulary of 12"});
  refuse({"decode", "--model", model, "--max-decode-length", "-1", "3"}, 2, {"--max-decode-length"});
  refuse({"decode", "--model", model, "--length-penalty", "nan", "3"}, 2, {"--length-penalty"});
  refuse({"decode", "--model", path("none"), "3"}, 4,
         {"there is no trained model in", "none: config.toml is missing"});
  std::ofstream(dir_ / "pairs.tsv") << "3\t3\n";
  refuse({"logits", "--model", model, "--data", path("pairs.tsv"), "--out", path("pairs.tsv")}, 2,
         {"the same file"});
  refuse({"attention", "--model", model, "--input", "3", "--layer", "9"}, 2, {"--layer 9", "layers 0 to 0"});
  refuse({"attention", "--model", model, "--input", "3", "--head", "2"}, 2, {"--head 2", "heads 0 to 1"});
}

}  // namespace
}  // namespace heed
