// Greedy decoding with a sequence-to-sequence Transformer: sources in batches, each output as long as asked
// for.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/models/transformer.h>
#include <heed/nn/weights.h>
#include <heed/version.h>

#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "bench/peer.h"

namespace {

using namespace heed;

struct Settings : bench::ModelSettings {
  int64_t sources = 1000, batch = 32, source = 12, target = 21;
};

class Decoding {
 public:
  explicit Decoding(const Settings& s) : settings_(s), model_(s.config()) {
    if (!s.weights.empty()) nn::save_weights(model_, s.weights);
    model_.eval();
    const Tensor all = bench::ids(s.sources, s.source, s.vocab, 1);
    for (int64_t i = 0; i < s.sources; i += s.batch)
      batches_.push_back(nn::Tokens::dense(all.slice(0, i, std::min(i + s.batch, s.sources))));
    outputs_.resize(batches_.size());
  }

  // Each thread takes the next batch and works on it alone.
  void operator()() {
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      const nn::DecodeOptions options{.max_length = settings_.target, .min_length = settings_.target - 1};
      for (size_t i; (i = next++) < batches_.size();)
        outputs_[i] = nn::greedy_search(model_, batches_[i], options);
    };
    std::vector<std::jthread> others;
    for (int64_t i = 1; i < settings_.threads; ++i) others.emplace_back(work);
    work();
  }

  std::vector<int64_t> tokens() const {
    std::vector<int64_t> all;
    for (const auto& batch : outputs_)
      for (const nn::Hypothesis& output : batch)
        all.insert(all.end(), output.tokens.begin(), output.tokens.end());
    return all;
  }

 private:
  Settings settings_;
  nn::Transformer model_;
  std::vector<nn::Tokens> batches_;
  std::vector<std::vector<nn::Hypothesis>> outputs_;
};

void run(const Settings& settings) {
  set_thread_count(1);
  Decoding decoding(settings);
  decoding();
  bench::take_turns({{"name", concat("heed ", HEED_VERSION)}, {"tokens", decoding.tokens()}},
                    [&] { decoding(); });
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(argc, argv, [](const std::vector<std::string>& arguments) {
    Settings settings;
    apps::CommandLine line("decode", "Times greedy decoding with a sequence-to-sequence Transformer.");
    apps::OptionTable& options = line.command("", "", [&] { run(settings); });
    bench::declare_model(options, settings);
    const apps::IntegerRange positive{1, 1 << 20};
    options.integer("sources", settings.sources, "Sources to decode", positive);
    options.integer("batch", settings.batch, "Sources in a batch", positive);
    options.integer("source", settings.source, "Tokens of each source", positive);
    options.integer("target", settings.target, "Tokens of each output", positive);
    line.run(arguments);
  });
}
