// An operation of one's own that reads and writes memory itself.
#include <cmath>
#include <iostream>

#include <heed/core/autograd/gradient_check.h>
#include <heed/core/ops.h>

using namespace heed;

// sqrt(a² + b²), element by element, on the CPU.
Tensor hypotenuse(const Tensor& a, const Tensor& b) {
  HEED_CHECK(a.shape() == b.shape() && a.dtype() == b.dtype(), ShapeError, "hypotenuse: a is ", a.dtype(),
             " ", a.shape(), ", b ", b.dtype(), " ", b.shape(), "; they must be equal");
  HEED_CHECK(a.device().is_cpu() && b.device().is_cpu(), DeviceError, "hypotenuse: runs on the cpu only");
  const Tensor left = a.detach().contiguous(), right = b.detach().contiguous(), y = empty_like(left);
  visit_floating(a.dtype(), "hypotenuse", [&]<class T>() {
    const T *l = left.data<T>(), *r = right.data<T>();
    for (int64_t i = 0; i < y.numel(); ++i) y.data<T>()[i] = T(std::hypot(math_t<T>(l[i]), math_t<T>(r[i])));
  });
  return record("hypotenuse", {a, b}, y,
                [left = save(left), right = save(right), y = save(y)](const GradIn& gy, GradOut& gx) {
                  const Tensor sides[] = {*left, *right}, length = *y, g = gy[0].contiguous();
                  for (int input = 0; input < 2; ++input) {
                    if (!gx.wants(input)) continue;
                    const GradSlot to = gx.into(input);
                    visit_floating(g.dtype(), "hypotenuse", [&]<class T>() {
                      const T *side = sides[input].data<T>(), *long_side = length.data<T>(),
                              *from = g.data<T>();
                      T* sum = to.tensor.data<T>();
                      for (int64_t i = 0; i < g.numel(); ++i) {
                        const T part = from[i] * (side[i] / long_side[i]);
                        sum[i] = to.accumulate ? T(sum[i] + part) : part;
                      }
                    });
                  }
                });
}

int main() {
  manual_seed(1);
  const auto f = [](const std::vector<Tensor>& in) { return hypotenuse(in[0], in[1]); };
  const Tensor a = randn({3, 4}, {.dtype = DType::f64}), b = randn({3, 4}, a.options());
  const GradientReport report = check_gradients(f, {a, b});
  std::cout << "hypotenuse: " << report << "\n";
  std::cout << "twice the same: "
            << check_gradients([](const auto& in) { return hypotenuse(in[0], in[0]); }, {a}) << "\n";
  return report.passed() ? 0 : 1;
}
