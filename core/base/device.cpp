#include <charconv>
#include <ostream>

#include <heed/core/base/check.h>
#include <heed/core/base/device.h>

namespace heed {

Device parse_device(std::string_view text) {
  if (text == "cpu") return kCpu;
  if (text == "cuda") return cuda_device(0);
  constexpr std::string_view prefix = "cuda:";
  if (text.substr(0, prefix.size()) == prefix) {
    const std::string_view digits = text.substr(prefix.size());
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0) return cuda_device(index);
  }
  throw ConfigError(concat("unknown device '", text, "'; expected cpu, cuda or cuda:N"));
}

std::string to_string(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : concat("cuda:", device.index);
}

void append_text(std::string& out, Device device) { out += to_string(device); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}  // namespace heed
