// A small convolutional network that tells in which direction a stroke in a noisy picture goes.
#include <heed/heed.h>
using namespace heed;

constexpr int64_t kSize = 12, kLength = 6,
                  kDirections[4][2] = {{0, 1}, {1, 0}, {1, 1}, {1, -1}};  // row, column

struct Pictures {
  Tensor images, directions;  // [count, 1, kSize, kSize], i64 [count]
};
Pictures draw(int64_t count) {
  const Tensor images = randn({count, 1, kSize, kSize}) * 0.3, directions = randint(0, 4, {count});
  const std::vector<int64_t> places = randint(0, kSize - kLength + 1, {2 * count}).to_vector<int64_t>();
  for (int64_t n = 0; n < count; ++n) {
    const auto [down, right] = kDirections[directions.data<int64_t>()[n]];
    const int64_t row = places[2 * n], col = places[2 * n + 1] + (right < 0 ? kLength - 1 : 0);
    for (int64_t i = 0; i < kLength; ++i)
      images.data<float>()[(n * kSize + row + i * down) * kSize + col + i * right] += 1;
  }
  return {images, directions};
}

int main() {
  nn::Sequential model;
  model.add<nn::Conv2d>(1, 8, 3, Convolution2dOptions{.padding = 1}).add<nn::BatchNorm2d>(8).add(relu);
  model.add<nn::MaxPool2d>(2).add<nn::Conv2d>(8, 16, 3, Convolution2dOptions{.padding = 1}).add(relu);
  model.add([](const Tensor& x) { return max(x, {.axes = {2, 3}}); }).add<nn::Linear>(16, 4);
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  for (int step = 0; step < 200; ++step) {
    const Pictures batch = draw(64);
    cross_entropy(model(batch.images), batch.directions).backward();
    adam.step();
  }
  model.eval();
  const Pictures test = draw(1000);
  const double right =
      mean(equal(argmax(model(test.images), 1), test.directions).to(DType::f32)).item<double>();
  std::cout << "right: " << 100 * right << " %\n";
  return right > 0.98 ? 0 : 1;
}
