// The kernels that are timed beside other frameworks' (bench/peers/compare.py); by themselves: kernels_bench.
#include <regex>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/version.h>

#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "bench/kernel_cases.h"
#include "bench/peer.h"

namespace {

using namespace heed;

struct Settings {
  int64_t threads = 2;
  DType dtype = DType::f32;
  std::string cases = ".*";
  bool tiny = false;
};

void run(const Settings& s) {
  set_thread_count(static_cast<int>(s.threads));
  const std::regex wanted(s.cases);
  const std::vector<bench::KernelCase> all = bench::kernel_cases(s.tiny, s.dtype);
  apps::Json cases = apps::Json::array();
  for (const bench::KernelCase& c : all) {
    if (!std::regex_search(c.name, wanted)) continue;
    const bench::KernelCase& floor = bench::floor_of(c, all);
    cases.push_back({{"name", c.name},
                     {"unit", c.bytes > 0 ? "B" : "FLOP"},
                     {"amount", c.bytes > 0 ? c.bytes : c.operations},
                     {"floor", floor.name},
                     {"floor_amount", c.bytes > 0 ? floor.bytes : floor.operations}});
  }
  bench::Kernels kernels(s.dtype);
  bench::take_turns({{"name", concat("heed ", HEED_VERSION, " ", s.dtype)}, {"cases", cases}},
                    {.run = [&](const std::string& name) { kernels(name).run(); },
                     .values = [&](const std::string& name) { return apps::Json(kernels(name).values()); }});
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(argc, argv, [](const std::vector<std::string>& arguments) {
    Settings settings;
    apps::CommandLine line("kernels", "Times single operations with their gradients.");
    apps::OptionTable& options = line.command("", "", [&] { run(settings); });
    options.integer("threads", settings.threads, "Threads", {1, 1024});
    options.choice("dtype", settings.dtype, "Element type", {{"f32", DType::f32}, {"bf16", DType::bf16}});
    options.text("cases", settings.cases, "Only those whose names this regular expression finds");
    options.flag("tiny", settings.tiny, "Small shapes, to try the program");
    line.run(arguments);
  });
}
