// A run of `copy_reverse train` with a tutorial's preset, and what it printed.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "temporary_folder.h"

namespace heed::test {

struct TutorialRun {
  std::vector<double> losses, rates;  // of each epoch
  double test_loss = 0, sequence_accuracy = 0;

  explicit TutorialRun(const std::string& options, const std::string& preset = "tutorial") {
    const TemporaryFolder folder;
    const std::string command = "'" HEED_COPY_REVERSE "' train --json --preset " + preset + " " + options +
                                " --out '" + folder.file("m") + "' >'" + folder.file("out") + "' 2>'" +
                                folder.file("err") + "'";
    const int code = std::system(command.c_str());
    EXPECT_EQ(code, 0) << folder.get("err");
    std::istringstream lines(folder.get("out"));
    for (std::string line; std::getline(lines, line);) {
      const auto object = nlohmann::json::parse(line);
      if (object.contains("final")) {
        test_loss = object.at("loss").get<double>();
        sequence_accuracy = object.at("sequence_accuracy").get<double>();
      } else {
        losses.push_back(object.at("loss").get<double>());
        rates.push_back(object.at("lr").get<double>());
      }
    }
  }
};

}  // namespace heed::test
