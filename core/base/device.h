// Where a tensor lives: the CPU, or a CUDA device by its index.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace heed {

enum class DeviceType : uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  bool is_cpu() const { return type == DeviceType::cpu; }
  bool is_cuda() const { return type == DeviceType::cuda; }
  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr Device kCpu{};

/// Device{DeviceType::cuda, index}.
constexpr Device cuda_device(int index = 0) { return {DeviceType::cuda, index}; }

/// Reads "cpu", "cuda" or "cuda:N"; ConfigError on anything else. Does not ask whether the device exists.
Device parse_device(std::string_view text);

/// "cpu" or "cuda:N".
std::string to_string(Device device);
void append_text(std::string& out, Device device);
std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace heed
