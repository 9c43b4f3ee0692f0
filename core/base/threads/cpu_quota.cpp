#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include <heed/core/base/text.h>
#include <heed/core/base/threads/cpu_quota.h>

namespace heed::detail {
namespace {

/// Empty if there is no such file. It has no size: it is made as it is read.
std::string read(const std::string& name) {
  std::string text;
  if (std::FILE* const file = std::fopen(name.c_str(), "re")) {
    char buffer[4096];
    while (const size_t n = std::fread(buffer, 1, sizeof buffer, file)) text.append(buffer, n);
    std::fclose(file);
  }
  return text;
}

bool contains(std::string_view list, std::string_view name) {
  const auto names = split(list, ',');
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// 0 if it is no positive number, such as "max" and -1.
double number(std::string_view text) {
  long long value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value > 0 ? static_cast<double>(value) : 0;
}

/// Blanks in the names of /proc/self/mountinfo stand there as \040.
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, code, 8).ptr == text.data() + i + 4) {
      out += static_cast<char>(code);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Where the groups of a version are mounted, and which of them is seen there.
struct Mount {
  std::string folder, group;
};

/// Lines: number, parent, device, root, mount point, options, fields up to "-", type, source, options.
Mount find_mount(const std::string& mounts, bool version2) {
  for (const std::string_view line : split(mounts, '\n')) {
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 4) continue;
    if (version2 ? dash[1] == "cgroup2" : dash[1] == "cgroup" && contains(dash[3], "cpu"))
      return {unescaped(fields[4]), unescaped(fields[3])};
  }
  return {};
}

/// The process's group. Lines: number, controllers, group, with colons between; version 2 has none of these.
std::string find_group(const std::string& groups, bool version2) {
  for (const std::string_view line : split(groups, '\n')) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (version2 ? controllers.empty() : contains(controllers, "cpu"))
      return std::string(line.substr(second + 1));
  }
  return {};
}

double cpus_of_group(const std::string& folder, bool version2) {
  double quota = 0, period = 0;
  if (version2) {  // "max 100000"
    const std::string text = read(folder + "/cpu.max");
    const auto fields = split(std::string_view(text).substr(0, text.find('\n')), ' ');
    if (fields.size() == 2) quota = number(fields[0]), period = number(fields[1]);
  } else {
    quota = number(read(folder + "/cpu.cfs_quota_us"));
    period = number(read(folder + "/cpu.cfs_period_us"));
  }
  return quota > 0 && period > 0 ? quota / period : kNoQuota;
}

double cpus_of_version(const std::string& root, bool version2) {
  const Mount mount = find_mount(read(root + "/proc/self/mountinfo"), version2);
  if (mount.folder.empty()) return kNoQuota;
  std::string group = find_group(read(root + "/proc/self/cgroup"), version2);
  // Below what is mounted; of a group elsewhere nothing is seen but what is mounted.
  if (mount.group != "/")
    group = group.compare(0, mount.group.size(), mount.group) == 0 ? group.substr(mount.group.size()) : "";
  if (group.find("/..") != std::string::npos) group.clear();
  double least = kNoQuota;
  for (;; group.resize(group.rfind('/'))) {
    least = std::min(least, cpus_of_group(concat(root, mount.folder, group), version2));
    if (group.rfind('/') == std::string::npos) return least;
  }
}

}  // namespace

int cpus_of_quota(const std::string& root) {
  const double cpus = std::min(cpus_of_version(root, false), cpus_of_version(root, true));
  return cpus >= kNoQuota ? kNoQuota : std::max(1, static_cast<int>(std::lround(cpus)));
}

}  // namespace heed::detail
