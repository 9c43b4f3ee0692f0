#include <cstdio>

#include <heed/core/base/warning.h>

namespace heed {
namespace {

void print(const std::string& text) { std::fprintf(stderr, "heed: warning: %s\n", text.c_str()); }

std::atomic<WarningHandler> current{print};

}  // namespace

WarningHandler set_warning_handler(WarningHandler handler) {
  const WarningHandler before = current.exchange(handler ? handler : print);
  return before == print ? nullptr : before;
}

void WarningCause::warn(const std::string& text) {
  if (count_.fetch_add(1, std::memory_order_relaxed) == 0) current.load()(text);
}

}  // namespace heed
