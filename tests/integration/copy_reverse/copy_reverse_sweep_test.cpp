// copy_reverse sweep: its rows are those of trainings run one by one, also after it was stopped.
#include <csignal>
#include <map>
#include <thread>

#include "copy_reverse_run.h"

namespace heed {
namespace {

class Sweep : public CopyReverse {
 protected:
  // A sweep of trainings like small()'s.
  std::vector<std::string> sweep(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = small(out, more);
    words[0] = "sweep";
    return words;
  }

  // The rows by name, without what differs from run to run.
  std::map<std::string, Json> rows(const std::string& out) const {
    std::map<std::string, Json> rows;
    std::istringstream lines(read_file(dir_ / out / "sweep.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      Json row = Json::parse(line);
      for (const char* measured : {"seconds", "peak_mib", "step_ms"}) row.erase(measured);
      EXPECT_TRUE(rows.emplace(row["name"], row).second) << "twice: " << row;
    }
    return rows;
  }
};

TEST_F(Sweep, RowsAreThoseOfTrainingsRunOneByOne) {
  const Result swept =
      run(sweep("s", {"--vary", "heads=1,4 d-ff=32,64", "--seeds", "2", "--seed", "7", "--epochs", "2"}));
  ASSERT_EQ(swept.code, 0) << swept.err;
  const auto found = rows("s");
  ASSERT_EQ(found.size(), 8u);
  const Result alone =
      run(small("one", {"--heads", "4", "--d-ff", "32", "--seed", "8", "--epochs", "2", "--threads", "2"}));
  ASSERT_EQ(alone.code, 0) << alone.err;
  const Json& row = found.at("heads=4,d-ff=32,seed=8");
  for (const char* key : {"loss", "token_accuracy", "sequence_accuracy", "pairs"})
    EXPECT_EQ(row[key], alone.last()[key]) << key;
  const Json info = run({"info", "--model", (dir_ / "one").string(), "--json"}).last();
  EXPECT_EQ(row["parameters"], info["parameters"]);

  const Json shown = swept.last();
  ASSERT_EQ(shown["settings"].size(), 4u);
  EXPECT_EQ(shown["settings"][0]["heads"], "1");
  EXPECT_EQ(shown["settings"][0]["Runs"], "2");
  for (const char* file : {"runs.csv", "settings.csv", "report.html"})
    EXPECT_TRUE(fs::exists(dir_ / "s" / file)) << file;
  EXPECT_FALSE(fs::exists(dir_ / "s" / "heads=4,d-ff=32,seed=8" / "attention.png"))
      << "trainings draw nothing";
}

// The test pairs of a training are told under the same name.
TEST_F(Sweep, VariesPairs) {
  const Result swept = run(sweep("s", {"--vary", "pairs=64,320", "--seeds", "1", "--epochs", "1"}));
  ASSERT_EQ(swept.code, 0) << swept.err;
  const auto found = rows("s");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found.at("pairs=64,seed=42").at("pairs"), "64");
  EXPECT_EQ(swept.last()["settings"][1]["pairs"], "320");
}

TEST_F(Sweep, GoesOnWhereItWasStopped) {
  const std::vector<std::string> options{"--vary",   "heads=1,2", "--seeds", "2",
                                         "--epochs", "6",         "--jobs",  "1"};
  ASSERT_EQ(run(sweep("whole", options)).code, 0);
  for (const int signal : {SIGTERM, SIGKILL}) {
    const std::string out = signal == SIGTERM ? "stopped" : "killed";
    const pid_t child = start(sweep(out, options));
    while (!fs::exists(dir_ / out / "sweep.jsonl") || read_file(dir_ / out / "sweep.jsonl").empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(child, signal);
    EXPECT_EQ(finish(child).code, 128 + signal);
    EXPECT_EQ(run(sweep(out, options)).code, 2) << "neither --resume nor --force";
    std::vector<std::string> resumed = sweep(out, options);
    resumed.push_back("--resume");
    // The training of a sweep that was killed takes a moment to stop: until then its folder is locked.
    Result result;
    for (int tries = 0; tries < 100 && result.code != 0; ++tries) {
      result = run(resumed);
      std::this_thread::sleep_for(std::chrono::milliseconds(result.code == 0 ? 0 : 100));
    }
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(rows(out), rows("whole"));
  }
}

TEST_F(Sweep, TakesMoreSeedsAndValuesLater) {
  ASSERT_EQ(run(sweep("s", {"--vary", "heads=1", "--seeds", "1", "--epochs", "1"})).code, 0);
  const auto before = rows("s");
  const Result more = run(sweep("s", {"--vary", "heads=1,2", "--seeds", "2", "--epochs", "1", "--resume"}));
  ASSERT_EQ(more.code, 0) << more.err;
  const auto after = rows("s");
  EXPECT_EQ(after.size(), 4u);
  EXPECT_EQ(after.at("heads=1,seed=42"), before.at("heads=1,seed=42"));
  const Result other = run(sweep("s", {"--vary", "heads=1,2", "--seeds", "2", "--epochs", "2", "--resume"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("other options"), std::string::npos) << other.err;
}

TEST_F(Sweep, TrainingsThatDivergeAreRows) {
  const Result swept = run(sweep(
      "s", {"--vary", "lr=1e-3,1e6", "--optimizer", "sgd", "--clip", "0", "--epochs", "2", "--seeds", "1"}));
  ASSERT_EQ(swept.code, 0) << swept.err;
  const auto found = rows("s");
  EXPECT_FALSE(found.at("lr=1e-3,seed=42").contains("failed"));
  EXPECT_NE(found.at("lr=1e6,seed=42").value("failed", "").find("error"), std::string::npos);
  EXPECT_FALSE(found.at("lr=1e6,seed=42").contains("loss"));
}

TEST_F(Sweep, AsksTheOptionsBeforeItStarts) {
  for (const char* vary :
       {"heads=3", "hed=1", "heads", "seed=1,2", "out=a,b", "activation=relu,relo", "lr=0"}) {
    const Result refused = run(sweep("s", {"--vary", vary}));
    EXPECT_EQ(refused.code, 2) << vary << refused.err;
    EXPECT_FALSE(fs::exists(dir_ / "s")) << vary;
  }
}

TEST_F(Sweep, EnvironmentCountsAsGiven) {
  const Result swept = run(sweep("s", {"--vary", "heads=1", "--seeds", "1"}), [] {
    setenv("HEED_EPOCHS", "1", 1);
    setenv("HEED_HEADS", "2", 1);
  });
  ASSERT_EQ(swept.code, 0) << swept.err;
  const std::string settings = read_file(dir_ / "s" / "heads=1,seed=42" / "config.toml");
  EXPECT_NE(settings.find("epochs = 1"), std::string::npos) << settings;
  EXPECT_NE(settings.find("heads = 1"), std::string::npos) << settings;
}

}  // namespace
}  // namespace heed
