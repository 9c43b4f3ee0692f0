// Wrong ids and indices are the same errors on a device as on the CPU: reported where the host next waits for
// the device, or reads what a captured step returned.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/index_put.h>
#include <heed/core/ops.h>
#include <heed/core/runtime/captured_step.h>

#include "expect_error.h"
#include "op_check.h"

namespace heed::test {
namespace {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const IndexError& error) {
    return error.what();
  }
  return "nothing thrown";
}

// An operation that is given one wrong index, at `device`, and waits for the result.
struct Case {
  const char* expected;
  std::function<Tensor(Device)> call;
};

Tensor ids(const std::vector<int64_t>& values, Device device) {
  return tensor(values, {static_cast<int64_t>(values.size())}, device);
}

std::vector<Case> cases() {
  const auto table = [](Device device) { return ones({4, 8}, {.device = device}); };
  return {
      {"embedding: id 4 in row 1 is outside the table; expected 0 to 3, or -1 for no token",
       [=](Device at) {
         return embedding(ids({-1, 4, 0}, at), table(at));
       }},
      {"embedding: id -2 in row 2 is outside the table; expected 0 to 3, or -1 for no token",
       [=](Device at) {
         return embedding(ids({0, 1, -2}, at), table(at));
       }},
      {"embedding: position 2 in row 0 is outside the table of 2 positions; a longer sequence needs a larger "
       "one",
       [=](Device at) {
         const Tensor positions = ones({2, 8}, {.device = at});
         return embedding(ids({3, -1}, at), table(at),
                          {.position = positions, .position_ids = ids({2, 9}, at)});
       }},
      {"cross_entropy: target 8 in row 3 is not a class; expected 0 to 7, or the ignored id for a row to "
       "leave out",
       [=](Device at) {
         return cross_entropy(table(at), ids({0, -100, 7, 8}, at));
       }},
      {"cross_entropy: target -1 in row 0 is not a class; expected 0 to 7, or the ignored id for a row to "
       "leave out",
       [=](Device at) {
         return cross_entropy(table(at), ids({-1, 0, 0, 0}, at));
       }},
      {"gather: index 4 at element 5 of the index is not in [0, 3]",
       [=](Device at) {
         return gather(table(at), 0, ids({0, 1, 2, 3, 0, 4}, at).reshape({3, 2}));
       }},
      {"gather: index -1 at element 1 of the index is not in [0, 7]",  // element 2 as it lies in memory
       [=](Device at) {
         return gather(table(at), 1, ids({0, 1, -1, 2, 3, 4}, at).reshape({3, 2}).transpose(0, 1));
       }},
      {"scatter_add: index 9 at element 3 of the index is not in [0, 3]",
       [=](Device at) {
         const Tensor index = ids({0, 1, 2, 9}, at).reshape({2, 2});
         return scatter_add(table(at), 0, index, ones({2, 2}, {.device = at}));
       }},
      {"scatter_add: index 8 at element 1 of the index is not in [0, 7]",
       [=](Device at) {
         const Tensor index = ids({0, 1, 8, 2}, at).reshape({2, 2}).transpose(0, 1);
         return scatter_add(table(at), 1, index, ones({2, 2}, {.device = at}));
       }},
      {"index_select: index 4 at element 1 of the index is not in [0, 3], nor -1 for a row of zeros",
       [=](Device at) {
         return index_select(table(at), ids({-1, 4}, at));
       }},
      {"index_put: index 4 at element 2 of the index is not in [0, 3]",
       [=](Device at) {
         const Tensor written = table(at);
         index_put_(written, ids({0, -1, 4}, at), ones({3, 8}, {.device = at}));
         return written;
       }},
      {"one_hot: index 3 at element 2 of the index is not in [0, 2]",
       [=](Device at) {
         return one_hot(ids({0, 2, 3}, at), 3);
       }},
  };
}

TEST(WrongIndex, EachDeviceNamesOperationIndexAndBound) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.expected);
    EXPECT_EQ(error_of([&] { one.call(kCpu); }), one.expected);
    if (cuda_device_count() == 0) continue;
    const Tensor y = one.call(cuda_device());  // waits for nothing
    EXPECT_EQ(error_of([&] { synchronize(cuda_device()); }), one.expected);
    synchronize(cuda_device());  // once is enough
    one.call(cuda_device());
    EXPECT_EQ(error_of([&] { zeros({1}, {.device = cuda_device()}).item<double>(); }), one.expected)
        << "whatever is read next";
    EXPECT_EQ(y.to(kCpu).numel(), y.numel()) << "the device can be used as before";
  }
}

TEST(WrongIndex, TheFirstOperationIsNamed) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const std::vector<Case> all = cases();
  for (const Case& one : all) one.call(cuda_device());
  EXPECT_EQ(error_of([] { synchronize(cuda_device()); }), all[0].expected);
  synchronize(cuda_device());
}

TEST(WrongIndex, RightOnesAreComputedAndWrongOnesChangeNothing) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device at = cuda_device();
  const auto values = [&](const Tensor& x) {
    EXPECT_THROW(synchronize(at), IndexError);
    return x.to_vector<float>();
  };
  const Tensor table = arange(1, 5).to(DType::f32).to(at);
  const std::vector<float> chosen = values(index_select(table, ids({2, 4, -1}, at)));
  EXPECT_EQ(chosen[0], 3);
  EXPECT_TRUE(std::isnan(chosen[1]));
  EXPECT_EQ(chosen[2], 0);
  const std::vector<float> gathered = values(gather(table, 0, ids({-1, 1}, at)));
  EXPECT_TRUE(std::isnan(gathered[0]));
  EXPECT_EQ(gathered[1], 2);
  EXPECT_EQ(values(scatter_add(table, 0, ids({0, 4, -1, 3}, at), ones({4}, {.device = at}))),
            (std::vector<float>{2, 2, 3, 5}));
  const std::vector<float> rows = values(embedding(ids({1, 9}, at), table.reshape({4, 1}), {.scale = 2}));
  EXPECT_EQ(rows[0], 4);
  EXPECT_TRUE(std::isnan(rows[1]));
  const Tensor flags = tensor({true, true}, at);
  const Tensor flag = gather(flags, 0, ids({2, 1}, at));
  EXPECT_THROW(synchronize(at), IndexError);
  EXPECT_EQ(flag.to_vector<bool>(), (std::vector<bool>{false, true}));
}

TEST(WrongIndex, ACapturedStepSaysSoWithItsResult) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Tensor table = ones({4, 2}, {.device = cuda_device()});
  CapturedStep step(cuda_device(), [&](const StepInputs& in) {
    return PooledVector<Tensor>{sum(embedding(in.tensors[0], table)),
                                sum(gather(table, 0, in.tensors[1].reshape({1, 2})))};
  });
  const auto inputs = [](int64_t id, int64_t index) {
    return StepInputs{{tensor<int64_t>({0, id, 1}), tensor<int64_t>({index, 0})}, {}};
  };
  const std::string id = "embedding: id 7 in row 1 is outside the table; expected 0 to 3, or -1 for no token";
  for (int i = 0; i < 3; ++i) {  // a call, a capture, a repetition
    SCOPED_TRACE(i);
    StepOutputs wrong = step(inputs(7, 0));
    StepOutputs right = step(inputs(3, 1));  // under way before the outcome is known
    EXPECT_EQ(error_of([&] { wrong.get(); }), id);
    EXPECT_EQ(error_of([&] { wrong.get(); }), id) << "as often as one asks";
    EXPECT_EQ(right.get()[0].item<float>(), 6);
    EXPECT_EQ(error_of([&] { step(inputs(0, 4)).get(); }),
              "gather: index 4 at element 0 of the index is not in [0, 3]");
    EXPECT_EQ(step(inputs(2, 0)).get()[1].item<float>(), 2);
    synchronize(cuda_device());
  }
  EXPECT_EQ(step.graphs(), 1);
}

}  // namespace
}  // namespace heed::test
