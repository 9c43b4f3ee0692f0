// The product by AMX, as tasks that need nothing before them: parts of C, or those over each part of a split
// K, whose sum is then C. Each packs its operands into the core's second-level cache, a piece of K at a time,
// and its sums stay there too: the next level is ten times slower than the multiplication.
#pragma once

#include <heed/kernels/cpu/gemm/amx.h>
#include <heed/kernels/cpu/gemm/gemm_blocked.h>
#include <heed/kernels/cpu/gemm/gemm_blocking.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {

template <class T>
class AmxProduct {
 public:
  explicit AmxProduct(const BlockedGemm<T>& args);

  int64_t tasks() const { return splits_k_ ? kSplitK * parts() : parts(); }
  void run(int64_t task) const;
  /// After all tasks.
  void finish() const;

 private:
  int64_t parts() const { return rows_.parts * cols_.parts; }

  const BlockedGemm<T>& args_;
  const bool splits_k_;
  EvenSplit rows_, cols_;
  Workspace<float> partial_;
};

}  // namespace heed::cpu
