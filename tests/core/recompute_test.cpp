// Large outputs of norms, which are computed again for the backward instead of being kept.
#include <cstring>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/base/memory/allocator.h>
#include <heed/core/ops.h>
#include <heed/core/storage.h>

#include "address_sanitizer.h"
#include "expect_error.h"
#include "op_check.h"

namespace heed::test {
namespace {

constexpr int64_t kRows = 300, kOut = 3;

/// An odd number of columns with which kRows rows take 3/4 MiB and little more.
int64_t large_cols(DType dtype) { return ((int64_t{3} << 18) / (kRows * size_of(dtype)) + 2) | 1; }

enum class Norm { plain, residual };

struct Leaves {
  Tensor residual, x, scale, shift, weight;

  Leaves(DType dtype, Device device) : Leaves(dtype, device, large_cols(dtype)) {}
  Leaves(DType dtype, Device device, int64_t cols)
      : residual(leaf({kRows, cols}, 1, dtype, device)),
        x(leaf({kRows, cols}, 2, dtype, device)),
        scale(leaf({cols}, 3, dtype, device)),
        shift(leaf({cols}, 4, dtype, device)),
        weight(leaf({kOut, cols}, 5, dtype, device)) {}

  static Tensor leaf(const Shape& shape, uint64_t seed, DType dtype, Device device) {
    return normal(shape, seed).to(dtype).to(device).set_requires_grad();
  }

  Tensor normed(Norm norm) const {
    if (norm == Norm::plain) return layer_norm(x, scale, shift);
    Generator generator(7);
    return residual_layer_norm(residual, x, scale, shift, {.p = 0.25, .generator = &generator}).normed;
  }

  Tensors gradients() const {
    Tensors all;
    for (const Tensor& leaf : {residual, x, scale, shift, weight})
      if (leaf.grad().defined()) all.push_back(leaf.grad().to(kCpu));
    return all;
  }
};

void expect_same_bits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(std::memcmp(a[i].raw_data(), b[i].raw_data(),
                          static_cast<size_t>(a[i].numel() * size_of(a[i].dtype()))),
              0)
        << "gradient " << i;
}

int64_t in_use(Device device) { return allocator(device).stats().in_use; }

template <class Body>
void for_all(Body body) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const Device device : devices(dtype)) {
#ifdef HEED_ADDRESS_SANITIZER  // takes minutes; tests of operations run the same kernels in each dtype
      if (device.is_cuda() && dtype != DType::f32) continue;
#endif
      for (const Norm norm : {Norm::plain, Norm::residual}) {
        SCOPED_TRACE(concat(dtype, " ", device, " norm ", static_cast<int>(norm)));
        body(dtype, device, norm);
      }
    }
}

// A view is kept as it is, so the second way keeps the output.
TEST(Recompute, SameGradientsWithoutItsMemory) {
  for_all([](DType dtype, Device device, Norm norm) {
    const Leaves again(dtype, device), kept(dtype, device);
    Tensor y = again.normed(norm);
    const Tensor loss = sum(linear(y, again.weight) * 3.0);
    const int64_t before = in_use(device);
    const int64_t bytes = y.numel() * size_of(dtype);
    y = Tensor();
    EXPECT_GE(before - in_use(device), bytes);
    loss.backward();
    sum(linear(kept.normed(norm).view({1, kRows, large_cols(dtype)}), kept.weight) * 3.0).backward();
    EXPECT_EQ(again.gradients().size(), norm == Norm::plain ? 4u : 5u);
    expect_same_bits(again.gradients(), kept.gradients());
  });
}

// On CUDA the backward of a post-norm has y anyway.
TEST(Recompute, SameGradientsBehindAPostNorm) {
  for (const Device device : devices(DType::f32)) {
    const auto backward = [&](bool as_a_view) {
      const Leaves leaves(DType::f32, device);
      Generator generator(7);
      const Tensor y = post_layer_norm(leaves.residual, leaves.x, leaves.scale, leaves.shift,
                                       {.p = 0.25, .generator = &generator});
      sum(linear(as_a_view ? y.view({1, kRows, large_cols(DType::f32)}) : y, leaves.weight) * 3.0).backward();
      return leaves.gradients();
    };
    const Tensors again = backward(false);
    EXPECT_EQ(again.size(), 5u);
    expect_same_bits(again, backward(true));
  }
}

TEST(Recompute, SmallOutputsAreKept) {
  const Leaves leaves(DType::f32, kCpu, 64);
  Tensor y = layer_norm(leaves.x, leaves.scale, leaves.shift);
  const Tensor z = linear(y, leaves.weight);
  const int64_t before = in_use(kCpu);
  y = Tensor();
  EXPECT_LT(before - in_use(kCpu), kRows * 64 * 4);
  sum(z).backward();
}

TEST(Recompute, WhatWasWrittenToBeforehandIsKept) {
  for_all([](DType dtype, Device device, Norm norm) {
    const Leaves leaves(dtype, device);
    const Tensor y = leaves.normed(norm);
    {
      const NoGrad no_grad;
      y.fill_(2);
    }
    sum(linear(y, leaves.weight)).backward();
    const Tensor gradient = leaves.weight.grad().to(kCpu).to(DType::f64);
    for (int64_t i = 0; i < gradient.numel(); ++i) ASSERT_EQ(gradient.data<double>()[i], 2 * kRows);
  });
}

TEST(Recompute, AgainWithARetainedGraphAndAnErrorWithout) {
  for_all([](DType dtype, Device device, Norm norm) {
    const Leaves leaves(dtype, device);
    const Tensor y = leaves.normed(norm);
    const Tensor first = sum(linear(y, leaves.weight)), second = sum(linear(y, leaves.weight));
    first.backward({}, {.retain_graph = true});
    const Tensor once = leaves.weight.grad().to(kCpu).clone();
    leaves.weight.zero_grad();
    first.backward();
    expect_same_bits({once}, {leaves.weight.grad().to(kCpu)});
    expect_error<AutogradError>([&] { second.backward(); }, {"layer_norm a second time", "retain_graph"});
  });
}

TEST(Recompute, ChangedInputIsAnError) {
  for_all([](DType dtype, Device device, Norm norm) {
    for (const bool bias : {false, true}) {
      const Leaves leaves(dtype, device);
      const Tensor loss = sum(linear(leaves.normed(norm), leaves.weight));
      {
        const NoGrad no_grad;
        (bias ? leaves.shift : leaves.scale).fill_(2);
      }
      expect_error<AutogradError>([&] { loss.backward(); }, {"was changed in place"});
    }
  });
}

}  // namespace
}  // namespace heed::test
