#include <algorithm>
#include <cmath>
#include <limits>

#include <heed/core/base/check.h>
#include <heed/core/base/int_math.h>
#include <heed/core/base/memory/pooled_vector.h>
#include <heed/kernels/cpu/reduce/reduce_rows.h>
#include <heed/kernels/cpu/simd/strided-inl.h>
#include <heed/kernels/reduce.h>

namespace heed::cpu {
namespace {

using kernels::reduced_t;
using kernels::ReduceOp;

constexpr int kLanes = 8;  // independent sums along a row

template <class T>
inline constexpr bool kIsFloating = !std::is_integral_v<T>;
// Elements that are added one after another, over all lanes. Whole numbers are added without rounding.
template <class T>
constexpr int64_t kRowBlock = kIsFloating<T> ? 128 : 16384;

constexpr int64_t kVectorBlock = 4096;  // elements of a row

template <class T>
constexpr int64_t kColumns = kReducesRows<T> ? 512 : 64;  // neighbouring results that are kept together
template <class T>
constexpr int64_t kColumnBlock = kReducesRows<T> ? 128 : 16;  // rows that are added one after another
template <class T>
constexpr int64_t kColumnChunk = kReducesRows<T> ? 128 : 512;  // rows of a task

// ---- what is reduced: lift() an element, join() two results, finish()

template <class T>
struct SumOp {
  using A = std::conditional_t<kIsFloating<T>, double, uint64_t>;
  static constexpr A kIdentity = 0;
  static A lift(T x, reduced_t<T>) { return static_cast<A>(static_cast<math_t<T>>(x)); }
  static A join(A a, A b) { return a + b; }
  static reduced_t<T> finish(A a, double scale) {
    if constexpr (kIsFloating<T>) a *= scale;
    return static_cast<reduced_t<T>>(a);
  }
};

template <class T>
struct NormOp : SumOp<T> {
  static double lift(T x, reduced_t<T>) { return double(x) * double(x); }
  static reduced_t<T> finish(double a, double scale) {
    return static_cast<reduced_t<T>>(std::sqrt(a * scale));
  }
};

template <class T>
struct GapOp : SumOp<T> {
  static double lift(T x, reduced_t<T> centre) {
    const double gap = double(x) - double(centre);
    return gap * gap;
  }
};

template <class T>
struct ExponentialOp : SumOp<T> {
  static double lift(T x, reduced_t<T> centre) { return std::exp(reduced_t<T>(x) - centre); }
};

template <class T, bool kLargest>
struct ExtremumOp {
  using A = std::conditional_t<std::is_same_v<T, bool>, uint8_t, math_t<T>>;
  using Limits = std::numeric_limits<A>;
  static constexpr A kMin = Limits::has_infinity ? A(-Limits::infinity()) : Limits::lowest();
  static constexpr A kMax = Limits::has_infinity ? Limits::infinity() : Limits::max();
  static constexpr A kIdentity = kLargest ? kMin : kMax;
  static A lift(T x, reduced_t<T>) { return x; }
  static A join(A a, A b) { return (kLargest ? a > b : a < b) || a != a ? a : b; }
  static reduced_t<T> finish(A a, double) { return static_cast<reduced_t<T>>(a); }
};

// ---- how: blocks, joined in pairs

// Joins `width` results side by side, block after block, in a balanced tree: log2(blocks) roundings.
template <class Op>
class Pairs {
 public:
  using A = typename Op::A;
  explicit Pairs(int64_t width) : width_(width) {}

  A* next() {  // where the next block goes
    if (stack_.size() < static_cast<size_t>((depth_ + 1) * width_))
      stack_.resize(static_cast<size_t>((depth_ + 1) * width_));
    return stack_.data() + depth_ * width_;
  }
  void push() {  // the block is complete
    ++depth_;
    for (int64_t bits = blocks_++; bits & 1; bits >>= 1) join_top();
  }
  const A* total() {  // at least one block
    while (depth_ > 1) join_top();
    return stack_.data();
  }

 private:
  void join_top() {
    A* below = stack_.data() + (depth_ - 2) * width_;
    const A* top = below + width_;
    for (int64_t j = 0; j < width_; ++j) below[j] = Op::join(below[j], top[j]);
    --depth_;
  }

  int64_t width_, depth_ = 0, blocks_ = 0;
  PooledVector<A> stack_;
};

template <class T, class Op>
class Reduction {
 public:
  using A = typename Op::A;

  explicit Reduction(const kernels::Reduce<T>& args)
      : args_(args),
        rows_(find_rows(args.op)),
        outputs_(args.kept.count()),
        terms_(args.reduced.count()),
        columns_(neighbours_are_results(args)),
        tile_(columns_ ? kColumns<T> : lines_per_task(terms_)),
        chunk_(columns_ ? kColumnChunk<T> : kTaskElements),
        chunks_(std::max<int64_t>(1, ceil_divide(terms_, chunk_))) {}

  // Tasks are (tile of results, chunk of terms). With several chunks their results are joined at the end.
  void run() {
    const int64_t tiles = ceil_divide(outputs_, tile_);
    partial_.resize(static_cast<size_t>(chunks_ > 1 ? chunks_ * outputs_ : 0));
    const int64_t work = tile_ * std::max<int64_t>(1, std::min(chunk_, terms_));
    parallel_for(tiles * chunks_, std::max<int64_t>(1, kTaskElements / work),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t task = begin; task < end; ++task) reduce_tile(task % tiles, task / tiles);
                 });
    if (chunks_ > 1) join_chunks();
  }

 private:
  static constexpr bool kIsLong = std::is_same_v<T, int64_t>;

  static auto find_rows(ReduceOp op) {
    if constexpr (kReducesRows<T>)
      return reduce_rows<T, A>(op);
    else if constexpr (kIsLong)
      return reduce_integers(op);
    else
      return op;
  }

  // Whether the elements that lie side by side belong to different results.
  static bool neighbours_are_results(const kernels::Reduce<T>& args) {
    if (args.kept.rank == 0) return false;
    if (args.reduced.rank == 0) return true;
    return args.kept.strides[1][args.kept.rank - 1] < args.reduced.strides[0][args.reduced.rank - 1];
  }

  reduced_t<T> centre(int64_t at) const { return args_.centre ? args_.centre[at] : reduced_t<T>(0); }

  void reduce_tile(int64_t tile, int64_t chunk) {
    const int64_t first = chunk * chunk_, last = std::min(first + chunk_, terms_);
    int64_t output = tile * tile_;
    walk(args_.kept, output, std::min(output + tile_, outputs_), [&](const Run<2>& run) {
      if (columns_) {
        reduce_columns(run, first, last, chunk, output);
      } else {
        for (int64_t i = 0; i < run.n; ++i) {
          const int64_t at = run.at[0] + i * run.step[0];
          const T* const x = args_.x + run.at[1] + i * run.step[1];
          put(at, chunk, output + i, sound(reduce_row(x, centre(at), first, last), x, first, last));
        }
      }
      output += run.n;
    });
  }

  void put(int64_t at, int64_t chunk, int64_t output, A result) {
    if (chunks_ > 1)
      partial_[static_cast<size_t>(chunk * outputs_ + output)] = result;
    else
      args_.y[at] = Op::finish(result, args_.scale);
  }

  // Vectors add a few floats up before they are made doubles, and they may overflow where the sum does not.
  static constexpr bool kMayOverflow = kReducesRows<T> && std::is_same_v<Op, SumOp<T>>;
  A sound(A sum, const T* x, int64_t first, int64_t last) const {
    if constexpr (kMayOverflow)
      if (!std::isfinite(sum)) return add_one_by_one(x, first, last);
    return sum;
  }
  [[gnu::noinline]] A add_one_by_one(const T* x, int64_t first, int64_t last) const {
    A sum = 0;
    walk(args_.reduced, first, last, [&](const Run<1>& run) {
      for (int64_t i = 0; i < run.n; ++i)
        sum += static_cast<A>(static_cast<float>(x[run.at[0] + i * run.step[0]]));
    });
    return sum;
  }

  // Terms [first, last) of one result.
  A reduce_row(const T* x, reduced_t<T> centre, int64_t first, int64_t last) const {
    if constexpr (kReducesRows<T>)
      return reduce_blocks(x, centre, first, last);
    else
      return reduce_lanes(x, centre, first, last);
  }

  // By the vector. Elements that do not lie side by side are brought together before, so that their layout
  // changes no bit.
  A reduce_blocks(const T* x, float centre, int64_t first, int64_t last) const {
    int64_t filled = 0, left = last - first;
    if (left <= kVectorBlock && args_.reduced.rank == 1 && args_.reduced.strides[0][0] == 1)
      return rows_.row(x + first, left, centre);
    T buffer[kVectorBlock];
    Pairs<Op> pairs(1);
    const auto reduce_block = [&](const T* block, int64_t n) {
      *pairs.next() = rows_.row(block, n, centre);
      pairs.push();
      left -= n;
    };
    walk(args_.reduced, first, last, [&](const Run<1>& run) {
      for (int64_t i = 0, n; i < run.n; i += n) {
        const T* const from = x + run.at[0] + i * run.step[0];
        const int64_t block = std::min(left, kVectorBlock);
        n = std::min(run.n - i, block - filled);
        if (n == block && run.step[0] == 1) {
          reduce_block(from, n);
          continue;
        }
        for (int64_t j = 0; j < n; ++j) buffer[filled + j] = from[j * run.step[0]];
        filled += n;
        if (filled == block) {
          reduce_block(buffer, block);
          filled = 0;
        }
      }
    });
    return first == last ? Op::kIdentity : *pairs.total();
  }

  A reduce_lanes(const T* x, reduced_t<T> centre, int64_t first, int64_t last) const {
    A lanes[kLanes];
    std::fill_n(lanes, kLanes, Op::kIdentity);
    const auto joined = [&] {
      for (int width = kLanes / 2; width > 0; width /= 2)
        for (int lane = 0; lane < width; ++lane) lanes[lane] = Op::join(lanes[lane], lanes[lane + width]);
      return lanes[0];
    };
    if (last - first <= kRowBlock<T>) {
      walk(args_.reduced, first, last,
           [&](const Run<1>& run) { add_to_lanes(lanes, x + run.at[0], run.n, run.step[0], centre); });
      return joined();
    }
    Pairs<Op> pairs(1);
    int64_t filled = 0;
    const auto flush = [&] {
      *pairs.next() = joined();
      pairs.push();
      std::fill_n(lanes, kLanes, Op::kIdentity);
      filled = 0;
    };
    walk(args_.reduced, first, last, [&](const Run<1>& run) {
      for (int64_t i = 0; i < run.n;) {
        const int64_t n = std::min(run.n - i, kRowBlock<T> - filled);
        add_to_lanes(lanes, x + run.at[0] + i * run.step[0], n, run.step[0], centre);
        i += n;
        filled += n;
        if (filled == kRowBlock<T>) flush();
      }
    });
    if (filled > 0) flush();
    return *pairs.total();
  }

  void add_to_lanes(A* lanes, const T* x, int64_t n, int64_t step, reduced_t<T> centre) const {
    int64_t i = 0;
    if constexpr (kIsLong) {
      if (step == 1) {
        lanes[0] = Op::join(lanes[0], static_cast<A>(rows_(x, n)));
        return;
      }
    }
    if (step == 1) {
      A kept[kLanes];  // in registers, since x does not point to them
      std::copy_n(lanes, kLanes, kept);
      for (; i + kLanes <= n; i += kLanes)
        for (int lane = 0; lane < kLanes; ++lane)
          kept[lane] = Op::join(kept[lane], Op::lift(x[i + lane], centre));
      std::copy_n(kept, kLanes, lanes);
    }
    for (int lane = 0; i < n; ++i, lane = (lane + 1) % kLanes)
      lanes[lane] = Op::join(lanes[lane], Op::lift(x[i * step], centre));
  }

  // Terms [first, last) of the results of `run`, side by side.
  void reduce_columns(const Run<2>& run, int64_t first, int64_t last, int64_t chunk, int64_t output) {
    reduced_t<T> centres[kColumns<T>];
    for (int64_t j = 0; j < run.n; ++j) centres[j] = centre(run.at[0] + j * run.step[0]);
    Pairs<Op> pairs(run.n);
    int64_t filled = 0;
    std::fill_n(pairs.next(), run.n, Op::kIdentity);
    walk(args_.reduced, first, last, [&](const Run<1>& row) {
      for (int64_t i = 0, n; i < row.n; i += n) {
        if (filled == kColumnBlock<T>) {
          pairs.push();
          std::fill_n(pairs.next(), run.n, Op::kIdentity);
          filled = 0;
        }
        n = std::min(row.n - i, kColumnBlock<T> - filled);
        filled += n;
        add_rows(pairs.next(), args_.x + run.at[1] + row.at[0] + i * row.step[0], n, row.step[0], run,
                 centres);
      }
    });
    pairs.push();
    const A* total = pairs.total();
    for (int64_t j = 0; j < run.n; ++j) put(run.at[0] + j * run.step[0], chunk, output + j, total[j]);
    if constexpr (kMayOverflow) {
      A probe = 0;  // NaN if a total is not finite
      for (int64_t j = 0; j < run.n; ++j) probe += total[j] * 0;
      if (probe == 0) return;
      for (int64_t j = 0; j < run.n; ++j)
        put(run.at[0] + j * run.step[0], chunk, output + j,
            sound(total[j], args_.x + run.at[1] + j * run.step[1], first, last));
    }
  }

  void add_rows(A* sums, const T* x, int64_t rows, int64_t step, const Run<2>& run,
                const reduced_t<T>* centres) const {
    if constexpr (kReducesRows<T>) {
      if (run.step[1] == 1) return rows_.columns(sums, x, rows, step, run.n, centres);
      T row[kColumns<T>];
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < run.n; ++j) row[j] = x[i * step + j * run.step[1]];
        rows_.columns(sums, row, 1, 0, run.n, centres);
      }
    } else {
      for (int64_t i = 0; i < rows; ++i, x += step)
        for (int64_t j = 0; j < run.n; ++j)
          sums[j] = Op::join(sums[j], Op::lift(x[j * run.step[1]], centres[j]));
    }
  }

  void join_chunks() {
    for (int64_t span = 1; span < chunks_; span *= 2) {
      for (int64_t chunk = 0; chunk + span < chunks_; chunk += 2 * span) {
        A* const left = partial_.data() + chunk * outputs_;
        const A* const right = left + span * outputs_;
        for (int64_t i = 0; i < outputs_; ++i) left[i] = Op::join(left[i], right[i]);
      }
    }
    int64_t output = 0;
    walk(args_.kept, 0, outputs_, [&](const Run<2>& run) {
      for (int64_t i = 0; i < run.n; ++i)
        args_.y[run.at[0] + i * run.step[0]] =
            Op::finish(partial_[static_cast<size_t>(output++)], args_.scale);
    });
  }

  const kernels::Reduce<T>& args_;
  decltype(find_rows(ReduceOp())) rows_;  // where there are some
  int64_t outputs_, terms_;
  bool columns_;
  int64_t tile_, chunk_, chunks_;
  PooledVector<A> partial_;  // [chunks, outputs]
};

template <class Op, class T>
void run(const kernels::Reduce<T>& args) {
  Reduction<T, Op>(args).run();
}

}  // namespace

template <class T>
void reduce(const kernels::Reduce<T>& args) {
  switch (args.op) {
    case ReduceOp::sum:
      return run<SumOp<T>>(args);
    case ReduceOp::maximum:
      return run<ExtremumOp<T, true>>(args);
    case ReduceOp::minimum:
      return run<ExtremumOp<T, false>>(args);
    default:
      break;
  }
  if constexpr (kIsFloating<T>) {
    switch (args.op) {
      case ReduceOp::norm:
        return run<NormOp<T>>(args);
      case ReduceOp::sum_squared_gap:
        return run<GapOp<T>>(args);
      case ReduceOp::sum_exponential:
        return run<ExponentialOp<T>>(args);
      default:
        break;
    }
  }
  HEED_ASSERT(false, "reduce: operation ", int(args.op), " on ", dtype_of<T>());
}

#define HEED_INSTANTIATE(T) template void reduce<T>(const kernels::Reduce<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(int64_t)
HEED_INSTANTIATE(int32_t)
HEED_INSTANTIATE(bool)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
