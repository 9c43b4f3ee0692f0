// Lion and Muon against plain implementations of the papers, on each device.
#include <cmath>
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/core/runtime/captured_step.h>
#include <heed/optim/adam.h>
#include <heed/optim/lion.h>
#include <heed/optim/muon.h>

#include "each_device.h"
#include "expect_error.h"

namespace heed::optim {
namespace {

// ---- plain matrices of doubles

struct Matrix {
  int64_t rows, columns;
  std::vector<double> at;

  double& operator()(int64_t i, int64_t j) { return at[static_cast<size_t>(i * columns + j)]; }
  double operator()(int64_t i, int64_t j) const { return at[static_cast<size_t>(i * columns + j)]; }
};

Matrix transposed(const Matrix& a) {
  Matrix t{a.columns, a.rows, std::vector<double>(a.at.size())};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) t(j, i) = a(i, j);
  return t;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns, std::vector<double>(static_cast<size_t>(a.rows * b.columns))};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k)
      for (int64_t j = 0; j < b.columns; ++j) c(i, j) += a(i, k) * b(k, j);
  return c;
}

// Jordan's Newton-Schulz iteration: X = a X + (b A + c A A) X with A = X Xᵀ.
Matrix plain_orthogonal(Matrix x) {
  if (x.rows > x.columns) return transposed(plain_orthogonal(transposed(x)));
  double squares = 0;
  for (const double v : x.at) squares += v * v;
  for (double& v : x.at) v /= std::sqrt(squares) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    const Matrix gram = product(x, transposed(x)), square = product(gram, gram);
    Matrix polynomial = gram;
    for (size_t i = 0; i < gram.at.size(); ++i)
      polynomial.at[i] = -4.7750 * gram.at[i] + 2.0315 * square.at[i];
    const Matrix raised = product(polynomial, x);
    for (size_t i = 0; i < x.at.size(); ++i) x.at[i] = 3.4445 * x.at[i] + raised.at[i];
  }
  return x;
}

struct PlainMuon {
  Matrix value;
  std::vector<double> momentum = std::vector<double>(value.at.size());

  void step(const std::vector<double>& g, const MuonOptions& o) {
    Matrix update = value;
    for (size_t i = 0; i < g.size(); ++i) {
      momentum[i] = o.momentum * momentum[i] + g[i];
      update.at[i] = o.nesterov ? g[i] + o.momentum * momentum[i] : momentum[i];
    }
    const Matrix direction = plain_orthogonal(update);
    const double rows = double(value.rows), columns = double(value.columns);
    const double scale = o.scale == MuonScale::original ? std::sqrt(std::max(1.0, rows / columns))
                                                        : 0.2 * std::sqrt(std::max(rows, columns));
    for (size_t i = 0; i < g.size(); ++i)
      value.at[i] = value.at[i] * (1 - o.lr * o.weight_decay) - o.lr * scale * direction.at[i];
  }
};

// ---- tests

class MuonOn : public test::EachDevice {
 protected:
  static DType dtype() { return device().is_cpu() ? DType::f64 : DType::f32; }  // CUDA has no f64
  static double tolerance() { return device().is_cpu() ? 1e-10 : 2e-5; }
  static Tensor leaf(const Shape& shape, uint64_t seed, DType of) {
    return test::normal(shape, seed).to(of).to(device()).set_requires_grad();
  }
  static std::vector<double> numbers(const Tensor& x) {
    return x.detach().to(kCpu).to(DType::f64).to_vector<double>();
  }
  static void backward(const Tensor& x, uint64_t seed) {
    sum(x * test::normal(x.shape(), seed).to(x.dtype()).to(x.device())).backward();
  }
};
HEED_ON_EACH_DEVICE(MuonOn);

TEST_P(MuonOn, FollowsThePlainImplementation) {
  for (const Shape& shape : {Shape{6, 9}, Shape{20, 7}, Shape{1, 5}, Shape{8, 8}})
    for (const MuonOptions& options :
         {MuonOptions{.lr = 0.02}, MuonOptions{.lr = 0.02, .nesterov = false, .weight_decay = 0},
          MuonOptions{.lr = 0.02, .momentum = 0, .scale = MuonScale::original}}) {
      const Tensor x = leaf(shape, 1, dtype());
      PlainMuon plain{{shape[0], shape[1], numbers(x)}};
      Muon muon(Parameters({{"x", {}, x}}), options);
      for (uint64_t step = 0; step < 6; ++step) {
        backward(x, 10 + step);
        plain.step(numbers(x.grad()), options);
        muon.step();
        const std::vector<double> got = numbers(x);
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], plain.value.at[i], tolerance()) << shape << ", step " << step;
      }
    }
}

TEST_P(MuonOn, AStepIsNearlyOrthogonal) {
  for (const Shape& shape : {Shape{16, 40}, Shape{40, 16}}) {
    const Tensor o = orthogonalize(test::normal(shape, 3).to(dtype()).to(device()));
    const Tensor wide = shape[0] > shape[1] ? o.transpose(0, 1) : o;
    const std::vector<double> gram = numbers(matmul(wide, wide.transpose(0, 1)));
    for (int64_t i = 0; i < 16; ++i)
      for (int64_t j = 0; j < 16; ++j)
        EXPECT_NEAR(gram[static_cast<size_t>(i * 16 + j)], i == j, 0.5) << i << ' ' << j;
  }
  const Tensor zero = zeros({3, 4}, {.dtype = dtype(), .device = device()});
  EXPECT_TRUE(array_equal(orthogonalize(zero), zero));
  EXPECT_THROW(orthogonalize(zeros({3})), ShapeError);
}

// Biases, embeddings and what else is named so.
TEST_P(MuonOn, WhatIsNoMatrixOrIsNamedGoesByAdamW) {
  const auto make = [] {
    return std::map<std::string, Tensor>{{"embedding", leaf({6, 4}, 1, DType::f32)},
                                         {"weight", leaf({4, 4}, 2, DType::f32)},
                                         {"bias", leaf({4}, 3, DType::f32)}};
  };
  const auto list = [](const std::map<std::string, Tensor>& tensors) {
    std::vector<Parameter> result;
    for (const auto& entry : tensors) result.push_back({entry.first, {}, entry.second});
    return Parameters(result);
  };
  const auto a = make(), b = make();
  Muon muon(list(a), {.lr = 0.01, .weight_decay = 0.1, .adam = {"emb*"}});
  AdamW adam(list(b), {.lr = 0.01, .beta2 = 0.95, .weight_decay = 0.1});
  for (uint64_t step = 0; step < 4; ++step) {
    for (const auto* tensors : {&a, &b})
      for (const auto& entry : *tensors) backward(entry.second, 20 + step);
    muon.step({.clip = 1});
    adam.step({.clip = 1});
  }
  for (const auto& entry : a)
    EXPECT_EQ(numbers(entry.second) == numbers(b.at(entry.first)), entry.first != "weight") << entry.first;
  std::string names;
  for (const auto& entry : muon.state()) names += entry.first + ' ';
  EXPECT_EQ(
      names,
      "step step.bias m.bias v.bias step.embedding m.embedding v.embedding step.weight momentum.weight ");
}

// The direction does not depend on a common factor, so what clipping changes shows in the momentum alone.
TEST_P(MuonOn, ClipsAndSkips) {
  const Tensor x = leaf({4, 6}, 1, dtype()), y = leaf({4, 6}, 1, dtype());
  Muon clipped(Parameters({{"x", {}, x}})), scaled(Parameters({{"x", {}, y}}));
  for (uint64_t step = 0; step < 3; ++step) {
    backward(x, step);
    backward(y, step);
    clip_gradient_norm(scaled.parameters(), 0.5);
    clipped.step({.clip = 0.5});
    scaled.step();
  }
  EXPECT_LE(test::max_difference(x.detach().to(kCpu), y.detach().to(kCpu)), tolerance());
  const std::vector<double> before = numbers(x);
  sum(x * double(INFINITY)).backward();
  EXPECT_TRUE(clipped.step({.clip = 1, .non_finite = NonFinite::skip}).skipped());
  EXPECT_EQ(numbers(x), before);
  EXPECT_EQ(clipped.steps(), 3);
  backward(x, 3);
  clipped.step({.clip = 1});
  for (const double v : numbers(x)) EXPECT_TRUE(std::isfinite(v));
}

template <class Kind>
void check_resume(Device device, DType dtype) {
  const auto make = [&] {
    return std::vector<Tensor>{test::normal({6, 5}, 1).to(dtype).to(device).set_requires_grad(),
                               test::normal({7}, 2).to(dtype).to(device).set_requires_grad()};
  };
  const auto list = [](const std::vector<Tensor>& t) {
    return Parameters({{"w", {}, t[0]}, {"b", {}, t[1]}});
  };
  const auto train = [](Optimizer& optimizer, const std::vector<Tensor>& tensors, uint64_t from,
                        uint64_t to) {
    for (uint64_t i = from; i < to; ++i) {
      for (const Tensor& x : tensors)
        sum(x * test::normal(x.shape(), 30 + i).to(x.dtype()).to(x.device())).backward();
      optimizer.step({.clip = 1});
    }
  };
  const auto whole = make(), stopped = make(), resumed = make();
  Kind one(list(whole)), two(list(stopped)), three(list(resumed));
  train(one, whole, 0, 7);
  train(two, stopped, 0, 3);
  three.load_state(two.state());
  {
    const NoGrad no_grad;
    for (size_t i = 0; i < 2; ++i) resumed[i].copy_(stopped[i]);
  }
  train(three, resumed, 3, 7);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(array_equal(whole[i].detach(), resumed[i].detach())) << dtype;
}

TEST_P(MuonOn, AResumedRunHasTheSameBits) {
  for (const DType of : {DType::f32, DType::bf16}) {
    check_resume<Muon>(device(), of);
    check_resume<Lion>(device(), of);
  }
}

// Lion's sign leaves no room: the same values but for rounding.
TEST_P(MuonOn, LionFollowsThePlainImplementation) {
  const Tensor x = leaf({37}, 1, dtype());
  Lion lion(Parameters({{"x", {}, x}}), {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1});
  std::vector<double> value = numbers(x), m(37);
  for (uint64_t step = 0; step < 20; ++step) {
    backward(x, step);
    const std::vector<double> g = numbers(x.grad());
    lion.step();
    for (size_t i = 0; i < 37; ++i) {
      const double direction = 0.8 * m[i] + 0.2 * g[i];
      value[i] -= 0.01 * ((direction > 0) - (direction < 0) + 0.1 * value[i]);
      m[i] = 0.95 * m[i] + 0.05 * g[i];
    }
    const std::vector<double> got = numbers(x);
    for (size_t i = 0; i < 37; ++i) ASSERT_NEAR(got[i], value[i], tolerance());
  }
}

template <class Kind>
void check_captured() {
  const auto run = [](bool capture) {
    const Tensor w = test::normal({6, 5}, 1).to(DType::f32).to(cuda_device()).set_requires_grad();
    const Tensor b = test::normal({5}, 2).to(DType::f32).to(cuda_device()).set_requires_grad();
    Kind optimizer(Parameters({{"w", {}, w}, {"b", {}, b}}));
    CapturedStep step(cuda_device(),
                      [&](const StepInputs& inputs) {
                        sum(square(matmul(inputs.tensors[0], w) + b)).backward();
                        optimizer.step({.clip = 1, .non_finite = NonFinite::skip});
                        return PooledVector<Tensor>{};
                      },
                      {.capture = capture});
    for (uint64_t i = 0; i < 6; ++i) {
      optimizer.set_lr(0.01 / static_cast<double>(i + 1));
      step({{i == 3 ? full({4, 6}, INFINITY) : test::normal({4, 6}, i).to(DType::f32)}, {}});
    }
    EXPECT_EQ(step.graphs(), capture);
    EXPECT_EQ(optimizer.steps(), 5);
    return w.detach().to_vector<float>();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Muon, ACapturedStepHasTheSameBits) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  check_captured<Muon>();
  check_captured<Lion>();
}

TEST(Muon, ImpossibleOptions) {
  const Parameters parameters({{"x", {}, test::normal({3, 3}, 1).to(DType::f32).set_requires_grad()}});
  EXPECT_THROW(Muon(parameters, {.momentum = 1}), ConfigError);
  EXPECT_THROW(Muon(parameters, {.iterations = 0}), ConfigError);
  EXPECT_THROW(Muon(parameters, {.eps = 0}), ConfigError);
  EXPECT_THROW(Muon(parameters, {.lr = -1}), ConfigError);
  test::expect_error<ConfigError>([&] { Muon(parameters, {.adam = {"*embedding*"}}); },
                                  {"Muon: the pattern '*embedding*' fits none"});
  parameters.to(DType::f64);  // nothing holds them
}

}  // namespace
}  // namespace heed::optim
