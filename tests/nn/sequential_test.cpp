#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/layers/dropout.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/parts.h>
#include <heed/nn/sequential.h>

namespace heed::nn {
namespace {

std::vector<std::string> names(Module& module) {
  std::vector<std::string> all;
  for (const Parameter& parameter : module.parameters()) all.push_back(parameter.name);
  return all;
}

TEST(Sequential, AppliesItsStepsInOrder) {
  manual_seed(3);
  Sequential model;
  model.add<Linear>(3, 5).add(relu).add<Linear>(5, 2, false);
  EXPECT_EQ(names(model), (std::vector<std::string>{"0.weight", "0.bias", "2.weight"}));
  EXPECT_EQ(model.size(), 3);
  const Tensor x = randn({4, 3});
  const Parameters p = model.parameters();
  const Tensor by_hand = linear(relu(linear(x, p[0].tensor, p[1].tensor)), p[2].tensor, {});
  EXPECT_TRUE(array_equal(model(x), by_hand));
  sum(model(x)).backward();
  for (const Parameter& parameter : p) EXPECT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
}

TEST(Sequential, PassesTrainAndEvalOn) {
  manual_seed(3);
  Sequential model;
  model.add<Dropout>(0.5);
  const Tensor x = ones({100});
  EXPECT_FALSE(array_equal(model(x), x));
  model.eval();
  EXPECT_TRUE(array_equal(model(x), x));
}

TEST(Sequential, WithoutStepsIsTheIdentity) {
  Sequential model;
  const Tensor x = ones({2});
  EXPECT_TRUE(array_equal(model(x), x));
  EXPECT_THROW(model.add(std::function<Tensor(const Tensor&)>()), ConfigError);
}

struct Parted : Module {
  Linear first{2, 3}, second{3, 1};
  Tensor scale = ones({1}).set_requires_grad();
  ModuleList<Linear> more;
  HEED_PARTS(first, second, scale, more)
  std::string describe() const override { return "Parted"; }
};

TEST(Parts, AreNamedAsTheMembers) {
  Parted model;
  model.more.add(4, 4, false);
  model.more.add(4, 2, false);
  EXPECT_EQ(names(model),
            (std::vector<std::string>{"first.weight", "first.bias", "second.weight", "second.bias", "scale",
                                      "more.0.weight", "more.1.weight"}));
}

TEST(ModuleList, ChecksItsIndex) {
  ModuleList<Linear> list;
  EXPECT_EQ(list.add(2, 2).weight.size(0), 2);
  EXPECT_EQ(&list[0], &list[0]);
  EXPECT_THROW(list[1], IndexError);
  EXPECT_THROW(list[-1], IndexError);
}

}  // namespace
}  // namespace heed::nn
