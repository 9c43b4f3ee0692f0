#include <cmath>

#include "../reference.h"

namespace heed::test {
namespace {

struct PairLoss {
  std::string name;
  std::function<Tensor(const Tensor&, const Tensor&, Reduction)> function;
  std::function<double(double, double)> value;
  std::function<Tensor(const Tensor&)> input = [](const Tensor& x) { return x; };
  std::function<Tensor(const Tensor&)> target = [](const Tensor& x) { return x; };
};

double softplus_of(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

Tensor huber(const Tensor& x, const Tensor& t, Reduction r) {
  return huber_loss(x, t, {.delta = 0.7, .reduction = r});
}
Tensor smooth_l1(const Tensor& x, const Tensor& t, Reduction r) {
  return smooth_l1_loss(x, t, {.beta = 0.5, .reduction = r});
}
Tensor bce(const Tensor& x, const Tensor& t, Reduction r) {
  return binary_cross_entropy_with_logits(x, t, {.reduction = r});
}
Tensor kl(const Tensor& x, const Tensor& t, Reduction r) { return kl_divergence(x, t, {.reduction = r}); }
Tensor kl_of_logs(const Tensor& x, const Tensor& t, Reduction r) {
  return kl_divergence(x, t, {.log_target = true, .reduction = r});
}

std::vector<PairLoss> pair_losses() {
  const auto probabilities = [](const Tensor& x) { return sigmoid(x); };
  const auto logs = [](const Tensor& x) { return log(sigmoid(x)); };
  return {{"mse", mse_loss, [](double x, double t) { return (x - t) * (x - t); }},
          {"l1", l1_loss, [](double x, double t) { return std::fabs(x - t); }},
          {"huber", huber,
           [](double x, double t) {
             const double d = std::fabs(x - t);
             return d <= 0.7 ? d * d / 2 : 0.7 * (d - 0.35);
           }},
          {"smooth_l1", smooth_l1,
           [](double x, double t) {
             const double d = std::fabs(x - t);
             return d < 0.5 ? d * d / 2 / 0.5 : d - 0.25;
           }},
          {"bce", bce, [](double x, double t) { return t * softplus_of(-x) + (1 - t) * softplus_of(x); },
           [](const Tensor& x) { return x * 3.0; }, probabilities},
          {"kl", kl, [](double x, double t) { return t * (std::log(t) - x); }, logs, probabilities},
          {"kl of logs", kl_of_logs, [](double x, double t) { return std::exp(t) * (t - x); }, logs, logs}};
}

Tensor reduced(const Tensor& loss, Reduction reduction) {
  if (reduction == Reduction::none) return loss;
  double total = 0;
  for (double value : loss.to_vector<double>()) total += value;
  if (reduction == Reduction::mean) total /= static_cast<double>(loss.numel());
  if (reduction == Reduction::batch_mean) total /= static_cast<double>(loss.shape()[0]);
  return scalar(total, {.dtype = DType::f64});
}

// Each element is rounded once for each operation of the composition.
constexpr double kRoundings = 6;

TEST(Losses, OfPairs) {
  for (const PairLoss& loss : pair_losses())
    for (const Reduction reduction :
         {Reduction::mean, Reduction::sum, Reduction::none, Reduction::batch_mean})
      for (const Shape& shape : {Shape{7}, Shape{3, 5}, Shape{2, 0}, Shape{2, 3, 4}}) {
        if (shape.numel() == 0 && reduction == Reduction::mean) continue;
        check_op(
            {.name = concat(loss.name, " ", int(reduction), " ", shape),
             .inputs = {loss.input(normal(shape, 1)), loss.target(normal(shape, 2))},
             .function = [=](const Tensors& in) { return one(loss.function(in[0], in[1], reduction)); },
             .reference =
                 [=](const Tensors& in) {
                   return one(reduced(
                       build(shape, [&](const Place& p) { return loss.value(at(in[0], p), at(in[1], p)); }),
                       reduction));
                 },
             .ulps = kRoundings,
             .gradient_ulps = kRoundings});
      }
}

TEST(Losses, HandNumbers) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor x = tensor<float>({0, 2, -3}, device), t = tensor<float>({1, 2, 1}, device);
    EXPECT_EQ(mse_loss(x, t, Reduction::none).to_vector<float>(), (std::vector<float>{1, 0, 16}));
    EXPECT_FLOAT_EQ(mse_loss(x, t).item<float>(), 17.0f / 3);
    EXPECT_EQ(l1_loss(x, t, Reduction::sum).item<float>(), 5);
    EXPECT_EQ(huber_loss(x, t, {.reduction = Reduction::none}).to_vector<float>(),
              (std::vector<float>{0.5f, 0, 3.5f}));
    EXPECT_EQ(smooth_l1_loss(x, t, {.beta = 2, .reduction = Reduction::none}).to_vector<float>(),
              (std::vector<float>{0.25f, 0, 3}));
    EXPECT_EQ(smooth_l1_loss(x, t, {.beta = 0, .reduction = Reduction::sum}).item<float>(), 5);
    const Tensor p = tensor<float>({0, 0.5f, 0.5f}, device), q = tensor<float>({-HUGE_VALF, 0, -1}, device);
    EXPECT_FLOAT_EQ(kl_divergence(q, p, {.reduction = Reduction::sum}).item<float>(),
                    static_cast<float>(std::log(0.5) + 0.5));
    EXPECT_FLOAT_EQ(kl_divergence(q.reshape({1, 3}), p.reshape({1, 3}), {.reduction = Reduction::batch_mean})
                        .item<float>(),
                    static_cast<float>(std::log(0.5) + 0.5));
  }
}

TEST(Losses, BinaryCrossEntropyIsPreciseForAnyLogit) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor x = tensor<float>({-200, -30, 0, 30, 200, 200}, device).set_requires_grad();
    const Tensor t = tensor<float>({0, 0, 1, 1, 1, 0}, device);
    const Tensor loss = binary_cross_entropy_with_logits(x, t, {.reduction = Reduction::none});
    const float tail = std::exp(-30.0f);
    const std::vector<float> want = {0, tail, std::log(2.0f), tail, 0, 200}, got = loss.to_vector<float>();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_FLOAT_EQ(got[i], want[i]) << i;
    sum(loss).backward();
    const std::vector<float> slopes = {0, tail, -0.5f, -tail, 0, 1}, gx = x.grad().to_vector<float>();
    for (size_t i = 0; i < slopes.size(); ++i) EXPECT_FLOAT_EQ(gx[i], slopes[i]) << i;
  }
}

TEST(Losses, WeightsOfBinaryCrossEntropy) {
  check_op({.name = "bce with weights",
            .inputs = {normal({4, 3}, 1), uniform({4, 3}, 0, 1, 2), uniform({3}, 0.5, 2, 3),
                       uniform({4, 1}, 0.5, 2, 4)},
            .function =
                [](const Tensors& in) {
                  return one(binary_cross_entropy_with_logits(
                      in[0], in[1], {.weight = in[3], .pos_weight = in[2], .reduction = Reduction::none}));
                },
            .reference =
                [](const Tensors& in) {
                  return one(build({4, 3}, [&](const Place& p) {
                    const double x = at(in[0], p), t = at(in[1], p);
                    return at(in[3], p) * (at(in[2], p) * t * softplus_of(-x) + (1 - t) * softplus_of(x));
                  }));
                },
            .ulps = kRoundings,
            .gradient_ulps = kRoundings});
}

// ---- class ids

constexpr int64_t kIgnore = 9;
constexpr double kTerms = 2;  // log probabilities, which cancel in the gradients of weights

// Σ or mean of the losses of log probabilities, or each.
Tensor class_reference(const Tensor& x, const Tensor& targets, const Tensor& weight, double smoothing,
                       Reduction reduction) {
  const int64_t classes = x.size(-1);
  double total = 0, weights = 0;
  const Tensor each = build(targets.shape(), [&](const Place& p) {
    const auto target = static_cast<int64_t>(at(targets, p));
    if (target == kIgnore) return 0.0;
    const auto of = [&](int64_t c) {
      Place place = p;
      place.push_back(c);
      return -at(x, place) * (weight.defined() ? at(weight, {c}) : 1);
    };
    double all = 0;
    for (int64_t c = 0; c < classes; ++c) all += of(c);
    const double loss = (1 - smoothing) * of(target) + smoothing / static_cast<double>(classes) * all;
    weights += weight.defined() ? at(weight, {target}) : 1;
    total += loss;
    return loss;
  });
  if (reduction == Reduction::none) return each;
  if (reduction == Reduction::batch_mean) total /= static_cast<double>(targets.shape()[0]);
  if (reduction == Reduction::mean) total /= weights == 0 ? 1 : weights;
  return scalar(total, {.dtype = DType::f64});
}

Tensor some_targets(const Shape& shape) {
  const Tensor targets = indices(shape, 0, 5, 7);
  for (int64_t i = 2; i < targets.numel(); i += 4) targets.data<int64_t>()[i] = kIgnore;
  return targets;
}

TEST(Losses, Nll) {
  for (const bool weighted : {false, true})
    for (const Reduction reduction :
         {Reduction::mean, Reduction::sum, Reduction::none, Reduction::batch_mean})
      for (const Shape& shape : {Shape{1}, Shape{6}, Shape{2, 3}}) {
        Shape wide = shape;
        wide.append(5);
        const Tensor weight = weighted ? uniform({5}, 0.5, 2, 3) : Tensor();
        check_op(
            {.name = concat("nll ", int(reduction), " ", shape, weighted ? " weighted" : ""),
             .inputs = {normal(wide, 1), some_targets(shape), weight},
             .function =
                 [=](const Tensors& in) {
                   return one(
                       nll_loss(in[0], in[1], {.weight = in[2], .ignore = kIgnore, .reduction = reduction}));
                 },
             .reference =
                 [=](const Tensors& in) { return one(class_reference(in[0], in[1], in[2], 0, reduction)); },
             .ulps = kRoundings,
             .gradient_ulps = kRoundings,
             .magnitude = kTerms});
      }
}

Tensor log_probabilities(const Tensor& x) {
  return x - logsumexp(x, {.axes = {-1}, .keep = true}).expand(x.shape());
}

TEST(Losses, CrossEntropyOfEachTargetAndWithWeights) {
  for (const bool weighted : {false, true})
    for (const double smoothing : {0.0, 0.1})
      for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
        const Tensor weight = weighted ? uniform({5}, 0.5, 2, 3) : Tensor();
        check_op({.name = concat("cross_entropy ", int(reduction), smoothing, weighted ? " weighted" : ""),
                  .inputs = {normal({2, 3, 5}, 1), some_targets({2, 3}), weight},
                  .function =
                      [=](const Tensors& in) {
                        return one(cross_entropy(in[0], in[1],
                                                 {.ignore = kIgnore,
                                                  .label_smoothing = smoothing,
                                                  .reduction = reduction,
                                                  .weight = in[2]}));
                      },
                  .reference =
                      [=](const Tensors& in) {
                        return one(
                            class_reference(log_probabilities(in[0]), in[1], in[2], smoothing, reduction));
                      },
                  .ulps = kRoundings,
                  .gradient_ulps = kRoundings,
                  .magnitude = kTerms});
      }
}

TEST(Losses, RowsThatDoNotCountAreNotRead) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor x = tensor(std::vector<float>{0, 0, NAN, 1}, {2, 2}, device).set_requires_grad();
    const Tensor targets = tensor<int64_t>({1, -100}, device);
    const Tensor loss = cross_entropy(x, targets, {.reduction = Reduction::none});
    EXPECT_EQ(loss.dtype(), DType::f32);
    const std::vector<float> each = loss.to_vector<float>();
    EXPECT_FLOAT_EQ(each[0], std::log(2.0f));
    EXPECT_EQ(each[1], 0);
    sum(loss).backward();
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0.5f, -0.5f, 0, 0}));
    x.zero_grad();
    const Tensor nothing = tensor<int64_t>({-100, -100}, device);
    for (const Tensor& none :
         {nll_loss(x, nothing), cross_entropy(x, nothing, {.weight = ones({2}, x.options())})}) {
      EXPECT_EQ(none.item<float>(), 0);
      none.backward();
      EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
    }
  }
}

TEST(Losses, Errors) {
  const Tensor x = zeros({2, 3}), t = zeros({2, 3}), ids = zeros({2}, {.dtype = DType::i64});
  expect_error<ShapeError>([&] { mse_loss(x, zeros({3})); }, {"mse_loss", "[2, 3]", "[3]"});
  expect_error<DTypeError>([&] { l1_loss(x, t.to(DType::f64)); }, {"l1_loss", "f32 and f64"});
  expect_error<DTypeError>([&] { mse_loss(ids, ids); }, {"mse_loss", "i64"});
  expect_error<ConfigError>([&] { huber_loss(x, t, {.delta = 0}); }, {"huber_loss", "delta is 0"});
  expect_error<ConfigError>([&] { smooth_l1_loss(x, t, {.beta = -1}); }, {"smooth_l1_loss", "beta is -1"});
  expect_error<ShapeError>([&] { binary_cross_entropy_with_logits(x, t, {.pos_weight = zeros({2})}); },
                           {"binary_cross_entropy_with_logits", "[2]", "[2, 3]"});
  expect_error<ShapeError>([&] { mse_loss(scalar(0), scalar(0), Reduction::batch_mean); }, {"batch_mean"});
  expect_error<ShapeError>([&] { nll_loss(x, zeros({3}, ids.options())); }, {"nll_loss", "[3]", "[2]"});
  expect_error<ShapeError>([&] { nll_loss(x, ids, {.weight = zeros({2})}); },
                           {"nll_loss", "weight is [2]", "[3]"});
  expect_error<IndexError>([&] { nll_loss(x, ids + 3.0); },
                           {"nll_loss: target 3 in row 0 is not a class; expected 0 to 2"});
  expect_error<IndexError>([&] { cross_entropy(x, ids + 3.0, {.reduction = Reduction::none}); },
                           {"cross_entropy: target 3 in row 0 is not a class; expected 0 to 2"});
  expect_error<DataError>(
      [&] { cross_entropy(x, ids, {.ignore = 0, .reduction = Reduction::none, .require_target = true}); },
      {"cross_entropy: none of the 2 targets counts"});
}

}  // namespace
}  // namespace heed::test
