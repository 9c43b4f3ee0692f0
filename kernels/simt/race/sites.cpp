#include <cstdio>
#include <cstring>
#include <dlfcn.h>

#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/race/sites.h>

namespace heed::emulator {
namespace {

// The line that debug information gives for the call before `return_address`.
std::string source_line(const void* return_address) {
  Dl_info info;
  if (dladdr(return_address, &info) == 0) return "?";
  const size_t offset = static_cast<size_t>(static_cast<const char*>(return_address) -
                                            static_cast<const char*>(info.dli_fbase));
  char command[600], line[512] = "?";
  snprintf(command, sizeof command, "addr2line -e '%s' 0x%zx 2>/dev/null", info.dli_fname, offset - 1);
  if (FILE* pipe = popen(command, "r")) {
    if (fgets(line, sizeof line, pipe) == nullptr) strcpy(line, "?");
    pclose(pipe);
  }
  const std::string text(line, strcspn(line, " \n"));
  return text;
}

}  // namespace

uint32_t Sites::of(const void* return_address) {
  const auto [known, is_new] = by_address_.try_emplace(return_address, static_cast<uint32_t>(sites_.size()));
  if (is_new) sites_.push_back({return_address, {}});
  return known->second;
}

uint32_t Sites::of(Location at) {
  for (size_t i = sites_.size(); i-- > 0;)
    if (sites_[i].address == nullptr && sites_[i].at.file == at.file && sites_[i].at.line == at.line)
      return static_cast<uint32_t>(i);
  sites_.push_back({nullptr, at});
  return static_cast<uint32_t>(sites_.size() - 1);
}

std::string Sites::text(uint32_t site) const {
  if (sites_[site].address == nullptr) return emulator::text(sites_[site].at);
  const std::string line = source_line(sites_[site].address);
  return line.substr(line.rfind('/') + 1);
}

bool Sites::in_library(uint32_t site) const {
  return sites_[site].address != nullptr &&
         source_line(sites_[site].address).find("/c++/") != std::string::npos;
}

}  // namespace heed::emulator
