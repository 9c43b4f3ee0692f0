#include <cstdio>

#include <heed/core/base/warning.h>

namespace heed {
namespace {

// A text may hold parts of a file from outside: what would steer a terminal is shown as \xNN.
std::string printable(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1_control = byte >= 0x80 && byte < 0xa0 && i > 0 && text[i - 1] == '\xc2';
    if (byte >= 0x20 && byte != 0x7f && !c1_control) {
      out += text[i];
    } else {
      constexpr char kDigits[] = "0123456789abcdef";
      out += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
    }
  }
  return out;
}

void print(const std::string& text) { std::fprintf(stderr, "heed: warning: %s\n", printable(text).c_str()); }

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
