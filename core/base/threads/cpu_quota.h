// What control groups let a process use of the processor's time. Private to heed: not installed.
#pragma once

#include <limits>
#include <string>

namespace heed::detail {

constexpr int kNoQuota = std::numeric_limits<int>::max();

/// Processors that the least CPU quota of this process's control groups and of those around them is worth,
/// rounded to the nearest number, 1 at least; kNoQuota where there is none. Versions 1 and 2. Files that are
/// missing or say something else set no quota. `root` is put before the names of all files that are read.
int cpus_of_quota(const std::string& root = "");

}  // namespace heed::detail
