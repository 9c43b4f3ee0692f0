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

uint32_t Sites::of(const Site& site) {
  Found& found = found_[Hash()(site) % found_.size()];
  if (found.site != site) {
    const auto [known, is_new] = numbers_.try_emplace(site, static_cast<uint32_t>(sites_.size()));
    if (is_new) sites_.push_back(site);
    found = {site, known->second};
  }
  return found.number;
}

std::string Sites::text(uint32_t site) const {
  const Site& known = sites_[site];
  if (known.line != 0 || known.address == nullptr)
    return emulator::text({static_cast<const char*>(known.address), known.line});
  const std::string line = source_line(known.address);
  return line.substr(line.rfind('/') + 1);
}

bool Sites::in_library(uint32_t site) const {
  return sites_[site].line == 0 && source_line(sites_[site].address).find("/c++/") != std::string::npos;
}

}  // namespace heed::emulator
