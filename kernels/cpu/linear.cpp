#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/linear.cpp"

#include <algorithm>

#include <heed/core/base/check.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/activation_simd.h>
#include <heed/kernels/cpu/dropout_simd.h>
#include <heed/kernels/cpu/gemm/gemm_blocked.h>
#include <heed/kernels/cpu/gemm/gemm_blocking.h>
#include <heed/kernels/cpu/simd/simd.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/linear.h>

#ifndef HEED_KERNELS_CPU_LINEAR_ONCE_
#define HEED_KERNELS_CPU_LINEAR_ONCE_
namespace heed::cpu {

/// Part of a row of y: the product's values and where they belong.
template <class T>
struct LinearSpan {
  const accumulator_t<T>* product;
  int64_t row, col, count;  // count <= kDropoutChunk
};

}  // namespace heed::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <Activation F, bool Whole, class T>
HWY_INLINE void forward_vector(const kernels::LinearForward<T>& args, const LinearSpan<T>& span, int64_t i,
                               int64_t n, const uint8_t* keep_mask) {
  const Tag<T> d;
  const int64_t at = span.row * args.out + span.col + i;
  auto v = Whole ? load(d, span.product + i) : load_n(d, span.product + i, n);
  if (args.bias) {
    const T* bias = args.bias + span.col + i;
    v = hn::Add(v, Whole ? load(d, bias) : load_n(d, bias, n));
  }
  if (args.pre_activation) {
    if (Whole)
      store(v, d, args.pre_activation + at);
    else
      store_n(v, d, args.pre_activation + at, n);
  }
  v = activate<F>(d, v);
  if (keep_mask) v = apply_dropout(d, v, keep_mask, i, args.dropout);
  if (Whole)
    store(v, d, args.y + at);
  else
    store_n(v, d, args.y + at, n);
}

/// Takes its arguments by value: those of a reference would be read again after each store.
template <Activation F, class T>
HWY_INLINE void forward_span(const kernels::LinearForward<T> args, const LinearSpan<T> span) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  KeepMaskBuffer buffer;
  const uint8_t* const keep_mask = args.dropout.active() ? buffer.bits : nullptr;
  if (keep_mask) fill_keep_mask(args.dropout, span.row * args.out + span.col, span.count, buffer.bits);
  int64_t i = 0;
  for (; i + lanes <= span.count; i += lanes) forward_vector<F, true>(args, span, i, lanes, keep_mask);
  if (i < span.count) forward_vector<F, false>(args, span, i, span.count - i, keep_mask);
}

template <class T>
HWY_INLINE void forward(const kernels::LinearForward<T>& args, const LinearSpan<T>& span) {
  with_activation(args.activation, [&]<Activation F>() HWY_ATTR { forward_span<F>(args, span); });
}

/// gpre for n elements from column c of a row, of which bit i of `kept` is the first's; adds them to `sums`.
template <Activation F, bool Whole, class T>
HWY_INLINE void backward_vector(const kernels::LinearActivationBackward<T>& args, int64_t row, int64_t c,
                                int64_t n, const uint8_t* keep_mask, int64_t i, accumulator_t<T>* sums) {
  const Tag<T> d;
  const int64_t at = row * args.out + c;
  auto g = Whole ? load(d, args.gy + at) : load_n(d, args.gy + at, n);
  if (keep_mask) g = apply_dropout(d, g, keep_mask, i, args.dropout);
  if (F != Activation::none) {
    const T* x = args.saved + at;
    g = activate_backward<F>(d, Whole ? load(d, x) : load_n(d, x, n), g);
  }
  if (F == Activation::relu && args.dropout.active()) g = hn::Mul(g, hn::Set(d, args.dropout.scale));
  if (args.gpre) {
    if (Whole)
      store(g, d, args.gpre + at);
    else
      store_n(g, d, args.gpre + at, n);
  }
  if (sums) {
    if (Whole)
      hn::StoreU(hn::Add(g, hn::LoadU(d, sums + c)), d, sums + c);
    else
      store_n(hn::Add(g, load_n(d, sums + c, n)), d, sums + c, n);
  }
}

/// By value, as above.
template <Activation F, class T>
HWY_INLINE void backward_rows(const kernels::LinearActivationBackward<T> args, int64_t begin, int64_t end,
                              accumulator_t<T>* sums) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  KeepMaskBuffer buffer;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t first = 0; first < args.out; first += kDropoutChunk) {
      const int64_t count = HWY_MIN(kDropoutChunk, args.out - first);
      const bool drops = args.dropout.active() && F != Activation::relu;
      const uint8_t* const keep_mask = drops ? buffer.bits : nullptr;
      if (drops) fill_keep_mask(args.dropout, row * args.out + first, count, buffer.bits);
      int64_t i = 0;
      for (; i + lanes <= count; i += lanes) {
        backward_vector<F, true>(args, row, first + i, lanes, keep_mask, i, sums);
      }
      if (i < count) backward_vector<F, false>(args, row, first + i, count - i, keep_mask, i, sums);
    }
  }
}

template <class T>
HWY_INLINE void backward(const kernels::LinearActivationBackward<T>& args, int64_t begin, int64_t end,
                         accumulator_t<T>* sums) {
  with_activation(args.activation,
                  [&]<Activation F>() HWY_ATTR { backward_rows<F>(args, begin, end, sums); });
}

#define HEED_DEFINE(T, suffix)                                                                         \
  void forward_##suffix(const kernels::LinearForward<T>& args, const LinearSpan<T>& span) {            \
    forward(args, span);                                                                               \
  }                                                                                                    \
  void backward_##suffix(const kernels::LinearActivationBackward<T>& args, int64_t begin, int64_t end, \
                         accumulator_t<T>* sums) {                                                     \
    backward(args, begin, end, sums);                                                                  \
  }
HEED_DEFINE(float, f32)
HEED_DEFINE(double, f64)
HEED_DEFINE(bfloat16, bf16)
#undef HEED_DEFINE

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

#define HEED_EXPORT(T, suffix)                               \
  HWY_EXPORT(forward_##suffix);                              \
  HWY_EXPORT(backward_##suffix);                             \
  auto forward_of(T) { return HEED_SIMD(forward_##suffix); } \
  auto backward_of(T) { return HEED_SIMD(backward_##suffix); }
HEED_EXPORT(float, f32)
HEED_EXPORT(double, f64)
HEED_EXPORT(bfloat16, bf16)
#undef HEED_EXPORT

constexpr int64_t kRowsPerTask = 32;
constexpr int64_t kColsPerTask = 1024;

/// Bias, activation and dropout on a block of the product, while it is in the cache.
template <class T>
struct LinearEpilogue {
  const kernels::LinearForward<T>& args;

  void operator()(const FinishedBlock<accumulator_t<T>>& block) const {
    const auto forward = forward_of(T());
    for (int64_t i = 0; i < block.rows; ++i) {
      for (int64_t j = 0; j < block.cols; j += kDropoutChunk) {
        forward(args, {block.data + i * block.ld + j, block.row + i, block.col + j,
                       std::min(kDropoutChunk, block.cols - j)});
      }
    }
  }
};

/// An empty sum everywhere.
template <class T>
void finish_without_product(const LinearEpilogue<T>& epilogue) {
  const int64_t rows = epilogue.args.rows, out = epilogue.args.out;
  parallel_for(rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    const accumulator_t<T> zeros[kDropoutChunk] = {};
    for (int64_t j = 0; j < out; j += kDropoutChunk)
      epilogue({zeros, 0, begin, j, end - begin, std::min(kDropoutChunk, out - j)});
  });
}

/// The pass over gy's rows, as tasks of some rows each that do not depend on each other.
template <class T>
class RowPass {
 public:
  using A = accumulator_t<T>;

  explicit RowPass(const kernels::LinearActivationBackward<T>& args)
      : args_(args),
        rows_(rows_per_partial_sum(args.rows)),
        tasks_(args.out > 0 && (args.gpre || args.gbias) ? ceil_divide(args.rows, rows_) : 0),
        sums_(args.gbias ? tasks_ * args.out : 0) {}

  int64_t tasks() const { return tasks_; }

  void run(int64_t task) {
    A* const sums = args_.gbias ? sums_.data() + task * args_.out : nullptr;
    if (sums) std::fill_n(sums, args_.out, A(0));
    backward_(args_, task * rows_, std::min((task + 1) * rows_, args_.rows), sums);
  }

  void run_all() {
    parallel_for(tasks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) run(task);
    });
  }

  /// After all tasks.
  void finish() {
    if (!args_.gbias) return;
    parallel_for(args_.out, kColsPerTask, [&](int64_t begin, int64_t end) {
      A* const gbias = args_.gbias;
      if (!args_.accumulate_bias) std::fill(gbias + begin, gbias + end, A(0));
      for (int64_t task = 0; task < tasks_; ++task) {
        const A* const sums = sums_.data() + task * args_.out;
        for (int64_t c = begin; c < end; ++c) gbias[c] += sums[c];
      }
    });
  }

 private:
  const kernels::LinearActivationBackward<T> args_;
  const int64_t rows_, tasks_;
  Workspace<A> sums_;
  const decltype(backward_of(T())) backward_ = backward_of(T());
};

/// Both products of a backward and the tasks of `pass` as one parallel job; false where they cannot be.
template <class T>
bool multiply_pair(const kernels::LinearBackward<T>& args, RowPass<T>& pass) {
  if (!args.gweight || !args.gx || args.rows == 0 || args.out == 0 || args.in == 0) return false;
  const auto run = [&](int64_t task) { pass.run(task); };
  return gemm_pair<T>(args.weight_product(), args.input_product(), pass.tasks(), run);
}

}  // namespace

template <class T>
void linear_forward(const kernels::LinearForward<T>& args) {
  using A = accumulator_t<T>;
  if (args.rows <= 0 || args.out <= 0) return;
  const LinearEpilogue<T> epilogue{args};
  if (args.in == 0) return finish_without_product(epilogue);
  GemmOutput<T> output{.epilogue = epilogue};
  if constexpr (std::is_same_v<T, A>) {  // y itself holds the product until the block is finished
    output.c = args.y;
    output.ldc = args.out;
    if (args.activation == Activation::none && !args.dropout.active() && !args.pre_activation) {
      output.added = {args.bias, 0};
      output.epilogue = nullptr;
    }
  }
  gemm_blocked<T>({.m = args.rows,
                   .n = args.out,
                   .k = args.in,
                   .a = {args.x, args.in, 1},
                   .b = {args.weight, 1, args.in},
                   .output = output,
                   .b_copies = args.copies});
}

template <class T>
void linear_activation_backward(const kernels::LinearActivationBackward<T>& args) {
  HEED_ASSERT(args.saved || args.activation == Activation::none || args.rows == 0,
              "linear_activation_backward: what the forward kept is needed with an activation");
  RowPass<T> pass(args);
  pass.run_all();
  pass.finish();
}

template <class T>
void linear_backward(const kernels::LinearBackward<T>& args) {
  RowPass<T> sums(args.bias_sums());
  if (!multiply_pair(args, sums)) {
    sums.run_all();
    if (args.gweight) gemm(args.weight_product());
    if (args.gx) gemm(args.input_product());
  }
  sums.finish();
}

#define HEED_INSTANTIATE(T)                                                                 \
  template void linear_forward<T>(const kernels::LinearForward<T>&);                        \
  template void linear_activation_backward<T>(const kernels::LinearActivationBackward<T>&); \
  template void linear_backward<T>(const kernels::LinearBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
