#include <algorithm>

#include <hwy/cache_control.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/recurrent_product.h>
#include <heed/kernels/cpu/simd/typed_export.h>
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

/// The cells of some units in one time step, after their product.
template <class T>
struct ForwardStep {
  const kernels::RecurrentForward<T>& args;
  int64_t t, first_unit, units;
  /// h W_hhᵀ: the gates of a rank, `gate_stride` apart, from product + (rank - first_rank) * rank_stride.
  const accumulator_t<T>* product;
  int64_t first_rank, rank_stride, gate_stride;
  const T* before;  // [count, width]: h before the step
  T* after;         // and after it
};

/// The cells of some units in one time step, before their product.
template <class T>
struct BackwardStep {
  const kernels::RecurrentBackward<T>& args;
  int64_t t, first_unit, units;
  T* gproduct;  // [count, G * width]
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
  const T* before;
  T *h, *c, *y, *cells, *kept;
  int64_t width, gate_stride;  // gate_stride: of the product

  template <class Io>
  HWY_INLINE auto hidden(int64_t gate, int64_t u, Io io) const {
    const auto p = io.load(product + gate * gate_stride + u);
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
    const auto h = hn::MulAdd(z, hn::Sub(io.load(this->before + u), n), n);
    io.store(h, this->h + u);
    io.store(h, this->y + u);
    this->keep(r, z, n, p, u, io);
  }
};

/// base + offset; null stays null.
template <class T>
HWY_INLINE T* offset(T* base, int64_t offset) {
  return base == nullptr ? nullptr : base + offset;
}

template <class T>
void forward_ranks(const ForwardStep<T>& step, int64_t begin, int64_t end) {
  const kernels::RecurrentForward<T>& args = step.args;
  const int64_t width = args.width, unit = step.first_unit;
  for (int64_t rank = begin; rank < end; ++rank) {
    const int64_t row = row_at(args.rows, rank, step.t), state = rank * width + unit,
                  output = row * width + unit;
    const ForwardCell<T> cell{.gates = args.gates + row * gate_count(args.kind) * width + unit,
                              .bias = offset(args.bias, unit),
                              .product = step.product + (rank - step.first_rank) * step.rank_stride,
                              .before = step.before + state,
                              .h = step.after + state,
                              .c = offset(args.c, state),
                              .y = args.y + output,
                              .cells = offset(args.cells, output),
                              .kept = offset(args.kept, row * kernels::kKeptGates * width + unit),
                              .width = width,
                              .gate_stride = step.gate_stride};
    if (args.kind == CellKind::lstm) {
      LstmForwardCell<T> units{cell};
      for_columns<T>(0, step.units, units);
    } else {
      GruForwardCell<T> units{cell};
      for_columns<T>(0, step.units, units);
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
  const int64_t width = args.width, all = gate_count(args.kind) * width, unit = step.first_unit;
  for (int64_t rank = begin; rank < end; ++rank) {
    const int64_t row = row_at(args.rows, rank, step.t), state = rank * width + unit,
                  output = row * width + unit;
    const bool begins = step.t == 0;
    const int64_t before = begins ? state : row_at(args.rows, rank, step.t - 1) * width + unit;
    const BackwardCell<T> cell{.gy = offset(args.gy, output),
                               .before = (begins ? args.h0 : args.y) + before,
                               .cell = offset(args.cells, output),
                               .cell_before = offset(begins ? args.c0 : args.cells, before),
                               .kept = args.kept + row * kernels::kKeptGates * width + unit,
                               .gh = args.gh + state,
                               .gc = offset(args.gc, state),
                               .ggates = args.ggates + row * all + unit,
                               .gproduct = offset(args.gproduct, row * all + unit),
                               .compact = step.gproduct + rank * all + unit,
                               .previous = args.previous + output,
                               .width = width};
    if (args.kind == CellKind::lstm) {
      LstmBackwardCell<T> units{cell};
      for_columns<T>(0, step.units, units);
    } else {
      GruBackwardCell<T> units{cell};
      for_columns<T>(0, step.units, units);
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

/// Fetches the gates that the cells will read, lines far apart, while the product is made.
template <class T>
void fetch_gates(const ForwardStep<T>& step, int64_t begin, int64_t end) {
  constexpr int64_t kLine = kLineBytes / int64_t{sizeof(T)};
  const kernels::RecurrentForward<T>& args = step.args;
  const int64_t gates = gate_count(args.kind);
  for (int64_t rank = begin; rank < end; ++rank)
    for (int64_t gate = 0; gate < gates; ++gate)
      for (int64_t u = 0; u < step.units; u += kLine)
        hwy::Prefetch(args.gates + (row_at(args.rows, rank, step.t) * gates + gate) * args.width +
                      step.first_unit + u);
}

/// f(units, first rank, last rank) for each task.
template <class F>
void for_tasks(const StepTasks& tasks, const F& f) {
  parallel_for(tasks.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t units = i / tasks.ranks.parts, ranks = i % tasks.ranks.parts;
      f(units, tasks.ranks.begin(ranks), tasks.ranks.begin(ranks + 1));
    }
  });
}

}  // namespace

/// A task reads the whole h of its ranks and writes a part of it: h alternates between two buffers.
template <class T>
void recurrent_forward(const kernels::RecurrentForward<T>& args) {
  using A = accumulator_t<T>;
  const kernels::RecurrentRows& rows = args.rows;
  const int64_t width = args.width, gates = gate_count(args.kind), all = gates * width,
                state = rows.count * width;
  if (rows.steps == 0) return;
  const StepProduct<T> multiply(rows, width, gates, width, {args.weight, 1, width});
  const Workspace<T> states(2 * state);
  std::copy_n(args.h, state, states.data());
  const Workspace<A> whole(multiply.by_blocks() ? 0 : rows.count * all);
  const auto cells = HEED_SIMD_OF(T, forward_ranks);
  for (int64_t t = 0; t < rows.steps; ++t) {
    const int64_t active = rows.active[t], left = t + 1 < rows.steps ? rows.active[t + 1] : 0;
    T* const before = states.data() + t % 2 * state;
    T* const after = states.data() + (t + 1) % 2 * state;
    if (!multiply.by_blocks()) multiply.whole(active, before, whole.data(), false);
    const StepTasks tasks = multiply.tasks(active);
    for_tasks(tasks, [&](int64_t units, int64_t first, int64_t last) {
      ForwardStep<T> step{.args = args,
                          .t = t,
                          .first_unit = tasks.units.begin(units),
                          .units = tasks.units.size(units),
                          .product = whole.data(),
                          .first_rank = 0,
                          .rank_stride = all,
                          .gate_stride = width,
                          .before = before,
                          .after = after};
      const int64_t panel = multiply.block_stride();
      const Workspace<A> product(multiply.by_blocks() ? (last - first) * gates * panel : 0);
      if (multiply.by_blocks()) {
        fetch_gates(step, first, last);
        step.product = product.data();
        step.first_rank = first;
        step.rank_stride = gates * panel;
        step.gate_stride = panel;
        multiply.block(units, last - first, before + first * width, product.data(), step.rank_stride, panel,
                       false);
      }
      cells(step, first, last);
    });
    std::copy(after + left * width, after + active * width, args.h + left * width);
  }
}

/// The tasks of step t make gh of their units first, by the product of the step after it, and then pass it
/// through the cells; what these give to the next product alternates between two buffers. Step -1 has no
/// cells.
template <class T>
void recurrent_backward(const kernels::RecurrentBackward<T>& args) {
  const kernels::RecurrentRows& rows = args.rows;
  const int64_t width = args.width, all = gate_count(args.kind) * width;
  const bool gru = args.kind == CellKind::gru;
  if (rows.steps == 0) return;
  const StepProduct<T> multiply(rows, width, 1, all, {args.weight, width, 1});
  const Workspace<T> gproducts(2 * rows.count * all);
  const auto cells = HEED_SIMD_OF(T, backward_ranks);
  for (int64_t t = rows.steps - 1; t >= -1; --t) {
    const int64_t multiplied = t + 1 < rows.steps ? rows.active[t + 1] : 0;
    const int64_t active = t < 0 ? multiplied : rows.active[t];
    const T* const arrived = gproducts.data() + (t + 1) % 2 * rows.count * all;
    T* const given = gproducts.data() + (t + 2) % 2 * rows.count * all;
    if (!multiply.by_blocks() && multiplied > 0) multiply.whole(multiplied, arrived, args.gh, gru);
    const StepTasks tasks = multiply.tasks(active);
    for_tasks(tasks, [&](int64_t units, int64_t first, int64_t last) {
      const int64_t unit = tasks.units.begin(units), height = std::min(last, multiplied) - first;
      if (multiply.by_blocks() && height > 0)
        multiply.block(units, height, arrived + first * all, args.gh + first * width + unit, width, width,
                       gru);
      if (t < 0) return;
      cells(
          BackwardStep<T>{
              .args = args, .t = t, .first_unit = unit, .units = tasks.units.size(units), .gproduct = given},
          first, last);
    });
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
