// A numbered collection of pairs, from a generator or a file.
#pragma once

#include <cstdint>

#include <heed/data/dataset.h>
#include <heed/data/pair_batch.h>

namespace heed::data {

class PairDataset : public Dataset<Pair> {
 public:
  /// One more than the largest symbol that can occur.
  virtual int64_t vocab() const = 0;

  /// Symbols of the longest source and target that can occur, without marks.
  virtual int64_t longest_source() const = 0;
  virtual int64_t longest_target() const = 0;
};

}  // namespace heed::data
