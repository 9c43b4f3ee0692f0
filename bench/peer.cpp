#include "bench/peer.h"

#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

namespace heed::bench {

nn::TransformerConfig ModelSettings::config() const {
  nn::TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = vocab;
  config.d_model = d_model;
  config.heads = heads;
  config.d_ff = d_ff;
  config.encoder_layers = encoder_layers;
  config.decoder_layers = decoder_layers;
  config.set_dropout(dropout);
  return config;
}

void declare_model(apps::OptionTable& table, ModelSettings& settings) {
  const apps::IntegerRange positive{1, 1 << 20};
  table.integer("d-model", settings.d_model, "Width of the model", positive);
  table.integer("heads", settings.heads, "Attention heads", positive);
  table.integer("encoder-layers", settings.encoder_layers, "Encoder layers", positive);
  table.integer("decoder-layers", settings.decoder_layers, "Decoder layers", positive);
  table.integer("d-ff", settings.d_ff, "Width of the feed-forward network", positive);
  table.integer("vocab", settings.vocab, "Symbols", {4, 1 << 20});
  table.number("dropout", settings.dropout, "Rate of all dropouts", {0, 1, false, true});
  table.integer("threads", settings.threads, "Threads", {1, 1024});
  table.text("weights", settings.weights, "Write the first weights to this file");
}

double ResidentMemory::read(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kibibytes;
    if (word == concat(key, ":") && status >> kibibytes) return kibibytes / 1024;
  }
  throw IoError(concat("/proc/self/status has no ", key));
}

void take_turns(const apps::Json& about, const std::function<void()>& work) {
  take_turns(about, Turns{.run = [&](const std::string&) { work(); }, .values = {}});
}

void take_turns(const apps::Json& about, const Turns& turns) {
  apps::JsonLines out;
  out.write(about);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string word, what;
    int count = 0;
    if (words >> word && word == "values" && words >> what && turns.values) {
      out.write({{"values", turns.values(what)}});
      continue;
    }
    if (word != "run" || !(words >> count)) break;
    words >> what;  // not there where a program has but one kind of work
    std::vector<double> milliseconds;
    for (int i = 0; i < count; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      turns.run(what);
      const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
      milliseconds.push_back(taken.count());
    }
    out.write({{"milliseconds", milliseconds}});
  }
}

}  // namespace heed::bench
