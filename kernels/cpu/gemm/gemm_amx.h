// The product by AMX, as tasks that need nothing before them: tiles of C, or those over each half of K, whose
// sum is then C. Each packs its parts of A and B into the core's second-level cache, a piece of K at a time,
// and what it sums stays there too: the next level is ten times slower than the multiplication.
#pragma once

#include <heed/kernels/cpu/gemm/amx.h>
#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/gemm/gemm_tiling.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {

template <class T>
class AmxProduct {
 public:
  explicit AmxProduct(const BlockedGemm<T>& args);

  int64_t tasks() const { return tiles() << halves_; }
  void run(int64_t task) const;
  /// After all tasks.
  void finish() const;

 private:
  int64_t tiles() const { return rows_.parts * cols_.parts; }

  const BlockedGemm<T>& args_;
  const bool halves_;
  Cut rows_, cols_;
  Workspace<float> second_;
};

}  // namespace heed::cpu
