// Runs of a program as its users run it, and what they printed.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "temporary_folder.h"

namespace heed {

namespace fs = std::filesystem;
using Json = nlohmann::json;

inline std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Result {
  int code = -1;
  std::string out, err;
  long peak_kilobytes = 0;
  Json last() const {  // the last line of standard output
    std::string line, kept;
    for (std::istringstream in(out); std::getline(in, line);)
      if (!line.empty()) kept = line;
    return Json::parse(kept);
  }
};

class ProgramTest : public ::testing::Test {
 protected:
  explicit ProgramTest(std::string program) : program_(std::move(program)) {}

  // Starts the program with its output in files; in_child runs before it.
  pid_t start(
      const std::vector<std::string>& arguments, const std::function<void()>& in_child = [] {}) const {
    std::vector<std::string> words{program_};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string out = (dir_ / "out").string(), err = (dir_ / "err").string();
    const pid_t child = fork();
    if (child == 0) {
      if (!std::freopen(out.c_str(), "w", stdout) || !std::freopen(err.c_str(), "w", stderr)) _exit(126);
      in_child();
      execv(program_.c_str(), argv.data());
      _exit(127);
    }
    return child;
  }

  Result finish(pid_t child) const {
    int status = 0;
    rusage usage{};
    wait4(child, &status, 0, &usage);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(dir_ / "out"),
            read_file(dir_ / "err"), usage.ru_maxrss};
  }

  Result run(
      const std::vector<std::string>& arguments, const std::function<void()>& in_child = [] {}) const {
    return finish(start(arguments, in_child));
  }

  const std::string program_;
  const test::TemporaryFolder folder_;
  const fs::path dir_ = folder_.path();
};

}  // namespace heed
