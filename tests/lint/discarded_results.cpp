// The compiler must warn of each line that ends in "// lost", and of no other.
#include <heed/core/attention.h>
#include <heed/core/autograd/gradient_check.h>
#include <heed/core/ops.h>

using namespace heed;

void results(const Tensor& x, const Segments& segments) {
  x.to(DType::f64);            // lost
  x.to(kCpu);                  // lost
  x.reshape({-1});             // lost
  x.detach();                  // lost
  x[0];                        // lost
  x + x;                       // lost
  x * 2.0;                     // lost
  sum(x);                      // lost
  topk(x, 1);                  // lost
  where(greater(x, 0), x, 0);  // lost
  check_gradients({}, {x});    // lost
  attention(x, x, x, segments, {});
  x.fill_(1);
  record("kept", {x}, x.clone(), [](const GradIn&, GradOut&) {});
}

void scopes() {
  NoGrad();           // lost
  DetectAnomaly();    // lost
  AttentionRecord();  // lost
  NoGrad no_grad;
}
