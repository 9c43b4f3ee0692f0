#include <algorithm>
#include <optional>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_blocked.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/recurrent.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/recurrent.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/columns-inl.h>
#include <heed/kernels/cpu/simd/math-inl.h>

#ifndef HEED_KERNELS_CPU_RECURRENT_ONCE_
#define HEED_KERNELS_CPU_RECURRENT_ONCE_
namespace heed::cpu {

/// One time step, after its product.
template <class T>
struct ForwardStep {
  const kernels::RecurrentForward<T>& args;
  int64_t t;
  const accumulator_t<T>* product;  // [active, G * width]: h W_hhᵀ
};

/// One time step, before its product.
template <class T>
struct BackwardStep {
  const kernels::RecurrentBackward<T>& args;
  int64_t t;
  T* gproduct;  // [active, G * width]
};

inline int64_t row_at(const kernels::RecurrentRows& rows, int64_t rank, int64_t t) {
  return rows.first[rank] + (rows.reverse ? rows.length[rank] - 1 - t : t);
}

}  // namespace heed::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// The same way to touch memory for what is computed with T.
template <class T>
HWY_INLINE Whole<accumulator_t<T>> wide(Whole<T>) {
  return {};
}
template <class T>
HWY_INLINE Partial<accumulator_t<T>> wide(Partial<T> io) {
  return {io.n};
}

/// Units of one sequence's cell. Without `bias` or `kept` there are none.
template <class T>
struct ForwardCell {
  const T *gates, *bias;
  const accumulator_t<T>* product;
  T *h, *c, *y, *cells, *kept;
  int64_t width;

  template <class Io>
  HWY_INLINE auto hidden(int64_t gate, int64_t u, Io io) const {
    const auto p = io.load(product + gate * width + u);
    return bias == nullptr ? p : hn::Add(p, io.load(bias + gate * width + u));
  }
  template <class Io>
  HWY_INLINE auto sum(int64_t gate, int64_t u, Io io) const {
    return hn::Add(io.load(gates + gate * width + u), hidden(gate, u, io));
  }
  template <class V, class Io>
  HWY_INLINE void keep(V a, V b, V e, V f, int64_t u, Io io) const {
    if (kept == nullptr) return;
    io.store(a, kept + u);
    io.store(b, kept + width + u);
    io.store(e, kept + 2 * width + u);
    io.store(f, kept + 3 * width + u);
  }
};

template <class T>
struct LstmForwardCell : ForwardCell<T> {
  template <int, class Io>
  HWY_INLINE void step(int64_t u, Io io) const {
    const Tag<T> d;
    const auto i = sigmoid(d, this->sum(0, u, io)), f = sigmoid(d, this->sum(1, u, io));
    const auto g = tanh(d, this->sum(2, u, io)), o = sigmoid(d, this->sum(3, u, io));
    const auto cell = hn::MulAdd(f, io.load(this->c + u), hn::Mul(i, g)), h = hn::Mul(o, tanh(d, cell));
    io.store(cell, this->c + u);
    io.store(h, this->h + u);
    io.store(h, this->y + u);
    if (this->cells != nullptr) io.store(cell, this->cells + u);
    this->keep(i, f, g, o, u, io);
  }
};

template <class T>
struct GruForwardCell : ForwardCell<T> {
  template <int, class Io>
  HWY_INLINE void step(int64_t u, Io io) const {
    const Tag<T> d;
    const auto r = sigmoid(d, this->sum(0, u, io)), z = sigmoid(d, this->sum(1, u, io));
    const auto p = this->hidden(2, u, io);
    const auto n = tanh(d, hn::MulAdd(r, p, io.load(this->gates + 2 * this->width + u)));
    const auto h = hn::MulAdd(z, hn::Sub(io.load(this->h + u), n), n);
    io.store(h, this->h + u);
    io.store(h, this->y + u);
    this->keep(r, z, n, p, u, io);
  }
};

template <class T>
void forward_ranks(const ForwardStep<T>& step, int64_t begin, int64_t end) {
  const kernels::RecurrentForward<T>& args = step.args;
  const int64_t width = args.width, all = gate_count(args.kind) * width;
  for (int64_t rank = begin; rank < end; ++rank) {
    const int64_t row = row_at(args.rows, rank, step.t);
    const ForwardCell<T> cell{args.gates + row * all,
                              args.bias,
                              step.product + rank * all,
                              args.h + rank * width,
                              args.c == nullptr ? nullptr : args.c + rank * width,
                              args.y + row * width,
                              args.cells == nullptr ? nullptr : args.cells + row * width,
                              args.kept == nullptr ? nullptr : args.kept + row * kernels::kKeptGates * width,
                              width};
    if (args.kind == CellKind::lstm) {
      LstmForwardCell<T> units{cell};
      for_columns<T>(0, width, units);
    } else {
      GruForwardCell<T> units{cell};
      for_columns<T>(0, width, units);
    }
  }
}
HEED_TYPED(forward_ranks, ForwardStep)

/// Units of one sequence's cell, backwards.
template <class T>
struct BackwardCell {
  const T *gy, *before, *cell, *cell_before, *kept;  // gy may be null
  accumulator_t<T>*gh, *gc;
  T *ggates, *gproduct, *compact, *previous;
  int64_t width;

  template <class Io>
  HWY_INLINE auto gate(int64_t i, int64_t u, Io io) const {
    return io.load(kept + i * width + u);
  }
  /// The gradient of h, whose value before the step is noted for the weight's gradient.
  template <class Io>
  HWY_INLINE auto arrived(int64_t u, Io io) const {
    io.store(io.load(before + u), previous + u);
    const auto g = io.load(gh + u);
    return gy == nullptr ? g : hn::Add(g, io.load(gy + u));
  }
  template <class V, class Io>
  HWY_INLINE void give(T* to, int64_t i, V v, int64_t u, Io io) const {
    if (to != nullptr) io.store(v, to + i * width + u);
  }
};

/// s (1 - s) g
template <class D>
HWY_INLINE Vec<D> sigmoid_backward(D d, Vec<D> s, Vec<D> g) {
  return hn::Mul(g, hn::Mul(s, hn::Sub(hn::Set(d, 1), s)));
}
/// (1 - t²) g
template <class D>
HWY_INLINE Vec<D> tanh_backward(D d, Vec<D> t, Vec<D> g) {
  return hn::Mul(g, hn::NegMulAdd(t, t, hn::Set(d, 1)));
}

template <class T>
struct LstmBackwardCell : BackwardCell<T> {
  template <int, class Io>
  HWY_INLINE void step(int64_t u, Io io) const {
    const Tag<T> d;
    const auto i = this->gate(0, u, io), f = this->gate(1, u, io), g = this->gate(2, u, io),
               o = this->gate(3, u, io);
    const auto gh = this->arrived(u, io), t = tanh(d, io.load(this->cell + u));
    const auto gc = hn::Add(io.load(this->gc + u), tanh_backward(d, t, hn::Mul(gh, o)));
    const auto before = io.load(this->cell_before + u);
    both(0, sigmoid_backward(d, i, hn::Mul(gc, g)), u, io);
    both(1, sigmoid_backward(d, f, hn::Mul(gc, before)), u, io);
    both(2, tanh_backward(d, g, hn::Mul(gc, i)), u, io);
    both(3, sigmoid_backward(d, o, hn::Mul(gh, t)), u, io);
    wide(io).store(hn::Mul(gc, f), this->gc + u);
  }
  template <class V, class Io>
  HWY_INLINE void both(int64_t i, V v, int64_t u, Io io) const {
    this->give(this->ggates, i, v, u, io);
    this->give(this->compact, i, v, u, io);
  }
};

template <class T>
struct GruBackwardCell : BackwardCell<T> {
  template <int, class Io>
  HWY_INLINE void step(int64_t u, Io io) const {
    const Tag<T> d;
    const auto r = this->gate(0, u, io), z = this->gate(1, u, io), n = this->gate(2, u, io),
               p = this->gate(3, u, io);
    const auto before = io.load(this->before + u), gh = this->arrived(u, io);
    const auto gn = tanh_backward(d, n, hn::NegMulAdd(gh, z, gh));
    const auto gr = sigmoid_backward(d, r, hn::Mul(gn, p));
    const auto gz = sigmoid_backward(d, z, hn::Mul(gh, hn::Sub(before, n)));
    all(0, gr, gr, u, io);
    all(1, gz, gz, u, io);
    all(2, gn, hn::Mul(gn, r), u, io);
    wide(io).store(hn::Mul(gh, z), this->gh + u);
  }
  template <class V, class Io>
  HWY_INLINE void all(int64_t i, V of_input, V of_product, int64_t u, Io io) const {
    this->give(this->ggates, i, of_input, u, io);
    this->give(this->gproduct, i, of_product, u, io);
    this->give(this->compact, i, of_product, u, io);
  }
};

template <class T>
void backward_ranks(const BackwardStep<T>& step, int64_t begin, int64_t end) {
  const kernels::RecurrentBackward<T>& args = step.args;
  const int64_t width = args.width, all = gate_count(args.kind) * width;
  const auto at = [=](auto* base, int64_t index, int64_t size)
                      HWY_ATTR { return base == nullptr ? nullptr : base + index * size; };
  for (int64_t rank = begin; rank < end; ++rank) {
    const int64_t row = row_at(args.rows, rank, step.t);
    const bool begins = step.t == 0;
    const int64_t row_before = begins ? rank : row_at(args.rows, rank, step.t - 1);
    const BackwardCell<T> cell{.gy = at(args.gy, row, width),
                               .before = (begins ? args.h0 : args.y) + row_before * width,
                               .cell = at(args.cells, row, width),
                               .cell_before = at(begins ? args.c0 : args.cells, row_before, width),
                               .kept = args.kept + row * kernels::kKeptGates * width,
                               .gh = args.gh + rank * width,
                               .gc = at(args.gc, rank, width),
                               .ggates = args.ggates + row * all,
                               .gproduct = at(args.gproduct, row, all),
                               .compact = step.gproduct + rank * all,
                               .previous = args.previous + row * width,
                               .width = width};
    if (args.kind == CellKind::lstm) {
      LstmBackwardCell<T> units{cell};
      for_columns<T>(0, width, units);
    } else {
      GruBackwardCell<T> units{cell};
      for_columns<T>(0, width, units);
    }
  }
}
HEED_TYPED(backward_ranks, BackwardStep)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(forward_ranks)
HEED_EXPORT_TYPED(backward_ranks)

/// Keeps one packed matrix while it lives.
class OneCopy final : public kernels::PackedCopies {
 public:
  const std::byte* find(const Matrix&) const override { return memory_ ? memory_->data() : nullptr; }
  const std::byte* keep(const Matrix&, int64_t bytes, FunctionRef<void(std::byte*)> pack) override {
    memory_.emplace(bytes);
    pack(memory_->data());
    return memory_->data();
  }

 private:
  std::optional<Workspace<std::byte>> memory_;
};

/// The product of each step by the recurrent weight, which is packed once for all steps. For few rows, or a
/// single step, packing does not pay.
template <class T>
class StepProduct {
 public:
  using A = accumulator_t<T>;

  StepProduct(const kernels::RecurrentRows& rows, int64_t n, int64_t k, MatrixView<T> b)
      : n_(n), k_(k), b_(b), packs_(rows.count >= kMinRows && rows.steps >= kMinSteps) {}

  /// c [m, n] = a [m, k] b (+ c)
  void operator()(int64_t m, const T* a, A* c, bool accumulate) {
    GemmOutput<T> output{.c = c, .ldc = n_};
    if (accumulate) output.added = {c, n_};
    gemm_blocked<T>({m, n_, k_, {a, k_, 1}, b_, output, packs_ ? &copy_ : nullptr});
  }

 private:
  static constexpr int64_t kMinRows = 9, kMinSteps = 2;

  int64_t n_, k_;
  MatrixView<T> b_;
  bool packs_;
  OneCopy copy_;
};

}  // namespace

template <class T>
void recurrent_forward(const kernels::RecurrentForward<T>& args) {
  const int64_t width = args.width, all = gate_count(args.kind) * width;
  if (args.rows.steps == 0) return;
  StepProduct<T> multiply(args.rows, all, width, {args.weight, 1, width});
  const Workspace<accumulator_t<T>> product(args.rows.count * all);
  const auto cells = HEED_SIMD_OF(T, forward_ranks);
  for (int64_t t = 0; t < args.rows.steps; ++t) {
    const int64_t active = args.rows.active[t];
    multiply(active, args.h, product.data(), false);
    const ForwardStep<T> step{args, t, product.data()};
    parallel_for(active, rows_per_task(active, all),
                 [&](int64_t begin, int64_t end) { cells(step, begin, end); });
  }
}

template <class T>
void recurrent_backward(const kernels::RecurrentBackward<T>& args) {
  const int64_t width = args.width, all = gate_count(args.kind) * width;
  if (args.rows.steps == 0) return;
  StepProduct<T> multiply(args.rows, width, all, {args.weight, width, 1});
  const Workspace<T> gproduct(args.rows.count * all);
  const auto cells = HEED_SIMD_OF(T, backward_ranks);
  for (int64_t t = args.rows.steps; t-- > 0;) {
    const int64_t active = args.rows.active[t];
    const BackwardStep<T> step{args, t, gproduct.data()};
    parallel_for(active, rows_per_task(active, all),
                 [&](int64_t begin, int64_t end) { cells(step, begin, end); });
    multiply(active, gproduct.data(), args.gh, args.kind == CellKind::gru);
  }
}

#define HEED_INSTANTIATE(T)                                                \
  template void recurrent_forward<T>(const kernels::RecurrentForward<T>&); \
  template void recurrent_backward<T>(const kernels::RecurrentBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
