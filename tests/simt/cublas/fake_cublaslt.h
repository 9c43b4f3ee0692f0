// A cuBLASLt of plain loops for the emulated device: three algorithms with equal results, the second the
// fastest.
#pragma once

#include <cstdint>
#include <vector>

namespace heed::testing {

inline constexpr uint64_t kFirst = 10, kFastest = 11, kSlowest = 12;  // in the heuristic's order

struct FakeCublas {
  int heuristics = 0;          // how often algorithms were asked for
  uint32_t reductions = 0;     // the mask of the last such question
  std::vector<uint64_t> used;  // the algorithms of all products, in order
};
FakeCublas& fake_cublas();

}  // namespace heed::testing
