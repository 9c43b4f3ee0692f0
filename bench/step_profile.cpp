#include "bench/step_profile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <heed/core/runtime/profile.h>

#include "bench/kernel_cases.h"

namespace heed::bench {
namespace {

/// What this machine does at best, measured when it is first asked for.
class Machine {
 public:
  explicit Machine(DType dtype) : dtype_(dtype) {}

  double operations_per_second() {
    if (!product_)
      product_ = 2 * std::pow(1024, 3) / median_seconds(Kernel("product/forward/1024x1024x1024", dtype_));
    return *product_;
  }

  /// Of a copy that reads and writes about as many bytes together, to a power of two from 32 KiB to 256 MiB.
  double bytes_per_second(double bytes) {
    constexpr int kColumns = 1024, kRowBytes = 2 * 4 * kColumns;
    const int rows = 1 << std::clamp(static_cast<int>(std::lround(std::log2(bytes / kRowBytes))), 2, 15);
    double& rate = copies_[rows];
    if (rate == 0) {
      const Kernel copy("copy/forward/" + std::to_string(rows) + "x" + std::to_string(kColumns), DType::f32);
      rate = static_cast<double>(rows) * kRowBytes / median_seconds(copy);
    }
    return rate;
  }

  double floor_seconds(const Cost& cost) {
    return std::max(cost.flops > 0 ? cost.flops / operations_per_second() : 0,
                    cost.bytes > 0 ? cost.bytes / bytes_per_second(cost.bytes) : 0);
  }

 private:
  DType dtype_;
  std::optional<double> product_;
  std::map<int, double> copies_;  // by rows
};

struct Row {
  int64_t calls = 0;
  double milliseconds = 0, floor = 0;
  Cost cost;
};

void print_row(const std::string& name, const Row& row, double steps, double whole) {
  const auto number = [](double value, bool there) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", value < 10 ? 2 : 1, value);
    return there ? std::string(text) : std::string("-");
  };
  const double seconds = row.milliseconds / 1e3;
  std::printf("%-30s %7s %9.2f %6.1f %% %8s %7s %9s %7s\n", name.c_str(),
              row.calls > 0 ? number(static_cast<double>(row.calls) / steps, true).c_str() : "",
              row.milliseconds / steps, 100 * row.milliseconds / whole,
              number(row.cost.flops / seconds / 1e9, row.cost.flops > 0).c_str(),
              number(row.cost.bytes / seconds / 1e9, row.cost.bytes > 0).c_str(),
              number(row.floor / steps, row.floor > 0).c_str(),
              number(row.milliseconds / row.floor, row.floor / steps >= 0.005).c_str());
}

}  // namespace

void declare_profile(apps::OptionTable& options, bool& profile) {
  options.flag("profile", profile, "Print where the time goes, kernel by kernel, instead of taking turns");
}

void print_profile(const std::function<void()>& step, DType dtype) {
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  };
  int steps = 0;
  start_profile();
  for (; steps < 3 || elapsed() < 1e3; ++steps) step();
  Row whole;
  whole.milliseconds = elapsed();
  stop_profile();

  Machine machine(dtype);
  std::map<std::string, Row> kernels;
  Row rest = whole;
  for (const ProfileEvent& event : profile_events()) {
    Row& row = kernels[event.name];
    const double floor = 1e3 * machine.floor_seconds(event.cost);
    ++row.calls;
    row.milliseconds += event.duration / 1e3;
    rest.milliseconds -= event.duration / 1e3;
    row.floor += floor;
    whole.floor += floor;
    row.cost = row.cost + event.cost;
  }
  std::vector<std::pair<std::string, Row>> rows(kernels.begin(), kernels.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.milliseconds > b.second.milliseconds;
  });
  std::printf("%-30s %7s %9s %8s %8s %7s %9s %7s\n", "a step's", "calls", "ms", "share", "GFLOP/s", "GB/s",
              "floor, ms", "times");
  for (const auto& [name, row] : rows) print_row(name, row, steps, whole.milliseconds);
  print_row("outside of kernels", rest, steps, whole.milliseconds);
  print_row("whole step", whole, steps, whole.milliseconds);
  std::printf("%d steps; products at %.0f GFLOP/s, copies of 1 MiB at %.0f GB/s and of 128 MiB at %.0f\n",
              steps, machine.operations_per_second() / 1e9, machine.bytes_per_second(2 << 20) / 1e9,
              machine.bytes_per_second(256 << 20) / 1e9);
}

}  // namespace heed::bench
