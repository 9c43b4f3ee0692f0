// Attention problems on the device, against plain loops in double.
#pragma once

#include <memory>

#include <heed/kernels/cuda/attention/attention_path.h>
#include <heed/kernels/runtime.h>

#include "../kernels/attention_problem.h"
#include "device_buffer.h"
#include "device_test.h"

namespace heed::test {

/// A problem copied to the device.
template <class T>
class Attention {
 public:
  using Problem = AttentionProblem<T>;
  using Result = AttentionResult<T, float>;

  explicit Attention(const Problem& problem)
      : p(problem),
        q_(p.q),
        kv_(p.kv),
        gout_(p.gout),
        bias_(p.bias),
        relative_(p.relative),
        slopes_(p.slopes),
        pattern_(p.pattern.lines),
        mask_(std::vector<unsigned char>(p.mask.get(),
                                         p.mask.get() + p.segments.count * p.max_query * p.max_key)),
        query_first_(p.query_first),
        key_first_(p.key_first),
        query_length_(p.query_length),
        key_length_(p.key_length),
        out_(p.q.size()),
        lse_(static_cast<size_t>(p.c.heads * p.query_rows)) {}

  kernels::AttentionForward<T> forward_args() const {
    return p.forward_args(operands(), out_.data(), lse_.data());
  }

  void forward(Result& r) const {
    cuda::attention_forward(forward_args());
    cuda::synchronize(0);
    r.out = out_.get();
    r.lse = lse_.get();
  }

  kernels::AttentionBackward<T> backward_args(const typename Problem::Wanted& wanted,
                                              const typename Problem::Gradients& to = {}) const {
    return p.backward_args(operands(), out_.data(), lse_.data(), wanted, to);
  }

  /// After `forward`; the gradients begin as `start` if they are added.
  void backward(const typename Problem::Wanted& wanted, Result& r, float start = 0) const {
    const auto buffer = [&](size_t size) {
      return wanted.accumulate ? std::make_unique<testing::DeviceBuffer<T>>(std::vector<T>(size, start))
                               : std::make_unique<testing::DeviceBuffer<T>>(size);
    };
    const auto gq = buffer(p.q.size()), gk = buffer(p.kv.size()), gv = buffer(p.kv.size());
    const testing::DeviceBuffer<float> gbias(std::vector<float>(p.bias.size())),
        grelative(std::vector<float>(p.relative.size()));
    cuda::attention_backward(
        backward_args(wanted, {gq->data(), gk->data(), gv->data(), gbias.data(), grelative.data()}));
    cuda::synchronize(0);
    r.gq = gq->get();
    r.gk = gk->get();
    r.gv = gv->get();
    r.gbias = gbias.get();
    r.grelative = grelative.get();
  }

 private:
  typename Problem::Operands operands() const {
    SegmentsView s = p.segments;
    s.query_first = query_first_.data();
    s.key_first = key_first_.data();
    s.query_length = query_length_.data();
    s.key_length = key_length_.data();
    return {q_.data(),      kv_.data(),       gout_.data(),
            bias_.data(),   relative_.data(), reinterpret_cast<const bool*>(mask_.data()),
            slopes_.data(), pattern_.data(),  s};
  }

  const Problem& p;
  testing::DeviceBuffer<T> q_, kv_, gout_, bias_, relative_;
  testing::DeviceBuffer<float> slopes_;
  testing::DeviceBuffer<uint32_t> pattern_;
  testing::DeviceBuffer<unsigned char> mask_;
  testing::DeviceBuffer<int64_t> query_first_, key_first_;
  testing::DeviceBuffer<int32_t> query_length_, key_length_;
  testing::DeviceBuffer<T> out_;
  testing::DeviceBuffer<float> lse_;
};

/// Forward and all gradients, those of biases alone since only the generic kernels have them.
template <class T>
void check_one_problem(const AttentionProblem<T>& p, cuda::AttentionPath path) {
  testing::kernel_cases.count += 2;  // forward and backward
  const Attention attention(p);
  ASSERT_EQ(cuda::attention_path(attention.forward_args()), cuda::on_hopper(path, attention.forward_args()));
  const auto backward_args = attention.backward_args({.bias = false});
  ASSERT_EQ(cuda::attention_path(backward_args), cuda::on_hopper(path, backward_args));
  AttentionResult<T, float> got, biases;
  attention.forward(got);
  attention.backward({.bias = false}, got);
  attention.backward({.q = false, .k = false, .v = false}, biases);
  got.gbias = biases.gbias;
  got.grelative = biases.grelative;
  expect_exact(p, got);
}

/// Where rows lie in no sequence, the kernels clear them, and then a launch before them does.
template <class T>
void check_problem(AttentionProblem<T> p, cuda::AttentionPath path) {
  check_one_problem(p, path);
  if (!p.c.gaps) return;
  p.segments.in_order = false;  // as far as the kernels know
  check_one_problem(p, path);
}

/// Any of the gradients are, alone, what they are with the others; and are added to what was there.
template <class T>
void check_subsets_of_gradients(const AttentionProblem<T>& p) {
  const Attention attention(p);
  AttentionResult<T, float> all, added;
  attention.forward(all);
  attention.backward({}, all);
  for (int set = 0; set < 8; ++set) {
    SCOPED_TRACE(set);
    AttentionResult<T, float> some;
    attention.backward({.q = (set & 1) != 0, .k = (set & 2) != 0, .v = (set & 4) != 0}, some);
    if (set & 1) {
      EXPECT_EQ(testing::bytes_of(some.gq), testing::bytes_of(all.gq));
    }
    if (set & 2) {
      EXPECT_EQ(testing::bytes_of(some.gk), testing::bytes_of(all.gk));
    }
    if (set & 4) {
      EXPECT_EQ(testing::bytes_of(some.gv), testing::bytes_of(all.gv));
    }
  }
  attention.backward({.accumulate = true}, added, 3.0f);
  const auto expect_added = [](const std::vector<T>& sum, const std::vector<T>& g) {
    for (size_t i = 0; i < g.size(); ++i) {
      const double was = std::isnan(double(g[i])) ? 0 : double(g[i]);  // between the rows
      ASSERT_NEAR(double(sum[i]), was + 3, epsilon<T>() * (3 + 2 * std::fabs(was)));
    }
  };
  expect_added(added.gq, all.gq);
  expect_added(added.gk, all.gk);
  expect_added(added.gv, all.gv);
}

template <class T>
void check_without_log_sum_exp(const AttentionProblem<T>& p) {
  const Attention attention(p);
  AttentionResult<T, float> with;
  attention.forward(with);
  auto args = attention.forward_args();
  const testing::DeviceBuffer<T> out(p.q.size());
  args.lse = nullptr;
  args.out.data = out.data();
  cuda::attention_forward(args);
  EXPECT_EQ(testing::bytes_of(out.get()), testing::bytes_of(with.out));
}

/// A case that a fast kernel takes, and where it need not do again what a hidden key made NaN.
inline AttentionCase aligned(AttentionCase c) {
  c.query_padding = c.key_padding = 8;
  c.hidden_nan = false;
  return c;
}

/// Visibility that every path is tried with.
inline const Visibility kRules[] = {
    {.causal = Causal::top_left},
    {.causal = Causal::bottom_right, .window_left = 4},
    {.window_left = 20, .window_right = 2},
    {.window_left = 9, .window_right = 9, .dilation = 3},
    {.window_left = 3, .window_right = 3, .global_tokens = 2},
    {.causal = Causal::top_left, .window_left = 6, .global_tokens = 3},
    {.causal = Causal::bottom_right, .window_left = 40, .dilation = 4, .global_tokens = 1},
    {.causal = Causal::none_bottom_right, .window_left = 5, .window_right = 2},
    {.causal = Causal::bottom_right, .window_left = 6, .global_tokens = 50},
    {.causal = Causal::none_bottom_right, .window_left = 3, .window_right = 3, .global_tokens = 20},
};

}  // namespace heed::test
