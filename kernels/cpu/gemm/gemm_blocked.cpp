#include <algorithm>
#include <type_traits>

#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_amx.h>
#include <heed/kernels/cpu/gemm/gemm_backend.h>
#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/gemm/gemm_onednn.h>
#include <heed/kernels/cpu/gemm/gemm_tile.h>
#include <heed/kernels/cpu/gemm/gemm_tiling.h>
#include <heed/kernels/cpu/tasks/task_lists.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {
namespace {

constexpr int64_t kStripRows = 3 * kMaxTileRows, kStripCols = 128, kLeastStrips = 12;
constexpr int64_t kCopiedRows = 512;          // and from which on packed weights of their own
constexpr int64_t kFewRows = 8;               // of A, too few to be worth packing B
constexpr int64_t kDotElements = 1 << 15;     // of B a task
constexpr int64_t kPackedElements = 1 << 20;  // of B at once
constexpr int64_t kPieceElements = 3 << 18;   // of B in a piece of K
constexpr int64_t kPieceUnit = 64;            // of K
constexpr int64_t kPackElements = 1 << 13;    // of B a task
constexpr int64_t kLeastCopied = 4;           // tiles of each half where each copies its operands

/// A product and the part of its columns that is packed at a time. Where a core reads a line that another
/// wrote, both wait, and the other does again when it next writes there. So tokens, the rows of a training
/// step's tensors, stay with the thread that has them: products by a small weight have a packed copy of it
/// for each half of the rows, and those that make its gradient sum over each half apart.
template <class T>
struct Product {
  using A = accumulator_t<T>;

  int64_t m, n, k;
  MatrixView<T> a, b;
  const GemmOutput<T>& output;
  bool onednn;
  const GemmFunctions<T>& functions = gemm_functions<T>();
  const GemmGeometry& geometry = functions.geometry;
  int64_t steps = geometry.steps(k);
  int64_t copies = 1;  // of packed columns, each for as many tiles

  void pack(int64_t first, int64_t count, A* packed) const {
    const bool transposed = b.column_stride != 1;  // and then each panel takes whole lines
    const int64_t width = (transposed ? 1 : kPackedPanels) * geometry.panel,
                  groups = ceil_divide(count, width);
    const int64_t per_task = std::max<int64_t>(kPackElements / (k * width), 1);
    parallel_for(copies * groups, per_task, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t j = i % groups * width;
        functions.pack_b(b.at(0, first + j), k, std::min(width, count - j),
                         packed + i / groups * geometry.packed_size(count, k) + j * steps);
      }
    });
  }

  void multiply(int64_t first, int64_t count, const A* packed) const {
    const Tiling tiling(m, count, geometry, onednn);
    const int64_t tiles = tiling.tiles(), size = copies > 1 ? geometry.packed_size(count, k) : 0;
    parallel_for(tiles, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const Tiling::Tile at = tiling.tile(t);
        compute({at.row, at.rows, first + at.col, at.cols},
                packed ? packed + t * copies / tiles * size + at.col * steps : nullptr);
      }
    });
  }

  /// Whether A and B are read as they lie: so near that copies would not be nearer, and B in whole panels.
  bool in_place() const {
    const int64_t far = kFarRows / int64_t{sizeof(T)};
    return !onednn && std::is_same_v<T, A> && b.column_stride == 1 && n % geometry.panel == 0 &&
           std::min(m, k) * n <= kSmallWeight && b.row_stride < far &&
           std::max(a.row_stride, a.column_stride) < far;
  }

  bool sums_halves() const { return in_place() && shares_tokens(a, output, k); }

  /// Packs some columns at a time.
  void multiply_columns() const {
    const Cut parts(n, geometry.panel, kPackedElements / steps);
    for (int64_t i = 0; i < parts.parts; ++i) {
      const int64_t first = parts.begin(i), count = parts.size(i);
      Workspace<A> packed(copies * geometry.packed_size(count, k));
      pack(first, count, packed.data());
      multiply(first, count, packed.data());
    }
  }

  /// For a K so long that A would be read again for every few columns: a piece of K at a time, added to C.
  void multiply_pieces() const {
    const Cut pieces(k, kPieceUnit, kPieceElements / n * geometry.step);
    Workspace<A> buffer(output.c ? 0 : m * n);
    GemmOutput<T> part = output;
    if (!output.c) part.c = buffer.data(), part.ldc = n;
    for (int64_t i = 0; i < pieces.parts; ++i) {
      const int64_t first = pieces.begin(i);
      if (i > 0) part.added = {part.c, part.ldc};
      part.finish = i + 1 == pieces.parts ? output.finish : nullptr;
      Product{m, n, pieces.size(i), a.at(0, first), b.at(first, 0), part, false}.multiply_columns();
    }
  }

  /// For rows that are too few to pay for packing all of B first: each task packs its columns, a piece of K
  /// at a time, and multiplies all rows by them while they are near.
  void multiply_strips() const {
    const Cut cols(n, geometry.panel, kStripCols);
    parallel_for(cols.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) multiply_strip(cols.begin(i), cols.size(i));
    });
  }

  void multiply_strip(int64_t col, int64_t cols) const {
    const Cut rows(m, geometry.rows, kMaxTileRows);
    const int64_t width = geometry.panel, pieces = ceil_divide(steps, geometry.most_k);
    Workspace<A> packed(ceil_divide(cols, width) * width * std::min(steps, geometry.most_k));
    Workspace<A> c_buffer(output.c ? 0 : m * cols);
    A* const c = output.c ? output.c + col : c_buffer.data();
    const int64_t ldc = output.c ? output.ldc : cols;
    for (int64_t piece = 0; piece < pieces; ++piece) {  // those that gemm_tile would make
      const int64_t first = piece * steps / pieces, last = (piece + 1) * steps / pieces;
      const int64_t p = first * geometry.step, depth = std::min(last * geometry.step, k) - p;
      functions.pack_b(b.at(p, col), depth, cols, packed.data());
      for (int64_t i = 0; i < rows.parts; ++i) {
        const int64_t row = rows.begin(i), height = rows.size(i);
        const MatrixView<T> part = a.at(row, p);
        Workspace<A> a_buffer(a_buffer_size(part, height, depth));
        const Addend<A> before{c + row * ldc, ldc};
        functions.tile({part, m - row, packed.data(), 0, c + row * ldc, ldc, height, cols, depth,
                        output.alpha, piece > 0 ? before : output.added.at(row, col), a_buffer.data()});
        if (output.finish && piece + 1 == pieces)
          output.finish(output.context, c + row * ldc, ldc, row, col, height, cols);
      }
    }
  }

  /// Without packing: for few rows, A and the transposed B as they lie.
  void multiply_few() const {
    parallel_for(n, std::max<int64_t>(kDotElements / k, 16), [&](int64_t first, int64_t end) {
      const int64_t count = end - first, ldc = output.c ? output.ldc : count;
      Workspace<A> buffer(output.c ? 0 : m * count);
      A* c = output.c ? output.c + first : buffer.data();
      functions.dots({a.data, b.at(0, first).data, c, a.row_stride, b.column_stride, ldc, m, count, k,
                      output.alpha, output.added.at(0, first)});
      if (output.finish) output.finish(output.context, c, ldc, 0, first, m, count);
    });
  }

  /// Without packed columns the operands are taken as they lie.
  void compute(const Tiling::Tile& at, const A* packed) const {
    Workspace<A> c_buffer(output.c ? 0 : at.rows * at.cols);
    A* const c = output.c ? output.c + at.row * output.ldc + at.col : c_buffer.data();
    const int64_t ldc = output.c ? output.ldc : at.cols;
    const Addend<A> added = output.added.at(at.row, at.col);
    if (onednn) {
      onednn_tile<T>({a.at(at.row, 0), b.at(0, at.col), c, at.rows, at.cols, k, ldc, added.data != nullptr});
    } else if (in_place()) {
      compute_in_place(at, 0, k, c, ldc, added);
    } else {
      Workspace<A> a_buffer(a_buffer_size(a.at(at.row, 0), at.rows, k));
      functions.tile({a.at(at.row, 0), m - at.row, packed, 0, c, ldc, at.rows, at.cols, k, output.alpha,
                      added, a_buffer.data(), nullptr, streams_c(), n * k <= kSmallWeight});
    }
    if (output.finish) output.finish(output.context, c, ldc, at.row, at.col, at.rows, at.cols);
  }

  /// A tile of C from the part of K from `first` to `last`.
  void compute_in_place(const Tiling::Tile& at, int64_t first, int64_t last, A* c, int64_t ldc,
                        Addend<A> added) const {
    if constexpr (std::is_same_v<T, A>) {
      const MatrixView<T> rows = a.at(at.row, first), cols = b.at(first, at.col);
      const int64_t depth = last - first;
      const bool copies_rows = geometry.crowded && rows.column_stride != 1,
                 copies_cols = geometry.crowded && cols.row_stride * int64_t{sizeof(T)} >= kApartRows;
      Workspace<A> a_buffer(copies_rows ? geometry.a_buffer(at.rows, depth) : 0);
      Workspace<A> b_buffer(copies_cols ? geometry.b_buffer(at.cols, depth) : 0);
      functions.tile({rows, m - at.row, cols.data, cols.row_stride, c, ldc, at.rows, at.cols, depth,
                      output.alpha, added, a_buffer.data(), b_buffer.data()});
    }
  }

  /// Whether C goes around the caches: the gradient of a large weight, which is needed only when all others
  /// are there. A usual store would first read what it overwrites.
  bool streams_c() const {
    return steps <= geometry.most_k && n * int64_t{sizeof(A)} % kLineBytes == 0 &&
           exceeds_caches(a, output, m, n);
  }

  int64_t a_buffer_size(const MatrixView<T>& part, int64_t rows, int64_t depth) const {
    return copies_a(part, rows, depth, geometry.step) ? geometry.a_buffer(rows, depth) : 0;
  }
};

/// A product in place, as tasks that need nothing before them: its tiles, or those over each half of K, whose
/// sum is then C.
template <class T>
class DirectProduct {
 public:
  using A = accumulator_t<T>;

  explicit DirectProduct(const Product<T>& product)
      : product_(product),
        halves_(product.sums_halves()),
        tiling_(product.m, product.n, product.geometry, false,
                halves_ && product.geometry.crowded ? kLeastCopied : Tiling::kLeast),
        second_(halves_ ? product.m * product.n : 0) {}

  int64_t tasks() const { return tiling_.tiles() << halves_; }

  void run(int64_t task) {
    const Tiling::Tile at = tiling_.tile(task % tiling_.tiles());
    if (!halves_) return product_.compute(at, nullptr);
    const GemmOutput<T>& output = product_.output;
    const int64_t half = ceil_divide(product_.k, 2), n = product_.n;
    if (task < tiling_.tiles()) {
      A* const c = output.c + at.row * output.ldc + at.col;
      product_.compute_in_place(at, 0, half, c, output.ldc, output.added.at(at.row, at.col));
    } else {
      product_.compute_in_place(at, half, product_.k, second_.data() + at.row * n + at.col, n, {});
    }
  }

  /// After all tasks.
  void finish() {
    if (halves_) add_rows(second_.data(), product_.m, product_.n, product_.output.c, product_.output.ldc);
  }

 private:
  const Product<T>& product_;
  const bool halves_;
  const Tiling tiling_;
  Workspace<A> second_;
};

template <class T>
bool uses_amx(const BlockedGemm<T>& args) {
  return !std::is_same_v<T, double> && gemm_backend(args) == GemmBackend::amx;
}

/// A product whose tasks need nothing before them.
template <class P>
void run(P& product) {
  const auto task = [&](int64_t i) { product.run(i); };
  parallel_for_lists(TaskList{product.tasks(), task});
  product.finish();
}

/// Two of them and other tasks, as one job.
template <class P, class F>
void run_beside(P& a, P& b, const TaskList<F>& others) {
  const auto run_a = [&](int64_t i) { a.run(i); };
  const auto run_b = [&](int64_t i) { b.run(i); };
  parallel_for_lists(others, TaskList{a.tasks(), run_a}, TaskList{b.tasks(), run_b});
  a.finish();
  b.finish();
}

template <class T>
Product<T> product_of(const BlockedGemm<T>& args) {
  return {args.m, args.n, args.k, args.a, args.b, args.output, gemm_backend(args) == GemmBackend::onednn};
}

}  // namespace

template <class T>
void gemm_blocked(const BlockedGemm<T>& args) {
  const auto& [m, n, k, a, b, output] = args;
  Product<T> product = product_of(args);
  if (m <= kFewRows && a.column_stride == 1 && b.row_stride == 1) return product.multiply_few();
  if constexpr (!std::is_same_v<T, double>) {
    if (uses_amx(args)) {
      AmxProduct<T> tiles(args);
      return run(tiles);
    }
  }
  if (product.onednn) return product.multiply(0, n, nullptr);
  if (product.in_place()) {
    DirectProduct<T> direct(product);
    return run(direct);
  }
  if (m <= kStripRows && n >= kLeastStrips * kStripCols) return product.multiply_strips();
  if (a.column_stride == 1 && m >= kCopiedRows && n * k <= kSmallWeight) product.copies = 2;
  if (k > n && n * product.steps > kPieceElements) return product.multiply_pieces();
  product.multiply_columns();
}

template <class T>
bool gemm_blocked_beside(const BlockedGemm<T>& first, const BlockedGemm<T>& second, int64_t tasks,
                         void (*task)(void* context, int64_t i), void* context) {
  const auto beside = [&](int64_t i) { task(context, i); };
  if constexpr (!std::is_same_v<T, double>) {
    if (uses_amx(first) && uses_amx(second)) {
      AmxProduct<T> a(first), b(second);
      run_beside(a, b, TaskList{tasks, beside});
      return true;
    }
  }
  const Product<T> one = product_of(first), other = product_of(second);
  if (!one.in_place() || !other.in_place()) return false;
  DirectProduct<T> a(one), b(other);
  run_beside(a, b, TaskList{tasks, beside});
  return true;
}

template <class T>
int64_t gemm_packed_size(int64_t n, int64_t k) {
  return gemm_functions<T>().geometry.packed_size(n, k);
}

template <class T>
void gemm_pack(int64_t n, int64_t k, MatrixView<T> b, accumulator_t<T>* packed) {
  const GemmOutput<T> nowhere{};
  Product<T>{0, n, k, {}, b, nowhere, false}.pack(0, n, packed);
}

template <class T>
void gemm_blocked_packed(const BlockedGemm<T>& args, const accumulator_t<T>* packed) {
  if (uses_amx(args)) return gemm_blocked(args);
  Product<T>{args.m, args.n, args.k, args.a, {}, args.output, false}.multiply(0, args.n, packed);
}

#define HEED_INSTANTIATE(T)                                                                   \
  template void gemm_blocked<T>(const BlockedGemm<T>&);                                       \
  template bool gemm_blocked_beside<T>(const BlockedGemm<T>&, const BlockedGemm<T>&, int64_t, \
                                       void (*)(void*, int64_t), void*);                      \
  template int64_t gemm_packed_size<T>(int64_t, int64_t);                                     \
  template void gemm_pack<T>(int64_t, int64_t, MatrixView<T>, accumulator_t<T>*);             \
  template void gemm_blocked_packed<T>(const BlockedGemm<T>&, const accumulator_t<T>*);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
