// A run of explain, and what it printed.
#pragma once

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "temporary_folder.h"

namespace heed::test {

using Json = nlohmann::json;

/// What a command prints with --json.
inline Json explain(const std::string& arguments) {
  const TemporaryFolder folder;
  const std::string command = "'" HEED_EXPLAIN "' " + arguments + " --json --no-figures >'" +
                              folder.file("out") + "' 2>'" + folder.file("err") + "'";
  EXPECT_EQ(std::system(command.c_str()), 0) << command << "\n" << folder.get("err");
  const Json result = Json::parse(folder.get("out"));
  EXPECT_EQ(result.at("files"), Json::array());
  return result;
}

}  // namespace heed::test
