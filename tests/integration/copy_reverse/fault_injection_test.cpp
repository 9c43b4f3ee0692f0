// A tiny training and its resume in which one call to the system fails, at two thousand points: each
// allocation in turn, each thread, each call on files. Whatever fails, the exit code says so, no file is
// wrong, and going on gives the bits of a run in which nothing failed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <heed/core/io/safetensors.h>

#include "temporary_folder.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

struct Fault {
  std::string kind;  // memory, thread or file
  int64_t at = 0;
  bool and_after = false;
  bool resumes = false;  // whether the training is a resumed one

  std::string text() const { return kind + ":" + std::to_string(at) + (and_after ? "+" : ""); }
};

class FaultInjection : public ::testing::Test {
 protected:
  static std::vector<std::string> command(const std::string& out, bool resume, int threads) {
    std::vector<std::string> words{HEED_COPY_REVERSE,      "train", "--out", out, "--threads",
                                   std::to_string(threads)};
    if (resume) {
      words.push_back("--resume");
      return words;
    }
    for (const char* word :
         {"--task",     "copy",     "--vocab",       "8", "--min-length", "2", "--max-length", "3",
          "--pairs",    "16",       "--valid-pairs", "4", "--batch-size", "8", "--d-model",    "8",
          "--heads",    "1",        "--layers",      "1", "--d-ff",       "8", "--epochs",     "3",
          "--schedule", "constant", "--save-every",  "1"})
      words.emplace_back(word);
    return words;
  }

  /// Starts it without gnuplot in its PATH, with its messages in a file.
  static pid_t start(std::vector<std::string> words, const std::string& fault, const std::string& counts,
                     const std::string& messages) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    const int null = ::open("/dev/null", O_WRONLY),
              err = ::open(messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(null, 1);
    ::dup2(err, 2);
    ::setenv("PATH", "/nonexistent", 1);
    ::setenv("LD_PRELOAD", HEED_FAULT_INJECTOR, 1);
    ::setenv("HEED_FAULT", fault.c_str(), 1);
    ::setenv("HEED_FAULT_COUNTS", counts.c_str(), 1);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  static int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

  int run(const std::vector<std::string>& words, const std::string& fault = "") const {
    int status = 0;
    ::waitpid(start(words, fault, folder_.file("counts"), folder_.file("err")), &status, 0);
    return code_of(status);
  }

  /// The calls of each kind in the last run().
  std::map<std::string, int64_t> counts() const {
    const std::string bytes = folder_.get("counts");
    std::map<std::string, int64_t> result;
    const char* const kinds[] = {"memory", "thread", "file"};
    for (size_t i = 0; i < 3; ++i) std::memcpy(&result[kinds[i]], bytes.data() + 8 * i, 8);
    return result;
  }
  void clear_counts() const { folder_.put("counts", std::string(24, '\0')); }

  static std::map<std::string, std::string> files_of(const fs::path& folder) {
    std::map<std::string, std::string> files;
    if (!fs::exists(folder)) return files;
    for (const auto& entry : fs::directory_iterator(folder)) {
      std::ifstream in(entry.path(), std::ios::binary);
      files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return files;
  }

  static bool holds_weights(const std::string& name) { return name.ends_with(".safetensors"); }

  /// All tensors of a file, their checksums verified.
  static std::string tensors_of(const std::string& file) {
    const SafetensorsReader reader(file);
    std::string all;
    for (const TensorEntry& entry : reader.header().tensors) {
      std::string bytes(entry.bytes(), '\0');
      reader.read(entry, bytes.data(), bytes.size());
      all += entry.name + "=" + bytes;
    }
    return all;
  }

  /// Those of each file with weights in a folder.
  static std::map<std::string, std::string> weights_of(const fs::path& folder) {
    std::map<std::string, std::string> weights;
    if (!fs::exists(folder)) return weights;
    for (const auto& entry : fs::directory_iterator(folder))
      if (const std::string name = entry.path().filename().string(); holds_weights(name))
        weights[name] = tensors_of(entry.path().string());
    return weights;
  }

  /// Runs in which nothing fails: what each file has to hold, and a folder to resume from.
  void make_reference() {
    clear_counts();
    for (const char* steps : {"1", "2", "3", "4", "5"}) {
      std::vector<std::string> words = command(folder_.file("half"), false, 1);
      words.insert(words.end(), {"--steps", steps, "--force"});
      ASSERT_EQ(run(words), 0) << folder_.get("err");
      for (const auto& [name, tensors] : weights_of(folder_.file("half")))
        if (name != "model.safetensors") expected_[name] = tensors;
      if (steps[0] == '3') fs::copy(folder_.file("half"), folder_.file("three"), fs::copy_options::recursive);
    }
    fs::remove(folder_.file("three") + "/model.safetensors");
    clear_counts();
    ASSERT_EQ(run(command(folder_.file("whole"), false, 1)), 0) << folder_.get("err");
    calls_[false] = counts();
    for (const auto& [name, tensors] : weights_of(folder_.file("whole"))) expected_[name] = tensors;
    clear_counts();
    fs::copy(folder_.file("three"), folder_.file("resumed"), fs::copy_options::recursive);
    ASSERT_EQ(run(with_epochs(command(folder_.file("resumed"), true, 1))), 0) << folder_.get("err");
    calls_[true] = counts();
    ASSERT_EQ(weights_of(folder_.file("resumed"))["model.safetensors"] == expected_["model.safetensors"],
              true);
  }

  static std::vector<std::string> with_epochs(std::vector<std::string> words) {
    words.insert(words.end(), {"--epochs", "3", "--steps", "6"});
    return words;
  }

  /// What the faulty run left: nothing wrong, and enough to come to the same end.
  void check(const Fault& fault, int code, const std::string& out, const std::string& said) {
    SCOPED_TRACE(fault.text() + (fault.resumes ? " in a resumed run" : "") + ", exit code " +
                 std::to_string(code) + ": " + said);
    const std::set<int> allowed = fault.kind == "file" ? std::set<int>{0, 2, 3, 4, 8} : std::set<int>{0, 5};
    EXPECT_TRUE(allowed.count(code));
    std::string state;
    try {
      for (const auto& [name, tensors] : weights_of(out)) {
        EXPECT_EQ(tensors == expected_[name], true) << name << " is not what it should be";
        state += name + " ";
      }
    } catch (const Error& error) {
      ADD_FAILURE() << "a damaged file: " << error.what();
    }
    EXPECT_TRUE(code != 0 || state.find("model.safetensors") != std::string::npos) << "there is no model";
    // The same files lead to the same end: it is enough to see it once.
    if (!ends_seen_.insert(state).second) return;
    const bool resumes = state.find("checkpoint-") != std::string::npos;
    std::vector<std::string> words = command(out, resumes, 1);
    if (resumes) words = with_epochs(words);
    if (!resumes) words.push_back("--force");
    ASSERT_EQ(run(words), 0) << folder_.get("err");
    const auto files = files_of(out);
    EXPECT_EQ(tensors_of(out + "/model.safetensors") == expected_["model.safetensors"], true)
        << "other bits, from " << state;
    for (const auto& [name, bytes] : files)
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name << " is left";
    std::istringstream lines(files.at("metrics.jsonl"));
    int64_t epochs = 0;
    for (std::string line; std::getline(lines, line);) {
      const auto object = nlohmann::json::parse(line);
      if (!object.contains("epoch")) continue;
      ASSERT_EQ(object["epoch"], ++epochs) << "metrics.jsonl";
    }
    EXPECT_EQ(epochs, 3) << "metrics.jsonl";
  }

  /// `most` faults of a kind, evenly spread over its calls.
  std::vector<Fault> spread(const std::string& kind, bool resumes, int64_t most) const {
    const int64_t calls = calls_.at(resumes).at(kind), count = std::min(calls, most);
    std::vector<Fault> faults;
    for (int64_t i = 0; i < count; ++i)
      for (const bool and_after : {false, true})
        faults.push_back({kind, i * calls / count, and_after, resumes});
    return faults;
  }

  void try_all(const std::vector<Fault>& faults) {
    constexpr size_t kAtOnce = 2;
    struct Running {
      const Fault* fault;
      std::string out, err;
    };
    std::map<pid_t, Running> running;
    size_t begun = 0;
    while ((begun < faults.size() || !running.empty()) && !HasFatalFailure()) {
      while (begun < faults.size() && running.size() < kAtOnce) {
        const Fault& fault = faults[begun];
        const std::string name = folder_.file("run" + std::to_string(begun++));
        if (fault.resumes) fs::copy(folder_.file("three"), name, fs::copy_options::recursive);
        std::vector<std::string> words = command(name, fault.resumes, fault.kind == "thread" ? 2 : 1);
        if (fault.resumes) words = with_epochs(words);
        running[start(words, fault.text(), "", name + ".err")] = {&fault, name, name + ".err"};
      }
      int status = 0;
      const pid_t ended = ::waitpid(-1, &status, 0);
      const auto found = running.find(ended);
      if (found == running.end()) continue;
      const Running done = found->second;
      running.erase(found);
      check(*done.fault, code_of(status), done.out, folder_.get(fs::path(done.err).filename().string()));
      fs::remove_all(done.out);
      fs::remove(done.err);
    }
  }

  const TemporaryFolder folder_;
  std::map<std::string, std::string> expected_;           // the tensors of each file
  std::map<bool, std::map<std::string, int64_t>> calls_;  // of a run, or of a resumed one
  std::set<std::string> ends_seen_;
};

TEST_F(FaultInjection, AnyCallMayFail) {
  make_reference();
  if (HasFatalFailure()) return;
  std::vector<Fault> faults;
  for (const bool resumes : {false, true}) {
    for (const auto& [kind, most] :
         {std::pair("memory", 250), std::pair("thread", 4), std::pair("file", 250)}) {
      const std::vector<Fault> more = spread(kind, resumes, most);
      EXPECT_FALSE(more.empty()) << kind;
      faults.insert(faults.end(), more.begin(), more.end());
    }
  }
  RecordProperty("points", static_cast<int>(faults.size()));
  std::printf("%zu points\n", faults.size());
  try_all(faults);
}

}  // namespace
}  // namespace heed
