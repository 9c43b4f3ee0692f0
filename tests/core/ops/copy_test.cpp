#include <limits>

#include "reference.h"

namespace heed::test {
namespace {

constexpr DType kAllDTypes[] = {DType::f32, DType::bf16, DType::f64, DType::i64, DType::i32, DType::boolean};

/// CUDA has no f64.
std::vector<DType> dtypes_of(Device device) {
  std::vector<DType> all(std::begin(kAllDTypes), std::end(kAllDTypes));
  if (device.is_cuda()) std::erase(all, DType::f64);
  return all;
}

TEST(Copy, CloneAndContiguousHaveGradients) {
  for (const Shape& shape : awkward_shapes()) {
    check_op({.name = concat("clone ", shape),
              .inputs = {normal(shape, 1)},
              .function = [](const Tensors& in) { return one(in[0].clone()); },
              .reference =
                  [=](const Tensors& in) {
                    return one(build(shape, [&](const Place& p) { return at(in[0], p); }));
                  }});
    check_op({.name = concat("contiguous ", shape),
              .inputs = {normal(shape, 1)},
              .function = [](const Tensors& in) { return one(in[0].contiguous()); },
              .reference =
                  [=](const Tensors& in) {
                    return one(build(shape, [&](const Place& p) { return at(in[0], p); }));
                  }});
  }
}

TEST(Copy, ContiguousCopiesOnlyWhereItMust) {
  const Tensor x = arange(0, 24).reshape({2, 3, 4});
  EXPECT_EQ(x.contiguous().storage(), x.storage());
  EXPECT_EQ(x.slice(0, 1, 2).contiguous().storage(), x.storage());
  EXPECT_NE(x.clone().storage(), x.storage());
  for (const Shape& order : {Shape{2, 1, 0}, Shape{1, 0, 2}, Shape{0, 2, 1}, Shape{2, 0, 1}}) {
    const Tensor view = x.permute(order), copy = view.contiguous();
    EXPECT_TRUE(copy.is_contiguous());
    EXPECT_NE(copy.storage(), x.storage());
    EXPECT_TRUE(array_equal(copy, view));
    for_each_place(copy.shape(), [&](const Place& p) { EXPECT_EQ(at(copy, p), at(view, p)); });
  }
}

// Sizes that are powers of two, and as many axes as there can be.
TEST(Copy, AxesInAnyOrderOnEveryDevice) {
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{2, 2, 2, 2, 2, 2, 2, 2}}) {
    const Tensor x = arange(0, shape.numel()).reshape(shape);
    Shape turned;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) turned.append(axis);
    for (Device device : devices()) {
      const Tensor copy = x.to(device).permute(turned).contiguous().to(kCpu);
      EXPECT_EQ(copy.to_vector<int64_t>(), x.permute(turned).to_vector<int64_t>()) << shape << device;
    }
  }
}

// Rows that fill vectors and begin where none can.
// Sides that tiles end at and between, with axes beside them and gaps between rows.
TEST(Copy, LargeTransposedMatrices) {
  const Shape orders[] = {{1, 0, 2}, {0, 2, 1}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
  for (const Device device : devices())
    for (const DType dtype : dtypes_of(device))
      for (const Shape& shape : {Shape{8, 1, 33}, Shape{37, 3, 70}, Shape{5, 64, 32}, Shape{2, 7, 100}}) {
        const Tensor x = arange(0, shape.numel()).reshape(shape).slice(2, 1, shape[2]);
        const Tensor there =
            arange(0, shape.numel()).reshape(shape).to(dtype).to(device).slice(2, 1, shape[2]);
        for (const Shape& order : orders) {
          const Tensor copy = there.permute(order).contiguous().to(kCpu);
          EXPECT_EQ(copy.to(DType::i64).to_vector<int64_t>(),
                    x.permute(order).to(dtype).to(DType::i64).to_vector<int64_t>())
              << dtype << shape << order << device;
        }
      }
}

TEST(Copy, TransposedGradientsAreAdded) {
  for (const Device device : devices())
    for (const Shape& shape : {Shape{3, 5}, Shape{40, 70}, Shape{64, 33}}) {
      const Tensor straight = normal(shape, 1).to(DType::f32).to(device),
                   turned = normal({shape[1], shape[0]}, 2).to(DType::f32).to(device);
      const Tensor x = zeros_like(straight).set_requires_grad();
      (sum(x * straight) + sum(x.transpose(0, 1) * turned)).backward();
      EXPECT_TRUE(array_equal(x.grad(), straight + turned.transpose(0, 1).contiguous())) << shape << device;
    }
}

TEST(Copy, ColumnsOnEveryDevice) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i64, DType::boolean})
    for (Device device : devices()) {
      const Tensor x = arange(0, 3 * 17).reshape({3, 17}).to(dtype), left = x.to(device).slice(1, 0, 16);
      EXPECT_TRUE(array_equal(left.contiguous().to(kCpu), x.slice(1, 0, 16).contiguous())) << dtype << device;
    }
}

TEST(Copy, ConversionHasAGradient) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor x = tensor<double>({1.5, -2, 0.25}).set_requires_grad();
    const Tensor y = x.to(dtype);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.to(DType::f64).to_vector<double>(), (std::vector<double>{1.5, -2, 0.25}));
    y.backward(tensor<double>({1, 2, 3}).to(dtype));
    EXPECT_EQ(x.grad().dtype(), DType::f64);
    EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 2, 3}));
  }
  const Tensor x = zeros({2});
  EXPECT_EQ(x.to(DType::f32).storage(), x.storage());
  const Tensor leaf = zeros({2}).set_requires_grad();
  EXPECT_FALSE(leaf.to(DType::i64).requires_grad());
  EXPECT_FALSE(arange(0, 3).to(DType::f32).requires_grad());
}

TEST(Copy, EveryPairOfDTypes) {
  const Tensor values = tensor<double>({0, 1, -3, 100, 2.75, -2.75});
  for (Device device : devices())
    for (DType from : dtypes_of(device))
      for (DType to : dtypes_of(device)) {
        const Tensor x = values.to(from), y = x.to(device).to(to).to(kCpu);
        const std::vector<double> source = x.to(DType::f64).to_vector<double>();
        std::vector<double> expected;
        for (double value : source)
          expected.push_back(to == DType::boolean ? double(value != 0)
                             : is_floating(to)    ? value
                                                  : std::trunc(value));
        EXPECT_EQ(y.to(DType::f64).to_vector<double>(), expected) << from << " to " << to << " on " << device;
      }
}

TEST(Copy, ConversionToIntegersClamps) {
  const int32_t greatest = std::numeric_limits<int32_t>::max(), least = std::numeric_limits<int32_t>::min();
  const int64_t longest = std::numeric_limits<int64_t>::max(), shortest = std::numeric_limits<int64_t>::min();
  const Tensor x =
      tensor<double>({NAN, HUGE_VAL, -HUGE_VAL, 1e300, -1e300, 2147483647.5, -2147483648.5, 2147483648.0});
  EXPECT_EQ(x.to(DType::i32).to_vector<int32_t>(),
            (std::vector<int32_t>{0, greatest, least, greatest, least, greatest, least, greatest}));
  EXPECT_EQ(x.to(DType::i64).to_vector<int64_t>()[1], longest);
  EXPECT_EQ(x.to(DType::i64).to_vector<int64_t>()[2], shortest);
  for (Device device : devices()) {
    const Tensor y =
        tensor<float>({NAN, HUGE_VALF, -HUGE_VALF, 0x1p31f, -0x1p31f, 0x1p63f, -0x1p63f}).to(device);
    EXPECT_EQ(y.to(DType::i32).to_vector<int32_t>(),
              (std::vector<int32_t>{0, greatest, least, greatest, least, greatest, least}));
    EXPECT_EQ(y.to(DType::i64).to_vector<int64_t>(),
              (std::vector<int64_t>{0, longest, shortest, int64_t{1} << 31, least, longest, shortest}));
    EXPECT_TRUE(y.to(DType::boolean).to_vector<bool>()[0]);
    EXPECT_EQ(tensor<int64_t>({int64_t{1} << 32}).to(device).to(DType::i32).item<int64_t>(),
              0);  // integers keep their low bits
  }
}

// A number that no int32_t holds, in each place of rows of whole vectors and less.
TEST(Copy, ConversionToIntegersOfRows) {
  constexpr int64_t kLength = 37;
  const int64_t longest = std::numeric_limits<int64_t>::max(), shortest = std::numeric_limits<int64_t>::min();
  const std::pair<float, int64_t> larger[] = {{NAN, 0},
                                              {HUGE_VALF, longest},
                                              {-HUGE_VALF, shortest},
                                              {0x1p31f, int64_t{1} << 31},
                                              {-0x1p40f, -(int64_t{1} << 40)}};
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (int64_t place = 0; place < kLength; ++place)
        for (const auto& [value, whole] : larger) {
          std::vector<float> x(kLength);
          std::vector<int64_t> expected(kLength);
          for (int64_t i = 0; i < kLength; ++i) {
            x[static_cast<size_t>(i)] = static_cast<float>(i - 18) * 2.75f;  // exact in bf16
            expected[static_cast<size_t>(i)] = (i - 18) * 11 / 4;
          }
          x[static_cast<size_t>(place)] = x.back() = value;
          expected[static_cast<size_t>(place)] = expected.back() = whole;
          const Tensor y = tensor(x, {kLength}).to(dtype).to(device).to(DType::i64);
          EXPECT_EQ(y.to_vector<int64_t>(), expected) << dtype << device << place;
        }
}

// ---- in place

TEST(Copy, FillOfEveryLengthAndType) {
  for (const Device device : devices())
    for (const DType dtype : dtypes_of(device))
      for (int64_t length = 0; length < 70; ++length) {
        const Tensor x = zeros({length + 2}, {.dtype = dtype, .device = device});
        x.slice(0, 1, length + 1).fill_(1);
        std::vector<int64_t> expected(static_cast<size_t>(length + 2), 1);
        expected.front() = expected.back() = 0;
        EXPECT_EQ(x.to(DType::i64).to_vector<int64_t>(), expected) << dtype << device << length;
      }
}

TEST(Copy, FillWritesExactlyTheView) {
  for (DType dtype : kAllDTypes) {
    const Tensor x = zeros({4, 6}, {.dtype = dtype});
    x.slice(1, 1, 6, 2).slice(0, 1, 3).fill_(1);
    const Tensor expected = build(
        {4, 6}, [](const Place& p) { return double(p[0] >= 1 && p[0] < 3 && p[1] % 2 == 1); }, dtype);
    EXPECT_TRUE(array_equal(x, expected)) << x;
    x.transpose(0, 1).fill_(1);
    EXPECT_TRUE(array_equal(x, ones({4, 6}, {.dtype = dtype})));
    x.zero_();
    EXPECT_TRUE(array_equal(x, zeros({4, 6}, {.dtype = dtype})));
    x.slice(0, 0, 0).fill_(1);
  }
  EXPECT_TRUE(std::signbit(full({2}, -0.0).to_vector<float>()[1]));
  expect_error<ConfigError>([] { arange(0, 3).fill_(0.5); }, {"fill_", "0.5", "i64"});
  expect_error<ConfigError>([] { arange(0, 3).fill_(1e19); }, {"fill_", "1e+19"});
  expect_error<ConfigError>([] { arange(0, 3).fill_(NAN); }, {"fill_", "nan"});
}

TEST(Copy, CopyBroadcastsAndConverts) {
  const Tensor x = zeros({2, 3});
  x.copy_(tensor<int64_t>({1, 2, 3}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2, 3, 1, 2, 3}));
  x.select(1, 1).copy_(scalar(7.5, {.dtype = DType::bf16}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 7.5, 3, 1, 7.5, 3}));
  x.transpose(0, 1).copy_(arange(0, 6).reshape({3, 2}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 2, 4, 1, 3, 5}));
  expect_error<ShapeError>([&] { x.copy_(zeros({2, 4})); }, {"copy_", "[2, 4]", "[2, 3]"});
  expect_error<ShapeError>([&] { x.copy_(zeros({5, 2, 3})); }, {"copy_", "[5, 2, 3]", "[2, 3]"});
  expect_error<ShapeError>([&] { x.slice(1, 0, 1).copy_(x); },
                           {"copy_", "[2, 3] does not broadcast", "[2, 1]"});
}

TEST(Copy, OverlappingSourceIsReadFirst) {
  const Tensor x = arange(0, 8);
  x.slice(0, 1, 8).copy_(x.slice(0, 0, 7));
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 2, 3, 4, 5, 6}));
  const Tensor square = arange(0, 9).reshape({3, 3});
  square.copy_(square.transpose(0, 1));
  EXPECT_EQ(square.to_vector<int64_t>(), (std::vector<int64_t>{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  square.add_(square.transpose(0, 1));
  EXPECT_EQ(square.to_vector<int64_t>(), (std::vector<int64_t>{0, 4, 8, 4, 8, 12, 8, 12, 16}));
  square.add_(square.select(0, 1));
  EXPECT_EQ(square.to_vector<int64_t>(), (std::vector<int64_t>{4, 12, 20, 8, 16, 24, 12, 20, 28}));
  square.copy_(square);
  square.add_(square);
  EXPECT_EQ(square.to_vector<int64_t>()[8], 56);
}

TEST(Copy, AddAndMultiply) {
  for (Device device : devices())
    for (DType to : dtypes_of(device))
      for (DType from : dtypes_of(device)) {
        if (to == DType::boolean) continue;
        const Tensor x = full({2, 3}, 2, {.dtype = to, .device = device}),
                     y = tensor<int64_t>({0, 1, 1}).to(from).to(device);
        if (!is_floating(to) && is_floating(from)) {
          expect_error<DTypeError>([&] { x.add_(y); }, {"add_", concat(from), concat(to)});
          continue;
        }
        x.add_(y).mul_(3);
        EXPECT_EQ(x.to(kCpu).to(DType::f64).to_vector<double>(), (std::vector<double>{6, 9, 9, 6, 9, 9}))
            << from << to << device;
      }
  const Tensor x = ones({3, 4});
  x.slice(1, 0, 4, 2).add_(scalar(2)).mul_(0.5);
  EXPECT_EQ(x.select(0, 2).to_vector<float>(), (std::vector<float>{1.5, 1, 1.5, 1}));
  // One rounding, from the exact sum: 256 + 1 + 1 in bf16, added as f32.
  for (Device device : devices()) {
    const Tensor coarse = full({1}, 256, {.dtype = DType::bf16, .device = device});
    coarse.add_(tensor<float>({2.0f}).to(device));
    EXPECT_EQ(coarse.item<double>(), 258);
  }
  zeros({0, 3}).add_(zeros({3})).mul_(2);
  expect_error<ShapeError>([&] { x.add_(zeros({4, 4})); }, {"add_", "[4, 4]", "[3, 4]"});
  expect_error<ShapeError>([&] { x.add_(zeros({2, 3, 4})); }, {"add_", "[2, 3, 4]"});
  expect_error<ConfigError>([&] { arange(0, 3).mul_(0.5); }, {"mul_", "0.5", "i64"});
  expect_error<DTypeError>([&] { zeros({2}, {.dtype = DType::boolean}).mul_(1); }, {"mul_", "bool"});
  expect_error<DTypeError>([&] { zeros({2}, {.dtype = DType::boolean}).add_(zeros({2})); }, {"add_", "bool"});
}

TEST(Copy, VersionsCountTheWrites) {
  const Tensor x = zeros({4});
  int64_t version = x.version();
  for (const std::function<void()>& write : std::vector<std::function<void()>>{
           [&] { x.fill_(1); }, [&] { x.zero_(); }, [&] { x.copy_(ones({4})); }, [&] { x.add_(x); },
           [&] { x.mul_(2); }, [&] { x.slice(0, 0, 2).fill_(3); }}) {
    write();
    EXPECT_EQ(x.version(), ++version);
  }
  EXPECT_THROW(x.copy_(zeros({5})), ShapeError);
  EXPECT_EQ(x.version(), version);  // nothing was written
}

const std::vector<std::function<void(const Tensor&)>>& writes() {
  static const std::vector<std::function<void(const Tensor&)>> all = {
      [](const Tensor& x) { x.fill_(1); }, [](const Tensor& x) { x.zero_(); },
      [](const Tensor& x) { x.copy_(ones({1})); }, [](const Tensor& x) { x.add_(ones({1})); },
      [](const Tensor& x) { x.mul_(2); }};
  return all;
}

TEST(Copy, OverlappingTargetsAreRefused) {
  for (const auto& write : writes()) {
    const Tensor x = zeros({3, 1});
    expect_error<AliasError>([&] { write(x.expand({3, 4})); }, {"overlap", "axis 1", "[3, 4]", "clone()"});
    expect_error<AliasError>([&] { write(scalar(0).expand({2, 2}).transpose(0, 1)); }, {"overlap"});
    write(x.expand({2, 3, 1}).select(0, 0));
    write(x.expand({1, 3, 1}));
    write(x.expand({3, 0}));
  }
}

TEST(Copy, LeavesAndResultsAreRefusedWhileRecording) {
  for (const auto& write : writes()) {
    const Tensor leaf = ones({3}).set_requires_grad(), result = leaf * 2.0;
    expect_error<AutogradError>([&] { write(leaf); },
                                {"a leaf that requires a gradient", "NoGrad", "detach()"});
    expect_error<AutogradError>([&] { write(result); }, {"the result of multiply"});
    expect_error<AutogradError>([&] { write(leaf.slice(0, 0, 1)); }, {"the result of slice"});
    EXPECT_EQ(leaf.to_vector<float>(), (std::vector<float>{1, 1, 1}));
    const NoGrad no_grad;
    write(leaf);
    write(result);
  }
  const Tensor leaf = ones({3}).set_requires_grad(), x = zeros({3});
  expect_error<AutogradError>([&] { x.copy_(leaf); }, {"copy_", "source requires a gradient", "detach()"});
  expect_error<AutogradError>([&] { x.add_(leaf * 2.0); }, {"add_", "source requires a gradient"});
  x.add_(leaf.detach());
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 1, 1}));
}

// Each operation that keeps something, and each write to what it may keep: the right gradient or an error.
TEST(Copy, NoWriteGoesUnnoticed) {
  const std::vector<std::function<Tensor(const Tensor&, const Tensor&)>> operations = {
      add,
      subtract,
      multiply,
      divide,
      [](const Tensor& a, const Tensor& b) { return maximum(a, b); },
      [](const Tensor& a, const Tensor& b) { return power(a, b); },
      [](const Tensor& a, const Tensor& b) { return matmul(a, b); },
      [](const Tensor& a, const Tensor& b) { return exp(a) + tanh(b); },
      [](const Tensor& a, const Tensor& b) { return sqrt(a) + log(b); },
      [](const Tensor& a, const Tensor& b) { return norm(a, {.axes = {1}, .keep = true}) + variance(b); },
      [](const Tensor& a, const Tensor& b) { return max(a, {.axes = {0}}) + logsumexp(b, {.axes = {0}}); },
      [](const Tensor& a, const Tensor& b) {
        return cat({a.slice(0, 1, 2), b}, 0);
      }};
  int noticed = 0;
  for (const auto& operation : operations)
    for (int written = 0; written < 3; ++written)  // the left, the right, the result
      for (const auto& write : writes()) {
        const auto run = [&](bool change) {
          const Tensor x = uniform({2, 2}, 0.5, 2, 1).set_requires_grad(),
                       w = uniform({2, 2}, 0.5, 2, 2).set_requires_grad();
          const Tensor y = operation(x, w);
          if (change) write((written == 0 ? x : written == 1 ? w : y).detach().slice(0, 1, 2));
          y.backward(uniform(y.shape(), -1, 1, 3));
          return Tensors{x.grad(), w.grad()};
        };
        const Tensors expected = run(false);
        try {
          const Tensors got = run(true);
          EXPECT_TRUE(array_equal(got[0], expected[0]) && array_equal(got[1], expected[1]));
        } catch (const AutogradError& error) {
          ++noticed;
          EXPECT_NE(std::string(error.what()).find("changed in place"), std::string::npos);
        }
      }
  EXPECT_GT(noticed, 60);
}

TEST(Copy, AnItemOfAnIntegerIsExact) {
  const int64_t odd = (int64_t{1} << 62) + 1;
  EXPECT_EQ(tensor<int64_t>({odd}).item<int64_t>(), odd) << "a double would round it";
  EXPECT_EQ(full({1}, 2.75).item<int64_t>(), 2);
}

TEST(Copy, DevicesThatAreNotThere) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a CUDA device";
  expect_error<DeviceError>([] { zeros({2}).to(cuda_device()); }, {"CUDA"});
}

TEST(Copy, BetweenDevices) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Tensor x = normal({3, 5}, 1).to(DType::f32).set_requires_grad();
  const Tensor there = x.transpose(0, 1).to(cuda_device());
  EXPECT_EQ(there.device(), cuda_device());
  EXPECT_TRUE(array_equal(there.detach().to(kCpu), x.detach().transpose(0, 1)));
  EXPECT_TRUE(array_equal(there.detach().clone().to(kCpu), x.detach().transpose(0, 1)));
  there.backward(ones({5, 3}).to(cuda_device()));
  EXPECT_TRUE(array_equal(x.grad(), ones({3, 5})));
  const Tensor target = zeros({5, 3}, {.device = cuda_device()});
  target.copy_(tensor<int64_t>({1, 2, 3}));
  EXPECT_EQ(target.select(0, 4).to_vector<float>(), (std::vector<float>{1, 2, 3}));
  target.zero_();
  EXPECT_TRUE(array_equal(target.to(kCpu), zeros({5, 3})));
  const Tensor here = zeros({2, 5, 3});
  here.copy_(there.detach());
  EXPECT_TRUE(array_equal(here.select(0, 1), x.detach().transpose(0, 1)));
  expect_error<DeviceError>([&] { here.add_(there.detach()); }, {"add_", "cpu and cuda"});
}

}  // namespace
}  // namespace heed::test
