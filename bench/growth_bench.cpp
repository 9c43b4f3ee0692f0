// How the time and the memory of a training step grow with batch, length, width, depth and threads, and those
// of attention with its length, causal and sparse. Beside each doubling stand the powers of the axis that
// time and memory followed: 1.00 is linear growth.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include <heed/core/attention.h>
#include <heed/core/base/memory/allocator.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/block_pattern.h>
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
  int64_t threads = 2;       // but along the axis of threads
  int64_t longest = 16'384;  // of attention
  bool only_attention = false;
  bool processor_time = false;
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

double milliseconds_now(bool processor_time) {
  if (processor_time) return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  const std::chrono::duration<double, std::milli> now = std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

/// Two steps to warm up; then all that `step` had in use at once, and how long it takes.
Cost cost_of(int64_t before, const Settings& s, int64_t steps, const std::function<void()>& step) {
  step();
  step();
  cpu_allocator().reset_peak();
  std::vector<double> times;
  for (int64_t i = 0; i < steps; ++i) {
    const double begin = milliseconds_now(s.processor_time);
    step();
    times.push_back(milliseconds_now(s.processor_time) - begin);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), cpu_allocator().stats().peak - before};
}

Cost training_step(const Sizes& sizes, const Settings& s) {
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
  return cost_of(before, s, s.steps, [&] {
    cross_entropy(model.forward(tokens, tokens), labels).backward();
    adam.step({.clip = 1});
  });
}

/// Attention with its gradient: one sequence, 8 heads of width 16.
Cost attention_step(int64_t length, const Visibility& rule, const BlockPattern& blocks, const Settings& s) {
  cpu_allocator().release_cached();
  const int64_t before = cpu_allocator().stats().in_use;
  set_thread_count(static_cast<int>(s.threads));
  const Tensor qkv = randn({length, 3 * 128}).set_requires_grad(), gy = randn({length, 128});
  const Segments segments = Segments::dense(1, length);
  return cost_of(before, s, std::min<int64_t>(s.steps, 3), [&] {
    attention_qkv(qkv, segments, {.heads = 8, .visibility = rule, .blocks = blocks}).backward(gy);
    qkv.zero_grad();
  });
}

/// Of each block of 64 queries its own block of keys, the one before, the first and two others (BigBird).
BlockPattern big_bird(int64_t length) {
  const Tensor near = visible_blocks({.window_left = 64, .window_right = 0, .global_tokens = 64}, length);
  Generator generator(1);
  return BlockPattern(logical_or(near, random_blocks(near.size(0), 2, true, generator)));
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
      return training_step(sizes, s);
    });
  };
  if (!s.only_attention) {
    along("batch", {8, 16, 32, 64, 128}, &Sizes::batch);
    along("length", {32, 64, 128, 256, 512}, &Sizes::length);
    along("width", {64, 128, 256, 512}, &Sizes::width);
    along("depth", {1, 2, 4, 8, 16}, &Sizes::depth);
    along("threads", {1, 2}, &Sizes::threads);
  }
  std::vector<int64_t> lengths;
  for (int64_t length = std::min<int64_t>(1024, s.longest / 2); length <= s.longest; length *= 2)
    lengths.push_back(length);
  const auto along_attention = [&](const char* axis, const Visibility& rule, bool blocks = false) {
    result[axis] = grow(axis, lengths, [&](int64_t length) {
      return attention_step(length, rule, blocks ? big_bird(length) : BlockPattern(), s);
    });
  };
  const Causal causal = Causal::top_left;
  along_attention("attention length", {.causal = causal});
  along_attention("window of 256", {.causal = causal, .window_left = 255});
  along_attention("window, 16 global", {.causal = causal, .window_left = 255, .global_tokens = 16});
  along_attention("BigBird", {.causal = causal}, true);
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
    options.integer("longest", settings.longest, "Tokens of the longest attention", {64, 1 << 20});
    options.flag("attention", settings.only_attention, "Attention alone");
    options.flag("processor-time", settings.processor_time,
                 "Time of the processor, of all threads together, where other work runs beside");
    options.path("out", settings.out, "Write the figures to this file as JSON");
    line.run(arguments);
  });
}
