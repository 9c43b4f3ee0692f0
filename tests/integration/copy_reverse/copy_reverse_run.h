// Runs of copy_reverse as its users run it, and what they printed.
#pragma once

#include "../program_run.h"

namespace heed {

class CopyReverse : public ProgramTest {
 protected:
  CopyReverse() : ProgramTest(HEED_COPY_REVERSE) {}

  // Trains a model of one layer to copy. An option given again in `more` takes the place of the one here.
  std::vector<std::string> small(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"train", "--out", (dir_ / out).string(), "--json"};
    const auto put = [&](const char* option, const char* value) {
      if (std::find(more.begin(), more.end(), option) == more.end())
        words.insert(words.end(), {option, value});
    };
    put("--task", "copy");
    put("--vocab", "12");
    put("--min-length", "2");
    put("--max-length", "4");
    put("--pairs", "320");
    put("--valid-pairs", "50");
    put("--d-model", "32");
    put("--heads", "2");
    put("--layers", "1");
    put("--d-ff", "64");
    put("--dropout", "0.1");
    put("--warmup", "10");
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

}  // namespace heed
