// The products of a recurrent layer's time steps, and how a step is cut into tasks. Not installed.
#pragma once

#include <algorithm>
#include <cstdint>

#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/gemm/gemm_path.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/recurrent.h>

namespace heed::cpu {

/// The tasks of a step: each some ranks of some units.
struct StepTasks {
  EvenSplit ranks, units;

  int64_t count() const { return ranks.parts * units.parts; }
};

/// The product of each step by the recurrent weight b [k, parts * width]: `parts` values a unit. The weight
/// is packed once, by blocks of units, so that a task multiplies by one block, which stays in its core's
/// cache, and goes on with the cells of these units. For few rows or a single step packing does not pay, and
/// what AMX and oneDNN multiply they pack themselves: then the product of a step is made before its tasks.
template <class T>
class StepProduct {
 public:
  using A = accumulator_t<T>;

  StepProduct(const kernels::RecurrentRows& rows, int64_t width, int64_t parts, int64_t k, MatrixView<T> b)
      : width_(width),
        parts_(parts),
        k_(k),
        b_(b),
        units_(width, geometry().nr, kBlockUnits),
        stride_(ceil_divide(units_.units, units_.parts) * geometry().nr),
        packed_(packs(rows) ? units_.parts * parts * packed_part() : 0) {
    if (!by_blocks()) return;
    parallel_for(units_.parts * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t unit = units_.begin(i / parts_), part = i % parts_;
        functions().pack_b(b_.at(0, part * width_ + unit), k_, units_.size(i / parts_),
                           packed_.data() + i * packed_part());
      }
    });
  }

  /// Whether tasks call block(); else whole() has to be called before them.
  bool by_blocks() const { return packed_.data() != nullptr; }

  StepTasks tasks(int64_t ranks) const {
    if (by_blocks()) return {{ranks, geometry().mr, kMC}, units_};
    return {{ranks, 1, rows_per_task(ranks, parts_ * width_)}, {width_, width_, width_}};
  }

  /// c [m, parts * width] = a [m, k] b (+ c)
  void whole(int64_t m, const T* a, A* c, bool accumulate) const {
    const int64_t n = parts_ * width_;
    GemmOutput<T> output{.c = c, .ldc = n};
    if (accumulate) output.added = {c, n};
    gemm_blocked<T>({m, n, k_, {a, k_, 1}, b_, output});
  }

  /// The same for at most kMC rows and one block of units, of which value `part` goes to c[row * ldc + part *
  /// stride + unit]. stride: that of block_stride() or more.
  void block(int64_t units, int64_t m, const T* a, A* c, int64_t ldc, int64_t stride, bool accumulate) const {
    const int64_t count = units_.size(units);
    const bool touch = count == stride_ && stride == count;
    const int64_t calls = touch ? 1 : parts_, cols = touch ? parts_ * count : count;
    const MatrixView<T> rows{a, k_, 1};
    const Workspace<A> buffer(copies_a(rows, m, k_, geometry().k_group) ? geometry().a_buffer(m, k_) : 0);
    for (int64_t i = 0; i < calls; ++i) {
      A* const first = c + i * stride;
      functions().block({.a = rows,
                         .a_rows = m,
                         .b = packed_.data() + (units * parts_ + i) * packed_part(),
                         .b_stride = 0,
                         .c = first,
                         .ldc = ldc,
                         .rows = m,
                         .cols = cols,
                         .k = k_,
                         .added = {accumulate ? first : nullptr, ldc},
                         .a_buffer = buffer.data()});
    }
  }

  int64_t block_stride() const { return stride_; }

 private:
  static const GemmGeometry& geometry() { return functions().geometry; }
  static constexpr int64_t kBlockUnits = 64;  // that lie side by side in memory

  static const GemmFunctions<T>& functions() { return gemm_functions<T>(); }
  int64_t packed_part() const { return stride_ * geometry().k_groups(k_); }

  bool packs(const kernels::RecurrentRows& rows) const {
    constexpr int64_t kMinRows = 9, kMinSteps = 2;
    return rows.count >= kMinRows && rows.steps >= kMinSteps &&
           gemm_backend<T>({rows.count, parts_ * width_, k_, {nullptr, k_, 1}, b_, {}}) == GemmBackend::simd;
  }

  const int64_t width_, parts_, k_;
  const MatrixView<T> b_;
  const EvenSplit units_;
  const int64_t stride_;  // most units of a block, in whole panels
  const Workspace<A> packed_;
};

}  // namespace heed::cpu
