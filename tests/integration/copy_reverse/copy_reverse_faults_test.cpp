// What the program does when others are in its folder, when it is stopped, when disks are full and files
// damaged.
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/core/serialize.h>

#include "../../support/address_sanitizer.h"
#include "copy_reverse_run.h"

namespace heed {
namespace {

class Faults : public CopyReverse {
 protected:
  // Most tests need no figures, which take the longest.
  void SetUp() override { ::setenv("PATH", "/nowhere", 1); }
  void TearDown() override { ::setenv("PATH", path_.c_str(), 1); }

  std::string path(const std::string& name) const { return (dir_ / name).string(); }

  // Waits until a file is there and not empty.
  static void wait_for(const fs::path& file) {
    std::error_code ignored;
    for (int i = 0; i < 6000 && !(fs::exists(file, ignored) && fs::file_size(file, ignored) > 0); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(fs::exists(file)) << file;
  }

  static std::set<std::string> names_in(const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
    return names;
  }

  static std::vector<Json> metrics_of(const fs::path& folder) {
    std::vector<Json> lines;
    std::ifstream in(folder / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  const std::string path_ = std::getenv("PATH");
};

void limit_file_sizes(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(125);
}

// Not under the address sanitizer, whose shadow is larger than any limit.
void limit_memory([[maybe_unused]] rlim_t bytes) {
#ifndef HEED_ADDRESS_SANITIZER
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) _exit(125);
#endif
}

// ---- folders that others use

TEST_F(Faults, ARefusedRunTouchesNothing) {
  const pid_t first = start(small("m", {"--steps", "1000000", "--save-every", "7"}));
  wait_for(dir_ / "m" / "checkpoint-7.safetensors");
  wait_for(dir_ / "m" / "report.html");
  ::kill(first, SIGSTOP);
  const std::set<std::string> before = names_in(dir_ / "m");
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--force"}, {}, {"--resume"}}) {
    const Result second = run(small("m", more));
    EXPECT_EQ(second.code, 4) << second.err;
    EXPECT_NE(second.err.find("is writing there"), std::string::npos) << second.err;
    EXPECT_EQ(names_in(dir_ / "m"), before);
  }
  ::kill(first, SIGKILL);
  ::waitpid(first, nullptr, 0);
}

TEST_F(Faults, FilesOfOthersStay) {
  fs::create_directory(dir_ / "m");
  for (const char* name : {"report.html", "metrics.jsonl", "steps.jsonl", "config.toml"}) {
    std::ofstream(dir_ / "m" / name) << "mine";
    const Result r = run(small("m", {"--steps", "1"}));
    EXPECT_EQ(r.code, 2) << r.err;
    EXPECT_NE(r.err.find(name), std::string::npos) << r.err;
    EXPECT_EQ(names_in(dir_ / "m"), std::set<std::string>{name});
    EXPECT_EQ(read_file(dir_ / "m" / name), "mine");
    fs::remove(dir_ / "m" / name);
  }
  const fs::path other = dir_ / "m" / "events.out.tfevents.1700000000.host.1.0";
  std::ofstream(other) << "of another program";
  ASSERT_EQ(run(small("m", {"--steps", "1"})).code, 0);
  ASSERT_EQ(run(small("m", {"--steps", "1", "--force"})).code, 0);
  EXPECT_EQ(read_file(other), "of another program");
}

TEST_F(Faults, LinksAreReplacedNotFollowed) {
  ::setenv("PATH", path_.c_str(), 1);
  std::ofstream(dir_ / "precious") << "precious";
  fs::create_directory(dir_ / "m");
  const std::vector<std::string> names{
      ".heed.lock",    "model.safetensors", "config.toml",   "metrics.jsonl",
      "report.html",   "loss.svg",          "loss.png",      "checkpoint-2.safetensors",
      "attention.png", "attention.svg",     "positions.svg", "attention.safetensors",
      "steps.jsonl"};
  const auto plant = [&] {
    for (const std::string& name : names) {
      fs::remove(dir_ / "m" / name);
      fs::create_symlink(dir_ / "precious", dir_ / "m" / name);
    }
  };
  plant();
  const Result trained = run(small("m", {"--steps", "2", "--force"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_TRUE(read_file(dir_ / "precious") == "precious");
  fs::remove(dir_ / "m" / "attention.safetensors");
  fs::create_symlink(dir_ / "precious", dir_ / "m" / "attention.safetensors");
  ASSERT_EQ(run({"attention", "--model", path("m"), "--input", "3 4"}).code, 0);
  EXPECT_TRUE(read_file(dir_ / "precious") == "precious");
  fs::remove(dir_ / "m" / "metrics.jsonl");
  fs::create_symlink(dir_ / "precious", dir_ / "m" / "metrics.jsonl");
  ASSERT_EQ(run(small("m", {"--steps", "3", "--resume"})).code, 0);
  EXPECT_TRUE(read_file(dir_ / "precious") == "precious");
  for (const std::string& name : names)
    EXPECT_FALSE(fs::is_symlink(dir_ / "m" / name) && name.find('.') != 0) << name;
}

// ---- checkpoints

TEST_F(Faults, DamagedCheckpointsOfLaterStepsDoNotPushOutSoundOnes) {
  ASSERT_EQ(run(small("m", {"--steps", "20", "--save-every", "10"})).code, 0);
  for (const char* name : {"checkpoint-1000.safetensors", "checkpoint-2000.safetensors"})
    std::ofstream(dir_ / "m" / name) << "nonsense";
  const Result r = run(small("m", {"--steps", "50", "--save-every", "10", "--resume"}));
  ASSERT_EQ(r.code, 0) << r.err;
  for (const auto& [step, there] : {std::pair(30, false), std::pair(40, true), std::pair(50, true)})
    EXPECT_EQ(fs::exists(dir_ / "m" / concat("checkpoint-", step, ".safetensors")), there) << step;
}

TEST_F(Faults, ADamagedCheckpointBetweenIsNoneOfTheTwoThatAreKept) {
  ASSERT_EQ(run(small("m", {"--steps", "20", "--save-every", "10"})).code, 0);
  std::ofstream(dir_ / "m" / "checkpoint-25.safetensors") << "nonsense";
  ASSERT_EQ(run(small("m", {"--steps", "30", "--save-every", "10", "--resume"})).code, 0);
  EXPECT_TRUE(fs::exists(dir_ / "m" / "checkpoint-20.safetensors"));
  EXPECT_FALSE(fs::exists(dir_ / "m" / "checkpoint-25.safetensors"));
  EXPECT_TRUE(fs::exists(dir_ / "m" / "checkpoint-30.safetensors"));
}

// 10 steps are an epoch.
TEST_F(Faults, ResumingAtTheLimitOfStepsRepeatsTheRate) {
  ASSERT_EQ(run(small("m", {"--steps", "13"})).code, 0);
  const Json before = metrics_of(dir_ / "m").at(1);
  const Result r = run(small("m", {"--steps", "13", "--resume"}));
  ASSERT_EQ(r.code, 0) << r.err;
  const Json after = metrics_of(dir_ / "m").at(1);
  for (const char* key : {"epoch", "step", "loss", "lr", "grad_norm"})
    EXPECT_EQ(after.at(key), before.at(key)) << key;
  EXPECT_LT(after.at("lr").get<double>(), 2e-3);
  for (const char* key : {"samples_per_second", "tokens_per_second"})
    EXPECT_TRUE(after.at(key).is_null()) << key;
}

// ---- weights

TEST_F(Faults, WeightsThatAreNoNumbersAreRefusedByName) {
  ASSERT_EQ(run(small("m", {"--steps", "0"})).code, 0);
  const std::string file = path("m/model.safetensors"), name = "decoder.layers.0.linear1.weight";
  const NamedTensors sound = load_tensors(file);
  std::ofstream(dir_ / "pairs.tsv") << "3 4\t3 4\n";
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    NamedTensors tensors;
    for (const auto& entry : sound) tensors.emplace_back(entry.first, entry.second.clone());
    for (auto& entry : tensors)
      if (entry.first == name) entry.second.data<float>()[7] = bad;
    save_tensors(file, tensors);
    const std::vector<std::vector<std::string>> commands{
        {"eval", "--model", path("m")},
        {"decode", "--model", path("m"), "3 4"},
        {"logits", "--model", path("m"), "--data", path("pairs.tsv"), "--out", path("logits")},
        {"attention", "--model", path("m"), "--input", "3 4"},
        small("other", {"--steps", "0", "--init", file})};
    for (const auto& command : commands) {
      const Result r = run(command);
      EXPECT_EQ(r.code, 6) << command[0] << ": " << r.err;
      EXPECT_NE(r.err.find(name), std::string::npos) << r.err;
      EXPECT_EQ(r.out, "") << command[0];
    }
    EXPECT_FALSE(fs::exists(dir_ / "logits"));
  }
  // Weights that are numbers, of which the model makes infinities.
  NamedTensors large;
  for (const auto& entry : sound) large.emplace_back(entry.first, entry.second * 1e30);
  save_tensors(file, large);
  for (const auto& command : {std::vector<std::string>{"eval", "--model", path("m")},
                              {"decode", "--model", path("m"), "3 4"},
                              {"attention", "--model", path("m"), "--input", "3 4", "--target", "5"}})
    EXPECT_EQ(run(command).code, 6) << command[0];
}

TEST_F(Faults, SequencesLongerThanLearnedPositionsAreBadData) {
  const std::vector<std::string> learned{"--position", "learned", "--max-positions", "8", "--steps", "3"};
  ASSERT_EQ(run(small("m", learned)).code, 0);
  const std::string nine = "3 4 5 6 7 8 9 3 4";
  std::ofstream(dir_ / "long.tsv") << nine << "\t3\n";
  std::ofstream(dir_ / "target.tsv") << "3\t" << nine << "\n";
  std::vector<std::string> training =
      small("x", {"--position", "learned", "--max-positions", "3", "--steps", "3"});
  for (const auto& command :
       {std::vector<std::string>{"eval", "--model", path("m"), "--data", path("long.tsv")},
        {"eval", "--model", path("m"), "--data", path("target.tsv")},
        {"decode", "--model", path("m"), "--data", path("long.tsv")},
        {"decode", "--model", path("m"), nine},
        {"logits", "--model", path("m"), "--data", path("long.tsv"), "--out", path("l")},
        {"attention", "--model", path("m"), "--input", nine},
        {"attention", "--model", path("m"), "--input", "3", "--target", nine},
        training}) {
    const Result r = run(command);
    EXPECT_EQ(r.code, 3) << command[0] << ": " << r.err;
    EXPECT_NE(r.err.find("learned positions"), std::string::npos) << r.err;
  }
  // As long as the table: an output that does not end is cut there.
  const std::string six = "3 4 5 6 7 8";
  EXPECT_EQ(run({"decode", "--model", path("m"), six, "--max-decode-length", "100"}).code, 0);
  EXPECT_EQ(run({"attention", "--model", path("m"), "--input", six}).code, 0);
}

TEST_F(Faults, SizesThatSettingsClaimAreComparedWithTheWeightsFirst) {
  ASSERT_EQ(run(small("m", {"--steps", "0"})).code, 0);
  const std::string settings = read_file(dir_ / "m" / "config.toml");
  const auto claim = [&](const std::string& key, const std::string& value) {
    const size_t at = settings.find("\n" + key + " = ") + 1;
    const std::string rest = settings.substr(settings.find('\n', at));
    std::ofstream(dir_ / "m" / "config.toml") << settings.substr(0, at) << key << " = " << value << rest;
  };
#ifdef HEED_ADDRESS_SANITIZER        // which holds freed memory back; what settings claim is 3 GiB and more
  constexpr long kLittle = 600'000;  // kilobytes
#else
  constexpr long kLittle = 200'000;
#endif
  for (const auto& [key, value] : {std::pair("d-model", "32768"), std::pair("d-ff", "1048576"),
                                   std::pair("layers", "1024"), std::pair("vocab", "16777216")}) {
    claim(key, value);
    for (const char* command : {"eval", "decode"}) {
      const Result r = run({command, "--model", path("m")});
      EXPECT_EQ(r.code, 4) << key << ": " << r.err;
      EXPECT_NE(r.err.find("model.safetensors"), std::string::npos) << r.err;
      EXPECT_LT(r.peak_kilobytes, kLittle) << key;
    }
    for (const char* how : {"--json", "--tree"}) {
      const Result r = run({"info", how, "--model", path("m")});
      EXPECT_EQ(r.code, 0) << key << ": " << r.err;
      EXPECT_LT(r.peak_kilobytes, kLittle) << key;
    }
  }
  claim("d-model", "1048576");
  EXPECT_GT(run({"info", "--json", "--model", path("m")}).last().at("parameters").get<int64_t>(),
            int64_t{1} << 42);
  claim("valid-pairs", "1073741824");
  EXPECT_EQ(run({"eval", "--model", path("m")}).code, 2);
}

// ---- signals and full disks

TEST_F(Faults, SignalsStopWhatHasNothingToSave) {
  ASSERT_EQ(run(small("m", {"--steps", "0", "--d-model", "128", "--layers", "4"})).code, 0);
  {
    std::ofstream pairs(dir_ / "pairs.tsv");
    for (int i = 0; i < 300'000; ++i) pairs << "3 4 5 6 7 8 9\t" << 3 + i % 9 << " 4 5 6 7 8 9 10\n";
  }
  const std::string data = path("pairs.tsv");
  const auto stop = [&](int signal, int code, std::vector<std::string> command) {
    command.insert(command.end(), {"--model", path("m"), "--data", data});
    const pid_t child = start(command);
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    const auto sent = std::chrono::steady_clock::now();
    ::kill(child, signal);
    const Result r = finish(child);
    EXPECT_EQ(r.code, code) << command[0] << ": " << r.err;
    EXPECT_EQ(r.err.find("error"), std::string::npos) << r.err;
    EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::seconds(3)) << command[0];
  };
  for (const auto& [signal, code] : {std::pair(SIGTERM, 143), std::pair(SIGINT, 130), std::pair(SIGHUP, 129)})
    stop(signal, code, {"eval"});
  stop(SIGTERM, 143, {"decode"});
  stop(SIGTERM, 143, {"decode", "--beam", "4"});
  stop(SIGTERM, 143, {"logits", "--out", path("l")});
  EXPECT_FALSE(fs::exists(dir_ / "l"));
}

TEST_F(Faults, AClosedTerminalEndsTrainingWithACheckpoint) {
  const pid_t child = start(small("m", {"--steps", "1000000", "--save-every", "1000000"}));
  wait_for(dir_ / "m" / "metrics.jsonl");
  ::kill(child, SIGHUP);
  ::kill(child, SIGHUP);  // terminals send it twice
  EXPECT_EQ(finish(child).code, 129);
  ASSERT_EQ(metrics_of(dir_ / "m").empty(), false);
  EXPECT_EQ(run(small("m", {"--steps", "1", "--resume", "--save-every", "1000000"})).code, 0);
}

TEST_F(Faults, WhatNohupIgnoresDoesNotStop) {
  const pid_t child =
      start(small("m", {"--steps", "1000000", "--save-every", "1000000"}), [] { ::signal(SIGHUP, SIG_IGN); });
  wait_for(dir_ / "m" / "metrics.jsonl");
  ::kill(child, SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);
  ::kill(child, SIGTERM);
  EXPECT_EQ(finish(child).code, 143);
}

// A limit on the sizes of files stands for a full disk.
TEST_F(Faults, AStopThatCannotSaveSaysSo) {
  // The curve of steps fits, a checkpoint doesn't.
  const pid_t child =
      start(small("m", {"--pairs", "100000000", "--no-shuffle", "--steps", "1000000", "--d-model", "64"}),
            [] { limit_file_sizes(200'000); });
  wait_for(dir_ / "m" / ".heed.lock");
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  ::kill(child, SIGTERM);
  const Result r = finish(child);
  EXPECT_EQ(r.code, 8) << r.err;
  EXPECT_NE(r.err.find("File too large"), std::string::npos) << r.err;
  for (const std::string& name : names_in(dir_ / "m"))
    EXPECT_EQ(name.find("checkpoint"), std::string::npos) << name;
}

TEST_F(Faults, FiguresAreWholeOrNotThere) {
  ::setenv("PATH", path_.c_str(), 1);
  ASSERT_EQ(run(small("m", {"--steps", "1"})).code, 0);
  const std::vector<std::string> command{"attention", "--model", path("m"), "--input",
                                         "3 4",       "--out",   path("f")};
  for (const rlim_t bytes : {3'000, 20'000}) {
    fs::remove_all(dir_ / "f");
    const Result r = run(command, [bytes] { limit_file_sizes(bytes); });
    EXPECT_EQ(r.code, 8) << bytes << ": " << r.err;
    if (!fs::exists(dir_ / "f")) continue;
    for (const auto& entry : fs::directory_iterator(dir_ / "f")) {
      const std::string text = read_file(entry.path());
      const std::string kind = entry.path().extension(), end = kind == ".png" ? "IEND" : "</svg>";
      EXPECT_TRUE((kind != ".png" && kind != ".svg") || text.find(end) != std::string::npos) << entry.path();
      EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
    }
  }
}

// 502 rows: three in a cell.
TEST_F(Faults, FiguresOfLongSequencesAreReducedAndSaySo) {
  ::setenv("PATH", path_.c_str(), 1);
  std::ofstream pairs(dir_ / "pairs.tsv");
  for (int i = 0; i < 500; ++i) pairs << (i ? " " : "") << 3 + i % 9;
  pairs << "\t3 4\n" << std::flush;
  const Result r = run(small("m", {"--data", path("pairs.tsv"), "--steps", "1"}));
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string drawing = read_file(dir_ / "m" / "attention-encoder-layers.svg");
  if (drawing.empty()) GTEST_SKIP() << "gnuplot is not installed";
  EXPECT_NE(drawing.find(">Query: source (3 in a cell: the largest)<"), std::string::npos);
  // The maps themselves stay whole.
  ASSERT_EQ(run({"attention", "--model", path("m"), "--input", "3 4", "--target", "5"}).code, 0);
}

// Whole, the six maps of this pair would take 600 MB.
TEST_F(Faults, MapsOfLongSequencesAreReducedAsTheyAreMade) {
  ::setenv("PATH", "/nonexistent", 1);
  ASSERT_EQ(run(small("m", {"--steps", "1"})).code, 0);
  std::string symbols = "3";
  for (int i = 1; i < 5000; ++i) symbols += concat(" ", 3 + i % 5);
  const Result r = run({"attention", "--model", path("m"), "--json", "--input", symbols, "--target", symbols},
                       [] { limit_memory(500'000'000); });
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("\"source_block\":27"), std::string::npos);  // 5,002 by 192
  for (const auto& [name, maps] : load_tensors(path("m") + "/attention.safetensors")) {
    SCOPED_TRACE(name);
    const int64_t cells = 186;
    EXPECT_EQ(maps.shape(), (Shape{2, cells, cells}));
    // The largest of 27 by 27 weights, of rows that add up to 1.
    EXPECT_GE(min(maps).item<float>(), 0);
    EXPECT_LE(max(maps).item<float>(), 1);
    EXPECT_GE(min(sum(maps, {.axes = {-1}})).item<float>(), 1.0f / 27);
  }
}

// ---- what reaches the terminal

TEST_F(Faults, NamesOfFilesCannotSteerTheTerminal) {
  const std::string evil = "\x1b[31mred";
  std::ofstream(dir_ / (evil + ".tsv")) << "3 4\t4 3\n5\t5\n";
  std::vector<std::string> words = small(evil, {"--data", (dir_ / (evil + ".tsv")).string(), "--steps", "2"});
  words.erase(std::find(words.begin(), words.end(), "--json"));
  const Result trained = run(words);
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ((trained.out + trained.err).find('\x1b'), std::string::npos) << trained.out;
  EXPECT_NE(trained.out.find("\\x1b[31mred.tsv"), std::string::npos) << trained.out;
  EXPECT_NE(trained.out.find("\\x1b[31mred/report.html"), std::string::npos) << trained.out;
  for (const auto& command :
       {std::vector<std::string>{"attention", "--input", "3"},
        {"logits", "--data", (dir_ / (evil + ".tsv")).string(), "--out", path(evil + ".l")}}) {
    std::vector<std::string> more = command;
    more.insert(more.end(), {"--model", path(evil)});
    const Result r = run(more);
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_EQ((r.out + r.err).find('\x1b'), std::string::npos) << r.out;
  }
}

TEST_F(Faults, PathsThatAreTooLongAreErrorsOfTheirOwn) {
  const std::string longest(4000, 'x');
  const Result train = run(small(longest));
  EXPECT_EQ(train.code, 8) << train.err;
  EXPECT_NE(train.err.find("cannot make the folder"), std::string::npos) << train.err;
  EXPECT_EQ(train.err.find("filesystem error"), std::string::npos) << train.err;
  for (const char* command : {"eval", "decode", "info"}) {
    const Result r = run({command, "--model", path(longest)});
    EXPECT_EQ(r.err.find("filesystem error"), std::string::npos) << r.err;
  }
}

// ---- several batches a step

TEST_F(Faults, AccumulatedBatchesAreOneBatchOfTheirSize) {
  const std::vector<std::string> one{"--steps", "24", "--no-shuffle", "--dropout", "0", "--batch-size", "30"};
  std::vector<std::string> several = one;  // 320 pairs: 10 steps of 30 and one of 20
  several[6] = "5";
  several.insert(several.end(), {"--accumulate", "6"});
  ASSERT_EQ(run(small("one", one)).code, 0);
  const Result r = run(small("several", several));
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<Json> a = metrics_of(dir_ / "one"), b = metrics_of(dir_ / "several");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i + 1 < a.size(); ++i) {
    EXPECT_EQ(a[i].at("step"), b[i].at("step"));
    EXPECT_EQ(a[i].at("lr"), b[i].at("lr"));
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_NEAR(a[i].at(key).get<double>(), b[i].at(key).get<double>(), 1e-4) << key;
  }

  // Stopped within an epoch and resumed: the same bits.
  std::vector<std::string> resumed = several;
  resumed.insert(resumed.end(), {"--save-every", "7"});
  ASSERT_EQ(run(small("resumed", resumed)).code, 0);
  fs::remove(dir_ / "resumed" / "checkpoint-24.safetensors");
  resumed.push_back("--resume");
  ASSERT_EQ(run(small("resumed", resumed)).code, 0);
  EXPECT_EQ(read_file(dir_ / "resumed" / "model.safetensors"),
            read_file(dir_ / "several" / "model.safetensors"));
}

}  // namespace
}  // namespace heed
