// A guard that ends at once and a copy that nobody looks at do nothing: the compiler says so. HEED_STATEMENT
// is such a statement.
#include <heed/core/attention.h>
#include <heed/core/autograd/autograd.h>
#include <heed/core/generator.h>
#include <heed/core/tensor.h>
#include <heed/optim/ema.h>

void function([[maybe_unused]] const heed::Tensor& x, [[maybe_unused]] heed::Generator& generator,
              [[maybe_unused]] heed::optim::Ema& ema) {
  using namespace heed;
  HEED_STATEMENT;
}
