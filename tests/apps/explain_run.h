// A run of explain, and what it printed.
#pragma once

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "temporary_folder.h"

namespace heed::test {

using Json = nlohmann::json;

/// What a command prints with --json; its figures go to a folder that is then removed.
inline Json explain(const std::string& arguments) {
  const TemporaryFolder folder;
  const std::string command = "'" HEED_EXPLAIN "' " + arguments + " --json --out '" + folder.file("figures") +
                              "' >'" + folder.file("out") + "' 2>'" + folder.file("err") + "'";
  EXPECT_EQ(std::system(command.c_str()), 0) << command << "\n" << folder.get("err");
  return Json::parse(folder.get("out"));
}

}  // namespace heed::test
