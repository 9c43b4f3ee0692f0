// The formulas of the tutorials, written out with plain operations, beside what heed computes in one pass.
#include <cmath>
#include <cstdio>
#include <vector>

#include <heed/heed.h>

using namespace heed;

constexpr TensorOptions kF64{.dtype = DType::f64};

Tensor positions(int64_t length, int64_t d) {
  const Tensor table = zeros({length, d}, kF64);
  for (int64_t pos = 0; pos < length; ++pos)
    for (int64_t i = 0; 2 * i < d; ++i) {
      const double angle = static_cast<double>(pos) / std::pow(10'000.0, 2.0 * i / d);
      table.data<double>()[pos * d + 2 * i] = std::sin(angle);
      table.data<double>()[pos * d + 2 * i + 1] = std::cos(angle);
    }
  return table;
}

Tensor scaled_dot_product(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor scores = matmul(q, k.transpose(0, 1)) / std::sqrt(static_cast<double>(q.size(1)));
  return matmul(softmax(scores), v);
}

Tensor multi_head(const Tensor& x, const nn::MultiHeadAttention& layer, int64_t heads) {
  const int64_t d = layer.d_model, width = d / heads;
  std::vector<Tensor> outputs;
  for (int64_t head = 0; head < heads; ++head) {
    const auto project = [&](int64_t which) {  // 0: queries, 1: keys, 2: values
      const int64_t first = which * d + head * width, last = first + width;
      return linear(x, layer.in_proj_weight.slice(0, first, last), layer.in_proj_bias.slice(0, first, last));
    };
    outputs.push_back(scaled_dot_product(project(0), project(1), project(2)));
  }
  return layer.out_proj(cat(outputs, 1));
}

Tensor feed_forward(const Tensor& x, const nn::FeedForward& layer) {
  const Tensor w1 = layer.linear1.weight.transpose(0, 1), w2 = layer.linear2.weight.transpose(0, 1);
  return matmul(relu(matmul(x, w1) + layer.linear1.bias), w2) + layer.linear2.bias;
}

Tensor normalised(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor centred = x - mean(x, {.axes = {1}, .keep = true});
  const Tensor variance = mean(centred * centred, {.axes = {1}, .keep = true});
  return centred / sqrt(variance + eps) * weight + bias;
}

Tensor smoothed_cross_entropy(const Tensor& logits, const Tensor& targets, double epsilon) {
  const Tensor log_p = log_softmax(logits);
  const Tensor right = gather(log_p, 1, targets.unsqueeze(1)).flatten(), all = mean(log_p, {.axes = {1}});
  return -mean(right * (1 - epsilon) + all * epsilon);
}

struct AdamByHand {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  Tensor m, v;
  int t = 0;

  Tensor step(const Tensor& theta, const Tensor& gradient) {
    ++t;
    m = m * beta1 + gradient * (1 - beta1);
    v = v * beta2 + gradient * gradient * (1 - beta2);
    const Tensor m_hat = m / (1 - std::pow(beta1, t)), v_hat = v / (1 - std::pow(beta2, t));
    return theta - m_hat * lr / (sqrt(v_hat) + eps);
  }
};

double noam(double step, double d, double warmup) {
  return std::pow(d, -0.5) * std::min(std::pow(step, -0.5), step * std::pow(warmup, -1.5));
}

// Lines of the table, and whether all of them agree.
struct Comparison {
  bool all = true;
  void operator()(const char* what, double difference) {
    std::printf("%-20s %s\n", what, difference < 1e-12 ? "the same" : "another");
    all = all && difference < 1e-12;
  }
  void operator()(const char* what, const Tensor& by_hand, const Tensor& heeds) {
    (*this)(what, max(abs(by_hand - heeds)).item<double>());
  }
};

// Three steps of both on the sum of the cubes of a layer's weights.
double adam_difference() {
  nn::Linear layer(4, 3, false);
  layer.to(DType::f64);
  Tensor theta = layer.weight.detach().clone();
  AdamByHand by_hand{.m = zeros_like(theta), .v = zeros_like(theta)};
  optim::Adam adam(layer.parameters());
  for (int step = 0; step < 3; ++step) {
    theta = by_hand.step(theta, theta * theta * 3);
    sum(layer.weight * layer.weight * layer.weight).backward();
    adam.step();
  }
  return max(abs(theta - layer.weight.detach())).item<double>();
}

int main() {
  Comparison compare;
  const int64_t words = 5, d = 16, heads = 4;
  const Tensor x = randn({words, d}, kF64), q = randn({words, d}, kF64), k = randn({words, d}, kF64);
  const Segments sentence = Segments::dense(1, words);
  compare("positions", positions(words, d), nn::sinusoidal_table(words, d));
  compare("attention", scaled_dot_product(q, k, x), attention(q, k, x, sentence, {}));

  nn::LayerConfig config;
  config.d_model = d;
  config.heads = heads;
  config.d_ff = 64;
  nn::EncoderLayer layer(config);
  layer.to(DType::f64);
  layer.eval();  // without dropout
  compare("heads", multi_head(x, layer.self_attn, heads), layer.self_attn.self(x, sentence));
  compare("feed-forward", feed_forward(x, layer.feed_forward), layer.feed_forward(x));
  compare("layer norm", normalised(x, layer.norm1.weight, layer.norm1.bias, 1e-5), layer.norm1(x));

  const Tensor targets = randint(0, d, {words});
  compare("cross-entropy", smoothed_cross_entropy(x, targets, 0), cross_entropy(x, targets));
  compare("label smoothing", smoothed_cross_entropy(x, targets, 0.1),
          cross_entropy(x, targets, {.label_smoothing = 0.1}));
  compare("Adam, three steps", adam_difference());
  const optim::Schedule schedule{
      .kind = optim::ScheduleKind::noam, .lr = optim::noam_lr(512, 4000), .warmup = 4000};
  for (const int64_t step : {1, 4000, 100'000})
    compare("Noam", std::abs(noam(static_cast<double>(step), 512, 4000) - schedule.at(step - 1)));
  return compare.all ? 0 : 1;
}
