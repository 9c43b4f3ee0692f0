// The product by AMX, as tasks that need nothing before them: parts of C, or those over each part of a split
// K, whose sum is then C. Each packs its operands into the core's second-level cache, a piece of K at a time,
// and its sums stay there too: the next level is ten times slower than the multiplication.
#pragma once

#include <heed/kernels/cpu/gemm/amx.h>
#include <heed/kernels/cpu/gemm/gemm_blocked.h>
#include <heed/kernels/cpu/gemm/gemm_blocking.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {

/// Rows and columns of a block of two by two tiles. Tasks are whole blocks, but the last ones.
constexpr int64_t kAmxBlockLines = 2 * kAmxLines;
/// Most lines of each operand in a task: what a core's second-level cache has room for, with the sums.
constexpr int64_t kMaxTaskRows = 384, kMaxTaskCols = 512;

/// The parts of C [m, n], each a task, or kSplitK of them where K is split: by shape alone. At least 4, and
/// an even number unless there are many, where m and n allow it. A task packs its own lines of A and B, and
/// so of all such cuts this is one that packs the fewest lines; of split products the smallest. Into how many
/// parts C is cut changes no bits.
class AmxBlocking : public BlockGrid {
 public:
  AmxBlocking(int64_t m, int64_t n, bool splits_k);
};

template <class T>
class AmxProduct {
 public:
  explicit AmxProduct(const BlockedGemm<T>& args);

  int64_t tasks() const { return splits_k_ ? kSplitK * parts_.count() : parts_.count(); }
  void run(int64_t task) const;
  /// After all tasks.
  void finish() const;

 private:
  const BlockedGemm<T>& args_;
  const bool splits_k_;
  const AmxBlocking parts_;
  Workspace<float> partial_;
};

}  // namespace heed::cpu
