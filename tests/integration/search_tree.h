// The tree of a search, as the programs' `beam --json` gives it.
#pragma once

#include <map>
#include <string>

#include "program_run.h"

namespace heed {

/// The outputs that were kept to their end, "A B", and their scores.
inline void collect_outputs(const Json& node, const std::string& end, std::map<std::string, double>& outputs,
                            const std::string& before = "") {
  double sum = 0;
  for (const Json& next : node["next"]) {
    sum += next["probability"].get<double>();
    const std::string token = next["token"];
    if (next["kept"] && token == end) outputs[before] = next["score"];
    collect_outputs(next, end, outputs, before.empty() ? token : before + " " + token);
  }
  EXPECT_LE(sum, 1 + 1e-6) << before;
}

}  // namespace heed
