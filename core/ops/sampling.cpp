#include <cmath>
#include <limits>

#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/sampling.h>
#include <heed/kernels/sampling.h>

namespace heed {
namespace {

/// How to draw, for both operations.
struct Draw {
  const char* operation;
  bool logits;
  double factor, share;
  bool replace;
  Generator* generator;
};

// `count` columns of each row of x.
Tensor draw(const Draw& how, const Tensor& x, int64_t count) {
  const auto [rows, cols] = rows_and_cols(x, how.operation);
  const Tensor input = x.contiguous(), room = empty(x.shape(), {DType::f32, x.device()});
  Shape shape = x.shape();
  shape[x.rank() - 1] = count;
  const Tensor y = empty(shape, {DType::i64, x.device()});
  Generator& generator = how.generator ? *how.generator : default_generator();
  visit_floating(x.dtype(), how.operation, [&, rows = rows, cols = cols]<class T>() {
    HEED_DISPATCH(x.device(), sample,
                  kernels::Sample<T>{.y = y.data<int64_t>(),
                                     .x = input.data<T>(),
                                     .weights = room.data<float>(),
                                     .logits = how.logits,
                                     .factor = how.factor,
                                     .share = how.share,
                                     .replace = how.replace,
                                     .rows = rows,
                                     .cols = cols,
                                     .count = count,
                                     .rng = generator.next()});
  });
  HEED_CHECK(all(greater_equal(y, scalar(0, y.options()))).item<bool>(), NumericError, how.operation,
             how.logits ? ": a row of logits has NaN or infinity, or only -infinity"
                        : ": a row of weights has one that is negative or not finite, or fewer above 0 than "
                          "there are numbers to draw");
  return y;
}

}  // namespace

Tensor multinomial(const Tensor& weights, int64_t count, const MultinomialOptions& options) {
  check_floating(weights, "multinomial");
  HEED_CHECK(count >= 0, ConfigError, "multinomial: ", count, " numbers; there cannot be less than none");
  return draw({"multinomial", false, 1, 1, options.replacement, options.generator}, weights.detach(), count);
}

Tensor sample(const Tensor& logits, const SampleOptions& options) {
  check_floating(logits, "sample");
  HEED_CHECK(std::isfinite(options.temperature) && options.temperature > 0, ConfigError,
             "sample: the temperature is ", options.temperature, "; it must be finite and above 0");
  HEED_CHECK(options.top_k >= 0, ConfigError, "sample: top_k is ", options.top_k,
             "; it must not be negative");
  HEED_CHECK(options.top_p > 0 && options.top_p <= 1, ConfigError, "sample: top_p is ", options.top_p,
             "; it must be above 0 and at most 1");
  HEED_CHECK(options.min_p >= 0 && options.min_p <= 1, ConfigError, "sample: min_p is ", options.min_p,
             "; it must be in [0, 1]");
  const int64_t classes = rows_and_cols(logits, "sample").second;
  HEED_CHECK(classes > 0, ShapeError, "sample: logits are ", logits.shape(), "; there are no classes");
  const Draw how{"sample", true, 1 / options.temperature, options.top_p, true, options.generator};
  Tensor x = logits.detach();
  if (options.min_p > 0) {
    const double below = options.temperature * std::log(options.min_p);
    x = where(less(x, max(x, {.axes = {-1}, .keep = true}) + below), -std::numeric_limits<double>::infinity(),
              x);
  }
  const int64_t most = options.top_k == 0 ? classes : std::min(options.top_k, classes);
  if (most == classes && options.top_p == 1) return draw(how, x, 1).squeeze(-1);
  const auto [values, number] = topk(x, most);
  return gather(number, -1, draw(how, values, 1)).squeeze(-1);
}

}  // namespace heed
