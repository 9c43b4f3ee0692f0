// Runs of embed with a small encoder of random weights that knows a few words.
#pragma once

#include <heed/nn/init.h>
#include <heed/nn/pretrained/pretrained.h>

#include "../program_run.h"

namespace heed {

class EmbedTest : public ProgramTest {
 protected:
  EmbedTest() : ProgramTest(HEED_EMBED) {
    std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    nn::TextEncoderConfig config;
    config.vocabulary = 5;
    for (const char* word :
         {"flour", "and", "water", "make", "bread", ".", "a", "ship", "sails", "by", "stars", "the"}) {
      vocabulary += std::string(word) + "\n";
      ++config.vocabulary;
    }
    config.d_model = 24;
    config.heads = 3;
    config.d_ff = 40;
    config.layers = 1;
    config.max_length = 32;
    nn::TextEncoder model(config);
    nn::initialize(model, {{"*.weight", nn::Initializer::normal, 0.5, 1, true}});
    nn::save_pretrained(model, model_);
    std::ofstream(fs::path(model_) / "vocab.txt") << vocabulary;
  }

  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> words{name, "--model", model_};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  const std::string model_ = (dir_ / "model").string();
};

}  // namespace heed
