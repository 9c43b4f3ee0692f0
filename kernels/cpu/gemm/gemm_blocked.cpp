#include <algorithm>
#include <type_traits>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_amx.h>
#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/gemm/gemm_blocked.h>
#include <heed/kernels/cpu/gemm/gemm_blocking.h>
#include <heed/kernels/cpu/gemm/gemm_onednn.h>
#include <heed/kernels/cpu/gemm/gemm_path.h>
#include <heed/kernels/cpu/tasks/task_lists.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {
namespace {

constexpr int64_t kDotElements = 1 << 15;     // of B a task
constexpr int64_t kPackedElements = 1 << 20;  // of B at once
constexpr int64_t kPieceUnit = 64;            // of K
constexpr int64_t kPackElements = 1 << 13;    // of B a task
constexpr int64_t kReplicas = 2;              // of B: each of two threads has its own
constexpr int64_t kMinCopiedBlocks = 4;       // of each part of K, where each copies its operands

/// A product by vectors or oneDNN, by any path but AMX.
template <class T>
struct Product {
  using A = accumulator_t<T>;

  explicit Product(const BlockedGemm<T>& args, GemmPath path = GemmPath::packed, int64_t b_replicas = 1)
      : m(args.m),
        n(args.n),
        k(args.k),
        a(args.a),
        b(args.b),
        output(args.output),
        path(path),
        b_replicas(b_replicas) {}

  const int64_t m, n, k;
  const MatrixView<T> a, b;
  const GemmOutput<T>& output;
  const GemmPath path;
  const int64_t b_replicas;  // packed copies of B, each for as many blocks of C
  const GemmFunctions<T>& functions = gemm_functions<T>();
  const GemmGeometry& geometry = functions.geometry;
  const int64_t k_groups = geometry.k_groups(k);

  void pack(int64_t first, int64_t count, A* packed) const {
    const bool transposed = b.column_stride != 1;  // and then each panel takes whole lines
    const int64_t width = (transposed ? 1 : kPackedPanels) * geometry.nr, panels = ceil_divide(count, width);
    const int64_t per_task = std::max<int64_t>(kPackElements / (k * width), 1);
    parallel_for(b_replicas * panels, per_task, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t j = i % panels * width;
        functions.pack_b(b.at(0, first + j), k, std::min(width, count - j),
                         packed + i / panels * geometry.packed_size(count, k) + j * k_groups);
      }
    });
  }

  /// The columns [first, first + count) of C, block by block, by packed columns of B or without.
  void multiply(int64_t first, int64_t count, const A* packed) const {
    const Blocking blocks(m, count, geometry, path == GemmPath::onednn);
    const int64_t size = b_replicas > 1 ? geometry.packed_size(count, k) : 0;
    parallel_for(blocks.count(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Blocking::Block at = blocks[i];
        compute({at.row, at.rows, first + at.col, at.cols},
                packed ? packed + i * b_replicas / blocks.count() * size + at.col * k_groups : nullptr);
      }
    });
  }

  /// Packs some columns at a time.
  void multiply_packed() const {
    const EvenSplit parts(n, geometry.nr, kPackedElements / k_groups);
    for (int64_t i = 0; i < parts.parts; ++i) {
      const int64_t first = parts.begin(i), count = parts.size(i);
      Workspace<A> packed(b_replicas * geometry.packed_size(count, k));
      pack(first, count, packed.data());
      multiply(first, count, packed.data());
    }
  }

  /// For a K so long that A would be read again for every few columns: a piece of K at a time, added to C.
  void multiply_k_blocks() const {
    const EvenSplit pieces(k, kPieceUnit, kMaxPieceElements / n * geometry.k_group);
    Workspace<A> buffer(output.c ? 0 : m * n);
    GemmOutput<T> part = output;
    if (!output.c) part.c = buffer.data(), part.ldc = n;
    for (int64_t i = 0; i < pieces.parts; ++i) {
      const int64_t first = pieces.begin(i);
      if (i > 0) part.added = {part.c, part.ldc};
      part.epilogue = nullptr;
      if (i + 1 == pieces.parts) part.epilogue = output.epilogue;
      Product({m, n, pieces.size(i), a.at(0, first), b.at(first, 0), part}).multiply_packed();
    }
  }

  /// For rows that are too few to pay for packing all of B first: each task packs its columns, a piece of K
  /// at a time, and multiplies all rows by them while they are in the cache.
  void multiply_column_strips() const {
    const EvenSplit cols(n, geometry.nr, kStripCols);
    parallel_for(cols.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) multiply_strip(cols.begin(i), cols.size(i));
    });
  }

  void multiply_strip(int64_t col, int64_t cols) const {
    const EvenSplit rows(m, geometry.mr, kMC);
    const int64_t pieces = ceil_divide(k_groups, geometry.kc);
    Workspace<A> packed(ceil_divide(cols, geometry.nr) * geometry.nr * std::min(k_groups, geometry.kc));
    Workspace<A> c_buffer(output.c ? 0 : m * cols);
    A* const c = output.c ? output.c + col : c_buffer.data();
    const int64_t ldc = output.c ? output.ldc : cols;
    for (int64_t piece = 0; piece < pieces; ++piece) {  // those that gemm_block would make
      const int64_t first = piece * k_groups / pieces, last = (piece + 1) * k_groups / pieces;
      const int64_t p = first * geometry.k_group, depth = std::min(last * geometry.k_group, k) - p;
      functions.pack_b(b.at(p, col), depth, cols, packed.data());
      for (int64_t i = 0; i < rows.parts; ++i) {
        const int64_t row = rows.begin(i), height = rows.size(i);
        const MatrixView<T> part = a.at(row, p);
        Workspace<A> a_buffer(a_buffer_size(part, height, depth));
        const Addend<A> before{c + row * ldc, ldc};
        functions.block({.a = part,
                         .a_rows = m - row,
                         .b = packed.data(),
                         .b_stride = 0,
                         .c = c + row * ldc,
                         .ldc = ldc,
                         .rows = height,
                         .cols = cols,
                         .k = depth,
                         .alpha = output.alpha,
                         .added = piece > 0 ? before : output.added.at(row, col),
                         .a_buffer = a_buffer.data()});
        if (output.epilogue && piece + 1 == pieces)
          output.epilogue({c + row * ldc, ldc, row, col, height, cols});
      }
    }
  }

  /// Without packing: for few rows, A and the transposed B in place.
  void multiply_dots() const {
    parallel_for(n, std::max<int64_t>(kDotElements / k, 16), [&](int64_t first, int64_t end) {
      const int64_t count = end - first, ldc = output.c ? output.ldc : count;
      Workspace<A> buffer(output.c ? 0 : m * count);
      A* c = output.c ? output.c + first : buffer.data();
      functions.dots({.a = a.data,
                      .b = b.at(0, first).data,
                      .c = c,
                      .lda = a.row_stride,
                      .ldb = b.column_stride,
                      .ldc = ldc,
                      .rows = m,
                      .columns = count,
                      .k = k,
                      .alpha = output.alpha,
                      .added = output.added.at(0, first)});
      if (output.epilogue) output.epilogue({c, ldc, 0, first, m, count});
    });
  }

  /// One block. Without packed columns the operands are read in place.
  void compute(const Blocking::Block& at, const A* packed) const {
    Workspace<A> c_buffer(output.c ? 0 : at.rows * at.cols);
    A* const c = output.c ? output.c + at.row * output.ldc + at.col : c_buffer.data();
    const int64_t ldc = output.c ? output.ldc : at.cols;
    const Addend<A> added = output.added.at(at.row, at.col);
    if (path == GemmPath::onednn) {
      onednn_block<T>({a.at(at.row, 0), b.at(0, at.col), c, at.rows, at.cols, k, ldc, added.data != nullptr});
    } else if (path == GemmPath::in_place) {
      compute_in_place(at, 0, k, c, ldc, added);
    } else {
      Workspace<A> a_buffer(a_buffer_size(a.at(at.row, 0), at.rows, k));
      functions.block({.a = a.at(at.row, 0),
                       .a_rows = m - at.row,
                       .b = packed,
                       .b_stride = 0,
                       .c = c,
                       .ldc = ldc,
                       .rows = at.rows,
                       .cols = at.cols,
                       .k = k,
                       .alpha = output.alpha,
                       .added = added,
                       .a_buffer = a_buffer.data(),
                       .nontemporal = nontemporal_c(),
                       .b_in_cache = n * k <= kSmallWeight});
    }
    if (output.epilogue) output.epilogue({c, ldc, at.row, at.col, at.rows, at.cols});
  }

  /// A block of C from the part of K from `first` to `last`.
  void compute_in_place(const Blocking::Block& at, int64_t first, int64_t last, A* c, int64_t ldc,
                        Addend<A> added) const {
    if constexpr (std::is_same_v<T, A>) {
      const MatrixView<T> rows = a.at(at.row, first), cols = b.at(first, at.col);
      const int64_t depth = last - first;
      const bool copies_rows = geometry.low_associativity && rows.column_stride != 1,
                 copies_cols =
                     geometry.low_associativity && cols.row_stride * int64_t{sizeof(T)} >= kConflictStrideB;
      Workspace<A> a_buffer(copies_rows ? geometry.a_buffer(at.rows, depth) : 0);
      Workspace<A> b_buffer(copies_cols ? geometry.b_buffer(at.cols, depth) : 0);
      functions.block({.a = rows,
                       .a_rows = m - at.row,
                       .b = cols.data,
                       .b_stride = cols.row_stride,
                       .c = c,
                       .ldc = ldc,
                       .rows = at.rows,
                       .cols = at.cols,
                       .k = depth,
                       .alpha = output.alpha,
                       .added = added,
                       .a_buffer = a_buffer.data(),
                       .b_buffer = b_buffer.data()});
    }
  }

  bool nontemporal_c() const {
    return k_groups <= geometry.kc && n * int64_t{sizeof(A)} % kLineBytes == 0 &&
           stores_nontemporal(a, output, m, n);
  }

  int64_t a_buffer_size(const MatrixView<T>& part, int64_t rows, int64_t depth) const {
    return copies_a(part, rows, depth, geometry.k_group) ? geometry.a_buffer(rows, depth) : 0;
  }
};

/// A product in place, as tasks that need nothing before them: its blocks, or those over each part of a split
/// K, whose sum is then C.
template <class T>
class DirectProduct {
 public:
  using A = accumulator_t<T>;

  explicit DirectProduct(const BlockedGemm<T>& args)
      : product_(args, GemmPath::in_place),
        split_k_(splits_k(args.a, args.output, args.k)),
        blocks_(args.m, args.n, product_.geometry, false,
                split_k_ && product_.geometry.low_associativity ? kMinCopiedBlocks : Blocking::kMinBlocks),
        partial_(split_k_ ? args.m * args.n : 0) {}

  int64_t tasks() const { return split_k_ ? kSplitK * blocks_.count() : blocks_.count(); }

  void run(int64_t task) {
    const Blocking::Block at = blocks_[task % blocks_.count()];
    if (!split_k_) return product_.compute(at, nullptr);
    const GemmOutput<T>& output = product_.output;
    const int64_t half = ceil_divide(product_.k, kSplitK), n = product_.n;
    if (task < blocks_.count()) {
      A* const c = output.c + at.row * output.ldc + at.col;
      product_.compute_in_place(at, 0, half, c, output.ldc, output.added.at(at.row, at.col));
    } else {
      product_.compute_in_place(at, half, product_.k, partial_.data() + at.row * n + at.col, n, {});
    }
  }

  /// After all tasks.
  void finish() {
    if (split_k_)
      add_partial(partial_.data(), product_.m, product_.n, product_.output.c, product_.output.ldc);
  }

 private:
  const Product<T> product_;
  const bool split_k_;
  const Blocking blocks_;
  Workspace<A> partial_;
};

/// By the packed copy of B that is kept with B's memory, made now if there is none.
template <class T>
void multiply_packed_copy(const BlockedGemm<T>& args) {
  using A = accumulator_t<T>;
  const Product<T> product(args);
  const kernels::PackedCopies::Matrix b{args.b.data, args.k, args.n, dtype_of<T>()};
  const std::byte* copy = args.b_copies->find(b);
  if (!copy) {
    const auto pack = [&](std::byte* to) { product.pack(0, args.n, reinterpret_cast<A*>(to)); };
    copy = args.b_copies->keep(b, product.geometry.packed_size(args.n, args.k) * int64_t{sizeof(A)}, pack);
  }
  product.multiply(0, args.n, reinterpret_cast<const A*>(copy));
}

template <class T>
bool uses_amx(const BlockedGemm<T>& args) {
  return !std::is_same_v<T, double> && gemm_backend(args) == GemmBackend::amx;
}

/// A product whose tasks need nothing before them.
template <class P>
void run(P&& product) {
  const auto task = [&](int64_t i) { product.run(i); };
  parallel_for_lists(TaskList{product.tasks(), task});
  product.finish();
}

/// Two of them and other tasks, as one job.
template <class P>
void run_pair(P&& a, P&& b, int64_t tasks, FunctionRef<void(int64_t)> task) {
  const auto run_a = [&](int64_t i) { a.run(i); };
  const auto run_b = [&](int64_t i) { b.run(i); };
  parallel_for_lists(TaskList{tasks, task}, TaskList{a.tasks(), run_a}, TaskList{b.tasks(), run_b});
  a.finish();
  b.finish();
}

}  // namespace

template <class T>
void gemm_blocked(const BlockedGemm<T>& args) {
  const GemmPath path = gemm_path(args);
  switch (path) {
    case GemmPath::packed_copy:
      return multiply_packed_copy(args);
    case GemmPath::dot:
      return Product<T>(args, path).multiply_dots();
    case GemmPath::amx:
      if constexpr (!std::is_same_v<T, double>) run(AmxProduct<T>(args));
      return;
    case GemmPath::onednn:
      return Product<T>(args, path).multiply(0, args.n, nullptr);
    case GemmPath::in_place:
      return run(DirectProduct<T>(args));
    case GemmPath::column_strips:
      return Product<T>(args, path).multiply_column_strips();
    case GemmPath::k_blocks:
      return Product<T>(args, path).multiply_k_blocks();
    case GemmPath::packed:
      return Product<T>(args, path, replicates_b(args) ? kReplicas : 1).multiply_packed();
  }
}

template <class T>
bool gemm_blocked_pair(const BlockedGemm<T>& first, const BlockedGemm<T>& second, int64_t tasks,
                       FunctionRef<void(int64_t)> task) {
  if constexpr (!std::is_same_v<T, double>) {
    if (uses_amx(first) && uses_amx(second)) {
      run_pair(AmxProduct<T>(first), AmxProduct<T>(second), tasks, task);
      return true;
    }
  }
  if (!reads_in_place(first) || !reads_in_place(second)) return false;
  run_pair(DirectProduct<T>(first), DirectProduct<T>(second), tasks, task);
  return true;
}

#define HEED_INSTANTIATE(T)                                                                 \
  template void gemm_blocked<T>(const BlockedGemm<T>&);                                     \
  template bool gemm_blocked_pair<T>(const BlockedGemm<T>&, const BlockedGemm<T>&, int64_t, \
                                     FunctionRef<void(int64_t)>);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
