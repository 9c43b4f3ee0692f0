// An operation of one's own, made of others, with its gradient by hand.
#include <iostream>

#include <heed/core/autograd/gradient_check.h>
#include <heed/core/ops.h>

using namespace heed;

// log(1 + exp(x)), which does not overflow.
Tensor smooth_relu(const Tensor& x) {
  const Tensor d = x.detach();  // what is computed here is not recorded
  const Tensor y = maximum(d, 0) + log(1.0 + exp(-abs(d)));
  return record("smooth_relu", {x}, y,
                [x = save(x)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * sigmoid(*x)); });
}

int main() {
  manual_seed(1);
  const auto f = [](const std::vector<Tensor>& in) { return smooth_relu(in[0]); };
  const GradientReport right = check_gradients(f, {randn({3, 4}, {.dtype = DType::f64})});
  std::cout << "smooth_relu: " << right << "\n";

  // x² with a factor forgotten.
  const auto square_without_2 = [](const std::vector<Tensor>& in) {
    const Tensor& x = in[0];
    return record("square", {x}, square(x.detach()),
                  [x = save(x)](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0] * *x); });
  };
  const GradientReport wrong = check_gradients(square_without_2, {arange(1, 4, 1, {.dtype = DType::f64})});
  std::cout << "a wrong one: " << wrong << "\n";
  return right.passed() && !wrong.passed() ? 0 : 1;
}
