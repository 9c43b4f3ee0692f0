// LSTM and GRU against PyTorch, in f64 over packed sequences and in f32 on every device: output, last states,
// and gradients of parameters, input and first states.
#include <heed/nn/layers/recurrent.h>

#include "expect_error.h"
#include "fixture.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::test {
namespace {

const std::vector<int32_t> kLengths{3, 6, 1, 4};
constexpr int64_t kIn = 5, kHidden = 4, kRows = 14;

struct Net {
  std::string label;
  bool lstm;
  nn::RecurrentConfig config;
  Fixture fixture;
  std::unique_ptr<nn::Recurrent> module;
  Tensor x;
  nn::RecurrentState first;
  nn::RecurrentResult result;

  Net(const std::string& name, DType dtype, Device device)
      : label(name), lstm(name.rfind("lstm", 0) == 0), fixture("recurrent", name) {
    config.bias = name.find("no_bias") == name.npos;
    if (name.find("deep") != name.npos) config.layers = 2, config.bidirectional = true;
    if (lstm)
      module = std::make_unique<nn::LSTM>(kIn, kHidden, config);
    else
      module = std::make_unique<nn::GRU>(kIn, kHidden, config);
    move(*module, dtype, device);
    fill_parameters(module->parameters(), fixture);
    const auto input = [&](uint64_t key, const Shape& shape) {
      return golden_input(key, shape).to(dtype).to(device).set_requires_grad();
    };
    const int64_t states = config.layers * (config.bidirectional ? 2 : 1);
    x = input(1000, {kRows, kIn});
    first.hidden = input(1001, {states, 4, kHidden});
    if (lstm) first.cell = input(1002, {states, 4, kHidden});
    result = (*module)(x, Segments::packed(kLengths), first);
  }

  // In the order of the fixture's.
  std::vector<std::pair<std::string, Tensor>> results() const {
    std::vector<std::pair<std::string, Tensor>> all{{"output", result.output},
                                                    {"hidden", result.state.hidden}};
    if (lstm) all.emplace_back("cell", result.state.cell);
    return all;
  }

  std::vector<std::pair<std::string, Tensor>> gradients() const {
    Tensor loss;
    uint64_t key = 2000;
    for (const auto& [name, value] : results()) {
      const Tensor part =
          sum(value * golden_input(key++, value.shape()).to(value.dtype()).to(value.device()));
      loss = loss.defined() ? loss + part : part;
    }
    loss.backward();
    std::vector<std::pair<std::string, Tensor>> all{{"x", x.grad()}, {"hidden_0", first.hidden.grad()}};
    if (lstm) all.emplace_back("cell_0", first.cell.grad());
    for (const Parameter& p : module->parameters()) all.emplace_back(p.name, p.tensor.grad());
    return all;
  }
};

class RecurrentParity : public ::testing::TestWithParam<const char*> {};

TEST_P(RecurrentParity, WithPyTorch) {
  const Net net(GetParam(), DType::f64, kCpu);
  for (const auto& [name, value] : net.results())
    EXPECT_LE(difference(value, net.fixture[name]), 1e-10) << name;
  const auto gradients = net.gradients();
  EXPECT_EQ(gradients.size(), net.fixture.names("gradient").size());
  for (const auto& [name, value] : gradients)
    EXPECT_LE(difference(value, net.fixture["gradient/" + name]), 1e-10) << name;
  check_f32([&](DType dtype, Device device) {
    const Net each(GetParam(), dtype, device);
    Tensors all;
    for (const auto& entry : each.results()) all.push_back(entry.second);
    for (const auto& entry : each.gradients()) all.push_back(entry.second);
    return all;
  });
}

INSTANTIATE_TEST_SUITE_P(All, RecurrentParity,
                         ::testing::Values("lstm", "lstm_no_bias", "lstm_deep", "gru", "gru_no_bias",
                                           "gru_deep"));

// One step after the other, with the state handed on, is what all at once is.
TEST(RecurrentModule, StateCarriesOn) {
  const nn::GRU gru(3, 4, {.layers = 2});
  const NoGrad no_grad;
  const Tensor x = randn({5, 3});
  const Tensor whole = gru(x, Segments::packed(std::vector<int32_t>{5})).output;
  nn::RecurrentState state;
  for (int64_t t = 0; t < 5; ++t) {
    const nn::RecurrentResult step =
        gru(x.slice(0, t, t + 1), Segments::packed(std::vector<int32_t>{1}), state);
    state = step.state;
    EXPECT_LE(max_difference(step.output, whole.slice(0, t, t + 1)), 1e-6);
  }
}

TEST(RecurrentModule, DropoutActsBetweenLayersInTraining) {
  const Segments batch = Segments::packed(std::vector<int32_t>{4});
  const Tensor x = randn({4, 3});
  nn::LSTM one(3, 8, {.dropout = 0.5}), two(3, 8, {.layers = 2, .dropout = 0.5});
  EXPECT_EQ(max_difference(one(x, batch).output, one(x, batch).output), 0);
  EXPECT_GT(max_difference(two(x, batch).output, two(x, batch).output), 0);
  two.eval();
  EXPECT_EQ(max_difference(two(x, batch).output, two(x, batch).output), 0);
}

TEST(RecurrentModule, NamesShapesAndErrors) {
  nn::LSTM lstm(3, 2, {.layers = 2, .bidirectional = true});
  EXPECT_EQ(lstm.describe(), "LSTM(3, 2, layers 2, bidirectional)");
  EXPECT_EQ(lstm.parameters().size(), 16);
  EXPECT_EQ(lstm.parameters().find("weight_ih_l1_reverse")->tensor.shape(), (Shape{8, 4}));
  const Segments batch = Segments::packed(std::vector<int32_t>{4});
  expect_error<ShapeError>([&] { lstm(zeros({4, 2}), batch); }, {"LSTM: x is [4, 2], expected [rows, 3]"});
  expect_error<ShapeError>(
      [&] {
        lstm(zeros({4, 3}), batch, {.hidden = zeros({1, 1, 2})});
      },
      {"LSTM: a state is [1, 1, 2], expected [4, 1, 2]"});
  expect_error<ConfigError>(
      [&] {
        nn::GRU(3, 2)(zeros({4, 3}), batch, {.cell = zeros({1, 1, 2})});
      },
      {"GRU: it has no cell state"});
  expect_error<ConfigError>([&] { nn::GRU(3, 0); }, {"hidden = 0"});
  expect_error<ConfigError>([&] { nn::GRU(3, 2, {.dropout = 1}); }, {"GRU"});
}

}  // namespace
}  // namespace heed::test
