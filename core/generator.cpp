#include <utility>

#include <heed/core/base/check.h>
#include <heed/core/generator.h>

namespace heed {

namespace {

thread_local Generator* scoped = nullptr;
thread_local const RepeatedDraws* repeated = nullptr;

}  // namespace

PhiloxState Generator::next(uint64_t positions) {
  if (repeated == nullptr) return {seed_, nullptr, offset_.fetch_add(positions)};
  HEED_CHECK(
      &repeated->generator_ == this, StateError,
      "random numbers: a captured step draws from one generator, the default one when it began; a step "
      "with another cannot be repeated");
  return {seed_, repeated->base_, offset_.fetch_add(positions) - repeated->start_};
}

Generator& default_generator() {
  static Generator generator;
  return scoped ? *scoped : generator;
}

GeneratorScope::GeneratorScope(Generator& generator) : previous_(std::exchange(scoped, &generator)) {}
GeneratorScope::~GeneratorScope() { scoped = previous_; }

RepeatedDraws::RepeatedDraws(Generator& generator, const uint64_t* base)
    : generator_(generator), base_(base), start_(generator.offset()) {
  HEED_CHECK(repeated == nullptr, StateError, "RepeatedDraws: one lives on this thread already");
  repeated = this;
}
RepeatedDraws::~RepeatedDraws() { repeated = nullptr; }

void manual_seed(uint64_t seed) { default_generator().reset(seed); }

}  // namespace heed
