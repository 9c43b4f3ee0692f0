#include <heed/core/generator.h>

namespace heed {

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) { default_generator().reset(seed); }

}  // namespace heed
