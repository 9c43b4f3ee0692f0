// A cuBLASLt of plain loops for the emulated device: three algorithms with equal results, the second the
// fastest. It takes no empty matrices, and its kernels trap at addresses that are not aligned as was
// promised, and at a bias that is not aligned to 16 bytes, of which nothing can be promised.
#pragma once

#include <cstdint>
#include <cublasLt.h>
#include <vector>

namespace heed::testing {

inline constexpr uint64_t kFirst = 10, kFastest = 11, kSlowest = 12;  // in the heuristic's order

struct FakeCublas {
  int heuristics = 0;                              // how often algorithms were asked for
  uint32_t reductions = 0;                         // the mask of the last such question
  std::vector<uint64_t> used{};                    // the algorithms of all products, in order
  int fused = 0;                                   // products to which a bias was added
  bool adds_bias = true, multiplies = true;        // whether there are algorithms, with a bias and without
  cublasStatus_t refusal = CUBLAS_STATUS_SUCCESS;  // what the heuristic returns where there are none
};
FakeCublas& fake_cublas();

}  // namespace heed::testing
