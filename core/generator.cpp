#include <utility>

#include <heed/core/generator.h>

namespace heed {

namespace {

thread_local Generator* scoped = nullptr;

}  // namespace

Generator& default_generator() {
  static Generator generator;
  return scoped ? *scoped : generator;
}

GeneratorScope::GeneratorScope(Generator& generator) : previous_(std::exchange(scoped, &generator)) {}
GeneratorScope::~GeneratorScope() { scoped = previous_; }

void manual_seed(uint64_t seed) { default_generator().reset(seed); }

}  // namespace heed
