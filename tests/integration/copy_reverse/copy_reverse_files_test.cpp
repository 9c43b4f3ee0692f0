// Files that the program is given or finds: damaged, left over, or no files at all.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "temporary_folder.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Result {
  int code = -1;
  std::string err;
};

class CopyReverseFiles : public ::testing::Test {
 protected:
  // Without gnuplot; what still waits after a minute is killed.
  Result run(std::vector<std::string> words) const {
    words.insert(words.begin(), HEED_COPY_REVERSE);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string err = folder_.file("err");
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("PATH", "/nonexistent", 1);
      if (!std::freopen("/dev/null", "w", stdout) || !std::freopen(err.c_str(), "w", stderr)) ::_exit(126);
      ::alarm(60);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), folder_.get("err")};
  }

  std::string out(const std::string& name = "run") const { return folder_.file(name); }

  Result train(const std::vector<std::string>& more, const std::string& name = "run") const {
    std::vector<std::string> words{"train", "--out",         out(name), "--task",       "copy", "--vocab",
                                   "8",     "--min-length",  "2",       "--max-length", "3",    "--pairs",
                                   "16",    "--valid-pairs", "4",       "--batch-size", "8",    "--d-model",
                                   "8",     "--heads",       "1",       "--layers",     "1",    "--d-ff",
                                   "8"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  Result resume(const std::string& epochs) const {
    return run({"train", "--out", out(), "--resume", "--epochs", epochs});
  }

  std::vector<int64_t> epochs() const {
    std::vector<int64_t> result;
    std::istringstream lines(folder_.get("run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json object = Json::parse(line); object.contains("epoch")) result.push_back(object["epoch"]);
    return result;
  }

  const test::TemporaryFolder folder_;
};

TEST_F(CopyReverseFiles, MetricsAreRepairedWhereARunGoesOn) {
  ASSERT_EQ(train({"--epochs", "3"}, "whole").code, 0);
  const std::string model = folder_.get("whole/model.safetensors");
  const std::vector<std::pair<const char*, std::function<std::string(const std::string&)>>> damages{
      {"a blank line", [](const std::string& text) { return "\n" + text; }},
      {"NULs alone", [](const std::string&) { return std::string(200, '\0') + "\n"; }},
      {"NULs at the end", [](const std::string& text) { return text + std::string(200, '\0'); }},
      {"brackets", [](const std::string& text) { return std::string(58'000, '[') + "\n" + text; }},
      {"nothing", [](const std::string&) { return ""; }},
      {"a line cut short", [](const std::string& text) { return text.substr(0, text.find('\n') - 3); }},
      {"a foreign object",
       [](const std::string& text) { return "{\"epoch\":\"1\"}\n[1]\n{\"loss\":1}\n" + text; }}};
  for (const auto& [what, damage] : damages) {
    SCOPED_TRACE(what);
    ASSERT_EQ(train({"--epochs", "2", "--force"}).code, 0);
    const std::string text = damage(folder_.get("run/metrics.jsonl"));
    folder_.put("run/metrics.jsonl", text);
    const bool lost = text.find("\"epoch\":2") == std::string::npos;
    const Result resumed = resume("3");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(epochs(), lost ? std::vector<int64_t>{3} : (std::vector<int64_t>{1, 2, 3}));
    EXPECT_TRUE(folder_.get("run/model.safetensors") == model) << "other weights";
  }
}

TEST_F(CopyReverseFiles, OrphansOfKilledWritersGo) {
  const std::string orphan = "run/checkpoint-2.safetensors.tmp-12345-0", other = "run/notes.tmp";
  const auto plant = [&] {
    folder_.put(orphan, "half of a checkpoint");
    folder_.put(other, "not ours");
  };
  ASSERT_EQ(train({"--epochs", "1"}).code, 0);
  plant();
  ASSERT_EQ(resume("2").code, 0);
  EXPECT_FALSE(fs::exists(folder_.file(orphan)));
  plant();
  ASSERT_EQ(train({"--epochs", "1", "--force"}).code, 0);
  EXPECT_FALSE(fs::exists(folder_.file(orphan)));
  EXPECT_TRUE(fs::exists(folder_.file(other)));
}

TEST_F(CopyReverseFiles, PipesAndDevicesAreRefused) {
  ASSERT_EQ(train({"--epochs", "1"}).code, 0);
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto refused = [](const Result& r, int code) {
    EXPECT_EQ(r.code, code) << r.err;
    EXPECT_NE(r.err.find("not a regular file"), std::string::npos) << r.err;
  };
  for (const std::string& file : {pipe, std::string("/dev/zero")}) {
    SCOPED_TRACE(file);
    refused(train({"--data", file}, "other"), 3);
    refused(train({"--config", file}, "other"), 2);
    refused(train({"--init", file}, "third"), 8);
    refused(run({"eval", "--model", out(), "--data", file}), 3);
  }
  // In the place of the run's own files, each put back afterwards.
  const auto replaced = [&](const std::string& name, const std::function<void()>& check) {
    const std::string path = out() + "/" + name;
    fs::rename(path, folder_.file("kept"));
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    SCOPED_TRACE(name);
    check();
    fs::remove(path);
    fs::rename(folder_.file("kept"), path);
  };
  std::string events;
  for (const auto& entry : fs::directory_iterator(out()))
    if (const std::string name = entry.path().filename().string(); name.starts_with("events.")) events = name;
  replaced("config.toml", [&] { refused(run({"eval", "--model", out()}), 2); });
  replaced("model.safetensors", [&] { refused(run({"eval", "--model", out()}), 8); });
  replaced("metrics.jsonl", [&] { refused(resume("2"), 8); });
  replaced(events, [&] { refused(resume("2"), 8); });
  EXPECT_EQ(resume("2").code, 0);
}

TEST_F(CopyReverseFiles, APathThatIsTooLongIsToldInShort) {
  const Result r = run({"train", "--out", folder_.file(std::string(4000, 'x')), "--epochs", "1"});
  EXPECT_EQ(r.code, 8) << r.err;
  EXPECT_NE(r.err.find("File name too long"), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("filesystem error"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace heed
