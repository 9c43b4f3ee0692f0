// How the time and the memory of a training step grow with batch, length, width, depth and threads, and those
// of attention with its length. Beside each doubling stand the powers of the axis that time and memory
// followed: 1.00 is linear growth.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <heed/core/attention.h>
#include <heed/core/base/allocator.h>
#include <heed/core/base/parallel_for.h>
#include <heed/core/creation.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/ops.h>
#include <heed/optim/adam.h>

#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "bench/peer.h"

namespace {

using namespace heed;

struct Settings {
  int64_t steps = 7;
  int64_t threads = 2;  // but along the axis of threads
  std::filesystem::path out;
};

/// Sizes of a training step; by default the tutorial's model.
struct Sizes {
  int64_t batch = 8, length = 32, width = 128, depth = 3, threads = 2;
};

struct Cost {
  double milliseconds, least;  // median of the steps, and the shortest
  int64_t bytes;  // the most that was in use during a step, less what was before anything was made
};

/// Two steps to warm up; then all that `step` had in use at once, and how long it takes.
Cost cost_of(int64_t before, int64_t steps, const std::function<void()>& step) {
  step();
  step();
  cpu_allocator().reset_peak();
  std::vector<double> times;
  for (int64_t i = 0; i < steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    step();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), cpu_allocator().stats().peak - before};
}

Cost training_step(const Sizes& sizes, int64_t steps) {
  cpu_allocator().release_cached();
  const int64_t before = cpu_allocator().stats().in_use;
  set_thread_count(static_cast<int>(sizes.threads));
  bench::ModelSettings settings;
  settings.d_model = sizes.width;
  settings.d_ff = 4 * sizes.width;
  settings.encoder_layers = settings.decoder_layers = sizes.depth;
  nn::Transformer model(settings.config());
  const Tensor ids = bench::ids(sizes.batch, sizes.length, settings.vocab, 1), labels = ids.flatten();
  const nn::Tokens tokens = nn::Tokens::dense(ids);
  optim::Adam adam(model.parameters(), {.lr = 1e-4});
  return cost_of(before, steps, [&] {
    cross_entropy(model.forward(tokens, tokens), labels).backward();
    adam.step({.clip = 1});
  });
}

/// Causal attention with its gradient: one sequence, 8 heads of width 16.
Cost attention_step(int64_t length, int64_t threads, int64_t steps) {
  cpu_allocator().release_cached();
  const int64_t before = cpu_allocator().stats().in_use;
  set_thread_count(static_cast<int>(threads));
  const Tensor qkv = randn({length, 3 * 128}).set_requires_grad(), gy = randn({length, 128});
  const Segments segments = Segments::dense(1, length);
  return cost_of(before, steps, [&] {
    attention_qkv(qkv, segments, {.heads = 8, .visibility = {.causal = Causal::top_left}}).backward(gy);
    qkv.zero_grad();
  });
}

/// Measures along one axis and prints a line for each value.
apps::Json grow(const char* axis, const std::vector<int64_t>& values,
                const std::function<Cost(int64_t value)>& measure) {
  apps::Json points = apps::Json::array();
  Cost last{};
  for (size_t i = 0; i < values.size(); ++i) {
    const Cost cost = measure(values[i]);
    std::printf("%-18s %6lld %10.2f ms %10.2f least %9.2f MiB", axis, static_cast<long long>(values[i]),
                cost.milliseconds, cost.least, static_cast<double>(cost.bytes) / (1 << 20));
    apps::Json point{{"value", values[i]},
                     {"milliseconds", cost.milliseconds},
                     {"least", cost.least},
                     {"bytes", cost.bytes}};
    if (i > 0) {
      const double added = static_cast<double>(values[i] - values[i - 1]);
      const double time_power = std::log(cost.least / last.least) /
                                std::log(static_cast<double>(values[i]) / static_cast<double>(values[i - 1]));
      const double bytes_per_unit = static_cast<double>(cost.bytes - last.bytes) / added;
      std::printf("   time ^%.2f   %8.1f KiB per unit", time_power, bytes_per_unit / 1024);
      point["time_power"] = time_power;
      point["bytes_per_unit"] = bytes_per_unit;
    }
    std::printf("\n");
    std::fflush(stdout);
    points.push_back(std::move(point));
    last = cost;
  }
  return points;
}

void run(const Settings& s) {
  apps::Json result;
  const auto along = [&](const char* axis, const std::vector<int64_t>& values, int64_t Sizes::*size) {
    result[axis] = grow(axis, values, [&](int64_t value) {
      Sizes sizes{.threads = s.threads};
      sizes.*size = value;
      return training_step(sizes, s.steps);
    });
  };
  along("batch", {8, 16, 32, 64, 128}, &Sizes::batch);
  along("length", {32, 64, 128, 256, 512}, &Sizes::length);
  along("width", {64, 128, 256, 512}, &Sizes::width);
  along("depth", {1, 2, 4, 8, 16}, &Sizes::depth);
  along("threads", {1, 2}, &Sizes::threads);
  result["attention length"] = grow("attention length", {1024, 2048, 4096, 8192, 16384}, [&](int64_t length) {
    return attention_step(length, s.threads, std::min<int64_t>(s.steps, 3));
  });
  if (!s.out.empty()) write_whole_file(s.out.string(), apps::json_line(result) + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(argc, argv, [](const std::vector<std::string>& arguments) {
    Settings settings;
    apps::CommandLine line("growth_bench", "Time and memory of a training step against each of its sizes.");
    apps::OptionTable& options = line.command("", "", [&] { run(settings); });
    options.integer("steps", settings.steps, "Steps to time", {1, 1000});
    options.integer("threads", settings.threads, "Threads", {1, 1024});
    options.path("out", settings.out, "Write the figures to this file as JSON");
    line.run(arguments);
  });
}
