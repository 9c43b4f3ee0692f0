#include <heed/nn/layers/dropout.h>

namespace heed::nn {

void check_dropout_rate(double p, const char* what) {
  HEED_CHECK(p >= 0 && p < 1, ConfigError, what, ": a dropout rate must be in [0, 1), got ", p);
}

Dropout::Dropout(double p) : p(p) { check_dropout_rate(p, "Dropout"); }

}  // namespace heed::nn
