// The product by AMX: C is cut into tiles, which are tasks that need nothing before them. Each packs its
// parts of A and B into the core's second-level cache, a piece of K at a time, and what it sums stays there
// too: the next level is ten times slower than the multiplication.
#pragma once

#include <algorithm>

#include <heed/kernels/cpu/amx.h>
#include <heed/kernels/cpu/gemm_block.h>
#include <heed/kernels/cpu/gemm_tiling.h>

namespace heed::cpu {

template <class T>
class AmxProduct {
 public:
  explicit AmxProduct(const BlockedGemm<T>& args);

  int64_t tasks() const { return rows_.parts * cols_.parts; }
  void run(int64_t task) const;

 private:
  const BlockedGemm<T>& args_;
  Cut rows_, cols_;
};

}  // namespace heed::cpu
