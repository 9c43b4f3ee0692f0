#include <cmath>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/core/losses.h>
#include <heed/core/ops.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/declare.h>
#include <heed/kernels/norm.h>

#include "each_device.h"
#include "expect_error.h"

namespace heed::kernels {

template <class T>
struct AddOne {
  T* x;
};

}  // namespace heed::kernels

HEED_KERNEL(add_one, AddOne);  // which CUDA lacks

template <class T>
void heed::cpu::add_one(const kernels::AddOne<T>& args) {
  *args.x = static_cast<T>(static_cast<float>(*args.x) + 1);
}

template <class T>
inline constexpr bool heed::detail::kHasKernel<heed::DeviceType::cuda, heed::kernels::AddOne<T>> = false;

namespace heed::test {
namespace {

Tensor add_one(const Tensor& x) {
  const Tensor y = x.clone();
  if (!detail::has_kernel<kernels::AddOne>(x.device(), x.dtype())) return y + 1.0;
  visit_floating(x.dtype(), "add_one",
                 [&]<class T>() { HEED_DISPATCH(x.device(), add_one, kernels::AddOne<T>{y.data<T>()}); });
  return y;
}

class BackendOf : public EachDevice {};
HEED_ON_EACH_DEVICE(BackendOf);

TEST_P(BackendOf, ReachesItsMemory) {
  const Backend& b = backend(device());
  EXPECT_GE(b.device_count(), 1);
  EXPECT_EQ(b.device_name(0), device_name(device()));
  EXPECT_EQ(&b.allocator(0), &allocator(device()));
  EXPECT_EQ(b.capture_memory(0), nullptr);
  const int64_t sent = 0x0123456789abcdef;
  int64_t received = 0;
  void* const memory = b.allocator(0).allocate(16);
  char* const bytes = static_cast<char*>(memory);
  b.copy_from_host(0, bytes, &sent, 8);
  b.copy(0, bytes + 8, bytes, 8);
  b.fill(0, bytes + 8, 0x7f, 1);
  b.synchronize(0);
  b.copy_to_host(0, &received, bytes + 8, 8);
  EXPECT_EQ(received, (sent & ~int64_t{0xff}) | 0x7f);
  b.allocator(0).deallocate(memory, 16);
}

TEST_P(BackendOf, HasF64OrSaysSo) {
  if (backend(device()).f64)
    EXPECT_EQ(zeros({2}, {DType::f64, device()}).dtype(), DType::f64);
  else
    expect_error<DTypeError>([&] { zeros({2}, {DType::f64, device()}); }, {"f64 exists on the cpu only"});
}

TEST_P(BackendOf, ACompositionStandsInForAKernelThatIsNotThere) {
  EXPECT_EQ(add_one(full({}, 2, {.device = device()})).item<float>(), 3);
  EXPECT_EQ(detail::has_kernel<kernels::AddOne>(device(), DType::f32), device() == kCpu);
  EXPECT_EQ(detail::has_kernel<kernels::NormForward>(device(), DType::f64), device() == kCpu);
}

TEST_P(BackendOf, AKernelThatIsNotThereIsAnError) {
  if (device() == kCpu) return;
  float x = 0;
  double wide = 0;
  expect_error<DeviceError>(
      [&] { HEED_DISPATCH(device(), add_one, kernels::AddOne<float>{&x}); },
      {concat("add_one: ", device(), " has no kernel for this; move the operands to the cpu")});
  expect_error<DTypeError>([&] { HEED_DISPATCH(device(), add_one, kernels::AddOne<double>{&wide}); },
                           {"add_one: f64 exists on the cpu only"});
}

// The kernels agree with their compositions in the tests of each operation; these have other references
// there.
TEST_P(BackendOf, AttentionAndLossesFallBackToo) {
  const auto to_device = [&](const Tensor& x) { return x.to(DType::f32).to(device()); };
  const Tensor q = to_device(normal({6, 8}, 1)), k = to_device(normal({6, 8}, 2)),
               v = to_device(normal({6, 8}, 3)), weight = to_device(normal({5, 8}, 4)),
               targets = tensor(std::vector<int64_t>{0, 1, 4, 2, 2, 3}, {6}, device());
  const Segments segments = Segments::packed(std::vector<int32_t>{2, 4});
  const auto results = [&] {
    return std::vector<Tensor>{attention(q, k, v, segments, {.heads = 2}),
                               cross_entropy(matmul(q, weight.transpose(0, 1)), targets),
                               linear_cross_entropy(q, weight, targets), gated(q, Activation::silu)};
  };
  const std::vector<Tensor> fused = results();
  const NoFusedKernels no_fused_kernels;
  const std::vector<Tensor> composed = results();
  for (size_t i = 0; i < fused.size(); ++i)
    EXPECT_LE(max_difference(fused[i].to(kCpu), composed[i].to(kCpu)), 1e-5) << "result " << i;
}

TEST(NoFusedKernels, CountOnTheirThreadAlone) {
  EXPECT_FALSE(NoFusedKernels::active());
  {
    const NoFusedKernels outer;
    { const NoFusedKernels inner; }
    EXPECT_TRUE(NoFusedKernels::active());
    bool elsewhere = true;
    std::thread([&] { elsewhere = NoFusedKernels::active(); }).join();
    EXPECT_FALSE(elsewhere);
  }
  EXPECT_FALSE(NoFusedKernels::active());
}

TEST(Composed, ARowOfNothingButMinusInfinityGivesZeros) {
  const NoFusedKernels no_fused_kernels;
  const Tensor x = full({2, 3}, -HUGE_VAL).set_requires_grad();
  const Tensor y = softmax(x);
  EXPECT_EQ(max_abs(y.detach()), 0);
  sum(y).backward();
  EXPECT_EQ(max_abs(x.grad()), 0);
  EXPECT_EQ(log_softmax(x.detach()).to_vector<float>()[4], -HUGE_VALF);
}

TEST(Composed, TheRowOfPaddingGetsNoGradient) {
  const NoFusedKernels no_fused_kernels;
  const Tensor weight = ones({3, 2}).set_requires_grad(), ids = tensor(std::vector<int64_t>{0, 1, 1}, {3});
  const Tensor y = embedding(ids, weight, {.scale = 2, .padding_id = 1});
  EXPECT_EQ(y.detach().to_vector<float>(), std::vector<float>(6, 2));
  sum(y).backward();
  EXPECT_EQ(weight.grad().to_vector<float>(), (std::vector<float>{2, 2, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace heed::test
